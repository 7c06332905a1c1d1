# SPDX-License-Identifier: Apache-2.0
"""A running command cuts the files of its database short while `diff` reads them: a mapping of one of them would end
the reader with SIGBUS. In a build with -Dsabotage=true that is shown, too."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tools'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from expect import complaining, need, same  # noqa: E402
from tap import run  # noqa: E402
from users import begin  # noqa: E402

ATOLL = os.environ.get('ATOLL', '')
SABOTAGE = os.environ.get('ATOLL_TEST_SABOTAGE') == '1'
DIFFS = 40

OPEN = '''
import os, sqlite3, sys
path = os.path.realpath(sys.argv[1])
db = sqlite3.connect(path, isolation_level=None, timeout=0)
db.execute('PRAGMA journal_mode=WAL')
db.execute('PRAGMA wal_autocheckpoint=0')
db.execute("INSERT INTO t VALUES(2, 'committed')")
'''
CUT = OPEN + '''
fd = os.open(path + '-shm', os.O_RDWR)
print('begun', flush=True)
while True:
    os.ftruncate(fd, 0)
'''
HOLD = OPEN + '''
db.execute('BEGIN')
db.execute("INSERT INTO t VALUES(3, 'not committed')")
print('begun', flush=True)
sys.stdin.readline()
db.execute('COMMIT')
db.execute('PRAGMA wal_checkpoint(TRUNCATE)')
print('done', flush=True)
sys.stdin.readline()
'''
WRITE = '''
import os, sqlite3, sys, time
path = os.path.realpath(sys.argv[1])
db = sqlite3.connect(path, isolation_level=None, timeout=60)
db.execute('PRAGMA journal_mode=' + sys.argv[2])
db.execute('PRAGMA wal_autocheckpoint=3')
print('begun', flush=True)
i = 10
while True:
    db.execute('BEGIN IMMEDIATE')
    db.execute('INSERT INTO t VALUES(?, ?)', (i, 'left'))
    db.execute('INSERT INTO u VALUES(?, ?)', (i, 'right'))
    db.execute('COMMIT')
    i += 1
    time.sleep(0.01)  # or no reader would ever get the lock
'''


class World:
    def __init__(self):
        self.top = Path(tempfile.mkdtemp(prefix='atoll-memory.', dir='/var/tmp'))
        self.db = self.top / 'dev.db'
        with sqlite3.connect(self.db) as db:
            db.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, x)')
            db.execute('CREATE TABLE u(id INTEGER PRIMARY KEY, x)')
            db.execute("INSERT INTO t VALUES(1, 'old')")
        db.close()
        self.env = dict(os.environ, ATOLL_HOME=str(self.top / 'home'), NO_COLOR='1', LC_ALL='C.UTF-8',
                        HOME=str(self.top))
        self.command = None
        same(self.atoll('start', 'p', '--sqlite', str(self.db)).returncode, 0, 'start')

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.command:
            self.command.kill()
            self.command.wait()
            self.command.stdin.close()
            self.command.stdout.close()
        self.atoll('stop', '--force', '--yes', '--wait', '60', 'p')
        shutil.rmtree(self.top)

    def atoll(self, *words):
        return subprocess.run([ATOLL, *words], env=self.env, cwd=self.top, stdin=subprocess.DEVNULL, capture_output=True,
                              check=False)

    def run(self, script, *words):
        self.command = subprocess.Popen([ATOLL, 'exec', 'p', '--', '/usr/bin/python3', '-c', script, str(self.db), *words],
                                        env=self.env, cwd=self.top, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        same(self.command.stdout.readline(), b'begun\n', 'the command')

    def left_over(self):
        return [str(p) for p in (self.top / 'home').rglob('read*-*')]


def ends_of_diffs():
    """How diffs ended while their database's shared memory was cut short all the time."""
    with World() as w:
        w.run(CUT)
        ends = set()
        for _ in range(DIFFS):
            ends.add(w.atoll('diff', '--patch', 'p').returncode)
            if -signal.SIGBUS in ends:
                break
        same(w.command.poll(), None, 'the command still runs')
        same(w.left_over(), [], 'copies')
        return ends


def attack_by_cutting_shared_memory_short():
    same(ends_of_diffs(), {0}, 'exit statuses of diff')
    if SABOTAGE:
        os.environ['ATOLL_SABOTAGE'] = 'private-copy'
        try:
            need(ends_of_diffs() != {0}, 'control: nothing happened to a diff that shares memory')
        finally:
            del os.environ['ATOLL_SABOTAGE']


def sec_01_a_copy_of_what_is_committed():
    """What a running command has committed is shown, also where it is in the WAL only, and nothing else; and the command
    is not held up."""
    with World() as w:
        w.run(HOLD)
        said = w.atoll('diff', '--patch', 'p').stdout.decode()
        need("'committed'" in said and 'not committed' not in said, f'in a transaction: {said}')
        w.command.stdin.write(b'\n')
        w.command.stdin.flush()
        same(w.command.stdout.readline(), b'done\n', 'the checkpoint')
        said = w.atoll('diff', '--patch', 'p').stdout.decode()
        need("'committed'" in said and 'not committed' in said, f'after the checkpoint: {said}')
        same(w.left_over(), [], 'copies')


def sec_01_a_copy_is_consistent():
    """Both halves of each transaction, or neither, whatever the journal, and while checkpoints go on."""
    for mode in ('wal', 'delete', 'truncate', 'persist'):
        with World() as w:
            w.run(WRITE, mode)
            for _ in range(6):
                said = w.atoll('diff', '--patch', 'p')
                text = said.stdout.decode()
                need(said.returncode == 0, f'{mode}: {said.stderr.decode()}')
                same(text.count("'left'"), text.count("'right'"), f'halves of transactions with {mode}')
            need("'left'" in text, f'nothing was seen with {mode}')


if __name__ == '__main__':
    begin()
    sys.exit(run([complaining(check) for check in (
        attack_by_cutting_shared_memory_short,
        sec_01_a_copy_of_what_is_committed,
        sec_01_a_copy_is_consistent,
    )]))

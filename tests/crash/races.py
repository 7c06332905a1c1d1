#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Races. 64 processes at once, of all commands that look at plans or change them, over plans of a directory by
overlay, one by copy, a repository and a database that share all of these; of each three one is killed at some
moment. What a command writes in a plan it writes in an order that can be seen, so that a commit or an undo of
which only a part happened would show. At the end, after one recovery: all resources fit together, nothing is
half done, no lock is stuck, no process, mount or file is left. Prints TAP.

usage: races.py root|user        $ATOLL_LONG: for minutes
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from crashlib import LONG, Broken, become, run, traced

ATOLL = os.environ['ATOLL']
PROCESSES, PLANS = 64, 4
SECONDS = 240 if LONG else 8
PATIENCE = 120
KILLED_OF = 3
KINDS = ('d', 'c', 'repo', 'lite')
# Two of five commands work, one decides.
COMMANDS = [['exec']] * 12 + [['commit', '{}']] * 4 + [['rollback', '{}']] * 2 + [
    ['reset', '{}'], ['refresh', '{}'], ['diff', '{}'], ['show', '{}'], ['list'], ['log'], ['lock'], ['path', '{}'], ['clean'], ['recover'],
    ['stop', '--force', '{}'], ['start']]
# Refused, a conflict, a lock that was taken, no such plan: all said before anything was touched.
EXITS = (0, 1, 3, 4, 5, 7, 125)


class World:
    """Of everybody's counters, N of them in each resource: wN, and in `d` also eN, written last."""

    def __init__(self):
        self.top = Path(tempfile.mkdtemp(prefix='atoll-races.', dir='/var/tmp'))
        self.env = dict(os.environ, ATOLL_HOME=str(self.top / 'home'), HOME=str(self.top), LC_ALL='C.UTF-8', NO_COLOR='1', GIT_CONFIG_NOSYSTEM='1',
                        GIT_AUTHOR_NAME='a', GIT_AUTHOR_EMAIL='a@b', GIT_COMMITTER_NAME='a', GIT_COMMITTER_EMAIL='a@b', **traced())
        for name in ('d', 'c', 'repo'):
            (self.top / name).mkdir()
            for n in range(PROCESSES):
                (self.top / name / f'w{n}').write_text('0\n', encoding='utf-8')
        for n in range(PROCESSES):
            (self.top / 'd' / f'e{n}').write_text('0\n', encoding='utf-8')
        rows = ', '.join(f'({n}, 0)' for n in range(PROCESSES))
        self.shell(f'git init -q -b main repo; git -C repo add .; git -C repo commit -qm old; '
                   f'sqlite3 lite.db "create table t(id integer primary key, v integer); insert into t values {rows}"')
        self.found, self.lock = Counter(), threading.Lock()
        self.wrong = []

    def shell(self, text):
        return subprocess.run(['sh', '-ec', text], cwd=self.top, env=self.env, check=True, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True).stdout

    def begin(self, words):
        return subprocess.Popen([ATOLL, *words], cwd=self.top, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, errors='replace')

    def must(self, *words):
        process = self.begin(words)
        said = process.communicate(timeout=PATIENCE)[1]
        if process.returncode:
            raise Broken(f'{" ".join(words)}: exit {process.returncode}: {said.strip()}')

    def note(self, what, wrong=None):
        with self.lock:
            self.found[what] += 1
            if wrong:
                self.wrong.append(wrong)

    # What is there.

    def values(self, n):
        """[e, lite, repo, c, w]: each at least as new as the one before, and all the same unless a command was killed."""
        def read(name):
            return int((self.top / name).read_text(encoding='utf-8'))
        return [read(f'd/e{n}'), self.rows[n], read(f'repo/w{n}'), read(f'c/w{n}'), read(f'd/w{n}')]

    def fits_together(self):
        self.rows = dict(map(int, line.split('|')) for line in self.shell('sqlite3 lite.db "select id, v from t"').split())
        seen = {n: self.values(n) for n in range(PROCESSES)}
        torn = {n: v for n, v in seen.items() if v != sorted(v)}
        if torn:
            raise Broken(f'of who does not fit together: {torn}')
        return sum(v[0] > 0 for v in seen.values())

    def nothing_left(self):
        left = [str(p) for pattern in ('*.lock', '*.keep', '*.new') for p in (self.top / 'repo/.git').rglob(pattern)]
        left += [str(p) for name in ('d', 'c', 'repo') for p in (self.top / name).rglob('.atoll-*')]
        left += [str(p) for p in (self.top / 'home/plans').glob('*')]
        left += [line for line in Path('/proc/self/mounts').read_text(encoding='utf-8').splitlines() if str(self.top) in line]
        if left:
            raise Broken(f'left behind: {left[:5]}')
        deadline = time.monotonic() + 10
        while self.processes():
            if time.monotonic() > deadline:
                raise Broken(f'still at work: {self.processes()}')
            time.sleep(.1)

    def processes(self):
        found = []
        for folder in Path('/proc').glob('[0-9]*'):
            try:
                if os.fsencode(f'ATOLL_HOME={self.top}/home') in (folder / 'environ').read_bytes():
                    found.append((folder / 'cmdline').read_bytes())
            except OSError:
                pass
        return found


def words_of(n, value, chance):
    """Whoever works does so in one plan only, so that its counters have one history."""
    plan = chance.choice('pqrs'[:PLANS])
    words = list(chance.choice(COMMANDS))
    if words == ['start']:
        return ['start', '--file', f'plan.{plan}']
    if words != ['exec']:
        return [word.format(plan) for word in words]
    lines = [f'echo {value} >d/w{n}', f'echo {value} >c/w{n}', f'echo {value} >repo/w{n}']
    if chance.random() < .2:
        lines.append('rm -f repo/.git/*.lock; git -C repo commit -qam work || :')  # of a git that was killed, in this plan alone
    lines += [f'sqlite3 lite.db "pragma busy_timeout = 20000; update t set v = {value} where id = {n}" >&2', f'echo {value} >d/e{n}']
    return ['exec', 'pqrs'[n % PLANS], '--', 'sh', '-ec', '; '.join(lines)]


def worker(world, n, until):
    try:
        work(world, n, until)
    except Exception as why:  # pylint: disable=broad-except
        world.note('wrong', f'{type(why).__name__}: {why}')


def work(world, n, until):
    chance, value = random.Random(n), 0
    while time.monotonic() < until and not world.wrong:
        value += 1
        words = words_of(n, value, chance)
        process = world.begin(words + ['--wait', str(chance.choice([0, 2, 20]))] if words[0] != 'exec' else words)
        killed = chance.randrange(KILLED_OF) == 0
        try:
            said = process.communicate(timeout=chance.random() ** 2 * 2 if killed else PATIENCE)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            world.note('killed', None if killed else f'{words}: hangs')
            continue
        if process.returncode not in EXITS and words[0] != 'exec':
            world.note('wrong', f'{words}: exit {process.returncode}: {said.strip()}')
        world.note(f'{words[0]} {"done" if process.returncode == 0 else "refused"}')


def con_05_all_commands_killed_at_random():
    world = World()
    try:
        for plan in 'pqrs'[:PLANS]:
            parts = ['kind = dir\npath = d', 'kind = dir\npath = c\nstrategy = copy', 'kind = git\npath = repo', 'kind = sqlite\npath = lite.db']
            text = f'[plan]\nname = {plan}\n' + ''.join(f'[resource "{name}"]\n{part}\n' for name, part in zip(KINDS, parts))
            (world.top / f'plan.{plan}').write_text(text, encoding='utf-8')
            world.must('start', '--file', f'plan.{plan}')
        until = time.monotonic() + SECONDS
        threads = [threading.Thread(target=worker, args=(world, n, until)) for n in range(PROCESSES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if world.wrong:
            return world.wrong[:5]
        world.must('recover')
        reached = world.fits_together()
        print(f'# {sum(world.found.values())} commands of {PROCESSES} processes, {world.found["killed"]} killed; '
              f'{", ".join(f"{k} {v}" for k, v in sorted(world.found.items()))}; the work of {reached} arrived', flush=True)
        for plan in world.shell(f'{ATOLL} list --json | python3 -c "import json, sys; [print(p[\'name\']) for p in json.load(sys.stdin)[\'plans\']]"').split():
            world.must('exec', plan, '--', 'true')  # no lock is stuck
            world.must('stop', '--force', plan)
        world.must('clean')
        world.fits_together()
        world.nothing_left()
        if world.shell('sqlite3 lite.db "pragma integrity_check"') != 'ok\n' or world.shell('git -C repo fsck --no-dangling'):
            raise Broken('a resource is damaged')
        if not world.found['commit done'] or not world.found['killed']:
            return [f'too little happened: {dict(world.found)}']
    except (Broken, subprocess.SubprocessError) as why:
        return [f'{type(why).__name__}: {why}'.replace('\n', ' | ')[:1500]]
    finally:
        if not os.environ.get('RACES_KEEP'):
            shutil.rmtree(world.top, ignore_errors=True)
    return []


if __name__ == '__main__':
    become(sys.argv[1])
    sys.exit(run([con_05_all_commands_killed_at_random]))

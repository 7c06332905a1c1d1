# SPDX-License-Identifier: Apache-2.0
"""Commands of one plan, and whoever runs them or waits for them, killed at random: never two at once,
no process of a dead command when the next one runs, and the queue moves on (DER-14, DER-23).

ATOLL_LONG=1 kills 10,000 times instead of 150.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tools'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from expect import complaining, need, same  # noqa: E402
from tap import run  # noqa: E402

ATOLL = os.environ.get('ATOLL', '')
ALONE = os.environ.get('ATOLL_TEST_ALONE', '')
WORKERS = 6
KILLS = 10000 if os.environ.get('ATOLL_LONG') else 150
PATIENCE = 180
SLOW_MIB = 400


def children(pid):
    try:
        return [int(n) for n in Path(f'/proc/{pid}/task/{pid}/children').read_text().split()]
    except OSError:
        return []


class World:
    def __init__(self):
        self.top = Path(tempfile.mkdtemp(prefix='atoll-chaos.', dir='/var/tmp'))
        self.root = self.top / 'root'
        self.root.mkdir()
        program = shutil.copy(ALONE, self.top / 'alone')
        self.alone = [ATOLL, 'exec', 'p', '--ro', program, '--', program]
        # The search for leaks has a process of its own, whose death leaves the other waiting for ever.
        self.env = dict(os.environ, ATOLL_HOME=str(self.top / 'home'), LC_ALL='C.UTF-8',
                        ASAN_OPTIONS=os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0')
        self.atoll('start', 'p', '--dir', str(self.root))
        self.workers = []

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.atoll('stop', '--force', '--yes', '--wait', '30', 'p')
        shutil.rmtree(self.top, ignore_errors=True)

    def atoll(self, *words):
        return subprocess.run([ATOLL, *words], env=self.env, cwd=self.root, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=PATIENCE)

    def until_waiting(self, count):
        """That many are seen to wait for the plan."""
        end = time.monotonic() + PATIENCE
        while sum(lock['waiting'] for lock in json.loads(self.atoll('lock', 'show', 'p', '--json').stdout)['locks']) < count:
            need(time.monotonic() < end, f'{count} do not wait')
            time.sleep(0.02)

    def start(self, out):
        worker = subprocess.Popen(
            [*self.alone, self.top.name, str(random.randrange(15000))],
            env=self.env, cwd=self.root, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)
        worker.began = time.monotonic()
        return worker


def choose_victim(worker):
    """atoll itself half of the time, else the helper, else the first process of the namespace."""
    chain = [worker.pid]
    while len(chain) < 3 and (below := children(chain[-1])):
        chain.append(below[0])
    return random.choice([worker.pid, *chain])


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def der_23_killed_at_random_nobody_meets_the_dead():
    random.seed(4)
    kills = done = 0
    with World() as w, open(w.top / 'said', 'ab') as out:
        while kills < KILLS:
            for i in range(WORKERS):
                if i >= len(w.workers):
                    w.workers.append(w.start(out))
                elif w.workers[i].poll() is not None:
                    done += w.workers[i].returncode == 0
                    w.workers[i] = w.start(out)
                need(time.monotonic() - w.workers[i].began < PATIENCE, 'the queue is stuck')
            time.sleep(random.random() * 0.02)
            kills += kill(choose_victim(random.choice(w.workers)))
        for worker in w.workers:
            worker.kill()
            worker.wait()
        same((w.top / 'said').read_text(), '', 'commands that met another')
        begin = time.monotonic()
        same(w.atoll('exec', 'p', '--', 'true').returncode, 0, 'a command afterwards')
        need(time.monotonic() - begin < PATIENCE, 'the plan is free')
        print(f'# {kills} kills, {done} commands ended by themselves')
        need(done > 0, 'some commands end')


def lock_a_stopped_waiter_is_passed():
    """Those behind one that waits and is stopped do not wait for it."""
    with World() as w:
        first = subprocess.Popen([ATOLL, 'exec', 'p', '--', 'sh', '-c', 'echo ready; read x'], env=w.env, cwd=w.root,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        w.workers.append(first)
        same(first.stdout.readline(), b'ready\n', 'it has the plan')
        for n in range(2):
            waiter = subprocess.Popen([ATOLL, 'exec', 'p', '--', 'true'], env=w.env, cwd=w.root,
                                      stderr=subprocess.DEVNULL)
            w.workers.append(waiter)
            w.until_waiting(n + 1)
            waiter.send_signal(signal.SIGSTOP)
        first.communicate(b'\n', timeout=PATIENCE)
        same(first.returncode, 0, 'the first command')
        begin = time.monotonic()
        same(w.atoll('exec', 'p', '--', 'true').returncode, 0, 'one behind them')
        need(time.monotonic() - begin < 60, 'it is not held up')
        for waiter in w.workers[1:]:
            need(waiter.poll() is None, 'the stopped one has not run')
            waiter.send_signal(signal.SIGCONT)
            same(waiter.wait(PATIENCE), 0, 'and runs when it goes on')


def der_14_a_slow_death_is_waited_for():
    """What takes long to die is gone before the next command begins, whoever was killed."""
    with World() as w, open(w.top / 'said', 'ab') as out:
        for victims in ('atoll', 'helper', 'both'):
            worker = subprocess.Popen(
                [*w.alone, w.top.name, '100000000', str(SLOW_MIB)],
                env=w.env, cwd=w.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL)
            same(worker.stdout.readline(), b'big\n', 'it begins')
            worker.stdout.close()
            time.sleep(SLOW_MIB / 500)  # to touch its memory
            helper = children(worker.pid)[0]
            for pid in {'atoll': [worker.pid], 'helper': [helper], 'both': [helper, worker.pid]}[victims]:
                kill(pid)
            after = w.start(out)
            w.workers.append(after)
            same(after.wait(PATIENCE), 0, f'the next command, {victims} killed')
            worker.wait()
        same((w.top / 'said').read_text(), '', 'commands that met another')


if __name__ == '__main__':
    sys.exit(run([complaining(check) for check in (
        lock_a_stopped_waiter_is_passed,
        der_14_a_slow_death_is_waited_for,
        der_23_killed_at_random_nobody_meets_the_dead,
    )]))

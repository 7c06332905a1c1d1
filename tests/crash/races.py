#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Races. 64 processes at once, of all commands that look at plans or change them, over plans of a directory by
overlay, one by copy, a repository and an SQLite file that share all of these, two of them with a PostgreSQL
database, too; of each three one is killed at some moment. What a command writes in a plan it writes in an order that can be seen, so that a commit or an undo of
which only a part happened would show. At the end, after one recovery: all resources fit together, nothing is
half done, no lock is stuck, no process, mount or file is left. Prints TAP.

usage: races.py root|user [--control]        $ATOLL_LONG: for minutes
--control: some die in the middle of a commit, and recovery leaves out what it is there for: that must show.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from crashlib import LONG, Broken, Skip, become, run, traced

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from cluster import Cluster  # noqa: E402

ATOLL = os.environ['ATOLL']
PROCESSES, PLANS = 64, 4
SECONDS = 240 if LONG else 8
PATIENCE = 120
KILLED_OF = 3
PARTS = {'d': 'kind = dir\npath = d', 'c': 'kind = dir\npath = c\nstrategy = copy', 'repo': 'kind = git\npath = repo',
         'lite': 'kind = sqlite\npath = lite.db'}
LOST = 'transaction is gone'  # of a commit that was withdrawn when the server had prepared it: the plan must be reset
# Two of five commands work, one decides.
COMMANDS = [['exec']] * 12 + [['commit', '{}']] * 4 + [['rollback', '{}']] * 2 + [
    ['reset', '{}'], ['refresh', '{}'], ['diff', '{}'], ['show', '{}'], ['list'], ['log'], ['lock'], ['path', '{}'], ['clean'], ['recover'],
    ['stop', '--force', '{}'], ['start']]
# Refused, a conflict, a lock that was taken, no such plan: all said before anything was touched.
EXITS = (0, 1, 3, 4, 5, 7, 125)


class World:
    """Of everybody's counters, N of them in each resource: wN, and in `d` also eN, written last. MORE: environment of
    every command; DIE: a crash point that some commits do not survive. WITH_SERVER: plans with a database there."""

    def __init__(self, die=None, with_server='pq', **more):
        self.die, self.with_server = die, with_server
        self.top = Path(tempfile.mkdtemp(prefix='atoll-races.', dir='/var/tmp'))
        self.env = dict(os.environ, ATOLL_HOME=str(self.top / 'home'), HOME=str(self.top), LC_ALL='C.UTF-8', NO_COLOR='1', GIT_CONFIG_NOSYSTEM='1',
                        GIT_AUTHOR_NAME='a', GIT_AUTHOR_EMAIL='a@b', GIT_COMMITTER_NAME='a', GIT_COMMITTER_EMAIL='a@b', **traced(), **more)
        os.chmod(self.top, 0o755)
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
        self.cluster = Cluster(self.top)

    def __enter__(self):
        self.cluster.__enter__()
        rows = ', '.join(f'({n}, 0)' for n in range(PROCESSES))
        self.cluster.sql(f'create table t(id int primary key, v int); insert into t values {rows}')
        for plan in 'pqrs'[:PLANS]:
            parts = dict(PARTS, shop=f'kind = postgres\npath = "{self.cluster.url}"') if plan in self.with_server else PARTS
            text = f'[plan]\nname = {plan}\n' + ''.join(f'[resource "{name}"]\n{part}\n' for name, part in parts.items())
            (self.top / f'plan.{plan}').write_text(text, encoding='utf-8')
            self.must('start', '--file', f'plan.{plan}')
        return self

    def __exit__(self, *_):
        self.cluster.__exit__()
        if not os.environ.get('RACES_KEEP'):
            shutil.rmtree(self.top, ignore_errors=True)

    def shell(self, text):
        return subprocess.run(['sh', '-ec', text], cwd=self.top, env=self.env, check=True, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True).stdout

    def begin(self, words, **env):
        return subprocess.Popen([ATOLL, *words], cwd=self.top, env={**self.env, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, errors='replace')

    def must(self, *words):
        process = self.begin(words)
        said = process.communicate(timeout=PATIENCE)[1]
        if process.returncode:
            raise Broken(f'{" ".join(words)}: exit {process.returncode}: {said.strip()}')

    def must_be_free(self, plan):
        """Somebody can work in it, if need be after a reset."""
        process = self.begin(['exec', plan, '--', 'true'])
        said = process.communicate(timeout=PATIENCE)[1]
        if process.returncode and LOST in said:
            self.must('reset', plan)
            self.must('exec', plan, '--', 'true')
        elif process.returncode:
            raise Broken(f'exec {plan}: exit {process.returncode}: {said.strip()}')

    def plans(self):
        return [p['name'] for p in json.loads(self.shell(f'{ATOLL} list --json'))['plans']]

    def enough(self):
        """Something happened: a machine with much to do takes longer for it."""
        return self.found['commit done'] and self.found['killed'] and (self.found['died'] or not self.die)

    def note(self, what, wrong=None):
        with self.lock:
            self.found[what] += 1
            if wrong:
                self.wrong.append(wrong)

    # What is there.

    def values(self, n):
        """[e, (the server,) lite, repo, c, w]: each at least as new as the one before, and all the same unless a command
        was killed."""
        def read(name):
            return (self.top / name).read_text(encoding='utf-8')
        seen = [read(f'd/e{n}'), *([self.served[n]] if plan_of(n) in self.with_server else []), self.rows[n], read(f'repo/w{n}'), read(f'c/w{n}'), read(f'd/w{n}')]
        # A shell that is killed between opening a file and writing to it leaves nothing in it: as new as what it wrote before.
        newest = float('inf')
        for i in reversed(range(len(seen))):
            newest = seen[i] = int(seen[i]) if seen[i] != '' else newest
        return seen

    def fits_together(self):
        self.rows = dict(map(int, line.split('|')) for line in self.shell('sqlite3 lite.db "select id, v from t"').split())
        self.served = dict(map(int, line.split('|')) for line in self.cluster.sql('select id, v from t').split())
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
        if self.cluster.sql('select gid from pg_prepared_xacts', user='postgres'):
            raise Broken('a transaction is left prepared')
        deadline = time.monotonic() + PATIENCE
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


def plan_of(n):
    return 'pqrs'[n % PLANS]


def words_of(n, value, chance, with_server):
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
    lines += [f'sqlite3 lite.db "pragma busy_timeout = 20000; update t set v = {value} where id = {n}" >&2']
    if plan_of(n) in with_server:
        lines.append(f'psql -Xqc "update t set v = {value} where id = {n}"')
    lines.append(f'echo {value} >d/e{n}')
    return ['exec', plan_of(n), '--', 'sh', '-ec', '; '.join(lines)]


def worker(world, n, until):
    try:
        work(world, n, until)
    except Exception as why:  # pylint: disable=broad-except
        world.note('wrong', f'{type(why).__name__}: {why}')


def work(world, n, until):
    chance, value = random.Random(n), 0
    while not world.wrong and (time.monotonic() < until or not world.enough() and time.monotonic() < until + PATIENCE):
        value += 1
        words = words_of(n, value, chance, world.with_server)
        dies = world.die and words[0] == 'commit' and chance.randrange(2) == 0
        process = world.begin(words + ['--wait', str(chance.choice([0, 2, 20]))] if words[0] != 'exec' else words,
                              **({'ATOLL_CRASHPOINT': world.die} if dies else {}))
        killed = chance.randrange(KILLED_OF) == 0
        try:
            said = process.communicate(timeout=chance.random() ** 2 * 2 if killed else PATIENCE)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            world.note('killed', None if killed else f'{words}: hangs')
            continue
        if dies and process.returncode == -signal.SIGKILL:
            world.note('died')
            continue
        if process.returncode not in EXITS and words[0] != 'exec':
            world.note('wrong', f'{words}: exit {process.returncode}: {said.strip()}')
        if LOST in said and words[0] in ('exec', 'commit'):
            process = world.begin(['reset', words[1], '--wait', '20'])
            process.communicate(timeout=PATIENCE)
        world.note(f'{words[0]} {"done" if process.returncode == 0 else "refused"}')


def race(world, seconds):
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=worker, args=(world, n, until)) for n in range(PROCESSES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if world.wrong:
        raise Broken(' | '.join(world.wrong[:5]))


def settle(world):
    """All fits together once it is recovered, and nothing is left once it is stopped."""
    world.must('recover')
    reached = world.fits_together()
    print(f'# {sum(world.found.values())} commands of {PROCESSES} processes, {world.found["killed"]} killed; '
          f'{", ".join(f"{k} {v}" for k, v in sorted(world.found.items()))}; the work of {reached} arrived, '
          f'{sum(v > 0 for v in world.served.values())} times at the server', flush=True)
    for plan in world.plans():
        world.must_be_free(plan)
        world.must('stop', '--force', plan)
    world.must('clean')
    world.fits_together()
    world.nothing_left()
    if world.shell('sqlite3 lite.db "pragma integrity_check"') != 'ok\n' or world.shell('git -C repo fsck --no-dangling'):
        raise Broken('a resource is damaged')


def con_05_all_commands_killed_at_random():
    with World() as world:
        try:
            race(world, SECONDS)
            settle(world)
        except (Broken, subprocess.SubprocessError) as why:
            return [f'{type(why).__name__}: {why}'.replace('\n', ' | ')[:1500]]
        if not world.enough():
            return [f'too little happened: {dict(world.found)}']
    return []


def tst_05_a_recovery_that_does_nothing_shows():
    if os.environ.get('ATOLL_TEST_SABOTAGE') != '1':
        raise Skip('a build without -Dsabotage=true leaves nothing out')
    complaint = 'nothing was found to be wrong'
    for _ in range(6):  # far more than it takes
        # Without a server: what recovery leaves prepared there has rows locked, and all would wait for these.
        with World(die='txn.apply.participant:2', with_server='', ATOLL_SABOTAGE='recover-redo') as world:
            try:
                race(world, SECONDS)
                world.must('recover')
                world.fits_together()
            except (Broken, subprocess.SubprocessError) as why:
                complaint = f'{why}'[:900]
            print(f'# {world.found["died"]} died: {complaint[:100]}', flush=True)
            if 'fit together' in complaint:
                return []
    return [complaint]


if __name__ == '__main__':
    become(sys.argv[1])
    sys.exit(run([tst_05_a_recovery_that_does_nothing_shows if '--control' in sys.argv else con_05_all_commands_killed_at_random]))

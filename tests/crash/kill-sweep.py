#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kill at any system call. Start, commit, undo, recovery and stop are killed when they are about to make their
n-th system call, of directories, databases, repositories and mixed plans: at a sample of those that may leave
something (--points 9999: at every one of them; --all: at every one there is); the recovery of that is killed too,
somewhere else each time. Then: all old or all new, once new never old again, and one can go on. Or it is stopped there, somebody else uses the same resources, and
it goes on. Prints TAP.

usage: kill-sweep.py root|user [--all] [--points N] [--only NAME] [--minutes N [--seed N]]
       tests/crash/kill [--all] [--points N] [--only NAME] [--minutes N [--seed N]]
--minutes: for so long, in random order and of all kinds alike; of each it is said how many there were of how many.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from multiprocessing import Pool
from pathlib import Path

from crashlib import KILL_AT, KILLED, LONG, Broken, World, become, edit_again, run  # first: it says where the others are
from cluster import Cluster
from mixed import KINDS, Five
from subjects import AFTER, BEFORE, SUBJECTS, Four, finish

WORKERS = 4
SEED = 20240611
CHAIN = 24                           # kills in one world, one after another, as long as nothing was done
# So many of each, 0: all of them; for an ordinary user a tenth of that.
POINTS = {'directories': 0, 'rows': 1200, 'four': 600, 'postgres': 100, 'two batches': 60, 'revocation': 60, 'refill': 50}
STOPS = 30
BUSY = (0, 5)                        # exit status of who may find a lock taken


def kill_at(subject, n, verb):
    """False: it ended before its N-th call."""
    count = Path(TOP) / f'calls.{os.getpid()}'
    status, output = subject.run((KILL_AT, str(n), str(count)), subject.verbs[verb])
    if status not in (0, KILLED):
        raise Broken(f'{verb}, to be killed at {n}: exit {status}: {output.strip()}')
    return status == KILLED


def one(subject, verb, n, m):
    """True: it is done, and cannot be done again."""
    if not kill_at(subject, n, verb):
        if subject.state() != AFTER[verb]:
            raise Broken('it ended, and is not done')
        return True
    kill_at(subject, m, 'recover')
    subject.must('recover')
    state = subject.state()
    if state not in (BEFORE[verb] or AFTER[verb], AFTER[verb]):
        raise Broken(f'{state}')
    if verb == 'start':
        if subject.plans():
            subject.must('stop')
        subject.gone()
        return False
    if verb == 'stop':
        return not subject.plans()
    return state == AFTER[verb]


def chain(job):
    """Complaints, and how many kills."""
    kind, verb, points = job
    complaints, subject, done, at = [], None, False, None
    try:
        for at in points:
            subject = subject or SUBJECTS[kind](verb, TOP)
            done = one(subject, verb, *at)
            if done:
                finish(subject, verb, True)
                subject.end()
                subject, done = None, False
        if subject:
            finish(subject, verb, False)
    except Exception as why:  # pylint: disable=broad-except
        text = f'{kind}, {verb}: call {at[0]}, recovery at {at[1]}, of {points}: {type(why).__name__}: {why}'
        complaints.append(text.replace('\n', ' | ')[:900])
    if subject:
        subject.end()
    return complaints, len(points)


def count_calls(job):
    kind, verb = job
    subject = SUBJECTS[kind](verb, TOP)
    try:
        count = Path(TOP) / f'calls.{os.getpid()}'
        subject.run((KILL_AT, '0', str(count)), subject.verbs[verb])
        return int(count.read_text())
    finally:
        subject.end()


def sample(name, calls):
    """Which calls, each with one of its recovery; spread, whatever number of them is wanted."""
    chance = random.Random(ARGS.seed + zlib.crc32(name.encode()))
    numbers = list(range(1, calls + 1))
    chance.shuffle(numbers)
    wanted = ARGS.points or POINTS[name.split(',')[0]]
    if ARGS.who == 'user':
        wanted = (wanted or calls) // 10
    if not ARGS.all and wanted:
        numbers = numbers[:wanted if ',' not in name else max(1, wanted // 5)]
    return [(n, chance.randrange(1, 900 if ARGS.all else 300)) for n in numbers]


def everything(text, how, jobs):
    """Chains of kills, side by side."""
    complaints, kills = [], 0
    for broken, n in POOL.imap_unordered(how, jobs, 1):
        complaints += broken
        kills += n
    print(f'# {text}: {kills} kills', flush=True)
    return complaints[:10]


def jobs_of_chains(kind):
    """(text, how, jobs)"""
    verbs = [verb for verb in BEFORE if verb not in ('keep', 'part')]  # model.py and crash-matrix.py kill those
    calls = dict(zip(verbs, POOL.map(count_calls, [(kind, verb) for verb in verbs], 1)))
    jobs = []
    for verb in verbs:
        points = sample(f'{kind},{verb}', calls[verb])
        # A recovery that is done is done: each has its own world.
        size = 1 if verb == 'recover' else CHAIN
        jobs += [(kind, verb, points[i:i + size]) for i in range(0, len(points), size)]
    random.Random(ARGS.seed).shuffle(jobs)
    return f'{kind}: {", ".join(f"{verb} {calls[verb]}" for verb in verbs)} calls', chain, jobs


# ---- what is no chain ----

def fresh(case):
    """Each in a world of its own: (complaints, 1)."""
    how, n, m = case
    try:
        how(n, m)
    except Exception as why:  # pylint: disable=broad-except
        return [f'{how.__name__}: call {n}, recovery at {m}: {type(why).__name__}: {why}'.replace('\n', ' | ')[:900]], 1
    return [], 1


def killed(world, n, *verbs):
    """False: it ended before its N-th call. Also returns how many it made."""
    count = world.base / 'calls'
    status, output = world.run(*verbs, wrap=(KILL_AT, str(n), str(count)))
    if status not in (0, KILLED):
        raise Broken(f'{" ".join(verbs)}, to be killed at {n}: exit {status}: {output.strip()}')
    return int(count.read_text())


def two_batches(n, m):
    """An undo of two commits."""
    with World(['r1', 'r2']) as world:
        world.open_plan()
        world.edit()
        world.must('commit')
        world.find_works(world.must('path'))
        world.edit(edit_again)
        world.must('commit')
        calls = killed(world, n, 'rollback')
        if n:
            killed(world, m, 'recover=all')
            world.recover_twice('recover=all')
            if world.expect('old', 'new') == 'new':
                world.must('rollback')
                world.expect('old')
            world.stop_and_count()
        return calls


def revocation(n, m):
    """A recovery that goes back."""
    with World(['r1', 'v', 'r2']) as world:
        world.open_plan()
        world.edit()
        world.kill('txn.revoke.recorded', 'commit', env={'SCENARIO_FAIL': 'commit'})
        calls = killed(world, n, 'recover')
        if n:
            killed(world, m, 'recover=all')
            world.recover_twice('recover=all')
            world.expect('old')
            world.must('commit')
            world.expect('new')
            world.stop_and_count()
        return calls


def refill(n, m):
    """The first command after a commit makes the workspace anew, and the record of what it was made of."""
    subject = Four('rollback', TOP)
    try:
        count = Path(TOP) / f'calls.{os.getpid()}'
        command = ['exec', 'p', '--', 'sh', '-c', 'echo more >repo/more']
        status, output = subject.run((KILL_AT, str(n), str(count)), command)
        if status not in (0, KILLED):
            raise Broken(f'exit {status}: {output.strip()}')
        calls = int(count.read_text())
        if n:
            subject.run((KILL_AT, str(m), str(count)), command)
            for words in (command, ['diff', 'p'], ['commit', 'p']):
                status, output = subject.run((), words)
                if status:
                    raise Broken(f'{words[0]}: exit {status}: {output.strip()}')
            if (subject.world.dir / 'repo/more').read_text(encoding='utf-8') != 'more\n':
                raise Broken('the work is lost')
        return calls
    finally:
        subject.end()


SERVER = None


def server():
    """That of this process, from the first time on."""
    global SERVER  # pylint: disable=global-statement
    if not SERVER:
        place = Path(TOP) / f'server.{os.getpid()}'
        place.mkdir(mode=0o755)
        SERVER = Cluster(place)
        SERVER.__enter__()
    return SERVER


def postgres(n, m):
    """All five kinds, with a server."""
    with Five(server(), TOP, KINDS) as world:
        count = str(Path(TOP) / f'calls.{os.getpid()}')

        def at(number, *words):
            done = subprocess.run([KILL_AT, str(number), count, os.environ['ATOLL'], *words], env=world.env, cwd=world.dir,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
            if done.returncode not in (0, KILLED):
                raise Broken(f'{words}: exit {done.returncode}: {done.stderr}')
            return int(Path(count).read_text(encoding='utf-8'))
        calls = at(n, 'commit', 'p')
        if n:
            at(m, 'recover')
            world.finish('old', 'new')
        return calls


def jobs_of_fresh(how):
    """(text, how, jobs)"""
    name = how.__name__.replace('_', ' ')
    calls = how(0, 0)
    return f'{name}: {calls} calls', fresh, [(how, n, m) for n, m in sample(name, calls)]


# ---- stopped, and resumed ----

def stopped(case):
    """A commit is stopped at a call; another plan over the same directories is committed, or finds them locked."""
    number, n = case
    subject = Four('commit', TOP)
    world, count = subject.world, Path(TOP) / f'stopped.{os.getpid()}'
    count.unlink(missing_ok=True)
    process = None
    try:
        world.must('start', 'q', '--dir', 'c', '--dir', 'd')
        world.must('exec', 'q', '--', 'sh', '-ec', 'echo theirs >c/theirs; echo theirs >d/theirs')
        process = subprocess.Popen([KILL_AT, str(-n), str(count), os.environ['ATOLL'], 'commit', 'p'], env=world.env, cwd=world.dir,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        deadline = time.monotonic() + 60
        while not (count.exists() and count.read_text()):
            if time.monotonic() > deadline:
                raise Broken('it was never stopped')
            time.sleep(.005)
        other = world.atoll('commit', 'q', '--wait', '0')
        seen = world.atoll('list')
        process.send_signal(signal.SIGUSR1)
        output = process.communicate(timeout=60)[0]
        if other.code not in BUSY or seen.code:
            raise Broken(f'meanwhile: {other} {seen}')
        if process.returncode not in (0, 3):
            raise Broken(f'exit {process.returncode}: {output}')
        if process.returncode == 3:
            world.must('commit', 'p')
        if other.code:
            world.must('commit', 'q')
        world.all('new')
        for name in ('c', 'd'):
            if (world.dir / name / 'theirs').read_text(encoding='utf-8') != 'theirs\n':
                raise Broken('what the other committed is lost')
    except Exception as why:  # pylint: disable=broad-except
        return [f'stopped at call {n} ({number}): {type(why).__name__}: {why}'.replace('\n', ' | ')[:900]], 1
    finally:
        if process and process.poll() is None:
            process.kill()
            process.wait()
        subject.end()
    return [], 1


def jobs_of_stops():
    """(text, how, jobs)"""
    calls = count_calls(('four', 'commit'))
    chance = random.Random(ARGS.seed)
    wanted = calls if ARGS.all else STOPS if ARGS.who == 'root' else STOPS // 10
    return f'stopped: {calls} calls', stopped, list(enumerate(chance.sample(range(1, calls), min(calls - 1, wanted))))


def atm_14_any_call_of_directories():
    return everything(*jobs_of_chains('directories'))


def atm_14_any_call_of_rows():
    return everything(*jobs_of_chains('rows'))


def atm_14_any_call_of_four_kinds():
    return everything(*jobs_of_chains('four'))


def atm_14_any_call_of_five_kinds():
    return everything(*jobs_of_fresh(postgres))


def atm_14_any_call_of_undo_of_two_batches():
    return everything(*jobs_of_fresh(two_batches))


def atm_14_any_call_of_recovery_backwards():
    return everything(*jobs_of_fresh(revocation))


def git_05_any_call_of_a_workspace_made_anew():
    return everything(*jobs_of_fresh(refill))


def con_05_stopped_at_any_call_and_resumed():
    return everything(*jobs_of_stops())


TESTS = {atm_14_any_call_of_directories: (jobs_of_chains, 'directories'), atm_14_any_call_of_rows: (jobs_of_chains, 'rows'),
         atm_14_any_call_of_four_kinds: (jobs_of_chains, 'four'), atm_14_any_call_of_five_kinds: (jobs_of_fresh, postgres),
         atm_14_any_call_of_undo_of_two_batches: (jobs_of_fresh, two_batches),
         atm_14_any_call_of_recovery_backwards: (jobs_of_fresh, revocation),
         git_05_any_call_of_a_workspace_made_anew: (jobs_of_fresh, refill), con_05_stopped_at_any_call_and_resumed: (jobs_of_stops,)}


# ---- for so many minutes ----

def size(how, jobs):
    return sum(len(job[2]) if how is chain else 1 for job in jobs)


class Some:
    """Of the jobs of one kind, those that there was time for."""

    def __init__(self, text, how, jobs):
        random.Random(ARGS.seed).shuffle(jobs)
        # Few kills each, so that the end is not waited for.
        if how is chain:
            jobs = [(kind, verb, points[i:i + 4]) for kind, verb, points in jobs for i in range(0, len(points), 4)]
        self.text, self.how, self.jobs, self.total, self.kills = text, how, jobs, size(how, jobs), 0
        self.begun = 0


def for_a_while(kinds):
    deadline = time.monotonic() + ARGS.minutes * 60
    complaints, under_way = [], []
    while under_way or any(kind.jobs for kind in kinds) and time.monotonic() < deadline:
        while len(under_way) <= WORKERS and any(kind.jobs for kind in kinds) and time.monotonic() < deadline:
            kind = min((kind for kind in kinds if kind.jobs), key=lambda k: k.begun)
            job = kind.jobs.pop()
            kind.begun += size(kind.how, [job])
            under_way.append((kind, POOL.apply_async(kind.how, (job,))))
        under_way[0][1].wait(.05)
        for kind, result in [one for one in under_way if one[1].ready()]:
            broken, n = result.get()
            complaints += broken
            kind.kills += n
        under_way = [one for one in under_way if not one[1].ready()]
    return complaints


def atm_14_any_call_for_a_while():
    kinds = [Some(*how[0](*how[1:])) for test, how in TESTS.items() if ARGS.only in test.__name__]
    complaints = for_a_while(kinds)
    for kind in kinds:
        print(f'# {kind.text}: {kind.kills} of {kind.total} kills', flush=True)
    print(f'# --seed {ARGS.seed}', flush=True)
    return complaints[:10]


def main():
    chosen = [atm_14_any_call_for_a_while] if ARGS.minutes else [test for test in TESTS if ARGS.only in test.__name__]
    try:
        return run(chosen)
    finally:
        for place in Path(TOP).glob('server.*'):
            Cluster(place).stop('immediate')


if __name__ == '__main__':
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument('who', choices=['root', 'user'])
    PARSER.add_argument('--all', action='store_true', default=LONG)
    PARSER.add_argument('--points', type=int, default=0)
    PARSER.add_argument('--only', default='')
    PARSER.add_argument('--minutes', type=float, default=0)
    PARSER.add_argument('--seed', type=int, default=0)
    ARGS = PARSER.parse_args()
    ARGS.seed = ARGS.seed or (random.SystemRandom().randrange(1, 10**9) if ARGS.minutes else SEED)
    become(ARGS.who)
    if not ARGS.all:
        os.environ['KILL_AT_CHANGES'] = '1'
    TOP = tempfile.mkdtemp(prefix='atoll-kill.', dir='/var/tmp')
    os.chmod(TOP, 0o755)
    try:
        with Pool(WORKERS) as POOL:
            CODE = main()
    finally:
        shutil.rmtree(TOP, ignore_errors=True)
    sys.exit(CODE)

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kill at any system call. A commit, an undo and a recovery are killed when they are about to
make their n-th system call, for n spread over all of them ($ATOLL_LONG: for every n); recovery of
that is killed too, somewhere else each time. Then: all old or all new, and once new never old
again. Prints TAP.

usage: kill-sweep.py root|user
"""

import random
import sys
import time
from multiprocessing import Pool

from crashlib import KILL_AT, KILLED, LONG, WORKERS, Broken, World, become, edit_again, run

RESOURCES = ['r1', 'v', 'r2']
SECONDS = 12  # for each of the sweeps, when not every call is killed
ROWS_SECONDS = 5  # with databases, of whose calls SQLite makes the most
SEED = 20240611
CHUNK = 4 * WORKERS


def commit_ready(world):
    world.open_plan()
    world.edit()


def undo_ready(world):
    commit_ready(world)
    world.must('commit')


def two_batches_ready(world):
    undo_ready(world)
    world.find_works(world.must('path'))
    world.edit(edit_again)
    world.must('commit')


def decided_ready(world):
    commit_ready(world)
    world.kill('dir.apply.op:5', 'commit')


def revoked_ready(world):
    commit_ready(world)
    world.kill('txn.revoke.recorded', 'commit', env={'SCENARIO_FAIL': 'commit'})


def rows_decided_ready(world):
    commit_ready(world)
    world.kill('txn.after-decision', 'commit')


# name: what comes before, the verbs that are killed, the states the end may have
SWEEPS = {
    'commit': (commit_ready, ('commit',), {'old', 'new'}),
    'undo': (undo_ready, ('rollback',), {'old', 'new'}),
    'two batches': (two_batches_ready, ('rollback',), {'old', 'new'}),
    'recovery of a decision': (decided_ready, ('recover',), {'new'}),
    'recovery of a revocation': (revoked_ready, ('recover',), {'old'}),
    'rows': (commit_ready, ('commit',), {'old', 'new'}),
    'undo of rows': (undo_ready, ('rollback',), {'old', 'new'}),
    'recovery of rows': (rows_decided_ready, ('recover',), {'new'}),
}


def resources_of(name):
    if 'rows' in name:
        return ['r1', 'd1.db', 'w2.db']
    return RESOURCES if name != 'two batches' else ['r1', 'r2']


def kill_at(world, n, verbs):
    """False: it ended before its N-th system call. Also returns how many it made."""
    count = world.base / 'calls'
    status, output = world.run(*verbs, wrap=(KILL_AT, str(n), str(count)))
    if status not in (0, KILLED):
        raise Broken(f'{" ".join(verbs)}, to be killed at {n}: exit {status}: {output.strip()}')
    return status == KILLED, int(count.read_text())


def settled(world, allowed):
    world.recover_twice('recover=all')
    state = world.expect(*allowed)
    # The work is there still, and what undo needs; and nothing is in the way of either.
    if state == 'old' and 'new' in allowed and world.works_kept:
        world.must('commit')
        world.expect('new')
        state = 'new'
    if state == 'new':
        world.must('rollback')
        world.expect('old')
    world.stop_and_count()


def die(case):
    """Killed at the N-th call, its recovery at the M-th."""
    name, n, m = case
    prepare, verbs, allowed = SWEEPS[name]
    try:
        with World(resources_of(name)) as world:
            prepare(world)
            world.works_kept = verbs == ('commit',)
            before = world.state() if verbs == ('commit',) else None
            died, _ = kill_at(world, n, verbs)
            if died:
                kill_at(world, m, ('recover=all',))
            elif before and world.state() == before:
                raise Broken('it ended and did nothing')
            settled(world, allowed)
    except Broken as why:
        return [f'{name}: call {n}, recovery at {m}: {why}']
    except Exception as why:  # pylint: disable=broad-except
        return [f'{name}: call {n}, recovery at {m}: {type(why).__name__}: {why}']
    return []


def count_calls(name):
    prepare, verbs, _ = SWEEPS[name]
    with World(resources_of(name)) as world:
        prepare(world)
        return kill_at(world, 0, verbs)[1]


POOL = None


def sweep(name):
    calls = count_calls(name)
    chance = random.Random(SEED)
    numbers = list(range(1, calls + 1))
    chance.shuffle(numbers)  # so that a sample is spread, whatever ends it
    cases = [(name, n, chance.randrange(100, 900)) for n in numbers]
    complaints, done, began = [], 0, time.monotonic()
    while done < calls and len(complaints) < 20 and (LONG or time.monotonic() < began + (ROWS_SECONDS if 'rows' in name else SECONDS)):
        for broken in POOL.imap_unordered(die, cases[done:done + CHUNK]):
            complaints += broken
        done = min(done + CHUNK, calls)
    print(f'# {name}: {done} of {calls} system calls killed')
    if done < min(calls, 12):
        complaints.append(f'only {done} were killed in time')
    return complaints


def atm_14_any_call_of_commit():
    return sweep('commit')


def atm_14_any_call_of_undo():
    return sweep('undo')


def atm_14_any_call_of_undo_of_two_batches():
    return sweep('two batches')


def atm_14_any_call_of_recovery():
    return sweep('recovery of a decision')


def atm_14_any_call_of_recovery_backwards():
    return sweep('recovery of a revocation')


def atm_14_any_call_of_commit_of_rows():
    return sweep('rows')


def atm_14_any_call_of_undo_of_rows():
    return sweep('undo of rows')


def atm_14_any_call_of_recovery_of_rows():
    return sweep('recovery of rows')


if __name__ == '__main__':
    become(sys.argv[1])
    with Pool(WORKERS) as POOL:
        sys.exit(run([
            atm_14_any_call_of_commit,
            atm_14_any_call_of_undo,
            atm_14_any_call_of_undo_of_two_batches,
            atm_14_any_call_of_recovery,
            atm_14_any_call_of_recovery_backwards,
            atm_14_any_call_of_commit_of_rows,
            atm_14_any_call_of_undo_of_rows,
            atm_14_any_call_of_recovery_of_rows,
        ]))

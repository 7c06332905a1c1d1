#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Faults. The n-th system call of a kind fails while a plan is started, committed, undone, recovered or
stopped, once or from then on: no space, no quota, an I/O error, a filesystem that became read-only, no
descriptors, no memory, an interruption; git and everything else that is run included. Always: success, or
an error that names its cause; all old or all new, and old at once when a failure was said before the
decision; the store intact; and when the fault has gone, the same command works. Prints TAP.

usage: faults.py root|user [--all] [--points N] [--verb VERB]...
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from multiprocessing import Pool
from pathlib import Path

from crashlib import FAULT_AT, LONG, Broken, become, run
from subjects import AFTER, BEFORE, SUBJECTS, finish

SPACE = 'write,pwrite64,writev,copy_file_range,sendfile,ftruncate,fallocate,create,mkdirat,symlinkat,linkat,' \
        'renameat,renameat2,rename,mkdir,link,fsetxattr'
REMOVALS = 'unlink,unlinkat'
CHANGE = SPACE + f',{REMOVALS},fchmod,fchownat,utimensat'
SYNC = 'fsync,fdatasync,syncfs'
LOOK = 'read,pread64,getdents64,readlinkat,statx,openat,openat2'
DESCRIPTORS = 'openat,openat2,socket,socketpair,pipe2,epoll_create1,memfd_create,pidfd_open'
MEMORY = 'mmap,mremap,brk,clone,clone3'
WAITS = 'read,write,pwrite64,openat,openat2,flock,wait4,waitid,poll,connect'
# error, calls, also from then on
FAULTS = [('ENOSPC', SPACE, True), ('ENOSPC', SYNC, False), ('EDQUOT', SPACE, True), ('EIO', CHANGE, True), ('EIO', SYNC, True),
          ('EIO', LOOK, False), ('EROFS', CHANGE, True), ('EMFILE', DESCRIPTORS, True), ('ENOMEM', MEMORY, False), ('EINTR', WAITS, False)]
# What an error may be called, beside its own text: by SQLite, by git, by the loader of a program.
CAUSES = {
    'ENOSPC': ['No space left', 'ENOSPC', 'database or disk is full', 'disk I/O error', 'unable to open database'],
    'EDQUOT': ['quota exceeded', 'EDQUOT', 'disk I/O error', 'unable to open database', 'database or disk is full'],
    'EIO': ['Input/output error', 'EIO', 'disk I/O error', 'unable to open database', 'I/O error', 'image is malformed',
            'locking protocol'],
    'EROFS': ['Read-only file system', 'EROFS', 'readonly database', 'disk I/O error', 'unable to open database'],
    'EMFILE': ['Too many open files', 'EMFILE', 'unable to open database'],
    'ENOMEM': ['Cannot allocate memory', 'ENOMEM', 'out of memory', 'disk I/O error'],
    'EOPNOTSUPP': ['not supported', 'EOPNOTSUPP'],
    'EINTR': ['Interrupted system call', 'EINTR', 'disk I/O error', 'unable to open database', 'locking protocol'],
}
# SQLite does not keep why it could only read; a helper whose answer could not be written has no way to tell.
ANY = ['readonly database', 'ended without an answer']
NEEDS_RECOVERY, SIGNALLED = 7, 78
SEED = 20240612
POINTS = 300                         # in all, when not every one
CHAIN = 12                           # so many faults in one world, one after another


def names_cause(error, output):
    """Git takes what it cannot read for absent, and often does not say why it failed: then where is enough."""
    return any(text in output for text in CAUSES[error] + ANY) or re.search(r"git [a-z-]+ (failed: \S|was killed)|/repo'", output)


def one(subject, verb, n, error, calls, on):
    """True: it is done, and cannot be done again."""
    count = Path(TOP) / f'calls.{os.getpid()}'
    status, output = subject.run((FAULT_AT, f'{n}{"+" if on else ""}', error, calls, str(count)))
    made = int(count.read_text())
    if status == 0:
        if BEFORE[verb] and subject.state() != AFTER[verb]:
            raise Broken(f'it succeeded, and is not done: {output.strip()}')
        return True
    if isinstance(n, int) and made < n:
        raise Broken(f'it failed without a fault: exit {status}: {output.strip()}')
    if status < 0:
        raise Broken(f'died of signal {-status}')
    if status != SIGNALLED or error != 'ENOMEM':
        if not names_cause(error, output):
            raise Broken(f'the cause is not said: exit {status}: {output.strip()}')
    if verb == 'recover':
        return False
    before = AFTER[verb] if 'the originals are back' in output else BEFORE[verb]
    if status not in (NEEDS_RECOVERY, SIGNALLED) and subject.state(False) != before:
        raise Broken(f'exit {status}, and it did something: {output.strip()}')
    subject.must('recover')
    if subject.state() not in (BEFORE[verb], AFTER[verb]):
        raise Broken('neither old nor new')
    if verb == 'start':
        if status == NEEDS_RECOVERY and subject.plans():  # in doubt, and then found to be made
            subject.must('stop')
        subject.gone()
    if verb == 'stop':
        return not subject.plans()
    return BEFORE[verb] != AFTER[verb] and subject.state() == AFTER[verb]


def chain(job):
    """Faults one after another, as long as there is something left to do. (complaints, points)"""
    kind, verb, points = job
    complaints, hit, subject, done = [], Counter(), None, False
    for n, error, calls, on in points:
        try:
            subject = subject or SUBJECTS[kind](verb, TOP)
            done = one(subject, verb, n, error, calls, on)
            hit[error] += 1
            if done:
                finish(subject, verb, done)
        except Exception as why:  # pylint: disable=broad-except
            label = f'{kind}, {verb}: {error} at {n}{" and after" if on else ""} of {calls[:24]}'
            complaints.append(f'{label}: {"" if isinstance(why, Broken) else type(why).__name__ + " "}{why}'.replace('\n', ' | ')[:900])
            done = True
        if done:
            if subject:
                subject.end()
            subject, done = None, False
    try:
        if subject:
            finish(subject, verb, False)
    except Exception as why:  # pylint: disable=broad-except
        complaints.append(f'{kind}, {verb}, after {points}: {why}'.replace('\n', ' | ')[:900])
    if subject:
        subject.end()
    return complaints, hit


def counted(job):
    """How many calls there are: (before anything is done, in all)."""
    kind, verb, calls = job
    subject = SUBJECTS[kind](verb, TOP)
    try:
        found = []
        for words in (['no-such-verb'], None):
            count = Path(TOP) / f'calls.{os.getpid()}'
            subject.run((FAULT_AT, '0', 'EIO', calls, str(count)), words)
            found.append(int(count.read_text()))
        return found
    finally:
        subject.end()


def plan(kind, verb, share):
    """Chains of points: SHARE of them, or all."""
    chance = random.Random(SEED + zlib.crc32(f'{kind}{verb}'.encode()))
    groups = sorted({calls for _, calls, _ in FAULTS})
    ranges = dict(zip(groups, POOL.map(counted, [(kind, verb, calls) for calls in groups], 1)))
    points = [(n, error, calls, on) for error, calls, sticky in FAULTS for on in ([False, True] if sticky else [False])
              for n in range(ranges[calls][0] + 1, ranges[calls][1] + 1)]
    total = len(points)
    if not ARGS.all:
        # As many of each fault, so that the few syncs are not lost among the opens.
        kinds = {}
        for point in chance.sample(points, total):
            kinds.setdefault(point[1:], []).append(point)
        points = [p for few in kinds.values() for p in few[:max(1, share // len(kinds))]]
    chance.shuffle(points)
    return [(kind, verb, points[i:i + CHAIN]) for i in range(0, len(points), CHAIN)], total


def faults_in(verb, kinds=(('trees', 2), ('four', 1))):
    complaints = []
    for kind, weight in kinds:
        jobs, total = plan(kind, verb, ARGS.points * weight // 3 // len(BEFORE))
        hit = Counter()
        for broken, some in POOL.imap_unordered(chain, jobs, 1):
            complaints += broken
            hit += some
        print(f'# {kind}, {verb}: {sum(hit.values())} of {total} points: {", ".join(f"{n} {e}" for e, n in sorted(hit.items()))}', flush=True)
    return complaints[:10]


def err_01_faults_in_start():
    return faults_in('start')


def atm_04_faults_in_commit():
    return faults_in('commit')


def atm_04_faults_in_rollback():
    return faults_in('rollback')


def atm_11_faults_in_a_part():
    return faults_in('part', (('directories', 3),))


def stm_03_faults_in_keeping():
    return faults_in('keep', (('directories', 3),))


def atm_04_faults_in_recovery():
    return faults_in('recover')


def cln_03_faults_in_stop():
    return faults_in('stop')


def exec_with(world, n, error, calls):
    """(exit status, output, calls) of a command that exits with 3."""
    env = dict(os.environ, ATOLL_HOME=f'{world}/home', LC_ALL='C.UTF-8')
    done = subprocess.run([FAULT_AT, str(n), error, calls, f'{world}/calls', os.environ['ATOLL'], 'exec', '--wait', '60', 'p', '--',
                           'sh', '-c', 'exit 3'], cwd=world, env=env, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr, int(Path(f'{world}/calls').read_text())


def err_01_an_end_that_cannot_be_told_is_not_made_up():
    """Whoever could not write or wait: the command's own exit status is heard, or that it is not known and why."""
    complaints, done = [], Counter()
    for strategy in ('overlay', 'copy'):
        world = tempfile.mkdtemp(dir=TOP)
        (Path(world) / 'd').mkdir()
        env = dict(os.environ, ATOLL_HOME=f'{world}/home')
        atoll = [os.environ['ATOLL']]
        subprocess.run([*atoll, 'start', 'p', '--dir', 'd', '--strategy', strategy], cwd=world, env=env, check=True, capture_output=True)
        for error, calls in (('EIO', 'write'), ('ENOMEM', 'poll')):
            for n in range(1, exec_with(world, 0, error, calls)[2] + 1):
                status, output, _ = exec_with(world, n, error, calls)
                done[status] += 1
                if status != 3 and (status != 125 or not any(text in output for text in CAUSES[error])) or 'signal 0' in output:
                    complaints.append(f'{strategy}, {error} at {calls} {n}: exit {status}: {output.strip()}'.replace('\n', ' | ')[:300])
        subprocess.run([*atoll, 'stop', '--force', '--yes', 'p'], cwd=world, env=env, check=True, capture_output=True)
    print(f'# {done[3]} commands were heard of, {done[125]} were not', flush=True)
    if not done[3] or not done[125]:
        complaints.append(f'nothing was tried: {done}')
    return complaints[:10]


def err_01_a_command_that_cannot_be_recorded_is_ended():
    """The first one of a plan begins while its record is synced. If that fails it does not go on, and what it did is kept."""
    world = tempfile.mkdtemp(dir=TOP)
    (Path(world) / 'd').mkdir()
    env = dict(os.environ, ATOLL_HOME=f'{world}/home', LC_ALL='C.UTF-8')

    def atoll(*words, fault=()):
        done = subprocess.run([*fault, os.environ['ATOLL'], *words], cwd=world, env=env, capture_output=True, text=True,
                              timeout=600, check=False)
        return done.returncode, done.stdout + done.stderr

    complaints = []
    status, output = atoll('start', 'p', '--dir', 'd', '--strategy', 'overlay')
    if status:
        return [output]
    status, output = atoll('exec', 'p', '--', 'sh', '-c', 'cd d; while :; do echo x > new; sleep 0.01; done',
                           fault=(FAULT_AT, '1', 'EIO', 'fdatasync', f'{world}/calls'))
    if status not in (7, 125) or 'Input/output error' not in output:
        complaints.append(f'exit {status}: {output.strip()}')
    # The lock is free, so nothing of it runs any more; the next one runs, and nothing goes on beside it.
    status, output = atoll('exec', '--wait', '60', 'p', '--', 'sh', '-c', 'cd d; rm -f new; sleep 0.3; ls')
    if status or output:
        complaints.append(f'then: exit {status}: {output.strip()}')
    status, output = atoll('stop', '--force', '--yes', 'p')
    return complaints + ([output] if status else [])


def git_05_nothing_stays_that_could_not_be_removed():
    """Locks of git's and of ours, which nobody else would know the owner of: gone, or named and then recovered."""
    complaints, done = [], 0
    for verb in ('commit', 'rollback'):
        first, last = counted(('four', verb, REMOVALS))
        numbers = list(range(first + 1, last + 1))
        random.Random(SEED).shuffle(numbers)
        if not ARGS.all:
            del numbers[len(numbers) // 2:]
        points = [(n, 'EIO', REMOVALS, False) for n in numbers]
        for broken, some in POOL.imap_unordered(chain, [('four', verb, points[i:i + CHAIN]) for i in range(0, len(points), CHAIN)], 1):
            complaints += broken
            done += sum(some.values())
    print(f'# {done} removals that failed', flush=True)
    return complaints[:10]


def renamed(n):
    """(complaints, was it done all the same?)"""
    subject, done = SUBJECTS['directories']('commit', TOP), False
    try:
        done = one(subject, 'commit', n, 'ENOSPC', 'renameat2', False)
        finish(subject, 'commit', done)
    except Exception as why:  # pylint: disable=broad-except
        return [f'rename {n}: {type(why).__name__}: {why}'.replace('\n', ' | ')[:900]], done
    finally:
        subject.end()
    return [], done


def atm_08_room_is_made_for_what_was_decided():
    """A full disk may refuse even a rename; for those after the decision some is set aside."""
    first, last = counted(('directories', 'commit', 'renameat2'))
    complaints, done = [], 0
    for broken, was in POOL.imap_unordered(renamed, range(first + 1, last + 1, 1 if ARGS.all else 6), 1):
        complaints += broken
        done += was
    return complaints[:10] or ([] if done else ['no room was made for any'])


VERBS = {'start': err_01_faults_in_start, 'commit': atm_04_faults_in_commit, 'part': atm_11_faults_in_a_part,
         'rollback': atm_04_faults_in_rollback, 'keep': stm_03_faults_in_keeping, 'recover': atm_04_faults_in_recovery,
         'stop': cln_03_faults_in_stop, 'removals': git_05_nothing_stays_that_could_not_be_removed,
         'renames': atm_08_room_is_made_for_what_was_decided, 'exec': err_01_an_end_that_cannot_be_told_is_not_made_up,
         'begin': err_01_a_command_that_cannot_be_recorded_is_ended}

if __name__ == '__main__':
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument('who', choices=['root', 'user'])
    PARSER.add_argument('--all', action='store_true', default=LONG)
    PARSER.add_argument('--points', type=int, default=POINTS)
    PARSER.add_argument('--verb', action='append', choices=list(VERBS))
    ARGS = PARSER.parse_args()
    become(ARGS.who)
    TOP = tempfile.mkdtemp(prefix='atoll-faults.', dir='/var/tmp')
    os.chmod(TOP, 0o755)
    try:
        with Pool(3) as POOL:
            CODE = run([VERBS[verb] for verb in ARGS.verb or [verb for verb in VERBS if verb != 'renames']])
    finally:
        shutil.rmtree(TOP, ignore_errors=True)
    sys.exit(CODE)

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Faults, by place: from each place in the program that makes a system call, known by the call and the
innermost functions it came through, that call fails once, in every verb of `faults.py` and in the commands
that only look. What must hold is the same. As many runs as there are places: for ./setup coverage. Prints TAP.

usage: places.py root|user [--verb VERB]... [--minutes N]
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from multiprocessing import Pool
from pathlib import Path

import faults
from crashlib import FAULT_AT, Broken, become, run
from faults import CHANGE, LOOK, SYNC, names_cause, one
from subjects import SUBJECTS, Four, finish

MORE = 'stat,lseek,fcntl,ioctl,faccessat2,fstatfs,mknodat,getxattr,lgetxattr,llistxattr,setxattr'
FAULTS = [('EIO', f'{CHANGE},{SYNC},{LOOK},{MORE}'), ('EMFILE', 'pipe2,clone,clone3,socket,connect,memfd_create,flock'),
          ('EINTR', 'read,write,pread64,pwrite64,copy_file_range,openat,openat2,flock,wait4,waitid,poll,fsync,fdatasync,fallocate,fcntl'),
          ('EOPNOTSUPP', 'fallocate,copy_file_range,sendfile,lseek'),
          ('ENOMEM', 'clone,clone3,mmap,poll,wait4,waitid'), ('ENOSPC', 'write,pwrite64,create,mkdirat,linkat,renameat2,copy_file_range,fallocate')]
# Commands that leave the resources as they are, in a plan with work in it.
LOOKS = [
    ['exec', 'p', '--', 'sh', '-c', 'cat d/f c/f lite.db >/dev/null'], ['diff', 'p'], ['diff', 'p', '--patch'], ['diff', 'p', '--stat', '--json'],
    ['show', 'p'], ['list'], ['log', 'p'], ['path', 'p', 'c'], ['doctor'], ['doctor', 'd'], ['lock'], ['clean'], ['recover'],
    ['commit', 'p', '--dry-run'], ['config', 'list'], ['config', 'set', 'exec.cpus', '0'], ['refresh', 'p'], ['reset', 'p'],
    ['exec', 'p', '--background', 'j', '--', 'true'], ['job', 'list', 'p'],
]


def size(path):
    return path.stat().st_size if path.exists() else 0


def report(what, why):
    return f'{what}: {"" if isinstance(why, Broken) else type(why).__name__ + " "}{why}'.replace('\n', ' | ')[:900]


def sweep(job):
    """Until a run meets no place that was not tried. (complaints, places)"""
    kind, verb, error, calls = job
    known = Path(TOP) / f'places.{kind}.{error}'
    complaints, tried, subject = [], 0, None
    while time.monotonic() < END and len(complaints) < 20:
        before, done = size(known), False
        try:
            subject = subject or SUBJECTS[kind](verb, TOP)
            done = one(subject, verb, f'new:{known}', error, calls, False)
            if done:
                finish(subject, verb, done)
        except Exception as why:  # pylint: disable=broad-except
            complaints.append(report(f'{kind}, {verb}: {error} at place {before // 8}', why))
            done = True
        if done and subject:
            subject.end()
            subject = None
        if size(known) == before:
            break
        tried += 1
    if subject:
        subject.end()
    return complaints, tried


def look(job):
    """The same, of a command that changes no resource: it works, or fails and names the cause; then it works."""
    words, error, calls = job
    known = Path(TOP) / f'places.four.{error}'
    count = Path(TOP) / f'calls.{os.getpid()}'
    complaints, tried = [], 0
    subject = Four('commit', TOP)
    while time.monotonic() < END and len(complaints) < 20:
        before = size(known)
        try:
            status, output = subject.run((FAULT_AT, f'new:{known}', error, calls, str(count)), words)
            if status < 0 or (status == faults.SIGNALLED and error != 'ENOMEM'):
                raise Broken('died of a signal')
            if status not in (0, faults.SIGNALLED) and words[0] != 'doctor' and not names_cause(error, output):
                raise Broken(f'the cause is not said: exit {status}: {output.strip()[-600:]}')
        except Exception as why:  # pylint: disable=broad-except
            complaints.append(report(f'{" ".join(words)}: {error}', why))
        if size(known) == before:
            break
        tried += 1
    try:
        subject.must('recover')
        status, output = subject.run((), words)
        if status or subject.state() != 'old':
            raise Broken(f'it does not work afterwards: exit {status}: {output}')
    except Exception as why:  # pylint: disable=broad-except
        complaints.append(report(' '.join(words), why))
    subject.end()
    return complaints, tried


def all_of(name, work, jobs):
    complaints, tried = [], 0
    for broken, some in POOL.imap_unordered(work, jobs, 1):
        complaints += broken
        tried += some
    print(f'# {name}: {tried} places', flush=True)
    return complaints[:40]


def of_verb(verb, kinds=('trees', 'four')):
    return all_of(verb, sweep, [(kind, verb, error, calls) for error, calls in FAULTS for kind in kinds])


def err_01_every_place_in_start():
    return of_verb('start')


def atm_04_every_place_in_commit():
    return of_verb('commit')


def atm_04_every_place_in_rollback():
    return of_verb('rollback')


def atm_11_every_place_in_a_part():
    return of_verb('part', ('directories',))


def stm_03_every_place_in_keeping():
    return of_verb('keep', ('directories',))


def atm_04_every_place_in_recovery():
    return of_verb('recover')


def cln_03_every_place_in_stop():
    return of_verb('stop')


def err_01_every_place_in_looks():
    return all_of('looks', look, [(words, error, calls) for error, calls in FAULTS for words in LOOKS])


VERBS = {'start': err_01_every_place_in_start, 'commit': atm_04_every_place_in_commit, 'rollback': atm_04_every_place_in_rollback,
         'part': atm_11_every_place_in_a_part, 'keep': stm_03_every_place_in_keeping,
         'recover': atm_04_every_place_in_recovery, 'stop': cln_03_every_place_in_stop, 'look': err_01_every_place_in_looks}

if __name__ == '__main__':
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument('who', choices=['root', 'user'])
    PARSER.add_argument('--verb', action='append', choices=list(VERBS))
    PARSER.add_argument('--minutes', type=float, default=600)
    ARGS = PARSER.parse_args()
    become(ARGS.who)
    END = time.monotonic() + 60 * ARGS.minutes
    TOP = faults.TOP = tempfile.mkdtemp(prefix='atoll-places.', dir='/var/tmp')
    os.chmod(TOP, 0o755)
    try:
        with Pool(3) as POOL:
            CODE = run([VERBS[verb] for verb in ARGS.verb or VERBS])
    finally:
        shutil.rmtree(TOP, ignore_errors=True)
    sys.exit(CODE)

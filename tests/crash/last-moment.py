#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Somebody else edits an original while a commit is at work, at places chosen by stopping the
commit at a system call (strace): whoever comes before the decision is a conflict, nothing of his is
lost, and nothing is changed. Prints TAP.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from crashlib import Broken, World, put, run, traced

CONFLICT = 3  # exit status
DEADLINE = 120  # seconds, for what must happen


def stopped_at(world, call, when, *verbs):
    """The commit, stopped right after its WHEN-th CALL; its pid is the second of the pair."""
    log = world.base / 'trace'
    log.touch()
    process = subprocess.Popen(
        ['strace', '-f', '-qq', '-o', str(log), '-e', f'trace={call}', '-e',
         f'inject={call}:signal=SIGSTOP:when={when}', *world.command(verbs)],
        env={**os.environ, **traced()}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True)
    end = time.monotonic() + DEADLINE
    while 'stopped by SIGSTOP' not in log.read_text():
        if time.monotonic() > end or process.poll() is not None:
            process.kill()
            raise Broken(f'it was never stopped at {call} {when}: {process.communicate()[0]}')
        time.sleep(0.005)
    children = Path(f'/proc/{process.pid}/task/{process.pid}/children').read_text().split()
    return process, int(children[0])


def leave_it(_):
    pass


def edit_meanwhile(call, when, edit, before=leave_it, verb='commit'):
    """Complaints about a commit, or an undo, during which EDIT happened, after BEFORE."""
    with World(['r1', 'r2']) as world:
        world.open_plan()
        world.edit()
        if verb == 'rollback':
            world.must('commit')
        before(world.base)
        process, pid = stopped_at(world, call, when, verb)
        edit(world.base)
        theirs = world.look()
        os.kill(pid, signal.SIGCONT)
        output = process.communicate(timeout=DEADLINE)[0]
        if process.returncode != CONFLICT:
            return [f'{call} {when}: exit {process.returncode} where a conflict is due: {output}']
        if world.look() != theirs:
            return [f'{call} {when}: a resource was changed all the same']
    return []


# mkdirat 3 makes the batch's directory: after the first has judged, before its manifest.
# mkdirat 4 is the second's: the first has prepared.
def der_03_changed_while_preparing():
    complaints = []
    for when in (3, 4):
        complaints += edit_meanwhile('mkdirat', when,
                                     lambda base: put(base / 'r1/a.txt', b'theirs'))
        complaints += edit_meanwhile('mkdirat', when, lambda base: (base / 'r1/ro.txt').unlink())
        complaints += edit_meanwhile('mkdirat', when,
                                     lambda base: put(base / 'r1/d/e/f/new.txt', b'theirs'))
    return complaints


def der_03_changed_at_the_barrier():
    return (edit_meanwhile('syncfs', 1, lambda base: put(base / 'r2/a.txt', b'theirs')) +
            edit_meanwhile('syncfs', 1, lambda base: put(base / 'r1/to', b'theirs')))


def write_anew(path):
    """The same in another file, as git does it; the directory keeps its time."""
    stat = path.parent.stat()
    put(path.with_name('anew'), path.read_bytes())
    path.with_name('anew').chmod(path.stat().st_mode & 0o7777)
    path.with_name('anew').rename(path)
    os.utime(path.parent, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def forge(path):
    """Something else of the same size, with the times it had."""
    stat = path.stat()
    with open(path, 'r+b') as file:
        file.write(b'#')
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def write(path):
    put(path, b'theirs')


# What was taken for the original because it holds the same is looked for from then on, and no other.
def der_03_changed_after_it_was_found_the_same():
    complaints = []
    for verb, call, when, edits in (('commit', 'mkdirat', 3, (forge, write)),
                                    ('commit', 'mkdirat', 4, (write_anew, forge, write)),
                                    ('commit', 'syncfs', 1, (write_anew, forge, write)),
                                    ('rollback', 'syncfs', 1, (write,))):
        for edit in edits:
            complaints += edit_meanwhile(call, when, lambda base, edit=edit: edit(base / 'r1/a.txt'),
                                         lambda base: write_anew(base / 'r1/a.txt'), verb)
    return complaints


if __name__ == '__main__':
    os.environ['SCENARIO_SYNC'] = '1'
    sys.exit(run([der_03_changed_while_preparing, der_03_changed_at_the_barrier,
                  der_03_changed_after_it_was_found_the_same]))

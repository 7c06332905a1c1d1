#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A command that puts a program of its own in the place of one with set-id bits: the bits are new, are taken off by
the commit, and are named. With the fence taken away (`--allow setuid`) they arrive, and for root the program then runs
as root for everyone. With every kind of workspace, and from a remote machine; as root and as an ordinary user."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from atolld import main  # noqa: E402
from expect import need, same  # noqa: E402
from remoted import World  # noqa: E402

OTHER = 65534
# Beside it, then over it: a write to a file takes its bits off. As the kernel's copy in an overlay, and written anew.
WAYS = {'a': f'cp {shutil.which("id")} x; chmod 4755 x; mv x a', 'b': f'cat {shutil.which("id")} >b; chmod 4755 b',
        'c': 'chmod 4777 c'}


def bits(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def fill(p):
    """What the user has: harmless programs with the bit."""
    for name in WAYS:
        shutil.copy(shutil.which('true'), p.at(name))
        os.chmod(p.at(name), 0o4755)
    os.chmod(p.root, 0o755)
    os.chmod(p.w.top, 0o711)  # for who runs one


def runs_as(path):
    """The user in whose name another user runs it."""
    def become():
        os.setgroups([])
        os.setgid(OTHER)
        os.setuid(OTHER)
    return subprocess.run([path, '-u'], preexec_fn=become, capture_output=True, check=True, timeout=600).stdout


def stripped_then_allowed(top, kind, strategy):
    w = World(top, daemon=False)
    for options, mode in (((), 0o755), (('--allow', 'setuid'), 0o4755)):
        p = w.project(f'p{mode}', git=kind == '--git')
        fill(p)
        if kind == '--git':
            p.git('add', '-A')
            p.git('commit', '-qm', 'first')
        w.must('start', 'p', kind, str(p.root), '--strategy', strategy)
        w.must('exec', 'p', '--cwd', str(p.root), '--', 'sh', '-euc', '; '.join(WAYS.values()))
        lines = w.must('diff', 'p').decode().splitlines()
        for name in WAYS:
            need(any(f'/{name}  (' in line and 'setuid' in line for line in lines), lines)
        done = w.atoll('commit', '--yes', 'p', *options)
        same(done.returncode, 0, done.stderr)
        for name in WAYS:
            same(oct(bits(p.at(name)) & ~0o022), oct(mode), f'{strategy}: {name} with {options}')
            need(bool(options) or f'/{name}'.encode() in done.stderr + done.stdout, done)
        if os.geteuid() == 0:
            same(runs_as(p.at('a')), b'0\n' if options else b'%d\n' % OTHER, f'{strategy}: who it runs as')
        w.must('stop', '--force', '--yes', 'p')


def test_privileges_of_a_replaced_program_overlay(top):
    stripped_then_allowed(top, '--dir', 'overlay')


def test_privileges_of_a_replaced_program_copy(top):
    stripped_then_allowed(top, '--dir', 'copy')


def test_privileges_of_a_replaced_program_git(top):
    stripped_then_allowed(top, '--git', 'git')


def test_privileges_of_a_replaced_program_worktree(top):
    stripped_then_allowed(top, '--git', 'worktree')


def test_privileges_of_a_replaced_program_from_a_remote_machine(top):
    with World(top) as w:
        p = w.project()
        fill(p)
        p.good('true')
        done = p.sh('; '.join(WAYS.values()))
        for name in WAYS:
            same(oct(bits(p.at(name)) & ~0o022), oct(0o755), f'{name}: {done}')
        need(Path(os.fsdecode(p.at('a'))).read_bytes() == Path(shutil.which('id')).read_bytes(), 'it came')


if __name__ == '__main__':
    main([test_privileges_of_a_replaced_program_overlay, test_privileges_of_a_replaced_program_copy,
          test_privileges_of_a_replaced_program_git, test_privileges_of_a_replaced_program_worktree,
          test_privileges_of_a_replaced_program_from_a_remote_machine])

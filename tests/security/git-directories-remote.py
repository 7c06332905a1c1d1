#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a remote machine sends back is judged as what a local command made: by the same function, in the commit of
the local plan that takes it. src/diff/git-program.h says what is judged."""

import os
import re
import sys
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from atolld import main  # noqa: E402
from expect import need, same  # noqa: E402
from remoted import World  # noqa: E402


def refused_then_allowed(top, w, p, script, use):
    """The control: with the fence taken away, git runs the program."""
    done = p.sh(script)
    asked = re.search(rb'atoll commit (\S+) --allow git-programs', done.stderr)
    need(asked and b'nothing was changed' in done.stderr, done)
    p.git(*use, check=False)
    need(not (top / 'mark').exists(), 'git ran a program')
    w.must('commit', '--yes', asked[1].decode(), '--allow', 'git-programs')
    p.git(*use, check=False)
    need((top / 'mark').exists(), 'the attack is none')


def test_git_directories_settings_from_a_remote_machine(top):
    with World(top) as w:
        p = w.project(git=True)
        p.git('commit', '-q', '--allow-empty', '-m', 'first')
        p.git('status')
        p.good('true')
        refused_then_allowed(
            Path(top), w, p, "printf 'deadbeefdeadbeefdeadbeefdeadbeefdeadbeef\\n[core]\\n\\tfsmonitor = touch "
            f"{top}/mark\\n' >.git/config", ['status'])


def test_git_directories_made_by_two_remote_commands(top):
    with World(top) as w:
        p = w.project()
        p.good(f"mkdir -p d/objects; printf '[alias]\\n\\tx = !touch {top}/mark\\n' >d/config")
        refused_then_allowed(Path(top), w, p, "mkdir d/refs; printf 'ref:\\trefs/heads/main\\n' >d/HEAD", ['-C', 'd', 'x'])
        same(p.read('d/HEAD'), b'ref:\trefs/heads/main\n', 'what came')


if __name__ == '__main__':
    main([test_git_directories_settings_from_a_remote_machine, test_git_directories_made_by_two_remote_commands])

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whatever is done with a plan, outside of it no program starts but Atoll's own and git's. The repository has every
setting by which git runs a program, and all of them name one file of the working tree, which the plan replaced.
Every execve() of diff, commit, undo, redo, recover and of a remote command is traced with strace. The control: `git add`,
typed by the user after the commit, runs the file."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from atolld import main  # noqa: E402
from expect import need, same  # noqa: E402
from remoted import World  # noqa: E402

COMMANDS = '''alias.st alias.status alias.update-index alias.config core.alternateRefsCommand core.askPass core.editor
    core.fsmonitor core.gitProxy core.pager core.sshCommand credential.helper diff.external diff.x.command
    diff.x.textconv filter.x.clean filter.x.smudge filter.z.process gpg.program gpg.ssh.program interactive.diffFilter
    merge.x.driver pager.log pager.diff receive.procReceiveRefs remote.origin.receivepack remote.origin.uploadpack
    sequence.editor uploadpack.packObjectsHook'''.split()
HOOKS = '''applypatch-msg commit-msg fsmonitor-watchman post-applypatch post-checkout post-commit post-index-change
    post-merge post-receive post-rewrite post-update pre-auto-gc pre-commit pre-push pre-receive push-to-checkout
    reference-transaction sendemail-validate update'''.split()
MERGED = ''.join(f'{i}\n' for i in range(20))


def shell(text):
    return f'#!/bin/sh\n{text}\n[ ! -p /dev/stdin ] || exec cat\n'


def repository(w, p):
    """One whose settings all name `tool`, a file of its own, harmless so far."""
    tool = os.path.join(p.root, 'tool')
    p.write('tool', shell(':'), 0o755)
    p.write('.gitattributes', '*.x filter=x diff=x\n*.z filter=z\n')
    p.write('.gitconfig', '[user]\n\tname = x\n')
    p.write('f.x', 'first\n')
    p.write('m.x', MERGED)
    p.git('add', '-A')
    p.git('commit', '-qm', 'first')
    for key in COMMANDS:
        p.git('config', key, f'!{tool}' if key.startswith('alias.') else tool)
    p.git('config', 'filter.x.required', 'true')
    p.git('config', 'include.path', '../.gitconfig')
    p.git('config', 'core.hooksPath', 'hooks')
    p.git('config', 'commit.gpgSign', 'true')
    p.git('config', 'log.showSignature', 'true')
    p.git('config', 'remote.origin.url', f'ext::{tool}')
    for folder in ('hooks', '.git/hooks'):
        os.makedirs(p.at(folder), exist_ok=True)
        for hook in HOOKS:
            p.write(f'{folder}/{hook}', shell(f'exec {tool}'), 0o755)
    return tool


def work(w, p, tool):
    """What the command does: another tool, and more reasons to run it."""
    script = w.top / 'work.sh'
    script.write_text(f'''
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
cat >tool <<'END'
{shell(f'touch {w.top}/mark')}END
chmod +x tool
printf '%s\\n' '*.x filter=x diff=x merge=x' '*.y filter=y' '*.z filter=z' >.gitattributes
printf '[filter "y"]\\n\\tclean = {tool}\\n\\tsmudge = {tool}\\n' >.gitconfig
echo second >f.x; echo y >g.y; echo z >h.z; sed -i 's/^3$/three/' m.x
plain='-c core.fsmonitor=false -c core.hooksPath=/dev/null -c filter.z.process='
git $plain add -A
git $plain commit -qm second --no-gpg-sign
echo third >>f.x; git $plain add f.x
''')
    w.must('exec', 'p', '--cwd', str(p.root), '--ro', str(script), '--', 'sh', '-eu', str(script))
    need(not (w.top / 'mark').exists(), 'the command itself reached out')


def allowed():
    own = [Path(os.environ['ATOLL']).parent.parent]
    git = subprocess.run(['git', '--exec-path'], capture_output=True, text=True, check=True).stdout.strip()
    return [os.path.realpath(d) + '/' for d in own] + [os.path.realpath(git) + '/'], \
        {os.path.realpath(shutil.which(name)) for name in ('git', 'strace')}


def traced(w, *words, status=(0,), cwd=None, env=None):
    """Runs atoll; what it starts and what that starts is on the list, and the plan's tool is not."""
    log = w.top / 'trace'
    # What is traced cannot look for leaks.
    sanitizer = {'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'}
    done = subprocess.run(['strace', '-f', '-qq', '-s', '4096', '-e', 'trace=execve,execveat', '-e', 'signal=none', '-o',
                           str(log), w.program, *words], env=dict(w.env, **sanitizer, **(env or {})), cwd=cwd or w.top,
                          stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=1200)
    need(done.returncode in status, f'{words}: {done}')
    folders, files = allowed()
    started = set()
    for line in log.read_text(errors='replace').splitlines():
        call = re.search(r'execve(?:at)?\((?:[^"]*)"((?:[^"\\]|\\.)*)"', line)
        if call and 'ENOENT' not in line:
            started.add(os.path.realpath(call[1]))
    need(started, f'{words}: nothing was traced')
    for path in started:
        need(path in files or any(path.startswith(folder) for folder in folders), f'{words} ran {path}')
    need(not (w.top / 'mark').exists(), f'{words} ran the tool of the plan')
    return done


def add_runs_it(w, p):
    """The control."""
    p.write('f.x', 'fourth\n')
    p.git('-c', 'core.fsmonitor=false', '-c', 'core.pager=cat', 'add', '-A', check=False)
    need((w.top / 'mark').exists(), 'git does not run the tool either')
    (w.top / 'mark').unlink()


def decided(top, strategy):
    w = World(top, daemon=False)
    p = w.project(git=True)
    tool = repository(w, p)
    w.must('start', 'p', '--git', str(p.root), '--strategy', strategy)
    work(w, p, tool)
    for options in ([], ['--patch'], ['--stat'], ['--json'], ['--digest']):
        traced(w, 'diff', 'p', *options)
    traced(w, 'commit', '--yes', 'p')
    same(p.read('tool').count(b'mark'), 1, 'the commit')
    traced(w, 'undo', '--yes', 'p')
    same(p.read('tool').count(b'mark'), 0, 'the undo')
    traced(w, 'redo', '--yes', 'p')
    same(p.read('tool').count(b'mark'), 1, 'the redo')
    add_runs_it(w, p)


def recovered(top, strategy):
    w = World(top, daemon=False)
    p = w.project(git=True)
    tool = repository(w, p)
    w.must('start', 'p', '--git', str(p.root), '--strategy', strategy)
    work(w, p, tool)
    w.atoll('commit', '--yes', 'p', env={'ATOLL_CRASHPOINT': 'git.index.made'})
    traced(w, 'recover')
    same(p.read('tool').count(b'mark'), 1, 'the commit that was completed')
    add_runs_it(w, p)


def merged(top, strategy):
    """Both sides went on, in a file that goes through the filter: what it holds is not asked of the tool."""
    w = World(top, daemon=False)
    p = w.project(git=True)
    tool = repository(w, p)
    w.must('start', 'p', '--git', str(p.root), '--strategy', strategy)
    work(w, p, tool)
    p.write('m.x', MERGED.replace('17\n', 'seventeen\n'))
    plain = ['-c', 'core.fsmonitor=false', '-c', 'core.hooksPath=/dev/null', '-c', 'filter.z.process=']
    p.git(*plain, 'add', 'm.x')
    p.git(*plain, 'commit', '-qm', 'other', '--no-gpg-sign')
    traced(w, 'commit', '--yes', 'p', status=(0, 3))


def test_runs_nothing_of_the_plan_git(top):
    decided(top, 'git')


def test_runs_nothing_of_the_plan_worktree(top):
    decided(top, 'worktree')


def test_runs_nothing_of_the_plan_when_recovered(top):
    recovered(top, 'git')


def test_runs_nothing_of_the_plan_when_merged_git(top):
    merged(top, 'git')


def test_runs_nothing_of_the_plan_when_merged_worktree(top):
    merged(top, 'worktree')


def test_runs_nothing_of_what_a_remote_machine_sends(top):
    with World(top) as w:
        p = w.project(git=True)
        tool = repository(w, p)
        traced(w, '--remote', 'big', 'exec', '--', 'true', cwd=p.root)
        traced(w, '--remote', 'big', 'exec', '--', 'sh', '-c',
               f"printf '#!/bin/sh\\ntouch {w.top}/mark\\n' >tool; echo new >f.x", cwd=p.root)
        need(b'mark' in p.read('tool'), f'{tool} came')
        traced(w, '--remote', 'big', 'diff', cwd=p.root)
        traced(w, '--remote', 'big', 'exec', '--', 'true', cwd=p.root)
        add_runs_it(w, p)


if __name__ == '__main__':
    main([test_runs_nothing_of_the_plan_git, test_runs_nothing_of_the_plan_worktree,
          test_runs_nothing_of_the_plan_when_recovered, test_runs_nothing_of_the_plan_when_merged_git,
          test_runs_nothing_of_the_plan_when_merged_worktree, test_runs_nothing_of_what_a_remote_machine_sends])

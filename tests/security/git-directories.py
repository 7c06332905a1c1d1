#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Git directories that a command arranges so that git, used there by the user later, runs a program. Each is
refused by the commit and named by the diff; with the fence taken away (`--allow git-programs`) the real git
runs the program, so the attack is one. With `overlay` and `copy`, as root and as an ordinary user. Prints TAP.

usage: git-directories.py [root|user]
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ATOLL = os.environ.get('ATOLL', '')
IS_ROOT = os.geteuid() == 0
PATIENCE = 600     # seconds for one command, however slow the machine is
ID = '0123456789abcdef0123456789abcdef01234567'
# Runs in a directory of any name; in a repository with a working tree core.fsmonitor needs no word of its own.
EVIL = '[alias]\n\tx = !touch {mark}\n'


class Broken(Exception):
    pass


class World:
    def __init__(self, base, strategy):
        self.base, self.root, self.mark, self.strategy = base, base / 'r', base / 'mark', strategy
        self.env = {'PATH': os.environ['PATH'], 'HOME': str(base), 'ATOLL_HOME': str(base / 'home'), 'NO_COLOR': '1',
                    'GIT_CONFIG_NOSYSTEM': '1', 'GIT_AUTHOR_NAME': 'a', 'GIT_AUTHOR_EMAIL': 'a@b',
                    'GIT_COMMITTER_NAME': 'a', 'GIT_COMMITTER_EMAIL': 'a@b', 'LC_ALL': 'C',
                    **{k: v for k, v in os.environ.items() if k.startswith(('ATOLL_', 'ASAN', 'LSAN', 'UBSAN'))
                       and k != 'ATOLL_HOME'}}
        self.root.mkdir()

    def run(self, *words, status=(0,)):
        p = subprocess.run(words, env=self.env, cwd=self.base, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=PATIENCE, check=False)
        if status and p.returncode not in status:
            raise Broken(f'{" ".join(map(str, words))}: {p.returncode}: {p.stdout[-600:]!r}')
        return p.stdout.decode(errors='replace')

    def git(self, *words, status=(0,)):
        return self.run('git', *words, status=status)

    def atoll(self, *words, status=(0,)):
        return self.run(ATOLL, *words, status=status)

    def start(self, kind='--dir'):
        strategy = self.strategy if kind == '--dir' else {'overlay': 'git', 'copy': 'worktree'}[self.strategy]
        self.atoll('start', 'p', kind, str(self.root), '--strategy', strategy)

    def work(self, script):
        self.atoll('exec', 'p', '--cwd', str(self.root), '--', 'sh', '-euc', script)

    def repository(self, path='.', *options):
        """One that the user has, with a commit."""
        self.git('init', '-q', '-b', 'main', *options, str(self.root / path))
        if '--bare' not in options:
            self.git('-C', str(self.root / path), 'commit', '-q', '--allow-empty', '-m', 'first')
            self.git('-C', str(self.root / path), 'status')


ATTACKS = []


def attack(*named, use=('-C', '{root}/d', 'x'), kind='--dir'):
    """NAMED: what diff names. USE: what the user types later."""
    def register(fn):
        ATTACKS.append((fn, named, use, kind))
        return fn
    return register


def evil(w):
    return f"printf '%s' '{EVIL.format(mark=w.mark)}' >"


@attack('.git/config', use=('-C', '{root}', 'status'))
def test_git_directories_settings_that_begin_like_a_ref(w):
    w.repository()
    w.start()
    yield f"printf 'deadbeefdeadbeefdeadbeefdeadbeefdeadbeef\\n[core]\\n\\tfsmonitor = touch {w.mark}\\n' >.git/config"


@attack('.git/config', use=('-C', '{root}', 'status'))
def test_git_directories_settings_that_begin_like_a_symbolic_ref(w):
    w.repository()
    w.start()
    yield f"printf ';ref: refs/\\n[core]\\n\\tfsmonitor = touch {w.mark}\\n' >.git/config"


def head_attack(name, command):
    def arrange(w):
        w.start()
        yield f'mkdir -p d/objects; {evil(w)}d/config'
        yield f'mkdir d/refs; cd d; {command}'
    arrange.__name__ = f'test_git_directories_a_head_{name}'
    attack('d/HEAD', 'd/refs/', 'd/config')(arrange)


for spelling, how in (
        ('as_git_writes_it', "echo 'ref: refs/heads/main' >HEAD; touch config"),
        ('without_a_blank', "echo 'ref:refs/heads/main' >HEAD"),
        ('with_a_tab', "printf 'ref:\\trefs/heads/main\\n' >HEAD"),
        ('with_a_line_between', "printf 'ref:\\n\\nrefs/heads/main\\n' >HEAD"),
        ('that_is_a_link', 'ln -s refs/heads/main HEAD'),
        ('in_capital_letters', f'echo {ID.upper()} >HEAD'),
        ('with_a_tail', f'echo {ID}zzz >HEAD')):
    head_attack(spelling, how)


@attack('d/refs/')
def test_git_directories_refs_that_come_last(w):
    w.start()
    yield f"mkdir -p d/objects; echo 'ref: refs/heads/main' >d/HEAD; {evil(w)}d/config"
    yield 'mkdir d/refs'


@attack('d/config')
def test_git_directories_directories_that_are_links(w):
    w.start()
    yield f"mkdir -p d x; ln -s ../x d/objects; ln -s ../x d/refs; echo {ID} >d/HEAD; {evil(w)}d/config"


@attack('d/HEAD', use=('-C', '{root}/d', 'hook', 'run', 'post-update'))
def test_git_directories_hooks_that_wait_for_a_repository(w):
    w.start()
    yield f"mkdir -p d/hooks d/objects; printf '#!/bin/sh\\ntouch {w.mark}\\n' >d/hooks/post-update; chmod +x d/hooks/*"
    yield f'mkdir d/refs; echo {ID.upper()} >d/HEAD'


@attack('bare/hooks/post-update', use=('-C', '{root}/bare', 'hook', 'run', 'post-update'))
def test_git_directories_hooks_of_a_bare_repository_that_had_none(w):
    w.repository('bare', '--bare')
    shutil.rmtree(w.root / 'bare/hooks')
    w.start()
    yield f"mkdir bare/hooks; printf '#!/bin/sh\\ntouch {w.mark}\\n' >bare/hooks/post-update; chmod +x bare/hooks/*"


@attack('.git/config', use=('--git-dir', '{root}/.git', 'checkout-index', '-f', '-a'))
def test_git_directories_a_working_tree_elsewhere(w):
    w.repository()
    w.start()
    yield f"echo x >mark; git add mark; git commit -qm mark; rm mark; git config core.worktree {w.base}"


@attack('w/HEAD', use=('-C', '{root}/w', 'x'))
def test_git_directories_settings_of_a_common_directory(w):
    w.start()
    yield f"mkdir -p c/objects w; printf '[alias]\\n\\tx = !touch {w.mark}\\n' >c/config; echo ../c >w/commondir"
    yield "mkdir c/refs; printf 'ref:\\trefs/heads/main\\n' >w/HEAD"


@attack('d/.git', use=('-C', '{root}/d', 'x'))
def test_git_directories_a_link_to_the_workspace_of_another(w):
    """Somewhere outside, where nothing is judged."""
    outside = w.base / 'x.git'
    w.git('init', '-q', '--bare', str(outside))
    (outside / 'config').write_text(EVIL.format(mark=w.mark))
    w.start()
    yield f"mkdir d; echo 'gitdir: {outside}' >d/.git"


@attack('v/x/.git/config', use=('-C', '{root}', 'status'), kind='--git')
def test_git_directories_a_repository_in_the_index_of_another(w):
    w.repository()
    w.start('--git')
    yield (f'git init -q v/x; git -C v/x commit -q --allow-empty -m x; git add v/x 2>/dev/null; git commit -qm x;'
           f"printf 'deadbeefdeadbeefdeadbeefdeadbeefdeadbeef\\n[core]\\n\\tfsmonitor = touch {w.mark}\\n' >v/x/.git/config")


@attack('.git/modules/m/config', use=('-C', '{root}/m', 'status'))
def test_git_directories_settings_of_a_submodule(w):
    w.repository()
    w.start()
    yield ("mkdir .git/modules; git init -q --separate-git-dir .git/modules/m m; "
           f"printf 'deadbeefdeadbeefdeadbeefdeadbeefdeadbeef\\n[core]\\n\\tfsmonitor = touch {w.mark}\\n' >.git/modules/m/config")


@attack('.git/worktrees/w/config.worktree', use=('-C', '{root}/w', 'status'))
def test_git_directories_settings_of_a_worktree(w):
    w.repository()
    w.git('-C', str(w.root), 'worktree', 'add', '-q', 'w')
    w.git('-C', str(w.root), 'config', 'extensions.worktreeConfig', 'true')
    w.start()
    yield (f"printf 'deadbeefdeadbeefdeadbeefdeadbeefdeadbeef\\n[core]\\n\\tfsmonitor = touch {w.mark}\\n' "
           ">.git/worktrees/w/config.worktree")


@attack('x', use=('-C', '{root}/..', 'hook', 'run', 'x'))
def test_git_directories_a_resource_that_is_the_hooks_themselves(w):
    w.git('init', '-q', '--bare', str(w.base / 'repo'))
    w.root = w.base / 'repo/hooks'
    w.start()
    yield f"printf '#!/bin/sh\\ntouch {w.mark}\\n' >x; chmod +x x"


@attack('.hg/hgrc', use=None)
def test_git_directories_settings_of_mercurial(w):
    w.start()
    yield f"mkdir -p .hg/store; printf '[hooks]\\npost-status = touch {w.mark}\\n' >.hg/hgrc"


@attack('.jj/repo/config.toml', use=None)
def test_git_directories_settings_of_jujutsu(w):
    w.start()
    yield f"mkdir -p .jj/repo; printf '[ui]\\npager = \"touch {w.mark}\"\\n' >.jj/repo/config.toml"


def check(arrange, named, use, kind, strategy):
    base = Path(tempfile.mkdtemp(prefix='atoll-gitdirs.', dir='/var/tmp'))
    try:
        w = World(base, strategy)
        scripts = list(arrange(w))
        for script in scripts[:-1]:
            w.work(script)
            w.atoll('commit', '--yes', 'p')
        w.work(scripts[-1])
        diff = w.atoll('diff', 'p')
        lines = [line for line in diff.splitlines() if 'would run a program' in line]
        if not any(f'/{path}  (' in line for path in named for line in lines):
            raise Broken(f'diff does not name {" or ".join(named)}: {diff}')
        said = w.atoll('commit', '--yes', 'p', status=(4,))
        if '--allow git-programs' not in said:
            raise Broken(f'commit said {said}')
        if use is not None:
            use = [word.format(root=w.root) for word in use]
            w.git(*use, status=None)
            if w.mark.exists():
                raise Broken('git ran a program before anything was committed')
        # The control: without the fence it is one.
        w.atoll('commit', '--yes', 'p', '--allow', 'git-programs')
        if use is not None:
            said = w.git(*use, status=None)
            if not w.mark.exists():
                raise Broken(f'git ran no program when it was committed: {said}')
        w.atoll('stop', '--force', 'p')
    finally:
        subprocess.run(['chmod', '-R', 'u+rwX', str(base)], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(base, ignore_errors=True)


def main():
    if sys.argv[1:] == ['user'] and IS_ROOT:
        os.execvp('setpriv', ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--',
                              'env', 'HOME=/nonexistent', sys.executable, __file__, 'user'])
    print(f'1..{len(ATTACKS)}')
    failed = False
    for number, (arrange, named, use, kind) in enumerate(ATTACKS, 1):
        bad = []
        for strategy in ('overlay', 'copy'):
            try:
                check(arrange, named, use, kind, strategy)
            except Broken as why:
                bad.append(f'{strategy}: {why}')
        failed = failed or bool(bad)
        print(f"{'not ok' if bad else 'ok'} {number} - {arrange.__name__}")
        for line in bad:
            for part in line.splitlines():
                print(f'# {part}')
        sys.stdout.flush()
    return int(failed)


if __name__ == '__main__':
    sys.exit(main())

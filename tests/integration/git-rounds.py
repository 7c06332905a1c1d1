# SPDX-License-Identifier: Apache-2.0
"""Random work with git in a plan. Alone: after the commit the repository is as if the work had been done in
it, which a twin tells; after the rollback it is as before. With somebody else at work in the repository
meanwhile: the commit is there whole or not at all, and no commit of anybody is lost.

    git-rounds.py             root's rounds and an ordinary user's (without root: only these)

A failing round names its seed: ATOLL_GIT_SEED=N repeats that round alone. ATOLL_LONG=1 runs many more.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

LONG = os.environ.get('ATOLL_LONG') == '1'
ALONE, TOGETHER = (300, 150) if LONG else (10, 8)
NOBODY = 65534
ATOLL = os.environ.get('ATOLL', '')
ONLY = os.environ.get('ATOLL_GIT_SEED')
GIT = shutil.which('git')
OK, CONFLICT, REFUSED, BUSY = 0, 3, 4, 5


class Broken(Exception):
    pass


def environment(base):
    settings = {k: v for k, v in os.environ.items() if not k.startswith('GIT_')}
    settings.update(ATOLL_HOME=f'{base}/home', XDG_CONFIG_HOME=f'{base}/config', HOME=str(base),
                    GIT_AUTHOR_NAME='A', GIT_AUTHOR_EMAIL='a@example.org', GIT_COMMITTER_NAME='C',
                    GIT_COMMITTER_EMAIL='c@example.org', GIT_AUTHOR_DATE='1700000000 +0000',
                    GIT_COMMITTER_DATE='1700000000 +0000', GIT_CONFIG_NOSYSTEM='1')
    return settings


class Work:
    """A script of random commands, any of which may fail: it goes on, inside as outside."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.n = 0

    def name(self):
        return self.r.choice(['a', 'b', 'dir/c', 'dir/d', 'new/e', "'f f'", 'dir2/g'])

    def branch(self):
        return self.r.choice(['main', 'one', 'two', 'topic/x', 'topic/y'])

    def step(self):
        self.n += 1
        name, other = self.name(), self.name()
        steps = [
            f'mkdir -p dir dir2 new; echo {self.n} >> {name}',
            f'mkdir -p dir dir2 new; printf "%s\\n" {self.n} 2 3 > {name}; git add -A',
            f'git rm -q -f {name}', f'mkdir -p new dir dir2; git mv -k {name} {other}', f'rm -f {name}',
            f'git add {name}', f'git commit -q -m c{self.n}', f'git commit -q -a -m a{self.n}',
            f'git commit -q -a --amend -m m{self.n}', f'git branch {self.branch()}',
            f'git checkout -q {self.branch()}', f'git checkout -q -b n{self.n}',
            f'git branch -D -q {self.branch()}', f'git tag t{self.n}', f'git tag -a -m x x{self.n}',
            f'git merge -q -m g{self.n} {self.branch()} || git merge --abort || git reset -q --merge',
            f'git rebase -q {self.branch()} || git rebase --abort', 'git stash -q', 'git stash pop -q || git reset -q --hard',
            f'git reset -q {self.r.choice(["--soft", "--mixed", "--hard"])} HEAD~1', 'git checkout -q --detach',
            'git pack-refs --all', f'git branch -m r{self.n}', f'chmod +x {name}', f'git checkout -q -- {name}',
            f'git cherry-pick {self.branch()} || git cherry-pick --abort || git reset -q --merge',
        ]
        return self.r.choice(steps)

    def script(self, steps):
        return '\n'.join(f'({self.step()}) >/dev/null 2>&1' for _ in range(steps)) + '\ntrue\n'


class World:
    def __init__(self):
        self.base = Path(tempfile.mkdtemp(prefix='atoll-git-rounds.', dir='/var/tmp'))
        self.repo = self.base / 'repo'
        self.env = environment(self.base)
        self.git(self.base, 'init', '-q', '-b', 'main', str(self.repo))
        self.script(self.repo, 'mkdir dir; for f in a b dir/c dir/d; do seq 30 > $f; done; git add .; '
                               'git commit -q -m first; git branch one; git branch two; git tag v0')

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for folder, folders, _ in os.walk(self.base):
            for name in folders:
                if not os.path.islink(os.path.join(folder, name)):
                    os.chmod(os.path.join(folder, name), 0o700)
        shutil.rmtree(self.base)

    def script(self, where, text):
        subprocess.run(['sh', '-c', text], cwd=where, env=self.env, check=True, stdin=subprocess.DEVNULL)

    def git(self, where, *args, check=True):
        done = subprocess.run([GIT, '-C', str(where), *args], env=self.env, text=True, check=False,
                              errors='replace', stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if check and done.returncode != 0:
            raise Broken(f'git {" ".join(args)}: {done.stderr.strip()}')
        return done.stdout

    def atoll(self, *args, allowed=(OK,)):
        done = subprocess.run([ATOLL, *map(str, args)], env=self.env, text=True, errors='replace', check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode not in allowed:
            raise Broken(f'atoll {args[0]}: exit {done.returncode}: {done.stdout.strip()}')
        return done.returncode, done.stdout

    def look(self, repo):
        """All that a person can see."""
        tree = {str(path.relative_to(repo)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
                for path in repo.rglob('*') if '.git' not in path.parts}
        return {'refs': self.git(repo, 'for-each-ref', '--format=%(refname) %(objectname)'),
                'head': (repo / '.git/HEAD').read_text(), 'index': self.git(repo, 'ls-files', '-s'),
                'status': self.git(repo, 'status', '--porcelain=v2'),
                'stash': self.git(repo, 'stash', 'list', '--format=%H %gs'), 'tree': tree}

    def sound(self):
        bad = self.git(self.repo, 'fsck', '--no-dangling')
        left = [path for pattern in ('*.lock', '*.keep') for path in (self.repo / '.git').rglob(pattern)]
        if bad.strip() or left:
            raise Broken(f'fsck: {bad.strip()}, left: {left}')


def compare(what, wanted, found):
    for key in wanted:
        if wanted[key] != found[key]:
            raise Broken(f'{what}: {key} is {found[key]!r}, not {wanted[key]!r}')


def alone(seed):
    work = Work(seed)
    with World() as world:
        world.script(world.repo, work.script(6))  # some history, and things not committed
        twin = world.base / 'twin'
        shutil.copytree(world.repo, twin, symlinks=True)
        old = world.look(world.repo)
        world.atoll('start', 'p', '--git', world.repo)
        for _ in range(2):
            script = work.script(8)
            world.atoll('exec', 'p', '--', 'sh', '-c', f'cd {world.repo}\n{script}')
            world.script(twin, script)
            compare('before the commit', world.look(world.repo), world.look(world.repo))
            world.atoll('commit', 'p')
            compare('after the commit', world.look(twin), world.look(world.repo))
            world.sound()
        world.atoll('rollback', 'p')
        now = world.look(world.repo)
        # Entries that were dropped come back on top of the stash.
        old['stash'], now['stash'] = sorted(old['stash'].split('\n')), sorted(now['stash'].split('\n'))
        old['refs'], now['refs'] = (['' if 'refs/stash' in line else line for line in text.split('\n')]
                                    for text in (old['refs'], now['refs']))
        compare('after the rollback', old, now)
        world.sound()


class Somebody(threading.Thread):
    """Commits, stages and writes in the repository until told to stop."""

    def __init__(self, world, seed):
        super().__init__()
        self.world, self.r, self.ended = world, random.Random(seed), threading.Event()
        self.commits = []

    def run(self):
        n = 0
        while not self.ended.is_set():
            n += 1
            name = self.r.choice(['theirs', 'dir/theirs', 'b'])
            with open(self.world.repo / name, 'a', encoding='utf-8') as file:
                file.write(f'theirs {n}\n')
            if self.r.random() < 0.5:
                # As a person would: a command that meets the other's lock is tried again, or not.
                self.world.git(self.world.repo, 'commit', '-q', '-m', f'theirs {n}', '--', name, check=False)
                if self.r.random() < 0.3:
                    self.world.git(self.world.repo, 'branch', f'theirs{n}', check=False)


def together(seed):
    work = random.Random(seed)
    with World() as world:
        world.script(world.repo, 'touch theirs dir/theirs; git add .; git commit -qm more')
        world.atoll('start', 'p', '--git', world.repo)
        world.atoll('exec', 'p', '--', 'sh', '-c', f'cd {world.repo}; sed -i "s/^3$/ours/" a; git commit -qam ours; '
                    f'echo new > ours; git add ours; git commit -qm ours2; git branch ours; git tag ours-tag'
                    + ('; echo x >> b' if work.random() < 0.3 else ''))
        ours = world.atoll('exec', 'p', '--', 'git', '-C', world.repo, 'rev-parse', 'main')[1].split()[0]
        somebody = Somebody(world, seed)
        somebody.start()
        try:
            threading.Event().wait(work.random() * 0.2)
            codes = [world.atoll('commit', 'p', allowed=(OK, CONFLICT, REFUSED, BUSY))[0]]
            while codes[-1] != OK and len(codes) < 3:
                codes.append(world.atoll('commit', 'p', allowed=(OK, CONFLICT, REFUSED, BUSY))[0])
        finally:
            somebody.ended.set()
            somebody.join()
        world.sound()
        check_together(world, ours, codes[-1])


def reachable(world, *refs):
    return set(world.git(world.repo, 'rev-list', *refs).split())


def check_together(world, ours, code):
    logged = set(world.git(world.repo, 'reflog', 'show', '--format=%H %gs', 'main').splitlines())
    theirs = {line.split()[0] for line in logged if 'commit: theirs' in line}
    there = ours in reachable(world, 'main')
    refs = world.git(world.repo, 'for-each-ref', '--format=%(refname)').split()
    if theirs - reachable(world, 'main'):
        raise Broken('a commit of somebody else is lost')
    if code == OK and not (there and 'refs/heads/ours' in refs and 'refs/tags/ours-tag' in refs and
                           (world.repo / 'ours').exists()):
        raise Broken('committed, and not there')
    if code != OK and (there or 'refs/heads/ours' in refs or 'refs/tags/ours-tag' in refs or
                       (world.repo / 'ours').exists()):
        raise Broken('not committed, and there')
    if code == OK and world.git(world.repo, 'diff', '--name-only', 'HEAD', '--', 'a', 'ours').strip():
        raise Broken('files or index are not what was committed: '
                     + world.git(world.repo, 'status', '--porcelain'))
    code, said = world.atoll('rollback', 'p', allowed=(OK, CONFLICT))
    if theirs - reachable(world, 'main'):
        raise Broken(f'a rollback lost a commit of somebody else: {said}')
    world.sound()


def run_rounds(who):
    rounds = [(alone, n) for n in range(ALONE)] + [(together, 1000 + n) for n in range(TOGETHER)]
    bad = 0
    for how, seed in rounds:
        if ONLY and int(ONLY) != seed:
            continue
        try:
            how(seed)
        except Exception as why:  # pylint: disable=broad-except
            bad += 1
            print(f'# {who}, {how.__name__}, ATOLL_GIT_SEED={seed}: {type(why).__name__}: '
                  + str(why).replace('\n', ' | ')[:3000], flush=True)
    return bad


def main():
    if len(sys.argv) > 1:
        sys.exit(1 if run_rounds(sys.argv[1]) else 0)
    users = [('root', []), ('user', ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups'])]
    if os.geteuid() != 0:
        users = [('user', [])]
    print(f'1..{len(users)}')
    running = [(who, subprocess.Popen([*wrap, sys.executable, __file__, who], text=True, stdout=subprocess.PIPE))
               for who, wrap in users]
    failed = False
    for number, (who, child) in enumerate(running, 1):
        said, _ = child.communicate()
        failed = failed or child.returncode != 0
        print(f'{"ok" if child.returncode == 0 else "not ok"} {number} - git rounds of {who}\n{said}', end='')
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()

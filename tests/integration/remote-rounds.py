# SPDX-License-Identifier: Apache-2.0
"""Random edits here, then a random command: run remotely and run plainly they give the same tree, the same
`git status`, the same output and the same exit status. 24 times, and with ATOLL_LONG=1 504; a failing round names
its seed: ATOLL_DIFF_SEED=N repeats that one alone."""

import json
import os
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from atolld import main  # noqa: E402
from expect import same  # noqa: E402
from remoted import GIT_ENV, LONG, World, look  # noqa: E402

ROUNDS = 84 if LONG else 4  # of each kind
STEPS = 3                  # of each round
NAMES = [b'a', b'b', b'c.txt', b'dd', b'e e', b'new\nline', b'-rf', b'*', b'caf\xc3\xa9', b'\xff\xfe', b'z', b'.hidden',
         b'Makefile', b'tab\t', b"it's"]


def may_write(path):
    """Is it, or could it be, a file of which the owner may write? The same for root, who may write to all."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return True
    return stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IWUSR


class Edits:
    """The same in every tree that is the same: what is decided depends on the seed and the names there."""

    def __init__(self, seed, root):
        self.r, self.root = random.Random(seed), os.fsencode(root)

    def paths(self, want):
        found = []
        for folder, dirs, files in os.walk(self.root):
            if b'.git' in dirs:
                dirs.remove(b'.git')
            dirs.sort()
            found += [os.path.join(folder, n) for n in sorted(dirs if want == 'dir' else files)]
        return found

    def some(self, want):
        found = self.paths(want)
        return self.r.choice(found) if found else None

    def new(self):
        folder = self.r.choice([self.root, *self.paths('dir')])
        return os.path.join(folder, self.r.choice(NAMES))

    def bytes(self):
        return self.r.randbytes(self.r.choice([0, 1, 10, 1000, 70000])) if self.r.random() < .3 else \
            b''.join(b'%d\n' % self.r.randrange(100) for _ in range(self.r.randrange(30)))

    def write(self):
        path = self.new()
        if may_write(path):
            with open(path, 'wb') as f:
                f.write(self.bytes())

    def append(self):
        path = self.some('file')
        if path and may_write(path):
            with open(path, 'ab') as f:
                f.write(b'more\n')

    def delete(self):
        path = self.some('file')
        if path:
            os.unlink(path)

    def mkdir(self):
        path = self.new()
        if not os.path.lexists(path):
            os.mkdir(path)

    def rmtree(self):
        path = self.some('dir')
        if path:
            shutil.rmtree(path)

    def rename(self):
        path, to = self.some(self.r.choice(['file', 'dir'])), self.new()
        if path and not os.path.lexists(to) and not to.startswith(path + b'/'):
            subprocess.run(['mv', '-T', '--', path, to], check=True)

    def chmod(self):
        path = self.some('file')
        if path and not os.path.islink(path):
            os.chmod(path, self.r.choice([0o644, 0o755, 0o600, 0o444]))

    def link(self):
        path = self.new()
        if not os.path.lexists(path):
            os.symlink(self.r.choice([b'a', b'nowhere', b'../x', b'/etc/hostname', b'caf\xc3\xa9']), path)

    def one(self):
        self.r.choice([self.write] * 4 + [self.append] * 2 + [self.delete, self.mkdir, self.rmtree, self.rename,
                                                            self.chmod, self.link])()


GIT_STEPS = ['git add -A', 'git add -A; git commit -qm x', 'git stash -q', 'git stash pop -q', 'git reset -q',
             'git checkout -q -b b$(git rev-parse --short HEAD)', 'git checkout -q main', 'git reset -q --hard',
             'git rm -rq --cached .', 'git commit -qam y', 'git clean -fdq', 'git tag -f t', 'git merge -q main']


def edit(seed, root, steps):
    e = Edits(seed, root)
    for _ in range(steps):
        e.one()


def state(root, git, env):
    found = look(root, leave_out=[b'.git'])
    if not git:
        return found, b''
    words = ['git', 'status', '--porcelain=v2', '--branch', '--untracked-files=all', '--ignored']
    said = [subprocess.run(w, cwd=root, env=env, capture_output=True, check=False).stdout
            for w in (words, ['git', 'for-each-ref'], ['git', 'stash', 'list'], ['git', 'diff', '--cached', '--raw'])]
    return found, said


def one_round(w, seed, git):
    env = dict(w.env, **GIT_ENV)
    r = random.Random(seed)
    p, here = w.project(f'p{seed}', git=git), w.project(f'h{seed}', git=git)
    if git:
        for one in (p, here):
            one.write('.gitignore', '*.ignored\n')
            one.git('add', '-A')
            one.git('commit', '-qm', 'first')
    for step in range(STEPS):
        n = seed * 100 + step
        before = r.choice(GIT_STEPS) if git and r.random() < .5 else 'true'
        after = r.choice(GIT_STEPS) if git and r.random() < .7 else 'true'
        code = r.choice([0, 0, 1, 77])
        command = [sys.executable, os.path.abspath(__file__), 'edit', str(n + 50), after, str(code)]
        for one in (p, here):
            edit(n, one.root, 6)
            subprocess.run(['sh', '-c', before], cwd=one.root, env=env, capture_output=True, check=False)
        plain = subprocess.run(command, cwd=here.root, env=env, capture_output=True, check=False)
        remote = p.exec(*command)
        text = f'seed {seed}, step {step}, {before!r}, {after!r}: {remote.stderr}'
        same((remote.returncode, remote.stdout), (plain.returncode, plain.stdout), text)
        got, want = state(p.root, git, env), state(here.root, git, env)
        same(got, want, text)
    # One for each branch that it was on.
    for session in json.loads(w.must('--remote', 'big', 'list', '--json'))['sessions']:
        w.must('--remote', 'big', 'stop', '--yes', '--force', '--session', session['id'], cwd=p.root)


def rounds(top, git):
    only = os.environ.get('ATOLL_DIFF_SEED')
    with World(top) as w:
        for seed in ([int(only)] if only else range(1, ROUNDS + 1)):
            one_round(w, seed, git)


def rounds_of_directories(top):
    rounds(top, False)


def rounds_of_repositories(top):
    rounds(top, True)


if __name__ == '__main__':
    if sys.argv[1:2] == ['edit']:
        edit(int(sys.argv[2]), '.', 5)
        subprocess.run(['sh', '-c', sys.argv[3]], capture_output=True, check=False)
        print(sorted(os.listdir(b'.')))
        sys.exit(int(sys.argv[4]))
    main([rounds_of_directories, rounds_of_repositories])

# SPDX-License-Identifier: Apache-2.0
"""Random sequences of commands, commits of parts, edits by somebody else and rollbacks, against a
model of two trees: the resource and the view. After each step both are what the model says.

    batches.py             root's rounds and an ordinary user's (without root: only these)
    batches.py edit SEED   the edits, in the current directory
    batches.py dump        what the current directory holds, as JSON

A failing round names its seed: ATOLL_BATCH_SEED=N repeats that round alone, saying each step.
ATOLL_LONG=1 runs many more.
"""

import base64
import fnmatch
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LONG = os.environ.get('ATOLL_LONG') == '1'
ROUNDS = 600 if LONG else 20
STEPS = 14
WORKERS = 2
NOBODY = 65534
ATOLL = os.environ.get('ATOLL', '')
ONLY = os.environ.get('ATOLL_BATCH_SEED')
NAMES = ['a', 'b', 'c.o', 'd', 'e e', 'f.o', '*', 'new\nline']


class Broken(Exception):
    pass


# ---- trees ----

def dump(top):
    """Every entry below TOP: what a commit carries over. Of directories no times: see times()."""
    tree = {}
    top = os.fsencode(top)
    for folder, names, files in os.walk(top):
        for name in names + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            entry = [stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode)]
            if stat.S_ISREG(st.st_mode):
                with open(path, 'rb') as file:
                    entry += [base64.b64encode(file.read()).decode(), st.st_mtime_ns]
            elif stat.S_ISLNK(st.st_mode):
                entry = [stat.S_IFLNK, 0, base64.b64encode(os.readlink(path)).decode(), st.st_mtime_ns]
            tree[os.fsdecode(os.path.relpath(path, top))] = entry
    return tree


def is_dir(entry):
    return entry is not None and entry[0] == stat.S_IFDIR


def below(path, top):
    return top in ('', path) or path.startswith(top + '/')


def parents(path):
    while '/' in path:
        path = path.rsplit('/', 1)[0]
        yield path


# ---- edits ----

class Editor:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def all(self, want=None):
        found = []
        for folder, names, files in os.walk('.'):
            names.sort()
            for name in sorted(names + files):
                path = os.path.normpath(os.path.join(folder, name))
                if want is None or want(os.lstat(path).st_mode):
                    found.append(path)
        return sorted(found)

    def pick(self, want=None):
        found = self.all(want)
        return self.r.choice(found) if found else None

    def stamp(self, path):
        when = self.r.randrange(10**9, 1_500_000_000) * 10**9 + self.r.randrange(10**9)
        os.utime(path, ns=(when, when), follow_symlinks=False)

    def put(self, path):
        with open(path, 'wb') as file:
            file.write(self.r.randbytes(self.r.choice([0, 3, 30, 5000])))
        os.chmod(path, self.r.choice([0o644, 0o600, 0o755]))
        self.stamp(path)

    def fresh(self):
        folder = self.r.choice(['.'] + self.all(stat.S_ISDIR))
        path = os.path.normpath(os.path.join(folder, self.r.choice(NAMES)))
        return None if os.path.lexists(path) else path

    @staticmethod
    def remove(path):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)

    def op_new(self):
        path = self.fresh()
        if path:
            self.put(path)

    def op_write(self):
        path = self.pick(stat.S_ISREG)
        if path:
            self.put(path)

    def op_mkdir(self):
        path = self.fresh()
        if path:
            os.mkdir(path)
            for name in self.r.sample(NAMES, self.r.randrange(4)):
                self.put(os.path.join(path, name))

    def op_delete(self):
        path = self.pick()
        if path:
            self.remove(path)

    def op_replace(self):
        """A directory in the place of something, or something in the place of a directory."""
        path = self.pick()
        if not path:
            return
        self.remove(path)
        if self.r.random() < .6:
            os.mkdir(path)
            self.put(os.path.join(path, self.r.choice(NAMES)))
        else:
            self.put(path)

    def op_link(self):
        path = self.fresh()
        if path:
            os.symlink(self.r.choice(NAMES), path)

    def op_chmod(self):
        path = self.pick(lambda m: not stat.S_ISLNK(m))
        if path:
            full = 0o755 if os.path.isdir(path) else 0o644
            os.chmod(path, self.r.choice([full, 0o700, full | 0o050]))

    def op_rename(self):
        path, to = self.pick(), self.fresh()
        if path and to and not below(to, path):
            try:
                os.rename(path, to)
            except OSError:
                if os.path.isdir(path):
                    shutil.copytree(path, to, symlinks=True)
                    self.remove(path)

    def go(self, n):
        ops = [getattr(self, name) for name in sorted(dir(self)) if name.startswith('op_')]
        for _ in range(n):
            self.r.choice(ops)()


# ---- the world ----

class World:
    def __init__(self, who, top, strategy):
        self.user = who == 'user' and os.geteuid() == 0
        self.top = Path(top)
        self.root = self.top / 'r'
        self.strategy = strategy
        self.env = dict(os.environ, ATOLL_HOME=str(self.top / 'home'))

    def run(self, *words, cwd=None):
        become = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups'] if self.user else []
        done = subprocess.run(become + list(words), cwd=cwd or self.top, env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if ONLY:
            print('#', ' '.join(map(repr, words)), '->', done.returncode, done.stderr.decode().replace('\n', ' | '))
        return done

    def atoll(self, *words, codes=(0,)):
        done = self.run(ATOLL, *words)
        if done.returncode not in codes:
            raise Broken(f'{words}: exit {done.returncode}: {done.stderr.decode()}')
        return done

    def inside(self, *words):
        done = self.atoll('exec', 'p', '--', 'sh', '-c', 'cd r && exec "$@"', 'sh',
                          sys.executable, __file__, *words)
        return done.stdout

    def outside(self, *words):
        done = self.run(sys.executable, __file__, *words, cwd=self.root)
        if done.returncode:
            raise Broken(f'{words}: {done.stderr.decode()}')


class Model:
    """What should be: RES the resource, VIEW what commands see, ORIG the resource without commits."""

    def __init__(self, world):
        self.world = world
        self.res = dump(world.root)
        self.view = dict(self.res)
        self.orig = dict(self.res)

    def changed(self):
        return sorted(p for p in set(self.res) | set(self.view) if self.res.get(p) != self.view.get(p))

    @staticmethod
    def differ(what, want, got):
        for path in sorted(set(want) | set(got)):
            if want.get(path) != got.get(path):
                raise Broken(f'{what}: {path!r} is {got.get(path)}, not {want.get(path)}')

    def check(self):
        self.differ('resource', self.res, dump(self.world.root))
        listed = json.loads(self.world.atoll('diff', 'p', '--json').stdout)
        if listed['conflicts']:
            raise Broken(f'conflicts out of nothing: {listed}')
        paths = sorted(c['path'] for c in listed['changes'])
        # A new directory in the place of another may list entries that are equal.
        if paths != self.changed():
            raise Broken(f'diff lists {paths}, not {self.changed()}')

    def check_view(self):
        self.differ('view', self.view, json.loads(self.world.inside('dump')))


class Round:
    def __init__(self, world, seed):
        self.world, self.seed = world, seed
        self.r = random.Random(seed)
        self.n = 0

    def edit_seed(self):
        self.n += 1
        return str(self.seed * 1000 + self.n)

    def start(self):
        self.world.root.mkdir()
        if self.world.user:
            os.chown(self.world.root, NOBODY, NOBODY)
        self.world.outside('edit', self.edit_seed(), '20')
        self.world.atoll('start', 'p', '--dir', 'r', '--strategy', self.world.strategy)
        self.m = Model(self.world)

    def step_exec(self):
        self.m.check_view()
        self.world.inside('edit', self.edit_seed(), str(self.r.randrange(1, 6)))
        self.m.view = json.loads(self.world.inside('dump'))

    def some_paths(self):
        found = self.m.changed() or sorted(self.m.view)
        chosen = self.r.sample(found, min(len(found), self.r.randrange(1, 4)))
        return [p if self.r.random() < .8 else next(parents(p), p) for p in chosen]

    def step_part(self):
        paths = self.some_paths()
        globs = ['*.o'] if self.r.random() < .3 else []
        if not paths:
            return
        words = [str(self.world.root / p) for p in paths]
        done = self.world.atoll('commit', 'p', *words, *[w for g in globs for w in ('--exclude', g)],
                                codes=(0, 4))
        if done.returncode == 0:
            self.commit(lambda p: any(below(p, top) for top in paths) and not any(
                fnmatch.fnmatchcase(part, g) for g in globs for part in p.split('/')))

    def step_all(self):
        self.world.atoll('commit', 'p')
        self.commit(lambda p: True)

    def commit(self, selected):
        res, view = dict(self.m.res), self.m.view
        for path in set(res) | set(view):
            if not selected(path):
                continue
            if path not in view:
                res.pop(path, None)
                continue
            res[path] = view[path]
            for up in parents(path):
                if not is_dir(self.m.res.get(up)):
                    res[up] = view[up]
        self.m.res = res

    def step_rollback(self):
        self.world.atoll('rollback', 'p')
        self.m.res = dict(self.m.orig)
        self.m.view = dict(self.m.orig)

    def step_keep(self):
        """The originals come back; commands see what they saw before."""
        self.world.atoll('rollback', 'p', '--keep-work')
        self.m.res = dict(self.m.orig)

    def step_reset(self):
        self.world.atoll('reset', 'p')
        self.m.view = dict(self.m.res)

    def go(self):
        self.start()
        steps = {'exec': 5, 'part': 5, 'all': 1, 'rollback': 1, 'reset': 1, 'keep': 2}
        for _ in range(STEPS):
            name = self.r.choices(list(steps), list(steps.values()))[0]
            if ONLY:
                print(f'# ---- {name}', flush=True)
            getattr(self, 'step_' + name)()
            self.m.check()
        self.m.check_view()
        self.step_rollback()
        self.m.check()
        self.world.atoll('stop', 'p')


# ---- all rounds ----

def attempt(who, strategy, seed):
    """None, or what broke."""
    with tempfile.TemporaryDirectory(prefix='atoll-batch-', dir=os.environ.get('ATOLL_TEST_DIR', '/var/tmp'),
                                     ignore_cleanup_errors=True) as top:
        world = World(who, top, strategy)
        os.chmod(top, 0o755)
        if world.user:
            os.chown(top, NOBODY, NOBODY)
        try:
            Round(world, seed).go()
            return None
        except Broken as broken:
            return f'{strategy} {who} ATOLL_BATCH_SEED={seed}: {broken}'
        except Exception as failure:  # a round that cannot run has failed too
            return f'{strategy} {who} ATOLL_BATCH_SEED={seed}: {failure!r}'


def main():
    if len(sys.argv) > 1:
        if sys.argv[1] == 'dump':
            json.dump(dump('.'), sys.stdout)
        else:
            Editor(int(sys.argv[2])).go(int(sys.argv[3]))
        return 0
    whos = ['root', 'user'] if os.geteuid() == 0 else ['user']
    tests = [(who, strategy) for who in whos for strategy in ('overlay', 'copy')]
    print(f'1..{len(tests)}', flush=True)
    bad = 0
    for number, (who, strategy) in enumerate(tests, 1):
        first = 1 if who == 'root' else 100_000
        seeds = [int(ONLY)] if ONLY else range(first, first + ROUNDS // len(tests))
        with ThreadPoolExecutor(WORKERS) as pool:
            broken = [b for b in pool.map(lambda s: attempt(who, strategy, s), seeds) if b]
        bad += bool(broken)
        print(f'{"not ok" if broken else "ok"} {number} - atm_11_batches_over_{strategy}_as_{who} ({len(seeds)} seeds)')
        for text in broken[:8]:
            print(re.sub('^', '# ', text, flags=re.M), flush=True)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""The same random edits made in a plain copy, in a `copy` sandbox and in an `overlay` sandbox give
the same tree, the same list of changes, and after a rollback what was there before.

    differential.py            root's rounds and an ordinary user's (without root: only these)
    differential.py edit SEED  the edits, in the current directory

A failing round names its seed: ATOLL_DIFF_SEED=N repeats that round alone. ATOLL_LONG=1 runs 1000.
"""

import ctypes
import hashlib
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LONG = os.environ.get('ATOLL_LONG') == '1'
ROUNDS = 1000 if LONG else 48
RACES = 200 if LONG else 12
WORKERS = 2
NOBODY = 65534
LIBC = ctypes.CDLL(None, use_errno=True)
ATOLL = os.environ.get('ATOLL', '')
THEIRS, BOTH = b'theirs', b'both'  # for the rounds with a second writer
NAMES = [b'a', b'b', b'c.txt', b'dd', b'e e', b'new\nline', b'-rf', b'*', b'caf\xc3\xa9', b'\xff\xfe',
         b'L' * 255, b'z', b'Makefile', b'.hidden', b'x,y:z\\w', b'tab\t', b'"q"', b"it's"]


# ---- the edits ----

class Editor:
    """Random changes below the current directory. What is decided depends on the seed and on what
    is seen there, in byte order; so two views that differ drift apart, and that shows."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.began = time.time_ns() - 5 * 10**9

    @staticmethod
    def shared(path):
        """May have several names. What is written through one shows through the others in a plain
        tree and not in an overlay (DER-21 has its own test), so such files are only replaced; and
        they are known by their names, since a view cannot count links as a plain tree does."""
        return os.path.basename(path).startswith(b'H')

    def entries(self, want=None):
        found = []

        def visit(folder):
            for name in sorted(os.listdir(folder or b'.')):
                path = os.path.join(folder, name)
                if path in (THEIRS, BOTH):
                    continue
                st = os.lstat(path)
                if want is None or want(st.st_mode):
                    found.append((path, st))
                if stat.S_ISDIR(st.st_mode):
                    visit(path)
        visit(b'')
        return found

    def pick(self, want):
        found = self.entries(want)
        return self.r.choice(found)[0] if found else None

    def when(self):
        return self.r.randrange(10**9, 1_600_000_000) * 10**9 + self.r.randrange(10**9)

    def data(self):
        return self.r.randbytes(self.r.choice([0, 1, 10, 100, 5000, 20000]))

    def folder(self):
        found = [b''] + [p for p, _ in self.entries(stat.S_ISDIR)]
        return self.r.choice(found)

    def fresh(self, folder=None):
        folder = self.folder() if folder is None else folder
        for _ in range(20):
            path = os.path.join(folder, self.r.choice(NAMES) if self.r.random() < .5
                                else b'n%d' % self.r.randrange(10**6))
            if not os.path.lexists(path):
                return path
        return None

    def opened(self, path):
        """Lets us write in the directory of PATH, as its owner may; gives the way back."""
        folder = os.path.dirname(path) or b'.'
        mode = stat.S_IMODE(os.lstat(folder).st_mode)
        if mode & 0o200:
            return lambda: None
        os.chmod(folder, mode | 0o200)
        return lambda: os.chmod(folder, mode) if os.path.isdir(folder) else None

    def remove(self, path):
        if os.path.isdir(path) and not os.path.islink(path):
            for folder, _, _ in os.walk(path):
                os.chmod(folder, stat.S_IMODE(os.lstat(folder).st_mode) | 0o700)
            shutil.rmtree(path)
        else:
            os.unlink(path)

    def stamp(self, path, st=None):
        """A time that is the same wherever this runs; sometimes the old one, to hide an edit."""
        when = st.st_mtime_ns if st and self.r.random() < .2 else self.when()
        os.utime(path, ns=(when, when), follow_symlinks=False)

    def put(self, path, data=None, mode=None):
        with open(path, 'wb') as file:
            file.write(self.data() if data is None else data)
        os.chmod(path, self.r.choice([0o644, 0o600, 0o755, 0o444]) if mode is None else mode)
        self.stamp(path)

    def write(self, path, how):
        """In place, through whatever mode the file has."""
        st = os.lstat(path)
        mode = stat.S_IMODE(st.st_mode)
        # Writing takes set-id bits off, unless root does it; in a view root is not that much root.
        if self.shared(path) or mode & 0o6000:
            return self.rewrite(path)
        if not mode & 0o200:
            os.chmod(path, mode | 0o200)
        how(path)
        if not mode & 0o200:
            os.chmod(path, mode)
        self.stamp(path, st)
        return None

    # each operation: a method op_*, tried on whatever is there

    def op_overwrite(self):
        path = self.pick(stat.S_ISREG)

        def how(p):
            size = os.lstat(p).st_size
            with open(p, 'r+b') as file:
                file.seek(self.r.randrange(size + 1))
                file.write(self.r.randbytes(self.r.randrange(1, 50)))
        if path:
            self.write(path, how)

    def op_append(self):
        path = self.pick(stat.S_ISREG)

        def how(p):
            with open(p, 'ab') as file:
                file.write(b'more ' * self.r.randrange(1, 2000))
        if path:
            self.write(path, how)

    def op_truncate(self):
        path = self.pick(stat.S_ISREG)
        if path:
            self.write(path, lambda p: os.truncate(p, self.r.choice([0, 1, 4096, 70000])))

    def op_touch_back(self):
        """Rewritten with what it holds: no change but perhaps its time."""
        path = self.pick(stat.S_ISREG)

        def how(p):
            with open(p, 'rb') as file:
                data = file.read()
            with open(p, 'r+b') as file:
                file.write(data)
        if path:
            self.write(path, how)

    def rewrite(self, path):
        back = self.opened(path)
        beside = os.path.join(os.path.dirname(path), b'.sed%d' % self.r.randrange(10**9))
        self.put(beside, mode=stat.S_IMODE(os.lstat(path).st_mode))
        os.rename(beside, path)
        back()

    def op_rewrite(self):
        path = self.pick(stat.S_ISREG)
        if path:
            self.rewrite(path)

    def make(self, path, kind):
        back = self.opened(path)
        if kind == 'file':
            self.put(path)
        elif kind == 'sparse':
            with open(path, 'wb') as file:
                file.truncate(self.r.randrange(1, 40) * 50_000)
                file.seek(self.r.randrange(100_000))
                file.write(b'island')
            self.stamp(path)
        elif kind == 'link':
            os.symlink(self.r.choice([b'nowhere', b'.', b'..', b'a', b'/etc/passwd', b'c.txt',
                                      b'../' * 9 + b'x', self.folder() or b'.']), path)
            self.stamp(path)
        elif kind == 'fifo':
            os.mkfifo(path, 0o640)
            self.stamp(path)
        else:
            os.mkdir(path)
            for name in self.r.sample(NAMES, self.r.choice([0, 0, 1, 3])):
                self.put(os.path.join(path, name))
            if self.r.random() < .3:
                os.mkdir(os.path.join(path, b'sub'))
                self.put(os.path.join(path, b'sub/file'))
            os.chmod(path, self.r.choice([0o755, 0o700, 0o500, 0o2755]))
        back()

    def op_create(self):
        path = self.fresh()
        if path:
            self.make(path, self.r.choice(['file', 'file', 'file', 'sparse', 'link', 'dir', 'dir',
                                           'fifo']))

    def op_delete(self):
        path = self.pick(lambda m: not stat.S_ISDIR(m))
        if path:
            back = self.opened(path)
            self.remove(path)
            back()

    def op_remove_tree(self):
        path = self.pick(stat.S_ISDIR)
        if path:
            back = self.opened(path)
            self.remove(path)
            back()

    def op_delete_and_create(self):
        path = self.pick(stat.S_ISREG)
        if path:
            back = self.opened(path)
            self.remove(path)
            self.put(path)
            back()

    def op_replace_dir(self):
        """rm -r d; mkdir d: names of before may be there again."""
        path = self.pick(stat.S_ISDIR)
        if not path:
            return
        names = sorted(os.listdir(path))
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        back = self.opened(path)
        self.remove(path)
        os.mkdir(path)
        for name in names:
            if self.r.random() < .4:
                self.make(os.path.join(path, name), self.r.choice(['file', 'dir', 'link']))
        if self.r.random() < .5:
            os.chmod(path, mode)
        back()

    def op_change_type(self):
        path = self.pick(lambda m: stat.S_ISREG(m) or stat.S_ISDIR(m) or stat.S_ISLNK(m))
        if not path:
            return
        kinds = {stat.S_IFREG: ['dir', 'link'], stat.S_IFDIR: ['file', 'link'],
                 stat.S_IFLNK: ['file', 'dir']}
        kind = self.r.choice(kinds[stat.S_IFMT(os.lstat(path).st_mode)])
        back = self.opened(path)
        self.remove(path)
        back()
        self.make(path, kind)

    def op_rename(self):
        source = self.pick(lambda m: True)
        target = self.fresh()
        if not source or not target or (target + b'/').startswith(source + b'/') or self.shared(source):
            return
        # A directory that may not be written to cannot be moved by its owner.
        if os.path.isdir(source) and not os.path.islink(source) and not os.lstat(source).st_mode & 0o200:
            return
        back_source, back_target = self.opened(source), self.opened(target)
        os.rename(source, target)
        back_target()
        back_source()

    def op_exchange_dirs(self):
        a, b = self.pick(stat.S_ISDIR), self.pick(stat.S_ISDIR)
        if not a or not b or (a + b'/').startswith(b + b'/') or (b + b'/').startswith(a + b'/') or \
                not os.lstat(a).st_mode & os.lstat(b).st_mode & 0o200:
            return
        back_a, back_b = self.opened(a), self.opened(b)
        if LIBC.renameat2(-100, a, -100, b, 2) < 0:  # RENAME_EXCHANGE
            raise OSError(ctypes.get_errno(), 'exchange')
        back_b()
        back_a()

    def op_rename_over(self):
        source, target = self.pick(stat.S_ISREG), self.pick(stat.S_ISREG)
        if not source or source == target or self.shared(source) or self.shared(target):
            return
        back_source, back_target = self.opened(source), self.opened(target)
        os.rename(source, target)
        back_target()
        back_source()

    def op_hard_link(self):
        found = [p for p, _ in self.entries(stat.S_ISREG) if self.shared(p)]
        target = os.path.join(self.folder(), b'H%d' % self.r.randrange(10**6))
        if os.path.lexists(target):
            return
        back = self.opened(target)
        if found and self.r.random() < .7:
            os.link(self.r.choice(found), target)
        else:
            self.put(target)
        back()

    def op_point_link(self):
        path = self.pick(stat.S_ISLNK)
        if path:
            back = self.opened(path)
            os.unlink(path)
            self.make(path, 'link')
            back()

    def op_chmod(self):
        path = self.pick(lambda m: not stat.S_ISLNK(m))
        if path and not self.shared(path):
            is_dir = os.path.isdir(path)
            os.chmod(path, self.r.choice([0o755, 0o700, 0o500, 0o1777] if is_dir else
                                         [0o644, 0o600, 0o444, 0o755, 0o4755, 0o400]))

    def op_utime(self):
        path = self.pick(lambda m: not stat.S_ISDIR(m))
        if path and not self.shared(path):
            self.stamp(path)

    def op_xattr(self):
        path = self.pick(lambda m: stat.S_ISREG(m) or stat.S_ISDIR(m))
        if not path or self.shared(path):
            return
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        os.chmod(path, mode | 0o200)
        names = [n for n in os.listxattr(path) if n.startswith('user.')]
        if names and self.r.random() < .5:
            os.removexattr(path, self.r.choice(sorted(names)))
        else:
            os.setxattr(path, self.r.choice(['user.one', 'user.two', 'user.comment']), self.data()[:900])
        os.chmod(path, mode)

    def op_chown(self):
        path = self.pick(lambda m: True)
        if os.geteuid() == 0 and path and not self.shared(path):
            os.chown(path, self.r.choice([0, 1000, 1234]), self.r.choice([0, 1000]),
                     follow_symlinks=False)

    def op_deep(self):
        path = self.fresh()
        if path:
            back = self.opened(path)
            os.makedirs(os.path.join(path, *[b'deep%d' % i for i in range(25)]))
            self.put(os.path.join(path, *[b'deep%d' % i for i in range(25)], b'bottom'))
            back()

    def settle(self):
        """Whatever still has the time of this run gets one of its own. Directories last of all."""
        for path, st in [(b'.', os.lstat(b'.'))] + self.entries():
            if st.st_mtime_ns < self.began:
                continue
            digest = hashlib.sha256(path).digest()
            when = 1_300_000_000 * 10**9 + int.from_bytes(digest[:7], 'big') % 10**17
            os.utime(path, ns=(when, when), follow_symlinks=False)

    def run(self, count):
        operations = sorted(name for name in dir(self) if name.startswith('op_'))
        for _ in range(count):
            getattr(self, self.r.choice(operations))()
        self.settle()


def edit(seed):
    os.umask(0o022)
    editor = Editor(seed)
    editor.run(editor.r.choice([1, 3, 8, 20, 40]))


# ---- trees ----

def grow(seed):
    """A start, in the current directory: made by the same operations, with more of what they
    rarely meet."""
    os.umask(0o022)
    e = Editor(seed)
    for _ in range(e.r.choice([0, 5, 25, 60])):
        path = e.fresh()
        if path:
            e.make(path, e.r.choice(['file', 'file', 'sparse', 'dir', 'dir', 'link', 'fifo']))
    for _ in range(e.r.choice([0, 1, 3])):
        for operation in (e.op_xattr, e.op_hard_link, e.op_hard_link, e.op_chmod, e.op_deep, e.op_chown):
            operation()
    e.settle()


def describe(path, st):
    what = [stat.S_IFMT(st.st_mode), oct(stat.S_IMODE(st.st_mode)), st.st_uid, st.st_gid, st.st_mtime_ns,
            st.st_rdev]
    if stat.S_ISLNK(st.st_mode):
        what.append(os.readlink(path))
    elif stat.S_ISREG(st.st_mode):
        with open(path, 'rb') as file:
            what += [st.st_size, hashlib.sha256(file.read()).hexdigest()[:16]]
    if not stat.S_ISLNK(st.st_mode):
        what.append(sorted((n, hashlib.sha256(os.getxattr(path, n, follow_symlinks=False)).hexdigest()[:8])
                           for n in os.listxattr(path, follow_symlinks=False)))
    return what


def manifest(root, inodes=False):
    root = os.fsencode(root)
    found = {}

    def visit(path, name):
        st = os.lstat(path)
        found[name] = describe(path, st) + ([st.st_ino] if inodes else [])
        if stat.S_ISDIR(st.st_mode):
            for entry in os.listdir(path):
                visit(os.path.join(path, entry), os.path.join(name, entry))
    visit(root, b'')
    return found


class Broken(Exception):
    pass


def must_equal(what, wanted, is_now):
    if wanted == is_now:
        return
    lines = [what]
    for path in sorted(set(wanted) | set(is_now)):
        if wanted.get(path) != is_now.get(path):
            lines.append(f'  {path!r}: {wanted.get(path)} / {is_now.get(path)}')
    raise Broken('\n'.join(lines[:12]))


# ---- one round ----

class World:
    def __init__(self, who, top):
        self.who, self.top = who, Path(top)
        self.as_user = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups'] \
            if who == 'user' and os.geteuid() == 0 else []

    def command(self, argv, cwd=None, codes=(0,), program='/dev/null'):
        env = dict(os.environ, ATOLL_HOME=str(self.top / 'home'), HOME=str(self.top), NO_COLOR='1')
        with open(program, 'rb') as stdin:
            done = subprocess.run(self.as_user + argv, cwd=cwd or self.top, env=env, stdin=stdin,
                                  capture_output=True, check=False)
        if done.returncode not in codes:
            raise Broken(f'{argv[:3]} ended with {done.returncode}: {done.stderr.decode(errors="replace")[-1500:]}')
        return done

    def atoll(self, *argv, **more):
        return self.command([ATOLL, *argv], **more)

    def me(self, *argv, cwd):
        return self.command([sys.executable, os.path.abspath(__file__), *argv], cwd=cwd)

    def tree(self, name, seed):
        path = self.top / name
        self.command(['mkdir', str(path)])
        self.me('grow', str(seed), cwd=path)
        return path

    def exec(self, plan, seed, cwd):
        # This program by its text: its path may be hidden there (a plan has its own /tmp).
        self.atoll('exec', plan, '--', sys.executable, '-', 'edit', str(seed), cwd=cwd,
                   program=os.path.abspath(__file__))

    def changes(self, plan):
        """Path, kind and what of every change, without what names the sandbox."""
        told = json.loads(self.atoll('diff', '--json', plan).stdout)
        rows = told['changes'] if 'changes' in told else \
            [c for s in told['sandboxes'] for c in s['changes']]
        keep = [{k: v for k, v in row.items() if k not in ('sandbox', 'root', 'strategy')} for row in rows]
        for side in (row[k] for row in keep for k in ('old', 'new') if row.get(k)):
            side.pop('links', None)  # of the entry where it lies: an upper layer holds only some names
        return {json.dumps([row.get('path'), row.get('path_base64')]): json.dumps(row, sort_keys=True)
                for row in keep}


def round_trip(world, seed):
    """Plain, copy, overlay: the same, there and back."""
    r = random.Random(seed)
    source = world.tree('src', seed)
    trees = {name: world.top / name for name in ('plain', 'copy', 'overlay')}
    for tree in trees.values():
        world.command(['cp', '-a', str(source), str(tree)])
    before = manifest(source)
    start = {name: manifest(tree, inodes=True) for name, tree in trees.items()}
    must_equal('cp -a did not copy', before, manifest(trees['overlay']))
    for name in ('copy', 'overlay'):
        world.atoll('start', name, '--dir', str(trees[name]), '--strategy', name)
    step = 0
    for _ in range(r.choice([1, 1, 2])):        # batches
        for _ in range(r.choice([1, 1, 2])):    # commands in each
            step += 1
            world.me('edit', str(seed * 10 + step), cwd=trees['plain'])
            for name in ('copy', 'overlay'):
                world.exec(name, seed * 10 + step, trees[name])
        must_equal('the diffs differ (copy / overlay)', world.changes('copy'), world.changes('overlay'))
        for name in ('copy', 'overlay'):
            world.atoll('commit', name, '--yes', '--allow', 'special', '--allow', 'setuid')
        after = manifest(trees['plain'])
        must_equal('copy is not as plain (plain / copy)', after, manifest(trees['copy']))
        must_equal('overlay is not as plain (plain / overlay)', after, manifest(trees['overlay']))
        must_equal('changes are left after a commit', {}, world.changes('overlay'))
    for name in ('copy', 'overlay'):
        world.atoll('rollback', name, '--yes')
        must_equal(f'{name}: rolled back to something else (before / now)', start[name],
                   manifest(trees[name], inodes=True))
        world.atoll('stop', name, '--yes', '--force')


# ---- with a second writer in the original ----

class Writer(threading.Thread):
    """Somebody who edits the original meanwhile, in place or by renaming, and remembers what he
    wrote last."""

    def __init__(self, root, folder, seed):
        super().__init__()
        self.root, self.folder = os.fsencode(root), folder
        self.r, self.over = random.Random(seed), threading.Event()
        self.last, self.number = {}, 0

    def write_one(self):
        self.number += 1
        name = b'f%d' % self.r.randrange(6)
        path = os.path.join(self.root, self.folder, name)
        data = b'writer %d of %s\n' % (self.number, name)
        if self.r.random() < .5:
            beside = os.path.join(self.root, THEIRS, b'.beside')
            with open(beside, 'wb') as file:
                file.write(data)
            os.rename(beside, path)
        else:
            with open(path, 'r+b') as file:
                if self.r.random() < .3:
                    time.sleep(.003)  # the file may be exchanged under an open descriptor
                file.write(data.ljust(60, b'.'))
                file.truncate()
                data = data.ljust(60, b'.')
        self.last[os.path.join(self.folder, name)] = data

    def run(self):
        while not self.over.is_set():
            self.write_one()
            time.sleep(self.r.choice([0, .001, .005, .02]))

    def end(self):
        self.over.set()
        self.join()


EDIT_BOTH = ("import os\nfor i in range(6):\n    p = 'both/f%d' % i\n"
             "    open(p + '.n', 'w').write('sandbox %d\\n' % i)\n    os.rename(p + '.n', p)\n"
             "open('both/new', 'w').write('sandbox new\\n')\n")


def holds(folder, data):
    for where, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(where, name)
            try:
                if stat.S_ISREG(os.lstat(path).st_mode):
                    with open(path, 'rb') as file:
                        if file.read() == data:
                            return True
            except FileNotFoundError:  # what is synced in the background has files of its own
                continue
    return False


def race(world, seed):
    """Somebody edits the original: all of the sandbox's changes arrive or none, and what he wrote
    last is there, or kept."""
    r = random.Random(seed)
    strategy = ['overlay', 'copy'][seed % 2]
    same = r.random() < .7
    root = world.top / 'race'
    for folder in (THEIRS, BOTH):
        os.makedirs(os.path.join(os.fsencode(root), folder))
        for i in range(6):
            with open(os.path.join(os.fsencode(root), folder, b'f%d' % i), 'wb') as file:
                file.write(b'original %d\n' % i)
    if world.as_user:
        for where, _, files in os.walk(root):
            for path in [where] + [os.path.join(where, f) for f in files]:
                os.chown(path, NOBODY, NOBODY)
    world.atoll('start', 'race', '--dir', str(root), '--strategy', strategy)
    writer = Writer(root, BOTH if same else THEIRS, seed)
    begin = r.choice(['before', 'between', 'commit'])
    if begin == 'before':
        writer.start()
    world.atoll('exec', 'race', '--', sys.executable, '-c', EDIT_BOTH, cwd=root)
    if begin == 'between':
        writer.start()
        time.sleep(.01)
    if begin == 'commit':
        threading.Timer(r.random() * .08, writer.start).start()
    done = world.atoll('commit', 'race', '--yes', codes=(0, 3))
    while not writer.ident:
        time.sleep(.01)
    writer.end()
    committed = done.returncode == 0
    if not same and not committed:
        raise Broken(f'{strategy}: a conflict over other paths: {done.stderr.decode()}')
    if (root / 'both/new').exists() != committed:
        raise Broken(f'{strategy}: exit {done.returncode}, but the new file is not as that says')
    areas = [p for p in (world.top / 'home', world.top) if p.exists()]
    for i in range(6):
        path = os.path.join(BOTH, b'f%d' % i)
        with open(os.path.join(os.fsencode(root), path), 'rb') as file:
            now = file.read()
        theirs, ours = writer.last.get(path), b'sandbox %d\n' % i
        if committed and now != ours and now != theirs:
            raise Broken(f'{strategy}: {path!r} holds {now!r}')
        # Whoever opened the new file in the instant before the commit was taken back wrote to that.
        kept = theirs and any(holds(a, theirs) for a in areas)
        if not committed and now != (theirs or b'original %d\n' % i) and \
                not (kept and now == b'original %d\n' % i):
            raise Broken(f'{strategy}: exit 3, but {path!r} holds {now!r}, not {theirs!r}')
        if theirs and now != theirs and not kept:
            raise Broken(f'{strategy}: {theirs!r} is lost')
    for path, data in writer.last.items():
        if path.startswith(THEIRS):
            with open(os.path.join(os.fsencode(root), path), 'rb') as file:
                if file.read() != data:
                    raise Broken(f'{strategy}: {path!r} of the other writer was changed')
    world.atoll('stop', 'race', '--yes', '--force', codes=(0, 1, 3))


# ---- all rounds ----

def leftovers(top):
    with open('/proc/self/mountinfo', encoding='utf-8', errors='surrogateescape') as file:
        return [line.split()[4] for line in file if str(top) in line.split()[4]]


def attempt(kind, who, seed):
    """None, or what broke."""
    with tempfile.TemporaryDirectory(prefix='atoll-diff-', dir=os.environ.get('ATOLL_TEST_DIR', '/var/tmp'),
                                     ignore_cleanup_errors=True) as top:
        world = World(who, top)
        os.chmod(top, 0o755)
        if world.as_user:
            os.chown(top, NOBODY, NOBODY)
        try:
            (round_trip if kind == 'round' else race)(world, seed)
            left = leftovers(top)
            return f'left mounted: {left}' if left else None
        except Broken as broken:
            return f'{kind} {who} ATOLL_DIFF_SEED={seed}: {broken}'
        except Exception as failure:  # a round that cannot run has failed too
            where = ' '.join(f'{f.name}:{f.lineno}' for f in traceback.extract_tb(failure.__traceback__))
            return f'{kind} {who} ATOLL_DIFF_SEED={seed}: {failure} ({where})'
        finally:
            subprocess.run(['chmod', '-R', 'u+rwX', top], check=False, stderr=subprocess.DEVNULL)


def main():
    if len(sys.argv) == 3:
        {'edit': edit, 'grow': grow}[sys.argv[1]](int(sys.argv[2]))
        return 0
    whos = ['root', 'user'] if os.geteuid() == 0 else ['user']
    only = os.environ.get('ATOLL_DIFF_SEED')
    tests = [(kind, who) for kind in ('round', 'race') for who in whos]
    print(f'1..{len(tests)}', flush=True)
    bad = 0
    for number, (kind, who) in enumerate(tests, 1):
        count = (ROUNDS if kind == 'round' else RACES) // len(whos)
        first = 1 if who == 'root' else 100_000
        seeds = [int(only)] if only else range(first, first + count)
        with ThreadPoolExecutor(WORKERS) as pool:
            broken = [b for b in pool.map(lambda s: attempt(kind, who, s), seeds) if b]
        bad += bool(broken)
        print(f'{"not ok" if broken else "ok"} {number} - dif_06_{kind}_as_{who} ({len(seeds)} seeds)')
        for text in broken[:8]:
            print(re.sub('^', '# ', text, flags=re.M), flush=True)
        if len(broken) > 8:
            print(f'# and {len(broken) - 8} more', flush=True)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())

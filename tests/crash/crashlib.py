# SPDX-License-Identifier: Apache-2.0
"""What the crash tests share: rich trees and edits of them, complete comparison, a world in which
`scenario` runs and dies, and what must hold after recovery."""

import ast
import hashlib
import os
import re
import shlex
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / 'tools'))
from tap import find, read, run, strip_c, Skip  # noqa: E402,F401

SCENARIO = os.environ.get('CRASH_SCENARIO', '')
KILL_AT = os.environ.get('CRASH_KILL_AT', '')
LONG = os.environ.get('ATOLL_LONG') == '1'
NOBODY = 65534
WORKERS = 3
KILLED = 77  # kill-at's exit status
STRATEGIES = {'v': 'value', 'o': 'overlay'}  # by the first letter of a resource's name
OLD_VALUE, NEW_VALUE = (1000000001, 2, b'old\n'), (1000000002, 2, b'new\n')


class Broken(Exception):
    """What was demanded does not hold; the text says what."""


def become(who):
    """Runs the rest as WHO: 'root', or 'user', an ordinary one."""
    if who == 'root' and os.geteuid() != 0:
        print('1..0 # SKIP needs root')
        sys.exit(0)
    if who == 'user' and os.geteuid() == 0:
        os.execvp('setpriv', ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}',
                              '--clear-groups', sys.executable, *sys.argv])


def points_in_source():
    """Names of every crash point, from the source."""
    names = set()
    for path in find('src/**/*.c'):
        names |= set(re.findall(r'\bcrashpoint\("([^"]+)"\)', strip_c(read(path), True)))
    return names


# ---- trees ----

def put(path, data, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)


def set_times(root):
    """Distinct times everywhere, set from the leaves up: a time that was not kept shows."""
    number = 0
    for folder, dirs, files in os.walk(os.fsencode(root), topdown=False):
        for name in sorted(files) + sorted(dirs):
            number += 1
            when = (1_200_000_000 + number) * 10**9 + number * 1013
            os.utime(os.path.join(folder, name), ns=(when, when), follow_symlinks=False)
    os.utime(root, ns=(1_199_999_999_123_456_789,) * 2)


def make_tree(root, tag):
    put(root / 'a.txt', b'a of ' + tag * 20)
    put(root / 'ro.txt', b'read-only ' + tag, 0o444)
    put(root / 'run.sh', b'#!/bin/sh\n', 0o755)
    (root / 'empty').mkdir()
    put(root / 'd/e/f/g/deep.txt', b'deep ' + tag)
    put(root / 'd/h1', b'linked ' + tag)
    os.link(root / 'd/h1', root / 'd/h2')
    os.link(root / 'd/h1', root / 'd/e/h3')
    (root / 'link').symlink_to('a.txt')
    (root / 'dangling').symlink_to('nowhere')
    put(root / 'xa', b'x ' + tag)
    os.setxattr(root / 'xa', 'user.test', b'old ' + tag)
    (root / 'xadir').mkdir(0o750)
    put(root / 'xadir/in', b'in ' + tag, 0o600)
    os.setxattr(root / 'xadir', 'user.dir', b'old')
    put(root / 'swapfile', b'will be a directory')
    put(root / 'swapdir/one', b'1')
    put(root / 'swapdir/two/three', b'3')
    put(root / 'gone', b'will go ' + tag)
    put(root / 'gonetree/x', b'x')
    put(root / 'gonetree/y/z', b'z')
    put(root / 'from', b'moves ' + tag)
    put(root / 'fromtree/p', b'p')
    put(root / 'fromtree/q/r', b'r')
    put(root / 'stay/1', b'1 ' + tag)
    put(root / 'stay/2/3', b'3 ' + tag)
    with open(os.fsencode(root) + b'/odd\n\xff name', 'wb') as odd:
        odd.write(b'odd ' + tag)
    put(root / 'locked/in', b'locked in ' + tag)
    put(root / 'locked/out', b'locked out ' + tag, 0o400)
    set_times(root)
    (root / 'locked').chmod(0o555)


def replace(path, data, mode):
    """As editors do: a new file over the old one."""
    put(path.with_name('.swp'), data, mode)
    path.with_name('.swp').rename(path)


def edit_tree(work, tag):
    """One of everything a command can do to a tree."""
    put(work / 'a.txt', b'new a of ' + tag * 9)
    replace(work / 'ro.txt', b'still read-only ' + tag, 0o444)
    (work / 'run.sh').chmod(0o700)
    with open(work / 'd/e/f/g/deep.txt', 'ab') as deep:
        deep.write(b' and more' * 8000)
    put(work / 'd/e/f/new.txt', b'', 0o640)
    put(work / 'd/h1', b'linked, new ' + tag)
    (work / 'dangling').unlink()
    (work / 'dangling').symlink_to('elsewhere')
    os.setxattr(work / 'xa', 'user.test', b'new ' + tag)
    os.setxattr(work / 'xadir', 'user.dir', b'new')
    os.setxattr(work / 'xadir', 'user.more', b'more')
    (work / 'xadir').chmod(0o700)
    (work / 'swapfile').unlink()
    put(work / 'swapfile/inside/it', b'now a directory')
    shutil.rmtree(work / 'swapdir')
    put(work / 'swapdir', b'now a file')
    (work / 'gone').unlink()
    shutil.rmtree(work / 'gonetree')
    (work / 'from').rename(work / 'to')
    shutil.move(work / 'fromtree', work / 'd/totree')  # an overlay wants it copied
    put(work / 'newtree/1', b'1')
    put(work / 'newtree/2/3/4', b'4', 0o444)
    os.setxattr(work / 'newtree/2', 'user.t', tag)
    os.link(work / 'newtree/1', work / 'newtree/2/one')
    (work / 'newtree/void').mkdir(0o700)
    (work / 'newtree/l').symlink_to('2/3/4')
    (work / 'empty').chmod(0o711)
    (work / 'locked').chmod(0o755)
    put(work / 'locked/in', b'locked in, new ' + tag)
    (work / 'locked/out').unlink()
    put(work / 'locked/fresh', b'fresh ' + tag)
    (work / 'locked').chmod(0o555)


def edit_again(work, tag):
    """A second batch, over what the first made and what it left."""
    put(work / 'a.txt', b'newest a of ' + tag)
    put(work / 'stay/1', b'changed at last ' + tag)
    (work / 'newtree/l').unlink()
    put(work / 'newtree/2/3/5', b'5')
    shutil.rmtree(work / 'd/totree')
    put(work / 'gone', b'back again')
    (work / 'to').rename(work / 'from')


def describe(path, status, inodes):
    what = [stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), status.st_uid,
            status.st_gid, status.st_mtime_ns]
    if stat.S_ISLNK(status.st_mode):
        what.append(os.readlink(path))
    elif stat.S_ISREG(status.st_mode):
        with open(path, 'rb') as file:
            what += [status.st_size, hashlib.sha256(file.read()).hexdigest()]
    if not stat.S_ISLNK(status.st_mode):
        what.append(sorted((name, os.getxattr(path, name, follow_symlinks=False))
                           for name in os.listxattr(path, follow_symlinks=False)))
    if inodes:
        what.append(status.st_ino)
    return tuple(map(repr, what))


def manifest(root, inodes=False):
    """Everything a reader can see of a tree: path, type, mode, owner, mtime (directories too),
    size, content, link, extended attributes, which names are one file; on demand inode numbers."""
    root = os.fsencode(root)
    found, names_of = {}, {}

    def visit(path, name):
        status = os.lstat(path)
        found[name] = describe(path, status, inodes)
        if stat.S_ISDIR(status.st_mode):
            for entry in os.listdir(path):
                visit(os.path.join(path, entry), os.path.join(name, entry))
        elif status.st_nlink > 1:
            names_of.setdefault(status.st_ino, []).append(name)
    visit(root, b'')
    for names in names_of.values():
        for name in names:
            found[name] += (repr(sorted(names)),)
    return found


def differences(wanted, is_now):
    for name in sorted(wanted.keys() | is_now.keys()):
        if wanted.get(name) != is_now.get(name):
            yield f'{name!r}: want {wanted.get(name)}, is {is_now.get(name)}'


def ctimes(root):
    return {name: os.lstat(name).st_ctime_ns
            for folder, dirs, files in os.walk(os.fsencode(root))
            for name in [folder] + [os.path.join(folder, n) for n in files]}


# ---- a world ----

def traced():
    """Environment under ptrace, which the search for leaks uses itself."""
    return {'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'}


class World:
    """Resources and a store. RESOURCES: names; 'v' is one of the test's own strategy, those with
    an 'o' are overlays, worked on by commands."""

    def __init__(self, resources, where=None):
        self.base = Path(tempfile.mkdtemp(prefix='atoll-crash.', dir=where))
        self.resources = resources
        self.works = {}
        self.log = self.base / 'points'
        self.log.touch()
        for name in resources:
            (self.base / name).mkdir()
            if name == 'v':
                put(self.base / name / 'value', OLD_VALUE[2])
                os.utime(self.base / name / 'value', ns=(OLD_VALUE[0] * 10**9 + 2,) * 2)
                os.utime(self.base / name, ns=(1000000003 * 10**9 + 3,) * 2)
            else:
                make_tree(self.base / name, name.encode())
        self.old = self.look()
        self.new = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if os.geteuid() != 0:
            for folder, _, _ in os.walk(self.base):
                os.chmod(folder, 0o700)
        shutil.rmtree(self.base)

    def look(self):
        """The originals must be the very inodes; what the test's own strategy wrote need not."""
        return {name: manifest(self.base / name, inodes=name != 'v') for name in self.resources}

    def command(self, verbs):
        return [SCENARIO, str(self.base), *verbs]

    def run(self, *verbs, env=(), wrap=(), timeout=120):
        """Exit status (negative: signal) and output of a scenario process."""
        settings = {k: v for k, v in os.environ.items() if not k.startswith('SCENARIO_')}
        settings.update(env)
        if wrap:
            settings.update(traced())
        done = subprocess.run([*wrap, *self.command(verbs)], env=settings, timeout=timeout,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors='replace')
        return done.returncode, done.stdout

    def must(self, *verbs, env=(), status=0):
        got, output = self.run(*verbs, env=env)
        if got != status:
            raise Broken(f'{" ".join(verbs)}: exit {got}, want {status}: {output.strip()}')
        return output

    def points(self, *verbs, env=()):
        """Crash points passed by an undisturbed run, in order."""
        self.log.write_text('')
        self.run(*verbs, env={**dict(env), 'ATOLL_CRASHPOINT_LOG': str(self.log)})
        return self.log.read_text().split()

    def kill(self, point, *verbs, env=()):
        got, output = self.run(*verbs, env={**dict(env), 'ATOLL_CRASHPOINT': point})
        if got != -signal.SIGKILL:
            raise Broken(f'{" ".join(verbs)} did not die at {point}: exit {got}: {output.strip()}')

    def open_plan(self):
        adds = [f'add={name}:{STRATEGIES.get(name[0], "copy")}' for name in self.resources]
        self.find_works(self.must('start', *adds, 'path'))

    def find_works(self, output):
        for line in output.splitlines():
            if line.startswith('path '):
                _, root, work = line.split(' ')
                self.works[Path(root).name] = Path(work)

    def edit(self, how=edit_tree):
        """Works in every view, and takes the views for what a commit must make of the originals."""
        self.new = {}
        for name in self.resources:
            if name == 'v':
                self.new[name] = self.value_after()
            elif name[0] == 'o':
                self.new[name] = self.edit_by_command(how, name)
            else:
                how(self.works[name], name.encode())
                self.new[name] = manifest(self.works[name])

    def edit_by_command(self, how, name):
        """For what only commands can see: the same edit, and the same look at the view."""
        command = shlex.join([sys.executable, __file__, how.__name__, str(self.base / name), name])
        output = self.must(f'exec={command}')
        return ast.literal_eval(output[output.index('{'):output.rindex('}') + 1])

    def value_after(self):
        found = dict(self.old['v'])
        entry = list(found[b'value'])
        entry[4] = repr(NEW_VALUE[0] * 10**9 + 2)
        entry[6] = repr(hashlib.sha256(NEW_VALUE[2]).hexdigest())
        found[b'value'] = tuple(entry)
        return found

    def state(self):
        """'old' or 'new', for all resources together; anything else is what may never be."""
        plain = {name: manifest(self.base / name) for name in self.resources}
        if self.look() == self.old:
            return 'old'
        if plain == self.new:
            return 'new'
        bare = {name: {path: entry for path, entry in tree.items()}
                for name, tree in plain.items()}
        lines = []
        for name in self.resources:
            from_old = list(differences(self.old[name], self.look()[name]))
            from_new = list(differences((self.new or {}).get(name, {}), bare[name]))
            lines.append(f'{name}: {len(from_old)} entries are not old, {len(from_new)} not new; '
                         f'{from_old[:3]} {from_new[:3]}')
        raise Broken('neither old nor new: ' + ' | '.join(lines))

    def expect(self, *states):
        now = self.state()
        if now not in states:
            raise Broken(f'{now} where {" or ".join(states)} is due')
        return now

    def dump(self):
        """The registry, byte by byte as text; read from a copy."""
        with tempfile.TemporaryDirectory() as copy:
            for suffix in ('', '-wal'):
                path = self.base / 'store' / f'atoll.db{suffix}'
                if path.exists():
                    shutil.copy(path, f'{copy}/db{suffix}')
            database = sqlite3.connect(f'{copy}/db')
            try:
                return list(database.iterdump())
            finally:
                database.close()

    def recover_twice(self, *verbs):
        """VERBS, in a new process, find and settle what was left; recovering again does nothing."""
        self.must(*(verbs or ('recover=all',)))
        first = self.dump(), self.look()
        self.must('recover=all')
        second = self.dump(), self.look()
        if first[0] != second[0]:
            changed = set(second[0]) ^ set(first[0])
            raise Broken(f'a second recovery changed the registry: {sorted(changed)}')
        if first[1] != second[1]:
            raise Broken('a second recovery changed a resource')

    def stop_and_count(self):
        """After the plan's end nothing of it is left but its history."""
        before = self.look()
        self.must('stop=force')
        if self.look() != before:
            raise Broken('stop changed a resource')
        store = self.base / 'store'
        left = [str(path.relative_to(self.base)) for path in self.base.rglob('*')
                if path.name.startswith('.atoll-') or
                (store in path.parents and path.parent != store and 'locks' not in path.parts)]
        left = [name for name in left if not name.startswith('store/durable')]
        if left:
            raise Broken(f'left after stop: {left[:5]}')


if __name__ == '__main__':  # as a command in a plan: crashlib.py EDIT ROOT TAG
    {'edit_tree': edit_tree, 'edit_again': edit_again}[sys.argv[1]](
        Path(sys.argv[2]), sys.argv[3].encode())
    print(manifest(sys.argv[2]))

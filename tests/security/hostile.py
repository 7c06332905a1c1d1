#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Workspaces that somebody made to do harm, or keeps changing while we look: nothing outside is read,
written or removed, no command of ours hangs, and its memory does not follow what is there. As root and as
an ordinary user, with `copy` and with `overlay`. Prints TAP.

usage: hostile.py [root|user]
"""

import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

ATOLL = os.environ.get('ATOLL', '')
LONG = os.environ.get('ATOLL_LONG') == '1'
SANITIZED = any(name in Path(ATOLL).read_bytes() for name in (b'__asan_init', b'__tsan_init'))
IS_ROOT = os.geteuid() == 0
STRATEGIES = ('copy', 'overlay')
PATIENCE = 3600 if LONG else 120 if SANITIZED else 40   # seconds for a command of ours
MEMORY = 256 << 20                            # bytes that one may take
SWAPPED = 500 if LONG else 10                 # commits while links are swapped
MANY = 1000000 if LONG else 2000 if SANITIZED else 20000
LITTLE = (256 if LONG else 16) << 20          # bytes that one may take for each of MANY
LONG_NAME = 'a-name-as-long-as-those-that-build-systems-and-caches-of-all-kinds-tend-to-make-'
SECRET = b'what only the outside holds'
LOOKS = ([], ['--stat'], ['--patch'], ['--digest'], ['--json'])


class Broken(Exception):
    pass


class World:
    """A resource, something outside of it, and a store."""

    def __init__(self, base):
        self.base, self.root, self.outside = base, base / 'r', base / 'outside'
        self.env = {**os.environ, 'ATOLL_HOME': str(base / 'home'), 'NO_COLOR': '1'}
        self.memory, self.patience, self.code = MEMORY, PATIENCE, 0
        for folder in (self.root, self.outside, self.outside / 'd'):
            folder.mkdir()
        (self.root / 'plain').write_bytes(b'old')
        (self.outside / 'secret').write_bytes(SECRET)
        (self.outside / 'd/secret').write_bytes(SECRET)

    def atoll(self, *args, status=(0,)):
        """Runs a command; a signal, a hang or another exit status is the failure."""
        def limit():
            if not SANITIZED:
                resource.setrlimit(resource.RLIMIT_DATA, (self.memory, self.memory))
            if self.memory < MEMORY:  # each thread has a stack, and there is one for each processor
                os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        with subprocess.Popen([ATOLL, *args], env=self.env, cwd=self.base, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=limit,
                              start_new_session=True) as p:
            try:
                said = p.communicate(timeout=self.patience)[0]
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                p.communicate()
                raise Broken(f'atoll {args[0]} hung') from None
        self.code = p.returncode
        if p.returncode not in status:
            raise Broken(f'atoll {" ".join(args)}: {p.returncode}: {said[-500:]!r}')
        if SECRET in said:
            raise Broken(f'atoll {args[0]} read what is outside')
        return said

    def start(self, strategy):
        self.atoll('start', 'p', '--dir', str(self.root), '--strategy', strategy)

    def workspace(self):
        return Path(next(line for line in self.atoll('path', 'p').decode().splitlines() if line[0] == '/'))

    def work(self, script):
        self.atoll('exec', 'p', '--cwd', str(self.root), '--', 'sh', '-ec', script)

    def look(self, status=(0,)):
        for options in LOOKS:
            self.atoll('diff', *options, 'p', status=status)

    def stop(self):
        self.atoll('stop', '--force', 'p')

    def check_outside(self):
        for path in ('secret', 'd/secret'):
            if (self.outside / path).read_bytes() != SECRET:
                raise Broken(f'outside/{path} was changed')
        if sorted(os.listdir(self.outside)) != ['d', 'secret']:
            raise Broken('something came to be outside')
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = Path(folder, name)
                if stat.S_ISREG(path.lstat().st_mode) and path.stat().st_size < 4096 and \
                        SECRET in path.read_bytes():
                    raise Broken(f'{path} holds what is outside')


@contextmanager
def world():
    base = Path(tempfile.mkdtemp(prefix='atoll-hostile.', dir='/var/tmp'))
    try:
        yield World(base)
    finally:
        subprocess.run(['chmod', '-R', 'u+rwX', str(base)], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(['rm', '-rf', str(base)], check=False)


def each_strategy(scenario):
    """SCENARIO(world, strategy) for both."""
    bad = []
    for strategy in STRATEGIES:
        try:
            with world() as w:
                scenario(w, strategy)
                w.check_outside()
        except Broken as why:
            bad.append(f'{strategy}: {why}')
    return bad


# ---- links that are swapped ----

def plain_dir(path):
    """Makes PATH one, and no link, which a turn that was cut off may have left or got back."""
    if path.is_symlink():
        path.unlink()
    path.mkdir(exist_ok=True)


class Swapper(threading.Thread):
    """Makes NAME in FOLDER a directory and a link to OUTSIDE by turns, and files come and go in it."""

    def __init__(self, folder, outside):
        super().__init__(daemon=True)
        self.folder, self.outside, self.over = Path(folder), outside, threading.Event()
        self.turns = 0

    def turn(self):
        target, aside = self.folder / 'flip', self.folder / 'aside'
        plain_dir(target)
        plain_dir(aside)
        shutil.rmtree(aside)
        os.rename(target, aside)
        inside = os.open(aside, os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.symlink(self.outside, target)
            os.unlink(target)
            os.rename(aside, target)
            file = os.open(f'f{self.turns % 7}', os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, dir_fd=inside)
            os.write(file, b'new %d' % self.turns)
            os.close(file)
        finally:
            os.close(inside)
        self.turns += 1

    def run(self):
        while not self.over.is_set():
            try:
                self.turn()
            except OSError:
                pass  # it was taken away, or is not there yet

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def content(root):
    return {path.relative_to(root): path.read_bytes() if path.is_file() else None for path in root.rglob('*')}


def test_hostile_links_swapped_while_we_commit():
    """What is not committed changed nothing; if that is in doubt, then only until it is recovered. And a plan whose
    workspace nobody swaps any more goes on."""
    bad = []
    try:
        with world() as w:
            (w.root / 'flip').mkdir()
            for n in range(100):
                (w.root / f'flip/k{n}').write_bytes(b'old')
            w.start('copy')
            for turn in range(SWAPPED):
                work = w.workspace()
                plain_dir(work / 'flip')
                for n in range(100):
                    (work / f'flip/k{n}').write_bytes(b'work %d' % turn)
                before = content(w.root)
                with Swapper(work, w.outside):
                    w.atoll('commit', '--yes', 'p', status=(0, 1, 3, 4, 5, 6, 7))
                code = w.code
                w.atoll('recover')
                if code != 0 and content(w.root) != before:
                    raise Broken(f'a commit that ended with {code} changed something')
                w.check_outside()
            w.atoll('commit', '--yes', 'p')
            w.stop()
    except Broken as why:
        bad.append(str(why))
    return bad


def test_hostile_links_swapped_while_we_walk():
    """In the workspace while it is compared, committed, reset and removed; in the resource while it is
    copied."""
    bad = []
    any_answer = (0, 1, 3, 4, 5, 6, 7)
    try:
        with world() as w:
            (w.root / 'flip/d').mkdir(parents=True)
            w.start('copy')
            work = w.workspace()
            with Swapper(work, w.outside) as swapper:
                for _ in range(3):
                    w.look(any_answer)
                    w.atoll('commit', '--yes', 'p', status=any_answer)
                w.atoll('reset', 'p', status=any_answer)
                w.atoll('stop', '--force', 'p', status=any_answer)
            w.check_outside()
            if swapper.turns < 10:
                raise Broken('nothing was swapped')
        with world() as w:
            (w.root / 'flip/d').mkdir(parents=True)
            with Swapper(w.root, w.outside):
                for _ in range(5):
                    w.atoll('start', 'p', '--dir', str(w.root), '--strategy', 'copy', status=any_answer)
                    w.atoll('stop', '--force', 'p', status=any_answer)
            w.check_outside()
    except Broken as why:
        bad.append(str(why))
    return bad


def test_hostile_files_that_change_while_we_look():
    """Written, cut short, replaced and removed under a diff: it ends, and says what it saw or what not."""
    def change(folder, over):
        n = 0
        while not over.is_set():
            path = folder / f'c{n % 5}'
            try:
                if n % 3 == 0:
                    path.write_bytes(b'line\n' * (n % 5000))
                elif n % 3 == 1:
                    os.truncate(path, n % 17)
                else:
                    path.unlink()
                    os.mkfifo(path)
                    path.unlink()
            except OSError:
                pass
            n += 1
    try:
        with world() as w:
            w.start('copy')
            over = threading.Event()
            folder = w.workspace()
            thread = threading.Thread(target=change, args=(folder, over), daemon=True)
            thread.start()
            try:
                for _ in range(4):
                    w.look((0, 1, 4))
            finally:
                over.set()
                thread.join()
            w.stop()
            w.check_outside()
    except Broken as why:
        return [str(why)]
    return []


# ---- what an overlay could be told ----

def test_hostile_overlay_marks_mean_nothing():
    """Marks that a command sets itself lead nowhere, hide nothing, and do not come out."""
    marks = ' '.join(f'setfattr -n user.overlay.{name} -v {value} {target} 2>/dev/null || true;'
                     for target in ('d', 'd/f', 'fresh') for name, value in
                     (('redirect', '/../../outside'), ('opaque', 'y'), ('metacopy', 'x'), ('origin', 'x')))

    def scenario(w, strategy):
        (w.root / 'd').mkdir()
        (w.root / 'd/f').write_bytes(b'old')
        (w.root / 'd/stays').write_bytes(b'stays')
        w.start(strategy)
        w.work(f'mkdir fresh; echo new >d/f; {marks} mknod d/gone c 0 0 2>/dev/null || true')
        w.look()
        w.atoll('commit', '--yes', '--allow', 'special', 'p')
        if (w.root / 'd/f').read_bytes() != b'new\n' or (w.root / 'd/stays').read_bytes() != b'stays':
            raise Broken('a mark changed what was committed')
        left = [f'{path}: {name}' for path in (w.root / 'd', w.root / 'd/f', w.root / 'fresh')
                for name in os.listxattr(path, follow_symlinks=False) if strategy == 'overlay' and
                name.startswith(('trusted.overlay', 'user.overlay'))]
        if left:
            raise Broken(f'marks came out: {left}')
        w.stop()
    return each_strategy(scenario)


# ---- sizes and kinds ----

def make_huge(path):
    """A file as large as the filesystem lets one be, of almost nothing."""
    with open(path, 'wb') as file:
        for size in (1 << 50, 15 << 40, 1 << 40):
            try:
                os.truncate(file.fileno(), size)
            except OSError:
                continue
            return size
    raise Broken('no large file can be made')


def test_hostile_special_files_and_sizes():
    """A petabyte of nothing, changed in its middle; FIFOs that nobody writes to, sockets, set-id bits."""
    def scenario(w, strategy):
        size = make_huge(w.root / 'huge')
        listener = socket.socket(socket.AF_UNIX)
        here = os.getcwd()
        os.chdir(w.root)
        listener.bind('listening')
        os.chdir(here)
        os.mkfifo(w.root / 'fifo')
        w.start(strategy)
        w.work(f'touch fifo; printf x | dd of=huge bs=1 seek={size // 2} conv=notrunc status=none;'
               f'truncate -s {size // 2} new; printf x | dd of=new bs=1 seek={size // 4} conv=notrunc status=none;'
               'mkfifo other; chmod 6755 plain; ln -s ../../../outside out')
        w.look()
        w.atoll('commit', '--yes', '--allow', 'special', 'p')
        if (w.root / 'plain').stat().st_mode & 0o6000:
            raise Broken('set-id bits came out')
        if (w.root / 'huge').stat().st_size != size or (w.root / 'huge').stat().st_blocks > 1000:
            raise Broken('a hole was filled')
        w.atoll('rollback', '--yes', 'p')
        w.stop()
        listener.close()
    return each_strategy(scenario)


def many_names(n):
    """A command that prints them."""
    return f"seq -f '{LONG_NAME}%.0f' {n}"


def fill(folder, n):
    folder.mkdir()
    for i in range(1, n + 1):
        (folder / f'{LONG_NAME}{i}').touch()


def look_at_many(w):
    for options in ([], ['--stat'], ['--json']):
        w.atoll('diff', *options, 'p')


def count(folder):
    return len(os.listdir(folder)) if folder.exists() else 0


def test_hostile_directory_of_many_entries():
    """They come to a directory that is there; then one of them is changed, and is all that is told."""
    def scenario(w, strategy):
        w.memory = LITTLE
        (w.root / 'many').mkdir()
        w.start(strategy)
        w.work(f'cd many; {many_names(MANY)} | xargs touch')
        look_at_many(w)
        w.atoll('commit', '--yes', 'p')
        if count(w.root / 'many') != MANY:
            raise Broken('not all arrived')
        w.work(f'echo changed >many/{LONG_NAME}7')
        look_at_many(w)
        w.atoll('commit', '--yes', 'p')
        if (w.root / 'many' / f'{LONG_NAME}7').read_text() != 'changed\n':
            raise Broken('a change among many was lost')
        w.atoll('rollback', '--yes', 'p')
        w.stop()
        if count(w.root / 'many'):
            raise Broken('not all went back')
    return each_strategy(scenario)


def test_hostile_many_entries_go_in_little_memory():
    """They go one by one, and with the directory they are in."""
    def scenario(w, strategy):
        w.memory = LITTLE
        half = MANY // 2
        fill(w.root / 'one-by-one', half)
        fill(w.root / 'whole', half)
        w.start(strategy)
        w.work("find one-by-one -type f -delete; rm -r whole")
        look_at_many(w)
        w.atoll('commit', '--yes', 'p')
        if count(w.root / 'one-by-one') or (w.root / 'whole').exists():
            raise Broken('not all went')
        w.atoll('rollback', '--yes', 'p')
        w.stop()
        if (count(w.root / 'one-by-one'), count(w.root / 'whole')) != (half, half):
            raise Broken('not all came back')
    return each_strategy(scenario)


def test_hostile_a_commit_with_too_little_memory_is_none():
    """Of a new directory with many entries. However little there is: it is refused with nothing changed, or
    done; never decided and then not carried out."""
    def scenario(w, strategy):
        w.start(strategy)
        w.work(f'mkdir many; cd many; {many_names(MANY)} | xargs touch')
        for w.memory in [] if SANITIZED else range(LITTLE >> 5, LITTLE, LITTLE >> 5):
            try:
                w.atoll('commit', '--yes', 'p')
            except Broken as why:
                if (w.root / 'many').exists():
                    raise Broken(f'with {w.memory} bytes it was begun: {why}') from None
                continue
            break
        w.memory = LITTLE
        w.atoll('commit', '--yes', 'p', status=(0,))
        if count(w.root / 'many') != MANY:
            raise Broken('not all arrived')
        look_at_many(w)
        w.atoll('rollback', '--yes', 'p')
        w.stop()
        if count(w.root / 'many'):
            raise Broken('not all went back')
    return each_strategy(scenario)


DIG = '''
import os
for n in range(600):
    os.mkdir("deep-name-%d" % n)
    os.chdir("deep-name-%d" % n)
open("bottom", "w").write("new")
'''


def depth_of(root):
    """How far down it goes, by descriptors."""
    fd, depth = os.open(root, os.O_RDONLY), 0
    while True:
        names = [name for name in os.listdir(fd) if name.startswith('deep')]
        if not names:
            os.close(fd)
            return depth
        below = os.open(names[0], os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd)
        os.close(fd)
        fd, depth = below, depth + 1


def test_hostile_tree_past_path_max():
    def scenario(w, strategy):
        w.start(strategy)
        w.atoll('exec', 'p', '--cwd', str(w.root), '--', sys.executable, '-c', DIG)
        w.look()
        w.atoll('commit', '--yes', 'p')
        if depth_of(w.root) != 600:
            raise Broken(f'{depth_of(w.root)} levels arrived')
        w.atoll('rollback', '--yes', 'p')
        if depth_of(w.root):
            raise Broken('it did not go back')
        w.stop()
    return each_strategy(scenario)


def test_hostile_odd_names():
    """Names that are options, patterns, control characters, no UTF-8, as long as can be."""
    names = [b'-rf', b'--', b'*', b'\n', b'\x1b[31m', b'\xff\xfe', b'a' * 255, b'.wh.plain', b'$(id)', b'"', b"'",
             b'\\', b' ', b'.git ', b'...']

    def scenario(w, strategy):
        w.start(strategy)
        script = w.base / 'odd.py'
        script.write_text(f'for n in {names!r}: open(n, "wb").write(b"odd")')
        w.atoll('exec', 'p', '--cwd', str(w.root), '--ro', str(script), '--', sys.executable, str(script))
        w.look()
        if b'\x1b[31m' in w.atoll('diff', 'p'):
            raise Broken('a control character reached the terminal')
        w.atoll('commit', '--yes', 'p')
        if not set(names) <= set(os.listdir(os.fsencode(w.root))):
            raise Broken('not all arrived')
        w.atoll('rollback', '--yes', 'p')
        w.stop()
    return each_strategy(scenario)


CHECKS = [
    test_hostile_links_swapped_while_we_walk,
    test_hostile_links_swapped_while_we_commit,
    test_hostile_files_that_change_while_we_look,
    test_hostile_overlay_marks_mean_nothing,
    test_hostile_special_files_and_sizes,
    test_hostile_directory_of_many_entries,
    test_hostile_many_entries_go_in_little_memory,
    test_hostile_a_commit_with_too_little_memory_is_none,
    test_hostile_tree_past_path_max,
    test_hostile_odd_names,
]


def main():
    if sys.argv[1:] == ['user'] and IS_ROOT:
        os.execvp('setpriv', ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--',
                              'env', 'HOME=/nonexistent', sys.executable, __file__, 'user'])
    if not shutil.which('setfattr'):
        print('1..0 # SKIP setfattr is not installed')
        return 0
    print(f'1..{len(CHECKS)}')
    failed = False
    for number, check in enumerate(CHECKS, 1):
        bad = check()
        failed = failed or bool(bad)
        print(f"{'not ok' if bad else 'ok'} {number} - {check.__name__}")
        for line in bad:
            print(f'# {line}')
        sys.stdout.flush()
    return int(failed)


if __name__ == '__main__':
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Trees from one place to another: scanned, sent and applied, with what the two sides agreed on kept in a
manifest. Real trees, edited at random; the other side is the same tree then.

    sync.py                   as whoever starts it; ATOLL_LONG=1 works for longer

A failing round names its seed: ATOLL_SYNC_SEED=N repeats it.
"""

import json
import os
import random
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from expect import Broken, need, same  # noqa: E402

SYNC = os.environ['ATOLL_SYNC']
SIDE = os.environ['ATOLL_TEST_SYNC_SIDE']
LONG = os.environ.get('ATOLL_LONG') == '1'
SEED = int(os.environ.get('ATOLL_SYNC_SEED', random.SystemRandom().randrange(1 << 30)))
ROUNDS = 300 if LONG else 15
GIT = {**os.environ, 'GIT_OPTIONAL_LOCKS': '0', 'GIT_CONFIG_GLOBAL': '/dev/null', 'GIT_CONFIG_NOSYSTEM': '1', 'GIT_AUTHOR_NAME': 'a',
       'GIT_AUTHOR_EMAIL': 'a@b', 'GIT_COMMITTER_NAME': 'a', 'GIT_COMMITTER_EMAIL': 'a@b'}


def run(*words, data=b'', code=0, **more):
    done = subprocess.run(words, input=data, capture_output=True, timeout=120, **more)
    need(done.returncode == code, f'{words[:2]} ended with {done.returncode}: {done.stderr.decode()[:500]}')
    return done


def git(root, *words):
    return run('git', *words, cwd=root, env=GIT).stdout.decode()


def below(root, skip=()):
    """Paths of everything in a tree, as bytes, parents first."""
    root = os.fsencode(root)
    found = []
    for path, dirs, files in os.walk(root):
        dirs.sort()
        here = os.path.relpath(path, root)
        for name in sorted(dirs + files):
            found.append(name if here == b'.' else here + b'/' + name)
        dirs[:] = [d for d in dirs if not os.path.islink(os.path.join(path, d))
                   and (d if here == b'.' else here + b'/' + d) not in skip]
    return sorted(found)


def picture(root, objects=True, skip=()):
    """What a tree is: type, mode, content, time of what is no directory."""
    told = {}
    for path in below(root, skip):
        full = os.path.join(os.fsencode(root), path)
        st = os.lstat(full)
        if stat.S_ISDIR(st.st_mode):
            told[path] = ('dir', stat.S_IMODE(st.st_mode))
        elif stat.S_ISLNK(st.st_mode):
            told[path] = ('link', os.readlink(full), st.st_mtime_ns)
        elif stat.S_ISREG(st.st_mode):
            if not objects and path.startswith(b'.git/objects/'):
                continue
            with open(full, 'rb') as f:
                told[path] = ('file', stat.S_IMODE(st.st_mode), st.st_mtime_ns, f.read())
    return told


def differ(a, b, **more):
    a, b = picture(a, **more), picture(b, **more)
    return [f'{path!r}: {str(a.get(path))[:90]} | {str(b.get(path))[:90]}'
            for path in sorted(a.keys() | b.keys()) if a.get(path) != b.get(path)][:10]


class Pair:
    """A tree here, its image there, and what they agreed on."""

    def __init__(self, top):
        self.dir = Path(tempfile.mkdtemp(dir=top))
        self.here, self.there, self.manifest = self.dir / 'here', self.dir / 'there', self.dir / 'manifest'
        self.here.mkdir()
        self.there.mkdir()

    def look(self):
        return json.loads(run(SIDE, 'look', self.here, self.manifest).stderr)

    def push(self, settle=True):
        if settle:
            time.sleep(0.02)  # so that nothing was changed at the time of the scan
        done = run(SIDE, 'push', self.here, self.manifest)
        run(SYNC, 'apply', self.there, data=done.stdout)
        return json.loads(done.stderr)

    def pull(self, paths):
        done = run(SYNC, 'send', self.there, data=b''.join(p + b'\0' for p in paths))
        run(SYNC, 'apply', self.here, data=done.stdout)
        return json.loads(run(SIDE, 'take', self.manifest, data=done.stdout).stderr)

    def is_same(self, what, **more):
        found = differ(self.here, self.there, **more)
        need(not found, f'{what}:\n' + '\n'.join(found))


class Editor:
    """Changes a tree at random: every kind of entry, and of change."""

    def __init__(self, root, rng, fifos=False):
        self.root, self.rng, self.fifos = os.fsencode(root), rng, fifos

    def name(self):
        kinds = (lambda: b'%d' % self.rng.randrange(12),
                 lambda: bytes(self.rng.choice(range(1, 256)) for _ in range(self.rng.randint(1, 6))),
                 lambda: self.rng.choice([b'a', b'a.b', b'a-', b'a b', b'\n', b'-', b'...', b'\xff' * 200]))
        name = self.rng.choice(kinds)().replace(b'/', b'_')
        return name if name not in (b'.', b'..', b'.git') else b'x'

    def all(self, kind=None):
        return [p for p in below(self.root) if kind is None or kind(self.full(p))]

    def full(self, path):
        return os.path.join(self.root, path)

    def dirs(self):
        return [b''] + self.all(lambda f: os.path.isdir(f) and not os.path.islink(f))

    def remove(self, full):
        if os.path.isdir(full) and not os.path.islink(full):
            shutil.rmtree(full)
        elif os.path.lexists(full):
            os.unlink(full)

    def place(self):
        """A path for something new; what was there gives way."""
        full = os.path.join(self.root, self.rng.choice(self.dirs()), self.name())
        self.remove(full)
        return full

    def content(self):
        size = self.rng.choice([0, 1, 10, 4096, 65536, 65537, self.rng.randrange(200000)])
        return self.rng.randbytes(size) if self.rng.random() < 0.5 else b'text\n' * (size // 5)

    def file(self):
        with open(self.place(), 'wb') as f:
            f.write(self.content())

    def sparse(self):
        with open(self.place(), 'wb') as f:
            f.seek(self.rng.randrange(1 << 20))
            f.write(b'x' * self.rng.randrange(9))
            f.truncate(self.rng.randrange(1 << 22))

    def directory(self):
        os.mkdir(self.place())

    def deep(self):
        full = self.place()
        os.makedirs(full + b'/d' * self.rng.randint(2, 40))

    def link(self):
        os.symlink(self.rng.choice([b'x', b'../up', b'/etc/passwd', self.rng.randbytes(9).replace(b'\0', b'0')]),
                   self.place())

    def some(self, kind=None):
        found = self.all(kind)
        return self.full(self.rng.choice(found)) if found else None

    def edit(self):
        full = self.some(lambda f: os.path.isfile(f) and not os.path.islink(f) and os.access(f, os.W_OK))
        if full:
            with open(full, 'r+b') as f:
                f.seek(self.rng.randrange(os.path.getsize(full) + 1))
                f.write(self.rng.randbytes(self.rng.randint(1, 9)))

    def mode(self):
        full = self.some(lambda f: not os.path.islink(f))
        if full:
            os.chmod(full, self.rng.choice([0o700, 0o755, 0o775] if os.path.isdir(full) else
                                           [0o600, 0o644, 0o755, 0o444, 0o4711]))

    def touch(self):
        full = self.some(lambda f: not os.path.isdir(f) or os.path.islink(f))
        if full:
            os.utime(full, ns=(1, self.rng.randrange(-10**18, 2 * 10**18)), follow_symlinks=False)

    def gone(self):
        full = self.some()
        if full:
            self.remove(full)

    def move(self):
        full, to = self.some(), self.rng.choice(self.dirs())
        to = os.path.join(self.root, to, self.name())
        if full and not (to + b'/').startswith(full + b'/') and not (full + b'/').startswith(to + b'/'):
            self.remove(to)
            os.rename(full, to)

    def fifo(self):
        """Does not travel, and so a directory that has one on the other side stays there."""
        if self.fifos:
            os.mkfifo(self.place())

    def work(self, n):
        deeds = (self.file, self.file, self.edit, self.edit, self.directory, self.deep, self.link, self.sparse, self.mode,
                 self.touch, self.gone, self.gone, self.move, self.move, self.fifo)
        for _ in range(n):
            self.rng.choice(deeds)()


def sync_random_edits_arrive(top):
    rng = random.Random(SEED)
    pair = Pair(top)
    editor = Editor(pair.here, rng, fifos=True)
    editor.work(60)
    for i in range(ROUNDS):
        pair.push(settle=rng.random() < 0.5)
        pair.is_same(f'round {i} of seed {SEED}')
        editor.work(rng.randint(1, 25))
    pair.push()
    same(pair.look()['changes'], 0, f'changes after a push, seed {SEED}')


def sync_random_edits_come_back(top):
    """What is changed there is sent by its paths, applied here, and then nothing differs."""
    rng = random.Random(SEED + 1)
    pair = Pair(top)
    Editor(pair.here, rng).work(60)
    editor = Editor(pair.there, rng)
    pair.push()
    for i in range(ROUNDS):
        before = picture(pair.there)
        editor.work(rng.randint(1, 25))
        after = picture(pair.there)
        pair.pull([p for p in before.keys() | after.keys() if before.get(p) != after.get(p)])
        pair.is_same(f'round {i} of seed {SEED + 1}')
        same(pair.look()['changes'], 0, f'changes after a pull, round {i} of seed {SEED + 1}')
        if rng.random() < 0.3:
            Editor(pair.here, rng).work(3)
            pair.push()
            pair.is_same(f'push in round {i} of seed {SEED + 1}')


def sync_list_tells_what_is_there(top):
    """Without a manifest: of a list one is made, and only what differs is sent."""
    rng = random.Random(SEED + 2)
    pair = Pair(top)
    Editor(pair.here, rng).work(80)
    pair.push()
    pair.manifest.unlink()
    Editor(pair.there, rng).work(5)
    Editor(pair.here, rng).work(5)
    run(SIDE, 'listed', pair.manifest, data=run(SYNC, 'list', pair.there).stdout)
    pair.push()
    pair.is_same(f'seed {SEED + 2}')
    run(SIDE, 'listed', pair.manifest, data=run(SYNC, 'list', pair.there).stdout)
    same(pair.look()['changes'], 0, 'changes after all')


def sync_reads_nothing_when_nothing_changed(top):
    pair = Pair(top)
    Editor(pair.here, random.Random(5)).work(80)
    pair.push()
    pair.push()  # what was changed at the time of the first has been read again
    told = pair.look()
    same((told['changes'], told['hashed']), (0, 0), 'changes and files read')
    (pair.here / 'one').write_text('new')
    told = pair.look()
    same((told['changes'], told['hashed']), (1, 0), 'changes and files read, after one')


def sync_sees_racy_edits(top):
    """The same size and the same time of change, written as quickly as can be after a scan."""
    pair = Pair(top)
    file = pair.here / 'file'
    for i in range(30):
        file.write_text(f'{i:05}')
        os.utime(file, ns=(1, 1))
        pair.push(settle=False)
        file.write_text(f'{i + 1:05}')
        os.utime(file, ns=(1, 1))
        same(pair.look()['changes'], 1, f'changes in round {i}')


def sync_sees_edits_after_the_clock_was_set_back(top):
    """Then a file may have every time that it had before."""
    pair = Pair(top)
    for name in ('edited', 'other'):
        (pair.here / name).write_text('before')
        os.utime(pair.here / name, ns=(1, 1))
    pair.push()
    (pair.here / 'edited').write_text('after!')
    os.utime(pair.here / 'edited', ns=(1, 1))
    run(SIDE, 'ahead', pair.here, pair.manifest, '3600')
    same(pair.look()['changes'], 1, 'changes')
    pair.push(settle=False)
    pair.is_same('after the clock was set back')
    time.sleep(0.02)
    pair.push()
    same(pair.look()['hashed'], 0, 'and then all is as it was')


def sync_pulled_edits_are_not_missed(top):
    """A file that came and is edited at once, with its size and time as they came."""
    pair = Pair(top)
    (pair.there / 'file').write_text('there')
    os.utime(pair.there / 'file', ns=(1, 1))
    pair.pull([b'file'])
    same((pair.here / 'file').read_text(), 'there', 'pulled')
    (pair.here / 'file').write_text('HERE!')
    os.utime(pair.here / 'file', ns=(1, 1))
    same(pair.look()['changes'], 1, 'changes')


def sync_torn_manifest_is_none(top):
    pair = Pair(top)
    Editor(pair.here, random.Random(6)).work(30)
    pair.push()
    whole = pair.manifest.read_bytes()
    rng = random.Random(SEED)
    entries = pair.look()['entries']
    cuts = [whole[:n] for n in (0, 1, 39, 40, 100, len(whole) - 1)] + [whole + b'x']
    for _ in range(20):
        at = rng.randrange(len(whole))
        cuts.append(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1:])
    for torn in cuts:
        pair.manifest.write_bytes(torn)
        same(pair.look()['changes'], entries, 'changes without a manifest')
    pair.push()
    pair.is_same('after a torn manifest')


def sync_moves_are_not_sent_again(top):
    pair = Pair(top)
    (pair.here / 'a').mkdir()
    for i in range(20):
        (pair.here / 'a' / f'{i}').write_bytes(random.Random(i).randbytes(50000))
    pair.push()
    os.rename(pair.here / 'a', pair.here / 'b')
    os.chmod(pair.here / 'b' / '3', 0o600)
    time.sleep(0.02)
    done = run(SIDE, 'push', pair.here, pair.manifest)
    need(len(done.stdout) < 5000, f'{len(done.stdout)} bytes for a renamed directory')
    run(SYNC, 'apply', pair.there, data=done.stdout)
    pair.is_same('after a rename')
    os.utime(pair.here / 'b' / '4', ns=(1, 1))
    done = run(SIDE, 'push', pair.here, pair.manifest)
    need(len(done.stdout) < 500, f'{len(done.stdout)} bytes for a time')
    run(SYNC, 'apply', pair.there, data=done.stdout)
    pair.is_same('after a touch')


def sync_large_sparse_file_takes_little(top):
    """Two GiB, most of it holes: little memory, little disk, little to send."""
    pair = Pair(top)
    with open(pair.here / 'big', 'wb') as f:
        f.truncate(2 << 30)
        f.seek(1 << 30)
        f.write(os.urandom(300000))
    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20))
    bound = {} if 'ASAN_OPTIONS' in os.environ and b'__asan' in Path(SYNC).read_bytes() else {'preexec_fn': limit}
    done = run(SIDE, 'push', pair.here, pair.manifest, **bound)
    need(len(done.stdout) < 400000, f'{len(done.stdout)} bytes were sent')
    run(SYNC, 'apply', pair.there, data=done.stdout, **bound)
    st = os.stat(pair.there / 'big')
    same(st.st_size, 2 << 30, 'size')
    need(st.st_blocks * 512 < 4 << 20, f'{st.st_blocks * 512} bytes on disk')
    run('cmp', pair.here / 'big', pair.there / 'big')


def sync_what_cannot_travel_is_named(top):
    pair = Pair(top)
    os.mkfifo(pair.here / 'fifo')
    (pair.here / 'file').write_text('x')
    same(pair.push()['skipped'], 1, 'skipped')
    same(below(pair.there), [b'file'], 'there')
    (pair.here / 'file').unlink()
    os.mkfifo(pair.here / 'file')
    pair.push()
    same(below(pair.there), [], 'there after a file became a FIFO')


def sync_locked_directories_are_no_hindrance(top):
    """For an ordinary user a directory of mode 0555 cannot be written to."""
    pair = Pair(top)
    (pair.here / 'd' / 'e').mkdir(parents=True)
    (pair.here / 'd' / 'e' / 'f').write_text('1')
    (pair.here / 'd' / 'g').write_text('1')
    for mode in (0o555, 0o500):
        os.chmod(pair.here / 'd' / 'e', mode)
        os.chmod(pair.here / 'd', mode)
        pair.push()
        pair.is_same(f'made with mode {mode:o}')
        os.chmod(pair.here / 'd', 0o755)
        os.chmod(pair.here / 'd' / 'e', 0o755)
        (pair.here / 'd' / 'e' / 'f').write_text(f'{mode}')
        (pair.here / 'd' / 'e' / f'h{mode}').write_text('new')
        (pair.here / 'd' / 'g').unlink(missing_ok=True)
        os.chmod(pair.here / 'd' / 'e', mode)
        os.chmod(pair.here / 'd', mode)
        pair.push()
        pair.is_same(f'changed below mode {mode:o}')
        os.chmod(pair.here / 'd', 0o755)
        os.chmod(pair.here / 'd' / 'e', 0o755)
        pair.push()
        pair.is_same('opened')


# ---- repositories ----

def repository(pair):
    git(pair.here, 'init', '-q', '-b', 'main')
    (pair.here / '.gitignore').write_text('*.o\nnode/\n!kept.o\n')
    (pair.here / 'file').write_text('1')
    (pair.here / 'forced.o').write_text('tracked though ignored')
    git(pair.here, 'add', '-f', 'file', 'forced.o', '.gitignore')
    git(pair.here, 'commit', '-qm', 'one')


def status(root):
    return (git(root, 'status', '--porcelain', '-b', '--untracked-files=all'), git(root, 'stash', 'list'), git(root, 'for-each-ref'))


def sync_repositories_are_the_same(top):
    """HEAD, index, refs, stash, staged and unstaged; new objects as a pack; whatever git did with them."""
    pair = Pair(top)
    repository(pair)
    deeds = [
        [],
        ['commit -q --allow-empty -m two'],
        ['checkout -qb side'],
        ['stash'],
        ['tag -am t t'],
        ['gc -q'],
        ['checkout -q main', 'branch -D side'],
        ['repack -adq', 'prune'],
    ]
    for i, deed in enumerate(deeds):
        (pair.here / f'new{i}').write_text(f'{i}\n' * 100)
        git(pair.here, 'add', f'new{i}')
        (pair.here / 'file').write_text(f'unstaged {i}')
        for words in deed:
            git(pair.here, *words.split())
        pair.push()
        pair.is_same(f'after {deed}', objects=False)
        same(status(pair.there), status(pair.here), f'status after {deed}')
        git(pair.there, 'fsck', '--full', '--strict')
    same(pair.look()['changes'], 0, 'changes after all')


def sync_commits_come_back(top):
    pair = Pair(top)
    repository(pair)
    pair.push()
    before = picture(pair.there)
    (pair.there / 'file').write_text('changed there')
    git(pair.there, 'commit', '-qam', 'there')
    git(pair.there, 'gc', '-q')
    (pair.there / 'more').write_text('x')
    git(pair.there, 'add', 'more')
    git(pair.there, 'commit', '-qm', 'more')
    after = picture(pair.there)
    pair.pull([p for p in before.keys() | after.keys() if before.get(p) != after.get(p)])
    same(status(pair.here), status(pair.there), 'status')
    git(pair.here, 'fsck', '--full', '--strict')
    pair.is_same('after a pull', objects=False)
    same(pair.look()['changes'], 0, 'changes, objects that came as a pack among them')


def sync_objects_travel_as_a_pack(top):
    """Versions of one text are little to send."""
    pair = Pair(top)
    repository(pair)
    pair.push()
    text = ''.join(f'{random.Random(i).random()}\n' for i in range(3000))
    for i in range(15):
        (pair.here / 'file').write_text(text + f'{i}\n')
        git(pair.here, 'commit', '-qam', f'{i}')
    stream = run(SIDE, 'push', pair.here, pair.manifest).stdout
    need(len(stream) < 200000, f'{len(stream)} bytes for versions of a text of {len(text)}')
    run(SYNC, 'apply', pair.there, data=stream)
    git(pair.there, 'fsck', '--full', '--strict')
    pair.is_same('after the commits', objects=False)


def sync_objects_go_nowhere_else(top):
    """Whatever the repository there says of where its objects are."""
    pair = Pair(top)
    repository(pair)
    objects = sorted((pair.here / '.git/objects').glob('??/*'))
    paths = b''.join(bytes(p.relative_to(pair.here)) + b'\0' for p in objects)
    stream = run(SYNC, 'send', pair.here, data=paths).stdout
    for kind in ('honest', '.git', 'objects', 'each', 'commondir'):
        there, outside = pair.dir / kind / 'there', pair.dir / kind / 'outside'
        git(pair.dir, 'init', '-q', '-b', 'main', str(there))
        git(pair.dir, 'init', '-q', '--bare', str(outside))
        if kind == '.git':
            shutil.rmtree(there / '.git')
            (there / '.git').symlink_to(outside)
        elif kind == 'objects':
            shutil.rmtree(there / '.git/objects')
            (there / '.git/objects').symlink_to(outside / 'objects')
        elif kind == 'each':
            for p in objects:
                (outside / 'objects' / p.parent.name).mkdir(exist_ok=True)
                (there / '.git/objects' / p.parent.name).unlink(missing_ok=True)
                (there / '.git/objects' / p.parent.name).symlink_to(outside / 'objects' / p.parent.name)
        elif kind == 'commondir':
            (there / '.git/commondir').write_text(f'{outside}\n')
        before = below(outside)
        done = subprocess.run([SYNC, 'apply', there], input=stream, capture_output=True, check=False)
        same(below(outside), before, f'{kind}: what is outside')
        same(done.returncode, 0 if kind in ('honest', 'commondir') else 1, f'{kind}: {done.stderr}')
        same([p for p in there.iterdir() if p.name != '.git'], [], f'{kind}: what is left')
        if done.returncode == 0:
            same(sorted(p.name for p in (there / '.git/objects').glob('??/*')), sorted(p.name for p in objects), kind)


def sync_a_directory_becomes_a_link(top):
    """What was in it is behind a link now, where git does not look."""
    pair = Pair(top)
    repository(pair)
    for name in ('d/x', 'd/e/y', 'f/x'):
        (pair.here / name).parent.mkdir(parents=True, exist_ok=True)
        (pair.here / name).write_text(name)
    (pair.here / 'f/x.o').write_text('ignored')
    pair.push()
    shutil.rmtree(pair.there / 'd')
    (pair.there / 'd').symlink_to('f')
    pair.pull([b'd', b'd/e', b'd/e/y', b'd/x'])
    same(os.readlink(pair.here / 'd'), 'f', 'the link')


def sync_ignored_files_stay_where_they_are(top):
    pair = Pair(top)
    repository(pair)
    for root in (pair.here, pair.there):
        (root / 'node' / 'x').mkdir(parents=True)
        (root / 'node' / 'x' / 'y').write_text(str(root))
        (root / 'd' / 'e').mkdir(parents=True)
        (root / 'd' / 'e' / 'f.o').write_text(str(root))
    (pair.here / 'd' / 'e' / 'kept.o').write_text('kept')
    (pair.here / 'd' / 'e' / 'plain').write_text('plain')
    pair.push()
    same((pair.there / 'd' / 'e' / 'kept.o').read_text(), 'kept', 'what a rule excepts')
    for root in (pair.here, pair.there):
        same((root / 'node' / 'x' / 'y').read_text(), str(root), 'a file in an ignored directory')
        same((root / 'd' / 'e' / 'f.o').read_text(), str(root), 'an ignored file')
    same((pair.there / 'forced.o').read_text(), 'tracked though ignored', 'a tracked file')
    # The directory is gone here, and stays there with what is ignored.
    shutil.rmtree(pair.here / 'd')
    pair.push()
    same(below(pair.there / 'd'), [b'e', b'e/f.o'], 'what is left of a directory')
    # A file that is ignored from now on stays on both sides.
    (pair.here / 'later').write_text('x')
    pair.push()
    (pair.here / '.gitignore').write_text('*.o\nnode/\nlater\n')
    pair.push()
    (pair.here / 'later').unlink()
    pair.push()
    need((pair.there / 'later').exists(), 'a file that became ignored is gone there')
    # And what is asked for by its path, on the other side.
    (pair.there / 'x.o').write_text('x')
    (pair.there / 'x.c').write_text('x')
    (pair.there / ':(top)z.o').write_text('x')
    (pair.there / ':!q').write_text('x')
    pair.pull([b':(top)z.o', b':!q', b'x.o', b'x.c', b'node/x/y', b'node', b'.git/index.lock', b'forced.o', b'gone.o'])
    came = [name for name in ('x.o', 'x.c', ':(top)z.o', ':!q') if (pair.here / name).exists()]
    same(came, ['x.c', ':!q'], 'what came')
    same((pair.here / 'node' / 'x' / 'y').read_text(), str(pair.here), 'an ignored file after a pull')
    listed = run(SYNC, 'list', pair.there).stdout
    run(SIDE, 'listed', pair.manifest, data=listed)
    same(pair.look()['changes'], 2, 'changes to a list: the directories that had to stay there')


def sync_takes_one_moment_of_a_repository(top):
    """Commits go on while it is scanned and sent: what arrives is whole, or it is said that it is not."""
    pair = Pair(top)
    repository(pair)
    for i in range(300):
        (pair.here / f'f{i}').write_text('x')
    script = ('i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo $i >file; git add file f$i; git commit -qm $i; done')
    work = subprocess.Popen(['sh', '-c', script], cwd=pair.here, env=GIT, stdout=subprocess.DEVNULL)
    whole = 0
    while work.poll() is None or whole == 0:
        done = subprocess.run([SIDE, 'push', pair.here, pair.manifest], capture_output=True, timeout=60, check=False)
        if done.returncode:
            need(b'EAGAIN' in done.stderr or b'busy' in done.stderr, done.stderr.decode())
            continue
        whole += 1
        run(SYNC, 'apply', pair.there, data=done.stdout)
        git(pair.there, 'fsck', '--full', '--strict')
        need('D ' not in git(pair.there, 'status', '--porcelain'), 'a file of the index is not there')
    work.wait()
    pair.push()
    pair.is_same('after all', objects=False)


def sync_runs_nothing_of_a_repository(top):
    """Settings and hooks that name programs: none of them runs, here or there."""
    pair = Pair(top)
    repository(pair)
    mark = pair.dir / 'ran'
    evil = pair.dir / 'evil'
    evil.write_text(f'#!/bin/sh\necho "$@" >>{mark}\n')
    evil.chmod(0o755)
    for key in ('core.fsmonitor', 'core.pager', 'core.editor', 'core.sshCommand', 'gpg.program', 'diff.external',
                'filter.x.clean', 'filter.x.smudge', 'core.alternateRefsCommand', 'uploadpack.packObjectsHook'):
        git(pair.here, 'config', key, str(evil))
    (pair.here / '.gitattributes').write_text('* filter=x\n')
    for hook in ('post-index-change', 'pre-commit', 'post-checkout', 'reference-transaction'):
        shutil.copy(evil, pair.here / '.git' / 'hooks' / hook)
    with open(pair.here / '.git' / 'config', 'a') as f:
        f.write('[include]\n\tpath = /dev/null\n')
    pair.push()
    run(SYNC, 'list', pair.there)
    run(SYNC, 'send', pair.there, data=b'file\0x.o\0.git/HEAD\0')
    need(not mark.exists(), f'ran: {mark.exists() and mark.read_text()}')


def main():
    where = '/dev/shm' if os.access('/dev/shm', os.W_OK) else '/var/tmp'
    tests = [fn for name, fn in globals().items() if name.startswith('sync_')]
    failed = 0
    print(f'1..{len(tests)}')
    with tempfile.TemporaryDirectory(prefix='atoll-sync.', dir=where, ignore_cleanup_errors=True) as top:
        for n, test in enumerate(tests, 1):
            try:
                test(top)
                print(f'ok {n} - {test.__name__}', flush=True)
            except (Broken, subprocess.SubprocessError, OSError) as e:
                failed += 1
                print(f'not ok {n} - {test.__name__}', flush=True)
                print('\n'.join(f'# {line}' for line in str(e).splitlines()), flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())

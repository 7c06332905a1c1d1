#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Power cuts. Plans over directories, repositories and databases are committed, undone and recovered on a
filesystem whose disk remembers every write and flush. From that, images are made as a power cut in any
instant could have left them; each is mounted, so that the filesystem replays its journal, and recovered
under another boot's id by the real program. Then all resources together are exactly old or exactly new,
and what had been acknowledged before the cut is there. Prints TAP.

usage: power [--images N] [--filesystem ext4|xfs|btrfs]... [--story NAME]...
       power --control    only show, in a build with -Dsabotage=true, that it can fail

N images of each filesystem. The recordings are made anew each time, so that more images are also other ones.
"""

import argparse
import contextlib
import ctypes
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from multiprocessing import Pool
from pathlib import Path

from crashlib import LONG, Broken, Skip, run
from powerdisk import FLUSHED, LIBC, Record, Recorder, mount, unmount
from powerstory import STORIES, Trees

MKFS = {'ext4': ['mkfs.ext4', '-q', '-F', '-J', 'size=4'], 'xfs': ['mkfs.xfs', '-q', '-f'],
        'btrfs': ['mkfs.btrfs', '-q', '-f']}
HOWS = ['all', 'none', 'some', 'some', 'torn', 'torn']
WORKERS = 4                          # on two processors: half of the time is waiting for mounts
CLONE_NEWNS = 0x00020000
IMAGES = 20000 // 3 if LONG else 500
TELL = 1000                          # how it goes, every so many images
CONTROL = 120                        # with a barrier left out: so many, and one must be bad
SABOTAGE = os.environ.get('ATOLL_TEST_SABOTAGE') == '1'
OTHER_BOOT = '00000000-1111-4222-8333-444444444444\n'


@contextlib.contextmanager
def much_is_dirty():
    """As on a machine with much to write, where one sync of everything would take long: a barrier then has a sync for
    each of its files, and a power cut may come between two of them."""
    with tempfile.NamedTemporaryFile('w', dir='/dev/shm') as said:
        said.write(re.sub(r'Dirty: .*', 'Dirty: 9999999 kB', Path('/proc/meminfo').read_text()))
        said.flush()
        subprocess.run(['mount', '--bind', said.name, '/proc/meminfo'], check=True)
        try:
            yield
        finally:
            subprocess.run(['umount', '/proc/meminfo'], check=True)


class Cut:
    """A story, told once on a disk of kind KIND, and what became of the disk."""

    def __init__(self, top, kind, name, story):
        self.top, self.kind, self.name, self.story = Path(top) / f'{kind}-{name}', kind, name, story
        self.image, self.base, self.log = self.top / 'image', self.top / 'base', self.top / 'log'
        self.mount, self.fuse = self.top / 'mount', self.top / 'fuse'
        for folder in (self.top, self.mount, self.fuse):
            folder.mkdir()
        self.record = None

    def tell(self):
        """In a process of the pool; the record is read by who needs it."""
        with open(self.image, 'wb') as image:
            image.truncate(self.story.size[self.kind] << 20)
        subprocess.run([*MKFS[self.kind], self.image], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        disk = Recorder(self.fuse, self.image, self.log)
        try:
            mount(self.kind, disk.path, self.mount)
            try:
                self.story.prepare(self.mount)
                os.sync()
                disk.begin(self.base)
                self.story.act(disk)
            finally:
                self.story.end()
                unmount(self.mount)
        finally:
            unmount(self.fuse)
            disk.end()
        self.image.unlink()
        return self

    def cases(self, count):
        """Points spread over the whole, those right before and after a flush more often."""
        chance = random.Random(count)
        points = list(range(1, len(self.record) + 1))
        flushes = [i for i, (kind, *_) in enumerate(self.record.entries) if kind == FLUSHED]
        chosen = [(point, HOWS[i % len(HOWS)]) for i, point in enumerate(flushes + [i + 1 for i in flushes])]
        chance.shuffle(chosen)
        del chosen[count // 3:]
        while len(chosen) < count:
            chosen.append((chance.choice(points), chance.choice(HOWS)))
        return chosen

    def check(self, number, point, how):
        """'old' or 'new', as it was found; Broken."""
        image = self.top / f'cut.{os.getpid()}.{number}'
        self.record.make(image, point, how, number)
        try:
            mount(self.kind, image, self.mount)
            try:
                return self.story.recovered(self.record.last_mark(point), number % 5 == 0)
            finally:
                unmount(self.mount)
        finally:
            image.unlink()


# ---- in processes of the pool ----

CUTS = {}


def enter():
    """A mount namespace of one's own, after a reboot."""
    if LIBC.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), 'unshare')
    with tempfile.NamedTemporaryFile('w', dir='/dev/shm') as boot:
        boot.write(OTHER_BOOT)
        boot.flush()
        subprocess.run(['mount', '--bind', boot.name, '/proc/sys/kernel/random/boot_id'], check=True)


def check(case):
    key, number, point, how = case
    cut = CUTS[key]
    where = f'{cut.kind}, {cut.name}, cut after {point} of {len(cut.record)} ({cut.record.last_mark(point)}), {how}, image {number}'
    try:
        return key, cut.check(number, point, how), None
    except Broken as why:
        return key, 'bad', f'{where}: {why}'
    except Exception as why:  # pylint: disable=broad-except
        return key, 'bad', f'{where}: {type(why).__name__}: {why}'.replace('\n', ' | ')


def tell(cut):
    return cut.tell()


def cut_power(kinds, stories, count):
    """Cuts it COUNT times for each of KINDS, shared out among STORIES, which are name: (story, share). Complaints
    by kind; what was found is printed."""
    CUTS.clear()
    total, found = sum(share for _, share in stories.values()), {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix='atoll-power.', dir='/dev/shm') as top:
        os.chmod(top, 0o755)
        cuts = [Cut(top, kind, name, story) for name, (story, _) in reversed(stories.items()) for kind in kinds]
        with Pool(WORKERS) as pool:
            told = pool.map(tell, [cut for cut in cuts if not cut.story.busy], 1)
            with much_is_dirty():
                told += pool.map(tell, [cut for cut in cuts if cut.story.busy], 1)
        cases = []
        for cut in told:
            cut.record = Record(cut.base, cut.log)
            CUTS[cut.kind, cut.name] = cut
            share = max(1, count * stories[cut.name][1] // total)
            cases += [((cut.kind, cut.name), n, *case) for n, case in enumerate(cut.cases(share))]
        tally = Counter()
        with Pool(WORKERS, enter) as pool:
            for key, state, why in pool.imap_unordered(check, cases, chunksize=4):
                tally[key, state] += 1
                if why:
                    found[key[0]].append(why)
                if tally.total() % TELL == 0:
                    print(f'# {tally.total()} of {len(cases)} images, {sum(map(len, found.values()))} bad', flush=True)
    for (kind, name), cut in sorted(CUTS.items()):
        states = [tally[(kind, name), state] for state in ('old', 'new', 'bad')]
        print(f'# {kind}, {name}: {len(cut.record)} requests, {sum(states)} images: {states[0]} old, {states[1]} new, {states[2]} bad',
              flush=True)
    return found


# ---- the tests ----

FOUND = {}


def wanted(kind):
    if kind not in ARGS.filesystem:
        raise Skip('not asked for')
    if not FOUND:
        FOUND.update(cut_power(ARGS.filesystem, {name: STORIES[name] for name in ARGS.story}, ARGS.images))
    return FOUND[kind][:5]


def der_02_power_cuts_on_ext4():
    return wanted('ext4')


def der_02_power_cuts_on_xfs():
    return wanted('xfs')


def der_02_power_cuts_on_btrfs():
    return wanted('btrfs')


def der_02_without_barrier_1_it_shows():
    """The test can fail: the same without the first barrier."""
    if not SABOTAGE:
        raise Skip('a build without -Dsabotage=true leaves nothing out')
    found = cut_power(ARGS.filesystem, {'trees': (Trees(env={'ATOLL_SABOTAGE': 'barrier-1'}), 1)}, CONTROL)
    return [f'{kind}: nothing was found to be wrong' for kind, complaints in found.items() if not complaints]


def alone():
    """Again, in a mount namespace of its own: mounts seen by others would outlive their end."""
    if os.geteuid() != 0:
        print('1..0 # SKIP needs root')
        sys.exit(0)
    if not os.environ.get('POWER_ALONE'):
        os.environ['POWER_ALONE'] = '1'
        os.execvp('unshare', ['unshare', '-m', '--propagation', 'private', sys.executable, *sys.argv])


if __name__ == '__main__':
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument('--images', type=int, default=IMAGES)
    PARSER.add_argument('--filesystem', action='append', choices=sorted(MKFS))
    PARSER.add_argument('--story', action='append', choices=sorted(STORIES))
    PARSER.add_argument('--control', action='store_true')
    ARGS = PARSER.parse_args()
    ARGS.filesystem = ARGS.filesystem or (['ext4'] if ARGS.control and not LONG else sorted(MKFS))
    ARGS.story = ARGS.story or list(STORIES)
    alone()
    sys.exit(run([der_02_without_barrier_1_it_shows] if ARGS.control else
                 [der_02_power_cuts_on_ext4, der_02_power_cuts_on_xfs, der_02_power_cuts_on_btrfs]))

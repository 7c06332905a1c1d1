#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Power cuts. A plan over directories (as overlay and as copy) and databases is committed and undone on a
filesystem whose disk remembers every write and flush. From that, images are made as a power cut in any
instant could have left them; each is mounted, so that the filesystem replays its journal, and recovered
under another boot's id by the real program. Then all resources together are exactly old or exactly new,
and what had been acknowledged before the cut is there. Prints TAP.

usage: power.py [--images N] [--filesystem ext4|xfs|btrfs]...
       power.py --control    only show, in a build with -Dsabotage=true, that it can fail
"""

import argparse
import ctypes
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from multiprocessing import Pool
from pathlib import Path

from crashlib import LONG, Broken, Skip, World, run
from powerdisk import FLUSHED, Record, Recorder

SIZES = {'ext4': 96, 'xfs': 320, 'btrfs': 160}
MKFS = {'ext4': ['mkfs.ext4', '-q', '-F', '-J', 'size=4'], 'xfs': ['mkfs.xfs', '-q', '-f'],
        'btrfs': ['mkfs.btrfs', '-q', '-f']}
# Two images of one filesystem are mounted at once.
OPTIONS = {'ext4': 'loop', 'xfs': 'loop,nouuid', 'btrfs': 'loop'}
RESOURCES = ['o1', 'c1', 'd1.db', 's1.db']
HOWS = ['all', 'none', 'some', 'some', 'torn', 'torn']
# What may be found after a cut, by the last thing that had been announced.
ALLOWED = {'': ['old'], 'commit': ['old', 'new'], 'committed': ['new'], 'undo': ['old', 'new'], 'undone': ['old']}
WORKERS = 2
CLONE_NEWNS = 0x00020000
IMAGES = 20000 // 3 if LONG else 200
CONTROL = 120                        # with a barrier left out: so many, and one must be bad
SABOTAGE = os.environ.get('ATOLL_TEST_SABOTAGE') == '1'
OTHER_BOOT = '00000000-1111-4222-8333-444444444444\n'


def sh(*command):
    done = subprocess.run(list(map(str, command)), check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors='replace')
    if done.returncode:
        raise Broken(f'{" ".join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()}')


def unmount(where):
    """What a command left to be synced in the background may hold it for a moment."""
    for attempt in range(100):
        try:
            return sh('umount', where)
        except Broken:
            if attempt == 99:
                raise
            time.sleep(.05)
    return None


class Cut:
    """A scenario, run once on a disk of kind KIND, and what became of the disk."""

    def __init__(self, top, kind, env=()):
        self.top, self.kind, self.env = Path(top), kind, dict(env)
        self.image, self.base, self.log = self.top / 'image', self.top / 'base', self.top / 'log'
        self.mount, self.fuse = self.top / 'mount', self.top / 'fuse'
        self.mount.mkdir()
        self.fuse.mkdir()
        self.world = None
        self.record_all()
        self.record = Record(self.base, self.log)

    def record_all(self):
        with open(self.image, 'wb') as image:
            image.truncate(SIZES[self.kind] << 20)
        sh(*MKFS[self.kind], self.image)
        sh('mount', '-o', 'loop', self.image, self.mount)
        self.world = World(RESOURCES, where=self.mount)
        self.world.open_plan()
        self.world.edit()
        os.sync()
        unmount(self.mount)
        shutil.copyfile(self.image, self.base)
        sh('fallocate', '--dig-holes', self.base)
        disk = Recorder(self.fuse, self.image, self.log)
        sh('mount', '-o', 'loop', disk.path, self.mount)
        try:
            self.act(disk)
        finally:
            unmount(self.mount)
            unmount(self.fuse)
            disk.end()

    def act(self, disk):
        disk.mark('commit')
        self.world.must('commit', env=self.env)
        disk.mark('committed')
        self.world.expect('new')
        disk.mark('undo')
        self.world.must('rollback', env=self.env)
        disk.mark('undone')
        self.world.expect('old')

    def cases(self, count):
        """Points spread over the whole, those right before and after a flush more often."""
        chance = random.Random(count)
        points = list(range(1, len(self.record) + 1))
        flushes = [i for i, (kind, *_) in enumerate(self.record.entries) if kind == FLUSHED]
        chosen = [(point, HOWS[i % len(HOWS)]) for i, point in enumerate(flushes + [i + 1 for i in flushes])][:count // 3]
        while len(chosen) < count:
            chosen.append((chance.choice(points), chance.choice(HOWS)))
        return [(number, point, how) for number, (point, how) in enumerate(chosen)]

    def check(self, number, point, how):
        """'old' or 'new', as it was found; Broken."""
        image = self.top / f'cut.{os.getpid()}.{number}'
        self.record.make(image, point, how, number)
        try:
            sh('mount', '-o', OPTIONS[self.kind], image, self.mount)
            try:
                return self.recover(number, point)
            finally:
                unmount(self.mount)
        finally:
            image.unlink()

    def recover(self, number, point):
        self.world.must('recover=all')
        state = self.world.expect(*ALLOWED[self.record.last_mark(point)])
        if number % 5 == 0:
            self.world.stop_and_count()
        return state


# ---- in processes of the pool ----

CUT = None


def enter():
    """A mount namespace of one's own, after a reboot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), 'unshare')
    boot = CUT.top / f'boot.{os.getpid()}'
    boot.write_text(OTHER_BOOT)
    sh('mount', '--bind', boot, '/proc/sys/kernel/random/boot_id')


def check(case):
    number, point, how = case
    try:
        return CUT.check(number, point, how), None
    except Broken as why:
        return 'bad', f'{CUT.kind}, cut after {point} of {len(CUT.record)} ({CUT.record.last_mark(point)}), {how}, image {number}: {why}'
    except Exception as why:  # pylint: disable=broad-except
        return 'bad', f'image {number}: {type(why).__name__}: {why}'


def cut(kind, count, env=()):
    """Complaints about COUNT images, and a line that says what was found."""
    global CUT  # pylint: disable=global-statement
    with tempfile.TemporaryDirectory(prefix='atoll-power.', dir='/dev/shm') as top:
        CUT = Cut(top, kind, env)
        with Pool(WORKERS, enter) as pool:
            found = pool.map(check, CUT.cases(count), chunksize=4)
    states = [state for state, _ in found]
    print(f'# {kind}: {len(CUT.record)} requests, {len(found)} images: {states.count("old")} old, '
          f'{states.count("new")} new, {states.count("bad")} bad', flush=True)
    return [why for _, why in found if why]


def der_02_power_cuts_on_ext4():
    return wanted('ext4')


def der_02_power_cuts_on_xfs():
    return wanted('xfs')


def der_02_power_cuts_on_btrfs():
    return wanted('btrfs')


def wanted(kind):
    if kind not in ARGS.filesystem:
        raise Skip('not asked for')
    return cut(kind, ARGS.images)[:5]


def der_02_without_barrier_1_it_shows():
    """The test can fail: the same without the first barrier."""
    if not SABOTAGE:
        raise Skip('a build without -Dsabotage=true leaves nothing out')
    complaints = cut('ext4', CONTROL, {'ATOLL_SABOTAGE': 'barrier-1'})
    return [] if complaints else ['nothing was found to be wrong']


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
    PARSER.add_argument('--filesystem', action='append', choices=sorted(SIZES))
    PARSER.add_argument('--control', action='store_true')
    ARGS = PARSER.parse_args()
    ARGS.filesystem = ARGS.filesystem or sorted(SIZES)
    alone()
    sys.exit(run([der_02_without_barrier_1_it_shows] if ARGS.control else
                 [der_02_power_cuts_on_ext4, der_02_power_cuts_on_xfs, der_02_power_cuts_on_btrfs]))

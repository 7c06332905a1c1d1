# SPDX-License-Identifier: Apache-2.0
"""A disk that remembers. Recorder: a file served through FUSE, to be mounted by a loop device, of which
every write and every flush is recorded, in order, with marks in between. Record: what was recorded, and
the images that a power cut could have left: what was flushed is there, of the rest anything may be.

The protocol is spoken directly: all that is needed is one file, and nothing may be cached on the way."""

import ctypes
import errno
import fcntl
import os
import random
import struct
import sys
import threading
import time

(LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, BATCH_FORGET) = (
    1, 2, 3, 4, 14, 15, 16, 17, 18, 20, 25, 26, 42)
HEADER = struct.Struct('<IIQQIIII')
IO = struct.Struct('<QQIIQII')        # of READ and of WRITE: handle, offset, size, and more
RECORD = struct.Struct('<B7xQQ')      # kind, offset, length; then the bytes
WROTE, FLUSHED, MARK = 1, 2, 3
DISK, ROOT = 2, 1
DIRECT_IO = 1
MAX_WRITE = 128 << 10
SECTOR = 4096                         # what is written whole or not at all


LIBC = ctypes.CDLL(None, use_errno=True)
GET_FREE, CONFIGURE = 0x4C82, 0x4C0A  # of loop devices
AUTOCLEAR = 4


def loop_device(image):
    """A descriptor of a loop device on IMAGE that is free again with its last user, and its path."""
    with open('/dev/loop-control', 'rb') as control, open(image, 'r+b') as file:
        while True:
            path = f'/dev/loop{fcntl.ioctl(control, GET_FREE)}'
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, CONFIGURE, struct.pack('<II52xI240x', file.fileno(), 0, AUTOCLEAR))
                return device, path
            except OSError as taken:
                os.close(device)
                if taken.errno != errno.EBUSY:
                    raise


def mount(kind, image, where):
    # Two images of one filesystem are mounted at once.
    options = b'nouuid' if kind == 'xfs' else b''
    device, path = loop_device(image)
    try:
        if LIBC.mount(path.encode(), os.fsencode(where), kind.encode(), 0, options) != 0:
            raise OSError(ctypes.get_errno(), f'mount {kind}: {os.strerror(ctypes.get_errno())}')
    finally:
        os.close(device)


def unmount(where):
    """What a command left to be synced in the background may hold it for a moment."""
    for _ in range(2400):
        if LIBC.umount2(os.fsencode(where), 0) == 0:
            return
        time.sleep(.025)
    raise OSError(ctypes.get_errno(), f'umount {where}: {os.strerror(ctypes.get_errno())}')


class Recorder:
    """Serves IMAGE as WHERE/disk from a thread of this process, until end()."""

    def __init__(self, where, image, log):
        self.where, self.path = where, os.path.join(where, 'disk')
        self.image = os.open(image, os.O_RDWR)
        self.log = open(log, 'wb')  # pylint: disable=consider-using-with
        self.lock = threading.Lock()
        self.size = os.fstat(self.image).st_size
        self.fd = os.open('/dev/fuse', os.O_RDWR)
        options = f'fd={self.fd},rootmode=40000,user_id=0,group_id=0,max_read={MAX_WRITE}'
        if LIBC.mount(b'recorder', os.fsencode(where), b'fuse', 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), 'mount')
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def record(self, kind, offset=0, data=b''):
        with self.lock:
            self.log.write(RECORD.pack(kind, offset, len(data)))
            self.log.write(data)

    def begin(self, base):
        """What is written up to now is on the disk, in BASE; recorded is what comes."""
        with self.lock, open(base, 'wb') as file:
            copy_sparse(self.image, file.fileno())
            self.log.seek(0)
            self.log.truncate()

    def mark(self, text):
        self.record(MARK, 0, text.encode())

    def end(self):
        """Once it is unmounted."""
        self.thread.join(20)
        for fd in (self.fd, self.image):
            os.close(fd)
        self.log.close()

    # -- the protocol --

    def attributes(self, node):
        mode, links, size = (0o40700, 2, 0) if node == ROOT else (0o100600, 1, self.size)
        return struct.pack('<6Q10I', node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, SECTOR, 0)

    def answer(self, opcode, node, body):
        """The body of the answer, or the negative of an error."""
        if opcode == INIT:
            return struct.pack('<IIIIHHIIHHI28x', 7, 31, MAX_WRITE, 0, 12, 9, MAX_WRITE, 1, MAX_WRITE // 4096, 0, 0)
        if opcode == LOOKUP:
            if body.rstrip(b'\0') != b'disk':
                return -errno.ENOENT
            return struct.pack('<QQQQII', DISK, 0, 1000, 1000, 0, 0) + self.attributes(DISK)
        if opcode in (GETATTR, SETATTR):
            return struct.pack('<QII', 1000, 0, 0) + self.attributes(node)
        if opcode == OPEN:
            return struct.pack('<QII', 0, DIRECT_IO, 0)
        if opcode == STATFS:
            return struct.pack('<5Q4I24x', 1000, 900, 900, 1000, 900, 4096, 255, 4096, 0)
        if opcode == READ:
            _, offset, size, *_ = IO.unpack_from(body)
            return os.pread(self.image, size, offset)
        if opcode == WRITE:
            _, offset, size, *_ = IO.unpack_from(body)
            data = body[IO.size:IO.size + size]
            self.record(WROTE, offset, data)
            return struct.pack('<II', os.pwrite(self.image, data, offset), 0)
        if opcode == FSYNC:
            self.record(FLUSHED)
            return b''
        return b'' if opcode in (RELEASE, FLUSH) else -errno.ENOSYS

    def serve(self):
        while True:
            try:
                request = os.read(self.fd, MAX_WRITE + (64 << 10))
            except OSError as gone:
                if gone.errno == errno.ENODEV:
                    return
                continue
            _, opcode, unique, node, *_ = HEADER.unpack_from(request)
            if opcode in (FORGET, BATCH_FORGET):
                continue
            body = self.answer(opcode, node, request[HEADER.size:])
            error, body = (body, b'') if isinstance(body, int) else (0, body)
            try:
                os.write(self.fd, struct.pack('<IiQ', 16 + len(body), error, unique) + body)
            except OSError as gone:
                if gone.errno == errno.ENODEV:
                    return
                print(f'# the disk could not answer {opcode}: {gone}', file=sys.stderr)


def copy_sparse(source, target):
    """TARGET, empty, becomes what SOURCE is, holes included."""
    size, at = os.fstat(source).st_size, 0
    os.ftruncate(target, size)
    while at < size:
        try:
            begin = os.lseek(source, at, os.SEEK_DATA)
        except OSError:
            return
        at = os.lseek(source, begin, os.SEEK_HOLE)
        os.lseek(target, begin, os.SEEK_SET)
        while begin < at:
            begin += os.sendfile(target, source, begin, at - begin)


class Record:
    """What was recorded over the image BASE."""

    def __init__(self, base, log):
        self.base, self.entries, self.marks = base, [], []
        with open(log, 'rb') as file:
            data = file.read()
        at = 0
        while at < len(data):
            kind, offset, length = RECORD.unpack_from(data, at)
            at += RECORD.size
            body = data[at:at + length]
            at += length
            if kind == MARK:
                self.marks.append((len(self.entries), body.decode()))
            else:
                self.entries.append((kind, offset, body))

    def __len__(self):
        return len(self.entries)

    def last_mark(self, point):
        """Of what had been announced when the power was cut; "" before the first."""
        return next((text for at, text in reversed(self.marks) if at <= point), '')

    def make(self, path, point, how, seed):
        """The image after a cut when POINT requests had reached the disk. HOW: of what no flush had made
        durable by then `all` is there, or `none`, `some` writes, or `torn`: some sectors of them."""
        flushed = max((i for i, (kind, *_) in enumerate(self.entries[:point]) if kind == FLUSHED), default=0)
        chance = random.Random(seed)
        base = os.open(self.base, os.O_RDONLY)
        image = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            copy_sparse(base, image)
            for number, (kind, offset, data) in enumerate(self.entries[:point]):
                if kind != WROTE:
                    continue
                if number < flushed or how == 'all':
                    os.pwrite(image, data, offset)
                elif how == 'some' and chance.random() < .5:
                    os.pwrite(image, data, offset)
                elif how == 'torn':
                    for at in range(0, len(data), SECTOR):
                        if chance.random() < .5:
                            os.pwrite(image, data[at:at + SECTOR], offset + at)
        finally:
            os.close(base)
            os.close(image)

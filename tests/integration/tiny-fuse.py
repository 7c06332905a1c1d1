#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The smallest FUSE filesystem: one empty directory. Arguments: mount point, file to make when
it is mounted. Ends when it is unmounted. Needs root and nothing but the standard library."""

import contextlib
import ctypes
import errno
import os
import struct
import sys

LOOKUP, FORGET, GETATTR, STATFS, INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS, DESTROY = (
    1, 2, 3, 17, 26, 27, 28, 29, 34, 38)


def attributes():
    attr = struct.pack('<6Q10I', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40700, 2, os.getuid(), os.getgid(),
                       0, 4096, 0)
    return struct.pack('<QII', 1, 0, 0) + attr


ANSWERS = {
    INIT: lambda: struct.pack('<IIIIHHIIHHI28x', 7, 31, 65536, 0, 12, 9, 65536, 1, 16, 0, 0),
    GETATTR: attributes,
    STATFS: lambda: struct.pack('<5Q4I24x', 1000, 900, 900, 1000, 900, 4096, 255, 4096, 0),
    OPENDIR: lambda: struct.pack('<QII', 1, 0, 0),
    READDIR: lambda: b'',
    RELEASEDIR: lambda: b'',
    ACCESS: lambda: b'',
    DESTROY: lambda: b'',
}


def mount(fd, where):
    libc = ctypes.CDLL(None, use_errno=True)
    options = f'fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}'
    if libc.mount(b'tiny', os.fsencode(where), b'fuse', 0, options.encode()) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))


def serve(fd):
    while True:
        try:
            request = os.read(fd, 1 << 17)
        except OSError as gone:
            if gone.errno == errno.ENODEV:
                return
            continue
        _, opcode, unique = struct.unpack_from('<IIQ', request)
        if opcode == FORGET:
            continue
        error, body = 0, b''
        if opcode in ANSWERS:
            body = ANSWERS[opcode]()
        else:
            error = -(errno.ENOENT if opcode == LOOKUP else errno.ENOSYS)
        with contextlib.suppress(OSError):  # nobody waits for the answer to the last one
            os.write(fd, struct.pack('<IiQ', 16 + len(body), error, unique) + body)


def main():
    fd = os.open('/dev/fuse', os.O_RDWR)
    mount(fd, sys.argv[1])
    with open(sys.argv[2], 'w', encoding='ascii'):
        pass
    serve(fd)


main()

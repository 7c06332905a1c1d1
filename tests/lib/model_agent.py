# SPDX-License-Identifier: Apache-2.0
"""What runs inside a plan, and for somebody else outside: edits from standard input, then a look.
It is handed to an interpreter as text, so that a view need not show this file."""

import json
import os
import shutil
import stat
import sys


def put(p, data, mtime, mode):
    with open(p, 'wb') as f:
        f.write(data.encode())
    if mode is not None:
        os.chmod(p, mode)
    os.utime(p, ns=(mtime, mtime))


def stamp(p, mtime):
    os.utime(p, ns=(mtime, mtime), follow_symlinks=False)


def replace(p, data, mtime, mode):
    put(p + '~', data, mtime, mode)
    os.rename(p + '~', p)


def append(p, data, mtime):
    with open(p, 'ab') as f:
        f.write(data.encode())
    stamp(p, mtime)


def truncate(p, size, mtime):
    os.truncate(p, size)
    stamp(p, mtime)


def mkdir(p, mode):
    os.mkdir(p)
    os.chmod(p, mode)


def symlink(p, target, mtime):
    os.symlink(target, p)
    stamp(p, mtime)


def pair(p, q, data, mtime):
    put(p, data, mtime, 0o644)
    os.link(p, q)


def rename(p, q):
    try:
        os.rename(p, q)
    except OSError:
        shutil.copytree(p, q, symlinks=True)
        shutil.rmtree(p)


def remove(p):
    if os.path.isdir(p) and not os.path.islink(p):
        shutil.rmtree(p)
    else:
        os.unlink(p)


def chmod_to(p, mode):
    os.chmod(p, mode)


def dir_to_file(p, data, mtime):
    remove(p)
    put(p, data, mtime, 0o644)


def to_dir(p, mode, data, mtime):
    remove(p)
    mkdir(p, mode)
    put(p + '/a', data, mtime, 0o644)


def dump(top, without):
    tree, times = {}, {}

    def visit(path, name):
        s = os.lstat(path)
        if stat.S_ISREG(s.st_mode):
            with open(path, 'rb') as f:
                tree[name] = ['f', stat.S_IMODE(s.st_mode), f.read().decode('latin-1'), s.st_mtime_ns]
        elif stat.S_ISLNK(s.st_mode):
            tree[name] = ['l', 0, os.readlink(path), s.st_mtime_ns]
        else:
            tree[name] = ['d', stat.S_IMODE(s.st_mode), '', 0]
            times[name] = s.st_mtime_ns
            for entry in os.listdir(path):
                below = os.path.join(name, entry)
                if below not in without:
                    visit(os.path.join(path, entry), below)
    visit(top, '')
    return tree, times


def main():
    os.umask(0o022)
    todo = json.load(sys.stdin)
    looks = [[dump(*tree)[0] for tree in todo['trees']]]
    for op in todo['edits']:
        globals()[op[0]](*op[1:])
    if todo['edits']:
        looks.append([dump(*tree)[0] for tree in todo['trees']])
    json.dump(looks, sys.stdout)


if __name__ == '__main__':
    main()

# SPDX-License-Identifier: Apache-2.0
"""Rich trees, edits of them, and all a reader can see of them. Complete in itself: it is also given
to commands of a plan, as text, which do not see files below /tmp. Called so: EDIT ROOT TAG; prints
the manifest of the tree after the edit."""

import hashlib
import os
import shutil
import stat
import sys
from pathlib import Path


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


if __name__ == '__main__':
    {'edit_tree': edit_tree, 'edit_again': edit_again}[sys.argv[1]](
        Path(sys.argv[2]), sys.argv[3].encode())
    print(manifest(sys.argv[2]))

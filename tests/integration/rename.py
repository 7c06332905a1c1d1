# SPDX-License-Identifier: Apache-2.0
"""Directories that were there before the plan are renamed in an overlay as they are outside: by root and by
an ordinary user, whose overlays have no redirects.

    rename.py            root's and a user's (without root: only these)

Each script runs twice, in a plain copy of the tree and in a plan's view of it. What it prints must be equal, and
so must the trees; after the commit the original is as the plain copy is, after the rollback as it was, with the
same inodes."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

ATOLL = os.environ.get('ATOLL', '')
NOBODY = 65534
MANY = 1000  # files, of what is to be caught in the middle; more when it was not
TRIES = 4
BOX = '.atoll-rename-'

PRELUDE = '''
import ctypes, errno, os, shutil, signal, stat, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE = 1, 2
def rename2(a, b, flags, a_fd=-100, b_fd=-100):
    if libc.renameat2(a_fd, os.fsencode(a), b_fd, os.fsencode(b), flags) < 0:
        raise OSError(ctypes.get_errno(), '')
def tell(f, *args):
    try:
        f(*args)
        print(f.__name__, args, 'ok')
    except OSError as e:
        print(f.__name__, args, errno.errorcode[e.errno])
def put(path, text):
    with open(path, 'w') as file:
        file.write(text)
'''


class Broken(Exception):
    pass


class TooLate(Broken):
    """What was to be caught in the middle had ended: once more, with more to do."""


def need(ok, text):
    if not ok:
        raise Broken(text)


def describe(path):
    st = os.lstat(path)
    what = [stat.filemode(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns if st.st_mtime < 2**30 else 'now']
    if stat.S_ISLNK(st.st_mode):
        return what + [os.readlink(path)]
    if stat.S_ISREG(st.st_mode):
        what.append(hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12])
    return what + [(n, os.getxattr(path, n)) for n in sorted(os.listxattr(path))]


def listing(root, inodes=False):
    """By path; and the names of each file that has several."""
    found, links = {}, {}
    for folder, dirs, files in os.walk(root):
        for name in dirs + files:
            path = os.path.join(folder, name)
            st, rel = os.lstat(path), os.path.relpath(path, root)
            found[rel] = describe(path) + ([st.st_ino] if inodes else [])
            if st.st_nlink > 1 and not stat.S_ISDIR(st.st_mode):
                links.setdefault(st.st_ino, []).append(rel)
    return found, sorted(sorted(names) for names in links.values())


def must_equal(what, wanted, got):
    if wanted == got:
        return
    if isinstance(wanted, tuple):
        lines = [f'  {path!r}: {wanted[0].get(path)} / {got[0].get(path)}'
                 for path in sorted(set(wanted[0]) | set(got[0])) if wanted[0].get(path) != got[0].get(path)]
        raise Broken('\n'.join([what] + lines[:12] + [f'  links {wanted[1]} / {got[1]}']))
    raise Broken(f'{what}:\n{wanted}\n---\n{got}')


class World:
    def __init__(self, top, as_user, many=MANY):
        self.many = many
        self.top, self.root, self.plain = Path(top), Path(top) / 'r', Path(top) / 'plain'
        self.as_user = as_user
        self.me = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups'] \
            if as_user and os.geteuid() == 0 else []
        self.env = dict(os.environ, ATOLL_HOME=str(self.top / 'home'), HOME=str(top), NO_COLOR='1',
                        XDG_CONFIG_HOME=str(self.top / 'config'))
        self.root.mkdir()

    def run(self, *argv, script='', cwd=None, code=0):
        done = subprocess.run([*self.me, *argv], cwd=cwd or self.root, env=self.env, input=script, text=True,
                              capture_output=True, check=False)
        need(done.returncode == code, f'{argv}: exit {done.returncode}, not {code}: {done.stderr[-1500:]}')
        return done.stdout

    def atoll(self, *argv, **more):
        return self.run(ATOLL, *argv, **more)

    def inside(self, script, *options, code=0):
        return self.atoll('exec', *options, 'p', '--', '/usr/bin/python3', '-', script=PRELUDE + script, code=code)

    def outside(self, script):
        return self.run('/usr/bin/python3', '-', script=PRELUDE + script, cwd=self.plain)

    def begin(self, script):
        """The tree, made by SCRIPT, its plain copy and the plan."""
        if self.me:
            for folder in (self.top, self.root):
                os.chown(folder, NOBODY, NOBODY)
        self.run('/usr/bin/python3', '-', script=PRELUDE + 'os.umask(0o022)\n' + script +
                 '\nfor f, d, n in os.walk(".", topdown=False):\n'
                 '    for x in d + n:\n'
                 '        os.utime(os.path.join(f, x), (1e9, 1e9 + len(x)), follow_symlinks=False)\n')
        self.run('cp', '-a', str(self.root), str(self.plain))
        self.atoll('start', 'p', '--dir', str(self.root), '--strategy', 'overlay')

    def need_no_changes(self):
        changes = json.loads(self.atoll('diff', 'p', '--json'))['changes']
        need(not changes, f'changes: {changes[:8]}')

    def there_and_back(self, *scripts):
        before = listing(self.root, inodes=True)
        for script in scripts:
            must_equal('said (outside / inside)', self.outside(script), self.inside(script))
        self.atoll('commit', 'p', '--yes', '--allow', 'special')
        must_equal('committed (outside / inside)', listing(self.plain), listing(self.root))
        self.need_no_changes()
        self.atoll('rollback', 'p', '--yes')
        must_equal('rolled back (before / now)', before, listing(self.root, inodes=True))


# ---- the tests ----

TREE = '''
os.makedirs('src/sub/deep/deeper')
for name in ('a', 'b', 'sub/c', 'sub/deep/d', 'sub/deep/deeper/e', 'gone'):
    put('src/' + name, name * 50)
os.link('src/a', 'src/sub/also-a')
os.link('src/a', 'src/sub/deep/again-a')
os.link('src/sub/deep/d', 'src/sub-d')
os.link('src/sub/deep/deeper/e', 'src/sub/e')
os.symlink('a', 'src/link')
os.symlink('sub', 'src/dirlink')
os.symlink('nowhere', 'src/sub/dangling')
os.mkfifo('src/sub/fifo')
os.makedirs('other/in')
put('other/in/o', 'o')
os.mkdir('empty')
put('file', 'file')
os.setxattr('src/sub', 'user.colour', b'green')
os.setxattr('src', 'user.colour', b'red')
os.chmod('src/sub', 0o2750)
os.chmod('src/sub/deep', 0o555)
os.chmod('src/sub/deep/deeper', 0o1755)
os.chmod('src/b', 0o444)
'''


def ren_renamed_as_outside(world):
    world.begin(TREE)
    world.there_and_back('''
tell(os.rename, 'src', 'lib')
print(sorted(os.listdir('.')), sorted(os.listdir('lib')))
tell(os.rename, 'lib/sub', 'lib/sub2')
tell(os.rename, 'lib/sub2/deep/deeper', 'other/deeper')
put('lib/sub2/c', 'edited')
put('lib/new', 'new')
''')


def ren_there_and_back_is_no_change(world):
    world.begin(TREE)
    world.inside('''
inode = os.stat('src/sub/c').st_ino
os.rename('src', 'lib')
os.rename('lib', 'src')
assert os.stat('src/sub/c').st_ino == inode
''')
    world.need_no_changes()
    world.there_and_back('os.rename("src", "lib")\nos.rename("lib", "src")\nput("src/new", "new")')


def ren_over_and_exchanged(world):
    world.begin(TREE)
    world.there_and_back('''
os.unlink('src/gone')
tell(os.rename, 'src', 'empty')
tell(rename2, 'empty', 'other', EXCHANGE)
tell(rename2, 'other', 'file', EXCHANGE)
tell(rename2, 'file/sub', 'empty/in', EXCHANGE)
os.mkdir('made')
tell(os.rename, 'file', 'made')
''', '''
tell(rename2, 'made', 'empty', EXCHANGE)
tell(os.rename, 'empty/in', 'back')
tell(shutil.move, 'back', 'made')
''')


def ren_errors_are_the_kernels(world):
    world.begin(TREE + "os.makedirs('locked/d/e')\nos.makedirs('ro')\n")
    script = '''
fd = os.open('src', os.O_RDONLY)
no = os.open('file', os.O_RDONLY)
os.chmod('locked', 0o555)
os.chmod('ro', 0o555)
tell(os.rename, 'src', 'src/sub/x')
tell(os.rename, 'src', 'src')
tell(os.rename, 'src/sub', './src/../src/sub/')
tell(rename2, 'src', 'src', EXCHANGE)
tell(rename2, 'src', 'src', NOREPLACE)
tell(os.rename, 'src', 'other')
tell(os.rename, 'src/sub', 'src')
tell(os.rename, 'src', 'file')
tell(os.rename, 'file', 'src')
tell(os.rename, 'src', 'nowhere/x')
tell(os.rename, 'nowhere', 'x')
tell(os.rename, 'src/.', 'x')
tell(os.rename, 'src', '.')
tell(os.rename, 'src', '..')
tell(os.rename, '', 'x')
tell(os.rename, 'src', 'n' * 256)
tell(os.rename, 'src/dirlink/', 'x')
tell(os.rename, 'file/', 'x')
tell(rename2, 'src', 'empty', NOREPLACE)
tell(rename2, 'src', 'nowhere', EXCHANGE)
tell(rename2, 'src', 'src/sub', EXCHANGE)
tell(rename2, 'src', 'empty', NOREPLACE | EXCHANGE)
tell(rename2, 'src', 'empty', 64)
tell(rename2, 'sub', 'sub2', 0, no, -100)
tell(rename2, 'sub', 'sub2', 0, 99, -100)
if os.geteuid() != 0:
    tell(os.rename, 'locked/d', 'x')
    tell(os.rename, 'src', 'ro/x')
    tell(os.rename, 'ro', 'src/ro')
print(libc.renameat2(-100, None, -100, b'x', 0), ctypes.get_errno())
print(libc.renameat2(-100, b'src', -100, ctypes.c_void_p(8), 0), ctypes.get_errno())
os.chmod('locked', 0o755)
print(sorted(os.listdir('.')), sorted(os.listdir('src')))
tell(rename2, 'sub/', '../moved//', 0, fd, fd)
os.chdir('src')
tell(os.rename, '../moved', './sub')
tell(os.rename, os.path.realpath('sub'), os.path.realpath('../other') + '/sub')
'''
    outside = world.outside(script.replace("os.path.realpath('sub')", "'sub'"))
    inside = world.inside(script)
    must_equal('said (outside / inside)', *[[line.replace("'sub'", '').split(')')[-1] for line in said.splitlines()]
                                            for said in (outside, inside)])
    world.atoll('commit', 'p', '--yes', '--allow', 'special')
    # The one name of a file with several that lies elsewhere is on its own.
    must_equal('committed', listing(world.plain)[0], listing(world.root)[0])


def ren_deep_and_wide(world):
    world.begin('''
os.makedirs('/'.join(['deep'] + ['d%d' % i for i in range(200)]))
put('/'.join(['deep'] + ['d%d' % i for i in range(200)]) + '/bottom', 'bottom')
os.makedirs('wide/w')
for i in range(300):
    put('wide/f%d' % i, str(i))
    os.link('wide/f%d' % i, 'wide/w/l%d' % i)
''')
    world.there_and_back('''
tell(os.rename, 'deep', 'deeper')
tell(os.rename, 'wide', 'deeper/wide')
tell(subprocess.check_call, ['mv', 'deeper', 'moved'])
''')


def ren_of_other_processes(world):
    """From a thread with a directory of its own, through many signals, from below another root."""
    world.begin(TREE + "os.makedirs('big/x')\nfor i in range(500):\n    put('big/x/%d' % i, 'big')\n")
    world.inside('''
import threading
def elsewhere():
    assert libc.unshare(0x200) == 0  # CLONE_FS
    os.chdir('other')
    os.rename('in', 'in2')
t = threading.Thread(target=elsewhere)
t.start()
t.join()
assert os.path.exists('other/in2/o')
seen = []
signal.signal(signal.SIGALRM, lambda *a: seen.append(1))
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, .0005, .0005)
assert libc.rename(b'big', b'small') == 0, ctypes.get_errno()
signal.setitimer(signal.ITIMER_REAL, 0)
assert len(os.listdir('small/x')) == 500
if os.geteuid() == 0:  # as before, where our own /proc is not
    pid = os.fork()
    if pid == 0:
        os.chroot('src')
        try:
            os.rename('/sub', '/sub2')
        except OSError as e:
            os._exit(e.errno)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == errno.EXDEV
    assert os.path.exists('src/sub/deep/d')
''')


def ren_with_the_rights_of_the_command(world):
    """A command of root that has become another user renames what that user may, and leaves alone the rest."""
    if world.as_user:
        return
    world.begin(TREE + "os.makedirs('his/d/e')\nput('his/d/e/f', 'f')\nshutil.chown('his', 65534, 65534)\n"
                "for f, d, n in os.walk('his'):\n    for x in d + n:\n        os.chown(f + '/' + x, 65534, 65534)\n")
    world.inside('''
before = os.stat('src').st_ino
def child(work):
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            work()
        except OSError as e:
            os._exit(e.errno)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
assert child(lambda: os.rename('src', 'lib')) == errno.EACCES
assert child(lambda: os.rename('src/sub', 'his/sub')) == errno.EACCES
assert child(lambda: os.rename('his/d', 'his/d2')) == 0
assert os.stat('his/d2').st_uid == os.stat('his/d2/e').st_uid == 65534
assert os.stat('src').st_ino == before
assert not [n for f, d, n in os.walk('.') if '.atoll-rename-' in f]
''')
    need('src' not in world.atoll('diff', 'p'), 'what could not be renamed was changed')


def ren_not_over_a_mount_point(world):
    """What holds a mount point is left as it is, and refused as before."""
    world.begin(TREE + "put('src/sub/key', 'secret')\n")
    world.inside('''
before = os.stat('src').st_ino, os.stat('src/sub').st_ino
tell(os.rename, 'src', 'lib')
try:
    os.rename('src', 'lib')
    assert False
except OSError as e:
    assert e.errno == errno.EXDEV, e
try:
    os.rename('src/sub/key', 'key')
    assert False
except OSError as e:
    assert e.errno == errno.EBUSY, e
assert before == (os.stat('src').st_ino, os.stat('src/sub').st_ino)
''', '--hide', str(world.root / 'src/sub/key'))
    world.need_no_changes()


def names_of(world):
    """Where the numbered files are in the view: a list of places for each."""
    said = world.inside('for f, d, n in os.walk("."):\n    for x in n:\n        print(f, x)\n')
    places = {}
    for line in said.splitlines():
        folder, name = line.rsplit(' ', 1)
        places.setdefault(name, []).append(folder)
    return places


def half_moved(world):
    """What is in the new directory of the one at work, as it is in the upper layer."""
    for folder, dirs, _ in os.walk(world.top):
        dirs[:] = [d for d in dirs if os.path.join(folder, d) not in (str(world.root), str(world.plain))]
        if os.path.basename(folder).startswith(BOX):
            try:
                return os.listdir(folder + '/new')
            except FileNotFoundError:
                return []
    return []


WORKER = '''
def worker():
    """The process that raises a directory: it has the name of pid 1, and is another."""
    own = open('/proc/1/comm').read()
    for _ in range(100000):
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                if pid != '1' and open('/proc/%s/comm' % pid).read() == own:
                    return int(pid)
            except OSError:
                pass
pid = os.fork()
if pid == 0:
    os.rename('src', 'lib')
    os._exit(0)
'''


def ren_killed_half_way_loses_nothing(world):
    world.begin(f"os.makedirs('src/sub')\nfor i in range({world.many}):\n    put('src/sub/%d' % i, 'x')\n")
    with subprocess.Popen([*world.me, ATOLL, 'exec', 'p', '--', 'mv', '-T', 'src', 'lib'], cwd=world.root,
                          env=world.env) as child:
        while child.poll() is None and len(half_moved(world)) < 100:
            pass
        child.kill()
    if not half_moved(world):
        raise TooLate('the directory was renamed before the command was killed')
    places = names_of(world)
    need(len(places) == world.many, f'{len(places)} files are left')
    need(all(len(p) == 1 for p in places.values()), 'some are in two places')
    if {p[0] for p in places.values()} == {'./src/sub'}:
        raise TooLate('all are in one place')
    need(BOX in world.atoll('diff', 'p'), 'the diff does not show where they are')
    world.inside(f"import glob\n[box] = glob.glob('{BOX}*/new')\n"
                 "for name in os.listdir(box):\n    os.rename(box + '/' + name, 'src/sub/' + name)\n"
                 "shutil.rmtree(os.path.dirname(box))")
    world.need_no_changes()


def ren_put_back_when_the_command_ends(world):
    world.begin(f"os.makedirs('src/sub')\nfor i in range({world.many}):\n    put('src/sub/%d' % i, 'x')\n")
    world.inside(WORKER + '''
worker()
try:
    while len(os.listdir('src/sub')) > ''' + str(world.many - 100) + ''':
        pass
except FileNotFoundError:
    pass
os._exit(0)
''')
    places = names_of(world)
    if all(p == ['./lib/sub'] for p in places.values()):
        raise TooLate('the directory was renamed before the command ended')
    need(len(places) == world.many and all(p == ['./src/sub'] for p in places.values()),
         f'{len(places)} files, not all where they were')
    world.need_no_changes()


def ren_listener_is_out_of_reach(world):
    world.begin(f"os.makedirs('src/sub')\nfor i in range({world.many}):\n    put('src/sub/%d' % i, 'x')\n")
    world.inside("""
for fd in os.listdir('/proc/self/fd'):
    assert int(fd) <= 3, fd  # 3 is that of the list
""" + WORKER + """
it = worker()
if it:
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    assert libc.ptrace(0x4206, it, 0, 0) < 0 and ctypes.get_errno() in (errno.EPERM, errno.ESRCH)  # PTRACE_SEIZE
    pidfd = libc.syscall(434, it, 0)
    for fd in range(64):
        assert libc.syscall(438, pidfd, fd, 0) < 0  # pidfd_getfd
assert os.waitpid(pid, 0)[1] == 0
""")


def ren_not_through_what_pid_1_has_open(world):
    """In a path of the command's "/proc/self" is the command, also for the process that does the work."""
    world.begin(TREE)
    world.inside("""
before = os.stat('src').st_ino
for fd in filter(str.isdigit, os.listdir('/proc/1/fd')):
    tell(os.rename, '/proc/self/fd/%s/src' % fd, '/proc/self/fd/%s/lib' % fd)
assert before == os.stat('src').st_ino, 'it was raised'
assert os.path.isdir('src')
fd = os.open('.', os.O_PATH)
try:
    os.rename('/proc/self/fd/%d/src' % fd, 'lib')
    assert False
except OSError as e:  # as the kernel says
    assert e.errno == errno.EXDEV, e
assert before == os.stat('src').st_ino
""")


TESTS = [value for name, value in list(globals().items()) if name.startswith('ren_')]


def attempt(test, as_user, many=MANY):
    top = tempfile.mkdtemp(prefix='atoll-rename-', dir=os.environ.get('ATOLL_TEST_DIR', '/var/tmp'))
    os.chmod(top, 0o755)
    world = World(top, as_user, many)
    try:
        test(world)
        return None
    except TooLate as late:
        if many == MANY * 4 ** (TRIES - 1):
            return str(late)
    except Broken as broken:
        return str(broken)
    except Exception:  # one that cannot run has failed too
        return traceback.format_exc()
    finally:
        subprocess.run([*world.me, ATOLL, 'stop', '--force', '--yes', 'p'], env=world.env, cwd=top, check=False,
                       capture_output=True)
        subprocess.run(['chmod', '-R', 'u+rwX', top], check=False, capture_output=True)
        shutil.rmtree(top, ignore_errors=True)
    return attempt(test, as_user, many * 4)


def main():
    whos = ['root', 'user'] if os.geteuid() == 0 else ['user']
    runs = [(who, test) for who in whos for test in TESTS]
    print(f'1..{len(runs)}', flush=True)
    bad = 0
    for number, (who, test) in enumerate(runs, 1):
        broken = attempt(test, who == 'user')
        bad += broken is not None
        print(f'{"ok" if broken is None else "not ok"} {number} - {test.__name__}_as_{who}')
        for line in (broken or '').splitlines():
            print('#', line, flush=True)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())

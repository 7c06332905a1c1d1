# SPDX-License-Identifier: Apache-2.0
"""A daemon that is "there", a store that is "here", and projects between them.

    with World(top) as w:
        p = w.project('a', git=True)
        done = p.exec('sh', '-c', 'echo hello >new')
        same(done.returncode, 0, 'the command')
        same(p.read('new'), b'hello\n', 'what it made')
"""

import os
import signal
import stat
import subprocess
import time
from pathlib import Path

from atolld import PATIENCE, Daemon
from expect import need, same

LONG = os.environ.get('ATOLL_LONG') == '1'
GIT_ENV = {'GIT_CONFIG_GLOBAL': '/dev/null', 'GIT_CONFIG_SYSTEM': '/dev/null', 'GIT_AUTHOR_NAME': 'a',
           'GIT_AUTHOR_EMAIL': 'a@example.com', 'GIT_COMMITTER_NAME': 'a', 'GIT_COMMITTER_EMAIL': 'a@example.com',
           'GIT_AUTHOR_DATE': '2020-01-01T00:00:00Z', 'GIT_COMMITTER_DATE': '2020-01-01T00:00:00Z'}


def look(root, times=False, leave_out=()):
    """Everything below ROOT: {path: what it is}."""
    found = {}
    root = os.fsencode(root)
    for folder, dirs, files in os.walk(root):
        for name in sorted(dirs + files):
            path = os.path.join(folder, name)
            at = os.path.relpath(path, root)
            if any(at == o or at.startswith(o + b'/') for o in leave_out):
                continue
            st = os.lstat(path)
            mode = stat.S_IMODE(st.st_mode)
            if stat.S_ISLNK(st.st_mode):
                found[at] = ('link', os.readlink(path))
            elif stat.S_ISDIR(st.st_mode):
                found[at] = ('dir', mode)
            elif stat.S_ISREG(st.st_mode):
                with open(path, 'rb') as f:
                    found[at] = ('file', mode, f.read(), *([st.st_mtime_ns] if times else []))
            else:
                found[at] = ('other', stat.S_IFMT(st.st_mode))
    return found


class Project:
    """A directory of here, at the remote `big`."""

    def __init__(self, world, root, git):
        self.w, self.root, self.is_git = world, Path(root), git
        self.root.mkdir()
        if git:
            self.git('init', '-q', '-b', 'main')
            self.git('config', 'gc.auto', '0')

    # ---- its files ----

    def at(self, name):
        return os.path.join(os.fsencode(self.root), os.fsencode(name))

    def write(self, name, data=b'', mode=0o644):
        path = self.at(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        os.chmod(path, mode)

    def read(self, name):
        with open(self.at(name), 'rb') as f:
            return f.read()

    def has(self, name):
        return os.path.lexists(self.at(name))

    def git(self, *words, check=True):
        return subprocess.run(['git', *words], cwd=self.root, env=dict(self.w.env, **GIT_ENV), check=check,
                              capture_output=True).stdout

    def status(self):
        return self.git('status', '--porcelain=v2', '--branch', '--untracked-files=all', '--ignored')

    def look(self, **more):
        """Without what git rewrites as it likes, which status() tells better."""
        return look(self.root, leave_out=[b'.git'] if self.is_git else [], **more)

    # ---- its session ----

    def start(self, *words, options=(), env=None, **more):
        return subprocess.Popen([self.w.program, '--remote', 'big', 'exec', *options, '--', *words], cwd=self.root,
                                env=dict(self.w.env, **(env or {})), **more)

    def exec(self, *words, options=(), env=None, stdin=subprocess.DEVNULL, **more):
        more.setdefault('timeout', PATIENCE)
        if 'input' not in more:
            more['stdin'] = stdin
        return subprocess.run([self.w.program, '--remote', 'big', 'exec', *options, '--', *words], cwd=self.root,
                              env=dict(self.w.env, **(env or {})), capture_output=True, check=False, **more)

    def sh(self, script, **more):
        return self.exec('sh', '-c', script, **more)

    def good(self, script, **more):
        """Its output. Who comes after a client that was killed may be told, on a machine with much to do, that it waits."""
        done = self.sh(script, **more)
        said = [line for line in done.stderr.splitlines(keepends=True) if b'waiting for ' not in line]
        same((done.returncode, b''.join(said)), (0, b''), script)
        return done.stdout

    def atoll(self, *words, **more):
        return self.w.atoll(*words, cwd=self.root, **more)


class World:
    """OPTIONS are the daemon's."""

    def __init__(self, top, *options, url=None, daemon=True):
        self.top = Path(top)
        self.program = os.environ['ATOLL']
        (self.top / 'there').mkdir(0o700)
        (self.top / 'config').mkdir()
        self.options = [f'--mirrors={self.top}/mirrors', *options]
        self.url = url or f'unix:{self.top}/sock'
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(('GIT_', 'ATOLL_REMOTE'))}
        self.env.update(ATOLL_HOME=str(self.top / 'here'), HOME=str(self.top), LC_ALL='C.UTF-8',
                        XDG_CONFIG_HOME=str(self.top / 'config'), NO_COLOR='1')
        self.daemon = self.make_daemon() if daemon else None

    def make_daemon(self):
        return Daemon(self.top, *self.options, home=self.top / 'there', env={'HOME': str(self.top), **GIT_ENV})

    def __enter__(self):
        if self.daemon:
            self.daemon.start()
        self.must('remote', 'add', 'big', self.url)
        return self

    def __exit__(self, kind, *_):
        if self.daemon:
            self.daemon.__exit__(kind)

    def restart(self, sig=signal.SIGKILL):
        """The daemon dies, and another comes."""
        self.daemon.tell(sig)
        self.daemon.process.wait(PATIENCE)
        self.daemon.notify.close()
        self.daemon = self.make_daemon().start()

    def atoll(self, *words, cwd=None, env=None, **more):
        return subprocess.run([self.program, *words], cwd=cwd or self.top, env=dict(self.env, **(env or {})),
                              stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PATIENCE, **more)

    def must(self, *words, **more):
        done = self.atoll(*words, **more)
        need(done.returncode == 0, f'atoll {words}: {done.returncode} {done.stdout} {done.stderr}')
        return done.stdout

    def project(self, name='project', git=False):
        return Project(self, self.top / name, git)

    def plans_here(self):
        """Names of the plans of this store."""
        import json
        return [p['name'] for p in json.loads(self.must('list', '--json'))['plans']]

    def mirror(self):
        """The only one."""
        found = [d for d in (self.top / 'mirrors').iterdir() if not d.name.startswith('.')]
        same(len(found), 1, f'mirrors {found}')
        return found[0]


def wait_until(done, text, patience=PATIENCE):
    end = time.monotonic() + patience
    while not done():
        need(time.monotonic() < end, text)
        time.sleep(0.02)

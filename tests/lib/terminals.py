# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal of its own, and a plan to run it in. ATOLL says which program is tested."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
from pathlib import Path

from expect import Broken, need

ATOLL = os.environ.get('ATOLL', '')
PATIENCE = int(os.environ.get('ATOLL_TEST_PATIENCE', '90'))


class Terminal:
    """A program on a terminal of its own, which it controls."""

    def __init__(self, argv, env, cwd, rows=24, columns=80):
        self.shown = b''
        self.status = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # Python ignores some, a script's background job others; a login does not.
            for sig in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT):
                signal.signal(sig, signal.SIG_DFL)
            os.chdir(cwd)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))
            os.execvpe(argv[0], argv, env)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def read(self, timeout):
        if not select.select([self.fd], [], [], timeout)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b''
        self.shown += data
        return bool(data)

    def expect(self, pattern, text=None):
        """Until the screen has shown it; what was shown before is forgotten."""
        end = time.monotonic() + PATIENCE
        while not (found := re.search(pattern.encode(), self.shown)):
            need(time.monotonic() < end and self.read(0.1),
                 f'{text or pattern} was not shown, but:\n{self.shown.decode(errors="replace")}')
        self.shown = self.shown[found.end():]

    def say(self, keys, pattern):
        """Types until it is shown: what is typed while the terminal changes hands is lost."""
        for _ in range(12):
            self.type(keys)
            end = time.monotonic() + PATIENCE / 12
            while time.monotonic() < end and not re.search(pattern.encode(), self.shown):
                need(self.read(0.1), f'{pattern} was not shown, but:\n{self.shown.decode(errors="replace")}')
            if re.search(pattern.encode(), self.shown):
                break
        self.expect(pattern)

    def end(self):
        """Its wait status as a shell would tell it."""
        end = time.monotonic() + PATIENCE
        while True:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                os.close(self.fd)
                return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            need(time.monotonic() < end, f'it does not end: {self.shown.decode(errors="replace")}')

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self.fd)


class World:
    def __init__(self):
        self.top = Path(tempfile.mkdtemp(prefix='atoll-terminal.', dir='/var/tmp'))
        self.root = self.top / 'root'
        self.root.mkdir()
        (self.root / 'file').write_text('old\n')
        self.env = dict(os.environ, ATOLL_HOME=str(self.top / 'home'), NO_COLOR='1', LC_ALL='C.UTF-8',
                        TERM='xterm', HOME=str(self.top), PS1='ready> ')
        self.terminals = []
        self.atoll('start', 'p', '--dir', str(self.root))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for terminal in self.terminals:
            terminal.close()
        self.atoll('stop', '--force', '--yes', '--wait', '20', 'p')
        shutil.rmtree(self.top)

    def atoll(self, *words, **more):
        return subprocess.run([ATOLL, *words], env=self.env, cwd=self.root, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=300, **more)

    def terminal(self, *argv, **more):
        self.terminals.append(Terminal(list(argv), self.env, self.root, **more))
        return self.terminals[-1]

    def exec(self, *argv, **more):
        return self.terminal(ATOLL, 'exec', 'p', '--', *argv, **more)

    def inside(self, *argv):
        return self.atoll('exec', 'p', '--', *argv).stdout.decode()

    def lock_is_free(self):
        return self.atoll('exec', '--wait', '0', 'p', '--', 'true').returncode == 0

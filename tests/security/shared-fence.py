# SPDX-License-Identifier: Apache-2.0
"""A command that joins another one has the fences that the other has: what only Landlock stops (a descriptor that is
opened once more for writing, an abstract socket of the host, a signal to the caller's process group)."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tools'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from expect import complaining, need, same  # noqa: E402
from tap import run  # noqa: E402
from users import begin  # noqa: E402

ATOLL = os.environ.get('ATOLL', '')
SABOTAGE = os.environ.get('ATOLL_TEST_SABOTAGE') == '1'
PYTHON = '/usr/bin/python3'


class World:
    def __init__(self):
        self.top = Path(tempfile.mkdtemp(prefix='atoll-shared.', dir='/var/tmp'))
        self.root = self.top / 'root dir'
        self.root.mkdir()
        (self.root / 'file').write_text('old\n')
        (self.top / 'outside').write_text('old\n')
        self.env = dict(os.environ, ATOLL_HOME=str(self.top / 'home'), NO_COLOR='1', LC_ALL='C.UTF-8', HOME=str(self.top / 'me'))
        (self.top / 'me').mkdir()
        self.atoll('start', 'p', '--dir', str(self.root))
        self.first = subprocess.Popen([ATOLL, 'exec', 'p', '--', 'sh', '-c', 'echo begun; exec sleep 100000'], env=self.env,
                                      cwd=self.root, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        same(self.first.stdout.readline(), b'begun\n', 'the first command')

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.first.kill()
        self.first.wait()
        self.first.stdout.close()
        self.atoll('stop', '--force', '--yes', '--wait', '60', 'p')
        shutil.rmtree(self.top)

    def atoll(self, *words, **more):
        return subprocess.run([ATOLL, *words], env=self.env, cwd=self.root, capture_output=True, check=False,
                              **{'stdin': subprocess.DEVNULL, **more})

    def shared(self, *words, **more):
        return self.atoll('exec', '--shared', 'p', '--', *words, **more)


def reopen():
    with World() as w, open(w.top / 'outside', encoding='utf-8') as outside:
        w.shared('sh', '-c', 'echo evil >/proc/self/fd/0', stdin=outside)
        return (w.top / 'outside').read_text()


def attack_by_a_descriptor():
    """A file outside that was given to be read."""
    same(reopen(), 'old\n', 'the file outside')
    if SABOTAGE:
        os.environ['ATOLL_SABOTAGE'] = 'landlock'
        try:
            same(reopen(), 'evil\n', 'control: without Landlock')
        finally:
            del os.environ['ATOLL_SABOTAGE']


def attack_by_an_abstract_socket():
    """The host's; where the kernel keeps the first command from it."""
    with World() as w:
        name = f'\0atoll-shared-{os.getpid()}'
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(name)
            listener.listen()
            connect = (PYTHON, '-c', f'import socket; s = socket.socket(socket.AF_UNIX); s.connect({name!r})')
            w.first.kill()
            w.first.wait()
            alone = w.atoll('exec', 'p', '--', *connect).returncode
            w.first.stdout.close()
            w.first = subprocess.Popen([ATOLL, 'exec', 'p', '--', 'sh', '-c', 'echo begun; exec sleep 100000'], env=w.env,
                                       cwd=w.root, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
            same(w.first.stdout.readline(), b'begun\n', 'the first command')
            same(w.shared(*connect).returncode, alone, 'as the first command')


def attack_on_the_callers_group():
    """kill 0 reaches the command itself, and not who called it."""
    with World() as w:
        alive = subprocess.Popen(['sh', '-c', f'"{ATOLL}" exec --shared p -- sh -c "kill -USR1 0"; echo alive'], env=w.env,
                                 cwd=w.root, stdout=subprocess.PIPE, start_new_session=True, stdin=subprocess.DEVNULL)
        said = alive.communicate()[0]
        need(said == b'alive\n' or alive.returncode == -signal.SIGUSR1, f'it said {said!r}')
        same(said, b'alive\n', 'the shell that called it')


def control_what_it_may_write():
    """The work, /tmp, its layer of the home and its own descriptors; and what it starts."""
    with World() as w:
        out = w.top / 'out'
        with open(out, 'wb') as stdout:
            said = subprocess.run([ATOLL, 'exec', '--shared', 'p', '--', 'sh', '-c',
                                   'set -e; echo new >file; mkdir d; mv file d/file; echo x >/tmp/x; echo x >"$HOME/.x";'
                                   ' echo x >/dev/null; echo said >/dev/stdout; sleep 100 & kill $!'], env=w.env, cwd=w.root,
                                  stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, check=False)
        same((said.returncode, said.stderr), (0, b''), 'the command')
        same(out.read_text(), 'said\n', 'standard output')
        same((w.root / 'file').read_text(), 'old\n', 'the original')
        w.shared('sh', '-c', f'echo x >"{w.top}/outside"')
        same((w.top / 'outside').read_text(), 'old\n', 'the file outside')
        need(w.shared('sh', '-c', 'echo x >/etc/atoll-shared').returncode != 0, 'it wrote to /etc')


if __name__ == '__main__':
    begin()
    sys.exit(run([complaining(check) for check in (
        attack_by_a_descriptor,
        attack_by_an_abstract_socket,
        attack_on_the_callers_group,
        control_what_it_may_write,
    )]))

# SPDX-License-Identifier: Apache-2.0
"""`atoll run` and a signal in each of its phases: nothing half-made is left, and work, where there is
any, is kept."""

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

sys.path.insert(0, str(Path(os.environ.get('ATOLL_SOURCE_ROOT', '.')) / 'tools'))
from tap import run  # noqa: E402

ATOLL = os.environ.get('ATOLL', '')
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
QUESTION = b'iscard ? '
SOME = 500   # enough to take a moment to copy
ATTEMPTS = 50
PATIENCE = 90


class Broken(Exception):
    pass


def need(ok, text):
    if not ok:
        raise Broken(text)


def wait_for(what, text):
    end = time.monotonic() + PATIENCE
    while not what():
        need(time.monotonic() < end, f'waited in vain for {text}')
        time.sleep(0.005)


class World:
    def __init__(self):
        self.top = Path(tempfile.mkdtemp(prefix='atoll-signals.', dir='/var/tmp'))
        self.root = self.top / 'root'
        self.root.mkdir()
        (self.root / 'file').write_text('old\n')
        self.env = dict(os.environ, ATOLL_HOME=str(self.top / 'home'), NO_COLOR='1', LC_ALL='C.UTF-8')
        self.master = self.process = None
        self.said = b''

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.master is not None:
            os.close(self.master)
        for plan in self.plans():
            self.atoll('stop', '--force', '--yes', '--wait', '20', plan['id'])
        subprocess.run(['chmod', '-R', 'u+rwx', self.top], check=False)
        shutil.rmtree(self.top, ignore_errors=True)

    def atoll(self, *argv):
        return subprocess.run([ATOLL, *argv], cwd=self.root, env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)

    def plans(self):
        return json.loads(self.atoll('list', '--json').stdout)['plans']

    def copies(self):
        """Whether there is a file in the store that is like one of the directory's."""
        return any(name.startswith('f') for _, _, names in os.walk(self.top / 'home/plans') for name in names)

    def kept_by(self, name):
        """Whether a plan has changed it, by now."""
        return any(name in self.atoll('diff', plan['id']).stdout for plan in self.plans())

    def begin(self, *argv):
        """`atoll run` on a terminal of its own, as a shell in the foreground would start it."""
        if self.master is not None:
            os.close(self.master)
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen([ATOLL, 'run', *argv], cwd=self.root, env=self.env, stdin=slave,
                                        stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)

    def hear(self, seconds=0.0):
        """What it says, as far as there is any; ends when it does."""
        while select.select([self.master], [], [], seconds)[0]:
            try:
                some = os.read(self.master, 65536)
            except OSError:
                return
            if not some:
                return
            self.said += some

    def hears(self, text):
        self.hear()
        return text in self.said

    def end(self):
        wait_for(lambda: (self.hear(), self.process.poll())[1] is not None, 'the end of run')
        return self.process.returncode

    def nothing_real_changed(self):
        need((self.root / 'file').read_text() == 'old\n', 'the resource was changed')
        need([p.name for p in self.root.iterdir() if p.name.startswith('.atoll')] == [], 'an area was left')

    def kept(self, changes):
        """One plan, whole, with the work in it."""
        plans = self.plans()
        need(len(plans) == 1, f'{len(plans)} plans: {self.said.decode()}')
        need(not plans[0]['in_doubt'], 'the plan is in doubt')
        diff = self.atoll('diff', '--name-status', plans[0]['id']).stdout.splitlines()
        need(len(diff) == changes, f'{len(diff)} changes are left of {changes}')
        self.nothing_real_changed()
        return plans[0]

    def nothing_left(self):
        done = self.atoll('clean')
        need(done.returncode == 0, f'clean: exit {done.returncode}: {done.stderr}')
        need(self.plans() == [], f'a plan is left: {self.said.decode()}')
        need(not any((self.top / 'home/plans').iterdir()), 'a directory is left in the store')
        self.nothing_real_changed()


def each(body):
    complaints = []
    for sig in SIGNALS:
        try:
            with World() as world:
                body(world, sig)
        except Broken as why:
            complaints.append(f'{sig.name}: {why}')
    return complaints


def caught_starting(world):
    """Stopped in the middle of copying; false when that was over before anybody looked."""
    wait_for(lambda: world.process.poll() is not None or world.copies(), 'a plan that is being made')
    world.process.send_signal(signal.SIGSTOP)
    return world.process.poll() is None and any(p['starting'] for p in world.plans())


def cln_05_signal_while_run_starts():
    def body(world, sig):
        for i in range(SOME):
            (world.root / f'f{i}').write_text('old\n')
        for _ in range(ATTEMPTS):
            world.begin('--strategy', 'copy', '--', 'true')
            if caught_starting(world):
                break
            world.process.send_signal(signal.SIGCONT)
            world.end()
        else:
            raise Broken('it was made too quickly to be seen')
        world.process.send_signal(sig)
        world.process.send_signal(signal.SIGCONT)
        need(world.end() == -sig, f'run ended with {world.process.returncode}')
        world.nothing_left()
    return each(body)


def cln_05_signal_while_the_command_of_run_works():
    def body(world, sig):
        world.begin('--', 'sh', '-c', 'echo new >file; echo ready; exec sleep 60')
        wait_for(lambda: world.hears(b'ready'), 'the command')
        world.process.send_signal(sig)
        # The command died of it; what it did is kept, or asked about.
        wait_for(lambda: world.hears(QUESTION), 'the question')
        os.write(world.master, b'k\n')
        need(world.end() in (128 + sig, -sig), f'run ended with {world.process.returncode}')
        world.kept(1)
    return each(body)


def cln_05_signal_while_a_command_without_work_runs():
    def body(world, sig):
        world.begin('--', 'sh', '-c', 'echo ready; exec sleep 60')
        wait_for(lambda: world.hears(b'ready'), 'the command')
        world.process.send_signal(sig)
        need(world.end() in (128 + sig, -sig), f'run ended with {world.process.returncode}')
        world.nothing_left()
    return each(body)


# Fills the terminal, which nobody reads, to the last byte.
FILL = """import os, time
os.set_blocking(1, False)
full = 0
while full < 3:
    try:
        os.write(1, b"x")
        full = 0
    except BlockingIOError:
        full += 1
        time.sleep(0.05)
os.set_blocking(1, True)
open("file", "w").write("new")
"""


def cln_05_signal_while_run_shows_the_changes():
    def body(world, sig):
        world.begin('--', sys.executable, '-c', FILL)
        # Then it waits in the middle of the summary.
        wait_for(lambda: select.select([world.master], [], [], 0)[0], 'the first bytes')
        wait_for(lambda: world.kept_by('file'), 'the command')
        time.sleep(0.5)
        world.process.send_signal(sig)
        need(world.end() == -sig, f'run ended with {world.process.returncode}')
        need(b'kept ' in world.said and b'atoll commit' in world.said, 'it does not say that it kept them')
        need(QUESTION not in world.said, 'it asked all the same')
        world.kept(1)
    return each(body)


def cln_05_signal_while_run_asks():
    def body(world, sig):
        world.begin('--', 'sh', '-c', 'echo new >file')
        wait_for(lambda: world.hears(QUESTION), 'the question')
        world.process.send_signal(sig)
        need(world.end() == -sig, f'run ended with {world.process.returncode}')
        need(b'kept 1 change' in world.said, 'it does not say that it kept them')
        plan = world.kept(1)
        need(not plan['abandoned'] and not plan['owned'], 'the plan was not kept in order')
        world.atoll('clean')
        need(not world.kept(1)['abandoned'], 'clean took it for abandoned')
    return each(body)


def cln_05_end_of_input_when_run_asks():
    with World() as world:
        try:
            world.begin('--', 'sh', '-c', 'echo new >file')
            wait_for(lambda: world.hears(QUESTION), 'the question')
            os.write(world.master, b'\x04')
            need(world.end() == 0, f'run ended with {world.process.returncode}')
            world.kept(1)
        except Broken as why:
            return [str(why)]
    return []


if __name__ == '__main__':
    sys.exit(run([
        cln_05_signal_while_run_starts,
        cln_05_signal_while_the_command_of_run_works,
        cln_05_signal_while_a_command_without_work_runs,
        cln_05_signal_while_run_shows_the_changes,
        cln_05_signal_while_run_asks,
        cln_05_end_of_input_when_run_asks,
    ]))

# SPDX-License-Identifier: Apache-2.0
"""What is left when `atoll exec` has ended, what it still hears while it ends, and what it is asked in odd
surroundings. As root and as an ordinary user; what mounts something only as root."""

import ctypes
import fcntl
import functools
import json
import os
import platform
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tools'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from expect import Broken, complaining, need, same  # noqa: E402
from tap import Skip, run  # noqa: E402

ATOLL = os.environ.get('ATOLL', '')
PATIENCE = 60
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
SYS_SECCOMP = {'x86_64': 317, 'aarch64': 277, 'riscv64': 277}


class World:
    def __init__(self):
        self.top = Path(tempfile.mkdtemp(prefix='atoll-ends.', dir='/var/tmp'))
        self.root = self.top / 'root'
        self.root.mkdir()
        (self.root / 'file').write_text('old\n')
        self.env = dict(os.environ, ATOLL_HOME=str(self.top / 'home'), NO_COLOR='1', LC_ALL='C.UTF-8')
        same(self.atoll('start', 'p', '--dir', str(self.root)).returncode, 0, 'start')

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.atoll('stop', '--force', '--yes', 'p')
        shutil.rmtree(self.top, ignore_errors=True)

    def atoll(self, *argv, before=(), **kw):
        kw = {'stdin': subprocess.DEVNULL, 'capture_output': True, 'text': True, **kw}
        return subprocess.run([*before, ATOLL, *argv], cwd=self.root, env=self.env, check=False, **kw)

    def begin(self, *argv, **kw):
        return subprocess.Popen([ATOLL, *argv], cwd=self.root, env=self.env, **kw)


def in_a_world(check):
    @functools.wraps(check)
    def checked():
        with World() as w:
            check(w)
    return checked


def as_root(check):
    @functools.wraps(check)
    def checked(w):
        if os.geteuid() != 0:
            raise Skip('mounts something')
        check(w)
    return checked


def full_pipe():
    reads, writes = os.pipe()
    size = fcntl.fcntl(writes, fcntl.F_GETPIPE_SZ)
    os.write(writes, b'x' * size)
    return reads, writes


def exec_hears_signals_when_its_command_has_ended(w):
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        reads, writes = full_pipe()
        # What it has to say does not get through.
        p = w.begin('exec', '--json', 'p', '--', 'sh', '-c', ': >ended', stdout=writes)
        end = time.monotonic() + PATIENCE
        while b'pipe_write' not in Path(f'/proc/{p.pid}/wchan').read_bytes():
            need(time.monotonic() < end and p.poll() is None, 'it does not come to its last words')
            time.sleep(0.01)
        p.send_signal(sig)
        try:
            same(p.wait(PATIENCE), -sig, f'ended by {sig}')
        except subprocess.TimeoutExpired:
            p.kill()
            raise Broken(f'{sig} is not heard') from None
        finally:
            os.close(reads)
            os.close(writes)


def ended_by_a_key(w, options, after):
    """How it ended, when ^C was typed that many seconds after it was loaded."""
    loaded, ours = os.pipe()
    pid, tty = pty.fork()
    if pid == 0:
        os.chdir(w.root)
        os.execve(ATOLL, [ATOLL, 'exec', *options, 'p', '--', 'sleep', '1'], w.env)
    os.close(ours)
    os.read(loaded, 1)
    os.close(loaded)
    time.sleep(after)
    os.write(tty, b'\x03')
    said = b''
    try:
        while select.select([tty], [], [], PATIENCE)[0]:
            said += os.read(tty, 4096) or b'at its end'
    except OSError:
        pass
    status = os.waitpid(pid, 0)[1]
    os.close(tty)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status), said


def exec_is_ended_by_a_key_at_any_moment(w):
    for options in ([], ['--net', 'none'], ['--transcript']):
        for i in range(40):
            sig, said = ended_by_a_key(w, options, i * 0.0004)
            same(sig, signal.SIGINT, f'{options}, after {i * 0.4} ms: {said!r}')


def exec_is_ended_by_what_its_group_is_sent_at_any_moment(w):
    """Of two that are the same, one sent by the kernel or by anybody, only the first is kept."""
    for i in range(40):
        sig = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)[i % 4]
        p = w.begin('exec', '--net', 'none', 'p', '--', 'sleep', '2', process_group=0, stderr=subprocess.DEVNULL)
        time.sleep(0.003 + i * 0.0006)
        os.killpg(p.pid, sig)
        code = p.wait(PATIENCE)
        need(code in (-sig, 128 + sig), f'{sig!r} after {3 + i * 0.6} ms: it ended with {code}')


def exec_hears_a_key_while_its_namespaces_are_made(w):
    """Each new process takes long: strace sees to that, beside which no leaks can be looked for."""
    env = dict(w.env, ASAN_OPTIONS=w.env.get('ASAN_OPTIONS', '') + ':detect_leaks=0')
    for after in (0.2, 0.5, 0.8):
        pid, tty = pty.fork()
        if pid == 0:
            os.chdir(w.root)
            os.execvpe('strace', ['strace', '-DDD', '-f', '-qq', '-o', '/dev/null', '-e', 'trace=clone,clone3', '-e',
                                  'inject=clone,clone3:delay_enter=300000', ATOLL, 'exec', 'p', '--', 'sleep', '5'], env)
        time.sleep(after)
        os.write(tty, b'\x03')
        try:
            while select.select([tty], [], [], PATIENCE)[0] and os.read(tty, 4096):
                pass
        except OSError:
            pass
        status = os.waitpid(pid, 0)[1]
        os.close(tty)
        need(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT, f'after {after} s: it ended with {status}')


LISTENS = 'trap "echo heard; exit 9" TERM; echo begun; while :; do sleep 0.02; done'


def is_told(p, who):
    """The command of P, which is LISTENS."""
    same(p.stdout.readline(), 'begun\n', who)
    p.send_signal(signal.SIGTERM)
    try:
        same((p.communicate(timeout=PATIENCE)[0], p.returncode), ('heard\n', 9), who)
    except subprocess.TimeoutExpired:
        p.kill()
        raise Broken(f'{who}: it is not heard') from None


def exec_tells_the_command_also_where_it_is_tried_in_another_way(w):
    same(w.atoll('start', 'q', '--dir', str(w.root), '--strategy', 'copy').returncode, 0, 'start')
    try:
        # The first helper has no namespaces to offer.
        script = 'echo 0 >/proc/sys/user/max_mnt_namespaces; echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"'
        is_told(subprocess.Popen(['unshare', '-Ur', 'sh', '-c', script, 'sh', ATOLL, 'exec', 'q', '--unfenced', '--', 'sh', '-c',
                                  LISTENS],
                                 cwd=w.root, env=w.env, stdout=subprocess.PIPE, text=True), 'without namespaces')
    finally:
        w.atoll('stop', '--force', '--yes', 'q')


def exec_tells_its_own_command_beside_children_of_others(w):
    # They are atoll's when a shell becomes atoll.
    script = 'sleep 300 >/dev/null 2>&1 & echo $! >&2; exec "$@"'
    p = subprocess.Popen(['sh', '-c', script, 'sh', ATOLL, 'exec', 'p', '--', 'sh', '-c', LISTENS], cwd=w.root,
                         env=w.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    other = int(p.stderr.readline())
    p.stderr.close()
    try:
        is_told(p, 'beside another child')
        os.kill(other, 0)
    finally:
        os.kill(other, signal.SIGKILL)


def exec_writes_its_own_to_no_place_of_the_commands(w):
    for closed in ('>&-', '2>&-', '<&-', '<&- >&- 2>&-'):
        argv = f'"$ATOLL" exec --json --status-file status p -- sh -c "echo printed; echo said >&2; exit 3" {closed}'
        r = subprocess.run(['sh', '-c', argv], cwd=w.root, env=dict(w.env, ATOLL=ATOLL), capture_output=True, check=False)
        same(r.returncode, 3, closed)
        status = json.loads((w.root / 'status').read_text())
        same(status['exit_code'], 3, closed)


def children():
    return Path(f'/proc/self/task/{os.getpid()}/children').read_text().split()


def der_14_exec_leaves_no_helper_behind(w):
    # Whoever loses his parent is ours, and we collect nobody.
    same(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0, 'subreaper')
    try:
        for _ in range(20):
            same(w.atoll('exec', 'p', '--', 'true').returncode, 0, 'exec')
            same(children(), [], 'processes after it')
    finally:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def exec_says_that_somebody_outside_can_still_write(w):
    ours, theirs = socket.socketpair()
    p = w.begin('exec', 'p', '--', 'python3', '-c',
                'import socket; f = open("held", "w"); s = socket.socket(fileno=0)\n'
                'socket.send_fds(s, [b"x"], [f.fileno()])', stdin=theirs, stderr=subprocess.PIPE, text=True)
    theirs.close()
    said = p.communicate()[1]
    same(p.returncode, 0, 'exec')
    need('still open for writing' in said, f'nothing is said of it: {said!r}')
    ours.close()
    said = w.atoll('exec', 'p', '--', 'true').stderr
    need('still open' not in said, f'it is said again: {said!r}')


def exec_does_not_say_so_of_what_went_with_the_command(w):
    """Of sockets on their way through each other the kernel finds out in its own time that nobody has them."""
    script = ('import array, socket; files = [open(f"f{i}", "w") for i in range(3)]; pair = socket.socketpair()\n'
              'fds = array.array("i", [x.fileno() for x in (*files, *pair)])\n'
              'for s in pair: s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])')
    for _ in range(5):
        r = w.atoll('exec', 'p', '--', 'python3', '-c', script)
        same((r.returncode, r.stderr), (0, ''), 'exec')


def refuse_filters(error):
    """From here on seccomp(SECCOMP_SET_MODE_FILTER) answers ERROR, in this process and its children."""
    load, equal, answer = 0x20, 0x15, 0x06
    steps = [(load, 0, 0, 0), (equal, 0, 3, SYS_SECCOMP[platform.machine()]),
             (load, 0, 0, 16), (equal, 0, 1, 1), (answer, 0, 0, 0x00050000 | error), (answer, 0, 0, 0x7fff0000)]
    program = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
    head = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(steps), ctypes.addressof(program)))
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, head) != 0:
        os._exit(99)


def exec_without_the_filter_that_there_should_be_is_refused(w):
    if platform.machine() not in SYS_SECCOMP:
        raise Skip('the number of seccomp() is not known')
    r = w.atoll('exec', 'p', '--', 'sh', '-c', 'echo new >file', preexec_fn=lambda: refuse_filters(22))
    same(r.returncode, 125, f'exec: {r.stderr}')
    need('filter system calls' in r.stderr, f'it says {r.stderr!r}')
    same(w.atoll('exec', 'p', '--', 'cat', 'file').stdout, 'old\n', 'nothing was run')


@as_root
def exec_that_waited_sees_what_was_mounted_meanwhile(w):
    (w.root / 'sub').mkdir()
    script = f'''
        set -e
        mount --make-rprivate /
        "$ATOLL" exec p -- sh -c 'echo begun >&2; sleep 1' &
        sleep 0.3
        "$ATOLL" exec p -- ls sub >out &
        sleep 0.3
        mount -t tmpfs none {w.root}/sub
        : >{w.root}/sub/mounted
        wait'''
    r = subprocess.run(['unshare', '-m', 'sh', '-c', script], cwd=w.root, env=w.env, capture_output=True, text=True,
                       check=False)
    same(r.returncode, 0, f'script: {r.stderr}')
    same((w.root / 'out').read_text(), 'mounted\n', 'what the second command saw')


@as_root
def nothing_is_done_in_a_boot_without_a_name(w):
    need(w.atoll('exec', 'p', '--', 'sh', '-c', 'echo new >file').returncode == 0, 'exec')
    for argv in (('exec', 'p', '--', 'true'), ('path', 'p'), ('list',), ('stop', '--force', 'p')):
        r = subprocess.run(['unshare', '-pfm', 'sh', '-c', 'mount -t proc -o subset=pid proc /proc && exec "$@"', 'sh',
                            ATOLL, *argv], cwd=w.root, env=w.env, capture_output=True, text=True, check=False)
        same(r.returncode, 125 if argv[0] == 'exec' else 6, f'{argv}: {r.stderr}')
        need('boot_id' in r.stderr and 'ProcSubset' in r.stderr, f'{argv} says {r.stderr!r}')
    r = w.atoll('exec', 'p', '--', 'cat', 'file')
    same((r.returncode, r.stdout), (0, 'new\n'), f'the work: {r.stderr}')


if __name__ == '__main__':
    sys.exit(run([complaining(in_a_world(check)) for check in (
        exec_hears_signals_when_its_command_has_ended,
        exec_is_ended_by_a_key_at_any_moment,
        exec_is_ended_by_what_its_group_is_sent_at_any_moment,
        exec_hears_a_key_while_its_namespaces_are_made,
        exec_tells_the_command_also_where_it_is_tried_in_another_way,
        exec_tells_its_own_command_beside_children_of_others,
        exec_writes_its_own_to_no_place_of_the_commands,
        der_14_exec_leaves_no_helper_behind,
        exec_says_that_somebody_outside_can_still_write,
        exec_does_not_say_so_of_what_went_with_the_command,
        exec_without_the_filter_that_there_should_be_is_refused,
        exec_that_waited_sees_what_was_mounted_meanwhile,
        nothing_is_done_in_a_boot_without_a_name,
    )]))

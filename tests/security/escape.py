# SPDX-License-Identifier: Apache-2.0
"""Ways out of a plan. Each is tried by a command of a plan (attack.c), as root and as an ordinary
user: it must be refused, and the host must be as it was. In a build with -Dsabotage=true each is tried
once more with the fences taken away that stop it, and then it must succeed: so the test can fail.

    escape.py              root's and an ordinary user's (without root: only these)
    escape.py NAME...      only these
"""

import ctypes
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ATOLL = os.environ['ATOLL']
ATTACK = os.environ['ATOLL_TEST_ATTACK']
SABOTAGE = os.environ.get('ATOLL_TEST_SABOTAGE') == '1'
NOBODY = 65534
REFUSED, NOT_HERE = 1, 77
LEAKED = 99
SHM_KEY = 0x41746f6c + os.getpid()  # nobody else's, who may try the same now

PLACE = 'ATOLL_ESCAPE_PLACE'
WRITES = 'readonly,landlock'  # a mount in front, a rule behind
PID_ONE = 'capabilities,landlock,user-ns'

# name: the fences that stop it; who can try ('root': an ordinary user could not anywhere)
ATTACKS = {
    # files outside
    'write_file': (WRITES, 'both'),
    'write_append': (WRITES, 'both'),
    'create_file': (WRITES, 'both'),
    'remove_file': (WRITES, 'both'),
    'rename_file': (WRITES, 'both'),
    'exchange_files': (WRITES, 'both'),
    'make_dir': (WRITES, 'both'),
    'remove_dir': (WRITES, 'both'),
    'make_link': (WRITES, 'both'),
    'make_hard_link': (WRITES, 'both'),
    'make_fifo': (WRITES, 'both'),
    'truncate_file': (WRITES, 'both'),
    'unnamed_file': (WRITES, 'both'),
    'through_link': (WRITES, 'both'),
    'through_linked_dir': (WRITES, 'both'),
    'through_parent': (WRITES, 'both'),
    'through_proc_root': (WRITES, 'both'),
    'through_proc_cwd': (WRITES, 'both'),
    'through_chroot': (WRITES, 'root'),
    'change_mode': ('readonly', 'both'),
    'change_time': ('readonly', 'both'),
    'change_attribute': ('readonly', 'both'),
    'into_fifo': ('landlock', 'both'),
    # descriptors
    'reopen_input': ('landlock', 'both'),
    'leaked_dir': ('leak', 'both'),
    'leaked_dir_write': ('leak,landlock', 'both'),
    'leaked_dir_above': ('leak,landlock', 'both'),
    'passed_dir': ('landlock', 'both'),
    # sockets, signals, memory
    'abstract_stream': ('landlock', 'both'),
    'abstract_datagram': ('landlock', 'both'),
    'home_socket': ('scratch', 'both'),
    'hidden_socket': ('scratch,hide', 'both'),
    'kill_group': ('landlock', 'both'),
    'slow_down_group': ('seccomp,capabilities,user-ns', 'both'),
    'shared_memory': ('ipc-ns', 'both'),
    'trace_pid_one': (PID_ONE, 'root'),
    'open_pid_one_memory': (PID_ONE, 'root'),
    'open_pid_one_root': (PID_ONE, 'root'),
    'take_pid_one_descriptor': (PID_ONE, 'root'),
    # secrets
    'read_key': ('hide', 'both'),
    'read_password': ('hide', 'both'),
    'read_linked_secret': ('hide', 'both'),
    'read_key_by_proc': ('hide', 'both'),
    'read_store': ('hide', 'both'),
    'write_store': ('hide,' + WRITES, 'both'),
    'has_agent': ('env', 'both'),
    'has_bus': ('env', 'both'),
    'has_store_name': ('env', 'both'),
    'write_home': ('scratch', 'both'),
    'plant_in_home': ('scratch', 'both'),
    'plant_key': ('scratch,hide', 'both'),
    # namespaces and mounts
    'new_user': ('seccomp', 'both'),
    'new_mounts': ('seccomp,landlock', 'both'),
    'new_network': ('seccomp', 'both'),
    'new_processes': ('seccomp', 'both'),
    'new_hostname': ('seccomp', 'both'),
    'new_context': ('seccomp', 'both'),
    'clone_user': ('seccomp', 'both'),
    'clone3_user': ('seccomp', 'both'),
    'pick_tree': ('seccomp', 'both'),
    'enter_namespace': ('seccomp', 'both'),
    'remount': ('seccomp,landlock,capabilities,user-ns', 'root'),
    'uncover': ('seccomp,landlock,capabilities,user-ns', 'root'),
    # privileges
    'set_id_program': ('no-new-privs', 'root'),
    'change_hostname': ('seccomp,capabilities,user-ns', 'root'),
    'make_device': ('capabilities,user-ns,nodev', 'root'),
    'open_device': ('nodev', 'root'),
    'change_kernel_setting': ('proc-fixed', 'root'),
    'press_sysrq': ('proc-fixed', 'root'),
    'forge_layer': ('capabilities,user-ns', 'root'),
    # the kernel
    'read_keyring': ('seccomp', 'both'),
    'add_to_keyring': ('seccomp', 'both'),
    'ask_for_key': ('seccomp', 'both'),
    'load_program': ('seccomp', 'both'),
    'watch_performance': ('seccomp', 'both'),
    'handle_faults': ('seccomp', 'both'),
    'submit_in_ring': ('seccomp', 'both'),
    'watch_filesystem': ('seccomp', 'both'),
    'read_kernel_log': ('seccomp', 'both'),
    'become_executable': ('seccomp', 'both'),
    'crypto_socket': ('seccomp', 'both'),
    'machine_socket': ('seccomp', 'both'),
    'packet_socket': ('seccomp', 'both'),
    'key_socket': ('seccomp', 'both'),
    'type_into_terminal': ('seccomp', 'both'),
    'type_with_high_bits': ('seccomp', 'both'),
    'paste_into_console': ('seccomp', 'both'),
    'call_with_32_bits': ('seccomp', 'both'),
}
# A kernel may lack these, or keep them from everybody: then that the fence matters cannot be shown.
OPTIONAL = {'read_keyring', 'add_to_keyring', 'ask_for_key', 'load_program', 'watch_performance',
            'handle_faults', 'submit_in_ring', 'watch_filesystem', 'read_kernel_log', 'crypto_socket',
            'machine_socket', 'packet_socket', 'press_sysrq', 'key_socket', 'call_with_32_bits', 'clone3_user'}


class Broken(Exception):
    pass


def snapshot(*tops):
    """All that can be seen of what lies there, down to the change times."""
    seen = {}
    for top in tops:
        for folder, dirs, files in os.walk(top):
            for name in [*dirs, *files]:
                path = os.path.join(folder, name)
                st = os.lstat(path)
                digest = b''
                if stat.S_ISREG(st.st_mode):
                    digest = hashlib.sha256(Path(path).read_bytes()).digest()
                seen[path] = (st.st_mode, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns, digest)
    return seen


class World:
    """The host, as far as it matters."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix='atoll-escape.', dir=os.environ.get(PLACE, os.environ['ATOLL_BUILD_ROOT']))
        os.chmod(self.dir, 0o755)
        self.sockets = []
        self.heard = 0
        for name in ('res', 'home', 'store', 'given'):
            os.mkdir(f'{self.dir}/{name}', 0o700)
        self.make_out()
        self.make_home()
        self.given = self.listen(f'{self.dir}/given/socket', give=True)
        self.listen('\0' + self.abstract())
        self.listen('\0' + self.abstract() + '-d', kind=socket.SOCK_DGRAM)
        shutil.copy(ATTACK, f'{self.dir}/res/attack')
        os.chmod(f'{self.dir}/res/attack', 0o755)
        self.shm = self.make_memory()
        self.key = self.make_key()
        self.env = {
            **os.environ, 'ATOLL_HOME': f'{self.dir}/store', 'HOME': f'{self.dir}/home',
            'STORE': f'{self.dir}/store', 'OUT': f'{self.dir}/out', 'RES': f'{self.dir}/res',
            'GIVEN': f'{self.dir}/given', 'ABSTRACT': self.abstract(),
            'ABSTRACT_DGRAM': self.abstract() + '-d', 'SHM_KEY': str(SHM_KEY),
            'SSH_AUTH_SOCK': f'{self.dir}/home/agent/socket',
            'DBUS_SESSION_BUS_ADDRESS': 'unix:path=/run/bus',
            'XDG_CONFIG_HOME': f'{self.dir}/home/.config', 'ATOLL_CONFIG_SYSTEM': '/nonexistent',
        }
        for name in ('XDG_STATE_HOME', 'XDG_RUNTIME_DIR', 'ATOLL_SABOTAGE', 'ATOLL_PLAN', 'ATOLL_PLAN_ID'):
            self.env.pop(name, None)
        self.atoll('start', 'p', '--dir', f'{self.dir}/res')

    def abstract(self):
        return os.path.basename(self.dir)

    def make_out(self):
        """Anew for each attack: one that succeeds leaves its traces."""
        out = f'{self.dir}/out'
        if os.path.isdir(out):
            shutil.rmtree(out)
        os.makedirs(f'{out}/dir')
        os.makedirs(f'{out}/cloud')
        for name in ('victim', 'secret', 'cloud/credentials'):
            Path(f'{out}/{name}').write_text('precious\n')
        os.mkfifo(f'{out}/fifo', 0o600)
        if os.geteuid() == 0:
            os.mknod(f'{out}/zero', stat.S_IFCHR | 0o666, os.makedev(1, 5))
            shutil.copy(ATTACK, f'{out}/set-id')
            os.chmod(f'{out}/set-id', 0o4755)
        os.chmod(f'{self.dir}/out', 0o755)

    def make_home(self):
        home = f'{self.dir}/home'
        for name in ('.ssh', '.gnupg', 'agent'):
            os.mkdir(f'{home}/{name}', 0o700)
        for name in ('.ssh/id', '.netrc', '.profile'):
            Path(f'{home}/{name}').write_text('precious\n')
        os.symlink(f'{self.dir}/out/cloud', f'{home}/.aws')
        for name in ('.gnupg', 'agent'):
            self.listen(f'{home}/{name}/socket')

    def listen(self, name, kind=socket.SOCK_STREAM, give=False):
        s = socket.socket(socket.AF_UNIX, kind)
        s.bind(name)
        if kind == socket.SOCK_STREAM:
            s.listen(16)
        self.sockets.append(s)
        if give:
            threading.Thread(target=self.give_dir, args=(s,), daemon=True).start()
        return s

    def give_dir(self, s):
        """A helpful service that hands out a directory of the host."""
        while True:
            try:
                client, _ = s.accept()
                fd = os.open(f'{self.dir}/out', os.O_RDONLY | os.O_DIRECTORY)
                socket.send_fds(client, [b'x'], [fd])
                os.close(fd)
            except OSError:
                return

    @staticmethod
    def make_memory():
        libc = ctypes.CDLL(None, use_errno=True)
        return libc.shmget(SHM_KEY, 4096, 0o1600)

    @staticmethod
    def make_key():
        libc = ctypes.CDLL(None, use_errno=True)
        number = {'x86_64': 248, 'aarch64': 217, 'riscv64': 217, 's390x': 278}.get(os.uname().machine)
        keyctl = {'x86_64': 250, 'aarch64': 219, 'riscv64': 219, 's390x': 280}.get(os.uname().machine)
        if number:
            libc.syscall(keyctl, 1, None)  # a session keyring of our own
            return libc.syscall(number, b'user', b'atoll-escape', b'precious', 8, -3)
        return -1

    def atoll(self, *words, **env):
        done = subprocess.run([ATOLL, *words], env={**self.env, **env}, cwd=f'{self.dir}/res',
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise Broken(f'atoll {" ".join(words)}: {done.stderr}')

    def hear(self):
        """Somebody in the command's process group, and a reader at the other end of a pipe."""
        self.heard = 0
        signal.signal(signal.SIGUSR2, self.on_signal)

    def on_signal(self, number, frame):
        self.heard += 1

    def run(self, name, fences):
        """The exit status of an attack, what it said, and what changed on the host."""
        self.make_out()
        self.hear()
        fifo = os.open(f'{self.dir}/out/fifo', os.O_RDONLY | os.O_NONBLOCK)
        given = ['--rw', f'{self.dir}/given'] if name == 'passed_dir' else []
        victim = os.open(f'{self.dir}/out/victim', os.O_RDONLY)
        leak = os.open(f'{self.dir}/out', os.O_RDONLY | os.O_DIRECTORY)
        os.dup2(leak, LEAKED)
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        before = snapshot(f'{self.dir}/out', f'{self.dir}/home')
        done = subprocess.run([ATOLL, 'exec', 'p', *given, '--', f'{self.dir}/res/attack', name],
                              env={**self.env, 'ATOLL_SABOTAGE': fences}, cwd=f'{self.dir}/res',
                              stdin=victim, capture_output=True, text=True, timeout=120,
                              pass_fds=[LEAKED], errors='replace')
        for fd in (victim, leak, LEAKED):
            os.close(fd)
        try:
            through = os.read(fifo, 100)
        except BlockingIOError:
            through = b''
        os.close(fifo)
        after = snapshot(f'{self.dir}/out', f'{self.dir}/home')
        changed = [p for p in sorted({*before, *after}) if before.get(p) != after.get(p)]
        if through:
            changed.append('fifo')
        if os.getpriority(os.PRIO_PROCESS, 0) != nice:
            changed.append('priority')
        if self.heard:
            changed.append('signal')
        if os.path.exists(f'{self.dir}/store/new'):
            os.unlink(f'{self.dir}/store/new')
            changed.append('store')
        return done.returncode, done.stderr.strip(), changed

    def restore_home(self):
        for name in ('.newrc', '.ssh/authorized_keys'):
            if os.path.exists(f'{self.dir}/home/{name}'):
                os.unlink(f'{self.dir}/home/{name}')
        Path(f'{self.dir}/home/.profile').write_text('precious\n')

    def end(self):
        libc = ctypes.CDLL(None)
        if self.shm >= 0:
            libc.shmctl(self.shm, 0, None)
        for s in self.sockets:
            s.close()
        subprocess.run([ATOLL, 'stop', 'p', '--force'], env=self.env, capture_output=True, check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


# Whether these succeed is seen on the host alone: in the view they may, and of a group some may be
# reached and others not.
PRIVATE = {'write_home', 'plant_in_home', 'kill_group', 'slow_down_group'}


def check(world, name, fences):
    status, said, changed = world.run(name, '')
    if changed:
        raise Broken(f'the host has changed: {changed} ({status}, {said})')
    if status == NOT_HERE:
        return 'this kernel does not have it'
    if status != REFUSED and not (status == 0 and name in PRIVATE):
        raise Broken(f'exit {status}: {said}')
    if not SABOTAGE:
        return None
    status, said, changed = world.run(name, fences)
    world.restore_home()
    succeeded = bool(changed) if name in PRIVATE else status == 0
    if not succeeded and (name in OPTIONAL or status == NOT_HERE):
        return f'not even without {fences}: {said}'
    if not succeeded:
        raise Broken(f'fails also without {fences}: exit {status}, {said}')
    return None


@contextlib.contextmanager
def a_place():
    """One for everybody, where a command has no layer of its own: not below /tmp, /var/tmp or a home."""
    with tempfile.TemporaryDirectory(prefix='atoll-escape.', dir='/var/lib') as place:
        os.chmod(place, 0o1777)
        os.environ[PLACE] = place
        yield


def run_all(who, only):
    # The signals of kill_group are for us, and for nobody else.
    os.setpgid(0, 0)
    world = World()
    failed = False
    try:
        for name, (fences, whose) in ATTACKS.items():
            if (only and name not in only) or (whose == 'root' and who == 'user'):
                continue
            try:
                lacks = check(world, name, fences)
                # Refused it was; only that it could have been otherwise is not shown here.
                print((f'# {name}: {lacks}\n' if lacks else '') + f'ok - escape_{name} {who}', flush=True)
            except (Broken, subprocess.TimeoutExpired) as e:
                failed = True
                print(f'not ok - escape_{name} {who}\n# ' + str(e).replace('\n', '\n# '), flush=True)
    finally:
        world.end()
    return failed


def main():
    words = sys.argv[1:]
    if words[:1] == ['as-user']:
        return run_all('user', words[1:])
    if os.geteuid() != 0:
        failed = run_all('user', words)
        count = sum(whose == 'both' for _, whose in ATTACKS.values())
    else:
        sys.stdout.flush()
        begun = time.monotonic()
        if words[:1] == ['as-root']:
            return run_all('root', words[1:])
        with a_place():
            child = subprocess.run([sys.executable, sys.argv[0], 'as-root', *words], check=False)
            user = subprocess.run(['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups',
                                   sys.executable, sys.argv[0], 'as-user', *words], check=False)
        failed = child.returncode or user.returncode
        count = len(ATTACKS) + sum(whose == 'both' for _, whose in ATTACKS.values())
        print(f'# {time.monotonic() - begun:.1f} s', flush=True)
    if not words:
        print(f'1..{count}')
    return bool(failed)


sys.exit(main())

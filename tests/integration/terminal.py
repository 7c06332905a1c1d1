# SPDX-License-Identifier: Apache-2.0
"""Programs that own a terminal, in a plan: editors, full-screen displays, keys that stop and
interrupt, the size of the window; and programs that have none. All on a real pseudo-terminal."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tools'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from expect import complaining, need, same  # noqa: E402
from tap import run  # noqa: E402
from terminals import ATOLL, PATIENCE, World  # noqa: E402

BYTES = 1 << 30
SANITIZED = b'__asan_init' in Path(ATOLL).read_bytes() or b'__tsan_init' in Path(ATOLL).read_bytes()


def term_vim_edits_a_file():
    """vim: full screen, keys, and what it writes is the plan's."""
    vim = shutil.which('vim.tiny') or shutil.which('vim') or shutil.which('vi')
    need(vim, 'there is no vim')
    with World() as w:
        t = w.exec(vim, '-u', 'NONE', 'file')
        t.expect('old')
        t.type('Onew line\x1b')
        t.expect('new line')
        t.type(':wq\r')
        same(t.end(), 0, 'exit status of vim')
        same(w.inside('cat', 'file'), 'new line\nold\n', 'what vim wrote')
        same((w.root / 'file').read_text(), 'old\n', 'the original')


def term_top_is_shown_and_quits():
    """top, and htop where it is: a full screen that refreshes, of the command's own processes."""
    for program in ('top', 'htop'):
        if not shutil.which(program):
            continue
        with World() as w:
            t = w.exec(program)
            t.expect('PID', f'the screen of {program}')
            t.resize(40, 120)
            t.type('q')
            same(t.end(), 0, f'exit status of {program}')


def term_ctrl_c_interrupts_the_command():
    """^C reaches the command once; whoever does not catch it dies of it, and so does atoll."""
    with World() as w:
        t = w.exec('sh', '-c', 'echo begun; exec sleep 1000')
        t.expect('begun')
        t.type('\x03')
        same(t.end(), -signal.SIGINT, 'the end of atoll')
        t = w.exec('sh', '-c', 'n=0; trap "n=\\$((n+1))" INT; echo begun; while [ $n -lt 1 ]; do sleep 0.1; done;'
                   ' sleep 0.5; echo n=$n; exit 5')
        t.expect('begun')
        t.type('\x03')
        t.expect('n=1')
        same(t.end(), 5, 'exit status')
        t = w.exec('sh', '-c', 'echo begun; exec sleep 1000')
        t.expect('begun')
        t.type('\x1c')
        need(t.end() in (-signal.SIGQUIT, 128 + signal.SIGQUIT), '^\\ ends it')
        need(w.lock_is_free(), 'the plan is free')


def term_ctrl_z_stops_and_fg_goes_on():
    """^Z in an interactive shell: the job is stopped, the shell is back; fg, and it goes on."""
    with World() as w:
        t = w.terminal('bash', '--norc', '--noprofile', '-i')
        t.expect('ready> ')
        t.type(f'{ATOLL} exec p -- sh -c "echo begun; cat"\r')
        t.expect('begun\r\n')
        t.type('one\r')
        t.expect('one\r\n.*one')
        t.type('\x1a')
        t.expect('Stopped')
        t.expect('ready> ')
        t.say('echo still $((40 + 2))\r', 'still 42')
        t.type('fg\r')
        t.expect('exec p')
        t.say('two\r', 'two\r\n.*two')
        t.type('\x04')
        t.expect('ready> ')
        t.type('echo left=$?; exit\r')
        t.expect('left=0')
        t.end()


def term_shell_has_job_control():
    """A shell in the plan has jobs of its own, on the same terminal."""
    with World() as w:
        w.env['SHELL'] = '/bin/bash'
        t = w.terminal(ATOLL, 'shell', 'p')
        t.expect(r'[$#>] ')
        t.type('echo begun=$((2+2)); sleep 1000\r')
        t.expect('begun=4')
        t.say('\x1a', 'Stopped')
        t.say('bg; jobs; kill %1; wait; echo count=$((1+1))\r', 'count=2')
        t.type('exit 3\r')
        same(t.end(), 3, 'exit status of the shell')
        need(w.lock_is_free(), 'the plan is free')


def term_window_size():
    """The size is the terminal's, and a change of it is heard of."""
    with World() as w:
        t = w.exec('bash', '-c', 'trap "stty size" WINCH; trap "exit 0" INT; stty size; while :; do sleep 0.1; done',
                   rows=33, columns=101)
        t.expect('33 101')
        t.resize(44, 132)
        t.expect('44 132')
        t.type('\x03')
        t.end()


def term_none():
    """Without a terminal: nothing asks for one, nothing waits for one."""
    with World() as w:
        said = subprocess.run(
            ['setsid', '--wait', ATOLL, 'exec', 'p', '--', 'sh', '-c',
             'test -t 0 || test -t 1 || test -t 2 || echo none; (: </dev/tty) 2>/dev/null || echo no tty; cat'],
            env=w.env, cwd=w.root, input=b'in\n', capture_output=True, timeout=300)
        same(said.returncode, 0, 'exit status')
        same(said.stdout, b'none\nno tty\nin\n', 'what it said')
        same(said.stderr, b'', 'standard error is the command\'s alone')


def term_endings():
    """Exit statuses and signals, as a shell has them."""
    with World() as w:
        for status in (0, 1, 77, 255):
            same(w.atoll('exec', 'p', '--', 'sh', '-c', f'exit {status}').returncode, status, 'exit status')
        for sig in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1, signal.SIGPIPE):
            said = w.atoll('exec', 'p', '--', 'sh', '-c', f'kill -{int(sig)} $$')
            same(said.returncode, 128 + sig, f'{sig.name}')
        # What a process sends to atoll is the command's.
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
            p = subprocess.Popen([ATOLL, 'exec', 'p', '--', 'sh', '-c',
                                  f'trap "exit 42" {sig.name[3:]}; echo begun; while :; do sleep 0.05; done'],
                                 env=w.env, cwd=w.root, stdout=subprocess.PIPE)
            same(p.stdout.readline(), b'begun\n', 'it begins')
            p.send_signal(sig)
            same(p.wait(PATIENCE), 42, f'{sig.name} to atoll')
            p.stdout.close()


def der_14_what_is_detached_ends_too():
    """Whatever a command leaves behind, detached as it may be, is gone when it has ended."""
    with World() as w:
        leave = ('setsid sleep 987654 </dev/null >/dev/null 2>&1 &'
                 '(trap "" HUP TERM INT; exec sleep 987654) </dev/null >/dev/null 2>&1 &'
                 '(setsid sh -c "sleep 987654 & sleep 987654" & ) </dev/null >/dev/null 2>&1;'
                 ' sleep 0.2; echo left')
        for option in ((), ('--transcript',)):
            said = w.atoll('exec', *option, 'p', '--', 'sh', '-c', leave)
            same(said.stdout, b'left\n', 'the command')
            end = time.monotonic() + PATIENCE  # killed they are, and need the time to die
            while found := subprocess.run(['pgrep', '-f', 'sleep 987654'], capture_output=True).stdout:
                need(time.monotonic() < end, f'processes left: {found}')
                time.sleep(0.05)
            need(w.lock_is_free(), 'the plan is free')


def took(argv, env, cwd):
    begin = time.monotonic()
    subprocess.run(argv, env=env, cwd=cwd, check=True, stdin=subprocess.DEVNULL)
    return time.monotonic() - begin


def term_pipes_at_full_speed():
    """A gigabyte through a pipe, in and out of a plan: the bytes of a pipe without one."""
    if SANITIZED:
        return
    with World() as w:
        source = f'dd if=/dev/zero bs=64k count={BYTES >> 16} status=none'
        plain = f'{source} | cat | dd of=/dev/null bs=64k status=none'
        through = f'{source} | {ATOLL} exec p -- cat | dd of=/dev/null bs=64k status=none'
        ratio = 9
        for _ in range(20):
            outside = took(['sh', '-c', plain], w.env, w.root)
            ratio = min(ratio, took(['sh', '-c', through], w.env, w.root) / outside)
            if ratio < 1.2:
                break
        print(f'# {ratio:.2f} times a plain pipe')
        need(ratio < 1.3, f'a pipe through exec takes {ratio:.2f} times as long')
        # And unchanged, whatever they are.
        data = os.urandom(1 << 20)
        back = subprocess.run([ATOLL, 'exec', 'p', '--', 'cat'], env=w.env, cwd=w.root, input=data,
                              capture_output=True, timeout=300)
        need(back.stdout == data, 'bytes changed on their way')


if __name__ == '__main__':
    sys.exit(run([complaining(check) for check in (
        term_vim_edits_a_file,
        term_top_is_shown_and_quits,
        term_ctrl_c_interrupts_the_command,
        term_ctrl_z_stops_and_fg_goes_on,
        term_shell_has_job_control,
        term_window_size,
        term_none,
        term_endings,
        der_14_what_is_detached_ends_too,
        term_pipes_at_full_speed,
    )]))

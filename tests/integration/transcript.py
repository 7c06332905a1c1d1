# SPDX-License-Identifier: Apache-2.0
"""What a command prints is kept while it has a terminal: all is as without, for the command and for
the user, and the user's terminal is afterwards what it was before, however it ended."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tools'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from expect import complaining, need, same  # noqa: E402
from tap import run  # noqa: E402
from terminals import ATOLL, PATIENCE, World  # noqa: E402

LINES = 80000  # of 64 bytes: more than anything between the command and the screen can hold


def wait_for(what, text):
    end = time.monotonic() + PATIENCE
    while not what():
        need(time.monotonic() < end, f'waited in vain for {text}')
        time.sleep(0.02)


def children(pid):
    try:
        return [int(n) for n in Path(f'/proc/{pid}/task/{pid}/children').read_text().split()]
    except OSError:
        return []


def named(pid, name):
    """Those below a process that have this name."""
    found = []
    for child in children(pid):
        try:
            found += [child] * (Path(f'/proc/{child}/comm').read_text() == f'{name}\n')
        except OSError:
            continue
        found += named(child, name)
    return found


class Kept(World):
    def kept(self, *argv, **more):
        """The command, with what it prints kept, as the only program of its session."""
        return self.terminal(ATOLL, 'exec', '--transcript', 'p', '--', *argv, **more)

    def below(self, *argv, before='', behind='', verb='exec', **more):
        """The same below a shell without job control, which says how it ended, and stays."""
        self.env['THE_COMMAND'] = argv[-1]
        words = ' '.join([*argv[:-1], '"$THE_COMMAND"'])
        t = self.terminal('sh', '-c', f'trap : INT QUIT; {before} {ATOLL} {verb} --transcript p -- {words} {behind};'
                          'echo left=$?; exec sleep 1000', **more)
        t.modes = termios.tcgetattr(t.fd)
        return t

    def shell(self):
        """A shell with job control that leaves the terminal's modes alone."""
        t = self.terminal('bash', '--norc', '--noprofile', '--noediting', '-i')
        t.expect('ready> ')
        t.modes = termios.tcgetattr(t.fd)
        return t

    def printed(self):
        """What was kept of the newest command that ended."""
        rows = [json.loads(line) for line in self.atoll('log', '--json', 'p').stdout.splitlines()]
        number = max((row['output']['id'] for row in rows if row.get('output')), default=None)
        need(number, 'nothing was kept')
        return self.atoll('log', '--output', str(number)).stdout

    def processes(self, mode):
        said = subprocess.run(['pgrep', '-f', f'^atoll-helper --{mode} {self.top}'], capture_output=True, check=False)
        return [int(n) for n in said.stdout.split()]

    def relay(self, mode='relay'):
        """The relay's process, once it is there."""
        found = []

        def look():
            found[:] = self.processes(mode)
            return len(found) == 1
        wait_for(look, 'the relay')
        return found[0]

    def no_relay(self):
        wait_for(lambda: not self.processes('relay'), 'the end of the relay')

    def free(self):
        wait_for(self.lock_is_free, 'the plan')


def is_raw(t):
    return not termios.tcgetattr(t.fd)[3] & (termios.ICANON | termios.ISIG | termios.ECHO)


def as_before(t, when):
    """What the kernel needs a moment for is not looked at once."""
    wait_for(lambda: termios.tcgetattr(t.fd) == t.modes, f'the modes of the terminal, {when}')


def transcript_of_a_terminal():
    """The command has a terminal, all three of it, of the same size; and what it says there is kept."""
    with Kept() as w:
        t = w.below('sh', '-c', 'for i in 0 1 2; do test -t $i && echo is-$i; done; tty; stty size;'
                    ' echo to-tty >/dev/tty; echo to-error >&2; exit 7', rows=33, columns=101)
        t.expect('is-0\r\nis-1\r\nis-2\r\n/dev/console\r\n33 101\r\nto-tty\r\nto-error\r\n')
        t.expect('left=7\r\n')
        as_before(t, 'after the end')
        same(w.printed(), b'is-0\r\nis-1\r\nis-2\r\n/dev/console\r\n33 101\r\nto-tty\r\nto-error\r\n', 'what was kept')
        w.no_relay()
        # It has no other descriptors; what ls has itself is the directory.
        t = w.below('sh', '-c', 'echo fds: $(ls /proc/self/fd)')
        t.expect('fds: 0 1 2 3\r\n')
        # When its time is up, or somebody is left who would print for ever, the end is the end.
        t = w.below('sleep', '1000', verb='exec --timeout 1')
        t.expect('left=124\r\n')
        as_before(t, 'when its time was up')
        t = w.below('sh', '-c', '(trap "" HUP; exec yes) & exit 3')
        t.expect('left=3\r\n')
        as_before(t, 'with somebody left')
        # One that cannot be run leaves no trace, neither of the terminal nor of a transcript.
        t = w.below('no-such-command', 'here')
        t.expect('no-such-command')
        t.expect('left=127\r\n')
        as_before(t, 'without a command')


def transcript_of_vim():
    """A full screen and keys; what vim shows is in the transcript, what it writes in the plan."""
    vim = shutil.which('vim.tiny') or shutil.which('vim') or shutil.which('vi')
    need(vim, 'there is no vim')
    with Kept() as w:
        t = w.below(vim, '-u', 'NONE', 'file')
        t.expect('old')
        need(is_raw(t), 'the user\'s terminal is raw')
        t.type('Onew line\x1b')
        t.expect('new line')
        t.type(':wq\r')
        t.expect('left=0\r\n')
        as_before(t, 'after vim')
        same(w.inside('cat', 'file'), 'new line\nold\n', 'what vim wrote')
        same((w.root / 'file').read_text(), 'old\n', 'the original')
        need(b'new line' in w.printed(), 'the screen was kept')


def transcript_hears_of_sizes():
    with Kept() as w:
        t = w.kept('bash', '-c', 'trap "stty size" WINCH; trap "exit 0" INT; stty size; while :; do sleep 0.1; done',
                   rows=33, columns=101)
        t.expect('33 101')
        t.resize(44, 132)
        t.expect('44 132')
        t.type('\x03')
        same(t.end(), 0, 'exit status')


def transcript_and_keys_that_interrupt():
    """^C and ^\\ reach the command, once, and through its own terminal; who dies of ^C, dies of it."""
    with Kept() as w:
        t = w.kept('sh', '-c', 'echo begun; exec sleep 1000')
        t.expect('begun')
        t.type('\x03')
        same(t.end(), -signal.SIGINT, 'the end of atoll')
        t = w.kept('sh', '-c', 'n=0; trap "n=\\$((n+1))" INT; echo begun; while [ $n -lt 1 ]; do sleep 0.1; done;'
                   ' sleep 0.5; echo n=$n; exit 5')
        t.expect('begun')
        t.type('\x03')
        t.expect('n=1')
        same(t.end(), 5, 'exit status')
        t = w.below('sh', '-c', 'ulimit -c 0; echo begun; exec sleep 1000')
        t.expect('begun')
        t.type('\x1c')
        t.expect(f'left={128 + signal.SIGQUIT}\r\n')
        as_before(t, 'after ^\\')
        w.free()


def transcript_in_a_loop_of_a_script():
    """A ^C that ends the command ends the script, as at its own terminal; a signal from elsewhere does not."""
    loop = f'for i in 1 2; do echo turn $i; {ATOLL} exec --transcript p -- sh -c "echo be\'\'gun; exec sleep 1000"; done'
    with Kept() as w:
        t = w.terminal('bash', '-c', loop + '; echo to its end')
        t.expect('begun')
        t.type('\x03')
        same(t.end(), -signal.SIGINT, 'the end of the script')
        t = w.terminal('bash', '-c', loop + '; echo to its end')
        for turn in (1, 2):
            t.expect(f'turn {turn}')
            t.expect('begun')
            os.kill(named(t.pid, 'atoll')[0], signal.SIGINT)
        t.expect('to its end')
        same(t.end(), 0, 'the end of the script')


def transcript_stops_and_goes_on():
    """^Z stops the command and all of the job: the shell has its terminal, as it was. fg, and it goes on, with
    the size that the window has by then."""
    with Kept() as w:
        t = w.shell()
        t.type(f'{ATOLL} exec --transcript p -- '
               'bash -c \'echo be""gun; while read -r x; do echo "<$x>"; done\'\r')
        t.expect('begun\r\n')
        t.say('one\r', '<one>')
        need(is_raw(t), 'the user\'s terminal is raw')
        for rows in (40, 50):
            t.type('\x1a')
            t.expect('Stopped')
            t.expect('ready> ')
            as_before(t, 'while it is stopped')
            t.say('echo still $((40 + 2))\r', 'still 42')
            t.resize(rows, 120)
            t.type('fg\r')
            t.expect('transcript p')
            wait_for(lambda: is_raw(t), 'the terminal to be raw again')
            t.say('two\r', '<two>')
        t.type('\x04')
        t.expect('ready> ')
        t.type('echo left=$?; exit\r')
        t.expect('left=0')
        t.end()
        need(b'<two>' in w.printed(), 'what came after was kept')


def transcript_size_after_a_stop():
    with Kept() as w:
        t = w.shell()
        t.type(f'{ATOLL} exec --transcript p -- bash -c \'while read -r x; do echo "$x=$(stty size)"; done\'\r')
        t.say('one\r', 'one=24 80')
        t.type('\x1a')
        t.expect('Stopped')
        t.expect('ready> ')
        t.resize(41, 121)
        t.type('fg\r')
        t.expect('transcript p')
        t.say('two\r', 'two=41 121')
        t.type('\x04')
        t.expect('ready> ')


def transcript_stopped_from_outside():
    """Who stops atoll alone, or the job, has the shell take its terminal; fg takes it back."""
    with Kept() as w:
        t = w.shell()
        t.type(f'{ATOLL} exec --transcript p -- bash -c \'echo be""gun; while read -r x; do echo "<$x>"; done\'\r')
        t.expect('begun')
        for stop in (lambda pid: os.kill(pid, signal.SIGSTOP), lambda pid: os.killpg(os.getpgid(pid), signal.SIGTSTP)):
            t.say('one\r', '<one>')
            stop(children(t.pid)[0])
            t.expect('Stopped')
            t.expect('ready> ')
            as_before(t, 'while it is stopped')
            t.say('echo still $((40 + 2))\r', 'still 42')
            t.type('fg\r')
            t.expect('transcript p')
        t.say('two\r', '<two>')
        t.type('\x04')
        t.expect('ready> ')
        as_before(t, 'after the end')


def transcript_of_a_stopped_job_that_is_killed():
    with Kept() as w:
        t = w.shell()
        for sig in ('TERM', 'KILL'):
            t.type(f'{ATOLL} exec --transcript p -- bash -c \'echo be""gun; while read -r x; do echo "<$x>"; done\'\r')
            t.expect('begun')
            t.type('\x1a')
            t.expect('Stopped')
            t.expect('ready> ')
            t.type(f'kill -{sig} %%; echo ended=$((40 + 2))\r')
            t.expect('ended=42')
            t.expect('ready> ')
            as_before(t, f'after SIG{sig}')
            w.no_relay()
            w.free()


def transcript_where_nobody_could_go_on():
    """A stopped job is for a shell to continue. Where there is none, ^Z is nothing, as the kernel has it."""
    with Kept() as w:
        t = w.kept('bash', '-c', 'echo begun; while read -r x; do echo "<$x>"; done')
        t.expect('begun\r\n')
        t.type('\x1a')
        t.say('one\r', '<one>')
        t.type('\x04')
        same(t.end(), 0, 'exit status')


def transcript_in_the_background():
    """A job in the background prints and takes no keys; in the foreground it takes them."""
    with Kept() as w:
        t = w.shell()
        t.type(f'{ATOLL} exec --transcript p -- bash -c \'echo be""gun; while read -r x; do echo "<$x>"; done\' &\r')
        t.expect('begun')
        as_before(t, 'with a job in the background')
        t.say('echo still $((40 + 2))\r', 'still 42')
        t.type('fg\r')
        t.expect('transcript p')
        wait_for(lambda: is_raw(t), 'the terminal to be raw')
        t.say('one\r', '<one>')
        t.type('\x04')
        t.expect('ready> ')
        as_before(t, 'after the end')


def transcript_goes_on_in_the_background():
    """^Z and bg: it prints on, and the terminal is the shell's; fg, and its keys are the command's."""
    with Kept() as w:
        t = w.shell()
        t.type(f'{ATOLL} exec --transcript p -- bash -c \'while :; do read -t 0.3 -r x && echo "<$x>";'
               ' n=$((n+1)); echo n=$n; done\'\r')
        t.expect('n=2')
        t.type('\x1a')
        t.expect('Stopped')
        t.expect('ready> ')
        t.say('bg\r', r'n=\d')
        t.expect(r'n=\d')
        as_before(t, 'in the background')
        t.type('fg\r')
        wait_for(lambda: t.read(0.01) and is_raw(t), 'the terminal to be raw again')
        t.say('key\r', '<key>')
        t.type('\x03')
        t.expect('ready> ')
        as_before(t, 'after the end')


def transcript_when_nobody_reads():
    """A terminal that takes no more holds up neither ^C nor the end of a relay that is alone."""
    with Kept() as w:
        t = w.below('sh', '-c', 'echo begun; exec yes')
        t.expect('begun')
        time.sleep(0.5)  # for all there is between to be full; nothing depends on it
        os.kill(children(t.pid)[0], signal.SIGKILL)
        w.no_relay()
        as_before(t, 'after SIGKILL')
        w.free()
        t = w.below('sh', '-c', 'trap "echo heard >file; exit 3" INT; echo begun; yes')
        t.expect('begun')
        time.sleep(0.5)
        t.type('\x03')
        wait_for(lambda: b'heard' in subprocess.run([ATOLL, 'diff', '--patch', 'p'], env=w.env, cwd=w.root,
                                                    capture_output=True, check=False).stdout, 'the command to hear ^C')
        t.expect('left=3\r\n')
        as_before(t, 'after ^C')


def transcript_of_much():
    """All of 5 MB reaches the screen; of the transcript the end, and no more than is allowed."""
    with Kept() as w:
        w.atoll('config', 'set', 'exec.transcript-max', '64k')
        t = w.below('sh', '-c', f'stty -onlcr; seq -f "%063.0f" {LINES}; printf "the end"')
        want = b''.join(b'%063d\n' % i for i in range(1, LINES + 1)) + b'the end'
        end = time.monotonic() + PATIENCE
        while b'left=0' not in t.shown[-200:]:
            need(time.monotonic() < end and t.read(0.1), f'it does not end after {len(t.shown)} bytes')
        got = t.shown[:t.shown.rindex(b'the end') + len(b'the end')]
        need(got == want, f'{len(got)} bytes of {len(want)} came, or others')
        kept = w.printed()
        need(32768 <= len(kept) <= 65536 and want.endswith(kept), f'{len(kept)} bytes were kept, or others')


def transcript_on_a_full_disk():
    """What cannot be written does not hold the command up, nor end it."""
    with Kept() as w:
        t = w.below('sh', '-c', 'echo begun; read -r x; seq 100000; echo "the end"; exit 4')
        t.expect('begun')
        resource.prlimit(w.relay(), resource.RLIMIT_FSIZE, (4096, 4096))
        t.type('\r')
        t.expect('\r\n100000\r\nthe end\r\n')
        t.expect('left=4\r\n')
        as_before(t, 'after the end')
        t = w.below('sh', '-c', 'echo begun; read -r x; seq 100000; echo "the end"', behind='| cat')
        t.expect('begun')
        resource.prlimit(w.relay('copy'), resource.RLIMIT_FSIZE, (4096, 4096))
        t.type('\r')
        t.expect('\r\n100000\r\nthe end\r\n')
        t.expect('left=0\r\n')


def transcript_and_signals_of_processes():
    """What a process sends to atoll is the command's, as ever."""
    with Kept() as w:
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
            t = w.below('sh', '-c', f'trap "exit 42" {sig.name[3:]}; echo begun; while :; do sleep 0.05; done')
            t.expect('begun')
            os.kill(children(t.pid)[0], sig)
            t.expect('left=42\r\n')
            as_before(t, f'after {sig.name}')
        t = w.below('sh', '-c', 'echo begun; exec sleep 1000')
        t.expect('begun')
        os.kill(children(t.pid)[0], signal.SIGTERM)
        t.expect(f'left={128 + signal.SIGTERM}\r\n')
        as_before(t, 'after SIGTERM')
        w.no_relay()
        w.free()


def transcript_of_one_that_is_killed():
    """Nobody is left to say so: the relay restores the terminal all the same, and ends. Or is killed itself,
    and the command has lost its terminal."""
    with Kept() as w:
        t = w.below('sh', '-c', 'echo begun; exec sleep 1000')
        t.expect('begun')
        wait_for(lambda: is_raw(t), 'the terminal to be raw')
        os.kill(children(t.pid)[0], signal.SIGKILL)
        t.expect(f'left={128 + signal.SIGKILL}')
        as_before(t, 'after SIGKILL')
        w.no_relay()
        w.free()
        t = w.below('sh', '-c', 'echo begun; exec sleep 1000')
        t.expect('begun')
        wait_for(lambda: is_raw(t), 'the terminal to be raw')
        os.kill(w.relay(), signal.SIGKILL)
        t.expect(f'left={128 + signal.SIGHUP}')
        as_before(t, 'without its relay')
        w.free()
        t = w.below('sh', '-c', 'echo begun; exec sleep 1000')
        t.expect('begun')
        os.kill(children(children(t.pid)[0])[0], signal.SIGKILL)
        t.expect('left=125')
        as_before(t, 'without its helper')
        w.no_relay()
        w.free()


def transcript_and_a_hang_up():
    """The user's terminal is gone: the command hears of it, and nothing is left."""
    with Kept() as w:
        t = w.below('sh', '-c', 'trap "echo hung up >file; exit 1" HUP; echo begun; while :; do sleep 0.05; done')
        t.expect('begun')
        os.close(t.fd)
        os.waitpid(t.pid, 0)
        t.pid = 0
        w.no_relay()
        w.free()
        same(w.inside('cat', 'file'), 'hung up\n', 'what the command heard')


def transcript_and_other_descriptors():
    """Where standard input or output is no terminal there are pipes, and the terminal is as ever; standard error
    that is none stays what it is."""
    with Kept() as w:
        t = w.below('sh', '-c', 'cat; test -t 0 || echo no-0; test -t 1 || echo no-1; read -r x </dev/tty; echo "<$x>"',
                    before='echo from a pipe |')
        t.expect('from a pipe\r\nno-0\r\nno-1\r\n')
        t.say('key\r', '<key>')
        t.expect('left=0\r\n')
        as_before(t, 'after the end')
        same(w.printed(), b'from a pipe\nno-0\nno-1\n<key>\n', 'what was kept without an input')
        t = w.below('sh', '-c', 'test -t 1 && echo is-1; test -t 2 || echo no-2 >&2', behind='2>error')
        t.expect('is-1\r\nleft=0\r\n')
        same((w.root / 'error').read_text(), 'no-2\n', 'standard error')
        same(w.printed(), b'is-1\r\n', 'what was kept')
        t = w.below('sh', '-c', 'test -t 0 && echo is-0; test -t 1 || echo no-1', behind='| cat')
        t.expect('is-0\r\nno-1\r\n')
        t.expect('left=0\r\n')
        same(w.printed(), b'is-0\nno-1\n', 'what was kept of a pipe')


def transcript_at_the_end_of_a_pipeline():
    """Who is before it reads the terminal: lines, their end, and keys that interrupt and stop, for all."""
    with Kept() as w:
        t = w.shell()
        t.type(f'cat | {ATOLL} exec --transcript p -- wc -l\r')
        w.relay('copy')
        as_before(t, 'while others read it')
        t.type('one\rtwo\r\x04')
        t.expect(r'\n2\r\n')
        t.expect('ready> ')
        same(w.printed(), b'2\n', 'what was kept')
        t.type(f'cat | {ATOLL} exec --transcript p -- sh -c \'echo be""gun; exec sleep 1000\'\r')
        t.expect('begun\r\n')
        t.type('\x1a')
        t.expect('Stopped')
        t.expect('ready> ')
        t.type('fg\r')
        # The shell says what it continues before that has the terminal.
        t.expect('transcript p')
        wait_for(lambda: os.tcgetpgrp(t.fd) != t.pid, 'the pipeline to be in the foreground')
        t.say('\x03', 'ready> ')
        as_before(t, 'after ^C')
        w.free()


def transcript_on_another_terminal():
    """What is printed to a terminal that somebody else sits at is printed there, and its keys are his; what is typed
    at one's own is the command's."""
    with Kept() as w:
        other = w.terminal('sh', '-c', 'echo begun; exec sleep 1000')
        other.expect('begun')
        other.modes = termios.tcgetattr(other.fd)
        name = os.readlink(f'/proc/{other.pid}/fd/0')
        t = w.below('sh', '-c', 'echo begun; read -r x; echo "<$x>"', behind=f'>{name}')
        other.expect('begun\r\n')
        same(termios.tcgetattr(other.fd), other.modes, 'the modes of the other terminal')
        t.type('key\r')
        other.expect('<key>\r\n')
        t.expect('left=0\r\n')
        same(w.printed(), b'begun\n<key>\n', 'what was kept')
        t = w.below('sh', '-c', 'echo out; echo error >&2', behind=f'2>{name}')
        t.expect('out\r\nleft=0\r\n')
        other.expect('error\r\n')
        same(w.printed(), b'out\r\n', 'what was kept beside the other terminal')


def transcript_of_two_at_once():
    """Two of one process group: the first has the terminal, the second pipes; afterwards all is as before, and
    keys are the second one's."""
    with Kept() as w:
        w.atoll('start', 'q', '--dir', str(w.root))
        t = w.terminal('sh', '-c', f'trap : INT; {ATOLL} exec --transcript p -- sh -c "echo A=begun; read -r x; exit 3" '
                       '</dev/tty & until [ -e go ]; do sleep 0.05; done;'
                       f'{ATOLL} exec --transcript q -- bash -c \'trap "exit 5" INT; echo B=begun;'
                       ' while :; do sleep 0.1; done\'; echo left=$?; wait; exec sleep 1000')
        t.modes = termios.tcgetattr(t.fd)
        t.expect('A=begun')
        need(is_raw(t), 'the terminal is raw')
        (w.root / 'go').touch()
        t.expect('B=begun')
        t.type('key\r')
        w.no_relay()
        as_before(t, 'after the first')
        t.type('\x04')
        time.sleep(0.5)  # for whoever would take it for a hang-up
        t.type('\x03')
        t.expect('left=5\r\n')
        as_before(t, 'after the second')
        w.atoll('stop', '--force', '--yes', 'q')


def transcript_and_modes_that_others_set():
    """Somebody makes the terminal what it was: the end of input is no hang-up, and ^C is the command's, once."""
    with Kept() as w:
        t = w.below('bash', '-c', 'trap \'n=$((n+1)); echo n=$n\' INT; echo begun;'
                    ' while :; do read -r x && echo "<$x>"; done')
        t.expect('begun')
        wait_for(lambda: is_raw(t), 'the terminal to be raw')
        termios.tcsetattr(t.fd, termios.TCSANOW, t.modes)
        t.type('\x04')
        t.say('one\r', '<one>')
        t.type('\x03')
        t.expect('n=1\r')
        t.say('two\r', '<two>')
        need(b'n=2' not in t.shown, 'it heard ^C twice')


def transcript_of_a_relay_that_is_late():
    """^C before the terminal is raw reaches the command, which is not in the caller's process group."""
    with Kept() as w:
        late = w.top / 'helper'
        late.write_text(f'#!/bin/sh\n[ "$1" != --relay ] || {{ trap "" INT; until [ -e "{w.top}/go" ]; do sleep 0.1; done; }}\n'
                        f'exec {os.environ["ATOLL_TEST_HELPER"]} "$@"\n')
        late.chmod(0o755)
        w.env['ATOLL_HELPER'] = str(late)
        t = w.below('tail', '-f', '/dev/null')
        wait_for(lambda: named(t.pid, 'tail'), 'the command')
        as_before(t, 'without the relay')
        t.type('\x03')
        wait_for(lambda: not named(t.pid, 'tail'), 'the end of the command')
        (w.top / 'go').touch()
        t.expect(f'left={128 + signal.SIGINT}\r\n')
        as_before(t, 'after the end')


def transcript_of_a_shell_that_is_stopped():
    """A command is stopped that is not in the foreground of its own terminal: fg, and it goes on."""
    with Kept() as w:
        t = w.shell()
        t.type(f'{ATOLL} exec --transcript p -- bash --norc --noprofile --noediting -i\r')
        t.say('PS1="in""ner> "\r', 'inner> ')
        t.type('sleep 98765\r')
        wait_for(lambda: named(t.pid, 'sleep'), 'the command of the inner shell')
        os.kill(named(t.pid, 'bash')[0], signal.SIGSTOP)
        t.expect('Stopped')
        t.expect('ready> ')
        as_before(t, 'while it is stopped')
        t.type('fg\r')
        t.expect('transcript p')
        wait_for(lambda: is_raw(t), 'the terminal to be raw again')
        t.type('\x03')
        t.expect('inner> ')
        t.say('echo in=$((40 + 2))\r', 'in=42')
        t.type('exit 3\r')
        t.expect('ready> ')
        t.say('echo left=$?\r', 'left=3')


def transcript_beside_a_line_that_is_edited():
    """One that begins in the background does not take the modes of a shell's editor for the user's."""
    with Kept() as w:
        t = w.terminal('bash', '--norc', '--noprofile', '-i')
        t.expect('ready> ')
        wait_for(lambda: not termios.tcgetattr(t.fd)[3] & termios.ICANON, 'the editor')
        t.type(f'{ATOLL} exec --transcript p -- sh -c \'stty -a; echo the end\' &\r')
        t.expect(r'\sisig icanon iexten echo ')
        t.expect('the end')


def transcript_without_a_name_for_the_terminal():
    """Where /dev/tty is something else the terminal cannot be opened once more: there are pipes."""
    with Kept() as w:
        t = w.below('sh', '-c', 'echo begun; read -r x; echo "<$x>"', behind='>$(tty)',
                    before='unshare --map-current-user --keep-caps --mount sh -ec \'mount --bind /dev/null /dev/tty; exec "$@"\' sh')
        t.expect('begun')
        as_before(t, 'without a name')
        t.say('key\r', '<key>')
        t.expect('left=0\r\n')


def transcript_of_a_shell():
    """A shell in the plan has jobs of its own, on its own terminal."""
    with Kept() as w:
        w.env['SHELL'] = '/bin/bash'
        t = w.terminal(ATOLL, 'shell', '--transcript', 'p')
        t.expect(r'[$#>] ')
        t.type('sh -c "echo begun=\\$((2+2)); exec sleep 1000"\r')
        t.expect('begun=4')
        t.say('\x1a', 'Stopped')
        t.say('bg; jobs; kill %1; wait; echo count=$((1+1))\r', 'count=2')
        t.type('exit 3\r')
        same(t.end(), 3, 'exit status of the shell')
        w.free()


def transcript_of_a_run():
    """After the command the terminal is the user's, who is asked there."""
    with Kept() as w:
        t = w.terminal(ATOLL, 'run', '--transcript', '--', 'sh', '-c', 'read -r x; echo "<$x>" | tee file')
        t.say('new\r', '<new>')
        t.expect('discard \\? ')
        t.type('k\r')
        same(t.end(), 0, 'exit status')
        plan = next(p for p in json.loads(w.atoll('list', '--json').stdout)['plans'] if p['name'] != 'p')
        same(w.atoll('exec', plan['id'], '--', 'cat', 'file').stdout, b'<new>\n', 'the work')
        w.atoll('stop', '--force', '--yes', plan['id'])


def transcript_of_one_that_joins():
    """Beside another command, in its namespaces: keys, sizes and ^Z, too."""
    with Kept() as w:
        first = w.kept('sh', '-c', 'echo begun; exec sleep 1000')
        first.expect('begun')
        t = w.shell()
        t.type(f'{ATOLL} exec --shared --transcript p -- '
               'bash -c \'echo be""gun; while read -r x; do echo "<$x>"; done\'\r')
        t.expect('begun')
        t.say('one\r', '<one>')
        t.type('\x1a')
        t.expect('Stopped')
        t.expect('ready> ')
        as_before(t, 'while it is stopped')
        t.type('fg\r')
        t.expect('transcript p')
        t.say('two\r', '<two>')
        t.type('\x04')
        t.expect('ready> ')
        as_before(t, 'after the end')
        first.type('\x03')
        first.end()


def transcript_of_a_terminal_of_nobody():
    """A terminal that is not the session's: it has no foreground, and is left as it is."""
    with Kept() as w:
        t = w.terminal('sh', '-c', f'setsid --wait {ATOLL} exec --transcript p -- sh -c '
                       '\'echo begun; read -r x; echo "<$x>"\'; echo left=$?; exec sleep 1000')
        t.modes = termios.tcgetattr(t.fd)
        t.expect('begun\r\n')
        as_before(t, 'while it runs')
        t.type('key\r')
        t.expect('<key>\r\n')
        t.expect('left=0\r\n')
        as_before(t, 'after the end')
        same(w.printed(), b'begun\n<key>\n', 'what was kept')


def transcript_without_namespaces():
    """Where the command is not isolated it has a terminal of its own all the same."""
    closed = ['unshare', '--map-current-user', '--keep-caps', 'sh', '-ec',
              'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"', 'sh']
    with Kept() as w:
        w.atoll('start', 'q', '--strategy', 'copy', '--dir', str(w.root))
        t = w.shell()
        t.type(' '.join(f"'{c}'" for c in closed) + f' {ATOLL} exec --unfenced --transcript q -- '
               'bash -c \'echo be""gun; while read -r x; do echo "<$x>"; done\'\r')
        t.expect('begun')
        t.say('one\r', '<one>')
        t.type('\x1a')
        t.expect('Stopped')
        t.expect('ready> ')
        as_before(t, 'while it is stopped')
        t.type('fg\r')
        t.expect('transcript q')
        t.say('two\r', '<two>')
        t.type('\x04')
        t.expect('ready> ')
        as_before(t, 'after the end')
        w.atoll('stop', '--force', '--yes', 'q')


if __name__ == '__main__':
    sys.exit(run([complaining(check) for check in (
        transcript_of_a_terminal,
        transcript_of_vim,
        transcript_hears_of_sizes,
        transcript_and_keys_that_interrupt,
        transcript_in_a_loop_of_a_script,
        transcript_stops_and_goes_on,
        transcript_size_after_a_stop,
        transcript_stopped_from_outside,
        transcript_of_a_stopped_job_that_is_killed,
        transcript_where_nobody_could_go_on,
        transcript_in_the_background,
        transcript_goes_on_in_the_background,
        transcript_when_nobody_reads,
        transcript_of_much,
        transcript_on_a_full_disk,
        transcript_and_signals_of_processes,
        transcript_of_one_that_is_killed,
        transcript_and_a_hang_up,
        transcript_and_other_descriptors,
        transcript_at_the_end_of_a_pipeline,
        transcript_on_another_terminal,
        transcript_of_two_at_once,
        transcript_and_modes_that_others_set,
        transcript_of_a_relay_that_is_late,
        transcript_of_a_shell_that_is_stopped,
        transcript_beside_a_line_that_is_edited,
        transcript_without_a_name_for_the_terminal,
        transcript_of_a_shell,
        transcript_of_a_run,
        transcript_of_one_that_joins,
        transcript_of_a_terminal_of_nobody,
        transcript_without_namespaces,
    )]))

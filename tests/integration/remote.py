# SPDX-License-Identifier: Apache-2.0
"""atoll --remote exec: what is here is there, the command runs there, and what it changed is here. A real
daemon on a socket; src/remote/cycle.h says what must hold."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from atolld import PATIENCE, main  # noqa: E402
from expect import need, same  # noqa: E402
from remoted import GIT_ENV, LONG, World, look, wait_until  # noqa: E402
from terminals import Terminal  # noqa: E402

ODD = [b'a b', b'new\nline', b'-rf', b'*', b'caf\xc3\xa9', b'\xff\xfe', b'L' * 255, b'tab\t', b'"q"', b'back\\slash']


# ---- what travels ----

def remote_a_plain_directory(top):
    """The state of here is there; the changes of there are here."""
    with World(top) as w:
        p = w.project()
        p.write('a', 'one\n')
        p.write('dir/b', b'\0\1\2' * 70000, 0o755)
        os.symlink('a', p.at('link'))
        os.mkdir(p.at('empty'))
        out = p.good('cat a; cksum <dir/b; readlink link; ls -d empty; test -x dir/b && echo x')
        want = subprocess.run('cat a; cksum <dir/b; readlink link; ls -d empty; echo x', shell=True, cwd=p.root,
                              capture_output=True, check=True).stdout
        same(out, want, 'what the command saw')
        before = p.look(times=True)
        p.good('true')
        same(p.look(times=True), before, 'after a command that changes nothing')
        p.good('echo two >>a; rm -r dir; mv link other; ln -s nowhere dangling; mkdir -p x/y; chmod 700 empty; '
               'printf "\\0bin" >x/bin; chmod 640 x/bin; :>none')
        same(p.read('a'), b'one\ntwo\n', 'a changed file')
        same(sorted(look(p.root)), [b'a', b'dangling', b'empty', b'none', b'other', b'x', b'x/bin', b'x/y'], 'names')
        same(look(p.root)[b'x/bin'], ('file', 0o640, b'\0bin'), 'a new file')
        same(look(p.root)[b'empty'], ('dir', 0o700), 'a directory with another mode')
        same(look(w.mirror()), look(p.root), 'both sides')


def remote_edits_between_commands(top):
    """Deletions, renames, types that change: each cycle sends what differs."""
    with World(top) as w:
        p = w.project()
        for i in range(20):
            p.write(f'd/f{i}', f'{i}\n' * 100)
        p.good('true')
        for step in ('rm d/f1', 'mv d/f2 d/g2', 'rm d/f3; mkdir d/f3; echo x >d/f3/in', 'chmod 600 d/f4',
                     'rm -r d/f3; echo file >d/f3', 'rm d/f5; ln -s f6 d/f5', 'mv d e', ': >e/f7',
                     'mv e/f8 t; mv e/f9 e/f8; mv t e/f9'):
            subprocess.run(step, shell=True, cwd=p.root, check=True)
            p.good('true')
            same(look(w.mirror()), look(p.root), f'after {step}')


def remote_odd_names(top):
    with World(top) as w:
        p = w.project()
        for name in ODD:
            p.write(name, b'<' + name + b'>')
        p.good('for f in * -rf; do :; done; for f in ./*; do printf . >>"$f"; done')
        for name in ODD:
            same(p.read(name), b'<' + name + b'>.', repr(name))
        p.good('rm -- ./*; printf 1 >"$(printf "n\\nl")"')
        same(list(look(p.root)), [b'n\nl'], 'names')


def remote_a_repository(top):
    """Staged, unstaged, untracked, ignored, committed: the same shape there, and back."""
    with World(top) as w:
        p = w.project(git=True)
        p.write('.gitignore', '*.o\nbuild/\n')
        for name in 'abcd':
            p.write(name, f'{name}\n')
        p.git('add', '-A')
        p.git('commit', '-qm', 'one')
        p.write('a', 'staged\n')
        p.git('add', 'a')
        p.write('b', 'unstaged\n')
        p.git('rm', '-q', 'c')
        p.git('mv', 'd', 'e')
        p.write('untracked', 'u\n')
        p.write('x.o', 'here only\n')
        p.write('build/y', 'here only\n')
        want = p.status()
        out = p.good('git status --porcelain=v2 --branch --untracked-files=all; ls')
        same(out, b''.join(line + b'\n' for line in want.splitlines() if not line.startswith(b'!')) +
             b'a\nb\ne\nuntracked\n', 'the status over there')
        p.good('echo there >z.o; mkdir -p build; echo there >build/z; echo more >>b; git add b; git commit -qm two; '
               'git branch side; echo dirty >>a; echo new >n; git add n')
        same(p.git('log', '--format=%s'), b'two\none\n', 'commits')
        same(p.git('rev-parse', 'side'), p.git('rev-parse', 'main'), 'a new branch')
        need(not p.has('z.o') and not p.has('build/z'), 'ignored files came here')
        same((p.read('x.o'), p.read('build/y')), (b'here only\n',) * 2, 'ignored files of here')
        same(p.good('cat z.o build/z'), b'there\n' * 2, 'ignored files of there')
        same(p.status(), p.git('status', '--porcelain=v2', '--branch', '--untracked-files=all', '--ignored'), 'twice')
        need(b'1 AM ' not in p.status() and b'1 A. ' in p.status() and b'1 .M ' in p.status(), p.status())
        p.git('fsck', '--strict')


def remote_git_in_many_shapes(top):
    """What git does there is what git would have done here."""
    scripts = ['git commit -qam x', 'git checkout -q -b topic; echo t >t; git add t; git commit -qm t',
               'git merge -q --no-edit main', 'git rebase -q main', 'git tag v1; git tag -a v2 -m v2',
               'git stash -q', 'git stash pop -q', 'git reset -q --hard HEAD~1', 'git gc -q', 'git branch -D topic || true',
               'git checkout -q --detach']
    with World(top) as w:
        p, here = w.project('p', git=True), w.project('q', git=True)
        for one in (p, here):
            for i in range(3):
                one.write('f', f'{i}\n' * (i + 1))
                one.git('add', '-A')
                one.git('commit', '-qm', f'c{i}')
        for n, script in enumerate(scripts):
            for one in (p, here):
                one.write(f'edit{n % 3}', f'{n}\n')
                if n % 2:
                    one.git('add', '-A')
            subprocess.run(['sh', '-c', script], cwd=here.root, env=dict(w.env, **GIT_ENV), check=False,
                           capture_output=True)
            p.sh(script)
            same((p.status(), p.look(), p.git('for-each-ref')), (here.status(), here.look(), here.git('for-each-ref')),
                 script)


# ---- the command itself ----

def remote_exit_codes(top):
    """The command's, and what atoll's own are."""
    with World(top) as w:
        p = w.project()
        for code in (0, 1, 2, 125, 255):
            same(p.sh(f'echo {code} >file; exit {code}').returncode, code, 'exit status')
            same(p.read('file'), f'{code}\n'.encode(), 'what it left')
        same(p.sh('kill -TERM $$').returncode, 143, 'killed')
        same(p.exec('/nonexistent').returncode, 127, 'not found')
        p.write('plain', 'x')
        same(p.exec('./plain').returncode, 126, 'not executable')
        done = p.sh('echo early; sleep 60', options=['--timeout', '0.5'])
        same((done.returncode, done.stdout), (124, b'early\n'), 'its time is up')
        same(p.good('echo here'), b'here\n', 'afterwards')


def remote_options_reach_it(top):
    with World(top) as w:
        p = w.project()
        p.write('sub/x', 'x')
        out = p.good('echo $A-$B-$C; pwd', options=['--env', 'A=1', '--env', 'B', '--unset', 'C', '--cwd',
                                                                 str(p.root / 'sub')], env={'B': 'two'})
        same(out.decode(), f'1-two-\n{p.root}/sub\n', 'variables and place')
        done = subprocess.run([w.program, '--remote', 'big', 'exec', '--', 'cat', 'x'], cwd=p.root / 'sub', env=w.env,
                              capture_output=True, stdin=subprocess.DEVNULL, check=False)
        same((done.returncode, done.stdout, done.stderr), (0, b'x', b''), 'from below the root')
        same(p.sh('ip link 2>/dev/null | grep -c UP', options=['--net', 'none']).stdout, b'0\n', 'without a network')


def remote_paths_are_those_of_here(top):
    """What a command writes down of where it is stays true here."""
    with World(top) as w:
        p = w.project()
        p.write('sub/x', 'x')
        done = p.exec('sh', '-c', 'pwd >pwd; cat "$PWD/sub/x"; ls -d "$1/sub"; git init -q repo; '
                      'git -C repo rev-parse --show-toplevel', '-', str(p.root))
        same((done.returncode, done.stderr), (0, b''), 'it ran')
        same(done.stdout.decode().split('\n'), [f'x{p.root}/sub', f'{p.root}/repo', ''], 'paths')
        same(p.read('pwd').decode(), f'{p.root}\n', 'written down')
        # A path that cannot be said is no reason not to run.
        odd = w.project(os.fsdecode(b'caf\xff'))
        odd.write('a', 'a')
        same((odd.good('cat a; echo b >a'), odd.read('a')), (b'a', b'b\n'), 'in a directory of any name')


def remote_streams(top):
    """Any bytes, any number, both ways, at once."""
    with World(top) as w:
        p = w.project()
        data = os.urandom(3_000_000)
        done = p.exec('cat', input=data)
        same((done.returncode, done.stdout == data, done.stderr), (0, True, b''), 'there and back')
        done = p.sh('head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2')
        same((len(done.stdout), len(done.stderr)), (10**6,) * 2, 'two outputs')
        for _ in range(20):  # it ends while a frame of input is half sent, or not
            same(p.sh('head -c 5; exit 4', input=b'z' * 2_000_000).returncode, 4, 'input that nobody reads')
        with p.start('sh', '-c', 'read a; echo "<$a>"; read b; echo "<$b>"', stdin=subprocess.PIPE,
                     stdout=subprocess.PIPE) as it:
            for word in (b'one', b'two'):
                it.stdin.write(word + b'\n')
                it.stdin.flush()
                same(it.stdout.readline(), b'<' + word + b'>\n', 'live input')
        it = p.start('sh', '-c', 'yes', stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        it.stdout.read(10)
        it.stdout.close()
        same(it.wait(30), 128 + signal.SIGPIPE, 'nobody reads its output')


def remote_signals(top):
    with World(top) as w:
        p = w.project()
        for sig, code in ((signal.SIGINT, 5), (signal.SIGTERM, 6), (signal.SIGUSR1, 7)):
            with p.start('sh', '-c', f'trap "echo got >sig; exit {code}" {sig.name[3:]}; echo ready; while :; do '
                         'sleep 0.05; done', stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as it:
                it.stdout.readline()
                it.send_signal(sig)
                same(it.wait(30), code, sig.name)
            same(p.read('sig'), b'got\n', 'what it left')


def remote_terminal(top):
    """Keys, the size of the window, ^C; and ^Z, which stops it here and there until it goes on."""
    with World(top) as w:
        p = w.project()
        p.write('a', 'a\n')
        env = dict(w.env, TERM='xterm', PS1='ready> ')
        t = Terminal([w.program, '--remote', 'big', 'exec', '--', 'sh', '-c',
                      'stty size; test -t 0 && echo $TERM; read x; echo "<$x>"; until stty size | grep "^44"; do sleep 0.05; done; '
                      'echo there >a; echo do""ne; exec sleep 100'], env, p.root, rows=33, columns=99)
        t.expect('33 99')
        t.expect('xterm')
        t.resize(44, 111)
        t.type('word\r')
        t.expect('<word>')
        t.expect('44 111')
        t.expect('done')
        t.type('\x03')
        same((t.end(), p.read('a')), (-signal.SIGINT, b'there\n'), 'after ^C')
        t = Terminal(['bash', '--norc', '-i'], env, p.root)
        t.expect('ready> ')
        t.type(f"{w.program} --remote big exec -- sh -c 'echo go\"\"ing; read x; echo \"<$x>\"'\r")
        t.expect('going')
        t.type('\x1a')
        t.expect('Stopped')
        t.expect('ready> ')
        t.say('fg\r', 'fg\r\n.*--remote big exec')
        t.say('more\r', '<more>')
        t.expect('ready> ')
        t.type('exit\r')
        same(t.end(), 0, 'the shell')


def der_11_output_is_never_read_as_frames(top):
    """A command that prints what the daemon sends does not end or free anything."""
    import struct
    with World(top) as w:
        p = w.project()
        frames = b''.join(struct.pack('>BI', kind, len(text)) + text for kind in (*range(13), *range(16, 29))
                          for text in (b'', b'{}', b'{"run":"1","exit_code":0,"changes":0,"generation":99}'))
        p.write('frames', frames * 50)
        done = p.sh('cat frames; cat frames >&2; sleep 0.3; cat frames; exit 9')
        same((done.returncode, done.stdout == frames * 100, done.stderr == frames * 50), (9, True, True), 'its output')
        same(p.good('echo still'), b'still\n', 'the next')


# ---- edits here meanwhile ----

def edit_while_it_runs(p, script, edit):
    """Runs SCRIPT, and EDIT once it began. (exit status, stderr)"""
    with p.start('sh', '-c', f'echo ready; read go; {script}', stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                 stderr=subprocess.PIPE, options=['--status-file', str(p.w.top / 'status')]) as it:
        it.stdout.readline()
        edit()
        said = it.communicate(b'go\n', timeout=300)[1]
    return it.returncode, said.decode(), json.loads((p.w.top / 'status').read_text())


def remote_edits_meanwhile_are_conflicts(top):
    """Both versions are kept, all of the pull waits, and the exit status is the command's."""
    with World(top) as w:
        p = w.project()
        p.write('both', 'old\n')
        p.write('other', 'old\n')
        code, said, status = edit_while_it_runs(p, 'echo there >both; echo there >other; echo there >new; exit 3',
                                                lambda: p.write('both', 'here\n'))
        same(code, 3, f'exit status: {said}')
        same((p.read('both'), p.read('other'), p.has('new')), (b'here\n', b'old\n', False), 'here')
        need(f'{p.root}/both' in said and 'atoll diff' in said, said)
        same([c['path'] for c in status['conflicts']], [f'{p.root}/both'], 'the status file')
        same((status['exit_code'], status['pulled'] >= 3, status['committed']), (3, True, False), 'the status file')
        plan = status['plan']['name']
        need(f'atoll commit {plan}' in said, said)
        done = p.sh('true')
        same(done.returncode, 125, f'the next command waits for a decision: {done.stderr}')
        need(plan.encode() in done.stderr and b'both' in done.stderr, done.stderr)
        w.must('commit', plan, '--ours', str(p.root / 'both'), cwd=p.root)
        same((p.read('both'), p.read('other'), p.read('new')), (b'there\n',) * 3, 'after --ours')
        same(p.good('cat both other new'), b'there\n' * 3, 'afterwards')


def remote_conflicts_settled_for_here(top):
    with World(top) as w:
        p = w.project()
        p.write('both', 'old\n')
        _, _, status = edit_while_it_runs(p, 'echo there >both; echo there >new', lambda: p.write('both', 'here\n'))
        w.must('commit', status['plan']['name'], '--theirs', str(p.root / 'both'), cwd=p.root)
        same(p.good('cat both new'), b'here\nthere\n', 'afterwards')
        _, _, status = edit_while_it_runs(p, 'echo there >>both; echo there >>new', lambda: p.write('both', 'again\n'))
        w.must('stop', '--force', status['plan']['name'], cwd=p.root)
        same(p.good('cat both new'), b'again\nthere\n', 'when it was dropped')


def remote_edits_elsewhere_are_none(top):
    with World(top) as w:
        p = w.project(git=True)
        p.write('a', 'a\n')
        p.write('b', 'b\n')
        code, said, status = edit_while_it_runs(p, 'echo there >a', lambda: p.write('b', 'here\n'))
        same((code, said, status['conflicts']), (0, '', []), 'no conflict')
        same(p.good('cat a b'), b'there\nhere\n', 'both edits')


def remote_rollback_undoes_the_last_pull(top):
    with World(top) as w:
        p = w.project()
        p.write('a', 'one\n')
        p.good('echo two >a; echo new >n')
        w.must('undo', cwd=p.root)
        same((p.read('a'), p.has('n')), (b'one\n', False), 'undone')
        same(p.good('cat a; ls'), b'one\na\n', 'the next one')
        need(len(w.plans_here()) <= 1, f'plans are left: {w.plans_here()}')


def remote_no_plan_is_left_without_changes(top):
    with World(top) as w:
        p = w.project()
        for _ in range(3):
            p.good('true')
        same(w.plans_here(), [], 'plans here')
        for i in range(3):
            p.good(f'echo {i} >f')
        same(len(w.plans_here()), 1, 'plans here: only the last can be undone')


# ---- waiting ----

def cmd_01_commands_of_one_session_are_serial(top):
    """Clients that read a number and write the next one: none is lost, and each sees its own at the end."""
    clients, rounds = (8, 20) if LONG else (4, 3)
    with World(top) as w:
        p = w.project()
        p.write('n', '0\n')
        p.good('true')
        script = 'n=$(cat n); sleep 0.05; echo $((n+1)) >n; cat n'
        loops = [subprocess.Popen(['sh', '-c', f'for i in {" ".join(map(str, range(rounds)))}; do "$0" --remote big exec '
                                   f'-- sh -c \'{script}\' </dev/null || echo failed $?; done', w.program], cwd=p.root, env=w.env,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(clients)]
        said = [loop.communicate(timeout=600) for loop in loops]
        seen = sorted(int(n) for out, _ in said for n in out.split())
        same(seen, list(range(1, clients * rounds + 1)), f'numbers: {said}')
        same(p.read('n'), f'{clients * rounds}\n'.encode(), 'the last number')


def der_10_a_client_that_is_killed_frees_the_session(top):
    nap = f'1000.{os.getpid()}'  # nobody else's
    with World(top) as w:
        p = w.project()
        p.write('a', 'a')
        p.good('ls')
        for _ in range(10):  # others may have the processors now and then
            begun = time.monotonic()
            p.good('ls')
            alone = time.monotonic() - begun
            it = p.start('sh', '-c', 'echo half >half; echo $$; exec sleep ' + nap, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
            it.stdout.readline()
            begun = time.monotonic()
            it.kill()
            same(p.good('ls'), b'a\n', 'what is there')
            took = time.monotonic() - begun
            it.wait()
            it.stdout.close()
            if took < 1 + 2 * alone:
                break
        need(took < 1 + 2 * alone, f'the next one took {took:.2f} s, and {alone:.2f} alone')
        wait_until(lambda: subprocess.run(['pgrep', '-x', '-f', f'sleep {nap}'], capture_output=True, check=False).returncode != 0,
                   'the command lives on')
        same((p.has('half'), w.plans_here()), (False, []), 'what is left here')


def der_14_nothing_of_a_command_outlives_it(top):
    """A process of its own session, with every descriptor that it was given, is gone with the command; the
    locks are free, and the next one enters."""
    with World(top) as w:
        p = w.project()
        other = w.project('other')
        other.good('true')
        nap = f'1001.{os.getpid()}'  # nobody else's
        p.good(f'setsid -f sleep {nap} </dev/null >/dev/null 2>&1; echo x >made; ls /proc/self/fd >fds')
        wait_until(lambda: subprocess.run(['pgrep', '-x', '-f', f'sleep {nap}'], capture_output=True, check=False).returncode != 0,
                   'somebody is left')
        need(set(p.read('fds').split()) <= {b'0', b'1', b'2', b'3'}, p.read('fds'))
        for _ in range(20):  # others may have the processors now and then
            begun = time.monotonic()
            other.good('true')
            alone = time.monotonic() - begun
            begun = time.monotonic()
            p.good('test -e made')
            took = time.monotonic() - begun
            if took < 0.1 + 2 * alone:
                break
        need(took < 0.1 + 2 * alone, f'the next one took {took:.2f} s, and {alone:.2f} alone')


def der_23_waiting_ends_and_names_the_holder(top):
    with World(top) as w:
        p = w.project()
        with p.start('sh', '-c', 'echo ready; read x', stdin=subprocess.PIPE, stdout=subprocess.PIPE) as it:
            it.stdout.readline()
            done = p.sh('true', options=['--wait', '0.2'])
            same(done.returncode, 125, f'it did not wait: {done.stderr}')
            need(f'pid {it.pid}'.encode() in done.stderr, f'the holder is not named: {done.stderr}')
            other = p.start('true', stderr=subprocess.PIPE)
            need(f'pid {it.pid}'.encode() in other.stderr.readline(), 'who is waited for')
            it.communicate(b'\n', timeout=300)
            same(other.wait(300), 0, 'the one that waited')
            other.stderr.close()


def cmd_04_a_daemon_without_a_lock(top):
    with World(top, '--unserialized') as w:
        p = w.project()
        done = p.sh('echo ran >file')
        same((done.returncode, p.has('file')), (125, False), done.stderr)
        need(b'no lock' in done.stderr and b'--unserialized' in done.stderr, done.stderr)
        p.good('echo ran >file', options=['--unserialized'])
        same(p.read('file'), b'ran\n', 'what it made')


def remote_a_key_that_was_revoked(top):
    """Over TCP, with tokens: as long as the key is in force, and not a command longer."""
    with World(top, '--listen=127.0.0.1:0', f'--socket={top}/sock') as w:
        there = {'ATOLL_HOME': f'{top}/there'}
        key = Path(top) / 'key'
        key.touch(0o600)
        key.write_bytes(w.must('token', 'new', 'laptop', '--scope', 'agent', env=there))
        place = next(x for x in w.daemon.places() if x.startswith('127'))
        w.must('remote', 'remove', 'big')
        w.must('remote', 'add', 'big', f'http://{place}', '--key-file', str(key))
        p = w.project()
        p.write('a', 'a\n')
        same(p.good('cat a; echo b >a'), b'a\n', 'with a key')
        with p.start('sh', '-c', 'echo c >a; echo ready; sleep 100', stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE) as it:
            it.stdout.readline()
            w.must('token', 'revoke', 'laptop', env=there)
            said = it.communicate(timeout=300)[1]
        same((it.returncode, p.read('a')), (125, b'b\n'), said)
        need(b'while the command ran' in said and b"key 'laptop' was revoked" in said, said)
        need(b'nothing was changed here' in said and b'atoll token new' in said, said)
        for done in (p.sh('echo c >a'), p.atoll('--remote', 'big', 'diff')):
            need(done.returncode != 0 and b"key 'laptop' was revoked" in done.stderr, done.stderr)
            need(b'atoll token new' in done.stderr, done.stderr)
        same(p.read('a'), b'b\n', 'nothing is changed')
        same(len(w.plans_here()), 1, 'only what can be undone is left')


def remote_a_key_that_is_over(top):
    """What began with it ends as it would have. Then the user reads since when, by which clock."""
    with World(top, '--listen=127.0.0.1:0', f'--socket={top}/sock') as w:
        there = {'ATOLL_HOME': f'{top}/there'}
        key = Path(top) / 'key'
        key.touch(0o600)
        place = next(x for x in w.daemon.places() if x.startswith('127'))
        w.must('remote', 'remove', 'big')
        key.write_bytes(w.must('token', 'new', 'short', '--scope', 'agent', '--expires', '1h', env=there))
        w.must('remote', 'add', 'big', f'http://{place}', '--key-file', str(key))
        p = w.project()
        with p.start('sh', '-c', 'echo ready; read x; echo b >a; echo done', stdin=subprocess.PIPE, stdout=subprocess.PIPE) as it:
            same(it.stdout.readline(), b'ready\n', 'it began')
            with contextlib.closing(sqlite3.connect(f'{top}/there/atoll.db', timeout=PATIENCE, isolation_level=None)) as db:
                need(db.execute('UPDATE credential SET expires_ms = 1000').rowcount > 0, 'the key, and its token')
            same(it.communicate(b'\n', timeout=300)[0], b'done\n', 'it is over in the middle')
        same(it.returncode, 0, 'and how it ended')
        same(p.read('a'), b'b\n', 'and what it changed came')
        done = p.sh('echo c >a')
        same((done.returncode, p.read('a')), (125, b'b\n'), done.stderr)
        need(re.search(rb"key 'short' is over since \S+Z by the daemon's clock, which says \S+Z", done.stderr), done.stderr)
        need(b'atoll token new' in done.stderr and key.read_bytes().strip() not in done.stderr, done.stderr)


def remote_no_room_for_what_comes(top):
    """The command has run, and the user reads so."""
    with World(top) as w:
        p = w.project()
        p.write('a', 'a\n')
        p.good('true')
        w.must('config', 'set', 'exec.min-free', '1000000g')
        done = p.sh('echo b >a; echo said; exit 7')
        same((done.returncode, done.stdout, p.read('a')), (7, b'said\n', b'a\n'), done.stderr)
        need(b'exec.min-free' in done.stderr and b'not started' not in done.stderr, done.stderr)
        need(b'kept there: make room here' in done.stderr and b'atoll --remote big commit' in done.stderr, done.stderr)
        again = p.sh('echo c >a')
        same((again.returncode, p.read('a')), (125, b'a\n'), again.stderr)
        w.must('config', 'set', 'exec.min-free', '0')
        w.must('--remote', 'big', 'commit', cwd=p.root)
        same(p.read('a'), b'b\n', 'it is brought')


def remote_the_daemon_is_not_there(top):
    with World(top) as w:
        p = w.project()
        p.good('true')
        w.daemon.stop()
        done = p.sh('true')
        same(done.returncode, 125, 'exit status')
        need(b'big' in done.stderr or b'sock' in done.stderr, done.stderr)
        same(w.plans_here(), [], 'plans here')
        w.daemon = w.make_daemon().start()
        p.good('true')


if __name__ == '__main__':
    main([remote_a_plain_directory, remote_edits_between_commands, remote_odd_names, remote_a_repository,
          remote_git_in_many_shapes, remote_exit_codes, remote_options_reach_it, remote_paths_are_those_of_here,
          remote_streams, remote_signals, remote_terminal,
          der_11_output_is_never_read_as_frames, remote_edits_meanwhile_are_conflicts, remote_conflicts_settled_for_here,
          remote_edits_elsewhere_are_none, remote_rollback_undoes_the_last_pull, remote_no_plan_is_left_without_changes,
          cmd_01_commands_of_one_session_are_serial, der_10_a_client_that_is_killed_frees_the_session,
          der_14_nothing_of_a_command_outlives_it, der_23_waiting_ends_and_names_the_holder, cmd_04_a_daemon_without_a_lock,
          remote_a_key_that_was_revoked, remote_a_key_that_is_over, remote_no_room_for_what_comes,
          remote_the_daemon_is_not_there])

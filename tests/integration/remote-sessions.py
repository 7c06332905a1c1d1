#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions at a remote: one for each project and branch, however many commands come at once, whoever is stopped
or killed in between, and whatever goes wrong. A real daemon, real repositories, real processes.

ATOLL_LONG=1: a hundred rounds instead of some.
"""

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

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from atolld import PATIENCE, Daemon, main  # noqa: E402
from expect import need, same  # noqa: E402

ATOLL = os.environ['ATOLL']
HOLD = os.environ['ATOLL_TEST_HOLD_LOCK']
LONG = os.environ.get('ATOLL_LONG') == '1'
ROUNDS = 100 if LONG else 2
AT_ONCE = 30
KILLED = -signal.SIGKILL
GIT = ['git', '-c', 'user.name=a', '-c', 'user.email=a@example', '-c', 'commit.gpgsign=false',
       '-c', 'init.defaultBranch=main']


class World:
    """A daemon with a store of its own, and a client with another."""

    def __init__(self, top):
        for name in ('ATOLL_PLAN', 'ATOLL_PLAN_ID', 'ATOLL_REMOTE', 'http_proxy', 'https_proxy'):
            os.environ.pop(name, None)
        self.top = Path(top)
        self.project = self.top / 'project'
        self.project.mkdir()
        self.env = {**os.environ, 'ATOLL_HOME': f'{top}/home', 'XDG_CONFIG_HOME': f'{top}/config', 'NO_COLOR': '1',
                    'LC_ALL': 'C.UTF-8', 'HOME': str(top)}
        self.daemon = Daemon(top, f'--socket={top}/sock', '--listen=127.0.0.1:0', f'--mirrors={top}/mirrors')
        self.key_file = self.top / 'key'
        self.n = 0

    def __enter__(self):
        self.daemon.__enter__()
        self.new_key()
        port = next(p for p in self.daemon.places() if p.startswith('127')).rpartition(':')[2]
        self.must('remote', 'add', 'big', f'http://127.0.0.1:{port}', '--key-file', str(self.key_file))
        return self

    def __exit__(self, kind, *more):
        for plan in self.plans():
            self.there('stop', '--force', '--yes', plan)
        self.daemon.__exit__(kind, *more)

    # ---- the daemon's side ----

    def there(self, *words):
        return subprocess.run([ATOLL, *words], env=self.daemon.env, cwd=self.top, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE, check=False)

    def new_key(self, *options, scope='admin'):
        self.n += 1
        secret = self.there('token', 'new', f'k{self.n}', '--scope', scope, *options).stdout.strip()
        need(secret.startswith('atk_'), 'a key')
        fd = os.open(self.key_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(fd, secret.encode() + b'\n')
        os.close(fd)
        return f'k{self.n}'

    def end_there(self, plan):
        """Behind the client's back."""
        answer = self.daemon.ask(f'DELETE /v1/plans/{plan}?force=true', place=f'unix:{self.top}/sock')
        same(answer.status, 200, f'{plan} is ended')

    def plans(self):
        return [p['id'] for p in json.loads(self.there('list', '--json').stdout)['plans']]

    def mirrors(self):
        top = self.top / 'mirrors'
        return sorted(p.name for p in top.iterdir()) if top.exists() else []

    # ---- the client's ----

    def start(self, *words, cwd=None, env=()):
        return subprocess.Popen([ATOLL, '--remote', 'big', *words], env={**self.env, **dict(env)}, cwd=cwd or self.project,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words, cwd=None, env=(), remote=True):
        return subprocess.run([ATOLL, *(['--remote', 'big'] if remote else []), *words], env={**self.env, **dict(env)},
                              cwd=cwd or self.project, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    def must(self, *words):
        done = self.run(*words, remote=False)
        need(done.returncode == 0, f'atoll {" ".join(words)}: {done.stderr}')

    def session(self, *words, **more):
        done = self.run('start', '--json', *words, **more)
        need(done.returncode == 0, f'start: {done.stdout}{done.stderr}')
        return json.loads(done.stdout)['session']

    def sessions(self):
        return json.loads(self.run('list', '--json').stdout)['sessions']

    def git(self, *words, cwd=None):
        done = subprocess.run([*GIT, *words], cwd=cwd or self.project, env=self.env, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        need(done.returncode == 0, f'git {words}: {done.stderr}')
        return done.stdout.strip()

    def commit(self, text):
        self.git('commit', '-q', '--allow-empty', '-m', text)
        return self.git('rev-parse', 'HEAD')

    def is_free(self, lock):
        done = subprocess.run([HOLD, f'{self.top}/home/locks', lock, 'try'], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=PATIENCE, check=False)
        return done.returncode == 0

    @contextlib.contextmanager
    def held(self, lock):
        holder = subprocess.Popen([HOLD, f'{self.top}/home/locks', lock, 'wait'], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        need(holder.stdout.read(1) == b'h', f'{lock} is held')
        try:
            yield holder.pid
        finally:
            holder.stdin.close()
            holder.wait(PATIENCE)
            holder.stdout.close()

    def one(self, what):
        """One session here, one plan there, one mirror, and they are the same."""
        sessions = self.sessions()
        same(len(sessions), 1, f'{what}: sessions')
        same(self.plans(), [sessions[0]['plan']], f'{what}: plans')
        same(self.mirrors(), [sessions[0]['plan']], f'{what}: mirrors')
        same(sessions[0]['state'], 'active', what)
        return sessions[0]


def left_of_sessions(w):
    """Locks and directories, here and there."""
    found = [p for kind in ('session', 'cycle') for p in (w.top / 'home/locks').glob(f'*.{kind}')]
    there = Path(w.daemon.env['ATOLL_HOME'])
    found += [p for d in (w.top / 'home/remote', there / 'sessions', there / 'plans') if d.exists() for p in d.iterdir()]
    found += [p for p in (there / 'locks').iterdir() if p.name not in ('store.lk', 'audit.lk')]
    return [str(p.relative_to(w.top)) for p in found]


def finish(processes, what):
    """The ids that all of them say."""
    said = []
    for p in processes:
        out, err = p.communicate(timeout=PATIENCE)
        need(p.returncode == 0, f'{what}: {p.returncode}: {err}')
        said.append(json.loads(out)['session']['id'])
    return said


def until(ok, what):
    deadline = time.monotonic() + PATIENCE
    while not ok():
        need(time.monotonic() < deadline, f'never: {what}')
        time.sleep(0.01)


# ---- one ever ----

def sto_01_thirty_commands_at_once_have_one_session(top):
    """On an empty store, each time; and every one of them is run, one after another."""
    with World(top) as w:
        (w.project / 'log').write_text('')
        for n in range(100 if LONG else int(os.geteuid() == 0)):
            w.env['ATOLL_HOME'] = f'{top}/home{n}'
            begun = time.monotonic()
            all_of_them = [w.start('exec', '--', 'sh', '-c', 'echo x >>log') for _ in range(AT_ONCE)]
            for p in all_of_them:
                out, err = p.communicate(timeout=600)
                same((p.returncode, out), (0, ''), f'round {n}: {err}')
            w.one(f'round {n}')
            same((w.project / 'log').read_text(), 'x\n' * AT_ONCE * (n + 1), f'round {n}: what they did')
            need(time.monotonic() - begun < 600, 'none waits for itself')
            w.must('--remote', 'big', 'stop', '--dir', str(w.project))
            same((w.plans(), w.mirrors(), w.sessions()), ([], [], []), f'round {n}: stopped')


def sto_01_sto_04_thirty_at_once_make_one_session(top):
    with World(top) as w:
        for n in range(ROUNDS):
            begun = time.monotonic()
            said = finish([w.start('start', '--json') for _ in range(AT_ONCE)], f'round {n}')
            need(time.monotonic() - begun < 300, 'none waits for itself')
            same(len(set(said)), 1, f'round {n}: they say the same')
            one = w.one(f'round {n}')
            same(one['id'], said[0], f'round {n}: which is the one')
            w.must('--remote', 'big', 'stop', '--dir', str(w.project))
            same(w.plans(), [], f'round {n}: stopped there')
            same(w.mirrors(), [], f'round {n}: and its mirror')
            same(w.sessions(), [], f'round {n}: and here')


def creating(w):
    """A creator that waits for the daemon, which stands still: what it is to make is recorded."""
    w.run('list')  # the store
    w.daemon.tell(signal.SIGSTOP)
    creator = w.start('start', '--json')
    until(lambda: any(s['state'] == 'creating' for s in w.sessions()), 'it is recorded')
    return creator


def der_13_a_creator_that_stands_still_is_waited_for(top):
    with World(top) as w:
        creator = creating(w)
        creator.send_signal(signal.SIGSTOP)
        w.daemon.tell(signal.SIGCONT)
        late = w.run('--wait', '0.3', 'start')
        same(late.returncode, 5, f'who waits in vain: {late.stderr}')
        need(f'pid {creator.pid} ' in late.stderr, f'names the creator {creator.pid}: {late.stderr}')
        others = [w.start('start', '--json') for _ in range(8)]
        time.sleep(0.5)
        need(all(p.poll() is None for p in others), 'the others wait')
        creator.send_signal(signal.SIGCONT)
        said = finish([creator, *others], 'all of them')
        same(len(set(said)), 1, 'they say the same')
        w.one('after it went on')


def der_13_a_creator_that_is_killed_is_taken_over(top):
    with World(top) as w:
        for n in range(3 if LONG else 1):
            creator = creating(w)
            others = [w.start('start', '--json') for _ in range(8)]
            creator.kill()
            creator.communicate()
            w.daemon.tell(signal.SIGCONT)
            said = finish(others, 'the others')
            same(len(set(said)), 1, 'they say the same')
            w.one('after it was killed')
            w.must('--remote', 'big', 'stop', '--dir', str(w.project))


def session_points():
    source = Path(os.environ['ATOLL_SOURCE_ROOT'])
    return sorted({m for path in (source / 'src/remote').glob('*.c')
                   for m in re.findall(r'\bcrashpoint\("(session\.[^"]+)"\)', path.read_text())})


def der_13_killed_at_every_point_there_is_one(top):
    """Making, replacing and ending; then making again."""
    with World(top) as w:
        passed = set()
        # As a user the same is done, but by the same program: some are enough.
        points = session_points() if LONG or os.geteuid() == 0 else session_points()[::3]
        for point in points:
            env = {'ATOLL_CRASHPOINT': point}
            first = w.run('start', env=env)
            w.session()
            w.one(f'{point}, made')
            plan = w.plans()[0]
            w.end_there(plan)
            replaced = w.run('start', env=env)
            w.session()
            w.one(f'{point}, replaced')
            ended = w.run('stop', '--force', env=env)
            w.session()
            w.one(f'{point}, ended')
            same(w.run('stop').returncode, 0, f'{point}: the end')
            same((w.sessions(), w.plans(), w.mirrors()), ([], [], []), f'{point}: nothing is left')
            same(left_of_sessions(w), [], f'{point}: no file is left')
            if KILLED in (first.returncode, replaced.returncode, ended.returncode):
                passed.add(point)
        same(sorted(passed), points, 'each point was reached')


# ---- the store's lock ----

def sto_02_nothing_is_held_while_a_command_runs(top):
    with World(top) as w:
        w.session()

        def timed(words, status):
            begun = time.monotonic()
            done = w.run(*words)
            same(done.returncode, status, f'{words}: {done.stderr}')
            return time.monotonic() - begun, done.stderr

        calls = (['list'], ['start'], ['diff'])
        alone = [max(timed(words, 0)[0] for _ in range(3)) for words in calls]
        busy = w.start('exec', '--', 'sh', '-c', 'echo ready; sleep 20')
        busy.stdout.readline()
        for words, before in zip(calls, alone):
            took = timed(words, 0)[0]
            need(took < 0.3 + 2 * before, f'{words} took {took:.2f} s, and {before:.2f} before')
        took, said = timed(['--wait', '0', 'exec', '--', 'true'], 125)
        need(took < 0.3 + 2 * max(alone) and f'pid {busy.pid} ' in said, f'another finds out who runs: {took:.2f} s, {said}')
        busy.kill()
        busy.communicate(timeout=PATIENCE)


def sto_03_every_writer_takes_the_lock_and_no_reader(top):
    with World(top) as w:
        w.session()
        other = Path(top) / 'other'
        other.mkdir()
        with w.held('store.lk') as pid:
            for words in (['list'], ['diff'], ['log'], ['start']):  # start only finds it
                same(w.run('--wait', '0.2', *words).returncode, 0, f'{words} reads')
            for words, cwd in ((['start'], other), (['stop'], w.project)):
                done = w.run('--wait', '0.2', *words, cwd=cwd)
                same(done.returncode, 5, f'{words}: {done.stderr}')
                need(f'pid {pid} ' in done.stderr, f'{words} names {pid}: {done.stderr}')
        # What stop had ended there is found to be gone, and replaced; nothing is lost.
        w.session()
        w.one('afterwards')


def sto_05_after_every_failure_the_locks_are_free(top):
    """And nothing is half made."""
    with World(top) as w:
        w.git('init', '-q')
        w.commit('one')

        def fails(status, says, *words, what, **more):
            done = w.run(*words, **more)
            same(done.returncode, status, f'{what}: {done.stderr}')
            need(says in done.stderr, f'{what}: says {says}: {done.stderr}')
            need('hint: ' in done.stderr, f'{what}: what to do: {done.stderr}')
            need(w.is_free('store.lk'), f'{what}: the store is free')
            for lock in (Path(top) / 'home/locks').glob('*.session'):
                need(w.is_free(lock.name), f'{what}: {lock.name} is free')

        w.run('list')
        good = w.key_file.read_text()
        w.key_file.write_text('atk_' + 'x' * 49)
        fails(1, 'the key was refused', 'start', what='a wrong key')
        same(w.sessions(), [], 'a refusal leaves no session')
        w.key_file.write_text(good)
        w.daemon.tell(signal.SIGKILL)
        w.daemon.process.wait()
        fails(6, 'cannot reach the daemon', 'start', what='no daemon')
        same([s['state'] for s in w.sessions()], ['creating'], 'nobody knows whether there is one')
        w.daemon.options = [o if not o.startswith('--listen') else f'--listen=127.0.0.1:{port_of(w)}'
                            for o in w.daemon.options]
        w.daemon.states = []
        w.daemon.start()
        w.session()
        w.one('the daemon is back')
        fails(1, "has no session 'ffff'", 'start', '--session', 'ffff', what='an unknown id')
        (Path(top) / 'linked').mkdir()
        w.git('worktree', 'add', '-q', f'{top}/linked/tree')
        fails(6, 'linked worktree', 'start', what='a linked worktree', cwd=f'{top}/linked/tree')


def port_of(w):
    text = Path(f'{w.top}/config/atoll/config').read_text()
    return re.search(r'127\.0\.0\.1:(\d+)', text)[1]


# ---- which one ----

def sto_06_several_are_an_error_that_names_them(top):
    with World(top) as w:
        w.git('init', '-q')
        w.commit('one')
        main_id = w.session()['id']
        w.git('checkout', '-q', '-b', 'topic')
        topic_id = w.session()['id']
        need(main_id != topic_id, 'a session for each branch')
        w.git('checkout', '-q', '--detach')
        done = w.run('start')
        same(done.returncode, 1, f'ambiguous: {done.stderr}')
        need(main_id in done.stderr and topic_id in done.stderr, f'names both: {done.stderr}')
        same(w.run('start', '--json').stdout.count('"ambiguous"'), 1, 'by its code')
        for one in (main_id, topic_id):
            same(w.session('--session', one)['id'], one, 'an id picks')
            same(w.session('--session', one[:8])['id'], one, 'and its beginning')
        same(len(w.sessions()), 2, 'no third was made')


def sto_06_a_detached_head_finds_its_session_by_ancestry(top):
    with World(top) as w:
        w.git('init', '-q')
        w.commit('one')
        main_id = w.session()['id']
        w.git('checkout', '-q', '--detach')
        same(w.session()['id'], main_id, 'HEAD itself')
        second = w.commit('two')
        same(w.session()['id'], main_id, 'an ancestor')
        w.git('checkout', '-q', '-b', 'near')
        near_id = w.session()['id']
        w.git('checkout', '-q', '--detach')
        w.commit('three')
        same(w.session()['id'], near_id, 'the nearer of two')
        w.git('checkout', '-q', '--orphan', 'other')
        w.commit('elsewhere')
        w.git('checkout', '-q', '--detach')
        orphan = w.session()
        need(orphan['id'] not in (main_id, near_id), 'no ancestor: one of its own')
        same(orphan['branch'], '@' + orphan['head'], 'which is known by where it began')
        same(w.session()['id'], orphan['id'], 'and found again')
        need(second, 'a commit')


def a_session_that_is_stopped_leaves_no_file(top):
    """Whoever comes too late for it, or waits for it, leaves none either."""
    with World(top) as w:
        w.session()
        first = w.start('exec', '--', 'sh', '-c', 'echo ready; sleep 0.5')
        first.stdout.readline()
        end = w.start('stop')
        others = [w.start('--wait', '20', *words) for words in (['exec', '--', 'true'], ['stop'], ['exec', '--', 'true'])]
        for p in (first, end, *others):
            p.communicate(timeout=PATIENCE)
        w.run('stop')
        same((w.sessions(), w.plans(), left_of_sessions(w)), ([], [], []), 'nothing is left')


def a_plan_that_is_gone_is_replaced(top):
    with World(top) as w:
        before = w.session()
        w.end_there(before['plan'])
        done = w.run('start')
        need('replaced session' in done.stderr and 'was gone' in done.stderr, f'said: {done.stderr}')
        after = w.one('replaced')
        same(after['id'], before['id'], 'the same session')
        need(after['plan'] != before['plan'], 'with another plan')
        # And at once by many.
        w.end_there(after['plan'])
        finish([w.start('start', '--json') for _ in range(10)], 'ten at once')
        w.one('replaced once')


def an_idle_session_is_not_cleaned_away(top):
    """All of its plan's work is committed, and none of it can be undone: a clean-up on that side leaves it all the same."""
    with World(top) as w:
        before = w.session()
        done = w.run('exec', '--', 'sh', '-c', 'echo there >from-there')
        same(done.returncode, 0, f'exec: {done.stderr}')
        for words in (('clean', '--dry-run', '--json'), ('clean', '--json')):
            said = w.there(*words)
            same(said.returncode, 0, f'{words}: {said.stderr}')
            need(before['plan'] not in said.stdout, f'{words} takes the plan of a session: {said.stdout}')
        same(w.session()['plan'], before['plan'], 'the plan of the session')


# ---- keys ----

def keys_that_are_over_or_revoked_are_said_to_be(top):
    with World(top) as w:
        session = w.session()
        name = w.new_key()
        same(w.session()['id'], session['id'], 'another key')
        w.there('token', 'revoke', name)
        for words in (['start'], ['diff'], ['log'], ['stop']):
            done = w.run(*words)
            same(done.returncode, 1, f'{words}: {done.stderr}')
            need('was revoked' in done.stderr and 'atoll token new' in done.stderr, f'{words}: {done.stderr}')
        w.new_key('--expires', '1s')
        time.sleep(1.2)
        done = w.run('start')
        same(done.returncode, 1, 'over')
        need('is over since' in done.stderr, f'over: {done.stderr}')
        need('atk_' not in done.stderr + done.stdout, 'and not shown')
        w.new_key()
        same(w.session()['id'], session['id'], 'all is well with a new one')
        w.one('the same session')


def a_key_of_an_agent_will_do(top):
    with World(top) as w:
        w.new_key(scope='agent')
        w.session()
        w.one('made')
        first = w.key_file.read_text()
        w.new_key(scope='agent')
        done = w.run('stop')
        same(done.returncode, 1, f"another agent's: {done.stderr}")
        need('with the key that made it' in done.stderr, f"another agent's: {done.stderr}")
        w.key_file.write_text(first)
        for words in (['diff'], ['log'], ['reset'], ['stop']):
            done = w.run(*words)
            same(done.returncode, 0, f'{words}: {done.stderr}')
        same((w.sessions(), w.plans(), w.mirrors()), ([], [], []), 'nothing is left')


if __name__ == '__main__':
    main([
        sto_01_thirty_commands_at_once_have_one_session,
        sto_01_sto_04_thirty_at_once_make_one_session,
        der_13_a_creator_that_stands_still_is_waited_for,
        der_13_a_creator_that_is_killed_is_taken_over,
        der_13_killed_at_every_point_there_is_one,
        sto_02_nothing_is_held_while_a_command_runs,
        sto_03_every_writer_takes_the_lock_and_no_reader,
        sto_05_after_every_failure_the_locks_are_free,
        sto_06_several_are_an_error_that_names_them,
        sto_06_a_detached_head_finds_its_session_by_ancestry,
        a_session_that_is_stopped_leaves_no_file,
        a_plan_that_is_gone_is_replaced,
        an_idle_session_is_not_cleaned_away,
        keys_that_are_over_or_revoked_are_said_to_be,
        a_key_of_an_agent_will_do,
    ])

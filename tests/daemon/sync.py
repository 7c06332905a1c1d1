# SPDX-License-Identifier: Apache-2.0
"""Sessions of remote clients through a real atolld: the cycle of push, run and pull; one client after
another; clients and daemons that die at every step; and those who do not keep to the protocol."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
import execclient  # noqa: E402
from atolld import SANITIZED, Daemon, Skip, certificate, main  # noqa: E402
from execclient import Refused, Session, frame  # noqa: E402
from expect import need, same  # noqa: E402

SOON = 30 if SANITIZED else 1  # seconds in which a client that went must be forgotten


def stream_of(root, *paths):
    """What atoll-sync sends of these paths, as they are below ROOT."""
    said = subprocess.run([os.environ['ATOLL_SYNC'], 'send', str(root)], input=b''.join(os.fsencode(p) + b'\0' for p in paths),
                          capture_output=True, check=False, timeout=300)
    need(said.returncode == 0, f'atoll-sync send: {said.stderr.decode()}')
    return said.stdout


def apply(root, stream):
    said = subprocess.run([os.environ['ATOLL_SYNC'], 'apply', str(root)], input=stream, capture_output=True, check=False,
                          timeout=300)
    need(said.returncode == 0, f'atoll-sync apply: {said.stderr.decode()}')


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tree(root):
    """Every entry below ROOT: type, mode, content."""
    found = {}
    for path in sorted(Path(root).rglob('*')):
        st = path.lstat()
        what = os.readlink(path) if path.is_symlink() else digest(path) if path.is_file() else None
        found[str(path.relative_to(root))] = (oct(st.st_mode), what)
    return found


class World(Daemon):
    """A daemon, a local project, and sessions for it."""

    def __init__(self, top, *options, **more):
        self.mirrors = Path(top) / 'mirrors'
        super().__init__(top, *options, f'--mirrors={self.mirrors}', **more)
        self.local = self.top / 'local'
        (self.local / 'sub').mkdir(parents=True, exist_ok=True)
        (self.local / 'n').write_text('0\n')
        (self.local / 'sub' / 'x').write_text('x\n')
        (self.local / 'link').symlink_to('sub/x')

    def atoll(self, *words):
        return subprocess.run([os.environ['ATOLL'], *words], env=self.env, cwd=self.local, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=300, check=False)

    def make(self, label='laptop:/src', key=None, **more):
        headers = ['Content-Type: application/json', *([f'Idempotency-Key: {key}'] if key else [])]
        answer = self.ask('POST /v1/sessions', {'label': label, **more}, headers=headers)
        need(answer.status == 201, f'{answer.status} {answer.body}')
        return answer.json()

    def session(self, plan, **more):
        return Session(self, plan, **more).open()

    def filled(self):
        """A session with the project in it; its plan's id and its mirror."""
        made = self.make()
        plan = made['plan']['id']
        with self.session(plan) as s:
            same(s.push(stream_of(self.local, *tree(self.local))), 1, 'the generation of the first push')
            s.shut()
        return plan, Path(made['root'])

    def again(self, kill=True):
        """Another daemon, after this one's death or end."""
        if kill:
            self.process.kill()
            self.end()
        else:
            same(self.stop(), 0, 'its exit status')
        self.states = []
        self.start()

    def events(self, plan):
        lines = self.atoll('log', '--json', plan).stdout.splitlines()
        return [json.loads(line).get('what') for line in reversed(lines)]

    def __exit__(self, kind, *rest):
        if kind is None:
            for plan in json.loads(self.atoll('list', '--json').stdout)['plans']:
                self.atoll('stop', '--force', '--yes', '--wait', '20', plan['id'])
        super().__exit__(kind, *rest)


# ---- the cycle ----

def sync_a_whole_cycle(top):
    with World(top) as d:
        made = d.make('laptop:/src (main)')
        plan, mirror = made['plan']['id'], Path(made['root'])
        same(made['generation'], 0, 'nothing was pushed')
        same(mirror.parent, d.mirrors, 'where the mirror is')
        with d.session(plan) as s:
            same(s.opened, {'generation': 0, 'pending': None, 'features': ['lock'], 'root': str(mirror)}, 'opened')
            same(s.push(stream_of(d.local, *tree(d.local))), 1, 'the first push')
            same(tree(mirror), tree(d.local), 'the mirror')
            s.ping()
            s.run('sh', '-c', 'cat n; echo 1 >n; mkdir new; echo y >new/y; rm link; exit 3')
            same((bytes(s.stdout), s.exit['exit_code'], s.exit['changes'] > 0), (b'0\n', 3, True), 'the run')
            same(tree(mirror), tree(d.local), 'the mirror, before it was received')
            stream, end = s.pull()
            same(end['run'], s.exit['run'], 'which run')
            apply(d.local, stream)
            same(s.received(end['run']), 2, 'the generation after it')
            same(tree(mirror), tree(d.local), 'the mirror is what is here')
            same((d.local / 'new' / 'y').read_text(), 'y\n', 'what it made')
            need(not (d.local / 'link').is_symlink(), 'what it removed')
            same(s.received(end['run']), 2, 'received again')
            s.shut()
        (d.local / 'n').write_text('5\n')
        with d.session(plan) as s:
            same(s.opened['generation'], 2, 'the generation')
            same(s.push(stream_of(d.local, 'n')), 3, 'the second push')
            s.run('cat', 'n')
            same((bytes(s.stdout), s.exit['changes']), (b'5\n', 0), 'the second run')
            same(s.pull(), (b'', {'changes': 0, 'run': 1}), 'nothing to pull')
            need(len(s.list()) > 20, 'a list')
            s.shut()
        same(d.ask(f'GET /v1/sessions/{plan}').json()['generation'], 3, 'what is told of it')



def everything(d):
    return stream_of(d.local, *tree(d.local))


def refused(code, fn, *args, is_open=True):
    try:
        fn(*args)
    except Refused as why:
        same((why.code, why.open), (code, is_open), f'how it was refused: {why}')
        return why.problem
    raise AssertionError('it was not refused')


def sync_refuses_what_is_not_its_turn(top):
    with World(top) as d:
        made = d.make()
        plan, mirror = made['plan']['id'], Path(made['root'])
        with d.session(plan) as s:
            refused('state', s.run, 'true')
            refused('stale', s.push, everything(d), 5)
            same(tree(mirror), {}, 'nothing was taken')
            same(s.push(everything(d)), 1, 'the first push')
            refused('stale', s.push, everything(d), 0)
            problem = refused('ENOENT', s.run, '/no/such/program')
            same(problem['status'], 422, 'its status')
            s.run('sh', '-c', 'echo 1 >n')
            for step in (lambda: s.push(everything(d)), lambda: s.run('true')):
                refused('state', step)
            refused('state', s.received, 2)
            same(s.received(0), 1, 'another run: nothing happens')
            same((mirror / 'n').read_text(), '0\n', 'the mirror')
            same(s.received(1), 2, 'this run')
            same((mirror / 'n').read_text(), '1\n', 'the mirror')
            s.put_json(execclient.PULL, {'x': 1})
            refused('invalid', s.await_frame, execclient.PULL_END)
            s.shut()


def sync_input_terminals_and_signals(top):
    """As with atoll-exec/1, and more than once on one connection."""
    with World(top) as d:
        plan, _ = d.filled()
        with d.session(plan) as s:
            data = os.urandom(1 << 20)
            for _ in range(2):
                s.start('sh', '-c', 'cat; echo err >&2')
                s.send(data)
                s.end_input()
                s.await_exit()
                same((bytes(s.stdout), bytes(s.stderr)), (data, b'err\n'), 'what came back')
            s.start('sh', '-c', 'trap "echo got; exit 7" TERM; echo ready; while :; do sleep 0.05; done')
            s.expect(b'ready')
            s.ping()
            s.signal(signal.SIGTERM)
            same(s.await_exit().exit['exit_code'], 7, 'its exit code')
            s.signal(signal.SIGTERM)  # too late, and harmless
            s.send(b'late')
            s.start('sh', '-c', 'stty size; read x; echo "<$x>"', terminal=True, rows=33, columns=99)
            s.expect(b'33 99')
            s.send(b'typed\n')
            s.await_exit()
            need(b'<typed>' in s.stdout, f'a terminal: {bytes(s.stdout)}')
            same(s.opened['generation'], 1, 'nothing was changed')
            s.shut()


# ---- sessions ----

def sync_sessions_are_made_once(top):
    with World(top) as d:
        one = d.make('a', key='k1')
        same(d.make('a', key='k1')['plan'], one['plan'], 'the same request')
        two = d.make('b', name='named')
        same(two['plan']['name'], 'named', 'its name')
        d.again()
        same(d.make('a', key='k1')['plan'], one['plan'], 'after a kill')
        told = d.ask('GET /v1/sessions').json()['sessions']
        same({s['plan']['id']: (s['label'], s['generation'], s['root']) for s in told},
             {s['plan']['id']: (s['label'], 0, s['root']) for s in (one, two)}, 'the list')
        same(d.ask('GET /v1/sessions/named').json()['plan'], two['plan'], 'one of them')
        same(d.ask('GET /v1/sessions/none').status, 404, 'none')
        d.atoll('start', 'other', '--dir', str(d.local))
        same(d.ask('GET /v1/sessions/other').status, 404, 'a plan that is no session')
        with Session(d, 'other') as s:
            refused('not-found', s.open, is_open=False)
        answer = d.ask('POST /v1/plans/named/sync')
        same((answer.status, answer.headers.get('upgrade')), (426, 'atoll-sync/1'), 'without Upgrade')


def sync_sessions_outlive_their_requests(top):
    """A client that comes back after days gets the session that it asked for, and no second one."""
    with World(top) as d:
        one = d.make('a', key='k1')
        with contextlib.closing(sqlite3.connect(d.home / 'atoll.db', isolation_level=None)) as db:
            db.execute('PRAGMA busy_timeout=10000')
            same(db.execute('UPDATE request SET created_ms = 1').rowcount, 1, 'requests on record')
        same(d.make('a', key='k1')['plan'], one['plan'], 'days later')
        d.again()
        same(d.make('a', key='k1')['plan'], one['plan'], 'by another daemon')
        same(len(list(d.mirrors.iterdir())), 1, 'mirrors')
        need(d.make('a', key='k2')['plan'] != one['plan'], 'another request')
        same(d.ask(f'DELETE /v1/sessions/{one["plan"]["id"]}').status, 200, 'stopped')
        need(d.make('a', key='k1')['plan'] != one['plan'], 'when that one is gone there is a new one')


def sync_mirrors_go_with_their_plans(top):
    with World(top) as d:
        plan, mirror = d.filled()
        kept, by_hand = d.make('kept'), d.make('by hand')
        same(d.ask(f'DELETE /v1/plans/{plan}?force=true').status, 200, 'stopped')
        need(not mirror.exists(), 'its mirror is still there')
        # By the command, which knows of no mirror; and by a death in between.
        d.atoll('stop', '--force', '--yes', by_hand['plan']['id'])
        dead = d.mirrors / ('0' * 15 + '1')
        (dead / 'sub').mkdir(parents=True)
        (d.home / 'sessions' / dead.name).write_text(json.dumps({'mirror': str(dead), 'label': ''}))
        (d.home / 'sessions' / dead.name).chmod(0o600)
        # What is not on record is nobody's to remove, and so is what a record names that cannot be.
        stranger, wrong = d.mirrors / ('f' * 16), '0' * 15 + '2'
        stranger.mkdir()
        (d.home / 'sessions' / wrong).write_text(json.dumps({'mirror': str(d.local), 'label': ''}))
        need(Path(by_hand['root']).exists(), 'the command knows of mirrors')
        d.again(kill=False)
        need(not Path(by_hand['root']).exists() and not dead.exists(), 'mirrors without a plan are still there')
        need(stranger.exists() and d.local.exists() and Path(kept['root']).exists(), 'more than that was removed')
        same(sorted(p.name for p in (d.home / 'sessions').iterdir()), sorted([kept['plan']['id'], wrong]), 'the records')


# ---- the lock ----

def wait_until(happened, what, within=60):
    end = time.monotonic() + within
    while not happened():
        need(time.monotonic() < end, what)
        time.sleep(0.01)


def is_running(mark):
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            if mark.encode() in Path('/proc', pid, 'cmdline').read_bytes().split(b'\0'):
                return True
        except OSError:
            pass
    return False


def entered(d, plan, within, **more):
    """A new client is in, within so many seconds."""
    begun = time.monotonic()
    with d.session(plan, **more) as s:
        took = time.monotonic() - begun
        need(took < within, f'it took {took:.2f} s')
        opened = s.opened
        s.shut()
    return opened


def sync_first_come_first_served(top):
    with World(top) as d:
        plan, _ = d.filled()
        holder = d.session(plan, client='laptop 7 ann')
        waiting, order, threads = [], [], []
        for i in range(6):
            s = Session(d, plan, client=f'client {i}', wait_ms=3000000)
            while not s.notices:
                s.step()
            need('laptop 7 ann' in s.notices[0]['message'], f'who is waited for: {s.notices}')
            waiting.append(s)

        def go(i, s):
            s.open()
            order.append(i)
            s.run('sh', '-c', 'n=$(cat n); sleep 0.02; echo $((n + 1)) >n')
            s.received(s.pull()[1]['run'])
            s.shut()

        for i, s in enumerate(waiting):
            threads.append(threading.Thread(target=go, args=(i, s)))
            threads[-1].start()
        same(order, [], 'nobody is in')
        begun = time.monotonic()
        with Session(d, plan, wait_ms=200) as late:
            problem = refused('timeout', late.open, is_open=False)
            need('laptop 7 ann' in problem['detail'], problem['detail'])
            need(time.monotonic() - begun < 60, 'it waited too long')
        with Session(d, plan, wait_ms=3000000) as gone:
            while not gone.notices:
                gone.step()
        holder.shut()
        for t in threads:
            t.join()
        same(order, list(range(6)), 'in which order they came in')
        with d.session(plan) as s:
            same(bytes(s.run('cat', 'n').stdout), b'6\n', 'what all of them did')
            s.shut()


def der_10_a_killed_client_frees_the_lock(top):
    with World(top) as d:
        plan, mirror = d.filled()
        before = tree(mirror)
        mark = f'98{os.getpid()}{os.geteuid()}'
        s = d.session(plan)
        s.start('sh', '-c', f'trap "" TERM; echo ready; echo half >n; sleep {mark} & sleep {mark}')
        s.expect(b'ready')
        wait_until(lambda: is_running(mark), 'it does not run')
        s.close()
        opened = entered(d, plan, SOON, wait_ms=300000)
        same((opened['generation'], opened['pending']), (1, None), 'what is left of it')
        need(not is_running(mark), 'its command still runs')
        same(tree(mirror), before, 'the mirror')
        with d.session(plan) as s:
            same(bytes(s.run('cat', 'n').stdout), b'0\n', 'the workspace')
            s.shut()


def der_11_output_that_looks_like_frames(top):
    with World(top) as d:
        plan, _ = d.filled()
        with d.session(plan) as s, Session(d, plan, wait_ms=3000000) as other:
            text = (frame(execclient.CLOSE) + frame(execclient.CLOSED) + frame(execclient.RECEIVED, b'{"run":1}') +
                    frame(execclient.ERROR, b'{"session":"closed"}') + b'{"release":true}\n')
            (d.local / 'frames').write_bytes(text * 100)
            s.push(stream_of(d.local, 'frames'))
            s.run('sh', '-c', 'cat frames; cat frames >&2; sleep 0.5')
            same((bytes(s.stdout), bytes(s.stderr)), (text * 100, text * 100), 'what it printed')
            while not other.notices:
                other.step()
            need(other.opened is None and not other.frames, 'the other one is in')
            s.shut()
            other.open().shut()


def der_12_only_the_holder_lets_go(top):
    with World(top) as d:
        plan, _ = d.filled()
        with d.session(plan) as s:
            # One that waits, one that never asked, one that asks for what is not its own.
            with Session(d, plan, wait_ms=3000000) as other:
                while not other.notices:
                    other.step()
                other.put(execclient.CLOSE)
                other.await_frame(execclient.CLOSED)
            for data in (frame(execclient.CLOSE), frame(execclient.RECEIVED, b'{"run":1}')):
                with Session(d, plan, raw=True) as other:
                    other.write(data)
                    refused('EPROTO', other.await_frame, execclient.CLOSED, is_open=False)
            with Session(d, plan, wait_ms=3000000) as other:
                while not other.notices:
                    other.step()
                other.put_json(execclient.RECEIVED, {'run': 1})
                refused('EPROTO', other.open, is_open=False)
            with Session(d, plan, wait_ms=0) as other:
                refused('busy', other.open, is_open=False)
            s.run('true')
            s.put(execclient.CLOSE)
            s.put(execclient.CLOSE)  # twice is harmless
            s.await_frame(execclient.CLOSED)
        entered(d, plan, SOON)


def cmd_02_every_outcome_frees_the_lock(top):
    with World(top) as d:
        plan, mirror = d.filled()
        idle, _ = d.filled()
        good = everything(d)

        def soon():
            """0.1 s, and what it takes on this machine where nobody was before."""
            begun = time.monotonic()
            entered(d, idle, SOON)
            return SOON if SANITIZED else 0.1 + 2 * (time.monotonic() - begun)

        def not_found(s):
            refused('ENOENT', s.run, '/no/such/program')

        def bad_push(s):
            refused('invalid', s.push, good[:-3])

        def bad_frame(s):
            s.write(b'\x63\0\0\0\0')
            refused('EPROTO', s.next_frame, is_open=False)

        ways = [lambda s: s.run('false'), lambda s: s.run('sh', '-c', 'kill -9 $$'), not_found, bad_push, bad_frame,
                lambda s: s.close()]
        for i, way in enumerate(ways):
            limit = soon()
            with d.session(plan) as s:
                way(s)
                if way not in (bad_frame, ways[-1]):
                    s.shut()
            opened = entered(d, plan, limit, wait_ms=300000)
            same((opened['generation'], opened['pending']), (1, None), f'after way {i}')
        # The mirror has vanished.
        shutil.move(mirror, f'{mirror}.away')
        with d.session(plan) as s:
            try:
                s.run('true')
                raise AssertionError('it ran without its mirror')
            except Refused as why:
                need(why.open, 'the session goes on')
            s.shut()
        entered(d, plan, soon(), wait_ms=300000)
        shutil.move(f'{mirror}.away', mirror)
        entered(d, plan, soon(), wait_ms=300000)


def cmd_03_begin_and_end_pair_up(top):
    with World(top) as d:
        plan, _ = d.filled()
        for i in range(50):
            with d.session(plan) as s:
                if i % 4 == 1:
                    s.run('false')
                elif i % 4 == 2:
                    refused('invalid', s.push, b'nothing')
                elif i % 4 == 3:
                    s.start('sleep', '100')
                    continue
                s.shut()
        s = d.session(plan)
        d.again()
        s.close()
        entered(d, plan, 60)
        pairs = [e for e in d.events(plan) if e.startswith('sync-')]
        same(pairs, ['sync-begin', 'sync-end'] * 53, 'what is on record')


def cmd_04_without_the_lock_it_says_so(top):
    with World(top, '--unserialized') as d:
        plan, _ = d.filled()
        with d.session(plan) as one, d.session(plan) as two:
            same((one.opened['features'], two.opened['features']), ([], []), 'what they can count on')
            same(two.run('cat', 'n').exit['exit_code'], 0, 'a run')
            one.shut()
            two.shut()


def cmd_05_other_sessions_do_not_wait(top):
    with World(top) as d:
        one, _ = d.filled()
        two, _ = d.filled()

        def run_in_two():
            begun = time.monotonic()
            with d.session(two) as t:
                t.run('true')
                t.shut()
            return time.monotonic() - begun

        alone = max(run_in_two() for _ in range(3))
        with d.session(one) as s:
            s.start('sh', '-c', 'echo ready; sleep 30')
            s.expect(b'ready')
            took = min(run_in_two() for _ in range(3))
            need(took < 15, f'it took {took:.2f} s, and {alone:.2f} alone')  # half of what it would wait
            s.close()


# ---- what is left when somebody dies ----

BIG = 1 << 20


class Steps:
    """A cycle in pieces, and what the next client must find after each."""

    def __init__(self, d, plan, mirror):
        self.d, self.plan, self.mirror = d, plan, mirror
        self.s = d.session(plan, wait_ms=300000)

    def opened(self):
        pass

    def first_data(self):
        (self.d.local / 'big').write_bytes(os.urandom(BIG))
        self.stream = stream_of(self.d.local, 'big', 'n')
        self.s.begin_push(self.stream[:len(self.stream) // 2])
        time.sleep(0.1)

    def all_data(self):
        self.first_data()
        half = self.stream[len(self.stream) // 2:]
        for at in range(0, len(half), 60000):
            self.s.put(execclient.DATA, half[at:at + 60000])
        time.sleep(0.1)

    def pushed(self):
        self.all_data()
        self.s.put(execclient.END)
        self.s.await_frame(execclient.PUSHED)

    def running(self):
        self.pushed()
        self.s.start('sh', '-c', 'echo ran >n; echo ready; sleep 1000')
        self.s.expect(b'ready')

    def ran(self):
        self.pushed()
        self.s.run('sh', '-c', 'echo ran >n; head -c 300000 /dev/urandom >out')

    def pulling(self):
        self.ran()
        self.s.put_json(execclient.PULL, {})

    def pulled(self):
        self.ran()
        self.got, self.end = self.s.pull()

    def received(self):
        self.pulled()
        self.s.received(self.end['run'])

    # What must be there: generations since, changes pending, and n in the mirror.
    LEFT = {
        'opened': (0, False, '0'), 'first_data': (0, False, '0'), 'all_data': (0, False, '0'),
        'pushed': (1, False, '0'), 'running': (1, False, '0'), 'ran': (1, True, '0'), 'pulling': (1, True, '0'),
        'pulled': (1, True, '0'), 'received': (2, False, 'ran'),
    }


def check_left(d, plan, mirror, name, before):
    more, pending, n = Steps.LEFT[name]
    with d.session(plan, wait_ms=300000) as s:
        same(s.opened['generation'], before + more, f'{name}: the generation')
        same(s.opened['pending'] is not None, pending, f'{name}: what is pending')
        same((mirror / 'n').read_text(), n + '\n', f'{name}: the mirror')
        if pending:
            stream, end = s.pull()
            same((len(stream) > 300000, end['run'], end['changes']),
                 (True, s.opened['pending']['run'], s.opened['pending']['changes']), f'{name}: what is pulled')
            s.received(end['run'])
        same(bytes(s.run('cat', 'n').stdout), (mirror / 'n').read_bytes(), f'{name}: the workspace')
        if (mirror / 'n').read_text() != '0\n':
            (d.local / 'n').write_text('0\n')
            s.push(stream_of(d.local, 'n'))
        generation = s.opened['generation']
        s.shut()
    return generation


def sync_kills_of_the_client_at_every_step(top):
    with World(top) as d:
        plan, mirror = d.filled()
        generation = 1
        for name in Steps.LEFT:
            steps = Steps(d, plan, mirror)
            getattr(steps, name)()
            steps.s.close()
            begun = time.monotonic()
            generation = check_left(d, plan, mirror, name, generation)
            need(time.monotonic() - begun < 10 * SOON, f'{name}: it took long')


def sync_kills_of_the_daemon_at_every_step(top):
    with World(top) as d:
        plan, mirror = d.filled()
        generation = 1
        for name in Steps.LEFT:
            steps = Steps(d, plan, mirror)
            getattr(steps, name)()
            d.again()
            steps.s.close()
            generation = check_left(d, plan, mirror, name, generation)


def sync_a_first_push_leaves_nothing_half(top):
    """As one that was killed did: files and objects that were not whole go, whatever the project's rules say of
    such names; what only looks alike stays."""
    with World(top) as d:
        made = d.make()
        mirror, odd = Path(made['root']), '.atoll-sync-' + '0123456789abcdef'
        (mirror / 'sub' / odd / 'ab').mkdir(parents=True)
        (mirror / 'sub' / odd / 'ab' / 'object').write_text('half')
        (mirror / 'sub' / odd / 'ab').chmod(0)
        (mirror / odd).write_text('half')
        (mirror / '.gitignore').write_text('.*\n')
        (mirror / '.git').mkdir()
        (mirror / '.git' / odd).symlink_to(d.local)
        (mirror / '.atoll-sync-mine').write_text('mine')
        with d.session(made['plan']['id']) as s:
            same(sorted(tree(mirror)), ['.atoll-sync-mine', '.git', '.gitignore', 'sub'], 'what is left')
            s.shut()
        need(d.local.is_dir() and list(d.local.iterdir()), 'the project')


def sync_a_first_push_goes_on(top):
    """Cut off, by the client and by the daemon's death, it is gone on from; nothing runs before it is whole."""
    with World(top) as d:
        made = d.make()
        plan, mirror = made['plan']['id'], Path(made['root'])
        (d.local / 'big').write_bytes(os.urandom(2 * BIG))
        stream = everything(d)
        for kill in (False, True):
            with d.session(plan, wait_ms=300000) as s:
                same(s.opened['generation'], 0, 'the generation')
                s.begin_push(stream[:len(stream) // 2])
                time.sleep(0.2)
                if kill:
                    d.again()
        with d.session(plan, wait_ms=300000) as s:
            refused('state', s.run, 'true')
            refused('invalid', s.push, stream[:-4])
            need(len(s.list()) > 20, 'a list of what is there')
            same(s.push(stream), 1, 'the rest')
            same(tree(mirror), tree(d.local), 'the mirror')
            s.run('sh', '-c', 'cat big | wc -c; echo more >>n')
            same(bytes(s.stdout).split(), [str(2 * BIG).encode()], 'what is there')
            s.received(s.pull()[1]['run'])
            same((mirror / 'n').read_text(), '0\nmore\n', 'the mirror')
            s.shut()


def sync_what_is_pending_stays(top):
    with World(top) as d:
        plan, mirror = d.filled()
        with d.session(plan) as s:
            s.run('sh', '-c', 'echo 1 >n')
        for _ in range(2):
            d.again(kill=False)
            same(entered(d, plan, 60)['pending'], {'run': 1, 'changes': 1}, 'what is told')
        headers = ['Content-Type: application/json']
        same(d.ask(f'POST /v1/plans/{plan}/reset', {}, headers=headers).status, 200, 'dropped')
        same(entered(d, plan, 60)['pending'], None, 'nothing is pending')
        # At the same generation: what is cut off now is not that run's.
        s = d.session(plan)
        s.start('sh', '-c', 'echo 2 >n; echo ready; sleep 100')
        s.expect(b'ready')
        d.again()
        s.close()
        same(entered(d, plan, 60)['pending'], None, 'nothing is pending')
        with d.session(plan) as s:
            same(bytes(s.run('cat', 'n').stdout), b'0\n', 'the workspace')
            s.run('sh', '-c', 'echo 3 >n')
            same(s.exit['run'], 2, 'numbers are never used again')
            same(s.received(1), 1, 'an old one is harmless')
            same((mirror / 'n').read_text(), '0\n', 'the mirror')
            same(s.received(2), 2, 'the new one')


def sync_a_stop_ends_sessions_with_a_word(top):
    with World(top) as d:
        plan, _ = d.filled()
        s = d.session(plan)
        s.start('sh', '-c', 'echo ready; sleep 100')
        s.expect(b'ready')
        waits = Session(d, plan, wait_ms=3000000)
        while not waits.notices:
            waits.step()
        same(d.stop(), 0, 'its exit status')
        for one in (s, waits):
            try:
                one.await_frame(execclient.EXIT)
                raise AssertionError('it went on')
            except Refused as why:
                same((why.problem['status'], why.open), (503, False), 'what it is told')
            one.close()
        d.states = []
        d.start()


# ---- those who do not keep to it ----

def sync_refuses_bad_frames(top):
    opening = frame(execclient.OPEN, b'{"client":"x"}')
    with World(top) as d:
        plan, mirror = d.filled()
        before = tree(mirror)
        first = [frame(execclient.REQUEST, b'{"argv":["true"]}'), frame(execclient.PING), frame(execclient.OPEN, b'{}'),
                 frame(execclient.OPEN, b'[1]'), frame(execclient.OPEN, b'{"client":"x","more":1}'), frame(99),
                 frame(execclient.OPENED, b'{}'), b'\4\0\2\0\0' + b'x' * 100]
        later = [opening, frame(99), frame(execclient.DATA, b'x'), frame(execclient.END), frame(execclient.STDOUT, b'x'),
                 frame(execclient.SIGNAL), frame(execclient.CLOSE, b'x'), b'\6\0\2\0\1',
                 frame(execclient.PUSH, b'{"base_generation":1}') + frame(execclient.PULL, b'{}'),
                 frame(execclient.REQUEST, b'{"argv":["sleep","100"]}') + frame(execclient.PULL, b'{}'),
                 frame(execclient.REQUEST, b'{"argv":["sleep","100"]}') + frame(execclient.CLOSE)]
        for data in [*first, *(opening + more for more in later)]:
            with Session(d, plan, raw=True) as s:
                s.write(data)
                kinds = []
                while not kinds or kinds[-1] != execclient.ERROR:
                    kind, payload = s.next()
                    kinds.append(kind)
                need(kinds in ([execclient.ERROR], [execclient.OPENED, execclient.ERROR]), f'{data}: {kinds}')
                same(payload['session'], 'closed', f'{data}: what it is told')
                need(payload['status'] == 400, f'{data}: {payload}')
                need(not s.step(), f'{data}: more after the last frame')
            same(entered(d, plan, SOON * 2, wait_ms=300000)['pending'], None, f'{data}: what is left')
        for step, text in ((execclient.PUSH, b'{}'), (execclient.PUSH, b'{"base_generation":-1}'),
                           (execclient.RECEIVED, b'{"run":"x"}'), (execclient.LIST, b'[]'), (execclient.REQUEST, b'{}')):
            with d.session(plan) as s:
                s.put(step, text)
                if step == execclient.PUSH:
                    s.put(execclient.END)
                refused('invalid', s.next_frame)
                s.shut()
        same(tree(mirror), before, 'the mirror')


def sync_a_push_that_lies(top):
    """Whatever is sent instead of a stream, the mirror stays as it was, and nothing else is reached."""
    with World(top) as d:
        plan, mirror = d.filled()
        before = tree(mirror)
        (d.local / 'big').write_bytes(os.urandom(BIG))
        good = stream_of(d.local, 'n', 'big')
        flipped = bytearray(good)
        flipped[len(good) // 2] ^= 1
        for bad in (b'', b'x', os.urandom(BIG), good[:-1], good + b'x', good + good, bytes(flipped), good[:40]):
            with d.session(plan) as s:
                refused('invalid', s.push, bad)
                same(tree(mirror), before, 'the mirror')
                same(bytes(s.run('sh', '-c', 'cat n; ls').stdout), b'0\nlink\nn\nsub\n', 'the workspace')
                s.shut()
        # A link in the way leads nowhere.
        outside = d.top / 'outside'
        outside.mkdir()
        with d.session(plan) as s:
            s.run('ln', '-s', str(outside), 'away')
            s.received(1)
            evil = d.top / 'evil'
            (evil / 'away').mkdir(parents=True)
            (evil / 'away' / 'file').write_text('x')
            try:
                s.push(stream_of(evil, 'away/file'))
            except Refused as why:
                need(why.open, 'the session goes on')
            s.shut()
        same(list(outside.iterdir()), [], 'what is outside')


def sync_a_slow_reader_holds_the_pull(top):
    with World(top) as d:
        plan, _ = d.filled()
        with d.session(plan) as s:
            s.run('sh', '-c', 'head -c 8000000 /dev/urandom >out')
            s.put_json(execclient.PULL, {})
            time.sleep(0.5)
            rss = int(Path(f'/proc/{d.process.pid}/statm').read_text().split()[1]) * 4096
            need(SANITIZED or rss < 40 << 20, f'it holds {rss} bytes')
            end = s.await_frame(execclient.PULL_END)
            need(len(s.data) > 8000000, f'{len(s.data)} bytes')
            s.received(end['run'])
            s.shut()


def sync_tokens_open_their_own_session(top):
    with World(top, f'--socket={top}/sock', '--listen=127.0.0.1:0') as d:
        place = next(p for p in d.places() if not p.startswith('unix:'))
        one, two = d.make('one'), d.make('two')
        headers = ['Content-Type: application/json']
        answer = d.ask(f"POST /v1/sandboxes/{one['sandbox']}/auth", {'scope': 'agent'}, headers=headers)
        same(answer.status, 201, 'a token')
        bearer = [f"Authorization: Bearer {answer.json()['token']}"]
        key = d.ask('POST /v1/keys', {'name': 'k', 'scope': 'admin'}, headers=headers).json()['secret']
        with d.session(one['plan']['id'], place=place, headers=bearer) as s:
            same(s.push(everything(d)), 1, 'a push')
            s.run('true')
            s.shut()
        for plan, head, want in ((two['plan']['id'], bearer, 403), (one['plan']['name'], bearer, 403),
                                 (one['plan']['id'], [], 401), (one['plan']['id'], [f'Authorization: Bearer {key}'], 403)):
            with Session(d, plan, place=place, headers=head, raw=True) as s:
                same(s.answer.status, want, 'who may not')
        told = d.ask('GET /v1/sessions', place=place, headers=bearer).json()['sessions']
        same([t['plan']['id'] for t in told], [one['plan']['id']], 'what it is shown')
        # Made with an agent's key, ended with it; not with another's, nor with a token.
        agents = [d.ask('POST /v1/keys', {'name': n, 'scope': 'agent'}, headers=headers).json()['secret'] for n in 'ab']
        agents = [[f'Authorization: Bearer {k}'] for k in agents]
        three = d.ask('POST /v1/sessions', {'label': 'three'}, headers=headers + agents[0], place=place).json()
        for where, head, want in ((one, bearer, 403), (one, agents[0], 403), (three, agents[1], 403), (three, agents[0], 200),
                                  (three, agents[0], 404)):
            same(d.ask(f"DELETE /v1/sessions/{where['plan']['id']}", headers=head, place=place).status, want, 'who may end it')
        need(not Path(three['root']).exists() and Path(one['root']).exists(), 'mirrors')
        # Revoked, it is over, and the lock is free.
        with d.session(one['plan']['id'], place=place, headers=bearer) as s:
            same(d.ask(f"DELETE /v1/sandboxes/{one['sandbox']}/auth").status, 200, 'revoked')
            while s.step():
                pass
        entered(d, one['plan']['id'], 5 * SOON)


def sync_over_tls(top):
    cert, key = certificate(top)
    with World(top, f'--socket={top}/sock', '--listen=127.0.0.1:0', f'--tls-cert={cert}', f'--tls-key={key}') as d:
        place = next(p for p in d.places() if not p.startswith('unix:'))
        made = d.make()
        answer = d.ask(f"POST /v1/sandboxes/{made['sandbox']}/auth", {}, headers=['Content-Type: application/json'])
        bearer = [f"Authorization: Bearer {answer.json()['token']}"]
        for i in range(3):
            (d.local / f'big{i}').write_bytes(os.urandom(3 * BIG))
        with Session(d, made['plan']['id'], place=place, tls=cert, headers=bearer) as s:
            s.open().push(everything(d))
            (d.local / 'big0').write_bytes(os.urandom(3 * BIG))
            s.push(stream_of(d.local, 'big0'))
            s.start('sh', '-c', 'cat >in; cat big0 big1 >out; cat big1')
            s.send((d.local / 'big1').read_bytes())
            s.end_input()
            s.await_exit()
            same(bytes(s.stdout), (d.local / 'big1').read_bytes(), 'what it printed')
            stream, end = s.pull()
            apply(d.local, stream)
            s.received(end['run'])
            same((d.local / 'out').read_bytes(), (d.local / 'big0').read_bytes() + (d.local / 'big1').read_bytes(), 'what came back')
            same(tree(made['root']), tree(d.local), 'the mirror')
            s.shut()


# ---- a link that is cut ----

CUT = """
import sys
sys.path.insert(0, sys.argv[1])
from execclient import Session
import execclient, socket, ssl, time
class There:
    def connect(self, place, tls):
        from atolld import Wire
        sock = socket.create_connection((sys.argv[7], int(place)))
        return Wire(ssl.create_default_context(cafile=tls).wrap_socket(sock, server_hostname='localhost'))
s = Session(There(), sys.argv[3], place=sys.argv[2], tls=sys.argv[4], headers=['Authorization: Bearer ' + sys.argv[5]]).open()
s.start('sh', '-c', 'echo ready; ' + ('exec yes' if sys.argv[6] == 'printing' else 'exec sleep 1000'))
s.expect(b'ready')
print('in', flush=True)
while s.step():
    pass
time.sleep(1000)
"""


def link_to(name, net):
    """A pair of interfaces, one end in a network of its own; None where that cannot be had."""
    commands = [f'ip netns add {name}', f'ip link add {name} type veth peer name eth0 netns {name}',
                f'ip addr add {net}.1/24 dev {name}', f'ip link set {name} up',
                f'ip -n {name} addr add {net}.2/24 dev eth0', f'ip -n {name} link set eth0 up']
    for command in commands:
        try:
            said = subprocess.run(command.split(), capture_output=True, check=False)
        except FileNotFoundError:
            return None
        if said.returncode != 0:
            subprocess.run(['ip', 'netns', 'del', name], capture_output=True, check=False)
            return None
    return name


def der_10_a_cut_link_frees_the_lock(top):
    """No byte says that the client is gone: the lock is free within five seconds all the same."""
    net = f'10.213.{os.getpid() % 250}'  # two that run at once do not share one
    name = link_to(f'atl{os.getpid() % 100000}', net) if os.geteuid() == 0 else None
    if not name:
        raise Skip('no network namespaces to cut a link between')
    try:
        cert, key = certificate(top)
        with World(top, f'--socket={top}/sock', f'--listen={net}.1:0', '--host=localhost', f'--tls-cert={cert}',
                   f'--tls-key={key}') as d:
            port = next(p for p in d.places() if not p.startswith('unix:')).rpartition(':')[2]
            plan, _ = d.filled()
            sandbox = d.ask(f'GET /v1/sessions/{plan}').json()['sandbox']
            for how in ('running', 'printing'):
                answer = d.ask(f'POST /v1/sandboxes/{sandbox}/auth', {}, headers=['Content-Type: application/json'])
                client = subprocess.Popen(['ip', 'netns', 'exec', name, sys.executable, '-c', CUT, os.environ['ATOLL_TEST_LIB'],
                                           port, plan, cert, answer.json()['token'], how, f'{net}.1'], stdout=subprocess.PIPE)
                same(client.stdout.readline(), b'in\n', f'{how}: the client')
                time.sleep(0.5)
                subprocess.run(['ip', 'link', 'set', name, 'down'], check=True)
                opened = entered(d, plan, 5 * SOON, wait_ms=300000)
                same(opened['pending'], None, f'{how}: what is left')
                subprocess.run(['ip', 'link', 'set', name, 'up'], check=True)
                client.kill()
                client.wait()
                client.stdout.close()
    finally:
        subprocess.run(['ip', 'link', 'del', name], capture_output=True, check=False)
        subprocess.run(['ip', 'netns', 'del', name], capture_output=True, check=False)


TESTS = [
    sync_a_whole_cycle,
    sync_refuses_what_is_not_its_turn,
    sync_input_terminals_and_signals,
    sync_sessions_are_made_once, sync_sessions_outlive_their_requests,
    sync_mirrors_go_with_their_plans,
    sync_first_come_first_served,
    der_10_a_killed_client_frees_the_lock,
    der_11_output_that_looks_like_frames,
    der_12_only_the_holder_lets_go,
    cmd_02_every_outcome_frees_the_lock,
    cmd_03_begin_and_end_pair_up,
    cmd_04_without_the_lock_it_says_so,
    cmd_05_other_sessions_do_not_wait,
    sync_kills_of_the_client_at_every_step,
    sync_kills_of_the_daemon_at_every_step,
    sync_a_first_push_goes_on, sync_a_first_push_leaves_nothing_half,
    sync_what_is_pending_stays,
    sync_a_stop_ends_sessions_with_a_word,
    sync_refuses_bad_frames,
    sync_a_push_that_lies,
    sync_a_slow_reader_holds_the_pull,
    sync_tokens_open_their_own_session,
    sync_over_tls,
    der_10_a_cut_link_frees_the_lock,
]

if __name__ == '__main__':
    main(TESTS)

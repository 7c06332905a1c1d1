# SPDX-License-Identifier: Apache-2.0
"""Following a store with the command as people use it, while others work on it and are killed: each change of
state is told once and in order, whoever made it, and who comes back misses nothing and hears nothing twice.

    events.py                 as whoever starts it; ATOLL_LONG=1 works for longer

A failing round names its seed: ATOLL_EVENTS_SEED=N repeats it.
"""

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from expect import Broken, need, same  # noqa: E402

ATOLL = os.environ['ATOLL']
LONG = os.environ.get('ATOLL_LONG') == '1'
SEED = int(os.environ.get('ATOLL_EVENTS_SEED', random.SystemRandom().randrange(1 << 30)))

# From which state a plan may come into which; None: from nothing.
STEPS = {
    'OPEN': {'PREPARING', 'UNDOING', 'ROLLED_BACK', 'CLOSED', 'COMMITTED', 'OPEN'},
    'PREPARING': {'DECIDED', 'OPEN', 'COMMITTED', 'ROLLED_BACK'},
    'DECIDED': {'COMMITTED', 'REVOKED', 'OPEN'},
    'REVOKED': {'OPEN', 'COMMITTED', 'ROLLED_BACK'},
    'COMMITTED': {'OPEN', 'PREPARING', 'UNDOING', 'ROLLED_BACK', 'CLOSED'},
    'UNDOING': {'ROLLED_BACK', 'COMMITTED', 'OPEN'},
    'ROLLED_BACK': {'OPEN', 'PREPARING', 'UNDOING', 'CLOSED'},
}


class Store:
    def __init__(self, top):
        self.dir = Path(tempfile.mkdtemp(dir=top))
        self.env = {**os.environ, 'ATOLL_HOME': str(self.dir / 'home'), 'NO_COLOR': '1', 'LC_ALL': 'C.UTF-8'}
        (self.dir / 'd').mkdir()
        self.must('list')

    def start(self, *words):
        return subprocess.Popen([ATOLL, *words], env=self.env, cwd=self.dir, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words):
        return subprocess.run([ATOLL, *words], env=self.env, cwd=self.dir, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120, check=False)

    def must(self, *words):
        done = self.run(*words)
        need(done.returncode == 0, f'atoll {" ".join(words)}: {done.stderr}')
        return done.stdout

    def database(self):
        return contextlib.closing(sqlite3.connect(self.dir / 'home/atoll.db', timeout=30))

    def newest(self):
        with self.database() as db:
            return db.execute('SELECT coalesce(max(seq), 0) FROM news').fetchone()[0]

    def after(self, seq):
        """All that there is after a number, by a follower that is ended when it has shown it."""
        end = self.newest()
        with Follower(self, seq) as f:
            f.until(lambda: end <= seq or (f.events and f.events[-1]['seq'] >= end), 'the end')
            return list(f.events)


class Follower:
    def __init__(self, store, after=0, *words):
        more = ['--after', str(after)] if after else []
        self.process = store.start('log', '--follow', '--json', *more, *words)
        self.events, self.times, self.lock = [], [], threading.Lock()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.lock:
                self.events.append(json.loads(line))
                self.times.append(time.time())

    def until(self, fn, text, seconds=120):
        deadline = time.monotonic() + seconds
        while True:
            with self.lock:
                if fn():
                    return
            need(time.monotonic() < deadline, f'{text} did not come: {self.events[-3:]}')
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


def brief(events):
    return [(e['what'], e['sandbox']['state'] if e['sandbox'] else e['plan']['state']) for e in events]


def in_order(events):
    numbers = [e['seq'] for e in events]
    same(numbers, sorted(set(numbers)), 'in order, and each once')


def lives(events):
    """The story of each plan makes sense."""
    state = {}
    for e in events:
        plan, now = e['plan']['id'], e['plan']['state']
        if e['what'] == 'start':
            need(plan not in state, f'{e}: twice')
        elif e['what'] == 'state':
            need(plan in state and now in STEPS[state[plan]], f'{state.get(plan)} -> {e}')
        else:
            same(now, state.get(plan, 'CLOSED'), f'{e}: not what was told')
        if plan in state or e['what'] == 'start':
            state[plan] = now
    return state


# ---- one after another ----

def evt_a_follower_sees_what_others_do(top):
    s = Store(top)
    with Follower(s) as f, Follower(s) as g:
        time.sleep(0.3)
        s.must('start', 'p', '--dir', 'd')
        s.must('exec', 'p', '--', 'sh', '-c', 'echo x >d/f')
        s.must('exec', 'p', '--background', 'j', '--', 'true')
        s.must('job', 'wait', 'p', 'j')
        s.must('commit', 'p')
        need(s.run('exec', 'p', '--', '/nowhere').returncode == 127, 'not found')
        s.must('stop', 'p', '--force')
        f.until(lambda: f.events and f.events[-1]['what'] == 'stop', 'the stop')
        g.until(lambda: len(g.events) == len(f.events), 'the same for another')
        events = list(f.events)
        same(events, list(g.events), 'two followers')
    in_order(events)
    told = [(what, state) for what, state in brief(events) if what not in ('state', 'sandbox')]
    same(told, [('start', 'OPEN'), ('exec-begin', 'OPEN'), ('exec', 'OPEN'), ('job-begin', 'OPEN'), ('exec-begin', 'OPEN'),
                ('job', 'OPEN'), ('exec', 'OPEN'), ('commit', 'COMMITTED'), ('exec-begin', 'OPEN'), ('exec', 'OPEN'),
                ('stop', 'CLOSED')], 'what happened')
    same([e['code'] for e in events if e['code'] != 'ok'], ['ENOENT'], 'failures')
    lives(events)
    need(all(e['plan']['name'] == 'p' for e in events), 'names')
    checked = subprocess.run(['/usr/bin/python3', f"{os.environ['ATOLL_SOURCE_ROOT']}/tools/check-json.py", 'event...'],
                             input=''.join(json.dumps(e) + '\n' for e in events), text=True, capture_output=True, check=False)
    need(checked.returncode == 0, f'by the schema: {checked.stdout[-300:]} {checked.stderr}')
    for at in range(0, len(events), 3):
        same(s.after(events[at]['seq']), events[at + 1:], 'from any number on')


def evt_soon(top):
    """Below 100 ms from the change to the follower's line, and one plan's only where asked for."""
    s = Store(top)
    s.must('start', 'q', '--dir', 'd')
    s.must('start', 'p', '--dir', 'd')
    with Follower(s, 0, 'p') as f:
        time.sleep(0.3)
        late = []
        for n in range(1, 11):
            s.must('reset', 'q')
            s.must('reset', 'p')
            f.until(lambda n=n: len(f.events) == n, 'a reset')
            at = time.mktime(time.strptime(f.events[-1]['at'][:19], '%Y-%m-%dT%H:%M:%S')) - time.timezone
            late.append(f.times[-1] - at - int(f.events[-1]['at'][20:23]) / 1000)
        need({e['plan']['name'] for e in f.events} == {'p'}, 'only one plan')
    late.sort()
    print(f'# median {late[5] * 1000:.1f} ms, worst {late[-1] * 1000:.1f} ms')
    need(late[5] < 0.1, f'{late}')


def evt_whatever_becomes_of_the_file(top):
    """Checkpoints, a VACUUM, a WAL cut to nothing: who follows goes on."""
    s = Store(top)
    s.must('start', 'p', '--dir', 'd')
    with Follower(s) as f:
        time.sleep(0.3)
        for n, sql in enumerate(['PRAGMA wal_checkpoint(TRUNCATE)', 'VACUUM', 'PRAGMA wal_checkpoint(RESTART)'], 1):
            with s.database() as db:
                db.execute(sql)
            s.must('reset', 'p')
            f.until(lambda n=n: len(f.events) == n, f'a reset after {sql}')
        in_order(f.events)


def evt_another_boot_has_other_numbers(top):
    """What the machine lost by going down may be known elsewhere: its numbers do not come again."""
    s = Store(top)
    s.must('start', 'p', '--dir', 'd')
    s.must('reset', 'p')
    known = s.newest()
    with s.database() as db:
        db.execute('DELETE FROM news WHERE seq = ?', (known,))
        db.execute("UPDATE meta SET value = 'another' WHERE key = 'news-boot'")
        db.commit()
    # Until something happens the number is one that nobody knows.
    with Follower(s, known) as f:
        f.until(lambda: len(f.events) == 2, 'the gap')
        same(f.events[0]['what'], 'gap', 'said')
    s.must('reset', 'p')
    need(s.newest() > known + 1000, f'{s.newest()} after {known}')
    same(brief(s.after(known)), [('reset', 'OPEN')], 'no gap, for nothing was let go')
    s.must('reset', 'p')
    same(len(s.after(known)), 2, 'and then one by one')


# ---- all at once ----

class Writer(threading.Thread):
    """Commands on one plan after another, some of which are killed."""

    def __init__(self, store, n, seed, seconds):
        super().__init__()
        self.s, self.n, self.r, self.seconds = store, n, random.Random(seed), seconds
        self.done, self.killed, self.failed = [], 0, None

    def command(self, name):
        return self.r.choice([['exec', name, '--', 'sh', '-c', f'echo {self.r.random()} >d{self.n}/f'], ['commit', name],
                              ['rollback', name], ['reset', name], ['diff', name]])

    def run(self):
        try:
            self.work()
        except Exception as e:  # pylint: disable=broad-except
            self.failed = e

    def work(self):
        (self.s.dir / f'd{self.n}').mkdir()
        end, k = time.monotonic() + self.seconds, 0
        while time.monotonic() < end:
            name, k = f'w{self.n}-{k}', k + 1
            self.one(['start', name, '--dir', f'd{self.n}'], 0)
            for _ in range(self.r.randrange(1, 8)):
                self.one(self.command(name), 0.4)
            self.one(['stop', '--force', name], 0)

    def one(self, words, danger):
        p = self.s.start(*words)
        if self.r.random() < danger:
            time.sleep(self.r.random() * 0.04)
            p.send_signal(signal.SIGKILL)
        _, err = p.communicate(timeout=120)
        if p.returncode == -signal.SIGKILL:
            self.killed += 1
        else:
            self.done.append((words, p.returncode))
            need(p.returncode in (0, 1, 3, 7), f'{words}: {p.returncode} {err}')


def evt_all_at_once_and_killed(top):
    s = Store(top)
    print(f'# seed {SEED}')
    writers = [Writer(s, n, SEED + n, 120 if LONG else 6) for n in range(3)]
    with Follower(s) as f:
        time.sleep(0.3)
        for w in writers:
            w.start()
        # Somebody who comes and goes, and goes on where he was.
        pieces, at, r = [], 0, random.Random(SEED)
        while any(w.is_alive() for w in writers):
            with Follower(s, at or None) as g:
                if at:
                    time.sleep(r.random())
                else:
                    g.until(lambda: g.events or not any(w.is_alive() for w in writers), 'anything')
                piece = list(g.events)
            pieces += piece
            at = pieces[-1]['seq'] if pieces else 0
        for w in writers:
            w.join()
            need(w.failed is None, f'seed {SEED}: {w.failed}')
        s.run('recover')
        end = s.newest()
        f.until(lambda: f.events and f.events[-1]['seq'] == end, 'the last one')
        events = list(f.events)
    pieces += s.after(at)
    in_order(events)
    first = pieces[0]['seq']
    same(pieces, [e for e in events if e['seq'] >= first], f'seed {SEED}: in pieces')
    state = lives(events)
    stored = {p['id']: p['state'] for p in json.loads(s.must('list', '--json'))['plans']}
    same({k: v for k, v in state.items() if v != 'CLOSED'}, stored, f'seed {SEED}: how it stands')
    for what in ('commit', 'rollback', 'reset', 'start', 'stop'):
        done = sum(1 for w in writers for words, code in w.done if words[0] == what and code == 0)
        told = sum(1 for e in events if e['what'] == what and e['code'] == 'ok')
        killed = sum(w.killed for w in writers)
        need(done <= told <= done + killed, f'seed {SEED}: {what}: done {done}, told {told}, killed {killed}')
    print(f'# {len(events)} events, {sum(len(w.done) for w in writers)} commands, {sum(w.killed for w in writers)} killed')


def main():
    tests = [fn for name, fn in globals().items() if name.startswith('evt_')]
    failed = 0
    print(f'1..{len(tests)}')
    with tempfile.TemporaryDirectory(prefix='atoll-events.', dir='/var/tmp', ignore_cleanup_errors=True) as top:
        for n, test in enumerate(tests, 1):
            try:
                test(top)
                print(f'ok {n} - {test.__name__}', flush=True)
            except (Broken, subprocess.SubprocessError, sqlite3.Error) as e:
                failed += 1
                print(f'not ok {n} - {test.__name__}', flush=True)
                print('\n'.join(f'# {line}' for line in str(e).splitlines()), flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""GET /v1/events: whoever follows a store over HTTP hears everything once and in order, whoever writes and
whoever is killed, goes on where he was, and hears only what is his."""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
sys.path.insert(0, os.path.dirname(__file__))
from atolld import PATIENCE, SANITIZED, Skip, main  # noqa: E402
from expect import need, same  # noqa: E402
from served import ATOLL, Served  # noqa: E402

SEED = int(os.environ.get('ATOLL_EVENTS_SEED', random.SystemRandom().randrange(1 << 30)))


class Followed(Served):
    def start_atoll(self, *words):
        return subprocess.Popen([ATOLL, *words], env=self.env, cwd=self.top, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def tasks(self):
        return list(Path(f'/proc/{self.process.pid}/task').iterdir())

    def switches(self):
        """How often its threads were woken."""
        woken = 0
        for task in self.tasks():
            try:
                text = (task / 'status').read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            woken += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith('voluntary_ctxt'))
        return woken

    def wait_until(self, fn, text):
        end = time.monotonic() + PATIENCE
        while not fn():
            need(time.monotonic() < end, text)
            time.sleep(0.02)


class Stream(threading.Thread):
    """What a browser's EventSource would tell. It ends with the answer, or when it is closed."""

    def __init__(self, s, query='', key=None, after=None, by_socket=None):
        super().__init__()
        self.events, self.beats, self.last, self.broken, self.lock = [], 0, None, False, threading.Condition()
        self.connection = s.connection(key is None if by_socket is None else by_socket)
        headers = {'Accept': 'text/event-stream'}
        if key:
            headers['Authorization'] = f'Bearer {key}'
        if after is not None:
            headers['Last-Event-ID'] = str(after)
        self.connection.request('GET', f'/v1/events{query}', headers=headers)
        self.sock = self.connection.sock
        self.sock.settimeout(None)
        self.answer = self.connection.getresponse()
        same(self.answer.status, 200, 'a stream')
        same(self.answer.headers['Content-Type'], 'text/event-stream', 'its type')
        self.start()
        self.wait_for(lambda: self.last is not None, 'the first lines')

    def run(self):
        try:
            self.read()
        except (OSError, http.client.HTTPException, ValueError):
            self.broken = True
        with self.lock:
            self.lock.notify_all()

    def read(self):
        fields = {}
        for raw in self.answer:
            line = raw.decode().rstrip('\n')
            if line:
                name, _, value = line.partition(': ')
                fields[name] = value
                continue
            with self.lock:
                if 'id' in fields:
                    self.last = int(fields['id'])
                if 'data' in fields:
                    event = json.loads(fields['data'])
                    need((event['seq'], event['what']) == (self.last, fields['event']), f'{fields}')
                    self.events.append(event)
                self.beats += fields.get('') == 'still here'
                self.lock.notify_all()
            fields = {}

    def wait_for(self, fn, text):
        with self.lock:
            need(self.lock.wait_for(fn, PATIENCE), f'{text} did not come: {self.events[-2:]}')

    def until(self, seq, text='the last one'):
        self.wait_for(lambda: self.last >= seq, text)

    def close(self):
        try:
            self.sock.shutdown(2)
        except OSError:
            pass
        self.join()
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def newest(s):
    return s.sql('SELECT coalesce(max(seq), 0) FROM news')[0][0]


def stored(s, after=0, to=1 << 62):
    return [tuple(row) for row in s.sql('SELECT seq, what, plan FROM news WHERE seq > ? AND seq <= ? ORDER BY seq', after, to)]


def told(events):
    return [(e['seq'], e['what'], e['plan']['id'] if e['plan'] else '') for e in events]


def reset(s, plan):
    same(s.call('POST', f'/v1/plans/{plan}/reset', by_socket=True).status, 200, 'a reset')


def test_evt_all_that_others_do(top):
    """The command and the daemon write at once, some commands are killed."""
    with Followed(top) as s:
        plans = [s.plan(f'p{i}') for i in range(3)]
        at = newest(s)
        with Stream(s) as a, Stream(s) as b:
            def by_daemon():
                for plan in plans * 4:
                    reset(s, plan)

            def by_command(name):
                for n in range(3 if SANITIZED else 6):
                    s.atoll('exec', name, '--', 'sh', '-c', f'echo {n} >root-{name}/f')
                    s.atoll('commit', name)

            threads = [threading.Thread(target=by_daemon)] + \
                [threading.Thread(target=by_command, args=(f'p{i}',)) for i in range(3)]
            for t in threads:
                t.start()
            for n in range(8):
                killed = s.start_atoll('exec', 'p1', '--', 'sleep', '1')
                time.sleep(0.02 * n)
                killed.kill()
                killed.wait()
            for t in threads:
                t.join()
            end = newest(s)
            for stream in (a, b):
                stream.until(end)
                heard = [event for event in told(stream.events) if event[0] <= end]
                same(heard, stored(s, at, end), 'all of it, once, in order')


def test_evt_who_comes_back_misses_nothing(top):
    """Streams are cut, the daemon is stopped and killed; Last-Event-ID puts the pieces together."""
    r = random.Random(SEED)
    print(f'# seed {SEED}')
    with Followed(top) as s:
        plan = s.plan('p')
        at, pieces, first = newest(s), [], newest(s)
        stop = threading.Event()

        def write():
            written = 0
            while not stop.is_set() or written < 10:  # there is something, however slow the machine
                s.atoll('reset', 'p')
                written += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for n in range(8):
                if n in (3, 6):
                    s.restart(signal.SIGTERM if n == 3 else signal.SIGKILL)
                with Stream(s, '?after=0', after=at) as stream:
                    time.sleep(r.random() / 2)
                pieces += stream.events
                at = stream.last
        finally:
            stop.set()
            writer.join()
        with Stream(s, f'?after={at}') as stream:
            stream.until(newest(s))
        pieces += stream.events
        same(told(pieces), stored(s, first), f'seed {SEED}: without a gap, and nothing twice')
        need(len(pieces) > 8 and {e['plan']['id'] for e in pieces} == {plan}, 'there was something')


def test_evt_fifty_and_one_that_reads_nothing(top):
    with Followed(top, '--send-timeout=1', '--max-per-address=100') as s:
        s.plan('p')
        at = newest(s)
        stuck = s.connection(True)
        stuck.request('GET', '/v1/events?after=0')
        streams = [Stream(s) for _ in range(50)]
        try:
            before = len(s.tasks())
            for _ in range(5 if SANITIZED else 30):
                s.atoll('reset', 'p', check=True)
            end = newest(s)
            for stream in streams:
                stream.until(end)
                same(told(stream.events), stored(s, at), 'everybody hears all')
            need(before <= 50 + 8, f'{before} threads: one for each connection, and a few')
            s.wait_until(lambda: len(s.tasks()) <= before, 'no more of them')
            # Nobody has anything to do: nobody wakes.
            for _ in range(20):  # the end of what happened may take its time
                woken = s.switches()
                time.sleep(1)
                woken = s.switches() - woken
                if woken < 30:
                    break
            need(woken < 30, f'{woken} wake-ups while nothing happened')
        finally:
            for stream in streams:
                stream.close()
            stuck.close()
        s.wait_until(lambda: len(s.tasks()) < 10, 'the threads of the streams')


def test_evt_a_token_hears_of_its_plan(top):
    with Followed(top) as s:
        p, q = s.plan('p'), s.plan('q')
        token = s.token(p)
        review = s.key('r', 'review')
        with Stream(s, key=token) as bound, Stream(s, '?plan=q', key=review) as asked, Stream(s, key=review) as every:
            for name in ('q', 'p', 'q'):
                s.atoll('reset', name, check=True)
            end = newest(s)
            every.until(end)
            asked.until(end)
            bound.wait_for(lambda: bound.events, "its plan's")  # each stream has a thread, and a pace, of its own
            same([(e['what'], e['plan']['id']) for e in bound.events], [('reset', p)], 'its plan')
            same([(e['what'], e['plan']['id']) for e in asked.events], [('reset', q)] * 2, 'what was asked for')
            same([e['plan']['id'] for e in every.events], [q, p, q], 'all')
            same(s.call('GET', '/v1/events?plan=q', key=token).status, 403, "another one's")
            same(s.call('GET', f'/v1/events?plan={q}', key=token).status, 403, "another one's, by its id")
            # Also not from the past.
            with Stream(s, '?after=0', key=token) as past:
                past.wait_for(lambda: past.events and past.events[-1]['what'] == 'reset', 'the past')
                same({e['plan']['id'] for e in past.events}, {p}, 'the past')
            # Revoked at once: not one more.
            s.call('DELETE', f'/v1/sandboxes/{p}/auth', by_socket=True)
            s.atoll('reset', 'p', check=True)
            bound.join(PATIENCE)
            need(not bound.is_alive() and not bound.broken, 'a revoked token ends the stream')
            same(len(bound.events), 1, 'nothing more')
        for query, status in (('?after=x', 400), ('?after=-1', 400), ('?plan=nobody', 404), ('?after=1&after=2', 400)):
            same(s.call('GET', f'/v1/events{query}', by_socket=True).status, status, query)
        same(s.call('GET', '/v1/events').status, 401, 'nobody')


def test_evt_what_is_not_kept_is_said(top):
    with Followed(top) as s:
        s.plan('p')
        for _ in range(4):
            s.atoll('reset', 'p', check=True)
        s.sql("INSERT INTO meta (key, value) VALUES ('news-let-go', '2')")
        s.sql('DELETE FROM news WHERE seq <= 2')
        with Stream(s, '?after=1') as stream, Stream(s, '?after=2') as other, Stream(s, '?after=999999') as wild:
            s.atoll('reset', 'p', check=True)
            end = newest(s)
            for each in (stream, other):
                each.until(end)
            # Its first number is beyond the end: what counts is the last event.
            wild.wait_for(lambda: wild.events and wild.events[-1]['seq'] == end, 'the last one')
            same([e['what'] for e in stream.events][:1], ['gap'], 'said')
            same(told(stream.events[1:]), stored(s, 2), 'and the rest')
            same(told(other.events), stored(s, 2), 'nothing was missed')
            same([e['what'] for e in wild.events][:1], ['gap'], 'a number that nobody gave')
            same(told(wild.events[1:]), stored(s, 0), 'and all there is')


def test_evt_the_stream_ends_with_the_daemon(top):
    with Followed(top) as s:
        streams = [Stream(s) for _ in range(5)]
        began = time.monotonic()
        s.tell(signal.SIGTERM)
        for stream in streams:
            stream.join(PATIENCE)
            need(not stream.is_alive() and not stream.broken, 'ended, and whole')
            stream.close()
        s.end()
        need(time.monotonic() - began < PATIENCE, 'at once')
        s.start()


def test_evt_a_sign_of_life(top):
    if '-tsan' in os.environ.get('ATOLL_BUILD_ROOT', '') and os.environ.get('ATOLL_LONG') != '1':
        raise Skip('takes 15 seconds, and has run without')
    with Followed(top) as s:
        s.plan('q')
        p = s.plan('p')
        with Stream(s, f'?plan={p}') as stream:
            s.atoll('reset', 'q', check=True)
            stream.wait_for(lambda: stream.beats > 0, 'a heartbeat')
            same((stream.events, stream.last), ([], newest(s)), 'with the number up to which there was nothing')


if __name__ == '__main__':
    main([value for name, value in list(globals().items()) if name.startswith('test_')])

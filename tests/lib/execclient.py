# SPDX-License-Identifier: Apache-2.0
"""Clients of POST /v1/plans/{plan}/exec and /sync, over frames; src/sync/frame.h says what they are.

    with Exec(d, 'plan', argv=['cat']) as e:
        e.send(b'hello')
        e.end_input()
        done = e.finish()          # .stdout .stderr .exit .error .notices

    with Session(d, 'plan') as s:
        s.push(stream)             # each fails with Refused
        s.run('make').exit         # .stdout .stderr
        stream, end = s.pull()
        s.received(end['run'])
        s.shut()
"""

import json
import select
import ssl
import struct
import time

from atolld import PATIENCE, request
from expect import Broken, need

STDIN, RESIZE, SIGNAL, REQUEST = range(4)
OPEN, PUSH, DATA, END, PULL, RECEIVED, LIST, CLOSE, PING = range(4, 13)
STDOUT, STDERR, NOTICE, ERROR, EXIT, WINDOW = range(16, 22)
OPENED, PUSHED, PULLED, PULL_END, RECEIVED_TOO, CLOSED, PONG = range(22, 29)
HEAD, MAX, FIRST_WINDOW = 5, 64 << 10, 256 << 10
AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
UPGRADE = ('Connection: Upgrade', 'Upgrade: atoll-exec/1')


def frame(kind, data=b''):
    return struct.pack('>BI', kind, len(data)) + data


class Exec:
    """One command. What it prints is in stdout and stderr, as far as it was read."""
    verb, upgrade = 'exec', UPGRADE

    def __init__(self, daemon, plan, *, place=None, tls=None, headers=(), wait=None, raw=False, **what):
        self.wire = daemon.connect(place, tls)
        query = '' if wait is None else f'?wait={wait}'
        self.wire.send(request(f'POST /v1/plans/{plan}/{self.verb}{query}', headers=(*self.upgrade, *headers)))
        self.answer = self.wire.answer(head=True)
        self.sock = self.wire.sock
        self.buf, self.wire.rest = bytearray(self.wire.rest), b''
        self.stdout, self.stderr, self.notices = bytearray(), bytearray(), []
        self.exit = self.error = None
        self.window = FIRST_WINDOW
        self.ended = False
        self.sock.setblocking(False)
        if self.answer.status == 101 and not raw:
            self.begin(what)

    def begin(self, what):
        self.put(REQUEST, json.dumps(what).encode())

    # ---- to it ----

    def put(self, kind, data=b''):
        self.write(frame(kind, data))

    def send(self, data):
        """All of it, as the window allows; what comes meanwhile is taken."""
        view = memoryview(data)
        while view and not self.ended:
            while self.window == 0 and self.step():
                pass
            n = min(len(view), MAX, self.window)
            self.window -= n
            self.write(frame(STDIN, bytes(view[:n])))
            view = view[n:]

    def write(self, data):
        """Never stuck because nobody reads what comes back."""
        view = memoryview(data)
        while view and not self.ended:
            try:
                view = view[self.sock.send(view[:65536]):]
            except AGAIN:
                readable, writable, _ = select.select([self.sock], [self.sock], [], PATIENCE)
                need(readable or writable, 'nothing moves')
                if readable:
                    self.step(wait=False)
            except (ConnectionResetError, BrokenPipeError):
                return

    def end_input(self):
        self.put(STDIN)

    def signal(self, sig):
        self.put(SIGNAL, bytes([sig]))

    def resize(self, rows, columns):
        self.put(RESIZE, struct.pack('>HH', rows, columns))

    # ---- from it ----

    def _take(self, kind, data):
        if kind == STDOUT:
            self.stdout += data
        elif kind == STDERR:
            self.stderr += data
        elif kind == NOTICE:
            self.notices.append(json.loads(data))
        elif kind == WINDOW:
            self.window += struct.unpack('>I', data)[0]
        elif kind in (EXIT, ERROR):
            need(self.exit is None and self.error is None, 'two last frames')
            if kind == EXIT:
                self.exit = json.loads(data)
            else:
                self.error = json.loads(data)
        else:
            raise Broken(f'a frame of type {kind}')

    def _receive(self, wait):
        while True:
            try:
                return self.sock.recv(1 << 20)
            except AGAIN:
                if not wait:
                    return None
                need(select.select([self.sock], [], [], PATIENCE)[0], 'nothing comes')
            except (ConnectionResetError, BrokenPipeError):
                return b''

    def step(self, wait=True):
        """Some of what it says; False at the end."""
        data = self._receive(wait)
        if data is None:
            return True
        if not data:
            self.ended = True
            need(not self.buf, 'an end within a frame')
            return False
        self.buf += data
        at = 0
        while len(self.buf) - at >= HEAD:
            kind, n = struct.unpack_from('>BI', self.buf, at)
            need(n <= MAX, 'a frame that is too long')
            if len(self.buf) - at < HEAD + n:
                break
            self._take(kind, bytes(self.buf[at + HEAD:at + HEAD + n]))
            at += HEAD + n
        del self.buf[:at]
        return True

    def expect(self, text, patience=PATIENCE):
        """Until it was printed."""
        end = time.monotonic() + patience
        while text not in self.stdout and text not in self.stderr:
            need(time.monotonic() < end and self.step(),
                 f'{text!r} was not printed, but {bytes(self.stdout[-2000:])!r} {bytes(self.stderr[-2000:])!r} '
                 f'{self.exit} {self.error}')

    def finish(self):
        while self.step():
            pass
        need(self.exit is not None or self.error is not None, 'no last frame')
        return self

    def code(self):
        """The exit code; anything else than an exit is Broken."""
        self.finish()
        need(self.exit is not None, f'it failed: {self.error}')
        return self.exit['exit_code']

    def close(self):
        self.wire.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Refused(Exception):
    """A step that failed: the problem document."""

    def __init__(self, problem):
        super().__init__(f"{problem['code']}: {problem['detail']}")
        self.problem = problem
        self.code = problem['code']
        self.open = problem['session'] == 'open'


class Session(Exec):
    """One session. A step is asked for, and done when its last frame has come."""
    verb, upgrade = 'sync', ('Connection: Upgrade', 'Upgrade: atoll-sync/1')

    def __init__(self, daemon, plan, *, client='test 1 somebody', wait_ms=None, **more):
        self.frames, self.opened = [], None
        super().__init__(daemon, plan, client=client, wait_ms=wait_ms, **more)

    def begin(self, what):
        self.put_json(OPEN, {k: v for k, v in what.items() if v is not None})

    def put_json(self, kind, what):
        self.put(kind, json.dumps(what).encode())

    def _take(self, kind, data):
        if kind == ERROR:
            self.frames.append((kind, json.loads(data)))
        elif kind in (STDOUT, STDERR, NOTICE, WINDOW):
            super()._take(kind, data)
        else:
            self.frames.append((kind, data))

    def next(self):
        """The next frame that is neither output nor notice."""
        while not self.frames:
            if not self.step():
                raise ConnectionResetError('the session is over')
        return self.frames.pop(0)

    def await_frame(self, kind):
        """Its payload; data frames before it are in .data."""
        self.data = bytearray()
        while True:
            got, data = self.next()
            if got == ERROR:
                raise Refused(data)
            if got == PULLED:
                self.data += data
                continue
            need(got == kind, f'a frame of type {got}, not {kind}')
            return json.loads(data) if data else None

    def next_frame(self):
        """Whatever it is, but an error."""
        kind, data = self.next()
        if kind == ERROR:
            raise Refused(data)
        return kind, data

    # ---- steps ----

    def open(self):
        self.opened = self.await_frame(OPENED)
        return self

    def push(self, stream, base=None):
        self.begin_push(stream, base)
        self.put(END)
        self.opened['generation'] = self.await_frame(PUSHED)['generation']
        return self.opened['generation']

    def begin_push(self, stream, base=None):
        self.put_json(PUSH, {'base_generation': self.opened['generation'] if base is None else base})
        for at in range(0, len(stream), MAX):
            self.put(DATA, bytes(stream[at:at + MAX]))

    def start(self, *argv, **more):
        self.stdout, self.stderr, self.exit, self.window = bytearray(), bytearray(), None, FIRST_WINDOW
        self.put_json(REQUEST, {'argv': list(argv), **more})

    def await_exit(self):
        self.exit = self.await_frame(EXIT)
        return self

    def run(self, *argv, **more):
        self.start(*argv, **more)
        self.end_input()
        return self.await_exit()

    def pull(self):
        self.put_json(PULL, {})
        end = self.await_frame(PULL_END)
        return bytes(self.data), end

    def list(self):
        self.put_json(LIST, {})
        self.await_frame(PULL_END)
        return bytes(self.data)

    def received(self, number):
        self.put_json(RECEIVED, {'run': number})
        self.opened['generation'] = self.await_frame(RECEIVED_TOO)['generation']
        return self.opened['generation']

    def ping(self):
        self.put(PING)
        self.await_frame(PONG)

    def shut(self):
        self.put(CLOSE)
        self.await_frame(CLOSED)
        need(not self.step(), 'something after the last frame')


def run(daemon, plan, *argv, **more):
    """A whole command without input."""
    with Exec(daemon, plan, argv=list(argv), **more) as e:
        e.end_input()
        return e.finish()


def lines(daemon, plan, *, place=None, tls=None, headers=(), wait=None, **what):
    """The other form: (answer, list of lines)."""
    query = '' if wait is None else f'?wait={wait}'
    with daemon.connect(place, tls) as wire:
        wire.send(request(f'POST /v1/plans/{plan}/exec{query}', what, ('Content-Type: application/json', *headers)))
        answer = wire.answer()
        if answer.status == 100:
            answer = wire.answer()
    if answer.headers.get('content-type') != 'application/x-ndjson':
        return answer, []
    return answer, [json.loads(line) for line in answer.body.splitlines()]

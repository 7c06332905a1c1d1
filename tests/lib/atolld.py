# SPDX-License-Identifier: Apache-2.0
"""A real atolld for tests: started, asked byte by byte, stopped; and the frame of such a test file.

    def reads_the_list(top):
        with Daemon(top) as d:
            answer = d.ask('GET /v1/plans')
            same(answer.status, 200, 'the list')

    if __name__ == '__main__':
        main([reads_the_list, ...])

Root runs every test as root and once more as an ordinary user; TOP is a directory of the user's own, made
for the test and removed after it. ATOLL_TEST_ONLY=NAME,... runs only these.
"""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from expect import Broken, need

NOBODY = 65534
SANITIZED = '-asan' in os.environ.get('ATOLL_BUILD_ROOT', '') or '-tsan' in os.environ.get('ATOLL_BUILD_ROOT', '')
PATIENCE = 60  # seconds, for what must happen; far more than it takes
SANITIZER_STATUS = 86


class Skip(Exception):
    pass


class Answer:
    """One HTTP response. status 0: the connection ended without one."""

    def __init__(self, head, body, closed):
        lines = head.split(b'\r\n')
        words = lines[0].split(b' ')
        self.status = int(words[1]) if len(words) > 1 else 0
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(b':')
            self.headers[name.decode().lower()] = value.strip().decode()
        self.body = body
        self.closed = closed  # the server ended the connection after it

    def json(self):
        return json.loads(self.body)


class Wire:
    """One connection, as bytes."""

    def __init__(self, sock, timeout=PATIENCE):
        self.sock = sock
        self.sock.settimeout(timeout)
        self.rest = b''
        self.ended = False

    def send(self, data):
        self.sock.sendall(data)

    def _more(self):
        try:
            data = self.sock.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            data = b''
        self.ended = self.ended or not data
        self.rest += data
        return bool(data)

    def answer(self, head=False, see_end=False):
        """The next response; SEE_END: also wait whether the connection is closed after it."""
        while b'\r\n\r\n' not in self.rest:
            if not self._more():
                return Answer(b'', self.rest, True)
        top, _, self.rest = self.rest.partition(b'\r\n\r\n')
        answer = Answer(top, b'', False)
        if not head:
            answer.body = self._body(answer)
        while see_end and not self.ended and self._more():
            pass
        answer.closed = self.ended
        return answer

    def _body(self, answer):
        if answer.headers.get('transfer-encoding') == 'chunked':
            return b''.join(iter(self.chunk, b''))
        size = int(answer.headers.get('content-length', 0))
        while len(self.rest) < size and self._more():
            pass
        body, self.rest = self.rest[:size], self.rest[size:]
        return body

    def chunk(self):
        """The next piece of an answer that has no length; b'': its end."""
        while b'\r\n' not in self.rest:
            if not self._more():
                raise Broken('the connection ended in the middle of an answer')
        size, _, self.rest = self.rest.partition(b'\r\n')
        size = int(size, 16)
        while len(self.rest) < size + 2:
            if not self._more():
                raise Broken('the connection ended in the middle of an answer')
        data, self.rest = self.rest[:size], self.rest[size + 2:]
        return data

    def is_closed(self, within):
        """Does the server end it within so many seconds? What it sends meanwhile is dropped."""
        self.sock.settimeout(within)
        try:
            while self.sock.recv(65536):
                pass
            return True
        except ConnectionResetError:
            return True
        except socket.timeout:
            return False

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Daemon:
    """OPTIONS are those of atolld; without --socket, --listen and handed sockets it gets a socket in TOP."""

    def __init__(self, top, *options, home=None, env=None, command=None, fds=()):
        self.top = Path(top)
        self.home = Path(home or self.top / 'store')
        self.options = list(options)
        if not fds and not any(o.startswith(('--socket', '--listen')) for o in options):
            self.options.append(f'--socket={self.top}/sock')
        self.env = dict(os.environ, ATOLL_HOME=str(self.home), XDG_DATA_HOME=str(self.top / 'data'), **(env or {}))
        self.command = command or [os.environ['ATOLL_DAEMON']]
        self.fds = fds
        self.states = []

    def start(self):
        """Until it says that it is ready. Broken with its last words when it ends instead."""
        path = tempfile.mktemp(dir=self.top, prefix='notify.')
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(path)
        self.notify.settimeout(0.05)
        self.log_path = Path(tempfile.mktemp(dir=self.top, prefix='log.'))
        with open(self.log_path, 'ab') as log:
            self.process = subprocess.Popen([*self.command, *self.options], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=dict(self.env, NOTIFY_SOCKET=path),
                                            pass_fds=self.fds, start_new_session=True)
        self.wait_for('READY=1')
        return self

    def wait_for(self, state, patience=PATIENCE):
        until = time.monotonic() + patience
        while state not in self.states:
            try:
                self.states += self.notify.recv(4096).decode().split('\n')
            except socket.timeout:
                pass
            if state not in self.states and self.process.poll() is not None:
                raise Broken(f'atolld ended with {self.process.returncode}: {self.log_path.read_text()}')
            need(time.monotonic() < until, f'atolld never said {state}: {self.log_path.read_text()}')

    def log(self):
        lines = self.log_path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith('\n')]  # the last may be under way

    def places(self):
        """What it says it serves."""
        return [line['message'].split()[1] for line in self.log()
                if line.get('message', '').startswith('serving ')]

    def connect(self, place=None, tls=None, timeout=PATIENCE):
        """PLACE: one of places(); the first one when missing. TLS: a certificate to trust."""
        place = place or self.places()[0]
        if place.startswith('unix:'):
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(place[5:])
        else:
            host, _, port = place.rpartition(':')
            sock = socket.create_connection((host.strip('[]'), int(port)))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.create_default_context(cafile=tls)
            sock = context.wrap_socket(sock, server_hostname='localhost')
        return Wire(sock, timeout)

    def ask(self, line, body=None, headers=(), place=None, tls=None):
        """LINE: "GET /healthz". On a connection of its own. BODY: bytes, or something for JSON."""
        with self.connect(place, tls) as wire:
            wire.send(request(line, body, headers))
            return wire.answer(head=line.startswith('HEAD '))

    def raw(self, data, place=None):
        with self.connect(place) as wire:
            wire.send(data)
            return wire.answer(see_end=True)

    def is_alive(self):
        return self.process.poll() is None and self.ask('GET /healthz').status == 200

    def tell(self, sig):
        self.process.send_signal(sig)

    def end(self, patience=PATIENCE):
        """Its exit status, once it has ended."""
        status = self.process.wait(patience)
        self.notify.close()
        if status == SANITIZER_STATUS or 'Sanitizer' in self.log_path.read_text():
            raise Broken(self.log_path.read_text())
        return status

    def stop(self):
        if self.process.poll() is None:
            self.tell(signal.SIGTERM)
        return self.end()

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        if kind and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            return
        status = self.stop()
        need(status == 0, f'atolld ended with {status}: {self.log_path.read_text()}')


def request(line, body=None, headers=()):
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f'{line} HTTP/1.1', 'Host: localhost', *headers]
    if body is not None:
        lines.append(f'Content-Length: {len(body)}')
    return '\r\n'.join([*lines, '', '']).encode() + (body or b'')


def certificate(top):
    """A certificate for localhost and its key, as files."""
    cert, key = f'{top}/cert.pem', f'{top}/key.pem'
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
                    '-keyout', key, '-out', cert, '-days', '2', '-subj', '/CN=localhost', '-addext',
                    'subjectAltName=DNS:localhost,IP:127.0.0.1'], check=True, capture_output=True)
    os.chmod(key, 0o600)
    return cert, key


# ---- the frame ----

def run_one(test):
    top = tempfile.mkdtemp(prefix='atolld.', dir=os.environ.get('TMPDIR', '/var/tmp'))
    try:
        test(top)
        return 'ok', ''
    except Skip as why:
        return 'ok', f' # SKIP {why}'
    except Exception:  # noqa: B902
        return 'not ok', '\n' + ''.join(f'# {line}\n' for line in traceback.format_exc().splitlines())
    finally:
        shutil.rmtree(top, ignore_errors=True)


def run_all(tests, who):
    only = os.environ.get('ATOLL_TEST_ONLY')
    failed = 0
    for number, test in enumerate(tests, 1):
        if only and test.__name__ not in only.split(','):
            continue
        begun = time.monotonic()
        word, more = run_one(test)
        failed += word != 'ok'
        print(f'{word} {number} - {test.__name__}, {who}{more}', flush=True)
        if os.environ.get('ATOLL_TEST_TIMES'):
            print(f'# {time.monotonic() - begun:.2f} s', flush=True)
    return failed


def main(tests):
    os.environ.pop('NOTIFY_SOCKET', None)
    if sys.argv[1:2] == ['as-user'] or os.geteuid() != 0:
        failed = run_all(tests, 'user')
        if sys.argv[1:2] != ['as-user']:
            print(f'1..{len(tests)}')
        sys.exit(bool(failed))
    print(f'1..{2 * len(tests)}', flush=True)
    failed = run_all(tests, 'root')
    user = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups', sys.executable, sys.argv[0], 'as-user', *sys.argv[1:]]
    home = tempfile.mkdtemp(prefix='atolld.', dir='/var/tmp')
    os.chown(home, NOBODY, NOBODY)
    try:
        said = subprocess.run(user, env=dict(os.environ, TMPDIR=home, HOME=home), check=False, text=True, stdout=subprocess.PIPE)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    for line in said.stdout.splitlines():
        words = line.split(' ')
        at = words.index('-') - 1 if '-' in words[:4] else None
        if at:  # their numbers go on where ours end
            words[at] = str(int(words[at]) + len(tests))
        print(' '.join(words))
    sys.exit(bool(failed or said.returncode))

# SPDX-License-Identifier: Apache-2.0
"""A daemon with plans, keys and tokens, asked as clients ask, by TCP and by its socket."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from atolld import PATIENCE, Daemon  # noqa: E402
from expect import need, same  # noqa: E402
from described import Described  # noqa: E402

ATOLL = os.environ['ATOLL']


class Answer:
    def __init__(self, got):
        self.status = got.status
        self.headers = got.headers
        self.body = got.read().decode()

    @property
    def json(self):
        return json.loads(self.body)


class SocketConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__('localhost', timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)


class Served(Daemon):
    def __init__(self, top, *options):
        for name in ('ATOLL_PLAN', 'ATOLL_PLAN_ID', 'http_proxy', 'https_proxy'):
            os.environ.pop(name, None)
        super().__init__(top, f'--socket={top}/sock', '--listen=127.0.0.1:0', *options,
                         env={'LC_ALL': 'C.UTF-8', 'XDG_CONFIG_HOME': f'{top}/config'})
        self.socket = f'{top}/sock'
        self.secrets = []
        self.said = []
        self.described = None

    def start(self):
        self.states = []
        super().start()
        self.said.append(self.log_path)
        self.port = int(next(p for p in self.places() if p.startswith('127')).rpartition(':')[2])
        return self

    def restart(self, how=signal.SIGTERM):
        self.tell(how)
        self.end()
        self.start()

    def __exit__(self, kind, *more):
        super().__exit__(kind, *more)
        if not kind:
            self.look_for_secrets()
        for plan in json.loads(self.atoll('list', '--json').stdout)['plans']:
            self.atoll('stop', '--force', '--yes', plan['name'])

    # ---- asking ----

    def connection(self, by_socket=False):
        return SocketConnection(self.socket) if by_socket else \
            http.client.HTTPConnection('127.0.0.1', self.port, timeout=PATIENCE)

    def call(self, method, path, key=None, body=None, headers=None, by_socket=False, on=None):
        """On a connection of its own, unless ON is one."""
        connection = on or self.connection(by_socket)
        every = dict(headers or {})
        if key is not None:
            every['Authorization'] = f'Bearer {key}'
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        if body is not None:
            every.setdefault('Content-Type', 'application/json')
        try:
            connection.request(method, path, body=body, headers=every)
            answer = Answer(connection.getresponse())
        finally:
            if not on:
                connection.close()
        self.check(method, path, answer)
        return answer

    def check(self, method, path, answer):
        """Every answer is as the daemon's own description says."""
        if not self.described:
            self.described = 'under way'
            self.described = Described(self.call('GET', '/openapi.json', by_socket=True).json)
        if self.described != 'under way':
            self.described.check(method, path, answer)

    def status_of(self, text):
        """Of these bytes, sent by TCP."""
        return self.raw(text.encode(), f'127.0.0.1:{self.port}').status

    # ---- the store ----

    def atoll(self, *words, check=False):
        done = subprocess.run([ATOLL, *words], env=self.env, cwd=self.top, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        need(not check or done.returncode == 0, f'atoll {words} failed: {done.stderr}')
        return done

    def key(self, name, scope, *options):
        secret = self.atoll('token', 'new', name, '--scope', scope, *options, check=True).stdout.strip()
        need(re.fullmatch('atk_[0-9A-Za-z]{49}', secret), 'a key')
        self.secrets.append(secret)
        return secret

    def plan(self, name):
        """Its id."""
        root = self.top / f'root-{name}'
        root.mkdir(exist_ok=True)
        self.atoll('start', name, '--strategy', 'copy', '--dir', str(root), check=True)
        return json.loads(self.atoll('show', name, '--json').stdout)['plan']['id']

    def token(self, plan, key=None, **body):
        got = self.call('POST', f'/v1/sandboxes/{plan}/auth', key=key, body=body or None, by_socket=key is None)
        same(got.status, 201, f'a token of {plan}: {got.body}')
        self.secrets.append(got.json['token'])
        return got.json['token']

    def sql(self, text, *values):
        """Behind everybody's back."""
        with sqlite3.connect(self.home / 'atoll.db', timeout=PATIENCE) as db:
            found = db.execute(text, values).fetchall()
        db.close()
        return found

    @contextlib.contextmanager
    def held_store(self):
        """Nobody writes to the store meanwhile."""
        holder = subprocess.Popen([os.environ['ATOLL_TEST_HOLD_LOCK'], str(self.home / 'locks'), 'store.lk', 'wait'],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            same(holder.stdout.read(1), b'h', 'the store lock')
            yield
        finally:
            holder.communicate()

    def credentials(self):
        return json.loads(self.atoll('token', 'list', '--json').stdout)['credentials']

    def audit(self):
        return [json.loads(line) for line in self.atoll('log', '--audit').stdout.splitlines()]

    def look_for_secrets(self):
        """Nothing that was handed out is in the store, or in what was said."""
        for path in [*self.said, *self.home.rglob('*')]:
            if not path.is_file():
                continue
            data = path.read_bytes()
            for secret in self.secrets:
                need(secret[4:40].encode() not in data, f'a secret is in {path}')

# SPDX-License-Identifier: Apache-2.0
"""The frontend's side of the PostgreSQL protocol, message by message: what a driver hides.

    with Peer(socket_dir, 'app', 'shop') as peer:
        peer.send([query('select 1')])
        peer.answers()      # [(b'T', ...), (b'D', ...), (b'C', ...), (b'Z', b'I')]
"""

import collections
import hashlib
import hmac
import base64
import os
import socket
import struct

VERSION_3, SSL_REQUEST = 196608, 80877103

# What an ErrorResponse says about the server's source, and what the language of messages decides.
SOURCE_FIELDS = b'FLRS'
# The last answer to each message of the extended protocol.
LAST = {b'P': (b'1',), b'B': (b'2',), b'C': (b'3',), b'D': (b'T', b'n'), b'E': (b'C', b'I', b's')}
SILENT = (b'd', b'c', b'f', b'H', b'X')
COPY_ENDS = (b'c', b'f')


# ---- messages: (kind, body) ----

def text(*words):
    return b''.join(w.encode() + b'\0' for w in words)


def query(sql):
    return b'Q', text(sql)


def parse(name, sql, types=()):
    return b'P', text(name, sql) + struct.pack(f'!H{len(types)}I', len(types), *types)


def bind(portal, name, values=(), result_formats=(), binary=False):
    """VALUES: text, or None; BINARY: numbers are sent as int4."""
    body = text(portal, name) + (struct.pack('!HHH', 1, 1, len(values)) if binary else struct.pack('!HH', 0, len(values)))
    for value in values:
        data = struct.pack('!i', value) if binary and isinstance(value, int) else b'' if value is None else str(value).encode()
        body += struct.pack('!i', -1 if value is None else len(data)) + data
    return b'B', body + struct.pack(f'!H{len(result_formats)}H', len(result_formats), *result_formats)


def describe(what, name):
    return b'D', what.encode() + text(name)


def close(what, name):
    return b'C', what.encode() + text(name)


def execute(portal='', rows=0):
    return b'E', text(portal) + struct.pack('!I', rows)


def call(oid, values):
    body = struct.pack('!IHH', oid, 0, len(values))
    for value in values:
        data = str(value).encode()
        body += struct.pack('!i', len(data)) + data
    return b'F', body + struct.pack('!H', 0)


def data(rows):
    return b'd', rows.encode()


def fail(why='enough'):
    return b'f', text(why)


SYNC, FLUSH, COPY_DONE, TERMINATE = (b'S', b''), (b'H', b''), (b'c', b''), (b'X', b'')


def encode(kind, body):
    return kind + struct.pack('!I', len(body) + 4) + body


def fields(body):
    """Of an ErrorResponse or NoticeResponse: letter -> text."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b'\0') if part}


def normal(kind, body):
    """BODY without what no two servers have in common."""
    if kind in (b'E', b'N'):
        return b'\0'.join(part for part in body.split(b'\0') if part[:1] not in SOURCE_FIELDS)
    if kind == b'T':  # a column says which table it is of by a number
        columns, at = [body[:2]], 2
        for _ in range(struct.unpack_from('!H', body)[0]):
            end = body.index(b'\0', at) + 1
            table, = struct.unpack_from('!I', body, end)
            columns.append(body[at:end] + (b'table' if table else b'') + body[end + 4:end + 18])
            at = end + 18
        return b''.join(columns)
    return body


# ---- SCRAM-SHA-256, as RFC 5802 and 7677 have it ----

class Scram:
    def __init__(self, password):
        self.password = password.encode()
        self.bare = 'n=,r=' + base64.b64encode(os.urandom(18)).decode()

    def first(self):
        initial = b'n,,' + self.bare.encode()
        return b'p', text('SCRAM-SHA-256') + struct.pack('!i', len(initial)) + initial

    def answer(self, challenge):
        words = dict(word.split('=', 1) for word in challenge.decode().split(','))
        salted = hashlib.pbkdf2_hmac('sha256', self.password, base64.b64decode(words['s']), int(words['i']))
        key = hmac.digest(salted, b'Client Key', 'sha256')
        last = f'c=biws,r={words["r"]}'
        message = f'{self.bare},{challenge.decode()},{last}'.encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), message, 'sha256')
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature))).decode()
        self.expected = base64.b64encode(hmac.digest(hmac.digest(salted, b'Server Key', 'sha256'), message,
                                                     'sha256'))
        return b'p', f'{last},p={proof}'.encode()


# ---- a connection ----

class Peer:
    """ADDRESS: the directory of a Unix socket, or (host, port)."""

    def __init__(self, address, user, database, password=None, patience=60, **settings):
        if isinstance(address, tuple):
            self.socket = socket.create_connection(address)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(f'{address}/.s.PGSQL.5432')
        self.socket.settimeout(patience)
        self.buffer, self.at = b'', 0
        self.parameters = {}  # as the server has reported them last
        self.unanswered, self.skipping, self.status = collections.deque(), False, b''
        self.password, self.pieces = password, None
        words = text('user', user, 'database', database, *(w for pair in settings.items() for w in pair)) + b'\0'
        self.socket.sendall(struct.pack('!II', len(words) + 8, VERSION_3) + words)
        self.hello = self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def start(self):
        """Messages until the server is ready, or has refused."""
        got, scram = [], None
        while not got or got[-1][0] not in (b'Z', b'E'):
            kind, body = self.read()
            got.append((kind, body))
            how = struct.unpack_from('!I', body)[0] if kind == b'R' else 0
            if how == 3:
                self.write([(b'p', text(self.password))])
            elif how == 10:
                scram = Scram(self.password)
                self.write([scram.first()])
            elif how == 11:
                self.write([scram.answer(body[4:])])
            elif how == 12 and body[4:] != b'v=' + scram.expected:
                raise ConnectionError('the server does not know the password')
        return got

    def write(self, messages):
        sent = b''.join(encode(*m) for m in messages)
        while self.pieces and len(sent) > 1:  # a random.Random: as they might arrive
            size = self.pieces.choice([1, 2, 5, 6, 40, 400, 4000, 40000])
            self.socket.sendall(sent[:size])
            sent = sent[size:]
        self.socket.sendall(sent)

    def read(self):
        """The next message that is not the report of a parameter."""
        while True:
            have = len(self.buffer) - self.at
            if have >= 5:
                end = self.at + 1 + struct.unpack_from('!I', self.buffer, self.at + 1)[0]
                if end <= len(self.buffer):
                    kind, body = self.buffer[self.at:self.at + 1], self.buffer[self.at + 5:end]
                    self.at = end
                    if kind != b'S':
                        return kind, body
                    name, value = body[:-1].split(b'\0')
                    self.parameters[name.decode()] = value.decode()
                    continue
            piece = self.socket.recv(1 << 18)
            if not piece:
                raise EOFError('the server has closed the connection')
            self.buffer, self.at = self.buffer[self.at:] + piece, 0

    def leave(self, messages):
        """Sends them and a Terminate; true when the server has then closed the connection."""
        try:
            self.write([*messages, TERMINATE])
            while self.socket.recv(1 << 18):
                pass
        except ConnectionError:
            pass
        except OSError:
            return False
        return True

    # What has to be answered yet: kinds of messages, in their order.

    def send(self, messages):
        self.unanswered.extend(kind for kind, _ in messages)
        self.write(messages)

    def pass_silent(self):
        queue = self.unanswered
        while queue and (queue[0] != b'S' if self.skipping else queue[0] in SILENT):
            queue.popleft()

    def enter_copy(self):
        """Of what follows the COPY at hand, its data: the server ignores Sync and Flush among them."""
        queue, head = self.unanswered, self.unanswered.popleft()
        while queue and queue.popleft() not in COPY_ENDS:
            pass
        queue.appendleft(head)

    def note(self, kind, body):
        queue = self.unanswered
        head = queue[0] if queue else b''
        if kind == b'Z':
            self.status, self.skipping = body, False
            if queue:
                queue.popleft()
        elif kind == b'G' and head:
            self.enter_copy()
        elif kind == b'E' and head in LAST:
            self.skipping = True
        elif kind in LAST.get(head, ()):
            queue.popleft()

    def answers(self):
        """Messages until all that was sent is answered; at a silence or an end ('?', why) is the last."""
        got = []
        try:
            self.pass_silent()
            while self.unanswered:
                kind, body = self.read()
                got.append((kind, normal(kind, body)))
                self.note(kind, body)
                self.pass_silent()
        except (OSError, EOFError) as why:
            got.append((b'?', type(why).__name__.encode()))
        return got

# SPDX-License-Identifier: Apache-2.0
"""Requests that are well formed as HTTP (guard.py has those that are not) and abuse everything else. What there
is to abuse is read from the daemon's own description, so that an operation that is new is abused, too. Each
request is refused with the right status; the daemon lives on, nothing is told that is nobody's business, and the
store is afterwards as it was before."""

import hashlib
import json
import os
import re
import socket
import struct
import sys
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
sys.path.insert(0, str(Path(__file__).resolve().parent))
from atolld import PATIENCE, main, request  # noqa: E402
from expect import Broken, need, same  # noqa: E402
from served import Served  # noqa: E402

UPGRADE = ['Upgrade: atoll-exec/1', 'Connection: Upgrade']


class Abused(Served):
    """Two plans, p with work in it, and somebody of every kind. EVIL is what was tried so far."""

    checked = set()

    def start(self):
        super().start()
        self.evil, self.wrong = 0, []
        self.p, self.q = self.plan('p'), self.plan('q')
        self.atoll('exec', f'--cwd={self.top}/root-p', 'p', '--', 'sh', '-c', 'echo work >new', check=True)
        self.digest = json.loads(self.atoll('diff', 'p', '--json', '--digest', check=True).stdout)['digest']
        self.admin = self.key('admin', 'admin')
        self.keys = {scope: self.key(scope, scope) for scope in ('agent', 'review')}
        self.of_p = {scope: self.token(self.p, scope=scope) for scope in ('agent', 'review')}
        self.of_q = {scope: self.token(self.q, scope=scope) for scope in ('agent', 'review')}
        self.over, self.revoked = self.token(self.p), self.key('revoked', 'admin')
        self.sql('UPDATE credential SET expires_ms = 1000 WHERE sha256 = ?', hashlib.sha256(self.over.encode()).hexdigest())
        self.atoll('token', 'revoke', 'revoked', check=True)
        self.document = self.call('GET', '/openapi.json', by_socket=True).json
        return self

    def __exit__(self, kind, *more):
        super().__exit__(kind, *more)
        if not kind:
            print(f'# {self.evil} requests were refused', flush=True)

    def check(self, method, path, answer):
        """Of answers that look alike one."""
        kind = (method, path.partition('?')[0], answer.status)
        if kind not in self.checked:
            self.checked.add(kind)
            super().check(method, path, answer)

    def operations(self):
        """Method, path, its description; those that need credentials."""
        for path, item in self.document['paths'].items():
            for method, operation in item.items():
                if operation.get('security') != []:
                    yield method.upper(), path, operation

    def resolve(self, schema):
        while '$ref' in schema:
            schema = self.document['components']['schemas'][schema['$ref'].rpartition('/')[2]]
        return schema

    def body_of(self, operation):
        """The schema of its body, or None."""
        content = operation.get('requestBody', {}).get('content', {}).get('application/json')
        return content and self.resolve(content['schema'])

    def parameters(self, operation, where):
        known = self.document['components']['parameters']
        for p in operation.get('parameters', []):
            p = known[p['$ref'].rpartition('/')[2]] if '$ref' in p else p
            if p['in'] == where:
                yield p

    def key_for(self, path):
        """What works in a plan is for its tokens."""
        return self.of_p['agent'] if path.endswith(('/exec', '/sync', '/{job}')) else self.admin

    def refused(self, method, path, status, what='', **more):
        """STATUS: one, or several."""
        got = self.call(method, path, **more)
        self.evil += 1
        text = f'{what} {method} {path[:120]}: {got.status} {got.body[:300]}'
        if got.status not in (status if isinstance(status, tuple) else (status,)):
            self.wrong.append(text)
        self.look_at(got, text)
        return got

    def look_at(self, got, text):
        said = got.body + str(got.headers)
        for secret in [str(self.home), *(s[4:40] for s in self.secrets)]:
            if secret in said and got.status >= 400:
                self.wrong.append(f'{text}\n tells {secret}')
        need(not re.search(r'\.[ch]:\d+|Sanitizer|sqlite', said), f'{text}\n tells of our insides')

    def state(self):
        """All that is in the store and in the roots; not when a credential was last used."""
        tables = [row[0] for row in self.sql("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {}
        for table in sorted(tables):
            columns = [c[1] for c in self.sql(f'PRAGMA table_info("{table}")') if not c[1].startswith('used')]
            rows[table] = self.sql(f'SELECT {", ".join(columns)} FROM "{table}" ORDER BY 1')
        files = {str(f): f.read_bytes() for plan in 'pq' for f in (self.top / f'root-{plan}').rglob('*')}
        return rows, files, sorted(str(f) for f in self.home.iterdir())


def unchanged(test):
    """The store before is the store after, and the daemon lives."""
    def run(top):
        with Abused(top) as s:
            before = s.state()
            test(s)
            need(not s.wrong, f'{len(s.wrong)} were taken, or answered otherwise:\n' + '\n'.join(s.wrong[:20]))
            need(s.is_alive(), 'the daemon lives on')
            after = s.state()
            for table in before[0]:
                same(after[0][table], before[0][table], f'table {table}')
            same(after, before, 'the store')
    run.__name__ = test.__name__
    return run


# ---- bodies ----

BOMBS = {
    'nothing of JSON': b'atoll',
    'an open end': b'{',
    'a list': b'[]',
    'null': b'null',
    'a text': b'"x"',
    'a number': b'1',
    'more behind it': b'{}{}',
    'a word behind it': b'{} x',
    'a NUL behind it': b'{}\0',
    'a NUL in a name': b'{"a\0b":1}',
    'a NUL, escaped': b'{"\\u0000":1}',
    'a line feed in a text': b'{"a\nb":1}',
    'one quotation mark for two': b"{'a':1}",
    'no quotation marks': b'{a:1}',
    'a comma at the end': b'{"a":1,}',
    'a comment': b'{/**/}',
    'a byte order mark': b'\xef\xbb\xbf{}',
    'UTF-16': '{}'.encode('utf-16'),
    'bytes that are no UTF-8': b'{"\xff\xfe":1}',
    'an overlong slash': b'{"\xc0\xaf":1}',
    'a surrogate as UTF-8': b'{"\xed\xa0\x80":1}',
    'a lone high surrogate': b'{"\\ud800":1}',
    'a lone low surrogate': b'{"\\udc00":1}',
    'surrogates the wrong way round': b'{"\\udc00\\ud800":1}',
    'an escape that is none': b'{"\\x41":1}',
    'a cut escape': b'{"\\u12',
    'NaN': b'{"a":NaN}',
    'a number beyond all': b'{"a":' + b'9' * 4000 + b'}',
    'an exponent beyond all': b'{"a":1e999999999}',
    'a zero before a number': b'{"a":01}',
    'deep lists': b'[' * 4000,
    'deep objects': b'{"a":' * 600 + b'1' + b'}' * 600,
    'deep in a member': b'{"a":' + b'[' * 1500 + b']' * 1500 + b'}',
    'the same member twice': b'{"a":1,"a":1}',
    'a member that nobody knows': b'{"no-such-member":1}',
    'a member by another case': b'{"NAME":"x","Scope":"admin"}',
    '__proto__': b'{"__proto__":{"scope":"admin"}}',
    'a member without a name': b'{"":1}',
    'many members': b'{' + b','.join(b'"m%d":1' % i for i in range(300)) + b'}',
}


def no_body_is_a_bomb(s):
    """Each, for every operation that has a body."""
    on = s.connection()
    for method, path, operation in s.operations():
        if not s.body_of(operation):
            continue
        for name, body in BOMBS.items():
            s.refused(method, path_of(s, path), 400, name, key=s.key_for(path), body=body, on=on, headers=more_of(s, path))
    on.close()


def path_of(s, path):
    """With arguments that are there."""
    return re.sub(r'{plan}|{sandbox}', s.p, path).replace('{job}', 'j').replace('{ask}', '1') \
        .replace('{entry}', '1').replace('{key}', 'admin')


def more_of(s, path):
    return {'If-Match': f'"{s.digest}"'} if path.endswith('/commit') else {}


# A good value of each member that must be there, and what a bad one of each type is.
GOOD = {'resources': [], 'root': '/nowhere', 'name': 'x', 'argv': ['true'], 'message': 'x', 'scope': 'agent', 'label': 'x'}
WRONG = {
    'string': [1, True, None, [], {}, ['x'], 'a\0b'],
    'boolean': ['true', 1, 0, None, [], {}],
    'integer': ['1', True, None, [], 1.5, {}, 10 ** 30, -10 ** 30, -1],
    'number': ['1', True, None, [], {}, -1],
    'array': ['x', 1, None, {}, [1], [None], [[]]],
}


def good_body(s, schema):
    return {name: s.digest if name == 'digest' else GOOD[name] for name in schema.get('required', [])}


def wrong_values(s, schema):
    schema = s.resolve(schema)
    if 'enum' in schema:
        return [1, None, '', 'no-such-word', 'ADMIN', ['x'], 'x' * 3000]
    types = schema.get('type', [])
    types = [types] if isinstance(types, str) else types
    types = [t['type'] for t in schema.get('anyOf', schema.get('oneOf', [])) if 'type' in t] or types
    wrong = [v for v in WRONG[types[0]] if not any(v in WRONG[t] is False for t in types[1:])] if types else []
    if len(types) > 1:
        wrong = [None, {}]
    if 'string' in types and schema.get('maxLength'):
        wrong.append('x' * (schema['maxLength'] + 1))
    if 'string' in types and schema.get('pattern'):
        wrong += ['', ' ', '../x', 'x' * 3000]
    if types == ['array'] and 'enum' in schema.get('items', {}):
        wrong.append(['no-such-word'])
    return wrong


def every_member_has_its_type(s):
    on = s.connection()
    for method, path, operation in s.operations():
        schema = s.body_of(operation)
        if not schema:
            continue
        more = {'key': s.key_for(path), 'on': on, 'headers': more_of(s, path)}
        good = good_body(s, schema)
        for name, member in schema['properties'].items():
            for value in wrong_values(s, member):
                s.refused(method, path_of(s, path), 400, f'{name} = {str(value)[:40]}:', body=dict(good, **{name: value}), **more)
        for name in schema.get('required', []):
            s.refused(method, path_of(s, path), 400, f'without {name}:', body={k: v for k, v in good.items() if k != name}, **more)
        s.refused(method, path_of(s, path), 400, 'one more:', body=dict(good, more=1), **more)
    on.close()


def bodies_have_an_end(s):
    """Larger than the operation takes, with a body where there is none, of another type."""
    for method, path, operation in s.operations():
        key = s.key_for(path)
        for size in (2 << 20, 1 << 62) if s.body_of(operation) else (1, 2 << 20):  # announced, not sent
            got = s.raw(request(f'{method} {path_of(s, path)}', headers=[f'Authorization: Bearer {key}', f'Content-Length: {size}']),
                        f'127.0.0.1:{s.port}')
            same((got.status, got.closed), (413, True), f'{method} {path} of {size} bytes')
            s.evil += 1
    for path in ('/v1/plans', f'/v1/plans/{s.p}/reset', f'/v1/plans/{s.p}/commit', '/v1/clean', '/v1/keys', f'/v1/sandboxes/{s.p}/auth'):
        for kind in ('text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data', 'application/jsonx', '',
                     'application/json-patch+json', 'text/json'):
            s.refused('POST', path, 415, kind, key=s.admin, body='{}', headers={'Content-Type': kind})


# ---- targets ----

ODD = ['%ff', '%c0%ae%c0%ae', '%0a', '%0d%0aHost:%20x', '%20', '%7f', '%1b[31m', "'%20OR%20'1'='1", '%25', '%25%32%65', '*', '~',
       'a' * 3000, '%F0%9F%92%A9', '%ed%a0%80', '..%3b', 'p;q', '@', '$(id)', '-x', '--', '%2d%2dforce', '-1', '9' * 40, '0x1']


def no_argument_of_a_path_is_odd(s):
    place = f'unix:{s.socket}'
    for method, path, operation in s.operations():
        names = re.findall(r'{\w+}', path)
        schema = s.body_of(operation)
        body = good_body(s, schema) if schema else None
        for name in names:
            for odd in [*ODD, '%', '%4', '%zz', '%%']:
                target = path_of(s, path.replace(name, odd))
                more = [f'{name}: {value}' for name, value in more_of(s, path).items()]
                got = s.raw(request(f'{method} {target}', body, ['Connection: close', 'Content-Type: application/json', *more]), place)
                need(got.status in (400, 404), f'{method} {target}: {got.status} {got.body}')
                s.evil += 1


def every_word_of_a_query_is_known(s):
    """A word that is not known may be one that matters, misspelt: dry_run, which is a member of the body."""
    for method, path, operation in s.operations():
        known = {p['name']: p['schema'] for p in s.parameters(operation, 'query')}
        for word in ('dry_run=true', 'x', 'Force=true', '=', 'wait%3d1=2', 'limit[]=1', '__proto__=1'):
            s.refused(method, f'{path_of(s, path)}?{word}', 400, by_socket=True, headers=more_of(s, path))
        for name, schema in known.items():
            bad = {'integer': ['x', '-1', '', '1.5', '0x1', '9' * 40, '%31%00', '+1'], 'boolean': ['yes', '1', 'TRUE'],
                   'number': ['x', '-1', '', 'nan', '1s']}.get(schema.get('type'), ['%zz', '%00'])
            for value in bad + (['no-such-word'] if 'enum' in schema else []):
                got = s.refused(method, f'{path_of(s, path)}?{name}={value}', 400, by_socket=True, headers=more_of(s, path))
                need('is not known' not in got.body, f'{method} {path}: {name} is described')
            if schema.get('type') != 'array' and name not in ('path', 'exclude'):
                s.refused(method, f'{path_of(s, path)}?{name}=1&{name}=1', 400, 'twice:', by_socket=True, headers=more_of(s, path))


def methods_are_those_that_are_described(s):
    for path, item in s.document['paths'].items():
        for method in ('GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE', 'PROPFIND', 'get', 'CONNECT'):
            if method.lower() in item and method != 'get':
                continue
            got = s.refused(method, path_of(s, path), 405, by_socket=True)
            same(sorted(got.headers['Allow'].split(', ')), sorted(m.upper() for m in item), 'Allow')
    for path in ('/v1', '/v2/plans', '/v1/plan', '/V1/plans', '/v1/plans/p/x', '/v1/plans/p/commit/x', '/healthz/x', '/openapi.yaml',
                 '/v1/audit', '/metrics/x', '/admin', '/.git/config', '/v1/plans/p/exec/x'):
        s.refused('GET', path, 404, by_socket=True)
    for path in ('/v1/keys', '/v1/plans', '/metrics', '/v1/events'):
        with s.connect(f'127.0.0.1:{s.port}') as wire:
            wire.send(request(f'HEAD {path}'))
            same(wire.answer(head=True).status, 401, f'HEAD {path}')
        s.evil += 1


# ---- who ----


def nobody_reaches_what_is_not_theirs(s):
    """Every operation, with everybody who may not."""
    for method, path, operation in s.operations():
        scopes, target = operation['x-scopes'], path_of(s, path)
        more = {'headers': more_of(s, path), 'by_socket': True}
        for what, secret in (('over', s.over), ('revoked', s.revoked), ('of nobody', 'ats_' + 'x' * 49),
                             ('as a key', f'atk_{s.over[4:]}'), ('two in one', f'{s.over} {s.admin}')):
            s.refused(method, target, 401, what, key=secret, **more)
        got = s.refused(method, target, 401, 'nobody', headers=more_of(s, path))
        need(got.headers['WWW-Authenticate'].startswith('Bearer'), 'WWW-Authenticate')
        for scope, key in s.keys.items():
            if scope not in scopes:
                s.refused(method, target, 403, f'{scope}\'s key', key=key, **more)
                s.refused(method, target, 403, f'{scope}\'s token', key=s.of_p[scope], **more)
            if '{plan}' in path or '{sandbox}' in path:
                s.refused(method, target, 403, f'{scope}\'s token of another plan', key=s.of_q[scope], **more)
            for ref in (s.p[:8], 'p', '-', s.p + '-1', s.p + '-x', s.p + '%2d1', s.p.upper(), '%' + s.p.encode().hex()[:2] + s.p[1:] + '0'):
                if '{plan}' in path:
                    s.refused(method, path_of(s, path.replace('{plan}', ref)), 403, f'a token by {ref}', key=s.of_p[scope], **more)


# ---- connections ----


def half_a_request_is_none(s):
    """Cut anywhere, by an end or by a reset: what is not whole is not done."""
    body = json.dumps({'name': 'cut', 'resources': []}).encode()
    whole = request('POST /v1/plans', body, ['Content-Type: application/json', f'Authorization: Bearer {s.admin}'])
    for place in s.places():
        for at in (1, 10, 40, len(whole) - len(body) - 2, len(whole) - len(body), len(whole) - 1):
            for how in ('end', 'reset', 'close'):
                with s.connect(place) as wire:
                    wire.send(whole[:at])
                    if how == 'end':
                        wire.sock.shutdown(socket.SHUT_WR)
                        need(b' 201 ' not in wire.answer(see_end=True).body, 'half a request')
                    elif how == 'reset' and not place.startswith('unix:'):
                        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
                s.evil += 1


def a_length_that_lies_moves_nothing(s):
    """What is behind a body is the next request, and what is behind a refusal is nothing."""
    auth = [f'Authorization: Bearer {s.admin}', 'Content-Type: application/json']
    evil = request('POST /v1/plans', {'name': 'evil', 'resources': []}, auth)
    for first, status in ((request('POST /v1/plans', b'{}', auth)[:-1], 400), (request('GET /v1/plans', evil, auth), 413),
                          (request('POST /v1/keys', evil, ['Authorization: Bearer x']), 401),
                          (request('PUT /v1/plans', evil, auth), 405), (request('POST /v1/none', evil, auth), 404)):
        with s.connect(f'127.0.0.1:{s.port}') as wire:
            wire.send(first + b'x')
            got = wire.answer(see_end=status != 400)
            same((got.status, b' 201 ' in got.body + wire.rest), (status, False), str(first[:60]))
        s.evil += 1


def many_refusals_on_one_connection(s):
    with s.connect(f'127.0.0.1:{s.port}') as wire:
        auth = [f'Authorization: Bearer {s.admin}', 'Content-Type: application/json']
        wire.send(request('POST /v1/plans', b'{"x":1}', auth) * 50)
        same([wire.answer().status for _ in range(50)], [400] * 50, 'pipelined')
        s.evil += 50


# ---- frames ----


def frame(kind, data=b'', length=None):
    return struct.pack('>BI', kind, len(data) if length is None else length) + data


def no_frame_is_odd(s):
    path = f'/v1/plans/{s.p}/exec'
    auth = [f'Authorization: Bearer {s.of_p["agent"]}']
    for more, status in ((['Upgrade: websocket', 'Connection: Upgrade'], 426), (['Upgrade: atoll-exec/2', 'Connection: Upgrade'], 426)):
        with s.connect(f'127.0.0.1:{s.port}') as wire:
            wire.send(request(f'POST {path}', headers=auth + more))
            same(wire.answer().status, status, str(more))
        s.evil += 1
    with s.connect(f'127.0.0.1:{s.port}') as wire:
        wire.send(request(f'POST {path}', b'{"argv":["true"]}', auth + UPGRADE))
        same(wire.answer().status, 400, 'a body and an upgrade')
    bad = json.dumps({'argv': ['true'], 'rw': ['/']}).encode()
    rows = {
        'a length beyond all': frame(3, b'', 0xffffffff),
        'one more than there may be': frame(3, b'', 65537) + b'x' * 65537,
        'a type that is none': frame(9, b'x'),
        'a type of the server': frame(16, b'x'),
        'its last one': frame(20, b'{}'),
        'input before the request': frame(0, b'x') + frame(3, b'{"argv":["true"]}'),
        'a signal before the request': frame(2, b'\x09'),
        'a size before the request': frame(1, b'\0\1\0\1'),
        'an empty request': frame(3),
        'a request that is no JSON': frame(3, b'\xff' * 100),
        'deep JSON': frame(3, b'[' * 60000),
        'no command': frame(3, b'{}'),
        'an empty command': frame(3, b'{"argv":[]}'),
        'an empty word': frame(3, b'{"argv":[""]}'),
        'a NUL in a word': frame(3, b'{"argv":["a\\u0000b"]}'),
        'a member that nobody knows': frame(3, b'{"argv":["true"],"x":1}'),
        'a way out of the plan': frame(3, bad),
        'a variable of the daemon': frame(3, b'{"argv":["true"],"env":["HOME"]}'),
        'garbage': bytes(range(33, 127)) * 20,
        'HTTP': request('GET /v1/plans'),
    }
    for name, data in rows.items():
        with s.connect(f'127.0.0.1:{s.port}') as wire:
            wire.send(request(f'POST {path}', headers=auth + UPGRADE))
            same(wire.answer(head=True).status, 101, name)
            try:
                wire.send(data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            kind, problem = read_frame(wire)
            same(kind, 19, f'{name}: the last frame')
            need(400 <= json.loads(problem)['status'] < 500, f'{name}: {problem}')
            need(wire.is_closed(PATIENCE), f'{name}: the connection ends')
        s.evil += 1
    for data in (b'', b'\x03', frame(3, b'{"argv"', 100)):  # and then the client goes
        with s.connect(f'127.0.0.1:{s.port}') as wire:
            wire.send(request(f'POST {path}', headers=auth + UPGRADE) + data)
            same(wire.answer(head=True).status, 101, str(data))
        s.evil += 1


def read_frame(wire):
    """The next one that is no notice."""
    while True:
        while len(wire.rest) < 5 or len(wire.rest) < 5 + struct.unpack('>I', wire.rest[1:5])[0]:
            if not wire._more():
                raise Broken(f'the connection ended: {wire.rest}')
        kind, size = struct.unpack('>BI', wire.rest[:5])
        data, wire.rest = wire.rest[5:5 + size], wire.rest[5 + size:]
        if kind != 18:
            return kind, data


if __name__ == '__main__':
    main([unchanged(test) for test in (
        no_body_is_a_bomb, every_member_has_its_type, bodies_have_an_end, no_argument_of_a_path_is_odd,
        every_word_of_a_query_is_known, methods_are_those_that_are_described, nobody_reaches_what_is_not_theirs,
        half_a_request_is_none, a_length_that_lies_moves_nothing, many_refusals_on_one_connection, no_frame_is_odd)])

# SPDX-License-Identifier: Apache-2.0
"""Keys and tokens against a real daemon: who may what, what is refused, what is revoked, and what of it is
on record."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
sys.path.insert(0, str(Path(__file__).resolve().parent))
from atolld import PATIENCE, main, request  # noqa: E402
from expect import Broken, need, same  # noqa: E402
from served import Served  # noqa: E402

CLIENT = os.environ.get('ATOLL_TEST_TOKEN_CLIENT', '')
SECONDS_FOR_ONE = 2  # in which one more failure of an address is let pass, after the first 30


def may(served, key, **more):
    """In force? A token is, when it is refused for its scope and not for itself."""
    got = served.call('GET', '/metrics', key=key, **more)
    need(got.status in (200, 401, 403, 429), f'/metrics answers {got.status}')
    return got.status in (200, 403)


def own(served, plan, name):
    """As if the key had started the plan."""
    key = next(c['id'] for c in served.credentials() if c['name'] == name and c['in_force'])
    served.sql('UPDATE plan SET starter = ? WHERE id = ?', key, plan)


# ---- who may what ----


def test_keys_open_what_their_scope_allows(top):
    with Served(top) as s:
        p, q = s.plan('p'), s.plan('q')
        keys = {scope: s.key(scope, scope) for scope in ('admin', 'agent', 'review')}
        own(s, p, 'agent')
        auth = '/v1/sandboxes/{}/auth'
        rows = [
            # method, path, body, what admin, agent and review are answered
            ('GET', '/v1/keys', None, 200, 403, 403),
            ('POST', '/v1/keys', {'name': 'x', 'scope': 'agent'}, 201, 403, 403),
            ('DELETE', '/v1/keys/x', None, 200, 403, 403),
            ('POST', auth.format('p'), None, 201, 201, 201),
            ('POST', auth.format(p), None, 201, 201, 201),
            ('POST', auth.format(p + '-1'), None, 201, 201, 201),
            ('POST', auth.format(q), None, 201, 403, 201),
            ('POST', auth.format('none'), None, 404, 404, 404),
            ('POST', auth.format(p), {'scope': 'agent'}, 201, 201, 403),
            ('POST', auth.format(p), {'scope': 'review'}, 201, 403, 201),
            ('DELETE', auth.format(q), None, 200, 403, 200),
            ('DELETE', auth.format(p), None, 200, 200, 200),
        ]
        for method, path, body, *wanted in rows:
            for scope, want in zip(keys, wanted):
                got = s.call(method, path, key=keys[scope], body=body)
                same(got.status, want, f'{method} {path} {body} with {scope}: {got.body}')
                if got.status == 201:
                    s.secrets.append(got.json.get('token') or got.json.get('secret'))
        same(s.call('GET', '/v1/keys', by_socket=True).status, 200, 'the socket is the owner\'s')
        same(s.call('GET', '/v1/keys', by_socket=True, key=keys['agent']).status, 403,
             'a key on the socket has the key\'s rights')
        same(s.call('GET', '/v1/keys', by_socket=True, key=keys['agent'] + 'x').status, 401,
             'a wrong key on the socket is wrong')


def test_keys_tokens_are_for_one_plan_and_make_no_others(top):
    with Served(top) as s:
        p, q = s.plan('p'), s.plan('q')
        for scope in ('agent', 'review'):
            token = s.token(p, scope=scope)
            for method in ('POST', 'DELETE'):
                for path in (p, q, p + '-1', 'p'):
                    got = s.call(method, f'/v1/sandboxes/{path}/auth', key=token)
                    same(got.status, 403, f'{method} for {path} with a token: {got.body}')
            same(s.call('GET', '/v1/keys', key=token).status, 403, 'keys with a token')
            need(may(s, token), 'the token is in force')


def test_keys_token_bodies(top):
    with Served(top) as s:
        p = s.plan('p')
        admin = s.key('admin', 'admin')
        path = f'/v1/sandboxes/{p}/auth'
        for body in ('[]', '{', '{"ttl":59}', '{"ttl":3601}', '{"ttl":"60"}', '{"ttl":-1}', '{"ttl":1e3}',
                     '{"scope":"admin"}', '{"scope":"root"}', '{"scope":1}', '{"more":1}',
                     '{"ttl":60,"ttl":60}', '{"a":' * 40, 'null', '\x00', '{"ttl":9223372036854775808}'):
            got = s.call('POST', path, key=admin, body=body)
            need(got.status in (400, 422), f'{body!r}: {got.status}')
        same(s.call('POST', path, key=admin, body='{"scope":"' + 'x' * 5000 + '"}').status, 413, 'a long body')
        for body, life in ((None, 900), ('{}', 900), ('{"ttl":60}', 60), ('{"ttl":3600,"scope":"review"}', 3600)):
            got = s.call('POST', path, key=admin, body=body)
            same((got.status, got.json['expires_in']), (201, life), f'{body!r}')
            same(got.headers['Cache-Control'], 'no-store', 'an answer with a secret')
            s.secrets.append(got.json['token'])
        # A key that ends sooner has tokens that do, too.
        short = s.key('short', 'admin', '--expires', '90s')
        need(0 < s.call('POST', path, key=short).json['expires_in'] <= 90, 'a token outlives its key')


def test_keys_by_http_are_those_of_the_command(top):
    with Served(top) as s:
        made = s.call('POST', '/v1/keys', by_socket=True, body={'name': 'ci', 'scope': 'review', 'expires_in': 600})
        same(made.status, 201, made.body)
        secret = made.json.pop('secret')
        s.secrets.append(secret)
        listed = [c for c in s.credentials() if c['name'] == 'ci']
        same(s.call('GET', '/v1/keys', by_socket=True).json['credentials'], listed, 'the lists differ')
        need(may(s, secret), 'the key is in force')
        for body in ({'name': 'ci', 'scope': 'agent'},):
            same(s.call('POST', '/v1/keys', by_socket=True, body=body).status, 409, 'a name twice')
        for body in ({}, {'name': 'x'}, {'scope': 'agent'}, {'name': 'a b', 'scope': 'agent'},
                     {'name': 'x', 'scope': 'all'}, {'name': 'x', 'scope': 'agent', 'expires_in': 0},
                     {'name': 'x', 'scope': 'agent', 'more': 1}, {'name': 'x' * 65, 'scope': 'agent'}):
            need(s.call('POST', '/v1/keys', by_socket=True, body=body).status in (400, 422), f'{body}')
        got = s.call('DELETE', '/v1/keys/ci', by_socket=True)
        same((got.status, got.json['revoked']), (200, 1), got.body)
        need(not may(s, secret), 'a key that was revoked')
        same(s.call('DELETE', '/v1/keys/ci', by_socket=True).status, 404, 'revoked twice by name')


# ---- what is refused ----


def test_keys_wrong_credentials_are_refused(top):
    with Served(top) as s:
        p = s.plan('p')
        key, token = s.key('ci', 'admin'), s.token(p)
        flip = '0' if key[10] != '0' else '1'
        bad = ['', 'Bearer', 'Bearer ', key, f'Basic {key}', f'Bearer{key}', f'Bearer\t{key}', f'Bearer "{key}"',
               f'Bearer {key[:-1]}', f'Bearer {key}x', f'Bearer {key[:10]}{flip}{key[11:]}', 'Bearer atk_',
               f'Bearer {key[:4]}', f'Bearer {key[:20]}', f'Bearer {key} {key}', f'Bearer {key}, Bearer {key}',
               f'Bearer ats_{key[4:]}', f'Bearer atk_{token[4:]}', f'Bearer {key.swapcase()}',
               'Bearer ' + 'a' * 4000, f'Bearer {key}%20', f'Digest {key}', f'Negotiate {key}']
        sha = s.sql('SELECT sha256 FROM credential WHERE name = ?', 'ci')[0][0]
        bad.append(f'Bearer {sha}')
        for value in bad:
            got = s.call('GET', '/v1/keys', headers={'Authorization': value})
            same(got.status, 401, f'{value[:30]!r}...')
            need(got.headers['WWW-Authenticate'].startswith('Bearer realm='), 'no WWW-Authenticate')
            need(key[4:30] not in got.body and token[4:30] not in got.body, 'an answer repeats a secret')
        same(s.call('GET', '/v1/keys').status, 401, 'no credentials')
        for value in (f'Bearer {key}', f'bearer {key}', f'BEARER {key}', f'Bearer   {key}', f'Bearer {key} '):
            same(s.call('GET', '/v1/keys', headers={'Authorization': value}).status, 200, value[:12])
        head = f'GET /v1/keys HTTP/1.1\r\nHost: 127.0.0.1\r\n'
        line = f'Authorization: Bearer {key}\r\n'
        same(s.status_of(head + line + line + '\r\n'), 400, 'two of them')
        same(s.status_of(head + line + line.upper().replace(key.upper(), 'x') + '\r\n'), 400, 'two, one wrong')
        need(s.status_of(head + 'Authorization: Bearer ' + 'x' * 20000 + '\r\n\r\n') in (413, 431, None),
             'a huge one')
        need(s.status_of(head + f'Authorization: Bearer {key}\0x\r\n\r\n') in (400, 401, None), 'a NUL')
        # Not where it has no business.
        for path in (f'/v1/keys?key={key}', f'/v1/keys?access_token={key}'):
            same(s.call('GET', path).status, 401, 'a key in the query')
        same(s.call('GET', '/v1/keys', headers={'Cookie': key, 'X-Api-Key': key}).status, 401, 'elsewhere')


def test_keys_over_by_either_clock(top):
    with Served(top) as s:
        p = s.plan('p')
        for what, key_after, token_after in (('expires_ms = 1000', False, False),
                                             ('expires_boot_ns = 1000', False, False),
                                             ("boot = 'another'", True, False)):
            key, token = s.key('ci', 'agent', '--expires', '1h'), s.token(p)
            need(may(s, key) and may(s, token), 'both are in force')
            s.sql(f'UPDATE credential SET {what}')
            same((may(s, key), may(s, token)), (key_after, token_after), what)
            s.sql('DELETE FROM credential')


def test_keys_failures_are_limited_and_lock_nobody_out(top):
    with Served(top) as s:
        key = s.key('ci', 'admin')
        wrong = key[:-1] + ('0' if key[-1] != '0' else '1')
        seen, begun = [], time.monotonic()
        while seen[-5:] != [429] * 5:
            got = s.call('GET', '/v1/keys', key=wrong)
            seen.append(got.status)
            if got.status == 429:
                need(1 <= int(got.headers['Retry-After']) <= 3, 'Retry-After')
            need(time.monotonic() - begun < PATIENCE, f'there is no limit: {seen}')
        same(seen[:30], [401] * 30, 'below the limit')
        most = 31 + (time.monotonic() - begun) / SECONDS_FOR_ONE
        need(seen.count(401) <= most, f'the limit: {seen}')
        same(s.call('GET', '/v1/keys', key=key).status, 200, 'whoever has a key, at the same address')
        for _ in range(40):
            same(s.call('GET', '/v1/keys', key=wrong, by_socket=True).status, 401, 'on the socket')


# ---- what is revoked ----


def test_keys_revoked_by_the_command_are_refused_at_once(top):
    with Served(top) as s:
        p = s.plan('p')
        key = s.key('ci', 'agent')
        own(s, p, 'ci')
        token = s.token(p, key=key)
        other = s.token(p)
        on, on_socket = s.connection(), s.connection(by_socket=True)
        for _ in range(3):
            need(may(s, key, on=on) and may(s, token, on=on_socket), 'in force')
            on.close(), on_socket.close()
        same(s.call('GET', '/metrics', key=key, on=on).status, 200, 'kept alive')
        s.atoll('token', 'revoke', 'ci', check=True)
        need(not may(s, key, on=on), 'on a connection that is open')
        on.close()
        need(not may(s, key) and not may(s, token), 'a key, and a token made for it')
        need(may(s, other), 'a token of somebody else')
        same(s.call('DELETE', f'/v1/sandboxes/{p}/auth', by_socket=True).json, {'revoked': 1}, 'of the plan')
        need(not may(s, other), 'revoked with all of the plan')


def test_keys_tokens_end_with_the_plan(top):
    with Served(top) as s:
        p, q = s.plan('p'), s.plan('q')
        of_p, of_q = s.token(p), s.token(q)
        s.atoll('stop', 'p', '--yes', check=True)
        same((may(s, of_p), may(s, of_q)), (False, True), 'p is stopped')
        # Another one by that name is another one.
        s.plan('p')
        need(not may(s, of_p), 'a token of the former plan')


def test_keys_used_while_they_are_revoked(top):
    with Served(top, '--max-per-address=250') as s:  # some are being closed
        for number in range(3):
            key = s.key(f'k{number}', 'agent')
            revoked = threading.Event()
            wrong, uses = [], [0]

            def use(key=key, revoked=revoked, wrong=wrong, uses=uses):
                over = False
                while not over and not wrong:
                    over = revoked.is_set()
                    try:
                        if may(s, key) and over:
                            wrong.append('in force after it was revoked')
                    except (Broken, OSError) as why:
                        wrong.append(str(why))
                    uses[0] += 1
            threads = [threading.Thread(target=use) for _ in range(4)]
            for t in threads:
                t.start()
            while uses[0] < 40 and not wrong:
                time.sleep(0.005)
            s.atoll('token', 'revoke', f'k{number}', check=True)
            revoked.set()
            for t in threads:
                t.join(PATIENCE)
            same(wrong, [], 'a race')


def test_keys_streams_end_when_their_key_is_revoked(top):
    with Served(top) as s:
        p = s.plan('p')
        key, other = s.key('ci', 'agent'), s.key('other', 'review')
        token = s.token(p)

        def listen(secret):
            wire = s.connect(f'127.0.0.1:{s.port}')
            wire.send(request('GET /v1/events', headers=[f'Authorization: Bearer {secret}']))
            need(b'200 OK' in wire.sock.recv(16), 'a stream')
            return wire
        wires = {secret: listen(secret) for secret in (key, token, other)}
        s.sql("UPDATE credential SET expires_ms = 1000 WHERE name <> 'other'")
        need(not wires[key].is_closed(1.5), 'a stream of a key that is over')
        s.atoll('token', 'revoke', 'ci', check=True)
        need(wires[key].is_closed(PATIENCE), 'a stream of a key that was revoked')
        s.call('DELETE', f'/v1/sandboxes/{p}/auth', by_socket=True)
        need(wires[token].is_closed(PATIENCE), 'a stream of a token that was revoked')
        need(not wires[other].is_closed(0.2), 'a stream of somebody else')
        for wire in wires.values():
            wire.close()


def test_keys_agents_get_tokens_of_plans_they_started(top):
    with Served(top) as s:
        one, two = s.key('one', 'agent'), s.key('two', 'agent')
        (s.top / 'root').mkdir()
        body = {'name': 'p', 'resources': [{'root': str(s.top / 'root'), 'strategy': 'copy'}]}
        got = s.call('POST', '/v1/plans', key=one, body=body)
        same(got.status, 201, got.body)
        plan = got.json['plan']['id']
        token = s.token(plan, key=one)
        for path in (plan, 'p'):
            same(s.call('POST', f'/v1/sandboxes/{path}/auth', key=two).status, 403, f'{path}, with another key')
        # Opening it is not starting it.
        same(s.call('POST', '/v1/plans', key=two, body=dict(body, or_open=True)).status, 200, 'opened')
        same(s.call('POST', f'/v1/sandboxes/{plan}/auth', key=two).status, 403, 'opened')
        # What a token for agents may not.
        same(s.call('POST', f'/v1/plans/{plan}/commit', key=token).status, 403, 'approve')
        same(s.call('POST', f'/v1/plans/{plan}/rollback', key=token).status, 403, 'roll back')
        same(s.call('DELETE', f'/v1/plans/{plan}', key=token).status, 403, 'stop')
        same(s.call('GET', f'/v1/plans/{plan}', key=token).status, 200, 'look')
        lines = [(e['what'], e['outcome']) for e in s.audit() if e['who'] == 'key one']
        same(lines[:2], [('POST /v1/plans', 'asked'), ('POST /v1/plans', 'ok')], 'on record')


# ---- asked again ----


def test_keys_idempotency(top):
    with Served(top) as s:
        p, q = s.plan('p'), s.plan('q')
        admin = s.key('admin', 'admin')

        def token(plan=p, idem='one', key=admin, body=None):
            got = s.call('POST', f'/v1/sandboxes/{plan}/auth', key=key, body=body, by_socket=key is None,
                        headers={'Idempotency-Key': idem} if idem is not None else None)
            if got.status == 201:
                s.secrets.append(got.json['token'])
            return got
        first = token().json
        for ref in (p, 'p', p + '-1'):
            same(token(ref).json['token'], first['token'], f'again, as {ref}')
        need(token(idem=None).json['token'] != first['token'], 'without a key')
        need(token(idem='two').json['token'] != first['token'], 'another key')
        need(token(q).json['token'] != first['token'], 'another plan')
        need(token(key=None).json['token'] != first['token'], 'another sender')
        same(token(body={'ttl': 60}).status, 422, 'the same key for something else')
        for bad in ('', ' ', 'x' * 256, 'a b'):
            need(token(idem=bad).status in (400, 422), f'{bad[:9]!r}')
        # Revoked in between: it is asked for anew.
        s.call('DELETE', f'/v1/sandboxes/{p}/auth', key=admin)
        second = token().json
        need(second['token'] != first['token'] and may(s, second['token']), 'after a revocation')
        # After a restart nobody knows it any more.
        for how in (signal.SIGTERM, signal.SIGKILL):
            s.restart(how)
            third = token().json
            need(third['token'] != second['token'], 'the secret outlived the daemon')
            same((may(s, second['token']), may(s, third['token'])), (False, True), 'the former is revoked')
            same(token().json['token'], third['token'], 'and then again the same')
            second = third


def test_keys_the_same_request_many_times_at_once(top):
    with Served(top) as s:
        p = s.plan('p')
        answers = []

        def ask():
            answers.append(s.call('POST', f'/v1/sandboxes/{p}/auth', by_socket=True,
                                 headers={'Idempotency-Key': 'k'}))
        threads = [threading.Thread(target=ask) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(PATIENCE)
        tokens = {a.json['token'] for a in answers if a.status == 201}
        s.secrets += tokens
        same(len(tokens), 1, 'tokens')
        same({a.status for a in answers} - {201, 409}, set(), 'statuses')
        same(len([c for c in s.credentials() if c['in_force']]), 1, 'in the store')
        # One that waits for the store, and the same once more meanwhile.
        answers.clear()
        path, again = f'/v1/sandboxes/{p}/auth', {'Idempotency-Key': 'other'}
        with s.held_store():
            lines = len(s.audit())
            first = threading.Thread(target=lambda: answers.append(s.call('POST', path, by_socket=True, headers=again)))
            first.start()
            while len(s.audit()) == lines:
                time.sleep(0.01)
            same(s.call('POST', path, by_socket=True, headers=again).status, 409, 'while it is under way')
        first.join(PATIENCE)
        same(answers[0].status, 201, 'once it is done')
        s.secrets.append(answers[0].json['token'])
        same(s.call('POST', path, by_socket=True, headers=again).json['token'], answers[0].json['token'], 'then')


# ---- what is on record ----


def test_keys_audit_has_what_was_asked_and_how_it_went(top):
    with Served(top) as s:
        p = s.plan('p')
        admin, agent = s.key('boss', 'admin'), s.key('ci', 'agent')
        before = len(s.audit())
        made = s.call('POST', f'/v1/sandboxes/{p}/auth', key=admin)
        s.secrets.append(made.json['token'])
        refused = s.call('POST', f'/v1/sandboxes/{p}/auth', key=agent)
        denied = s.call('POST', '/v1/keys', key=agent, body={'name': 'x', 'scope': 'admin'})
        s.call('GET', '/v1/keys', key=admin)
        s.call('POST', '/v1/keys', key=admin[:-1] + '_', body={})
        revoked = s.call('DELETE', '/v1/keys/ci', by_socket=True)
        lines = s.audit()[before:]
        path = f'POST /v1/sandboxes/{p}/auth'
        same([(e['by'], e['who'], e['what'], e['plan'], e['outcome'], e['request']) for e in lines], [
            ('http', 'key boss', path, p, 'asked', made.headers['X-Request-Id']),
            ('http', 'key boss', path, p, f"ok, {made.json['id']}", made.headers['X-Request-Id']),
            ('http', 'key ci', path, p, 'asked', refused.headers['X-Request-Id']),
            ('http', 'key ci', path, p, 'refused, 403', refused.headers['X-Request-Id']),
            ('http', 'key ci', 'POST /v1/keys', None, 'refused, 403', denied.headers['X-Request-Id']),
            ('socket', f'uid {os.geteuid()}', 'DELETE /v1/keys/ci', None, 'asked', revoked.headers['X-Request-Id']),
            ('socket', f'uid {os.geteuid()}', 'DELETE /v1/keys/ci', None, f"ok, {revoked.json['id']}",
             revoked.headers['X-Request-Id']),
        ], 'the audit log')
        # What it had to say is in it before the answer is there.
        for _ in range(20):
            got = s.call('DELETE', f'/v1/sandboxes/{p}/auth', by_socket=True)
            last = json.loads((s.home / 'audit.log').read_text().splitlines()[-1])
            same((last['request'], last['outcome']), (got.headers['X-Request-Id'], 'ok'), 'the last line')
        same(s.atoll('log', '--audit', '--check').returncode, 0, 'the chain')
        # Who is refused often is not written as often.
        token, at, begun = s.token(p), len(s.audit()), time.monotonic()
        for _ in range(50):
            same(s.call('POST', '/v1/keys', key=token, body={}).status, 403, 'with a token')
        most = 31 + (time.monotonic() - begun) / SECONDS_FOR_ONE
        need(25 <= len(s.audit()) - at <= most, 'refusals fill the audit log')


def test_keys_nothing_is_made_that_cannot_be_recorded(top):
    with Served(top) as s:
        p = s.plan('p')
        (s.home / 'audit.log').unlink(missing_ok=True)
        (s.home / 'audit.log').mkdir()
        before = s.credentials()
        for method, path, body in (('POST', f'/v1/sandboxes/{p}/auth', None), ('DELETE', f'/v1/sandboxes/{p}/auth', None),
                                   ('POST', '/v1/keys', {'name': 'x', 'scope': 'agent'})):
            got = s.call(method, path, body=body, by_socket=True)
            same(got.status, 500, f'{method} {path}')
        same(s.credentials(), before, 'credentials')
        (s.home / 'audit.log').rmdir()
        same(s.call('DELETE', f'/v1/sandboxes/{p}/auth', by_socket=True).status, 200, 'once it can be')


def test_keys_secrets_are_nowhere(top):
    with Served(top) as s:
        p = s.plan('p')
        key = s.key('ci', 'admin')
        token = s.token(p, key=key)
        s.call('GET', f'/v1/{key}', key=key)
        s.call('GET', '/v1/keys', key=token)
        for name in ('cmdline', 'environ'):
            data = Path(f'/proc/{s.process.pid}/{name}').read_bytes()
            need(key[4:].encode() not in data and token[4:].encode() not in data, name)
        same([c for c in s.credentials() if 'sha256' in c or 'secret' in c], [], 'the list')
        # A path with one in it is not said; everything else is looked for at the end.
        s.secrets = [token]


# ---- our own client ----


class Client:
    """A program with a token cache (atoll_tokens_*)."""

    def __init__(self, s, key, sandbox, by_socket):
        file = s.top / 'key'
        file.write_text(key)
        file.chmod(0o600)
        self.run = subprocess.Popen(
            [CLIENT, f'http://127.0.0.1:{s.port}', s.socket if by_socket else '', str(file), sandbox,
             str(s.top / f'cache-{by_socket}')],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=s.env)

    def say(self, word):
        self.run.stdin.write(word + '\n')
        self.run.stdin.flush()
        return self.run.stdout.readline().split()

    def close(self):
        self.run.stdin.close()
        self.run.stdout.close()
        return self.run.wait(PATIENCE)


def test_keys_the_token_cache_gets_tokens_of_a_real_daemon(top):
    with Served(top) as s:
        p = s.plan('p')
        for by_socket in (False, True):
            key = s.key(f'k{by_socket}', 'agent')
            own_plan = s.plan(f'q{by_socket}')
            own(s, own_plan, f'k{by_socket}')
            client = Client(s, key, own_plan, by_socket)
            code, token, scope, left = client.say('get')
            s.secrets.append(token)
            same((code, scope, 600 < int(left) <= 900), ('0', '"agent"', True), 'a token')
            need(may(s, token), 'it is in force')
            same(client.say('get')[1], token, 'from the cache')
            tokens = [c for c in s.credentials() if c['kind'] == 'token' and c['in_force']]
            same(len(tokens), 1, 'one request')
            # The service refuses it: the client says so, and gets another one.
            s.call('DELETE', f'/v1/sandboxes/{own_plan}/auth', by_socket=True)
            need(not may(s, token), 'revoked')
            same(client.say('invalidate'), ['1'], 'dropped')
            code, second, *_ = client.say('get')
            s.secrets.append(second)
            need(code == '0' and second != token and may(s, second), 'another token')
            # The key is revoked: it is told.
            s.atoll('token', 'revoke', f'k{by_socket}', check=True)
            client.say('invalidate')
            same(client.say('get')[0], 'denied', 'without a key')
            same(client.close(), 0, 'the client')
            # A plan of others.
            client = Client(s, s.key(f'o{by_socket}', 'agent'), p, by_socket)
            same(client.say('get')[0], 'denied', 'not its plan')
            client.close()
            client = Client(s, s.key(f'n{by_socket}', 'admin'), 'nobody', by_socket)
            same(client.say('get')[0], 'not-found', 'no such plan')
            client.close()
            s.atoll('stop', f'q{by_socket}', '--yes', check=True)


if __name__ == '__main__':
    main([value for name, value in list(globals().items()) if name.startswith('test_')])

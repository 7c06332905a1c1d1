# SPDX-License-Identifier: Apache-2.0
"""Every operation over HTTP, against a real daemon. Each answer is held against the description that the
daemon serves (described.py)."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
sys.path.insert(0, str(Path(__file__).resolve().parent))
from atolld import PATIENCE, SANITIZED, main  # noqa: E402
from expect import need, same  # noqa: E402
from served import Served  # noqa: E402

ROUTES = os.environ['ATOLL_TEST_LIST_ROUTES']


class Api(Served):
    """Asked by its socket, as its owner, unless a key is given."""

    def ask(self, line, body=None, key=None, **headers):
        if isinstance(line, bytes) or line.startswith('GET /healthz'):
            return super().ask(line)
        method, path = line.split(' ')
        return self.call(method, path, key=key, body=body, by_socket=key is None,
                         headers={name.replace('_', '-'): value for name, value in headers.items()})

    def ok(self, line, body=None, status=200, **more):
        got = self.ask(line, body, **more)
        same(got.status, status, f'{line}: {got.body}')
        return got.json if got.body and 'json' in got.headers['Content-Type'] else got.body

    def refused(self, line, status, code, body=None, **more):
        """The problem's detail."""
        got = self.ask(line, body, **more)
        same((got.status, got.headers['Content-Type']), (status, 'application/problem+json'), f'{line}: {got.body}')
        same((got.json['status'], got.json['code']), (status, code), f'{line}: {got.body}')
        same(got.json['type'], f'urn:atoll:error:{code}', 'the type')
        same(got.json['instance'], got.headers['X-Request-Id'], 'the instance')
        return got.json['detail']

    def root(self, name='root'):
        root = self.top / name
        root.mkdir(exist_ok=True)
        (root / 'a').write_text('one\n')
        (root / 'b').write_text('two\n')
        return root

    def begin(self, name='p', root=None, status=201, **more):
        root = root or self.root()
        return self.ok('POST /v1/plans', {'name': name, 'resources': [{'root': str(root), 'strategy': 'copy'}]},
                       status, **more)

    def work(self, plan, command, root=None):
        self.atoll('exec', f'--cwd={root or self.top / "root"}', plan, '--', 'sh', '-c', command, check=True)

    def digest(self, plan):
        etag = self.ask(f'GET /v1/plans/{plan}/diff').headers['ETag']
        need(etag and etag[0] == etag[-1] == '"', f'an ETag: {etag}')
        return etag[1:-1]


# ---- the description ----


def test_description_has_every_route_and_no_other(top):
    with Api(top) as s:
        document = s.ok('GET /openapi.json')
        lines = subprocess.run([ROUTES], capture_output=True, text=True, check=True).stdout.splitlines()
        table = {tuple(line.split(' ')[:2]): line.split(' ')[2:] for line in lines}
        told = {(method.upper(), path): operation for path, item in document['paths'].items()
                for method, operation in item.items()}
        same(sorted(told), sorted(table), 'the routes')
        for route, operation in told.items():
            scopes = [] if table[route] == ['open'] else table[route]
            same(operation['x-scopes'], scopes, f'who may {route}')
            same(operation.get('security', 'needed'), [] if not scopes else 'needed', f'{route} is open')
        told_here = Path(os.environ['ATOLL_SOURCE_ROOT'], 'docs/design/api.md').read_text()
        ours = [' '.join(r) for r in table if r[1].startswith('/v1/') and r[1].split('/')[2] not in ('keys', 'sandboxes', 'events')]
        same([r for r in ours if f'`{r}`' not in told_here], [], 'routes that docs/design/api.md leaves out')
        names = [operation['operationId'] for operation in told.values()]
        same(len(set(names)), len(names), 'names of operations')


# ---- a plan's life ----


def test_life_of_a_plan(top):
    with Api(top) as s:
        root = s.root()
        same(s.ok('GET /v1/plans')['plans'], [], 'no plans')
        made = s.ask('POST /v1/plans', {'name': 'p', 'resources': [{'root': str(root)}]})
        plan = made.json['plan']['id']
        same((made.status, made.headers['Location'], made.json['opened']), (201, f'/v1/plans/{plan}', False), 'made')
        same([p['name'] for p in s.ok('GET /v1/plans')['plans']], ['p'], 'plans')
        same(s.ok('GET /v1/plans/p')['plan']['id'], plan, 'shown')
        same(s.ok(f'GET /v1/plans/{plan}/sandboxes')['sandboxes'][0]['root'], str(root), 'its sandbox')
        again = s.ask('POST /v1/plans', {'name': 'p', 'or_open': True, 'resources': []})
        same((again.status, again.json['opened'], again.json['plan']['id']), (200, True, plan), 'opened')
        need('already is a plan' in s.refused('POST /v1/plans', 409, 'exists', {'name': 'p', 'resources': []}), 'taken')
        other = s.root('other')
        boxes = s.ok('POST /v1/plans/p/sandboxes', {'root': str(other)}, 201)['sandboxes']
        same([b['root'] for b in boxes], [str(root), str(other)], 'one more')
        s.work('p', 'echo more >>a; rm b; echo new >c')
        digest = s.digest('p')
        same(s.ok('POST /v1/plans/p/commit', {'dry_run': True})['dry_run'], True, 'a dry run')
        same((root / 'a').read_text(), 'one\n', 'nothing yet')
        done = s.ok('POST /v1/plans/p/commit', {'paths': [f'{root}/a'], 'excludes': ['*.o']}, If_Match=f'"{digest}"')
        same([p['outcome'] for p in done['participants']][:1], ['committed'], 'committed in part')
        same(((root / 'a').read_text(), (root / 'b').exists()), ('one\nmore\n', True), 'one of three')
        s.ok('POST /v1/plans/p/commit', If_Match=f'"{s.digest("p")}"')
        same(sorted(os.listdir(root)), ['a', 'c'], 'all of it')
        log = s.ok('GET /v1/plans/p/log?limit=5')['entries']
        same([e['what'] for e in log][:4], ['commit', 'approve', 'commit', 'approve'], 'who approved is in the log')
        need(log[1]['message'].startswith(f'uid {os.geteuid()}, of digest '), log[1]['message'])
        same(s.ok('POST /v1/plans/p/undo')['format'], 'atoll.undo/1', 'the last commit alone')
        same(((root / 'a').read_text(), sorted(os.listdir(root))), ('one\nmore\n', ['a', 'b']), 'the part stays')
        same(s.ok('POST /v1/plans/p/redo')['format'], 'atoll.redo/1', 'it comes back')
        same(sorted(os.listdir(root)), ['a', 'c'], 'all of it again')
        s.refused('POST /v1/plans/p/redo', 409, 'state')
        s.ok('POST /v1/plans/p/rollback', {'keep_work': True})
        same(sorted(os.listdir(root)), ['a', 'b'], 'as before')
        (other / 'theirs').write_text('x')
        s.ok('POST /v1/plans/p/refresh')
        s.ok('POST /v1/plans/p/reset')
        same(s.ok('GET /v1/plans/p/diff')['changes'], [], 'nothing left')
        s.work('p', 'echo x >>a')
        s.refused('DELETE /v1/plans/p', 409, 'state')
        s.ok('DELETE /v1/plans/p?force=true')
        s.refused('GET /v1/plans/p', 404, 'not-found')
        same(s.ok(f'GET /v1/plans/{plan}/log?limit=1')['entries'][0]['what'], 'stop', 'the log outlives it')


def test_start_is_all_or_nothing(top):
    with Api(top) as s:
        s.refused('POST /v1/plans', 500, 'ENOENT',
                  {'name': 'p', 'resources': [{'root': str(s.root())}, {'root': f'{top}/none'}]})
        same(s.ok('GET /v1/plans')['plans'], [], 'no plan')


# ---- diff ----


def test_diff_has_every_form(top):
    with Api(top) as s:
        s.begin()
        s.work('p', 'echo more >>a; rm b; mkdir d; echo 1 >d/x; echo 2 >d/y')
        whole = s.ok('GET /v1/plans/p/diff')
        same([c['path'] for c in whole['changes']], ['a', 'b', 'd', 'd/x', 'd/y'], 'the changes')
        same(whole['digest'], s.digest('p'), 'its digest')
        told = json.loads(s.atoll('diff', 'p', '--json', '--digest', check=True).stdout)
        same(whole, told, 'what the command says')
        for form in ('patch', 'stat'):
            same(s.ok(f'GET /v1/plans/p/diff?format={form}'), s.atoll('diff', 'p', f'--{form}').stdout, form)
        lines = s.ok('GET /v1/plans/p/diff?detail=lines')
        same((lines['insertions'], lines['deletions']), (3, 1), 'counted')
        need('+more' in s.ok('GET /v1/plans/p/diff?detail=patch&context=0')['changes'][0]['patch'], 'a patch each')
        root = s.top / 'root'
        some = s.ok(f'GET /v1/plans/p/diff?path={quote(str(root / "d"))}&exclude=y&exclude=z')
        same([c['path'] for c in some['changes']], ['d', 'd/x'], 'selected')
        same(some['unmatched'], ['z'], 'a pattern that matched nothing')
        parts, after = [], ''
        while after is not None:
            part = s.ok(f'GET /v1/plans/p/diff?limit=2{after and "&after=" + quote(after)}')
            parts.append([c['path'] for c in part['changes']])
            after = part['next']
        same(parts, [['a', 'b'], ['d', 'd/x'], ['d/y']], 'part by part')
        s.refused('GET /v1/plans/p/diff?format=html', 400, 'invalid')
        s.refused('GET /v1/plans/p/diff?limit=-1', 400, 'invalid')
        s.refused('GET /v1/plans/p/diff?format=patch&limit=1', 400, 'invalid')
        s.refused('GET /v1/plans/p/diff?after=x', 400, 'invalid')
        s.refused('GET /v1/plans/p/diff?after=0123456789abcdef-1/x', 404, 'not-found')
        s.refused('GET /v1/plans/p/diff?path=a', 400, 'invalid')
        s.refused('GET /v1/plans/q/diff', 404, 'not-found')


def rss(pid):
    for line in Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith('VmRSS:'):
            return int(line.split()[1])
    return 0


def test_long_diff_takes_no_memory_and_may_be_left(top):
    many = 2000 if SANITIZED else 6000
    with Api(top) as s:
        s.begin()
        # Of one directory the names are held: there are many.
        s.work('p', f'for d in $(seq {many // 100}); do mkdir d$d && (cd d$d && seq -f a-rather-long-name-%g 100 | '
                    'xargs touch) || exit; done')
        s.ask('GET /v1/plans/p/diff?limit=1')
        before = rss(s.process.pid)
        connection = s.connection(by_socket=True)
        connection.request('GET', '/v1/plans/p/diff')
        got = connection.getresponse()
        same(got.headers['Transfer-Encoding'], 'chunked', 'it has no length')
        size, top_rss = 0, 0
        while True:
            piece = got.read(1 << 16)
            size += len(piece)
            top_rss = max(top_rss, rss(s.process.pid))
            if not piece:
                break
        connection.close()
        need(size > many * 200, f'all of it: {size}')
        need(SANITIZED or top_rss - before < 800, f'{top_rss - before} KiB for {size} bytes')
        threads = len(os.listdir(f'/proc/{s.process.pid}/task'))
        for _ in range(4):  # who goes in the middle leaves nothing behind
            connection = s.connection(by_socket=True)
            connection.request('GET', '/v1/plans/p/diff')
            connection.getresponse().read(100)
            connection.sock.close()
            connection.close()
        until = time.monotonic() + PATIENCE
        while len(os.listdir(f'/proc/{s.process.pid}/task')) > threads and time.monotonic() < until:
            time.sleep(0.05)
        need(len(os.listdir(f'/proc/{s.process.pid}/task')) <= threads, 'threads are left')


# ---- commit ----


def test_commit_is_of_what_was_looked_at(top):
    with Api(top) as s:
        s.begin()
        s.work('p', 'echo more >>a')
        digest = s.digest('p')
        need('says what it commits' in s.refused('POST /v1/plans/p/commit', 428, 'invalid'), 'needed')
        s.refused('POST /v1/plans/p/commit', 428, 'invalid', If_Match='*')
        for odd in (digest, f'W/"{digest}"', f'"{digest}", "{digest}"', '"x"', f'"{digest.upper()}"', '""'):
            s.refused('POST /v1/plans/p/commit', 400, 'invalid', If_Match=odd)
        s.work('p', 'echo late >>a')
        s.refused('POST /v1/plans/p/commit', 412, 'stale', If_Match=f'"{digest}"')
        same((s.top / 'root/a').read_text(), 'one\n', 'nothing was committed')
        s.refused('POST /v1/plans/p/commit', 412, 'stale', {'dry_run': True}, If_Match=f'"{digest}"')
        (s.top / 'root/a').write_text('theirs\n')
        digest = s.digest('p')
        s.refused('POST /v1/plans/p/commit', 409, 'conflict', If_Match=f'"{digest}"')
        s.ok('POST /v1/plans/p/commit', {'ours': [f'{top}/root/a']}, If_Match=f'"{digest}"')
        same((s.top / 'root/a').read_text(), 'one\nmore\nlate\n', 'ours')


# ---- bodies ----


def test_bad_bodies_are_refused_by_name(top):
    with Api(top) as s:
        s.begin()
        etag = f'"{s.digest("p")}"'
        rows = [
            ('/v1/plans', {}, "'resources' is missing"),
            ('/v1/plans', {'resources': 1}, "'resources'"),
            ('/v1/plans', {'resources': [], 'nmae': 'x'}, "'nmae'"),
            ('/v1/plans', {'resources': [], 'name': 1}, "'name'"),
            ('/v1/plans', {'resources': [], 'name': None}, "'name'"),
            ('/v1/plans', {'resources': [], 'name': '../x'}, "'../x'"),
            ('/v1/plans', {'resources': [], 'or_open': 'yes'}, "'or_open'"),
            ('/v1/plans', {'resources': [{'root': '/x'}, {}]}, "'resources[1].root' is missing"),
            ('/v1/plans', {'resources': [{'root': ''}]}, "'resources[0].root'"),
            ('/v1/plans', {'resources': [{'root': 'x'}]}, "'resources[0].root'"),
            ('/v1/plans', {'resources': [{'root': '/x', 'a': {'b': 1}}]}, "'resources[0].a'"),
            ('/v1/plans', {'resources': ['/x']}, "'resources[0]'"),
            ('/v1/plans', {'resources': [{'root': '/x'}] * 5000}, "'resources'"),
            ('/v1/plans/p/commit', {'paths': '/x'}, "'paths'"),
            ('/v1/plans/p/commit', {'paths': ['x']}, "'paths[0]'"),
            ('/v1/plans/p/commit', {'paths': [1]}, "'paths'"),
            ('/v1/plans/p/commit', {'allow': ['everything']}, "'everything'"),
            ('/v1/plans/p/commit', {'retain': 'soon'}, "'retain'"),
            ('/v1/plans/p/commit', {'retain': '1h', 'no_undo': True}, "'retain'"),
            ('/v1/plans/p/undo', {'keep_work': True}, "'keep_work'"),
            ('/v1/plans/p/redo', {'force': True}, "'force'"),
            ('/v1/plans/p/rollback', {'force': True}, "'force'"),
            ('/v1/plans/p/reset', {'force': True}, "'force'"),
            ('/v1/plans/p/exec', {'background': 'j', 'argv': []}, "'argv'"),
            ('/v1/plans/p/exec', {'background': '-j', 'argv': ['true']}, "'-j'"),
            ('/v1/plans/p/asks', {'message': 'x', 'digest': 'y'}, "'digest'"),
            ('/v1/plans/p/asks', {'message': '', 'digest': 'y'}, "'message'"),
            ('/v1/clean', {'dry': True}, "'dry'"),
        ]
        for path, body, word in rows:
            detail = s.refused(f'POST {path}', 400, 'invalid', body, If_Match=etag)
            need(word in detail, f'{path} {body}: {detail}')
        for body in ('{', '[]', '{} x', '{"resources":[],"resources":[]}', '{"name":"\\u0000","resources":[]}', '\xff{}',
                     '[' * 100000, '{"a":' * 50 + '1' + '}' * 50):
            s.refused('POST /v1/plans', 400, 'invalid', body.encode('latin-1'))
        s.refused('POST /v1/plans', 415, 'invalid', '{}', Content_Type='text/plain')
        same([p['name'] for p in s.ok('GET /v1/plans')['plans']], ['p'], 'nothing was made')


def test_plans_are_named_in_full(top):
    with Api(top) as s:
        plan = s.ok('POST /v1/plans', {'name': 'only', 'resources': [{'root': str(s.root()), 'strategy': 'copy'}]}, 201)['plan']
        for ref in (plan['id'][:8], 'onl', '-'):
            for line in (f'GET /v1/plans/{ref}', f'POST /v1/plans/{ref}/reset', f'DELETE /v1/plans/{ref}'):
                s.refused(line, 404, 'not-found')
        for ref in (plan['id'], 'only'):
            same(s.ok(f'GET /v1/plans/{ref}')['plan']['id'], plan['id'], ref)


# ---- made once ----


def test_same_key_makes_one_plan(top):
    with Api(top) as s:
        body = {'resources': [{'root': str(s.root()), 'strategy': 'copy'}]}
        first = s.ok('POST /v1/plans', body, 201, Idempotency_Key='k')
        again = s.ask('POST /v1/plans', body, Idempotency_Key='k')
        same((again.status, again.json['plan'], again.headers['Idempotency-Replayed']), (201, first['plan'], 'true'), 'again')
        s.restart(signal.SIGKILL)
        same(s.ok('POST /v1/plans', body, 201, Idempotency_Key='k')['plan'], first['plan'], 'after a restart')
        s.refused('POST /v1/plans', 422, 'invalid', dict(body, name='x'), Idempotency_Key='k')
        s.refused('POST /v1/plans?wait=1', 422, 'invalid', body, Idempotency_Key='k')
        for bad in ('', ' ', 'x' * 129, 'a b'):
            s.refused('POST /v1/plans', 400, 'invalid', body, Idempotency_Key=bad)
        key = s.key('k', 'agent')
        second = s.ok('POST /v1/plans', body, 201, key=key, Idempotency_Key='k')
        need(second['plan'] != first['plan'], "another sender's key is another key")
        token = s.token(second['plan']['id'], key)
        same([p['id'] for p in s.ok('GET /v1/plans', key=token)['plans']], [second['plan']['id']], 'started by this key')
        s.ok(f'DELETE /v1/plans/{first["plan"]["id"]}')
        s.refused('POST /v1/plans', 410, 'not-found', body, Idempotency_Key='k')
        s.sql('UPDATE request SET created_ms = created_ms - 86400001')
        third = s.ok('POST /v1/plans', body, 201, Idempotency_Key='k')
        need(third['plan'] != first['plan'], 'a day later it is a new one')
        s.refused('POST /v1/plans', 409, 'exists', {'name': third['plan']['name'], 'resources': []}, Idempotency_Key='f')
        s.ok(f'DELETE /v1/plans/{third["plan"]["id"]}')
        s.ok('POST /v1/plans', {'name': third['plan']['name'], 'resources': []}, 201, Idempotency_Key='f')
        # A plan of that name that somebody else made is not ours.
        s.refused('POST /v1/plans', 409, 'exists', {'name': third['plan']['name'], 'resources': []}, Idempotency_Key='g')
        opened = s.ok('POST /v1/plans', {'name': third['plan']['name'], 'or_open': True, 'resources': []}, Idempotency_Key='h')
        same(opened['opened'], True, 'opened')
        same(s.ok('POST /v1/plans', {'name': third['plan']['name'], 'or_open': True, 'resources': []}, Idempotency_Key='h'),
             dict(opened, notes=[]), 'opened, again')


def test_many_with_one_key_make_one_plan(top):
    with Api(top) as s:
        body = {'resources': [{'root': str(s.root()), 'strategy': 'copy'}]}
        s.ok('GET /v1/plans')
        got = []

        def send():
            got.append(s.ask('POST /v1/plans', body, Idempotency_Key='k'))

        threads = [threading.Thread(target=send) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        same({g.status for g in got} - {201, 409}, set(), 'made, or under way')
        same(len({g.json['plan']['id'] for g in got if g.status == 201}), 1, 'one plan')
        same({g.json['code'] for g in got if g.status == 409} - {'busy'}, set(), 'why not')
        same(len(s.ok('GET /v1/plans')['plans']), 1, 'one plan')


def test_a_key_survives_the_daemons_death(top):
    """At every point of making a plan: the request sent again finds the plan, or makes it, once."""
    points = [f'plan.start.{p}' for p in ('before-record', 'after-record', 'after-make', 'after-complete')]
    with Api(top) as s:
        for number, point in enumerate(points):
            body = {'resources': [{'root': str(s.root(f'r{number}')), 'strategy': 'copy'}]}
            s.env['ATOLL_CRASHPOINT'] = point
            s.restart()
            try:
                s.ask('POST /v1/plans', body, Idempotency_Key=point)
                need(False, f'{point}: it lives')
            except OSError:
                pass
            s.process.wait(PATIENCE)
            del s.env['ATOLL_CRASHPOINT']
            s.end()
            s.start()
            made = s.ok('POST /v1/plans', body, 201, Idempotency_Key=point)
            same(s.ok('POST /v1/plans', body, 201, Idempotency_Key=point)['plan'], made['plan'], f'{point}: again')
            plans = s.ok('GET /v1/plans')['plans']
            same(len(plans), number + 1, f'{point}: plans')
            same([p['starting'] for p in plans], [False] * len(plans), f'{point}: all whole')


def test_a_key_whose_start_cannot_be_taken_back(top):
    """Of a daemon that died: the request sent again says so, and makes the plan once that is mended."""
    with Api(top) as s:
        body = {'resources': [{'root': str(s.root('r')), 'strategy': 'copy'}]}
        s.env['ATOLL_CRASHPOINT'] = 'plan.start.after-make'
        s.restart()
        try:
            s.ask('POST /v1/plans', body, Idempotency_Key='k')
            need(False, 'it lives')
        except OSError:
            pass
        s.process.wait(PATIENCE)
        del s.env['ATOLL_CRASHPOINT']
        areas = [str(path) for path in (s.home / 'plans').iterdir()]
        same(len(areas), 1, 'what was made')
        s.end()
        if os.geteuid() == 0:  # nobody else has what he cannot remove himself
            subprocess.run(['chattr', '+i', *areas], check=True)
            try:
                s.start()
                got = s.ask('POST /v1/plans', body, Idempotency_Key='k')
            finally:
                subprocess.run(['chattr', '-i', *areas], check=True)
            need(got.status >= 400 and got.json['code'] == 'needs-recovery', f'{got.status} {got.json}')
            need('cannot be removed' in got.json['detail'], got.json)
        else:
            s.start()
        made = s.ok('POST /v1/plans', body, 201, Idempotency_Key='k')
        same([p['id'] for p in s.ok('GET /v1/plans')['plans']], [made['plan']['id']], 'one plan')


def test_random_kills_make_no_second_plan(top):
    rounds = 4 if SANITIZED else 12
    with Api(top) as s:
        for number in range(rounds):
            body = {'resources': [{'root': str(s.root(f'r{number}')), 'strategy': 'copy'}]}
            killer = threading.Timer(0.002 * number, lambda: s.tell(signal.SIGKILL))
            killer.start()
            try:
                s.ask('POST /v1/plans', body, Idempotency_Key=f'k{number}')
            except (OSError, ValueError):
                pass
            killer.join()
            s.end()
            s.start()
            s.ok('POST /v1/plans', body, 201, Idempotency_Key=f'k{number}')
            same(len(s.ok('GET /v1/plans')['plans']), number + 1, 'one plan each')


def test_other_things_are_made_once(top):
    with Api(top) as s:
        s.begin()
        other = s.root('other')
        for _ in range(2):
            boxes = s.ok('POST /v1/plans/p/sandboxes', {'root': str(other), 'strategy': 'copy'}, 201, Idempotency_Key='s')
            same(len(boxes['sandboxes']), 2, 'one more')
        s.refused('POST /v1/plans/p/sandboxes', 409, 'exists', {'root': str(other), 'strategy': 'copy'}, Idempotency_Key='t')
        ask = {'message': 'now', 'digest': s.digest('p')}
        ids = {s.ok('POST /v1/plans/p/asks', ask, 201, Idempotency_Key='a')['id'] for _ in range(2)}
        same(len(ids), 1, 'one ask')
        job = {'background': 'j', 'argv': ['sh', '-c', f'echo x >>{top}/root/n']}
        for _ in range(2):
            same(s.ok('POST /v1/plans/p/exec', job, 202, Idempotency_Key='j')['job'], 'j', 'begun')
            s.atoll('job', 'wait', 'p', 'j', check=True)
        need('+x' in s.ok('GET /v1/plans/p/diff?format=patch'), 'it ran')
        same(s.ok('GET /v1/plans/p/diff?detail=lines')['insertions'], 1, 'once')


# ---- who may ----


def test_who_may_what(top):
    with Api(top) as s:
        p = s.begin()['plan']['id']
        q = s.begin('q', s.root('q'))['plan']['id']
        agent, review = s.key('agent', 'agent'), s.key('review', 'review')
        token = s.token(p)
        s.work('p', 'echo more >>a')
        digest = s.digest('p')
        ask = {'message': 'please', 'digest': digest}
        new = {'resources': []}
        match = {'If_Match': f'"{digest}"'}
        rows = [
            # line, body, what agent's key, a token of p, and review are answered
            ('GET /v1/plans', None, 200, 200, 200),
            (f'GET /v1/plans/{p}', None, 200, 200, 200),
            (f'GET /v1/plans/{q}', None, 200, 403, 200),
            (f'GET /v1/plans/{p}/diff', None, 200, 200, 200),
            (f'GET /v1/plans/{q}/diff', None, 200, 403, 200),
            ('GET /v1/log', None, 200, 200, 200),
            ('GET /v1/jobs', None, 200, 200, 200),
            ('GET /v1/locks', None, 200, 200, 200),
            ('GET /v1/asks', None, 200, 200, 200),
            ('GET /v1/version', None, 200, 200, 200),
            ('GET /v1/doctor', None, 403, 403, 403),
            ('POST /v1/plans', new, 201, 403, 403),
            (f'POST /v1/plans/{p}/sandboxes', {'root': str(s.root('more'))}, 403, 201, 403),
            (f'POST /v1/plans/{q}/sandboxes', {'root': str(s.root('more'))}, 403, 403, 403),
            (f'POST /v1/plans/{p}/sandboxes', {'root': str(s.root('none')), 'strategy': 'none'}, 403, 403, 403),
            ('POST /v1/plans', {'resources': [{'root': str(s.root('none')), 'strategy': 'none'}]}, 403, 403, 403),
            (f'POST /v1/plans/{p}/asks', ask, 403, 201, 403),
            (f'POST /v1/plans/{q}/asks', ask, 403, 403, 403),
            (f'POST /v1/plans/{p}/exec', {'background': 'j', 'argv': ['true']}, 403, 202, 403),
            (f'POST /v1/plans/{q}/exec', {'background': 'j', 'argv': ['true']}, 403, 403, 403),
            *((f'POST /v1/plans/{p}/exec', dict({'background': 'k', 'argv': ['true']}, **more), 403, 403, 403) for more in
              ({'rw': ['/']}, {'ro': ['/']}, {'profile': ['x']}, {'home': 'real'}, {'unfenced': True})),
            (f'POST /v1/plans/{p}/commit', None, 403, 403, 200),
            (f'POST /v1/plans/{p}/undo', None, 403, 403, 200),
            (f'POST /v1/plans/{p}/redo', None, 403, 403, 200),
            (f'POST /v1/plans/{p}/rollback', None, 403, 403, 200),
            (f'POST /v1/plans/{p}/reset', None, 403, 200, 403),
            (f'POST /v1/plans/{q}/reset', None, 403, 403, 403),
            (f'POST /v1/plans/{p}/refresh', None, 403, 200, 403),
            (f'DELETE /v1/plans/{p}', None, 403, 403, 403),
            (f'DELETE /v1/plans/{p}/lock', None, 403, 403, 403),
            ('POST /v1/recover', None, 403, 403, 403),
            ('POST /v1/clean', None, 403, 403, 403),
        ]
        for line, body, *wanted in rows:
            if '/exec' in line and body:
                s.atoll('job', 'wait', p, 'j')
            more = match if line.endswith('/commit') else {}
            got = [s.ask(line, body, key=key, **more).status for key in (agent, token, review)]
            same(got, wanted, line)
        same([x['id'] for x in s.ok('GET /v1/plans', key=token)['plans']], [p], 'its own plan')
        same({e['plan']['id'] for e in s.ok('GET /v1/log', key=token)['entries']}, {p}, 'its own log')
        s.refused('GET /v1/plans', 401, 'denied', key='atk_' + 'x' * 49)


# ---- asks ----


def test_asks(top):
    with Api(top) as s:
        p = s.begin()['plan']['id']
        token, review = s.token(p), s.key('boss', 'review')
        asks = f'/v1/plans/{p}/asks'

        def states():
            return [a['state'] for a in s.ok(f'GET {asks}')['asks']]

        def ask(message='please'):
            return s.ok(f'POST {asks}', {'message': message, 'digest': s.digest(p)}, 201, key=token)

        s.work('p', 'echo more >>a')
        made = ask()
        same((made['state'], made['plan']['id'], made['ended']), ('open', p, None), 'open')
        same([a['id'] for a in s.ok('GET /v1/asks', key=review)['asks']], [made['id']], 'a reviewer sees it')
        need('asks for a commit' in s.atoll('list').stdout, 'the list tells')
        need(': please\n' in s.atoll('show', 'p').stdout, 'show tells')
        s.work('p', 'echo again >>a')
        need('the work has changed since' in s.atoll('show', 'p').stdout, 'show tells that, too')
        same(s.ok('GET /v1/asks')['asks'], [], 'it was of something else')
        same(states(), ['changed'], 'changed')
        need('asks for' not in s.atoll('list').stdout, 'the list forgets')
        s.refused(f'POST {asks}', 412, 'stale', {'message': 'x', 'digest': made['digest']}, key=token)
        second, third = ask(), ask()
        same(states(), ['open', 'withdrawn', 'changed'], 'one at a time')
        s.refused(f'DELETE {asks}/{second["id"]}', 404, 'not-found', key=token)
        s.ok(f'DELETE {asks}/{third["id"]}', status=204, key=token)
        fourth = ask()
        s.ok(f'DELETE {asks}/{fourth["id"]}', status=204, key=review)
        same(states()[:2], ['declined', 'withdrawn'], 'by whom it says')
        same(s.ok(f'GET {asks}')['asks'][0]['ended_by'], 'key boss', 'by whom')
        fifth = ask()
        s.ok(f'POST /v1/plans/{p}/commit', {'dry_run': True}, key=review)
        same(states()[0], 'open', 'a dry run decides nothing')
        s.ok(f'POST /v1/plans/{p}/commit', key=review, If_Match=f'"{fifth["digest"]}"')
        same(states()[0], 'decided', 'committed')
        log = [(e['what'], e['message']) for e in s.ok(f'GET /v1/plans/{p}/log')['entries'] if e['what'] in ('approve', 'commit')]
        same(log[1], ('approve', f'key boss, of digest {fifth["digest"]}'), 'who approved')
        s.work('p', 'echo more >>a')
        ask()
        s.atoll('reset', 'p', check=True)
        same(states()[0], 'decided', 'by the command')
        s.work('p', 'echo more >>a')
        ask()
        s.ok(f'DELETE /v1/plans/{p}?force=true')
        same(s.ok('GET /v1/asks')['asks'], [], 'gone with its plan')


# ---- jobs, locks, the rest ----


def test_jobs(top):
    with Api(top) as s:
        s.begin()
        same(s.ok('GET /v1/jobs')['jobs'], [], 'none')
        job = {'background': 'j', 'argv': ['sh', '-c', 'echo $V; pwd; exec sleep 1000'], 'env': ['V=hello']}
        same(s.ok('POST /v1/plans/p/exec', job, 202)['job'], 'j', 'it runs')
        need(s.refused('POST /v1/plans/p/exec?wait=0', 423, 'busy', dict(job, background='k')), 'one at a time')
        until = time.monotonic() + PATIENCE
        while s.ok('GET /v1/plans/p/jobs/j/output').count('\n') < 2 and time.monotonic() < until:
            time.sleep(0.05)
        same(s.ok('GET /v1/plans/p/jobs/j/output'), f'hello\n{top}/root\n', 'its output, and where it runs')
        same(s.ok('GET /v1/plans/p/jobs/j/output?offset=4'), f'o\n{top}/root\n', 'from there on')
        same([j['state'] for j in s.ok('GET /v1/plans/p/jobs')['jobs']], ['running'], 'listed')
        s.refused('GET /v1/plans/p/jobs/none', 404, 'not-found')
        s.refused('GET /v1/plans/p/jobs/none/output', 404, 'not-found')
        s.refused('DELETE /v1/plans/p/jobs/none', 404, 'not-found')
        held = s.ok('GET /v1/plans/p/lock')['locks']
        same([(held[0]['kind'], held[0]['plan_name'])], [('plan', 'p')], 'who holds it')
        s.refused('POST /v1/plans/p/reset?wait=0', 423, 'busy')
        s.restart(signal.SIGKILL)
        same(s.ok('GET /v1/plans/p/jobs/j')['jobs'][0]['state'], 'running', 'it outlives the daemon')
        same(s.ok('DELETE /v1/plans/p/jobs/j')['state'], 'ended', 'ended')
        same(s.ok('GET /v1/plans/p/jobs/j')['jobs'][0]['exit_code'], 143, 'by SIGTERM')
        entry = next(e for e in s.ok('GET /v1/plans/p/log')['entries'] if e.get('job') == 'j')
        need(entry['output'], 'its output is kept')
        s.begin('q', s.root('q'))
        same(s.ok(f'GET /v1/plans/p/log/{entry["output"]["id"]}/output'), f'hello\n{top}/root\n', 'by the log')
        s.refused(f'GET /v1/plans/q/log/{entry["output"]["id"]}/output', 404, 'not-found')
        s.refused('GET /v1/plans/p/log/x/output', 404, 'not-found')
        s.refused('POST /v1/plans/p/exec', 400, 'invalid', dict(job, net='moon'))
        need('none-such' in s.refused('POST /v1/plans/p/exec', 422, 'ENOENT', {'background': 'n', 'argv': ['none-such']}), 'which')


def test_keeping_house(top):
    with Api(top) as s:
        s.begin()
        same(s.ok('GET /v1/locks')['locks'], [], 'no locks')
        same(s.ok('DELETE /v1/plans/p/lock')['broken'], False, 'nobody holds it')
        s.ok('POST /v1/plans/p/exec', {'background': 'j', 'argv': ['sleep', '1000']}, 202)
        pid = s.ok('GET /v1/plans/p/lock')['locks'][0]['pid']
        s.ask(f'DELETE /v1/plans/p/lock?pid={os.getpid()}')
        same(s.ok('GET /v1/plans/p/jobs/j')['jobs'][0]['state'], 'running', 'not that one')
        same(s.ok(f'DELETE /v1/plans/p/lock?pid={pid}')['broken'], True, 'broken')
        same(s.ok('POST /v1/recover')['left'], [], 'recovered')
        same(s.ok('POST /v1/plans/p/recover', {'accept': True})['left'], [], 'that one, too')
        same(s.ok('POST /v1/clean', {'dry_run': True})['paths'], [], 'nothing to clean')
        same(s.ok('POST /v1/clean')['plans_removed'], 0, 'nothing')
        need('healthy' in s.ok(f'GET /v1/doctor?path={quote(str(s.root()))}'), 'looked at')
        s.refused('GET /v1/doctor?path=x', 400, 'invalid')
        same(s.ok('GET /v1/version')['version'], s.atoll('version').stdout.split()[1], 'the version')
        s.refused('GET /v1/plans/p?wait=x', 400, 'invalid')
        s.refused('GET /v1/plans/p/log?limit=0', 400, 'invalid')
        s.refused('GET /v1/plans/p/log?limit=1&limit=2', 400, 'invalid')


# ---- with the command ----


def test_list_is_as_new_as_the_store(top):
    with Api(top) as s:
        for number in range(5):
            s.plan(f'p{number}')
            same(len(s.ok('GET /v1/plans')['plans']), number + 1, 'started by the command')
        told = json.loads(s.atoll('list', '--json').stdout)
        same(s.ok('GET /v1/plans'), told, 'the same as the command says')
        s.atoll('stop', 'p0', check=True)
        same(len(s.ok('GET /v1/plans')['plans']), 4, 'stopped by the command')
        same(s.ok('GET /v1/plans/p1'), json.loads(s.atoll('show', 'p1', '--json').stdout), 'shown')


def test_command_and_daemon_on_one_store(top):
    """Both at once, on plans of their own and on one that they share; at the end all is settled."""
    rounds = 3 if SANITIZED else 8
    with Api(top) as s:
        shared = s.root('shared')
        s.begin('shared', shared)
        s.ok('GET /v1/plans')
        failed = []

        def by_http(name):
            root = s.root(name)
            for number in range(rounds):
                s.begin(name, root)
                s.work(name, f'echo {number} >>a', root)
                s.ok(f'POST /v1/plans/{name}/commit?wait=60', If_Match=f'"{s.digest(name)}"')
                s.ok(f'DELETE /v1/plans/{name}?wait=60')

        def by_command(name):
            root = s.root(name)
            for number in range(rounds):
                s.atoll('start', name, '--strategy', 'copy', '--dir', str(root), check=True)
                s.work(name, f'echo {number} >>a', root)
                s.atoll('commit', name, check=True)
                need(name in [p['name'] for p in s.ok('GET /v1/plans')['plans']], 'listed')
                s.atoll('stop', name, check=True)

        def together(name):
            for number in range(rounds):
                s.work('shared', f'echo {name} >>{name}{number}', shared)
                if name == 'x':
                    got = s.ask('POST /v1/plans/shared/commit?wait=60', If_Match=f'"{s.digest("shared")}"')
                    need(got.status in (200, 412), f'{got.status}: {got.body}')
                else:
                    s.atoll('commit', 'shared', check=True)

        def run(test, name):
            try:
                test(name)
            except BaseException as why:  # noqa: B902
                failed.append(f'{name}: {why}')

        threads = [threading.Thread(target=run, args=row) for row in
                   ((by_http, 'h1'), (by_http, 'h2'), (by_command, 'c1'), (together, 'x'), (together, 'y'))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        same(failed, [], 'nobody fails')
        s.atoll('commit', 'shared', check=True)
        for name in ('h1', 'h2', 'c1'):
            same((s.top / name / 'a').read_text(), 'one\n' + ''.join(f'{n}\n' for n in range(rounds)), name)
        same(sorted(os.listdir(shared)), sorted(['a', 'b', *(f'{n}{i}' for n in 'xy' for i in range(rounds))]), 'shared')
        plans = s.ok('GET /v1/plans')['plans']
        same([(p['name'], p['in_doubt']) for p in plans], [('shared', False)], 'all is settled')


if __name__ == '__main__':
    main([value for name, value in list(globals().items()) if name.startswith('test_')])

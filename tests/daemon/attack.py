# SPDX-License-Identifier: Apache-2.0
"""What somebody tries who has a key, or makes a mistake: to get at the plans of others, at the daemon's own
secrets and files."""

import os
import socket
import sys
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
sys.path.insert(0, str(Path(__file__).resolve().parent))
from atolld import Daemon, main  # noqa: E402
from expect import Broken, need, same  # noqa: E402
from served import Served  # noqa: E402


def begin(s, key, name, status=201, **more):
    root = s.top / f'root-{name[:20]}'
    root.mkdir(exist_ok=True)
    headers = {'Idempotency-Key': more.pop('once')} if 'once' in more else None
    body = dict({'name': name, 'resources': [{'root': str(root), 'strategy': 'copy'}]}, **more)
    got = s.call('POST', '/v1/plans', key=key, body=body, headers=headers)
    same(got.status, status, f'{name}: {got.body}')
    return got.json.get('plan', {}).get('id')


def test_a_name_does_not_take_the_place_of_an_id(top):
    """A reviewer who names a plan by its id decides about that one, whatever others are called."""
    with Served(top) as s:
        p = s.plan('p')
        key, review = s.key('agent', 'agent'), s.key('review', 'review')
        begin(s, key, p, 400)
        other = begin(s, key, 'other')  # and one of an older build, which took such names
        s.sql('UPDATE plan SET name = ? WHERE id = ?', p, other)
        for path in ('', '/sandboxes', '/diff', '/lock', '/log', '/asks'):
            got = s.call('GET', f'/v1/plans/{p}{path}', key=review)
            need(other not in got.body, f'{path}: {got.body}')
        same(s.call('GET', f'/v1/plans/{p}', key=s.token(p)).json['plan']['id'], p, 'with its token')
        same(s.call('POST', f'/v1/sandboxes/{p}/auth', key=key).status, 403, 'no token by a name')


def test_a_token_is_not_for_names_that_begin_as_its_plan(top):
    with Served(top) as s:
        p = s.plan('p')
        token = s.token(p)
        for name in (f'{p}-1', f'{p}-x'):
            s.plan(name)
            same(s.call('GET', f'/v1/plans/{name}', key=token).status, 403, name)


def test_asking_twice_is_not_starting(top):
    """Whoever opens a plan by its name does not become the one who started it, however often."""
    with Served(top) as s:
        p = s.plan('p')
        key = s.key('agent', 'agent')
        for _ in range(3):
            same(begin(s, key, 'p', 200, or_open=True, once='k'), p, 'opened')
            same(s.call('POST', f'/v1/sandboxes/{p}/auth', key=key).status, 403, 'a token of the plan of another')
        same(s.sql('SELECT starter FROM plan WHERE id = ?', p), [('',)], 'who started it')
        more = s.top / 'more'
        more.mkdir()
        same(begin(s, key, 'p', 200, or_open=True, resources=[{'root': str(more), 'strategy': 'copy'}]), p, 'opened, to add to it')
        same(s.sql('SELECT count(*) FROM sandbox WHERE plan = ?', p), [(1,)], 'nothing was added')


def test_a_name_that_is_too_long_is_not_cut(top):
    with Served(top) as s:
        key = s.key('agent', 'agent')
        for once in ({}, {'once': 'k'}):
            begin(s, key, 'x' * 300, 400, **once)
        same(s.call('GET', '/v1/plans', by_socket=True).json['plans'], [], 'plans')


def test_variables_of_the_daemon_are_its_own(top):
    with Served(top) as s:
        p = s.plan('p')
        for more in ({}, {'background': 'j'}):
            got = s.call('POST', f'/v1/plans/{p}/exec', key=s.token(p), body=dict({'argv': ['env'], 'env': ['ATOLL_HOME']}, **more))
            same(got.status, 400, f'{more}: {got.body}')
        same(s.call('GET', f'/v1/plans/{p}/jobs', by_socket=True).json['jobs'], [], 'jobs')


def test_a_secret_in_the_wrong_place_is_not_kept(top):
    """Where a name belongs: in the path, or in a body."""
    with Served(top) as s:
        p = s.plan('p')
        key, token = s.key('agent', 'agent'), s.token(p)
        for secret in (key, token, key[:-3], token[:-9]):
            s.call('DELETE', f'/v1/keys/{secret}', by_socket=True)
            s.call('DELETE', f'/v1/keys/%61{secret[1:]}', by_socket=True)
            s.call('DELETE', f'/v1/plans/{secret}', by_socket=True)
            s.call('DELETE', f'/v1/sandboxes/{secret}/auth', by_socket=True)
            s.call('DELETE', f'/v1/plans/p/jobs/{secret}', by_socket=True)
            s.call('POST', '/v1/keys', by_socket=True, body={secret: 1})


def test_only_a_dead_socket_is_cleared_away(top):
    top = Path(top)
    (top / 'file').write_text('precious')
    (top / 'link').symlink_to(top / 'file')
    (top / 'nowhere').symlink_to(top / 'none')
    (top / 'directory').mkdir()
    os.mkfifo(top / 'fifo')
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(top / 'dead'))
    dead.close()
    (top / 'to-dead').symlink_to(top / 'dead')
    before = sorted(os.listdir(top))
    for name in ('file', 'link', 'nowhere', 'directory', 'fifo', 'to-dead'):
        try:
            with Daemon(top, f'--socket={top}/{name}'):
                pass
        except Broken as why:
            need('ended with' in str(why), str(why))
        else:
            raise Broken(f'{name} was taken')
    same((top / 'file').read_text(), 'precious', 'the file')
    same([n for n in before if not os.path.lexists(top / n)], [], 'what is gone')
    with Daemon(top, f'--socket={top}/dead') as d:
        need(d.is_alive(), 'in place of a dead one')


if __name__ == '__main__':
    main([value for name, value in list(globals().items()) if name.startswith('test_')])

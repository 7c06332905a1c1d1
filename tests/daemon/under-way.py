# SPDX-License-Identifier: Apache-2.0
"""Requests that take their time: bodies that arrive slowly, operations that wait, commands of others that
change the store meanwhile; and a daemon that is stopped, or killed, while they are under way."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from atolld import PATIENCE, Daemon, main, request  # noqa: E402
from expect import need, same  # noqa: E402

ATOLL = os.environ['ATOLL']
JSON = ['Content-Type: application/json']


def atoll(d, *words, check=True):
    said = subprocess.run([ATOLL, *words], env=d.env, capture_output=True, text=True, check=False, cwd=d.top)
    need(not check or said.returncode == 0, f'atoll {words}: {said.stderr}')
    return said


def until(true, what, patience=PATIENCE):
    end = time.monotonic() + patience
    while not true():
        need(time.monotonic() < end, what)
        time.sleep(0.02)


def new_plan(d, name):
    (d.top / name).mkdir()
    (d.top / name / 'file').write_text('one\n')
    atoll(d, 'start', name, '--dir', str(d.top / name))


class Held:
    """A command in the plan that holds its lock until it is let go."""

    def __init__(self, d, plan):
        self.process = subprocess.Popen([ATOLL, 'exec', plan, '--', 'sh', '-c', 'echo held; read _'], env=d.env, cwd=d.top,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        same(self.process.stdout.readline(), b'held\n', 'the command runs')

    def let_go(self):
        self.process.communicate(b'\n')
        same(self.process.returncode, 0, 'the command')


def somebody_waits(d):
    return any(lock['waiting'] for lock in d.ask('GET /v1/locks').json()['locks'])


def waits_for_the_lock(d, plan, wire):
    """A request on WIRE that does not come back while the lock is held."""
    wire.send(request(f'POST /v1/plans/{plan}/reset?wait=600', b'{}', JSON))
    until(lambda: somebody_waits(d), 'it waits')


# ---- bodies ----

def slow_bodies_are_ended(top):
    with Daemon(top, '--body-timeout=0.5') as d:
        with d.connect(timeout=0.01) as wire:
            wire.send(request('POST /v1/plans', b'x' * 4000)[:-4000])
            begun = time.monotonic()
            while time.monotonic() - begun < PATIENCE:
                try:
                    wire.sock.send(b' ')
                    if not wire.sock.recv(1):
                        break
                except socket.timeout:
                    pass
                except (BrokenPipeError, ConnectionResetError):
                    break
            took = time.monotonic() - begun
            need(0.4 < took < PATIENCE, f'byte by byte: {took}')
        with d.connect() as wire:
            wire.send(request('POST /v1/plans', b'x' * 4000)[:-1])
            need(wire.is_closed(PATIENCE), 'all but one byte')
        same(d.ask('GET /v1/plans').json()['plans'], [], 'nothing was made of it')


def bodies_have_limits(top):
    with Daemon(top) as d:
        for line, limit in (('POST /v1/plans', 1 << 20), ('POST /v1/plans/p/reset', 16 << 10)):
            with d.connect() as wire:  # refused by its head
                wire.send(request(line, headers=[f'Content-Length: {limit + 1}', 'Expect: 100-continue']))
                answer = wire.answer(see_end=True)
                same((answer.status, answer.closed), (413, True), line)
            same(d.ask(line, b'x' * limit, JSON).status, 400, f'{line}: as much as there may be, but no JSON')


def bodies_arrive_in_pieces(top):
    with Daemon(top) as d:
        same(d.ask('POST /v1/nothing', b'{}', JSON).status, 404, 'without reading it')
        for size in (1, 7, 100):
            with d.connect() as wire:
                wire.send(request('POST /v1/plans/nothing/reset', headers=[*JSON, 'Expect: 100-continue', 'Content-Length: 2']))
                same(wire.answer().status, 100, 'go on')
                for byte in b'{}':
                    wire.send(bytes([byte]))
                same(wire.answer().status, 404, 'no such plan')
                data = request('POST /v1/plans', b'[' * size, JSON)
                for at in range(0, len(data), size):
                    wire.send(data[at:at + size])
                same(wire.answer().status, 400, 'no JSON')
                wire.send(request('GET /healthz'))
                same(wire.answer().status, 200, 'and the connection lives on')


# ---- others at work ----

def what_commands_change_is_seen_at_once(top):
    with Daemon(top) as d:
        have = []
        with d.connect() as wire:
            for i in range(12):
                name = f'p{i}'
                new_plan(d, name)
                have.append(name)
                if i % 3 == 2:
                    atoll(d, 'stop', have.pop(0))
                for _ in range(2):  # made, and kept
                    wire.send(request('GET /v1/plans'))
                    listed = sorted(p['name'] for p in wire.answer().json()['plans'] if p['state'] != 'CLOSED')
                    same(listed, sorted(have), f'after {name}')


def what_is_changed_is_seen_by_commands_at_once(top):
    with Daemon(top) as d:
        for i in range(4):
            new_plan(d, f'p{i}')
            same(d.ask(f'DELETE /v1/plans/p{i}').status, 200, 'stop')
            listed = json.loads(atoll(d, 'list', '--json').stdout)['plans']
            need(f'p{i}' not in [p['name'] for p in listed if p['state'] != 'CLOSED'], 'stopped')


def waiting_has_an_end(top):
    with Daemon(top) as d:
        new_plan(d, 'p')
        held = Held(d, 'p')
        for wait, least in (('0', 0), ('0.3', 0.25)):
            begun = time.monotonic()
            answer = d.ask(f'POST /v1/plans/p/reset?wait={wait}', b'{}', JSON)
            took = time.monotonic() - begun
            same(answer.status, 423, f'after {wait} s')
            need(least <= took < PATIENCE, f'{took} s')
            need('atoll exec' in answer.json()['detail'], answer.json())
        for wrong in ('wait=soon', 'wait=-1', 'wait=1&wait=2', 'wait=%zz', 'wait=nan'):
            same(d.ask(f'POST /v1/plans/p/reset?{wrong}', b'{}', JSON).status, 400, wrong)
        held.let_go()
        same(d.ask('POST /v1/plans/p/reset', b'{}', JSON).status, 200, 'now it is free')


# ---- stopping ----

def stopping_lets_requests_finish(top):
    """One whose body is under way is under way."""
    with Daemon(top, '--stop-timeout=60') as d:
        new_plan(d, 'p')
        with d.connect() as wire:
            data = request('POST /v1/plans/p/reset', b'{}', JSON)
            wire.send(data[:-1])
            until(lambda: d.ask('GET /metrics').body.count(b'atolld_requests_running 2\n'), 'it runs')
            d.tell(signal.SIGTERM)
            d.wait_for('STOPPING=1')
            time.sleep(0.2)
            need(d.process.poll() is None, 'it waits for the request')
            wire.send(data[-1:])
            answer = wire.answer(see_end=True)
            same((answer.status, answer.closed), (200, True), 'answered, and then closed')
        same(d.end(), 0, 'exit status')


def stopping_withdraws_who_waits(top):
    with Daemon(top, '--stop-timeout=60') as d:
        new_plan(d, 'p')
        held = Held(d, 'p')
        with d.connect() as wire:
            waits_for_the_lock(d, 'p', wire)
            begun = time.monotonic()
            d.tell(signal.SIGTERM)
            answer = wire.answer(see_end=True)
            same((answer.status, answer.closed), (503, True), 'withdrawn')
            need('nothing was changed' in answer.json()['detail'], answer.body)
            same(d.end(), 0, 'exit status')
            need(time.monotonic() - begun < 50, 'at once')
        held.let_go()


def stopping_waits_no_longer_than_said(top):
    with Daemon(top, '--stop-timeout=0.3') as d:
        new_plan(d, 'p')
        with d.connect() as wire:
            wire.send(request('POST /v1/plans/p/reset', b'{}', JSON)[:-1])
            until(lambda: d.ask('GET /metrics').body.count(b'atolld_requests_running 2\n'), 'it runs')
            begun = time.monotonic()
            d.tell(signal.SIGTERM)
            same(d.end(), 0, 'exit status')
            need(time.monotonic() - begun < PATIENCE, 'in time')
            need(wire.is_closed(PATIENCE), 'the client is told by the end')
        atoll(d, 'reset', 'p')
        need((Path(top) / 'p/file').read_text() == 'one\n', 'nothing was changed')


def killed_it_leaves_what_any_command_leaves(top):
    d = Daemon(top).start()
    new_plan(d, 'p')
    held = Held(d, 'p')
    with d.connect() as wire:
        waits_for_the_lock(d, 'p', wire)
        d.process.kill()
        need(wire.is_closed(PATIENCE), 'the end of the daemon is the end of the connection')
    d.end()
    held.let_go()
    atoll(d, 'exec', 'p', '--', 'sh', '-c', 'echo two >p/file')
    atoll(d, 'commit', 'p')
    same((Path(top) / 'p/file').read_text(), 'two\n', 'the plan lives on')
    with Daemon(top) as again:
        same(again.ask('POST /v1/plans/p/rollback', b'{}', JSON).status, 200, 'and with the next daemon')
    same((Path(top) / 'p/file').read_text(), 'one\n', 'rolled back')


def clients_that_go_give_their_place_up(top):
    with Daemon(top) as d:
        new_plan(d, 'p')
        held = Held(d, 'p')
        wires = [d.connect() for _ in range(8)]
        for wire in wires[1:]:
            wire.send(request('POST /v1/plans/p/reset?wait=600', b'{}', JSON))
        waits_for_the_lock(d, 'p', wires[0])
        for wire in wires:
            wire.close()
        until(lambda: not somebody_waits(d), 'nobody waits')
        until(lambda: d.ask('GET /metrics').body.count(b'atolld_requests_running 1\n'), 'nothing runs')
        held.let_go()


def clients_that_go_interrupt_no_commit(top):
    """Once it is decided. Each exchange is slow, so that the client goes in the middle of them."""
    slow = ['strace', '-D', '-f', '-qq', '-o', '/dev/null', '-e', 'signal=none', '-e', 'trace=renameat2',
            '-e', 'inject=renameat2:delay_enter=20000', os.environ['ATOLL_DAEMON']]
    with Daemon(top, command=slow, env={'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'}) as d:
        files = [d.top / f'p/f{i}' for i in range(40)]
        files[0].parent.mkdir()
        for file in files:
            file.write_text('one\n')
        atoll(d, 'start', 'p', '--strategy', 'copy', '--dir', str(d.top / 'p'))
        atoll(d, 'exec', 'p', '--', 'sh', '-c', 'for f in p/f*; do echo two >$f; done')
        digest = atoll(d, 'diff', 'p', '--digest').stdout.strip()
        with d.connect() as wire:
            wire.send(request('POST /v1/plans/p/commit', b'{}', [*JSON, f'If-Match: "{digest}"']))
            until(lambda: any(file.read_text() == 'two\n' for file in files), 'it is carried out')
            need(files[-1].read_text() == 'one\n' or files[0].read_text() == 'one\n', 'it is over too early')
        until(lambda: all(file.read_text() == 'two\n' for file in files), 'it is done')
        until(lambda: d.ask('GET /v1/plans').json()['plans'][0]['state'] == 'COMMITTED', 'it is recorded')


def many_at_once(top):
    """Commands and requests on one store: each plan ends as it was told to."""
    with Daemon(top) as d:
        broken = []

        def work(number):
            try:
                name = f'p{number}'
                new_plan(d, name)
                for _ in range(3):
                    if number % 2:
                        atoll(d, 'exec', name, '--', 'sh', '-c', f'echo two >{name}/file')
                        answer = d.ask(f'POST /v1/plans/{name}/reset?wait=60', b'{}', JSON)
                        same(answer.status, 200, answer.body)
                    else:
                        same(d.ask(f'GET /v1/plans/{name}').status, 200, 'show')
                        atoll(d, 'reset', name)
                same(d.ask(f'DELETE /v1/plans/{name}?wait=60').status, 200, 'stop')
            except Exception as why:  # noqa: B902
                broken.append(why)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        need(not broken, broken)
        same([p for p in d.ask('GET /v1/plans').json()['plans'] if p['state'] != 'CLOSED'], [], 'all are stopped')


if __name__ == '__main__':
    main([slow_bodies_are_ended, bodies_have_limits, bodies_arrive_in_pieces, what_commands_change_is_seen_at_once,
          what_is_changed_is_seen_by_commands_at_once, waiting_has_an_end, stopping_lets_requests_finish,
          stopping_withdraws_who_waits, stopping_waits_no_longer_than_said, killed_it_leaves_what_any_command_leaves,
          clients_that_go_give_their_place_up,
          clients_that_go_interrupt_no_commit, many_at_once])

# SPDX-License-Identifier: Apache-2.0
"""The daemon under attack: by who has no key and keeps others away from it, or reads along."""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from atolld import PATIENCE, SANITIZED, Daemon, Wire, certificate, main, request  # noqa: E402
from expect import need, same  # noqa: E402

WHOLE = request('GET /healthz')
HALF = WHOLE[:-2]


def come_from(d, address, place):
    """A connection from ADDRESS, one of loopback."""
    host, _, port = place.rpartition(':')
    return Wire(socket.create_connection((host, int(port)), source_address=(address, 0)))


def is_served(wire):
    try:
        wire.send(WHOLE)
        return wire.answer().status == 200
    except (ConnectionResetError, BrokenPipeError):
        return False


class Crowd:
    """A daemon, and who is connected to it."""

    def __init__(self, top):
        self.daemon = Daemon(top, '--listen=127.0.0.1:0', f'--socket={top}/sock', '--max-connections=16', '--max-per-address=6',
                             '--head-timeout=3600', '--idle-timeout=3600')
        self.stack = contextlib.ExitStack()

    def come(self, address='127.0.0.1'):
        return self.stack.enter_context(come_from(self.daemon, address, self.tcp))

    def half(self, address='127.0.0.1'):
        wire = self.come(address)
        wire.send(HALF)
        return wire

    def __enter__(self):
        self.daemon.start()
        self.tcp = next(p for p in self.daemon.places() if not p.startswith('unix:'))
        return self

    def __exit__(self, *why):
        self.stack.close()
        self.daemon.__exit__(*why)


def half_heads_lock_nobody_out(top):
    """As many as one address may have: who sends a whole head there has a place."""
    with Crowd(top) as c:
        wires = [c.half() for _ in range(6)]
        need(is_served(c.come()), 'a whole head, beside six halves')
        need(wires[0].is_closed(PATIENCE), 'the oldest was not ended')
        wires[1].send(WHOLE[-2:])  # one is enough, and the others are served once they are whole
        same(wires[1].answer().status, 200, 'a head that became whole')


def half_heads_from_everywhere_lock_nobody_out(top):
    with Crowd(top) as c:
        wires = [c.half(f'127.0.1.{n}') for n in range(1, 20)]
        need(is_served(c.come('127.0.2.1')), 'a whole head, beside nineteen halves')
        need(wires[0].is_closed(PATIENCE), 'the oldest was not ended')
        wires[-1].send(WHOLE[-2:])
        same(wires[-1].answer().status, 200, 'the youngest')


def idle_ones_lock_nobody_out(top):
    """They are idle a moment after they have their answer: until then they give way to nobody."""
    with Crowd(top) as c:
        for n in range(1, 40):
            end = time.monotonic() + PATIENCE
            while not is_served(c.come(f'127.0.3.{n}')):
                need(time.monotonic() < end, 'nobody gives way')


def who_works_gives_way_to_nobody(top):
    """The control: where all have a request under way, it is the new one that is ended."""
    with Daemon(top, '--max-connections=4', '--idle-timeout=3600') as d, contextlib.ExitStack() as stack:
        wires = []
        for _ in range(4):
            wire = stack.enter_context(d.connect())
            wire.send(request('GET /v1/events'))
            same(wire.answer(head=True).status, 200, 'a stream')
            wires.append(wire)
        for _ in range(3):
            with d.connect() as wire:
                need(wire.is_closed(PATIENCE), 'one too many')
        for wire in wires:
            need(not wire.is_closed(0.05), 'a stream was ended')


def tls_keeps_secrets_that_are_recorded(top):
    """TLS 1.2 has a key for each connection and authenticated encryption, or is not spoken."""
    ec_cert, ec_key = certificate(top)
    rsa_cert, rsa_key = f'{top}/rsa.pem', f'{top}/rsa-key.pem'
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', rsa_key, '-out', rsa_cert, '-days', '2',
                    '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'],
                   check=True, capture_output=True)
    os.chmod(rsa_key, 0o600)
    for kind, cert, key, refused in (
            ('ECDSA', ec_cert, ec_key, []),
            ('RSA', rsa_cert, rsa_key, ['AES256-GCM-SHA384', 'AES128-GCM-SHA256', 'AES128-SHA', 'DHE-RSA-AES256-GCM-SHA384'])):
        refused += [f'ECDHE-{kind}-AES256-SHA', f'ECDHE-{kind}-AES128-SHA', f'ECDHE-{kind}-AES256-SHA384']
        allowed = [f'ECDHE-{kind}-AES256-GCM-SHA384', f'ECDHE-{kind}-AES128-GCM-SHA256', f'ECDHE-{kind}-CHACHA20-POLY1305']
        with Daemon(top, '--listen=127.0.0.1:0', f'--tls-cert={cert}', f'--tls-key={key}') as d:
            host, _, port = d.places()[0].rpartition(':')

            def spoken(cipher):
                context = ssl.create_default_context(cafile=cert)
                context.maximum_version = ssl.TLSVersion.TLSv1_2
                context.set_ciphers(f'{cipher}:@SECLEVEL=0')
                try:
                    with context.wrap_socket(socket.create_connection((host, int(port))), server_hostname='localhost') as s:
                        return s.cipher()[0]
                except (ssl.SSLError, ConnectionResetError):
                    return None

            for cipher in refused:
                same(spoken(cipher), None, 'what must not be spoken')
            for cipher in allowed:  # the control
                same(spoken(cipher), cipher, 'what is spoken')
            same(d.ask('GET /healthz', tls=cert).status, 200, 'TLS 1.3')


def memory(d):
    """The most it ever had, in bytes."""
    status = Path(f'/proc/{d.process.pid}/status').read_text()
    return int(status.split('VmHWM:')[1].split()[0]) << 10


def a_diff_is_compared_up_to_its_limits(top):
    """However much a command wrote: files, and rows of a database. What is left out is named, and shown alone."""
    root, size, files = f'{top}/root', 3 << 20, 24
    os.mkdir(root)
    with Daemon(top) as d:
        def atoll(*words):
            return subprocess.run([os.environ['ATOLL'], *words], env=d.env, cwd='/', stdin=subprocess.DEVNULL, capture_output=True,
                                  check=True).stdout

        subprocess.run(['sqlite3', f'{top}/db', 'create table t (a text)'], check=True)
        atoll('start', 'p', '--dir', root)
        atoll('start', 'q', '--sqlite', f'{top}/db')
        atoll('exec', 'p', '--', 'sh', '-c', f'cd {root}; yes {"x" * 63} | head -c {size} >0; i=1; while [ $i -lt {files} ]; do cp 0 $i; '
              'i=$((i + 1)); done')
        atoll('exec', 'q', '--', 'sqlite3', f'{top}/db', 'with recursive n(i) as (select 1 union all select i + 1 from n where i < 1500) '
              "insert into t select printf('%d %.*c', i, 3990, 'x') from n")
        listed = d.ask('GET /v1/plans/p/diff?detail=lines').json()['changes']
        words = [c['content'] for c in listed]
        same((len(words), set(words), words.count('text') > 15), (files, {'text', 'omitted'}, True), 'what is compared')
        alone = d.ask(f'GET /v1/plans/p/diff?detail=lines&path={root}/9').json()['changes']
        same([(c['content'], c['insertions']) for c in alone], [('text', size // 64)], 'one that was left out, alone')
        patch = d.ask(f'GET /v1/plans/p/diff?format=patch&context=0&path={root}/0&path={root}/1')
        same((patch.status, patch.body.count(b'\n+x')), (200, 2 * size // 64), 'a patch')
        patch = d.ask('GET /v1/plans/q/diff?format=patch')
        need(len(patch.body) < 1 << 20 and b'the answer is too long; ask for this path alone' in patch.body, 'rows')
        need(SANITIZED or memory(d) < 64 << 20, f'the daemon took {memory(d)} bytes')
        # The control: the user's own command compares it all.
        told = json.loads(atoll('diff', 'p', '--stat', '--json'))
        same({c['content'] for c in told['changes']}, {'text'}, 'by the command')
        need(len(atoll('diff', 'q', '--patch')) > 1500 * 3990, 'rows, by the command')


if __name__ == '__main__':
    main([half_heads_lock_nobody_out, half_heads_from_everywhere_lock_nobody_out, idle_ones_lock_nobody_out,
          who_works_gives_way_to_nobody, tls_keeps_secrets_that_are_recorded, a_diff_is_compared_up_to_its_limits])

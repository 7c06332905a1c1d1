# SPDX-License-Identifier: Apache-2.0
"""A cycle between two machines: network namespaces with a link (tests/lib/wire.py) that is slow, loses packets,
or is cut. Over TLS, with a key. Only root can make them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(os.environ.get('ATOLL_SOURCE_ROOT', '.'))
sys.path.insert(0, str(ROOT / 'tests/lib'))
from atolld import Daemon, Skip, main  # noqa: E402
from expect import need, same  # noqa: E402
from remoted import GIT_ENV, World, look, wait_until  # noqa: E402
from wire import Wire  # noqa: E402

PORT = 8443
FREE_WITHIN = 5  # seconds, after a cut
SLACK = 25       # of a machine that has other things to do, too; without a limit it is for ever


def link():
    if os.geteuid() != 0:
        raise Skip('only root can make network namespaces')
    return Wire()


def certificate(top, address):
    cert, key = f'{top}/cert.pem', f'{top}/key.pem'
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
                    '-keyout', key, '-out', cert, '-days', '2', '-subj', '/CN=there', '-addext',
                    f'subjectAltName=IP:{address}'], check=True, capture_output=True)
    os.chmod(key, 0o600)
    return cert, key


class Far(World):
    """The daemon is in one namespace, the clients are in the other."""

    def __init__(self, top, link):
        self.link = link
        self.cert, self.tls_key = certificate(top, link.address)
        super().__init__(top, f'--listen={link.address}:{PORT}', f'--socket={top}/sock', f'--tls-cert={self.cert}',
                         f'--tls-key={self.tls_key}', f'--host={link.address}')

    def make_daemon(self):
        return Daemon(self.top, *self.options, home=self.top / 'there', env={'HOME': str(self.top), **GIT_ENV},
                      command=['ip', 'netns', 'exec', self.link.there, os.environ['ATOLL_DAEMON']])

    def __enter__(self):
        self.daemon.start()
        key = self.top / 'client.key'
        made = self.atoll('token', 'new', 'client', '--scope', 'agent', env={'ATOLL_HOME': str(self.top / 'there')})
        need(made.returncode == 0, made.stderr)
        key.touch(0o600)
        key.write_bytes(made.stdout)
        wrapper = self.top / 'atoll-here'
        wrapper.write_text(f'#!/bin/sh\nexec ip netns exec {self.link.here} {self.program} "$@"\n')
        wrapper.chmod(0o755)
        self.program = str(wrapper)
        self.must('remote', 'add', 'big', f'https://{self.link.address}:{PORT}', '--key-file', str(key), '--ca-file', self.cert)
        return self

    def plan_there(self):
        done = self.atoll('list', '--json', env={'ATOLL_HOME': str(self.top / 'there')})
        return json.loads(done.stdout)['plans'][0]['name']

    def is_free(self):
        """Nobody holds the plan over there."""
        done = self.atoll('exec', '--wait', '0', self.plan_there(), '--', 'true', env={'ATOLL_HOME': str(self.top / 'there')})
        return done.returncode == 0


def link_slow_and_lossy(top):
    with link() as wire, Far(top, wire) as w:
        p = w.project(git=True)
        for i in range(50):
            p.write(f'f{i}', os.urandom(5000))
        p.good('true')
        wire.tell('delay 0.02 loss 0.02')
        for i in range(3):
            p.write(f'f{i}', f'{i}')
            data = os.urandom(200_000)
            same(p.exec('sh', '-c', f'cat f{i}; cat; echo {i} >made', input=data).stdout, f'{i}'.encode() + data, 'its output')
            same(p.read('made'), f'{i}\n'.encode(), 'what it made')
        wire.tell('plain')
        p.good('true')
        same(look(w.mirror(), leave_out=[b'.git']), p.look(), 'both sides')


def der_10_a_cut_link_frees_the_session(top):
    with link() as wire, Far(top, wire) as w:
        p = w.project()
        p.write('f', 'old\n')
        with p.start('sh', '-c', 'echo new >f; echo ready; sleep 1000', stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE) as it:
            it.stdout.readline()
            need(not w.is_free(), 'it is not held')
            wire.tell('cut')
            begun = time.monotonic()
            while not w.is_free():
                need(time.monotonic() - begun < FREE_WITHIN + SLACK, 'it is still held')
                time.sleep(0.1)
            said = it.communicate(timeout=120)[1]
        same((it.returncode, p.read('f')), (125, b'old\n'), said)
        need(b'went away' in said and b'run it again' in said, said)
        need(time.monotonic() - begun < FREE_WITHIN + 2 * SLACK, f'the client noticed after {time.monotonic() - begun} s')
        wire.tell('plain')
        same(p.good('cat f; echo new >f'), b'old\n', 'again')
        same(p.read('f'), b'new\n', 'what it changed')


def link_cut_while_it_is_pushed_and_pulled(top):
    """What was begun is dropped or pending; nothing is half here."""
    with link() as wire, Far(top, wire) as w:
        p = w.project()
        p.write('f', 'old\n')
        p.good('true')
        wire.tell('rate 500000')
        p.write('big', os.urandom(3_000_000))
        passed = Path(top) / 'passed'
        log = {'ATOLL_CRASHPOINT_LOG': str(passed)}
        passed.touch()
        it = p.start('true', stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=log)
        wait_until(lambda: 'remote.push.scanned' in passed.read_text(), 'it pushes')
        time.sleep(0.5)
        wire.tell('cut')
        same(it.wait(120), 125, it.stderr.read())
        it.stderr.close()
        wire.tell('plain')
        same(p.good('cksum <big'), subprocess.run(['cksum'], stdin=open(p.at('big')), capture_output=True, check=True).stdout,
             'pushed again')
        wire.tell('rate 500000')
        it = p.start('sh', '-c', 'head -c 3000000 /dev/urandom >made; echo new >f; echo ready', stdin=subprocess.DEVNULL,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=log)
        wait_until(lambda: 'remote.run.done' in passed.read_text(), 'it pulls')
        time.sleep(0.5)
        wire.tell('cut')
        said = it.communicate(timeout=120)[1]
        same((it.returncode, p.read('f'), p.has('made')), (0, b'old\n', False), said)
        need(b'atoll --remote big commit' in said, said)
        wire.tell('plain')
        done = p.atoll('--remote', 'big', 'commit')
        same((done.returncode, p.read('f'), os.path.getsize(p.at('made'))), (0, b'new\n', 3_000_000), done.stderr)


if __name__ == '__main__':
    main([link_slow_and_lossy, der_10_a_cut_link_frees_the_session, link_cut_while_it_is_pushed_and_pulled])

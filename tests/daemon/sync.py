# SPDX-License-Identifier: Apache-2.0
"""Sessions of remote clients through a real atolld: the cycle of push, run and pull; one client after
another; clients and daemons that die at every step; and those who do not keep to the protocol."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
import execclient  # noqa: E402
from atolld import SANITIZED, Daemon, main, request  # noqa: E402
from execclient import Refused, Session, frame  # noqa: E402
from expect import need, same  # noqa: E402

SOON = 8 if SANITIZED else 1  # seconds in which a client that went must be forgotten


def stream_of(root, *paths):
    """What atoll-sync sends of these paths, as they are below ROOT."""
    said = subprocess.run([os.environ['ATOLL_SYNC'], 'send', str(root)], input=b''.join(os.fsencode(p) + b'\0' for p in paths),
                          capture_output=True, check=False, timeout=60)
    need(said.returncode == 0, f'atoll-sync send: {said.stderr.decode()}')
    return said.stdout


def apply(root, stream):
    said = subprocess.run([os.environ['ATOLL_SYNC'], 'apply', str(root)], input=stream, capture_output=True, check=False,
                          timeout=60)
    need(said.returncode == 0, f'atoll-sync apply: {said.stderr.decode()}')


def tree(root):
    """Every entry below ROOT: type, mode, content."""
    found = {}
    for path in sorted(Path(root).rglob('*')):
        st = path.lstat()
        what = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (oct(st.st_mode), what)
    return found


class World(Daemon):
    """A daemon, a local project, and sessions for it."""

    def __init__(self, top, *options, **more):
        self.mirrors = Path(top) / 'mirrors'
        super().__init__(top, *options, f'--mirrors={self.mirrors}', **more)
        self.local = self.top / 'local'
        (self.local / 'sub').mkdir(parents=True, exist_ok=True)
        (self.local / 'n').write_text('0\n')
        (self.local / 'sub' / 'x').write_text('x\n')
        (self.local / 'link').symlink_to('sub/x')

    def atoll(self, *words):
        return subprocess.run([os.environ['ATOLL'], *words], env=self.env, cwd=self.local, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=120, check=False)

    def make(self, label='laptop:/src', key=None, **more):
        headers = ['Content-Type: application/json', *([f'Idempotency-Key: {key}'] if key else [])]
        answer = self.ask('POST /v1/sessions', {'label': label, **more}, headers=headers)
        need(answer.status == 201, f'{answer.status} {answer.body}')
        return answer.json()

    def session(self, plan, **more):
        return Session(self, plan, **more).open()

    def filled(self):
        """A session with the project in it; its plan's id and its mirror."""
        made = self.make()
        plan = made['plan']['id']
        with self.session(plan) as s:
            same(s.push(stream_of(self.local, *tree(self.local))), 1, 'the generation of the first push')
            s.shut()
        return plan, Path(made['root'])

    def events(self, plan):
        log = json.loads(self.atoll('log', '--json', plan).stdout)
        return [e['what'] for e in reversed(log['entries'])]

    def __exit__(self, kind, *rest):
        if kind is None:
            for plan in json.loads(self.atoll('list', '--json').stdout)['plans']:
                self.atoll('stop', '--force', '--yes', '--wait', '20', plan['id'])
        super().__exit__(kind, *rest)


# ---- the cycle ----

def sync_a_whole_cycle(top):
    with World(top) as d:
        made = d.make('laptop:/src (main)')
        plan, mirror = made['plan']['id'], Path(made['root'])
        same(made['generation'], 0, 'nothing was pushed')
        same(mirror.parent, d.mirrors, 'where the mirror is')
        with d.session(plan) as s:
            same(s.opened, {'generation': 0, 'pending': None, 'features': ['lock'], 'root': str(mirror)}, 'opened')
            same(s.push(stream_of(d.local, *tree(d.local))), 1, 'the first push')
            same(tree(mirror), tree(d.local), 'the mirror')
            s.ping()
            s.run('sh', '-c', 'cat n; echo 1 >n; mkdir new; echo y >new/y; rm link; exit 3')
            same((bytes(s.stdout), s.exit['exit_code'], s.exit['changes'] > 0), (b'0\n', 3, True), 'the run')
            same(tree(mirror), tree(d.local), 'the mirror, before it was received')
            stream, end = s.pull()
            same(end['run'], s.exit['run'], 'which run')
            apply(d.local, stream)
            same(s.received(end['run']), 2, 'the generation after it')
            same(tree(mirror), tree(d.local), 'the mirror is what is here')
            same((d.local / 'new' / 'y').read_text(), 'y\n', 'what it made')
            need(not (d.local / 'link').is_symlink(), 'what it removed')
            same(s.received(end['run']), 2, 'received again')
            s.shut()
        (d.local / 'n').write_text('5\n')
        with d.session(plan) as s:
            same(s.opened['generation'], 2, 'the generation')
            same(s.push(stream_of(d.local, 'n')), 3, 'the second push')
            s.run('cat', 'n')
            same((bytes(s.stdout), s.exit['changes']), (b'5\n', 0), 'the second run')
            same(s.pull(), (b'', {'changes': 0, 'run': 1}), 'nothing to pull')
            need(len(s.list()) > 20, 'a list')
            s.shut()
        same(d.ask(f'GET /v1/sessions/{plan}').json()['generation'], 3, 'what is told of it')


if __name__ == '__main__':
    main([sync_a_whole_cycle])

# SPDX-License-Identifier: Apache-2.0
"""Many clients and commands on one store for a while, of which each may be killed at any instant, and so may the
daemon. Afterwards every plan is settled, all of its resources have one version, and nothing is left: no mount,
no process, no file of a plan; and the daemon that was not killed has the descriptors, the threads and the memory
that it had at first.

    soak.py [SECONDS]      ATOLL_LONG=1: an hour; the seed is printed, ATOLL_SOAK_SEED=N repeats it as far as
                           threads let it
"""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from atolld import PATIENCE, Daemon, main, request  # noqa: E402
from expect import Broken, need, same  # noqa: E402

ATOLL = os.environ['ATOLL']
SECONDS = 3600 if os.environ.get('ATOLL_LONG') == '1' else 6
if len(sys.argv) > 1 and sys.argv[1].isdigit():
    SECONDS = int(sys.argv.pop(1))
SEED = int(os.environ.get('ATOLL_SOAK_SEED') or random.randrange(1 << 30))
JSON = ['Content-Type: application/json']
PLANS, CLIENTS, COMMANDS = 6, 5, 2
GONE = (ConnectionError, FileNotFoundError, socket.timeout, OSError)


class Soak:
    """The daemon, which is replaced when it is killed, and the plans, each with two directories."""

    def __init__(self, top, seed):
        self.top = Path(top)
        self.seed = seed
        self.over = threading.Event()
        self.broken = []
        self.counts = {}
        self.lock = threading.Lock()
        self.daemon = Daemon(top, '--stop-timeout=5', '--log=errors').start()
        for i in range(PLANS):
            for side in 'ab':
                (self.top / f'{side}{i}').mkdir()
                (self.top / f'{side}{i}' / 'file').write_text('0\n')

    def roots(self, plan):
        return [str(self.top / f'{side}{plan}') for side in 'ab']

    def count(self, what, how):
        with self.lock:
            self.counts[f'{what} {how}'] = self.counts.get(f'{what} {how}', 0) + 1

    def connect(self):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(60)
        sock.connect(str(self.top / 'sock'))
        return sock

    # ---- clients ----

    def operation(self, rng):
        i = rng.randrange(PLANS)
        plan = f'/v1/plans/p{i}'
        return rng.choice([
            ('POST /v1/plans', {'name': f'p{i}', 'resources': [{'root': r} for r in self.roots(i)]}),
            ('GET /v1/plans', None), (f'GET {plan}', None), (f'GET {plan}/diff', None), ('GET /v1/log', None),
            ('GET /v1/events', None), ('GET /v1/locks', None), ('commit', i),
            (f'POST {plan}/rollback?wait=5', {}), (f'POST {plan}/reset?wait=5', {}), (f'POST {plan}/refresh?wait=5', {}),
            (f'DELETE {plan}?wait=5', None), ('POST /v1/recover', {}), ('GET /nothing', None), ('GET /metrics', None)])

    def ask(self, sock, line, body, headers=()):
        data = request(line, body, [*JSON, *headers] if body is not None else headers)
        sock.sendall(data)
        answer = b''
        while b'\r\n\r\n' not in answer:
            piece = sock.recv(65536)
            if not piece:
                raise ConnectionError('ended')
            answer += piece
        head, _, rest = answer.partition(b'\r\n\r\n')
        size = re.search(rb'Content-Length: (\d+)', head)
        while size and len(rest) < int(size[1]):
            piece = sock.recv(65536)
            if not piece:
                raise ConnectionError('ended')
            rest += piece
        return int(head.split(b' ')[1]), head, rest

    def commit(self, sock, plan):
        status, head, said = self.ask(sock, f'GET /v1/plans/p{plan}/diff', None)
        etag = re.search(rb'ETag: (\S+)', head)
        if status != 200 or not etag:
            return status, head, said
        return self.ask(sock, f'POST /v1/plans/p{plan}/commit?wait=5', {}, [f'If-Match: {etag[1].decode()}'])

    def step(self, rng):
        """One connection, a few requests; now and then it goes in the middle of one."""
        with self.connect() as sock:
            for _ in range(rng.randrange(1, 5)):
                line, body = self.operation(rng)
                what = re.sub(r'p\d', 'p', line.split('?')[0])
                if rng.random() < 0.15:
                    data = request(line if line != 'commit' else 'GET /v1/plans', body if isinstance(body, dict) else None, JSON)
                    sock.sendall(data[:rng.randrange(len(data) + 1)])
                    time.sleep(rng.random() * 0.02)
                    return 'went'
                status, _, said = self.commit(sock, body) if line == 'commit' else self.ask(sock, line, body)
                self.count(what, status)
                if status >= 500 and status not in (503,):
                    self.broken.append(f'{line}: {status} {said}')
                if what == 'GET /v1/events':
                    time.sleep(rng.random() * 0.1)
                    return 'went'
        return 'done'

    def client(self, number):
        rng = random.Random(f'{self.seed}.{number}')
        while not self.over.is_set():
            try:
                self.step(rng)
            except GONE:
                self.count('connection', 'ended')
                time.sleep(0.02)

    # ---- commands ----

    def command(self, number):
        rng = random.Random(f'{self.seed}.c{number}')
        token = 0
        while not self.over.is_set():
            token += 1
            i = rng.randrange(PLANS)
            write = '; '.join(f'echo {number}.{token} >{r}/file' for r in self.roots(i))
            words = rng.choice([['start', f'p{i}', *[w for r in self.roots(i) for w in ('--dir', r)]],
                                ['exec', f'p{i}', '--wait', '5', '--', 'sh', '-c', write],
                                ['exec', f'p{i}', '--wait', '5', '--', 'sh', '-c', write],
                                ['commit', f'p{i}', '--wait', '5'], ['stop', f'p{i}', '--force', '--wait', '5'], ['list']])
            child = subprocess.Popen([ATOLL, *words], env=self.daemon.env, cwd=self.top, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            # A command that dies leaves half of its work in the plan, which is nobody's fault.
            if words[0] != 'exec' and rng.random() < 0.3:
                time.sleep(rng.random() * 0.05)
                child.kill()
            self.count(f'atoll {words[0]}', child.wait())

    # ---- the daemon ----

    def chaos(self):
        rng = random.Random(f'{self.seed}.d')
        while not self.over.wait(0.3 + rng.random() * 1.5):
            how = rng.choice([signal.SIGKILL, signal.SIGTERM])
            self.daemon.tell(how)
            status = self.daemon.end()
            if how == signal.SIGTERM and status != 0:
                self.broken.append(f'stopped with {status}: {self.daemon.log_path.read_text()}')
            self.count('daemon', how.name)
            self.daemon = Daemon(self.top, '--stop-timeout=5', '--log=errors').start()

    def run(self, seconds, with_chaos):
        work = [*((self.client, (i,)) for i in range(CLIENTS)), *((self.command, (i,)) for i in range(COMMANDS))]
        if with_chaos:
            work.append((self.chaos, ()))
        threads = [threading.Thread(target=self.guarded, args=w) for w in work]
        self.over.clear()
        for t in threads:
            t.start()
        self.over.wait(seconds)
        self.over.set()
        for t in threads:
            t.join()
        need(not self.broken, f'seed {self.seed}: {self.broken[:5]}')

    def guarded(self, work, args):
        try:
            work(*args)
        except Exception as why:  # noqa: B902
            self.broken.append(repr(why))
            self.over.set()

    # ---- what is left ----

    def held(self):
        """Descriptors but those of the database, which SQLite keeps to use again; threads; KiB."""
        base = Path(f'/proc/{self.daemon.process.pid}')
        size = int(re.search(r'VmRSS:\s+(\d+)', (base / 'status').read_text())[1])
        fds = 0
        for fd in (base / 'fd').iterdir():
            try:
                fds += not os.readlink(fd).endswith('/atoll.db')
            except FileNotFoundError:
                pass  # closed meanwhile
        return fds, len(list((base / 'task').iterdir())), size

    def grows(self, first):
        """Does it still hold more than it did, once what happened has come to its end? How much."""
        def more():
            now = self.held()
            return now if now[0] > first[0] + 2 or now[1] > first[1] or now[2] >= first[2] + 3 * 1024 else None
        until = time.monotonic() + 15
        while more() and time.monotonic() < until:
            time.sleep(0.1)
        return more()

    def settle(self):
        """Every plan is decided, and none is left."""
        self.atoll('recover')
        for plan in json.loads(self.atoll('list', '--json').stdout)['plans']:
            need(not plan['in_doubt'] and not plan['starting'], plan)
            if plan['state'] != 'CLOSED':
                self.atoll('stop', plan['id'], '--force')
        for i in range(PLANS):
            a, b = ((self.top / f'{side}{i}/file').read_text() for side in 'ab')
            same(a, b, f'seed {self.seed}: plan {i} has one version')
            for side in 'ab':
                same(sorted(os.listdir(self.top / f'{side}{i}')), ['file'], 'nothing lies about in a resource')

    def atoll(self, *words):
        said = subprocess.run([ATOLL, *words], env=self.daemon.env, capture_output=True, text=True, check=False, cwd=self.top)
        need(said.returncode == 0, f'seed {self.seed}: atoll {words}: {said.stderr}')
        return said

    def nothing_is_left(self):
        need(str(self.top) not in Path('/proc/self/mountinfo').read_text(), 'no mount')
        until = time.monotonic() + PATIENCE
        while True:
            left = [p for p in self.processes() if p != self.daemon.process.pid]
            if not left:
                break
            need(time.monotonic() < until, f'processes: {left}')
            time.sleep(0.1)
        plans = self.daemon.home / 'plans'
        same(sorted(os.listdir(plans)) if plans.exists() else [], [], 'nothing in the store')

    def processes(self):
        want = f'ATOLL_HOME={self.daemon.home}'.encode()
        found = []
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                if want in Path(f'/proc/{pid}/environ').read_bytes().split(b'\0'):
                    found.append(int(pid))
            except OSError:
                pass
        return found


def soak_with_kills(top):
    s = Soak(top, SEED)
    try:
        s.run(SECONDS * 2 / 3, True)
        s.settle()
        s.nothing_is_left()
        same(s.daemon.ask('GET /healthz', place=f'unix:{top}/sock').status, 200, 'the daemon')
    finally:
        print(f'# seed {SEED}: {json.dumps(s.counts, sort_keys=True)}')
        s.daemon.stop()


def soak_without_leaks(top):
    """One daemon, which is not killed. At first it takes what it then has: what a slow machine does in a second may be
    too little to warm it. Whoever leaks takes more each time."""
    s = Soak(top, SEED + 1)
    seen = []
    try:
        for _ in range(6):
            s.run(SECONDS / 6, False)
            s.settle()
            if seen and not s.grows(seen[-1]):
                break
            time.sleep(0.5)
            seen.append(s.held())
        else:
            raise Broken(f'descriptors, threads, KiB: {seen}')
        s.nothing_is_left()
    finally:
        print(f'# seed {SEED + 1}: {json.dumps(s.counts, sort_keys=True)}; {s.held() if s.daemon.process.poll() is None else None}')
        status = s.daemon.stop()
    same(status, 0, 'exit status')


if __name__ == '__main__':
    main([soak_with_kills, soak_without_leaks])

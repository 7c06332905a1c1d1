# SPDX-License-Identifier: Apache-2.0
"""What the soak is made of: things with a version, a daemon that is killed and comes back, requests that get
lost, and clients that are a nuisance."""

import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

from atolld import PATIENCE, SANITIZED, Wire, request
from execclient import frame
from expect import Broken, need, same
from served import Served

LATE = 4 * PATIENCE  # a machine that does ten other things
CUT = 0.12  # of requests are cut somewhere
GROWTH_KB = (256 if SANITIZED else 12) << 10  # once it was warm


# ---- things with a version: all parts of one are of the same ----

class Directory:
    strategy = {}

    def __init__(self, top):
        self.root = top / 'd'
        (self.root / 'n').mkdir(parents=True)
        self.run(self.script(0))

    def run(self, script):
        subprocess.run(['sh', '-c', script], check=True, stdin=subprocess.DEVNULL, capture_output=True)

    def script(self, v):
        return f'cd {self.root}; for f in a b n/c d; do echo {v} >$f; done; rm -f v.*; echo {v} >v.{v}; ' \
               f'yes {v} | head -20000 >big; rm -rf m; mkdir -p m/{v}; chmod {"700" if v % 2 else "755"} n'

    def versions(self):
        seen = [(self.root / name).read_text().strip() for name in ('a', 'b', 'n/c', 'd')]
        seen += [path.name[2:] for path in self.root.glob('v.*')] + os.listdir(self.root / 'm')
        big = (self.root / 'big').read_text().split('\n')
        seen += [big[0], big[10000], big[-2], str(len(big) == 20001 and big[0])]
        seen.append(seen[0] if (self.root / 'n').stat().st_mode & 0o777 == (0o700 if int(seen[0]) % 2 else 0o755) else 'mode')
        need(len(seen) == 11, f'{self.root}: {seen}')
        return seen


class Repository(Directory):
    strategy = {'strategy': 'git'}

    def __init__(self, top):
        self.root = top / 'g'
        self.root.mkdir()
        self.run(f'cd {self.root} && git init -q && git config user.name n && git config user.email e && '
                 'git config gc.auto 0 && touch a b')
        self.run(self.script(0))

    def script(self, v):
        # A command that was killed leaves locks of git, as anywhere.
        return f'cd {self.root}; find .git -name "*.lock" -delete; echo {v} >a; echo {v} >b; git add a b; ' \
               f'git commit -qm {v}; git update-ref refs/heads/v HEAD'

    def git(self, *words):
        return subprocess.run(['git', '-C', self.root, *words], stdin=subprocess.DEVNULL, text=True, check=True,
                              stdout=subprocess.PIPE).stdout.strip()

    def versions(self):
        locks = [str(path) for path in (self.root / '.git').rglob('*.lock')]
        same((locks, self.git('status', '--porcelain')), ([], ''), f'{self.root} is clean')
        return [(self.root / 'a').read_text().strip(), (self.root / 'b').read_text().strip(), self.git('show', 'HEAD:a'),
                self.git('log', '-1', '--format=%s'), self.git('log', '-1', '--format=%s', 'v')]


class Database(Directory):
    strategy = {'strategy': 'sqlite'}

    def __init__(self, top):
        self.root = top / 'db'
        self.sql('pragma journal_mode=wal; create table t(k integer primary key, v); insert into t values'
                 '(1,0),(2,0),(3,0),(4,0)')

    def sql(self, text):
        db = sqlite3.connect(self.root, timeout=PATIENCE)
        try:
            db.executescript(text)
            return [row[0] for row in db.execute('select v from t')]
        finally:
            db.close()

    def script(self, v):
        each = ';'.join(f'update t set v={v} where k={k}' for k in (1, 2, 3, 4))
        return f'sqlite3 {self.root} "{each}"'

    def versions(self):
        return [str(v) for v in self.sql('pragma quick_check')]


KINDS = {'d': Directory, 'g': Repository, 's': Database}


# ---- a daemon that comes and goes ----

class Soaked(Served):
    """epoch: how often it was made to end; who loses a connection in one epoch has found something."""

    def __init__(self, top, seed):
        super().__init__(top, '--max-per-address=200', '--stop-timeout=20')
        self.seed, self.epoch, self.over, self.failed = seed, 0, threading.Event(), []
        self.count, self.counts = threading.Lock(), {}

    def did(self, what):
        with self.count:
            self.counts[what] = self.counts.get(what, 0) + 1

    def kill(self, how):
        need(self.process.poll() is None, f'atolld ended by itself, with {self.process.returncode}: {self.words()}')
        self.epoch += 1
        self.tell(how)
        status = self.end(LATE)
        need(status == (0 if how == signal.SIGTERM else -how), f'atolld ended with {status} by {how}: {self.words()}')
        self.start()
        self.epoch += 1  # no sooner: a child that was about to be another program had the socket open, too
        self.did(how.name)

    def words(self):
        said = self.log_path.read_text()
        at = said.find('Sanitizer:')
        return said[at:] if at >= 0 else ''.join(said.splitlines(keepends=True)[-20:])

    def reach(self, by_tcp):
        """A connection, once there is a daemon again."""
        until = time.monotonic() + LATE
        while True:
            try:
                if by_tcp:
                    sock = socket.create_connection(('127.0.0.1', self.port), PATIENCE)
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                else:
                    sock = socket.socket(socket.AF_UNIX)
                    sock.settimeout(PATIENCE)
                    sock.connect(self.socket)
                return Wire(sock, LATE)
            except (ConnectionError, FileNotFoundError):
                sock.close() if not by_tcp else None
                need(time.monotonic() < until, 'there is no daemon')
                need(not self.failed, 'somebody else failed')
                time.sleep(0.05)

    def connect(self, place=None, tls=None, timeout=PATIENCE):
        return self.reach(place == 'tcp')

    # ---- what it holds ----

    def held(self):
        """Descriptors but those of the database, threads, KiB; and those of the database. SQLite closes none of
        these while another connection has it open, and uses them again: there are as many as ever were at once."""
        pid = self.process.pid
        links = [os.readlink(f'/proc/{pid}/fd/{n}') for n in os.listdir(f'/proc/{pid}/fd')]
        database = sum(link.endswith('/atoll.db') for link in links)
        rss = next(int(line.split()[1]) for line in Path(f'/proc/{pid}/status').read_text().splitlines()
                   if line.startswith('VmRSS:'))
        return len(links) - database, len(os.listdir(f'/proc/{pid}/task')), rss, database

    def rest(self):
        """held(), once nothing moves any more."""
        last, until = None, time.monotonic() + 15
        while time.monotonic() < until:
            time.sleep(0.5)
            now = self.held()
            if last and now[:2] == last[:2] and now[1] < 10:
                break
            last = now
        return self.held()


class Lost(Exception):
    """No answer. done: False: it cannot have been heard."""

    def __init__(self, done=None):
        super().__init__('lost')
        self.done = done


def wait_for_end(port, theirs):
    """Until the daemon, too, has let go of a TCP connection: what it did for it is over."""
    ends = (f'0100007F:{theirs:04X}', f'0100007F:{port:04X}')
    until = time.monotonic() + LATE
    while True:
        with open('/proc/net/tcp', encoding='ascii') as table:
            rows = [line.split() for line in table]
        if not any((row[1], row[2]) == ends and row[3] in ('01', '08') for row in rows[1:]):
            return
        need(time.monotonic() < until, 'a connection that was closed is kept')
        time.sleep(0.01)


class Client:
    """One of many, with a random sequence of its own."""

    def __init__(self, s, name):
        self.s, self.name, self.r = s, name, random.Random(f'{s.seed} {name}')
        self.history, self.serial = [], 0

    def note(self, text):
        self.history.append(f'{time.monotonic():.3f} {text}')
        del self.history[:-60]

    def drop(self, wire, by_tcp):
        """Away, at once; and no sooner on than the daemon is done with it."""
        if by_tcp:
            mine, theirs = wire.sock.getsockname()[1], wire.sock.getpeername()[1]
            wire.close()
            wait_for_end(mine, theirs)
            return
        try:
            wire.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        need(wire.is_closed(LATE), 'a connection that was shut down is kept')
        wire.close()

    def ask(self, line, body=None, key=None, cut=True, **headers):
        """The answer, or Lost. With KEY by TCP."""
        if '?' not in line:
            line += f'?wait={LATE}'
        fields = [f'{name.replace("_", "-")}: {value}' for name, value in headers.items()]
        fields += ['Content-Type: application/json'] if body is not None else []
        fields += [f'Authorization: Bearer {key}'] if key else []
        data, epoch = request(line, body, fields), self.s.epoch
        wire = self.s.reach(bool(key))
        try:
            if cut and self.r.random() < CUT:
                at = self.r.choice((len(data), self.r.randrange(len(data))))
                self.note(f'{line} cut at {at} of {len(data)}')
                wire.send(data[:at])
                if at == len(data):
                    time.sleep(self.r.random() ** 3)
                self.drop(wire, bool(key))
                self.s.did('cut')
                raise Lost(None if at == len(data) else False)
            wire.send(data)
            answer = wire.answer()
        except (OSError, Broken) as why:
            self.note(f'{line}: {why}')
            self.must_be_dead(epoch, f'{line}: {why}')
            raise Lost() from why
        finally:
            wire.close()
        self.note(f'{line} {body or ""} by {key and key[:3]}: {answer.status} {answer.body[:300]}')
        if answer.status == 0:
            self.must_be_dead(epoch, f'{line}: no answer')
            raise Lost()
        if answer.status == 503:
            self.must_be_dead(epoch, f'{line}: {answer.body}')
            raise Lost()
        need(answer.status != 500, f'{line}: {answer.body}')
        self.s.did('/'.join(word for at, word in enumerate(line.partition('?')[0].split('/')) if at not in (3, 5)))
        return answer

    def must_be_dead(self, epoch, text):
        need(self.s.epoch != epoch or epoch % 2, f'a daemon that nobody ends: {text}')

    def insist(self, line, *more, want=(200,), **rest):
        """Again until there is an answer. For what may be done twice."""
        until = time.monotonic() + LATE
        while True:
            need(time.monotonic() < until, f'{line}: no answer')
            try:
                answer = self.ask(line, *more, **rest)
            except Lost:
                time.sleep(0.02)
                continue
            if answer.status == 409 and answer.json()['code'] == 'busy':  # the first try is under way
                time.sleep(0.05)
                continue
            need(answer.status in want, f'{line}: {answer.status} {answer.body}')
            return answer

    def fresh(self):
        self.serial += 1
        return self.serial

    def run(self):
        try:
            while not self.s.over.is_set() and not self.s.failed:
                self.life()
        except BaseException as why:  # noqa: B902
            if str(why) != 'somebody else failed':
                self.s.failed.append(f'{self.name}: {type(why).__name__}: {why}\n' + '\n'.join(self.history[-25:]) +
                                     f'\nthe daemon: {self.s.words()}')


# ---- those who only listen, go, or kill ----

class Pest(Client):
    """Connections that end anywhere: in a head, a body, a frame, an answer, a stream."""

    def life(self):
        epoch = self.s.epoch
        plan = self.s.common
        whole = self.r.choice((
            f'GET /v1/plans/{plan}/diff HTTP/1.1\r\nHost: localhost\r\n\r\n',
            'GET /v1/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n',
            'GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n' * 3,
            'POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"resources": [' + '{"root": "/x"},' * 40,
            f'POST /v1/plans/{plan}/exec?wait=1 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n'
            'Upgrade: atoll-exec/1\r\n\r\n',
            'GET /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n',
            'GET /v1/keys HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer atk_x\r\n\r\n')).encode()
        if b'Upgrade' in whole:
            whole += frame(3, json.dumps({'argv': self.r.choice((['yes'], ['cat'], ['sleep', '1000'], ['none-such']))}).encode())
            whole += frame(0, b'x' * 1000)
        data = whole[:self.r.randrange(len(whole))] if self.r.random() < 0.4 else whole
        by_tcp = self.r.random() < 0.3
        wire = self.s.reach(by_tcp)
        if by_tcp and self.r.random() < 0.5:  # with a reset
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0')
        try:
            wire.sock.settimeout(self.r.random() ** 3)
            wire.send(data)
            for _ in range(self.r.randrange(5)):
                if not wire.sock.recv(self.r.randrange(1, 5000)):
                    break
        except OSError:
            pass
        finally:
            wire.close()
        need(epoch % 2 or self.s.epoch != epoch or self.s.process.poll() is None, 'the daemon ended')
        self.s.did('pests')
        time.sleep(self.r.random() * 0.1)


class Follower(Client):
    """Hears everything, once, in order, though it is cut off again and again."""

    def __init__(self, s, name):
        super().__init__(s, name)
        self.last = s.newest()
        self.heard = []

    def life(self, until=None):
        epoch = self.s.epoch
        wire = self.s.reach(False)
        end = time.monotonic() + self.r.uniform(0.1, 5)
        try:
            wire.send(f'GET /v1/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {self.last}\r\n\r\n'.encode())
            answer = wire.answer(head=True)
            if answer.status in (0, 503):
                raise Broken('none')
            same(answer.status, 200, 'a stream')
            text = b''
            wire.sock.settimeout(1)
            while (self.last < until) if until else (time.monotonic() < end and not self.s.over.is_set()):
                text = self.take(text + wire.chunk())
                self.s.did('events')
        except TimeoutError:
            pass
        except (OSError, Broken, ValueError) as why:
            need(type(why) is not Broken or 'heard' not in str(why), str(why))
            if not until:
                self.must_be_dead(epoch, f'events: {why}')
        finally:
            wire.close()

    def take(self, text):
        *whole, rest = text.split(b'\n\n')
        for one in whole:
            fields = dict(line.partition(': ')[::2] for line in one.decode().split('\n'))
            if 'id' in fields and 'data' not in fields:
                need(int(fields['id']) >= self.last, f'heard {fields} after {self.last}')
                self.last = int(fields['id'])
            if 'data' not in fields:
                continue
            event, seq = json.loads(fields['data']), int(fields['id'])
            need(event['what'] != 'gap' and seq > self.last, f'heard {fields} after {self.last}')
            self.last = seq
            self.heard.append((seq, event['what'], event['plan']['id'] if event['plan'] else ''))
        return rest


class Recorder(Client):
    """What was in the news, for as long as they are kept."""

    def __init__(self, s, name):
        super().__init__(s, name)
        self.first = self.last = s.newest()
        self.rows = []

    def life(self):
        rows = [tuple(row) for row in self.s.sql('SELECT seq, what, plan FROM news WHERE seq > ? ORDER BY seq', self.last)]
        self.rows += rows
        self.last = rows[-1][0] if rows else self.last
        self.s.over.wait(0.5)


class Killer(Client):
    def life(self):
        if not self.s.over.wait(self.r.uniform(0.5, 4)):
            self.s.kill(self.r.choice((signal.SIGKILL,) * 3 + (signal.SIGTERM,)))

# SPDX-License-Identifier: Apache-2.0
"""A daemon under many clients at once that do all there is to do, while clients go in the middle of heads,
bodies, streams and frames, the daemon is killed and comes back, and commands work on the same store.

    soak-model.py [--minutes N] [--seed N]    two thirds of it as root, and a third as an
                                              ordinary user

In the first half the daemon is killed, in the second it is watched for what it keeps. Each worker has things
of its own in which every part has the same version, so what must be there is known after every
acknowledged request, and is one of two after one that was lost.
"""

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
sys.path.insert(0, str(Path(__file__).resolve().parent))
from atolld import PATIENCE, SANITIZED, main  # noqa: E402
from execclient import Exec, frame, lines  # noqa: E402
from expect import Broken, need, same  # noqa: E402
from served import ATOLL  # noqa: E402
from soaked import GROWTH_KB, KINDS, LATE, Client, Follower, Killer, Lost, Pest, Recorder, Soaked  # noqa: E402

LONG = os.environ.get('ATOLL_LONG') == '1'
# The same bytes each time, from no file: a command sees none beside its resources.
PRINT = 'python3 -c "import random, sys; sys.stdout.buffer.write(random.Random(1).randbytes(100000))"'
WORKERS, PESTS = (3, 2) if SANITIZED else (6, 3)


class Worker(Client):
    """Plans over its own things. real: the version that is there; work: that of the plan, None: a mixture."""

    def __init__(self, s, name):
        super().__init__(s, name)
        self.top = s.top / name
        self.top.mkdir()
        self.every = {kind: make(self.top) for kind, make in KINDS.items()}
        self.versions = dict.fromkeys(self.every, 0)

    # ---- what must be there ----

    def look(self, maybe):
        """The version of the real things, one of MAYBE, and of all of them."""
        until = time.monotonic() + LATE
        while self.insist(f'POST /v1/plans/{self.plan}/recover', want=(200, 423), cut=False).status != 200:
            need(time.monotonic() < until, 'the plan is never free')
        shown = self.insist(f'GET /v1/plans/{self.plan}', cut=False).json()
        need(not shown['in_doubt'], f'after a recovery: {shown}')
        seen = {thing.root: thing.versions() for thing in self.things}
        found = {version for versions in seen.values() for version in versions}
        need(len(found) == 1 and int(next(iter(found))) in maybe, f'{maybe} is due, and there is {seen}')
        return int(found.pop())

    def lost(self, done, *maybe):
        self.real = self.look({self.real} if done is False else {self.real, *maybe})

    # ---- from its start to its stop ----

    def life(self):
        kinds = self.r.choice(('d', 'd', 'g', 's', 'ds', 'dgs'))
        version = max(self.versions.values()) if len(kinds) > 1 else self.versions[kinds]
        for kind in kinds:
            if self.versions[kind] != version:
                self.every[kind].run(self.every[kind].script(version))
        self.things = [self.every[kind] for kind in kinds]
        self.base = self.real = self.work = version
        self.start()
        self.token = self.insist(f'POST /v1/sandboxes/{self.plan}/auth', {'ttl': 3600}, want=(201,)).json()['token']
        self.s.secrets.append(self.token)
        ops = (self.exec,) * 4 + (self.commit,) * 4 + (self.stale, self.rollback, self.reset, self.ask_for_it, self.job,
                                                       self.diff, self.by_command, self.revoke)
        for _ in range(self.r.randint(3, 10)):
            if self.s.over.is_set() or self.s.failed:
                break
            self.r.choice(ops)()
        self.stop()
        for kind in kinds:
            self.versions[kind] = self.real
        self.s.did('lives')

    def start(self):
        key = f'{self.name}-{self.fresh()}-{self.s.round}'
        body = {'resources': [{'root': str(thing.root), **thing.strategy} for thing in self.things]}
        made = self.insist('POST /v1/plans', body, want=(201,), Idempotency_Key=key).json()['plan']
        self.plan = made['id']
        if self.r.random() < 0.3:
            again = self.insist('POST /v1/plans', body, want=(201,), Idempotency_Key=key).json()['plan']
            same(again['id'], self.plan, 'made once')
        mine = [row[0] for row in self.s.sql('SELECT DISTINCT plan FROM sandbox WHERE root LIKE ?', f'{self.top}/%')]
        same(mine, [self.plan], 'one plan')
        need(self.plan in [p['id'] for p in self.insist('GET /v1/plans').json()['plans']], 'it is in the list')

    def stop(self):
        try:
            self.ask(f'DELETE /v1/plans/{self.plan}?force=true&wait={LATE}')
        except Lost:
            self.insist(f'DELETE /v1/plans/{self.plan}?force=true&wait={LATE}', want=(200, 404))
        seen = {thing.root: set(thing.versions()) for thing in self.things}
        same(seen, {thing.root: {str(self.real)} for thing in self.things}, 'after the stop')

    # ---- work ----

    def script(self, version):
        return 'set -e; ' + '; '.join(thing.script(version) for thing in self.things)

    def cwd(self):
        return str(self.things[0].root if self.things[0].root.is_dir() else self.top)

    def exec(self):
        version, self.work = self.fresh(), None
        form = self.r.choice((self.by_frames, self.by_frames, self.at_a_terminal, self.by_lines))
        epoch = self.s.epoch
        try:
            code = form(self.script(version), *self.r.choice((('unix', ()), ('tcp', (f'Authorization: Bearer {self.token}',)))))
        except Lost:
            self.s.did('exec lost')
            return
        except (OSError, Broken) as why:
            self.note(f'exec: {why}')
            self.must_be_dead(epoch, f'exec: {why}')
            return
        self.note(f'exec {version} by {form.__name__}: {code}')
        if code == 0:
            self.work = version
        else:  # ended, as the daemon was
            self.must_be_dead(epoch, f'exec ended with {code}')
        self.s.did(form.__name__)

    def gone(self, e, place):
        self.note('exec: gone')
        self.drop(e.wire, place == 'tcp')
        raise Lost()

    def is_cut(self):
        return self.r.random() < 0.15

    def code_of(self, e):
        e.finish()
        if e.error:
            need(e.error['status'] == 503, f'exec: {e.error}')
            return e.error['code']
        return e.exit['exit_code']

    def by_frames(self, script, place, headers):
        data = self.r.randbytes(self.r.randrange(200000))
        with Exec(self.s, self.plan, place=place, headers=headers, wait=LATE, cwd=self.cwd(),
                  argv=['sh', '-c', f'({script}) >&2; code=$?; cat; exit $code']) as e:
            if e.answer.status == 503:
                return 503
            same(e.answer.status, 101, f'exec: {e.answer.body}')
            e.sock.settimeout(LATE)
            if self.is_cut():
                if self.r.random() < 0.5:
                    e.write(frame(0, data[:60000])[:self.r.randrange(5000)])
                time.sleep(self.r.random() ** 3)
                self.gone(e, place)
            e.sock.setblocking(False)
            e.send(data)
            e.end_input()
            code = self.code_of(e)
            need(code != 0 or bytes(e.stdout) == data, f'{len(e.stdout)} bytes of {len(data)} came back: {bytes(e.stderr)!r}')
            self.note(f'stderr: {bytes(e.stderr[-300:])!r}')
            return code

    def at_a_terminal(self, script, place, headers):
        with Exec(self.s, self.plan, place=place, headers=headers, wait=LATE, cwd=self.cwd(), terminal=True, rows=20,
                  columns=70, argv=['sh', '-c', f'{script}; stty size; read a; exit $a']) as e:
            if e.answer.status == 503:
                return 503
            same(e.answer.status, 101, f'exec: {e.answer.body}')
            if self.is_cut():
                time.sleep(self.r.random() ** 3)
                e.sock.settimeout(LATE)
                self.gone(e, place)
            e.resize(30, 90)
            e.send(b'0\n')
            return self.code_of(e)

    def by_lines(self, script, place, headers):
        if self.is_cut():
            with self.s.connect(place) as wire:
                body = json.dumps({'argv': ['sh', '-c', script], 'cwd': self.cwd()})
                wire.send('\r\n'.join([f'POST /v1/plans/{self.plan}/exec?wait={LATE} HTTP/1.1', 'Host: localhost', *headers,
                                       'Content-Type: application/json', f'Content-Length: {len(body)}', '', body]).encode())
                time.sleep(self.r.random() ** 3)
                self.drop(wire, place == 'tcp')
                raise Lost()
        answer, said = lines(self.s, self.plan, place=place, headers=headers, wait=LATE, cwd=self.cwd(),
                             argv=['sh', '-c', f'({script}) >&2 && {PRINT}'])
        if answer.status in (0, 503):
            return 503
        same(answer.status, 200, f'exec: {answer.body}')
        if not said or said[-1]['type'] != 'exit':
            return f'{said[-1:]}'
        got = b''.join(base64.b64decode(x['data_b64']) if 'data_b64' in x else x['data'].encode()
                       for x in said if x['type'] == 'stdout')
        code = said[-1]['exit_code']
        need(code != 0 or hashlib.sha256(got).digest() == self.s.sum, f'{len(got)} bytes came, and others')
        return code

    def job(self):
        version, self.work, name = self.fresh(), None, f'j{self.serial}'
        body = {'background': name, 'argv': ['sh', '-c', self.script(version)], 'cwd': self.cwd()}
        self.insist(f'POST /v1/plans/{self.plan}/exec', body, want=(202,), Idempotency_Key=f'{self.plan}-{name}')
        until = time.monotonic() + LATE
        if self.r.random() < 0.2:
            self.insist(f'DELETE /v1/plans/{self.plan}/jobs/{name}', want=(200, 404, 409))
            return
        while True:
            job = self.insist(f'GET /v1/plans/{self.plan}/jobs/{name}').json()['jobs'][0]
            if job['state'] != 'running':
                break
            need(time.monotonic() < until, f'it never ends: {job}')
            time.sleep(0.05)
        same((job['state'], job['exit_code']), ('ended', 0), f'{job}')
        self.work = version

    def by_command(self):
        """The same by atoll, which may be killed."""
        version, before = self.fresh(), self.work
        what = self.r.choice(('exec', 'commit', 'reset', 'log'))
        words = {'exec': ['exec', f'--cwd={self.cwd()}', '--wait', str(LATE), self.plan, '--', 'sh', '-c', self.script(version)],
                 'commit': ['commit', '--yes', '--wait', str(LATE), self.plan], 'log': ['log', self.plan],
                 'reset': ['reset', '--yes', '--wait', str(LATE), self.plan]}[what]
        if what == 'commit' and (before is None or before == self.real):
            return
        child = subprocess.Popen([ATOLL, *words], env=self.s.env, cwd=self.s.top, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        killed = self.r.random() < 0.3
        if killed:
            time.sleep(self.r.random() ** 2)
            child.kill()
        said = child.communicate(timeout=LATE)[0].decode(errors='replace')
        self.note(f'atoll {what} {version}: {child.returncode}, killed {killed}: {said[-300:]}')
        need(child.returncode == 0 or killed, f'atoll {words}: {child.returncode}: {said}')
        sure = child.returncode == 0
        if what == 'exec':
            self.work = version if sure else None
        elif what == 'commit':
            self.real = self.look({before} if sure else {self.real, before})
        elif what == 'reset':
            self.work = self.real if sure else None
        self.s.did(f'atoll {what}{"" if sure else " killed"}')

    # ---- decisions ----

    def digest(self):
        got = self.insist(f'GET /v1/plans/{self.plan}/diff')
        same(bool(got.json()['changes']), self.work != self.real, f'changes, {self.work} over {self.real}: {got.body[:500]}')
        return got.headers['etag']

    def known(self):
        """Work that is known, and something to commit."""
        for _ in range(20):
            if self.work not in (None, self.real):
                return True
            self.exec()
            if self.s.failed:
                return False
        return False

    def commit(self):
        if not self.known():
            return
        etag, wanted = self.digest(), self.work
        try:
            got = self.ask(f'POST /v1/plans/{self.plan}/commit', key=self.r.choice((None, self.s.admin)), If_Match=etag)
        except Lost as why:
            self.lost(why.done, wanted)
            self.s.did('commit lost: ' + ('done' if self.real == wanted else 'not done'))
        else:
            same(got.status, 200, f'commit: {got.body}')
            self.real = self.look({wanted})
        self.digest()

    def stale(self):
        if not self.known():
            return
        etag, looked_at = self.digest(), self.work
        self.exec()
        try:
            got = self.ask(f'POST /v1/plans/{self.plan}/commit', If_Match=etag)
            need(got.status == 412 or self.work is None, f'of what is no more: {got.status} {got.body}')
        except Lost:
            pass
        # A command that was lost may not have begun.
        self.real = self.look({self.real} if self.work is not None else {self.real, looked_at})

    def rollback(self):
        try:
            got = self.ask(f'POST /v1/plans/{self.plan}/rollback')
        except Lost as why:
            if why.done is not False:
                self.lost(None, self.base)
                self.work = None
            return
        need(got.status in (200, 409), f'rollback: {got.status} {got.body}')
        if got.status == 200:
            self.real = self.look({self.base})
            self.work = None if self.work is None else self.base

    def reset(self):
        try:
            got = self.ask(f'POST /v1/plans/{self.plan}/reset', key=self.r.choice((None, self.s.admin, self.token)))
        except Lost as why:
            self.work = self.work if why.done is False else None
            return
        same(got.status, 200, f'reset: {got.body}')
        self.work = self.real
        self.look({self.real})
        self.digest()

    def ask_for_it(self):
        if not self.known():
            return
        body = {'message': f'of {self.work}', 'digest': self.digest().strip('"')}
        made = self.insist(f'POST /v1/plans/{self.plan}/asks', body, self.token, want=(201,),
                           Idempotency_Key=f'a{self.fresh()}').json()
        asks = self.insist(f'GET /v1/plans/{self.plan}/asks').json()['asks']
        mine = [a['id'] for a in asks if a['message'] == body['message'] and a['state'] == 'open']
        same(mine, [made['id']], f'one ask: {asks}')
        if self.r.random() < 0.5:
            self.insist(f'DELETE /v1/plans/{self.plan}/asks/{made["id"]}', want=(204, 404, 409))

    def diff(self):
        for query in self.r.sample(('format=patch', 'format=stat', 'detail=lines', 'detail=patch&context=0', 'limit=2'), 2):
            self.insist(f'GET /v1/plans/{self.plan}/diff?{query}', key=self.r.choice((None, self.token)))
        for path in self.r.sample(('/v1/plans', '/v1/log', '/v1/jobs', '/v1/locks', '/v1/asks', '/metrics', '/v1/keys'), 3):
            self.insist(f'GET {path}' + ('' if path.startswith('/v1') else '?'), key=self.r.choice((None, self.s.admin)))

    def revoke(self):
        """What was revoked, and acknowledged, is refused from then on, whoever died meanwhile."""
        self.insist(f'DELETE /v1/sandboxes/{self.plan}/auth')
        self.insist(f'GET /v1/plans/{self.plan}', key=self.token, want=(401, 429), cut=False)
        self.token = self.insist(f'POST /v1/sandboxes/{self.plan}/auth', {'ttl': 3600}, want=(201,)).json()['token']
        self.s.secrets.append(self.token)
        name = f'{self.name}-{self.fresh()}-{self.s.round}'
        made = self.insist('POST /v1/keys', {'name': name, 'scope': 'review'}, want=(201, 409), Idempotency_Key=name)
        if made.status == 201:
            self.s.secrets.append(made.json()['secret'])
            self.insist('GET /v1/plans', key=made.json()['secret'], cut=False)
        self.insist(f'DELETE /v1/keys/{name}', want=(200, 404))
        if made.status == 201:
            self.insist('GET /v1/plans', key=made.json()['secret'], cut=False, want=(401, 429))


class Soak(Soaked):
    def newest(self):
        return self.sql('SELECT coalesce(max(seq), 0) FROM news')[0][0]

    def prepare(self):
        self.round = 0
        self.sum = hashlib.sha256(subprocess.run(PRINT, shell=True, check=True, capture_output=True).stdout).digest()
        self.admin = self.key('admin', 'admin')
        self.common = self.plan('common')
        self.workers = [Worker(self, f'w{i}') for i in range(WORKERS)]
        self.followers = [Follower(self, f'follower{i}') for i in range(2)]
        self.recorder = Recorder(self, 'recorder')

    def play(self, seconds, *more):
        """All clients for so long, and until each is at the end of what it does."""
        self.round += 1
        self.over.clear()
        pests = [Pest(self, f'pest{i}-{self.round}') for i in range(PESTS)]
        threads = [threading.Thread(target=client.run, name=client.name)
                   for client in (*self.workers, *self.followers, self.recorder, *pests, *more)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.failed:
            time.sleep(0.1)
        self.over.set()
        for thread in threads:
            thread.join(2 * LATE)
            need(self.failed or not thread.is_alive(), f'{thread.name} never ends: {self.words()}')
        need(not self.failed, f'seed {self.seed}:\n' + '\n'.join(self.failed[:2]))

    def compare_news(self):
        self.recorder.life()
        for follower in self.followers:
            for _ in range(20):
                if follower.last < self.recorder.last:
                    follower.life(until=self.recorder.last)
            heard, rows = follower.heard, self.recorder.rows
            same((len(heard), sorted(set(rows) ^ set(heard))[:5]), (len(rows), []),
                 f'seed {self.seed}: what {follower.name} heard')
            same(heard, rows, 'in order')

    def finish(self):
        """Nothing is left."""
        self.atoll('stop', '--force', '--yes', '--wait', '60', 'common', check=True)
        same(json.loads(self.atoll('list', '--json').stdout)['plans'], [], 'plans that are left')
        self.atoll('clean', check=True)
        self.atoll('log', '--audit', '--check', check=True)
        same(os.listdir(self.home / 'plans'), [], 'areas that are left')
        for worker in self.workers:
            same(set(os.listdir(worker.top)) - {'d', 'g', 'db', 'db-wal', 'db-shm'}, set(), 'beside the things')

    def nothing_runs(self):
        mounts = [line for line in Path('/proc/self/mountinfo').read_text().splitlines() if str(self.top) in line]
        same(mounts, [], 'mounts that are left')
        until = time.monotonic() + PATIENCE
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.1)
        same(left, [], 'processes that are left')

    def processes(self):
        found = []
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                if int(pid) != os.getpid() and str(self.home).encode() in Path(f'/proc/{pid}/environ').read_bytes():
                    found.append((pid, Path(f'/proc/{pid}/cmdline').read_bytes()))
            except OSError:
                pass
        return found


def soak(top):
    seconds = float(os.environ.get('ATOLL_SOAK_MINUTES', 10 if LONG else 0.3)) * 60 * (2 if os.geteuid() == 0 else 1) / 3
    seed = os.environ.get('ATOLL_SOAK_SEED') or str(int.from_bytes(os.urandom(4), 'big'))
    print(f'# seed {seed}: soak-model.py --seed {seed} --minutes {seconds / 60 * (1.5 if os.geteuid() == 0 else 3):.3g}', flush=True)
    with Soak(top, seed) as s:
        s.prepare()
        s.play(seconds * 0.5, Killer(s, 'killer'))
        s.restart()
        s.play(seconds * 0.2)
        before = s.rest()
        s.play(seconds * 0.3)
        after = s.rest()
        print(f'# descriptors, threads, KiB, of the database: {before}, then {after}', flush=True)
        need(after[0] <= before[0] + 2 and after[1] <= before[1] + 1 and after[2] - before[2] < GROWTH_KB and
             after[3] <= max(before[3] + 2, 2 * (WORKERS + PESTS)), f'seed {seed}: descriptors, threads, KiB, of the database: {before}, then {after}')
        s.compare_news()
        s.finish()
    s.nothing_runs()
    print('# ' + ', '.join(f'{what} {n}' for what, n in sorted(s.counts.items())), flush=True)


if __name__ == '__main__':
    while sys.argv[1:2] and sys.argv[1] in ('--minutes', '--seed'):
        os.environ['ATOLL_SOAK_' + sys.argv[1][2:].upper()] = sys.argv[2]
        del sys.argv[1:3]
    main([soak])

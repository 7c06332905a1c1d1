# SPDX-License-Identifier: Apache-2.0
"""Commands through a real atolld: what goes in and comes out, signals, terminals, clients that go, and
a daemon that goes."""

import base64
import hashlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
import execclient  # noqa: E402
from atolld import PATIENCE, SANITIZED, Daemon, Skip, certificate, main, request  # noqa: E402
from execclient import Exec, frame, lines, run  # noqa: E402
from expect import need, same  # noqa: E402

LONG = bool(os.environ.get('ATOLL_LONG'))
BULK = (100 if LONG else 4 if SANITIZED else 24) << 20
SOON = 30 if SANITIZED else 1  # seconds in which a client that went must be forgotten


class World(Daemon):
    """A daemon, and plans on its store made by the command."""

    def __init__(self, top, *options, **more):
        super().__init__(top, *options, **more)
        self.dir = self.top / 'dir'
        self.dir.mkdir()
        (self.dir / 'file').write_text('old\n')

    def atoll(self, *words, check=True):
        said = subprocess.run([os.environ['ATOLL'], *words], env=self.env, cwd=self.dir, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=120, check=False)
        need(not check or said.returncode == 0, f'atoll {words}: {said.stderr.decode()}')
        return said

    def plan(self, name):
        self.atoll('start', name, '--dir', str(self.dir))
        return name

    def ident(self, name):
        return next(p['id'] for p in json.loads(self.atoll('list', '--json').stdout)['plans'] if p['name'] == name)

    def is_free(self, plan, within):
        """Can somebody else work in it, within so many seconds?"""
        return self.atoll('exec', '--wait', str(within), plan, '--', 'true', check=False).returncode == 0

    def __exit__(self, kind, *rest):
        plans = json.loads(self.atoll('list', '--json').stdout)['plans']
        for plan in plans:
            self.atoll('stop', '--force', '--yes', '--wait', '20', plan['id'], check=False)
        super().__exit__(kind, *rest)


# ---- what goes in and comes out ----

def exec_says_what_a_command_says(top):
    with World(top) as d:
        p = d.plan('p')
        done = run(d, p, 'sh', '-c', 'echo out; echo err >&2; cat file; pwd; echo new >file; exit 3')
        same(bytes(done.stdout), f'out\nold\n{d.dir}\n'.encode(), 'standard output, in the first resource')
        same(bytes(done.stderr), b'err\n', 'standard error')
        same((done.exit['exit_code'], done.exit['term_signal'], done.exit['timed_out']), (3, 0, False), 'how it ended')
        same((done.exit['isolated'], done.exit['changes']), (True, 1), 'what it changed')
        same((d.dir / 'file').read_text(), 'old\n', 'the real file')


def exec_without_namespaces_runs_nothing(top):
    script = 'echo 0 >/proc/sys/user/max_mnt_namespaces; echo 0 >/proc/sys/user/max_user_namespaces; ' \
             'exec setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all "$@"'
    command = ['unshare', '--map-current-user', '--keep-caps', 'sh', '-ec', script, 'sh', os.environ['ATOLL_DAEMON']]
    with World(top, command=command) as d:
        d.atoll('start', 'p', '--dir', str(d.dir), '--strategy', 'copy')
        d.plan('q')
        for name in 'pq':
            done = run(d, name, 'touch', 'ran')
            same((done.error['code'], done.error['status']), ('no-fence', 501), f'{name}: refused by name')
            need('nothing was run' in done.error['detail'], f'{done.error}')
            answer, _ = lines(d, name, argv=['touch', 'ran'])
            same(answer.status, 501, f'{name}: in lines')
        done = run(d, 'p', 'touch', 'ran', unfenced=True)
        same((done.exit['exit_code'], done.exit['isolated']), (0, False), 'an admin may')
        same(json.loads(d.atoll('diff', 'p', '--json').stdout)['changes'][0]['path'], 'ran', 'and then it ran')
        need(not (d.dir / 'ran').exists(), 'in the copy')


def exec_bulk_both_ways(top):
    data = random.Random(7).randbytes(1 << 20)
    want = hashlib.sha256()
    for _ in range(BULK >> 20):
        want.update(data)
    with World(top) as d:
        with Exec(d, d.plan('p'), argv=['cat']) as e:
            got = hashlib.sha256()
            size = 0
            for i in range(BULK >> 20):
                e.send(data)
                got.update(e.stdout)
                size += len(e.stdout)
                e.stdout.clear()
            e.end_input()
            same(e.code(), 0, 'cat')
            got.update(e.stdout)
            same((size + len(e.stdout), got.hexdigest()), (BULK, want.hexdigest()), 'every byte came back')


def exec_a_slow_reader_holds_the_command(top):
    with World(top) as d:
        with Exec(d, d.plan('p'), argv=['sh', '-c', 'echo begun >&2; head -c 50000000 /dev/zero; echo end >&2']) as e:
            e.expect(b'begun')
            for _ in range(60):  # until it has all that it takes
                before = rss(d)
                time.sleep(0.5)
                if rss(d) == before:
                    break
            time.sleep(1)
            need(rss(d) - before < 4096, 'memory grows for a client that does not read')
            size = 0
            while e.step():
                size += len(e.stdout)
                e.stdout.clear()
            same((size, bytes(e.stderr), e.exit['exit_code']), (50000000, b'begun\nend\n', 0), 'all of it, in the end')


def exec_input_that_nobody_reads(top):
    with World(top) as d:
        p = d.plan('p')
        # A signal is not stuck behind it.
        with Exec(d, p, argv=['sh', '-c', 'trap "exit 9" USR1; echo ready; while :; do sleep 0.05; done']) as e:
            e.expect(b'ready')
            e.send(b'x' * execclient.FIRST_WINDOW)
            e.signal(signal.SIGUSR1)
            same(e.code(), 9, 'the signal came')
        # It ends before it has read all.
        with Exec(d, p, argv=['head', '-c', '3']) as e:
            e.send(b'abcdef' * 100000)
            same((e.code(), bytes(e.stdout)), (0, b'abc'), 'head')
        # One that closes its input is not held up, nor is the client.
        with Exec(d, p, argv=['sh', '-c', 'exec 0<&-; echo closed; sleep 0.3; exit 4']) as e:
            e.expect(b'closed')
            same(e.code(), 4, 'without input')


def rss(d):
    for line in Path(f'/proc/{d.process.pid}/status').read_text().splitlines():
        if line.startswith('VmRSS:'):
            return int(line.split()[1])
    return 0


def exec_exit_codes_all(top):
    codes = range(256) if LONG else (0, 41, 255) if SANITIZED else (0, 1, 2, 41, 124, 125, 126, 127, 128, 130, 254, 255)
    with World(top) as d:
        p = d.plan('p')
        for code in codes:
            same(run(d, p, 'sh', '-c', f'exit {code}').exit['exit_code'], code, 'exit code')
        for sig in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
            how = run(d, p, 'sh', '-c', f'kill -{int(sig)} $$').exit
            same((how['exit_code'], how['term_signal']), (128 + sig, sig), 'killed')
        how = run(d, p, 'sleep', '100', timeout=0.3).exit
        same((how['exit_code'], how['timed_out']), (124, True), 'timed out')


def exec_options_of_the_command(top):
    with World(top) as d:
        p = d.plan('p')
        home = os.environ['HOME']
        done = run(d, p, 'sh', '-c', 'echo $A-$B; pwd; cat /proc/net/route | wc -l; test -e ~/marker && echo seen',
                   env=[f'HOME={home}', 'A=1', 'B=2'], unset=['B'], home='none', cwd='/', net='none', pids=50, memory='512m', cpus=1.5)
        out = done.stdout.decode().split('\n')
        same(out, ['1-', '/', '0', ''], 'environment, working directory, network, home')
        need(len(done.exit['notes']) >= 3, f"what held it to its limits: {done.exit['notes']}")
        for what, why in (({}, 'argv'), ({'argv': []}, 'argv'), ({'argv': ['a'], 'x': 1}, "'x'"),
                          ({'argv': ['a'], 'cwd': 'here'}, 'cwd'), ({'argv': ['a'], 'env': ['HOME']}, 'NAME=value'),
                          ({'argv': ['a'], 'env': {'A': 1}}, 'env'), ({'argv': ['a'], 'memory': True}, 'memory'),
                          ({'argv': ['a'], 'memory': 'lots'}, 'bytes'), ({'argv': ['a'], 'timeout': '1'}, 'timeout'),
                          ({'argv': ['a\0b']}, 'NUL'), ({'argv': 'a'}, 'argv'), ({'argv': ['a'], 'rows': 3}, 'terminal'),
                          ({'argv': ['a'], 'home': 'mine'}, 'home'), ({'argv': ['a'], 'env': ['ATOLL_PLAN=x']}, "Atoll's")):
            with Exec(d, p, **what) as e:
                error = e.finish().error
                same(error['code'], 'invalid', f'{what}')
                need(why in error['detail'], f"{what}: {error['detail']}")
            answer, _ = lines(d, p, **what)
            same((answer.status // 100, answer.json()['code']), (4, 'invalid'), f'{what}')


def exec_a_transcript_is_kept(top):
    with World(top) as d:
        p = d.plan('p')
        same(bytes(run(d, p, 'echo', 'printed', transcript=True).stdout), b'printed\n', 'passed on')
        entries = [json.loads(line) for line in d.atoll('log', p, '--json').stdout.splitlines()]
        same([e['output']['bytes'] for e in entries if e.get('output')], [8], 'kept')


def exec_what_cannot_run(top):
    with World(top) as d:
        p = d.plan('p')
        error = run(d, p, 'no-such-command').error
        same((error['code'], error['status']), ('ENOENT', 422), 'not found')
        error = run(d, p, str(d.dir)).error
        same((error['code'], error['status']), ('EACCES', 422), 'not executable')
        error = run(d, p, 'true', cwd='/nonexistent').error
        same((error['code'], error['status']), ('not-found', 404), 'no such directory')
        answer, _ = lines(d, p, argv=['no-such-command'])
        same((answer.status, answer.json()['code']), (422, 'ENOENT'), 'the same in lines')
        with Exec(d, 'nowhere', argv=['true']) as e:
            same(e.answer.status, 404, 'no such plan')
        answer, _ = lines(d, 'nowhere', argv=['true'])
        same(answer.status, 404, 'no such plan')
        same(d.ask(f'POST /v1/plans/{p}/exec', headers=('Connection: Upgrade', 'Upgrade: other/1')).status, 426, 'Upgrade')
        same(d.ask(f'POST /v1/plans/{p}/exec').json()['code'], 'invalid', 'no request')


# ---- frames that are none ----

def exec_refuses_bad_frames(top):
    good = frame(execclient.REQUEST, json.dumps({'argv': ['sleep', '100']}).encode())
    with World(top) as d:
        p = d.plan('p')
        for what in (frame(execclient.STDIN, b'x'), frame(9), frame(execclient.STDOUT, b'x'), b'\xff' * 64,
                     struct.pack('>BI', 0, 65537), good + good, good + frame(execclient.RESIZE, b'123'),
                     good + frame(execclient.SIGNAL), good + frame(execclient.STDIN) + frame(execclient.STDIN, b'x'),
                     good + frame(execclient.STDIN, bytes(65536)) * 6, frame(execclient.REQUEST, b'{"argv": ["true"]'),
                     frame(execclient.REQUEST, b'[' * 60000)):
            with Exec(d, p, raw=True) as e:
                e.write(what)
                e.finish()
                need(e.error and e.error['status'] in (400, 422), f'{what[:20]}: {e.error} {e.exit}')
        # Byte by byte, and everything at once, are the same.
        whole = frame(execclient.REQUEST, b'{"argv":["cat"]}') + frame(0, b'ab') + frame(0, b'c') + frame(0)
        for pieces in ([whole[i:i + 1] for i in range(len(whole))], [whole]):
            with Exec(d, p, raw=True) as e:
                for piece in pieces:
                    e.write(piece)
                same((e.code(), bytes(e.stdout)), (0, b'abc'), 'pieces')
        # With the head in one packet.
        wire = d.connect()
        wire.send(request(f'POST /v1/plans/{p}/exec', headers=execclient.UPGRADE) + whole)
        same(wire.answer(head=True).status, 101, 'at once')
        need(wire.is_closed(PATIENCE), 'it ends')
        wire.close()
        need(d.is_free(p, PATIENCE), 'nothing is left in the plan')


# ---- signals and terminals ----

def exec_signals_reach_the_command(top):
    with World(top) as d:
        p = d.plan('p')
        with Exec(d, p, argv=['sh', '-c', 'trap "echo one" USR1; trap "exit 7" INT; echo ready;'
                              'while :; do sleep 0.05; done']) as e:
            e.expect(b'ready')
            e.signal(200)
            e.signal(signal.SIGUSR1)
            e.expect(b'one')
            e.signal(signal.SIGINT)
            same(e.code(), 7, 'its own way out')
        for sig in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
            with Exec(d, p, argv=['sh', '-c', 'echo ready; exec sleep 1000']) as e:
                e.expect(b'ready')
                e.signal(sig)
                same(e.code(), 128 + sig, 'killed')
        # What the daemon ignores is not ignored in a command.
        same(run(d, p, 'sh', '-c', 'yes | head -1; trap').stderr, b'', 'SIGPIPE')


def exec_a_terminal(top):
    with World(top) as d:
        p = d.plan('p')
        with Exec(d, p, argv=['sh', '-c', 'test -t 0 -a -t 1 -a -t 2 && tty && stty size; trap "stty size" WINCH;'
                              'read a; echo "<$a>"; while :; do sleep 0.05; done'],
                  terminal=True, rows=33, columns=99) as e:
            e.expect(b'/dev/')
            e.expect(b'33 99')
            e.send(b'words\n')
            e.expect(b'<words>')
            e.resize(44, 111)
            e.expect(b'44 111')
            e.send(b'\x03')
            same(e.code(), 130, 'the key that interrupts')
        with Exec(d, p, argv=['sh', '-mc', '(echo front; exec sleep 1000); echo after-$?'], terminal=True) as e:
            e.expect(b'front')
            e.signal(signal.SIGUSR1)
            e.expect(b'after-138')
            same(e.code(), 0, 'the shell behind it goes on')
        with Exec(d, p, argv=['cat'], terminal=True) as e:
            e.send(b'x\n\x04')
            same((e.code(), bytes(e.stdout)), (0, b'x\r\nx\r\n'), 'an end of input is a key')


# ---- who waits, and who goes ----

def exec_says_whom_it_waits_for(top):
    with World(top) as d:
        p = d.plan('p')
        with Exec(d, p, argv=['sh', '-c', 'echo ready; cat']) as holder:
            holder.expect(b'ready')
            e = Exec(d, p, argv=['echo', 'mine'])
            end = time.monotonic() + PATIENCE
            while not e.notices:
                need(time.monotonic() < end and e.step(), 'nobody said what is waited for')
            need(e.notices[0]['kind'] == 'waiting' and 'sh' in e.notices[0]['message'], f'{e.notices}')
            with Exec(d, p, argv=['true'], wait=0.2) as late:
                same((late.finish().error['code'], late.error['status']), ('timeout', 423), 'no longer than asked')
            with Exec(d, p, argv=['true']) as other:
                other.signal(signal.SIGINT)
                same(other.finish().error['code'], 'ECANCELED', 'a signal ends the wait')
            holder.end_input()
            same((holder.code(), e.code(), bytes(e.stdout)), (0, 0, b'mine\n'), 'one after the other')
            e.close()


def until(true, what):
    end = time.monotonic() + PATIENCE
    while not true():
        need(time.monotonic() < end, what)
        time.sleep(0.05)


def vanishes(d, p, argv, **more):
    """Seconds from the end of a client to a free plan; if others had the processors meanwhile, of another try."""
    for _ in range(5):
        e = Exec(d, p, argv=argv, **more)
        e.expect(b'ready')
        begun = time.monotonic()
        e.close()
        need(d.is_free(p, PATIENCE), 'the plan is not free')
        took = time.monotonic() - begun
        if took < SOON:
            break
    return took


def exec_a_client_that_goes_ends_its_command(top):
    obedient = ['sh', '-c', 'echo ready; exec sleep 1000']
    deaf = ['sh', '-c', 'trap "" TERM HUP INT; setsid sleep 1000 & echo ready; while :; do sleep 0.1; done']
    loud = ['sh', '-c', 'echo ready; exec yes']
    with World(top) as d:
        p = d.plan('p')
        begun = time.monotonic()
        need(d.is_free(p, PATIENCE), 'free')
        own = time.monotonic() - begun  # of the question itself
        for argv in (obedient, deaf, loud):
            took = vanishes(d, p, argv) - own
            need(took < SOON, f'{argv}: {took:.2f} s')
        need(vanishes(d, p, obedient, terminal=True) - own < SOON, 'at a terminal')
        need(vanishes(d, p, ['bash', '-i', '-c', 'echo ready; cat'], terminal=True) - own < SOON, 'a shell at a terminal')
        # One that waits leaves the queue.
        with Exec(d, p, argv=obedient) as holder:
            holder.expect(b'ready')
            waiter = Exec(d, p, argv=['touch', 'never'])
            while not waiter.notices:
                waiter.step()
            waiter.close()
            until(lambda: 'touch' not in str(json.loads(d.atoll('lock', 'show', '--json').stdout)), 'who went waits no more')
        # In lines, too.
        with d.connect() as wire:
            wire.send(request(f'POST /v1/plans/{p}/exec', {'argv': obedient}, ('Content-Type: application/json',)))
            wire.answer(head=True)
            begun = time.monotonic()
        need(d.is_free(p, PATIENCE) and time.monotonic() - begun - own < SOON, 'in lines')
        need(b'never' not in d.atoll('diff', p, '--name-status').stdout, 'it never ran')


def exec_survives_kills_of_the_daemon(top):
    with World(top) as d:
        p = d.plan('p')
        own = 100000 + os.getpid()  # other tests sleep at the same time
        with Exec(d, p, argv=['sh', '-c', f'echo kept >made; sync; echo ready; exec sleep {own}']) as e:
            e.expect(b'ready')
            d.process.kill()
            d.process.wait()
            need(d.is_free(p, PATIENCE), 'the command went with it')
            need(not any(f'sleep\0{own}'.encode() in cmdline(pid) for pid in pids()), 'nothing is left running')
        need(b'made' in d.atoll('diff', p, '--name-status').stdout, 'its work is there')
        d.states.clear()
        d.start()
        same(run(d, p, 'cat', 'made').stdout, b'kept\n', 'the next one goes on')


def pids():
    return [int(name) for name in os.listdir('/proc') if name.isdigit()]


def cmdline(pid):
    try:
        owner = os.stat(f'/proc/{pid}').st_uid
        return Path(f'/proc/{pid}/cmdline').read_bytes() if owner == os.geteuid() else b''
    except OSError:
        return b''


def exec_a_stop_ends_commands_with_a_word(top):
    with World(top) as d:
        p = d.plan('p')
        with Exec(d, p, argv=['sh', '-c', 'echo ready; exec sleep 1000']) as e, d.connect() as wire:
            e.expect(b'ready')
            q = d.plan('q')
            wire.send(request(f'POST /v1/plans/{q}/exec', {'argv': ['sh', '-c', 'echo ready; exec sleep 1000']},
                              ('Content-Type: application/json',)))
            wire.answer(head=True)
            need(b'ready' in wire.chunk(), 'it runs')
            begun = time.monotonic()
            d.tell(signal.SIGTERM)
            same((e.finish().error['status'], 'stops' in e.error['detail']), (503, True), 'the last frame')
            last = json.loads(wire.chunk())
            same((last['type'], last['problem']['status']), ('error', 503), 'the last line')
            same(d.end(), 0, 'its own end')
            need(time.monotonic() - begun < PATIENCE, 'in time')
        need(d.is_free(p, PATIENCE) and d.is_free(q, PATIENCE), 'both plans are free')


# ---- many, and elsewhere ----

def exec_many_plans_at_once(top):
    count = 8 if SANITIZED else 16
    failed = []

    def work(d, i):
        try:
            data = random.Random(i).randbytes(300000)
            with Exec(d, f'p{i}', argv=['sh', '-c', f'cat; echo {i} >&2; exit {i}']) as e:
                e.send(data)
                e.end_input()
                same((e.code(), bytes(e.stdout), bytes(e.stderr)), (i, data, f'{i}\n'.encode()), f'plan {i}')
        except Exception as why:  # noqa: B902
            failed.append(why)

    with World(top) as d:
        for i in range(count):
            d.plan(f'p{i}')
        threads = [threading.Thread(target=work, args=(d, i)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        same(failed, [], 'all of them')
        fds = len(os.listdir(f'/proc/{d.process.pid}/fd'))
        run(d, 'p0', 'true')
        until(lambda: len(os.listdir(f'/proc/{d.process.pid}/fd')) <= fds + 2, 'descriptors are closed')


def exec_by_token_over_tls(top):
    cert, key = certificate(top)
    with World(top, f'--socket={top}/sock', '--listen=127.0.0.1:0', f'--tls-cert={cert}', f'--tls-key={key}') as d:
        plans = {name: d.ident(d.plan(name)) for name in 'pq'}
        made = {name: d.ask(f'POST /v1/sandboxes/{ident}/auth') for name, ident in plans.items()}
        if made['p'].status == 404:
            raise Skip('this daemon makes no tokens')
        far = {'place': next(place for place in d.places() if place.startswith('127')), 'tls': cert}
        mine = dict(far, headers=[f"Authorization: Bearer {made['p'].json()['token']}"])
        p = plans['p']
        with Exec(d, p, argv=['true'], **far) as e:
            same(e.answer.status, 401, 'without a token')
        with Exec(d, plans['q'], argv=['true'], **mine) as e:
            same(e.answer.status, 403, 'in another plan')
        for what in ({'rw': ['/etc']}, {'ro': ['/etc/shadow']}, {'home': 'real'}, {'profile': ['npm']}, {'unfenced': True}):
            same(run(d, p, 'true', **what, **mine).error['code'], 'denied', f'{what}')
            same(lines(d, p, argv=['true'], **what, **mine)[0].status, 403, f'{what}')
        same((run(d, p, 'sh', '-c', 'exit 41', **mine).exit['exit_code']), 41, 'the exit code')
        data = random.Random(3).randbytes(3 << 20)
        with Exec(d, p, argv=['cat'], **mine) as e:
            e.send(data)
            e.end_input()
            same(e.code(), 0, 'cat')
            same(bytes(e.stdout) == data, True, 'every byte came back')
        with Exec(d, p, argv=['sh', '-c', 'stty size; exec sleep 1000'], terminal=True, rows=20, columns=70, **mine) as e:
            e.expect(b'20 70')
            e.send(b'\x03')
            same(e.code(), 130, 'a terminal')
        same(lines(d, p, argv=['echo', 'x'], **mine)[1][0]['data'], 'x\n', 'in lines')
        begun = time.monotonic()
        need(d.is_free(p, PATIENCE), 'free')
        own = time.monotonic() - begun
        for argv in (['sh', '-c', 'echo ready; exec sleep 1000'], ['sh', '-c', 'echo ready; exec yes']):
            took = vanishes(d, p, argv, **mine) - own
            need(took < SOON, f'a client that goes: {took:.2f} s')
        with Exec(d, p, argv=['sh', '-c', 'echo ready; exec sleep 1000'], **mine) as e:
            e.expect(b'ready')
            same(d.ask(f'DELETE /v1/sandboxes/{p}/auth').status, 200, 'revoked')
            while e.step():
                pass
            need(d.is_free(p, PATIENCE), 'with its token the command ends')


def exec_in_lines(top):
    with World(top) as d:
        p = d.plan('p')
        answer, said = lines(d, p, argv=['sh', '-c', 'printf "a\\377b"; echo ok; cat; echo err >&2; exit 5'],
                             headers=('Expect: 100-continue',))
        same(answer.status, 200, 'status')
        out = b''.join(base64.b64decode(x['data_b64']) if 'data_b64' in x else x['data'].encode()
                       for x in said if x['type'] == 'stdout')
        same(out, b'a\xffbok\n', 'standard output, byte for byte')
        same([x['data'] for x in said if x['type'] == 'stderr'], ['err\n'], 'standard error')
        same((said[-1]['type'], said[-1]['exit_code']), ('exit', 5), 'the last line')
        answer, said = lines(d, p, argv=['head', '-c', '3000000', '/dev/urandom'])
        same(sum(len(base64.b64decode(x['data_b64'])) for x in said if x['type'] == 'stdout'), 3000000, 'a long one')
        answer, _ = lines(d, p, argv=['true'], terminal=True)
        same(answer.json()['code'], 'invalid', 'no terminal without frames')


def exec_starts_jobs(top):
    with World(top) as d:
        p = d.plan('p')
        answer, _ = lines(d, p, argv=['sh', '-c', 'echo begun; pwd; exec sleep 1000'], background='work')
        same((answer.status, answer.json()['job']), (202, 'work'), f'started: {answer.body}')
        ident = answer.json()['plan']['id']
        same(answer.headers['location'], f'/v1/plans/{ident}/jobs/work', 'where it is')
        jobs = json.loads(d.atoll('job', 'list', '--json').stdout)['jobs']
        same([(job['name'], job['state']) for job in jobs], [('work', 'running')], 'it runs')
        answer, _ = lines(d, p, argv=['no-such-command'], background='other', wait=0)
        same(answer.status, 423, f'it is taken: {answer.body}')
        same(run(d, p, 'echo', 'beside', shared=True).stdout, b'beside\n', 'another joins it')
        d.stop()
        jobs = json.loads(d.atoll('job', 'list', '--json').stdout)['jobs']
        same(jobs[0]['state'], 'running', 'it goes on without the daemon')
        until(lambda: d.atoll('job', 'log', p, 'work').stdout.count(b'\n') >= 2, 'it prints')
        same(d.atoll('job', 'log', p, 'work').stdout, f'begun\n{d.dir}\n'.encode(), 'what it printed')
        d.atoll('job', 'stop', p, 'work')
        d.states.clear()
        d.start()
        answer, _ = lines(d, p, argv=['no-such-command'], background='other')
        same((answer.status, answer.json()['code']), (422, 'ENOENT'), 'what cannot run is no job')
        answer, _ = lines(d, p, argv=['sleep', '100'], background='brief', timeout=0.001)
        same(answer.status, 202, f'its time was up before it began: {answer.body}')


def exec_a_job_goes_on_when_the_daemon_dies_before_it_begins(top):
    with World(top) as d:
        p = d.plan('p')
        with Exec(d, p, argv=['sh', '-c', 'echo held; read line']) as holder:
            holder.expect(b'held')

            def ask():
                try:
                    lines(d, p, argv=['sh', '-c', 'echo done'], background='work', wait=60)
                except Exception:  # pylint: disable=broad-except
                    pass  # nobody answers it

            asker = threading.Thread(target=ask)
            asker.start()
            until = time.monotonic() + PATIENCE
            while not any(lock['waiting'] for lock in json.loads(d.atoll('lock', 'show', p, '--json').stdout)['locks']):
                need(time.monotonic() < until, 'the job waits for the plan')
                time.sleep(0.05)
            d.process.kill()
            d.process.wait()
        asker.join()
        until = time.monotonic() + PATIENCE
        while True:
            jobs = json.loads(d.atoll('job', 'list', '--json').stdout)['jobs']
            if jobs and jobs[0]['state'] != 'running' or time.monotonic() > until:
                break
            time.sleep(0.05)
        same([(job['name'], job['state'], job['exit_code']) for job in jobs], [('work', 'ended', 0)], 'how it ended')
        d.states.clear()
        d.start()


def exec_a_job_asked_for_again_while_it_waits_begins_once(top):
    """Its daemon died; its own process waits for the plan, and has nothing on record yet."""
    with World(top) as d:
        p = d.plan('p')

        def ask():
            return d.ask(f'POST /v1/plans/{p}/exec?wait=60', {'background': 'work', 'argv': ['sh', '-c', 'echo x >>ran']},
                         ['Content-Type: application/json', 'Idempotency-Key: k'])

        def ask_in_vain():
            try:
                ask()
            except Exception:  # pylint: disable=broad-except
                pass  # nobody answers it

        with subprocess.Popen([os.environ['ATOLL'], 'exec', p, '--', 'sh', '-c', 'echo held; read line'], env=d.env, cwd=d.dir,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            same(holder.stdout.readline(), b'held\n', 'somebody has the plan')
            asker = threading.Thread(target=ask_in_vain)
            asker.start()
            until = time.monotonic() + PATIENCE
            while not any(lock['waiting'] for lock in json.loads(d.atoll('lock', 'show', p, '--json').stdout)['locks']):
                need(time.monotonic() < until, 'the job waits for the plan')
                time.sleep(0.05)
            d.process.kill()
            d.process.wait()
            asker.join()
            d.states.clear()
            d.start()
            same(ask().status, 409, 'somebody is at it')
            holder.communicate(b'\n')
        until = time.monotonic() + PATIENCE
        while (answer := ask()).status == 409:
            need(time.monotonic() < until, 'it is never known')
            time.sleep(0.05)
        same(answer.status, 202, 'it has begun')
        while json.loads(d.atoll('job', 'list', '--json').stdout)['jobs'][0]['state'] == 'running':
            time.sleep(0.05)
        same(d.atoll('exec', p, '--', 'cat', 'ran').stdout, b'x\n', 'once')


if __name__ == '__main__':
    main([
        exec_says_what_a_command_says,
        exec_without_namespaces_runs_nothing,
        exec_bulk_both_ways,
        exec_a_slow_reader_holds_the_command,
        exec_input_that_nobody_reads,
        exec_exit_codes_all,
        exec_options_of_the_command,
        exec_a_transcript_is_kept,
        exec_what_cannot_run,
        exec_refuses_bad_frames,
        exec_signals_reach_the_command,
        exec_a_terminal,
        exec_says_whom_it_waits_for,
        exec_a_client_that_goes_ends_its_command,
        exec_survives_kills_of_the_daemon,
        exec_a_stop_ends_commands_with_a_word,
        exec_many_plans_at_once,
        exec_by_token_over_tls,
        exec_in_lines,
        exec_starts_jobs,
        exec_a_job_goes_on_when_the_daemon_dies_before_it_begins,
        exec_a_job_asked_for_again_while_it_waits_begins_once,
    ])

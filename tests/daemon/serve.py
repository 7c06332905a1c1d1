# SPDX-License-Identifier: Apache-2.0
"""Where atolld listens, whom it lets in, how long it waits, what it says of itself, and how it stops."""

import contextlib
import fcntl
import itertools
import os
import re
import resource
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from atolld import NOBODY, PATIENCE, Daemon, certificate, main, request  # noqa: E402
from expect import Broken, need, same  # noqa: E402

GOOD = request('GET /healthz')


def refused(top, *options, env=None):
    """What it says when it does not start."""
    d = Daemon(top, *options, env=env)
    try:
        d.start()
    except Broken:
        d.end()
        line = d.log()[-1]
        same(line['level'], 'error', 'why it did not start')
        need(line['hint'], 'what to do about it')
        return line['message']
    d.stop()
    raise Broken(f'started with {options}')


def until(true, what, pause=0.02):
    end = time.monotonic() + PATIENCE
    while not true():
        need(time.monotonic() < end, what)
        time.sleep(pause)


# ---- places ----

def the_unix_socket_is_ours_alone(top):
    path = Path(top) / 'run/sock'
    with Daemon(top, f'--socket={path}') as d:
        same(stat.S_IMODE(path.stat().st_mode), 0o600, 'mode of the socket')
        same(stat.S_IMODE(path.parent.stat().st_mode), 0o700, 'mode of its directory')
        same(d.ask('GET /metrics').status, 200, 'we need no key')
        if os.geteuid() == 0:  # even where the modes would let others in
            os.chmod(top, 0o755)
            os.chmod(path.parent, 0o755)
            os.chmod(path, 0o666)
            said = subprocess.run(['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups', 'curl', '-s', '-i',
                                   '--unix-socket', path, 'http://localhost/metrics'], capture_output=True, check=True)
            need(said.stdout.startswith(b'HTTP/1.1 401 '), said.stdout)
    need(not path.exists(), 'it is removed at the end')


def without_options_it_listens_in_the_store(top):
    d = Daemon(top)
    d.options = []
    with d:
        same(d.places(), [f'unix:{d.home}/atolld.sock'], 'places')
        same(d.ask('GET /healthz').status, 200, 'asked there')


def a_socket_has_one_daemon(top):
    with Daemon(top) as first:
        need('in use' in refused(top), 'the second is told')
        need(first.is_alive(), 'the first is not disturbed')
        first.process.kill()
        first.process.wait()
        with Daemon(top) as second:  # what the dead one left is taken away
            need(second.is_alive(), 'the next one serves')
            first.process = second.process
        first.process.returncode = 0


def a_socket_whose_maker_is_dead_is_taken(top):
    """Also while a process that he was starting still has it open."""
    read, write = os.pipe()
    maker = os.fork()
    if maker == 0:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(f'{top}/sock')
        sock.listen()
        if os.fork() == 0:
            os.close(write)
            os.read(read, 1)
        os._exit(0)
    os.waitpid(maker, 0)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(f'{top}/sock')  # the child has it
    with Daemon(top) as d:
        need(d.is_alive(), 'serves')
    os.close(write)
    os.close(read)


def of_daemons_that_start_at_once_one_serves(top):
    daemons = [Daemon(top) for _ in range(8)]
    started = []

    def start(d):
        try:
            started.append(d.start())
        except Broken:
            d.end()

    threads = [threading.Thread(target=start, args=(d,)) for d in daemons]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same(len(started), 1, 'so many serve')
    need(started[0].is_alive(), 'and it can be reached')
    same(started[0].stop(), 0, 'exit status')


def a_directory_of_others_is_refused(top):
    path = Path(top) / 'open'
    path.mkdir()
    os.chmod(path, 0o777)
    need('others' in refused(top, f'--socket={path}/sock'), 'why')
    os.chmod(path, 0o1777)
    with Daemon(top, f'--socket={path}/sock') as d:
        need(d.is_alive(), 'with the sticky bit they can not')


def tcp_is_loopback_or_tls_or_nothing(top):
    cert, key = certificate(top)
    for place in ('0.0.0.0:0', '[::]:0'):
        need('no TLS' in refused(top, f'--listen={place}'), place)
    need('go together' in refused_usage(top, '--listen=127.0.0.1:0', f'--tls-cert={cert}'), 'a certificate without a key')
    os.chmod(key, 0o644)
    need('open to everybody' in refused(top, '--listen=127.0.0.1:0', f'--tls-cert={cert}', f'--tls-key={key}'), 'a key for all')
    os.chmod(key, 0o600)
    with Daemon(top, '--listen=0.0.0.0:0', f'--tls-cert={cert}', f'--tls-key={key}') as d:
        port = d.places()[0].rpartition(':')[2]
        place = f'127.0.0.1:{port}'
        same(d.ask('GET /healthz', place=place, tls=cert).status, 200, 'by TLS')
        same(d.ask('GET /metrics', place=place, tls=cert).status, 401, 'and then still with a key')
        with d.connect(place) as wire:  # without it: nothing
            wire.send(GOOD)
            same(wire.answer().status, 0, 'plain')
        said = subprocess.run(['curl', '-s', '--cacert', cert, f'https://localhost:{port}/healthz'], capture_output=True, check=True)
        same(said.stdout, b'{"status":"ok"}\n', 'curl')


def refused_usage(top, *options):
    d = Daemon(top, *options)
    try:
        d.start()
    except Broken:
        same(d.end(), 2, 'exit status of wrong usage')
        return d.log()[-1]['message']
    d.stop()
    raise Broken(f'started with {options}')


def old_tls_is_refused(top):
    cert, key = certificate(top)
    with Daemon(top, '--listen=127.0.0.1:0', f'--tls-cert={cert}', f'--tls-key={key}') as d:
        host, _, port = d.places()[0].rpartition(':')
        context = ssl.create_default_context(cafile=cert)
        context.set_ciphers('ALL:@SECLEVEL=0')
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # it is old; that is the point
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        try:
            context.wrap_socket(socket.create_connection((host, int(port))), server_hostname='localhost')
        except (ssl.SSLError, ConnectionResetError):
            pass
        else:
            raise Broken('TLS 1.1 was spoken')
        same(d.ask('GET /healthz', tls=cert).status, 200, 'TLS 1.2 or 1.3')


def wrong_options_are_named(top):
    for options, what in (
            (['--nonsense'], 'nonsense'), (['word'], 'word'), (['--listen=localhost'], 'HOST:PORT'), (['--listen=:80'], 'HOST:PORT'),
            (['--listen=::1:80'], 'HOST:PORT'), (['--head-timeout=soon'], 'soon'), (['--max-connections=0'], "'0'"),
            (['--log=all'], 'all'), (['--stop-timeout=-1'], '-1'), (['--socket'], 'wants a value')):
        need(what in refused_usage(top, *options), options)


# ---- systemd ----

def handed(top, sockets, pid='$$', options=()):
    """As systemd does it: sockets from 3 on, and who they are for."""
    fds = [s.fileno() for s in sockets]
    moves = ' '.join(f'{3 + i}<&{fd}' for i, fd in enumerate(fds))
    script = f'LISTEN_PID={pid} LISTEN_FDS={len(fds)} exec "$0" "$@" {moves}'
    d = Daemon(top, *options, command=['bash', '-c', script, os.environ['ATOLL_DAEMON']], fds=tuple(fds))
    d.sockets = sockets  # open as long as it is
    return d


def high(sock):
    """Its number above those it will be given."""
    return socket.socket(fileno=fcntl.fcntl(sock.detach(), fcntl.F_DUPFD, 40))


def serves_the_sockets_it_is_handed(top):
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(f'{top}/handed')
    unix.listen()
    tcp = socket.create_server(('127.0.0.1', 0))
    port = tcp.getsockname()[1]
    sockets = [high(unix), high(tcp)]
    with handed(top, sockets) as d:
        same(d.places(), [f'unix:{top}/handed', f'127.0.0.1:{port}'], 'places')
        for place in d.places():
            same(d.ask('GET /healthz', place=place).status, 200, place)
        same(d.ask('GET /metrics').status, 200, 'the socket knows who asks')
        same(d.ask('GET /metrics', place=d.places()[1]).status, 401, 'the address does not')
    need(os.path.exists(f'{top}/handed'), 'it is not ours to remove')
    with handed(top, sockets) as d:  # it can be stopped and started, and connections wait meanwhile
        same(d.ask('GET /healthz').status, 200, 'again')


def handed_sockets_obey_the_rule(top):
    everywhere = high(socket.create_server(('0.0.0.0', 0)))
    d = handed(top, [everywhere])
    try:
        d.start()
    except Broken:
        need('no TLS' in d.log()[-1]['message'], 'why')
        d.end()
    else:
        d.stop()
        raise Broken('served without TLS')
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams.bind(f'{top}/datagrams')
    d = handed(top, [high(datagrams)])
    try:
        d.start()
    except Broken:
        need('stream' in d.log()[-1]['message'], 'why')
        d.end()
    else:
        d.stop()
        raise Broken('served datagrams')


def sockets_for_another_process_are_left_alone(top):
    tcp = high(socket.create_server(('127.0.0.1', 0)))
    with handed(top, [tcp], pid=1, options=[f'--socket={top}/own']) as d:
        same(d.places(), [f'unix:{top}/own'], 'places')


# ---- requests ----

def connections_live_on(top):
    with Daemon(top, '--listen=127.0.0.1:0', f'--socket={top}/sock') as d:
        for place in d.places():
            with d.connect(place) as wire:
                ids = set()
                for _ in range(200):
                    wire.send(GOOD)
                    answer = wire.answer()
                    same((answer.status, answer.closed), (200, False), place)
                    ids.add(answer.headers['x-request-id'])
                same(len(ids), 200, 'each has an id of its own')
                wire.send(GOOD * 50)
                same([wire.answer().status for _ in range(50)], [200] * 50, 'sent at once')


def what_is_not_there(top):
    with Daemon(top) as d:
        for line, status in (('GET /nothing', 404), ('GET /', 400), ('POST /healthz', 405), ('DELETE /healthz', 405),
                             ('GET /healthz/more', 404), ('get /healthz', 405), ('HEAD /healthz', 200), ('GET /%zz', 404)):
            same(d.ask(line).status, status, line)
        answer = d.ask('POST /healthz')
        same(answer.headers['allow'], 'GET', 'what else')
        same(answer.headers['content-type'], 'application/problem+json', 'a document')
        said = answer.json()
        same((said['type'], said['status'], said['code']), ('urn:atoll:error:invalid', 405, 'invalid'), 'its words')
        same(d.ask('POST /healthz', body=b'x').status, 405, 'with a body')
        same(d.ask('GET /healthz', body=b'x').status, 413, 'a body where none belongs')
        with d.connect() as wire:
            wire.send(request('HEAD /healthz') + GOOD)
            same(wire.answer(head=True).body, b'', 'HEAD has no body')
            same(wire.answer().body, b'{"status":"ok"}\n', 'and the next one has its own')


def nothing_is_read_before_it_is_allowed(top):
    """100 Continue comes only when the head was found good."""
    with Daemon(top, '--listen=127.0.0.1:0') as d:
        with d.connect() as wire:
            wire.send(request('POST /v1/plans', headers=['Expect: 100-continue', 'Content-Length: 5']))
            same(wire.answer().status, 401, 'at once')


def said_of_a_request(top):
    with Daemon(top, '--listen=127.0.0.1:0', f'--socket={top}/sock') as d:
        unix, tcp = d.places()
        ids = [d.ask('GET /healthz?token=secret-one', headers=['Authorization: Bearer secret-two'], place=tcp).headers['x-request-id'],
               d.ask('GET /secret-three', headers=['Authorization: Bearer secret-two'], place=unix).headers['x-request-id'],
               d.ask('GET /metrics?x=secret-one', headers=['X-Request-Id: mine'], place=unix).headers['x-request-id']]
        until(lambda: len([x for x in d.log() if 'id' in x]) == 3, 'three lines')
        lines = {x['id']: x for x in d.log() if 'id' in x}
        same(sorted(lines), sorted(ids), 'ids')
        same([(lines[i]['method'], lines[i]['route'], lines[i]['status']) for i in ids],
             [('GET', '/healthz', 200), ('', '', 401), ('GET', '/metrics', 400)], 'lines')
        same([lines[i]['from'] for i in ids], ['127.0.0.1', '', ''], 'from')
        need(lines[ids[2]]['who'] == f'uid {os.geteuid()}', 'who')
        need('secret' not in d.log_path.read_text(), 'no secrets')


def counts_what_it_does(top):
    with Daemon(top) as d:
        for _ in range(3):
            d.ask('GET /healthz')
        d.raw(GOOD.replace(b'/healthz', b'//healthz'))
        # An answer is counted once it was sent, which whoever has it may notice before.
        end = time.monotonic() + PATIENCE
        for asked in itertools.count():
            text = d.ask('GET /metrics').body.decode()
            values = dict(re.findall(r'^([a-z_]+(?:\{.*?\})?) (\S+)$', text, re.M))
            if (values['atolld_requests_running'], values['atolld_request_seconds_count']) == ('1', str(4 + asked)) or \
                    time.monotonic() > end:
                break
            time.sleep(0.05)
        same(values['atolld_requests_total{method="GET",route="/healthz",class="2xx"}'], '3', 'requests')
        same(values['atolld_requests_total{method="",route="",class="4xx"}'], '1', 'without a route')
        same(values['atolld_refused_total'], '1', 'refused')
        same(values['atolld_connections_total'], str(5 + asked), 'connections')
        same(values['atolld_requests_running'], '1', 'running: this one')
        same(values['atolld_request_seconds_count'], str(4 + asked), 'times')
        need(float(values['atolld_request_seconds_sum']) < 10, 'times')
        steps = [int(v) for k, v in values.items() if k.startswith('atolld_request_seconds_bucket')]
        same(steps, sorted(steps), 'each step has those below it')


# ---- limits ----

def connections_are_limited(top):
    with Daemon(top, '--listen=127.0.0.1:0', f'--socket={top}/sock', '--max-connections=8', '--max-per-address=5') as d:
        unix, tcp = d.places()
        for place, limit in ((tcp, 5), (unix, 8)):
            wires = [d.connect(place) for _ in range(limit)]
            for wire in wires:
                wire.send(GOOD)
                same(wire.answer().status, 200, place)

            def served():
                try:
                    with d.connect(place) as again:
                        again.send(GOOD)
                        return again.answer().status == 200
                except ConnectionError:
                    return False
            until(served, 'one more, once one of them is idle')
            until(lambda: any(wire.is_closed(0.01) for wire in wires), 'one of them gives way')
            for wire in wires:
                wire.close()


def connection_is_late(d, send, pause, limit):
    """Feeds it byte by byte; how long it was let."""
    begun = time.monotonic()  # before it is there: its time begins when it is taken, which may be before we go on
    with d.connect(timeout=0.01) as wire:
        for byte in send:
            try:
                wire.sock.send(bytes([byte]))
                if wire.sock.recv(1) == b'':
                    break
            except socket.timeout:
                pass
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(pause)
            need(time.monotonic() - begun < limit, 'it waits for ever')
        return time.monotonic() - begun


def slow_heads_are_ended(top):
    with Daemon(top, '--listen=127.0.0.1:0', '--head-timeout=3') as d:
        took = connection_is_late(d, GOOD[:-2] + b'A: ' + b'b' * 4000, 0.02, PATIENCE)
        need(2.9 < took < PATIENCE, f'byte by byte: {took}')
        with d.connect() as wire:  # nothing at all
            need(wire.is_closed(PATIENCE), 'silence')
        with d.connect() as wire:  # the head of a second request
            wire.send(GOOD)
            same(wire.answer().status, 200, 'the first')
            wire.send(GOOD[:30])
            need(wire.is_closed(PATIENCE), 'half of the second')
        wires = [d.connect() for _ in range(40)]  # many of them hinder nobody
        for wire in wires:
            wire.send(GOOD[:-1])
        need(d.is_alive(), 'others are served')
        for wire in wires:
            need(wire.is_closed(PATIENCE), 'each is ended')
            wire.close()


def metrics(d):
    return d.ask('GET /metrics').body.decode()


def slow_heads_over_tls_are_ended(top):
    cert, key = certificate(top)
    with Daemon(top, '--listen=127.0.0.1:0', '--head-timeout=5', f'--tls-cert={cert}', f'--tls-key={key}') as d:
        with d.connect() as wire:
            need(wire.is_closed(PATIENCE), 'no handshake')
        with d.connect(tls=cert) as wire:
            wire.send(GOOD[:-1])
            need(wire.is_closed(PATIENCE), 'no head')
        same(d.ask('GET /healthz', tls=cert).status, 200, 'others are served')


def idle_connections_are_ended(top):
    with Daemon(top, '--idle-timeout=0.5') as d:
        with d.connect() as wire:
            wire.send(GOOD)
            same(wire.answer().status, 200, 'once')
            need(wire.is_closed(PATIENCE), 'then it was idle')
        text = metrics(d)
        need('atolld_late_connections_total 1\n' in text, text)


def nothing_is_left_of_connections(top):
    with Daemon(top, '--listen=127.0.0.1:0', f'--socket={top}/sock') as d:
        def held():
            base = Path(f'/proc/{d.process.pid}')
            return len(list((base / 'fd').iterdir())), len(list((base / 'task').iterdir()))
        for place in d.places():
            d.ask('GET /healthz', place=place)
        until(lambda: peers(d) == 1, 'only this one', 0.5)  # each time there is the one that asks
        before = held()
        for i in range(200):
            # Too many at once, for a daemon that has to wait for a processor, are ended by it.
            with d.connect(d.places()[i % 2]) as wire, contextlib.suppress(ConnectionError):
                wire.send((GOOD, GOOD[:20], b'', GOOD.replace(b'\r', b''))[i % 4])
        until(lambda: held() <= before, f'descriptors and threads: {before}, then {held()}')


def peers(d):
    return int(re.search(r'atolld_connections_open (\d+)', metrics(d))[1])


def it_takes_little_and_sleeps(top):
    with Daemon(top, '--listen=127.0.0.1:0', f'--socket={top}/sock') as d:
        for _ in range(20):
            d.ask('GET /readyz')
        base = Path(f'/proc/{d.process.pid}')
        size = int(re.search(r'VmRSS:\s+(\d+)', (base / 'status').read_text())[1])
        need(size < 15 * 1024, f'{size} kB resident')

        def switches():
            return sum(int(n) for task in (base / 'task').iterdir()
                       for n in re.findall(r'ctxt_switches:\s+(\d+)', (task / 'status').read_text()))
        time.sleep(0.5)
        before = switches()
        time.sleep(1.5)
        same(switches() - before, 0, 'wake-ups while nobody asks')
        print(f'# {size} kB resident')


def ready_is_who_could_work(top):
    with Daemon(top, '--listen=127.0.0.1:0') as d:
        same(d.ask('GET /readyz').status, 200, 'ready')
        d.home.chmod(0o500)
        try:
            # Nothing is read-only to root that is not mounted so.
            same(d.ask('GET /readyz').status, 503 if os.geteuid() else 200, 'with a store that cannot be written to')
            same(d.ask('GET /healthz').status, 200, 'and it is alive all the same')
        finally:
            d.home.chmod(0o700)
        same(d.ask('GET /readyz').status, 200, 'ready again')


# ---- stopping ----

def stops_at_once_when_idle(top):
    for sig in (signal.SIGTERM, signal.SIGINT):
        with Daemon(top, '--listen=127.0.0.1:0') as d:
            with d.connect() as idle, d.connect() as fresh:
                idle.send(GOOD)
                same(idle.answer().status, 200, 'asked')
                begun = time.monotonic()
                d.tell(sig)
                d.wait_for('STOPPING=1')
                need(idle.is_closed(PATIENCE) and fresh.is_closed(PATIENCE), 'connections are closed')
                same(d.end(), 0, 'exit status')
                need(time.monotonic() - begun < PATIENCE, 'at once')


def stops_under_load(top):
    """Each request is answered whole or not at all."""
    with Daemon(top, '--listen=127.0.0.1:0') as d:
        place = d.places()[0]
        whole, none, broken = [], [], []

        def client():
            try:
                with d.connect(place) as wire:
                    while True:
                        wire.send(GOOD)
                        answer = wire.answer()
                        if answer.status == 0:
                            need(not answer.body, 'half an answer')
                            none.append(1)
                            return
                        same((answer.status, answer.body), (200, b'{"status":"ok"}\n'), 'answer')
                        whole.append(1)
            except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
                none.append(1)
            except Exception as why:  # noqa: B902
                broken.append(why)

        threads = [threading.Thread(target=client) for _ in range(16)]
        for t in threads:
            t.start()
        time.sleep(0.3)
        until(lambda: len(whole) > 16 or broken, 'they are answered')
        d.tell(signal.SIGTERM)
        same(d.end(), 0, 'exit status')
        for t in threads:
            t.join()
        need(not broken, broken)
        same(len(none), 16, 'each of them came to an end')


def serve_becomes_the_daemon(top):
    """atoll serve hands its options on, and is the daemon then."""
    with Daemon(top, f'--socket={top}/sock', '--wait=3', '--log=info', command=[os.environ['ATOLL'], 'serve']) as d:
        need(d.is_alive(), 'serves')
        name = Path(f'/proc/{d.process.pid}/comm').read_text().strip()
        same(name, 'atolld', 'the process')
        same([x['level'] for x in d.log()], ['info'], 'no requests in the log')
    said = subprocess.run([os.environ['ATOLL'], 'serve', '--listen', 'nowhere'], capture_output=True, text=True, check=False,
                          env=dict(os.environ, ATOLL_HOME=f'{top}/store'))
    same(said.returncode, 2, 'wrong usage')
    need('nowhere' in said.stderr, said.stderr)


def few_descriptors_are_survived(top):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, limit[1]))
    try:
        d = Daemon(top, '--listen=127.0.0.1:0')
        d.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    try:
        wires = [d.connect() for _ in range(60)]
        time.sleep(2)
        lines = d.log_path.read_text().count('Too many open files')
        need(0 < lines < 100, f'it said so {lines} times')
        for wire in wires:
            wire.close()
        until(d.is_alive, 'it serves again')
    finally:
        same(d.stop(), 0, 'exit status')


TESTS = [
    the_unix_socket_is_ours_alone, without_options_it_listens_in_the_store, a_socket_has_one_daemon,
    a_socket_whose_maker_is_dead_is_taken,
    of_daemons_that_start_at_once_one_serves, a_directory_of_others_is_refused, tcp_is_loopback_or_tls_or_nothing,
    old_tls_is_refused, wrong_options_are_named, serves_the_sockets_it_is_handed, handed_sockets_obey_the_rule,
    sockets_for_another_process_are_left_alone, connections_live_on, what_is_not_there, ready_is_who_could_work,
    nothing_is_read_before_it_is_allowed, said_of_a_request, counts_what_it_does, connections_are_limited,
    slow_heads_are_ended, slow_heads_over_tls_are_ended, idle_connections_are_ended, nothing_is_left_of_connections,
    stops_at_once_when_idle, stops_under_load, serve_becomes_the_daemon,
]
# Sanitizers take memory and descriptors of their own.
PLAIN_TESTS = [it_takes_little_and_sleeps, few_descriptors_are_survived]

if __name__ == '__main__':
    main(PLAIN_TESTS if 'plain' in sys.argv else TESTS)

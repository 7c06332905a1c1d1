# SPDX-License-Identifier: Apache-2.0
"""What clients of a plan's database find, and what they do with it: the same program runs beside the server and in a
plan, and says the same."""

import difflib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
import pgwire  # noqa: E402
from atolld import Daemon  # noqa: E402
from cluster import Cluster  # noqa: E402
from expect import Broken, need, same  # noqa: E402
from kinds import World, until  # noqa: E402


NOBODY = 65534
CLIENTS = Path(__file__).parent / 'clients'
# Debian's node-pg; where it cannot be installed, because node comes from elsewhere, tools/node-pg has unpacked it.
NODE_PATH = f'/usr/share/nodejs:{os.environ["ATOLL_SOURCE_ROOT"]}/build/node-pg/usr/share/nodejs'


class Skip(Exception):
    pass


# ---- which database ----

def a_command_that_joins_reaches_the_plans_database(w):
    real = {'PGHOST': str(w.cluster.socket), 'PGUSER': w.cluster.role, 'PGDATABASE': w.cluster.database}
    w.start()
    w.must('exec', 'p', '--background', 'job', '--', 'sleep', '1000')
    done = w.must('exec', '--shared', 'p', '--', 'psql', '-XAtc', 'delete from t where id > 2', **real)
    same(done.out, 'DELETE 3\n', 'deleted')
    same(w.cluster.sql('select count(*) from t'), '5', 'outside')
    w.must('job', 'stop', 'p', 'job')
    same(w.sql('select count(*) from t'), '2', 'in the plan')
    # Of a plan without a database nothing is left that another command had.
    w.must('start', 'q', '--dir', 'd', '--or-open')
    w.must('exec', 'q', '--background', 'job', '--', 'sleep', '1000')
    same(w.must('exec', '--shared', 'q', '--', 'sh', '-c', 'echo $PGHOST').out, '\n', 'a plan without a database')
    w.must('job', 'stop', 'q', 'job')


def listeners(w):
    """Of the holder: how many TCP sockets it has, in whatever network."""
    pid, = w.holders()
    return sum(os.readlink(f'/proc/{pid}/fd/{fd}').startswith('socket:') for fd in os.listdir(f'/proc/{pid}/fd'))


def clients_that_know_tcp_alone(w):
    """By name, by URL, from a command that joins; with the host's network it takes the password."""
    w.start()
    count = 'select count(*) from t where id < 10'
    both = f'psql -XAtc "{count}" -h 127.0.0.1 -p $port && psql -XAtc "insert into t values ($port, 0)" "$DATABASE_URL"'
    of_url = 'port=${DATABASE_URL##*:}; port=${port%/*};'
    for more in ((), ('--net', 'none'), ('--net', 'loopback')):
        port = 'port=5432;' if more else of_url
        same(w.must('exec', *more, 'p', '--', 'sh', '-ec', port + both).out, '5\nINSERT 0 1\n', more)
        w.sql('delete from t where id > 10')
        w.must('exec', *more, 'p', '--background', 'job', '--', 'sleep', '1000')
        same(w.must('exec', '--shared', 'p', '--', 'sh', '-ec', port + both).out, '5\nINSERT 0 1\n', f'{more} joined')
        w.must('job', 'stop', 'p', 'job')
        w.sql('delete from t where id > 10')
    same(w.cluster.sql('select count(*) from t'), '5', 'outside')


def nothing_listens_for_a_command_that_has_ended(w):
    w.start()
    w.sql('select 1')
    before = listeners(w)
    w.must('exec', '--net', 'none', 'p', '--', 'psql', '-h', 'localhost', '-c', 'select 1')
    w.must('exec', '--net', 'none', 'p', '--background', 'job', '--', 'sleep', '1000')
    until(lambda: listeners(w) == before + 2, 'a socket that listens, and its life')
    w.must('job', 'stop', 'p', 'job')
    until(lambda: listeners(w) == before, 'closed')
    done = w.atoll('exec', '--net', 'none', 'p', '--', 'sh', '-c', 'psql -h localhost -XAtc "select 1" & kill -9 $$')
    need(done.code, f'{done}')
    until(lambda: listeners(w) == before, 'closed, the command was killed')


def commands_of_the_daemon_have_it_too(w):
    w.start()
    ask = {'argv': ['sh', '-ec', 'psql -XAtc "select count(*) from t" "$DATABASE_URL"; psql -XAtc "delete from t"']}
    with Daemon(w.dir, home=w.home, env={'PGHOST': str(w.cluster.socket), 'PGUSER': w.cluster.role}) as daemon:
        for more in ({}, {'net': 'none'}):
            answer = daemon.ask('POST /v1/plans/p/exec', {**ask, **more})
            said = ''.join(line.get('data', '') for line in map(json.loads, answer.body.splitlines()))
            same(said, '5\nDELETE 5\n', f'{more}: {answer.body}')
            w.sql("insert into t select i, 'again' from generate_series(1, 5) i")
    same(w.cluster.sql('select count(*) from t'), '5', 'outside')


def how_to_connect(w):
    """Port and password with the host's network."""
    url = w.must('exec', 'p', '--', 'printenv', 'DATABASE_URL').out.strip()
    password, port = re.fullmatch(r'postgres://app:(\w+)@127\.0\.0\.1:(\d+)/shop', url).groups()
    same(w.must('exec', 'p', '--', 'printenv', 'PGPASSWORD').out.strip(), password, 'PGPASSWORD')
    same(w.must('exec', 'p', '--', 'printenv', 'JDBC_DATABASE_URL').out.strip(),
         f'jdbc:postgresql://127.0.0.1:{port}/shop?user=app&password={password}', 'JDBC_DATABASE_URL')
    return int(port), password


def sec_other_users_of_the_machine_stay_outside(w):
    w.start()
    port, password = how_to_connect(w)
    address = ('127.0.0.1', port)

    def hello(**how):
        with pgwire.Peer(address, w.cluster.role, w.cluster.database, **how) as peer:
            return peer.hello[-1]

    same(hello(password=password), (b'Z', b'I'), 'with the password')
    for wrong in ('', 'x', password[:-1], password[:-1] + ('0' if password[-1] != '0' else '1')):
        kind, body = hello(password=wrong)
        same((kind, pgwire.fields(body)['C']), (b'E', '28P01'), f'with {wrong!r}')
    for junk in (struct.pack('!II', 8, pgwire.SSL_REQUEST), struct.pack('!II', 8, 80877104)):
        with socket.create_connection(address) as s:
            s.sendall(junk)
            same(s.recv(2), b'N', 'no encryption')
    # Before the password nothing else is taken: no query, no message that goes on and on.
    start = pgwire.text('user', 'app', 'database', 'shop') + b'\0'
    for junk in (pgwire.encode(*pgwire.query('delete from t')), pgwire.encode(b'p', b'\0' * 8),
                 b'p\x7f\xff\xff\xff' + b'x' * 100000, pgwire.encode(*pgwire.Scram('x').first())[:-9] + b'\xff' * 9):
        with socket.create_connection(address) as s:
            s.settimeout(60)
            try:
                s.sendall(struct.pack('!II', len(start) + 8, pgwire.VERSION_3) + start + junk)
                s.shutdown(socket.SHUT_WR)
                got = b''
                while piece := s.recv(4096):
                    got += piece
                need(pgwire.encode(b'R', b'\0' * 4) not in got and b'DELETE' not in got, f'{junk[:20]!r}: {got!r}')
            except OSError:  # refused before it had said all
                pass
    # And whoever connects and says nothing takes no place from others.
    silent = [socket.create_connection(address) for _ in range(40)]
    same(w.sql('select count(*) from t'), '5', 'still there, and nothing was done')
    for s in silent:
        s.close()
    same(hello(password=password), (b'Z', b'I'), 'by TCP, too')
    w.must('reset', 'p')
    need(how_to_connect(w)[1] != password, 'another transaction has another password')


def a_client_says_its_proof_as_the_rfc_has_it(w):
    """Another nonce than the server's, another header, a proof of another length: each is refused."""
    w.start()
    port, password = how_to_connect(w)

    class Odd(pgwire.Scram):
        change = None

        def answer(self, challenge):
            kind, body = super().answer(challenge)
            return kind, self.change(body)

    changes = [lambda b: b.replace(b'c=biws', b'c=eSws'), lambda b: b.replace(b'r=', b'r=A', 1), lambda b: b[:-4],
               lambda b: b + b'A' * 4, lambda b: b[:-8] + b'!!!!!!!!', lambda b: b'', lambda b: b.replace(b',p=', b',q=')]
    for i, change in enumerate([lambda b: b, *changes]):
        Odd.change, before = staticmethod(change), pgwire.Scram
        pgwire.Scram = Odd
        try:
            with pgwire.Peer(('127.0.0.1', port), w.cluster.role, w.cluster.database, password=password) as peer:
                same(peer.hello[-1][0], b'E' if i else b'Z', f'change {i}')
        finally:
            pgwire.Scram = before


# ---- drivers ----

class Relay(threading.Thread):
    """A TCP port of the loopback before the Unix socket of a server, which has no other."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.listener = path, socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]

    def run(self):
        while True:
            client, _ = self.listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.path)
            for way in ((client, server), (server, client)):
                threading.Thread(target=self.carry, args=way, daemon=True).start()

    @staticmethod
    def carry(source, target):
        try:
            while piece := source.recv(1 << 16):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def compare(w, *command, masks=()):
    """What a program prints in a plan, and beside it."""
    relay = Relay(f'{w.cluster.socket}/.s.PGSQL.5432')
    relay.start()
    there = f'127.0.0.1:{relay.port}/{w.cluster.database}'
    direct = dict(w.env, PGHOST=str(w.cluster.socket), PGPORT='5432', PGUSER=w.cluster.role, PGDATABASE=w.cluster.database,
                  DATABASE_URL=f'postgres://{w.cluster.role}@{there}',
                  JDBC_DATABASE_URL=f'jdbc:postgresql://{there}?user={w.cluster.role}')
    w.start()
    inside = w.atoll('exec', 'p', '--', *command)
    w.must('stop', '--force', 'p')
    same(w.cluster.sql('select count(*) from t'), '5', 'something got out')
    done = subprocess.run(command, env=direct, cwd=w.dir, capture_output=True, text=True, timeout=300, check=False)
    need(done.returncode == 0, f'beside the plan: {done.stderr[-1500:]} {done.stdout[-500:]}')
    want, got = done.stdout, inside.out
    for mask in masks:
        want, got = (re.sub(mask, '...', text) for text in (want, got))
    lines = difflib.unified_diff(want.splitlines(), got.splitlines(), 'server', 'plan', lineterm='', n=2)
    need(want == got and inside.code == 0, '\n'.join([*lines, f'exit {inside.code}', inside.err[-2000:]]))


def programs_with_psycopg2(w):
    compare(w, '/usr/bin/python3', CLIENTS / 'psycopg2-client.py')


def programs_with_psycopg3_and_its_pipelines(w):
    compare(w, '/usr/bin/python3', CLIENTS / 'psycopg3-client.py')


def programs_with_asyncpg(w):
    compare(w, '/usr/bin/python3', CLIENTS / 'asyncpg-client.py')


def programs_with_jdbc(w):
    compare(w, 'java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-cp', '/usr/share/java/postgresql.jar',
            CLIENTS / 'JdbcClient.java')


def programs_with_node(w):
    if not any((Path(folder) / 'pg').is_dir() for folder in NODE_PATH.split(':')):
        raise Skip('no node-postgres: tools/node-pg build fetches it')
    compare(w, 'env', f'NODE_PATH={NODE_PATH}', 'node', CLIENTS / 'node-client.js')


TESTS = [a_command_that_joins_reaches_the_plans_database, clients_that_know_tcp_alone,
         nothing_listens_for_a_command_that_has_ended, commands_of_the_daemon_have_it_too,
         sec_other_users_of_the_machine_stay_outside, a_client_says_its_proof_as_the_rfc_has_it,
         programs_with_psycopg2, programs_with_psycopg3_and_its_pipelines, programs_with_asyncpg,
         programs_with_jdbc, programs_with_node]


# ---- the frame ----

def attempt(number, test, cluster, who):
    problem, skipped, began = None, '', time.monotonic()
    try:
        with World(cluster, os.environ['TMPDIR']) as w:
            test(w)
    except Skip as why:
        skipped = f' # SKIP {why}'
    except (Broken, OSError, ValueError, KeyError, AssertionError, subprocess.SubprocessError) as broken:
        problem = f'{type(broken).__name__}: {broken}'
    print(f'{"not ok" if problem else "ok"} {number} - {test.__name__}, {who}{skipped}', flush=True)
    print(f'# {time.monotonic() - began:.1f} s', flush=True)
    if problem:
        print('\n'.join('# ' + line for line in problem.splitlines()[:30]), flush=True)
    return not problem


def run(tests, first, who, top):
    with Cluster(top, autovacuum='off') as cluster:
        return all([attempt(i, t, cluster, who) for i, t in enumerate(tests, first)])


def main():
    """Root: each test as root, and once more as an ordinary user."""
    names = [word for word in sys.argv[1:] if not word.isdigit()]
    tests = [t for t in TESTS if not names or t.__name__ in names]
    first = next((int(word) for word in sys.argv[1:] if word.isdigit()), 0)
    both = os.geteuid() == 0
    if not first:
        print(f'1..{len(tests) * (1 + both)}', flush=True)
    top = tempfile.mkdtemp(prefix='atoll-pg-', dir='/var/tmp')
    os.chmod(top, 0o755)
    os.environ.update(TMPDIR=top, HOME=top)
    try:
        fine = run(tests, first or 1, 'root' if both else 'user', top)
    finally:
        shutil.rmtree(top, ignore_errors=True)
    if both:
        user = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups', sys.executable, __file__]
        again = subprocess.run([*user, *names, str(len(tests) + 1)], env=dict(os.environ, TMPDIR='/var/tmp'), check=False)
        fine &= again.returncode == 0
    return 0 if fine else 1


if __name__ == '__main__':
    sys.exit(main())

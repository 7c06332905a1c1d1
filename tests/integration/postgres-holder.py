# SPDX-License-Identifier: Apache-2.0
"""One transaction, many clients: real clients (psql, pg_dump, pgbench, asyncpg) against the holder of a
sandbox's transaction, beside a real server. What they see must be what the server itself would have said."""

import asyncio
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import asyncpg

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from cluster import Cluster, binary  # noqa: E402
from expect import Broken, need, same  # noqa: E402

HOLDER = os.environ['ATOLL_POSTGRES']


class Holder:
    def __init__(self, cluster, top, *more):
        self.cluster, self.dir = cluster, Path(tempfile.mkdtemp(dir=top))
        (self.dir / 'clients').mkdir(mode=0o700)
        self.child = subprocess.Popen([HOLDER, 'hold', str(self.dir), *more], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.child.stdin.write(cluster.url + '\n')
        self.child.stdin.close()
        self.said = self.child.stdout.readline().strip()

    def __enter__(self):
        need(self.said == 'ok ready', f'the holder said {self.said!r}')
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()

    def ask(self, line):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.dir / 'manage'))
            s.sendall(line.encode() + b'\n')
            return s.makefile().read().strip()

    def env(self, direct=False):
        host = self.cluster.socket if direct else self.dir / 'clients'
        return dict(os.environ, PGHOST=str(host), PGUSER=self.cluster.role, PGDATABASE=self.cluster.database,
                    PGPORT='5432', LC_ALL='C')

    def psql(self, text, direct=False):
        """Output and messages of a session, as one text, ids that differ by nature masked."""
        done = subprocess.run([binary('psql'), '-X', '-v', 'VERBOSITY=verbose'], input=text, env=self.env(direct),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        return re.sub(r'LOCATION: .*\n', '', done.stdout)

    def run(self, *argv):
        done = subprocess.run(argv, env=self.env(), capture_output=True, text=True, timeout=120, check=False)
        need(done.returncode == 0, f'{argv[0]}: {done.stderr}')
        return done

    async def connect(self):
        return await asyncpg.connect(host=str(self.dir / 'clients'), port=5432, user=self.cluster.role,
                                     database=self.cluster.database)


PATIENCE = 60  # seconds, for what must happen
TABLE = 'drop table if exists t cascade; create table t(id int primary key, v text); ' \
        "insert into t select i, 'v' || i from generate_series(1, 5) i;"

# Each is run in the sandbox and beside it; every byte of what psql prints must be the same.
SESSIONS = {
    'plain': "select * from t order by 1;\ninsert into t values (6, 'x');\nupdate t set v = 'y' where id = 1;\n"
             'delete from t where id = 2;\nselect * from t order by 1;\n',
    'errors': "select 1/0;\nselect bogus;\ninsert into t values (1, 'dup');\nselect 'üü', wrong;\n"
              'select * from t;\n',
    'blocks': "begin;\ninsert into t values (7, 'a');\nrollback;\nbegin;\ninsert into t values (8, 'b');\ncommit;\n"
              'begin;\nselect 1/0;\nselect 1;\ncommit;\nbegin;\nbegin;\nend;\nabort;\ncommit;\nselect * from t;\n'
              'START TRANSACTION;\nABORT WORK;\nBegin Work;\nEND TRANSACTION;\n/* x */ begin -- y\n;\nrollback;\n',
    'chains': "begin;\ninsert into t values (9, 'c');\ncommit and chain;\ninsert into t values (10, 'd');\n"
              'rollback and chain;\nselect count(*) from t;\nrollback;\nselect count(*) from t;\n',
    'savepoints': "savepoint x;\nrelease x;\nrollback to x;\nbegin;\nsavepoint a;\ninsert into t values (1, 'dup');\nrollback to a;\ninsert into t values (11, 'e');\n"
                  'savepoint b;\nrelease a;\nrollback to b;\ncommit;\nselect * from t;\n',
    'strings': "select 1\\; select 2\\; select 1/0\\; select 3;\nbegin\\; insert into t values (12, 'f')\\; commit\\; "
               "select count(*) from t;\nbegin\\; select 1\\; rollback\\; insert into t values (13, 'g');\n"
               "insert into t values (14, 'h')\\; select 1/0;\nselect count(*) from t;\n"
               "select ';commit;', $x$ ; rollback; $x$, E'\\';commit;';\n;\n\\;\n"
               'select 1\\; begin\\; select bogus;\nrollback;\n',
    'local': "begin;\nset local work_mem = '77MB';\nshow work_mem;\ncommit;\nshow work_mem;\nset local work_mem = '1MB';\n"
             "show work_mem;\nset work_mem = '88MB';\nbegin;\nset work_mem = '99MB';\nrollback;\nshow work_mem;\n"
             "begin;\nset local time zone 'UTC';\nset local my.thing = 'x';\ncommit;\nshow timezone;\n"
             "select current_setting('my.thing', true) = '';\n",
    'read only': 'begin read only;\ninsert into t values (20);\nrollback;\ninsert into t values (20);\nbegin;\n'
                 'set transaction read only;\ndelete from t;\nrollback;\ndelete from t where id = 20;\n'
                 'set transaction read only;\n',
    'deferred': 'create table d(id int primary key, r int references t(id) deferrable initially deferred);\n'
                'insert into d values (1, 99);\ninsert into d values (1, 1);\nbegin;\ninsert into d values (2, 99);\n'
                'commit;\nbegin;\ninsert into d values (2, 99);\nset constraints all immediate;\nrollback;\nbegin;\n'
                'insert into d values (3, 1);\nset constraints all immediate;\ninsert into d values (4, 99);\nrollback;\n'
                'begin;\nset constraints d_r_fkey immediate;\ninsert into d values (4, 99);\ncommit;\nbegin;\n'
                'insert into d values (5, 99);\ninsert into t values (99);\ncommit;\nset constraints all deferred;\n'
                'select * from d;\n',
    'deferrable': 'create table e(id int unique deferrable, n int);\ninsert into e values (1, 1), (2, 2);\n'
                  'update e set id = 3 - id;\nbegin;\nset constraints all deferred;\nupdate e set id = 2;\n'
                  'update e set id = n;\ncommit;\ninsert into e values (1);\nselect * from e;\n',
    'cursors': 'begin;\ndeclare c cursor for select * from t order by 1;\nfetch 2 from c;\ncommit;\nfetch 1 from c;\nbegin;\n'
               'declare c cursor for select 1;\nfetch 1 from c;\nrollback;\n',
    'prepared': 'prepare q(int) as select * from t where id = $1;\nexecute q(1);\nbegin;\nexecute q(2);\nrollback;\n'
                'deallocate q;\nexecute q(1);\ndeallocate q;\nprepare q as select 1;\ndeallocate all;\nexecute q;\n',
    'routines': 'do $$ begin commit; end $$;\ncreate procedure p() language plpgsql as $$ begin rollback; end $$;\n'
                'create function f() returns int begin atomic select 1; select 2; end; select f();\n'
                'create function g() returns int language sql as $$ select 1; select 3 $$; select g();\n',
    'copy': 'copy t from stdin;\n100\tx\n101\ty\n\\.\ncopy t from stdin;\n1\tdup\n2\tx\n\\.\nselect count(*) from t;\n'
            "copy (select * from t order by 1) to stdout;\ncopy t from stdin\\; select 'after';\n200\tz\n\\.\n",
    'describing': '\\d t\nselect 1 as a, now() as b \\gdesc\n\\set FETCH_COUNT 2\nselect * from t order by 1;\n',
    'encodings': "set client_encoding = latin1;\nselect octet_length('ü');\nshow client_encoding;\nreset all;\n"
                 'set standard_conforming_strings = off;\nselect 1 as "a;b";\n',
    'notices': 'do $$ begin raise notice \'hello\'; end $$;\nset client_min_messages = error;\nselect 1;\n',
    'advice': 'explain (costs off) select * from t;\nshow transaction_read_only;\n',
}

def sessions_are_told_what_a_server_tells(cluster, top):
    for name, text in SESSIONS.items():
        cluster.sql(TABLE)
        with Holder(cluster, top) as holder:
            inside = holder.psql(text)
            same(cluster.sql('select count(*) from t'), '5', f'{name}: something got out')
            holder.ask('rollback')
            holder.child.wait()
        outside = holder.psql(text, direct=True)
        if name == 'routines':  # a COMMIT in a DO works outside: there it is the outermost statement
            inside, outside = (re.sub(r'(?s)^.*?CREATE PROCEDURE', '', s) for s in (inside, outside))
        same(inside.splitlines(), outside.splitlines(), name)
        cluster.sql('drop schema public cascade; create schema public')


def nothing_leaves_before_the_commit(cluster, top):
    cluster.sql(TABLE)
    with Holder(cluster, top) as holder:
        holder.psql("insert into t values (6, 'in'); begin; delete from t where id = 1; commit;")
        same(holder.psql('\\pset tuples_only\nselect count(*) from t'), 'Tuples only is on.\n     5\n\n', 'inside')
        same(cluster.sql('select count(*), min(id) from t'), '5|1', 'outside')
        need(holder.ask('status').startswith('ok prepare '), 'status')
        same(holder.ask('changes'), 'C 1 0 1 public.t\nok', 'changes')
        same(holder.ask('check'), 'ok', 'check')
        same(holder.ask("prepare atoll:x'y"), 'ok', 'prepare')
        same(holder.child.wait(PATIENCE), 0, 'the holder ends')
    same(cluster.sql('select count(*), min(id) from t'), '5|1', 'prepared is not committed')
    same(cluster.sql('select gid from pg_prepared_xacts'), "atoll:x'y", 'prepared')
    cluster.sql("commit prepared 'atoll:x''y'")
    same(cluster.sql('select count(*), min(id) from t'), '5|2', 'committed')
    same(cluster.sql("select count(*) from pg_class where relname like '%atoll%'"), '0', 'the guard is gone')
    same(cluster.sql("select count(*) from pg_proc where proname like '%atoll%'"), '0', 'the guard is gone')


def whatever_commits_past_us_is_refused(cluster, top):
    cluster.sql(TABLE)
    with Holder(cluster, top) as holder:
        # A statement of which the holder sees only one half: the server reads what it is sent.
        with raw_client(holder) as s:
            s.sendall(message(b'Q', b"insert into t values (50, 'x')\0"))
            read_until(s, b'Z')
        same(holder.psql('prepare transaction \'mine\';').count('0A000'), 1, 'two-phase')
        same(holder.psql("commit prepared 'mine';").count('0A000'), 1, 'two-phase')
        same(holder.psql('begin; release _atoll_unit;').count('ERROR'), 1, 'our savepoint')
        same(cluster.sql('select count(*) from t'), '5', 'outside')


def message(kind, body):
    return kind + struct.pack('!I', len(body) + 4) + body


class raw_client:
    def __init__(self, holder, user=None, database=None):
        self.holder, self.user, self.database = holder, user, database

    def __enter__(self):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(PATIENCE)
        self.s.connect(str(self.holder.dir / 'clients/.s.PGSQL.5432'))
        body = struct.pack('!I', 196608) + b''.join(
            k.encode() + b'\0' + v.encode() + b'\0' for k, v in (
                ('user', self.user or self.holder.cluster.role),
                ('database', self.database or self.holder.cluster.database))) + b'\0'
        self.s.sendall(struct.pack('!I', len(body) + 4) + body)
        self.hello = read_until(self.s, b'Z', b'E')
        return self.s

    def __exit__(self, *_):
        self.s.close()


def read_exactly(s, n):
    data = b''
    while len(data) < n:
        piece = s.recv(n - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def read_message(s):
    head = read_exactly(s, 5)
    return head[:1], read_exactly(s, struct.unpack('!I', head[1:])[0] - 4)


def read_until(s, *kinds):
    got = []
    while not got or got[-1][0] not in kinds:
        got.append(read_message(s))
    return got


def strangers_are_refused(cluster, top):
    cluster.sql(TABLE)
    with Holder(cluster, top) as holder:
        for user, database, state in (('postgres', None, b'28000'), (None, 'postgres', b'3D000')):
            client = raw_client(holder, user, database)
            with client:
                kind, body = client.hello[-1]
                need(kind == b'E' and state in body, f'{user} {database}: {body!r}')
        for junk in (b'GET / HTTP/1.1\r\n\r\n', b'\0\0\0\4', b'\xff' * 64, struct.pack('!II', 8, 196607)):
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(PATIENCE)
                s.connect(str(holder.dir / 'clients/.s.PGSQL.5432'))
                s.sendall(junk)
                s.shutdown(socket.SHUT_WR)
                while s.recv(4096):
                    pass
        with raw_client(holder) as s:
            s.sendall(b'Q\xff\xff\xff\xff')
            kind, body = read_message(s)
            need(kind == b'E', f'a length that cannot be: {kind!r}')
        same(holder.psql('\\t\nselect count(*) from t'), 'Tuples only is on.\n     5\n\n', 'still alive')


def pieces_arrive_in_any_size(cluster, top):
    cluster.sql(TABLE)
    parse = message(b'P', b'\0insert into t values ($1, $2)\0\0\0')
    bind = message(b'B', b'\0\0\0\0\0\2' + struct.pack('!I', 2) + b'70' + struct.pack('!I', 1) + b'q' + b'\0\0')
    batch = parse + bind + message(b'D', b'P\0') + message(b'E', b'\0\0\0\0\0') + message(b'S', b'')
    with Holder(cluster, top) as holder, raw_client(holder) as s:
        for i in range(0, len(batch)):
            s.sendall(batch[i:i + 1])
        same([k for k, _ in read_until(s, b'Z')], [b'1', b'2', b'n', b'C', b'Z'], 'answers')
        # BEGIN and what follows in one breath, as JDBC does it.
        begin = message(b'P', b'\0BEGIN\0\0\0') + message(b'B', b'\0' * 8) + message(b'E', b'\0\0\0\0\0')
        s.sendall(begin + parse + bind.replace(b'70', b'71') + message(b'E', b'\0\0\0\0\0') + message(b'S', b''))
        got = read_until(s, b'Z')
        same([k for k, _ in got], [b'1', b'2', b'C', b'1', b'2', b'C', b'Z'], 'answers')
        same((got[2][1], got[-1][1]), (b'BEGIN\0', b'T'), 'a block')
        s.sendall(message(b'P', b'c\0COMMIT\0\0\0') + message(b'D', b'Sc\0') + message(b'S', b''))
        same([k for k, _ in read_until(s, b'Z')], [b'1', b't', b'n', b'Z'], 'described')
        s.sendall(message(b'B', b'\0c\0' + b'\0' * 6) + message(b'E', b'\0\0\0\0\0') + message(b'C', b'Sc\0') +
                  message(b'S', b''))
        got = read_until(s, b'Z')
        same([k for k, _ in got], [b'2', b'C', b'3', b'Z'], 'a named COMMIT')
        same((got[1][1], got[-1][1]), (b'COMMIT\0', b'I'), 'committed')
        # A failure, what follows it is skipped, and the block is over.
        s.sendall(begin + message(b'P', b'\0select 1/0\0\0\0') + message(b'B', b'\0' * 8) +
                  message(b'E', b'\0\0\0\0\0') + parse + message(b'S', b''))
        got = read_until(s, b'Z')
        same(([k for k, _ in got], got[-1][1]), ([b'1', b'2', b'C', b'1', b'E', b'Z'], b'E'), 'failed')
        s.sendall(message(b'P', b'\0ROLLBACK\0\0\0') + message(b'B', b'\0' * 8) + message(b'E', b'\0\0\0\0\0') +
                  message(b'S', b''))
        same(read_until(s, b'Z')[-1][1], b'I', 'rolled back')


def data_need_not_wait_for_the_answer(cluster, top):
    cluster.sql(TABLE)
    data, end = message(b'd', b'60\tx\n'), message(b'c', b'')
    execute = message(b'P', b'\0copy t from stdin\0\0\0') + message(b'B', b'\0' * 8) + message(b'E', b'\0\0\0\0\0')
    long = message(b'd', b'62\t' + b'y' * 2000000 + b'\n')
    with Holder(cluster, top) as holder, raw_client(holder) as s:
        for text, kinds in (
                (message(b'Q', b'copy t from stdin\0') + data + end, b'GCZ'),
                (message(b'Q', b'begin; copy t from stdin; rollback\0') + data.replace(b'60', b'61') + end, b'CGCCZ'),
                (message(b'Q', b'copy t from stdin\0') + data + end, b'GEZ'),  # a duplicate
                (message(b'Q', b'copy nothing from stdin\0') + data + end, b'EZ'),
                (message(b'Q', b'copy nothing from stdin\0') + long + end, b'EZ'),
                (message(b'Q', b'copy t from stdin\0') + long + end, b'GCZ'),
                (execute + data.replace(b'60', b'63') + end + message(b'S', b''), b'12GCZ'),
                (execute + message(b'd', b'oh\n') + end + message(b'S', b''), b'12GEZ'),
                (message(b'Q', b'select 1\0'), b'TDCZ')):
            s.sendall(text)
            same(b''.join(k for k, _ in read_until(s, b'Z')), kinds, text[:60])
        with raw_client(holder) as other:  # it dies in the middle of a long piece of data
            other.sendall(message(b'Q', b'copy t from stdin\0') + long[:100000])
            read_until(other, b'G')
        same(holder.psql('\\t\nselect count(*), sum(id) from t'), 'Tuples only is on.\n     8 | 200\n\n', 'rows')


def long_values_pass(cluster, top):
    cluster.sql(TABLE)
    with Holder(cluster, top) as holder:
        out = holder.run(binary('psql'), '-XAtc', "select repeat('x', 20000000)").stdout
        same(len(out), 20000001, 'a long row')
        big = Path(top) / 'big.tsv'
        big.write_text('300\t' + 'y' * 5000000 + '\n', encoding='utf-8')
        holder.run(binary('psql'), '-Xc', f"\\copy t from '{big}'")
        same(holder.run(binary('psql'), '-XAtc', 'select length(v) from t where id = 300').stdout, '5000000\n', 'in')
        peak = int(re.search(r'VmHWM:\s+(\d+)', Path(f'/proc/{holder.child.pid}/status').read_text())[1])
        need('ASAN' in os.environ.get('ASAN_OPTIONS', '') or peak < 400_000, f'{peak} kB for a row of 20 MB')


def tools_run_unmodified(cluster, top):
    with Holder(cluster, top) as holder:
        holder.run(binary('pgbench'), '-i', '-I', 'dtgp', '-q')
        for mode in ('simple', 'extended', 'prepared'):
            for clients in ('1', '4'):
                out = holder.run(binary('pgbench'), '-n', '-M', mode, '-c', clients, '-j', '2', '-t', '20').stdout
                need('failed transactions: 0 ' in out, f'pgbench -M {mode} -c {clients}: {out}')
        history = holder.run(binary('psql'), '-XAtc', 'select count(*) from pgbench_history').stdout
        same(history, f'{3 * (20 + 80)}\n', 'pgbench')
        dump = holder.run(binary('pg_dump'), '--data-only', '-t', 'pgbench_history').stdout
        same(sum(line.count('\t') > 3 for line in dump.splitlines()), 300, 'pg_dump')
        same(cluster.sql("select count(*) from pg_class where relname like 'pgbench%'"), '0', 'outside')
        need(holder.ask('status').startswith('ok prepare '), 'status')


async def use_asyncpg(holder):
    a, b = await holder.connect(), await holder.connect()
    await a.executemany('insert into t values ($1, $2)', [(i, str(i)) for i in range(100, 200)])
    same(await b.fetchval('select count(*) from t'), 105, 'seen by the other')
    async with a.transaction():
        await a.execute('insert into t values (1000, $1)', 'x')
        try:
            async with a.transaction():
                await a.execute('select 1/0')
            raise Broken('no error')
        except asyncpg.DivisionByZeroError:
            pass
    same(await a.fetchval('select v from t where id = 1000'), 'x', 'an inner failure')
    one = await a.prepare('select id from t where id < $1 order by id')
    two = await b.prepare('select v from t where id < $1 order by id')  # the same name for another text
    same([await s.fetchval(3) for s in (one, two, one)], [1, 'v1', 1], 'two statements of one name')
    async with a.transaction():
        same([r['id'] async for r in a.cursor('select id from t order by id limit 3')], [1, 2, 3], 'cursor')
    same(await a.copy_records_to_table('t', records=[(5000 + i, 'c') for i in range(2000)]), 'COPY 2000', 'copy')
    block = a.transaction()
    await block.start()
    await a.execute('delete from t')
    waiting = asyncio.create_task(b.fetchval('select count(*) from t'))
    await asyncio.sleep(0.3)
    need(not waiting.done(), 'a client inside a block was interrupted')
    await block.rollback()
    same(await waiting, 2106, 'after the block')
    try:
        await a.fetchval('select pg_sleep(60)', timeout=0.3)
        raise Broken('not cancelled')
    except asyncio.TimeoutError:
        pass
    same(await a.fetchval('select 7'), 7, 'after a cancel')
    await a.execute('set search_path to pg_catalog')
    same([await c.fetchval('show search_path') for c in (a, b, a)],
         ['pg_catalog', '"$user", public', 'pg_catalog'], 'settings are each client\'s own')
    await a.close()
    await b.close()


def a_driver_that_is_not_libpq(cluster, top):
    cluster.sql(TABLE)
    with Holder(cluster, top) as holder:
        asyncio.run(use_asyncpg(holder))
        need(holder.ask('status').startswith('ok prepare '), 'status')


def who_waits_too_long_is_told(cluster, top):
    cluster.sql(TABLE)
    with Holder(cluster, top, '--wait-ms', '300') as holder, raw_client(holder) as s:
        s.sendall(message(b'Q', b'begin; delete from t\0'))
        read_until(s, b'Z')
        need('55P03' in holder.psql('select 1;'), 'it waits for ever')
        need(holder.ask('status').startswith('error 55006'), 'asked inside a block')
        s.sendall(message(b'Q', b'rollback\0'))
        read_until(s, b'Z')
        need(holder.ask('status').startswith('ok prepare '), 'status')


def a_client_that_dies_leaves_nothing(cluster, top):
    cluster.sql(TABLE)
    with Holder(cluster, top) as holder:
        for text in (b'begin; delete from t', b'delete from t; select pg_sleep(30)', b'copy t from stdin'):
            with raw_client(holder) as s:
                s.sendall(message(b'Q', text + b'\0'))
                if b'sleep' not in text:
                    read_until(s, b'Z', b'G')
            same(holder.psql('\\t\nselect count(*) from t'), 'Tuples only is on.\n     5\n\n', text)


def the_end_of_the_server_is_said(cluster, top):
    cluster.sql(TABLE)
    with Holder(cluster, top) as holder, raw_client(holder) as s:
        cluster.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'atoll'",
                    user='postgres')
        kind, body = read_message(s)
        need(kind == b'E' and b'57P01' in body and b'gone' in body, f'{kind!r} {body!r}')
        same(holder.child.wait(PATIENCE), 1, 'the holder ends')
        need('terminating connection' in (holder.dir / 'gone').read_text(), 'and says why')


def what_cannot_be_prepared_is_known(cluster, top):
    cluster.sql(TABLE)
    for text, why in (('create temp table x(i int)', 'temporary'), ('listen a', 'LISTEN'),
                      ("select pg_notify('a', 'b')", 'NOTIFY'),
                      ('begin; declare c cursor with hold for select 1; commit', 'HOLD')):
        with Holder(cluster, top) as holder:
            holder.psql(text + ';')
            status = holder.ask('status')
            need(status.startswith('ok final ') and why in status, f'{text}: {status}')


def roles_without_a_schema(cluster, top):
    cluster.sql('revoke create on schema public from public; alter schema public owner to postgres', user='postgres')
    try:
        holder = Holder(cluster, top)
        need('error' in holder.said and 'no schema' in holder.said, holder.said)
        holder.child.wait(PATIENCE)
        with Holder(cluster, top, '--unguarded') as holder:
            need('final' in holder.ask('status'), 'status')
    finally:
        cluster.sql(f'alter schema public owner to {cluster.role}', user='postgres')


TESTS = [sessions_are_told_what_a_server_tells, nothing_leaves_before_the_commit, whatever_commits_past_us_is_refused,
         strangers_are_refused, pieces_arrive_in_any_size,
         data_need_not_wait_for_the_answer, long_values_pass, tools_run_unmodified,
         a_driver_that_is_not_libpq, who_waits_too_long_is_told, a_client_that_dies_leaves_nothing,
         the_end_of_the_server_is_said, what_cannot_be_prepared_is_known, roles_without_a_schema]


def attempt(number, test, cluster, top):
    problem = None
    try:
        test(cluster, top)
    except (Broken, OSError, EOFError, AssertionError, subprocess.SubprocessError, asyncpg.PostgresError) as broken:
        problem = f'{type(broken).__name__}: {broken}'
    print(f'{"not ok" if problem else "ok"} {number} - {test.__name__}', flush=True)
    if problem:
        print('\n'.join('# ' + line for line in problem.splitlines()[:20]), flush=True)
    return not problem


def main():
    only = sys.argv[1:]
    tests = [t for t in TESTS if not only or t.__name__ in only]
    print(f'1..{len(tests)}', flush=True)
    top = tempfile.mkdtemp(prefix='atoll-pg-', dir='/var/tmp')
    os.chmod(top, 0o755)
    try:
        with Cluster(top) as cluster:
            return 0 if all([attempt(i, t, cluster, top) for i, t in enumerate(tests, 1)]) else 1
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == '__main__':
    sys.exit(main())

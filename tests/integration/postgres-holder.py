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
import threading
import time
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


PATIENCE = float(os.environ.get('PATIENCE', 60))  # seconds, for what must happen
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
    'deferred from its making': 'create table d(id int primary key);\ndrop table d;\nbegin;\ncreate table d(r int references t deferrable initially deferred);\n'
                                'insert into d values (99);\ninsert into t values (99);\ncommit;\nbegin;\ninsert into d values (98);\ncommit;\n'
                                'create table e(id int unique deferrable);\ninsert into e values (1), (2);\nupdate e set id = 3 - id;\n'
                                'begin;\ninsert into e values (1);\nrollback;\n',
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
    'outside a block': 'lock table t in share mode;\ndeclare c cursor for select 1;\nset constraints all deferred;\nset local no_such = 1;\n'
                       'commit and chain;\nrollback and chain;\nset transaction read only;\nvacuum t\\; select 1;\n'
                       "lock table t in share mode\\; declare c cursor for select 1\\; fetch c;\nfetch c;\nset local work_mem = '1MB'\\; show work_mem;\n"
                       'show work_mem;\nbegin;\nvacuum t;\nrollback;\ncommit for ever;\nbegin work work;\nsavepoint;\nrollback to;\n'
                       'begin read only;\ncommit and chain;\ninsert into t values (30);\nrollback;\n',
    'one behind the other': "select 1 as a\\; select 1/0 as b\\; select 3 as c;\ninsert into t values (31, 'a;b') returning id;\n"
                            "insert into t values (31, 'a;b') returning id\\; select 2;\nselect 'ü;ü'\\; select wrong;\n"
                            "select 1\\; copy t from stdin (delimiter ';')\\; select 2;\n32;x\n\\.\ncopy t to stdout (delimiter ';');\n"
                            "copy t from stdin (delimiter ';');\nx;x\n\\.\nexplain (costs off) select ';'\\; show work_mem;\n"
                            "do $$ begin raise notice 'a;'; end $$;\nselect 1 +\\; select 2;\ncommit\\; select ';' from nowhere;\n"
                            'create function "begin"() returns int language sql as $$ select 1; $$\\; select "begin"();\n'
                            'prepare q as select 1\\; execute q;\nselect count(*) from t;\n',
    'dropped': 'create table d(r int references t(id) deferrable initially deferred);\ninsert into d values (1);\ndrop table d;\n'
               'create table e(r int constraint same references t(id) deferrable initially deferred);\n'
               'create table f(r int constraint same references t(id));\ninsert into e values (1);\ninsert into e values (77);\n'
               'create table g(r int references t(id) deferrable initially deferred);\ninsert into g values (77);\n'
               "do $$ begin execute 'drop table g'; end $$;\nselect 1;\nbegin;\nset constraints all deferred;\ndrop table e;\ncommit;\n"
               'begin;\nset local application_name = \'x\';\ncommit;\nshow application_name;\n',
    'dying routines': 'create procedure c() language plpgsql as $$ begin insert into t values (40); commit; end $$;\n'
                      'begin;\ncall c();\nrollback;\nbegin;\ndo $$ begin rollback; end $$;\nrollback;\n',
    'local by function': "begin;\nselect set_config('app.tenant', '1', true);\ncommit;\nselect current_setting('app.tenant', true);\n"
                         "select set_config('work_mem', '9MB', true);\nshow work_mem;\nbegin;\nselect set_config('app.a', '2,(3', true), "
                         "set_config( 'app.b' , 'x''y' ,\n true ), set_config('app.c', '4', false);\ncommit;\n"
                         "select current_setting('app.a'), current_setting('app.b'), current_setting('app.c');\n",
    'local, and then not': "select set_config('work_mem', '3MB', true)\\; select set_config('work_mem', '2MB', false);\nshow work_mem;\n"
                           'begin read only;\nselect 1/0;\ncommit and chain;\nshow transaction_read_only;\nrollback;\n'
                           'begin read only;\nsavepoint a;\nselect 1/0;\nrollback and chain;\nshow transaction_read_only;\nrollback;\n'
                           'begin read only;\nselect 1;\nrollback and chain;\nselect 1/0;\nrollback and chain;\nshow transaction_read_only;\nrollback;\n'
                           'begin read only;\nsavepoint a;\nrelease a;\nselect 1/0;\nrollback and chain;\nshow transaction_read_only;\nrollback;\n',
    'local and not': "begin;\nset local work_mem = '1MB';\nset work_mem = '2MB';\ncommit;\nshow work_mem;\n"
                     "begin;\nset work_mem = '3MB';\nset local work_mem = '4MB';\ncommit;\nshow work_mem;\n"
                     "begin;\nsavepoint a;\nset local work_mem = '5MB';\nsavepoint b;\nset work_mem = '6MB';\nrollback to b;\ncommit;\nshow work_mem;\n"
                     "begin;\nset local work_mem = '7MB';\nsavepoint b;\nset work_mem = '8MB';\nrelease b;\nshow work_mem;\ncommit;\nshow work_mem;\n"
                     "begin;\nset local work_mem = '9MB';\nreset work_mem;\ncommit;\nshow work_mem;\n"
                     "begin;\nset local time zone 'CET';\nset time zone 'EST';\ncommit;\nshow timezone;\n"
                     "set local work_mem = '10MB'\\; set work_mem = '11MB';\nshow work_mem;\n",
    'local and definitions': "begin;\nset local lock_timeout = '4s';\ncreate table u(i int);\ncommit;\ntable u;\nbegin;\n"
                             "set local application_name = 'x';\nalter table u add j int;\ncommit;\ntable u;\nshow application_name;\n",
    'read only by default': 'set default_transaction_read_only = on;\ninsert into t values (40);\nbegin;\ninsert into t values (41);\nrollback;\n'
                            'begin read write;\ninsert into t values (42);\ncommit;\nbegin;\nset transaction read write;\n'
                            'insert into t values (43);\ncommit and chain;\ninsert into t values (44);\ncommit;\nbegin;\ncommit and chain;\n'
                            'show transaction_read_only;\nrollback;\nset session characteristics as transaction read write;\n'
                            'insert into t values (45);\nselect id from t where id > 39;\nbegin read only;\nset transaction read write;\n'
                            'insert into t values (46);\ncommit;\nbegin read only;\nselect 1;\nset transaction read write;\nrollback;\n',
    'cursors of functions': 'create function f() returns refcursor language plpgsql as $$ declare c cursor for select * from t order by 1; '
                            'begin open c; return c; end $$;\nbegin;\nselect f();\nfetch 1 in c;\ncommit;\nbegin;\nselect f();\n'
                            'fetch 2 in c;\nrollback;\nselect f();\nselect f();\nfetch 1 in c;\n',
    'advice': 'explain (costs off) select * from t;\nshow transaction_read_only;\n',
}

def sessions_are_told_what_a_server_tells(cluster, top):
    for name, text in SESSIONS.items():
        cluster.sql(TABLE)
        with Holder(cluster, top) as holder:
            inside = holder.psql(text)
            holder.ask('rollback')
            holder.child.wait()
        same(cluster.sql('select count(*) from t'), '5', f'{name}: something got out')
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


def nothing_but_the_users_own_is_seen(cluster, top):
    cluster.sql(TABLE)
    with Holder(cluster, top) as holder:
        outside = holder.psql('\\d\n\\df\n\\dy\n', direct=True)
        same(holder.psql('\\d\n\\df\n\\dy\n'), outside, 'what psql lists')
        need('atoll' not in holder.run(binary('pg_dump'), '--schema-only').stdout, 'pg_dump')
        same(holder.ask('changes'), 'ok', 'changes')
        # A role that may drop its schema may do so, and make another.
        need('ERROR' not in holder.psql('drop schema public cascade; create schema public; create table t(id int);'), 'drop')
        same(holder.ask('check'), 'ok', 'check')
        same(holder.ask('prepare all-new'), 'ok', 'prepare')
    cluster.sql("commit prepared 'all-new'")
    same(cluster.sql('select count(*) from t'), '0', 'committed')


def whatever_commits_past_us_is_refused(cluster, top):
    """Statements that hide behind others, in whatever way: the server takes one at a time."""
    cluster.sql(TABLE)
    hidden = ["create function begin() returns int language sql as 'select 1'; commit",
              "create function f() returns int begin atomic select case when true then 1 else 2 end end; commit; --end",
              "select 'a\\'; commit; --'", "set standard_conforming_strings = off; select '\\'; commit; --'",
              '/* /* */ */ commit', '--x\ncommit', ';; commit', "select 1; commit; select ';'",
              "create rule r as on insert to t do also (select 1; commit", "do $$ begin commit; end $$", 'select $a$; commit; $b$; commit',
              "create procedure begin() language plpgsql as $$ begin commit; end $$; call begin()",
              'select U&"\\0061" uescape \'!\'; commit', 'explain analyze commit', 'prepare c as commit', 'commit; commit',
              "begin; release U&\"\\005fatoll_unit\"", 'begin; release _atoll_unit', 'begin; release "_atoll_unit"',
              'vacuum "a;b"; commit', 'reset "x"; commit; reset "y"', 'reset "x\\"; commit; --"', 'vacuum u&"!003b" uescape \'!\'; commit',
              'set local "x;y" = 1; commit', 'deallocate "x;commit"; commit', "prepare transaction 'mine'", "begin; prepare transaction 'mine'; select ';'", "commit prepared 'mine'"]
    with Holder(cluster, top) as holder, raw_client(holder) as s:
        s.sendall(message(b'Q', b"insert into t values (50, 'x')\0"))
        read_until(s, b'Z')
        for text in hidden:
            for simple in (True, False):
                query = text.encode() + b'\0'
                s.sendall(message(b'Q', query) if simple else parse(b'', query[:-1]) + bind(b'', b'') + execute(b'') + SYNC)
                read_until(s, b'Z')
                s.sendall(message(b'Q', b'rollback; set standard_conforming_strings = on\0'))
                read_until(s, b'Z')
                need(holder.ask('status').startswith('ok '), f'the transaction is gone: {text}')
                same(cluster.sql('select count(*) from t'), '5', f'outside: {text}')
        # What the client prepares for us, EXECUTE does not find.
        s.sendall(parse(b'c', b'commit') + SYNC + message(b'Q', b'execute c\0') +
                  message(b'Q', b"do $$ begin execute 'execute c'; end $$\0"))
        got = [read_until(s, b'Z') for _ in range(3)]
        same([b''.join(kind for kind, _ in answer) for answer in got], [b'1Z', b'EZ', b'EZ'], 'EXECUTE of a COMMIT')
        same(cluster.sql('select count(*) from t'), '5', 'outside')
        same(holder.ask('prepare us'), 'ok', 'it is all there')
    cluster.sql("commit prepared 'us'")
    same(cluster.sql("select count(*) from t where v = 'x'"), '1', 'committed')


class Relay:
    """Between a holder and the server, and changes one statement to another on the way: as if the holder knew less of
    SQL than the server does."""

    def __init__(self, cluster, top, before, after):
        need(len(before) == len(after), 'of one length')
        self.dir, self.changed = Path(tempfile.mkdtemp(dir=top)), (before, after)
        self.role, self.database, self.cluster = cluster.role, cluster.database, cluster
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.dir / '.s.PGSQL.5432'))
        self.listener.listen()
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    @property
    def url(self):
        return f'postgres:///{self.database}?host={self.dir}&user={self.role}'

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(str(self.cluster.socket / '.s.PGSQL.5432'))
            for a, b, change in ((near, far, self.changed), (far, near, (b'', b''))):
                threading.Thread(target=self.copy, args=(a, b, *change), daemon=True).start()

    @staticmethod
    def copy(a, b, before, after):
        try:
            while data := a.recv(65536):
                b.sendall(data.replace(before, after) if before else data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


PAST = b"select 'past us, you will not go'"


def a_transaction_that_ended_is_told_as_it_is(cluster, top):
    """Should a statement get through, the plan does not say that the work is lost when it is committed."""
    for statement, rows, words in (('commit', '6', 'what it changed is in the database'),
                                   ('commit and chain', '6', 'what it changed is in the database'),
                                   ("prepare transaction 'x'", '5', 'ended the transaction'),
                                   ('rollback', '5', 'nothing of it is in the database'),
                                   ('rollback and chain', '5', 'nothing of it is in the database')):
        cluster.sql(TABLE)
        relay = Relay(cluster, top, PAST, statement.encode().ljust(len(PAST)))
        holder = Holder(relay, top)
        with holder, raw_client(holder) as s:
            s.sendall(message(b'Q', b"insert into t values (50, 'x')\0"))
            read_until(s, b'Z')
            s.sendall(query(PAST))
            tags = [body for kind, body in read_all(s) if kind == b'C' and body != b'ROLLBACK\0']
            same(tags, [], f'{statement}: success is not said')
            same(holder.child.wait(PATIENCE), 1, 'the holder ends')
            why = (holder.dir / 'gone').read_text()
            need(words in why, f'{statement}: {why}')
        relay.listener.close()
        same(cluster.sql('select count(*) from t'), rows, statement)
        for gid in cluster.sql('select gid from pg_prepared_xacts').split():
            cluster.sql(f"rollback prepared '{gid}'")


def message(kind, body):
    return kind + struct.pack('!I', len(body) + 4) + body


SYNC, FLUSH = message(b'S', b''), message(b'H', b'')


def parse(name, text, types=()):
    return message(b'P', name + b'\0' + text + b'\0' + struct.pack(f'!H{len(types)}I', len(types), *types))


def bind(portal, name, *values):
    body = b''.join(struct.pack('!I', len(v)) + v for v in values)
    return message(b'B', portal + b'\0' + name + b'\0' + struct.pack('!HH', 0, len(values)) + body + b'\0\0')


def execute(portal, limit=0):
    return message(b'E', portal + b'\0' + struct.pack('!I', limit))


def describe(what, name):
    return message(b'D', what + name + b'\0')


def close(what, name):
    return message(b'C', what + name + b'\0')


def run(text, *values):
    """As PQexecParams does it."""
    return parse(b'', text) + bind(b'', b'', *values) + describe(b'P', b'') + execute(b'')


class raw_client:
    def __init__(self, holder, user=None, database=None, direct=False, name='client'):
        self.holder, self.user, self.database = holder, user, database
        self.name = name
        self.dir = holder.cluster.socket if direct else holder.dir / 'clients'

    def __enter__(self):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(PATIENCE)
        self.s.connect(str(self.dir / '.s.PGSQL.5432'))
        body = struct.pack('!I', 196608) + b''.join(
            k.encode() + b'\0' + v.encode() + b'\0' for k, v in (
                ('user', self.user or self.holder.cluster.role), ('application_name', self.name),
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


def read_all(s):
    got = []
    try:
        while True:
            got.append(read_message(s))
    except EOFError:
        return got


def query(text):
    return message(b'Q', text + b'\0')


# Conversations: what is sent at once, and how many times the server is then ready again. The answers must be those of
# the server itself.
BEGIN = run(b'begin') + SYNC
CONVERSATIONS = {
    'savepoints': [(BEGIN, 1), (run(b'update n set i = i + 1') + SYNC, 1), (run(b'savepoint a') + SYNC, 1),
                   (run(b'update n set i = i + 10') + SYNC, 1), (run(b'rollback to a') + SYNC, 1),
                   (run(b'release a') + SYNC, 1), (run(b'commit') + SYNC, 1), (query(b'select i from n'), 1)],
    'savepoints at once': [(BEGIN + run(b'update n set i = i + 1') + run(b'savepoint a') + run(b'release a') +
                            run(b'commit') + SYNC, 2), (query(b'select i from n'), 1)],
    'savepoints by name': [(parse(b's', b'savepoint a') + parse(b'r', b'rollback to a') + parse(b'u', b'update n set i = i + 1') +
                            SYNC, 1), (bind(b'', b's') + execute(b'') + SYNC, 1), (BEGIN, 1),
                           (bind(b'', b'u') + execute(b'') + SYNC + bind(b'', b's') + execute(b'') + SYNC, 2),
                           (bind(b'p', b'u') + execute(b'p') + bind(b'', b'r') + execute(b'') + SYNC, 1),
                           (run(b'commit') + SYNC, 1), (query(b'select i from n'), 1)],
    'savepoints outside': [(run(t) + SYNC, 1) for t in (b'savepoint a', b'release a', b'rollback to a', b'/**/ SAVEPOINT a')] +
                          [(run(b'update n set i = i + 1') + run(b'savepoint a') + SYNC, 1), (query(b'select i from n'), 1)],
    'row limits': [(BEGIN, 1), (run(b'select generate_series(1, 5)')[:-len(execute(b''))] + execute(b'', 2) + SYNC, 1),
                   (execute(b'', 2) + FLUSH + execute(b'', 2) + SYNC, 1), (execute(b'') + SYNC, 1),
                   (query(b'rollback'), 1), (execute(b'') + SYNC, 1),
                   (parse(b'g', b'select generate_series(1, 5)') + bind(b'p', b'g') + execute(b'p', 2) + SYNC, 1),
                   (execute(b'p', 2) + SYNC, 1), (BEGIN, 1), (bind(b'p', b'g') + execute(b'p', 2) + SYNC, 1),
                   (bind(b'p', b'g') + SYNC, 1), (run(b'rollback') + SYNC, 1), (bind(b'p', b'g') + execute(b'p', 1) + execute(b'p') + SYNC, 1)],
    'portals end with the block': [(BEGIN, 1), (parse(b'g', b'select generate_series(1, 5)') + bind(b'p', b'g') +
                                                execute(b'p', 1) + SYNC, 1), (run(b'commit') + SYNC, 1), (execute(b'p') + SYNC, 1),
                                   (bind(b'p', b'g') + execute(b'p') + SYNC, 1), (BEGIN, 1), (run(b'savepoint a') + SYNC, 1),
                                   (bind(b'p', b'g') + execute(b'p', 1) + SYNC, 1), (run(b'rollback to a') + SYNC, 1),
                                   (execute(b'p') + SYNC, 1), (run(b'rollback to a') + SYNC, 1), (run(b'commit') + SYNC, 1)],
    'names': [(parse(b's', b'select 1') + SYNC, 1), (parse(b's', b'select 2') + SYNC, 1), (bind(b'', b's') + execute(b'') + SYNC, 1),
              (parse(b'c', b'commit') + SYNC + parse(b'c', b'select 3') + SYNC, 2), (parse(b's', b'begin') + SYNC, 1),
              (close(b'S', b's') + parse(b's', b'select 4') + bind(b'', b's') + execute(b'') + SYNC, 1),
              (close(b'S', b'c') + parse(b'c', b'select 5') + bind(b'', b'c') + execute(b'') + close(b'S', b'nothing') + SYNC, 1),
              (bind(b'', b'nothing') + SYNC, 1), (execute(b'nothing') + SYNC, 1), (describe(b'S', b'nothing') + SYNC, 1),
              (describe(b'P', b'nothing') + SYNC, 1), (query(b'deallocate s'), 1), (bind(b'', b's') + SYNC, 1),
              (query(b'prepare q as select 6'), 1), (bind(b'', b'q') + execute(b'') + SYNC, 1), (query(b'execute c'), 1),
              (run(b'prepare s2 as select 8') + SYNC, 1), (query(b'execute s2'), 1), (run(b'execute s2') + SYNC, 1),
              (query(b'execute q'), 1), (run(b'deallocate prepare nothing') + SYNC, 1), (query(b'deallocate q; select 1; prepare q as select 9; execute q'), 1),
              (query(b'deallocate all'), 1), (bind(b'', b'q') + SYNC, 1), (bind(b'', b'c') + SYNC, 1)],
    'no name': [(bind(b'', b'') + SYNC, 1), (parse(b'', b'select 1') + SYNC, 1), (bind(b'', b'') + execute(b'') + SYNC, 1),
                (query(b'select 2'), 1), (bind(b'', b'') + SYNC, 1), (parse(b'', b'select 3') + SYNC, 1),
                (parse(b'', b'select wrong') + SYNC, 1), (bind(b'', b'') + SYNC, 1),
                (parse(b'', b'select 4') + SYNC + bind(b'', b'nothing') + parse(b'', b'select 5') + SYNC, 2),
                (bind(b'', b'') + execute(b'') + SYNC, 1), (close(b'S', b'') + bind(b'', b'') + SYNC, 1),
                (parse(b'', b'commit') + SYNC, 1), (query(b'select 6'), 1), (bind(b'', b'') + SYNC, 1)],
    'errors in the middle': [(run(b'update n set i = i + 1') + run(b'select 1/0') + run(b'update n set i = i + 1') + FLUSH + SYNC, 1),
                             (query(b'select i from n'), 1), (parse(b's', b'select wrong') + parse(b't', b'select 1') + SYNC, 1),
                             (bind(b'', b't') + SYNC, 1), (parse(b'u', b'select $1::int') + bind(b'', b'u') + SYNC, 1),
                             (bind(b'', b'u', b'x') + SYNC, 1), (bind(b'', b'u', b'7') + execute(b'') + SYNC, 1),
                             (run(b'select 1; select 2') + SYNC, 1), (run(b'commit; select 2') + SYNC, 1), (run(b'') + SYNC, 1),
                             (run(b'commit for') + SYNC, 1), (parse(b'c', b'begin for') + SYNC + bind(b'', b'c') + SYNC, 2),
                             (BEGIN + run(b'select 1/0') + SYNC + run(b'select 1') + SYNC + run(b'begin') + SYNC, 4),
                             (parse(b'x', b'select 1') + SYNC + parse(b'y', b'rollback') + SYNC, 2), (run(b'savepoint a') + SYNC, 1),
                             (bind(b'', b'y') + execute(b'') + SYNC, 1), (BEGIN, 1), (run(b'select 1') + run(b'begin') + SYNC, 1),
                             (bind(b'', b'y', b'1') + SYNC, 1), (run(b'commit') + SYNC, 1), (SYNC + SYNC + FLUSH + SYNC, 3)],
    'described': [(parse(b's', b'select $1::int as a, i from n') + describe(b'S', b's') + SYNC, 1),
                  (parse(b'u', b'update n set i = 1') + describe(b'S', b'u') + bind(b'p', b'u') + describe(b'P', b'p') + SYNC, 1),
                  (parse(b'', b'rollback') + describe(b'S', b'') + bind(b'', b'') + describe(b'P', b'') + execute(b'') + SYNC, 1),
                  (parse(b'', b'savepoint a') + describe(b'S', b'') + SYNC, 1), (BEGIN, 1), (run(b'savepoint a') + describe(b'P', b'') + SYNC, 1),
                  (execute(b'') + SYNC, 1), (run(b'rollback') + execute(b'') + SYNC, 1), (run(b'begin') + execute(b'') + SYNC, 1),
                  (run(b'abort') + SYNC, 1)],
    'a pipeline is one': [(run(b'update n set i = i + 1') + run(b'begin') + run(b'update n set i = i + 1') + SYNC, 1),
                          (run(b'rollback') + SYNC, 1), (query(b'select i from n'), 1),
                          (run(b'update n set i = i + 1') + run(b'commit') + run(b'update n set i = i + 1') + run(b'rollback') + SYNC, 1),
                          (query(b'select i from n'), 1), (run(b'lock n') + SYNC, 1), (run(b'select 1') + run(b'lock n') + SYNC, 1),
                          (run(b'declare c cursor for select 1') + SYNC, 1), (run(b'set local work_mem = 777') + run(b'show work_mem') + SYNC, 1),
                          (run(b'show work_mem') + SYNC, 1), (run(b'select 1') + run(b'commit and chain') + SYNC, 1)],
    'a query in the middle': [(run(b'select 1') + query(b'select 2') + SYNC, 2), (BEGIN, 1), (parse(b'', b'select 3') + query(b'select 4') +
                                                                                       bind(b'', b'') + SYNC, 2),
                              (query(b'rollback'), 1)],
    'a query behind a part': [(run(b'update t set v = v || v where id < 3 returning id')[:-len(execute(b''))] + execute(b'', 1) + more, 1)
                              for more in (query(b'select id from t where id < 3 for update'), query(b'select 1/0'),
                                           FLUSH + query(b"update t set v = 'z' where id < 3"), FLUSH + query(b'begin'),
                                           query(b'select v from t where id < 3 for update'))] +
                             [(run(b'select 1') + SYNC, 1), (query(b'rollback; select * from t order by 1'), 1)],
    'a query without a Sync': [(query(b'begin; savepoint a'), 1), (bind(b'', b'nothing') + SYNC, 1), (query(b'insert into n values (1)'), 1),
                               (run(b'rollback to a') + query(b'insert into n values (2)'), 1), (run(b'select 1/0') + SYNC, 1),
                               (run(b'rollback to a') + FLUSH + query(b'commit'), 1), (query(b'select * from n'), 1),
                               (run(b'set transaction read only') + close(b'S', b'nothing') + FLUSH + query(b'delete from n'), 1),
                               (run(b"set application_name = 'x'") + FLUSH + query(b'begin'), 1), (query(b'rollback'), 1),
                               (run(b'set session characteristics as transaction read only') + query(b'begin'), 1),
                               (query(b'show transaction_read_only; rollback'), 1), (query(b'delete from n'), 1)],
    'copies': [(run(b'copy t from stdin') + SYNC + message(b'd', b'60\tx\n') + message(b'c', b'') + SYNC, 1),
               (run(b'copy t from stdin') + message(b'd', b'61\tx\n') + FLUSH + message(b'c', b'') + SYNC, 1),
               (run(b'copy t from stdin') + message(b'd', b'62\tx\n') + message(b'f', b'no\0') + SYNC, 1),
               (run(b'copy t from stdin') + message(b'd', b'oh\n') + message(b'c', b'') + SYNC, 1),
               (run(b'copy t to stdout') + run(b'select 1') + SYNC, 1),
               (run(b'copy nothing from stdin') + message(b'd', b'oh\n') + message(b'c', b'') + SYNC, 1),
               (BEGIN + run(b'copy t from stdin') + message(b'd', b'63\tx\n') + message(b'c', b'') + run(b'rollback') + SYNC, 2),
               (query(b'select count(*) from t'), 1)],
    'settings': [(query(b"set application_name = 'a'"), 1), (BEGIN, 1), (run(b"set application_name = 'b'") + SYNC, 1),
                 (run(b'rollback') + SYNC, 1), (BEGIN, 1), (run(b"set local application_name = 'c'") + SYNC, 1),
                 (run(b'savepoint a') + SYNC, 1), (run(b"set application_name = 'd'") + SYNC, 1), (run(b'rollback to a') + SYNC, 1),
                 (run(b'commit') + SYNC, 1), (query(b"set application_name = 'e'; select 1/0"), 1), (query(b'show application_name'), 1),
                 (run(b"set local datestyle = 'german'") + SYNC, 1), (query(b'begin; set local datestyle = german'), 1), (query(b'commit'), 1)],
    'resets': [(query(b"set application_name = 'a'; set work_mem = '1MB'"), 1), (query(b'reset application_name'), 1),
               (query(b"set application_name = 'b'"), 1), (run(b'reset all') + SYNC, 1), (query(b"set application_name = 'c'"), 1),
               (query(b'discard all'), 1), (run(b'select 1') + run(b'discard all') + SYNC, 1), (query(b'show work_mem'), 1)],
    'read only for the rest': [(run(b'set transaction read only') + run(b'delete from t') + SYNC, 1), (query(b'delete from t where id = 1'), 1)],
    'in a failed block': [(query(b'begin; select 1/0'), 1), (execute(b'') + SYNC, 1), (query(b'rollback to a; select 1; selec 2'), 1),
                          (query(b'select 1; commit'), 1), (query(b'commit; selec 1'), 1), (query(b'commit'), 1)],
    'no name in a failed block': [(BEGIN, 1), (parse(b'', b'delete from n where i > $1') + bind(b'', b'nothing') + SYNC, 1),
                                  (describe(b'S', b'') + SYNC, 1), (query(b'rollback'), 1), (BEGIN, 1),
                                  (parse(b'', b'delete from n') + parse(b's1', b'begin') + bind(b'nothing', b'nothing') + SYNC, 1),
                                  (describe(b'S', b'') + SYNC, 1), (query(b'rollback'), 1), (BEGIN, 1),
                                  (parse(b'', b'delete from n') + SYNC + parse(b's1', b'end') + SYNC, 2),
                                  (describe(b'S', b'') + SYNC, 1), (query(b'rollback'), 1), (BEGIN, 1),
                                  (parse(b'', b'delete from n') + execute(b'nothing') + parse(b'', b'select 1') + SYNC, 1),
                                  (describe(b'S', b'') + SYNC, 1), (query(b'rollback'), 1)],
    'no name of before a failed block': [(parse(b'b', b'begin') + parse(b's', b'savepoint a') + parse(b'r', b'set transaction read only') +
                                          parse(b'e', b'select 1/0') + parse(b'', b'delete from n where i > $1') + SYNC, 1),
                                         (bind(b'', b'b') + execute(b'') + execute(b'') + SYNC, 1), (describe(b'S', b'') + SYNC, 1),
                                         (run(b'rollback') + SYNC, 1), (parse(b'', b'update n set i = i + 1') + SYNC, 1),
                                         (bind(b'', b'b') + execute(b'') + SYNC, 1), (bind(b'', b's') + execute(b'') + SYNC, 1),
                                         (bind(b'', b'r') + execute(b'') + SYNC, 1), (bind(b'', b'e') + execute(b'') + SYNC, 1),
                                         (describe(b'S', b'') + SYNC, 1), (bind(b'', b'') + SYNC, 1), (query(b'rollback to a'), 1),
                                         (run(b'show transaction_read_only') + SYNC, 1), (run(b'rollback') + SYNC, 1),
                                         (parse(b'', b'select 1') + SYNC, 1), (bind(b'', b'b') + execute(b'') + SYNC, 1),
                                         (bind(b'', b'e') + execute(b'') + SYNC, 1), (describe(b'S', b'') + SYNC, 1), (query(b'rollback'), 1)],
    'refused in a failed block': [(parse(b'', b'rollback') + SYNC, 1), (query(b'begin; select 1/0'), 1), (parse(b'', b'rollback and chain') + SYNC, 1),
                                  (parse(b'', b'start transaction') + SYNC, 1), (bind(b'', b'') + execute(b'') + SYNC, 1)],
    'discarded': [(run(b'discard all') + execute(b'') + SYNC, 1)],
    'names in one breath': [(parse(b'', b'prepare a1 as select 1') + bind(b'', b'') + execute(b'') + parse(b'a1', b'select 2') + SYNC, 1),
                            (query(b'deallocate all'), 1), (query(b'deallocate a1'), 1)],
    'passed over': [(run(b'select 1/0') + query(b'select 1') + SYNC, 1), (parse(b'x', b'commit') + bind(b'nothing', b'nothing') +
                                                                         query(b'commit') + SYNC, 1), (query(b'select 2'), 1)],
    'cursors': [(query(b'declare h cursor with hold for select i from n; declare c cursor for select 1; fetch c'), 1),
                (query(b'select name from pg_cursors'), 1), (query(b'begin; declare c cursor for select 2; commit'), 1),
                (query(b'fetch c'), 1), (query(b'fetch h'), 1), (query(b'close h'), 1)],
    'calls': [(message(b'F', struct.pack('!IHHIH', 1598, 0, 0, 0, 0)[:10] + b'\0\0'), 1), (BEGIN, 1), (query(b'select 1/0'), 1),
              (message(b'F', struct.pack('!IHHH', 1598, 0, 0, 0)), 1), (query(b'rollback'), 1)],
    'many in one': [(query(b'select 1 as a; select 2 as b; select 1/0; select 3'), 1), (query(b"select 1; select 'a;' ; select wrong"), 1),
                    (query(b"insert into t values (70, 'a;b') returning id; insert into t values (70, 'x') returning id"), 1),
                    (query(b"begin; select ';'; savepoint a; select 1/0; select 2"), 1), (query(b'rollback to a; select 3; commit'), 1),
                    (query(b';'), 1), (query(b'select 1; selec 2'), 1), (query(b';\n/* \xc3\xbc */ select 1; begin; insert into nowhere values (1)'), 1),
                    (query(b'rollback'), 1), (query(b"insert into t values (71, 'x'); commit; selec 2; select 3"), 1), (query(b'begin; selec'), 1),
                    (query(b'create table made(i int); insert into made values (1); select count(*) from made; drop table made'), 1),
                    (query(b"insert into d values (99); reset work_mem"), 1), (query(b'select count(*) from t'), 1),
                    (query(b'begin'), 1), (run(b'select generate_series(1, 3)')[:-len(execute(b''))] + execute(b'', 1) + SYNC, 1),
                    (query(b'begin'), 1), (execute(b'') + SYNC, 1), (query(b'rollback'), 1), (query(b'begin; select 1; select 2'), 1),
                    (describe(b'P', b'') + SYNC, 1), (query(b'rollback'), 1), (query(b"show work_mem; explain (costs off) select ';'; values (1), (2); table t limit 1"), 1)],
}


def spoken(s, conversation, name):
    """Every message, without what says where in the server's source it came from."""
    said = []
    for data, ready in conversation:
        s.sendall(data)
        for _ in range(ready):
            try:
                said.append([(kind, tuple(f for f in body.split(b'\0') if f[:1] not in (b'F', b'L', b'R')) if kind in b'EN' else body)
                             for kind, body in read_until(s, b'Z')])
            except (OSError, EOFError) as error:
                raise Broken(f'{name}: answer {len(said)} does not come: {error}') from error
    return said


def messages_are_those_of_a_server(cluster, top):
    """One client beside another of the same names."""
    for name, conversation in CONVERSATIONS.items():
        cluster.sql(TABLE + 'create table n(i int); insert into n values (0); '
                    'create table d(r int references t(id) deferrable initially deferred)')
        with Holder(cluster, top) as holder:
            with raw_client(holder) as s, raw_client(holder) as other:
                other.sendall(parse(b's', b'select 99') + parse(b'c', b'select 98') + parse(b'', b'select 97') + SYNC +
                              query(b"set application_name = 'other'; prepare q as select 95") + parse(b'', b'select 96') + SYNC)
                for _ in range(3):
                    read_until(other, b'Z')
                inside = spoken(s, conversation, name)
            need(holder.ask('status').startswith('ok '), f'{name}: {holder.ask("status")}')
        with raw_client(holder, direct=True) as s:
            outside = spoken(s, conversation, name)
        for i, (one, two) in enumerate(zip(inside, outside)):
            same(one, two, f'{name}: answer {i}')
        cluster.sql('drop table n, d')


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
    insert = message(b'P', b'\0insert into t values ($1, $2)\0\0\0')
    values = message(b'B', b'\0\0\0\0\0\2' + struct.pack('!I', 2) + b'70' + struct.pack('!I', 1) + b'q' + b'\0\0')
    batch = insert + values + message(b'D', b'P\0') + message(b'E', b'\0\0\0\0\0') + message(b'S', b'')
    with Holder(cluster, top) as holder, raw_client(holder) as s:
        for i in range(0, len(batch)):
            s.sendall(batch[i:i + 1])
        same([k for k, _ in read_until(s, b'Z')], [b'1', b'2', b'n', b'C', b'Z'], 'answers')
        # BEGIN and what follows in one breath, as JDBC does it.
        begin = message(b'P', b'\0BEGIN\0\0\0') + message(b'B', b'\0' * 8) + message(b'E', b'\0\0\0\0\0')
        s.sendall(begin + insert + values.replace(b'70', b'71') + message(b'E', b'\0\0\0\0\0') + message(b'S', b''))
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
                  message(b'E', b'\0\0\0\0\0') + insert + message(b'S', b''))
        got = read_until(s, b'Z')
        same(([k for k, _ in got], got[-1][1]), ([b'1', b'2', b'C', b'1', b'E', b'Z'], b'E'), 'failed')
        s.sendall(message(b'P', b'\0ROLLBACK\0\0\0') + message(b'B', b'\0' * 8) + message(b'E', b'\0\0\0\0\0') +
                  message(b'S', b''))
        same(read_until(s, b'Z')[-1][1], b'I', 'rolled back')


def data_need_not_wait_for_the_answer(cluster, top):
    cluster.sql(TABLE)
    data, end = message(b'd', b'60\tx\n'), message(b'c', b'')
    batch = message(b'P', b'\0copy t from stdin\0\0\0') + message(b'B', b'\0' * 8) + message(b'E', b'\0\0\0\0\0')
    long = message(b'd', b'62\t' + b'y' * 2000000 + b'\n')
    with Holder(cluster, top) as holder, raw_client(holder) as s:
        for text, kinds in (
                (message(b'Q', b'copy t from stdin\0') + data + end, b'GCZ'),
                (message(b'Q', b'begin; copy t from stdin; rollback\0') + data.replace(b'60', b'61') + end, b'CGCCZ'),
                (message(b'Q', b'copy t from stdin\0') + data + end, b'GEZ'),  # a duplicate
                (message(b'Q', b'copy nothing from stdin\0') + data + end, b'EZ'),
                (message(b'Q', b'copy nothing from stdin\0') + long + end, b'EZ'),
                (message(b'Q', b'copy t from stdin\0') + long + end, b'GCZ'),
                (batch + data.replace(b'60', b'63') + end + message(b'S', b''), b'12GCZ'),
                (batch + message(b'd', b'oh\n') + end + message(b'S', b''), b'12GEZ'),
                (message(b'Q', b'select 1\0'), b'TDCZ')):
            s.sendall(text)
            same(b''.join(k for k, _ in read_until(s, b'Z')), kinds, text[:60])
        with raw_client(holder) as other:  # it dies in the middle of a long piece of data
            other.sendall(message(b'Q', b'copy t from stdin\0') + long[:100000])
            read_until(other, b'G')
        for start, kind in ((query(b'copy t from stdin'), b'Q'), (run(b'copy t from stdin'), b'P'), (b'', b'x')):
            with raw_client(holder) as wrong:  # it may not say that now: for the server that is a reason to hang up
                wrong.sendall(start + FLUSH)
                if start:
                    read_until(wrong, b'G')
                wrong.sendall(message(kind, b'\0select 1\0\0\0'))
                same([(k, b'08P01' in b) for k, b in read_all(wrong)], [(b'E', True)], kind)
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


def long_messages_are_taken_as_by_a_server(cluster, top):
    """Both ways: a notice, an error, a query, a parameter."""
    size = 70_000_000
    word = b'x' * size
    said = [(query(b"do $$ begin raise notice '%', repeat('x', 70000000); end $$"), b'N'),
            (query(b"do $$ begin raise exception '%', repeat('x', 70000000); end $$"), b'E'),
            (query(b"select length('" + word + b"')"), b'D'), (run(b'select length($1)', word) + SYNC, b'D')]
    with Holder(cluster, top) as holder, raw_client(holder) as s:
        for sent, kind in said:
            s.sendall(sent)
            got = [body for k, body in read_until(s, b'Z') if k == kind]
            need(len(got) == 1 and (len(got[0]) > size or b'70000000' in got[0]), f'{sent[:40]!r}: {kind!r} {[b[:80] for b in got]}')
        s.sendall(query(b'select 1'))
        read_until(s, b'Z')
        resident = int(re.search(r'VmRSS:\s+(\d+)', Path(f'/proc/{holder.child.pid}/status').read_text())[1])
        need('ASAN' in os.environ.get('ASAN_OPTIONS', '') or resident < 300_000, f'{resident} kB are kept')


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


def what_was_sent_before_a_terminate_is_carried_out(cluster, top):
    """Whether or not the client stays for the answers."""
    def insert(i):
        return f"insert into t values ({i})".encode()

    farewells = [query(insert(10)), query(insert(10)) + query(insert(11)), run(insert(10)) + run(insert(11)) + SYNC,
                 query(b"insert into t select 10, pg_sleep(0.1)"), query(b"select repeat('x', 5000000)") + query(insert(10)),
                 query(b'begin') + query(insert(10)) + query(b'commit')]
    nothing = [query(b'begin') + query(insert(10)), run(insert(10))]
    for i, sent in enumerate(farewells + nothing):
        for busy in (False, True):
            cluster.sql(TABLE)
            with Holder(cluster, top) as holder, raw_client(holder) as other:
                if busy:
                    other.sendall(query(b'begin; select 1'))
                    read_until(other, b'Z')
                with raw_client(holder) as s:
                    s.sendall(sent + message(b'X', b''))
                other.sendall(query(b'rollback'))
                read_until(other, b'Z')
                want = 5 + sent.count(b'insert into t') * (i < len(farewells))
                deadline = time.monotonic() + PATIENCE
                while (got := holder.psql('\\t\nselect count(*) from t').split()[-1]) != str(want):
                    need(time.monotonic() < deadline, f'{sent[:60]!r}, busy {busy}: {got} rows, not {want}')


def long_settings_and_many_constraints_are_kept(cluster, top):
    """What the holder asks for itself may be longer than what it passes on in parts."""
    many, width, schema = 1100, 60, 's' * 60
    cluster.sql(f'{TABLE} create schema {schema} create table d(id int primary key, r int); alter table {schema}.d ' + ', '.join(
        f'add constraint {f"c{i}_":x<{width}} foreign key (r) references t deferrable initially deferred' for i in range(many)))
    with Holder(cluster, top) as holder, raw_client(holder) as one, raw_client(holder) as two:
        path = b'pg_catalog' + b', public' * 30000
        for client, text in ((one, b'set search_path = ' + path), (two, b'set search_path = public, ' + schema.encode()),
                             (two, b'insert into d values (1, 1)')):
            client.sendall(query(text))
            need(read_until(client, b'Z')[-2][0] == b'C', text[:50])
        one.sendall(query(b'show search_path'))
        need(path in read_until(one, b'Z')[1][1], 'the path of the first client')
        two.sendall(query(b'begin; insert into d values (2, 99); insert into t values (99); commit'))
        same([kind for kind, _ in read_until(two, b'Z')], [b'C'] * 4 + [b'Z'], 'deferred in the second transaction, too')
    cluster.sql(f'drop schema {schema} cascade')


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
    for text, why in (('create temp table x(i int)', 'temporary'), ("select pg_notify('a', 'b')", 'NOTIFY'),
                      ('begin; declare c cursor with hold for select 1; commit', 'HOLD')):
        with Holder(cluster, top) as holder:
            holder.psql(text + ';')
            status = holder.ask('status')
            need(status.startswith('ok final ') and why in status, f'{text}: {status}')


def what_a_plan_cannot_do_it_says(cluster, top):
    cluster.sql(TABLE)
    with Holder(cluster, top) as holder:
        for text, words in (('listen a;', 'LISTEN hears nothing inside a plan'), ('begin isolation level serializable;', 'REPEATABLE READ'),
                            ('set session characteristics as transaction isolation level serializable;', 'REPEATABLE READ'),
                            ('vacuum;', 'only analyzed'), ('vacuum (verbose, analyze) t(id);', 'only analyzed'), ('vacuum full;', '25001'),
                            ('select pg_export_snapshot();', 'pg_dump without -j')):
            need(words in holder.psql(text), text)
        same(holder.psql('vacuum analyze t; unlisten *;').count('ERROR'), 0, 'vacuum')
        same(holder.psql("\\t\nselect reltuples from pg_class where relname = 't'").split()[-1], '5', 'analyzed')
        done = subprocess.run([binary('pg_dump'), '-j2', '-Fd', '-f', str(holder.dir / 'dump')], env=holder.env(), capture_output=True,
                              text=True, timeout=PATIENCE, check=False)
        need(done.returncode and 'pg_dump without -j' in done.stderr, f'{done.stderr}')
        need(holder.ask('status').startswith('ok prepare '), 'none of it stands in the way of the commit')


def a_query_is_read_as_it_came_or_refused(cluster, top):
    """Strings behind a change of how strings are read are never other strings than outside."""
    def left(before, insert):
        cluster.sql(TABLE)
        with Holder(cluster, top) as holder:
            said = holder.psql(f"set client_encoding = 'UTF8';\n{before}\\; insert into t values (50, {insert});\nrollback;\n"
                               f"reset all;\nselect 'is ' || count(*) from t where id = 50;\n")
            return said, 'is 1' in said

    for before, text, name in (('set client_encoding = latin1', "'ü'", 'client_encoding'),
                               ("select set_config('client_encoding', 'latin1', false)", "'ü'", 'client_encoding'),
                               ('begin\\; set local client_encoding = latin1', "'ü'", 'client_encoding'),
                               ('set client_encoding = latin1;\nbegin\\; reset client_encoding\\; commit', "'ü'", 'client_encoding'),
                               ('begin;\nset client_encoding = latin1;\nrollback', "'ü'", 'client_encoding'),
                               ('set standard_conforming_strings = off', r"'c:\temp'", 'standard_conforming_strings')):
        said, there = left(before, text)
        need(f'behind a change of {name}' in said and not there, f'{before}: {said}')
    for before, text in (('set client_encoding = latin1', "'u'"), ('set standard_conforming_strings = off', "'u'"),
                         ('set client_encoding = latin1\\; reset client_encoding', "'ü'"), ("set client_encoding = 'utf8'", "'ü'")):
        said, there = left(before, text)
        need(there, f'{before}: {said}')


def roles_without_a_schema(cluster, top):
    cluster.sql('revoke create on schema public from public; alter schema public owner to postgres', user='postgres')
    try:
        with Holder(cluster, top) as holder:
            need(holder.ask('status').startswith('ok prepare '), 'status')
    finally:
        cluster.sql(f'alter schema public owner to {cluster.role}', user='postgres')


async def use_names_of_two(holder):
    one, two = await holder.connect(), await holder.connect()
    await one.execute('prepare q as delete from t')
    await two.execute('prepare q as select 1 as one')
    need('Delete' not in str(await two.fetch('explain analyze execute q')), 'EXPLAIN EXECUTE')
    need('Delete' not in str(await two.fetch('explain (analyze, costs off) execute q')), 'EXPLAIN (...) EXECUTE')
    await two.execute('create table one as execute q; create table two(n) with (fillfactor=70) as execute q with no data')
    same(await two.fetchval('select one from one'), 1, 'CREATE TABLE AS EXECUTE')
    same(await two.fetchval('select count(*) from t'), 5, 'the rows')
    # A name in the text of a statement that was parsed stays the client's own.
    later = await one.prepare('execute later')
    await two.execute('prepare later as select 2 as two')
    try:
        need(not await later.fetch(), 'nothing')
        need(False, 'a statement that another client has prepared was executed')
    except asyncpg.InvalidSQLStatementNameError:
        pass
    await one.execute('prepare later as select 3 as three')
    need('3' in str(await one.fetch('execute later')), 'its own')
    # The server looks at 63 bytes of a name.
    for base in ('n' * 60, 'n' * 63, 'n' * 70):
        for number, c in enumerate((one, two)):
            for i in range(3 if len(base) < 63 else 1):
                await c.execute(f'prepare {base}{i} as select {10 * number + i}')
        for number, c in enumerate((one, two)):
            for i in range(3 if len(base) < 63 else 1):
                same(await c.fetchval(f'execute {base}{i}'), 10 * number + i, base)
        await asyncio.gather(one.execute('deallocate all'), two.execute('deallocate all'))
    await asyncio.gather(one.close(), two.close())


def statements_of_one_name_are_each_clients_own(cluster, top):
    cluster.sql(TABLE)
    with Holder(cluster, top) as holder:
        asyncio.run(use_names_of_two(holder))


def settings_are_each_clients_own(cluster, top):
    """Those that the server does not list, too, and in whatever encoding."""
    cluster.sql(TABLE)
    cluster.sql('create role sue superuser login; create role bob; grant bob to app', user='postgres')
    ask = (b"select current_setting('my.x'), current_setting('by.call'), session_user, current_user, current_setting('work_mem'), "
           b"current_setting('session_replication_role'), current_setting('search_path')")
    cluster.role = 'sue'
    try:
        with Holder(cluster, top) as holder, raw_client(holder) as one, raw_client(holder) as two:
            def said(client, *texts):
                for text in texts:
                    client.sendall(query(text))
                    got = read_until(client, b'Z')
                    need(b'E' not in [kind for kind, _ in got], f'{text}: {got}')
                return b''.join(body for kind, body in got if kind == b'D')

            said(one, b"set client_encoding = latin1", b"set my.x = '\xfc'; set work_mem = '9MB'", b'set search_path = "s\xfc", public',
                 b"select set_config('by.call', 'y', false)", b'set session_replication_role = replica; set session authorization app; set role bob')
            mine = said(one, ask)
            for word in (b'\xfc', b'y', b'app', b'bob', b'9MB', b'replica', b's\xfc'):
                need(word in mine, f'{word!r} in {mine!r}')
            for _ in range(2):
                theirs = said(two, ask.replace(b"'my.x'", b"'my.x', true").replace(b"'by.call'", b"'by.call', true"))
                need(b'sue' in theirs and not any(w in theirs for w in (b'app', b'bob', b'9MB', b'replica')), f'{theirs!r}')
                same(said(one, ask), mine, 'after another client')
            said(one, b'reset role; reset session authorization')
            said(two, b'select 1')
            need(b'sue' in said(one, ask), 'the role that it began with')
    finally:
        cluster.role = Cluster.role
        cluster.sql('drop role sue, bob', user='postgres')


def a_look_is_under_no_limit_of_a_client(cluster, top):
    """That a question takes longer than a client gives its own statements loses nothing."""
    cluster.sql(TABLE + "do $$ begin for i in 1..3000 loop execute 'create table a' || i || '()'; end loop; end $$")
    with Holder(cluster, top) as holder:
        holder.psql("insert into t values (6); set statement_timeout = 1;")
        for word in ('changes', 'status', 'changes', 'check'):
            said = holder.ask(word)
            need('25P02' not in said, f'{word}: {said}')
        same(holder.psql('\\t\nselect count(*) from t').split()[-1], '6', 'nothing is lost')
        same(holder.ask('changes'), 'C 1 0 0 public.t\nok', 'changes')
    cluster.sql('drop schema public cascade; create schema public')


def what_a_client_sets_does_not_end_the_transaction(cluster, top):
    """The transaction is idle whenever no client does anything."""
    cluster.sql(TABLE)
    name = 'idle_in_transaction_session_timeout'
    said = [query(b) for b in (
        f"set {name} = '100ms'".encode(), f"begin; insert into t values (6); set local {name} = 100".encode(), b'commit',
        f"select set_config('{name}', '100', false); select 1".encode(),
        f"do $$ begin set {name} = 100; end $$".encode())]
    said += [run(f'set {name} = 100'.encode()) + SYNC, run(b'begin') + run(f'SET {name.upper()} = 100'.encode()) + SYNC]
    for i, text in enumerate(said):
        with Holder(cluster, top) as holder, raw_client(holder) as s:
            for part in said[:i + 1] if i < 3 else [text]:
                s.sendall(part)
                read_until(s, b'Z')
            time.sleep(0.4)
            s.sendall(query(b'select 1'))
            same(read_until(s, b'Z')[-2][0], b'C', text)
    with Holder(cluster, top) as holder:
        env = dict(holder.env(), PGOPTIONS=f'-c {name}=100')
        done = subprocess.run([binary('psql'), '-XAtc', 'insert into t values (7)', '-c', 'select pg_sleep(0.3)', '-c',
                               'select count(*) from t'], env=env, capture_output=True, text=True, timeout=60, check=False)
        same((done.stdout, done.stderr), ('INSERT 0 1\n\n6\n', ''), 'PGOPTIONS')
        time.sleep(0.4)
        need(holder.ask('status').startswith('ok '), 'idle')


TESTS = [sessions_are_told_what_a_server_tells, messages_are_those_of_a_server, nothing_leaves_before_the_commit,
         nothing_but_the_users_own_is_seen, whatever_commits_past_us_is_refused, a_transaction_that_ended_is_told_as_it_is,
         strangers_are_refused, pieces_arrive_in_any_size,
         data_need_not_wait_for_the_answer, long_values_pass,
         long_messages_are_taken_as_by_a_server, tools_run_unmodified,
         a_driver_that_is_not_libpq, who_waits_too_long_is_told, a_client_that_dies_leaves_nothing,
         what_was_sent_before_a_terminate_is_carried_out, long_settings_and_many_constraints_are_kept,
         the_end_of_the_server_is_said, what_cannot_be_prepared_is_known, what_a_plan_cannot_do_it_says,
         a_query_is_read_as_it_came_or_refused, roles_without_a_schema,
         statements_of_one_name_are_each_clients_own, settings_are_each_clients_own, a_look_is_under_no_limit_of_a_client,
         what_a_client_sets_does_not_end_the_transaction]


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

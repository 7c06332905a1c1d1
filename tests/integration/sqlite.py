# SPDX-License-Identifier: Apache-2.0
"""SQLite databases in plans, with the real thing: the command line, sqlite3(1), Python's sqlite3.

    sqlite.py             everything as root and as an ordinary user (without root: only that)
    sqlite.py root|user   as one of the two
    ATOLL_SQLITE_ONLY=WORD  only the tests with WORD in their names

ATOLL_LONG=1 runs more random rounds; one that fails names its seed.
"""

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LONG = os.environ.get('ATOLL_LONG') == '1'
ONLY = os.environ.get('ATOLL_SQLITE_ONLY', '')
ATOLL = os.environ.get('ATOLL', '')
NOBODY = 65534
WORKERS = 3  # disks are waited for, not processors
CONFLICT, POLICY, TIMEOUT, UNSUPPORTED = 3, 4, 5, 6
MODES = ('delete', 'wal')
USERS = 'CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT, age INT);' \
        "INSERT INTO users VALUES(1,'ann',30),(2,'bob',40),(3,'cid',50);"


class Broken(Exception):
    pass


def same(got, want, what=''):
    if got != want:
        raise Broken(f'{what}: {got!r} where {want!r} is due')


def has(text, *words):
    for word in words:
        if word not in text:
            raise Broken(f'{word!r} is not in {text!r}')


def sql(path, *statements, timeout=120):
    """Rows of the last one. Opened, and closed, as any program does."""
    db = sqlite3.connect(path, timeout=timeout, isolation_level=None)
    try:
        rows = None
        for statement in statements:
            if statement.count(';') > 1:
                db.executescript(statement)
            else:
                rows = db.execute(statement).fetchall()
        return rows
    finally:
        db.close()


def dump(path):
    """All that is in it, and nothing else: free pages and the like do not count."""
    db = sqlite3.connect(path, timeout=120)
    try:
        check = db.execute('PRAGMA integrity_check').fetchall()
        same(check, [('ok',)], f'integrity of {path}')
        version = db.execute('PRAGMA user_version').fetchone()[0]
        tables = [r[0] for r in db.execute("SELECT name FROM sqlite_schema WHERE type='table' AND sql NOT LIKE "
                                           "'CREATE VIRTUAL%' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1")]
        rows = {t: sorted(db.execute('SELECT * FROM "' + t.replace('"', '""') + '"').fetchall(), key=repr) for t in tables}
        schema = sorted(db.execute("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE "
                                   "'sqlite\\_%' ESCAPE '\\'").fetchall())
        return version, schema, rows
    finally:
        db.close()


class World:
    """A store, and a directory `app` with a file and a database in it."""

    def __init__(self, top, mode='delete', schema=USERS):
        self.top = Path(top)
        self.app = self.top / 'app'
        self.app.mkdir()
        self.db = self.app / 'dev.db'
        (self.app / 'file').write_text('old\n')
        self.mode = mode
        sql(self.db, f'PRAGMA journal_mode={mode}')
        sql(self.db, schema + ';;')
        self.env = {**os.environ, 'ATOLL_HOME': str(self.top / 'store')}

    def atoll(self, *args, status=0, env=()):
        done = subprocess.run([ATOLL, *map(str, args)], env={**self.env, **dict(env)}, cwd=self.app,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120)
        if status is not None and done.returncode != status:
            raise Broken(f'atoll {" ".join(map(str, args))}: exit {done.returncode}, want {status}: {done.stdout}')
        return done.stdout

    def start(self, *more):
        return self.atoll('start', 'p', *(more or ('--dir', self.app, '--sqlite', self.db)))

    def exec(self, script, status=0):
        return self.atoll('exec', 'p', '--', 'sh', '-ec', script, status=status)

    def work(self, *statements):
        """Statements in the plan, each with a program of its own."""
        for one in statements:
            self.exec(f"sqlite3 {self.db} \"{one}\"")

    def path(self, of=None):
        done = subprocess.run([ATOLL, 'path', 'p', str(of or self.db)], env=self.env, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=True)
        return done.stdout.strip()

    def changes(self):
        found = json.loads(self.atoll('diff', 'p', '--json'))['changes']
        return {(Path(c['root']).name, c['path']): c['detail'] for c in found}

    def dump(self):
        return dump(self.db), (self.app / 'file').read_text()

    def names(self):
        return sorted(os.listdir(self.app))


def marks(world):
    return sql(world.db, "SELECT count(*) FROM sqlite_schema WHERE name LIKE '\\_atoll%' ESCAPE '\\'")[0][0]


# ---- commit and undo ----

def dbt_02_files_and_rows_commit_as_one(new):
    for mode in MODES:
        w = new(mode)
        w.start()
        w.work("UPDATE users SET name='BOB' WHERE id=2; DELETE FROM users WHERE id=3; INSERT INTO users VALUES(4,'dan',1)")
        w.exec('echo new > file')
        before = w.dump()
        same(w.changes(), {('app', 'file'): '', ('dev.db', 'users'): '1 row added, 1 changed, 1 deleted'}, mode)
        w.atoll('commit', 'p')
        same(sql(w.db, 'SELECT * FROM users'), [(1, 'ann', 30), (2, 'BOB', 40), (4, 'dan', 1)], mode)
        same((w.app / 'file').read_text(), 'new\n')
        same(sql(w.db, 'PRAGMA journal_mode'), [(mode,)], 'the mode stays')
        same(w.names(), ['dev.db', 'file'], mode)
        same(marks(w), 0, 'marks in the database')
        same(w.changes(), {})
        w.atoll('rollback', 'p')
        same(w.dump(), before, f'{mode} undone')
        same(marks(w), 0)


def dbt_02_a_conflict_of_rows_leaves_the_files(new):
    for mode in MODES:
        w = new(mode)
        w.start()
        w.work("UPDATE users SET name='BOB' WHERE id=2; UPDATE users SET name='X' WHERE id=1")
        w.exec('echo new > file')
        sql(w.db, 'UPDATE users SET age=41 WHERE id=2')  # another column of the same row
        before = w.dump()
        said = w.atoll('commit', 'p', status=CONFLICT)
        has(said, 'users(2)', 'changed by somebody else')
        same(w.dump(), before, mode)
        same(w.names(), ['dev.db', 'file'])
        same(w.changes()[('dev.db', 'users')], '2 rows changed')


def dbt_02_other_rows_of_somebody_else_survive(new):
    for mode in MODES:
        w = new(mode)
        w.start()
        w.work("UPDATE users SET name='BOB' WHERE id=2; INSERT INTO users VALUES(10,'new',1)")
        sql(w.db, "UPDATE users SET name='CID' WHERE id=3", "INSERT INTO users VALUES(11,'theirs',2)",
            'CREATE TABLE theirs(x)')
        w.atoll('commit', 'p')
        same(sql(w.db, 'SELECT id, name FROM users'),
             [(1, 'ann'), (2, 'BOB'), (3, 'CID'), (10, 'new'), (11, 'theirs')], mode)
        sql(w.db, "UPDATE users SET name='ANN' WHERE id=1")
        w.atoll('rollback', 'p')
        same(sql(w.db, 'SELECT id, name FROM users'), [(1, 'ANN'), (2, 'bob'), (3, 'CID'), (11, 'theirs')])


def dbt_02_the_same_change_on_both_sides_is_none(new):
    w = new()
    w.start()
    w.work("UPDATE users SET name='BOB' WHERE id=2; DELETE FROM users WHERE id=3; INSERT INTO users VALUES(4,'dan',1)",
           "UPDATE users SET name='ANN' WHERE id=1")
    sql(w.db, "UPDATE users SET name='BOB' WHERE id=2; DELETE FROM users WHERE id=3; INSERT INTO users VALUES(4,'dan',1);")
    before = dump(w.db)
    w.atoll('commit', 'p')
    same(sql(w.db, 'SELECT id, name FROM users'), [(1, 'ANN'), (2, 'BOB'), (4, 'dan')])
    w.atoll('rollback', 'p')  # takes back what the plan did, and that alone
    same(dump(w.db), before)


def dbt_02_conflicts_can_be_settled(new):
    for how, want in (('--ours', [(1, 'mine'), (2, 'mine'), (4, 'mine')]),
                      ('--theirs', [(1, 'mine'), (3, 'theirs'), (4, 'theirs')])):
        w = new()
        w.start()
        w.work("UPDATE users SET name='mine'; DELETE FROM users WHERE id=3; INSERT INTO users VALUES(4,'mine',1)")
        sql(w.db, "DELETE FROM users WHERE id=2", "UPDATE users SET name='theirs' WHERE id=3",
            "INSERT INTO users VALUES(4,'theirs',2)")
        before = dump(w.db)
        has(w.atoll('commit', 'p', status=CONFLICT), 'users(2)', 'users(3)', 'users(4)')
        w.atoll('commit', 'p', how, w.db)
        same(sql(w.db, 'SELECT id, name FROM users'), want, how)
        w.atoll('rollback', 'p')
        same(dump(w.db), before, how)


def dbt_01_an_undo_that_would_lose_rows_is_refused(new):
    w = new()
    w.start()
    w.work("UPDATE users SET name='BOB' WHERE id=2; UPDATE users SET name='ANN' WHERE id=1")
    w.exec('echo new > file')
    w.atoll('commit', 'p')
    sql(w.db, "UPDATE users SET name='robert' WHERE id=2")
    before = w.dump()
    has(w.atoll('rollback', 'p', status=CONFLICT), 'users(2)')
    same(w.dump(), before)
    w.atoll('rollback', 'p', '--keep-theirs')
    same(sql(w.db, 'SELECT name FROM users'), [('ann',), ('robert',), ('cid',)])
    same((w.app / 'file').read_text(), 'old\n')


def dbt_01_batches_are_undone_newest_first(new):
    """Of rows, of the schema, of rows again: all of it, or nothing."""
    for mode in MODES:
        w = new(mode)
        w.start()
        before = w.dump()
        w.work("UPDATE users SET name='one' WHERE id=2")
        w.atoll('commit', 'p')
        w.work('ALTER TABLE users ADD COLUMN mail; UPDATE users SET mail=7; PRAGMA user_version=5')
        w.exec('echo new > file')
        w.atoll('commit', 'p')
        w.work("UPDATE users SET name='three' WHERE id=2; INSERT INTO users VALUES(9,'x',1,2)")
        w.atoll('commit', 'p')
        same(sql(w.db, 'SELECT name, mail FROM users WHERE id=2', ), [('three', 7)], mode)
        w.atoll('rollback', 'p')
        same(w.dump(), before, mode)
        same(marks(w), 0)


def dbt_01_an_older_batch_that_conflicts_keeps_all(new):
    w = new()
    w.start()
    w.work("UPDATE users SET name='one' WHERE id=1")
    w.atoll('commit', 'p')
    w.work("UPDATE users SET name='two' WHERE id=2")
    w.atoll('commit', 'p')
    sql(w.db, "UPDATE users SET name='theirs' WHERE id=1")
    before = w.dump()
    has(w.atoll('rollback', 'p', status=CONFLICT), 'users(1)')
    same(w.dump(), before)


def dbt_02_keys_and_names_of_any_kind(new):
    odd = '"we""ird ta\'ble, x"'
    for first in ('', "PRAGMA encoding='UTF-16le';"):
        w = new(schema='CREATE TABLE x(y);')
        os.unlink(w.db)
        sql(w.db, first + f'CREATE TABLE {odd}(v, "a""b, c" TEXT, "select" BLOB, PRIMARY KEY("select","a""b, c")) '
            f"WITHOUT ROWID; INSERT INTO {odd} VALUES(1,'k\u00e9y',x'00'),(2,'k',x'01'),(3,'l',x'02');"
            'CREATE TABLE names(first TEXT, n INT, last TEXT, PRIMARY KEY(last, first));'
            "INSERT INTO names VALUES('a',1,'z'),('b',2,'z'),('a',3,'y');")
        w.start()
        path = w.path()
        sql(path, f"UPDATE {odd} SET v='\u20ac' WHERE v=1", f'DELETE FROM {odd} WHERE v=2',
            "UPDATE names SET n=9 WHERE first='a' AND last='y'", "INSERT INTO names VALUES('c',4,'z')")
        want = dump(path)
        same(len(w.changes()), 2)
        has(w.atoll('diff', 'p', '--patch'), 'INSERT INTO "we""ird ta\'ble, x"("v","a""b, c","select") VALUES(2,')
        sql(w.db, f'UPDATE {odd} SET v=7 WHERE v=3', "UPDATE names SET n=8 WHERE first='a' AND last='y'")
        has(w.atoll('commit', 'p', status=CONFLICT), "names('a', 'y')")
        sql(w.db, f'UPDATE {odd} SET v=3 WHERE v=7', "UPDATE names SET n=3 WHERE first='a' AND last='y'")
        before = dump(w.db)
        w.atoll('commit', 'p')
        same(dump(w.db), want)
        w.atoll('rollback', 'p')
        same(dump(w.db), before)


def con_01_two_plans_one_database(new):
    """Different rows: both go through. The same: the second is told."""
    w = new('wal')
    for name in 'ab':
        w.atoll('start', name, '--sqlite', w.db)
        w.atoll('exec', name, '--', 'sqlite3', w.db,
                f"UPDATE users SET name='{name}' WHERE id={1 if name == 'a' else 2}; UPDATE users SET age=5 WHERE id=3")
    w.atoll('commit', 'a')
    w.atoll('commit', 'b')  # the row that both changed is the same in both
    same(sql(w.db, 'SELECT name, age FROM users'), [('a', 30), ('b', 40), ('cid', 5)])
    w.atoll('rollback', 'b')
    same(sql(w.db, 'SELECT name, age FROM users'), [('a', 30), ('bob', 40), ('cid', 5)])


# ---- what rows cannot tell ----

WHOLE = {
    'schema': (USERS, 'CREATE INDEX i ON users(name); CREATE VIEW v AS SELECT 1; DROP TABLE gone'),
    'version': (USERS, 'PRAGMA user_version=7; PRAGMA application_id=9'),
    'no key': ("CREATE TABLE t(a,b); INSERT INTO t VALUES(1,2),(1,2);", 'INSERT INTO t VALUES(3,4); DELETE FROM t WHERE a=1'),
    'null key': ("CREATE TABLE t(a TEXT PRIMARY KEY,b); INSERT INTO t VALUES(NULL,2),('k',2);",
                 'UPDATE t SET b=9 WHERE a IS NULL'),
    'generated': ('CREATE TABLE t(a INTEGER PRIMARY KEY,b,c AS (b*2) STORED); INSERT INTO t(a,b) VALUES(1,2);',
                  'UPDATE t SET b=5'),
    'letters': ("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT COLLATE NOCASE, c); INSERT INTO t VALUES(1,'abc',1);",
                "UPDATE t SET b='ABC', c=1.0"),
    'swap': ("CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE); INSERT INTO t VALUES(1,1),(2,2);",
             'UPDATE t SET b=9 WHERE a=1; UPDATE t SET b=1 WHERE a=2; UPDATE t SET b=2 WHERE a=1'),
    'fts': ("CREATE VIRTUAL TABLE f USING fts5(body); INSERT INTO f VALUES('one two');", "INSERT INTO f VALUES('three')"),
}


def atm_01_what_is_no_row_is_carried_over_whole(new):
    for mode in MODES:
        for name, (schema, work) in WHOLE.items():
            w = new(mode, schema + 'CREATE TABLE gone(x INTEGER PRIMARY KEY);')
            w.start()
            w.work(work)
            w.exec('echo new > file')
            before = w.dump()
            if not w.changes() and name != 'fts':
                raise Broken(f'{name}: no change is shown')
            path = w.path()
            want = dump(path)
            w.atoll('commit', 'p')
            same(dump(w.db), want, f'{name} {mode}')
            same(sql(w.db, 'PRAGMA journal_mode'), [(mode,)], name)
            same(marks(w), 0, name)
            w.atoll('rollback', 'p')
            same(w.dump(), before, f'{name} {mode} undone')


def atm_01_whole_and_changed_by_somebody_else_is_a_conflict(new):
    for mode in MODES:
        w = new(mode)
        w.start()
        w.work('CREATE TABLE more(x); INSERT INTO more VALUES(1)')
        w.exec('echo new > file')
        sql(w.db, "INSERT INTO users VALUES(7,'theirs',1)")
        before = w.dump()
        has(w.atoll('commit', 'p', status=CONFLICT), 'cannot be merged', 'schema')
        same(w.dump(), before)
        w.atoll('commit', 'p', '--ours', w.db)
        same(sql(w.db, 'SELECT count(*) FROM users'), [(3,)])
        same(sql(w.db, 'SELECT * FROM more'), [(1,)])
        w.atoll('rollback', 'p')
        same(w.dump(), before, mode)


def atm_01_a_table_altered_by_somebody_else_is_a_conflict(new):
    w = new()
    w.start()
    w.work("UPDATE users SET name='x' WHERE id=1")
    sql(w.db, 'ALTER TABLE users ADD COLUMN extra')
    before = w.dump()
    has(w.atoll('commit', 'p', status=CONFLICT), 'users', 'altered')
    same(w.dump(), before)


def atm_01_pages_of_another_size(new):
    for mode in MODES:
        w = new(mode)
        w.start()
        w.exec(f'sqlite3 {w.db} "PRAGMA journal_mode=delete; PRAGMA page_size=1024; VACUUM; CREATE TABLE more(x)"')
        w.atoll('commit', 'p')
        same(sql(w.db, 'SELECT name FROM sqlite_schema'), [('users',), ('more',)])
        same(sql(w.db, 'PRAGMA journal_mode'), [(mode,)])


# ---- triggers, keys ----

def der_09_foreign_keys_broken_together_show_up_in_prepare(new):
    w = new(schema='CREATE TABLE a(id INTEGER PRIMARY KEY); CREATE TABLE b(id INTEGER PRIMARY KEY, a REFERENCES a);'
                   'INSERT INTO a VALUES(1),(2);')
    w.start()
    w.work('INSERT INTO b VALUES(1,2)')
    sql(w.db, 'DELETE FROM a WHERE id=2')
    before = w.dump()
    has(w.atoll('commit', 'p', status=CONFLICT), 'foreign key')
    same(w.dump(), before)


def der_09_triggers_do_not_run_twice(new):
    w = new(schema='CREATE TABLE t(id INTEGER PRIMARY KEY); CREATE TABLE log(id INTEGER PRIMARY KEY, n INT);'
                   'CREATE TRIGGER r AFTER INSERT ON t BEGIN INSERT INTO log(n) VALUES(new.id); END;')
    w.start()
    w.work('INSERT INTO t VALUES(5)')
    w.atoll('commit', 'p')
    same(sql(w.db, 'SELECT n FROM log'), [(5,)])


def dbt_02_what_rows_are_computed_from_is_right(new):
    """Mathematics: the program opens its library when it first meets some."""
    one = 'acos asin atan atanh ceil cos cosh exp floor sin sinh sqrt tan tanh trunc asinh ln log10 log2'.split()
    terms = [f'{f}(x)' for f in one] + ['acosh(1 + x)', 'atan2(x, 2)', 'mod(x, 0.3)', 'pow(x, 3)']
    w = new(schema='CREATE TABLE t(id INTEGER PRIMARY KEY, x REAL CHECK(sqrt(x) < 1));'
                   f'CREATE INDEX i ON t({", ".join(terms)}); INSERT INTO t VALUES(1, 0.25);')
    w.start()
    w.work('INSERT INTO t VALUES(2, 0.5); UPDATE t SET x = 0.75 WHERE id = 1')
    # Without the library nothing is computed, rather than something else.
    (w.top / 'libm.so.6').write_text('')
    before = w.dump()
    has(w.atoll('commit', 'p', env={'LD_LIBRARY_PATH': str(w.top)}, status=None), 'libm.so.6')
    same(w.dump(), before)
    w.atoll('commit', 'p')
    # An index that is not what its terms come to is damage.
    dump(w.db)
    same(sql(w.db, 'SELECT id, x FROM t'), [(1, 0.75), (2, 0.5)])
    w.atoll('rollback', 'p')
    dump(w.db)


# ---- the view ----

def ovl_01_side_files_stay_in_the_sandbox(new):
    for mode in MODES:
        for strategy in ('overlay', 'copy'):
            w = new(mode)
            holder = sqlite3.connect(w.db, isolation_level=None)  # the live one has side files of its own
            holder.execute('BEGIN IMMEDIATE')
            holder.execute("INSERT INTO users VALUES(100,'uncommitted',1)")
            w.atoll('start', 'p', '--dir', w.app, '--strategy', strategy, '--sqlite', w.db)
            live = w.names()
            # Killed in the middle: what was committed is there, what was not is not.
            w.exec(f'''python3 - <<EOF
import sqlite3, os
db = sqlite3.connect("{w.db}", isolation_level=None)
db.execute("UPDATE users SET age=1")
db.execute("PRAGMA cache_size=1")
db.execute("BEGIN")
db.execute("CREATE TABLE half(x)")
db.executemany("INSERT INTO half VALUES(?)", [("y" * 4000,) for _ in range(200)])
print(sorted(os.listdir(os.path.dirname(os.path.realpath("{w.db}")))), flush=True)
os.kill(os.getpid(), 9)
EOF''', status=137)
            same(w.names(), live, f'{mode} {strategy}')
            same(w.changes(), {('dev.db', 'users'): '3 rows changed'}, f'{mode} {strategy}')
            w.exec(f'test -z "$(ls {w.app} | grep half)"; echo x > other')
            holder.execute('ROLLBACK')
            holder.close()
            w.atoll('commit', 'p')
            same(w.names(), ['dev.db', 'file', 'other'], f'{mode} {strategy}')
            same(sql(w.db, 'SELECT age FROM users'), [(1,)] * 3)
            same(sql(w.db, "SELECT name FROM sqlite_schema"), [('users',)])


def ovl_01_a_database_alone(new):
    """It cannot be taken away, in a directory of the plan's own /tmp or /var/tmp as in one that is only shown."""
    w = new()
    w.start('--sqlite', w.db)
    insert = f'rm {w.db} || echo refused; sqlite3 {w.db} "INSERT INTO users VALUES(9,9,9)"'
    script = f'cat {w.app}/file; echo x > {w.app}/file || echo refused; {insert}'
    has(w.atoll('exec', '--ro', w.app, 'p', '--', 'sh', '-ec', script), 'old', 'refused\n', 'refused\n')
    w.atoll('discard', 'p')
    has(w.exec(insert), 'refused')
    same((w.app / 'file').read_text(), 'old\n')
    w.atoll('commit', 'p')
    same(sql(w.db, 'SELECT count(*) FROM users'), [(4,)])


def ovl_01_by_path(new):
    w = new('wal')
    w.start('--sqlite', w.db)
    path = w.path()
    sql(path, "UPDATE users SET name='x'")
    same(sql(w.db, 'SELECT count(*) FROM users WHERE name=?'.replace('?', "'x'")), [(0,)])
    w.atoll('commit', 'p')
    same(sql(w.db, "SELECT count(*) FROM users WHERE name='x'"), [(3,)])


def ovl_01_by_path_of_its_directory(new):
    """What is there in a copy must not be taken for the database."""
    w = new()
    w.atoll('start', 'p', '--dir', w.app, '--strategy', 'copy', '--sqlite', w.db)
    path = Path(w.path(w.app)) / 'dev.db'
    try:
        sql(path, 'CREATE TABLE lost(x)')
    except sqlite3.DatabaseError as error:
        has(str(error), 'not a database')
    else:
        raise Broken('work that would be lost was accepted')
    same(w.changes(), {})


def ovl_01_without_namespaces(new):
    """A variable names the copy; what stands for it in the copy of the directory is refused."""
    if os.geteuid() == 0:
        return
    w = new()
    w.atoll('start', 'p', '--dir', w.app, '--strategy', 'copy', '--sqlite', w.db)
    before = w.dump()
    script = 'sqlite3 "$ATOLL_RESOURCE_2" "UPDATE users SET age=7"; echo new > file; ' \
             'sqlite3 dev.db "CREATE TABLE lost(x)" || echo refused'
    done = subprocess.run(['unshare', '--map-current-user', '--keep-caps', 'sh', '-ec',
                           'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --inh-caps=-all '
                           '--ambient-caps=-all --bounding-set=-all "$@"', 'sh', ATOLL, 'exec', 'p', '--unfenced', '--',
                           'sh', '-c', script], env=w.env, cwd=w.app, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    same(done.returncode, 0, done.stdout)
    has(done.stdout, 'refused')
    same(w.dump(), before)
    w.atoll('commit', 'p')
    same(sql(w.db, 'SELECT age FROM users'), [(7,)] * 3)
    same((w.app / 'file').read_text(), 'new\n')


def dif_01_rows_as_text(new):
    w = new(schema="CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES(1,'a'),(2,NULL);CREATE TABLE k(x);")
    w.start('--sqlite', w.db)
    w.exec(f'''python3 -c "
import sqlite3
db = sqlite3.connect('{w.db}')
db.execute('UPDATE t SET v=? WHERE id=1', ('it\\'s\\ntwo',))
db.execute('DELETE FROM t WHERE id=2')
db.execute('INSERT INTO t VALUES(3, x\\'00ff\\')')
db.execute('INSERT INTO k VALUES(1.5)')
db.commit()"''')
    has(w.atoll('diff', 'p', '--patch'), '''-INSERT INTO "t"("id","v") VALUES(1,'a');''',
        """+INSERT INTO "t"("id","v") VALUES(1,replace(replace('it''s\\ntwo','\\n',char(10)),'\\r',char(13)));""",
        '-INSERT INTO "t"("id","v") VALUES(2,NULL);', """+INSERT INTO "t"("id","v") VALUES(3,X'00FF');""",
        '+INSERT INTO "k"("x") VALUES(1.5);')
    w.work('CREATE TABLE n(a,b); INSERT INTO n VALUES(1,2); PRAGMA user_version=4; DROP TABLE k')
    said = w.atoll('diff', 'p', '--patch')
    has(said, '+CREATE TABLE n(a,b);', '+INSERT INTO "n"("a","b") VALUES(1,2);', '-CREATE TABLE k(x);',
        '-PRAGMA user_version=0;', '+PRAGMA user_version=4;')
    same(w.changes(), {('dev.db', 'k'): 'table deleted', ('dev.db', 'n'): 'table added, 1 row added',
                       ('dev.db', 't'): '1 row added, 1 changed, 1 deleted', ('dev.db', 'user_version'): '0 -> 4'})


def dif_01_a_virtual_table_is_one_entry(new):
    """And not the tables in which it keeps its rows."""
    w = new()
    w.start('--sqlite', w.db)
    w.work("CREATE VIRTUAL TABLE f USING fts5(body); INSERT INTO f VALUES('one two')")
    same(sorted(path for _, path in w.changes()), ['f'])
    said = w.atoll('diff', 'p', '--patch')
    has(said, '+CREATE VIRTUAL TABLE f USING fts5(body);')
    same('f_data' in said or 'INSERT' in said, False, said)
    w.atoll('commit', 'p')
    same(sql(w.db, "SELECT body FROM f WHERE f MATCH 'two'"), [('one two',)])
    w.atoll('rollback', 'p')
    same(sql(w.db, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'f%'"), [(0,)])


# ---- others ----

def con_01_snapshots_are_consistent_while_others_write(new):
    """Money moves between two accounts all the time; no copy has more or less of it."""
    for mode in MODES:
        w = new(mode, 'CREATE TABLE acc(id INTEGER PRIMARY KEY, n INT, pad); '
                      "INSERT INTO acc VALUES(1,500,'');" +
                      ''.join(f"INSERT INTO acc VALUES({i},0,hex(zeroblob(1500)));" for i in range(2, 400)) +
                      'UPDATE acc SET n=500 WHERE id=399;')
        stop = threading.Event()
        moved = []

        def move():
            db = sqlite3.connect(w.db, timeout=30, isolation_level=None)
            db.execute('PRAGMA wal_autocheckpoint=100')  # pages come into the file while it is copied
            while not stop.is_set():
                db.execute('BEGIN IMMEDIATE')
                db.execute('UPDATE acc SET n=n-1 WHERE id=1')
                db.execute("UPDATE acc SET pad=hex(randomblob(700)) WHERE id%7=2")
                db.execute('UPDATE acc SET n=n+1 WHERE id=399')
                db.execute('COMMIT')
                moved.append(1)
                time.sleep(0.002)
            db.close()

        thread = threading.Thread(target=move)
        thread.start()
        try:
            for i in range(3):
                w.start('--sqlite', w.db)
                path = w.path()
                same(sql(path, 'PRAGMA integrity_check'), [('ok',)], mode)
                same(sql(path, 'SELECT sum(n) FROM acc'), [(1000,)], mode)
                sql(path, f'INSERT INTO acc VALUES({1000 + i},0,0)')
                w.atoll('commit', 'p')
                w.atoll('stop', 'p')
        finally:
            stop.set()
            thread.join()
        if len(moved) < 10:
            raise Broken(f'{mode}: only {len(moved)} transfers')
        same(sql(w.db, 'SELECT sum(n), count(*) FROM acc'), [(1000, 402)], mode)


def con_01_a_wal_that_makes_the_database_smaller(new):
    """Pages that are written there and cut off again, and a file that is longer than what is in it."""
    w = new('wal')
    keeps = sqlite3.connect(w.db, isolation_level=None)
    keeps.execute('PRAGMA wal_autocheckpoint=0')
    keeps.execute('CREATE TABLE big(x)')
    fill = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 200) INSERT INTO big SELECT randomblob(2000) FROM n"
    keeps.execute(fill)
    keeps.execute('PRAGMA wal_checkpoint(TRUNCATE)')
    keeps.execute(fill)
    keeps.execute('DROP TABLE big')
    keeps.execute('VACUUM')
    same(os.path.getsize(w.db) > 300000 and os.path.getsize(f'{w.db}-wal') > 300000, True, 'sizes')
    w.start('--sqlite', w.db)
    path = w.path()
    same(os.path.getsize(path) < 100000, True, 'the copy')
    same(dump(path), dump(w.db))
    w.work("UPDATE users SET name='BOB' WHERE id=2")
    w.atoll('commit', 'p')
    same(keeps.execute('SELECT name FROM users WHERE id=2').fetchall(), [('BOB',)])
    keeps.close()


def con_01_a_wal_that_holds_nothing(new):
    w = new('wal')
    Path(f'{w.db}-wal').write_bytes(b'nothing that SQLite wrote' * 10)
    w.start('--sqlite', w.db)
    same(dump(w.path()), dump(w.db))
    w.work("UPDATE users SET name='BOB' WHERE id=2")
    w.atoll('commit', 'p')
    same(sql(w.db, 'SELECT name FROM users WHERE id=2'), [('BOB',)])


def atm_14_marks_of_another_store_are_no_content(new):
    """A commit that died after it was done, and whose store nobody asks: its mark goes when it is asked."""
    w = new()
    w.start('--sqlite', w.db)
    w.work("UPDATE users SET name='BOB' WHERE id=2")
    w.atoll('commit', 'p', status=-signal.SIGKILL, env={'ATOLL_CRASHPOINT': 'sqlite.committed'}.items())
    same(marks(w), 1, 'it died there')
    other = {'ATOLL_HOME': str(w.top / 'other')}.items()
    w.atoll('start', 'q', '--sqlite', w.db, env=other)
    seen = w.atoll('exec', 'q', '--', 'sqlite3', w.db, "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%atoll%'", env=other)
    same(seen.splitlines()[-1], '0', 'marks in the plan')
    w.atoll('exec', 'q', '--', 'sqlite3', w.db, "UPDATE users SET name='CID' WHERE id=3", env=other)
    w.atoll('commit', 'q', status=-signal.SIGKILL, env=[*other, ('ATOLL_CRASHPOINT', 'txn.after-decision')])
    w.atoll('recover', env=other)
    same(sql(w.db, 'SELECT name FROM users'), [('ann',), ('BOB',), ('CID',)])
    same(marks(w), 1, 'it is not theirs')
    w.atoll('recover')
    same(marks(w), 0)
    same(sql(w.db, 'SELECT name FROM users'), [('ann',), ('BOB',), ('CID',)])
    w.atoll('rollback', 'p')
    w.atoll('rollback', 'q', env=other)
    same(sql(w.db, 'SELECT name FROM users'), [('ann',), ('bob',), ('cid',)])
    w.atoll('stop', 'q', '--force', env=other)


def con_01_readers_go_on(new):
    """With a WAL a reader that is in the middle keeps what it reads."""
    w = new('wal')
    reader = sqlite3.connect(w.db, isolation_level=None)
    for work in ("UPDATE users SET name='x'", 'CREATE TABLE more(x)'):
        reader.execute('BEGIN')
        before = reader.execute('SELECT * FROM users').fetchall()
        w.start('--sqlite', w.db)
        w.work(work)
        w.atoll('commit', 'p')
        same(reader.execute('SELECT * FROM users').fetchall(), before)
        reader.execute('ROLLBACK')
        w.atoll('stop', 'p')
    same(reader.execute('SELECT name FROM users').fetchall(), [('x',)] * 3)
    same(reader.execute('SELECT * FROM more').fetchall(), [])
    reader.close()


def err_04_who_keeps_it_locked_is_waited_for_and_not_for_ever(new):
    w = new()
    w.start()
    w.work("UPDATE users SET name='x'")
    w.exec('echo new > file')
    holder = sqlite3.connect(w.db, isolation_level=None)
    holder.execute('BEGIN EXCLUSIVE')
    began = time.monotonic()
    has(w.atoll('commit', 'p', status=TIMEOUT), 'locked by somebody else')
    has(w.atoll('start', 'q', '--sqlite', w.db, status=TIMEOUT), 'locked by somebody else')
    if time.monotonic() - began > 120:
        raise Broken('waited too long')
    holder.execute('ROLLBACK')
    holder.close()
    same((w.app / 'file').read_text(), 'old\n')
    same([p['name'] for p in json.loads(w.atoll('list', '--json'))['plans']], ['p'])
    w.atoll('commit', 'p')


def err_04_what_is_no_database_is_refused(new):
    w = new()
    other = w.app / 'other'
    for content in (b'x' * 5000, os.urandom(8192), b'SQLite format 3\0' + os.urandom(4080)):
        other.write_bytes(content)
        said = w.atoll('start', 'p', '--sqlite', other, status=2 if content[:6] != b'SQLite' else None)
        has(said, str(other))
    has(w.atoll('start', 'p', '--sqlite', w.app, status=UNSUPPORTED), 'regular file')
    has(w.atoll('start', 'p', '--sqlite', w.app / 'none', status=1), 'none')
    same(sorted(w.names()), ['dev.db', 'file', 'other'])
    other.write_bytes(b'')  # an empty file is an empty database
    w.start('--sqlite', other)
    w.exec(f'sqlite3 {other} "CREATE TABLE t(x); INSERT INTO t VALUES(1)"')
    w.atoll('commit', 'p')
    same(sql(other, 'SELECT * FROM t'), [(1,)])
    w.atoll('rollback', 'p')
    same(dump(other)[1], [])
    w.atoll('stop', 'p')
    (w.app / 'link').symlink_to(w.db)
    has(w.start('--sqlite', w.app / 'link'), 'sqlite')
    has(w.atoll('show', 'p'), str(w.db))


def err_04_no_permission(new):
    if os.geteuid() == 0:
        return
    w = new()
    os.chmod(w.db, 0o444)
    has(w.atoll('start', 'p', '--sqlite', w.db, status=1), str(w.db))
    os.chmod(w.db, 0o644)
    os.chmod(w.app, 0o555)
    try:
        has(w.atoll('start', 'p', '--sqlite', w.db, status=1), 'journal')
    finally:
        os.chmod(w.app, 0o755)
    os.chmod(w.db, 0)
    has(w.atoll('start', 'p', '--sqlite', w.db, status=1), str(w.db))
    os.chmod(w.db, 0o644)
    same(json.loads(w.atoll('list', '--json'))['plans'], [])
    same(sorted(w.names()), ['dev.db', 'file'])


def sec_01_hostile_files(new):
    """What a command leaves must neither hold us for ever nor reach anything outside."""
    w = new()
    victim = w.top / 'victim'
    victim.write_text('precious')
    hostile = {
        'fifo': 'rm -f dev.db-journal; mkfifo dev.db-journal',
        'wal': 'mkfifo dev.db-wal',
        'link': f'rm dev.db; ln -s {victim} dev.db',
        'gone': 'rm dev.db',
        'noise': 'head -c 9000 /dev/urandom > dev.db',
        'cut': 'truncate -s 3000 dev.db',
    }
    before = w.dump()
    for name, script in hostile.items():
        w.start()
        w.exec(f'cd "$(dirname "$(readlink {w.db})")"; {script}')
        for verb in ('diff', 'commit'):
            said = w.atoll(verb, 'p', status=None)
            if 'precious' in said or 'committed p' in said:
                raise Broken(f'{name}: {said}')
        same(w.dump(), before, name)
        w.atoll('reset', 'p')
        same(w.changes(), {}, name)
        w.atoll('stop', 'p', '--force')
    # A journal that names a file which SQLite would delete when it rolls back.
    w.start()
    path = Path(w.path())
    db = sqlite3.connect(path, isolation_level=None)
    db.execute('PRAGMA cache_size=1')
    db.execute('BEGIN')
    db.execute('CREATE TABLE big(x)')
    db.executemany('INSERT INTO big VALUES(?)', [('y' * 4000,) for _ in range(100)])
    journal = Path(f'{path}-journal').read_bytes()
    content = path.read_bytes()
    db.execute('ROLLBACK')
    db.close()
    name = str(victim).encode()
    tail = (sum(name) & 0xffffffff).to_bytes(4, 'big')
    page = (0x40000000 // 4096 + 1).to_bytes(4, 'big')
    path.write_bytes(content)
    Path(f'{path}-journal').write_bytes(journal + page + name + len(name).to_bytes(4, 'big') + tail +
                                        bytes.fromhex('d9d505f920a163d7'))
    w.atoll('diff', 'p', status=None)
    w.atoll('commit', 'p', status=None)
    same(victim.read_text(), 'precious')


def err_04_a_full_disk_changes_nothing(new):
    if os.geteuid() != 0:
        return
    for work in ("WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i+1 FROM n WHERE i<5000) "
                 "INSERT INTO users SELECT i, hex(zeroblob(500)), 1 FROM n",
                 'CREATE TABLE more(x); INSERT INTO more VALUES(zeroblob(4000000))'):
        w = new()
        small = w.top / 'small'
        small.mkdir()
        subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=24m', 'none', small], check=True)
        try:
            shutil.copy(w.db, small / 'dev.db')
            w.db = small / 'dev.db'
            w.atoll('start', 'p', '--dir', w.app, '--sqlite', w.db, '--work-in-store')
            w.work(work)
            w.exec('echo new > file')
            before = w.dump()
            free = os.statvfs(small)
            (small / 'fill').write_bytes(b'x' * (free.f_bavail * free.f_frsize - 300_000))
            said = w.atoll('commit', 'p', status=None)
            if 'committed p' in said:
                raise Broken(said)
            same(w.dump(), before, work)
            (small / 'fill').unlink()
            w.atoll('commit', 'p')
            same((w.app / 'file').read_text(), 'new\n')
            w.atoll('stop', 'p')
        finally:
            subprocess.run(['umount', '-l', small], check=True)


SYNCED = re.compile(r'(fsync|fdatasync|syncfs|unlink)\((?:\d+<([^>]*)>|"([^"]*)")')


def der_02_order_of_a_commit_of_rows(new):
    """What the decision relies on is on disk before it, the rows before the commit is on record."""
    if not shutil.which('strace'):
        return
    for mode, work in (('delete', 'UPDATE users SET age=1'), ('wal', 'UPDATE users SET age=1'),
                       ('delete', 'CREATE TABLE more(x)')):
        w = new(mode)
        w.start()
        w.work(work)
        keeper = sqlite3.connect(w.db)  # so that a WAL is not checkpointed and removed
        keeper.execute('SELECT * FROM users').fetchall()
        trace = w.top / 'trace'
        subprocess.run(['strace', '-f', '-y', '-qq', '-o', trace, '-e', 'trace=fsync,fdatasync,syncfs,unlink',
                        ATOLL, 'commit', 'p'], env={**w.env, 'ASAN_OPTIONS': 'detect_leaks=0'}, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        keeper.close()
        calls = [(m[1], m[2] or m[3]) for m in SYNCED.finditer(trace.read_text())]
        records = [i for i, (call, path) in enumerate(calls) if path.endswith('atoll.db-wal')]
        if len(records) < 3:
            raise Broken(f'preparing, decided, committed: {calls}')
        preparing, decided, committed = records[0], records[1], records[2]
        before, after = calls[preparing:decided], calls[decided:committed]
        if not any(call == 'syncfs' for call, _ in before) and \
                not {'b1.do', 'b1.undo', 'b1.manifest'} <= {Path(path).name for _, path in before}:
            raise Broken(f'{mode}: the decision is not covered: {before}')
        if mode == 'wal':
            if ('fdatasync', f'{w.db}-wal') not in after:
                raise Broken(f'the WAL is not on disk: {after}')
            continue
        at = after.index(('unlink', f'{w.db}-journal')) if ('unlink', f'{w.db}-journal') in after else None
        if at is None:  # in exclusive mode the journal is emptied instead
            same(any(path == f'{w.db}-journal' for _, path in after), True, f'{after}')
        elif ('fdatasync', str(w.app)) not in after[at:] and ('fsync', str(w.app)) not in after[at:]:
            raise Broken(f'that the journal is gone is not on disk: {after}')


# ---- random ----

def statement(rnd, table, ids, who):
    """One that changes a row of the IDS, adds or deletes one."""
    number = rnd.choice(ids)
    return rnd.choice([f"UPDATE {table} SET v='{who}{rnd.randrange(9)}' WHERE id={number}",
                       f'UPDATE {table} SET n=n+{rnd.randrange(1, 9)} WHERE id={number}',
                       f'DELETE FROM {table} WHERE id={number}',
                       f"INSERT OR REPLACE INTO {table} VALUES({number},{rnd.randrange(9)},'{who}')"])


def random_round(w, seed):
    """The plan and somebody else write; rows of both are there in the end, or nothing of the plan."""
    rnd = random.Random(seed)
    first = True
    w.start()
    for _ in range(rnd.randrange(1, 4)):
        base = dump(w.db)
        mine, theirs = list(range(1, 12)), list(range(rnd.choice([1, 12]), 20))
        plan = [statement(rnd, rnd.choice('ab'), mine, 'p') for _ in range(rnd.randrange(1, 6))]
        if rnd.random() < .2:
            plan.append(f'CREATE TABLE t{rnd.randrange(10**6)}(x)')
        w.exec(f"echo {rnd.random()} > file; sqlite3 {w.db} <<'EOF'\n" + ';\n'.join(plan) + ';\nEOF')
        foreign = [statement(rnd, rnd.choice('ab'), theirs, 'f') for _ in range(rnd.randrange(0, 4))]
        for one in foreign:
            sql(w.db, one)
        before = w.dump()
        work = dump(w.path())
        done = subprocess.run([ATOLL, 'commit', 'p'], env=w.env, cwd=w.app, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode == CONFLICT:
            same(w.dump(), before, f'seed {seed}: after a conflict')
            w.atoll('reset', 'p')
            continue
        same(done.returncode, 0, f'seed {seed}: {done.stdout}')
        now = dump(w.db)
        for table in now[2]:
            rows = {side: {r[0]: r for r in content[2].get(table, [])}
                    for side, content in (('base', base), ('theirs', before[0]), ('work', work), ('now', now))}
            for key in set().union(*rows.values()):
                was, their, mine_, is_ = (rows[s].get(key) for s in ('base', 'theirs', 'work', 'now'))
                want = their if mine_ == was else mine_
                if their not in (was, mine_) and mine_ != was:
                    raise Broken(f'seed {seed}: row {table}({key}) should be a conflict')
                same(is_, want, f'seed {seed}: {table}({key})')
        if first and rnd.random() < .5:
            w.atoll('rollback', 'p')
            same(w.dump(), before, f'seed {seed}: undone')
        else:
            first = False  # a rollback takes all of them back
    w.atoll('stop', 'p', '--force')


def atm_01_random_rounds_with_somebody_else(new):
    schema = ''.join(f"CREATE TABLE {t}(id INTEGER PRIMARY KEY, n INT, v TEXT);" + ''.join(
        f"INSERT INTO {t} VALUES({i},{i},'o');" for i in range(1, 20, 2)) for t in 'ab')
    first = 1 if os.geteuid() == 0 else 100_000
    for seed in range(first, first + (200 if LONG else 8)):
        random_round(new(MODES[seed % 2], schema), seed)


# ---- an undo leaves nothing ----

# A table and its first rows; V and W are any columns that are no key.
SHAPES = {
    'counted': ('id INTEGER PRIMARY KEY AUTOINCREMENT, v, w', '(id,v) VALUES(1,1),(2,2),(9,3)'),
    'unused': ('id INTEGER PRIMARY KEY AUTOINCREMENT, v, w', ''),
    'reset': ('id INTEGER PRIMARY KEY AUTOINCREMENT, v, w', '(v) VALUES(1),(2)'),
    'plain': ('id INTEGER PRIMARY KEY, v, w', '(v) VALUES(1),(2),(3)'),
    'pair': ('a, b, v, w, PRIMARY KEY(a, b)', "(a,b,v) VALUES('x',1,1),('y',2,2)"),
    'without': ('id TEXT PRIMARY KEY, v, w', "(id,v) VALUES('x',1),('y',2)"),
    'keyless': ('v, w', '(v) VALUES(1),(1),(2)'),
    'made': ('id INTEGER PRIMARY KEY, v, w, x AS (v+1) STORED', '(v) VALUES(1),(2)'),
}
SETTINGS = ('auto_vacuum', 'user_version', 'application_id', 'page_size', 'encoding', 'journal_mode')


def everything(path):
    """As sqlite3 writes it down, with what SQLite keeps for itself; rows without a number of their own in any order."""
    done = subprocess.run(['sqlite3', str(path), '.dump', *(f'PRAGMA {name}' for name in SETTINGS),
                           'SELECT * FROM sqlite_sequence', 'SELECT * FROM sqlite_stat1', 'PRAGMA integrity_check'],
                          stdout=subprocess.PIPE, text=True, check=True)
    return sorted(done.stdout.splitlines())


def shaped(rnd, names):
    tables = ''.join(f'CREATE TABLE {name}({SHAPES[name][0]}){" WITHOUT ROWID" if name == "without" else ""};'
                     + (f'INSERT INTO {name}{SHAPES[name][1]};' if SHAPES[name][1] else '') for name in names)
    return (f'PRAGMA auto_vacuum={rnd.randrange(3)};' + tables + 'CREATE TABLE log(id INTEGER PRIMARY KEY AUTOINCREMENT, n);'
            + ''.join(f'CREATE TRIGGER t_{name} AFTER INSERT ON {name} BEGIN INSERT INTO log(n) VALUES(new.v); END;' for name in names)
            + 'DELETE FROM counted WHERE id=9; CREATE INDEX i ON plain(v);'
            + ("UPDATE sqlite_sequence SET seq=40 WHERE name='reset';" if 'reset' in names else '')
            + 'PRAGMA user_version=3; ANALYZE;')


def any_change(rnd, name):
    keys = {'pair': ("(a,b,v)", f"('k{rnd.random()}',1,5)"), 'without': ('(id,v)', f"('k{rnd.random()}',5)")}
    columns, row = keys.get(name, ('(v)', f'({rnd.randrange(99)})'))
    return rnd.choice([f'INSERT INTO {name}{columns} VALUES{row}', f'UPDATE {name} SET w={rnd.randrange(99)}',
                       f'DELETE FROM {name} WHERE v={rnd.randrange(1, 4)}', f'DELETE FROM {name}',
                       f'INSERT INTO {name}{columns} VALUES{row}; DELETE FROM {name} WHERE v=2'])


def dbt_01_an_undo_gives_back_all_that_sqlite_keeps(new):
    first = 1 if os.geteuid() == 0 else 100_000
    for seed in range(first, first + (200 if LONG else 8)):
        rnd = random.Random(seed)
        names = ['counted', 'plain'] + rnd.sample([n for n in SHAPES if n not in ('counted', 'plain')], seed % 4)
        w = new(MODES[seed % 2], shaped(rnd, names))
        before = everything(w.db)
        w.start()
        for _ in range(rnd.randrange(1, 3)):
            w.work(*(any_change(rnd, rnd.choice(names)) for _ in range(rnd.randrange(1, 5))))
            w.atoll('commit', 'p')
        w.atoll('rollback', 'p')
        same(everything(w.db), before, f'seed {seed}')
        w.atoll('stop', 'p', '--force')


def dbt_01_a_counter_that_another_process_moved_on_stays(new):
    w = new(schema=f'CREATE TABLE t({SHAPES["counted"][0]}); INSERT INTO t(v) VALUES(1); CREATE TABLE u({SHAPES["counted"][0]});')
    w.start()
    w.work('INSERT INTO t(v) VALUES(2),(3); INSERT INTO u(v) VALUES(1)')
    w.atoll('commit', 'p')
    sql(w.db, 'INSERT INTO t(v) VALUES(4)')
    w.atoll('rollback', 'p')
    same(sql(w.db, 'SELECT name, seq FROM sqlite_sequence'), [('t', 4)])
    same(sql(w.db, 'SELECT id, v FROM t'), [(1, 1), (4, 4)])


def dbt_01_a_counter_is_never_behind_rows_of_another_process(new):
    """Those that chose their number themselves, below the counter of the commit."""
    w = new(schema='CREATE TABLE [a b](id INTEGER PRIMARY KEY AUTOINCREMENT, v); INSERT INTO [a b](v) VALUES(1); '
                   'CREATE TABLE u(id INTEGER PRIMARY KEY AUTOINCREMENT, v); CREATE TABLE z(id INTEGER PRIMARY KEY AUTOINCREMENT, v);')
    w.start()
    w.work('INSERT INTO [a b] VALUES(100, 2); INSERT INTO u VALUES(100, 2); INSERT INTO z VALUES(100, 2)')
    w.atoll('commit', 'p')
    for table in ('[a b]', 'u'):
        sql(w.db, f'INSERT INTO {table} VALUES(50, 3)')
    w.atoll('rollback', 'p')
    same(sql(w.db, 'SELECT name, seq FROM sqlite_sequence ORDER BY 1'), [('a b', 50), ('u', 50)])


# ---- running ----

# Slow, and the same for everybody: not once more as a user where root ran them.
ONCE = {'atm_01_what_is_no_row_is_carried_over_whole', 'dbt_01_an_undo_gives_back_all_that_sqlite_keeps',
        'con_01_snapshots_are_consistent_while_others_write', 'err_04_who_keeps_it_locked_is_waited_for_and_not_for_ever'}


def run_as(who, again):
    """Prints a line per test, for the parent to count. AGAIN: root did so before."""
    tests = [fn for name, fn in globals().items()
             if re.match(r'[a-z]{3}_\d\d_', name) and ONLY in name and not (again and name in ONCE)]
    with ThreadPoolExecutor(WORKERS) as pool:
        bad = False
        for text in pool.map(lambda test: attempt(test, who), tests):
            print(text, flush=True)
            bad = bad or text.startswith('not ok')
    return 1 if bad else 0


def attempt(test, who):
    began = time.monotonic()
    text = ''
    with tempfile.TemporaryDirectory(prefix='atoll-sqlite-', dir=os.environ.get('ATOLL_TEST_DIR', '/var/tmp'),
                                     ignore_cleanup_errors=True) as top:
        count = iter(range(10**6))

        def new(mode='delete', schema=USERS):
            place = Path(top) / str(next(count))
            place.mkdir()
            return World(place, mode, schema)

        try:
            test(new)
        except Broken as broken:
            text = str(broken)
        except Exception as failure:  # a test that cannot run has failed too
            text = repr(failure)
    lines = [f'{"not ok" if text else "ok"} {test.__name__}_as_{who}', f'# {time.monotonic() - began:.1f} s']
    return '\n'.join(lines + ['# ' + line for line in text.splitlines()])


def main():
    if len(sys.argv) > 1:
        return run_as(sys.argv[1], 'again' in sys.argv)
    number = status = 0
    whos = ['root', 'user'] if os.geteuid() == 0 else ['user']
    for who in whos:
        drop = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups'] \
            if who == 'user' and os.geteuid() == 0 else []
        child = subprocess.Popen([*drop, sys.executable, __file__, who, *(['again'] if drop else [])], stdout=subprocess.PIPE, text=True)
        for line in child.stdout:
            match = re.match('(not ok|ok) ', line)
            number += bool(match)
            print(re.sub('^(not ok|ok) ', rf'\1 {number} - ', line), end='', flush=True)
        status = child.wait() or status
    print(f'1..{number}')
    return 1 if status else 0


if __name__ == '__main__':
    sys.exit(main())

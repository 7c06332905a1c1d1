# SPDX-License-Identifier: Apache-2.0
"""Random sequences of PostgreSQL frontend messages, made from a seed.

A session is a list of bursts, a burst is (client, wait, items): what one client sends before it reads, if it
WAITs for answers then. An item is (words, messages): what can only be sent as a whole, such as a COPY and its
data. Sessions continue: what one sequence leaves behind (prepared statements, settings, rows) the next one meets.
"""

import random
import re

import pgwire

SCHEMA = '''drop table if exists d, t, x cascade;
create or replace function f() returns refcursor language plpgsql as
$$ declare held cursor for select * from t order by id; begin held := 'held'; open held; return held; end $$;
create table t(id int primary key, v text);
create table d(id int primary key, r int references t deferrable initially deferred);
insert into t select i, 'v' || i from generate_series(1, 5) i;'''

# What the holder carries out itself (BEGIN and its like) the server does not know as a prepared statement or a cursor;
# of a query of several statements it is sent one after the other, and keeps that as their text; and simple queries
# may go by a portal without a name. That shows in these views, and nowhere else.
PREPARED_VIEW = ("select name, from_sql, case when not from_sql then statement end from pg_prepared_statements "
                 "where from_sql or statement ~* '^(select|insert|update|delete|table|values)' order by 1")
CURSORS_VIEW = ("select name, is_holdable from pg_cursors where name <> '' and "
                "statement ~* '(declare|^(select|insert|update|delete|table|values))' order by 1")

# Every sequence ends so: blocks and batches are closed, and what was changed is looked at.
EFFECTS = ("select * from t order by id", "select * from d order by id",
           "select to_regclass('x')", PREPARED_VIEW,
           CURSORS_VIEW,
           "select current_setting('work_mem'), current_setting('application_name'), current_setting('timezone'), "
           "current_setting('transaction_read_only'), current_setting('client_min_messages'), "
           "coalesce(current_setting('app.x', true), '')")

STATEMENTS, PORTALS = ('', '', 's1', 's2', 'S x'), ('', '', 'p1', 'p2')
# Names of PREPARE and DECLARE are not those of Parse and Bind: what of the latter is about the transaction the server
# does not know, so that it finds no name twice, and nothing to EXECUTE.
PREPARED, CURSORS, SAVEPOINTS = ('q1', 'q2', '"Q x"'), ('c1', 'c2'), ('a', 'b')

BLOCKS = ['begin', 'begin', 'commit', 'rollback', 'end', 'abort', 'start transaction', 'BEGIN WORK', 'begin read only',
          'commit and chain', 'rollback and chain', '/* x */ begin -- y', 'commit and no chain',
          'set transaction read only', 'start transaction read write']
SAVING = ['savepoint {save}', 'savepoint {save}', 'release {save}', 'release savepoint {save}', 'rollback to {save}',
          'rollback work to savepoint {save}', 'ROLLBACK TRANSACTION TO {save}']
ROWS = ['select 1', 'select * from t order by id', 'select count(*) from t', "insert into t values ({id}, 'x')",
        "insert into t values ({id}, 'y') returning id", "update t set v = 'z{id}' where id = {id}",
        'delete from t where id = {id}', 'select id from t where id > {id} order by 1 for update',
        'select generate_series(1, 4)', 'insert into d values ({id}, {id})', 'insert into d values ({id}, 99)',
        'delete from d', 'table d', 'values (1), (2), (3)', 'create table x(i int)', 'drop table x',
        'insert into x values ({id})', 'truncate d', 'select v, id from t where id = {id}',
        "with w as (update t set v = 'w{id}' where id > {id} returning id) select count(*) from w",
        "do $$ begin insert into d values ({id}, 1); exception when others then raise notice 'caught'; end $$",
        "insert into t values ({id}, repeat('long', 7000))", "select repeat('long', 70{id}0)",
        'select i from generate_series(1, 120) i', 'alter table x add column if not exists j int', 'create view y as table t',
        'drop table if exists d', 'create table if not exists d(id int primary key, r int references t deferrable initially deferred)']
WRONG = ['select 1/0', 'select bogus', 'selec 1', "insert into t values (1, 'dup')", "select 'x'::int",
         'select 1/(id - 3) from t order by id', "do $$ begin raise exception 'no'; end $$"]
ODD = ['', '-- nothing', "do $$ begin raise notice 'yes'; end $$", 'select \';\', $x$ ; commit; $x$',
       'explain (costs off) select * from t', 'lock table t in share mode']
SESSION = ["set work_mem = '{id}MB'", "set local work_mem = '8{id}kB'", 'reset work_mem', 'show work_mem', 'reset all',
           "set application_name = 'n{id}'", "set local application_name = 'l{id}'", 'show application_name',
           "set app.x = 'x{id}'", "set local app.x = 'l{id}'", "select set_config('app.x', 'f{id}', true)",
           "select coalesce(current_setting('app.x', true), '')", "select set_config('app.x', 's{id}', false)",
           'set default_transaction_read_only = on', 'set default_transaction_read_only = off',
           'set session characteristics as transaction read only', 'reset default_transaction_read_only',
           "select set_config('work_mem', '2MB', false)", "select set_config('work_mem', '3MB', true)",
           "set timezone = 'UTC'", "set local time zone 'CET'", 'show transaction_read_only', 'discard plans',
           'set constraints all immediate', 'set constraints all deferred', 'set constraints d_r_fkey immediate',
           'set client_min_messages = error', 'set session work_mem = default', 'discard all']
NAMED = ['prepare {prep} as select * from t order by id', "prepare {prep}(int) as insert into t values ($1, 'p')",
         'prepare {prep} as select 7', 'execute {prep}', 'execute {prep}({id})', 'execute {prep}', 'deallocate {prep}',
         'deallocate prepare {prep}', 'deallocate all',
         PREPARED_VIEW]
CURSOR = ['declare {cursor} cursor for select * from t order by id', 'declare {cursor} cursor for select 1 union select 2',
          'declare {cursor} scroll cursor for values (1), (2), (3)', 'fetch {cursor}', 'fetch 2 from {cursor}',
          'fetch all in {cursor}', 'fetch backward 1 from {cursor}', 'move {cursor}', 'close {cursor}', 'close all',
          CURSORS_VIEW,
          'declare {cursor} cursor with hold for select id from t order by id', 'select f()', 'fetch held',
          'fetch 2 from {cursor}', 'close held']
COPY_OUT = ['copy (select i, repeat(i::text, 50) from generate_series(1, 150) i) to stdout',
            'copy (select id from t order by id) to stdout (format binary)', 'copy (select * from t order by id) to stdout', 'copy (select 1 union select 2) to stdout', 'copy (select 1/(id - 3) from t order by id) to stdout']
COPY_IN = ['copy t from stdin', 'copy t(id) from stdin', 'copy nothing from stdin', 'copy d from stdin']
PARAMETERS = [('select $1::int', 1), ('insert into t values ($1, $2)', 2), ('select * from t where id = $1', 1),
              ('delete from t where id > $1', 1), ("update t set v = $2 where id = $1::int returning v", 2)]
FUNCTIONS = [(177, (2, 3)), (1397, (-4,)), (154, (1, 0)), (154, (9, 2)), (999999, ())]

# What no sequence has, since a plan answers otherwise. Pattern -> why.
LEFT_OUT = {
    r'client_min_messages': 'warnings of the holder do not ask for it',
    r'read write': 'a plan refuses it behind a SET of the same transaction, too',
}
# The same, of messages of the extended protocol.
NOT_PARSED = {
    r'discard all': 'a server commits behind it at once, a plan with the rest of the pipeline',
}
# The same, of sessions with two clients: the plan's transaction has one session for both.
NOT_SHARED = {
    r' from pg_': 'shows what the other client has, too',
    r'with hold': 'the cursor is known to the other client, too',
}

KINDS = [(BLOCKS, 12), (SAVING, 10), (ROWS, 22), (WRONG, 4), (ODD, 2), (SESSION, 5), (NAMED, 8), (CURSOR, 7),
         (COPY_OUT, 1), (COPY_IN, 2)]
OWN = re.compile(r'\W*(x \*/ )?(begin|start|commit|end|rollback|abort|savepoint|release|set|deallocate|discard)', re.I)
WEIGHTS = [w for _, w in KINDS]


class Maker:
    """Of one session. WITHOUT: a pattern of statements that are left out."""

    def __init__(self, seed, clients=1, without=None):
        self.random = random.Random(seed)
        self.left_out = re.compile('|'.join([*LEFT_OUT, *([without] if without else []),
                                             *(NOT_SHARED if clients > 1 else [])]))
        self.not_parsed = re.compile('|'.join(NOT_PARSED))
        self.clients, self.client, self.bursts = clients, 0, []
        self.wanted = {}     # statement -> number of parameters it was parsed with
        self.own = set()     # statements that the holder may carry out itself
        self.copies = set()  # statements and portals that may be a COPY FROM STDIN
        self.fetches = set()  # statements that may be a FETCH: described when its cursor is closed, it ends the server (15.18)

    # ---- texts ----

    def fill(self, words):
        r = self.random
        return words.format(id=r.randint(1, 9), save=r.choice(SAVEPOINTS), prep=r.choice(PREPARED),
                            cursor=r.choice(CURSORS)) if '{' in words else words

    def statement(self):
        while True:
            words = self.fill(self.random.choice(self.random.choices(KINDS, WEIGHTS)[0][0]))
            if not self.left_out.search(words):
                return words

    def parsed_statement(self):
        while True:
            words = self.statement()
            if not self.not_parsed.search(words):
                return words

    # ---- items ----

    def data(self, sync):
        """What follows a COPY FROM STDIN, if it is one."""
        r = self.random
        rows = ['{id}\tc\n', '1\tdup\n', '{id}\t{id}\n', 'junk\n', '4{id}\n', '3{id}\tq\n3{id}\tq\n']
        messages = [pgwire.data(self.fill(r.choice(rows))) for _ in range(r.randint(0, 2))]
        if sync:
            messages.insert(0, r.choice([pgwire.SYNC, pgwire.FLUSH]))
        return [*messages, pgwire.COPY_DONE if r.random() < 0.8 else pgwire.fail()]

    def simple(self):
        r = self.random
        count = r.choices([1, 2, 3, 4], [60, 20, 12, 8])[0]
        words = ';'.join(self.statement() for _ in range(count))
        messages = [pgwire.query(words)]
        for _ in range(words.count('from stdin')):
            messages += self.data(False)
        return f'Query {words!r}', messages

    def parse(self, name):
        r = self.random
        if r.random() < 0.3:
            words, count = r.choice(PARAMETERS)
        else:
            words, count = self.parsed_statement(), 0
            if r.random() < 0.04:
                words += ';' + self.parsed_statement()
        self.wanted[name] = count
        if 'from stdin' in words:
            self.copies.add(name)
        if OWN.match(words):
            self.own.add(name)
        if re.search('fetch|move', words):
            self.fetches.add(name)
        return f'Parse {name!r} {words!r}', [pgwire.parse(name, words)]

    def bind(self, portal, name):
        r = self.random
        count = self.wanted.get(name, 0) if r.random() < 0.97 else r.randint(0, 3)
        values = [r.choice([None, 'x', '', -1]) if r.random() < 0.1 else r.randint(1, 9) for _ in range(count)]
        formats = r.choice([(), (), (0,), (1,)])
        if name in self.copies:
            self.copies.add('portal ' + portal)
        binary = r.random() < 0.15
        return (f'Bind {portal!r} to {name!r} {values} {formats}' + ' binary' * binary,
                [pgwire.bind(portal, name, values, formats, binary)])

    def execute(self, portal):
        r = self.random
        rows = r.choice([0, 0, 0, 1, 2, 100])
        messages = [pgwire.execute(portal, rows)]
        if 'portal ' + portal in self.copies:
            messages += self.data(r.random() < 0.3)
        return f'Execute {portal!r} {rows}', messages

    def about(self, what, names):
        kind = self.random.choice('SP')
        name = self.random.choice(names[kind])
        if kind == 'S' and name in self.fetches:
            what = pgwire.close
        return f'{what.__name__.capitalize()} {kind} {name!r}', [what(kind, name)]

    def portal(self, name, portal):
        """Of what the holder carries out itself the portal has no name here: the server does not know that one, and
        takes it a second time."""
        return '' if name in self.own else portal

    def piece(self):
        """A few messages of the extended protocol that mostly make sense together."""
        r = self.random
        name, portal = r.choice(STATEMENTS), r.choice(PORTALS)
        # The portal without a name is not asked for out of turn: of a simple query that failed the server has one.
        names = {'S': STATEMENTS, 'P': tuple(filter(None, PORTALS)) + CURSORS}
        portal = self.portal(name, portal)
        kind = r.random()
        if kind < 0.55:
            whole = [self.parse(name)]
            portal = self.portal(name, portal)
            if r.random() < 0.2 and name not in self.fetches:
                whole.append((f'Describe S {name!r}', [pgwire.describe('S', name)]))
            whole.append(self.bind(portal, name))
            if r.random() < 0.5:
                whole.append((f'Describe P {portal!r}', [pgwire.describe('P', portal)]))
            whole.append(self.execute(portal))
            return whole
        if kind < 0.75:
            return [self.bind(portal, name), self.execute(portal)]
        return [r.choice([lambda: self.parse(name), lambda: self.bind(portal, name), lambda: self.execute(r.choice(names['P'])),
                          lambda: self.execute(r.choice(CURSORS)), lambda: self.about(pgwire.describe, names),
                          lambda: self.about(pgwire.close, names), lambda: ('Flush', [pgwire.FLUSH])])()]

    # ---- bursts ----

    def add(self, items, wait=True):
        self.bursts.append((self.client, wait, items))

    def batch(self):
        r = self.random
        items = []
        for _ in range(r.choices([1, 2, 3, 5], [50, 25, 15, 10])[0]):
            items += self.piece()
            if r.random() < 0.08:
                items.append(('Flush', [pgwire.FLUSH]))
            if r.random() < 0.08:
                items.append(('Sync', [pgwire.SYNC]))
            if r.random() < 0.02:
                items.append(self.function())
        end = r.random()
        if end < 0.85:
            items.append(('Sync', [pgwire.SYNC]))
        elif end < 0.92:
            items.append(('Flush', [pgwire.FLUSH]))
        self.add(items, end < 0.92 and r.random() < 0.9)

    def function(self):
        oid, values = self.random.choice(FUNCTIONS)
        return f'FunctionCall {oid} {values}', [pgwire.call(oid, values)]

    def leave(self):
        """The client takes its leave behind what it says, and another one comes."""
        r = self.random
        items = [self.simple()] if r.random() < 0.5 else self.piece() + [('Sync', [pgwire.SYNC])] * (r.random() < 0.7)
        self.add([*items, ('Terminate', [pgwire.TERMINATE])])

    def settle(self):
        self.add([('Sync', [pgwire.SYNC]), ("Query 'rollback'", [pgwire.query('rollback')])])

    def burst(self):
        r = self.random
        if self.clients > 1 and r.random() < 0.3:
            self.settle()
            self.client = (self.client + 1) % self.clients
        kind = r.random()
        if kind < 0.48:
            self.add([self.simple() for _ in range(r.choices([1, 2], [9, 1])[0])])
        elif kind < 0.97:
            self.batch()
        elif kind < 0.985:
            self.add([self.function()])
        else:
            self.leave()

    def sequence(self):
        for _ in range(self.random.randint(2, 8)):
            self.burst()
        self.settle()
        self.add([(f'Query {words!r}', [pgwire.query(words)]) for words in EFFECTS
                  if not self.left_out.search(words)])


def session(seed, sequences, without=None):
    """Bursts of one client, or of two."""
    maker = Maker(seed, 2 if seed % 5 == 4 else 1, without)
    for _ in range(sequences):
        maker.sequence()
    return maker.bursts


# ---- making a failing one small ----

def without(bursts, i, j=None):
    if j is None:
        return bursts[:i] + bursts[i + 1:]
    client, wait, items = bursts[i]
    rest = items[:j] + items[j + 1:]
    return bursts[:i] + ([(client, wait, rest)] if rest else []) + bursts[i + 1:]


def shrink_bursts(bursts, fails):
    """Without as many bursts as can be missed, halves first."""
    size = len(bursts) // 2
    while size:
        at = len(bursts)
        while at > 0:
            shorter = bursts[:max(0, at - size)] + bursts[at:]
            if shorter and fails(shorter):
                bursts = shorter
            at -= size
        size //= 2
    return bursts


def shrink_items(bursts, fails):
    for i in range(len(bursts) - 1, -1, -1):
        for j in range(len(bursts[i][2]) - 1, -1, -1):
            if i < len(bursts) and j < len(bursts[i][2]):
                shorter = without(bursts, i, j)
                if shorter and fails(shorter):
                    bursts = shorter
    return bursts


def shorter_queries(item):
    """Of a Query of several statements: one less."""
    words, messages = item
    kind, body = messages[0]
    parts = body[:-1].decode().split(';') if kind == b'Q' else []
    if len(parts) < 2 or '$' in words:
        return
    for i in range(len(parts)):
        fewer = ';'.join(parts[:i] + parts[i + 1:])
        yield f'Query {fewer!r}', [pgwire.query(fewer), *messages[1:]]


def shrink_queries(bursts, fails):
    for i, (client, wait, items) in enumerate(bursts):
        for j, item in enumerate(items):
            for fewer in shorter_queries(item):
                shorter = bursts[:i] + [(client, wait, items[:j] + [fewer] + items[j + 1:])] + bursts[i + 1:]
                if fails(shorter):
                    return shrink_queries(shorter, fails)
    return bursts


def is_whole(bursts):
    """Can each burst that waits be answered: does it end with what makes the server send its answers?"""
    return all(items[-1][0].split()[0] in ('Sync', 'Flush', 'Query', 'FunctionCall', 'Terminate') for _, wait, items in bursts if wait)


def shrink(bursts, differs):
    """A part of BURSTS, as small as it gets, of which DIFFERS is true as well."""
    def fails(part):
        return is_whole(part) and differs(part)

    size = None
    while size != sum(len(items) for _, _, items in bursts):
        size = sum(len(items) for _, _, items in bursts)
        bursts = shrink_queries(shrink_items(shrink_bursts(bursts, fails), fails), fails)
    return bursts

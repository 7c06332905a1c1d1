# SPDX-License-Identifier: Apache-2.0
"""Databases in plans, with the command as people use it and a real server: what a plan does to a database
happens together with the rest of the plan or not at all, whoever is killed and whenever."""

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.environ['ATOLL_TEST_LIB'])
from cluster import Cluster, binary  # noqa: E402
from expect import Broken, need, same  # noqa: E402
from kinds import TABLE, Everything, World, until  # noqa: E402

SOURCE = Path(os.environ['ATOLL_SOURCE_ROOT']) / 'src'


# ---- what it is like ----

def a_plan_sees_its_own_changes_and_nobody_else_does(w):
    w.start()
    w.work()
    same(w.sql('select count(*), min(id) from t'), '5|2', 'inside')
    w.expect('old', 'outside')
    w.sql('create table u(i int); insert into t values (7), (8)')
    changes = {c['path']: (c['kind'], c['detail']) for c in w.json('diff', 'p')['changes'] if c['path'] != 'f'}
    same(changes, {'public.t': ('changed', '3 rows added, 1 deleted'), 'public.u': ('added', '')}, 'diff')
    w.sql('delete from t where id > 6; drop table u')
    need('cannot be undone' in w.must('commit', 'p', '--dry-run').err, 'a dry run says that it will be final')
    w.expect('old', 'a dry run')
    done = w.must('commit', 'p')
    need('postgres cannot be undone; undo the rest until' in done.err and '--allow partial' in done.err, f'{done}')
    w.expect('new', 'committed')
    same(w.prepared(), [], 'prepared')
    same(w.cluster.sql("select count(*) from pg_class where relname like '%atoll%'"), '0', 'nothing of ours stays')
    same(w.holders(), [], 'no holder without a transaction')
    need('no changes' in w.must('commit', 'p').err, 'nothing to commit')
    # The next command begins again, and sees what others did meanwhile.
    w.cluster.sql('insert into t values (100)')
    same(w.sql('select max(id) from t; insert into t values (101)'), '100', 'a new transaction')
    w.must('commit', 'p')
    same(w.cluster.sql('select max(id) from t'), '101', 'a second batch')
    w.must('stop', 'p')
    same((w.holders(), w.plans()), ([], []), 'stopped')


def what_the_caller_has_set_leads_nobody_past_the_plan(w):
    w.start()
    done = w.must('exec', 'p', '--', 'sh', '-c', 'psql -XAtc "delete from t" && env', PGSERVICE='real', PGHOSTADDR='127.0.0.1',
                  PGHOST='elsewhere', PGPORT='1', PGPASSWORD='hunter2', PGDATABASE='postgres', PGCHANNELBINDING='require')
    need('hunter2' not in done.all and 'DELETE 5' in done.out, f'{done}')
    w.expect('old')
    # Whoever finishes it may have none of that, or other things.
    same(w.atoll('commit', 'p', ATOLL_CRASHPOINT='txn.after-decision').code, -signal.SIGKILL, 'killed')
    w.must('recover', PGHOST='elsewhere', PGPORT='1', PGUSER='nobody', PGDATABASE='postgres')
    same(w.cluster.sql('select count(*) from t'), '0', 'committed')


def definitions_are_changes(w):
    w.start()
    same(w.json('diff', 'p')['changes'], [], 'nothing yet')
    w.sql('create function f() returns int language sql as $$ select 1 $$')
    same([(c['path'], c['kind']) for c in w.json('diff', 'p')['changes']], [('definitions', 'changed')], 'a function')
    w.sql('alter table t add column c int; create table n(i int); create sequence s')
    paths = {c['path']: (c['kind'], c['detail']) for c in w.json('diff', 'p')['changes']}
    same(paths, {'definitions': ('changed', 'pg_proc'), 'public.t': ('changed', 'definition changed'),
                 'public.n': ('added', ''), 'public.s': ('added', '')}, 'definitions')
    w.sql('drop table t; drop table n')
    paths = {c['path']: c['kind'] for c in w.json('diff', 'p')['changes']}
    same(paths, {'definitions': 'changed', 'public.t': 'deleted', 'public.s': 'added'}, 'dropped')
    w.must('commit', 'p')
    same(w.cluster.sql("select to_regclass('t') is null, f()"), 't|1', 'committed')


def a_patch_shows_the_rows_that_the_plan_changed(w):
    w.cluster.sql('create table u(i int, n text); insert into u values (1, null), (2, null)')
    w.start()
    w.sql("insert into t values (6, E'x\\ny'); delete from t where id = 1; update t set v = 'z' where id = 3; "
          "update t set v = v where id = 5; select from t where id = 4 for update; update u set n = 'x' where i = 2; "
          "create table n(i int); insert into n values (1), (1)")
    w.cluster.sql("insert into t values (100, 'others'); delete from u where i = 1")
    patch = {c['path']: c['patch'].splitlines() for c in w.json('diff', 'p', '--patch')['changes']}
    same(patch, {'public.t': ['-(1,v1)', '-(3,v3)', '+(3,z)', '+(6,"x\\ny")'], 'public.u': ['-(2,)', '+(2,x)'],
                 'public.n': ['+(1)', '+(1)']}, 'patch')
    same(w.sql('select count(*) from t'), '5', 'nothing was changed by looking')
    w.sql('truncate t; drop table u')
    patch = {c['path']: c['patch'].splitlines() for c in w.json('diff', 'p', '--patch')['changes']}
    same((patch['public.t'], patch['public.u']), (['@@ the rows before cannot be read now @@'], ['@@ dropped @@']), 'locked')


def names_of_any_kind(w):
    """In the name of the plan's database they are encoded, for the command they are as they are."""
    admin = {'user': 'postgres', 'database': 'postgres'}
    w.cluster.sql(f'create database "odd name/100%" owner {w.cluster.role}', **admin)
    try:
        url = w.cluster.url.replace('/shop', '/odd%20name%2F100%25')
        need(url != w.cluster.url, url)
        w.cwd = '/'  # no directory is in the plan
        w.must('start', 'p', '--postgres', url)
        same(w.must('exec', 'p', '--', 'psql', '-XAtc', 'create table n(i int); select current_database()').out.splitlines()[-1],
             'odd name/100%', 'its name')
        same([c['path'] for c in w.json('diff', 'p')['changes']], ['public.n'], 'changes')
        w.must('stop', '--force', 'p')
    finally:
        w.cluster.sql('drop database "odd name/100%" with (force)', **admin)
    for bad in (w.cluster.url + '?application_name=a\nb', 'postgres://' + 'x' * 100000 + '/shop'):
        done = w.atoll('start', 'p', '--postgres', bad)
        need(done.code and done.err, f'{done}')
    same(w.plans(), [], 'plans')


def a_patch_says_that_rows_cannot_be_read(w):
    """Of one table; the rest of the patch is whole."""
    w.start()
    w.work()
    program = Path(w.env['ATOLL_HOME']).parent / 'program'
    program.write_text(f'#!/bin/sh\n[ "$1" != rows ] || kill -KILL $$\nexec {os.environ["ATOLL_POSTGRES"]} "$@"\n')
    program.chmod(0o755)
    done = w.must('diff', 'p', '--patch', ATOLL_POSTGRES=str(program))
    need('\n@@ ' in done.out and 'public.t' in done.out and '-(1,v1)' not in done.out, f'{done}')
    need('-(1,v1)' in w.must('diff', 'p', '--patch').out, 'the rows')


def doctor_looks_at_servers(w):
    good = w.must('doctor', w.cluster.url)
    need("database 'shop' as 'app'" in good.out and '0 of 20' in good.out, f'{good}')
    need('max_prepared_transactions' in w.must('doctor', w.final.url).out, 'a warning')
    bad = w.fails(6, 'doctor', 'postgres://127.0.0.1:1/shop')
    need('cannot connect' in bad.out, f'{bad}')
    secret = w.atoll('doctor', 'postgres://app:hunter2@127.0.0.1:1/shop')
    need(secret.code and 'hunter2' not in secret.all, f'{secret}')


def what_is_not_kept_is_dropped(w):
    w.start()
    w.work()
    w.must('reset', 'p')
    same(w.holders(), [], 'reset ends the transaction')
    w.expect('old', 'reset')
    same(w.sql('select count(*), min(id) from t'), '5|1', 'after a reset')
    w.work()
    w.must('rollback', 'p')
    w.expect('old', 'rollback')
    w.work()
    need('uncommitted change' in w.fails(1, 'stop', 'p').err, 'work is not dropped unasked')
    w.must('stop', '--force', 'p')
    w.expect('old', 'stop')
    same(w.holders(), [], 'stopped')


def names_tell_nobody_a_secret(w):
    done = w.fails(2, 'start', 'p', '--postgres', 'postgres://app:hunter2@localhost/shop')
    need('.pgpass' in done.err and 'hunter2' not in done.all, f'{done}')
    done = w.fails(2, 'start', 'p', '--postgres', 'postgres:///shop?password=hunter2')
    need('.pgpass' in done.err and 'hunter2' not in done.all, f'{done}')
    done = w.fails(2, 'start', 'p', '--postgres', 'postgres:///shop?sslpassword=hunter2')
    need('hunter2' not in done.all, f'{done}')
    w.must('start', 'p', '--dir', 'd', '--postgres', w.cluster.url, PGPASSWORD='hunter2')
    for pid in w.holders():
        need(b'postgres:' not in Path(f'/proc/{pid}/cmdline').read_bytes(), 'the URL is in a command line')
    for file in w.home.rglob('*'):
        need(not file.is_file() or b'hunter2' not in file.read_bytes(), f'{file} knows the password')
    same(w.holders() != [], True, 'a holder')


def a_start_that_fails_says_why_and_leaves_nothing(w):
    socket = w.cluster.socket
    for url, code, words in (
            (f'postgres:///shop?host={socket}&user=app&port=1', 6, 'cannot connect'),
            (f'postgres:///shop?host={w.dir}/nowhere&user=app', 6, 'cannot connect'),
            ('postgres://127.0.0.1:1/shop', 6, 'cannot connect'),
            (f'postgres:///nothing?host={socket}&user=app', 6, 'database "nothing" does not exist'),
            (f'postgres:///shop?host={socket}&user=nobody-here', 6, 'role "nobody-here" does not exist'),
            ('mysql://localhost/shop', 2, 'not the URL of a database'),
            ('postgres://[oops/shop', 2, 'not the URL of a database'),
            ('d', 2, 'not the URL of a database')):
        done = w.fails(code, 'start', 'p', '--dir', 'd', '--postgres', url)
        need(words in done.err, f'{url}: {done}')
        same((w.plans(), w.holders()), ([], []), url)
    twice = w.fails(1, 'start', 'p', '--postgres', w.cluster.url, '--postgres',
                    f'postgresql://app@/shop?host={socket}&port=5432&application_name=x')
    need('already is in plan' in twice.err, f'{twice}')
    same((w.plans(), w.holders()), ([], []), 'twice')


def err_04_a_server_that_does_not_let_in(w):
    """A wrong password, none, and no permission; a server that goes away while it is asked."""
    cluster = w.cluster
    cluster.sql("create role guest login password 'right-one'", user='postgres', database='postgres')
    cluster.sql('create database closed', user='postgres', database='postgres')
    cluster.sql('revoke connect on database closed from public', user='postgres', database='postgres')
    cluster.sql('grant create on schema public to guest; create schema more; grant all on schema more to guest')
    hba = cluster.data / 'pg_hba.conf'
    before = hba.read_text(encoding='utf-8')
    hba.write_text('local all guest scram-sha-256\n' + before, encoding='utf-8')
    cluster.sql('select pg_reload_conf()', user='postgres')
    guest = f'postgres:///shop?host={cluster.socket}&user=guest'
    passes = w.dir / 'pass'
    passes.write_text('*:*:*:*:wrong-one\n', encoding='utf-8')
    passes.chmod(0o600)
    try:
        for env, url, words in (
                ({'PGPASSWORD': 'wrong-one'}, guest, 'password authentication failed'),
                ({'PGPASSFILE': str(passes)}, guest, 'password authentication failed'),
                ({'PGPASSFILE': '/dev/null'}, guest, 'no password supplied'),
                ({}, f'postgres:///closed?host={cluster.socket}&user=app', 'permission denied for database')):
            done = w.fails(6, 'start', 'p', '--dir', 'd', '--postgres', url, **env)
            need(words in done.err and 'hint: ' in done.err and 'wrong-one' not in done.all, f'{words}: {done}')
            same((w.plans(), w.holders(), list((w.home / 'plans').iterdir())), ([], [], []), words)
        w.must('start', 'p', '--dir', 'd', '--postgres', guest, PGPASSWORD='right-one')
    finally:
        hba.write_text(before, encoding='utf-8')
        cluster.sql('select pg_reload_conf()', user='postgres')
    w.must('stop', '--force', 'p')
    cluster.sql('drop owned by guest; drop role guest', user='postgres')
    cluster.sql('drop database closed', user='postgres')
    cluster.stop()
    try:
        done = w.fails(6, 'start', 'p', '--dir', 'd', '--postgres', cluster.url)
        need('cannot connect' in done.err, f'{done}')
        same((w.plans(), w.holders()), ([], []), 'the server is down')
    finally:
        cluster.start()


def a_plan_file_names_databases(w):
    (w.dir / 'plan').write_text('[plan]\nname = p\n[resource "files"]\npath = d\n[resource "shop"]\nkind = postgres\n'
                                f'path = "{w.cluster.url}"\n', encoding='utf-8')
    w.must('start', '--file', 'plan')
    w.work()
    w.must('commit', 'p')
    w.expect('new')


# ---- the rules ----

def dbt_01_what_is_final_is_not_called_rolled_back(w):
    w.start()
    w.work()
    w.must('commit', 'p')
    done = w.fails(4, 'rollback', 'p')
    need('final' in done.err, f'{done}')
    w.expect('new', 'refused')
    rows = {r['strategy']: r['outcome'] for r in w.json('rollback', 'p', '--allow', 'partial')['participants']}
    same(rows.pop('postgres'), 'not undoable', 'the database')
    same(list(rows.values()), ['rolled back'], 'the directory')
    same(((w.dir / 'd/f').read_text(), w.cluster.sql('select min(id) from t')), ('old\n', '2'), 'resources')
    same(w.sql('select min(id) from t'), '2', 'and it can be used again')


def dbt_03_a_refused_undo_leaves_committed(w):
    w.start()
    w.work()
    w.must('commit', 'p')
    before = w.json('show', 'p')
    w.fails(4, 'rollback', 'p')
    after = w.json('show', 'p')
    same((after['state'], after['sandboxes']), ('COMMITTED', before['sandboxes']), 'refused: all is as it was')
    same([s['state'] for s in after['sandboxes']], ['COMMITTED'] * 2, 'states')
    w.must('rollback', 'p', '--allow', 'partial')
    same((w.sandbox()['state'], w.sandbox(None)['state']), ('COMMITTED', 'ROLLED_BACK'), 'states, of both')


def dbt_02_a_conflict_elsewhere_leaves_the_transaction_open(w):
    w.start()
    w.work()
    (w.dir / 'd/f').write_text('theirs\n', encoding='utf-8')
    w.fails(3, 'commit', 'p')
    same(w.prepared(), [], 'prepared')
    same(w.cluster.sql('select min(id) from t'), '1', 'rows')
    same(w.sql('select count(*), min(id) from t'), '5|2', 'the work goes on')
    w.must('commit', 'p', '--ours', 'd/f')
    w.expect('new')


def dbt_02_what_refuses_to_be_prepared_changes_nothing(w):
    w.start()
    w.work()
    gid = f'atoll:{w.sandbox()["id"]}:1'
    w.cluster.sql(f"begin; create table other(i int); prepare transaction '{gid}'")
    done = w.fails(4, 'commit', 'p')
    need('already in use' in done.err, f'{done}')
    w.expect('old')
    same(w.prepared(), [gid], 'what others prepared is theirs')
    need('transaction is gone' in w.fails(125, 'exec', 'p', '--', 'true').err, 'the work is lost, and that is said')
    same(w.sandbox()['state'], 'ERRORED', 'state')
    w.cluster.sql(f"rollback prepared '{gid}'")
    w.must('reset', 'p')
    w.work()
    w.must('commit', 'p')
    w.expect('new')


def der_09_what_shows_only_at_commit_shows_before(w):
    w.cluster.sql('create table d(r int references t(id) deferrable initially deferred)')
    w.start()
    w.work()
    block = 'begin; insert into d values ({}); {} commit'
    done = w.fails(3, 'exec', 'p', '--', 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-f', '-', stdin=block.format(77, ''))
    need('violates foreign key' in done.err, f'{done}')
    w.sql(block.format(78, 'insert into t values (78);'))
    # Somebody takes away what it refers to, but not before the plan is decided.
    w.must('exec', 'p', '--', 'sh', '-c', 'psql -XqAtc "delete from t where id = 78" | true')
    w.must('commit', 'p')
    same((w.cluster.sql('select * from d'), w.prepared()), ('78', []), 'committed')


def dbt_05_a_plan_that_is_gone_refuses(w):
    w.start()
    w.must('stop', 'p')
    before = w.cluster.sql('select count(*) from pg_stat_activity')
    need(w.atoll('rollback', 'p').code != 0, 'rolled back what is not there')
    same(w.cluster.sql('select count(*) from pg_stat_activity'), before, 'sessions')


def dbt_02_no_room_to_prepare_is_known_before(w):
    w.start()
    w.work()
    names = [f'other{i}' for i in range(20)]
    for name in names:
        w.cluster.sql(f"begin; create table {name}(i int); prepare transaction '{name}'")
    done = w.fails(4, 'commit', 'p')
    need('max_prepared_transactions' in done.err, f'{done}')
    for name in names:
        w.cluster.sql(f"rollback prepared '{name}'")
    w.must('commit', 'p')
    w.expect('new', 'the work was kept')


def dbt_04_atm_09_without_prepare_it_counts_as_not_undoable(w):
    for url, temporary in ((w.cluster.url, 'create temp table x(i int); '), (w.final.url, '')):
        w.final.sql(TABLE)
        w.cluster.sql(TABLE)
        (w.dir / 'd/f').write_text('old\n', encoding='utf-8')
        w.start(url=url)
        w.work()
        w.sql(temporary + 'select 1')
        done = w.fails(4, 'commit', 'p')
        need('--allow partial' in done.err, f'{done}')
        same((w.dir / 'd/f').read_text(), 'old\n', 'refused')
        same(w.sql('select min(id) from t'), '2', 'the work is kept')
        result = w.json('commit', 'p', '--allow', 'partial')
        same(result['atomicity'], 'none', 'atomicity')
        same([p['strategy'] for p in result['participants']][-1], 'postgres', 'last')
        same([n['kind'] for n in result['notes'] if 'atomic' in n['text']], ['warning'], 'one warning')
        cluster = w.final if url == w.final.url else w.cluster
        same(((w.dir / 'd/f').read_text(), cluster.sql('select count(*), min(id) from t')), ('new\n', '5|2'), 'committed')
        w.must('stop', 'p')
    # By itself it may, without asking, and that is atomic.
    w.final.sql(TABLE)
    w.cwd = '/'  # no directory is in the plan
    w.must('start', 'p', '--postgres', w.final.url)
    w.sql('delete from t')
    same(w.json('commit', 'p')['atomicity'], 'full', 'alone')
    same(w.final.sql('select count(*) from t'), '0', 'alone')


def dbt_04_of_two_that_cannot_prepare_the_first_stays(w):
    w.final.sql('drop database if exists second', user='postgres', database='postgres')
    w.final.sql('create database second owner app', user='postgres', database='postgres')
    for database in ('shop', 'second'):
        w.final.sql(TABLE, database=database)
    w.must('start', 'p', '--dir', 'd', '--postgres', w.final.url, '--postgres', w.final.url.replace('/shop?', '/second?'))
    boxes = {s['root'].split('/')[3].split('?')[0]: s['id'] for s in w.json('show', 'p')['sandboxes'] if s['strategy'] == 'postgres'}
    w.work('echo new >d/f; ' + '; '.join(f'psql -Xqc "delete from t" "host=/run/atoll/{i} dbname={n}"' for n, i in boxes.items()))
    w.fails(4, 'commit', 'p')
    same(w.atoll('commit', 'p', '--allow', 'partial', ATOLL_CRASHPOINT='txn.after-decision').code, -signal.SIGKILL, 'killed')
    for pid in w.holders():
        if boxes['second'] in Path(f'/proc/{pid}/cmdline').read_text():
            os.kill(pid, signal.SIGKILL)
    w.must('recover')
    same([w.final.sql('select count(*) from t', database=n) for n in ('shop', 'second')], ['0', '5'], 'rows')
    same((w.dir / 'd/f').read_text(), 'old\n', 'what could go back did')
    states = {s['id']: s['state'] for s in w.json('show', 'p')['sandboxes']}
    same(states[boxes['shop']], 'COMMITTED', 'what could not says so')


def ord_04_what_is_final_comes_last(w):
    kinds = {'dir': ('--dir', 'd'), 'none': ('--none', 'n'), 'postgres': ('--postgres', w.cluster.url),
             'final': ('--postgres', w.final.url)}
    (w.dir / 'n').mkdir()
    for n, order in enumerate(itertools.permutations(kinds)):
        if n % 5:
            continue
        w.final.sql(TABLE)
        w.cluster.sql(TABLE)
        (w.dir / 'd/f').write_text('old\n', encoding='utf-8')
        w.must('start', 'p', *itertools.chain(*(kinds[k] for k in order)))
        hosts = [f'/run/atoll/{s["id"]}' for s in w.json('show', 'p')['sandboxes'] if s['strategy'] == 'postgres']
        w.work('echo new >d/f; ' + '; '.join(f'psql -Xqc "delete from t" "host={h}"' for h in hosts))
        rows = w.json('commit', 'p', '--allow', 'partial')['participants']
        order = ['final' if str(w.final.socket) in r['root'] else r['strategy'] for r in rows]
        same(order[1:], ['postgres', 'none', 'final'], f'order of {order}')
        w.must('stop', 'p')


# ---- all kinds together ----

def atm_01_every_kind_changes_or_none_does(w):
    all_kinds = Everything(w)
    all_kinds.work()
    same(all_kinds.states(), {'old'}, 'before')
    (w.dir / 'd/f').write_text('theirs\n', encoding='utf-8')
    w.fails(3, 'commit', 'p')
    (w.dir / 'd/f').write_text('old\n', encoding='utf-8')
    same(all_kinds.states(), {'old'}, 'a conflict in one')
    result = w.json('commit', 'p', '--ours', 'd/f')
    same(all_kinds.states(), {'new'}, 'committed')
    same((result['atomicity'], result['participants'][-1]['strategy']), ('full', 'postgres'), 'what is final comes last')


def atm_01_every_kind_survives_a_kill_together(w):
    for point, wanted in (('txn.checked', 'old'), ('txn.after-decision', 'new'), ('txn.apply.participant:3', 'new')):
        with World(w.cluster, w.top) as one:
            all_kinds = Everything(one)
            all_kinds.work()
            same(one.atoll('commit', 'p', ATOLL_CRASHPOINT=point).code, -signal.SIGKILL, point)
            one.must('recover')
            same((all_kinds.states(), one.prepared()), ({wanted}, []), point)


# ---- when something dies ----

def the_end_of_the_holder_is_said(w):
    w.start()
    w.work()
    for pid in w.holders():
        os.kill(pid, signal.SIGKILL)
    until(lambda: not w.holders(), 'the holder lives')
    need('transaction is gone' in w.atoll('diff', 'p').err, 'diff')
    need('transaction is gone' in w.fails(125, 'exec', 'p', '--', 'true').err, 'exec')
    need('transaction is gone' in w.fails(1, 'commit', 'p').err, 'commit')
    same(w.sandbox()['state'], 'ERRORED', 'state')
    w.expect('old')
    w.must('reset', 'p')
    w.work()
    w.must('commit', 'p')
    w.expect('new')


def the_end_of_the_session_is_said(w):
    w.start()
    w.work()
    w.cluster.sql("select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction'",
                  user='postgres')
    until(lambda: not w.holders(), 'the holder lives')
    done = w.fails(125, 'exec', 'p', '--', 'true')
    need('terminating connection' in done.err, f'{done}')
    w.must('stop', '--force', 'p')


def a_start_that_is_killed_leaves_nothing(w):
    done = w.atoll('start', 'p', '--postgres', w.cluster.url, ATOLL_CRASHPOINT='plan.add.after-create')
    same(done.code, -signal.SIGKILL, f'{done}')
    same(len(w.holders()), 1, 'a holder without a plan')
    w.atoll('recover')
    same(w.plans(), [], 'plans')
    until(lambda: not w.holders(), 'the holder lives on without its directory')


def points():
    found = set()
    for file in SOURCE.glob('txn/*.c'):
        found |= set(re.findall(r'crashpoint\("(txn\.[^"]+)"\)', file.read_text(encoding='utf-8')))
    return sorted(p for p in found if not re.search(r'undo|redo|keep|release', p))


def kill_and_recover(w, point, restart=False):
    """State after recovery, and whether it was killed."""
    (w.dir / 'd/f').write_text('old\n', encoding='utf-8')
    w.cluster.sql(TABLE)
    w.start()
    w.work()
    done = w.atoll('commit', 'p', ATOLL_CRASHPOINT=point)
    killed = done.code == -signal.SIGKILL
    need(killed or done.code == 0, f'{point}: {done}')
    if restart:
        w.cluster.stop('immediate')
        w.cluster.start()
    w.must('recover')
    state = w.state()
    same(w.prepared(), [], f'{point}: prepared')
    if state == 'old':
        lost = w.sandbox()['state'] == 'ERRORED' or w.atoll('exec', 'p', '--', 'true').code
        if lost:
            w.must('reset', 'p')
            w.work()
        w.must('commit', 'p')
        w.expect('new', f'{point}: and again')
    w.must('stop', 'p')
    return killed, state


def der_08_atm_01_killed_anywhere_it_is_all_or_nothing(w):
    seen = {}
    for point, n in itertools.product(points(), (1, 2)):
        if n == 2 and 'participant' not in point:
            continue
        killed, state = kill_and_recover(w, f'{point}:{n}')
        need(state in ('old', 'new'), f'{point}:{n} is {state}')
        if killed:
            seen[f'{point}:{n}'] = state
    for point, state in (('txn.prepared:1', 'old'), ('txn.checked:1', 'old'), ('txn.after-decision:1', 'new'),
                         ('txn.apply.participant:1', 'new'), ('txn.apply.participant:2', 'new'),
                         ('txn.after-committed:1', 'new')):
        same(seen.get(point), state, point)


def der_08_the_server_dies_too(w):
    for point, wanted in (('txn.after-barrier-1', 'old'), ('txn.checked', 'old'), ('txn.after-decision', 'new'),
                          ('txn.apply.participant:2', 'new')):
        same(kill_and_recover(w, point, restart=True), (True, wanted), point)


def der_08_recovery_that_is_killed_is_recovered(w):
    for first, second, wanted in (
            ('txn.checked', 'recover.announced', 'old'), ('txn.after-decision', 'recover.announced', 'new'),
            ('txn.after-decision', 'txn.apply.participant:2', 'new'), ('txn.after-decision', 'recover.applied', 'new'),
            ('txn.apply.participant:2', 'recover.done', 'new'), ('txn.checked', 'recover.done', 'old')):
        (w.dir / 'd/f').write_text('old\n', encoding='utf-8')
        w.cluster.sql(TABLE)
        w.start()
        w.work()
        same(w.atoll('commit', 'p', ATOLL_CRASHPOINT=first).code, -signal.SIGKILL, first)
        same(w.atoll('recover', ATOLL_CRASHPOINT=second).code, -signal.SIGKILL, second)
        w.must('recover')
        w.expect(wanted, f'{first}, {second}')
        same(w.prepared(), [], 'prepared')
        w.must('stop', '--force', 'p')


def der_08_a_server_that_is_away_leaves_the_plan_in_doubt(w):
    (w.dir / 'e').mkdir()
    w.start()
    w.work()
    same(w.atoll('commit', 'p', ATOLL_CRASHPOINT='txn.after-decision').code, -signal.SIGKILL, 'killed')
    w.cluster.stop('immediate')
    try:
        w.fails(7, 'recover')
        need('cannot connect' in w.fails(7, 'commit', 'p').err, 'the reason')
        w.must('start', 'q', '--dir', 'e')
        w.must('exec', 'q', '--', 'sh', '-c', 'echo q >e/q')
        w.must('commit', 'q')
        same((w.dir / 'e/q').read_text(), 'q\n', 'other plans go on')
    finally:
        w.cluster.start()
    w.must('recover')
    w.expect('new')


def der_08_what_somebody_rolled_back_takes_everybody_back(w):
    w.start()
    w.work()
    same(w.atoll('commit', 'p', ATOLL_CRASHPOINT='txn.after-decision').code, -signal.SIGKILL, 'killed')
    for gid in w.prepared():
        w.cluster.sql(f"rollback prepared '{gid}'")
    w.must('recover')
    need('rolled back by somebody else' in w.must('log', 'p').out, 'the reason')
    w.expect('old')
    w.must('reset', 'p')
    w.work()
    w.must('commit', 'p')
    w.expect('new')


def der_08_a_record_that_somebody_changed_is_not_acted_on(w):
    w.start()
    w.work()
    same(w.atoll('commit', 'p', ATOLL_CRASHPOINT='txn.after-decision').code, -signal.SIGKILL, 'killed')
    records = [path for path in Path(w.env['ATOLL_HOME']).glob('plans/*/batch') if path.is_file()]
    same(len(records), 1, 'records')
    text = records[0].read_text()
    number, gid, xid, server = text.split()
    for wrong in ('nonsense\n', f'{number} {gid} {xid} elsewhere\n', f'{number} {gid} {int(xid) + 1} {server}\n',
                  f'{int(number) + 1} {gid} {xid} {server}\n', ''):
        records[0].write_text(wrong)
        done = w.atoll('recover')
        need(done.code, f'{wrong!r}: {done}')
        w.expect('old', f'{wrong!r}')
        same(w.prepared(), [gid], f'{wrong!r}: what was prepared')
    records[0].write_text(text)
    w.must('recover')
    w.expect('new', 'with its own')
    same(w.prepared(), [], 'prepared')


def der_08_a_final_commit_that_was_cut_off_is_known(w):
    for point, wanted in (('txn.after-decision', 'new'), ('txn.apply.participant:2', 'new')):
        w.cluster.sql(TABLE)
        (w.dir / 'd/f').write_text('old\n', encoding='utf-8')
        w.start()
        w.work()
        w.sql('create temp table x(i int)')
        same(w.atoll('commit', 'p', '--allow', 'partial', ATOLL_CRASHPOINT=point).code, -signal.SIGKILL, point)
        w.must('recover')
        w.expect(wanted, point)
        w.must('stop', 'p')
    w.cluster.sql(TABLE)
    (w.dir / 'd/f').write_text('old\n', encoding='utf-8')
    w.start()
    w.work()
    w.sql('create temp table x(i int)')
    same(w.atoll('commit', 'p', '--allow', 'partial', ATOLL_CRASHPOINT='txn.after-decision').code, -signal.SIGKILL, '')
    for pid in w.holders():
        os.kill(pid, signal.SIGKILL)
    w.must('recover')
    w.expect('old', 'its transaction died with its holder')


def der_08_a_number_that_is_given_out_again_proves_nothing(w):
    """What the server had not written down when it died it gives out again. So whatever bears the number of a
    transaction that was lost, and commits, is not taken for it."""
    place = Path(tempfile.mkdtemp(dir=w.top))
    place.chmod(0o755)
    with Cluster(place, wal_writer_delay='10s', wal_writer_flush_after='1GB', full_page_writes='off', autovacuum='off') as lazy:
        for final, point in itertools.product((False, True), ('txn.after-barrier-1', 'txn.after-decision')):
            with World(lazy, w.top) as one:
                lazy.sql('create table n(i int)')
                lazy.sql('checkpoint', user='postgres')
                one.start()
                one.work()
                one.sql('create temp table x(i int)' if final else 'select 1')
                number = int(one.sql('select txid_current()'))
                same(one.atoll('commit', 'p', '--allow', 'partial', ATOLL_CRASHPOINT=point).code, -signal.SIGKILL, point)
                lazy.stop('immediate')
                lazy.start()
                while int(lazy.sql('insert into n values (1) returning txid_current()')) <= number + 5:
                    pass
                one.must('recover')
                one.expect('new' if point == 'txn.after-decision' and not final else 'old', f'{point}, {final}')
                one.must('stop', '--force', 'p')


def der_08_another_server_is_not_asked_by_number(w):
    w.start()
    w.work()
    same(w.atoll('commit', 'p', ATOLL_CRASHPOINT='txn.after-decision').code, -signal.SIGKILL, 'killed')
    roll_back = [f"rollback prepared '{gid}'" for gid in w.prepared()]
    # Somebody makes a standby the server, which never had the transaction.
    w.cluster.stop()
    w.cluster.server('touch', w.cluster.data / 'standby.signal')
    w.cluster.start()
    w.cluster.server(binary('pg_ctl'), '-D', w.cluster.data, '-w', 'promote')
    w.cluster.sql('; '.join(roll_back))
    need('cannot be told' in w.fails(7, 'recover').err, 'in doubt')
    w.fails(7, 'commit', 'p')
    same(w.cluster.sql('select min(id) from t'), '1', 'nothing was done')


def der_08_another_server_takes_nobody_back(w):
    """It was committed, and the one that could say so is gone; another resource can be committed no more."""
    e = Everything(w)
    shutil.copy(e.lite, w.dir / 'other.db')
    e.work()
    same(w.atoll('commit', 'p', ATOLL_CRASHPOINT='txn.after-apply').code, -signal.SIGKILL, 'killed')
    w.cluster.stop()
    w.cluster.server('touch', w.cluster.data / 'standby.signal')
    w.cluster.start()
    w.cluster.server(binary('pg_ctl'), '-D', w.cluster.data, '-w', 'promote')
    os.replace(w.dir / 'other.db', e.lite)
    subprocess.run(['sqlite3', e.lite, "update t set v = 'x'"], check=True)
    done = w.fails(7, 'recover')
    need('cannot be told' in done.err and 'lite.db' in done.err, f'{done}')
    same(e.states(), {'new', 'x'}, 'nobody went back')


def a_server_in_recovery_is_refused(w):
    w.final.stop()
    signal_file = w.final.data / 'standby.signal'
    w.final.server('touch', signal_file)
    w.final.start()
    done = w.fails(6, 'start', 'p', '--postgres', w.final.url)
    need('in recovery' in done.err, f'{done}')
    same((w.plans(), w.holders()), ([], []), 'nothing is left')


TESTS = [a_plan_sees_its_own_changes_and_nobody_else_does, what_the_caller_has_set_leads_nobody_past_the_plan,
         definitions_are_changes,
         a_patch_shows_the_rows_that_the_plan_changed, a_patch_says_that_rows_cannot_be_read, doctor_looks_at_servers, names_of_any_kind, what_is_not_kept_is_dropped,
         names_tell_nobody_a_secret, a_start_that_fails_says_why_and_leaves_nothing, err_04_a_server_that_does_not_let_in, a_plan_file_names_databases,
         dbt_01_what_is_final_is_not_called_rolled_back, dbt_03_a_refused_undo_leaves_committed,
         dbt_02_a_conflict_elsewhere_leaves_the_transaction_open,
         dbt_02_what_refuses_to_be_prepared_changes_nothing, der_09_what_shows_only_at_commit_shows_before,
         dbt_05_a_plan_that_is_gone_refuses, dbt_02_no_room_to_prepare_is_known_before,
         dbt_04_atm_09_without_prepare_it_counts_as_not_undoable, dbt_04_of_two_that_cannot_prepare_the_first_stays,
         ord_04_what_is_final_comes_last,
         atm_01_every_kind_changes_or_none_does, atm_01_every_kind_survives_a_kill_together, the_end_of_the_holder_is_said, the_end_of_the_session_is_said,
         a_start_that_is_killed_leaves_nothing, der_08_atm_01_killed_anywhere_it_is_all_or_nothing,
         der_08_the_server_dies_too, der_08_recovery_that_is_killed_is_recovered,
         der_08_a_server_that_is_away_leaves_the_plan_in_doubt, der_08_what_somebody_rolled_back_takes_everybody_back,
         der_08_a_record_that_somebody_changed_is_not_acted_on,
         der_08_a_final_commit_that_was_cut_off_is_known, der_08_a_number_that_is_given_out_again_proves_nothing,
         der_08_another_server_is_not_asked_by_number, der_08_another_server_takes_nobody_back, a_server_in_recovery_is_refused]


def attempt(number, test, cluster, final, top):
    problem, began = None, time.monotonic()
    try:
        with World(cluster, top) as w:
            w.final, w.top = final, top
            test(w)
    except (Broken, OSError, ValueError, KeyError, AssertionError, subprocess.SubprocessError) as broken:
        problem = f'{type(broken).__name__}: {broken}'
    print(f'{"not ok" if problem else "ok"} {number} - {test.__name__}', flush=True)
    print(f'# {time.monotonic() - began:.1f} s', flush=True)
    if problem:
        print('\n'.join('# ' + line for line in problem.splitlines()[:20]), flush=True)
    return not problem


def main():
    only = sys.argv[1:]
    tests = [t for t in TESTS if not only or t.__name__ in only]
    print(f'1..{len(tests)}', flush=True)
    top = tempfile.mkdtemp(prefix='atoll-pg-', dir='/var/tmp')
    os.chmod(top, 0o755)
    for name in ('one', 'two'):
        (Path(top) / name).mkdir(mode=0o755)
    try:
        with Cluster(Path(top) / 'one') as cluster, Cluster(Path(top) / 'two', max_prepared_transactions=0) as final:
            return 0 if all([attempt(i, t, cluster, final, top) for i, t in enumerate(tests, 1)]) else 1
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == '__main__':
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Databases whose files lie in the tree, some with a server that lives in the plan as long as the command."""

from row import Row

ROWS = [
    Row('sqlite', 'sqlite3', short=True, begin="sqlite3 old.db 'create table t(a integer primary key, b); insert into t(b) values (1), (2)'", script='''
sqlite3 old.db 'pragma journal_mode=wal; begin; update t set b = b + 1; commit; select * from t; create index i on t(b)'
for i in 1 2 3; do sqlite3 -cmd '.timeout 20000' old.db 'insert into t(b) values (9)' & done; wait; sqlite3 old.db 'select count(*) from t; vacuum; pragma integrity_check' '.backup copy.db' 'pragma journal_mode=delete'
sqlite3 new.db '.mode csv' 'create table n(x); insert into n values (1)' 'attach "copy.db" as c; select count(*) from c.t' .dump; sqlite3 old.db 'select nothing'
''', status=1),
    Row('postgres', 'postgresql', users='user', script='''
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1); $bin/initdb -D db -U me -A trust --no-sync --no-locale -E UTF8 >/dev/null
$bin/pg_ctl -D db -w -o "-c listen_addresses= -c unix_socket_directories=$PWD -c fsync=off" -l server.log start >/dev/null
p="$bin/psql -XqAt -h $PWD -U me postgres"; $p -c 'create table t as select generate_series(1, 1000) a; create index on t(a); checkpoint'; for i in 1 2 3; do $p -c 'insert into t values (7)' & done; wait
$p -c 'select count(*), sum(a) from t' -c "prepare transaction 'x'" 2>&1; $bin/pg_dump -h $PWD -U me postgres | grep -c ^7; $bin/pg_basebackup -h $PWD -U me -D backup -c fast --no-sync
$bin/pg_ctl -D db -w stop -m fast >/dev/null; $bin/pg_controldata db | grep state; $bin/pg_checksums -c -D db 2>&1 | tail -1
$bin/pg_ctl -D backup -w -o "-c listen_addresses= -c unix_socket_directories=$PWD" -l server.log start >/dev/null; $p -c 'select count(*) from t'; $bin/pg_ctl -D backup -w stop >/dev/null
rm -r server.log; find db backup -type f -delete
'''),
    Row('postgres-files', 'postgresql', users='user', begin='''
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1); $bin/initdb -D db -U me -A trust --no-sync --no-locale -E UTF8 >/dev/null
''', script='''
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1); $bin/pg_ctl -D db -w -o "-c listen_addresses= -c unix_socket_directories=$PWD" -l server.log start >/dev/null
$bin/psql -XqAt -h $PWD -U me postgres -c 'create table t as select generate_series(1, 1000) a' -c 'select sum(a) from t' -c 'alter system set work_mem = 1024' -c 'vacuum full'
$bin/pg_ctl -D db -w stop -m fast >/dev/null; $bin/pg_controldata db | grep state; cat db/postgresql.auto.conf; rm server.log
''', varying='db/global/* db/pg_wal/* db/base/*/* db/pg_xact/* db/pg_stat/* db/pg_logical/* db/pg_multixact/* db/pg_subtrans/* db/postmaster.opts'),
    Row('redis', 'redis-server redis-tools', script='''
redis-server --port 0 --unixsocket $PWD/socket --dir . --appendonly yes --save "" --daemonize yes --logfile log --pidfile $PWD/pid >/dev/null; c="redis-cli -s socket"
until $c ping 2>/dev/null | grep -q PONG; do sleep 0.05; done; for i in 1 2 3; do $c set k$i v$i; done; $c incrby n 5; $c lpush l a b c; $c bgrewriteaof
until $c info persistence | grep -q aof_rewrite_in_progress:0; do sleep 0.05; done; $c save; $c shutdown 2>/dev/null || true; while [ -e pid ]; do sleep 0.05; done
redis-check-rdb dump.rdb | grep -c OK; ls appendonlydir; rm log
''', varying='dump.rdb appendonlydir/*'),
    Row('mariadb', 'mariadb-server', users='user', script='''
mariadb-install-db --no-defaults --datadir=$PWD/db --auth-root-authentication-method=normal --skip-test-db >/dev/null 2>&1
mariadbd --no-defaults --datadir=$PWD/db --skip-networking --socket=$PWD/s --pid-file=$PWD/pid --log-error=$PWD/log 2>/dev/null & c="mariadb --no-defaults -u root -S $PWD/s -N"
until $c -e 'select 1' >/dev/null 2>&1; do sleep 0.1; done; $c -e 'create database d; create table d.t (a int primary key, b text) engine=innodb; insert into d.t values (1, "x"), (2, "y"); start transaction; update d.t set b = "z"; rollback; select * from d.t'
mariadb-dump --no-defaults -u root -S $PWD/s --skip-dump-date d | grep INSERT; $c -e shutdown; wait; ls db/d; find . -type f -delete
'''),
    Row('lmdb', 'lmdb-utils', begin='mkdir db; printf "VERSION=3\\nformat=print\\ntype=btree\\nmapsize=1048576\\nHEADER=END\\n a\\n 1\\n b\\n 2\\nDATA=END\\n" >dump; mdb_load -f dump db', script='''
printf 'VERSION=3\\nformat=print\\ntype=btree\\nHEADER=END\\n c\\n 3\\nDATA=END\\n' | mdb_load db; mdb_dump -p db; mdb_stat -e db | grep -i entries; mdb_copy -c db >copy; mkdir other; mdb_copy db other; cmp copy other/data.mdb || true
''', varying='*/data.mdb copy */lock.mdb'),
    Row('gdbm', 'gdbmtool', begin='echo "store a 1" | gdbmtool -q db', script='''
printf 'store b 2\\nstore c 3\\ndelete a\\nlist\\ncount\\n' | gdbmtool db; gdbm_dump db dump; gdbm_load -r dump copy; printf 'count\\nfetch b\\n' | gdbmtool -r copy; rm dump
''', varying='db copy'),
    Row('tdb', 'tdb-tools', begin='printf "create db\\ninsert a 1\\n" | tdbtool >/dev/null', script='''
printf 'open db\\ninsert b 2\\nstore a 3\\nkeys\\ncheck\\n' | tdbtool; tdbbackup db; tdbdump -k b db.bak; tdbbackup -v db
'''),
]

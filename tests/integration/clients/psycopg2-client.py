# SPDX-License-Identifier: Apache-2.0
"""What a program does with psycopg 2. It prints all it sees."""

import io

import psycopg2
import psycopg2.extensions
import psycopg2.extras


def show(*words):
    print(*words, flush=True)


def rows(cursor, text, *parameters):
    cursor.execute(text, parameters or None)
    show(cursor.statusmessage, cursor.fetchall() if cursor.description else '')


def refused(connection, text, *parameters):
    try:
        with connection.cursor() as cursor:
            rows(cursor, text, *parameters)
    except psycopg2.Error as error:
        show('refused', error.pgcode, error.diag.message_primary)


def blocks(connection):
    with connection, connection.cursor() as cursor:
        rows(cursor, 'insert into t values (%s, %s)', 10, 'ten')
    try:
        with connection, connection.cursor() as cursor:
            rows(cursor, 'delete from t')
            raise KeyError
    except KeyError:
        pass
    with connection.cursor() as cursor:
        rows(cursor, 'select * from t order by id')
    refused(connection, 'select 1/0')
    refused(connection, 'select 1')
    show(connection.status, connection.get_transaction_status())
    connection.rollback()
    show(connection.get_transaction_status())


def savepoints(connection):
    with connection.cursor() as cursor:
        for depth in range(5):
            rows(cursor, f'savepoint s{depth}')
            rows(cursor, 'insert into t values (%s, %s)', 20 + depth, depth)
        rows(cursor, 'rollback to savepoint s3')
        rows(cursor, 'release savepoint s1')
    refused(connection, 'rollback to s2')
    with connection.cursor() as cursor:
        rows(cursor, 'rollback to s0')
        rows(cursor, 'insert into t values (20, %s)', 'again')
    connection.commit()


def autocommit(connection):
    connection.autocommit = True
    with connection.cursor() as cursor:
        rows(cursor, 'insert into t values (30, null)')
        rows(cursor, "insert into t values (31, 'a'); insert into t values (32, 'b'); select count(*) from t")
    refused(connection, "insert into t values (33, 'c'); select 1/0")
    refused(connection, "insert into t values (10, 'twice')")
    with connection.cursor() as cursor:
        rows(cursor, 'select id from t where id >= 30 order by id')
        rows(cursor, 'begin')
        rows(cursor, 'delete from t where id = 30')
        rows(cursor, 'rollback')
    connection.autocommit = False


def cursors(connection):
    with connection.cursor('named', scrollable=True) as cursor:
        cursor.itersize = 2
        cursor.execute('select * from t order by id')
        show([row[0] for row in cursor])
        cursor.scroll(0, mode='absolute')
        show(cursor.fetchmany(3))
    connection.commit()
    with connection.cursor() as cursor:
        rows(cursor, 'declare gone cursor for select generate_series(1, 10)')
        rows(cursor, 'fetch 2 from gone')
    connection.commit()
    refused(connection, 'fetch 2 from gone')
    connection.rollback()


def copies(connection):
    with connection.cursor() as cursor:
        cursor.copy_expert('copy t from stdin', io.StringIO('40\tcopied\n41\t\\N\n'))
        show(cursor.rowcount)
        out = io.StringIO()
        cursor.copy_expert('copy (select * from t order by id) to stdout csv', out)
        show(out.getvalue())
        try:
            cursor.copy_from(io.StringIO('x\ty\n'), 't')
        except psycopg2.Error as error:
            show('refused', error.pgcode, error.diag.context)
    connection.rollback()


def many(connection):
    with connection, connection.cursor() as cursor:
        cursor.executemany('insert into t values (%s, %s)', [(i, str(i)) for i in range(50, 60)])
        psycopg2.extras.execute_values(cursor, 'insert into t values %s', [(i, 'v') for i in range(60, 70)])
        psycopg2.extras.execute_batch(cursor, 'update t set v = %s where id = %s', [('b', i) for i in range(60, 65)])
        rows(cursor, 'select count(*), max(v) from t where id >= 50')
        rows(cursor, 'prepare q(int) as select v from t where id = $1')
        rows(cursor, 'execute q(60)')
    with connection, connection.cursor() as cursor:
        rows(cursor, 'execute q(61)')
        rows(cursor, 'deallocate q')


def sessions(connection):
    connection.set_session(readonly=True)
    refused(connection, 'delete from t')
    connection.rollback()
    connection.set_session(readonly=False, autocommit=False)
    with connection.cursor() as cursor:
        rows(cursor, "set local work_mem = '7MB'")
        rows(cursor, 'show work_mem')
        connection.rollback()
        rows(cursor, 'show work_mem')
        rows(cursor, "set search_path = pg_catalog, public")
        rows(cursor, 'show search_path')
    connection.commit()
    connection.reset()
    with connection.cursor() as cursor:
        rows(cursor, 'show search_path')
    connection.commit()
    show(connection.encoding, connection.server_version // 10000)


def main():
    connection = psycopg2.connect('', application_name='client')
    for step in (blocks, savepoints, autocommit, cursors, copies, many, sessions):
        show('==', step.__name__)
        step(connection)
    connection.close()


main()

# SPDX-License-Identifier: Apache-2.0
"""What a program does with psycopg 3, libpq's pipeline mode included. It prints all it sees."""

import psycopg


def show(*words):
    print(*words, flush=True)


def rows(connection, text, *parameters, **more):
    cursor = connection.execute(text, parameters or None, **more)
    show(cursor.statusmessage, cursor.fetchall() if cursor.description else '')


class Refused:
    """A block that is expected to fail."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        show('refused', getattr(error, 'sqlstate', kind and kind.__name__), str(error).split('\n', maxsplit=1)[0])
        return isinstance(error, psycopg.Error)


def nested(connection):
    with connection.transaction():
        rows(connection, 'insert into t values (10, %s)', 'outer')
        for depth in range(3):
            with Refused(), connection.transaction(f'inner{depth}'):
                rows(connection, 'insert into t values (%s, %s)', 11 + depth, 'inner')
                if depth == 1:
                    rows(connection, 'select 1/0')
        with connection.transaction() as inner:
            rows(connection, 'delete from t')
            raise psycopg.Rollback(inner)
    rows(connection, 'select * from t order by id')
    with Refused(), connection.transaction():
        rows(connection, 'insert into t values (10, %s)', 'twice')
    show(connection.info.transaction_status.name)
    with connection.transaction(force_rollback=True):
        rows(connection, 'truncate t')


def prepared(connection):
    connection.prepare_threshold = 0
    for number in (1, 2, 10):
        rows(connection, 'select v from t where id = %s', number)
    with Refused():
        rows(connection, 'select v from t where id = %s and nothing', 1)
    connection.rollback()
    rows(connection, 'select v from t where id = %s', 1)
    with connection.transaction():
        rows(connection, 'alter table t add column extra int default 5')
        with Refused():
            rows(connection, 'select * from t where id = %s', 1, prepare=True)
    rows(connection, 'select * from t where id = %s', 1)
    rows(connection, "select statement from pg_prepared_statements where statement like 'select v from t where id = $1'")
    rows(connection, 'deallocate all')
    connection.prepare_threshold = 5


def pipelines(connection):
    with connection.pipeline() as pipeline, connection.cursor() as cursor:
        cursor.execute('insert into t values (20, %s)', ['piped'])
        show(connection.execute('select count(*) from t').fetchall())
        with connection.transaction():
            cursor.execute('insert into t values (21, %s)', ['piped'])
            with Refused(), connection.transaction():
                cursor.execute('insert into t values (21, %s)', ['twice'])
                pipeline.sync()
            cursor.execute('insert into t values (22, %s)', ['piped'])
    connection.commit()
    with Refused(), connection.pipeline() as pipeline:
        connection.execute('insert into t values (23, %s)', ['lost'])
        connection.execute('select 1/0')
        connection.execute('insert into t values (24, %s)', ['lost'])
        pipeline.sync()
    connection.rollback()
    rows(connection, 'select id from t where id >= 20 order by id')
    with connection.cursor() as cursor:
        cursor.executemany('insert into t values (%s, %s) returning id', [(i, 'm') for i in range(30, 36)], returning=True)
        show([cursor.fetchone(), cursor.nextset() and cursor.fetchone()])
    connection.commit()


def cursors(connection):
    with connection.transaction(), connection.cursor('named', scrollable=True) as cursor:
        cursor.execute('select id from t order by id')
        show(cursor.fetchmany(2), cursor.fetchone())
        cursor.scroll(-2)
        show(cursor.fetchmany(2))
    with connection.cursor('held', withhold=True) as cursor:
        cursor.execute('select id from t order by id')
        connection.commit()
        show(cursor.fetchall())
    connection.commit()
    for row in connection.cursor(binary=True).stream('select id, v from t order by id limit %s', [3]):
        show(row)
    connection.commit()


def copies(connection):
    with connection.transaction(), connection.cursor() as cursor:
        with cursor.copy('copy t (id, v) from stdin') as copy:
            for number in range(40, 44):
                copy.write_row((number, None if number == 41 else 'copied'))
        show(cursor.rowcount)
        with cursor.copy('copy (select id, v from t where id >= 40 order by id) to stdout (format binary)') as copy:
            copy.set_types(['int4', 'text'])
            show(list(copy.rows()))
    with Refused(), connection.cursor().copy('copy t from stdin') as copy:
        copy.write('junk\n')
    connection.rollback()
    with Refused(), connection.cursor().copy('copy t (id) from stdin') as copy:
        copy.write_row((50,))
        raise psycopg.OperationalError('the client thinks better of it')
    connection.rollback()
    rows(connection, 'select count(*) from t')
    connection.commit()


def autocommit(connection):
    connection.autocommit = True
    rows(connection, 'insert into t values (60)')
    with Refused():
        rows(connection, "insert into t values (61); select 1/0")
    with connection.transaction():
        rows(connection, 'insert into t values (62)')
    rows(connection, 'select id from t where id >= 60 order by id')
    connection.autocommit = False
    connection.read_only = True
    with Refused():
        rows(connection, 'delete from t')
    connection.rollback()
    connection.read_only = None


def main():
    with psycopg.connect('', application_name='client') as connection:
        for step in (nested, prepared, pipelines, cursors, copies, autocommit):
            show('==', step.__name__)
            step(connection)


main()

# SPDX-License-Identifier: Apache-2.0
"""What a program does with asyncpg, which speaks the protocol without libpq. It prints all it sees."""

import asyncio
import io

import asyncpg


def show(*words):
    print(*words, flush=True)


class Refused:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        show('refused', getattr(error, 'sqlstate', kind and kind.__name__), str(error).split('\n', maxsplit=1)[0])
        return isinstance(error, (asyncpg.PostgresError, asyncpg.InterfaceError))


async def rows(connection, text, *parameters):
    show([tuple(row) for row in await connection.fetch(text, *parameters)])


async def nested(connection):
    async with connection.transaction():
        await connection.execute('insert into t values ($1, $2)', 10, 'outer')
        for depth in range(3):
            with Refused():
                async with connection.transaction():
                    show(await connection.execute('insert into t values ($1, $2)', 11 + depth, 'inner'))
                    if depth == 1:
                        await connection.fetch('select 1/0')
        inner = connection.transaction()
        await inner.start()
        show(await connection.execute('delete from t'))
        await inner.rollback()
    await rows(connection, 'select * from t order by id')
    with Refused():
        async with connection.transaction(readonly=True):
            await connection.execute('delete from t')
    show(connection.is_in_transaction())


async def prepared(connection):
    statement = await connection.prepare('select v from t where id = $1')
    show(statement.get_parameters(), [a.name for a in statement.get_attributes()])
    for number in (1, 2, 10):
        show(await statement.fetchval(number))
    with Refused():
        await connection.prepare('select nothing from t')
    with Refused():
        await statement.fetchval('no number')
    async with connection.transaction():
        show(await statement.fetchval(1))
        await connection.execute('savepoint a; delete from t; rollback to a')
        show(await statement.fetchval(1))
    show(await connection.fetchval('select $1::int[]', [1, 2, 3]))
    await connection.executemany('insert into t values ($1, $2)', [(i, str(i)) for i in range(20, 30)])
    with Refused():
        await connection.executemany('insert into t values ($1, $2)', [(i, str(i)) for i in range(35, 18, -1)])
    await rows(connection, 'select count(*) from t')


async def cursors(connection):
    async with connection.transaction():
        show([row['id'] async for row in connection.cursor('select id from t order by id', prefetch=3)])
        cursor = await connection.cursor('select id from t order by id')
        show([row['id'] for row in await cursor.fetch(2)], await cursor.forward(2), (await cursor.fetchrow())['id'])
    with Refused():
        await connection.cursor('select 1')


async def copies(connection):
    show(await connection.copy_records_to_table('t', records=[(40, 'copied'), (41, None)]))
    out = io.BytesIO()
    show(await connection.copy_from_query('select * from t where id > $1 order by id', 38, output=out), out.getvalue())
    with Refused():
        await connection.copy_to_table('t', source=io.BytesIO(b'junk\n'))
    with Refused():
        await connection.copy_records_to_table('t', records=[(50, 'x'), (40, 'twice')])
    await rows(connection, 'select count(*) from t')


async def settings(connection):
    await connection.execute("set work_mem = '7MB'")
    await rows(connection, 'show work_mem')
    show(connection.get_settings().TimeZone != '', connection.get_settings().application_name)
    await connection.reset()
    await rows(connection, 'show work_mem')
    with Refused():
        await connection.execute('begin; select 1/0')
    show(connection.is_in_transaction())
    await connection.execute('rollback')


async def pools(_):
    async with asyncpg.create_pool(min_size=2, max_size=2) as pool:
        async with pool.acquire() as a, pool.acquire() as b:
            show(await a.fetchval('select count(*) from t'), await b.fetchval('select count(*) from t'))
            async with a.transaction():
                await a.execute('insert into t values (60)')
            show(await b.fetchval('select count(*) from t'))
        show(await asyncio.gather(*(pool.fetchval('select $1::int + 1', i) for i in range(8))))


async def main():
    connection = await asyncpg.connect(server_settings={'application_name': 'client'})
    for step in (nested, prepared, cursors, copies, settings, pools):
        show('==', step.__name__)
        await step(connection)
    await connection.close()


asyncio.run(main())

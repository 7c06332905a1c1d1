// SPDX-License-Identifier: Apache-2.0
// What a program does with node-postgres, by DATABASE_URL and with a pool. It prints all it sees.
'use strict';

const { Client, Pool } = require('pg');
const Cursor = require('pg-cursor');

const show = (...words) => console.log(...words.map((w) => JSON.stringify(w)));

async function rows(client, query, values) {
	const said = await client.query(query, values);
	for (const one of [].concat(said))
		show(one.command, one.rowCount, one.rows);
}

async function refused(work) {
	try {
		await work();
		show('not refused');
	} catch (error) {
		show('refused', error.code, error.message);
	}
}

async function blocks(client) {
	await rows(client, 'BEGIN');
	await rows(client, 'insert into t values ($1, $2)', [10, 'ten']);
	for (const depth of [0, 1, 2]) {
		await rows(client, `SAVEPOINT s${depth}`);
		await rows(client, 'insert into t values ($1, $2)', [11 + depth, 'deep']);
	}
	await refused(() => rows(client, 'insert into t values (10, $1)', ['twice']));
	await refused(() => rows(client, 'select 1'));
	await rows(client, 'ROLLBACK TO s1');
	await rows(client, 'RELEASE s0');
	await rows(client, 'COMMIT');
	await rows(client, 'select * from t order by id');
	await rows(client, 'begin; delete from t; rollback; select count(*) from t');
	await refused(() => rows(client, 'insert into t values (19); select 1/0'));
	await refused(() => rows(client, 'COMMIT; selec'));
	await rows(client, 'select count(*) from t');
}

/* With parameters, so that they go by the extended protocol, and by name, so that they are kept. */
async function extended(client) {
	const named = (text, values = []) => ({ name: text, text, values });

	for (const round of [1, 2]) {
		await rows(client, named('begin'));
		await rows(client, named('savepoint a'));
		await rows(client, named('insert into t values ($1, $2)', [20 + round, 'named']));
		await rows(client, named('savepoint b'));
		await refused(() => rows(client, named('select 1/$1::int', [0])));
		await rows(client, named('rollback to b'));
		await rows(client, named('release a'));
		await rows(client, named(round === 1 ? 'commit' : 'rollback'));
	}
	await rows(client, named('select id from t where id > $1 order by id', [19]));
	await refused(() => rows(client, named('savepoint a')));
	await refused(() => rows(client, { name: 'begin', text: 'select 1' }));
}

async function cursors(client) {
	await rows(client, 'begin');
	const cursor = client.query(new Cursor('select generate_series(1, $1::int) as n', [5]));
	show(await cursor.read(2), await cursor.read(2));
	await cursor.close();
	await rows(client, 'select 1 as one');
	await rows(client, 'commit');
}

async function pools() {
	const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 3 });
	const all = await Promise.all([1, 2, 3, 4, 5, 6].map((n) => pool.query('select $1::int * 2 as n', [n])));
	show(all.map((said) => said.rows[0].n));
	const client = await pool.connect();
	await rows(client, 'begin');
	await rows(client, 'insert into t values (30)');
	await rows(client, 'commit');
	client.release();
	await rows(pool, 'select count(*) from t');
	await pool.end();
}

async function main() {
	const client = new Client({ connectionString: process.env.DATABASE_URL });
	await client.connect();
	for (const step of [blocks, extended, cursors, pools]) {
		show('==', step.name);
		await step(client);
	}
	await client.end();
}

main().catch((error) => {
	console.log(error);
	process.exit(1);
});

/* SPDX-License-Identifier: Apache-2.0 */
/* Where statements end, and what they are, as far as the holder must know. */
#include "postgres/sql.h"

#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static void statements_end_where_the_server_says(void **state)
{
	static const struct {
		const char *text;
		const char *want; /* statements, joined by '|' */
	} rows[] = {
		{ "", "" },
		{ " ; ;; -- x\n ; /* ; */", "" },
		{ "select 1", "select 1" },
		{ "select 1; select 2 ;", "select 1|select 2" },
		{ "select ';' ; x", "select ';'|x" },
		{ "select 'it''s;' ; x", "select 'it''s;'|x" },
		{ "select 'a\\'; x", "select 'a\\'|x" },
		{ "select E'a\\';' ; x", "select E'a\\';'|x" },
		{ "select E'a'\n'b\\';' ; x", "select E'a'\n'b\\';'|x" },
		{ "select \"a;\"\"b\" ; x", "select \"a;\"\"b\"|x" },
		{ "select U&\"a;\" ; x", "select U&\"a;\"|x" },
		{ "select $$;$$ ; x", "select $$;$$|x" },
		{ "select $a$;$$;$a$ ; x", "select $a$;$$;$a$|x" },
		{ "select a$b$; x$b$", "select a$b$|x$b$" },
		{ "select $1; x", "select $1|x" },
		{ "select $$ never ends; x", "select $$ never ends; x" },
		{ "select 'never ends; x", "select 'never ends; x" },
		{ "select 1 /* ; /* ; */ ; */ ; x", "select 1|x" },
		{ "select 1 -- ; no\n; x", "select 1|x" },
		{ "select 5--;\n; x", "select 5|x" },
		{ "create rule r as on insert to t do (a; b); x",
		  "create rule r as on insert to t do (a; b)|x" },
		{ "create function f() returns int begin atomic select 1; select case when true then "
		  "1 end; end; x",
		  "create function f() returns int begin atomic select 1; select case when true then 1 "
		  "end; end|x" },
		{ "create or replace procedure p() begin atomic select 1; end; commit",
		  "create or replace procedure p() begin atomic select 1; end|commit" },
		{ "create function begin() returns int language sql as 'select 1'; commit",
		  "create function begin() returns int language sql as 'select 1'|commit" },
		{ "create function f(begin int) returns int begin atomic select 1; end; commit",
		  "create function f(begin int) returns int begin atomic select 1; end|commit" },
		{ "create table begin_(a int); begin; x", "create table begin_(a int)|begin|x" },
		{ "select 1e5; x", "select 1e5|x" },
		{ "select n'a;' ; x", "select n'a;'|x" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cleanup_sql struct sql sql = SQL_INIT;
		cleanup_strbuf struct strbuf got = STRBUF_INIT;
		/* A copy of its exact size, so that a look too far is seen. */
		size_t len = strlen(rows[i].text);
		cleanup_free char *text = malloc(len + 1);

		assert_non_null(text);
		(void)memcpy(text, rows[i].text, len);
		assert_int_equal(sql_split(&sql, text, len, false), 0);
		for (size_t k = 0; k < sql.n; k++) {
			if (k)
				strbuf_putc(&got, '|');
			strbuf_add(&got, text + sql.v[k].start, sql.v[k].end - sql.v[k].start);
		}
		assert_string_equal(strbuf_str(&got), rows[i].want);
	}
}

static void backslashes_count_when_told_so(void **state)
{
	static const char text[] = "select 'a\\'; x'; y";
	cleanup_sql struct sql sql = SQL_INIT;

	(void)state;
	assert_int_equal(sql_split(&sql, text, strlen(text), true), 0);
	assert_int_equal(sql.n, 2);
	assert_int_equal(sql.v[1].start, strlen(text) - 1);
}

static void kinds_are_told_by_their_words(void **state)
{
	static const struct {
		const char *text;
		enum sql_kind kind;
		unsigned flags;
	} rows[] = {
		{ "BEGIN", SQL_BEGIN, 0 },
		{ "begin isolation level serializable read only", SQL_BEGIN,
		  SQL_READ_ONLY | SQL_SERIALIZABLE },
		{ "begin transaction isolation level read committed, read write, not deferrable",
		  SQL_BEGIN, SQL_READ_WRITE },
		{ "begin work work", SQL_ODD, 0 },
		{ "begin 5", SQL_ODD, 0 },
		{ "start transaction read", SQL_ODD, SQL_START },
		{ "commit for ever", SQL_ODD, 0 },
		{ "commit 'x'", SQL_ODD, 0 },
		{ "rollback and", SQL_ODD, 0 },
		{ "savepoint", SQL_ODD, 0 },
		{ "rollback to", SQL_ODD, 0 },
		{ "release u&\"_atoll\"", SQL_ODD, 0 },
		{ "(commit)", SQL_PLAIN, SQL_QUERY | SQL_PREPARABLE },
		{ "/* x */ StArT -- y\n transaction", SQL_BEGIN, SQL_START },
		{ "start", SQL_PLAIN, 0 },
		{ "COMMIT", SQL_COMMIT, 0 },
		{ "commit work and chain", SQL_COMMIT, SQL_CHAIN },
		{ "commit and no chain", SQL_COMMIT, 0 },
		{ "end transaction", SQL_COMMIT, 0 },
		{ "abort", SQL_ROLLBACK, 0 },
		{ "rollback", SQL_ROLLBACK, 0 },
		{ "rollback work to savepoint a", SQL_SAVEPOINT, 0 },
		{ "rollback to a", SQL_SAVEPOINT, 0 },
		{ "rollback prepared 'x'", SQL_TWO_PHASE, 0 },
		{ "commit prepared 'x'", SQL_TWO_PHASE, 0 },
		{ "prepare transaction 'x'", SQL_TWO_PHASE, 0 },
		{ "prepare transaction_ as select 1", SQL_PLAIN, SQL_PREPARES },
		{ "savepoint a", SQL_SAVEPOINT, 0 },
		{ "release a", SQL_SAVEPOINT, 0 },
		{ "release _atoll_unit", SQL_SAVEPOINT, SQL_RESERVED },
		{ "release \"_atoll_unit\"", SQL_SAVEPOINT, SQL_RESERVED },
		{ "set transaction read only", SQL_SET_TRANSACTION, SQL_SETS | SQL_READ_ONLY },
		{ "set session characteristics as transaction isolation level serializable",
		  SQL_PLAIN, SQL_SETS | SQL_SERIALIZABLE },
		{ "set transaction snapshot 'x'", SQL_SNAPSHOT, SQL_SETS },
		{ "set transaction read only, read only", SQL_SET_TRANSACTION,
		  SQL_SETS | SQL_READ_ONLY },
		{ "set transaction", SQL_SET_TRANSACTION, SQL_SETS },
		{ "set constraints all immediate", SQL_SET_CONSTRAINTS, SQL_SETS },
		{ "set constraints a deferred", SQL_SET_CONSTRAINTS, SQL_SETS },
		{ "set local a.b = 1", SQL_SET_LOCAL, SQL_SETS },
		{ "set x = 1", SQL_PLAIN, SQL_SETS },
		{ "reset x", SQL_RESET, SQL_SETS },
		{ "select set_config('a', 'b', false)", SQL_PLAIN,
		  SQL_CONFIG | SQL_SETS | SQL_QUERY | SQL_PREPARABLE },
		{ "select 'set_config'", SQL_PLAIN, SQL_QUERY | SQL_PREPARABLE },
		{ "discard all", SQL_DISCARD_ALL, SQL_SETS },
		{ "discard plans", SQL_PLAIN, SQL_SETS },
		{ "deallocate all", SQL_DEALLOCATE, SQL_ALL },
		{ "deallocate prepare x", SQL_DEALLOCATE, 0 },
		{ "deallocate", SQL_ODD, 0 },
		{ "listen x", SQL_LISTEN, 0 },
		{ "unlisten *", SQL_UNLISTEN, 0 },
		{ "notify x", SQL_PLAIN, SQL_NOTIFIES },
		{ "select pg_notify('a', 'b')", SQL_PLAIN,
		  SQL_NOTIFIES | SQL_QUERY | SQL_PREPARABLE },
		{ "select pg_export_snapshot()", SQL_SNAPSHOT, SQL_QUERY | SQL_PREPARABLE },
		{ "lock t", SQL_LOCK, 0 },
		{ "vacuum", SQL_VACUUM, 0 },
		{ "vacuum verbose analyze t", SQL_VACUUM, SQL_VERBOSE },
		{ "vacuum (full) t", SQL_PLAIN, 0 },
		{ "vacuum full t", SQL_PLAIN, 0 },
		{ "copy t from stdin", SQL_PLAIN, SQL_COPY },
		{ "declare c cursor for select 1", SQL_DECLARE, SQL_CURSOR | SQL_EARLY },
		{ "declare c scroll cursor with hold for select 1", SQL_PLAIN,
		  SQL_CURSOR | SQL_HOLD | SQL_EARLY },
		{ "create table t()", SQL_PLAIN, SQL_DEFINES },
		{ "create table t as select 1", SQL_PLAIN, SQL_DEFINES | SQL_EARLY },
		{ "explain analyze verbose execute q", SQL_PLAIN, SQL_EARLY | SQL_EXPLAINS },
		{ "explain (costs off) execute q(1)", SQL_PLAIN, SQL_EARLY | SQL_EXPLAINS },
		{ "explain select execute from q", SQL_PLAIN, SQL_EARLY },
		{ "create temp table t(a, b) as execute q", SQL_PLAIN,
		  SQL_DEFINES | SQL_EARLY | SQL_EXPLAINS },
		{ "explain create table t as execute q", SQL_PLAIN, SQL_EARLY | SQL_EXPLAINS },
		{ "create table t as select 1 as execute, q", SQL_PLAIN, SQL_DEFINES | SQL_EARLY },
		{ "set Transaction_Timeout = 1", SQL_PLAIN, SQL_SETS | SQL_ENDS_IDLE },
		{ "do $$ set idle_in_transaction_session_timeout = 1 $$", SQL_PLAIN,
		  SQL_DEFINES | SQL_ENDS_IDLE },
		{ "\"begin\"", SQL_PLAIN, 0 },
		{ "insert into t values ('commit')", SQL_PLAIN, SQL_PREPARABLE },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cleanup_sql struct sql sql = SQL_INIT;

		assert_int_equal(sql_split(&sql, rows[i].text, strlen(rows[i].text), false), 0);
		assert_int_equal(sql.n, 1);
		if (sql.v[0].kind != rows[i].kind || sql.v[0].flags != rows[i].flags)
			fail_msg("%s: kind %d flags %x", rows[i].text, (int)sql.v[0].kind,
			         sql.v[0].flags);
	}
}

static void what_may_be_several_commands_has_a_semicolon(void **state)
{
	(void)state;
	assert_false(sql_may_be_several("", 0));
	assert_false(sql_may_be_several("select 1", 8));
	assert_false(sql_may_be_several("select 1 ;\n; ", 13));
	assert_true(sql_may_be_several("select ';'", 10));
	assert_true(sql_may_be_several("a;b", 3));
	assert_true(sql_may_be_several("; b", 3));
}

static void names_are_folded_as_the_server_does(void **state)
{
	static const struct {
		const char *text;
		const char *want;
	} rows[] = {
		{ "deallocate Foo", "foo" },
		{ "deallocate prepare \"Foo\"\"x\"", "Foo\"x" },
		{ "prepare Q as select 1", "q" },
		{ "execute q(1)", "q" },
		{ "explain (analyze, buffers) execute Q", "q" },
		{ "create table t(a) on commit drop as execute \"Q x\"(1)", "Q x" },
		{ "set local Work_Mem = 1", "work_mem" },
		{ "set local my.Thing = 1", "my.thing" },
		{ "set local time zone 'UTC'", "zone" },
		{ "reset all", "all" },
		{ "reset my.Thing", "my.thing" },
		{ "vacuum (verbose, analyze) t(a), u", " t(a), u" },
		{ "vacuum verbose analyze t", "t" },
		{ "vacuum", "" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cleanup_sql struct sql sql = SQL_INIT;
		cleanup_free char *name = NULL;

		assert_int_equal(sql_split(&sql, rows[i].text, strlen(rows[i].text), false), 0);
		name = sql_name(rows[i].text + sql.v[0].name_start,
		                sql.v[0].name_end - sql.v[0].name_start);
		assert_string_equal(name, rows[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(statements_end_where_the_server_says),
		cmocka_unit_test(backslashes_count_when_told_so),
		cmocka_unit_test(kinds_are_told_by_their_words),
		cmocka_unit_test(what_may_be_several_commands_has_a_semicolon),
		cmocka_unit_test(names_are_folded_as_the_server_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements that mean something else inside one transaction than the client believes. Some are
 * answered here and never reach the server; some do only outside of a block, where they would be
 * errors; some reach it, and leave something for the end of the unit.
 */
#include "postgres/client.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void verb_note(struct client *c, const struct verb *v)
{
	unsigned flags = v->flags;
	bool sets = flags & (SQL_SETS | SQL_EXECUTES | SQL_DEFINES);

	c->settings_old |= sets;
	c->sets |= sets;
	if (flags & SQL_SETS && v->name)
		settings_note_custom(c, v->name);
	c->h->held |= (flags & SQL_HOLD) != 0;
	c->h->deferrable |= (flags & SQL_DEFINES) != 0;
	c->h->notified |= (flags & SQL_NOTIFIES) != 0;
	if (flags & SQL_SERIALIZABLE)
		client_warn(c, "01000",
		            "a plan is one transaction at REPEATABLE READ: SERIALIZABLE holds "
		            "among the plan's own clients, not against others");
}

/* As a session has them by its start-up options (backend.c). The second is known from version 17 on. */
static const char *const limits[] = { "idle_in_transaction_session_timeout",
	                              "transaction_timeout" };
static const char *const no_limits[] = { "SET idle_in_transaction_session_timeout = 0",
	                                 "SET transaction_timeout = 0" };

size_t verb_stay(const struct client *c, unsigned flags, const char *const **ret_sql)
{
	*ret_sql = no_limits;
	/* Data follow a COPY, and it sets nothing. */
	if (!(flags & SQL_ENDS_IDLE) || flags & SQL_COPY)
		return 0;
	return backend_version(c->h->b) >= 170000 ? 2 : 1;
}

bool verb_is_limit(const char *setting)
{
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (strcasecmp(setting, limits[i]) == 0)
			return true;
	return false;
}

struct verb verb_read(const char *text, const struct sql_statement *s)
{
	struct verb v = { .kind = s->kind, .flags = s->flags };

	if (s->flags & SQL_CONFIG)
		v.text = xstrndup(text + s->start, s->end - s->start);
	if (s->flags & (SQL_MENTIONS | SQL_CURSOR | SQL_SETS))
		v.name = sql_name(text + s->name_start, s->name_end - s->name_start);
	if (s->kind == SQL_PLAIN)
		return v;
	free(v.name);
	free(v.text);
	v.text = xstrndup(text + s->start, s->end - s->start);
	v.name = s->kind == SQL_VACUUM
	                 ? xstrndup(text + s->name_start, s->name_end - s->name_start)
	                 : sql_name(text + s->name_start, s->name_end - s->name_start);
	return v;
}

/* ---- answers ---- */

static void fail_outside(struct client *c, const char *what)
{
	cleanup_free char *text = xasprintf("%s can only be used in transaction blocks", what);

	unit_fail(c, "25P01", text);
}

bool verb_is_exit(enum sql_kind kind)
{
	return kind == SQL_COMMIT || kind == SQL_ROLLBACK || kind == SQL_TWO_PHASE;
}

bool verb_refuse_failed(struct client *c, enum sql_kind kind)
{
	if (!c->failed || verb_is_exit(kind))
		return false;
	client_error(c, "25P02",
	             "current transaction is aborted, commands ignored until end of "
	             "transaction block");
	return true;
}

/* ---- BEGIN, COMMIT, ROLLBACK ---- */

static bool set_mode(struct client *c, const struct verb *v)
{
	if (v->flags & SQL_READ_ONLY)
		unit_read_only(c);
	if (!(v->flags & SQL_READ_WRITE) || unit_read_write(c))
		return true;
	unit_fail(c, "25001", "transaction read-write mode must be set before any query");
	return false;
}

static void run_begin(struct client *c, const struct verb *v)
{
	if (c->unit == UNIT_BLOCK)
		client_warn(c, "25001", "there is already a transaction in progress");
	if (!set_mode(c, v))
		return;
	c->unit = UNIT_BLOCK;
	client_tag(c, v->flags & SQL_START ? "START TRANSACTION" : "BEGIN");
}

/* AND CHAIN: no other client has had a chance to take the connection yet. */
static void follow_chain(struct client *c)
{
	if (c->chain && unit_begin(c)) {
		c->unit = UNIT_BLOCK;
		c->chained = !c->chain_failed;
		if (c->chain_read_only)
			unit_read_only(c);
		else if (!c->chain_failed)
			(void)unit_read_write(c);
	}
	c->chain = false;
}

static void after_rollback(struct client *c, bool ok)
{
	(void)ok;
	client_tag(c, "ROLLBACK");
	follow_chain(c);
}

static void after_commit(struct client *c, bool ok)
{
	if (!ok)
		return;
	client_tag(c, "COMMIT");
	follow_chain(c);
}

static void run_end(struct client *c, const struct verb *v)
{
	bool commits = v->kind == SQL_COMMIT;

	if (c->unit != UNIT_BLOCK && v->flags & SQL_CHAIN) {
		fail_outside(c, commits ? "COMMIT AND CHAIN" : "ROLLBACK AND CHAIN");
		return;
	}
	if (c->unit != UNIT_BLOCK)
		client_warn(c, "25P01", "there is no transaction in progress");
	c->chain = (v->flags & SQL_CHAIN) != 0;
	/* One that has failed hands on nothing, unless behind a savepoint or a chain: the next begins as any other. */
	c->chain_failed = c->failed && !locals_savepoint(c) && !c->chained;
	c->chain_read_only = c->read_only && !c->chain_failed;
	if (commits && !c->failed)
		unit_commit(c, after_commit);
	else
		unit_roll_back(c, after_rollback);
}

/* ---- those that are refused ---- */

static void run_two_phase(struct client *c, const struct verb *v)
{
	(void)v;
	unit_fail(c, "0A000", "a plan's transaction is prepared and committed by atoll only");
}

static void run_odd(struct client *c, const struct verb *v)
{
	(void)v;
	unit_fail(
		c, "0A000",
		"a plan does not know this form of a statement that begins or ends a transaction");
}

/* Outside a block, or about a savepoint of the holder. */
static void run_savepoint(struct client *c, const struct verb *v)
{
	size_t len = strcspn(v->text, " \t\r\n\f/-");

	if (c->unit == UNIT_BLOCK)
		unit_fail(c, "3B001",
		          "names of savepoints that begin with " SQL_OURS " are for atoll only");
	else if (len == strlen("savepoint") && strncasecmp(v->text, "savepoint", len) == 0)
		fail_outside(c, "SAVEPOINT");
	else if (len == strlen("release") && strncasecmp(v->text, "release", len) == 0)
		fail_outside(c, "RELEASE SAVEPOINT");
	else
		fail_outside(c, "ROLLBACK TO SAVEPOINT");
}

static void run_declare(struct client *c, const struct verb *v)
{
	(void)v;
	fail_outside(c, "DECLARE CURSOR");
}

static void run_lock(struct client *c, const struct verb *v)
{
	(void)v;
	fail_outside(c, "LOCK TABLE");
}

static void run_listen(struct client *c, const struct verb *v)
{
	(void)v;
	unit_fail(c, "0A000",
	          "LISTEN hears nothing inside a plan, whose transaction ends only with its "
	          "commit: connect to the server itself for notifications");
}

static void run_unlisten(struct client *c, const struct verb *v)
{
	(void)v;
	client_tag(c, "UNLISTEN");
}

static void run_snapshot(struct client *c, const struct verb *v)
{
	(void)v;
	unit_fail(c, "0A000",
	          "a plan's transaction cannot share its snapshot with another session: use one "
	          "connection (pg_dump without -j)");
}

/* ---- those that the holder carries out as queries of its own ---- */

static void answered(struct client *c, const struct answer *a)
{
	c->holds--;
	if (a->ok) {
		client_tag(c, c->verb_tag);
		return;
	}
	c->errored = true;
	if (a->error)
		client_pass_error(c, a->error, 0);
	c->failed = c->unit == UNIT_BLOCK;
}

static void ask(struct client *c, const char *sql, const char *tag)
{
	c->verb_tag = tag;
	c->holds++;
	holder_ask(c->h, c, sql, answered);
}

static void run_set_transaction(struct client *c, const struct verb *v)
{
	if (!unit_in_block(c))
		client_warn(c, "25P01", "SET TRANSACTION can only be used in transaction blocks");
	if (set_mode(c, v))
		client_tag(c, "SET");
}

static void add_deallocate(struct strbuf *sql, const char *name)
{
	strbuf_puts(sql, "DEALLOCATE ");
	settings_add_name(sql, name);
	strbuf_puts(sql, "; ");
}

static void add_deallocate_all(struct client *c, struct strbuf *sql)
{
	for (const struct named *s = c->statements; s; s = s->next)
		if (!verb_is_ours(s->verb.kind) && *s->server_name)
			add_deallocate(sql, s->server_name);
	named_clear_names(&c->statements);
}

static void run_deallocate(struct client *c, const struct verb *v)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;
	const struct named *s = named_find(c->statements, v->name);

	if (v->flags & SQL_ALL) {
		add_deallocate_all(c, &sql);
		ask(c, strbuf_str(&sql), "DEALLOCATE ALL");
		return;
	}
	if (!s || !verb_is_ours(s->verb.kind)) {
		cleanup_free char *name = batch_name(c, c->statements, v->name);

		add_deallocate(&sql, name);
	}
	named_drop(&c->statements, v->name);
	ask(c, strbuf_str(&sql), "DEALLOCATE");
}

static void run_discard(struct client *c, const struct verb *v)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	(void)v;
	if (unit_in_block(c) || c->executed) {
		unit_fail(c, "25001",
		          unit_in_block(c) ? "DISCARD ALL cannot run inside a transaction block"
		                           : "DISCARD ALL cannot be executed within a pipeline");
		return;
	}
	strbuf_puts(&sql, "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; ");
	settings_add_startup(c, &sql, NULL);
	add_deallocate_all(c, &sql);
	named_clear(&c->portals);
	ask(c, strbuf_str(&sql), "DISCARD ALL");
}

/* What is the client's in a question of ours must not be more than the one command. */
static bool is_one_command(struct client *c, const char *text)
{
	if (!sql_may_be_several(text, strlen(text)))
		return true;
	unit_fail(c, "0A000", "a plan does not carry this out with a semicolon in it");
	return false;
}

/* The defaults of the server's session are not the client's. */
static void run_reset(struct client *c, const struct verb *v)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;
	cleanup_free char *name = settings_name(v->name);

	if (!is_one_command(c, v->text))
		return;
	strbuf_printf(&sql, "%s; ", v->text);
	settings_add_startup(c, &sql, strcmp(name, "all") == 0 ? NULL : name);
	locals_note_done(c, v);
	ask(c, strbuf_str(&sql), "RESET");
}

static void run_vacuum(struct client *c, const struct verb *v)
{
	cleanup_free char *sql =
		xasprintf("ANALYZE %s%s", v->flags & SQL_VERBOSE ? "VERBOSE " : "", v->name);

	if (c->executed) {
		unit_fail(c, "25001", "VACUUM cannot be executed within a pipeline");
		return;
	}
	if (!is_one_command(c, v->name))
		return;
	client_warn(c, "01000",
	            "VACUUM cannot run inside a plan's transaction: the tables are only analyzed");
	ask(c, sql, "VACUUM");
}

/* ---- those that the server executes, and that leave something to do ---- */

/* What SET LOCAL is about to hide. */
static void local_known(struct client *c, const struct answer *a)
{
	if (a->ok)
		settings_read(a->value ? a->value : "", locals_hide, c);
}

static void ask_hidden(struct client *c, const struct setting *names)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	strbuf_puts(
		&sql,
		"SELECT pg_catalog.string_agg(" SETTINGS_PAIR(
			"n",
			"coalesce(pg_catalog.current_setting(n, true), '')") ", ',') "
									     "FROM pg_catalog.unnest(");
	settings_add_names(&sql, names);
	strbuf_puts(&sql, ") n");
	holder_ask_aside(c->h, c, strbuf_str(&sql), local_known);
}

static void before_set_local(struct client *c, const struct verb *v)
{
	cleanup_free char *name = settings_name(v->name);
	struct setting *names = NULL;

	settings_add(&names, name, "");
	ask_hidden(c, names);
	settings_clear(&names);
}

struct configs {
	struct client *c;
	struct setting *locals;
};

static void take_config(void *user, const char *name, bool local)
{
	struct configs *found = user;

	settings_note_custom(found->c, name);
	if (local)
		settings_add(&found->locals, name, "");
}

static void before_set_config(struct client *c, const struct verb *v)
{
	struct configs found = { .c = c };

	locals_read(v->text, take_config, &found);
	if (found.locals)
		ask_hidden(c, found.locals);
	settings_clear(&found.locals);
}

/* ---- which is which ---- */

/* HERE: nothing of it reaches the server. EXECUTED_HERE: all but its Execute does. */
enum where { SERVER = 0, PRELUDE, HERE, EXECUTED_HERE, HERE_OUTSIDE };

static const struct {
	enum where where;
	void (*run)(struct client *, const struct verb *);
} verbs[] = {
	[SQL_PLAIN] = { SERVER, NULL },
	[SQL_BEGIN] = { HERE, run_begin },
	[SQL_COMMIT] = { HERE, run_end },
	[SQL_ROLLBACK] = { HERE, run_end },
	[SQL_TWO_PHASE] = { HERE, run_two_phase },
	[SQL_ODD] = { HERE, run_odd },
	[SQL_SAVEPOINT] = { HERE_OUTSIDE, run_savepoint },
	[SQL_SET_TRANSACTION] = { HERE, run_set_transaction },
	[SQL_SET_CONSTRAINTS] = { PRELUDE, NULL },
	[SQL_SET_LOCAL] = { PRELUDE, NULL },
	[SQL_RESET] = { EXECUTED_HERE, run_reset },
	[SQL_DISCARD_ALL] = { HERE, run_discard },
	[SQL_DEALLOCATE] = { HERE, run_deallocate },
	[SQL_DECLARE] = { HERE_OUTSIDE, run_declare },
	[SQL_LOCK] = { HERE_OUTSIDE, run_lock },
	[SQL_LISTEN] = { HERE, run_listen },
	[SQL_UNLISTEN] = { HERE, run_unlisten },
	[SQL_SNAPSHOT] = { HERE, run_snapshot },
	[SQL_VACUUM] = { HERE_OUTSIDE, run_vacuum },
};

bool verb_is_ours(enum sql_kind kind)
{
	return verbs[kind].where == HERE;
}

bool verb_has_prelude(enum sql_kind kind, unsigned flags)
{
	return verbs[kind].where == PRELUDE || flags & SQL_CONFIG;
}

void verb_prelude(struct client *c, const struct verb *v)
{
	bool local = v->kind == SQL_SET_LOCAL;

	if (c->failed)
		return;
	if (v->flags & SQL_CONFIG)
		before_set_config(c, v);
	if (verbs[v->kind].where != PRELUDE)
		return;
	if (!unit_in_block(c))
		client_warn(c, "25P01",
		            local ? "SET LOCAL can only be used in transaction blocks"
		                  : "SET CONSTRAINTS can only be used in transaction blocks");
	if (local)
		before_set_local(c, v);
	c->constraints |= !local;
}

bool verb_is_run_here(const struct client *c, enum sql_kind kind, unsigned flags)
{
	if (kind == SQL_SAVEPOINT)
		return c->unit != UNIT_BLOCK || flags & SQL_RESERVED;
	return verbs[kind].where == HERE || verbs[kind].where == EXECUTED_HERE ||
	       (verbs[kind].where == HERE_OUTSIDE && !unit_in_block(c));
}

void verb_run(struct client *c, const struct verb *v)
{
	if (verb_refuse_failed(c, v->kind))
		return;
	verb_note(c, v);
	verbs[v->kind].run(c, v);
}

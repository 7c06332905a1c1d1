/* SPDX-License-Identifier: Apache-2.0 */
/* Units: what a client takes for its transactions. */
#include "postgres/client.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- begin and end ---- */

bool unit_begin(struct client *c)
{
	struct holder *h = c->h;

	if (h->owner && h->owner != c) {
		if (!c->wait_until)
			c->wait_until = clock_deadline(h->wait_ms);
		return false;
	}
	c->wait_until = 0;
	h->owner = c;
	if (c->unit != UNIT_NONE)
		return true;
	if (!settings_switch(c))
		return false;
	holder_savepoint(h);
	h->fresh = false;
	c->unit = UNIT_IMPLICIT;
	c->failed = false;
	return true;
}

/* Nothing of the unit is left; whoever waits may have the connection. */
static void forget_unit(struct client *c)
{
	c->unit = UNIT_NONE;
	c->failed = c->constraints = c->cursors = false;
	settings_clear(&c->locals);
	named_clear(&c->portals);
	if (c->h->owner == c)
		c->h->owner = NULL;
}

static void committed(struct client *c)
{
	forget_unit(c);
	holder_savepoint(c->h);
}

static void roll_back(struct client *c)
{
	holder_rollback(c->h);
	forget_unit(c);
}

/* What a real COMMIT would do and a savepoint does not. "" for nothing. */
static void add_commit_work(struct client *c, struct strbuf *sql)
{
	settings_restore_locals(c, sql);
	/* Ones WITH HOLD outlive the commit, and there is no closing of all the others. */
	if (c->cursors && !c->h->held)
		strbuf_puts(sql, "CLOSE ALL; ");
	for (const struct named *p = c->portals; p && !(c->cursors && !c->h->held); p = p->next) {
		if (p->kind != SQL_PLAIN || !*p->server_name)
			continue;
		strbuf_puts(sql, "CLOSE \"");
		for (const char *s = p->server_name; *s; s++) {
			if (*s == '"')
				strbuf_putc(sql, '"');
			strbuf_putc(sql, *s);
		}
		strbuf_puts(sql, "\"; ");
	}
	if (c->h->guard.table && (c->constraints || *c->h->deferred))
		guard_add_check(&c->h->guard, sql, c->h->deferred);
}

/* The error of a question asked for the client becomes the client's. */
static void pass_error(struct client *c, const struct answer *a)
{
	c->errored = true;
	if (a->error)
		client_pass(c, a->error);
}

/* ---- committing: the names of deferred constraints if they may have changed, then the work.
 * THEN is one of two: the end of an implicit unit, or a COMMIT. ---- */

static void finish_implicit(struct client *c, bool ok)
{
	if (ok && wire_buf_left(&c->held) > 0 && !c->dead)
		(void)wire_add(&c->out, c->held.v + c->held.off, wire_buf_left(&c->held));
	wire_buf_done(&c->held);
	c->errored = false;
	client_ready(c);
}

/* COMMIT AND CHAIN: nobody else has had a chance to take the connection yet. */
static void follow_chain(struct client *c)
{
	if (c->chain && unit_begin(c))
		c->unit = UNIT_BLOCK;
	c->chain = false;
}

static void implicit_committed(struct client *c, const struct answer *a)
{
	c->holds--;
	if (!a->ok) {
		pass_error(c, a);
		roll_back(c);
	} else {
		committed(c);
	}
	finish_implicit(c, a->ok);
}

static void block_committed(struct client *c, const struct answer *a)
{
	c->holds--;
	if (!a->ok) {
		pass_error(c, a);
		roll_back(c);
		return;
	}
	committed(c);
	client_tag(c, "COMMIT");
	follow_chain(c);
}

static void commit_now(struct client *c, answer_fn then)
{
	static const struct answer fine = { .ok = true };
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	add_commit_work(c, &sql);
	c->holds++;
	if (sql.len == 0)
		then(c, &fine);
	else
		holder_ask(c->h, c, strbuf_str(&sql), then);
}

static void take_names(struct client *c, const struct answer *a)
{
	free(c->h->deferred);
	c->h->deferred = xstrdup(a->ok && a->value ? a->value : "");
	c->h->deferred_old = false;
	c->holds--;
}

static void implicit_names(struct client *c, const struct answer *a)
{
	take_names(c, a);
	commit_now(c, implicit_committed);
}

static void block_names(struct client *c, const struct answer *a)
{
	take_names(c, a);
	commit_now(c, block_committed);
}

static void commit(struct client *c, answer_fn names, answer_fn then)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	if (!c->h->deferred_old || !c->h->guard.table) {
		commit_now(c, then);
		return;
	}
	guard_add_names(&c->h->guard, &sql);
	c->holds++;
	holder_ask(c->h, c, strbuf_str(&sql), names);
}

void unit_end(struct client *c)
{
	if (c->unit != UNIT_IMPLICIT) {
		if (c->unit == UNIT_NONE && c->h->owner == c)
			c->h->owner = NULL;
		finish_implicit(c, !c->errored);
	} else if (c->errored) {
		roll_back(c);
		finish_implicit(c, false);
	} else {
		commit(c, implicit_names, implicit_committed);
	}
}

void unit_yield(struct client *c)
{
	if (c->unit != UNIT_IMPLICIT)
		return;
	if (c->errored)
		roll_back(c);
	else
		forget_unit(c);
}

/* ---- statements about the transaction ---- */

void unit_note(struct client *c, unsigned flags)
{
	c->settings_old |= (flags & SQL_SETS) != 0;
	c->cursors |= (flags & SQL_CURSOR) != 0;
	c->h->held |= (flags & SQL_HOLD) != 0;
	c->h->deferred_old |= (flags & SQL_DEFINES) != 0;
	c->h->notified |= (flags & SQL_NOTIFIES) != 0;
}

bool unit_is_verb(const struct client *c, enum sql_kind kind, unsigned flags)
{
	if (kind == SQL_SAVEPOINT)
		return c->unit != UNIT_BLOCK || flags & SQL_RESERVED;
	return kind != SQL_PLAIN;
}

static void ignore_answer(struct client *c, const struct answer *a)
{
	(void)c;
	(void)a;
}

/* An error of ours: inside a block the server must think so too. */
static void fail(struct client *c, const char *sqlstate, const char *message)
{
	client_error(c, sqlstate, message);
	if (c->unit != UNIT_BLOCK)
		return;
	c->failed = true;
	holder_ask(c->h, c, "RELEASE " SQL_OURS "_nothing", ignore_answer);
}

static void fail_outside(struct client *c, const char *what)
{
	cleanup_free char *text = xasprintf("%s can only be used in transaction blocks", what);

	fail(c, "25P01", text);
}

/* True when it was refused for that. */
static bool refuse_failed(struct client *c)
{
	if (c->failed)
		client_error(c, "25P02",
		             "current transaction is aborted, commands ignored until end of "
		             "transaction block");
	return c->failed;
}

/* True, and said, when there is no block: the statement does nothing then. */
static bool warn_no_block(struct client *c, const char *what)
{
	cleanup_free char *text = NULL;

	if (c->unit == UNIT_BLOCK)
		return false;
	text = xasprintf("%s can only be used in transaction blocks", what);
	client_warn(c, "25P01", text);
	return true;
}

static void verb_begin(struct client *c, const struct verb *v)
{
	if (refuse_failed(c))
		return;
	if (c->unit == UNIT_BLOCK)
		client_warn(c, "25001", "there is already a transaction in progress");
	c->unit = UNIT_BLOCK;
	if (v->flags & SQL_READ_ONLY)
		holder_ask(c->h, NULL, "SET TRANSACTION READ ONLY", NULL);
	client_tag(c, v->flags & SQL_START ? "START TRANSACTION" : "BEGIN");
}

static void end_by_rollback(struct client *c)
{
	roll_back(c);
	client_tag(c, "ROLLBACK");
	follow_chain(c);
}

static void verb_commit(struct client *c, const struct verb *v)
{
	if (c->unit != UNIT_BLOCK)
		client_warn(c, "25P01", "there is no transaction in progress");
	c->chain = v->flags & SQL_CHAIN && c->unit == UNIT_BLOCK;
	if (c->failed)
		end_by_rollback(c);
	else
		commit(c, block_names, block_committed);
}

static void verb_rollback(struct client *c, const struct verb *v)
{
	if (c->unit != UNIT_BLOCK)
		client_warn(c, "25P01", "there is no transaction in progress");
	c->chain = v->flags & SQL_CHAIN && c->unit == UNIT_BLOCK;
	end_by_rollback(c);
}

/* Outside a block, or about one of ours; else it goes to the server. */
static void verb_savepoint(struct client *c, const struct verb *v)
{
	size_t len = strcspn(v->text, " \t\n");
	cleanup_free char *text = NULL;

	if (c->unit == UNIT_BLOCK) {
		fail(c, "3B001", "this savepoint is atoll's own");
		return;
	}
	text = strncasecmp(v->text, "savepoint", len) == 0 ? xstrdup("SAVEPOINT")
	       : strncasecmp(v->text, "release", len) == 0 ? xstrdup("RELEASE SAVEPOINT")
	                                                   : xstrdup("ROLLBACK TO SAVEPOINT");
	fail_outside(c, text);
}

static void verb_two_phase(struct client *c, const struct verb *v)
{
	(void)v;
	fail(c, "0A000", "a sandboxed transaction is prepared and committed by atoll only");
}

static void verb_set_transaction(struct client *c, const struct verb *v)
{
	if (refuse_failed(c))
		return;
	if (!warn_no_block(c, "SET TRANSACTION") && v->flags & SQL_READ_ONLY)
		holder_ask(c->h, NULL, "SET TRANSACTION READ ONLY", NULL);
	client_tag(c, "SET");
}

/* ---- those that the server carries out as questions of ours ---- */

static void answered(struct client *c, const struct answer *a)
{
	c->holds--;
	if (a->ok) {
		client_tag(c, c->verb_tag);
		return;
	}
	pass_error(c, a);
	c->failed = c->unit == UNIT_BLOCK;
}

static void ask(struct client *c, const char *sql, const char *tag)
{
	c->verb_tag = tag;
	c->holds++;
	holder_ask(c->h, c, sql, answered);
}

static void verb_set_constraints(struct client *c, const struct verb *v)
{
	static const char tag[] = "SET CONSTRAINTS";
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	if (warn_no_block(c, tag)) {
		client_tag(c, tag);
		return;
	}
	if (v->flags & SQL_RESERVED) {
		fail(c, "42501", "this constraint is atoll's own");
		return;
	}
	c->constraints = true;
	if (v->flags & SQL_ALL_IMMEDIATE && c->h->guard.table)
		guard_add_check(&c->h->guard, &sql, "");
	else
		strbuf_puts(&sql, v->text);
	ask(c, strbuf_str(&sql), tag);
}

/* What SET LOCAL is about to hide. */
static void local_known(struct client *c, const struct answer *a)
{
	cleanup_free char *sql = take_ptr(c->verb_text);

	c->holds--;
	if (a->ok && !settings_get(c->locals, c->verb_name))
		settings_add(&c->locals, c->verb_name, a->value ? a->value : "");
	ask(c, sql, "SET");
}

static void verb_set_local(struct client *c, const struct verb *v)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	if (warn_no_block(c, "SET LOCAL")) {
		client_tag(c, "SET");
		return;
	}
	free(c->verb_text);
	free(c->verb_name);
	c->verb_text = xstrdup(v->text);
	c->verb_name = settings_name(v->name);
	strbuf_puts(&sql, "SELECT pg_catalog.current_setting(");
	settings_add_literal(&sql, c->verb_name);
	strbuf_puts(&sql, ", true)");
	c->holds++;
	holder_ask(c->h, c, strbuf_str(&sql), local_known);
}

static void add_deallocate(struct strbuf *sql, const char *name)
{
	strbuf_puts(sql, "DEALLOCATE \"");
	for (; *name; name++) {
		if (*name == '"')
			strbuf_putc(sql, '"');
		strbuf_putc(sql, *name);
	}
	strbuf_puts(sql, "\"; ");
}

static void add_deallocate_all(struct client *c, struct strbuf *sql)
{
	for (const struct named *s = c->statements; s; s = s->next)
		if (s->kind == SQL_PLAIN && *s->server_name)
			add_deallocate(sql, s->server_name);
	named_clear(&c->statements);
}

static void verb_deallocate(struct client *c, const struct verb *v)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;
	const struct named *s = named_find(c->statements, v->name);

	if (v->flags & SQL_ALL) {
		add_deallocate_all(c, &sql);
		ask(c, strbuf_str(&sql), "DEALLOCATE ALL");
	} else {
		if (!s || s->kind == SQL_PLAIN)
			add_deallocate(&sql, s ? s->server_name : v->name);
		named_drop(&c->statements, v->name);
		ask(c, strbuf_str(&sql), "DEALLOCATE");
	}
}

static void verb_discard(struct client *c, const struct verb *v)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	(void)v;
	if (c->unit == UNIT_BLOCK) {
		fail(c, "25001", "DISCARD ALL cannot run inside a transaction block");
		return;
	}
	strbuf_puts(&sql, "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; ");
	add_deallocate_all(c, &sql);
	ask(c, strbuf_str(&sql), "DISCARD ALL");
}

void unit_verb(struct client *c, enum sql_kind kind, const struct verb *v)
{
	static void (*const verbs[])(struct client *, const struct verb *) = {
		[SQL_BEGIN] = verb_begin,
		[SQL_COMMIT] = verb_commit,
		[SQL_ROLLBACK] = verb_rollback,
		[SQL_SAVEPOINT] = verb_savepoint,
		[SQL_TWO_PHASE] = verb_two_phase,
		[SQL_SET_TRANSACTION] = verb_set_transaction,
		[SQL_SET_CONSTRAINTS] = verb_set_constraints,
		[SQL_SET_LOCAL] = verb_set_local,
		[SQL_DISCARD_ALL] = verb_discard,
		[SQL_DEALLOCATE] = verb_deallocate,
	};

	unit_note(c, v->flags);
	verbs[kind](c, v);
}

/* ---- the client is gone ---- */

void unit_close(struct client *c)
{
	struct holder *h = c->h;
	bool any = false;

	if (c->unit != UNIT_NONE)
		roll_back(c);
	for (const struct named *s = c->statements; s; s = s->next) {
		cleanup_strbuf struct strbuf body = STRBUF_INIT;

		if (s->kind != SQL_PLAIN || !*s->server_name)
			continue;
		/* Unlike DEALLOCATE this is no error for one that is not there. */
		strbuf_putc(&body, 'S');
		strbuf_add(&body, s->server_name, strlen(s->server_name) + 1);
		holder_send(h, NULL, 'C', body.buf, body.len);
		any = true;
	}
	if (!any)
		return;
	holder_expect(h, NULL);
	holder_send(h, NULL, 'S', NULL, 0);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Units: what a client takes for its transactions. */
#include "postgres/client.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>

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

bool unit_in_block(const struct client *c)
{
	if (c->unit == UNIT_BLOCK)
		return true;
	/* The server opens an implicit block for a query of several statements. */
	return c->in_script && c->sql.n > 1;
}

static void ignore_answer(struct client *c, const struct answer *a)
{
	(void)c;
	(void)a;
}

void unit_fail(struct client *c, const char *sqlstate, const char *message)
{
	client_error(c, sqlstate, message);
	if (c->unit != UNIT_BLOCK || c->failed)
		return;
	c->failed = true;
	/* The client's statement without a name stays: it may still be described. */
	holder_ask_aside(c->h, c, "RELEASE " SQL_OURS "_nothing", ignore_answer);
}

/* ---- the end ---- */

/* Nothing of the unit is left; the next client that waits may have the connection. */
static void forget_unit(struct client *c)
{
	c->unit = UNIT_NONE;
	c->failed = c->constraints = c->cursors = c->executed = c->sets = c->read_only = false;
	settings_clear(&c->locals);
	named_clear(&c->portals);
	if (c->h->owner == c)
		c->h->owner = NULL;
}

/* Closes at the server what it knows of LIST: portals ('P') or statements ('S'). Those that do not exist may be
 * closed, too. */
static void close_named(struct holder *h, const struct named *list, char what)
{
	bool any = false;

	for (; list; list = list->next) {
		cleanup_strbuf struct strbuf body = STRBUF_INIT;

		if (verb_is_ours(list->verb.kind) || !*list->server_name)
			continue;
		strbuf_putc(&body, what);
		strbuf_add(&body, list->server_name, strlen(list->server_name) + 1);
		holder_send(h, NULL, 'C', body.buf, body.len);
		any = true;
	}
	if (!any)
		return;
	holder_send(h, NULL, 'S', NULL, 0);
	holder_expect(h, NULL);
}

/* The end of a transaction closes its cursors and portals, the release of a savepoint does not. */
static void close_portals(struct client *c)
{
	if (c->cursors && !c->h->held)
		holder_ask(c->h, NULL, "CLOSE ALL", NULL);
	else
		close_named(c->h, c->portals, 'P');
}

static void finish(struct client *c, bool ok)
{
	void (*then)(struct client *, bool) = c->then;

	c->then = NULL;
	forget_unit(c);
	then(c, ok);
}

static void rolled_back(struct client *c, const struct answer *a)
{
	c->holds--;
	if (a->ok)
		finish(c, false);
	else
		holder_check_lost(c->h, wire_error_field(a->error, 'M'));
}

void unit_roll_back(struct client *c, void (*then)(struct client *c, bool ok))
{
	c->then = then;
	if (!c->sets) {
		holder_rollback(c->h);
		finish(c, false);
		return;
	}
	/* It hears what its settings are now before it hears that it is done. */
	c->holds++;
	holder_ask(c->h, c, HOLDER_ROLLBACK, rolled_back);
	c->h->fresh = true;
}

static void committed(struct client *c)
{
	close_portals(c);
	holder_savepoint(c->h);
	finish(c, true);
}

static void not_committed(struct client *c, const struct answer *a)
{
	c->errored = true;
	if (a->error)
		client_pass_error(c, a->error, 0);
	c->h->deferrable = true;
	unit_roll_back(c, c->then);
}

static void deferred_again(struct client *c, const struct answer *a)
{
	c->holds--;
	if (a->ok)
		committed(c);
	else
		not_committed(c, a);
}

/* What a COMMIT does and the release of a savepoint does not is done. */
static void worked(struct client *c, const struct answer *a)
{
	cleanup_free char *sql = NULL;

	c->holds--;
	if (!a->ok) {
		not_committed(c, a);
		return;
	}
	if (c->constraints || c->h->deferrable)
		c->h->deferrable = a->value && *a->value;
	if (!c->h->deferrable) {
		committed(c);
		return;
	}
	sql = xasprintf("SET CONSTRAINTS %s DEFERRED", a->value);
	c->holds++;
	holder_ask(c->h, c, sql, deferred_again);
}

/*
 * Constraints that are deferred from the beginning, by their names. A transaction begins with them
 * deferred and all others immediate, and there is no statement that says just this. A name that is
 * used twice in a schema cannot be said of the one alone: such constraints stay immediate.
 */
#define DEFERRED                                                                     \
	"SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', s, c), ', ') FROM " \
	"(SELECT n.nspname, c.conname FROM pg_catalog.pg_constraint c JOIN "         \
	"pg_catalog.pg_namespace n ON n.oid = c.connamespace WHERE "                 \
	"pg_catalog.has_schema_privilege(n.oid, 'USAGE') GROUP BY 1, 2 HAVING "      \
	"pg_catalog.bool_or(c.condeferred) AND pg_catalog.bool_and(c.condeferred)) d (s, c); "

void unit_commit(struct client *c, void (*then)(struct client *c, bool ok))
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	c->then = then;
	if (c->constraints || c->h->deferrable)
		strbuf_puts(&sql, "SET CONSTRAINTS ALL IMMEDIATE; " DEFERRED);
	settings_restore_locals(c, &sql);
	if (sql.len == 0) {
		committed(c);
		return;
	}
	c->holds++;
	holder_ask(c->h, c, strbuf_str(&sql), worked);
}

/* ---- the end of a script or batch ---- */

static void finish_implicit(struct client *c, bool ok)
{
	if (ok && wire_buf_left(&c->held) > 0 && !c->dead)
		(void)wire_add(&c->out, c->held.v + c->held.off, wire_buf_left(&c->held));
	wire_buf_done(&c->held);
	c->errored = false;
	client_ready(c);
}

void unit_end(struct client *c)
{
	if (c->unit != UNIT_IMPLICIT) {
		if (c->unit == UNIT_NONE)
			forget_unit(c);
		finish_implicit(c, !c->errored);
	} else if (c->errored) {
		unit_roll_back(c, finish_implicit);
	} else {
		unit_commit(c, finish_implicit);
	}
}

static void nothing_follows(struct client *c, bool ok)
{
	(void)c;
	(void)ok;
}

void unit_yield(struct client *c)
{
	if (c->unit != UNIT_IMPLICIT)
		return;
	if (c->errored) {
		unit_roll_back(c, nothing_follows);
		return;
	}
	/* Portals of ours stay: for the client the transaction ends with its Sync. */
	c->unit = UNIT_NONE;
	c->h->owner = NULL;
}

/* ---- the client is gone ---- */

void unit_close(struct client *c)
{
	if (c->unit != UNIT_NONE) {
		holder_rollback(c->h);
		forget_unit(c);
	}
	close_named(c->h, c->statements, 'S');
}

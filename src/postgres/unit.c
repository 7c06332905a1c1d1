/* SPDX-License-Identifier: Apache-2.0 */
/* Units: what a client takes for its transactions. */
#include "postgres/client.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>

static bool is_read_only_by_default(const struct client *c)
{
	static const char name[] = "default_transaction_read_only";
	const char *value = settings_get(c->changed, name);

	if (!value)
		value = settings_get(c->reported, name);
	return value && strcmp(value, "on") == 0;
}

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
	if (is_read_only_by_default(c))
		unit_read_only(c);
	return true;
}

void unit_read_only(struct client *c)
{
	c->read_only = true;
	holder_ask(c->h, NULL, "SET TRANSACTION READ ONLY", NULL);
}

/* Not by its opposite, which the server refuses behind a savepoint. */
bool unit_read_write(struct client *c)
{
	if (!c->read_only)
		return true;
	if (c->executed)
		return false;
	holder_rollback(c->h);
	c->h->fresh = c->read_only = false;
	return true;
}

bool unit_in_block(const struct client *c)
{
	if (c->unit == UNIT_BLOCK)
		return true;
	/* The server opens an implicit block for a query of several statements. */
	return c->in_script && c->sql.n > 1;
}

void unit_fail(struct client *c, const char *sqlstate, const char *message)
{
	client_error(c, sqlstate, message);
	if (c->unit != UNIT_BLOCK || c->failed)
		return;
	c->failed = true;
	/* The client's statement without a name stays: it may still be described. */
	holder_ask_aside(c->h, c, UNIT_FAIL, holder_ignore);
}

/* ---- the end ---- */

/* Nothing of the unit is left; the next client that waits may have the connection. */
static void forget_unit(struct client *c)
{
	c->unit = UNIT_NONE;
	c->failed = c->chained = c->constraints = c->executed = c->sets = c->read_only = false;
	locals_clear(c);
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

static void others_known(struct client *c, const struct answer *a)
{
	c->holds--;
	if (a->ok && a->value && *a->value)
		holder_ask(c->h, NULL, a->value, NULL);
	if (a->ok)
		committed(c);
	else
		not_committed(c, a);
}

/* Beside cursors WITH HOLD, which stay, the others are closed one by one. */
static void close_cursors(struct client *c)
{
	if (!c->h->held) {
		committed(c);
		return;
	}
	c->holds++;
	holder_ask(c->h, c,
	           "SELECT pg_catalog.string_agg(pg_catalog.format('CLOSE %I', name), '; ') FROM "
	           "pg_catalog.pg_cursors WHERE NOT is_holdable AND name <> ''",
	           others_known);
}

static void deferred_again(struct client *c, const struct answer *a)
{
	c->holds--;
	if (a->ok)
		close_cursors(c);
	else
		not_committed(c, a);
}

/* What a COMMIT does and the release of a savepoint does not is done. */
static void worked(struct client *c, const struct answer *a)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	c->holds--;
	if (!a->ok) {
		not_committed(c, a);
		return;
	}
	if (!c->constraints && !c->h->deferrable) {
		close_cursors(c);
		return;
	}
	/* "t" where some are deferred from the beginning, and the names of others. */
	c->h->deferrable = a->value && *a->value == 't';
	strbuf_puts(&sql, "SET CONSTRAINTS ALL DEFERRED");
	if (a->value && *a->value && a->value[1])
		strbuf_printf(&sql, "; SET CONSTRAINTS %s IMMEDIATE", a->value + 1);
	c->holds++;
	holder_ask(c->h, c, strbuf_str(&sql), deferred_again);
}

/*
 * A transaction begins with those constraints deferred that are so from the beginning, and all others
 * immediate, and there is no statement that says just this. So all are deferred, also those that come to be
 * later, and the others made immediate by their names. A name that is used twice in a schema cannot be said
 * of the one alone: such constraints are immediate.
 */
#define CONSTRAINTS                                                                                \
	"SELECT pg_catalog.concat(pg_catalog.bool_or(d), pg_catalog.string_agg(pg_catalog.format(" \
	"'%I.%I', s, c), ', ') FILTER (WHERE i)) FROM (SELECT n.nspname, c.conname, "              \
	"pg_catalog.bool_or(c.condeferred), pg_catalog.bool_or(c.condeferrable AND NOT "           \
	"c.condeferred) FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_namespace n ON "        \
	"n.oid = c.connamespace WHERE pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND "        \
	"c.contype IN ('f', 'p', 'u', 'x', 't') GROUP BY 1, 2) q (s, c, d, i); "

void unit_commit(struct client *c, void (*then)(struct client *c, bool ok))
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	c->then = then;
	if (c->constraints || c->h->deferrable)
		strbuf_puts(&sql, "SET CONSTRAINTS ALL IMMEDIATE; " CONSTRAINTS);
	locals_add_restore(c, &sql);
	if (sql.len == 0) {
		close_cursors(c);
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
	close_named(c->h, c->holdable, 'P');
}

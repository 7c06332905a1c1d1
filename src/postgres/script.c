/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simple queries. A text in which there can be but one command goes to the server as it is. Of any
 * other the server gets one statement at a time by the extended protocol, in which it refuses
 * several commands at once: so no statement can hide behind another, however it is written, and
 * what its first word is, is known. Those up to the next statement of ours go together, and the
 * server passes over the rest of them after an error. The client hears what it would have heard
 * of a simple query.
 */
#include "postgres/client.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void script_start(struct client *c, const char *text)
{
	free(c->script);
	sql_done(&c->sql);
	/* A simple query takes the place of the statement and the portal without a name. */
	named_drop(&c->statements, "");
	named_drop(&c->portals, "");
	c->script = xstrdup(text);
	c->script_len = strlen(text);
	c->at = c->running = c->checked = 0;
	c->check = CHECK_NONE;
	c->in_script = true;
	c->errored = false;
	if (sql_split(&c->sql, c->script, c->script_len, c->backslashes) < 0)
		client_error(c, "53200", "out of memory");
	else if (c->sql.n == 0)
		client_put(c, 'I', NULL, 0);
	c->text_checked = c->sql.n < 2;
}

/* The server carries it out like a query. */
int script_call(struct client *c, const struct wire_message *m)
{
	if (!unit_begin(c))
		return 0;
	sql_done(&c->sql);
	c->at = c->running = 0;
	c->in_script = true;
	c->errored = false;
	c->holds++;
	holder_send(c->h, c, 'F', m->body, m->len);
	holder_expect(c->h, c);
	return 1;
}

/* Nothing more of it will be carried out. */
void script_done(struct client *c)
{
	c->in_script = false;
	c->copying = false;
	unit_end(c);
}

/* ---- sending ---- */

/* From the beginning of the statement to its semicolon; what stands before the first belongs to it. */
static size_t start_of(const struct client *c, size_t i)
{
	return i > 0 ? c->sql.v[i].start : 0;
}

static bool may_be_several(const struct client *c, size_t i)
{
	size_t start = start_of(c, i);

	return sql_may_be_several(c->script + start, c->sql.v[i].stop - start);
}

static void add_statement(struct client *c, size_t i, size_t from, struct strbuf *sb)
{
	batch_add_text(c, c->script, &c->sql.v[i], from, c->sql.v[i].stop, sb);
	strbuf_putc(sb, '\0');
}

static void expect(struct client *c)
{
	c->h->unnamed = NULL;
	c->holds++;
	holder_expect(c->h, c);
}

static void send_query(struct client *c)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	c->from_start = c->at == 0;
	add_statement(c, c->at, start_of(c, c->at), &sb);
	holder_send(c->h, c, 'Q', sb.buf, sb.len);
	expect(c);
}

static void send_parse(struct client *c, const char *before, size_t i)
{
	static const char no_types[2] = { 0 };
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	strbuf_putc(&sb, '\0');
	strbuf_puts(&sb, before);
	c->from_start = false;
	add_statement(c, i, c->sql.v[i].start, &sb);
	strbuf_add(&sb, no_types, sizeof(no_types));
	holder_send(c->h, c, 'P', sb.buf, sb.len);
}

/*
 * The server reads all of a query before it executes any of it. A statement behind PREPARE is read, but
 * not looked at any closer: what it names may come to be by a statement before it. Others are not looked at
 * anyway, but for those few that are.
 */
#define AS_PREPARED "PREPARE " SQL_OURS "_text AS "

/* The first from I on that can be read that way. */
static size_t next_checked(const struct client *c, size_t i)
{
	while (i < c->sql.n && (c->sql.v[i].flags & SQL_EARLY ||
	                        (verb_is_ours(c->sql.v[i].kind) && c->sql.v[i].kind != SQL_ODD)))
		i++;
	return i;
}

static void send_text(struct client *c)
{
	c->text_checked = true;
	c->checked = next_checked(c, 0);
	if (c->checked == c->sql.n)
		return;
	c->check = CHECK_TEXT;
	for (size_t i = c->checked, next; i < c->sql.n; i = next) {
		next = next_checked(c, i + 1);
		send_parse(c, c->sql.v[i].flags & SQL_PREPARABLE ? AS_PREPARED : "", i);
		/* In a block that has failed each of them may be refused, and the next one counts. */
		if (next == c->sql.n || c->failed) {
			holder_send(c->h, c, 'S', NULL, 0);
			expect(c);
		}
	}
}

/* Parsed, it is not carried out. */
static void send_check(struct client *c)
{
	send_parse(c, "", c->at);
	holder_send(c->h, c, 'S', NULL, 0);
	c->check = CHECK_ASKED;
	expect(c);
}

static void send_run(struct client *c, size_t to)
{
	static const char bind[8] = { 0 }, portal[2] = { 'P' }, all[5] = { 0 };

	for (size_t i = c->at; i < to; i++) {
		send_parse(c, "", i);
		holder_send(c->h, c, 'B', bind, sizeof(bind));
		holder_send(c->h, c, 'D', portal, sizeof(portal));
		holder_send(c->h, c, 'E', all, sizeof(all));
	}
	holder_send(c->h, c, 'C', portal, sizeof(portal));
	holder_send(c->h, c, 'S', NULL, 0);
	expect(c);
}

/* Data for it come between its answers, which the extended protocol has another order for. */
static bool is_alone(const struct sql_statement *s)
{
	return (s->flags & SQL_COPY) != 0;
}

/* What EXECUTE name is to execute, if that is no plain statement. */
static const struct verb *script_executed(const struct client *c, const char *text,
                                          const struct sql_statement *s)
{
	cleanup_free char *name = NULL;
	const struct named *n;

	if (!(s->flags & SQL_EXECUTES))
		return NULL;
	name = sql_name(text + s->name_start, s->name_end - s->name_start);
	n = named_find(c->statements, name);
	return n && n->verb.kind != SQL_PLAIN && !verb_is_ours(n->verb.kind) ? &n->verb : NULL;
}

static bool goes_along(const struct client *c, size_t i)
{
	const struct sql_statement *s = &c->sql.v[i];

	return !is_alone(s) && !verb_has_prelude(s->kind, s->flags) &&
	       !script_executed(c, c->script, s) && !verb_is_run_here(c, s->kind, s->flags);
}

/* Is NAME another than when the query came? The client was last informed before that. */
static bool has_changed(const struct client *c, const char *name)
{
	const char *now = settings_get(c->changed, name);
	const char *before = settings_get(c->reported, name);

	return now && (!before || strcmp(now, before) != 0);
}

/*
 * The server reads a query as a whole, by the settings that it came with. We send it in parts, which are
 * read by the settings that those before left. True, and said, where the part up to END would then be other
 * strings.
 */
static bool reads_otherwise(struct client *c, size_t end)
{
	bool backslashes = has_changed(c, "standard_conforming_strings");
	bool encoding = has_changed(c, "client_encoding");
	const char *name = NULL;

	for (size_t i = c->sql.v[c->at].start; i < end && !name; i++) {
		if (backslashes && c->script[i] == '\\')
			name = "standard_conforming_strings";
		else if (encoding && (unsigned char)c->script[i] >= 0x80)
			name = "client_encoding";
	}
	if (name) {
		cleanup_free char *text = xasprintf(
			"a plan does not carry out what stands behind a change of %s in the same "
			"query: send it as a query of its own",
			name);

		unit_fail(c, "0A000", text);
	}
	return name != NULL;
}

static void stays(struct client *c, const struct answer *a)
{
	c->holds--;
	if (a->ok || c->errored)
		return;
	c->errored = true;
	c->failed = c->unit == UNIT_BLOCK;
	if (a->error)
		client_pass_error(c, a->error, 0);
}

static void send_stay(struct client *c, unsigned flags)
{
	const char *const *sql;
	size_t n = verb_stay(c, flags, &sql);

	for (size_t i = 0; i < n; i++) {
		c->holds++;
		holder_ask(c->h, c, sql[i], stays);
	}
}

static void send_statements(struct client *c)
{
	size_t to = c->at + 1;

	if (!is_alone(&c->sql.v[c->at]))
		while (to < c->sql.n && !(c->sql.v[to - 1].flags & (SQL_SETS | SQL_ENDS_IDLE)) &&
		       goes_along(c, to))
			to++;
	if (reads_otherwise(c, c->sql.v[to - 1].end))
		return;
	for (size_t i = c->at; i < to; i++) {
		cleanup_verb struct verb v = verb_read(c->script, &c->sql.v[i]);

		verb_note(c, &v);
	}
	c->executed = true;
	c->running = to - c->at;
	if (to - c->at > 1 || (may_be_several(c, c->at) && !is_alone(&c->sql.v[c->at])))
		send_run(c, to);
	else
		send_query(c);
	send_stay(c, c->sql.v[to - 1].flags);
	c->at = to;
	c->check = CHECK_NONE;
}

void script_step(struct client *c)
{
	cleanup_verb struct verb v = { .kind = SQL_PLAIN };
	const struct verb *executed;
	const struct sql_statement *s;

	if (c->errored || c->at == c->sql.n) {
		script_done(c);
		return;
	}
	if (!unit_begin(c))
		return;
	if (!c->text_checked) {
		send_text(c);
		return;
	}
	s = &c->sql.v[c->at];
	if (c->check == CHECK_NONE &&
	    (s->kind == SQL_ODD || (is_alone(s) && may_be_several(c, c->at)))) {
		send_check(c);
		return;
	}
	executed = script_executed(c, c->script, s);
	if (!executed)
		executed = &v;
	v = verb_read(c->script, s);
	if (verb_is_run_here(c, executed->kind, executed->flags)) {
		c->at++;
		c->check = CHECK_NONE;
		verb_run(c, executed);
		return;
	}
	if (verb_has_prelude(executed->kind, executed->flags))
		verb_prelude(c, executed);
	send_statements(c);
}

/* ---- answers ---- */

/* May the end of this statement be the end of its unit, and does that take a look at constraints? */
static bool hold_tag(const struct client *c)
{
	return c->unit == UNIT_IMPLICIT && c->at == c->sql.n && c->running == 0 &&
	       (c->h->deferrable || c->constraints);
}

/* A simple query describes rows when it has the first of them, but for a plain SELECT. */
static bool hold_description(const struct client *c)
{
	return c->running > 0 && c->running <= c->at &&
	       !(c->sql.v[c->at - c->running].flags & SQL_QUERY);
}

static void hold(struct client *c, const struct wire_message *m)
{
	(void)wire_put(&c->held, m->type, m->body, m->len);
}

bool script_hold_tag(struct client *c, const char *tag)
{
	if (!c->in_script || !hold_tag(c))
		return false;
	(void)wire_put_text(&c->held, 'C', tag);
	return true;
}

/* The statement that an answer is about; the number of them all: none. */
static size_t answered_statement(const struct client *c)
{
	if (c->check == CHECK_TEXT)
		return c->checked;
	if (c->check == CHECK_ASKED)
		return c->at;
	return c->running > 0 ? c->at - c->running : c->sql.n;
}

long script_shift(const struct client *c)
{
	size_t i = c->in_script ? answered_statement(c) : c->sql.n;
	long n = 0;

	if (i >= c->sql.n)
		return 0;
	for (size_t k = 0; k < c->sql.v[i].start && !c->from_start; k++)
		n += ((unsigned char)c->script[k] & 0xc0) != 0x80;
	if (c->check == CHECK_TEXT && c->sql.v[i].flags & SQL_PREPARABLE)
		n -= (long)strlen(AS_PREPARED);
	return n;
}

static void take_check(struct client *c, const struct wire_message *m)
{
	bool text = c->check == CHECK_TEXT;
	bool refused = text && c->failed && m->type == 'E' &&
	               strcmp(wire_error_field(m, 'C'), "25P02") == 0;

	if ((m->type == '1' || refused) && text) {
		c->checked = next_checked(c, c->checked + 1);
	} else if (m->type == 'E' && !c->errored) {
		c->errored = true;
		client_pass_error(c, m, script_shift(c));
	} else if (m->type == 'Z' && c->holds == 0) {
		c->check = text ? CHECK_NONE : CHECK_FINE;
	}
}

void script_answer(struct client *c, const struct wire_message *m)
{
	if (m->type == 'Z') {
		c->holds--;
		c->copying = false;
		c->failed = c->unit == UNIT_BLOCK && c->h->status_bad;
		if (c->check == CHECK_ASKED || c->check == CHECK_TEXT)
			take_check(c, m);
		else
			c->running = 0;
		return;
	}
	if (c->check == CHECK_ASKED || c->check == CHECK_TEXT) {
		take_check(c, m);
		return;
	}
	if (m->type == 'E') {
		c->errored = true;
		wire_buf_done(&c->held);
		client_pass_error(c, m, script_shift(c));
		return;
	}
	if (strchr("123n", m->type))
		return;
	c->copying |= m->type == 'G';
	if (wire_buf_left(&c->held) > 0) {
		(void)wire_add(&c->out, c->held.v + c->held.off, wire_buf_left(&c->held));
		wire_buf_done(&c->held);
	}
	if (m->type == 'C' && c->running > 0) {
		cleanup_verb struct verb v = verb_read(c->script, &c->sql.v[c->at - c->running--]);

		batch_note_done(c, &v);
	}
	if ((m->type == 'C' && hold_tag(c)) || (m->type == 'T' && hold_description(c)))
		hold(c, m);
	else
		client_pass(c, m);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simple queries. One without statements about the transaction goes to the server as it is. Else
 * it is carried out in pieces, as the server would have done: what lies between two such
 * statements goes as one query, behind as many blanks as stood before it, so that positions in
 * error messages stay right.
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
	c->script = xstrdup(text);
	c->script_len = strlen(text);
	c->at = 0;
	c->in_script = true;
	c->errored = false;
	if (sql_split(&c->sql, c->script, c->script_len, c->backslashes) < 0)
		client_error(c, "53200", "out of memory");
	else if (c->sql.n == 0)
		client_put(c, 'I', NULL, 0);
}

/* The server carries it out like a query. */
int script_call(struct client *c, const struct wire_message *m)
{
	if (!unit_begin(c))
		return 0;
	sql_done(&c->sql);
	c->at = 0;
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

static bool is_verb(const struct client *c, const struct sql_statement *s)
{
	if (s->kind == SQL_SET_LOCAL && c->sql.n > 1 && c->unit != UNIT_BLOCK)
		return false;
	return unit_is_verb(c, s->kind, s->flags);
}

static void run_verb(struct client *c, const struct sql_statement *s)
{
	cleanup_free char *text = xstrndup(c->script + s->start, s->end - s->start);
	cleanup_free char *name = sql_name(c->script + s->name_start, s->name_end - s->name_start);
	const struct verb v = { .flags = s->flags, .text = text, .name = name };

	unit_verb(c, s->kind, &v);
}

/* PREPARE name: it goes when the client does. */
static void note_prepared(struct client *c, const struct sql_statement *s)
{
	if (s->flags & SQL_PREPARES && strncasecmp(c->script + s->start, "prepare", 7) == 0) {
		cleanup_free char *name =
			sql_name(c->script + s->name_start, s->name_end - s->name_start);

		named_add(&c->statements, name, name);
	}
}

static void send_piece(struct client *c, size_t from, size_t to)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	size_t start = c->sql.v[from].start;
	size_t end = to == c->sql.n ? c->script_len : c->sql.v[to - 1].end;

	if (from > 0)
		for (size_t i = 0; i < start; i++)
			if (((unsigned char)c->script[i] & 0xc0) != 0x80)
				strbuf_putc(&sb, ' ');
	if (from == 0)
		start = 0;
	strbuf_add(&sb, c->script + start, end - start);
	strbuf_putc(&sb, '\0');
	c->h->unnamed = NULL;
	c->holds++;
	holder_send(c->h, c, 'Q', sb.buf, sb.len);
	holder_expect(c->h, c);
}

void script_step(struct client *c)
{
	const struct sql_statement *s;
	size_t to = c->at;

	if (c->errored || c->at == c->sql.n) {
		script_done(c);
		return;
	}
	if (!unit_begin(c))
		return;
	s = &c->sql.v[c->at];
	if (is_verb(c, s)) {
		c->at++;
		run_verb(c, s);
		return;
	}
	for (; to < c->sql.n && !is_verb(c, &c->sql.v[to]); to++) {
		unit_note(c, c->sql.v[to].flags);
		note_prepared(c, &c->sql.v[to]);
	}
	send_piece(c, c->at, to);
	c->at = to;
}

/* May the end of this piece be the end of its unit, and does that take a look at constraints? */
static bool hold_tag(const struct client *c)
{
	return c->unit == UNIT_IMPLICIT && c->at == c->sql.n &&
	       (c->h->deferred_old || *c->h->deferred);
}

void script_answer(struct client *c, const struct wire_message *m)
{
	if (m->type == 'Z') {
		c->holds--;
		c->copying = false;
		c->failed = c->unit == UNIT_BLOCK && c->h->status_bad;
		return;
	}
	c->errored |= m->type == 'E';
	c->copying |= m->type == 'G';
	if (wire_buf_left(&c->held) > 0 && m->type != 'E') {
		(void)wire_add(&c->out, c->held.v + c->held.off, wire_buf_left(&c->held));
		wire_buf_done(&c->held);
	}
	if (m->type == 'C' && hold_tag(c))
		(void)wire_put(&c->held, 'C', m->body, m->len);
	else
		client_pass(c, m);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extended protocol. Messages go to the server as they come, names made unique, answers back
 * as they come. Statements about the transaction are answered here: before that the server is made
 * to say all that it owes, so that answers keep their order.
 */
#include "postgres/client.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

struct named *named_find(struct named *list, const char *name)
{
	while (list && strcmp(list->name, name) != 0)
		list = list->next;
	return list;
}

static void free_named(struct named *n)
{
	free(n->name);
	free(n->server_name);
	free(n->text);
	free(n->about);
	free(n);
}

void named_drop(struct named **list, const char *name)
{
	for (; *list; list = &(*list)->next) {
		struct named *n = *list;

		if (strcmp(n->name, name) != 0)
			continue;
		*list = n->next;
		free_named(n);
		return;
	}
}

void named_clear(struct named **list)
{
	while (*list) {
		struct named *n = *list;

		*list = n->next;
		free_named(n);
	}
}

struct named *named_add(struct named **list, const char *name, const char *server_name)
{
	struct named *n;

	named_drop(list, name);
	n = xcalloc(1, sizeof(*n));
	*n = (struct named){ .next = *list,
		             .name = xstrdup(name),
		             .server_name = xstrdup(server_name) };
	*list = n;
	return n;
}

static bool has_server_name(const struct named *list, const char *name)
{
	for (; list; list = list->next)
		if (strcmp(list->server_name, name) == 0)
			return true;
	return false;
}

/* NAME, unless another client has it. */
static char *server_name(const struct client *c, const char *name)
{
	if (!*name)
		return xstrdup("");
	for (const struct client *o = c->h->clients; o; o = o->next)
		if (o != c &&
		    (has_server_name(o->statements, name) || has_server_name(o->portals, name)))
			return xasprintf("%s_%u_%s", SQL_OURS, (unsigned)c->pid, name);
	return xstrdup(name);
}

/* ---- answers of our own ---- */

/* True when the server owes nothing and knows of no batch; else it is told that one ends (inside a
 * transaction that ends nothing else), and we are called again. */
static bool settled(struct client *c)
{
	if (!c->forwarded)
		return true;
	if (!c->syncing) {
		holder_send(c->h, c, 'S', NULL, 0);
		c->holds++;
	}
	c->syncing = true;
	return false;
}

static void forward(struct client *c, char type, const void *body, size_t len)
{
	holder_send(c->h, c, type, body, len);
	if (!c->forwarded)
		holder_expect(c->h, c);
	c->forwarded = true;
	c->effects |= type == 'B' || type == 'E';
}

/* ---- Parse ---- */

static void note_text(struct client *c, const char *text, struct sql_statement *ret)
{
	cleanup_sql struct sql sql = SQL_INIT;

	*ret = (struct sql_statement){ 0 };
	if (sql_split(&sql, text, strlen(text), c->backslashes) == 0 && sql.n == 1)
		*ret = sql.v[0];
	for (size_t i = 0; i < sql.n; i++)
		unit_note(c, sql.v[i].flags);
}

static void parse_own(struct client *c, const char *name, const char *text,
                      const struct sql_statement *s)
{
	struct named *n = named_add(&c->statements, name, name);

	n->kind = s->kind;
	n->flags = s->flags;
	n->text = xstrndup(text + s->start, s->end - s->start);
	n->about = sql_name(text + s->name_start, s->name_end - s->name_start);
	client_put(c, '1', NULL, 0);
}

static int take_parse(struct client *c, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	const char *name = wire_text(&r);
	const char *text = wire_text(&r);
	cleanup_strbuf struct strbuf body = STRBUF_INIT;
	cleanup_free char *to = NULL;
	struct sql_statement s;

	note_text(c, text, &s);
	if (s.kind != SQL_PLAIN) {
		if (!settled(c))
			return 0;
		parse_own(c, name, text, &s);
		return 1;
	}
	to = server_name(c, name);
	(void)named_add(&c->statements, name, to);
	strbuf_add(&body, to, strlen(to) + 1);
	strbuf_add(&body, text, m->len - (size_t)(text - (const char *)m->body));
	if (!*name) {
		wire_buf_done(&c->unnamed);
		(void)wire_add(&c->unnamed, body.buf, body.len);
		c->h->unnamed = c;
	}
	forward(c, 'P', body.buf, body.len);
	return 1;
}

/* The unnamed statement of the server may be another's by now. */
static int renew_unnamed(struct client *c, const struct named *s)
{
	if (*s->name || c->h->unnamed == c || wire_buf_left(&c->unnamed) == 0)
		return 1;
	if (!settled(c))
		return 0;
	c->h->unnamed = c;
	c->swallow++;
	forward(c, 'P', c->unnamed.v + c->unnamed.off, wire_buf_left(&c->unnamed));
	return 1;
}

/* ---- the others ---- */

static int take_bind(struct client *c, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	const char *portal = wire_text(&r);
	const char *name = wire_text(&r);
	const struct named *s = named_find(c->statements, name);
	cleanup_strbuf struct strbuf body = STRBUF_INIT;
	cleanup_free char *to = NULL;
	struct named *p;

	if (s && unit_is_verb(c, s->kind, s->flags)) {
		if (!settled(c))
			return 0;
		p = named_add(&c->portals, portal, portal);
		p->kind = s->kind;
		p->flags = s->flags;
		p->text = xstrdup(s->text);
		p->about = xstrdup(s->about);
		client_put(c, '2', NULL, 0);
		return 1;
	}
	if (s && renew_unnamed(c, s) == 0)
		return 0;
	to = server_name(c, portal);
	(void)named_add(&c->portals, portal, to);
	strbuf_add(&body, to, strlen(to) + 1);
	name = s ? s->server_name : name;
	strbuf_add(&body, name, strlen(name) + 1);
	strbuf_add(&body, r.at, r.left);
	forward(c, 'B', body.buf, body.len);
	return 1;
}

/* Describe and Close, of a statement or a portal. */
static int take_about(struct client *c, const struct wire_message *m)
{
	static const unsigned char no_parameters[2] = { 0 };
	struct wire_reader r = wire_read(m);
	char what = wire_char(&r);
	const char *name = wire_text(&r);
	struct named **list = what == 'S' ? &c->statements : &c->portals;
	const struct named *n = named_find(*list, name);
	cleanup_strbuf struct strbuf body = STRBUF_INIT;
	const char *to = n ? n->server_name : name;

	if (n && unit_is_verb(c, n->kind, n->flags)) {
		if (!settled(c))
			return 0;
		if (m->type == 'C')
			client_put(c, '3', NULL, 0);
		else if (what == 'S')
			client_put(c, 't', no_parameters, sizeof(no_parameters));
		if (m->type == 'D')
			client_put(c, 'n', NULL, 0);
	} else {
		if (n && what == 'S' && m->type == 'D' && renew_unnamed(c, n) == 0)
			return 0;
		strbuf_putc(&body, what);
		strbuf_add(&body, to, strlen(to) + 1);
		forward(c, m->type, body.buf, body.len);
	}
	if (m->type == 'C')
		named_drop(list, name);
	return 1;
}

static int take_execute(struct client *c, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	const char *portal = wire_text(&r);
	const struct named *p = named_find(c->portals, portal);
	cleanup_strbuf struct strbuf body = STRBUF_INIT;
	const char *to = p ? p->server_name : portal;

	if (p && unit_is_verb(c, p->kind, p->flags)) {
		cleanup_free char *text = NULL;
		cleanup_free char *about = NULL;
		struct verb v = { .flags = p->flags };

		if (!settled(c))
			return 0;
		v.text = text = xstrdup(p->text);
		v.name = about = xstrdup(p->about);
		unit_verb(c, p->kind, &v);
		return 1;
	}
	strbuf_add(&body, to, strlen(to) + 1);
	strbuf_add(&body, r.at, r.left);
	forward(c, 'E', body.buf, body.len);
	return 1;
}

/* ---- the batch ---- */

void batch_done(struct client *c)
{
	c->skip = true;
	c->in_batch = true;
}

static int end_batch(struct client *c)
{
	if (c->forwarded) {
		c->holds++;
		holder_send(c->h, c, 'S', NULL, 0);
		return 1;
	}
	c->in_batch = c->skip = c->effects = false;
	unit_end(c);
	return 1;
}

static int take(struct client *c, const struct wire_message *m)
{
	switch (m->type) {
	case 'P':
		return take_parse(c, m);
	case 'B':
		return take_bind(c, m);
	case 'D':
	case 'C':
		return take_about(c, m);
	case 'E':
		return take_execute(c, m);
	default:
		client_error(c, "08P01", "a message that is not of the protocol");
		return 1;
	}
}

/* Some clients prepare, flush, and go away for a while. As long as nothing was executed the others
 * need not wait for them. */
static int take_flush(struct client *c)
{
	if (!c->effects && c->unit != UNIT_BLOCK)
		(void)settled(c);
	else if (c->forwarded)
		holder_send(c->h, c, 'H', NULL, 0);
	return 1;
}

/* Does it take nobody but us? A client that prepares its BEGIN while another is inside a block must
 * not wait: the two may be one thread. */
static bool is_ours(struct client *c, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	const struct named *n = NULL;
	struct sql_statement s;

	if (m->type == 'P') {
		(void)wire_text(&r);
		note_text(c, wire_text(&r), &s);
		return s.kind != SQL_PLAIN;
	}
	if (m->type == 'B') {
		(void)wire_text(&r);
		n = named_find(c->statements, wire_text(&r));
	} else if (m->type == 'D' || m->type == 'C') {
		n = wire_char(&r) == 'S' ? named_find(c->statements, wire_text(&r))
		                         : named_find(c->portals, wire_text(&r));
	}
	return n && unit_is_verb(c, n->kind, n->flags);
}

int batch_take(struct client *c, const struct wire_message *m)
{
	if (!c->in_batch)
		c->errored = c->skip = false;
	c->in_batch = true;
	c->skip |= c->errored;
	if (m->type == 'S')
		return end_batch(c);
	if (c->skip)
		return 1;
	if (m->type == 'H')
		return take_flush(c);
	if (!is_ours(c, m) && !unit_begin(c))
		return 0;
	return take(c, m);
}

void batch_answer(struct client *c, const struct wire_message *m)
{
	if (m->type == 'Z') {
		c->holds--;
		c->swallow = 0;
		c->copying = c->forwarded = false;
		c->failed = c->unit == UNIT_BLOCK && c->h->status_bad;
		c->skip |= c->errored;
		if (!c->syncing) {
			c->in_batch = c->skip = c->effects = false;
			unit_end(c);
		} else if (!c->effects) {
			unit_yield(c);
		}
		c->syncing = false;
		return;
	}
	c->copying |= m->type == 'G';
	c->errored |= m->type == 'E';
	c->skip |= m->type == 'E';
	if (m->type == '1' && c->swallow > 0)
		c->swallow--;
	else
		client_pass(c, m);
}

/* A simple query in the middle: the batch ends here. */
bool batch_leave(struct client *c)
{
	if (!settled(c))
		return false;
	c->in_batch = false;
	return true;
}

/* The client is gone; the server still waits for the end. */
void batch_hang_up(struct client *c)
{
	if (c->forwarded && c->holds == 0)
		(void)settled(c);
}

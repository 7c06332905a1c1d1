/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extended protocol. Messages go to the server as they come, names made unique, answers back
 * as they come. What a message is about follows from the Parse and Bind of the names in it, and
 * is taken back when the server did not take them (names.h). Statements about the transaction are
 * answered here: before that the server is made to say all that it owes, so that answers keep
 * their order.
 */
#include "postgres/client.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

/* So much of a name the server looks at. */
#define NAME_MAX_BYTES 63

static bool has_server_name(const struct named *list, const char *name)
{
	for (; list; list = list->next)
		if (strncmp(list->server_name, name, NAME_MAX_BYTES) == 0)
			return true;
	return false;
}

static bool is_taken(const struct client *o, const char *name)
{
	return has_server_name(o->statements, name) || has_server_name(o->portals, name) ||
	       has_server_name(o->mentioned, name);
}

/* Of a name that has no room for the prefix, what the server looks at tells it from others. */
static char *own_name(const struct client *c, const char *name)
{
	char *own = xasprintf("%s_%u_%s", SQL_OURS, (unsigned)c->pid, name);
	uint64_t hash = 14695981039346656037u; /* FNV-1a */

	if (strlen(own) <= NAME_MAX_BYTES)
		return own;
	free(own);
	for (size_t i = 0; i < NAME_MAX_BYTES && name[i]; i++)
		hash = (hash ^ (unsigned char)name[i]) * 1099511628211u;
	return xasprintf("%s_%u_%016llx", SQL_OURS, (unsigned)c->pid, (unsigned long long)hash);
}

char *batch_name(const struct client *c, struct named *list, const char *name)
{
	const struct named *known = *name ? named_find(list, name) : NULL;

	if (!*name || (known && !verb_is_ours(known->verb.kind)))
		return xstrdup(known ? known->server_name : name);
	known = list == c->statements ? named_find(c->mentioned, name) : NULL;
	if (known)
		return xstrdup(known->server_name);
	for (const struct client *o = c->h->clients; o; o = o->next)
		if (o != c && is_taken(o, name))
			return own_name(c, name);
	return xstrdup(name);
}

/* A statement that was parsed keeps the name that is in it: it stands for the client's from now on. */
static void keep_mentioned(struct client *c, const struct verb *v)
{
	cleanup_free char *known = NULL;

	if (!(v->flags & SQL_MENTIONS) || !v->name || named_find(c->mentioned, v->name))
		return;
	known = batch_name(c, c->statements, v->name);
	(void)named_put(&c->mentioned, v->name, known, NULL);
}

void batch_add_text(const struct client *c, const char *text, const struct sql_statement *s,
                    size_t from, size_t to, struct strbuf *sb)
{
	if (s->flags & SQL_MENTIONS && s->name_end > s->name_start) {
		cleanup_free char *name =
			sql_name(text + s->name_start, s->name_end - s->name_start);
		cleanup_free char *known = batch_name(c, c->statements, name);

		if (strcmp(name, known) != 0) {
			strbuf_add(sb, text + from, s->name_start - from);
			settings_add_name(sb, known);
			from = s->name_end;
		}
	}
	strbuf_add(sb, text + from, to - from);
}

void batch_note_done(struct client *c, const struct verb *v)
{
	cleanup_free char *known = NULL;

	locals_note_done(c, v);
	if (v->flags & SQL_PREPARES && v->name) {
		known = batch_name(c, c->statements, v->name);
		if (!promises_put(&c->promises, &c->statements, v->name, known))
			(void)named_put(&c->statements, v->name, known, NULL);
	} else if (v->flags & SQL_HOLD && v->name) {
		(void)named_put(&c->holdable, v->name, v->name, NULL);
	} else if (v->flags & SQL_CURSOR && v->name && !named_find(c->portals, v->name)) {
		(void)named_put(&c->portals, v->name, v->name, NULL);
	}
}

static void copy_verb(struct verb *to, const struct verb *from)
{
	*to = (struct verb){ .kind = from->kind,
		             .flags = from->flags,
		             .text = xstrdup(from->text),
		             .name = xstrdup(from->name) };
}

/* ---- to the server ---- */

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

static struct promise *forward(struct client *c, char type, const void *body, size_t len)
{
	static struct promise lost;
	struct promise *p = promise_add(&c->promises, type);

	holder_send(c->h, c, type, body, len);
	if (!c->forwarded)
		holder_expect(c->h, c);
	c->forwarded = true;
	c->flushed = false;
	c->effects |= type == 'B' || type == 'E';
	if (p) {
		p->displaces = type == 'P' && len > 0 && *(const char *)body == '\0';
		p->had_unnamed = c->h->unnamed == c;
		return p;
	}
	holder_lose(c->h, "out of memory");
	lost = (struct promise){ .type = type };
	return &lost;
}

/* NAME stands for something else from now on, unless the server refuses. */
static struct named *promise_name(struct promise *p, struct named **list, const char *name,
                                  const char *server_name)
{
	p->list = list;
	p->name = xstrdup(name);
	return named_put(list, name, server_name, &p->before);
}

/* The same message, about the name that the server knows. */
static struct promise *forward_about(struct client *c, char type, char what, const char *name)
{
	cleanup_strbuf struct strbuf body = STRBUF_INIT;

	strbuf_putc(&body, what);
	strbuf_add(&body, name, strlen(name) + 1);
	return forward(c, type, body.buf, body.len);
}

/* The server has one statement without a name, and it may be another client's by now. */
static void renew_unnamed(struct client *c, const char *name, const struct named *s)
{
	if (*name || (s && c->h->unnamed == c))
		return;
	if (s)
		forward(c, 'P', s->body, s->body_len)->swallow = true;
	else
		forward_about(c, 'C', 'S', "")->swallow = true;
	c->h->unnamed = s ? c : NULL;
}

/*
 * The same in a block that has failed, where the server parses no more, but still describes what has no rows. All that
 * the block still has is its newest savepoint: back there, the statement is parsed, and the block fails again.
 */
static bool renew_failed(struct client *c, const struct named *s)
{
	const char *savepoint = locals_savepoint(c);
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	if (!settled(c))
		return false;
	strbuf_puts(&sql, "ROLLBACK TO ");
	settings_add_name(&sql, savepoint ? savepoint : HOLDER_SAVEPOINT);
	holder_ask_aside(c->h, c, strbuf_str(&sql), holder_ignore);
	holder_send(c->h, c, 'P', s->body, s->body_len);
	holder_send(c->h, c, 'S', NULL, 0);
	holder_expect(c->h, NULL);
	holder_ask_aside(c->h, c, UNIT_FAIL, holder_ignore);
	c->h->unnamed = c;
	return true;
}

/* SQL of ours in the middle of the batch; what it says is not for the client. It touches nothing without a name. */
static void forward_own(struct client *c, const char *sql)
{
#define OWN SQL_OURS "_own"
	static const char bind[] = OWN "\0" OWN "\0\0\0\0\0\0", execute[] = OWN "\0\0\0\0";
	cleanup_strbuf struct strbuf parse = STRBUF_INIT;

	strbuf_add(&parse, OWN, sizeof(OWN));
	strbuf_add(&parse, sql, strlen(sql) + 1);
	strbuf_add(&parse, "\0", 2);
	forward_about(c, 'C', 'S', OWN)->swallow = true;
	forward(c, 'P', parse.buf, parse.len)->swallow = true;
	forward(c, 'B', bind, sizeof(bind))->swallow = true;
	forward(c, 'E', execute, sizeof(execute))->swallow = true;
	forward_about(c, 'C', 'P', OWN)->swallow = true;
	forward_about(c, 'C', 'S', OWN)->swallow = true;
#undef OWN
}

/* A portal without a name that is none of the client's, but was left from before its last query. In a
 * block that has failed the server has that of the query itself. */
static void forget_unnamed_portal(struct client *c, const char *name, const struct named *p)
{
	if (!*name && !p && !c->failed)
		forward_about(c, 'C', 'P', "")->swallow = true;
}

/* ---- Parse ---- */

/* What kind of statement it is, and what its words say. Of several, the server takes none. */
static struct verb read_text(const struct client *c, const char *text, struct strbuf *ret_text)
{
	cleanup_sql struct sql sql = SQL_INIT;
	struct verb v = { .kind = SQL_ODD };

	if (sql_split(&sql, text, strlen(text), c->backslashes) < 0)
		return v;
	if (sql.n == 1)
		batch_add_text(c, text, &sql.v[0], 0, strlen(text), ret_text);
	else
		strbuf_puts(ret_text, text);
	if (sql.n == 0)
		return (struct verb){ .kind = SQL_PLAIN };
	v = verb_read(text, &sql.v[0]);
	if (sql.n > 1 && verb_is_ours(v.kind))
		v.kind = SQL_ODD;
	for (size_t i = 1; i < sql.n; i++)
		v.flags |= sql.v[i].flags;
	return v;
}

static void fail_name(struct client *c, const char *sqlstate, const char *what, const char *name,
                      const char *how)
{
	cleanup_free char *text = xasprintf("%s \"%s\" %s", what, name, how);

	unit_fail(c, sqlstate, text);
}

static int parse_own(struct client *c, const char *name, struct verb *v)
{
	if (!settled(c))
		return 0;
	/* The one before is forgotten even where this one is refused. */
	if (!*name)
		named_drop(&c->statements, name);
	if (verb_refuse_failed(c, v->kind))
		return 1;
	if (*name && named_find(c->statements, name)) {
		fail_name(c, "42P05", "prepared statement", name, "already exists");
		return 1;
	}
	named_put(&c->statements, name, "", NULL)->verb = *v;
	*v = (struct verb){ .kind = SQL_PLAIN };
	client_put(c, '1', NULL, 0);
	return 1;
}

/* The server says what is wrong with it, if anything. By no name that could be executed. */
static int parse_odd(struct client *c, const char *name, struct verb *v, const struct strbuf *body)
{
	struct promise *p = forward(c, 'P', body->buf, body->len);

	c->h->unnamed = NULL;
	promise_name(p, &c->statements, name, "")->verb = *v;
	*v = (struct verb){ .kind = SQL_PLAIN };
	return 1;
}

static int take_parse(struct client *c, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	const char *name = wire_text(&r);
	const char *text = wire_text(&r);
	cleanup_strbuf struct strbuf body = STRBUF_INIT, known = STRBUF_INIT;
	cleanup_verb struct verb v = { .kind = SQL_PLAIN };
	cleanup_free char *to = NULL;
	struct named *n;

	if (r.bad) {
		(void)forward(c, 'P', m->body, m->len);
		return 1;
	}
	v = read_text(c, text, &known);
	keep_mentioned(c, &v);
	n = *name ? named_find(c->statements, name) : NULL;
	if ((verb_is_ours(v.kind) && v.kind != SQL_ODD) || (n && verb_is_ours(n->verb.kind)))
		return parse_own(c, name, &v);
	to = v.kind == SQL_ODD ? xstrdup("") : batch_name(c, c->statements, name);
	strbuf_add(&body, to, strlen(to) + 1);
	strbuf_add(&body, strbuf_str(&known), known.len + 1);
	strbuf_add(&body, r.at, r.left);
	if (v.kind == SQL_ODD)
		return parse_odd(c, name, &v, &body);
	n = promise_name(forward(c, 'P', body.buf, body.len), &c->statements, name, to);
	n->verb = v;
	v = (struct verb){ .kind = SQL_PLAIN };
	if (!*name) {
		n->body_len = body.len;
		n->body = strbuf_take(&body);
		c->h->unnamed = c;
	}
	return 1;
}

/* ---- Bind ---- */

static int bind_own(struct client *c, const struct named *s, const char *portal,
                    struct wire_reader *r)
{
	uint16_t formats, values;

	if (!settled(c))
		return 0;
	if (verb_refuse_failed(c, s->verb.kind))
		return 1;
	for (formats = wire_u16(r); formats > 0 && !r->bad; formats--)
		(void)wire_u16(r);
	values = wire_u16(r);
	if (values > 0) {
		cleanup_free char *text =
			xasprintf("bind message supplies %u parameters, but prepared statement "
		                  "\"%s\" requires 0",
		                  (unsigned)values, s->name);

		unit_fail(c, "08P01", text);
	} else if (*portal && named_find(c->portals, portal)) {
		fail_name(c, "42P03", "cursor", portal, "already exists");
	} else {
		copy_verb(&named_put(&c->portals, portal, "", NULL)->verb, &s->verb);
		client_put(c, '2', NULL, 0);
	}
	return 1;
}

static int take_bind(struct client *c, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	const char *portal = wire_text(&r);
	const char *name = wire_text(&r);
	const struct named *s = named_find(c->statements, name);
	cleanup_strbuf struct strbuf body = STRBUF_INIT;
	cleanup_free char *to = NULL, *from = NULL;
	struct named *p;

	if (s && verb_is_ours(s->verb.kind))
		return bind_own(c, s, portal, &r);
	p = *portal && s ? named_find(c->portals, portal) : NULL;
	if (p && verb_is_ours(p->verb.kind)) {
		if (!settled(c))
			return 0;
		fail_name(c, "42P03", "cursor", portal, "already exists");
		return 1;
	}
	renew_unnamed(c, name, s);
	to = batch_name(c, c->portals, portal);
	from = batch_name(c, c->statements, name);
	strbuf_add(&body, to, strlen(to) + 1);
	strbuf_add(&body, from, strlen(from) + 1);
	strbuf_add(&body, r.at, r.left);
	p = promise_name(forward(c, 'B', body.buf, body.len), &c->portals, portal, to);
	if (s)
		copy_verb(&p->verb, &s->verb);
	return 1;
}

/* ---- Describe and Close, of a statement or a portal ---- */

static int about_own(struct client *c, const struct wire_message *m, char what, struct named **list,
                     const char *name)
{
	static const unsigned char no_parameters[2] = { 0 };

	if (!settled(c))
		return 0;
	if (m->type == 'C') {
		client_put(c, '3', NULL, 0);
		named_drop(list, name);
		return 1;
	}
	if (what == 'S')
		client_put(c, 't', no_parameters, sizeof(no_parameters));
	client_put(c, 'n', NULL, 0);
	return 1;
}

static int take_about(struct client *c, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	char what = wire_char(&r);
	const char *name = wire_text(&r);
	struct named **list = what == 'S' ? &c->statements : &c->portals;
	const struct named *n = named_find(*list, name);
	cleanup_free char *to = NULL;
	struct promise *p;

	if (r.bad || (what != 'S' && what != 'P')) {
		(void)forward(c, m->type, m->body, m->len);
		return 1;
	}
	if (n && verb_is_ours(n->verb.kind))
		return about_own(c, m, what, list, name);
	if (what == 'S' && m->type == 'D' && !*name && n && c->failed && c->h->unnamed != c) {
		if (!renew_failed(c, n))
			return 0;
	} else if (what == 'S' && m->type == 'D') {
		renew_unnamed(c, name, n);
	}
	if (what == 'P' && m->type == 'D')
		forget_unnamed_portal(c, name, n);
	to = batch_name(c, *list, name);
	p = forward_about(c, m->type, what, to);
	if (m->type != 'C')
		return 1;
	promise_name(p, list, name, to);
	named_drop(list, name);
	if (what == 'S' && !*name)
		c->h->unnamed = NULL;
	return 1;
}

/* ---- Execute ---- */

static int execute_here(struct client *c, struct named *p)
{
	cleanup_verb struct verb v = { .kind = SQL_PLAIN };

	if (!settled(c))
		return 0;
	if (verb_refuse_failed(c, p->verb.kind))
		return 1;
	if (p->spent) {
		fail_name(c, "55000", "portal", p->name, "cannot be run");
		return 1;
	}
	p->spent = true;
	c->effects = true;
	copy_verb(&v, &p->verb);
	verb_run(c, &v);
	return 1;
}

static int take_execute(struct client *c, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	const char *portal = wire_text(&r);
	struct named *p = named_find(c->portals, portal);
	cleanup_strbuf struct strbuf body = STRBUF_INIT;
	cleanup_free char *to = NULL;
	const char *const *stay;
	struct promise *sent;
	size_t n;

	if (p && verb_is_run_here(c, p->verb.kind, p->verb.flags))
		return execute_here(c, p);
	if (p && verb_has_prelude(p->verb.kind, p->verb.flags)) {
		if (!settled(c))
			return 0;
		verb_prelude(c, &p->verb);
	}
	forget_unnamed_portal(c, portal, p);
	to = batch_name(c, c->portals, portal);
	strbuf_add(&body, to, strlen(to) + 1);
	strbuf_add(&body, r.at, r.left);
	sent = forward(c, 'E', body.buf, body.len);
	c->executed = true;
	if (!p)
		return 1;
	verb_note(c, &p->verb);
	if (p->verb.flags & (SQL_PREPARES | SQL_CURSOR) || p->verb.kind == SQL_SAVEPOINT ||
	    c->locals)
		copy_verb(&sent->verb, &p->verb);
	sent->copy = p->verb.flags & SQL_COPY;
	c->copies += sent->copy;
	c->copy_over = false;
	n = verb_stay(c, p->verb.flags, &stay);
	for (size_t i = 0; i < n; i++)
		forward_own(c, stay[i]);
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
	default:
		return take_execute(c, m);
	}
}

static void flush(struct client *c)
{
	if (!c->flushed)
		holder_send(c->h, c, 'H', NULL, 0);
	c->flushed = true;
}

/* Some clients prepare, flush, and go away for a while. As long as nothing was executed the others
 * need not wait for them. */
static int take_flush(struct client *c)
{
	if (!c->effects && c->unit != UNIT_BLOCK)
		(void)settled(c);
	else if (c->forwarded)
		flush(c);
	return 1;
}

/*
 * While data for a COPY come, the server passes over Sync and Flush. Until it has said whether a COPY
 * takes data, it is unknown whether it would hear what follows, or a Sync of ours.
 */
bool batch_must_wait(struct client *c)
{
	if (c->copies > 0)
		flush(c);
	return c->copies > 0;
}

/* Does it take nobody but us? A client that prepares its BEGIN while another is inside a block must
 * not wait: the two may be one thread. */
static bool is_ours(struct client *c, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	const struct named *n = NULL;

	if (m->type == 'P') {
		cleanup_strbuf struct strbuf known = STRBUF_INIT;
		cleanup_verb struct verb v = { .kind = SQL_PLAIN };

		(void)wire_text(&r);
		v = read_text(c, wire_text(&r), &known);
		return verb_is_ours(v.kind) && v.kind != SQL_ODD;
	}
	if (m->type == 'B') {
		(void)wire_text(&r);
		n = named_find(c->statements, wire_text(&r));
	} else if (m->type == 'D' || m->type == 'C') {
		n = wire_char(&r) == 'S' ? named_find(c->statements, wire_text(&r))
		                         : named_find(c->portals, wire_text(&r));
	}
	return n && verb_is_ours(n->verb.kind);
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
	if (c->h->owner != c && is_ours(c, m))
		return take(c, m);
	if (!unit_begin(c))
		return 0;
	return take(c, m);
}

/* ---- answers ---- */

static void take_ready(struct client *c)
{
	c->holds--;
	c->copying = c->forwarded = c->in_part = false;
	c->copies = 0;
	promises_done(&c->promises);
	c->failed = c->unit == UNIT_BLOCK && c->h->status_bad;
	c->skip |= c->errored;
	if (!c->syncing) {
		c->in_batch = c->skip = c->effects = false;
		unit_end(c);
	} else if (!c->effects) {
		unit_yield(c);
	}
	c->syncing = false;
}

static void take_error(struct client *c, const struct wire_message *m)
{
	c->errored = c->skip = true;
	c->copying = false;
	c->copies = 0;
	c->h->unnamed = promises_break(&c->promises, c->h->unnamed == c) ? c : NULL;
	client_pass_error(c, m, 0);
}

/* Is it the answer to a message of that type? */
static bool answers(char answer, char message)
{
	switch (message) {
	case 'P':
		return answer == '1';
	case 'B':
		return answer == '2';
	case 'C':
		return answer == '3';
	case 'D':
		return answer == 'T' || answer == 'n';
	default:
		return answer == 'C' || answer == 'I' || answer == 's';
	}
}

void batch_answer(struct client *c, const struct wire_message *m)
{
	const struct promise *p = promise_next(&c->promises);
	bool swallow = false;

	if (m->type == 'Z') {
		take_ready(c);
		return;
	}
	if (m->type == 'E') {
		take_error(c, m);
		return;
	}
	if (m->type == 'G')
		c->copying = !c->copy_over;
	if (p && answers(m->type, p->type)) {
		swallow = p->swallow;
		c->in_part = m->type == 's' || (c->in_part && p->type != 'E');
		batch_note_done(c, &p->verb);
		c->copies -= p->copy;
		c->copying &= !p->copy;
		promise_keep(&c->promises);
	}
	if (!swallow)
		client_pass(c, m);
}

/* A simple query in the middle: the batch ends here, but for one that has failed: that goes on to its
 * Sync. Behind a portal that was executed in part none is sent, by which the query would see what that has
 * changed; but in a block that had failed, and behind a SET, since what became of these is said at a Sync. */
bool batch_leave(struct client *c)
{
	if (c->forwarded && !c->syncing && promise_next(&c->promises)) {
		flush(c);
		return false;
	}
	if (c->forwarded && !c->syncing && !c->errored && c->in_part && !c->failed && !c->sets) {
		holder_expect_no_more(c->h);
		c->forwarded = c->effects = c->in_part = false;
	}
	if (!settled(c))
		return false;
	c->in_batch = c->skip || c->errored;
	return true;
}

/* The client is gone; the server still waits for the end. */
void batch_hang_up(struct client *c)
{
	if (!c->forwarded || c->holds > 0)
		return;
	if (c->copies > 0)
		holder_send(c->h, c, 'f', "the client is gone", sizeof("the client is gone"));
	(void)settled(c);
}

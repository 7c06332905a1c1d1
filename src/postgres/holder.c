/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of the holder: questions, answers, and whose they are. */
#include "postgres/holder.h"

#include "postgres/client.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define READ_SIZE (128u << 10)
/* A word in the server's log, and nowhere else. */
#define NOTE "pg_catalog.pg_logical_emit_message(true, 'atoll', '')"
/* It has its number from the beginning: what it changes has that or a greater one. */
#define BEGIN \
	"BEGIN ISOLATION LEVEL REPEATABLE READ, READ WRITE; SELECT pg_catalog.txid_current(), " NOTE

/* What the server has not written down it forgets when it dies, numbers of transactions included, and
 * gives them out again; what became of that number would then say nothing of ours. So the log is on disk
 * up to where it has the number, before anybody counts on it: whoever commits brings it there. */
static int pin_number(const char *url, struct error *err)
{
	cleanup_backend struct backend *b = NULL;
	int r = backend_connect(url, &b, err);

	return r < 0 ? r
	             : backend_run(b, "SET synchronous_commit = local; SELECT " NOTE, NULL, err);
}

int holder_open(struct holder *h, const char *url, struct error *err)
{
	cleanup_free char *deferrable = NULL;
	int r;

	*h = (struct holder){ .last = &h->first,
		              .next_pid = 1,
		              .wait_ms = HOLDER_WAIT_MS,
		              .url = url };
	r = backend_connect(url, &h->b, err);
	if (r == 0)
		r = backend_run(h->b, BEGIN, &h->xid, err);
	if (r == 0)
		r = backend_run(h->b,
		                "SELECT 1 FROM pg_catalog.pg_constraint WHERE condeferred LIMIT 1",
		                &deferrable, err);
	if (r == 0)
		r = baseline_read(&h->before, h->b, err);
	if (r == 0)
		r = pin_number(url, err);
	if (r < 0)
		return r;
	h->deferrable = deferrable != NULL;
	backend_raw(h->b);
	return 0;
}

static void free_item(struct item *i)
{
	wire_buf_done(&i->error);
	free(i->value);
	free(i);
}

void holder_done(struct holder *h)
{
	while (h->clients)
		client_free(h->clients);
	while (h->first) {
		struct item *i = h->first;

		h->first = i->next;
		free_item(i);
	}
	wire_buf_done(&h->in);
	wire_buf_done(&h->out);
	baseline_done(&h->before);
	listeners_done(&h->listeners);
	backend_free(h->b);
	free(h->xid);
	free(h->gone);
}

void holder_lose(struct holder *h, const char *why)
{
	if (h->gone || h->finished)
		return;
	h->gone = xstrdup(why);
	for (struct client *c = h->clients; c; c = client_next(c))
		client_lost(c, why);
}

/* "committed", "aborted" or "in progress"; NULL when the server cannot say. */
static char *ask_what_became(const struct holder *h)
{
	cleanup_backend struct backend *b = NULL;
	cleanup_error struct error err = ERROR_INIT;
	cleanup_free char *sql = xasprintf("SELECT pg_catalog.txid_status(%s)", h->xid);
	char *status = NULL;

	if (backend_connect(h->url, &b, &err) == 0)
		(void)backend_run(b, sql, &status, &err);
	return status;
}

void holder_check_lost(struct holder *h, const char *why)
{
	cleanup_free char *status = h->gone || h->finished ? NULL : ask_what_became(h);

	if (!status || strcmp(status, "in progress") == 0)
		holder_lose(h, why);
	else if (strcmp(status, "committed") == 0)
		holder_lose(h, "a statement committed it past atoll: what it changed is in the "
		               "database");
	else
		holder_lose(h, "a statement rolled it back: nothing of it is in the database");
}

/* ---- asking ---- */

static struct item *push(struct holder *h, struct client *c, bool forward, answer_fn done)
{
	struct item *i = xcalloc(1, sizeof(*i));

	*i = (struct item){ .c = c, .forward = forward, .done = done };
	*h->last = i;
	h->last = &i->next;
	return i;
}

void holder_send(struct holder *h, struct client *c, char type, const void *body, size_t len)
{
	(void)c;
	if (wire_put(&h->out, type, body, len) < 0)
		holder_lose(h, "out of memory");
}

void holder_expect(struct holder *h, struct client *c)
{
	(void)push(h, c, true, NULL);
}

void holder_ask(struct holder *h, struct client *c, const char *sql, answer_fn done)
{
	(void)push(h, c, false, done);
	h->unnamed = NULL; /* a simple query ends the unnamed statement */
	holder_send(h, c, 'Q', sql, strlen(sql) + 1);
}

void holder_ask_aside(struct holder *h, struct client *c, const char *sql, answer_fn done)
{
#define ASIDE SQL_OURS "_aside"
	static const char statement[] = "S" ASIDE, portal[] = "P" ASIDE;
	static const char bind[] = ASIDE "\0" ASIDE "\0\0\0\0\0\0", execute[] = ASIDE "\0\0\0\0";
	cleanup_strbuf struct strbuf parse = STRBUF_INIT;

	strbuf_add(&parse, ASIDE, sizeof(ASIDE));
	strbuf_add(&parse, sql, strlen(sql) + 1);
	strbuf_add(&parse, "\0", 2);
	(void)push(h, c, false, done);
	/* Of one that failed they are left. */
	holder_send(h, c, 'C', portal, sizeof(portal));
	holder_send(h, c, 'C', statement, sizeof(statement));
	holder_send(h, c, 'P', parse.buf, parse.len);
	holder_send(h, c, 'B', bind, sizeof(bind));
	holder_send(h, c, 'E', execute, sizeof(execute));
	holder_send(h, c, 'C', portal, sizeof(portal));
	holder_send(h, c, 'C', statement, sizeof(statement));
	holder_send(h, c, 'S', NULL, 0);
#undef ASIDE
}

void holder_ignore(struct client *c, const struct answer *a)
{
	(void)c;
	(void)a;
}

void holder_savepoint(struct holder *h)
{
	cleanup_free char *sql = NULL;

	if (h->fresh)
		return;
	/* The end of a transaction closes cursors, also those that its functions have opened. */
	sql = xasprintf("%s%sSAVEPOINT " HOLDER_SAVEPOINT, h->held ? "" : "CLOSE ALL;",
	                h->savepoint ? "RELEASE " HOLDER_SAVEPOINT ";" : "");
	holder_ask(h, NULL, sql, NULL);
	h->savepoint = h->fresh = true;
}

void holder_rollback(struct holder *h)
{
	holder_ask(h, NULL, HOLDER_ROLLBACK, NULL);
	h->fresh = true;
}

void holder_forget(struct holder *h, struct client *c)
{
	for (struct item *i = h->first; i; i = i->next)
		if (i->c == c)
			i->c = NULL;
	if (h->owner == c)
		h->owner = NULL;
	if (h->unnamed == c)
		h->unnamed = NULL;
	if (h->settings == c)
		h->settings = NULL;
}

bool holder_idle(const struct holder *h)
{
	return !h->first && !h->owner;
}

/* ---- answers ---- */

static void keep_value(struct item *i, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	uint16_t n = wire_u16(&r);
	uint32_t len = n > 0 ? wire_u32(&r) : UINT32_MAX;

	if (!i->has_row && !r.bad && len <= r.left)
		i->value = xstrndup((const char *)r.at, len);
	i->has_row = true;
}

/* The end of a statement of the holder's own. */
static void finish_own(struct holder *h, struct item *i)
{
	struct wire_message m;
	struct answer a = { .ok = wire_buf_left(&i->error) == 0, .value = i->value };

	if (!a.ok && wire_peek(&i->error, "", &m) == 1)
		a.error = &m;
	if (i->done && i->c)
		i->done(i->c, &a);
	else if (!a.ok && !i->done)
		holder_check_lost(h, a.error ? wire_error_field(a.error, 'M')
		                             : "the server answered oddly");
}

static void take_own(struct item *i, const struct wire_message *m)
{
	if (m->type == 'E' && wire_buf_left(&i->error) == 0 && !m->partial)
		(void)wire_put(&i->error, 'E', m->body, m->len);
	else if (m->type == 'D')
		keep_value(i, m);
	else if (m->type == 'S' && i->c)
		client_parameter(i->c, m);
	else if (m->type == 'N' && i->c)
		client_pass(i->c, m);
}

static bool is_fatal(const struct wire_message *m)
{
	const char *severity = m->type == 'E' ? wire_error_field(m, 'V') : "";

	return strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0;
}

/* No statement of a client has such a tag, but one that ends the transaction. */
static bool is_commit(const struct wire_message *m)
{
	static const char *const tags[] = { "COMMIT", "PREPARE TRANSACTION" };
	struct wire_reader r = wire_read(m);
	const char *tag = m->type == 'C' ? wire_text(&r) : "";

	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++)
		if (strcmp(tag, tags[i]) == 0)
			return true;
	return false;
}

static struct item *take_first(struct holder *h)
{
	struct item *i = h->first;

	h->first = i->next;
	if (!h->first)
		h->last = &h->first;
	return i;
}

void holder_expect_no_more(struct holder *h)
{
	free_item(take_first(h));
}

static void take_message(struct holder *h, const struct wire_message *m)
{
	struct item *i = h->first;

	if (is_fatal(m)) {
		holder_lose(h, wire_error_field(m, 'M'));
		return;
	}
	if (!i)
		return; /* a notice, or a setting changed by the administrator */
	if (is_commit(m)) {
		holder_check_lost(h, "a statement ended the transaction");
		return;
	}
	if (m->type != 'Z') {
		if (!i->forward)
			take_own(i, m);
		else if (i->c)
			client_answer(i->c, m);
		return;
	}
	h->status_bad = m->len > 0 && m->body[0] == 'E';
	(void)take_first(h);
	if (m->len > 0 && m->body[0] == 'I')
		holder_check_lost(h, "a statement ended the transaction");
	else if (!i->forward)
		finish_own(h, i);
	else if (i->c)
		client_answer(i->c, m);
	free_item(i);
}

static void pass_stream(struct holder *h)
{
	size_t n = wire_buf_left(&h->in) < h->stream_left ? wire_buf_left(&h->in) : h->stream_left;
	struct item *i = h->first;

	if (i && i->forward && i->c)
		client_stream(i->c, h->in.v + h->in.off, n);
	h->in.off += n;
	h->stream_left -= n;
}

static void take_messages(struct holder *h)
{
	struct wire_message m;
	int r;

	while (!h->gone && wire_buf_left(&h->in) > 0) {
		if (h->stream_left > 0) {
			pass_stream(h);
			continue;
		}
		/* The answer to a statement of the holder's own is read as a whole. */
		r = wire_peek(&h->in, h->first && h->first->forward ? "Dd" : "", &m);
		if (r < 0)
			holder_lose(h, "the server speaks another protocol");
		if (r <= 0)
			return;
		take_message(h, &m);
		h->stream_left = m.partial ? m.missing : 0;
		wire_skip(&h->in, &m);
	}
}

void holder_read(struct holder *h)
{
	static unsigned char buf[READ_SIZE];
	ssize_t n;

	do {
		n = backend_read(h->b, buf, sizeof(buf));
		if (n > 0 && wire_add(&h->in, buf, (size_t)n) < 0)
			n = -ENOMEM;
		take_messages(h);
	} while (n > 0 && !h->gone && backend_has_more(h->b));
	if (n == 0 || (n < 0 && n != -EAGAIN))
		holder_lose(h, "the connection to the server was lost");
}

void holder_write(struct holder *h)
{
	while (wire_buf_left(&h->out) > 0 && !h->gone) {
		ssize_t n = backend_write(h->b, h->out.v + h->out.off, wire_buf_left(&h->out));

		if (n == -EAGAIN)
			return;
		if (n <= 0)
			holder_lose(h, "the connection to the server was lost");
		else
			h->out.off += (size_t)n;
	}
}

/* ---- asking and waiting ---- */

struct now {
	backend_row_fn rows;
	void *user;
	char *tag;
	struct error *err;
	int r;
};

static void now_row(struct now *now, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	uint16_t n = wire_u16(&r);
	char **columns = xcalloc((size_t)n + 1, sizeof(*columns));

	for (uint16_t i = 0; i < n && !r.bad; i++) {
		uint32_t len = wire_u32(&r);

		if (len == UINT32_MAX || len > r.left) {
			columns[i] = xstrdup("");
			continue;
		}
		columns[i] = xstrndup((const char *)r.at, len);
		r.at += len;
		r.left -= len;
	}
	if (now->rows && !r.bad)
		now->rows(now->user, n, (const char *const *)columns);
	for (uint16_t i = 0; i < n; i++)
		free(columns[i]);
	free(columns);
}

static void now_message(struct now *now, const struct wire_message *m)
{
	if (m->type == 'D') {
		now_row(now, m);
	} else if (m->type == 'C') {
		free(now->tag);
		now->tag = xstrdup((const char *)m->body);
	} else if (m->type == 'E' && now->r == 0) {
		now->r = error_set(now->err, -ATOLL_E_CANNOT_PREPARE, "%s",
		                   wire_error_field(m, 'M'));
		error_cause(now->err, "postgres", NULL, 0, wire_error_field(m, 'C'));
	}
}

/* 1: ReadyForQuery came. */
static int now_take(struct holder *h, struct now *now)
{
	struct wire_message m;

	while (wire_peek(&h->in, "", &m) == 1) {
		bool ready = m.type == 'Z';

		now_message(now, &m);
		wire_skip(&h->in, &m);
		if (ready)
			return 1;
	}
	return 0;
}

static int now_read(struct holder *h)
{
	static unsigned char buf[READ_SIZE];
	struct pollfd p = { .fd = backend_fd(h->b), .events = POLLIN };
	ssize_t n;

	if (wire_buf_left(&h->out) > 0)
		p.events |= POLLOUT;
	if (!backend_has_more(h->b) && poll(&p, 1, -1) < 0 && errno != EINTR)
		return -errno;
	holder_write(h);
	n = backend_read(h->b, buf, sizeof(buf));
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return -EPIPE;
	return wire_add(&h->in, buf, (size_t)n);
}

int holder_ask_now(struct holder *h, const char *sql, backend_row_fn rows, void *user,
                   char **ret_tag, struct error *err)
{
	struct now now = { .rows = rows, .user = user, .err = err };
	int r = 0;

	h->unnamed = NULL;
	h->fresh = false;
	holder_send(h, NULL, 'Q', sql, strlen(sql) + 1);
	while (r == 0 && !h->gone) {
		r = now_read(h);
		if (r == 0)
			r = now_take(h, &now);
	}
	if (r < 0 || h->gone) {
		free(now.tag);
		if (now.r == 0)
			(void)error_set(err, -EPIPE, "the connection to the server was lost");
		holder_lose(h, "the connection to the server was lost");
		return -EPIPE;
	}
	if (ret_tag && now.r == 0)
		*ret_tag = now.tag;
	else
		free(now.tag);
	return now.r;
}

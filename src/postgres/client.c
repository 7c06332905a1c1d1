/* SPDX-License-Identifier: Apache-2.0 */
/* A client's connection: start-up, messages in, messages out. */
#include "postgres/client.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/random.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PROTOCOL_3     196608u
#define CANCEL_REQUEST 80877102u
#define SSL_REQUEST    80877103u
#define GSSENC_REQUEST 80877104u
#define READ_SIZE      (64u << 10)
#define UNSTARTED_MAX  16384 /* bytes of a client that is not in yet */
/* What an authentication message asks for or says. */
#define AUTHENTICATION_SASL      10u
#define AUTHENTICATION_SASL_MORE 11u
#define AUTHENTICATION_SASL_END  12u

/* What a server tells every client at its start, if it has it. */
static const char *const reported[] = {
	"application_name",
	"client_encoding",
	"DateStyle",
	"default_transaction_read_only",
	"in_hot_standby",
	"integer_datetimes",
	"IntervalStyle",
	"is_superuser",
	"scram_iterations", /* 16 and later */
	"search_path",      /* 18 and later */
	"server_encoding",
	"server_version",
	"session_authorization",
	"standard_conforming_strings",
	"TimeZone",
};
#define N_REPORTED (sizeof(reported) / sizeof(reported[0]))

struct client *client_new(struct holder *h, int fd)
{
	struct client *c = xcalloc(1, sizeof(*c));

	c->h = h;
	c->fd = fd;
	c->pid = h->next_pid++;
	random_bytes(&c->key, sizeof(c->key));
	c->next = h->clients;
	h->clients = c;
	return c;
}

struct client *client_next(const struct client *c)
{
	return c->next;
}

static void unlink_client(struct client *c)
{
	struct client **at = &c->h->clients;

	while (*at && *at != c)
		at = &(*at)->next;
	if (*at)
		*at = c->next;
}

void client_free(struct client *c)
{
	unlink_client(c);
	holder_forget(c->h, c);
	if (c->fd >= 0)
		(void)close(c->fd);
	wire_buf_done(&c->in);
	wire_buf_done(&c->out);
	wire_buf_done(&c->held);
	scram_proof_done(&c->proof);
	named_clear(&c->statements);
	named_clear(&c->portals);
	named_clear(&c->mentioned);
	named_clear(&c->holdable);
	settings_clear(&c->settings);
	settings_clear(&c->startup);
	settings_clear(&c->customs);
	locals_clear(c);
	sql_done(&c->sql);
	free(c->script);
	promises_done(&c->promises);
	settings_clear(&c->reported);
	settings_clear(&c->changed);
	free(c);
}

/* The server waits for the rest of a long message that will never come. True when it has it all. */
static bool fill_stream(struct client *c)
{
	static const unsigned char nothing[READ_SIZE] = { 0 };

	while (c->stream_pass && c->stream_left > 0) {
		size_t n = c->stream_left < sizeof(nothing) ? c->stream_left : sizeof(nothing);

		if (wire_buf_left(&c->h->out) >= WIRE_HIGH)
			return false;
		if (wire_add(&c->h->out, nothing, n) < 0)
			holder_lose(c->h, "out of memory");
		c->stream_left -= n;
	}
	return true;
}

bool client_reap(struct client *c)
{
	struct holder *h = c->h;

	if (c->closing && wire_buf_left(&c->out) == 0)
		c->dead = true;
	if (!c->dead || !fill_stream(c))
		return false;
	if (c->copying && c->in_script) {
		holder_send(h, c, 'f', "the client is gone", sizeof("the client is gone"));
		c->copying = false;
	}
	batch_hang_up(c);
	if (c->holds > 0 && !h->gone) {
		/* Nobody will read what it asked for. */
		c->cancel |= !c->cancelled && h->owner == c;
		c->cancelled = true;
		client_cancel(h);
		return false;
	}
	unit_close(c);
	client_free(c);
	return true;
}

/* ---- what is said to it ---- */

void client_put(struct client *c, char type, const void *body, size_t len)
{
	if (!c->dead && wire_put(&c->out, type, body, len) < 0)
		c->dead = true;
}

void client_pass(struct client *c, const struct wire_message *m)
{
	unsigned char head[WIRE_HEADER] = { (unsigned char)m->type };

	if (c->dead)
		return;
	wire_store_u32(head + 1, (uint32_t)(m->len + m->missing) + 4);
	if (wire_add(&c->out, head, sizeof(head)) < 0 || wire_add(&c->out, m->body, m->len) < 0)
		c->dead = true;
}

/* Without the prefix of names that are in use by another client, too. */
static void add_text(struct strbuf *sb, const char *text, const char *prefix)
{
	const char *found;

	while ((found = strstr(text, prefix)) != NULL) {
		strbuf_add(sb, text, (size_t)(found - text));
		text = found + strlen(prefix);
	}
	strbuf_add(sb, text, strlen(text) + 1);
}

void client_pass_error(struct client *c, const struct wire_message *m, long shift)
{
	cleanup_free char *prefix = xasprintf("%s_%u_", SQL_OURS, (unsigned)c->pid);
	cleanup_strbuf struct strbuf body = STRBUF_INIT;
	struct wire_reader r = wire_read(m);

	for (char field = wire_char(&r); field && !r.bad; field = wire_char(&r)) {
		const char *text = wire_text(&r);
		cleanup_free char *position = NULL;

		if (field == 'P')
			text = position = xasprintf("%ld", strtol(text, NULL, 10) + shift);
		strbuf_putc(&body, field);
		add_text(&body, text, prefix);
	}
	strbuf_putc(&body, '\0');
	client_put(c, m->type, body.buf, body.len);
}

void client_stream(struct client *c, const void *data, size_t len)
{
	if (!c->dead && wire_add(&c->out, data, len) < 0)
		c->dead = true;
}

void client_tag(struct client *c, const char *tag)
{
	if (script_hold_tag(c, tag))
		return;
	client_put(c, 'C', tag, strlen(tag) + 1);
}

void client_error(struct client *c, const char *sqlstate, const char *message)
{
	c->errored = true;
	if (!c->dead)
		(void)wire_put_error(&c->out, "ERROR", sqlstate, message, NULL);
}

void client_warn(struct client *c, const char *sqlstate, const char *message)
{
	if (!c->dead)
		(void)wire_put_error(&c->out, "WARNING", sqlstate, message, NULL);
}

static void report(struct client *c, const char *name, const char *value)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	strbuf_add(&sb, name, strlen(name) + 1);
	strbuf_add(&sb, value, strlen(value) + 1);
	client_put(c, 'S', sb.buf, sb.len);
	settings_add(&c->reported, name, value);
}

/* As the server does, just before it is ready; but what was so only as long as another client's settings
 * were in effect is not news. */
static void report_changed(struct client *c)
{
	for (const struct setting *s = c->changed; s; s = s->next) {
		const char *known = settings_get(c->reported, s->name);

		if (!known || strcmp(known, s->value) != 0)
			report(c, s->name, s->value);
	}
	settings_clear(&c->changed);
}

void client_ready(struct client *c)
{
	char status = 'I';

	c->cancel = false;

	if (c->unit == UNIT_BLOCK)
		status = c->failed ? 'E' : 'T';
	report_changed(c);
	if (!c->dead)
		(void)wire_put_ready(&c->out, status);
}

void client_refuse(struct client *c, const char *sqlstate, const char *message, const char *hint)
{
	(void)wire_put_error(&c->out, "FATAL", sqlstate, message, hint);
	c->closing = true;
}

void client_lost(struct client *c, const char *why)
{
	cleanup_free char *text = xasprintf("the sandbox's transaction is gone: %s", why);

	if (!c->dead && !c->closing)
		client_refuse(c, "57P01", text, "atoll discard begins again");
}

/* ---- start-up ---- */

static void say_hello(struct client *c)
{
	for (const struct setting *s = c->startup; s; s = s->next)
		settings_add(&c->settings, s->name, s->value);

	static const unsigned char authentication_ok[4] = { 0 };
	unsigned char key[8];

	client_put(c, 'R', authentication_ok, sizeof(authentication_ok));
	for (size_t i = 0; i < N_REPORTED; i++) {
		const char *servers = backend_parameter(c->h->b, reported[i]);
		const char *own = settings_get(c->startup, reported[i]);

		if (servers)
			report(c, reported[i], own ? own : servers);
	}
	wire_store_u32(key, c->pid);
	wire_store_u32(key + 4, c->key);
	client_put(c, 'K', key, sizeof(key));
	client_ready(c);
	c->started = true;
}

static void add_startup(struct client *c, const char *name, const char *value)
{
	if (!verb_is_limit(name))
		settings_add(&c->startup, name, value);
}

/* "-c name=value --name=value": what libpq sends of PGOPTIONS. */
static void add_options(struct client *c, const char *options)
{
	cleanup_free char *text = xstrdup(options);
	char *save = NULL;

	for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		char *equals;

		if (strcmp(w, "-c") == 0)
			continue;
		w += strncmp(w, "--", 2) == 0 || strncmp(w, "-c", 2) == 0 ? 2 : 0;
		equals = strchr(w, '=');
		if (!equals)
			continue;
		*equals = '\0';
		for (char *p = w; *p; p++)
			if (*p == '-')
				*p = '_';
		add_startup(c, w, equals + 1);
	}
}

/* True when it may come in. */
static bool take_parameters(struct client *c, struct wire_reader *r)
{
	const char *user = "", *database = NULL;

	for (const char *name = wire_text(r); *name && !r->bad; name = wire_text(r)) {
		const char *value = wire_text(r);

		if (strcmp(name, "user") == 0)
			user = value;
		else if (strcmp(name, "database") == 0)
			database = value;
		else if (strcmp(name, "options") == 0)
			add_options(c, value);
		else if (strcmp(name, "replication") != 0 && strncmp(name, "_pq_.", 5) != 0)
			add_startup(c, name, value);
		else if (strcmp(name, "replication") == 0 && strcmp(value, "false") != 0)
			r->bad = true;
	}
	if (r->bad) {
		client_refuse(c, "08P01", "this start-up message is not for a sandbox", NULL);
	} else if (strcmp(user, backend_user(c->h->b)) != 0) {
		client_refuse(c, "28000", "the sandbox's transaction belongs to another role",
		              "PGUSER names it");
	} else if (strcmp(database ? database : user, backend_database(c->h->b)) != 0) {
		client_refuse(c, "3D000", "the sandbox holds another database",
		              "PGDATABASE names it");
	}
	return !c->closing;
}

static void cancel(struct client *c, struct wire_reader *r)
{
	uint32_t pid = wire_u32(r), key = wire_u32(r);

	for (struct client *o = c->h->clients; o; o = o->next) {
		if (o->pid != pid || o->key != key || r->bad)
			continue;
		if (o->wait_until) {
			o->wait_until = 1;
			continue;
		}
		o->cancel = c->h->owner == o && (o->holds > 0 || o->forwarded);
	}
	c->closing = true;
}

/* Only while the server is at the client's own work: a cancel that hits a savepoint of ours would
 * lose the transaction. When the request has arrived it can hit nothing that is sent later. */
void client_cancel(struct holder *h)
{
	struct client *o = h->owner;

	if (!o || !o->cancel || !h->first || !h->first->forward || h->first->c != o)
		return;
	o->cancel = false;
	backend_cancel(h->b);
}

/* ---- the password, where one is asked for ---- */

static void put_authentication(struct client *c, uint32_t what, const void *data, size_t len)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	unsigned char number[4];

	wire_store_u32(number, what);
	strbuf_add(&sb, number, sizeof(number));
	strbuf_add(&sb, data, len);
	client_put(c, 'R', sb.buf, sb.len);
}

static void ask_proof(struct client *c)
{
	static const char mechanisms[] = SCRAM_MECHANISM "\0";

	c->proving = true;
	put_authentication(c, AUTHENTICATION_SASL, mechanisms, sizeof(mechanisms));
}

static bool begin_proof(struct client *c, struct wire_reader *r, struct strbuf *out)
{
	const char *mechanism = wire_text(r);
	uint32_t len = wire_u32(r);
	cleanup_free char *said = NULL;

	if (r->bad || strcmp(mechanism, SCRAM_MECHANISM) != 0 || len != r->left)
		return false;
	said = xstrndup((const char *)r->at, r->left);
	return scram_begin(c->h->listeners.password, &c->proof, said, out);
}

static bool end_proof(struct client *c, const struct wire_reader *r, struct strbuf *out)
{
	cleanup_free char *said = xstrndup((const char *)r->at, r->left);

	return scram_end(c->h->listeners.password, &c->proof, said, out);
}

static void take_proof(struct client *c, const struct wire_message *m)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	struct wire_reader r = wire_read(m);
	bool first = !c->proof.server_first;
	bool fine = m->type == 'p' && (first ? begin_proof(c, &r, &out) : end_proof(c, &r, &out));

	if (!fine) {
		client_refuse(c, "28P01", "this is not the password of the plan's database",
		              "PGPASSWORD and DATABASE_URL have it, in commands of the plan");
		return;
	}
	put_authentication(c, first ? AUTHENTICATION_SASL_MORE : AUTHENTICATION_SASL_END, out.buf,
	                   out.len);
	if (first)
		return;
	scram_proof_done(&c->proof);
	c->proving = false;
	c->prove_until = 0;
	say_hello(c);
}

static void take_startup(struct client *c, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	uint32_t code = wire_u32(&r);

	if (code == SSL_REQUEST || code == GSSENC_REQUEST) {
		(void)wire_add(&c->out, "N", 1);
	} else if (code == CANCEL_REQUEST) {
		cancel(c, &r);
	} else if (code >> 16 != PROTOCOL_3 >> 16) {
		client_refuse(c, "0A000", "only version 3 of the protocol is spoken here", NULL);
	} else if (take_parameters(c, &r)) {
		if (code != PROTOCOL_3) {
			static const unsigned char minor[8] = { 0 };

			client_put(c, 'v', minor, sizeof(minor));
		}
		if (c->prove_until)
			ask_proof(c);
		else
			say_hello(c);
	}
}

/* ---- messages ---- */

enum fate { FATE_WAIT, FATE_PASS, FATE_DROP };

/* Of data for a COPY. A client may send it without waiting for the answer to its query; what is left
 * when the query is over was on its way when the COPY failed. In a batch the server decides, which
 * hears everything in its order. */
static enum fate copy_fate(const struct client *c)
{
	if (c->copying || (c->in_batch && c->forwarded))
		return FATE_PASS;
	return c->in_script ? FATE_WAIT : FATE_DROP;
}

/* 1: taken; 0: not now. */
static int take_copy(struct client *c, const struct wire_message *m)
{
	enum fate fate = copy_fate(c);

	if (fate == FATE_WAIT)
		return 0;
	if (fate == FATE_PASS)
		holder_send(c->h, c, m->type, m->body, m->len);
	c->copying &= m->type == 'd';
	if (m->type != 'd') {
		c->copy_over = true;
		c->flushed = false;
	}
	return 1;
}

/* 1: taken; 0: not now. */
static int take_message(struct client *c, const struct wire_message *m)
{
	if (m->type == 'X' && c->holds > 0 && !c->copying)
		return 0;
	if (m->type == 'X') {
		c->closing = true;
		c->dead = true;
		return 1;
	}
	if (!strchr("dcfBCDEFHPQS", m->type)) {
		client_refuse(c, "08P01", "this is not a message of the protocol", NULL);
		return 1;
	}
	if (strchr("dcf", m->type))
		return take_copy(c, m);
	if (c->copying) {
		/* It passes over Sync and Flush, and would hang up because of anything else: the
		 * connection is not this client's alone. */
		if (m->type != 'S' && m->type != 'H')
			client_refuse(c, "08P01", "only data may be sent while a COPY takes them",
			              NULL);
		return 1;
	}
	if (c->holds > 0)
		return 0;
	if (c->in_batch && batch_must_wait(c))
		return 0;
	if ((m->type == 'F' || m->type == 'Q') && c->in_batch) {
		if (!batch_leave(c))
			return 0;
		if (c->in_batch)
			return 1; /* it is passed over: something before it has failed */
	}
	if (m->type == 'F')
		return script_call(c, m);
	if (m->type == 'Q') {
		struct wire_reader r = wire_read(m);
		const char *text = wire_text(&r);

		if (r.bad)
			client_refuse(c, "08P01", "a query without its end", NULL);
		else
			script_start(c, text);
		return 1;
	}
	return batch_take(c, m);
}

static void pass_copy(struct client *c)
{
	size_t n = wire_buf_left(&c->in) < c->stream_left ? wire_buf_left(&c->in) : c->stream_left;

	if (c->stream_pass)
		(void)wire_add(&c->h->out, c->in.v + c->in.off, n);
	c->in.off += n;
	c->stream_left -= n;
}

/* A long CopyData: its head goes on with the length of all of it, and then so does the rest, whatever
 * becomes of the COPY meanwhile. 1: taken; 0: not now. */
static int begin_copy(struct client *c, const struct wire_message *m)
{
	unsigned char head[WIRE_HEADER] = { 'd' };
	enum fate fate = copy_fate(c);

	if (fate == FATE_WAIT)
		return 0;
	wire_store_u32(head + 1, (uint32_t)(m->len + m->missing) + 4);
	c->stream_pass = fate == FATE_PASS;
	if (c->stream_pass) {
		(void)wire_add(&c->h->out, head, sizeof(head));
		(void)wire_add(&c->h->out, m->body, m->len);
	}
	c->stream_left = m->missing;
	return 1;
}

/* 1: something was taken. */
static int take_next(struct client *c)
{
	struct wire_message m;
	int r;

	if (c->stream_left > 0) {
		pass_copy(c);
		return wire_buf_left(&c->in) > 0;
	}
	if (c->started)
		r = wire_peek(&c->in, "d", &m);
	else if (wire_buf_left(&c->in) > UNSTARTED_MAX)
		r = -EPROTO;
	else
		r = c->proving ? wire_peek(&c->in, "", &m) : wire_peek_startup(&c->in, &m);
	if (r < 0)
		client_refuse(c, "08P01", "this is not a message of the protocol", NULL);
	if (r <= 0)
		return 0;
	if (c->proving)
		take_proof(c, &m);
	else if (!c->started)
		take_startup(c, &m);
	else if ((m.partial ? begin_copy(c, &m) : take_message(c, &m)) == 0)
		return 0;
	wire_skip(&c->in, &m);
	return 1;
}

void client_pump(struct client *c)
{
	bool more = true;

	while (more && !c->closing && !c->h->gone) {
		if (c->in_script && c->holds == 0) {
			script_step(c);
			more = c->holds == 0 && !c->wait_until;
			if (c->in_script)
				continue;
		}
		c->throttled = wire_buf_left(&c->h->out) >= WIRE_HIGH;
		more = !c->throttled && take_next(c) == 1;
	}
}

/* Is a Terminate among the messages that it sent? */
static bool says_goodbye(const struct client *c)
{
	struct wire_buf rest = c->in;
	struct wire_message m;

	if (!c->started || c->stream_left > 0)
		return false;
	while (wire_peek(&rest, "", &m) == 1) {
		if (m.type == 'X')
			return true;
		wire_skip(&rest, &m);
	}
	return false;
}

void client_read(struct client *c)
{
	unsigned char buf[READ_SIZE];
	ssize_t n = c->left ? 1 : read(c->fd, buf, sizeof(buf));

	if (c->left || (n > 0 && wire_add(&c->in, buf, (size_t)n) == 0))
		return;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* A server carries out what was sent to it whether or not its client stays for the answers. */
	c->deaf = c->left = says_goodbye(c);
	c->closing |= !c->left;
	c->dead |= !c->left;
}

void client_write(struct client *c)
{
	while (wire_buf_left(&c->out) > 0 && !c->dead) {
		ssize_t n = c->deaf ? (ssize_t)wire_buf_left(&c->out)
		                    : write(c->fd, c->out.v + c->out.off, wire_buf_left(&c->out));

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0)
			c->deaf = true;
		else
			c->out.off += (size_t)n;
	}
}

void client_expire(struct client *c, int64_t now)
{
	bool cancelled = c->wait_until == 1;

	if (c->prove_until && now >= c->prove_until)
		c->closing = c->dead = true;
	if (!c->wait_until || now < c->wait_until)
		return;
	c->wait_until = 0;
	client_error(c, cancelled ? "57014" : "55P03",
	             cancelled ? "canceling statement due to user request"
	                       : "another client of this sandbox is inside a transaction");
	if (c->in_script)
		script_done(c);
	else
		batch_done(c);
}

/* ---- from the server ---- */

void client_parameter(struct client *c, const struct wire_message *m)
{
	struct wire_reader r = wire_read(m);
	const char *name = wire_text(&r);
	const char *value = wire_text(&r);

	if (!r.bad && strcmp(name, "standard_conforming_strings") == 0)
		c->backslashes = strcmp(value, "off") == 0;
	if (!r.bad && c->started)
		settings_add(&c->changed, name, value);
}

void client_answer(struct client *c, const struct wire_message *m)
{
	if (m->type == 'S')
		client_parameter(c, m);
	else if (m->type == 'N')
		client_pass_error(c, m, script_shift(c));
	else if (m->type == 'A')
		client_pass(c, m);
	else if (c->in_script)
		script_answer(c, m);
	else
		batch_answer(c, m);
}

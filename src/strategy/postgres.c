/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of `postgres`. See postgres.h. */
#include "strategy/postgres.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postgres/protocol.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#define ASK_LIMIT_MS 60000 /* for what is quickly said */
#define VIEW_DIR     "/run/atoll"

/* As pg_ask(), but that there is no transaction is a failure, and said. */
static int ask(struct atoll_participant *p, const char *line, int64_t deadline, struct strbuf *out)
{
	int r = pg_ask(p->area, line, deadline, out, &p->err);

	return r == 0 ? pg_gone(p, -ATOLL_E_STATE) : r;
}

static int64_t soon(void)
{
	return clock_deadline(ASK_LIMIT_MS);
}

/* ---- what it is ---- */

static int postgres_identify(struct atoll_participant *p, char **ret_name, char **ret_id)
{
	static const char *const argv[] = { "identify", NULL };
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	int r = pg_call(argv, p->root, &out, &p->err);

	if (r < 0)
		return r;
	*ret_name = pg_line_of(&out, "name");
	*ret_id = pg_line_of(&out, "id");
	return 0;
}

/* ---- the workspace ---- */

static void say_final(struct atoll_participant *p, const char *why)
{
	cleanup_free char *text = xasprintf(
		"%s, so it can be committed only by itself, or with --allow partial", why);

	atoll_participant_note(p, ATOLL_NOTE_WARNING, "", text);
}

/* The next word of *AT, and behind it. Caller frees. */
static char *take_word(const char **at)
{
	size_t len = strcspn(*at, " ");
	char *word = xstrndup(*at, len);

	*at += len + ((*at)[len] == ' ');
	return word;
}

/* "prepare XID SERVER" or "final XID SERVER WHY". *ret_why NULL: it can be prepared. */
static int standing(struct atoll_participant *p, struct pg_batch *b, char **ret_why)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	cleanup_free char *how = NULL;
	int r = ask(p, "status", soon(), &out);
	const char *at = strbuf_str(&out);

	if (r < 0)
		return r;
	how = take_word(&at);
	b->xid = take_word(&at);
	b->server = take_word(&at);
	*ret_why = strcmp(how, "final") == 0 ? xstrdup(at) : NULL;
	return 0;
}

static int postgres_create(struct atoll_participant *p)
{
	cleanup_pg_batch struct pg_batch b = PG_BATCH_INIT;
	cleanup_free char *why = NULL;
	int r = pg_begin(p->area, p->root, &p->err);

	if (r < 0)
		return r;
	r = standing(p, &b, &why);
	if (r == 0 && why)
		say_final(p, why);
	if (r == 0)
		atoll_participant_note(p, ATOLL_NOTE_INFO, "",
		                       "a commit of this database is final, rollback cannot undo "
		                       "it");
	return r;
}

static int postgres_alive(struct atoll_participant *p)
{
	int r = p->stale ? 1 : ask(p, "ping", soon(), NULL);

	return r < 0 ? r : 0;
}

static int renew(struct atoll_participant *p)
{
	int r = pg_end(p->area, &p->err);

	if (r == 0)
		r = pg_begin(p->area, p->root, &p->err);
	if (r < 0)
		return r;
	p->stale = false;
	p->generation++;
	return 0;
}

/* ---- what a command sees ---- */

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 0;
}

/* Of what identify made: two hex digits follow each '%'. */
static char *decode(const char *text, size_t len)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	for (size_t i = 0; i < len; i++) {
		if (text[i] == '%' && i + 2 < len) {
			strbuf_putc(&sb, (char)(hex(text[i + 1]) * 16 + hex(text[i + 2])));
			i += 2;
		} else {
			strbuf_putc(&sb, text[i]);
		}
	}
	return strbuf_take(&sb);
}

struct url_parts {
	const char *user, *database; /* encoded */
	size_t user_len, database_len;
};

/* postgres://USER@[HOST[:PORT]]/DATABASE[?...] */
static int split_url(struct atoll_participant *p, struct url_parts *ret)
{
	const char *user = strstr(p->root, "://");
	const char *at = user ? strchr(user, '@') : NULL;
	const char *slash = at ? strchr(at, '/') : NULL;

	if (!slash)
		return error_set(&p->err, -ATOLL_E_DAMAGED,
		                 "the name of the database is not one of ours");
	ret->user = user + 3;
	ret->user_len = (size_t)(at - ret->user);
	ret->database = slash + 1;
	ret->database_len = strcspn(ret->database, "?");
	return 0;
}

/* What would have libpq look elsewhere, or ask more of us than we can; and what commands need not
 * know. */
static const char *const leading_past[] = {
	"PGSERVICE", "PGHOSTADDR",   "PGCHANNELBINDING", "PGREQUIREAUTH", "PGTARGETSESSIONATTRS",
	"PGSSLMODE", "PGGSSENCMODE",
};

/* Where clients find it that know TCP alone. */
struct tcp {
	unsigned port;  /* 0: nowhere */
	char *password; /* NULL: none is asked for */
};

/* On the loopback of the host, where every process can knock, or of the command's own network. A host that has
 * no loopback does without. */
static int open_tcp(struct atoll_participant *p, struct tcp *ret)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	cleanup_free char *listen = NULL;
	char *end;
	int r;

	if (p->net && p->net->own) {
		ret->port = PROTOCOL_PORT_NUMBER + p->net->listeners;
		listen = xasprintf("%u " PROTOCOL_LISTEN " %s/" PG_DIR "/" PROTOCOL_MANAGE,
		                   ret->port, p->area);
		strlist_add(&p->listen, listen);
		return 0;
	}
	r = ask(p, "tcp", soon(), &out);
	if (r == -ATOLL_E_CANNOT_PREPARE) {
		error_done(&p->err);
		return 0;
	}
	if (r < 0)
		return r;
	ret->port = (unsigned)strtoul(strbuf_str(&out), &end, 10);
	ret->password = *end == ' ' ? xstrdup(end + 1) : NULL;
	return 0;
}

/* For everything that takes a URL: by TCP, which all speak. */
static char *make_url(const struct url_parts *u, const struct tcp *tcp, const char *view)
{
	if (!tcp->port)
		return xasprintf("postgres://%.*s@/%.*s?host=%s", (int)u->user_len, u->user,
		                 (int)u->database_len, u->database, view);
	return xasprintf("postgres://%.*s%s%s@127.0.0.1:%u/%.*s", (int)u->user_len, u->user,
	                 tcp->password ? ":" : "", tcp->password ? tcp->password : "", tcp->port,
	                 (int)u->database_len, u->database);
}

/* NULL: without TCP there is none. */
static char *make_jdbc_url(const struct url_parts *u, const struct tcp *tcp)
{
	if (!tcp->port)
		return NULL;
	return xasprintf("jdbc:postgresql://127.0.0.1:%u/%.*s?user=%.*s%s%s", tcp->port,
	                 (int)u->database_len, u->database, (int)u->user_len, u->user,
	                 tcp->password ? "&password=" : "", tcp->password ? tcp->password : "");
}

/* PGHOST is the Unix socket, which asks for no password and is faster; PGPORT is a part of its name. */
static int give_env(struct atoll_participant *p, const char *view, const struct tcp *tcp)
{
	cleanup_free char *user = NULL, *database = NULL, *url = NULL, *jdbc = NULL;
	struct url_parts u = { 0 };
	int r = split_url(p, &u);

	if (r < 0)
		return r;
	user = decode(u.user, u.user_len);
	database = decode(u.database, u.database_len);
	url = make_url(&u, tcp, view);
	jdbc = make_jdbc_url(&u, tcp);
	for (size_t i = 0; i < sizeof(leading_past) / sizeof(leading_past[0]); i++)
		atoll_participant_env(p, leading_past[i], NULL);
	atoll_participant_env(p, "PGHOST", view);
	atoll_participant_env(p, "PGPORT", PROTOCOL_PORT);
	atoll_participant_env(p, "PGUSER", user);
	atoll_participant_env(p, "PGDATABASE", database);
	atoll_participant_env(p, "PGPASSWORD", tcp->password);
	atoll_participant_env(p, "DATABASE_URL", url);
	atoll_participant_env(p, "JDBC_DATABASE_URL", jdbc);
	return 0;
}

static int postgres_mounts(struct atoll_participant *p)
{
	cleanup_free char *view = xasprintf(VIEW_DIR "/%s", p->id);
	cleanup_free char *source = xasprintf("%s/" PG_CLIENTS, p->area);
	struct tcp tcp = { 0 };
	int r = p->stale ? renew(p) : postgres_alive(p);

	if (r == 0)
		r = atoll_participant_mount(p, view, source, NULL, NULL);
	if (r >= 0)
		r = open_tcp(p, &tcp);
	if (r >= 0)
		r = give_env(p, view, &tcp);
	free(tcp.password);
	return r;
}

/* ---- what changed ---- */

struct table {
	char kind;
	uint64_t inserted, updated, deleted;
	const char *name;
};

/* "KIND N N N NAME" */
static bool parse_table(char *line, struct table *ret)
{
	uint64_t *const numbers[] = { &ret->inserted, &ret->updated, &ret->deleted };
	char *s = line + 1;

	for (size_t i = 0; i < 3; i++)
		*numbers[i] = *line ? strtoull(s, &s, 10) : 0;
	ret->kind = *line;
	ret->name = s + 1;
	return *line && *s == ' ';
}

static void add_count(struct strbuf *sb, uint64_t n, const char *what)
{
	if (n > 0)
		strbuf_printf(sb, "%s%" PRIu64 "%s %s", sb->len ? ", " : "", n,
		              sb->len  ? ""
		              : n == 1 ? " row"
		                       : " rows",
		              what);
}

static int tell_table(struct atoll_participant *p, const struct table *t)
{
	cleanup_strbuf struct strbuf detail = STRBUF_INIT;
	struct atoll_change c = { .path = t->name,
		                  .kind = ATOLL_CHANGE_CHANGED,
		                  .what = ATOLL_CHANGE_CONTENT };

	add_count(&detail, t->inserted, "added");
	add_count(&detail, t->updated, "changed");
	add_count(&detail, t->deleted, "deleted");
	if (t->kind == PROTOCOL_ADDED)
		c.kind = ATOLL_CHANGE_ADDED;
	if (t->kind == PROTOCOL_DROPPED)
		c.kind = ATOLL_CHANGE_DELETED;
	if (t->kind == PROTOCOL_ALTERED)
		strbuf_printf(&detail, "%sdefinition changed", detail.len ? ", " : "");
	if (t->kind == PROTOCOL_OTHER) {
		strbuf_puts(&detail, t->name);
		c.path = "definitions";
	}
	c.detail = strbuf_str(&detail);
	return atoll_participant_change(p, &c);
}

/* Each change to FN, if there is one. The number of them. */
static int64_t each_table(struct atoll_participant *p,
                          int (*fn)(struct atoll_participant *p, const struct table *t))
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	int64_t n = 0;
	int r = ask(p, "changes", soon(), &out);
	char *save = NULL;

	for (char *line = r > 0 && out.len ? strtok_r(out.buf, "\n", &save) : NULL; line && r >= 0;
	     line = strtok_r(NULL, "\n", &save)) {
		struct table t;

		if (!parse_table(line, &t))
			continue;
		n++;
		r = fn ? fn(p, &t) : 0;
	}
	return r < 0 ? r : n;
}

static int postgres_observe(struct atoll_participant *p)
{
	int64_t n = each_table(p, NULL);

	if (n < 0)
		return (int)n;
	p->counted = true;
	p->changes = (uint64_t)n;
	return 0;
}

static int postgres_diff(struct atoll_participant *p)
{
	int64_t n = p->stale ? 0 : each_table(p, tell_table);

	return n < 0 ? (int)n : 0;
}

/* Of tables; of the rest there is no more to say than is said already. */
static int postgres_lines(struct atoll_participant *p, const struct atoll_change *change,
                          atoll_line_fn fn, void *user)
{
	cleanup_free char *dir = xasprintf("%s/" PG_DIR, p->area);
	cleanup_error struct error e = ERROR_INIT;
	const char *const argv[] = { "rows", dir, change->path, NULL };
	int r = strchr(change->path, '.') ? pg_call_lines(argv, p->root, fn, user, &e) : 0;

	if (r < 0) {
		cleanup_free char *line = xasprintf("@@ %s @@", e.msg);

		(void)fn(user, line, strlen(line));
	}
	return 1;
}

/* ---- deciding ---- */

static char *make_gid(const struct atoll_participant *p)
{
	return xasprintf("atoll:%s:%" PRIu32, p->id, p->batch.number);
}

static int postgres_prepare(struct atoll_participant *p)
{
	cleanup_pg_batch struct pg_batch b = { .number = p->batch.number };
	cleanup_free char *why = NULL;
	int64_t n = p->stale ? 0 : each_table(p, NULL);
	int r;

	if (n <= 0 || p->batch.undoing)
		return n < 0 ? (int)n : ATOLL_NO_CHANGE;
	p->changes = (uint64_t)n;
	r = standing(p, &b, &why);
	/* What else could refuse: constraints that were put off until now. */
	if (r == 0)
		r = ask(p, "check", CLOCK_NEVER, NULL);
	if (r < 0)
		return r;
	b.gid = why ? xstrdup("-") : make_gid(p);
	r = pg_batch_write(p, &b);
	if (r < 0)
		return r;
	if (why)
		say_final(p, why);
	return why ? ATOLL_FINAL : ATOLL_READY;
}

static int run_finish(struct atoll_participant *p, const char *how, const struct pg_batch *b,
                      struct error *err)
{
	const char *const argv[] = { "finish", how, b->gid, b->xid, b->server, NULL };

	return pg_call(argv, p->root, NULL, err);
}

/* From here on only the server has it. A refusal loses what the transaction did. */
static int prepare_now(struct atoll_participant *p, const struct pg_batch *b)
{
	cleanup_free char *line = xasprintf("prepare %s", b->gid);
	int r = ask(p, line, CLOCK_NEVER, NULL);

	if (r >= 0)
		return 0;
	pg_leave_word(p->area, "the server refused to prepare it");
	return r;
}

static int check_decided(struct atoll_participant *p)
{
	cleanup_pg_batch struct pg_batch b = PG_BATCH_INIT;
	int r = pg_batch_read(p, &b);

	if (r != 0)
		return r < 0 ? r : 0;
	return error_set(&p->err, -ATOLL_E_DAMAGED,
	                 "there is no record of batch %" PRIu32 " in '%s'", p->batch.number,
	                 p->area);
}

static int postgres_check(struct atoll_participant *p)
{
	cleanup_pg_batch struct pg_batch b = PG_BATCH_INIT;
	int r;

	if (p->batch.undoing)
		return 0;
	if (p->batch.recovering)
		return p->batch.redoing ? 0 : check_decided(p);
	r = pg_batch_read(p, &b);
	if (r < 0 || strcmp(b.gid, "-") == 0)
		return r < 0 ? r : 0;
	return prepare_now(p, &b);
}

/* A plain COMMIT, by the holder if there still is one. What became of it is for the server to say. */
static int commit_final(struct atoll_participant *p, const struct pg_batch *b)
{
	int r = pg_ask(p->area, "commit", CLOCK_NEVER, NULL, &p->err);

	if (r == 0)
		r = run_finish(p, "commit", b, &p->err);
	if (r < 0)
		pg_leave_word(p->area, "its commit was refused");
	return r < 0 ? r : 0;
}

static int postgres_commit(struct atoll_participant *p)
{
	cleanup_pg_batch struct pg_batch b = PG_BATCH_INIT;
	int r;

	if (p->batch.redoing) /* nothing of it was taken back */
		return 0;
	r = pg_batch_read(p, &b);
	if (r <= 0)
		return r < 0 ? r : check_decided(p);
	r = strcmp(b.gid, "-") == 0 ? commit_final(p, &b) : run_finish(p, "commit", &b, &p->err);
	if (r == 0)
		p->stale = true;
	return r;
}

/* While the holder has the transaction nothing was prepared, and the work goes on. */
static int postgres_abort(struct atoll_participant *p)
{
	cleanup_pg_batch struct pg_batch b = PG_BATCH_INIT;
	cleanup_error struct error e = ERROR_INIT;
	int r = pg_batch_read(p, &b);

	if (r <= 0)
		return r;
	r = pg_ask(p->area, "ping", soon(), NULL, &p->err);
	if (r != 0)
		return r < 0 ? r : 0;
	r = run_finish(p, p->batch.decided ? "withdraw" : "rollback", &b, &e);
	if (r == -ATOLL_E_CONFLICT) {
		p->stale = true;
		return error_set(&p->err, -ATOLL_E_NOT_UNDOABLE, "it was committed already");
	}
	if (r < 0) {
		error_move(&p->err, &e);
		return r;
	}
	pg_leave_word(p->area, "it was rolled back when the commit was withdrawn");
	atoll_participant_note(
		p, ATOLL_NOTE_WARNING, "",
		"its transaction could not be kept: what was done in the database is "
		"lost");
	return 0;
}

/* ---- letting go ---- */

static int postgres_release(struct atoll_participant *p)
{
	pg_batch_drop(p);
	return 0;
}

static int postgres_reset(struct atoll_participant *p)
{
	int r = pg_end(p->area, &p->err);

	if (r == 0)
		p->stale = true;
	return r;
}

/* By force a plan can be removed whose batch was never settled: the server must not keep it. */
static int forget_prepared(struct atoll_participant *p)
{
	cleanup_pg_batch struct pg_batch b = PG_BATCH_INIT;
	int r = p->stale ? 0 : pg_batch_last(p, &b);

	if (r <= 0 || strcmp(b.gid, "-") == 0)
		return r;
	r = pg_ask(p->area, "ping", soon(), NULL, &p->err);
	if (r == 0)
		r = run_finish(p, "rollback", &b, &p->err);
	if (r == -ATOLL_E_CONFLICT) {
		error_done(&p->err);
		return 0;
	}
	if (r < 0)
		error_hint(&p->err,
		           "the server may keep the prepared transaction '%s'; if it is gone for "
		           "good, remove '%s/batch'",
		           b.gid, p->area);
	return r < 0 ? r : 0;
}

static int postgres_remove(struct atoll_participant *p)
{
	int r = forget_prepared(p);

	return r < 0 ? r : pg_end(p->area, &p->err);
}

const struct atoll_strategy strategy_postgres = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "postgres",
	.kind = "database",
	.capabilities = ATOLL_CAP_PREPARE | ATOLL_CAP_DIFF | ATOLL_CAP_MOUNTS,
	.create = postgres_create,
	.mounts = postgres_mounts,
	.observe = postgres_observe,
	.diff = postgres_diff,
	.lines = postgres_lines,
	.prepare = postgres_prepare,
	.check = postgres_check,
	.commit = postgres_commit,
	.abort = postgres_abort,
	.finish = postgres_release,
	.release = postgres_release,
	.reset = postgres_reset,
	.remove = postgres_remove,
	.identify = postgres_identify,
	.alive = postgres_alive,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to the strategy. */
#include "postgres/manage.h"

#include "postgres/protocol.h"
#include "postgres/scram.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/pass-fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put_error(struct strbuf *out, const struct error *err)
{
	strbuf_printf(out, "error %s %s\n", err->detail && *err->detail ? err->detail : "XX000",
	              err->msg ? err->msg : "unknown");
}

/* Runs SQL; false, and said, when it failed. */
static bool run(struct holder *h, const char *sql, struct strbuf *out, char **ret_tag)
{
	cleanup_error struct error err = ERROR_INIT;
	int r = holder_ask_now(h, sql, NULL, NULL, ret_tag, &err);

	if (r < 0)
		put_error(out, &err);
	return r == 0;
}

struct standing {
	char *xid; /* and server */
	char *why; /* it is final; "" when it is not */
};

static void take_standing(void *user, size_t n, const char *const *columns)
{
	struct standing *s = user;

	if (n != 2 || s->xid)
		return;
	s->xid = xstrdup(columns[0]);
	s->why = xstrdup(columns[1]);
}

static void say_final(struct standing *s, const char *why)
{
	if (*s->why)
		return;
	free(s->why);
	s->why = xstrdup(why);
}

static void answer_status(struct holder *h, const char *arg, struct strbuf *out)
{
	static const char question[] =
		"SELECT pg_catalog.concat(pg_catalog.txid_current(), ' ', " BACKEND_SERVER
		"), CASE "
		"WHEN pg_catalog.current_setting('max_prepared_transactions')::int = 0 "
		"THEN 'the server has max_prepared_transactions = 0' "
		"WHEN pg_catalog.pg_my_temp_schema() <> 0 THEN 'temporary tables were used' END";
	cleanup_error struct error err = ERROR_INIT;
	struct standing s = { .why = NULL };

	(void)arg;
	if (holder_ask_now(h, question, take_standing, &s, NULL, &err) < 0 || !s.xid) {
		put_error(out, &err);
		free(s.why);
		return;
	}
	if (h->held)
		say_final(&s, "a cursor WITH HOLD was used");
	if (h->notified)
		say_final(&s, "LISTEN, NOTIFY or an exported snapshot was used");
	strbuf_printf(out, "ok %s %s%s%s\n", *s.why ? "final" : "prepare", s.xid, *s.why ? " " : "",
	              s.why);
	free(s.why);
	free(s.xid);
}

static void answer_changes(struct holder *h, const char *arg, struct strbuf *out)
{
	cleanup_error struct error err = ERROR_INIT;
	size_t len = out->len;

	(void)arg;
	if (changes_add(h, out, &err) < 0) {
		strbuf_truncate(out, len);
		put_error(out, &err);
	} else {
		strbuf_puts(out, "ok\n");
	}
}

/* Whatever the last client set. Good until the next savepoint is rolled back to. */
#define AS_OURSELVES                                                     \
	"SET LOCAL SESSION AUTHORIZATION DEFAULT; SET LOCAL ROLE NONE; " \
	"SET LOCAL statement_timeout = 0; "

static void take_yes(void *user, size_t n, const char *const *columns)
{
	bool *yes = user;

	*yes = n == 1 && strcmp(columns[0], "t") == 0;
}

/*
 * Questions are asked behind a savepoint, to which all goes back: one that fails leaves the transaction as it was. The
 * first of them is still under the client's statement_timeout: where even the savepoint fails, that of the clients is
 * gone back to, behind which nothing is between their units.
 */
#define LOOK SQL_OURS "_look"

static bool begin_look(struct holder *h, struct strbuf *out)
{
	return run(h, "SAVEPOINT " LOOK "; " AS_OURSELVES, out, NULL);
}

static void end_look(struct holder *h)
{
	static const char *const ways[] = { "ROLLBACK TO " LOOK "; RELEASE " LOOK,
		                            HOLDER_ROLLBACK };
	size_t n = h->savepoint ? 2 : 1;

	for (size_t i = 0; i < n; i++)
		if (holder_ask_now(h, ways[i], NULL, NULL, NULL, NULL) == 0)
			return;
}

/* A refusal of PREPARE would lose the transaction, so what is known before is asked before. */
static bool has_room(struct holder *h, struct strbuf *out)
{
	cleanup_error struct error err = ERROR_INIT;
	bool full = false;

	if (holder_ask_now(
		    h,
		    "SELECT (SELECT count(*) FROM pg_catalog.pg_prepared_xacts) >= "
		    "greatest(pg_catalog.current_setting('max_prepared_transactions')::int, 1)",
		    take_yes, &full, NULL, &err) < 0)
		put_error(out, &err);
	else if (full)
		strbuf_puts(out, "error 53400 all places for prepared transactions are taken "
		                 "(max_prepared_transactions)\n");
	else
		return true;
	return false;
}

static void answer_check(struct holder *h, const char *arg, struct strbuf *out)
{
	bool fine;

	(void)arg;
	fine = run(h, "SET CONSTRAINTS ALL IMMEDIATE", out, NULL) && has_room(h, out);
	if (fine)
		strbuf_puts(out, "ok\n");
}

/* Whatever the server answers, the transaction is not ours any more. */
static void end_with(struct holder *h, const char *last, const char *want, struct strbuf *out)
{
	cleanup_free char *sql = xasprintf(AS_OURSELVES "%s", last), *tag = NULL;

	h->finished = true;
	if (!run(h, sql, out, &tag))
		return;
	/* A failed transaction answers ROLLBACK, and no error. */
	if (!tag || strcmp(tag, want) != 0)
		strbuf_printf(out, "error 25P02 the server answered %s\n", tag ? tag : "nothing");
	else
		strbuf_puts(out, "ok\n");
}

static void answer_prepare(struct holder *h, const char *arg, struct strbuf *out)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	strbuf_puts(&sql, "PREPARE TRANSACTION '");
	for (; *arg; arg++) {
		if (*arg == '\'')
			strbuf_putc(&sql, '\'');
		strbuf_putc(&sql, *arg);
	}
	strbuf_putc(&sql, '\'');
	end_with(h, strbuf_str(&sql), "PREPARE TRANSACTION", out);
}

static void answer_commit(struct holder *h, const char *arg, struct strbuf *out)
{
	(void)arg;
	end_with(h, "COMMIT", "COMMIT", out);
}

static void answer_rollback(struct holder *h, const char *arg, struct strbuf *out)
{
	(void)arg;
	h->finished = true;
	if (run(h, "ROLLBACK", out, NULL))
		strbuf_puts(out, "ok\n");
}

static const struct {
	const char *word;
	void (*answer)(struct holder *h, const char *arg, struct strbuf *out);
	bool looks; /* and changes nothing */
} questions[] = {
	{ "status", answer_status, true },  { "changes", answer_changes, true },
	{ "check", answer_check, true },    { "prepare", answer_prepare, false },
	{ "commit", answer_commit, false }, { "rollback", answer_rollback, false },
};

static void answer_tcp(struct holder *h, struct strbuf *out)
{
	int r = listeners_open(&h->listeners);

	if (r < 0)
		strbuf_printf(out, "error 58000 cannot listen on the loopback: %s\n", strerror(-r));
	else
		strbuf_printf(out, "ok %u %s\n", (unsigned)h->listeners.port,
		              scram_password(h->listeners.password));
}

static void answer(struct holder *h, char *line, struct strbuf *out)
{
	char *arg = strchr(line, ' ');

	if (strcmp(line, "ping") == 0) {
		strbuf_puts(out, "ok\n");
		return;
	}
	if (strcmp(line, "tcp") == 0) {
		answer_tcp(h, out);
		return;
	}

	if (arg)
		*arg++ = '\0';
	if (!holder_idle(h) && strcmp(line, "rollback") != 0) {
		strbuf_puts(out, "error " PROTOCOL_BUSY " a client is inside a transaction\n");
		return;
	}
	for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
		if (strcmp(line, questions[i].word) == 0) {
			if (!questions[i].looks || begin_look(h, out))
				questions[i].answer(h, arg ? arg : "", out);
			if (questions[i].looks)
				end_look(h);
			return;
		}
	}
	strbuf_puts(out, "error 0A000 unknown question\n");
}

/* 0: a whole line. */
static int read_line(int fd, char line[MANAGE_LINE], int *ret_passed)
{
	size_t len = 0;

	while (len < MANAGE_LINE - 1) {
		ssize_t n = take_passed(fd, line + len, MANAGE_LINE - 1 - len, ret_passed);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EIO;
		len += (size_t)n;
		line[len] = '\0';
		if (line[len - 1] == '\n') {
			line[len - 1] = '\0';
			return 0;
		}
	}
	return -E2BIG;
}

static void send_all(int fd, const struct strbuf *out)
{
	size_t done = 0;

	while (done < out->len) {
		ssize_t n = write(fd, out->buf + done, out->len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		done += (size_t)n;
	}
}

bool manage_serve(struct holder *h, int fd)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	cleanup_close int passed = FD_NONE;
	char line[MANAGE_LINE];

	if (read_line(fd, line, &passed) < 0)
		return false;
	if (strcmp(line, PROTOCOL_LISTEN) == 0 && passed != FD_NONE) {
		(void)listeners_adopt(&h->listeners, take_fd(&passed), fd);
		return true;
	}
	answer(h, line, &out);
	send_all(fd, &out);
	return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * COMMIT PREPARED and ROLLBACK PREPARED, of the very transaction: one that somebody else gave the same
 * name is none of ours. What the server does not know under its name has been dealt with, or never came
 * to be; the number of the transaction tells which, on the server that gave it out. As long as that is in
 * progress under no name, a session is still at work on what a dead holder sent: it is waited for.
 */
#include "postgres/finish.h"

#include "postgres/backend.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <string.h>

#define UNDEFINED_OBJECT "42704"
#define ELSEWHERE        "elsewhere"
#define PATIENCE_MS      20000
#define PAUSE_NS         INT64_C(50000000)

/* 1: the server has it. */
static int is_prepared(struct backend *b, const char *name, const char *xid, struct error *err)
{
	cleanup_free char *number = backend_literal(b, xid), *found = NULL;
	cleanup_free char *sql = xasprintf(
		"SELECT 1 FROM pg_catalog.pg_prepared_xacts WHERE gid = %s AND transaction = "
		"pg_catalog.mod(%s, 4294967296)::pg_catalog.text::pg_catalog.xid",
		name, number);
	int r = backend_run(b, sql, &found, err);

	return r < 0 ? r : found != NULL;
}

/* 1: done; 0: there is none of that name. */
static int end_prepared(struct backend *b, const struct finish_options *opt, struct error *err)
{
	cleanup_error struct error e = ERROR_INIT;
	cleanup_free char *name = NULL, *sql = NULL;
	int r;

	if (strcmp(opt->gid, "-") == 0)
		return 0;
	name = backend_literal(b, opt->gid);
	r = is_prepared(b, name, opt->xid, err);
	if (r <= 0)
		return r;
	sql = xasprintf("%s PREPARED %s", opt->commit ? "COMMIT" : "ROLLBACK", name);
	r = backend_run(b, sql, NULL, &e);
	if (r == 0)
		return 1;
	if (e.detail && strcmp(e.detail, UNDEFINED_OBJECT) == 0)
		return 0;
	error_move(err, &e);
	return r;
}

/* "committed", "aborted", "in progress", or "" when it is too long ago; ELSEWHERE when the number is
 * another's by now. One that the server has yet to give out was lost with the end of its log when the
 * server died: nothing of it was durable. */
static int ask_status(struct backend *b, const struct finish_options *opt, char **ret,
                      struct error *err)
{
	cleanup_free char *number = backend_literal(b, opt->xid);
	cleanup_free char *server = backend_literal(b, opt->server);
	cleanup_free char *sql =
		xasprintf("SELECT CASE WHEN %s <> " BACKEND_SERVER " THEN '" ELSEWHERE "' "
	                  "WHEN %s::pg_catalog.int8 < pg_catalog.txid_current() "
	                  "THEN pg_catalog.txid_status(%s::pg_catalog.int8) ELSE 'aborted' END",
	                  server, number, number);

	return backend_run(b, sql, ret, err);
}

static int cannot_tell(const char *why, struct error *err)
{
	(void)error_set(err, -ATOLL_E_NEEDS_RECOVERY, "%s: what became of it cannot be told", why);
	error_hint(err, "look at the data; atoll rm --force gives the plan up");
	return -ATOLL_E_NEEDS_RECOVERY;
}

/* 1: settled; 0: not yet. */
static int judge(struct backend *b, const struct finish_options *opt, struct error *err)
{
	const char *wanted = opt->commit ? "committed" : "aborted", *status;
	cleanup_free char *answer = NULL;
	int r = ask_status(b, opt, &answer, err);

	if (r < 0)
		return r;
	status = answer ? answer : "";
	if (strcmp(status, wanted) == 0)
		return 1;
	if (strcmp(status, "in progress") == 0)
		return 0;
	if (!*status)
		return opt->decided ? cannot_tell("the transaction is too long ago", err) : 1;
	/* What is not there need not be rolled back, unless it was committed elsewhere. */
	if (strcmp(status, ELSEWHERE) == 0 && !opt->commit && !opt->decided)
		return 1;
	if (strcmp(status, ELSEWHERE) == 0)
		return cannot_tell("another server has taken the place of the one that had the "
		                   "transaction",
		                   err);
	return error_set(err, -ATOLL_E_CONFLICT,
	                 opt->commit ? "the transaction was rolled back by somebody else"
	                             : "the transaction was committed by somebody else");
}

int finish(const struct finish_options *opt, struct error *err)
{
	cleanup_backend struct backend *b = NULL;
	int64_t deadline = clock_deadline(PATIENCE_MS);
	int r = backend_connect(opt->url, &b, err);

	while (r == 0) {
		r = end_prepared(b, opt, err);
		if (r == 0)
			r = judge(b, opt, err);
		if (r == 0 && clock_left_ms(deadline) == 0)
			r = error_set(err, -ATOLL_E_NEEDS_RECOVERY,
			              "a session of the server still works on the transaction");
		if (r == 0)
			clock_sleep_ns(PAUSE_NS);
	}
	return r < 0 ? r : 0;
}

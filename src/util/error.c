/* SPDX-License-Identifier: Apache-2.0 */
/* What each code is called and answers, and the object that carries the words. */
#include "util/error.h"

#include "util/cleanup.h"
#include "util/escape.h"
#include "util/limits.h"
#include "util/mem.h"
#include "util/strbuf.h"
#include "util/utf8.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERRNO_MAX  4095 /* the kernel's own limit */
#define CODE_FIRST ATOLL_E_INVALID
#define SHOWN_PATH 1024 /* bytes of a path in a message, so that the reason after it fits */

struct code_row {
	int code;
	const char *name;
	int exit_status; /* of the command-line tool, design section 11 */
	int http_status;
	const char *words; /* for messages, where an errno would have strerror() */
};

/* In the order of enum atoll_code. */
static const struct code_row code_rows[] = {
	{ ATOLL_E_INVALID, "invalid", 2, 400, "invalid argument" },
	{ ATOLL_E_NOT_FOUND, "not-found", 1, 404, "not found" },
	{ ATOLL_E_EXISTS, "exists", 1, 409, "the name is taken" },
	{ ATOLL_E_AMBIGUOUS, "ambiguous", 1, 409, "several match" },
	{ ATOLL_E_STATE, "state", 1, 409, "not allowed in this state" },
	{ ATOLL_E_BUSY, "busy", 5, 423, "somebody else holds it" },
	{ ATOLL_E_TIMEOUT, "timeout", 5, 423, "the wait ran out" },
	{ ATOLL_E_WOULD_DEADLOCK, "would-deadlock", 1, 409, "called back into its own plan" },
	{ ATOLL_E_CONFLICT, "conflict", 3, 409, "the resource changed meanwhile" },
	{ ATOLL_E_POLICY, "policy", 4, 422, "refused by policy" },
	{ ATOLL_E_UNSUPPORTED, "unsupported", 6, 501, "not supported here" },
	{ ATOLL_E_CANNOT_PREPARE, "cannot-prepare", 4, 409, "cannot promise to commit" },
	{ ATOLL_E_NOT_UNDOABLE, "not-undoable", 4, 409, "the commit is final" },
	{ ATOLL_E_RECOVERY_MISSING, "recovery-missing", 1, 410, "what undo needs is gone" },
	{ ATOLL_E_NEEDS_RECOVERY, "needs-recovery", 7, 503, "needs recovery" },
	{ ATOLL_E_DENIED, "denied", 1, 403, "belongs to somebody else" },
	{ ATOLL_E_LOCK_UNSUPPORTED, "lock-unsupported", 6, 501, "locks do not work there" },
	{ ATOLL_E_TOO_BIG, "too-big", 1, 413, "over a limit" },
	{ ATOLL_E_DAMAGED, "damaged", 7, 500, "not what was written" },
	{ ATOLL_E_NEWER, "newer", 1, 501, "written by a newer version" },
	{ ATOLL_E_STALE, "stale", 3, 412, "not what was looked at" },
	{ ATOLL_E_UNREACHABLE, "unreachable", 6, 502, "no daemon answers there" },
	{ ATOLL_E_NO_FENCE, "no-fence", 6, 501, "no namespaces to run a command in" },
};
_Static_assert(sizeof(code_rows) / sizeof(code_rows[0]) == ATOLL_E_END_ - CODE_FIRST,
               "every enum atoll_code has a row");

static const struct code_row ok_row = { 0, "ok", 0, 200, "done" };
/* A raw errno is our own failure whatever it says: an ENOENT from deep inside is no 404. */
static const struct code_row errno_row = { 0, NULL, 1, 500, NULL };
static const struct code_row unknown_row = { 0, "unknown", 1, 500, "unknown failure" };

static const struct code_row *row_of(int code)
{
	const struct code_row *row;

	if (code == 0)
		return &ok_row;
	/* Not -code: that is not defined for INT_MIN. */
	code = code > 0 ? -code : code;
	if (code >= -ERRNO_MAX)
		return strerrorname_np(-code) ? &errno_row : &unknown_row;
	if (code <= -ATOLL_E_END_)
		return &unknown_row;
	row = &code_rows[-code - CODE_FIRST];
	if (row->code != -code)
		BUG("row %d of code %d is out of order", row->code, -code);
	return row;
}

const char *error_code_name(int code)
{
	const struct code_row *row = row_of(code);

	return row == &errno_row ? strerrorname_np(abs(code)) : row->name;
}

int error_code_of(const char *name)
{
	for (size_t i = 0; i < sizeof(code_rows) / sizeof(code_rows[0]); i++)
		if (strcmp(code_rows[i].name, name) == 0)
			return -code_rows[i].code;
	for (int i = 1; i <= ERRNO_MAX; i++) {
		const char *known = strerrorname_np(i);

		if (known && strcmp(known, name) == 0)
			return -i;
	}
	return 0;
}

int error_code_exit(int code)
{
	return row_of(code)->exit_status;
}

int error_code_http(int code)
{
	return row_of(code)->http_status;
}

static const char *code_words(int code)
{
	const struct code_row *row = row_of(code);

	return row == &errno_row ? strerrordesc_np(abs(code)) : row->words;
}

static void replace(char **field, char *value)
{
	free(*field);
	*field = value;
}

/* Takes SB's text as the message, cut to LIMIT_MESSAGE with its NUL. */
static void take_message(struct error *err, struct strbuf *sb)
{
	static const char dots[] = "...";

	if (sb->len >= LIMIT_MESSAGE) {
		strbuf_truncate(sb, utf8_cut(sb->buf, LIMIT_MESSAGE - sizeof(dots)));
		strbuf_puts(sb, dots);
	}
	replace(&err->msg, strbuf_take(sb));
}

/* Refuses to set ERR twice: the first message is the one that says what happened. */
static void check_unset(const struct error *err, int code)
{
	if (code >= 0)
		BUG("code %d is no failure", code);
	if (err && err->code != 0)
		BUG("error set twice: '%s' is there", err->msg ? err->msg : "");
}

int error_set(struct error *err, int code, const char *fmt, ...)
{
	struct strbuf sb = STRBUF_INIT;
	va_list ap;

	check_unset(err, code);
	if (!err)
		return code;
	va_start(ap, fmt);
	strbuf_vprintf(&sb, fmt, ap);
	va_end(ap);
	err->code = code;
	take_message(err, &sb);
	return code;
}

/* 'PATH' as people may see it, its beginning left out when it is long. */
static void add_path(struct strbuf *sb, const char *path)
{
	cleanup_free char *shown = escape_dup(path);
	size_t len = strlen(shown);
	const char *from = shown;

	if (len > SHOWN_PATH)
		from += utf8_cut(shown, len - SHOWN_PATH);
	strbuf_printf(sb, " '%s%s'", from == shown ? "" : "...", from);
}

int error_sys(struct error *err, int code, const char *op, const char *path)
{
	struct strbuf sb = STRBUF_INIT;

	check_unset(err, code);
	if (!err)
		return code;
	strbuf_printf(&sb, "cannot %s", op);
	if (path)
		add_path(&sb, path);
	strbuf_printf(&sb, ": %s", code_words(code));
	err->code = code;
	take_message(err, &sb);
	error_cause(err, op, path, code >= -ERRNO_MAX ? -code : 0, NULL);
	return code;
}

int error_prefix(struct error *err, int r, const char *fmt, ...)
{
	struct strbuf sb = STRBUF_INIT;
	va_list ap;

	if (r >= 0 || !err)
		return r;
	va_start(ap, fmt);
	strbuf_vprintf(&sb, fmt, ap);
	va_end(ap);
	/* util/ and fs/ return codes without words; those of the code do then. */
	strbuf_printf(&sb, ": %s", err->msg ? err->msg : code_words(r));
	if (err->code == 0)
		err->code = r;
	take_message(err, &sb);
	return r;
}

void error_hint(struct error *err, const char *fmt, ...)
{
	struct strbuf sb = STRBUF_INIT;
	va_list ap;

	if (!err)
		return;
	va_start(ap, fmt);
	strbuf_vprintf(&sb, fmt, ap);
	va_end(ap);
	replace(&err->hint, strbuf_take(&sb));
}

void error_cause(struct error *err, const char *op, const char *path, int os_errno,
                 const char *detail)
{
	if (!err)
		return;
	/* What is not given stays: a child's output is added to the call that failed. */
	if (op)
		replace(&err->op, xstrdup(op));
	if (path)
		replace(&err->path, xstrdup(path));
	if (os_errno != 0)
		err->os_errno = os_errno;
	if (detail)
		replace(&err->detail, xstrdup(detail));
}

void error_move(struct error *to, struct error *from)
{
	if (!to) {
		error_done(from);
		return;
	}
	if (to->code != 0)
		BUG("error set twice: '%s' is there", to->msg ? to->msg : "");
	error_done(to);
	*to = *from;
	*from = ERROR_INIT;
}

void error_done(struct error *err)
{
	int saved = errno;

	free(err->msg);
	free(err->hint);
	free(err->op);
	free(err->path);
	free(err->detail);
	*err = ERROR_INIT;
	errno = saved;
}

void error_bug(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s:%d: BUG: ", file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}

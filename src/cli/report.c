/* SPDX-License-Identifier: Apache-2.0 */
/* How results and failures look, for people and for programs. */
#include "cli/cli.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/escape.h"
#include "util/strbuf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- people ---- */

/* A terminal, also behind a pager. */
bool cli_is_terminal(const struct cli *c, FILE *f)
{
	return (f == stderr ? c->paged_errors : c->paged) || isatty(fileno(f));
}

const char *cli_paint(const struct cli *c, FILE *f, enum paint p)
{
	static const char *const codes[] = {
		[PAINT_NONE] = "\033[m",      [PAINT_GOOD] = "\033[32m", [PAINT_BAD] = "\033[31m",
		[PAINT_CHANGED] = "\033[33m", [PAINT_DIM] = "\033[2m",
	};
	const char *no_color = getenv("NO_COLOR");

	if (c->color == COLOR_NEVER)
		return "";
	if (c->color == COLOR_AUTO && ((no_color && *no_color) || !cli_is_terminal(c, f)))
		return "";
	return codes[p];
}

void cli_put_path(FILE *f, const char *path)
{
	cleanup_free char *text = escape_dup(path);

	(void)fputs(text, f);
}

const char *cli_plural(uint64_t n, const char *one, const char *many)
{
	return n == 1 ? one : many;
}

void cli_time(const struct cli *c, int64_t real_ms, char out[CLOCK_TEXT_LEN])
{
	time_t s = (time_t)(real_ms / 1000);
	struct tm tm;

	if (!cli_is_terminal(c, stdout) || !localtime_r(&s, &tm) ||
	    strftime(out, CLOCK_TEXT_LEN, "%Y-%m-%d %H:%M:%S", &tm) == 0)
		clock_format(real_ms, out);
}

void cli_age(int64_t real_ms, char out[CLI_AGE_LEN])
{
	static const struct {
		int64_t seconds;
		const char *unit;
	} units[] = { { 24 * 3600, "d" }, { 3600, "h" }, { 60, "min" }, { 1, "s" } };
	int64_t age = (clock_real_ms() - real_ms) / 1000;
	size_t i = 0;

	if (age < 0)
		age = 0; /* the clock was set back */
	while (units[i].seconds > 1 && age < units[i].seconds)
		i++;
	(void)snprintf(out, CLI_AGE_LEN, "%" PRId64 " %s", age / units[i].seconds, units[i].unit);
}

void cli_size(uint64_t bytes, char out[CLI_SIZE_LEN])
{
	static const char units[] = "KMGTPE";
	unsigned unit = 0;
	uint64_t tenths;

	if (bytes < 1000) {
		(void)snprintf(out, CLI_SIZE_LEN, "%u %s", (unsigned)bytes,
		               cli_plural(bytes, "byte", "bytes"));
		return;
	}
	/* Before the multiplication overflows. */
	for (; bytes >= UINT64_C(1000) << 10; unit++)
		bytes = (bytes + 512) >> 10;
	tenths = (bytes * 10 + 512) >> 10;
	if (tenths < 100)
		(void)snprintf(out, CLI_SIZE_LEN, "%u.%u %ciB", (unsigned)(tenths / 10),
		               (unsigned)(tenths % 10), units[unit]);
	else
		(void)snprintf(out, CLI_SIZE_LEN, "%u %ciB", (unsigned)((tenths + 5) / 10) & 0xfff,
		               units[unit]);
}

/* A message may quote what a user or a file name said. What is escaped in it already stays as it
 * is: backslashes are not doubled again. */
static void add_message(struct strbuf *sb, const char *text)
{
	while (*text) {
		size_t len = strcspn(text, "\\");

		escape_add(sb, text, len);
		text += len;
		if (*text == '\\') {
			strbuf_putc(sb, '\\');
			text++;
		}
	}
}

static void put_message(FILE *f, const char *text)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	add_message(&sb, text);
	(void)fputs(strbuf_str(&sb), f);
}

void cli_tell(const char *message)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	add_message(&sb, message);
	strbuf_putc(&sb, '\n');
	(void)fputs(strbuf_str(&sb), stderr);
}

static void put_line(const char *before, const char *fmt, va_list ap)
	__attribute__((__format__(__printf__, 2, 0)));

static void put_line(const char *before, const char *fmt, va_list ap)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT, line = STRBUF_INIT;

	strbuf_vprintf(&sb, fmt, ap);
	strbuf_puts(&line, before);
	add_message(&line, strbuf_str(&sb));
	strbuf_putc(&line, '\n');
	(void)fflush(stdout);                   /* what was printed first is to be read first */
	(void)fputs(strbuf_str(&line), stderr); /* in one write: lines of others stay apart */
}

void cli_say(const struct cli *c, const char *fmt, ...)
{
	va_list ap;

	if (c->json)
		return;
	va_start(ap, fmt);
	put_line("", fmt, ap);
	va_end(ap);
}

/* What is said between lines goes to a terminal, and stands in no one's way: with what is printed in a pipe, a
 * program reads that, or the next one prints to the same terminal. */
static bool is_read_by_people(const struct cli *c)
{
	struct stat st;

	if (!cli_is_terminal(c, stderr))
		return false;
	return c->paged || fstat(STDOUT_FILENO, &st) < 0 ||
	       !(S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

void cli_next(const struct cli *c, const char *fmt, ...)
{
	va_list ap;

	if (c->json || c->quiet || !is_read_by_people(c))
		return;
	(void)fflush(stdout); /* the colour, too, comes after what was printed first */
	(void)fputs(cli_paint(c, stderr, PAINT_DIM), stderr);
	va_start(ap, fmt);
	put_line("next: ", fmt, ap);
	va_end(ap);
	(void)fputs(cli_paint(c, stderr, PAINT_NONE), stderr);
}

/* "ROOT/PATH: text" with what is known of it. */
static void put_note(const struct cli *c, const struct atoll_note *note)
{
	const char *root = "";

	for (size_t i = 0; i < atoll_result_participants(c->res); i++) {
		const struct atoll_participant_result *p = atoll_result_participant(c->res, i);

		if (strcmp(p->sandbox, note->sandbox) == 0)
			root = p->root;
	}
	(void)fprintf(stderr, "  %s: ", atoll_note_kind_name(note->kind));
	cli_put_path(stderr, root);
	if (*root && *note->path)
		(void)fputc('/', stderr);
	cli_put_path(stderr, note->path);
	if ((*root || *note->path) && *note->text)
		(void)fputs(": ", stderr);
	put_message(stderr, note->text);
	(void)fputc('\n', stderr);
}

void cli_notes(const struct cli *c)
{
	if (c->json)
		return;
	for (size_t i = 0; i < atoll_result_notes(c->res); i++)
		put_note(c, atoll_result_note(c->res, i));
}

void cli_kept(const struct cli *c, const struct atoll_result *res)
{
	for (size_t i = 0; !c->json && i < atoll_result_notes(res); i++)
		if (atoll_result_note(res, i)->kind == ATOLL_NOTE_KEPT)
			put_note(c, atoll_result_note(res, i));
}

/* Refused before anything was moved, with nothing to repair. */
static bool is_as_before(const struct atoll_participant_result *p)
{
	return p->outcome == ATOLL_OUTCOME_ROLLBACK_FAILED &&
	       p->resource_restored == ATOLL_FACT_NOT_TRIED &&
	       p->workspace_reset == ATOLL_FACT_NOT_TRIED && !*p->recovery_path;
}

/* SAID is what the whole failure was told as: a cause is told once. */
static void put_participant(const struct atoll_participant_result *p, const char *said)
{
	(void)fputs("  ", stderr);
	cli_put_path(stderr, p->root);
	(void)fprintf(stderr, " (%s): %s", p->strategy,
	              is_as_before(p) ? "not undone" : atoll_outcome_name(p->outcome));
	if (*p->message && !strstr(said, p->message)) {
		(void)fputs(": ", stderr);
		put_message(stderr, p->message);
	}
	if (*p->recovery_path) {
		(void)fputs("; what is left lies in ", stderr);
		cli_put_path(stderr, p->recovery_path);
	}
	(void)fputc('\n', stderr);
}

/* Who is concerned: not worth a line when it is the only one and has nothing to add. */
static void put_participants(const struct cli *c, const char *said)
{
	size_t n = atoll_result_participants(c->res);

	for (size_t i = 0; i < n; i++) {
		const struct atoll_participant_result *p = atoll_result_participant(c->res, i);

		if (n > 1 || *p->recovery_path)
			put_participant(p, said);
	}
}

static void put_failure(const struct cli *c, const char *message, const char *hint)
{
	(void)fflush(stdout);
	(void)fprintf(stderr, "%satoll:%s ", cli_paint(c, stderr, PAINT_BAD),
	              cli_paint(c, stderr, PAINT_NONE));
	put_message(stderr, message);
	(void)fputc('\n', stderr);
	cli_notes(c);
	put_participants(c, message);
	if (*hint) {
		(void)fputs("hint: ", stderr);
		put_message(stderr, hint);
		(void)fputc('\n', stderr);
	}
}

/* ---- programs ---- */

void cli_json_begin_on(const struct cli *c, struct json *j, FILE *f)
{
	answer_begin(j, f, c->command->object ? c->command->object : c->command->name);
}

void cli_json_begin(const struct cli *c, struct json *j)
{
	cli_json_begin_on(c, j, stdout);
}

void cli_json_ran(const struct cli *c, struct json *j)
{
	json_int(j, "exit_code", c->ran->exit_code);
	json_int(j, "term_signal", c->ran->term_signal);
	json_bool(j, "timed_out", c->ran->timed_out);
	json_bool(j, "isolated", c->ran->isolated);
}

void cli_json_plan(const struct cli *c, struct json *j)
{
	answer_plan_of(j, c->plan);
}

void cli_json_result(const struct cli *c, struct json *j)
{
	answer_result(j, c->res);
}

void cli_json_end(struct json *j)
{
	answer_end(j);
}

struct json *cli_list_begin(const struct cli *c, struct json *j, const char *name,
                            void (*head)(const struct cli *c, struct json *j))
{
	if (!c->json)
		return NULL;
	cli_json_begin(c, j);
	if (head)
		head(c, j);
	json_open_array(j, name);
	return j;
}

int cli_list_end(struct cli *c, struct json *j, int r)
{
	if (!j)
		return r < 0 ? cli_fail(c, r) : EXIT_SUCCESS;
	json_close(j);
	json_string(j, "code", atoll_code_name(r < 0 ? r : 0));
	cli_json_end(j);
	return r < 0 ? atoll_code_exit(r) : EXIT_SUCCESS;
}

struct failure {
	int code;
	int exit;
	const char *message, *hint, *op, *path, *detail;
	int os_errno;
};

static void json_failure(const struct cli *c, const struct failure *f, FILE *to)
{
	struct json j;

	json_init(&j, to);
	json_open_object(&j, NULL);
	json_string(&j, "format", "atoll.error/1");
	json_string(&j, "command", c->command ? c->command->name : NULL);
	json_string(&j, "code", atoll_code_name(f->code));
	json_int(&j, "exit", f->exit);
	if (c->plan)
		cli_json_plan(c, &j);
	if (c->ran)
		cli_json_ran(c, &j);
	json_string(&j, "message", f->message);
	json_string(&j, "hint", f->hint);
	answer_cause(&j, f->op, f->path, f->os_errno, f->detail);
	cli_json_result(c, &j);
	cli_json_end(&j);
}

/* ---- failures ---- */

static int exit_of(const struct cli *c, int code, const char *op)
{
	if (!c->command || !c->command->own_exit)
		return atoll_code_exit(code);
	/* As a shell has it, where it was the command itself that could not be started. */
	if (strcmp(op, "run") == 0 && code > -ATOLL_E_INVALID)
		return code == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUN;
	return c->command->own_exit;
}

static int fail(const struct cli *c, struct failure *f)
{
	cleanup_free char *hint = *f->hint ? NULL : hint_for(c, f->code, f->op);

	if (hint)
		f->hint = hint;
	f->exit = exit_of(c, f->code, f->op);
	if (c->status)
		json_failure(c, f, c->status);
	if (c->json && c->ran)
		(void)putchar('\n'); /* on a line of its own, however the command's output ended */
	if (c->json)
		json_failure(c, f, stdout);
	else
		put_failure(c, f->message, f->hint);
	return f->exit;
}

int cli_fail(struct cli *c, int code)
{
	return cli_fail_hint(c, code, atoll_result_hint(c->res));
}

int cli_fail_hint(struct cli *c, int code, const char *hint)
{
	struct failure f = {
		.code = code,
		.message = atoll_result_message(c->res),
		.hint = hint,
		.op = atoll_result_cause_op(c->res),
		.path = atoll_result_cause_path(c->res),
		.detail = atoll_result_cause_detail(c->res),
		.os_errno = atoll_result_cause_errno(c->res),
	};

	return fail(c, &f);
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

int cli_fail_error(struct cli *c, struct error *err)
{
	struct failure f = {
		.code = err->code,
		.message = or_empty(err->msg),
		.hint = or_empty(err->hint),
		.op = or_empty(err->op),
		.path = or_empty(err->path),
		.detail = or_empty(err->detail),
		.os_errno = err->os_errno,
	};
	int status = fail(c, &f);

	error_done(err);
	return status;
}

int cli_fail_usage(struct cli *c, const char *fmt, ...)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	struct error err = ERROR_INIT;
	va_list ap;

	va_start(ap, fmt);
	strbuf_vprintf(&sb, fmt, ap);
	va_end(ap);
	(void)error_set(&err, -ATOLL_E_INVALID, "%s", strbuf_str(&sb));
	error_hint(&err, "atoll help%s%s", c->command ? " " : "",
	           c->command ? c->command->name : "");
	return cli_fail_error(c, &err);
}

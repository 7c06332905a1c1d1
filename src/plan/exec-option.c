/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a command's options, and what is said of the limits among them. */
#include "plan/exec-option.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/gitconfig.h"
#include "util/mem.h"

#define OWN_NAMES "ATOLL_"
#define CPUS_MAX  100000.0

void exec_wishes_done(struct exec_wishes *w)
{
	strlist_done(&w->env);
}

/* ---- the environment ---- */

/* Ours say where the command is; they are not for others to set. */
static int check_name(const char *value, size_t len, struct error *err)
{
	if (len == 0)
		return error_set(err, -ATOLL_E_INVALID, "'%s' has no name of a variable in it",
		                 value);
	if (strncmp(value, OWN_NAMES, sizeof(OWN_NAMES) - 1) == 0)
		return error_set(err, -ATOLL_E_INVALID, "'%.*s' is Atoll's own", (int)len, value);
	return 0;
}

/* Without a value the caller's is handed on, whatever else is taken away. */
static int take_env(struct exec_wishes *w, const char *value, struct error *err)
{
	size_t len = strcspn(value, "=");
	const char *now = value[len] ? NULL : getenv(value);
	cleanup_free char *pair = now ? xasprintf("%s=%s", value, now) : xstrdup(value);
	int r = check_name(value, len, err);

	if (r == 0)
		strlist_add(&w->env, pair);
	return r;
}

static int take_unset(struct exec_wishes *w, const char *value, struct error *err)
{
	int r = check_name(value, strlen(value), err);

	if (r == 0 && strchr(value, '='))
		r = error_set(err, -ATOLL_E_INVALID, "'%s' is no name of a variable", value);
	if (r == 0)
		strlist_add(&w->env, value);
	return r;
}

/* ---- the place ---- */

static int take_at(struct exec_wishes *w, const char *value, struct error *err)
{
	if (!request_is_target(value))
		return error_set(err, -ATOLL_E_INVALID,
		                 "'%s' is no absolute path of a directory in its shortest form",
		                 value);
	w->at = value;
	return 0;
}

/* ---- fences ---- */

static int take_net(struct exec_wishes *w, const char *value, struct error *err)
{
	static const struct {
		const char *name, *net;
	} nets[] = {
		{ "host", NULL },
		{ "loopback", REQUEST_NET_LOOPBACK },
		{ "none", REQUEST_NET_NONE },
	};

	for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++) {
		if (strcmp(nets[i].name, value) == 0) {
			w->net = nets[i].net;
			return 0;
		}
	}
	return error_set(err, -ATOLL_E_INVALID, "'%s' is none of: none, loopback, host", value);
}

static int take_number(struct exec_wishes *w, enum request_limit which, const char *value,
                       const char *what, struct error *err)
{
	int64_t n = 0;

	if (gitconfig_int(value, &n) < 0 || n < 0)
		return error_set(err, -ATOLL_E_INVALID, "'%s' is no number of %s", value, what);
	w->limits[which] = n;
	return 0;
}

static int take_memory(struct exec_wishes *w, const char *value, struct error *err)
{
	return take_number(w, REQUEST_LIMIT_MEMORY, value, "bytes, such as 512m or 2g", err);
}

static int take_pids(struct exec_wishes *w, const char *value, struct error *err)
{
	return take_number(w, REQUEST_LIMIT_PIDS, value, "processes", err);
}

static int take_cpus(struct exec_wishes *w, const char *value, struct error *err)
{
	double n;
	char *end;

	errno = 0;
	n = strtod(value, &end);
	/* Put so that what is no number (NaN) is refused too. */
	if (errno != 0 || end == value || *end != '\0' || !(n >= 0 && n <= CPUS_MAX))
		return error_set(err, -ATOLL_E_INVALID, "'%s' is no number of processors", value);
	w->limits[REQUEST_LIMIT_CPUS] = n > 0 && n < 0.001 ? 1 : (int64_t)(n * 1000);
	return 0;
}

static int take_job(struct exec_wishes *w, const char *value, struct error *err)
{
	if (!name_valid(value))
		return error_set(err, -ATOLL_E_INVALID,
		                 "'%s' is no name: letters, digits, dots, dashes, 64 at most",
		                 value);
	w->job = value;
	return 0;
}

static int take_shared(struct exec_wishes *w, const char *value, struct error *err)
{
	(void)value;
	(void)err;
	w->shared = true;
	return 0;
}

static int take_unfenced(struct exec_wishes *w, const char *value, struct error *err)
{
	(void)value;
	(void)err;
	w->unfenced = true;
	return 0;
}

static int take_private(struct exec_wishes *w, const char *value, struct error *err)
{
	(void)err;
	w->private_dirs = value;
	return 0;
}

static int take_transcript(struct exec_wishes *w, const char *value, struct error *err)
{
	int64_t n = 0;

	if (gitconfig_int(value, &n) < 0 || n <= 0)
		return error_set(err, -ATOLL_E_INVALID, "'%s' is no number of bytes to keep",
		                 value);
	w->transcript = n;
	return 0;
}

/* ---- descriptors ---- */

static int take_descriptor(const char *value, int *ret, struct error *err)
{
	int64_t n = -1;

	if (gitconfig_int(value, &n) < 0 || n < 0 || n > INT_MAX || fcntl((int)n, F_GETFD) < 0)
		return error_set(err, -ATOLL_E_INVALID, "'%s' is no open descriptor", value);
	*ret = (int)n;
	return 0;
}

static int take_stdin(struct exec_wishes *w, const char *value, struct error *err)
{
	return take_descriptor(value, &w->stdio[STDIN_FILENO], err);
}

static int take_stdout(struct exec_wishes *w, const char *value, struct error *err)
{
	return take_descriptor(value, &w->stdio[STDOUT_FILENO], err);
}

static int take_stderr(struct exec_wishes *w, const char *value, struct error *err)
{
	return take_descriptor(value, &w->stdio[STDERR_FILENO], err);
}

static int take_control(struct exec_wishes *w, const char *value, struct error *err)
{
	return take_descriptor(value, &w->control, err);
}

static int take_terminal(struct exec_wishes *w, const char *value, struct error *err)
{
	w->own_terminal = strcmp(value, "own") == 0;
	if (!w->own_terminal && strcmp(value, "1") != 0 && strcmp(value, "0") != 0)
		return error_set(err, -ATOLL_E_INVALID, "'%s' is none of 1, 0 and own", value);
	w->terminal = *value == '1';
	return 0;
}

static const struct {
	const char *name;
	int (*take)(struct exec_wishes *w, const char *value, struct error *err);
} rows[] = {
	{ "at", take_at },
	{ "background", take_job },
	{ "control", take_control },
	{ "cpus", take_cpus },
	{ "env", take_env },
	{ "memory", take_memory },
	{ "net", take_net },
	{ "pids", take_pids },
	{ "private", take_private },
	{ "shared", take_shared },
	{ "stderr", take_stderr },
	{ "stdin", take_stdin },
	{ "stdout", take_stdout },
	{ "terminal", take_terminal },
	{ "transcript", take_transcript },
	{ "unfenced", take_unfenced },
	{ "unset", take_unset },
};

static int take(struct exec_wishes *w, const struct atoll_exec_option *o, struct error *err)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int r;

		if (strcmp(rows[i].name, o->name) != 0)
			continue;
		r = rows[i].take(w, o->value ? o->value : "", err);
		return error_prefix(err, r, "option '--%s'", o->name);
	}
	return error_set(err, -ATOLL_E_INVALID, "a command has no option '%s'", o->name);
}

static bool has_stdio(const struct exec_wishes *w)
{
	return w->stdio[0] != FD_NONE || w->stdio[1] != FD_NONE || w->stdio[2] != FD_NONE;
}

static int check_descriptors(const struct exec_wishes *w, struct error *err)
{
	if (w->job && (has_stdio(w) || w->terminal))
		return error_set(err, -ATOLL_E_INVALID,
		                 "a job has no input, and what it prints is kept: it takes no "
		                 "descriptors");
	if (w->terminal && !isatty(w->stdio[STDIN_FILENO]))
		return error_set(err, -ATOLL_E_INVALID,
		                 "option '--terminal': 'stdin' is not given, or is no terminal");
	return 0;
}

/* Whoever would print to a terminal of the caller's would print to a pipe: only in place of our own, and
 * with our own session, there can be another one. */
static int check_transcript(const struct exec_wishes *w, struct error *err)
{
	int out = w->stdio[STDOUT_FILENO] == FD_NONE ? STDOUT_FILENO : w->stdio[STDOUT_FILENO];

	if (w->transcript <= 0 || w->job || !isatty(out) ||
	    (!has_stdio(w) && w->control == FD_NONE))
		return 0;
	(void)error_set(err, -ATOLL_E_UNSUPPORTED,
	                "option '--transcript': standard output is a terminal of the caller's, and "
	                "the command would lose it");
	error_hint(err, "whoever has its other end can keep what is printed");
	return -ATOLL_E_UNSUPPORTED;
}

static int check_together(const struct exec_wishes *w, struct error *err)
{
	int r = check_transcript(w, err);

	if (r < 0)
		return r;
	/* They are what the one that is joined has. */
	if (w->shared && (w->job || w->net || w->at))
		return error_set(err, -ATOLL_E_INVALID,
		                 "a command that joins another has its network and its paths, and "
		                 "is no job");
	return check_descriptors(w, err);
}

int exec_wishes_read(struct exec_wishes *w, const struct atoll_exec_option *v, size_t n,
                     struct error *err)
{
	for (size_t i = 0; i < n; i++) {
		int r = v[i].name ? take(w, &v[i], err)
		                  : error_set(err, -ATOLL_E_INVALID, "an option has no name");

		if (r < 0)
			return r;
	}
	return check_together(w, err);
}

void exec_wishes_apply(const struct exec_wishes *w, struct control *control,
                       struct exec_options *opt)
{
	opt->net = w->net;
	memcpy(opt->limits, w->limits, sizeof(opt->limits));
	opt->stdio = has_stdio(w) ? w->stdio : NULL;
	opt->control = control->fd == FD_NONE ? NULL : control;
	opt->terminal = w->terminal;
	opt->own_terminal = w->own_terminal;
}

/* ---- where ---- */

char *exec_absolute_cwd(const char *given)
{
	cleanup_free char *here = given && *given == '/' ? NULL : getcwd(NULL, 0);

	if (!given)
		return take_ptr(here);
	if (*given == '/')
		return xstrdup(given);
	return here ? xasprintf("%s/%s", here, given) : NULL;
}

/* ---- what held it ---- */

static char *amount(const struct exec_wishes *w, int which)
{
	int64_t n = w->limits[which];

	switch (which) {
	case REQUEST_LIMIT_MEMORY:
		return n % (INT64_C(1) << 20) ? xasprintf("%" PRId64 " bytes of memory", n)
		                              : xasprintf("%" PRId64 " MiB of memory", n >> 20);
	case REQUEST_LIMIT_CPUS:
		return xasprintf("%g processors", (double)n / 1000);
	default:
		return xasprintf("%" PRId64 " processes", n);
	}
}

void exec_wishes_report(const struct exec_wishes *w, const struct exec_usage *usage,
                        struct atoll_result *res)
{
	static const struct {
		enum atoll_note_kind kind;
		const char *text;
	} said[REPLY_LIMIT_END_] = {
		[REPLY_LIMIT_CGROUP2] = { ATOLL_NOTE_INFO, "held by a control group" },
		[REPLY_LIMIT_CGROUP1] = { ATOLL_NOTE_INFO, "held by a control group (version 1)" },
		[REPLY_LIMIT_RLIMIT] = { ATOLL_NOTE_WARNING,
		                         "no control group can be made here, so this holds for each "
		                         "process (memory) or user (processes) by itself, not for the "
		                         "command as a whole" },
		[REPLY_LIMIT_NOTHING] = { ATOLL_NOTE_WARNING,
		                          "not enforced: no control group can be made here" },
	};

	for (int i = 0; i < REQUEST_LIMIT_END_; i++) {
		cleanup_free char *most = NULL;
		cleanup_free char *text = NULL;

		if (w->limits[i] <= 0 || usage->limit_by[i] == REPLY_LIMIT_UNASKED)
			continue;
		most = amount(w, i);
		text = xasprintf("at most %s: %s", most, said[usage->limit_by[i]].text);
		result_note(res, said[usage->limit_by[i]].kind, "", "", text);
	}
	if (usage->memory_kills > 0) {
		cleanup_free char *most = amount(w, REQUEST_LIMIT_MEMORY);
		cleanup_free char *text = xasprintf(
			"the command needed more than %s: the kernel killed %u of its processes",
			most, usage->memory_kills);

		result_note(res, ATOLL_NOTE_WARNING, "", "", text);
	}
}

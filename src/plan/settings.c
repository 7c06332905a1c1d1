/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings, what their values mean, and where they are read from. */
#include "plan/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "plan/plan.h"
#include "plan/settings-impl.h"
#include "util/cleanup.h"
#include "util/gitconfig.h"
#include "util/limits.h"
#include "util/mem.h"
#include "util/strbuf.h"

#define SYSTEM_FILE  "/etc/atoll/config"
#define FOR_OTHERS   022
#define DURATION_MAX (INT64_C(1) << 52) /* ms; far from where sums overflow */

static const char *const when[] = { "auto", "always", "never", NULL };
static const char *const roots[] = { "auto", "git", "here", NULL }; /* enum project_scope */
static const char *const nets[] = { "none", "loopback", "host", NULL };

const struct setting_row setting_rows[SETTING_END_] = {
	[SETTING_AGENT_SHARED] = { "agent.shared", SETTING_BOOL, "false",
	                           "whether an agent's command may join one that runs", NULL,
	                           false },
	[SETTING_COLOR_UI] = { "color.ui", SETTING_CHOICE, "auto", "when to use colours", when,
	                       false },
	[SETTING_CORE_PAGER] = { "core.pager", SETTING_TEXT, "",
	                         "what shows long output; cat: nothing; empty: $PAGER, git's core.pager or less",
	                         NULL, false },
	[SETTING_EXEC_CPUS] = { "exec.cpus", SETTING_TEXT, "0",
	                        "processors that a command may use at most; 0: all", NULL, false },
	[SETTING_EXEC_MEMORY] = { "exec.memory", SETTING_COUNT, "0",
	                          "bytes of memory a command may have at most; 0: no limit", NULL,
	                          false },
	[SETTING_EXEC_MIN_FREE] = { "exec.min-free", SETTING_SIZE, "auto",
	                            "end a command when less than so many bytes are free", NULL,
	                            false },
	[SETTING_EXEC_NET] = { "exec.net", SETTING_CHOICE, "host",
	                       "the network of a command: none, loopback, host", nets, false },
	[SETTING_EXEC_PIDS] = { "exec.pids", SETTING_COUNT, "0",
	                        "processes a command may have at most; 0: no limit", NULL, false },
	[SETTING_EXEC_STRICT] = { "exec.strict", SETTING_BOOL, "false",
	                          "run no command where a part of the isolation is missing", NULL,
	                          true },
	[SETTING_EXEC_TIMEOUT] = { "exec.timeout", SETTING_DURATION, "never",
	                           "end a command of exec and run after that time", NULL, false },
	[SETTING_EXEC_TRANSCRIPT_MAX] = { "exec.transcript-max", SETTING_COUNT, "1m",
	                                  "bytes kept of what a command prints, at most", NULL,
	                                  false },
	[SETTING_FENCE_PRIVATE] = { "fence.private", SETTING_TEXT, "",
	                            "more directories of the home that are private, with colons between",
	                            NULL, false },
	[SETTING_FENCE_REQUIRED] = { "fence.required", SETTING_BOOL, "true",
	                             "run no command where this host has no namespaces", NULL,
	                             true },
	[SETTING_LOCK_WAIT] = { "lock.wait", SETTING_DURATION, "never",
	                        "stop waiting for a lock after that time", NULL, false },
	[SETTING_LOG_MAX_AGE] = { "log.max-age", SETTING_DURATION, "90d",
	                          "history older than that goes", NULL, false },
	[SETTING_LOG_MAX_ENTRIES] = { "log.max-entries", SETTING_COUNT, "20000",
	                              "older entries of the history go", NULL, false },
	[SETTING_POLICY_DENY_ESCAPING_LINKS] = { "policy.deny-escaping-links", SETTING_BOOL,
	                                         "false", "refuse new links that leave their tree",
	                                         NULL, true },
	[SETTING_RUN_ROOT] = { "run.root", SETTING_CHOICE, "auto",
	                       "where a plan begins, with no resource named: auto, git, here",
	                       roots, false },
	[SETTING_START_STRATEGY] = { "start.strategy", SETTING_TEXT, "",
	                             "how directories are isolated; empty: as it works best", NULL,
	                             false },
	[SETTING_UNDO_RETENTION] = { "undo.retention", SETTING_DURATION, "24h",
	                             "how long a commit can be undone; never: until stop ends it",
	                             NULL, false },
};

enum setting setting_find(const char *key)
{
	for (size_t i = 0; i < SETTING_END_; i++)
		if (strcasecmp(setting_rows[i].key, key) == 0)
			return (enum setting)i;
	return SETTING_END_;
}

/* ---- values ---- */

static int parse_duration(const char *value, int64_t *ret)
{
	static const struct {
		const char *unit;
		int64_t seconds;
	} units[] = { { "", 1 },     { "s", 1 },     { "m", 60 },
		      { "h", 3600 }, { "d", 86400 }, { "w", 604800 } };
	char *end;
	long long number;

	if (strcasecmp(value, "never") == 0) {
		*ret = SETTING_NEVER;
		return 0;
	}
	errno = 0;
	number = strtoll(value, &end, 10);
	if (errno != 0 || end == value || number < 0)
		return -EINVAL;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].unit) != 0)
			continue;
		if (number > DURATION_MAX / 1000 / units[i].seconds)
			return -EINVAL;
		*ret = number * units[i].seconds * 1000;
		return 0;
	}
	return -EINVAL;
}

static int parse_choice(const char *const *choices, const char *value, int64_t *ret)
{
	for (size_t i = 0; choices[i]; i++) {
		if (strcmp(choices[i], value) == 0) {
			*ret = (int64_t)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_number(enum setting_kind kind, const char *value, int64_t *ret)
{
	int r;

	if (kind == SETTING_SIZE && strcasecmp(value, "auto") == 0) {
		*ret = SETTING_AUTO;
		return 0;
	}
	r = gitconfig_int(value, ret);
	return r == 0 && *ret < 0 ? -EINVAL : r;
}

/* A bare name is a true boolean and nothing else. */
static int parse(const struct setting_row *row, const char *value, int64_t *ret)
{
	bool is = false;
	int r;

	if (row->kind == SETTING_BOOL) {
		r = gitconfig_bool(value, &is);
		*ret = is;
		return r;
	}
	if (!value)
		return -EINVAL;
	switch (row->kind) {
	case SETTING_CHOICE:
		return parse_choice(row->choices, value, ret);
	case SETTING_COUNT:
	case SETTING_SIZE:
		return parse_number(row->kind, value, ret);
	case SETTING_DURATION:
		return parse_duration(value, ret);
	case SETTING_TEXT:
	case SETTING_BOOL:
	case SETTING_KIND_END_:
		break;
	}
	*ret = 0;
	return 0;
}

/* "auto, always or never" */
static char *choices_text(const char *const *choices)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	for (size_t i = 0; choices[i]; i++)
		strbuf_printf(&sb, "%s%s",
		              i == 0           ? ""
		              : choices[i + 1] ? ", "
		                               : " or ",
		              choices[i]);
	return strbuf_take(&sb);
}

int setting_parse(enum setting which, const char *value, int64_t *ret, struct error *err)
{
	static const char *const wanted[SETTING_KIND_END_] = {
		[SETTING_TEXT] = "a text",
		[SETTING_BOOL] = "true or false",
		[SETTING_COUNT] = "a number, such as 500 or 20k",
		[SETTING_SIZE] = "a number of bytes, such as 64m, or auto",
		[SETTING_DURATION] = "a time, such as 90s, 15m, 24h or 7d, or never",
	};
	const struct setting_row *row = &setting_rows[which];
	cleanup_free char *one_of = row->choices ? choices_text(row->choices) : NULL;
	int64_t number = 0;
	int r = parse(row, value, &number);

	if (r < 0)
		return error_set(err, -ATOLL_E_INVALID, "%s: '%s' is not %s", row->key,
		                 value ? value : "", one_of ? one_of : wanted[row->kind]);
	*ret = number;
	return 0;
}

/* ---- files ---- */

static const char *env(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

char *settings_path(enum settings_scope scope)
{
	cleanup_free char *home = NULL;
	const char *named =
		env(scope == SETTINGS_SYSTEM ? "ATOLL_CONFIG_SYSTEM" : "XDG_CONFIG_HOME");

	if (scope == SETTINGS_SYSTEM)
		return xstrdup(named ? named : SYSTEM_FILE);
	if (named && named[0] == '/')
		return xasprintf("%s/atoll/config", named);
	home = store_user_dir();
	return home && home[0] == '/' ? xasprintf("%s/.config/atoll/config", home) : NULL;
}

/* NULL, or what is wrong with a file that decides how commands are fenced in. */
static const char *distrust(enum settings_scope scope, const struct stat *st)
{
	/* Whoever names the machine's file himself may own it. */
	bool his = scope == SETTINGS_USER || env("ATOLL_CONFIG_SYSTEM");

	if (!S_ISREG(st->st_mode))
		return "is no regular file";
	if (st->st_uid != 0 && !(his && st->st_uid == geteuid()))
		return his ? "belongs to somebody else" : "does not belong to root";
	if (st->st_mode & FOR_OTHERS)
		return "can be written to by others (chmod go-w it)";
	return NULL;
}

int settings_read_file(enum settings_scope scope, const char *path, char **ret, size_t *ret_len,
                       struct strlist *remarks)
{
	cleanup_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	const char *wrong;
	struct stat st;
	int r = fd < 0 ? -errno : 0;

	if (r == -ENOENT || r == -ENOTDIR)
		return 0;
	if (r == 0)
		r = fstat(fd, &st) < 0 ? -errno : 0;
	wrong = r < 0 ? strerror(-r) : distrust(scope, &st);
	if (!wrong) {
		r = fs_read_all(fd, LIMIT_CONFIG, ret, ret_len);
		if (r < 0)
			wrong = r == -ATOLL_E_TOO_BIG ? "is too big" : strerror(-r);
	}
	if (wrong) {
		cleanup_free char *line = xasprintf("'%s' is not used: it %s", path, wrong);
		cleanup_free char *failed = xasprintf("'%s' is not used: %s", path, wrong);

		strlist_add(remarks, r < 0 && r != -ATOLL_E_TOO_BIG ? failed : line);
		return 0;
	}
	return 1;
}

struct loading {
	struct settings *s;
	const char *file;
	struct error *err;
};

/* Of a setting that narrows, the first "yes" stays. */
static bool outranks(const struct settings *s, enum setting which, int64_t number)
{
	return !setting_rows[which].narrows || !s->v[which].file || number > s->v[which].number;
}

static int take_entry(void *user, const struct gitconfig_entry *e)
{
	struct loading *l = user;
	enum setting which = setting_find(e->key);
	cleanup_error struct error cause = ERROR_INIT;
	struct setting_value *v;
	int64_t number = 0;

	if (strncmp(e->key, SETTINGS_REMOTE, strlen(SETTINGS_REMOTE)) == 0)
		return 0;
	if (which == SETTING_END_) {
		cleanup_free char *line = xasprintf("%s:%u: %s", l->file, e->line, e->key);

		strlist_add(&l->s->unknown, line);
		return 0;
	}
	/* One wrong value is told; the others are read all the same. */
	if (setting_parse(which, e->value, &number, &cause) < 0) {
		if (l->err && !l->err->code) {
			(void)error_set(l->err, cause.code, "%s:%u: %s", l->file, e->line,
			                cause.msg);
			error_hint(l->err, "correct that line, or atoll config unset %s",
			           setting_rows[which].key);
		}
		return 0;
	}
	if (!outranks(l->s, which, number))
		return 0;
	v = &l->s->v[which];
	free(v->text);
	free(v->file);
	*v = (struct setting_value){ .text = xstrdup(e->value ? e->value : "true"),
		                     .number = number,
		                     .file = xstrdup(l->file),
		                     .line = e->line };
	return 0;
}

static void load_file(struct settings *s, enum settings_scope scope, struct error *err)
{
	cleanup_free char *path = settings_path(scope);
	cleanup_free char *text = NULL;
	struct loading l = { .s = s, .file = path, .err = err };
	unsigned line = 0;
	size_t len = 0;

	if (!path || settings_read_file(scope, path, &text, &len, &s->remarks) <= 0)
		return;
	if (gitconfig_read(text, len, take_entry, &l, &line) < 0 && !err->code) {
		(void)error_set(err, -ATOLL_E_INVALID, "%s:%u: this is no line of a config file",
		                path, line);
		error_hint(err, "correct that line; it should be as in git-config(1)");
	}
}

struct telling {
	const char *path;
	settings_entry_fn fn;
	void *user;
};

static int tell_entry(void *user, const struct gitconfig_entry *e)
{
	const struct telling *t = user;

	return t->fn(t->user, t->path, e);
}

int settings_tell(const char *path, const char *text, size_t len, settings_entry_fn fn, void *user,
                  struct error *err)
{
	struct telling t = { .path = path, .fn = fn, .user = user };
	unsigned line = 0;
	int r = gitconfig_read(text, len, tell_entry, &t, &line);

	if (r != -EINVAL || line == 0)
		return r;
	(void)error_set(err, -ATOLL_E_INVALID, "%s:%u: this is no line of a config file", path,
	                line);
	error_hint(err, "correct that line; it should be as in git-config(1)");
	return -ATOLL_E_INVALID;
}

int settings_each(enum settings_scope scope, settings_entry_fn fn, void *user, struct error *err)
{
	cleanup_strlist struct strlist remarks = STRLIST_INIT;
	cleanup_free char *path = settings_path(scope);
	cleanup_free char *text = NULL;
	size_t len = 0;

	if (!path || settings_read_file(scope, path, &text, &len, &remarks) <= 0)
		return 0;
	return settings_tell(path, text, len, fn, user, err);
}

int settings_load(struct settings *s, struct error *err)
{
	cleanup_error struct error first = ERROR_INIT;
	int r;

	for (size_t i = 0; i < SETTING_END_; i++) {
		s->v[i].text = xstrdup(setting_rows[i].fallback);
		if (setting_parse((enum setting)i, s->v[i].text, &s->v[i].number, NULL) < 0)
			BUG("%s has a wrong fallback", setting_rows[i].key);
	}
	load_file(s, SETTINGS_SYSTEM, &first);
	load_file(s, SETTINGS_USER, &first);
	r = first.code;
	if (r < 0)
		error_move(err, &first);
	return r;
}

void settings_done(struct settings *s)
{
	for (size_t i = 0; i < SETTING_END_; i++) {
		free(s->v[i].text);
		free(s->v[i].file);
	}
	strlist_done(&s->remarks);
	strlist_done(&s->unknown);
	*s = SETTINGS_INIT;
}

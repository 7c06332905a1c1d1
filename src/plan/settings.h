/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: what the machine's administrator and the user have chosen, for the programs. The library
 * itself reads none of this; whoever opens a store hands on what he finds here.
 *
 * Two files in git's syntax (util/gitconfig.h) are read, in this order, and the later one wins:
 *
 *   /etc/atoll/config                  the machine's; $ATOLL_CONFIG_SYSTEM names another
 *   $XDG_CONFIG_HOME/atoll/config      the user's; else ~/.config/atoll/config
 *
 * No file inside a resource is ever read: what is worked on must not decide how it is fenced in. Of
 * a setting that narrows what is allowed (setting_row.narrows) "true" counts, wherever it stands.
 *
 * A file is trusted when it is a regular file that nobody but its owner may write to; the machine's
 * belongs to root, the user's to him or to root. One that is not is left out, with a remark.
 */
#ifndef PLAN_SETTINGS_H
#define PLAN_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/error.h"
#include "util/gitconfig.h"
#include "util/list.h"

enum setting {
	SETTING_AGENT_SHARED = 0,
	SETTING_COLOR_UI,
	SETTING_CORE_PAGER,
	SETTING_EXEC_CPUS,
	SETTING_EXEC_MEMORY,
	SETTING_EXEC_MIN_FREE,
	SETTING_EXEC_NET,
	SETTING_EXEC_PIDS,
	SETTING_EXEC_STRICT,
	SETTING_EXEC_TIMEOUT,
	SETTING_EXEC_TRANSCRIPT_MAX,
	SETTING_FENCE_PRIVATE,
	SETTING_FENCE_REQUIRED,
	SETTING_LOCK_WAIT,
	SETTING_LOG_MAX_AGE,
	SETTING_LOG_MAX_ENTRIES,
	SETTING_POLICY_DENY_ESCAPING_LINKS,
	SETTING_RUN_ROOT,
	SETTING_START_STRATEGY,
	SETTING_UNDO_RETENTION,
	SETTING_END_
};

enum setting_kind {
	SETTING_TEXT = 0,
	SETTING_CHOICE,   /* one of CHOICES; the number is its place */
	SETTING_BOOL,     /* 0 or 1 */
	SETTING_COUNT,    /* not negative; k, m, g behind it */
	SETTING_SIZE,     /* bytes, the same; or "auto": SETTING_AUTO */
	SETTING_DURATION, /* ms; 90, 90s, 15m, 24h, 7d, 2w; or "never": SETTING_NEVER */
	SETTING_KIND_END_
};
#define SETTING_AUTO  (-1)
#define SETTING_NEVER (-1)

struct setting_row {
	const char *key;
	enum setting_kind kind;
	const char *fallback; /* its value when no file has it, in the same words */
	const char *help;     /* one line */
	const char *const *choices;
	bool narrows;
};
/* In the order of enum setting, which is that of their keys. */
extern const struct setting_row setting_rows[SETTING_END_];

struct setting_value {
	char *text;
	int64_t number; /* of all kinds but TEXT */
	char *file;     /* NULL: the fallback */
	unsigned line;
};

struct settings {
	struct setting_value v[SETTING_END_];
	struct strlist remarks; /* files left out, and why */
	struct strlist unknown; /* "file:line: key" of keys that nobody knows */
};
#define SETTINGS_INIT ((struct settings){ 0 })

/* Reads both files. -ATOLL_E_INVALID names file and line: what could be read is there all the same,
 * and the rest has its fallback. */
int settings_load(struct settings *s, struct error *err);
void settings_done(struct settings *s);
#define cleanup_settings __attribute__((__cleanup__(settings_done)))

/* The setting called KEY (any case), or SETTING_END_. */
enum setting setting_find(const char *key);
/* The number of a value in words; -ATOLL_E_INVALID says what would do. VALUE NULL is a bare name. */
int setting_parse(enum setting which, const char *value, int64_t *ret, struct error *err);

enum settings_scope { SETTINGS_SYSTEM = 0, SETTINGS_USER, SETTINGS_SCOPE_END_ };
/* The path of a file; the caller frees. NULL: there is no home directory. */
char *settings_path(enum settings_scope scope);
/* Sets (VALUE NULL: takes out) a setting in one of the files, made when missing; comments and all
 * other lines stay. -ATOLL_E_NOT_FOUND: there is nothing to take out.
 * Locking: one writer at a time (flock on the directory). Crash: the old file or the new one. */
int settings_write(enum settings_scope scope, enum setting which, const char *value,
                   struct error *err);

/* ---- other entries: those of a section that has many, such as [remote "NAME"] ---- */

#define SETTINGS_REMOTE "remote." /* not told as unknown */

/* Tells FN every entry of a file, and PATH, where it is. Nothing, when the file is not there or not to be
 * trusted. -ATOLL_E_INVALID: a line is wrong. */
typedef int (*settings_entry_fn)(void *user, const char *path, const struct gitconfig_entry *e);
int settings_each(enum settings_scope scope, settings_entry_fn fn, void *user, struct error *err);

struct settings_change {
	const char *key;
	const char *value; /* NULL: taken out, if it is there */
};
/* All of them in one replacement of the file, after LOOK (may be NULL) was told every entry there is and
 * refused nothing. Locking, Crash: as settings_write(). */
int settings_change(enum settings_scope scope, const struct settings_change *v, size_t n,
                    settings_entry_fn look, void *user, struct error *err);

#endif

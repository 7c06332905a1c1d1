/* SPDX-License-Identifier: Apache-2.0 */
/* Changing a settings file: one entry of it, all else as it was. */
#include "plan/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/resolve.h"
#include "plan/plan.h"
#include "plan/settings-impl.h"
#include "strategy/strategy.h"
#include "util/cleanup.h"
#include "util/gitconfig.h"
#include "util/mem.h"
#include "util/strbuf.h"

#define NEW_MODE 0644

struct place {
	char *path; /* of the file itself, links resolved */
	const char *name;
	int dir_fd; /* locked */
	mode_t mode;
};

/* What is asked before a change. */
struct look {
	settings_entry_fn fn; /* or NULL */
	void *user;
	bool is_strict; /* what is to be taken out must be there */
};

static void place_done(struct place *p)
{
	free(p->path);
	close_fd(&p->dir_fd);
}
#define cleanup_place __attribute__((__cleanup__(place_done)))

/* A link is followed once, here: the file it leads to is replaced, and the link stays. */
static int place_open(struct place *p, const char *path)
{
	struct stat st;
	char *slash;
	int r = resolve_canonical(path, &p->path);

	if (r == -ENOENT)
		p->path = xstrdup(path);
	else if (r < 0)
		return r;
	slash = strrchr(p->path, '/');
	if (!slash || slash == p->path)
		return -EINVAL;
	*slash = '\0';
	p->name = slash + 1;
	r = store_make_dirs(p->path);
	if (r < 0)
		return r;
	p->dir_fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->dir_fd < 0 || flock(p->dir_fd, LOCK_EX) < 0)
		return -errno;
	if (fstatat(p->dir_fd, p->name, &st, 0) == 0)
		p->mode = st.st_mode & 0777;
	return 0;
}

static int read_old(enum settings_scope scope, const char *path, char **ret, size_t *ret_len,
                    struct error *err)
{
	cleanup_strlist struct strlist remarks = STRLIST_INIT;

	if (settings_read_file(scope, path, ret, ret_len, &remarks) == 0 && remarks.n > 0)
		return error_set(err, -ATOLL_E_DENIED, "%s; nothing was changed", remarks.v[0]);
	return 0;
}

static int not_set(const char *path, const char *key, struct error *err)
{
	(void)error_set(err, -ATOLL_E_NOT_FOUND, "'%s' does not set %s; nothing was changed", path,
	                key);
	error_hint(err, "atoll config list --show-origin says where each value comes from");
	return -ATOLL_E_NOT_FOUND;
}

static int wrong_line(const char *path, unsigned line, struct error *err)
{
	(void)error_set(err, -ATOLL_E_INVALID,
	                "%s:%u: this is no line of a config file; nothing was changed", path, line);
	error_hint(err, "correct that line; it should be as in git-config(1)");
	return -ATOLL_E_INVALID;
}

/* TEXT is replaced. -ENOENT: there was nothing to take out. */
static int edit(const char *path, struct strbuf *text, const struct settings_change *change,
                struct error *err)
{
	struct strbuf changed = STRBUF_INIT;
	unsigned line = 0;
	int r = gitconfig_edit(strbuf_str(text), text->len, change->key, change->value, &changed,
	                       &line);

	if (r < 0) {
		strbuf_done(&changed);
		return r == -ENOENT ? r : wrong_line(path, line, err);
	}
	strbuf_done(text);
	*text = changed;
	return 0;
}

/* What counts when it is read is the same, but for a strategy: a later atoll may know more. */
static int check_value(enum setting which, const char *value, struct error *err)
{
	const struct atoll_strategy *strategy;
	int64_t number;
	int r = setting_parse(which, value, &number, err);

	if (r == 0 && which == SETTING_START_STRATEGY && *value)
		r = strategy_find(value, &strategy, err);
	return r;
}

static int no_home(struct error *err)
{
	(void)error_set(err, -ATOLL_E_NOT_FOUND,
	                "cannot tell where your settings are: there is no home directory");
	error_hint(err, "set HOME or XDG_CONFIG_HOME, or use --system");
	return -ATOLL_E_NOT_FOUND;
}

static int change(enum settings_scope scope, const struct settings_change *v, size_t n,
                  const struct look *look, struct error *err)
{
	cleanup_strbuf struct strbuf text = STRBUF_INIT;
	cleanup_place struct place p = { .dir_fd = FD_NONE, .mode = NEW_MODE };
	cleanup_free char *path = settings_path(scope);
	cleanup_free char *old = NULL;
	size_t len = 0;
	int r;

	if (!path)
		return no_home(err);
	r = place_open(&p, path);
	if (r < 0)
		return error_sys(err, r, "open the directory of", path);
	r = read_old(scope, path, &old, &len, err);
	if (r == 0 && look->fn && old)
		r = settings_tell(path, old, len, look->fn, look->user, err);
	if (r < 0)
		return r;
	strbuf_add(&text, old ? old : "", len);
	for (size_t i = 0; i < n; i++) {
		r = edit(path, &text, &v[i], err);
		if (r == -ENOENT && look->is_strict)
			return not_set(path, v[i].key, err);
		if (r < 0 && r != -ENOENT)
			return r;
	}
	r = fs_replace_file(p.dir_fd, p.name, strbuf_str(&text), text.len, p.mode);
	return r < 0 ? error_sys(err, r, "write", path) : 0;
}

int settings_write(enum settings_scope scope, enum setting which, const char *value,
                   struct error *err)
{
	const struct settings_change one = { .key = setting_rows[which].key, .value = value };
	cleanup_free char *path = settings_path(scope);
	int r;

	if (!path)
		return no_home(err);
	if (value && (r = check_value(which, value, err)) < 0)
		return r;
	return change(scope, &one, 1, &(struct look){ .is_strict = true }, err);
}

int settings_change(enum settings_scope scope, const struct settings_change *v, size_t n,
                    settings_entry_fn look, void *user, struct error *err)
{
	return change(scope, v, n, &(struct look){ .fn = look, .user = user }, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes as the other files of this folder use them: rows, identity, participants. */
#include "plan/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/mount.h"
#include "fs/resolve.h"
#include "fs/stat.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/git-env.h"
#include "util/mem.h"
#include "util/strbuf.h"

/* ---- rows ---- */

static int collect(void *ctx, const struct sandbox_row *row)
{
	struct sandboxes *s = ctx;
	struct sandbox_row *to;

	if (grow((void **)&s->v, &s->cap, s->n + 1, sizeof(*s->v)) < 0)
		return -ENOMEM;
	to = &s->v[s->n++];
	*to = *row;
	to->strategy = xstrdup(row->strategy ? row->strategy : "");
	to->root = xstrdup(row->root ? row->root : "");
	to->root_id = xstrdup(row->root_id ? row->root_id : "");
	to->area = xstrdup(row->area ? row->area : "");
	to->work = xstrdup(row->work ? row->work : "");
	to->parent = xstrdup(row->parent ? row->parent : "");
	to->error = xstrdup(row->error ? row->error : "");
	to->boot_id = xstrdup(row->boot_id ? row->boot_id : "");
	return 0;
}

int sandboxes_load(struct registry *reg, const char *plan, struct sandboxes *ret, struct error *err)
{
	cleanup_sandboxes struct sandboxes s = SANDBOXES_INIT;
	int r = registry_sandbox_list(reg, plan, collect, &s, err);

	if (r < 0)
		return r;
	if (plan && s.n > LIMIT_SANDBOXES)
		return error_set(err, -ATOLL_E_DAMAGED, "plan '%s' has %zu resources", plan, s.n);
	for (size_t i = 0; i < s.n; i++)
		sandbox_check(&s.v[i]);
	sandboxes_done(ret);
	*ret = s;
	s = SANDBOXES_INIT;
	return 0;
}

void sandboxes_done(struct sandboxes *s)
{
	for (size_t i = 0; i < s->n; i++)
		sandbox_row_done(&s->v[i]);
	free(s->v);
	*s = SANDBOXES_INIT;
}

void sandboxes_env(const struct sandboxes *s, struct strlist *env)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct atoll_strategy *strategy = NULL;

		if (strategy_find(s->v[i].strategy, &strategy, NULL) == 0 &&
		    strcmp(strategy->kind, "repository") == 0) {
			git_env_no_auto_gc(env);
			return;
		}
	}
}

void sandbox_check(const struct sandbox_row *row)
{
	size_t plan_len = strlen(row->plan);

	if (strncmp(row->id, row->plan, plan_len) != 0 || row->id[plan_len] != '-')
		BUG("sandbox '%s' is not of plan '%s' (invariant 1)", row->id, row->plan);
	if (row->state != ATOLL_SANDBOX_PENDING && (!*row->area || !*row->work))
		BUG("sandbox '%s' has no area on record (invariant 2)", row->id);
	if ((row->state == ATOLL_SANDBOX_ERRORED) != (*row->error != '\0'))
		BUG("sandbox '%s' is %s with the reason '%s' (invariant 3)", row->id,
		    atoll_sandbox_state_name(row->state), row->error);
	if (row->state == ATOLL_SANDBOX_PENDING && (row->exec_n || row->stale))
		BUG("sandbox '%s' was used before it was complete (invariant 4)", row->id);
}

bool sandbox_is_live(const struct sandbox_row *row)
{
	return row->state != ATOLL_SANDBOX_PENDING && row->state != ATOLL_SANDBOX_CLEANED_UP;
}

bool sandbox_is_remains(const struct sandbox_row *row)
{
	return row->state == ATOLL_SANDBOX_ERRORED && !*row->boot_id && row->exec_n == 0;
}

static int find_only(const struct sandboxes *s, size_t *ret_index, struct error *err)
{
	cleanup_strbuf struct strbuf names = STRBUF_INIT;
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		if (!sandbox_is_live(&s->v[i]))
			continue;
		strbuf_printf(&names, "%s'%s'", n ? ", " : "", s->v[i].root);
		if (n++ == 0)
			*ret_index = i;
	}
	if (n == 0)
		return error_set(err, -ATOLL_E_NOT_FOUND, "the plan has no resources");
	if (n == 1)
		return 0;
	(void)error_set(err, -ATOLL_E_AMBIGUOUS, "the plan has several resources, say which: %s",
	                strbuf_str(&names));
	error_hint(err, "put one of them behind the plan's name");
	return -ATOLL_E_AMBIGUOUS;
}

int sandboxes_find(const struct sandboxes *s, const char *ref, size_t *ret_index, struct error *err)
{
	cleanup_free char *canonical = NULL;

	if (!ref)
		return find_only(s, ret_index, err);
	(void)resolve_canonical(ref, &canonical);
	for (size_t i = 0; i < s->n; i++) {
		const struct sandbox_row *row = &s->v[i];

		if (strcmp(row->id, ref) == 0 || strcmp(row->root, ref) == 0 ||
		    (canonical && strcmp(row->root, canonical) == 0)) {
			*ret_index = i;
			return 0;
		}
	}
	return error_set(err, -ATOLL_E_NOT_FOUND, "the plan has no resource '%s'", ref);
}

/* ---- identity ---- */

static int identify(int fd, const char *suffix, char **ret, struct error *err)
{
	struct mount_info mi;
	struct fs_stat st;
	int r = fs_stat_at(fd, "", FS_STAT_ID, &st);

	if (r == 0)
		r = mount_info(fd, &mi);
	if (r < 0)
		return error_sys(err, r, "identify", "the resource");
	*ret = xasprintf("%s:%" PRIu64 ":%" PRIx64 "%s", mi.fsid, st.id.ino, st.id.gen, suffix);
	return 0;
}

/* A file is replaced by whoever saves it, and is the same resource still: it is known by its
 * directory and its name there. */
static int identify_file(const char *root, char **ret, struct error *err)
{
	const char *slash = strrchr(root, '/');
	cleanup_free char *dir = xstrndup(root, slash == root ? 1 : (size_t)(slash - root));
	cleanup_close int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? error_sys(err, -errno, "open", dir) : identify(fd, slash, ret, err);
}

int sandbox_root_id(int fd, const char *root, char **ret, struct error *err)
{
	struct fs_stat st;
	int r = fs_stat_at(fd, "", 0, &st);

	if (r < 0)
		return error_sys(err, r, "look at", root);
	return S_ISREG(st.mode) ? identify_file(root, ret, err) : identify(fd, "", ret, err);
}

/* Some filesystems take their fsid from the device's number, which another boot may change; the
 * inode and its generation must be the same always. */
static bool same_identity(const struct sandbox_row *row, const char *now)
{
	const char *was_inode = strchr(row->root_id, ':');
	const char *is_inode = strchr(now, ':');

	if (strcmp(row->root_id, now) == 0)
		return true;
	return strcmp(row->boot_id, clock_boot_id()) != 0 && was_inode && is_inode &&
	       strcmp(was_inode, is_inode) == 0;
}

int sandbox_verify_root(const struct sandbox_row *row, struct error *err)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *now = NULL;
	int r;

	if (!strchr(row->root_id, ':')) /* not a file: nothing to compare */
		return 0;
	fd = open(row->root, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		r = error_sys(err, -errno, "open the resource", row->root);
		error_hint(err, "put it back, or give the plan up: atoll rm --force %s", row->plan);
		return r;
	}
	r = sandbox_root_id(fd, row->root, &now, err);
	if (r < 0)
		return r;
	if (same_identity(row, now))
		return 0;
	(void)error_set(err, -ATOLL_E_CONFLICT,
	                "'%s' was replaced by another since the plan was made; nothing "
	                "was changed",
	                row->root);
	error_hint(err, "put the old one back, or give the plan up: atoll rm --force %s",
	           row->plan);
	return -ATOLL_E_CONFLICT;
}

bool sandbox_is_at(const struct sandbox_row *row, const char *path)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *now = NULL;

	if (strcmp(row->root, path) == 0)
		return true;
	fd = open(path, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 && sandbox_root_id(fd, path, &now, NULL) == 0 && same_identity(row, now);
}

void sandbox_written(struct sandbox_row *row)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *now = NULL;

	if (strchr(row->root_id, ':') && strcmp(row->boot_id, clock_boot_id()) != 0)
		fd = open(row->root, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	/* What cannot be told, or is another, the next use finds again. */
	if (fd >= 0 && sandbox_root_id(fd, row->root, &now, NULL) == 0 && same_identity(row, now)) {
		free(row->root_id);
		row->root_id = take_ptr(now);
	}
	cleanup_freep(&row->boot_id);
	row->boot_id = xstrdup(clock_boot_id());
}

static int area_gone(const struct sandbox_row *row, const char *path, const char *plan_name,
                     struct error *err)
{
	/* Nothing of it was put on disk before its first command was. */
	if (strcmp(row->boot_id, clock_boot_id()) != 0 && row->exec_n <= 1)
		(void)error_set(
			err, -ENOENT,
			"the work on '%s' is lost: the machine went down before '%s' was on "
			"disk; the resource itself is as it was",
			row->root, path);
	else
		(void)error_set(
			err, -ENOENT,
			"the work on '%s' is gone: somebody removed '%s'; the resource itself "
			"is as it was",
			row->root, path);
	error_cause(err, "open", path, ENOENT, NULL);
	error_hint(err, "atoll discard %s begins again from what is there now", plan_name);
	return -ENOENT;
}

static int find_dir(const struct sandbox_row *row, const char *path, const char *plan_name,
                    int *ret_fd, struct error *err)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return area_gone(row, path, plan_name, err);
	if (fd < 0)
		return error_sys(err, -errno, "open", path);
	*ret_fd = fd;
	return 0;
}

int sandbox_find_area(const struct sandbox_row *row, const char *plan_name, struct error *err)
{
	cleanup_close int area = FD_NONE, work = FD_NONE;
	int r = find_dir(row, row->area, plan_name, &area, err);

	return r < 0 ? r : find_dir(row, row->work, plan_name, &work, err);
}

static int make_again(const struct sandbox_row *row, const char *path, struct error *err)
{
	struct fs_stat st;

	if (!row->stale || fs_stat_at(AT_FDCWD, path, 0, &st) != -ENOENT)
		return 0;
	return area_make_dir(path, row->root, err);
}

static int verify_dir(const struct sandbox_row *row, const char *path, const char *plan_name,
                      struct error *err)
{
	cleanup_close int fd = FD_NONE;
	struct mount_info mi;
	int r = make_again(row, path, err);

	if (r == 0)
		r = find_dir(row, path, plan_name, &fd, err);
	if (r < 0)
		return r;
	r = mount_info(fd, &mi);
	if (r < 0)
		return error_sys(err, r, "look at the mount of", path);
	if (!mi.read_only)
		return 0;
	(void)error_set(err, -ATOLL_E_UNSUPPORTED,
	                "the work on '%s' lies in '%s', whose mount has become read-only; nothing "
	                "was changed",
	                row->root, path);
	error_hint(err, "as root: mount -o remount,rw its filesystem, then again");
	return -ATOLL_E_UNSUPPORTED;
}

int sandbox_verify_area(const struct sandbox_row *row, const char *plan_name, struct error *err)
{
	int r = verify_dir(row, row->area, plan_name, err);

	return r < 0 ? r : verify_dir(row, row->work, plan_name, err);
}

int sandbox_allows(const struct sandbox_row *row, enum sandbox_verb verb, const char *plan_name,
                   struct error *err)
{
	if (sandbox_verb_allowed(row->state, verb))
		return 0;
	if (row->state == ATOLL_SANDBOX_ERRORED) {
		bool other_boot = strcmp(row->boot_id, clock_boot_id()) != 0;

		(void)error_set(err, -ATOLL_E_STATE, "'%s' cannot go on: %s; nothing was changed",
		                row->root, row->error);
		error_hint(err, "atoll diff %s shows the work; %s%s%satoll discard %s drops it",
		           plan_name, other_boot ? "atoll recover --accept " : "",
		           other_boot ? plan_name : "", other_boot ? " takes it as it is, " : "",
		           plan_name);
	} else if (row->state == ATOLL_SANDBOX_CLEANED_UP) {
		(void)error_set(err, -ATOLL_E_STATE, "plan '%s' is being removed", plan_name);
		error_hint(err, "atoll rm %s", plan_name);
	} else {
		(void)error_set(err, -ATOLL_E_STATE, "%s is not possible: '%s' is %s",
		                sandbox_verb_name(verb), row->root,
		                atoll_sandbox_state_name(row->state));
	}
	return -ATOLL_E_STATE;
}

/* ---- participants ---- */

/* The part of PATH that lies below DIR, or NULL. */
static const char *relative_to(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (strcmp(path, dir) == 0 || !path_below(path, dir))
		return NULL;
	return path + len + (dir[len - 1] == '/' ? 0 : 1);
}

static void exclude(struct strlist *l, const char *relative)
{
	if (relative && *relative && !strlist_has(l, relative))
		strlist_add(l, relative);
}

struct excluding {
	const char *root;
	struct strlist *list;
};

/* An area lies in a directory of ours, which is nobody's work. */
static int exclude_area(void *ctx, const char *plan, const char *sandbox, const char *path)
{
	const struct excluding *e = ctx;
	cleanup_free char *around = xstrdup(path);
	char *slash = strrchr(around, '/');

	(void)plan;
	(void)sandbox;
	if (slash)
		*slash = '\0';
	exclude(e->list, relative_to(around, e->root));
	return 0;
}

static int exclude_sandbox(void *ctx, const struct sandbox_row *other)
{
	const struct excluding *e = ctx;
	const char *relative = relative_to(other->root, e->root);

	exclude(e->list, relative);
	for (const char *const *side = strategy_sides(other->strategy); relative && *side; side++) {
		cleanup_free char *path = xasprintf("%s%s", relative, *side);

		exclude(e->list, path);
	}
	return 0;
}

/* Left alone by the participant: what lies below its root but is ours, or another sandbox's. */
static int list_excludes(struct registry *reg, const struct sandbox_row *row, struct strlist *ret,
                         struct error *err)
{
	struct excluding e = { .root = row->root, .list = ret };
	char own[AREA_DIR_LEN];
	int r;

	area_dir_name(own);
	exclude(ret, own);
	r = registry_path_list_below(reg, row->root, exclude_area, &e, err);
	if (r == 0)
		r = registry_sandbox_list(reg, row->plan, exclude_sandbox, &e, err);
	strlist_sort(ret);
	return r;
}

int sandbox_open(struct sandbox *s, struct atoll *a, const char *plan_name,
                 const struct sandbox_row *row, struct error *err)
{
	struct participant_options opt = { .id = row->id,
		                           .plan = plan_name,
		                           .strategy = row->strategy,
		                           .root = row->root,
		                           .area = row->area,
		                           .work = row->work,
		                           .generation = row->generation,
		                           .stale = row->stale,
		                           .excludes = &s->excludes,
		                           .store_fd = a->home_fd };
	int r = list_excludes(a->reg, row, &s->excludes, err);

	return r < 0 ? r : participant_new(&opt, &s->part, err);
}

void sandbox_close(struct sandbox *s)
{
	participant_free(s->part);
	strlist_done(&s->excludes);
	*s = SANDBOX_INIT;
}

int sandbox_erase(struct atoll *a, const char *plan_name, const struct sandbox_row *row,
                  struct error *err)
{
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;
	int r = sandbox_open(&s, a, plan_name, row, err);

	if (r == 0)
		r = participant_remove(s.part, err);
	if (r == 0)
		r = area_remove(row->area, err);
	if (r == 0 && strcmp(row->work, row->area) != 0)
		r = area_remove(row->work, err);
	return r;
}

int sandbox_forget_paths(struct registry *reg, const struct sandbox_row *row, struct error *err)
{
	int r = registry_path_remove(reg, row->area, err);

	if (r == 0 && strcmp(row->work, row->area) != 0)
		r = registry_path_remove(reg, row->work, err);
	return r;
}

int sandbox_forget(struct registry *reg, const struct sandbox_row *row, struct error *err)
{
	int r = sandbox_forget_paths(reg, row, err);

	return r < 0 ? r : registry_sandbox_delete(reg, row->id, err);
}

/* ---- looking ---- */

/* Its directories, or some of them, did not outlive the boot they were made in; the next use makes them
 * anew. */
static bool never_on_disk(const struct sandbox_row *row)
{
	return durable_other_boot(row) && durable_unused(row) &&
	       sandbox_verify_root(row, NULL) == 0;
}

/* What is missing, of which ERR tells, may be a part of the workspace. */
static int part_gone(const struct sandbox_row *row, const char *plan_name, struct error *err)
{
	cleanup_free char *path = err && err->path ? xstrdup(err->path) : NULL;

	if (!path || !(path_below(path, row->area) || path_below(path, row->work)))
		return -ENOENT;
	error_done(err);
	return area_gone(row, path, plan_name, err);
}

int sandbox_diff(struct atoll *a, const char *plan_name, const struct sandbox_row *row,
                 atoll_change_fn fn, void *user, struct error *err)
{
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;
	int r;

	/* A stale workspace holds nothing that counts any more. */
	if (!sandbox_is_live(row) || sandbox_is_remains(row) || row->stale)
		return 0;
	r = sandbox_find_area(row, plan_name, err);
	if (r == 0)
		r = sandbox_open(&s, a, plan_name, row, err);
	if (r == 0)
		r = participant_diff(s.part, fn, user, err);
	if (r != -ENOENT)
		return r;
	if (!never_on_disk(row))
		return part_gone(row, plan_name, err);
	if (err)
		error_done(err);
	return 0;
}

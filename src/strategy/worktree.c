/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strategy `worktree`: where no overlay can be mounted, or a tool needs a real path. The workspace
 * is a copy of the working tree (the strategy `copy` does that part) with a private repository in its
 * `.git`; publication is that of `git` (git.h).
 *
 * Why not `git worktree add`: that writes into the repository, and shares refs, settings and hooks with
 * it. Here nothing of ours is in the repository before the decision, and so nothing to clean up.
 *
 * The private repository:
 *
 *   HEAD, refs, index   copies, the index with the copy's times in it
 *   objects             new ones only; `info/alternates` leads to the repository's, in two ways:
 *                       `../atoll-objects`, where commands have them mounted, only to be read, since the
 *                       workspace covers the repository's own path then; and by that path, for
 *                       everybody else. Git passes over the one that leads nowhere, or to itself
 *   all else            copies (settings, hooks, logs), with a base record `gitG`
 *
 * Files are copied first, then HEAD and index; if these were changed meanwhile the files may be of another
 * commit, which a command would take for work. So it begins again then.
 *
 * Crash: whatever is there without `refsG` is made anew.
 */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/copy.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#define ALTERNATES     "objects/info/alternates"
#define ALTERNATES_MAX (1u << 20)
#define TRIES          3

/* ---- the private repository, as it is ---- */

static char *base_path(const struct atoll_participant *p)
{
	return xasprintf("%s/git%" PRIu64, p->work, p->generation);
}

static int open_base(const struct atoll_participant *p, struct base **ret, struct error *err)
{
	cleanup_free char *path = base_path(p);
	cleanup_close int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? error_sys(err, -errno, "open the base record", path)
	              : base_open(fd, ret, err);
}

int worktree_base(struct atoll_participant *p, struct base **ret)
{
	return open_base(p, ret, &p->err);
}

int worktree_open(const struct atoll_participant *p, int *ret_fd)
{
	cleanup_free char *work = git_work_path(p);
	cleanup_close int work_fd = open(work, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int fd = FD_NONE;
	cleanup_base struct base *base = NULL;
	struct fs_stat st;
	int r = work_fd < 0 ? -errno : resolve_dir(work_fd, ".git", &fd);

	if (r >= 0)
		r = fs_stat_at(fd, "", FS_STAT_ID, &st);
	if (r >= 0)
		r = open_base(p, &base, NULL);
	if (r < 0)
		return r;
	if (st.id.ino != base_root(base)->work_ino || st.id.gen != base_root(base)->work_gen)
		return -ESTALE;
	*ret_fd = take_fd(&fd);
	return 0;
}

/* ---- making it ---- */

/* Made by hand, each in its order; or not for us. */
static const char *const apart[] = { "objects", "refs", "packed-refs", "HEAD", "index" };

static int list_apart(int git_fd, struct strlist *ret)
{
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	int r = dirlist_read(git_fd, &names);

	for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++)
		strlist_add(ret, apart[i]);
	for (size_t i = 0; i < names.n && r >= 0; i++)
		if (git_is_lock(names.v[i].name) || /* of a git that runs now */
		    strategy_is_area(names.v[i].name))
			strlist_add(ret, names.v[i].name);
	return r;
}

static void note_unreadable(void *ctx, const char *path, const char *why)
{
	cleanup_free char *full = xasprintf(".git/%s", path);

	atoll_participant_note(ctx, ATOLL_NOTE_UNREADABLE, full, why);
}

static int copy_rest(struct atoll_participant *p, const struct git_state *st, int to_fd)
{
	cleanup_strlist struct strlist excludes = STRLIST_INIT;
	cleanup_base_writer struct base_writer *writer = NULL;
	cleanup_free char *path = base_path(p);
	cleanup_close int fd = FD_NONE;
	int r = list_apart(st->dir_fd, &excludes);

	(void)fs_unlink_at(AT_FDCWD, path); /* what an interrupted attempt left */
	if (r >= 0)
		r = fs_create_at(AT_FDCWD, path, 0600, &fd);
	if (r >= 0)
		r = base_writer_new(fd, &writer);
	if (r < 0)
		return error_sys(&p->err, r, "write the base record in", p->work);
	return tree_copy(st->dir_fd, to_fd, &excludes, writer, 0, note_unreadable, p, &p->err);
}

static void add_alternate(struct strbuf *out, const char *path)
{
	cleanup_strbuf struct strbuf quoted = STRBUF_INIT;

	git_path_list(&quoted, path);
	strbuf_printf(out, "%s\n", strbuf_str(&quoted));
}

/* A line of the repository's own list: a path from OBJECTS does not lead there from where commands
 * have them mounted. Others are found from anywhere. */
static void add_relative(struct strbuf *out, const char *objects, const char *line)
{
	cleanup_free char *joined = xasprintf("%s/%s", objects, line), *path = NULL;

	if (*line && !strchr("/\"#", *line) && resolve_canonical(joined, &path) >= 0)
		add_alternate(out, path);
}

static int put_alternates(const struct git_state *st, const char *objects, int to_fd)
{
	cleanup_strbuf struct strbuf text = STRBUF_INIT;
	cleanup_close int in = FD_NONE, out = FD_NONE;
	cleanup_free char *theirs = NULL;
	char *line, *rest;
	size_t len;
	int r;

	strbuf_printf(&text, "../%s\n", WORKTREE_OBJECTS);
	add_alternate(&text, objects);
	if (resolve_file(st->dir_fd, ALTERNATES, &in) >= 0 &&
	    fs_read_all(in, ALTERNATES_MAX, &theirs, &len) >= 0)
		for (rest = theirs; (line = strsep(&rest, "\n"));)
			add_relative(&text, objects, line);
	r = fs_create_at(to_fd, ALTERNATES, 0644, &out);
	return r < 0 ? r : fs_write_all(out, text.buf, text.len);
}

/* Where the repository has its objects; a link may be there. Caller frees. */
static int find_objects(struct atoll_participant *p, const struct git_state *st, char **ret)
{
	cleanup_free char *path = xasprintf("%s/objects", st->dir);
	int r = resolve_canonical(path, ret);

	return r < 0 ? error_sys(&p->err, r, "find", path) : 0;
}

static int put_objects(struct atoll_participant *p, const struct git_state *st, int to_fd)
{
	static const char *const dirs[] = { "objects", "objects/info", "objects/pack",
		                            WORKTREE_OBJECTS };
	cleanup_free char *objects = NULL;
	int r = find_objects(p, st, &objects);

	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]) && r >= 0; i++)
		r = fs_mkdir_at(to_fd, dirs[i], 0755);
	if (r >= 0)
		r = put_alternates(st, objects, to_fd);
	return r < 0 ? error_sys(&p->err, r, "make a repository in", p->work) : 0;
}

static int put_refs(struct atoll_participant *p, const struct git_state *st, int to_fd)
{
	int r = fs_mkdir_at(to_fd, "refs", 0755);

	if (r >= 0)
		r = git_refs_copy(p, st->dir_fd, to_fd);
	if (r >= 0)
		r = copy_entry_at(st->dir_fd, "HEAD", to_fd, "HEAD", NULL, NULL);
	if (r >= 0)
		r = copy_entry_at(st->dir_fd, "index", to_fd, "index", NULL, NULL);
	if (r < 0 && p->err.code)
		return r;
	return r < 0 && r != -ENOENT ? error_sys(&p->err, r, "copy the refs of", p->root) : 0;
}

/* The copies are other inodes than the index knows: looked at once here, not by every command. What
 * fails here is missed by nobody. */
static void refresh_index(struct atoll_participant *p)
{
	cleanup_free char *work = git_work_path(p);
	cleanup_free char *dir = xasprintf("%s/.git", work);
	struct git g = GIT_AT(dir);

	g.work_tree = work;
	(void)git_ask(p, &g, GIT_ARGS("update-index", "-q", "--refresh"), NULL, NULL);
	error_done(&p->err);
}

/* `.git` in the workspace, empty. */
static int clear(struct atoll_participant *p, int *ret_fd)
{
	cleanup_free char *work = git_work_path(p);
	cleanup_close int work_fd = open(work, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct fs_stat st;
	int r = work_fd < 0 ? -errno : fs_stat_at(work_fd, "", 0, &st);

	if (r >= 0)
		r = remove_tree_at(work_fd, ".git");
	if (r >= 0)
		r = fs_mkdir_at(work_fd, ".git", 0700);
	if (r >= 0)
		r = resolve_dir(work_fd, ".git", ret_fd);
	if (r >= 0)
		r = fs_set_mtime(work_fd, "", st.mtime_ns);
	return r < 0 ? error_sys(&p->err, r, "make a repository in", work) : 0;
}

/* From the beginning. */
static int make_private(struct atoll_participant *p)
{
	cleanup_close int fd = FD_NONE;
	struct git_state *st;
	int r = git_state(p, &st);

	if (r >= 0)
		r = clear(p, &fd);
	if (r >= 0)
		r = copy_rest(p, st, fd);
	crashpoint("worktree.make.copied");
	if (r >= 0)
		r = put_refs(p, st, fd);
	if (r >= 0)
		r = put_objects(p, st, fd);
	crashpoint("worktree.make.done");
	if (r >= 0)
		refresh_index(p);
	return r;
}

/* ---- a workspace of one state of the repository ---- */

/* What is checked out, and what is staged. */
static int take_state(struct atoll_participant *p, char ret[HASH_TEXT_LEN])
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	cleanup_free char *head = NULL;
	struct git_state *st;
	struct git g;
	int r = git_state(p, &st);

	if (r >= 0)
		r = git_head_read(p, st->dir_fd, "HEAD", &head);
	if (r < 0)
		return r;
	g = GIT_AT(st->dir);
	r = git_ask(p, &g, GIT_ARGS("rev-parse", "-q", "--verify", "HEAD"), NULL, &out);
	strbuf_printf(&out, "%s\n", head);
	if (r >= 0)
		r = git_do(p, &g, GIT_ARGS("ls-files", "-s", "-z"), NULL, &out);
	if (r >= 0)
		hash_buffer(out.buf, out.len, ret);
	return r < 0 ? r : 0;
}

/* The files, as the other strategy makes them: a new generation of what is stale, else the first. */
static int make_files(struct atoll_participant *p)
{
	cleanup_free char *path = NULL;

	return p->stale ? git_files(p)->path(p, &path) : git_files(p)->create(p);
}

static int make(struct atoll_participant *p)
{
	char before[HASH_TEXT_LEN], after[HASH_TEXT_LEN];
	bool was_stale = p->stale;
	int r = 0;

	for (int i = 0; i < TRIES && r >= 0; i++) {
		p->stale = was_stale;
		r = take_state(p, before);
		if (r >= 0)
			r = make_files(p);
		if (r >= 0)
			r = make_private(p);
		if (r >= 0)
			r = take_state(p, after);
		if (r >= 0 && strcmp(before, after) == 0)
			return git_base_write(p);
	}
	p->stale = was_stale;
	if (r < 0)
		return r;
	(void)error_set(&p->err, -EAGAIN,
	                "somebody checked out, committed or staged in '%s' each time it was copied",
	                p->root);
	error_hint(&p->err, "again when that has ended");
	return -EAGAIN;
}

static int worktree_create(struct atoll_participant *p)
{
	int r = git_check_repository(p);

	git_hide(p); /* what `.git` is to be is not for the other strategy to make */
	return r < 0 ? r : make(p);
}

/* The base comes last: a generation that has one is complete. */
static int renew(struct atoll_participant *p)
{
	git_hide(p);
	if (!p->stale && git_base_exists(p))
		return 0;
	p->stale = true;
	return make(p);
}

/* ---- what else differs from `git` ---- */

static int worktree_path(struct atoll_participant *p, char **ret_path)
{
	int r = renew(p);

	return r < 0 ? r : git_files(p)->path(p, ret_path);
}

/* A directory, whatever a command left in its place. */
static int make_mount_point(int git_fd)
{
	struct fs_stat st;
	int r = fs_stat_at(git_fd, WORKTREE_OBJECTS, 0, &st);

	if (r >= 0 && S_ISDIR(st.mode))
		return 0;
	if (r >= 0)
		r = fs_unlink_at(git_fd, WORKTREE_OBJECTS);
	return r < 0 && r != -ENOENT ? r : fs_mkdir_at(git_fd, WORKTREE_OBJECTS, 0755);
}

static int worktree_mounts(struct atoll_participant *p)
{
	cleanup_free char *objects = NULL, *target = NULL;
	cleanup_close int fd = FD_NONE;
	struct git_state *st;
	int r = renew(p);

	if (r >= 0)
		r = git_files(p)->mounts(p);
	if (r >= 0)
		r = git_state(p, &st);
	/* One that a command made there needs nothing of ours; the commit will say so. */
	if (r < 0 || worktree_open(p, &fd) < 0)
		return r;
	r = make_mount_point(fd);
	if (r < 0)
		return error_sys(&p->err, r, "make a mount point in the workspace of", p->root);
	r = find_objects(p, st, &objects);
	target = xasprintf("%s/" WORKTREE_OBJECTS, st->dir);
	return r < 0 ? r : participant_show(p, target, objects);
}

/* Files alone would come to another commit than HEAD in the workspace is at. */
static int worktree_refresh(struct atoll_participant *p)
{
	(void)error_set(&p->err, -ATOLL_E_UNSUPPORTED,
	                "the checkout of '%s' cannot be brought up to date", p->root);
	error_hint(&p->err,
	           "merge or rebase in the plan; what others commit is merged by atoll "
	           "commit %s",
	           p->plan);
	return -ATOLL_E_UNSUPPORTED;
}

const struct atoll_strategy strategy_worktree = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "worktree",
	.kind = "repository",
	.capabilities = ATOLL_CAP_PREPARE | ATOLL_CAP_UNDO | ATOLL_CAP_DIFF | ATOLL_CAP_PATH |
	                ATOLL_CAP_MOUNTS | ATOLL_CAP_LATE,
	.create = worktree_create,
	.path = worktree_path,
	.mounts = worktree_mounts,
	.diff = git_diff,
	.content = git_content,
	.lines = git_lines,
	.prepare = git_prepare,
	.check = git_check,
	.commit = git_commit,
	.abort = git_abort,
	.undo = git_undo,
	.unlock = git_unlock,
	.finish = git_finish,
	.release = git_release,
	.reset = git_reset,
	.remove = git_remove,
	.refresh = worktree_refresh,
};

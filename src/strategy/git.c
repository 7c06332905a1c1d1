/* SPDX-License-Identifier: Apache-2.0 */
/* The strategy `git`: an overlay, and what git.h says of `.git`. */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/remove.h"
#include "fs/sync.h"
#include "strategy/dir.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#define BUSY      "busy"
#define BUSY_WAIT 60000 /* ms until a git that a dead process left has ended */

const struct git_ground *git_ground(const struct atoll_participant *p)
{
	static const struct git_ground over = { &strategy_overlay, 'u', true };
	static const struct git_ground apart = { &strategy_copy, 'w', false };

	return p->ops == &strategy_worktree ? &apart : &over;
}

const struct atoll_strategy *git_files(const struct atoll_participant *p)
{
	return git_ground(p)->files;
}

char *git_work_path(const struct atoll_participant *p)
{
	return xasprintf("%s/%c%" PRIu64, p->work, git_ground(p)->letter, p->generation);
}

static void swaps_done(struct git_swaps parts[GIT_PART_END_])
{
	struct git_record r = GIT_RECORD_INIT;

	(void)memcpy(r.parts, parts, sizeof(r.parts));
	git_record_done(&r);
}

static void state_free(void *extra)
{
	struct git_state *st = extra;

	free(st->dir);
	free(st->objects);
	close_fd(&st->dir_fd);
	close_fd(&st->busy_fd);
	git_record_done(&st->rec);
	swaps_done(st->undone);
	free(st);
}

int git_state(struct atoll_participant *p, struct git_state **ret)
{
	struct git_state *st = p->extra;
	cleanup_strbuf struct strbuf list = STRBUF_INIT;
	cleanup_free char *objects = NULL;

	if (!st) {
		st = xcalloc(1, sizeof(*st));
		st->dir = xasprintf("%s/.git", p->root);
		objects = xasprintf("%s/objects", st->dir);
		git_path_list(&list, objects);
		st->objects = strbuf_take(&list);
		st->busy_fd = st->dir_fd = FD_NONE;
		p->extra = st;
		p->extra_free = state_free;
	}
	if (st->dir_fd < 0)
		st->dir_fd = open(st->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (st->dir_fd < 0)
		return error_sys(&p->err, -errno, "open", st->dir);
	*ret = st;
	return 0;
}

void git_hide(struct atoll_participant *p)
{
	if (p->excludes == &p->own_excludes)
		return;
	for (size_t i = 0; p->excludes && i < p->excludes->n; i++)
		strlist_add(&p->own_excludes, p->excludes->v[i]);
	strlist_add(&p->own_excludes, ".git");
	p->excludes = &p->own_excludes;
}

int git_be_alone(struct atoll_participant *p)
{
	cleanup_free char *path = xasprintf("%s/" BUSY, p->area);
	int64_t deadline = clock_deadline(BUSY_WAIT);
	struct git_state *st;
	int r = git_state(p, &st);

	if (r < 0 || st->busy_fd != FD_NONE)
		return r;
	r = fs_create_at(AT_FDCWD, path, 0600, &st->busy_fd);
	if (r == -EEXIST) {
		st->busy_fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
		r = st->busy_fd < 0 ? -errno : 0;
	}
	if (r < 0)
		return error_sys(&p->err, r, "open", path);
	while (flock(st->busy_fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK || clock_left_ms(deadline) == 0)
			return error_sys(&p->err, -errno, "wait for a git that was left in",
			                 p->root);
		clock_sleep_ns(5 * 1000000ll);
	}
	return 0;
}

/* ---- the record of a batch ---- */

int git_batch_open(const struct atoll_participant *p)
{
	cleanup_free char *path = xasprintf("%s/b%u", p->area, p->batch.number);

	return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int git_load(struct atoll_participant *p, const struct git_record **ret, struct git_hashes *h)
{
	cleanup_close int fd = FD_NONE;
	struct git_state *st;
	int r = git_state(p, &st);

	*ret = NULL;
	(void)memcpy(h->outer, p->manifest, sizeof(h->outer));
	if (r < 0)
		return r;
	if (st->batch != p->batch.number) {
		git_record_done(&st->rec);
		st->batch = 0;
		fd = git_batch_open(p);
		r = fd < 0 ? -errno : git_record_read(fd, p->manifest, &st->rec, &p->err);
		if (r == -ENOENT)
			return 0;
		if (r < 0)
			return p->err.code ? r
			                   : error_sys(&p->err, r, "open the batch in", p->area);
		st->batch = p->batch.number;
	}
	if (*p->manifest)
		(void)memcpy(p->manifest, st->rec.files, sizeof(p->manifest));
	*ret = &st->rec;
	return 0;
}

void git_load_end(struct atoll_participant *p, const struct git_hashes *h)
{
	(void)memcpy(p->manifest, h->outer, sizeof(p->manifest));
}

/* ---- the workspace ---- */

static int git_create(struct atoll_participant *p)
{
	int r = git_check_repository(p);

	if (r >= 0)
		r = git_files(p)->create(p);
	return r < 0 ? r : git_base_write(p);
}

/* The base belongs to the generation that the other strategy made, if it made one. */
static int follow_generation(struct atoll_participant *p, uint64_t before)
{
	return p->generation == before && git_base_exists(p) ? 0 : git_base_write(p);
}

static int git_path(struct atoll_participant *p, char **ret_path)
{
	uint64_t before = p->generation;
	int r = git_files(p)->path(p, ret_path);

	return r < 0 ? r : follow_generation(p, before);
}

static int git_mounts(struct atoll_participant *p)
{
	uint64_t before = p->generation;
	int r = git_files(p)->mounts(p);

	return r < 0 ? r : follow_generation(p, before);
}

int git_check(struct atoll_participant *p)
{
	const struct git_record *rec;
	struct git_hashes h;
	int r;

	git_hide(p);
	r = git_load(p, &rec, &h);
	if (r >= 0)
		r = git_files(p)->check(p);
	if (r >= 0 && rec && !p->batch.recovering)
		r = git_refs_try(p, rec);
	git_load_end(p, &h);
	return r;
}

/* ---- after the decision ---- */

/* Who took the repository away took our locks in it, too. */
static bool is_gone(const struct atoll_participant *p)
{
	cleanup_free char *dir = xasprintf("%s/.git", p->root);

	return access(dir, F_OK) < 0 && errno == ENOENT;
}

/* What others would stumble over: the `.keep`, and locks that a git could not remove, of which it says
 * nothing. */
static int drop_own(struct atoll_participant *p, const struct git_record *rec)
{
	cleanup_free char *keep = xasprintf("objects/pack/%s.keep", rec->pack ? rec->pack : "");
	struct git_state *st;
	int r = git_state(p, &st);

	if (r >= 0)
		r = git_locks_clear(p, rec);
	if (r < 0 || !rec->pack)
		return r;
	r = fs_unlink_at(st->dir_fd, keep);
	return r < 0 && r != -ENOENT ? error_sys(&p->err, r, "remove", keep) : 0;
}

static void drop_view(const struct atoll_participant *p)
{
	cleanup_free char *path = xasprintf("%s/g%u", p->area, p->batch.number);

	(void)remove_tree(path);
}

/* Marks in the batch: all of it is in place, or all of it went back. Whoever repeats it then leaves
 * everything as it is, since others may have built on it. So it is made when all of that is on disk: a
 * power cut in the middle of a barrier leaves any part of it. And it is made while we keep others out, so
 * what they do comes after it on disk, too. */
static const char *const marks[] = { "done", "undone" };

static int mark(struct atoll_participant *p, bool back)
{
	cleanup_close int batch_fd = git_batch_open(p), fd = FD_NONE;
	int r = batch_fd < 0 ? -errno : 0;

	if (r >= 0 && p->batch.sync && !sabotage("git-mark"))
		r = syncset_run(p->batch.sync);
	if (r >= 0)
		r = fs_create_at(batch_fd, marks[back], 0600, &fd);
	if ((r >= 0 || r == -EEXIST) && p->batch.sync) {
		int added = syncset_add_fd(p->batch.sync, batch_fd);

		r = added < 0 ? added : r;
	}
	crashpoint("git.marked");
	return r < 0 && r != -EEXIST ? error_sys(&p->err, r, "mark the batch in", p->area) : 0;
}

static bool is_marked(const struct atoll_participant *p, bool back)
{
	cleanup_close int batch_fd = git_batch_open(p);
	struct fs_stat st;

	return batch_fd >= 0 && fs_stat_at(batch_fd, marks[back], 0, &st) == 0;
}

static int unmark(struct atoll_participant *p, bool back)
{
	cleanup_close int batch_fd = git_batch_open(p);
	int r = batch_fd < 0 ? -errno : fs_unlink_at(batch_fd, marks[back]);

	return r < 0 && r != -ENOENT ? error_sys(&p->err, r, "mark the batch in", p->area) : 0;
}

/* 1: all was done before. BACK: after a git of ours failed, perhaps. */
static int begin(struct atoll_participant *p, const struct git_record **ret, struct git_hashes *h,
                 bool back)
{
	int r;

	git_hide(p);
	r = git_load(p, ret, h);
	if (r >= 0 && *ret && is_marked(p, back))
		return 1;
	if (r >= 0 && *ret)
		r = git_be_alone(p);
	if (r >= 0 && *ret && (p->batch.recovering || back))
		r = git_locks_clear(p, *ret);
	if (r >= 0 && *ret)
		r = git_index_lock(p);
	return r < 0 || !*ret ? r : unmark(p, !back);
}

static int carry_out(struct atoll_participant *p, const struct git_record *rec)
{
	int r = git_objects_install(p, rec);

	crashpoint("git.commit.objects");
	if (r >= 0)
		r = git_files(p)->commit(p);
	crashpoint("git.commit.files");
	if (r >= 0)
		r = git_index_swap(p, rec, false);
	crashpoint("git.commit.index");
	if (r >= 0)
		git_index_refresh(p, rec);
	if (r >= 0)
		r = git_refs_swap(p, rec, false);
	crashpoint("git.commit.refs");
	if (r >= 0)
		r = git_head_swap(p, rec, false);
	crashpoint("git.commit.head");
	if (r >= 0)
		r = git_stash_swap(p, rec, false);
	crashpoint("git.commit.stash");
	if (r >= 0)
		r = drop_own(p, rec);
	if (r < 0)
		return r;
	git_own(p, rec);
	r = git_sync(p, rec);
	return r < 0 ? r : mark(p, false);
}

/* The lock stays until everybody else has come as far: who committed on top of what may still go back
 * would have it torn away. */
int git_unlock(struct atoll_participant *p)
{
	return is_gone(p) ? 0 : git_index_unlock(p, false);
}

int git_commit(struct atoll_participant *p)
{
	const struct git_record *rec = NULL;
	struct git_hashes h = { "" };
	int r = begin(p, &rec, &h, false);

	if (r == 0)
		r = rec ? carry_out(p, rec) : git_files(p)->commit(p);
	else if (r > 0 && !p->batch.redoing && (r = dir_used_up(p)) > 0)
		p->stale = true; /* the files' commit says so, of which nobody lived to tell */
	drop_view(p);
	git_load_end(p, &h);
	return r < 0 ? r : 0;
}

static int take_back(struct atoll_participant *p, const struct git_record *rec)
{
	int r = git_stash_swap(p, rec, true);

	crashpoint("git.undo.stash");
	if (r >= 0)
		r = git_head_swap(p, rec, true);

	crashpoint("git.undo.head");
	if (r >= 0)
		r = git_refs_swap(p, rec, true);
	crashpoint("git.undo.refs");
	if (r >= 0)
		r = git_index_swap(p, rec, true);
	crashpoint("git.undo.index");
	if (r >= 0)
		r = git_files(p)->undo(p);
	crashpoint("git.undo.files");
	if (r >= 0)
		git_index_refresh(p, rec);
	if (r >= 0)
		r = drop_own(p, rec);
	if (r < 0)
		return r;
	git_own(p, rec);
	r = git_sync(p, rec);
	return r < 0 ? r : mark(p, true);
}

int git_undo(struct atoll_participant *p)
{
	const struct git_record *rec = NULL;
	struct git_hashes h = { "" };
	int r = begin(p, &rec, &h, true);

	if (r == 0)
		r = rec ? take_back(p, rec) : git_files(p)->undo(p);
	git_load_end(p, &h);
	return r < 0 ? r : 0;
}

int git_abort(struct atoll_participant *p)
{
	const struct git_record *rec = NULL;
	struct git_hashes h = { "" };
	bool gone = is_gone(p);
	int r;

	git_hide(p);
	r = gone ? 0 : git_be_alone(p);
	/* Before the decision git only tried; killed at that it leaves locks, too. What is not whole
	 * was not tried. */
	if (r >= 0 && git_load(p, &rec, &h) < 0)
		error_done(&p->err);
	if (r >= 0 && rec && !gone)
		r = git_locks_clear(p, rec);
	if (r >= 0 && !gone)
		r = git_index_unlock(p, true);
	crashpoint("git.abort.unlocked");
	drop_view(p);
	if (r >= 0)
		r = git_files(p)->abort(p);
	git_load_end(p, &h);
	return r;
}

/* What is the files' business alone. */
#define OF_FILES(verb)                              \
	int git_##verb(struct atoll_participant *p) \
	{                                           \
		git_hide(p);                        \
		return git_files(p)->verb(p);       \
	}

OF_FILES(finish)
OF_FILES(reset)
OF_FILES(remove)
OF_FILES(refresh)

int git_release(struct atoll_participant *p)
{
	const struct git_record *rec;
	struct git_hashes h;
	int r;

	git_hide(p);
	r = git_load(p, &rec, &h);
	if (r >= 0)
		r = git_files(p)->release(p);
	git_load_end(p, &h);
	return r;
}

const struct atoll_strategy strategy_git = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "git",
	.kind = "repository",
	.capabilities = ATOLL_CAP_PREPARE | ATOLL_CAP_UNDO | ATOLL_CAP_DIFF | ATOLL_CAP_PATH |
	                ATOLL_CAP_MOUNTS | ATOLL_CAP_LATE,
	.create = git_create,
	.path = git_path,
	.mounts = git_mounts,
	.observe = git_observe,
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
	.refresh = git_refresh,
};

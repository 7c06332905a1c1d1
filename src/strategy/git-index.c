/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index: its lock, and the swap of its entries. Git's commands take `.git/index.lock` before they
 * read what they will write, so whoever holds it is alone. Ours is a second name of a file in the
 * area: by that it is known as ours, also after a crash.
 *
 * The new index is made beside, by git, of the one that is there, and exchanged with it. So what git
 * knows of files that the plan did not touch stays known, and what others staged stays staged.
 */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/copy.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/limits.h"
#include "util/mem.h"

#define LOCK      "index.lock"
#define LOCK_TEXT "held by atoll; atoll recover takes it away if it was left behind\n"
#define LOCK_WAIT 5000 /* ms for a command of git to end */
#define BESIDE    "index"

static int open_area(struct atoll_participant *p, int *ret_fd)
{
	*ret_fd = open(p->area, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? error_sys(&p->err, -errno, "open", p->area) : 0;
}

static bool is_ours(const struct git_state *st, int area_fd)
{
	struct fs_stat mine, there;

	return fs_stat_at(area_fd, LOCK, FS_STAT_ID, &mine) == 0 &&
	       fs_stat_at(st->dir_fd, LOCK, FS_STAT_ID, &there) == 0 &&
	       fs_id_equal(mine.id, there.id);
}

static int make_own(int area_fd)
{
	cleanup_close int fd = FD_NONE;
	int r = fs_create_at(area_fd, LOCK, 0600, &fd);

	if (r == -EEXIST)
		return 0;
	return r < 0 ? r : fs_write_all(fd, LOCK_TEXT, strlen(LOCK_TEXT));
}

int git_index_lock(struct atoll_participant *p)
{
	int64_t deadline = clock_deadline(LOCK_WAIT);
	cleanup_close int area_fd = FD_NONE;
	struct git_state *st;
	int r = git_state(p, &st);

	if (r >= 0)
		r = open_area(p, &area_fd);
	if (r < 0 || is_ours(st, area_fd))
		return r;
	r = make_own(area_fd);
	if (r < 0)
		return error_sys(&p->err, r, "make a lock in", p->area);
	while ((r = fs_link_at(area_fd, LOCK, st->dir_fd, LOCK)) == -EEXIST &&
	       clock_left_ms(deadline) > 0)
		clock_sleep_ns(10 * 1000000ll);
	if (r == -EEXIST) {
		(void)error_set(&p->err, -ATOLL_E_BUSY, "a command of git is at work in '%s'",
		                p->root);
		error_hint(&p->err, "wait until it has ended; if none is, remove '%s/" LOCK "'",
		           st->dir);
		return -ATOLL_E_BUSY;
	}
	crashpoint("git.index.locked");
	return r < 0 ? error_sys(&p->err, r, "lock the index of", p->root) : 0;
}

int git_index_unlock(struct atoll_participant *p, bool at_once)
{
	cleanup_close int area_fd = FD_NONE;
	struct git_state *st;
	int r = git_state(p, &st);

	if (r >= 0)
		r = open_area(p, &area_fd);
	if (r < 0)
		return r;
	if (is_ours(st, area_fd)) {
		r = fs_unlink_at(st->dir_fd, LOCK);
		/* It must not come back once nobody is left who knows that it is ours. */
		if (r >= 0)
			r = at_once ? fs_sync_dir(st->dir_fd)
			            : atoll_participant_sync(p, st->dir_fd);
	}
	crashpoint("git.index.unlocked");
	/* As long as the lock is there, this says whose it is. */
	if (r >= 0 || r == -ENOENT)
		(void)fs_unlink_at(area_fd, LOCK);
	return r < 0 && r != -ENOENT ? error_sys(&p->err, r, "unlock the index of", p->root) : 0;
}

/* ---- swapping entries ---- */

/* Lines for update-index, of what is still to do. */
static int entry_lines(struct atoll_participant *p, const struct git_state *st,
                       const struct git_record *rec, bool back, struct strbuf *in)
{
	cleanup_git_map struct git_map now = GIT_MAP_INIT;
	cleanup_free char *index = xasprintf("%s/index", st->dir);
	size_t foreign = 0;
	int r = git_index_read(p, st->dir, index, &now);

	for (size_t i = 0; i < rec->parts[GIT_INDEX].n && r >= 0; i++) {
		const struct git_swap *s = &rec->parts[GIT_INDEX].v[i];
		const char *is = git_map_get(&now, s->key);
		const char *from = back ? s->new_value : s->old_value;
		const char *to = back ? s->old_value : s->new_value;

		if (strcmp(is, to) == 0)
			continue;
		if (strcmp(is, from) != 0) {
			if (foreign++ < LIMIT_CONFLICTS)
				atoll_participant_note(p, ATOLL_NOTE_CONFLICT, s->key,
				                       "staged by somebody else since");
			continue;
		}
		if (*to)
			strbuf_printf(in, "%s 0\t%s", to, s->key);
		else
			strbuf_printf(in, "0 %0*d 0\t%s", (int)strlen(from) - 7, 0, s->key);
		strbuf_putc(in, '\0');
	}
	if (r >= 0 && foreign && !(back && !p->batch.undoing))
		r = error_set(&p->err, -ATOLL_E_CONFLICT,
		              "%zu entr%s of the index %s staged by somebody else since", foreign,
		              foreign == 1 ? "y" : "ies", foreign == 1 ? "was" : "were");
	return r;
}

int git_index_try(struct atoll_participant *p, const struct git_view *v,
                  const struct git_record *rec)
{
	cleanup_git_map struct git_map taken = GIT_MAP_INIT;
	cleanup_free char *path = xasprintf("%s/try", v->path);
	cleanup_strbuf struct strbuf in = STRBUF_INIT;
	struct git g = GIT_AT(v->path);
	int r;

	for (size_t i = 0; i < rec->parts[GIT_INDEX].n; i++) {
		const struct git_swap *s = &rec->parts[GIT_INDEX].v[i];

		if (!*s->new_value)
			continue;
		strbuf_printf(&in, "%s 0\t%s", s->new_value, s->key);
		strbuf_putc(&in, '\0');
	}
	if (!in.len)
		return 0;
	g.index = path;
	r = git_do(p, &g, GIT_ARGS("update-index", "-z", "--index-info"), &in, NULL);
	if (r >= 0)
		r = git_index_read(p, v->path, path, &taken);
	for (size_t i = 0; i < rec->parts[GIT_INDEX].n && r >= 0; i++) {
		const struct git_swap *s = &rec->parts[GIT_INDEX].v[i];

		if (*s->new_value && strcmp(git_map_get(&taken, s->key), s->new_value) != 0)
			r = error_set(&p->err, -ATOLL_E_POLICY,
			              "'%s' in the plan's index is a name that git does not allow",
			              s->key);
	}
	return r;
}

/* IN NULL: no entry is changed, but what git knows of the files is brought up to date. */
static int make_beside(struct atoll_participant *p, const struct git_state *st, int batch_fd,
                       const struct strbuf *in)
{
	cleanup_free char *path = xasprintf("%s/b%u/" BESIDE, p->area, p->batch.number);
	cleanup_close int fd = FD_NONE;
	struct git g = GIT_AT(st->dir);
	struct fs_stat was = { 0 };
	int r;

	(void)fs_unlink_at(batch_fd, BESIDE);
	(void)fs_unlink_at(batch_fd, BESIDE ".lock");
	r = copy_entry_at(st->dir_fd, "index", batch_fd, BESIDE, &was, NULL);
	if (r < 0 && r != -ENOENT)
		return error_sys(&p->err, r, "copy the index of", p->root);
	g.index = path;
	if (in)
		r = git_do(p, &g, GIT_ARGS("update-index", "-z", "--index-info"), in, NULL);
	else {
		g.work_tree = p->root;
		r = git_ask(p, &g, GIT_ARGS("update-index", "-q", "--refresh"), NULL, NULL);
	}
	if (r < 0)
		return r;
	fd = openat(batch_fd, BESIDE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 ? -errno : 0;
	if (r >= 0 && was.mode) {
		r = geteuid() == 0 ? fs_set_owner(batch_fd, BESIDE, was.uid, was.gid) : 0;
		if (r >= 0)
			r = fs_set_mode(batch_fd, BESIDE, was.mode & 07777);
	}
	/* Written without the files, so what was edited in the second it was last written in, which git
	 * reads for that, is still to be read. */
	if (r >= 0 && was.mode && in)
		r = fs_set_mtime(batch_fd, BESIDE, was.mtime_ns);
	if (r >= 0)
		r = fs_sync_file(fd);
	return r < 0 ? error_sys(&p->err, r, "write the index of", p->root) : 0;
}

int git_index_swap(struct atoll_participant *p, const struct git_record *rec, bool back)
{
	cleanup_free char *batch = xasprintf("%s/b%u", p->area, p->batch.number);
	cleanup_strbuf struct strbuf in = STRBUF_INIT;
	cleanup_close int batch_fd = FD_NONE;
	struct git_state *st;
	int r = rec->parts[GIT_INDEX].n ? git_state(p, &st) : 1;

	if (r != 0)
		return r < 0 ? r : 0;
	batch_fd = open(batch, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (batch_fd < 0)
		return error_sys(&p->err, -errno, "open", batch);
	r = entry_lines(p, st, rec, back, &in);
	if (r < 0 || in.len == 0)
		return r;
	r = make_beside(p, st, batch_fd, &in);
	if (r < 0)
		return r;
	crashpoint("git.index.made");
	r = fs_exchange(st->dir_fd, "index", batch_fd, BESIDE);
	if (r == -ENOENT)
		r = fs_move(batch_fd, BESIDE, st->dir_fd, "index");
	return r < 0 ? error_sys(&p->err, r, "install the index of", p->root) : 0;
}

void git_index_refresh(struct atoll_participant *p, const struct git_record *rec)
{
	cleanup_close int batch_fd = FD_NONE;
	struct git_state *st;
	struct stat dir;

	if (!rec->parts[GIT_INDEX].n || git_state(p, &st) < 0)
		return;
	/* As in git, what another user's settings say does not count. */
	if (fstat(st->dir_fd, &dir) < 0 || dir.st_uid != geteuid())
		return;
	batch_fd = git_batch_open(p);
	if (batch_fd >= 0 && make_beside(p, st, batch_fd, NULL) >= 0) {
		crashpoint("git.index.refreshed");
		(void)fs_exchange(st->dir_fd, "index", batch_fd, BESIDE);
	}
	error_done(&p->err);
}

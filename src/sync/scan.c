/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk, the old manifest and the list of what is ignored, all in the order of paths, merged in one
 * pass. Nothing is written.
 */
#include "sync/scan-impl.h"

#include "fs/walk.h"
#include "sync/content.h"
#include "sync/git.h"
#include "sync/path.h"
#include "sync/place.h"
#include "sync/scan-time.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TRIES     10
#define SECOND_NS 1000000000

/* A path of the old manifest that is not there any more. */
struct gone {
	const struct sync_entry *e;
	bool moved;
};

struct scan {
	int root_fd;
	const struct sync_manifest *old;
	size_t old_at;
	const struct sync_ignored *ignored;
	size_t ignored_at;
	struct sync_look *look;
	struct sync_changes *c;
	struct sync_manifest *now;
	struct gone *gone;
	size_t n_gone, gone_cap;
	int64_t again_ns; /* times from here on may have been given twice */
	struct strbuf at; /* the path being looked at, for messages */
};

void sync_changes_free(struct sync_changes *c)
{
	int e = errno;

	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++)
		free(c->v[i].from);
	free(c->v);
	strlist_done(&c->gone);
	strlist_done(&c->skipped);
	free(c);
	errno = e;
}

void cleanup_sync_changesp(struct sync_changes **c)
{
	sync_changes_free(*c);
}

const struct sync_counts *sync_changes_counts(const struct sync_changes *c)
{
	return &c->counts;
}

const char *sync_changes_skipped(const struct sync_changes *c, size_t i)
{
	return i < c->skipped.n ? c->skipped.v[i] : NULL;
}

/* Files get the time of the kernel's last tick: a change after BEGIN has BEGIN or later. Where only whole
 * seconds are kept, or two, it may look earlier. */
static bool is_racy(int64_t ctime_ns, int64_t begin_ns)
{
	int64_t grain = ctime_ns % SECOND_NS == 0 ? 2 * (int64_t)SECOND_NS : 0;

	return ctime_ns + grain >= begin_ns;
}

void sync_entry_set(struct sync_entry *e, const struct fs_stat *st, int64_t begin_ns)
{
	bool is_dir = S_ISDIR(st->mode);

	e->mode = st->mode;
	e->flags = !is_dir && is_racy(st->ctime_ns, begin_ns) ? SYNC_ENTRY_UNKNOWN : 0;
	e->size = st->size;
	e->mtime_ns = is_dir ? 0 : st->mtime_ns;
	e->ctime_ns = st->ctime_ns;
	e->ino = st->id.ino;
}

/* ---- the old manifest ---- */

static const char *old_path(const struct scan *s)
{
	return sync_manifest_path(s->old, &s->old->v[s->old_at]);
}

static int leave_old(struct scan *s)
{
	const struct sync_entry *e = &s->old->v[s->old_at];
	const char *path = old_path(s);
	void *v = s->gone;
	int r;

	s->old_at++;
	if (sync_ignored_has(s->ignored, path))
		return 0;
	r = grow(&v, &s->gone_cap, s->n_gone + 1, sizeof(*s->gone));
	s->gone = v;
	if (r == 0)
		s->gone[s->n_gone++] = (struct gone){ .e = e };
	return r;
}

/* Everything before PATH is gone; NULL: everything. */
static int leave_old_before(struct scan *s, const char *path)
{
	int r = 0;

	while (r == 0 && s->old && s->old_at < s->old->n &&
	       (!path || sync_path_compare(old_path(s), path) < 0))
		r = leave_old(s);
	return r;
}

static const struct sync_entry *take_old(struct scan *s, const char *path)
{
	if (!s->old || s->old_at == s->old->n || strcmp(old_path(s), path) != 0)
		return NULL;
	return &s->old->v[s->old_at++];
}

/* ---- one entry ---- */

static int add_change(struct scan *s, enum sync_change_kind kind, bool is_new)
{
	struct sync_changes *c = s->c;
	void *v = c->v;
	int r = grow(&v, &c->cap, c->n + 1, sizeof(*c->v));

	c->v = v;
	if (r == 0)
		c->v[c->n++] =
			(struct sync_change){ .kind = kind, .is_new = is_new, .at = s->now->n };
	return r;
}

static bool looks_same(const struct scan *s, const struct sync_entry *old,
                       const struct sync_entry *e)
{
	if (old->ctime_ns >= s->again_ns && !S_ISDIR(old->mode))
		return false;
	return !(old->flags & SYNC_ENTRY_UNKNOWN) && old->mode == e->mode && old->size == e->size &&
	       old->mtime_ns == e->mtime_ns && old->ctime_ns == e->ctime_ns && old->ino == e->ino;
}

/* Its hash into E; *ret_same: it is that of OLD. */
static int read_entry(struct scan *s, int dir_fd, const char *name, const struct sync_entry *old,
                      struct sync_entry *e, bool *ret_same)
{
	struct sync_content c = { 0 };
	int r = sync_look_at(s->look, dir_fd, name, "", S_ISREG(e->mode), NULL, &c);

	if (r < 0)
		return r;
	s->c->counts.hashed += S_ISREG(e->mode);
	*ret_same = c.st.mode != 0 && memcmp(c.hash, old->hash, SYNC_HASH_SIZE) == 0;
	if (c.st.mode != 0)
		sync_entry_set(e, &c.st, s->c->begin_ns);
	if (!c.steady)
		e->flags |= SYNC_ENTRY_UNKNOWN;
	memcpy(e->hash, c.hash, SYNC_HASH_SIZE);
	return 0;
}

/* OLD is of the same type, or NULL. */
static int compare(struct scan *s, int dir_fd, const char *name, const struct sync_entry *old,
                   struct sync_entry *e)
{
	enum sync_change_kind kind = S_ISLNK(e->mode) ? CHANGE_LINK : CHANGE_FILE;
	bool same = false;
	int r;

	if (!old || old->size != e->size)
		return add_change(s, kind, !old);
	if (looks_same(s, old, e)) {
		memcpy(e->hash, old->hash, SYNC_HASH_SIZE);
		return 0;
	}
	r = read_entry(s, dir_fd, name, old, e, &same);
	if (r < 0)
		return r;
	if (!same)
		return add_change(s, kind, false);
	if (old->mode == e->mode && old->mtime_ns == e->mtime_ns)
		return 0;
	return add_change(s, kind == CHANGE_FILE ? CHANGE_META : kind, false);
}

static int take_entry(struct scan *s, int dir_fd, const char *name, const char *path,
                      const struct fs_stat *st)
{
	const struct sync_entry *old = take_old(s, path);
	struct sync_entry e = { 0 };
	char object[SYNC_GIT_NAME_MAX];
	bool was = old && (old->mode & S_IFMT) == (st->mode & S_IFMT);
	int r = 0;

	sync_entry_set(&e, st, s->c->begin_ns);
	if (S_ISDIR(st->mode)) {
		if (!was || old->mode != st->mode)
			r = add_change(s, CHANGE_DIR, !old);
	} else if (s->c->is_repository && S_ISREG(st->mode) && sync_git_is_object(path, object)) {
		if (!was)
			r = add_change(s, CHANGE_OBJECT, !old);
	} else {
		r = compare(s, dir_fd, name, was ? old : NULL, &e);
	}
	return r < 0 ? r : sync_manifest_add(s->now, path, &e);
}

static bool is_ignored(struct scan *s, const char *path)
{
	const struct sync_ignored *i = s->ignored;

	while (s->ignored_at < i->n && sync_path_compare(i->v[s->ignored_at], path) < 0)
		s->ignored_at++;
	if (s->c->is_repository && sync_git_is_passing(path))
		return true;
	return s->ignored_at < i->n && strcmp(i->v[s->ignored_at], path) == 0;
}

static bool can_travel(const struct fs_stat *st)
{
	return (S_ISREG(st->mode) || S_ISLNK(st->mode) || S_ISDIR(st->mode)) && !st->mount_root;
}

static int visit(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct scan *s = ctx;
	struct fs_stat st;
	int r;

	(void)type;
	strbuf_truncate(&s->at, 0);
	strbuf_puts(&s->at, path);
	if (is_ignored(s, path))
		return WALK_SKIP;
	r = leave_old_before(s, path);
	if (r == 0)
		r = fs_stat_at(dir_fd, name, 0, &st);
	if (r == -ENOENT)
		return WALK_SKIP;
	if (r < 0)
		return r;
	if (!can_travel(&st)) {
		strlist_add(&s->c->skipped, path);
		return WALK_SKIP;
	}
	return take_entry(s, dir_fd, name, path, &st);
}

/* ---- moves ---- */

static int by_ino(const void *a, const void *b)
{
	const struct sync_entry *x = (*(struct gone *const *)a)->e;
	const struct sync_entry *y = (*(struct gone *const *)b)->e;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

/* Gone files whose inode is known, ordered by it. */
static size_t movable(struct scan *s, struct gone **v)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_gone; i++)
		if (S_ISREG(s->gone[i].e->mode) && s->gone[i].e->ino != 0)
			v[n++] = &s->gone[i];
	if (n > 1)
		qsort(v, n, sizeof(*v), by_ino);
	return n;
}

static struct gone *find_moved(struct gone **v, size_t n, const struct sync_entry *e)
{
	struct gone key = { .e = e }, *wanted = &key;
	struct gone **found = bsearch(&wanted, v, n, sizeof(*v), by_ino);

	if (!found || (*found)->moved)
		return NULL;
	return (*found)->e->size == e->size && (*found)->e->mtime_ns == e->mtime_ns ? *found : NULL;
}

static int try_move(struct scan *s, struct sync_place *place, struct sync_change *ch,
                    const struct sync_entry *old)
{
	struct sync_entry *e = &s->now->v[ch->at];
	struct sync_entry now = *e;
	const char *path = sync_manifest_path(s->now, e), *name;
	bool same = false;
	int r = sync_place_enter(place, path, &name);

	if (r == 0)
		r = read_entry(s, place->dir_fd, name, old, &now, &same);
	if (r < 0 || !same)
		return r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 0 : r;
	*e = now;
	ch->from = xstrdup(sync_manifest_path(s->old, old));
	ch->kind = CHANGE_META;
	return 1;
}

/* A new file with the inode of one that is gone. Each of those is moved once at most. */
static int find_moves(struct scan *s)
{
	cleanup_sync_place struct sync_place place = SYNC_PLACE_AT(s->root_fd);
	cleanup_free struct gone **v = NULL;
	size_t n;

	if (s->n_gone == 0)
		return 0;
	v = calloc(s->n_gone, sizeof(*v));
	if (!v)
		return -ENOMEM;
	n = movable(s, v);
	for (size_t i = 0; n > 0 && i < s->c->n; i++) {
		struct sync_change *ch = &s->c->v[i];
		struct gone *old;
		int r;

		if (ch->kind != CHANGE_FILE || !ch->is_new)
			continue;
		old = find_moved(v, n, &s->now->v[ch->at]);
		r = old ? try_move(s, &place, ch, old->e) : 0;
		if (r < 0)
			return r;
		if (r > 0)
			old->moved = true;
	}
	return 0;
}

/* What is gone and was not moved. */
static void tell_gone(struct scan *s)
{
	for (size_t i = 0; i < s->n_gone; i++)
		if (!s->gone[i].moved)
			strlist_add(&s->c->gone, sync_manifest_path(s->old, s->gone[i].e));
}

/* ---- the whole ---- */

static void scan_done(struct scan *s)
{
	sync_look_free(s->look);
	sync_changes_free(s->c);
	sync_manifest_free(s->now);
	free(s->gone);
	strbuf_done(&s->at);
}
#define cleanup_scan __attribute__((__cleanup__(scan_done)))

static int run(struct scan *s, struct error *err)
{
	int r = walk_tree(s->root_fd, "", visit, NULL, s);

	if (r == 0)
		r = leave_old_before(s, NULL);
	if (r == 0)
		r = find_moves(s);
	if (r < 0)
		return error_sys(err, r, "look at", strbuf_str(&s->at));
	tell_gone(s);
	s->c->counts.entries = s->now->n;
	s->c->counts.changes = s->c->n + s->c->gone.n;
	s->c->counts.skipped = s->c->skipped.n;
	return 0;
}

/* 1: done; 0: the repository changed meanwhile. */
static int scan_once(int root_fd, const struct sync_manifest *old, struct sync_changes **ret,
                     struct sync_manifest **ret_new, struct error *err)
{
	cleanup_sync_ignored struct sync_ignored ignored = { 0 };
	cleanup_scan struct scan s = { .root_fd = root_fd, .old = old, .ignored = &ignored };
	unsigned char after[SYNC_HASH_SIZE];
	int r = sync_git_is_repository(root_fd);

	s.look = sync_look_new();
	s.now = sync_manifest_new();
	s.now->generation = old ? old->generation : 0;
	s.c = xcalloc(1, sizeof(*s.c));
	sync_time_now(&s.now->time);
	s.c->begin_ns = s.now->time.begin_ns;
	s.again_ns = old ? sync_time_again(&old->time, &s.now->time) : INT64_MAX;
	s.c->is_repository = r > 0;
	if (r > 0)
		r = sync_git_state(root_fd, s.c->git_state);
	if (r < 0)
		return error_sys(err, r, "look at", ".git");
	if (s.c->is_repository)
		r = sync_git_ignored(root_fd, SYNC_GIT_USERS, &ignored, err);
	if (r == 0)
		r = run(&s, err);
	if (r < 0)
		return r;
	if (s.c->is_repository) {
		r = sync_git_state(root_fd, after);
		if (r < 0)
			return error_sys(err, r, "look at", ".git");
		if (memcmp(after, s.c->git_state, sizeof(after)) != 0)
			return 0;
	}
	*ret = take_ptr(s.c);
	*ret_new = take_ptr(s.now);
	return 1;
}

int sync_scan(int root_fd, const struct sync_manifest *old, struct sync_changes **ret,
              struct sync_manifest **ret_new, struct error *err)
{
	for (int i = 0; i < TRIES; i++) {
		int r = scan_once(root_fd, old, ret, ret_new, err);

		if (r != 0)
			return r < 0 ? r : 0;
	}
	(void)error_set(err, -ATOLL_E_BUSY, "the repository changes again and again");
	error_hint(err, "wait for the git command that runs in it");
	return -ATOLL_E_BUSY;
}

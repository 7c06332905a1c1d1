/* SPDX-License-Identifier: Apache-2.0 */
/* The strategy `git`: an overlay, and what git.h says of `.git`. */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/upper.h"
#include "fs/atomic.h"
#include "fs/remove.h"
#include "fs/walk.h"
#include "strategy/dir.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/mem.h"
#include "util/random.h"

#define BUSY      "busy"
#define BUSY_WAIT 60000 /* ms until a git that a dead process left has ended */

/* The strategy this one builds on: workspace, and files of the working tree. */
static const struct atoll_strategy *const files = &strategy_overlay;

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
		st->busy_fd = FD_NONE;
		st->dir_fd = open(st->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		p->extra = st;
		p->extra_free = state_free;
	}
	if (st->dir_fd < 0)
		return error_sys(&p->err, -ENOENT, "open", st->dir);
	*ret = st;
	return 0;
}

/* Of `.git` nothing is an entry of the working tree. */
static void hide_git(struct atoll_participant *p)
{
	if (p->excludes == &p->own_excludes)
		return;
	for (size_t i = 0; p->excludes && i < p->excludes->n; i++)
		strlist_add(&p->own_excludes, p->excludes->v[i]);
	strlist_add(&p->own_excludes, ".git");
	p->excludes = &p->own_excludes;
}

/* Alone with the repository: a git that a dead process of ours left has ended. */
static int be_alone(struct atoll_participant *p)
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

static int open_batch(const struct atoll_participant *p)
{
	cleanup_free char *path = xasprintf("%s/b%u", p->area, p->batch.number);

	return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* *ret NULL: the batch has only files. Else p->manifest, the hash of the record, gives way to that of
 * the files' manifest, until give_back(). */
struct hashes {
	char outer[HASH_TEXT_LEN];
};

static int load(struct atoll_participant *p, const struct git_record **ret, struct hashes *h)
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
		fd = open_batch(p);
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

static void give_back(struct atoll_participant *p, const struct hashes *h)
{
	(void)memcpy(p->manifest, h->outer, sizeof(p->manifest));
}

/* ---- the workspace ---- */

static int git_create(struct atoll_participant *p)
{
	int r = git_check_repository(p);

	if (r >= 0)
		r = files->create(p);
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
	int r = files->path(p, ret_path);

	return r < 0 ? r : follow_generation(p, before);
}

static int git_mounts(struct atoll_participant *p)
{
	uint64_t before = p->generation;
	int r = files->mounts(p);

	return r < 0 ? r : follow_generation(p, before);
}

/* ---- comparing ---- */

/* What git has to say of the workspace. REC is empty when it was not even touched. */
static int compare(struct atoll_participant *p, struct git_view *v, const char *name,
                   struct git_record *rec, size_t *ret_conflicts)
{
	int r = git_view_open(p, v);

	*ret_conflicts = 0;
	if (r < 0 || !(v->has_refs || v->has_index))
		return r;
	r = git_view_make(p, v, name);
	return r < 0 ? r : git_compare(p, v, rec, ret_conflicts);
}

static uint64_t count(const struct git_record *rec)
{
	return rec->parts[GIT_REFS].n + rec->parts[GIT_HEAD].n + rec->parts[GIT_STASH].n;
}

static char *passing_name(void)
{
	char digits[17];

	random_hex(digits, sizeof(digits) - 1);
	return xasprintf("g-%s", digits);
}

static int git_observe(struct atoll_participant *p)
{
	cleanup_git_view struct git_view v = GIT_VIEW_INIT;
	cleanup_git_record struct git_record rec = GIT_RECORD_INIT;
	cleanup_free char *name = passing_name();
	size_t conflicts;
	int r;

	hide_git(p);
	r = files->observe(p);
	if (r < 0 || p->stale)
		return r;
	/* Only counted: what cannot be committed says so then. */
	v.only_look = true;
	if (compare(p, &v, name, &rec, &conflicts) < 0) {
		error_done(&p->err);
		p->changes++;
	}
	git_view_remove(p, &v);
	p->changes += count(&rec);
	return 0;
}

static char *ref_detail(struct atoll_participant *p, const struct git_view *v,
                        const struct git_swap *s)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	cleanup_free char *range = NULL;
	struct git g = GIT_AT(v->path);
	long n;

	if (!*s->new_value)
		return xasprintf("was %.7s", s->old_value);
	if (!*s->old_value)
		return xasprintf("%.7s", s->new_value);
	range = xasprintf("%s..%s", s->old_value, s->new_value);
	g.alternates = v->alternates;
	if (git_ask(p, &g, GIT_ARGS("rev-list", "--count", range), NULL, &out) != 0) {
		error_done(&p->err);
		return xasprintf("%.7s..%.7s", s->old_value, s->new_value);
	}
	n = strtol(strbuf_str(&out), NULL, 10);
	return xasprintf("%.7s..%.7s, %ld commit%s", s->old_value, s->new_value, n,
	                 n == 1 ? "" : "s");
}

static int report(struct atoll_participant *p, const char *path, const char *old_value,
                  const char *new_value, const char *detail)
{
	struct atoll_change c = { .path = path,
		                  .kind = !*old_value   ? ATOLL_CHANGE_ADDED
		                          : !*new_value ? ATOLL_CHANGE_DELETED
		                                        : ATOLL_CHANGE_CHANGED,
		                  .what = ATOLL_CHANGE_CONTENT,
		                  .detail = detail };

	return atoll_participant_change(p, &c);
}

static int report_refs(struct atoll_participant *p, struct git_view *v,
                       const struct git_record *rec)
{
	int r = rec->parts[GIT_REFS].n ? git_view_objects(p, v) : 0;

	for (size_t i = 0; i < rec->parts[GIT_REFS].n && r >= 0; i++) {
		const struct git_swap *s = &rec->parts[GIT_REFS].v[i];
		cleanup_free char *detail = ref_detail(p, v, s);

		r = report(p, s->key, s->old_value, s->new_value, detail);
	}
	for (size_t i = 0; i < rec->parts[GIT_HEAD].n && r >= 0; i++) {
		const struct git_swap *s = &rec->parts[GIT_HEAD].v[i];
		cleanup_free char *detail = xasprintf("%s -> %s", s->old_value, s->new_value);

		r = report(p, s->key, s->old_value, s->new_value, detail);
	}
	for (size_t i = 0; i < rec->parts[GIT_STASH].n && r >= 0; i++) {
		const struct git_swap *s = &rec->parts[GIT_STASH].v[i];
		cleanup_free char *path = xasprintf("refs/stash/%.7s", s->key);

		r = report(p, path, s->old_value, s->new_value,
		           *s->new_value ? s->new_value + 1 : s->old_value + 1);
	}
	return r;
}

/* What git keeps for itself; everything else in `.git` is shown. */
static const char *const internal[] = { "objects",        "refs",        "logs",       "index",
	                                "HEAD",           "packed-refs", "ORIG_HEAD",  "FETCH_HEAD",
	                                "COMMIT_EDITMSG", "MERGE_MSG",   "MERGE_RR",   "rr-cache",
	                                "gc.log",         "SQUASH_MSG",  "index.lock", "AUTO_MERGE",
	                                "MERGE_MODE" };

static int report_other(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
                        const struct fs_stat *old_stat, const struct fs_stat *new_stat,
                        const char *link_target)
{
	struct atoll_participant *p = ctx;
	cleanup_free char *full = xasprintf(".git/%s", path);
	struct atoll_change c = { .path = full,
		                  .kind = kind,
		                  .what = what,
		                  .old_mode = old_stat ? old_stat->mode : 0,
		                  .new_mode = new_stat ? new_stat->mode : 0,
		                  .old_size = old_stat ? old_stat->size : 0,
		                  .new_size = new_stat ? new_stat->size : 0,
		                  .text = link_target,
		                  .detail = "stays in the plan, never installed" };

	if (!*path || strncmp(path, "sharedindex.", 12) == 0)
		return 0;
	return atoll_participant_change(p, &c);
}

struct others {
	struct atoll_participant *p;
	const struct upper_compare *u;
};

static int report_others_change(void *ctx, struct change *c)
{
	struct others *o = ctx;

	return upper_expand_one(o->u, c, report_other, o->p);
}

static int report_others(struct atoll_participant *p, const struct git_view *v)
{
	cleanup_strlist struct strlist excludes = STRLIST_INIT;
	struct git_state *st;
	struct upper_compare u;
	struct others o = { p, &u };
	cleanup_close int root_fd = FD_NONE, upper_fd = FD_NONE;
	struct dir_sides sides;
	int r = git_state(p, &st);

	if (r < 0 || v->upper_fd == FD_NONE)
		return r;
	root_fd = openat(st->dir_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	upper_fd = openat(v->upper_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < sizeof(internal) / sizeof(internal[0]); i++)
		strlist_add(&excludes, internal[i]);
	u = (struct upper_compare){ .upper_fd = v->upper_fd,
		                    .orig_fd = st->dir_fd,
		                    .marks = geteuid() == 0 ? OVERLAY_TRUSTED : OVERLAY_USER,
		                    .excludes = &excludes };
	dir_sides_init(&sides, root_fd, upper_fd);
	p->sides = &sides;
	r = upper_each(&u, report_others_change, &o, &p->err);
	p->sides = NULL;
	dir_sides_done(&sides);
	return r;
}

static int git_diff(struct atoll_participant *p)
{
	cleanup_git_view struct git_view v = GIT_VIEW_INIT;
	cleanup_git_record struct git_record rec = GIT_RECORD_INIT;
	cleanup_free char *name = passing_name();
	size_t conflicts;
	int r;

	hide_git(p);
	r = files->diff(p);
	if (r < 0 || p->stale)
		return r;
	v.only_look = true;
	/* While a command runs it may be half-way through anything. */
	r = compare(p, &v, name, &rec, &conflicts);
	if (r >= 0)
		r = report_refs(p, &v, &rec);
	if (r < 0 && p->err.code) {
		cleanup_error struct error e = ERROR_INIT;

		error_move(&e, &p->err);
		r = report(p, ".git", "old", "new", e.msg);
	}
	if (r >= 0)
		r = report_others(p, &v);
	git_view_remove(p, &v);
	return r;
}

static int git_content(struct atoll_participant *p, const struct atoll_change *change,
                       enum atoll_side side, int *ret_fd)
{
	if (!change->old_mode && !change->new_mode) /* a ref */
		return -ATOLL_E_UNSUPPORTED;
	return files->content(p, change, side, ret_fd);
}

/* ---- preparing ---- */

static void note_others(struct atoll_participant *p, const struct git_view *v)
{
	static const char *const names[] = { "config", "hooks", "info" };

	for (size_t i = 0; v->upper_fd != FD_NONE && i < sizeof(names) / sizeof(names[0]); i++) {
		cleanup_free char *path = xasprintf(".git/%s", names[i]);
		struct fs_stat st;

		if (fs_stat_at(v->upper_fd, names[i], 0, &st) == 0)
			atoll_participant_note(p, ATOLL_NOTE_INFO, path,
			                       "changed in the plan; never installed");
	}
}

static int check_outside(struct atoll_participant *p)
{
	struct git_state *st;
	const char *what;
	int r = git_state(p, &st);

	if (r < 0)
		return r;
	what = git_operation(st->dir_fd);
	if (!what)
		return 0;
	(void)error_set(&p->err, -ATOLL_E_CONFLICT, "%s is under way in '%s'", what, p->root);
	error_hint(&p->err, "end it, then atoll commit %s", p->plan);
	return -ATOLL_E_CONFLICT;
}

static int fail_conflicts(struct atoll_participant *p, size_t conflicts)
{
	if (!conflicts)
		return 0;
	(void)error_set(&p->err, -ATOLL_E_CONFLICT,
	                "%zu ref%s or staged file%s changed by somebody else since the sandbox was "
	                "made",
	                conflicts, conflicts == 1 ? "" : "s", conflicts == 1 ? " was" : "s were");
	error_hint(&p->err, "merge or rebase in the plan (atoll shell %s), or move the refs back",
	           p->plan);
	return -ATOLL_E_CONFLICT;
}

/* What was done to files and index was done to what was checked out. */
static int check_head(struct atoll_participant *p)
{
	bool moved = false;
	int r = git_head_moved(p, &moved);

	if (r < 0 || !moved)
		return r;
	atoll_participant_note(p, ATOLL_NOTE_CONFLICT, "HEAD", "moved by somebody else");
	(void)error_set(&p->err, -ATOLL_E_CONFLICT,
	                "another branch or commit was checked out in '%s' since the sandbox was "
	                "made",
	                p->root);
	error_hint(&p->err, "check out again what was there, then atoll commit %s", p->plan);
	return -ATOLL_E_CONFLICT;
}

/* With the files prepared: objects, record. */
static int stage(struct atoll_participant *p, struct git_view *v, struct git_record *rec)
{
	cleanup_close int fd = open_batch(p);
	struct git_state *st;
	int r = fd < 0 ? error_sys(&p->err, -errno, "open the batch in", p->area)
	               : git_state(p, &st);

	if (r >= 0)
		r = git_index_try(p, v, rec);
	if (r >= 0)
		r = git_objects_stage(p, v, fd, rec);
	if (r < 0)
		return r;
	(void)memcpy(rec->files, p->manifest, sizeof(rec->files));
	r = git_record_write(rec, fd, p->manifest, &p->err);
	if (r >= 0)
		r = syncset_add(p->batch.sync, fd, GIT_RECORD);
	if (r >= 0)
		r = syncset_add(p->batch.sync, fd, "");
	if (r < 0)
		return p->err.code ? r : error_sys(&p->err, r, "note for the barrier", p->area);
	git_record_done(&st->rec);
	st->rec = *rec;
	st->batch = p->batch.number;
	*rec = GIT_RECORD_INIT;
	crashpoint("git.prepare.done");
	return ATOLL_READY;
}

static int prepare_files(struct atoll_participant *p, bool anyway)
{
	int r;

	p->batch_anyway = anyway;
	r = files->prepare(p);
	p->batch_anyway = false;
	return r;
}

/* The index as it is; mode 0: there is none. */
static struct fs_stat look_at_index(const struct git_state *st)
{
	struct fs_stat now = { 0 };

	(void)fs_stat_at(st->dir_fd, "index", FS_STAT_ID, &now);
	return now;
}

static int compare_conflicts(struct atoll_participant *p, struct git_view *v, const char *name,
                             struct git_record *rec)
{
	size_t conflicts = 0;
	int r = compare(p, v, name, rec, &conflicts);

	return r < 0 ? r : fail_conflicts(p, conflicts);
}

static void forget_merged(struct atoll_participant *p)
{
	strlist_done(&p->merged);
	close_fd(&p->merged_fd);
}

/* Locks only when there is something to do: else not even a time changes. What was compared is then
 * still there, or is compared once more. */
static int compare_alone(struct atoll_participant *p, struct git_view *v, const char *name,
                         struct git_record *rec)
{
	struct fs_stat before, after;
	struct git_state *st;
	int r = git_state(p, &st);

	if (r < 0)
		return r;
	before = look_at_index(st);
	r = compare_conflicts(p, v, name, rec);
	if (r < 0 || git_record_empty(rec))
		return r;
	r = git_index_lock(p);
	after = look_at_index(st);
	if (r < 0 || (after.ctime_ns == before.ctime_ns && after.id.ino == before.id.ino &&
	              after.id.gen == before.id.gen))
		return r;
	git_record_done(rec);
	git_view_done(v);
	forget_merged(p);
	return compare_conflicts(p, v, name, rec);
}

static int prepare_commit(struct atoll_participant *p)
{
	cleanup_git_view struct git_view v = GIT_VIEW_INIT;
	cleanup_git_record struct git_record rec = GIT_RECORD_INIT;
	cleanup_free char *name = xasprintf("g%u", p->batch.number);
	int r;

	if (p->stale)
		return ATOLL_NO_CHANGE;
	if (!atoll_participant_whole(p))
		return error_set(&p->err, -ATOLL_E_UNSUPPORTED,
		                 "'%s' can only be committed as a whole", p->root);
	r = be_alone(p);
	if (r >= 0)
		r = check_outside(p);
	if (r >= 0)
		r = compare_alone(p, &v, name, &rec);
	if (r < 0)
		return r;
	note_others(p, &v);
	r = prepare_files(p, !git_record_empty(&rec));
	forget_merged(p);
	if (r == ATOLL_READY && (p->changes || rec.parts[GIT_INDEX].n))
		r = check_head(p) < 0 ? p->err.code : ATOLL_READY;
	p->changes += count(&rec);
	if (r != ATOLL_READY || git_record_empty(&rec))
		return r;
	return stage(p, &v, &rec);
}

/* ---- preparing an undo ---- */

/* What KEY will be at when newer batches are undone. */
static const char *then(const struct git_state *st, enum git_part part, const char *key,
                        const char *now)
{
	for (size_t i = st->undone[part].n; i-- > 0;)
		if (strcmp(st->undone[part].v[i].key, key) == 0)
			return st->undone[part].v[i].old_value;
	return now;
}

static size_t judge_part(struct atoll_participant *p, struct git_state *st, enum git_part part,
                         const struct git_map *now)
{
	const struct git_swaps *swaps = &st->rec.parts[part];
	size_t conflicts = 0;

	for (size_t i = 0; i < swaps->n; i++) {
		const struct git_swap *s = &swaps->v[i];
		const char *is = then(st, part, s->key, git_map_get(now, s->key));

		if (strcmp(is, s->new_value) != 0) {
			cleanup_free char *why = xasprintf(
				"is at %.17s, not at %.17s any more", *is ? is : "nothing",
				*s->new_value ? s->new_value : "nothing");

			atoll_participant_note(p, ATOLL_NOTE_CONFLICT, s->key, why);
			conflicts++;
		}
		git_swap_add(&st->undone[part], s->key, s->old_value, s->new_value);
	}
	return conflicts;
}

static int judge_undo(struct atoll_participant *p, struct git_state *st)
{
	cleanup_git_map struct git_map refs = GIT_MAP_INIT, index = GIT_MAP_INIT;
	cleanup_free char *path = xasprintf("%s/index", st->dir), *head = NULL;
	struct git_pair head_pair = { .key = "HEAD" };
	struct git_map head_map = { .v = &head_pair, .n = 1 };
	const struct git g = GIT_AT(st->dir);
	size_t conflicts;
	int r = git_refs_read(p, &g, &refs);

	if (r >= 0)
		r = git_head_read(p, st->dir_fd, "HEAD", &head);
	if (r >= 0 && st->rec.parts[GIT_INDEX].n)
		r = git_index_read(p, st->dir, path, &index);
	if (r < 0)
		return r;
	head_pair.value = head;
	conflicts = judge_part(p, st, GIT_REFS, &refs) + judge_part(p, st, GIT_HEAD, &head_map) +
	            judge_part(p, st, GIT_INDEX, &index);
	if (!conflicts)
		return 0;
	(void)error_set(&p->err, -ATOLL_E_CONFLICT,
	                "%zu ref%s or staged file%s changed by somebody else since the commit",
	                conflicts, conflicts == 1 ? "" : "s", conflicts == 1 ? " was" : "s were");
	error_hint(&p->err, "git revert takes single commits back");
	return -ATOLL_E_CONFLICT;
}

static int prepare_undo(struct atoll_participant *p)
{
	const struct git_record *rec;
	struct git_state *st;
	struct hashes h;
	int r = load(p, &rec, &h);

	if (r >= 0)
		r = git_state(p, &st);
	if (r >= 0 && rec)
		r = check_outside(p);
	if (r >= 0 && rec)
		r = judge_undo(p, st);
	if (r >= 0)
		r = files->prepare(p);
	give_back(p, &h);
	return r;
}

static int git_prepare(struct atoll_participant *p)
{
	hide_git(p);
	return p->batch.undoing ? prepare_undo(p) : prepare_commit(p);
}

static int git_check(struct atoll_participant *p)
{
	const struct git_record *rec;
	struct hashes h;
	int r;

	hide_git(p);
	r = load(p, &rec, &h);
	if (r >= 0)
		r = files->check(p);
	if (r >= 0 && rec && !p->batch.recovering)
		r = git_refs_try(p, rec);
	give_back(p, &h);
	return r;
}

/* ---- after the decision ---- */

static void drop_keep(const struct git_state *st, const struct git_record *rec)
{
	cleanup_free char *keep = xasprintf("objects/pack/%s.keep", rec->pack ? rec->pack : "");

	if (rec->pack)
		(void)fs_unlink_at(st->dir_fd, keep);
}

static void drop_view(const struct atoll_participant *p)
{
	cleanup_free char *path = xasprintf("%s/g%u", p->area, p->batch.number);

	(void)remove_tree(path);
}

/* BACK: after a git of ours failed, perhaps. */
static int begin(struct atoll_participant *p, const struct git_record **ret, struct hashes *h,
                 bool back)
{
	int r;

	hide_git(p);
	r = load(p, ret, h);
	if (r >= 0 && *ret)
		r = be_alone(p);
	if (r >= 0 && *ret && (p->batch.recovering || back))
		r = git_locks_clear(p, *ret);
	return r < 0 || !*ret ? r : git_index_lock(p);
}

static int carry_out(struct atoll_participant *p, const struct git_record *rec)
{
	struct git_state *st;
	int r = git_state(p, &st);

	if (r >= 0)
		r = git_objects_install(p, rec);
	crashpoint("git.commit.objects");
	if (r >= 0)
		r = files->commit(p);
	crashpoint("git.commit.files");
	if (r >= 0)
		r = git_index_swap(p, rec, false);
	crashpoint("git.commit.index");
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
		drop_keep(st, rec);
	return r < 0 ? r : git_sync(p, rec);
}

/* Commit and undo end the same way; of two errors the first counts. */
static int end(struct atoll_participant *p, const struct hashes *h, int r)
{
	struct error first = ERROR_INIT;

	give_back(p, h);
	error_move(&first, &p->err);
	if (git_index_unlock(p) < 0 && r >= 0)
		r = p->err.code;
	if (first.code) {
		error_done(&p->err);
		error_move(&p->err, &first);
	}
	return r;
}

static int git_commit(struct atoll_participant *p)
{
	const struct git_record *rec = NULL;
	struct hashes h = { "" };
	int r = begin(p, &rec, &h, false);

	if (r >= 0)
		r = rec ? carry_out(p, rec) : files->commit(p);
	drop_view(p);
	return end(p, &h, r);
}

static int take_back(struct atoll_participant *p, const struct git_record *rec)
{
	struct git_state *st;
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
		r = files->undo(p);
	crashpoint("git.undo.files");
	if (r >= 0)
		r = git_state(p, &st);
	if (r >= 0)
		drop_keep(st, rec);
	return r < 0 ? r : git_sync(p, rec);
}

static int git_undo(struct atoll_participant *p)
{
	const struct git_record *rec = NULL;
	struct hashes h = { "" };
	int r = begin(p, &rec, &h, true);

	if (r >= 0)
		r = rec ? take_back(p, rec) : files->undo(p);
	return end(p, &h, r);
}

static int git_abort(struct atoll_participant *p)
{
	const struct git_record *rec = NULL;
	struct hashes h = { "" };
	int r;

	hide_git(p);
	r = be_alone(p);
	/* Before the decision git only tried; killed at that it leaves locks, too. What is not whole
	 * was not tried. */
	if (r >= 0 && load(p, &rec, &h) < 0)
		error_done(&p->err);
	if (r >= 0 && rec)
		r = git_locks_clear(p, rec);
	if (r >= 0)
		r = git_index_unlock(p);
	crashpoint("git.abort.unlocked");
	drop_view(p);
	if (r >= 0)
		r = files->abort(p);
	give_back(p, &h);
	return r;
}

static int git_finish(struct atoll_participant *p)
{
	hide_git(p);
	return files->finish(p);
}

static int git_release(struct atoll_participant *p)
{
	const struct git_record *rec;
	struct hashes h;
	int r;

	hide_git(p);
	r = load(p, &rec, &h);
	if (r >= 0)
		r = files->release(p);
	give_back(p, &h);
	return r;
}

static int git_reset(struct atoll_participant *p)
{
	hide_git(p);
	return files->reset(p);
}

static int git_remove(struct atoll_participant *p)
{
	return files->remove(p);
}

static int git_refresh(struct atoll_participant *p)
{
	hide_git(p);
	return files->refresh(p);
}

const struct atoll_strategy strategy_git = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "git",
	.kind = "repository",
	.capabilities = ATOLL_CAP_PREPARE | ATOLL_CAP_UNDO | ATOLL_CAP_DIFF | ATOLL_CAP_PATH |
	                ATOLL_CAP_MOUNTS,
	.create = git_create,
	.path = git_path,
	.mounts = git_mounts,
	.observe = git_observe,
	.diff = git_diff,
	.content = git_content,
	.prepare = git_prepare,
	.check = git_check,
	.commit = git_commit,
	.abort = git_abort,
	.undo = git_undo,
	.finish = git_finish,
	.release = git_release,
	.reset = git_reset,
	.remove = git_remove,
	.refresh = git_refresh,
};

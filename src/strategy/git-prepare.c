/* SPDX-License-Identifier: Apache-2.0 */
/* Everything about a repository that can fail, before the decision; of a commit, and of an undo. */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diff/change.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

static const char *const told[] = { "config", "hooks", "info" };
#define N_TOLD (sizeof(told) / sizeof(told[0]))

static int find_told(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
                     const struct fs_stat *old_stat, const struct fs_stat *new_stat,
                     const char *link_target)
{
	bool *found = ctx;

	(void)kind;
	(void)what;
	(void)old_stat;
	(void)new_stat;
	(void)link_target;
	for (size_t i = 0; i < N_TOLD; i++)
		found[i] = found[i] || path_below(path, told[i]);
	return 0;
}

/* For people, and no reason to fail. */
static void note_others(struct atoll_participant *p, const struct git_view *v)
{
	bool found[N_TOLD] = { false };

	if (git_others(p, v, find_told, found) < 0)
		error_done(&p->err);
	for (size_t i = 0; i < N_TOLD; i++) {
		cleanup_free char *path = xasprintf(".git/%s", told[i]);

		if (found[i])
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
	error_hint(&p->err, "end it, then atoll %s %s",
	           p->batch.redoing   ? "redo"
	           : p->batch.undoing ? (p->batch.alone ? "undo" : "rollback")
	                              : "commit",
	           p->plan);
	return -ATOLL_E_CONFLICT;
}

static int fail_conflicts(struct atoll_participant *p, size_t conflicts)
{
	if (!conflicts)
		return 0;
	(void)error_set(&p->err, -ATOLL_E_CONFLICT,
	                "%zu ref%s or staged file%s changed outside the plan since it was "
	                "started",
	                conflicts, conflicts == 1 ? "" : "s", conflicts == 1 ? " was" : "s were");
	error_hint(
		&p->err,
		"merge or rebase in the plan (atoll shell %s), or move the refs back; --ours and "
		"--theirs settle files only",
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
	cleanup_close int fd = git_batch_open(p);
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
	r = git_files(p)->prepare(p);
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
	int r = git_compare_view(p, v, name, rec, &conflicts);

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
	r = git_be_alone(p);
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
	p->changes += git_count(&rec);
	if (r != ATOLL_READY || git_record_empty(&rec))
		return r;
	return stage(p, &v, &rec);
}

/* ---- preparing an undo or a redo ---- */

/* What KEY will be at when newer batches are undone. */
static const char *then(const struct git_state *st, enum git_part part, const char *key,
                        const char *now)
{
	for (size_t i = st->undone[part].n; i-- > 0;)
		if (strcmp(st->undone[part].v[i].key, key) == 0)
			return st->undone[part].v[i].old_value;
	return now;
}

/* Is all of it where the commit put it, or, for a redo, the undo? */
static size_t judge_part(struct atoll_participant *p, struct git_state *st, enum git_part part,
                         const struct git_map *now)
{
	const struct git_swaps *swaps = &st->rec.parts[part];
	size_t conflicts = 0;

	for (size_t i = 0; i < swaps->n; i++) {
		const struct git_swap *s = &swaps->v[i];
		const char *is = then(st, part, s->key, git_map_get(now, s->key));
		const char *was = p->batch.redoing ? s->old_value : s->new_value;

		if (strcmp(is, was) != 0) {
			cleanup_free char *why =
				xasprintf("is at %.17s, not at %.17s any more",
			                  *is ? is : "nothing", *was ? was : "nothing");

			atoll_participant_note(p, ATOLL_NOTE_CONFLICT, s->key, why);
			conflicts++;
		}
		if (!p->batch.redoing)
			git_swap_add(&st->undone[part], s->key, s->old_value, s->new_value);
	}
	return conflicts;
}

/* Entries of the stash are no conflict: a redo puts them on top of what is there. */
static int judge(struct atoll_participant *p, struct git_state *st)
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
	                "%zu ref%s or staged file%s changed outside the plan since the %s",
	                conflicts, conflicts == 1 ? "" : "s", conflicts == 1 ? " was" : "s were",
	                p->batch.redoing ? "undo" : "commit");
	if (p->batch.redoing)
		error_hint(&p->err,
		           "move the refs back to where the undo put them, then atoll redo %s",
		           p->plan);
	else
		error_hint(&p->err, "git revert takes single commits back");
	return -ATOLL_E_CONFLICT;
}

static int prepare_way_back(struct atoll_participant *p)
{
	const struct git_record *rec;
	struct git_state *st;
	struct git_hashes h;
	int r = git_load(p, &rec, &h);

	if (r >= 0)
		r = git_state(p, &st);
	if (r >= 0 && rec)
		r = check_outside(p);
	if (r >= 0 && rec)
		r = judge(p, st);
	if (r >= 0 && rec)
		r = p->batch.redoing ? git_objects_check_new(p, rec)
		                     : git_objects_check_old(p, rec);
	if (r >= 0)
		r = git_files(p)->prepare(p);
	if (r >= 0 && rec && p->batch.redoing)
		p->changes += git_count(rec);
	git_load_end(p, &h);
	return r;
}

int git_prepare(struct atoll_participant *p)
{
	git_hide(p);
	return p->batch.redoing || p->batch.undoing ? prepare_way_back(p) : prepare_commit(p);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `git` and `worktree`: a repository with its working tree. They differ in what the workspace is made
 * of, their ground:
 *
 *   git        an overlay over all of it, `.git` included (the strategy `overlay` does that part)
 *   worktree   a private checkout: a copy of the working tree (the strategy `copy`), and a repository
 *              of its own in it that has no objects but new ones (worktree.c)
 *
 * So commands use git as they would outside; but of `.git` no file ever leaves the workspace. What a
 * commit takes from it is what git itself says of it:
 *
 *   objects   those that refs, HEAD and the index newly need: packed, sent through index-pack, which
 *             hashes and checks every one, and added as loose ones or as one pack
 *   refs      a swap for each that was changed (git-record.h)
 *   HEAD      the same
 *   stash     a swap for each entry that was made or dropped
 *   index     a swap for each entry that was changed
 *   others    hooks, config and the like: shown by diff, never installed
 *
 * Each key is judged by three values: BASE, when the workspace was made; V, in the workspace; NOW, in
 * the repository. Changed in the workspace only: swapped. Changed by others only, or by both to the
 * same: nothing to do. By both: merged, where it is a branch (git-merge.c), else a conflict. What a
 * command did not touch has V equal to BASE; or to NOW, where it shows what is below it, which does no
 * harm. A ref that another process moved meanwhile may stay in V as it was when a command wrote
 * `packed-refs`, which holds all of them: so the last value on which V and NOW were seen to agree counts
 * as its base, too, which is looked at after every command; and the reflogs tell the rest (git-log.c).
 *
 * In the work directory, per generation G of the workspace:
 *
 *   refsG    HEAD and the refs when it was made, and after an empty line the stash
 *   agreedG  a line with the hash of what follows: the refs as workspace and repository last agreed on
 *            them, and after an empty line such entries of the stash; absent or damaged: refsG
 *   indexG   the index then, a copy
 *   stagedG  the same for entries of the index that another process changed
 *   gitG     worktree: a base record (diff/base.h) of all of `.git` but refs, index and objects
 *
 * In the area:
 *
 *   gN/           while batch N is prepared: a bare repository with our own configuration, put together
 *                 of the refs, the index and the new objects of the workspace, for git to read
 *   bN/git        what batch N does (git-record.h)
 *   bN/objects/   its objects, loose or as a pack
 *   bN/index      an index on its way: the new one, then the one it displaced
 *   index.lock    second name of `.git/index.lock` while that lock is ours
 *   busy          locked by us and by every git we started to write; who comes after a crash waits
 *                 until the last of those is gone
 *
 * Invariants:
 *   1. Until the decision the repository is not written to, but for `.git/index.lock`, which keeps
 *      git's own commands out from prepare to the end of commit.
 *   2. Nothing in the workspace is executed or believed: its configuration is not read, its links are
 *      not followed, its objects are hashed again.
 *   3. No object is ever removed: somebody may have come to count on it.
 *   4. Every swap can be repeated and taken back, by another process; foreign values stay.
 *
 * Crash: before the decision, `index.lock`, removed by abort. After it, any part of the swaps may be
 * done; commit does the rest. Git itself, killed in the middle, leaves locks of refs: those with our
 * values in them are removed then.
 */
#ifndef STRATEGY_GIT_H
#define STRATEGY_GIT_H

#include "diff/tree.h"
#include "fs/overlayfs.h"
#include "strategy/git-record.h"
#include "strategy/git-run.h"
#include "strategy/strategy-impl.h"

/* Lasts as long as the participant; hangs from p->extra. */
struct git_state {
	char *dir;     /* root/.git */
	char *objects; /* list for struct git: the repository's own */
	int dir_fd;
	int busy_fd;
	struct git_record rec;
	uint32_t batch; /* whose record REC is; 0: none */
	/* During diff: what the change at hand is made of; for `lines`. */
	const struct git_view *view;
	const struct git_swap *shown;
	const struct git_swaps *staged; /* or these, if it is the index */
	/* What newer batches of the same undo will have put back. */
	struct git_swaps undone[GIT_PART_END_];
};
int git_state(struct atoll_participant *p, struct git_state **ret);

/* ---- git.c ---- */

struct git_ground {
	const struct atoll_strategy *files; /* makes the workspace, commits the working tree */
	char letter;                        /* of the workspace's name in the work directory */
	bool layered; /* the workspace's `.git` shows the repository's where nothing lies over it */
};
const struct git_ground *git_ground(const struct atoll_participant *p);
const struct atoll_strategy *git_files(const struct atoll_participant *p);
/* Where it lies; caller frees. */
char *git_work_path(const struct atoll_participant *p);
/* Of `.git` nothing is an entry of the working tree. */
void git_hide(struct atoll_participant *p);
/* Alone with the repository: a git that a dead process of ours left has ended. */
int git_be_alone(struct atoll_participant *p);
/* bN, or -1 with errno. */
int git_batch_open(const struct atoll_participant *p);
/* The record of the batch; *ret NULL: it has only files. Else p->manifest, the hash of the record, gives
 * way to that of the files' manifest, until git_load_end(). */
struct git_hashes {
	char outer[HASH_TEXT_LEN];
};
int git_load(struct atoll_participant *p, const struct git_record **ret, struct git_hashes *h);
void git_load_end(struct atoll_participant *p, const struct git_hashes *h);

/* ---- verbs: git.c, git-diff.c, git-prepare.c ---- */

int git_check(struct atoll_participant *p);
int git_commit(struct atoll_participant *p);
int git_abort(struct atoll_participant *p);
int git_undo(struct atoll_participant *p);
int git_unlock(struct atoll_participant *p);
int git_finish(struct atoll_participant *p);
int git_release(struct atoll_participant *p);
int git_reset(struct atoll_participant *p);
int git_remove(struct atoll_participant *p);
int git_refresh(struct atoll_participant *p);
int git_observe(struct atoll_participant *p);
int git_diff(struct atoll_participant *p);
int git_content(struct atoll_participant *p, const struct atoll_change *change,
                enum atoll_side side, int *ret_fd);
int git_lines(struct atoll_participant *p, const struct atoll_change *change, atoll_line_fn fn,
              void *user);
int git_prepare(struct atoll_participant *p);

/* ---- git-check.c ---- */

/* Is it a repository that can be worked with? Otherwise says what it is, and what to do. */
int git_check_repository(struct atoll_participant *p);
/* Says that PATH in `.git` is neither a ref nor a directory of refs. */
int git_refuse_ref(struct atoll_participant *p, const char *path);
/* The name of an operation that was begun and not ended, or NULL. MARKS: in the upper of an overlay. */
const char *git_operation(int git_fd);

/* ---- git-base.c: what the workspace was made of ---- */

struct git_base {
	char *head;
	struct git_map refs;
	struct git_map agreed;
	char *agreed_stash; /* as git_stash_list() gives it */
};
#define GIT_BASE_INIT ((struct git_base){ 0 })
void git_base_done(struct git_base *b);
#define cleanup_git_base __attribute__((__cleanup__(git_base_done)))
/* Of the repository, or of the one in the workspace if that is none but its own. */
int git_base_write(struct atoll_participant *p);
int git_base_read(struct atoll_participant *p, struct git_base *ret);
bool git_base_exists(const struct atoll_participant *p);
/* Notes the refs that V and NOW have alike, and the entries STASH. What cannot be written is judged by the base alone.
 * Crash: the record as it was, or none. */
void git_base_agree(struct atoll_participant *p, const struct git_base *b, const struct git_map *v,
                    const struct git_map *now, const char *stash);
/* The same for entries of the index, of which the record has those that are not as in the base. */
struct git_staged {
	const struct git_map *staged, *base, *v, *now;
};
int git_staged_read(struct atoll_participant *p, struct git_map *ret);
void git_staged_agree(struct atoll_participant *p, const struct git_staged *s);
/* What both sides last had at PATH. */
const char *git_staged_base(const struct git_map *staged, const struct git_map *base,
                            const char *path);
/* Path of the copy of the index; caller frees. */
char *git_base_index(const struct atoll_participant *p);
/* "ref: refs/heads/x" or an object id, as NAME (HEAD) below GIT_FD says; caller frees. */
int git_head_read(struct atoll_participant *p, int git_fd, const char *name, char **ret);
int git_refs_read(struct atoll_participant *p, const struct git *g, struct git_map *ret);
/* Of the file PATH; absent: an empty one. */
int git_index_read(struct atoll_participant *p, const char *dir, const char *path,
                   struct git_map *ret);

/* ---- git-view.c: what is in the workspace ---- */

/* A branch that both sides moved, from V and NOW to RESULT. */
struct git_merge {
	char *v, *now, *result;
};
#define GIT_MERGE_INIT ((struct git_merge){ 0 })
void git_merge_done(struct git_merge *m);
#define cleanup_git_merge __attribute__((__cleanup__(git_merge_done)))

struct git_view {
	int upper_fd; /* .git of the workspace, its upper layer; FD_NONE: untouched */
	int fd;       /* of the repository put together at PATH */
	char *path;
	char *alternates; /* for git to read what is in the workspace: the repository's objects */
	bool has_refs;    /* something about refs or HEAD was written */
	bool has_index;
	bool has_stash;
	bool has_objects;       /* git_view_objects() was here */
	bool only_look;         /* what would have to be merged is a conflict */
	struct git_merge merge; /* of the branch that is checked out; result NULL: none */
};
#define GIT_VIEW_INIT ((struct git_view){ .upper_fd = -1, .fd = -1 })
/* By its name: of git at work. */
bool git_is_lock(const char *name);
/* The repository's refs, loose and packed, into TO_FD, an empty directory but for `refs`. */
int git_refs_copy(struct atoll_participant *p, int from_fd, int to_fd);
/* Looks only. */
int git_view_open(struct atoll_participant *p, struct git_view *v);
/* Puts the repository together, in the area, as NAME. */
int git_view_make(struct atoll_participant *p, struct git_view *v, const char *name);
/* And its objects. */
int git_view_objects(struct atoll_participant *p, struct git_view *v);
void git_view_done(struct git_view *v); /* what was made stays */
void git_view_remove(struct atoll_participant *p, struct git_view *v);
#define cleanup_git_view __attribute__((__cleanup__(git_view_done)))

/* ---- git-others.c ---- */

/* What the workspace changed in `.git` that is not git's own business (refs, index, objects, logs):
 * settings, hooks and the like, entry by entry, by their paths in `.git`. */
int git_others(struct atoll_participant *p, const struct git_view *v, tree_entry_fn fn, void *ctx);

/* ---- worktree.c ---- */

#define WORKTREE_OBJECTS "atoll-objects" /* in the private .git: where the repository's are shown */
/* Opens the private `.git` of this generation's workspace: 0; -ESTALE: what is there is not the one that was made. */
int worktree_open(const struct atoll_participant *p, int *ret_fd);
/* Opens its base record. */
int worktree_base(struct atoll_participant *p, struct base **ret);

/* ---- git-compare.c ---- */

/* Fills REC with what a commit would do to refs, HEAD and index. Conflicts are named by notes, and
 * *RET_CONFLICTS counts them. Objects are not looked at. */
int git_compare(struct atoll_participant *p, struct git_view *v, struct git_record *rec,
                size_t *ret_conflicts);
/* The same from the beginning, with the view made as NAME in the area; of a workspace that was not even
 * touched REC stays empty. */
int git_compare_view(struct atoll_participant *p, struct git_view *v, const char *name,
                     struct git_record *rec, size_t *ret_conflicts);
/* The index changed by itself. With a commit or another HEAD that is a matter of course, and not told. */
bool git_staged_only(const struct git_record *rec);
/* How many changes that is, for people. */
uint64_t git_count(const struct git_record *rec);
/* HEAD was moved by somebody else since the workspace was made. */
int git_head_moved(struct atoll_participant *p, bool *ret);

/* ---- git-log.c ---- */

/* The workspace has REF at VALUE, but only packed, and the reflogs know that as the doing of another process: the
 * repository's has VALUE in it, after BASE, and the workspace's no entry of its own. */
bool git_log_moved_outside(const struct git_state *st, const struct git_view *v, const char *ref,
                           const char *base, const char *value);

/* ---- git-stash.c ---- */

int git_stash_list(struct atoll_participant *p, const struct git *g, struct strbuf *out);
/* AGREED, *RET_AGREED: entries that both sides were seen to have, before and now. */
int git_stash_compare(struct atoll_participant *p, struct git_view *v, const char *agreed,
                      struct git_record *rec, struct strbuf *ret_agreed);
/* Never a conflict: an entry is there or not. */
int git_stash_swap(struct atoll_participant *p, const struct git_record *rec, bool back);

/* ---- git-merge.c ---- */

/* Merges m->v and m->now of REF, which was at BASE: m->result, which may be one of the two. 1: it
 * cannot be. */
int git_merge_ref(struct atoll_participant *p, struct git_view *v, const char *ref,
                  const char *base, struct git_merge *m);
/* Entries of the result that neither side has so, "000000 ..." for one that is gone; and those that the
 * plan's side has, of which the result has what is there now. */
int git_merge_entries(struct atoll_participant *p, const struct git_view *v,
                      const struct git_merge *m, struct git_map *ret, struct git_map *ret_behind);
/* The working tree gets such a file. 1: somebody has there what is not committed. */
int git_merge_file(struct atoll_participant *p, const struct git_view *v, const struct git_merge *m,
                   const char *path, const char *entry);
/* After the last one: for the part of the files. */
int git_merge_tree(struct atoll_participant *p, const struct git_view *v);

/* ---- git-objects.c ---- */

/* What REC needs and the repository lacks, in bN/objects. */
int git_objects_stage(struct atoll_participant *p, struct git_view *v, int batch_fd,
                      struct git_record *rec);
/* Has the repository still what REC replaced? */
int git_objects_check_old(struct atoll_participant *p, const struct git_record *rec);
/* Before a redo: all that the batch's refs, index and stash need is in the batch or in the repository.
 * -ATOLL_E_RECOVERY_MISSING: git has pruned it. */
int git_objects_check_new(struct atoll_participant *p, const struct git_record *rec);
/* What the batch adds: paths below `objects`. */
int git_objects_list(struct atoll_participant *p, const struct git_record *rec,
                     struct strlist *ret);
int git_objects_install(struct atoll_participant *p, const struct git_record *rec);

/* ---- git-apply.c ---- */

int git_index_lock(struct atoll_participant *p);
/* Only if it is ours. On disk with the next barrier, or AT_ONCE. */
int git_index_unlock(struct atoll_participant *p, bool at_once);
/* Could the swaps of refs be made now? Nothing is changed. */
int git_refs_try(struct atoll_participant *p, const struct git_record *rec);
/* BACK: from new to old. -ATOLL_E_CONFLICT when a value is neither; nothing of that part is changed
 * then. */
int git_refs_swap(struct atoll_participant *p, const struct git_record *rec, bool back);
int git_head_swap(struct atoll_participant *p, const struct git_record *rec, bool back);
int git_index_swap(struct atoll_participant *p, const struct git_record *rec, bool back);
/* With the files in place: entries that git has not seen a file of get its times and sizes, so that it
 * need not read them again to know that they are as staged. What fails here is missed by nobody. */
void git_index_refresh(struct atoll_participant *p, const struct git_record *rec);
/* Would git take the new entries? It leaves out names that it does not allow, and says nothing. */
int git_index_try(struct atoll_participant *p, const struct git_view *v,
                  const struct git_record *rec);
/* Locks that a git of ours left: because it was killed, or because it could not remove them. */
int git_locks_clear(struct atoll_participant *p, const struct git_record *rec);
int git_sync(struct atoll_participant *p, const struct git_record *rec);
/* What root's git made belongs to whom the repository belongs to. */
void git_own(struct atoll_participant *p, const struct git_record *rec);

#endif

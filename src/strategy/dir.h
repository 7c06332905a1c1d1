/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory participant: how a change set reaches a live tree, all of it or nothing. Shared
 * by every strategy whose workspace is a tree (copy; overlay and git later).
 *
 * In the area, per batch `bN`:
 *
 *   bN/manifest    what will be done (manifest.h); hash in the registry from the decision on
 *   bN/sK          slot of operation K: the new entry before, the original after
 *   bN/installed   what was installed, entry by entry: undo compares with it
 *   bN/work        only when the batch leaves work behind: how the workspace's entries that it
 *                  takes looked (`copy`, which keeps them; else empty)
 *   bN/used        only when it leaves none: the generation of the workspace it uses up
 *   bN/theirs      what somebody else made of paths for which the plan's version was given up
 *   bN/keep        operations and attributes of directories that an undo leaves alone (--keep-theirs)
 *   bN/found       entries that an undo takes for those of the batch: how they look (dir-found.c)
 *   bN/found-back  entries that a redo takes for those that the undo put back
 *   bN/back        after an undo of this batch alone: what it put back, entry by entry, of a directory
 *                  with all below it; a redo compares with it
 *   bN.size        what all that takes (fs/usage.h)
 *   restored       how entries look that our own batches left in the resource: originals moved
 *                  away and back, and what a batch installed that left work behind
 *   ballast        space set aside by prepare, let go when the disk is full in the middle. It has room
 *                  for each record that is written after the decision: of a commit and a redo
 *                  `installed`, of an undo of one batch alone `back` and, if it is withdrawn,
 *                  `installed`. A rollback without --keep-work sets nothing aside and so can start on
 *                  a full disk: it writes no `back`, and the moves (moves.h) are left out there
 *   conflicts/     what somebody wrote to after it was replaced or taken back, and originals that
 *                  an undo did not put back: the last copy there is
 *
 * Invariants:
 *   1. An original is never written to and never copied; it only changes places with a slot.
 *   2. Nothing is taken from the workspace before the decision; abort finds it as it was.
 *   3. Slots decide, not targets; identities, not names.
 *   4. Every step may be repeated, by another process, any number of times.
 *   5. A target that holds something foreign is never overwritten: it is exchanged into the
 *      slot and put back (before the batch is acknowledged) or kept under conflicts/ (after).
 */
#ifndef STRATEGY_DIR_H
#define STRATEGY_DIR_H

#include "diff/change.h"
#include "diff/tree.h"
#include "fs/overlayfs.h"
#include "fs/project.h"
#include "strategy/manifest.h"
#include "strategy/strategy-impl.h"

/* A file that was copied for a batch. */
struct dir_copied {
	uint64_t work_ino; /* with several names */
	char *path;        /* of its copy, below bN */
};

/* One batch at hand. Hangs from p->state. */
struct dir_batch {
	int root_fd;
	int area_fd;
	int batch_fd; /* bN */
	int work_fd;  /* root of the workspace; FD_NONE when it is gone */
	struct manifest m;
	struct manifest found[2]; /* by enum dir_found; sorted */
	bool found_changed[2];    /* since they were read or written */
	bool loaded;              /* m is there */
	bool *foreign_dirs;       /* per m.dirs: another process changed its times; they stay */
	bool *keep;               /* per m.ops, then m.dirs: an undo leaves it alone; NULL: none */
	struct usage goes;        /* originals that the slots will hold */
	bool measured;            /* goes is known: by prepare, in this process */
	bool work_apart; /* on another mount than the slots: nothing moves to them; by prepare */
	struct dir_copied *copied;
	size_t n_copied, cap_copied;
	/* parent last opened, so that neighbours cost one open: */
	char *parent_path;
	int parent_fd;
	struct fs_project parent_project; /* of it, when parent_asked */
	bool parent_asked;
	struct fs_project slots_project; /* of the batch's directory, when slots_asked */
	bool slots_asked;
	char *noted_parent; /* in the workspace, noted last for the barrier */
	struct strlist
		databases; /* that the batch replaces and no process may have open; by prepare */
};

/* WORK: path of the workspace's root, or NULL. Opens what there is; with MAKE the batch's
 * directory is made. -ENOENT without MAKE when the batch's directory is missing. */
int dir_batch_open(struct atoll_participant *p, const char *work, bool make,
                   struct dir_batch **ret);
/* The one of p->state, or opened and its manifest read and checked against the batch's hash. */
int dir_batch_load(struct atoll_participant *p, const char *work, struct dir_batch **ret);

/* One entry for the reader of a diff; CTX is the participant. */
int dir_report(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
               const struct fs_stat *old_stat, const struct fs_stat *new_stat,
               const char *link_target);
/* A directory in which the plan has changes is no longer the one it was: WHY. NOW is what it is. */
int dir_report_moved(struct atoll_participant *p, const char *path, const struct fs_stat *now,
                     const char *why);
/* dir-content.c: the two sides of what is reported during diff, `content` of a directory. Hangs from
 * p->sides; the descriptors stay the caller's. */
struct dir_sides {
	int root_fd[2]; /* by enum atoll_side */
	/* parent last opened, so that neighbours cost one open: */
	char *parent[2];
	int parent_fd[2];
};
void dir_sides_init(struct dir_sides *s, int old_fd, int new_fd);
void dir_sides_done(struct dir_sides *s);
/* Is PATH, which OLD is how it looks in the resource, a database there or a part of one? See
 * diff/live-database.h. */
bool dir_is_database(struct dir_sides *s, const char *path, const struct fs_stat *old);
int dir_content(struct atoll_participant *p, const struct atoll_change *change,
                enum atoll_side side, int *ret_fd);
/* For whom a conflict at PATH is settled by the caller: of two names around it the nearer one says. The name
 * is added to USED. */
enum dir_side { DIR_SIDE_NONE = 0, DIR_SIDE_OURS, DIR_SIDE_THEIRS };
enum dir_side dir_side_of(const struct atoll_participant *p, const char *path,
                          struct strlist *used);
/* Names of the caller's that settled nothing. */
void dir_note_unused(struct atoll_participant *p, const struct strlist *used);
/* The error that names how many conflicts there were; 0 for none. */
int dir_conflicts(struct atoll_participant *p, size_t conflicts);
/* The error of a change that could not be read back. */
int dir_unreadable(struct atoll_participant *p, int r);

/* What somebody else did to the base of a change, or of a directory that holds changes: as
 * tree_conflict() and tree_conflict_dir() answer. Who reads a directory for it counts C's entries, and
 * measures what goes. */
typedef int (*dir_judge_fn)(void *ctx, struct change *c, char **ret_why);
typedef int (*dir_judge_dir_fn)(void *ctx, const struct change_dir *d, char **ret_why);
/* Drops changes that are there already; names conflicts. */
int dir_weed(struct atoll_participant *p, struct changeset *cs, dir_judge_fn judge,
             dir_judge_dir_fn judge_dir, void *ctx);

/* Where a change set comes from: lists a change entry by entry, for the policy. */
struct dir_source {
	int (*expand)(const void *ctx, const struct change *c, tree_entry_fn fn, void *fn_ctx,
	              struct error *err);
	const void *ctx;
	unsigned op_flags; /* MANIFEST_MARKS for what comes from an overlay */
	enum overlay_marks marks;
	/* Of a batch that leaves work behind: its entries stay in the workspace, the resource gets
	 * copies. Else they are moved out, whiteouts too. */
	bool stays;
	/* Bytes that the strategy's own records take anew after such a batch, beside what it installs. */
	uint64_t room;
};
/* Of an ordinary user's workspace: files that a command wrote anew get the ACLs back that it could not give
 * them (dir-acl.c), and a note says how many. IS_NEW: what the workspace has there is not what it had from the
 * resource. Returns how many; what cannot be written stays without. */
typedef bool (*dir_is_new_fn)(const void *ctx, const struct change *c);
struct dir_roots {
	int work_fd, orig_fd;
};
size_t dir_keep_acls(struct atoll_participant *p, const struct dir_roots *sides,
                     const struct changeset *cs, dir_is_new_fn is_new, const void *ctx);
/* Adds to RET the changed entries by which git would run a program (diff/git-program.h) when a batch takes CS,
 * of which it may have selected a part. During diff P->programs are those. */
int dir_programs(struct atoll_participant *p, const struct dir_roots *at,
                 const struct changeset *cs, struct strlist *ret);
/* Leaves in CS what the batch is to take (dir-select.c); p->rest: something was left out. */
int dir_select(struct atoll_participant *p, const struct dir_source *source, struct changeset *cs);
/* prepare: policy, feasibility, staging, manifest. CS has been checked for conflicts. Takes over
 * nothing. ATOLL_READY or negative. */
int dir_prepare(struct atoll_participant *p, const char *work, const struct dir_source *source,
                const struct changeset *cs);
/* After dir_prepare(): the manifest saw the very entries that CS was judged by. Between the two
 * somebody may have come in, and what he made would pass for the original. SETTLED_ONLY: asked
 * only of conflicts settled for the plan's version, the others being judged again. */
int dir_same_base(struct atoll_participant *p, const struct changeset *cs, bool settled_only);
/* check: targets still what prepare saw. */
int dir_check(struct atoll_participant *p, const char *work);
int dir_commit(struct atoll_participant *p, const char *work);
/* Takes back whatever of the batch is done; with withdrawn work returned to the workspace when
 * the batch is not an undo (REVOKED, or an abort). */
int dir_undo(struct atoll_participant *p, const char *work);
int dir_abort(struct atoll_participant *p, const char *work);
/* prepare of an undo: is everything still what we wrote, and is the undo data complete? */
int dir_prepare_undo(struct atoll_participant *p, const char *work);
/* prepare of a redo: is everything as the undo left it, and what it took back still there? AGAIN: the check
 * after it, which settles nothing. */
int dir_prepare_redo(struct atoll_participant *p, const char *work, bool again);
/* Did this batch use up the workspace of generation p->generation, which is stale since? 1, 0, or it cannot
 * be told. */
int dir_used_up(struct atoll_participant *p);
/* keep: KEEP gets the batch with what --keep-theirs left alone; once more, with the room that was set aside,
 * when there was none. */
/* Reads DIR_KEEP into B; absent: nothing was left alone. */
int dir_read_keep(struct atoll_participant *p, struct dir_batch *b);
typedef int (*dir_keep_fn)(struct atoll_participant *p, struct dir_batch *b);
int dir_keep(struct atoll_participant *p, const char *work, dir_keep_fn keep);
/* The entries of its slots return to a workspace that it had used up. */
int dir_unstage(struct atoll_participant *p, struct dir_batch *b);
/* Adds how PATH below ROOT_FD and all below it looks; what is gone meanwhile is left out. -ENOENT,
 * -ENOTDIR, -ELOOP: there is no such path. */
int dir_list_tree(int root_fd, const char *path, struct manifest *ret);
/* The same, shown to FN. A negative answer ends. */
typedef int (*dir_entry_fn)(void *ctx, const char *path, const struct fs_stat *st);
int dir_each_below(int root_fd, const char *path, dir_entry_fn fn, void *ctx);
/* How the resource looks now at the batch's paths and below them. */
int dir_list_now(struct atoll_participant *p, struct dir_batch *b, struct manifest *ret);
/* Removes a batch's directory: what undo needed, or (batch.undoing) the rest of an undone batch.
 * What is in its slots and nowhere else, or was written by somebody else, goes to conflicts/. */
int dir_release(struct atoll_participant *p);
/* Batch NUMBER of a tree, whosever it is. */
struct dir_place {
	const char *root, *area;
	uint32_t number;
};
/* Are the two about the same entry, or one about something that is in what the other is about? When that cannot
 * be told, they are not. */
bool dir_batches_meet(const struct dir_place *a, const struct dir_place *b);
/* Is anything under conflicts/? When it cannot be told, there is. */
bool dir_keeps_conflicts(const char *area);

/* ---- between the dir-*.c files ---- */

#define DIR_BALLAST   "ballast"
#define DIR_INSTALLED "installed"
#define DIR_KEEP      "keep"
#define DIR_BACK      "back"
#define DIR_WORK      "work"
#define DIR_THEIRS    "theirs"
#define DIR_USED      "used"
#define DIR_CONFLICTS "conflicts"
#define DIR_SLOT_LEN  24

/* dir-stage.c: how a new entry gets to its slot. For operation K, not yet in the manifest. PART: only
 * what is selected of a new directory. Names of one entry stay names of one copy. */
int dir_stage_copy(struct atoll_participant *p, struct dir_batch *b, size_t k, bool part,
                   struct manifest_op *o);
/* It stays in the workspace until the batch is carried out. */
int dir_stage_in_place(struct atoll_participant *p, struct dir_batch *b,
                       const struct manifest_op *o);
/* Operations that take out of the workspace what the batch uses up and no slot receives. */
int dir_stage_consumed(struct atoll_participant *p, struct dir_batch *b,
                       const struct changeset *cs);
/* Operations that settle conflicts for what is there now, of which a record `theirs` is made. */
int dir_stage_theirs(struct atoll_participant *p, struct dir_batch *b, const struct changeset *cs);
/* finish: where the plan's versions lie. Not before: of a commit that did not happen they are in the work. */
void dir_say_theirs(struct atoll_participant *p);
/* Absent: nothing was given up. */
int dir_theirs_read(struct atoll_participant *p, struct dir_batch *b, struct manifest *ret);
/* Settles for somebody else's attributes of a directory. */
bool dir_is_attr(const struct manifest_op *o);
int dir_take_attrs(struct dir_batch *b, const struct manifest_op *o);
int dir_work_write(struct atoll_participant *p, struct dir_batch *b,
                   const struct dir_source *source, const struct changeset *cs);
int dir_used_write(struct atoll_participant *p, struct dir_batch *b);
/* Absent, empty or damaged: no entry is known. */
void dir_work_read(struct dir_batch *b, struct manifest *ret);
/* Does the batch leave work behind? 1, 0, or it cannot be told. */
int dir_leaves_work(struct atoll_participant *p, const struct dir_batch *b);
/* The view's times and modes, which moving entries out (and back) disturbed. */
void dir_restore_work(struct dir_batch *b);

/* Operation K of the batch; says what went wrong. */
int dir_op(struct atoll_participant *p, const struct dir_batch *b, size_t k,
           struct manifest_op *ret);
void dir_slot_name(size_t k, char out[DIR_SLOT_LEN]);
/* Directory holding PATH below FD_ROOT; borrowed until the next call with the same B. */
int dir_parent(struct dir_batch *b, int root_fd, const char *path, int *ret_fd,
               const char **ret_name);
/* The opened-up mode of a directory an ordinary owner locked, or its own. */
int dir_open_up(int dir_fd, const char *name, struct fs_stat *ret_before);
/* R is about a full disk, and there was the ballast, which is gone now: it is worth another try. */
bool dir_make_room(struct dir_batch *b, int r);
/* For an undo that keeps the work, an undo of one batch alone, and a redo: ROOM for the strategy's own records, and for what it returns. R, or what
 * went wrong. */
int dir_set_aside(struct atoll_participant *p, uint64_t room, int r);
/* The ballast is needed no more. */
void dir_let_go(struct dir_batch *b);
/* finish of an undo or redo of one batch alone. */
void dir_finish_alone(struct atoll_participant *p);
/* dir-links.c: how many names of each entry with several a change set commits. */
struct dir_link_count {
	struct fs_id id; /* ino only, inside directories */
	uint32_t nlink;
	uint32_t seen;
};
struct dir_links {
	struct dir_link_count *v;
	size_t n, cap;
	size_t *places; /* by inode: an index into V plus one, or 0; at least half of them are */
	size_t n_places;
	uint64_t record; /* bytes that the record of what was installed will take */
};
void dir_links_done(struct dir_links *l);
int dir_links_count(struct dir_batch *b, const struct changeset *cs, struct dir_links *ret);
/* *ret: a name of C, or of something below it, is left behind. */
int dir_links_leave(struct dir_batch *b, const struct change *c, const struct dir_links *l,
                    bool *ret);

/* dir-installed.c: what was installed, and whether operation O's target still is that. *ret_why:
 * what somebody did to it, owned by the caller, NULL when nothing. */
int dir_installed_write(struct atoll_participant *p, struct dir_batch *b);
int dir_installed_read(struct atoll_participant *p, struct dir_batch *b, struct manifest *ret);
/* 1 with *ret, 0: nothing is known of PATH. */
int dir_installed_find(const struct manifest *installed, const char *path, struct fs_stat *ret);
/* PATH, or something above it, will be put back by a newer batch of the same undo: 1 or 0. */
int dir_covered(const struct atoll_participant *p, const char *path);
/* For the older batches of the same undo, which are asked next. */
int dir_note_undone(struct atoll_participant *p, const struct dir_batch *b);
/* What the check of an undo, or of a redo, found. */
struct dir_found_check {
	const struct manifest *record; /* what was installed; of a redo what was put back */
	struct manifest *found; /* gets what is taken for what is on record; NULL: nothing is */
	struct strlist *used;   /* gets the paths by which a conflict was settled */
	char *why;              /* of a conflict; NULL: none, or all of them were insisted on */
	bool open;              /* one of them was not settled */
};
int dir_installed_check(struct atoll_participant *p, struct dir_batch *b,
                        const struct manifest_op *o, struct dir_found_check *c);
/* dir-found.c. What stands for the new version of an operation, and for the old one. */
enum dir_found { DIR_FOUND_NEW, DIR_FOUND_OLD };
/* Absent or torn (before a decision): there is nothing in it. */
int dir_found_read(struct atoll_participant *p, struct dir_batch *b);
/* In prepare: what was found on the SIDE that is now looked at, and led to no decision, is forgotten. */
int dir_found_begin(struct dir_batch *b, enum dir_found side);
/* O is about what was found at its path. 0, or a code. */
int dir_found_apply(const struct dir_batch *b, struct manifest_op *o);
/* How what the batch put at PATH looks: as it was found, else as it was INSTALLED. 1 with *ret; 0. */
int dir_found_or_installed(const struct dir_batch *b, const struct manifest *installed,
                           const char *path, struct fs_stat *ret);
/* What the attributes of D are to be: of its new state, or of its old one. 0, or a code. */
int dir_found_attrs(const struct dir_batch *b, const struct manifest_dir *d, enum dir_found side,
                    struct fs_stat *ret);
/* How PATH was found when this redo was prepared. 1 with *ret; 0. */
int dir_found_pending(const struct dir_batch *b, const char *path, struct fs_stat *ret);
/* Of a redo, or an undo, that is withdrawn: PATH is what it had insisted on, so it is another process's
 * version again. 1 or 0. */
int dir_found_given_back(const struct atoll_participant *p, const struct dir_batch *b,
                         const char *path);
/* What is at PATH looks like NOW; NULL: it is not there, which is insisted on. */
int dir_found_add(struct manifest *found, const char *path, const struct fs_stat *now,
                  unsigned flags);
/* With the next barrier, which is before the decision. Takes over what FOUND, of SIDE, holds. */
int dir_found_write(struct atoll_participant *p, struct dir_batch *b, enum dir_found side,
                    struct manifest *found);
/* The bytes of both records. */
uint64_t dir_found_size(const struct dir_batch *b);
/* At or below PATH there is a version that was insisted on. When it cannot be told, there is. */
bool dir_found_insisted(const struct dir_batch *b, enum dir_found side, const char *path);
/* finish: where the versions are that were insisted on. */
void dir_found_say(struct atoll_participant *p, struct dir_batch *b, enum dir_found side);
/* What an undo put back: in moves.h, and, where it is of this batch alone, in DIR_BACK. */
int dir_back_write(struct atoll_participant *p, struct dir_batch *b);
/* Before the decision: sets aside what DIR_BACK will take at most. */
int dir_back_set_aside(struct atoll_participant *p, struct dir_batch *b);
int dir_back_read(struct atoll_participant *p, struct dir_batch *b, struct manifest *ret);
/* The same question before a redo: is the target of O still what the record, DIR_BACK, says? */
int dir_back_check(struct atoll_participant *p, struct dir_batch *b, const struct manifest_op *o,
                   struct dir_found_check *c);
/* dir-restored.c: what a batch that was taken back put back, so that the base record's ctimes do
 * not speak against it. The second is for struct tree_compare; RESTORED is the manifest read. */
int dir_restored_write(struct atoll_participant *p, struct dir_batch *b);
/* The same for what the batch installed, and what it took over from somebody else. */
int dir_restored_add(struct atoll_participant *p, struct dir_batch *b,
                     const struct manifest *installed, const struct manifest *theirs, bool back);
/* Bytes of that record. */
uint64_t dir_restored_size(const struct atoll_participant *p);
/* Of one that is not there, or torn, nothing. */
int dir_restored_read(struct atoll_participant *p, struct manifest *ret);
bool dir_restored_known(const void *restored, const char *path, const struct fs_stat *now);
/* dir-release.c: why what is in the slot of OP, taken back by an undo, must be kept; NULL: it need not.
 * *ret_error: 0, or -errno when it could not be looked at; then it must, too. */
struct dir_kth {
	const struct manifest_op *o;
	size_t k;
};
const char *dir_undone_reason(struct dir_batch *b, const struct manifest *installed,
                              struct dir_kth op, bool keeps, int *ret_error);
/* dir-reach.c: what cannot be moved between its place and the slots, or not back. The first refuses PATH,
 * whose directory is not on the root's device; the second is for operation K, staged and not yet in the
 * manifest. */
int dir_reach_subvolume(struct atoll_participant *p, struct dir_batch *b, const char *path,
                        uint64_t root_dev);
int dir_reach_project(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op);
/* Removes the directory of the batch. */
int dir_remove_batch(struct atoll_participant *p, struct dir_batch *b);
/* Notes what the batch's directory takes, or will: the originals, and its records so far. */
void dir_note_size(struct atoll_participant *p, struct dir_batch *b);
/* The area, or -1. */
int dir_open_area(const struct atoll_participant *p);
/* The attributes of D are left alone: DIR_KEEP. */
static inline bool dir_is_kept(const struct dir_batch *b, const struct manifest_dir *d)
{
	return b->keep && b->keep[b->m.ops.n + (size_t)(d - b->m.dirs)];
}
/* Attributes and times of directories that stay, deepest first. BACK: as they were. */
int dir_apply_attrs(struct atoll_participant *p, struct dir_batch *b, bool back);
/* Notes which directories somebody else touched: their times will be left alone. BACK: compared
 * with what the commit set, else with what prepare saw. */
void dir_mark_foreign(struct dir_batch *b, bool back);
/* Modes of directories that were opened up to be moved. BACK: the originals are at the targets. */
int dir_close_up(struct atoll_participant *p, struct dir_batch *b, bool back);
/* Opens up what an ordinary owner locked: the parent, and directories about to move. */
int dir_open_op(struct dir_batch *b, const struct manifest_op *o, int fd, const char *name,
                const char *slot);
/* Was the original in slot K written to after it was displaced? 1, 0, or -errno. */
int dir_late_write(struct dir_batch *b, size_t k, const struct manifest_op *o);
/* Moves slot K, of operation O, to conflicts/ and notes it. */
int dir_keep_conflict(struct atoll_participant *p, struct dir_batch *b, size_t k,
                      const struct manifest_op *o, const char *why);
/* Adds both parents of every operation to the barrier. */
int dir_sync_parents(struct atoll_participant *p, struct dir_batch *b);

#endif

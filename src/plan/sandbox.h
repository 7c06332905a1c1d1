/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandbox: one resource in one plan. Read this first.
 *
 * A sandbox is a row of the registry (struct sandbox_row) and two directories. The *area* is a
 * private directory (0700) on the mount of the resource, so that what is staged there can be
 * renamed into place; it holds staging and undo data. The *workspace* is where commands write; it
 * lies in the area too, or in the store when the caller wants it there. Nothing about a sandbox
 * is kept in memory between calls.
 *
 *   PENDING      recorded, being made. A process that died here leaves a row that lists what to
 *                remove; the next one removes exactly that
 *   CREATED      complete, nobody was given its path yet
 *   ACTIVE       a command ran in it, or its path was given out: it may hold work
 *   PREPARED     in a batch that is not finished (txn/ alone sets and leaves this)
 *   COMMITTED    its last batch is carried out
 *   ROLLED_BACK  its work was dropped; the workspace is made anew before its next use (stale)
 *   ERRORED      cannot go on by itself; `error` says why. Its data is kept
 *   CLEANED_UP   being removed; what is still recorded of it still has to go
 *
 * Who changes what: plan/ moves a sandbox between PENDING, CREATED, ACTIVE, ROLLED_BACK,
 * CLEANED_UP and out of ERRORED; txn/ into PREPARED and COMMITTED and back. Both hold the plan's
 * lock, and registry/state.c refuses a step that is not in its table.
 *
 * Invariants (sandbox_check()):
 * 1. The id is the plan's id, '-', a number.
 * 2. What is not PENDING was complete once: it has an area and a workspace directory on record.
 * 3. ERRORED has a reason; nothing else has one.
 * 4. PENDING was never written to: no commands, not stale.
 *
 * The root is the very directory it was when the sandbox was made: root_id holds filesystem,
 * inode and generation, and sandbox_verify_root() compares before every use.
 *
 * The machine may go down before a command's writes are on disk. boot_id is the boot of the last
 * command, exec_n counts them, and the file "durable" in the area holds the number up to which
 * all is known to be on disk (durable.c). In another boot, a smaller number makes the sandbox
 * ERRORED: its work is shown and kept, and never committed unasked. A workspace that begins empty
 * (ATOLL_CAP_EMPTY) and never held anything has exec_n 0: its commands are counted while they run, and
 * afterwards if they left something. In another boot it is looked at: empty, it is made anew (stale);
 * else it is ERRORED, for the machine went down before its first command was on record.
 */
#ifndef PLAN_SANDBOX_H
#define PLAN_SANDBOX_H

#include "exec/exec.h"
#include "plan/plan.h"
#include "strategy/strategy.h"
#include "util/list.h"

/* The sandboxes of a plan, in creation order. */
struct sandboxes {
	struct sandbox_row *v;
	size_t n;
	size_t cap;
};
#define SANDBOXES_INIT ((struct sandboxes){ 0 })
/* PLAN NULL: of all plans. */
int sandboxes_load(struct registry *reg, const char *plan, struct sandboxes *ret,
                   struct error *err);
void sandboxes_done(struct sandboxes *s);
/* Adds to ENV what a command must have for these resources: in a repository git collects no garbage
 * unasked, since what it did would be thrown away and done again by the next command. */
void sandboxes_env(const struct sandboxes *s, struct strlist *env);
#define cleanup_sandboxes __attribute__((__cleanup__(sandboxes_done)))
/* REF: an id or a root; NULL: the only one. Sets *ret_index. */
int sandboxes_find(const struct sandboxes *s, const char *ref, size_t *ret_index,
                   struct error *err);

/* Aborts when an invariant is broken. */
void sandbox_check(const struct sandbox_row *row);
/* Not being made and not being removed: verbs apply to it. */
bool sandbox_is_live(const struct sandbox_row *row);
/* ERRORED before it was ever complete: there is no work, only remains. */
bool sandbox_is_remains(const struct sandbox_row *row);

/* What a resource is, for root_id. FD is the root (may be O_PATH). Caller frees. */
int sandbox_root_id(int fd, const char *root, char **ret, struct error *err);
/* -ATOLL_E_CONFLICT when the root is not the one the sandbox was made of. */
int sandbox_verify_root(const struct sandbox_row *row, struct error *err);
/* Its root is the directory PATH, whatever it is called. */
bool sandbox_is_at(const struct sandbox_row *row, const char *path);
/* The workspace is of this boot from here on. So is the identity of the resource, since what a boot may
 * change of it is forgiven only once. The caller writes the row. */
void sandbox_written(struct sandbox_row *row);
/* -ENOENT, saying so, when somebody removed what the sandbox keeps. */
int sandbox_find_area(const struct sandbox_row *row, const char *plan_name, struct error *err);
/* The same before it is written to: -ATOLL_E_UNSUPPORTED when its mount has become read-only. Of a
 * stale one nothing is missed: the directories are made again, to make the workspace anew in. */
int sandbox_verify_area(const struct sandbox_row *row, const char *plan_name, struct error *err);
/* -ATOLL_E_STATE, saying why and what to do, unless VERB may start in the row's state. */
int sandbox_allows(const struct sandbox_row *row, enum sandbox_verb verb, const char *plan_name,
                   struct error *err);

/* A participant with what it needs kept beside it. */
struct sandbox {
	struct atoll_participant *part;
	struct strlist excludes;
};
#define SANDBOX_INIT ((struct sandbox){ 0 })
int sandbox_open(struct sandbox *s, struct atoll *a, const char *plan_name,
                 const struct sandbox_row *row, struct error *err);
void sandbox_close(struct sandbox *s);
#define cleanup_sandbox __attribute__((__cleanup__(sandbox_close)))

/* What it would change; nothing where it has no workspace that counts. Takes no lock. */
int sandbox_diff(struct atoll *a, const char *plan_name, const struct sandbox_row *row,
                 atoll_change_fn fn, void *user, struct error *err);

/* Removes what the sandbox keeps on disk: strategy first, then the directories. The rows stay. */
int sandbox_erase(struct atoll *a, const char *plan_name, const struct sandbox_row *row,
                  struct error *err);

/* Within a transaction: delete its recorded paths; and the row too. */
int sandbox_forget_paths(struct registry *reg, const struct sandbox_row *row, struct error *err);
int sandbox_forget(struct registry *reg, const struct sandbox_row *row, struct error *err);

/* ---- durable.c ---- */

/* Somebody is about to write to the workspace. Recorded before he does: until it is noted that what
 * he wrote is on disk, another boot does not trust it. */
void durable_count(struct sandbox_row *row);

/* Makes the workspace durable in the background, then notes in the area that commands up to
 * exec_n are. Never fails: without the note the next boot is careful. */
void durable_note_later(const struct sandbox_row *row);
/* The same for what a command is about to change, as orders to the helper that runs it: it has
 * nothing else to do afterwards. The strings of BOXES must live as long. */
struct durable_notes {
	struct exec_sync v[LIMIT_SANDBOXES];
	char *numbers[LIMIT_SANDBOXES];
	unsigned n;
};
#define DURABLE_NOTES_INIT ((struct durable_notes){ .n = 0 })
void durable_notes_add(struct durable_notes *notes, const struct sandboxes *boxes);
void durable_notes_done(struct durable_notes *notes);
#define cleanup_durable_notes __attribute__((__cleanup__(durable_notes_done)))
/* Everything up to exec_n is noted as durable. */
bool durable_noted(const struct sandbox_row *row);
/* No command has left anything in a workspace that begins empty. */
bool durable_unused(const struct sandbox_row *row);
/* A command counted by durable_count() left nothing in one that was unused. */
void durable_uncount(struct sandbox_row *row);
/* It may be used, and its last command ran in another boot. */
bool durable_other_boot(const struct sandbox_row *row);

enum durable_fate {
	DURABLE_KEPT, /* all of it is on disk */
	DURABLE_ANEW, /* it holds nothing: to be made anew, as its directories may be incomplete */
	DURABLE_LOST, /* what its last command did may not have reached the disk */
};
enum durable_fate durable_fate(struct atoll *a, const char *plan_name,
                               const struct sandbox_row *row);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry: the one durable memory of plans, sandboxes and batches.
 *
 * Reading: any time, takes no lock, sees the last committed state.
 * Writing: registry_begin() ... row functions ... registry_commit(). Begin takes the store lock
 * (a ticket lock, so writers are served in order) and opens a write transaction; commit makes it
 * visible and, begun with REGISTRY_DURABLE, synchronous; rollback drops it. A leaf: nothing else is
 * waited for between begin and commit. One thread at a time is inside; others of the process
 * wait in begin. A row function that writes outside begin/commit is a BUG().
 *
 * Every change of state goes through state.h's tables: a step that is not in them is
 * -ATOLL_E_STATE, one that comes from a stale holder (epoch too small) too.
 *
 * What is recorded before what: an area's path before the area is made (paths), PREPARING before
 * any participant prepares, DECIDED after barrier 1 and before any resource changes, COMMITTED
 * after barrier 3 and before anything old is released.
 *
 * fork: a child cannot use its parent's handle (-ATOLL_E_STATE) and closing it there does nothing. It
 * may open its own, unless a thread was inside the registry when fork happened.
 *
 * Crash: a transaction is wholly there or not at all. Damage is -ATOLL_E_DAMAGED, a store written
 * by a newer version -ATOLL_E_NEWER; neither touches anything.
 */
#ifndef REGISTRY_REGISTRY_H
#define REGISTRY_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "registry/state.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/limits.h"

#define PLAN_ID_LEN    16 /* hex digits */
#define SANDBOX_ID_LEN 21 /* plan id, '-', number up to 255 */

struct plan_row {
	char id[PLAN_ID_LEN + 1];
	char name[LIMIT_NAME + 1];
	enum atoll_plan_state state;
	uint64_t seq; /* creation order */
	bool owned;
	bool abandoned;
	bool starting;  /* being made: no plan yet to anybody but its maker */
	uint64_t epoch; /* of the last grant that wrote */
	uint32_t batch; /* the unfinished batch; 0: none */
	int64_t created_ms;
	int64_t retry_at_ms; /* recovery backs off until then */
	uint32_t attempts;   /* of recovery */
};

struct sandbox_row {
	char id[SANDBOX_ID_LEN + 1];
	char plan[PLAN_ID_LEN + 1];
	uint64_t seq;
	char *strategy;
	char *root;    /* canonical path */
	char *root_id; /* fsid:ino:gen */
	char *area;    /* private directory on the root's mount: staging, undo data, conflicts */
	char *work;    /* directory of the workspace: the area, or one in the store */
	char *parent;  /* sandbox id, or "" */
	enum atoll_sandbox_state state;
	bool stale;          /* the workspace is to be made anew before its next use */
	char *error;         /* why ERRORED, or "" */
	char *boot_id;       /* boot in which the workspace was last written */
	uint64_t exec_n;     /* commands run so far */
	uint64_t generation; /* of the workspace; a reset makes the next one */
	int64_t t0_ns;       /* ctime of the marker at creation */
	uint64_t bytes;      /* on disk, of area and work, when they were last measured */
	uint64_t entries;
	bool remeasured; /* and this is not what the registry has */
};

struct batch_row {
	char plan[PLAN_ID_LEN + 1];
	uint32_t number; /* 1.. within the plan */
	enum batch_state state;
	unsigned flags; /* ATOLL_ALLOW_* etc. of the call */
	int64_t created_ms;
	/* Undo data may be released then; 0: never by itself. Until the batch is COMMITTED it is counted
	 * from created_ms, so that whoever finishes it knows how long was asked for. */
	int64_t retain_until_ms;
	bool released; /* undo data is gone */
	/* When it was committed, undone or done again, last: of two batches, of whatever plans, the later
	 * one has the greater. Set by registry_batch_take_turn(). */
	int64_t turn;
};

enum part_answer { PART_PENDING = 0, PART_READY, PART_NO_CHANGE, PART_ANSWER_END_ };

struct part_row {
	char plan[PLAN_ID_LEN + 1];
	uint32_t batch;
	char sandbox[SANDBOX_ID_LEN + 1];
	uint32_t position; /* order of commit */
	enum part_answer answer;
	char manifest[HASH_TEXT_LEN]; /* hash of the manifest, or "" */
	bool irrevocable;             /* has no undo */
	uint64_t changes;
};

struct event_row {
	int64_t at_ms;
	char *what;
	int code;
	char *message;
};

void sandbox_row_done(struct sandbox_row *r);
void event_row_done(struct event_row *r);
#define cleanup_sandbox_row __attribute__((__cleanup__(sandbox_row_done)))
#define SANDBOX_ROW_INIT    ((struct sandbox_row){ 0 })

/* ---- life ---- */

/* For a program that owns its process and opens one store, once; before it does, and before it has
 * threads. A library must not: these are settings of SQLite for all of the process. READS: it is
 * likely to write nothing. Reading then leaves the store's files alone; the first transaction
 * opens the registry once more. */
void registry_program(bool reads);
/* The program ends and opens no registry any more: what is closed from now on is left to the kernel,
 * which takes all of it at once. Nothing on disk depends on it. */
void registry_program_ends(void);

struct registry;
/* HOME_FD: the store's directory, checked by the caller (owner, mode, local filesystem).
 * Makes atoll.db and locks/ when missing; migrates an older schema under the store lock. */
int registry_open(int home_fd, const char *home, struct registry **ret, struct error *err);
void registry_close(struct registry *r);
void cleanup_registryp(struct registry **r);
#define cleanup_registry __attribute__((__cleanup__(cleanup_registryp)))
const char *registry_uuid(const struct registry *r); /* 32 hex digits, of the store */
int registry_locks_fd(const struct registry *r);     /* directory of lock files, ours to use */
int registry_home_fd(const struct registry *r);      /* the store's directory */
/* Limit and notification for waits on the store lock. */
typedef void (*registry_wait_fn)(void *user, const char *message);
void registry_set_wait(struct registry *r, int64_t wait_ms, registry_wait_fn fn, void *user);
/* PRAGMA integrity_check and our own invariants; for doctor. 0 or -ATOLL_E_DAMAGED. */
int registry_check(struct registry *r, struct error *err);

/* A number that is another one after any change, by whatever process. Waits for nobody outside of this
 * handle, and is so cheap that one may ask before every answer. */
int registry_version(struct registry *r, uint64_t *ret, struct error *err);

/* ---- transactions ---- */

enum registry_durability {
	REGISTRY_NORMAL = 0, /* a power cut may lose it, whole; for logs */
	REGISTRY_DURABLE,    /* on disk when commit returns */
};
/* Waits for the store lock as registry_set_wait() says: -ATOLL_E_TIMEOUT or -ATOLL_E_BUSY name
 * the holder. A second begin by the same thread is a BUG(). */
int registry_begin(struct registry *r, enum registry_durability d, struct error *err);
/* On failure the transaction is rolled back, except that after a failed synchronous write it
 * is unknown what is on disk: -ATOLL_E_NEEDS_RECOVERY, the caller stops and decides nothing. The
 * handle takes no further transaction then; a new one reads what became of it. */
int registry_commit(struct registry *r, struct error *err);
void registry_rollback(struct registry *r); /* harmless when none is open */
/* What was committed with REGISTRY_NORMAL is on disk when it returns. Takes no lock; a failure is that
 * of a synchronous write. */
int registry_sync(struct registry *r, struct error *err);
/* Housekeeping, for whoever waits for something else anyway: later commands start sooner. Does not
 * wait for the store, and cannot fail. */
void registry_tend(struct registry *r);

/* ---- plans ---- */

int registry_plan_insert(struct registry *r, struct plan_row *row, struct error *err); /* sets seq;
			-ATOLL_E_EXISTS when name or id is taken by a plan not CLOSED */
int registry_plan_get(struct registry *r, const char *id, struct plan_row *ret, struct error *err);
/* The plan of exactly that name, not CLOSED: 1 and *ret, or 0. */
int registry_plan_named(struct registry *r, const char *name, struct plan_row *ret,
                        struct error *err);
/* The one whose whole name or id REF is, not CLOSED: 1 and *RET, or 0. The id comes first. */
int registry_plan_whole(struct registry *r, const char *ref, struct plan_row *ret,
                        struct error *err);
/* By name, id, or unique prefix of either; exact name wins, then exact id; "-": the only plan.
 * -ATOLL_E_NOT_FOUND (hint: the nearest name), -ATOLL_E_AMBIGUOUS naming the candidates. */
int registry_plan_resolve(struct registry *r, const char *ref, struct plan_row *ret,
                          struct error *err);
typedef int (*registry_plan_fn)(void *ctx, const struct plan_row *row);
/* In creation order, CLOSED ones left out. The callback may read but not write. */
int registry_plan_list(struct registry *r, registry_plan_fn fn, void *ctx, struct error *err);
/* Those with an unfinished batch or a PENDING sandbox, in creation order: what a dead process may
 * have left. Every command asks, so it costs what there is of them. */
int registry_plan_list_doubtful(struct registry *r, registry_plan_fn fn, void *ctx,
                                struct error *err);
int registry_plan_set_state(struct registry *r, const char *id, enum atoll_plan_state to,
                            uint64_t epoch, struct error *err);
/* Everything but id, name, seq and state. */
int registry_plan_update(struct registry *r, const struct plan_row *row, struct error *err);
/* Notes that the plan was made by `run` in the directory DIR (canonical). */
int registry_plan_ran_in(struct registry *r, const char *id, const char *dir, struct error *err);
/* The latest plan made by `run` in DIR that is still there: 1 and *ret, or 0. */
int registry_plan_last_run(struct registry *r, const char *dir, struct plan_row *ret,
                           struct error *err);
/* In creation order, CLOSED ones left out: those with a resource that is DIR or holds it, and those made by
 * `run` in DIR (canonical). The callback may read but not write. */
int registry_plan_list_at(struct registry *r, const char *dir, registry_plan_fn fn, void *ctx,
                          struct error *err);
/* How a plan was used last. */
struct plan_use {
	char plan[PLAN_ID_LEN + 1];
	bool from_run;   /* made by `run` */
	int64_t used_ms; /* the last line of its history, else when it was made */
	char *command;   /* the last that ran in it, as in exec_row, or "" */
	int64_t changes; /* entries that differ now, as that command left them; -1: not counted */
};
typedef int (*registry_use_fn)(void *ctx, const struct plan_use *use);
/* In any order; PLAN NULL: of all that are not CLOSED. */
int registry_plan_uses(struct registry *r, const char *plan, registry_use_fn fn, void *ctx,
                       struct error *err);
/* The plan and all its rows, its recorded paths included. History stays. */
int registry_plan_delete(struct registry *r, const char *id, struct error *err);

/* ---- sandboxes ---- */

/* Sets seq, and the id when it is "": the plan's, '-', the lowest number free in the plan;
 * -ATOLL_E_TOO_BIG when there is none. -ATOLL_E_NOT_FOUND: no such plan. */
int registry_sandbox_insert(struct registry *r, struct sandbox_row *row, struct error *err);
int registry_sandbox_get(struct registry *r, const char *id, struct sandbox_row *ret,
                         struct error *err);
typedef int (*registry_sandbox_fn)(void *ctx, const struct sandbox_row *row);
/* Of one plan in creation order; PLAN NULL: of all plans. */
int registry_sandbox_list(struct registry *r, const char *plan, registry_sandbox_fn fn, void *ctx,
                          struct error *err);
/* Roots of any plan that contain PATH and are not PATH itself, the nearest first; one that was
 * registered under several identities once for each. The callback must not use the registry. */
typedef int (*registry_root_fn)(void *ctx, const char *root, const char *root_id);
int registry_root_list_above(struct registry *r, const char *path, registry_root_fn fn, void *ctx,
                             struct error *err);
int registry_sandbox_set_state(struct registry *r, const char *id, enum atoll_sandbox_state to,
                               const char *error, struct error *err);
/* What it takes on disk; bytes and entries are set by nothing else. */
int registry_sandbox_set_usage(struct registry *r, const char *id, uint64_t bytes, uint64_t entries,
                               struct error *err);
/* What a listing says of a sandbox. */
struct sandbox_brief {
	char plan[PLAN_ID_LEN + 1];
	char *root, *strategy;
	enum atoll_sandbox_state state;
	uint64_t bytes;
};
typedef int (*registry_brief_fn)(void *ctx, const struct sandbox_brief *brief);
/* In creation order; PLAN NULL: of all plans. */
int registry_sandbox_briefs(struct registry *r, const char *plan, registry_brief_fn fn, void *ctx,
                            struct error *err);
/* Everything but id, plan, seq, root, state and usage. */
int registry_sandbox_update(struct registry *r, const struct sandbox_row *row, struct error *err);
int registry_sandbox_delete(struct registry *r, const char *id, struct error *err);

/* ---- batches ---- */

int registry_batch_insert(struct registry *r, struct batch_row *row,
                          struct error *err); /* sets number */
int registry_batch_get(struct registry *r, const char *plan, uint32_t number, struct batch_row *ret,
                       struct error *err);
/* The number of the last one in STATE; 0: there is none. */
int registry_batch_last(struct registry *r, const char *plan, enum batch_state state, uint32_t *ret,
                        struct error *err);
typedef int (*registry_batch_fn)(void *ctx, const struct batch_row *row);
int registry_batch_list(struct registry *r, const char *plan, registry_batch_fn fn, void *ctx,
                        struct error *err); /* oldest first; PLAN NULL: all */
/* COMMITTED ones that a rollback would undo, in any order; PLAN NULL: all. A rollback undoes all that
 * a plan committed or nothing: where the undo data of one is released, or a resource of one is in
 * error or (half) removed, there are none. */
int registry_batch_list_undoable(struct registry *r, const char *plan, registry_batch_fn fn,
                                 void *ctx, struct error *err);
/* In STATE, of all plans, the latest first. */
int registry_batch_list_latest(struct registry *r, enum batch_state state, registry_batch_fn fn,
                               void *ctx, struct error *err);
/* The batch becomes the latest. */
int registry_batch_take_turn(struct registry *r, const char *plan, uint32_t number, int64_t now_ms,
                             struct error *err);
/* COMMITTED and UNDONE ones whose undo data is there and whose time has passed, the oldest first. */
int registry_batch_list_expired(struct registry *r, int64_t now_ms, registry_batch_fn fn, void *ctx,
                                struct error *err);
int registry_batch_set_state(struct registry *r, const char *plan, uint32_t number,
                             enum batch_state to, struct error *err);
int registry_batch_update(struct registry *r, const struct batch_row *row, struct error *err);
int registry_part_put(struct registry *r, const struct part_row *row, struct error *err);
typedef int (*registry_part_fn)(void *ctx, const struct part_row *row);
int registry_part_list(struct registry *r, const char *plan, uint32_t batch, registry_part_fn fn,
                       void *ctx, struct error *err); /* by position */

/* ---- paths we made, history, commands, clocks ---- */

/* Adding a path again is harmless; -ATOLL_E_EXISTS when it is another plan's. Removing one that is
 * not there is harmless too. SANDBOX may be "". */
int registry_path_add(struct registry *r, const char *plan, const char *sandbox, const char *path,
                      struct error *err);
int registry_path_remove(struct registry *r, const char *path, struct error *err);
typedef int (*registry_path_fn)(void *ctx, const char *plan, const char *sandbox, const char *path);
int registry_path_list(struct registry *r, const char *plan, registry_path_fn fn, void *ctx,
                       struct error *err); /* PLAN NULL: all */
/* Of all plans, those below DIR, which has no '/' at its end. */
int registry_path_list_below(struct registry *r, const char *dir, registry_path_fn fn, void *ctx,
                             struct error *err);
int registry_event_add(struct registry *r, const char *plan, const char *what, int code,
                       const char *message, struct error *err);
typedef int (*registry_event_fn)(void *ctx, const struct event_row *row);
int registry_event_list(struct registry *r, const char *plan, registry_event_fn fn, void *ctx,
                        struct error *err); /* oldest first */
struct exec_row {
	char plan[PLAN_ID_LEN + 1];
	const char *argv; /* one line, redacted and escaped by the caller */
	int64_t started_ms;
	int64_t ended_ms;
	int exit_code;
	int64_t user_us, system_us;
	uint64_t max_rss_kb;
	int64_t changes; /* entries that differ from the resources now; -1: not counted */
	int term_signal;
	bool timed_out;
	unsigned memory_kills;
	const char *output; /* name of what it printed (plan/output.h), or "" */
	const char *job;    /* its name in the background, or "" */
};
int registry_exec_add(struct registry *r, const struct exec_row *row, struct error *err);
/* While nobody waits: makes ready what will be needed to write that. */
void registry_exec_expect(struct registry *r);

/* A command in the background (plan/job.h). */
#define REGISTRY_OUTPUT_LEN 64
struct job_row {
	char plan[PLAN_ID_LEN + 1];
	char name[LIMIT_NAME + 1];
	char *argv; /* as in exec_row */
	char boot[40];
	int64_t epoch; /* with the boot: the grant of the plan's lock under which it runs */
	char output[REGISTRY_OUTPUT_LEN];
	int64_t started_ms;
	int64_t ended_ms; /* 0: it runs, or nobody saw its end */
	int exit_code;
	int term_signal;
};
/* Begins one, in place of the last of that name. */
int registry_job_put(struct registry *r, const struct job_row *row, struct error *err);
/* It has ended; of ROW plan, name, output and how it ended count. */
int registry_job_end(struct registry *r, const struct job_row *row, struct error *err);
typedef int (*registry_job_fn)(void *ctx, const struct job_row *row);
int registry_job_list(struct registry *r, const char *plan, registry_job_fn fn, void *ctx,
                      struct error *err); /* PLAN NULL: all */

/* A line of the log: an event, or a command that ran. */
struct log_row {
	int64_t at_ms;
	char plan[PLAN_ID_LEN + 1];
	char name[LIMIT_NAME + 1]; /* "" when nobody knows any more */
	char *what;
	int code;
	char *message; /* of a command: its line */
	/* Of a command that ran; else started_ms is -1. */
	int64_t started_ms;
	int exit_code;
	int64_t user_us, system_us;
	int64_t max_rss_kb;
	int64_t changes;
	int64_t seq;
	int term_signal;
	bool timed_out;
	unsigned memory_kills;
	char *output;
	char *job;
};
typedef int (*registry_log_fn)(void *ctx, const struct log_row *row);
/* The newest LIMIT lines, newest first; PLAN NULL: of all plans, also of those that are gone. */
int registry_log_list(struct registry *r, const char *plan, int64_t limit, registry_log_fn fn,
                      void *ctx, struct error *err);
/* Of the command SEQ: its plan and the name of what it printed ("": nothing is kept). 1, or 0. */
int registry_log_output(struct registry *r, int64_t seq, char ret_plan[PLAN_ID_LEN + 1],
                        char ret_name[REGISTRY_OUTPUT_LEN], struct error *err);

/* A plan that is gone, by its id or by the last one's name: 1 and its id, 0 when history has none. */
int registry_log_find(struct registry *r, const char *ref, char ret_id[PLAN_ID_LEN + 1],
                      struct error *err);
/* Lines older than MAX_AGE_MS, and all but the newest MAX_ROWS of each table, go now and then with
 * the writing of new ones (negative: never). Those of a plan with an unfinished batch stay. */
void registry_log_keep(struct registry *r, int64_t max_age_ms, int64_t max_rows);
/* The latest ctime seen on a filesystem; a marker below it means the clock was stepped back.
 * Returns the greater of the stored one and CTIME_NS, and stores it. */
int registry_highwater(struct registry *r, const char *fsid, int64_t ctime_ns, int64_t *ret_highest,
                       struct error *err);

#endif

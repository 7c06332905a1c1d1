/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: the product. What include/atoll.h offers, without its outer shell (api.c).
 *
 * A struct atoll is a store that is open: its directory, its registry, the owned plans of this
 * process. Thread-safe. A struct atoll_plan is only a name for a plan: it holds no state but ids;
 * every call reads the registry anew. The store on disk is the only truth.
 *
 * Every call that changes something: settle what dead processes left on the plans that share its
 * resources, take the plan's lock, recover the plan itself, do the work, let go. That frame is
 * struct plan_op (plan-op.h); what is inside it, one sandbox at a time, is sandbox.h.
 *
 * Lock order: plan -> resources (sorted by key) -> store. No thread holds two plans.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <atoll.h>
#include "lock/ticket.h"
#include "registry/registry.h"
#include "strategy/result.h"
#include "util/error.h"
#include "util/progress.h"

/* A decision about a plan: what a reviewer, a user or a remote client makes of its work. */
struct plan_decision {
	const char *plan; /* id */
	const char *verb; /* "commit" */
	int code;         /* how it ended; DECISION_ASKED: it is about to be tried */
};
#define DECISION_ASKED 1
/* Under the plan's lock. A negative answer to DECISION_ASKED, with ERR set, refuses the decision; any other is
 * ignored. */
typedef int (*decision_fn)(void *ctx, const struct plan_decision *d, struct error *err);

/* May GIVEN join a plan? PATH is where it really is; NULL: it is no file, and nothing was asked of it yet. */
typedef int (*resource_fn)(void *ctx, const struct atoll_resource *given, const char *path,
                           struct error *err);

struct owned_plan; /* plan-owner.c */
struct plan_hold;  /* hold.c */

struct atoll {
	char *home; /* canonical */
	int home_fd;
	int plans_fd; /* home/plans */
	int news_fd;  /* to poll, of the registry; made when first asked for, under the mutex */
	struct registry *reg;
	pid_t pid;             /* the process that opened it; a forked child must not use it */
	pthread_mutex_t mutex; /* guards those that follow */
	int64_t wait_ms;
	atoll_wait_fn wait_fn;
	void *wait_user;
	int64_t retain_ms; /* of commits; negative: until the plan is stopped */
	int64_t min_free;  /* bytes; negative: by the filesystem's size */
	atoll_progress_fn progress_fn;
	void *progress_user;
	atoll_interrupt_fn interrupt_fn;
	void *interrupt_user;
	decision_fn decision_fn;
	void *decision_ctx;
	resource_fn resource_fn;
	void *resource_ctx;
	struct owned_plan *owned; /* these two: guarded by plan-owner.c's mutex */
	struct atoll *next_open;
};

struct atoll_plan {
	struct atoll *a;
	char id[PLAN_ID_LEN + 1];
	char name[LIMIT_NAME + 1];
	struct plan_hold *hold; /* NULL: not held through this handle; hold.c guards it */
};

/* ---- store.c: where the store is, and whether it may be used ---- */

/* As registry_program(). */
void store_program(bool reads);
/* As registry_program_ends(). */
void store_program_ends(void);
/* Whether the store that store_open(NULL) opens has been made yet; makes nothing. */
bool store_is_made(void);
int store_open(const char *home, struct atoll **ret, struct error *err);
void store_close(struct atoll *a);
/* The user's home directory; the caller frees; NULL when there is none. */
char *store_user_dir(void);
/* Every directory on the way to PATH and PATH itself, where missing (0755). 0 or -errno. */
int store_make_dirs(const char *path);
/* PATH (canonical) is the store, inside it, or contains it. */
bool store_overlaps(const struct atoll *a, const char *path);
/* In the store: a file for each plan that a client on another machine has a session with, named by the plan's id
 * (daemon/mirror.h). */
#define STORE_SESSIONS "sessions"
/* Has the plan one? 1, 0 or -errno. */
int store_has_session(const struct atoll *a, const char *plan_id);
/* FN is called for every decision that is made through this handle (plan-op.h, OP_AUDITED); NULL: nothing is. */
void store_set_decision(struct atoll *a, decision_fn fn, void *ctx);
/* FN is asked of every resource that is about to join a plan through this handle; NULL: any may. */
void store_set_resource(struct atoll *a, resource_fn fn, void *ctx);
bool store_checks_resources(struct atoll *a);
int store_check_resource(struct atoll *a, const struct atoll_resource *given, const char *path,
                         struct error *err);
int store_decision(struct atoll *a, const struct plan_decision *d, struct error *err);
/* When a wait that begins now must end (ticket.h's kind of deadline). */
int64_t store_deadline(struct atoll *a);
/* Tells the caller what is waited for, if he asked to be told. */
void store_tell_waiting(struct atoll *a, const char *message);
bool store_tells_waiting(struct atoll *a);

/* What this thread does from here on is told to the caller, if he asked for it. */
void store_progress_begin(struct atoll *a, struct progress *p);

/* One registry transaction: BODY's failure rolls it back. */
typedef int (*store_write_fn)(struct registry *reg, void *ctx, struct error *err);
int store_write(struct atoll *a, enum registry_durability d, store_write_fn body, void *ctx,
                struct error *err);
/* A line of a plan's history; failing to write it is ignored. */
void store_event(struct atoll *a, const char *plan_id, const char *what, int code,
                 const char *message);

/* ---- lock.c: a plan's lock ---- */

struct plan_lock {
	struct ticket ticket;
	bool held; /* also when the ticket was left out (sabotage) */
	struct atoll *a;
	char plan[PLAN_ID_LEN + 1];
	struct plan_lock *next; /* others held by this thread */
	struct plan_hold *hold; /* whose ticket it is; NULL: our own */
};
#define PLAN_LOCK_INIT ((struct plan_lock){ .ticket = { .fd = -1 } })
/* WHAT: for the record and messages ("atoll commit fix-42"). -ATOLL_E_WOULD_DEADLOCK when this
 * thread already holds it, -ATOLL_E_TIMEOUT / -ATOLL_E_BUSY naming the holder. */
int plan_lock_acquire(struct plan_lock *l, struct atoll *a, const char *plan_id,
                      const char *plan_name, const char *what, int64_t deadline, struct error *err);
/* The same for an operation of P: where the plan is held through P, that lock is lent to it. */
int plan_lock_for(struct plan_lock *l, struct atoll_plan *p, const char *what, int64_t deadline,
                  struct error *err);
void plan_lock_release(struct plan_lock *l);
/* FROM is this thread's no longer: TO has it, whichever thread that belongs to. */
void plan_lock_hand_over(struct plan_lock *from, struct plan_lock *to);
/* This thread is in the middle of an operation on the plan. */
bool plan_lock_of_thread(const char *plan_id);
/* Somebody holds it. Takes nothing and waits for nobody. */
bool plan_lock_held(struct atoll *a, const char *plan_id);
/* The same, and by whom: 1 and *RET, 0 when it is free, or -errno. */
int plan_lock_holder(struct atoll *a, const char *plan_id, struct ticket_holder *ret);
#define cleanup_plan_lock __attribute__((__cleanup__(plan_lock_release)))
/* Removes the lock files of a plan that is gone; waiters find it gone too. */
void plan_lock_forget(struct atoll *a, const char *plan_id);

/* Waiting for any ticket: sets the words on failure. SUBJECT: "plan 'fix-42'". */
int lock_ticket(struct ticket *t, struct atoll *a, const char *file, const char *subject,
                const char *what, int64_t deadline, struct error *err);

/* From here to the end, no wait of this thread for a plan or a resource goes on once CANCELLED says so:
 * -ECANCELED. It is asked every 200 ms, in this thread. */
struct lock_cancel {
	bool (*cancelled)(void *ctx); /* NULL: it never began */
	void *ctx;
	struct lock_cancel *outer; /* this thread's before */
};
void lock_cancel_begin(struct lock_cancel *c, bool (*cancelled)(void *ctx), void *ctx);
void lock_cancel_end(struct lock_cancel *c);
/* Asked now. */
bool lock_cancelled(void);
#define cleanup_lock_cancel __attribute__((__cleanup__(lock_cancel_end)))

/* ---- resource-lock.c: the locks of resources ---- */

struct resource_locks; /* a set, taken in sorted order */
enum resource_lock_mode { RESOURCE_SHARED = 0, RESOURCE_EXCLUSIVE };
/* Ticket lock in the store and flock on the root itself (two stores may meet on one tree), and
 * shared flock on every ancestor that is a registered root. Of roots that do not exist any more
 * only the ticket is taken. */
int resource_locks_acquire(struct atoll *a, const struct sandbox_row *rows, size_t n,
                           enum resource_lock_mode mode, const char *what, int64_t deadline,
                           struct resource_locks **ret, struct error *err);
/* Of resources that are in no plan any more the lock files go, too, at release. */
void resource_locks_forget(struct resource_locks *l, struct atoll *a);
void resource_locks_release(struct resource_locks *l);
void cleanup_resource_locksp(struct resource_locks **l);
#define cleanup_resource_locks __attribute__((__cleanup__(cleanup_resource_locksp)))

/* A process that holds an flock on the file, from /proc/locks; 0: none, or it cannot be told. */
pid_t resource_flock_holder(int fd);

/* ---- lock-show.c ---- */

int lock_list(struct atoll *a, const char *ref, atoll_lock_fn fn, void *user, struct error *err);
int lock_break(struct atoll_plan *p, pid_t pid, struct atoll_lock_broken *ret, struct error *err);

/* ---- area.c: the private directory on the original's mount ---- */

struct area {
	char *path;   /* of the area itself */
	char *work;   /* where the workspace goes: the same, or in the store */
	bool in_root; /* it had to lie inside the root; excluded there */
};
#define AREA_INIT ((struct area){ 0 })
struct sandboxes; /* sandbox.h */
struct area_request {
	const char *root;
	int root_fd; /* FD_NONE: the resource is no file */
	const char *sandbox_id;
	bool work_in_store;
	const struct sandboxes *newcomers; /* not on record yet, but resources all the same */
};
/* Chooses, without making anything. */
int area_choose(struct atoll *a, const struct area_request *rq, struct area *ret,
                struct error *err);
/* After it was recorded. */
int area_make(const struct area *ar, const char *root, struct error *err);
/* One directory of an area. A resource ROOT around it keeps its time of change; a project id that this gives to
 * what is made in it is given there, too. */
int area_make_dir(const char *path, const char *root, struct error *err);
/* Removes the area and the now empty directory of ours around it. Never follows links, never
 * crosses mounts. Absent is success. */
int area_remove(const char *path, struct error *err);
void area_done(struct area *ar);
#define cleanup_area __attribute__((__cleanup__(area_done)))
/* Name of the directory of ours around areas outside the store: ".atoll-<uid>". */
#define AREA_DIR_LEN 24
void area_dir_name(char out[AREA_DIR_LEN]);

/* ---- plan-name.c ---- */

/* TEXT has the form of an id: no plan's name, and no abbreviation of one. */
bool plan_is_id(const char *text);
/* Of a job, and but for the form of an id of a plan. */
bool name_valid(const char *name);
bool plan_name_valid(const char *name);
void plan_name_make_up(char out[LIMIT_NAME + 1]);

/* ---- plan-start.c, plan.c, plan-add.c, plan-exec.c, plan-decide.c, plan-stop.c ---- */

/* 0: made, 1: one that was there is opened. */
int plan_start(struct atoll *a, const struct atoll_start *start, struct atoll_plan **ret,
               struct atoll_result *res, struct error *err);
/* The same under an ID that was recorded with a request (registry/request.h); START has a name. However
 * often it is called, and whoever dies meanwhile, one plan is made. 1: it was there, or begun. */
int plan_start_once(struct atoll *a, const struct atoll_start *start, const char *id,
                    struct atoll_plan **ret, struct atoll_result *res, struct error *err);
int plan_open(struct atoll *a, const char *ref, struct atoll_plan **ret, struct error *err);
/* The one whose whole name or id REF is: 1 and *RET, or 0. */
int plan_open_whole(struct atoll *a, const char *ref, struct atoll_plan **ret, struct error *err);
/* The latest one made by `run` in DIR. */
int plan_open_run(struct atoll *a, const char *dir, struct atoll_plan **ret, struct error *err);
int plan_add(struct atoll_plan *p, const struct atoll_resource *resource, struct atoll_result *res,
             struct error *err);
/* For a program that owns its process: the helper of the next plan_exec() starts now (exec/exec.h). */
void plan_exec_ahead(int (*helper)(void *ctx), void *ctx);
/* At the end of that program. */
void plan_exec_end(void);
/* For its handlers of signals: as exec_listener(). */
pid_t plan_exec_listener(void);
bool plan_exec_has_ended(void);
/* As exec_was_relayed(). */
bool plan_exec_was_relayed(void);
struct exec_wishes; /* exec-option.h */
struct plan_exec_result {
	struct atoll_exec_status *status;
	struct atoll_result *res; /* gets notes */
};
int plan_exec(struct atoll_plan *p, const struct atoll_exec *exec, const struct exec_wishes *wishes,
              struct plan_exec_result *ret, struct error *err);
/* exec-shared.c: in the namespaces of what runs. Takes no lock. */
int plan_exec_shared(struct atoll_plan *p, const struct atoll_exec *exec,
                     const struct exec_wishes *wishes, struct plan_exec_result *ret,
                     struct error *err);
/* For a program that owns its process: told when the next job's command runs. */
void plan_exec_on_job(void (*began)(void *ctx), void *ctx);
int plan_path(struct atoll_plan *p, const char *sandbox, char **ret_path, struct error *err);
int plan_commit(struct atoll_plan *p, const struct atoll_commit *commit, struct atoll_result *res,
                struct error *err);
/* plan_undo() and plan_redo(): plan-undo.h. */
int plan_rollback(struct atoll_plan *p, unsigned flags, struct atoll_result *res,
                  struct error *err);
int plan_reset(struct atoll_plan *p, struct atoll_result *res, struct error *err);
/* The same, but a plan of `run` of which no commit can be undone or redone ends with its work: *RET_ENDED. */
int plan_discard(struct atoll_plan *p, bool *ret_ended, struct atoll_result *res,
                 struct error *err);
/* Such a plan without uncommitted changes ends: *RET_ENDED. Any other stays as it is. */
int plan_end_unchanged(struct atoll_plan *p, bool *ret_ended, struct atoll_result *res,
                       struct error *err);
int plan_refresh(struct atoll_plan *p, struct atoll_result *res, struct error *err);
int plan_keep(struct atoll_plan *p, struct error *err);
int plan_stop(struct atoll_plan *p, unsigned flags, struct atoll_result *res, struct error *err);
/* What a remote client may do to the plan of its session, without a review: of a plan that is one resource, the
 * mirror ROOT, and nothing else. That is checked under the plan's lock; otherwise -ATOLL_E_DENIED, and nothing is
 * changed. */
int plan_mirror_check(struct atoll_plan *p, const char *root, struct error *err);
/* The mirror becomes what the workspace is: no commit policy applies, and there is no undo. */
int plan_mirror_commit(struct atoll_plan *p, const char *root, struct atoll_result *res,
                       struct error *err);
int plan_mirror_reset(struct atoll_plan *p, const char *root, struct atoll_result *res,
                      struct error *err);
/* By force. */
int plan_mirror_stop(struct atoll_plan *p, const char *root, struct atoll_result *res,
                     struct error *err);
/* A directory of versions that are nowhere else, which only a forced stop drops; or NULL. The caller frees. Takes
 * no lock. */
char *plan_kept_versions(struct atoll_plan *p);
/* Finish what is unfinished: one plan (waiting), or all whose lock is free. Returns how many
 * still need it. */
int plan_recover(struct atoll *a, const char *ref, bool accept, struct atoll_result *res,
                 struct error *err);
/* The same of all, in passing, for who was asked for something else: what could not be finished a moment
 * ago is left alone. Expired undo data is for cleanup_retention(). */
void plan_settle(struct atoll *a, struct atoll_result *res);

/* ---- plan-read.c: what takes no lock ---- */

int plan_list(struct atoll *a, atoll_plan_fn fn, void *user, struct error *err);
/* Only those with a resource that is DIR or holds it, and those that `run` made in DIR (canonical). */
int plan_list_at(struct atoll *a, const char *dir, atoll_plan_fn fn, void *user, struct error *err);
int plan_show(struct atoll_plan *p, atoll_plan_fn fn, void *user, struct error *err);
/* The commits that a rollback would undo, in any order. FN must not use the registry. */
int plan_undoable(struct atoll_plan *p, registry_batch_fn fn, void *ctx, struct error *err);
int plan_sandboxes(struct atoll_plan *p, atoll_sandbox_fn fn, void *user, struct error *err);
int plan_sandbox_state(struct atoll_plan *p, const char *sandbox,
                       enum atoll_sandbox_state *ret_state, struct error *err);
int plan_paths(struct atoll_plan *p, atoll_path_fn fn, void *user, struct error *err);
int plan_history(struct atoll_plan *p, atoll_event_fn fn, void *user, struct error *err);
/* log.c */
int plan_log(struct atoll *a, const char *ref, size_t limit, atoll_log_fn fn, void *user,
             struct error *err);
int plan_log_output(struct atoll *a, int64_t id, atoll_output_fn fn, void *user, struct error *err);
int64_t plan_diff(struct atoll_plan *p, atoll_change_fn fn, void *user, struct error *err);
/* It differs from its resources: the diff up to the first change. True where that cannot be found out. */
bool plan_has_changes(struct atoll_plan *p);

int plan_count(struct atoll *a, struct error *err);
int plan_count_paths(struct atoll *a, struct error *err);

/* All plans, as they are now; the caller frees the array. */
int plan_rows(struct atoll *a, struct plan_row **ret, size_t *ret_n, struct error *err);
/* Only those that a dead process may have left in the middle. */
int plan_rows_doubtful(struct atoll *a, struct plan_row **ret, size_t *ret_n, struct error *err);

/* ---- plan-owner.c: plans that end with their handle ---- */

/* Makes this handle the owner of a plan about to be recorded. */
int owner_take(struct atoll *a, const char *plan_id, const char *name, struct error *err);
/* Stops being it, without cleaning. */
void owner_drop(struct atoll *a, const char *plan_id);
/* Is an owned plan's owner alive? A held lock says so, never a pid or an age. */
bool owner_alive(struct atoll *a, const char *plan_id);
/* For handles: known from open to close, so that exit cleans what they own. */
void owner_handle_opened(struct atoll *a);
void owner_handle_closed(struct atoll *a);

/* ---- cleanup.c ---- */

int cleanup_scan(struct atoll *a, atoll_path_fn fn, void *user, struct error *err);
int cleanup_purge(struct atoll *a, unsigned flags, struct atoll_result *res, struct error *err);
/* An owned plan whose owner is gone or going: stopped when it has no work, else kept as
 * abandoned. 1: it is gone. */
int cleanup_retire(struct atoll *a, const struct plan_row *row, unsigned flags,
                   struct atoll_result *res, struct error *err);
/* Drops undo data whose time has passed, and with the last of it a plan that has nothing else to keep; of plans
 * whose lock is free. The plan with the id EXCEPT, which the caller works on, stays; NULL: none. Failures
 * wait for the next time. */
void cleanup_retention(struct atoll *a, const char *except);
/* What is written down about entries that were moved away and back (strategy/moves.h), and older than every
 * plan, goes. */
void cleanup_moves(struct atoll *a);

/* ---- redact.c ---- */

/* ARGV as one line for records, without control characters and without what looks like a secret.
 * The caller frees. */
char *redact_command(const char *const *argv);

#endif

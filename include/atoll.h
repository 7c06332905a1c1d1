/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll.h - transactional sandboxes over several resources.
 *
 * A *plan* gives private writable views ("sandboxes") of several resources. Committing the plan
 * changes every resource or none; killing the process or the machine at any instant ends in one
 * of the two. This header is the whole public interface: no other header is needed.
 *
 * Calling sequence:
 *
 *   - atoll_open() a store; one handle may be used by any number of threads.
 *   - atoll_plan_start_with() a plan and its resources, all or none of them; or atoll_plan_start()
 *     one and atoll_plan_add() each; or atoll_plan_find() an existing one.
 *   - atoll_plan_exec() commands, or write below atoll_sandbox_path() yourself.
 *   - atoll_plan_diff(), then decide: atoll_plan_commit() or atoll_plan_rollback().
 *   - atoll_plan_stop() removes what the plan keeps; atoll_plan_free() only the handle.
 *
 * Failure: every call that can fail returns 0 (or a positive number where said) on success and a
 * negative code on failure: -1..-4095 is a raw errno, below that one of enum atoll_code negated.
 * The last parameter, a struct atoll_result (may be NULL), is filled on success and on failure.
 *
 * Locking: the lock order is plan -> resources (sorted) -> sandbox -> store. Operations of one
 * plan run one after another, between threads and between processes, first come first served.
 * A strategy that calls back into its own plan gets ATOLL_E_WOULD_DEADLOCK.
 *
 * The library never prints, never installs signal handlers, opens every descriptor close-on-exec,
 * and survives fork(): a child must open its own handle, and never cleans its parent's plans.
 *
 * Over time: what is compiled against libatoll.so.0 runs with every later libatoll.so.0. Set structs
 * that you fill to zero first; new members come at the end, and zero means as before. Do not count
 * on the size of structs that you are shown, nor on the value of a last enumerator (..._END_).
 */
#ifndef ATOLL_H
#define ATOLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ATOLL_API __attribute__((__visibility__("default")))
#else
#define ATOLL_API
#endif

/* ---- codes ------------------------------------------------------------------------------- */

/* Codes are used negated. The first is above the kernel's largest errno (4095). */
enum atoll_code {
	ATOLL_OK = 0,
	ATOLL_E_INVALID = 4096,   /* invalid argument */
	ATOLL_E_NOT_FOUND,        /* no such plan, sandbox or resource */
	ATOLL_E_EXISTS,           /* the name is taken */
	ATOLL_E_AMBIGUOUS,        /* several match; the message names them */
	ATOLL_E_STATE,            /* not allowed in this state */
	ATOLL_E_BUSY,             /* somebody else holds it and no wait was asked for */
	ATOLL_E_TIMEOUT,          /* a wait ran out; the message names the holder */
	ATOLL_E_WOULD_DEADLOCK,   /* a strategy called back into its own plan */
	ATOLL_E_CONFLICT,         /* the resource changed meanwhile; nothing was changed */
	ATOLL_E_POLICY,           /* refused by policy; nothing was changed */
	ATOLL_E_UNSUPPORTED,      /* this host or filesystem cannot do it */
	ATOLL_E_CANNOT_PREPARE,   /* a participant cannot promise to commit */
	ATOLL_E_NOT_UNDOABLE,     /* the commit is final */
	ATOLL_E_RECOVERY_MISSING, /* the data needed to undo is gone */
	ATOLL_E_NEEDS_RECOVERY,   /* an interrupted operation could not be finished yet */
	ATOLL_E_DENIED,           /* belongs to somebody else */
	ATOLL_E_LOCK_UNSUPPORTED, /* locks do not work there (network filesystem) */
	ATOLL_E_TOO_BIG,          /* over a limit */
	ATOLL_E_DAMAGED,          /* a record on disk is not what was written */
	ATOLL_E_NEWER,            /* the store was written by a newer version */
	ATOLL_E_STALE,            /* not the digest that was asked for; nothing was changed */
	ATOLL_E_UNREACHABLE,      /* no daemon answers there, or it went away */
	ATOLL_E_NO_FENCE,         /* no namespaces on this host; no command was run */
	ATOLL_E_END_
};

/* Name of a code, negative or positive: "conflict"; for an errno its name, "ENOSPC". */
ATOLL_API const char *atoll_code_name(int code);
/* Exit status of the command-line tool for a code: 0..7. */
ATOLL_API int atoll_code_exit(int code);
ATOLL_API const char *atoll_version(void);

/* ---- states ------------------------------------------------------------------------------ */

enum atoll_plan_state {
	ATOLL_PLAN_OPEN = 0,
	ATOLL_PLAN_PREPARING,
	ATOLL_PLAN_DECIDED,
	ATOLL_PLAN_REVOKED,
	ATOLL_PLAN_COMMITTED,
	ATOLL_PLAN_UNDOING,
	ATOLL_PLAN_ROLLED_BACK,
	ATOLL_PLAN_CLOSED,
	ATOLL_PLAN_STATE_END_
};

enum atoll_sandbox_state {
	ATOLL_SANDBOX_PENDING = 0,
	ATOLL_SANDBOX_CREATED,
	ATOLL_SANDBOX_ACTIVE,
	ATOLL_SANDBOX_PREPARED,
	ATOLL_SANDBOX_COMMITTED,
	ATOLL_SANDBOX_ROLLED_BACK,
	ATOLL_SANDBOX_ERRORED,
	ATOLL_SANDBOX_CLEANED_UP,
	ATOLL_SANDBOX_STATE_END_
};

ATOLL_API const char *atoll_plan_state_name(enum atoll_plan_state s);
ATOLL_API const char *atoll_sandbox_state_name(enum atoll_sandbox_state s);

/* ---- results ----------------------------------------------------------------------------- */

/* What happened to one participant. */
enum atoll_outcome {
	ATOLL_OUTCOME_NOT_ATTEMPTED = 0,
	ATOLL_OUTCOME_COMMITTED,
	ATOLL_OUTCOME_ROLLED_BACK,
	ATOLL_OUTCOME_UNCHANGED,
	ATOLL_OUTCOME_NOT_UNDOABLE,
	ATOLL_OUTCOME_ROLLBACK_FAILED,
	ATOLL_OUTCOME_SKIPPED, /* committed already by an earlier batch */
	ATOLL_OUTCOME_REMOVED,
	ATOLL_OUTCOME_FAILED, /* the participant whose failure ended the batch */
	ATOLL_OUTCOME_END_
};
ATOLL_API const char *atoll_outcome_name(enum atoll_outcome o);

enum atoll_atomicity { ATOLL_ATOMICITY_FULL = 0, ATOLL_ATOMICITY_NONE };

/* "Resource restored" and "workspace reset" are separate facts. */
enum atoll_fact { ATOLL_FACT_NOT_TRIED = 0, ATOLL_FACT_YES, ATOLL_FACT_NO };

struct atoll_result;
ATOLL_API struct atoll_result *atoll_result_new(void);
ATOLL_API void atoll_result_free(struct atoll_result *r);
ATOLL_API int atoll_result_code(const struct atoll_result *r);            /* 0 or negative */
ATOLL_API const char *atoll_result_message(const struct atoll_result *r); /* "" on success */
ATOLL_API const char *atoll_result_hint(const struct atoll_result *r); /* what to do next, or "" */
ATOLL_API enum atoll_atomicity atoll_result_atomicity(const struct atoll_result *r);
/* The cause: the operation that failed, on which path, with which errno (0: none) and any text
 * (SQLSTATE, git's stderr). "" where there is none. */
ATOLL_API const char *atoll_result_cause_op(const struct atoll_result *r);
ATOLL_API const char *atoll_result_cause_path(const struct atoll_result *r);
ATOLL_API int atoll_result_cause_errno(const struct atoll_result *r);
ATOLL_API const char *atoll_result_cause_detail(const struct atoll_result *r);

/* One row per participant, in the order they were committed (undo: the reverse). */
struct atoll_participant_result {
	const char *sandbox;  /* id */
	const char *root;     /* the resource */
	const char *strategy; /* its strategy's name */
	enum atoll_outcome outcome;
	enum atoll_sandbox_state state;
	enum atoll_fact resource_restored;
	enum atoll_fact workspace_reset;
	uint64_t changes; /* entries changed */
	int code;         /* 0, or why not */
	const char *message;
	const char *cause_op;
	const char *cause_path;
	int cause_errno;
	const char *recovery_path; /* where material for a manual repair lies, or "" */
	bool final;                /* what is committed of it cannot be undone */
};
ATOLL_API size_t atoll_result_participants(const struct atoll_result *r);
ATOLL_API const struct atoll_participant_result *
atoll_result_participant(const struct atoll_result *r, size_t i);

/* Notes: paths the caller should hear of (conflicts, policy, stripped bits, late writers). */
enum atoll_note_kind {
	ATOLL_NOTE_CONFLICT = 0,
	ATOLL_NOTE_SPECIAL,       /* device, socket or FIFO made in the workspace */
	ATOLL_NOTE_SETUID,        /* set-id bits or capabilities stripped */
	ATOLL_NOTE_ESCAPING_LINK, /* new link that leaves the tree */
	ATOLL_NOTE_LATE_WRITE,    /* an original still written to after it was replaced */
	ATOLL_NOTE_WARNING,       /* text only, e.g. weakened atomicity */
	ATOLL_NOTE_UNREADABLE,    /* could not be read at create; left out of the view */
	ATOLL_NOTE_INFO,          /* text only, and nothing to worry about */
	ATOLL_NOTE_KEPT,          /* a version that is nowhere else was kept; the text says where */
	ATOLL_NOTE_GIT_PROGRAM,   /* hook or setting by which git would run a program */
	ATOLL_NOTE_OPEN_DATABASE, /* an SQLite database to be replaced, which a process has open */
	ATOLL_NOTE_END_
};
ATOLL_API const char *atoll_note_kind_name(enum atoll_note_kind k);
struct atoll_note {
	enum atoll_note_kind kind;
	const char *sandbox; /* id or "" */
	const char *path;    /* relative to the resource's root, or "" */
	const char *text;
};
ATOLL_API size_t atoll_result_notes(const struct atoll_result *r);
ATOLL_API const struct atoll_note *atoll_result_note(const struct atoll_result *r, size_t i);

/* ---- store ------------------------------------------------------------------------------- */

struct atoll;
struct atoll_plan;

/* HOME NULL: $ATOLL_HOME, else $XDG_STATE_HOME/atoll, else ~/.local/state/atoll; root:
 * /var/lib/atoll. The store is made (mode 0700) when missing. */
ATOLL_API int atoll_open(const char *home, struct atoll **ret_atoll, struct atoll_result *res);
/* Cleans the plans this handle owns (their uncommitted work is kept as an abandoned plan). */
ATOLL_API void atoll_close(struct atoll *a);
ATOLL_API const char *atoll_home(const struct atoll *a);

/* Called while a lock is waited for: after 300 ms and whenever the holder changes. MESSAGE is
 * one line. Runs in the waiting thread. */
typedef void (*atoll_wait_fn)(void *user, const char *message);
ATOLL_API void atoll_set_wait_notify(struct atoll *a, atoll_wait_fn fn, void *user);
/* Default limit for lock waits of this handle, in ms; -1 (the default): for ever; 0: do not wait. */
ATOLL_API void atoll_set_wait(struct atoll *a, int64_t wait_ms);

/* Where a commit, rollback, reset, refresh or stop is. */
enum atoll_phase {
	ATOLL_PHASE_BEGUN = 0, /* it waits for locks, or finishes what a dead process left */
	ATOLL_PHASE_PREPARING, /* nothing is decided: it can be stopped, and nothing was changed */
	ATOLL_PHASE_DECIDED, /* it is carried out: by this call or, where that ends early, by recovery */
	ATOLL_PHASE_END_
};
/* How far a long copy, commit or undo is. */
struct atoll_progress {
	const char *what; /* "copying", "preparing", "committing", "undoing" */
	uint64_t files;
	uint64_t bytes; /* copied; 0 where none are */
	uint64_t total; /* of files; 0: not known */
	bool done;      /* the operation is over, well or not; nothing else counts then */
	enum atoll_phase phase;
};
/* Called at most every 50 ms by whichever thread of the library does the work, never by two of one
 * operation at once; with DONE by the thread that called the operation, if it was called at all. */
typedef void (*atoll_progress_fn)(void *user, const struct atoll_progress *progress);
ATOLL_API void atoll_set_progress(struct atoll *a, atoll_progress_fn fn, void *user);
/*
 * May an operation go on? Called as an atoll_progress_fn is, but also when a phase other than BEGUN begins,
 * and between two steps however many there are.
 * The library handles no signals: a program's handler notes them, and FN answers for it.
 *
 * Not 0 in PREPARING, and when DECIDED is about to begin: the call ends with -ECANCELED, and nothing was
 * changed. Not 0 later in DECIDED: the call is left where it is, as by a crash, with -ATOLL_E_NEEDS_RECOVERY:
 * of a commit or rollback the next call on the plan, or atoll_recover(), finishes it; of a refresh or stop
 * the same call does. Nothing is stopped in the middle of a step, such as a sync; a reset is one step.
 */
typedef int (*atoll_interrupt_fn)(void *user, const struct atoll_progress *progress);
ATOLL_API void atoll_set_interrupt(struct atoll *a, atoll_interrupt_fn fn, void *user);

/* How long commits of this handle can be undone, in ms; 24 hours at first. Negative: until the plan
 * is stopped. */
ATOLL_API void atoll_set_retention(struct atoll *a, int64_t retain_ms);

/* Finish or withdraw what dead processes left, for every plan whose lock is free (or, with
 * PLAN_REF, wait for that one). Returns the number of plans that still need recovery. ACCEPT:
 * take a workspace that a machine crash may have damaged as it is. Without RES, which is how one
 * calls it in passing, what failed a moment ago is left for later. */
ATOLL_API int atoll_recover(struct atoll *a, const char *plan_ref, bool accept,
                            struct atoll_result *res);

/* ---- plans ------------------------------------------------------------------------------- */

#define ATOLL_START_OWNED   0x1u /* ends with this handle; default: lives until stopped */
#define ATOLL_START_OR_OPEN 0x2u /* an existing plan of that name is opened instead */
#define ATOLL_START_AS_IS   0x4u /* what is opened gets no resources: they are for a new plan */

/* NAME NULL: made up. A name has 1 to 64 of [A-Za-z0-9._-], not starting with '.' or '-'. */
ATOLL_API int atoll_plan_start(struct atoll *a, const char *name, unsigned flags,
                               struct atoll_plan **ret_plan, struct atoll_result *res);
/* REF: a name, an id, a unique prefix of either, or "-" for the only plan not yet closed. */
ATOLL_API int atoll_plan_find(struct atoll *a, const char *ref, struct atoll_plan **ret_plan,
                              struct atoll_result *res);
/* An owned plan lives on when its handle closes: nobody owns it any more. */
ATOLL_API int atoll_plan_keep(struct atoll_plan *p, struct atoll_result *res);
/*
 * Takes the plan's lock and keeps it, so that several operations are one for everybody else. Those made
 * through P, by any thread of the process, use the lock that is held, one at a time; through any other
 * handle they wait, also in this process. WHAT (may be NULL) is told to those who wait. The call itself
 * waits as the handle's limit says, first come first served, and not for ever when CANCEL_FD (-1: none)
 * becomes readable or is hung up: -ECANCELED. -ATOLL_E_WOULD_DEADLOCK: it is held through P already.
 *
 * Nothing but the lock is held: resources are free between the operations. The lock is free when it is
 * let go of, when P is freed, and when the process ends; a command that still runs then is ended first.
 */
ATOLL_API int atoll_plan_hold(struct atoll_plan *p, const char *what, int cancel_fd,
                              struct atoll_result *res);
/* Waits for the operation under way through P, if there is one. -ATOLL_E_STATE: it is not held through P;
 * -ATOLL_E_WOULD_DEADLOCK: called from within an operation. */
ATOLL_API int atoll_plan_let_go(struct atoll_plan *p, struct atoll_result *res);
/* Of a plan that is held through P it lets go. */
ATOLL_API void atoll_plan_free(struct atoll_plan *p);
ATOLL_API const char *atoll_plan_id(const struct atoll_plan *p);
ATOLL_API const char *atoll_plan_name(const struct atoll_plan *p);

struct atoll_resource {
	const char *root;     /* path of the resource */
	const char *strategy; /* NULL: chosen for what ROOT is */
	const char *parent;   /* root or id of another sandbox of the plan: it commits after us */
	bool work_in_store;   /* keep the workspace in the store; commit copies it over */
};
/* Adds a sandbox of a resource. One that lies in another of the plan is its child without being
 * told; a note says so. Nothing is left behind when it fails. */
ATOLL_API int atoll_plan_add(struct atoll_plan *p, const struct atoll_resource *resource,
                             struct atoll_result *res);

/*
 * A plan with its resources, as one unit: all sandboxes are made, or there is no plan. Until it is
 * whole other processes wait for it; if its maker dies before, the next call on the store that
 * meets it removes what was made. It is on disk when the call returns.
 *
 * A resource that lies in another one of the plan is its child without being told (a note says so).
 * With ATOLL_START_OR_OPEN the resources that an existing plan lacks are added to it, together.
 * Returns 0 when the plan was made, 1 when it was opened.
 */
struct atoll_start {
	const char *name; /* NULL: made up */
	unsigned flags;   /* ATOLL_START_* */
	const struct atoll_resource *resources;
	size_t n_resources;
	const char *run_dir; /* canonical path; NULL: see atoll_plan_find_run() */
};
ATOLL_API int atoll_plan_start_with(struct atoll *a, const struct atoll_start *start,
                                    struct atoll_plan **ret_plan, struct atoll_result *res);
/* The latest plan, not yet stopped, that was started with this RUN_DIR. */
ATOLL_API int atoll_plan_find_run(struct atoll *a, const char *run_dir,
                                  struct atoll_plan **ret_plan, struct atoll_result *res);

struct atoll_plan_info {
	const char *id;
	const char *name;
	enum atoll_plan_state state;
	bool owned;         /* bound to a living owner */
	bool abandoned;     /* its owner died with work uncommitted */
	bool in_doubt;      /* needs recovery */
	int64_t created_ms; /* UTC, ms since the epoch */
	size_t sandboxes;
	size_t batches; /* commits that a rollback would undo: all of the plan, or none */
	bool starting;  /* being made: no other command can use it yet */
	/* What it takes on disk, as last measured: when a resource was added, after each commit,
	 * rollback and reset, and, but for full copies, after each command. */
	uint64_t bytes;
	const char *const *roots;      /* of its resources, in their order; ends with NULL */
	const char *const *strategies; /* of each */
	bool from_run;                 /* made by `atoll run`: see atoll_start.run_dir */
	int64_t used_ms;               /* when something was last done with it */
	const char *command; /* the last that ran in it, without what looks like a secret; or "" */
	/* Commands or tools were let in since the last commit, rollback or reset: there may be changes that
	 * are not committed. */
	bool has_work;
	int64_t changes; /* those, in entries, as the last command left them; -1: not counted */
	int64_t undo_until_ms; /* of the newest commit that a rollback would undo; 0: there is none, INT64_MAX:
	                        * as long as the plan is there */
	const char *holder;  /* who has its lock now: "atoll exec fix-42 -- npm test"; or "" */
	const char *running; /* the command that runs in it now: "npm test"; or "" */
};
struct atoll_sandbox_info {
	const char *id;
	const char *root;
	const char *strategy;
	enum atoll_sandbox_state state;
	const char *area;   /* where its work lies */
	const char *parent; /* id or "" */
	const char *error;  /* why it is ERRORED, or "" */
	uint64_t bytes;     /* on disk, as in atoll_plan_info */
};
/* Each record is valid during the callback only; a negative answer ends the listing. */
typedef int (*atoll_plan_fn)(void *user, const struct atoll_plan_info *info);
typedef int (*atoll_sandbox_fn)(void *user, const struct atoll_sandbox_info *info);
ATOLL_API int atoll_plan_list(struct atoll *a, atoll_plan_fn fn, void *user,
                              struct atoll_result *res);
ATOLL_API int atoll_plan_show(struct atoll_plan *p, atoll_plan_fn fn, void *user,
                              struct atoll_result *res);
ATOLL_API int atoll_plan_sandboxes(struct atoll_plan *p, atoll_sandbox_fn fn, void *user,
                                   struct atoll_result *res);
/* Paths the store records for a plan; for scan, purge and tests. */
typedef int (*atoll_path_fn)(void *user, const char *plan_id, const char *path);
ATOLL_API int atoll_plan_paths(struct atoll_plan *p, atoll_path_fn fn, void *user,
                               struct atoll_result *res);

/* History of a plan, oldest first: commits, failures, commands. Times are UTC. */
struct atoll_event {
	int64_t at_ms;
	const char
		*what; /* "start" "exec" "commit" "dry-run" "undo" "redo" "rollback" "reset" ... */
	int code;      /* 0, or the negative code it ended with */
	const char *message; /* or "" */
};
typedef int (*atoll_event_fn)(void *user, const struct atoll_event *event);
ATOLL_API int atoll_plan_history(struct atoll_plan *p, atoll_event_fn fn, void *user,
                                 struct atoll_result *res);

/* What happened to plans, newest first: everything of the histories, and the commands that ran.
 * Command lines are without what looks like a secret. */
struct atoll_log_entry {
	int64_t at_ms;         /* UTC; of a command its end */
	const char *plan_id;   /* also of a plan that is gone */
	const char *plan_name; /* or "" when nobody knows it any more */
	const char *what;      /* as in struct atoll_event */
	int code;              /* 0, or the negative code it ended with */
	const char *message;   /* or ""; of a command that ran its command line */
	bool ran;              /* "exec" of a command that could be started; only then: */
	int64_t started_ms;
	int exit_code;
	int64_t user_us, system_us; /* of processor time */
	int64_t max_rss_kb;
	int64_t changes; /* entries that differed from the resources after it; -1: not counted */
	int64_t id;      /* names it for atoll_log_output() */
	int term_signal; /* that ended it, or 0 */
	bool timed_out;
	unsigned memory_kills; /* processes killed for want of memory */
	const char *job;       /* its name in the background, or "" */
	int64_t output_bytes;  /* of what it printed so many are kept; -1: nothing is (any more) */
	uint64_t output_left_out; /* so many before them are not */
};
typedef int (*atoll_log_fn)(void *user, const struct atoll_log_entry *entry);
/* PLAN_REF NULL: of all plans. LIMIT 0: everything there is. */
ATOLL_API int atoll_log(struct atoll *a, const char *plan_ref, size_t limit, atoll_log_fn fn,
                        void *user, struct atoll_result *res);
/* What a command printed, as far as it is kept, in pieces; AT is the place of the first byte of a
 * piece in all that was printed. A negative answer ends it. -ATOLL_E_NOT_FOUND: nothing is. */
typedef int (*atoll_output_fn)(void *user, uint64_t at, const void *data, size_t len);
ATOLL_API int atoll_log_output(struct atoll *a, int64_t id, atoll_output_fn fn, void *user,
                               struct atoll_result *res);
/* How much of it this handle keeps when it writes: lines no older than MAX_AGE_MS, and the newest
 * MAX_ENTRIES (each negative: without limit). 90 days and 20,000 at first. */
ATOLL_API void atoll_set_log_limits(struct atoll *a, int64_t max_age_ms, int64_t max_entries);

/* ---- following a store ------------------------------------------------------------------- */

/*
 * Every change of a plan's or a sandbox's state, whoever made it, in order and once: recorded in the
 * transaction that makes it. And what happened to plans, as the log has it, when it is over; a process
 * that is killed between the two leaves the first without the second. Plans still being made have none.
 *
 *   state       the plan is in another state; ATOLL_PLAN_CLOSED: it is gone
 *   sandbox     a sandbox was added, is in another state, or is gone; MESSAGE: why it is in error
 *   exec-begin  a command begins; MESSAGE is its line, redacted
 *   job-begin, job  a job begins, has ended; MESSAGE is its name
 *   ask, ask-end  somebody asks for a commit; it was decided, withdrawn or is out of date
 *   sync-begin, sync-end  a remote client's session holds the plan; MESSAGE is what it calls itself
 *   gap         what happened up to SEQ is not kept any more: look at the plans anew. Of no plan
 *   others      "start" "add" "exec" "commit" "rollback" ...: it is over, CODE and MESSAGE say how
 */
struct atoll_news {
	int64_t seq; /* grows; never used twice; some may be left out */
	int64_t at_ms;
	const char *plan_id;
	const char *plan_name; /* or "" */
	const char *what;
	int code;
	const char *message;
	enum atoll_plan_state state; /* of the plan, after it */
	const char *sandbox;         /* id, or "" */
	enum atoll_sandbox_state sandbox_state;
};
typedef int (*atoll_news_fn)(void *user, const struct atoll_news *news);
/* Those after number AFTER, the oldest first, at most LIMIT (0: all there are). The number to go on
 * from: of the last one told, or AFTER. A negative answer of FN ends it and is returned. AFTER negative:
 * nothing is told, and the number of the newest is returned. They are kept as long as the log is. */
ATOLL_API int64_t atoll_events(struct atoll *a, int64_t after, size_t limit, atoll_news_fn fn,
                               void *user, struct atoll_result *res);
/* Waits until there is one after AFTER: 1; 0: not within TIMEOUT_MS (negative: for ever). One thread of
 * a handle at a time. */
ATOLL_API int atoll_events_wait(struct atoll *a, int64_t after, int64_t timeout_ms,
                                struct atoll_result *res);
/* For event loops: a descriptor to poll for reading. When it is readable, atoll_events_wait() with no
 * time says whether there is something, and makes it unreadable. It belongs to the handle. */
ATOLL_API int atoll_events_fd(struct atoll *a, struct atoll_result *res);

/* SANDBOX is an id or a root; NULL: the only one. Makes it ACTIVE; the path may be written to
 * until the next call on the plan. The string is the caller's to free(). */
ATOLL_API int atoll_sandbox_path(struct atoll_plan *p, const char *sandbox, char **ret_path,
                                 struct atoll_result *res);
ATOLL_API int atoll_sandbox_state(struct atoll_plan *p, const char *sandbox,
                                  enum atoll_sandbox_state *ret_state, struct atoll_result *res);

/* What a command sees of the user's home directory. */
enum atoll_home {
	ATOLL_HOME_SCRATCH = 0, /* all; what it changes is kept with the plan, never committed */
	ATOLL_HOME_REAL,        /* as it is: what is written there is written */
	ATOLL_HOME_NONE,        /* nothing: an empty directory, gone with the command */
	ATOLL_HOME_END_
};
/* What else a command sees, and whether that will do. Paths are those of the caller; a longer one counts
 * more than a shorter one, RW more than RO, that more than HIDE. Without any, what is no resource
 * is read-only, keys, passwords and tokens below the home are hidden, and so is the store. */
struct atoll_fence {
	enum atoll_home home;
	const char *const *rw;   /* NULL-terminated, or NULL: real, and may be written */
	const char *const *ro;   /* the same: real, only to be read; also what would be hidden */
	const char *const *hide; /* the same: not to be seen */
	/* The same: names of lists of such paths, see atoll-exec(1). */
	const char *const *profiles;
	bool strict; /* -ATOLL_E_UNSUPPORTED where this host lacks a part of the isolation */
};
struct atoll_exec {
	const char *const *argv; /* NULL-terminated */
	const char *cwd;    /* NULL: the caller's; inside a resource it is mapped to its view */
	int64_t timeout_ms; /* <= 0: none */
	const struct atoll_fence *fence; /* NULL: as zeros */
};
struct atoll_exec_status {
	int exit_code; /* as a shell gives it: 0-255, 128+N when killed, 124 timed out */
	bool timed_out;
	int term_signal;
	bool isolated; /* false: unfenced, it saw the system as it is, and could change it */
};
/* No command runs a filesystem full: it is ended (-ENOSPC, its work is kept), and none is started,
 * when less than BYTES are free where its work goes or where the store is. 0: not looked at.
 * Negative, as at first: 64 MiB, or a hundredth of a filesystem where that is less. */
ATOLL_API void atoll_set_min_free(struct atoll *a, int64_t bytes);

/* Runs a command in the plan, holding the plan's lock; the command's own failure is not ours:
 * the call returns 0 and *ret_status says. -ENOENT, -EACCES: it could not be started.
 * -ATOLL_E_NO_FENCE: this host has no namespaces to run it in; nothing was run. */
ATOLL_API int atoll_plan_exec(struct atoll_plan *p, const struct atoll_exec *exec,
                              struct atoll_exec_status *ret_status, struct atoll_result *res);

/*
 * More that may be wished for a command, by name, as the options of `atoll exec` are; new names come
 * with new versions, and one that is not known is -ATOLL_E_INVALID: nothing is left out silently.
 *
 *   env     "NAME=value" is set; "NAME" is handed on as the caller has it
 *   unset   the variable NAME is taken away
 *   net     "host"; "loopback": a network of its own, with nothing but the loopback; "none"
 *   memory  bytes at most, with k, m, g behind it; 0: no limit
 *   cpus    processors at most, with decimals; 0: no limit
 *   pids    processes at most; 0: no limit
 *   background
 *           it is a job of that name (below): what it prints is kept and goes nowhere else, it has no
 *           input, and no terminal; the call returns when it has ended
 *   at      absolute path: the first of the plan's directories is shown there and not at its own
 *           path, and a working directory in it is mapped. Directories that are missing are made for
 *           the command alone. Where that would cover what a command needs, or there are no
 *           namespaces, it stays where it is and a note of RES says so
 *   shared  "1": it joins the namespaces of the job or command that runs in the plan, does not wait
 *           for the plan's lock, and ends with what it joined; -ATOLL_E_STATE when nothing runs
 *   stdin, stdout, stderr
 *           numbers of descriptors that the command gets instead of the caller's own; they stay the
 *           caller's, who reads and closes the other ends: what is kept of its output, too, is
 *           handed on before the call returns
 *   control a descriptor, of a pipe or socket. Each byte read from it is the number of a signal for the
 *           command, or for the group in the foreground of its terminal; others than 1 to 64 are left
 *           out. Its end ends the command: SIGTERM, SIGKILL half a second later, and everything it
 *           started. While the call still waits for the plan, its end and SIGHUP, SIGINT, SIGQUIT,
 *           SIGTERM and SIGKILL end that (-ECANCELED, nothing was run). The command has a session of
 *           its own, so that the caller's terminal neither sees it nor is seen by it, and what the
 *           caller ignores it does not
 *   terminal  "1": it has a session of its own, and stdin, which must be given and a terminal, is that
 *           session's: the caller makes a pseudo-terminal, gives this end, and keeps the other one,
 *           by which it also sets the size of the window. "own": one is made for it, in place of the
 *           caller's, which the command never has then. The caller's standard input, and its standard output
 *           or error, must be the terminal of its session, and neither descriptors nor a control be given;
 *           else the command has what the caller has. The caller's terminal is raw until the call returns;
 *           what the caller ignores the command does not
 *   transcript  what it prints is kept with the plan: at most so many bytes (k, m, g behind it; 64k at
 *           least), the last half of that at least. Where the caller's standard input and output are the
 *           terminal of its session, and neither descriptors nor a control are given, it has a terminal as
 *           with "own", and what it prints there is kept. Else it prints to pipes. A stdout that is given may
 *           be no terminal
 *   private  more directories of the home that the command may change in its private layer, with colons
 *           between them
 *   unfenced  "1": where this host has no namespaces the command runs all the same, in the private copies,
 *           and can change whatever the caller can
 *
 * A later one wins over an earlier one of that name; env and unset add up. What holds the command to
 * its limits, what does not, and whether it was killed for want of memory, is in notes of RES.
 */
struct atoll_exec_option {
	const char *name, *value;
};
ATOLL_API int atoll_plan_exec_with(struct atoll_plan *p, const struct atoll_exec *exec,
                                   const struct atoll_exec_option *options, size_t n_options,
                                   struct atoll_exec_status *ret_status, struct atoll_result *res);

/* ---- jobs -------------------------------------------------------------------------------- */

/* Commands in the background, by name: of each name the last run. A job holds the plan's lock while
 * it runs; atoll_plan_stop() ends it. */
enum atoll_job_state {
	ATOLL_JOB_RUNNING = 0,
	ATOLL_JOB_ENDED,
	ATOLL_JOB_LOST, /* it was killed with what followed it, or the machine went down */
	ATOLL_JOB_STATE_END_
};
ATOLL_API const char *atoll_job_state_name(enum atoll_job_state s);
struct atoll_job {
	const char *plan_id, *plan_name;
	const char *name;
	const char *command; /* redacted */
	enum atoll_job_state state;
	int64_t started_ms;
	int64_t ended_ms; /* these three only of one that ENDED */
	int exit_code;
	int term_signal;
	pid_t pid;                              /* that follows it while it runs, else 0 */
	uint64_t output_bytes, output_left_out; /* as in struct atoll_log_entry */
};
typedef int (*atoll_job_fn)(void *user, const struct atoll_job *job);
/* PLAN_REF NULL: of all plans. Takes no lock. */
ATOLL_API int atoll_job_list(struct atoll *a, const char *plan_ref, atoll_job_fn fn, void *user,
                             struct atoll_result *res);
/* What it printed, from byte OFFSET on, as atoll_log_output() has it. Where it ended, or a code. */
ATOLL_API int64_t atoll_job_output(struct atoll_plan *p, const char *name, uint64_t offset,
                                   atoll_output_fn fn, void *user, struct atoll_result *res);
/* Ends it (SIGTERM, then SIGKILL) and waits until the plan is free: 1; 0 when it did not run. */
ATOLL_API int atoll_job_stop(struct atoll_plan *p, const char *name, struct atoll_result *res);

/* ---- diff -------------------------------------------------------------------------------- */

enum atoll_change_kind {
	ATOLL_CHANGE_ADDED = 0,
	ATOLL_CHANGE_CHANGED,
	ATOLL_CHANGE_DELETED,
	ATOLL_CHANGE_END_
};
#define ATOLL_CHANGE_CONTENT       0x01u /* bytes or link target differ */
#define ATOLL_CHANGE_MODE          0x02u
#define ATOLL_CHANGE_OWNER         0x04u
#define ATOLL_CHANGE_XATTR         0x08u
#define ATOLL_CHANGE_MTIME         0x10u
#define ATOLL_CHANGE_TYPE          0x20u
#define ATOLL_CHANGE_ESCAPING_LINK 0x100u
#define ATOLL_CHANGE_SETUID        0x200u /* set-id bits or capabilities, stripped at commit */
#define ATOLL_CHANGE_SPECIAL       0x400u
#define ATOLL_CHANGE_CONFLICT      0x800u  /* somebody else changed it too */
#define ATOLL_CHANGE_HARD_LINK     0x1000u /* the original has other names: they keep what it was */
#define ATOLL_CHANGE_GIT_PROGRAM   0x2000u /* a hook or setting: git, used there, runs a program */
#define ATOLL_CHANGE_DATABASE      0x4000u /* an SQLite database that is there, or a part of one */

struct atoll_participant;

struct atoll_change {
	const char *sandbox; /* id */
	const char *root;
	const char *path; /* relative to the root, any bytes but NUL; "" is the root itself */
	enum atoll_change_kind kind;
	unsigned what;               /* ATOLL_CHANGE_* bits */
	uint32_t old_mode, new_mode; /* with the type bits; 0 where absent */
	uint64_t old_size, new_size;
	const char *text; /* where a link points now, or "" */
	uint32_t old_uid, new_uid, old_gid, new_gid;
	uint32_t old_links, new_links; /* how many names the entry has */
	const char *conflict; /* what somebody else did ("changed", "deleted", ...), or "" */
	const char *detail;   /* of what is no file, in words: "3 rows added, 1 deleted"; or "" */
	struct atoll_participant *from; /* for the functions below; set by the library */
};
typedef int (*atoll_change_fn)(void *user, const struct atoll_change *change);
/* Every changed entry, sandboxes in creation order, paths sorted by bytes: of a directory that is
 * new, deleted or replaced, each entry below it. Takes no lock, works while a command runs. Each
 * change is told as it is found; a negative answer ends. Returns the number of changes; -EAGAIN
 * when something is written faster than it can be read. */
ATOLL_API int64_t atoll_plan_diff(struct atoll_plan *p, atoll_change_fn fn, void *user,
                                  struct atoll_result *res);

enum atoll_side { ATOLL_SIDE_OLD = 0, ATOLL_SIDE_NEW };
/* What an entry holds before the change (in the resource, as it is now) or after it. Only from
 * within the callback that was given CHANGE, in its thread. A regular file is opened for reading; a
 * symbolic link as O_PATH, for readlinkat(fd, "", ...). Nothing is followed and nothing outside the
 * tree is reached. The descriptor is the caller's. -ENOENT where that side has no entry (any more),
 * -EISDIR, -ENXIO for devices and the like, -ATOLL_E_UNSUPPORTED when the strategy cannot. */
ATOLL_API int atoll_change_open(const struct atoll_change *change, enum atoll_side side,
                                int *ret_fd);
/* The change as text, for what is no file: rows, refs. Each call of FN is one line without its end,
 * which begins as those of a unified diff: '+', '-', ' ' or '@'. Returns 1 when that is how the change
 * is to be shown, 0 when its two sides are to be compared. Same callers as atoll_change_open(). */
typedef int (*atoll_line_fn)(void *user, const char *line, size_t len);
ATOLL_API int atoll_change_lines(const struct atoll_change *change, atoll_line_fn fn, void *user);

#define ATOLL_DIGEST_LEN 65 /* 64 hex digits and NUL */
/* What atoll_plan_diff() shows, contents and all, as one SHA-256: equal as long as a commit would do the
 * same, whoever asks. Of each change: root, path, kind, WHAT but for ATOLL_CHANGE_CONFLICT, modes, owners,
 * sizes of files, TEXT, DETAIL; of what is no file the lines of atoll_change_lines(), of a file its bytes,
 * its time of change, its extended attributes, and the bytes it takes the place of, of a link its time of
 * change, of a directory its extended attributes. Not the times of directories. Takes no lock; reads what
 * changed, once. What cannot be read is a failure. -EAGAIN: it changes while it is read. */
ATOLL_API int atoll_plan_digest(struct atoll_plan *p, char ret_digest[ATOLL_DIGEST_LEN],
                                struct atoll_result *res);

/* ---- decide ------------------------------------------------------------------------------ */

#define ATOLL_ALLOW_SPECIAL       0x1u
#define ATOLL_ALLOW_SETUID        0x2u
#define ATOLL_ALLOW_PARTIAL       0x4u /* participants that cannot be undone beside others */
#define ATOLL_DENY_ESCAPING_LINKS 0x8u
#define ATOLL_NO_UNDO             0x10u  /* do not keep what undo needs */
#define ATOLL_DRY_RUN             0x20u  /* prepare, then withdraw */
#define ATOLL_FORCE               0x40u  /* stop: drop uncommitted work */
#define ATOLL_KEEP_THEIRS         0x80u  /* undo, rollback: leave entries changed since by others */
#define ATOLL_FF_ONLY             0x200u /* git: a branch somebody else moved, too, is a conflict */
#define ATOLL_KEEP_WORK           0x100u /* rollback: what was committed is uncommitted work again */
#define ATOLL_ALLOW_GIT_PROGRAMS  0x400u /* hooks and settings by which git runs programs */
#define ATOLL_ALLOW_OPEN_DATABASE 0x800u /* replace SQLite files that a process has open */

/* All sandboxes of the plan, or none. -ATOLL_E_CONFLICT, -ATOLL_E_POLICY and every other failure
 * leave every resource as it was and the work intact, unless the result says otherwise. */
ATOLL_API int atoll_plan_commit(struct atoll_plan *p, unsigned flags, struct atoll_result *res);
/*
 * The same with a choice. Lists end with NULL; a list that is NULL is empty. Paths are absolute and
 * without "." and "..": at or below a resource's root, or above one, which means all of it.
 *
 * With PATHS only what lies at or below them is committed; the rest stays in the workspaces and the
 * plan stays open. A new directory may be committed in part; one that was replaced or deleted as a
 * whole only as a whole (-ATOLL_E_POLICY names it). A path that names nothing of the plan is
 * -ATOLL_E_NOT_FOUND; where nothing changed, a note says so.
 *
 * EXCLUDES are patterns, as in git: one without a slash matches any component of a path, one with
 * a slash the path from the resource's root on, "**" any number of directories; a slash at the end
 * means directories only. What lies in a directory that matches is left out, too.
 */
struct atoll_commit {
	unsigned flags;              /* as for atoll_plan_commit() */
	const char *const *paths;    /* empty: everything */
	const char *const *excludes; /* left out */
	/* Conflicts at or below these paths, of which the nearest counts, are settled: for the plan's
	 * version (rollback puts back what it displaced), or for what is there now; the plan's is then
	 * kept as long as the commit can be undone, see the notes. In both: -ATOLL_E_INVALID. */
	const char *const *ours;
	const char *const *theirs;
	int64_t retain_ms; /* how long it can be undone; 0: as the handle says; < 0: until stop */
	/* As atoll_plan_digest() said it, of the whole plan also for a part: with another one
	 * -ATOLL_E_STALE, and nothing is changed. Made under the plan's lock, where no command writes;
	 * for those who have a path of atoll_sandbox_path() again right before the decision. Or NULL. */
	const char *digest;
};
ATOLL_API int atoll_plan_commit_with(struct atoll_plan *p, const struct atoll_commit *commit,
                                     struct atoll_result *res);
/* Drops the work; on a committed plan puts the originals back first. With ATOLL_KEEP_WORK it puts
 * them back and drops nothing: what was committed is work again, and the plan is open. */
ATOLL_API int atoll_plan_rollback(struct atoll_plan *p, unsigned flags, struct atoll_result *res);
/*
 * Takes the last commit of the plan back, alone; called again, the one before. Uncommitted changes, of this and
 * of other plans, stay as they are. FLAGS: ATOLL_ALLOW_PARTIAL, ATOLL_KEEP_THEIRS. -ATOLL_E_CONFLICT, with nothing
 * changed: what it committed was changed since, or another plan committed later on the same entries, which the
 * message names. -ATOLL_E_STATE: there is no commit to undo. What redo needs is kept as long as the commit could
 * have been undone.
 */
ATOLL_API int atoll_plan_undo(struct atoll_plan *p, unsigned flags, struct atoll_result *res);
/* Carries the last commit that was undone out again, with the same checks. -ATOLL_E_CONFLICT, with nothing
 * changed: what the undo put back was changed since. -ATOLL_E_UNSUPPORTED: a custom strategy took part. */
ATOLL_API int atoll_plan_redo(struct atoll_plan *p, struct atoll_result *res);
/*
 * Both with a choice. Conflicts at or below these absolute paths, of which the nearest counts, are settled. OURS:
 * the undo, or redo, is carried out there all the same. The version that is there goes to where what the batch
 * keeps lies, a note of ATOLL_NOTE_KEPT says where, and the opposite way brings it back; it is never dropped
 * unasked. THEIRS: what is there stays, and the rest is undone; of a new directory that holds it nothing is
 * undone. In both: -ATOLL_E_INVALID. Rows of databases, and refs of repositories, are not insisted on: they stay a conflict.
 */
struct atoll_undo {
	unsigned flags;            /* as for atoll_plan_undo(); of a redo 0 */
	const char *const *ours;   /* lists end with NULL; NULL: empty */
	const char *const *theirs; /* of a redo empty */
};
ATOLL_API int atoll_plan_undo_with(struct atoll_plan *p, const struct atoll_undo *undo,
                                   struct atoll_result *res);
ATOLL_API int atoll_plan_redo_with(struct atoll_plan *p, const struct atoll_undo *redo,
                                   struct atoll_result *res);
/* Takes over into the workspaces what somebody else changed meanwhile, where the plan changed nothing;
 * what both changed is named by notes and stays a conflict. No work is lost. */
ATOLL_API int atoll_plan_refresh(struct atoll_plan *p, struct atoll_result *res);
/* Drops the work, stays open. */
ATOLL_API int atoll_plan_reset(struct atoll_plan *p, struct atoll_result *res);
/* Removes the plan and all it keeps. Refused for unrestored data and, without ATOLL_FORCE, for
 * uncommitted work. Members that cannot be removed are listed and stay registered. */
ATOLL_API int atoll_plan_stop(struct atoll_plan *p, unsigned flags, struct atoll_result *res);

/* ---- keeping house ----------------------------------------------------------------------- */

/* What purge would take: paths of settled plans (decided, and nothing of them can be undone), of owned plans whose
 * owner is dead, and areas without a plan. */
ATOLL_API int atoll_scan(struct atoll *a, atoll_path_fn fn, void *user, struct atoll_result *res);
/* Takes them, recovering first. Plans with uncommitted work become abandoned and stay, unless
 * ATOLL_FORCE. Returns the number of plans removed. Also enforces retention. */
ATOLL_API int atoll_purge(struct atoll *a, unsigned flags, struct atoll_result *res);
/* One who holds a lock, or waits for it. */
struct atoll_lock_info {
	const char *kind;    /* "plan", "owner" (of an owned plan), "resource" or "store" */
	const char *plan_id; /* of the first two, else "" */
	const char *plan_name;
	const char *root; /* of the last two, else "" */
	unsigned ahead;   /* how many are before it; 0: it holds the lock */
	pid_t pid;        /* 0: it left no name */
	bool alive;       /* that process is there; else what it started holds the lock */
	int64_t since_ms; /* UTC; 0: not known */
	const char *command;
};
typedef int (*atoll_lock_fn)(void *user, const struct atoll_lock_info *info);
/* Every lock that is held: its holder, then those who wait, in order. Takes none. PLAN_REF NULL: of
 * all plans and resources, and of the store. */
ATOLL_API int atoll_lock_list(struct atoll *a, const char *plan_ref, atoll_lock_fn fn, void *user,
                              struct atoll_result *res);
struct atoll_lock_broken {
	pid_t pid;
	int term_signal;   /* that ended it; 0: it was gone, and what it had started was ended */
	char command[160]; /* what it was */
};
/* Ends the process that holds the plan's lock, if it is PID (0: whoever it is) and runs as this user,
 * and waits until the lock is free or somebody else's. No lock is taken away from a living holder.
 * 1: done; 0: nobody holds it. The next operation of the plan settles what it left. */
ATOLL_API int atoll_lock_break(struct atoll_plan *p, pid_t pid,
                               struct atoll_lock_broken *ret_broken, struct atoll_result *res);
ATOLL_API int atoll_count_plans(struct atoll *a, struct atoll_result *res);
ATOLL_API int atoll_count_paths(struct atoll *a, struct atoll_result *res);

/* ---- tokens of a service ----------------------------------------------------------------- */

/*
 * A cache of short-lived bearer tokens, for any program that talks to a service which hands them out
 * (POST ENDPOINT/v1/sandboxes/ID/auth answers {"token": "...", "expires_in": seconds, ...}). It has
 * nothing to do with a store. docs/design/tokens.md says how it works.
 *
 *   - atoll_tokens_open() a cache; any number of threads use it. Nothing is read or sent yet.
 *   - atoll_tokens_get() a token by the sandbox's id; or atoll_tokens_handle() once, then
 *     atoll_token_get(): the fastest, and like the other without a lock while the token is fresh.
 *   - In an event loop atoll_token_start(): a callback, or a descriptor to poll. It never blocks.
 *   - When the service says 401: atoll_token_invalidate() the version that was refused, get again.
 *
 * A token is asked for by a thread of the cache; callers only wait for it, each as long as it likes,
 * so whoever gives up harms nobody. One request is under way for each sandbox, in this process and,
 * with a directory, among all that share it. Who waited for a request that failed gets its failure;
 * then nobody asks before a pause is over, which the service may set (Retry-After), and a token that
 * is still valid is served meanwhile. In the last fifth of its life it is renewed in passing.
 *
 * fork: the cache works in the child, with the tokens it has; waits of the parent end there with
 * -ECANCELED, without a callback. Not after vfork() or a bare clone().
 */
struct atoll_tokens;
struct atoll_token_handle; /* one sandbox in the cache; as long as the cache lives */
struct atoll_token;        /* never changes */
struct atoll_token_wait;

/* For a transport of your own. It runs in a thread of the cache, several at a time but one for each
 * sandbox, and blocks at most TIMEOUT_MS. 0: there was an answer, which it put into REPLY; else a
 * negative code. It must keep KEY and the answer to itself. */
struct atoll_token_request {
	const char *sandbox;
	const char *url; /* ENDPOINT/v1/sandboxes/ID/auth */
	const char *key; /* goes behind "Authorization: Bearer "; "": none */
	int64_t timeout_ms;
};
struct atoll_token_reply;
typedef int (*atoll_token_send_fn)(void *user, const struct atoll_token_request *request,
                                   struct atoll_token_reply *reply);
ATOLL_API void atoll_token_reply_status(struct atoll_token_reply *reply, int http_status);
/* Appends to the body. -ATOLL_E_TOO_BIG over 64 KiB. */
ATOLL_API int atoll_token_reply_body(struct atoll_token_reply *reply, const void *data, size_t len);
/* The header's value: seconds, or a date. */
ATOLL_API void atoll_token_reply_retry_after(struct atoll_token_reply *reply, const char *value);

/* Something on disk was passed over: said once of each file, by a thread of the cache. */
typedef void (*atoll_token_notice_fn)(void *user, const char *path, const char *text);

struct atoll_tokens_config {
	const char *endpoint;     /* https://HOST[:PORT][/PATH]; http:// for this machine only */
	const char *principal;    /* whose tokens, any name: others' are never mixed; NULL: "" */
	const char *key;          /* the API key; NULL: none */
	const char *dir;          /* made 0700 on first use; NULL: nothing is kept on disk */
	const char *unix_socket;  /* instead of TCP; NULL: none */
	atoll_token_send_fn send; /* NULL: by libcurl, which is opened with the first request */
	atoll_token_notice_fn notice;
	void *user;         /* for both */
	int64_t request_ms; /* longest request; 0: 10 s */
};
ATOLL_API int atoll_tokens_open(const struct atoll_tokens_config *config,
                                struct atoll_tokens **ret_tokens, struct atoll_result *res);
/* Waits end with -ECANCELED. Waits itself for transports under way and until what was got is saved: call
 * it before the program ends. No other call may be made any more, but to free waits before; tokens that
 * were ref'ed live on. Not from a callback. */
ATOLL_API void atoll_tokens_close(struct atoll_tokens *t);
/* Another key. Pauses after failures are over. */
ATOLL_API int atoll_tokens_set_key(struct atoll_tokens *t, const char *key,
                                   struct atoll_result *res);
/* ID: 1 to 128 of [A-Za-z0-9._:@~-], the first a letter, a digit or '_'. */
ATOLL_API int atoll_tokens_handle(struct atoll_tokens *t, const char *id,
                                  struct atoll_token_handle **ret_handle, struct atoll_result *res);

#define ATOLL_TOKEN_RETRY 0x1u /* ask although the pause after a failure is not over */

/*
 * A token that has not expired. WAIT_MS: how long to wait when one must be asked for; -1: for ever;
 * 0: ask for it, but do not wait (-ATOLL_E_BUSY). -ATOLL_E_TIMEOUT: not in time, the request goes on.
 * -ATOLL_E_DENIED (401, 403), -ATOLL_E_NOT_FOUND (404), -EREMOTEIO (any other status), -EPROTO (an
 * answer that is none), or an errno: the request failed, now or a moment ago. -ATOLL_E_WOULD_DEADLOCK:
 * it would have to wait, in a callback.
 *
 * *RET_TOKEN is lent: until the next get of this thread, from whichever cache, or until the thread
 * ends. Who wants it for longer calls atoll_token_ref().
 */
ATOLL_API int atoll_tokens_get(struct atoll_tokens *t, const char *id, int64_t wait_ms,
                               unsigned flags, struct atoll_token **ret_token,
                               struct atoll_result *res);
ATOLL_API int atoll_token_get(struct atoll_token_handle *h, int64_t wait_ms, unsigned flags,
                              struct atoll_token **ret_token, struct atoll_result *res);

/* The token itself: printable ASCII without blanks. */
ATOLL_API const char *atoll_token_text(const struct atoll_token *token);
/* Says which token it is, in every process; for atoll_token_invalidate(). */
ATOLL_API uint64_t atoll_token_version(const struct atoll_token *token);
ATOLL_API int64_t atoll_token_expires_ms(const struct atoll_token *token); /* UTC */
/* Any other member of the answer, as JSON: "true" for {"is_gpu": true}. NULL: there is none. */
ATOLL_API const char *atoll_token_field(const struct atoll_token *token, const char *name);
ATOLL_API struct atoll_token *atoll_token_ref(struct atoll_token *token);
ATOLL_API void atoll_token_unref(struct atoll_token *token); /* wiped with the last one */

/* In the callback the wait's result is there. It runs once, in a thread of the cache, unless the wait
 * is freed before; it may free it. */
typedef void (*atoll_token_fn)(void *user, struct atoll_token_wait *wait);
struct atoll_token_call {
	int64_t wait_ms;   /* < 0: for ever */
	unsigned flags;    /* ATOLL_TOKEN_* */
	atoll_token_fn fn; /* NULL: poll atoll_token_wait_fd() */
	void *user;
};
/* 1: *RET_TOKEN is there, ref'ed, and no wait was made; 0: *RET_WAIT is under way. */
ATOLL_API int atoll_token_start(struct atoll_token_handle *h, const struct atoll_token_call *call,
                                struct atoll_token **ret_token, struct atoll_token_wait **ret_wait,
                                struct atoll_result *res);
/* An eventfd, readable once the result is there; -1 for one with a callback. The wait closes it. */
ATOLL_API int atoll_token_wait_fd(const struct atoll_token_wait *w);
/* -EAGAIN before it is there; else as the blocking form. *RET_TOKEN (may be NULL) is ref'ed; NULL for
 * what gives none. */
ATOLL_API int atoll_token_wait_result(struct atoll_token_wait *w, struct atoll_token **ret_token,
                                      struct atoll_result *res);
/* Gives up if it is under way. Its callback is not running any more afterwards (but in itself). */
ATOLL_API void atoll_token_wait_free(struct atoll_token_wait *w);

/* 1: the sandbox's token was VERSION and is dropped; 0: there is another by now, or none. Never
 * blocks. */
ATOLL_API int atoll_token_invalidate(struct atoll_token_handle *h, uint64_t version);
/* Sets a field beside the answer's; JSON is one value. It is kept with the sandbox, over renewals
 * whose answer does not have it. 1: written; 0: it was so already, or there is no token. */
ATOLL_API int atoll_token_set_field(struct atoll_token_handle *h, const char *name,
                                    const char *json, struct atoll_result *res);
ATOLL_API int atoll_token_start_set_field(struct atoll_token_handle *h, const char *name,
                                          const char *json, const struct atoll_token_call *call,
                                          struct atoll_token_wait **ret_wait,
                                          struct atoll_result *res);
/* Forgets the token of ID (NULL: all of this cache), in memory and on disk. Who waits for a request
 * under way still gets its token, which is not kept. Who asks afterwards makes a new request. */
ATOLL_API int atoll_tokens_clear(struct atoll_tokens *t, const char *id, struct atoll_result *res);
ATOLL_API int atoll_tokens_start_clear(struct atoll_tokens *t, const char *id,
                                       const struct atoll_token_call *call,
                                       struct atoll_token_wait **ret_wait,
                                       struct atoll_result *res);

/* ---- custom strategies ------------------------------------------------------------------- */

/*
 * A strategy is one table. The manager looks only at the capabilities and at what prepare
 * answers. The verbs mean, everywhere:
 *
 *   create   make the workspace below atoll_participant_area(); on failure nothing is left
 *   path     where commands write (capability PATH)
 *   mounts   say with atoll_participant_mount() what a command sees where, and with
 *            atoll_participant_env() what it finds in its environment (capability MOUNTS)
 *   observe  after a command: note what the base was under what it changed (optional).
 *            ATOLL_NO_CHANGE: the workspace holds nothing, as when it was made
 *   diff     report changes with atoll_participant_change() (capability DIFF)
 *   content  within diff: open one side of a change just reported; see atoll_change_open() (optional)
 *   lines    within diff: a change just reported as text; see atoll_change_lines() (optional)
 *   prepare  do all that can fail; nothing visible (capability PREPARE). With
 *            atoll_participant_undoing(): the same for an undo
 *   check    once more, right before the decision: is the base still the same? When recovering:
 *            is what was decided still whole? (optional)
 *   commit   make visible; repeatable; after the decision. -ATOLL_E_CONFLICT: refused for good,
 *            so that everybody goes back
 *   abort    undo a prepare; repeatable. Without UNDO also after the decision, before the batch is
 *            taken back: if its turn had come, and it was committed, -ATOLL_E_NOT_UNDOABLE, and then
 *            nobody goes back; any other failure says that it cannot tell, and nobody does either.
 *            If it answers 0 its commit answers -ATOLL_E_CONFLICT from then on
 *   undo     take a commit back; repeatable (capability UNDO)
 *   unlock   everybody has committed, or gone back, and it is about to be recorded: let others at the
 *            resource again. Until then nobody may build on what may still be taken back, and after
 *            it commit and undo must know, when recovering, that they were here; repeatable
 *            (optional)
 *   keep     after an undo with ATOLL_KEEP_WORK, for each batch, the newest first: what it had
 *            installed is work again; repeatable (capability KEEP)
 *   refresh  take over what somebody else changed where the workspace changed nothing; name what
 *            collides (optional)
 *   finish   after the commit (or undo) is durable and recorded: note what was installed
 *   release  drop what only undo needed
 *   reset    the workspace equals the resource again (may be done lazily, in path)
 *   remove   remove everything create made
 *   identify before create, for a resource that is no file: the name it is known by from now on, and
 *            who it is, the same for the same resource however it was given; both malloc()ed. There
 *            is neither id nor area yet (optional: the name as given is both)
 *   alive    is the workspace still there? Asked before it is used, of one that is not stale; a
 *            failure puts the sandbox in error (optional)
 *
 * Every verb returns 0 or a negative code, with atoll_participant_fail() saying why. Anything
 * but 0 from prepare aborts the batch; anything but 0 from commit revokes it.
 */
#define ATOLL_STRATEGY_API_VERSION 1

#define ATOLL_CAP_PREPARE 0x1u
#define ATOLL_CAP_UNDO    0x2u
#define ATOLL_CAP_DIFF    0x4u
#define ATOLL_CAP_PATH    0x8u
#define ATOLL_CAP_MOUNTS  0x10u
/* prepare asks atoll_participant_selected() and calls atoll_participant_leave(). Of a strategy
 * without it only the whole resource can be committed. */
#define ATOLL_CAP_SELECT 0x20u
#define ATOLL_CAP_KEEP   0x40u
/* Others may see its commit at once and build on it, so it comes after those that nobody notices.
 * Without UNDO it comes later still, and without PREPARE last of all. */
#define ATOLL_CAP_LATE 0x80u
/* A new workspace holds nothing, observe says whether it still does, and one that holds nothing can be
 * made anew at any time. */
#define ATOLL_CAP_EMPTY 0x100u

/* Answers of prepare; the second of observe, too. */
#define ATOLL_READY     0
#define ATOLL_NO_CHANGE 1
/* Ready, but this time commit may still fail and cannot be taken back: refused beside others unless
 * ATOLL_ALLOW_PARTIAL, and then last. */
#define ATOLL_FINAL 2

struct atoll_strategy {
	unsigned api_version; /* ATOLL_STRATEGY_API_VERSION */
	const char *name;     /* [a-z0-9-]+ */
	const char *kind;     /* "directory", "file", "database", ... */
	unsigned capabilities;
	int (*create)(struct atoll_participant *p);
	int (*path)(struct atoll_participant *p, char **ret_path);
	int (*mounts)(struct atoll_participant *p);
	int (*observe)(struct atoll_participant *p);
	int (*diff)(struct atoll_participant *p);
	int (*content)(struct atoll_participant *p, const struct atoll_change *change,
	               enum atoll_side side, int *ret_fd);
	int (*lines)(struct atoll_participant *p, const struct atoll_change *change,
	             atoll_line_fn fn, void *user);
	int (*prepare)(struct atoll_participant *p);
	int (*check)(struct atoll_participant *p);
	int (*commit)(struct atoll_participant *p);
	int (*abort)(struct atoll_participant *p);
	int (*undo)(struct atoll_participant *p);
	int (*finish)(struct atoll_participant *p);
	int (*release)(struct atoll_participant *p);
	int (*reset)(struct atoll_participant *p);
	int (*remove)(struct atoll_participant *p);
	int (*keep)(struct atoll_participant *p);
	int (*refresh)(struct atoll_participant *p);
	void *user;
	int (*identify)(struct atoll_participant *p, char **ret_name, char **ret_id);
	int (*alive)(struct atoll_participant *p);
	int (*unlock)(struct atoll_participant *p);
};
/* STRATEGY must outlive every handle. A capability without its function is -ATOLL_E_INVALID, a
 * name already taken -ATOLL_E_EXISTS. */
ATOLL_API int atoll_strategy_register(const struct atoll_strategy *strategy,
                                      struct atoll_result *res);

/*
 * A strategy may also come as a module: a shared object NAME.so with a function of this name and
 * type, which returns the table, in the directory that ATOLL_STRATEGIES names or in
 * LIBDIR/atoll/strategies. File and directory must belong to root or to the user, and be writable
 * for nobody else. It is opened when NAME is first asked for. docs/design/strategies.md has one to
 * begin with.
 */
#define ATOLL_STRATEGY_MODULE "atoll_strategy_module"
typedef const struct atoll_strategy *atoll_strategy_module_fn(void);

ATOLL_API const char *atoll_participant_id(const struct atoll_participant *p);
ATOLL_API const char *atoll_participant_root(const struct atoll_participant *p);
/* A private 0700 directory on the resource's mount where it can be had. Made before create,
 * recorded before it is made, removed after remove. */
ATOLL_API const char *atoll_participant_area(const struct atoll_participant *p);
ATOLL_API const char *atoll_participant_plan(const struct atoll_participant *p);
ATOLL_API void *atoll_participant_user(const struct atoll_participant *p);
/* Number of the batch, 1 the first; 0 outside one. */
ATOLL_API uint64_t atoll_participant_batch(const struct atoll_participant *p);
ATOLL_API bool atoll_participant_undoing(const struct atoll_participant *p);
/* True when an interrupted batch is being finished by somebody else than who began it. */
ATOLL_API bool atoll_participant_recovering(const struct atoll_participant *p);
/* ATOLL_ALLOW_*, ATOLL_DENY_* of the call. */
ATOLL_API unsigned atoll_participant_flags(const struct atoll_participant *p);
/* Is the entry PATH, relative to the root, to be committed? Whole: every one is. */
ATOLL_API bool atoll_participant_selected(const struct atoll_participant *p, const char *path,
                                          bool is_dir);
ATOLL_API bool atoll_participant_whole(const struct atoll_participant *p);
/* In prepare and again in commit: the batch leaves work in the workspace. The sandbox then stays
 * ACTIVE, and the workspace must show what was committed and what was left. */
ATOLL_API void atoll_participant_leave(struct atoll_participant *p);
/* Asks that what FD names be durable at the next barrier. The descriptor is duplicated. */
ATOLL_API int atoll_participant_sync(struct atoll_participant *p, int fd);
/* Records the cause of a failure and returns CODE. */
ATOLL_API int atoll_participant_fail(struct atoll_participant *p, int code, const char *op,
                                     const char *path, int os_errno);
/* What a command will see at TARGET (absolute). UPPER and WORK NULL: SOURCE itself, writable;
 * else an overlay of UPPER over SOURCE, with WORK for the kernel's own use. SOURCE itself may be a
 * file, or a symbolic link, which then is one at TARGET; TARGET must be one of the two then. A
 * directory below /run is made when it is missing. */
ATOLL_API int atoll_participant_mount(struct atoll_participant *p, const char *target,
                                      const char *source, const char *upper, const char *work);
/* In mounts: a variable of the command's environment; VALUE NULL: it is not to have it. */
ATOLL_API void atoll_participant_env(struct atoll_participant *p, const char *name,
                                     const char *value);
ATOLL_API int atoll_participant_change(struct atoll_participant *p,
                                       const struct atoll_change *change);
ATOLL_API void atoll_participant_note(struct atoll_participant *p, enum atoll_note_kind kind,
                                      const char *path, const char *text);
ATOLL_API void atoll_participant_count(struct atoll_participant *p, uint64_t changes);

#ifdef __cplusplus
}
#endif

#endif

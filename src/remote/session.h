/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: a project (its root here) and a branch, at one remote. There the session is a plan over a
 * mirror of the project; here it is a row of the registry.
 *
 *   (none) --row, durable--> creating --the daemon has made the plan--> active --stop--> (none)
 *
 * The row is written under the store's lock, with the idempotency key that asks for the plan, before
 * anything is asked for; so however many processes come at once, there is one row, one key, one plan.
 * Then whoever has the session's ticket lock asks; the others wait for it, in order, and find the session
 * active. A creator that dies leaves the row: the next one has its lock, and asks again with the same
 * key, so gets the same plan. A refusal (no such key, a name that is taken) takes the row with it; no
 * answer at all leaves it, as nobody knows whether there is a plan.
 *
 * A plan that is gone there (404, 410) is noticed by whoever finds it so: under the session's lock the row
 * goes back to `creating`, with another key, generation 0 and an empty directory.
 *
 * Which one: the row of this remote, root and branch. With a detached HEAD it is the one whose last HEAD
 * is the nearest ancestor of HEAD, or HEAD itself; rows equally near are an error that names them
 * (-ATOLL_E_AMBIGUOUS), and an id picks one; without any, a row of branch "@ID" is made. Plain directories
 * have branch "".
 *
 * Lock order: cycle ("ID.cycle", held by a cycle for its whole length) -> session ("ID.session", held
 * while a session is made, replaced or ended) -> store. Neither is held while a command runs on behalf
 * of somebody else: that is the plan's lock, on the daemon.
 *
 * Ids are made up and never used again, so a session without a row is gone for good. Then its locks' files go with
 * whoever has them last, and its directory, which is used under the cycle's lock only, with its end. Crash: they
 * are left, and removed when another session is made or ended.
 */
#ifndef REMOTE_SESSION_H
#define REMOTE_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include "registry/session.h"
#include "remote/remote.h"

/* ---- the project ---- */

struct project {
	char *root;   /* canonical: the git toplevel of the directory asked for, or that itself */
	bool is_git;  /* root/.git is a repository, here as a whole */
	char *branch; /* "refs/heads/x"; "": HEAD is detached, or no repository */
	char *head;   /* commit id, 40 or 64 hex digits; "": none yet, or no repository */
};
/* DIR NULL: the current directory. -ATOLL_E_UNSUPPORTED: a linked worktree, or a .git that leads
 * elsewhere, whose other half would not travel. */
int project_find(const char *dir, struct project *ret, struct error *err);
void project_done(struct project *p);
#define cleanup_project __attribute__((__cleanup__(project_done)))
/* 1: the commit FROM is HEAD or an ancestor, and so many commits are between; 0: it is none. */
int project_distance(const struct project *p, const char *from, int64_t *ret, struct error *err);

/* ---- a session ---- */

struct remote_session {
	struct atoll *atoll; /* lent */
	struct remote *remote;
	struct project project;
	struct session_row row; /* as last read or written */
	bool is_new;            /* its plan was made by this process, */
	bool is_replaced;       /* because the former one was gone */
	bool is_gone;           /* there is no such row any more, and never will be */
};
void remote_session_free(struct remote_session *s);
void remote_session_freep(struct remote_session **s);
#define cleanup_remote_session __attribute__((__cleanup__(remote_session_freep)))

struct session_wish {
	const char *remote;
	const char *dir; /* NULL: the current directory */
	const char *id;  /* NULL: by project and branch; else an id, or a unique beginning of one */
	const char *name; /* for the remote plan; NULL: any */
	bool must_exist;  /* find only: -ATOLL_E_NOT_FOUND; its plan may not be made yet */
};
/* Finds or makes it. The wait for another creator is the store's (atoll_set_wait()), and says for whom.
 * Nothing is sent when it is there. */
int session_get(struct atoll *a, const struct session_wish *w, struct remote_session **ret,
                struct error *err);
/* The row anew, as after a wait. -ATOLL_E_NOT_FOUND: it was stopped. */
int session_reload(struct remote_session *s, struct error *err);
/* Asks whether the remote plan is there, and replaces it when it is gone. */
int session_check(struct remote_session *s, struct error *err);
/* The remote plan was found to be gone (404, 410): another one is made, unless somebody has done so. */
int session_replace(struct remote_session *s, struct error *err);

/* What a cycle found, durable. HEAD: as it is after the cycle; GENERATION: agreed on by both sides. */
int session_save(struct remote_session *s, const char *head, int64_t generation, struct error *err);
/* The local plan that has what was pulled: its id is made up and written (RUN "") before the plan is
 * started, and again with the run there once it holds all of it. "", "": none. */
int session_save_pull(struct remote_session *s, const char *plan_id, const char *run,
                      struct error *err);
/* The last one that was committed here, for `rollback`; "": none. It is not to be settled any more; its run
 * stays on record, so that it is not pulled again. */
int session_save_pulled(struct remote_session *s, const char *plan_id, struct error *err);

/* A private directory (0700) of the session in the store, for its manifest; made when missing. Goes with
 * the session, and is emptied when its plan is replaced. */
int session_dir(struct remote_session *s, int *ret_fd, struct error *err);

/* Ends it: the remote plan and its mirror, then the row. What is pending there is dropped. No cycle is
 * under way then: waits for the one that is. IS_FORCED: a daemon that does not answer, or refuses, is not
 * asked twice; 1: its plan is still there. */
int session_stop(struct remote_session *s, bool is_forced, struct error *err);

/* Lets a lock of the session go, and with it its file when the session is gone. T may be free. */
void session_unlock(struct remote_session *s, const char *kind, struct ticket *t);

/* "NAME.cycle": the lock's file in the store's locks, SESSION_LOCK_LEN with its NUL. */
#define SESSION_LOCK_LEN (SESSION_ID_LEN + sizeof(".session"))
void session_lock_name(const struct remote_session *s, const char *kind,
                       char out[SESSION_LOCK_LEN]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions at remotes: which plan of which daemon belongs to which project here. remote/session.h says
 * what they are for, and in which order a row changes.
 *
 *   creating   the key is there, the plan is not (or is not known yet)
 *   active     plan and sandbox are known
 */
#ifndef REGISTRY_SESSION_H
#define REGISTRY_SESSION_H

#include <stdint.h>
#include "registry/registry.h"

/* On disk: only ever appended to. */
enum session_state { SESSION_CREATING = 0, SESSION_ACTIVE, SESSION_STATE_END_ };
const char *session_state_name(enum session_state s);

#define SESSION_ID_LEN   16 /* hex digits */
#define SESSION_KEY_LEN  32 /* hex digits */
#define SESSION_HEAD_LEN 64
#define SESSION_RUN_LEN  64

struct session_row {
	char id[SESSION_ID_LEN + 1];
	char remote[LIMIT_NAME + 1];
	char *root;                /* canonical path */
	char name[LIMIT_NAME + 1]; /* that the plan there was asked to have; "": any */
	char *branch; /* "refs/heads/x"; "@ID": made when HEAD was detached at ID; "": no repository */
	enum session_state state;
	char key[SESSION_KEY_LEN + 1];    /* Idempotency-Key of the request that makes the plan */
	char plan[PLAN_ID_LEN + 1];       /* there; "" while it is being made */
	char sandbox[SANDBOX_ID_LEN + 1]; /* there */
	char head[SESSION_HEAD_LEN + 1];  /* the last HEAD known; "": none */
	int64_t generation;               /* that both sides agreed on last; 0: nothing */
	/* Plan here that has, or will have, what was pulled and is not settled; "": none. Written before
	 * the plan is started, */
	char pull_plan[PLAN_ID_LEN + 1];
	/* and again with the run there whose changes it holds, all of them; "": not yet. Stays when the
	 * plan is settled, until there is another. */
	char pull_run[SESSION_RUN_LEN + 1];
	char pulled[PLAN_ID_LEN + 1]; /* plan here whose commit brought the last pull; "" */
	int64_t created_ms;
	int64_t used_ms;
};
void session_row_done(struct session_row *row);
#define cleanup_session_row __attribute__((__cleanup__(session_row_done)))
/* TO is overwritten, not freed. */
void session_row_copy(struct session_row *to, const struct session_row *from);

/* Sets the id. -ATOLL_E_EXISTS: there is one of that remote, root and branch. */
int registry_session_insert(struct registry *r, struct session_row *row, struct error *err);
/* 1 and *RET, which the caller frees; or 0. */
int registry_session_find(struct registry *r, const char *remote, const char *root,
                          const char *branch, struct session_row *ret, struct error *err);
int registry_session_get(struct registry *r, const char *id, struct session_row *ret,
                         struct error *err);
typedef int (*registry_session_fn)(void *ctx, const struct session_row *row);
/* In the order they were made. REMOTE, ROOT NULL: of all. */
int registry_session_list(struct registry *r, const char *remote, const char *root,
                          registry_session_fn fn, void *ctx, struct error *err);
/* Everything but id, remote, root, branch and created_ms. -ATOLL_E_NOT_FOUND: it was stopped. */
int registry_session_update(struct registry *r, const struct session_row *row, struct error *err);
int registry_session_delete(struct registry *r, const char *id, struct error *err);

#endif

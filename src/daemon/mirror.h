/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mirrors: the trees that remote clients push into, and what the daemon remembers of each. A session is
 * an ordinary plan over one directory, its mirror.
 *
 *   recorded   STORE/sessions/PLAN says where the mirror will be, durably; made under the plan's id
 *   made       the directory is there, empty, and the plan is started over it
 *   filled     the first push is whole and on disk: generation 1
 *   in use     each commit of the plan into the mirror is one generation more
 *   gone       the plan was stopped; the mirror is removed, then the record
 *
 * The generation is read from the registry, where a commit and its number are one step. A run that
 * changed something is recorded with the generation it ran at; so a commit, by whomever, makes that record
 * void, and what is in the workspace is pending only where the record fits. Everything else there was left
 * by somebody who died, and is dropped.
 *
 * Locking: filled, run and ran_at are changed under the plan's lock. Making and sweeping keep apart by a
 * lock on the directory of the records.
 * Crash: a record without a plan; mirrors_sweep() removes what it names, and nothing else.
 */
#ifndef DAEMON_MIRROR_H
#define DAEMON_MIRROR_H

#include <stdbool.h>
#include <stdint.h>
#include "plan/plan.h"

struct mirror {
	char plan[PLAN_ID_LEN + 1];
	char *root;
	char *label;   /* the client's own words */
	char *request; /* sender and Idempotency-Key of the request that made it; "": without */
	bool filled;
	uint64_t run;    /* the last one that changed something */
	uint64_t ran_at; /* the generation that it ran at; 0: none is pending */
};
#define MIRROR_INIT ((struct mirror){ 0 })
void mirror_done(struct mirror *m);
#define cleanup_mirror __attribute__((__cleanup__(mirror_done)))

/* Where mirrors go; the caller frees. GIVEN: as --mirrors said, or NULL. */
int mirrors_place(const char *given, char **ret, struct error *err);

/* Records and makes the mirror of a plan that is about to be started, of which WISH says plan, label and request;
 * again is harmless. *RET_FD keeps sweepers away until it is closed. */
int mirror_make(struct atoll *a, const char *place, const struct mirror *wish, struct mirror *ret,
                int *ret_fd, struct error *err);
/* The one that REQUEST made, and whose plan is there, however long ago that was: 1 and its plan's id, or 0. */
int mirror_made_by(struct atoll *a, const char *request, char ret_plan[PLAN_ID_LEN + 1],
                   struct error *err);
/* -ATOLL_E_NOT_FOUND: the plan is no session. */
int mirror_load(struct atoll *a, const char *plan, struct mirror *ret, struct error *err);
/* On disk when it returns. */
int mirror_save(struct atoll *a, const struct mirror *m, struct error *err);
/* 0: nothing whole was pushed yet. */
int mirror_generation(struct atoll *a, const struct mirror *m, uint64_t *ret, struct error *err);
/* The mirror of a plan that is gone; of one that had none nothing happens. */
int mirror_remove(struct atoll *a, const char *plan, struct error *err);
/* Those of all plans that are gone. */
int mirrors_sweep(struct atoll *a, struct error *err);
/* Plans with a mirror, in no order. A negative answer ends it. */
typedef int (*mirror_fn)(void *user, const struct mirror *m);
int mirrors_list(struct atoll *a, mirror_fn fn, void *user, struct error *err);

#endif

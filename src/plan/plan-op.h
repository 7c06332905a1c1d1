/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame of every call that changes a plan.
 *
 *   plan_op_begin()   settles plans that share our resources, takes the plan's lock, recovers the
 *                     plan, takes resource locks where asked, and loads what the registry says;
 *                     checks what the plan must be, and records a decision as asked for
 *   ... the work ...
 *   plan_op_end()     writes the line of history, records how a decision ended, and lets go, in
 *                     the reverse order
 *
 * Locking: begin waits, as the handle's limit says; end never does. If other plans turn out to
 * have an unfinished batch on our resources once we hold their locks, begin lets go of all and
 * settles them first, so no thread ever waits for a plan while it holds another.
 */
#ifndef PLAN_PLAN_OP_H
#define PLAN_PLAN_OP_H

#include "plan/plan.h"
#include "plan/sandbox.h"
#include "util/progress.h"

#define OP_RESOURCES   0x1u   /* exclusive locks on all resources of the plan, until end */
#define OP_UNRECOVERED 0x2u   /* go on although recovery failed (stop by force) */
#define OP_TRY         0x4u   /* do not wait for the plan */
#define OP_QUIET       0x8u   /* no line of history */
#define OP_UNASKED     0x10u  /* housekeeping: an abandoned plan is not adopted by it */
#define OP_FORCE       0x20u  /* what is nowhere else may go, too */
#define OP_NEW         0x40u  /* there is no such plan yet: only locks are taken */
#define OP_BRIEFLY     0x80u  /* wait for the plan no longer than a command takes to die */
#define OP_DECIDES     0x100u /* when it ends well no ask for a commit is open any more */
#define OP_AUDITED     0x200u /* a decision: the handle's decision_fn is called (plan.h) */

struct plan_op_options {
	const char *verb;   /* "commit" */
	const char *detail; /* more for the lock's record, or NULL */
	unsigned flags;
	/* Resources about to join the plan: their locks are taken shared. */
	const struct sandboxes *newcomers;
	const char *mirror;       /* the plan must be one resource, this directory; NULL: any */
	struct atoll_result *res; /* for what a recovery has to say, or NULL */
};

struct plan_op {
	struct atoll *a;
	const char *verb;
	unsigned flags;
	struct atoll_result *res; /* of the options */
	char what[LIMIT_COMMAND]; /* "atoll commit fix-42" */
	int64_t deadline;
	struct plan_lock lock;
	uint64_t epoch;
	struct resource_locks *resources;
	struct plan_row plan;
	struct sandboxes boxes;
	bool unrecovered; /* OP_UNRECOVERED was needed */
	const char *why;  /* it was done, for its line of history; or NULL */
	struct progress progress;
};
#define PLAN_OP_INIT ((struct plan_op){ .lock = { .ticket = { .fd = -1 } } })

int plan_op_begin(struct plan_op *op, struct atoll_plan *p, const struct plan_op_options *opt,
                  struct error *err);
/* R and ERR: how it ended. Returns R. */
int plan_op_end(struct plan_op *op, int r, const struct error *err);
/* Without history; harmless on one that never began. */
void plan_op_done(struct plan_op *op);
#define cleanup_plan_op __attribute__((__cleanup__(plan_op_done)))

/* The plan is one resource, the directory ROOT, and nothing else: 0, or -ATOLL_E_DENIED. */
int plan_op_check_mirror(const struct plan_op *op, const char *root, struct error *err);

/* When R is the failure of a record without which nothing happens: puts UNCHANGED ("nothing was
 * removed") before the message and says what to do, then type. Returns R. */
int plan_op_refused(const struct plan_op *op, int r, const char *unchanged, struct error *err);

/* The caller asked to stop after DONE of the resources: the same command does the rest. */
int plan_op_unfinished(const struct plan_op *op, size_t done, struct error *err);

/* Reads plan and sandboxes again. */
int plan_op_reload(struct plan_op *op, struct error *err);
/* Within a transaction: brings the plan to TO, by way of OPEN where there is no direct step. */
int plan_op_set_state(struct plan_op *op, enum atoll_plan_state to, struct error *err);

/* Plans that share a resource with PLAN_ID (or NEWCOMERS) and died in a batch are recovered. */
int plan_settle_others(struct atoll *a, const char *plan_id, const struct sandboxes *newcomers,
                       const char *what, int64_t deadline, struct error *err);

/* plan-start.c: removes a plan whose maker died before it was whole. */
int plan_unmake(struct plan_op *op, struct error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of plans, sandboxes and batches: one table each, and the only functions that say
 * whether a step is allowed. The manual's tables are printed from them (tools/gen-states.c).
 *
 * Plan:
 *   OPEN -> PREPARING -> DECIDED -> COMMITTED      a batch
 *           PREPARING -> OPEN                      withdrawn before the decision
 *                        DECIDED -> REVOKED -> OPEN  withdrawn after it, nothing irrevocable done
 *   COMMITTED -> OPEN                              work left, or exec follows
 *   COMMITTED, OPEN -> UNDOING -> ROLLED_BACK      batches undone
 *                      UNDOING -> COMMITTED        others stay committed, or the undo was withdrawn
 *                      UNDOING -> OPEN             the same, beside uncommitted changes
 *   COMMITTED, OPEN, ROLLED_BACK -> UNDOING        a redo, too: the batch says which it is
 *   OPEN -> ROLLED_BACK                            nothing committed: the work is dropped
 *   ROLLED_BACK -> OPEN                            exec or path follows
 *   OPEN, COMMITTED, ROLLED_BACK -> CLOSED         stop
 *
 * Sandbox: design in docs/design/sandbox-states.md.
 */
#ifndef REGISTRY_STATE_H
#define REGISTRY_STATE_H

#include <stdbool.h>
#include <stdio.h>
#include <atoll.h>

enum batch_state {
	BATCH_PREPARING = 0, /* no decision: presumed abort */
	BATCH_DECIDED,       /* carried out, whatever happens */
	BATCH_REVOKED,       /* decided, then taken back: being undone */
	BATCH_COMMITTED,     /* done; undo data may exist */
	BATCH_UNDOING,       /* decided: goes back */
	BATCH_REDOING, /* decided: goes forward again, in a redo or after an undo that is withdrawn */
	BATCH_UNDONE,    /* taken back; what a redo needs may exist */
	BATCH_WITHDRAWN, /* final: nothing changed */
	BATCH_STATE_END_
};
const char *batch_state_name(enum batch_state s);
/* The batch is unfinished: recovery has work. */
bool batch_state_open(enum batch_state s);

bool plan_state_allows(enum atoll_plan_state from, enum atoll_plan_state to);
bool sandbox_state_allows(enum atoll_sandbox_state from, enum atoll_sandbox_state to);
bool batch_state_allows(enum batch_state from, enum batch_state to);

/* Verbs that change a sandbox's state, for the published table and its test (STM-01). */
enum sandbox_verb {
	SANDBOX_VERB_CREATE = 0,
	SANDBOX_VERB_EXEC, /* exec, path */
	SANDBOX_VERB_PREPARE,
	SANDBOX_VERB_COMMIT,
	SANDBOX_VERB_WITHDRAW,
	SANDBOX_VERB_ROLLBACK,
	SANDBOX_VERB_RECOVER, /* recover, reset */
	SANDBOX_VERB_REDO,
	SANDBOX_VERB_STOP,
	SANDBOX_VERB_END_
};
const char *sandbox_verb_name(enum sandbox_verb v);
/* May VERB start in state FROM? */
bool sandbox_verb_allowed(enum atoll_sandbox_state from, enum sandbox_verb v);

/* Markdown tables of all three, for docs/design/sandbox-states.md. */
void state_print_markdown(FILE *out);

#endif

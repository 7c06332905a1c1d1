/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of states. A row says: from any of these, to any of those, by this. Whatever asks
 * whether a step is allowed, and the page in the manual, read the same rows.
 */
#include "registry/state.h"

#include <stddef.h>

#define BIT(state)   (1u << (unsigned)(state))
#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

struct step {
	unsigned from; /* set of states */
	unsigned to;   /* set of states */
	const char *by;
};

struct sandbox_step {
	enum sandbox_verb verb;
	struct step step;
};

#define P(name) BIT(ATOLL_PLAN_##name)
#define S(name) BIT(ATOLL_SANDBOX_##name)
#define B(name) BIT(BATCH_##name)

static const struct step plan_steps[] = {
	{ P(OPEN), P(PREPARING), "commit: a batch begins" },
	{ P(PREPARING), P(DECIDED), "the decision" },
	{ P(PREPARING), P(OPEN), "withdrawn before the decision" },
	{ P(DECIDED), P(COMMITTED), "carried out, on every resource" },
	{ P(DECIDED), P(REVOKED), "taken back; nothing irrevocable was done" },
	{ P(REVOKED), P(OPEN), "what was done is undone" },
	{ P(COMMITTED), P(OPEN), "work left, or exec follows" },
	{ P(OPEN) | P(COMMITTED) | P(ROLLED_BACK), P(UNDOING),
	  "undo, redo or rollback of batches: the decision" },
	{ P(UNDOING), P(ROLLED_BACK), "undone, on every resource" },
	{ P(UNDOING), P(COMMITTED), "another batch stays committed, or this one is again" },
	{ P(UNDOING), P(OPEN), "the same, and there are uncommitted changes" },
	{ P(OPEN), P(ROLLED_BACK), "rollback, nothing committed: the work is dropped" },
	{ P(ROLLED_BACK), P(OPEN), "exec or path follows" },
	{ P(OPEN) | P(COMMITTED) | P(ROLLED_BACK), P(CLOSED), "stop" },
};

static const struct sandbox_step sandbox_steps[] = {
	{ SANDBOX_VERB_CREATE, { S(PENDING), S(CREATED) | S(ERRORED), "create" } },
	{ SANDBOX_VERB_EXEC,
	  { S(CREATED) | S(ACTIVE) | S(COMMITTED) | S(ROLLED_BACK), S(ACTIVE),
	    "exec, path; after a rollback on a workspace equal to the resource" } },
	{ SANDBOX_VERB_PREPARE,
	  { S(CREATED) | S(ACTIVE), S(PREPARED) | S(ERRORED), "prepare, in a batch" } },
	{ SANDBOX_VERB_COMMIT,
	  { S(PREPARED), S(COMMITTED) | S(ERRORED), "commit, after the decision" } },
	{ SANDBOX_VERB_WITHDRAW,
	  { S(PREPARED), S(ACTIVE), "withdraw: before the decision, or after it was revoked" } },
	{ SANDBOX_VERB_ROLLBACK,
	  { S(CREATED) | S(ACTIVE) | S(COMMITTED) | S(ERRORED), S(ROLLED_BACK) | S(ERRORED),
	    "rollback; of one in error: tried again" } },
	{ SANDBOX_VERB_RECOVER, { S(ERRORED), S(ACTIVE) | S(ROLLED_BACK), "recover, reset" } },
	{ SANDBOX_VERB_REDO, { S(ROLLED_BACK), S(COMMITTED), "redo" } },
	{ SANDBOX_VERB_STOP,
	  { S(PENDING) | S(CREATED) | S(ACTIVE) | S(COMMITTED) | S(ROLLED_BACK) | S(ERRORED),
	    S(CLEANED_UP),
	    "stop; refused for unrestored data and, unless forced, for uncommitted work" } },
};

static const struct step batch_steps[] = {
	{ B(PREPARING), B(DECIDED), "the decision" },
	{ B(PREPARING), B(WITHDRAWN), "withdrawn before the decision" },
	{ B(DECIDED), B(COMMITTED), "carried out, on every resource" },
	{ B(DECIDED), B(REVOKED), "taken back; nothing irrevocable was done" },
	{ B(REVOKED), B(WITHDRAWN), "what was done is undone" },
	{ B(COMMITTED), B(UNDOING), "undo, rollback: the decision" },
	{ B(UNDOING), B(UNDONE), "undone, on every resource" },
	{ B(UNDOING), B(REDOING), "the undo is withdrawn after its decision" },
	{ B(UNDONE), B(REDOING), "redo: the decision" },
	{ B(REDOING), B(COMMITTED), "what was undone is done again" },
	{ B(REDOING), B(UNDOING), "the redo is withdrawn after its decision" },
};

#undef P
#undef S
#undef B

static const char *const plan_names[] = {
	[ATOLL_PLAN_OPEN] = "OPEN",
	[ATOLL_PLAN_PREPARING] = "PREPARING",
	[ATOLL_PLAN_DECIDED] = "DECIDED",
	[ATOLL_PLAN_REVOKED] = "REVOKED",
	[ATOLL_PLAN_COMMITTED] = "COMMITTED",
	[ATOLL_PLAN_UNDOING] = "UNDOING",
	[ATOLL_PLAN_ROLLED_BACK] = "ROLLED_BACK",
	[ATOLL_PLAN_CLOSED] = "CLOSED",
};
_Static_assert(COUNT(plan_names) == ATOLL_PLAN_STATE_END_, "a plan state has no name");

static const char *const sandbox_names[] = {
	[ATOLL_SANDBOX_PENDING] = "PENDING",     [ATOLL_SANDBOX_CREATED] = "CREATED",
	[ATOLL_SANDBOX_ACTIVE] = "ACTIVE",       [ATOLL_SANDBOX_PREPARED] = "PREPARED",
	[ATOLL_SANDBOX_COMMITTED] = "COMMITTED", [ATOLL_SANDBOX_ROLLED_BACK] = "ROLLED_BACK",
	[ATOLL_SANDBOX_ERRORED] = "ERRORED",     [ATOLL_SANDBOX_CLEANED_UP] = "CLEANED_UP",
};
_Static_assert(COUNT(sandbox_names) == ATOLL_SANDBOX_STATE_END_, "a sandbox state has no name");

static const char *const batch_names[] = {
	[BATCH_PREPARING] = "PREPARING", [BATCH_DECIDED] = "DECIDED",
	[BATCH_REVOKED] = "REVOKED",     [BATCH_COMMITTED] = "COMMITTED",
	[BATCH_UNDOING] = "UNDOING",     [BATCH_REDOING] = "REDOING",
	[BATCH_UNDONE] = "UNDONE",       [BATCH_WITHDRAWN] = "WITHDRAWN",
};
_Static_assert(COUNT(batch_names) == BATCH_STATE_END_, "a batch state has no name");

static const char *const verb_names[] = {
	[SANDBOX_VERB_CREATE] = "create",     [SANDBOX_VERB_EXEC] = "exec",
	[SANDBOX_VERB_PREPARE] = "prepare",   [SANDBOX_VERB_COMMIT] = "commit",
	[SANDBOX_VERB_WITHDRAW] = "withdraw", [SANDBOX_VERB_ROLLBACK] = "rollback",
	[SANDBOX_VERB_RECOVER] = "recover",   [SANDBOX_VERB_REDO] = "redo",
	[SANDBOX_VERB_STOP] = "stop",
};
_Static_assert(COUNT(verb_names) == SANDBOX_VERB_END_, "a verb has no name");

/* Numbers from outside (a caller of the library, a damaged row) get a word, not a crash. */
static const char *name_of(const char *const *names, size_t count, unsigned value)
{
	return value < count ? names[value] : "UNKNOWN";
}

const char *atoll_plan_state_name(enum atoll_plan_state s)
{
	return name_of(plan_names, COUNT(plan_names), (unsigned)s);
}

const char *atoll_sandbox_state_name(enum atoll_sandbox_state s)
{
	return name_of(sandbox_names, COUNT(sandbox_names), (unsigned)s);
}

const char *batch_state_name(enum batch_state s)
{
	return name_of(batch_names, COUNT(batch_names), (unsigned)s);
}

const char *sandbox_verb_name(enum sandbox_verb v)
{
	return name_of(verb_names, COUNT(verb_names), (unsigned)v);
}

bool batch_state_open(enum batch_state s)
{
	return (unsigned)s < BATCH_STATE_END_ &&
	       (BIT(s) & (BIT(BATCH_PREPARING) | BIT(BATCH_DECIDED) | BIT(BATCH_REVOKED) |
	                  BIT(BATCH_UNDOING) | BIT(BATCH_REDOING)));
}

static bool step_covers(const struct step *step, unsigned from, unsigned to)
{
	return (step->from & BIT(from)) && (step->to & BIT(to));
}

bool plan_state_allows(enum atoll_plan_state from, enum atoll_plan_state to)
{
	if ((unsigned)from >= ATOLL_PLAN_STATE_END_ || (unsigned)to >= ATOLL_PLAN_STATE_END_)
		return false;
	for (size_t i = 0; i < COUNT(plan_steps); i++)
		if (step_covers(&plan_steps[i], from, to))
			return true;
	return false;
}

bool sandbox_state_allows(enum atoll_sandbox_state from, enum atoll_sandbox_state to)
{
	if ((unsigned)from >= ATOLL_SANDBOX_STATE_END_ || (unsigned)to >= ATOLL_SANDBOX_STATE_END_)
		return false;
	for (size_t i = 0; i < COUNT(sandbox_steps); i++)
		if (step_covers(&sandbox_steps[i].step, from, to))
			return true;
	return false;
}

bool batch_state_allows(enum batch_state from, enum batch_state to)
{
	if ((unsigned)from >= BATCH_STATE_END_ || (unsigned)to >= BATCH_STATE_END_)
		return false;
	for (size_t i = 0; i < COUNT(batch_steps); i++)
		if (step_covers(&batch_steps[i], from, to))
			return true;
	return false;
}

bool sandbox_verb_allowed(enum atoll_sandbox_state from, enum sandbox_verb v)
{
	if ((unsigned)from >= ATOLL_SANDBOX_STATE_END_)
		return false;
	for (size_t i = 0; i < COUNT(sandbox_steps); i++)
		if (sandbox_steps[i].verb == v && (sandbox_steps[i].step.from & BIT(from)))
			return true;
	return false;
}

static void print_set(FILE *out, unsigned set, const char *const *names, size_t count)
{
	const char *separator = "";

	for (size_t i = 0; i < count; i++) {
		if (!(set & BIT(i)))
			continue;
		fprintf(out, "%s%s", separator, names[i]);
		separator = ", ";
	}
}

static void print_head(FILE *out, const char *what)
{
	fprintf(out, "%s:\n\n| from | to | by |\n|---|---|---|\n", what);
}

static void print_step(FILE *out, const struct step *step, const char *const *names, size_t count)
{
	fputs("| ", out);
	print_set(out, step->from, names, count);
	fputs(" | ", out);
	print_set(out, step->to, names, count);
	fprintf(out, " | %s |\n", step->by);
}

void state_print_markdown(FILE *out)
{
	print_head(out, "Sandbox");
	for (size_t i = 0; i < COUNT(sandbox_steps); i++)
		print_step(out, &sandbox_steps[i].step, sandbox_names, COUNT(sandbox_names));
	fputc('\n', out);

	print_head(out, "Plan");
	for (size_t i = 0; i < COUNT(plan_steps); i++)
		print_step(out, &plan_steps[i], plan_names, COUNT(plan_names));
	fputc('\n', out);

	print_head(out, "Batch");
	for (size_t i = 0; i < COUNT(batch_steps); i++)
		print_step(out, &batch_steps[i], batch_names, COUNT(batch_names));
}

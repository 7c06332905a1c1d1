/* SPDX-License-Identifier: Apache-2.0 */
/* The state tables against a second copy of them, written out in full, and against the manual. */
#include "registry/state.h"

#include "util/cleanup.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

/* One line per state, one column per state in the order of the enum; 'x': allowed. */
static const char *const sandbox_matrix[] = {
	/*                               PCAPCREC */
	[ATOLL_SANDBOX_PENDING] = ".x....xx",   [ATOLL_SANDBOX_CREATED] = "..xx.xxx",
	[ATOLL_SANDBOX_ACTIVE] = "..xx.xxx",    [ATOLL_SANDBOX_PREPARED] = "..x.x.x.",
	[ATOLL_SANDBOX_COMMITTED] = "..x..xxx", [ATOLL_SANDBOX_ROLLED_BACK] = "..x.x..x",
	[ATOLL_SANDBOX_ERRORED] = "..x..xxx",   [ATOLL_SANDBOX_CLEANED_UP] = "........",
};

static const char *const plan_matrix[] = {
	/*                         OPDRCURC */
	[ATOLL_PLAN_OPEN] = ".x...xxx",        [ATOLL_PLAN_PREPARING] = "x.x.....",
	[ATOLL_PLAN_DECIDED] = "...xx...",     [ATOLL_PLAN_REVOKED] = "x.......",
	[ATOLL_PLAN_COMMITTED] = "x....x.x",   [ATOLL_PLAN_UNDOING] = "x...x.x.",
	[ATOLL_PLAN_ROLLED_BACK] = "x....x.x", [ATOLL_PLAN_CLOSED] = "........",
};

static const char *const batch_matrix[] = {
	/*                   PDRCURUW */
	[BATCH_PREPARING] = ".x.....x", [BATCH_DECIDED] = "..xx....",
	[BATCH_REVOKED] = ".......x",   [BATCH_COMMITTED] = "....x...",
	[BATCH_UNDOING] = ".....xx.",   [BATCH_REDOING] = "...xx...",
	[BATCH_UNDONE] = ".....x..",    [BATCH_WITHDRAWN] = "........",
};

static const char *const verb_matrix[] = {
	/*                          PCAPCREC */
	[SANDBOX_VERB_CREATE] = "x.......",   [SANDBOX_VERB_EXEC] = ".xx.xx..",
	[SANDBOX_VERB_PREPARE] = ".xx.....",  [SANDBOX_VERB_COMMIT] = "...x....",
	[SANDBOX_VERB_WITHDRAW] = "...x....", [SANDBOX_VERB_ROLLBACK] = ".xx.x.x.",
	[SANDBOX_VERB_RECOVER] = "......x.",  [SANDBOX_VERB_REDO] = ".....x..",
	[SANDBOX_VERB_STOP] = "xxx.xxx.",
};

static void stm_01_sandbox_steps(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ATOLL_SANDBOX_STATE_END_; i++)
		for (unsigned j = 0; j < ATOLL_SANDBOX_STATE_END_; j++)
			if (sandbox_state_allows(i, j) != (sandbox_matrix[i][j] == 'x'))
				fail_msg("%s -> %s", atoll_sandbox_state_name(i),
				         atoll_sandbox_state_name(j));
}

static void stm_01_plan_steps(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ATOLL_PLAN_STATE_END_; i++)
		for (unsigned j = 0; j < ATOLL_PLAN_STATE_END_; j++)
			if (plan_state_allows(i, j) != (plan_matrix[i][j] == 'x'))
				fail_msg("%s -> %s", atoll_plan_state_name(i),
				         atoll_plan_state_name(j));
}

static void stm_01_batch_steps(void **state)
{
	(void)state;
	for (unsigned i = 0; i < BATCH_STATE_END_; i++)
		for (unsigned j = 0; j < BATCH_STATE_END_; j++)
			if (batch_state_allows(i, j) != (batch_matrix[i][j] == 'x'))
				fail_msg("%s -> %s", batch_state_name(i), batch_state_name(j));
}

static void stm_01_verbs(void **state)
{
	(void)state;
	for (unsigned v = 0; v < SANDBOX_VERB_END_; v++)
		for (unsigned i = 0; i < ATOLL_SANDBOX_STATE_END_; i++)
			if (sandbox_verb_allowed(i, v) != (verb_matrix[v][i] == 'x'))
				fail_msg("%s in %s", sandbox_verb_name(v),
				         atoll_sandbox_state_name(i));
}

/* Whether TO can be reached, in any number of steps. */
static bool reaches(const char *const *matrix, unsigned count, unsigned from, unsigned to)
{
	unsigned seen = 1u << from;

	for (unsigned round = 0; round < count; round++)
		for (unsigned i = 0; i < count; i++)
			for (unsigned j = 0; (seen & (1u << i)) && j < count; j++)
				if (matrix[i][j] == 'x')
					seen |= 1u << j;
	return seen & (1u << to);
}

static void stm_01_no_dead_ends(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ATOLL_SANDBOX_STATE_END_; i++) {
		assert_true(reaches(sandbox_matrix, ATOLL_SANDBOX_STATE_END_, ATOLL_SANDBOX_PENDING,
		                    i));
		assert_true(reaches(sandbox_matrix, ATOLL_SANDBOX_STATE_END_, i,
		                    ATOLL_SANDBOX_CLEANED_UP));
	}
	for (unsigned i = 0; i < ATOLL_PLAN_STATE_END_; i++) {
		assert_true(reaches(plan_matrix, ATOLL_PLAN_STATE_END_, ATOLL_PLAN_OPEN, i));
		assert_true(reaches(plan_matrix, ATOLL_PLAN_STATE_END_, i, ATOLL_PLAN_CLOSED));
	}
	for (unsigned i = 0; i < BATCH_STATE_END_; i++) {
		assert_true(reaches(batch_matrix, BATCH_STATE_END_, BATCH_PREPARING, i));
		assert_true(reaches(batch_matrix, BATCH_STATE_END_, i, BATCH_UNDONE) ||
		            reaches(batch_matrix, BATCH_STATE_END_, i, BATCH_WITHDRAWN));
	}
}

/* Unfinished means that somebody must take a step. */
static void batch_open_states(void **state)
{
	(void)state;
	for (unsigned i = 0; i < BATCH_STATE_END_; i++) {
		bool rests = i == BATCH_COMMITTED || i == BATCH_UNDONE || i == BATCH_WITHDRAWN;

		assert_int_equal(batch_state_open(i), !rests);
	}
	assert_false(batch_state_open(BATCH_STATE_END_));
}

static void out_of_range(void **state)
{
	(void)state;
	assert_false(sandbox_state_allows(ATOLL_SANDBOX_STATE_END_, ATOLL_SANDBOX_ACTIVE));
	assert_false(sandbox_state_allows(ATOLL_SANDBOX_ACTIVE, ATOLL_SANDBOX_STATE_END_));
	assert_false(plan_state_allows((enum atoll_plan_state)77, ATOLL_PLAN_OPEN));
	assert_false(plan_state_allows(ATOLL_PLAN_OPEN, (enum atoll_plan_state)77));
	assert_false(batch_state_allows(BATCH_STATE_END_, BATCH_DECIDED));
	assert_false(batch_state_allows(BATCH_DECIDED, BATCH_STATE_END_));
	assert_false(sandbox_verb_allowed(ATOLL_SANDBOX_STATE_END_, SANDBOX_VERB_EXEC));
	assert_false(sandbox_verb_allowed(ATOLL_SANDBOX_ACTIVE, SANDBOX_VERB_END_));
	assert_string_equal(atoll_plan_state_name((enum atoll_plan_state)99), "UNKNOWN");
	assert_string_equal(atoll_sandbox_state_name(ATOLL_SANDBOX_STATE_END_), "UNKNOWN");
	assert_string_equal(batch_state_name(BATCH_STATE_END_), "UNKNOWN");
	assert_string_equal(sandbox_verb_name(SANDBOX_VERB_END_), "UNKNOWN");
}

static void names(void **state)
{
	(void)state;
	assert_string_equal(atoll_plan_state_name(ATOLL_PLAN_ROLLED_BACK), "ROLLED_BACK");
	assert_string_equal(atoll_sandbox_state_name(ATOLL_SANDBOX_CLEANED_UP), "CLEANED_UP");
	assert_string_equal(batch_state_name(BATCH_WITHDRAWN), "WITHDRAWN");
	assert_string_equal(sandbox_verb_name(SANDBOX_VERB_STOP), "stop");
}

/* What stands between the markers; NULL when they are not there. */
static char *generated_part(const char *path)
{
	static const char begin[] = "<!-- generated:states -->\n";
	static char text[64 * 1024];
	char *from, *to;
	FILE *f = fopen(path, "re");

	if (!f)
		return NULL;
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	(void)fclose(f);
	from = strstr(text, begin);
	to = strstr(text, "<!-- /generated:states -->");
	return from && to ? strndup(from + strlen(begin), (size_t)(to - from) - strlen(begin))
	                  : NULL;
}

static void stm_01_manual_is_printed_from_the_tables(void **state)
{
	const char *root = getenv("ATOLL_SOURCE_ROOT");
	cleanup_free char *in_manual = NULL, *printed = NULL;
	char path[4096];
	size_t size = 0;
	FILE *f;

	(void)state;
	if (!root)
		skip();
	(void)snprintf(path, sizeof(path), "%s/docs/design/sandbox-states.md", root);
	in_manual = generated_part(path);
	assert_non_null(in_manual);
	f = open_memstream(&printed, &size);
	assert_non_null(f);
	state_print_markdown(f);
	assert_int_equal(fclose(f), 0);
	assert_string_equal(in_manual, printed);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(stm_01_sandbox_steps),
		cmocka_unit_test(stm_01_plan_steps),
		cmocka_unit_test(stm_01_batch_steps),
		cmocka_unit_test(stm_01_verbs),
		cmocka_unit_test(stm_01_no_dead_ends),
		cmocka_unit_test(batch_open_states),
		cmocka_unit_test(out_of_range),
		cmocka_unit_test(names),
		cmocka_unit_test(stm_01_manual_is_printed_from_the_tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What happened: to one plan, also one that is gone, or to all. Takes no lock. */
#include "plan/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan/output.h"
#include "util/cleanup.h"
#include "util/mem.h"

struct telling {
	struct atoll *a;
	atoll_log_fn fn;
	void *user;
};

static int tell(void *ctx, const struct log_row *row)
{
	const struct telling *t = ctx;
	struct output_size size = { 0 };
	bool kept = output_size(t->a, row->plan, row->output, &size) > 0;
	const struct atoll_log_entry entry = { .at_ms = row->at_ms,
		                               .plan_id = row->plan,
		                               .plan_name = row->name,
		                               .what = row->what,
		                               .code = row->code,
		                               .message = row->message,
		                               .ran = row->started_ms >= 0,
		                               .started_ms = row->started_ms,
		                               .exit_code = row->exit_code,
		                               .user_us = row->user_us,
		                               .system_us = row->system_us,
		                               .max_rss_kb = row->max_rss_kb,
		                               .changes = row->changes,
		                               .id = row->started_ms >= 0 ? row->seq : 0,
		                               .term_signal = row->term_signal,
		                               .timed_out = row->timed_out,
		                               .memory_kills = row->memory_kills,
		                               .job = row->job,
		                               .output_bytes = kept ? (int64_t)size.bytes : -1,
		                               .output_left_out = size.left_out };

	return t->fn(t->user, &entry);
}

/* A plan that is there by any reference, one that is gone by its name or id. */
static int find_plan(struct atoll *a, const char *ref, char ret_id[PLAN_ID_LEN + 1],
                     struct error *err)
{
	cleanup_error struct error cause = ERROR_INIT;
	struct plan_row row;
	int r = registry_plan_resolve(a->reg, ref, &row, &cause);

	if (r == 0) {
		memcpy(ret_id, row.id, PLAN_ID_LEN + 1);
		return 0;
	}
	if (r == -ATOLL_E_NOT_FOUND) {
		int found = registry_log_find(a->reg, ref, ret_id, err);

		if (found != 0)
			return found < 0 ? found : 0;
	}
	error_move(err, &cause);
	return r;
}

int plan_log(struct atoll *a, const char *ref, size_t limit, atoll_log_fn fn, void *user,
             struct error *err)
{
	struct telling t = { .a = a, .fn = fn, .user = user };
	char id[PLAN_ID_LEN + 1];
	int r = ref ? find_plan(a, ref, id, err) : 0;

	if (r < 0)
		return r;
	return registry_log_list(a->reg, ref ? id : NULL,
	                         limit == 0 || limit > INT64_MAX ? INT64_MAX : (int64_t)limit, tell,
	                         &t, err);
}

int plan_log_output(struct atoll *a, int64_t id, atoll_output_fn fn, void *user, struct error *err)
{
	char plan[PLAN_ID_LEN + 1], name[REGISTRY_OUTPUT_LEN];
	int64_t end;
	int r = registry_log_output(a->reg, id, plan, name, err);

	if (r == 0) {
		(void)error_set(err, -ATOLL_E_NOT_FOUND, "the log has no command %lld",
		                (long long)id);
		error_hint(err, "atoll log shows their numbers");
		return -ATOLL_E_NOT_FOUND;
	}
	if (r < 0)
		return r;
	end = output_read(a, plan, name, 0, fn, user, err);
	return end < 0 ? (int)end : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Recording and making additions. See addition.h. */
#include "plan/addition.h"

#include <stdlib.h>
#include <string.h>

#include "plan/choose.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/mem.h"

/* Others also make what is not in their area: entries in a repository, a process. */
static bool stays_in_area(const struct addition *add)
{
	const char *named = add->resource->strategy;

	return !named || strcmp(named, "overlay") == 0;
}

bool additions_in_store(const struct additions *adds, const struct atoll *a)
{
	cleanup_free char *plans = xasprintf("%s/plans/", a->home);
	size_t len = strlen(plans);

	for (size_t i = 0; i < adds->rows.n; i++)
		if (!stays_in_area(&adds->v[i]) || strncmp(adds->rows.v[i].area, plans, len) != 0 ||
		    strncmp(adds->rows.v[i].work, plans, len) != 0)
			return false;
	return adds->rows.n > 0;
}

static int record_one(struct registry *reg, struct sandbox_row *row, struct error *err)
{
	int r = registry_sandbox_insert(reg, row, err);

	/* A number is used again once its sandbox is gone; its recovery may have been cut off. */
	if (r == 0)
		r = sandbox_forget_paths(reg, row, err);
	if (r == 0)
		r = registry_path_add(reg, row->plan, row->id, row->area, err);
	if (r == 0 && strcmp(row->work, row->area) != 0)
		r = registry_path_add(reg, row->plan, row->id, row->work, err);
	return r;
}

int additions_record(struct additions *adds, struct registry *reg, struct error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < adds->rows.n; i++)
		r = record_one(reg, &adds->rows.v[i], err);
	return r;
}

/* Which way, now that there is an area to try it in. */
static int settle_strategy(struct plan_op *op, const struct addition *add, struct sandbox_row *row,
                           struct atoll_result *res, struct error *err)
{
	const char *chosen;
	char *before;
	int r = choose_strategy(op->a, row, add->root_fd, add->resource->strategy, res, &chosen,
	                        err);

	if (r < 0)
		return r;
	before = row->strategy;
	row->strategy = xstrdup(chosen);
	free(before);
	return 0;
}

static int make_one(struct plan_op *op, const struct addition *add, struct sandbox_row *row,
                    struct atoll_result *res, struct error *err)
{
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;
	const struct participant_batch notes = { .res = res };
	int r = area_make(&add->area, row->root, err);

	if (r < 0)
		return r;
	crashpoint("plan.add.after-area");
	r = settle_strategy(op, add, row, res, err);
	if (r == 0)
		r = sandbox_open(&s, op->a, op->plan.name, row, err);
	if (r < 0)
		return r;
	participant_set_batch(s.part, &notes);
	r = participant_create(s.part, err);
	if (r < 0)
		return r;
	crashpoint("plan.add.after-create");
	row->generation = participant_generation(s.part);
	row->stale = participant_stale(s.part);
	row->boot_id = xstrdup(clock_boot_id());
	return 0;
}

int additions_make(struct additions *adds, struct plan_op *op, struct atoll_result *res,
                   struct error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < adds->rows.n; i++)
		r = make_one(op, &adds->v[i], &adds->rows.v[i], res, err);
	return r;
}

int additions_complete(struct additions *adds, struct registry *reg, struct error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < adds->rows.n; i++) {
		r = registry_sandbox_update(reg, &adds->rows.v[i], err);
		if (r == 0)
			r = registry_sandbox_set_state(reg, adds->rows.v[i].id,
			                               ATOLL_SANDBOX_CREATED, "", err);
	}
	return r;
}

void additions_report(const struct additions *adds, struct atoll_result *res)
{
	for (size_t i = 0; i < adds->rows.n; i++) {
		const struct sandbox_row *row = &adds->rows.v[i];
		struct atoll_participant_result *line =
			result_row(res, row->id, row->root, row->strategy);

		durable_note_later(row);
		if (!line)
			continue;
		line->outcome = ATOLL_OUTCOME_UNCHANGED;
		line->state = ATOLL_SANDBOX_CREATED;
	}
}

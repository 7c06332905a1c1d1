/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at jobs takes no lock; ending one takes it from nobody: its holder is ended. */
#include "plan/job.h"

#include <stdio.h>
#include <string.h>

#include "plan/output.h"
#include "util/clock.h"

/* Is it the grant of ROW that holds the plan's lock? Then *ret_pid follows it. */
static bool is_running(struct atoll *a, const struct job_row *row, pid_t *ret_pid)
{
	char file[PLAN_ID_LEN + sizeof(".plan")];
	struct ticket_holder who = { 0 };

	*ret_pid = 0;
	if (row->ended_ms != 0 || strcmp(row->boot, clock_boot_id()) != 0)
		return false;
	(void)snprintf(file, sizeof(file), "%s.plan", row->plan);
	if (ticket_peek(registry_locks_fd(a->reg), file, &who) <= 0 ||
	    who.epoch != (uint64_t)row->epoch)
		return false;
	*ret_pid = who.pid;
	return true;
}

/* ---- looking ---- */

struct looking {
	struct atoll *a;
	atoll_job_fn fn;
	void *user;
};

/* The same run, as it has ended by now. */
static int take_end(void *ctx, const struct job_row *row)
{
	struct job_row *now = ctx;

	if (strcmp(row->name, now->name) == 0 && row->epoch == now->epoch) {
		now->ended_ms = row->ended_ms;
		now->exit_code = row->exit_code;
		now->term_signal = row->term_signal;
	}
	return 0;
}

static int tell(void *ctx, const struct job_row *read)
{
	const struct looking *l = ctx;
	struct output_size size = { 0 };
	struct job_row now = *read, *row = &now;
	struct plan_row plan;
	pid_t pid;
	bool runs = is_running(l->a, row, &pid);
	struct atoll_job job = { .plan_id = row->plan,
		                 .plan_name = "",
		                 .name = row->name,
		                 .command = row->argv,
		                 .state = runs            ? ATOLL_JOB_RUNNING
		                          : row->ended_ms ? ATOLL_JOB_ENDED
		                                          : ATOLL_JOB_LOST,
		                 .started_ms = row->started_ms,
		                 .ended_ms = row->ended_ms,
		                 .exit_code = row->exit_code,
		                 .term_signal = row->term_signal,
		                 .pid = pid };

	/* It may have ended, and let go of the lock, since its row was read. */
	if (job.state == ATOLL_JOB_LOST &&
	    registry_job_list(l->a->reg, row->plan, take_end, &now, NULL) == 0 && now.ended_ms) {
		job.state = ATOLL_JOB_ENDED;
		job.ended_ms = now.ended_ms;
		job.exit_code = now.exit_code;
		job.term_signal = now.term_signal;
	}
	if (registry_plan_get(l->a->reg, row->plan, &plan, NULL) == 0)
		job.plan_name = plan.name;
	if (output_size(l->a, row->plan, row->output, &size) > 0) {
		job.output_bytes = size.bytes;
		job.output_left_out = size.left_out;
	}
	return l->fn(l->user, &job);
}

int job_list(struct atoll *a, const char *ref, atoll_job_fn fn, void *user, struct error *err)
{
	struct looking l = { .a = a, .fn = fn, .user = user };
	struct plan_row row;
	int r = ref ? registry_plan_resolve(a->reg, ref, &row, err) : 0;

	return r < 0 ? r : registry_job_list(a->reg, ref ? row.id : NULL, tell, &l, err);
}

/* ---- one of them ---- */

struct finding {
	struct atoll *a;
	const char *name; /* NULL: the one that runs */
	struct job_row row;
	bool found, runs;
	pid_t pid;
};

static int find_row(void *ctx, const struct job_row *row)
{
	struct finding *f = ctx;
	pid_t pid;
	bool runs = is_running(f->a, row, &pid);

	if (f->found || !(f->name ? strcmp(f->name, row->name) == 0 : runs))
		return 0;
	f->row = *row;
	f->row.argv = NULL; /* the list's */
	f->runs = runs;
	f->pid = pid;
	f->found = true;
	return 0;
}

static int find_job(struct atoll_plan *p, const char *name, struct finding *ret, struct error *err)
{
	int r;

	*ret = (struct finding){ .a = p->a, .name = name };
	r = registry_job_list(p->a->reg, p->id, find_row, ret, err);
	if (r < 0 || ret->found || !name)
		return r;
	(void)error_set(err, -ATOLL_E_NOT_FOUND, "plan '%s' has no job '%s'", p->name, name);
	error_hint(err, "atoll job list %s", p->name);
	return -ATOLL_E_NOT_FOUND;
}

int job_running(struct atoll_plan *p, char ret_name[LIMIT_NAME + 1], struct error *err)
{
	struct finding f;
	int r = find_job(p, NULL, &f, err);

	if (r < 0 || !f.found)
		return r;
	memcpy(ret_name, f.row.name, LIMIT_NAME + 1);
	return 1;
}

int64_t job_output(struct atoll_plan *p, const char *name, uint64_t offset, atoll_output_fn fn,
                   void *user, struct error *err)
{
	struct finding f;
	int r = find_job(p, name, &f, err);

	return r < 0 ? r : output_read(p->a, p->id, f.row.output, offset, fn, user, err);
}

int job_stop(struct atoll_plan *p, const char *name, struct error *err)
{
	struct atoll_lock_broken broken;
	struct finding f;
	int r = find_job(p, name, &f, err);

	if (r < 0 || !f.runs)
		return r;
	/* By its number: should it end by itself now, nobody else is hit. */
	r = lock_break(p, f.pid, &broken, err);
	return r < 0 ? r : 1;
}

void job_old_output(const struct plan_op *op, const char *name, char ret[REGISTRY_OUTPUT_LEN])
{
	struct finding f = { .a = op->a, .name = name };

	ret[0] = '\0';
	if (registry_job_list(op->a->reg, op->plan.id, find_row, &f, NULL) == 0 && f.found)
		memcpy(ret, f.row.output, REGISTRY_OUTPUT_LEN);
}

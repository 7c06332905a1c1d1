/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command beside another that runs in the plan, in its namespaces. It takes no lock: the one it
 * joins holds the plan's, and when that ends, its pid 1 ends whatever else is in there before it lets
 * go. So what this one changes is part of what is looked at, recorded and synced after that one, and
 * nobody who waits for the plan meets it.
 */
#include "plan/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/exec.h"
#include "plan/command-env.h"
#include "plan/exec-option.h"
#include "plan/fence.h"
#include "plan/here.h"
#include "plan/output.h"
#include "plan/sandbox.h"
#include "registry/news.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/mem.h"

#define JOIN_WAIT_MS 5000
#define JOIN_LOOK_NS INT64_C(5000000)

struct joining {
	struct atoll_plan *p;
	const struct exec_wishes *wishes;
	const char *line;
	int64_t started_ms;
	struct exec_usage usage;
	char output[OUTPUT_NAME_LEN];
};

static int write_log(struct registry *reg, void *ctx, struct error *err)
{
	const struct joining *jn = ctx;
	struct exec_row row = { .argv = jn->line,
		                .started_ms = jn->started_ms,
		                .ended_ms = clock_real_ms(),
		                .exit_code = jn->usage.exit_code,
		                .user_us = jn->usage.user_us,
		                .system_us = jn->usage.system_us,
		                .max_rss_kb = jn->usage.max_rss_kb,
		                .changes = -1,
		                .term_signal = jn->usage.term_signal,
		                .timed_out = jn->usage.timed_out,
		                .memory_kills = jn->usage.memory_kills,
		                .output = jn->output,
		                .job = "" };
	cleanup_free char *message = xasprintf("%s: exit %d", jn->line, jn->usage.exit_code);
	int r;

	memcpy(row.plan, jn->p->id, sizeof(row.plan));
	r = registry_exec_add(reg, &row, err);
	return r < 0 ? r : registry_news_add(reg, row.plan, "exec", message, err);
}

/* What it sees, and whether it is strict, was settled with the one it joins. */
static int check_fence(const struct atoll_fence *f, struct error *err)
{
	if (!f || (f->home == ATOLL_HOME_SCRATCH && !(f->rw && *f->rw) && !(f->ro && *f->ro) &&
	           !(f->hide && *f->hide) && !(f->profiles && *f->profiles) && !f->strict))
		return 0;
	(void)error_set(err, -ATOLL_E_UNSUPPORTED,
	                "a command that joins another sees what that one sees, and cannot be "
	                "strict; it was not run");
	error_hint(err, "give --home, --rw, --ro, --hide, --profile to the one that is joined");
	return -ATOLL_E_UNSUPPORTED;
}

/* A command that has just begun is marked as one to join a moment later. */
static bool is_joinable(const struct joining *jn, const char *area, char **ret)
{
	int64_t deadline = clock_deadline(JOIN_WAIT_MS);
	int r = 0;

	while (plan_lock_held(jn->p->a, jn->p->id)) {
		r = exec_joinable(area, ret);
		if (r != -EAGAIN || clock_boot_ns() >= deadline)
			break;
		clock_sleep_ns(JOIN_LOOK_NS);
	}
	return r > 0;
}

static int find_running(const struct joining *jn, const struct sandboxes *boxes, char **ret,
                        struct error *err)
{
	if (boxes->n > 0 && is_joinable(jn, boxes->v[0].area, ret))
		return 0;
	(void)error_set(err, -ATOLL_E_STATE,
	                "nothing runs in plan '%s' that could be joined; the command was not run",
	                jn->p->name);
	error_hint(err, "atoll exec %s --background NAME -- COMMAND first, or leave --shared out",
	           jn->p->name);
	return -ATOLL_E_STATE;
}

/* What the one that is joined has, as far as it is the plan's. */
static int build_env(const struct joining *jn, const char *cwd, const struct sandboxes *boxes,
                     struct strlist *env, struct error *err)
{
	cleanup_free char *plan = xasprintf("ATOLL_PLAN=%s", jn->p->name);
	cleanup_free char *id = xasprintf("ATOLL_PLAN_ID=%s", jn->p->id);
	cleanup_free char *pwd = xasprintf("PWD=%s", cwd);
	int r;

	fence_env(env);
	for (size_t i = 0; i < jn->wishes->env.n; i++)
		strlist_add(env, jn->wishes->env.v[i]);
	strlist_add(env, plan);
	strlist_add(env, id);
	strlist_add(env, pwd);
	for (size_t i = 0; i < boxes->n; i++) {
		const char *root = *boxes->v[i].root == '/' ? boxes->v[i].root : "";
		cleanup_free char *view = xasprintf("ATOLL_RESOURCE_%zu=%s", i + 1, root);

		strlist_add(env, view);
	}
	r = command_env_read(boxes->v[0].area, env, err);
	if (r == 0)
		sandboxes_env(boxes, env);
	return r;
}

static int run_there(struct joining *jn, const struct atoll_exec *exec,
                     const struct sandboxes *boxes, const char *join, struct error *err)
{
	cleanup_strlist struct strlist env = STRLIST_INIT;
	cleanup_free const char **setenv = NULL;
	cleanup_free char *cwd = exec_absolute_cwd(exec->cwd);
	cleanup_free char *dir = NULL;
	struct exec_output kept = { .max = (uint64_t)jn->wishes->transcript, .pass = true };
	struct control control = { .fd = jn->wishes->control };
	struct exec_options opt = { .argv = exec->argv,
		                    .cwd = cwd,
		                    .lock_fd = FD_NONE,
		                    .timeout_ms = exec->timeout_ms,
		                    .join = join };
	int r = 0;

	if (!cwd)
		return here_failed(-errno, err);
	if (jn->wishes->transcript > 0) {
		r = output_make(boxes->v[0].area, jn->output, &dir, err);
		kept.dir = dir;
		opt.output = &kept;
	}
	if (r < 0)
		return r;
	r = build_env(jn, cwd, boxes, &env, err);
	if (r < 0)
		return r;
	setenv = xcalloc(env.n + 1, sizeof(*setenv));
	for (size_t i = 0; i < env.n; i++)
		setenv[i] = env.v[i];
	opt.setenv = setenv;
	exec_wishes_apply(jn->wishes, &control, &opt);
	return exec_run(&opt, &jn->usage, err);
}

int plan_exec_shared(struct atoll_plan *p, const struct atoll_exec *exec,
                     const struct exec_wishes *wishes, struct plan_exec_result *ret,
                     struct error *err)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	cleanup_free char *line = redact_command(exec->argv);
	cleanup_free char *join = NULL;
	struct joining jn = { .p = p,
		              .wishes = wishes,
		              .line = line,
		              .started_ms = clock_real_ms() };
	struct plan_row row;
	int r = check_fence(exec->fence, err);

	if (r == 0)
		r = registry_plan_get(p->a->reg, p->id, &row, err);
	if (r == 0)
		r = sandboxes_load(p->a->reg, p->id, &boxes, err);
	if (r == 0)
		r = find_running(&jn, &boxes, &join, err);
	if (r == 0)
		r = run_there(&jn, exec, &boxes, join, err);
	if (r < 0) {
		if (*jn.output)
			output_drop(boxes.v[0].area, jn.output);
		return r;
	}
	(void)store_write(p->a, REGISTRY_NORMAL, write_log, &jn, NULL);
	*ret->status = (struct atoll_exec_status){ .exit_code = jn.usage.exit_code,
		                                   .timed_out = jn.usage.timed_out,
		                                   .term_signal = jn.usage.term_signal,
		                                   .isolated = true };
	exec_wishes_report(wishes, &jn.usage, ret->res);
	return 0;
}

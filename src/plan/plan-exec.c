/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Working in a plan: a path is given out, or a command is run. Before either, the registry says
 * durably that the workspace may be written to in this boot; afterwards the helper, in the
 * background, makes the work durable and notes it. Only while nothing is in a workspace that begins
 * empty may a command begin before that is on disk, and if it leaves nothing it was not counted
 * (durable.c).
 */
#include "plan/plan.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diff/change.h"
#include "exec/exec.h"
#include "fs/resolve.h"
#include "plan/choose.h"
#include "plan/command-env.h"
#include "plan/disk-guard.h"
#include "plan/exec-option.h"
#include "plan/fence.h"
#include "plan/here.h"
#include "plan/job.h"
#include "plan/output.h"
#include "plan/place.h"
#include "plan/plan-op.h"
#include "plan/plan-view.h"
#include "plan/private-files.h"
#include "plan/sandbox.h"
#include "plan/usage.h"
#include "registry/news.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/list.h"
#include "util/mem.h"

#define JOB_OUTPUT (1 << 20) /* bytes kept of what a job prints when nobody says */
#define STILL_WRITTEN                                                                   \
	"a file of the plan that the command handed to somebody outside is still open " \
	"for writing: what he writes comes into the plan"

/* ---- giving a workspace out ---- */

/* How a workspace is wanted: by its path, or as what a command sees. */
typedef int (*give_fn)(struct atoll_participant *part, void *ctx, struct error *err);

/* A stale workspace is made anew first, while the resource holds still. */
static int open_workspace(struct plan_op *op, struct sandbox_row *row, give_fn give, void *ctx,
                          struct error *err)
{
	cleanup_resource_locks struct resource_locks *locks = NULL;
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;
	int r = sandbox_allows(row, SANDBOX_VERB_EXEC, op->plan.name, err);

	if (r == 0)
		r = sandbox_verify_root(row, err);
	if (r == 0)
		r = sandbox_verify_area(row, op->plan.name, err);
	if (r == 0 && row->stale)
		r = resource_locks_acquire(op->a, row, 1, RESOURCE_SHARED, op->what, op->deadline,
		                           &locks, err);
	if (r == 0)
		r = sandbox_open(&s, op->a, op->plan.name, row, err);
	if (r < 0)
		return r;
	r = give(s.part, ctx, err);
	row->stale = participant_stale(s.part);
	row->generation = participant_generation(s.part);
	return r;
}

/* Left alone where there is no path. */
static int give_path(struct atoll_participant *part, void *ctx, struct error *err)
{
	return participant_can(part, ATOLL_CAP_PATH) ? participant_path(part, ctx, err) : 0;
}

struct use {
	struct plan_op *op;
	struct atoll_result *res; /* for what the resources have to say of it; or NULL */
	struct sandbox_row *rows; /* whose paths are given out */
	size_t n;
	const struct strlist *env; /* that the participants want a command to have */
	const struct exec_wishes *wishes;
	struct exec *exec;       /* kept to the end: the helper ends while we record what it did */
	struct exec_output kept; /* of what it prints */
	char *output_dir;
	char output[OUTPUT_NAME_LEN]; /* the name of that, "": nothing is kept */
	struct job_row *job;          /* NULL: it is none */
	const char *line;             /* of the command, redacted; NULL: there is none */
	struct control control;       /* FD_NONE: none */
	char *no_place;               /* why a directory is not where it was wished; or NULL */
	bool recorded;
	bool early;      /* the command begins before that is on disk */
	bool idle;       /* it left nothing in any workspace */
	bool unnoted;    /* it may have left something, and the helper cannot be told to sync it */
	int64_t changes; /* afterwards, entries; -1: nobody counted */
};

static int write_use(struct registry *reg, void *ctx, struct error *err)
{
	const struct use *u = ctx;
	int r = plan_op_set_state(u->op, ATOLL_PLAN_OPEN, err);

	if (r == 0 && u->job)
		r = registry_job_put(reg, u->job, err);
	if (r == 0 && u->line)
		r = registry_news_add(reg, u->op->plan.id, "exec-begin", u->line, err);
	for (size_t i = 0; r == 0 && i < u->n; i++) {
		r = registry_sandbox_update(reg, &u->rows[i], err);
		if (r == 0 && u->rows[i].state != ATOLL_SANDBOX_ACTIVE)
			r = registry_sandbox_set_state(reg, u->rows[i].id, ATOLL_SANDBOX_ACTIVE, "",
			                               err);
	}
	return r;
}

/* Its path is out already in this boot, and nothing says that what was written since is safe. */
static bool in_use(const struct plan_op *op, const struct sandbox_row *row, bool was_stale)
{
	return op->plan.state == ATOLL_PLAN_OPEN && row->state == ATOLL_SANDBOX_ACTIVE &&
	       row->exec_n > 0 && !was_stale && strcmp(row->boot_id, clock_boot_id()) == 0 &&
	       !durable_noted(row);
}

int plan_path(struct atoll_plan *p, const char *sandbox, char **ret_path, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "path" };
	cleanup_free char *path = NULL;
	struct use use = { .op = &op, .n = 1 };
	bool was_stale;
	size_t i = 0;
	int r = plan_op_begin(&op, p, &opt, err);

	if (r < 0)
		return r;
	r = sandboxes_find(&op.boxes, sandbox, &i, err);
	if (r < 0)
		return plan_op_end(&op, r, err);
	use.rows = &op.boxes.v[i];
	was_stale = use.rows->stale;
	r = open_workspace(&op, use.rows, give_path, &path, err);
	if (r == 0 && !path)
		r = error_set(err, -ATOLL_E_UNSUPPORTED, "'%s' (%s) has no path to work at",
		              use.rows->root, use.rows->strategy);
	if (r == 0 && in_use(&op, use.rows, was_stale)) {
		op.flags |= OP_QUIET;
	} else if (r == 0) {
		durable_count(use.rows);
		r = store_write(op.a, REGISTRY_DURABLE, write_use, &use, err);
	}
	if (r == 0)
		*ret_path = take_ptr(path);
	return plan_op_end(&op, r, err);
}

/* ---- exec ---- */

/* A directory inside a resource becomes the same directory in its view. */
static int map_cwd(const struct plan_op *op, const struct strlist *paths, const char *given,
                   char **ret, struct error *err)
{
	cleanup_free char *cwd = given ? NULL : getcwd(NULL, 0);
	size_t best = SIZE_MAX, best_len = 0;
	int r;

	if (given && (r = resolve_canonical(given, &cwd)) < 0)
		return error_sys(err, r, "enter", given);
	if (!cwd)
		return here_failed(-errno, err);
	for (size_t i = 0; i < op->boxes.n; i++) {
		size_t len = strlen(op->boxes.v[i].root);

		if (*paths->v[i] && len >= best_len && path_below(cwd, op->boxes.v[i].root)) {
			best = i;
			best_len = len;
		}
	}
	*ret = best == SIZE_MAX ? xstrdup(cwd) : xasprintf("%s%s", paths->v[best], cwd + best_len);
	if (access(*ret, X_OK) == 0)
		return 0;
	(void)error_set(err, -ATOLL_E_NOT_FOUND, "'%s' cannot be entered in the plan's view: %s",
	                cwd, strerrordesc_np(errno));
	error_hint(err, "begin in a directory that is there");
	return -ATOLL_E_NOT_FOUND;
}

static void build_env(const struct plan_op *op, const struct strlist *paths, const char *cwd,
                      struct strlist *ret)
{
	cleanup_free char *plan = xasprintf("ATOLL_PLAN=%s", op->plan.name);
	cleanup_free char *id = xasprintf("ATOLL_PLAN_ID=%s", op->plan.id);
	cleanup_free char *pwd = xasprintf("PWD=%s", cwd);

	strlist_add(ret, plan);
	strlist_add(ret, id); /* so that atoll, called by the command, knows where it is */
	strlist_add(ret, pwd);
	for (size_t i = 0; i < paths->n; i++) {
		cleanup_free char *view = xasprintf("ATOLL_RESOURCE_%zu=%s", i + 1, paths->v[i]);

		strlist_add(ret, view);
	}
}

/* A path for each resource, "" for one that has none. */
static int open_all(struct plan_op *op, struct strlist *paths, struct error *err)
{
	for (size_t i = 0; i < op->boxes.n; i++) {
		cleanup_free char *path = NULL;
		int r = open_workspace(op, &op->boxes.v[i], give_path, &path, err);

		if (r < 0)
			return r;
		strlist_add(paths, path ? path : "");
	}
	return 0;
}

/* What the base was under what the command changed, before anybody changes it further; and how much that
 * is. */
static void observe(struct use *use)
{
	struct plan_op *op = use->op;

	use->changes = 0;
	use->idle = true;
	for (size_t i = 0; i < op->boxes.n; i++) {
		cleanup_sandbox struct sandbox s = SANDBOX_INIT;
		cleanup_error struct error e = ERROR_INIT;
		const struct participant_batch said = { .res = use->res };
		int r = sandbox_open(&s, op->a, op->plan.name, &op->boxes.v[i], &e);

		if (r == 0) {
			participant_set_batch(s.part, &said);
			r = participant_observe(s.part, &e);
		}
		use->idle &= r == ATOLL_NO_CHANGE;
		/* A failure only means that the commit will look again, with less to go by. */
		if (r >= 0 && participant_counts(s.part) && use->changes >= 0)
			use->changes += (int64_t)participant_changes(s.part);
		else
			use->changes = -1;
	}
}

/* Once, though a command may be tried twice. */
static int record_use(struct use *use, struct error *err)
{
	int r = 0;

	if (!use->recorded)
		r = store_write(use->op->a, use->early ? REGISTRY_NORMAL : REGISTRY_DURABLE,
		                write_use, use, err);
	use->recorded = r == 0;
	crashpoint("plan.exec.after-record");
	return r;
}

/* The registry's sync takes as long as building the views does, so both at once; the command
 * begins when the registry has it on disk that it may write. An early one runs while it is synced. */
static int follow(struct use *use, const struct exec_options *opt, struct exec_usage *ret,
                  struct error *err)
{
	bool sync;
	int r;

	if (opt->control && control_cancels(opt->control))
		return error_set(err, -ECANCELED, "nobody waits for the command; it was not run");
	r = exec_start(opt, &use->exec, err);
	if (r == 0)
		r = record_use(use, err);
	if (r == 0)
		exec_go(use->exec);
	if (r == 0 && use->early)
		r = registry_sync(use->op->a->reg, err);
	if (r < 0) {
		exec_close(take_ptr(use->exec));
		return r;
	}
	registry_tend(use->op->a->reg);
	registry_exec_expect(use->op->a->reg);
	r = exec_wait(use->exec, ret, err);
	observe(use);
	sync = !use->early || !use->idle;
	if (r < 0)
		exec_close(take_ptr(use->exec)); /* it may be tried in another way */
	else
		use->unnoted = !exec_note(use->exec, sync) && sync;
	return r;
}

static int follow_guarded(struct use *use, struct exec_options *opt, struct exec_usage *ret,
                          struct error *err)
{
	cleanup_disk_guard struct disk_guard g = DISK_GUARD_INIT;
	int r;

	disk_guard_open(&g, use->op);
	if (disk_guard_look(&g) < 0)
		return disk_guard_fail(&g, "the command was not started", err);
	if (g.n > 0) {
		opt->watch = disk_guard_look;
		opt->watch_ctx = &g;
	}
	r = follow(use, opt, ret, err);
	if (r == 0 && ret->stopped)
		r = disk_guard_fail(&g, "the command was ended, its work is kept", err);
	return r;
}

static struct {
	void (*began)(void *ctx);
	void *ctx;
} on_job;

void plan_exec_on_job(void (*began)(void *ctx), void *ctx)
{
	on_job.began = began;
	on_job.ctx = ctx;
}

static int run(struct use *use, const struct atoll_exec *exec, const struct strlist *paths,
               const char *cwd, struct exec_options *opt, struct exec_usage *ret, struct error *err)
{
	struct plan_op *op = use->op;
	cleanup_strlist struct strlist env = STRLIST_INIT;
	cleanup_free const char **setenv = NULL;
	cleanup_durable_notes struct durable_notes notes = DURABLE_NOTES_INIT;
	cleanup_close int lock_fd = FD_NONE;
	int r = 0;

	fence_env(&env);
	/* First: what says where the resources are cannot be overruled. */
	for (size_t i = 0; i < use->wishes->env.n; i++)
		strlist_add(&env, use->wishes->env.v[i]);
	build_env(op, paths, cwd, &env);
	for (size_t i = 0; i < use->env->n; i++)
		strlist_add(&env, use->env->v[i]);
	if (opt->record)
		r = command_env_keep(opt->record, use->env, err);
	if (r < 0)
		return r;
	sandboxes_env(&op->boxes, &env);
	setenv = xcalloc(env.n + 1, sizeof(*setenv));
	for (size_t i = 0; i < env.n; i++)
		setenv[i] = env.v[i];
	durable_notes_add(&notes, &op->boxes);
	if (op->lock.ticket.fd != FD_NONE)
		lock_fd = ticket_dup(&op->lock.ticket);
	opt->argv = exec->argv;
	opt->timeout_ms = exec->timeout_ms;
	opt->cwd = cwd;
	opt->setenv = setenv;
	opt->lock_fd = lock_fd < 0 ? FD_NONE : lock_fd;
	opt->syncs = notes.v;
	opt->n_syncs = notes.n;
	opt->output = *use->output ? &use->kept : NULL;
	opt->detached = use->job != NULL;
	opt->began = use->job ? on_job.began : NULL;
	opt->began_ctx = on_job.ctx;
	exec_wishes_apply(use->wishes, &use->control, opt);
	return follow_guarded(use, opt, ret, err);
}

struct exec_record {
	struct sandboxes *boxes;
	struct job_row *job;
	bool uncount; /* it left nothing where nothing was */
	struct exec_row row;
	int code;
	const char *message;
};

static int write_exec(struct registry *reg, void *ctx, struct error *err)
{
	struct exec_record *rec = ctx;
	int r = rec->code < 0 ? 0 : registry_exec_add(reg, &rec->row, err);

	if (r == 0 && rec->job)
		r = registry_job_end(reg, rec->job, err);
	for (size_t i = 0; r == 0 && rec->uncount && i < rec->boxes->n; i++) {
		durable_uncount(&rec->boxes->v[i]);
		r = registry_sandbox_update(reg, &rec->boxes->v[i], err);
	}
	if (r == 0)
		r = registry_event_add(reg, rec->row.plan, "exec", rec->code, rec->message, err);
	return r < 0 ? r : usage_write(reg, rec->boxes, err);
}

/* As a shell has it. */
static int not_run(int r)
{
	return r == -ENOENT ? 127 : r == -EACCES ? 126 : 125;
}

/* For people; losing it in a power cut harms nothing. */
static void record_exec(const struct use *use, const char *line, int64_t started_ms,
                        const struct exec_usage *usage, int r)
{
	struct plan_op *op = use->op;
	cleanup_free char *message =
		r < 0 ? xstrdup(line) : xasprintf("%s: exit %d", line, usage->exit_code);
	struct exec_record rec = { .boxes = &op->boxes,
		                   .job = use->job,
		                   .uncount = use->early && use->idle,
		                   .row = { .argv = line,
		                            .started_ms = started_ms,
		                            .ended_ms = clock_real_ms(),
		                            .exit_code = usage->exit_code,
		                            .user_us = usage->user_us,
		                            .system_us = usage->system_us,
		                            .max_rss_kb = usage->max_rss_kb,
		                            .changes = use->changes,
		                            .term_signal = usage->term_signal,
		                            .timed_out = usage->timed_out,
		                            .memory_kills = usage->memory_kills,
		                            .output = use->output,
		                            .job = use->job ? use->job->name : "" },
		                   .code = r < 0 ? r : 0,
		                   .message = message };

	if (use->job) {
		use->job->ended_ms = rec.row.ended_ms;
		use->job->exit_code = r < 0 ? not_run(r) : usage->exit_code;
		use->job->term_signal = usage->term_signal;
	}
	usage_measure(&op->boxes);
	memcpy(rec.row.plan, op->plan.id, sizeof(rec.row.plan));
	(void)store_write(op->a, REGISTRY_NORMAL, write_exec, &rec, NULL);
}

/* With views: the real working directory, the resources at their own paths. */
static int run_isolated(struct use *use, const struct atoll_exec *exec, struct views *views,
                        struct exec_usage *ret, struct error *err)
{
	cleanup_free char *given = exec_absolute_cwd(exec->cwd);
	cleanup_free char *cwd = NULL;
	cleanup_free char *tmp = NULL, *var_tmp = NULL;
	cleanup_free const char **listen = NULL;
	struct exec_options opt = { .strict = fence_is_strict(exec->fence) };
	const struct plan_op *op = use->op;
	int r;

	if (!given)
		return here_failed(-errno, err);
	r = views_tmp(op, "/tmp", &tmp, err);
	if (r == 0)
		r = views_tmp(op, "/var/tmp", &var_tmp, err);
	if (r == 0)
		r = place_choose(op, use->wishes->at, exec->fence, views, &use->no_place);
	if (r == 0)
		r = fence_views(op, exec->fence, use->wishes, views, err);
	if (r < 0)
		return r;
	cwd = views_seen(views, given);
	opt.views = views->v;
	opt.n_views = (unsigned)views->n;
	opt.tmp = tmp;
	opt.var_tmp = var_tmp;
	opt.record = op->boxes.v[0].area;
	listen = xcalloc(views->listen.n + 1, sizeof(*listen));
	for (size_t i = 0; i < views->listen.n; i++)
		listen[i] = views->listen.v[i];
	opt.listen = listen;
	return run(use, exec, &views->shown, cwd, &opt, ret, err);
}

/* Without: in the workspaces themselves, the working directory mapped. */
static int run_mapped(struct use *use, const struct atoll_exec *exec, struct exec_usage *ret,
                      struct error *err)
{
	cleanup_strlist struct strlist paths = STRLIST_INIT;
	cleanup_free char *cwd = NULL;
	struct exec_options opt = { 0 };
	int r = open_all(use->op, &paths, err);

	free(use->no_place);
	use->no_place = place_none(use->wishes->at);
	if (r == 0)
		r = map_cwd(use->op, &paths, exec->cwd, &cwd, err);
	return r < 0 ? r : run(use, exec, &paths, cwd, &opt, ret, err);
}

static int refuse_unfenced(const struct views *views, const char *why, struct error *err)
{
	(void)error_set(err, -ATOLL_E_NO_FENCE,
	                "this host cannot fence the command in: %s; nothing was run", why);
	error_hint(err, views->overlay
	                        ? "atoll doctor says what to turn on; until then the plan can "
	                          "be shown and committed"
	                        : "atoll doctor says what to turn on; with --unfenced the "
	                          "command runs, and can change every file that you can");
	return -ATOLL_E_NO_FENCE;
}

static const struct sandbox_row *find_row(const struct plan_op *op, const char *root)
{
	for (size_t i = 0; i < op->boxes.n; i++)
		if (strcmp(op->boxes.v[i].root, root) == 0)
			return &op->boxes.v[i];
	return NULL;
}

/* Where an overlay failed the host is asked again, whatever is remembered of it. The code of the error, or 0
 * where it can do all that it could: then the failure is what it says it is. */
static int explain_failure(const struct use *use, const struct views *views, struct error *err)
{
	for (size_t i = 0; i < views->n; i++) {
		const struct sandbox_row *row = views->v[i].kind == EXEC_VIEW_OVERLAY
		                                        ? find_row(use->op, views->v[i].source)
		                                        : NULL;
		enum exec_tier tier = EXEC_TIER_OVERLAY;
		cleanup_free char *why = NULL;

		if (!row || choose_again(use->op->a, row, &tier, &why, NULL) < 0 ||
		    tier == EXEC_TIER_OVERLAY)
			continue;
		if (tier == EXEC_TIER_NONE)
			return refuse_unfenced(views, why, err);
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "no overlay can be mounted over '%s' any more: %s; nothing was run",
		                row->root, why);
		error_hint(err, "atoll doctor %s says more; the plan can be shown and committed",
		           row->root);
		return -ATOLL_E_UNSUPPORTED;
	}
	return 0;
}

/* At the resources' own paths, with all of the fence. Without namespaces only what is complete without (no
 * overlay), and only for who accepts that; a view that cannot be mounted is no reason to do without. */
static int run_views(struct use *use, const struct atoll_exec *exec, struct views *views,
                     struct exec_usage *ret, struct error *err)
{
	cleanup_error struct error e = ERROR_INIT;
	int r = run_isolated(use, exec, views, ret, &e);
	bool no_namespaces = r == -ATOLL_E_UNSUPPORTED && e.op && strcmp(e.op, "namespace") == 0;
	bool strict = fence_is_strict(exec->fence);
	int why;

	if (no_namespaces && use->wishes->unfenced && !views->overlay && !strict)
		return run_mapped(use, exec, ret, err);
	why = r == -ATOLL_E_UNSUPPORTED && !strict ? explain_failure(use, views, err) : 0;
	if (why < 0)
		return why;
	if (no_namespaces && !strict)
		return refuse_unfenced(views, e.msg, err);
	if (r < 0)
		error_move(err, &e);
	return r;
}

static int prepare_output(struct use *use, struct error *err)
{
	int64_t most = use->wishes->transcript;
	int r;

	if (most <= 0 && use->job)
		most = JOB_OUTPUT;
	if (most <= 0)
		return 0;
	r = output_make(use->op->boxes.v[0].area, use->output, &use->output_dir, err);
	if (r < 0)
		return r;
	use->kept = (struct exec_output){ .dir = use->output_dir,
		                          .max = (uint64_t)most,
		                          .pass = !use->job };
	if (use->job)
		memcpy(use->job->output, use->output, sizeof(use->output));
	return 0;
}

static void finish_output(struct use *use, int r)
{
	if (*use->output && r < 0)
		output_drop(use->op->boxes.v[0].area, use->output);
	free(use->output_dir);
}

static int exec_locked(struct use *use, const struct atoll_exec *exec, struct exec_usage *ret,
                       struct error *err)
{
	cleanup_views struct views views = VIEWS_INIT;
	struct plan_op *op = use->op;
	int r = 0;

	use->env = &views.env;
	views.own_net = use->wishes->net;
	/* Nothing would be private: the command would work on what is real. */
	if (op->boxes.n == 0) {
		(void)error_set(err, -ATOLL_E_STATE, "plan '%s' has no resources; nothing was run",
		                op->plan.name);
		error_hint(err, "atoll start %s --or-open --dir PATH, or atoll rm %s",
		           op->plan.name, op->plan.name);
		return -ATOLL_E_STATE;
	}
	/* A job is on disk before it begins. */
	use->early = !use->job && op->plan.state == ATOLL_PLAN_OPEN;
	for (size_t i = 0; r == 0 && i < op->boxes.n; i++) {
		use->early &= durable_unused(&op->boxes.v[i]);
		r = open_workspace(op, &op->boxes.v[i], views_give, &views, err);
		durable_count(&op->boxes.v[i]);
	}
	if (r == 0)
		r = prepare_output(use, err);
	progress_end(&op->progress); /* the terminal is the command's from here on */
	if (r == 0)
		r = run_views(use, exec, &views, ret, err);
	return r;
}

void plan_exec_ahead(int (*helper)(void *ctx), void *ctx)
{
	exec_ahead(helper, ctx);
}

void plan_exec_end(void)
{
	exec_end();
}

pid_t plan_exec_listener(void)
{
	return exec_listener();
}

bool plan_exec_has_ended(void)
{
	return exec_has_ended();
}

bool plan_exec_was_relayed(void)
{
	return exec_was_relayed();
}

static void job_init(struct job_row *job, const struct plan_op *op, const char *name, char *line)
{
	*job = (struct job_row){ .argv = line,
		                 .epoch = (int64_t)op->lock.ticket.epoch,
		                 .started_ms = clock_real_ms() };
	(void)snprintf(job->plan, sizeof(job->plan), "%s", op->plan.id);
	(void)snprintf(job->name, sizeof(job->name), "%s", name);
	(void)snprintf(job->boot, sizeof(job->boot), "%s", clock_boot_id());
}

int plan_exec(struct atoll_plan *p, const struct atoll_exec *exec, const struct exec_wishes *wishes,
              struct plan_exec_result *ret, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	cleanup_free char *line = redact_command(exec->argv);
	const struct plan_op_options opt = { .verb = "exec", .detail = line, .flags = OP_QUIET };
	struct use use = { .op = &op,
		           .res = ret->res,
		           .changes = -1,
		           .wishes = wishes,
		           .line = line,
		           .control = { .fd = wishes->control } };
	cleanup_lock_cancel struct lock_cancel cancel = { 0 };
	struct exec_usage usage = { 0 };
	char old_output[REGISTRY_OUTPUT_LEN] = "";
	struct job_row job;
	int64_t started_ms;
	int r;

	if (wishes->shared)
		return plan_exec_shared(p, exec, wishes, ret, err);
	if (wishes->control != FD_NONE)
		lock_cancel_begin(&cancel, control_cancels, &use.control);
	r = plan_op_begin(&op, p, &opt, err);
	if (r < 0)
		return r;
	if (wishes->job) {
		job_init(&job, &op, wishes->job, line);
		job_old_output(&op, job.name, old_output);
		use.job = &job;
	}
	use.rows = op.boxes.v;
	use.n = op.boxes.n;
	started_ms = clock_real_ms();
	r = exec_locked(&use, exec, &usage, err);
	if (use.recorded && *old_output)
		output_drop(op.boxes.v[0].area, old_output);
	finish_output(&use, r);
	record_exec(&use, line, started_ms, &usage, r);
	/* The helper, which is told to otherwise, has ended or was let go of. */
	use.unnoted |= r < 0 && use.recorded && !use.exec;
	exec_close(use.exec);
	/* Of what is still being written nothing is noted. */
	if (use.unnoted && exec_bury(op.boxes.v[0].area, NULL) < 0)
		use.unnoted = false;
	for (size_t i = 0; use.unnoted && i < op.boxes.n; i++)
		durable_note_later(&op.boxes.v[i]);
	if (r == 0 && use.no_place)
		result_note(ret->res, ATOLL_NOTE_WARNING, "", "", use.no_place);
	free(use.no_place);
	if (r == 0) {
		*ret->status = (struct atoll_exec_status){ .exit_code = usage.exit_code,
			                                   .timed_out = usage.timed_out,
			                                   .term_signal = usage.term_signal,
			                                   .isolated = usage.isolated };
		exec_wishes_report(wishes, &usage, ret->res);
		if (usage.isolated)
			private_files_report(op.boxes.v[0].area, op.plan.name, ret->res);
		if (usage.still_written)
			result_note(ret->res, ATOLL_NOTE_WARNING, "", "", STILL_WRITTEN);
	}
	return plan_op_end(&op, r, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * include/atoll.h: checks of arguments, and struct error into struct atoll_result. Nothing is
 * decided here.
 */
#include "plan/plan.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/digest.h"
#include "plan/exec-option.h"
#include "plan/hold.h"
#include "plan/job.h"
#include "plan/news.h"
#include "plan/plan-undo.h"
#include "strategy/strategy.h"
#include "util/cleanup.h"

#ifndef ATOLL_VERSION
#define ATOLL_VERSION "0.1.0"
#endif

/* Every call ends here: RES says how, whatever it said before. */
static int finish(struct atoll_result *res, struct error *err, int r)
{
	return result_set(res, err, r);
}

static int refuse(struct atoll_result *res, const char *what)
{
	cleanup_error struct error err = ERROR_INIT;

	result_reset(res);
	return finish(res, &err, error_set(&err, -ATOLL_E_INVALID, "%s", what));
}

static bool is_text(const char *s)
{
	return s && *s;
}

/* A forked child must not use its parent's handle: locks and database are not its own. */
static int check_handle(const struct atoll *a, struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;

	result_reset(res);
	if (!a)
		return refuse(res, "no store is open");
	if (a->pid == getpid())
		return 0;
	return finish(
		res, &err,
		error_set(&err, -ATOLL_E_STATE,
	                  "this handle was opened by another process; a child opens its own"));
}

static int check_plan(const struct atoll_plan *p, struct atoll_result *res)
{
	return p ? check_handle(p->a, res) : refuse(res, "no plan is given");
}

/* Runs CALL between the check of a handle and the filling of RES. */
#define ANSWER(check, call)                          \
	cleanup_error struct error err = ERROR_INIT; \
	int checked = (check);                       \
                                                     \
	return checked < 0 ? checked : finish(res, &err, (call))

const char *atoll_version(void)
{
	return ATOLL_VERSION;
}

const char *atoll_code_name(int code)
{
	return error_code_name(code);
}

int atoll_code_exit(int code)
{
	return error_code_exit(code);
}

/* ---- store ---- */

int atoll_open(const char *home, struct atoll **ret_atoll, struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;

	if (!ret_atoll || (home && !*home))
		return refuse(res,
		              "atoll_open: a place for the handle is needed, and a home that is "
		              "not empty");
	result_reset(res);
	return finish(res, &err, store_open(home, ret_atoll, &err));
}

void atoll_close(struct atoll *a)
{
	store_close(a);
}

const char *atoll_home(const struct atoll *a)
{
	return a ? a->home : "";
}

void atoll_set_wait_notify(struct atoll *a, atoll_wait_fn fn, void *user)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->mutex);
	a->wait_fn = fn;
	a->wait_user = user;
	registry_set_wait(a->reg, a->wait_ms, fn, user);
	pthread_mutex_unlock(&a->mutex);
}

void atoll_set_wait(struct atoll *a, int64_t wait_ms)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->mutex);
	a->wait_ms = wait_ms;
	registry_set_wait(a->reg, wait_ms, a->wait_fn, a->wait_user);
	pthread_mutex_unlock(&a->mutex);
}

int atoll_recover(struct atoll *a, const char *plan_ref, bool accept, struct atoll_result *res)
{
	if (plan_ref && !*plan_ref)
		return refuse(res, "the plan's name is empty");
	ANSWER(check_handle(a, res), plan_recover(a, plan_ref, accept, res, &err));
}

/* ---- plans ---- */

static bool is_resource(const struct atoll_resource *r)
{
	return is_text(r->root) && (!r->strategy || *r->strategy) && (!r->parent || *r->parent);
}

static int start_bare(struct atoll *a, const char *name, unsigned flags,
                      struct atoll_plan **ret_plan, struct atoll_result *res, struct error *err)
{
	const struct atoll_start start = { .name = name, .flags = flags };
	int r = plan_start(a, &start, ret_plan, res, err);

	return r < 0 ? r : 0;
}

int atoll_plan_start(struct atoll *a, const char *name, unsigned flags,
                     struct atoll_plan **ret_plan, struct atoll_result *res)
{
	if (!ret_plan || flags & ~(ATOLL_START_OWNED | ATOLL_START_OR_OPEN))
		return refuse(res,
		              "atoll_plan_start: a place for the plan is needed, and known flags");
	ANSWER(check_handle(a, res), start_bare(a, name, flags, ret_plan, res, &err));
}

int atoll_plan_start_with(struct atoll *a, const struct atoll_start *start,
                          struct atoll_plan **ret_plan, struct atoll_result *res)
{
	if (!start || !ret_plan || (start->n_resources && !start->resources) ||
	    start->flags & ~(ATOLL_START_OWNED | ATOLL_START_OR_OPEN | ATOLL_START_AS_IS) ||
	    (start->run_dir && start->run_dir[0] != '/'))
		return refuse(res, "atoll_plan_start_with: resources and a place for the plan are "
		                   "needed, and known flags");
	for (size_t i = 0; i < start->n_resources; i++)
		if (!is_resource(&start->resources[i]))
			return refuse(res, "which resource? Its root, strategy or parent is empty");
	ANSWER(check_handle(a, res), plan_start(a, start, ret_plan, res, &err));
}

int atoll_plan_find_run(struct atoll *a, const char *run_dir, struct atoll_plan **ret_plan,
                        struct atoll_result *res)
{
	if (!is_text(run_dir) || !ret_plan)
		return refuse(res, "which directory? Its name is empty");
	ANSWER(check_handle(a, res), plan_open_run(a, run_dir, ret_plan, &err));
}

int atoll_plan_find(struct atoll *a, const char *ref, struct atoll_plan **ret_plan,
                    struct atoll_result *res)
{
	if (!is_text(ref) || !ret_plan)
		return refuse(res, "which plan? Its name is empty");
	ANSWER(check_handle(a, res), plan_open(a, ref, ret_plan, &err));
}

void atoll_plan_free(struct atoll_plan *p)
{
	if (p)
		plan_hold_end(p);
	free(p);
}

const char *atoll_plan_id(const struct atoll_plan *p)
{
	return p ? p->id : "";
}

const char *atoll_plan_name(const struct atoll_plan *p)
{
	return p ? p->name : "";
}

int atoll_plan_add(struct atoll_plan *p, const struct atoll_resource *resource,
                   struct atoll_result *res)
{
	if (!resource || !is_resource(resource))
		return refuse(res, "which resource? Its root, strategy or parent is empty");
	ANSWER(check_plan(p, res), plan_add(p, resource, res, &err));
}

static bool is_readable(void *ctx)
{
	struct pollfd p = { .fd = *(const int *)ctx, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static int hold(struct atoll_plan *p, const char *what, int cancel_fd, struct error *err)
{
	cleanup_lock_cancel struct lock_cancel cancel = { 0 };

	if (cancel_fd >= 0)
		lock_cancel_begin(&cancel, is_readable, &cancel_fd);
	return plan_hold(p, "hold", what, err);
}

int atoll_plan_hold(struct atoll_plan *p, const char *what, int cancel_fd, struct atoll_result *res)
{
	if (what && !*what)
		return refuse(res, "what for? The text is empty");
	ANSWER(check_plan(p, res), hold(p, what, cancel_fd, &err));
}

int atoll_plan_let_go(struct atoll_plan *p, struct atoll_result *res)
{
	ANSWER(check_plan(p, res), plan_let_go(p, &err));
}

int atoll_plan_list(struct atoll *a, atoll_plan_fn fn, void *user, struct atoll_result *res)
{
	if (!fn)
		return refuse(res, "no function to call");
	ANSWER(check_handle(a, res), plan_list(a, fn, user, &err));
}

int atoll_plan_show(struct atoll_plan *p, atoll_plan_fn fn, void *user, struct atoll_result *res)
{
	if (!fn)
		return refuse(res, "no function to call");
	ANSWER(check_plan(p, res), plan_show(p, fn, user, &err));
}

int atoll_plan_sandboxes(struct atoll_plan *p, atoll_sandbox_fn fn, void *user,
                         struct atoll_result *res)
{
	if (!fn)
		return refuse(res, "no function to call");
	ANSWER(check_plan(p, res), plan_sandboxes(p, fn, user, &err));
}

int atoll_plan_paths(struct atoll_plan *p, atoll_path_fn fn, void *user, struct atoll_result *res)
{
	if (!fn)
		return refuse(res, "no function to call");
	ANSWER(check_plan(p, res), plan_paths(p, fn, user, &err));
}

int atoll_plan_history(struct atoll_plan *p, atoll_event_fn fn, void *user,
                       struct atoll_result *res)
{
	if (!fn)
		return refuse(res, "no function to call");
	ANSWER(check_plan(p, res), plan_history(p, fn, user, &err));
}

void atoll_set_retention(struct atoll *a, int64_t retain_ms)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->mutex);
	a->retain_ms = retain_ms;
	pthread_mutex_unlock(&a->mutex);
}

void atoll_set_min_free(struct atoll *a, int64_t bytes)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->mutex);
	a->min_free = bytes;
	pthread_mutex_unlock(&a->mutex);
}

void atoll_set_progress(struct atoll *a, atoll_progress_fn fn, void *user)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->mutex);
	a->progress_fn = fn;
	a->progress_user = user;
	pthread_mutex_unlock(&a->mutex);
}

void atoll_set_interrupt(struct atoll *a, atoll_interrupt_fn fn, void *user)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->mutex);
	a->interrupt_fn = fn;
	a->interrupt_user = user;
	pthread_mutex_unlock(&a->mutex);
}

int atoll_log(struct atoll *a, const char *plan_ref, size_t limit, atoll_log_fn fn, void *user,
              struct atoll_result *res)
{
	if (!fn || (plan_ref && !*plan_ref))
		return refuse(res, "no function to call, or which plan? Its name is empty");
	ANSWER(check_handle(a, res), plan_log(a, plan_ref, limit, fn, user, &err));
}

void atoll_set_log_limits(struct atoll *a, int64_t max_age_ms, int64_t max_entries)
{
	if (a)
		registry_log_keep(a->reg, max_age_ms, max_entries);
}

int64_t atoll_events(struct atoll *a, int64_t after, size_t limit, atoll_news_fn fn, void *user,
                     struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	int checked = check_handle(a, res);
	int64_t last;

	if (checked < 0)
		return checked;
	if (!fn && after >= 0)
		return refuse(res, "no function to call");
	last = news_tell(a, after, limit, fn, user, &err);
	(void)finish(res, &err, last < 0 ? (int)last : 0);
	return last;
}

int atoll_events_wait(struct atoll *a, int64_t after, int64_t timeout_ms, struct atoll_result *res)
{
	ANSWER(check_handle(a, res), news_wait(a, after, timeout_ms, &err));
}

int atoll_events_fd(struct atoll *a, struct atoll_result *res)
{
	ANSWER(check_handle(a, res), news_fd(a, &err));
}

int atoll_log_output(struct atoll *a, int64_t id, atoll_output_fn fn, void *user,
                     struct atoll_result *res)
{
	if (!fn)
		return refuse(res, "nobody to tell");
	ANSWER(check_handle(a, res), plan_log_output(a, id, fn, user, &err));
}

int atoll_sandbox_path(struct atoll_plan *p, const char *sandbox, char **ret_path,
                       struct atoll_result *res)
{
	if (!ret_path || (sandbox && !*sandbox))
		return refuse(res, "which resource? Its name is empty");
	ANSWER(check_plan(p, res), plan_path(p, sandbox, ret_path, &err));
}

int atoll_sandbox_state(struct atoll_plan *p, const char *sandbox,
                        enum atoll_sandbox_state *ret_state, struct atoll_result *res)
{
	if (!ret_state || (sandbox && !*sandbox))
		return refuse(res, "which resource? Its name is empty");
	ANSWER(check_plan(p, res), plan_sandbox_state(p, sandbox, ret_state, &err));
}

int atoll_plan_exec(struct atoll_plan *p, const struct atoll_exec *exec,
                    struct atoll_exec_status *ret_status, struct atoll_result *res)
{
	return atoll_plan_exec_with(p, exec, NULL, 0, ret_status, res);
}

/* Wishes are read before anything is done. */
static int exec_with(struct atoll_plan *p, const struct atoll_exec *exec,
                     const struct atoll_exec_option *options, size_t n,
                     struct plan_exec_result *ret, struct error *err)
{
	cleanup_exec_wishes struct exec_wishes wishes = EXEC_WISHES_INIT;
	int r = exec_wishes_read(&wishes, options, n, err);

	return r < 0 ? r : plan_exec(p, exec, &wishes, ret, err);
}

int atoll_plan_exec_with(struct atoll_plan *p, const struct atoll_exec *exec,
                         const struct atoll_exec_option *options, size_t n_options,
                         struct atoll_exec_status *ret_status, struct atoll_result *res)
{
	struct atoll_exec_status ignored;
	struct plan_exec_result ret = { .status = ret_status ? ret_status : &ignored, .res = res };

	if (!exec || !exec->argv || !is_text(exec->argv[0]) || (exec->cwd && !*exec->cwd))
		return refuse(res, "no command to run");
	if (n_options > 0 && !options)
		return refuse(res, "no options are given");
	ANSWER(check_plan(p, res), exec_with(p, exec, options, n_options, &ret, &err));
}

/* ---- jobs ---- */

const char *atoll_job_state_name(enum atoll_job_state s)
{
	static const char *const names[ATOLL_JOB_STATE_END_] = {
		[ATOLL_JOB_RUNNING] = "running",
		[ATOLL_JOB_ENDED] = "ended",
		[ATOLL_JOB_LOST] = "lost",
	};

	return (unsigned)s < ATOLL_JOB_STATE_END_ ? names[s] : "unknown";
}

int atoll_job_list(struct atoll *a, const char *plan_ref, atoll_job_fn fn, void *user,
                   struct atoll_result *res)
{
	if (!fn || (plan_ref && !*plan_ref))
		return refuse(res, "nobody to tell, or a plan without a name");
	ANSWER(check_handle(a, res), job_list(a, plan_ref, fn, user, &err));
}

int64_t atoll_job_output(struct atoll_plan *p, const char *name, uint64_t offset,
                         atoll_output_fn fn, void *user, struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	int checked = is_text(name) && fn ? check_plan(p, res) : refuse(res, "which job?");
	int64_t end;

	if (checked < 0)
		return checked;
	end = job_output(p, name, offset, fn, user, &err);
	(void)finish(res, &err, end < 0 ? (int)end : 0);
	return end;
}

int atoll_job_stop(struct atoll_plan *p, const char *name, struct atoll_result *res)
{
	if (!is_text(name))
		return refuse(res, "which job?");
	ANSWER(check_plan(p, res), job_stop(p, name, &err));
}

int64_t atoll_plan_diff(struct atoll_plan *p, atoll_change_fn fn, void *user,
                        struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;
	int checked = check_plan(p, res);
	int64_t n;

	if (checked < 0)
		return checked;
	n = plan_diff(p, fn, user, &err);
	(void)finish(res, &err, n < 0 ? (int)n : 0);
	return n;
}

int atoll_plan_digest(struct atoll_plan *p, char ret_digest[ATOLL_DIGEST_LEN],
                      struct atoll_result *res)
{
	if (!ret_digest)
		return refuse(res, "no place for the digest");
	ANSWER(check_plan(p, res), digest_plan(p, ret_digest, &err));
}

/* ---- decide ---- */

#define COMMIT_FLAGS                                                                        \
	(ATOLL_ALLOW_SPECIAL | ATOLL_ALLOW_SETUID | ATOLL_ALLOW_PARTIAL |                   \
	 ATOLL_ALLOW_GIT_PROGRAMS | ATOLL_ALLOW_OPEN_DATABASE | ATOLL_DENY_ESCAPING_LINKS | \
	 ATOLL_NO_UNDO | ATOLL_DRY_RUN | ATOLL_FF_ONLY)

int atoll_plan_commit_with(struct atoll_plan *p, const struct atoll_commit *commit,
                           struct atoll_result *res)
{
	if (!commit || commit->flags & ~COMMIT_FLAGS)
		return refuse(res, "commit does not know this flag");
	if (commit->digest && !digest_is_text(commit->digest))
		return refuse(res, "a digest has 64 digits of 0 to 9 and a to f");
	ANSWER(check_plan(p, res), plan_commit(p, commit, res, &err));
}

int atoll_plan_commit(struct atoll_plan *p, unsigned flags, struct atoll_result *res)
{
	const struct atoll_commit all = { .flags = flags };

	return atoll_plan_commit_with(p, &all, res);
}

int atoll_plan_rollback(struct atoll_plan *p, unsigned flags, struct atoll_result *res)
{
	if (flags & ~(ATOLL_ALLOW_PARTIAL | ATOLL_KEEP_THEIRS | ATOLL_KEEP_WORK))
		return refuse(res, "rollback does not know this flag");
	ANSWER(check_plan(p, res), plan_rollback(p, flags, res, &err));
}

int atoll_plan_undo(struct atoll_plan *p, unsigned flags, struct atoll_result *res)
{
	const struct atoll_undo undo = { .flags = flags };

	return atoll_plan_undo_with(p, &undo, res);
}

int atoll_plan_undo_with(struct atoll_plan *p, const struct atoll_undo *undo,
                         struct atoll_result *res)
{
	if (!undo || undo->flags & ~(ATOLL_ALLOW_PARTIAL | ATOLL_KEEP_THEIRS))
		return refuse(res, "undo does not know this flag");
	ANSWER(check_plan(p, res), plan_undo(p, undo, res, &err));
}

int atoll_plan_redo(struct atoll_plan *p, struct atoll_result *res)
{
	const struct atoll_undo redo = { 0 };

	return atoll_plan_redo_with(p, &redo, res);
}

int atoll_plan_redo_with(struct atoll_plan *p, const struct atoll_undo *redo,
                         struct atoll_result *res)
{
	if (!redo || redo->flags)
		return refuse(res, "redo does not know this flag");
	if (redo->theirs && *redo->theirs)
		return refuse(res, "a redo is whole: it leaves no path as it is");
	ANSWER(check_plan(p, res), plan_redo(p, redo, res, &err));
}

int atoll_plan_reset(struct atoll_plan *p, struct atoll_result *res)
{
	ANSWER(check_plan(p, res), plan_reset(p, res, &err));
}

int atoll_plan_refresh(struct atoll_plan *p, struct atoll_result *res)
{
	ANSWER(check_plan(p, res), plan_refresh(p, res, &err));
}

int atoll_plan_keep(struct atoll_plan *p, struct atoll_result *res)
{
	ANSWER(check_plan(p, res), plan_keep(p, &err));
}

int atoll_plan_stop(struct atoll_plan *p, unsigned flags, struct atoll_result *res)
{
	if (flags & ~ATOLL_FORCE)
		return refuse(res, "stop does not know this flag");
	ANSWER(check_plan(p, res), plan_stop(p, flags, res, &err));
}

/* ---- keeping house ---- */

int atoll_scan(struct atoll *a, atoll_path_fn fn, void *user, struct atoll_result *res)
{
	if (!fn)
		return refuse(res, "no function to call");
	ANSWER(check_handle(a, res), cleanup_scan(a, fn, user, &err));
}

int atoll_purge(struct atoll *a, unsigned flags, struct atoll_result *res)
{
	if (flags & ~ATOLL_FORCE)
		return refuse(res, "purge does not know this flag");
	ANSWER(check_handle(a, res), cleanup_purge(a, flags, res, &err));
}

int atoll_lock_list(struct atoll *a, const char *plan_ref, atoll_lock_fn fn, void *user,
                    struct atoll_result *res)
{
	if (!fn || (plan_ref && !*plan_ref))
		return refuse(res, "no function to call, or which plan? Its name is empty");
	ANSWER(check_handle(a, res), lock_list(a, plan_ref, fn, user, &err));
}

int atoll_lock_break(struct atoll_plan *p, pid_t pid, struct atoll_lock_broken *ret_broken,
                     struct atoll_result *res)
{
	struct atoll_lock_broken ignored;

	ANSWER(check_plan(p, res), lock_break(p, pid, ret_broken ? ret_broken : &ignored, &err));
}

int atoll_count_plans(struct atoll *a, struct atoll_result *res)
{
	ANSWER(check_handle(a, res), plan_count(a, &err));
}

int atoll_count_paths(struct atoll *a, struct atoll_result *res)
{
	ANSWER(check_handle(a, res), plan_count_paths(a, &err));
}

/* ---- strategies ---- */

int atoll_strategy_register(const struct atoll_strategy *strategy, struct atoll_result *res)
{
	cleanup_error struct error err = ERROR_INIT;

	result_reset(res);
	return finish(res, &err, strategy_register(strategy, &err));
}

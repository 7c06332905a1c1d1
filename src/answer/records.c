/* SPDX-License-Identifier: Apache-2.0 */
/* What is listed: plans, sandboxes, events, lines of the log, jobs, locks, findings. */
#include "answer/answer.h"

#include "util/clock.h"

static void put_time(struct json *j, const char *key, int64_t ms)
{
	char text[CLOCK_TEXT_LEN];

	clock_format(ms, text);
	json_string(j, key, text);
}

/* What a plan is doing, and what is not decided in it. */
static void put_use(struct json *j, const struct atoll_plan_info *info)
{
	json_bool(j, "from_run", info->from_run);
	put_time(j, "used", info->used_ms);
	json_string(j, "command", *info->command ? info->command : NULL);
	json_string(j, "running", *info->running ? info->running : NULL);
	json_bool(j, "has_work", info->has_work);
	if (info->changes >= 0)
		json_int(j, "changes", info->changes);
	else
		json_null(j, "changes");
	if (info->undo_until_ms > 0 && info->undo_until_ms != INT64_MAX)
		put_time(j, "undo_until", info->undo_until_ms);
	else
		json_null(j, "undo_until");
}

int answer_plan(void *user, const struct atoll_plan_info *info)
{
	struct json *j = user;

	json_open_object(j, NULL);
	json_string(j, "id", info->id);
	json_string(j, "name", info->name);
	json_string(j, "state", atoll_plan_state_name(info->state));
	json_bool(j, "owned", info->owned);
	json_bool(j, "abandoned", info->abandoned);
	json_bool(j, "in_doubt", info->in_doubt);
	json_bool(j, "starting", info->starting);
	put_time(j, "created", info->created_ms);
	json_uint(j, "sandboxes", info->sandboxes);
	json_uint(j, "undoable_commits", info->batches);
	json_uint(j, "bytes", info->bytes);
	put_use(j, info);
	json_open_array(j, "resources");
	for (size_t i = 0; info->roots[i]; i++) {
		json_open_object(j, NULL);
		json_bytes(j, "root", info->roots[i]);
		json_string(j, "strategy", info->strategies[i]);
		json_close(j);
	}
	json_close(j);
	json_close(j);
	return 0;
}

int answer_sandbox(void *user, const struct atoll_sandbox_info *info)
{
	struct json *j = user;

	json_open_object(j, NULL);
	json_string(j, "id", info->id);
	json_bytes(j, "root", info->root);
	json_string(j, "strategy", info->strategy);
	json_string(j, "state", atoll_sandbox_state_name(info->state));
	json_bytes(j, "area", info->area);
	json_string(j, "parent", info->parent);
	json_string(j, "error", info->error);
	json_uint(j, "bytes", info->bytes);
	json_close(j);
	return 0;
}

int answer_event(void *user, const struct atoll_event *event)
{
	struct json *j = user;

	json_open_object(j, NULL);
	put_time(j, "at", event->at_ms);
	json_string(j, "what", event->what);
	json_string(j, "code", atoll_code_name(event->code));
	json_string(j, "message", event->message);
	json_close(j);
	return 0;
}

/* ---- one plan ---- */

static int put_facts(void *user, const struct atoll_plan_info *info)
{
	struct json *j = user;

	json_string(j, "state", atoll_plan_state_name(info->state));
	json_bool(j, "owned", info->owned);
	json_bool(j, "abandoned", info->abandoned);
	json_bool(j, "in_doubt", info->in_doubt);
	put_time(j, "created", info->created_ms);
	json_uint(j, "undoable_commits", info->batches);
	json_uint(j, "bytes", info->bytes);
	put_use(j, info);
	return 0;
}

int answer_show(struct json *j, struct atoll_plan *p, struct atoll_result *res)
{
	int r;

	answer_plan_of(j, p);
	r = atoll_plan_show(p, put_facts, j, res);
	json_open_array(j, "sandboxes");
	if (r >= 0)
		r = atoll_plan_sandboxes(p, answer_sandbox, j, res);
	json_close(j);
	json_open_array(j, "history");
	if (r >= 0)
		r = atoll_plan_history(p, answer_event, j, res);
	json_close(j);
	json_string(j, "code", atoll_code_name(r < 0 ? r : 0));
	return r < 0 ? r : 0;
}

/* ---- the log ---- */

static void put_output(struct json *j, const struct atoll_log_entry *e)
{
	if (e->output_bytes < 0) {
		json_null(j, "output");
		return;
	}
	json_open_object(j, "output");
	json_int(j, "id", e->id);
	json_int(j, "bytes", e->output_bytes);
	json_uint(j, "left_out", e->output_left_out);
	json_close(j);
}

static void put_ran(struct json *j, const struct atoll_log_entry *e)
{
	put_time(j, "started", e->started_ms);
	json_int(j, "exit_code", e->exit_code);
	json_int(j, "user_us", e->user_us);
	json_int(j, "system_us", e->system_us);
	json_int(j, "max_rss_kb", e->max_rss_kb);
	if (e->changes >= 0)
		json_int(j, "changes", e->changes);
	else
		json_null(j, "changes");
	json_int(j, "term_signal", e->term_signal);
	json_bool(j, "timed_out", e->timed_out);
	json_uint(j, "memory_kills", e->memory_kills);
	json_string(j, "job", *e->job ? e->job : NULL);
	put_output(j, e);
}

void answer_log_members(struct json *j, const struct atoll_log_entry *e)
{
	put_time(j, "at", e->at_ms);
	answer_plan_ref(j, e->plan_id, *e->plan_name ? e->plan_name : NULL);
	json_string(j, "what", e->what);
	json_string(j, "code", atoll_code_name(e->code));
	json_string(j, e->ran ? "command" : "message", e->message);
	if (e->ran)
		put_ran(j, e);
}

/* ---- jobs, locks, findings ---- */

int answer_job(void *user, const struct atoll_job *job)
{
	bool ended = job->state == ATOLL_JOB_ENDED;
	struct json *j = user;

	json_open_object(j, NULL);
	answer_plan_ref(j, job->plan_id, job->plan_name);
	json_string(j, "name", job->name);
	json_string(j, "command", job->command);
	json_string(j, "state", atoll_job_state_name(job->state));
	put_time(j, "started", job->started_ms);
	if (ended)
		put_time(j, "ended", job->ended_ms);
	else
		json_null(j, "ended");
	if (ended)
		json_int(j, "exit_code", job->exit_code);
	else
		json_null(j, "exit_code");
	json_int(j, "term_signal", job->term_signal);
	json_int(j, "pid", job->pid);
	json_uint(j, "output_bytes", job->output_bytes);
	json_uint(j, "output_left_out", job->output_left_out);
	json_close(j);
	return 0;
}

int answer_lock(void *user, const struct atoll_lock_info *info)
{
	struct json *j = user;

	json_open_object(j, NULL);
	json_string(j, "kind", info->kind);
	json_string(j, "plan_id", *info->plan_id ? info->plan_id : NULL);
	json_string(j, "plan_name", *info->plan_name ? info->plan_name : NULL);
	json_bytes(j, "root", info->root);
	json_bool(j, "waiting", info->ahead > 0);
	json_uint(j, "ahead", info->ahead);
	json_int(j, "pid", info->pid);
	json_bool(j, "alive", info->alive);
	json_string(j, "command", info->command);
	if (info->since_ms)
		put_time(j, "since", info->since_ms);
	else
		json_null(j, "since");
	json_close(j);
	return 0;
}

const char *answer_level_word(enum doctor_level level)
{
	static const char *const words[] = {
		[DOCTOR_OK] = "ok",
		[DOCTOR_WARNING] = "warning",
		[DOCTOR_BAD] = "bad",
	};
	_Static_assert(sizeof(words) / sizeof(words[0]) == DOCTOR_LEVEL_END_,
	               "every level has a word");

	return words[level];
}

void answer_finding(void *user, const struct doctor_finding *f)
{
	struct json *j = user;

	json_open_object(j, NULL);
	json_string(j, "level", answer_level_word(f->level));
	json_string(j, "topic", f->topic);
	json_string(j, "text", f->text);
	json_string(j, "fix", f->fix);
	json_string(j, "code", atoll_code_name(f->code));
	json_close(j);
}

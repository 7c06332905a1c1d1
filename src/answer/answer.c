/* SPDX-License-Identifier: Apache-2.0 */
/* What operations came to. */
#include "answer/answer.h"
#include "util/clock.h"

#include <string.h>

void answer_begin(struct json *j, FILE *f, const char *name)
{
	char format[64];

	(void)snprintf(format, sizeof(format), "atoll.%s/1", name);
	json_init(j, f);
	json_open_object(j, NULL);
	json_string(j, "format", format);
}

void answer_end(struct json *j)
{
	json_close(j);
	json_end(j);
}

void answer_plan_ref(struct json *j, const char *id, const char *name)
{
	json_open_object(j, "plan");
	json_string(j, "id", id);
	json_string(j, "name", name);
	json_close(j);
}

void answer_plan_of(struct json *j, const struct atoll_plan *p)
{
	answer_plan_ref(j, atoll_plan_id(p), atoll_plan_name(p));
}

static void put_fact(struct json *j, const char *key, enum atoll_fact fact)
{
	if (fact == ATOLL_FACT_NOT_TRIED)
		json_null(j, key);
	else
		json_bool(j, key, fact == ATOLL_FACT_YES);
}

void answer_cause(struct json *j, const char *op, const char *path, int os_errno,
                  const char *detail)
{
	json_open_object(j, "cause");
	json_string(j, "op", op);
	json_bytes(j, "path", path);
	json_int(j, "errno", os_errno);
	json_string(j, "errno_name", os_errno ? strerrorname_np(os_errno) : "");
	json_string(j, "detail", detail);
	json_close(j);
}

static void put_participant(struct json *j, const struct atoll_participant_result *p)
{
	json_open_object(j, NULL);
	json_string(j, "sandbox", p->sandbox);
	json_bytes(j, "root", p->root);
	json_string(j, "strategy", p->strategy);
	json_string(j, "outcome", atoll_outcome_name(p->outcome));
	json_string(j, "state", atoll_sandbox_state_name(p->state));
	put_fact(j, "resource_restored", p->resource_restored);
	put_fact(j, "workspace_reset", p->workspace_reset);
	json_uint(j, "changes", p->changes);
	json_string(j, "code", atoll_code_name(p->code));
	json_string(j, "message", p->message);
	answer_cause(j, p->cause_op, p->cause_path, p->cause_errno, "");
	json_bytes(j, "recovery_path", p->recovery_path);
	json_bool(j, "final", p->final);
	json_close(j);
}

static void put_note(struct json *j, const struct atoll_note *note)
{
	json_open_object(j, NULL);
	json_string(j, "kind", atoll_note_kind_name(note->kind));
	json_string(j, "sandbox", note->sandbox);
	json_bytes(j, "path", note->path);
	json_string(j, "text", note->text);
	json_close(j);
}

void answer_notes(struct json *j, const struct atoll_result *res)
{
	json_open_array(j, "notes");
	for (size_t i = 0; i < atoll_result_notes(res); i++)
		put_note(j, atoll_result_note(res, i));
	json_close(j);
}

void answer_participants(struct json *j, const struct atoll_result *res)
{
	json_open_array(j, "participants");
	for (size_t i = 0; i < atoll_result_participants(res); i++)
		put_participant(j, atoll_result_participant(res, i));
	json_close(j);
	answer_notes(j, res);
}

void answer_result(struct json *j, const struct atoll_result *res)
{
	bool full = atoll_result_atomicity(res) == ATOLL_ATOMICITY_FULL;

	json_string(j, "atomicity", full ? "full" : "none");
	answer_participants(j, res);
}

void answer_decided(struct json *j, const struct atoll_plan *p, unsigned flags,
                    const struct atoll_result *res)
{
	answer_plan_of(j, p);
	if (flags & ATOLL_DRY_RUN)
		json_bool(j, "dry_run", true);
	answer_result(j, res);
}

static int take_until(void *user, const struct atoll_plan_info *info)
{
	*(int64_t *)user = info->undo_until_ms;
	return 0;
}

void answer_committed(struct json *j, struct atoll_plan *p, unsigned flags,
                      const struct atoll_result *res)
{
	char text[CLOCK_TEXT_LEN];
	int64_t until_ms = 0;
	bool can = false;

	answer_decided(j, p, flags, res);
	if (flags & ATOLL_DRY_RUN)
		return;
	for (size_t i = 0; i < atoll_result_participants(res); i++) {
		const struct atoll_participant_result *one = atoll_result_participant(res, i);

		can |= one->outcome == ATOLL_OUTCOME_COMMITTED && !one->final;
	}
	if (can && !(flags & ATOLL_NO_UNDO))
		(void)atoll_plan_show(p, take_until, &until_ms, NULL);
	if (until_ms > 0 && until_ms != INT64_MAX) {
		clock_format(until_ms, text);
		json_string(j, "undo_until", text);
	} else {
		json_null(j, "undo_until");
	}
	json_bool(j, "can_undo", until_ms > 0);
}

/* Less than a listing shows: it has just been made. */
static int put_new_sandbox(void *user, const struct atoll_sandbox_info *info)
{
	struct json *j = user;

	json_open_object(j, NULL);
	json_string(j, "id", info->id);
	json_bytes(j, "root", info->root);
	json_string(j, "strategy", info->strategy);
	json_string(j, "state", atoll_sandbox_state_name(info->state));
	json_string(j, "parent", info->parent);
	json_close(j);
	return 0;
}

void answer_started(struct json *j, struct atoll_plan *p, bool opened)
{
	answer_plan_of(j, p);
	json_bool(j, "opened", opened);
	json_open_array(j, "sandboxes");
	(void)atoll_plan_sandboxes(p, put_new_sandbox, j, NULL);
	json_close(j);
}

void answer_job_state(struct json *j, const char *name, enum atoll_job_state state, int exit_code)
{
	json_string(j, "name", name);
	json_string(j, "state", atoll_job_state_name(state));
	if (state == ATOLL_JOB_ENDED)
		json_int(j, "exit_code", exit_code);
	else
		json_null(j, "exit_code");
}

void answer_lock_broken(struct json *j, const struct atoll_lock_broken *broken)
{
	json_bool(j, "broken", broken != NULL);
	if (!broken)
		return;
	json_int(j, "pid", broken->pid);
	json_string(j, "command", broken->command);
	json_string(j, "signal", broken->term_signal ? sigabbrev_np(broken->term_signal) : NULL);
}

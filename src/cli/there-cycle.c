/* SPDX-License-Identifier: Apache-2.0 */
/* What exec, shell and commit say of a cycle. */
#include "cli/there-cycle.h"

#include "cli/progress.h"

#include <inttypes.h>
#include <unistd.h>

static void tell(void *user, enum remote_notice kind, const char *text)
{
	const struct there_run *t = user;

	progress_hide();
	if (kind == REMOTE_WAITING)
		cli_tell(text);
	else
		cli_say(t->c, "atoll: %s", text);
}

/* ---- what is said ---- */

static void put_conflicts(struct json *j, const struct remote_outcome *o)
{
	json_open_array(j, "conflicts");
	for (size_t i = 0; i < o->n_conflicts; i++) {
		json_open_object(j, NULL);
		json_bytes(j, "path", o->conflicts[i].path);
		json_string(j, "why", o->conflicts[i].why);
		json_close(j);
	}
	json_close(j);
}

static void put_pull(struct json *j, const struct remote_outcome *o)
{
	json_uint(j, "pushed", o->pushed);
	json_uint(j, "pulled", o->pulled);
	json_bool(j, "committed", o->committed);
	put_conflicts(j, o);
	if (*o->plan) {
		json_open_object(j, "plan");
		json_string(j, "id", o->plan);
		json_string(j, "name", o->plan_name);
		json_close(j);
	} else {
		json_null(j, "plan");
	}
	if (o->pull_err.code) {
		json_string(j, "pull_code", atoll_code_name(o->pull_err.code));
		json_string(j, "pull_message", o->pull_err.msg);
	}
}

static void put_on(const struct there_run *t, FILE *f)
{
	const struct cli *c = t->c;
	struct json j;

	answer_begin(&j, f, "remote-cycle");
	json_string(&j, "session", t->session->row.id);
	json_string(&j, "remote", t->session->remote->name);
	if (t->out.ran) {
		cli_json_ran(c, &j);
		json_open_array(&j, "notes");
		for (size_t i = 0; i < t->out.notes.n; i++)
			json_string(&j, NULL, t->out.notes.v[i]);
		json_close(&j);
	}
	put_pull(&j, &t->out);
	cli_json_end(&j);
}

void there_report(const struct there_run *t)
{
	if (t->c->status)
		put_on(t, t->c->status);
	if (!t->c->json)
		return;
	if (t->out.ran)
		(void)putchar('\n'); /* on a line of its own, however the command's output ended */
	put_on(t, stdout);
}

static void say_conflicts(const struct there_run *t)
{
	for (size_t i = 0; i < t->out.n_conflicts; i++) {
		(void)fputs("  conflict: ", stderr);
		cli_put_path(stderr, t->out.conflicts[i].path);
		(void)fprintf(stderr, ": %s\n", t->out.conflicts[i].why);
	}
}

/* The command has ended, and that stays so; what it changed is another matter. */
void there_say(const struct there_run *t)
{
	const struct remote_outcome *o = &t->out;
	const struct cli *c = t->c;

	if (c->json)
		return;
	for (size_t i = 0; i < o->notes.n; i++)
		cli_say(c, "atoll: %s", o->notes.v[i]);
	if (o->status.timed_out)
		cli_say(c, "atoll: the command's time was up; it was ended");
	if (o->pull_err.code) {
		cli_say(c, "atoll: what the command changed is not in place here: %s",
		        o->pull_err.msg);
		say_conflicts(t);
		if (o->pull_err.hint)
			cli_say(c, "hint: %s", o->pull_err.hint);
	} else if (o->pulled > 0 && cli_is_terminal(c, stderr)) {
		cli_next(c, "atoll rollback %s undoes the %" PRIu64 " %s it made here",
		         o->plan_name, o->pulled, cli_plural(o->pulled, "change", "changes"));
	}
}

/* ---- beginning and end ---- */

int there_fail(struct there_run *t, struct error *err)
{
	if (!t->c->json)
		say_conflicts(t);
	return cli_fail_error(t->c, err);
}

void there_init(struct there_run *t, struct cli *c, enum remote_step step)
{
	*t = (struct there_run){ .c = c };
	t->run.step = step;
	t->run.unserialized = args_has(&c->args, "unserialized");
	t->run.wait_ms = c->wait_ms;
	t->run.commit_flags = cli_policy(c);
	t->run.notice = tell;
	t->run.user = t;
	t->run.in_fd = STDIN_FILENO;
	t->run.out_fd = STDOUT_FILENO;
	t->run.err_fd = STDERR_FILENO;
}

void there_done(struct there_run *t)
{
	remote_session_free(t->session);
	remote_outcome_done(&t->out);
}

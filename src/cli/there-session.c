/* SPDX-License-Identifier: Apache-2.0 */
/* atoll --remote NAME start, stop, reset, list: sessions themselves. */
#include "cli/there.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct option_row plain_options[] = {
	THERE_OPTIONS,
	{ NULL, NULL, NULL },
};

/* DONE: "started", "opened", "replaced", "stopped", "reset". DROPPED: entries; negative: not known. */
static int report(const struct cli *c, const struct remote_session *s, const char *done,
                  int64_t dropped)
{
	struct json j;

	cli_json_begin(c, &j);
	json_string(&j, "done", done);
	json_open_object(&j, "session");
	there_json_session(&j, &s->row);
	json_close(&j);
	if (dropped >= 0)
		json_int(&j, "dropped", dropped);
	else
		json_null(&j, "dropped");
	cli_json_end(&j);
	return EXIT_SUCCESS;
}

/* ---- start ---- */

static int start_run(struct cli *c)
{
	cleanup_remote_session struct remote_session *s = NULL;
	cleanup_free char *subject = NULL;
	struct error err = ERROR_INIT;
	const char *done;
	int status = there_open(c, false, c->args.n_words ? c->args.words[0] : NULL, &s);

	if (status)
		return status;
	if (!s->is_new && session_check(s, &err) < 0)
		return cli_fail_error(c, &err);
	done = s->is_replaced ? "replaced" : s->is_new ? "started" : "opened";
	if (c->json)
		return report(c, s, done, -1);
	subject = there_subject(s);
	(void)puts(s->row.id);
	if (s->is_replaced)
		cli_say(c, "replaced %s: its plan there was gone", subject);
	else if (!s->is_new)
		cli_say(c, "opened %s", subject);
	cli_next(c, "atoll --remote %s exec -- COMMAND", c->remote);
	return EXIT_SUCCESS;
}

const struct command there_start = {
	.name = "start",
	.object = "remote-session",
	.run = start_run,
	.words = "[NAME]",
	.summary = "make the session of this project and branch, or find it",
	.options = plain_options,
	.max_words = 1,
};

/* ---- stop ---- */

/* What would be lost is asked for before; with --force it is only said. */
static int check_loss(struct cli *c, struct remote_session *s, int64_t pending)
{
	struct error err = ERROR_INIT;

	if (s->row.pull_plan[0] && s->row.pull_run[0]) {
		(void)error_set(
			&err, -ATOLL_E_STATE,
			"what was pulled last is in plan %s and not settled; nothing was ended",
			s->row.pull_plan);
		error_hint(&err, "atoll diff %s --conflicts, then atoll commit; or stop --force",
		           s->row.pull_plan);
		return cli_fail_error(c, &err);
	}
	if (pending > 0) {
		(void)error_set(
			&err, -ATOLL_E_STATE,
			"%" PRId64 " %s pending there would be lost; nothing was ended", pending,
			cli_plural((uint64_t)pending, "change that is", "changes that are"));
		error_hint(&err,
		           "atoll --remote %s commit brings them here; stop --force drops them",
		           c->remote);
		return cli_fail_error(c, &err);
	}
	return 0;
}

static int say_stopped(const struct cli *c, const struct remote_session *s, int64_t pending,
                       int left)
{
	cleanup_free char *subject = there_subject(s);

	if (c->json)
		return report(c, s, "stopped", pending);
	cli_say(c, "stopped %s", subject);
	if (pending > 0)
		cli_say(c, "  dropped %" PRId64 " %s that nobody had pulled", pending,
		        cli_plural((uint64_t)pending, "change", "changes"));
	if (left)
		cli_say(c,
		        "  warning: the remote could not be asked; plan %s and its mirror may still "
		        "be there",
		        s->row.plan[0] ? s->row.plan : "(unknown)");
	cli_next(c, "atoll --remote %s list shows what is left", c->remote);
	return EXIT_SUCCESS;
}

static int stop_run(struct cli *c)
{
	cleanup_remote_session struct remote_session *s = NULL;
	bool is_forced = args_has(&c->args, "force");
	struct error err = ERROR_INIT;
	int64_t pending;
	int r, status = there_open(c, true, NULL, &s);

	if (status)
		return status;
	pending = there_pending(s, &err);
	if (pending < 0 && !is_forced && err.code != -ATOLL_E_NOT_FOUND)
		return cli_fail_error(c, &err);
	error_done(&err);
	status = is_forced ? 0 : check_loss(c, s, pending);
	if (status)
		return status;
	if (is_forced && !cli_confirm(c, "drop what is pending there?")) {
		cli_say(c, "nothing was done");
		return EXIT_FAILURE;
	}
	r = session_stop(s, is_forced, &err);
	return r < 0 ? cli_fail_error(c, &err) : say_stopped(c, s, pending, r);
}

static const struct option_row stop_options[] = {
	{ "force", NULL, "also with changes that nobody has pulled, which are lost" },
	THERE_OPTIONS,
	{ NULL, NULL, NULL },
};

const struct command there_stop = {
	.name = "stop",
	.object = "remote-session",
	.run = stop_run,
	.words = "",
	.summary = "end the session: its plan and its mirror there, its record here",
	.options = stop_options,
};

/* ---- reset ---- */

static int reset_run(struct cli *c)
{
	cleanup_http_reply struct http_reply reply = HTTP_REPLY_INIT;
	cleanup_remote_session struct remote_session *s = NULL;
	cleanup_free char *subject = NULL;
	cleanup_free char *path = NULL;
	struct error err = ERROR_INIT;
	int64_t pending;
	int status = there_open(c, true, NULL, &s);

	if (status)
		return status;
	pending = there_pending(s, &err);
	path = xasprintf("/v1/plans/%s/reset", s->row.plan);
	if (pending < 0 ||
	    (pending > 0 &&
	     remote_call_token(s->remote, s->row.sandbox,
	                       &(struct http_request){ .method = "POST", .path = path }, &reply,
	                       &err) < 0))
		return cli_fail_error(c, &err);
	if (c->json)
		return report(c, s, "reset", pending);
	subject = there_subject(s);
	cli_say(c, "discarded: %s: %" PRId64 " pending %s dropped there; here nothing was changed",
	        subject, pending, cli_plural((uint64_t)pending, "change was", "changes were"));
	return EXIT_SUCCESS;
}

const struct command there_discard = {
	.name = "discard",
	.object = "remote-session",
	.run = reset_run,
	.words = "",
	.summary = "drop what is pending there",
	.options = plain_options,
};

/* ---- list ---- */

struct listing {
	const struct cli *c;
	struct json *j; /* NULL: lines */
	size_t n;
};

static int show_session(void *user, const struct session_row *row)
{
	char used[CLOCK_TEXT_LEN];
	struct listing *l = user;

	if (l->j) {
		json_open_object(l->j, NULL);
		there_json_session(l->j, row);
		json_close(l->j);
	} else {
		if (l->n == 0)
			(void)printf("%-16s %-8s %10s  %-24s  %s\n", "SESSION", "STATE",
			             "GENERATION", "USED", "PROJECT");
		clock_format(row->used_ms, used);
		(void)printf("%-16s %-8s %10" PRId64 "  %-24s  ", row->id,
		             session_state_name(row->state), row->generation, used);
		cli_put_path(stdout, row->root);
		(void)putchar(' ');
		cli_put_path(stdout, row->branch);
		(void)printf("%s\n",
		             row->pull_plan[0] && row->pull_run[0] ? "  pull not settled" : "");
	}
	l->n++;
	return 0;
}

static int list_run(struct cli *c)
{
	cleanup_remote_config struct remote_config config = { 0 };
	struct listing l = { .c = c };
	struct error err = ERROR_INIT;
	struct json j;
	int r, status = cli_open(c);

	if (status)
		return status;
	if (remote_config_find(c->remote, &config, &err) < 0)
		return cli_fail_error(c, &err);
	l.j = cli_list_begin(c, &j, "sessions", NULL);
	r = registry_session_list(c->atoll->reg, c->remote, NULL, show_session, &l, &err);
	if (r < 0 && !l.j)
		return cli_fail_error(c, &err);
	error_done(&err);
	status = cli_list_end(c, l.j, r);
	if (status == 0 && l.n == 0)
		cli_say(c, "no sessions at remote '%s'", c->remote);
	return status;
}

const struct command there_list = {
	.name = "list",
	.object = "remote-session",
	.run = list_run,
	.words = "",
	.summary = "list the sessions at the remote",
	.reads = true,
	.pages = true,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* What commands at a remote share. */
#include "cli/there.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/escape.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>

#define HEADS "refs/heads/"

static const char *branch_name(const struct session_row *row)
{
	return strncmp(row->branch, HEADS, strlen(HEADS)) == 0 ? row->branch + strlen(HEADS)
	                                                       : row->branch;
}

char *there_subject(const struct remote_session *s)
{
	cleanup_free char *root = escape_dup(s->project.root);
	cleanup_free char *branch = escape_dup(branch_name(&s->row));

	return xasprintf("session %s of '%s'%s%s%s at remote '%s'", s->row.id, root,
	                 *branch ? " (" : "", branch, *branch ? ")" : "", s->remote->name);
}

int there_open(struct cli *c, bool must_exist, const char *name, struct remote_session **ret)
{
	const struct session_wish wish = { .remote = c->remote,
		                           .dir = args_value(&c->args, "dir"),
		                           .id = args_value(&c->args, "session"),
		                           .name = name,
		                           .must_exist = must_exist };
	cleanup_free char *subject = NULL;
	struct error err = ERROR_INIT;
	int status = cli_open(c);

	if (status)
		return status;
	if (session_get(c->atoll, &wish, ret, &err) < 0)
		return cli_fail_error(c, &err);
	subject = there_subject(*ret);
	/* Elsewhere than on a terminal standard error is the command's alone. */
	if ((*ret)->is_new && (!c->command->own_exit || cli_is_terminal(c, stderr)))
		cli_say(c, "made %s", subject);
	return 0;
}

static const char *or_null(const char *text)
{
	return *text ? text : NULL;
}

void there_json_session(struct json *j, const struct session_row *row)
{
	char at[CLOCK_TEXT_LEN];

	json_string(j, "id", row->id);
	json_string(j, "remote", row->remote);
	json_bytes(j, "root", row->root);
	json_bytes(j, "branch", row->branch);
	json_string(j, "state", session_state_name(row->state));
	json_string(j, "plan", or_null(row->plan));
	json_string(j, "sandbox", or_null(row->sandbox));
	json_string(j, "head", or_null(row->head));
	json_int(j, "generation", row->generation);
	json_string(j, "pull_plan", or_null(row->pull_plan));
	json_string(j, "pulled", or_null(row->pulled));
	clock_format(row->created_ms, at);
	json_string(j, "created", at);
	clock_format(row->used_ms, at);
	json_string(j, "last_used", at);
}

int64_t there_pending(struct remote_session *s, struct error *err)
{
	static const char *const kinds[] = { "added", "changed", "deleted" };
	cleanup_http_reply struct http_reply reply = HTTP_REPLY_INIT;
	cleanup_free char *path = xasprintf("/v1/plans/%s/diff", s->row.plan);
	int64_t n = 0;

	if (s->row.state != SESSION_ACTIVE)
		return 0;
	if (remote_call(s->remote, &(struct http_request){ .method = "GET", .path = path }, &reply,
	                err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		n += http_reply_int(&reply, kinds[i], 0);
	return n;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* atoll --remote NAME diff, log: what is pending there, and what happened. */
#include "cli/there.h"

#include "util/cleanup.h"
#include "util/json-read.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHANGES_MAX (1u << 20)

static int ask(struct cli *c, struct remote_session *s, const char *what, struct http_reply *ret)
{
	cleanup_free char *path = xasprintf("/v1/plans/%s/%s", s->row.plan, what);
	struct error err = ERROR_INIT;
	int r = remote_call(s->remote, &(struct http_request){ .method = "GET", .path = path }, ret,
	                    &err);

	return r < 0 ? cli_fail_error(c, &err) : 0;
}

/* ---- diff ---- */

/* One change, or the last text that was looked for. */
struct change {
	char kind[16];
	char root[4096];
	char path[4096];
	int64_t mode;
};

struct changes {
	const struct remote_session *s;
	size_t n;
};

static int take_change(void *user, const char *key, const char *value, size_t len)
{
	struct change *ch = user;

	if (strcmp(key, "kind") == 0)
		(void)json_decode_string(value, len, ch->kind, sizeof(ch->kind));
	else if (strcmp(key, "root") == 0)
		(void)json_decode_string(value, len, ch->root, sizeof(ch->root));
	else if (strcmp(key, "path") == 0)
		(void)json_decode_string(value, len, ch->path, sizeof(ch->path));
	return 0;
}

/* At its place here: the mirror's is of no interest. */
static int show_change(void *user, size_t i, const char *value, size_t len)
{
	static const struct {
		const char *kind;
		char letter;
	} letters[] = { { "added", 'A' }, { "deleted", 'D' } };
	struct changes *all = user;
	struct change ch = { "", "", "", 0 };
	cleanup_free char *path = NULL;
	char letter = 'M';

	(void)i;
	(void)json_members(value, len, take_change, &ch);
	for (size_t k = 0; k < sizeof(letters) / sizeof(letters[0]); k++)
		if (strcmp(letters[k].kind, ch.kind) == 0)
			letter = letters[k].letter;
	path = xasprintf("%s/%s", all->s->project.root, ch.path);
	(void)printf("%c  ", letter);
	cli_put_path(stdout, path);
	(void)putchar('\n');
	all->n++;
	return 0;
}

static int take_changes(void *user, const char *key, const char *value, size_t len)
{
	return strcmp(key, "changes") == 0
	               ? json_elements(value, len, CHANGES_MAX, show_change, user)
	               : 0;
}

static int read_form(struct cli *c, const char **ret)
{
	static const struct {
		const char *option, *query;
	} forms[] = { { "stat", "diff?format=stat" }, { "patch", "diff?format=patch" } };
	size_t given = 0;

	*ret = "diff";
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (!args_has(&c->args, forms[i].option))
			continue;
		*ret = forms[i].query;
		given++;
	}
	if (given > 1)
		return cli_fail_usage(c, "diff: --stat and --patch exclude each other");
	if (given > 0 && c->json)
		return cli_fail_usage(c, "diff: --json has its own form");
	return 0;
}

static int show_diff(struct cli *c, const struct remote_session *s, const struct http_reply *reply,
                     bool is_json)
{
	struct changes all = { .s = s };

	if (c->json || !is_json) {
		(void)fwrite(reply->body, 1, reply->len, stdout);
		all.n = reply->len > 0;
	} else {
		(void)json_members(reply->body, reply->len, take_changes, &all);
	}
	if (c->json)
		all.n = (size_t)(http_reply_int(reply, "added", 0) +
		                 http_reply_int(reply, "changed", 0) +
		                 http_reply_int(reply, "deleted", 0));
	else if (all.n == 0)
		cli_say(c, "nothing is pending there");
	else
		cli_next(c, "atoll --remote %s commit brings it here; discard drops it", c->remote);
	return args_has(&c->args, "exit-code") && all.n > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int diff_run(struct cli *c)
{
	cleanup_http_reply struct http_reply reply = HTTP_REPLY_INIT;
	cleanup_remote_session struct remote_session *s = NULL;
	const char *form;
	int status = read_form(c, &form);

	if (status == 0)
		status = there_open(c, true, NULL, &s);
	if (status == 0 && s->row.state != SESSION_ACTIVE) {
		cli_say(c, "nothing is pending there: the session is being made");
		return EXIT_SUCCESS;
	}
	if (status == 0)
		status = ask(c, s, form, &reply);
	return status ? status : show_diff(c, s, &reply, strcmp(form, "diff") == 0);
}

static const struct option_row diff_options[] = {
	{ "stat", NULL, "lines added and deleted, with a graph, and totals" },
	{ "patch", NULL, "the changed lines, as git shows them" },
	{ "exit-code", NULL, "exit 1 when there are changes" },
	THERE_OPTIONS,
	{ NULL, NULL, NULL },
};

const struct command there_diff = {
	.name = "diff",
	.run = diff_run,
	.words = "",
	.summary = "show what is pending there: changed by a command, and not pulled",
	.options = diff_options,
	.pages = true,
};

/* ---- log ---- */

struct entry {
	char at[40];
	char what[32];
	char code[32];
	char command[LIMIT_COMMAND * 8];
	char message[LIMIT_COMMAND * 8];
	int64_t exit_code;
	bool ran;
};

static int take_entry(void *user, const char *key, const char *value, size_t len)
{
	struct entry *e = user;
	const struct {
		const char *name;
		char *to;
		size_t size;
	} rows[] = { { "at", e->at, sizeof(e->at) },
		     { "what", e->what, sizeof(e->what) },
		     { "code", e->code, sizeof(e->code) },
		     { "command", e->command, sizeof(e->command) },
		     { "message", e->message, sizeof(e->message) } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i].name, key) == 0)
			(void)json_decode_string(value, len, rows[i].to, rows[i].size);
	if (strcmp(key, "exit_code") == 0)
		e->ran = json_decode_int(value, len, &e->exit_code) == 0;
	return 0;
}

static int show_entry(void *user, size_t i, const char *value, size_t len)
{
	const struct cli *c = user;
	struct entry e = { 0 };

	(void)i;
	if (c->json) {
		(void)printf("%.*s\n", (int)len, value);
		return 0;
	}
	(void)json_members(value, len, take_entry, &e);
	cli_put_path(stdout, e.at);
	(void)fputs("  ", stdout);
	cli_put_path(stdout, e.what);
	if (e.ran)
		(void)printf("  exit %" PRId64 ": ", e.exit_code);
	else
		(void)printf("  %s%s", strcmp(e.code, "ok") == 0 ? "done" : e.code,
		             e.message[0] ? ": " : "");
	cli_put_path(stdout, e.ran ? e.command : e.message);
	(void)putchar('\n');
	return 0;
}

static int take_entries(void *user, const char *key, const char *value, size_t len)
{
	return strcmp(key, "entries") == 0
	               ? json_elements(value, len, CHANGES_MAX, show_entry, user)
	               : 0;
}

static int log_run(struct cli *c)
{
	cleanup_http_reply struct http_reply reply = HTTP_REPLY_INIT;
	cleanup_remote_session struct remote_session *s = NULL;
	const char *limit = args_value(&c->args, "limit");
	cleanup_free char *query = NULL;
	int status;

	if (limit && (*limit == '\0' || *limit == '0' || limit[strspn(limit, "0123456789")]))
		return cli_fail_usage(c, "option '--limit': '%s' is no number of entries", limit);
	status = there_open(c, true, NULL, &s);
	query = limit ? xasprintf("log?limit=%s", limit) : xstrdup("log");
	if (status == 0)
		status = ask(c, s, query, &reply);
	if (status)
		return status;
	(void)json_members(reply.body, reply.len, take_entries, c);
	return EXIT_SUCCESS;
}

static const struct option_row log_options[] = {
	{ "limit", "N", "the newest N entries only" },
	THERE_OPTIONS,
	{ NULL, NULL, NULL },
};

const struct command there_log = {
	.name = "log",
	.run = log_run,
	.words = "",
	.summary = "show what happened there, newest first",
	.options = log_options,
	.reads = true,
	.pages = true,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* atoll token: the keys that open the daemon (atoll serve) to clients. */
#include "cli/cli.h"

#include "auth/credential.h"
#include "cli/audit.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- what all of them share ---- */

/* Before it is tried, and again when it is known how it went. */
static int audit(struct cli *c, const char *what, const char *id, const char *outcome,
                 struct error *err)
{
	const struct audit_entry e = { .credential = id,
		                       .what = what,
		                       .plan = "",
		                       .outcome = outcome };

	return cli_audit(c, &e, err);
}

/* It is done, or has failed: the record of that must not make it look otherwise. */
static void audit_outcome(struct cli *c, const char *what, const char *id, int r)
{
	cleanup_error struct error err = ERROR_INIT;

	if (audit(c, what, id, r < 0 ? error_code_name(r) : "ok", &err) < 0)
		cli_tell(err.msg);
}

static const char *time_text(const struct cli *c, int64_t ms, char out[CLOCK_TEXT_LEN])
{
	cli_time(c, ms, out);
	return out;
}

/* ---- new ---- */

static int read_wish(struct cli *c, struct key_wish *ret)
{
	const char *scope = args_value(&c->args, "scope");
	const char *expires = args_value(&c->args, "expires");
	struct error err = ERROR_INIT;
	int64_t ms = 0;

	if (c->args.n_words < 2)
		return cli_fail_usage(c, "token new: which name?");
	if (!scope)
		return cli_fail_usage(c, "token new: which --scope: admin, agent or review?");
	*ret = (struct key_wish){ .name = c->args.words[1], .request = "" };
	if (scope_parse(scope, &ret->scope, &err) < 0)
		return cli_fail_error(c, &err);
	if (expires && (setting_parse(SETTING_UNDO_RETENTION, expires, &ms, NULL) < 0 || ms == 0)) {
		(void)error_set(
			&err, -ATOLL_E_INVALID,
			"option '--expires': '%s' is not a time, such as 12h or 30d, or never",
			expires);
		error_hint(&err, "atoll token new %s --scope %s --expires 30d", ret->name, scope);
		return cli_fail_error(c, &err);
	}
	ret->life_s = ms > 0 ? (ms + 999) / 1000 : 0;
	return 0;
}

static void say_new(const struct cli *c, const struct credential_row *row,
                    const struct secret *secret)
{
	char until[CLOCK_TEXT_LEN];
	struct json j;

	if (c->json) {
		cli_json_begin(c, &j);
		credential_write_json(&j, row);
		json_string(&j, "secret", secret->text);
		cli_json_end(&j);
		return;
	}
	(void)puts(secret->text);
	cli_say(c, "made key %s (%s), scope %s, in force until %s", row->name, row->id,
	        scope_name(row->scope),
	        row->expires_ms ? time_text(c, row->expires_ms, until) : "it is revoked");
	cli_say(c, "this is the only time it is shown: keep it where nobody else can read it");
}

static int new_key(struct cli *c)
{
	cleanup_secret struct secret secret = SECRET_INIT;
	cleanup_free char *what = NULL;
	struct credential_row row = { .id = "" };
	struct error err = ERROR_INIT;
	struct key_wish wish;
	int r, status = read_wish(c, &wish);

	if (status == 0)
		status = cli_open(c);
	if (status)
		return status;
	what = xasprintf("token new %s --scope %s", wish.name, scope_name(wish.scope));
	r = audit(c, what, "", "asked", &err);
	if (r < 0)
		return cli_fail_error(c, &err);
	r = credential_new_key(c->atoll, &wish, &secret, &row, &err);
	audit_outcome(c, what, row.id, r);
	if (r < 0)
		return cli_fail_error(c, &err);
	say_new(c, &row, &secret);
	/* What stdio has of it goes out, and is not left in its buffer. */
	(void)fflush(stdout);
	return EXIT_SUCCESS;
}

/* ---- list ---- */

struct view {
	const struct cli *c;
	struct json *j; /* NULL: lines */
	size_t n;
};

static const char *state_of(const struct credential_row *row)
{
	if (row->revoked_ms)
		return "revoked";
	return credential_left_ms(row) > 0 ? "in force" : "over";
}

static void put_line(const struct cli *c, const struct credential_row *row)
{
	char until[CLOCK_TEXT_LEN], used[CLOCK_TEXT_LEN];

	(void)printf("%s  %-5s  %-6s  %-8s  %-20s", row->id, credential_kind_name(row->kind),
	             scope_name(row->scope), state_of(row), row->name);
	if (*row->plan)
		(void)printf("  of plan %s", row->plan);
	if (row->expires_ms)
		(void)printf("  until %s", time_text(c, row->expires_ms, until));
	if (row->used_ms)
		(void)printf("  used %s", time_text(c, row->used_ms, used));
	(void)putchar('\n');
}

static int show_credential(void *user, const struct credential_row *row)
{
	struct view *v = user;

	if (v->j) {
		json_open_object(v->j, NULL);
		credential_write_json(v->j, row);
		json_close(v->j);
	} else {
		put_line(v->c, row);
	}
	v->n++;
	return 0;
}

static int list(struct cli *c)
{
	struct view v = { .c = c };
	struct error err = ERROR_INIT;
	struct json j;
	int r, status;

	if (c->args.n_words > 1)
		return cli_fail_usage(c, "token list takes no name");
	status = cli_open(c);
	if (status)
		return status;
	v.j = cli_list_begin(c, &j, "credentials", NULL);
	r = registry_credential_list(c->atoll->reg, show_credential, &v, &err);
	if (r < 0 && !v.j)
		return cli_fail_error(c, &err);
	error_done(&err);
	status = cli_list_end(c, v.j, r);
	if (status == 0 && v.n == 0)
		cli_say(c, "no keys");
	return status;
}

/* ---- revoke ---- */

static void say_revoked(const struct cli *c, const struct credential_row *row, int n)
{
	struct json j;

	if (c->json) {
		cli_json_begin(c, &j);
		json_string(&j, "id", row->id);
		json_string(&j, "kind", credential_kind_name(row->kind));
		json_string(&j, "name", row->name);
		json_int(&j, "revoked", n);
		cli_json_end(&j);
	} else if (n == 0) {
		cli_say(c, "%s %s (%s) was revoked before", credential_kind_name(row->kind),
		        row->name, row->id);
	} else {
		cli_say(c, "revoked %s %s (%s)%s", credential_kind_name(row->kind), row->name,
		        row->id, n > 1 ? " and the tokens made for it" : "");
	}
}

static int revoke_one(struct cli *c)
{
	cleanup_free char *what = NULL;
	struct credential_row row;
	struct error err = ERROR_INIT;
	int r, status;

	if (c->args.n_words < 2)
		return cli_fail_usage(c,
		                      "token revoke: which key? Its name, or an id of token list");
	status = cli_open(c);
	if (status)
		return status;
	r = credential_named(c->atoll, c->args.words[1], &row, &err);
	if (r < 0)
		return cli_fail_error(c, &err);
	what = xasprintf("token revoke %s", row.name);
	r = audit(c, what, row.id, "asked", &err);
	if (r < 0)
		return cli_fail_error(c, &err);
	r = credential_revoke(c->atoll, row.id, &err);
	audit_outcome(c, what, row.id, r);
	if (r < 0)
		return cli_fail_error(c, &err);
	say_revoked(c, &row, r);
	return EXIT_SUCCESS;
}

static int token_run(struct cli *c)
{
	static const struct {
		const char *name;
		int (*run)(struct cli *c);
	} verbs[] = { { "new", new_key }, { "list", list }, { "revoke", revoke_one } };

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i].name, c->args.words[0]) == 0)
			return verbs[i].run(c);
	BUG("'%s' is in the usage and not in the table", c->args.words[0]);
}

static const struct option_row options[] = {
	{ "scope", "admin|agent|review", "what the key may do" },
	{ "expires", "TIME",
	  "how long it is in force, such as 12h or 30d (default: until revoked)" },
	{ NULL, NULL, NULL },
};

const struct command cmd_token = {
	.name = "token",
	.run = token_run,
	.words = "new|list|revoke [NAME]",
	.summary = "make, list and revoke the keys that open the daemon to clients",
	.about =
		"new prints the key once, alone on standard output; the store keeps its SHA-256 only.\n"
		"A key is revoked by its name, a key or a token also by its id. It is refused from then\n"
		"on, and the tokens that were made for it are, too. All of this is in the audit log\n"
		"(atoll log --audit).",
	.options = options,
	.min_words = 1,
	.max_words = 2,
};

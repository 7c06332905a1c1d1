/* SPDX-License-Identifier: Apache-2.0 */
/* atoll remote: daemons on other machines, by a name. */
#include "cli/cli.h"

#include "plan/here.h"
#include "registry/session.h"
#include "remote/remote.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void put_remote(struct json *j, const struct remote_config *r)
{
	json_string(j, "name", r->name);
	json_bytes(j, "url", r->url);
	if (r->key_file)
		json_bytes(j, "key_file", r->key_file);
	else
		json_null(j, "key_file");
	if (r->ca_file)
		json_bytes(j, "ca_file", r->ca_file);
	else
		json_null(j, "ca_file");
}

static int report(struct cli *c, const char *done, const struct remote_config *r)
{
	struct json j;

	cli_json_begin(c, &j);
	json_string(&j, "done", done);
	json_open_object(&j, "remote");
	put_remote(&j, r);
	json_close(&j);
	cli_json_end(&j);
	return EXIT_SUCCESS;
}

/* ---- add ---- */

/* What is written down must mean the same wherever a command is called. */
static int take_file(struct cli *c, const char *option, char **ret)
{
	const char *given = args_value(&c->args, option);
	cleanup_free char *here = NULL;
	struct error err = ERROR_INIT;

	if (!given)
		return 0;
	if (given[0] == '/') {
		*ret = xstrdup(given);
		return 0;
	}
	here = realpath(".", NULL);
	if (!here) {
		(void)here_failed(-errno, &err);
		return cli_fail_error(c, &err);
	}
	*ret = xasprintf("%s/%s", here, given);
	return 0;
}

static int check(struct cli *c, const struct remote_config *config)
{
	cleanup_remote struct remote *r = NULL;
	struct error err = ERROR_INIT;
	int k = remote_check_name(config->name, &err);

	if (k == 0)
		k = remote_open_config(NULL, config, &r, &err);
	if (k == 0 && !args_has(&c->args, "no-check"))
		k = remote_check(r, &err);
	if (k == 0)
		return 0;
	if (k == -ATOLL_E_UNREACHABLE && err.hint)
		error_hint(&err, "%s; or --no-check, to add it all the same", err.hint);
	return cli_fail_error(c, &err);
}

static int add(struct cli *c)
{
	cleanup_remote_config struct remote_config config = { 0 };
	struct error err = ERROR_INIT;
	int status;

	if (c->args.n_words != 3)
		return cli_fail_usage(c, "remote add: which name and address? atoll remote add "
		                         "NAME URL");
	config.name = xstrdup(c->args.words[1]);
	config.url = xstrdup(c->args.words[2]);
	status = take_file(c, "key-file", &config.key_file);
	if (status == 0)
		status = take_file(c, "ca-file", &config.ca_file);
	if (status == 0)
		status = check(c, &config);
	if (status)
		return status;
	if (remote_config_add(&config, &err) < 0)
		return cli_fail_error(c, &err);
	if (c->json)
		return report(c, "added", &config);
	cli_say(c, "added remote %s%s", config.name,
	        args_has(&c->args, "no-check") ? ", unchecked" : "");
	cli_next(c, "atoll --remote %s exec -- COMMAND", config.name);
	return EXIT_SUCCESS;
}

/* ---- list ---- */

struct listing {
	struct json *j; /* NULL: lines */
	size_t n;
};

static int show_remote(void *user, const struct remote_config *r)
{
	struct listing *l = user;

	l->n++;
	if (l->j) {
		json_open_object(l->j, NULL);
		put_remote(l->j, r);
		json_close(l->j);
		return 0;
	}
	(void)printf("%-16s ", r->name);
	cli_put_path(stdout, r->url);
	if (r->key_file) {
		(void)fputs("  key ", stdout);
		cli_put_path(stdout, r->key_file);
	}
	if (r->ca_file) {
		(void)fputs("  ca ", stdout);
		cli_put_path(stdout, r->ca_file);
	}
	(void)putchar('\n');
	return 0;
}

static int list(struct cli *c)
{
	struct listing l = { 0 };
	struct error err = ERROR_INIT;
	struct json j;
	int r, status;

	if (c->args.n_words > 1)
		return cli_fail_usage(c, "remote list takes no name");
	l.j = cli_list_begin(c, &j, "remotes", NULL);
	r = remote_config_list(show_remote, &l, &err);
	if (r < 0 && !l.j)
		return cli_fail_error(c, &err);
	error_done(&err);
	status = cli_list_end(c, l.j, r);
	if (status == 0 && l.n == 0)
		cli_say(c, "no remotes");
	return status;
}

/* ---- remove ---- */

static int count_session(void *user, const struct session_row *row)
{
	(void)row;
	++*(size_t *)user;
	return 0;
}

/* Its sessions would be left there with nobody to end them. */
static int check_unused(struct cli *c, const char *name)
{
	struct error err = ERROR_INIT;
	size_t n = 0;

	if (args_has(&c->args, "force"))
		return 0;
	if (registry_session_list(c->atoll->reg, name, NULL, count_session, &n, &err) < 0)
		return cli_fail_error(c, &err);
	if (n == 0)
		return 0;
	(void)error_set(&err, -ATOLL_E_STATE, "remote '%s' has %zu %s; nothing was changed", name,
	                n, cli_plural(n, "session", "sessions"));
	error_hint(&err, "atoll --remote %s list, then stop in each project; or remove --force",
	           name);
	return cli_fail_error(c, &err);
}

static int remove_one(struct cli *c)
{
	cleanup_remote_config struct remote_config config = { 0 };
	struct error err = ERROR_INIT;
	int status;

	if (c->args.n_words != 2)
		return cli_fail_usage(c, "remote remove: which one? atoll remote remove NAME");
	status = cli_open(c);
	if (status)
		return status;
	if (remote_config_find(c->args.words[1], &config, &err) < 0)
		return cli_fail_error(c, &err);
	status = check_unused(c, config.name);
	if (status)
		return status;
	if (remote_config_remove(config.name, &err) < 0)
		return cli_fail_error(c, &err);
	if (c->json)
		return report(c, "removed", &config);
	cli_say(c, "removed remote %s; its key file stays", config.name);
	return EXIT_SUCCESS;
}

static int remote_run(struct cli *c)
{
	static const struct {
		const char *name;
		int (*run)(struct cli *c);
	} verbs[] = { { "add", add }, { "list", list }, { "remove", remove_one } };

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i].name, c->args.words[0]) == 0)
			return verbs[i].run(c);
	BUG("'%s' is in the usage and not in the table", c->args.words[0]);
}

static const struct option_row options[] = {
	{ "key-file", "FILE", "with the key that the daemon there gave out; yours alone (0600)" },
	{ "ca-file", "FILE", "certificates to trust, in PEM, instead of the system's" },
	{ "no-check", NULL, "add it although it does not answer, or refuses the key" },
	{ "force", NULL, "remove it although it has sessions" },
	{ NULL, NULL, NULL },
};

const struct command cmd_remote = {
	.name = "remote",
	.run = remote_run,
	.words = "add|list|remove [NAME] [URL]",
	.summary = "name the daemons on other machines that commands can be sent to",
	.about = "URL is https://HOST:PORT, http://127.0.0.1:PORT or unix:/PATH, and nothing\n"
		 "else. Remotes are in your settings; nothing inside a project can define one.",
	.options = options,
	.min_words = 1,
	.max_words = 3,
};

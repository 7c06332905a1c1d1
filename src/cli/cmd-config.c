/* SPDX-License-Identifier: Apache-2.0 */
/* atoll config: the settings, where each comes from, and changing them. Opens no store. */
#include "cli/cli.h"

#include "plan/settings.h"
#include "util/cleanup.h"
#include "util/suggest.h"

#include <stdlib.h>
#include <string.h>

static const char *origin(const struct setting_value *v)
{
	return v->file ? v->file : "default";
}

static void put_json(struct json *j, const char *key, enum setting which, const struct settings *s)
{
	const struct setting_value *v = &s->v[which];

	json_open_object(j, key);
	json_string(j, "key", setting_rows[which].key);
	json_bytes(j, "value", v->text);
	json_bytes(j, "origin", origin(v));
	if (v->file)
		json_uint(j, "line", v->line);
	json_string(j, "default", setting_rows[which].fallback);
	json_string(j, "help", setting_rows[which].help);
	json_close(j);
}

static void put_line(const struct cli *c, enum setting which, bool with_key)
{
	const struct setting_value *v = &c->settings.v[which];

	if (args_has(&c->args, "show-origin")) {
		cli_put_path(stdout, origin(v));
		if (v->file)
			(void)printf(":%u", v->line);
		(void)putchar('\t');
	}
	if (with_key)
		(void)printf("%s=", setting_rows[which].key);
	cli_put_path(stdout, v->text);
	(void)putchar('\n');
}

static int list(struct cli *c, enum setting which)
{
	struct json j;

	(void)which;
	if (!c->json) {
		for (size_t i = 0; i < SETTING_END_; i++)
			put_line(c, (enum setting)i, true);
		for (size_t i = 0; i < c->settings.unknown.n; i++)
			cli_say(c, "atoll: unknown, so without effect: %s",
			        c->settings.unknown.v[i]);
		return EXIT_SUCCESS;
	}
	cli_json_begin(c, &j);
	json_open_array(&j, "settings");
	for (size_t i = 0; i < SETTING_END_; i++)
		put_json(&j, NULL, (enum setting)i, &c->settings);
	json_close(&j);
	json_open_array(&j, "unknown");
	for (size_t i = 0; i < c->settings.unknown.n; i++)
		json_string(&j, NULL, c->settings.unknown.v[i]);
	json_close(&j);
	cli_json_end(&j);
	return EXIT_SUCCESS;
}

static int get(struct cli *c, enum setting which)
{
	struct json j;

	if (!c->json) {
		put_line(c, which, false);
		return EXIT_SUCCESS;
	}
	cli_json_begin(c, &j);
	put_json(&j, "setting", which, &c->settings);
	cli_json_end(&j);
	return EXIT_SUCCESS;
}

/* What counts may be another value than what was written: the other file's. */
static int report_change(struct cli *c, enum setting which, const char *path)
{
	cleanup_settings struct settings now = SETTINGS_INIT;
	struct error err = ERROR_INIT;
	struct json j;

	if (settings_load(&now, &err) < 0)
		return cli_fail_error(c, &err);
	if (c->json) {
		cli_json_begin(c, &j);
		json_bytes(&j, "file", path);
		put_json(&j, "setting", which, &now);
		cli_json_end(&j);
		return EXIT_SUCCESS;
	}
	cli_say(c, "%s is %s now (%s)", setting_rows[which].key,
	        *now.v[which].text ? now.v[which].text : "empty", origin(&now.v[which]));
	return EXIT_SUCCESS;
}

static int change(struct cli *c, enum setting which, const char *value)
{
	enum settings_scope scope = args_has(&c->args, "system") ? SETTINGS_SYSTEM : SETTINGS_USER;
	cleanup_free char *path = settings_path(scope);
	struct error err = ERROR_INIT;

	if (settings_write(scope, which, value, &err) < 0)
		return cli_fail_error(c, &err);
	return report_change(c, which, path);
}

static int set(struct cli *c, enum setting which)
{
	return change(c, which, c->args.words[2]);
}

static int unset(struct cli *c, enum setting which)
{
	return change(c, which, NULL);
}

static const struct {
	const char *name;
	size_t words; /* itself included */
	int (*run)(struct cli *c, enum setting which);
	bool changes;
} verbs[] = {
	{ "list", 1, list, false },
	{ "get", 2, get, false },
	{ "set", 3, set, true },
	{ "unset", 2, unset, true },
};
#define N_VERBS (sizeof(verbs) / sizeof(verbs[0]))

static int unknown_key(struct cli *c, const char *key)
{
	struct suggestions s = { .wanted = key };
	struct error err = ERROR_INIT;

	for (size_t i = 0; i < SETTING_END_; i++)
		suggest_try(&s, setting_rows[i].key, strlen(setting_rows[i].key));
	(void)error_set(&err, -ATOLL_E_INVALID, "there is no setting '%s'", key);
	error_hint(&err, "atoll config list");
	suggest_hint(&s, "", &err);
	return cli_fail_error(c, &err);
}

static int config_run(struct cli *c)
{
	const char *verb = c->args.n_words > 0 ? c->args.words[0] : "list";
	size_t n = c->args.n_words > 0 ? c->args.n_words : 1, i;
	enum setting which = SETTING_END_;

	for (i = 0; i < N_VERBS && strcmp(verbs[i].name, verb) != 0; i++)
		;
	if (i == N_VERBS)
		BUG("'%s' is in the usage and not in the table", verb);
	if (n != verbs[i].words)
		return cli_fail_usage(c, "config %s takes %s", verb,
		                      verbs[i].words == 1   ? "no word"
		                      : verbs[i].words == 2 ? "a key"
		                                            : "a key and a value");
	if (n > 1 && (which = setting_find(c->args.words[1])) == SETTING_END_)
		return unknown_key(c, c->args.words[1]);
	/* A change may be the very repair. */
	if (!verbs[i].changes && c->settings_err.code)
		return cli_fail_error(c, &c->settings_err);
	return verbs[i].run(c, which);
}

static const struct option_row options[] = {
	{ "show-origin", NULL, "say in front of each value where it comes from" },
	{ "system", NULL, "set and unset: in the machine's file, not in yours" },
	{ NULL, NULL, NULL },
};

const struct command cmd_config = {
	.name = "config",
	.run = config_run,
	.words = "[list|get|set|unset] [KEY] [VALUE]",
	.summary = "show and change settings",
	.about =
		"Settings are read from /etc/atoll/config, then from $XDG_CONFIG_HOME/atoll/config or\n"
		"~/.config/atoll/config, in the syntax of git-config(1); the later one wins, options and\n"
		"the environment win over both. No file inside a resource is read.",
	.options = options,
	.max_words = 3,
	.bare = true,
};

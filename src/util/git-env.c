/* SPDX-License-Identifier: Apache-2.0 */
#include "util/git-env.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const fixed_env[] = {
	"GIT_CONFIG_NOSYSTEM=1",
	"GIT_TERMINAL_PROMPT=0",
	"GIT_OPTIONAL_LOCKS=0",
	"GIT_NO_REPLACE_OBJECTS=1",
	"GIT_NO_LAZY_FETCH=1",
	"GIT_LITERAL_PATHSPECS=1",
	"GIT_ASKPASS=/bin/false",
	"GIT_EDITOR=/bin/false",
	"GIT_PAGER=cat",
	"GIT_ATTR_NOSYSTEM=1",
	"LC_ALL=C",
};

/* Hooks are the original's, and do not run; what else could start programs or leave work for later is
 * off. */
static const struct {
	const char *key, *value;
} fixed_config[] = {
	{ "core.hooksPath", "/dev/null" },
	{ "core.fsmonitor", "false" },
	{ "gc.auto", "0" },
	{ "maintenance.auto", "false" },
	{ "protocol.allow", "never" },
	{ "core.splitIndex", "false" },
	{ "core.fsyncMethod", "fsync" },
	{ "core.multiPackIndex", "false" },
	{ "log.showSignature", "false" }, /* runs gpg.program, and prints what that says */
};
_Static_assert(sizeof(fixed_config) / sizeof(fixed_config[0]) == GIT_ENV_CONFIGS,
               "counted in the header");

char *git_env_program(void)
{
	const char *path = getenv("PATH");

	if (!path || !*path)
		path = "/usr/local/bin:/usr/bin:/bin";
	while (*path) {
		size_t len = strcspn(path, ":");
		cleanup_free char *file = xasprintf("%.*s/git", (int)len, path);

		if (*path == '/' && access(file, X_OK) == 0)
			return take_ptr(file);
		path += len + (path[len] == ':');
	}
	return NULL;
}

void git_env_base(struct strlist *env)
{
	for (char **e = environ; e && *e; e++)
		if (strncmp(*e, "GIT_", 4) != 0 && strncmp(*e, "LC_", 3) != 0 &&
		    strncmp(*e, "LANGUAGE=", 9) != 0 && strncmp(*e, "SSH_", 4) != 0)
			strlist_add(env, *e);
	for (size_t i = 0; i < sizeof(fixed_env) / sizeof(fixed_env[0]); i++)
		strlist_add(env, fixed_env[i]);
	for (size_t i = 0; i < GIT_ENV_CONFIGS; i++) {
		cleanup_free char *key = xasprintf("GIT_CONFIG_KEY_%zu=%s", i, fixed_config[i].key);
		cleanup_free char *value =
			xasprintf("GIT_CONFIG_VALUE_%zu=%s", i, fixed_config[i].value);

		strlist_add(env, key);
		strlist_add(env, value);
	}
}

static const char *find_count(const struct strlist *env)
{
	static const char name[] = "GIT_CONFIG_COUNT";
	const size_t len = sizeof(name) - 1;

	for (size_t i = env->n; i-- > 0;) {
		if (strncmp(env->v[i], name, len) == 0 && env->v[i][len] == '=')
			return env->v[i] + len + 1;
		if (strcmp(env->v[i], name) == 0) /* taken away */
			return NULL;
	}
	return getenv(name);
}

static void add_setting(struct strlist *env, unsigned long at, const char *key, const char *value)
{
	cleanup_free char *name = xasprintf("GIT_CONFIG_KEY_%lu=%s", at, key);
	cleanup_free char *text = xasprintf("GIT_CONFIG_VALUE_%lu=%s", at, value);

	strlist_add(env, name);
	strlist_add(env, text);
}

void git_env_no_auto_gc(struct strlist *env)
{
	const char *text = find_count(env);
	unsigned long count = 0;
	cleanup_free char *sum = NULL;
	char *end;

	if (text && *text) {
		count = strtoul(text, &end, 10);
		/* What git itself will not take is left for it to refuse. */
		if (*end || strspn(text, "0123456789") == 0 || count > INT_MAX - 2)
			return;
	}
	add_setting(env, count, "gc.auto", "0");
	add_setting(env, count + 1, "maintenance.auto", "false");
	sum = xasprintf("GIT_CONFIG_COUNT=%lu", count + 2);
	strlist_add(env, sum);
}

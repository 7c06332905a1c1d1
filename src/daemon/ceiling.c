/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ceiling.h"

#include "daemon/daemon.h"
#include "diff/change.h"
#include "fs/resolve.h"
#include "plan/fence.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/gitconfig.h"

#include <stdlib.h>
#include <string.h>

/* ---- commands ---- */

/* "512m", "1.5", "90"; what is no number is not above anything, and refused by who reads it. */
static double amount_of(const char *text)
{
	int64_t n;

	return gitconfig_int(text, &n) == 0 ? (double)n : strtod(text, NULL);
}

static double amount_of_setting(const struct settings *s, enum setting which)
{
	if (setting_rows[which].kind != SETTING_DURATION)
		return amount_of(s->v[which].text);
	return s->v[which].number < 0 ? 0 : (double)s->v[which].number / 1000;
}

static bool is_above(enum ceiling ceiling, const struct settings *s, enum setting which,
                     const char *text)
{
	int64_t n = 0;
	double most;

	switch (ceiling) {
	case CEILING_NONE:
		return false;
	case CEILING_ADMIN:
		return true;
	case CEILING_AMOUNT:
		most = amount_of_setting(s, which);
		/* Put so that what is no number (NaN) is above, and so is 0: without a limit. */
		return most > 0 && !(amount_of(text) > 0 && amount_of(text) <= most);
	case CEILING_CHOICE:
		return setting_parse(which, text, &n, NULL) == 0 && n > s->v[which].number;
	case CEILING_SWITCH:
		return s->v[which].number == 0;
	}
	BUG("a member of a command has no ceiling");
}

int ceiling_member(enum ceiling ceiling, const struct settings *settings, enum setting setting,
                   const char *member, const char *text, struct error *err)
{
	if (!is_above(ceiling, settings, setting, text) || sabotage("ceilings"))
		return 0;
	if (ceiling == CEILING_ADMIN)
		return error_set(err, -ATOLL_E_DENIED,
		                 "member '%s' would reach outside the plan: it is for admins",
		                 member);
	(void)error_set(err, -ATOLL_E_DENIED,
	                "member '%s' is above what agents may have: the setting %s is %s", member,
	                setting_rows[setting].key, settings->v[setting].text);
	error_hint(err, "ask for less, or have the administrator change it: atoll config set %s",
	           setting_rows[setting].key);
	return -ATOLL_E_DENIED;
}

/* ---- resources ---- */

int ceiling_open(struct daemon *d, struct error *err)
{
	const struct strlist *given = &d->options.roots;

	for (size_t i = 0; i < given->n; i++) {
		cleanup_free char *path = NULL;
		int r = *given->v[i] == '/' ? resolve_canonical(given->v[i], &path)
		                            : -ATOLL_E_INVALID;

		if (r == -ATOLL_E_INVALID)
			return error_set(err, r, "--root: '%s' is no absolute path", given->v[i]);
		if (r < 0)
			return error_sys(err, r, "find the directory of --root", given->v[i]);
		strlist_add(&d->roots, path);
	}
	return 0;
}

static bool is_below_roots(const struct daemon *d, const char *path)
{
	for (size_t i = 0; i < d->roots.n; i++)
		if (path_below(path, d->roots.v[i]))
			return true;
	return d->roots.n == 0;
}

/* Other clients' projects. */
static bool meets_mirrors(const struct daemon *d, const char *path)
{
	cleanup_free char *place = NULL;
	const char *mirrors = d->mirrors;

	if (!mirrors)
		return false;
	if (resolve_canonical(mirrors, &place) == 0)
		mirrors = place;
	return path_below(path, mirrors) || path_below(mirrors, path);
}

static int check_path(const struct daemon *d, const char *path, struct error *err)
{
	if (!is_below_roots(d, path)) {
		(void)error_set(err, -ATOLL_E_DENIED,
		                "'%s' is not below a directory that agents may use", path);
		error_hint(err, "the administrator names them: atoll serve --root DIR");
		return -ATOLL_E_DENIED;
	}
	if (fence_is_secret(path))
		return error_set(err, -ATOLL_E_DENIED,
		                 "'%s' holds keys or passwords, and is not for agents", path);
	if (meets_mirrors(d, path))
		return error_set(err, -ATOLL_E_DENIED,
		                 "'%s' meets the mirrors of remote clients, and is not for agents",
		                 path);
	return 0;
}

int ceiling_resource(void *daemon, const struct atoll_resource *given, const char *path,
                     struct error *err)
{
	const struct daemon *d = daemon;

	if (sabotage("ceilings"))
		return 0;
	if (given->strategy && strcmp(given->strategy, "none") == 0)
		return error_set(err, -ATOLL_E_DENIED,
		                 "the strategy 'none', which protects nothing, is not for agents");
	if (path)
		return check_path(d, path, err);
	if (strlist_has(&d->options.databases, given->root))
		return 0;
	/* It may have a password in it: it is not repeated. */
	(void)error_set(err, -ATOLL_E_DENIED,
	                "the resource is none of the databases that agents may use");
	error_hint(err, "the administrator names them, each as it is asked for: atoll serve "
	                "--database URL");
	return -ATOLL_E_DENIED;
}

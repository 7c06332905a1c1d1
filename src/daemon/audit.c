/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/audit.h"

#include "auth/audit.h"
#include "auth/secret.h"
#include "daemon/daemon.h"
#include "daemon/log.h"

#include <stdio.h>
#include <string.h>

static bool is_audited(const struct call *c)
{
	return c->route && !(c->route->flags & (ROUTE_DATA | ROUTE_OPEN)) &&
	       strcmp(c->route->method, "GET") != 0;
}

/* Somebody who puts a secret where a name belongs has made a mistake; it is not kept. */
static bool is_secret(const char *arg)
{
	return strlen(arg) >= SECRET_LEN / 2 &&
	       (strncmp(arg, "atk_", 4) == 0 || strncmp(arg, "ats_", 4) == 0);
}

static const char *place(const struct call *c)
{
	for (size_t i = 0; i < c->match.n_args; i++)
		if (is_secret(c->args[i]))
			return c->route->path;
	return c->path;
}

static int note(const struct call *c, const char *outcome, struct error *err)
{
	char what[256];
	int plan = route_plan_arg(c->route);
	const struct audit_entry e = { .by = c->peer->is_unix ? AUDIT_SOCKET : AUDIT_HTTP,
		                       .who = c->who.name,
		                       .credential = c->who.credential.id,
		                       .what = what,
		                       .plan = plan < 0 || is_secret(c->args[plan]) ? ""
		                                                                    : c->args[plan],
		                       .request = c->id,
		                       .outcome = outcome };

	(void)snprintf(what, sizeof(what), "%s %s", c->route->method, place(c));
	return audit_write(auth_store(c->d->auth), &e, err);
}

int audit_asked(struct call *c)
{
	int r = is_audited(c) ? note(c, "asked", &c->err) : 0;

	c->is_asked = r == 0 && is_audited(c);
	return r;
}

void audit_answered(struct call *c, unsigned status)
{
	struct error err = ERROR_INIT;
	char outcome[64];

	/* Not yet asked, and refused: only those are written who are known. */
	if (!c->is_asked &&
	    (status != 403 || !is_audited(c) || !auth_notes_refusal(c->d->auth, &c->who)))
		return;
	c->is_asked = false;
	if (status < 400)
		(void)snprintf(outcome, sizeof(outcome), "ok%s%s", *c->outcome ? ", " : "",
		               c->outcome);
	else
		(void)snprintf(outcome, sizeof(outcome), "refused, %u", status);
	if (note(c, outcome, &err) < 0)
		log_failure("audit", &err);
	error_done(&err);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/audit.h"

#include "auth/audit.h"
#include "auth/secret.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "plan/plan.h"
#include "util/mem.h"

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

/* ---- decisions ---- */

/* Belongs to the handle. */
struct decider {
	struct atoll *atoll;
	enum audit_way by;
	char who[IDENTITY_NAME_LEN];
	char credential[CREDENTIAL_ID_LEN + 1];
	char request[CALL_ID_LEN];
};

static int note_decision(void *ctx, const struct plan_decision *d, struct error *err)
{
	const struct decider *w = ctx;
	struct error ours = ERROR_INIT;
	const struct audit_entry e = { .by = w->by,
		                       .who = w->who,
		                       .credential = w->credential,
		                       .what = d->verb,
		                       .plan = d->plan,
		                       .request = w->request,
		                       .outcome = d->code == DECISION_ASKED ? "asked"
		                                  : d->code < 0 ? error_code_name(d->code)
		                                                : "ok" };
	int r = audit_write(w->atoll, &e, err ? err : &ours);

	/* It is done: the record of that must not make it look otherwise. */
	if (r < 0 && !err)
		log_failure("audit", &ours);
	error_done(&ours);
	return r;
}

void audit_decisions(const struct call *c)
{
	struct decider *w = xcalloc(1, sizeof(*w));

	w->atoll = c->atoll;
	w->by = c->peer->is_unix ? AUDIT_SOCKET : AUDIT_HTTP;
	(void)snprintf(w->who, sizeof(w->who), "%s", c->who.name);
	(void)snprintf(w->credential, sizeof(w->credential), "%s", c->who.credential.id);
	(void)snprintf(w->request, sizeof(w->request), "%s", c->id);
	store_set_decision(c->atoll, note_decision, w);
}

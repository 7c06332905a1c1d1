/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that are started for a request. */
#include "daemon/start.h"

#include "auth/credential.h"
#include "util/random.h"

#include <stdio.h>
#include <string.h>

#define NAME_ATTEMPTS 64

static int choose(struct call *c, struct once *o, const char *name)
{
	struct plan_row row;
	int r = 1;

	random_hex(o->row.plan, PLAN_ID_LEN);
	if (name && strlen(name) >= sizeof(o->row.name))
		return error_set(&c->err, -ATOLL_E_INVALID, "'%.*s...' is no name for a plan",
		                 LIMIT_NAME, name);
	if (name) {
		(void)snprintf(o->row.name, sizeof(o->row.name), "%s", name);
		return 0;
	}
	for (int i = 0; i < NAME_ATTEMPTS && r > 0; i++) {
		plan_name_make_up(o->row.name);
		r = registry_plan_named(c->atoll->reg, o->row.name, &row, &c->err);
	}
	return r > 0 ? error_set(&c->err, -ATOLL_E_EXISTS, "no name could be made up; give one")
	             : r;
}

int start_record(struct call *c, struct once *o, const char *name)
{
	int r;

	/* By another daemon of this store, or by its last breath. */
	if (o->again && plan_lock_held(c->atoll, o->row.plan))
		return once_busy(c);
	r = o->again ? 0 : choose(c, o, name);
	return r < 0 ? r : once_record(c, o);
}

int start_recorded(struct call *c, struct once *o, struct atoll_start *start,
                   struct atoll_plan **ret)
{
	cleanup_error struct error err = ERROR_INIT;
	int r;

	start->name = o->row.name;
	result_reset(c->res);
	r = plan_start_once(c->atoll, start, o->row.plan, ret, c->res, &err);
	r = result_set(c->res, &err, r);
	/* What needs recovery is settled by the next try. */
	if (r < 0 && r != -ATOLL_E_NEEDS_RECOVERY)
		once_failed(c, o);
	if (r < 0 || strcmp(atoll_plan_id(*ret), o->row.plan) == 0)
		return r < 0 ? r : 0;
	/* It was opened by its name (or_open). */
	(void)snprintf(o->row.plan, sizeof(o->row.plan), "%s", atoll_plan_id(*ret));
	o->row.name[0] = '\0';
	r = once_made(c, o);
	return r < 0 ? r : 1;
}

int start_note(struct call *c, const struct atoll_plan *p)
{
	if (c->who.by_socket || c->who.credential.kind != CREDENTIAL_KEY)
		return 0;
	return credential_plan_started(c->atoll, atoll_plan_id(p), c->who.credential.id, &c->err);
}

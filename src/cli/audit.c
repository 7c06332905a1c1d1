/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/audit.h"

#include "util/error.h"

#include <stdio.h>
#include <unistd.h>

int cli_audit(struct cli *c, const struct audit_entry *of, struct error *err)
{
	struct audit_entry e = *of;
	char who[32];

	(void)snprintf(who, sizeof(who), "uid %u", (unsigned)geteuid());
	e.by = AUDIT_CLI;
	e.who = who;
	e.request = "";
	return audit_write(c->atoll, &e, err);
}

/* Once it is known how it went: the user owns the store, so the record refuses nothing, and an undo needs no space
 * for it. */
static int note_decision(void *ctx, const struct plan_decision *d, struct error *err)
{
	cleanup_error struct error ours = ERROR_INIT;
	const struct audit_entry e = { .credential = "",
		                       .what = d->verb,
		                       .plan = d->plan,
		                       .outcome = d->code < 0 ? error_code_name(d->code) : "ok",
		                       .unsynced = true };

	(void)err;
	if (d->code != DECISION_ASKED && cli_audit(ctx, &e, &ours) < 0)
		cli_tell(ours.msg);
	return 0;
}

void cli_audit_decisions(struct cli *c)
{
	store_set_decision(c->atoll, note_decision, c);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What commands write into the store's audit log (auth/audit.h). */
#ifndef CLI_AUDIT_H
#define CLI_AUDIT_H

#include "auth/audit.h"
#include "cli/cli.h"

/* By, who and request are filled in. */
int cli_audit(struct cli *c, const struct audit_entry *of, struct error *err);
/* Every decision that is made through c->atoll, once it is made or refused. */
void cli_audit_decisions(struct cli *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that are bound to a credential. A stream, or a command that runs for a client, lives on after
 * the request that began it was let in. A thread looks once a second whether the credential was revoked
 * meanwhile, and shuts the connection down then; a client that is gone is something every stream knows how
 * to deal with. A credential that is merely over ends nothing: it was good when it was used.
 */
#ifndef DAEMON_BOND_H
#define DAEMON_BOND_H

#include "daemon/auth.h"

struct bond; /* one of them */
struct bonds;

int bonds_open(struct auth *a, struct bonds **ret, struct error *err);
void bonds_close(struct bonds *b); /* none may be left; NULL is fine */

/* NULL: there is nothing to watch, for WHO has no credential. FD is not closed before bond_remove(). */
struct bond *bond_add(struct bonds *b, const struct identity *who, int fd);
void bond_remove(struct bonds *b, struct bond *one); /* NULL is fine */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the transaction changed so far. The server counts rows itself, per table; what was there before
 * is remembered, so that tables that came and went can be told. The counts are of what was done: rows
 * that were then rolled back to a savepoint are in them.
 */
#ifndef POSTGRES_CHANGES_H
#define POSTGRES_CHANGES_H

#include <stddef.h>
#include "postgres/backend.h"
#include "util/strbuf.h"

struct relation {
	char *oid;
	char *name; /* quoted, with its schema */
};
struct baseline {
	struct relation *v;
	size_t n, cap;
	char *catalogs; /* what our own preparations counted: "(oid, number), ..." */
};

/* Inside the transaction, when nothing has happened but our own preparations. */
int baseline_read(struct baseline *b, struct backend *conn, struct error *err);
void baseline_done(struct baseline *b);

struct holder;
/* The lines of protocol.h go into OUT. 0, or what the server said. */
int changes_add(struct holder *h, struct strbuf *out, struct error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: a table, a function and a deferred constraint trigger made inside the transaction
 * itself. Any COMMIT or PREPARE that is not ours fires the trigger, which raises, and the server
 * rolls everything back. Ours sets a token first, whose hash the function knows, and drops the
 * three: nothing of it is left in the schema. It stops slips, not malice.
 */
#ifndef POSTGRES_GUARD_H
#define POSTGRES_GUARD_H

#include "postgres/backend.h"
#include "util/strbuf.h"

struct guard {
	char *table;   /* quoted, with its schema */
	char *trigger; /* the same */
	char *function;
	char *token;
};
#define GUARD_INIT ((struct guard){ 0 })

/* Asks for a schema where it could be. */
extern const char guard_schema_query[];
/* Inside a transaction that has just begun. -ATOLL_E_CANNOT_PREPARE: nowhere to put it. */
int guard_make(struct guard *g, struct backend *b, struct error *err);
void guard_done(struct guard *g);

/* SQL that fires every deferred trigger now, and leaves the guard as it was. DEFERRED: names of
 * constraints to defer again, comma-separated, or "". */
void guard_add_check(const struct guard *g, struct strbuf *sql, const char *deferred);
/* SQL that lets the transaction end, PREPARE or COMMIT to follow. */
void guard_add_drop(const struct guard *g, struct strbuf *sql);
/* A query for the names that guard_add_check() wants. */
void guard_add_names(const struct guard *g, struct strbuf *sql);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a table that a transaction changed, as lines of a diff, by asking both sides: the
 * transaction, as a client of its holder, and the server past it. What the transaction wrote is told by
 * the number of its writer, what it displaced by the number of who did so; nothing else is read out, and
 * what others did meanwhile does not show.
 */
#ifndef POSTGRES_ROWS_H
#define POSTGRES_ROWS_H

#include "util/error.h"

struct rows_options {
	const char *url;
	const char *dir;   /* the holder's */
	const char *table; /* quoted, with its schema */
	void (*line)(void *user, const char *line);
	void *user;
};
int rows(const struct rows_options *opt, struct error *err);

#endif

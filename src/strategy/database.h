/* SPDX-License-Identifier: Apache-2.0 */
/* What `doctor` says of a database. */
#ifndef STRATEGY_DATABASE_H
#define STRATEGY_DATABASE_H

#include <stdbool.h>
#include "util/error.h"

struct database_facts {
	char *version;  /* of the server */
	char *database; /* and the role that was used */
	char *user;
	char *final; /* why nothing can be prepared there, or NULL */
	char *taken; /* "N of M" places for prepared transactions */
};
#define DATABASE_FACTS_INIT ((struct database_facts){ 0 })
void database_facts_done(struct database_facts *f);
#define cleanup_database_facts __attribute__((__cleanup__(database_facts_done)))

bool database_is_url(const char *text);
/* Connects, looks, leaves. What was given is not repeated in ERR. */
int database_look(const char *url, struct database_facts *ret, struct error *err);

#endif

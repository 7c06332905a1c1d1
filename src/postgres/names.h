/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prepared statements and portals of a client, by its names for them. The tables follow the
 * messages that were sent, since the next message may refer to the last; what the server has not
 * answered yet is a promise, and an error takes back every one that is left.
 */
#ifndef POSTGRES_NAMES_H
#define POSTGRES_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include "postgres/sql.h"

/* What the words of a statement say. */
struct verb {
	enum sql_kind kind;
	unsigned flags;
	char *text; /* NULL: of a plain statement, where it is not needed */
	char *name; /* what it is about, or NULL */
};
void verb_done(struct verb *v);
#define cleanup_verb __attribute__((__cleanup__(verb_done)))

/* A prepared statement or a portal. */
struct named {
	struct named *next;
	char *name;
	char *server_name; /* differs when another client has the same */
	struct verb verb;
	bool spent; /* a portal of ours that was executed */
	char *body; /* of the last Parse without a name: the server may have to be told again */
	size_t body_len;
};

struct named *named_find(struct named *list, const char *name);
/* A new one; what NAME stood for is *ret_before (may be NULL: it is freed). */
struct named *named_put(struct named **list, const char *name, const char *server_name,
                        struct named **ret_before);
void named_drop(struct named **list, const char *name);
void named_clear(struct named **list);
void named_clear_names(struct named **list); /* but for the one without a name */

/* A message that the server has yet to answer. */
struct promise {
	char type;    /* 'P', 'B', 'C', 'D', 'E' */
	bool swallow; /* the answer is not for the client */
	/* The server's one statement without a name: was it the client's before? Is it forgotten for this one? */
	bool had_unnamed, displaces;
	bool copy;           /* 'E' of a COPY */
	struct verb verb;    /* 'E': what is executed, if it leaves a name */
	struct named **list; /* 'P', 'B', 'C' of the client: where NAME has changed */
	char *name;
	struct named *before; /* what it stood for, or NULL */
};

struct promises {
	struct promise *v;
	size_t first, n, cap; /* [first, n) are open */
};

/* NULL: out of memory. */
struct promise *promise_add(struct promises *p, char type);
/* NAME came to be before an open promise that is about it: what it stands for if that fails. False: there
 * is none. */
bool promises_put(struct promises *p, struct named **list, const char *name,
                  const char *server_name);
/* The next one, or NULL. */
const struct promise *promise_next(const struct promises *p);
/* It was kept. */
void promise_keep(struct promises *p);
/* The next one failed, and the server passed over the others. Is the server's statement without a name the
 * client's now? UNNAMED: was it to be, had all been kept? */
bool promises_break(struct promises *p, bool unnamed);
void promises_done(struct promises *p);

#endif

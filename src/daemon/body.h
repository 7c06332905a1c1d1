/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON of a request, read by a table into a struct: every member has its row, and one without is
 * refused by its name. Nothing is guessed: a number is no text, null is nothing.
 */
#ifndef DAEMON_BODY_H
#define DAEMON_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include "daemon/call.h"

enum body_kind {
	BODY_TEXT = 0, /* const char * */
	BODY_BOOL,     /* bool */
	BODY_NUMBER,   /* int64_t */
	BODY_TEXTS,    /* const char **, ends with NULL */
	BODY_OBJECTS,  /* struct body_list of what `of` describes */
	BODY_KIND_END_
};

#define BODY_LIST_MAX 4096 /* elements of one list */

struct body_member {
	const char *name; /* NULL ends a table */
	enum body_kind kind;
	size_t offset; /* in the struct */
	bool required; /* a text then is not empty, either */
	const struct body_member *of;
	size_t of_size;
};

/* Rows: the struct's member has the name of the object's. */
/* clang-format off */
#define BODY_MAY(k, type, member) { .name = #member, .kind = (k), .offset = offsetof(type, member) }
#define BODY_MUST(k, type, member) \
	{ .name = #member, .kind = (k), .offset = offsetof(type, member), .required = true }
#define BODY_END { .name = NULL }
/* clang-format on */

struct body_list {
	void *v; /* structs of of_size bytes */
	size_t n;
};

/* What was read lives until body_done(). */
struct body {
	void **v;
	size_t n, cap;
};
#define BODY_INIT ((struct body){ 0 })
void body_done(struct body *b);
#define cleanup_body __attribute__((__cleanup__(body_done)))

/* 0: there is no body, or one that says it is JSON; 1: it does not, and the request is answered (415). */
int body_expect_json(struct call *c);

/* Fills RET, which is zero or holds what is to be where nothing is given. No body at all is an empty
 * object. -ATOLL_E_INVALID with the member in c->err, or, as body_expect_json(), 1. */
int body_read(struct call *c, struct body *b, const struct body_member *table, void *ret);

#endif

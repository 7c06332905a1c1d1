/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a registry back-end provides. sqlite.c is the one for a single machine; another (shared by
 * several machines) takes its place by filling the same table in. Everything above the row
 * level (state tables, epochs, prefixes, error words) is in the row files and common to all, and
 * so are the store lock and the rule that one thread at a time uses the connection (registry.c).
 *
 * The SQL handed to run() is the common part of SQLite and PostgreSQL: parameters are ?1, ?2, ...
 * in order, values are 64-bit integers and byte strings without NUL, ON CONFLICT and RETURNING as
 * both understand them. The schema and the way to make it are the back-end's own.
 *
 * Calling sequence: open(), when it answers 1 setup() under the store lock; then any number of
 * run() for reading, and begin(), run()..., commit() or rollback(). Never from two threads at once.
 */
#ifndef REGISTRY_REGISTRY_IMPL_H
#define REGISTRY_REGISTRY_IMPL_H

#include <stddef.h>
#include <stdint.h>
#include "registry/registry.h"

enum value_type { VALUE_INT = 0, VALUE_TEXT, VALUE_TYPE_END_ };

struct value {
	enum value_type type;
	int64_t num;
	const char *text; /* NULL stands for "" */
};
#define INT_VALUE(x)  ((struct value){ .type = VALUE_INT, .num = (int64_t)(x) })
#define TEXT_VALUE(x) ((struct value){ .type = VALUE_TEXT, .text = (x) })

struct args {
	const struct value *v;
	size_t n;
};
#define ARGS(...)                                                            \
	((struct args){ .v = (const struct value[]){ __VA_ARGS__ },          \
	                .n = sizeof((const struct value[]){ __VA_ARGS__ }) / \
	                     sizeof(struct value) })
#define NO_ARGS ((struct args){ 0 })

/* COUNT values, valid during the call. A negative answer ends the statement and is returned; the
 * callback sets no error. It must not call the back-end. */
typedef int (*backend_row_fn)(void *ctx, const struct value *cols, size_t count);

struct backend; /* each back-end's own */

struct registry_backend {
	const char *name;
	/* 0; 1: there is nothing yet or an older schema, setup() must run under the store lock.
	 * HOME_FD is the caller's and outlives the back-end. */
	int (*open)(int home_fd, const char *home, struct backend **ret, struct error *err);
	/* Makes or migrates the schema, all of it or nothing. Harmless when somebody else has
	 * done so meanwhile. */
	int (*setup)(struct backend *b, struct error *err);
	void (*close)(struct backend *b);

	int (*begin)(struct backend *b, enum registry_durability d, struct error *err);
	/* The transaction is over, whatever the answer. As registry_commit(). */
	int (*commit)(struct backend *b, struct error *err);
	void (*rollback)(struct backend *b);
	/* As registry_sync(). */
	int (*sync)(struct backend *b, struct error *err);
	/* As registry_tend(); under the store lock. */
	void (*tend)(struct backend *b);

	/* Runs one statement to its end. SQL is a constant that lives for ever: prepared
	 * statements are kept by its address. FN may be NULL. The number of rows changed. */
	int (*run)(struct backend *b, const char *sql, struct args args, backend_row_fn fn,
	           void *ctx, struct error *err);
	/* What run() will be asked to run is prepared now, if it can be. */
	void (*prepare)(struct backend *b, const char *sql);
	/* The back-end's own consistency; -ATOLL_E_DAMAGED. */
	int (*check)(struct backend *b, struct error *err);
	/* As registry_version(). */
	int (*version)(struct backend *b, uint64_t *ret, struct error *err);
	/* What to call it in messages: a path, an address. */
	const char *(*where)(const struct backend *b);
};

extern const struct registry_backend registry_sqlite;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one connection to the server. libpq finds it, authenticates and encrypts; then we speak on
 * its descriptor ourselves, since libpq has no way to pass a client's messages through.
 */
#ifndef POSTGRES_BACKEND_H
#define POSTGRES_BACKEND_H

#include <sys/types.h>
#include "postgres/wire.h"
#include "util/error.h"

struct backend;
/* URL: a connection string or URI. Errors never hold a password. */
int backend_connect(const char *url, struct backend **ret, struct error *err);
/* The same, whoever INFO or the environment names. */
int backend_connect_as(const char *info, const char *user, const char *database,
                       struct backend **ret, struct error *err);
void backend_free(struct backend *b);
void cleanup_backendp(struct backend **b);
#define cleanup_backend __attribute__((__cleanup__(cleanup_backendp)))

/* Runs SQL to its end while nothing else is under way: SQLSTATE and message go into ERR. The first
 * column of the first row, if any, into *ret_value (may be NULL; caller frees; NULL: no row). */
int backend_run(struct backend *b, const char *sql, char **ret_value, struct error *err);
/* Each row's columns as an array of N strings. */
typedef void (*backend_row_fn)(void *user, size_t n, const char *const *columns);
int backend_rows(struct backend *b, const char *sql, backend_row_fn fn, void *user,
                 struct error *err);
/* The tag of the last command of the last run, "PREPARE TRANSACTION". */
const char *backend_tag(const struct backend *b);
/* SQL: where numbers of transactions mean what they mean here. The system's, and how often somebody made
 * another server of it, which may lack the last ones. */
#define BACKEND_SERVER                                       \
	"(SELECT pg_catalog.concat(system_identifier, '-', " \
	"pg_catalog.substr(pg_catalog.pg_walfile_name("      \
	"pg_catalog.pg_current_wal_insert_lsn()), 1, 8)) "   \
	"FROM pg_catalog.pg_control_system())"
/* 'I', 'T' or 'E'. */
char backend_status(const struct backend *b);

int backend_version(const struct backend *b); /* 150002: of the server */
/* As it is connected, for PQconninfoFree(). */
struct _PQconninfoOption *backend_options(const struct backend *b);
const char *backend_user(const struct backend *b);
const char *backend_database(const struct backend *b);
/* What the server reports of a setting at start; NULL when it does not. */
const char *backend_parameter(const struct backend *b, const char *name);
/* A quoted literal. Caller frees. */
char *backend_literal(struct backend *b, const char *text);

/* ---- raw: after this, none of the above but user, database and parameter ---- */

void backend_raw(struct backend *b);
int backend_fd(const struct backend *b);
/* Bytes, 0 at the end, -EAGAIN, or another negative errno. */
ssize_t backend_read(struct backend *b, void *buf, size_t len);
ssize_t backend_write(struct backend *b, const void *buf, size_t len);
/* Does the encryption hold back bytes that poll() does not see? */
bool backend_has_more(const struct backend *b);
/* Asks the server to cancel what it does; the request has arrived when this returns. */
void backend_cancel(struct backend *b);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading SQL just far enough: where a string's statements begin and end, and which of them speak
 * about the transaction or the session. Nothing is understood beyond the words at the beginning
 * of a statement and a few names inside it; what is not recognised is an ordinary statement.
 *
 * A mistake here cannot commit anything: the guard in the database (guard.h) refuses.
 */
#ifndef POSTGRES_SQL_H
#define POSTGRES_SQL_H

#include <stdbool.h>
#include <stddef.h>

enum sql_kind {
	SQL_PLAIN = 0,
	SQL_BEGIN,
	SQL_COMMIT,
	SQL_ROLLBACK,
	SQL_SAVEPOINT,       /* SAVEPOINT, RELEASE, ROLLBACK TO */
	SQL_TWO_PHASE,       /* PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK PREPARED */
	SQL_SET_TRANSACTION, /* SET TRANSACTION */
	SQL_SET_CONSTRAINTS,
	SQL_SET_LOCAL,
	SQL_DISCARD_ALL,
	SQL_DEALLOCATE, /* DEALLOCATE [PREPARE] name | ALL */
	SQL_KIND_END_
};

#define SQL_CHAIN         0x001u /* AND CHAIN */
#define SQL_READ_ONLY     0x002u
#define SQL_ALL_IMMEDIATE 0x004u /* SET CONSTRAINTS ALL IMMEDIATE */
#define SQL_ALL           0x008u /* DEALLOCATE ALL */
#define SQL_SETS          0x010u /* SET, RESET, set_config(): the session's settings may change */
#define SQL_NOTIFIES      0x020u /* LISTEN, UNLISTEN, NOTIFY, pg_notify(), pg_export_snapshot() */
#define SQL_DEFINES       0x040u /* CREATE, ALTER, DO, CALL: constraints may be new */
#define SQL_CURSOR        0x080u /* DECLARE */
#define SQL_RESERVED      0x100u /* names something of ours */
#define SQL_HOLD          0x400u /* DECLARE ... WITH HOLD */
#define SQL_START         0x800u /* START TRANSACTION, which has its own tag */
#define SQL_PREPARES      0x200u /* PREPARE name AS, EXECUTE name: NAME is there */

struct sql_statement {
	size_t start, end; /* bytes of the text; the semicolon is outside */
	enum sql_kind kind;
	unsigned flags;
	/* The word that DEALLOCATE, PREPARE, EXECUTE and SET LOCAL are about, as written. */
	size_t name_start, name_end;
};

struct sql {
	struct sql_statement *v; /* those that are not empty */
	size_t n, cap;
};
#define SQL_INIT ((struct sql){ 0 })

/* Names that begin so are ours; see guard.h. */
#define SQL_OURS "_atoll"

/* BACKSLASHES: standard_conforming_strings is off. 0 or -ENOMEM. */
int sql_split(struct sql *ret, const char *text, size_t len, bool backslashes);
void sql_done(struct sql *s);
#define cleanup_sql __attribute__((__cleanup__(sql_done)))

/* An identifier as the server would fold it, quotes taken off. Caller frees. */
char *sql_name(const char *text, size_t len);

#endif

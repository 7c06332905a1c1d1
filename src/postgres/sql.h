/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading SQL just far enough: where a string's statements begin and end, and which of them speak
 * about the transaction or the session. Nothing is understood beyond the words at the beginning
 * of a statement and a few names inside it; what is not recognised is an ordinary statement.
 *
 * Two things must be right, and are simple enough to be: what is white space or a comment before
 * the first word of a statement, and that word. Where a statement ends may be wrong: the server is
 * made to refuse more than one command at a time (script.c).
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
	SQL_TWO_PHASE,       /* PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK PREPARED */
	SQL_ODD,             /* begins like one of these, and goes on in an unknown way */
	SQL_SAVEPOINT,       /* SAVEPOINT, RELEASE, ROLLBACK TO */
	SQL_SET_TRANSACTION, /* SET TRANSACTION */
	SQL_SET_CONSTRAINTS,
	SQL_SET_LOCAL,
	SQL_RESET,
	SQL_DISCARD_ALL,
	SQL_DEALLOCATE, /* DEALLOCATE [PREPARE] name | ALL */
	SQL_DECLARE,    /* a cursor that ends with the transaction */
	SQL_LOCK,
	SQL_LISTEN,
	SQL_UNLISTEN,
	SQL_SNAPSHOT, /* pg_export_snapshot(), SET TRANSACTION SNAPSHOT */
	SQL_VACUUM,   /* but not FULL */
	SQL_KIND_END_
};

#define SQL_CHAIN        0x0001u /* AND CHAIN */
#define SQL_READ_ONLY    0x0002u
#define SQL_ALL          0x0004u /* DEALLOCATE ALL */
#define SQL_SETS         0x0008u /* SET, RESET, set_config(): the session's settings may change */
#define SQL_NOTIFIES     0x0010u /* NOTIFY, pg_notify() */
#define SQL_DEFINES      0x0020u /* CREATE, ALTER, DO, CALL: constraints may be new */
#define SQL_CURSOR       0x0040u /* DECLARE */
#define SQL_RESERVED     0x0080u /* names an object of the holder */
#define SQL_HOLD         0x0100u /* DECLARE ... WITH HOLD */
#define SQL_START        0x0200u /* START TRANSACTION, which has its own tag */
#define SQL_PREPARES     0x0400u /* PREPARE name AS */
#define SQL_EXECUTES     0x8000u /* EXECUTE name */
#define SQL_SERIALIZABLE 0x0800u /* for a transaction or the session */
#define SQL_COPY         0x1000u
#define SQL_QUERY        0x2000u   /* SELECT, VALUES, TABLE, WITH: rows are described first */
#define SQL_VERBOSE      0x4000u   /* VACUUM VERBOSE */
#define SQL_PREPARABLE   0x10000u  /* may stand behind PREPARE name AS */
#define SQL_EARLY        0x20000u  /* the server looks at what it names when it parses it */
#define SQL_EXPLAINS     0x40000u  /* EXPLAIN EXECUTE name, CREATE TABLE ... AS EXECUTE name */
#define SQL_ENDS_IDLE    0x80000u  /* names a setting by which the server would end the session */
#define SQL_CONFIG       0x100000u /* set_config() is in it */
#define SQL_READ_WRITE   0x200000u
#define SQL_MENTIONS \
	(SQL_PREPARES | SQL_EXECUTES | SQL_EXPLAINS) /* the name of a prepared statement */

struct sql_statement {
	size_t start, end; /* bytes of the text; the semicolon is outside */
	size_t stop;       /* behind the semicolon, or the end of the text */
	enum sql_kind kind;
	unsigned flags;
	/* The word that DEALLOCATE, PREPARE, EXECUTE, SET, RESET and SAVEPOINT are about, as written;
	 * what VACUUM is to look at. */
	size_t name_start, name_end;
};

struct sql {
	struct sql_statement *v; /* those that are not empty */
	size_t n, cap;
};
#define SQL_INIT ((struct sql){ 0 })

/* Names that begin so are ours. */
#define SQL_OURS "_atoll"

/* BACKSLASHES: standard_conforming_strings is off. 0 or -ENOMEM. */
int sql_split(struct sql *ret, const char *text, size_t len, bool backslashes);
void sql_done(struct sql *s);
#define cleanup_sql __attribute__((__cleanup__(sql_done)))

/* May the server see more than one command in these bytes? Commands are separated by semicolons. */
bool sql_may_be_several(const char *text, size_t len);
/* An identifier as the server would fold it, quotes taken off. Caller frees. */
char *sql_name(const char *text, size_t len);

#endif

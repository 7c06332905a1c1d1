/* SPDX-License-Identifier: Apache-2.0 */
/* What the SQLite back-end is made of: result codes in the project's number space, connections
 * across fork, the file layer. */
#ifndef REGISTRY_SQLITE_IMPL_H
#define REGISTRY_SQLITE_IMPL_H

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include "registry/registry-impl.h"
#include "util/error.h"

/* Sets ERR for RC (an extended code, not OK) and returns its code. OP says what was tried:
 * "open", "commit". HOME_FD is asked whether the filesystem is read-only. */
int sqlite_error(sqlite3 *db, int rc, const char *path, int home_fd, const char *op,
                 struct error *err);
/* -ATOLL_E_DAMAGED, with the way out. WHAT may be SQLite's text. */
int sqlite_damaged(const char *path, const char *what, struct error *err);
/* -ATOLL_E_NEEDS_RECOVERY: a synchronous write failed. */
int sqlite_unknown(const char *path, int os_errno, struct error *err);

/* One connection of this process, or inherited by it. */
struct fork_entry {
	struct fork_entry *next;
	pid_t pid;        /* that made it */
	atomic_bool busy; /* inside SQLite or a transaction */
	/* Closes the connection; the rest stays as it is, for the handle above is left to rot. */
	void (*forget)(struct fork_entry *e);
};
void fork_list_add(struct fork_entry *e);
void fork_list_remove(struct fork_entry *e);
/* 0; -ATOLL_E_STATE when one was at work during fork. Says nothing. */
int fork_list_forget_inherited(void);

/* For sqlite3_open_v2(); NULL, which is SQLite's own, when ours cannot be made. */
const char *sqlite_vfs_name(void);

/* For SQLITE_CONFIG_MALLOC. */
extern const sqlite3_mem_methods sqlite_memory;

/* What registry_program() was told; false when it was not called. */
bool sqlite_program_reads(void);
/* After registry_program_ends(), once: DB is left to the end of the process. */
bool sqlite_program_keeps(sqlite3 *db);

#define SQLITE_DB_NAME    "atoll.db"
#define SQLITE_STATEMENTS 64

struct sqlite_cached {
	const char *sql; /* compared by address */
	sqlite3_stmt *stmt;
};

struct backend {
	sqlite3 *db;
	struct fork_entry fork;
	int home_fd; /* the caller's */
	char *path;
	enum registry_durability durability; /* of the open transaction */
	int synchronous;                     /* the pragma's value now; -1: not set yet */
	bool reading;                        /* opened so that nothing can be written */
	bool in_txn;
	bool failed;      /* a synchronous write failed: what is on disk is unknown */
	int failed_errno; /* why; 0: not known */
	int wal_frames;   /* after our last commit */
	struct sqlite_cached cache[SQLITE_STATEMENTS];
	size_t cached;
};

/* ---- sqlite-connection.c ---- */

/* 0; 1 when there is no such file and CREATE is not wanted. */
int sqlite_connect(struct backend *b, bool create, struct error *err);
/* So that it can only read, and leaves the files as they are. False when there is no such way in;
 * the ordinary one then says why. */
bool sqlite_connect_reading(struct backend *b);
/* The ordinary connection, if there is none or the other one. */
int sqlite_connect_writing(struct backend *b, struct error *err);
void sqlite_disconnect(struct backend *b);

/* ---- sqlite-statement.c ---- */

/* sqlite_error() for this connection. */
int sqlite_fail(struct backend *b, int rc, const char *op, struct error *err);
int sqlite_script(struct backend *b, const char *sql, const char *op, struct error *err);
/* As the back-end's prepare() and run(). */
void sqlite_prepare(struct backend *b, const char *sql);
int sqlite_run(struct backend *b, const char *sql, struct args args, backend_row_fn fn, void *ctx,
               struct error *err);
/* One number, of a statement that is not kept. */
int sqlite_ask(struct backend *b, const char *sql, int64_t *ret, struct error *err);

/* ---- sqlite.c: transactions, as the back-end's ---- */

int sqlite_begin(struct backend *b, enum registry_durability d, struct error *err);
int sqlite_commit(struct backend *b, struct error *err);
void sqlite_rollback(struct backend *b);

/* ---- sqlite-version.c ---- */

/* As the back-end's. */
int sqlite_version(struct backend *b, uint64_t *ret, struct error *err);

/* ---- sqlite-schema.c ---- */

/* The schema's version; 0 for a file that is still empty, as after a crash while it was made. */
int sqlite_identify(struct backend *b, struct error *err);
/* Under the store lock: all of it or nothing. */
int sqlite_make_schema(struct backend *b, struct error *err);

#endif

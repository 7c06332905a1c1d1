/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the `sqlite` strategy share. sqlite.c says how it works.
 *
 * Who owns what on disk. In the work directory, per generation G of the workspace:
 *
 *   baseG      the database as it was: one file, complete, never written again
 *   wG/NAME    the copy that commands work on, with its -wal, -shm and -journal beside it
 *   linkG      the symbolic link that a command finds at the database's own path
 *
 * In the area, per batch N, all made before the decision and durable then:
 *
 *   bN.manifest   how (rows or whole), and what the two sides are; its hash is in the registry
 *   bN.do         rows: the changeset that was applied; whole: the new database
 *   bN.undo       rows: its inverse; whole: the database as it was
 *   bN.counters   rows: the counters of AUTOINCREMENT that the commit moved (sqlite-counters.c)
 *   bN.theirs     rows, once an undo with --keep-theirs is prepared: what is left of bN.undo
 *
 * In the database itself, while a batch or an undo is not settled, a table SQLDB_MARKER with a row
 * for this sandbox. It is written in the transaction that changes the rest, so it says after a crash
 * which transactions took place.
 */
#ifndef STRATEGY_SQLITE_IMPL_H
#define STRATEGY_SQLITE_IMPL_H

/* Its header shows only what it is told the library has; meson.build made sure. */
#define SQLITE_ENABLE_SESSION
#define SQLITE_ENABLE_PREUPDATE_HOOK
#include <sqlite3.h>
#include "strategy/strategy-impl.h"
#include "util/strbuf.h"

#define SQLDB_MARKER "_atoll_commit"
#define SQLDB_BASE   "atoll_base" /* the base, where a connection to the work has it attached */

/* ---- sqlite-connection.c ---- */

enum sqldb_role {
	SQLDB_LIVE,     /* the resource: no triggers, every commit durable */
	SQLDB_LIVE_NOW, /* the same, not waiting for anybody */
	SQLDB_WORK,     /* written by commands: nothing in it is trusted */
	SQLDB_OWN,      /* a file of ours that nobody else opens */
	SQLDB_KEPT,     /* one that recovery rests on: every commit durable, too */
};
/* The file must exist. */
int sqldb_open(struct atoll_participant *p, enum sqldb_role role, const char *path, sqlite3 **ret);
void sqldb_close(sqlite3 *db); /* rolls back; NULL is fine */
void cleanup_sqldbp(sqlite3 **db);
#define cleanup_sqldb __attribute__((__cleanup__(cleanup_sqldbp)))
void cleanup_stmtp(sqlite3_stmt **stmt);
#define cleanup_stmt __attribute__((__cleanup__(cleanup_stmtp)))
void cleanup_sqlitep(void *p); /* sqlite3_free() */
#define cleanup_sqlite __attribute__((__cleanup__(cleanup_sqlitep)))

/* Sets p->err for RC, which is no success, and returns its code. OP: "read", "write". */
int sqldb_fail(struct atoll_participant *p, sqlite3 *db, int rc, const char *op);
/* SQL without result; FORMAT is sqlite3_mprintf()'s. */
int sqldb_exec(struct atoll_participant *p, sqlite3 *db, const char *format, ...);
int sqldb_prepare(struct atoll_participant *p, sqlite3 *db, sqlite3_stmt **ret, const char *format,
                  ...);
/* 1 a row, 0 no more. */
int sqldb_step(struct atoll_participant *p, sqlite3_stmt *stmt);
int sqldb_number(struct atoll_participant *p, sqlite3 *db, int64_t *ret, const char *format, ...);
bool sqldb_is_wal(sqlite3 *db);

/* ---- sqlite-snapshot.c ---- */

char *sqldb_base_path(const struct atoll_participant *p);
char *sqldb_work_path(const struct atoll_participant *p);
char *sqldb_work_dir(const struct atoll_participant *p);
char *sqldb_link_path(const struct atoll_participant *p);
/* The directory that a command finds the work in. */
char *sqldb_view_dir(const struct atoll_participant *p);
/* The database of DB as one complete file NAME in DIR_FD, consistent however many write to it. */
int sqldb_snapshot(struct atoll_participant *p, sqlite3 *db, const char *dir, const char *name);
int sqldb_workspace_make(struct atoll_participant *p);
void sqldb_workspace_remove(struct atoll_participant *p, uint64_t generation);
/* 1: the work is the base, byte for byte; 0: perhaps not. */
int sqldb_workspace_untouched(struct atoll_participant *p);
/* The work with the base attached. ALONE: nothing of the plan runs; else it is a private copy of the work. */
int sqldb_workspace_open(struct atoll_participant *p, bool alone, sqlite3 **ret);

/* ---- sqlite-reading.c ---- */

/* A private copy of the database NAME in DIR as it is now, which commands may be writing: no memory is shared with
 * them, and they may leave anything there. */
int sqldb_reading_open(struct atoll_participant *p, const char *dir, const char *name,
                       sqlite3 **ret);

/* ---- sqlite-wal.c ---- */

/* How far the WAL goes. */
struct sqldb_wal {
	unsigned char index[48];
};
/* False when it cannot be told now. Of a database in WAL mode that was read before. */
bool sqldb_wal_look(sqlite3 *db, struct sqldb_wal *ret);
/* Bytes of the whole database. */
int64_t sqldb_wal_size(const struct sqldb_wal *wal);
/* Within a transaction that began at WAL: what it sees in there comes into TO_FD, a copy of the file that
 * was made within it. 1: done; 0: it cannot be done so, and the copy is worth nothing. */
int sqldb_wal_put(sqlite3 *db, const struct sqldb_wal *wal, int to_fd);

/* ---- sqlite-table.c: what is in a database ---- */

struct sqldb_table {
	char *name;
	char *sql;
	char *columns;   /* quoted, with commas, as SELECT wants them; generated ones left out */
	char *match;     /* "a"=?1 AND "b"=?2: finds a row by its key */
	char **pk;       /* names of the key's columns */
	int *pk_at;      /* and where each stands among the columns */
	size_t n_pk;     /* 0: rows cannot be told apart */
	size_t n_cols;   /* of COLUMNS */
	bool is_virtual; /* rows are elsewhere: in shadow tables */
	bool is_shadow;  /* of a virtual table: rows depend on one another */
	bool generated;  /* has generated columns, which changesets do not know */
	bool null_keys;  /* the key may be NULL */
};
struct sqldb_tables {
	struct sqldb_table *v; /* by name */
	size_t n, cap;
};
#define SQLDB_TABLES_INIT ((struct sqldb_tables){ 0 })
void sqldb_tables_done(struct sqldb_tables *t);
#define cleanup_sqldb_tables __attribute__((__cleanup__(sqldb_tables_done)))
/* Of the database SCHEMA ("main") of a connection; not SQLite's own, nor the marker. */
int sqldb_tables_read(struct atoll_participant *p, sqlite3 *db, const char *schema,
                      struct sqldb_tables *ret);
const struct sqldb_table *sqldb_tables_find(const struct sqldb_tables *t, const char *name);
/* Of all rows of a table, or of all there is (schema, rows, version): equal content, equal hash. */
int sqldb_hash_table(struct atoll_participant *p, sqlite3 *db, const char *schema,
                     const struct sqldb_table *t, char out[HASH_TEXT_LEN]);
int sqldb_hash(struct atoll_participant *p, sqlite3 *db, const char *schema,
               char out[HASH_TEXT_LEN]);

/* ---- sqlite-delta.c: how the work differs from the base ---- */

struct sqldb_entry {
	char *name;
	const char *type; /* "table", "index", "view", "trigger", "setting" */
	enum atoll_change_kind kind;
	char *old_sql, *new_sql; /* where they differ */
	bool keyed;              /* its rows are in the changeset */
	uint64_t added, changed, deleted;
};
struct sqldb_delta {
	struct sqldb_entry *v; /* by name */
	size_t n, cap;
	struct sqldb_tables base, work;
	/* Why it cannot be carried over row by row, or NULL: "table 'x' has no primary key". */
	char *whole;
	void *changeset; /* sqlite3_free() */
	int changeset_len;
};
#define SQLDB_DELTA_INIT ((struct sqldb_delta){ 0 })
int sqldb_delta_read(struct atoll_participant *p, sqlite3 *work, struct sqldb_delta *ret);
void sqldb_delta_done(struct sqldb_delta *d);
#define cleanup_sqldb_delta __attribute__((__cleanup__(sqldb_delta_done)))
/* Rows and other things that changed. */
uint64_t sqldb_delta_count(const struct sqldb_delta *d);

/* ---- sqlite-diff.c ---- */

int sqldb_diff(struct atoll_participant *p);
int sqldb_lines(struct atoll_participant *p, const struct atoll_change *change, atoll_line_fn fn,
                void *user);

/* ---- sqlite-marker.c ---- */

enum sqldb_done { SQLDB_DONE_NOTHING = 0, SQLDB_DONE_COMMIT, SQLDB_DONE_UNDO };
struct sqldb_mark {
	enum sqldb_done done;
	uint64_t batch;
};
int sqldb_mark_read(struct atoll_participant *p, sqlite3 *db, struct sqldb_mark *ret);
/* Within a transaction. DONE_NOTHING: the row goes, with the last one the table. */
int sqldb_mark_write(struct atoll_participant *p, sqlite3 *db, struct sqldb_mark mark);
/* Is there a row of another sandbox? 1 or 0. */
int sqldb_mark_foreign(struct atoll_participant *p, sqlite3 *db);

/* ---- sqlite-rows.c: changesets ---- */

/* Applies CHANGESET within the transaction of DB; -ATOLL_E_CONFLICT names rows. With OMIT rows that
 * conflict are left as they are, and *OMIT is how many. */
int sqldb_rows_apply(struct atoll_participant *p, sqlite3 *db, const void *changeset, int len,
                     size_t *omit);
/* Carries D over to LIVE, within its transaction, and gives what really changed there: rows that are
 * already so are left out, conflicts settled as the batch says. -ATOLL_E_CONFLICT names rows; with
 * *ret_try_whole no row conflicts, but what the plan did cannot be done row by row. */
int sqldb_rows_merge(struct atoll_participant *p, sqlite3 *work, sqlite3 *live,
                     const struct sqldb_delta *d, void **ret_changeset, int *ret_len,
                     bool *ret_try_whole);
/* Records what happens in DB from now on. */
int sqldb_record_begin(struct atoll_participant *p, sqlite3 *db, sqlite3_session **ret);
int sqldb_record_end(struct atoll_participant *p, sqlite3 *db, sqlite3_session *session,
                     void **ret_changeset, int *ret_len);

/* ---- sqlite-batch.c: the files of a batch ---- */

struct sqldb_batch {
	uint64_t number;
	bool whole;
	char old_hash[HASH_TEXT_LEN]; /* whole: content before and after */
	char new_hash[HASH_TEXT_LEN];
	char do_hash[HASH_TEXT_LEN]; /* rows: of the files */
	char undo_hash[HASH_TEXT_LEN];
	char counters_hash[HASH_TEXT_LEN]; /* "": none were moved */
};
enum sqldb_file {
	SQLDB_FILE_MANIFEST,
	SQLDB_FILE_DO,
	SQLDB_FILE_UNDO,
	SQLDB_FILE_COUNTERS,
	SQLDB_FILE_THEIRS
};
char *sqldb_file_name(uint64_t batch, enum sqldb_file which);
char *sqldb_file_path(const struct atoll_participant *p, uint64_t batch, enum sqldb_file which);
/* Writes a file and has the next barrier cover it. */
int sqldb_file_write(struct atoll_participant *p, uint64_t batch, enum sqldb_file which,
                     const void *data, size_t len);
/* *ret is NULL where there is none. */
int sqldb_file_read(struct atoll_participant *p, uint64_t batch, enum sqldb_file which, void **ret,
                    size_t *ret_len);
void sqldb_file_remove(struct atoll_participant *p, uint64_t batch, enum sqldb_file which);
/* Has the next barrier cover a file that is there, and the area. */
int sqldb_file_sync(struct atoll_participant *p, uint64_t batch, enum sqldb_file which);
int sqldb_batch_write(struct atoll_participant *p, const struct sqldb_batch *b);
/* Read and checked against the hash that was decided on. -ATOLL_E_DAMAGED, -ENOENT. */
int sqldb_batch_read(struct atoll_participant *p, uint64_t number, struct sqldb_batch *ret);
void sqldb_batch_remove(struct atoll_participant *p, uint64_t number);

/* ---- sqlite-counters.c ---- */

/* Name and counter in turn. */
int sqldb_counters_read(struct atoll_participant *p, sqlite3 *db, struct strlist *ret);
/* A file of the batch with those that are not what they were; its hash, or "" where there is none. */
int sqldb_counters_write(struct atoll_participant *p, uint64_t batch, const struct strlist *was,
                         const struct strlist *is, char ret_hash[HASH_TEXT_LEN]);
/* Within the transaction that takes the rows of the batch back. */
int sqldb_counters_back(struct atoll_participant *p, sqlite3 *db, uint64_t batch);

/* ---- sqlite-change.c: one transaction on the resource ---- */

enum sqldb_step { SQLDB_STEP_COMMIT, SQLDB_STEP_REDO, SQLDB_STEP_UNDO, SQLDB_STEP_REVOKE };

/*
 * Open: everything is written and nothing is visible, and nobody else can write. Lives in p->state
 * from prepare to commit; freed without commit it leaves the resource as it was.
 */
struct sqldb_change {
	sqlite3 *live;
	sqlite3 *source;        /* whole: what takes its place */
	sqlite3_backup *backup; /* on its way from there */
};
struct sqldb_change *sqldb_change_new(void);
void sqldb_change_free(void *change);
void cleanup_sqldb_changep(struct sqldb_change **c);
#define cleanup_sqldb_change __attribute__((__cleanup__(cleanup_sqldb_changep)))
/* An exclusive transaction on the resource. */
int sqldb_change_begin(struct atoll_participant *p, struct sqldb_change *c);
/* Instead: the file SOURCE takes the place of the whole content, if that has the hash EXPECTED;
 * -ATOLL_E_CONFLICT if not. */
int sqldb_change_whole(struct atoll_participant *p, struct sqldb_change *c, const char *source,
                       const char *expected);
int sqldb_change_commit(struct atoll_participant *p, struct sqldb_change *c);
/* Carries a step of batch P is at out, from its files, unless the marker says that it was. */
int sqldb_change_step(struct atoll_participant *p, const struct sqldb_batch *b,
                      enum sqldb_step step);

/* The changeset of a step, which the caller frees with sqlite3_free(). */
int sqldb_change_read(struct atoll_participant *p, const struct sqldb_batch *b,
                      enum sqldb_step step, void **ret, int *ret_len);

/* ---- sqlite-prepare.c ---- */

int sqldb_prepare_commit(struct atoll_participant *p);
int sqldb_prepare_undo(struct atoll_participant *p);
int sqldb_prepare_redo(struct atoll_participant *p);
/* The error of N conflicts that were noted. */
int sqldb_conflict(struct atoll_participant *p, size_t n);

#endif

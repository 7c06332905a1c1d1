/* SPDX-License-Identifier: Apache-2.0 */
/* What the SQLite back-end is made of: result codes in the project's number space, connections
 * across fork, the file layer. */
#ifndef REGISTRY_SQLITE_IMPL_H
#define REGISTRY_SQLITE_IMPL_H

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include "util/error.h"

/* Sets ERR for RC (an extended code, not OK) and returns its code. OP says what was tried:
 * "open", "commit". HOME_FD is asked whether the filesystem is read-only. */
int sqlite_error(sqlite3 *db, int rc, const char *path, int home_fd, const char *op,
                 struct error *err);
/* -ATOLL_E_DAMAGED, with the way out. WHAT may be SQLite's text. */
int sqlite_damaged(const char *path, const char *what, struct error *err);
/* -ATOLL_E_NEEDS_RECOVERY: a synchronous write failed. */
int sqlite_unknown(const char *path, struct error *err);

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

/* What registry_program() was told; false when it was not called. */
bool sqlite_program_reads(void);
/* PATH for an opening that leaves the files alone (SQLITE_OPEN_URI); caller frees. */
char *sqlite_reading_uri(const char *path);

#endif

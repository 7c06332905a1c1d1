/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More of what tests from outside share: lists of changes, a second mount, owners that die,
 * holders of locks. Built on atest.h; sees the public header only.
 */
#ifndef MORE_H
#define MORE_H

#include "lib/atest.h"

bool am_root(void);

/* As atest(), for tests that use other_mount() or leave the library's background program. */
#define mtest(test) cmocka_unit_test_setup_teardown(test, atest_setup, more_teardown)
int more_teardown(void **state);
/* A new directory on another mount than the store's; removed at the end. Skips the test where
 * there is none. */
const char *other_mount(struct fix *f);

/* A plan with one `copy` of ROOT. */
struct atoll_plan *plan_over(struct fix *f, const char *root);
/* The same with the workspace in the store, whatever mount ROOT is on. */
struct atoll_plan *plan_in_store(struct fix *f, const char *root);
void expect_commit(struct fix *f, struct atoll_plan *p);
void expect_rollback(struct fix *f, struct atoll_plan *p);
void expect_stop(struct fix *f, struct atoll_plan *p);
/* F->res has a note of KIND for PATH. */
bool has_note(struct fix *f, enum atoll_note_kind kind, const char *path);

/* What atoll_plan_diff() says. */
struct listed {
	char *path;
	enum atoll_change_kind kind;
	unsigned what;
	char *text;
};
struct listing {
	struct listed *v;
	size_t n;
	size_t cap;
};
struct listing *diff_take(struct fix *f, struct atoll_plan *p);
const struct listed *diff_find(const struct listing *l, const char *path);
void diff_add(struct listing *l, const char *path, enum atoll_change_kind kind, unsigned what,
              const char *text);
void diff_free(struct listing *l);

/* Paths by some listing call, as one fixture string each. */
struct paths {
	char *v[512];
	size_t n;
};
void paths_done(struct paths *p);
bool paths_have(const struct paths *p, const char *path);
void paths_of_plan(struct fix *f, struct atoll_plan *p, struct paths *ret);
void paths_scanned(struct fix *f, struct paths *ret);
size_t scanned(struct fix *f);

/* MAN without the lines of entries in whose line WORD occurs. Malloced. */
char *man_without(const char *man, const char *word);
/* Any regular file below DIR holds TEXT. */
bool tree_holds(const char *dir, const char *text);
/* Entries below DIR, all levels; and their bytes, by size. */
size_t tree_count(const char *dir);
uint64_t tree_bytes(const char *dir);
uint64_t inode_of(const char *path);
mode_t mode_of(const char *path); /* permission bits only */

/* ---- other processes ---- */

/* The library leaves a program in the background that makes a workspace durable; it ends by
 * itself, and is waited for here. */
void wait_for_helpers(void);
/* FILE appears within ten seconds. */
void wait_for_file(const char *file);
void kill_child(pid_t pid); /* SIGKILL, and reaped */
/*
 * Rows for a table of atest_child: a process that makes an owned plan NAME over DIR/ROOT, says so
 * with the file DIR/owns-NAME and waits to be killed. ARG: "NAME ROOT [work]"; with "work" it
 * writes into the workspace first.
 */
int child_owner(const char *dir, const char *arg);
pid_t owner_start(struct fix *f, const char *name, const char *root, bool work);
void owner_kill(struct fix *f, pid_t pid, const char *name);

/* The program hold-lock (which is linked with the inside of the library) holds the lock FILE of
 * the store until it is let go. */
struct held {
	pid_t pid;
	int fd;
};
struct held hold_lock(struct fix *f, const char *file);
void let_go(struct held *h);
/* The lock FILE can be taken at once. */
bool lock_is_free(struct fix *f, const char *file);

/* Runs FN in N forked processes that begin together; answers how many ended with status 0. */
size_t together(size_t n, int (*fn)(struct fix *f, size_t i), struct fix *f);

#endif

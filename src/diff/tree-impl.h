/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that implement tree.h share. */
#ifndef DIFF_TREE_IMPL_H
#define DIFF_TREE_IMPL_H

#include <pthread.h>
#include "diff/tree.h"

/* The first failure among the threads of a pool; the others' are dropped. */
struct tree_failure {
	pthread_mutex_t lock;
	struct error *err;
	bool is_set;
};
#define TREE_FAILURE_INIT(e) \
	((struct tree_failure){ .lock = PTHREAD_MUTEX_INITIALIZER, .err = (e) })
/* All return the code. _SYS as error_sys(); _MOVE takes over what a callee said; _CHANGING is
 * -EAGAIN: somebody writes faster than we read. */
int tree_fail_changing(struct tree_failure *f, const char *path);
/* Before the ATTEMPT-th look (from 0) at what somebody is changing: nothing, then longer and longer. */
void tree_pause(unsigned attempt);
int tree_fail_sys(struct tree_failure *f, int code, const char *op, const char *path);
int tree_fail_move(struct tree_failure *f, int code, struct error *from);

/* DIR/NAME, caller frees; -ENAMETOOLONG over LIMIT_PATH. */
int tree_join(const char *dir, const char *name, char **ret);
bool tree_excluded(const struct strlist *excludes, const char *path);
/* 0, caller frees. */
int tree_read_link(int dir_fd, const char *name, char **ret_target);

/* Somebody else did nothing to it: identity, ctime, size, mtime. */
bool tree_same(const struct fs_stat *base, const struct fs_stat *now);

/* An entry that is new or changed. */
struct tree_new {
	int dir_fd; /* where it lies */
	const char *name;
	const char *path; /* from the root on */
	const struct fs_stat *st;
	uint32_t base_mode; /* of the regular file whose privileges it has, else 0 */
};
/* ATOLL_CHANGE_ESCAPING_LINK, _SETUID, _SPECIAL, CHANGE_GIT_NAMED. A capability is looked for only where no
 * regular file was. */
int tree_entry_flags(const struct tree_new *e, unsigned *ret_flags);

/* What differs between the copy of a file, link or special file and its base, as
 * ATOLL_CHANGE_* with flags; 0: nothing. ORIG_FD: the original's directory, or FD_NONE. */
struct tree_owner {
	bool is_root;
	uint32_t uid;
	uint32_t *groups;
	size_t n_groups;
};
struct tree_pair {
	const struct tree_owner *owner;
	int work_fd;
	int orig_fd;
	const char *path;
};
int tree_owner_init(struct tree_owner *o);
void tree_owner_done(struct tree_owner *o);
bool tree_owner_differs(const struct tree_owner *o, const struct fs_stat *base,
                        const struct fs_stat *work);
/* Inode and ctime of the copy are as recorded. */
bool tree_is_proven(const struct base_entry *e, const struct fs_stat *work);
int tree_compare_entry(const struct tree_pair *p, const struct base_entry *e,
                       const struct fs_stat *work, unsigned *ret_what);
/* The same for a directory itself: mode, owner, extended attributes. NAME "": DIR_FD. */
int tree_compare_dir(const struct tree_owner *o, int dir_fd, const char *name,
                     const struct base_entry *e, const struct fs_stat *work, unsigned *ret_what);

/* Every entry the base has below directory DIR, whose path is PATH, in the order of path_compare().
 * A negative answer ends. */
typedef int (*tree_base_fn)(void *ctx, const char *path, const struct base_entry *e);
int tree_base_walk(const struct base *b, const char *path, uint32_t dir, tree_base_fn fn, void *ctx,
                   struct error *err);

/* The same directory in both trees, open. */
struct tree_both {
	int orig_fd;
	int work_fd;
};
/* Copies the entry E->name, no directory, and fills E. Codes are those of copy_entry_at(). */
int tree_copy_alone(const struct tree_both *at, struct base_entry *e);

/* The inodes with several names that a copy has met, and where their first copies lie. */
struct tree_links;
struct tree_links *tree_links_new(int work_fd); /* WORK_FD: root, kept by the caller */
void tree_links_free(struct tree_links *l);
/* The same for an entry with several names: the first is copied, others become names of that
 * copy, without their ctime. PATH: of the entry. Thread-safe. */
int tree_links_copy(struct tree_links *l, const struct tree_both *at, const char *path,
                    struct base_entry *e);
/* When all copies are made: the ctimes they ended with. */
int tree_links_record(const struct tree_links *l, struct base_writer *w);

#endif

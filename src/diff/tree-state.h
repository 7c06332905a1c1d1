/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree as a batch finds it, or as it will be when the batch is carried out: single entries, looked up by
 * path. Nothing is copied and nothing is followed; an entry of the second lies in the workspace where the
 * change set has it, and in the resource where it has not.
 */
#ifndef DIFF_TREE_STATE_H
#define DIFF_TREE_STATE_H

#include <stdbool.h>
#include "diff/change.h"
#include "fs/stat.h"
#include "fs/walk.h"
#include "util/list.h"

struct tree_state {
	int orig_fd;                /* root of the resource */
	const struct changeset *cs; /* sorted; NULL: the tree as the batch finds it */
	int work_fd;                /* root of the workspace */
	/* Files that come from another place than the workspace, with a root of their own; or NULL. */
	const struct strlist *others;
	int others_fd;
	/* Of a directory that is taken in part: is the file PATH in that part? NULL: all are. */
	bool (*taken)(const void *ctx, const char *path);
	const void *taken_ctx;
	const struct change *at; /* of CS, looked at first; or NULL */
};

struct tree_found {
	int fd; /* of the directory that holds it */
	char *path;
	const char *name; /* in PATH */
	struct fs_stat st;
	bool is_changed; /* by the change set, with what is around it */
};
#define TREE_FOUND_INIT ((struct tree_found){ .fd = -1 })
void tree_found_done(struct tree_found *f);
#define cleanup_tree_found __attribute__((__cleanup__(tree_found_done)))

/* 1 with *ret, 0: there is none, -errno: whether there is one cannot be said. */
int tree_state_find(const struct tree_state *s, const char *path, struct tree_found *ret);
/* NAME in DIR ("" is the root). What the change set brings may be spelled in other letters, small and
 * capital: a filesystem that ignores case finds it under NAME. */
int tree_state_find_in(const struct tree_state *s, const char *dir, const char *name,
                       struct tree_found *ret);
/* Every entry of DIR, in no order; some may be shown twice. FN's F is done afterwards. A negative answer
 * ends. */
typedef int (*tree_found_fn)(void *ctx, const struct tree_found *f);
int tree_state_list(const struct tree_state *s, const char *dir, tree_found_fn fn, void *ctx);

/* What is in a regular file, or where a link points; caller frees. -EINVAL: neither of both, longer than
 * MAX, or the user may not read it. */
int tree_found_text(const struct tree_found *f, size_t max, char **ret, size_t *ret_len);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Reading directories in one defined order: names sorted by bytes. */
#ifndef FS_WALK_H
#define FS_WALK_H

#include <stddef.h>

struct dirlist_entry {
	const char *name;
	unsigned char type; /* DT_*; DT_UNKNOWN is resolved by the reader */
};
struct dirlist {
	struct dirlist_entry *v;
	size_t n;
	char *arena;
};
#define DIRLIST_INIT ((struct dirlist){ 0 })

/* All entries but "." and "..". DIR_FD is opened anew (its offset does not matter) and must not
 * be O_PATH. 0, -errno, -ATOLL_E_TOO_BIG over LIMIT_DIR_ENTRIES. Names containing no slash, any other byte. */
int dirlist_read(int dir_fd, struct dirlist *ret);
/* The same from FD itself, which was opened just now and is read by nobody else. */
int dirlist_read_fresh(int fd, struct dirlist *ret);
void dirlist_done(struct dirlist *d);
#define cleanup_dirlist __attribute__((__cleanup__(dirlist_done)))

/*
 * Depth-first over a subtree, every entry once, parents before children, siblings sorted.
 * FN gets the directory holding the entry, the entry's name and its path relative to ROOT_FD.
 * Directories are entered after FN returned 0 for them; WALK_SKIP: not entered; negative: ends.
 * POST, when set, is called for each directory after its contents (deepest first).
 * START "" walks the contents of ROOT_FD itself (FN is not called for the root, POST is, with
 * name "." and path ""). Links are not followed, mounts are not crossed (-EXDEV entries are
 * reported to FN and not entered).
 */
#define WALK_SKIP 1
typedef int (*walk_fn)(void *ctx, int dir_fd, const char *name, const char *path,
                       unsigned char type);
int walk_tree(int root_fd, const char *start, walk_fn fn, walk_fn post, void *ctx);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What git knows of a tree with a directory `.git` in its root: what it ignores, and its objects as packs.
 * git runs without hooks, programs of its settings, prompts or network (util/git-env.h).
 */
#ifndef SYNC_GIT_H
#define SYNC_GIT_H

#include <stdbool.h>
#include "sync/stream.h"
#include "util/list.h"

/* Is there a directory `.git`? 1, 0 or -errno. */
int sync_git_is_repository(int root_fd);

/* By its path: a lock or a temporary file of git's, of use to nobody else. */
bool sync_git_is_passing(const char *path);
/* By its path: a loose object. NAME gets its digits. */
#define SYNC_GIT_NAME_MAX 65
bool sync_git_is_object(const char *path, char name[SYNC_GIT_NAME_MAX]);

/* Over how HEAD, index and all refs look (stat). Changes when they do. 0 or -errno. */
int sync_git_state(int root_fd, unsigned char ret[SYNC_HASH_SIZE]);

/* Whose rules: those of the repository alone, or the user's, too. */
enum sync_git_rules { SYNC_GIT_OWN = 0, SYNC_GIT_USERS };

struct sync_ignored {
	char *text;
	const char **v; /* ordered by path: what is ignored, without what is below it */
	size_t n, cap;
};
void sync_ignored_done(struct sync_ignored *i);
#define cleanup_sync_ignored __attribute__((__cleanup__(sync_ignored_done)))
/* Everything that is there and ignored. */
int sync_git_ignored(int root_fd, enum sync_git_rules rules, struct sync_ignored *ret,
                     struct error *err);
/* Those of PATHS, there or not, that would be ignored; of what is behind a link nothing is. */
int sync_git_check(int root_fd, const char *const *paths, size_t n, struct sync_ignored *ret,
                   struct error *err);
/* PATH or a directory above it is in it. */
bool sync_ignored_has(const struct sync_ignored *i, const char *path);

/* Writes PACK with the objects of these names. */
int sync_git_send_objects(int root_fd, const struct strlist *names, struct sync_writer *w,
                          struct error *err);

/*
 * Takes a pack, a piece after another. The repository is a stranger's, and where it says that its objects are may be
 * anywhere: git puts them into a directory of ours in ROOT_FD, from which they are moved to .git/objects, by
 * no link. Crash: that directory may be left (apply.h).
 */
struct sync_unpack;
int sync_unpack_open(int root_fd, struct sync_unpack **ret, struct error *err);
int sync_unpack_add(struct sync_unpack *u, const void *data, size_t len, struct error *err);
/* Closed even on failure. */
int sync_unpack_close(struct sync_unpack *u, struct error *err);
void sync_unpack_abort(struct sync_unpack *u);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a git index says, apart from what git remembers of the files beside it: `git status` writes a file
 * anew that says the same.
 *
 * An index holds, for every entry, the file's times, inode, owner and size, as git last saw them, and
 * extensions that are caches; git fills all of these again when they are missing or old. What is left is
 * what the user staged: modes, object names, flags and paths, and the extensions that are no caches.
 */
#ifndef UTIL_GIT_INDEX_H
#define UTIL_GIT_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#include "util/hash.h"

#define GIT_INDEX_MAGIC     "DIRC"
#define GIT_INDEX_MAGIC_LEN 4

/* Adds what the index DATA says to H. False, and nothing is added: it is no index as git writes them; DATA is
 * untrusted. */
bool git_index_add(const void *data, size_t len, struct hash *h);

/* Calls FN with the path of every entry that stands for a commit of another repository, until it answers true.
 * Did it? The same DATA; of others it is called with none. */
typedef bool (*git_index_fn)(void *user, const char *path);
bool git_index_find_gitlink(const void *data, size_t len, git_index_fn fn, void *user);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a batch does to a repository, besides the files of its working tree: the record `git` in the
 * batch's directory. Its hash is what the registry gets; the hash of the files' manifest is in it.
 *
 * Refs, HEAD and the index are maps from a key to a value, and a change of one is a swap: the value
 * must be the old one, and becomes the new one; "" is none. So a swap that is done can be told from
 * one that is not, by anybody, and be taken back; and what others did to other keys stays.
 *
 *   map     key              value
 *   refs    refs/heads/x     object id
 *   head    HEAD             "ref: refs/heads/x", or an object id
 *   index   path             "100644 <object id>"
 *   stash   object id        the entry's message
 *
 * On disk: fields that end with NUL: "atoll-git 1", then records of a word and its fields.
 */
#ifndef STRATEGY_GIT_RECORD_H
#define STRATEGY_GIT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include "util/error.h"
#include "util/hash.h"
#include "util/strbuf.h"

/* ---- maps ---- */

struct git_pair {
	const char *key, *value; /* in the map's text */
};
struct git_map {
	struct git_pair *v; /* sorted by key */
	size_t n, cap;
	char *text;
};
#define GIT_MAP_INIT ((struct git_map){ 0 })

void git_map_done(struct git_map *m);
#define cleanup_git_map __attribute__((__cleanup__(git_map_done)))
/* Value, "" when there is none. */
const char *git_map_get(const struct git_map *m, const char *key);
/* What `for-each-ref --format="%(objectname) %(refname) %(symref)"` said. Takes TEXT over. Symbolic
 * refs and those of no concern are left out. */
int git_map_refs(struct git_map *m, char *text, struct error *err);
/* What `ls-files -s -z` said, of LEN bytes. Takes TEXT over. *ret_unmerged: an entry that is. */
int git_map_index(struct git_map *m, char *text, size_t len, const char **ret_unmerged,
                  struct error *err);

/* ---- swaps ---- */

struct git_swap {
	char *key, *old_value, *new_value;
};
struct git_swaps {
	struct git_swap *v;
	size_t n, cap;
};

enum git_part { GIT_REFS = 0, GIT_HEAD, GIT_INDEX, GIT_STASH, GIT_PART_END_ };

struct git_record {
	char files[HASH_TEXT_LEN]; /* of the manifest of the working tree's files */
	char *pack; /* new objects: its name without an ending; NULL: they are loose */
	struct git_swaps parts[GIT_PART_END_];
};
#define GIT_RECORD_INIT ((struct git_record){ 0 })

void git_record_done(struct git_record *r);
#define cleanup_git_record __attribute__((__cleanup__(git_record_done)))
bool git_record_empty(const struct git_record *r);
void git_swap_done(struct git_swap *s);
/* Copies. */
void git_swap_add(struct git_swaps *s, const char *key, const char *old_value,
                  const char *new_value);

#define GIT_RECORD "git"
int git_record_write(const struct git_record *r, int batch_fd, char ret_hash[HASH_TEXT_LEN],
                     struct error *err);
/* HASH "": not compared. -ENOENT, -ATOLL_E_DAMAGED. */
int git_record_read(int batch_fd, const char *hash, struct git_record *ret, struct error *err);

/* For every key that V has otherwise than BASE and NOW have it. A negative answer ends. */
typedef int (*git_three_fn)(void *ctx, const char *key, const char *base, const char *v,
                            const char *now);
int git_three_way(const struct git_map *base, const struct git_map *v, const struct git_map *now,
                  git_three_fn fn, void *ctx);

#endif

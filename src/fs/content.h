/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is this entry still the one on record? The one answer that commit, refresh, undo and redo share.
 *
 * A record has identity and times, by which an entry that another process did nothing to is known at
 * once; and, of regular files up to FS_CONTENT_MAX and of links, the XXH3-128 of what they hold, and the
 * hash of their extended attributes. It is taken only while the entry is provably what the record means: its
 * inode and ctime are those of the record before and after it was read.
 *
 * Where identity or times differ, and type, mode, owner, attributes and content are those of the record,
 * the entry is the recorded one as far as any user can tell: it was touched, got another name, was made
 * immutable and back, or was written anew with the same bytes. Of a git index what it says counts
 * (util/git-index.h), since every `git status` may write it anew.
 *
 * Why nothing is lost by that: NOW is another look, and content is compared for exactly that inode and
 * ctime, after the clock has left the tick of that ctime. So a change that comes later shows a later
 * ctime, or another inode. The caller carries on with NOW and no longer with the record: the manifest
 * (of an undo: `found`) names the identity seen now, the check before the decision asks for it and its
 * ctime, and the exchange for it and its size and mtime. What differs from it there is another process's
 * change, as ever.
 *
 * What is larger, cannot be read, or is of another type has no content: then identity and times decide.
 */
#ifndef FS_CONTENT_H
#define FS_CONTENT_H

#include "fs/stat.h"

#define FS_CONTENT_MAX (64ull << 20)

/* Fills ST->content of the entry NAME in DIR_FD, of which ST was read a moment ago. It stays unknown where it
 * has none, or is not what ST tells any more. Follows no link, opens nothing but regular files. */
void fs_content_take(int dir_fd, const char *name, struct fs_stat *st);
/* The same for PATH below ROOT_FD. */
void fs_content_take_below(int root_fd, const char *path, struct fs_stat *st);
/* Both are known, and of entries with the same type, mode, owner and attributes. */
bool fs_content_equal(const struct fs_stat *a, const struct fs_stat *b);
/* The entry at PATH below ROOT_FD, of which NOW was read a moment ago, has other identity or times than
 * WAS: is it the same all the same? NOW->content is filled. */
bool fs_content_same(int root_fd, const char *path, const struct fs_stat *was, struct fs_stat *now);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What trees take on disk. To measure one is to walk it. A directory of ours whose size was known
 * when it was made, and which does not grow, has it in a file beside it, `NAME.size`, so that what
 * is measured again and again costs what changed since.
 *
 * Crash: such a file is written plainly; a lost or torn one only means a walk.
 */
#ifndef FS_USAGE_H
#define FS_USAGE_H

#include <stdint.h>
#include "fs/stat.h"

struct usage {
	uint64_t bytes, entries;
};

void usage_add_entry(struct usage *u, const struct fs_stat *st);
/* Adds NAME and all below it; what cannot be read does not count. */
void usage_add_tree(int dir_fd, const char *name, struct usage *u);
/* The same for the directory PATH; NOTED: what lies in it counts as noted, where it is. */
void usage_add_path(const char *path, bool noted, struct usage *u);

int usage_note(int dir_fd, const char *name, const struct usage *u);
void usage_forget(int dir_fd, const char *name);

#endif

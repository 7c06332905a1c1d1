/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring trees, and remembering what was measured. See usage.h. */
#include "fs/usage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/fs-impl.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define SUFFIX      ".size"
#define NOTE_LENGTH 64

void usage_add_entry(struct usage *u, const struct fs_stat *st)
{
	u->bytes += st->disk;
	u->entries++;
}

static int add_entry(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct fs_stat st;

	(void)path;
	(void)type;
	/* Gone meanwhile, or not ours to look at: it does not count. */
	if (fs_stat_at(dir_fd, name, 0, &st) == 0)
		usage_add_entry(ctx, &st);
	return 0;
}

void usage_add_tree(int dir_fd, const char *name, struct usage *u)
{
	int closed =
		0; /* as the kernel's own directory beside an upper one: that must not end it */

	(void)walk_tree_past(dir_fd, name, add_entry, NULL, u, &closed);
}

/* ---- what was noted ---- */

static char *note_name(const char *name)
{
	return xasprintf("%s%s", name, SUFFIX);
}

static bool read_note(int dir_fd, const char *name, struct usage *u)
{
	cleanup_free char *note = note_name(name), *text = NULL;
	cleanup_close int fd = openat(dir_fd, note, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct usage said;
	size_t len = 0;
	char end = '\0';

	if (fd < 0 || fs_read_all(fd, NOTE_LENGTH, &text, &len) < 0 ||
	    sscanf(text, "%" SCNu64 " %" SCNu64 "%c", &said.bytes, &said.entries, &end) != 3 ||
	    end != '\n')
		return false;
	u->bytes += said.bytes;
	u->entries += said.entries;
	return true;
}

void usage_add_path(const char *path, bool noted, struct usage *u)
{
	cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;

	if (fd < 0)
		return;
	(void)add_entry(u, fd, "", "", DT_UNKNOWN);
	if (dirlist_read_fresh(fd, &names) < 0)
		return;
	for (size_t i = 0; i < names.n; i++) {
		const char *name = names.v[i].name;

		if (names.v[i].type != DT_DIR)
			(void)add_entry(u, fd, name, name, names.v[i].type);
		else if (!noted || !read_note(fd, name, u))
			usage_add_tree(fd, name, u);
	}
}

int usage_note(int dir_fd, const char *name, const struct usage *u)
{
	cleanup_free char *note = note_name(name);
	cleanup_close int fd = FD_NONE;
	char text[NOTE_LENGTH];
	int len = snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 "\n", u->bytes, u->entries);
	int r = fs_unlink_at(dir_fd, note);

	if (r >= 0 || r == -ENOENT)
		r = fs_create_at(dir_fd, note, 0600, &fd);
	return r < 0 ? r : fs_write_all(fd, text, (size_t)len);
}

void usage_forget(int dir_fd, const char *name)
{
	cleanup_free char *note = note_name(name);

	(void)fs_unlink_at(dir_fd, note);
}

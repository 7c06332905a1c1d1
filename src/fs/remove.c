/* SPDX-License-Identifier: Apache-2.0 */
/* Removal of trees: a walk that unlinks on the way in and removes directories on the way out. */
#include "fs/remove.h"

#include "fs/atomic.h"
#include "fs/fs-impl.h"
#include "fs/stat.h"
#include "util/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REMOVE_ATTEMPTS 3

/* Notes the first failure; the removal goes on. */
static int note(int *first_error, int r)
{
	if (r < 0 && r != -ENOENT && *first_error == 0)
		*first_error = r;
	return r < 0 ? WALK_SKIP : 0;
}

static int remove_entry(void *ctx, int dir_fd, const char *name, const char *path,
                        unsigned char type)
{
	struct fs_stat st;
	int r;

	(void)path;
	if (type != DT_DIR)
		return note(ctx, fs_unlink_at(dir_fd, name));
	r = fs_stat_at(dir_fd, name, 0, &st);
	if (r == 0 && st.mount_root)
		r = -EBUSY;
	if (r < 0)
		return note(ctx, r);
	/* Locked by its owner. If that is not us, entering it will tell. */
	if ((st.mode & 0700) != 0700)
		(void)fs_set_mode(dir_fd, name, (mode_t)(st.mode | 0700));
	return 0;
}

static int remove_dir(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	int r = fs_rmdir_at(dir_fd, name);

	(void)path;
	(void)type;
	if (r == -ENOTDIR) /* replaced, perhaps by a link: that goes, not what it points to */
		r = fs_unlink_at(dir_fd, name);
	(void)note(ctx, r);
	return 0;
}

int remove_tree_at(int dir_fd, const char *name)
{
	int first_error = -ENOTEMPTY;

	/* Somebody who is still adding to it may get ahead of us once or twice. */
	for (int i = 0; i < REMOVE_ATTEMPTS && first_error == -ENOTEMPTY; i++) {
		int r;

		first_error = 0;
		r = walk_tree_past(dir_fd, name, remove_entry, remove_dir, &first_error,
		                   &first_error);
		if (r < 0 && r != -ENOENT && first_error == 0)
			first_error = r;
	}
	return first_error;
}

int remove_tree(const char *path)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *dir = strdup(path);
	char *slash = dir != NULL ? strrchr(dir, '/') : NULL;

	if (dir == NULL)
		return -ENOMEM;
	if (slash == NULL)
		return remove_tree_at(AT_FDCWD, path);
	*slash = '\0';
	fd = open(slash == dir ? "/" : dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	return remove_tree_at(fd, slash + 1);
}

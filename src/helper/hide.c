/* SPDX-License-Identifier: Apache-2.0 */
/* Binds of one empty directory or file, however many places they are put over. */
#include "helper/hide.h"

#include "fs/atomic.h"
#include "helper/mount-fd.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define FIXED_ATTR (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)

enum nothing { EMPTY_FILE = 0, EMPTY_DIR, CLOSED_FILE, CLOSED_DIR, NOTHING_END_ };

static const struct {
	const char *name;
	mode_t mode;
	bool is_dir;
} nothings[NOTHING_END_] = {
	[EMPTY_FILE] = { ".empty-file", 0444, false },
	[EMPTY_DIR] = { ".empty-dir", 0555, true },
	[CLOSED_FILE] = { ".closed-file", 0, false },
	[CLOSED_DIR] = { ".closed-dir", 0, true },
};

static int make(struct hide *h, int holder_fd, enum nothing which)
{
	cleanup_close int fd = FD_NONE;
	int r = 0;

	if (h->made & 1u << which)
		return 0;
	if (nothings[which].is_dir)
		r = fs_mkdir_at(holder_fd, nothings[which].name, nothings[which].mode);
	else
		r = fs_create_at(holder_fd, nothings[which].name, nothings[which].mode, &fd);
	if (r == 0)
		h->made |= 1u << which;
	return r;
}

static int cover(struct hide *h, int holder_fd, int target_fd, enum nothing which)
{
	cleanup_close int fd = FD_NONE;
	cleanup_close int mount_fd = FD_NONE;
	int r = make(h, holder_fd, which);

	if (r < 0)
		return r;
	fd = openat(holder_fd, nothings[which].name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = mount_clone(fd, &mount_fd);
	if (r == 0)
		r = mount_change(mount_fd, MOUNT_ONE, FIXED_ATTR, 0);
	return r < 0 ? r : mount_attach_at(mount_fd, target_fd);
}

int hide_path(struct hide *h, int holder_fd, const char *path, bool is_closed, struct failure *f)
{
	cleanup_close int fd = FD_NONE;
	int r = sabotage("hide") ? -ENOENT : mount_open_target(path, &fd);
	struct stat st;

	/* For the command, too, there is nothing to be seen; a link in its layer covers what was. */
	if (r == -ENOENT || r == -ENOTDIR || r == -EACCES || r == -ELOOP)
		return 0;
	if (r == 0 && fstat(fd, &st) < 0)
		r = -errno;
	if (r == 0)
		r = cover(h, holder_fd, fd,
		          (is_closed ? CLOSED_FILE : EMPTY_FILE) + (S_ISDIR(st.st_mode) ? 1 : 0));
	return r < 0 ? failure_set(f, REPLY_VIEW, r, "hide '%s'", path) : 0;
}

void hide_done(struct hide *h, int holder_fd)
{
	for (int i = 0; i < NOTHING_END_; i++) {
		if (!(h->made & 1u << i))
			continue;
		if (nothings[i].is_dir)
			(void)fs_rmdir_at(holder_fd, nothings[i].name);
		else
			(void)fs_unlink_at(holder_fd, nothings[i].name);
	}
	h->made = 0;
}

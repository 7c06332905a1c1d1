/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options keep the upper layer readable for us: whole files (metacopy), no renamed directories
 * that point elsewhere (redirect_dir), nothing hidden beside it (index). Layers are descriptors, or
 * names of descriptors: bytes of a path never reach the option parser.
 */
#include "helper/overlay.h"

#include "fs/atomic.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum form {
	FORM_FD = 0,   /* Linux 6.13 */
	FORM_NAME,     /* 6.6 */
	FORM_NAME_OLD, /* without uuid=null: the upper gets one attribute more */
	FORM_END_
};

static const struct {
	const char *key, *value;
	enum form last; /* not in later forms */
} options[] = {
	{ "index", "off", FORM_NAME_OLD },
	{ "metacopy", "off", FORM_NAME_OLD },
	{ "redirect_dir", "nofollow", FORM_NAME_OLD },
	{ "xino", "off", FORM_NAME_OLD },
	{ "nfs_export", "off", FORM_NAME_OLD },
	{ "uuid", "null", FORM_NAME },
};

static int set_layer(int fs, enum form form, const char *key, int fd)
{
	char name[64];

	if (form == FORM_FD)
		return fsconfig(fs, FSCONFIG_SET_FD, key, NULL, fd);
	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	return fsconfig(fs, FSCONFIG_SET_STRING, key, name, 0);
}

static int configure(int fs, enum form form, const struct overlay_layers *l)
{
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		if (form <= options[i].last &&
		    fsconfig(fs, FSCONFIG_SET_STRING, options[i].key, options[i].value, 0) < 0)
			return -errno;
	}
	if (fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0) < 0)
		return -errno;
	if (l->user_xattrs && fsconfig(fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) < 0)
		return -errno;
	if (set_layer(fs, form, form == FORM_FD ? "lowerdir+" : "lowerdir", l->lower) < 0 ||
	    set_layer(fs, form, "upperdir", l->upper) < 0 ||
	    set_layer(fs, form, "workdir", l->work) < 0)
		return -errno;
	return fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0 ? -errno : 0;
}

/* What the original's mount does not allow, the view does not allow either; and no devices. */
static unsigned attributes_of(int fd)
{
	static const struct {
		unsigned long flag;
		unsigned attr;
	} table[] = {
		{ ST_NOSUID, MOUNT_ATTR_NOSUID },
		{ ST_NOEXEC, MOUNT_ATTR_NOEXEC },
	};
	struct statvfs vfs;
	unsigned attrs = sabotage("nodev") ? 0 : MOUNT_ATTR_NODEV;

	if (fstatvfs(fd, &vfs) < 0)
		return MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (vfs.f_flag & table[i].flag)
			attrs |= table[i].attr;
	return attrs;
}

/* The first message, without the kernel's mark and with no line end. */
static void read_log(int fs, char log[OVERLAY_LOG])
{
	ssize_t n = read(fs, log, OVERLAY_LOG - 1);
	char *end;

	log[n > 0 ? n : 0] = '\0';
	end = strchr(log, '\n');
	if (end)
		*end = '\0';
	if (strncmp(log, "e ", 2) == 0)
		memmove(log, log + 2, strlen(log + 2) + 1);
}

static int mount_form(enum form form, const struct overlay_layers *l, int *ret_mount_fd,
                      int *ret_context_fd, char log[OVERLAY_LOG])
{
	cleanup_close int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	int r, fd;

	if (fs < 0)
		return -errno;
	r = configure(fs, form, l);
	if (r < 0) {
		read_log(fs, log);
		return r;
	}
	fd = fsmount(fs, FSMOUNT_CLOEXEC, attributes_of(l->lower));
	if (fd < 0)
		return -errno;
	*ret_mount_fd = fd;
	*ret_context_fd = take_fd(&fs);
	return 0;
}

int overlay_make(const struct overlay_layers *l, int *ret_mount_fd, int *ret_context_fd,
                 char log[OVERLAY_LOG])
{
	const char *by_name = secure_getenv("ATOLL_OVERLAY_STRINGS");
	enum form form = by_name && strcmp(by_name, "1") == 0 ? FORM_NAME : FORM_FD;
	int r = -EINVAL;

	log[0] = '\0';
	/* The kernel answers EINVAL to what it does not know, and to much else. */
	for (; r == -EINVAL && form < FORM_END_; form++)
		r = mount_form(form, l, ret_mount_fd, ret_context_fd, log);
	return r;
}

int overlay_clear_work(int work_fd)
{
	cleanup_close int fd = FD_NONE;
	int r = resolve_dir_path(work_fd, "work", &fd);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = remove_tree_at(fd, "incompat");
	/* The kernel closes its directory to everybody: to its owner, without capabilities, too. */
	if (r == -EACCES && fs_set_mode(work_fd, "work", 0700) == 0)
		r = remove_tree_at(fd, "incompat");
	return r;
}

int overlay_stop(int context_fd)
{
	if (fsconfig(context_fd, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0)
		return -errno;
	return fsconfig(context_fd, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0 ? -errno : 0;
}

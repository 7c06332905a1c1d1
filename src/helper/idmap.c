/* SPDX-License-Identifier: Apache-2.0 */
/* Each map is one write of whole lines "first-inside first-outside count". */
#include "helper/idmap.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INITIAL_USER_NS 0xeffffffdu /* inode number, part of the kernel's interface */
#define MAP_MAX         (64u << 10)

static int write_proc(int proc_fd, const char *path, const char *text)
{
	cleanup_close int fd = openat(proc_fd, path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return fs_write_all(fd, text, strlen(text));
}

int idmap_self(uid_t uid, gid_t gid)
{
	char text[64];
	int r;

	/* Without this an ordinary user may not map a group. */
	r = write_proc(AT_FDCWD, "/proc/self/setgroups", "deny");
	if (r < 0 && r != -ENOENT)
		return r;
	(void)snprintf(text, sizeof(text), "%u %u 1", uid, uid);
	r = write_proc(AT_FDCWD, "/proc/self/uid_map", text);
	if (r < 0)
		return r;
	(void)snprintf(text, sizeof(text), "%u %u 1", gid, gid);
	return write_proc(AT_FDCWD, "/proc/self/gid_map", text);
}

static int copy_map(int proc_fd, pid_t pid, const char *name)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	cleanup_close int fd = FD_NONE;
	cleanup_free char *text = NULL;
	unsigned inside, outside, count;
	const char *p;
	char path[64];
	size_t len;
	int r, n;

	(void)snprintf(path, sizeof(path), "/proc/self/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = fs_read_all(fd, MAP_MAX, &text, &len);
	if (r < 0)
		return r;
	for (p = text; sscanf(p, "%u %u %u%n", &inside, &outside, &count, &n) == 3; p += n)
		strbuf_printf(&sb, "%u %u %u\n", inside, inside, count);
	(void)snprintf(path, sizeof(path), "%d/%s", (int)pid, name);
	return write_proc(proc_fd, path, strbuf_str(&sb));
}

int idmap_copy(int proc_fd, pid_t pid)
{
	int r = copy_map(proc_fd, pid, "uid_map");

	return r < 0 ? r : copy_map(proc_fd, pid, "gid_map");
}

bool idmap_is_initial(void)
{
	struct stat st;

	return stat("/proc/self/ns/user", &st) == 0 && st.st_ino == INITIAL_USER_NS;
}

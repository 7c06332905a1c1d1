/* SPDX-License-Identifier: Apache-2.0 */
/* statx(2) and file handles: what an entry is, and which one it is. */
#include "fs/stat.h"

#include "fs/fs-impl.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Since Linux 6.5: a handle that only identifies; overlayfs gives no other. */
#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID 0x200
#endif

#define STAT_MASK  (STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID)
#define STAT_FLAGS (AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)

union handle {
	struct file_handle fh;
	char space[sizeof(struct file_handle) + MAX_HANDLE_SZ];
};

bool fs_id_none(struct fs_id id)
{
	return id.ino == 0 && id.gen == 0;
}

bool fs_id_equal(struct fs_id a, struct fs_id b)
{
	return !fs_id_none(a) && !fs_id_none(b) && a.ino == b.ino && a.gen == b.gen;
}

static int64_t statx_ns(const struct statx_timestamp *t)
{
	return t->tv_sec * INT64_C(1000000000) + t->tv_nsec;
}

/* Zero is kept for "not known". */
static uint64_t gen_hash(const void *data, size_t len)
{
	uint64_t h = hash64(data, len);

	return h == 0 ? 1 : h;
}

uint64_t fs_handle_gen(int type, const void *handle, size_t len)
{
	const size_t from = offsetof(struct file_handle, handle_type);
	union handle h = { .fh.handle_type = type };

	memcpy(h.space + sizeof(h.fh), handle, len);
	return gen_hash(h.space + from, sizeof(h.fh) - from + len);
}

static int read_handle(int dir_fd, const char *name, int flags, union handle *ret)
{
	int mnt_id;

	memset(ret, 0, sizeof(*ret));
	ret->fh.handle_bytes = MAX_HANDLE_SZ;
	if (name_to_handle_at(dir_fd, name, &ret->fh, &mnt_id, flags) < 0)
		return -errno;
	return 0;
}

static bool no_handles(int r)
{
	return r == -EOPNOTSUPP || r == -EINVAL || r == -ENOSYS || r == -EOVERFLOW || r == -EPERM;
}

static int read_gen(int dir_fd, const char *name, const struct statx *stx, uint64_t *ret)
{
	int flags = name[0] == '\0' ? AT_EMPTY_PATH : 0;
	union handle h;
	int r;

	r = read_handle(dir_fd, name, flags, &h);
	if (no_handles(r))
		r = read_handle(dir_fd, name, flags | AT_HANDLE_FID, &h);
	if (r == 0) {
		*ret = fs_handle_gen(h.fh.handle_type, h.space + sizeof(h.fh), h.fh.handle_bytes);
		return 0;
	}
	if (!no_handles(r))
		return r;
	if ((stx->stx_mask & STATX_BTIME) == 0)
		return -EOPNOTSUPP;
	int64_t birth = statx_ns(&stx->stx_btime);
	*ret = gen_hash(&birth, sizeof(birth));
	return 0;
}

static void fill(const struct statx *stx, struct fs_stat *ret)
{
	*ret = (struct fs_stat){
		.id.ino = stx->stx_ino,
		.mode = stx->stx_mode,
		.uid = stx->stx_uid,
		.gid = stx->stx_gid,
		.nlink = stx->stx_nlink,
		.size = S_ISDIR(stx->stx_mode) ? 0 : stx->stx_size,
		.disk = stx->stx_blocks * 512,
		.mtime_ns = statx_ns(&stx->stx_mtime),
		.ctime_ns = statx_ns(&stx->stx_ctime),
		.atime_ns = statx_ns(&stx->stx_atime),
		.born_ns = stx->stx_mask & STATX_BTIME ? statx_ns(&stx->stx_btime) : 0,
		.dev = makedev(stx->stx_dev_major, stx->stx_dev_minor),
		.rdev = makedev(stx->stx_rdev_major, stx->stx_rdev_minor),
		.mnt_id = (stx->stx_mask & STATX_MNT_ID) != 0 ? stx->stx_mnt_id : 0,
		.immutable =
			(stx->stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) != 0,
		.mount_root = (stx->stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0,
	};
}

static int stat_entry(int dir_fd, const char *name, unsigned want, struct fs_stat *ret)
{
	int flags = STAT_FLAGS | (name[0] == '\0' ? AT_EMPTY_PATH : 0);
	struct statx stx;
	uint64_t gen = 0;
	int r;

	if (statx(dir_fd, name, flags, STAT_MASK, &stx) < 0)
		return -errno;
	if ((want & FS_STAT_ID) != 0) {
		r = read_gen(dir_fd, name, &stx, &gen);
		if (r < 0)
			return r;
	}
	fill(&stx, ret);
	ret->id.gen = gen;
	return 0;
}

/* Several components: statx would follow links in all but the last. */
static int stat_path(int dir_fd, const char *path, unsigned want, struct fs_stat *ret)
{
	const struct open_how how = {
		.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS,
	};
	cleanup_close int fd = FD_NONE;
	const char *name;
	int r;

	fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
	if (fd >= 0)
		return stat_entry(fd, "", want, ret);
	if (errno != ENAMETOOLONG || path[0] == '/')
		return -errno;
	r = resolve_parent(dir_fd, path, &fd, &name);
	if (r < 0)
		return r;
	return stat_entry(fd, name, want, ret);
}

int fs_stat_at(int dir_fd, const char *name, unsigned want, struct fs_stat *ret)
{
	if (strchr(name, '/') != NULL)
		return stat_path(dir_fd, name, want, ret);
	return stat_entry(dir_fd, name, want, ret);
}

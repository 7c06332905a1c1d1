/* SPDX-License-Identifier: Apache-2.0 */
/* Filesystem types by their magic numbers, and what they mean for us. */
#include "fs/mount.h"

#include "fs/stat.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <stdlib.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

enum fs_kind { FS_LOCAL = 0, FS_NETWORK, FS_OVERLAY, FS_KERNEL };

struct fs_type {
	uint32_t magic;
	const char *name;
	enum fs_kind kind;
};

static const struct fs_type fs_types[] = {
	{ 0x0000ef53, "ext4", FS_LOCAL },         { 0x58465342, "xfs", FS_LOCAL },
	{ 0x9123683e, "btrfs", FS_LOCAL },        { 0x01021994, "tmpfs", FS_LOCAL },
	{ 0x858458f6, "ramfs", FS_LOCAL },        { 0x2fc12fc1, "zfs", FS_LOCAL },
	{ 0xf2f52010, "f2fs", FS_LOCAL },         { 0xca451a4e, "bcachefs", FS_LOCAL },
	{ 0x52654973, "reiserfs", FS_LOCAL },     { 0x3153464a, "jfs", FS_LOCAL },
	{ 0x00003434, "nilfs2", FS_LOCAL },       { 0x00004d44, "vfat", FS_LOCAL },
	{ 0x2011bab0, "exfat", FS_LOCAL },        { 0x7366746e, "ntfs3", FS_LOCAL },
	{ 0x73717368, "squashfs", FS_LOCAL },     { 0xe0f5e1e2, "erofs", FS_LOCAL },
	{ 0x28cd3d45, "cramfs", FS_LOCAL },       { 0x00009660, "iso9660", FS_LOCAL },
	{ 0x15013346, "udf", FS_LOCAL },          { 0x24051905, "ubifs", FS_LOCAL },
	{ 0x0000f15f, "ecryptfs", FS_LOCAL },     { 0x00009fa0, "proc", FS_KERNEL },
	{ 0x62656572, "sysfs", FS_KERNEL },       { 0x63677270, "cgroup2", FS_KERNEL },
	{ 0x0027e0eb, "cgroup", FS_KERNEL },      { 0x64626720, "debugfs", FS_KERNEL },
	{ 0x74726163, "tracefs", FS_KERNEL },     { 0x73636673, "securityfs", FS_KERNEL },
	{ 0x00001cd1, "devpts", FS_KERNEL },      { 0x19800202, "mqueue", FS_KERNEL },
	{ 0xcafe4a11, "bpf", FS_KERNEL },         { 0x6165676c, "pstore", FS_KERNEL },
	{ 0xde5e81e4, "efivarfs", FS_KERNEL },    { 0x62656570, "configfs", FS_KERNEL },
	{ 0x42494e4d, "binfmt_misc", FS_KERNEL }, { 0x794c7630, "overlay", FS_OVERLAY },
	{ 0x00006969, "nfs", FS_NETWORK },        { 0x0000517b, "smb", FS_NETWORK },
	{ 0xff534d42, "cifs", FS_NETWORK },       { 0xfe534d42, "smb2", FS_NETWORK },
	{ 0x01021997, "9p", FS_NETWORK },         { 0x5346414f, "afs", FS_NETWORK },
	{ 0x6b414653, "kafs", FS_NETWORK },       { 0x00c36400, "ceph", FS_NETWORK },
	{ 0x73757245, "coda", FS_NETWORK },       { 0x0000564c, "ncp", FS_NETWORK },
	{ 0x01161970, "gfs2", FS_NETWORK },       { 0x7461636f, "ocfs2", FS_NETWORK },
	{ 0x0bd00bd0, "lustre", FS_NETWORK },     { 0x47504653, "gpfs", FS_NETWORK },
	{ 0x19830326, "fhgfs", FS_NETWORK },      { 0x20030528, "orangefs", FS_NETWORK },
	{ 0x786f4256, "vboxsf", FS_NETWORK },     { 0xbacbacbc, "vmhgfs", FS_NETWORK },
	{ 0x65735546, "fuse", FS_NETWORK },
};

static const struct fs_type *find_type(uint32_t magic)
{
	static const struct fs_type unknown = { 0, "unknown", FS_LOCAL };

	for (size_t i = 0; i < sizeof(fs_types) / sizeof(fs_types[0]); i++) {
		if (fs_types[i].magic == magic)
			return &fs_types[i];
	}
	return &unknown;
}

int mount_info(int fd, struct mount_info *ret)
{
	const struct fs_type *type;
	struct statfs sf;
	struct fs_stat st;
	unsigned id[2];
	int r;

	r = fs_stat_at(fd, "", 0, &st);
	if (r < 0)
		return r;
	if (fstatfs(fd, &sf) < 0)
		return -errno;
	_Static_assert(sizeof(id) == sizeof(sf.f_fsid), "f_fsid is two words");
	memcpy(id, &sf.f_fsid, sizeof(id));
	type = find_type((uint32_t)sf.f_type);
	*ret = (struct mount_info){
		.mnt_id = st.mnt_id,
		.dev = st.dev,
		.type = (uint32_t)sf.f_type,
		.name = type->name,
		.read_only = ((unsigned long)sf.f_flags & ST_RDONLY) != 0,
		.network = type->kind == FS_NETWORK,
		.overlay = type->kind == FS_OVERLAY,
		.kernel = type->kind == FS_KERNEL,
		.free_bytes = sf.f_bavail * (uint64_t)sf.f_frsize,
		/* btrfs and others make inodes as they go and say 0 of 0. */
		.free_inodes = sf.f_files == 0 ? UINT64_MAX : sf.f_ffree,
	};
	(void)snprintf(ret->fsid, sizeof(ret->fsid), "%08x%08x", id[0], id[1]);
	return 0;
}

bool mount_same(const struct mount_info *a, const struct mount_info *b)
{
	return a->mnt_id == b->mnt_id && a->dev == b->dev;
}

/* ---- /proc/self/mountinfo ---- */

/* The octal escapes of a field undone, in place. */
static void unescape(char *field)
{
	char *to = field;

	for (const char *p = field; *p; p++) {
		if (p[0] == '\\' && p[1] && p[2] && p[3]) {
			*to++ = (char)((p[1] - '0') * 64 + (p[2] - '0') * 8 + (p[3] - '0'));
			p += 3;
		} else {
			*to++ = *p;
		}
	}
	*to = '\0';
}

struct mount_line {
	uint64_t id;
	char *dev;  /* "8:1" */
	char *root; /* what of the filesystem is mounted */
	char *at;   /* where */
};

/* Into parts of LINE. */
static bool parse_line(char *line, struct mount_line *ret)
{
	char *fields[5], *save = NULL;

	for (size_t i = 0; i < 5; i++)
		if (!(fields[i] = strtok_r(i ? NULL : line, " ", &save)))
			return false;
	*ret = (struct mount_line){ .id = strtoull(fields[0], NULL, 10),
		                    .dev = fields[2],
		                    .root = fields[3],
		                    .at = fields[4] };
	unescape(ret->root);
	unescape(ret->at);
	return true;
}

/* PATH without a slash at its end: "/" is "". */
static const char *bare(const char *path)
{
	return strcmp(path, "/") == 0 ? "" : path;
}

static bool is_at_or_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

/* "8:1/home/you/app": the filesystem, and where on it, whatever is mounted where. 1 and *ret, 0 when
 * it cannot be told, -errno. */
static int locate(const struct mount_place *place, uint64_t mnt_id, char **ret)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct mount_line m;
	char *line = NULL;
	size_t cap = 0;
	int r = 0;

	if (!f)
		return -errno;
	while (r == 0 && getline(&line, &cap, f) >= 0) {
		if (!parse_line(line, &m) || m.id != mnt_id)
			continue;
		if (!is_at_or_below(place->path, bare(m.at)))
			break;
		*ret = xasprintf("%s%s%s", m.dev, bare(m.root),
		                 bare(place->path) + strlen(bare(m.at)));
		r = 1;
	}
	free(line);
	(void)fclose(f);
	return r;
}

int mount_overlap(const struct mount_place *a, const struct mount_place *b)
{
	cleanup_free char *at_a = NULL, *at_b = NULL;
	struct mount_info of_a, of_b;
	int r = mount_info(a->fd, &of_a);

	if (r == 0)
		r = mount_info(b->fd, &of_b);
	if (r < 0)
		return r;
	if (of_a.mnt_id == of_b.mnt_id)
		return 0;
	r = locate(a, of_a.mnt_id, &at_a);
	if (r > 0)
		r = locate(b, of_b.mnt_id, &at_b);
	return r <= 0 ? r : is_at_or_below(at_a, at_b) || is_at_or_below(at_b, at_a);
}

int mount_below(const char *path)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	size_t len = strlen(path), cap = 0;
	char *line = NULL;
	int found = 0;

	if (!f)
		return -errno;
	while (!found && getline(&line, &cap, f) >= 0) {
		struct mount_line m;

		found = parse_line(line, &m) && strncmp(m.at, path, len) == 0 && m.at[len] == '/' &&
		        m.at[len + 1];
	}
	free(line);
	(void)fclose(f);
	return found;
}

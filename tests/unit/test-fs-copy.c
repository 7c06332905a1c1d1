/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: complete, by every method, and nothing left of the failed ones. */
#include "fs/copy.h"

#include "fs/resolve.h"
#include "fs/walk.h"
#include "fs/xattr.h"
#include "util/cleanup.h"

#include "unit/fs-fixture.h"
#include "unit/refuse.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>

#define MIB (1 << 20)

static const struct timespec old_times[2] = { { 1000000000, 123456789 },
	                                      { 1111111111, 987654321 } };

/* Where data begins and ends; all of a file without holes is one stretch. */
static bool same_holes(int a_fd, int b_fd)
{
	off_t at = 0;

	for (;;) {
		off_t a = lseek(a_fd, at, SEEK_DATA);
		off_t b = lseek(b_fd, at, SEEK_DATA);

		if (a != b)
			return false;
		if (a < 0)
			return true;
		at = lseek(a_fd, a, SEEK_HOLE);
		if (at != lseek(b_fd, a, SEEK_HOLE))
			return false;
	}
}

static bool same_entry(int a_dir, const char *a_name, int b_dir, const char *b_name)
{
	cleanup_xattrs struct xattrs ax = XATTRS_INIT, bx = XATTRS_INIT;
	struct fs_stat a, b;

	if (fs_stat_at(a_dir, a_name, 0, &a) < 0 || fs_stat_at(b_dir, b_name, 0, &b) < 0 ||
	    xattrs_read_at(a_dir, a_name, &ax) < 0 || xattrs_read_at(b_dir, b_name, &bx) < 0)
		return false;
	if (a.mode != b.mode || a.uid != b.uid || a.gid != b.gid || a.size != b.size ||
	    a.rdev != b.rdev || a.mtime_ns != b.mtime_ns || !xattrs_equal(&ax, &bx))
		return false;
	if (S_ISREG(a.mode) || S_ISLNK(a.mode))
		return copy_same_content(a_dir, a_name, b_dir, b_name) == 1;
	return true;
}

/* 5 MiB: data, a hole, data, a hole to the end; setuid, attributes, an ACL, old times. */
static void make_rich_file(int dir_fd, const char *name)
{
	static const unsigned char acl[] = { 2,   0,   0,   0,   1,   0,   6,  0,   255, 255, 255,
		                             255, 2,   0,   4,   0,   1,   0,  0,   0,   4,   0,
		                             4,   0,   255, 255, 255, 255, 16, 0,   4,   0,   255,
		                             255, 255, 255, 32,  0,   0,   0,  255, 255, 255, 255 };
	int fd = openat(dir_fd, name, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
	char block[65536];

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)(i * 31 + i / 251);
	for (int i = 0; i < 20; i++)
		assert_int_equal(pwrite(fd, block, sizeof(block), i * 65536), 65536);
	assert_int_equal(pwrite(fd, block, 5000, 3 * MIB + 65536), 5000);
	assert_int_equal(ftruncate(fd, 5 * MIB), 0);
	assert_true(fsetxattr(fd, "user.note", "value", 5, 0) == 0 || errno == EOPNOTSUPP);
	assert_true(fsetxattr(fd, "user.empty", "", 0, 0) == 0 || errno == EOPNOTSUPP);
	assert_true(fsetxattr(fd, "system.posix_acl_access", acl, sizeof(acl), 0) == 0 ||
	            errno == EOPNOTSUPP);
	assert_int_equal(fchmod(fd, 04751), 0);
	if (geteuid() == 0) {
		assert_int_equal(fchown(fd, 12, 34), 0);
		assert_int_equal(fchmod(fd, 04751), 0);
	}
	assert_int_equal(futimens(fd, old_times), 0);
	close(fd);
}

static void copy_and_compare(struct fixture_dir *from, struct fixture_dir *to, const char *copy)
{
	cleanup_close int src = FD_NONE, dst = FD_NONE;
	struct fs_stat s, d, now;

	assert_int_equal(copy_entry_at(from->fd, "src", to->fd, copy, &s, &d), 0);
	assert_true(same_entry(from->fd, "src", to->fd, copy));
	assert_true(s.mtime_ns == d.mtime_ns && s.atime_ns == d.atime_ns);
	assert_int_equal(fs_stat_at(to->fd, copy, FS_STAT_ID, &now), 0);
	assert_true(fs_id_equal(now.id, d.id) && now.ctime_ns == d.ctime_ns);
	assert_int_equal(fs_stat_at(from->fd, "src", FS_STAT_ID, &now), 0);
	assert_true(fs_id_equal(now.id, s.id) && now.ctime_ns == s.ctime_ns);
	src = openat(from->fd, "src", O_RDONLY | O_CLOEXEC);
	dst = openat(to->fd, copy, O_RDONLY | O_CLOEXEC);
	assert_true(same_holes(src, dst));
}

static void prf_05_every_method_copies_alike(void **state)
{
	static const char *const names[] = { "reflink", "range", "sendfile", "loop" };

	for_each_dir(d, state)
	{
		make_rich_file(d->fd, "src");
		for (int m = COPY_REFLINK; m <= COPY_LOOP; m++) {
			copy_force((enum copy_method)m);
			copy_and_compare(d, d, names[m]);
		}
		copy_force(COPY_REFLINK);
	}
}

static int copy_without_sendfile(int dir_fd)
{
	CHECK(copy_entry_at(dir_fd, "src", dir_fd, "dst", NULL, NULL) == 0);
	CHECK(same_entry(dir_fd, "src", dir_fd, "dst"));
	CHECK(unlinkat(dir_fd, "dst", 0) == 0);
	return 0;
}

/* What is refused in the middle of a file goes on by the next method; what is broken does not. */
static int copy_with_broken_sendfile(int dir_fd)
{
	CHECK(copy_entry_at(dir_fd, "src", dir_fd, "dst", NULL, NULL) == -EIO);
	CHECK(!exists(dir_fd, "dst"));
	return 0;
}

static void prf_05_what_is_refused_is_copied_otherwise(void **state)
{
	for_each_dir(d, state)
	{
		make_rich_file(d->fd, "src");
		copy_force(COPY_SENDFILE);
		assert_int_equal(while_refused(d->fd,
		                               (struct refusal){ SYS_sendfile, EINVAL, 0, 0 },
		                               copy_without_sendfile),
		                 0);
		assert_int_equal(while_refused(d->fd, (struct refusal){ SYS_sendfile, EIO, 0, 0 },
		                               copy_with_broken_sendfile),
		                 0);
		copy_force(COPY_REFLINK);
	}
}

static void prf_05_copies_between_filesystems(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;

	make_rich_file(d[0].fd, "src");
	make_rich_file(d[1].fd, "src");
	for (int m = COPY_REFLINK; m <= COPY_LOOP; m++) {
		copy_force((enum copy_method)m);
		copy_and_compare(&d[0], &d[1], "there");
		copy_and_compare(&d[1], &d[0], "here");
		assert_int_equal(unlinkat(d[1].fd, "there", 0), 0);
		assert_int_equal(unlinkat(d[0].fd, "here", 0), 0);
	}
	copy_force(COPY_REFLINK);
}

static bool is_shared(int fd)
{
	union {
		struct fiemap map;
		char space[sizeof(struct fiemap) + sizeof(struct fiemap_extent)];
	} u = { .map = { .fm_length = FIEMAP_MAX_OFFSET,
		         .fm_flags = FIEMAP_FLAG_SYNC,
		         .fm_extent_count = 1 } };
	struct fiemap_extent extent;

	if (ioctl(fd, FS_IOC_FIEMAP, &u.map) < 0 || u.map.fm_mapped_extents < 1)
		return false;
	memcpy(&extent, u.space + sizeof(struct fiemap), sizeof(extent));
	return (extent.fe_flags & FIEMAP_EXTENT_SHARED) != 0;
}

static int reflink_on_image(int dir_fd, const char *make)
{
	char block[65536];
	int fd, copy;

	memset(block, 'x', sizeof(block));
	CHECK(mkdirat(dir_fd, "m", 0755) == 0);
	if (system(make) != 0 || system("mount -o loop img m >/dev/null 2>&1") != 0)
		return 77;
	dir_fd = openat(dir_fd, "m", O_RDONLY | O_DIRECTORY);
	fd = openat(dir_fd, "src", O_CREAT | O_RDWR, 0644);
	CHECK(write(fd, block, sizeof(block)) == (ssize_t)sizeof(block));
	CHECK(ftruncate(fd, MIB) == 0);
	for (int m = COPY_REFLINK; m <= COPY_LOOP; m++) {
		copy_force((enum copy_method)m);
		CHECK(copy_entry_at(dir_fd, "src", dir_fd, "dst", NULL, NULL) == 0);
		copy = openat(dir_fd, "dst", O_RDONLY);
		CHECK(same_entry(dir_fd, "src", dir_fd, "dst") && same_holes(fd, copy));
		CHECK(is_shared(copy) || m != COPY_REFLINK);
		close(copy);
		CHECK(unlinkat(dir_fd, "dst", 0) == 0);
	}
	return 0;
}

static int reflink_on_xfs(int dir_fd)
{
	return reflink_on_image(dir_fd, "truncate -s 320M img && mkfs.xfs -q img >/dev/null 2>&1");
}

static int reflink_on_btrfs(int dir_fd)
{
	return reflink_on_image(dir_fd,
	                        "truncate -s 128M img && mkfs.btrfs -q img >/dev/null 2>&1");
}

static void prf_05_reflinks_on_xfs(void **state)
{
	if (!among_own_mounts(&((struct fixture *)*state)->dir[1], reflink_on_xfs))
		skip();
}

static void prf_05_reflinks_on_btrfs(void **state)
{
	if (!among_own_mounts(&((struct fixture *)*state)->dir[1], reflink_on_btrfs))
		skip();
}

static void bkp_06_special_files_are_copied_unopened(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		struct sockaddr_un addr = { .sun_family = AF_UNIX };
		bool device;

		snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/sock", d->fd);
		assert_int_equal(bind(s, (struct sockaddr *)&addr, sizeof(addr)), 0);
		assert_int_equal(mkfifoat(d->fd, "fifo", 0), 0);
		assert_int_equal(fchmodat(d->fd, "fifo", 0246, 0), 0);
		assert_int_equal(utimensat(d->fd, "fifo", old_times, 0), 0);
		/* Opening a watchdog starts it; there is none here, but the number is right. */
		device = mknodat(d->fd, "dev", S_IFCHR | 0600, makedev(10, 130)) == 0;

		alarm(60);
		assert_int_equal(copy_entry_at(d->fd, "fifo", d->fd, "fifo2", NULL, NULL), 0);
		assert_int_equal(copy_entry_at(d->fd, "sock", d->fd, "sock2", NULL, NULL), 0);
		assert_true(same_entry(d->fd, "fifo", d->fd, "fifo2"));
		assert_true(same_entry(d->fd, "sock", d->fd, "sock2"));
		if (device) {
			assert_int_equal(copy_entry_at(d->fd, "dev", d->fd, "dev2", NULL, NULL), 0);
			assert_true(same_entry(d->fd, "dev", d->fd, "dev2"));
		}
		alarm(0);
	}
}

static void copies_of_links_are_links(void **state)
{
	for_each_dir(d, state)
	{
		assert_int_equal(symlinkat("no/where\n", d->fd, "l"), 0);
		assert_int_equal(utimensat(d->fd, "l", old_times, AT_SYMLINK_NOFOLLOW), 0);
		if (geteuid() == 0)
			assert_int_equal(fchownat(d->fd, "l", NOBODY, NOBODY, AT_SYMLINK_NOFOLLOW),
			                 0);
		assert_int_equal(copy_entry_at(d->fd, "l", d->fd, "l2", NULL, NULL), 0);
		assert_true(same_entry(d->fd, "l", d->fd, "l2"));
	}
}

static void copies_never_replace(void **state)
{
	for_each_dir(d, state)
	{
		write_file(d->fd, "a", "new");
		write_file(d->fd, "b", "old!");
		make_dir(d->fd, "d");
		assert_int_equal(symlinkat("b", d->fd, "l"), 0);
		assert_int_equal(copy_entry_at(d->fd, "a", d->fd, "b", NULL, NULL), -EEXIST);
		assert_int_equal(copy_entry_at(d->fd, "a", d->fd, "l", NULL, NULL), -EEXIST);
		assert_int_equal(copy_entry_at(d->fd, "l", d->fd, "b", NULL, NULL), -EEXIST);
		assert_int_equal(copy_tree_at(d->fd, "d", d->fd, "b"), -EEXIST);
		assert_int_equal(copy_entry_at(d->fd, "d", d->fd, "e", NULL, NULL), -EISDIR);
		assert_int_equal(copy_entry_at(d->fd, "no", d->fd, "e", NULL, NULL), -ENOENT);
		assert_false(exists(d->fd, "e"));
		assert_int_equal(copy_same_content(d->fd, "a", d->fd, "b"), 0);
	}
}

static void copies_are_told_equal_or_not(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;

	write_file(d->fd, "a", "same");
	write_file(d->fd, "b", "same");
	write_file(d->fd, "c", "sane");
	make_dir(d->fd, "d");
	assert_int_equal(symlinkat("a", d->fd, "l"), 0);
	assert_int_equal(symlinkat("a", d->fd, "m"), 0);
	assert_int_equal(symlinkat("b", d->fd, "n"), 0);
	assert_int_equal(copy_same_content(d->fd, "a", d->fd, "a"), 1);
	assert_int_equal(copy_same_content(d->fd, "a", d->fd, "b"), 1);
	assert_int_equal(copy_same_content(d->fd, "a", d->fd, "c"), 0);
	assert_int_equal(copy_same_content(d->fd, "l", d->fd, "m"), 1);
	assert_int_equal(copy_same_content(d->fd, "l", d->fd, "n"), 0);
	assert_int_equal(copy_same_content(d->fd, "a", d->fd, "l"), -EINVAL);
	assert_int_equal(copy_same_content(d->fd, "d", d->fd, "d"), -EINVAL);
	assert_int_equal(copy_same_content(d->fd, "a", d->fd, "no"), -ENOENT);
}

static int copies_of_a_user(int dir_fd)
{
	struct fs_stat dst;

	close(openat(dir_fd, "locked", O_CREAT | O_WRONLY, 0));
	CHECK(copy_entry_at(dir_fd, "locked", dir_fd, "x", NULL, NULL) == -EACCES);
	CHECK(!exists(dir_fd, "x"));
	/* Somebody else's file: the copy is ours, and says so. */
	if (exists(dir_fd, "roots")) {
		CHECK(copy_entry_at(dir_fd, "roots", dir_fd, "x", NULL, &dst) == 0);
		CHECK(dst.uid == geteuid() && (dst.mode & 07777) == 0644);
	}
	/* Read-only ones carry their attributes too. */
	close(openat(dir_fd, "ro", O_CREAT | O_WRONLY, 0644));
	CHECK(fchmodat(dir_fd, "ro", 0444, 0) == 0);
	CHECK(copy_entry_at(dir_fd, "ro", dir_fd, "ro2", NULL, NULL) == 0);
	CHECK(same_entry(dir_fd, "ro", dir_fd, "ro2"));
	CHECK(mkdirat(dir_fd, "t", 0755) == 0 && mkdirat(dir_fd, "t/d", 0755) == 0);
	close(openat(dir_fd, "t/d/f", O_CREAT | O_WRONLY, 0400));
	CHECK(fchmodat(dir_fd, "t/d", 0500, 0) == 0);
	CHECK(copy_tree_at(dir_fd, "t", dir_fd, "t2") == 0);
	CHECK(same_entry(dir_fd, "t/d", dir_fd, "t2/d"));
	CHECK(mkdirat(dir_fd, "t/e", 0) == 0);
	CHECK(copy_tree_at(dir_fd, "t", dir_fd, "t3") == -EACCES);
	CHECK(!exists(dir_fd, "t3"));
	return 0;
}

static void copies_as_ordinary_user(void **state)
{
	for_each_dir(d, state)
	{
		if (geteuid() == 0) {
			make_dir(d->fd, "his");
			write_file(d->fd, "his/roots", "text");
		}
		as_ordinary_user(d, copies_of_a_user);
	}
}

static int copy_on_full_disk(int dir_fd)
{
	char block[65536] = { 1 };
	int fd, full_fd;

	CHECK(mkdirat(dir_fd, "m", 0755) == 0);
	if (mount("none", "m", "tmpfs", 0, "size=256k") < 0)
		return 77;
	full_fd = openat(dir_fd, "m", O_RDONLY | O_DIRECTORY);
	fd = openat(dir_fd, "src", O_CREAT | O_RDWR, 0644);
	for (int i = 0; i < 16; i++)
		CHECK(write(fd, block, sizeof(block)) == (ssize_t)sizeof(block));
	CHECK(mkdirat(dir_fd, "tree", 0755) == 0);
	CHECK(linkat(dir_fd, "src", dir_fd, "tree/src", 0) == 0);
	for (int m = COPY_REFLINK; m <= COPY_LOOP; m++) {
		copy_force((enum copy_method)m);
		CHECK(copy_entry_at(dir_fd, "src", full_fd, "x", NULL, NULL) == -ENOSPC);
		CHECK(copy_tree_at(dir_fd, "tree", full_fd, "tree") == -ENOSPC);
		CHECK(!exists(full_fd, "x") && !exists(full_fd, "tree"));
	}
	return 0;
}

static void failed_copies_leave_nothing(void **state)
{
	if (!among_own_mounts(((struct fixture *)*state)->dir, copy_on_full_disk))
		skip();
}

enum { CHANGING_SIZE = 32 << 20 };

struct writer {
	int dir_fd;
	int rounds; /* how many copies to disturb */
	atomic_bool stop;
};

/* Waits for a copy to begin; then changes the first byte of its source, and then the last: a
 * copy where only the last is new is of a file that never was. */
static void *disturb(void *arg)
{
	struct writer *w = arg;
	int fd = openat(w->dir_fd, "src", O_WRONLY | O_CLOEXEC);

	for (int i = 0; i < w->rounds; i++) {
		unsigned char byte = (unsigned char)(1 + i);

		while (!exists(w->dir_fd, "dst") && !atomic_load(&w->stop))
			usleep(100);
		usleep(1000);
		if (pwrite(fd, &byte, 1, 0) != 1 || pwrite(fd, &byte, 1, CHANGING_SIZE - 1) != 1)
			abort();
	}
	close(fd);
	return NULL;
}

static int copy_disturbed(int dir_fd, int rounds)
{
	struct writer w = { .dir_fd = dir_fd, .rounds = rounds };
	pthread_t thread;
	int r;

	assert_int_equal(pthread_create(&thread, NULL, disturb, &w), 0);
	r = copy_entry_at(dir_fd, "src", dir_fd, "dst", NULL, NULL);
	atomic_store(&w.stop, true);
	pthread_join(thread, NULL);
	return r;
}

static void write_zeros(int dir_fd)
{
	cleanup_close int fd = openat(dir_fd, "src", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	static const char block[1 << 20];

	for (off_t at = 0; at < CHANGING_SIZE; at += (off_t)sizeof(block))
		assert_int_equal(pwrite(fd, block, sizeof(block), at), sizeof(block));
}

static void copies_of_changing_files_are_whole_or_refused(void **state)
{
	static const int rounds[] = { 1, 2, 3, 100 };

	copy_force(COPY_LOOP);
	for_each_dir(d, state)
	{
		for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
			cleanup_close int fd = FD_NONE;
			unsigned char first = 0, last = 0;
			int r;

			write_zeros(d->fd);
			r = copy_disturbed(d->fd, rounds[i]);
			fd = openat(d->fd, "dst", O_RDONLY | O_CLOEXEC);
			assert_true(r == 0 || r == -EAGAIN);
			assert_int_equal(r == 0, fd >= 0);
			if (r < 0)
				continue;
			assert_int_equal(pread(fd, &first, 1, 0), 1);
			assert_int_equal(pread(fd, &last, 1, CHANGING_SIZE - 1), 1);
			assert_true(first >= last);
			assert_int_equal(unlinkat(d->fd, "dst", 0), 0);
		}
	}
	copy_force(COPY_REFLINK);
}

struct compare {
	int other_fd;
	int n;
};

static int compare_entry(void *ctx, int dir_fd, const char *name, const char *path,
                         unsigned char type)
{
	cleanup_close int other_fd = FD_NONE;
	struct compare *c = ctx;
	const char *other;
	int r;

	(void)type;
	c->n++;
	r = resolve_parent(c->other_fd, path, &other_fd, &other);
	if (r < 0)
		return r;
	return same_entry(dir_fd, name, other_fd, other) ? 0 : -EBADMSG;
}

static void trees_are_copied_whole(void **state)
{
	for_each_dir(d, state)
	{
		struct compare c = { 0 };
		int fd;

		make_dir(d->fd, "t");
		make_dir(d->fd, "t/a");
		make_dir(d->fd, "t/a/b");
		make_dir(d->fd, "t/empty");
		make_rich_file(d->fd, "t/a/b/rich");
		write_file(d->fd, "t/a/z", "text");
		assert_int_equal(symlinkat("a", d->fd, "t/link"), 0);
		assert_int_equal(mkfifoat(d->fd, "t/fifo", 0600), 0);
		assert_int_equal(fchmodat(d->fd, "t/a/b", 01511, 0), 0);
		assert_int_equal(utimensat(d->fd, "t/a/b", old_times, 0), 0);
		assert_int_equal(utimensat(d->fd, "t/a", old_times, 0), 0);
		assert_int_equal(utimensat(d->fd, "t", old_times, 0), 0);
		assert_int_equal(copy_tree_at(d->fd, "t", d->fd, "u"), 0);
		assert_true(same_entry(d->fd, "t", d->fd, "u"));
		fd = open_dir(d->fd, "t");
		c.other_fd = open_dir(d->fd, "u");
		assert_int_equal(walk_tree(fd, "", compare_entry, NULL, &c), 0);
		assert_int_equal(c.n, 7);
		close(fd);
		close(c.other_fd);
		assert_int_equal(copy_tree_at(d->fd, "t/a/z", d->fd, "z"), 0);
		assert_true(same_entry(d->fd, "t/a/z", d->fd, "z"));
	}
}

static void trees_deeper_than_path_max_are_copied(void **state)
{
	for_each_dir(d, state)
	{
		struct compare c = { 0 };
		int fd;

		make_chain(d->fd, "directory", 600);
		assert_int_equal(copy_tree_at(d->fd, "directory", d->fd, "u"), 0);
		fd = open_dir(d->fd, "directory");
		c.other_fd = open_dir(d->fd, "u");
		assert_int_equal(walk_tree(fd, "", compare_entry, NULL, &c), 0);
		assert_int_equal(c.n, 600);
		close(fd);
		close(c.other_fd);
	}
}

static int copy_with_mount_inside(int dir_fd)
{
	CHECK(mkdirat(dir_fd, "t", 0755) == 0 && mkdirat(dir_fd, "t/m", 0755) == 0);
	if (mount("none", "t/m", "tmpfs", 0, NULL) < 0)
		return 77;
	CHECK(copy_tree_at(dir_fd, "t", dir_fd, "u") == -EXDEV);
	CHECK(!exists(dir_fd, "u"));
	return 0;
}

static void trees_with_mounts_inside_are_refused(void **state)
{
	if (!among_own_mounts(((struct fixture *)*state)->dir, copy_with_mount_inside))
		skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(prf_05_every_method_copies_alike, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(prf_05_what_is_refused_is_copied_otherwise,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(prf_05_copies_between_filesystems, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(prf_05_reflinks_on_xfs, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(prf_05_reflinks_on_btrfs, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(bkp_06_special_files_are_copied_unopened,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(copies_of_links_are_links, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(copies_never_replace, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(copies_are_told_equal_or_not, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(copies_as_ordinary_user, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(failed_copies_leave_nothing, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(copies_of_changing_files_are_whole_or_refused,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(trees_are_copied_whole, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(trees_deeper_than_path_max_are_copied,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(trees_with_mounts_inside_are_refused, fixture_setup,
		                                fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

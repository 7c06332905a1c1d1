/* SPDX-License-Identifier: Apache-2.0 */
/* What entries are and where they lie: stat, resolve, mount, stamp. */
#include "fs/stat.h"

#include "fs/mount.h"
#include "fs/resolve.h"
#include "fs/stamp.h"
#include "util/cleanup.h"

#include "unit/fs-fixture.h"

#include <atoll.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

static void stat_tells_types_and_follows_no_link(void **state)
{
	for_each_dir(d, state)
	{
		struct fs_stat st;

		write_file(d->fd, "f", "12345");
		make_dir(d->fd, "d");
		write_file(d->fd, "d/x", "");
		assert_int_equal(symlinkat("d", d->fd, "l"), 0);
		assert_int_equal(mkfifoat(d->fd, "p", 0640), 0);

		assert_int_equal(fs_stat_at(d->fd, "f", 0, &st), 0);
		assert_true(S_ISREG(st.mode));
		assert_int_equal(st.size, 5);
		assert_int_equal(st.uid, geteuid());
		assert_int_equal(st.id.gen, 0);
		assert_false(st.immutable);
		assert_int_equal(fs_stat_at(d->fd, "d", 0, &st), 0);
		assert_true(S_ISDIR(st.mode));
		assert_int_equal(st.size, 0);
		assert_int_equal(fs_stat_at(d->fd, "l", FS_STAT_ID, &st), 0);
		assert_true(S_ISLNK(st.mode));
		assert_int_equal(fs_stat_at(d->fd, "p", FS_STAT_ID, &st), 0);
		assert_true(S_ISFIFO(st.mode));
		assert_int_equal(fs_stat_at(d->fd, "d/x", 0, &st), 0);
		assert_true(S_ISREG(st.mode));
		assert_int_equal(fs_stat_at(d->fd, "", 0, &st), 0);
		assert_true(S_ISDIR(st.mode));

		assert_int_equal(fs_stat_at(d->fd, "no", 0, &st), -ENOENT);
		assert_int_equal(fs_stat_at(d->fd, "no/no", 0, &st), -ENOENT);
		assert_int_equal(fs_stat_at(d->fd, "f/no", 0, &st), -ENOTDIR);
		assert_int_equal(fs_stat_at(d->fd, "l/x", 0, &st), -ELOOP);
	}
}

static void stat_times_are_exact_also_before_1970(void **state)
{
	static const struct timespec ts[2] = { { 1, 234567891 }, { -2, 999999999 } };

	for_each_dir(d, state)
	{
		struct fs_stat st;

		write_file(d->fd, "f", "");
		assert_int_equal(utimensat(d->fd, "f", ts, 0), 0);
		assert_int_equal(fs_stat_at(d->fd, "f", 0, &st), 0);
		assert_true(st.atime_ns == 1234567891);
		assert_true(st.mtime_ns == -1000000001);
	}
}

static struct fs_id id_of(int dir_fd, const char *name)
{
	struct fs_stat st;

	assert_int_equal(fs_stat_at(dir_fd, name, FS_STAT_ID, &st), 0);
	assert_false(fs_id_none(st.id));
	assert_int_not_equal(st.id.gen, 0);
	return st.id;
}

static void ids_follow_the_file_not_its_name(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = FD_NONE;
		struct fs_id a;

		write_file(d->fd, "a", "1");
		write_file(d->fd, "b", "1");
		make_dir(d->fd, "d");
		a = id_of(d->fd, "a");
		assert_true(fs_id_equal(a, a));
		assert_false(fs_id_equal(a, id_of(d->fd, "b")));
		write_file(d->fd, "a", "other content");
		assert_int_equal(renameat(d->fd, "a", d->fd, "d/c"), 0);
		assert_true(fs_id_equal(a, id_of(d->fd, "d/c")));
		fd = openat(d->fd, "d/c", O_PATH | O_CLOEXEC);
		assert_true(fs_id_equal(a, id_of(fd, "")));
	}
}

static void ids_tell_a_reused_inode_number_apart(void **state)
{
	for_each_dir(d, state)
	{
		int reused = 0;

		for (int i = 0; i < 200 && reused == 0; i++) {
			struct fs_id a, b;

			write_file(d->fd, "f", "");
			a = id_of(d->fd, "f");
			assert_int_equal(unlinkat(d->fd, "f", 0), 0);
			write_file(d->fd, "f", "");
			b = id_of(d->fd, "f");
			assert_false(fs_id_equal(a, b));
			reused += a.ino == b.ino ? 1 : 0;
			assert_int_equal(unlinkat(d->fd, "f", 0), 0);
		}
	}
}

static void ids_of_no_entry_equal_nothing(void **state)
{
	struct fs_id none = { 0, 0 };
	struct fs_id some = { 1, 2 };

	(void)state;
	assert_true(fs_id_none(none));
	assert_false(fs_id_equal(none, none));
	assert_false(fs_id_equal(none, some));
	assert_false(fs_id_equal(some, (struct fs_id){ 1, 3 }));
}

static int check_overlay(int dir_fd)
{
	struct mount_info info;
	struct fs_stat a, b;
	int fd;

	CHECK(mkdirat(dir_fd, "l", 0755) == 0 && mkdirat(dir_fd, "u", 0755) == 0);
	CHECK(mkdirat(dir_fd, "w", 0755) == 0 && mkdirat(dir_fd, "m", 0755) == 0);
	close(openat(dir_fd, "l/f", O_CREAT | O_WRONLY, 0644));
	if (mount("overlay", "m", "overlay", 0, "lowerdir=l,upperdir=u,workdir=w") < 0)
		return 77;
	fd = openat(dir_fd, "m", O_RDONLY | O_DIRECTORY);
	CHECK(fs_stat_at(fd, "f", FS_STAT_ID, &a) == 0);
	CHECK(fs_stat_at(fd, "f", FS_STAT_ID, &b) == 0);
	CHECK(fs_id_equal(a.id, b.id) && a.id.gen != 0);
	CHECK(mount_info(fd, &info) == 0 && info.overlay && !info.network);
	CHECK(strcmp(info.name, "overlay") == 0);
	return 0;
}

static void ids_work_on_overlayfs(void **state)
{
	if (!among_own_mounts(&((struct fixture *)*state)->dir[1], check_overlay))
		skip();
}

static void stat_tells_immutable_entries(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_close int fd = FD_NONE;
	int flags = FS_IMMUTABLE_FL;
	struct fs_stat st;

	write_file(d->fd, "f", "");
	fd = openat(d->fd, "f", O_RDONLY | O_CLOEXEC);
	if (ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0)
		skip();
	assert_int_equal(fs_stat_at(d->fd, "f", 0, &st), 0);
	assert_true(st.immutable);
	flags = 0;
	assert_int_equal(ioctl(fd, FS_IOC_SETFLAGS, &flags), 0);
}

static void mounts_are_seen_and_not_crossed(void **state)
{
	cleanup_close int root_fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int proc_fd = open("/proc", O_PATH | O_CLOEXEC);
	struct mount_info a, b;
	struct fs_stat st;
	int fd;

	(void)state;
	assert_int_equal(fs_stat_at(root_fd, "proc", 0, &st), 0);
	assert_true(st.mount_root);
	assert_int_equal(resolve_dir(root_fd, "proc", &fd), -EXDEV);
	assert_int_equal(resolve_dir(root_fd, "proc/self", &fd), -EXDEV);
	assert_int_equal(mount_info(root_fd, &a), 0);
	assert_int_equal(mount_info(proc_fd, &b), 0);
	assert_string_equal(b.name, "proc");
	assert_true(mount_same(&a, &a));
	assert_false(mount_same(&a, &b));
}

static void mount_info_knows_the_filesystem(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	struct mount_info info;

	assert_int_equal(mount_info(d[0].fd, &info), 0);
	assert_false(info.read_only);
	assert_true(info.free_bytes > 0 && info.free_inodes > 0);
	assert_int_equal(strlen(info.fsid), 16);
	assert_int_equal(mount_info(d[1].fd, &info), 0);
	assert_string_equal(info.name, "tmpfs");
	assert_false(info.network || info.overlay);
	assert_int_equal(mount_info(-1, &info), -EBADF);
}

/* One tree at two places, of which one has a name that mountinfo has to write in another way. */
static int twice_mounted(int dir_fd)
{
	cleanup_free char *here = getcwd(NULL, 0), *a_path = NULL, *b_path = NULL;
	struct mount_place a, b, other;

	CHECK(mkdirat(dir_fd, "a", 0755) == 0 && mkdirat(dir_fd, "b c", 0755) == 0);
	CHECK(mount("tmpfs", "a", "tmpfs", 0, NULL) == 0);
	CHECK(mkdirat(dir_fd, "a/sub", 0755) == 0);
	CHECK(mount("a/sub", "b c", NULL, MS_BIND, NULL) == 0);
	CHECK(asprintf(&a_path, "%s/a", here) > 0 && asprintf(&b_path, "%s/b c", here) > 0);
	a = (struct mount_place){ a_path, open(a_path, O_PATH | O_CLOEXEC) };
	b = (struct mount_place){ b_path, open(b_path, O_PATH | O_CLOEXEC) };
	other = (struct mount_place){ here, dir_fd };
	CHECK(mount_overlap(&a, &b) == 1);
	CHECK(mount_overlap(&b, &a) == 1);
	CHECK(mount_overlap(&a, &other) == 0);
	CHECK(mount_overlap(&a, &(struct mount_place){ here, -1 }) == -EBADF);
	/* Not where it is said to be: it cannot be told. */
	CHECK(mount_overlap(&a, &(struct mount_place){ here, b.fd }) == 0);
	CHECK(mount_below(here) == 1 && mount_below(b_path) == 0);
	return 0;
}

static void trees_mounted_twice_overlap(void **state)
{
	if (!among_own_mounts(((struct fixture *)*state)->dir, twice_mounted))
		skip();
}

static void resolve_opens_only_what_was_asked_for(void **state)
{
	for_each_dir(d, state)
	{
		int fd = 7;

		make_dir(d->fd, "dir");
		write_file(d->fd, "file", "");
		assert_int_equal(mkfifoat(d->fd, "fifo", 0600), 0);
		assert_int_equal(resolve_file_seen(d->fd, "dir", &fd), -EISDIR);
		assert_int_equal(resolve_file_seen(d->fd, "fifo", &fd), -ENXIO);
		assert_int_equal(resolve_file_seen(d->fd, "dir/x", &fd), -EINVAL);
		assert_int_equal(resolve_file_seen(d->fd, "..", &fd), -EINVAL);
		assert_int_equal(resolve_link(d->fd, "file", &fd), -EINVAL);
		assert_int_equal(fd, 7);
	}
}

static void resolve_opens_directories_parents_and_files(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int root = openat(d->fd, ".", O_PATH | O_CLOEXEC);
		cleanup_close int a = FD_NONE, b = FD_NONE, c = FD_NONE, e = FD_NONE, f = FD_NONE;
		const char *name = NULL;
		char text[8] = "";

		make_dir(d->fd, "a");
		make_dir(d->fd, "a/.b");
		write_file(d->fd, "a/.b/...", "text");
		assert_int_equal(resolve_dir(root, "", &a), 0);
		assert_true(exists(a, "a"));
		assert_int_equal(resolve_dir(root, "a/.b", &b), 0);
		assert_true(exists(b, "..."));
		assert_int_equal(resolve_dir_path(root, "a/.b", &c), 0);
		assert_true((fcntl(c, F_GETFL) & O_PATH) != 0);
		assert_true((fcntl(c, F_GETFD) & FD_CLOEXEC) != 0);
		assert_int_equal(resolve_parent(root, "a/.b/...", &e, &name), 0);
		assert_string_equal(name, "...");
		assert_true(exists(e, "..."));
		assert_int_equal(resolve_file(root, "a/.b/...", &f), 0);
		assert_int_equal(read(f, text, sizeof(text)), 4);
		assert_string_equal(text, "text");
	}
}

static void resolve_refuses_what_leads_out(void **state)
{
	static const char *const bad[] = { "..", ".",  "a/..", "a/../a", "./a", "a/.",
		                           "/a", "a/", "a//b", "/",      "//" };
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	const char *name;
	int fd = FD_NONE;

	make_dir(d->fd, "a");
	write_file(d->fd, "f", "");
	assert_int_equal(symlinkat("a", d->fd, "l"), 0);
	assert_int_equal(symlinkat("f", d->fd, "lf"), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(resolve_dir(d->fd, bad[i], &fd), -EINVAL);
		assert_int_equal(resolve_dir_path(d->fd, bad[i], &fd), -EINVAL);
		assert_int_equal(resolve_parent(d->fd, bad[i], &fd, &name), -EINVAL);
		assert_int_equal(resolve_file(d->fd, bad[i], &fd), -EINVAL);
	}
	assert_int_equal(resolve_parent(d->fd, "", &fd, &name), -EINVAL);
	assert_int_equal(resolve_dir(d->fd, "l", &fd), -ELOOP);
	assert_int_equal(resolve_dir_path(d->fd, "l", &fd), -ELOOP);
	assert_int_equal(resolve_parent(d->fd, "l/x", &fd, &name), -ELOOP);
	assert_int_equal(resolve_file(d->fd, "lf", &fd), -ELOOP);
	assert_int_equal(resolve_dir(d->fd, "f", &fd), -ENOTDIR);
	assert_int_equal(resolve_dir(d->fd, "no", &fd), -ENOENT);
	assert_int_equal(resolve_file(d->fd, "a", &fd), -EISDIR);
	assert_int_equal(fd, FD_NONE);
}

static void resolve_never_opens_special_files(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_close int dev = open("/dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd;

	assert_int_equal(mkfifoat(d->fd, "p", 0600), 0);
	alarm(60);
	assert_int_equal(resolve_file(d->fd, "p", &fd), -ENXIO);
	assert_int_equal(resolve_file(dev, "null", &fd), -ENXIO);
	alarm(0);
}

static void resolve_takes_paths_past_path_max(void **state)
{
	for_each_dir(d, state)
	{
		enum { LEVELS = 300, NAME = 60 };
		cleanup_free char *path = malloc((size_t)LEVELS * (NAME + 1) + sizeof("leaf"));
		cleanup_close int fd = FD_NONE, file = FD_NONE;
		struct fs_stat st;
		char name[NAME + 1];
		char *p = path;

		memset(name, 'n', NAME);
		name[NAME] = '\0';
		make_chain(d->fd, name, LEVELS);
		for (int i = 0; i < LEVELS; i++)
			p += sprintf(p, "%s%s", i > 0 ? "/" : "", name);
		assert_int_equal(resolve_dir(d->fd, path, &fd), 0);
		assert_true(exists(fd, "leaf"));
		strcpy(p, "/leaf");
		assert_int_equal(resolve_file(d->fd, path, &file), 0);
		assert_int_equal(fs_stat_at(d->fd, path, FS_STAT_ID, &st), 0);
		assert_int_equal(st.size, 4);
		strcpy(p, "/no/x");
		assert_int_equal(fs_stat_at(d->fd, path, 0, &st), -ENOENT);
	}
}

static void resolve_refuses_names_and_paths_over_the_limits(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	size_t len = (2u << 20) + 1;
	cleanup_free char *path = malloc(len);
	int fd;

	memset(path, 'x', len - 1);
	path[len - 1] = '\0';
	assert_int_equal(resolve_dir(d->fd, path, &fd), -ATOLL_E_TOO_BIG);
	path[5000] = '\0';
	assert_int_equal(resolve_dir(d->fd, path, &fd), -ENAMETOOLONG);
}

static int unreadable_parent(int dir_fd)
{
	const char *name;
	struct fs_stat st;
	int fd;

	CHECK(mkdirat(dir_fd, "d", 0755) == 0);
	close(openat(dir_fd, "d/f", O_CREAT | O_WRONLY, 0644));
	CHECK(fchmodat(dir_fd, "d", 0300, 0) == 0);
	CHECK(resolve_dir(dir_fd, "d", &fd) == -EACCES);
	CHECK(resolve_parent(dir_fd, "d/f", &fd, &name) == 0);
	CHECK(fs_stat_at(fd, name, FS_STAT_ID, &st) == 0);
	return 0;
}

static void resolve_parent_needs_no_read_permission(void **state)
{
	for_each_dir(d, state) as_ordinary_user(d, unreadable_parent);
}

static void canonical_paths_have_no_links(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_free char *given = NULL, *got = NULL, *want = NULL;

	make_dir(d->fd, "real");
	assert_int_equal(symlinkat("real", d->fd, "link"), 0);
	assert_true(asprintf(&given, "%s/./link/../link/", d->path) > 0);
	assert_true(asprintf(&want, "%s/real", d->path) > 0);
	assert_int_equal(resolve_canonical(given, &got), 0);
	assert_string_equal(got, want);
	assert_int_equal(resolve_canonical("/no/such/path", &given), -ENOENT);
}

static int64_t ctime_of(int dir_fd, const char *name)
{
	struct fs_stat st;

	assert_int_equal(fs_stat_at(dir_fd, name, 0, &st), 0);
	return st.ctime_ns;
}

/* Whether stamps of one file differ whenever somebody looked in between. */
static bool has_fine_stamps(int dir_fd, const char *name)
{
	struct fs_stat a = { 0 }, b;

	for (int i = 0; i < 100; i++) {
		if (utimensat(dir_fd, name, NULL, 0) < 0 || fs_stat_at(dir_fd, name, 0, &b) < 0 ||
		    a.ctime_ns == b.ctime_ns)
			return false;
		a = b;
	}
	return true;
}

static void stamps_divide_before_from_after(void **state)
{
	for_each_dir(d, state)
	{
		for (int i = 0; i < 50; i++) {
			bool multigrain;
			int64_t t0, before, after;

			write_file(d->fd, "before", "x");
			before = ctime_of(d->fd, "before");
			assert_int_equal(stamp_make(d->fd, "T0", &t0, &multigrain), 0);
			assert_true(t0 == ctime_of(d->fd, "T0"));
			assert_true(before <= t0);
			write_file(d->fd, "after", "y");
			after = ctime_of(d->fd, "after");
			assert_true(multigrain ? after >= t0 : after > t0);
			assert_true(!multigrain || has_fine_stamps(d->fd, "T0"));
		}
	}
}

/* A process that takes stamps of a file in the directory, until it is killed or we end. */
static pid_t take_stamps(int dir_fd)
{
	pid_t pid = fork();
	struct stat st;

	if (pid != 0)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setpriority(PRIO_PROCESS, 0, -20); /* also on a busy machine */
	for (;;)
		if (utimensat(dir_fd, "other", NULL, 0) < 0 || fstatat(dir_fd, "other", &st, 0) < 0)
			_exit(1);
}

/* Beside a process whose stamps move the clock of all, where they are fine. */
static int coarse_stamps(int dir_fd)
{
	int top_fd = dir_fd;
	pid_t other;

	CHECK(mkdirat(dir_fd, "m", 0755) == 0);
	if (mount("none", "m", "ramfs", 0, NULL) < 0)
		return 77;
	close(openat(top_fd, "other", O_CREAT | O_WRONLY, 0644));
	dir_fd = openat(dir_fd, "m", O_RDONLY | O_DIRECTORY);
	other = take_stamps(top_fd);
	CHECK(other > 0);
	for (int i = 0; i < 100; i++) {
		bool multigrain = true;
		struct fs_stat st;
		int64_t t0;

		CHECK(stamp_make(dir_fd, "T0", &t0, &multigrain) == 0);
		close(openat(dir_fd, "after", O_CREAT | O_WRONLY, 0644));
		CHECK(fs_stat_at(dir_fd, "after", 0, &st) == 0);
		CHECK(multigrain ? st.ctime_ns >= t0 : st.ctime_ns > t0);
		CHECK(unlinkat(dir_fd, "after", 0) == 0);
		CHECK(!multigrain);
	}
	CHECK(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
	return 0;
}

static void stamps_wait_for_coarse_clocks(void **state)
{
	if (!among_own_mounts(((struct fixture *)*state)->dir, coarse_stamps))
		skip();
}

static void stamps_follow_no_link(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	bool multigrain;
	int64_t t0;

	assert_int_equal(symlinkat("elsewhere", d->fd, "T0"), 0);
	assert_int_equal(stamp_make(d->fd, "T0", &t0, &multigrain), -ELOOP);
	assert_false(exists(d->fd, "elsewhere"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(stat_tells_types_and_follows_no_link, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(stat_times_are_exact_also_before_1970,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(ids_follow_the_file_not_its_name, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(ids_tell_a_reused_inode_number_apart, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test(ids_of_no_entry_equal_nothing),
		cmocka_unit_test_setup_teardown(ids_work_on_overlayfs, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(stat_tells_immutable_entries, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test(mounts_are_seen_and_not_crossed),
		cmocka_unit_test_setup_teardown(mount_info_knows_the_filesystem, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(trees_mounted_twice_overlap, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(resolve_opens_only_what_was_asked_for,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(resolve_opens_directories_parents_and_files,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(resolve_refuses_what_leads_out, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(resolve_never_opens_special_files, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(resolve_takes_paths_past_path_max, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(resolve_refuses_names_and_paths_over_the_limits,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(resolve_parent_needs_no_read_permission,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(canonical_paths_have_no_links, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(stamps_divide_before_from_after, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(stamps_wait_for_coarse_clocks, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(stamps_follow_no_link, fixture_setup,
		                                fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

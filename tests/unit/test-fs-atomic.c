/* SPDX-License-Identifier: Apache-2.0 */
/* The elementary changes. */
#include "fs/atomic.h"

#include "fs/fs-impl.h"
#include "fs/stat.h"
#include "util/cleanup.h"

#include "unit/fs-fixture.h"

#include <atoll.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static mode_t mode_of(int dir_fd, const char *name)
{
	struct fs_stat st;

	assert_int_equal(fs_stat_at(dir_fd, name, 0, &st), 0);
	return st.mode & 07777;
}

static void expect_text(int dir_fd, const char *name, const char *want)
{
	cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	cleanup_free char *text = NULL;
	size_t len;

	assert_true(fd >= 0);
	assert_int_equal(fs_read_all(fd, 1000, &text, &len), 0);
	assert_int_equal(len, strlen(want));
	assert_string_equal(text, want);
}

static void creation_is_exclusive_with_the_exact_mode(void **state)
{
	static const mode_t masks[] = { 0, 022, 077, 0777 };

	for_each_dir(d, state)
	{
		assert_int_equal(fchmod(d->fd, 02755), 0); /* new directories inherit setgid */
		for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
			int fd;

			umask(masks[i]);
			assert_int_equal(fs_mkdir_at(d->fd, "d", 0751), 0);
			assert_int_equal(mode_of(d->fd, "d"), 0751);
			assert_int_equal(fs_mkdir_at(d->fd, "d", 0751), -EEXIST);
			assert_int_equal(fs_create_at(d->fd, "f", 0646, &fd), 0);
			assert_int_equal(mode_of(d->fd, "f"), 0646);
			assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
			assert_int_equal(fs_write_all(fd, "abc", 3), 0);
			close(fd);
			assert_int_equal(fs_create_at(d->fd, "f", 0600, &fd), -EEXIST);
			umask(022);
			expect_text(d->fd, "f", "abc");
			assert_int_equal(fs_unlink_at(d->fd, "d"), -EISDIR);
			assert_int_equal(fs_rmdir_at(d->fd, "d"), 0);
			assert_int_equal(fs_unlink_at(d->fd, "f"), 0);
			assert_int_equal(fs_unlink_at(d->fd, "f"), -ENOENT);
		}
		assert_int_equal(symlinkat("target", d->fd, "l"), 0);
		int fd = FD_NONE;
		assert_int_equal(fs_create_at(d->fd, "l", 0600, &fd), -EEXIST);
		assert_false(exists(d->fd, "target"));
	}
}

static void private_directories_are_ours_alone(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int a = FD_NONE, b = FD_NONE;
		int fd = FD_NONE;

		assert_int_equal(fs_private_dir_at(d->fd, "p", &a), 0);
		assert_int_equal(mode_of(d->fd, "p"), 0700);
		write_file(a, "in", "");
		assert_int_equal(fs_private_dir_at(d->fd, "p", &b), 0);
		assert_true(exists(b, "in"));
		for (mode_t extra = 01; extra <= 040; extra <<= 1) {
			assert_int_equal(fchmod(a, 0700 | extra), 0);
			assert_int_equal(fs_private_dir_at(d->fd, "p", &fd), -EPERM);
		}
		assert_int_equal(fchmod(a, 0500), 0);
		assert_int_equal(fs_private_dir_at(d->fd, "p", &fd), -EPERM);
		assert_int_equal(fchmod(a, 0700), 0);
		assert_int_equal(symlinkat("p", d->fd, "l"), 0);
		assert_int_equal(fs_private_dir_at(d->fd, "l", &fd), -ENOTDIR);
		write_file(d->fd, "f", "");
		assert_int_equal(fs_private_dir_at(d->fd, "f", &fd), -ENOTDIR);
		if (geteuid() == 0) {
			assert_int_equal(fchown(a, NOBODY, NOBODY), 0);
			assert_int_equal(fs_private_dir_at(d->fd, "p", &fd), -EPERM);
		}
		assert_int_equal(fd, FD_NONE);
	}
}

static int roots_private_dir(int dir_fd)
{
	int fd;

	CHECK(fs_private_dir_at(dir_fd, "roots", &fd) == -EPERM);
	CHECK(fs_private_dir_at(dir_fd, "mine", &fd) == 0);
	return 0;
}

static void private_directories_of_others_are_refused(void **state)
{
	if (geteuid() != 0)
		skip();
	for_each_dir(d, state)
	{
		make_dir(d->fd, "his");
		assert_int_equal(mkdirat(d->fd, "his/roots", 0700), 0);
		as_ordinary_user(d, roots_private_dir);
	}
}

static void reading_stops_at_the_limit(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_close int fd = FD_NONE;
	cleanup_free char *big = malloc(200000);
	char *text = NULL;
	size_t len;

	memset(big, 'b', 200000);
	assert_int_equal(fs_create_at(d->fd, "f", 0600, &fd), 0);
	assert_int_equal(fs_write_all(fd, big, 200000), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(fs_read_all(fd, 199999, &text, &len), -ATOLL_E_TOO_BIG);
	assert_null(text);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(fs_read_all(fd, 200000, &text, &len), 0);
	assert_int_equal(len, 200000);
	assert_memory_equal(text, big, 200000);
	assert_int_equal(text[len], 0);
	free(text);
	assert_int_equal(fs_read_all(fd, 0, &text, &len), 0);
	assert_int_equal(len, 0);
	free(text);
	assert_int_equal(fs_write_all(-1, "x", 1), -EBADF);
}

static void anonymous_files_have_no_name(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = FD_NONE;
		struct stat st;

		assert_int_equal(fs_anonymous_at(d->fd, &fd), 0);
		assert_int_equal(fs_write_all(fd, "abc", 3), 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_nlink, 0);
		assert_int_equal(st.st_size, 3);
	}
	assert_int_equal(fs_anonymous_at(-1, &(int){ 0 }), -EBADF);
}

/* A code says what is wrong, and outputs are untouched. */
static void what_is_not_there_is_refused(void **state)
{
	for_each_dir(d, state)
	{
		char *text = NULL;
		int fd = 7;
		size_t len;

		assert_int_equal(fs_read_all(d->fd, 100, &text, &len), -EISDIR);
		assert_null(text);
		assert_int_equal(fs_open_append_at(d->fd, "none/f", &fd), -ENOENT);
		assert_int_equal(fs_create_at(d->fd, "none/f", 0600, &fd), -ENOENT);
		assert_int_equal(fd, 7);
		assert_int_equal(fs_append(-1, "x", 1, true), -EBADF);
		assert_int_equal(fs_set_times(d->fd, "none", 1, 1), -ENOENT);
		assert_int_equal(fs_set_mode(d->fd, "none", 0600), -ENOENT);
		assert_int_equal(fs_allocate(-1, 10), -EBADF);
		assert_int_equal(fs_sync_dir(-1), -EBADF);
	}
}

static void appending_adds_all_or_nothing(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = FD_NONE, other = FD_NONE;
		struct rlimit before, small;

		assert_int_equal(fs_open_append_at(d->fd, "log", &fd), 0);
		assert_int_equal(fs_append(fd, "one\n", 4, true), 0);
		assert_int_equal(fs_open_append_at(d->fd, "log", &other), 0);
		assert_int_equal(fs_append(other, "two\n", 4, true), 0);
		assert_int_equal(fs_append(fd, "three\n", 6, true), 0);
		expect_text(d->fd, "log", "one\ntwo\nthree\n");
		/* Room for a part of it only, and then for none. */
		assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
		(void)signal(SIGXFSZ, SIG_IGN);
		small = (struct rlimit){ .rlim_cur = 16, .rlim_max = before.rlim_max };
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		assert_int_equal(fs_append(fd, "four\n", 5, true), -ENOSPC);
		small.rlim_cur = 14;
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		assert_int_equal(fs_append(fd, "four\n", 5, true), -EFBIG);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
		(void)signal(SIGXFSZ, SIG_DFL);
		expect_text(d->fd, "log", "one\ntwo\nthree\n");
		assert_int_equal(fs_append(fd, "four\n", 5, true), 0);
		expect_text(d->fd, "log", "one\ntwo\nthree\nfour\n");
	}
}

static void appending_is_to_a_file_of_ours_alone(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = FD_NONE;

		assert_int_equal(symlinkat("there", d->fd, "link"), 0);
		assert_int_equal(fs_open_append_at(d->fd, "link", &fd), -EPERM);
		assert_int_equal(mkfifoat(d->fd, "fifo", 0600), 0);
		assert_int_equal(fs_open_append_at(d->fd, "fifo", &fd), -EPERM);
		assert_int_equal(mkdirat(d->fd, "dir", 0700), 0);
		assert_int_equal(fs_open_append_at(d->fd, "dir", &fd), -EPERM);
		assert_int_equal(fs_open_append_at(d->fd, "open", &fd), 0);
		close_fd(&fd);
		assert_int_equal(fchmodat(d->fd, "open", 0640, 0), 0);
		assert_int_equal(fs_open_append_at(d->fd, "open", &fd), -EPERM);
	}
}

static void exchange_and_move(void **state)
{
	for_each_dir(d, state)
	{
		make_dir(d->fd, "other");
		make_dir(d->fd, "other/b");
		write_file(d->fd, "a", "a");
		write_file(d->fd, "c", "c");
		cleanup_close int other = open_dir(d->fd, "other");

		assert_int_equal(fs_exchange(d->fd, "a", other, "b"), 0);
		expect_text(other, "b", "a");
		assert_int_equal(fs_rmdir_at(d->fd, "a"), 0);
		assert_int_equal(fs_exchange(d->fd, "a", other, "b"), -ENOENT);
		assert_int_equal(fs_move(d->fd, "c", other, "b"), -EEXIST);
		expect_text(other, "b", "a");
		assert_int_equal(fs_move(d->fd, "c", other, "c"), 0);
		assert_false(exists(d->fd, "c"));
		expect_text(other, "c", "c");
	}
}

/* For times of files to differ: until the clock that they are taken from has moved. */
static void await_tick(void)
{
	struct timespec first, now;

	assert_int_equal(clock_gettime(CLOCK_REALTIME_COARSE, &first), 0);
	do {
		usleep(1000);
		assert_int_equal(clock_gettime(CLOCK_REALTIME_COARSE, &now), 0);
	} while (now.tv_sec == first.tv_sec && now.tv_nsec == first.tv_nsec);
}

static void bumping_changes_nothing_but_ctime(void **state)
{
	static const char *const names[] = { "f", "d", "l", "p" };

	for_each_dir(d, state)
	{
		write_file(d->fd, "f", "");
		make_dir(d->fd, "d");
		assert_int_equal(symlinkat("no", d->fd, "l"), 0);
		assert_int_equal(mkfifoat(d->fd, "p", 0600), 0);
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			cleanup_close int fd =
				openat(d->fd, names[i], O_PATH | O_NOFOLLOW | O_CLOEXEC);
			struct fs_stat a, b;

			assert_int_equal(fs_stat_at(d->fd, names[i], 0, &a), 0);
			await_tick();
			assert_int_equal(fs_bump_ctime(d->fd, names[i]), 0);
			assert_int_equal(fs_stat_at(d->fd, names[i], 0, &b), 0);
			assert_true(b.ctime_ns > a.ctime_ns);
			assert_true(b.mtime_ns == a.mtime_ns && b.atime_ns == a.atime_ns);
			assert_int_equal(a.mode, b.mode);
			await_tick();
			assert_int_equal(fs_bump_ctime(fd, ""), 0);
			assert_int_equal(fs_stat_at(fd, "", 0, &a), 0);
			assert_true(a.ctime_ns > b.ctime_ns && a.mtime_ns == b.mtime_ns);
		}
		assert_int_equal(fs_bump_ctime(d->fd, "no"), -ENOENT);
	}
}

static void mtime_is_set_alone(void **state)
{
	for_each_dir(d, state)
	{
		struct fs_stat a, b;

		write_file(d->fd, "f", "");
		assert_int_equal(fs_stat_at(d->fd, "f", 0, &a), 0);
		assert_int_equal(fs_set_mtime(d->fd, "f", INT64_C(1234567890987654321)), 0);
		assert_int_equal(fs_stat_at(d->fd, "f", 0, &b), 0);
		assert_true(b.mtime_ns == INT64_C(1234567890987654321));
		assert_true(b.atime_ns == a.atime_ns);
		assert_int_equal(fs_set_mtime(d->fd, "f", -1), 0);
		assert_int_equal(fs_stat_at(d->fd, "f", 0, &b), 0);
		assert_true(b.mtime_ns == -1);
	}
}

static int mode_of_unreadable(int dir_fd)
{
	CHECK(mkdirat(dir_fd, "d", 0) == 0);
	CHECK(fs_set_mode(dir_fd, "d", 0710) == 0 && fs_set_mode(dir_fd, "d", 0) == 0);
	CHECK(fs_set_mode_by_proc(dir_fd, "d", 0710) == 0);
	CHECK(fs_set_mode_by_proc(dir_fd, "d", 0) == 0);
	return 0;
}

static void modes_are_set_but_not_through_links(void **state)
{
	int (*const set[])(int, const char *, mode_t) = { fs_set_mode, fs_set_mode_by_proc };

	for_each_dir(d, state)
	{
		cleanup_close int fd = FD_NONE;

		write_file(d->fd, "f", "");
		assert_int_equal(symlinkat("f", d->fd, "l"), 0);
		fd = openat(d->fd, "f", O_PATH | O_CLOEXEC);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(set[i](d->fd, "f", 06711), 0);
			assert_int_equal(mode_of(d->fd, "f"), 06711);
			assert_int_equal(set[i](fd, "", 0640), 0);
			assert_int_equal(mode_of(d->fd, "f"), 0640);
			assert_int_equal(set[i](d->fd, "l", 0777), -EOPNOTSUPP);
			assert_int_equal(mode_of(d->fd, "f"), 0640);
			assert_int_equal(set[i](d->fd, "no", 0777), -ENOENT);
		}
		as_ordinary_user(d, mode_of_unreadable);
	}
}

static void owners_are_set_but_not_through_links(void **state)
{
	for_each_dir(d, state)
	{
		struct fs_stat st;

		write_file(d->fd, "f", "");
		assert_int_equal(symlinkat("f", d->fd, "l"), 0);
		assert_int_equal(fs_set_owner(d->fd, "f", (uid_t)-1, (gid_t)-1), 0);
		if (geteuid() != 0)
			continue;
		assert_int_equal(fs_set_owner(d->fd, "l", 12, 34), 0);
		assert_int_equal(fs_stat_at(d->fd, "f", 0, &st), 0);
		assert_int_equal(st.uid, 0);
		assert_int_equal(fs_stat_at(d->fd, "l", 0, &st), 0);
		assert_true(st.uid == 12 && st.gid == 34);
	}
}

static void allocation_is_no_hole(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = FD_NONE;
		struct stat st;

		assert_int_equal(fs_create_at(d->fd, "f", 0600, &fd), 0);
		assert_int_equal(fs_allocate(fd, 1 << 20), 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_size, 1 << 20);
		assert_true(st.st_blocks * 512 >= 1 << 20);
		assert_int_equal(fs_allocate(fd, 4096), 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_size, 4096);
		assert_int_equal(fs_allocate(fd, 0), 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_size, 0);
	}
}

static void syncing_takes_any_directory_descriptor(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int path_fd = openat(d->fd, ".", O_PATH | O_CLOEXEC);

		assert_int_equal(fs_sync_dir(d->fd), 0);
		assert_int_equal(fs_sync_dir(path_fd), 0);
		assert_int_equal(fs_sync_file(-1), -EBADF);
	}
}

static void replacing_leaves_one_file(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int path_fd = openat(d->fd, ".", O_PATH | O_CLOEXEC);
		char name[256];

		memset(name, 'n', 255);
		name[255] = '\0';
		assert_int_equal(fs_replace_file(path_fd, name, "one", 3, 0640), 0);
		expect_text(d->fd, name, "one");
		assert_int_equal(fs_replace_file(d->fd, name, "", 0, 0600), 0);
		expect_text(d->fd, name, "");
		assert_int_equal(mode_of(d->fd, name), 0600);
		assert_int_equal(unlinkat(d->fd, name, 0), 0);

		/* A link is replaced, not followed; a directory refuses. Nothing stays behind. */
		write_file(d->fd, "f", "kept");
		assert_int_equal(symlinkat("f", d->fd, "l"), 0);
		assert_int_equal(fs_replace_file(d->fd, "l", "new", 3, 0600), 0);
		expect_text(d->fd, "f", "kept");
		expect_text(d->fd, "l", "new");
		make_dir(d->fd, "dir");
		assert_int_equal(fs_replace_file(d->fd, "dir", "x", 1, 0600), -EISDIR);
		assert_int_equal(unlinkat(d->fd, "f", 0), 0);
		assert_int_equal(unlinkat(d->fd, "l", 0), 0);
		assert_int_equal(unlinkat(d->fd, "dir", AT_REMOVEDIR), 0);
		make_dir(d->fd, "empty-but-for-this");
		struct dirlist list = DIRLIST_INIT;
		assert_int_equal(dirlist_read(d->fd, &list), 0);
		assert_int_equal(list.n, 1);
		dirlist_done(&list);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(creation_is_exclusive_with_the_exact_mode,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(private_directories_are_ours_alone, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(private_directories_of_others_are_refused,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(reading_stops_at_the_limit, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(anonymous_files_have_no_name, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(what_is_not_there_is_refused, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(appending_adds_all_or_nothing, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(appending_is_to_a_file_of_ours_alone, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(exchange_and_move, fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(bumping_changes_nothing_but_ctime, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(mtime_is_set_alone, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(modes_are_set_but_not_through_links, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(owners_are_set_but_not_through_links, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(allocation_is_no_hole, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(syncing_takes_any_directory_descriptor,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(replacing_leaves_one_file, fixture_setup,
		                                fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers, by each method. That data really is on disk is shown by the power-cut tests. */
#include "fs/sync.h"

#include "util/cleanup.h"

#include "unit/fs-fixture.h"

#include <sys/resource.h>

enum { AUTO, FS, EACH, METHODS };

static void barriers_take_files_directories_and_descriptors(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int path_fd = openat(d->fd, ".", O_PATH | O_CLOEXEC);
		cleanup_syncset struct syncset *s = syncset_new();

		write_file(d->fd, "f", "text");
		make_dir(d->fd, "d");
		write_file(d->fd, "d/g", "text");
		for (int m = AUTO; m < METHODS; m++) {
			cleanup_close int fd = openat(d->fd, "f", O_RDWR | O_CLOEXEC);

			syncset_force(m);
			assert_int_equal(syncset_size(s), 0);
			assert_int_equal(syncset_run(s), 0);
			assert_int_equal(syncset_add(s, d->fd, "f"), 0);
			assert_int_equal(syncset_add(s, path_fd, "d/g"), 0);
			assert_int_equal(syncset_add(s, d->fd, "d"), 0);
			assert_int_equal(syncset_add(s, d->fd, ""), 0);
			assert_int_equal(syncset_add_fd(s, fd), 0);
			assert_int_equal(syncset_size(s), 5);
			assert_int_equal(syncset_run(s), 0);
			assert_int_equal(syncset_size(s), 0);
		}
		syncset_force(AUTO);
	}
}

static void barriers_span_filesystems(void **state)
{
	cleanup_syncset struct syncset *s = syncset_new();

	for (int m = AUTO; m < METHODS; m++) {
		syncset_force(m);
		for_each_dir(d, state)
		{
			write_file(d->fd, "f", "text");
			assert_int_equal(syncset_add(s, d->fd, "f"), 0);
		}
		assert_int_equal(syncset_run(s), 0);
	}
	syncset_force(AUTO);
}

static void barriers_ignore_absent_and_special_entries(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_syncset struct syncset *s = syncset_new();

		assert_int_equal(mkfifoat(d->fd, "p", 0600), 0);
		assert_int_equal(symlinkat("nowhere", d->fd, "l"), 0);
		write_file(d->fd, "f", "");
		alarm(60);
		for (int m = AUTO; m < METHODS; m++) {
			syncset_force(m);
			assert_int_equal(syncset_add(s, d->fd, "p"), 0);
			assert_int_equal(syncset_add(s, d->fd, "l"), 0);
			assert_int_equal(syncset_add(s, d->fd, "no"), 0);
			assert_int_equal(syncset_add(s, d->fd, "no/such"), 0);
			assert_int_equal(syncset_add(s, d->fd, "f/such"), 0);
			assert_int_equal(syncset_add(s, d->fd, "l/such"), 0);
			assert_int_equal(syncset_run(s), 0);
		}
		alarm(0);
		syncset_force(AUTO);
	}
}

static void barriers_over_trees(void **state)
{
	enum { N = 700 };
	struct rlimit old, few;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = old;
	few.rlim_cur = 60;
	for_each_dir(d, state)
	{
		cleanup_syncset struct syncset *s = syncset_new();
		char name[32];

		make_dir(d->fd, "t");
		make_dir(d->fd, "t/sub");
		assert_int_equal(mkfifoat(d->fd, "t/p", 0600), 0);
		for (int i = 0; i < N; i++) {
			snprintf(name, sizeof(name), "t/sub/%d", i);
			write_file(d->fd, name, "text");
		}
		for (int m = AUTO; m < METHODS; m++) {
			syncset_force(m);
			assert_int_equal(syncset_add_tree(s, d->fd, "t"), 0);
			assert_int_equal(syncset_size(s), N + 2);
			assert_int_equal(syncset_run(s), 0);
			assert_int_equal(syncset_add_tree(s, d->fd, ""), 0);
			assert_int_equal(syncset_size(s), N + 3);
			/* More files than descriptors. */
			assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
			assert_int_equal(syncset_run(s), 0);
			assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
		}
		syncset_force(AUTO);
	}
}

static void barriers_share_roots(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_syncset struct syncset *s = syncset_new();
	struct rlimit old, few;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = old;
	few.rlim_cur = 40;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(syncset_add(s, d->fd, "x"), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(syncset_size(s), 1000);
}

/* Of a network, where one file at a time is asked for: FUSE, with nobody else about. */
static int sync_on_fuse(int dir_fd)
{
	cleanup_free char *program = NULL;
	cleanup_syncset struct syncset *s = syncset_new();
	cleanup_close int fd = FD_NONE;
	struct stat st;
	pid_t pid;

	if (access("/dev/fuse", R_OK | W_OK) < 0 || !getenv("ATOLL_TEST_LIB"))
		return 77;
	CHECK(mkdirat(dir_fd, "m", 0700) == 0);
	CHECK(asprintf(&program, "%s/../integration/tiny-fuse.py", getenv("ATOLL_TEST_LIB")) > 0);
	pid = fork();
	if (pid == 0) {
		execl("/usr/bin/python3", "python3", program, "m", "ready", (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < 60000 && fstatat(dir_fd, "ready", &st, 0) < 0; i++)
		usleep(1000);
	fd = openat(dir_fd, "m", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0 && syncset_add(s, fd, "") == 0 && syncset_run(s) == 0);
	CHECK(syncset_add(s, fd, "") == 0 && syncset_add(s, fd, "gone") == 0);
	CHECK(syncset_run(s) == 0);
	close_fd(&fd);
	CHECK(umount2("m", MNT_DETACH) == 0);
	CHECK(wait_child(pid) == 0);
	return 0;
}

static void barriers_on_a_network_filesystem(void **state)
{
	if (!among_own_mounts(&((struct fixture *)*state)->dir[1], sync_on_fuse))
		skip();
}

static void barriers_without_descriptors_are_refused(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_close int path_fd = openat(d->fd, ".", O_PATH | O_CLOEXEC);
	cleanup_syncset struct syncset *s = syncset_new();
	struct rlimit old, none;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = 4; /* 3 is the fixture's, or its parent's */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(syncset_add(s, d->fd, "f"), -EMFILE);
	assert_int_equal(syncset_add(s, path_fd, "f"), -EMFILE);
	assert_int_equal(syncset_size(s), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(syncset_add(s, path_fd, "f"), 0);
	assert_int_equal(syncset_run(s), 0);
}

static void barriers_fail_for_good(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_syncset struct syncset *s = syncset_new();
	int ends[2];

	/* A pipe cannot be synced, which is as good an error as any. */
	assert_int_equal(pipe(ends), 0);
	write_file(d->fd, "f", "");
	syncset_force(EACH);
	for (int i = 0; i < 20; i++)
		assert_int_equal(syncset_add(s, d->fd, "f"), 0);
	assert_int_equal(syncset_add_fd(s, ends[0]), 0);
	assert_int_equal(syncset_run(s), -EINVAL);
	assert_int_equal(syncset_size(s), 0);
	assert_int_equal(syncset_run(s), 0);
	assert_int_equal(syncset_add(s, d->fd, "../f"), 0);
	assert_int_not_equal(syncset_run(s), 0);
	assert_int_equal(syncset_add(s, -1, "f"), -EBADF);
	syncset_force(AUTO);
	close(ends[0]);
	close(ends[1]);
}

static int unreadable_files(int dir_fd)
{
	cleanup_syncset struct syncset *s = syncset_new();

	close(openat(dir_fd, "f", O_CREAT | O_WRONLY, 0));
	CHECK(mkdirat(dir_fd, "d", 0300) == 0);
	for (int m = AUTO; m < METHODS; m++) {
		syncset_force(m);
		CHECK(syncset_add(s, dir_fd, "f") == 0 && syncset_add(s, dir_fd, "d") == 0);
		CHECK(syncset_run(s) == 0);
	}
	return 0;
}

static void barriers_over_files_their_owner_cannot_open(void **state)
{
	for_each_dir(d, state) as_ordinary_user(d, unreadable_files);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(barriers_take_files_directories_and_descriptors,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(barriers_span_filesystems, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(barriers_ignore_absent_and_special_entries,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(barriers_over_trees, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(barriers_share_roots, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(barriers_on_a_network_filesystem, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(barriers_without_descriptors_are_refused,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(barriers_fail_for_good, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(barriers_over_files_their_owner_cannot_open,
		                                fixture_setup, fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

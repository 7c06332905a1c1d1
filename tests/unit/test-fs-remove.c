/* SPDX-License-Identifier: Apache-2.0 */
/* Removing trees. */
#include "fs/remove.h"

#include "util/cleanup.h"

#include "unit/fs-fixture.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

static void removal_takes_every_type(void **state)
{
	for_each_dir(d, state)
	{
		make_dir(d->fd, "t");
		make_dir(d->fd, "t/d");
		make_dir(d->fd, "t/d/e");
		write_file(d->fd, "t/d/e/f", "");
		write_file(d->fd, "t/-rf", "");
		assert_int_equal(symlinkat("nowhere", d->fd, "t/l"), 0);
		assert_int_equal(mkfifoat(d->fd, "t/p", 0600), 0);
		assert_int_equal(mknodat(d->fd, "t/s", S_IFSOCK | 0600, 0), 0);
		write_file(d->fd, "single", "");
		assert_int_equal(remove_tree_at(d->fd, "t"), 0);
		assert_false(exists(d->fd, "t"));
		assert_int_equal(remove_tree_at(d->fd, "t"), 0);
		assert_int_equal(remove_tree_at(d->fd, "single"), 0);
		assert_false(exists(d->fd, "single"));
		assert_int_equal(remove_tree_at(d->fd, ".."), -EINVAL);
		assert_int_equal(remove_tree_at(d->fd, ""), -EINVAL);
	}
}

static void removal_by_path(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_free char *path = NULL, *missing = NULL, *through = NULL;

	make_dir(d->fd, "p");
	make_dir(d->fd, "p/t");
	write_file(d->fd, "p/t/f", "");
	assert_int_equal(symlinkat("p", d->fd, "l"), 0);
	assert_true(asprintf(&path, "%s/p/t", d->path) > 0);
	assert_true(asprintf(&missing, "%s/no/such", d->path) > 0);
	assert_true(asprintf(&through, "%s/l/t", d->path) > 0);
	assert_int_equal(remove_tree(missing), 0);
	assert_int_equal(remove_tree(through), -ENOTDIR);
	assert_true(exists(d->fd, "p/t/f"));
	assert_int_equal(remove_tree(path), 0);
	assert_false(exists(d->fd, "p/t"));
	assert_int_equal(remove_tree(path), 0);
	assert_int_equal(remove_tree("no-such-entry-here"), 0);
}

static void sec_01_removal_follows_no_links(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_free char *absolute = NULL;

		make_dir(d->fd, "precious");
		write_file(d->fd, "precious/f", "");
		assert_true(asprintf(&absolute, "%s/precious", d->path) > 0);
		make_dir(d->fd, "t");
		assert_int_equal(symlinkat("../precious", d->fd, "t/relative"), 0);
		assert_int_equal(symlinkat(absolute, d->fd, "t/absolute"), 0);
		assert_int_equal(symlinkat("precious", d->fd, "box"), 0);
		assert_int_equal(remove_tree_at(d->fd, "t"), 0);
		assert_int_equal(remove_tree_at(d->fd, "box"), 0);
		assert_false(exists(d->fd, "t") || exists(d->fd, "box"));
		assert_true(exists(d->fd, "precious/f"));
	}
}

static int locked_dirs(int dir_fd)
{
	static const mode_t modes[] = { 0, 0500, 0300, 0600, 0100 };

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		CHECK(mkdirat(dir_fd, "t", 0755) == 0 && mkdirat(dir_fd, "t/d", 0755) == 0);
		CHECK(mkdirat(dir_fd, "t/d/e", 0755) == 0);
		close(openat(dir_fd, "t/d/e/f", O_CREAT | O_WRONLY, 0));
		CHECK(fchmodat(dir_fd, "t/d/e", modes[i], 0) == 0);
		CHECK(fchmodat(dir_fd, "t/d", modes[i], 0) == 0);
		CHECK(fchmodat(dir_fd, "t", modes[i], 0) == 0);
		CHECK(remove_tree_at(dir_fd, "t") == 0);
		CHECK(!exists(dir_fd, "t"));
	}
	return 0;
}

static void removal_opens_locked_directories(void **state)
{
	for_each_dir(d, state) as_ordinary_user(d, locked_dirs);
}

static int removes_roots_tree(int dir_fd)
{
	CHECK(remove_tree_at(dir_fd, "t") == -EACCES);
	CHECK(exists(dir_fd, "t/f"));
	return 0;
}

static void removal_of_what_others_own_fails(void **state)
{
	if (geteuid() != 0)
		skip();
	for_each_dir(d, state)
	{
		make_dir(d->fd, "his");
		make_dir(d->fd, "his/t");
		write_file(d->fd, "his/t/f", "");
		as_ordinary_user(d, removes_roots_tree);
	}
}

static int mounted_inside(int dir_fd)
{
	CHECK(mkdirat(dir_fd, "t", 0755) == 0 && mkdirat(dir_fd, "t/m", 0755) == 0);
	CHECK(mkdirat(dir_fd, "t/a", 0755) == 0 && mkdirat(dir_fd, "t/z", 0755) == 0);
	close(openat(dir_fd, "t/file", O_CREAT | O_WRONLY, 0644));
	close(openat(dir_fd, "bound", O_CREAT | O_WRONLY, 0644));
	if (mount("none", "t/m", "tmpfs", 0, NULL) < 0 ||
	    mount("bound", "t/file", NULL, MS_BIND, NULL) < 0)
		return 77;
	close(openat(dir_fd, "t/m/precious", O_CREAT | O_WRONLY, 0644));
	CHECK(remove_tree_at(dir_fd, "t") == -EBUSY);
	CHECK(exists(dir_fd, "t/m/precious") && exists(dir_fd, "bound"));
	CHECK(!exists(dir_fd, "t/a") && !exists(dir_fd, "t/z"));
	CHECK(remove_tree_at(dir_fd, "t/m") == -EBUSY);
	CHECK(exists(dir_fd, "t/m/precious"));
	return 0;
}

static void removal_leaves_mounts_alone(void **state)
{
	if (!among_own_mounts(((struct fixture *)*state)->dir, mounted_inside))
		skip();
}

static void removal_goes_on_past_immutable_entries(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_close int fd = FD_NONE;
	int flags = FS_IMMUTABLE_FL;

	make_dir(d->fd, "t");
	make_dir(d->fd, "t/m");
	write_file(d->fd, "t/a", "");
	write_file(d->fd, "t/m/fixed", "");
	write_file(d->fd, "t/m/x", "");
	write_file(d->fd, "t/z", "");
	fd = openat(d->fd, "t/m/fixed", O_RDONLY | O_CLOEXEC);
	if (ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0)
		skip();
	assert_int_equal(remove_tree_at(d->fd, "t"), -EPERM);
	assert_true(exists(d->fd, "t/m/fixed"));
	assert_false(exists(d->fd, "t/a") || exists(d->fd, "t/m/x") || exists(d->fd, "t/z"));
	flags = 0;
	assert_int_equal(ioctl(fd, FS_IOC_SETFLAGS, &flags), 0);
	assert_int_equal(remove_tree_at(d->fd, "t"), 0);
}

static void removal_of_very_deep_trees(void **state)
{
	struct rlimit old, few;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = old;
	few.rlim_cur = 100;
	for_each_dir(d, state)
	{
		make_chain(d->fd, "directory", 3000);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		assert_int_equal(remove_tree_at(d->fd, "directory"), 0);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
		assert_false(exists(d->fd, "directory"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(removal_takes_every_type, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(removal_by_path, fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(sec_01_removal_follows_no_links, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(removal_opens_locked_directories, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(removal_of_what_others_own_fails, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(removal_leaves_mounts_alone, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(removal_goes_on_past_immutable_entries,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(removal_of_very_deep_trees, fixture_setup,
		                                fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

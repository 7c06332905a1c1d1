/* SPDX-License-Identifier: Apache-2.0 */
/* Listing directories and walking trees. */
#include "fs/walk.h"

#include "fs/fs-impl.h"
#include "fs/stat.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/strbuf.h"

#include "unit/fs-fixture.h"
#include "unit/refuse.h"

#include <dirent.h>
#include <malloc.h>
#include <sys/resource.h>

static void listing_is_sorted_by_bytes(void **state)
{
	static const char *const names[] = { "\001\n", " ", "A",        "a",
		                             "a b",    "b", "\303\244", "\377\376" };
	enum { N = sizeof(names) / sizeof(names[0]) };

	for_each_dir(d, state)
	{
		cleanup_dirlist struct dirlist list = DIRLIST_INIT;
		char used[4096];

		for (int i = N - 1; i >= 0; i--)
			write_file(d->fd, names[i], "");
		/* The offset of the descriptor does not matter. */
		assert_true(getdents64(d->fd, used, sizeof(used)) > 0);
		assert_int_equal(getdents64(d->fd, used, sizeof(used)), 0);
		assert_int_equal(dirlist_read(d->fd, &list), 0);
		assert_int_equal(list.n, N);
		for (size_t i = 0; i < N; i++) {
			assert_string_equal(list.v[i].name, names[i]);
			assert_int_equal(list.v[i].type, DT_REG);
		}
	}
}

static void listing_knows_types(void **state)
{
	static const unsigned char types[] = { DT_DIR, DT_REG, DT_LNK, DT_FIFO };

	for_each_dir(d, state)
	{
		cleanup_dirlist struct dirlist list = DIRLIST_INIT;

		assert_int_equal(dirlist_read(d->fd, &list), 0);
		assert_int_equal(list.n, 0);
		make_dir(d->fd, "1");
		write_file(d->fd, "2", "");
		assert_int_equal(symlinkat("1", d->fd, "3"), 0);
		assert_int_equal(mkfifoat(d->fd, "4", 0600), 0);
		assert_int_equal(dirlist_read(d->fd, &list), 0);
		assert_int_equal(list.n, 4);
		for (size_t i = 0; i < 4; i++)
			assert_int_equal(list.v[i].type, types[i]);
	}
}

static int list_of_none(int dir_fd)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;

	CHECK(dirlist_read(dir_fd, &list) == 0 && list.n == 0);
	return 0;
}

static int list_fails(int dir_fd)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;

	CHECK(dirlist_read(dir_fd, &list) == -EIO && !list.v);
	return 0;
}

/* ext4 without that feature: the kernel tells names, and no types. */
static int list_without_types(int dir_fd)
{
	static const unsigned char types[] = { DT_DIR, DT_REG, DT_LNK, DT_FIFO };
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	cleanup_close int fd = FD_NONE;

	CHECK(mkdirat(dir_fd, "m", 0755) == 0);
	if (system("truncate -s 8M img && mkfs.ext4 -q -O ^filetype img >/dev/null 2>&1 && "
	           "mount -o loop img m >/dev/null 2>&1 && rmdir m/lost+found") != 0)
		return 77;
	fd = openat(dir_fd, "m", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(mkdirat(fd, "1", 0755) == 0 && symlinkat("1", fd, "3") == 0 &&
	      mkfifoat(fd, "4", 0600) == 0);
	CHECK(mknodat(fd, "2", S_IFREG | 0644, 0) == 0);
	CHECK(dirlist_read(fd, &list) == 0 && list.n == 4);
	for (size_t i = 0; i < 4; i++)
		CHECK(list.v[i].type == types[i]);
	/* Gone before it could be looked at; and what cannot be looked at. */
	CHECK(while_refused(fd, (struct refusal){ SYS_statx, ENOENT, 0, 0 }, list_of_none) == 0);
	CHECK(while_refused(fd, (struct refusal){ SYS_statx, EIO, 0, 0 }, list_fails) == 0);
	return 0;
}

static void listing_finds_types_that_are_not_told(void **state)
{
	if (!among_own_mounts(&((struct fixture *)*state)->dir[1], list_without_types))
		skip();
}

static void listing_fails_on_what_is_no_directory(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_close int fd = FD_NONE;
	struct dirlist list = DIRLIST_INIT;

	write_file(d->fd, "f", "");
	fd = openat(d->fd, "f", O_RDONLY | O_CLOEXEC);
	assert_int_equal(dirlist_read(fd, &list), -ENOTDIR);
	assert_null(list.v);
}

static void listing_100000_entries_is_compact_and_fast(void **state)
{
	enum { N = 100000 };
	struct fixture_dir *d = &((struct fixture *)*state)->dir[1];
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	struct mallinfo2 before, after;
	struct fs_stat st;
	int64_t start;
	char name[32];

	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "file-%06d.txt", i);
		assert_int_equal(mknodat(d->fd, name, S_IFREG | 0644, 0), 0);
	}
	before = mallinfo2();
	start = clock_boot_ns();
	assert_int_equal(dirlist_read(d->fd, &list), 0);
	assert_int_equal(list.n, N);
	after = mallinfo2();
	for (size_t i = 0; i < list.n; i++)
		assert_int_equal(fs_stat_at(d->fd, list.v[i].name, 0, &st), 0);
	print_message("# %d ns per file\n", (int)((clock_boot_ns() - start) / N));
	assert_true(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd < 6u << 20);
	for (size_t i = 0; i < list.n; i++)
		assert_int_equal(unlinkat(d->fd, list.v[i].name, 0), 0);
}

/* What was called, as text. */
struct trace {
	struct strbuf text;
	const char *skip;
	const char *stop;
};

static int trace_entry(void *ctx, int dir_fd, const char *name, const char *path,
                       unsigned char type)
{
	struct trace *t = ctx;

	if (!exists(dir_fd, name))
		return -EBADF;
	strbuf_printf(&t->text, "%s%s ", path, type == DT_DIR ? "/" : "");
	if (t->stop != NULL && strcmp(path, t->stop) == 0)
		return -ECANCELED;
	return t->skip != NULL && strcmp(path, t->skip) == 0 ? WALK_SKIP : 0;
}

static int trace_post(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct trace *t = ctx;

	if (!exists(dir_fd, name) || type != DT_DIR)
		return -EBADF;
	strbuf_printf(&t->text, "^%s(%s) ", path, name);
	return 0;
}

static void expect_walk(int dir_fd, const char *start, struct trace t, int r, const char *want)
{
	assert_int_equal(walk_tree(dir_fd, start, trace_entry, trace_post, &t), r);
	assert_string_equal(strbuf_str(&t.text), want);
	strbuf_done(&t.text);
}

static void walk_goes_depth_first_in_order(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int path_fd = openat(d->fd, ".", O_PATH | O_CLOEXEC);

		make_dir(d->fd, "b");
		make_dir(d->fd, "b/2");
		write_file(d->fd, "b/1", "");
		write_file(d->fd, "b/2/x", "");
		write_file(d->fd, "a", "");
		write_file(d->fd, "b.c", "");
		make_dir(d->fd, "empty");
		expect_walk(path_fd, "", (struct trace){ 0 }, 0,
		            "a b/ b/1 b/2/ b/2/x ^b/2(2) ^b(b) b.c empty/ ^empty(empty) ^(.) ");
		expect_walk(d->fd, "b", (struct trace){ 0 }, 0, "b/ b/1 b/2/ b/2/x ^b/2(2) ^b(b) ");
		expect_walk(d->fd, "b/2", (struct trace){ 0 }, 0, "b/2/ b/2/x ^b/2(2) ");
		expect_walk(d->fd, "b/1", (struct trace){ 0 }, 0, "b/1 ");
		expect_walk(d->fd, "", (struct trace){ .skip = "b" }, 0,
		            "a b/ b.c empty/ ^empty(empty) ^(.) ");
		expect_walk(d->fd, "b", (struct trace){ .skip = "b" }, 0, "b/ ");
		expect_walk(d->fd, "", (struct trace){ .stop = "b/2/x" }, -ECANCELED,
		            "a b/ b/1 b/2/ b/2/x ");
		expect_walk(d->fd, "no", (struct trace){ 0 }, -ENOENT, "");
		expect_walk(d->fd, "..", (struct trace){ 0 }, -EINVAL, "");
	}
}

static void walk_follows_no_links(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;

	make_dir(d->fd, "d");
	write_file(d->fd, "d/f", "");
	assert_int_equal(symlinkat("d", d->fd, "l"), 0);
	assert_int_equal(symlinkat("..", d->fd, "d/up"), 0);
	expect_walk(d->fd, "", (struct trace){ 0 }, 0, "d/ d/f d/up ^d(d) l ^(.) ");
	expect_walk(d->fd, "l", (struct trace){ 0 }, 0, "l ");
}

static int count_entry(void *ctx, int dir_fd, const char *name, const char *path,
                       unsigned char type)
{
	(void)path;
	(void)type;
	++*(int *)ctx;
	return exists(dir_fd, name) ? 0 : -EBADF;
}

static int walk_own_mount(int dir_fd)
{
	int n = 0;

	CHECK(mkdirat(dir_fd, "a", 0755) == 0 && mkdirat(dir_fd, "a/m", 0755) == 0);
	if (mount("none", "a/m", "tmpfs", 0, NULL) < 0)
		return 77;
	CHECK(mkdirat(dir_fd, "a/m/inside", 0755) == 0);
	CHECK(walk_tree(dir_fd, "", count_entry, NULL, &n) == 0);
	CHECK(n == 2);
	return 0;
}

static void walk_crosses_no_mounts(void **state)
{
	if (!among_own_mounts(((struct fixture *)*state)->dir, walk_own_mount))
		skip();
}

static void walk_goes_deeper_than_descriptors_and_path_max(void **state)
{
	enum { DEPTH = 3000 };
	struct rlimit old, few;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = old;
	few.rlim_cur = 100;
	for_each_dir(d, state)
	{
		int entries = 0, dirs = 0;

		make_chain(d->fd, "directory", DEPTH);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		/* Siblings on the way back need the levels that were closed meanwhile. */
		write_file(d->fd, "directory/z", "");
		assert_int_equal(walk_tree(d->fd, "", count_entry, NULL, &entries), 0);
		assert_int_equal(entries, DEPTH + 2);
		assert_int_equal(walk_tree(d->fd, "directory", count_entry, count_entry, &dirs), 0);
		assert_int_equal(dirs, 2 * DEPTH + 2);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	}
}

struct mover {
	int root_fd;
	int n;
};

/* Takes the tree away from under the walk: what was its ".." no longer is. */
static int move_away(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct mover *m = ctx;

	(void)path;
	(void)type;
	m->n++;
	if (!exists(dir_fd, name))
		return -EBADF;
	if (strcmp(name, "leaf") == 0)
		return renameat(m->root_fd, "d/d", m->root_fd, "away") == 0 ? 0 : -errno;
	return 0;
}

static void walk_knows_its_directories_again(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	struct mover m = { .root_fd = d->fd };

	make_chain(d->fd, "d", 100);
	write_file(d->fd, "d/z", "");
	assert_int_equal(walk_tree(d->fd, "d", move_away, NULL, &m), 0);
	assert_int_equal(m.n, 102);
	assert_true(exists(d->fd, "away"));
}

static int unreadable_dir(int dir_fd)
{
	int n = 0, error = 0, all = 0;

	CHECK(mkdirat(dir_fd, "a", 0) == 0 && mkdirat(dir_fd, "b", 0755) == 0);
	CHECK(walk_tree(dir_fd, "", count_entry, NULL, &n) == -EACCES && n == 1);
	CHECK(walk_tree_past(dir_fd, "", count_entry, NULL, &all, &error) == 0);
	CHECK(all == 2 && error == -EACCES);
	return 0;
}

static void walk_tells_of_unreadable_directories(void **state)
{
	for_each_dir(d, state) as_ordinary_user(d, unreadable_dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(listing_is_sorted_by_bytes, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(listing_finds_types_that_are_not_told,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(listing_knows_types, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(listing_fails_on_what_is_no_directory,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(listing_100000_entries_is_compact_and_fast,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(walk_goes_depth_first_in_order, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(walk_follows_no_links, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(walk_crosses_no_mounts, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(walk_goes_deeper_than_descriptors_and_path_max,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(walk_knows_its_directories_again, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(walk_tells_of_unreadable_directories, fixture_setup,
		                                fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

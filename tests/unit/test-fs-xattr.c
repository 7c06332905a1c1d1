/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes. */
#include "fs/xattr.h"

#include "util/cleanup.h"

#include "unit/fs-fixture.h"
#include "unit/refuse.h"

#include <atoll.h>
#include <sys/xattr.h>

static struct xattr make(const char *name, const char *value)
{
	return (struct xattr){ .name = strdup(name), .value = strdup(value), .len = strlen(value) };
}

static void set_raw(int dir_fd, const char *name, const char *attr, const char *value,
                    int *supported)
{
	char path[64];
	int r;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir_fd, name);
	r = lsetxattr(path, attr, value, strlen(value), 0);
	*supported = r == 0;
	assert_true(r == 0 || errno == EOPNOTSUPP || errno == EPERM);
}

static void xattrs_are_read_sorted_without_overlays_own(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_xattrs struct xattrs x = XATTRS_INIT, none = XATTRS_INIT;
		cleanup_close int fd = FD_NONE;
		int ok;

		write_file(d->fd, "f", "");
		assert_int_equal(xattrs_read_at(d->fd, "f", &none), 0);
		assert_int_equal(none.n, 0);
		set_raw(d->fd, "f", "user.z", "last", &ok);
		if (!ok)
			continue;
		set_raw(d->fd, "f", "user.a", "", &ok);
		set_raw(d->fd, "f", "user.overlay.opaque", "y", &ok);
		set_raw(d->fd, "f", "user.overlayed", "mine", &ok);
		set_raw(d->fd, "f", "trusted.overlay.origin", "x", &ok);
		assert_int_equal(xattrs_read_at(d->fd, "f", &x), 0);
		assert_int_equal(x.n, 3);
		assert_string_equal(x.v[0].name, "user.a");
		assert_int_equal(x.v[0].len, 0);
		assert_string_equal(x.v[1].name, "user.overlayed");
		assert_string_equal(x.v[2].name, "user.z");
		assert_int_equal(x.v[2].len, 4);
		assert_memory_equal(x.v[2].value, "last", 4);
		assert_true(xattrs_has(&x, "user.z"));
		assert_false(xattrs_has(&x, "user.overlay.opaque"));

		/* The same through a descriptor that can only be looked at. */
		xattrs_done(&none);
		fd = openat(d->fd, "f", O_PATH | O_CLOEXEC);
		assert_int_equal(xattrs_read_at(fd, "", &none), 0);
		assert_true(xattrs_equal(&x, &none));
		assert_int_equal(xattrs_read_at(d->fd, "no", &none), -ENOENT);
	}
}

static void xattrs_of_links_and_fifos_are_their_own(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_xattrs struct xattrs x = XATTRS_INIT, y = XATTRS_INIT;
		cleanup_close int fd = FD_NONE;
		int ok;

		write_file(d->fd, "f", "");
		set_raw(d->fd, "f", "user.a", "file's", &ok);
		assert_int_equal(symlinkat("f", d->fd, "l"), 0);
		assert_int_equal(mkfifoat(d->fd, "p", 0600), 0);
		alarm(60);
		set_raw(d->fd, "l", "trusted.a", "link's", &ok);
		assert_int_equal(xattrs_read_at(d->fd, "l", &x), 0);
		assert_int_equal(x.n, ok);
		assert_false(xattrs_has(&x, "user.a"));
		fd = openat(d->fd, "l", O_PATH | O_NOFOLLOW | O_CLOEXEC);
		assert_int_equal(xattrs_read_at(fd, "", &y), 0);
		assert_true(xattrs_equal(&x, &y));
		xattrs_done(&x);
		assert_int_equal(xattrs_read_at(d->fd, "p", &x), 0);
		assert_int_equal(x.n, 0);
		alarm(0);
	}
}

static void xattrs_are_written_exactly(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_xattrs struct xattrs want = XATTRS_INIT, got = XATTRS_INIT;
		int ok;

		write_file(d->fd, "f", "");
		set_raw(d->fd, "f", "user.gone", "1", &ok);
		if (!ok)
			continue;
		set_raw(d->fd, "f", "user.same", "2", &ok);
		set_raw(d->fd, "f", "user.changed", "3", &ok);
		set_raw(d->fd, "f", "user.overlay.kept", "4", &ok);
		want.v = calloc(4, sizeof(*want.v));
		want.v[want.n++] = make("user.changed", "33");
		want.v[want.n++] = make("user.empty", "");
		want.v[want.n++] = make("user.new", "5");
		want.v[want.n++] = make("user.same", "2");
		assert_int_equal(xattrs_write_at(d->fd, "f", &want), 0);
		assert_int_equal(xattrs_read_at(d->fd, "f", &got), 0);
		assert_true(xattrs_equal(&want, &got));
		assert_int_equal(xattr_remove_at(d->fd, "f", "user.overlay.kept"), 0);
		assert_int_equal(xattr_remove_at(d->fd, "f", "user.overlay.kept"), 0);
		assert_int_equal(xattrs_write_at(d->fd, "f", &XATTRS_INIT), 0);
		xattrs_done(&got);
		assert_int_equal(xattrs_read_at(d->fd, "f", &got), 0);
		assert_int_equal(got.n, 0);
	}
}

static void xattrs_hash_tells_them_apart(void **state)
{
	cleanup_xattrs struct xattrs a = XATTRS_INIT, b = XATTRS_INIT;

	(void)state;
	assert_int_equal(xattrs_hash(&a), 0);
	a.v = calloc(2, sizeof(*a.v));
	b.v = calloc(2, sizeof(*b.v));
	a.v[a.n++] = make("user.a", "bc");
	b.v[b.n++] = make("user.ab", "c");
	assert_int_not_equal(xattrs_hash(&a), 0);
	assert_int_not_equal(xattrs_hash(&a), xattrs_hash(&b));
	assert_false(xattrs_equal(&a, &b));
	xattrs_done(&b);
	b.v = calloc(2, sizeof(*b.v));
	b.v[b.n++] = make("user.a", "bc");
	assert_true(xattrs_hash(&a) == xattrs_hash(&b));
	assert_true(xattrs_equal(&a, &b));
	b.v[b.n++] = make("user.b", "");
	assert_int_not_equal(xattrs_hash(&a), xattrs_hash(&b));
	assert_false(xattrs_equal(&a, &b));
}

/* More names than are asked for at first. */
static void xattrs_with_many_names_are_all_read(void **state)
{
	struct fixture_dir *d = &((struct fixture *)*state)->dir[1];
	cleanup_close int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct xattrs x = XATTRS_INIT;
	int ok = 1;

	write_file(d->fd, "f", "");
	for (int i = 0; i < 40 && ok; i++) {
		char name[32];

		snprintf(name, sizeof(name), "trusted.name-%02d", i);
		set_raw(d->fd, "f", name, "v", &ok);
	}
	if (!ok)
		skip();
	assert_int_equal(xattrs_read_at(d->fd, "f", &x), 0);
	assert_int_equal(x.n, 40);
	assert_string_equal(x.v[39].name, "trusted.name-39");
	xattrs_done(&x);
	assert_int_equal(fchdir(d->fd), 0);
	assert_int_equal(xattrs_read_at(AT_FDCWD, "f", &x), 0);
	assert_int_equal(fchdir(here), 0);
	assert_int_equal(x.n, 40);
	xattrs_done(&x);
	assert_int_equal(xattrs_read_at(d->fd, "none", &x), -ENOENT);
	assert_int_equal(xattr_remove_at(d->fd, "none", "trusted.x"), -ENOENT);
}

static int have_none(int dir_fd)
{
	cleanup_xattrs struct xattrs x = XATTRS_INIT;

	CHECK(xattrs_read_at(dir_fd, "f", &x) == 0 && x.n == 0);
	return 0;
}

static int cannot_be_read(int dir_fd)
{
	struct xattrs x = XATTRS_INIT;

	CHECK(xattrs_read_at(dir_fd, "f", &x) == -EIO && x.n == 0 && !x.v);
	return 0;
}

/* Between the calls: the last name or value goes; or the disk does not answer. */
static void xattrs_that_vanish_are_none(void **state)
{
	static const struct {
		struct refusal call;
		child_fn expect;
	} rows[] = {
		{ { SYS_lgetxattr, ENODATA, 0, 0 }, have_none },
		{ { SYS_llistxattr, EOPNOTSUPP, 0, 0 }, have_none },
		{ { SYS_llistxattr, ENOSYS, 0, 0 }, have_none },
		{ { SYS_lgetxattr, EIO, 0, 0 }, cannot_be_read },
		{ { SYS_llistxattr, EIO, 0, 0 }, cannot_be_read },
	};
	/* They were many when they were asked for, and none when they were counted. */
	const struct refusal were_many = { SYS_llistxattr, ERANGE, 3, 256 };

	for_each_dir(d, state)
	{
		int ok;

		write_file(d->fd, "f", "");
		assert_int_equal(while_refused(d->fd, were_many, have_none), 0);
		set_raw(d->fd, "f", "user.a", "1", &ok);
		for (size_t i = 0; ok && i < sizeof(rows) / sizeof(rows[0]); i++)
			assert_int_equal(while_refused(d->fd, rows[i].call, rows[i].expect), 0);
	}
}

static void xattrs_over_the_limit_are_refused(void **state)
{
	/* Only memory takes so many. */
	struct fixture_dir *d = &((struct fixture *)*state)->dir[1];
	cleanup_free char *value = malloc(60001);
	struct xattrs x = XATTRS_INIT;
	int ok = 1;

	memset(value, 'v', 60000);
	value[60000] = '\0';
	write_file(d->fd, "f", "");
	for (int i = 0; i < 20 && ok; i++) {
		char name[32];

		snprintf(name, sizeof(name), "trusted.n%d", i);
		set_raw(d->fd, "f", name, value, &ok);
	}
	if (!ok)
		skip();
	assert_int_equal(xattrs_read_at(d->fd, "f", &x), -ATOLL_E_TOO_BIG);
	assert_null(x.v);
}

static int users_view(int dir_fd)
{
	struct xattr one = { strdup("trusted.x"), strdup("1"), 1 };
	struct xattrs want = { &one, 1 };
	struct xattrs x = XATTRS_INIT;

	CHECK(xattrs_read_at(dir_fd, "f", &x) == 0);
	CHECK(!xattrs_has(&x, "trusted.a"));
	/* What is equal already is not touched, so that nothing is refused. */
	CHECK(xattrs_write_at(dir_fd, "f", &x) == 0);
	CHECK(xattrs_write_at(dir_fd, "f", &want) != 0);
	return 0;
}

static void xattrs_of_an_ordinary_user(void **state)
{
	for_each_dir(d, state)
	{
		int ok;

		make_dir(d->fd, "his");
		write_file(d->fd, "his/f", "");
		set_raw(d->fd, "his/f", "user.a", "1", &ok);
		set_raw(d->fd, "his/f", "trusted.a", "1", &ok);
		as_ordinary_user(d, users_view);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(xattrs_are_read_sorted_without_overlays_own,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(xattrs_of_links_and_fifos_are_their_own,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(xattrs_are_written_exactly, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test(xattrs_hash_tells_them_apart),
		cmocka_unit_test_setup_teardown(xattrs_with_many_names_are_all_read, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(xattrs_that_vanish_are_none, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(xattrs_over_the_limit_are_refused, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(xattrs_of_an_ordinary_user, fixture_setup,
		                                fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

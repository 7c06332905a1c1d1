/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a manifest back. */
#include "strategy/manifest.h"

#include "util/cleanup.h"
#include "util/limits.h"
#include "util/mem.h"

#include "unit/fs-fixture.h"

#include <atoll.h>
#include <endian.h>
#include <sys/resource.h>

#define HEADER_LEN 28
#define STAT_LEN   52

/* An address sanitizer needs memory of its own, and can be told itself that as large a block as this test asks
 * for is not to be had. */
#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1:max_allocation_size_mb=1";
}

static char buffer[HEADER_LEN + 256 + LIMIT_XATTRS];

static size_t put_u32(size_t at, uint32_t v)
{
	v = htole32(v);
	memcpy(buffer + at, &v, sizeof(v));
	return at + sizeof(v);
}

/* A directory with one attribute, of VALUE_LEN bytes. */
static size_t make(int dir_fd, uint32_t value_len)
{
	char hash[HASH_TEXT_LEN];
	cleanup_close int fd = FD_NONE;
	size_t at = HEADER_LEN;

	memset(buffer, 0, sizeof(buffer));
	assert_int_equal(manifest_write(&MANIFEST_INIT, dir_fd, "m", hash, NULL), 0);
	fd = openat(dir_fd, "m", O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, buffer, sizeof(buffer)), HEADER_LEN);
	(void)put_u32(HEADER_LEN - 4, 1); /* one directory */
	at = put_u32(at, 0);              /* flags */
	at = put_u32(at, 1);
	buffer[at++] = 'd';
	at += 2 * (size_t)STAT_LEN;
	at = put_u32(at, 0); /* attributes as they were */
	at = put_u32(at, 1); /* and as they are */
	at = put_u32(at, 6);
	memcpy(buffer + at, "user.x", 6);
	at = put_u32(at + 6, value_len);
	return at + value_len;
}

/* Nothing but what is there already. */
static int parse_without_memory(size_t len, struct manifest *ret, struct error *err)
{
	struct rlimit was, none = { .rlim_cur = 4096 };
	int r;

	assert_int_equal(getrlimit(RLIMIT_DATA, &was), 0);
	none.rlim_max = was.rlim_max;
	assert_int_equal(SANITIZED ? 0 : setrlimit(RLIMIT_DATA, &none), 0);
	r = manifest_parse(buffer, len, ret, err);
	assert_int_equal(setrlimit(RLIMIT_DATA, &was), 0);
	return r;
}

static void too_little_memory_is_no_damage(void **state)
{
	struct fixture *f = *state;
	cleanup_error struct error err = ERROR_INIT, damage = ERROR_INIT;
	struct manifest m = MANIFEST_INIT;
	size_t len = make(f->dir[0].fd, LIMIT_XATTRS);

	assert_int_equal(parse_without_memory(len, &m, &err), -ENOMEM);
	assert_int_equal(err.code, -ENOMEM);
	assert_int_equal(manifest_parse(buffer, len - 1, &m, &damage), -ATOLL_E_DAMAGED);

	len = make(f->dir[0].fd, 1000);
	assert_int_equal(manifest_parse(buffer, len, &m, NULL), 0);
	assert_int_equal(m.n_dirs, 1);
	assert_int_equal(m.dirs[0].new_xattrs.v[0].len, 1000);
	manifest_done(&m);
}

/* ---- a long one ---- */

#define LONG_OPS  4000
#define LONG_NAME 19
#define LONG_OP   (MANIFEST_OP_SIZE + LONG_NAME)

static void write_long(int dir_fd, char hash[HASH_TEXT_LEN])
{
	struct manifest m = MANIFEST_INIT;
	struct manifest_dir d = { .flags = MANIFEST_DIR_TIME, .path = xstrdup("dir") };

	for (unsigned i = 0; i < LONG_OPS; i++) {
		struct manifest_op o = { .op = CHANGE_CREATE,
			                 .path = xasprintf("dir/file-%010u", i),
			                 .new_stat = { .mode = S_IFREG | 0644, .size = i } };

		assert_int_equal(strlen(o.path), LONG_NAME);
		assert_int_equal(manifest_add_op(&m, &o), 0);
	}
	assert_int_equal(manifest_add_dir(&m, &d), 0);
	assert_int_equal(manifest_write(&m, dir_fd, "m", hash, NULL), 0);
	manifest_done(&m);
}

static int count_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void expect_damaged(int dir_fd, const char *hash, const char *says)
{
	static const struct manifest none;
	cleanup_error struct error err = ERROR_INIT;
	struct manifest m;
	int n = count_open();

	memset(&m, 0, sizeof(m));
	assert_int_equal(manifest_read(dir_fd, "m", hash, &m, &err), -ATOLL_E_DAMAGED);
	assert_int_equal(err.code, -ATOLL_E_DAMAGED);
	assert_non_null(strstr(err.msg, says));
	assert_memory_equal(&m, &none, sizeof(m));
	assert_int_equal(count_open(), n);
}

static void damage(int dir_fd, off_t at, const char *data, size_t len)
{
	cleanup_close int fd = openat(dir_fd, "m", O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, data, len, at), (ssize_t)len);
}

static void cut(int dir_fd, off_t len)
{
	cleanup_close int fd = openat(dir_fd, "m", O_WRONLY | O_CLOEXEC);

	assert_int_equal(ftruncate(fd, len), 0);
}

static void a_long_manifest_that_is_damaged_is_refused_as_a_whole(void **state)
{
	const off_t middle = HEADER_LEN + (off_t)LONG_OPS / 2 * LONG_OP;
	const struct {
		off_t at;
		const char *data;
		size_t len;
	} rows[] = {
		{ 0, "X", 1 },                             /* what it is */
		{ HEADER_LEN - 8, "\xff\xff\xff\xff", 4 }, /* how many operations */
		{ middle, "c", 1 },                        /* which operation */
		{ middle + 8, "\xff\xff\xff\xff", 4 },     /* how long a path */
		{ middle + 12, "/", 1 },                   /* where that leads */
	};
	struct fixture *f = *state;
	const int dir_fd = f->dir[0].fd;
	struct manifest m = MANIFEST_INIT;
	cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
	char hash[HASH_TEXT_LEN];
	struct stat st;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		write_long(dir_fd, hash);
		damage(dir_fd, rows[i].at, rows[i].data, rows[i].len);
		expect_damaged(dir_fd, hash, "manifest");
		expect_damaged(dir_fd, "", "manifest");
	}
	/* Too short, at the end and in the middle, and too long. */
	write_long(dir_fd, hash);
	assert_int_equal(fstatat(dir_fd, "m", &st, 0), 0);
	assert_true(middle > SPOOL_MEMORY);
	for (int i = -1; i <= 1; i += 2) {
		cut(dir_fd, st.st_size + i);
		expect_damaged(dir_fd, "", "manifest is damaged");
	}
	cut(dir_fd, middle + 1);
	expect_damaged(dir_fd, "", "manifest is damaged");

	/* Another name in it: it can be read, and is not the one. */
	write_long(dir_fd, hash);
	damage(dir_fd, middle + 12, "D", 1);
	expect_damaged(dir_fd, hash, "is not the one that was decided on");
	assert_int_equal(manifest_read(dir_fd, "m", "", &m, NULL), 0);
	assert_int_equal(m.ops.n, LONG_OPS);
	assert_int_equal(m.n_dirs, 1);
	assert_int_equal(manifest_get(&m, LONG_OPS / 2, &o), 0);
	assert_string_equal(o.path, "Dir/file-0000002000");
	assert_int_equal(o.new_stat.size, LONG_OPS / 2);
	manifest_done(&m);
}

/* ---- what states hold ---- */

static void assert_content(const struct fs_content *c, unsigned char first, uint64_t xattrs)
{
	assert_true(c->known);
	for (size_t i = 0; i < HASH_SIZE; i++)
		assert_int_equal(c->hash[i], first + i);
	assert_int_equal(c->xattrs, xattrs);
}

static void add_state(struct manifest *m, const char *path, bool old, bool new)
{
	struct manifest_op o = { .op = CHANGE_REPLACE,
		                 .flags = MANIFEST_RECORD,
		                 .path = xstrdup(path) };

	o.old_stat.mode = o.new_stat.mode = S_IFREG | 0644;
	o.old_stat.content = (struct fs_content){ .xattrs = 7, .known = old };
	o.new_stat.content = (struct fs_content){ .xattrs = 9, .known = new };
	for (size_t i = 0; i < HASH_SIZE; i++) {
		o.old_stat.content.hash[i] = (unsigned char)(10 + i);
		o.new_stat.content.hash[i] = (unsigned char)(100 + i);
	}
	assert_int_equal(manifest_add_op(m, &o), 0);
}

static void what_states_hold_comes_back(void **state)
{
	struct fixture *f = *state;
	int dir_fd = f->dir[0].fd;
	struct manifest m = MANIFEST_INIT, again = MANIFEST_INIT;
	struct manifest_reader *reader = NULL;
	char hash[HASH_TEXT_LEN];

	for (unsigned i = 0; i < 4; i++)
		add_state(&m, (const char *[]){ "a", "b", "c", "d" }[i], i & 1, i & 2);
	assert_int_equal(manifest_write(&m, dir_fd, "m", hash, NULL), 0);
	assert_int_equal(manifest_read(dir_fd, "m", hash, &again, NULL), 0);
	assert_int_equal(manifest_reader_open(dir_fd, "m", &reader, NULL), 0);
	for (unsigned i = 0; i < 4; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		const struct manifest_op *read = NULL;

		assert_int_equal(manifest_get(&again, i, &o), 0);
		assert_int_equal(manifest_reader_next(reader, &read, NULL), 1);
		assert_int_equal(o.flags, MANIFEST_RECORD);
		assert_int_equal(read->flags, MANIFEST_RECORD);
		assert_int_equal(o.old_stat.content.known, i & 1);
		assert_int_equal(o.new_stat.content.known, (i & 2) != 0);
		if (i & 1) {
			assert_content(&o.old_stat.content, 10, 7);
			assert_content(&read->old_stat.content, 10, 7);
		}
		if (i & 2) {
			assert_content(&o.new_stat.content, 100, 9);
			assert_content(&read->new_stat.content, 100, 9);
		}
	}
	manifest_reader_close(reader);
	manifest_done(&again);
	manifest_done(&m);
}

static void version_is(int dir_fd, uint32_t version)
{
	cleanup_close int fd = openat(dir_fd, "m", O_WRONLY | O_CLOEXEC);

	version = htole32(version);
	assert_int_equal(pwrite(fd, &version, sizeof(version), 8), sizeof(version));
}

/* Version 1 had no content, and is the same otherwise. */
static void a_manifest_of_an_older_version_is_read(void **state)
{
	struct fixture *f = *state;
	int dir_fd = f->dir[0].fd;
	struct manifest m = MANIFEST_INIT, again = MANIFEST_INIT;
	cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
	cleanup_error struct error newer = ERROR_INIT, none = ERROR_INIT;
	char hash[HASH_TEXT_LEN];

	add_state(&m, "a", false, false);
	assert_int_equal(manifest_write(&m, dir_fd, "m", hash, NULL), 0);
	manifest_done(&m);
	version_is(dir_fd, 1);
	assert_int_equal(manifest_read(dir_fd, "m", "", &again, NULL), 0);
	assert_int_equal(manifest_get(&again, 0, &o), 0);
	assert_string_equal(o.path, "a");
	assert_false(o.old_stat.content.known || o.new_stat.content.known);
	manifest_done(&again);
	version_is(dir_fd, 3);
	assert_int_equal(manifest_read(dir_fd, "m", "", &again, &newer), -ATOLL_E_NEWER);
	version_is(dir_fd, 0);
	assert_int_equal(manifest_read(dir_fd, "m", "", &again, &none), -ATOLL_E_DAMAGED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(too_little_memory_is_no_damage, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(what_states_hold_comes_back, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(a_manifest_of_an_older_version_is_read,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(
			a_long_manifest_that_is_damaged_is_refused_as_a_whole, fixture_setup,
			fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The base record: what is written is read, and nothing else. */
#include "diff/base.h"

#include "diff/base-impl.h"
#include "diff/change.h"
#include "util/cleanup.h"

#include "unit/fs-fixture.h"

#include <pthread.h>

static int new_file(struct fixture_dir *d)
{
	int fd;

	(void)unlinkat(d->fd, "base", 0);
	fd = openat(d->fd, "base", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	return fd;
}

static struct base_entry file_entry(const char *name, uint64_t n)
{
	return (struct base_entry){
		.name = name,
		.src = { .id = { n, ~n },
		         .mode = S_IFREG | 0644,
		         .uid = 1,
		         .gid = 2,
		         .nlink = 1,
		         .size = n << 32,
		         .mtime_ns = -(int64_t)n,
		         .ctime_ns = INT64_MAX,
		         .rdev = 7,
		         .content = { .hash = { (unsigned char)n, 255 },
		                      .xattrs = n,
		                      .known = n % 2 == 0 } },
		.work_ino = n + 1,
		.work_ctime_ns = (int64_t)n + 2,
		.dir = BASE_NO_DIR,
	};
}

static struct base_entry dir_entry(const char *name, uint32_t number)
{
	return (struct base_entry){
		.name = name,
		.src = { .id = { number + 1, 9 }, .mode = S_IFDIR | 0755, .nlink = 2 },
		.dir = number,
		.xattrs = UINT64_MAX,
	};
}

/* A root with a file, an odd name, a directory with an unreadable file, and a linked inode. */
static void write_small(int fd)
{
	cleanup_base_writer struct base_writer *w = NULL;
	struct base_entry root = dir_entry("", 0), v[3], below;

	assert_int_equal(base_writer_new(fd, &w), 0);
	assert_int_equal(base_writer_dir(w), 0);
	assert_int_equal(base_writer_dir(w), 1);
	v[0] = file_entry("\n\377 name", 5);
	v[0].src.nlink = 2;
	v[1] = dir_entry("dir", 1);
	v[2] = file_entry("file", 6);
	below = file_entry("below", 8);
	below.flags = BASE_UNREADABLE;
	assert_int_equal(base_writer_block(w, 1, &below, 1), 0);
	assert_int_equal(base_writer_block(w, 0, v, 3), 0);
	assert_int_equal(base_writer_link(w, 100, 1), 0);
	assert_int_equal(base_writer_link(w, 6, 4711), 0);
	assert_int_equal(base_writer_finish(w, &root), 0);
}

static void assert_entry(const struct base_entry *a, const struct base_entry *b)
{
	assert_string_equal(a->name, b->name);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->dir, b->dir);
	assert_true(fs_id_equal(a->src.id, b->src.id));
	assert_int_equal(a->src.mode, b->src.mode);
	assert_int_equal(a->src.uid, b->src.uid);
	assert_int_equal(a->src.gid, b->src.gid);
	assert_int_equal(a->src.nlink, b->src.nlink);
	assert_int_equal(a->src.size, b->src.size);
	assert_int_equal(a->src.mtime_ns, b->src.mtime_ns);
	assert_int_equal(a->src.ctime_ns, b->src.ctime_ns);
	assert_int_equal(a->src.rdev, b->src.rdev);
	assert_int_equal(a->work_ino, b->work_ino);
	assert_int_equal(a->work_ctime_ns, b->work_ctime_ns);
	assert_int_equal(a->xattrs, b->xattrs);
	assert_int_equal(a->src.content.known, b->src.content.known);
	if (!a->src.content.known)
		return;
	assert_memory_equal(a->src.content.hash, b->src.content.hash, HASH_SIZE);
	assert_int_equal(a->src.content.xattrs, b->src.content.xattrs);
}

static void what_is_written_is_read(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = new_file(d);
		cleanup_base struct base *b = NULL;
		cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
		struct base_entry expected;
		const struct base_entry *e;

		write_small(fd);
		assert_int_equal(base_open(fd, &b, NULL), 0);
		assert_int_equal(base_count(b), 4);
		expected = dir_entry("", 0);
		assert_entry(base_root(b), &expected);
		assert_int_equal(base_read(b, 0, &blk, NULL), 0);
		assert_int_equal(blk.n, 3);
		expected = file_entry("\n\377 name", 5);
		expected.src.nlink = 2;
		expected.work_ctime_ns = 4711; /* the links' table knows better */
		assert_int_equal(base_block_at(&blk, 0, &e), 0);
		assert_entry(e, &expected);
		expected = dir_entry("dir", 1);
		assert_int_equal(base_block_find(&blk, "dir", &e), 0);
		assert_entry(e, &expected);
		expected = file_entry("file", 6);
		assert_int_equal(base_block_find(&blk, "file", &e), 0);
		assert_entry(e, &expected);
		assert_int_equal(base_block_find(&blk, "fil", &e), 0);
		assert_null(e);
	}
}

/* Its entries are shorter: better refused than misread. */
static void a_record_of_an_older_version_is_refused(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = new_file(d);
		cleanup_error struct error err = ERROR_INIT;
		struct base *b = NULL;

		write_small(fd);
		assert_int_equal(pwrite(fd, "\1", 1, BASE_MAGIC_LEN), 1);
		assert_int_equal(base_open(fd, &b, &err), -ATOLL_E_UNSUPPORTED);
		assert_non_null(strstr(err.msg, "older version"));
		assert_null(b);
	}
}

#define MANY 20000u

/* A root with a directory in the middle of many files, one of them with several names. */
static void write_many(int dir_fd, int fd)
{
	cleanup_base_writer struct base_writer *w = NULL;
	cleanup_base_draft struct base_draft draft = { 0 };
	struct base_entry root = dir_entry("", 0), below = file_entry("below", 8);

	assert_int_equal(base_writer_new(fd, &w), 0);
	if (dir_fd != FD_NONE)
		base_writer_spill_to(w, dir_fd);
	assert_int_equal(base_writer_dir(w), 0);
	assert_int_equal(base_writer_dir(w), 1);
	base_draft_init(&draft, w, 0);
	for (size_t i = 0; i < MANY; i++) {
		char name[300];
		struct base_entry e;

		(void)snprintf(name, sizeof(name), "%08zu%*s", i, (int)(i % 200), "");
		e = i == MANY / 2 ? dir_entry(name, 1) : file_entry(name, i);
		e.src.nlink = i == 77 ? 2 : 1;
		assert_int_equal(base_draft_add(&draft, &e), 0);
		assert_int_equal(base_draft_add(&draft, &e), -EINVAL);
	}
	assert_int_equal(dir_fd != FD_NONE, draft.v.file_len > 0);
	assert_int_equal(base_draft_put(&draft, w), 0);
	assert_int_equal(base_writer_block(w, 1, &below, 1), 0);
	assert_int_equal(base_writer_link(w, 78, 4711), 0);
	assert_int_equal(base_writer_finish(w, &root), 0);
}

static void assert_one_of_many(const struct base_entry *e, size_t i)
{
	struct base_entry expected;
	char name[300];

	(void)snprintf(name, sizeof(name), "%08zu%*s", i, (int)(i % 200), "");
	expected = i == MANY / 2 ? dir_entry(name, 1) : file_entry(name, i);
	expected.src.nlink = i == 77 ? 2 : 1;
	if (i == 77)
		expected.work_ctime_ns = 4711;
	assert_entry(e, &expected);
}

/* Longer than what is kept in memory: the same bytes however it was written, and read piece by piece. */
static void a_long_block_is_read_in_pieces(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = new_file(d), spilled = new_file(d);
		cleanup_base struct base *b = NULL;
		cleanup_base_block struct base_block blk = BASE_BLOCK_INIT, found = BASE_BLOCK_INIT;
		const struct base_entry *e;
		struct base_entry below;
		struct stat st, other;

		write_many(FD_NONE, fd);
		write_many(d->fd, spilled);
		assert_true(fstat(fd, &st) == 0 && fstat(spilled, &other) == 0);
		assert_int_equal(st.st_size, other.st_size);
		for (off_t at = 0; at < st.st_size; at += 4096) {
			char x[4096], y[4096];
			ssize_t n = pread(fd, x, sizeof(x), at);

			assert_true(n > 0 && pread(spilled, y, sizeof(y), at) == n);
			assert_memory_equal(x, y, n);
		}
		assert_int_equal(base_open(fd, &b, NULL), 0);
		assert_int_equal(base_count(b), MANY + 1);
		assert_int_equal(base_read(b, 0, &blk, NULL), 0);
		assert_null(blk.v);
		assert_int_equal(blk.n, MANY);
		for (size_t i = 0; i < MANY; i++) {
			assert_int_equal(base_block_at(&blk, i, &e), 0);
			assert_one_of_many(e, i);
		}
		for (size_t i = 0; i < MANY; i++) {
			size_t k = i * 7919 % MANY;
			char name[300];

			(void)snprintf(name, sizeof(name), "%08zu%*s", k, (int)(k % 200), "");
			assert_int_equal(base_block_find(&blk, name, &e), 0);
			assert_non_null(e);
			assert_one_of_many(e, k);
			assert_int_equal(base_block_find(&blk, name + 1, &e), 0);
			assert_null(e);
		}
		assert_int_equal(base_lookup(b, "00010000/below", &below, &found, NULL), 1);
		assert_string_equal(below.name, "below");
	}
}

static void damage_in_a_long_block_is_found(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = new_file(d);
		struct stat st;

		write_many(FD_NONE, fd);
		assert_int_equal(fstat(fd, &st), 0);
		for (off_t at = 16; at < st.st_size; at += 99991) {
			cleanup_base struct base *b = NULL;
			cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
			unsigned char was, is;
			int r;

			assert_int_equal(pread(fd, &was, 1, at), 1);
			is = was ^ 0x10;
			assert_int_equal(pwrite(fd, &is, 1, at), 1);
			r = base_open(fd, &b, NULL);
			if (r == 0)
				r = base_read(b, 0, &blk, NULL);
			assert_int_equal(r, -ATOLL_E_DAMAGED);
			assert_int_equal(pwrite(fd, &was, 1, at), 1);
		}
	}
}

static void amend_one(struct spool *v, enum base_amend_kind kind, char *path, uint64_t n)
{
	const struct base_amendment a = { kind, path, file_entry("", n) };

	assert_int_equal(base_amendment_add(v, &a), 0);
}

/* Every third goes, every fifth is another, as many come; in no order. */
static void a_long_block_is_amended(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = new_file(d), amended = new_file(d);
		cleanup_base struct base *old = NULL, *b = NULL;
		cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
		struct spool v = { 0 };
		size_t n = 0;

		write_many(d->fd, fd);
		assert_int_equal(base_open(fd, &old, NULL), 0);
		spool_spill_to(&v, d->fd);
		for (size_t k = 0; k < MANY; k++) {
			size_t i = k * 7919 % MANY;
			char name[300], more[310];

			(void)snprintf(name, sizeof(name), "%08zu%*s", i, (int)(i % 200), "");
			(void)snprintf(more, sizeof(more), "%08zu+", i);
			if (i == MANY / 2)
				continue;
			if (i % 3 == 0)
				amend_one(&v, BASE_REMOVE, name, 0);
			else if (i % 5 == 0)
				amend_one(&v, BASE_SET, name, i + MANY);
			if (i % 7 == 0)
				amend_one(&v, BASE_SET, more, i);
		}
		assert_int_equal(base_amend(old, &v, d->fd, amended, NULL), 0);
		spool_done(&v);
		assert_int_equal(base_open(amended, &b, NULL), 0);
		assert_int_equal(base_read(b, 0, &blk, NULL), 0);
		for (size_t i = 0; i < MANY; i++) {
			bool is_dir = i == MANY / 2;
			const struct base_entry *e;
			char name[300];

			(void)snprintf(name, sizeof(name), "%08zu%*s", i, (int)(i % 200), "");
			assert_int_equal(base_block_find(&blk, name, &e), 0);
			assert_int_equal(e == NULL, !is_dir && i % 3 == 0);
			n += e != NULL;
			if (e && !is_dir)
				assert_int_equal(e->src.id.ino, i % 5 == 0 ? i + MANY : i);
			(void)snprintf(name, sizeof(name), "%08zu+", i);
			assert_int_equal(base_block_find(&blk, name, &e), 0);
			assert_int_equal(e != NULL, !is_dir && i % 7 == 0);
			n += e != NULL;
		}
		assert_int_equal(blk.n, n);
		base_block_done(&blk);
		assert_int_equal(base_read(b, 1, &blk, NULL), 0);
		assert_int_equal(blk.n, 1);
	}
}

static void lookup_goes_by_path(void **state)
{
	for_each_dir(d, state)
	{
		static const char *const absent[] = { "x", "dir/x", "file/x", "dir/below/x" };
		cleanup_close int fd = new_file(d);
		cleanup_base struct base *b = NULL;
		cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
		struct base_entry e;

		write_small(fd);
		assert_int_equal(base_open(fd, &b, NULL), 0);
		assert_int_equal(base_lookup(b, "", &e, &blk, NULL), 1);
		assert_string_equal(e.name, "");
		assert_int_equal(base_lookup(b, "dir/below", &e, &blk, NULL), 1);
		assert_string_equal(e.name, "below");
		assert_int_equal(e.flags, BASE_UNREADABLE);
		base_block_done(&blk);
		for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
			assert_int_equal(base_lookup(b, absent[i], &e, &blk, NULL), 0);
	}
}

static void wrong_blocks_are_refused(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = new_file(d);
		cleanup_base_writer struct base_writer *w = NULL;
		struct base_entry v[2] = { file_entry("b", 1), file_entry("a", 2) };
		struct base_entry self = dir_entry("self", 0), typed = dir_entry("x", 1);

		assert_int_equal(base_writer_new(fd, &w), 0);
		assert_int_equal(base_writer_block(w, 0, v, 1), -EINVAL); /* no such number */
		assert_int_equal(base_writer_dir(w), 0);
		assert_int_equal(base_writer_block(w, 0, v, 2), -EINVAL);
		v[1].name = "b";
		assert_int_equal(base_writer_block(w, 0, v, 2), -EINVAL);
		assert_int_equal(base_writer_block(w, 0, &self, 1), -EINVAL);
		typed.src.mode = S_IFREG | 0644;
		assert_int_equal(base_writer_block(w, 0, &typed, 1), -EINVAL);
		assert_int_equal(base_writer_finish(w, &v[0]), -EINVAL);
	}
}

/* Opens a record and reads all of it. 0, or the first code. */
static int read_whole(int fd)
{
	cleanup_base struct base *b = NULL;
	cleanup_error struct error err = ERROR_INIT;
	int r;

	r = base_open(fd, &b, &err);
	for (uint32_t i = 0; i < 2 && r == 0; i++) {
		cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;

		r = base_read(b, i, &blk, &err);
	}
	assert_int_equal(err.code, r);
	return r;
}

static void a_record_cut_short_does_not_open(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = new_file(d);
		off_t size;

		write_small(fd);
		assert_int_equal(read_whole(fd), 0);
		size = lseek(fd, 0, SEEK_END);
		while (size > 0) {
			assert_int_equal(ftruncate(fd, --size), 0);
			assert_int_equal(read_whole(fd), -ATOLL_E_DAMAGED);
		}
	}
}

static void every_flipped_byte_is_found(void **state)
{
	for_each_dir(d, state)
	{
		static const unsigned char flips[] = { 0x01, 0x80, 0xff };
		cleanup_close int fd = new_file(d);
		off_t size;

		write_small(fd);
		size = lseek(fd, 0, SEEK_END);
		for (off_t at = 0; at < size; at++) {
			unsigned char byte;

			assert_int_equal(pread(fd, &byte, 1, at), 1);
			for (size_t i = 0; i < sizeof(flips); i++) {
				unsigned char bad = byte ^ flips[i];
				int r;

				assert_int_equal(pwrite(fd, &bad, 1, at), 1);
				r = read_whole(fd);
				assert_true(r == -ATOLL_E_DAMAGED || r == -ATOLL_E_NEWER);
			}
			assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		}
		assert_int_equal(read_whole(fd), 0);
	}
}

static void an_unfinished_record_does_not_open(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = new_file(d);
		cleanup_base_writer struct base_writer *w = NULL;
		struct base_entry e = file_entry("a", 1);

		assert_int_equal(read_whole(fd), -ATOLL_E_DAMAGED);
		assert_int_equal(base_writer_new(fd, &w), 0);
		assert_int_equal(base_writer_dir(w), 0);
		assert_int_equal(base_writer_block(w, 0, &e, 1), 0);
		assert_int_equal(read_whole(fd), -ATOLL_E_DAMAGED);
	}
}

static void a_directory_without_block_is_damage(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = new_file(d);
		cleanup_base_writer struct base_writer *w = NULL;
		cleanup_base struct base *b = NULL;
		cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;
		struct base_entry root = dir_entry("", 0);

		assert_int_equal(base_writer_new(fd, &w), 0);
		assert_int_equal(base_writer_dir(w), 0);
		assert_int_equal(base_writer_finish(w, &root), 0);
		assert_int_equal(base_open(fd, &b, NULL), 0);
		assert_int_equal(base_read(b, 0, &blk, NULL), -ATOLL_E_DAMAGED);
		assert_int_equal(base_read(b, 1, &blk, NULL), -ATOLL_E_DAMAGED);
		assert_int_equal(base_read(b, BASE_NO_DIR, &blk, NULL), -ATOLL_E_DAMAGED);
	}
}

#define THREADS    4
#define DIRS_EACH  100
#define FILES_EACH 30

static void *write_blocks(void *arg)
{
	struct base_writer *w = arg;

	for (int i = 0; i < DIRS_EACH; i++) {
		struct base_entry v[FILES_EACH];
		char names[FILES_EACH][16];
		uint32_t dir = base_writer_dir(w);

		for (int k = 0; k < FILES_EACH; k++) {
			snprintf(names[k], sizeof(names[k]), "%03d", k);
			v[k] = file_entry(names[k], dir + 1);
		}
		if (base_writer_block(w, dir, v, FILES_EACH) < 0)
			return w;
	}
	return NULL;
}

static void threads_write_one_record(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int fd = new_file(d);
		cleanup_base_writer struct base_writer *w = NULL;
		cleanup_base struct base *b = NULL;
		struct base_entry root = dir_entry("", 0);
		pthread_t threads[THREADS];

		assert_int_equal(base_writer_new(fd, &w), 0);
		for (int i = 0; i < THREADS; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, write_blocks, w), 0);
		for (int i = 0; i < THREADS; i++) {
			void *failed;

			assert_int_equal(pthread_join(threads[i], &failed), 0);
			assert_null(failed);
		}
		assert_int_equal(base_writer_finish(w, &root), 0);
		assert_int_equal(base_open(fd, &b, NULL), 0);
		assert_int_equal(base_count(b), THREADS * DIRS_EACH * FILES_EACH);
		for (uint32_t i = 0; i < THREADS * DIRS_EACH; i++) {
			cleanup_base_block struct base_block blk = BASE_BLOCK_INIT;

			assert_int_equal(base_read(b, i, &blk, NULL), 0);
			assert_int_equal(blk.n, FILES_EACH);
			assert_int_equal(blk.v[FILES_EACH - 1].src.id.ino, i + 1);
		}
	}
}

static void paths_are_ordered_by_component(void **state)
{
	static const char *const sorted[] = {
		"", "a", "a/b", "a/b/c", "a/b\001", "a\001", "a b", "a.", "a0", "ab", "\303\244",
	};
	enum { N = sizeof(sorted) / sizeof(sorted[0]) };

	(void)state;
	for (int i = 0; i < N; i++) {
		for (int k = 0; k < N; k++) {
			int order = path_compare(sorted[i], sorted[k]);

			assert_true(i < k ? order < 0 : i > k ? order > 0 : order == 0);
		}
	}
	assert_true(path_below("a/b", "a") && path_below("a", "a") && path_below("a", ""));
	assert_false(path_below("ab", "a") || path_below("a", "a/b") || path_below("b", "a"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_written_is_read, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(a_record_of_an_older_version_is_refused,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(a_long_block_is_read_in_pieces, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(damage_in_a_long_block_is_found, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(a_long_block_is_amended, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(lookup_goes_by_path, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(wrong_blocks_are_refused, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(a_record_cut_short_does_not_open, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(every_flipped_byte_is_found, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(an_unfinished_record_does_not_open, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(a_directory_without_block_is_damage, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(threads_write_one_record, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test(paths_are_ordered_by_component),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

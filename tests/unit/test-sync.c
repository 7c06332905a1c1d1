/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of a stranger: bytes put together by hand, which no writer of ours would write. Each is refused,
 * and nothing beside the root is touched.
 */
#include "sync/apply.h"
#include "sync/frame.h"
#include "sync/path.h"
#include "sync/pulled.h"
#include "sync/scan.h"
#include "sync/send.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/strbuf.h"

#include "unit/fs-fixture.h"

#include <dirent.h>
#include <sys/mman.h>
#include <zstd.h>

#define MAGIC     "ATSYNC\0\1"
#define MAGIC_LEN 8

/* ---- streams by hand ---- */

struct stream {
	struct strbuf records;
	unsigned count;
};

static void put_byte(struct stream *s, unsigned b)
{
	strbuf_putc(&s->records, (char)b);
}

static void put_number(struct stream *s, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		put_byte(s, (unsigned)(v & 0x7f) | 0x80);
	put_byte(s, (unsigned)v);
}

static void put_bytes(struct stream *s, const void *data, size_t len)
{
	put_number(s, len);
	strbuf_add(&s->records, data, len);
}

static void begin_record(struct stream *s, enum sync_type type)
{
	put_byte(s, type);
	s->count++;
}

static void put_path_record(struct stream *s, enum sync_type type, const char *path, size_t len)
{
	begin_record(s, type);
	put_bytes(s, path, len);
	if (type == SYNC_MOVE || type == SYNC_LINK)
		put_bytes(s, "to", 2);
	if (type == SYNC_DIR || type == SYNC_FILE || type == SYNC_META)
		put_number(s, 0755);
	if (type != SYNC_GONE && type != SYNC_MOVE)
		put_number(s, 2);
}

static void put_content(struct stream *s, const char *text, uint64_t said)
{
	begin_record(s, SYNC_DATA);
	put_bytes(s, text, strlen(text));
	begin_record(s, SYNC_DONE);
	put_number(s, said);
}

static void put_file(struct stream *s, const char *path, const char *text)
{
	put_path_record(s, SYNC_FILE, path, strlen(path));
	put_content(s, text, strlen(text));
}

static void put_end(struct stream *s)
{
	cleanup_hash struct hash *h = hash_new();
	unsigned char sum[HASH_SIZE];

	put_byte(s, SYNC_END);
	put_number(s, s->count);
	hash_add(h, s->records.buf, s->records.len);
	hash_bytes(h, sum);
	strbuf_add(&s->records, sum, sizeof(sum));
}

/* As it goes over the wire. */
static void pack(const struct stream *s, struct strbuf *ret)
{
	size_t room = ZSTD_compressBound(s->records.len);
	cleanup_free char *packed = malloc(room);
	size_t n = ZSTD_compress(packed, room, strbuf_str(&s->records), s->records.len, 1);

	assert_false(ZSTD_isError(n));
	strbuf_add(ret, MAGIC, MAGIC_LEN);
	strbuf_add(ret, packed, n);
}

static int apply_bytes(int root_fd, const struct strbuf *bytes)
{
	cleanup_close int fd = memfd_create("stream", MFD_CLOEXEC);
	cleanup_error struct error err = ERROR_INIT;
	int r;

	assert_int_equal(fs_write_all(fd, bytes->buf, bytes->len), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	r = sync_apply(root_fd, fd, &err);
	assert_int_equal(r, err.code);
	return r;
}

static int apply_stream(int root_fd, struct stream *s)
{
	cleanup_strbuf struct strbuf bytes = STRBUF_INIT;
	int r;

	put_end(s);
	pack(s, &bytes);
	r = apply_bytes(root_fd, &bytes);
	strbuf_done(&s->records);
	*s = (struct stream){ 0 };
	return r;
}

/* ---- a root, and what is beside it ---- */

static int make_root(int dir_fd)
{
	int fd;

	assert_int_equal(mkdirat(dir_fd, "root", 0755), 0);
	assert_int_equal(mkdirat(dir_fd, "beside", 0755), 0);
	write_file(dir_fd, "beside/file", "mine");
	fd = openat(dir_fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(symlinkat("../beside", fd, "link"), 0);
	assert_int_equal(mkdirat(fd, "full", 0755), 0);
	write_file(fd, "full/file", "x");
	write_file(fd, "plain", "x");
	return fd;
}

static void nothing_beside(int dir_fd)
{
	cleanup_close int fd = openat(dir_fd, "beside/file", O_RDONLY | O_CLOEXEC);
	char text[16] = "";
	struct stat st;

	assert_true(fd >= 0);
	assert_int_equal(read(fd, text, sizeof(text)), 4);
	assert_string_equal(text, "mine");
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_int_equal(unlinkat(dir_fd, "beside/file", 0), 0);
	assert_int_equal(unlinkat(dir_fd, "beside", AT_REMOVEDIR), 0);
	assert_int_equal(faccessat(dir_fd, "escaped", F_OK, AT_SYMLINK_NOFOLLOW), -1);
}

static const enum sync_type with_path[] = { SYNC_DIR,  SYNC_FILE, SYNC_LINK,
	                                    SYNC_GONE, SYNC_MOVE, SYNC_META };
#define N_TYPES (sizeof(with_path) / sizeof(with_path[0]))

static void sync_refuses_paths_that_are_none(void **state)
{
	static const struct {
		const char *path;
		size_t len;
	} bad[] = { { "", 0 },     { "/", 1 },           { "/etc", 4 },
		    { "..", 2 },   { "../escaped", 10 }, { "a/../../escaped", 15 },
		    { "a//b", 4 }, { "a/", 2 },          { ".", 1 },
		    { "./a", 3 },  { "a\0b", 3 },        { "full/..", 7 } };

	for_each_dir(d, state)
	{
		cleanup_close int root_fd = make_root(d->fd);

		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
			for (size_t t = 0; t < N_TYPES; t++) {
				struct stream s = { 0 };

				put_path_record(&s, with_path[t], bad[i].path, bad[i].len);
				if (with_path[t] == SYNC_FILE)
					put_content(&s, "x", 1);
				assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
			}
		nothing_beside(d->fd);
	}
}

static void sync_follows_no_links(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int root_fd = make_root(d->fd);

		for (size_t t = 0; t < N_TYPES; t++) {
			struct stream s = { 0 };

			put_path_record(&s, with_path[t], "link/file", 9);
			if (with_path[t] == SYNC_FILE)
				put_content(&s, "x", 1);
			assert_int_equal(apply_stream(root_fd, &s), -ELOOP);
		}
		/* Nor one that the stream itself has made. */
		struct stream s = { 0 };

		begin_record(&s, SYNC_LINK);
		put_bytes(&s, "own", 3);
		put_bytes(&s, "../beside", 9);
		put_number(&s, 2);
		put_file(&s, "own/file", "x");
		assert_int_equal(apply_stream(root_fd, &s), -ELOOP);
		/* The mode of a link's target is not the link's. */
		put_path_record(&s, SYNC_META, "link", 4);
		assert_int_equal(apply_stream(root_fd, &s), -ATOLL_E_CONFLICT);
		begin_record(&s, SYNC_MOVE);
		put_bytes(&s, "plain", 5);
		put_bytes(&s, "link/file", 9);
		assert_int_equal(apply_stream(root_fd, &s), -ELOOP);
		nothing_beside(d->fd);
	}
}

static void sync_keeps_directories_that_are_not_empty(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_close int root_fd = make_root(d->fd);
		struct stream s = { 0 };

		put_file(&s, "full", "x");
		assert_int_equal(apply_stream(root_fd, &s), -ATOLL_E_CONFLICT);
		put_path_record(&s, SYNC_LINK, "full", 4);
		assert_int_equal(apply_stream(root_fd, &s), -ATOLL_E_CONFLICT);
		put_path_record(&s, SYNC_MOVE, "full", 4);
		assert_int_equal(apply_stream(root_fd, &s), -ATOLL_E_CONFLICT);
		put_path_record(&s, SYNC_GONE, "full", 4);
		assert_int_equal(apply_stream(root_fd, &s), 0);
		assert_int_equal(faccessat(root_fd, "full/file", F_OK, 0), 0);
		/* Emptied it gives way, and so does a file to a directory. */
		put_path_record(&s, SYNC_GONE, "full/file", 9);
		put_file(&s, "full", "x");
		put_path_record(&s, SYNC_DIR, "plain", 5);
		assert_int_equal(apply_stream(root_fd, &s), 0);
		assert_int_equal(faccessat(root_fd, "full", F_OK, 0), 0);
		assert_int_equal(faccessat(root_fd, "plain/.", F_OK, 0), 0);
		nothing_beside(d->fd);
	}
}

/* Names that are left in the root after a refusal. */
static unsigned count_names(int root_fd)
{
	cleanup_close int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char buf[4096];
	ssize_t n = getdents64(fd, buf, sizeof(buf));
	unsigned count = 0;

	for (ssize_t at = 0; at < n; count++)
		at += ((const struct dirent64 *)(const void *)(buf + at))->d_reclen;
	return count - 2;
}

static void sync_refuses_lengths_that_lie(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_close int root_fd = make_root(d->fd);
	unsigned names = count_names(root_fd);
	struct stream s = { 0 };

	put_path_record(&s, SYNC_FILE, "f", 1);
	put_content(&s, "x", 2);
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	/* A path of more bytes than there are, or than there can be. */
	begin_record(&s, SYNC_GONE);
	put_number(&s, 100);
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	begin_record(&s, SYNC_GONE);
	put_number(&s, UINT64_MAX);
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	/* A chunk over its limit, a hole beyond all files, an empty one. */
	put_path_record(&s, SYNC_FILE, "f", 1);
	begin_record(&s, SYNC_DATA);
	put_number(&s, SYNC_CHUNK + 1);
	for (unsigned i = 0; i <= SYNC_CHUNK; i++)
		put_byte(&s, 0);
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	put_path_record(&s, SYNC_FILE, "f", 1);
	begin_record(&s, SYNC_HOLE);
	put_number(&s, UINT64_MAX);
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	put_path_record(&s, SYNC_FILE, "f", 1);
	begin_record(&s, SYNC_HOLE);
	put_number(&s, 0);
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	/* A number of more than 64 bits; a count that is wrong. */
	begin_record(&s, SYNC_HOLE);
	for (int i = 0; i < 10; i++)
		put_byte(&s, 0xff);
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	s.count = 1;
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	assert_int_equal(count_names(root_fd), names);
	nothing_beside(d->fd);
}

static void sync_refuses_records_out_of_place(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_close int root_fd = make_root(d->fd);
	unsigned names = count_names(root_fd);
	struct stream s = { 0 };

	begin_record(&s, SYNC_DATA);
	put_bytes(&s, "x", 1);
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	put_path_record(&s, SYNC_FILE, "f", 1);
	put_path_record(&s, SYNC_GONE, "plain", 5);
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	put_path_record(&s, SYNC_FILE, "f", 1);
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	begin_record(&s, (enum sync_type)200);
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	put_end(&s);
	put_path_record(&s, SYNC_GONE, "plain", 5);
	assert_int_equal(apply_stream(root_fd, &s), -EPROTO);
	assert_int_equal(count_names(root_fd), names);
	nothing_beside(d->fd);
}

static void sync_refuses_what_is_cut_or_goes_on(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_close int root_fd = make_root(d->fd);
	cleanup_strbuf struct strbuf whole = STRBUF_INIT;
	struct stream s = { 0 };

	put_file(&s, "full/new", "some text");
	put_path_record(&s, SYNC_DIR, "newdir", 6);
	put_end(&s);
	pack(&s, &whole);
	strbuf_done(&s.records);
	for (size_t n = 0; n < whole.len; n++) {
		const struct strbuf part = { .buf = whole.buf, .len = n };

		assert_int_equal(apply_bytes(root_fd, &part), -EPROTO);
	}
	/* Any bit that is wrong is noticed: by zstd, by the reader, or by the sum. */
	for (size_t i = 0; i < whole.len * 8; i++) {
		whole.buf[i / 8] = (char)(whole.buf[i / 8] ^ 1 << i % 8);
		if (i / 8 !=
		    MAGIC_LEN + 4) /* of a frame's head, where not all bits mean something */
			assert_int_not_equal(apply_bytes(root_fd, &whole), 0);
		whole.buf[i / 8] = (char)(whole.buf[i / 8] ^ 1 << i % 8);
	}
	assert_int_equal(apply_bytes(root_fd, &whole), 0);
	strbuf_putc(&whole, 'x');
	assert_int_equal(apply_bytes(root_fd, &whole), -EPROTO);
	nothing_beside(d->fd);
}

static void sync_bounds_what_zstd_takes(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_close int root_fd = make_root(d->fd);
	cleanup_strbuf struct strbuf bytes = STRBUF_INIT;
	ZSTD_CCtx *zstd = ZSTD_createCCtx();
	char out[512];
	ZSTD_outBuffer to = { .dst = out, .size = sizeof(out) };
	ZSTD_inBuffer from = { .src = "x", .size = 1 };

	/* A frame that wants a window of a gigabyte. */
	(void)ZSTD_CCtx_setParameter(zstd, ZSTD_c_windowLog, 30);
	assert_int_equal(ZSTD_compressStream2(zstd, &to, &from, ZSTD_e_end), 0);
	ZSTD_freeCCtx(zstd);
	strbuf_add(&bytes, MAGIC, MAGIC_LEN);
	strbuf_add(&bytes, out, to.pos);
	assert_int_equal(apply_bytes(root_fd, &bytes), -EPROTO);
	nothing_beside(d->fd);
}

/* ---- scans ---- */

static int drop(void *ctx, const void *data, size_t len)
{
	(void)ctx;
	(void)data;
	(void)len;
	return 0;
}

/* The same size and the same time of change, put there by hand. */
static void rewrite(int dir_fd, const char *text)
{
	const struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };

	write_file(dir_fd, "file", text);
	assert_int_equal(utimensat(dir_fd, "file", times, 0), 0);
}

static struct sync_manifest *scan_and_send(int root_fd, const struct sync_manifest *old,
                                           uint64_t *ret_changes)
{
	cleanup_sync_changes struct sync_changes *c = NULL;
	struct sync_manifest *now = NULL;

	assert_int_equal(sync_scan(root_fd, old, &c, &now, NULL), 0);
	*ret_changes = sync_changes_counts(c)->changes;
	assert_int_equal(sync_send(root_fd, c, now, drop, NULL, NULL), 0);
	return now;
}

/* An edit right behind a scan, within the same tick of the clock that files have their times from. */
static void sync_sees_edits_of_the_same_tick(void **state)
{
	unsigned unknown = 0;

	for_each_dir(d, state)
	{
		for (int i = 0; i < 100; i++) {
			cleanup_sync_manifest struct sync_manifest *first = NULL, *second = NULL;
			uint64_t changes;

			rewrite(d->fd, "1234");
			first = scan_and_send(d->fd, NULL, &changes);
			rewrite(d->fd, "5678");
			assert_int_equal(changes, 1);
			unknown += first->v[0].flags & SYNC_ENTRY_UNKNOWN;
			second = scan_and_send(d->fd, first, &changes);
			assert_int_equal(changes, 1);
		}
	}
	assert_true(unknown > 0);
}

/* What came from the other side is read, whatever it looks like. */
static void sync_reads_what_is_not_known(void **state)
{
	struct fixture_dir *d = ((struct fixture *)*state)->dir;
	cleanup_sync_manifest struct sync_manifest *old = NULL, *now = NULL;
	uint64_t changes;

	rewrite(d->fd, "1234");
	usleep(50000);
	old = scan_and_send(d->fd, NULL, &changes);
	assert_int_equal(old->v[0].flags, 0);
	old->v[0].hash[0] ^= 1;
	now = scan_and_send(d->fd, old, &changes);
	assert_int_equal(changes, 0); /* for it looks the same */
	old->v[0].flags = SYNC_ENTRY_UNKNOWN;
	sync_manifest_free(now);
	now = scan_and_send(d->fd, old, &changes);
	assert_int_equal(changes, 1);
}

/* ---- paths ---- */

static void sync_orders_paths_as_a_walk_does(void **state)
{
	static const char *const ordered[] = { "\001", "a",   "a/\001", "a/b", "a/b/c",
		                               "a/b.", "a-b", "a.b",    "a0",  "b" };

	(void)state;
	for (size_t i = 0; i < sizeof(ordered) / sizeof(ordered[0]); i++)
		for (size_t k = 0; k < sizeof(ordered) / sizeof(ordered[0]); k++) {
			int order = sync_path_compare(ordered[i], ordered[k]);

			assert_int_equal(order < 0, i < k);
			assert_int_equal(order > 0, i > k);
		}
	assert_true(sync_path_is_below("a/b", "a"));
	assert_false(sync_path_is_below("ab", "a"));
	assert_false(sync_path_is_below("a", "a"));
	assert_true(sync_path_is_below("a", ""));
}

/* ---- frames ---- */

static void sync_frames_are_for_their_protocol(void **state)
{
	static const struct {
		enum frame_type type;
		enum frame_side side;
		bool good;
	} rows[] = { { FRAME_STDIN, FRAME_OF_CLIENT, true },
		     { FRAME_STDIN, FRAME_OF_SYNC_CLIENT, true },
		     { FRAME_CLOSE, FRAME_OF_CLIENT, false },
		     { FRAME_CLOSE, FRAME_OF_SYNC_CLIENT, true },
		     { FRAME_CLOSE, FRAME_OF_SYNC_SERVER, false },
		     { FRAME_PONG, FRAME_OF_SERVER, false },
		     { FRAME_PONG, FRAME_OF_SYNC_SERVER, true } };
	static struct frame_reader reader;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		unsigned char head[FRAME_HEAD], *to;
		struct frame f;

		frame_head(head, rows[i].type, 0);
		frame_reader_init(&reader, rows[i].side);
		assert_true(frame_reader_room(&reader, &to) >= FRAME_HEAD);
		memcpy(to, head, FRAME_HEAD);
		frame_reader_added(&reader, FRAME_HEAD);
		assert_int_equal(frame_next(&reader, &f), rows[i].good ? 1 : -EPROTO);
	}
}

#define row(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(sync_refuses_paths_that_are_none),
		row(sync_follows_no_links),
		row(sync_keeps_directories_that_are_not_empty),
		row(sync_refuses_lengths_that_lie),
		row(sync_refuses_records_out_of_place),
		row(sync_refuses_what_is_cut_or_goes_on),
		row(sync_bounds_what_zstd_takes),
		row(sync_sees_edits_of_the_same_tick),
		row(sync_reads_what_is_not_known),
		cmocka_unit_test(sync_orders_paths_as_a_walk_does),
		cmocka_unit_test(sync_frames_are_for_their_protocol),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

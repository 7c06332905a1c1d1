/* SPDX-License-Identifier: Apache-2.0 */
/* The request to atoll-helper: what goes in comes out; anything else is refused. */
#include "exec/request.h"

#include "util/cleanup.h"
#include "util/strbuf.h"

#include <atoll.h>
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

static int file_with(const void *data, size_t len)
{
	int fd = memfd_create("request", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), (ssize_t)len);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static int receive(const void *data, size_t len)
{
	cleanup_request struct request *r = NULL;
	cleanup_close int fd = file_with(data, len);
	int ret = request_receive(fd, &r);

	assert_true(ret == 0 || !r);
	return ret;
}

static void put(struct strbuf *sb, uint32_t n)
{
	uint32_t le = htole32(n);

	strbuf_add(sb, &le, sizeof(le));
}

/* A request of one field, whose numbers may lie. */
static int receive_field(uint32_t field, uint32_t said, const char *bytes, size_t len)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	put(&sb, REQUEST_MAGIC);
	put(&sb, (uint32_t)(8 + len));
	put(&sb, field);
	put(&sb, said);
	strbuf_add(&sb, bytes, len);
	return receive(sb.buf, sb.len);
}

/* The bytes of a good request. Caller frees. */
static char *good_request(size_t *ret_len)
{
	cleanup_request struct request *r = request_new();
	cleanup_close int fd = file_with("", 0);
	off_t len;
	char *data;

	assert_int_equal(request_add(r, REQUEST_ARG, "printf"), 0);
	assert_int_equal(request_add(r, REQUEST_ENV, "A=1"), 0);
	assert_int_equal(request_add(r, REQUEST_ARG, "\xff\n%s"), 0);
	assert_int_equal(request_add(r, REQUEST_ARG, ""), 0);
	assert_int_equal(request_add(r, REQUEST_CWD, "/tmp"), 0);
	assert_int_equal(request_send(r, fd), 0);
	len = lseek(fd, 0, SEEK_END);
	assert_true(len > 0);
	data = malloc((size_t)len);
	assert_non_null(data);
	assert_int_equal(pread(fd, data, (size_t)len, 0), len);
	*ret_len = (size_t)len;
	return data;
}

static void request_round_trip(void **state)
{
	cleanup_request struct request *r = NULL;
	cleanup_free char *data = NULL;
	cleanup_close int fd = FD_NONE;
	size_t len;

	(void)state;
	data = good_request(&len);
	fd = file_with(data, len);
	assert_int_equal(request_receive(fd, &r), 0);
	assert_int_equal(request_count(r, REQUEST_ARG), 3);
	assert_string_equal(request_get(r, REQUEST_ARG, 0), "printf");
	assert_string_equal(request_get(r, REQUEST_ARG, 1), "\xff\n%s");
	assert_string_equal(request_get(r, REQUEST_ARG, 2), "");
	assert_null(request_get(r, REQUEST_ARG, 3));
	assert_string_equal(request_get(r, REQUEST_ENV, 0), "A=1");
	assert_string_equal(request_get(r, REQUEST_CWD, 0), "/tmp");
	assert_null(request_get(r, REQUEST_HAS_LOCK, 0));
}

static void request_cut_short(void **state)
{
	cleanup_free char *data = NULL;
	size_t len;

	(void)state;
	data = good_request(&len);
	assert_int_equal(receive(data, len), 0);
	for (size_t cut = 0; cut < len; cut++)
		assert_int_equal(receive(data, cut), -EPROTO);
}

static void request_with_more_behind(void **state)
{
	cleanup_free char *data = NULL;
	char *longer;
	size_t len;

	(void)state;
	data = good_request(&len);
	longer = calloc(1, len + 1);
	assert_non_null(longer);
	memcpy(longer, data, len);
	assert_int_equal(receive(longer, len + 1), -EPROTO);
	free(longer);
}

static void request_garbage(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	unsigned char noise[512];
	uint32_t seed = 42;

	(void)state;
	assert_int_equal(receive(text, sizeof(text)), -EPROTO);
	for (unsigned round = 0; round < 2000; round++) {
		uint32_t head[2] = { htole32(REQUEST_MAGIC), htole32(sizeof(noise) - 8) };

		for (size_t i = 0; i < sizeof(noise); i++) {
			seed = seed * 1664525u + 1013904223u;
			noise[i] = (unsigned char)(seed >> 24);
		}
		memcpy(noise, head, sizeof(head));
		assert_true(receive(noise, sizeof(noise)) < 0);
	}
}

static void request_fields_checked(void **state)
{
	(void)state;
	assert_int_equal(receive_field(REQUEST_ARG, 2, "ls", 2), 0);
	assert_int_equal(receive_field(0, 2, "ls", 2), -EPROTO);
	assert_int_equal(receive_field(REQUEST_FIELD_END_, 2, "ls", 2), -EPROTO);
	assert_int_equal(receive_field(UINT32_MAX, 2, "ls", 2), -EPROTO);
	assert_int_equal(receive_field(REQUEST_ARG, 3, "ls", 2), -EPROTO);
	assert_int_equal(receive_field(REQUEST_ARG, UINT32_MAX, "ls", 2), -EPROTO);
	assert_int_equal(receive_field(REQUEST_ARG, 2, "\0s", 2), -EPROTO);
}

static void request_too_big(void **state)
{
	cleanup_request struct request *r = request_new();
	char *big = malloc(REQUEST_MAX + 2);

	(void)state;
	assert_non_null(big);
	memset(big, 'x', REQUEST_MAX + 1);
	big[REQUEST_MAX + 1] = '\0';
	assert_int_equal(request_add(r, REQUEST_ARG, big), -ATOLL_E_TOO_BIG);
	assert_int_equal(receive(big, REQUEST_MAX + 1), -ATOLL_E_TOO_BIG);

	/* Many small ones are as much as a big one. */
	big[REQUEST_MAX / 4] = '\0';
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(request_add(r, REQUEST_ARG, big), 0);
	assert_int_equal(request_add(r, REQUEST_ARG, big), -ATOLL_E_TOO_BIG);
	assert_int_equal(request_count(r, REQUEST_ARG), 3);
	free(big);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_round_trip),       cmocka_unit_test(request_cut_short),
		cmocka_unit_test(request_with_more_behind), cmocka_unit_test(request_garbage),
		cmocka_unit_test(request_fields_checked),   cmocka_unit_test(request_too_big),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

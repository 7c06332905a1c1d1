/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a manifest back. */
#include "strategy/manifest.h"

#include "util/cleanup.h"
#include "util/limits.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(too_little_memory_is_no_damage, fixture_setup,
		                                fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

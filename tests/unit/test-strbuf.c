/* SPDX-License-Identifier: Apache-2.0 */
/* The growing byte buffer. */
#include "util/strbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unit/expect-abort.h"

static void empty_is_a_string(void **state)
{
	struct strbuf sb = STRBUF_INIT;
	char *s;

	(void)state;
	assert_string_equal(strbuf_str(&sb), "");
	strbuf_truncate(&sb, 0);
	s = strbuf_take(&sb);
	assert_string_equal(s, "");
	free(s);
	strbuf_add(&sb, NULL, 0);
	assert_string_equal(strbuf_str(&sb), "");
	strbuf_done(&sb);
}

static void parts_are_joined(void **state)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	(void)state;
	strbuf_puts(&sb, "ab");
	strbuf_putc(&sb, 'c');
	strbuf_printf(&sb, "-%d-%s", 42, "x");
	strbuf_add(&sb, "\0y", 2);
	assert_int_equal(sb.len, 10);
	assert_memory_equal(sb.buf, "abc-42-x\0y", 11);
	strbuf_truncate(&sb, 3);
	assert_string_equal(strbuf_str(&sb), "abc");
}

static void grows_far(void **state)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	(void)state;
	for (int i = 0; i < 100000; i++)
		strbuf_printf(&sb, "%05d", i);
	assert_int_equal(sb.len, 500000);
	assert_int_equal(strlen(sb.buf), 500000);
	assert_memory_equal(sb.buf + 5 * 77777, "77777", 5);
}

/* A result that fills the room exactly must still get its NUL. */
static void printf_at_every_length(void **state)
{
	char want[65] = "";

	(void)state;
	for (int len = 0; len < 64; len++) {
		cleanup_strbuf struct strbuf sb = STRBUF_INIT;

		strbuf_printf(&sb, "%s", want);
		assert_int_equal(sb.len, len);
		assert_string_equal(strbuf_str(&sb), want);
		want[len] = 'x';
	}
}

static void take_hands_over(void **state)
{
	struct strbuf sb = STRBUF_INIT;
	char *s;

	(void)state;
	strbuf_puts(&sb, "mine");
	s = strbuf_take(&sb);
	assert_null(sb.buf);
	assert_int_equal(sb.len, 0);
	strbuf_puts(&sb, "other");
	assert_string_equal(s, "mine");
	free(s);
	errno = EXDEV;
	strbuf_done(&sb);
	assert_int_equal(errno, EXDEV);
}

static void misuse_truncate(void *arg)
{
	struct strbuf sb = STRBUF_INIT;

	(void)arg;
	strbuf_puts(&sb, "abc");
	strbuf_truncate(&sb, 4);
}

static void truncating_upwards_aborts(void **state)
{
	(void)state;
	expect_abort(misuse_truncate, NULL);
}

static void numbers_have_commas(void **state)
{
	static const struct {
		uint64_t n;
		const char *said;
	} rows[] = { { 0, "0" },        { 999, "999" },           { 1000, "1,000" },
		     { 2041, "2,041" }, { 1234567, "1,234,567" }, { 100000, "100,000" } };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cleanup_strbuf struct strbuf sb = STRBUF_INIT;

		strbuf_number(&sb, rows[i].n);
		assert_string_equal(strbuf_str(&sb), rows[i].said);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_have_commas),       cmocka_unit_test(empty_is_a_string),
		cmocka_unit_test(parts_are_joined),          cmocka_unit_test(grows_far),
		cmocka_unit_test(printf_at_every_length),    cmocka_unit_test(take_hands_over),
		cmocka_unit_test(truncating_upwards_aborts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

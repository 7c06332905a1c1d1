/* SPDX-License-Identifier: Apache-2.0 */
/* Reading JSON from somebody who is not trusted. */
#include "util/json-read.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void json_read_good_values(void **state)
{
	static const char *const good[] = {
		"{}",
		"[]",
		" 1 ",
		"-0",
		"0.5e+10",
		"\"\"",
		"null",
		"true",
		"[1,[2]]",
		"{\"a\":{\"b\":[]}}",
		"\"\\u00e4\\n\\ud83d\\ude00\"",
		"\"\xc3\xa4\"",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(json_check(good[i], strlen(good[i])), 0);
}

static void json_read_bad_values(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		"{",
		"}",
		"[1,]",
		"{\"a\"}",
		"{\"a\":}",
		"{a:1}",
		"01",
		"1.",
		".5",
		"+1",
		"1e",
		"--1",
		"\"",
		"\"\\x\"",
		"\"\n\"",
		"\"\\u12\"",
		"tru",
		"nul",
		"[1 2]",
		"1 1",
		"{} {}",
		"'a'",
		"\"\xff\"",
		"NaN",
		"[[]",
		"{\"a\":1,}",
		"\"\\ud800\"",
		"\"\\udc00\"",
		"\"\\ud800\\u0041\"",
		"\"\xed\xa0\x80\"",
	};
	char deep[100];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (json_check(bad[i], strlen(bad[i])) == 0)
			fail_msg("taken: %s", bad[i]);
	}
	memset(deep, '[', 50);
	memset(deep + 50, ']', 50);
	assert_int_equal(json_check(deep, sizeof(deep)), -EBADMSG);
	assert_int_equal(json_check("1\0", 2), -EBADMSG);
}

/* Nothing is read beyond the end, wherever that is. */
static void json_read_cut_anywhere(void **state)
{
	static const char text[] = "{\"a\": [1.5e3, \"x\\u00e4\\\\\", {\"b\": null}], \"c\": true}";

	(void)state;
	for (size_t n = 0; n < strlen(text); n++) {
		char copy[sizeof(text)];

		memcpy(copy, text, n);
		assert_int_equal(json_check(copy, n), -EBADMSG);
	}
	assert_int_equal(json_check(text, strlen(text)), 0);
}

static int collect(void *user, const char *key, const char *value, size_t len)
{
	char *out = user;

	(void)sprintf(out + strlen(out), "%s=%.*s;", key, (int)len, value);
	return strcmp(key, "stop") == 0 ? -ECANCELED : 0;
}

static int members(const char *text, char out[256])
{
	out[0] = '\0';
	return json_members(text, strlen(text), collect, out);
}

static void json_read_members(void **state)
{
	char out[256];

	(void)state;
	assert_int_equal(members(" { \"a\" : 1 , \"b\\u0041\":[ 2 ] } ", out), 0);
	assert_string_equal(out, "a=1;bA=[ 2 ];");
	assert_int_equal(members("{}", out), 0);
	assert_string_equal(out, "");
	assert_int_equal(members("{\"a\":1,\"stop\":2,\"b\":3}", out), -ECANCELED);
	assert_string_equal(out, "a=1;stop=2;");
	/* All or nothing. */
	assert_int_equal(members("{\"a\":1,\"a\":2}", out), -EBADMSG);
	assert_string_equal(out, "");
	assert_int_equal(members("{\"a\":1} x", out), -EBADMSG);
	assert_int_equal(members("[1]", out), -EBADMSG);
	assert_int_equal(members("{\"\\u0000\":1}", out), -EBADMSG);
}

static int collect_element(void *user, size_t i, const char *value, size_t len)
{
	char *out = user;

	(void)sprintf(out + strlen(out), "%zu=%.*s;", i, (int)len, value);
	return len == 6 && memcmp(value, "\"stop\"", 6) == 0 ? -ECANCELED : 0;
}

static int elements(const char *text, size_t max, char out[256])
{
	out[0] = '\0';
	return json_elements(text, strlen(text), max, collect_element, out);
}

static void json_read_elements(void **state)
{
	char out[256];

	(void)state;
	assert_int_equal(elements(" [ 1 , [2,3] ,{\"a\":4}, \"x\" ] ", 4, out), 0);
	assert_string_equal(out, "0=1;1=[2,3];2={\"a\":4};3=\"x\";");
	assert_int_equal(elements("[ ]", 0, out), 0);
	assert_string_equal(out, "");
	assert_int_equal(elements("[1,\"stop\",2]", 9, out), -ECANCELED);
	assert_string_equal(out, "0=1;1=\"stop\";");
	/* All or nothing. */
	assert_int_equal(elements("[1,2,3]", 2, out), -E2BIG);
	assert_int_equal(elements("[1,2,]", 9, out), -EBADMSG);
	assert_int_equal(elements("[1] x", 9, out), -EBADMSG);
	assert_int_equal(elements("{\"a\":1}", 9, out), -EBADMSG);
	assert_string_equal(out, "");
}

static void json_read_decodes(void **state)
{
	char out[16];
	bool b = false;
	int64_t n;

	(void)state;
	assert_int_equal(json_decode_bool("true", 4, &b), 0);
	assert_true(b);
	assert_int_equal(json_decode_bool("false", 5, &b), 0);
	assert_false(b);
	assert_int_equal(json_decode_bool("1", 1, &b), -EBADMSG);
	assert_int_equal(json_decode_string("\"a\\tb\\ud83d\\ude00\"", 18, out, sizeof(out)), 0);
	assert_string_equal(out, "a\tb\xf0\x9f\x98\x80");
	assert_int_equal(json_decode_string("\"123456\"", 8, out, 6), -ENOSPC);
	assert_int_equal(json_decode_string("\"\"", 2, out, 0), -ENOSPC);
	assert_int_equal(json_decode_string("123", 3, out, sizeof(out)), -EBADMSG);
	assert_int_equal(json_decode_int("-9223372036854775808", 20, &n), 0);
	assert_true(n == INT64_MIN);
	assert_int_equal(json_decode_int("9223372036854775807", 19, &n), 0);
	assert_true(n == INT64_MAX);
	assert_int_equal(json_decode_int("9223372036854775808", 19, &n), -ERANGE);
	assert_int_equal(json_decode_int("1.0", 3, &n), -EBADMSG);
	assert_int_equal(json_decode_int("-", 1, &n), -EBADMSG);
	assert_int_equal(json_compact(" [ 1 , \" \\\" \" ] ", 16, out), 10);
	assert_string_equal(out, "[1,\" \\\" \"]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_read_good_values),  cmocka_unit_test(json_read_bad_values),
		cmocka_unit_test(json_read_cut_anywhere), cmocka_unit_test(json_read_members),
		cmocka_unit_test(json_read_elements),     cmocka_unit_test(json_read_decodes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

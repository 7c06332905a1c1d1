/* SPDX-License-Identifier: Apache-2.0 */
/* Names shown to people, and the UTF-8 below. */
#include "util/escape.h"

#include "util/cleanup.h"
#include "util/utf8.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

static void hidden_bytes_are_shown(void **state)
{
	static const struct {
		const char *in;
		const char *out;
	} rows[] = {
		{ "", "" },
		{ "plain name.txt", "plain name.txt" },
		{ "gr\xc3\xbc\xc3\x9f \xf0\x9f\x90\x9a", "gr\xc3\xbc\xc3\x9f \xf0\x9f\x90\x9a" },
		{ "a\nb\tc\x7f", "a\\x0ab\\x09c\\x7f" },
		{ "\033[31m", "\\x1b[31m" },
		{ "a\\x0ab", "a\\\\x0ab" },
		{ "\xc2\x9b"
		  "2J",
		  "\\u{009b}2J" },
		{ "a\xe2\x80\xae"
		  "cod.exe",
		  "a\\u{202e}cod.exe" },
		{ "\xe2\x81\xa6", "\\u{2066}" },
		{ "\xef\xbb\xbf", "\\u{feff}" },
		{ "\xf3\xa0\x81\xa1", "\\u{e0061}" },
		{ "\xff\xfe", "\\xff\\xfe" },
		{ "\xc3", "\\xc3" },
		{ "\xc3(", "\\xc3(" },
		{ "\xc0\xaf", "\\xc0\\xaf" },
		{ "\xe0\x80\xaf", "\\xe0\\x80\\xaf" },
		{ "\xed\xa0\x80", "\\xed\\xa0\\x80" },
		{ "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80" },
		{ "\x80", "\\x80" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cleanup_free char *got = escape_dup(rows[i].in);

		assert_string_equal(got, rows[i].out);
	}
}

static void nul_is_a_byte_like_others(void **state)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	(void)state;
	escape_add(&sb, "a\0b", 3);
	assert_string_equal(strbuf_str(&sb), "a\\x00b");
}

/* Two different names never look the same. */
static void all_pairs_of_bytes_stay_apart(void **state)
{
	(void)state;
	for (int hi = 1; hi < 256; hi++) {
		for (int lo = 1; lo < 256; lo++) {
			const char in[] = { (char)hi, (char)lo, '\0' };
			cleanup_free char *got = escape_dup(in);
			size_t len = strlen(got);

			assert_true(utf8_valid(got, len));
			if (len == 2)
				assert_memory_equal(got, in, 2);
			else
				assert_non_null(strchr(got, '\\'));
		}
	}
}

static size_t encode(uint32_t c, char out[4])
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

static void every_character_is_decoded(void **state)
{
	(void)state;
	for (uint32_t c = 0; c < 0x110000; c++) {
		bool surrogate = c >= 0xd800 && c <= 0xdfff;
		uint32_t got = 0;
		char text[4];
		size_t n = encode(c, text);

		if (utf8_decode(text, n, &got) != (surrogate ? 0 : n) || (!surrogate && got != c))
			fail_msg("U+%04X", (unsigned)c);
		if (n > 1 && utf8_decode(text, n - 1, &got) != 0)
			fail_msg("U+%04X cut short", (unsigned)c);
	}
}

static void cut_does_not_split(void **state)
{
	static const char text[] = "a\xe2\x82\xac"
				   "b";
	static const size_t want[] = { 0, 1, 1, 1, 4, 5, 5 };

	(void)state;
	for (size_t max = 0; max < sizeof(want) / sizeof(want[0]); max++)
		assert_int_equal(utf8_cut(text, max), want[max]);
	assert_int_equal(utf8_cut("\x80\x80\x80\x80\x80\x80", 5), 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hidden_bytes_are_shown),
		cmocka_unit_test(nul_is_a_byte_like_others),
		cmocka_unit_test(all_pairs_of_bytes_stay_apart),
		cmocka_unit_test(every_character_is_decoded),
		cmocka_unit_test(cut_does_not_split),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

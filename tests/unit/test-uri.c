/* SPDX-License-Identifier: Apache-2.0 */
/* Percent-escapes. */
#include "util/uri.h"

#include "util/cleanup.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

static void well_encoded(void **state)
{
	static const char *const rows[][2] = {
		{ "", "" },         { "abc", "abc" },
		{ "a%20b", "a b" }, { "%41%7a", "Az" },
		{ "%2F%2f", "//" }, { "a+b", "a+b" },
		{ "%25", "%" },     { "%2541", "%41" },
		{ "%01", "\x01" },  { "%10%a0", "\x10\xa0" },
		{ "%ff", "\xff" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cleanup_free char *text = uri_decode(rows[i][0], strlen(rows[i][0]));

		assert_non_null(text);
		assert_string_equal(text, rows[i][1]);
	}
}

static void badly_encoded(void **state)
{
	static const char *const rows[] = { "%",   "a%",  "%2",    "%zz", "%2z",
		                            "%z2", "%00", "a%00b", "% 1" };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_null(uri_decode(rows[i], strlen(rows[i])));
}

static void reads_no_further(void **state)
{
	cleanup_free char *text = uri_decode("abc/def", 3);

	(void)state;
	assert_string_equal(text, "abc");
	assert_null(uri_decode("a%41", 3));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(well_encoded),
		cmocka_unit_test(badly_encoded),
		cmocka_unit_test(reads_no_further),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

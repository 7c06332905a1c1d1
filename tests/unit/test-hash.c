/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes and random names. */
#include "util/hash.h"

#include "util/random.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

/* As `xxhsum -H2` prints them: the form on disk must never change. */
static void known_values(void **state)
{
	char text[HASH_TEXT_LEN];

	(void)state;
	hash_buffer("", 0, text);
	assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
	hash_buffer("abc", 3, text);
	assert_string_equal(text, "06b05ab6733a618578af5f94892f3950");
	hash_buffer(NULL, 0, text);
	assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
	assert_true(hash64("abc", 3) == UINT64_C(0x78af5f94892f3950));
}

/* Of every length, as the block of a base record is read at once or in pieces. */
static void sums_of_streams_equal_hash64(void **state)
{
	unsigned char data[3000];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 37 + (i >> 8));
	for (size_t len = 0; len <= sizeof(data); len += len < 600 ? 1 : 41) {
		cleanup_hash struct hash *h = hash_new();
		size_t step = 1 + len % 97;

		for (size_t at = 0; at < len; at += step)
			hash_add(h, data + at, len - at < step ? len - at : step);
		assert_true(hash_sum64(h) == hash64(data, len));
	}
}

static void streams_equal_buffers(void **state)
{
	static const size_t steps[] = { 1, 7, 63, 64, 65, 255, 1024, 5000 };
	unsigned char data[5000];
	char want[HASH_TEXT_LEN], got[HASH_TEXT_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 31 + (i >> 8));
	hash_buffer(data, sizeof(data), want);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		cleanup_hash struct hash *h = hash_new();

		for (size_t at = 0; at < sizeof(data); at += steps[i]) {
			size_t left = sizeof(data) - at;

			hash_add(h, data + at, left < steps[i] ? left : steps[i]);
			hash_add(h, NULL, 0);
			hash_text(h, got);
		}
		assert_string_equal(got, want);
	}
}

static void one_bit_matters(void **state)
{
	unsigned char data[4096] = { 0 };
	char before[HASH_TEXT_LEN], after[HASH_TEXT_LEN];

	(void)state;
	hash_buffer(data, sizeof(data), before);
	for (size_t i = 0; i < sizeof(data); i += 97) {
		data[i] ^= 1;
		hash_buffer(data, sizeof(data), after);
		assert_string_not_equal(before, after);
		data[i] ^= 1;
	}
	hash_free(NULL);
}

static void random_names(void **state)
{
	char names[64][34];
	bool seen[256] = { false };

	(void)state;
	for (size_t i = 0; i < 64; i++) {
		memset(names[i], 'X', sizeof(names[i]));
		random_hex(names[i], 31);
		assert_int_equal(strspn(names[i], "0123456789abcdef"), 31);
		assert_int_equal(names[i][31], '\0');
		assert_int_equal(names[i][32], 'X');
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(names[i], names[k]);
		for (size_t k = 0; k < 31; k++)
			seen[(unsigned char)names[i][k]] = true;
	}
	for (const char *c = "0123456789abcdef"; *c; c++)
		assert_true(seen[(unsigned char)*c]);
	random_hex(names[0], 0);
	assert_string_equal(names[0], "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_values),
		cmocka_unit_test(streams_equal_buffers),
		cmocka_unit_test(sums_of_streams_equal_hash64),
		cmocka_unit_test(one_bit_matters),
		cmocka_unit_test(random_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

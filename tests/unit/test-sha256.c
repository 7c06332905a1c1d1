/* SPDX-License-Identifier: Apache-2.0 */
/* The vectors of FIPS 180-4, and comparing. */
#include "util/sha256.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static void sha256_known_vectors(void **state)
{
	static const struct {
		const char *text, *sum;
	} vectors[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	};
	static const char million[] =
		"cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
	char out[SHA256_TEXT_LEN], *many = malloc(1000000);

	(void)state;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		assert_int_equal(sha256_text(vectors[i].text, strlen(vectors[i].text), out), 0);
		assert_string_equal(out, vectors[i].sum);
	}
	assert_non_null(many);
	memset(many, 'a', 1000000);
	assert_int_equal(sha256_text(many, 1000000, out), 0);
	assert_string_equal(out, million);
	free(many);
}

/* However it is cut. */
static void sha256_in_pieces(void **state)
{
	static const char text[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
	char whole[SHA256_TEXT_LEN], out[SHA256_TEXT_LEN];

	(void)state;
	assert_int_equal(sha256_text(text, strlen(text), whole), 0);
	for (size_t step = 1; step <= strlen(text); step++) {
		struct sha256 *s = sha256_new();

		assert_non_null(s);
		for (size_t at = 0; at < strlen(text); at += step)
			sha256_add(s, text + at,
			           strlen(text) - at < step ? strlen(text) - at : step);
		sha256_end(s, out);
		sha256_free(s);
		assert_string_equal(out, whole);
	}
	sha256_free(NULL);
}

static void sha256_differs_in_one_digit(void **state)
{
	char a[SHA256_TEXT_LEN], b[SHA256_TEXT_LEN];

	(void)state;
	assert_int_equal(sha256_text("x", 1, a), 0);
	memcpy(b, a, sizeof(b));
	assert_true(sha256_text_equal(a, b));
	for (size_t i = 0; i < SHA256_TEXT_LEN - 1; i++) {
		b[i] = a[i] == '0' ? '1' : '0';
		assert_false(sha256_text_equal(a, b));
		b[i] = a[i];
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(sha256_known_vectors),
		cmocka_unit_test(sha256_in_pieces),
		cmocka_unit_test(sha256_differs_in_one_digit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

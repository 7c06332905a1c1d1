/* SPDX-License-Identifier: Apache-2.0 */
/* When a token is over, by two clocks; fields; and how long a service asks to be left alone. */
#include "token/answer.h"
#include "token/disk-impl.h"
#include "token/token.h"
#include "util/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define S INT64_C(1000000000)

static struct atoll_token *make(int64_t life_s, int64_t real_end, int64_t boot_end)
{
	const struct token_fields none = { 0 };
	const struct token_life life = { 0, life_s * S, real_end, boot_end };
	struct atoll_token *t = token_new("secret", 6, &none, &life);

	assert_non_null(t);
	return t;
}

static void token_age_windows(void **state)
{
	static const struct {
		int64_t life, left;
		enum token_age age;
	} rows[] = {
		{ 3600, 3600, TOKEN_FRESH }, { 3600, 721, TOKEN_FRESH }, { 3600, 720, TOKEN_SOFT },
		{ 3600, 31, TOKEN_SOFT },    { 3600, 30, TOKEN_HARD },   { 3600, 1, TOKEN_HARD },
		{ 3600, 0, TOKEN_OVER },     { 3600, -5, TOKEN_OVER },   { 200, 61, TOKEN_FRESH },
		{ 200, 60, TOKEN_SOFT },     { 200, 20, TOKEN_HARD },    { 100, 51, TOKEN_FRESH },
		{ 100, 50, TOKEN_SOFT },     { 100, 10, TOKEN_HARD },    { 10, 1, TOKEN_HARD },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct token_now now = { 1000 * S, 50 * S };
		struct atoll_token *t = make(rows[i].life, now.real_ns + rows[i].left * S,
		                             now.boot_ns + rows[i].left * S);

		if (token_age(t, now, 0) != rows[i].age)
			fail_msg("row %zu", i);
		atoll_token_unref(t);
	}
}

/* Whichever clock says so. */
static void token_is_over_by_either_clock(void **state)
{
	struct atoll_token *t = make(100, 1100 * S, 600 * S);
	struct atoll_token *old = make(100, 1100 * S, CLOCK_NEVER);

	(void)state;
	assert_int_equal(token_age(t, (struct token_now){ 1010 * S, 510 * S }, 0), TOKEN_FRESH);
	/* The clock was set back by a day: boot time goes on. */
	assert_int_equal(token_age(t, (struct token_now){ -85000 * S, 600 * S }, 0), TOKEN_OVER);
	/* It was set ahead, or the machine slept and boot time with it. */
	assert_int_equal(token_age(t, (struct token_now){ 1100 * S, 510 * S }, 0), TOKEN_OVER);
	assert_int_equal(token_age(t, (struct token_now){ 1010 * S, 9000 * S }, 0), TOKEN_OVER);
	/* Of another boot only real time is known. */
	assert_int_equal(token_age(old, (struct token_now){ 1010 * S, 9000 * S }, 0), TOKEN_FRESH);
	assert_int_equal(token_age(old, (struct token_now){ 1100 * S, 5 * S }, 0), TOKEN_OVER);
	atoll_token_unref(t);
	atoll_token_unref(old);
}

static void token_age_jitter(void **state)
{
	struct atoll_token *t = make(1000, 2000 * S, CLOCK_NEVER);

	(void)state;
	assert_int_equal(token_age(t, (struct token_now){ 1790 * S, 0 }, 0), TOKEN_FRESH);
	assert_int_equal(token_age(t, (struct token_now){ 1790 * S, 0 }, 100), TOKEN_SOFT);
	assert_int_equal(token_age(t, (struct token_now){ 1810 * S, 0 }, -100), TOKEN_FRESH);
	atoll_token_unref(t);
}

static void token_fields_change(void **state)
{
	struct token_fields f = { 0 };
	char *large = calloc(1, TOKEN_FIELDS_MAX + 1);

	(void)state;
	assert_int_equal(token_fields_set(&f, "a", "1"), 1);
	assert_int_equal(token_fields_set(&f, "b", "2"), 1);
	assert_int_equal(token_fields_set(&f, "a", "1"), 0);
	assert_int_equal(token_fields_set(&f, "a", "\"longer\""), 1);
	assert_string_equal(token_fields_get(f.data, f.len, "a"), "\"longer\"");
	assert_string_equal(token_fields_get(f.data, f.len, "b"), "2");
	assert_null(token_fields_get(f.data, f.len, "2"));
	memset(large, '1', TOKEN_FIELDS_MAX);
	assert_int_equal(token_fields_set(&f, "c", large), -ATOLL_E_TOO_BIG);
	assert_string_equal(token_fields_get(f.data, f.len, "b"), "2");
	token_fields_done(&f);
	free(large);
}

static int64_t after(const char *value)
{
	struct atoll_token_reply *a = answer_new();
	int64_t ns;

	atoll_token_reply_retry_after(a, value);
	ns = a->pause_ns;
	answer_free(a);
	return ns;
}

static void token_retry_after_forms(void **state)
{
	time_t soon = (time_t)(clock_real_ns() / S) + 100;
	char date[64];
	int64_t ns;

	(void)state;
	assert_int_equal(after("7"), 7 * S);
	assert_int_equal(after(" 0 "), 0);
	assert_int_equal(after("99999999999999999999"), 3600 * S);
	assert_int_equal(after("-1"), -1);
	assert_int_equal(after("soon"), -1);
	assert_int_equal(after(""), -1);
	assert_int_equal(after("Fri, 31 Dec 1999 23:59:59 GMT"), 0);
	assert_true(strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime(&soon)) > 0);
	ns = after(date);
	assert_true(ns >= 95 * S && ns <= 100 * S);
}

/* What is written is read again; one byte off, and it is not. */
static void token_file_round_trip(void **state)
{
	struct token_fields fields = { 0 };
	const struct token_life life = { 77, 60 * S, 123456789 * S, 55 * S };
	struct token_file file = { "https://e", "p q", "sb-1", NULL }, got = { 0 };
	struct form f = { 0 };

	(void)state;
	assert_int_equal(token_fields_set(&fields, "a b", "[1]"), 1);
	file.token = token_new("text", 4, &fields, &life);
	token_file_write(&f, &file);
	f.data[f.len] = '\0'; /* as what is read from a file ends */
	for (size_t i = 0; i < f.len; i++) {
		struct form bad = { malloc(f.len + 1), f.len, f.len + 1 };

		memcpy(bad.data, f.data, f.len);
		bad.data[f.len] = '\0';
		bad.data[i] ^= 1;
		assert_true(token_file_read(&bad, &got) < 0);
		form_done(&bad);
	}
	assert_int_equal(token_file_read(&f, &got), 0);
	assert_string_equal(got.endpoint, "https://e");
	assert_string_equal(got.principal, "p q");
	assert_string_equal(got.sandbox, "sb-1");
	assert_string_equal(atoll_token_text(got.token), "text");
	assert_string_equal(atoll_token_field(got.token, "a b"), "[1]");
	assert_true(atoll_token_version(got.token) == 77);
	assert_true(got.token->real_end_ns == life.real_end_ns);
	assert_true(got.token->boot_end_ns == life.boot_end_ns);
	atoll_token_unref(got.token);
	atoll_token_unref(file.token);
	form_done(&f);
	token_fields_done(&fields);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(token_age_windows),
		cmocka_unit_test(token_is_over_by_either_clock),
		cmocka_unit_test(token_age_jitter),
		cmocka_unit_test(token_fields_change),
		cmocka_unit_test(token_retry_after_forms),
		cmocka_unit_test(token_file_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Two texts line by line. */
#include "diff/text.h"

#include "util/cleanup.h"
#include "util/strbuf.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <string.h>

static struct text of(const char *s)
{
	return (struct text){ s, strlen(s) };
}

static int put(void *ctx, char origin, const char *line, size_t len)
{
	struct strbuf *sb = ctx;

	if (origin != '@')
		strbuf_putc(sb, origin);
	strbuf_add(sb, line, len);
	strbuf_putc(sb, '|');
	return 0;
}

static const struct {
	const char *before, *after;
	unsigned context;
	const char *shown;
	uint64_t added, deleted;
} rows[] = {
	{ "", "", 3, "", 0, 0 },
	{ "", "a\n", 3, "@@ -0,0 +1 @@|+a|", 1, 0 },
	{ "", "a\nb", 3, "@@ -0,0 +1,2 @@|+a|+b|\\|", 2, 0 },
	{ "", "\n", 3, "@@ -0,0 +1 @@|+|", 1, 0 },
	{ "a\nb\n", "", 3, "@@ -1,2 +0,0 @@|-a|-b|", 0, 2 },
	{ "a", "", 3, "@@ -1 +0,0 @@|-a|\\|", 0, 1 },
	{ "a\n", "b\n", 3, "@@ -1 +1 @@|-a|+b|", 1, 1 },
	{ "a\n", "a", 3, "@@ -1 +1 @@|-a|+a|\\|", 1, 1 },
	{ "a", "a\n", 3, "@@ -1 +1 @@|-a|\\|+a|", 1, 1 },
	{ "a\nx", "b\nx", 3, "@@ -1,2 +1,2 @@|-a|+b| x|\\|", 1, 1 },
	{ "1\n2\n3\n4\n5\n", "1\n2\nx\n4\n5\n", 0, "@@ -3 +3 @@|-3|+x|", 1, 1 },
	{ "1\n2\n3\n4\n5\n", "1\n2\nx\n4\n5\n", 1, "@@ -2,3 +2,3 @@| 2|-3|+x| 4|", 1, 1 },
	{ "b\n", "a\nb\n", 3, "@@ -1 +1,2 @@|+a| b|", 1, 0 },
	{ "a\nb\na\nb\n", "a\nb\n", 0, NULL, 0, 2 },
};

static void text_lines_and_counts(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cleanup_strbuf struct strbuf sb = STRBUF_INIT;
		struct text a = of(rows[i].before), b = of(rows[i].after);
		struct text_count shown = { 9, 9 }, counted = { 9, 9 };
		struct error err = ERROR_INIT;

		assert_int_equal(text_compare(&a, &b, rows[i].context, put, &sb, &shown, &err), 0);
		assert_int_equal(text_compare(&a, &b, 0, NULL, NULL, &counted, &err), 0);
		if (rows[i].shown)
			assert_string_equal(strbuf_str(&sb), rows[i].shown);
		assert_int_equal(shown.added, rows[i].added);
		assert_int_equal(shown.deleted, rows[i].deleted);
		assert_int_equal(counted.added, rows[i].added);
		assert_int_equal(counted.deleted, rows[i].deleted);
	}
}

static void text_knows_binary_as_git_does(void **state)
{
	char data[9000];
	struct text t = { data, sizeof(data) };

	(void)state;
	memset(data, 'x', sizeof(data));
	assert_false(text_is_binary(&t));
	data[8000] = '\0';
	assert_false(text_is_binary(&t));
	data[7999] = '\0';
	assert_true(text_is_binary(&t));
	t.len = 0;
	assert_false(text_is_binary(&t));
	/* Lines, whether the last one ends or not. */
	t = of("a\n\nb");
	assert_int_equal(text_lines(&t), 3);
	t.len = 3;
	assert_int_equal(text_lines(&t), 2);
}

static int stop(void *ctx, char origin, const char *line, size_t len)
{
	(void)ctx;
	(void)line;
	(void)len;
	return origin == '+' ? -EPIPE : 0;
}

static void text_ends_when_told(void **state)
{
	struct text a = of("a\nb\n"), b = of("a\nc\n"), none = of("");

	(void)state;
	assert_int_equal(text_compare(&a, &b, 3, stop, NULL, NULL, NULL), -EPIPE);
	assert_int_equal(text_compare(&none, &b, 3, stop, NULL, NULL, NULL), -EPIPE);
}

static void *compare_often(void *arg)
{
	struct text a = of("1\n2\n3\n"), b = of("1\n3\n4\n");
	struct text_count n;

	for (int i = 0; i < 200; i++)
		if (text_compare(&a, &b, 3, NULL, NULL, &n, NULL) < 0 || n.added != 1 ||
		    n.deleted != 1)
			return arg; /* not NULL */
	return NULL;
}

static void text_in_threads(void **state)
{
	pthread_t t[4];

	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, compare_often, state), 0);
	for (size_t i = 0; i < 4; i++) {
		void *failed;

		assert_int_equal(pthread_join(t[i], &failed), 0);
		assert_null(failed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_lines_and_counts),
		cmocka_unit_test(text_knows_binary_as_git_does),
		cmocka_unit_test(text_ends_when_told),
		cmocka_unit_test(text_in_threads),
	};

	return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}

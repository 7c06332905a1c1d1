/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns over paths. */
#include "util/glob.h"

#include "util/list.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

static void glob_patterns_match_names_and_paths(void **state)
{
	static const struct {
		const char *pattern;
		const char *path;
		bool matches;
	} rows[] = {
		/* a name, wherever it is, and all below it */
		{ "*.log", "a.log", true },
		{ "*.log", "x/y/a.log", true },
		{ "*.log", "x/a.log/y", true },
		{ "*.log", "a.logs", false },
		{ "node_modules", "x/node_modules/y/z", true },
		{ "node_modules/", "x/node_modules", true },
		{ "node_modules", "x/node_modules2", false },
		{ "?", "ab", false },
		{ "?b", "ab", true },
		{ ".*", ".git", true },
		{ "*", "anything/at/all", true },
		/* a path from the root on */
		{ "/build", "build", true },
		{ "/build", "build/x", true },
		{ "/build", "x/build", false },
		{ "a/b", "a/b/c", true },
		{ "a/b", "x/a/b", false },
		{ "a/*", "a/b/c", true },
		{ "a/*", "a", false },
		{ "a/*c", "a/b/c", false },
		{ "a/**", "a/b/c", true },
		{ "a/**", "a", false },
		{ "a/**/c", "a/c", true },
		{ "a/**/c", "a/x/y/c", true },
		{ "a/**/c", "a/x/y/d", false },
		{ "a/**/c/*.o", "a/c/d/c/x.o", true },
		{ "**/c", "a/b/c", true },
		{ "a/***", "a/b", true },
		/* sets and quoting */
		{ "[a-c]x", "bx", true },
		{ "[a-c]x", "dx", false },
		{ "[!a-c]x", "dx", true },
		{ "[^a-c]x", "ax", false },
		{ "[]x]", "]", true },
		{ "[a-]", "-", true },
		{ "[\\]]", "]", true },
		{ "[x", "[x", true },
		{ "\\*", "*", true },
		{ "\\*", "a", false },
		{ "a\\", "a\\", true },
		/* any bytes */
		{ "\xff*", "\xff\n\xfe", true },
		{ "[\x80-\xff]", "\xc3", true },
		/* nothing */
		{ "", "a", false },
		{ "/", "a", false },
		{ "a", "", false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (glob_match(rows[i].pattern, rows[i].path) != rows[i].matches)
			fail_msg("'%s' against '%s'", rows[i].pattern, rows[i].path);
}

static void glob_any_of_several(void **state)
{
	cleanup_strlist struct strlist patterns = STRLIST_INIT;

	(void)state;
	assert_false(glob_match_any(NULL, "a"));
	assert_false(glob_match_any(&patterns, "a"));
	strlist_add(&patterns, "*.o");
	strlist_add(&patterns, "/x");
	assert_true(glob_match_any(&patterns, "x/y"));
	assert_true(glob_match_any(&patterns, "y/z.o"));
	assert_false(glob_match_any(&patterns, "y/x"));
}

/* Patterns come from a person, names from whoever: together they must not hang us. */
static void glob_stars_take_no_long_time(void **state)
{
	char pattern[256] = "", path[4096];
	clock_t began = clock();

	(void)state;
	for (int i = 0; i < 60; i++)
		(void)strcat(pattern, "*a");
	(void)strcat(pattern, "b");
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	assert_false(glob_match(pattern, path));
	memset(pattern, 0, sizeof(pattern));
	for (int i = 0; i < 40; i++)
		(void)strcat(pattern, "**/a/");
	(void)strcat(pattern, "b");
	for (size_t i = 1; i < sizeof(path) - 1; i += 2)
		path[i] = '/';
	assert_false(glob_match(pattern, path));
	assert_true((double)(clock() - began) / CLOCKS_PER_SEC < 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(glob_patterns_match_names_and_paths),
		cmocka_unit_test(glob_any_of_several),
		cmocka_unit_test(glob_stars_take_no_long_time),
	};

	return cmocka_run_group_tests_name("glob", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns over paths. */
#include "util/glob.h"

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
		bool is_dir;
	} rows[] = {
		/* a name, wherever it is, and all below it */
		{ "*.log", "a.log", true, false },
		{ "*.log", "x/y/a.log", true, false },
		{ "*.log", "x/a.log/y", true, false },
		{ "*.log", "a.logs", false, false },
		{ "node_modules", "x/node_modules/y/z", true, false },
		{ "node_modules/", "x/node_modules", true, true },
		{ "node_modules/", "x/node_modules", false, false },
		{ "node_modules/", "x/node_modules/y", true, false },
		{ "/x/", "x", true, true },
		{ "/x/", "x", false, false },
		{ "/x/", "x/y", true, false },
		{ "node_modules", "x/node_modules2", false, false },
		{ "?", "ab", false, false },
		{ "?b", "ab", true, false },
		{ ".*", ".git", true, false },
		{ "*", "anything/at/all", true, false },
		/* a path from the root on */
		{ "/build", "build", true, false },
		{ "/build", "build/x", true, false },
		{ "/build", "x/build", false, false },
		{ "a/b", "a/b/c", true, false },
		{ "a/b", "x/a/b", false, false },
		{ "a/*", "a/b/c", true, false },
		{ "a/*", "a", false, false },
		{ "a/*c", "a/b/c", false, false },
		{ "a/**", "a/b/c", true, false },
		{ "a/**", "a", false, false },
		{ "a/**", "a", false, true },
		{ "a/**/c", "a/c", true, false },
		{ "a/**/c", "a/x/y/c", true, false },
		{ "a/**/c", "a/x/y/d", false, false },
		{ "a/**/c/*.o", "a/c/d/c/x.o", true, false },
		{ "**/c", "a/b/c", true, false },
		{ "a/***", "a/b", true, false },
		/* sets and quoting */
		{ "[a-c]x", "bx", true, false },
		{ "[a-c]x", "dx", false, false },
		{ "[!a-c]x", "dx", true, false },
		{ "[^a-c]x", "ax", false, false },
		{ "[]x]", "]", true, false },
		{ "[a-]", "-", true, false },
		{ "[\\]]", "]", true, false },
		{ "[x", "[x", true, false },
		{ "\\*", "*", true, false },
		{ "\\*", "a", false, false },
		{ "a\\", "a\\", true, false },
		/* any bytes */
		{ "\xff*", "\xff\n\xfe", true, false },
		{ "[\x80-\xff]", "\xc3", true, false },
		/* nothing */
		{ "", "a", false, false },
		{ "/", "a", false, false },
		{ "a", "", false, false },
		{ "*", "", false, true },
		{ "**/a", "", false, true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (glob_path(rows[i].pattern, rows[i].path, rows[i].is_dir) != rows[i].matches)
			fail_msg("'%s' against '%s'", rows[i].pattern, rows[i].path);
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
	assert_false(glob_path(pattern, path, false));
	memset(pattern, 0, sizeof(pattern));
	for (int i = 0; i < 40; i++)
		(void)strcat(pattern, "**/a/");
	(void)strcat(pattern, "b");
	for (size_t i = 1; i < sizeof(path) - 1; i += 2)
		path[i] = '/';
	assert_false(glob_path(pattern, path, false));
	assert_true((double)(clock() - began) / CLOCKS_PER_SEC < 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(glob_patterns_match_names_and_paths),
		cmocka_unit_test(glob_stars_take_no_long_time),
	};

	return cmocka_run_group_tests_name("glob", tests, NULL, NULL);
}

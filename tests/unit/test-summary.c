/* SPDX-License-Identifier: Apache-2.0 */
/* The summary above the question: each kind of change, and what becomes of many. */
#include "answer/summary.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MODE (S_IFREG | 0644)
#define DIR_MODE  (S_IFDIR | 0755)
#define MOST      64

#define A ATOLL_CHANGE_ADDED
#define M ATOLL_CHANGE_CHANGED
#define D ATOLL_CHANGE_DELETED

struct made {
	enum atoll_change_kind kind;
	uint32_t mode; /* 0: what is no file */
	const char *path, *detail;
	unsigned what;
	const char *root; /* NULL: the first */
};

static size_t fill(struct atoll_change *to, const struct made *made)
{
	size_t n = 0;

	for (; made[n].path; n++)
		to[n] = (struct atoll_change){
			.sandbox = made[n].root ? made[n].root : "/home/me/p",
			.root = made[n].root ? made[n].root : "/home/me/p",
			.path = made[n].path,
			.kind = made[n].kind,
			.what = made[n].what ? made[n].what : ATOLL_CHANGE_CONTENT,
			.old_mode = made[n].kind == ATOLL_CHANGE_ADDED ? 0 : made[n].mode,
			.new_mode = made[n].kind == ATOLL_CHANGE_DELETED ? 0 : made[n].mode,
			.text = "",
			.conflict = "",
			.detail = made[n].detail ? made[n].detail : "",
		};
	return n;
}

static char *summarize(const struct atoll_change *changes, size_t n, size_t width, size_t lines)
{
	struct summary_view v = { .here = "/home/me/p", .width = width, .lines = lines };
	struct strbuf sb = STRBUF_INIT;

	for (int i = 0; i < PAINT_END_; i++)
		v.paint[i] = "";
	summary_add(&sb, &v, changes, n);
	return strbuf_take(&sb);
}

/* One row for each kind of thing that a summary knows. */
static void each_kind_has_its_words(void **state)
{
	static const struct {
		struct made made[8];
		const char *said;
	} rows[] = {
		{ { { A, FILE_MODE, "a", NULL, 0, NULL } }, "A a\n" },
		{ { { M, FILE_MODE, "a", NULL, 0, NULL } }, "M a\n" },
		{ { { D, FILE_MODE, "a", NULL, 0, NULL } }, "D a\n" },
		{ { { A, DIR_MODE, "d", NULL, 0, NULL } }, "A d/\n" },
		{ { { M, DIR_MODE, "", NULL, ATOLL_CHANGE_MODE, NULL } }, "M ./\n" },
		{ { { A, DIR_MODE, "d", NULL, 0, NULL }, { A, FILE_MODE, "d/f", NULL, 0, NULL } },
		  "A d/f\n" },
		/* Sorted by bytes others come between a directory and what is in it. */
		{ { { A, DIR_MODE, "d", NULL, 0, NULL },
		    { M, FILE_MODE, "d-", NULL, 0, NULL },
		    { A, DIR_MODE, "d/e", NULL, 0, NULL },
		    { A, FILE_MODE, "d/e/f", NULL, 0, NULL },
		    { A, FILE_MODE, "d/g", NULL, 0, NULL } },
		  "3 new below d/   M d-\n" },
		{ { { D, DIR_MODE, "d", NULL, 0, NULL },
		    { D, FILE_MODE, "d/f", NULL, 0, NULL },
		    { D, FILE_MODE, "d/g", NULL, 0, NULL } },
		  "2 deleted below d/\ndeleted with all that was in it: d/\n" },
		{ { { M, 0, "refs/heads/main", "1234567..89abcde, 2 commits", 0, NULL } },
		  "branch main: 2 commits\n" },
		{ { { M, 0, "refs/heads/main", "1234567..89abcde", 0, NULL } },
		  "branch main: 1234567..89abcde\n" },
		{ { { A, 0, "refs/heads/x", "1234567", 0, NULL } }, "branch x: new\n" },
		{ { { D, 0, "refs/tags/v1", "was 1234567", 0, NULL } }, "tag v1: deleted\n" },
		{ { { A, 0, "refs/notes/x", "1234567", 0, NULL } }, "refs/notes/x: new\n" },
		{ { { M, 0, ".git/index", "2 entries staged", 0, NULL } },
		  "git index: 2 entries staged\n" },
		{ { { M, 0, "HEAD", "main -> next", 0, NULL } }, "HEAD: main -> next\n" },
		{ { { M, 0, "t", "3 rows added, 1 deleted", 0, "/home/me/p/dev.db" },
		    { M, 0, "u", "1 row changed", 0, "/home/me/p/dev.db" } },
		  "dev.db: 5 rows\n" },
		{ { { A, 0, "t", "table added, 1 row added", 0, "/srv/dev.db" },
		    { M, 0, "user_version", "1 -> 2", 0, "/srv/dev.db" } },
		  "/srv/dev.db: 1 row, 2 definitions\n" },
		{ { { M, 0, "HEADINGS", "2 rows changed", 0, "/home/me/p/dev.db" } },
		  "dev.db: 2 rows\n" },
		{ { { M, 0, "t", "index added", 0, "postgres:///shop" } },
		  "postgres:///shop: 1 definition\n" },
		{ { { M, FILE_MODE, "a", NULL, 0, NULL },
		    { M, FILE_MODE, "b", NULL, 0, "/home/me/p/sub" },
		    { M, FILE_MODE, "c", NULL, 0, "/srv/x" } },
		  "M a   M sub/b   M /srv/x/c\n" },
		{ { { M, FILE_MODE, "\033[31m\n", NULL, 0, NULL } }, "M \\x1b[31m\\x0a\n" },
		/* Apart. */
		{ { { M, FILE_MODE, "a", NULL, ATOLL_CHANGE_CONFLICT, NULL } },
		  "M a\nconflict, changed outside the plan too: a\n" },
		{ { { A, FILE_MODE, "a", NULL, ATOLL_CHANGE_SETUID, NULL } },
		  "A a\nset-id bits, taken off without --allow setuid: a\n" },
		{ { { A, S_IFIFO, "a", NULL, ATOLL_CHANGE_SPECIAL, NULL } },
		  "A a\ndevice, socket or FIFO, not committed without --allow special: a\n" },
		{ { { A, FILE_MODE, ".git/hooks/x", NULL, ATOLL_CHANGE_GIT_PROGRAM, NULL } },
		  "A .git/hooks/x\n"
		  "git would run a program, not committed without --allow git-programs: "
		  ".git/hooks/x\n" },
		{ { { M, FILE_MODE, "dev.db", NULL, ATOLL_CHANGE_DATABASE, NULL } },
		  "M dev.db\n"
		  "SQLite database, replaced as a file unless it is given with --sqlite: dev.db\n" },
		{ { { A, S_IFLNK, "a", NULL, ATOLL_CHANGE_ESCAPING_LINK, NULL } },
		  "A a\nlink that leaves its tree: a\n" },
		{ { { M, FILE_MODE, ".git/config", "stays in the plan", 0, NULL },
		    { A, FILE_MODE, ".git/hooks/x", "stays in the plan", 0, NULL },
		    { A, DIR_MODE, ".git/worktrees/w", "will not arrive working", 0, NULL } },
		  "M .git/config   A .git/hooks/x   A .git/worktrees/w/\n"
		  "stays in the plan: .git/config, .git/hooks/x\n"
		  "will not arrive working: .git/worktrees/w/\n" },
		{ { { M, 0, ".git", "'a' is staged, too", 0, NULL },
		    { M, 0, "t", "1 row added", 0, "/home/me/p/dev.db" } },
		  "M .git   dev.db: 1 row\n.git, cannot be committed: 'a' is staged, too\n" },
		{ { { M, FILE_MODE, "1", NULL, ATOLL_CHANGE_CONFLICT, NULL },
		    { M, FILE_MODE, "2", NULL, ATOLL_CHANGE_CONFLICT, NULL },
		    { M, FILE_MODE, "3", NULL, ATOLL_CHANGE_CONFLICT, NULL },
		    { M, FILE_MODE, "4", NULL, ATOLL_CHANGE_CONFLICT, NULL },
		    { M, FILE_MODE, "5", NULL, ATOLL_CHANGE_CONFLICT, NULL } },
		  "M 1   M 2   M 3   M 4   M 5\n"
		  "conflict, changed outside the plan too: 1, 2, 3 and 2 more\n" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct atoll_change changes[8];
		size_t n = fill(changes, rows[i].made);
		cleanup_free char *said = summarize(changes, n, 200, 10);

		assert_string_equal(said, rows[i].said);
	}
}

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* DIRS directories of EACH files, changed one by one, and one that is new; as many lines as there are. */
static void what_does_not_fit_becomes_numbers(void **state)
{
	enum { DIRS = 20, EACH = 20, N = DIRS * EACH + 2 };
	static const struct {
		size_t lines;
		const char *said; /* among other things */
	} rows[] = {
		{ 200, "M top/d19/f19" },
		{ 12, "20 changed below top/d7/" },
		{ 2, "400 changed below top/" },
		{ 1, "400 changed below top/" },
	};
	struct atoll_change *changes = xcalloc(N, sizeof(*changes));
	size_t n = 0;

	(void)state;
	for (int d = 0; d < DIRS; d++)
		for (int f = 0; f < EACH; f++) {
			struct made made[2] = { { M, FILE_MODE, NULL, NULL, 0, NULL } };

			made[0].path = xasprintf("top/d%d/f%d", d, f);
			n += fill(&changes[n], made);
		}
	n += fill(&changes[n], (struct made[]){ { A, FILE_MODE, "new", NULL, 0, NULL },
	                                        { D, FILE_MODE, "old", NULL, 0, NULL },
	                                        { .path = NULL } });
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cleanup_free char *said = summarize(changes, n, 80, rows[i].lines);

		assert_non_null(strstr(said, rows[i].said));
		assert_non_null(strstr(said, "A new"));
		assert_non_null(strstr(said, "D old"));
		assert_true(count_lines(said) <= rows[i].lines);
	}
	for (size_t i = 0; i < DIRS * EACH; i++)
		free_const(changes[i].path);
	free(changes);
}

/* Lines as a terminal of WIDTH columns shows them. */
static size_t lines_shown(const char *said, size_t width)
{
	size_t used = 0;

	for (const char *at = said; *at; at += strcspn(at, "\n") + 1)
		used += 1 + (strcspn(at, "\n") - 1) / width;
	return used;
}

/* However many there are, and however long their names. */
static void it_never_has_more_lines_than_there_are(void **state)
{
	struct atoll_change changes[MOST];
	char paths[MOST][160];

	(void)state;
	for (size_t i = 0; i < MOST; i++) {
		struct made made[2] = { { M, FILE_MODE, paths[i], NULL, 0, NULL } };
		int len = snprintf(paths[i], sizeof(paths[i]), "%zu/", i);

		(void)memset(paths[i] + len, 'x', 120);
		paths[i][len + 120] = '\0';
		fill(&changes[i], made);
	}
	for (size_t lines = 1; lines < 40; lines++) {
		cleanup_free char *said = summarize(changes, MOST, 40, lines);

		assert_true(lines_shown(said, 40) <= lines);
	}
}

static void what_is_apart_becomes_numbers_on_a_small_screen(void **state)
{
	static const struct made made[] = {
		{ M, FILE_MODE, "both/changed", NULL, ATOLL_CHANGE_CONFLICT, NULL },
		{ M, FILE_MODE, "both/sides", NULL, ATOLL_CHANGE_CONFLICT, NULL },
		{ A, S_IFREG | 04755, "bin/set-id", NULL, ATOLL_CHANGE_SETUID, NULL },
		{ A, FILE_MODE, ".git/hooks/post-commit", NULL, ATOLL_CHANGE_GIT_PROGRAM, NULL },
		{ .path = NULL },
	};
	struct atoll_change changes[4];
	size_t n = fill(changes, made);
	cleanup_free char *wide = summarize(changes, n, 100, 6);
	cleanup_free char *narrow = summarize(changes, n, 20, 4);

	(void)state;
	assert_non_null(
		strstr(wide, "conflict, changed outside the plan too: both/changed, both/sides\n"));
	assert_true(lines_shown(wide, 100) <= 6);
	assert_non_null(strstr(narrow, "conflicts: 2\nset-id bits: 1\ngit programs: 1\n"));
	assert_true(lines_shown(narrow, 20) <= 4);
}

static void only_times_is_said_of_nothing_else(void **state)
{
	static const struct {
		struct made made[4];
		bool only;
		size_t files;
	} rows[] = {
		{ { { .path = NULL } }, false, 0 },
		{ { { M, FILE_MODE, "a", NULL, ATOLL_CHANGE_MTIME, NULL },
		    { M, DIR_MODE, "d", NULL, ATOLL_CHANGE_MTIME, NULL },
		    { M, S_IFLNK, "l", NULL, ATOLL_CHANGE_MTIME, NULL } },
		  true,
		  2 },
		{ { { M, FILE_MODE, "a", NULL, ATOLL_CHANGE_MTIME | ATOLL_CHANGE_MODE, NULL } },
		  false,
		  0 },
		{ { { M, FILE_MODE, "a", NULL, ATOLL_CHANGE_MTIME | ATOLL_CHANGE_CONFLICT, NULL } },
		  false,
		  0 },
		{ { { A, FILE_MODE, "a", NULL, ATOLL_CHANGE_MTIME, NULL } }, false, 0 },
		{ { { M, FILE_MODE, "a", NULL, ATOLL_CHANGE_MTIME, NULL },
		    { M, FILE_MODE, "b", NULL, 0, NULL } },
		  false,
		  1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct atoll_change changes[4];
		size_t n = fill(changes, rows[i].made), files;

		assert_int_equal(summary_only_times(changes, n, &files), rows[i].only);
		if (rows[i].only)
			assert_int_equal(files, rows[i].files);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind_has_its_words),
		cmocka_unit_test(what_does_not_fit_becomes_numbers),
		cmocka_unit_test(it_never_has_more_lines_than_there_are),
		cmocka_unit_test(what_is_apart_becomes_numbers_on_a_small_screen),
		cmocka_unit_test(only_times_is_said_of_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

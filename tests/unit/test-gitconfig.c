/* SPDX-License-Identifier: Apache-2.0 */
/* git-config files: read as git reads them, edited without touching anything else. */
#include "util/gitconfig.h"

#include "util/cleanup.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* As `git config --list -z` puts it: key, newline, value, NUL. */
static int put(void *user, const struct gitconfig_entry *e)
{
	struct strbuf *sb = user;

	strbuf_puts(sb, e->key);
	if (e->value) {
		strbuf_putc(sb, '\n');
		strbuf_puts(sb, e->value);
	}
	strbuf_putc(sb, '\0');
	return 0;
}

static void entries_are_told_as_they_stand(void **state)
{
	static const struct {
		const char *text;
		const char *told; /* NULs as '|' */
		int r;
		unsigned line;
	} rows[] = {
		{ "", "", 0, 0 },
		{ "[core]\n\tPager = less -R\n", "core.pager\nless -R|", 0, 0 },
		{ "\xef\xbb\xbf[a]\nx=1", "a.x\n1|", 0, 0 },
		{ "[a \"B \\\"c\\\\\"] y", "a.B \"c\\.y|", 0, 0 },
		{ "[a.B]x = 1\r\n; note\r\n y = 2 # two\r\n", "a.b.x\n1|a.b.y\n2|", 0, 0 },
		{ "[a]\nx = \" p;q \" # r\n", "a.x\n p;q |", 0, 0 },
		{ "[a]\nx = p\\\n  q\\tr\\n\n", "a.x\np  q\tr\n|", 0, 0 },
		{ "[a]\nx =\n", "a.x\n|", 0, 0 },
		{ "[a]\nx = 1\nx = 2\n", "a.x\n1|a.x\n2|", 0, 0 },
		{ "x = 1\n", "x\n1|", 0, 0 },
		{ "[a]\nx = 1\n[b\n", "a.x\n1|", -EINVAL, 3 },
		{ "[a]\nx = \"1\n", "", -EINVAL, 2 },
		{ "[a]\nx = \\z\n", "", -EINVAL, 2 },
		{ "[a]\n1x = 1\n", "", -EINVAL, 2 },
		{ "[a]\nx y\n", "", -EINVAL, 2 },
		{ "[a_b]\n", "", -EINVAL, 1 },
		{ "[a \"b]\n", "", -EINVAL, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cleanup_strbuf struct strbuf sb = STRBUF_INIT;
		unsigned line = 0;
		int r = gitconfig_read(rows[i].text, strlen(rows[i].text), put, &sb, &line);

		for (size_t k = 0; k < sb.len; k++)
			if (sb.buf[k] == '\0')
				sb.buf[k] = '|';
		assert_string_equal(strbuf_str(&sb), rows[i].told);
		assert_int_equal(r, rows[i].r);
		if (r < 0)
			assert_int_equal(line, rows[i].line);
	}
	assert_int_equal(gitconfig_read("[a]\0x", 5, put, NULL, NULL), -EINVAL);
}

/* ---- beside git ---- */

static unsigned seed;

static unsigned chance(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 16) % n;
}

/* Pieces of which some fit together. A tab between words of a value is left out: until git 2.45 it
 * came back as a space. */
static void make_up(struct strbuf *sb)
{
	static const char *const pieces[] = {
		"[a]",
		"[A.b]",
		"[core \"X y\"]",
		"[c \"q\\\"\\\\.z\"]",
		"[ d]",
		"[e",
		"x = 1",
		"Y=two",
		"flag",
		"z-9 = ",
		"a = \"",
		"b = q\\",
		"c = \\t\\n\\b\\\\\\\"",
		"d = \\q",
		"e = a;b",
		"f = \"a;b#c\" d",
		"# note",
		"; note",
		"\n",
		"\n",
		"\n",
		"\n",
		"\r\n",
		" ",
		"\t",
		"g = 1   ",
		"h = a b",
		"=",
		"\"",
		"\\",
		"i = gr\xc3\xbc\xc3\x9f",
		"[f \"\"]",
		"[]",
		"[ \"k\"]",
		"_",
		"]",
		"\r",
	};
	unsigned n = 1 + chance(9);

	if (chance(20) == 0)
		strbuf_puts(sb, "\xef\xbb\xbf");
	while (n--) {
		strbuf_puts(sb, pieces[chance(sizeof(pieces) / sizeof(pieces[0]))]);
		if (chance(3))
			strbuf_putc(sb, '\n');
	}
}

static void write_file(const char *path, const struct strbuf *sb)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_int_equal(fwrite(strbuf_str(sb), 1, sb->len, f), sb->len);
	assert_int_equal(fclose(f), 0);
}

/* Its exit status, and what it printed. */
static int git(const char *command, struct strbuf *ret)
{
	char buf[4096];
	FILE *f = popen(command, "r");
	size_t n;

	assert_non_null(f);
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0)
		strbuf_add(ret, buf, n);
	n = (size_t)pclose(f);
	assert_true(WIFEXITED((int)n));
	return WEXITSTATUS((int)n);
}

static void git_reads_the_same(void **state)
{
	char path[] = "/tmp/atoll-gitconfig-XXXXXX", command[128];
	unsigned good = 0, bad = 0;

	(void)state;
	assert_true(mkstemp(path) >= 0);
	(void)snprintf(command, sizeof(command), "git config -f %s --list -z 2>/dev/null", path);
	seed = 20261115;
	for (unsigned i = 0; i < 400; i++) {
		cleanup_strbuf struct strbuf text = STRBUF_INIT, ours = STRBUF_INIT,
					     theirs = STRBUF_INIT;
		int r, status;

		make_up(&text);
		write_file(path, &text);
		status = git(command, &theirs);
		r = gitconfig_read(strbuf_str(&text), text.len, put, &ours, NULL);
		if ((r < 0) != (status != 0) || ours.len != theirs.len ||
		    (ours.len && memcmp(ours.buf, theirs.buf, ours.len) != 0))
			fail_msg("git %d, we %d:\n%s\n--\n%s\n--\n%s", status, r, strbuf_str(&text),
			         strbuf_str(&theirs), strbuf_str(&ours));
		if (r < 0)
			bad++;
		else if (ours.len)
			good++;
	}
	(void)unlink(path);
	assert_true(good > 50 && bad > 50);
}

static void git_reads_what_was_written(void **state)
{
	static const char *const values[] = {
		"plain",
		"",
		" led",
		"trailed ",
		"a;b",
		"a#b",
		"q\"uote",
		"back\\slash",
		"new\nline",
		"tab\there",
		"gr\xc3\xbc\xc3\x9f",
		"\r",
		"a\b",
	};
	char path[] = "/tmp/atoll-gitconfig-XXXXXX", command[128];

	(void)state;
	assert_true(mkstemp(path) >= 0);
	(void)snprintf(command, sizeof(command), "git config -f %s -z 'core.A \"b\\.x'", path);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		cleanup_strbuf struct strbuf text = STRBUF_INIT, theirs = STRBUF_INIT;

		assert_int_equal(gitconfig_edit("", 0, "core.A \"b\\.x", values[i], &text, NULL),
		                 0);
		write_file(path, &text);
		assert_int_equal(git(command, &theirs), 0);
		assert_string_equal(strbuf_str(&theirs), values[i]);
	}
	(void)unlink(path);
}

/* ---- editing ---- */

static void an_edit_leaves_all_else(void **state)
{
	static const struct {
		const char *text, *key, *value, *after;
		int r;
	} rows[] = {
		{ "", "core.pager", "less", "[core]\n\tpager = less\n", 0 },
		{ "# mine\n[Core]\n\tPager = more ; why\n[x]\n y\n", "core.pager", "less",
		  "# mine\n[Core]\n\tpager = less ; why\n[x]\n y\n", 0 },
		{ "[core]\n\ta = 1 # one\n\n[x]\n", "core.b", "2",
		  "[core]\n\ta = 1 # one\n\tb = 2\n\n[x]\n", 0 },
		{ "[core]\n[x]\n[core]\n", "core.b", "2", "[core]\n[x]\n[core]\n\tb = 2\n", 0 },
		{ "[core \"s\"]\n\ta = 1\n", "core.a", "2",
		  "[core \"s\"]\n\ta = 1\n[core]\n\ta = 2\n", 0 },
		{ "[core]\na = 1", "core.b", "2", "[core]\na = 1\n\tb = 2\n", 0 },
		{ "[x]\na = \\\n", "core.b", "2", "[x]\na = \\\n\n[core]\n\tb = 2\n", 0 },
		{ "[core][x] a = 1\n", "core.b", "2", "[core]\n\tb = 2\n[x] a = 1\n", 0 },
		{ "[core] a = 1\n", "core.a", "2", "[core] a = 2\n", 0 },
		{ "[core]\na = 1\na = 2\n", "core.a", "3", "[core]\na = 1\na = 3\n", 0 },
		{ "[core]\n\ta = x\\\n  y\n\tb = 1\n", "core.a", "z", "[core]\n\ta = z\n\tb = 1\n",
		  0 },
		{ "[core]\n\ta = 1 # gone\n\tb = 2\n", "core.a", NULL, "[core]\n\tb = 2\n", 0 },
		{ "[core] a = 1\nA = 2\n\tb = 2\n", "core.a", NULL, "[core]\n\tb = 2\n", 0 },
		{ "[core]\n", "core.a", NULL, NULL, -ENOENT },
		{ "[core\n", "core.a", "1", NULL, -EINVAL },
		{ "", "core", "1", NULL, -EINVAL },
		{ "", "core.1a", "1", NULL, -EINVAL },
		{ "", "co re.a", "1", NULL, -EINVAL },
		{ "", ".a", "1", NULL, -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cleanup_strbuf struct strbuf sb = STRBUF_INIT;
		int r = gitconfig_edit(rows[i].text, strlen(rows[i].text), rows[i].key,
		                       rows[i].value, &sb, NULL);

		assert_int_equal(r, rows[i].r);
		if (r == 0)
			assert_string_equal(strbuf_str(&sb), rows[i].after);
	}
}

/* ---- values ---- */

static void values_are_taken_as_git_takes_them(void **state)
{
	static const char *const values[] = {
		"true", "Yes", "ON",    "false", "no",  "Off",  "",
		"1",    "0",   "7",     "-1",    "10k", "0x10", "010",
		"2G",   "1m",  "maybe", "1kb",   "k",   " 1",   "99999999999999999999",
	};
	char command[160];

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		cleanup_strbuf struct strbuf b = STRBUF_INIT, n = STRBUF_INIT;
		int64_t number = 0;
		bool is = false;
		int status;
		char text[32];

		(void)snprintf(command, sizeof(command),
		               "git -c x.y='%s' config --type=bool x.y 2>/dev/null", values[i]);
		status = git(command, &b);
		assert_int_equal(gitconfig_bool(values[i], &is) < 0, status != 0);
		if (status == 0)
			assert_string_equal(strbuf_str(&b), is ? "true\n" : "false\n");
		(void)snprintf(command, sizeof(command),
		               "git -c x.y='%s' config --type=int x.y 2>/dev/null", values[i]);
		status = git(command, &n);
		assert_int_equal(gitconfig_int(values[i], &number) < 0, status != 0);
		(void)snprintf(text, sizeof(text), "%lld\n", (long long)number);
		if (status == 0)
			assert_string_equal(strbuf_str(&n), text);
	}
	assert_int_equal(gitconfig_bool(NULL, &(bool){ false }), 0);
	assert_int_equal(gitconfig_int("9223372036854775807k", &(int64_t){ 0 }), -ERANGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_are_told_as_they_stand),
		cmocka_unit_test(git_reads_the_same),
		cmocka_unit_test(git_reads_what_was_written),
		cmocka_unit_test(an_edit_leaves_all_else),
		cmocka_unit_test(values_are_taken_as_git_takes_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

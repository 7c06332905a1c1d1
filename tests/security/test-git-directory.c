/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Atoll takes for a git directory and for settings, beside what the git of this machine does, on thousands
 * of inputs that were made by changing good ones. What git takes for one must be one here; where only Atoll says
 * yes, it must be for what git-directory.h says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "diff/git-directory.h"
#include "diff/git-settings.h"
#include "fs/atomic.h"
#include "fs/remove.h"
#include "util/cleanup.h"
#include "util/gitconfig.h"
#include "util/mem.h"
#include "util/strbuf.h"

#define DIRECTORIES 900
#define TEXTS       900
#define BOOLS       200
#define ID          "0123456789abcdef0123456789abcdef01234567"

static uint64_t seed = 20261119; /* the same inputs every time */

static unsigned below(unsigned n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % n;
}

/* Up to three changes of a byte; ALPHABET may hold a NUL. */
static void mutate(struct strbuf *sb, const char *alphabet, size_t n)
{
	for (unsigned left = below(4); left > 0; left--) {
		size_t at = below((unsigned)sb->len + 1);
		cleanup_free char *rest = memcpy(xcalloc(sb->len + 1, 1), strbuf_str(sb), sb->len);
		size_t len = sb->len, skip = below(2);

		strbuf_truncate(sb, at);
		if (below(3))
			strbuf_putc(sb, alphabet[below((unsigned)n)]);
		if (at + skip < len)
			strbuf_add(sb, rest + at + skip, len - at - skip);
	}
}

/* What git says, with its exit status; nothing of the machine's settings counts. */
static int git(struct strbuf *out, const char *const argv[])
{
	char buf[4096];
	int pipes[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		(void)dup2(null, 0);
		(void)dup2(pipes[1], 1);
		(void)dup2(null, 2);
		(void)setenv("GIT_CONFIG_NOSYSTEM", "1", 1);
		(void)setenv("GIT_CONFIG_GLOBAL", "/dev/null", 1);
		(void)execvp("git", (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	close(pipes[1]);
	while ((n = read(pipes[0], buf, sizeof(buf))) > 0)
		if (out)
			strbuf_add(out, buf, (size_t)n);
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 127);
	return WEXITSTATUS(status);
}

static void write_at(int dir_fd, const char *name, const struct strbuf *text, mode_t mode)
{
	int fd = openat(dir_fd, name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fs_write_all(fd, strbuf_str(text), text->len), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static int setup(void **state)
{
	char *path = xstrdup("/var/tmp/atoll-git-directory.XXXXXX");

	*state = path;
	return mkdtemp(path) ? 0 : -1;
}

static int teardown(void **state)
{
	int r = remove_tree(*state);

	free(*state);
	return r;
}

/* ---- directories ---- */

/* Something named NAME. Returns that git and Atoll may judge it differently. */
static bool make_part(int fd, const char *name)
{
	cleanup_strbuf struct strbuf empty = STRBUF_INIT;

	switch (below(12)) {
	case 0:
		return false;
	case 1:
		write_at(fd, name, &empty, 0644);
		return true;
	case 2:
		write_at(fd, name, &empty, 0755);
		return true;
	case 3:
		assert_int_equal(symlinkat("..", fd, name), 0);
		return true;
	case 4:
		assert_int_equal(symlinkat("nowhere", fd, name), 0);
		return true;
	case 5:
		assert_int_equal(mkdirat(fd, name, 0), 0);
		return true;
	default:
		assert_int_equal(mkdirat(fd, name, 0755), 0);
		return false;
	}
}

static void make_head(int fd)
{
	static const char *const heads[] = { "ref: refs/heads/main\n",
		                             "ref:refs/heads/main",
		                             "ref:\t\n refs/x",
		                             ID "\n",
		                             ID ID "\n",
		                             "ref: refs/",
		                             "refs/heads/main" };
	static const char alphabet[] = " \t\n\r\v\f\0ref:REFs/0aAfFgG;#";
	cleanup_strbuf struct strbuf text = STRBUF_INIT;

	strbuf_puts(&text, heads[below(sizeof(heads) / sizeof(heads[0]))]);
	for (size_t i = 0; i < text.len && below(8) == 0; i++)
		text.buf[i] = (char)toupper((unsigned char)text.buf[i]);
	mutate(&text, alphabet, sizeof(alphabet) - 1);
	switch (below(8)) {
	case 0:
		if (*strbuf_str(&text))
			assert_int_equal(symlinkat(strbuf_str(&text), fd, "HEAD"), 0);
		break;
	case 1:
		if (below(4) == 0)
			assert_int_equal(mkdirat(fd, "HEAD", 0755), 0);
		break;
	default:
		write_at(fd, "HEAD", &text, below(16) ? 0644 : 0);
	}
}

static bool make_commondir(int fd)
{
	static const char *const texts[] = { "../good\n", "../good", "nowhere\n", "../good\r\n" };
	cleanup_strbuf struct strbuf text = STRBUF_INIT;

	if (below(6))
		return false;
	strbuf_puts(&text, texts[below(4)]);
	if (below(4) == 0)
		assert_int_equal(symlinkat(strbuf_str(&text), fd, "commondir"), 0);
	else
		write_at(fd, "commondir", &text, 0644);
	return true;
}

static void git_directories_are_those_of_git(void **state)
{
	cleanup_close int top = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct tree_state now = { .orig_fd = top };
	unsigned both = 0, neither = 0, careful = 0;

	assert_int_equal(mkdirat(top, "good", 0755), 0);
	assert_int_equal(mkdirat(top, "good/objects", 0755), 0);
	assert_int_equal(mkdirat(top, "good/refs", 0755), 0);
	for (int i = 0; i < DIRECTORIES; i++) {
		cleanup_free char *name = xasprintf("d%d", i);
		cleanup_free char *path = xasprintf("%s/%s", (const char *)*state, name);
		const char *const argv[] = { "git", "rev-parse", "--resolve-git-dir", path, NULL };
		cleanup_close int fd = FD_NONE;
		bool may_differ, of_git, of_ours;
		struct stat st;

		assert_int_equal(mkdirat(top, name, 0755), 0);
		fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		make_head(fd);
		may_differ = make_part(fd, "objects");
		may_differ = make_part(fd, "refs") || may_differ;
		may_differ = make_commondir(fd) || may_differ;
		if (fstatat(fd, "HEAD", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
		    st.st_mode == S_IFREG)
			may_differ = true; /* one that the user may not read */
		of_git = git(NULL, argv) == 0;
		of_ours = git_directory_is(&now, name) == 1;
		if (of_git && !of_ours)
			fail_msg("git takes case %d for a git directory", i);
		if (of_ours && !of_git && !may_differ)
			fail_msg("git does not take case %d for a git directory", i);
		both += of_git && of_ours;
		neither += !of_git && !of_ours;
		careful += of_ours && !of_git;
	}
	print_message("# both %u, neither %u, only here %u\n", both, neither, careful);
	assert_true(both > DIRECTORIES / 10 && neither > DIRECTORIES / 10);
}

/* ---- settings ---- */

static const char *const texts[] = {
	"[core]\n\tbare = false\n\tfsmonitor = ./x # no\n",
	"[remote \"o\"]\n\turl = \"ext::sh -c x\"\n[alias] st = !x\n",
	"[Core \"a.b\\\"c\"] Pager=a\\\nb\n;c\n[include]path=x\n",
	"\xef\xbb\xbf[a.B.c]\n\tx\n\ty = \"a;b\" ; c\n",
	ID "\n[core]\n\tfsmonitor = x\n",
	"deadbeef\n[core] hookspath=x\n\r\n",
	"[section]\r\n\tkey = value\\t\\\\\\n\r\n[user]name=\"a \" \n",
};

static int put_entry(void *user, const struct gitconfig_entry *e)
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

/* Versions of git differ in what white space inside a value becomes. */
static void even_out(struct strbuf *sb)
{
	for (size_t i = 0; i < sb->len; i++)
		if (strchr("\t\r", sb->buf[i]) && sb->buf[i])
			sb->buf[i] = ' ';
}

static void settings_are_read_as_git_does(void **state)
{
	static const char alphabet[] = " \t\n\r\0\\\"[]=;#.-aB0:!xn";
	cleanup_close int top = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_free char *path = xasprintf("%s/config", (const char *)*state);
	const char *const argv[] = { "git",           "config", "-f", path,
		                     "--no-includes", "--list", "-z", NULL };
	unsigned both = 0, careful = 0;

	for (int i = 0; i < TEXTS; i++) {
		cleanup_strbuf struct strbuf text = STRBUF_INIT, theirs = STRBUF_INIT,
					     ours = STRBUF_INIT;
		bool of_git, of_ours;

		strbuf_puts(&text, texts[below(sizeof(texts) / sizeof(texts[0]))]);
		mutate(&text, alphabet, sizeof(alphabet) - 1);
		write_at(top, "config", &text, 0600);
		of_git = git(&theirs, argv) == 0;
		of_ours = gitconfig_read(strbuf_str(&text), text.len, put_entry, &ours, NULL) == 0;
		careful += of_git && !of_ours;
		if (!of_git || !of_ours)
			continue;
		both++;
		even_out(&theirs);
		even_out(&ours);
		if (theirs.len != ours.len ||
		    memcmp(strbuf_str(&theirs), strbuf_str(&ours), ours.len) != 0)
			fail_msg("case %d is read as '%s', by git as '%s'", i, strbuf_str(&ours),
			         strbuf_str(&theirs));
	}
	print_message("# both %u of %u, only git %u\n", both, TEXTS, careful);
	assert_true(both > TEXTS / 4 && careful < TEXTS / 4);
}

/* A value that Atoll takes for a boolean must not be a program's name for git. */
static void booleans_are_those_of_git(void **state)
{
	static const char *const values[] = { "true", "FALSE", "yes", "no",         "on",
		                              "off",  "1",     "0",   "0x10",       "017",
		                              "2k",   "-1",    "",    "99999999999" };
	static const char alphabet[] = "xXtruefalsnoykmg0179-+. ";
	cleanup_close int top = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_free char *path = xasprintf("%s/bools", (const char *)*state);
	const char *const argv[] = { "git", "config", "-f", path, "--type=bool", "core.x", NULL };
	unsigned both = 0;

	for (int i = 0; i < BOOLS; i++) {
		cleanup_strbuf struct strbuf value = STRBUF_INIT, text = STRBUF_INIT;
		bool is;

		strbuf_puts(&value, values[below(sizeof(values) / sizeof(values[0]))]);
		mutate(&value, alphabet, sizeof(alphabet) - 1);
		strbuf_printf(&text, "[core]\n\tx = \"%s\"\n", strbuf_str(&value));
		write_at(top, "bools", &text, 0600);
		if (gitconfig_bool(strbuf_str(&value), &is) < 0)
			continue;
		both++;
		if (git(NULL, argv) != 0)
			fail_msg("'%s' is no boolean for git", strbuf_str(&value));
	}
	assert_true(both > BOOLS / 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(git_directories_are_those_of_git),
		cmocka_unit_test(settings_are_read_as_git_does),
		cmocka_unit_test(booleans_are_those_of_git),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

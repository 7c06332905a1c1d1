/* SPDX-License-Identifier: Apache-2.0 */
/* Which entries would make git run a program. */
#include "diff/git-program.h"

#include "diff/tree-impl.h"
#include "fs-fixture.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define HARMLESS                                                                              \
	"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"          \
	"[remote \"origin\"]\n\turl = https://x/y.git\n\tfetch = +refs/heads/*:refs/remotes/" \
	"origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n"         \
	"[user]\n\tname = A\n"
#define ID "0123456789012345678901234567890123456789"

struct row {
	const char *path;
	const char *text; /* of a file; of a link after "->" */
	unsigned mode;
	bool runs;
	const char *before; /* what the original holds there, or NULL */
	const char *beside; /* another file there, in the workspace */
	const char *below;  /* another one, in the original */
};

static const struct row rows[] = {
	/* settings */
	{ ".git/config", HARMLESS, 0644, false, NULL, NULL, NULL },
	{ "a/b/.git/config", HARMLESS, 0644, false, NULL, NULL, NULL },
	{ ".git/config", "", 0644, false, NULL, NULL, NULL },
	{ ".git/config", "\xef\xbb\xbf[core]\n\tbare = false\n", 0644, false, NULL, NULL, NULL },
	{ ".git/config", "[core]\n\tfsmonitor = true\n", 0644, false, NULL, NULL, NULL },
	{ ".git/config", "[core]\n\tfsmonitor\n", 0644, false, NULL, NULL, NULL },
	{ ".git/config", "[core]\n\tfsmonitor = ./run\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[CORE]\n\tFsMonitor = ./run\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[core] fsmonitor = ./run\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[core]\nfsmonitor = ./\\\nrun\n", 0644, true, NULL, NULL, NULL },
	{ ".GIT/config", "[core]\n\tfsmonitor = ./run\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[core]\n\thooksPath = x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[core]\n\tpager = x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[core \"x\"]\n\tbare = x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[alias]\n\tst = !x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[include]\n\tpath = x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[includeIf \"gitdir:x\"]\n\tpath = x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[filter \"x\"]\n\tclean = x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[credential]\n\thelper = x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[remote \"o\"]\n\turl = git@x:y\n", 0644, false, NULL, NULL, NULL },
	{ ".git/config", "[remote \"o\"]\n\turl = /a::b\n", 0644, false, NULL, NULL, NULL },
	{ ".git/config", "[remote \"o\"]\n\turl = ext::sh -c x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[remote \"o\"]\n\turl = -ux\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[remote \"o\"]\n\tuploadpack = x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[submodule \"o\"]\n\tupdate = rebase\n", 0644, false, NULL, NULL, NULL },
	{ ".git/config", "[submodule \"o\"]\n\tupdate = !x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config", "[core\n", 0644, true, NULL, NULL, NULL },
	{ ".git/config.worktree", "[core]\n\tfsmonitor = x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/modules/m/config", "[core]\n\tfsmonitor = x\n", 0644, true, NULL, NULL, NULL },
	{ ".git/modules/m/config", "[core]\n\tworktree = ../../../m\n", 0644, false, NULL, NULL,
	  NULL },
	{ ".git/config", "->elsewhere", 0, true, NULL, NULL, NULL },
	/* what was there before */
	{ ".git/config", "[alias]\n\ta = !x\n[user]\n\tname = B\n", 0644, false,
	  "[alias]\n\ta = !x\n", NULL, NULL },
	{ ".git/config", "[alias]\n\ta = !y\n", 0644, true, "[alias]\n\ta = !x\n", NULL, NULL },
	/* a ref of that name */
	{ ".git/refs/heads/config", ID "\n", 0644, false, NULL, NULL, NULL },
	{ ".git/logs/refs/heads/config", ID " " ID " A <a> 1 +0\tx\n", 0644, false, NULL, NULL,
	  NULL },
	{ ".git/refs/remotes/o/HEAD", "ref: refs/remotes/o/main\n", 0644, false, NULL, NULL, NULL },
	{ ".git/refs/heads/hooks/fix", ID "\n", 0644, false, NULL, NULL, NULL },
	/* no git directory */
	{ "config", "[core]\n\tfsmonitor = x\n", 0644, false, NULL, NULL, NULL },
	{ "d/config", "->elsewhere", 0, false, NULL, NULL, NULL },
	{ "d/hooks/x", "", 0755, false, NULL, NULL, NULL },
	{ "d/HEAD", "a method of HTTP\n", 0644, false, NULL, NULL, NULL },
	{ "d/commondir", "x\n", 0644, false, NULL, NULL, NULL },
	{ "d/.gitignore", "x\n", 0644, false, NULL, NULL, NULL },
	/* one of another name */
	{ "x.git/config", "[core]\n\tfsmonitor = x\n", 0644, true, NULL, NULL, NULL },
	{ "d/config", "[core]\n\tfsmonitor = x\n", 0644, true, NULL, "d/HEAD", NULL },
	{ "d/config", "[core]\n\tfsmonitor = x\n", 0644, true, NULL, NULL, "d/HEAD" },
	{ "d/config", HARMLESS, 0644, false, NULL, "d/HEAD", NULL },
	{ "d/HEAD", "ref: refs/heads/main\n", 0644, true, NULL, NULL, NULL },
	{ "d/HEAD", "ref: refs/heads/main\n", 0644, false, NULL, "d/config", NULL },
	{ "d/HEAD", ID "\n", 0644, false, "ref: refs/heads/main\n", NULL, NULL },
	{ "d/hooks/x", "", 0755, true, NULL, "d/HEAD", NULL },
	{ "d/hooks/x", "", 0755, true, NULL, NULL, "d/HEAD" },
	/* hooks */
	{ ".git/hooks/pre-commit", "", 0755, true, NULL, NULL, NULL },
	{ ".git/hooks/pre-commit", "", 0644, false, NULL, NULL, NULL },
	{ ".git/hooks/pre-commit.sample", "", 0755, false, NULL, NULL, NULL },
	{ ".git/hooks/post-commit", "->x", 0, true, NULL, NULL, NULL },
	{ ".git/modules/m/hooks/pre-push", "", 0700, true, NULL, NULL, NULL },
	{ ".git/hooks", "->../tools", 0, true, NULL, NULL, NULL },
	/* leading elsewhere */
	{ "m/.git", "gitdir: ../.git/modules/m\n", 0644, false, NULL, NULL, NULL },
	{ "m/.git", "gitdir: /home/u/r/.git/worktrees/m\n", 0644, false, NULL, NULL, NULL },
	{ "m/.git", "gitdir: ../d\n", 0644, true, NULL, NULL, NULL },
	{ "m/.git", "gitdir: x.git/../d\n", 0644, true, NULL, NULL, NULL },
	{ "m/.git", "->../d", 0, true, NULL, NULL, NULL },
	{ "m/.git", "->../o/.git", 0, false, NULL, NULL, NULL },
	{ ".git/worktrees/w/commondir", "../..\n", 0644, false, NULL, NULL, NULL },
	{ ".git/worktrees/w/commondir", "../../../d\n", 0644, true, NULL, NULL, NULL },
	{ "a/b/.git/commondir", "../..\n", 0644, true, NULL, NULL, NULL },
};

static void put(int top_fd, const char *top, const char *path, const char *text, unsigned mode)
{
	cleanup_free char *full = xasprintf("%s/%s", top, path);
	cleanup_close int fd = FD_NONE;

	for (char *at = full; (at = strchr(at + 1, '/'));) {
		*at = '\0';
		(void)mkdirat(top_fd, full, 0755);
		*at = '/';
	}
	if (strncmp(text, "->", 2) == 0) {
		assert_int_equal(symlinkat(text + 2, top_fd, full), 0);
		return;
	}
	fd = openat(top_fd, full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
}

/* The directory around PATH below TOP, or -1. */
static int parent(int top_fd, const char *top, const char *path)
{
	cleanup_free char *full = xasprintf("%s/%s", top, path);

	*strrchr(full, '/') = '\0';
	return openat(top_fd, full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool judge(int top_fd, const struct row *row)
{
	const char *slash = strrchr(row->path, '/');
	cleanup_close int dir_fd = FD_NONE, orig_fd = FD_NONE;
	struct tree_new e = { .name = slash ? slash + 1 : row->path, .path = row->path };
	struct fs_stat st;
	bool runs = false;

	put(top_fd, "work", row->path, row->text, row->mode);
	if (row->beside)
		put(top_fd, "work", row->beside, "", 0644);
	if (row->before)
		put(top_fd, "orig", row->path, row->before, 0644);
	if (row->below)
		put(top_fd, "orig", row->below, "", 0644);
	if (row->below && strstr(row->path, "hooks/"))
		put(top_fd, "orig", "d/hooks/other", "", 0644);
	dir_fd = parent(top_fd, "work", row->path);
	orig_fd = parent(top_fd, "orig", row->path);
	e.dir_fd = dir_fd;
	e.orig_fd = orig_fd;
	e.base_mode = row->before ? S_IFREG | 0644 : 0;
	assert_int_equal(fs_stat_at(dir_fd, e.name, 0, &st), 0);
	e.st = &st;
	assert_int_equal(git_program(&e, &runs), 0);
	assert_true(!runs || git_program_named(e.name, e.path));
	return runs;
}

static void git_programs_by_name_and_content(void **state)
{
	int top_fd = ((struct fixture *)*state)->dir[1].fd;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		bool runs = judge(top_fd, &rows[i]);

		if (runs != rows[i].runs)
			fail_msg("%s with '%s': %d", rows[i].path, rows[i].text, runs);
		assert_int_equal(remove_tree_at(top_fd, "work"), 0);
		assert_int_equal(remove_tree_at(top_fd, "orig"), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(git_programs_by_name_and_content, fixture_setup,
		                                fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

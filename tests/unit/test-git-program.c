/* SPDX-License-Identifier: Apache-2.0 */
/* Which changes would make git run a program: judged on a resource and an overlay's upper directory. */
#include "diff/git-program.h"

#include "diff/upper.h"
#include "fs-fixture.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#define HARMLESS                                                                              \
	"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"          \
	"[remote \"origin\"]\n\turl = https://x/y.git\n\tfetch = +refs/heads/*:refs/remotes/" \
	"origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n"         \
	"[user]\n\tname = A\n"
#define EVIL      "[core]\n\tfsmonitor = x\n"
#define ID        "0123456789012345678901234567890123456789"
#define REPO(dir) dir "/HEAD=ref: refs/heads/main\n", dir "/objects/a=", dir "/refs/a="

/* "PATH=TEXT", "PATH*TEXT" of a file that can be executed, "PATH>TARGET" of a link. */
struct row {
	const char *name;
	const char *found; /* paths, each with a space behind it */
	const char *orig[6];
	const char *work[8];
};

static const struct row rows[] = {
	{ "harmless", "", { 0 }, { REPO(".git"), ".git/config=" HARMLESS } },
	{ "empty", "", { 0 }, { REPO(".git"), ".git/config=" } },
	{ "evil", ".git/config ", { 0 }, { REPO(".git"), ".git/config=" EVIL } },
	{ "below", "a/b/.git/config ", { 0 }, { "a/b/.git/config=" EVIL } },
	{ "to be initialised", ".git/config ", { 0 }, { ".git/config=" EVIL } },
	{ "other letters", ".GIT/config ", { 0 }, { ".GIT/config=" EVIL } },
	{ "all in other letters",
	  "d/CONFIG ",
	  { 0 },
	  { "d/head=ref: refs/x\n", "d/Objects/a=", "d/REFS/a=", "d/CONFIG=" EVIL } },
	{ "like a ref", ".git/config ", { REPO(".git") }, { ".git/config=" ID "\n" EVIL } },
	{ "like letters",
	  ".git/config ",
	  { REPO(".git") },
	  { ".git/config=deadbeefdeadbeefdeadbeefdeadbeefdeadbeef\n" EVIL } },
	{ "per worktree",
	  ".git/config.worktree ",
	  { REPO(".git") },
	  { ".git/config.worktree=" EVIL } },
	{ "a link", ".git/config ", { REPO(".git") }, { ".git/config>x" } },
	{ "a broken one", ".git/config ", { REPO(".git") }, { ".git/config=[core\n" } },
	/* what was there before */
	{ "more that is harmless",
	  "",
	  { REPO(".git"), ".git/config=[alias]\n\ta = !x\n" },
	  { ".git/config=[alias]\n\ta = !x\n[user]\n\tname = B\n" } },
	{ "another",
	  ".git/config ",
	  { REPO(".git"), ".git/config=[alias]\n\ta = !x\n" },
	  { ".git/config=[alias]\n\ta = !y\n" } },
	{ "another HEAD", "", { REPO("d"), "d/config=" EVIL }, { "d/HEAD=" ID "\n" } },
	{ "a link that was", "", { REPO("d"), "d/config>x" }, { "d/HEAD=" ID "\n" } },
	/* no git directory before, and so nothing was judged */
	/* it might have been the common one of worktrees, and was judged as such */
	{ "a HEAD of what was judged",
	  "",
	  { "d/config=" EVIL, "d/objects/a=", "d/refs/a=" },
	  { "d/HEAD=ref: refs/heads/x\n" } },
	{ "a HEAD without a blank",
	  "d/HEAD ",
	  { "d/config=" EVIL, "d/objects/a=" },
	  { "d/HEAD=ref:refs/heads/x\n", "d/refs/a=" } },
	{ "refs",
	  "d/refs ",
	  { "d/config=" EVIL, "d/HEAD=ref:\trefs/x\n", "d/objects/a=" },
	  { "d/refs/a=" } },
	{ "an id", "d/refs ", { "d/config=" EVIL, "d/HEAD=" ID, "d/objects/a=" }, { "d/refs/a=" } },
	{ "a HEAD that is a link",
	  "d/HEAD ",
	  { "d/config=" EVIL, "d/objects/a=" },
	  { "d/HEAD>refs/heads/x", "d/refs/a=" } },
	{ "links for directories",
	  "d/config ",
	  { 0 },
	  { "d/HEAD=" ID, "d/objects>../x", "d/refs>../y", "d/config=" EVIL } },
	{ "settings looked at again",
	  "d/config ",
	  { "d/config=" EVIL },
	  { REPO("d"), "d/config=" EVIL "#\n" } },
	{ "hooks that were waiting",
	  "d/refs ",
	  { "d/hooks/x*", "d/HEAD=" ID, "d/objects/a=" },
	  { "d/refs/a=" } },
	/* refs and logs of such names */
	{ "a branch", "", { REPO(".git") }, { ".git/refs/heads/config=" ID "\n" } },
	{ "its log",
	  "",
	  { REPO(".git") },
	  { ".git/logs/refs/heads/config=" ID " " ID " A <a> 1 +0\tx\n" } },
	{ "a remote HEAD",
	  "",
	  { REPO(".git") },
	  { ".git/refs/remotes/o/HEAD=ref: refs/remotes/o/m\n" } },
	{ "a branch hooks/fix", "", { REPO(".git") }, { ".git/refs/heads/hooks/fix=" ID "\n" } },
	/* no git directory */
	{ "config", "", { 0 }, { "config=" EVIL, "d/config>x", "d/hooks/x*", "d/commondir=x\n" } },
	{ "HEAD",
	  "",
	  { "d/config=" EVIL },
	  { "d/HEAD=a method\n", "d/objects/a=", "d/.gitignore=x\n" } },
	/* of another name */
	{ "x.git", "x.git/config ", { 0 }, { "x.git/config=" EVIL } },
	{ "bare", "d/config ", { REPO("d") }, { "d/config=" EVIL } },
	{ "bare, harmless", "", { REPO("d") }, { "d/config=" HARMLESS } },
	/* hooks */
	{ "hook", "d/hooks/x ", { REPO("d") }, { "d/hooks/x*" } },
	{ "hooks of one that had none",
	  "d/hooks/x ",
	  { REPO("d") },
	  { "d/hooks/x*", "d/hooks/y=" } },
	{ "sample", "", { REPO("d") }, { "d/hooks/x.sample*" } },
	{ "a hook that is a link", "d/hooks/x ", { REPO("d") }, { "d/hooks/x>y" } },
	{ "hooks that are a link", "d/hooks ", { REPO("d") }, { "d/hooks>y" } },
	{ "hook with other content",
	  "d/hooks/x ",
	  { REPO("d"), "d/hooks/x*1" },
	  { "d/hooks/x*2" } },
	{ "hook with the same", "", { REPO("d"), "d/hooks/x*1" }, { "d/hooks/x*1", "d/hooks/y=" } },
	{ "hook made executable", "d/hooks/x ", { REPO("d"), "d/hooks/x=1" }, { "d/hooks/x*1" } },
	{ "of a submodule",
	  ".git/modules/m/hooks/p ",
	  { 0 },
	  { REPO(".git/modules/m"), ".git/modules/m/hooks/p*" } },
	/* leading elsewhere */
	{ "a submodule", "", { 0 }, { "m/.git=gitdir: ../.git/modules/m\n" } },
	{ "a worktree", "", { 0 }, { "m/.git=gitdir: /r/.git/worktrees/m\n" } },
	{ "one outside", "m/.git ", { 0 }, { "m/.git=gitdir: /home/u/.git/worktrees/m\n" } },
	{ "out by steps", "m/.git ", { 0 }, { "m/.git=gitdir: ../../u/.git\n" } },
	{ "to another name", "m/.git ", { 0 }, { "m/.git=gitdir: ../d\n" } },
	{ "by a detour", "m/.git ", { 0 }, { "m/.git=gitdir: ../x.git/../d\n" } },
	{ "over a link", "m/.git ", { "l>/u" }, { "m/.git=gitdir: ../l/.git\n" } },
	{ "by a link", "m/.git ", { 0 }, { "m/.git>../d" } },
	{ "by a link to .git", "", { 0 }, { "m/.git>../o/.git" } },
	{ "where it led", "", { "m/.git=gitdir: ../d\n" }, { "m/.git=gitdir: ../d\n" } },
	{ "common",
	  "",
	  { REPO(".git") },
	  { ".git/worktrees/w/HEAD=" ID, ".git/worktrees/w/commondir=../..\n" } },
	{ "common, elsewhere",
	  ".git/worktrees/w/commondir ",
	  { REPO(".git") },
	  { ".git/worktrees/w/HEAD=" ID, ".git/worktrees/w/commondir=../../../d\n" } },
	{ "common of no repository",
	  "a/b/c/commondir ",
	  { "a/config=" EVIL },
	  { "a/b/c/HEAD=" ID, "a/b/c/commondir=../..\n" } },
	{ "settings of what may be common",
	  "d/config ",
	  { "d/objects/a=", "d/refs/a=" },
	  { "d/config=" EVIL } },
	/* working trees */
	{ "of a submodule",
	  "",
	  { 0 },
	  { REPO(".git/modules/m"), ".git/modules/m/config=[core]\n\tworktree = ../../../m\n" } },
	{ "outside",
	  ".git/config ",
	  { REPO(".git") },
	  { ".git/config=[core]\n\tworktree = ../../u\n" } },
	{ "outside by name",
	  ".git/config ",
	  { REPO(".git") },
	  { ".git/config=[core]\n\tworktree = /u\n" } },
	{ "inside by name", "", { REPO(".git") }, { ".git/config=[core]\n\tworktree = /r/m\n" } },
	{ "over a link",
	  ".git/config ",
	  { REPO(".git"), "l>/u" },
	  { ".git/config=[core]\n\tworktree = ../l\n" } },
	{ "of a bare one", "d/config ", { REPO("d") }, { "d/config=[core]\n\tworktree = ..\n" } },
	{ "that was",
	  "",
	  { REPO("d"), "d/config=[core]\n\tworktree = /u\n" },
	  { "d/config=[core]\n\tworktree = /u\n[user]\n\tname = x\n" } },
	/* others */
	{ "hg",
	  "",
	  { 0 },
	  { "r/.hg/hgrc=[paths]\ndefault = https://x/y\n\n[ui]\nusername = A <a>\n" } },
	{ "hg hook", "r/.hg/hgrc ", { 0 }, { "r/.hg/hgrc=[hooks]\nupdate = touch x\n" } },
	{ "hg include", "r/.hg/hgrc ", { 0 }, { "r/.hg/hgrc=[paths]\n%include x\n" } },
	{ "hg return", "r/.hg/hgrc ", { 0 }, { "r/.hg/hgrc=[paths]\na = b\r[hooks]\rx = y\n" } },
	{ "hg header", "r/.hg/hgrc ", { 0 }, { "r/.hg/hgrc=[paths]\n[hooks] ;\nx = y\n" } },
	{ "hg that was",
	  "",
	  { "r/.hg/hgrc=[hooks]\na = b\n" },
	  { "r/.hg/hgrc=[hooks]\na = b\n[paths]\ndefault = x\n" } },
	{ "hg elsewhere", "r/.hg ", { 0 }, { "r/.hg>x" } },
	{ "jj",
	  "",
	  { 0 },
	  { "r/.jj/repo/config.toml=[revset-aliases]\n\"trunk()\" = \"main@origin\"\n",
	    "r/.jj/repo/store/git_target=git" } },
	{ "jj alias",
	  "r/.jj/repo/config.toml ",
	  { 0 },
	  { "r/.jj/repo/config.toml=aliases.st = [\"util\"]\n" } },
	{ "jj elsewhere",
	  "r/.jj/repo/store/git_target ",
	  { 0 },
	  { "r/.jj/repo/store/git_target=/u/.git" } },
};

static const struct {
	const char *text;
	bool runs;
} settings[] = {
	{ "\xef\xbb\xbf[core]\n\tbare = false\n", false },
	{ "[core]\n\tfsmonitor = true\n", false },
	{ "[core]\n\tfsmonitor\n", false },
	{ "[core]\n\tfsmonitor = ./run\n", true },
	{ "[CORE]\n\tFsMonitor = ./run\n", true },
	{ "[core] fsmonitor = ./run\n", true },
	{ "[core]\nfsmonitor = ./\\\nrun\n", true },
	{ "[core]\n\thooksPath = x\n", true },
	{ "[core]\n\tpager = x\n", true },
	{ "[core \"x\"]\n\tbare = x\n", true },
	{ "[alias]\n\tst = !x\n", true },
	{ "[include]\n\tpath = x\n", true },
	{ "[includeIf \"gitdir:x\"]\n\tpath = x\n", true },
	{ "[filter \"x\"]\n\tclean = x\n", true },
	{ "[credential]\n\thelper = x\n", true },
	{ "[remote \"o\"]\n\turl = git@x:y\n", false },
	{ "[remote \"o\"]\n\turl = /a::b\n", false },
	{ "[remote \"o\"]\n\turl = ext::sh -c x\n", true },
	{ "[remote \"o\"]\n\turl = -ux\n", true },
	{ "[remote \"o\"]\n\tuploadpack = x\n", true },
	{ "[submodule \"o\"]\n\tupdate = rebase\n", false },
	{ "[submodule \"o\"]\n\tupdate = !x\n", true },
};

static void make_dirs(int top_fd, char *path)
{
	for (char *at = path; (at = strchr(at + 1, '/'));) {
		*at = '\0';
		(void)mkdirat(top_fd, path, 0755);
		*at = '/';
	}
}

static void put(int top_fd, const char *top, const char *entry)
{
	cleanup_free char *full = xasprintf("%s/%s", top, entry);
	char *text = full + strcspn(full, "=*>"), kind = *text;
	cleanup_close int fd = FD_NONE;

	*text++ = '\0';
	make_dirs(top_fd, full);
	if (kind == '>') {
		assert_int_equal(symlinkat(text, top_fd, full), 0);
		return;
	}
	fd = openat(top_fd, full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, kind == '*' ? 0755 : 0644), 0);
}

static void expect(int top_fd, const struct row *row)
{
	cleanup_close int orig_fd = FD_NONE, work_fd = FD_NONE;
	cleanup_changeset struct changeset cs = CHANGESET_INIT;
	cleanup_strlist struct strlist found = STRLIST_INIT;
	cleanup_strbuf struct strbuf text = STRBUF_INIT;
	struct tree_state after = { .cs = &cs };

	assert_int_equal(mkdirat(top_fd, "orig", 0755), 0);
	assert_int_equal(mkdirat(top_fd, "work", 0755), 0);
	for (size_t i = 0; i < 6 && row->orig[i]; i++)
		put(top_fd, "orig", row->orig[i]);
	for (size_t i = 0; i < 8 && row->work[i]; i++)
		put(top_fd, "work", row->work[i]);
	orig_fd = openat(top_fd, "orig", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	work_fd = openat(top_fd, "work", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	after.orig_fd = orig_fd;
	after.work_fd = work_fd;
	assert_int_equal(
		upper_diff(&(struct upper_compare){ .upper_fd = work_fd, .orig_fd = orig_fd }, &cs,
	                   NULL),
		0);
	assert_int_equal(git_programs_find(&after, "/r", &found), 0);
	for (size_t i = 0; i < found.n; i++) {
		assert_true(git_programs_has(&found, found.v[i]));
		if (i == 0 || strcmp(found.v[i], found.v[i - 1]) != 0)
			strbuf_printf(&text, "%s ", found.v[i]);
	}
	if (strcmp(strbuf_str(&text), row->found) != 0)
		fail_msg("%s: found '%s', not '%s'", row->name, strbuf_str(&text), row->found);
	assert_int_equal(remove_tree_at(top_fd, "work"), 0);
	assert_int_equal(remove_tree_at(top_fd, "orig"), 0);
}

static void git_programs_by_name_and_content(void **state)
{
	int top_fd = ((struct fixture *)*state)->dir[1].fd;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		expect(top_fd, &rows[i]);
}

static void git_programs_in_settings(void **state)
{
	int top_fd = ((struct fixture *)*state)->dir[1].fd;

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		cleanup_free char *config = xasprintf(".git/config=%s", settings[i].text);
		const struct row row = { settings[i].text,
			                 settings[i].runs ? ".git/config " : "",
			                 { 0 },
			                 { config } };

		expect(top_fd, &row);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(git_programs_by_name_and_content, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(git_programs_in_settings, fixture_setup,
		                                fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

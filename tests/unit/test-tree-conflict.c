/* SPDX-License-Identifier: Apache-2.0 */
/* Did somebody else change what a change is about? */
#include "diff/tree.h"

#include "unit/tree-fixture.h"

#include <sys/xattr.h>

#define ORIGINAL                                                                          \
	"cd $O; mkdir -p a/b/c e; echo one > one; echo deep > a/b/c/deep; echo f > a/f; " \
	"ln -s one link; "

struct row {
	const char *ours;   /* in the workspace: one change */
	const char *theirs; /* in the original */
	int expected;       /* of tree_conflict */
	const char *why;    /* when it is 1 */
};

static const struct row rows[] = {
	/* nobody else did anything, or elsewhere */
	{ "echo 2 > one", ":", 0, NULL },
	{ "echo 2 > one", "echo 3 > a/f; rm link; mkdir x", 0, NULL },
	{ "rm one", ":", 0, NULL },
	{ "echo n > new", ":", 0, NULL },
	{ "mkdir -p new/d", ":", 0, NULL },
	{ "rm -r a", ":", 0, NULL },
	{ "chmod 0700 a", ":", 0, NULL },
	{ "rm -r a; ln -s one a", ":", 0, NULL },
	/* replaced entries */
	{ "echo 2 > one", "echo 3 > one", 1, "changed" },
	{ "echo 2 > one", "m=$(stat -c %y one); echo ONE > one; touch -d \"$m\" one", 1,
	  "changed" },
	{ "echo 2 > one", "chmod 0600 one", 1, "changed" },
	{ "echo 2 > one", "rm one", 1, "deleted" },
	{ "echo 2 > one", "rm one; echo ONE > one", 1, "replaced" },
	{ "echo 2 > one", "cp -p one x; chmod 0600 x; mv x one", 1, "replaced" },
	{ "echo 2 > one", "setfattr -n user.x -v 1 one", 1, "changed" },
	{ "echo 2 > one", "m=$(stat -c %y one); echo one2 > one; touch -d \"$m\" one", 1,
	  "changed" },
	{ "echo 2 > one", "rm one; mkdir one", 1, "replaced" },
	{ "echo 2 > one", "rm one; ln -s link one", 1, "replaced" },
	{ "echo 2 > one", "echo 2 > one", 2, NULL },
	{ "echo 2 > one", "rm one; echo 2 > one", 2, NULL },
	{ "echo 2 > one", "echo 2 > one; chmod 0600 one", 1, "changed" },
	/* the same content, whatever became of it in between */
	{ "echo 2 > one", "touch one", 0, NULL },
	{ "echo 2 > one", "touch -d 2005-05-05 one", 0, NULL },
	{ "echo 2 > one", "ln one two", 0, NULL },
	{ "echo 2 > one", "chmod 0600 one; chmod 0644 one", 0, NULL },
	{ "echo 2 > one", "rm one; echo one > one", 0, NULL },
	{ "echo 2 > one", "cp -p one x; mv x one", 0, NULL },
	{ "echo 2 > one", "echo 3 > one; echo one > one", 0, NULL },
	{ "rm one", "rm one; echo one > one", 0, NULL },
	{ "rm one; mkdir one", "rm one; echo one > one", 0, NULL },
	{ "ln -sfn a link", "touch -h -d 2005-05-05 link", 0, NULL },
	{ "ln -sfn a link", "rm link; ln -s one link", 0, NULL },
	{ "rm -r a", "touch a/f; rm a/b/c/deep; echo deep > a/b/c/deep", 0, NULL },
	{ "ln -sfn a link", "ln -sfn e link", 1, "replaced" },
	{ "ln -sfn a link", "ln -sfn a link", 2, NULL },
	{ "rm one; ln -s a one", "rm one; ln -s a one", 2, NULL },
	{ "echo 2 > a/f", "rm -r a", 1, "deleted" },
	{ "echo 2 > a/f", "mv a z", 1, "deleted" },
	/* deleted entries */
	{ "rm one", "echo 3 > one", 1, "changed" },
	{ "rm one", "rm one", 2, NULL },
	{ "rm one", "rm one; mkdir one", 1, "replaced" },
	{ "rm -r a", "rm -r a", 2, NULL },
	{ "rm -r a", "rm -r a/b", 0, NULL },
	{ "rm -r a", "rm a/b/c/deep", 0, NULL },
	{ "rm -r a", "echo 3 > a/b/c/deep", 1, "contains changes: a/b/c/deep" },
	{ "rm -r a", "echo n > a/b/new", 1, "contains changes: a/b/new" },
	{ "rm -r a", "mkdir a/b/c/new", 1, "contains changes: a/b/c/new" },
	{ "rm -r a", "chmod 0700 a/b/c", 1, "contains changes: a/b/c" },
	{ "rm -r a", "rm -r a/b; mkdir a/b", 1, "contains changes: a/b" },
	{ "rm -r a", "rm -r a/b; ln -s e a/b", 1, "contains changes: a/b" },
	{ "rm -r a", "chmod 0700 a", 1, "changed" },
	{ "rm -r a", "mv a x; mkdir a", 1, "replaced" },
	{ "rm -r a; echo x > a", "echo n > a/n", 1, "contains changes: a/n" },
	{ "rm -r a; echo x > a", "rm -r a; echo x > a", 2, NULL },
	{ "rm -r a; echo x > a", "rm -r a; echo y > a", 1, "replaced" },
	{ "rm -r a; echo x > a", "rm -r a", 1, "deleted" },
	/* created by both */
	{ "echo n > new", "echo n > new", 2, NULL },
	{ "echo n > new", "echo m > new", 1, "created" },
	{ "echo n > new", "echo n > new; chmod 0600 new", 1, "created" },
	{ "echo n > new", "mkdir new", 1, "created" },
	{ "ln -s a new", "ln -s a new", 2, NULL },
	{ "ln -s a new", "ln -s e new", 1, "created" },
	{ "mkdir new", "mkdir new", 2, NULL },
	{ "mkdir new", "mkdir new; echo x > new/x", 1, "created" },
	{ "mkdir -p n/m; echo x > n/m/x", "mkdir -p n/m; echo x > n/m/x", 2, NULL },
	{ "mkdir -p n/m; echo x > n/m/x", "mkdir -p n/m; echo y > n/m/x", 1, "created" },
	{ "mkdir -p n/m; echo x > n/m/x", "mkdir -p n/m; echo x > n/m/y", 1, "created" },
	{ "mkfifo p", "mkfifo p", 2, NULL },
	/* attributes of directories */
	{ "chmod 0700 a", "chmod 0750 a", 1, "changed" },
	{ "chmod 0700 a", "chmod 0700 a", 2, NULL },
	{ "chmod 0700 a", "echo n > a/n; rm a/f", 0, NULL },
	{ "chmod 0700 a", "rm -r a", 1, "deleted" },
	{ "chmod 0700 a", "mv a x; mkdir a", 1, "replaced" },
	{ "chmod 0700 a", "rm -r a; ln -s e a", 1, "replaced" },
	{ "chmod 0700 .", "chmod 0711 .", 1, "changed" },
	{ "chmod 0700 .", "chmod 0700 .", 2, NULL },
	{ "chmod 0700 .", "echo x > x", 0, NULL },
};

static void in(struct tree *t, const char *where, const char *script)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	strbuf_printf(&sb, "cd %s; %s", where, script);
	tree_sh(t, strbuf_str(&sb));
}

static void der_03_what_somebody_else_changed(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct fixture *f = *state;
		cleanup_tree struct tree t = tree_start(f->dir[i % 2].fd);
		cleanup_free char *changes = NULL;
		cleanup_free char *why = NULL;
		int r;

		tree_sh(&t, ORIGINAL);
		tree_make(&t);
		in(&t, "$W", rows[i].ours);
		changes = tree_changes(&t);
		assert_int_equal(t.cs.v.n, 1);
		in(&t, "$O", rows[i].theirs);
		r = tree_conflict(&t.cmp, tree_change(&t, 0), &why, &t.err);
		if (r != rows[i].expected || (r == 1 && strcmp(why, rows[i].why) != 0))
			fail_msg("%s | %s: %d %s", rows[i].ours, rows[i].theirs, r, why ? why : "");
		if (r != 1)
			assert_null(why);
	}
}

static void der_03_a_parent_that_is_another_one(void **state)
{
	static const struct {
		const char *theirs;
		int expected;
		const char *why;
	} cases[] = {
		{ ":", 0, NULL },
		{ "echo x > a/x; chmod 0700 a", 0, NULL },
		{ "rm -r a", 1, "deleted" },
		{ "mv a z; mkdir a", 1, "replaced" },
		{ "mv a z; ln -s z a", 1, "replaced" },
		{ "mv a z; echo x > a", 1, "replaced" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture *f = *state;
		cleanup_tree struct tree t = tree_start(f->dir[i % 2].fd);
		cleanup_free char *why = NULL;
		int r;

		tree_sh(&t, ORIGINAL);
		tree_make(&t);
		tree_sh(&t, "echo n > $W/a/new");
		assert_true(tree_is(&t, "+ a/new\n"));
		assert_int_equal(t.cs.n_dirs, 1);
		in(&t, "$O", cases[i].theirs);
		r = tree_conflict_dir(&t.cmp, &t.cs.dirs[0], &why, &t.err);
		if (r != cases[i].expected || (r == 1 && strcmp(why, cases[i].why) != 0))
			fail_msg("%s: %d %s", cases[i].theirs, r, why ? why : "");
	}
}

static void set_attribute(int root_fd, const char *name, const char *value)
{
	int fd = open_dir(root_fd, name);

	assert_int_equal(fsetxattr(fd, "user.x", value, strlen(value), 0), 0);
	close(fd);
}

static void der_03_attributes_of_directories(void **state)
{
	static const struct {
		const char *theirs;
		int expected;
	} cases[] = { { NULL, 0 }, { "ours", 2 }, { "theirs", 1 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture *f = *state;
		cleanup_tree struct tree t = tree_start(f->dir[1].fd);
		cleanup_free char *why = NULL;

		tree_sh(&t, ORIGINAL);
		if (setxattr(f->dir[1].path, "user.probe", "", 0, 0) < 0)
			skip();
		tree_make(&t);
		set_attribute(t.work_fd, "a", "ours");
		assert_true(tree_is(&t, "@ a x\n"));
		/* Their other entries in it change its ctime, which is no conflict. */
		write_file(t.orig_fd, "a/theirs", "");
		if (cases[i].theirs)
			set_attribute(t.orig_fd, "a", cases[i].theirs);
		assert_int_equal(tree_conflict(&t.cmp, tree_change(&t, 0), &why, &t.err),
		                 cases[i].expected);
	}
}

/* Somebody sets an attribute on a directory the workspace only added to: not our change. */
static void der_03_their_attribute_is_not_ours(void **state)
{
	struct fixture *f = *state;
	cleanup_tree struct tree t = tree_start(f->dir[1].fd);

	tree_sh(&t, ORIGINAL);
	if (setxattr(f->dir[1].path, "user.probe", "", 0, 0) < 0)
		skip();
	tree_make(&t);
	write_file(t.work_fd, "a/new", "");
	set_attribute(t.orig_fd, "a", "theirs");
	assert_true(tree_is(&t, "+ a/new\n"));
}

static int unreadable_as_user(int fd)
{
	cleanup_tree struct tree t = tree_start(fd);
	cleanup_free char *changes = NULL;
	char *why = NULL;

	tree_sh(&t, "cd $O; mkdir -p d/closed; echo x > d/closed/f; chmod 0000 d/closed");
	tree_make(&t);
	tree_sh(&t, "chmod 0700 $W/d/closed; rm -r $W/d");
	changes = tree_changes(&t);
	CHECK(strcmp(changes, "- d !U\n") == 0);
	CHECK(tree_conflict(&t.cmp, tree_change(&t, 0), &why, &t.err) == 0);
	tree_sh(&t, "cd $O/d; chmod 0700 closed; echo y > closed/g; chmod 0000 closed");
	CHECK(tree_conflict(&t.cmp, tree_change(&t, 0), &why, &t.err) == 1);
	CHECK(strcmp(why, "contains changes: d/closed") == 0);
	free(why);
	tree_sh(&t, "chmod 0700 $O/d/closed");
	return 0;
}

static void der_03_below_what_cannot_be_read(void **state)
{
	as_user_in_memory(state, unreadable_as_user);
}

static void der_03_a_deep_tree_that_goes(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		cleanup_free char *changes = NULL;
		char name[201], *why = NULL;

		memset(name, 'd', 200);
		name[200] = '\0';
		make_chain(t.orig_fd, name, 40);
		tree_make(&t);
		assert_int_equal(remove_tree_at(t.work_fd, name), 0);
		changes = tree_changes(&t);
		assert_int_equal(t.cs.v.n, 1);
		assert_int_equal(tree_conflict(&t.cmp, tree_change(&t, 0), &why, &t.err), 0);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(der_03_what_somebody_else_changed), TEST(der_03_a_parent_that_is_another_one),
		TEST(der_03_attributes_of_directories),  TEST(der_03_their_attribute_is_not_ours),
		TEST(der_03_below_what_cannot_be_read),  TEST(der_03_a_deep_tree_that_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

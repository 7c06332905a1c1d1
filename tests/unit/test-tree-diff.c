/* SPDX-License-Identifier: Apache-2.0 */
/* What a workspace changed: exactly that, in order, once. */
#include "diff/tree.h"

#include "unit/tree-fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* One original for the whole table. */
#define ORIGINAL                                                                                  \
	"cd $O; mkdir -p a/b/c e many; echo one > one; echo one > same; echo deep > a/b/c/deep; " \
	"echo f > a/f; ln -s one link; ln -s nowhere dangling; ln -s loop loop; "                 \
	"ln -s /etc/passwd old-escape; touch many/1 many/2 many/3; mkfifo fifo; chmod 0640 a/f; " \
	"touch -d '2001-01-01 01:01:01.123456789' one; touch -h -d '2002-02-02' link; "           \
	"touch -d '2003-03-03' a a/b; "

struct edit {
	const char *script; /* in the workspace */
	const char *expected;
	const char *dirs; /* whose times are to be set */
};

static const struct edit edits[] = {
	{ ":", "", "" },
	/* content */
	{ "echo two > one", "~ one ct\n", ". " },
	{ "echo more >> a/b/c/deep", "~ a/b/c/deep ct\n", "a/b/c " },
	{ "rm one; echo one > one; touch -r $O/one one", "", ". " },
	{ "cp -p one new; mv new one", "", ". " },
	{ ": > many/2", "~ many/2 t\n", "many " },
	{ "printf x > many/2; : > many/2; touch -r $O/many/2 many/2", "", "" },
	/* metadata */
	{ "chmod 0600 a/f", "~ a/f m\n", "a " },
	{ "chmod 0600 a/f; chmod 0640 a/f", "", "" },
	{ "touch -d 2020-01-01 one", "~ one t\n", ". " },
	{ "touch -h -d 2020-01-01 link", "~ link t\n", ". " },
	{ "chmod 0700 a", "@ a m\n", ". " },
	{ "chmod 0700 .", "@  m\n", "" },
	{ "chmod 0700 a; chmod 0755 a", "", "" },
	{ "touch -d 2020-01-01 a/b", "", "a/b " },
	{ "chmod u+s one", "~ one mS\n", ". " },
	{ "chmod g+s a", "@ a m\n", ". " },
	/* creation and deletion */
	{ "echo n > a/n", "+ a/n\n", "a " },
	{ "mkdir empty", "+ empty\n", ". " },
	{ "mkdir -p x/y/z; echo n > x/y/z/n", "+ x\n", ". " },
	{ "rm -r a", "- a\n", ". " },
	{ "rmdir e", "- e\n", ". " },
	{ "rm -r a/b; rm link many/3", "- a/b\n- link\n- many/3\n", ". a many " },
	/* another directory under the old name, also an equal one */
	{ "rm -r a; mkdir -p a/b/c; cp -p $O/a/f a; cp -p $O/a/b/c/deep a/b/c; "
	  "touch -r $O/a a; touch -r $O/a/b a/b; touch -r $O/a/b/c a/b/c; touch -r $O .",
	  "~ a c\n", ". " },
	{ "rm -r a; mkdir a; ln -s / a/l", "~ a cE\n", ". " },
	{ "rmdir e; mkdir e", "~ e c\n", ". " },
	{ "mv a x; mv e a; mv x e", "~ a c\n~ e c\n", ". " },
	{ "mv a x; mv x a", "", ". " },
	{ "mv one zone", "- one\n+ zone\n", ". " },
	{ "mv a moved", "- a\n+ moved\n", ". " },
	{ "rm -rf ./*",
	  "- a\n- dangling\n- e\n- fifo\n- link\n- loop\n- many\n- old-escape\n- one\n- same\n",
	  ". " },
	{ "echo x > a.b; echo x > 'a b'; mkdir a/0; echo y > a/b/y",
	  "+ a/0\n+ a/b/y\n+ a b\n+ a.b\n", ". a a/b " },
	/* links */
	{ "ln -sfn same link", "~ link ct\n", ". " },
	{ "ln -sfn one link; touch -h -r $O/link link", "", ". " },
	{ "ln -sfn elsewhere dangling", "~ dangling ct\n", ". " },
	{ "rm dangling", "- dangling\n", ". " },
	{ "ln -s void dangling2; ln -s self self", "+ dangling2\n+ self\n", ". " },
	{ "ln -s /etc/passwd l1; ln -s ../x l2; ln -s ../x a/ok; ln -s ../../x a/l3; ln -s a/../one l4",
	  "+ a/l3 E\n+ a/ok\n+ l1 E\n+ l2 E\n+ l4\n", ". a " },
	{ "touch -h -d 2020-01-01 old-escape", "~ old-escape t\n", ". " },
	{ "ln -sfn /etc/shadow old-escape", "~ old-escape ctE\n", ". " },
	{ "mkdir -p n/m; ln -s ../../../x n/m/l", "+ n E\n", ". " },
	{ "mkdir -p n/m; echo x > n/m/s; chmod u+s n/m/s; mkfifo n/p", "+ n SP\n", ". " },
	/* types */
	{ "rm one; ln -s same one", "~ one T\n", ". " },
	{ "rm one; mkdir one; echo x > one/x", "~ one T\n", ". " },
	{ "rm link; echo one > link", "~ link T\n", ". " },
	{ "rm link; mkdir link", "~ link T\n", ". " },
	{ "rm -r a; echo x > a", "~ a T\n", ". " },
	{ "rm -r a; ln -s / a", "~ a TE\n", ". " },
	/* special files */
	{ "mkfifo p", "+ p P\n", ". " },
	{ "chmod 0600 fifo", "~ fifo m\n", ". " },
	{ "rm one; mkfifo one", "~ one TP\n", ". " },
	/* hard links made inside */
	{ "ln one zwei", "+ zwei\n", ". " },
	/* forged times (dif_05) */
	{ "m=$(stat -c %y one); printf 'two\\n' > one; touch -d \"$m\" one", "~ one c\n", ". " },
};

static void dif_06_exactly_what_was_edited(void **state)
{
	for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
		struct fixture *f = *state;
		cleanup_tree struct tree t = tree_start(f->dir[i % 2].fd);
		cleanup_strbuf struct strbuf script = STRBUF_INIT;
		cleanup_free char *dirs = NULL;

		tree_sh(&t, ORIGINAL);
		tree_make(&t);
		strbuf_printf(&script, "cd $W; %s", edits[i].script);
		tree_sh(&t, strbuf_str(&script));
		if (!tree_is(&t, edits[i].expected))
			fail_msg("%s", edits[i].script);
		dirs = tree_dirs(&t);
		if (strcmp(dirs, edits[i].dirs) != 0)
			fail_msg("%s: '%s' instead of '%s'", edits[i].script, dirs, edits[i].dirs);
	}
}

static void dif_06_odd_names(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		cleanup_strbuf struct strbuf expected = STRBUF_INIT;
		char longest[256];

		memset(longest, 'n', 255);
		longest[255] = '\0';
		write_file(t.orig_fd, "new\nline", "1");
		write_file(t.orig_fd, longest, "1");
		make_dir(t.orig_fd, "\377");
		tree_make(&t);
		write_file(t.work_fd, "new\nline", "2");
		write_file(t.work_fd, "\377/\376", "2");
		assert_int_equal(unlinkat(t.work_fd, longest, 0), 0);
		strbuf_printf(&expected, "~ new\\x0aline ct\n- %s\n+ \\xff/\\xfe\n", longest);
		assert_true(tree_is(&t, strbuf_str(&expected)));
	}
}

static void dif_05_equal_length_and_time_forged_at_once(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		struct stat st;
		struct timespec ts[2];
		int fd;

		write_file(t.orig_fd, "f", "before");
		tree_make(&t);
		/* At once: within the tick of the clock in which the workspace was made. */
		fd = openat(t.work_fd, "f", O_RDWR | O_CLOEXEC);
		assert_int_equal(fstat(fd, &st), 0);
		ts[0] = st.st_atim;
		ts[1] = st.st_mtim;
		assert_int_equal(pwrite(fd, "after!", 6, 0), 6);
		assert_int_equal(futimens(fd, ts), 0);
		close(fd);
		assert_true(tree_is(&t, "~ f c\n"));
	}
}

static void dif_05_a_write_by_mapping(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		char *map;
		int fd;

		write_file(t.orig_fd, "f", "before");
		tree_make(&t);
		fd = openat(t.work_fd, "f", O_RDWR | O_CLOEXEC);
		map = mmap(NULL, 6, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_true(map != MAP_FAILED);
		memcpy(map, "after!", 6);
		assert_int_equal(munmap(map, 6), 0);
		close(fd);
		assert_true(tree_is(&t, "~ f ct\n"));
	}
}

static void der_22_attributes_are_changes(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		int fd;

		tree_sh(&t, "cd $O; mkdir d kept; echo f > d/f");
		fd = open_dir(t.orig_fd, "kept");
		if (fsetxattr(fd, "user.k", "v", 1, 0) < 0) {
			close(fd);
			continue;
		}
		close(fd);
		tree_make(&t);
		fd = open_dir(t.work_fd, "d");
		assert_int_equal(fsetxattr(fd, "user.x", "y", 1, 0), 0);
		close(fd);
		fd = openat(t.work_fd, "d/f", O_RDWR | O_CLOEXEC);
		assert_int_equal(fsetxattr(fd, "user.x", "y", 1, 0), 0);
		close(fd);
		/* Its ctime changes; its attributes do not. */
		write_file(t.work_fd, "kept/n", "");
		assert_true(tree_is(&t, "@ d x\n~ d/f x\n+ kept/n\n"));
	}
}

static void der_22_owners_and_capabilities_as_root(void **state)
{
	/* cap_net_raw=ep, version 2 */
	static const unsigned char cap[20] = { 1, 0, 0, 2, 0, 0x20 };

	if (geteuid() != 0)
		skip();
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);

		tree_sh(&t, "cd $O; mkdir d; echo f > d/f; echo c > c; echo c > old-cap");
		tree_sh(&t,
		        "setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 "
		        "$O/old-cap 2>/dev/null || true");
		tree_make(&t);
		tree_sh(&t, "cd $W; chown 1000:1000 d/f; chown 1000 d; touch old-cap; echo n > n");
		for (int i = 0; i < 2; i++) {
			int fd = openat(t.work_fd, i ? "c" : "n", O_RDWR | O_CLOEXEC);

			assert_int_equal(fsetxattr(fd, "security.capability", cap, sizeof(cap), 0),
			                 0);
			close(fd);
		}
		assert_true(tree_is(&t, "~ c xS\n@ d o\n~ d/f o\n+ n S\n~ old-cap t\n"));
	}
}

static void devices_as_root(void **state)
{
	if (geteuid() != 0)
		skip();
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);

		tree_sh(&t, "cd $O; mknod null c 1 3; mknod zero c 1 5");
		tree_make(&t);
		assert_true(tree_is(&t, ""));
		tree_sh(&t,
		        "cd $W; rm null; mknod null c 1 7; touch -r $O/null null; mknod new c 1 3; "
		        "chmod 0600 zero");
		assert_true(tree_is(&t, "+ new P\n~ null cP\n~ zero m\n"));
	}
}

/* An entry whose original somebody else changed cannot be proven any more: it counts. */
static void what_cannot_be_proven_counts_as_changed(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);

		tree_sh(&t, "cd $O; echo 1 > touched; echo 1 > untouched; mkdir gone; "
		            "echo 1 > gone/f; echo 1 > both");
		tree_make(&t);
		tree_sh(&t, "cd $O; echo 2 > touched; echo 2 > untouched; rm -r gone; "
		            "m=$(stat -c %y both); echo 2 > both; touch -d \"$m\" both; cd $W; "
		            "chmod 0600 touched gone/f; chmod 0644 touched gone/f; "
		            "echo 2 > both; touch -d \"$m\" both");
		assert_true(tree_is(&t, "~ both c\n~ gone/f c\n~ touched c\n"));
	}
}

struct listing {
	struct strbuf text;
	int end_after; /* answers -ECANCELED then */
};

static int list_entry(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
                      const struct fs_stat *old_stat, const struct fs_stat *new_stat,
                      const char *link_target)
{
	struct listing *l = ctx;

	if (l->end_after-- == 0)
		return -ECANCELED;
	strbuf_printf(&l->text, "%c %s", "A~D"[kind], path);
	tree_put_bits(&l->text, what, 0);
	strbuf_printf(&l->text, " %o %o%s%s\n", old_stat ? old_stat->mode >> 12 : 0,
	              new_stat ? new_stat->mode >> 12 : 0, link_target ? " -> " : "",
	              link_target ? link_target : "");
	return 0;
}

static void changes_one_by_one(void **state)
{
	static const char expected[] = "~ a T 4 10\n"
				       "D a/b 4 0\n"
				       "D a/b/c 4 0\n"
				       "D a/b/c/deep 10 0\n"
				       "D a/f 10 0\n"
				       "D e 4 0\n"
				       "~ link T 12 4\n"
				       "A link/x 0 4\n"
				       "A link/x/esc E 0 12 -> /\n"
				       "A link/x/fifo P 0 1\n"
				       "~ many m 4 4\n"
				       "D many/2 10 0\n"
				       "A n 0 4\n"
				       "A n/plain 0 10\n"
				       "A n/suid S 0 10\n"
				       "~ one ct 10 10\n";

	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		struct listing all = { .end_after = -1 }, some = { .end_after = 2 };
		cleanup_free char *changes = NULL;

		tree_sh(&t, ORIGINAL);
		tree_make(&t);
		tree_sh(&t,
		        "cd $W; rm -r a e link many/2; echo > a; mkdir -p link/x n; echo > n/suid; "
		        "chmod u+s n/suid; echo > n/plain; mkfifo link/x/fifo; ln -s / link/x/esc; "
		        "chmod 0700 many; echo two > one");
		changes = tree_changes(&t);
		assert_string_equal(changes, "~ a T\n- e\n~ link TEP\n@ many m\n- many/2\n+ n S\n"
		                             "~ one ct\n");
		assert_int_equal(tree_expand(&t.cmp, &t.cs, list_entry, &all, &t.err), 0);
		assert_string_equal(strbuf_str(&all.text), expected);
		assert_int_equal(tree_expand(&t.cmp, &t.cs, list_entry, &some, &t.err), -ECANCELED);
		strbuf_done(&all.text);
		strbuf_done(&some.text);
	}
}

/* What both directories have is not told, unless it differs. */
static void a_replaced_directory_one_by_one(void **state)
{
	static const char expected[] = "~ a m 4 4\n"
				       "~ a/b T 4 10\n"
				       "D a/b/c 4 0\n"
				       "D a/b/c/deep 10 0\n"
				       "~ a/g T 10 4\n"
				       "A a/g/l E 0 12 -> /\n"
				       "A a/n 0 4\n"
				       "A a/n/m 0 10\n"
				       "~ a/s/t ct 10 10\n"
				       "D a/z 10 0\n";

	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		struct listing all = { .end_after = -1 }, some = { .end_after = 4 };
		cleanup_free char *changes = NULL;

		tree_sh(&t, ORIGINAL "mkdir a/s; echo t > a/s/t; echo g > a/g; echo z > a/z");
		tree_make(&t);
		tree_sh(&t, "cd $W; rm -r a; mkdir -m 0700 a; cp -p $O/a/f a; echo > a/b; "
		            "mkdir a/g a/n a/s; ln -s / a/g/l; echo > a/n/m; echo tt > a/s/t");
		changes = tree_changes(&t);
		assert_string_equal(changes, "~ a cE\n");
		assert_int_equal(tree_expand(&t.cmp, &t.cs, list_entry, &all, &t.err), 0);
		assert_string_equal(strbuf_str(&all.text), expected);
		assert_int_equal(tree_expand(&t.cmp, &t.cs, list_entry, &some, &t.err), -ECANCELED);
		strbuf_done(&all.text);
		strbuf_done(&some.text);
	}
}

static void changes_know_both_sides(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		cleanup_free char *changes = NULL;
		struct fs_stat orig, work;

		tree_sh(&t, ORIGINAL);
		tree_make(&t);
		tree_sh(&t, "echo two > $W/one; rm -r $W/a; echo n > $W/new");
		changes = tree_changes(&t);
		assert_string_equal(changes, "- a\n+ new\n~ one ct\n");
		assert_int_equal(fs_stat_at(t.orig_fd, "a", FS_STAT_ID, &orig), 0);
		assert_true(fs_id_equal(tree_change(&t, 0)->base.id, orig.id));
		assert_true(tree_change(&t, 0)->base_dir != BASE_NO_DIR &&
		            tree_change(&t, 0)->work.mode == 0);
		assert_int_equal(fs_stat_at(t.work_fd, "new", FS_STAT_ID, &work), 0);
		assert_true(fs_id_equal(tree_change(&t, 1)->work.id, work.id) &&
		            tree_change(&t, 1)->base.mode == 0);
		assert_int_equal(fs_stat_at(t.orig_fd, "one", FS_STAT_ID, &orig), 0);
		assert_int_equal(fs_stat_at(t.work_fd, "one", FS_STAT_ID, &work), 0);
		assert_true(fs_id_equal(tree_change(&t, 2)->base.id, orig.id));
		assert_true(fs_id_equal(tree_change(&t, 2)->work.id, work.id));
	}
}

static int closed_in_workspace(int fd)
{
	cleanup_tree struct tree t = tree_start(fd);

	tree_sh(&t, "cd $O; mkdir d; echo f > d/f; echo s > s");
	tree_make(&t);
	/* Closed by its owner inside: its content cannot be compared, so it counts. */
	tree_sh(&t, "chmod 0000 $W/s");
	CHECK(tree_is(&t, "~ s cm\n"));
	tree_sh(&t, "chmod 0000 $W/d");
	changeset_done(&t.cs);
	CHECK(tree_diff(&t.cmp, &t.cs, &t.err) == -EACCES);
	CHECK(strstr(t.err.msg, "'d'") && t.cs.v.n == 0);
	return 0;
}

static void what_the_workspace_closed_as_user(void **state)
{
	as_user_in_memory(state, closed_in_workspace);
}

static void a_damaged_record_ends_the_comparison(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		cleanup_close int fd = FD_NONE;

		tree_sh(&t, ORIGINAL);
		tree_make(&t);
		fd = openat(d->fd, "base", O_RDWR | O_CLOEXEC);
		/* In the first block, which is not read when the record is opened. */
		assert_int_equal(pwrite(fd, "xxxxxxxx", 8, 64), 8);
		assert_int_equal(tree_diff(&t.cmp, &t.cs, &t.err), -ATOLL_E_DAMAGED);
		assert_int_equal(t.err.code, -ATOLL_E_DAMAGED);
	}
}

static atomic_bool stop_flipping;

static void *keep_flipping(void *arg)
{
	struct tree *t = arg;

	while (!atomic_load(&stop_flipping)) {
		(void)unlinkat(t->work_fd, "f", 0);
		(void)symlinkat("../secret", t->work_fd, "f");
		(void)unlinkat(t->work_fd, "f", 0);
		(void)mkfifoat(t->work_fd, "f", 0600);
		(void)unlinkat(t->work_fd, "f", 0);
		write_file(t->work_fd, "f", "x");
	}
	return NULL;
}

static void sec_03_an_entry_that_keeps_changing_its_type(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		pthread_t thread;

		write_file(t.orig_fd, "f", "x");
		tree_make(&t);
		atomic_store(&stop_flipping, false);
		assert_int_equal(pthread_create(&thread, NULL, keep_flipping, &t), 0);
		for (int i = 0; i < 300; i++) {
			int r;

			changeset_done(&t.cs);
			r = tree_diff(&t.cmp, &t.cs, NULL);
			assert_true(r == 0 || r == -EAGAIN);
			assert_true(t.cs.v.n <= 1);
		}
		atomic_store(&stop_flipping, true);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
}

static void sec_04_which_links_escape(void **state)
{
	static const struct {
		const char *path, *target;
		bool escapes;
	} rows[] = {
		{ "l", "x", false },
		{ "l", "/x", true },
		{ "l", "/", true },
		{ "l", "", false },
		{ "l", ".", false },
		{ "l", "..", true },
		{ "l", "../l", true },
		{ "l", "a/../b", false },
		{ "l", "a/../../b", true },
		{ "l", "a//..//..", true },
		{ "l", "./././..", true },
		{ "l", "...", false },
		{ "l", "..a/..b", false },
		{ "a/l", "..", false },
		{ "a/l", "../..", true },
		{ "a/l", "../b/../..", true },
		{ "a/b/l", "../../c", false },
		{ "a/b/l", "../../../c", true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (tree_link_escapes(rows[i].path, rows[i].target) != rows[i].escapes)
			fail_msg("%s -> %s", rows[i].path, rows[i].target);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(dif_06_exactly_what_was_edited),
		TEST(dif_06_odd_names),
		TEST(dif_05_equal_length_and_time_forged_at_once),
		TEST(dif_05_a_write_by_mapping),
		TEST(der_22_attributes_are_changes),
		TEST(der_22_owners_and_capabilities_as_root),
		TEST(devices_as_root),
		TEST(what_cannot_be_proven_counts_as_changed),
		TEST(changes_one_by_one),
		TEST(a_replaced_directory_one_by_one),
		TEST(changes_know_both_sides),
		TEST(what_the_workspace_closed_as_user),
		TEST(a_damaged_record_ends_the_comparison),
		TEST(sec_03_an_entry_that_keeps_changing_its_type),
		cmocka_unit_test(sec_04_which_links_escape),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

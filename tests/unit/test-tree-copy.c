/* SPDX-License-Identifier: Apache-2.0 */
/* Building a workspace: a complete copy, and a record that says so. */
#include "diff/tree.h"

#include "unit/tree-fixture.h"

#include "util/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* After the copy the trees are the same, and the comparison thinks so too. */
static void assert_faithful(struct tree *t)
{
	tree_sh(t, SAME_TREES);
	assert_true(tree_is(t, ""));
	assert_int_equal(t->cs.n_dirs, 0);
}

static void an_empty_tree(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);

		tree_make(&t);
		assert_int_equal(base_count(t.base), 0);
		assert_faithful(&t);
	}
}

static void bkp_01_copied_links_stay_links(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);

		tree_sh(&t,
		        "cd $O; mkdir d; echo x > f; ln -s f file; ln -s d dir; ln -s $O/f abs; "
		        "ln -s nowhere dangling; ln -s loop loop; ln -s ../f d/up; "
		        "touch -h -d '2001-02-03 04:05:06.070809' file loop");
		tree_make(&t);
		assert_int_equal(base_count(t.base), 8);
		assert_faithful(&t);
	}
}

static void bkp_02_to_04_modes_and_times_survive(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);

		tree_sh(&t,
		        "cd $O; mkdir -p a/b/c e; for f in 0600 0755 0444 4755 0000; do "
		        "echo $f > a/b/$f; chmod $f a/b/$f; done; chmod 0750 a; chmod 0700 a/b; "
		        "chmod 2775 a/b/c; chmod 1777 e; chmod 0711 .; "
		        "touch -d '2001-01-01 01:01:01.123456789' a/b/0600; "
		        "touch -d '1969-12-31 23:59:58.000000001' a/b/0755; "
		        "touch -d '2002-02-02 02:02:02.2' a/b/c; touch -d '2003-03-03 03:03:03.3' a/b; "
		        "touch -d '2004-04-04 04:04:04.4' a; touch -d '2005-05-05 05:05:05.5' e; "
		        "touch -d '2006-06-06 06:06:06.6' .");
		tree_make(&t);
		assert_faithful(&t);
	}
}

static void bkp_06_special_files_are_recreated(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		int64_t before = clock_boot_ns();

		assert_int_equal(mkfifoat(t.orig_fd, "fifo", 0640), 0);
		assert_int_equal(mknodat(t.orig_fd, "socket", S_IFSOCK | 0600, 0), 0);
		if (geteuid() == 0)
			assert_int_equal(
				mknodat(t.orig_fd, "device", S_IFCHR | 0666, makedev(1, 3)), 0);
		tree_make(&t);
		assert_faithful(&t);
		assert_true(clock_boot_ns() - before < INT64_C(2000000000));
	}
}

static void bkp_07_attributes_survive(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		char value[8];
		int fd;

		tree_sh(&t, "cd $O; mkdir d; echo x > d/f");
		fd = open_dir(t.orig_fd, "d");
		if (fsetxattr(fd, "user.x", "dir", 3, 0) < 0) {
			close(fd);
			continue; /* a filesystem without them */
		}
		close(fd);
		fd = openat(t.orig_fd, "d/f", O_RDONLY | O_CLOEXEC);
		assert_int_equal(fsetxattr(fd, "user.y", "file", 4, 0), 0);
		close(fd);
		tree_make(&t);
		assert_faithful(&t);
		fd = open_dir(t.work_fd, "d");
		assert_int_equal(fgetxattr(fd, "user.x", value, sizeof(value)), 3);
		assert_memory_equal(value, "dir", 3);
		close(fd);
		fd = openat(t.work_fd, "d/f", O_RDONLY | O_CLOEXEC);
		assert_int_equal(fgetxattr(fd, "user.y", value, sizeof(value)), 4);
		close(fd);
	}
}

static void bkp_08_copied_owners_survive(void **state)
{
	if (geteuid() != 0)
		skip();
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);

		tree_sh(&t,
		        "cd $O; mkdir d; echo x > d/f; ln -s f d/l; chown -h 1000:1001 d/f d/l; "
		        "chown 65534:65534 d; chown 4711:4712 .");
		tree_make(&t);
		assert_faithful(&t);
	}
}

static void odd_names(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		char longest[256];

		memset(longest, 'n', 255);
		longest[255] = '\0';
		make_dir(t.orig_fd, "new\nline");
		make_dir(t.orig_fd, longest);
		write_file(t.orig_fd, "new\nline/\377\376", "not UTF-8");
		write_file(t.orig_fd, " ", "blank");
		write_file(t.orig_fd, "-rf", "option");
		tree_make(&t);
		assert_int_equal(base_count(t.base), 5);
		assert_true(exists(t.work_fd, "new\nline/\377\376") && exists(t.work_fd, longest));
		assert_faithful(&t);
	}
}

static void paths_past_path_max(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		char name[201];

		memset(name, 'd', 200);
		name[200] = '\0';
		make_chain(t.orig_fd, name, 40);
		tree_make(&t);
		assert_int_equal(base_count(t.base), 41);
		assert_true(tree_is(&t, ""));
	}
}

static void hard_links_stay_linked(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);

		tree_sh(&t,
		        "cd $O; mkdir a b c; echo x > a/1; ln a/1 b/2; ln a/1 c/3; ln -s l a/l; "
		        "ln a/l b/l; echo alone > a/alone; ln a/alone ../outside");
		tree_make(&t);
		tree_sh(&t, "[ $(stat -c %h $W/a/1) = 3 ]; [ $W/a/1 -ef $W/b/2 ]; "
		            "[ $W/a/1 -ef $W/c/3 ]; [ $(stat -c %h $W/a/l) = 2 ]; "
		            "[ $(stat -c %h $W/a/alone) = 1 ]; rm outside");
		assert_faithful(&t);
		/* Their ctime is known, although it changed after the first was recorded: somebody
		 * else's edit does not become ours. */
		tree_sh(&t, "echo theirs > $O/a/1");
		assert_true(tree_is(&t, ""));
		tree_sh(&t, "echo ours >> $W/b/2");
		assert_true(tree_is(&t, "~ a/1 ct\n~ b/2 ct\n~ c/3 ct\n"));
	}
}

static void excluded_paths_are_left_alone(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);

		tree_sh(&t, "cd $O; mkdir -p a/b/c a/d; echo x > a/b/f; echo y > a/d/f");
		strlist_add(&t.excludes, "a/b");
		strlist_add(&t.excludes, "a/d/f");
		tree_make(&t);
		assert_int_equal(base_count(t.base), 2);
		assert_false(exists(t.work_fd, "a/b") || exists(t.work_fd, "a/d/f"));
		assert_true(tree_is(&t, ""));
		tree_sh(&t, "cd $W; mkdir a/b; echo z > a/b/z; echo z > a/d/f");
		assert_true(tree_is(&t, ""));
	}
}

static int locked_directories_as_user(int fd)
{
	cleanup_tree struct tree t = tree_start(fd);

	tree_sh(&t, "cd $O; mkdir -p a/b; echo x > a/b/f; echo y > a/f; chmod 0400 a/f; "
	            "touch -d '2001-01-01 01:01:01.1' a/b; chmod 0500 a/b a; "
	            "touch -d '2002-02-02 02:02:02.2' .; chmod 0500 .");
	tree_make(&t);
	tree_sh(&t, SAME_TREES);
	CHECK(tree_is(&t, "") && t.cs.n_dirs == 0 && t.notes.len == 0);
	tree_sh(&t, "cd $W; chmod u+w a/b; echo z > a/b/z; chmod u-w a/b");
	CHECK(tree_is(&t, "+ a/b/z\n"));
	return 0;
}

static void bkp_05_locked_directories(void **state)
{
	as_user_in_memory(state, locked_directories_as_user);
}

static int unreadable_as_user(int fd)
{
	cleanup_tree struct tree t = tree_start(fd);
	const char *notes;

	tree_sh(&t, "cd $O; mkdir closed listed; echo x > closed/f; echo y > listed/f; "
	            "echo secret > unreadable; touch -d '2001-01-01 01:01:01.1' unreadable; "
	            "chmod 0000 closed unreadable; chmod 0400 listed");
	tree_make(&t);
	notes = strbuf_str(&t.notes);
	CHECK(strstr(notes, "closed: cannot be read") && strstr(notes, "listed: cannot be read") &&
	      strstr(notes, "unreadable: cannot be read"));
	tree_sh(&t, "cd $W; [ $(stat -c %a closed) = 0 ]; [ $(stat -c %a listed) = 400 ]; "
	            "[ \"$(stat -c '%a %s %y' unreadable | cut -c1-14)\" = '0 0 2001-01-01' ]");
	CHECK(base_count(t.base) == 3);
	CHECK(tree_is(&t, ""));
	tree_sh(&t, "cd $W; chmod u+rwx closed; echo n > closed/new; chmod 0600 unreadable; "
	            "rmdir listed");
	CHECK(tree_is(&t, "@ closed m !U\n+ closed/new !U\n- listed !U\n~ unreadable m !U\n"));
	tree_sh(&t, "chmod -R u+rwx $O");
	return 0;
}

static void what_cannot_be_read_gets_a_stand_in(void **state)
{
	as_user_in_memory(state, unreadable_as_user);
}

/* Somebody else's files: the copies are ours, which is no change by itself. */
static int foreign_as_user(int fd)
{
	cleanup_tree struct tree t = tree_start(fd);

	close(t.orig_fd);
	t.orig_fd = openat(fd, "foreign", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(t.orig_fd >= 0);
	tree_make(&t);
	CHECK(tree_is(&t, ""));
	CHECK(!exists(t.work_fd, "null") && strstr(strbuf_str(&t.notes), "null: is a device"));
	tree_sh(&t,
	        "cd $W; chmod 0600 d/f; chmod 0600 d/f; touch d/f; touch -r ../foreign/d/f d/f; "
	        "chmod 0644 d/f; chmod 0711 d; chmod 0755 d");
	CHECK(tree_is(&t, ""));
	tree_sh(&t, "echo mine > $W/null");
	CHECK(tree_is(&t, "~ null T !K\n"));
	return 0;
}

static void somebody_elses_tree_as_user(void **state)
{
	struct fixture_dir *d = &((struct fixture *)*state)->dir[1];
	int fd;

	if (geteuid() != 0)
		skip();
	make_dir(d->fd, "his");
	make_dir(d->fd, "his/foreign");
	fd = open_dir(d->fd, "his/foreign");
	make_dir(fd, "d");
	write_file(fd, "d/f", "x");
	assert_int_equal(mknodat(fd, "null", S_IFCHR | 0666, makedev(1, 3)), 0);
	close(fd);
	as_user_in_memory(state, foreign_as_user);
}

static int mounts_below(int fd)
{
	cleanup_tree struct tree t = tree_start(fd);

	tree_sh(&t, "cd $O; mkdir -p d/mnt; echo x > bound; echo y > other; "
	            "mount -t tmpfs none d/mnt; echo z > d/mnt/f; mount --bind other bound");
	tree_make(&t);
	CHECK(strstr(strbuf_str(&t.notes), "d/mnt: is a mount point"));
	CHECK(strstr(strbuf_str(&t.notes), "bound: is a mount point"));
	CHECK(exists(t.work_fd, "d/mnt") && !exists(t.work_fd, "d/mnt/f"));
	CHECK(tree_is(&t, ""));
	tree_sh(&t, "echo n > $W/d/mnt/n; rm $W/bound");
	CHECK(tree_is(&t, "- bound !U\n+ d/mnt/n !U\n"));
	tree_sh(&t, "umount $O/d/mnt $O/bound");
	return 0;
}

static void mount_points_are_left_out(void **state)
{
	struct fixture *f = *state;

	if (!among_own_mounts(&f->dir[1], mounts_below))
		skip();
}

static atomic_bool stop_writing;

static void *keep_writing(void *arg)
{
	struct tree *t = arg;

	for (unsigned i = 0; !atomic_load(&stop_writing); i++) {
		char name[32], other[32];

		snprintf(name, sizeof(name), "d%u/new%u", i % 7, i % 50);
		snprintf(other, sizeof(other), "d%u/moved%u", (i + 3) % 7, i % 50);
		switch (i % 5) {
		case 0:
			write_file(t->orig_fd, name, "new");
			break;
		case 1:
			(void)unlinkat(t->orig_fd, other, 0);
			(void)mkdirat(t->orig_fd, other, 0755);
			break;
		case 2:
			(void)renameat(t->orig_fd, name, t->orig_fd, other);
			break;
		case 3:
			(void)unlinkat(t->orig_fd, other, AT_REMOVEDIR);
			break;
		default:
			usleep(200);
		}
	}
	return NULL;
}

/* Whatever was caught, the workspace is what the record says. */
static void der_03_an_original_that_changes_meanwhile(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		pthread_t thread;
		int r;

		tree_sh(&t, "cd $O; for i in 0 1 2 3 4 5 6; do mkdir d$i; for k in $(seq 40); do "
		            "echo $i $k > d$i/$k; done; done");
		atomic_store(&stop_writing, false);
		assert_int_equal(pthread_create(&thread, NULL, keep_writing, &t), 0);
		r = tree_try_copy(&t, 3);
		atomic_store(&stop_writing, true);
		assert_int_equal(pthread_join(thread, NULL), 0);
		if (r < 0)
			assert_int_equal(r, -EAGAIN);
		else
			assert_true(tree_is(&t, ""));
	}
}

static void der_03_the_last_listing_counts(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);
		pthread_t thread;

		tree_sh(&t, "cd $O; for i in 0 1 2 3 4 5 6; do mkdir d$i; done");
		atomic_store(&stop_writing, false);
		assert_int_equal(pthread_create(&thread, NULL, keep_writing, &t), 0);
		usleep(20000);
		atomic_store(&stop_writing, true);
		assert_int_equal(pthread_join(thread, NULL), 0);
		tree_make(&t);
		assert_faithful(&t);
	}
}

/* Told of an unreadable file, in the middle of its directory, somebody changes the directory. */
static void edit_when_told(void *ctx, const char *path, const char *why)
{
	struct tree *t = ctx;

	(void)path;
	(void)why;
	if (strbuf_str(&t->notes)[0] == '\0')
		tree_sh(t,
		        "cd $O/d; chmod 0700 .; echo n > 0-new; rm 1-copied; mv 2-other 3-replaced; "
		        "rm -r 4-dir; echo f > 4-dir; mkdir 5-dir; echo x > 5-dir/x; rm 9-later; "
		        "chmod 0500 .");
	strbuf_puts(&t->notes, "told\n");
}

static int edited_meanwhile(int fd)
{
	cleanup_tree struct tree t = tree_start(fd);
	struct base_writer *w = NULL;
	int base_fd;

	tree_sh(&t, "cd $O; mkdir -p d/4-dir; cd d; echo y > 4-dir/y; touch 1-copied 9-later; "
	            "echo 2 > 2-other; echo 3 > 3-replaced; echo s > unreadable; "
	            "chmod 0000 unreadable; mkdir z; echo z > z/z; chmod 0500 .");
	base_fd = openat(fd, "base", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(base_fd >= 0 && base_writer_new(base_fd, &w) == 0);
	CHECK(tree_copy(t.orig_fd, t.work_fd, NULL, w, 1, edit_when_told, &t, &t.err) == 0);
	CHECK(strcmp(strbuf_str(&t.notes), "told\n") == 0);
	CHECK(base_open(base_fd, &t.base, &t.err) == 0);
	close(base_fd);
	base_writer_free(w);
	t.cmp = (struct tree_compare){ .work_fd = t.work_fd, .orig_fd = t.orig_fd, .base = t.base };
	tree_sh(&t, "chmod 0600 $O/d/unreadable; m=$(stat -c %y $O/d/unreadable); "
	            ": > $O/d/unreadable; touch -d \"$m\" $O/d/unreadable; "
	            "chmod 0000 $O/d/unreadable; " SAME_TREES);
	CHECK(tree_is(&t, "") && t.cs.n_dirs == 0);
	return 0;
}

static void der_03_a_directory_edited_while_it_is_copied(void **state)
{
	as_user_in_memory(state, edited_meanwhile);
}

static void a_failure_names_the_path(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_tree struct tree t = tree_start(d->fd);

		tree_sh(&t, "mkdir -p $O/a/b $W/a; echo x > $O/a/b/f");
		assert_int_equal(tree_try_copy(&t, 3), -EEXIST);
		assert_non_null(strstr(t.err.msg, "'a'"));
	}
}

static void many_files_and_threads(void **state)
{
	struct fixture *f = *state;
	cleanup_tree struct tree t = tree_start(f->dir[1].fd);

	tree_sh(&t, "cd $O; for i in $(seq 25); do mkdir -p $i/a/b; for k in a a/b .; do "
	            "touch $(seq -f \"$i/$k/f%g\" 66); done; ln 1/f1 $i/linked; done");
	assert_int_equal(tree_try_copy(&t, 8), 0);
	assert_int_equal(base_count(t.base), 25 * (3 + 3 * 66 + 1));
	t.cmp.threads = 8;
	assert_true(tree_is(&t, ""));
	tree_sh(&t, "[ $(stat -c %h $W/25/linked) = 26 ]");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_empty_tree),
		TEST(bkp_01_copied_links_stay_links),
		TEST(bkp_02_to_04_modes_and_times_survive),
		TEST(bkp_05_locked_directories),
		TEST(bkp_06_special_files_are_recreated),
		TEST(bkp_07_attributes_survive),
		TEST(bkp_08_copied_owners_survive),
		TEST(odd_names),
		TEST(paths_past_path_max),
		TEST(hard_links_stay_linked),
		TEST(excluded_paths_are_left_alone),
		TEST(what_cannot_be_read_gets_a_stand_in),
		TEST(somebody_elses_tree_as_user),
		TEST(mount_points_are_left_out),
		TEST(der_03_an_original_that_changes_meanwhile),
		TEST(der_03_a_directory_edited_while_it_is_copied),
		TEST(der_03_the_last_listing_counts),
		TEST(a_failure_names_the_path),
		TEST(many_files_and_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What entries hold, and which of two looks are of the same. */
#include "fs/content.h"

#include "util/cleanup.h"

#include "unit/fs-fixture.h"

#include <sys/xattr.h>

__attribute__((format(printf, 2, 3))) static void sh(int dir_fd, const char *format, ...)
{
	char script[2000], command[2400];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(script, sizeof(script), format, ap);
	va_end(ap);
	(void)snprintf(
		command, sizeof(command),
		"cd /proc/%d/fd/%d && export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null "
		"HOME=/nonexistent && set -e && umask 022 && %s",
		(int)getpid(), dir_fd, script);
	assert_int_equal(system(command), 0);
}

static struct fs_stat look(int dir_fd, const char *path)
{
	struct fs_stat st;

	assert_int_equal(fs_stat_at(dir_fd, path, FS_STAT_ID, &st), 0);
	return st;
}

static struct fs_stat record(int dir_fd, const char *path)
{
	struct fs_stat st = look(dir_fd, path);

	fs_content_take_below(dir_fd, path, &st);
	return st;
}

/* As a commit asks. */
static bool is_same(int dir_fd, const char *path, const struct fs_stat *was)
{
	struct fs_stat now = look(dir_fd, path);

	return fs_content_same(dir_fd, path, was, &now);
}

static void der_03_what_is_the_same(void **state)
{
	static const struct {
		const char *edit;
		const char *path;
		bool same;
	} rows[] = {
		{ "touch -d 2005-05-05 d/f", "d/f", true },
		{ "ln d/f d/more", "d/f", true },
		{ "rm d/f; echo content >d/f", "d/f", true },
		{ "echo other >d/f; echo content >d/f", "d/f", true },
		{ "echo Content >d/f", "d/f", false },
		{ "chmod 600 d/f", "d/f", false },
		{ "rm d/f; ln -s content d/f", "d/f", false },
		{ "touch -h -d 2005-05-05 l", "l", true },
		{ "rm l; ln -s content l", "l", true },
		{ "ln -sfn Content l", "l", false },
		{ "rm l; printf content >l", "l", false },
		{ "rm long; seq 1 200000 >long", "long", true },
		{ "printf x | dd of=long bs=1 seek=1000000 conv=notrunc 2>/dev/null", "long",
		  false },
		{ "echo >>long", "long", false },
		{ "touch -d 2005-05-05 empty", "empty", true },
		{ "echo >empty", "empty", false },
		/* of these there is no content */
		{ "touch -d 2005-05-05 d", "d", false },
		{ "touch -d 2005-05-05 fifo", "fifo", false },
		{ "touch -d 2005-05-05 huge", "huge", false },
		{ "touch -d 2005-05-05 large", "large", true },
	};

	for_each_dir(d, state)
	{
		sh(d->fd,
		   "mkdir d; echo content >d/f; ln -s content l; seq 1 200000 >long; : >empty; mkfifo fifo; "
		   "truncate -s 67108865 huge; truncate -s 16384 large");
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			struct fs_stat was = record(d->fd, rows[i].path);

			sh(d->fd, "cp -a . ../keep; %s", rows[i].edit);
			if (is_same(d->fd, rows[i].path, &was) != rows[i].same)
				fail_msg("%s", rows[i].edit);
			sh(d->fd, "find . -mindepth 1 -delete; cp -a ../keep/. .; rm -r ../keep");
		}
	}
}

static void der_03_attributes_count(void **state)
{
	for_each_dir(d, state)
	{
		struct fs_stat was;

		write_file(d->fd, "f", "content");
		was = record(d->fd, "f");
		sh(d->fd, "setfattr -n user.x -v 1 f 2>/dev/null || :");
		if (look(d->fd, "f").ctime_ns == was.ctime_ns)
			continue; /* it has none here */
		assert_false(is_same(d->fd, "f", &was));
		sh(d->fd, "setfattr -x user.x f");
		assert_true(is_same(d->fd, "f", &was));
	}
}

/* What came between the look and the reading is of neither. */
static void der_03_content_is_of_the_entry_that_was_seen(void **state)
{
	for_each_dir(d, state)
	{
		struct fs_stat st;

		write_file(d->fd, "f", "content");
		st = look(d->fd, "f");
		sh(d->fd, "rm f; echo other >f");
		fs_content_take(d->fd, "f", &st);
		assert_false(st.content.known);
		st = look(d->fd, "f");
		sh(d->fd, "rm f; mkfifo f");
		fs_content_take(d->fd, "f", &st);
		assert_false(st.content.known);
		st = look(d->fd, "f");
		fs_content_take(d->fd, "f", &st);
		assert_false(st.content.known);
	}
}

/* Of every version and both kinds of object names. */
static void der_03_an_index_that_git_status_wrote_anew_says_the_same(void **state)
{
	static const char *const formats[] = { "sha1", "sha256" };

	for_each_dir(d, state)
	{
		for (unsigned i = 0; i < 6; i++) {
			unsigned version = 2 + i / 2;
			struct fs_stat was;

			sh(d->fd,
			   "rm -rf r; git init -q --object-format=%s r; cd r; git config core.checkStat default; "
			   "mkdir dir; echo 1 >a; echo 2 >dir/file; echo 3 >dir/file-with-a-long-name; git add .; "
			   "%s git update-index --index-version %u; git status >/dev/null; cp .git/index ../was",
			   formats[i % 2], version == 3 ? "echo 4 >later; git add -N later;" : "",
			   version);
			was = record(d->fd, "r/.git/index");
			sh(d->fd, "cd r; touch -d 2005-05-05 a dir/file; git status >/dev/null; "
			          "! cmp -s .git/index ../was");
			assert_true(is_same(d->fd, "r/.git/index", &was));
			sh(d->fd, "cd r; echo new >a; git add a");
			assert_false(is_same(d->fd, "r/.git/index", &was));
			sh(d->fd, "cd r; echo 1 >a; git add a");
			assert_true(is_same(d->fd, "r/.git/index", &was));
			sh(d->fd, "cd r; git update-index --chmod=+x dir/file");
			assert_false(is_same(d->fd, "r/.git/index", &was));
			sh(d->fd, "cd r; git update-index --chmod=-x dir/file; git mv a b");
			assert_false(is_same(d->fd, "r/.git/index", &was));
			/* One that is cut is any file. */
			sh(d->fd, "cd r; truncate -s -1 ../was; cp ../was .git/index");
			was = record(d->fd, "r/.git/index");
			sh(d->fd,
			   "cd r; printf x | dd of=.git/index bs=1 seek=12 conv=notrunc 2>/dev/null");
			assert_false(is_same(d->fd, "r/.git/index", &was));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(der_03_what_is_the_same, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(der_03_attributes_count, fixture_setup,
		                                fixture_teardown),
		cmocka_unit_test_setup_teardown(der_03_content_is_of_the_entry_that_was_seen,
		                                fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(
			der_03_an_index_that_git_status_wrote_anew_says_the_same, fixture_setup,
			fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

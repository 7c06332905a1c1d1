/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules ATM: what is left after a failure or a death in the middle, and that it can be mended.
 */
#include "lib/atest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- ATM-05: recovery material ---- */

static ino_t wanted_inode; /* nftw has no room for it */
static char found_path[PATH_MAX];

static int match_inode(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)type;
	(void)ftw;
	if (st->st_ino != wanted_inode)
		return 0;
	(void)snprintf(found_path, sizeof(found_path), "%s", path);
	return 1;
}

/* Where the entry with that inode lies below DIR, or NULL. */
static const char *find_inode(const char *dir, ino_t inode)
{
	wanted_inode = inode;
	return nftw(dir, match_inode, 32, FTW_PHYS) == 1 ? found_path : NULL;
}

static ino_t inode_of(const char *path)
{
	struct stat st;

	expect_eq(lstat(path, &st), 0);
	return st.st_ino;
}

static int block_restore(void *user, struct atoll_participant *p, enum phase phase)
{
	(void)p;
	(void)phase;
	set_immutable(user, true);
	return -ENOSPC;
}

/* Nothing is copied after the decision, so a full disk cannot stop the carrying out: the last
 * participant fails in its place, having made the first's directory immutable. */
static struct atoll_plan *fail_both_ways(struct fix *f, const char **ret_root, char **ret_before,
                                         ino_t *ret_inode)
{
	struct atoll_plan *p = fix_plan(f, "stuck");
	const char *root = fix_dir(f, "resource"), *last = fix_dir(f, "last");

	put_random_tree(root, 20, 5);
	put_dir(fix_path(f, "%s/dir", root), 0755);
	put_text(fix_path(f, "%s/dir/file", root), "the original\n");
	*ret_inode = inode_of(fix_path(f, "%s/dir/file", root));
	*ret_before = fix_keep(f, man_take(root));
	*ret_root = root;
	fix_add(f, p, root, "copy");
	fix_add(f, p, last, "failer");
	put_text(fix_path(f, "%s/dir/file", fix_work(f, p, root)), "the work\n");
	put_text(fix_path(f, "%s/value", fix_work(f, p, last)), "x\n");
	phase_hook(last, PHASE_COMMIT, block_restore, fix_path(f, "%s/dir", root));
	expect_code(f, atoll_plan_commit(p, 0, f->res), -ATOLL_E_NEEDS_RECOVERY);
	phase_clear();
	return p;
}

static void atm_05_failed_restore_keeps_the_original_and_says_where(void **state)
{
	struct fix *f = *state;
	const struct atoll_participant_result *row;
	const char *root, *kept, *place;
	struct atoll_plan *p;
	char *before;
	ino_t inode;

	need_root();
	p = fail_both_ways(f, &root, &before, &inode);
	row = fix_row(f, root);
	expect_eq(row->outcome, ATOLL_OUTCOME_ROLLBACK_FAILED);
	expect_eq(row->resource_restored, ATOLL_FACT_NO);
	place = fix_path(f, "%s", row->recovery_path);
	kept = find_inode(place, inode);
	expect(kept != NULL);
	expect_text(kept, "the original\n");

	/* As long as the cause is there, nothing is lost by trying. */
	expect_eq(atoll_recover(f->a, "stuck", false, f->res), 1);
	kept = find_inode(place, inode);
	expect(kept != NULL);
	expect_text(kept, "the original\n");

	set_immutable(fix_path(f, "%s/dir", root), false);
	expect_eq(atoll_recover(f->a, "stuck", false, f->res), 0);
	expect_man(root, before);
	expect_eq(inode_of(fix_path(f, "%s/dir/file", root)), inode);
	expect(find_inode(place, inode) == NULL);
	expect_text(fix_path(f, "%s/dir/file", fix_work(f, p, root)), "the work\n");
}

static void stm_07_unrestored_data_is_not_stopped_away(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p;
	const char *root;
	char *before;
	ino_t inode;

	need_root();
	p = fail_both_ways(f, &root, &before, &inode);
	expect(atoll_plan_stop(p, 0, f->res) < 0);
	expect(find_inode(f->home, inode) != NULL);
	expect(atoll_plan_reset(p, f->res) < 0);
	expect(find_inode(f->home, inode) != NULL);
	set_immutable(fix_path(f, "%s/dir", root), false);
	expect_eq(atoll_recover(f->a, "stuck", false, f->res), 0);
	expect_man(root, before);
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	expect_text(fix_path(f, "%s/dir/file", root), "the work\n");
}

/* ---- ATM-07: a reader never finds a hole ---- */

#define READ_FILES 8
#define READ_SIZE  8192

struct watched {
	char paths[READ_FILES][PATH_MAX];
};

/* Whole, and all of one version. */
static int read_whole(const char *path)
{
	char data[READ_SIZE + 1];
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	n = read(fd, data, sizeof(data));
	(void)close(fd);
	if (n != READ_SIZE || stat(path, &st) < 0 || st.st_size != READ_SIZE)
		return -1;
	for (ssize_t i = 1; i < n; i++)
		if (data[i] != data[0])
			return -1;
	return data[0] == 'a' || data[0] == 'b' ? 0 : -1;
}

static int read_round(void *user)
{
	const struct watched *w = user;

	for (size_t i = 0; i < READ_FILES; i++) {
		int r = read_whole(w->paths[i]);

		if (r < 0) {
			fprintf(stderr, "reader: %s: %s\n", w->paths[i],
			        r == -1 ? "short or mixed" : strerror(-r));
			return -1;
		}
	}
	return 0;
}

static void put_letters(const char *path, char letter)
{
	char data[READ_SIZE + 1];

	memset(data, letter, READ_SIZE);
	data[READ_SIZE] = '\0';
	put_text(path, data);
}

static void atm_07_readers_see_one_version_or_the_other(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *root = fix_dir(f, "resource");
	struct watched *w = calloc(1, sizeof(*w));
	struct reader *reader;
	char *before;

	for (size_t i = 0; i < READ_FILES; i++) {
		if (i % 2 == 0)
			put_dir(fix_path(f, "%s/d%zu", root, i / 2), 0755);
		(void)snprintf(w->paths[i], PATH_MAX, "%s/d%zu/f%zu", root, i / 2, i);
		put_letters(w->paths[i], 'a');
	}
	before = fix_keep(f, man_take(root));
	fix_add(f, p, root, "copy");
	reader = reader_start(read_round, w);
	for (int cycle = 0; cycle < 500; cycle++) {
		char *work = NULL;

		expect_ok(f, atoll_sandbox_path(p, NULL, &work, f->res));
		for (size_t i = 0; i < READ_FILES; i++) {
			char path[PATH_MAX];

			(void)snprintf(path, sizeof(path), "%s%s", work,
			               w->paths[i] + strlen(root));
			put_letters(path, 'b');
		}
		free(work);
		expect_ok(f, atoll_plan_commit(p, 0, f->res));
		expect_ok(f, atoll_plan_rollback(p, 0, f->res));
	}
	expect(reader_stop(reader) > 0);
	free(w);
	expect_man(root, before);
}

/* ---- ATM-08 ---- */

static void atm_08_undo_on_a_full_disk_strands_nothing(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, "full");
	const char *mount, *root;
	size_t entries;
	char *before;
	int r;

	need_root();
	mount = fix_tmpfs(f, "full", 8u << 20);
	root = fix_path(f, "%s/resource", mount);
	put_dir(root, 0755);
	put_files(root, 100, "old");
	before = fix_keep(f, man_take(root));
	fix_add(f, p, root, "copy");
	entries = count_entries(mount);
	put_files(fix_work(f, p, root), 120, "new");
	remove_entry(fix_path(f, "%s/d02", fix_work(f, p, root)));
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	fill_up(mount, "filler", 0);
	r = atoll_plan_rollback(p, 0, f->res);
	remove_entry(fix_path(f, "%s/filler", mount));
	if (r < 0) {
		expect_eq(atoll_recover(f->a, "full", false, f->res), 0);
		expect_ok(f, atoll_plan_rollback(p, 0, f->res));
	}
	expect_man(root, before);
	expect_eq(count_entries(mount), entries);
	expect_ok(f, atoll_plan_stop(p, ATOLL_FORCE, f->res));
	expect_eq(count_entries(mount), 1);
}

static int refuse_undo(void *user, struct atoll_participant *p, enum phase phase)
{
	(void)user;
	(void)p;
	(void)phase;
	return -EIO;
}

/* Nothing is set aside for a rollback, so nothing that needs room may stop it from being withdrawn. */
static void atm_08_an_undo_is_withdrawn_on_a_full_disk(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, "withdrawn");
	const char *mount, *root, *first = fix_dir(f, "first");
	char *before, *after;

	need_root();
	mount = fix_tmpfs(f, "full", 8u << 20);
	root = fix_path(f, "%s/resource", mount);
	put_dir(root, 0755);
	put_files(root, 100, "old");
	before = fix_keep(f, man_take(root));
	/* Undone last, when all of the other went back. */
	fix_add(f, p, first, "failer");
	fix_add(f, p, root, "copy");
	put_files(fix_work(f, p, root), 120, "new");
	put_text(fix_path(f, "%s/value", fix_work(f, p, first)), "x\n");
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	after = fix_keep(f, man_take(root));
	phase_hook(first, PHASE_UNDO, refuse_undo, NULL);
	fill_up(mount, "filler", 0);
	expect_code(f, atoll_plan_rollback(p, 0, f->res), -EIO);
	expect_man(root, after);
	phase_clear();
	remove_entry(fix_path(f, "%s/filler", mount));
	expect_ok(f, atoll_plan_rollback(p, 0, f->res));
	expect_man(root, before);
	expect_ok(f, atoll_plan_stop(p, ATOLL_FORCE, f->res));
	expect_eq(count_entries(mount), 1);
}

/* ---- ATM-13 ---- */

static void empty_directory(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;

	expect(dir != NULL);
	while ((e = readdir(dir)) != NULL) {
		char name[PATH_MAX];

		(void)snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			remove_entry(name);
	}
	(void)closedir(dir);
}

static void atm_13_undo_without_its_data_is_an_error(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *root = fix_dir(f, "resource"), *other = fix_dir(f, "other");
	char *after, *other_after;

	put_text(fix_path(f, "%s/file", root), "old\n");
	put_text(fix_path(f, "%s/file", other), "old\n");
	fix_add(f, p, root, "copy");
	fix_add(f, p, other, "copy");
	put_text(fix_path(f, "%s/file", fix_work(f, p, root)), "new\n");
	put_text(fix_path(f, "%s/file", fix_work(f, p, other)), "new\n");
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
	after = fix_keep(f, man_inodes(root));
	other_after = fix_keep(f, man_inodes(other));
	empty_directory(fix_area(f, p, root));

	expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_RECOVERY_MISSING);
	expect(fix_outcome(f, root) != ATOLL_OUTCOME_ROLLED_BACK);
	expect(fix_outcome(f, other) != ATOLL_OUTCOME_ROLLED_BACK);
	expect_eq(fix_state(f, p, root), ATOLL_SANDBOX_ERRORED);
	expect_inodes(root, after);
	expect_inodes(other, other_after);
	man_assert_equal(after, fix_keep(f, man_inodes(root)));
}

static void atm_13_undo_after_release_is_an_error(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, NULL);
	const char *root = fix_dir(f, "resource");
	char *after;

	put_text(fix_path(f, "%s/file", root), "old\n");
	fix_add(f, p, root, "copy");
	put_text(fix_path(f, "%s/file", fix_work(f, p, root)), "new\n");
	expect_ok(f, atoll_plan_commit(p, ATOLL_NO_UNDO, f->res));
	after = fix_keep(f, man_take(root));
	expect_code(f, atoll_plan_rollback(p, 0, f->res), -ATOLL_E_RECOVERY_MISSING);
	expect_man(root, after);
}

/* ---- ATM-14 ---- */

#define KILLED 3 /* resources */

struct killing {
	struct atoll_plan *plan;
	const char *roots[KILLED];
	uint64_t random;
	int64_t commit_us, undo_us; /* how long they take undisturbed, at most */
};

static void set_version(struct fix *f, struct killing *k, unsigned version)
{
	for (size_t i = 0; i < KILLED; i++) {
		char *work = NULL, path[PATH_MAX], text[32];

		expect_ok(f, atoll_sandbox_path(k->plan, k->roots[i], &work, f->res));
		(void)snprintf(path, sizeof(path), "%s/value", work);
		(void)snprintf(text, sizeof(text), "%u\n", version);
		put_text(path, text);
		if (i < KILLED - 1) {
			(void)snprintf(path, sizeof(path), "%s/d/added", work);
			put_text(path, text);
			(void)snprintf(path, sizeof(path), "%s/doomed", work);
			if (exists(path))
				remove_entry(path);
		}
		free(work);
	}
}

/* The version all resources have; 0: the first. Two different ones fail the test. */
static unsigned version_now(struct killing *k)
{
	unsigned first = 0;

	for (size_t i = 0; i < KILLED; i++) {
		char path[PATH_MAX], *text;
		unsigned v;

		(void)snprintf(path, sizeof(path), "%s/value", k->roots[i]);
		text = get_text(path);
		expect(text != NULL);
		v = (unsigned)strtoul(text, NULL, 10);
		free(text);
		if (i == 0)
			first = v;
		expect_eq(v, first);
		if (i == KILLED - 1)
			continue;
		(void)snprintf(path, sizeof(path), "%s/doomed", k->roots[i]);
		expect_eq(exists(path), v == 0);
		(void)snprintf(path, sizeof(path), "%s/d/added", k->roots[i]);
		expect_eq(exists(path), v != 0);
	}
	return first;
}

/* The child says when it begins, so that the blow can fall anywhere between then and the end. */
static pid_t start_victim(struct fix *f, bool undo, int *ret_ready)
{
	int ends[2];
	pid_t pid;

	expect_eq(pipe2(ends, O_CLOEXEC), 0);
	(void)fflush(NULL);
	pid = fork();
	if (pid == 0) {
		struct fix *mine = calloc(1, sizeof(*mine));
		struct atoll_plan *p;
		int r;

		fix_attach(mine, f->dir);
		p = fix_find(mine, "killed");
		if (write(ends[1], "x", 1) != 1)
			_exit(1);
		r = undo ? atoll_plan_rollback(p, 0, mine->res)
		         : atoll_plan_commit(p, 0, mine->res);
		_exit(r < 0);
	}
	expect(pid > 0);
	(void)close(ends[1]);
	*ret_ready = ends[0];
	return pid;
}

static int64_t now_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void strike(struct fix *f, struct killing *k, bool undo, bool spare)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGKILL };
	int64_t *most = undo ? &k->undo_us : &k->commit_us;
	int ready, status;
	pid_t pid = start_victim(f, undo, &ready);
	int64_t begun;
	char c;

	expect_eq(read(ready, &c, 1), 1);
	(void)close(ready);
	begun = now_us();
	if (!spare) {
		(void)usleep((useconds_t)(atest_random(&k->random) % (uint64_t)(*most + 1)));
		(void)kill(pid, signals[atest_random(&k->random) % 3]);
	}
	expect_eq(waitpid(pid, &status, 0), pid);
	if (spare)
		expect_eq(status, 0);
	if (spare || WIFEXITED(status))
		*most = now_us() - begun;
}

static void atm_14_killed_anywhere_is_all_old_or_all_new(void **state)
{
	struct fix *f = *state;
	struct killing k = { .random = UINT64_C(20010101) };
	int rounds = atest_long() ? 1000 : 200;
	unsigned old_ones = 0, new_ones = 0;
	char *before[KILLED];

	k.plan = fix_plan(f, "killed");
	for (size_t i = 0; i < KILLED; i++) {
		k.roots[i] = fix_dir(f, fix_path(f, "r%zu", i));
		put_text(fix_path(f, "%s/value", k.roots[i]), "0\n");
		if (i < KILLED - 1) {
			put_random_tree(k.roots[i], 10, (unsigned)i);
			put_dir(fix_path(f, "%s/d", k.roots[i]), 0755);
			put_text(fix_path(f, "%s/doomed", k.roots[i]), "doomed\n");
		}
		fix_add(f, k.plan, k.roots[i], i < KILLED - 1 ? "copy" : "failer");
		before[i] = fix_keep(f, man_take(k.roots[i]));
	}
	set_version(f, &k, 1);
	strike(f, &k, false, true);
	expect_eq(version_now(&k), 1);
	strike(f, &k, true, true);
	for (size_t i = 0; i < KILLED - 1; i++)
		expect_man(k.roots[i], before[i]);
	for (int i = 0; i < rounds; i++) {
		bool committed = version_now(&k) != 0;

		if (!committed)
			set_version(f, &k, (unsigned)i + 2);
		strike(f, &k, committed, false);
		expect_eq(atoll_recover(f->a, NULL, false, f->res), 0);
		if (version_now(&k))
			new_ones++;
		else
			old_ones++;
	}
	/* Both ends must have been met, or the blows all fell at one side. */
	expect(old_ones > 0 && new_ones > 0);
	if (version_now(&k))
		strike(f, &k, true, true);
	for (size_t i = 0; i < KILLED - 1; i++)
		expect_man(k.roots[i], before[i]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		atest(atm_05_failed_restore_keeps_the_original_and_says_where),
		atest(atm_07_readers_see_one_version_or_the_other),
		atest(atm_08_undo_on_a_full_disk_strands_nothing),
		atest(atm_08_an_undo_is_withdrawn_on_a_full_disk),
		atest(atm_13_undo_without_its_data_is_an_error),
		atest(atm_13_undo_after_release_is_an_error),
		atest(atm_14_killed_anywhere_is_all_old_or_all_new),
		atest(stm_07_unrestored_data_is_not_stopped_away),
	};

	return atest_main(argc, argv, tests, NULL);
}

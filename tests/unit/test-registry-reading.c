/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A registry opened to read: it leaves the store's files alone, sees what writers do, and becomes
 * an ordinary one when it must. Writers are child processes: one process never has both kinds.
 */
#include "unit/registry-fixture.h"

#include <signal.h>
#include <sys/wait.h>

#define ROUNDS 300

/* The URI must not take these for its own. */
static int odd_store_setup(void **state)
{
	(void)state;
	(void)snprintf(home, sizeof(home), "/tmp/atoll registry?a=b#%%41&-XXXXXX");
	if (!mkdtemp(home))
		return -1;
	home_fd = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return home_fd < 0 ? -1 : 0;
}

static pid_t start_child(void (*fn)(int fd), int fd)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		in_child = true;
		registry_program(false);
		fn(fd);
		_exit(0);
	}
	return pid;
}

static int wait_for(pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void add_one(int number)
{
	struct registry *r = open_store();
	char name[32];

	(void)snprintf(name, sizeof(name), "plan-%d", number);
	(void)add_plan(r, name);
	registry_close(r);
}

static void write_one(int number)
{
	assert_int_equal(wait_for(start_child(add_one, number)), 0);
}

/* Holds the store open: one byte says so, then it waits to be killed. */
static void hold_open(int fd)
{
	struct registry *r = open_store();

	(void)add_plan(r, "held");
	if (write(fd, "x", 1) != 1)
		_exit(98);
	for (;;)
		(void)pause();
}

static pid_t start_holder(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = start_child(hold_open, ready[1]);
	(void)close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	(void)close(ready[0]);
	return pid;
}

static void kill_holder(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(wait_for(pid), 128 + SIGKILL);
}

struct look {
	struct stat st[3];
};

static struct look look_at_files(void)
{
	static const char *const names[] = { "atoll.db", "atoll.db-wal", "atoll.db-shm" };
	struct look l = { 0 };

	for (size_t i = 0; i < 3; i++)
		assert_int_equal(fstatat(home_fd, names[i], &l.st[i], 0), 0);
	return l;
}

static void assert_same_files(const struct look *a, const struct look *b)
{
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(a->st[i].st_ino, b->st[i].st_ino);
		assert_int_equal(a->st[i].st_size, b->st[i].st_size);
		assert_int_equal(a->st[i].st_mtim.tv_sec, b->st[i].st_mtim.tv_sec);
		assert_int_equal(a->st[i].st_mtim.tv_nsec, b->st[i].st_mtim.tv_nsec);
	}
}

static void reading_leaves_files_alone(void **state)
{
	struct registry *r;
	struct look before, after;

	(void)state;
	write_one(1);
	before = look_at_files();
	r = open_store();
	assert_int_equal(plans_in(r), 1);
	registry_close(r);
	after = look_at_files();
	assert_same_files(&before, &after);
}

static void missing_store_is_made(void **state)
{
	struct registry *r = open_store();

	(void)state;
	assert_int_equal(plans_in(r), 0);
	(void)add_plan(r, "x");
	registry_close(r);
	r = open_store();
	assert_int_equal(plans_in(r), 1);
	check_ok(registry_check(r, err));
	registry_close(r);
}

static void reader_may_write_after_all(void **state)
{
	cleanup_registry struct registry *r = NULL;
	struct plan_row row, found;

	(void)state;
	write_one(1);
	r = open_store();
	assert_int_equal(plans_in(r), 1);
	row = add_plan(r, "mine");
	write_one(2);
	assert_int_equal(plans_in(r), 3);
	check_ok(registry_plan_get(r, row.id, &found, err));
	assert_string_equal(found.name, "mine");
}

static void reader_sees_later_commits(void **state)
{
	cleanup_registry struct registry *r = NULL;

	(void)state;
	write_one(0);
	r = open_store();
	for (int i = 1; i < 20; i++) {
		write_one(i);
		assert_int_equal(plans_in(r), i + 1);
	}
}

static void reader_beside_a_writer(void **state)
{
	struct registry *r;
	pid_t holder;

	(void)state;
	write_one(1);
	holder = start_holder();
	r = open_store();
	assert_int_equal(plans_in(r), 2);
	kill_holder(holder);
	assert_int_equal(plans_in(r), 2);
	write_one(2);
	assert_int_equal(plans_in(r), 3);
	registry_close(r);
}

/* As a writer that died while it changed the index. In a child, since closing the file drops the
 * locks of the process that does. */
static void garble_index(int number)
{
	int fd = openat(home_fd, "atoll.db-shm", O_WRONLY | O_CLOEXEC);
	char junk[48];

	(void)number;
	memset(junk, 0x5a, sizeof(junk));
	if (fd < 0 || pwrite(fd, junk, sizeof(junk), 0) != (ssize_t)sizeof(junk))
		_exit(97);
}

static void garbled_index_is_mended(void **state)
{
	struct registry *r;
	pid_t holder;

	(void)state;
	write_one(1);
	holder = start_holder();
	r = open_store();
	assert_int_equal(plans_in(r), 2);
	kill_holder(holder);
	assert_int_equal(wait_for(start_child(garble_index, 0)), 0);
	assert_int_equal(plans_in(r), 2);
	check_ok(registry_check(r, err));
	registry_close(r);
}

static void missing_files_are_no_obstacle(void **state)
{
	static const char *const names[] = { "atoll.db-shm", "atoll.db-wal" };
	struct registry *r;

	(void)state;
	write_one(1);
	assert_int_equal(unlinkat(home_fd, names[0], 0), 0);
	r = open_store();
	assert_int_equal(plans_in(r), 1);
	registry_close(r);
	assert_int_equal(unlinkat(home_fd, names[0], 0), 0);
	assert_int_equal(unlinkat(home_fd, names[1], 0), 0);
	r = open_store();
	assert_int_equal(plans_in(r), 0);
	registry_close(r);
}

/* Past several checkpoints, each commit a process of its own half of the time. */
static void add_many(int number)
{
	struct registry *r = open_store();
	char name[32];

	(void)number;
	for (int i = 0; i < ROUNDS; i++) {
		(void)snprintf(name, sizeof(name), "many-%d", i);
		(void)add_plan(r, name);
		if (i % 2 == 0) {
			registry_close(r);
			r = open_store();
		}
	}
	registry_close(r);
}

static void readers_never_fail_beside_writers(void **state)
{
	int seen = 0, status = 0;
	struct registry *r;
	pid_t pid;

	(void)state;
	write_one(0);
	pid = start_child(add_many, 0);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		r = open_store();
		for (int i = 0; i < 3; i++) {
			int n = plans_in(r);

			assert_true(n >= seen);
			seen = n;
		}
		registry_close(r);
	}
	assert_int_equal(status, 0);
	r = open_store();
	assert_int_equal(plans_in(r), ROUNDS + 1);
	check_ok(registry_check(r, err));
	registry_close(r);
}

#define store_test(name) cmocka_unit_test_setup_teardown(name, store_setup, store_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		store_test(reading_leaves_files_alone),
		store_test(missing_store_is_made),
		store_test(reader_may_write_after_all),
		store_test(reader_sees_later_commits),
		store_test(reader_beside_a_writer),
		store_test(garbled_index_is_mended),
		store_test(missing_files_are_no_obstacle),
		store_test(readers_never_fail_beside_writers),
		cmocka_unit_test_setup_teardown(reading_leaves_files_alone, odd_store_setup,
		                                store_teardown),
	};

	registry_program(true);
	return cmocka_run_group_tests_name("registry-reading", tests, NULL, NULL);
}

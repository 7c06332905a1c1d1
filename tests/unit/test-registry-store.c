/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry's file: making it, sharing it between threads and processes, dying in the middle,
 * damage, full disks and failing syncs. This program's own fsync and fdatasync stand before the C
 * library's, for SQLite too: they count, and fail when told to.
 */
#include "unit/registry-fixture.h"

#include "registry/registry-impl.h"
#include "registry/schema.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static atomic_int syncs;
static atomic_int sync_error; /* errno to fail with; 0: do it */

static int sync_call(long number, int fd)
{
	atomic_fetch_add(&syncs, 1);
	if (atomic_load(&sync_error) != 0) {
		errno = atomic_load(&sync_error);
		return -1;
	}
	return (int)syscall(number, fd);
}

int fdatasync(int fd) __attribute__((__visibility__("default")));
int fsync(int fd) __attribute__((__visibility__("default")));

int fdatasync(int fd)
{
	return sync_call(SYS_fdatasync, fd);
}

int fsync(int fd)
{
	return sync_call(SYS_fsync, fd);
}

/* ---- helpers ---- */

static void assert_contains(const char *text, const char *part)
{
	assert_non_null(text);
	if (!strstr(text, part))
		fail_msg("'%s' does not contain '%s'", text, part);
}

static void path_of(const char *name, char *out, size_t size)
{
	(void)snprintf(out, size, "%s/%s", home, name);
}

static void write_db(const void *data, size_t len)
{
	cleanup_close int fd =
		openat(home_fd, "atoll.db", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), (ssize_t)len);
}

/* Runs SQL on the file behind the registry's back. */
static void raw_sql(const char *sql)
{
	char path[128];
	sqlite3 *db = NULL;

	path_of("atoll.db", path, sizeof(path));
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Opening must fail with CODE, leave the lock free and no descriptor open. */
static void open_fails(int code, const char *words, const char *hint)
{
	cleanup_error struct error e = ERROR_INIT;
	struct registry *r = NULL;
	int before = open_fds();
	int k = registry_open(home_fd, home, &r, &e);

	if (k != code)
		fail_msg("opened with %s (%s), not %s", error_code_name(k), e.msg ? e.msg : "",
		         error_code_name(code));
	assert_null(r);
	assert_contains(e.msg, words);
	if (hint)
		assert_string_equal(e.hint, hint);
	assert_int_equal(open_fds(), before);
	assert_int_equal(try_store_lock(), 0);
}

static pid_t spawn(void (*fn)(void *arg), void *arg)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		in_child = true;
		fn(arg);
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

/* ---- making and opening ---- */

static void open_makes_it(void **state)
{
	struct registry *r = open_store();
	char uuid[64];
	struct stat st;

	(void)state;
	(void)snprintf(uuid, sizeof(uuid), "%s", registry_uuid(r));
	assert_int_equal(strlen(uuid), 32);
	assert_int_equal(fstatat(home_fd, "atoll.db", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(fstatat(home_fd, "atoll.db-wal", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(fstat(registry_locks_fd(r), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	registry_close(r);

	/* The WAL stays, and nothing is synced for a reader. */
	assert_int_equal(fstatat(home_fd, "atoll.db-wal", &st, 0), 0);
	assert_true(st.st_size > 0);
	atomic_store(&syncs, 0);
	r = open_store();
	assert_string_equal(registry_uuid(r), uuid);
	assert_int_equal(plans_in(r), 0);
	registry_close(r);
	assert_int_equal(atomic_load(&syncs), 0);
}

static void empty_file_is_finished(void **state)
{
	struct registry *r;

	(void)state;
	write_db("", 0);
	r = open_store();
	assert_int_equal(plans_in(r), 0);
	registry_close(r);
}

/* As after a crash between the first write and the tables. */
static void half_made_file_is_finished(void **state)
{
	struct registry *r;

	(void)state;
	raw_sql("PRAGMA journal_mode=WAL; PRAGMA user_version=0");
	r = open_store();
	assert_int_equal(plans_in(r), 0);
	(void)add_plan(r, "x");
	check_ok(registry_check(r, err));
	registry_close(r);
}

static sqlite3_syscall_ptr system_open;
static int too_late; /* openings that missed the file */

static int open_too_early(const char *path, int flags, int mode)
{
	int fd = ((int (*)(const char *, int, int))system_open)(path, flags, mode);

	if (fd < 0 && errno == ENOENT && (flags & O_ACCMODE) == O_RDWR && too_late++ == 0) {
		write_db("", 0);
		errno = ENOENT;
	}
	return fd;
}

/* SQLite then opens it for reading; but nobody forbids us to write. */
static void made_while_it_is_opened(void **state)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
	struct registry *r;

	(void)state;
	too_late = 0;
	system_open = vfs->xGetSystemCall(vfs, "open");
	assert_int_equal(vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)open_too_early),
	                 SQLITE_OK);
	r = open_store();
	assert_int_equal(vfs->xSetSystemCall(vfs, "open", NULL), SQLITE_OK);
	assert_int_equal(too_late, 1);
	(void)add_plan(r, "x");
	check_ok(registry_check(r, err));
	registry_close(r);
}

/* A plan of a store of the first version is as whole as it was, and made by no `run`. */
static void a_store_of_version_1_is_migrated(void **state)
{
	struct plan_row row;
	struct registry *r;

	(void)state;
	raw_sql("PRAGMA journal_mode=WAL");
	raw_sql(schema_steps[0]);
	raw_sql("INSERT INTO meta VALUES ('uuid', '0123456789abcdef0123456789abcdef');"
	        "INSERT INTO plan (id, name, state, owned, abandoned, epoch, batch, created_ms, "
	        "retry_at_ms, attempts) VALUES ('0123456789abcdef', 'old', 0, 0, 0, 0, 0, 0, 0, 0);"
	        "PRAGMA application_id=1098149740; PRAGMA user_version=1");
	_Static_assert(SCHEMA_APPLICATION_ID == 1098149740, "the number in the statement above");
	r = open_store();
	assert_int_equal(registry_plan_named(r, "old", &row, NULL), 1);
	assert_false(row.starting);
	assert_int_equal(registry_plan_last_run(r, "/x", &row, NULL), 0);
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_plan_ran_in(r, "0123456789abcdef", "/x", err));
	check_ok(registry_commit(r, err));
	assert_int_equal(registry_plan_last_run(r, "/x", &row, NULL), 1);
	assert_string_equal(row.name, "old");
	check_ok(registry_check(r, err));
	registry_close(r);
}

static void creator(void *arg)
{
	cleanup_registry struct registry *r = NULL;
	char byte;

	(void)!read(*(int *)arg, &byte, 1); /* until the parent closes its end */
	_exit(registry_open(home_fd, home, &r, NULL) == 0 && plans_in(r) == 0 ? 0 : 1);
}

static void race_to_make_it(void)
{
	int gate[2];
	pid_t pids[10];

	assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
	for (size_t i = 0; i < 10; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0) {
			in_child = true;
			(void)close(gate[1]);
			creator(&gate[0]);
		}
	}
	(void)close(gate[0]);
	(void)close(gate[1]);
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(wait_for(pids[i]), 0);
}

static void ten_processes_make_it_at_once(void **state)
{
	for (int round = 0; round < 15; round++) {
		struct registry *r;

		race_to_make_it();
		r = open_store();
		check_ok(registry_check(r, err));
		registry_close(r);
		assert_int_equal(store_teardown(state), 0);
		assert_int_equal(store_setup(state), 0);
	}
}

static void sto_05_garbage_is_damage(void **state)
{
	char garbage[8192];

	(void)state;
	memset(garbage, 'G', sizeof(garbage));
	write_db(garbage, sizeof(garbage));
	open_fails(-ATOLL_E_DAMAGED, "atoll.db", "atoll doctor");
	write_db(garbage, 10);
	open_fails(-ATOLL_E_DAMAGED, "atoll.db", "atoll doctor");
	memset(garbage, 0, sizeof(garbage));
	write_db(garbage, 4096);
	open_fails(-ATOLL_E_DAMAGED, "atoll.db", "atoll doctor");
}

static void foreign_database_is_left_alone(void **state)
{
	struct stat before, after;

	(void)state;
	raw_sql("CREATE TABLE theirs (x)");
	assert_int_equal(fstatat(home_fd, "atoll.db", &before, 0), 0);
	open_fails(-ATOLL_E_DAMAGED, "another program", "atoll doctor");
	raw_sql("PRAGMA application_id=7; PRAGMA user_version=1");
	open_fails(-ATOLL_E_DAMAGED, "another program", "atoll doctor");
	assert_int_equal(fstatat(home_fd, "atoll.db", &after, 0), 0);
	assert_int_equal(before.st_mode, after.st_mode);
}

static void newer_store_is_refused(void **state)
{
	char sql[64];

	(void)state;
	registry_close(open_store());
	(void)snprintf(sql, sizeof(sql), "PRAGMA user_version=%d", SCHEMA_VERSION + 1);
	raw_sql(sql);
	open_fails(-ATOLL_E_NEWER, "newer version", NULL);
}

static void missing_table_is_damage(void **state)
{
	(void)state;
	registry_close(open_store());
	raw_sql("DROP TABLE meta");
	open_fails(-ATOLL_E_DAMAGED, "atoll.db", "atoll doctor");
}

static void odd_files_are_refused(void **state)
{
	(void)state;
	assert_int_equal(mkdirat(home_fd, "atoll.db", 0700), 0);
	open_fails(-EISDIR, "atoll.db", NULL);
	assert_int_equal(unlinkat(home_fd, "atoll.db", AT_REMOVEDIR), 0);
	assert_int_equal(symlinkat("/etc/passwd", home_fd, "atoll.db"), 0);
	open_fails(-ELOOP, "atoll.db", NULL);
}

static void damaged_rows_are_found(void **state)
{
	cleanup_registry struct registry *r = open_store();
	cleanup_error struct error e = ERROR_INIT;
	struct plan_row row = add_plan(r, "x");

	(void)state;
	check_ok(registry_check(r, err));
	raw_sql("PRAGMA ignore_check_constraints=1; UPDATE plan SET state=99");
	assert_int_equal(registry_plan_get(r, row.id, &row, &e), -ATOLL_E_DAMAGED);
	assert_contains(e.msg, "atoll.db");
	error_done(&e);
	assert_int_equal(registry_plan_list(r, count_plan, NULL, &e), -ATOLL_E_DAMAGED);
	error_done(&e);
	raw_sql("UPDATE plan SET state=0, batch=5");
	assert_int_equal(registry_check(r, &e), -ATOLL_E_DAMAGED);
	assert_contains(e.msg, "batch");
	error_done(&e);
	raw_sql("UPDATE plan SET batch=0; INSERT INTO path VALUES ('/x', '0000000000000000', '')");
	assert_int_equal(registry_check(r, &e), -ATOLL_E_DAMAGED);
	assert_contains(e.msg, "missing row of plan");
}

static void damaged_pages_are_found(void **state)
{
	cleanup_registry struct registry *r = NULL;
	cleanup_close int fd = FD_NONE;
	char junk[4096];

	(void)state;
	r = open_store();
	(void)add_plan(r, "x");
	registry_close(r);
	r = NULL;
	raw_sql("PRAGMA wal_checkpoint(TRUNCATE)");
	fd = openat(home_fd, "atoll.db", O_RDWR | O_CLOEXEC);
	memset(junk, 0xa5, sizeof(junk));
	for (off_t at = 4096; pread(fd, junk, 1, at) == 1; at += 4096) {
		memset(junk, 0xa5, sizeof(junk));
		assert_int_equal(pwrite(fd, junk, sizeof(junk), at), (ssize_t)sizeof(junk));
	}
	open_fails(-ATOLL_E_DAMAGED, "atoll.db", "atoll doctor");
}

/* ---- syncs ---- */

static int syncs_of_plan(struct registry *r, enum registry_durability d, const char *name)
{
	struct plan_row row = new_plan(name);

	atomic_store(&syncs, 0);
	check_ok(registry_begin(r, d, err));
	check_ok(registry_plan_insert(r, &row, err));
	check_ok(registry_event_add(r, row.id, "start", 0, "", err));
	check_ok(registry_commit(r, err));
	return atomic_load(&syncs);
}

static void durable_commit_is_one_sync(void **state)
{
	struct registry *r = open_store();

	(void)state;
	assert_int_equal(syncs_of_plan(r, REGISTRY_DURABLE, "a"), 1);
	assert_int_equal(syncs_of_plan(r, REGISTRY_NORMAL, "b"), 0);
	assert_int_equal(syncs_of_plan(r, REGISTRY_DURABLE, "c"), 1);
	registry_close(r);
	r = open_store();
	assert_int_equal(syncs_of_plan(r, REGISTRY_NORMAL, "d"), 0);
	assert_int_equal(syncs_of_plan(r, REGISTRY_DURABLE, "e"), 1);
	registry_close(r);
}

static void a_later_sync_that_fails_is_final(void **state)
{
	cleanup_registry struct registry *r = open_store();
	cleanup_error struct error e = ERROR_INIT;

	(void)state;
	assert_int_equal(syncs_of_plan(r, REGISTRY_NORMAL, "a"), 0);
	atomic_store(&sync_error, EIO);
	assert_int_equal(registry_sync(r, &e), -ATOLL_E_NEEDS_RECOVERY);
	atomic_store(&sync_error, 0);
	assert_int_equal(e.os_errno, EIO);
	error_done(&e);
	assert_int_equal(registry_begin(r, REGISTRY_NORMAL, &e), -ATOLL_E_NEEDS_RECOVERY);
}

/* What was committed loosely, put on disk later. */
static void a_commit_can_be_synced_later(void **state)
{
	cleanup_registry struct registry *r = open_store();

	(void)state;
	assert_int_equal(syncs_of_plan(r, REGISTRY_NORMAL, "a"), 0);
	check_ok(registry_sync(r, err));
	assert_int_equal(atomic_load(&syncs), 1);
}

/* So that the first commands of a store sync no more than later ones. */
static void wal_has_its_length_from_the_beginning(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct stat before, after;
	char name[32];

	(void)state;
	assert_int_equal(fstatat(home_fd, "atoll.db-wal", &before, 0), 0);
	assert_true(before.st_size > 64 * 4096);
	assert_true(before.st_blocks * 512 >= before.st_size); /* no hole in it */
	for (int i = 0; i < 8; i++) {
		(void)snprintf(name, sizeof(name), "plan-%d", i);
		(void)syncs_of_plan(r, REGISTRY_DURABLE, name);
	}
	assert_int_equal(fstatat(home_fd, "atoll.db-wal", &after, 0), 0);
	assert_int_equal(after.st_size, before.st_size);
	registry_close(take_ptr(r));
	r = open_store(); /* reads the WAL, up to where it ends and no further */
	assert_int_equal(plans_in(r), 8);
	check_ok(registry_check(r, err));
}

static void wal_stays_small(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct stat st;
	char name[32];
	int most = 0, total = 0;

	(void)state;
	for (int i = 0; i < 300; i++) {
		int n;

		(void)snprintf(name, sizeof(name), "plan-%d", i);
		n = syncs_of_plan(r, REGISTRY_DURABLE, name);
		total += n;
		most = n > most ? n : most;
	}
	assert_int_equal(fstatat(home_fd, "atoll.db-wal", &st, 0), 0);
	assert_in_range(st.st_size, 4096, 2 << 20);
	/* One each; a checkpoint adds two, the first commit after it one for the WAL's header. */
	assert_in_range(most, 2, 3);
	assert_in_range(total, 301, 375);
	assert_int_equal(plans_in(r), 300);
	check_ok(registry_check(r, err));
}

static void failed_sync_is_unknown(void **state)
{
	struct registry *r = open_store();
	cleanup_error struct error e = ERROR_INIT;
	struct plan_row row = new_plan("unknown");
	int before = open_fds();

	(void)state;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_plan_insert(r, &row, err));
	atomic_store(&sync_error, EIO);
	assert_int_equal(registry_commit(r, &e), -ATOLL_E_NEEDS_RECOVERY);
	atomic_store(&sync_error, 0);
	assert_int_equal(e.os_errno, EIO);
	assert_string_equal(e.op, "commit");
	error_done(&e);
	assert_int_equal(try_store_lock(), 0);
	assert_int_equal(open_fds(), before);

	/* One failure is final for the handle; a new one decides from what it reads. */
	assert_int_equal(registry_begin(r, REGISTRY_DURABLE, &e), -ATOLL_E_NEEDS_RECOVERY);
	assert_int_equal(try_store_lock(), 0);
	assert_true(plans_in(r) <= 1);
	error_done(&e);
	assert_int_equal(registry_sync(r, &e), -ATOLL_E_NEEDS_RECOVERY);
	registry_close(r);
	r = open_store();
	assert_true(plans_in(r) <= 1);
	(void)add_plan(r, "after");
	check_ok(registry_check(r, err));
	registry_close(r);
}

/* ---- dying ---- */

static void die_inside(void *arg)
{
	struct registry *r = open_store();
	struct plan_row row = new_plan("half");
	int stage = *(int *)arg;

	if (registry_begin(r, REGISTRY_DURABLE, NULL) < 0)
		_exit(1);
	if (stage > 0)
		(void)registry_plan_insert(r, &row, NULL);
	if (stage > 1) {
		struct plan_row old;

		(void)registry_plan_resolve(r, "old", &old, NULL);
		(void)registry_plan_set_state(r, old.id, ATOLL_PLAN_PREPARING, 5, NULL);
	}
	if (stage > 2)
		(void)registry_commit(r, NULL);
	(void)raise(SIGKILL);
}

static void killed_in_a_transaction(void **state)
{
	(void)state;
	registry_close(open_store());
	for (int stage = 0; stage <= 3; stage++) {
		struct registry *r = open_store();
		struct plan_row row;

		if (stage == 0)
			(void)add_plan(r, "old");
		registry_close(r);
		assert_int_equal(wait_for(spawn(die_inside, &stage)), 128 + SIGKILL);
		assert_int_equal(try_store_lock(), 0);

		r = open_store();
		check_ok(registry_plan_resolve(r, "old", &row, err));
		assert_int_equal(row.state, stage < 3 ? ATOLL_PLAN_OPEN : ATOLL_PLAN_PREPARING);
		assert_int_equal(row.epoch, stage < 3 ? 0 : 5);
		assert_int_equal(plans_in(r), stage < 3 ? 1 : 2);
		check_ok(registry_check(r, err));
		registry_close(r);
	}
}

/* ---- threads and processes ---- */

static void insert_same(void *arg)
{
	struct registry *r = open_store();
	struct plan_row row = new_plan("the-one");
	int k;

	(void)arg;
	if (registry_begin(r, REGISTRY_DURABLE, NULL) < 0)
		_exit(9);
	k = registry_plan_insert(r, &row, NULL);
	if (k == 0 && registry_commit(r, NULL) == 0)
		_exit(0);
	registry_rollback(r);
	_exit(k == -ATOLL_E_EXISTS ? 1 : 9);
}

static void sto_01_one_of_eight_wins(void **state)
{
	(void)state;
	for (int round = 0; round < 5; round++) {
		pid_t pids[8];
		struct registry *r;
		struct plan_row row;
		int won = 0, lost = 0;

		for (size_t i = 0; i < 8; i++)
			pids[i] = spawn(insert_same, NULL);
		for (size_t i = 0; i < 8; i++) {
			int code = wait_for(pids[i]);

			won += code == 0;
			lost += code == 1;
		}
		assert_int_equal(won, 1);
		assert_int_equal(lost, 7);
		r = open_store();
		check_ok(registry_plan_resolve(r, "the-one", &row, err));
		check_ok(registry_begin(r, REGISTRY_NORMAL, err));
		check_ok(registry_plan_delete(r, row.id, err));
		check_ok(registry_commit(r, err));
		registry_close(r);
	}
}

#define THREADS    4
#define PER_THREAD 25

struct worker {
	struct registry *r;
	int number;
	int failures;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < PER_THREAD; i++) {
		struct plan_row row = new_plan("x"), got;
		int n = 0;

		(void)snprintf(row.name, sizeof(row.name), "t%d-%d", w->number, i);
		w->failures += registry_begin(w->r, REGISTRY_NORMAL, NULL) != 0;
		w->failures += registry_plan_insert(w->r, &row, NULL) != 0;
		w->failures += registry_plan_get(w->r, row.id, &got, NULL) != 0;
		if (i % 5 == 4)
			registry_rollback(w->r);
		else
			w->failures += registry_commit(w->r, NULL) != 0;
		w->failures += registry_plan_list(w->r, count_plan, &n, NULL) != 0;
		w->failures += n < i * 4 / 5;
	}
	return NULL;
}

static void four_threads_on_one_handle(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct worker workers[THREADS];
	pthread_t threads[THREADS];

	(void)state;
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .r = r, .number = i };
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(workers[i].failures, 0);
	}
	assert_int_equal(plans_in(r), THREADS * PER_THREAD * 4 / 5);
	assert_int_equal(try_store_lock(), 0);
}

static void *own_handle(void *arg)
{
	struct worker w = { .r = open_store(), .number = *(int *)arg };

	(void)work(&w);
	registry_close(w.r);
	*(int *)arg = w.failures;
	return NULL;
}

static void four_threads_with_their_own(void **state)
{
	cleanup_registry struct registry *r = NULL;
	int numbers[THREADS];
	pthread_t threads[THREADS];

	(void)state;
	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, own_handle, &numbers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(numbers[i], 0);
	}
	r = open_store();
	assert_int_equal(plans_in(r), THREADS * PER_THREAD * 4 / 5);
}

/* No memory of what another process has removed. */
static void cch_07_no_handle_remembers(void **state)
{
	cleanup_registry struct registry *a = open_store(), *b = open_store();
	struct plan_row row = add_plan(a, "x");

	(void)state;
	assert_int_equal(plans_in(b), 1);
	check_ok(registry_begin(a, REGISTRY_DURABLE, err));
	check_ok(registry_plan_delete(a, row.id, err));
	assert_int_equal(plans_in(b), 1); /* not committed yet */
	check_ok(registry_commit(a, err));
	assert_int_equal(plans_in(b), 0);
}

static void note_wait(void *user, const char *message)
{
	(void)snprintf(user, 256, "%s", message);
}

static void sto_03_writers_wait_readers_do_not(void **state)
{
	cleanup_registry struct registry *r = open_store();
	cleanup_error struct error e = ERROR_INIT;
	const struct ticket_options opt = { .command = "the holder", .deadline = CLOCK_NEVER };
	struct ticket t = TICKET_INIT;
	char message[256] = "";
	int64_t start;

	(void)state;
	(void)add_plan(r, "x");
	assert_int_equal(ticket_acquire(&t, registry_locks_fd(r), "store.lk", &opt), 0);
	assert_int_equal(plans_in(r), 1);
	registry_close(open_store()); /* opening reads */

	registry_set_wait(r, 0, NULL, NULL);
	assert_int_equal(registry_begin(r, REGISTRY_NORMAL, &e), -ATOLL_E_BUSY);
	assert_contains(e.msg, "the holder");
	error_done(&e);
	registry_set_wait(r, 500, note_wait, message);
	start = clock_boot_ns();
	assert_int_equal(registry_begin(r, REGISTRY_NORMAL, &e), -ATOLL_E_TIMEOUT);
	assert_true(clock_boot_ns() - start >= 500 * INT64_C(1000000));
	assert_contains(e.msg, "the holder");
	assert_contains(message, "waiting for the store: pid ");
	error_done(&e);
	ticket_release(&t);
	assert_int_equal(syncs_of_plan(r, REGISTRY_DURABLE, "y"), 1);
}

static void *begin_and_wait(void *arg)
{
	struct registry *r = arg;

	if (registry_begin(r, REGISTRY_NORMAL, NULL) == 0)
		registry_rollback(r);
	return NULL;
}

/* A thread that waits for the store must not keep the others from reading. */
static void sto_03_readers_pass_a_waiting_thread(void **state)
{
	cleanup_registry struct registry *r = open_store();
	const struct ticket_options opt = { .command = "holder", .deadline = CLOCK_NEVER };
	struct ticket t = TICKET_INIT;
	pthread_t thread;

	(void)state;
	assert_int_equal(ticket_acquire(&t, registry_locks_fd(r), "store.lk", &opt), 0);
	assert_int_equal(pthread_create(&thread, NULL, begin_and_wait, r), 0);
	clock_sleep_ns(50 * INT64_C(1000000));
	assert_int_equal(plans_in(r), 0);
	ticket_release(&t);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* ---- fork ---- */

static void use_inherited(void *arg)
{
	struct registry *r = arg;
	struct plan_row row;
	int n = 0;

	if (registry_begin(r, REGISTRY_NORMAL, NULL) != -ATOLL_E_STATE)
		_exit(1);
	if (registry_plan_list(r, count_plan, &n, NULL) != -ATOLL_E_STATE)
		_exit(2);
	if (registry_plan_get(r, "x", &row, NULL) != -ATOLL_E_STATE)
		_exit(3);
	registry_rollback(r);
	registry_close(r);
}

static void child_cannot_use_its_parents_handle(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row row = new_plan("mine");

	(void)state;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_plan_insert(r, &row, err));
	assert_int_equal(wait_for(spawn(use_inherited, r)), 0);
	assert_int_equal(try_store_lock(), -ATOLL_E_BUSY); /* still ours */
	check_ok(registry_commit(r, err));
	assert_int_equal(plans_in(r), 1);
}

struct relay {
	int go[2];   /* parent to child */
	int done[2]; /* child to parent */
};

static void child_with_its_own(void *arg)
{
	struct relay *relay = arg;
	struct registry *r = open_store();
	char byte = 'x';

	for (int i = 0; i < 2; i++) {
		(void)add_plan(r, i == 0 ? "child-0" : "child-1");
		(void)!write(relay->done[1], &byte, 1);
		(void)!read(relay->go[0], &byte, 1);
	}
	_exit(plans_in(r) == 4 ? 0 : 1);
}

static void other_process(void *arg)
{
	struct registry *r = open_store();

	(void)add_plan(r, arg);
	registry_close(r);
}

/* SQLite's sign that a process has the WAL index mapped. */
static pid_t index_user(void)
{
	cleanup_close int fd = openat(home_fd, "atoll.db-shm", O_RDWR | O_CLOEXEC);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 128, .l_len = 1 };

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETLK, &lock), 0);
	return lock.l_type == F_UNLCK ? 0 : lock.l_pid;
}

/* The parent goes away while its child's connection lives; others come. SQLite must not think
 * that the child holds what only the parent held. */
static void child_opens_its_own(void **state)
{
	struct registry *r = open_store();
	struct relay relay;
	char byte = 0, third[] = "third", fourth[] = "fourth";
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(relay.go, O_CLOEXEC), 0);
	assert_int_equal(pipe2(relay.done, O_CLOEXEC), 0);
	pid = spawn(child_with_its_own, &relay);
	assert_int_equal(read(relay.done[0], &byte, 1), 1);
	registry_close(r);
	assert_int_equal(index_user(), pid);
	assert_int_equal(wait_for(spawn(other_process, third)), 0);
	assert_int_equal(write(relay.go[1], &byte, 1), 1);
	assert_int_equal(read(relay.done[0], &byte, 1), 1);
	assert_int_equal(wait_for(spawn(other_process, fourth)), 0);
	assert_int_equal(write(relay.go[1], &byte, 1), 1);
	assert_int_equal(wait_for(pid), 0);
	for (int i = 0; i < 2; i++) {
		(void)close(relay.go[i]);
		(void)close(relay.done[i]);
	}
	r = open_store();
	assert_int_equal(plans_in(r), 4);
	check_ok(registry_check(r, err));
	registry_close(r);
}

static void open_after_busy_fork(void *arg)
{
	struct registry *r = NULL;

	(void)arg;
	_exit(registry_open(home_fd, home, &r, NULL) == -ATOLL_E_STATE ? 0 : 1);
}

static void fork_inside_a_transaction(void **state)
{
	cleanup_registry struct registry *r = open_store();

	(void)state;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	assert_int_equal(wait_for(spawn(open_after_busy_fork, NULL)), 0);
	registry_rollback(r);
	(void)add_plan(r, "x");
}

static int fork_while_prepared(void *ctx, int action, const char *a, const char *b, const char *c,
                               const char *d)
{
	int *status = ctx;

	(void)action;
	(void)a;
	(void)b;
	(void)c;
	(void)d;
	if (*status < 0)
		*status = wait_for(spawn(open_after_busy_fork, NULL));
	return SQLITE_OK;
}

struct sqlite3_api_routines;
static sqlite3 *last_opened;

static int note_opened(sqlite3 *db, const char **error, const struct sqlite3_api_routines *api)
{
	(void)error;
	(void)api;
	last_opened = db;
	return SQLITE_OK;
}

/* SQLite asks its authorizer in the middle of compiling a statement. */
static void fork_while_a_statement_is_made_ready(void **state)
{
	struct registry *r;
	int status = -1;

	(void)state;
	assert_int_equal(sqlite3_auto_extension((void (*)(void))note_opened), SQLITE_OK);
	r = open_store();
	(void)sqlite3_cancel_auto_extension((void (*)(void))note_opened);
	assert_non_null(last_opened);
	(void)sqlite3_set_authorizer(last_opened, fork_while_prepared, &status);
	registry_exec_expect(r);
	(void)sqlite3_set_authorizer(last_opened, NULL, NULL);
	assert_int_equal(status, 0);
	(void)add_plan(r, "x");
	registry_close(r);
}

/* ---- error exits ---- */

static int count_row(void *ctx, const struct value *cols, size_t count)
{
	(void)cols;
	(void)count;
	++*(int *)ctx;
	return 0;
}

static int write_map(const char *path, unsigned id)
{
	FILE *f = fopen(path, "we");

	if (!f)
		return -1;
	(void)fprintf(f, "%u %u 1", id, id);
	return fclose(f);
}

/* May we mount? A user without rights becomes the root of a namespace that maps only them. */
static bool own_mounts(void)
{
	unsigned uid = geteuid(), gid = getegid();
	FILE *f;

	if (unshare(CLONE_NEWNS) == 0)
		return true;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return false;
	f = fopen("/proc/self/setgroups", "we");
	if (f) {
		(void)fputs("deny", f);
		(void)fclose(f);
	}
	return write_map("/proc/self/uid_map", uid) == 0 &&
	       write_map("/proc/self/gid_map", gid) == 0;
}

/* A full filesystem of our own, in a namespace of our own. 77: not possible here. */
static void full_disk(void *arg)
{
	cleanup_error struct error e = ERROR_INIT;
	struct registry *r = NULL;
	char message[4000];
	int k = 0, before, plans = 0;

	(void)arg;
	if (!own_mounts())
		_exit(77);
	(void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	if (mount("tmpfs", home, "tmpfs", 0, "size=768k,mode=0700") != 0)
		_exit(77);
	close_fd(&home_fd);
	home_fd = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = open_store();
	before = open_fds();
	memset(message, 'm', sizeof(message) - 1);
	message[sizeof(message) - 1] = '\0';
	for (int i = 0; k == 0 && i < 2000; i++) {
		struct plan_row row = new_plan("p");

		(void)snprintf(row.name, sizeof(row.name), "p%d", i);
		k = registry_begin(r, REGISTRY_DURABLE, &e);
		if (k == 0)
			k = registry_plan_insert(r, &row, &e);
		if (k == 0)
			k = registry_event_add(r, row.id, "x", 0, message, &e);
		if (k == 0)
			k = registry_commit(r, &e);
		plans += k == 0;
		registry_rollback(r);
	}
	if (k != -ENOSPC || e.code != -ENOSPC)
		_exit(1);
	if (try_store_lock() != 0)
		_exit(2);
	if (open_fds() != before)
		_exit(3);
	if (plans_in(r) != plans || plans < 5) /* what was committed, nothing half */
		_exit(4);
	if (registry_check(r, NULL) != 0)
		_exit(5);
	registry_close(r);
}

static void sto_05_disk_full(void **state)
{
	int code;

	(void)state;
	code = wait_for(spawn(full_disk, NULL));
	if (code == 77)
		skip();
	assert_int_equal(code, 0);
}

static void sto_05_lock_free_after_every_error(void **state)
{
	cleanup_registry struct registry *r = open_store();
	struct plan_row a = add_plan(r, "same"), b = new_plan("same"), got;
	int before = open_fds();

	(void)state;
	for (int i = 0; i < 20; i++) {
		check_ok(registry_begin(r, REGISTRY_DURABLE, err));
		assert_int_equal(registry_plan_insert(r, &b, NULL), -ATOLL_E_EXISTS);
		registry_rollback(r);
		assert_int_equal(try_store_lock(), 0);
		check_ok(registry_begin(r, REGISTRY_DURABLE, err));
		assert_int_equal(registry_plan_set_state(r, a.id, ATOLL_PLAN_DECIDED, 0, NULL),
		                 -ATOLL_E_STATE);
		assert_int_equal(registry_plan_resolve(r, "nobody", &got, NULL),
		                 -ATOLL_E_NOT_FOUND);
		registry_rollback(r);
		assert_int_equal(try_store_lock(), 0);
	}
	assert_int_equal(open_fds(), before);
}

/* SQLite ends a transaction by itself after some errors. What follows must not be committed. */
static void sto_05_lost_transaction_is_noticed(void **state)
{
	static const char end[] = "ROLLBACK";
	static const char insert[] = "INSERT INTO meta (key, value) VALUES ('a', 'b')";
	static const char count[] = "SELECT key FROM meta WHERE key = 'a'";
	const struct registry_backend *ops = &registry_sqlite;
	cleanup_error struct error e = ERROR_INIT;
	struct backend *b = NULL;
	int rows = 0;

	(void)state;
	registry_close(open_store());
	check_ok(ops->open(home_fd, home, &b, err));
	check_ok(ops->begin(b, REGISTRY_DURABLE, err));
	check_ok(ops->run(b, insert, NO_ARGS, NULL, NULL, err));
	(void)ops->run(b, end, NO_ARGS, NULL, NULL, NULL);
	assert_int_equal(ops->run(b, insert, NO_ARGS, NULL, NULL, &e), -EIO);
	error_done(&e);
	assert_int_equal(ops->commit(b, &e), -EIO);
	check_ok(ops->run(b, count, NO_ARGS, count_row, &rows, err));
	assert_int_equal(rows, 0);
	ops->close(b);
}

static void close_inside_a_transaction(void **state)
{
	struct registry *r = open_store();
	struct plan_row row = new_plan("x");

	(void)state;
	check_ok(registry_begin(r, REGISTRY_DURABLE, err));
	check_ok(registry_plan_insert(r, &row, err));
	registry_close(r);
	assert_int_equal(try_store_lock(), 0);
	r = open_store();
	assert_int_equal(plans_in(r), 0);
	registry_close(r);
	registry_close(NULL);
}

/* ---- as an ordinary user ---- */

static void ordinary(void *arg)
{
	struct registry *r = NULL;
	struct plan_row row = new_plan("x");

	(void)arg;
	if (setgid(65534) != 0 || setuid(65534) != 0)
		_exit(77);
	r = open_store();
	(void)add_plan(r, "user");
	registry_close(r);

	/* A store that may be read but not written. */
	if (fchmod(home_fd, 0500) != 0 || fchmodat(home_fd, "atoll.db", 0400, 0) != 0)
		_exit(1);
	if (registry_open(home_fd, home, &r, NULL) != 0)
		_exit(2);
	if (plans_in(r) != 1)
		_exit(3);
	if (registry_begin(r, REGISTRY_DURABLE, NULL) == 0 &&
	    registry_plan_insert(r, &row, NULL) != -EACCES)
		_exit(4);
	registry_rollback(r);
	if (try_store_lock() != 0)
		_exit(5);
	registry_close(r);
	if (fchmod(home_fd, 0700) != 0)
		_exit(6);
}

static void as_an_ordinary_user(void **state)
{
	int code;

	(void)state;
	if (geteuid() != 0)
		return; /* every other test ran as one */
	assert_int_equal(fchown(home_fd, 65534, 65534), 0);
	code = wait_for(spawn(ordinary, NULL));
	if (code == 77)
		skip();
	assert_int_equal(code, 0);
}

#define store_test(name) cmocka_unit_test_setup_teardown(name, store_setup, store_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		store_test(open_makes_it),
		store_test(empty_file_is_finished),
		store_test(half_made_file_is_finished),
		store_test(made_while_it_is_opened),
		store_test(a_store_of_version_1_is_migrated),
		store_test(ten_processes_make_it_at_once),
		store_test(sto_05_garbage_is_damage),
		store_test(foreign_database_is_left_alone),
		store_test(newer_store_is_refused),
		store_test(missing_table_is_damage),
		store_test(odd_files_are_refused),
		store_test(damaged_rows_are_found),
		store_test(damaged_pages_are_found),
		store_test(durable_commit_is_one_sync),
		store_test(a_commit_can_be_synced_later),
		store_test(a_later_sync_that_fails_is_final),
		store_test(wal_has_its_length_from_the_beginning),
		store_test(wal_stays_small),
		store_test(failed_sync_is_unknown),
		store_test(killed_in_a_transaction),
		store_test(sto_01_one_of_eight_wins),
		store_test(four_threads_on_one_handle),
		store_test(four_threads_with_their_own),
		store_test(cch_07_no_handle_remembers),
		store_test(sto_03_writers_wait_readers_do_not),
		store_test(sto_03_readers_pass_a_waiting_thread),
		store_test(child_cannot_use_its_parents_handle),
		store_test(child_opens_its_own),
		store_test(fork_inside_a_transaction),
		store_test(fork_while_a_statement_is_made_ready),
		store_test(sto_05_disk_full),
		store_test(sto_05_lock_free_after_every_error),
		store_test(sto_05_lost_transaction_is_noticed),
		store_test(close_inside_a_transaction),
		store_test(as_an_ordinary_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

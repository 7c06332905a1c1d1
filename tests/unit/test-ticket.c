/* SPDX-License-Identifier: Apache-2.0 */
/* The ticket lock, one behaviour at a time. Killing and racing is in concurrency/. */
#include "lock/ticket.h"

#include "lock/ticket-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <atoll.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/expect-abort.h"

#define NAME  "plan.lk"
#define MS    INT64_C(1000000)
#define SLACK (400 * MS) /* a busy machine may be late by this much */

static char dir_path[64];
static int dir_fd = FD_NONE;

static const struct ticket_options forever = { .command = "test", .deadline = CLOCK_NEVER };

static int setup(void **state)
{
	(void)state;
	(void)snprintf(dir_path, sizeof(dir_path), "/tmp/atoll-ticket-XXXXXX");
	if (!mkdtemp(dir_path))
		return -1;
	dir_fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	static const char *const names[] = { NAME, "other.lk", "link.lk", "target" };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		(void)unlinkat(dir_fd, names[i], 0);
	close_fd(&dir_fd);
	return rmdir(dir_path);
}

static struct ticket take(const struct ticket_options *opt)
{
	struct ticket t = TICKET_INIT;

	assert_int_equal(ticket_acquire(&t, dir_fd, NAME, opt), 0);
	return t;
}

static int try_lock(struct ticket *t, struct ticket_holder *ret_holder)
{
	const struct ticket_options opt = { .command = "try", .ret_holder = ret_holder };

	return ticket_acquire(t, dir_fd, NAME, &opt);
}

static void assert_free(void)
{
	struct ticket t = TICKET_INIT;

	assert_int_equal(try_lock(&t, NULL), 0);
	ticket_release(&t);
}

static void put_file(const void *data, size_t len)
{
	cleanup_close int fd = openat(dir_fd, NAME, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), (ssize_t)len);
}

static unsigned count_entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* ---- grants ------------------------------------------------------------------------------ */

static void each_grant_has_a_greater_epoch_and_number(void **state)
{
	uint64_t epoch = 0, number = 0;

	(void)state;
	for (int i = 0; i < 5; i++) {
		struct ticket t = take(&forever);

		assert_true(t.epoch > epoch);
		assert_true(t.number > number);
		assert_false(t.owner_died);
		epoch = t.epoch;
		number = t.number;
		ticket_release(&t);
		assert_int_equal(t.fd, FD_NONE);
	}
}

static void the_file_is_private_and_closed_on_exec(void **state)
{
	struct ticket t = take(&forever);
	int fd = ticket_dup(&t);
	struct stat st;

	(void)state;
	assert_int_equal(fstatat(dir_fd, NAME, &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(t.fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close_fd(&fd);
	ticket_release(&t);
}

static void an_abandoned_lock_says_owner_died_once(void **state)
{
	struct ticket t = take(&forever);

	(void)state;
	ticket_abandon(&t);
	assert_int_equal(t.fd, FD_NONE);
	t = take(&forever);
	assert_true(t.owner_died);
	ticket_release(&t);
	t = take(&forever);
	assert_false(t.owner_died);
	ticket_release(&t);
}

static void a_killed_holder_says_owner_died(void **state)
{
	int ready[2];
	char byte;

	(void)state;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct ticket mine = TICKET_INIT;

		if (ticket_acquire(&mine, dir_fd, NAME, &forever) == 0)
			(void)!write(ready[1], "x", 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	struct ticket t = take(&forever); /* before the zombie is reaped */
	assert_true(t.owner_died);
	assert_int_equal(t.epoch, 2);
	ticket_release(&t);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(ready[0]);
	close(ready[1]);
}

static void releasing_what_is_not_held_does_nothing(void **state)
{
	struct ticket t = TICKET_INIT;

	(void)state;
	ticket_release(&t);
	ticket_abandon(&t);
	assert_int_equal(t.fd, FD_NONE);
}

static void acquire_held(void *arg)
{
	(void)ticket_acquire(arg, dir_fd, NAME, &forever);
}

static void acquiring_with_a_held_ticket_is_a_bug(void **state)
{
	struct ticket t = take(&forever);

	(void)state;
	expect_abort(acquire_held, &t);
	ticket_release(&t);
}

static void a_dup_keeps_the_lock(void **state)
{
	struct ticket t = take(&forever), second = TICKET_INIT;
	int fd = ticket_dup(&t);

	(void)state;
	assert_true(fd >= 0);
	ticket_release(&t);
	assert_int_equal(try_lock(&second, NULL), -ATOLL_E_BUSY);
	close_fd(&fd);
	assert_int_equal(try_lock(&second, NULL), 0);
	assert_false(second.owner_died);
	ticket_release(&second);
}

static void cmd_05_locks_do_not_touch_each_other(void **state)
{
	struct ticket t = take(&forever), other = TICKET_INIT;
	const struct ticket_options try = { .command = "try" };

	(void)state;
	assert_int_equal(ticket_acquire(&other, dir_fd, "other.lk", &try), 0);
	ticket_release(&other);
	ticket_release(&t);
}

/* ---- waiting ----------------------------------------------------------------------------- */

static void a_try_is_busy_and_names_the_holder(void **state)
{
	struct ticket t = take(&forever), second = TICKET_INIT;
	struct ticket_holder holder;

	(void)state;
	assert_int_equal(try_lock(&second, &holder), -ATOLL_E_BUSY);
	assert_int_equal(second.fd, FD_NONE);
	assert_int_equal(holder.pid, getpid());
	assert_string_equal(holder.command, "test");
	assert_int_equal(holder.epoch, t.epoch);
	assert_int_equal(holder.ahead, 1);
	ticket_release(&t);
	assert_free();
}

static void der_23_a_timeout_names_the_holder(void **state)
{
	struct ticket t = take(&forever), second = TICKET_INIT;
	struct ticket_holder holder;
	int64_t began = clock_boot_ns();
	const struct ticket_options opt = { .command = "waiter",
		                            .deadline = clock_deadline(200),
		                            .ret_holder = &holder };

	(void)state;
	assert_int_equal(ticket_acquire(&second, dir_fd, NAME, &opt), -ATOLL_E_TIMEOUT);
	int64_t took = clock_boot_ns() - began;
	assert_true(took >= 199 * MS);
	assert_true(took < 200 * MS + SLACK);
	assert_int_equal(holder.pid, getpid());
	assert_true(holder.start_time > 0);
	assert_true(llabs(clock_real_ms() - holder.since_ms) < 10000);
	assert_string_equal(holder.command, "test");
	ticket_release(&t);
	assert_free();
}

static void a_deadline_in_the_past_is_a_timeout(void **state)
{
	struct ticket t = take(&forever), second = TICKET_INIT;
	const struct ticket_options opt = { .deadline = 1 };

	(void)state;
	assert_int_equal(ticket_acquire(&second, dir_fd, NAME, &opt), -ATOLL_E_TIMEOUT);
	ticket_release(&t);
	assert_int_equal(ticket_acquire(&second, dir_fd, NAME, &opt), 0); /* free: no wait needed */
	ticket_release(&second);
}

static void timeouts_leak_nothing(void **state)
{
	struct ticket t = take(&forever), second = TICKET_INIT;
	unsigned fds = 0, threads = 0;

	(void)state;
	for (int i = 0; i < 50; i++) {
		const struct ticket_options opt = { .deadline = clock_boot_ns() + 2 * MS };

		assert_int_equal(ticket_acquire(&second, dir_fd, NAME, &opt), -ATOLL_E_TIMEOUT);
		if (i == 0) {
			fds = count_entries("/proc/self/fd");
			threads = count_entries("/proc/self/task");
		}
	}
	assert_int_equal(count_entries("/proc/self/fd"), fds);
	assert_int_equal(count_entries("/proc/self/task"), threads);
	ticket_release(&t);
	assert_free();
}

struct waiter {
	pthread_t thread;
	struct ticket_options opt;
	struct ticket t;
	int r;
	atomic_bool done;
};

static void *waiter_main(void *arg)
{
	struct waiter *w = arg;

	w->r = ticket_acquire(&w->t, dir_fd, NAME, &w->opt);
	atomic_store(&w->done, true);
	return NULL;
}

static unsigned queue_length(void)
{
	struct ticket_holder h = { 0 };
	cleanup_close int fd = openat(dir_fd, NAME, O_RDONLY | O_CLOEXEC);

	return ticket_file_holder(fd, TICKET_MAX, &h) > 0 ? h.ahead : 0;
}

/* Returns when its ticket is in the queue. */
static void waiter_start(struct waiter *w, const char *command, int64_t deadline)
{
	unsigned before = queue_length();

	w->t = TICKET_INIT;
	w->opt.command = command;
	w->opt.deadline = deadline;
	atomic_store(&w->done, false);
	assert_int_equal(pthread_create(&w->thread, NULL, waiter_main, w), 0);
	while (queue_length() <= before)
		clock_sleep_ns(MS);
}

static void waiter_join(struct waiter *w)
{
	assert_int_equal(pthread_join(w->thread, NULL), 0);
}

static void a_waiter_that_gives_up_leaves_the_order_alone(void **state)
{
	struct ticket t = take(&forever);
	struct waiter a = { 0 }, b = { 0 }, c = { 0 };

	(void)state;
	waiter_start(&a, "a", CLOCK_NEVER);
	waiter_start(&b, "b", clock_deadline(100));
	waiter_start(&c, "c", clock_deadline(20000));
	assert_int_equal(queue_length(), 4);
	waiter_join(&b);
	assert_int_equal(b.r, -ATOLL_E_TIMEOUT);
	assert_int_equal(queue_length(), 3);

	/* C's predecessor is gone, but A is before it still. */
	clock_sleep_ns(20 * MS);
	assert_false(atomic_load(&c.done));
	ticket_release(&t);
	waiter_join(&a);
	assert_int_equal(a.r, 0);
	clock_sleep_ns(20 * MS);
	assert_false(atomic_load(&c.done));
	ticket_release(&a.t);
	waiter_join(&c);
	assert_int_equal(c.r, 0);
	assert_false(c.t.owner_died);
	ticket_release(&c.t);
}

struct notices {
	atomic_uint n;
	int64_t first_at;
	struct ticket_holder seen[8];
};

static void note(void *user, const struct ticket_holder *holder)
{
	struct notices *ns = user;

	unsigned n = atomic_load(&ns->n);

	if (n == 0)
		ns->first_at = clock_boot_ns();
	ns->seen[n % 8] = *holder;
	atomic_store(&ns->n, n + 1);
}

static void wait_notices(struct notices *ns, unsigned n)
{
	for (int i = 0; i < 5000 && atomic_load(&ns->n) < n; i++)
		clock_sleep_ns(MS);
	assert_int_equal(atomic_load(&ns->n), n);
}

static void the_holder_and_its_change_are_told(void **state)
{
	struct ticket t = take(&forever);
	struct notices ns = { 0 };
	struct waiter a = { 0 }, b = { .opt = { .on_wait = note, .user = &ns } };

	(void)state;
	waiter_start(&a, "a", CLOCK_NEVER);
	int64_t began = clock_boot_ns();
	waiter_start(&b, "b", CLOCK_NEVER);
	wait_notices(&ns, 1);
	assert_true(ns.first_at - began >= 300 * MS);
	assert_string_equal(ns.seen[0].command, "test");
	assert_int_equal(ns.seen[0].ahead, 2);

	/* Not again for the same holder. */
	clock_sleep_ns(450 * MS);
	assert_int_equal(atomic_load(&ns.n), 1);

	ticket_release(&t);
	waiter_join(&a);
	wait_notices(&ns, 2);
	assert_string_equal(ns.seen[1].command, "a");
	assert_int_equal(ns.seen[1].ahead, 1);
	assert_int_equal(ns.seen[1].epoch, a.t.epoch);
	ticket_release(&a.t);
	waiter_join(&b);
	assert_int_equal(b.r, 0);
	ticket_release(&b.t);
}

static void a_short_wait_tells_nothing(void **state)
{
	struct ticket t = take(&forever);
	struct notices ns = { 0 };
	struct waiter w = { .opt = { .on_wait = note, .user = &ns } };

	(void)state;
	waiter_start(&w, "w", CLOCK_NEVER);
	ticket_release(&t);
	waiter_join(&w);
	assert_int_equal(w.r, 0);
	assert_int_equal(atomic_load(&ns.n), 0);
	ticket_release(&w.t);
}

/* Somebody stopped inside the gate: the deadline holds there too. */
static void a_stuck_gate_does_not_hold_us_for_ever(void **state)
{
	struct ticket t = take(&forever);
	cleanup_close int fd = openat(dir_fd, NAME, O_RDWR | O_CLOEXEC);
	const struct ticket_step gate = { .type = F_WRLCK, .start = 0, .len = 1 };
	struct ticket_holder holder;
	struct notices ns = { 0 };

	(void)state;
	ticket_release(&t);
	assert_int_equal(ticket_step_try(fd, &gate), 0);
	assert_int_equal(try_lock(&t, &holder), -ATOLL_E_BUSY);
	assert_int_equal(holder.pid, 0);

	const struct ticket_options opt = { .deadline = clock_deadline(400),
		                            .on_wait = note,
		                            .user = &ns };
	assert_int_equal(ticket_acquire(&t, dir_fd, NAME, &opt), -ATOLL_E_TIMEOUT);
	assert_int_equal(atomic_load(&ns.n), 1);
	close_fd(&fd);
	assert_free();
}

static int wait_without_threads(void)
{
	const struct rlimit none = { 0, 0 };
	struct ticket t = TICKET_INIT, second = TICKET_INIT;
	struct ticket_options opt = { .deadline = clock_deadline(50) };

	if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
		return 1;
	if (setrlimit(RLIMIT_NPROC, &none) < 0)
		return 2;
	if (ticket_acquire(&t, dir_fd, NAME, &forever) != 0)
		return 3;
	if (ticket_acquire(&second, dir_fd, NAME, &opt) != -ATOLL_E_TIMEOUT)
		return 4;
	if (clock_boot_ns() < opt.deadline)
		return 5;
	ticket_release(&t);
	return try_lock(&second, NULL) == 0 ? 0 : 6;
}

static void without_threads_it_polls(void **state)
{
	int status;

	(void)state;
	assert_int_equal(chmod(dir_path, 0777), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(wait_without_threads());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- the file ---------------------------------------------------------------------------- */

static void a_damaged_file_is_refused_and_left_alone(void **state)
{
	static const struct ticket_header no_ticket = { .magic = TICKET_MAGIC,
		                                        .version = TICKET_VERSION };
	static const struct ticket_header huge = { .magic = TICKET_MAGIC,
		                                   .version = TICKET_VERSION,
		                                   .next = UINT64_MAX };
	static const struct ticket_header newer = { .magic = TICKET_MAGIC,
		                                    .version = TICKET_VERSION + 1 };
	static const struct ticket_header zero = { 0 };
	const struct {
		const void *data;
		size_t len;
		int code;
	} rows[] = {
		{ "x", 1, -ATOLL_E_DAMAGED },
		{ "garbage garbage garbage garbage garbage", 39, -ATOLL_E_DAMAGED },
		{ &zero, sizeof(zero), -ATOLL_E_DAMAGED },
		{ &no_ticket, sizeof(no_ticket), -ATOLL_E_DAMAGED },
		{ &huge, sizeof(huge), -ATOLL_E_DAMAGED },
		{ &newer, sizeof(newer), -ATOLL_E_NEWER },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ticket t = TICKET_INIT;
		struct ticket_holder holder;
		char buf[1024];

		put_file(rows[i].data, rows[i].len);
		assert_int_equal(ticket_acquire(&t, dir_fd, NAME, &forever), rows[i].code);
		assert_int_equal(ticket_peek(dir_fd, NAME, &holder), rows[i].code);
		assert_int_equal(t.fd, FD_NONE);
		cleanup_close int fd = openat(dir_fd, NAME, O_RDONLY | O_CLOEXEC);
		assert_int_equal(read(fd, buf, sizeof(buf)), (ssize_t)rows[i].len);
		assert_memory_equal(buf, rows[i].data, rows[i].len);
	}
}

static void an_empty_file_is_a_new_lock(void **state)
{
	(void)state;
	put_file("", 0);
	struct ticket t = take(&forever);
	assert_int_equal(t.epoch, 1);
	assert_false(t.owner_died);
	ticket_release(&t);
}

static void an_old_file_put_back_under_a_holder_is_noticed(void **state)
{
	struct ticket t = take(&forever), second = TICKET_INIT;
	const uint64_t old = t.number;

	(void)state;
	assert_int_equal(
		ticket_file_write(t.fd, &old, sizeof(old), offsetof(struct ticket_header, next)),
		0);
	assert_int_equal(try_lock(&second, NULL), -ATOLL_E_DAMAGED);
	ticket_release(&t);
}

static void a_symlink_is_not_followed(void **state)
{
	struct ticket t = TICKET_INIT;

	(void)state;
	assert_int_equal(symlinkat("target", dir_fd, "link.lk"), 0);
	assert_int_equal(ticket_acquire(&t, dir_fd, "link.lk", &forever), -ELOOP);
	assert_int_equal(faccessat(dir_fd, "target", F_OK, 0), -1);
}

/* The waiter must not end up with a lock on a file nobody else can find. */
static void an_unlinked_file_is_opened_anew(void **state)
{
	struct ticket t = take(&forever), second = TICKET_INIT;
	struct waiter w = { 0 };

	(void)state;
	waiter_start(&w, "w", clock_deadline(10000));
	assert_int_equal(unlinkat(dir_fd, NAME, 0), 0);
	ticket_release(&t);
	waiter_join(&w);
	assert_int_equal(w.r, 0);
	assert_int_equal(try_lock(&second, NULL), -ATOLL_E_BUSY);
	ticket_release(&w.t);
}

static void record_slots_are_used_again(void **state)
{
	struct ticket t = TICKET_INIT, second = TICKET_INIT;
	struct ticket_holder holder;

	(void)state;
	for (unsigned i = 0; i < TICKET_RECORDS + 10; i++) {
		t = take(&forever);
		ticket_release(&t);
	}
	t = take(&forever);
	assert_true(t.number > TICKET_RECORDS);
	for (unsigned i = 0; i < TICKET_RECORDS + 10; i++)
		assert_int_equal(try_lock(&second, NULL), -ATOLL_E_BUSY);
	assert_int_equal(try_lock(&second, &holder), -ATOLL_E_BUSY);
	assert_string_equal(holder.command, "test");
	ticket_release(&t);
	struct stat st;
	assert_int_equal(fstatat(dir_fd, NAME, &st, 0), 0);
	assert_true(st.st_size <=
	            TICKET_RECORDS_AT + TICKET_RECORDS * (off_t)sizeof(struct ticket_record));
}

/* ---- looking ----------------------------------------------------------------------------- */

static void peek_tells_held_from_free(void **state)
{
	struct ticket_holder holder;

	(void)state;
	assert_int_equal(ticket_peek(dir_fd, NAME, &holder), 0); /* no file */
	assert_int_equal(faccessat(dir_fd, NAME, F_OK, 0), -1);
	struct ticket t = take(&forever);
	assert_int_equal(ticket_peek(dir_fd, NAME, &holder), 1);
	assert_int_equal(holder.pid, getpid());
	assert_int_equal(holder.epoch, t.epoch);
	assert_int_equal(holder.ahead, 0);
	ticket_release(&t);
	assert_int_equal(ticket_peek(dir_fd, NAME, &holder), 0);
}

static void long_commands_are_cut(void **state)
{
	char command[1000];
	struct ticket_holder holder;
	const struct ticket_options opt = { .command = command, .deadline = CLOCK_NEVER };

	(void)state;
	memset(command, 'x', sizeof(command) - 1);
	command[sizeof(command) - 1] = '\0';
	struct ticket t = take(&opt);
	assert_int_equal(ticket_peek(dir_fd, NAME, &holder), 1);
	assert_int_equal(strlen(holder.command), LIMIT_COMMAND - 1);
	ticket_release(&t);
}

static void describe_reads_as_a_sentence(void **state)
{
	const int64_t since = clock_real_ms() - 42000;
	const time_t seconds = (time_t)(since / 1000);
	struct ticket_holder h = { .pid = 4121, .since_ms = since, .ahead = 1 };
	char text[400], want[400], at[16];
	struct tm tm;

	(void)state;
	(void)snprintf(h.command, sizeof(h.command), "atoll exec fix-42 -- \033[2Jmake");
	assert_non_null(localtime_r(&seconds, &tm));
	assert_true(strftime(at, sizeof(at), "%H:%M:%S", &tm) > 0);
	(void)snprintf(
		want, sizeof(want),
		"pid 4121 \"atoll exec fix-42 -- \\x1b[2Jmake\" since %s (42 s); you are 2nd", at);
	ticket_describe(&h, text, sizeof(text));
	assert_string_equal(text, want);

	ticket_describe(&h, text, 9);
	assert_string_equal(text, "pid 4121");
	h = (struct ticket_holder){ 0 };
	ticket_describe(&h, text, sizeof(text));
	assert_string_equal(text, "an unknown process");
}

static void describe_counts_in_english(void **state)
{
	static const struct {
		unsigned ahead;
		const char *place;
	} rows[] = { { 1, "2nd" },    { 2, "3rd" },     { 3, "4th" },    { 10, "11th" },
		     { 11, "12th" },  { 12, "13th" },   { 20, "21st" },  { 21, "22nd" },
		     { 99, "100th" }, { 110, "111th" }, { 122, "123rd" } };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct ticket_holder h = { .ahead = rows[i].ahead };
		char text[100], want[100];

		(void)snprintf(want, sizeof(want), "an unknown process; you are %s", rows[i].place);
		ticket_describe(&h, text, sizeof(text));
		assert_string_equal(text, want);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_grant_has_a_greater_epoch_and_number),
		TEST(the_file_is_private_and_closed_on_exec),
		TEST(an_abandoned_lock_says_owner_died_once),
		TEST(a_killed_holder_says_owner_died),
		TEST(releasing_what_is_not_held_does_nothing),
		TEST(acquiring_with_a_held_ticket_is_a_bug),
		TEST(a_dup_keeps_the_lock),
		TEST(cmd_05_locks_do_not_touch_each_other),
		TEST(a_try_is_busy_and_names_the_holder),
		TEST(der_23_a_timeout_names_the_holder),
		TEST(a_deadline_in_the_past_is_a_timeout),
		TEST(timeouts_leak_nothing),
		TEST(a_waiter_that_gives_up_leaves_the_order_alone),
		TEST(the_holder_and_its_change_are_told),
		TEST(a_short_wait_tells_nothing),
		TEST(a_stuck_gate_does_not_hold_us_for_ever),
		TEST(without_threads_it_polls),
		TEST(a_damaged_file_is_refused_and_left_alone),
		TEST(an_empty_file_is_a_new_lock),
		TEST(an_old_file_put_back_under_a_holder_is_noticed),
		TEST(a_symlink_is_not_followed),
		TEST(an_unlinked_file_is_opened_anew),
		TEST(record_slots_are_used_again),
		TEST(peek_tells_held_from_free),
		TEST(long_commands_are_cut),
		TEST(describe_reads_as_a_sentence),
		TEST(describe_counts_in_english),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ticket lock under threads, processes and SIGKILL.
 *
 * The oracle lives in shared memory: whoever is granted the lock writes its name there and must
 * find nobody, or somebody who was killed. The killer publishes its victim before kill(): a dying
 * process closes its files before it looks dead, so asking the system afterwards comes too late.
 *
 * ATOLL_LONG=1 runs 10,000 kills instead of three seconds of them.
 */
#include "lock/ticket.h"

#include "lock/ticket-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <atoll.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME     "plan.lk"
#define COUNTER  "counter"
#define MS       INT64_C(1000000)
#define PATIENCE 60000 /* ms; longer than any wait that is not a failure */

#define CHAOS_PROCESSES 12
#define CHAOS_LIVES     65536 /* processes ever started, at most */
#define CHAOS_LONG      10000
#define CHAOS_SHORT_MS  3000

static char dir_path[64];
static int dir_fd = FD_NONE;
static struct ticket held = { .fd = FD_NONE }; /* the test's own */

static int setup(void **state)
{
	(void)state;
	(void)snprintf(dir_path, sizeof(dir_path), "/tmp/atoll-chaos-XXXXXX");
	if (!mkdtemp(dir_path))
		return -1;
	dir_fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	(void)unlinkat(dir_fd, NAME, 0);
	(void)unlinkat(dir_fd, COUNTER, 0);
	close_fd(&dir_fd);
	return rmdir(dir_path);
}

static void *share(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* Runs FN(ARG) in a child that does not outlive us and drops its copy of our ticket. */
static pid_t spawn(void (*fn)(void *arg), void *arg)
{
	pid_t parent = getpid(), pid = fork();

	assert_true(pid >= 0);
	if (pid != 0)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	ticket_abandon(&held);
	if (getppid() == parent)
		fn(arg);
	_exit(0);
}

static void end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int acquire(struct ticket *t, int64_t deadline, struct ticket_holder *ret_holder)
{
	const struct ticket_options opt = { .command = "chaos",
		                            .deadline = deadline,
		                            .ret_holder = ret_holder };

	return ticket_acquire(t, dir_fd, NAME, &opt);
}

static void take(void)
{
	assert_int_equal(acquire(&held, clock_deadline(PATIENCE), NULL), 0);
}

static unsigned queue_length(void)
{
	struct ticket_holder h = { 0 };
	cleanup_close int fd = openat(dir_fd, NAME, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && ticket_file_holder(fd, TICKET_MAX, &h) > 0 ? h.ahead : 0;
}

static void wait_queue(unsigned length)
{
	int64_t deadline = clock_deadline(PATIENCE);

	while (queue_length() != length && clock_boot_ns() < deadline)
		clock_sleep_ns(MS);
	assert_int_equal(queue_length(), length);
}

/* ---- random kills ------------------------------------------------------------------------ */

struct chaos {
	atomic_uint inside; /* life of the holder, 0: nobody */
	atomic_ulong last_number;
	atomic_ulong last_epoch;
	atomic_ulong grants, timeouts, recoveries;
	atomic_ulong overlaps, inversions, old_epochs, missed_deaths, failures;
	atomic_bool killed[CHAOS_LIVES];
};

static struct chaos *chaos;

struct life {
	unsigned id; /* from 1 */
	pid_t pid;
};

static void check_grant(const struct ticket *t, unsigned life)
{
	unsigned before = atomic_exchange(&chaos->inside, life);

	if (before != 0 && !atomic_load(&chaos->killed[before]))
		atomic_fetch_add(&chaos->overlaps, 1);
	if (before != 0 && !t->owner_died)
		atomic_fetch_add(&chaos->missed_deaths, 1);
	if (atomic_exchange(&chaos->last_number, t->number) >= t->number)
		atomic_fetch_add(&chaos->inversions, 1);
	if (atomic_exchange(&chaos->last_epoch, t->epoch) >= t->epoch)
		atomic_fetch_add(&chaos->old_epochs, 1);
	if (t->owner_died)
		atomic_fetch_add(&chaos->recoveries, 1);
	atomic_fetch_add(&chaos->grants, 1);
}

static void note_nothing(void *user, const struct ticket_holder *holder)
{
	(void)user;
	(void)holder;
}

/* Every way to wait: in the kernel, beside a thread, with a deadline that often passes, a try. */
static int chaos_acquire(struct ticket *t, unsigned *seed)
{
	struct ticket_options opt = { .command = "chaos", .deadline = CLOCK_NEVER };

	switch (rand_r(seed) % 5) {
	case 0:
		opt.deadline = clock_boot_ns() + rand_r(seed) % 2000000;
		break;
	case 1:
		opt.deadline = clock_deadline(PATIENCE);
		break;
	case 2:
		opt.on_wait = note_nothing;
		break;
	case 3:
		opt.deadline = 0;
		break;
	default:
		break;
	}
	return ticket_acquire(t, dir_fd, NAME, &opt);
}

static void chaos_round(unsigned life, unsigned *seed)
{
	struct ticket t = TICKET_INIT;
	int r = chaos_acquire(&t, seed);

	if (r == -ATOLL_E_TIMEOUT || r == -ATOLL_E_BUSY) {
		atomic_fetch_add(&chaos->timeouts, 1);
		return;
	}
	if (r < 0) {
		atomic_fetch_add(&chaos->failures, 1);
		return;
	}
	check_grant(&t, life);
	if (rand_r(seed) % 4 == 0)
		clock_sleep_ns(rand_r(seed) % 200000);
	if (atomic_load(&chaos->inside) != life)
		atomic_fetch_add(&chaos->overlaps, 1);
	atomic_store(&chaos->inside, 0);
	ticket_release(&t);
}

static void *chaos_thread(void *arg)
{
	const struct life *life = arg;
	unsigned seed = life->id ^ (unsigned)gettid();

	for (;;)
		chaos_round(life->id, &seed);
	return NULL;
}

/* Every third process has three threads. */
static void chaos_process(void *arg)
{
	const struct life *life = arg;
	pthread_t thread;

	for (unsigned i = 1; i < 3 && life->id % 3 == 0; i++) {
		if (pthread_create(&thread, NULL, chaos_thread, arg) != 0)
			atomic_fetch_add(&chaos->failures, 1);
	}
	(void)chaos_thread(arg);
}

static void chaos_kill(struct life *life)
{
	atomic_store(&chaos->killed[life->id], true); /* before kill(): see above */
	end(life->pid);
	life->pid = 0;
}

/* Half of the time whoever holds the lock now, else anybody. */
static struct life *choose_victim(struct life *lives, unsigned *seed)
{
	const bool want_holder = rand_r(seed) % 2;
	const unsigned holder = atomic_load(&chaos->inside);

	for (unsigned i = 0; i < CHAOS_PROCESSES && want_holder; i++) {
		if (lives[i].id == holder)
			return &lives[i];
	}
	return &lives[(unsigned)rand_r(seed) % CHAOS_PROCESSES];
}

static unsigned chaos_run(struct life *lives)
{
	const bool is_long = getenv("ATOLL_LONG") != NULL;
	const int64_t deadline = clock_deadline(CHAOS_SHORT_MS), late = clock_deadline(PATIENCE);
	unsigned kills = 0, next_id = 1, seed = 1;

	while (is_long ? kills < CHAOS_LONG
	               : clock_boot_ns() < deadline ||
	                         (atomic_load(&chaos->recoveries) == 0 && clock_boot_ns() < late)) {
		for (unsigned i = 0; i < CHAOS_PROCESSES; i++) {
			if (lives[i].pid != 0)
				continue;
			lives[i].id = next_id++;
			lives[i].pid = spawn(chaos_process, &lives[i]);
		}
		clock_sleep_ns(rand_r(&seed) % (2 * MS));
		chaos_kill(choose_victim(lives, &seed));
		kills++;
	}
	return kills;
}

/* How many there are once there are more than BEFORE. */
static unsigned long more_grants(unsigned long before)
{
	int64_t deadline = clock_deadline(PATIENCE);

	do
		clock_sleep_ns(100 * MS);
	while (atomic_load(&chaos->grants) <= before && clock_boot_ns() < deadline);
	return atomic_load(&chaos->grants);
}

static void random_kills_break_neither_exclusion_nor_order(void **state)
{
	struct life lives[CHAOS_PROCESSES] = { { 0 } };

	(void)state;
	chaos = share(sizeof(*chaos));
	unsigned kills = chaos_run(lives);

	/* The queue still moves when the killing is over. */
	unsigned long before = atomic_load(&chaos->grants);
	unsigned long after = more_grants(before);
	for (unsigned i = 0; i < CHAOS_PROCESSES; i++) {
		if (lives[i].pid != 0)
			chaos_kill(&lives[i]);
	}
	print_message("# %u kills, %lu grants, %lu recoveries, %lu given up\n", kills, after,
	              atomic_load(&chaos->recoveries), atomic_load(&chaos->timeouts));
	assert_true(after > before);
	assert_int_equal(atomic_load(&chaos->overlaps), 0);
	assert_int_equal(atomic_load(&chaos->inversions), 0);
	assert_int_equal(atomic_load(&chaos->old_epochs), 0);
	assert_int_equal(atomic_load(&chaos->missed_deaths), 0);
	assert_int_equal(atomic_load(&chaos->failures), 0);
	assert_true(atomic_load(&chaos->recoveries) > 0);

	assert_int_equal(acquire(&held, 0, NULL), 0);
	ticket_release(&held);
	assert_int_equal(munmap(chaos, sizeof(*chaos)), 0);
}

static void knock(void *arg)
{
	const struct life *life = arg;
	const int64_t deadline = clock_deadline(500);

	while (clock_boot_ns() < deadline) {
		struct ticket t = TICKET_INIT;

		if (acquire(&t, 0, NULL) != 0)
			continue;
		check_grant(&t, life->id);
		atomic_store(&chaos->inside, 0);
		ticket_release(&t);
	}
}

/* Two that only ever try meet in the instants around a release. */
static void without_a_death_nobody_is_told_of_one(void **state)
{
	struct life lives[] = { { .id = 1 }, { .id = 2 } };

	(void)state;
	chaos = share(sizeof(*chaos));
	for (unsigned i = 0; i < 2; i++)
		lives[i].pid = spawn(knock, &lives[i]);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(waitpid(lives[i].pid, NULL, 0), lives[i].pid);
	assert_true(atomic_load(&chaos->grants) > 0);
	assert_int_equal(atomic_load(&chaos->recoveries), 0);
	assert_int_equal(atomic_load(&chaos->overlaps), 0);
	assert_int_equal(atomic_load(&chaos->inversions), 0);
	assert_int_equal(atomic_load(&chaos->old_epochs), 0);
	assert_int_equal(munmap(chaos, sizeof(*chaos)), 0);
}

/* ---- no lost update ---------------------------------------------------------------------- */

#define COUNT_PROCESSES 4
#define COUNT_THREADS   4
#define COUNT_ROUNDS    50

/* Not atomic on purpose: only the lock makes it so. */
static int count_once(void)
{
	cleanup_close int fd = openat(dir_fd, COUNTER, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	unsigned n = 0;

	if (fd < 0 || pread(fd, &n, sizeof(n), 0) < 0)
		return -1;
	sched_yield();
	n++;
	return pwrite(fd, &n, sizeof(n), 0) == (ssize_t)sizeof(n) ? 0 : -1;
}

static void *count_thread(void *arg)
{
	for (int i = 0; i < COUNT_ROUNDS; i++) {
		struct ticket t = TICKET_INIT;
		int64_t deadline = i % 2 ? CLOCK_NEVER : clock_deadline(PATIENCE);

		if (acquire(&t, deadline, NULL) != 0 || t.owner_died || count_once() < 0)
			_exit(1);
		ticket_release(&t);
	}
	return arg;
}

static void count_process(void *arg)
{
	pthread_t threads[COUNT_THREADS];

	for (unsigned i = 0; i < COUNT_THREADS; i++) {
		if (pthread_create(&threads[i], NULL, count_thread, arg) != 0)
			_exit(2);
	}
	for (unsigned i = 0; i < COUNT_THREADS; i++)
		(void)pthread_join(threads[i], NULL);
}

static void der_15_ticket_holders_lose_no_update(void **state)
{
	pid_t pids[COUNT_PROCESSES];
	unsigned n = 0;
	int status;

	(void)state;
	for (unsigned i = 0; i < COUNT_PROCESSES; i++)
		pids[i] = spawn(count_process, NULL);
	for (unsigned i = 0; i < COUNT_PROCESSES; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	cleanup_close int fd = openat(dir_fd, COUNTER, O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, &n, sizeof(n)), (ssize_t)sizeof(n));
	assert_int_equal(n, COUNT_PROCESSES * COUNT_THREADS * COUNT_ROUNDS);
}

/* ---- first come, first served ------------------------------------------------------------ */

#define LINE 16

struct line {
	atomic_uint n;
	unsigned order[LINE];
};

struct place {
	struct line *line;
	unsigned index;
	pthread_t thread;
	pid_t pid;
};

static void *stand_in_line(void *arg)
{
	const struct place *p = arg;
	struct ticket t = TICKET_INIT;
	int64_t deadline = p->index % 3 ? CLOCK_NEVER : clock_deadline(PATIENCE);

	if (acquire(&t, deadline, NULL) == 0)
		p->line->order[atomic_fetch_add(&p->line->n, 1)] = p->index;
	ticket_release(&t);
	return NULL;
}

static void stand_in_line_process(void *arg)
{
	(void)stand_in_line(arg);
}

static void threads_and_processes_are_served_in_order(void **state)
{
	struct line *line = share(sizeof(*line));
	struct place places[LINE];

	(void)state;
	take();
	for (unsigned i = 0; i < LINE; i++) {
		struct place *p = &places[i];

		*p = (struct place){ .line = line, .index = i };
		if (i < LINE / 2) /* no fork once there are threads */
			p->pid = spawn(stand_in_line_process, p);
		else
			assert_int_equal(pthread_create(&p->thread, NULL, stand_in_line, p), 0);
		wait_queue(i + 2);
	}
	ticket_release(&held);
	for (unsigned i = 0; i < LINE; i++) {
		if (places[i].pid)
			assert_int_equal(waitpid(places[i].pid, NULL, 0), places[i].pid);
		else
			assert_int_equal(pthread_join(places[i].thread, NULL), 0);
	}
	assert_int_equal(atomic_load(&line->n), LINE);
	for (unsigned i = 0; i < LINE; i++)
		assert_int_equal(line->order[i], i);
	assert_int_equal(munmap(line, sizeof(*line)), 0);
}

/* ---- dead and stopped ones --------------------------------------------------------------- */

struct actor {
	atomic_bool granted;
	atomic_bool owner_died;
	atomic_bool let_go; /* set by the test */
};

static void act(void *arg)
{
	struct actor *a = arg;
	struct ticket t = TICKET_INIT;

	if (acquire(&t, CLOCK_NEVER, NULL) != 0)
		_exit(1);
	atomic_store(&a->owner_died, t.owner_died);
	atomic_store(&a->granted, true);
	while (!atomic_load(&a->let_go))
		clock_sleep_ns(MS);
	ticket_release(&t);
}

static void wait_flag(atomic_bool *flag)
{
	int64_t deadline = clock_deadline(PATIENCE);

	while (!atomic_load(flag) && clock_boot_ns() < deadline)
		clock_sleep_ns(MS);
	assert_true(atomic_load(flag));
}

static void stop(pid_t pid)
{
	siginfo_t si;

	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &si, WSTOPPED | WNOWAIT), 0);
}

static void let_go(struct actor *a, pid_t pid)
{
	int status;

	atomic_store(&a->let_go, true);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void a_killed_waiter_disappears_from_the_queue(void **state)
{
	struct actor *a = share(3 * sizeof(*a));
	pid_t pids[3];

	(void)state;
	take();
	for (unsigned i = 0; i < 3; i++) {
		pids[i] = spawn(act, &a[i]);
		wait_queue(i + 2);
	}
	end(pids[1]);
	wait_queue(3);
	ticket_release(&held);
	wait_flag(&a[0].granted);
	clock_sleep_ns(20 * MS);
	assert_false(atomic_load(&a[2].granted));
	let_go(&a[0], pids[0]);
	wait_flag(&a[2].granted);
	assert_false(atomic_load(&a[2].owner_died)); /* the dead one never had it */
	let_go(&a[2], pids[2]);
	assert_int_equal(munmap(a, 3 * sizeof(*a)), 0);
}

static void a_killed_holder_hands_over_to_the_oldest_waiter(void **state)
{
	struct actor *a = share(3 * sizeof(*a));
	pid_t pids[3];

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		pids[i] = spawn(act, &a[i]);
		wait_queue(i + 1);
	}
	wait_flag(&a[0].granted);
	end(pids[0]);
	wait_flag(&a[1].granted);
	assert_true(atomic_load(&a[1].owner_died));
	assert_false(atomic_load(&a[2].granted));
	let_go(&a[1], pids[1]);
	wait_flag(&a[2].granted);
	assert_false(atomic_load(&a[2].owner_died));
	let_go(&a[2], pids[2]);
	assert_int_equal(munmap(a, 3 * sizeof(*a)), 0);
}

/* Those behind it, a newcomer and one who only tries among them, do not wait for it; going on, it is
 * the next. */
static void a_stopped_waiter_lets_others_pass(void **state)
{
	struct actor *a = share(3 * sizeof(*a));
	struct ticket_holder holder;
	pid_t pids[3];

	(void)state;
	take();
	for (unsigned i = 0; i < 2; i++) {
		pids[i] = spawn(act, &a[i]);
		wait_queue(i + 2);
	}
	stop(pids[0]);
	clock_sleep_ns(400 * MS); /* it is not passed while somebody holds the lock */
	assert_false(atomic_load(&a[1].granted));
	ticket_release(&held);
	wait_flag(&a[1].granted);
	assert_false(atomic_load(&a[0].granted));
	/* Who holds it is told, not who stands first. */
	assert_int_equal(acquire(&held, clock_deadline(50), &holder), -ATOLL_E_TIMEOUT);
	assert_int_equal(holder.pid, pids[1]);
	assert_int_equal(ticket_peek(dir_fd, NAME, &holder), 1);
	assert_int_equal(holder.pid, pids[1]);
	let_go(&a[1], pids[1]);
	assert_int_equal(acquire(&held, 0, NULL), 0);

	/* It goes on while another holds the lock: it waits, and is first. */
	pids[2] = spawn(act, &a[2]);
	wait_queue(3);
	assert_int_equal(kill(pids[0], SIGCONT), 0);
	clock_sleep_ns(2000 * MS); /* for it to be seen again, on a machine with much to do */
	assert_false(atomic_load(&a[0].granted));
	ticket_release(&held);
	wait_flag(&a[0].granted);
	assert_false(atomic_load(&a[2].granted));
	let_go(&a[0], pids[0]);
	wait_flag(&a[2].granted);
	let_go(&a[2], pids[2]);
	assert_int_equal(munmap(a, 3 * sizeof(*a)), 0);
}

#define PAUSED_PROCESSES 8
#define PAUSED_SHORT     8
#define PAUSED_LONG      300

static void paused_process(void *arg)
{
	const struct life *life = arg;

	for (;;) {
		struct ticket t = TICKET_INIT;

		if (acquire(&t, CLOCK_NEVER, NULL) < 0)
			atomic_fetch_add(&chaos->failures, 1);
		check_grant(&t, life->id);
		clock_sleep_ns(150 * MS); /* so that whoever comes too early meets it */
		if (atomic_load(&chaos->inside) != life->id)
			atomic_fetch_add(&chaos->overlaps, 1);
		atomic_store(&chaos->inside, 0);
		ticket_release(&t);
	}
}

/* Stopped and let go on at random, whether they hold, wait, or are about to: never two at once. */
static void random_stops_break_no_exclusion(void **state)
{
	const unsigned rounds = getenv("ATOLL_LONG") ? PAUSED_LONG : PAUSED_SHORT;
	struct life lives[PAUSED_PROCESSES] = { { 0 } };
	unsigned seed = 7;

	(void)state;
	chaos = share(sizeof(*chaos));
	for (unsigned i = 0; i < PAUSED_PROCESSES; i++) {
		lives[i].id = i + 1;
		lives[i].pid = spawn(paused_process, &lives[i]);
	}
	for (unsigned i = 0; i < rounds; i++) {
		const struct life *life = &lives[(unsigned)rand_r(&seed) % PAUSED_PROCESSES];

		assert_int_equal(kill(life->pid, SIGSTOP), 0);
		clock_sleep_ns((350 + rand_r(&seed) % 300) *
		               MS); /* longer than it takes to be passed */
		assert_int_equal(kill(life->pid, SIGCONT), 0);
	}
	unsigned long before = atomic_load(&chaos->grants);
	assert_true(more_grants(before) > before);
	for (unsigned i = 0; i < PAUSED_PROCESSES; i++)
		chaos_kill(&lives[i]);
	print_message("# %u stops, %lu grants\n", rounds, atomic_load(&chaos->grants));
	assert_int_equal(atomic_load(&chaos->overlaps), 0);
	assert_int_equal(atomic_load(&chaos->old_epochs), 0);
	assert_int_equal(atomic_load(&chaos->missed_deaths), 0);
	assert_int_equal(atomic_load(&chaos->failures), 0);
	assert_int_equal(munmap(chaos, sizeof(*chaos)), 0);
}

#define FIFO_PROCESSES 64
#define FIFO_SHORT     3000
#define FIFO_LONG      10000

struct fifo {
	atomic_ulong last_number, grants, inversions, failures;
	unsigned long wanted;
};

static void fifo_process(void *arg)
{
	struct fifo *f = arg;

	while (atomic_load(&f->grants) < f->wanted) {
		struct ticket t = TICKET_INIT;

		if (acquire(&t, CLOCK_NEVER, NULL) < 0) {
			atomic_fetch_add(&f->failures, 1);
			return;
		}
		if (atomic_exchange(&f->last_number, t.number) >= t.number)
			atomic_fetch_add(&f->inversions, 1);
		atomic_fetch_add(&f->grants, 1);
		ticket_release(&t);
	}
}

static void sixty_four_processes_are_served_in_order(void **state)
{
	struct fifo *f = share(sizeof(*f));
	pid_t pids[FIFO_PROCESSES];

	(void)state;
	f->wanted = getenv("ATOLL_LONG") ? FIFO_LONG : FIFO_SHORT;
	take();
	for (unsigned i = 0; i < FIFO_PROCESSES; i++)
		pids[i] = spawn(fifo_process, f);
	wait_queue(FIFO_PROCESSES + 1);
	ticket_release(&held);
	for (unsigned i = 0; i < FIFO_PROCESSES; i++)
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
	print_message("# %lu grants, %lu inversions\n", atomic_load(&f->grants),
	              atomic_load(&f->inversions));
	assert_true(atomic_load(&f->grants) >= f->wanted);
	assert_int_equal(atomic_load(&f->inversions), 0);
	assert_int_equal(atomic_load(&f->failures), 0);
	assert_int_equal(munmap(f, sizeof(*f)), 0);
}

static void a_stopped_holder_keeps_the_lock(void **state)
{
	struct actor *a = share(sizeof(*a));
	struct ticket_holder holder;
	pid_t pid = spawn(act, a);

	(void)state;
	wait_flag(&a->granted);
	stop(pid);
	assert_int_equal(acquire(&held, clock_deadline(100), &holder), -ATOLL_E_TIMEOUT);
	assert_int_equal(holder.pid, pid);
	end(pid);
	take();
	assert_true(held.owner_died);
	ticket_release(&held);
	assert_int_equal(munmap(a, sizeof(*a)), 0);
}

static void supervise(void *arg)
{
	const int *fd = arg;

	(void)fcntl(*fd, F_GETFD);
	for (;;)
		pause();
}

/* As the process that runs a command does: the lock lives as long as the command. */
static void a_supervisor_with_a_dup_keeps_the_lock(void **state)
{
	struct ticket_holder holder;

	(void)state;
	take();
	int fd = ticket_dup(&held);
	pid_t pid = spawn(supervise, &fd);
	close_fd(&fd);
	ticket_abandon(&held);
	assert_int_equal(acquire(&held, 0, &holder), -ATOLL_E_BUSY);
	assert_int_equal(holder.pid, getpid());
	end(pid);
	assert_int_equal(acquire(&held, 0, NULL), 0);
	assert_true(held.owner_died);
	ticket_release(&held);
}

/* ---- a crowd ----------------------------------------------------------------------------- */

#define CROWD (TICKET_RECORDS + 30)

struct crowd {
	atomic_uint granted;
	atomic_uint failed;
	unsigned long last_number; /* guarded by the lock */
};

static void *crowd_thread(void *arg)
{
	struct crowd *c = arg;
	struct ticket t = TICKET_INIT;

	if (acquire(&t, CLOCK_NEVER, NULL) != 0) {
		atomic_fetch_add(&c->failed, 1);
		return NULL;
	}
	if (__atomic_exchange_n(&c->last_number, t.number, __ATOMIC_ACQ_REL) >= t.number)
		atomic_fetch_add(&c->failed, 1);
	atomic_fetch_add(&c->granted, 1);
	ticket_release(&t);
	return NULL;
}

static void crowd_process(void *arg)
{
	struct crowd *c = arg;
	struct rlimit rl;
	pthread_attr_t attr;
	pthread_t *threads = xcalloc(CROWD, sizeof(*threads));

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		_exit(1);
	rl.rlim_cur = rl.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_max < CROWD + 100)
		_exit(77);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	for (unsigned i = 0; i < CROWD; i++) {
		if (pthread_create(&threads[i], &attr, crowd_thread, c) != 0)
			_exit(77);
	}
	for (unsigned i = 0; i < CROWD; i++)
		(void)pthread_join(threads[i], NULL);
	free(threads);
}

/* Slots for records run out, the lock does not. */
static void more_waiters_than_records(void **state)
{
	struct crowd *c = share(sizeof(*c));
	struct ticket late = TICKET_INIT;
	struct ticket_holder holder;
	int64_t deadline = clock_deadline(PATIENCE);
	int status;

	(void)state;
	take();
	pid_t pid = spawn(crowd_process, c);
	while (queue_length() < TICKET_RECORDS && clock_boot_ns() < deadline &&
	       waitpid(pid, &status, WNOHANG) == 0)
		clock_sleep_ns(20 * MS);
	if (queue_length() < TICKET_RECORDS) {
		ticket_release(&held);
		print_message("# no room for %u threads\n", CROWD);
		skip();
	}
	assert_int_equal(acquire(&late, 0, &holder), -ATOLL_E_BUSY);
	assert_int_equal(holder.pid, getpid());
	ticket_release(&held);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(atomic_load(&c->granted), CROWD);
	assert_int_equal(atomic_load(&c->failed), 0);
	assert_int_equal(munmap(c, sizeof(*c)), 0);
}

/* ---- a file that goes -------------------------------------------------------------------- */

#define LEAVERS       8
#define LEAVER_ROUNDS 1500

struct leaving {
	atomic_int inside;
	atomic_ulong overlaps, failures;
};

/* Every third holder takes the file's name away as the last thing it does. */
static void leave(void *arg)
{
	struct leaving *l = arg;

	for (int i = 0; i < LEAVER_ROUNDS; i++) {
		struct ticket t = TICKET_INIT;

		if (acquire(&t, clock_deadline(PATIENCE), NULL) < 0) {
			atomic_fetch_add(&l->failures, 1);
			continue;
		}
		if (atomic_fetch_add(&l->inside, 1) != 0)
			atomic_fetch_add(&l->overlaps, 1);
		(void)sched_yield();
		atomic_fetch_sub(&l->inside, 1);
		if (i % 3 == 0)
			(void)unlinkat(dir_fd, NAME, 0);
		ticket_release(&t);
	}
}

static void a_holder_may_unlink_before_it_releases(void **state)
{
	struct leaving *l = share(sizeof(*l));
	pid_t pids[LEAVERS];

	(void)state;
	for (int i = 0; i < LEAVERS; i++)
		pids[i] = spawn(leave, l);
	for (int i = 0; i < LEAVERS; i++)
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
	assert_int_equal(atomic_load(&l->overlaps), 0);
	assert_int_equal(atomic_load(&l->failures), 0);
	assert_int_equal(munmap(l, sizeof(*l)), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(random_kills_break_neither_exclusion_nor_order),
		TEST(without_a_death_nobody_is_told_of_one),
		TEST(der_15_ticket_holders_lose_no_update),
		TEST(threads_and_processes_are_served_in_order),
		TEST(a_killed_waiter_disappears_from_the_queue),
		TEST(a_killed_holder_hands_over_to_the_oldest_waiter),
		TEST(a_stopped_waiter_lets_others_pass),
		TEST(random_stops_break_no_exclusion),
		TEST(sixty_four_processes_are_served_in_order),
		TEST(a_stopped_holder_keeps_the_lock),
		TEST(a_supervisor_with_a_dup_keeps_the_lock),
		TEST(more_waiters_than_records),
		TEST(a_holder_may_unlink_before_it_releases),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for a byte-range lock until a deadline.
 *
 * F_OFD_SETLKW has no time-out, and a library may not install the signal handler that would
 * interrupt it. So a helper thread blocks in the kernel, on the same open file description (the
 * lock it gets is ours), and the caller sleeps on a futex beside it. When the deadline passes the
 * thread is cancelled: F_OFD_SETLKW is a cancellation point. The kernel frees everything when the
 * process dies, since the thread dies with it.
 *
 * A caller that waits for ever and wants no ticks blocks in the kernel itself. Where no thread
 * can be had the caller polls.
 */
#include "lock/ticket-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "util/clock.h"

#define POLL_NS INT64_C(5000000)
/* The futex's clock stands still while the machine sleeps; deadlines do not. */
#define LONGEST_SLEEP_NS INT64_C(1000000000)

struct waiter {
	const struct ticket_wait *w;
	pthread_t thread;
	bool has_thread;
	unsigned taken; /* steps */
	int64_t said;   /* by the tick: TICKET_DONE, TICKET_CANCELLED, or when next */
	int result;
	_Atomic uint32_t done;
};

static int set_lock(int fd, int cmd, const struct ticket_step *step)
{
	struct flock fl = { .l_type = step->type,
		            .l_whence = SEEK_SET,
		            .l_start = step->start,
		            .l_len = step->len };
	int r;

	do
		r = fcntl(fd, cmd, &fl);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

int ticket_step_try(int fd, const struct ticket_step *step)
{
	int r = set_lock(fd, F_OFD_SETLK, step);

	return r == -EACCES ? -EAGAIN : r;
}

static int take_steps(struct waiter *wt, int cmd)
{
	const struct ticket_wait *w = wt->w;

	for (; wt->taken < w->n_steps; wt->taken++) {
		int r = set_lock(w->fd, cmd, &w->steps[wt->taken]);
		if (r < 0)
			return r;
	}
	return 0;
}

static void *waiter_main(void *arg)
{
	struct waiter *wt = arg;

	wt->result = take_steps(wt, F_OFD_SETLKW);
	atomic_store_explicit(&wt->done, 1, memory_order_release);
	(void)syscall(SYS_futex, &wt->done, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	return NULL;
}

/* No signal of the application is ever delivered to the helper thread. */
static void waiter_start(struct waiter *wt)
{
	sigset_t all, old;

	sigfillset(&all);
	if (pthread_sigmask(SIG_SETMASK, &all, &old) != 0)
		return;
	wt->has_thread = pthread_create(&wt->thread, NULL, waiter_main, wt) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static bool is_done(struct waiter *wt)
{
	return atomic_load_explicit(&wt->done, memory_order_acquire) != 0;
}

static void sleep_beside(struct waiter *wt, int64_t ns)
{
	struct timespec ts = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	(void)syscall(SYS_futex, &wt->done, FUTEX_WAIT_PRIVATE, 0, &ts, NULL, 0);
}

static void sleep_and_poll(struct waiter *wt, int64_t ns)
{
	clock_sleep_ns(ns < POLL_NS ? ns : POLL_NS);
	wt->result = take_steps(wt, F_OFD_SETLK);
	if (wt->result != -EAGAIN && wt->result != -EACCES)
		atomic_store_explicit(&wt->done, 1, memory_order_release);
}

static int64_t earliest(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void wait_beside(struct waiter *wt)
{
	const struct ticket_wait *w = wt->w;
	int64_t tick_at = w->tick ? w->tick_at : CLOCK_NEVER;

	while (!is_done(wt)) {
		int64_t now = clock_boot_ns();

		if (now >= w->deadline)
			return;
		if (now >= tick_at) {
			wt->said = tick_at = w->tick(w->user);
			if (tick_at == TICKET_DONE || tick_at == TICKET_CANCELLED)
				return;
			continue;
		}
		int64_t ns = earliest(earliest(w->deadline, tick_at) - now, LONGEST_SLEEP_NS);
		if (wt->has_thread)
			sleep_beside(wt, ns);
		else
			sleep_and_poll(wt, ns);
	}
}

int ticket_wait(const struct ticket_wait *w)
{
	struct waiter wt = { .w = w };
	int cancel_state;

	if (w->deadline == CLOCK_NEVER && !w->tick)
		return take_steps(&wt, F_OFD_SETLKW);

	/* The thread works on our stack: we must not be cancelled before it ended. */
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	waiter_start(&wt);
	wait_beside(&wt);
	if (wt.has_thread) {
		if (!is_done(&wt))
			(void)pthread_cancel(wt.thread);
		(void)pthread_join(wt.thread, NULL);
	}
	(void)pthread_setcancelstate(cancel_state, NULL);
	if (wt.said == TICKET_DONE)
		return 0;
	if (wt.said == TICKET_CANCELLED)
		return -ECANCELED;
	return is_done(&wt) ? wt.result : -ETIMEDOUT;
}

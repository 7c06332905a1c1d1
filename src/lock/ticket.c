/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol of the ticket lock.
 *
 * A ticket is *live* while its byte is write-locked; the kernel ends that when the last reference
 * to the open file description goes, however the process ends. The *holder* is the oldest live
 * ticket, or one that passed older ones which are stopped. The *gate* is a byte held for the few
 * microseconds in which a ticket is drawn; the *held byte* is the holder's.
 *
 * Invariants:
 * 1. Numbers are drawn under the gate and only grow; a number is live at most once.
 * 2. A live ticket's byte was locked before any younger number was drawn.
 * 3. A ticket is granted when it has write-locked the held byte, which is let go of together with
 *    its own: so there is one holder, whatever else is true. The order comes from what is done
 *    before: it read-locks every older byte; by 2 all older tickets had locked theirs before, so
 *    none of them is live, and none can come back. Seeing no live ticket while holding the gate is
 *    the same proof, in one call. Instead, it may have seen that all older ones wait and are
 *    stopped: those that go on meanwhile find the held byte taken, and are next.
 * 4. The holder alone writes epoch, dirty and holder, and reads them after 3.
 * 5. dirty is set before a grant is returned and cleared before the byte is let go. So dirty at
 *    a grant means that the last holder did not release.
 *
 * Dying anywhere is harmless: in the gate, a number is drawn twice (the first is dead) or is
 * skipped; as a waiter, the byte goes and the order of the rest stays; after the grant, 5.
 *
 * Power loss: nothing here is synced. The file may come back older, with smaller epochs and
 * without the dirty mark; what must survive that is the registry's to keep.
 *
 * fork: a child shares the open file description. It cannot release the lock (that only closes the
 * child's copy), but it keeps it alive until it runs exec or ends. One that does neither soon
 * calls ticket_abandon() on its copy of the ticket, never ticket_release(), which would mark the
 * lock clean.
 */
#include "lock/ticket.h"

#include <atoll.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "fs/mount.h"
#include "lock/ticket-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/escape.h"

#define MS INT64_C(1000000)

/* A try may wait this long for the gate: its owner may have lost the processor. */
#define GATE_PATIENCE_MS 100
#define FIRST_NOTICE_NS  (300 * MS)
#define LOOK_NS          (200 * MS) /* how often the holder is compared */
#define NOTICE_NS        (30000 * MS)

#define UNLINKED 1 /* the file lost its name while we waited: start again */

static const struct ticket_step gate_lock = { .type = F_WRLCK, .start = 0, .len = 1 };
/* What only a holder has. */
static const struct ticket_step held_lock = { .type = F_WRLCK, .start = 1, .len = 1 };
static const struct ticket_step gate_unlock = { .type = F_UNLCK, .start = 0, .len = 1 };

/* One try to get the lock, on one open file. */
struct attempt {
	int fd;
	uint64_t number; /* 0: not drawn yet */
	const struct ticket_options *opt;
	struct ticket_record me;
	uint64_t noticed; /* the holder on_wait was told of */
	int64_t notice_at;
};

/* The full question costs as much as the lock, so it is asked when the device changes. */
static int check_local(int fd)
{
	static _Atomic uint64_t local_dev;
	struct mount_info mi;
	struct statx stx;

	if (statx(fd, "", AT_EMPTY_PATH, 0, &stx) < 0)
		return -errno;
	uint64_t dev = (uint64_t)stx.stx_dev_major << 32 | stx.stx_dev_minor;
	if (atomic_load(&local_dev) == dev)
		return 0;
	int r = mount_info(fd, &mi);
	if (r < 0)
		return r;
	if (mi.network)
		return -ATOLL_E_LOCK_UNSUPPORTED;
	atomic_store(&local_dev, dev);
	return 0;
}

/* Tickets before ours; before we have one, all. */
static uint64_t queue_end(const struct attempt *a)
{
	return a->number ? a->number : TICKET_MAX;
}

/* All before us are stopped, and the lock is ours now. */
static bool passes(const struct attempt *a)
{
	return a->number && ticket_file_all_stopped(a->fd, a->number) &&
	       ticket_step_try(a->fd, &held_lock) == 0;
}

static int64_t notice(void *user)
{
	struct attempt *a = user;
	struct ticket_holder holder = { 0 };
	uint64_t oldest = 0;
	int64_t now = clock_boot_ns();
	int r;

	if (a->opt->cancelled && a->opt->cancelled(a->opt->cancelled_ctx))
		return TICKET_CANCELLED;
	if (passes(a))
		return TICKET_DONE;
	if (!a->opt->on_wait)
		return now + LOOK_NS;
	r = ticket_file_first(a->fd, queue_end(a), &oldest);

	/* Nobody older is left: ours in a moment. At the gate it says that somebody is stuck. */
	if (r < 0 || (r == 0 && a->number))
		return now + LOOK_NS;
	if (oldest != a->noticed || now >= a->notice_at) {
		(void)ticket_file_holder(a->fd, queue_end(a), &holder);
		a->noticed = oldest;
		a->notice_at = now + NOTICE_NS;
		a->opt->on_wait(a->opt->user, &holder);
	}
	return now + LOOK_NS;
}

static int wait_for(struct attempt *a, const struct ticket_step *steps, unsigned n_steps,
                    int64_t deadline)
{
	struct ticket_wait w = { .fd = a->fd,
		                 .steps = steps,
		                 .n_steps = n_steps,
		                 .deadline = deadline,
		                 .tick = a->number || a->opt->on_wait || a->opt->cancelled ? notice
		                                                                           : NULL,
		                 .tick_at = clock_boot_ns() + FIRST_NOTICE_NS,
		                 .user = a };

	return ticket_wait(&w);
}

static int enter_gate(struct attempt *a)
{
	int64_t deadline = a->opt->deadline ? a->opt->deadline : clock_deadline(GATE_PATIENCE_MS);
	int r = ticket_step_try(a->fd, &gate_lock);

	return r == -EAGAIN ? wait_for(a, &gate_lock, 1, deadline) : r;
}

/* Under the gate. 1 when nobody is live, so that the lock is ours; 0 when we must wait. */
static int draw(struct attempt *a, struct ticket_header *h)
{
	/* Before the header is read: invariant 4. */
	int live = ticket_file_any(a->fd, TICKET_MAX);
	if (live < 0)
		return live;
	int r = ticket_file_header(a->fd, h);
	if (r < 0)
		return r;
	if (r == 0)
		*h = (struct ticket_header){ .magic = TICKET_MAGIC,
			                     .version = TICKET_VERSION,
			                     .next = 1 };

	a->number = h->next++;
	const struct ticket_step own = { .type = F_WRLCK,
		                         .start = TICKET_BASE + (int64_t)a->number,
		                         .len = 1 };
	r = ticket_step_try(a->fd, &own);
	if (r == -EAGAIN) /* invariant 1 is broken: somebody put an old file back */
		return -ATOLL_E_DAMAGED;
	if (r < 0 || live)
		return r;
	r = ticket_step_try(a->fd, &held_lock);
	return r == -EAGAIN ? 0 : r < 0 ? r : 1;
}

/* We are the holder: invariants 4 and 5. Writes H from byte FROM on. */
static int grant(struct attempt *a, struct ticket_header *h, size_t from, struct ticket *ret)
{
	struct statx stx;

	/* Not fstat: once the times have been asked for, the next write must change them. */
	if (statx(a->fd, "", AT_EMPTY_PATH, STATX_NLINK, &stx) < 0)
		return -errno;
	if (stx.stx_nlink == 0)
		return UNLINKED;

	ret->number = a->number;
	ret->epoch = h->epoch + 1;
	ret->owner_died = h->dirty != 0;
	h->epoch = ret->epoch;
	h->dirty = 1;
	h->holder = a->me;
	h->holder.number = a->number;
	h->holder.since_ms = clock_real_ms();
	h->holder.epoch = ret->epoch;
	return ticket_file_write(a->fd, (const char *)h + from, sizeof(*h) - from, (int64_t)from);
}

/* Under the gate: puts our ticket on record and opens the gate. */
static int line_up(struct attempt *a, const struct ticket_header *h)
{
	int r = ticket_file_write(a->fd, h, offsetof(struct ticket_header, epoch), 0);

	if (r < 0)
		return r;
	a->me.number = a->number;
	a->me.since_ms = clock_real_ms();
	ticket_record_write(a->fd, &a->me);
	return ticket_step_try(a->fd, &gate_unlock);
}

static int wait_turn(struct attempt *a)
{
	/* The predecessor first: then a release wakes one waiter, not all. It may have died or
	 * given up while it waited itself, so all older ones after it. */
	const struct ticket_step steps[] = {
		{ .type = F_RDLCK, .start = TICKET_BASE + (int64_t)a->number - 1, .len = 1 },
		{ .type = F_RDLCK, .start = TICKET_BASE, .len = (int64_t)a->number },
		held_lock,
	};

	if (passes(a))
		return 0;
	return a->opt->deadline ? wait_for(a, steps, 3, a->opt->deadline) : -ETIMEDOUT;
}

/* The whole protocol, on one open file. */
static int queue_up(struct attempt *a, struct ticket *ret)
{
	struct ticket_header h;
	int r;

	/* Before the gate, and not in it, since it takes longer than all the rest: who is stopped in there
	 * holds up everybody. */
	ticket_record_init(&a->me, 0, a->opt->command);
	r = enter_gate(a);
	if (r < 0)
		return r;
	r = draw(a, &h);
	if (r < 0)
		return r;
	if (r > 0) {
		r = grant(a, &h, 0, ret);
		return r ? r : ticket_step_try(a->fd, &gate_unlock);
	}

	r = line_up(a, &h);
	if (r < 0)
		return r;
	r = wait_turn(a);
	if (r < 0)
		return r;
	r = ticket_file_header(a->fd, &h);
	if (r <= 0)
		return r < 0 ? r : -ATOLL_E_DAMAGED;
	return grant(a, &h, offsetof(struct ticket_header, epoch), ret);
}

static int give_up(const struct attempt *a)
{
	struct ticket_holder holder = { 0 };

	if (a->opt->ret_holder) {
		(void)ticket_file_holder(a->fd, queue_end(a), &holder);
		*a->opt->ret_holder = holder;
	}
	return a->opt->deadline == 0 ? -ATOLL_E_BUSY : -ATOLL_E_TIMEOUT;
}

static int acquire_once(struct ticket *t, int dir_fd, const char *name,
                        const struct ticket_options *opt)
{
	cleanup_close int fd =
		openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct attempt a = { .fd = fd, .opt = opt };
	struct ticket granted = TICKET_INIT;

	if (fd < 0)
		return -errno;
	int r = check_local(fd);
	if (r < 0)
		return r;
	r = queue_up(&a, &granted);
	if (r == -ETIMEDOUT)
		return give_up(&a);
	if (r != 0)
		return r;
	granted.fd = take_fd(&fd);
	*t = granted;
	return 0;
}

int ticket_acquire(struct ticket *t, int dir_fd, const char *name, const struct ticket_options *opt)
{
	int r;

	if (t->fd != FD_NONE)
		BUG("ticket %llu is held already", (unsigned long long)t->number);
	do
		r = acquire_once(t, dir_fd, name, opt);
	while (r == UNLINKED);
	return r;
}

void ticket_release(struct ticket *t)
{
	const uint32_t clean = 0;

	if (t->fd == FD_NONE)
		return;
	/* Failing here only makes the next holder recover for nothing. */
	(void)ticket_file_write(t->fd, &clean, sizeof(clean),
	                        offsetof(struct ticket_header, dirty));
	ticket_abandon(t);
}

/* Only closes: an explicit unlock would also take the lock from the process that has a
 * ticket_dup(). */
void ticket_abandon(struct ticket *t)
{
	close_fd(&t->fd);
	*t = TICKET_INIT;
}

int ticket_dup(const struct ticket *t)
{
	int fd = fcntl(t->fd, F_DUPFD_CLOEXEC, 3);

	return fd < 0 ? -errno : fd;
}

/* For looking: 1 and *ret_fd, 0 when nobody ever took it. */
static int open_to_look(int dir_fd, const char *name, int *ret_fd)
{
	cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct ticket_header h;
	int r;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = check_local(fd);
	if (r < 0)
		return r;
	r = ticket_file_header(fd, &h);
	if (r > 0)
		*ret_fd = take_fd(&fd);
	return r;
}

int ticket_peek(int dir_fd, const char *name, struct ticket_holder *ret)
{
	cleanup_close int fd = FD_NONE;
	int r = open_to_look(dir_fd, name, &fd);

	if (r <= 0)
		return r;
	r = ticket_file_holder(fd, TICKET_MAX, ret);
	if (r > 0)
		ret->ahead = 0; /* we have no ticket */
	return r;
}

int ticket_queue(int dir_fd, const char *name, ticket_queue_fn fn, void *user)
{
	cleanup_close int fd = FD_NONE;
	int r = open_to_look(dir_fd, name, &fd);

	return r <= 0 ? r : ticket_file_queue(fd, fn, user);
}

static const char *ordinal_suffix(unsigned n)
{
	static const char *const suffix[] = { "th", "st", "nd", "rd" };

	return n % 10 > 3 || (n % 100) / 10 == 1 ? "th" : suffix[n % 10];
}

void ticket_describe(const struct ticket_holder *h, char *out, unsigned size)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	if (h->pid) {
		time_t since = (time_t)(h->since_ms / 1000);
		int64_t age_ms = clock_real_ms() - h->since_ms;
		struct tm tm = { 0 };

		(void)localtime_r(&since, &tm);
		strbuf_printf(&sb, "pid %d \"", (int)h->pid);
		escape_add(&sb, h->command, strnlen(h->command, sizeof(h->command)));
		strbuf_printf(&sb, "\" since %02d:%02d:%02d (%lld s)", tm.tm_hour, tm.tm_min,
		              tm.tm_sec,
		              age_ms > 0 ? (long long)age_ms / 1000 : 0); /* the clock may step */
	} else {
		strbuf_puts(&sb, "an unknown process");
	}
	if (h->ahead)
		strbuf_printf(&sb, "; you are %u%s", h->ahead + 1, ordinal_suffix(h->ahead + 1));
	(void)snprintf(out, size, "%s", strbuf_str(&sb));
}

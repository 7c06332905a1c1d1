/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing a lock file: its header, its records, and who is alive in the queue. */
#include "lock/ticket-impl.h"

#include <atoll.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/process.h"

#define RECORD_TRIES    3
#define RECORD_RETRY_NS INT64_C(100000)

struct telling {
	int fd;
	ticket_queue_fn fn;
	void *user;
	unsigned told;
	uint64_t first; /* told before the others; 0: none */
};

int ticket_file_header(int fd, struct ticket_header *ret)
{
	struct ticket_header h;
	ssize_t n = pread(fd, &h, sizeof(h), 0);

	if (n < 0)
		return -errno;
	if (n == 0)
		return 0;
	if (n != (ssize_t)sizeof(h) || h.magic != TICKET_MAGIC || h.version == 0)
		return -ATOLL_E_DAMAGED;
	if (h.version > TICKET_VERSION)
		return -ATOLL_E_NEWER;
	if (h.next == 0 || h.next >= TICKET_MAX)
		return -ATOLL_E_DAMAGED;
	*ret = h;
	return 1;
}

int ticket_file_write(int fd, const void *data, size_t len, int64_t offset)
{
	ssize_t n = pwrite(fd, data, len, offset);

	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -ENOSPC;
}

/* Read once per process: /proc costs more than the whole lock. A forked child reads anew. */
static uint64_t own_start_time(pid_t pid)
{
	static _Atomic uint64_t start_time;
	static _Atomic pid_t start_pid;

	if (atomic_load(&start_pid) != pid) {
		uint64_t now = 0;

		(void)process_start_time(0, &now);
		atomic_store(&start_time, now);
		atomic_store(&start_pid, pid);
	}
	return atomic_load(&start_time);
}

void ticket_record_init(struct ticket_record *rec, uint64_t number, const char *command)
{
	pid_t pid = getpid();

	*rec = (struct ticket_record){ .number = number,
		                       .start_time = own_start_time(pid),
		                       .since_ms = clock_real_ms(),
		                       .pid = pid };
	if (command)
		memcpy(rec->command, command, strnlen(command, sizeof(rec->command) - 1));
}

static int64_t record_offset(uint64_t number)
{
	return TICKET_RECORDS_AT +
	       (int64_t)(number % TICKET_RECORDS * sizeof(struct ticket_record));
}

void ticket_record_write(int fd, const struct ticket_record *rec)
{
	(void)ticket_file_write(fd, rec, sizeof(*rec), record_offset(rec->number));
}

/* Any live ticket in [lo, hi). Only write locks stop a read lock, and only a ticket's own byte
 * is write-locked. */
static int find_live(int fd, uint64_t lo, uint64_t hi, uint64_t *ret)
{
	struct flock fl = { .l_type = F_RDLCK,
		            .l_whence = SEEK_SET,
		            .l_start = TICKET_BASE + (int64_t)lo,
		            .l_len = (int64_t)(hi - lo) };

	if (lo >= hi)
		return 0;
	if (fcntl(fd, F_OFD_GETLK, &fl) < 0)
		return -errno;
	if (fl.l_type == F_UNLCK)
		return 0;
	*ret = (uint64_t)(fl.l_start - TICKET_BASE);
	return 1;
}

int ticket_file_any(int fd, uint64_t number)
{
	uint64_t found;

	return find_live(fd, 0, number, &found);
}

int ticket_file_oldest(int fd, uint64_t number, uint64_t *ret)
{
	uint64_t hi = number, found = 0;
	int r;

	/* The kernel names any conflicting lock, not the lowest: walk down. */
	while ((r = find_live(fd, 0, hi, &found)) > 0)
		hi = found;
	if (r < 0)
		return r;
	if (hi == number)
		return 0;
	*ret = hi;
	return 1;
}

static bool is_live(int fd, uint64_t number)
{
	uint64_t found;

	return find_live(fd, number, number + 1, &found) > 0;
}

/* 1 and *ret when somebody was granted the lock and has not let go of it. */
static int find_granted(int fd, uint64_t number, uint64_t *ret)
{
	struct ticket_header h;
	int r = ticket_file_header(fd, &h);

	if (r <= 0)
		return r;
	if (!h.dirty || h.holder.number >= number || !is_live(fd, h.holder.number))
		return 0;
	*ret = h.holder.number;
	return 1;
}

int ticket_file_first(int fd, uint64_t number, uint64_t *ret)
{
	int r = find_granted(fd, number, ret);

	return r > 0 ? r : ticket_file_oldest(fd, number, ret);
}

/* The kernel tends to name the oldest first, so mostly the loop goes round, not the recursion. */
static unsigned count_live(int fd, uint64_t lo, uint64_t hi, unsigned limit)
{
	unsigned n = 0;
	uint64_t found = 0;

	while (n < limit && find_live(fd, lo, hi, &found) > 0) {
		n += 1 + count_live(fd, lo, found, limit - n - 1);
		lo = found + 1;
	}
	return n;
}

static void holder_of(const struct ticket_record *rec, struct ticket_holder *ret)
{
	*ret = (struct ticket_holder){ .pid = rec->pid,
		                       .start_time = rec->start_time,
		                       .since_ms = rec->since_ms,
		                       .epoch = rec->epoch };
	memcpy(ret->command, rec->command, strnlen(rec->command, sizeof(ret->command) - 1));
}

static bool read_record(int fd, uint64_t number, struct ticket_record *ret)
{
	struct ticket_header h;

	if (ticket_file_header(fd, &h) > 0 && h.holder.number == number) {
		*ret = h.holder;
		return true;
	}
	return pread(fd, ret, sizeof(*ret), record_offset(number)) == (ssize_t)sizeof(*ret) &&
	       ret->number == number;
}

int ticket_file_holder(int fd, uint64_t number, struct ticket_holder *ret)
{
	struct ticket_record rec;
	uint64_t oldest = 0;
	int r = 0;

	/* A ticket locks its byte an instant before it writes its record. */
	for (unsigned tries = 0; tries < RECORD_TRIES; tries++) {
		r = ticket_file_first(fd, number, &oldest);
		if (r <= 0)
			return r;
		if (read_record(fd, oldest, &rec))
			break;
		rec = (struct ticket_record){ 0 };
		clock_sleep_ns(RECORD_RETRY_NS);
	}
	holder_of(&rec, ret);
	ret->ahead = count_live(fd, 0, number, TICKET_RECORDS);
	return 1;
}

/* In [lo, hi): the kernel names any of them, so both sides of it. */
static bool all_stopped(int fd, uint64_t lo, uint64_t hi)
{
	struct ticket_record rec;
	uint64_t found = 0;
	int r;

	while ((r = find_live(fd, lo, hi, &found)) > 0) {
		if (!read_record(fd, found, &rec) || !process_is_stopped(rec.pid, rec.start_time) ||
		    !all_stopped(fd, lo, found))
			return false;
		lo = found + 1;
	}
	return r == 0;
}

bool ticket_file_all_stopped(int fd, uint64_t number)
{
	uint64_t granted;

	return find_granted(fd, number, &granted) == 0 && all_stopped(fd, 0, number);
}

static int tell_one(struct telling *t, uint64_t number)
{
	struct ticket_record rec = { 0 };
	struct ticket_holder who;

	if (!read_record(t->fd, number, &rec))
		rec = (struct ticket_record){ 0 };
	holder_of(&rec, &who);
	who.ahead = t->told++;
	return t->fn(t->user, &who);
}

/* In order: those below the one the kernel names first, then it, then those above. */
static int tell_live(struct telling *t, uint64_t lo, uint64_t hi)
{
	uint64_t found = 0;
	int r;

	while ((r = find_live(t->fd, lo, hi, &found)) > 0 && t->told < TICKET_RECORDS) {
		r = tell_live(t, lo, found);
		if (r < 0)
			return r;
		r = found == t->first ? 0 : tell_one(t, found);
		if (r < 0)
			return r;
		lo = found + 1;
	}
	return r < 0 ? r : 0;
}

int ticket_file_queue(int fd, ticket_queue_fn fn, void *user)
{
	struct telling t = { .fd = fd, .fn = fn, .user = user };
	int r = find_granted(fd, TICKET_MAX, &t.first);

	if (r > 0)
		r = tell_one(&t, t.first);
	if (r >= 0)
		r = tell_live(&t, 0, TICKET_MAX);

	return r < 0 ? r : (int)t.told;
}

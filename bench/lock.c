/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lock costs, beside flock(2), in one run and interleaved:
 *
 *   bench-lock DIR ROUNDS   four numbers, medians in microseconds: taken and let go of by one who is
 *                           alone (ticket, flock; open and close included), and from letting go to
 *                           being granted, among 8 who wait (ticket, flock)
 */
#include "lock/ticket.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAITERS 8
#define BATCH   50

struct lock {
	struct ticket ticket;
	int fd;
};

static int dir_fd;

static void take_ticket(struct lock *l)
{
	const struct ticket_options opt = { .command = "bench", .deadline = CLOCK_NEVER };

	l->ticket = TICKET_INIT;
	if (ticket_acquire(&l->ticket, dir_fd, "ticket", &opt) < 0)
		exit(1);
}

static void drop_ticket(struct lock *l)
{
	ticket_release(&l->ticket);
}

static void take_flock(struct lock *l)
{
	l->fd = openat(dir_fd, "flock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (l->fd < 0 || flock(l->fd, LOCK_EX) < 0)
		exit(1);
}

static void drop_flock(struct lock *l)
{
	(void)close(l->fd);
}

static const struct kind {
	void (*take)(struct lock *l);
	void (*drop)(struct lock *l);
} kinds[] = { { take_ticket, drop_ticket }, { take_flock, drop_flock } };
#define KINDS 2

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	return n ? v[n / 2] : 0;
}

static double alone(const struct kind *k)
{
	int64_t begin = clock_boot_ns();
	struct lock l;

	for (int i = 0; i < BATCH; i++) {
		k->take(&l);
		k->drop(&l);
	}
	return (double)(clock_boot_ns() - begin) / BATCH / 1e3;
}

struct shared {
	_Atomic int64_t dropped;
	atomic_size_t n;
	size_t max;
	double us[];
};

static void pass_on(const struct kind *k, struct shared *s)
{
	struct lock l;

	for (;;) {
		k->take(&l);
		int64_t now = clock_boot_ns(), before = atomic_load(&s->dropped);
		size_t i = atomic_fetch_add(&s->n, 1);

		if (i < s->max && before)
			s->us[i] = (double)(now - before) / 1e3;
		atomic_store(&s->dropped, clock_boot_ns());
		k->drop(&l);
		if (i >= s->max)
			_exit(0);
	}
}

static double handover(const struct kind *k, size_t max)
{
	size_t size = sizeof(struct shared) + max * sizeof(double);
	struct shared *s =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double result;

	if (s == MAP_FAILED)
		exit(1);
	s->max = max;
	for (int i = 0; i < WAITERS; i++)
		if (fork() == 0)
			pass_on(k, s);
	while (wait(NULL) > 0)
		;
	result = median(s->us, max);
	(void)munmap(s, size);
	return result;
}

int main(int argc, char **argv)
{
	size_t rounds = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	double *v[KINDS];

	dir_fd = argc == 3 ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : FD_NONE;
	if (dir_fd < 0 || rounds == 0)
		return 2;
	for (int k = 0; k < KINDS; k++) {
		v[k] = calloc(rounds, sizeof(double));
		if (!v[k])
			return 1;
	}
	for (size_t i = 0; i < rounds; i++)
		for (int k = 0; k < KINDS; k++)
			v[k][i] = alone(&kinds[k]);
	for (int k = 0; k < KINDS; k++)
		(void)printf("%.2f ", median(v[k], rounds));
	(void)fflush(stdout);
	for (int k = 0; k < KINDS; k++)
		(void)printf("%.2f ", handover(&kinds[k], rounds * 10));
	(void)putchar('\n');
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Floors to measure against, in the same run and the same language:
 *
 *   bench-floor spawn COUNT PROGRAM [ARG...]   median microseconds of vfork, exec, wait
 *   bench-floor run PROGRAM [ARG...]           one run: microseconds, KiB resident at most, 512-byte
 *                                              blocks written, microseconds of CPU; its status is
 *                                              ours
 *   bench-floor fsync DIR ROUNDS               median microseconds of a new file of 4 KiB, fsynced
 *   bench-floor durable DIR FILES ROUNDS       median microseconds of replacing FILES files the
 *                                              bare durable way: write beside, fdatasync, rename,
 *                                              then one fsync of the directory
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void print_median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	printf("%.1f\n", v[n / 2]);
}

static int spawn_floor(size_t count, char **argv)
{
	double *v = calloc(count, sizeof(*v));
	posix_spawn_file_actions_t quiet;

	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
	for (size_t i = 0; v && i < count; i++) {
		double t = now_us();
		int status;
		pid_t pid;

		if (posix_spawn(&pid, argv[0], &quiet, NULL, argv, environ) != 0 ||
		    waitpid(pid, &status, 0) != pid || status != 0)
			return 1;
		v[i] = now_us() - t;
	}
	if (!v)
		return 1;
	print_median(v, count);
	return 0;
}

static double timeval_us(const struct timeval *tv)
{
	return (double)tv->tv_sec * 1e6 + (double)tv->tv_usec;
}

/* From a small process, since a child's largest resident size begins with its parent's. */
static int run_once(char **argv)
{
	posix_spawn_file_actions_t quiet;
	double t = now_us();
	struct rusage use;
	int status;
	pid_t pid;

	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
	if (posix_spawn(&pid, argv[0], &quiet, NULL, argv, environ) != 0 ||
	    wait4(pid, &status, 0, &use) != pid)
		return 1;
	printf("%.1f %ld %ld %.0f\n", now_us() - t, use.ru_maxrss, use.ru_oublock,
	       timeval_us(&use.ru_utime) + timeval_us(&use.ru_stime));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int replace(int dir, int k)
{
	char name[32], tmp[32], data[4096];
	int fd;

	memset(data, 'x', sizeof(data));
	snprintf(name, sizeof(name), "f%d", k);
	snprintf(tmp, sizeof(tmp), "f%d.tmp", k);
	fd = openat(dir, tmp, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, data, sizeof(data)) != (ssize_t)sizeof(data) || fdatasync(fd) < 0)
		return -1;
	close(fd);
	return renameat(dir, tmp, dir, name);
}

static int durable_floor(const char *path, int files, size_t rounds)
{
	double *v = calloc(rounds, sizeof(*v));
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 || !v)
		return 1;
	for (size_t i = 0; i < rounds; i++) {
		double t = now_us();

		for (int k = 0; k < files; k++)
			if (replace(dir, k) < 0)
				return 1;
		if (fsync(dir) < 0)
			return 1;
		v[i] = now_us() - t;
	}
	print_median(v, rounds);
	return 0;
}

static int new_file(int dir)
{
	static const char data[4096] = "x";
	int fd = openat(dir, "new", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, data, sizeof(data)) != (ssize_t)sizeof(data) || fsync(fd) < 0)
		return -1;
	return close(fd);
}

static int fsync_floor(const char *path, size_t rounds)
{
	double *v = calloc(rounds, sizeof(*v));
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 || !v)
		return 1;
	for (size_t i = 0; i < rounds; i++) {
		double t = now_us();

		if (new_file(dir) < 0)
			return 1;
		v[i] = now_us() - t;
		if (unlinkat(dir, "new", 0) < 0)
			return 1;
	}
	print_median(v, rounds);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc >= 4 && strcmp(argv[1], "spawn") == 0)
		return spawn_floor((size_t)atol(argv[2]), argv + 3);
	if (argc >= 3 && strcmp(argv[1], "run") == 0)
		return run_once(argv + 2);
	if (argc == 5 && strcmp(argv[1], "durable") == 0)
		return durable_floor(argv[2], atoi(argv[3]), (size_t)atol(argv[4]));
	if (argc == 4 && strcmp(argv[1], "fsync") == 0)
		return fsync_floor(argv[2], (size_t)atol(argv[3]));
	fprintf(stderr, "usage: bench-floor spawn COUNT PROGRAM [ARG...] | run PROGRAM [ARG...] | "
	                "durable DIR FILES ROUNDS | fsync DIR ROUNDS\n");
	return 2;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Where in the program a call comes from. */
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK_WORDS 4096
#define INNERMOST   2

/* Of what is under test; what it runs has places of no interest. */
static const char *const programs[] = { "atoll", "scenario" };

static struct {
	pid_t pid;
	char path[PATH_MAX];
	uint64_t base, start, end; /* code of the program, from START to END */
	uint64_t loader, loader_end;
} seen;

static FILE *open_proc(pid_t pid, const char *name)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return fopen(path, "re");
}

static bool is_of_interest(const char *path)
{
	const char *slash = strrchr(path, '/');

	for (size_t i = 0; slash && i < sizeof(programs) / sizeof(programs[0]); i++)
		if (strcmp(slash + 1, programs[i]) == 0)
			return true;
	return false;
}

/* Finds its code, unless it is what was looked at last. */
static bool look_at(pid_t pid)
{
	char link[64], path[PATH_MAX], line[PATH_MAX + 128], flags[5];
	unsigned long long start, end;
	ssize_t n;
	FILE *maps;

	(void)snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return false;
	path[n] = '\0';
	if (!is_of_interest(path))
		return false;
	if (seen.pid == pid && strcmp(seen.path, path) == 0)
		return true;
	maps = open_proc(pid, "maps");
	if (!maps)
		return false;
	seen.pid = 0;
	seen.base = 0;
	seen.loader = seen.loader_end = 0;
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%llx-%llx %4s", &start, &end, flags) != 3)
			continue;
		if (strstr(line, "/ld-linux") && strcmp(flags, "r-xp") == 0) {
			seen.loader = start;
			seen.loader_end = end;
		}
		if (!strstr(line, path))
			continue;
		if (!seen.base)
			seen.base = start;
		if (strcmp(flags, "r-xp") != 0)
			continue;
		seen.start = start;
		seen.end = end;
		seen.pid = pid;
		(void)strcpy(seen.path, path);
	}
	(void)fclose(maps);
	return seen.pid == pid;
}

static uint64_t stack_of(pid_t pid)
{
	FILE *call = open_proc(pid, "syscall");
	unsigned long long sp = 0;

	if (!call)
		return 0;
	if (fscanf(call, "%*s %*s %*s %*s %*s %*s %*s %llx", &sp) != 1)
		sp = 0;
	(void)fclose(call);
	return sp;
}

static void mix(uint64_t *hash, uint64_t word)
{
	*hash = (*hash ^ word) * 1099511628211U;
}

uint64_t place_of(pid_t pid, int nr, uint64_t ip)
{
	static uint64_t words[STACK_WORDS];
	uint64_t hash = 14695981039346656037U, sp;
	char path[64];
	int fd, found = 0;
	ssize_t n;

	if (!look_at(pid) || (ip >= seen.loader && ip < seen.loader_end) || !(sp = stack_of(pid)))
		return 0;
	(void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = pread(fd, words, sizeof(words), (off_t)sp);
	(void)close(fd);
	mix(&hash, (uint64_t)nr);
	for (ssize_t i = 0; i < n / (ssize_t)sizeof(words[0]) && found < INNERMOST; i++) {
		if (words[i] < seen.start || words[i] >= seen.end)
			continue;
		mix(&hash, words[i] - seen.base);
		found++;
	}
	return found == INNERMOST ? hash : 0;
}

int places_open(struct places *p, const char *path)
{
	off_t size;

	p->fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	size = p->fd < 0 ? -1 : lseek(p->fd, 0, SEEK_END);
	if (size < 0)
		return -errno;
	p->n = (size_t)size / sizeof(p->known[0]);
	p->known = calloc(p->n + 1, sizeof(p->known[0]));
	if (!p->known)
		return -ENOMEM;
	return pread(p->fd, p->known, (size_t)size, 0) == size ? 0 : -EIO;
}

bool places_know(const struct places *p, uint64_t place)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->known[i] == place)
			return true;
	return false;
}

int places_add(struct places *p, uint64_t place)
{
	return write(p->fd, &place, sizeof(place)) == (ssize_t)sizeof(place) ? 0 : -EIO;
}

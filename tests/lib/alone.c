/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command that can tell whether another one is alive: alone NAME MICROSECONDS [MIB]. It takes a name
 * that the kernel gives to one process at a time and takes back when the last that has it is gone, and
 * leaves children behind that have it, too, and so much memory each that it takes them a while to
 * die. Whoever does not get the name says so.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CHILDREN 2

static int take_name(const char *name)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	/* After a NUL: not a file. */
	(void)snprintf(addr.sun_path + 1, sizeof(addr.sun_path) - 1, "%s", name);
	return fd < 0 ? -1
	              : bind(fd, (const struct sockaddr *)&addr,
	                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
	                                 strlen(name)));
}

/* In small pages: each has to be given back. */
static void grow(size_t size)
{
	void *p = size == 0 ? MAP_FAILED
	                    : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                           -1, 0);

	if (p == MAP_FAILED)
		return;
	(void)madvise(p, size, MADV_NOHUGEPAGE);
	memset(p, 1, size);
}

int main(int argc, char **argv)
{
	size_t size = argc == 4 ? strtoul(argv[3], NULL, 10) << 20 : 0;

	if (argc != 3 && argc != 4)
		return 2;
	if (take_name(argv[1]) < 0) {
		(void)printf("%s\n", errno == EADDRINUSE ? "not alone" : strerror(errno));
		(void)fflush(stdout);
		return 3;
	}
	for (int i = 0; i < CHILDREN; i++) {
		if (fork() == 0) {
			(void)setsid();
			grow(size);
			(void)sleep(1000);
			_exit(0);
		}
	}
	if (size > 0) {
		(void)printf("big\n");
		(void)fflush(stdout);
	}
	(void)usleep((useconds_t)strtoul(argv[2], NULL, 10));
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What the targets share: the check that ends a run, and inputs that must be files. */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/remove.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void must(bool what)
{
	if (!what)
		abort();
}

/* A file in memory that holds DATA, to be read from its beginning. */
static inline int fuzz_file(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	must(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

static char fuzz_dir_path[64];

static inline void fuzz_dir_remove(void)
{
	(void)remove_tree(fuzz_dir_path);
}

/* A directory of this process's own, in memory where that is to be had. */
static inline const char *fuzz_dir(void)
{
	char *path = fuzz_dir_path;

	if (*path == '\0') {
		(void)snprintf(path, sizeof(fuzz_dir_path), "%s/atoll-fuzz.XXXXXX",
		               access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
		must(mkdtemp(path) != NULL && atexit(fuzz_dir_remove) == 0);
	}
	return path;
}

/* Puts DATA there, as file NAME. */
static inline void fuzz_put(const char *name, const uint8_t *data, size_t size)
{
	char path[128];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", fuzz_dir(), name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	(void)close(fd);
}

#endif

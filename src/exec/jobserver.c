/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/jobserver.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/mem.h"

/* What stands behind the last option of that kind, up to the next blank; NULL: there is none. As old makes
 * call it, too. */
static char *find_auth(const char *flags)
{
	static const char *const options[] = { "--jobserver-auth=", "--jobserver-fds=" };
	const char *last = NULL;

	for (size_t i = 0; flags && i < sizeof(options) / sizeof(options[0]); i++) {
		const char *at = flags;

		while ((at = strstr(at, options[i]))) {
			at += strlen(options[i]);
			last = !last || at > last ? at : last;
		}
	}
	return last ? xstrndup(last, strcspn(last, " \t")) : NULL;
}

static bool is_inherited_end(int fd, int mode)
{
	int inherited = fcntl(fd, F_GETFD);
	int flags = fcntl(fd, F_GETFL);
	struct stat st;

	if (fd <= STDERR_FILENO || inherited < 0 || inherited & FD_CLOEXEC || flags < 0)
		return false;
	if ((flags & O_ACCMODE) != mode && (flags & O_ACCMODE) != O_RDWR)
		return false;
	return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

bool jobserver_pipe(const char *flags, int ret_fds[2])
{
	cleanup_free char *auth = find_auth(flags);
	int fds[2], end = 0;

	if (!auth || sscanf(auth, "%d,%d%n", &fds[0], &fds[1], &end) != 2 || auth[end] != '\0')
		return false;
	if (!is_inherited_end(fds[0], O_RDONLY) || !is_inherited_end(fds[1], O_WRONLY) ||
	    fds[0] == fds[1])
		return false;
	memcpy(ret_fds, fds, sizeof(fds));
	return true;
}

char *jobserver_fifo(const char *flags)
{
	static const char prefix[] = "fifo:";
	cleanup_free char *auth = find_auth(flags);
	struct stat st;
	const char *path;

	if (!auth || strncmp(auth, prefix, strlen(prefix)) != 0)
		return NULL;
	path = auth + strlen(prefix);
	if (*path != '/' || lstat(path, &st) < 0 || !S_ISFIFO(st.st_mode))
		return NULL;
	return xstrdup(path);
}

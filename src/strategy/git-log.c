/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who moved a ref, by the reflogs. A command that packs refs takes along what another process moved before,
 * and one that goes on after that is looked at too late: by then the other process may have moved the ref again.
 */
#include "strategy/git.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define LOG_MAX (64u << 20)

/* PATH below `.git`. Caller frees. */
static int read_log(int git_fd, const char *path, char **ret)
{
	cleanup_close int fd = FD_NONE;
	size_t len;
	int r = resolve_file(git_fd, path, &fd);

	return r < 0 ? r : fs_read_all(fd, LOG_MAX, ret, &len);
}

/* A line is "OLD NEW NAME <MAIL> TIME ZONE\tMESSAGE". */
static bool has_value(const char *log, const char *value)
{
	size_t len = strlen(value);

	for (; *log; log += strcspn(log, "\n"), log += *log == '\n')
		if (strnlen(log, 2 * len + 2) == 2 * len + 2 && log[len] == ' ' &&
		    strncmp(log + len + 1, value, len) == 0)
			return true;
	return false;
}

/* The last line of LOG is one of OTHER's. Without its message: git rewrites one that is empty. */
static bool ends_as(char *log, const char *other)
{
	size_t len = strlen(log);
	char *line;

	if (len == 0 || log[len - 1] != '\n')
		return false;
	log[len - 1] = '\0';
	line = strrchr(log, '\n');
	line = line ? line + 1 : log;
	len = strcspn(line, "\t");
	line[len] = '\0';
	for (const char *at = other; (at = strstr(at, line)); at++)
		if ((at == other || at[-1] == '\n') && (at[len] == '\t' || at[len] == '\n'))
			return true;
	return false;
}

bool git_log_moved_outside(const struct git_state *st, const struct git_view *v, const char *ref,
                           const char *value)
{
	cleanup_free char *path = xasprintf("logs/%s", ref);
	cleanup_free char *mine = NULL, *theirs = NULL;
	cleanup_close int fd = FD_NONE;
	int r;

	if (resolve_file(v->upper_fd, ref, &fd) >= 0 || read_log(st->dir_fd, path, &theirs) < 0 ||
	    !has_value(theirs, value))
		return false;
	r = read_log(v->upper_fd, path, &mine);
	return r == -ENOENT || (r >= 0 && ends_as(mine, theirs));
}

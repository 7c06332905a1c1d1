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
static const char *next_line(const char *line)
{
	line += strcspn(line, "\n");
	return line + (*line == '\n');
}

static bool moves_to(const char *line, const char *value)
{
	size_t len = strlen(value);

	return len && strnlen(line, 2 * len + 2) == 2 * len + 2 && line[len] == ' ' &&
	       strncmp(line + len + 1, value, len) == 0;
}

/* It was moved to VALUE after it had been BASE. A log that begins later does not have BASE. */
static bool has_moved(const char *log, const char *base, const char *value)
{
	const char *at = log;

	while (*at && !moves_to(at, base))
		at = next_line(at);
	if (!*at)
		at = log;
	while (*at && !moves_to(at, value))
		at = next_line(at);
	return *at;
}

/* Without its message: git rewrites one that is empty. */
static bool is_same_line(const char *a, const char *b)
{
	size_t len = strcspn(a, "\t\n");

	return strcspn(b, "\t\n") == len && strncmp(a, b, len) == 0;
}

/* All lines of LOG are OTHER's, in that order. One alone may look like another
 * of the same second. */
static bool is_part_of(const char *log, const char *other)
{
	if (!*log)
		return false;
	for (; *log && *other; other = next_line(other))
		if (is_same_line(log, other))
			log = next_line(log);
	return !*log;
}

bool git_log_moved_outside(const struct git_state *st, const struct git_view *v, const char *ref,
                           const char *base, const char *value)
{
	cleanup_free char *path = xasprintf("logs/%s", ref);
	cleanup_free char *mine = NULL, *theirs = NULL;
	cleanup_close int fd = FD_NONE;
	int r;

	if (resolve_file(v->upper_fd, ref, &fd) >= 0 || read_log(st->dir_fd, path, &theirs) < 0 ||
	    !has_moved(theirs, base, value))
		return false;
	r = read_log(v->upper_fd, path, &mine);
	return r == -ENOENT || (r >= 0 && is_part_of(mine, theirs));
}

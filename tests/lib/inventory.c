/* SPDX-License-Identifier: Apache-2.0 */
/* What a test leaves behind: mounts, processes, descriptors, loop devices, areas, files. */
#include "lib/inventory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/atest.h"

#define DEPTH 64 /* directories open at once while walking */

int inventory_patience_ms = 60000;

struct inventory {
	size_t fds;
	glob_t outside; /* areas in the directories above DIR */
};

/* ---- areas above the scratch directory: other tests may have some as well ---- */

static void list_outside(const char *dir, glob_t *ret)
{
	char path[PATH_MAX];
	char pattern[PATH_MAX + 32];
	int flags = GLOB_NOSORT | GLOB_PERIOD;
	char *slash;

	*ret = (glob_t){ 0 };
	(void)snprintf(path, sizeof(path), "%s", dir);
	while ((slash = strrchr(path, '/')) != NULL) {
		*slash = '\0';
		(void)snprintf(pattern, sizeof(pattern), "%s/.atoll-%u/[0-9a-f]*", path,
		               (unsigned)geteuid());
		(void)glob(pattern, flags, NULL, ret);
		flags |= GLOB_APPEND;
	}
}

static bool listed(const glob_t *g, const char *path)
{
	for (size_t i = 0; i < g->gl_pathc; i++)
		if (strcmp(g->gl_pathv[i], path) == 0)
			return true;
	return false;
}

static int new_outside(const struct inventory *inv, const char *dir, bool tell)
{
	glob_t now;
	int n = 0;

	list_outside(dir, &now);
	for (size_t i = 0; i < now.gl_pathc; i++) {
		if (listed(&inv->outside, now.gl_pathv[i]))
			continue;
		n++;
		if (tell)
			fprintf(stderr, "left behind: area %s\n", now.gl_pathv[i]);
	}
	globfree(&now);
	return n;
}

struct inventory *inventory_take(const char *dir)
{
	struct inventory *inv = calloc(1, sizeof(*inv));

	if (!inv)
		abort();
	list_outside(dir, &inv->outside);
	inv->fds = count_fds();
	return inv;
}

void inventory_free(struct inventory *inv)
{
	if (inv)
		globfree(&inv->outside);
	free(inv);
}

/* ---- walks ---- */

static int found; /* by the walk under way: nftw has no room for it */

static int lift_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)type;
	(void)ftw;
	if (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode))
		set_immutable(path, false);
	return 0;
}

void inventory_lift(const char *dir)
{
	if (geteuid() == 0)
		(void)nftw(dir, lift_one, DEPTH, FTW_PHYS);
}

static int area_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	if (strncmp(path + ftw->base, ".atoll-", 7) != 0)
		return 0;
	fprintf(stderr, "left behind: %s\n", path);
	found++;
	return 0;
}

int inventory_areas(const struct inventory *inv, const char *dir, const char *home)
{
	char plans[PATH_MAX + 8];
	int64_t until = now_ms() + inventory_patience_ms;
	size_t n;

	found = 0;
	(void)nftw(dir, area_one, DEPTH, FTW_PHYS);
	(void)snprintf(plans, sizeof(plans), "%s/plans", home);
	n = count_entries(plans);
	if (n > 0 && n != SIZE_MAX) {
		fprintf(stderr, "left behind: %zu entries in %s\n", n, plans);
		found++;
	}
	while (new_outside(inv, dir, false) > 0 && now_ms() < until)
		sleep_ms(20);
	return found + new_outside(inv, dir, true);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (remove(path) == 0 || errno == ENOENT)
		return 0;
	fprintf(stderr, "left behind: %s: %s\n", path, strerror(errno));
	found += type != FTW_DP;
	return 0;
}

static int open_up(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)ftw;
	if ((type == FTW_D || type == FTW_DNR) && (st->st_mode & 0700) != 0700)
		(void)chmod(path, 0700);
	return 0;
}

int inventory_remove(const char *dir)
{
	found = 0;
	/* Twice: what was locked is walked the second time. */
	(void)nftw(dir, open_up, DEPTH, FTW_PHYS | FTW_MOUNT);
	(void)nftw(dir, open_up, DEPTH, FTW_PHYS | FTW_MOUNT);
	(void)nftw(dir, remove_one, DEPTH, FTW_PHYS | FTW_MOUNT | FTW_DEPTH);
	return found + (access(dir, F_OK) == 0);
}

/* ---- mounts, loop devices, processes, descriptors ---- */

int inventory_unmount(const char *path)
{
	int64_t until = now_ms() + inventory_patience_ms;
	int r;

	while ((r = umount2(path, 0)) < 0 && errno == EBUSY && now_ms() < until)
		sleep_ms(5);
	if (r == 0)
		return 0;
	fprintf(stderr, "left behind: mount %s is busy: %s\n", path, strerror(errno));
	(void)umount2(path, MNT_DETACH);
	return 1;
}

/* Mounts below DIR that are nobody's: named, and taken away. */
static int mounts_left(const char *dir)
{
	FILE *in = fopen("/proc/self/mountinfo", "re");
	size_t len = strlen(dir), cap = 0;
	char *line = NULL;
	char point[PATH_MAX];
	int n = 0;

	while (in && getline(&line, &cap, in) > 0) {
		if (sscanf(line, "%*d %*d %*s %*s %4095s", point) != 1 ||
		    strncmp(point, dir, len) != 0)
			continue;
		fprintf(stderr, "left behind: mount %s\n", point);
		(void)umount2(point, MNT_DETACH);
		n++;
	}
	free(line);
	if (in)
		(void)fclose(in);
	return n;
}

static int lines_with(const char *file, const char *what, const char *text)
{
	FILE *in = fopen(file, "re");
	char *line = NULL;
	size_t cap = 0;
	int n = 0;

	while (in && getline(&line, &cap, in) > 0) {
		if (!strstr(line, text))
			continue;
		fprintf(stderr, "left behind: %s: %s", what, line);
		n++;
	}
	free(line);
	if (in)
		(void)fclose(in);
	return n;
}

static int loops_left(const char *dir)
{
	glob_t g = { 0 };
	int n = 0;

	(void)glob("/sys/block/loop*/loop/backing_file", 0, NULL, &g);
	for (size_t i = 0; i < g.gl_pathc; i++)
		n += lines_with(g.gl_pathv[i], "loop device on", dir);
	globfree(&g);
	return n;
}

/* What makes work durable in the background may take its time; true when nobody is left. */
static bool all_ended(void)
{
	int64_t until = now_ms() + inventory_patience_ms;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) >= 0 && now_ms() < until)
		if (pid == 0)
			sleep_ms(5);
	return pid < 0;
}

/* Ends them: the next test begins clean. */
static int processes_left(void)
{
	char path[64];
	FILE *in;
	int pid, n = 0, status;

	if (all_ended())
		return 0;
	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	in = fopen(path, "re");
	while (in && fscanf(in, "%d", &pid) == 1) {
		fprintf(stderr, "left behind: process %d\n", pid);
		(void)kill(pid, SIGKILL);
		n++;
	}
	if (in)
		(void)fclose(in);
	while (n > 0 && waitpid(-1, &status, 0) > 0)
		;
	return n;
}

static int fds_left(const struct inventory *inv)
{
	char path[64], target[PATH_MAX];
	size_t n = count_fds();

	if (n <= inv->fds)
		return 0;
	for (int fd = 3; fd < 1024; fd++) {
		ssize_t len;

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		len = readlink(path, target, sizeof(target) - 1);
		if (len > 0)
			fprintf(stderr, "left behind: descriptor %d %.*s\n", fd, (int)len, target);
	}
	return (int)(n - inv->fds);
}

int inventory_compare(const struct inventory *inv, const char *dir)
{
	return processes_left() + fds_left(inv) + mounts_left(dir) + loops_left(dir);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Free space while a command runs. */
#include "plan/disk-guard.h"

#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "exec/exec.h"
#include "fs/mount.h"
#include "util/cleanup.h"

#define AUTO_MOST   (UINT64_C(64) << 20)
#define AUTO_PART   100 /* a hundredth of a small filesystem */
#define FAR         4   /* times the limit: nothing to fear for a while */
#define LOOK_FAR_MS 500
#define LOOK_MS     50
#define KIB         1024u
#define MIB         (UINT64_C(1) << 20)

static bool find(const struct disk_guard *g, uint64_t dev)
{
	for (size_t i = 0; i < g->n; i++)
		if (g->v[i].dev == dev)
			return true;
	return false;
}

static uint64_t limit_of(struct atoll *a, const struct statvfs *st)
{
	uint64_t part = (uint64_t)st->f_blocks * st->f_frsize / AUTO_PART;
	int64_t set;

	pthread_mutex_lock(&a->mutex);
	set = a->min_free;
	pthread_mutex_unlock(&a->mutex);
	if (set >= 0)
		return (uint64_t)set;
	return part < AUTO_MOST ? part : AUTO_MOST;
}

static void guard(struct disk_guard *g, struct atoll *a, const char *path)
{
	cleanup_close int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct statvfs vfs;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || find(g, st.st_dev))
		return;
	/* No blocks: it is not of the kind that fills. */
	if (fstatvfs(fd, &vfs) < 0 || vfs.f_blocks == 0 || limit_of(a, &vfs) == 0)
		return;
	g->v[g->n++] = (struct guarded){ .path = path,
		                         .fd = take_fd(&fd),
		                         .dev = st.st_dev,
		                         .min_free = limit_of(a, &vfs) };
}

void disk_guard_open(struct disk_guard *g, const struct plan_op *op)
{
	guard(g, op->a, op->a->home);
	for (size_t i = 0; i < op->boxes.n; i++)
		guard(g, op->a, op->boxes.v[i].work);
}

void disk_guard_close(struct disk_guard *g)
{
	for (size_t i = 0; i < g->n; i++)
		close_fd(&g->v[i].fd);
	g->n = 0;
}

int disk_guard_look(void *ctx)
{
	struct disk_guard *g = ctx;
	int next_ms = LOOK_FAR_MS;

	for (size_t i = 0; i < g->n; i++) {
		struct statvfs st;
		uint64_t free_bytes;

		if (fstatvfs(g->v[i].fd, &st) < 0)
			continue;
		free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
		if (free_bytes < g->v[i].min_free) {
			g->low = &g->v[i];
			g->free_bytes = free_bytes;
			return free_bytes < g->v[i].min_free / 2 ? EXEC_END_NOW : EXEC_END;
		}
		if (free_bytes / FAR < g->v[i].min_free)
			next_ms = LOOK_MS;
	}
	return next_ms;
}

int disk_guard_fail(const struct disk_guard *g, const char *what_happened, struct error *err)
{
	struct mount_info mi;
	const char *name = mount_info(g->low->fd, &mi) < 0 ? "filesystem" : mi.name;
	bool small = g->low->min_free < MIB;
	uint64_t unit = small ? KIB : MIB;

	(void)error_set(err, -ENOSPC,
	                "only %" PRIu64 ".%" PRIu64 " %s are free on the %s of '%s', less than "
	                "%" PRIu64 " %s (exec.min-free); %s",
	                g->free_bytes / unit, g->free_bytes % unit * 10 / unit,
	                small ? "KiB" : "MiB", name, g->low->path, g->low->min_free / unit,
	                small ? "KiB" : "MiB", what_happened);
	error_cause(err, "watch the free space of", g->low->path, ENOSPC, NULL);
	error_hint(err, "make room there: atoll list, atoll rm, atoll clean; or lower the limit: "
	                "atoll config set exec.min-free BYTES");
	return -ENOSPC;
}

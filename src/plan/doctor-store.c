/* SPDX-License-Identifier: Apache-2.0 */
/* The store: who may touch it, what it holds, how much room is left. */
#include "plan/doctor-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fs/mount.h"
#include "fs/stat.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define FREE_BYTES_LITTLE (UINT64_C(64) << 20)
#define FREE_PART_LITTLE  100
#define FOR_OTHERS        077

static void examine_plans(struct doctor *d)
{
	cleanup_free struct plan_row *rows = NULL;
	cleanup_error struct error err = ERROR_INIT;
	size_t n = 0, waiting = 0;
	int r = plan_rows(d->a, &rows, &n, &err);

	if (r < 0) {
		doctor_say(d, BAD("plans", r, err.hint), "%s", err.msg);
		return;
	}
	for (size_t i = 0; i < n; i++)
		waiting += rows[i].attempts > 0 && rows[i].batch != 0;
	if (waiting > 0)
		doctor_say(d, WARN("plans", "atoll recover"),
		           "%zu of %zu could not be recovered so far", waiting, n);
	else
		doctor_say(d, GOOD("plans"), "%zu", n);
}

static void examine_space(struct doctor *d)
{
	struct mount_info mi;
	struct statvfs st;
	uint64_t little;

	if (mount_info(d->a->home_fd, &mi) < 0 || fstatvfs(d->a->home_fd, &st) < 0)
		return;
	little = (uint64_t)st.f_blocks * st.f_frsize / FREE_PART_LITTLE;
	if (little > FREE_BYTES_LITTLE)
		little = FREE_BYTES_LITTLE;
	if (st.f_blocks && mi.free_bytes < little)
		doctor_say(d,
		           WARN("space", "make room there: atoll list, atoll rm, atoll clean; or "
		                         "move the store: ATOLL_HOME"),
		           "only %llu KiB are free on the store's filesystem (%s)",
		           (unsigned long long)(mi.free_bytes >> 10), mi.name);
	else
		doctor_say(d, GOOD("space"), "%llu MiB are free for the store",
		           (unsigned long long)(mi.free_bytes >> 20));
	if (mi.read_only)
		doctor_say(d,
		           BAD("store", -EROFS,
		               "as root: mount -o remount,rw on its mount; or move the store: "
		               "ATOLL_HOME"),
		           "%s lies on a read-only mount (%s): plans can be looked at, not used",
		           d->a->home, mi.name);
	else
		doctor_say(d, GOOD("store"), "%s on %s", d->a->home, mi.name);
}

/* The directory itself was checked when it was opened; here is what lies in it. */
static void examine_modes(struct doctor *d)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	cleanup_free char *fix = xasprintf("chmod -R go-rwx %s", d->a->home);
	bool any = false;

	if (dirlist_read(d->a->home_fd, &list) < 0)
		return;
	for (size_t i = 0; i < list.n; i++) {
		struct fs_stat st;

		if (fs_stat_at(d->a->home_fd, list.v[i].name, 0, &st) < 0)
			continue;
		if (st.uid != geteuid())
			doctor_say(d, BAD("modes", -ATOLL_E_DENIED, "give it back to its owner"),
			           "%s/%s belongs to user %u", d->a->home, list.v[i].name, st.uid);
		else if (!S_ISLNK(st.mode) && (st.mode & FOR_OTHERS))
			doctor_say(d, WARN("modes", fix), "%s/%s is open to others (mode %04o)",
			           d->a->home, list.v[i].name, st.mode & 07777);
		else
			continue;
		any = true;
	}
	if (!any)
		doctor_say(d, GOOD("modes"), "the store is yours alone");
}

static int count_path(void *user, const char *plan_id, const char *path)
{
	size_t *n = user;

	(void)plan_id;
	(void)path;
	(*n)++;
	return 0;
}

static void examine_strays(struct doctor *d)
{
	size_t n = 0;

	if (cleanup_scan(d->a, count_path, &n, NULL) < 0)
		return;
	if (n > 0)
		doctor_say(d, WARN("left over", "atoll clean"),
		           "%zu %s of programs that died, or of no plan", n,
		           n == 1 ? "directory" : "directories");
	else
		doctor_say(d, GOOD("left over"), "nothing");
}

void doctor_store(struct doctor *d)
{
	cleanup_error struct error err = ERROR_INIT;
	int r = store_open(NULL, &d->a, &err);

	if (r < 0) {
		doctor_say(d, BAD("store", r, err.hint), "%s", err.msg);
		return;
	}
	examine_space(d);
	examine_modes(d);
	r = registry_check(d->a->reg, &err);
	if (r < 0)
		doctor_say(
			d,
			BAD("registry", r,
		            "leave it as it is; restore atoll.db, atoll.db-wal together from a backup"),
			"%s", err.msg);
	else
		doctor_say(d, GOOD("registry"), "sound");
	examine_plans(d);
	examine_strays(d);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The examinations, one function each. */
#include "plan/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "exec/exec.h"
#include "fs/atomic.h"
#include "fs/mount.h"
#include "fs/resolve.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#define SQLITE_SOUND       3051003 /* older ones can lose pages when a checkpoint meets a writer */
#define SQLITE_SOUND_NAME  "3.51.3"
#define FREE_BYTES_LITTLE  (UINT64_C(64) << 20)
#define NAMESPACES_SETTING "/proc/sys/user/max_user_namespaces"

struct doctor {
	doctor_fn fn;
	void *user;
	struct atoll *a; /* NULL when the store cannot be opened */
};

static void say(struct doctor *d, const struct doctor_finding *how, const char *fmt, ...)
	__attribute__((__format__(__printf__, 3, 4)));

static void say(struct doctor *d, const struct doctor_finding *how, const char *fmt, ...)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	struct doctor_finding finding = *how;
	va_list ap;

	va_start(ap, fmt);
	strbuf_vprintf(&sb, fmt, ap);
	va_end(ap);
	finding.text = strbuf_str(&sb);
	d->fn(d->user, &finding);
}

#define GOOD(what) (&(struct doctor_finding){ .level = DOCTOR_OK, .topic = (what) })
#define WARN(what, remedy) \
	(&(struct doctor_finding){ .level = DOCTOR_WARNING, .topic = (what), .fix = (remedy) })
#define BAD(what, why, remedy)                          \
	(&(struct doctor_finding){ .level = DOCTOR_BAD, \
	                           .topic = (what),     \
	                           .code = (why),       \
	                           .fix = (remedy) })

/* ---- the host ---- */

static bool kernel_has_openat2(void)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS };
	long fd = syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));

	if (fd >= 0)
		(void)close((int)fd);
	return fd >= 0;
}

static bool kernel_has_pidfd(void)
{
	long fd = syscall(SYS_pidfd_open, getpid(), 0);

	if (fd >= 0)
		(void)close((int)fd);
	return fd >= 0;
}

static void examine_kernel(struct doctor *d)
{
	struct utsname un;

	if (uname(&un) < 0)
		(void)strcpy(un.release, "unknown");
	if (!kernel_has_openat2())
		say(d, BAD("kernel", -ATOLL_E_UNSUPPORTED, "install Linux 5.6 or newer"),
		    "%s has no openat2, or a filter forbids it", un.release);
	else if (!kernel_has_pidfd())
		say(d, BAD("kernel", -ATOLL_E_UNSUPPORTED, "install Linux 5.3 or newer"),
		    "%s has no pidfd_open, or a filter forbids it", un.release);
	else
		say(d, GOOD("kernel"), "%s", un.release);
}

static void examine_sqlite(struct doctor *d)
{
	if (sqlite3_libversion_number() < SQLITE_SOUND)
		say(d,
		    WARN("sqlite", "use SQLite " SQLITE_SOUND_NAME
		                   " or newer; let nothing but atoll open atoll.db"),
		    "%s has a fault when a checkpoint meets a writer; the store lock keeps them "
		    "apart",
		    sqlite3_libversion());
	else
		say(d, GOOD("sqlite"), "%s", sqlite3_libversion());
}

static void examine_helper(struct doctor *d)
{
	static const char *const argv[] = { "true", NULL };
	const struct exec_options opt = { .argv = argv, .cwd = "/", .lock_fd = FD_NONE };
	cleanup_error struct error err = ERROR_INIT;
	struct exec_usage usage = { 0 };
	int r = exec_run(&opt, &usage, &err);

	if (r < 0)
		say(d, BAD("helper", r, err.hint), "%s", err.msg);
	else
		say(d, GOOD("helper"), "atoll-helper runs commands");
}

/* For the strategies that mount, when used by others than root. */
static void examine_namespaces(struct doctor *d)
{
	cleanup_close int fd = open(NAMESPACES_SETTING, O_RDONLY | O_CLOEXEC);
	cleanup_free char *text = NULL;
	size_t len = 0;

	if (fd < 0 || fs_read_all(fd, 64, &text, &len) < 0)
		say(d, WARN("user namespaces", NULL), "the kernel has none");
	else if (strtol(text, NULL, 10) == 0)
		say(d, WARN("user namespaces", "as root: sysctl -w user.max_user_namespaces=15000"),
		    "switched off");
	else
		say(d, GOOD("user namespaces"), "allowed");
}

/* ---- the store ---- */

static void examine_plans(struct doctor *d)
{
	cleanup_free struct plan_row *rows = NULL;
	cleanup_error struct error err = ERROR_INIT;
	size_t n = 0, waiting = 0;
	int r = plan_rows(d->a, &rows, &n, &err);

	if (r < 0) {
		say(d, BAD("plans", r, err.hint), "%s", err.msg);
		return;
	}
	for (size_t i = 0; i < n; i++)
		waiting += rows[i].attempts > 0 && rows[i].batch != 0;
	if (waiting > 0)
		say(d, WARN("plans", "atoll recover"), "%zu of %zu could not be recovered so far",
		    waiting, n);
	else
		say(d, GOOD("plans"), "%zu", n);
}

static void examine_space(struct doctor *d)
{
	struct mount_info mi;

	if (mount_info(d->a->home_fd, &mi) < 0)
		return;
	if (mi.free_bytes < FREE_BYTES_LITTLE)
		say(d, WARN("store", "make room there, or move it: ATOLL_HOME"),
		    "only %llu MiB are free on its filesystem",
		    (unsigned long long)(mi.free_bytes >> 20));
	else
		say(d, GOOD("store"), "%s on %s", d->a->home, mi.name);
}

static void examine_store(struct doctor *d)
{
	cleanup_error struct error err = ERROR_INIT;
	int r = store_open(NULL, &d->a, &err);

	if (r < 0) {
		say(d, BAD("store", r, err.hint), "%s", err.msg);
		return;
	}
	examine_space(d);
	r = registry_check(d->a->reg, &err);
	if (r < 0)
		say(d,
		    BAD("registry", r,
		        "leave it as it is; restore atoll.db, atoll.db-wal together from a backup"),
		    "%s", err.msg);
	else
		say(d, GOOD("registry"), "sound");
	examine_plans(d);
}

/* ---- the directory ---- */

/* What `copy` wants of a filesystem; NULL when it has all of it. */
static const char *copy_lacks(const struct mount_info *mi, int fd, const char **ret_fix)
{
	if (mi->kernel) {
		*ret_fix = "name a directory with files of yours";
		return "it is the kernel's: there are no files to commit";
	}
	if (mi->network) {
		*ret_fix = "put the directory on a local disk";
		return "a network or FUSE filesystem cannot promise what a commit needs";
	}
	if (mi->read_only) {
		*ret_fix = "as root: mount -o remount,rw on its mount";
		return "it is mounted read-only, so nothing could be committed";
	}
	if (faccessat(fd, ".", W_OK, AT_EACCESS) < 0) {
		*ret_fix = "become its owner, or let him run atoll";
		return "you may not write to it, so nothing could be committed";
	}
	return NULL;
}

static void examine_area(struct doctor *d, const char *path, int fd)
{
	cleanup_error struct error err = ERROR_INIT;
	cleanup_area struct area ar = AREA_INIT;
	const struct area_request rq = { .root = path,
		                         .root_fd = fd,
		                         .sandbox_id = "0000000000000000-1" };
	int r;

	if (!d->a)
		return;
	if (store_overlaps(d->a, path)) {
		say(d, BAD("strategy copy", -ATOLL_E_UNSUPPORTED, "set ATOLL_HOME elsewhere"),
		    "not possible: the store lies inside, around or at it");
		return;
	}
	r = area_choose(d->a, &rq, &ar, &err);
	if (r < 0)
		say(d, BAD("strategy copy", r, err.hint), "not possible: %s", err.msg);
	else if (ar.in_root)
		say(d, WARN("strategy copy", "set ATOLL_HOME to a directory on that mount"),
		    "possible; what a plan keeps has to lie inside the directory, in %s", ar.path);
	else
		say(d, GOOD("strategy copy"), "possible; what a plan keeps would lie in %s",
		    ar.path);
}

/* Tried in the store: where an area would lie on another mount there is nothing yet. */
static void examine_overlay(struct doctor *d, const char *path)
{
	cleanup_error struct error err = ERROR_INIT;
	cleanup_free char *place = NULL;
	cleanup_free char *why = NULL;
	enum exec_tier tier = EXEC_TIER_NONE;
	int r;

	if (!d->a || store_overlaps(d->a, path))
		return;
	place = xasprintf("%s/plans", d->a->home);
	r = exec_probe(path, place, &tier, &why, &err);
	if (r == 0 && tier == EXEC_TIER_OVERLAY)
		say(d, GOOD("strategy overlay"), "possible");
	else
		say(d,
		    WARN("strategy overlay", tier == EXEC_TIER_NONE
		                                     ? "allow user namespaces, or run as root; "
		                                       "copy is used meanwhile"
		                                     : "none needed: copy is used instead"),
		    "not possible: %s", r < 0 ? err.msg : why);
}

static void examine_directory(struct doctor *d, const char *given)
{
	cleanup_free char *path = NULL;
	cleanup_close int fd = FD_NONE;
	const char *lack, *fix = NULL;
	struct mount_info mi;
	int r = resolve_canonical(given, &path);

	if (r == 0) {
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = fd < 0 ? -errno : mount_info(fd, &mi);
	}
	if (r < 0) {
		say(d, BAD("directory", r, "name a directory that you can read"), "'%s': %s", given,
		    strerror(r > -4096 ? -r : EINVAL));
		return;
	}
	say(d, GOOD("directory"), "%s on %s%s", path, mi.name, mi.read_only ? ", read-only" : "");
	lack = copy_lacks(&mi, fd, &fix);
	if (lack) {
		say(d, BAD("strategy copy", -ATOLL_E_UNSUPPORTED, fix), "not possible: %s", lack);
	} else {
		examine_overlay(d, path);
		examine_area(d, path, fd);
	}
	say(d, GOOD("strategy none"), "possible, without protection");
}

void doctor_examine(const char *path, doctor_fn fn, void *user)
{
	struct doctor d = { .fn = fn, .user = user };

	examine_kernel(&d);
	examine_sqlite(&d);
	examine_helper(&d);
	examine_namespaces(&d);
	examine_store(&d);
	examine_directory(&d, path);
	store_close(d.a);
}

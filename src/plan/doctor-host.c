/* SPDX-License-Identifier: Apache-2.0 */
/* The host: kernel, namespaces, overlay, helper, the programs and libraries around us, settings. */
#include "plan/doctor-impl.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "exec/exec.h"
#include "fs/atomic.h"
#include "plan/settings.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define SQLITE_SOUND  3051003 /* older ones can lose pages when a checkpoint meets a writer */
#define PROC_FILE_MAX 4096

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
		doctor_say(d, BAD("kernel", -ATOLL_E_UNSUPPORTED, "install Linux 5.6 or newer"),
		           "%s has no openat2, or a filter forbids it", un.release);
	else if (!kernel_has_pidfd())
		doctor_say(d, BAD("kernel", -ATOLL_E_UNSUPPORTED, "install Linux 5.3 or newer"),
		           "%s has no pidfd_open, or a filter forbids it", un.release);
	else
		doctor_say(d, GOOD("kernel"), "%s", un.release);
}

static void examine_sqlite(struct doctor *d)
{
	bool sound = sqlite3_libversion_number() >= SQLITE_SOUND;

	doctor_say(d, GOOD("sqlite"), "%s%s", sqlite3_libversion(),
	           sound ? "" : ", with the store lock between checkpoints and writers");
}

static void examine_helper(struct doctor *d)
{
	static const char *const argv[] = { "true", NULL };
	const struct exec_options opt = { .argv = argv, .cwd = "/", .lock_fd = FD_NONE };
	cleanup_error struct error err = ERROR_INIT;
	struct exec_usage usage = { 0 };
	int r = exec_run(&opt, &usage, &err);

	if (r < 0)
		doctor_say(d, BAD("helper", r, err.hint), "%s", err.msg);
	else
		doctor_say(d, GOOD("helper"), "atoll-helper runs commands");
}

/* The contents of a small file of /proc; NULL: there is none. */
static char *read_small(const char *path)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text = NULL;
	size_t len = 0;

	return fd < 0 || fs_read_all(fd, PROC_FILE_MAX, &text, &len) < 0 ? NULL : text;
}

/* Which of the ways to mount the kernel knows: a call that is there complains about its arguments. */
static void examine_mounts(struct doctor *d)
{
	bool has_new = !(syscall(SYS_fsopen, NULL, 0) < 0 && errno == ENOSYS);
	bool has_attr = !(syscall(SYS_mount_setattr, -1, NULL, 0, NULL, 0) < 0 && errno == ENOSYS);

	doctor_say(d, GOOD("mounts"), "%s, %s", has_new ? "fsopen and move_mount" : "mount(2) only",
	           has_attr ? "mount_setattr" : "no mount_setattr (Linux 5.12)");
}

/* Switches that take user namespaces from ordinary users, and how each is turned. */
static const struct {
	const char *path;
	long off;
	const char *text;
	const char *fix;
} switches[] = {
	{ "/proc/sys/user/max_user_namespaces", 0, "switched off (user.max_user_namespaces is 0)",
	  "as root: sysctl -w user.max_user_namespaces=15000" },
	{ "/proc/sys/kernel/unprivileged_userns_clone", 0,
	  "kept from ordinary users (kernel.unprivileged_userns_clone is 0)",
	  "as root: sysctl -w kernel.unprivileged_userns_clone=1" },
	{ "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1,
	  "kept from ordinary users by AppArmor (kernel.apparmor_restrict_unprivileged_userns is 1)",
	  "as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" },
};

/* For the strategies that mount, when used by others than root. */
static void examine_namespaces(struct doctor *d)
{
	bool any = false;

	if (access("/proc/self/ns/user", F_OK) < 0) {
		doctor_say(d, WARN("user namespaces", "use a kernel with CONFIG_USER_NS=y"),
		           "the kernel has none");
		return;
	}
	for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
		cleanup_free char *text = read_small(switches[i].path);

		if (!text || strtol(text, NULL, 10) != switches[i].off)
			continue;
		doctor_say(d, WARN("user namespaces", switches[i].fix), "%s", switches[i].text);
		any = true;
	}
	if (!any)
		doctor_say(d, GOOD("user namespaces"), "allowed");
	else
		doctor_say(d, WARN("isolation", "turn the switch, or accept it: --unfenced"),
		           "no command of an ordinary user is run without them (fence.required)");
}

static void examine_overlay(struct doctor *d)
{
	cleanup_free char *text = read_small("/proc/filesystems");

	if (text && strstr(text, "\toverlay\n"))
		doctor_say(d, GOOD("overlay"), "the kernel has it");
	else
		doctor_say(d, WARN("overlay", "as root: modprobe overlay; copy is used meanwhile"),
		           "the kernel does not have it, or has not loaded it");
}

/* ---- around us ---- */

static char *find_program(const char *name)
{
	cleanup_free char *path = xstrdup(getenv("PATH"));
	char *save = NULL;

	for (char *dir = path ? strtok_r(path, ":", &save) : NULL; dir;
	     dir = strtok_r(NULL, ":", &save)) {
		cleanup_free char *file = xasprintf("%s/%s", dir, name);

		if (access(file, X_OK) == 0)
			return take_ptr(file);
	}
	return NULL;
}

static const char *find_library(void)
{
	static const char *const names[] = { "libgit2.so.1.9", "libgit2.so.1.8", "libgit2.so.1.7",
		                             "libgit2.so.1.6", "libgit2.so.1.5", "libgit2.so" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);

		if (library) {
			(void)dlclose(library);
			return names[i];
		}
	}
	return NULL;
}

/* Nothing of it is needed for directories. */
static void examine_tools(struct doctor *d)
{
	static const struct {
		const char *name;
		const char *without;
		const char *fix;
	} tools[] = {
		{ "git", "repositories are directories like any other",
		  "as root: apt-get install git" },
		{ "psql", "only PostgreSQL needs it",
		  "as root: apt-get install postgresql-client" },
	};
	const char *library = find_library();

	for (size_t i = 0; i < sizeof(tools) / sizeof(tools[0]); i++) {
		cleanup_free char *file = find_program(tools[i].name);

		if (file)
			doctor_say(d, GOOD(tools[i].name), "%s", file);
		else
			doctor_say(d,
			           &(struct doctor_finding){ .level = DOCTOR_OK,
			                                     .topic = tools[i].name,
			                                     .fix = tools[i].fix },
			           "not there; %s", tools[i].without);
	}
	if (library)
		doctor_say(d, GOOD("libgit2"), "%s", library);
	else
		doctor_say(
			d,
			&(struct doctor_finding){ .level = DOCTOR_OK,
		                                  .topic = "libgit2",
		                                  .fix = "as root: apt-get install libgit2-1.5" },
			"not there; changes are shown without their lines");
}

static void examine_settings(struct doctor *d)
{
	cleanup_settings struct settings s = SETTINGS_INIT;
	cleanup_error struct error err = ERROR_INIT;
	int r = settings_load(&s, &err);

	if (r < 0)
		doctor_say(d, BAD("settings", r, err.hint), "%s", err.msg);
	for (size_t i = 0; i < s.remarks.n; i++)
		doctor_say(d, WARN("settings", "chown it to you or root, chmod go-w it"), "%s",
		           s.remarks.v[i]);
	for (size_t i = 0; i < s.unknown.n; i++)
		doctor_say(d, WARN("settings", "atoll config list shows those there are"),
		           "no such setting, so without effect: %s", s.unknown.v[i]);
	if (r == 0 && s.remarks.n == 0 && s.unknown.n == 0)
		doctor_say(d, GOOD("settings"), "in order");
}

void doctor_host(struct doctor *d)
{
	examine_kernel(d);
	examine_mounts(d);
	examine_sqlite(d);
	examine_helper(d);
	examine_namespaces(d);
	examine_overlay(d);
	doctor_fence(d);
	examine_tools(d);
	examine_settings(d);
}

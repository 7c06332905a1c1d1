/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A view of ROOT is built as for a command, and tried. When that fails, a bind is tried, to tell a
 * host without namespaces from a filesystem that cannot hold an upper layer. What the kernel's
 * number does not say is looked up: which switch is off, which filesystem it is.
 */
#include "helper/probe.h"

#include "fs/atomic.h"
#include "fs/mount.h"
#include "fs/remove.h"
#include "fs/walk.h"
#include "helper/failure.h"
#include "helper/mount-fd.h"
#include "helper/run-impl.h"
#include "helper/space.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/random.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_DIGITS 16

struct probe {
	const char *root, *area;
	int area_fd;
	char name[sizeof(".probe-") + NAME_DIGITS]; /* in the area */
	char *dir, *upper, *work;
};

/* ---- inside ---- */

/* Something of the original's is deleted in the view: that leaves a whiteout above it. */
static int try_whiteout(int dir_fd)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	int r = dirlist_read(dir_fd, &list);

	for (size_t i = 0; r == 0 && i < list.n; i++)
		if (list.v[i].type != DT_DIR)
			return fs_unlink_at(dir_fd, list.v[i].name);
	return r;
}

static int try_changes(int dir_fd)
{
	cleanup_close int fd = FD_NONE;
	char from[NAME_DIGITS + 1], to[NAME_DIGITS + 1];
	int r;

	random_hex(from, NAME_DIGITS);
	random_hex(to, NAME_DIGITS);
	r = fs_create_at(dir_fd, from, 0600, &fd);
	if (r == 0)
		r = fs_move(dir_fd, from, dir_fd, to);
	if (r == 0)
		r = fs_unlink_at(dir_fd, to);
	return r < 0 ? r : try_whiteout(dir_fd);
}

static int try_view(const struct request *q, struct failure *f)
{
	const char *target = request_get(q, REQUEST_VIEW_TARGET, 0);
	cleanup_close int fd = open(target, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct mount_info info;
	int r = fd < 0 ? -errno : mount_info(fd, &info);

	/* Deleting is for the view alone, whatever went wrong. */
	if (r == 0 && info.overlay)
		r = try_changes(fd);
	return r < 0 ? failure_set(f, REPLY_VIEW, r, "work in an overlay over '%s'", target) : 0;
}

static int try_nothing(const struct request *q, struct failure *f)
{
	(void)q;
	(void)f;
	return 0;
}

/* ---- outside ---- */

static int add_view(struct request *q, const char *kind, const struct probe *p, bool layers)
{
	const char *const values[] = { kind, p->root, layers ? p->root : p->dir,
		                       layers ? p->upper : "", layers ? p->work : "" };
	int r = 0;

	for (unsigned i = 0; r == 0 && i < sizeof(values) / sizeof(values[0]); i++)
		r = request_add(q, (enum request_field)(REQUEST_VIEW_KIND + i), values[i]);
	return r;
}

static void try_kind(const struct probe *p, bool overlay, struct reply *reply)
{
	struct failure f = FAILURE_NONE;
	struct space space;
	struct run run = { .signal_fd = FD_NONE,
		           .note_fd = FD_NONE,
		           .proc_fd = FD_NONE,
		           .ruleset_fd = FD_NONE,
		           .listener_fd = FD_NONE,
		           .calls = CALLS_NONE,
		           .ahead = { -1, FD_NONE, FD_NONE },
		           .deadline = CLOCK_NEVER };
	cleanup_request struct request *q = request_new();
	int r = add_view(q, overlay ? REQUEST_OVERLAY : REQUEST_BIND, p, overlay);

	run.request = q;
	if (r == 0)
		r = run_take_signals(&run);
	if (r == 0) {
		space_open(&space, &run, overlay ? try_view : try_nothing);
		space_run(&space, reply);
		space_close(&space);
	} else {
		(void)failure_set(&f, REPLY_REQUEST, r, "try what this host allows");
		failure_reply(&f, reply);
	}
	close_fd(&run.signal_fd);
}

/* Only for the words: what failed is known already. */
static void explain(const struct probe *p, struct reply *reply)
{
	cleanup_free char *said = xstrdup(reply->text);
	const char *why = NULL;
	struct mount_info info;

	if (reply->stage == REPLY_NAMESPACE)
		why = space_why_not();
	else if (reply->error == ENODEV)
		why = "the kernel has no overlay filesystem (module overlay)";
	if (why)
		(void)snprintf(reply->text, sizeof(reply->text), "%s", why);
	else if (reply->stage == REPLY_VIEW && mount_info(p->area_fd, &info) == 0 &&
	         (info.overlay || info.network))
		(void)snprintf(reply->text, sizeof(reply->text),
		               "'%.900s' is on %s, which cannot hold the changes of an overlay",
		               p->area, info.name);
	else
		(void)snprintf(reply->text, sizeof(reply->text), "cannot %.900s%s%s", said,
		               reply->flags & REPLY_SAYS_WHY ? "" : ": ",
		               reply->flags & REPLY_SAYS_WHY ? "" : strerror(reply->error));
}

/* In a user namespace files of others cannot be copied up: their owner has no name there. */
static bool is_foreign(const struct probe *p, struct reply *reply)
{
	struct stat st;

	if (geteuid() == 0 || stat(p->root, &st) < 0 ||
	    (st.st_uid == geteuid() && st.st_gid == getegid()))
		return false;
	reply->stage = REPLY_VIEW;
	reply->error = EOVERFLOW;
	(void)snprintf(reply->text, sizeof(reply->text),
	               "'%.900s' belongs to %u:%u, who cannot be mapped in a user namespace",
	               p->root, st.st_uid, st.st_gid);
	return true;
}

static void try_all(const struct probe *p, struct reply *reply)
{
	struct reply bind = { .magic = REQUEST_MAGIC };
	bool foreign = is_foreign(p, reply);

	if (!foreign)
		try_kind(p, true, reply);
	if (reply->stage == REPLY_VIEW) {
		try_kind(p, false, &bind);
		/* Without namespaces it does not matter what the overlay said. */
		if (bind.error != 0) {
			*reply = bind;
			foreign = false;
		}
	}
	/* Of other stages the library tells. */
	if (!foreign && (reply->stage == REPLY_VIEW || reply->stage == REPLY_NAMESPACE))
		explain(p, reply);
}

static int make_dirs(struct probe *p)
{
	cleanup_close int fd = FD_NONE;
	char digits[NAME_DIGITS + 1];
	int r;

	random_hex(digits, NAME_DIGITS);
	(void)snprintf(p->name, sizeof(p->name), ".probe-%s", digits);
	p->dir = xasprintf("%s/%s", p->area, p->name);
	p->upper = xasprintf("%s/upper", p->dir);
	p->work = xasprintf("%s/work", p->dir);
	r = fs_private_dir_at(p->area_fd, p->name, &fd);
	if (r == 0)
		r = fs_mkdir_at(fd, "upper", 0700);
	return r < 0 ? r : fs_mkdir_at(fd, "work", 0700);
}

int probe_run(const char *root, const char *area)
{
	struct reply reply = { .magic = REQUEST_MAGIC };
	struct probe p = { .root = root, .area = area, .area_fd = FD_NONE };
	struct failure f = FAILURE_NONE;
	int r = mount_open_dir(area, &p.area_fd);

	if (r == 0)
		r = make_dirs(&p);
	if (r < 0) {
		(void)failure_set(&f, REPLY_REQUEST, r, "make a directory in '%s'", area);
		failure_reply(&f, &reply);
	} else {
		try_all(&p, &reply);
	}
	if (*p.name)
		(void)remove_tree_at(p.area_fd, p.name);
	r = fs_write_all(REPLY_FD, &reply, sizeof(reply));
	close_fd(&p.area_fd);
	free(p.dir);
	free(p.upper);
	free(p.work);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* One directory, as a resource it could be: what is in the way, and of which strategy. */
#include "plan/doctor-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/exec.h"
#include "fs/acl.h"
#include "fs/mount.h"
#include "fs/resolve.h"
#include "fs/stat.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#define LOOK_ENTRIES 200000 /* of a tree; and no longer than: */
#define LOOK_MS      3000

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
		doctor_say(d,
		           BAD("strategy copy", -ATOLL_E_UNSUPPORTED,
		               "name a directory outside of the store: atoll doctor PATH; or move "
		               "the store: ATOLL_HOME"),
		           "not possible: the store lies inside, around or at it");
		return;
	}
	r = area_choose(d->a, &rq, &ar, &err);
	if (r < 0)
		doctor_say(d, BAD("strategy copy", r, err.hint), "not possible: %s", err.msg);
	else if (ar.in_root)
		doctor_say(d, WARN("strategy copy", "set ATOLL_HOME to a directory on that mount"),
		           "possible; what a plan keeps has to lie inside the directory, in %s",
		           ar.path);
	else
		doctor_say(d, GOOD("strategy copy"), "possible; what a plan keeps would lie in %s",
		           ar.path);
}

/* What would let an overlay be mounted: R and ERR are of the attempt, TIER is what it came to. */
static const char *overlay_fix(int r, enum exec_tier tier, const struct error *err)
{
	if (r < 0)
		return err->hint;
	return tier == EXEC_TIER_NONE
	               ? "allow user namespaces, or run as root; copy is used meanwhile"
	               : "none needed: copy is used instead";
}

static bool is_repository(int fd)
{
	struct fs_stat st;

	return fs_stat_at(fd, ".git", 0, &st) == 0 && S_ISDIR(st.mode);
}

/* Tried in the store: where an area would lie on another mount there is nothing yet. */
static void examine_overlay(struct doctor *d, const char *path, int fd)
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
		doctor_say(d, GOOD("strategy overlay"), "possible");
	else
		doctor_say(d, WARN("strategy overlay", overlay_fix(r, tier, &err)),
		           "not possible: %s", r < 0 ? err.msg : why);
	if (is_repository(fd))
		doctor_say(d, GOOD("repository"), "%s",
		           r == 0 && tier == EXEC_TIER_OVERLAY
		                   ? "strategy git: at its own path, over an overlay"
		                   : "strategy worktree: a private checkout");
}

/* ---- what is in it ---- */

/* Entries that a plan could not change as others, the first of each kind by name. */
enum oddity { ODD_IMMUTABLE = 0, ODD_MOUNT, ODD_OWNER, ODD_ACL, ODD_UNREADABLE, ODD_END_ };

static const struct {
	const char *topic;
	const char *one, *many; /* after their number */
	const char *fix;
} oddities[ODD_END_] = {
	[ODD_IMMUTABLE] = { "immutable",
	                    "entry is immutable or append-only and cannot be committed over",
	                    "entries are immutable or append-only and cannot be committed over",
	                    "as root: chattr -i -a on them, if they are to change" },
	[ODD_MOUNT] = { "mounts below",
	                "mount point below it is shown read-only and not part of a plan",
	                "mount points below it are shown read-only and not part of a plan",
	                "give what is mounted there as a resource of its own, or umount it" },
	[ODD_OWNER] = { "owners",
	                "entry belongs to somebody else: overlay cannot change it for you",
	                "entries belong to somebody else: overlay cannot change them for you",
	                "atoll start --strategy copy, or as root: chown them to you" },
	[ODD_ACL] = { "ACLs",
	              "entry has an ACL that names other users or groups, which your commands can neither read "
	              "nor set",
	              "entries have ACLs that name other users or groups, which your commands can neither read "
	              "nor set",
	              "run the plan as root where commands are to set such ACLs" },
	[ODD_UNREADABLE] = { "unreadable", "entry cannot be read by you and stays out of a copy",
	                     "entries cannot be read by you and stay out of a copy",
	                     "as their owner: chmod u+r (directories: u+rx)" },
};

struct entries {
	uint64_t looked;
	int64_t deadline;
	uint64_t n[ODD_END_];
	char *first[ODD_END_];
};

static void note(struct entries *e, enum oddity which, const char *path)
{
	if (e->n[which]++ == 0)
		e->first[which] = xstrdup(path);
}

static int look_at(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct entries *e = ctx;
	struct fs_stat st;

	(void)type;
	if (e->looked++ >= LOOK_ENTRIES || (e->looked % 256 == 0 && clock_boot_ns() > e->deadline))
		return -EAGAIN;
	if (fs_stat_at(dir_fd, name, 0, &st) < 0)
		return 0;
	if (st.mount_root) {
		note(e, ODD_MOUNT, path);
		return WALK_SKIP;
	}
	if (st.immutable)
		note(e, ODD_IMMUTABLE, path);
	/* An ordinary user's namespace maps nobody but himself. */
	if (geteuid() != 0 && (st.uid != geteuid() || st.gid != getegid()))
		note(e, ODD_OWNER, path);
	if (geteuid() != 0 && !S_ISLNK(st.mode) && acl_names_others(dir_fd, name))
		note(e, ODD_ACL, path);
	if (S_ISDIR(st.mode) || S_ISREG(st.mode)) {
		int how = S_ISDIR(st.mode) ? R_OK | X_OK : R_OK;

		if (faccessat(dir_fd, name, how, AT_EACCESS) < 0) {
			note(e, ODD_UNREADABLE, path);
			return S_ISDIR(st.mode) ? WALK_SKIP : 0;
		}
	}
	return 0;
}

static void examine_entries(struct doctor *d, const char *path, int fd)
{
	struct entries e = { .deadline = clock_deadline(LOOK_MS) };
	int r = walk_tree(fd, "", look_at, NULL, &e);

	for (size_t i = 0; i < ODD_END_; i++) {
		if (e.n[i] > 0)
			doctor_say(d, WARN(oddities[i].topic, oddities[i].fix),
			           "%llu %s, such as %s/%s", (unsigned long long)e.n[i],
			           e.n[i] == 1 ? oddities[i].one : oddities[i].many, path,
			           e.first[i]);
		free(e.first[i]);
	}
	if (r == -EAGAIN)
		doctor_say(d, GOOD("entries"), "the first %llu were looked at",
		           (unsigned long long)e.looked - 1);
	else if (r < 0)
		doctor_say(d, WARN("entries", NULL), "could not be looked at: %s",
		           r > -4096 ? strerror(-r) : "the tree is too big");
	else
		doctor_say(d, GOOD("entries"), "%llu", (unsigned long long)e.looked);
}

void doctor_directory(struct doctor *d, const char *given)
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
		doctor_say(d, BAD("directory", r, "name a directory that you can read"), "'%s': %s",
		           given, strerror(r > -4096 ? -r : EINVAL));
		return;
	}
	doctor_say(d, GOOD("directory"), "%s on %s%s", path, mi.name,
	           mi.read_only ? ", read-only" : "");
	lack = copy_lacks(&mi, fd, &fix);
	if (lack) {
		doctor_say(d, BAD("strategy copy", -ATOLL_E_UNSUPPORTED, fix), "not possible: %s",
		           lack);
	} else {
		examine_overlay(d, path, fd);
		examine_area(d, path, fd);
	}
	examine_entries(d, path, fd);
	doctor_say(d, GOOD("strategy none"), "possible, without protection");
}

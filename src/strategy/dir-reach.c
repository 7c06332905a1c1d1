/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory participant, before the decision: what rename(2) refuses although all is on one mount.
 *
 * On btrfs nothing goes from one subvolume to another; their directories have other device numbers. Where
 * directories give a project id (fs/project.h), what has another does not get in: neither the new
 * entry, nor an original that would be put back.
 */
#include "strategy/dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/mem.h"

/* Is the directory FD beyond reach? CTX says of what. */
typedef bool (*beyond_fn)(int fd, const void *ctx);

/* The directory in which that begins, of those around PATH; "" is the root. */
static char *where_it_begins(const struct dir_batch *b, const char *path, beyond_fn beyond,
                             const void *ctx)
{
	for (const char *end = path; (end = strchr(end, '/')) != NULL; end++) {
		cleanup_free char *dir = xstrndup(path, (size_t)(end - path));
		cleanup_close int fd = FD_NONE;

		if (resolve_dir(b->root_fd, dir, &fd) >= 0 && beyond(fd, ctx))
			return take_ptr(dir);
	}
	return xstrdup("");
}

/* DIR around PATH, or "": it begins with the root. */
static void hint_at(struct atoll_participant *p, const char *dir, const char *path)
{
	if (*dir)
		error_hint(
			&p->err,
			"atoll commit %s --exclude '/%s/**' commits the rest; for a plan over it, it "
			"has to be a resource of its own: --dir '%s/%s'",
			p->plan, dir, p->root, dir);
	else
		error_hint(
			&p->err,
			"atoll commit %s --exclude '/%s' commits the rest; a new plan begins with "
			"what is there now",
			p->plan, path);
}

/* ---- subvolumes ---- */

static bool on_another(int fd, const void *ctx)
{
	const uint64_t *dev = ctx;
	struct fs_stat st;

	return fs_stat_at(fd, "", 0, &st) >= 0 && st.dev != *dev;
}

int dir_reach_subvolume(struct atoll_participant *p, struct dir_batch *b, const char *path,
                        uint64_t root_dev)
{
	cleanup_free char *dir = where_it_begins(b, path, on_another, &root_dev);
	int r = error_set(&p->err, -ATOLL_E_UNSUPPORTED,
	                  "'%s' lies in '%s', a subvolume of its own, into which nothing can be "
	                  "moved from another",
	                  path, dir);

	hint_at(p, dir, path);
	return r;
}

/* ---- projects ---- */

static bool admits(const struct fs_project *dir, const struct fs_project *entry)
{
	return !dir->inherits || dir->id == entry->id;
}

static bool gives_another(int fd, const void *ctx)
{
	const struct fs_project *slots = ctx;
	struct fs_project dir;

	return fs_project_at(fd, "", &dir) >= 0 && dir.inherits && dir.id != slots->id;
}

/* What was made for the plan does not get there. */
static int refuse_new(struct atoll_participant *p, struct dir_batch *b, const struct manifest_op *o)
{
	cleanup_free char *dir = where_it_begins(b, o->path, gives_another, &b->slots_project);
	int r = error_set(&p->err, -ATOLL_E_UNSUPPORTED,
	                  "'%s' cannot be moved to its directory, which takes only what has its "
	                  "project id, %u",
	                  o->path, b->parent_project.id);

	/* The root began to give it later, or it could not be given to the work. */
	if (!*dir)
		error_hint(
			&p->err,
			"chattr -R -p %u '%s' and chattr -R +P '%s' give it to the plan's work, then "
			"atoll commit %s",
			b->parent_project.id, p->area, p->area, p->plan);
	else
		hint_at(p, dir, o->path);
	return r;
}

/* It would get out, and not back. */
static int refuse_old(struct atoll_participant *p, struct dir_batch *b, const struct manifest_op *o)
{
	uint32_t id = b->parent_project.id;
	int r = error_set(&p->err, -ATOLL_E_UNSUPPORTED,
	                  "'%s' has, or may have, another project id than its directory gives, %u: "
	                  "once replaced it could not be put back",
	                  o->path, id);

	error_hint(
		&p->err,
		"atoll commit %s --exclude '/%s' commits the rest; what chattr -p %u was done to "
		"can be changed by a new plan",
		p->plan, o->path, id);
	return r;
}

/* It would not even get out. */
static int refuse_slot(struct atoll_participant *p, struct dir_batch *b,
                       const struct manifest_op *o)
{
	const char *slash = strrchr(o->path, '/');
	cleanup_free char *dir = xstrndup(o->path, slash ? (size_t)(slash - o->path) : 0);
	int r = error_set(&p->err, -ATOLL_E_UNSUPPORTED,
	                  "'%s' cannot be set aside in '%s', which takes only what has its project "
	                  "id, %u",
	                  o->path, p->area, b->slots_project.id);

	hint_at(p, dir, o->path);
	return r;
}

static int project_of_new(struct dir_batch *b, const struct manifest_op *o, size_t k,
                          struct fs_project *ret)
{
	cleanup_close int fd = FD_NONE;
	const char *name;
	char slot[DIR_SLOT_LEN];
	int r;

	dir_slot_name(k, slot);
	if (o->flags & MANIFEST_STAGED)
		return fs_project_at(b->batch_fd, slot, ret);
	r = resolve_parent(b->work_fd, o->path, &fd, &name);
	return r < 0 ? r : fs_project_at(fd, name, ret);
}

/* Neighbours share their parent, so that each is asked once. */
static int ask_dirs(struct dir_batch *b, int parent_fd)
{
	int r = 0;

	if (!b->slots_asked)
		r = fs_project_at(b->batch_fd, "", &b->slots_project);
	b->slots_asked = r >= 0;
	if (r < 0 || b->parent_asked)
		return r;
	r = fs_project_at(parent_fd, "", &b->parent_project);
	if (r == -EBADF) { /* one that may not be listed: it is found out when it is done */
		b->parent_project = (struct fs_project){ 0 };
		r = 0;
	}
	b->parent_asked = r >= 0;
	return r;
}

static int reach_new(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op)
{
	const struct fs_project *slots = &b->slots_project;
	struct fs_project of;
	int r = project_of_new(b, op.o, op.k, &of);

	if (r == -EOPNOTSUPP) /* made there, so it has what is given there */
		of = slots->inherits ? *slots : (struct fs_project){ 0 };
	else if (r < 0)
		return error_sys(&p->err, r, "look in the workspace at", op.o->path);
	if (!admits(&b->parent_project, &of))
		return refuse_new(p, b, op.o);
	return admits(slots, &of) ? 0 : refuse_slot(p, b, op.o);
}

static int reach_old(struct atoll_participant *p, struct dir_batch *b, const struct manifest_op *o,
                     int fd, const char *name)
{
	const struct fs_project *parent = &b->parent_project, *slots = &b->slots_project;
	struct fs_project of;
	int r = fs_project_at(fd, name, &of);

	/* Where the slots admit what the parent does, nothing gets out that does not get back. */
	if (r == -EOPNOTSUPP)
		return !parent->inherits || (slots->inherits && slots->id == parent->id)
		               ? 0
		               : refuse_old(p, b, o);
	if (r < 0)
		return error_sys(&p->err, r, "look at", o->path);
	if (!admits(parent, &of))
		return refuse_old(p, b, o);
	return admits(slots, &of) ? 0 : refuse_slot(p, b, o);
}

int dir_reach_project(struct atoll_participant *p, struct dir_batch *b, struct dir_kth op)
{
	const char *name;
	int fd, r = dir_parent(b, b->root_fd, op.o->path, &fd, &name);

	if (r >= 0)
		r = ask_dirs(b, fd);
	if (r < 0)
		return error_sys(&p->err, r, "look at the directory of", op.o->path);
	if (!b->parent_project.inherits && !b->slots_project.inherits)
		return 0;
	if (op.o->new_stat.mode)
		r = reach_new(p, b, op);
	if (r >= 0 && op.o->old_stat.mode)
		r = reach_old(p, b, op.o, fd, name);
	return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting views. */
#include "plan/plan-view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/atomic.h"
#include "fs/stat.h"
#include "util/cleanup.h"
#include "util/mem.h"

void views_done(struct views *v)
{
	free(v->v);
	strlist_done(&v->all);
	strlist_done(&v->env);
	strlist_done(&v->listen);
	strlist_done(&v->shown);
}

static const char *keep(struct views *v, const char *s)
{
	if (!s)
		return NULL;
	strlist_add(&v->all, s);
	return v->all.v[v->all.n - 1];
}

int views_add(struct views *v, const struct exec_view *view)
{
	int r = grow((void **)&v->v, &v->cap, v->n + 1, sizeof(*v->v));

	if (r < 0)
		return r;
	v->v[v->n++] = (struct exec_view){ .kind = view->kind,
		                           .target = keep(v, view->target),
		                           .source = keep(v, view->source),
		                           .upper = keep(v, view->upper),
		                           .work = keep(v, view->work) };
	return 0;
}

static int add_view(void *user, const struct participant_mount *m)
{
	const struct exec_view view = { .kind = m->upper   ? EXEC_VIEW_OVERLAY
		                                : m->fixed ? EXEC_VIEW_SHOW
		                                           : EXEC_VIEW_BIND,
		                        .target = m->target,
		                        .source = m->source,
		                        .upper = m->upper,
		                        .work = m->work };
	struct views *v = user;

	v->overlay = v->overlay || m->upper;
	return views_add(v, &view);
}

/* Can the one be bound over the other? */
static bool fits(const char *path, const char *root)
{
	struct fs_stat a, b;

	return fs_stat_at(AT_FDCWD, path, 0, &a) == 0 && fs_stat_at(AT_FDCWD, root, 0, &b) == 0 &&
	       S_ISDIR(a.mode) == S_ISDIR(b.mode) && S_ISREG(a.mode) == S_ISREG(b.mode);
}

/* A strategy that only has a path is shown by it at the resource's own, else where it is. */
int views_give(struct atoll_participant *part, void *ctx, struct error *err)
{
	const char *root = atoll_participant_root(part);
	cleanup_free char *path = NULL;
	struct views *v = ctx;
	const struct participant_net net = { v->own_net, (unsigned)v->listen.n };
	int r;

	if (participant_can(part, ATOLL_CAP_MOUNTS)) {
		/* The name of what is no file would lead past the view. */
		strlist_add(&v->shown, *root == '/' ? root : "");
		/* What has no path is nowhere else. */
		v->overlay = v->overlay || !participant_can(part, ATOLL_CAP_PATH);
		r = participant_mounts(part, &net, add_view, v, err);
		for (size_t i = 0; r >= 0 && i < participant_env(part)->n; i++)
			strlist_add(&v->env, participant_env(part)->v[i]);
		for (size_t i = 0; r >= 0 && i < participant_listen(part)->n; i++)
			strlist_add(&v->listen, participant_listen(part)->v[i]);
		return r;
	}
	r = participant_can(part, ATOLL_CAP_PATH) ? participant_path(part, &path, err) : 0;
	if (r < 0)
		return r;
	if (!path) {
		strlist_add(&v->shown, "");
		return 0;
	}
	if (!fits(path, root))
		root = path;
	strlist_add(&v->shown, root);
	return add_view(v, &(struct participant_mount){ .target = root, .source = path });
}

static char *swap(const char *path, const char *from, const char *to)
{
	if (!from || !path_below(path, from))
		return xstrdup(path);
	return xasprintf("%s%s", to, path + strlen(from));
}

char *views_seen(const struct views *v, const char *path)
{
	return swap(path, v->from, v->to);
}

char *views_meant(const struct views *v, const char *seen)
{
	return swap(seen, v->to, v->from);
}

int views_move(struct views *v, const char *from, const char *to)
{
	const struct exec_view own = { .kind = EXEC_VIEW_HIDDEN, .target = from, .source = from };

	v->from = keep(v, from);
	v->to = keep(v, to);
	for (size_t i = 0; i < v->n; i++) {
		cleanup_free char *seen = views_seen(v, v->v[i].target);

		v->v[i].moved = path_below(v->v[i].target, from);
		if (v->v[i].moved)
			v->v[i].target = keep(v, seen);
	}
	for (size_t i = 0; i < v->shown.n; i++) {
		char *seen = views_seen(v, v->shown.v[i]);

		free(v->shown.v[i]);
		v->shown.v[i] = seen;
	}
	return views_add(v, &own);
}

char *views_in_tmp(const char *path)
{
	static const struct {
		const char *path, *name;
	} tmps[] = { { "/tmp", "tmp" }, { "/var/tmp", "var-tmp" } };

	for (size_t i = 0; i < sizeof(tmps) / sizeof(tmps[0]); i++)
		if (path_below(path, tmps[i].path))
			return xasprintf("%s%s", tmps[i].name, path + strlen(tmps[i].path));
	return NULL;
}

int views_tmp(const struct plan_op *op, const char *path, char **ret, struct error *err)
{
	cleanup_close int area_fd = FD_NONE;
	cleanup_free char *name = views_in_tmp(path);
	const char *area = op->boxes.n ? op->boxes.v[0].area : NULL;
	int r;

	if (!area)
		return error_set(err, -ATOLL_E_STATE, "plan '%s' has no resources", op->plan.name);
	area_fd = open(area, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (area_fd < 0)
		return error_sys(err, -errno, "open", area);
	r = fs_mkdir_at(area_fd, name, 01777);
	if (r < 0 && r != -EEXIST)
		return error_sys(err, r, "make a private directory for temporary files in", area);
	*ret = xasprintf("%s/%s", area, name);
	return 0;
}

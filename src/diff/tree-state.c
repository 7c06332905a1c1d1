/* SPDX-License-Identifier: Apache-2.0 */
#include "diff/tree-state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/tree-impl.h"
#include "fs/atomic.h"
#include "fs/overlayfs.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/mem.h"

void tree_found_done(struct tree_found *f)
{
	close_fd(&f->fd);
	free(f->path);
	*f = TREE_FOUND_INIT;
}

static bool is_absent(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -EXDEV;
}

/* Where C, which is at PATH or around it, has the entry at PATH: 1 in the workspace, 0 nowhere. */
static int place_by(const struct change *c, const char *path)
{
	if (c->op == CHANGE_DELETE)
		return 0;
	return strcmp(c->path, path) == 0 || S_ISDIR(c->work.mode);
}

/* 1 in the workspace, 0 nowhere, 2 as in the resource; -errno. At most one change is at PATH or around
 * it, but for changes of attributes. */
static int place(const struct tree_state *s, const char *path, bool *ret_in_part)
{
	*ret_in_part = s->at && s->at->in_part;
	if (s->at && s->at->op != CHANGE_ATTR && path_below(path, s->at->path))
		return place_by(s->at, path);
	*ret_in_part = false;
	for (const char *end = path; s->cs && end; end++) {
		cleanup_change struct change c = CHANGE_INIT;
		cleanup_free char *prefix = NULL;
		int r;

		end = strchrnul(end, '/');
		prefix = xstrndup(path, (size_t)(end - path));
		r = changeset_find(s->cs, prefix, &c);
		if (r < 0)
			return r;
		if (r > 0 && c.op != CHANGE_ATTR) {
			*ret_in_part = c.in_part;
			return place_by(&c, path);
		}
		if (!*end)
			break;
	}
	return 2;
}

static int look(int root_fd, const char *path, struct tree_found *f)
{
	int r;

	f->path = xstrdup(path);
	r = resolve_parent(root_fd, f->path, &f->fd, &f->name);
	if (r >= 0)
		r = fs_stat_at(f->fd, f->name, 0, &f->st);
	if (r >= 0)
		r = !overlay_is_whiteout(&f->st);
	return is_absent(r) ? 0 : r;
}

int tree_state_find(const struct tree_state *s, const char *path, struct tree_found *ret)
{
	cleanup_tree_found struct tree_found f = TREE_FOUND_INIT;
	bool in_part;
	int r = place(s, path, &in_part);

	if (r <= 0)
		return r;
	f.is_changed = r == 1;
	if (f.is_changed && s->others && strlist_has(s->others, path))
		r = look(s->others_fd, path, &f);
	else
		r = look(f.is_changed ? s->work_fd : s->orig_fd, path, &f);
	if (r > 0 && in_part && s->taken && !S_ISDIR(f.st.mode) && !s->taken(s->taken_ctx, path))
		r = 0;
	if (r > 0) {
		*ret = f;
		f = TREE_FOUND_INIT;
	}
	return r;
}

/* The names of DIR below ROOT_FD; none where there is no such directory. */
static int list_side(int root_fd, const char *dir, struct dirlist *ret)
{
	cleanup_close int fd = FD_NONE;
	int r = resolve_dir(root_fd, dir, &fd);

	if (r >= 0)
		r = dirlist_read(fd, ret);
	return is_absent(r) ? 0 : r;
}

int tree_state_find_in(const struct tree_state *s, const char *dir, const char *name,
                       struct tree_found *ret)
{
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	cleanup_free char *path = NULL;
	int r = tree_join(dir, name, &path);

	if (r >= 0)
		r = tree_state_find(s, path, ret);
	if (r != 0 || !s->cs)
		return r;
	r = list_side(s->work_fd, dir, &names);
	for (size_t i = 0; i < names.n && r == 0; i++) {
		cleanup_free char *other = NULL;

		if (strcasecmp(names.v[i].name, name) != 0 || strcmp(names.v[i].name, name) == 0)
			continue;
		r = tree_join(dir, names.v[i].name, &other);
		if (r >= 0)
			r = tree_state_find(s, other, ret);
	}
	return r;
}

int tree_state_list(const struct tree_state *s, const char *dir, tree_found_fn fn, void *ctx)
{
	const int sides[] = { s->orig_fd, s->cs ? s->work_fd : FD_NONE };
	int r = 0;

	for (size_t side = 0; side < sizeof(sides) / sizeof(sides[0]) && r >= 0; side++) {
		cleanup_dirlist struct dirlist names = DIRLIST_INIT;

		if (sides[side] != FD_NONE)
			r = list_side(sides[side], dir, &names);
		for (size_t i = 0; i < names.n && r >= 0; i++) {
			cleanup_tree_found struct tree_found f = TREE_FOUND_INIT;
			cleanup_free char *path = NULL;

			r = tree_join(dir, names.v[i].name, &path);
			if (r >= 0)
				r = tree_state_find(s, path, &f);
			if (r > 0)
				r = fn(ctx, &f);
		}
	}
	return r < 0 ? r : 0;
}

int tree_found_text(const struct tree_found *f, size_t max, char **ret, size_t *ret_len)
{
	cleanup_close int fd = FD_NONE;
	int r;

	if (S_ISLNK(f->st.mode)) {
		r = tree_read_link(f->fd, f->name, ret);
		*ret_len = r < 0 ? 0 : strlen(*ret);
		return r;
	}
	r = S_ISREG(f->st.mode) ? resolve_file(f->fd, f->name, &fd) : -EINVAL;
	if (r >= 0)
		r = fs_read_all(fd, max, ret, ret_len);
	return r == -ATOLL_E_TOO_BIG || r == -EACCES || r == -EPERM ? -EINVAL : r;
}

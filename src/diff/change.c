/* SPDX-License-Identifier: Apache-2.0 */
/* Change sets and the order of paths. */
#include "diff/change.h"

#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool change_is_tree(const struct change *c)
{
	return c->op != CHANGE_ATTR && (S_ISDIR(c->base.mode) || S_ISDIR(c->work.mode));
}

int changeset_add(struct changeset *cs, const struct change *c)
{
	void *v = cs->v;
	int r;

	r = grow(&v, &cs->cap, cs->n + 1, sizeof(*cs->v));
	if (r < 0) {
		free(c->path);
		return r;
	}
	cs->v = v;
	cs->v[cs->n++] = *c;
	return 0;
}

int changeset_add_dir(struct changeset *cs, const struct change_dir *d)
{
	void *dirs = cs->dirs;
	int r;

	r = grow(&dirs, &cs->cap_dirs, cs->n_dirs + 1, sizeof(*cs->dirs));
	if (r < 0) {
		free(d->path);
		return r;
	}
	cs->dirs = dirs;
	cs->dirs[cs->n_dirs++] = *d;
	return 0;
}

int changeset_give_up(struct changeset *cs, const struct change *c)
{
	int r = grow((void **)&cs->theirs, &cs->cap_theirs, cs->n_theirs + 1, sizeof(*cs->theirs));

	if (r < 0)
		return r;
	cs->theirs[cs->n_theirs++] = *c;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return path_compare(((const struct change *)a)->path, ((const struct change *)b)->path);
}

static int by_dir_path(const void *a, const void *b)
{
	return path_compare(((const struct change_dir *)a)->path,
	                    ((const struct change_dir *)b)->path);
}

void changeset_sort(struct changeset *cs)
{
	if (cs->n > 1)
		qsort(cs->v, cs->n, sizeof(*cs->v), by_path);
	if (cs->n_dirs > 1)
		qsort(cs->dirs, cs->n_dirs, sizeof(*cs->dirs), by_dir_path);
}

void changeset_done(struct changeset *cs)
{
	int saved = errno;

	for (size_t i = 0; i < cs->n; i++)
		free(cs->v[i].path);
	for (size_t i = 0; i < cs->n_dirs; i++)
		free(cs->dirs[i].path);
	for (size_t i = 0; i < cs->n_theirs; i++)
		free(cs->theirs[i].path);
	free(cs->theirs);
	free(cs->v);
	free(cs->dirs);
	*cs = CHANGESET_INIT;
	errno = saved;
}

/* A path's end comes first, then the slash: what is below a directory follows it at once. */
static int rank(char c)
{
	if (c == '\0')
		return 0;
	return c == '/' ? 1 : (unsigned char)c + 2;
}

int path_compare(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return rank(*a) - rank(*b);
}

bool path_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (len == 0)
		return true;
	return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

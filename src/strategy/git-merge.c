/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A branch that both sides moved: merged outside any checkout, when both went on from where it was and
 * git finds no conflict. The objects of the merge go to the repository that was put together for the
 * batch, and come in with the others.
 *
 * If the branch is checked out, files that are neither as the plan has them nor as they are now come
 * with it: those are written beside, and take the plan's version's place, provided that nobody has
 * anything there that is not committed.
 */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/mem.h"

#define TREE   "tree"   /* an empty working tree, for git to write its temporary files in */
#define MERGED "merged" /* the files that are on neither side */

void git_merge_done(struct git_merge *m)
{
	free(m->v);
	free(m->now);
	free(m->result);
	*m = GIT_MERGE_INIT;
}

/* Reads objects of both sides. */
static struct git reader(const struct git_view *v)
{
	struct git g = GIT_AT(v->path);

	g.alternates = v->alternates;
	return g;
}

/* 1: A is an ancestor of B, or B itself. */
static int is_ancestor(struct atoll_participant *p, const struct git_view *v, const char *a,
                       const char *b)
{
	const struct git g = reader(v);
	int r = git_ask(p, &g, GIT_ARGS("merge-base", "--is-ancestor", a, b), NULL, NULL);

	return r < 0 ? r : r == 0;
}

/* ---- files beside ---- */

/* A new file PATH below TOP, which is made, too. */
static int create_below(const struct git_view *v, const char *top, const char *path, int *ret_fd)
{
	cleanup_free char *full = xasprintf("%s/%s", top, path);
	int r = 0;

	for (char *slash = strchr(full, '/'); slash && r >= 0; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		r = fs_mkdir_at(v->fd, full, 0700);
		r = r == -EEXIST ? 0 : r;
		*slash = '/';
	}
	return r < 0 ? r : fs_create_at(v->fd, full, 0600, ret_fd);
}

/* Which drivers merge which files is said by files of the branch; git looks for them in the working
 * tree. */
static int write_attributes(struct atoll_participant *p, const struct git_view *v,
                            const char *commit)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	struct git g = reader(v);
	int r = git_do(p, &g, GIT_ARGS("ls-tree", "-r", "-z", commit), NULL, &out);

	for (const char *at = out.buf; r >= 0 && at && at < out.buf + out.len;
	     at += strlen(at) + 1) {
		const char *path = strchr(at, '\t'), *slash;
		cleanup_free char *id = NULL;
		cleanup_close int fd = FD_NONE;

		if (!path || strncmp(at, "100", 3) != 0)
			continue;
		slash = strrchr(++path, '/');
		if (strcmp(slash ? slash + 1 : path, ".gitattributes") != 0)
			continue;
		id = xstrndup(at + 12, strcspn(at + 12, "\t"));
		r = create_below(v, TREE, path, &fd);
		if (r < 0)
			return error_sys(&p->err, r, "write to", p->area);
		g.out_fd = fd;
		r = git_do(p, &g, GIT_ARGS("cat-file", "blob", id), NULL, NULL);
	}
	return r;
}

/* Of the file in its place, but for who may execute it. */
static int copy_mode(const struct atoll_participant *p, const char *path, bool is_program, int fd)
{
	cleanup_close int root_fd = open(p->root, O_PATH | O_DIRECTORY | O_CLOEXEC), at = FD_NONE;
	const char *name;
	struct fs_stat st;
	int r = root_fd < 0 ? -errno : resolve_parent(root_fd, path, &at, &name);

	if (r >= 0)
		r = fs_stat_at(at, name, 0, &st);
	if (r >= 0 && geteuid() == 0)
		r = fs_set_owner(fd, "", st.uid, st.gid);
	if (r < 0)
		return r;
	st.mode &= 0666;
	return fs_set_mode(fd, "", is_program ? st.mode | (st.mode & 0444) >> 2 : st.mode);
}

/* The file as the merge has it, written beside. */
static int write_file(struct atoll_participant *p, const struct git_view *v, const char *path,
                      const char *entry)
{
	cleanup_free char *path_arg = xasprintf("--path=%s", path);
	cleanup_free char *objects = xasprintf("%s/objects", v->path);
	cleanup_close int fd = FD_NONE;
	struct git_state *st;
	struct git g;
	int r = git_state(p, &st);

	if (r >= 0)
		r = create_below(v, MERGED, path, &fd);
	if (r >= 0)
		r = copy_mode(p, path, strncmp(entry, "100755", 6) == 0, fd);
	if (r < 0)
		return error_sys(&p->err, r, "write the merged file", path);
	g = GIT_AT(st->dir);
	g.work_tree = p->root;
	g.objects = objects;
	g.alternates = v->alternates;
	g.out_fd = fd;
	return git_do(p, &g, GIT_ARGS("cat-file", "--filters", path_arg, entry + 7), NULL, NULL);
}

/* ---- merging ---- */

static void note_paths(struct atoll_participant *p, const char *at, const char *end)
{
	for (size_t n = 0; at < end && n < LIMIT_CONFLICTS; at += strlen(at) + 1, n++)
		if (*at)
			atoll_participant_note(
				p, ATOLL_NOTE_CONFLICT, at,
				"cannot be merged with what somebody else committed");
}

/* The tree of the merge. 1: conflicts, which are named. */
static int merge_trees(struct atoll_participant *p, struct git_view *v, const struct git_merge *m,
                       char **ret_tree)
{
	cleanup_free char *tree = xasprintf("%s/" TREE, v->path);
	cleanup_free char *objects = xasprintf("%s/objects", v->path);
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	struct git_state *st;
	struct git g;
	int r = git_state(p, &st);

	if (r < 0)
		return r;
	r = fs_mkdir_at(v->fd, TREE, 0700);
	if (r < 0 && r != -EEXIST)
		return error_sys(&p->err, r, "make a directory in", p->area);
	r = write_attributes(p, v, m->now);
	if (r < 0)
		return r;
	/* With the repository's own settings: how files are merged is one of them. */
	g = GIT_AT(st->dir);
	g.work_tree = tree;
	g.objects = objects;
	g.alternates = v->alternates;
	r = git_ask(p, &g,
	            GIT_ARGS("merge-tree", "--write-tree", "--no-messages", "--name-only", "-z",
	                     m->now, m->v),
	            NULL, &out);
	if (r == 1)
		note_paths(p, out.buf + strlen(out.buf) + 1, out.buf + out.len);
	if (r == 0)
		*ret_tree = xstrdup(strbuf_str(&out));
	return r;
}

/* Who committed in the plan signs the merge. */
static int identity(struct atoll_participant *p, const struct git_view *v, const char *commit,
                    struct strlist *env)
{
	static const char *const names[] = { "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL" };
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	const struct git g = reader(v);
	int r = git_do(p, &g, GIT_ARGS("log", "-1", "--format=%cn%n%ce", commit), NULL, &out);
	char *at = out.buf;

	for (size_t i = 0; i < 2 && r >= 0; i++) {
		size_t len = strcspn(at, "\n");
		cleanup_free char *author = xasprintf("%s=%.*s", names[i], (int)len, at);
		cleanup_free char *committer = xasprintf("GIT_COMMITTER%s", author + 10);

		strlist_add(env, author);
		strlist_add(env, committer);
		at += len + (at[len] == '\n');
	}
	return r;
}

static int commit_merge(struct atoll_participant *p, struct git_view *v, const char *ref,
                        const char *tree, struct git_merge *m)
{
	cleanup_strlist struct strlist env = STRLIST_INIT;
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	cleanup_free char *message =
		xasprintf("Merge plan '%s' into %s", p->plan,
	                  strncmp(ref, "refs/heads/", 11) == 0 ? ref + 11 : ref);
	const char *vars[5] = { NULL };
	struct git g = reader(v);
	int r = identity(p, v, m->v, &env);

	for (size_t i = 0; i < env.n && i < 4; i++)
		vars[i] = env.v[i];
	g.env = vars;
	if (r >= 0)
		r = git_do(p, &g,
		           GIT_ARGS("commit-tree", tree, "-p", m->now, "-p", m->v, "-m", message),
		           NULL, &out);
	if (r >= 0)
		m->result = xstrndup(out.buf, strcspn(strbuf_str(&out), "\n"));
	return r;
}

int git_merge_ref(struct atoll_participant *p, struct git_view *v, const char *ref,
                  const char *base, struct git_merge *m)
{
	cleanup_free char *tree = NULL;
	int r = 1;

	if (!*base || !*m->v || !*m->now || strncmp(ref, "refs/heads/", 11) != 0 || v->only_look)
		return 1;
	r = git_view_objects(p, v);
	/* Rewritten on either side: nothing to go on from. */
	if (r >= 0)
		r = is_ancestor(p, v, base, m->v);
	if (r == 1)
		r = is_ancestor(p, v, base, m->now);
	if (r != 1)
		return r < 0 ? r : 1;
	r = is_ancestor(p, v, m->v, m->now);
	if (r == 1)
		m->result = xstrdup(m->now);
	if (r == 0)
		r = is_ancestor(p, v, m->now, m->v);
	if (r == 1 && !m->result)
		m->result = xstrdup(m->v);
	if (r != 0)
		return r < 0 ? r : 0;
	if (p->batch.flags & ATOLL_FF_ONLY)
		return 1;
	r = merge_trees(p, v, m, &tree);
	return r != 0 ? r : commit_merge(p, v, ref, tree, m);
}

/* ---- what the merge means for a checkout ---- */

/* Entries by path of those that A and B have otherwise, as B has them: "100644 ID", or "". */
static int changed_entries(struct atoll_participant *p, const struct git_view *v, const char *a,
                           const char *b, struct git_map *ret)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT, list = STRBUF_INIT;
	const struct git g = reader(v);
	int r = git_do(p, &g, GIT_ARGS("diff-tree", "-r", "-z", "--no-renames", a, b), NULL, &out);
	const char *at = out.buf, *unmerged;
	size_t len;

	/* ":MODE MODE ID ID LETTER\0PATH\0" becomes "MODE ID 0\tPATH\0", as of an index. */
	while (r >= 0 && at && at < out.buf + out.len) {
		const char *path = at + strlen(at) + 1;
		size_t id = (strlen(at) - 17) / 2;

		strbuf_printf(&list, "%.6s %.*s 0\t%s", at + 8, (int)id, at + 16 + id, path);
		strbuf_putc(&list, '\0');
		at = path + strlen(path) + 1;
	}
	if (r < 0)
		return r;
	len = list.len;
	return git_map_index(ret, strbuf_take(&list), len, &unmerged, &p->err);
}

/* Keeps of MAP what OTHER has, too, or what it has not. */
static void keep_if(struct git_map *map, const struct git_map *other, bool has)
{
	size_t kept = 0;

	for (size_t i = 0; i < map->n; i++)
		if ((*git_map_get(other, map->v[i].key) != '\0') == has)
			map->v[kept++] = map->v[i];
	map->n = kept;
}

int git_merge_entries(struct atoll_participant *p, const struct git_view *v,
                      const struct git_merge *m, struct git_map *ret, struct git_map *ret_behind)
{
	cleanup_git_map struct git_map from_now = GIT_MAP_INIT;
	int r = changed_entries(p, v, m->now, m->result, ret);

	if (r >= 0)
		r = changed_entries(p, v, m->result, m->v, ret_behind);
	if (r >= 0)
		r = changed_entries(p, v, m->now, m->result, &from_now);
	if (r < 0)
		return r;
	keep_if(ret, ret_behind, true);
	keep_if(ret_behind, &from_now, false);
	return 0;
}

/* Is the file PATH below TOP as COMMIT has it? 1, 0. */
static int is_clean(struct atoll_participant *p, const struct git_view *v, const char *top,
                    const char *path, const char *commit)
{
	cleanup_close int top_fd = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = FD_NONE;
	cleanup_strbuf struct strbuf is = STRBUF_INIT, want = STRBUF_INIT;
	cleanup_free char *path_arg = xasprintf("--path=%s", path);
	cleanup_free char *spec = xasprintf("%s:%s", commit, path);
	struct git_state *st;
	struct git g = reader(v), at;
	int r = git_state(p, &st);

	if (r >= 0)
		r = top_fd < 0 ? -errno : resolve_file(top_fd, path, &fd);
	if (r < 0)
		return p->err.code ? r : 0;
	r = git_ask(p, &g, GIT_ARGS("rev-parse", "-q", "--verify", spec), NULL, &want);
	if (r != 0)
		return r < 0 ? r : 0;
	at = GIT_AT(st->dir);
	at.work_tree = top;
	at.in_fd = fd;
	r = git_do(p, &at, GIT_ARGS("hash-object", "--stdin", path_arg), NULL, &is);
	return r < 0 ? r : strcmp(strbuf_str(&is), strbuf_str(&want)) == 0;
}

int git_merge_file(struct atoll_participant *p, const struct git_view *v, const struct git_merge *m,
                   const char *path, const char *entry)
{
	cleanup_free char *work = git_work_path(p);
	int r;

	if (strncmp(entry, "100", 3) != 0) /* a link, a submodule, or gone */
		return 1;
	r = is_clean(p, v, p->root, path, m->now);
	if (r == 1)
		r = is_clean(p, v, work, path, m->v);
	if (r != 1)
		return r < 0 ? r : 1;
	r = write_file(p, v, path, entry);
	if (r >= 0)
		strlist_add(&p->merged, path);
	return r;
}

int git_merge_tree(struct atoll_participant *p, const struct git_view *v)
{
	int r = p->merged.n ? resolve_dir(v->fd, MERGED, &p->merged_fd) : 0;

	return r < 0 ? error_sys(&p->err, r, "open the merged files in", p->area) : 0;
}

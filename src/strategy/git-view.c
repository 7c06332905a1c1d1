/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in the workspace, for git to read without trusting it: a bare repository of our own, with
 * our configuration, put together of regular files only. Refs: those of the repository as it is, with
 * what the upper layer has over them; or those of the workspace alone. Objects: the new ones get second names; packs get an index made
 * anew. All others are found in the repository itself, which has lost none of those it had.
 */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/atomic.h"
#include "fs/copy.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define REF_MAX    4096
#define PACKED_MAX (1u << 30)
#define INDEX_MAX  (1u << 30) /* of some million files */
#define HEX        "0123456789abcdef"

static enum overlay_marks our_marks(void)
{
	return geteuid() == 0 ? OVERLAY_TRUSTED : OVERLAY_USER;
}

void git_view_done(struct git_view *v)
{
	close_fd(&v->upper_fd);
	close_fd(&v->fd);
	free(v->path);
	free(v->alternates);
	git_merge_done(&v->merge);
	*v = GIT_VIEW_INIT;
}

void git_view_remove(struct atoll_participant *p, struct git_view *v)
{
	(void)p;
	if (v->path)
		(void)remove_tree(v->path);
}

/* ---- looking ---- */

static bool upper_has(const struct git_view *v, const char *name)
{
	cleanup_close int fd = FD_NONE;
	const char *last;
	struct fs_stat st;

	return resolve_parent(v->upper_fd, name, &fd, &last) >= 0 &&
	       fs_stat_at(fd, last, 0, &st) >= 0;
}

/* What would have to come along, and does not. */
static const struct {
	const char *name, *what;
} refused[] = {
	{ "modules", "a submodule's repository was made or changed" },
	{ "lfs/objects", "files of Git LFS were added" },
	{ "shallow", "the depth of the clone was changed" },
};

static int refuse(struct atoll_participant *p, const char *what)
{
	(void)error_set(&p->err, -ATOLL_E_POLICY, "%s in the plan, which cannot be committed",
	                what);
	error_hint(&p->err, "take it back there (atoll shell %s), then commit", p->plan);
	return -ATOLL_E_POLICY;
}

static int find_refused(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
                        const struct fs_stat *old_stat, const struct fs_stat *new_stat,
                        const char *link_target)
{
	const char **ret_what = ctx;

	(void)kind;
	(void)what;
	(void)old_stat;
	(void)new_stat;
	(void)link_target;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (path_below(path, refused[i].name))
			*ret_what = refused[i].what;
	return 0;
}

static int check_inside(struct atoll_participant *p, const struct git_view *v)
{
	const char *what = git_operation(v->upper_fd);
	int r;

	if (what) {
		(void)error_set(&p->err, -ATOLL_E_POLICY, "%s is under way in the plan", what);
		error_hint(&p->err, "end it there (atoll shell %s), then commit", p->plan);
		return -ATOLL_E_POLICY;
	}
	r = git_others(p, v, find_refused, &what);
	return r >= 0 && what ? refuse(p, what) : r;
}

static const char replaced[] = "the repository itself was removed or replaced";

/* Whole, so that everything in it counts. */
static int open_private(struct atoll_participant *p, struct git_view *v)
{
	int r = worktree_open(p, &v->upper_fd);

	if (r == -ESTALE || r == -ENOENT || r == -ENOTDIR)
		return refuse(p, replaced);
	if (r < 0)
		return error_sys(&p->err, r, "look at the workspace of", p->root);
	v->has_refs = v->has_index = v->has_stash = true;
	return 0;
}

int git_view_open(struct atoll_participant *p, struct git_view *v)
{
	cleanup_free char *upper = git_work_path(p);
	cleanup_close int fd = open(upper, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct fs_stat st;
	int r = fd < 0 ? -errno : fs_stat_at(fd, ".git", 0, &st);

	if (!git_ground(p)->layered)
		return open_private(p, v);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return error_sys(&p->err, r, "look at the workspace", upper);
	if (!S_ISDIR(st.mode) || overlay_is_opaque(fd, ".git", our_marks()) == 1)
		return refuse(p, replaced);
	r = resolve_dir(fd, ".git", &v->upper_fd);
	if (r < 0)
		return error_sys(&p->err, r, "open the workspace", upper);
	v->has_refs = upper_has(v, "HEAD") || upper_has(v, "refs") || upper_has(v, "packed-refs");
	v->has_index = upper_has(v, "index");
	v->has_stash = upper_has(v, "logs/refs/stash");
	return 0;
}

/* ---- refs ---- */

struct refs_merge {
	int to_fd; /* refs of ours */
	bool is_upper;
	size_t skip; /* length of "refs/", before what is below it */
	char *odd;   /* what is neither a file nor a directory */
};

/* A small regular file, as a new one. */
static int copy_small(int from_fd, const char *from, int to_fd, const char *to, size_t max)
{
	cleanup_close int in = FD_NONE, out = FD_NONE;
	cleanup_free char *text = NULL;
	size_t len = 0;
	struct stat st;
	int r = resolve_file(from_fd, from, &in);

	/* The size is the plan's to choose, and may be all hole. */
	if (r >= 0 && fstat(in, &st) == 0 && (uintmax_t)st.st_size > max)
		return -ATOLL_E_TOO_BIG;
	if (r >= 0)
		r = fs_read_all(in, max, &text, &len);
	if (r < 0)
		return r;
	(void)fs_unlink_at(to_fd, to);
	r = fs_create_at(to_fd, to, 0600, &out);
	return r < 0 ? r : fs_write_all(out, text, len);
}

/* Is there a file NAME? In the upper of an overlay a mark says that there is none, and nothing but that does:
 * what is left out counts as deleted in the plan. -ATOLL_E_UNSUPPORTED: it is something else. */
static int has_file(int fd, const char *name, bool is_upper)
{
	struct fs_stat st;
	int r = fs_stat_at(fd, name, 0, &st);

	if (r == -ENOENT || (r >= 0 && is_upper && overlay_is_whiteout(&st)))
		return 0;
	return r < 0 ? r : S_ISREG(st.mode) ? 1 : -ATOLL_E_UNSUPPORTED;
}

/* The last name of PATH in the workspace's `.git`, from FROM_FD, or nothing where it has none. */
static int copy_mine(struct atoll_participant *p, int from_fd, const char *path, int to_fd,
                     size_t max)
{
	cleanup_free char *what = NULL;
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	int r = has_file(from_fd, name, git_ground(p)->layered);

	if (r == 1)
		return copy_small(from_fd, name, to_fd, name, max);
	if (r != -ATOLL_E_UNSUPPORTED)
		return r;
	what = xasprintf("'.git/%s' became something that is no file", path);
	return refuse(p, what);
}

bool git_is_lock(const char *name)
{
	size_t len = strlen(name);

	return len > 5 && strcmp(name + len - 5, ".lock") == 0;
}

/* A link, where git would go on, and we do not. Left out, all behind it would count as deleted. */
static int find_odd(struct refs_merge *m, const char *path)
{
	m->odd = xstrdup(path);
	return -ATOLL_E_UNSUPPORTED;
}

static int merge_ref(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct refs_merge *m = ctx;
	cleanup_close int fd = FD_NONE;
	const char *last;
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, 0, &st);

	(void)type;
	if (strlen(path) < m->skip) /* where the walk begins */
		return r >= 0 && !S_ISDIR(st.mode) ? find_odd(m, path) : r;
	if (git_is_lock(name)) /* of whoever is at work there */
		return 0;
	if (r == -ENOENT)
		return WALK_SKIP; /* live: gone since */
	if (r >= 0)
		r = resolve_parent(m->to_fd, path + m->skip, &fd, &last);
	if (r < 0)
		return r;
	if (m->is_upper && (overlay_is_whiteout(&st) || !S_ISDIR(st.mode) ||
	                    overlay_is_opaque(dir_fd, name, our_marks()) == 1))
		(void)remove_tree_at(fd, last);
	if (S_ISDIR(st.mode)) {
		r = fs_mkdir_at(fd, last, 0700);
		return r == -EEXIST ? 0 : r;
	}
	if (m->is_upper && overlay_is_whiteout(&st))
		return 0;
	if (!S_ISREG(st.mode))
		return find_odd(m, path);
	r = copy_small(dir_fd, name, fd, last, REF_MAX);
	return r == -ENOENT ? 0 : r;
}

/* 0 or less; *ret_odd when it is for something that is no ref. */
static int add_loose(int from_fd, int git_fd, bool is_upper, char **ret_odd)
{
	struct refs_merge m = { .is_upper = is_upper, .skip = strlen("refs/") };
	cleanup_close int to_fd = FD_NONE;
	int r = resolve_dir(git_fd, "refs", &to_fd);

	m.to_fd = to_fd;
	if (r >= 0)
		r = walk_tree(from_fd, "refs", merge_ref, NULL, &m);
	*ret_odd = m.odd;
	return r;
}

/* Those of the workspace. */
static int add_mine(struct atoll_participant *p, const struct git_view *v)
{
	cleanup_free char *odd = NULL, *what = NULL;
	int r = add_loose(v->upper_fd, v->fd, git_ground(p)->layered, &odd);

	if (!odd)
		return r;
	what = xasprintf("'.git/%s', which is no file, was put among the refs", odd);
	return refuse(p, what);
}

/* Those of the repository. */
static int add_theirs(struct atoll_participant *p, int from_fd, int to_fd)
{
	cleanup_free char *odd = NULL;
	int r = add_loose(from_fd, to_fd, false, &odd);

	return odd ? git_refuse_ref(p, odd) : r;
}

static int add_their_packed(struct atoll_participant *p, int from_fd, int to_fd)
{
	int r = has_file(from_fd, "packed-refs", false);

	if (r == -ATOLL_E_UNSUPPORTED)
		return git_refuse_ref(p, "packed-refs");
	if (r == 1)
		r = copy_small(from_fd, "packed-refs", to_fd, "packed-refs", PACKED_MAX);
	return r == -ENOENT ? 0 : r; /* live: gone since */
}

/* Loose ones first, as git does: one that is packed meanwhile is then seen twice, not never. */
int git_refs_copy(struct atoll_participant *p, int from_fd, int to_fd)
{
	int r = add_theirs(p, from_fd, to_fd);

	return r < 0 ? r : add_their_packed(p, from_fd, to_fd);
}

static int check_refs_dir(struct atoll_participant *p, const struct git_view *v)
{
	bool layered = git_ground(p)->layered;
	struct fs_stat st;
	int r = fs_stat_at(v->upper_fd, "refs", 0, &st);

	if (r < 0 && (r != -ENOENT || layered))
		return r == -ENOENT ? 0 : r; /* nothing over those of the repository */
	if (r < 0 || !S_ISDIR(st.mode) ||
	    (layered && overlay_is_opaque(v->upper_fd, "refs", our_marks()) == 1))
		return refuse(p, "the directory of all refs was removed or replaced");
	return 0;
}

static int merge_refs(struct atoll_participant *p, const struct git_state *st,
                      const struct git_view *v)
{
	int r = add_theirs(p, st->dir_fd, v->fd);

	if (r >= 0 && upper_has(v, "refs"))
		r = add_mine(p, v);
	if (r < 0)
		return r;
	return upper_has(v, "packed-refs")
	               ? copy_mine(p, v->upper_fd, "packed-refs", v->fd, PACKED_MAX)
	               : add_their_packed(p, st->dir_fd, v->fd);
}

static int put_refs(struct atoll_participant *p, const struct git_state *st,
                    const struct git_view *v)
{
	int r = check_refs_dir(p, v);

	if (r >= 0 && git_ground(p)->layered) {
		r = merge_refs(p, st, v);
	} else if (r >= 0) {
		r = add_mine(p, v);
		r = r < 0 ? r : copy_mine(p, v->upper_fd, "packed-refs", v->fd, PACKED_MAX);
	}
	if (r < 0 && !p->err.code)
		return error_sys(&p->err, r, "read the refs in the workspace of", p->root);
	return r;
}

/* ---- making it ---- */

static int put_file(int fd, const char *name, const char *text)
{
	cleanup_close int file = FD_NONE;
	int r = fs_create_at(fd, name, 0600, &file);

	return r < 0 ? r : fs_write_all(file, text, strlen(text));
}

/* The only setting that git must know to read the objects. */
static int put_config(struct atoll_participant *p, const struct git_state *st, int fd)
{
	cleanup_strbuf struct strbuf format = STRBUF_INIT;
	cleanup_free char *text = NULL;
	const struct git g = GIT_AT(st->dir);
	int r = git_ask(p, &g, GIT_ARGS("rev-parse", "--show-object-format"), NULL, &format);

	if (r < 0)
		return r;
	strbuf_truncate(&format, strcspn(strbuf_str(&format), "\n"));
	text = strcmp(strbuf_str(&format), "sha256") == 0
	               ? xstrdup("[core]\n\trepositoryformatversion = 1\n\tbare = true\n"
	                         "[extensions]\n\tobjectformat = sha256\n")
	               : xstrdup("[core]\n\trepositoryformatversion = 0\n\tbare = true\n");
	r = put_file(fd, "config", text);
	return r < 0 ? error_sys(&p->err, r, "write to", p->area) : 0;
}

static int put_head(struct atoll_participant *p, const struct git_state *st,
                    const struct git_view *v)
{
	cleanup_free char *head = NULL, *text = NULL;
	bool is_upper = !git_ground(p)->layered || upper_has(v, "HEAD");
	int r = git_head_read(p, is_upper ? v->upper_fd : st->dir_fd, "HEAD", &head);

	if (r < 0)
		return r;
	text = xasprintf("%s\n", head);
	r = put_file(v->fd, "HEAD", text);
	return r < 0 ? error_sys(&p->err, r, "write to", p->area) : 0;
}

/* The shared part of a split one is looked for beside it. */
static int put_index(struct atoll_participant *p, const struct git_view *v)
{
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	int r = copy_mine(p, v->upper_fd, "index", v->fd, INDEX_MAX);

	if (r >= 0)
		r = dirlist_read(v->upper_fd, &names);
	for (size_t i = 0; i < names.n && r >= 0; i++)
		if (strncmp(names.v[i].name, "sharedindex.", 12) == 0 && names.v[i].type == DT_REG)
			r = copy_small(v->upper_fd, names.v[i].name, v->fd, names.v[i].name,
			               INDEX_MAX);
	if (r < 0 && !p->err.code)
		return error_sys(&p->err, r, "read the index in the workspace of", p->root);
	return r < 0 ? r : 0;
}

static int put_stash(struct atoll_participant *p, const struct git_view *v)
{
	cleanup_close int from_fd = FD_NONE, to_fd = FD_NONE;
	int r = fs_mkdir_at(v->fd, "logs", 0700);

	if (r >= 0)
		r = fs_mkdir_at(v->fd, "logs/refs", 0700);
	if (r >= 0)
		r = resolve_dir(v->fd, "logs/refs", &to_fd);
	if (r >= 0)
		r = resolve_dir(v->upper_fd, "logs/refs", &from_fd);
	if (r >= 0)
		r = copy_mine(p, from_fd, "logs/refs/stash", to_fd, PACKED_MAX);
	if (r == -ENOENT) /* no logs at all */
		return 0;
	if (r < 0 && !p->err.code)
		return error_sys(&p->err, r, "read the stash in the workspace of", p->root);
	return r < 0 ? r : 0;
}

static int make_dirs(struct atoll_participant *p, struct git_view *v, const char *name)
{
	static const char *const dirs[] = { "refs", "objects", "objects/pack" };
	cleanup_close int area_fd = open(p->area, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = area_fd < 0 ? -errno : remove_tree_at(area_fd, name);

	if (r >= 0)
		r = fs_mkdir_at(area_fd, name, 0700);
	if (r >= 0)
		r = resolve_dir(area_fd, name, &v->fd);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]) && r >= 0; i++)
		r = fs_mkdir_at(v->fd, dirs[i], 0700);
	return r < 0 ? error_sys(&p->err, r, "make a directory in", p->area) : 0;
}

int git_view_make(struct atoll_participant *p, struct git_view *v, const char *name)
{
	struct git_state *st;
	int r = git_state(p, &st);

	if (r >= 0)
		r = check_inside(p, v);
	if (r < 0)
		return r;
	v->path = xasprintf("%s/%s", p->area, name);
	v->alternates = xstrdup(st->objects);
	r = make_dirs(p, v, name);
	if (r >= 0)
		r = put_config(p, st, v->fd);
	if (r >= 0)
		r = put_head(p, st, v);
	if (r >= 0)
		r = put_refs(p, st, v);
	if (r >= 0 && v->has_index)
		r = put_index(p, v);
	return r < 0 || !v->has_stash ? r : put_stash(p, v);
}

/* ---- objects ---- */

static int take(int from_fd, const char *name, int to_fd)
{
	struct fs_stat st;
	int r = fs_stat_at(from_fd, name, 0, &st);

	if (r < 0 || !S_ISREG(st.mode))
		return r;
	r = fs_link_at(from_fd, name, to_fd, name);
	if (r == -EXDEV)
		r = copy_entry_at(from_fd, name, to_fd, name, NULL, NULL);
	return r < 0 ? r : 1;
}

static int take_loose(const struct git_view *v, int objects_fd, const char *dir)
{
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	cleanup_free char *to = xasprintf("objects/%s", dir);
	cleanup_close int from_fd = FD_NONE, to_fd = FD_NONE;
	int r = resolve_dir(objects_fd, dir, &from_fd);

	if (r >= 0)
		r = fs_mkdir_at(v->fd, to, 0700);
	if (r >= 0)
		r = resolve_dir(v->fd, to, &to_fd);
	if (r >= 0)
		r = dirlist_read(from_fd, &names);
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		size_t len = strlen(names.v[i].name);

		if ((len == 38 || len == 62) && strspn(names.v[i].name, HEX) == len)
			r = take(from_fd, names.v[i].name, to_fd);
	}
	return r;
}

static bool is_pack(const char *name)
{
	size_t len = strlen(name);

	return len > 10 && strncmp(name, "pack-", 5) == 0 && strspn(name + 5, HEX) == len - 10 &&
	       strcmp(name + len - 5, ".pack") == 0;
}

static int take_packs(struct atoll_participant *p, const struct git_view *v, int objects_fd)
{
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	cleanup_close int from_fd = FD_NONE, to_fd = FD_NONE;
	struct git g = GIT_AT(v->path);
	int r = resolve_dir(objects_fd, "pack", &from_fd);

	g.alternates = v->alternates;
	if (r >= 0)
		r = resolve_dir(v->fd, "objects/pack", &to_fd);
	if (r >= 0)
		r = dirlist_read(from_fd, &names);
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		cleanup_free char *path = xasprintf("%s/objects/pack/%s", v->path, names.v[i].name);

		r = is_pack(names.v[i].name) ? take(from_fd, names.v[i].name, to_fd) : 0;
		if (r == 1)
			r = git_do(p, &g, GIT_ARGS("index-pack", path), NULL, NULL);
	}
	return r == -ENOENT ? 0 : r;
}

int git_view_objects(struct atoll_participant *p, struct git_view *v)
{
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	cleanup_close int fd = FD_NONE;
	int r = v->has_objects ? -ENOENT : resolve_dir(v->upper_fd, "objects", &fd);

	v->has_objects = true;
	if (r == -ENOENT)
		return 0;
	if (r >= 0)
		r = dirlist_read(fd, &names);
	for (size_t i = 0; i < names.n && r >= 0; i++)
		if (strlen(names.v[i].name) == 2 && strspn(names.v[i].name, HEX) == 2 &&
		    names.v[i].type == DT_DIR)
			r = take_loose(v, fd, names.v[i].name);
	if (r >= 0)
		r = take_packs(p, v, fd);
	if (r < 0 && !p->err.code)
		return error_sys(&p->err, r, "read the objects in the workspace of", p->root);
	return r < 0 ? r : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New objects. What the workspace claims to have is packed, and the pack goes through index-pack, which
 * computes every name anew, checks every object, and wants everything that one refers to: in the
 * pack, or in the repository. What is in the pack then waits in the batch's directory, at the place it will
 * have in the repository after the decision: as loose objects if it is fewer than git itself would keep
 * in a pack when it fetches them, since more packs than `gc.autoPackLimit` make every git collect garbage;
 * else as the pack, with a `.keep` beside it until the refs are there. Nothing refers to new objects
 * before, and another process may collect garbage: loose ones are young then, and kept for that.
 */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/copy.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#define STREAM       "pack"
#define VERIFIED     "verified"
#define PACK_HEADER  12  /* bytes; the last four count the objects */
#define UNPACK_LIMIT 100 /* git's own */
#define HEX          "0123456789abcdef"

static const char *const endings[] = { ".pack", ".idx" }; /* the index last: it makes it known */

/* The id that one side of a swap refers to, or NULL. */
static const char *id_of(enum git_part part, const struct git_swap *s, bool old)
{
	const char *value = old ? s->old_value : s->new_value;

	if (!*value)
		return NULL;
	switch (part) {
	case GIT_HEAD:
		return strncmp(value, "ref: ", 5) == 0 ? NULL : value;
	case GIT_STASH:
		return s->key;
	case GIT_INDEX: /* a submodule's commit is in its own repository */
		return strncmp(value, "160000 ", 7) == 0 ? NULL : value + 7;
	case GIT_REFS:
	case GIT_PART_END_:
		break;
	}
	return value;
}

/* All of them, a line each. */
static void list_ids(const struct git_record *rec, bool old, struct strbuf *ids)
{
	for (enum git_part part = GIT_REFS; part < GIT_PART_END_; part++)
		for (size_t i = 0; i < rec->parts[part].n; i++) {
			const char *id = id_of(part, &rec->parts[part].v[i], old);

			if (id)
				strbuf_printf(ids, "%s\n", id);
		}
}

/* Whose it was: the key of the first swap that had it. */
static const char *find_key(const struct git_record *rec, const char *id)
{
	for (enum git_part part = GIT_REFS; part < GIT_PART_END_; part++)
		for (size_t i = 0; i < rec->parts[part].n; i++) {
			const char *its = id_of(part, &rec->parts[part].v[i], true);

			if (its && strcmp(its, id) == 0)
				return rec->parts[part].v[i].key;
		}
	return "";
}

static int fail_lost(struct atoll_participant *p, const struct git_record *rec, const char *id)
{
	(void)error_set(&p->err, -ATOLL_E_CANNOT_PREPARE,
	                "object %.10s, where '%s' was before the commit, is not in '%s' any more: "
	                "git gc --prune removes what no ref or reflog holds",
	                id, find_key(rec, id), p->root);
	error_hint(&p->err,
	           "git fetch it from a clone that has it, then atoll rollback %s; or atoll rm "
	           "%s: what was committed stays",
	           p->plan, p->plan);
	return -ATOLL_E_CANNOT_PREPARE;
}

int git_objects_check_old(struct atoll_participant *p, const struct git_record *rec)
{
	cleanup_strbuf struct strbuf ids = STRBUF_INIT, out = STRBUF_INIT;
	struct git_state *st;
	char *line, *rest;
	struct git g;
	int r = git_state(p, &st);

	list_ids(rec, true, &ids);
	if (r < 0 || !ids.len)
		return r;
	g = GIT_AT(st->dir);
	r = git_do(p, &g, GIT_ARGS("cat-file", "--batch-check"), &ids, &out);
	for (rest = out.buf; r >= 0 && (line = strsep(&rest, "\n"));) {
		char *space = strchr(line, ' ');

		if (!space || strcmp(space, " missing") != 0)
			continue;
		*space = '\0';
		return fail_lost(p, rec, line);
	}
	return r;
}

/* Without what the repository's refs lead to. */
static int add_known(struct atoll_participant *p, const struct git_state *st, struct strbuf *in)
{
	cleanup_git_map struct git_map now = GIT_MAP_INIT;
	const struct git g = GIT_AT(st->dir);
	int r = git_refs_read(p, &g, &now);

	for (size_t i = 0; i < now.n && r >= 0; i++)
		strbuf_printf(in, "^%s\n", now.v[i].value);
	return r;
}

int git_objects_check_new(struct atoll_participant *p, const struct git_record *rec)
{
	cleanup_free char *objects = xasprintf("%s/b%u/objects", p->area, p->batch.number);
	cleanup_strbuf struct strbuf ids = STRBUF_INIT, list = STRBUF_INIT;
	struct git_state *st;
	struct git g;
	int r = git_state(p, &st);

	list_ids(rec, false, &ids);
	if (r < 0 || !ids.len)
		return r;
	r = add_known(p, st, &ids);
	if (r < 0)
		return r;
	g = GIT_AT(st->dir);
	git_path_list(&list, objects);
	g.alternates = access(objects, F_OK) == 0 ? strbuf_str(&list) : NULL;
	r = git_do(p, &g, GIT_ARGS("rev-list", "--objects", "--quiet", "--stdin"), &ids, NULL);
	if (r >= 0)
		return 0;
	error_done(&p->err);
	return error_set(&p->err, -ATOLL_E_RECOVERY_MISSING,
	                 "objects that the commit needs are gone from '%s': git has pruned them",
	                 p->root);
}

/* Into the file STREAM of the batch. *ret_n: how many objects are in it. */
static int pack(struct atoll_participant *p, const struct git_view *v, int batch_fd,
                const struct strbuf *ids, uint32_t *ret_n)
{
	cleanup_strbuf struct strbuf in = STRBUF_INIT;
	cleanup_close int fd = FD_NONE;
	unsigned char header[PACK_HEADER] = { 0 };
	struct git g = GIT_AT(v->path);
	struct git_state *st;
	int r = git_state(p, &st);

	strbuf_add(&in, ids->buf, ids->len);
	if (r >= 0)
		r = add_known(p, st, &in);
	if (r < 0)
		return r;
	(void)fs_unlink_at(batch_fd, STREAM);
	r = fs_create_at(batch_fd, STREAM, 0600, &fd);
	if (r < 0)
		return error_sys(&p->err, r, "write to", p->area);
	g.alternates = v->alternates;
	g.out_fd = fd;
	r = git_do(p, &g,
	           GIT_ARGS("pack-objects", "--revs", "--stdout", "-q", "--delta-base-offset"), &in,
	           NULL);
	if (r >= 0 && pread(fd, header, sizeof(header), 0) != sizeof(header))
		r = error_set(&p->err, -ATOLL_E_CANNOT_PREPARE, "git pack-objects gave no pack");
	*ret_n = (uint32_t)header[8] << 24 | (uint32_t)header[9] << 16 | (uint32_t)header[10] << 8 |
	         header[11];
	return r;
}

static int verify(struct atoll_participant *p, const struct git_view *v, int batch_fd,
                  const char *objects, struct git_record *rec)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	cleanup_close int fd = FD_NONE;
	struct git g = GIT_AT(v->path);
	const char *name;
	int r = fs_mkdir_at(batch_fd, "objects", 0700);

	if (r >= 0)
		r = fs_mkdir_at(batch_fd, "objects/pack", 0700);
	if (r >= 0)
		r = resolve_file(batch_fd, STREAM, &fd);
	if (r < 0)
		return error_sys(&p->err, r, "stage objects in", p->area);
	g.objects = objects;
	g.alternates = v->alternates;
	g.in_fd = fd;
	r = git_do(p, &g, GIT_ARGS("index-pack", "--stdin", "--strict"), NULL, &out);
	if (r < 0)
		return r;
	name = strchr(strbuf_str(&out), '\t');
	if (!name)
		return error_set(&p->err, -ATOLL_E_CANNOT_PREPARE, "git index-pack named no pack");
	rec->pack = xasprintf("pack-%.*s", (int)strcspn(name + 1, "\n"), name + 1);
	return 0;
}

/* What was asked for is there under its true name. */
static int check_there(struct atoll_participant *p, const char *objects, const struct strbuf *ids)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	struct git_state *st;
	struct git g;
	const char *missing;
	int r = git_state(p, &st);

	if (r < 0)
		return r;
	g = GIT_AT(st->dir);
	g.objects = objects;
	g.alternates = st->objects;
	r = git_do(p, &g, GIT_ARGS("cat-file", "--batch-check=%(objectname)"), ids, &out);
	if (r < 0)
		return r;
	missing = strstr(strbuf_str(&out), " missing");
	return missing ? error_set(&p->err, -ATOLL_E_CANNOT_PREPARE,
	                           "an object of the plan is missing, or is not what its name says")
	               : 0;
}

/* Of a pack with fewer objects than this git keeps none. */
static int read_unpack_limit(struct atoll_participant *p, const struct git_state *st, long *ret)
{
	static const char *const keys[] = { "fetch.unpacklimit ", "transfer.unpacklimit " };
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	const struct git g = GIT_AT(st->dir);
	long limits[] = { -1, -1 };
	char *line, *rest;
	int r = git_ask(p, &g,
	                GIT_ARGS("config", "--type=int", "--get-regexp",
	                         "^(fetch|transfer)\\.unpacklimit$"),
	                NULL, &out);

	for (rest = out.buf; r == 0 && rest && (line = strsep(&rest, "\n"));)
		for (size_t i = 0; i < 2; i++)
			if (strncmp(line, keys[i], strlen(keys[i])) == 0)
				limits[i] = strtol(line + strlen(keys[i]), NULL, 10);
	*ret = limits[0] >= 0 ? limits[0] : limits[1] >= 0 ? limits[1] : UNPACK_LIMIT;
	return r < 0 ? r : 0;
}

/* The pack in OBJECTS gives way to its objects. They are written where git sees no others, of which it would
 * not write those that the repository has, but touch them. */
static int unpack(struct atoll_participant *p, const struct git_view *v, int batch_fd,
                  const char *objects, struct git_record *rec)
{
	cleanup_free char *path = xasprintf(VERIFIED "/pack/%s.pack", rec->pack);
	cleanup_close int fd = FD_NONE;
	struct git g = GIT_AT(v->path);
	int r = fs_move(batch_fd, "objects", batch_fd, VERIFIED);

	if (r >= 0)
		r = fs_mkdir_at(batch_fd, "objects", 0700);
	if (r >= 0)
		r = resolve_file(batch_fd, path, &fd);
	if (r < 0)
		return error_sys(&p->err, r, "stage objects in", p->area);
	g.objects = objects;
	g.in_fd = fd;
	r = git_do(p, &g, GIT_ARGS("unpack-objects", "-q"), NULL, NULL);
	if (r < 0)
		return r;
	r = remove_tree_at(batch_fd, VERIFIED);
	if (r < 0)
		return error_sys(&p->err, r, "stage objects in", p->area);
	free(take_ptr(rec->pack));
	return 0;
}

int git_objects_stage(struct atoll_participant *p, struct git_view *v, int batch_fd,
                      struct git_record *rec)
{
	cleanup_strbuf struct strbuf ids = STRBUF_INIT;
	cleanup_free char *objects = xasprintf("%s/b%u/objects", p->area, p->batch.number);
	struct git_state *st;
	uint32_t n = 0;
	long limit = 0;
	int r = git_state(p, &st);

	list_ids(rec, false, &ids);
	if (r < 0 || !ids.len)
		return r;
	r = git_view_objects(p, v);
	if (r >= 0)
		r = pack(p, v, batch_fd, &ids, &n);
	if (r >= 0 && n)
		r = verify(p, v, batch_fd, objects, rec);
	if (r >= 0)
		r = check_there(p, n ? objects : NULL, &ids);
	if (r >= 0 && n)
		r = read_unpack_limit(p, st, &limit);
	if (r >= 0 && n < limit && n)
		r = unpack(p, v, batch_fd, objects, rec);
	(void)fs_unlink_at(batch_fd, STREAM);
	crashpoint("git.prepare.objects");
	if (r < 0 || !n)
		return r;
	r = syncset_add_tree(p->batch.sync, batch_fd, "objects");
	return r < 0 ? error_sys(&p->err, r, "note for the barrier", p->area) : 0;
}

/* ---- after the decision ---- */

static int list_fan(int objects_fd, const char *fan, struct strlist *ret)
{
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	cleanup_close int fd = FD_NONE;
	int r = resolve_dir(objects_fd, fan, &fd);

	if (r >= 0)
		r = dirlist_read(fd, &names);
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		cleanup_free char *path = xasprintf("%s/%s", fan, names.v[i].name);

		strlist_add(ret, path);
	}
	return r;
}

int git_objects_list(struct atoll_participant *p, const struct git_record *rec, struct strlist *ret)
{
	cleanup_free char *from = xasprintf("%s/b%u/objects", p->area, p->batch.number);
	cleanup_close int fd = open(from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	int r = fd < 0 ? -errno : dirlist_read(fd, &names);

	for (size_t i = 0; rec->pack && i < sizeof(endings) / sizeof(endings[0]); i++) {
		cleanup_free char *path = xasprintf("pack/%s%s", rec->pack, endings[i]);

		strlist_add(ret, path);
	}
	for (size_t i = 0; !rec->pack && i < names.n && r >= 0; i++)
		if (strlen(names.v[i].name) == 2 && strspn(names.v[i].name, HEX) == 2)
			r = list_fan(fd, names.v[i].name, ret);
	if (r == -ENOENT && !rec->pack)
		return 0;
	return r < 0 ? error_sys(&p->err, r, "read", from) : 0;
}

/* PATH from one directory of objects to the other. One that is there is as good: its name is its content. */
static int place(struct atoll_participant *p, int from_fd, int to_fd, const char *path,
                 const struct fs_stat *like)
{
	cleanup_free char *dir = xstrndup(path, strcspn(path, "/"));
	cleanup_close int from = FD_NONE, to = FD_NONE;
	const char *name = strchr(path, '/') + 1;
	int r = fs_mkdir_at(to_fd, dir, like->mode & 07777);

	if (r >= 0 || r == -EEXIST)
		r = resolve_dir(to_fd, dir, &to);
	if (r >= 0)
		r = resolve_dir(from_fd, dir, &from);
	if (r >= 0)
		r = fs_link_at(from, name, to, name);
	if (r == -EXDEV || r == -EPERM) {
		r = copy_entry_at(from, name, to, name, NULL, NULL);
		r = r < 0 ? r : syncset_add(p->batch.sync, to, name);
	}
	if (r >= 0 || r == -EEXIST)
		r = syncset_add(p->batch.sync, to_fd, dir);
	return r < 0 ? r : syncset_add(p->batch.sync, to_fd, "");
}

static int put_keep(int objects_fd, const struct git_record *rec)
{
	cleanup_free char *path = xasprintf("%s.keep", rec->pack);
	cleanup_close int fd = FD_NONE, dir_fd = FD_NONE;
	int r = resolve_dir(objects_fd, "pack", &dir_fd);

	if (r >= 0)
		r = fs_create_at(dir_fd, path, 0600, &fd);
	return r == -EEXIST ? 0 : r;
}

int git_objects_install(struct atoll_participant *p, const struct git_record *rec)
{
	cleanup_free char *from = xasprintf("%s/b%u/objects", p->area, p->batch.number);
	cleanup_strlist struct strlist paths = STRLIST_INIT;
	cleanup_close int from_fd = FD_NONE, to_fd = FD_NONE;
	struct git_state *st;
	struct fs_stat like;
	int r = git_state(p, &st);

	if (r >= 0)
		r = git_objects_list(p, rec, &paths);
	if (r < 0 || !paths.n)
		return r;
	from_fd = open(from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = from_fd < 0 ? -errno : resolve_dir(st->dir_fd, "objects", &to_fd);
	if (r >= 0)
		r = fs_stat_at(to_fd, "", 0, &like);
	if (r >= 0 && rec->pack)
		r = put_keep(to_fd, rec);
	for (size_t i = 0; i < paths.n && r >= 0; i++) {
		r = place(p, from_fd, to_fd, paths.v[i], &like);
		crashpoint("git.commit.object");
	}
	return r < 0 ? error_sys(&p->err, r, "add objects to", p->root) : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New objects. What the workspace claims to have is packed, and the pack goes through index-pack, which
 * computes every name anew, checks every object, and wants everything that one refers to: in the
 * pack, or in the repository. The pack waits in the batch's directory and gets its place in the
 * repository after the decision. A `.keep` beside it until the refs are there: nothing refers to
 * it before, and somebody may collect garbage.
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
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#define STREAM      "pack"
#define PACK_HEADER 12 /* bytes; the last four count the objects */

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
	           "git fetch it from a clone that has it, then atoll rollback %s; or atoll stop "
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

static int add_known(struct atoll_participant *p, const struct git_state *st, struct strbuf *in)
{
	cleanup_git_map struct git_map now = GIT_MAP_INIT;
	const struct git g = GIT_AT(st->dir);
	int r = git_refs_read(p, &g, &now);

	if (r < 0)
		return r;
	strbuf_puts(in, "--not\n");
	for (size_t i = 0; i < now.n; i++)
		strbuf_printf(in, "%s\n", now.v[i].value);
	return 0;
}

/* Into the file STREAM of the batch. *ret_some: there is an object in it. */
static int pack(struct atoll_participant *p, const struct git_view *v, int batch_fd,
                const struct strbuf *ids, bool *ret_some)
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
	*ret_some = memcmp(header + 8, "\0\0\0\0", 4) != 0;
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

static int sync_staged(struct atoll_participant *p, int batch_fd, const struct git_record *rec)
{
	int r = syncset_add(p->batch.sync, batch_fd, "objects/pack");

	for (size_t i = 0; rec->pack && i < sizeof(endings) / sizeof(endings[0]) && r >= 0; i++) {
		cleanup_free char *path = xasprintf("objects/pack/%s%s", rec->pack, endings[i]);

		r = syncset_add(p->batch.sync, batch_fd, path);
	}
	if (r >= 0)
		r = syncset_add(p->batch.sync, batch_fd, "objects");
	return r < 0 ? error_sys(&p->err, r, "note for the barrier", p->area) : 0;
}

int git_objects_stage(struct atoll_participant *p, struct git_view *v, int batch_fd,
                      struct git_record *rec)
{
	cleanup_strbuf struct strbuf ids = STRBUF_INIT;
	cleanup_free char *objects = xasprintf("%s/b%u/objects", p->area, p->batch.number);
	bool some = false;
	int r;

	list_ids(rec, false, &ids);
	if (!ids.len)
		return 0;
	r = git_view_objects(p, v);
	if (r >= 0)
		r = pack(p, v, batch_fd, &ids, &some);
	if (r >= 0 && some)
		r = verify(p, v, batch_fd, objects, rec);
	if (r >= 0)
		r = check_there(p, some ? objects : NULL, &ids);
	(void)fs_unlink_at(batch_fd, STREAM);
	crashpoint("git.prepare.objects");
	return r < 0 || !some ? r : sync_staged(p, batch_fd, rec);
}

/* ---- after the decision ---- */

static int place(int from_fd, int to_fd, const char *name)
{
	int r = fs_link_at(from_fd, name, to_fd, name);

	if (r == -EXDEV || r == -EPERM)
		r = copy_entry_at(from_fd, name, to_fd, name, NULL, NULL);
	return r == -EEXIST ? 0 : r;
}

int git_objects_install(struct atoll_participant *p, const struct git_record *rec)
{
	cleanup_free char *from = xasprintf("%s/b%u/objects/pack", p->area, p->batch.number);
	cleanup_free char *keep = xasprintf("%s.keep", rec->pack ? rec->pack : "");
	cleanup_close int from_fd = FD_NONE, to_fd = FD_NONE, keep_fd = FD_NONE;
	struct git_state *st;
	int r = git_state(p, &st);

	if (r < 0 || !rec->pack)
		return r;
	from_fd = open(from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = from_fd < 0 ? -errno : resolve_dir(st->dir_fd, "objects/pack", &to_fd);
	if (r >= 0)
		r = fs_create_at(to_fd, keep, 0600, &keep_fd);
	if (r == -EEXIST)
		r = 0;
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]) && r >= 0; i++) {
		cleanup_free char *name = xasprintf("%s%s", rec->pack, endings[i]);

		r = place(from_fd, to_fd, name);
		crashpoint("git.commit.pack");
	}
	if (r >= 0)
		r = syncset_add(p->batch.sync, st->dir_fd, "objects/pack");
	return r < 0 ? error_sys(&p->err, r, "add objects to", p->root) : 0;
}

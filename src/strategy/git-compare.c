/* SPDX-License-Identifier: Apache-2.0 */
/* What a commit would do: each key of refs, HEAD and index, by three values. See git.h. */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/mem.h"

#define SHORT     10 /* digits of an id that are shown */
#define INDEX_END 32 /* bytes; a hash, or a hash and a little more */

struct compare {
	struct atoll_participant *p;
	struct git_view *v;
	struct git_state *st;
	struct git_record *rec;
	const char *head; /* where HEAD is, on both sides, or NULL */
	const struct git_map *agreed;
	const struct git_staged *staged;
	struct git_map merged; /* entries that are on neither side */
	struct git_map behind; /* entries as the plan committed them, before others went on */
	size_t conflicts;
};

static void conflict(struct compare *c, const char *key, const char *why)
{
	if (c->conflicts++ < LIMIT_CONFLICTS)
		atoll_participant_note(c->p, ATOLL_NOTE_CONFLICT, key, why);
}

static char *brief(const char *value)
{
	static const char branch[] = "ref: refs/heads/", ref[] = "ref: ";

	if (strncmp(value, branch, strlen(branch)) == 0)
		return xasprintf("branch %s", value + strlen(branch));
	if (strncmp(value, ref, strlen(ref)) == 0)
		return xstrdup(value + strlen(ref));
	return *value ? xstrndup(value, SHORT) : xstrdup("nothing");
}

static void both_moved(struct compare *c, const char *key, const char *v, const char *now)
{
	cleanup_free char *ours = brief(v), *theirs = brief(now);
	cleanup_free char *why =
		xasprintf("moved by somebody else to %s, to %s in the plan", theirs, ours);

	conflict(c, key, why);
}

/* HEAD is outside where it was, on a branch that has other commits there. */
static void moved_below(struct compare *c, const char *v, const char *now)
{
	cleanup_free char *ours = brief(v), *theirs = brief(now);
	cleanup_free char *why =
		xasprintf("%s, which is checked out, has other commits outside the "
	                  "plan; in the plan %s is checked out",
	                  theirs, ours);

	conflict(c, "HEAD", why);
}

/* ---- refs ---- */

/* Another worktree has it checked out: moving it would leave that one behind. */
static bool is_checked_out(const struct compare *c, const char *ref, char **ret_where)
{
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	cleanup_close int fd =
		openat(c->st->dir_fd, "worktrees", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || dirlist_read(fd, &names) < 0)
		return false;
	for (size_t i = 0; i < names.n; i++) {
		cleanup_free char *name = xasprintf("%s/HEAD", names.v[i].name), *head = NULL;
		bool hit = git_head_read(c->p, fd, name, &head) == 0 &&
		           strncmp(head, "ref: ", 5) == 0 && strcmp(head + 5, ref) == 0;

		error_done(&c->p->err);
		if (!hit)
			continue;
		*ret_where = xstrdup(names.v[i].name);
		return true;
	}
	return false;
}

static int merge_ref(struct compare *c, const char *ref, const char *base, const char *v,
                     const char *now)
{
	struct git_merge m = { .v = xstrdup(v), .now = xstrdup(now) };
	int r = git_merge_ref(c->p, c->v, ref, base, &m);

	if (r == 1)
		both_moved(c, ref, v, now);
	if (r == 1 && c->v->only_look)
		git_swap_add(&c->rec->parts[GIT_REFS], ref, now, v);
	if (r == 0 && strcmp(m.result, now) != 0)
		git_swap_add(&c->rec->parts[GIT_REFS], ref, now, m.result);
	if (r == 0 && c->head && strcmp(c->head + 5, ref) == 0) {
		git_merge_done(&c->v->merge);
		c->v->merge = m;
		m = GIT_MERGE_INIT;
	}
	git_merge_done(&m);
	return r < 0 ? r : 0;
}

static int compare_ref(void *ctx, const char *ref, const char *base, const char *v, const char *now)
{
	struct compare *c = ctx;
	cleanup_free char *where = NULL;

	/* Where both were once the same the plan went on from that, or never touched it. */
	base = git_map_get(c->agreed, ref);
	if (strcmp(v, base) == 0 || git_log_moved_outside(c->st, c->v, ref, base, v))
		return 0;
	if (is_checked_out(c, ref, &where)) {
		cleanup_free char *why = xasprintf("checked out in the worktree '%s'", where);

		conflict(c, ref, why);
	} else if (strcmp(base, now) != 0) {
		return merge_ref(c, ref, base, v, now);
	} else {
		git_swap_add(&c->rec->parts[GIT_REFS], ref, now, v);
	}
	return 0;
}

/* BRANCH is what was checked out when the plan was made: what others committed there since is in
 * the working tree, where the plan now wants something else. */
static bool branch_moved(const struct git_base *base, const struct git_map *now)
{
	const char *branch = base->head + 5;

	return strncmp(base->head, "ref: ", 5) == 0 &&
	       strcmp(git_map_get(&base->refs, branch), git_map_get(now, branch)) != 0;
}

static void compare_head(struct compare *c, const struct git_base *base, const struct git_map *now,
                         const char *v_head, const char *now_head)
{
	if (strcmp(v_head, now_head) == 0 || strcmp(v_head, base->head) == 0)
		return;
	if (strcmp(now_head, base->head) != 0)
		both_moved(c, "HEAD", v_head, now_head);
	else if (branch_moved(base, now))
		moved_below(c, v_head, now_head);
	else
		git_swap_add(&c->rec->parts[GIT_HEAD], "HEAD", now_head, v_head);
}

static int compare_refs(struct compare *c)
{
	cleanup_git_base struct git_base base = GIT_BASE_INIT;
	cleanup_git_map struct git_map v = GIT_MAP_INIT, now = GIT_MAP_INIT;
	cleanup_free char *v_head = NULL, *now_head = NULL;
	cleanup_strbuf struct strbuf stash = STRBUF_INIT;
	const struct git real = GIT_AT(c->st->dir);
	struct git mine = GIT_AT(c->v->path);
	int r = git_base_read(c->p, &base);

	if (r >= 0)
		r = git_head_read(c->p, c->v->fd, "HEAD", &v_head);
	if (r >= 0)
		r = git_head_read(c->p, c->st->dir_fd, "HEAD", &now_head);
	if (r >= 0 && strcmp(v_head, now_head) == 0 && strncmp(v_head, "ref: ", 5) == 0)
		c->head = v_head;

	mine.alternates = c->v->alternates;
	if (r >= 0)
		r = git_refs_read(c->p, &mine, &v);
	if (r >= 0)
		r = git_refs_read(c->p, &real, &now);
	c->agreed = &base.agreed;
	if (r >= 0)
		r = git_three_way(&base.refs, &v, &now, compare_ref, c);
	c->agreed = NULL;
	c->head = NULL;
	if (r >= 0)
		compare_head(c, &base, &now, v_head, now_head);
	if (r >= 0 && c->v->has_stash)
		r = git_stash_compare(c->p, c->v, base.agreed_stash, c->rec, &stash);
	else if (r >= 0)
		strbuf_puts(&stash, base.agreed_stash);
	if (r >= 0)
		git_base_agree(c->p, &base, &v, &now, strbuf_str(&stash));
	return r;
}

/* ---- the index ---- */

/* A database of the plan is a link for its commands, and `git add -A` takes it for what is there. */
static bool is_stand_in(const struct compare *c, const char *path, const char *entry)
{
	return strncmp(entry, "120000 ", 7) == 0 && c->p->excludes &&
	       strlist_has(c->p->excludes, path);
}

static int refuse_stand_in(struct compare *c, const char *path)
{
	(void)error_set(&c->p->err, -ATOLL_E_POLICY,
	                "'%s' is a database of the plan, and was staged there as the link that "
	                "stands for it",
	                path);
	error_hint(&c->p->err,
	           "in the plan (atoll shell %s): git reset COMMIT -- %s, with a commit from "
	           "before, and git commit --amend",
	           c->p->plan, path);
	return -ATOLL_E_POLICY;
}

/* The plan staged nothing there: its index has what its last commit has, from a time when others had not
 * committed what they have by now. */
static bool is_behind(const struct compare *c, const char *path, const char *v)
{
	const char *committed = git_map_get(&c->behind, path);

	return *committed &&
	       (strcmp(committed, v) == 0 || (!*v && strncmp(committed, "000000", 6) == 0));
}

static int compare_entry(void *ctx, const char *path, const char *base, const char *v,
                         const char *now)
{
	struct compare *c = ctx;

	if (is_stand_in(c, path, v))
		return refuse_stand_in(c, path);
	/* As with a ref. */
	base = git_staged_base(c->staged->staged, c->staged->base, path);
	if (strcmp(v, base) == 0)
		return 0;
	if (*git_map_get(&c->merged, path) || is_behind(c, path, v))
		return 0;
	if (strcmp(base, now) != 0)
		conflict(c, path, "staged by somebody else, and in the plan");
	else
		git_swap_add(&c->rec->parts[GIT_INDEX], path, now, v);
	return 0;
}

/* Files that the merge of the checked out branch made of both sides'. */
static int merge_files(struct compare *c, const struct git_map *now)
{
	int r = git_merge_entries(c->p, c->v, &c->v->merge, &c->merged, &c->behind);

	for (size_t i = 0; i < c->merged.n && r >= 0; i++) {
		const char *path = c->merged.v[i].key, *entry = c->merged.v[i].value;

		r = git_merge_file(c->p, c->v, &c->v->merge, path, entry);
		if (r == 1)
			conflict(c, path, "changed by somebody else, and in the plan");
		else if (r == 0)
			git_swap_add(&c->rec->parts[GIT_INDEX], path, git_map_get(now, path),
			             entry);
	}
	return r < 0 ? r : git_merge_tree(c->p, c->v);
}

/* An index ends with the hash of all that is before it. */
static bool same_index(const char *a, const char *b)
{
	cleanup_close int a_fd = open(a, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int b_fd = open(b, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char a_end[INDEX_END], b_end[INDEX_END];
	off_t len = a_fd < 0 ? -1 : lseek(a_fd, 0, SEEK_END);

	return len >= INDEX_END && b_fd >= 0 && lseek(b_fd, 0, SEEK_END) == len &&
	       pread(a_fd, a_end, INDEX_END, len - INDEX_END) == INDEX_END &&
	       pread(b_fd, b_end, INDEX_END, len - INDEX_END) == INDEX_END &&
	       memcmp(a_end, b_end, INDEX_END) == 0;
}

/* ---- `git add -N` ---- */

/* By length of an id: of the empty file, and of the empty tree, which git knows without having them. */
static const struct {
	const char *blob, *tree;
} empty[] = {
	{ "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", "4b825dc642cb6eb9a060e54bf8d69288fbee4904" },
	{ "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
	  "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321" },
};
#define N_EMPTY (sizeof(empty) / sizeof(empty[0]))

/* The empty tree, if ENTRY is of an empty file; else NULL. */
static const char *is_empty(const char *entry)
{
	for (size_t i = 0; i < N_EMPTY; i++)
		if (strncmp(entry, "100", 3) == 0 && strcmp(entry + 7, empty[i].blob) == 0)
			return empty[i].tree;
	return NULL;
}

static int by_bytes(const void *key, const void *entry)
{
	return strcmp(key, *(const char *const *)entry);
}

static bool is_listed(const struct strlist *sorted, const char *path)
{
	return sorted->n && bsearch(path, sorted->v, sorted->n, sizeof(sorted->v[0]), by_bytes);
}

/* All of the index that is not only meant to be added, sorted. */
static int read_added(struct compare *c, const char *tree, struct strlist *ret)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	struct git g = GIT_AT(c->v->path);
	int r;

	g.alternates = c->v->alternates;
	r = git_do(c->p, &g,
	           GIT_ARGS("diff-index", "--cached", "--ita-invisible-in-index", "--name-only",
	                    "-z", tree),
	           NULL, &out);
	for (const char *at = out.buf; r >= 0 && at && at < out.buf + out.len; at += strlen(at) + 1)
		strlist_add(ret, at);
	strlist_sort(ret);
	return r;
}

/* The index lists it as an empty file. What was staged is nothing, and so it arrives. */
static int drop_intents(struct compare *c)
{
	struct git_swaps *s = &c->rec->parts[GIT_INDEX];
	cleanup_strlist struct strlist added = STRLIST_INIT;
	const char *tree = NULL;
	size_t kept = 0;
	int r;

	for (size_t i = 0; i < s->n && !tree; i++)
		tree = is_empty(s->v[i].new_value);
	r = tree ? read_added(c, tree, &added) : 1;
	if (r != 0)
		return r < 0 ? r : 0;
	for (size_t i = 0; i < s->n; i++) {
		if (is_empty(s->v[i].new_value) && !is_listed(&added, s->v[i].key))
			s->v[i].new_value[0] = '\0';
		if (*s->v[i].old_value || *s->v[i].new_value)
			s->v[kept++] = s->v[i];
		else
			git_swap_done(&s->v[i]);
	}
	s->n = kept;
	return 0;
}

static int compare_index(struct compare *c)
{
	cleanup_git_map struct git_map base = GIT_MAP_INIT, v = GIT_MAP_INIT, now = GIT_MAP_INIT;
	cleanup_git_map struct git_map staged = GIT_MAP_INIT;
	cleanup_free char *at_base = git_base_index(c->p);
	cleanup_free char *at_v = xasprintf("%s/index", c->v->path);
	cleanup_free char *at_now = xasprintf("%s/index", c->st->dir);
	bool unchanged = same_index(at_base, at_now);
	const struct git_map *there = unchanged ? &base : &now;
	const struct git_staged agreed = { &staged, &base, &v, there };
	int r = git_index_read(c->p, c->v->path, at_v, &v);

	error_prefix(&c->p->err, r, "in the plan");
	if (r >= 0)
		r = git_index_read(c->p, c->st->dir, at_base, &base);
	if (r >= 0 && !unchanged)
		r = git_index_read(c->p, c->st->dir, at_now, &now);
	if (r >= 0 && c->v->merge.result)
		r = merge_files(c, there);
	if (r >= 0)
		r = git_staged_read(c->p, &staged);
	c->staged = &agreed;
	if (r >= 0)
		r = git_three_way(&base, &v, there, compare_entry, c);
	c->staged = NULL;
	if (r >= 0)
		git_staged_agree(c->p, &agreed);
	return r < 0 ? r : drop_intents(c);
}

/* ---- the whole ---- */

int git_head_moved(struct atoll_participant *p, bool *ret)
{
	cleanup_git_base struct git_base base = GIT_BASE_INIT;
	cleanup_free char *now = NULL;
	struct git_state *st;
	int r = git_state(p, &st);

	if (r >= 0)
		r = git_base_read(p, &base);
	if (r >= 0)
		r = git_head_read(p, st->dir_fd, "HEAD", &now);
	if (r >= 0)
		*ret = strcmp(now, base.head) != 0;
	return r;
}

int git_compare(struct atoll_participant *p, struct git_view *v, struct git_record *rec,
                size_t *ret_conflicts)
{
	struct compare c = { .p = p, .v = v, .rec = rec };
	int r = git_state(p, &c.st);

	if (r >= 0 && v->has_refs)
		r = compare_refs(&c);
	if (r >= 0 && v->has_index)
		r = compare_index(&c);
	git_map_done(&c.merged);
	git_map_done(&c.behind);
	*ret_conflicts = c.conflicts;
	return r;
}

int git_compare_view(struct atoll_participant *p, struct git_view *v, const char *name,
                     struct git_record *rec, size_t *ret_conflicts)
{
	int r = git_view_open(p, v);

	*ret_conflicts = 0;
	if (r < 0 || !(v->has_refs || v->has_index))
		return r;
	r = git_view_make(p, v, name);
	return r < 0 ? r : git_compare(p, v, rec, ret_conflicts);
}

bool git_staged_only(const struct git_record *rec)
{
	return rec->parts[GIT_INDEX].n && !rec->parts[GIT_REFS].n && !rec->parts[GIT_HEAD].n;
}

uint64_t git_count(const struct git_record *rec)
{
	return rec->parts[GIT_REFS].n + rec->parts[GIT_HEAD].n + rec->parts[GIT_STASH].n +
	       git_staged_only(rec);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "strategy/git-record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/mem.h"

#define MAGIC "atoll-git 1"

static const char *const part_names[] = { [GIT_REFS] = "ref",
	                                  [GIT_HEAD] = "head",
	                                  [GIT_INDEX] = "index",
	                                  [GIT_STASH] = "stash" };
_Static_assert(sizeof(part_names) / sizeof(part_names[0]) == GIT_PART_END_, "a name for each part");

/* ---- maps ---- */

void git_map_done(struct git_map *m)
{
	free(m->v);
	free(m->text);
	*m = GIT_MAP_INIT;
}

static int by_key(const void *a, const void *b)
{
	const struct git_pair *x = a, *y = b;

	return strcmp(x->key, y->key);
}

static const struct git_pair *find(const struct git_map *m, const char *key)
{
	struct git_pair want = { .key = key };

	return m->n ? bsearch(&want, m->v, m->n, sizeof(*m->v), by_key) : NULL;
}

const char *git_map_get(const struct git_map *m, const char *key)
{
	const struct git_pair *p = find(m, key);

	return p ? p->value : "";
}

static int map_add(struct git_map *m, const char *key, const char *value, struct error *err)
{
	if (grow((void **)&m->v, &m->cap, m->n + 1, sizeof(*m->v)) < 0)
		return error_set(err, -ENOMEM, "the repository is too big for memory");
	m->v[m->n++] = (struct git_pair){ key, value };
	return 0;
}

static void map_sort(struct git_map *m)
{
	for (size_t i = 1; i < m->n; i++)
		if (strcmp(m->v[i - 1].key, m->v[i].key) > 0) {
			qsort(m->v, m->n, sizeof(*m->v), by_key);
			return;
		}
}

static bool is_id(const char *s, size_t len)
{
	return (len == 40 || len == 64) && strspn(s, "0123456789abcdef") == len;
}

/* Of one worktree only, or of an operation under way, or moved by other means. */
static bool is_no_concern(const char *ref)
{
	static const char *const skipped[] = { "refs/stash", "refs/atoll/", "refs/bisect/",
		                               "refs/worktree/", "refs/rewritten/" };

	for (size_t i = 0; i < sizeof(skipped) / sizeof(skipped[0]); i++)
		if (strncmp(ref, skipped[i], strlen(skipped[i])) == 0)
			return true;
	return strncmp(ref, "refs/", 5) != 0;
}

int git_map_refs(struct git_map *m, char *text, struct error *err)
{
	int r = 0;

	*m = (struct git_map){ .text = text };
	for (char *line = text; *line && r == 0;) {
		char *end = line + strcspn(line, "\n");
		char *ref = strchr(line, ' ');
		char *symref = ref ? strchr(ref + 1, ' ') : NULL;

		if (!*end || !symref || symref > end)
			return error_set(err, -ATOLL_E_CANNOT_PREPARE,
			                 "git for-each-ref said what "
			                 "cannot be understood");
		*end = *ref = *symref = '\0';
		if (!is_id(line, (size_t)(ref - line)))
			return error_set(err, -ATOLL_E_CANNOT_PREPARE, "'%s' is no object", line);
		if (symref + 1 == end && !is_no_concern(ref + 1))
			r = map_add(m, ref + 1, line, err);
		line = end + 1;
	}
	map_sort(m);
	return r;
}

/* "MODE ID STAGE\tPATH" */
int git_map_index(struct git_map *m, char *text, size_t len, const char **ret_unmerged,
                  struct error *err)
{
	int r = 0;

	*m = (struct git_map){ .text = text };
	*ret_unmerged = NULL;
	for (char *at = text; at < text + len && r == 0;) {
		char *tab = strchr(at, '\t');
		char *stage = tab && tab - at > 2 ? tab - 2 : NULL;

		if (!stage || *stage != ' ' || !is_id(at + 7, (size_t)(stage - at) - 7))
			return error_set(err, -ATOLL_E_CANNOT_PREPARE,
			                 "git ls-files said what "
			                 "cannot be understood");
		if (stage[1] != '0')
			*ret_unmerged = tab + 1;
		*stage = '\0';
		r = map_add(m, tab + 1, at, err);
		at = tab + 1 + strlen(tab + 1) + 1;
	}
	map_sort(m);
	return r;
}

static int three_of_key(const char *key, const struct git_map *base, const struct git_map *v,
                        const struct git_map *now, git_three_fn fn, void *ctx)
{
	const char *b = git_map_get(base, key), *mine = git_map_get(v, key);
	const char *n;

	if (strcmp(b, mine) == 0)
		return 0;
	n = git_map_get(now, key);
	return strcmp(n, mine) == 0 ? 0 : fn(ctx, key, b, mine, n);
}

int git_three_way(const struct git_map *base, const struct git_map *v, const struct git_map *now,
                  git_three_fn fn, void *ctx)
{
	size_t i = 0, k = 0;
	int r = 0;

	while ((i < base->n || k < v->n) && r >= 0) {
		int order = i == base->n ? 1 : k == v->n ? -1 : strcmp(base->v[i].key, v->v[k].key);
		const char *key = order <= 0 ? base->v[i].key : v->v[k].key;

		if (order != 0 || strcmp(base->v[i].value, v->v[k].value) != 0)
			r = three_of_key(key, base, v, now, fn, ctx);
		i += order <= 0;
		k += order >= 0;
	}
	return r;
}

/* ---- swaps ---- */

void git_swap_add(struct git_swaps *s, const char *key, const char *old_value,
                  const char *new_value)
{
	if (grow((void **)&s->v, &s->cap, s->n + 1, sizeof(*s->v)) < 0)
		BUG("out of memory");
	s->v[s->n++] = (struct git_swap){ xstrdup(key), xstrdup(old_value), xstrdup(new_value) };
}

void git_swap_done(struct git_swap *s)
{
	free(s->key);
	free(s->old_value);
	free(s->new_value);
}

void git_record_done(struct git_record *r)
{
	for (size_t p = 0; p < GIT_PART_END_; p++) {
		for (size_t i = 0; i < r->parts[p].n; i++)
			git_swap_done(&r->parts[p].v[i]);
		free(r->parts[p].v);
	}
	free(r->pack);
	*r = GIT_RECORD_INIT;
}

bool git_record_empty(const struct git_record *r)
{
	for (size_t p = 0; p < GIT_PART_END_; p++)
		if (r->parts[p].n)
			return false;
	return true;
}

static void put(struct strbuf *sb, const char *field)
{
	strbuf_add(sb, field, strlen(field) + 1);
}

int git_record_write(const struct git_record *r, int batch_fd, char ret_hash[HASH_TEXT_LEN],
                     struct error *err)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	cleanup_close int fd = FD_NONE;
	int rc;

	put(&sb, MAGIC);
	put(&sb, r->files);
	put(&sb, r->pack ? r->pack : "");
	for (size_t p = 0; p < GIT_PART_END_; p++)
		for (size_t i = 0; i < r->parts[p].n; i++) {
			put(&sb, part_names[p]);
			put(&sb, r->parts[p].v[i].key);
			put(&sb, r->parts[p].v[i].old_value);
			put(&sb, r->parts[p].v[i].new_value);
		}
	(void)fs_unlink_at(batch_fd, GIT_RECORD);
	rc = fs_create_at(batch_fd, GIT_RECORD, 0600, &fd);
	if (rc >= 0)
		rc = fs_write_all(fd, sb.buf, sb.len);
	if (rc < 0)
		return error_sys(err, rc, "write the record", GIT_RECORD);
	hash_buffer(sb.buf, sb.len, ret_hash);
	return 0;
}

/* ---- reading ---- */

struct reader {
	const char *at, *end;
};

static const char *next(struct reader *r)
{
	const char *field = r->at, *nul;

	nul = field < r->end ? memchr(field, '\0', (size_t)(r->end - field)) : NULL;
	if (!nul)
		return NULL;
	r->at = nul + 1;
	return field;
}

static struct git_swaps *find_part(struct git_record *r, const char *name)
{
	for (size_t p = 0; p < GIT_PART_END_; p++)
		if (strcmp(part_names[p], name) == 0)
			return &r->parts[p];
	return NULL;
}

static bool parse(const char *data, size_t len, struct git_record *ret)
{
	struct reader in = { data, data + len };
	const char *magic = next(&in), *files = next(&in), *pack = next(&in), *word;

	if (!magic || !files || !pack || strcmp(magic, MAGIC) != 0 ||
	    strlen(files) >= sizeof(ret->files))
		return false;
	(void)memcpy(ret->files, files, strlen(files) + 1);
	ret->pack = *pack ? xstrdup(pack) : NULL;
	while ((word = next(&in))) {
		struct git_swaps *part = find_part(ret, word);
		const char *key = next(&in), *old_value = next(&in), *new_value = next(&in);

		if (!part || !key || !old_value || !new_value)
			return false;
		git_swap_add(part, key, old_value, new_value);
	}
	return in.at == in.end;
}

int git_record_read(int batch_fd, const char *hash, struct git_record *ret, struct error *err)
{
	cleanup_close int fd = openat(batch_fd, GIT_RECORD, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_free char *data = NULL;
	char now[HASH_TEXT_LEN];
	size_t len;
	int r = fd < 0 ? -errno : fs_read_all(fd, LIMIT_MANIFEST, &data, &len);

	if (r == -ENOENT)
		return r;
	if (r < 0)
		return error_sys(err, r, "read the record", GIT_RECORD);
	hash_buffer(data, len, now);
	if ((*hash && strcmp(hash, now) != 0) || !parse(data, len, ret))
		return error_set(err, -ATOLL_E_DAMAGED,
		                 "the record of what was to be done to the "
		                 "repository is damaged");
	return 0;
}

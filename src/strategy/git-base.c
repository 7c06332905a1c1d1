/* SPDX-License-Identifier: Apache-2.0 */
/* What the workspace was made of: HEAD, refs and index of the repository, then. */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/copy.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/limits.h"
#include "util/mem.h"

#define NAME_LEN 48
#define HEAD_MAX 4096
#define REFS_MAX (1u << 30)

void git_base_done(struct git_base *b)
{
	free(b->head);
	free(b->agreed_stash);
	git_map_done(&b->refs);
	git_map_done(&b->agreed);
	*b = GIT_BASE_INIT;
}

static int open_work(struct atoll_participant *p, int *ret_fd)
{
	*ret_fd = open(p->work, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? error_sys(&p->err, -errno, "open", p->work) : 0;
}

static void names(const struct atoll_participant *p, char refs[NAME_LEN], char index[NAME_LEN])
{
	(void)snprintf(refs, NAME_LEN, "refs%" PRIu64, p->generation);
	(void)snprintf(index, NAME_LEN, "index%" PRIu64, p->generation);
}

char *git_base_index(const struct atoll_participant *p)
{
	return xasprintf("%s/index%" PRIu64, p->work, p->generation);
}

bool git_base_exists(const struct atoll_participant *p)
{
	cleanup_free char *path = xasprintf("%s/refs%" PRIu64, p->work, p->generation);
	struct fs_stat st;

	return fs_stat_at(AT_FDCWD, path, 0, &st) == 0;
}

/* ---- reading a repository ---- */

static bool head_valid(const char *head)
{
	static const char branch[] = "ref: refs/";
	size_t len = strlen(head);

	if (strncmp(head, branch, sizeof(branch) - 1) == 0)
		return strcspn(head + sizeof(branch) - 1, " \t\n~^:?*[\\") ==
		       len - (sizeof(branch) - 1);
	return (len == 40 || len == 64) && strspn(head, "0123456789abcdef") == len;
}

int git_head_read(struct atoll_participant *p, int git_fd, const char *name, char **ret)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r = resolve_file(git_fd, name, &fd);

	if (r >= 0)
		r = fs_read_all(fd, HEAD_MAX, &text, &len);
	if (r == -ENXIO) /* a whiteout */
		r = -ENOENT;
	if (r < 0)
		return error_sys(&p->err, r, "read HEAD of", p->root);
	text[strcspn(text, "\n")] = '\0';
	if (!head_valid(text))
		return error_set(&p->err, -ATOLL_E_UNSUPPORTED,
		                 "HEAD of '%s' is neither a branch nor a commit", p->root);
	*ret = take_ptr(text);
	return 0;
}

static int refs_text(struct atoll_participant *p, const struct git *g, struct strbuf *out)
{
	return git_do(p, g, GIT_ARGS("for-each-ref", "--format=%(objectname) %(refname) %(symref)"),
	              NULL, out);
}

int git_refs_read(struct atoll_participant *p, const struct git *g, struct git_map *ret)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	int r = refs_text(p, g, &out);

	return r < 0 ? r : git_map_refs(ret, strbuf_take(&out), &p->err);
}

int git_index_read(struct atoll_participant *p, const char *dir, const char *path,
                   struct git_map *ret)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	struct git g = GIT_AT(dir);
	const char *unmerged;
	size_t len;
	int r;

	g.index = path;
	r = git_do(p, &g, GIT_ARGS("ls-files", "-s", "-z"), NULL, &out);
	if (r < 0)
		return r;
	len = out.len;
	r = git_map_index(ret, strbuf_take(&out), len, &unmerged, &p->err);
	if (r >= 0 && unmerged)
		r = error_set(&p->err, -ATOLL_E_CONFLICT, "'%s' is not merged yet in the index",
		              unmerged);
	return r;
}

/* ---- the record ---- */

/* Asked of the disk, since mostly there is none. */
static bool has_stash(int git_fd)
{
	struct fs_stat log;

	return fs_stat_at(git_fd, "logs/refs/stash", 0, &log) == 0;
}

static int write_refs(struct atoll_participant *p, const char *dir, int git_fd, int work_fd,
                      const char *name)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	cleanup_free char *head = NULL;
	cleanup_close int fd = FD_NONE;
	const struct git g = GIT_AT(dir);
	int r = git_head_read(p, git_fd, "HEAD", &head);

	if (r < 0)
		return r;
	strbuf_printf(&sb, "%s\n", head);
	r = refs_text(p, &g, &sb);
	strbuf_putc(&sb, '\n');
	if (r >= 0 && has_stash(git_fd))
		r = git_stash_list(p, &g, &sb);
	if (r < 0)
		return r;
	r = fs_create_at(work_fd, name, 0600, &fd);
	if (r >= 0)
		r = fs_write_all(fd, sb.buf, sb.len);
	return r < 0 ? error_sys(&p->err, r, "write the base record in", p->work) : 0;
}

/* Who dies in here leaves a torn record, of a generation that the registry does not know of: it counts
 * once the workspace is whole, and until then the next use makes all of it anew. */
int git_base_write(struct atoll_participant *p)
{
	char refs[NAME_LEN], index[NAME_LEN];
	cleanup_close int work_fd = FD_NONE, git_fd = FD_NONE;
	cleanup_free char *work = git_work_path(p);
	cleanup_free char *dir = xasprintf("%s/.git", git_ground(p)->layered ? p->root : work);
	int r = open_work(p, &work_fd);

	if (r < 0)
		return r;
	git_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (git_fd < 0)
		return error_sys(&p->err, -errno, "open", dir);
	names(p, refs, index);
	(void)fs_unlink_at(work_fd, refs); /* what an interrupted attempt left */
	(void)fs_unlink_at(work_fd, index);
	/* Replaced by rename, never written to: what is opened is whole. */
	r = copy_entry_at(git_fd, "index", work_fd, index, NULL, NULL);
	if (r < 0 && r != -ENOENT)
		return error_sys(&p->err, r, "copy the index of", p->root);
	crashpoint("git.base.index");
	return write_refs(p, dir, git_fd, work_fd, refs);
}

/* ---- what both sides agreed on since ---- */

/* NAME and the generation: a line with the hash of what follows. */
static char *agreed_name(const struct atoll_participant *p, const char *name)
{
	return xasprintf("%s%" PRIu64, name, p->generation);
}

/* NULL: there is none that is whole. */
static char *read_agreed(const struct atoll_participant *p, int work_fd, const char *what,
                         size_t *ret_len)
{
	cleanup_free char *name = agreed_name(p, what);
	cleanup_close int fd = FD_NONE;
	cleanup_free char *text = NULL;
	char hash[HASH_TEXT_LEN];
	size_t len;

	if (resolve_file(work_fd, name, &fd) < 0 || fs_read_all(fd, REFS_MAX, &text, &len) < 0 ||
	    len < HASH_TEXT_LEN || text[HASH_TEXT_LEN - 1] != '\n')
		return NULL;
	hash_buffer(text + HASH_TEXT_LEN, len - HASH_TEXT_LEN, hash);
	if (memcmp(text, hash, HASH_TEXT_LEN - 1) != 0)
		return NULL;
	*ret_len = len - HASH_TEXT_LEN;
	(void)memmove(text, text + HASH_TEXT_LEN, *ret_len + 1);
	return take_ptr(text);
}

/* Not synced: after a power cut a torn one is known by its hash. */
static int write_agreed(const struct atoll_participant *p, int work_fd, const char *what,
                        const struct strbuf *text)
{
	cleanup_free char *name = agreed_name(p, what);
	cleanup_close int fd = FD_NONE;
	char hash[HASH_TEXT_LEN];
	int r;

	hash_buffer(strbuf_str(text), text->len, hash);
	hash[HASH_TEXT_LEN - 1] = '\n';
	(void)fs_unlink_at(work_fd, "agreed.new");
	r = fs_create_at(work_fd, "agreed.new", 0600, &fd);
	if (r >= 0)
		r = fs_write_all(fd, hash, sizeof(hash));
	if (r >= 0)
		r = fs_write_all(fd, strbuf_str(text), text->len);
	return r < 0 ? r : fs_rename_over(work_fd, "agreed.new", name);
}

struct agreement {
	const struct git_map *v, *now;
	struct strbuf text;
	bool changed;
};

static void agree_on(struct agreement *a, const char *ref, const char *before)
{
	const char *v = git_map_get(a->v, ref), *now = git_map_get(a->now, ref);
	const char *value = strcmp(v, now) == 0 ? v : before;

	a->changed = a->changed || strcmp(value, before) != 0;
	if (*value)
		strbuf_printf(&a->text, "%s %s \n", value, ref);
}

void git_base_agree(struct atoll_participant *p, const struct git_base *b, const struct git_map *v,
                    const struct git_map *now, const char *stash)
{
	struct agreement a = { .v = v,
		               .now = now,
		               .text = STRBUF_INIT,
		               .changed = strcmp(stash, b->agreed_stash) != 0 };
	cleanup_close int work_fd = FD_NONE;

	for (size_t i = 0; i < b->agreed.n; i++)
		agree_on(&a, b->agreed.v[i].key, b->agreed.v[i].value);
	for (size_t i = 0; i < v->n; i++)
		if (!*git_map_get(&b->agreed, v->v[i].key))
			agree_on(&a, v->v[i].key, "");
	strbuf_printf(&a.text, "\n%s", stash);
	if (a.changed &&
	    (open_work(p, &work_fd) < 0 || write_agreed(p, work_fd, "agreed", &a.text) < 0))
		error_done(&p->err);
	strbuf_done(&a.text);
}

/* As an id of an entry that neither side had. */
#define NO_ENTRY "000000 0000000000000000000000000000000000000000"

const char *git_staged_base(const struct git_map *staged, const struct git_map *base,
                            const char *path)
{
	const char *value = git_map_get(staged, path);

	if (!*value)
		return git_map_get(base, path);
	return strcmp(value, NO_ENTRY) == 0 ? "" : value;
}

int git_staged_read(struct atoll_participant *p, struct git_map *ret)
{
	cleanup_close int work_fd = FD_NONE;
	const char *unmerged;
	size_t len;
	char *text;
	int r = open_work(p, &work_fd);

	if (r < 0)
		return r;
	text = read_agreed(p, work_fd, "staged", &len);
	return text ? git_map_index(ret, text, len, &unmerged, &p->err) : 0;
}

static void add_staged(struct strbuf *out, const char *path, const char *value)
{
	strbuf_printf(out, "%s 0\t%s", *value ? value : NO_ENTRY, path);
	strbuf_putc(out, '\0');
}

/* What both have at PATH, if that is not what the record says; else that. */
static bool agree_on_entry(struct strbuf *out, const struct git_staged *s, const char *path)
{
	const char *v = git_map_get(s->v, path), *now = git_map_get(s->now, path);
	const char *before = git_staged_base(s->staged, s->base, path);
	const char *value = strcmp(v, now) == 0 ? v : before;

	if (strcmp(value, git_map_get(s->base, path)) != 0)
		add_staged(out, path, value);
	return strcmp(value, before) != 0;
}

void git_staged_agree(struct atoll_participant *p, const struct git_staged *s)
{
	cleanup_strbuf struct strbuf text = STRBUF_INIT;
	cleanup_close int work_fd = FD_NONE;
	bool changed = false;

	if (s->now == s->base && !s->staged->n) /* no other process changed any */
		return;
	for (size_t i = 0; i < s->base->n; i++)
		changed |= agree_on_entry(&text, s, s->base->v[i].key);
	for (size_t i = 0; i < s->v->n; i++)
		if (!*git_map_get(s->base, s->v->v[i].key))
			changed |= agree_on_entry(&text, s, s->v->v[i].key);
	for (size_t i = 0; i < s->staged->n; i++)
		if (!*git_map_get(s->base, s->staged->v[i].key) &&
		    !*git_map_get(s->v, s->staged->v[i].key))
			changed |= agree_on_entry(&text, s, s->staged->v[i].key);
	if (changed &&
	    (open_work(p, &work_fd) < 0 || write_agreed(p, work_fd, "staged", &text) < 0))
		error_done(&p->err);
}

/* Lines of refs, an empty one, and the stash, which is cut off. */
static char *split_stash(char *text)
{
	char *stash = *text == '\n' ? text : strstr(text, "\n\n");

	if (!stash)
		return NULL;
	stash += stash != text;
	*stash = '\0';
	return xstrdup(stash + 1);
}

int git_base_read(struct atoll_participant *p, struct git_base *ret)
{
	char refs[NAME_LEN], index[NAME_LEN];
	cleanup_close int work_fd = FD_NONE, fd = FD_NONE;
	cleanup_free char *text = NULL, *stash = NULL;
	char *end, *agreed;
	size_t len;
	int r = open_work(p, &work_fd);

	if (r < 0)
		return r;
	names(p, refs, index);
	r = resolve_file(work_fd, refs, &fd);
	if (r >= 0)
		r = fs_read_all(fd, REFS_MAX, &text, &len);
	if (r < 0)
		return error_sys(&p->err, r, "read the base record in", p->work);
	end = strchr(text, '\n');
	stash = end ? split_stash(end + 1) : NULL;
	if (!stash)
		return error_set(&p->err, -ATOLL_E_DAMAGED, "the base record in '%s' is damaged",
		                 p->work);
	ret->head = xstrndup(text, (size_t)(end - text));
	agreed = read_agreed(p, work_fd, "agreed", &len);
	ret->agreed_stash = agreed ? split_stash(agreed) : NULL;
	if (!ret->agreed_stash) {
		free(agreed);
		agreed = xstrdup(end + 1);
		ret->agreed_stash = take_ptr(stash);
	}
	r = git_map_refs(&ret->agreed, agreed, &p->err);
	return r < 0 ? r : git_map_refs(&ret->refs, xstrdup(end + 1), &p->err);
}

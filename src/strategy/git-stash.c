/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stash: the log of refs/stash, of which every line is an entry. An entry is known by its commit,
 * wherever it stands in the list; one that the plan made is put on top, in the order of the plan's
 * list, one that it dropped is dropped. An undo puts those that were dropped on top, in the order that they had: swaps
 * are recorded oldest first and carried out in that order both ways.
 */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/mem.h"

#define REF "refs/stash"

/* "ID MESSAGE" a line, the newest first. */
int git_stash_list(struct atoll_participant *p, const struct git *g, struct strbuf *out)
{
	int r = git_ask(p, g, GIT_ARGS("rev-parse", "-q", "--verify", REF), NULL, NULL);

	return r != 0 ? (r < 0 ? r : 0)
	              : git_do(p, g, GIT_ARGS("log", "-g", "--format=%H %gs", REF, "--"), NULL,
	                       out);
}

/* Position of the entry ID in LIST, or -1. */
static int position(const struct strbuf *list, const char *id)
{
	const char *at = strbuf_str(list);
	size_t len = strlen(id);

	for (int n = 0; *at; n++) {
		if (strncmp(at, id, len) == 0 && at[len] == ' ')
			return n;
		at += strcspn(at, "\n");
		at += *at == '\n';
	}
	return -1;
}

struct line {
	const char *at;
	size_t len;
};

static struct line *split(const struct strbuf *list, size_t *ret_n)
{
	const char *at = strbuf_str(list);
	struct line *v = NULL;
	size_t cap = 0;

	*ret_n = 0;
	while (*at) {
		size_t len = strcspn(at, "\n");

		if (grow((void **)&v, &cap, *ret_n + 1, sizeof(*v)) < 0)
			BUG("out of memory");
		v[(*ret_n)++] = (struct line){ at, len };
		at += len + (at[len] == '\n');
	}
	return v;
}

/* Lines of LIST that are in neither of the others become swaps: oldest first. IS_NEW: they are new, else
 * they are gone. */
static void add_swaps(struct git_swaps *swaps, const struct strbuf *list,
                      const struct strbuf *other, const struct strbuf *now, bool is_new)
{
	size_t n;
	cleanup_free struct line *lines = split(list, &n);

	for (size_t i = n; i-- > 0;) {
		size_t id_len = strcspn(lines[i].at, " \n");
		cleanup_free char *id = xstrndup(lines[i].at, id_len);
		cleanup_free char *entry = xstrndup(lines[i].at + id_len, lines[i].len - id_len);

		if (position(other, id) >= 0 || (position(now, id) >= 0) == is_new)
			continue;
		git_swap_add(swaps, id, is_new ? "" : entry, is_new ? entry : "");
	}
}

/* Entries of LIST that are in OTHER, too, or were in both before. */
static void add_agreed(struct strbuf *out, const struct strbuf *list, const struct strbuf *other,
                       const struct strbuf *was)
{
	size_t n;
	cleanup_free struct line *lines = split(list, &n);

	for (size_t i = 0; i < n; i++) {
		cleanup_free char *id = xstrndup(lines[i].at, strcspn(lines[i].at, " \n"));

		if (position(out, id) < 0 && (position(other, id) >= 0 || position(was, id) >= 0))
			strbuf_printf(out, "%.*s\n", (int)lines[i].len, lines[i].at);
	}
}

int git_stash_compare(struct atoll_participant *p, struct git_view *v, const char *agreed,
                      struct git_record *rec, struct strbuf *ret_agreed)
{
	cleanup_strbuf struct strbuf was = STRBUF_INIT, mine = STRBUF_INIT, now = STRBUF_INIT;
	struct git_state *st;
	struct git g = GIT_AT(v->path), real;
	int r = git_state(p, &st);

	if (r < 0)
		return r;
	g.alternates = v->alternates;
	real = GIT_AT(st->dir);
	strbuf_puts(&was, agreed);
	r = git_view_objects(p, v);
	if (r >= 0)
		r = git_stash_list(p, &g, &mine);
	if (r >= 0)
		r = git_stash_list(p, &real, &now);
	if (r < 0)
		return r;
	add_swaps(&rec->parts[GIT_STASH], &mine, &was, &now, true);
	add_swaps(&rec->parts[GIT_STASH], &was, &mine, &now, false);
	add_agreed(ret_agreed, &mine, &now, &was);
	add_agreed(ret_agreed, &now, &mine, &was);
	return 0;
}

static int drop(struct atoll_participant *p, const struct git *g, const struct strbuf *list, int n)
{
	cleanup_free char *entry = xasprintf(REF "@{%d}", n);

	/* The last one takes the ref with it. */
	if (strcspn(strbuf_str(list), "\n") + 1 >= list->len)
		return git_do(p, g, GIT_ARGS("update-ref", "-d", REF), NULL, NULL);
	return git_do(p, g, GIT_ARGS("reflog", "delete", "--updateref", "--rewrite", entry), NULL,
	              NULL);
}

static int swap_one(struct atoll_participant *p, const struct git *g, const struct git_swap *s,
                    bool back)
{
	const char *to = back ? s->old_value : s->new_value;
	cleanup_strbuf struct strbuf list = STRBUF_INIT;
	int n, r = git_stash_list(p, g, &list);

	if (r < 0)
		return r;
	n = position(&list, s->key);
	if (!*to)
		return n < 0 ? 0 : drop(p, g, &list, n);
	if (n >= 0)
		return 0;
	return git_do(
		p, g,
		GIT_ARGS("update-ref", "--create-reflog", "-m", to + (*to == ' '), REF, s->key),
		NULL, NULL);
}

int git_stash_swap(struct atoll_participant *p, const struct git_record *rec, bool back)
{
	const struct git_swaps *swaps = &rec->parts[GIT_STASH];
	struct git_state *st;
	struct git g;
	int r = git_state(p, &st);

	if (r < 0)
		return r;
	g = GIT_AT(st->dir);
	g.durable = true;
	g.held_fd = st->busy_fd;
	for (size_t i = 0; i < swaps->n && r >= 0; i++)
		r = swap_one(p, &g, &swaps->v[i], back);
	return r;
}

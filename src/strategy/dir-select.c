/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a batch takes of a change set. A new directory may be taken in part: it is made, with those
 * of its entries that are selected. One that was replaced, deleted or put in the place of something
 * else goes as a whole or stays as a whole.
 */
#include "strategy/dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util/cleanup.h"
#include "util/escape.h"
#include "util/mem.h"

struct chooser {
	const struct selection *s;
	bool *matched;  /* per s->paths: something changed there */
	size_t in, out; /* entries of the change at hand, selected and not */
	char *left;     /* the first that is not */
};

static void match(struct chooser *ch, const char *path)
{
	for (size_t i = 0; i < ch->s->paths.n; i++)
		if (path_below(path, ch->s->paths.v[i]))
			ch->matched[i] = true;
}

static void choose(struct chooser *ch, const char *path, bool is_dir)
{
	match(ch, path);
	if (selection_has(ch->s, path, is_dir)) {
		ch->in++;
		return;
	}
	if (ch->out++ == 0)
		ch->left = xstrdup(path);
}

static int choose_entry(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
                        const struct fs_stat *old_stat, const struct fs_stat *new_stat,
                        const char *link_target)
{
	const struct fs_stat *st = new_stat ? new_stat : old_stat;

	(void)kind;
	(void)what;
	(void)link_target;
	choose(ctx, path, st && S_ISDIR(st->mode));
	return 0;
}

static int refuse_split(struct atoll_participant *p, const struct change *c, const char *inside)
{
	cleanup_free char *dir = escape_dup(c->path), *left = escape_dup(inside);

	(void)error_set(&p->err, -ATOLL_E_POLICY,
	                "'%s' was %s as a whole, so it can only be committed as a whole; '%s' is "
	                "not selected",
	                dir, c->op == CHANGE_DELETE ? "deleted" : "replaced", left);
	error_hint(&p->err, "name '%s' itself, or leave it out", dir);
	error_cause(&p->err, "select", c->path, 0, NULL);
	return -ATOLL_E_POLICY;
}

/* 1: taken, 0: left. */
static int choose_change(struct atoll_participant *p, const struct dir_source *source,
                         struct chooser *ch, struct change *c)
{
	int r = 0;

	ch->in = ch->out = 0;
	free(ch->left);
	ch->left = NULL;
	if (change_is_tree(c))
		r = source->expand(source->ctx, c, choose_entry, ch, &p->err);
	/* A directory that was replaced by an equal one has no entry of its own to show. */
	if (!change_is_tree(c) || (r >= 0 && ch->in + ch->out == 0))
		choose(ch, c->path, S_ISDIR(c->base.mode) || S_ISDIR(c->work.mode));
	if (r < 0 || ch->in == 0)
		return r < 0 ? r : 0;
	if (ch->out && c->op != CHANGE_CREATE)
		return refuse_split(p, c, ch->left);
	c->in_part = ch->out > 0;
	return 1;
}

/* 1 or 0: a name in DIR itself comes, changes or goes. */
static int holds_change(const struct changeset *cs, const char *dir)
{
	size_t i, len = strlen(dir);
	int r = changeset_from(cs, dir, &i);

	for (; r >= 0 && i < cs->v.n; i++) {
		cleanup_change struct change c = CHANGE_INIT;
		const char *slash;

		r = changeset_get(&cs->v, i, &c);
		if (r < 0 || !path_below(c.path, dir))
			break;
		slash = strrchr(c.path, '/');
		if (c.op != CHANGE_ATTR && *c.path && (size_t)(slash ? slash - c.path : 0) == len)
			return 1;
	}
	return r;
}

/* Directories whose times go with what is taken. */
static int choose_dirs(const struct selection *s, struct changeset *cs)
{
	size_t kept = 0;
	int r = 0;

	for (size_t i = 0; i < cs->n_dirs; i++) {
		if (r >= 0)
			r = holds_change(cs, cs->dirs[i].path);
		if (r != 0 || selection_has(s, cs->dirs[i].path, true))
			cs->dirs[kept++] = cs->dirs[i];
		else
			free(cs->dirs[i].path);
	}
	cs->n_dirs = kept;
	return r < 0 ? r : 0;
}

static void note_unmatched(struct atoll_participant *p, const struct chooser *ch)
{
	for (size_t i = 0; i < ch->s->paths.n; i++)
		if (!ch->matched[i])
			atoll_participant_note(p, ATOLL_NOTE_WARNING, ch->s->paths.v[i],
			                       "nothing changed there");
}

int dir_select(struct atoll_participant *p, const struct dir_source *source, struct changeset *cs)
{
	cleanup_free bool *matched = NULL;
	struct chooser ch = { .s = p->batch.select };
	size_t kept = 0;
	int r = 0;

	p->rest = false;
	if (selection_is_whole(p->batch.select))
		return 0;
	ch.matched = matched = xcalloc(ch.s->paths.n + 1, sizeof(*matched));
	for (size_t i = 0; i < cs->v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		r = changeset_get(&cs->v, i, &c);
		r = r < 0 ? dir_unreadable(p, r) : choose_change(p, source, &ch, &c);
		p->rest = p->rest || r == 0 || c.in_part;
		if (r > 0)
			spool_move(&cs->v, i, kept++);
		if (r > 0 && c.in_part)
			r = changeset_set(&cs->v, kept - 1, &c) < 0 ? dir_unreadable(p, -ENOMEM)
			                                            : 1;
	}
	free(ch.left);
	if (r < 0)
		return r;
	spool_cut(&cs->v, kept);
	if (p->rest)
		r = choose_dirs(ch.s, cs);
	if (r < 0)
		return dir_unreadable(p, r);
	if (selection_is_inside(ch.s))
		note_unmatched(p, &ch);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a plan's diff and showing it in one of its forms. */
#include "answer/diff-view.h"

#include "util/cleanup.h"
#include "util/limits.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void diff_view_init(struct diff_view *v, struct atoll_plan *plan, FILE *out)
{
	*v = (struct diff_view){
		.plan = plan,
		.out = out,
		.context = DIFF_CONTEXT,
		.width = DIFF_WIDTH,
		.limits = { .file = LIMIT_TEXT, .lines = LIMIT_TEXT_LINES },
	};
	for (int i = 0; i < PAINT_END_; i++)
		v->paint[i] = "";
}

void diff_view_done(struct diff_view *v)
{
	diff_select_done(&v->select);
	diff_page_free(v->page);
	error_done(&v->err);
	strlist_done(&v->sandboxes);
	free(v->root);
	free(v->next);
}

/* ---- a part of the listing ---- */

static int note_sandbox(void *user, const struct atoll_sandbox_info *info)
{
	strlist_add(user, info->id);
	return 0;
}

static size_t place_of(const struct diff_view *v, const char *id, size_t len)
{
	size_t i = 0;

	while (i < v->sandboxes.n &&
	       (strlen(v->sandboxes.v[i]) != len || memcmp(v->sandboxes.v[i], id, len) != 0))
		i++;
	return i;
}

/* Does it come behind AFTER? Once one does, all do. */
static bool is_behind(struct diff_view *v, const struct atoll_change *change)
{
	size_t len, mine, theirs;

	if (!v->after || v->is_behind)
		return true;
	len = strcspn(v->after, "/");
	theirs = place_of(v, v->after, len);
	mine = place_of(v, change->sandbox, strlen(change->sandbox));
	v->is_behind =
		mine > theirs || (mine == theirs && strcmp(change->path, v->after + len + 1) > 0);
	return v->is_behind;
}

/* -ECANCELED: enough was shown. */
static int take_place(struct diff_view *v, const struct atoll_change *change)
{
	if (!v->limit)
		return 0;
	if (v->totals.all == v->limit)
		return -ECANCELED;
	free(v->next);
	v->next = xasprintf("%s/%s", change->sandbox, change->path);
	return 0;
}

static int find_place(struct diff_view *v)
{
	int r;

	if (!v->after)
		return 0;
	if (!strchr(v->after, '/'))
		return error_set(&v->err, -ATOLL_E_INVALID,
		                 "'%s' is no place in a diff: SANDBOX/PATH", v->after);
	r = atoll_plan_sandboxes(v->plan, note_sandbox, &v->sandboxes, v->res);
	if (r < 0)
		return r;
	if (place_of(v, v->after, strcspn(v->after, "/")) == v->sandboxes.n)
		return error_set(&v->err, -ATOLL_E_NOT_FOUND, "'%s' names no sandbox of plan '%s'",
		                 v->after, atoll_plan_name(v->plan));
	return 0;
}

/* ---- showing ---- */

static void count(struct diff_totals *t, const struct atoll_change *change)
{
	uint32_t mode = change->new_mode ? change->new_mode : change->old_mode;

	t->all++;
	t->kinds[change->kind]++;
	t->conflicts += (change->what & ATOLL_CHANGE_CONFLICT) != 0;
	t->directories += S_ISDIR(mode);
	t->files += !S_ISDIR(mode);
}

/* Whoever reads it may be gone: nobody has to read the rest of the diff then. */
static int check_out(const struct diff_view *v)
{
	return v->gives_up && ferror(v->out) ? -EPIPE : 0;
}

/* A job whose turn has come. */
static int show_job(struct diff_view *v, struct diff_job *job)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	if (job->err.code) {
		error_move(&v->err, &job->err);
		return v->err.code;
	}
	v->totals.lines.added += job->count.added;
	v->totals.lines.deleted += job->count.deleted;
	if (v->as_json) {
		diff_json_change(v, &job->change, job);
		return check_out(v);
	}
	if (v->form == DIFF_STAT) {
		diff_page_add(v, v->page, job);
		return 0;
	}
	diff_patch_root(v, &job->change);
	diff_line_beside(&sb, v, job);
	(void)fputs(strbuf_str(&sb), v->out);
	(void)fwrite(strbuf_str(&job->patch), 1, job->patch.len, v->out);
	return check_out(v);
}

static int show_change(void *user, const struct atoll_change *change)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	struct diff_view *v = user;
	int r;

	if (!is_behind(v, change) || !diff_select_has(&v->select, change))
		return 0;
	r = take_place(v, change);
	if (r < 0)
		return r;
	count(&v->totals, change);
	if (v->pipe)
		return diff_pipe_push(v->pipe, diff_job_new(v, change));
	if (v->as_json) {
		diff_json_change(v, change, NULL);
		return check_out(v);
	}
	if (v->form == DIFF_CONFLICTS)
		diff_conflict(&sb, v, change);
	else
		diff_line(&sb, v, change, 0);
	(void)fputs(strbuf_str(&sb), v->out);
	return check_out(v);
}

int64_t diff_show(struct diff_view *v)
{
	int64_t n = find_place(v);
	int r = 0;

	if (n < 0)
		return n;
	if (v->form == DIFF_STAT || v->form == DIFF_PATCH)
		v->pipe = diff_pipe_new(v, show_job);
	if (v->form == DIFF_STAT)
		v->page = diff_page_new();
	n = atoll_plan_diff(v->plan, show_change, v, v->res);
	if (v->pipe)
		r = diff_pipe_end(v->pipe);
	if (v->page)
		diff_page_end(v, v->page);
	if (n != -ECANCELED || !v->limit) {
		free(v->next);
		v->next = NULL;
	} else {
		n = (int64_t)v->totals.all;
	}
	return r < 0 ? r : n;
}

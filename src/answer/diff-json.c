/* SPDX-License-Identifier: Apache-2.0 */
/* The diff as one JSON object, written as the changes come. */
#include "answer/diff-view.h"

#include "answer/answer.h"

static const struct {
	unsigned bit;
	const char *word;
} bits[] = {
	{ ATOLL_CHANGE_CONTENT, "content" },
	{ ATOLL_CHANGE_MODE, "mode" },
	{ ATOLL_CHANGE_OWNER, "owner" },
	{ ATOLL_CHANGE_XATTR, "attributes" },
	{ ATOLL_CHANGE_MTIME, "mtime" },
	{ ATOLL_CHANGE_TYPE, "type" },
	{ ATOLL_CHANGE_ESCAPING_LINK, "escaping-link" },
	{ ATOLL_CHANGE_SETUID, "setuid" },
	{ ATOLL_CHANGE_SPECIAL, "special" },
	{ ATOLL_CHANGE_CONFLICT, "conflict" },
	{ ATOLL_CHANGE_HARD_LINK, "hard-link" },
	{ ATOLL_CHANGE_GIT_PROGRAM, "git-program" },
	{ ATOLL_CHANGE_DATABASE, "database" },
};

/* Not before there is something to say: a failure right away is an object of its own. */
static void begin(struct diff_view *v)
{
	if (v->json_begun)
		return;
	v->json_begun = true;
	answer_begin(&v->json, v->out, "diff");
	answer_plan_of(&v->json, v->plan);
	json_open_array(&v->json, "changes");
}

static void put_what(struct json *j, unsigned what)
{
	json_open_array(j, "what");
	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
		if (what & bits[i].bit)
			json_string(j, NULL, bits[i].word);
	json_close(j);
}

static void put_side(struct json *j, const char *key, uint32_t mode, uint32_t uid, uint32_t gid,
                     uint32_t links)
{
	if (!mode) {
		json_null(j, key);
		return;
	}
	json_open_object(j, key);
	json_uint(j, "uid", uid);
	json_uint(j, "gid", gid);
	json_uint(j, "links", links);
	json_close(j);
}

static void put_content(struct diff_view *v, const struct diff_job *job)
{
	static const char *const words[] = {
		[DIFF_CONTENT_NONE] = "none",       [DIFF_CONTENT_TEXT] = "text",
		[DIFF_CONTENT_BINARY] = "binary",   [DIFF_CONTENT_LARGE] = "large",
		[DIFF_CONTENT_OMITTED] = "omitted", [DIFF_CONTENT_UNREADABLE] = "unreadable",
	};
	struct json *j = &v->json;

	json_string(j, "content", words[job->content]);
	json_uint(j, "insertions", job->count.added);
	json_uint(j, "deletions", job->count.deleted);
	if (job->failed)
		json_string(j, "unreadable", atoll_code_name(job->failed));
	if (v->form == DIFF_PATCH)
		json_data(j, "patch", strbuf_str(&job->patch), job->patch.len);
}

void diff_json_change(struct diff_view *v, const struct atoll_change *change,
                      const struct diff_job *job)
{
	struct json *j = &v->json;

	begin(v);
	json_open_object(j, NULL);
	json_string(j, "sandbox", change->sandbox);
	json_bytes(j, "root", change->root);
	json_bytes(j, "path", change->path);
	json_string(j, "kind", diff_kind_words[change->kind]);
	put_what(j, change->what);
	json_uint(j, "old_mode", change->old_mode);
	json_uint(j, "new_mode", change->new_mode);
	json_uint(j, "old_size", change->old_size);
	json_uint(j, "new_size", change->new_size);
	put_side(j, "old", change->old_mode, change->old_uid, change->old_gid, change->old_links);
	put_side(j, "new", change->new_mode, change->new_uid, change->new_gid, change->new_links);
	json_bytes(j, "text", change->text);
	json_string(j, "conflict", change->conflict);
	json_string(j, "detail", change->detail);
	if (job)
		put_content(v, job);
	json_close(j);
}

static void put_totals(struct json *j, const struct diff_view *v)
{
	const struct diff_totals *t = &v->totals;

	for (size_t k = 0; k < ATOLL_CHANGE_END_; k++)
		json_uint(j, diff_kind_words[k], t->kinds[k]);
	json_uint(j, "conflicts", t->conflicts);
	json_uint(j, "files", t->files);
	json_uint(j, "directories", t->directories);
	if (v->form != DIFF_STAT && v->form != DIFF_PATCH)
		return;
	json_uint(j, "insertions", t->lines.added);
	json_uint(j, "deletions", t->lines.deleted);
}

void diff_json_end(struct diff_view *v, int code, const char *message, const char *hint)
{
	struct json *j = &v->json;

	begin(v);
	json_close(j);
	put_totals(j, v);
	json_bool(j, "complete", code >= 0);
	if (*v->digest)
		json_string(j, "digest", v->digest);
	diff_select_json(&v->select, j);
	if (v->limit && v->next)
		json_bytes(j, "next", v->next);
	else if (v->limit)
		json_null(j, "next");
	if (code < 0) {
		json_open_object(j, "error");
		json_string(j, "code", atoll_code_name(code));
		json_int(j, "exit", atoll_code_exit(code));
		json_string(j, "message", message);
		json_string(j, "hint", hint);
		json_close(j);
	}
	answer_end(j);
}

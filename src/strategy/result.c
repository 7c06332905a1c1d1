/* SPDX-License-Identifier: Apache-2.0 */
/* struct atoll_result: rows per participant, notes, one cause. */
#include "strategy/result.h"

#include <stdlib.h>
#include <string.h>

#include "util/mem.h"

struct atoll_result {
	struct error err;
	enum atoll_atomicity atomicity;
	struct atoll_participant_result *rows;
	size_t n_rows, cap_rows;
	struct atoll_note *notes;
	size_t n_notes, cap_notes;
};

static const char *const outcome_names[] = {
	[ATOLL_OUTCOME_NOT_ATTEMPTED] = "not attempted",
	[ATOLL_OUTCOME_COMMITTED] = "committed",
	[ATOLL_OUTCOME_ROLLED_BACK] = "rolled back",
	[ATOLL_OUTCOME_UNCHANGED] = "unchanged",
	[ATOLL_OUTCOME_NOT_UNDOABLE] = "not undoable",
	[ATOLL_OUTCOME_ROLLBACK_FAILED] = "rollback failed",
	[ATOLL_OUTCOME_SKIPPED] = "skipped",
	[ATOLL_OUTCOME_REMOVED] = "removed",
	[ATOLL_OUTCOME_FAILED] = "failed",
};
_Static_assert(sizeof(outcome_names) / sizeof(outcome_names[0]) == ATOLL_OUTCOME_END_,
               "a name for every outcome");

static const char *const note_names[] = {
	[ATOLL_NOTE_CONFLICT] = "conflict",
	[ATOLL_NOTE_SPECIAL] = "special file",
	[ATOLL_NOTE_SETUID] = "set-id bits",
	[ATOLL_NOTE_ESCAPING_LINK] = "escaping link",
	[ATOLL_NOTE_LATE_WRITE] = "late write",
	[ATOLL_NOTE_WARNING] = "warning",
	[ATOLL_NOTE_UNREADABLE] = "unreadable",
	[ATOLL_NOTE_INFO] = "note",
	[ATOLL_NOTE_KEPT] = "kept",
	[ATOLL_NOTE_GIT_PROGRAM] = "git program",
	[ATOLL_NOTE_OPEN_DATABASE] = "open database",
};
_Static_assert(sizeof(note_names) / sizeof(note_names[0]) == ATOLL_NOTE_END_,
               "a name for every kind of note");

const char *atoll_outcome_name(enum atoll_outcome o)
{
	return (unsigned)o < ATOLL_OUTCOME_END_ ? outcome_names[o] : "unknown";
}

const char *atoll_note_kind_name(enum atoll_note_kind k)
{
	return (unsigned)k < ATOLL_NOTE_END_ ? note_names[k] : "unknown";
}

/* Strings in rows and notes are owned although the public type says const. */
static void set_text(const char **slot, const char *s)
{
	free_const(*slot);
	*slot = xstrdup(s ? s : "");
}

struct atoll_result *atoll_result_new(void)
{
	return xcalloc(1, sizeof(struct atoll_result));
}

void result_reset(struct atoll_result *res)
{
	if (!res)
		return;
	error_done(&res->err);
	for (size_t i = 0; i < res->n_rows; i++) {
		struct atoll_participant_result *row = &res->rows[i];

		free_const(row->sandbox);
		free_const(row->root);
		free_const(row->strategy);
		free_const(row->message);
		free_const(row->cause_op);
		free_const(row->cause_path);
		free_const(row->recovery_path);
	}
	for (size_t i = 0; i < res->n_notes; i++) {
		free_const(res->notes[i].sandbox);
		free_const(res->notes[i].path);
		free_const(res->notes[i].text);
	}
	free(res->rows);
	free(res->notes);
	*res = (struct atoll_result){ 0 };
}

void atoll_result_free(struct atoll_result *r)
{
	result_reset(r);
	free(r);
}

int result_set(struct atoll_result *res, struct error *err, int code)
{
	if (res) {
		error_done(&res->err);
		if (err)
			error_move(&res->err, err);
		res->err.code = code < 0 ? code : 0;
	}
	if (err)
		error_done(err);
	return code;
}

void result_set_atomicity(struct atoll_result *res, enum atoll_atomicity a)
{
	if (res)
		res->atomicity = a;
}

struct atoll_participant_result *result_row(struct atoll_result *res, const char *sandbox,
                                            const char *root, const char *strategy)
{
	struct atoll_participant_result *row;

	if (!res)
		return NULL;
	for (size_t i = 0; i < res->n_rows; i++)
		if (strcmp(res->rows[i].sandbox, sandbox) == 0)
			return &res->rows[i];
	if (grow((void **)&res->rows, &res->cap_rows, res->n_rows + 1, sizeof(*res->rows)) < 0)
		return NULL;
	row = &res->rows[res->n_rows++];
	*row = (struct atoll_participant_result){ 0 };
	set_text(&row->sandbox, sandbox);
	set_text(&row->root, root);
	set_text(&row->strategy, strategy);
	set_text(&row->message, "");
	set_text(&row->cause_op, "");
	set_text(&row->cause_path, "");
	set_text(&row->recovery_path, "");
	return row;
}

void result_row_last(struct atoll_result *res, const char *sandbox)
{
	for (size_t i = 0; res && i + 1 < res->n_rows; i++) {
		struct atoll_participant_result row = res->rows[i];

		if (strcmp(row.sandbox, sandbox) != 0)
			continue;
		memmove(&res->rows[i], &res->rows[i + 1],
		        (res->n_rows - i - 1) * sizeof(*res->rows));
		res->rows[res->n_rows - 1] = row;
		return;
	}
}

void result_row_error(struct atoll_result *res, struct atoll_participant_result *row,
                      const struct error *err)
{
	(void)res;
	if (!row || !err)
		return;
	row->code = err->code;
	set_text(&row->message, err->msg);
	set_text(&row->cause_op, err->op);
	set_text(&row->cause_path, err->path);
	row->cause_errno = err->os_errno;
}

void result_row_recovery_path(struct atoll_result *res, struct atoll_participant_result *row,
                              const char *path)
{
	(void)res;
	if (row)
		set_text(&row->recovery_path, path);
}

void result_note(struct atoll_result *res, enum atoll_note_kind kind, const char *sandbox,
                 const char *path, const char *text)
{
	struct atoll_note *note;

	if (!res ||
	    grow((void **)&res->notes, &res->cap_notes, res->n_notes + 1, sizeof(*res->notes)) < 0)
		return;
	note = &res->notes[res->n_notes++];
	*note = (struct atoll_note){ .kind = kind };
	set_text(&note->sandbox, sandbox);
	set_text(&note->path, path);
	set_text(&note->text, text);
}

int atoll_result_code(const struct atoll_result *r)
{
	return r->err.code;
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

const char *atoll_result_message(const struct atoll_result *r)
{
	return or_empty(r->err.msg);
}

const char *atoll_result_hint(const struct atoll_result *r)
{
	return or_empty(r->err.hint);
}

enum atoll_atomicity atoll_result_atomicity(const struct atoll_result *r)
{
	return r->atomicity;
}

const char *atoll_result_cause_op(const struct atoll_result *r)
{
	return or_empty(r->err.op);
}

const char *atoll_result_cause_path(const struct atoll_result *r)
{
	return or_empty(r->err.path);
}

int atoll_result_cause_errno(const struct atoll_result *r)
{
	return r->err.os_errno;
}

const char *atoll_result_cause_detail(const struct atoll_result *r)
{
	return or_empty(r->err.detail);
}

size_t atoll_result_participants(const struct atoll_result *r)
{
	return r->n_rows;
}

const struct atoll_participant_result *atoll_result_participant(const struct atoll_result *r,
                                                                size_t i)
{
	return i < r->n_rows ? &r->rows[i] : NULL;
}

size_t atoll_result_notes(const struct atoll_result *r)
{
	return r->n_notes;
}

const struct atoll_note *atoll_result_note(const struct atoll_result *r, size_t i)
{
	return i < r->n_notes ? &r->notes[i] : NULL;
}

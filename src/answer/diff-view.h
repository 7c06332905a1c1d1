/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the changes of a plan are shown, by `atoll diff` and by the daemon. They are shown as they are found; however many there are, memory
 * stays the same (but for their names, when a word of the command line names nothing that is there). Where contents matter (--stat, --patch) a change becomes a job:
 *
 *   made      by the thread that reads the diff: strings copied, both sides opened
 *   compared  by any thread, several at a time
 *   shown     by the reading thread, in the order they were made; then freed
 */
#ifndef ANSWER_DIFF_VIEW_H
#define ANSWER_DIFF_VIEW_H

#include <stdatomic.h>
#include <stdio.h>
#include <atoll.h>
#include "answer/paint.h"
#include "diff/text.h"
#include "util/json.h"
#include "util/list.h"
#include "util/strbuf.h"

enum diff_form { DIFF_NAMES = 0, DIFF_STAT, DIFF_PATCH, DIFF_CONFLICTS };

/* What a comparison of the two sides came to. */
enum diff_content {
	DIFF_CONTENT_NONE = 0,  /* nothing to compare, or known to be equal */
	DIFF_CONTENT_TEXT,      /* counted line by line */
	DIFF_CONTENT_BINARY,    /* one side is no text */
	DIFF_CONTENT_LARGE,     /* over the limits of one change */
	DIFF_CONTENT_OMITTED,   /* not compared: the limits of the whole answer are reached */
	DIFF_CONTENT_UNREADABLE /* one side could not be read; `failed` says why */
};

#define DIFF_OMITTED "the answer is too long; ask for this path alone"

struct diff_totals {
	uint64_t kinds[ATOLL_CHANGE_END_];
	uint64_t all, conflicts;
	uint64_t files, directories;
	struct text_count lines;
};

/* ---- diff-select.c: which changes ---- */

struct diff_select {
	struct strlist paths; /* absolute; only what is at, below or right above one of them */
	bool is_narrowed;     /* else all */
	struct strlist excludes;
	bool *used; /* per exclude: it left something out */
	size_t used_cap;
	bool conflicts_only;
};
/* One more pattern, as struct atoll_commit has them. */
int diff_select_exclude(struct diff_select *s, const char *pattern, struct error *err);
bool diff_select_has(struct diff_select *s, const struct atoll_change *change);
/* "unmatched": patterns that left nothing out. */
void diff_select_json(const struct diff_select *s, struct json *j);
void diff_select_done(struct diff_select *s);

/* ---- the view ---- */

/* How much is compared for one answer. What is beyond is named with its sizes, and can be asked for alone. */
struct diff_limits {
	uint64_t file, lines; /* of one side of one change */
	uint64_t bytes;       /* of all contents together; 0: no limit, and none of time */
	int64_t ms;           /* since the first of them */
};

struct diff_page;
struct diff_pipe;

#define DIFF_WIDTH   80 /* where there is no terminal to ask */
#define DIFF_CONTEXT 3

struct diff_view {
	struct atoll_plan *plan;
	struct atoll_result *res; /* of reading the diff */
	FILE *out;
	bool gives_up; /* when OUT fails: nobody reads it any more */
	bool as_json;
	enum diff_form form;
	unsigned context;
	struct diff_limits limits; /* LIMIT_TEXT and LIMIT_TEXT_LINES of each, and no more */
	bool is_seen;              /* by a person: contents must not steer a terminal */
	size_t width;              /* of a line of --stat */
	const char *paint[PAINT_END_];
	struct diff_select select;
	/* A part of the listing: LIMIT changes (0: all) behind the one that AFTER names ("SANDBOX/PATH";
	 * NULL: from the first). Where more follow NEXT is what names the last one shown, else NULL. */
	uint64_t limit;
	const char *after;
	char *next;
	/* Its own: */
	struct diff_totals totals;
	_Atomic uint64_t compared; /* bytes */
	_Atomic int64_t until;     /* CLOCK_BOOTTIME; 0: nothing was compared yet */
	char *root;                /* of the part of a patch that was begun, or NULL */
	struct diff_page *page;    /* of --stat */
	struct diff_pipe *pipe;
	struct json json;
	bool json_begun;
	/* Of the whole plan, made before the listing: what is shown may be newer, and then a commit with
	 * it is refused. "": not asked for. */
	char digest[ATOLL_DIGEST_LEN];
	struct error err;         /* of a comparison */
	struct strlist sandboxes; /* ids, in order; with AFTER only */
	bool is_behind;           /* AFTER is passed */
};
/* Nothing painted, DIFF_WIDTH, DIFF_CONTEXT, everything. */
void diff_view_init(struct diff_view *v, struct atoll_plan *plan, FILE *out);
void diff_view_done(struct diff_view *v);
/* Reads the diff and shows it. The number of changes read, or a negative code: of ERR where that is set,
 * else of RES. An end to the JSON is diff_json_end()'s. */
int64_t diff_show(struct diff_view *v);

struct diff_job {
	struct atoll_change change; /* its strings are ours */
	int fd[2];                  /* by enum atoll_side; FD_NONE: nothing to read there */
	int failed;                 /* 0, or why a side could not be opened or read */
	bool has_lines;             /* the strategy gave the text: */
	bool is_cut;                /* not all of it */
	enum diff_content content;
	struct text_count count;
	struct strbuf patch; /* with DIFF_PATCH */
	struct error err;    /* of the comparison itself */
	bool is_compared;    /* the pipe's, under its lock */
};

/* ---- diff-job.c ---- */

struct diff_job *diff_job_new(struct diff_view *v, const struct atoll_change *change);
void diff_job_free(struct diff_job *job);
/* Thread-safe. Fills content, count, patch or err. */
void diff_job_compare(struct diff_view *v, struct diff_job *job);
/* Bytes it will need. */
uint64_t diff_job_size(const struct diff_view *v, const struct diff_job *job);

/* ---- diff-pipe.c ---- */

typedef int (*diff_show_fn)(struct diff_view *v, struct diff_job *job);
struct diff_pipe *diff_pipe_new(struct diff_view *v, diff_show_fn show);
/* Takes JOB over. A negative code is one of SHOW, now or earlier. */
int diff_pipe_push(struct diff_pipe *p, struct diff_job *job);
/* Shows what is left. Frees P. */
int diff_pipe_end(struct diff_pipe *p);

/* ---- diff-lines.c: a line per change ---- */

/* "M  /root/path  (mode 0644 -> 0755)"; FAILED: of reading it, or 0. */
void diff_line(struct strbuf *sb, const struct diff_view *v, const struct atoll_change *change,
               int failed);
/* The same beside the job's part of a patch: nothing where that says it all. */
void diff_line_beside(struct strbuf *sb, const struct diff_view *v, const struct diff_job *job);
void diff_path(struct strbuf *sb, const struct atoll_change *change);
/* What is worth saying besides its content, each after ", "; LEFT_OUT: bits not to be mentioned. */
void diff_remarks(struct strbuf *sb, const struct atoll_change *change, unsigned left_out);
void diff_conflict(struct strbuf *sb, const struct diff_view *v, const struct atoll_change *change);

/* ---- diff-patch.c ---- */

/* As git has it: regular files and links; 0: a patch cannot carry it. */
uint32_t diff_git_mode(uint32_t mode);
/* Appends one side's or both sides' part of a patch. NULL: that side has none. FORMS: what to call
 * the modes, git's. The texts are compared in here. */
struct diff_part {
	const char *path;
	uint32_t old_mode, new_mode; /* git's; 0: absent */
	struct text before, after;
	uint64_t old_size, new_size;
	enum diff_content content; /* NONE, BINARY, LARGE: the texts are not looked at */
};
int diff_patch_part(struct strbuf *sb, const struct diff_view *v, const struct diff_part *part,
                    struct text_count *count, struct error *err);
/* One line of a hunk, painted, made harmless when a person reads it. */
void diff_patch_line(struct strbuf *sb, const struct diff_view *v, char origin, const char *line,
                     size_t len);
/* Once before the first part of each resource. */
void diff_patch_root(struct diff_view *v, const struct atoll_change *change);

/* ---- diff-stat.c ---- */

struct diff_page *diff_page_new(void);
void diff_page_free(struct diff_page *page);
/* Rows are laid out together, page by page. */
void diff_page_add(const struct diff_view *v, struct diff_page *page, const struct diff_job *job);
void diff_page_end(const struct diff_view *v, struct diff_page *page);
/* " 3 files changed, 10 insertions(+), 2 deletions(-)" */
void diff_summary(struct strbuf *sb, const struct diff_totals *t);

/* ---- diff-json.c ---- */

/* JOB NULL: contents were not asked for. */
void diff_json_change(struct diff_view *v, const struct atoll_change *change,
                      const struct diff_job *job);
/* CODE < 0: the listing broke off here, for the reason given. */
void diff_json_end(struct diff_view *v, int code, const char *message, const char *hint);

extern const char *const diff_kind_words[];

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Counts and a graph per change, as `git diff --stat` shows them, a page of rows at a time. */
#include "answer/diff-view.h"

#include "util/cleanup.h"
#include "util/mem.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PAGE_ROWS   512
#define GRAPH_MIN   10
#define FIXED_WIDTH 6 /* " ", " | ", " ", and one free at the end */

struct row {
	char *name;
	size_t width; /* of the name, characters */
	char *more;   /* remarks, or NULL */
	enum diff_content content;
	struct text_count count;
	uint64_t old_size, new_size;
};

struct diff_page {
	struct row v[PAGE_ROWS];
	size_t n;
};

struct layout {
	size_t name, number, graph;
	uint64_t most; /* lines of one row */
};

struct diff_page *diff_page_new(void)
{
	return xcalloc(1, sizeof(struct diff_page));
}

static void clear(struct diff_page *page)
{
	for (size_t i = 0; i < page->n; i++) {
		free(page->v[i].name);
		free(page->v[i].more);
	}
	page->n = 0;
}

void diff_page_free(struct diff_page *page)
{
	if (page)
		clear(page);
	free(page);
}

static size_t characters(const char *s)
{
	size_t len = strlen(s), n = 0;
	uint32_t c;

	for (size_t at = 0; at < len; n++) {
		size_t step = utf8_decode(s + at, len - at, &c);

		at += step ? step : 1;
	}
	return n;
}

static size_t digits(uint64_t n)
{
	size_t d = 1;

	for (; n >= 10; n /= 10)
		d++;
	return d;
}

/* ---- laying out ---- */

static struct layout lay_out(const struct diff_page *page, size_t width)
{
	struct layout l = { .number = 1 };
	size_t taken;

	for (size_t i = 0; i < page->n; i++) {
		const struct row *row = &page->v[i];
		uint64_t lines = row->count.added + row->count.deleted;

		l.name = row->width > l.name ? row->width : l.name;
		l.most = lines > l.most ? lines : l.most;
		if (row->content != DIFF_CONTENT_NONE && row->content != DIFF_CONTENT_TEXT)
			l.number = 3; /* "Bin" */
	}
	if (digits(l.most) > l.number)
		l.number = digits(l.most);
	taken = l.name + l.number + FIXED_WIDTH;
	l.graph = width > taken + GRAPH_MIN ? width - taken : GRAPH_MIN;
	return l;
}

/* At least one for anything that is there. */
static uint64_t scale(uint64_t n, const struct layout *l)
{
	return n ? 1 + n * (l->graph - 1) / l->most : 0;
}

static void put_graph(struct strbuf *sb, const struct diff_view *v, const struct layout *l,
                      struct text_count n)
{
	uint64_t total = n.added + n.deleted;

	if (l->most > l->graph) {
		total = scale(total, l);
		if (total < 2 && n.added && n.deleted)
			total = 2;
		if (n.added < n.deleted) {
			n.added = scale(n.added, l);
			n.deleted = total - n.added;
		} else {
			n.deleted = scale(n.deleted, l);
			n.added = total - n.deleted;
		}
	}
	if (total)
		strbuf_putc(sb, ' ');
	strbuf_puts(sb, n.added ? v->paint[PAINT_GOOD] : "");
	for (uint64_t i = 0; i < n.added; i++)
		strbuf_putc(sb, '+');
	strbuf_puts(sb, n.added ? v->paint[PAINT_NONE] : "");
	strbuf_puts(sb, n.deleted ? v->paint[PAINT_BAD] : "");
	for (uint64_t i = 0; i < n.deleted; i++)
		strbuf_putc(sb, '-');
	strbuf_puts(sb, n.deleted ? v->paint[PAINT_NONE] : "");
}

static void put_row(struct strbuf *sb, const struct diff_view *v, const struct layout *l,
                    const struct row *row)
{
	static const char *const words[] = {
		[DIFF_CONTENT_BINARY] = "Bin",
		[DIFF_CONTENT_LARGE] = "Big",
		[DIFF_CONTENT_OMITTED] = "...",
		[DIFF_CONTENT_UNREADABLE] = "???",
	};

	strbuf_printf(sb, " %s%*s | ", row->name, (int)(l->name - row->width), "");
	if (row->content == DIFF_CONTENT_NONE || row->content == DIFF_CONTENT_TEXT) {
		strbuf_printf(sb, "%*" PRIu64, (int)l->number,
		              row->count.added + row->count.deleted);
		put_graph(sb, v, l, row->count);
	} else {
		strbuf_printf(sb, "%*s %" PRIu64 " -> %" PRIu64 " bytes", (int)l->number,
		              words[row->content], row->old_size, row->new_size);
	}
	if (row->more)
		strbuf_printf(sb, "  (%s)", row->more);
	strbuf_putc(sb, '\n');
}

void diff_page_end(const struct diff_view *v, struct diff_page *page)
{
	struct layout l = lay_out(page, v->width);

	for (size_t i = 0; i < page->n; i++) {
		cleanup_strbuf struct strbuf sb = STRBUF_INIT;

		put_row(&sb, v, &l, &page->v[i]);
		(void)fputs(strbuf_str(&sb), v->out);
	}
	clear(page);
}

/* ---- rows ---- */

static char *remarks_of(const struct diff_job *job)
{
	static const char *const whole[] = {
		[ATOLL_CHANGE_ADDED] = "new",
		[ATOLL_CHANGE_CHANGED] = "",
		[ATOLL_CHANGE_DELETED] = "gone",
	};
	struct strbuf more = STRBUF_INIT;

	strbuf_puts(&more, whole[job->change.kind]);
	diff_remarks(&more, &job->change, 0);
	if (job->failed)
		strbuf_printf(&more, "%scannot be read", more.len ? ", " : "");
	if (more.len)
		return strbuf_take(&more);
	strbuf_done(&more);
	return NULL;
}

void diff_page_add(const struct diff_view *v, struct diff_page *page, const struct diff_job *job)
{
	struct strbuf name = STRBUF_INIT;
	struct row *row = &page->v[page->n++];

	diff_path(&name, &job->change);
	*row = (struct row){
		.name = strbuf_take(&name),
		.more = remarks_of(job),
		.content = job->content,
		.count = job->count,
		.old_size = S_ISDIR(job->change.old_mode) ? 0 : job->change.old_size,
		.new_size = S_ISDIR(job->change.new_mode) ? 0 : job->change.new_size,
	};
	row->width = characters(row->name);
	if (page->n == PAGE_ROWS)
		diff_page_end(v, page);
}

static const char *plural(uint64_t n, const char *one, const char *many)
{
	return n == 1 ? one : many;
}

void diff_summary(struct strbuf *sb, const struct diff_totals *t)
{
	uint64_t added = t->lines.added, deleted = t->lines.deleted;

	strbuf_printf(sb, " %" PRIu64 " %s changed", t->files, plural(t->files, "file", "files"));
	if (added || !deleted)
		strbuf_printf(sb, ", %" PRIu64 " %s(+)", added,
		              plural(added, "insertion", "insertions"));
	if (deleted || !added)
		strbuf_printf(sb, ", %" PRIu64 " %s(-)", deleted,
		              plural(deleted, "deletion", "deletions"));
	if (t->directories)
		strbuf_printf(sb, ", %" PRIu64 " %s", t->directories,
		              plural(t->directories, "directory", "directories"));
}

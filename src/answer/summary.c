/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The summary above the question. A row stands for one change or for all changes of one kind below a
 * directory: rows that stand for the same are merged, and when the text does not fit the directories that
 * rows stand for are taken one level higher, until it does.
 */
#include "answer/summary.h"

#include "diff/change.h"
#include "util/cleanup.h"
#include "util/escape.h"
#include "util/list.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define GAP       "   "
#define NAMES_MAX 3 /* of what is listed apart */

struct row {
	const struct atoll_change *c; /* one of those it stands for */
	size_t key_len;       /* of c->path: the directory they are below; or all of it: itself */
	bool is_table;        /* rows of a database, which have one line together */
	uint64_t n;           /* without the directory itself */
	uint64_t definitions; /* of a database */
};

struct rows {
	struct row *v;
	size_t n;
	const struct atoll_change *changes;
	size_t n_changes;
	bool one_root;
};

/* ---- what a change is ---- */

static const struct {
	char letter;
	const char *word;
	enum paint paint;
	int rank; /* in the order they are shown */
} kinds[] = {
	[ATOLL_CHANGE_ADDED] = { 'A', "new", PAINT_GOOD, 1 },
	[ATOLL_CHANGE_CHANGED] = { 'M', "changed", PAINT_CHANGED, 0 },
	[ATOLL_CHANGE_DELETED] = { 'D', "deleted", PAINT_BAD, 2 },
};
_Static_assert(sizeof(kinds) / sizeof(kinds[0]) == ATOLL_CHANGE_END_, "every kind has a row");

/* What is no file has no mode. */
static uint32_t mode_of(const struct atoll_change *c)
{
	return c->new_mode ? c->new_mode : c->old_mode;
}

/* A prefix that does not end in a slash is all of the path. */
static const struct {
	const char *prefix, *word;
} refs[] = {
	{ "refs/heads/", "branch " }, { "refs/tags/", "tag " },      { "refs/", "refs/" },
	{ "HEAD", "HEAD" },           { ".git/index", "git index" },
};

/* Its row in refs[], or -1. */
static int ref_of(const struct atoll_change *c)
{
	for (size_t i = 0; i < sizeof(refs) / sizeof(refs[0]); i++) {
		size_t len = strlen(refs[i].prefix);

		if (!mode_of(c) && strncmp(c->path, refs[i].prefix, len) == 0 &&
		    (refs[i].prefix[len - 1] == '/' || !c->path[len]))
			return (int)i;
	}
	return -1;
}

/* Of a repository as a whole: why what git wrote there cannot be compared, and so not committed. */
static bool is_git_problem(const struct atoll_change *c)
{
	return !mode_of(c) && strcmp(c->path, ".git") == 0;
}

static bool is_table(const struct atoll_change *c)
{
	return !mode_of(c) && ref_of(c) < 0 && !is_git_problem(c);
}

/* "3 rows added, 1 deleted" is 4; of anything else it is a definition that changed. */
static void count_rows(const char *detail, uint64_t *ret_rows, uint64_t *ret_definitions)
{
	static const char *const done[] = { "added", "changed", "deleted" };

	*ret_rows = *ret_definitions = 0;
	for (const char *at = detail;; at += 2) {
		size_t len = strcspn(at, ",");
		char *word;
		uint64_t n = strtoull(at, &word, 10);
		bool counts = false;

		word += strncmp(word, " rows", 5) == 0 ? 5 : strncmp(word, " row", 4) == 0 ? 4 : 0;
		for (size_t i = 0; i < sizeof(done) / sizeof(done[0]) && *word == ' '; i++)
			counts |= strlen(done[i]) == len - (size_t)(word + 1 - at) &&
			          strncmp(word + 1, done[i], strlen(done[i])) == 0;
		if (counts)
			*ret_rows += n;
		else
			(*ret_definitions)++;
		at += len;
		if (strncmp(at, ", ", 2) != 0)
			return;
	}
}

/* ---- rows ---- */

static bool is_whole_dir(const struct atoll_change *c)
{
	return c->kind != ATOLL_CHANGE_CHANGED && S_ISDIR(mode_of(c));
}

static int by_path(const void *a, const void *b)
{
	const struct atoll_change *const *x = a, *const *y = b;
	int r = strcmp((*x)->sandbox, (*y)->sandbox);

	return r ? r : strcmp((*x)->path, (*y)->path);
}

struct whole {
	const struct atoll_change *
		*v; /* directories that come or go with all that is in them, sorted */
	size_t n;
};

/* The topmost of them that C is in (or is), as a length of its path; or all of its path. */
static size_t whole_above(const struct whole *w, const struct atoll_change *c)
{
	size_t len = strlen(c->path);

	for (size_t i = 0; c->kind != ATOLL_CHANGE_CHANGED && i <= len; i++) {
		cleanup_free char *path = NULL;
		struct atoll_change above = { .sandbox = c->sandbox };
		const struct atoll_change *key = &above, **found;

		if (c->path[i] != '/' && c->path[i])
			continue;
		above.path = path = xstrndup(c->path, i);
		found = w->n ? bsearch(&key, w->v, w->n, sizeof(key), by_path) : NULL;
		if (found && (*found)->kind == c->kind)
			return i;
	}
	return len;
}

static int by_key(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	size_t len = x->key_len < y->key_len ? x->key_len : y->key_len;
	int r = strcmp(x->c->sandbox, y->c->sandbox);

	if (r == 0)
		r = (int)x->is_table - (int)y->is_table;
	if (r == 0 && x->is_table)
		return 0;
	if (r == 0)
		r = memcmp(x->c->path, y->c->path, len);
	if (r == 0 && x->key_len != y->key_len)
		r = x->key_len < y->key_len ? -1 : 1;
	return r ? r : (int)x->c->kind - (int)y->c->kind;
}

static void merge(struct rows *rows)
{
	size_t n = 0;

	qsort(rows->v, rows->n, sizeof(*rows->v), by_key);
	for (size_t i = 0; i < rows->n; i++) {
		struct row *to = n ? &rows->v[n - 1] : NULL, *from = &rows->v[i];

		if (!to || by_key(to, from) != 0) {
			rows->v[n++] = *from;
			continue;
		}
		/* The directory itself is counted by none, and shown only where nothing is in it. */
		if (to->n == 0)
			to->c = from->c;
		to->n += from->n;
		to->definitions += from->definitions;
	}
	rows->n = n;
}

static void rows_init(struct rows *rows, const struct atoll_change *changes, size_t n)
{
	struct whole w = { .v = xcalloc(n + 1, sizeof(*w.v)) };

	*rows = (struct rows){ .v = xcalloc(n + 1, sizeof(*rows->v)),
		               .n = n,
		               .changes = changes,
		               .n_changes = n,
		               .one_root = true };
	for (size_t i = 0; i < n; i++) {
		rows->one_root &= strcmp(changes[i].sandbox, changes[0].sandbox) == 0;
		if (is_whole_dir(&changes[i]))
			w.v[w.n++] = &changes[i];
	}
	qsort(w.v, w.n, sizeof(*w.v), by_path);
	for (size_t i = 0; i < n; i++) {
		const struct atoll_change *c = &changes[i];
		struct row *row = &rows->v[i];

		*row = (struct row){ .c = c, .key_len = whole_above(&w, c), .n = 1 };
		row->is_table = is_table(c);
		if (row->is_table)
			count_rows(c->detail, &row->n, &row->definitions);
		else if (is_whole_dir(c) && row->key_len == strlen(c->path))
			row->n = 0;
	}
	free(w.v);
	merge(rows);
}

/* Length of PATH's first DEPTH names, where there are more; else all of it. */
static size_t cut_at(const char *path, size_t depth)
{
	const char *at = path;

	if (depth == 0)
		return 0;
	while ((at = strchr(at, '/'))) {
		if (--depth == 0)
			return (size_t)(at - path);
		at++;
	}
	return strlen(path);
}

static size_t depth_of(const struct row *row)
{
	size_t depth = 1;

	for (size_t i = 0; i < row->key_len; i++)
		depth += row->c->path[i] == '/';
	return depth;
}

static size_t deepest(const struct rows *rows)
{
	size_t most = 0;

	for (size_t i = 0; i < rows->n; i++)
		if (!rows->v[i].is_table && depth_of(&rows->v[i]) > most)
			most = depth_of(&rows->v[i]);
	return most;
}

/* No row stands for less than a directory of DEPTH names. */
static void raise_to(struct rows *rows, size_t depth)
{
	for (size_t i = 0; i < rows->n; i++) {
		struct row *row = &rows->v[i];
		size_t len = cut_at(row->c->path, depth);

		if (row->is_table || len >= row->key_len)
			continue;
		row->key_len = len;
		row->n += row->n == 0;
	}
	merge(rows);
}

/* ---- their text ---- */

/* The resource, where there are several, or where it is no directory; with a slash behind it where a path
 * follows. */
static void put_root(struct strbuf *sb, const struct rows *rows, const struct summary_view *v,
                     const struct atoll_change *c)
{
	size_t len = v->here ? strlen(v->here) : 0;
	const char *root = c->root;

	if (rows->one_root && !is_table(c))
		return;
	if (len > 1 && strncmp(root, v->here, len) == 0 && root[len] == '/')
		root += len + 1;
	else if (len && strcmp(root, v->here) == 0 && !is_table(c))
		return;
	escape_add(sb, root, strlen(root));
	if (!is_table(c))
		strbuf_putc(sb, '/');
}

static void put_path(struct strbuf *sb, const struct rows *rows, const struct summary_view *v,
                     const struct atoll_change *c)
{
	put_root(sb, rows, v, c);
	escape_add(sb, c->path, strlen(c->path));
	if (S_ISDIR(mode_of(c)))
		strbuf_puts(sb, *c->path ? "/" : "./");
}

/* "branch main: 2 commits" */
static void put_ref(struct strbuf *sb, const struct rows *rows, const struct summary_view *v,
                    const struct atoll_change *c)
{
	int i = ref_of(c);
	const char *name = c->path + strlen(refs[i].prefix), *more = strchr(c->detail, ',');

	if (!rows->one_root) {
		put_root(sb, rows, v, c);
		strbuf_putc(sb, ' ');
	}
	strbuf_puts(sb, refs[i].word);
	escape_add(sb, name, strlen(name));
	strbuf_puts(sb, ": ");
	if (c->kind != ATOLL_CHANGE_CHANGED)
		strbuf_puts(sb, kinds[c->kind].word);
	else if (strncmp(refs[i].prefix, "refs/heads/", 5) == 0 && more)
		escape_add(sb, more + 2, strlen(more + 2));
	else
		escape_add(sb, c->detail, strlen(c->detail));
}

/* "dev.db: 31 rows, 1 definition" */
static void put_table(struct strbuf *sb, const struct rows *rows, const struct summary_view *v,
                      const struct row *row)
{
	put_root(sb, rows, v, row->c);
	strbuf_puts(sb, ": ");
	if (row->n) {
		strbuf_number(sb, row->n);
		strbuf_puts(sb, row->n == 1 ? " row" : " rows");
	}
	if (row->definitions) {
		strbuf_puts(sb, row->n ? ", " : "");
		strbuf_number(sb, row->definitions);
		strbuf_puts(sb, row->definitions == 1 ? " definition" : " definitions");
	}
}

static bool is_group(const struct row *row)
{
	return !row->is_table && row->n > 1;
}

static void put_group(struct strbuf *sb, const struct rows *rows, const struct summary_view *v,
                      const struct row *row)
{
	size_t at;

	strbuf_number(sb, row->n);
	strbuf_printf(sb, " %s below ", kinds[row->c->kind].word);
	at = sb->len;
	put_root(sb, rows, v, row->c);
	escape_add(sb, row->c->path, row->key_len);
	if (sb->len == at)
		strbuf_putc(sb, '.');
	if (sb->buf[sb->len - 1] != '/')
		strbuf_putc(sb, '/');
}

static void put_row(struct strbuf *sb, const struct rows *rows, const struct summary_view *v,
                    const struct row *row)
{
	if (row->is_table) {
		put_table(sb, rows, v, row);
	} else if (is_group(row)) {
		put_group(sb, rows, v, row);
	} else if (ref_of(row->c) >= 0) {
		put_ref(sb, rows, v, row->c);
	} else {
		strbuf_printf(sb, "%c ", kinds[row->c->kind].letter);
		put_path(sb, rows, v, row->c);
	}
}

static enum paint paint_of(const struct row *row)
{
	return row->is_table || ref_of(row->c) >= 0 ? PAINT_NONE : kinds[row->c->kind].paint;
}

/* Groups, files by kind, what belongs to git, databases. */
static int rank_of(const struct row *row)
{
	if (row->is_table)
		return 5;
	if (is_group(row))
		return 0;
	return ref_of(row->c) >= 0 ? 4 : 1 + kinds[row->c->kind].rank;
}

static int by_rank(const void *a, const void *b)
{
	int x = rank_of(a), y = rank_of(b);

	return x != y ? x - y : by_key(a, b);
}

/* ---- lines ---- */

/* Columns of it, more or less: what is wide counts once. */
static size_t columns_of(const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xc0) != 0x80;
	return n;
}

struct page {
	struct strbuf *sb;
	size_t width, lines; /* LINES: begun */
	size_t column;
};

/* False, and nothing was added, when that would need more than MOST lines. */
static bool page_add(struct page *page, const struct strbuf *item, const char *before,
                     const char *after, size_t most)
{
	size_t width = columns_of(strbuf_str(item), item->len);
	bool follows = page->column > 0 && page->column + strlen(GAP) + width <= page->width;
	size_t need = follows ? 0 : 1 + (width ? (width - 1) / page->width : 0);

	if (page->lines + need > most)
		return false;
	if (page->column > 0)
		strbuf_puts(page->sb, follows ? GAP : "\n");
	page->column = (follows ? page->column + strlen(GAP) : 0) + width;
	page->lines += need;
	strbuf_printf(page->sb, "%s%s%s", before, strbuf_str(item), after);
	return true;
}

/* How many rows fit on MOST lines; where not all do, with the number of the others behind them. */
static size_t put_rows(struct strbuf *sb, struct rows *rows, const struct summary_view *v,
                       size_t most)
{
	struct page page = { .sb = sb, .width = v->width };
	size_t i = 0, last_len = sb->len;

	for (; i < rows->n; i++) {
		cleanup_strbuf struct strbuf item = STRBUF_INIT;
		enum paint p = paint_of(&rows->v[i]);

		put_row(&item, rows, v, &rows->v[i]);
		if (!page_add(&page, &item, p == PAINT_NONE ? "" : v->paint[p],
		              p == PAINT_NONE ? "" : v->paint[PAINT_NONE], most))
			break;
		/* A last line that is full leaves no room for the number. */
		if (page.lines < most || page.column + 24 <= page.width)
			last_len = sb->len;
	}
	if (i < rows->n) {
		strbuf_truncate(sb, last_len);
		strbuf_printf(sb, "%sand more (diff)", last_len ? GAP : "");
	}
	strbuf_putc(sb, '\n');
	return i;
}

static void put_changes(struct strbuf *sb, const struct summary_view *v, struct rows *rows,
                        size_t most)
{
	for (size_t depth = deepest(rows);; depth--) {
		cleanup_strbuf struct strbuf text = STRBUF_INIT;

		qsort(rows->v, rows->n, sizeof(*rows->v), by_rank);
		if (put_rows(&text, rows, v, most) == rows->n || depth == 0) {
			strbuf_add(sb, strbuf_str(&text), text.len);
			return;
		}
		raise_to(rows, depth - 1);
	}
}

/* ---- what is listed apart ---- */

/* Before rows are raised: one below a directory that goes with all that was in it. */
static bool is_tree_deleted(const struct row *row)
{
	return !row->is_table && row->c->kind == ATOLL_CHANGE_DELETED && mode_of(row->c) &&
	       row->key_len < strlen(row->c->path);
}

/* What a file has to say of itself: that git does not install it. */
static const char *remark_of(const struct atoll_change *c)
{
	return mode_of(c) && *c->detail ? c->detail : NULL;
}

static bool has_remark(const struct atoll_change *c, const char *remark)
{
	const char *own = remark_of(c);

	return own && strcmp(own, remark) == 0;
}

/* Each is a line of its own, with a few of the names; where there is no room, a number. */
static const struct {
	unsigned bit; /* of what a change is; 0: see is_tree_deleted() */
	const char *text, *brief;
} apart[] = {
	{ ATOLL_CHANGE_CONFLICT, "conflict, changed outside the plan too", "conflicts" },
	{ ATOLL_CHANGE_SETUID, "set-id bits, taken off without --allow setuid", "set-id bits" },
	{ ATOLL_CHANGE_SPECIAL, "device, socket or FIFO, not committed without --allow special",
	  "special files" },
	{ ATOLL_CHANGE_GIT_PROGRAM,
	  "git would run a program, not committed without --allow git-programs", "git programs" },
	{ ATOLL_CHANGE_DATABASE,
	  "SQLite database, replaced as a file unless it is given with --sqlite", "databases" },
	{ ATOLL_CHANGE_ESCAPING_LINK, "link that leaves its tree", "links outside" },
	{ 0, "deleted with all that was in it", "deleted trees" },
};

struct names {
	struct strbuf text;
	size_t n;
};

static void add_name(struct names *names, const struct strbuf *name)
{
	if (names->n < NAMES_MAX)
		strbuf_printf(&names->text, "%s%s", names->n ? ", " : "", strbuf_str(name));
	names->n++;
}

static void name_changes(struct names *names, const struct rows *rows, const struct summary_view *v,
                         unsigned bit)
{
	for (size_t i = 0; i < rows->n_changes; i++) {
		cleanup_strbuf struct strbuf name = STRBUF_INIT;

		if (!(rows->changes[i].what & bit))
			continue;
		put_path(&name, rows, v, &rows->changes[i]);
		add_name(names, &name);
	}
}

/* Not what is in a directory that is named. */
static void name_remarked(struct names *names, const struct rows *rows,
                          const struct summary_view *v, const char *remark)
{
	const struct atoll_change *dir = NULL;

	for (size_t i = 0; i < rows->n_changes; i++) {
		const struct atoll_change *c = &rows->changes[i];
		cleanup_strbuf struct strbuf name = STRBUF_INIT;

		if (!has_remark(c, remark) || (dir && strcmp(c->sandbox, dir->sandbox) == 0 &&
		                               path_below(c->path, dir->path)))
			continue;
		put_path(&name, rows, v, c);
		add_name(names, &name);
		if (S_ISDIR(mode_of(c)))
			dir = c;
	}
}

static void name_trees(struct names *names, const struct rows *rows, const struct summary_view *v)
{
	for (size_t i = 0; i < rows->n; i++) {
		cleanup_strbuf struct strbuf name = STRBUF_INIT;
		const struct row *row = &rows->v[i];

		if (!is_tree_deleted(row))
			continue;
		put_root(&name, rows, v, row->c);
		escape_add(&name, row->c->path, row->key_len);
		strbuf_puts(&name, row->key_len ? "/" : "./");
		add_name(names, &name);
	}
}

/* The lines that this fills. */
static size_t end_line(struct strbuf *sb, size_t at, const struct summary_view *v)
{
	size_t lines = 1 + (columns_of(sb->buf + at, sb->len - at) - 1) / v->width;

	strbuf_putc(sb, '\n');
	return lines;
}

static size_t put_names(struct strbuf *sb, const struct summary_view *v, const char *text,
                        struct names *names)
{
	size_t at = sb->len, lines = 0;

	if (names->n) {
		strbuf_printf(sb, "%s: %s", text, strbuf_str(&names->text));
		if (names->n > NAMES_MAX) {
			strbuf_puts(sb, " and ");
			strbuf_number(sb, names->n - NAMES_MAX);
			strbuf_puts(sb, " more");
		}
		lines = end_line(sb, at, v);
	}
	strbuf_done(&names->text);
	return lines;
}

static size_t put_git_problems(struct strbuf *sb, const struct rows *rows,
                               const struct summary_view *v)
{
	size_t lines = 0;

	for (size_t i = 0; i < rows->n_changes; i++) {
		const struct atoll_change *c = &rows->changes[i];
		size_t at = sb->len;

		if (!is_git_problem(c))
			continue;
		put_path(sb, rows, v, c);
		strbuf_puts(sb, ", cannot be committed: ");
		escape_add(sb, c->detail, strlen(c->detail));
		lines += end_line(sb, at, v);
	}
	return lines;
}

/* A line for each, of which there are few. */
static size_t put_remarks(struct strbuf *sb, const struct rows *rows, const struct summary_view *v)
{
	cleanup_strlist struct strlist said = STRLIST_INIT;
	size_t lines = 0;

	for (size_t i = 0; i < rows->n_changes; i++) {
		const char *remark = remark_of(&rows->changes[i]);
		struct names names = { 0 };

		if (!remark || strlist_has(&said, remark))
			continue;
		strlist_add(&said, remark);
		name_remarked(&names, rows, v, remark);
		lines += put_names(sb, v, remark, &names);
	}
	return lines;
}

static struct names name_apart(const struct rows *rows, const struct summary_view *v, size_t i)
{
	struct names names = { 0 };

	if (apart[i].bit)
		name_changes(&names, rows, v, apart[i].bit);
	else
		name_trees(&names, rows, v);
	return names;
}

/* Lines that were filled. */
static size_t put_apart(struct strbuf *sb, const struct rows *rows, const struct summary_view *v)
{
	size_t lines = put_git_problems(sb, rows, v);

	for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++) {
		struct names names = name_apart(rows, v, i);

		lines += put_names(sb, v, apart[i].text, &names);
	}
	return lines + put_remarks(sb, rows, v);
}

static void put_number(struct page *page, const char *what, size_t n)
{
	cleanup_strbuf struct strbuf item = STRBUF_INIT;

	if (n == 0)
		return;
	strbuf_printf(&item, "%s: %zu", what, n);
	(void)page_add(page, &item, "", "", SIZE_MAX);
}

/* The same as numbers alone. */
static size_t put_apart_briefly(struct strbuf *sb, const struct rows *rows,
                                const struct summary_view *v)
{
	struct page page = { .sb = sb, .width = v->width };
	size_t problems = 0, remarks = 0;

	for (size_t i = 0; i < rows->n_changes; i++) {
		bool problem = is_git_problem(&rows->changes[i]);

		problems += problem;
		remarks += !problem && remark_of(&rows->changes[i]);
	}
	put_number(&page, "cannot be committed", problems);
	for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++) {
		struct names names = name_apart(rows, v, i);

		put_number(&page, apart[i].brief, names.n);
		strbuf_done(&names.text);
	}
	put_number(&page, "remarks", remarks);
	strbuf_putc(sb, '\n');
	return page.lines;
}

/* ---- the whole ---- */

void summary_add(struct strbuf *sb, const struct summary_view *v,
                 const struct atoll_change *changes, size_t n)
{
	cleanup_strbuf struct strbuf below = STRBUF_INIT;
	struct rows rows;
	size_t lines;

	if (n == 0)
		return;
	rows_init(&rows, changes, n);
	lines = put_apart(&below, &rows, v);
	/* One line is for the changes themselves. */
	if (lines > 1 && lines >= v->lines) {
		strbuf_truncate(&below, 0);
		lines = put_apart_briefly(&below, &rows, v);
	}
	put_changes(sb, v, &rows, lines < v->lines ? v->lines - lines : 1);
	if (below.len)
		strbuf_printf(sb, "%s%s%s", v->paint[PAINT_BAD], strbuf_str(&below),
		              v->paint[PAINT_NONE]);
	free(rows.v);
}

bool summary_only_times(const struct atoll_change *changes, size_t n, size_t *ret_files)
{
	*ret_files = 0;
	for (size_t i = 0; i < n; i++) {
		if (changes[i].kind != ATOLL_CHANGE_CHANGED ||
		    changes[i].what != ATOLL_CHANGE_MTIME)
			return false;
		*ret_files += !S_ISDIR(changes[i].new_mode);
	}
	return n > 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes as a patch in git's format. Paths are relative to the resource's root. What git knows
 * nothing of (directories, owners, most of a mode, devices) is a line of ours before or between the
 * parts, which `git apply` and `patch` pass over; what it would have to know and cannot be given as
 * text ("Binary files ...") makes them refuse, so that nothing is applied by halves.
 */
#include "answer/diff-view.h"

#include "util/escape.h"
#include "util/mem.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

uint32_t diff_git_mode(uint32_t mode)
{
	if (S_ISLNK(mode))
		return S_IFLNK;
	if (!S_ISREG(mode))
		return 0;
	return S_IFREG | (mode & S_IXUSR ? 0755 : 0644);
}

/* ---- names ---- */

static bool needs_quotes(const char *path)
{
	for (; *path; path++)
		if ((unsigned char)*path < 0x20 || (unsigned char)*path >= 0x7f || *path == '"' ||
		    *path == '\\')
			return true;
	return false;
}

static void quote_byte(struct strbuf *sb, unsigned char c)
{
	static const char named[] = "\a\b\t\n\v\f\r\"\\";
	static const char letters[] = "abtnvfr\"\\";
	const char *at = c ? strchr(named, c) : NULL;

	if (at)
		strbuf_printf(sb, "\\%c", letters[at - named]);
	else if (c < 0x20 || c >= 0x7f)
		strbuf_printf(sb, "\\%03o", c);
	else
		strbuf_putc(sb, (char)c);
}

/* "a/name", quoted as git quotes it (core.quotePath). */
static void put_name(struct strbuf *sb, char side, const char *path)
{
	if (!needs_quotes(path)) {
		strbuf_printf(sb, "%c/%s", side, path);
		return;
	}
	strbuf_printf(sb, "\"%c/", side);
	for (; *path; path++)
		quote_byte(sb, (unsigned char)*path);
	strbuf_putc(sb, '"');
}

/* ---- lines ---- */

/* A name with a blank in it is followed by a tab, lest its end be taken for a date. */
static void put_file_line(struct strbuf *sb, const struct diff_view *v, const char *mark, char side,
                          const struct diff_part *part)
{
	uint32_t mode = side == 'a' ? part->old_mode : part->new_mode;

	strbuf_printf(sb, "%s%s ", v->paint[PAINT_DIM], mark);
	if (!mode)
		strbuf_puts(sb, "/dev/null");
	else
		put_name(sb, side, part->path);
	if (mode && strchr(part->path, ' ') && !needs_quotes(part->path))
		strbuf_putc(sb, '\t');
	strbuf_printf(sb, "%s\n", v->paint[PAINT_NONE]);
}

static void put_header(struct strbuf *sb, const struct diff_view *v, const struct diff_part *part)
{
	strbuf_printf(sb, "%sdiff --git ", v->paint[PAINT_DIM]);
	put_name(sb, 'a', part->path);
	strbuf_putc(sb, ' ');
	put_name(sb, 'b', part->path);
	strbuf_putc(sb, '\n');
	if (!part->old_mode)
		strbuf_printf(sb, "new file mode %06o\n", part->new_mode);
	else if (!part->new_mode)
		strbuf_printf(sb, "deleted file mode %06o\n", part->old_mode);
	else if (part->old_mode != part->new_mode)
		strbuf_printf(sb, "old mode %06o\nnew mode %06o\n", part->old_mode, part->new_mode);
	strbuf_puts(sb, v->paint[PAINT_NONE]);
}

/* Control and bidi characters, but for tabs: what is in a file must not pose as something else. */
static void put_harmless(struct strbuf *sb, const char *line, size_t len)
{
	uint32_t c;

	for (size_t at = 0; at < len;) {
		size_t n = utf8_decode(line + at, len - at, &c);

		if (n == 0 || (utf8_is_hidden(c) && c != '\t')) {
			escape_add(sb, line + at, n ? n : 1);
			at += n ? n : 1;
			continue;
		}
		strbuf_add(sb, line + at, n);
		at += n;
	}
}

void diff_patch_line(struct strbuf *sb, const struct diff_view *v, char origin, const char *line,
                     size_t len)
{
	const char *paint = origin == '+'   ? v->paint[PAINT_GOOD]
	                    : origin == '-' ? v->paint[PAINT_BAD]
	                    : origin == '@' ? v->paint[PAINT_CHANGED]
	                                    : "";

	strbuf_puts(sb, paint);
	strbuf_putc(sb, origin);
	if (v->is_seen)
		put_harmless(sb, line, len);
	else
		strbuf_add(sb, line, len);
	if (*paint)
		strbuf_puts(sb, v->paint[PAINT_NONE]);
	strbuf_putc(sb, '\n');
}

struct writer {
	struct strbuf *sb;
	const struct diff_view *v;
	const struct diff_part *part;
	bool is_begun;
};

static int write_line(void *ctx, char origin, const char *line, size_t len)
{
	struct writer *w = ctx;

	if (!w->is_begun) {
		put_file_line(w->sb, w->v, "---", 'a', w->part);
		put_file_line(w->sb, w->v, "+++", 'b', w->part);
		w->is_begun = true;
	}
	if (origin == '\\')
		strbuf_puts(w->sb, "\\ No newline at end of file\n");
	else if (origin == '@') /* which is in its text already */
		diff_patch_line(w->sb, w->v, '@', line + 1, len - 1);
	else
		diff_patch_line(w->sb, w->v, origin, line, len);
	return 0;
}

/* ---- parts ---- */

int diff_patch_part(struct strbuf *sb, const struct diff_view *v, const struct diff_part *part,
                    struct text_count *count, struct error *err)
{
	struct writer w = { .sb = sb, .v = v, .part = part };
	bool is_shown = part->content != DIFF_CONTENT_NONE || !part->old_mode || !part->new_mode ||
	                part->old_mode != part->new_mode;

	if ((!part->old_mode && !part->new_mode) || !is_shown)
		return 0;
	put_header(sb, v, part);
	if (part->content == DIFF_CONTENT_TEXT)
		return text_compare(&part->before, &part->after, v->context, write_line, &w, count,
		                    err);
	if (part->content != DIFF_CONTENT_NONE)
		strbuf_printf(sb, "Binary files differ: %" PRIu64 " -> %" PRIu64 " bytes%s\n",
		              part->old_size, part->new_size,
		              part->content == DIFF_CONTENT_LARGE
		                      ? " (too large to compare line by line)"
		              : part->content == DIFF_CONTENT_OMITTED
		                      ? " (not compared: " DIFF_OMITTED ")"
		                      : "");
	return 0;
}

void diff_patch_root(struct diff_view *v, const struct atoll_change *change)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	if (v->root && strcmp(v->root, change->root) == 0)
		return;
	free(v->root);
	v->root = xstrdup(change->root);
	escape_add(&sb, v->root, strlen(v->root));
	(void)fprintf(v->out, "%sresource %s%s\n", v->paint[PAINT_DIM], strbuf_str(&sb),
	              v->paint[PAINT_NONE]);
}

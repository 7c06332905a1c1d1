/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of git-config files: one character after the other, as git does it. */
#include "util/gitconfig.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

#define BOM "\xef\xbb\xbf"

struct reader {
	const char *text;
	size_t len, at;
	bool ended; /* the newline given last was the end of the file */
	unsigned line;
	struct strbuf key;
	struct strbuf value;
	size_t value_end; /* behind the last character that belongs to the value */
};

static bool is_space(int c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_alpha(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_key_char(int c)
{
	return is_alpha(c) || (c >= '0' && c <= '9') || c == '-';
}

static char lower(int c)
{
	return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

/* The end of the file counts as a newline, "\r\n" as one, a NUL as nothing that is allowed. */
static int next(struct reader *r)
{
	int c;

	if (r->at >= r->len) {
		r->ended = true;
		r->line++;
		return '\n';
	}
	c = (unsigned char)r->text[r->at++];
	if (c == '\r' && r->at < r->len && r->text[r->at] == '\n') {
		r->at++;
		c = '\n';
	}
	if (c == '\n')
		r->line++;
	return c;
}

/* [section "subsection"]: behind the white space after the section. */
static int read_subsection(struct reader *r, int c)
{
	while (is_space(c)) {
		if (c == '\n')
			return -EINVAL;
		c = next(r);
	}
	if (c != '"')
		return -EINVAL;
	strbuf_putc(&r->key, '.');
	while ((c = next(r)) != '"') {
		if (c == '\\')
			c = next(r);
		if (c == '\n')
			return -EINVAL;
		strbuf_putc(&r->key, (char)c);
	}
	return next(r) == ']' ? 0 : -EINVAL;
}

static int read_section(struct reader *r)
{
	strbuf_truncate(&r->key, 0);
	for (;;) {
		int c = next(r);

		if (c == ']')
			return r->key.len > 0 ? 0 : -EINVAL;
		if (is_space(c))
			return r->ended ? -EINVAL : read_subsection(r, c);
		if (!is_key_char(c) && c != '.')
			return -EINVAL;
		strbuf_putc(&r->key, lower(c));
	}
}

/* What may follow a backslash; a newline is no part of the value. */
static int read_escape(struct reader *r)
{
	static const char from[] = "tbn\\\"", to[] = "\t\b\n\\\"";
	int c = next(r);
	const char *found;

	if (c == '\n')
		return 0;
	found = c ? strchr(from, c) : NULL;
	if (!found)
		return -EINVAL;
	strbuf_putc(&r->value, to[found - from]);
	return 0;
}

static int read_value(struct reader *r)
{
	bool quoted = false, comment = false;
	size_t kept = 0; /* length without white space at the end */

	strbuf_truncate(&r->value, 0);
	for (;;) {
		int c = next(r);

		if (c == '\n') {
			strbuf_truncate(&r->value, kept);
			return quoted ? -EINVAL : 0;
		}
		if (comment)
			continue;
		if (is_space(c) && !quoted) {
			if (r->value.len > 0)
				strbuf_putc(&r->value, (char)c);
			continue;
		}
		if (!quoted && (c == ';' || c == '#')) {
			comment = true;
			continue;
		}
		if (c == '\\') {
			if (read_escape(r) < 0)
				return -EINVAL;
		} else if (c == '"') {
			quoted = !quoted;
		} else {
			strbuf_putc(&r->value, (char)c);
		}
		kept = r->value.len;
		r->value_end = r->at;
	}
}

/* Its first letter is read already. */
static int read_entry(struct reader *r, size_t section_len, int c, gitconfig_fn fn, void *user)
{
	struct gitconfig_entry e = { .begin = r->at - 1, .line = r->line };
	int result;

	strbuf_truncate(&r->key, section_len);
	do {
		strbuf_putc(&r->key, lower(c));
		r->value_end = r->at;
		c = next(r);
	} while (is_key_char(c));
	while (c == ' ' || c == '\t')
		c = next(r);
	if (c != '\n') {
		if (c != '=')
			return -EINVAL;
		r->value_end = r->at;
		if (read_value(r) < 0)
			return -EINVAL;
		e.value = strbuf_str(&r->value);
	}
	e.key = strbuf_str(&r->key);
	e.end = r->value_end;
	result = fn ? fn(user, &e) : 0;
	return result < 0 ? result : 0;
}

/* Called for a section's header too, with no name: the key ends in a dot. */
static int read_all(struct reader *r, gitconfig_fn fn, gitconfig_fn on_section, void *user)
{
	bool comment = false;
	size_t section_len = 0;
	int result = 0;

	if (r->len >= strlen(BOM) && memcmp(r->text, BOM, strlen(BOM)) == 0)
		r->at = strlen(BOM);
	while (result == 0) {
		int c = next(r);

		if (c == '\n') {
			if (r->ended)
				break;
			comment = false;
		} else if (comment || is_space(c)) {
			continue;
		} else if (c == '#' || c == ';') {
			comment = true;
		} else if (c == '[') {
			struct gitconfig_entry e = { .begin = r->at - 1, .line = r->line };

			result = read_section(r);
			strbuf_putc(&r->key, '.');
			section_len = r->key.len;
			e.key = strbuf_str(&r->key);
			e.end = r->at;
			if (result == 0 && on_section)
				result = on_section(user, &e);
		} else {
			result = is_alpha(c) ? read_entry(r, section_len, c, fn, user) : -EINVAL;
		}
	}
	return result;
}

static int read_text(const char *text, size_t len, gitconfig_fn fn, gitconfig_fn on_section,
                     void *user, unsigned *ret_line)
{
	struct reader r = { .text = text, .len = len, .line = 1 };
	int result = len && memchr(text, '\0', len) ? -EINVAL : 0;

	if (result == 0)
		result = read_all(&r, fn, on_section, user);
	/* A newline that should not be there has been counted. */
	if (ret_line)
		*ret_line = r.line > 1 && (r.ended || (r.at && text[r.at - 1] == '\n')) ? r.line - 1
		                                                                        : r.line;
	strbuf_done(&r.key);
	strbuf_done(&r.value);
	return result;
}

int gitconfig_read(const char *text, size_t len, gitconfig_fn fn, void *user, unsigned *ret_line)
{
	return read_text(text, len, fn, NULL, user, ret_line);
}

int gitconfig_read_sections(const char *text, size_t len, gitconfig_fn fn, void *user,
                            unsigned *ret_line)
{
	return read_text(text, len, fn, fn, user, ret_line);
}

/* ---- editing ---- */

struct edit {
	const char *text;
	size_t len;
	const char *key;
	size_t section_len; /* of KEY, with the dot behind it */
	bool is_there;      /* the last entry of KEY: */
	size_t begin, end;
	bool has_section;
	size_t behind;   /* the last header or entry of its section ends here */
	bool is_shared;  /* another section begins on that very line */
	size_t last_end; /* the last entry of all ends here */
	/* What is left out: entries, from first to last byte. */
	struct strbuf *out;
	size_t copied;
};

static bool is_ours(const struct edit *ed, const struct gitconfig_entry *e)
{
	return strncmp(e->key, ed->key, ed->section_len) == 0 &&
	       !strchr(e->key + ed->section_len, '.');
}

static int note_section(void *user, const struct gitconfig_entry *e)
{
	struct edit *ed = user;

	if (strlen(e->key) == ed->section_len && is_ours(ed, e)) {
		ed->has_section = true;
		ed->is_shared = false;
		ed->behind = e->end;
	} else if (ed->has_section && !memchr(ed->text + ed->behind, '\n', e->begin - ed->behind)) {
		ed->is_shared = true;
	}
	return 0;
}

static int note_entry(void *user, const struct gitconfig_entry *e)
{
	struct edit *ed = user;

	ed->last_end = e->end;
	if (is_ours(ed, e))
		ed->behind = e->end;
	if (strcmp(e->key, ed->key) == 0) {
		ed->is_there = true;
		ed->begin = e->begin;
		ed->end = e->end;
	}
	return 0;
}

/* The entry with its line, or, where a header or another entry shares the line, alone. */
static int drop_entry(void *user, const struct gitconfig_entry *e)
{
	struct edit *ed = user;
	size_t begin = e->begin, end = e->end;

	if (strcmp(e->key, ed->key) != 0)
		return 0;
	ed->is_there = true;
	while (end < ed->len && ed->text[end] != '\n')
		end++;
	while (begin > 0 && is_space((unsigned char)ed->text[begin - 1]) &&
	       ed->text[begin - 1] != '\n')
		begin--;
	if ((begin == 0 || ed->text[begin - 1] == '\n') && end < ed->len)
		end++;
	strbuf_add(ed->out, ed->text + ed->copied, begin - ed->copied);
	ed->copied = end;
	return 0;
}

static void put_value(struct strbuf *sb, const char *value)
{
	size_t len = strlen(value);
	bool quote = len && (is_space((unsigned char)value[0]) ||
	                     is_space((unsigned char)value[len - 1]) || strpbrk(value, ";#\r"));

	if (quote)
		strbuf_putc(sb, '"');
	for (; *value; value++) {
		static const char from[] = "\t\b\n\\\"", to[] = "tbn\\\"";
		const char *found = strchr(from, *value);

		if (found)
			strbuf_putc(sb, '\\');
		strbuf_putc(sb, found ? to[found - from] : *value);
	}
	if (quote)
		strbuf_putc(sb, '"');
}

static void put_entry(struct strbuf *sb, const char *name, const char *value)
{
	strbuf_printf(sb, "%s = ", name);
	put_value(sb, value);
}

static void put_header(struct strbuf *sb, const char *key, size_t section_len)
{
	const char *dot = strchr(key, '.');
	size_t first = (size_t)(dot - key);

	strbuf_putc(sb, '[');
	strbuf_add(sb, key, first);
	if (first + 1 < section_len) {
		strbuf_puts(sb, " \"");
		for (size_t i = first + 1; i + 1 < section_len; i++) {
			if (key[i] == '"' || key[i] == '\\')
				strbuf_putc(sb, '\\');
			strbuf_putc(sb, key[i]);
		}
		strbuf_putc(sb, '"');
	}
	strbuf_puts(sb, "]\n");
}

/* At the end of the file, where the last value may still be open: its line continued, or about to be
 * by the very newline that is put there. */
static void end_line(const struct edit *ed)
{
	char last = ed->len ? ed->text[ed->len - 1] : '\n';

	if (last == '\\')
		strbuf_putc(ed->out, '\n');
	if (last != '\n' || (ed->len && ed->last_end == ed->len))
		strbuf_putc(ed->out, '\n');
}

static void add_entry(const struct edit *ed, const char *value)
{
	size_t at = ed->has_section ? ed->behind : ed->len;

	/* Behind the line, its comment included. */
	while (!ed->is_shared && at < ed->len && ed->text[at] != '\n')
		at++;
	strbuf_add(ed->out, ed->text, at);
	if (ed->is_shared)
		strbuf_putc(ed->out, '\n');
	else if (at < ed->len)
		strbuf_putc(ed->out, ed->text[at++]);
	else
		end_line(ed);
	if (!ed->has_section)
		put_header(ed->out, ed->key, ed->section_len);
	strbuf_putc(ed->out, '\t');
	put_entry(ed->out, ed->key + ed->section_len, value);
	strbuf_putc(ed->out, '\n');
	strbuf_add(ed->out, ed->text + at, ed->len - at);
}

/* section.name or section.anything.name, as the reader would tell it. */
static bool is_key(const char *key)
{
	const char *first = strchr(key, '.'), *last = strrchr(key, '.');

	if (!first || first == key || !is_alpha((unsigned char)last[1]) || strchr(key, '\n'))
		return false;
	for (const char *p = key; *p; p = p == first ? last + 1 : p + 1)
		if (p != first && (!is_key_char((unsigned char)*p) || *p != lower(*p)))
			return false;
	return true;
}

int gitconfig_edit(const char *text, size_t len, const char *key, const char *value,
                   struct strbuf *ret, unsigned *ret_line)
{
	struct edit ed = { .text = text, .len = len, .key = key, .out = ret };
	int r;

	if (ret_line)
		*ret_line = 0;
	if (!is_key(key))
		return -EINVAL;
	ed.section_len = (size_t)(strrchr(key, '.') - key) + 1;
	r = read_text(text, len, value ? note_entry : drop_entry, note_section, &ed, ret_line);
	if (r < 0)
		return r;
	if (!value) {
		strbuf_add(ret, text + ed.copied, len - ed.copied);
		return ed.is_there ? 0 : -ENOENT;
	}
	if (!ed.is_there) {
		add_entry(&ed, value);
		return 0;
	}
	strbuf_add(ret, text, ed.begin);
	put_entry(ret, key + ed.section_len, value);
	strbuf_add(ret, text + ed.end, len - ed.end);
	return 0;
}

/* ---- values ---- */

int gitconfig_int(const char *value, int64_t *ret)
{
	static const struct {
		const char *suffix;
		int64_t factor;
	} units[] = { { "", 1 }, { "k", 1 << 10 }, { "m", 1 << 20 }, { "g", 1 << 30 } };
	intmax_t number;
	char *end;

	if (!value || !*value)
		return -EINVAL;
	errno = 0;
	number = strtoimax(value, &end, 0);
	if (errno == ERANGE)
		return -ERANGE;
	if (end == value)
		return -EINVAL;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcasecmp(end, units[i].suffix) != 0)
			continue;
		if (number > INT64_MAX / units[i].factor || number < INT64_MIN / units[i].factor)
			return -ERANGE;
		*ret = number * units[i].factor;
		return 0;
	}
	return -EINVAL;
}

int gitconfig_bool(const char *value, bool *ret)
{
	static const struct {
		const char *word;
		bool is;
	} words[] = { { "true", true }, { "yes", true },  { "on", true }, { "false", false },
		      { "no", false },  { "off", false }, { "", false } };
	int64_t number;
	int r;

	if (!value) {
		*ret = true;
		return 0;
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcasecmp(value, words[i].word) == 0) {
			*ret = words[i].is;
			return 0;
		}
	}
	r = gitconfig_int(value, &number);
	if (r == 0 && (number > INT_MAX || number < INT_MIN))
		r = -ERANGE;
	if (r == 0)
		*ret = number != 0;
	return r;
}

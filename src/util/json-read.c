/* SPDX-License-Identifier: Apache-2.0 */
/* A strict reader: one pass checks, the second tells. */
#include "util/json-read.h"

#include "util/json.h"
#include "util/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define MEMBERS_MAX 256 /* of the outermost object: each is compared with each */

struct reader {
	const char *p;
	const char *end;
	unsigned depth;
};

struct member {
	char key[JSON_KEY_MAX + 1];
	const char *value;
	size_t len;
};

static int read_value(struct reader *r);

static bool at(const struct reader *r, char c)
{
	return r->p < r->end && *r->p == c;
}

static bool take(struct reader *r, char c)
{
	if (!at(r, c))
		return false;
	r->p++;
	return true;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(struct reader *r)
{
	while (r->p < r->end && is_blank(*r->p))
		r->p++;
}

/* ---- strings ---- */

static int hex4(const char *p, const char *end)
{
	int v = 0;

	if (end - p < 4)
		return -EBADMSG;
	for (int i = 0; i < 4; i++) {
		static const char digits[] = "0123456789abcdef";
		const char *d = strchr(digits, tolower((unsigned char)p[i]));

		if (!d || p[i] == '\0')
			return -EBADMSG;
		v = v * 16 + (int)(d - digits);
	}
	return v;
}

/* The code point of the escape at R, behind its backslash. */
static int read_escape(struct reader *r)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *which;
	int high, low;

	if (r->p >= r->end || *r->p == '\0')
		return -EBADMSG;
	which = strchr(from, *r->p);
	if (which) {
		r->p++;
		return to[which - from];
	}
	if (*r->p++ != 'u')
		return -EBADMSG;
	high = hex4(r->p, r->end);
	if (high < 0 || (high >= 0xdc00 && high <= 0xdfff))
		return -EBADMSG;
	r->p += 4;
	if (high < 0xd800 || high > 0xdfff)
		return high;
	if (!take(r, '\\') || !take(r, 'u'))
		return -EBADMSG;
	low = hex4(r->p, r->end);
	if (low < 0xdc00 || low > 0xdfff)
		return -EBADMSG;
	r->p += 4;
	return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

static size_t put_utf8(int c, char out[4])
{
	unsigned u = (unsigned)c;

	if (u < 0x80)
		return out[0] = (char)u, 1;
	if (u < 0x800)
		return out[0] = (char)(0xc0 | u >> 6), out[1] = (char)(0x80 | (u & 63)), 2;
	if (u < 0x10000)
		return out[0] = (char)(0xe0 | u >> 12), out[1] = (char)(0x80 | (u >> 6 & 63)),
		       out[2] = (char)(0x80 | (u & 63)), 3;
	return out[0] = (char)(0xf0 | u >> 18), out[1] = (char)(0x80 | (u >> 12 & 63)),
	       out[2] = (char)(0x80 | (u >> 6 & 63)), out[3] = (char)(0x80 | (u & 63)), 4;
}

/* OUT NULL: only checks. */
static int read_string(struct reader *r, char *out, size_t size)
{
	size_t used = 0;

	if (!take(r, '"'))
		return -EBADMSG;
	if (out && size == 0)
		return -ENOSPC;
	while (r->p < r->end && *r->p != '"') {
		char bytes[4] = { *r->p };
		size_t n = 1;

		if ((unsigned char)*r->p < 0x20)
			return -EBADMSG;
		if (*r->p++ == '\\') {
			int c = read_escape(r);

			if (c < 0)
				return c;
			if (c == 0 && out)
				return -EBADMSG;
			n = put_utf8(c, bytes);
		}
		if (!out)
			continue;
		if (used + n >= size)
			return -ENOSPC;
		memcpy(out + used, bytes, n);
		used += n;
	}
	if (out)
		out[used] = '\0';
	return take(r, '"') ? 0 : -EBADMSG;
}

/* ---- the rest ---- */

static bool read_digits(struct reader *r)
{
	const char *from = r->p;

	while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
		r->p++;
	return r->p > from;
}

static int read_number(struct reader *r)
{
	(void)take(r, '-');
	if (!take(r, '0') && !read_digits(r))
		return -EBADMSG;
	if (take(r, '.') && !read_digits(r))
		return -EBADMSG;
	if (take(r, 'e') || take(r, 'E')) {
		if (!take(r, '+'))
			(void)take(r, '-');
		if (!read_digits(r))
			return -EBADMSG;
	}
	return 0;
}

static int read_word(struct reader *r)
{
	static const char *const words[] = { "true", "false", "null" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t n = strlen(words[i]);

		if ((size_t)(r->end - r->p) >= n && memcmp(r->p, words[i], n) == 0) {
			r->p += n;
			return 0;
		}
	}
	return -EBADMSG;
}

static int read_nested(struct reader *r, char close)
{
	int e = 0;

	r->p++;
	if (++r->depth > JSON_MAX_DEPTH)
		return -EBADMSG;
	skip_blanks(r);
	if (take(r, close))
		return r->depth--, 0;
	do {
		skip_blanks(r);
		if (close == '}') {
			e = read_string(r, NULL, 0);
			skip_blanks(r);
			if (e < 0 || !take(r, ':'))
				return -EBADMSG;
		}
		e = read_value(r);
		skip_blanks(r);
	} while (e == 0 && take(r, ','));
	r->depth--;
	return e == 0 && take(r, close) ? 0 : -EBADMSG;
}

static int read_value(struct reader *r)
{
	skip_blanks(r);
	if (r->p >= r->end)
		return -EBADMSG;
	switch (*r->p) {
	case '{':
		return read_nested(r, '}');
	case '[':
		return read_nested(r, ']');
	case '"':
		return read_string(r, NULL, 0);
	case 't':
	case 'f':
	case 'n':
		return read_word(r);
	default:
		return read_number(r);
	}
}

int json_check(const char *text, size_t len)
{
	struct reader r = { text, text + len, 0 };
	int e = utf8_valid(text, len) ? read_value(&r) : -EBADMSG;

	skip_blanks(&r);
	return e == 0 && r.p == r.end ? 0 : -EBADMSG;
}

static int read_member(struct reader *r, struct member *all, size_t *n)
{
	struct member *m = &all[*n];

	skip_blanks(r);
	if (*n >= MEMBERS_MAX || read_string(r, m->key, sizeof(m->key)) < 0)
		return -EBADMSG;
	for (size_t i = 0; i < *n; i++) {
		if (strcmp(all[i].key, m->key) == 0)
			return -EBADMSG;
	}
	skip_blanks(r);
	if (!take(r, ':'))
		return -EBADMSG;
	skip_blanks(r);
	m->value = r->p;
	if (read_value(r) < 0)
		return -EBADMSG;
	m->len = (size_t)(r->p - m->value);
	(*n)++;
	return 0;
}

int json_members(const char *text, size_t len, json_member_fn fn, void *user)
{
	struct member members[MEMBERS_MAX];
	struct reader r = { text, text + len, 0 };
	size_t n = 0;
	int e = json_check(text, len);

	skip_blanks(&r);
	if (e < 0 || !take(&r, '{'))
		return -EBADMSG;
	skip_blanks(&r);
	if (at(&r, '}'))
		return 0;
	do
		e = read_member(&r, members, &n);
	while (e == 0 && (skip_blanks(&r), take(&r, ',')));
	for (size_t i = 0; e == 0 && i < n; i++)
		e = fn(user, members[i].key, members[i].value, members[i].len);
	return e;
}

/* From element to element; FN NULL: they are counted only. */
static int walk_elements(struct reader r, size_t max, json_element_fn fn, void *user)
{
	size_t i = 0;
	int e = 0;

	r.p++;
	skip_blanks(&r);
	if (at(&r, ']'))
		return 0;
	do {
		const char *value;

		skip_blanks(&r);
		value = r.p;
		if (i == max)
			return -E2BIG;
		e = read_value(&r);
		if (e == 0 && fn)
			e = fn(user, i, value, (size_t)(r.p - value));
		i++;
		skip_blanks(&r);
	} while (e == 0 && take(&r, ','));
	return e;
}

int json_elements(const char *text, size_t len, size_t max, json_element_fn fn, void *user)
{
	struct reader r = { text, text + len, 0 };
	int e = json_check(text, len);

	skip_blanks(&r);
	if (e < 0 || !at(&r, '['))
		return -EBADMSG;
	e = walk_elements(r, max, NULL, NULL);
	return e < 0 ? e : walk_elements(r, max, fn, user);
}

size_t json_compact(const char *value, size_t len, char *out)
{
	bool in_string = false;
	size_t used = 0;

	for (size_t i = 0; i < len; i++) {
		if (!in_string && is_blank(value[i]))
			continue;
		out[used++] = value[i];
		if (in_string && value[i] == '\\' && i + 1 < len)
			out[used++] = value[++i];
		else if (value[i] == '"')
			in_string = !in_string;
	}
	out[used] = '\0';
	return used;
}

int json_decode_string(const char *value, size_t len, char *out, size_t size)
{
	struct reader r = { value, value + len, 0 };
	int e = read_string(&r, out, size);

	if (e < 0)
		return e;
	return r.p == r.end ? 0 : -EBADMSG;
}

int json_decode_bool(const char *value, size_t len, bool *ret)
{
	bool is_true = len == 4 && memcmp(value, "true", 4) == 0;

	if (!is_true && !(len == 5 && memcmp(value, "false", 5) == 0))
		return -EBADMSG;
	*ret = is_true;
	return 0;
}

int json_decode_int(const char *value, size_t len, int64_t *ret)
{
	bool negative = len > 0 && value[0] == '-';
	size_t i = negative ? 1 : 0;
	int64_t v = 0;

	if (i == len)
		return -EBADMSG;
	for (; i < len; i++) {
		if (value[i] < '0' || value[i] > '9')
			return -EBADMSG;
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_sub_overflow(v, value[i] - '0', &v))
			return -ERANGE;
	}
	/* Counted downwards, so that INT64_MIN has a place. */
	if (!negative && v == INT64_MIN)
		return -ERANGE;
	*ret = negative ? v : -v;
	return 0;
}

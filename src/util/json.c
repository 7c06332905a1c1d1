/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A streaming JSON writer. Level 0 is the top: it takes one value, then json_end(). kind[] and
 * need_comma[] are indexed by level; need_comma[0] says that the value was written.
 */
#include "util/json.h"

#include "util/error.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

static const char base64_digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void json_init(struct json *j, FILE *out)
{
	*j = (struct json){ .out = out };
}

static void put_escape(struct json *j, uint32_t c)
{
	if (c >= 0x10000) {
		c -= 0x10000;
		fprintf(j->out, "\\u%04x\\u%04x", (unsigned)(0xd800 + (c >> 10)),
		        (unsigned)(0xdc00 + (c & 0x3ff)));
	} else {
		fprintf(j->out, "\\u%04x", (unsigned)c);
	}
}

static void put_char(struct json *j, const char *s, size_t len, uint32_t c)
{
	if (c == '"' || c == '\\')
		fprintf(j->out, "\\%c", (int)c);
	else if (c == '\n')
		fputs("\\n", j->out);
	else if (c == '\t')
		fputs("\\t", j->out);
	else if (utf8_is_hidden(c))
		/* Only C0 must be escaped; the others are so that a terminal shows them. */
		put_escape(j, c);
	else
		fwrite(s, 1, len, j->out);
}

/* The inside of a string. */
static void put_text(struct json *j, const char *s, size_t len)
{
	uint32_t c;

	for (size_t at = 0; at < len;) {
		size_t n = utf8_decode(s + at, len - at, &c);

		if (n == 0)
			fputs(REPLACEMENT, j->out);
		else
			put_char(j, s + at, n, c);
		at += n > 0 ? n : 1;
	}
}

static void put_base64(struct json *j, const char *s, size_t len)
{
	for (size_t at = 0; at < len; at += 3) {
		size_t n = len - at < 3 ? len - at : 3;
		uint32_t bits = 0;

		for (size_t i = 0; i < 3; i++)
			bits = bits << 8 | (i < n ? (unsigned char)s[at + i] : 0);
		for (size_t i = 0; i < 4; i++)
			fputc(i <= n ? base64_digits[bits >> (18 - 6 * i) & 0x3f] : '=', j->out);
	}
}

/* Comma and key, "KEY SUFFIX", before a value. */
static void begin(struct json *j, const char *key, const char *suffix)
{
	if ((j->kind[j->depth] == '{') != (key != NULL))
		BUG("%s a key, at level %u", key ? "unwanted" : "missing", j->depth);
	if (j->depth == 0 && j->need_comma[0])
		BUG("second value at the top without json_end()");
	if (j->need_comma[j->depth])
		fputc(',', j->out);
	j->need_comma[j->depth] = true;
	if (!key)
		return;
	fputc('"', j->out);
	put_text(j, key, strlen(key));
	fprintf(j->out, "%s\":", suffix);
}

static void open_level(struct json *j, const char *key, char kind)
{
	begin(j, key, "");
	if (j->depth + 1 >= JSON_MAX_DEPTH)
		BUG("more than %d levels", JSON_MAX_DEPTH - 1);
	j->depth++;
	j->kind[j->depth] = kind;
	j->need_comma[j->depth] = false;
	fputc(kind, j->out);
}

void json_open_object(struct json *j, const char *key)
{
	open_level(j, key, '{');
}

void json_open_array(struct json *j, const char *key)
{
	open_level(j, key, '[');
}

void json_close(struct json *j)
{
	if (j->depth == 0)
		BUG("json_close() without an open level");
	fputc(j->kind[j->depth] == '{' ? '}' : ']', j->out);
	j->depth--;
}

void json_string(struct json *j, const char *key, const char *value)
{
	if (!value) {
		json_null(j, key);
		return;
	}
	begin(j, key, "");
	fputc('"', j->out);
	put_text(j, value, strlen(value));
	fputc('"', j->out);
}

void json_data(struct json *j, const char *key, const char *data, size_t len)
{
	if (!key)
		BUG("bytes need a key");
	begin(j, key, "");
	fputc('"', j->out);
	put_text(j, data, len);
	fputc('"', j->out);
	if (utf8_valid(data, len))
		return;
	begin(j, key, "_b64");
	fputc('"', j->out);
	put_base64(j, data, len);
	fputc('"', j->out);
}

void json_bytes(struct json *j, const char *key, const char *value)
{
	if (value)
		json_data(j, key, value, strlen(value));
	else
		json_null(j, key);
}

void json_int(struct json *j, const char *key, int64_t value)
{
	begin(j, key, "");
	fprintf(j->out, "%" PRId64, value);
}

void json_uint(struct json *j, const char *key, uint64_t value)
{
	begin(j, key, "");
	fprintf(j->out, "%" PRIu64, value);
}

void json_seconds(struct json *j, const char *key, int64_t ms)
{
	begin(j, key, "");
	fprintf(j->out, "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
}

void json_bool(struct json *j, const char *key, bool value)
{
	begin(j, key, "");
	fputs(value ? "true" : "false", j->out);
}

void json_null(struct json *j, const char *key)
{
	begin(j, key, "");
	fputs("null", j->out);
}

void json_end(struct json *j)
{
	if (j->depth != 0)
		BUG("json_end() with %u levels open", j->depth);
	fputc('\n', j->out);
	j->need_comma[0] = false;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens: made once, shared, wiped. */
#include "token/token.h"

#include "util/clock.h"
#include "util/json-read.h"
#include "util/mem.h"
#include "util/random.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS INT64_C(1000000000)

void wipe_free(void *p, size_t len)
{
	if (p)
		explicit_bzero(p, len);
	free(p);
}

/* ---- fields ---- */

void token_fields_done(struct token_fields *f)
{
	wipe_free(f->data, f->len);
	*f = (struct token_fields){ 0 };
}

int token_fields_copy(struct token_fields *f, const char *data, size_t len)
{
	f->data = NULL;
	f->len = 0;
	if (len == 0)
		return 0;
	f->data = malloc(len);
	if (!f->data)
		return -ENOMEM;
	memcpy(f->data, data, len);
	f->len = len;
	return 0;
}

bool token_field_name_ok(const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
			return false;
	}
	return n > 0 && n <= JSON_KEY_MAX;
}

const char *token_fields_get(const char *data, size_t len, const char *name)
{
	for (const char *p = data; len > 0 && p < data + len;) {
		const char *value = p + strlen(p) + 1;

		if (strcmp(p, name) == 0)
			return value;
		p = value + strlen(value) + 1;
	}
	return NULL;
}

/* Everything but NAME, then NAME. */
int token_fields_set(struct token_fields *f, const char *name, const char *value)
{
	const char *old = token_fields_get(f->data, f->len, name);
	size_t name_len = strlen(name) + 1, value_len = strlen(value) + 1, used = 0;
	size_t room = f->len + name_len + value_len;
	char *data;

	if (old && strcmp(old, value) == 0)
		return 0;
	if (room > TOKEN_FIELDS_MAX)
		return -ATOLL_E_TOO_BIG;
	data = malloc(room);
	if (!data)
		return -ENOMEM;
	for (const char *p = f->data; f->len > 0 && p < f->data + f->len;) {
		size_t n = strlen(p) + 1;

		n += strlen(p + n) + 1;
		if (strcmp(p, name) != 0) {
			memcpy(data + used, p, n);
			used += n;
		}
		p += n;
	}
	memcpy(data + used, name, name_len);
	memcpy(data + used + name_len, value, value_len);
	wipe_free(f->data, f->len);
	f->data = data;
	f->len = used + name_len + value_len;
	return 1;
}

/* ---- tokens ---- */

bool token_text_ok(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (text[i] < 0x21 || text[i] > 0x7e)
			return false;
	}
	return len > 0 && len <= TOKEN_TEXT_MAX;
}

struct atoll_token *token_new(const char *text, size_t text_len, const struct token_fields *fields,
                              const struct token_life *life)
{
	size_t size = sizeof(struct atoll_token) + text_len + 1 + fields->len;
	struct atoll_token *token = calloc(1, size);
	uint64_t version = life->version;

	if (!token)
		return NULL;
	while (version == 0)
		random_bytes(&version, sizeof(version));
	atomic_init(&token->refs, 1);
	token->version = version;
	token->life_ns = life->life_ns;
	token->real_end_ns = life->real_end_ns;
	token->boot_end_ns = life->boot_end_ns;
	token->size = size;
	token->text_len = text_len;
	memcpy(token->text, text, text_len);
	token->fields = token->text + text_len + 1;
	token->fields_len = fields->len;
	if (fields->len > 0)
		memcpy(token->text + text_len + 1, fields->data, fields->len);
	return token;
}

struct atoll_token *token_with_fields(const struct atoll_token *token,
                                      const struct token_fields *fields)
{
	const struct token_life life = { token->version, token->life_ns, token->real_end_ns,
		                         token->boot_end_ns };

	return token_new(token->text, token->text_len, fields, &life);
}

struct atoll_token *atoll_token_ref(struct atoll_token *token)
{
	if (token)
		(void)atomic_fetch_add_explicit(&token->refs, 1, memory_order_relaxed);
	return token;
}

void atoll_token_unref(struct atoll_token *token)
{
	if (token && atomic_fetch_sub_explicit(&token->refs, 1, memory_order_acq_rel) == 1)
		wipe_free(token, token->size);
}

void token_unrefp(struct atoll_token **token)
{
	atoll_token_unref(*token);
}

const char *atoll_token_text(const struct atoll_token *token)
{
	return token->text;
}

uint64_t atoll_token_version(const struct atoll_token *token)
{
	return token->version;
}

int64_t atoll_token_expires_ms(const struct atoll_token *token)
{
	return token->real_end_ns / 1000000;
}

const char *atoll_token_field(const struct atoll_token *token, const char *name)
{
	return token_fields_get(token->fields, token->fields_len, name);
}

/* ---- age ---- */

struct token_now token_now(void)
{
	return (struct token_now){ clock_real_ns(), clock_boot_ns() };
}

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t token_left(const struct atoll_token *token, struct token_now now)
{
	int64_t real = token->real_end_ns - now.real_ns;

	return token->boot_end_ns == CLOCK_NEVER ? real
	                                         : smaller(real, token->boot_end_ns - now.boot_ns);
}

enum token_age token_age(const struct atoll_token *token, struct token_now now, int jitter_permille)
{
	int64_t left = token_left(token, now), life = token->life_ns;
	int64_t soft = life / 5, least = smaller(60 * SECOND_NS, life / 2);

	if (soft < least)
		soft = least;
	soft += soft / 1000 * jitter_permille;
	if (left <= 0)
		return TOKEN_OVER;
	if (left <= smaller(30 * SECOND_NS, life / 10))
		return TOKEN_HARD;
	return left <= soft ? TOKEN_SOFT : TOKEN_FRESH;
}

/* ---- failures ---- */

struct token_failure *token_failure_new(int code, int status, const char *fmt, ...)
{
	struct token_failure *f = xcalloc(1, sizeof(*f));
	va_list ap;

	atomic_init(&f->refs, 1);
	f->code = code;
	f->status = status;
	f->pause_ns = -1;
	va_start(ap, fmt);
	if (vasprintf(&f->message, fmt, ap) < 0)
		BUG("out of memory");
	va_end(ap);
	return f;
}

struct token_failure *token_failure_ref(struct token_failure *f)
{
	if (f)
		(void)atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
	return f;
}

void token_failure_unref(struct token_failure *f)
{
	if (!f || atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1)
		return;
	free(f->message);
	free(f->hint);
	free(f->url);
	free(f->detail);
	free(f);
}

int token_failure_tell(const struct token_failure *f, int64_t pause_ns, struct error *err)
{
	char again[64] = "";

	if (pause_ns > 0)
		(void)snprintf(again, sizeof(again), " (a moment ago; next try in %.1f s)",
		               (double)pause_ns / 1e9);
	(void)error_set(err, f->code, "%s%s", f->message, again);
	error_cause(err, "POST", f->url, f->code > -4096 ? -f->code : 0, f->detail);
	if (f->hint)
		error_hint(err, "%s", f->hint);
	return f->code;
}

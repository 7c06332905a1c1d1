/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers, read with distrust: a token must be printable, its life a whole number of seconds; and
 * of a body that was to hold a token nothing is ever shown.
 */
#include "token/answer.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/json-read.h"
#include "util/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND_NS   INT64_C(1000000000)
#define PAUSE_MAX_S 3600
#define EXCERPT     200
#define LONG_WORD   25

struct parsed {
	char text[TOKEN_TEXT_MAX + 1];
	int64_t seconds;
	struct token_fields fields;
	const char *wrong; /* what, or NULL */
};

/* ---- being filled ---- */

struct atoll_token_reply *answer_new(void)
{
	struct atoll_token_reply *a = xcalloc(1, sizeof(*a));

	a->pause_ns = -1;
	return a;
}

void answer_free(struct atoll_token_reply *a)
{
	wipe_free(a, sizeof(*a));
}

void answer_freep(struct atoll_token_reply **a)
{
	if (*a)
		answer_free(*a);
}

void atoll_token_reply_status(struct atoll_token_reply *reply, int http_status)
{
	reply->status = http_status;
}

int atoll_token_reply_body(struct atoll_token_reply *reply, const void *data, size_t len)
{
	if (len > sizeof(reply->body) - reply->len)
		return -ATOLL_E_TOO_BIG;
	memcpy(reply->body + reply->len, data, len);
	reply->len += len;
	return 0;
}

/* Seconds, or a date as RFC 9110 wants it written. */
void atoll_token_reply_retry_after(struct atoll_token_reply *reply, const char *value)
{
	struct tm tm = { 0 };
	int64_t seconds = -1;
	const char *end;

	value += strspn(value, " \t");
	end = value + strspn(value, "0123456789");
	if (end > value && end[strspn(end, " \t\r\n")] == '\0')
		seconds = end - value > 9 ? PAUSE_MAX_S : strtol(value, NULL, 10);
	else if (strptime(value, "%a, %d %b %Y %H:%M:%S GMT", &tm))
		seconds = (int64_t)timegm(&tm) - clock_real_ns() / SECOND_NS;
	else
		return;
	seconds = seconds < 0 ? 0 : seconds > PAUSE_MAX_S ? PAUSE_MAX_S : seconds;
	reply->pause_ns = seconds * SECOND_NS;
}

/* ---- a token ---- */

static int keep_field(struct parsed *p, const char *key, const char *value, size_t len)
{
	char *compact;
	int r;

	if (!token_field_name_ok(key) || len > TOKEN_FIELDS_MAX)
		return 0;
	compact = malloc(len + 1);
	if (!compact)
		return -ENOMEM;
	(void)json_compact(value, len, compact);
	r = token_fields_set(&p->fields, key, compact);
	wipe_free(compact, len + 1);
	if (r == -ATOLL_E_TOO_BIG)
		p->wrong = "it has too many other fields";
	return r < 0 ? r : 0;
}

static int take_member(void *user, const char *key, const char *value, size_t len)
{
	struct parsed *p = user;

	if (strcmp(key, "token") == 0) {
		if (json_decode_string(value, len, p->text, sizeof(p->text)) < 0 ||
		    !token_text_ok(p->text, strlen(p->text)))
			p->wrong = "its token is none";
		return 0;
	}
	if (strcmp(key, "expires_in") == 0) {
		if (json_decode_int(value, len, &p->seconds) < 0 || p->seconds <= 0 ||
		    p->seconds > TOKEN_LIFE_MAX)
			p->wrong = "its 'expires_in' is not between one second and ten years";
		return 0;
	}
	return keep_field(p, key, value, len);
}

static struct token_failure *failure_of(const struct answer_to *to, int code, int status,
                                        const char *why)
{
	struct token_failure *f =
		token_failure_new(code, status, "no token for sandbox '%s': %s", to->sandbox, why);

	f->url = xstrdup(to->url);
	return f;
}

static struct token_failure *malformed(const struct answer_to *to, int status, const char *why)
{
	cleanup_free char *text = xasprintf("the answer cannot be used: %s", why);

	return failure_of(to, -EPROTO, status, text);
}

static struct atoll_token *read_token(const struct atoll_token_reply *a, const struct answer_to *to,
                                      struct parsed *p, struct token_failure **ret_failure)
{
	struct token_life life;
	struct atoll_token *token;
	int r = 0;

	if (to->old)
		r = token_fields_copy(&p->fields, to->old->fields, to->old->fields_len);
	if (r == 0)
		r = json_members(a->body, a->len, take_member, p);
	if (r < 0 && !p->wrong)
		p->wrong = "it is not a JSON object";
	if (!p->wrong && p->text[0] == '\0')
		p->wrong = "it has no 'token'";
	if (!p->wrong && p->seconds == 0)
		p->wrong = "it has no 'expires_in'";
	if (p->wrong) {
		*ret_failure = malformed(to, a->status, p->wrong);
		return NULL;
	}
	life = (struct token_life){ .life_ns = p->seconds * SECOND_NS,
		                    .real_end_ns = to->sent.real_ns + p->seconds * SECOND_NS,
		                    .boot_end_ns = to->sent.boot_ns + p->seconds * SECOND_NS };
	token = token_new(p->text, strlen(p->text), &p->fields, &life);
	if (token && token_left(token, token_now()) > 0)
		return token;
	*ret_failure = token ? malformed(to, a->status, "its token has expired on the way")
	                     : failure_of(to, -ENOMEM, 0, "out of memory");
	atoll_token_unref(token);
	return NULL;
}

/* ---- a refusal ---- */

struct excerpt {
	char title[EXCERPT];
	char detail[EXCERPT];
};

static int take_problem(void *user, const char *key, const char *value, size_t len)
{
	struct excerpt *e = user;

	if (strcmp(key, "title") == 0)
		(void)json_decode_string(value, len, e->title, sizeof(e->title));
	if (strcmp(key, "detail") == 0)
		(void)json_decode_string(value, len, e->detail, sizeof(e->detail));
	return 0;
}

/* Nothing that could be the key, or a token, or move a terminal's cursor. A service's words are for
 * people: what is longer than a long word is none. */
static void scrub(char *text, const char *key)
{
	size_t key_len = strlen(key), begin = 0;

	for (char *at = text; key_len > 0 && (at = strstr(at, key)) != NULL; at += key_len)
		memset(at, '*', key_len);
	for (size_t i = 0; text[i] != '\0'; i++) {
		if (text[i] < 0x20 || text[i] > 0x7e)
			text[i] = ' ';
		if (text[i] == ' ')
			begin = i + 1;
		if (i - begin + 1 == LONG_WORD)
			memset(text + begin, '*', LONG_WORD);
		else if (text[i] != ' ' && i - begin + 1 > LONG_WORD)
			text[i] = '*';
	}
}

/* Of RFC 9457 problems the title and the detail; of anything else nothing. */
static char *words_of(const struct atoll_token_reply *a, const char *key)
{
	struct excerpt e = { "", "" };

	if (json_members(a->body, a->len, take_problem, &e) < 0)
		return NULL;
	e.title[sizeof(e.title) - 1] = e.detail[sizeof(e.detail) - 1] = '\0';
	scrub(e.title, key);
	scrub(e.detail, key);
	if (e.title[0] == '\0' && e.detail[0] == '\0')
		return NULL;
	return xasprintf("%s%s%s", e.title, e.title[0] && e.detail[0] ? ": " : "", e.detail);
}

static const struct {
	int status;
	int code;
	const char *hint;
} refusals[] = {
	{ 401, -ATOLL_E_DENIED, "check the API key" },
	{ 403, -ATOLL_E_DENIED, "ask for a key that may use this sandbox" },
	{ 404, -ATOLL_E_NOT_FOUND, NULL },
};

static struct token_failure *refusal(const struct atoll_token_reply *a, const struct answer_to *to)
{
	cleanup_free char *words = words_of(a, to->key);
	cleanup_free char *text = xasprintf("the service answered %d%s%s", a->status,
	                                    words ? ", " : "", words ? words : "");
	struct token_failure *f = failure_of(to, -EREMOTEIO, a->status, text);

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		if (refusals[i].status == a->status) {
			f->code = refusals[i].code;
			f->hint = xstrdup(refusals[i].hint);
		}
	}
	f->pause_ns = a->pause_ns;
	f->detail = words ? xasprintf("%d %s", a->status, words) : xasprintf("%d", a->status);
	return f;
}

struct token_failure *answer_missing(const struct answer_to *to, int code)
{
	cleanup_free char *text =
		xasprintf("no answer from the service: %s",
	                  code > -4096 ? strerrordesc_np(-code) : error_code_name(code));
	struct token_failure *f = failure_of(to, code, 0, text);

	if (code == -ATOLL_E_UNSUPPORTED)
		f->hint =
			xstrdup("install libcurl (libcurl.so.4), or give a transport of your own");
	return f;
}

struct atoll_token *answer_token(const struct atoll_token_reply *a, const struct answer_to *to,
                                 struct token_failure **ret_failure)
{
	struct atoll_token *token = NULL;
	struct parsed *p;

	if (a->status < 200 || a->status > 299) {
		*ret_failure = refusal(a, to);
		return NULL;
	}
	p = xcalloc(1, sizeof(*p));
	token = read_token(a, to, p, ret_failure);
	token_fields_done(&p->fields);
	wipe_free(p, sizeof(*p));
	return token;
}

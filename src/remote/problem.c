/* SPDX-License-Identifier: Apache-2.0 */
/* What a daemon refuses with, as an error of ours. */
#include "remote/http.h"

#include "util/cleanup.h"
#include "util/escape.h"
#include "util/json-read.h"
#include "util/limits.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct words {
	char text[LIMIT_MESSAGE];
};

struct problem {
	struct words code, detail, title, hint, op, path, cause;
	int64_t os_errno;
};

static int take_cause(void *user, const char *key, const char *value, size_t len)
{
	struct problem *p = user;
	const struct {
		const char *name;
		struct words *to;
	} rows[] = { { "op", &p->op }, { "path", &p->path }, { "detail", &p->cause } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i].name, key) == 0)
			(void)json_decode_string(value, len, rows[i].to->text,
			                         sizeof(rows[i].to->text));
	return 0;
}

static int take_member(void *user, const char *key, const char *value, size_t len)
{
	struct problem *p = user;
	const struct {
		const char *name;
		struct words *to;
	} rows[] = { { "code", &p->code },
		     { "detail", &p->detail },
		     { "title", &p->title },
		     { "hint", &p->hint } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i].name, key) == 0)
			(void)json_decode_string(value, len, rows[i].to->text,
			                         sizeof(rows[i].to->text));
	if (strcmp(key, "cause") == 0 && len > 0 && value[0] == '{')
		(void)json_members(value, len, take_cause, p);
	return 0;
}

/* Harmless on a terminal. What is escaped already, with backslashes, stays as it is. */
static void make_harmless(struct words *w)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	for (const char *at = w->text; *at;) {
		size_t n = strcspn(at, "\\");

		escape_add(&sb, at, n);
		at += n;
		if (*at == '\\') {
			strbuf_putc(&sb, '\\');
			at++;
		}
	}
	(void)snprintf(w->text, sizeof(w->text), "%s", strbuf_str(&sb));
}

#define STATUS_DENIED 401

static const struct {
	int status;
	int code;
	const char *why;
	const char *hint;
} statuses[] = {
	{ STATUS_DENIED, -ATOLL_E_DENIED,
	  "the key was refused: there is none, or it is over or revoked",
	  "ask for another one (atoll token new, there), and put it into the key file" },
	{ 403, -ATOLL_E_DENIED, "the key may not do this", "ask for a key of another scope" },
	{ 404, -ATOLL_E_NOT_FOUND, "there is no such thing", NULL },
	{ 410, -ATOLL_E_NOT_FOUND, "it is gone", NULL },
	{ 423, -ATOLL_E_BUSY, "somebody else holds it", NULL },
	{ 429, -ATOLL_E_BUSY, "it was asked too often", "wait a little, then do it again" },
	{ 501, -ATOLL_E_UNSUPPORTED, "it cannot do that", "install a newer atolld there" },
	{ 503, -ATOLL_E_UNREACHABLE, "it is stopping", "do it again when it runs" },
};

/* No words of its own (WHY is NULL), or not a problem: what the status says. */
static int by_status(const struct http_target *t, int status, const char *why, struct error *err)
{
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		if (statuses[i].status != status)
			continue;
		(void)error_set(err, statuses[i].code, "the daemon at '%s' answered %d: %s",
		                t->shown, status, why ? why : statuses[i].why);
		if (statuses[i].hint)
			error_hint(err, "%s", statuses[i].hint);
		return statuses[i].code;
	}
	(void)error_set(err, -ATOLL_E_UNREACHABLE, "what answers at '%s' is no atolld (status %d)",
	                t->shown, status);
	error_hint(err, "look at the address: atoll remote list");
	return -ATOLL_E_UNREACHABLE;
}

int http_problem(const struct http_target *t, int status, const char *text, size_t len,
                 struct error *err)
{
	cleanup_free struct problem *p = xcalloc(1, sizeof(*p));
	cleanup_free char *why = NULL;
	struct words *const all[] = {
		&p->detail, &p->title, &p->hint, &p->op, &p->path, &p->cause
	};
	int code;

	if (!text || json_members(text, len, take_member, p) < 0)
		p->code.text[0] = '\0';
	code = error_code_of(p->code.text);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		make_harmless(all[i]);
	/* What it advises is for who speaks HTTP. */
	if (code != 0 && status == STATUS_DENIED && p->detail.text[0])
		why = xasprintf("the key was refused: %s", p->detail.text);
	if (code == 0 || status == STATUS_DENIED)
		return by_status(t, status, why, err);
	(void)error_set(err, code, "%s", p->detail.text[0] ? p->detail.text : p->title.text);
	error_cause(err, p->op.text[0] ? p->op.text : NULL, p->path.text[0] ? p->path.text : NULL,
	            0, p->cause.text[0] ? p->cause.text : NULL);
	if (p->hint.text[0])
		error_hint(err, "%s", p->hint.text);
	return code;
}

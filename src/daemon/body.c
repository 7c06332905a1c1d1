/* SPDX-License-Identifier: Apache-2.0 */
/* From JSON to structs, by tables. */
#include "daemon/body.h"

#include "daemon/reply.h"
#include "util/cleanup.h"
#include "util/json-read.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* One object on its way into a struct. */
struct reading {
	struct body *b;
	struct error *err;
	const char *where; /* "", or "resources[1]." */
	const struct body_member *table;
	char *ret;     /* the struct */
	uint64_t seen; /* a bit for each row */
};

struct list {
	const struct reading *r;
	const struct body_member *m;
	char *v;
};

void body_done(struct body *b)
{
	for (size_t i = 0; i < b->n; i++)
		free(b->v[i]);
	free(b->v);
	*b = BODY_INIT;
}

static void *hold(struct body *b, size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (p && grow((void **)&b->v, &b->cap, b->n + 1, sizeof(*b->v)) < 0) {
		free(p);
		p = NULL;
	}
	if (p)
		b->v[b->n++] = p;
	return p;
}

static int no_memory(const struct reading *r)
{
	return error_set(r->err, -ENOMEM, "no memory for the request");
}

static int wrong(const struct reading *r, const struct body_member *m, const char *what)
{
	return error_set(r->err, -ATOLL_E_INVALID, "member '%s%s': %s", r->where, m->name, what);
}

/* ---- values ---- */

static int read_text(const struct reading *r, const struct body_member *m, const char *value,
                     size_t len, const char **ret)
{
	char *text = hold(r->b, len + 1, 1);
	int e;

	if (!text)
		return no_memory(r);
	e = json_decode_string(value, len, text, len + 1);
	if (e < 0)
		return wrong(r, m, "it is to be text, without a NUL in it");
	if (m->required && !*text)
		return wrong(r, m, "it is empty");
	*ret = text;
	return 0;
}

static int take_text(void *user, size_t i, const char *value, size_t len)
{
	struct list *l = user;

	return read_text(l->r, l->m, value, len, (const char **)(void *)l->v + i);
}

static int count(void *user, size_t i, const char *value, size_t len)
{
	(void)value;
	(void)len;
	*(size_t *)user = i + 1;
	return 0;
}

/* How many; memory is taken for those only. */
static int read_length(const struct reading *r, const struct body_member *m, const char *value,
                       size_t len, size_t *ret)
{
	int e;

	*ret = 0;
	e = json_elements(value, len, BODY_LIST_MAX, count, ret);
	if (e == -E2BIG)
		return wrong(r, m, "it is too long a list");
	return e < 0 ? wrong(r, m, "it is to be a list") : 0;
}

static int read_texts(const struct reading *r, const struct body_member *m, const char *value,
                      size_t len)
{
	struct list l = { r, m, NULL };
	size_t n;
	int e = read_length(r, m, value, len, &n);

	if (e < 0)
		return e;
	l.v = hold(r->b, n + 1, sizeof(char *));
	if (!l.v)
		return no_memory(r);
	e = json_elements(value, len, n, take_text, &l);
	memcpy(r->ret + m->offset, &l.v, sizeof(l.v));
	return e;
}

static int read_object(struct reading *r, const char *value, size_t len, const char *what);

static int take_object(void *user, size_t i, const char *value, size_t len)
{
	struct list *l = user;
	char where[96], what[112];
	struct reading inner = { .b = l->r->b,
		                 .err = l->r->err,
		                 .where = where,
		                 .table = l->m->of,
		                 .ret = l->v + i * l->m->of_size };

	(void)snprintf(where, sizeof(where), "%s%s[%zu].", l->r->where, l->m->name, i);
	(void)snprintf(what, sizeof(what), "member '%s%s[%zu]'", l->r->where, l->m->name, i);
	return read_object(&inner, value, len, what);
}

static int read_objects(const struct reading *r, const struct body_member *m, const char *value,
                        size_t len)
{
	struct body_list *to = (void *)(r->ret + m->offset);
	struct list l = { r, m, NULL };
	size_t n;
	int e = read_length(r, m, value, len, &n);

	if (e < 0)
		return e;
	l.v = hold(r->b, n, m->of_size);
	if (!l.v)
		return no_memory(r);
	*to = (struct body_list){ l.v, n };
	return json_elements(value, len, n, take_object, &l);
}

static int read_member(const struct reading *r, const struct body_member *m, const char *value,
                       size_t len)
{
	void *to = r->ret + m->offset;

	switch (m->kind) {
	case BODY_TEXT:
		return read_text(r, m, value, len, to);
	case BODY_BOOL:
		return json_decode_bool(value, len, to) < 0 ? wrong(r, m, "it is true or false")
		                                            : 0;
	case BODY_NUMBER:
		return json_decode_int(value, len, to) < 0
		               ? wrong(r, m, "it is to be a whole number")
		               : 0;
	case BODY_TEXTS:
		return read_texts(r, m, value, len);
	case BODY_OBJECTS:
		return read_objects(r, m, value, len);
	case BODY_KIND_END_:
		break;
	}
	BUG("member %s has no kind", m->name);
}

/* ---- objects ---- */

static int unknown(const struct reading *r, const char *key)
{
	cleanup_strbuf struct strbuf known = STRBUF_INIT;

	for (const struct body_member *m = r->table; m->name; m++)
		strbuf_printf(&known, "%s%s", known.len ? ", " : "", m->name);
	(void)error_set(r->err, -ATOLL_E_INVALID, "there is no member '%s%s'", r->where, key);
	error_hint(r->err, "known are: %s", strbuf_str(&known));
	return -ATOLL_E_INVALID;
}

static int take_member(void *user, const char *key, const char *value, size_t len)
{
	struct reading *r = user;

	for (const struct body_member *m = r->table; m->name; m++) {
		if (strcmp(m->name, key) != 0)
			continue;
		r->seen |= UINT64_C(1) << (m - r->table);
		return read_member(r, m, value, len);
	}
	return unknown(r, key);
}

static int read_object(struct reading *r, const char *value, size_t len, const char *what)
{
	int e = json_members(value, len, take_member, r);

	if (e < 0 && !r->err->code)
		return error_set(r->err, -ATOLL_E_INVALID,
		                 "%s is to be one JSON object, with each member once", what);
	for (const struct body_member *m = r->table; e >= 0 && m->name; m++)
		if (m->required && !(r->seen & UINT64_C(1) << (m - r->table)))
			e = error_set(r->err, -ATOLL_E_INVALID, "member '%s%s' is missing",
			              r->where, m->name);
	return e;
}

/* "application/json", whatever follows the semicolon. */
static bool is_json(const char *type)
{
	size_t len = strcspn(type, "; \t");

	return len == strlen("application/json") && strncasecmp(type, "application/json", len) == 0;
}

int body_expect_json(struct call *c)
{
	const char *type = call_header(c, "Content-Type");
	struct error err = ERROR_INIT;
	int e;

	if (c->body_len == 0 || (type && is_json(type)))
		return 0;
	(void)error_set(&err, -ATOLL_E_INVALID,
	                "the body's Content-Type is to be application/json");
	e = reply_error_as(c, 415, &err);
	return e < 0 ? e : 1;
}

int body_read(struct call *c, struct body *b, const struct body_member *table, void *ret)
{
	struct reading r = { .b = b, .err = &c->err, .where = "", .table = table, .ret = ret };
	int e = body_expect_json(c);

	if (e != 0)
		return e;
	if (c->body_len == 0)
		return read_object(&r, "{}", 2, "the body");
	return read_object(&r, c->body, c->body_len, "the body");
}

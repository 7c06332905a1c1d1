/* SPDX-License-Identifier: Apache-2.0 */
/* Answers: one response per request, made here and queued here. */
#include "daemon/reply.h"

#include "daemon/audit.h"
#include "daemon/daemon.h"
#include "daemon/problem.h"
#include "daemon/reply-cache.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_BLOCK (32u << 10)
#define JSON_TYPE    "application/json"

void reply_header(struct call *c, const char *name, const char *value)
{
	if (c->n_headers == CALL_HEADERS)
		BUG("a response with more than %d headers", CALL_HEADERS);
	c->headers[c->n_headers].name = name;
	c->headers[c->n_headers++].value = xstrdup(value);
}

static int no_memory(struct call *c)
{
	return error_set(&c->err, -ENOMEM, "no memory for the answer");
}

int reply_response(struct call *c, unsigned status, struct MHD_Response *response)
{
	enum MHD_Result ok;

	if (!response)
		return no_memory(c);
	if (c->answered)
		BUG("request %s is answered twice", c->id);
	(void)MHD_add_response_header(response, "X-Request-Id", c->id);
	(void)MHD_add_response_header(response, "Cache-Control", "no-store");
	(void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	for (size_t i = 0; i < c->n_headers; i++)
		(void)MHD_add_response_header(response, c->headers[i].name, c->headers[i].value);
	if (c->close)
		(void)MHD_add_response_header(response, "Connection", "close");
	audit_answered(c, status);
	ok = MHD_queue_response(c->connection, status, response);
	MHD_destroy_response(response);
	if (ok != MHD_YES)
		return error_set(&c->err, -EIO, "the answer cannot be queued");
	c->status = status;
	c->answered = true;
	peer_enter_sending(c->d->peers, c->peer, c->answer_len);
	return 0;
}

static struct MHD_Response *with_type(struct MHD_Response *response, const char *type)
{
	if (response)
		(void)MHD_add_response_header(response, "Content-Type", type);
	return response;
}

int reply_text(struct call *c, unsigned status, const char *type, char *text, size_t len)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);

	if (!response)
		free(text);
	c->answer_len = len;
	return reply_response(c, status, with_type(response, type));
}

int reply_static(struct call *c, unsigned status, const char *type, const char *text, size_t len)
{
	struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback_cls(
		len, (void *)(uintptr_t)text, NULL, NULL);

	return reply_response(c, status, with_type(response, type));
}

int reply_empty(struct call *c, unsigned status)
{
	return reply_response(c, status,
	                      MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

/* What FILL writes, in memory. */
static int json_text(struct call *c, reply_fill_fn fill, void *arg, char **ret, size_t *ret_len)
{
	cleanup_free char *text = NULL;
	struct json j;
	FILE *f = open_memstream(&text, ret_len);
	int r;

	if (!f)
		return no_memory(c);
	json_init(&j, f);
	r = fill(&j, arg);
	if (r >= 0)
		json_end(&j);
	if (fclose(f) != 0 && r >= 0)
		return no_memory(c);
	if (r < 0)
		return r;
	*ret = take_ptr(text);
	return r;
}

int reply_json(struct call *c, unsigned status, reply_fill_fn fill, void *arg)
{
	char *text;
	size_t len;
	int r = json_text(c, fill, arg, &text, &len);

	return r < 0 ? r : reply_text(c, status, JSON_TYPE, text, len);
}

/* ---- problems ---- */

static int fill_problem(struct json *j, void *arg)
{
	const struct problem *p = arg;

	problem_write(j, p);
	return 0;
}

static int reply_problem(struct call *c, struct problem *p)
{
	char *text;
	size_t len;
	int r;

	p->instance = c->id;
	r = json_text(c, fill_problem, p, &text, &len);
	return r < 0 ? r : reply_text(c, p->status, PROBLEM_TYPE, text, len);
}

int reply_error_as(struct call *c, unsigned status, struct error *err)
{
	cleanup_error struct error own = ERROR_INIT;
	struct problem p;

	error_move(&own, err); /* ERR may be c->err, which a failure here would set */
	problem_of_error(&p, status, &own);
	return reply_problem(c, &p);
}

int reply_error(struct call *c, struct error *err)
{
	return reply_error_as(c, 0, err);
}

int reply_result(struct call *c, int r)
{
	struct problem p;

	problem_of_result(&p, r, c->res);
	return reply_problem(c, &p);
}

/* ---- streams ---- */

struct stream {
	struct reply_stream s;
	struct call *c;
};

static void stream_done(void *cls)
{
	struct stream *st = cls;

	if (st->s.done)
		st->s.done(st->s.arg);
	free(st);
}

static ssize_t stream_read(void *cls, uint64_t at, char *buf, size_t size)
{
	struct stream *st = cls;
	ssize_t n;

	(void)at;
	peer_enter(st->c->d->peers, st->c->peer, PEER_WORKING);
	n = st->s.read(st->s.arg, buf, size);
	peer_enter(st->c->d->peers, st->c->peer, PEER_SENDING);
	if (n == 0)
		return MHD_CONTENT_READER_END_OF_STREAM;
	return n < 0 ? MHD_CONTENT_READER_END_WITH_ERROR : n;
}

int reply_stream(struct call *c, unsigned status, const struct reply_stream *s)
{
	struct stream *st = xcalloc(1, sizeof(*st));
	struct MHD_Response *response;

	*st = (struct stream){ .s = *s, .c = c };
	response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, stream_read,
	                                             st, stream_done);
	if (!response)
		stream_done(st);
	return reply_response(c, status, with_type(response, s->type));
}

/* ---- answers that hold until the store changes ---- */

static int refill(struct call *c, struct reply_cache *cache, reply_fill_fn fill, void *arg)
{
	uint64_t version;
	char *text;
	size_t len;
	int r = stores_version(c->d->stores, &version, &c->err);

	if (r < 0 || (cache->text && !cache->passing && cache->version == version))
		return r;
	/* The version is from before the reading: a change in between is seen next time. */
	r = json_text(c, fill, arg, &text, &len);
	if (r < 0)
		return r;
	free(cache->text);
	cache->text = text;
	cache->len = len;
	cache->version = version;
	cache->passing = r > 0;
	return 0;
}

int reply_cached(struct call *c, struct reply_cache *cache, reply_fill_fn fill, void *arg)
{
	struct MHD_Response *response = NULL;
	int r;

	(void)pthread_mutex_lock(&cache->mutex);
	r = refill(c, cache, fill, arg);
	if (r >= 0)
		response = MHD_create_response_from_buffer(cache->len, cache->text,
		                                           MHD_RESPMEM_MUST_COPY);
	(void)pthread_mutex_unlock(&cache->mutex);
	return r < 0 ? r : reply_response(c, MHD_HTTP_OK, with_type(response, JSON_TYPE));
}

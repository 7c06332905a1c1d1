/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/grant.h"

#include "daemon/issued.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_HEADER "Idempotency-Key"
#define KEY_MAX    255

/* ---- which request ---- */

struct request {
	char digest[SHA256_TEXT_LEN]; /* "": without a key */
	char body[SHA256_TEXT_LEN];
};

static bool key_is_good(const char *key)
{
	size_t len = strlen(key);

	for (size_t i = 0; i < len; i++)
		if (key[i] <= 0x20 || key[i] > 0x7e)
			return false;
	return len > 0 && len <= KEY_MAX;
}

static int read_request(struct call *c, const struct grant *g, struct request *ret)
{
	const char *key = call_header(c, KEY_HEADER);
	cleanup_free char *text = NULL;
	int r;

	if (!key)
		return 0;
	if (!key_is_good(key))
		return error_set(&c->err, -ATOLL_E_INVALID,
		                 KEY_HEADER " is 1 to %d printable characters", KEY_MAX);
	text = xasprintf("%s\n%s\n%s\n%s", c->who.credential.id, c->route->path, g->subject, key);
	r = secret_digest(text, strlen(text), ret->digest, &c->err);
	return r < 0 ? r : secret_digest(c->body, c->body_len, ret->body, &c->err);
}

/* ---- the answer ---- */

/* Where it stands there is no other copy of it: it is written here at once, and wiped. */
struct text {
	char data[2048];
};

static void wipe_text(void *cls)
{
	explicit_bzero(cls, sizeof(struct text));
	free(cls);
}

static int reply_secret(struct call *c, const struct grant *g, const struct secret *secret,
                        const struct credential_row *row)
{
	struct text *t = xcalloc(1, sizeof(*t));
	FILE *f = fmemopen(t->data, sizeof(t->data), "w");
	struct MHD_Response *response;
	struct json j;

	if (!f) {
		free(t);
		return error_set(&c->err, -ENOMEM, "no memory for the answer");
	}
	(void)setvbuf(f, NULL, _IONBF, 0);
	json_init(&j, f);
	g->fill(&j, secret, row);
	json_end(&j);
	if (ferror(f))
		BUG("an answer with a secret is longer than %zu bytes", sizeof(t->data));
	(void)fclose(f);
	response = MHD_create_response_from_buffer_with_free_callback_cls(strlen(t->data), t->data,
	                                                                  wipe_text, t);
	if (!response)
		wipe_text(t);
	else
		(void)MHD_add_response_header(response, "Content-Type", "application/json");
	return reply_response(c, MHD_HTTP_CREATED, response);
}

static int make(struct call *c, const struct grant *g, const struct request *rq,
                struct secret *ret_secret, struct credential_row *ret_row)
{
	int r = g->make(c, g->arg, rq->digest, ret_secret, ret_row);

	if (*rq->digest)
		issued_end(rq->digest, r < 0 ? NULL : ret_secret, ret_row);
	return r;
}

static int busy(struct call *c)
{
	(void)error_set(&c->err, -ATOLL_E_BUSY, "a request with this " KEY_HEADER " is under way");
	return reply_error_as(c, MHD_HTTP_CONFLICT, &c->err);
}

static int other(struct call *c)
{
	(void)error_set(&c->err, -ATOLL_E_INVALID,
	                "this " KEY_HEADER " was used for another request");
	error_hint(&c->err, "make up a new one for each new request");
	return reply_error_as(c, MHD_HTTP_UNPROCESSABLE_CONTENT, &c->err);
}

/* What was answered before is no answer any more when it was revoked since. */
static enum issued begin(struct call *c, const struct request *rq, struct secret *ret_secret,
                         struct credential_row *ret_row)
{
	enum issued how =
		*rq->digest ? issued_begin(rq->digest, rq->body, ret_secret, ret_row) : ISSUED_NEW;

	if (how != ISSUED_AGAIN || credential_holds(c->atoll, ret_row->sha256, NULL) == 1)
		return how;
	issued_end(rq->digest, NULL, NULL);
	return issued_begin(rq->digest, rq->body, ret_secret, ret_row);
}

int grant_answer(struct call *c, const struct grant *g)
{
	cleanup_secret struct secret secret = SECRET_INIT;
	struct request rq = { "", "" };
	struct credential_row row;
	int r = read_request(c, g, &rq);

	if (r < 0)
		return r;
	switch (begin(c, &rq, &secret, &row)) {
	case ISSUED_BUSY:
		return busy(c);
	case ISSUED_OTHER:
		return other(c);
	case ISSUED_NEW:
		r = make(c, g, &rq, &secret, &row);
		break;
	case ISSUED_AGAIN:
		break;
	}
	if (r < 0)
		return r;
	(void)snprintf(c->outcome, sizeof(c->outcome), "%s", row.id);
	return reply_secret(c, g, &secret, &row);
}

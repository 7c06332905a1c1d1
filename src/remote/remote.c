/* SPDX-License-Identifier: Apache-2.0 */
/* A remote that is open: its key, its tokens, its two planes. */
#include "remote/remote.h"

#include "fs/atomic.h"
#include "strategy/result.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_MAX       4096
#define TOKEN_WAIT_MS 30000
#define ASK_AGAIN_MS  2000
#define FOR_OTHERS    077
#define STATUS_DENIED 401

/* ---- the key ---- */

static int refuse_key(const char *path, const char *why, const char *hint, struct error *err)
{
	(void)error_set(err, -ATOLL_E_DENIED, "key file '%s' is not used: it %s", path, why);
	error_hint(err, "%s", hint);
	return -ATOLL_E_DENIED;
}

static int check_key_file(int fd, const char *path, struct error *err)
{
	cleanup_free char *chmod_it = xasprintf("chmod 600 '%s'", path);
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_sys(err, -errno, "stat", path);
	if (!S_ISREG(st.st_mode))
		return refuse_key(path, "is no regular file", "give a file with the key", err);
	if (st.st_uid != geteuid())
		return refuse_key(path, "belongs to somebody else", "give a file of your own", err);
	if (st.st_mode & FOR_OTHERS)
		return refuse_key(path, "can be read by others", chmod_it, err);
	return 0;
}

static bool is_key(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return false;
	return len > 0;
}

static int read_key(const char *path, char **ret, struct error *err)
{
	cleanup_close int fd =
		open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	char *text = NULL;
	size_t len = 0;
	int r;

	if (fd < 0 && errno == ELOOP)
		return refuse_key(path, "is a link", "give the file itself", err);
	if (fd < 0)
		return error_sys(err, -errno, "open the key file", path);
	r = check_key_file(fd, path, err);
	if (r < 0)
		return r;
	r = fs_read_all(fd, KEY_MAX, &text, &len);
	if (r < 0)
		return error_sys(err, r, "read the key file", path);
	while (len > 0 && strchr("\r\n\t ", text[len - 1]))
		text[--len] = '\0';
	if (!is_key(text, len)) {
		http_wipe_data(text, len);
		return refuse_key(path, "holds no key", "put into it what atoll token new printed",
		                  err);
	}
	*ret = text;
	return 0;
}

/* ---- open and close ---- */

int remote_open_config(struct atoll *a, const struct remote_config *c, struct remote **ret,
                       struct error *err)
{
	cleanup_remote struct remote *r = xcalloc(1, sizeof(*r));
	int k = http_target_init(&r->target, c->url, c->ca_file, err);

	if (k < 0)
		return error_prefix(err, k, "remote '%s'", c->name);
	r->name = xstrdup(c->name);
	if (c->key_file)
		k = read_key(c->key_file, &r->key, err);
	if (k < 0)
		return error_prefix(err, k, "remote '%s'", c->name);
	if (a)
		r->token_dir = xasprintf("%s/tokens", a->home);
	*ret = take_ptr(r);
	return 0;
}

int remote_open(struct atoll *a, const char *name, struct remote **ret, struct error *err)
{
	cleanup_remote_config struct remote_config c = { 0 };
	int r = remote_config_find(name, &c, err);

	return r < 0 ? r : remote_open_config(a, &c, ret, err);
}

void remote_close(struct remote *r)
{
	if (!r)
		return;
	if (r->tokens)
		atoll_tokens_close(r->tokens);
	http_target_done(&r->target);
	if (r->key)
		http_wipe_data(r->key, strlen(r->key));
	free(r->token_dir);
	free(r->name);
	free(r);
}

void remote_closep(struct remote **r)
{
	remote_close(*r);
}

/* ---- the control plane ---- */

int remote_call(struct remote *r, const struct http_request *q, struct http_reply *ret,
                struct error *err)
{
	struct http_request keyed = *q;
	int k;

	keyed.bearer = r->key;
	k = http_call(&r->target, &keyed, ret, err);
	return error_prefix(err, k, "remote '%s'", r->name);
}

int remote_check(struct remote *r, struct error *err)
{
	cleanup_http_reply struct http_reply reply = HTTP_REPLY_INIT;
	cleanup_free char *format = NULL;
	int k = remote_call(r, &(struct http_request){ .method = "GET", .path = "/v1/version" },
	                    &reply, err);

	if (k < 0)
		return k;
	format = http_reply_string(&reply, "format");
	if (format && strncmp(format, "atoll.", strlen("atoll.")) == 0)
		return 0;
	(void)error_set(err, -ATOLL_E_UNREACHABLE, "remote '%s': what answers at '%s' is no atolld",
	                r->name, r->target.shown);
	error_hint(err, "look at the address");
	return -ATOLL_E_UNREACHABLE;
}

/* A daemon that is gone is not waited for. */
int remote_check_key(struct remote *r, struct error *err)
{
	cleanup_http_reply struct http_reply reply = HTTP_REPLY_INIT;
	cleanup_error struct error own = ERROR_INIT;
	int k = remote_call(r,
	                    &(struct http_request){ .method = "GET",
	                                            .path = "/v1/version",
	                                            .timeout_ms = ASK_AGAIN_MS },
	                    &reply, &own);

	if (k != -ATOLL_E_DENIED)
		return 0;
	error_move(err, &own);
	return k;
}

/* ---- tokens ---- */

/* In a thread of the cache. */
static int send_request(void *user, const struct atoll_token_request *q,
                        struct atoll_token_reply *reply)
{
	cleanup_http_reply struct http_reply got = HTTP_REPLY_INIT;
	cleanup_error struct error err = ERROR_INIT;
	const struct http_target *t = user;
	const struct http_request request = { .method = "POST",
		                              .path = q->url + strlen(t->base),
		                              .bearer = q->key[0] ? q->key : NULL,
		                              .timeout_ms = q->timeout_ms };
	char seconds[32];
	int r = http_ask(t, &request, &got, &err);

	if (r < 0)
		return err.os_errno ? -err.os_errno : r;
	atoll_token_reply_status(reply, got.status);
	if (got.retry_after_ms >= 0) {
		(void)snprintf(seconds, sizeof(seconds), "%lld",
		               (long long)(got.retry_after_ms / 1000));
		atoll_token_reply_retry_after(reply, seconds);
	}
	return got.len ? atoll_token_reply_body(reply, got.body, got.len) : 0;
}

/* R: NULL, or whose key it was for. */
static int of_result(const struct remote *r, int code, const struct atoll_result *res,
                     struct error *err)
{
	const char *hint = atoll_result_hint(res);

	if (code > -ATOLL_E_INVALID) /* an errno: nothing, or nothing of use, was answered */
		code = -ATOLL_E_UNREACHABLE;
	(void)error_set(err, code, "%s", atoll_result_message(res));
	if (r && code == -ATOLL_E_DENIED)
		error_hint(err,
		           "put a key that may do this into the key file (atoll token new, there); "
		           "a session that another key made is left by atoll --remote %s stop "
		           "--force",
		           r->name);
	else if (hint && *hint)
		error_hint(err, "%s", hint);
	return code;
}

static int open_tokens(struct remote *r, struct atoll_result *res, struct error *err)
{
	cleanup_free char *principal = NULL;
	struct atoll_tokens_config c = { .endpoint = r->target.base,
		                         .key = r->key,
		                         .dir = r->token_dir,
		                         .unix_socket = r->target.unix_socket,
		                         .send = send_request,
		                         .user = &r->target };
	int k;

	if (r->tokens)
		return 0;
	/* Another key is another principal: what the old one was refused is not its failure. Of the key
	 * 32 bits of a hash, which tell nobody anything. */
	principal = xasprintf("%s %s %08x", r->name, r->target.shown,
	                      (unsigned)(hash64(r->key, strlen(r->key)) & 0xffffffffu));
	c.principal = principal;
	k = atoll_tokens_open(&c, &r->tokens, res);
	return k < 0 ? of_result(NULL, k, res, err) : 0;
}

/* 1: refused, and another one may do. */
typedef int (*with_token_fn)(struct remote *r, const char *token, void *ctx, struct error *err);

/* Without a key the daemon knows us by our uid, and no token is needed. */
static int with_token(struct remote *r, const char *sandbox, with_token_fn fn, void *ctx,
                      struct error *err)
{
	struct atoll_result *res = atoll_result_new();
	struct atoll_token_handle *h = NULL;
	struct atoll_token *token = NULL;
	int k = 1;

	if (r->key)
		k = open_tokens(r, res, err);
	if (r->key && k == 0 && atoll_tokens_handle(r->tokens, sandbox, &h, res) < 0)
		k = error_set(err, -ATOLL_E_INVALID, "'%s' is no sandbox's id", sandbox);
	if (!r->key)
		k = fn(r, NULL, ctx, err);
	for (int i = 0; k >= 0 && r->key && i < 2; i++) {
		k = atoll_token_get(h, TOKEN_WAIT_MS, 0, &token, res);
		if (i > 0) /* of the first one, which was refused */
			error_done(err);
		if (k < 0) {
			k = of_result(r, k, res, err);
			break;
		}
		k = fn(r, atoll_token_text(token), ctx, err);
		if (k <= 0)
			break;
		(void)atoll_token_invalidate(h, atoll_token_version(token));
	}
	atoll_result_free(res);
	return k > 0 ? err->code : error_prefix(err, k, "remote '%s'", r->name);
}

struct call {
	const struct http_request *request;
	struct http_reply *reply;
};

static int call_with(struct remote *r, const char *token, void *ctx, struct error *err)
{
	struct call *c = ctx;
	struct http_request q = *c->request;
	int k;

	http_reply_done(c->reply);
	q.bearer = token;
	k = http_call(&r->target, &q, c->reply, err);
	return k < 0 && c->reply->status == STATUS_DENIED ? 1 : k;
}

int remote_call_token(struct remote *r, const char *sandbox, const struct http_request *q,
                      struct http_reply *ret, struct error *err)
{
	struct call c = { .request = q, .reply = ret };

	*ret = HTTP_REPLY_INIT;
	return with_token(r, sandbox, call_with, &c, err);
}

struct connecting {
	const struct remote_upgrade *upgrade;
	struct remote_link *link;
};

static int connect_with(struct remote *r, const char *token, void *ctx, struct error *err)
{
	struct connecting *c = ctx;
	struct remote_upgrade u = *c->upgrade;
	int status = 0, k;

	u.bearer = token;
	k = remote_upgrade(&r->target, &u, &c->link, &status, err);
	return k < 0 && status == STATUS_DENIED ? 1 : k;
}

int remote_connect(struct remote *r, const char *sandbox, const struct remote_upgrade *u,
                   struct remote_link **ret_link, struct error *err)
{
	struct connecting c = { .upgrade = u };
	int k = with_token(r, sandbox, connect_with, &c, err);

	if (k == 0)
		*ret_link = c.link;
	return k;
}

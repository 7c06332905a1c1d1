/* SPDX-License-Identifier: Apache-2.0 */
/* Questions and answers of a cycle. */
#include "remote/step.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/json-read.h"
#include "util/json.h"
#include "util/mem.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FEATURE_MAX 32
#define FEATURES    64

void step_there_done(struct there *t)
{
	free(t->root);
	*t = THERE_INIT;
}

/* ---- what it says ---- */

static int take_feature(void *user, size_t i, const char *value, size_t len)
{
	struct there *t = user;
	char name[FEATURE_MAX];

	(void)i;
	if (json_decode_string(value, len, name, sizeof(name)) == 0 && strcmp(name, "lock") == 0)
		t->has_lock = true;
	return 0;
}

static int take_pending(void *user, const char *key, const char *value, size_t len)
{
	struct there *t = user;

	if (strcmp(key, "run") == 0)
		return json_decode_int(value, len, &t->run);
	if (strcmp(key, "changes") == 0)
		return json_decode_int(value, len, &t->changes);
	return 0;
}

static int take_root(struct there *t, const char *value, size_t len)
{
	char path[PATH_MAX];
	int r = json_decode_string(value, len, path, sizeof(path));

	if (r < 0 || path[0] != '/')
		return -EBADMSG;
	free(t->root);
	t->root = xstrdup(path);
	return 0;
}

static int take_member(void *user, const char *key, const char *value, size_t len)
{
	struct there *t = user;

	if (strcmp(key, "generation") == 0)
		return json_decode_int(value, len, &t->generation);
	if (strcmp(key, "features") == 0)
		return json_elements(value, len, FEATURES, take_feature, t);
	if (strcmp(key, "root") == 0)
		return take_root(t, value, len);
	if (strcmp(key, "pending") == 0 && len > 0 && value[0] == '{') {
		t->has_pending = true;
		return json_members(value, len, take_pending, t);
	}
	return take_pending(t, key, value, len);
}

static int read_answer(const char *text, size_t len, struct there *t, struct error *err)
{
	return json_members(text, len, take_member, t) < 0
	               ? error_set(err, -EPROTO, "the daemon's answer cannot be read")
	               : 0;
}

int step_read(const struct strbuf *answer, struct there *t, struct error *err)
{
	return read_answer(strbuf_str(answer), answer->len, t, err);
}

/* ---- open and close ---- */

/* For the words that others read who wait for us. */
static char *who_we_are(void)
{
	const struct passwd *pw = getpwuid(getuid());
	char host[HOST_NAME_MAX + 1] = "";

	(void)gethostname(host, sizeof(host) - 1);
	return xasprintf("%s pid %d %s", *host ? host : "?", (int)getpid(), pw ? pw->pw_name : "?");
}

static char *open_text(const struct remote_run *run)
{
	cleanup_free char *who = who_we_are();
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	struct json j;

	if (!f)
		return NULL;
	json_init(&j, f);
	json_open_object(&j, NULL);
	json_int(&j, "wait_ms", run->wait_ms);
	json_string(&j, "client", who);
	json_close(&j);
	json_end(&j);
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

static int check_lock(const struct remote_run *run, const struct there *t, struct error *err)
{
	if (t->has_lock || run->unserialized)
		return 0;
	(void)error_set(err, -ATOLL_E_LOCK_UNSUPPORTED,
	                "the daemon has no lock for commands: two at once would mix their changes");
	error_hint(err, "--unserialized runs it all the same, if nobody else uses the session");
	return -ATOLL_E_LOCK_UNSUPPORTED;
}

int step_open(struct connection *c, const struct remote_run *run, struct there *ret,
              struct error *err)
{
	cleanup_free char *text = open_text(run);
	cleanup_strbuf struct strbuf answer = STRBUF_INIT;
	int r;

	if (!text)
		return error_sys(err, -ENOMEM, "write", "the request");
	c->doing = "while it waited for the session";
	r = connection_ask(c, FRAME_OPEN, text, FRAME_OPENED, &answer, err);
	if (r == 0)
		r = step_read(&answer, ret, err);
	if (r == 0 && !ret->root)
		r = error_set(err, -EPROTO, "the daemon does not say where the project is");
	return r < 0 ? r : check_lock(run, ret, err);
}

int step_close(struct connection *c, struct error *err)
{
	c->doing = "while the session was closed";
	return connection_ask(c, FRAME_CLOSE, "", FRAME_CLOSED, NULL, err);
}

/* ---- streams ---- */

/* Data frames into FD, until the end. */
static int receive_stream(struct connection *c, int fd, struct there *t, struct error *err)
{
	struct frame f;
	int r;

	for (;;) {
		r = connection_next(c, &f, err);
		if (r < 0)
			return r;
		if (f.type == FRAME_PULL_END)
			return read_answer((const char *)f.data, f.len, t, err);
		if (f.type != FRAME_PULL_DATA)
			return error_set(err, -EPROTO,
			                 "the daemon sent a frame that belongs elsewhere");
		r = fs_write_all(fd, f.data, f.len);
		if (r < 0)
			return error_sys(err, r, "keep", "what was pulled");
	}
}

static int ask_stream(struct connection *c, enum frame_type type, int dir_fd, struct there *t,
                      int *ret_fd, struct error *err)
{
	cleanup_close int fd = FD_NONE;
	int r = fs_anonymous_at(dir_fd, &fd);

	if (r < 0)
		return error_sys(err, r, "make a file for", "what is pulled");
	r = connection_send(c, type, "{}", 2, err);
	if (r == 0)
		r = receive_stream(c, fd, t, err);
	if (r == 0)
		*ret_fd = take_fd(&fd);
	return r;
}

int step_pull(struct connection *c, int dir_fd, struct there *t, int *ret_fd, struct error *err)
{
	c->doing = "while the changes were pulled";
	return ask_stream(c, FRAME_PULL, dir_fd, t, ret_fd, err);
}

int step_list(struct connection *c, int dir_fd, int *ret_fd, struct error *err)
{
	struct there ignored = THERE_INIT;
	int r;

	c->doing = "while the files were compared";
	r = ask_stream(c, FRAME_LIST, dir_fd, &ignored, ret_fd, err);
	step_there_done(&ignored);
	return r;
}

int step_received(struct connection *c, struct there *t, struct error *err)
{
	cleanup_free char *text = xasprintf("{\"run\":%lld}", (long long)t->run);
	cleanup_strbuf struct strbuf answer = STRBUF_INIT;
	int r;

	c->doing = "after the changes were pulled";
	r = connection_ask(c, FRAME_RECEIVED, text, FRAME_RECEIVED_TOO, &answer, err);
	if (r == 0)
		r = step_read(&answer, t, err);
	if (r == 0)
		t->has_pending = false;
	return r;
}

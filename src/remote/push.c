/* SPDX-License-Identifier: Apache-2.0 */
/* From the project into frames, and what is known afterwards. */
#include "remote/push.h"

#include "sync/pulled.h"
#include "sync/scan.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"
#include "util/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANIFEST       "manifest"
#define SYNC_GIT_INDEX ".git/index"
#define LONG_AGO_NS    INT64_C(1000000000) /* not 0, which git takes for "not known" */
#define TRIES          5                   /* at a repository that does not come to rest */
#define READ_MAX       (64u << 10)

void push_done(struct push *p)
{
	sync_manifest_free(p->manifest);
	free(p->skipped);
	*p = PUSH_INIT;
}

/* ---- the manifest ---- */

static void keep(struct push *p, struct sync_manifest *m)
{
	sync_manifest_free(p->manifest);
	p->manifest = m;
}

/* Without it the next one has the daemon list what is there: slower, not worse. */
static void save(struct push *p)
{
	(void)sync_manifest_save(p->dir_fd, MANIFEST, p->manifest);
}

static void load(struct push *p, int64_t generation)
{
	struct sync_manifest *m = NULL;

	if (p->manifest || sync_manifest_load(p->dir_fd, MANIFEST, &m) <= 0)
		return;
	if (m->generation == (uint64_t)generation)
		p->manifest = m;
	else
		sync_manifest_free(m);
}

/* A stream on top of OLD. */
static int read_stream(const struct sync_manifest *old, int fd, struct sync_manifest **ret,
                       struct error *err)
{
	cleanup_sync_pulled struct sync_pulled *pulled = NULL;
	cleanup_free char *buf = malloc(READ_MAX);
	uint64_t changes;
	ssize_t n = 0;
	int r = buf ? sync_pulled_new(old, &pulled) : -ENOMEM;

	if (r < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return error_sys(err, r < 0 ? r : -errno, "read", "what came from the daemon");
	while (r == 0 && (n = read(fd, buf, READ_MAX)) > 0)
		r = sync_pulled_feed(pulled, buf, (size_t)n, err);
	if (n < 0)
		return error_sys(err, -errno, "read", "what came from the daemon");
	return r < 0 ? r : sync_pulled_finish(pulled, ret, &changes, err);
}

/* What is there: remembered, or listed. A first push that was cut is there in part, as generation 0. */
static int find_manifest(struct push *p, struct error *err)
{
	cleanup_close int fd = FD_NONE;
	struct sync_manifest *m = NULL;
	int r;

	load(p, p->there->generation);
	if (p->manifest)
		return 0;
	r = step_list(p->c, p->dir_fd, &fd, err);
	if (r == 0)
		r = read_stream(NULL, fd, &m, err);
	if (r < 0)
		return r;
	m->generation = (uint64_t)p->there->generation;
	keep(p, m);
	return 0;
}

int64_t push_index_time(struct push *p, int64_t base)
{
	const struct sync_entry *e;

	load(p, base);
	e = p->manifest ? sync_manifest_find(p->manifest, SYNC_GIT_INDEX) : NULL;
	return e ? e->mtime_ns : LONG_AGO_NS;
}

void push_pulled(struct push *p, int64_t base, int fd)
{
	cleanup_error struct error ignored = ERROR_INIT;
	struct sync_manifest *m = NULL;

	load(p, base);
	if (!p->manifest || read_stream(p->manifest, fd, &m, &ignored) < 0)
		return;
	m->generation = (uint64_t)p->there->generation;
	keep(p, m);
	save(p);
}

/* ---- sending ---- */

struct sending {
	struct connection *c;
	size_t len; /* in the connection's room */
	struct error *err;
};

static int send_room(struct sending *s)
{
	size_t len = s->len;

	s->len = 0;
	progress_add(0, len);
	return len ? connection_send(s->c, FRAME_PUSH_DATA, connection_room(s->c), len, s->err) : 0;
}

/* Frames as long as they may be. */
static int send_bytes(void *ctx, const void *data, size_t len)
{
	struct sending *s = ctx;
	const unsigned char *from = data;

	while (len > 0) {
		size_t n = FRAME_MAX - s->len;
		int r = 0;

		n = len < n ? len : n;
		memcpy(connection_room(s->c) + s->len, from, n);
		s->len += n;
		from += n;
		len -= n;
		if (s->len == FRAME_MAX)
			r = send_room(s);
		if (r < 0)
			return r;
	}
	return 0;
}

static void note_skipped(struct push *p, const struct sync_changes *changes)
{
	const char *first = sync_changes_skipped(changes, 0);

	p->n_skipped = sync_changes_counts(changes)->skipped;
	free(p->skipped);
	p->skipped = xstrdup(first);
}

/* What is there then is what M says. */
static int send_changes(struct push *p, int root_fd, struct sync_changes *changes,
                        struct sync_manifest *m, struct error *err)
{
	cleanup_free char *text =
		xasprintf("{\"base_generation\":%lld}", (long long)p->there->generation);
	cleanup_error struct error own = ERROR_INIT; /* of the connection, through the stream */
	struct sending s = { .c = p->c, .err = &own };
	int r = connection_send(p->c, FRAME_PUSH, text, strlen(text), err);

	if (r < 0)
		return r;
	r = sync_send(root_fd, changes, m, send_bytes, &s, err);
	if (own.code) {
		error_done(err);
		error_move(err, &own);
		return err->code;
	}
	if (r == 0)
		r = send_room(&s);
	if (own.code) {
		error_move(err, &own);
		return err->code;
	}
	return r;
}

static int finish_push(struct push *p, struct error *err)
{
	cleanup_strbuf struct strbuf answer = STRBUF_INIT;
	int r = connection_ask(p->c, FRAME_PUSH_END, "", FRAME_PUSHED, &answer, err);

	return r < 0 ? r : step_read(&answer, p->there, err);
}

/* The stream is ended where it is; the daemon refuses what is not whole, and goes on. */
static int withdraw_push(struct push *p, struct error *err)
{
	cleanup_error struct error refused = ERROR_INIT;
	int r = connection_ask(p->c, FRAME_PUSH_END, "", FRAME_PUSHED, NULL, &refused);

	if (r == 0)
		return error_set(err, -EPROTO, "the daemon took half of a push for the whole");
	if (p->c->ended) {
		error_move(err, &refused);
		return r;
	}
	return 0;
}

/* ---- the whole ---- */

/* 1: all of it is there; 0: the repository changed meanwhile. */
static int try_push(struct push *p, int root_fd, struct error *err)
{
	cleanup_sync_changes struct sync_changes *changes = NULL;
	cleanup_sync_manifest struct sync_manifest *m = NULL;
	cleanup_error struct error again = ERROR_INIT;
	const struct sync_counts *counts;
	int r;

	progress_phase("comparing", 0);
	r = sync_scan(root_fd, p->manifest, &changes, &m, err);
	if (r < 0)
		return r;
	counts = sync_changes_counts(changes);
	note_skipped(p, changes);
	progress_phase("sending", counts->changes);
	crashpoint("remote.push.scanned");
	if (counts->changes > 0 || p->there->generation == 0) {
		p->c->doing = "while the project was sent";
		r = send_changes(p, root_fd, changes, m, &again);
		if (r == -EAGAIN && !p->c->ended) {
			r = withdraw_push(p, err);
			return r;
		}
		if (r < 0) {
			error_move(err, &again);
			return r;
		}
		crashpoint("remote.push.sent");
		r = finish_push(p, err);
		if (r < 0)
			return r;
		p->sent = counts->changes;
	} else if (counts->hashed == 0) {
		return 1; /* it is as it was saved */
	}
	m->generation = (uint64_t)p->there->generation;
	keep(p, take_ptr(m));
	save(p);
	return 1;
}

int push_all(struct push *p, struct error *err)
{
	const char *root = p->c->session->project.root;
	cleanup_close int root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = root_fd < 0 ? error_sys(err, -errno, "open", root) : find_manifest(p, err);

	if (r < 0)
		return r;
	for (int i = 0; i < TRIES; i++) {
		r = try_push(p, root_fd, err);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	(void)error_set(err, -ATOLL_E_BUSY, "the repository '%s' does not come to rest", root);
	error_hint(err, "wait until git is done there, and run it again");
	return -ATOLL_E_BUSY;
}

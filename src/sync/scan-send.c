/* SPDX-License-Identifier: Apache-2.0 */
/* The changes that a scan found, as a stream. */
#include "sync/scan-impl.h"

#include "sync/content.h"
#include "sync/git.h"
#include "sync/path.h"
#include "sync/place.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MODE_BITS 07777u

struct sending {
	struct sync_place place;
	struct sync_changes *c;
	struct sync_manifest *m;
	struct sync_writer *w;
	struct sync_look *look;
};

static const char *path_of(const struct sending *s, const struct sync_change *ch)
{
	return sync_manifest_path(s->m, &s->m->v[ch->at]);
}

static struct sync_record record_of(const struct sending *s, const struct sync_change *ch,
                                    enum sync_type type)
{
	const struct sync_entry *e = &s->m->v[ch->at];

	return (struct sync_record){ .type = type,
		                     .path = path_of(s, ch),
		                     .mode = e->mode & MODE_BITS,
		                     .mtime_ns = e->mtime_ns };
}

/* ---- what is moved ---- */

static int send_dir(struct sending *s, const struct sync_change *ch)
{
	const char *path = path_of(s, ch), *name;
	struct sync_content c = { 0 };
	int r = sync_place_enter(&s->place, path, &name);

	/* As it is by now; when it is gone, what is in it is, too. */
	if (r == 0)
		r = sync_look_at(s->look, s->place.dir_fd, name, path, false, NULL, &c);
	if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP || (r == 0 && !S_ISDIR(c.st.mode))) {
		s->m->v[ch->at].mode = 0;
		return 0;
	}
	return r < 0 ? r
	             : sync_write(s->w, &(struct sync_record){ .type = SYNC_DIR,
	                                                       .path = path,
	                                                       .mode = c.st.mode & MODE_BITS,
	                                                       .mtime_ns = c.st.mtime_ns });
}

/* Directories come before what is in them, so that the last ones seen are those that lead to it. */
static int send_moves(struct sending *s)
{
	cleanup_free const struct sync_change **dirs = calloc(s->c->n + 1, sizeof(*dirs));
	size_t n = 0, sent = 0;

	if (!dirs)
		return -ENOMEM;
	for (size_t i = 0; i < s->c->n; i++) {
		const struct sync_change *ch = &s->c->v[i];
		const char *path = path_of(s, ch);
		int r = 0;

		while (n > 0 && !sync_path_is_below(path, path_of(s, dirs[n - 1])))
			n--;
		sent = sent < n ? sent : n;
		if (ch->kind == CHANGE_DIR)
			dirs[n++] = ch;
		if (!ch->from)
			continue;
		while (r == 0 && sent < n)
			r = send_dir(s, dirs[sent++]);
		if (r == 0)
			r = sync_write(s->w, &(struct sync_record){ .type = SYNC_MOVE,
			                                            .path = ch->from,
			                                            .other = path });
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- the rest ---- */

static int send_gone(struct sending *s)
{
	int r = 0;

	for (size_t i = s->c->gone.n; r == 0 && i-- > 0;)
		r = sync_write(s->w,
		               &(struct sync_record){ .type = SYNC_GONE, .path = s->c->gone.v[i] });
	return r;
}

/* A file or a link, as it is by now. */
static int send_content(struct sending *s, const struct sync_change *ch)
{
	struct sync_entry *e = &s->m->v[ch->at];
	const char *path = path_of(s, ch), *name;
	struct sync_content c = { 0 };
	int r = sync_place_enter(&s->place, path, &name);

	if (r == 0)
		r = sync_look_at(s->look, s->place.dir_fd, name, path, S_ISREG(e->mode), s->w, &c);
	if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
		r = 0;
	if (r < 0)
		return r;
	if (!S_ISREG(c.st.mode) && !S_ISLNK(c.st.mode)) {
		/* It is gone, or something else, which the next scan will tell. */
		e->mode = 0;
		return c.st.mode ? 0
		                 : sync_write(s->w, &(struct sync_record){ .type = SYNC_GONE,
		                                                           .path = path });
	}
	sync_entry_set(e, &c.st, s->c->begin_ns);
	memcpy(e->hash, c.hash, SYNC_HASH_SIZE);
	e->size = c.len;
	if (!c.steady)
		e->flags |= SYNC_ENTRY_UNKNOWN;
	return 0;
}

static int send_meta(struct sending *s, const struct sync_change *ch)
{
	const struct sync_record rec = record_of(s, ch, SYNC_META);

	return sync_write(s->w, &rec);
}

static int send_nothing(struct sending *s, const struct sync_change *ch)
{
	(void)s;
	(void)ch;
	return 0;
}

static const struct {
	enum sync_change_kind kind;
	int (*send)(struct sending *s, const struct sync_change *ch);
} senders[] = {
	[CHANGE_DIR] = { CHANGE_DIR, send_dir },
	[CHANGE_FILE] = { CHANGE_FILE, send_content },
	[CHANGE_LINK] = { CHANGE_LINK, send_content },
	[CHANGE_META] = { CHANGE_META, send_meta },
	[CHANGE_OBJECT] = { CHANGE_OBJECT, send_nothing }, /* all of them together, last */
};

/* Last, for git wants a repository to put them into. */
static int send_objects(struct sending *s, struct error *err)
{
	cleanup_strlist struct strlist names = STRLIST_INIT;
	char name[SYNC_GIT_NAME_MAX];
	int r;

	for (size_t i = 0; i < s->c->n; i++)
		if (s->c->v[i].kind == CHANGE_OBJECT &&
		    sync_git_is_object(path_of(s, &s->c->v[i]), name))
			strlist_add(&names, name);
	r = names.n > 0 ? sync_git_send_objects(s->place.root_fd, &names, s->w, err) : 0;
	return r;
}

static int send_all(struct sending *s, struct error *err)
{
	int r = send_moves(s);

	if (r == 0)
		r = send_gone(s);
	if (r < 0)
		return error_sys(err, r, "write", "the stream");
	for (size_t i = 0; i < s->c->n; i++) {
		r = senders[s->c->v[i].kind].send(s, &s->c->v[i]);
		if (r < 0)
			return error_sys(err, r, "send", path_of(s, &s->c->v[i]));
	}
	return send_objects(s, err);
}

/* Entries that were not there any more. */
static void compact(struct sync_manifest *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++)
		if (m->v[i].mode != 0)
			m->v[n++] = m->v[i];
	m->n = n;
}

static int finish(struct sending *s, struct error *err)
{
	unsigned char state[SYNC_HASH_SIZE];
	int r = 0;

	if (s->c->is_repository) {
		r = sync_git_state(s->place.root_fd, state);
		if (r < 0)
			return error_sys(err, r, "look at", ".git");
		if (memcmp(state, s->c->git_state, sizeof(state)) != 0)
			return error_set(err, -EAGAIN, "the repository changed while it was sent");
	}
	r = sync_write_end(s->w);
	if (r < 0)
		return error_sys(err, r, "write", "the stream");
	compact(s->m);
	return 0;
}

static void sending_done(struct sending *s)
{
	sync_place_done(&s->place);
	sync_writer_free(s->w);
	sync_look_free(s->look);
}
#define cleanup_sending __attribute__((__cleanup__(sending_done)))

int sync_send(int root_fd, struct sync_changes *c, struct sync_manifest *m, sync_write_fn fn,
              void *ctx, struct error *err)
{
	cleanup_sending struct sending s = { .place = SYNC_PLACE_AT(root_fd), .c = c, .m = m };
	int r = sync_writer_new(fn, ctx, &s.w);

	if (r < 0)
		return error_set(err, r, "no memory to write a stream");
	s.look = sync_look_new();
	r = send_all(&s, err);
	return r < 0 ? r : finish(&s, err);
}

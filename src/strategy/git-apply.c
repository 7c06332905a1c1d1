/* SPDX-License-Identifier: Apache-2.0 */
/* The swaps of refs and HEAD, forward and back, by git itself. Each can be repeated. */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/atomic.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/mem.h"

#define LOCK_MAX   4096
#define LOCK_STALE 1000 /* ms that nobody holds an empty lock of a ref, unless he died */

static const char *from_value(const struct git_swap *s, bool back)
{
	return back ? s->new_value : s->old_value;
}

static const char *to_value(const struct git_swap *s, bool back)
{
	return back ? s->old_value : s->new_value;
}

/* Not what we left there. Taking a batch back that nobody heard of leaves it as it is. */
static int foreign(struct atoll_participant *p, const struct git_swap *s, bool back,
                   const char *now)
{
	cleanup_free char *why =
		xasprintf("is at %.10s, not at %.10s any more", *now ? now : "nothing",
	                  *from_value(s, back) ? from_value(s, back) : "nothing");

	atoll_participant_note(p, ATOLL_NOTE_CONFLICT, s->key, why);
	if (back && !p->batch.undoing)
		return 0;
	return error_set(&p->err, -ATOLL_E_CONFLICT,
	                 "'%s' was moved by somebody else: it is at '%s', not at '%s' any more",
	                 s->key, *now ? now : "nothing",
	                 *from_value(s, back) ? from_value(s, back) : "nothing");
}

/* Made where something is deleted that stands in its way: `a/b` where there was `a`, or `a` where there
 * was `a/b`. Git does not do both at once. */
static bool makes_way(const struct git_record *rec, const struct git_swap *s, bool back)
{
	for (size_t i = 0; !*from_value(s, back) && i < rec->parts[GIT_REFS].n; i++) {
		const struct git_swap *gone = &rec->parts[GIT_REFS].v[i];

		if (!*to_value(gone, back) &&
		    (path_below(gone->key, s->key) || path_below(s->key, gone->key)))
			return true;
	}
	return false;
}

/* Lines for update-ref, of what is still to do; FIRST: but for what another must make way for. */
static int swap_lines(struct atoll_participant *p, const struct git_record *rec, bool back,
                      bool first, struct strbuf *in, size_t *ret_n)
{
	cleanup_git_map struct git_map now = GIT_MAP_INIT;
	struct git_state *st;
	struct git g;
	int r = git_state(p, &st);

	*ret_n = 0;
	if (r < 0)
		return r;
	g = GIT_AT(st->dir);
	r = git_refs_read(p, &g, &now);
	for (size_t i = 0; i < rec->parts[GIT_REFS].n && r >= 0; i++) {
		const struct git_swap *s = &rec->parts[GIT_REFS].v[i];
		const char *is = git_map_get(&now, s->key);
		const char *from = from_value(s, back), *to = to_value(s, back);

		if (strcmp(is, to) == 0 || (first && makes_way(rec, s, back)))
			continue;
		if (strcmp(is, from) != 0) {
			r = foreign(p, s, back, is);
			continue;
		}
		if (!*from)
			strbuf_printf(in, "create %s %s\n", s->key, to);
		else if (!*to)
			strbuf_printf(in, "delete %s %s\n", s->key, from);
		else
			strbuf_printf(in, "update %s %s %s\n", s->key, to, from);
		(*ret_n)++;
	}
	return r;
}

/* For the reflog. */
static const char *way(const struct atoll_participant *p, bool back)
{
	if (p->batch.alone)
		return back ? "undo" : "redo";
	return back ? "rollback" : "commit";
}

static int update_refs(struct atoll_participant *p, const struct git_record *rec, bool back,
                       bool first, bool only_try)
{
	cleanup_strbuf struct strbuf in = STRBUF_INIT;
	cleanup_free char *objects = xasprintf("%s/b%u/objects", p->area, p->batch.number);
	cleanup_free char *message = xasprintf("atoll: %s of plan %s", way(p, back), p->plan);
	cleanup_strbuf struct strbuf list = STRBUF_INIT;
	struct git_state *st;
	struct git g;
	size_t n;
	int r = git_state(p, &st);

	if (r < 0)
		return r;
	strbuf_puts(&in, "start\n");
	r = swap_lines(p, rec, back, first, &in, &n);
	if (r < 0 || n == 0)
		return r;
	strbuf_puts(&in, only_try ? "prepare\nabort\n" : "prepare\ncommit\n");
	g = GIT_AT(st->dir);
	g.durable = !only_try;
	g.held_fd = st->busy_fd;
	/* Before the decision the objects are only there. */
	git_path_list(&list, objects);
	g.alternates = only_try && access(objects, F_OK) == 0 ? strbuf_str(&list) : NULL;
	r = git_do(p, &g, GIT_ARGS("update-ref", "--stdin", "-m", message), &in, NULL);
	return r;
}

int git_refs_try(struct atoll_participant *p, const struct git_record *rec)
{
	return rec->parts[GIT_REFS].n ? update_refs(p, rec, false, true, true) : 0;
}

int git_refs_swap(struct atoll_participant *p, const struct git_record *rec, bool back)
{
	bool later = false;
	int r = rec->parts[GIT_REFS].n ? update_refs(p, rec, back, true, false) : 0;

	for (size_t i = 0; i < rec->parts[GIT_REFS].n; i++)
		later = later || makes_way(rec, &rec->parts[GIT_REFS].v[i], back);
	crashpoint("git.refs.first");
	return r < 0 || !later ? r : update_refs(p, rec, back, false, false);
}

int git_head_swap(struct atoll_participant *p, const struct git_record *rec, bool back)
{
	const struct git_swap *s = rec->parts[GIT_HEAD].v;
	cleanup_free char *now = NULL, *message = NULL;
	struct git_state *st;
	struct git g;
	int r = rec->parts[GIT_HEAD].n ? git_state(p, &st) : 1;

	if (r != 0)
		return r < 0 ? r : 0;
	r = git_head_read(p, st->dir_fd, "HEAD", &now);
	if (r < 0 || strcmp(now, to_value(s, back)) == 0)
		return r;
	if (strcmp(now, from_value(s, back)) != 0)
		return foreign(p, s, back, now);
	message = xasprintf("atoll: %s of plan %s", way(p, back), p->plan);
	g = GIT_AT(st->dir);
	g.durable = true;
	g.held_fd = st->busy_fd;
	if (strncmp(to_value(s, back), "ref: ", 5) == 0)
		return git_do(
			p, &g,
			GIT_ARGS("symbolic-ref", "-m", message, "HEAD", to_value(s, back) + 5),
			NULL, NULL);
	return git_do(
		p, &g,
		GIT_ARGS("update-ref", "--no-deref", "-m", message, "HEAD", to_value(s, back)),
		NULL, NULL);
}

/* ---- locks that a git of ours left ---- */

static bool holds(int dir_fd, const char *name, const char *value)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *text = NULL;
	size_t len = 0;

	if (resolve_file(dir_fd, name, &fd) < 0 || fs_read_all(fd, LOCK_MAX, &text, &len) < 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	return strcmp(text, value) == 0;
}

/* A living git holds a lock without content for a moment only. Older than the batch: not ours. */
static bool is_left_empty(int dir_fd, const char *name, int64_t since_ns)
{
	int64_t deadline = clock_deadline(LOCK_STALE);
	struct fs_stat first, st;

	if (fs_stat_at(dir_fd, name, FS_STAT_ID, &first) < 0 || first.size != 0 ||
	    first.ctime_ns < since_ns)
		return false;
	while (clock_left_ms(deadline) > 0) {
		clock_sleep_ns(20 * 1000000ll);
		if (fs_stat_at(dir_fd, name, FS_STAT_ID, &st) < 0 || st.size != 0 ||
		    !fs_id_equal(st.id, first.id))
			return false;
	}
	return true;
}

static int clear_lock(struct atoll_participant *p, const struct git_state *st,
                      const struct git_swap *s, int64_t since_ns)
{
	cleanup_free char *path = xasprintf("%s.lock", s->key);
	cleanup_close int fd = FD_NONE;
	const char *name;
	int r = resolve_parent(st->dir_fd, path, &fd, &name);

	if (r == -ENOENT || r == -ENOTDIR)
		return 0;
	if (r >= 0 &&
	    ((*s->new_value && holds(fd, name, s->new_value)) ||
	     (*s->old_value && holds(fd, name, s->old_value)) || is_left_empty(fd, name, since_ns)))
		r = fs_unlink_at(fd, name);
	return r < 0 && r != -ENOENT ? error_sys(&p->err, r, "remove the lock", path) : 0;
}

static int clear_stash(struct atoll_participant *p, const struct git_state *st,
                       const struct git_swap *entry, int64_t since_ns)
{
	char ref[] = "refs/stash", log[] = "logs/refs/stash", none[] = "";
	const struct git_swap of_ref = { ref, none, entry->key }, of_log = { log, none, none };
	int r = clear_lock(p, st, &of_ref, since_ns);

	return r < 0 ? r : clear_lock(p, st, &of_log, since_ns);
}

/* Git locks HEAD, too, when it moves the branch that HEAD is at, and the packed refs to delete one. */
static int clear_others(struct atoll_participant *p, const struct git_state *st,
                        const struct git_record *rec, int64_t since_ns)
{
	static const char *const names[] = { "HEAD.lock", "packed-refs.lock", "packed-refs.new" };
	bool deletes = false;
	int r = 0;

	for (size_t i = 0; i < rec->parts[GIT_REFS].n; i++)
		deletes = deletes || !*rec->parts[GIT_REFS].v[i].new_value ||
		          !*rec->parts[GIT_REFS].v[i].old_value;
	for (size_t i = 0; r >= 0 && i < (deletes ? sizeof(names) / sizeof(names[0]) : 1); i++) {
		if (!is_left_empty(st->dir_fd, names[i], since_ns))
			continue;
		r = fs_unlink_at(st->dir_fd, names[i]);
		if (r < 0 && r != -ENOENT)
			return error_sys(&p->err, r, "remove the lock", names[i]);
		r = 0;
	}
	return r;
}

/* Nobody of ours is left who could hold one: the caller waited for them. */
int git_locks_clear(struct atoll_participant *p, const struct git_record *rec)
{
	cleanup_free char *record = xasprintf("%s/b%u/" GIT_RECORD, p->area, p->batch.number);
	struct git_state *st;
	struct fs_stat since;
	int r = git_state(p, &st);

	if (r < 0 || fs_stat_at(AT_FDCWD, record, 0, &since) < 0)
		return r;
	for (size_t i = 0; r >= 0 && i < rec->parts[GIT_REFS].n; i++)
		r = clear_lock(p, st, &rec->parts[GIT_REFS].v[i], since.ctime_ns);
	for (size_t i = 0; r >= 0 && i < rec->parts[GIT_HEAD].n; i++)
		r = clear_lock(p, st, &rec->parts[GIT_HEAD].v[i], since.ctime_ns);
	for (size_t i = 0; r >= 0 && i < rec->parts[GIT_STASH].n; i++)
		r = clear_stash(p, st, &rec->parts[GIT_STASH].v[i], since.ctime_ns);
	if (r >= 0 && !git_record_empty(rec))
		r = clear_others(p, st, rec, since.ctime_ns);
	return r;
}

/* ---- the barrier ---- */

static int sync_parents(struct atoll_participant *p, const struct git_state *st, const char *ref)
{
	cleanup_free char *path = xstrdup(ref);
	char *slash;
	int r = syncset_add(p->batch.sync, st->dir_fd, path);

	while (r >= 0 && (slash = strrchr(path, '/'))) {
		*slash = '\0';
		r = syncset_add(p->batch.sync, st->dir_fd, path);
	}
	return r;
}

int git_sync(struct atoll_participant *p, const struct git_record *rec)
{
	static const char *const files[] = { "", "HEAD", "index", "packed-refs", "objects/pack" };
	struct git_state *st;
	int r = git_state(p, &st);

	if (r < 0 || !p->batch.sync)
		return r;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && r >= 0; i++)
		r = syncset_add(p->batch.sync, st->dir_fd, files[i]);
	for (size_t i = 0; i < rec->parts[GIT_REFS].n && r >= 0; i++)
		r = sync_parents(p, st, rec->parts[GIT_REFS].v[i].key);
	if (r >= 0 && rec->parts[GIT_STASH].n)
		r = sync_parents(p, st, "refs/stash");
	if (r >= 0 && rec->parts[GIT_STASH].n)
		r = sync_parents(p, st, "logs/refs/stash");
	return r < 0 ? error_sys(&p->err, r, "note for the barrier", p->root) : 0;
}

/* PATH and all above it, below `.git`. */
static void own_path(const struct git_state *st, const struct fs_stat *owner, const char *path)
{
	cleanup_free char *at = xstrdup(path);
	char *slash;

	for (;;) {
		cleanup_close int fd = FD_NONE;
		const char *name;
		struct fs_stat is;

		/* Only what is root's: nobody else's is given away. */
		if (resolve_parent(st->dir_fd, at, &fd, &name) >= 0 &&
		    fs_stat_at(fd, name, 0, &is) >= 0 && is.uid == 0)
			(void)fs_set_owner(fd, name, owner->uid, owner->gid);
		slash = strrchr(at, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

void git_own(struct atoll_participant *p, const struct git_record *rec)
{
	static const char *const files[] = { "HEAD", "packed-refs", "logs/HEAD", "refs/stash",
		                             "logs/refs/stash" };
	cleanup_strlist struct strlist objects = STRLIST_INIT;
	struct git_state *st;
	struct fs_stat owner;

	if (geteuid() != 0 || git_state(p, &st) < 0 || fs_stat_at(st->dir_fd, "", 0, &owner) < 0 ||
	    owner.uid == 0)
		return;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		own_path(st, &owner, files[i]);
	for (size_t i = 0; i < rec->parts[GIT_REFS].n; i++) {
		cleanup_free char *log = xasprintf("logs/%s", rec->parts[GIT_REFS].v[i].key);

		own_path(st, &owner, rec->parts[GIT_REFS].v[i].key);
		own_path(st, &owner, log);
	}
	if (git_objects_list(p, rec, &objects) < 0)
		error_done(&p->err);
	for (size_t i = 0; i < objects.n; i++) {
		cleanup_free char *file = xasprintf("objects/%s", objects.v[i]);

		own_path(st, &owner, file);
	}
}

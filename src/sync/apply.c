/* SPDX-License-Identifier: Apache-2.0 */
/* One record after another, made true below the root. */
#include "sync/apply.h"

#include "fs/atomic.h"
#include "fs/resolve.h"
#include "fs/stat.h"
#include "sync/git.h"
#include "sync/path.h"
#include "sync/place.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODE_BITS 07777u

/* A directory that gets its mode and time when the stream has left it. */
struct waiting {
	char *path;
	uint32_t mode;
	int64_t mtime_ns; /* KEEP: only the mode */
};
#define KEEP INT64_MIN

struct apply {
	struct sync_place at; /* of the last record */
	/* The file being written. */
	int file_fd;
	char *name; /* its last component */
	struct sync_record file;
	uint64_t written;
	bool ends_with_hole;
	char tmp[sizeof(SYNC_TEMPORARY) + SYNC_TEMPORARY_HEX];
	struct sync_unpack *pack; /* being taken */
	struct waiting *waiting;
	size_t n_waiting, waiting_cap;
};

static int fail(struct error *err, int r, const char *op, const char *path)
{
	return error_sys(err, r, op, path);
}

/* ---- directories that wait ---- */

static int add_waiting(struct apply *a, const char *path, uint32_t mode, int64_t mtime_ns)
{
	void *v = a->waiting;
	int r = grow(&v, &a->waiting_cap, a->n_waiting + 1, sizeof(*a->waiting));

	a->waiting = v;
	if (r == 0)
		a->waiting[a->n_waiting++] = (struct waiting){ xstrdup(path), mode, mtime_ns };
	return r;
}

static int finish_dir(struct apply *a, const struct waiting *w)
{
	cleanup_close int fd = FD_NONE;
	const char *name;
	int r = resolve_parent(a->at.root_fd, w->path, &fd, &name);

	if (r == 0)
		r = fs_set_mode(fd, name, w->mode);
	if (r == 0 && w->mtime_ns != KEEP)
		r = fs_set_mtime(fd, name, w->mtime_ns);
	return r == -ENOENT ? 0 : r; /* it is gone meanwhile */
}

/* Those that PATH is not in; NULL: all. */
static int leave_dirs(struct apply *a, const char *path, struct error *err)
{
	while (a->n_waiting > 0) {
		struct waiting *w = &a->waiting[a->n_waiting - 1];
		int r;

		if (path && (sync_path_is_below(path, w->path) || strcmp(path, w->path) == 0))
			break;
		r = finish_dir(a, w);
		if (r < 0)
			return fail(err, r, "finish", w->path);
		free(w->path);
		a->n_waiting--;
	}
	return 0;
}

/* ---- where it goes ---- */

/* A directory that its owner may not write to is opened for as long as the stream is in it. */
static int open_up(struct apply *a, const char *dir)
{
	cleanup_close int fd = FD_NONE;
	struct fs_stat st;
	const char *name;
	int r = resolve_parent(a->at.root_fd, dir, &fd, &name);

	if (r == 0)
		r = fs_stat_at(fd, name, 0, &st);
	if (r < 0 || !S_ISDIR(st.mode) || (st.mode & 0700) == 0700)
		return r;
	r = fs_set_mode(fd, name, (st.mode & MODE_BITS) | 0700);
	return r < 0 ? r : add_waiting(a, dir, st.mode & MODE_BITS, KEEP);
}

/* All those above PATH. */
static int open_way(struct apply *a, const char *path)
{
	cleanup_free char *dir = xstrdup(path);
	int r = 0;

	for (char *slash = strchr(dir, '/'); r == 0 && slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		r = open_up(a, dir);
		*slash = '/';
	}
	return r;
}

static bool may_write(const struct apply *a)
{
	struct fs_stat st;

	return fs_stat_at(a->at.dir_fd, "", 0, &st) < 0 || (st.mode & 0300) == 0300;
}

/* As sync_place_enter(), and entries can be made and removed there. */
static int enter(struct apply *a, const char *path, const char **ret_name)
{
	const int before = a->at.dir_fd;
	const char *dir = a->at.dir;
	int r = sync_place_enter(&a->at, path, ret_name);

	if (r == 0 && a->at.dir_fd == before && a->at.dir == dir)
		return 0;
	if (r == 0 && may_write(a))
		return 0;
	if (r < 0 && r != -EACCES)
		return r;
	r = open_way(a, path);
	return r < 0 ? r : sync_place_enter(&a->at, path, ret_name);
}

static int refuse(struct error *err, const char *path, const char *why)
{
	(void)error_set(err, -ATOLL_E_CONFLICT, "'%s' %s", path, why);
	error_cause(err, "replace", path, 0, NULL);
	return -ATOLL_E_CONFLICT;
}

/* ---- records ---- */

/* A directory that is there stays, anything else gives way. */
static int make_dir(struct apply *a, const char *name, uint32_t mode)
{
	struct fs_stat st;
	int r = fs_mkdir_at(a->at.dir_fd, name, mode | 0700);

	if (r != -EEXIST)
		return r;
	r = fs_stat_at(a->at.dir_fd, name, 0, &st);
	if (r < 0)
		return r;
	if (S_ISDIR(st.mode))
		return (st.mode & 0700) == 0700
		               ? 0
		               : fs_set_mode(a->at.dir_fd, name, (st.mode & MODE_BITS) | 0700);
	r = fs_unlink_at(a->at.dir_fd, name);
	return r < 0 ? r : fs_mkdir_at(a->at.dir_fd, name, mode | 0700);
}

static int take_dir(struct apply *a, const struct sync_record *rec, struct error *err)
{
	const char *name;
	int r = enter(a, rec->path, &name);

	if (r == 0)
		r = make_dir(a, name, rec->mode);
	if (r == 0)
		r = add_waiting(a, rec->path, rec->mode, rec->mtime_ns);
	return r < 0 ? fail(err, r, "make the directory", rec->path) : 0;
}

static void make_temporary(struct apply *a)
{
	memcpy(a->tmp, SYNC_TEMPORARY, sizeof(SYNC_TEMPORARY));
	random_hex(a->tmp + strlen(a->tmp), SYNC_TEMPORARY_HEX);
}

static int take_file(struct apply *a, const struct sync_record *rec, struct error *err)
{
	const char *name;
	int r = enter(a, rec->path, &name);

	if (r == 0) {
		make_temporary(a);
		r = fs_create_at(a->at.dir_fd, a->tmp, rec->mode & 0777u, &a->file_fd);
	}
	if (r < 0)
		return fail(err, r, "create", rec->path);
	a->file = *rec;
	a->file.path = xstrdup(rec->path);
	a->name = xstrdup(name);
	a->written = 0;
	a->ends_with_hole = false;
	return 0;
}

static int put_in_place(struct apply *a, const char *name, const char *path, struct error *err)
{
	int r = fs_rename_over(a->at.dir_fd, a->tmp, name);

	if (r == -EISDIR) {
		r = fs_rmdir_at(a->at.dir_fd, name);
		if (r == 0)
			r = fs_rename_over(a->at.dir_fd, a->tmp, name);
	}
	if (r == 0)
		return 0;
	(void)fs_unlink_at(a->at.dir_fd, a->tmp);
	return r == -ENOTEMPTY || r == -EEXIST
	               ? refuse(err, path, "is a directory here, and has files in it")
	               : fail(err, r, "write", path);
}

/* Of the file, whether it became one or not. */
static void forget_file(struct apply *a)
{
	close_fd(&a->file_fd);
	free(take_ptr(a->name));
	free_const(a->file.path);
	a->file.path = NULL;
}

static int finish_file(struct apply *a, struct error *err)
{
	int r = a->ends_with_hole ? fs_set_size(a->file_fd, a->written) : 0;

	/* Writing takes these bits away. */
	if (r == 0 && a->file.mode & 07000u)
		r = fs_set_mode(a->file_fd, "", a->file.mode);
	if (r == 0)
		r = fs_set_mtime(a->file_fd, "", a->file.mtime_ns);
	if (r < 0)
		return fail(err, r, "write", a->file.path);
	r = put_in_place(a, a->name, a->file.path, err);
	forget_file(a);
	return r;
}

static int take_data(struct apply *a, const struct sync_record *rec, struct error *err)
{
	int r;

	if (a->pack)
		return sync_unpack_add(a->pack, rec->data, rec->len, err);
	r = fs_write_all(a->file_fd, rec->data, rec->len);

	a->written += rec->len;
	a->ends_with_hole = false;
	return r < 0 ? fail(err, r, "write", a->file.path) : 0;
}

static int take_hole(struct apply *a, const struct sync_record *rec, struct error *err)
{
	a->written += rec->size;
	a->ends_with_hole = true;
	return lseek(a->file_fd, (off_t)a->written, SEEK_SET) < 0
	               ? fail(err, -errno, "write", a->file.path)
	               : 0;
}

static int take_link(struct apply *a, const struct sync_record *rec, struct error *err)
{
	const char *name;
	int r = enter(a, rec->path, &name);

	if (r == 0) {
		make_temporary(a);
		r = fs_symlink_at(rec->other, a->at.dir_fd, a->tmp);
	}
	if (r < 0)
		return fail(err, r, "make the link", rec->path);
	r = fs_set_mtime(a->at.dir_fd, a->tmp, rec->mtime_ns);
	if (r < 0) {
		(void)fs_unlink_at(a->at.dir_fd, a->tmp);
		return fail(err, r, "make the link", rec->path);
	}
	return put_in_place(a, name, rec->path, err);
}

static int take_gone(struct apply *a, const struct sync_record *rec, struct error *err)
{
	const char *name;
	int r = enter(a, rec->path, &name);

	if (r == 0)
		r = fs_unlink_at(a->at.dir_fd, name);
	if (r == -EISDIR)
		r = fs_rmdir_at(a->at.dir_fd, name);
	if (r == -ENOENT || r == -ENOTDIR || r == -ENOTEMPTY || r == -EEXIST)
		return 0;
	return r < 0 ? fail(err, r, "remove", rec->path) : 0;
}

static int take_move(struct apply *a, const struct sync_record *rec, struct error *err)
{
	cleanup_close int to_fd = FD_NONE;
	const char *name, *to;
	struct fs_stat st;
	int r = enter(a, rec->other, &to);

	if (r < 0)
		return fail(err, r, "move a file to", rec->other);
	to_fd = fcntl(a->at.dir_fd, F_DUPFD_CLOEXEC, 3);
	r = to_fd < 0 ? -errno : enter(a, rec->path, &name);
	if (r == 0)
		r = fs_stat_at(a->at.dir_fd, name, 0, &st);
	if (r == 0 && S_ISDIR(st.mode))
		return refuse(err, rec->path, "is a directory, which is not moved");
	if (r == 0)
		r = fs_rename_over_at(a->at.dir_fd, name, to_fd, to);
	return r < 0 ? fail(err, r, "move", rec->path) : 0;
}

static int take_meta(struct apply *a, const struct sync_record *rec, struct error *err)
{
	const char *name;
	struct fs_stat st;
	int r = enter(a, rec->path, &name);

	if (r == 0)
		r = fs_stat_at(a->at.dir_fd, name, 0, &st);
	if (r == 0 && !S_ISREG(st.mode))
		return refuse(err, rec->path, "is no file here");
	if (r == 0)
		r = fs_set_mode(a->at.dir_fd, name, rec->mode);
	if (r == 0)
		r = fs_set_mtime(a->at.dir_fd, name, rec->mtime_ns);
	return r < 0 ? fail(err, r, "change", rec->path) : 0;
}

static int take_pack(struct apply *a, const struct sync_record *rec, struct error *err)
{
	(void)rec;
	return sync_unpack_open(a->at.root_fd, &a->pack, err);
}

static int take_done(struct apply *a, const struct sync_record *rec, struct error *err)
{
	(void)rec;
	return a->pack ? sync_unpack_close(take_ptr(a->pack), err) : finish_file(a, err);
}

static int take_nothing(struct apply *a, const struct sync_record *rec, struct error *err)
{
	(void)a;
	(void)rec;
	(void)err;
	return 0;
}

static int take_end(struct apply *a, const struct sync_record *rec, struct error *err)
{
	(void)rec;
	return leave_dirs(a, NULL, err);
}

static const struct {
	enum sync_type type;
	int (*take)(struct apply *a, const struct sync_record *rec, struct error *err);
} takers[] = {
	{ SYNC_DIR, take_dir },       { SYNC_FILE, take_file },       { SYNC_LINK, take_link },
	{ SYNC_GONE, take_gone },     { SYNC_MOVE, take_move },       { SYNC_META, take_meta },
	{ SYNC_DATA, take_data },     { SYNC_HOLE, take_hole },       { SYNC_DONE, take_done },
	{ SYNC_END, take_end },       { SYNC_SKIPPED, take_nothing }, { SYNC_PACK, take_pack },
	{ SYNC_ENTRY, take_nothing },
};

static int take(void *ctx, const struct sync_record *rec, struct error *err)
{
	struct apply *a = ctx;
	int r = rec->path ? leave_dirs(a, rec->path, err) : 0;

	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(takers) / sizeof(takers[0]); i++)
		if (takers[i].type == rec->type)
			return takers[i].take(a, rec, err);
	return error_set(err, -EPROTO, "the stream has something that is no change");
}

static void apply_done(struct apply *a)
{
	sync_unpack_abort(a->pack);
	if (a->file_fd != FD_NONE)
		(void)fs_unlink_at(a->at.dir_fd, a->tmp);
	forget_file(a);
	sync_place_done(&a->at);
	for (size_t i = 0; i < a->n_waiting; i++)
		free(a->waiting[i].path);
	free(a->waiting);
}

int sync_apply(int root_fd, int in_fd, struct error *err)
{
	struct apply a = { .at = SYNC_PLACE_AT(root_fd), .file_fd = FD_NONE };
	int r = sync_read_fd(in_fd, take, &a, err);

	apply_done(&a);
	return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Loose objects as packs: git makes them, and git takes them. */
#include "sync/git.h"

#include "fs/atomic.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "sync/apply.h"
#include "sync/git-run.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/random.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OBJECTS ".git/objects"
#define TMP_LEN (sizeof(SYNC_TEMPORARY) - 1 + SYNC_TEMPORARY_HEX)

static int send_pack(int fd, struct sync_writer *w)
{
	cleanup_free unsigned char *buf = malloc(SYNC_CHUNK);
	int r = buf ? sync_write(w, &(struct sync_record){ .type = SYNC_PACK }) : -ENOMEM;

	while (r == 0) {
		ssize_t n = read(fd, buf, SYNC_CHUNK);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return sync_write_done(w);
		r = sync_write(
			w,
			&(struct sync_record){ .type = SYNC_DATA, .data = buf, .len = (size_t)n });
	}
	return r;
}

int sync_git_send_objects(int root_fd, const struct strlist *names, struct sync_writer *w,
                          struct error *err)
{
	static const char *const args[] = { "pack-objects", "-q", "--stdout", "--threads=1", NULL };
	cleanup_sync_git struct sync_git g = SYNC_GIT_INIT;
	cleanup_strbuf struct strbuf in = STRBUF_INIT;
	int r;

	for (size_t i = 0; i < names->n; i++) {
		strbuf_puts(&in, names->v[i]);
		strbuf_putc(&in, '\n');
	}
	r = sync_git_start(
		&g, &(struct sync_git_how){ .root_fd = root_fd, .args = args, .in = &in }, err);
	if (r < 0)
		return r;
	r = send_pack(g.pipe, w);
	if (r < 0)
		return error_sys(err, r, "send", "objects of the repository");
	r = sync_git_finish(&g, err);
	return r > 0 ? error_set(err, -ATOLL_E_CANNOT_PREPARE, "git pack-objects failed") : r;
}

/* ---- taking ---- */

struct sync_unpack {
	struct sync_git git;
	int root_fd;           /* lent */
	char tmp[TMP_LEN + 1]; /* "": not made */
};

static int make_place(struct sync_unpack *u, char **ret_path)
{
	char root[PATH_MAX];
	int r = sync_git_root(u->root_fd, root);

	if (r < 0)
		return r;
	memcpy(u->tmp, SYNC_TEMPORARY, sizeof(SYNC_TEMPORARY));
	random_hex(u->tmp + strlen(u->tmp), SYNC_TEMPORARY_HEX);
	r = fs_mkdir_at(u->root_fd, u->tmp, 0700);
	if (r < 0)
		u->tmp[0] = '\0';
	else
		*ret_path = xasprintf("%s/%s", root, u->tmp);
	return r;
}

int sync_unpack_open(int root_fd, struct sync_unpack **ret, struct error *err)
{
	static const char *const args[] = { "unpack-objects", "-q", NULL };
	struct sync_unpack *u = xcalloc(1, sizeof(*u));
	cleanup_free char *objects = NULL;
	int r;

	u->git = SYNC_GIT_INIT;
	u->root_fd = root_fd;
	r = make_place(u, &objects);
	if (r < 0)
		(void)error_sys(err, r, "make a directory for", "objects");
	else
		r = sync_git_start(&u->git,
		                   &(struct sync_git_how){ .root_fd = root_fd,
		                                           .args = args,
		                                           .objects = objects,
		                                           .takes = true },
		                   err);
	if (r < 0)
		sync_unpack_abort(u);
	else
		*ret = u;
	return r;
}

/* Those of one directory, "ab". */
static int move_some(int from_fd, int to_fd, const char *name)
{
	cleanup_close int from = FD_NONE, to = FD_NONE;
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	int r = fs_mkdir_at(to_fd, name, 0755);

	if (r == 0 || r == -EEXIST)
		r = resolve_dir(to_fd, name, &to);
	if (r == 0)
		r = resolve_dir(from_fd, name, &from);
	if (r == 0)
		r = dirlist_read(from, &list);
	for (size_t i = 0; r == 0 && i < list.n; i++)
		r = fs_rename_over_at(from, list.v[i].name, to, list.v[i].name);
	return r;
}

static int move_objects(const struct sync_unpack *u)
{
	cleanup_close int from = FD_NONE, to = FD_NONE;
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	int r = resolve_dir(u->root_fd, u->tmp, &from);

	if (r == 0)
		r = resolve_dir(u->root_fd, OBJECTS, &to);
	if (r == 0)
		r = dirlist_read(from, &list);
	for (size_t i = 0; r == 0 && i < list.n; i++)
		if (strlen(list.v[i].name) == 2)
			r = move_some(from, to, list.v[i].name);
	return r;
}

int sync_unpack_add(struct sync_unpack *u, const void *data, size_t len, struct error *err)
{
	int r = fs_write_all(u->git.pipe, data, len);

	/* It ended before its input did: what it says is said at the end. */
	return r == -EPIPE || r == 0 ? 0 : error_sys(err, r, "write", "objects for git");
}

int sync_unpack_close(struct sync_unpack *u, struct error *err)
{
	int r = sync_git_finish(&u->git, err);

	if (r > 0)
		r = error_set(err, -ATOLL_E_CANNOT_PREPARE, "git unpack-objects failed");
	if (r == 0) {
		r = move_objects(u);
		if (r < 0)
			(void)error_sys(err, r, "put objects into", OBJECTS);
	}
	sync_unpack_abort(u);
	return r;
}

void sync_unpack_abort(struct sync_unpack *u)
{
	if (!u)
		return;
	sync_git_done(&u->git);
	if (u->tmp[0])
		(void)remove_tree_at(u->root_fd, u->tmp);
	free(u);
}

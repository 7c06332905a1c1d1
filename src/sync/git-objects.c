/* SPDX-License-Identifier: Apache-2.0 */
/* Loose objects as packs: git makes them, and git takes them. */
#include "sync/git.h"

#include "fs/atomic.h"
#include "sync/git-run.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

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
};

int sync_unpack_open(int root_fd, struct sync_unpack **ret, struct error *err)
{
	static const char *const args[] = { "unpack-objects", "-q", NULL };
	struct sync_unpack *u = xcalloc(1, sizeof(*u));
	int r;

	u->git = SYNC_GIT_INIT;
	r = sync_git_start(
		&u->git, &(struct sync_git_how){ .root_fd = root_fd, .args = args, .takes = true },
		err);
	if (r < 0)
		sync_unpack_abort(u);
	else
		*ret = u;
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

	sync_unpack_abort(u);
	return r > 0 ? error_set(err, -ATOLL_E_CANNOT_PREPARE, "git unpack-objects failed") : r;
}

void sync_unpack_abort(struct sync_unpack *u)
{
	if (u)
		sync_git_done(&u->git);
	free(u);
}

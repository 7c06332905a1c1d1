/* SPDX-License-Identifier: Apache-2.0 */
/* What a batch needs to know of its transaction, whoever finishes it. */
#include "strategy/postgres.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define BATCH_FILE "batch"
#define BATCH_MAX  1024

void pg_batch_done(struct pg_batch *b)
{
	free(b->gid);
	free(b->xid);
	free(b->server);
	*b = PG_BATCH_INIT;
}

static int open_area(const struct atoll_participant *p, int *ret_fd)
{
	*ret_fd = open(p->area, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

int pg_batch_write(struct atoll_participant *p, const struct pg_batch *b)
{
	cleanup_free char *text =
		xasprintf("%" PRIu64 " %s %s %s\n", b->number, b->gid, b->xid, b->server);
	cleanup_close int area_fd = FD_NONE;
	int r = open_area(p, &area_fd);

	if (r == 0)
		r = fs_replace_file(area_fd, BATCH_FILE, text, strlen(text), 0600);
	hash_buffer(text, strlen(text), p->manifest);
	return r < 0 ? error_sys(&p->err, r, "write down the batch in", p->area) : 0;
}

/* 1, 0 when there is none, or negative. */
static int read_text(struct atoll_participant *p, char **ret, size_t *ret_len)
{
	cleanup_close int area_fd = FD_NONE;
	cleanup_close int fd = FD_NONE;
	int r = open_area(p, &area_fd);

	if (r == 0) {
		fd = openat(area_fd, BATCH_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		r = fd < 0 ? -errno : fs_read_all(fd, BATCH_MAX, ret, ret_len);
	}
	if (r == -ENOENT)
		return 0;
	return r < 0 ? error_sys(&p->err, r, "read the batch in", p->area) : 1;
}

static int parse(struct atoll_participant *p, char *text, struct pg_batch *ret)
{
	char *save = NULL, *end = NULL;
	const char *number = strtok_r(text, " \n", &save);
	const char *gid = strtok_r(NULL, " \n", &save);
	const char *xid = strtok_r(NULL, " \n", &save);
	const char *server = strtok_r(NULL, " \n", &save);

	errno = 0;
	ret->number = number ? strtoull(number, &end, 10) : 0;
	if (!server || *end || errno != 0 || strspn(xid, "0123456789") != strlen(xid))
		return error_set(&p->err, -ATOLL_E_DAMAGED, "'%s/" BATCH_FILE "' is damaged",
		                 p->area);
	ret->gid = xstrdup(gid);
	ret->xid = xstrdup(xid);
	ret->server = xstrdup(server);
	return 1;
}

void pg_batch_drop(struct atoll_participant *p)
{
	cleanup_pg_batch struct pg_batch b = PG_BATCH_INIT;
	cleanup_close int area_fd = FD_NONE;

	if (pg_batch_last(p, &b) == 1 && b.number == p->batch.number && open_area(p, &area_fd) == 0)
		(void)fs_unlink_at(area_fd, BATCH_FILE);
	error_done(&p->err); /* what stays harms nobody */
}

int pg_batch_last(struct atoll_participant *p, struct pg_batch *ret)
{
	cleanup_free char *text = NULL;
	size_t len;
	int r = read_text(p, &text, &len);

	return r <= 0 ? r : parse(p, text, ret);
}

int pg_batch_read(struct atoll_participant *p, struct pg_batch *ret)
{
	cleanup_free char *text = NULL;
	char hash[HASH_TEXT_LEN];
	size_t len;
	int r = read_text(p, &text, &len);

	if (r <= 0)
		return r;
	hash_buffer(text, len, hash);
	r = parse(p, text, ret);
	if (r < 0)
		return r;
	if (ret->number != p->batch.number) {
		pg_batch_done(ret);
		return 0;
	}
	if (p->manifest[0] && strcmp(hash, p->manifest) != 0)
		return error_set(&p->err, -ATOLL_E_DAMAGED,
		                 "'%s/" BATCH_FILE "' is not what was decided", p->area);
	return 1;
}

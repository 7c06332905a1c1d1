/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a batch, in the area. */
#include "strategy/sqlite-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/remove.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define CHANGESET_MAX (INT32_MAX - 1) /* SQLite counts in int */
#define MANIFEST_FORMAT                                                                          \
	"atoll sqlite batch 1\nnumber %" PRIu64 "\nkind %7s\nold %32s\nnew %32s\ndo %32s\nundo " \
	"%32s\ncounters %32s\n"
#define MANIFEST_FIELDS 6 /* what those of older builds have: no counters */
#define NO_HASH         "-"

static const char *const suffixes[] = {
	[SQLDB_FILE_MANIFEST] = "manifest", [SQLDB_FILE_DO] = "do",
	[SQLDB_FILE_UNDO] = "undo",         [SQLDB_FILE_COUNTERS] = "counters",
	[SQLDB_FILE_THEIRS] = "theirs",
};

char *sqldb_file_name(uint64_t batch, enum sqldb_file which)
{
	return xasprintf("b%" PRIu64 ".%s", batch, suffixes[which]);
}

char *sqldb_file_path(const struct atoll_participant *p, uint64_t batch, enum sqldb_file which)
{
	return xasprintf("%s/b%" PRIu64 ".%s", p->area, batch, suffixes[which]);
}

static int open_area(struct atoll_participant *p, int *ret_fd)
{
	*ret_fd = open(p->area, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? error_sys(&p->err, -errno, "open", p->area) : 0;
}

int sqldb_file_sync(struct atoll_participant *p, uint64_t batch, enum sqldb_file which)
{
	cleanup_free char *name = sqldb_file_name(batch, which);
	cleanup_close int area_fd = FD_NONE, fd = FD_NONE;
	int r = open_area(p, &area_fd);

	if (r < 0)
		return r;
	fd = openat(area_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 ? -errno : atoll_participant_sync(p, fd);
	if (r >= 0)
		r = atoll_participant_sync(p, area_fd);
	return r < 0 ? error_sys(&p->err, r, "have synced", name) : 0;
}

int sqldb_file_write(struct atoll_participant *p, uint64_t batch, enum sqldb_file which,
                     const void *data, size_t len)
{
	cleanup_free char *name = sqldb_file_name(batch, which);
	cleanup_close int area_fd = FD_NONE, fd = FD_NONE;
	int r = open_area(p, &area_fd);

	if (r < 0)
		return r;
	r = remove_tree_at(area_fd, name);
	if (r >= 0)
		r = fs_create_at(area_fd, name, 0600, &fd);
	if (r >= 0)
		r = fs_write_all(fd, data, len);
	if (r < 0)
		return error_sys(&p->err, r, "write", name);
	return sqldb_file_sync(p, batch, which);
}

int sqldb_file_read(struct atoll_participant *p, uint64_t batch, enum sqldb_file which, void **ret,
                    size_t *ret_len)
{
	cleanup_free char *name = sqldb_file_name(batch, which);
	cleanup_close int area_fd = FD_NONE, fd = FD_NONE;
	char *data = NULL;
	int r = open_area(p, &area_fd);

	*ret = NULL;
	*ret_len = 0;
	if (r < 0)
		return r;
	fd = openat(area_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	r = fd < 0 ? -errno : fs_read_all(fd, CHANGESET_MAX, &data, ret_len);
	if (r < 0)
		return error_sys(&p->err, r, "read", name);
	*ret = data;
	return 0;
}

void sqldb_file_remove(struct atoll_participant *p, uint64_t batch, enum sqldb_file which)
{
	static const char *const sides[] = { "", "-journal", "-wal", "-shm" };
	cleanup_free char *name = sqldb_file_name(batch, which);
	cleanup_close int area_fd = open(p->area, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	for (size_t i = 0; area_fd >= 0 && i < sizeof(sides) / sizeof(sides[0]); i++) {
		cleanup_free char *one = xasprintf("%s%s", name, sides[i]);

		(void)remove_tree_at(area_fd, one);
	}
}

void sqldb_batch_remove(struct atoll_participant *p, uint64_t number)
{
	for (int i = SQLDB_FILE_THEIRS; i >= SQLDB_FILE_MANIFEST; i--)
		sqldb_file_remove(p, number, (enum sqldb_file)i);
}

/* ---- the manifest ---- */

static const char *or_none(const char *hash)
{
	return *hash ? hash : NO_HASH;
}

int sqldb_batch_write(struct atoll_participant *p, const struct sqldb_batch *b)
{
	cleanup_free char *text = xasprintf(
		"atoll sqlite batch 1\nnumber %" PRIu64
		"\nkind %s\nold %s\nnew %s\ndo %s\nundo %s\ncounters %s\n",
		b->number, b->whole ? "whole" : "rows", or_none(b->old_hash), or_none(b->new_hash),
		or_none(b->do_hash), or_none(b->undo_hash), or_none(b->counters_hash));

	hash_buffer(text, strlen(text), p->manifest);
	return sqldb_file_write(p, b->number, SQLDB_FILE_MANIFEST, text, strlen(text));
}

static int damaged(struct atoll_participant *p, uint64_t number, enum sqldb_file which)
{
	cleanup_free char *path = sqldb_file_path(p, number, which);

	return error_set(&p->err, -ATOLL_E_DAMAGED, "'%s' is not what was decided on", path);
}

static int check_file(struct atoll_participant *p, uint64_t number, enum sqldb_file which,
                      const char *expected)
{
	cleanup_free void *data = NULL;
	char hash[HASH_TEXT_LEN];
	size_t len;
	int r;

	if (strcmp(expected, NO_HASH) == 0)
		return 0;
	r = sqldb_file_read(p, number, which, &data, &len);
	if (r < 0)
		return r;
	hash_buffer(data ? data : "", len, hash);
	return data && strcmp(hash, expected) == 0 ? 0 : damaged(p, number, which);
}

int sqldb_batch_read(struct atoll_participant *p, uint64_t number, struct sqldb_batch *ret)
{
	cleanup_free void *text = NULL;
	char hash[HASH_TEXT_LEN], kind[8];
	size_t len;
	int r = sqldb_file_read(p, number, SQLDB_FILE_MANIFEST, &text, &len);

	*ret = (struct sqldb_batch){ 0 };
	if (r < 0)
		return r;
	if (!text)
		return error_set(&p->err, -ENOENT,
		                 "the record of batch %" PRIu64 " of '%s' is gone", number,
		                 p->root);
	hash_buffer(text, len, hash);
	if ((number == p->batch.number && p->batch.manifest && *p->batch.manifest &&
	     strcmp(hash, p->batch.manifest) != 0) ||
	    sscanf(text, MANIFEST_FORMAT, &ret->number, kind, ret->old_hash, ret->new_hash,
	           ret->do_hash, ret->undo_hash, ret->counters_hash) < MANIFEST_FIELDS)
		return damaged(p, number, SQLDB_FILE_MANIFEST);
	ret->whole = strcmp(kind, "whole") == 0;
	r = check_file(p, number, SQLDB_FILE_DO, ret->do_hash);
	if (r >= 0)
		r = check_file(p, number, SQLDB_FILE_UNDO, ret->undo_hash);
	if (r >= 0 && *ret->counters_hash)
		r = check_file(p, number, SQLDB_FILE_COUNTERS, ret->counters_hash);
	return r;
}

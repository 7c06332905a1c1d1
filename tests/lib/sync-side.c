/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One side of a sync, for tests from outside; sees src/.
 *
 *   sync-side push ROOT MANIFEST >stream   scan, send, save the manifest; counts on stderr
 *   sync-side look ROOT MANIFEST           scan; counts on stderr
 *   sync-side take MANIFEST <stream        note what came from the other side
 *   sync-side listed MANIFEST <stream      make one of a list
 *   sync-side ahead ROOT MANIFEST SECONDS  as if the clock had been so much ahead when the manifest was made, and
 *                                          had been set back since, so that everything got its old time again
 */
#include "sync/pulled.h"
#include "sync/scan.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE    1000
#define NS_PER_S INT64_C(1000000000)

static int write_out(void *ctx, const void *data, size_t len)
{
	(void)ctx;
	return fs_write_all(STDOUT_FILENO, data, len);
}

/* The name of a manifest is absolute. */
static int save(const char *name, const struct sync_manifest *m)
{
	const char *slash = strrchr(name, '/');
	cleanup_free char *dir = xstrndup(name, (size_t)(slash - name));
	cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return dir_fd < 0 ? -errno : sync_manifest_save(dir_fd, slash + 1, m);
}

static int look(const char *root, const char *name, bool push, struct error *err)
{
	cleanup_sync_manifest struct sync_manifest *old = NULL, *now = NULL;
	cleanup_sync_changes struct sync_changes *c = NULL;
	cleanup_close int root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct sync_counts *n;
	int r = sync_manifest_load(AT_FDCWD, name, &old);

	if (r >= 0)
		r = sync_scan(root_fd, old, &c, &now, err);
	if (r < 0)
		return r;
	n = sync_changes_counts(c);
	fprintf(stderr, "{\"entries\":%ju,\"changes\":%ju,\"hashed\":%ju,\"skipped\":%ju}\n",
	        (uintmax_t)n->entries, (uintmax_t)n->changes, (uintmax_t)n->hashed,
	        (uintmax_t)n->skipped);
	if (!push)
		return 0;
	r = sync_send(root_fd, c, now, write_out, NULL, err);
	return r < 0 ? r : save(name, now);
}

static int take(const char *name, bool from_nothing, struct error *err)
{
	cleanup_sync_manifest struct sync_manifest *old = NULL, *now = NULL;
	cleanup_sync_pulled struct sync_pulled *p = NULL;
	char buf[PIECE];
	uint64_t changes = 0;
	ssize_t n;
	int r = from_nothing ? 0 : sync_manifest_load(AT_FDCWD, name, &old);

	if (r >= 0)
		r = sync_pulled_new(old, &p);
	while (r >= 0 && (n = read(STDIN_FILENO, buf, sizeof(buf))) > 0)
		r = sync_pulled_feed(p, buf, (size_t)n, err);
	if (r >= 0)
		r = sync_pulled_finish(p, &now, &changes, err);
	if (r < 0)
		return r;
	fprintf(stderr, "{\"entries\":%zu,\"changes\":%ju}\n", now->n, (uintmax_t)changes);
	return save(name, now);
}

static int set_ahead(const char *root, const char *name, int64_t seconds)
{
	cleanup_sync_manifest struct sync_manifest *m = NULL;
	cleanup_close int root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = sync_manifest_load(AT_FDCWD, name, &m);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	for (size_t i = 0; i < m->n; i++) {
		struct stat st;

		if (fstatat(root_fd, sync_manifest_path(m, &m->v[i]), &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		m->v[i].ctime_ns = timespec_ns(&st.st_ctim);
	}
	m->time.begin_ns += seconds * NS_PER_S;
	m->time.ahead_ns += seconds * NS_PER_S;
	return save(name, m);
}

int main(int argc, char **argv)
{
	cleanup_error struct error err = ERROR_INIT;
	int r = -EINVAL;

	if (argc == 4 && strcmp(argv[1], "push") == 0)
		r = look(argv[2], argv[3], true, &err);
	else if (argc == 4 && strcmp(argv[1], "look") == 0)
		r = look(argv[2], argv[3], false, &err);
	else if (argc == 3 && strcmp(argv[1], "take") == 0)
		r = take(argv[2], false, &err);
	else if (argc == 3 && strcmp(argv[1], "listed") == 0)
		r = take(argv[2], true, &err);
	else if (argc == 5 && strcmp(argv[1], "ahead") == 0)
		r = set_ahead(argv[2], argv[3], strtoll(argv[4], NULL, 10));
	if (r < 0)
		fprintf(stderr, "%s: %s\n", error_code_name(r), err.msg ? err.msg : "");
	return r < 0;
}

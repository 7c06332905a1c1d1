/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Barriers. What is to be synced is grouped by filesystem, and for each the cheaper way is taken:
 * syncfs() writes everybody's data, so it is for filesystems where little is dirty or where we
 * have very much; otherwise writeback is started for all of ours, which then needs one wait
 * instead of one per file, and each is fsynced.
 */
#include "fs/sync.h"

#include "fs/fs-impl.h"
#include "fs/mount.h"
#include "fs/resolve.h"
#include "fs/spool.h"
#include "fs/stat.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/pool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIRTY_LITTLE (UINT64_C(32) << 20)
/* What a disk writes in the time that one more fsync takes. */
#define DIRTY_PER_ITEM (UINT64_C(128) << 10)
#define ITEMS_MANY     2000
#define BATCH          256 /* descriptors open at once */
#define SYNC_THREADS   8u
#define MEMINFO_BYTES  4096

enum sync_method { SYNC_AUTO = 0, SYNC_FS, SYNC_EACH };

struct item {
	unsigned root;    /* index; of the descriptor itself when path is NULL */
	const char *path; /* in the list */
};

struct root {
	int fd;
	bool is_item; /* added by descriptor, shared with nobody */
	uint64_t dev, ino, mnt_id;
	bool done; /* its filesystem was synced in this run */
	size_t n;  /* items below it */
};

struct syncset {
	struct spool items; /* each a root, and a path with its NUL, or none */
	int spill_fd;       /* where most of them may go, or FD_NONE */
	struct root *roots;
	size_t n_roots, roots_cap;
};

static atomic_int forced_method = SYNC_AUTO;

void syncset_force(int method)
{
	atomic_store(&forced_method, method);
}

struct syncset *syncset_new(void)
{
	struct syncset *s = xcalloc(1, sizeof(*s));

	s->spill_fd = FD_NONE;
	return s;
}

static void empty(struct syncset *s)
{
	spool_done(&s->items);
	if (s->spill_fd != FD_NONE)
		spool_spill_to(&s->items, s->spill_fd);
	for (size_t i = 0; i < s->n_roots; i++)
		close_fd(&s->roots[i].fd);
	s->n_roots = 0;
}

void syncset_free(struct syncset *s)
{
	if (s == NULL)
		return;
	empty(s);
	close_fd(&s->spill_fd);
	free(s->roots);
	free(s);
}

void syncset_spill_to(struct syncset *s, int dir_fd)
{
	close_fd(&s->spill_fd);
	s->spill_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
	if (s->spill_fd >= 0)
		spool_spill_to(&s->items, s->spill_fd);
}

void cleanup_syncsetp(struct syncset **s)
{
	int e = errno;

	syncset_free(*s);
	errno = e;
}

unsigned syncset_size(const struct syncset *s)
{
	return (unsigned)s->items.n;
}

/* A duplicate shares the open file, and with it the point since when syncfs() reports errors. */
static int keep_fd(int fd, int *ret_fd)
{
	int flags = fcntl(fd, F_GETFL);
	int own = FD_NONE;

	if (flags >= 0 && (flags & O_PATH) != 0)
		own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (own < 0)
		own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (own < 0)
		return -errno;
	*ret_fd = own;
	return 0;
}

static int add_root(struct syncset *s, int fd, bool is_item, unsigned *ret)
{
	struct root root = { .is_item = is_item };
	void *v = s->roots;
	struct fs_stat st;
	int r;

	r = fs_stat_at(fd, "", 0, &st);
	if (r < 0)
		return r;
	root.dev = st.dev;
	root.ino = st.id.ino;
	root.mnt_id = st.mnt_id;
	for (size_t i = s->n_roots; !is_item && i-- > 0;) {
		const struct root *old = &s->roots[i];

		if (!old->is_item && old->dev == root.dev && old->ino == root.ino &&
		    old->mnt_id == root.mnt_id) {
			*ret = (unsigned)i;
			return 0;
		}
	}
	r = grow(&v, &s->roots_cap, s->n_roots + 1, sizeof(*s->roots));
	s->roots = v;
	if (r == 0)
		r = keep_fd(fd, &root.fd);
	if (r < 0)
		return r;
	*ret = (unsigned)s->n_roots;
	s->roots[s->n_roots++] = root;
	return 0;
}

static int add_item(struct syncset *s, unsigned root, const char *path)
{
	char few[256];
	size_t len = path != NULL ? strlen(path) + 1 : 0;
	cleanup_free char *many = NULL;
	char *record = few;
	int r;

	if (sizeof(root) + len > sizeof(few)) {
		record = many = malloc(sizeof(root) + len);
		if (record == NULL)
			return -ENOMEM;
	}
	memcpy(record, &root, sizeof(root));
	if (len > 0)
		memcpy(record + sizeof(root), path, len);
	r = spool_add(&s->items, record, sizeof(root) + len);
	if (r == 0)
		s->roots[root].n++;
	return r;
}

int syncset_add(struct syncset *s, int root_fd, const char *path)
{
	unsigned root;
	int r = add_root(s, root_fd, false, &root);

	return r < 0 ? r : add_item(s, root, path);
}

struct add_tree {
	struct syncset *s;
	unsigned root;
};

static int add_tree_entry(void *ctx, int dir_fd, const char *name, const char *path,
                          unsigned char type)
{
	struct add_tree *t = ctx;

	(void)dir_fd;
	(void)name;
	return type == DT_REG || type == DT_DIR ? add_item(t->s, t->root, path) : 0;
}

int syncset_add_tree(struct syncset *s, int root_fd, const char *path)
{
	struct add_tree t = { .s = s };
	int r = add_root(s, root_fd, false, &t.root);

	if (r == 0 && path[0] == '\0')
		r = add_item(s, t.root, "");
	return r < 0 ? r : walk_tree(root_fd, path, add_tree_entry, NULL, &t);
}

int syncset_add_fd(struct syncset *s, int fd)
{
	unsigned root;
	int r = add_root(s, fd, true, &root);

	return r < 0 ? r : add_item(s, root, NULL);
}

/* Bytes not yet written, of the whole machine; UINT64_MAX when it cannot be told. */
static uint64_t dirty_bytes(void)
{
	cleanup_close int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	char text[MEMINFO_BYTES];
	const char *p = NULL;
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

	if (n > 0) {
		text[n] = '\0';
		p = strstr(text, "\nDirty:");
	}
	return p != NULL ? strtoull(p + strlen("\nDirty:"), NULL, 10) << 10 : UINT64_MAX;
}

/* The items of one filesystem. */
struct group {
	struct syncset *s;
	uint64_t dev;
	size_t n;
	int fs_fd;
	bool one_by_one;
};

/* Until the next call. */
static int get_item(const struct syncset *s, size_t i, struct item *ret)
{
	const void *data;
	size_t len;
	int r = spool_get(&s->items, i, &data, &len);

	if (r < 0)
		return r;
	memcpy(&ret->root, data, sizeof(ret->root));
	ret->path = len > sizeof(ret->root) ? (const char *)data + sizeof(ret->root) : NULL;
	return 0;
}

static bool want_syncfs(const struct group *g, const struct mount_info *mount)
{
	int forced = atomic_load(&forced_method);

	if (forced != SYNC_AUTO)
		return forced == SYNC_FS;
	if (mount->network)
		return false; /* FUSE may not pass it on */
	return g->n > ITEMS_MANY || dirty_bytes() < DIRTY_LITTLE + g->n * DIRTY_PER_ITEM;
}

/* Not there any more, or a link or special file. */
static bool is_nothing(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -ENXIO;
}

/* Opens what is to be fsynced; *RET_FD stays FD_NONE when there is nothing (any more). */
static int open_item(const struct group *g, const struct item *item, int *ret_fd)
{
	int root_fd = g->s->roots[item->root].fd;
	int r;

	if (item->path == NULL) {
		*ret_fd = fcntl(root_fd, F_DUPFD_CLOEXEC, 3);
		return *ret_fd < 0 ? -errno : 0;
	}
	r = resolve_file(root_fd, item->path, ret_fd);
	if (r == -EISDIR)
		r = resolve_dir(root_fd, item->path, ret_fd);
	return is_nothing(r) ? 0 : r;
}

struct batch {
	int fd[BATCH];
	size_t n;
	atomic_size_t next;
};

static void batch_close(struct batch *b)
{
	for (size_t i = 0; i < b->n; i++)
		close_fd(&b->fd[i]);
	b->n = 0;
}

static int batch_work(struct batch *b)
{
	for (;;) {
		size_t i = atomic_fetch_add(&b->next, 1);

		if (i >= b->n)
			return 0;
		if (fsync(b->fd[i]) < 0)
			return -errno;
	}
}

/* The first to start calls in the others. */
static int batch_worker(struct pool *p, void *ctx, void *item)
{
	unsigned *others = item;

	for (; *others > 0; --*others)
		pool_push(p, xcalloc(1, sizeof(*others)));
	free(item);
	return batch_work(ctx);
}

static int batch_run(struct batch *b, bool one_by_one)
{
	unsigned threads = b->n < SYNC_THREADS ? (unsigned)b->n : SYNC_THREADS;
	unsigned *others;

	/* Only starts writeback: what matters is the fsync, and its error. */
	for (size_t i = 0; b->n > 1 && i < b->n; i++)
		(void)sync_file_range(b->fd[i], 0, 0, SYNC_FILE_RANGE_WRITE);
	atomic_store(&b->next, 0);
	if (one_by_one || threads <= 1)
		return batch_work(b);
	others = xcalloc(1, sizeof(*others));
	*others = threads - 1;
	return pool_run(threads, batch_worker, b, others);
}

static int batch_flush(struct batch *b, bool one_by_one)
{
	int r = batch_run(b, one_by_one);

	batch_close(b);
	return r;
}

static int batch_add(struct batch *b, const struct group *g, const struct item *item)
{
	int fd = FD_NONE;
	int r = open_item(g, item, &fd);

	if (r == -EMFILE && b->n > 0) {
		r = batch_flush(b, g->one_by_one);
		if (r == 0)
			r = open_item(g, item, &fd);
	}
	if (r < 0 || fd == FD_NONE)
		return r;
	b->fd[b->n++] = fd;
	return b->n == BATCH ? batch_flush(b, g->one_by_one) : 0;
}

static int sync_each(const struct group *g)
{
	struct batch b = { .n = 0 };
	int r = 0;

	for (size_t i = 0; r == 0 && i < g->s->items.n; i++) {
		struct item item;

		r = get_item(g->s, i, &item);
		if (r == 0 && g->s->roots[item.root].dev == g->dev)
			r = batch_add(&b, g, &item);
	}
	if (r == 0)
		r = batch_flush(&b, g->one_by_one);
	batch_close(&b);
	return r;
}

static int sync_group(struct group *g)
{
	struct mount_info mount;
	int r = mount_info(g->fs_fd, &mount);

	if (r < 0)
		return r;
	g->one_by_one = strcmp(mount.name, "btrfs") == 0;
	if (!want_syncfs(g, &mount)) {
		r = sync_each(g);
		if (r != -EACCES) /* else: a file that even its owner may not open */
			return r;
	}
	if (syncfs(g->fs_fd) == 0)
		return 0;
	return errno == EBADF ? sync_each(g) : -errno; /* a root that cannot be opened */
}

int syncset_run(struct syncset *s)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->n_roots; i++) {
		struct group g = { .s = s, .dev = s->roots[i].dev, .fs_fd = s->roots[i].fd };

		if (s->roots[i].done)
			continue;
		for (size_t k = i; k < s->n_roots; k++) {
			s->roots[k].done = s->roots[k].done || s->roots[k].dev == g.dev;
			g.n += s->roots[k].dev == g.dev ? s->roots[k].n : 0;
		}
		if (g.n > 0)
			r = sync_group(&g);
	}
	empty(s);
	return r;
}

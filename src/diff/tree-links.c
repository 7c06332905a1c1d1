/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that keep hard links. A table of the inodes with several names met so far; a mutex per
 * group of chains is held while such an inode is copied, so that two threads that meet two names
 * of it at once make one copy, and other inodes go on.
 */
#include "diff/tree-impl.h"

#include "fs/atomic.h"
#include "fs/content.h"
#include "fs/copy.h"
#include "fs/mount.h"
#include "fs/resolve.h"
#include "fs/xattr.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/mem.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define N_LOCKS  32u
#define N_CHAINS (N_LOCKS * 256u)

/* Kept small: there may be as many as files (package stores link all they install). */
struct first {
	struct first *next; /* in its chain */
	struct fs_id id;    /* and the rest of the original, as it was copied */
	uint64_t dev;
	uint64_t rdev;
	uint64_t size;
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	uint32_t nlink;
	struct fs_content content;
	uint64_t work_ino; /* of the copy */
	bool is_linked;    /* the copy has several names too */
	char path[];
};

struct tree_links {
	int work_fd;
	pthread_mutex_t locks[N_LOCKS]; /* each guards every N_LOCKS-th chain */
	struct first *chains[N_CHAINS];
};

struct tree_links *tree_links_new(int work_fd)
{
	struct tree_links *l = xcalloc(1, sizeof(*l));

	l->work_fd = work_fd;
	for (size_t i = 0; i < N_LOCKS; i++)
		pthread_mutex_init(&l->locks[i], NULL);
	return l;
}

void tree_links_free(struct tree_links *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < N_CHAINS; i++) {
		while (l->chains[i]) {
			struct first *next = l->chains[i]->next;

			free(l->chains[i]);
			l->chains[i] = next;
		}
	}
	for (size_t i = 0; i < N_LOCKS; i++)
		pthread_mutex_destroy(&l->locks[i]);
	free(l);
}

static struct first *find(const struct tree_links *l, size_t chain, const struct fs_stat *src)
{
	struct first *f = l->chains[chain];

	while (f && !(fs_id_equal(f->id, src->id) && f->dev == src->dev))
		f = f->next;
	return f;
}

static int add(struct tree_links *l, size_t chain, const struct base_entry *e, const char *path)
{
	size_t len = strlen(path) + 1;
	/* Not from the offset of the path: the assignment below fills the padding too. */
	struct first *f = malloc(sizeof(*f) + len);

	if (!f)
		return -ENOMEM;
	*f = (struct first){
		.next = l->chains[chain],
		.id = e->src.id,
		.dev = e->src.dev,
		.rdev = e->src.rdev,
		.size = e->src.size,
		.mtime_ns = e->src.mtime_ns,
		.ctime_ns = e->src.ctime_ns,
		.mode = e->src.mode,
		.uid = e->src.uid,
		.gid = e->src.gid,
		.nlink = e->src.nlink,
		.content = e->src.content,
		.work_ino = e->work_ino,
	};
	memcpy(f->path, path, len);
	l->chains[chain] = f;
	return 0;
}

static struct fs_stat original_of(const struct first *f)
{
	return (struct fs_stat){
		.id = f->id,
		.mode = f->mode,
		.uid = f->uid,
		.gid = f->gid,
		.nlink = f->nlink,
		.size = f->size,
		.mtime_ns = f->mtime_ns,
		.ctime_ns = f->ctime_ns,
		.dev = f->dev,
		.rdev = f->rdev,
		.content = f->content,
	};
}

/* Where copies share their blocks, to read more than that costs more than to make the copy. */
#define READ_MAX (64u << 10)

static bool shares_blocks(int dir_fd)
{
	struct mount_info mount;

	return mount_info(dir_fd, &mount) < 0 || strcmp(mount.name, "btrfs") == 0 ||
	       strcmp(mount.name, "xfs") == 0 || strcmp(mount.name, "bcachefs") == 0;
}

/* Of the copy: whatever becomes of the original, the view was made of this. */
static void take_content(const struct tree_both *at, struct base_entry *e, struct fs_stat *made)
{
	if (made->size > READ_MAX && shares_blocks(at->work_fd))
		return;
	fs_content_take(at->work_fd, e->name, made);
	e->src.content = made->content;
	/* Some cannot be given to a copy. */
	if (xattrs_hash_at(at->orig_fd, e->name, &e->src.content.xattrs) < 0)
		e->src.content.known = false;
}

int tree_copy_alone(const struct tree_both *at, struct base_entry *e)
{
	struct fs_stat made;
	int r;

	r = copy_entry_at(at->orig_fd, e->name, at->work_fd, e->name, &e->src, &made);
	if (r < 0)
		return r;
	take_content(at, e, &made);
	e->work_ino = made.id.ino;
	e->work_ctime_ns = made.ctime_ns;
	return 0;
}

/* A further name for the copy of FIRST. -ENOENT: that copy is not there any more. */
static int link_to(const struct tree_links *l, struct first *first, const struct tree_both *at,
                   struct base_entry *e)
{
	cleanup_close int from_fd = FD_NONE;
	const char *from;
	struct fs_stat made;
	int r;

	r = resolve_parent(l->work_fd, first->path, &from_fd, &from);
	if (r == 0)
		r = fs_link_at(from_fd, from, at->work_fd, e->name);
	if (r == 0)
		r = fs_stat_at(at->work_fd, e->name, 0, &made);
	if (r < 0)
		return r;
	if (made.id.ino != first->work_ino) {
		/* The first name was copied anew since, from another inode. */
		r = fs_unlink_at(at->work_fd, e->name);
		return r < 0 ? r : -ENOENT;
	}
	first->is_linked = true;
	e->src = original_of(first);
	e->work_ino = first->work_ino;
	e->work_ctime_ns = 0; /* known when the last link is made: tree_links_record() */
	return 0;
}

int tree_links_copy(struct tree_links *l, const struct tree_both *at, const char *path,
                    struct base_entry *e)
{
	struct first *first;
	struct fs_stat src;
	size_t chain;
	int r;

	r = fs_stat_at(at->orig_fd, e->name, FS_STAT_ID, &src);
	if (r < 0)
		return r;
	chain = hash64(&src.id.ino, sizeof(src.id.ino)) % N_CHAINS;
	pthread_mutex_lock(&l->locks[chain % N_LOCKS]);
	first = find(l, chain, &src);
	r = first ? link_to(l, first, at, e) : -ENOENT;
	if (r == -ENOENT || r == -EMLINK) {
		r = tree_copy_alone(at, e);
		/* What was copied may be another inode by now, of another chain. */
		if (r == 0 && !first && fs_id_equal(src.id, e->src.id))
			r = add(l, chain, e, path);
	}
	pthread_mutex_unlock(&l->locks[chain % N_LOCKS]);
	return r;
}

static int record(const struct tree_links *l, const struct first *f, struct base_writer *w)
{
	struct fs_stat made;

	/* Gone with its directory: the ctime recorded before proves nothing then, which is safe. */
	if (!f->is_linked || fs_stat_at(l->work_fd, f->path, 0, &made) < 0 ||
	    made.id.ino != f->work_ino)
		return 0;
	return base_writer_link(w, made.id.ino, made.ctime_ns);
}

int tree_links_record(const struct tree_links *l, struct base_writer *w)
{
	int r = 0;

	for (size_t i = 0; i < N_CHAINS && r == 0; i++)
		for (const struct first *f = l->chains[i]; f && r == 0; f = f->next)
			r = record(l, f, w);
	return r;
}

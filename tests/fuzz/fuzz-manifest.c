/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any manifest: read without harm; what is accepted leads nowhere outside the root, comes back the same
 * when it is written, and its operations are the same when they are read one by one.
 */
#include "strategy/manifest.h"

#include "fuzz/fuzz.h"
#include "util/cleanup.h"

static void inside(const char *path, bool root)
{
	char framed[8192];

	must(path && *path != '/' && (root || *path) && strlen(path) < sizeof(framed) - 3);
	(void)snprintf(framed, sizeof(framed), "/%s/", path);
	must(!*path ||
	     (!strstr(framed, "/../") && !strstr(framed, "/./") && !strstr(framed, "//")));
}

static void same_content(const struct fs_content *a, const struct fs_content *b)
{
	must(a->known == b->known);
	must(!a->known || (a->xattrs == b->xattrs && memcmp(a->hash, b->hash, HASH_SIZE) == 0));
}

static void same_op(const struct manifest_op *a, const struct manifest_op *b)
{
	must(a->op == b->op && a->flags == b->flags && strcmp(a->path, b->path) == 0);
	must(a->old_stat.id.ino == b->old_stat.id.ino && a->old_stat.id.gen == b->old_stat.id.gen &&
	     a->new_stat.id.ino == b->new_stat.id.ino && a->new_stat.id.gen == b->new_stat.id.gen);
	must(a->old_stat.mode == b->old_stat.mode && a->new_stat.mode == b->new_stat.mode);
	same_content(&a->old_stat.content, &b->old_stat.content);
	same_content(&a->new_stat.content, &b->new_stat.content);
}

static void one_by_one(int dir_fd, const struct manifest *m)
{
	struct manifest_reader *reader = NULL;
	const struct manifest_op *op;

	must(manifest_reader_open(dir_fd, MANIFEST_NAME, &reader, NULL) == 0);
	for (size_t i = 0; i < m->ops.n; i++) {
		cleanup_manifest_op struct manifest_op other = MANIFEST_OP_INIT;

		must(manifest_reader_next(reader, &op, NULL) == 1);
		must(manifest_get(m, i, &other) == 0);
		same_op(op, &other);
	}
	must(manifest_reader_next(reader, &op, NULL) == 0);
	manifest_reader_close(reader);
}

static void written_again(const struct manifest *m)
{
	cleanup_close int dir_fd = open(fuzz_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct manifest again = MANIFEST_INIT;
	char hash[HASH_TEXT_LEN];

	must(manifest_write(m, dir_fd, MANIFEST_NAME, hash, NULL) == 0);
	must(manifest_read(dir_fd, MANIFEST_NAME, hash, &again, NULL) == 0);
	must(again.ops.n == m->ops.n && again.n_dirs == m->n_dirs);
	for (size_t i = 0; i < m->ops.n; i++) {
		cleanup_manifest_op struct manifest_op a = MANIFEST_OP_INIT, b = MANIFEST_OP_INIT;

		must(manifest_get(m, i, &a) == 0 && manifest_get(&again, i, &b) == 0);
		same_op(&a, &b);
	}
	for (size_t i = 0; i < m->n_dirs; i++)
		must(strcmp(m->dirs[i].path, again.dirs[i].path) == 0);
	one_by_one(dir_fd, &again);
	manifest_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct manifest m = MANIFEST_INIT;

	if (manifest_parse(data, size, &m, NULL) < 0)
		return 0;
	for (size_t i = 0; i < m.ops.n; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		must(manifest_get(&m, i, &o) == 0 && o.op < CHANGE_OP_END_);
		inside(o.path, true);
	}
	for (size_t i = 0; i < m.n_dirs; i++)
		inside(m.dirs[i].path, true);
	written_again(&m);
	manifest_done(&m);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any upper over any lower, made of the input: whiteouts, opaque marks and redirects of both families,
 * origins that are none, links out, FIFOs, set-id bits, odd names. The walkers end, agree with each other,
 * and name paths below the root, each once and in order.
 *
 * Four bytes make an entry: what, and its path of up to three names.
 */
#include "diff/upper.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "fuzz/fuzz.h"
#include "util/cleanup.h"

#define ENTRIES_MAX 64

static const char *const names[] = {
	"a", "b", "c", "\n", "*?[", "\xff\xfe", ".wh.a", "...",
};
#define NAMES (sizeof(names) / sizeof(names[0]))

enum {
	DIRECTORY,
	CONTENT,
	LINK,
	FIFO,
	WHITEOUT,
	OPAQUE,
	REDIRECT,
	ORIGIN,
	SET_ID,
	HARD_LINK,
	KINDS
};

static void set_marks(const char *path, const char *mark, const void *value, size_t len)
{
	static const char *const families[] = { "trusted", "user" };
	char name[64];

	for (size_t i = 0; i < 2; i++) {
		(void)snprintf(name, sizeof(name), "%s.overlay.%s", families[i], mark);
		(void)lsetxattr(path, name, value, len, 0);
	}
}

/* What cannot be made, over something else, say, is not. */
static void make(const char *path, const char *dir, unsigned kind, uint8_t more)
{
	char other[256];
	int fd;

	switch (kind % KINDS) {
	case DIRECTORY:
		(void)mkdir(path, 0755);
		break;
	case CONTENT:
	case SET_ID:
		fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
		if (fd < 0)
			break;
		(void)!write(fd, &more, 1);
		(void)fchmod(fd, kind % KINDS == SET_ID ? 06755 : 0644);
		(void)close(fd);
		break;
	case LINK:
		(void)symlink(more & 1 ? "/etc" : "../../..", path);
		break;
	case FIFO:
		(void)mkfifo(path, 0644);
		break;
	case WHITEOUT:
		(void)mknod(path, S_IFCHR, makedev(0, 0));
		break;
	case OPAQUE:
		set_marks(path, "opaque", more & 1 ? "y" : "x", 1);
		break;
	case REDIRECT:
		set_marks(path, "redirect", "/../../etc", 10);
		break;
	case ORIGIN:
		set_marks(path, "origin", path, more % 32);
		break;
	case HARD_LINK:
		(void)snprintf(other, sizeof(other), "%s/%s", dir, names[more % NAMES]);
		(void)link(other, path);
		break;
	}
}

static void build(const uint8_t *data, size_t size)
{
	for (size_t i = 0; i + 4 <= size && i < 4 * ENTRIES_MAX; i += 4) {
		char path[256], dir[96];
		size_t len;

		(void)snprintf(dir, sizeof(dir), "%s/%s", fuzz_dir(),
		               data[i] & 0x80 ? "lower" : "upper");
		len = (size_t)snprintf(path, sizeof(path), "%s", dir);
		for (size_t k = 1; k <= 3 && (k == 1 || data[i + k] & 0x80); k++)
			len += (size_t)snprintf(path + len, sizeof(path) - len, "/%s",
			                        names[data[i + k] % NAMES]);
		make(path, dir, data[i] & 0x7f, data[i + 3]);
	}
}

static void inside(const char *path)
{
	must(path && *path != '/' && strcmp(path, "..") != 0 && strncmp(path, "../", 3) != 0 &&
	     !strstr(path, "/../"));
}

struct seen {
	const struct changeset *cs;
	size_t n;
};

static int each(void *ctx, struct change *c)
{
	struct seen *s = ctx;

	cleanup_change struct change other = CHANGE_INIT;

	must(s->n < s->cs->v.n && changeset_get(&s->cs->v, s->n, &other) == 0);
	must(c->op == other.op && strcmp(c->path, other.path) == 0);
	s->n++;
	return 0;
}

static int entry(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
                 const struct fs_stat *old_stat, const struct fs_stat *new_stat,
                 const char *link_target)
{
	size_t *n = ctx;

	(void)kind;
	(void)what;
	(void)link_target;
	must(old_stat || new_stat);
	inside(path);
	return ++*n > 100000 ? -E2BIG : 0;
}

static void look(const struct upper_compare *u)
{
	cleanup_changeset struct changeset cs = CHANGESET_INIT;
	cleanup_error struct error err = ERROR_INIT, err2 = ERROR_INIT;
	struct seen s = { .cs = &cs };
	size_t n = 0;
	int r = upper_diff(u, &cs, &err);

	must(r >= 0 || (err.msg && *err.msg));
	if (r < 0)
		return;
	for (size_t i = 0; i < cs.v.n; i++) {
		cleanup_change struct change before = CHANGE_INIT, c = CHANGE_INIT;

		must(changeset_get(&cs.v, i, &c) == 0);
		must(i == 0 || changeset_get(&cs.v, i - 1, &before) == 0);
		inside(c.path);
		must(*c.path || c.op == CHANGE_ATTR);
		must(i == 0 || path_compare(before.path, c.path) < 0);
		must((c.op == CHANGE_CREATE) == (c.base.mode == 0));
		must((c.op == CHANGE_DELETE) == (c.work.mode == 0));
	}
	must(upper_each(u, each, &s, &err2) >= 0 && s.n == cs.v.n);
	must(upper_expand(u, &cs, entry, &n, &err2) >= 0);
}

static int top(const char *name)
{
	char path[96];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", fuzz_dir(), name);
	must(remove_tree(path) >= 0 && mkdir(path, 0755) == 0);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(fd >= 0);
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_close int upper_fd = top("upper"), lower_fd = top("lower");

	build(data, size);
	for (int marks = OVERLAY_TRUSTED; marks <= OVERLAY_USER; marks++)
		look(&(struct upper_compare){ .upper_fd = upper_fd,
		                              .orig_fd = lower_fd,
		                              .marks = (enum overlay_marks)marks });
	return 0;
}

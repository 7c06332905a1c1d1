/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Difference (rules DIF): exactly what changed is listed, committed and undone. DIF-06 compares
 * with a second opinion written here, which reads both trees in full.
 */
#include "lib/more.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ORDINARY                                                                              \
	(ATOLL_CHANGE_CONTENT | ATOLL_CHANGE_MODE | ATOLL_CHANGE_OWNER | ATOLL_CHANGE_XATTR | \
	 ATOLL_CHANGE_MTIME | ATOLL_CHANGE_TYPE)

static void expect_listed(struct fix *f, struct atoll_plan *p, const char *path,
                          enum atoll_change_kind kind, unsigned what)
{
	struct listing *l = diff_take(f, p);
	const struct listed *c = diff_find(l, path);

	expect_msg(c != NULL, "'%s' is not listed", path);
	if (c) {
		expect_eq(c->kind, kind);
		expect_msg((c->what & what) == what, "'%s' has bits %#x, not %#x", path, c->what,
		           what);
	}
	diff_free(l);
}

static void expect_target(const char *link, const char *target)
{
	char buf[PATH_MAX];
	ssize_t n = readlink(link, buf, sizeof(buf) - 1);

	expect_msg(n >= 0, "'%s' is no link: %s", link, strerror(errno));
	buf[n < 0 ? 0 : n] = '\0';
	expect_str(buf, target);
}

/* Commits the workspace of P as it is: the resource becomes it, and then what it was. */
static void expect_there_and_back(struct fix *f, struct atoll_plan *p, const char *root,
                                  const char *before)
{
	char *view = man_take(fix_work(f, p, root));

	expect_commit(f, p);
	expect_man(root, view);
	expect_rollback(f, p);
	expect_man(root, before);
	free(view);
}

static void dif_01_link_pointed_to_an_equal_file(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *work;
	struct atoll_plan *p;
	char *before;

	put_text(fix_path(f, "%s/a", root), "same\n");
	put_text(fix_path(f, "%s/b", root), "same\n");
	put_link(fix_path(f, "%s/link", root), "a");
	before = man_take(root);
	p = plan_over(f, root);
	work = fix_work(f, p, NULL);
	remove_entry(fix_path(f, "%s/link", work));
	put_link(fix_path(f, "%s/link", work), "b");
	/* Neither length nor time gives it away. */
	expect(utimensat(AT_FDCWD, fix_path(f, "%s/link", work), NULL, AT_SYMLINK_NOFOLLOW) == 0);
	expect_listed(f, p, "link", ATOLL_CHANGE_CHANGED, ATOLL_CHANGE_CONTENT);
	expect_commit(f, p);
	expect_target(fix_path(f, "%s/link", root), "b");
	expect_rollback(f, p);
	expect_target(fix_path(f, "%s/link", root), "a");
	expect_man(root, before);
	free(before);
}

enum type { A_FILE, A_LINK, A_DIR };

static void put_type(struct fix *f, const char *path, enum type t)
{
	switch (t) {
	case A_FILE:
		put_text(path, "same\n");
		break;
	case A_LINK:
		put_link(path, "same");
		break;
	case A_DIR:
		put_dir(path, 0755);
		put_text(fix_path(f, "%s/same", path), "same\n");
		put_dir(fix_path(f, "%s/deep", path), 0755);
		put_link(fix_path(f, "%s/deep/link", path), "../same");
		break;
	}
}

static void dif_02_type_is_compared_first(void **state)
{
	struct fix *f = *state;

	for (enum type from = A_FILE; from <= A_DIR; from++) {
		for (enum type to = A_FILE; to <= A_DIR; to++) {
			const char *root, *work;
			struct atoll_plan *p;
			char *before;

			if (from == to)
				continue;
			root = fix_dir(f, fix_path(f, "root%d%d", from, to));
			put_text(fix_path(f, "%s/same", root), "same\n");
			put_type(f, fix_path(f, "%s/entry", root), from);
			before = man_take(root);
			p = plan_over(f, root);
			work = fix_work(f, p, NULL);
			remove_entry(fix_path(f, "%s/entry", work));
			put_type(f, fix_path(f, "%s/entry", work), to);
			expect_listed(f, p, "entry", ATOLL_CHANGE_CHANGED, ATOLL_CHANGE_TYPE);
			expect_there_and_back(f, p, root, before);
			free(before);
		}
	}
}

static void dif_03_dangling_links_do_no_harm(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *work;
	struct atoll_plan *p;
	struct listing *l;
	char *before;

	put_link(fix_path(f, "%s/both", root), "nothing/there");
	put_link(fix_path(f, "%s/old", root), "nothing");
	put_link(fix_path(f, "%s/moved", root), "nothing-1");
	put_link(fix_path(f, "%s/loop", root), "loop");
	before = man_take(root);
	p = plan_over(f, root);
	work = fix_work(f, p, NULL);
	remove_entry(fix_path(f, "%s/old", work));
	put_link(fix_path(f, "%s/new", work), "nothing-new");
	remove_entry(fix_path(f, "%s/moved", work));
	put_link(fix_path(f, "%s/moved", work), "nothing-2");
	l = diff_take(f, p);
	expect_eq(l->n, 3);
	expect(!diff_find(l, "both") && !diff_find(l, "loop"));
	diff_free(l);
	expect_there_and_back(f, p, root, before);
	free(before);
}

static void dif_04_directories_are_entries(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *work;
	struct atoll_plan *p;
	struct listing *l;
	char *before;

	put_dir(fix_path(f, "%s/a", root), 0755);
	put_dir(fix_path(f, "%s/a/b", root), 0755);
	put_dir(fix_path(f, "%s/a/b/c", root), 0755);
	put_text(fix_path(f, "%s/a/b/c/x", root), "x\n");
	put_dir(fix_path(f, "%s/empty", root), 0755);
	before = man_take(root);
	p = plan_over(f, root);
	work = fix_work(f, p, NULL);
	remove_entry(fix_path(f, "%s/a", work));
	remove_entry(fix_path(f, "%s/empty", work));
	put_dir(fix_path(f, "%s/new", work), 0750);
	put_dir(fix_path(f, "%s/new/er", work), 0750);
	l = diff_take(f, p);
	expect_eq(l->n, 7);
	diff_free(l);
	expect_there_and_back(f, p, root, before);
	expect(exists(fix_path(f, "%s/empty", root)));
	free(before);
}

/* Everything goes; the root stays, the same directory. */
static void dif_04_the_root_is_never_removed(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	uint64_t ino = inode_of(root);
	struct atoll_plan *p;
	char *before;

	put_dir(fix_path(f, "%s/a", root), 0755);
	put_text(fix_path(f, "%s/a/x", root), "x\n");
	put_text(fix_path(f, "%s/y", root), "y\n");
	before = man_take(root);
	p = plan_over(f, root);
	remove_entry(fix_path(f, "%s/a", fix_work(f, p, NULL)));
	remove_entry(fix_path(f, "%s/y", fix_work(f, p, NULL)));
	expect_commit(f, p);
	expect_eq(count_entries(root), 0);
	expect_eq(inode_of(root), ino);
	expect_rollback(f, p);
	expect_man(root, before);
	expect_eq(inode_of(root), ino);
	free(before);
}

/* ---- edits made to look like none ---- */

static void set_back(const char *path, const struct stat *was)
{
	const struct timespec times[2] = { was->st_atim, was->st_mtim };

	expect(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) == 0);
}

static void write_over(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	expect(fd >= 0 && pwrite(fd, "B", 1, 1) == 1);
	close(fd);
}

static void write_mapped(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	char *map = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	expect(fd >= 0 && map != MAP_FAILED);
	close(fd);
	map[1] = 'B';
	expect(msync(map, 8, MS_SYNC) == 0 && munmap(map, 8) == 0);
}

static void write_renamed(const char *path)
{
	char other[PATH_MAX + 8];

	(void)snprintf(other, sizeof(other), "%s.new", path);
	put_text(other, "ABaaaaa\n");
	expect(rename(other, path) == 0);
}

static void forge(struct fix *f, const char *name, void (*edit)(const char *path))
{
	const char *root = fix_dir(f, name);
	struct atoll_plan *p;
	struct stat was;
	const char *file;
	char *before;

	put_text(fix_path(f, "%s/file", root), "Aaaaaaa\n");
	set_mtime(fix_path(f, "%s/file", root), 1000000000, 987654321);
	before = man_take(root);
	p = plan_over(f, root);
	file = fix_path(f, "%s/file", fix_work(f, p, NULL));
	expect(lstat(file, &was) == 0);
	edit(file);
	set_back(file, &was);
	expect_listed(f, p, "file", ATOLL_CHANGE_CHANGED, ATOLL_CHANGE_CONTENT);
	expect_commit(f, p);
	expect_text(fix_path(f, "%s/file", root), "ABaaaaa\n");
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
}

static void dif_05_forged_times_hide_nothing(void **state)
{
	forge(*state, "over", write_over);
	forge(*state, "mapped", write_mapped);
	forge(*state, "renamed", write_renamed);
}

/* Right after creation, again and again: some fall into the same tick of the clock. The path is
 * asked for once, so that nothing but creation lies before the edit. */
static void dif_05_edits_within_the_tick_of_creation(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	unsigned rounds = atest_long() ? 200 : 30;

	put_text(fix_path(f, "%s/file", root), "Aaaaaaa\n");
	for (unsigned i = 0; i < rounds; i++) {
		struct atoll_plan *p = plan_over(f, root);
		const char *file = fix_path(f, "%s/w1/file", fix_area(f, p, root));
		struct stat was;

		expect(lstat(file, &was) == 0);
		write_over(file);
		set_back(file, &was);
		expect_listed(f, p, "file", ATOLL_CHANGE_CHANGED, ATOLL_CHANGE_CONTENT);
		expect_stop(f, p);
		fix_forget(f, p);
	}
}

/* A file that is only read, or written with what it holds, is not listed. */
static void dif_05_no_change_is_no_change(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *file;
	struct atoll_plan *p;
	struct stat was;
	struct listing *l;
	char *inodes, *text;

	put_text(fix_path(f, "%s/read", root), "Aaaaaaa\n");
	put_text(fix_path(f, "%s/written", root), "Aaaaaaa\n");
	inodes = man_inodes(root);
	p = plan_over(f, root);
	text = get_text(fix_path(f, "%s/read", fix_work(f, p, NULL)));
	free(text);
	file = fix_path(f, "%s/written", fix_work(f, p, NULL));
	expect(lstat(file, &was) == 0);
	put_text(file, "Aaaaaaa\n");
	set_back(file, &was);
	l = diff_take(f, p);
	expect_eq(l->n, 0);
	diff_free(l);
	expect_commit(f, p);
	expect_eq(fix_outcome(f, root), ATOLL_OUTCOME_UNCHANGED);
	expect_inodes(root, inodes);
	free(inodes);
}

/* ---- DIF-06: the second opinion ---- */

/* Component by component, by bytes: a separator sorts before every other byte. */
static int by_component(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	if (!*a || !*b)
		return (*a != '\0') - (*b != '\0');
	if (*a == '/' || *b == '/')
		return *a == '/' ? -1 : 1;
	return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
}

static int by_path(const void *x, const void *y)
{
	const struct listed *a = x, *b = y;

	return by_component(a->path, b->path);
}

static void join(char out[PATH_MAX], const char *dir, const char *name)
{
	int n = snprintf(out, PATH_MAX, "%s%s%s", dir, *dir && *name ? "/" : "", name);

	expect(n >= 0 && n < PATH_MAX);
}

/* Every path below DIR, kind left open. */
static void collect(struct listing *l, const char *root, const char *below)
{
	char full[PATH_MAX], path[PATH_MAX];
	struct dirent *e;
	DIR *d;

	join(full, root, below);
	d = opendir(full);
	expect_msg(d != NULL, "opendir %s: %s", full, strerror(errno));
	while ((e = readdir(d)) != NULL) {
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		join(path, below, e->d_name);
		join(full, root, path);
		expect(lstat(full, &st) == 0);
		diff_add(l, path, ATOLL_CHANGE_CHANGED, 0, NULL);
		if (S_ISDIR(st.st_mode))
			collect(l, root, path);
	}
	closedir(d);
}

static bool same_content(const char *a, const char *b, const struct stat *st)
{
	char *x = NULL, *y = NULL;
	bool same;

	if (S_ISLNK(st->st_mode)) {
		char s[PATH_MAX] = "", t[PATH_MAX] = "";

		return readlink(a, s, sizeof(s) - 1) >= 0 && readlink(b, t, sizeof(t) - 1) >= 0 &&
		       strcmp(s, t) == 0;
	}
	if (!S_ISREG(st->st_mode))
		return true;
	x = malloc((size_t)st->st_size + 1);
	y = malloc((size_t)st->st_size + 1);
	{
		int fa = open(a, O_RDONLY | O_CLOEXEC), fb = open(b, O_RDONLY | O_CLOEXEC);
		ssize_t n = read(fa, x, (size_t)st->st_size), m = read(fb, y, (size_t)st->st_size);

		same = n == st->st_size && m == n && memcmp(x, y, (size_t)n) == 0;
		close(fa);
		close(fb);
	}
	free(x);
	free(y);
	return same;
}

static bool same_xattr(const char *a, const char *b)
{
	char names_a[1024], names_b[1024], x[256], y[256];
	ssize_t n = llistxattr(a, names_a, sizeof(names_a));
	ssize_t m = llistxattr(b, names_b, sizeof(names_b));

	if (n != m)
		return false;
	for (ssize_t i = 0; i < n; i += (ssize_t)strlen(names_a + i) + 1) {
		ssize_t k = lgetxattr(a, names_a + i, x, sizeof(x));

		if (lgetxattr(b, names_a + i, y, sizeof(y)) != k ||
		    (k > 0 && memcmp(x, y, (size_t)k) != 0))
			return false;
	}
	return true;
}

static unsigned what_differs(const char *a, const char *b, const struct stat *x,
                             const struct stat *y)
{
	unsigned what = 0;

	if ((x->st_mode ^ y->st_mode) & S_IFMT)
		return ATOLL_CHANGE_TYPE;
	if (x->st_mode != y->st_mode)
		what |= ATOLL_CHANGE_MODE;
	if (x->st_uid != y->st_uid || x->st_gid != y->st_gid)
		what |= ATOLL_CHANGE_OWNER;
	if (!same_xattr(a, b))
		what |= ATOLL_CHANGE_XATTR;
	if (S_ISDIR(x->st_mode)) /* its time only follows its entries */
		return what;
	if (x->st_mtim.tv_sec != y->st_mtim.tv_sec || x->st_mtim.tv_nsec != y->st_mtim.tv_nsec)
		what |= ATOLL_CHANGE_MTIME;
	if (x->st_size != y->st_size || !same_content(a, b, x))
		what |= ATOLL_CHANGE_CONTENT;
	return what;
}

/* Decides what became of one path; false: nothing. */
static bool judge(struct listed *c, const char *root, const char *work)
{
	char a[PATH_MAX], b[PATH_MAX];
	struct stat x, y;
	bool was, is;

	join(a, root, c->path);
	join(b, work, c->path);
	was = lstat(a, &x) == 0;
	is = lstat(b, &y) == 0;
	c->kind = !was ? ATOLL_CHANGE_ADDED : !is ? ATOLL_CHANGE_DELETED : ATOLL_CHANGE_CHANGED;
	c->what = was && is ? what_differs(a, b, &x, &y) : 0;
	return !was || !is || c->what;
}

static struct listing *second_opinion(const char *root, const char *work)
{
	struct listing *l = calloc(1, sizeof(*l));
	size_t kept = 0;

	diff_add(l, "", ATOLL_CHANGE_CHANGED, 0, NULL);
	collect(l, root, "");
	collect(l, work, "");
	qsort(l->v, l->n, sizeof(*l->v), by_path);
	for (size_t i = 0; i < l->n; i++) {
		bool twice = kept > 0 && strcmp(l->v[i].path, l->v[kept - 1].path) == 0;

		if (!twice && judge(&l->v[i], root, work)) {
			l->v[kept++] = l->v[i];
			continue;
		}
		free(l->v[i].path);
		free(l->v[i].text);
	}
	l->n = kept;
	return l;
}

static void expect_same_lists(const struct listing *got, const struct listing *wanted,
                              const char *script)
{
	size_t n = got->n < wanted->n ? got->n : wanted->n;

	for (size_t i = 0; i < n; i++) {
		expect_msg(strcmp(got->v[i].path, wanted->v[i].path) == 0,
		           "%s: entry %zu is '%s', not '%s'", script, i, got->v[i].path,
		           wanted->v[i].path);
		expect_msg(got->v[i].kind == wanted->v[i].kind, "%s: '%s' is of kind %d, not %d",
		           script, got->v[i].path, (int)got->v[i].kind, (int)wanted->v[i].kind);
		expect_msg((got->v[i].what & ORDINARY) == wanted->v[i].what,
		           "%s: '%s' has bits %#x, not %#x", script, got->v[i].path,
		           got->v[i].what & ORDINARY, wanted->v[i].what);
	}
	expect_msg(got->n == wanted->n, "%s: %zu entries, not %zu", script, got->n, wanted->n);
}

/* ---- DIF-06: the scripts ---- */

#define NEWLINE  "new\nline"
#define NOT_UTF8 "caf\xe9\xff\x01"

static void put_standard_tree(struct fix *f, const char *root)
{
	static const char *const files[] = {
		"a",      "a-b",   "a.b", "a/file", "a/sub/x", "a/sub/y",
		"b/file", NEWLINE, "bin", NOT_UTF8, "empty",   "zz",
	};
	put_dir(root, 0755);
	put_dir(fix_path(f, "%s/a", root), 0755);
	put_dir(fix_path(f, "%s/a/sub", root), 0755);
	put_dir(fix_path(f, "%s/b", root), 0755);
	put_dir(fix_path(f, "%s/void", root), 0755);
	for (size_t i = 1; i < sizeof(files) / sizeof(files[0]); i++)
		put_text(fix_path(f, "%s/%s", root, files[i]), files[i]);
	put_text(fix_path(f, "%s/empty", root), "");
	put_bytes(fix_path(f, "%s/bin", root), 70000, 7);
	put_hardlink(fix_path(f, "%s/b/hard", root), fix_path(f, "%s/b/file", root));
	put_link(fix_path(f, "%s/link", root), "a/file");
}

static void s_nothing(struct fix *f, const char *w)
{
	(void)f;
	(void)w;
}
static void s_made_and_unmade(struct fix *f, const char *w)
{
	put_text(fix_path(f, "%s/a/tmp", w), "x");
	remove_entry(fix_path(f, "%s/a/tmp", w));
}
static void s_everything_deleted(struct fix *f, const char *w)
{
	static const char *const all[] = { "a",      "a-b",   "a.b", "b",    NEWLINE, "bin",
		                           NOT_UTF8, "empty", "zz",  "void", "link" };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		remove_entry(fix_path(f, "%s/%s", w, all[i]));
}
static void s_order_of_neighbours(struct fix *f, const char *w)
{
	put_text(fix_path(f, "%s/a/file", w), "1");
	put_text(fix_path(f, "%s/a-b", w), "1");
	put_text(fix_path(f, "%s/a.b", w), "1");
	put_text(fix_path(f, "%s/a/sub-x", w), "1");
	put_text(fix_path(f, "%s/a/sub/x", w), "1");
	put_text(fix_path(f, "%s/a ", w), "1");
	put_text(fix_path(f, "%s/A", w), "1");
}
static void s_newline_in_names(struct fix *f, const char *w)
{
	append_text(fix_path(f, "%s/" NEWLINE, w), "more");
	put_text(fix_path(f, "%s/a/two\n\nlines\n", w), "x");
	put_dir(fix_path(f, "%s/\n", w), 0755);
	put_text(fix_path(f, "%s/\n/\n", w), "x");
}
static void s_bytes_in_names(struct fix *f, const char *w)
{
	remove_entry(fix_path(f, "%s/" NOT_UTF8, w));
	put_text(fix_path(f, "%s/\xff\xfe", w), "x");
	put_text(fix_path(f, "%s/\x7f\x80", w), "x");
	put_text(fix_path(f, "%s/\xc3\xa9", w), "x");
	put_text(fix_path(f, "%s/\x01", w), "x");
}
static void s_longest_names(struct fix *f, const char *w)
{
	char name[256];

	memset(name, 'n', 255);
	name[255] = '\0';
	put_text(fix_path(f, "%s/%s", w, name), "x");
	name[254] = 'm';
	put_dir(fix_path(f, "%s/%s", w, name), 0755);
	put_text(fix_path(f, "%s/%s/%s", w, name, name), "x");
}
static void s_one_bit(struct fix *f, const char *w)
{
	int fd = open(fix_path(f, "%s/bin", w), O_RDWR | O_CLOEXEC);
	char c = 0;

	expect(fd >= 0 && pread(fd, &c, 1, 65536) == 1);
	c ^= 1;
	expect(pwrite(fd, &c, 1, 65536) == 1);
	close(fd);
}
static void s_truncated_and_grown(struct fix *f, const char *w)
{
	expect(truncate(fix_path(f, "%s/bin", w), 1) == 0);
	expect(truncate(fix_path(f, "%s/empty", w), 1 << 20) == 0);
}
static void s_links_only(struct fix *f, const char *w)
{
	remove_entry(fix_path(f, "%s/link", w));
	put_link(fix_path(f, "%s/link", w), "a/nothing");
	put_link(fix_path(f, "%s/b/link", w), "../zz");
	put_link(fix_path(f, "%s/void/loop", w), "loop");
}
static void s_empty_directories(struct fix *f, const char *w)
{
	remove_entry(fix_path(f, "%s/void", w));
	put_dir(fix_path(f, "%s/void2", w), 0755);
	put_dir(fix_path(f, "%s/void2/void3", w), 0700);
}
static void s_modes_only(struct fix *f, const char *w)
{
	set_mode(fix_path(f, "%s/zz", w), 0600);
	set_mode(fix_path(f, "%s/a/sub", w), 0700);
	set_mode(w, 0711);
}
static void s_times_only(struct fix *f, const char *w)
{
	set_mtime(fix_path(f, "%s/zz", w), 1000000000, 1);
	set_mtime(fix_path(f, "%s/link", w), 1000000000, 2);
	set_mtime(fix_path(f, "%s/a/sub", w), 1000000000, 3); /* silent: no entry of it changed */
}
static void s_attributes_only(struct fix *f, const char *w)
{
	put_xattr(fix_path(f, "%s/zz", w), "user.x", "1");
	put_xattr(fix_path(f, "%s/a", w), "user.x", "1");
}
static void s_directory_renamed(struct fix *f, const char *w)
{
	expect(rename(fix_path(f, "%s/a", w), fix_path(f, "%s/renamed", w)) == 0);
}
static void s_directory_for_file(struct fix *f, const char *w)
{
	remove_entry(fix_path(f, "%s/zz", w));
	put_dir(fix_path(f, "%s/zz", w), 0755);
	put_text(fix_path(f, "%s/zz/in", w), "x");
	remove_entry(fix_path(f, "%s/a", w));
	put_text(fix_path(f, "%s/a", w), "file");
}
static void s_directory_made_anew(struct fix *f, const char *w)
{
	remove_entry(fix_path(f, "%s/a", w));
	put_dir(fix_path(f, "%s/a", w), 0755);
	put_text(fix_path(f, "%s/a/other", w), "x");
	put_text(fix_path(f, "%s/a/file", w), "a/file");
}
static void s_names_swapped(struct fix *f, const char *w)
{
	expect(rename(fix_path(f, "%s/a-b", w), fix_path(f, "%s/t", w)) == 0);
	expect(rename(fix_path(f, "%s/a.b", w), fix_path(f, "%s/a-b", w)) == 0);
	expect(rename(fix_path(f, "%s/t", w), fix_path(f, "%s/a.b", w)) == 0);
}
static void s_through_a_hard_link(struct fix *f, const char *w)
{
	append_text(fix_path(f, "%s/b/hard", w), "more");
	put_hardlink(fix_path(f, "%s/third", w), fix_path(f, "%s/b/hard", w));
}
static void s_everything_at_once(struct fix *f, const char *w)
{
	s_order_of_neighbours(f, w);
	s_newline_in_names(f, w);
	s_longest_names(f, w);
	s_links_only(f, w);
	s_modes_only(f, w);
	s_attributes_only(f, w);
	s_directory_for_file(f, w);
	s_through_a_hard_link(f, w);
}

static const struct {
	const char *name;
	void (*edit)(struct fix *f, const char *work);
} scripts[] = {
	{ "nothing", s_nothing },
	{ "made and unmade", s_made_and_unmade },
	{ "everything deleted", s_everything_deleted },
	{ "order of neighbours", s_order_of_neighbours },
	{ "newline in names", s_newline_in_names },
	{ "bytes in names", s_bytes_in_names },
	{ "longest names", s_longest_names },
	{ "one bit", s_one_bit },
	{ "truncated and grown", s_truncated_and_grown },
	{ "links only", s_links_only },
	{ "empty directories", s_empty_directories },
	{ "modes only", s_modes_only },
	{ "times only", s_times_only },
	{ "attributes only", s_attributes_only },
	{ "directory renamed", s_directory_renamed },
	{ "directory for file", s_directory_for_file },
	{ "directory made anew", s_directory_made_anew },
	{ "names swapped", s_names_swapped },
	{ "through a hard link", s_through_a_hard_link },
	{ "everything at once", s_everything_at_once },
};
_Static_assert(sizeof(scripts) / sizeof(scripts[0]) == 20, "twenty edit scripts");

static void run_script(struct fix *f, size_t i, const char *root, struct atoll_plan *p)
{
	char *before = man_take(root), *inodes = man_inodes(root), *view;
	const char *work = fix_work(f, p, NULL);
	struct listing *wanted, *got;

	scripts[i].edit(f, work);
	wanted = second_opinion(root, work);
	got = diff_take(f, p);
	expect_same_lists(got, wanted, scripts[i].name);
	view = man_take(work);
	expect_commit(f, p);
	if (wanted->n > 0)
		expect_man(root, view);
	else
		expect_inodes(root, inodes);
	expect_rollback(f, p);
	expect_man(root, before);
	diff_free(wanted);
	diff_free(got);
	free(before);
	free(inodes);
	free(view);
}

static void run_scripts(struct fix *f, const char *dir,
                        struct atoll_plan *(*make)(struct fix *, const char *))
{
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		const char *root = fix_path(f, "%s/root%zu", dir, i);
		struct atoll_plan *p;

		put_standard_tree(f, root);
		p = make(f, root);
		run_script(f, i, root, p);
		expect_stop(f, p);
		fix_forget(f, p);
		remove_entry(root);
	}
}

static void dif_06_scripts_in_the_store_s_area(void **state)
{
	struct fix *f = *state;

	run_scripts(f, f->dir, plan_over);
}

static void dif_06_scripts_in_an_area_beside(void **state)
{
	struct fix *f = *state;

	run_scripts(f, other_mount(f), plan_over);
}

static void dif_06_scripts_with_work_in_the_store(void **state)
{
	struct fix *f = *state;

	run_scripts(f, other_mount(f), plan_in_store);
}

static void dif_06_an_empty_tree(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p = plan_over(f, root);
	struct listing *l = diff_take(f, p);
	char *before = man_take(root);

	expect_eq(l->n, 0);
	diff_free(l);
	put_text(fix_path(f, "%s/first", fix_work(f, p, NULL)), "x\n");
	expect_listed(f, p, "first", ATOLL_CHANGE_ADDED, 0);
	expect_there_and_back(f, p, root, before);
	free(before);
}

/* Large random edits, judged by the second opinion. */
static void dif_06_random_trees(void **state)
{
	struct fix *f = *state;
	unsigned rounds = atest_long() ? 100 : 8;

	for (unsigned seed = 1; seed <= rounds; seed++) {
		const char *root = fix_dir(f, fix_path(f, "random%u", seed));
		struct listing *wanted, *got;
		struct atoll_plan *p;
		char *before;

		put_random_tree(root, 120, seed);
		before = man_take(root);
		p = plan_over(f, root);
		edit_random_tree(fix_work(f, p, NULL), seed + 1000);
		wanted = second_opinion(root, fix_work(f, p, NULL));
		got = diff_take(f, p);
		expect_same_lists(got, wanted, root);
		expect_there_and_back(f, p, root, before);
		diff_free(wanted);
		diff_free(got);
		free(before);
		expect_stop(f, p);
		fix_forget(f, p);
	}
}

struct meddler {
	struct fix *f;
	struct atoll_plan *p; /* NULL: it has been */
	const char *root;
};

/* At the first change that is told the second workspace, not yet looked at, gives way to another. */
static int meddle(void *user, const struct atoll_change *change)
{
	struct meddler *m = user;

	(void)change;
	if (m->p) {
		expect_eq(atoll_plan_reset(m->p, NULL), 0);
		put_text(fix_path(m->f, "%s/other", fix_work(m->f, m->p, m->root)), "2");
	}
	m->p = NULL;
	return 0;
}

static void dif_decided_about_while_looked_at(void **state)
{
	struct fix *f = *state;
	const char *one = fix_dir(f, "one"), *two = fix_dir(f, "two");
	struct atoll_plan *p = fix_plan(f, "looked");
	struct meddler m = { .f = f, .p = p, .root = two };

	fix_add(f, p, one, "copy");
	fix_add(f, p, two, "copy");
	put_text(fix_path(f, "%s/file", fix_work(f, p, one)), "1");
	put_text(fix_path(f, "%s/file", fix_work(f, p, two)), "1");
	expect_eq(atoll_plan_diff(p, meddle, &m, f->res), 2);
	expect_eq(atoll_plan_diff(p, NULL, NULL, f->res), 1);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		mtest(dif_01_link_pointed_to_an_equal_file),
		mtest(dif_02_type_is_compared_first),
		mtest(dif_03_dangling_links_do_no_harm),
		mtest(dif_04_directories_are_entries),
		mtest(dif_04_the_root_is_never_removed),
		mtest(dif_05_forged_times_hide_nothing),
		mtest(dif_05_edits_within_the_tick_of_creation),
		mtest(dif_05_no_change_is_no_change),
		mtest(dif_decided_about_while_looked_at),
		mtest(dif_06_scripts_in_the_store_s_area),
		mtest(dif_06_scripts_in_an_area_beside),
		mtest(dif_06_scripts_with_work_in_the_store),
		mtest(dif_06_an_empty_tree),
		mtest(dif_06_random_trees),
	};

	return atest_main(argc, argv, tests, children);
}

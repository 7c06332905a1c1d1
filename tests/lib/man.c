/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests of trees: every fact about every entry, as text that can be compared. */
#include "lib/atest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NAMES_MAX  65536
#define FNV_OFFSET UINT64_C(14695981039346656037)
#define FNV_PRIME  UINT64_C(1099511628211)
#define MIX_PRIME  UINT64_C(0x9e3779b97f4a7c15)

/* Two hashes of different build side by side: no test meets a collision by accident. */
struct digest {
	uint64_t a, b, size;
};

static void digest_add(struct digest *d, const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		d->a = (d->a ^ p[i]) * FNV_PRIME;
		d->b = (d->b + p[i] + 1) * MIX_PRIME;
		d->b ^= d->b >> 29;
	}
	d->size += n;
}

static void print_digest(FILE *out, int dir_fd, const char *name)
{
	struct digest d = { .a = FNV_OFFSET };
	unsigned char buffer[65536];
	int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n;

	if (fd < 0) {
		fprintf(out, " unreadable:%d", errno);
		return;
	}
	while ((n = read(fd, buffer, sizeof(buffer))) > 0)
		digest_add(&d, buffer, (size_t)n);
	(void)close(fd);
	fprintf(out, " %016llx%016llx/%llu", (unsigned long long)d.a, (unsigned long long)d.b,
	        (unsigned long long)d.size);
}

static void print_escaped(FILE *out, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c > ' ' && c < 127 && c != '\\')
			fputc(c, out);
		else
			fprintf(out, "\\%02x", c);
	}
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Through /proc, which reaches links and special files without opening them. */
static void print_xattrs(FILE *out, int dir_fd, const char *name)
{
	char path[PATH_MAX], names[NAMES_MAX], value[NAMES_MAX];
	char *sorted[1024];
	size_t n = 0;
	ssize_t len;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir_fd, name);
	len = llistxattr(path, names, sizeof(names));
	for (char *s = names; len > 0 && s < names + len && n < 1024; s += strlen(s) + 1)
		sorted[n++] = s;
	qsort(sorted, n, sizeof(sorted[0]), by_text);
	for (size_t i = 0; i < n; i++) {
		ssize_t size = lgetxattr(path, sorted[i], value, sizeof(value));

		fprintf(out, " %s=", sorted[i]);
		print_escaped(out, value, size > 0 ? (size_t)size : 0);
	}
}

static char type_letter(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return 'f';
	case S_IFDIR:
		return 'd';
	case S_IFLNK:
		return 'l';
	case S_IFIFO:
		return 'p';
	case S_IFSOCK:
		return 's';
	case S_IFCHR:
		return 'c';
	default:
		return 'b';
	}
}

static void print_link(FILE *out, int dir_fd, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dir_fd, name, target, sizeof(target));

	fputs(" -> ", out);
	print_escaped(out, target, n > 0 ? (size_t)n : 0);
}

static void print_entry(FILE *out, int dir_fd, const char *name, const char *shown, bool inodes)
{
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		fprintf(out, "%s gone\n", shown);
		return;
	}
	print_escaped(out, shown, strlen(shown));
	/* A directory's size says how its names lie on the disk, which is nobody's business. */
	fprintf(out, " %c %04o %u:%u %lld %lld.%09ld", type_letter(st.st_mode),
	        (unsigned)st.st_mode & 07777, st.st_uid, st.st_gid,
	        S_ISDIR(st.st_mode) ? 0LL : (long long)st.st_size, (long long)st.st_mtim.tv_sec,
	        st.st_mtim.tv_nsec);
	if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
		fprintf(out, " %u:%u", major(st.st_rdev), minor(st.st_rdev));
	if (inodes)
		fprintf(out, " ino %llu ctime %lld.%09ld", (unsigned long long)st.st_ino,
		        (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
	if (S_ISLNK(st.st_mode))
		print_link(out, dir_fd, name);
	print_xattrs(out, dir_fd, name);
	if (S_ISREG(st.st_mode))
		print_digest(out, dir_fd, name);
	fputc('\n', out);
}

static void print_dir(FILE *out, int dir_fd, const char *shown, bool inodes);

static void print_below(FILE *out, int dir_fd, const char *name, const char *shown, bool inodes)
{
	struct stat st;
	int fd;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
		return;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		print_escaped(out, shown, strlen(shown));
		fprintf(out, " unreadable:%d\n", errno);
		return;
	}
	print_dir(out, fd, shown, inodes);
}

/* Closes DIR_FD. */
static void print_dir(FILE *out, int dir_fd, const char *shown, bool inodes)
{
	DIR *dir = fdopendir(dir_fd);
	struct dirent *e;
	char **names = NULL;
	size_t n = 0, cap = 0;

	while (dir && (e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (n == cap) {
			cap = cap ? cap * 2 : 64;
			names = realloc(names, cap * sizeof(*names));
			if (!names)
				abort();
		}
		names[n++] = strdup(e->d_name);
	}
	if (n)
		qsort(names, n, sizeof(*names), by_text);
	for (size_t i = 0; i < n; i++) {
		char *path = NULL;

		if (asprintf(&path, "%s/%s", shown, names[i]) < 0)
			abort();
		print_entry(out, dir_fd, names[i], path, inodes);
		print_below(out, dir_fd, names[i], path, inodes);
		free(path);
		free(names[i]);
	}
	free(names);
	if (dir)
		(void)closedir(dir);
}

static char *take(const char *root, bool inodes)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	int fd = open(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (!out)
		abort();
	if (fd >= 0) {
		print_entry(out, fd, ".", ".", inodes);
		print_dir(out, fd, ".", inodes);
	} else {
		print_entry(out, AT_FDCWD, root, ".", inodes);
	}
	(void)fclose(out);
	return text;
}

char *man_take(const char *root)
{
	return take(root, false);
}

char *man_inodes(const char *root)
{
	return take(root, true);
}

/* The first line in which they differ. */
static void first_difference(const char *a, const char *b, char *out, size_t size)
{
	while (*a && *b) {
		size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");

		if (n != m || memcmp(a, b, n) != 0)
			break;
		a += n + (a[n] == '\n');
		b += m + (b[m] == '\n');
	}
	(void)snprintf(out, size, "trees differ\n  one:   %.*s\n  other: %.*s",
	               (int)strcspn(a, "\n"), *a ? a : "(end)", (int)strcspn(b, "\n"),
	               *b ? b : "(end)");
}

void man_check(const char *a, const char *b, bool equal, const char *file, int line)
{
	char text[3000] = "trees are the same";
	bool same = strcmp(a, b) == 0;

	if (!same && equal)
		first_difference(a, b, text, sizeof(text));
	atest_check(same == equal, file, line, "%s", text);
}

void man_check_now(const char *root, const char *before, bool inodes, const char *file, int line)
{
	char *now = take(root, inodes);
	char text[3000] = "";
	bool same = strcmp(before, now) == 0;

	if (!same)
		first_difference(before, now, text, sizeof(text));
	free(now); /* before a failed assertion jumps away */
	atest_check(same, file, line, "%s: %s", root, text);
}

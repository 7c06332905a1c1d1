/* SPDX-License-Identifier: Apache-2.0 */
/* Making and changing trees. */
#include "lib/atest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define YEAR_2001 INT64_C(980000000)

/* The reason is the last errno. */
static void must(bool ok, const char *what, const char *path)
{
	expect_msg(ok, "%s '%s': %s", what, path ? path : "", strerror(errno));
}

static void write_all(int fd, const char *data, size_t n, const char *path)
{
	while (n > 0) {
		ssize_t w = write(fd, data, n);

		must(w > 0, "write", path);
		if (w <= 0)
			return;
		data += w;
		n -= (size_t)w;
	}
}

static void write_file(const char *path, const char *data, size_t n, int flags)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);

	must(fd >= 0, "open", path);
	if (fd < 0)
		return;
	write_all(fd, data, n, path);
	must(close(fd) == 0, "close", path);
}

void put_text(const char *path, const char *text)
{
	write_file(path, text, strlen(text), O_TRUNC);
}

void append_text(const char *path, const char *text)
{
	write_file(path, text, strlen(text), O_APPEND);
}

void put_bytes(const char *path, size_t size, unsigned seed)
{
	uint64_t state = seed + UINT64_C(1);
	char *data = malloc(size + 1);

	must(data != NULL, "allocate for", path);
	if (!data)
		return;
	for (size_t i = 0; i < size; i++)
		data[i] = (char)atest_random(&state);
	write_file(path, data, size, O_TRUNC);
	free(data);
}

void put_dir(const char *path, mode_t mode)
{
	must(mkdir(path, 0700) == 0, "make directory", path);
	must(chmod(path, mode) == 0, "chmod", path);
}

void put_link(const char *path, const char *target)
{
	must(symlink(target, path) == 0, "make link", path);
}

void put_hardlink(const char *path, const char *existing)
{
	must(link(existing, path) == 0, "link", path);
}

void put_fifo(const char *path)
{
	must(mkfifo(path, 0644) == 0, "make FIFO", path);
}

void put_socket(const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;
	int dir_fd;

	must(fd >= 0 && slash != NULL, "make socket", path);
	if (fd < 0 || !slash)
		return;
	*slash = '\0';
	dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	/* Names of sockets are short; paths of tests are not. */
	(void)snprintf(name.sun_path, sizeof(name.sun_path), "/proc/self/fd/%d/%.60s", dir_fd,
	               slash + 1);
	must(bind(fd, (const struct sockaddr *)&name, sizeof(name)) == 0, "bind", path);
	(void)close(dir_fd);
	(void)close(fd);
	free(dir);
}

void put_device(const char *path)
{
	must(mknod(path, S_IFCHR | 0644, makedev(1, 3)) == 0, "make device", path);
}

void put_xattr(const char *path, const char *name, const char *value)
{
	must(lsetxattr(path, name, value, strlen(value), 0) == 0, "set attribute of", path);
}

/* The kernel's format: version 2, then tag, permissions, id, little-endian, in this order. */
void put_acl_user_read(const char *path, uid_t uid)
{
	struct stat st;
	unsigned char acl[4 + 5 * 8] = { 2, 0, 0, 0 };
	uint32_t rows[5][3] = { { 0x01, 6, UINT32_MAX },
		                { 0x02, 4, uid },
		                { 0x04, 4, UINT32_MAX },
		                { 0x10, 4, UINT32_MAX },
		                { 0x20, 4, UINT32_MAX } };

	must(stat(path, &st) == 0, "stat", path);
	rows[0][1] = (st.st_mode >> 6) & 7;
	rows[2][1] = (st.st_mode >> 3) & 7;
	rows[3][1] = ((st.st_mode >> 3) & 7) | 4;
	rows[4][1] = st.st_mode & 7;
	for (size_t i = 0; i < 5; i++) {
		unsigned char *p = acl + 4 + i * 8;

		p[0] = (unsigned char)rows[i][0];
		p[2] = (unsigned char)rows[i][1];
		for (unsigned b = 0; b < 4; b++)
			p[4 + b] = (unsigned char)(rows[i][2] >> (8 * b));
	}
	must(setxattr(path, "system.posix_acl_access", acl, sizeof(acl), 0) == 0, "set ACL of",
	     path);
}

void set_mode(const char *path, mode_t mode)
{
	must(chmod(path, mode) == 0, "chmod", path);
}

void set_mtime(const char *path, int64_t sec, long nsec)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
		                           { .tv_sec = sec, .tv_nsec = nsec } };

	must(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) == 0, "set times of", path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	/* What syncs a workspace in the background may have taken its file away itself. */
	return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

void remove_entry(const char *path)
{
	int r = -1;

	/* What syncs a workspace in the background may make a file in the middle of it. */
	for (int i = 0; i < 6000 && r != 0; i++) {
		if (i > 0)
			(void)usleep(10000);
		r = nftw(path, remove_one, 64, FTW_PHYS | FTW_DEPTH);
	}
	must(r == 0, "remove", path);
}

bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

char *get_text(const char *path)
{
	FILE *in = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;
	FILE *out;
	int c;

	if (!in)
		return NULL;
	out = open_memstream(&text, &size);
	while (out && (c = fgetc(in)) != EOF)
		(void)fputc(c, out);
	if (out)
		(void)fclose(out);
	(void)fclose(in);
	return text;
}

void expect_text(const char *path, const char *text)
{
	char now[512];
	char *got = get_text(path);
	bool same = got && strcmp(got, text) == 0;

	(void)snprintf(now, sizeof(now), "%s", got ? got : "(missing)");
	free(got);
	expect_msg(same, "%s holds \"%s\", expected \"%.200s\"", path, now, text);
}

/* ---- many entries ---- */

void put_files(const char *root, unsigned n, const char *text)
{
	char path[PATH_MAX], line[256];

	for (unsigned i = 0; i < n; i++) {
		(void)snprintf(path, sizeof(path), "%s/d%02u", root, i / 20);
		if (i % 20 == 0 && !exists(path))
			put_dir(path, 0755);
		(void)snprintf(path, sizeof(path), "%s/d%02u/f%03u", root, i / 20, i);
		(void)snprintf(line, sizeof(line), "%s %u\n", text, i);
		put_text(path, line);
	}
}

static void put_random_entry(const char *path, unsigned i, uint64_t *state)
{
	static const mode_t modes[] = { 0644, 0600, 0755, 0444, 0640 };

	switch (i % 8) {
	case 0:
		put_link(path, i % 16 ? "dangling/target" : "e1");
		break;
	case 1:
		put_fifo(path);
		break;
	default:
		put_bytes(path, atest_random(state) % 9000, i);
		if (i % 7 == 3)
			put_xattr(path, "user.colour", "sea green");
		set_mode(path, modes[i % 5]);
		break;
	}
}

static int old_times(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)type;
	(void)ftw;
	set_mtime(path, YEAR_2001 + (int64_t)(st->st_ino % 100000), 123456789);
	return 0;
}

void put_random_tree(const char *root, unsigned n, unsigned seed)
{
	uint64_t state = seed + UINT64_C(7);
	char dir[PATH_MAX], path[PATH_MAX + 32];

	(void)snprintf(dir, sizeof(dir), "%s", root);
	for (unsigned i = 0; i < n; i++) {
		if (i % 12 == 11) {
			(void)snprintf(dir, sizeof(dir), "%s/d%u", root, i);
			put_dir(dir, i % 24 == 11 ? 0755 : 0750);
		}
		(void)snprintf(path, sizeof(path), "%s/e%u", dir, i);
		put_random_entry(path, i + seed, &state);
	}
	(void)nftw(root, old_times, 64, FTW_PHYS | FTW_DEPTH);
}

struct edits {
	uint64_t state;
	char *paths[4096];
	size_t n;
};

static struct edits *collecting; /* nftw has no room for it */

static int collect(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	if (ftw->level > 0 && collecting->n < 4096)
		collecting->paths[collecting->n++] = strdup(path);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void edit_one(const char *path, uint32_t how)
{
	struct stat st;
	char other[PATH_MAX];

	if (lstat(path, &st) < 0) /* went with its directory */
		return;
	(void)snprintf(other, sizeof(other), "%.*s.new", PATH_MAX - 8, path);
	switch (how) {
	case 0:
		remove_entry(path);
		break;
	case 1:
		put_text(other, "a new entry\n");
		break;
	case 2:
		remove_entry(path);
		put_link(path, "elsewhere");
		break;
	case 3:
		if (!S_ISLNK(st.st_mode))
			set_mode(path, st.st_mode ^ 0004);
		break;
	default:
		if (!S_ISREG(st.st_mode))
			break;
		set_mode(path, st.st_mode | 0200); /* ordinary users need it */
		append_text(path, "edited\n");
		set_mode(path, st.st_mode);
		break;
	}
}

void edit_random_tree(const char *root, unsigned seed)
{
	struct edits *e = calloc(1, sizeof(*e));

	must(e != NULL, "allocate for", root);
	if (!e)
		return;
	e->state = seed + UINT64_C(3);
	collecting = e;
	(void)nftw(root, collect, 64, FTW_PHYS);
	collecting = NULL;
	if (e->n)
		qsort(e->paths, e->n, sizeof(e->paths[0]), by_name);
	for (size_t i = 0; i < e->n; i++) {
		uint32_t r = atest_random(&e->state);

		if (r % 3 == 0)
			edit_one(e->paths[i], (r / 3) % 7);
		free(e->paths[i]);
	}
	free(e);
}

/* ---- odds ---- */

size_t count_entries(const char *path)
{
	DIR *dir = opendir(path);
	size_t n = 0;

	if (!dir)
		return SIZE_MAX;
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n - 2;
}

size_t count_fds(void)
{
	return count_entries("/proc/self/fd") - 1; /* the one that reads */
}

int64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void sleep_ms(int ms)
{
	const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L };

	(void)nanosleep(&t, NULL);
}

/* xorshift64*, with the upper half as the answer. */
uint32_t atest_random(uint64_t *state)
{
	uint64_t x = *state ? *state : 1;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return (uint32_t)((x * UINT64_C(2685821657736338717)) >> 32);
}

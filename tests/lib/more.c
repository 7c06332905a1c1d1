/* SPDX-License-Identifier: Apache-2.0 */
/* More of what tests from outside share; see more.h. */
#include "lib/more.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS     60000
#define NFTW_FDS    16
#define OTHER_BYTES ((size_t)256 << 20)

bool am_root(void)
{
	return geteuid() == 0;
}

/* ---- another mount ---- */

static char shm_dir[64];

/* An ordinary user cannot mount; the shared memory's filesystem is nearly always another one. */
static const char *shared_memory(struct fix *f)
{
	struct stat here, there;

	if (stat(f->dir, &here) < 0 || stat("/dev/shm", &there) < 0 ||
	    here.st_dev == there.st_dev || access("/dev/shm", W_OK) < 0)
		atest_skip("no second filesystem to write to");
	(void)snprintf(shm_dir, sizeof(shm_dir), "/dev/shm/atoll-test-XXXXXX");
	expect(mkdtemp(shm_dir) != NULL);
	return shm_dir;
}

const char *other_mount(struct fix *f)
{
	return am_root() ? fix_tmpfs(f, "other", OTHER_BYTES) : shared_memory(f);
}

int more_teardown(void **state)
{
	int r;

	wait_for_helpers();
	r = atest_teardown(state);
	if (*shm_dir)
		remove_entry(shm_dir);
	*shm_dir = '\0';
	return r;
}

/* ---- plans ---- */

struct atoll_plan *plan_over(struct fix *f, const char *root)
{
	struct atoll_plan *p = fix_plan(f, NULL);

	fix_add(f, p, root, "copy");
	return p;
}

struct atoll_plan *plan_in_store(struct fix *f, const char *root)
{
	const struct atoll_resource r = { .root = root, .strategy = "copy", .work_in_store = true };
	struct atoll_plan *p = fix_plan(f, NULL);

	expect_ok(f, atoll_plan_add(p, &r, f->res));
	return p;
}

void expect_commit(struct fix *f, struct atoll_plan *p)
{
	expect_ok(f, atoll_plan_commit(p, 0, f->res));
}

void expect_rollback(struct fix *f, struct atoll_plan *p)
{
	expect_ok(f, atoll_plan_rollback(p, 0, f->res));
}

void expect_stop(struct fix *f, struct atoll_plan *p)
{
	expect_ok(f, atoll_plan_stop(p, ATOLL_FORCE, f->res));
}

bool has_note(struct fix *f, enum atoll_note_kind kind, const char *path)
{
	for (size_t i = 0; i < atoll_result_notes(f->res); i++) {
		const struct atoll_note *n = atoll_result_note(f->res, i);

		if (n->kind == kind && strcmp(n->path, path) == 0)
			return true;
	}
	return false;
}

/* ---- changes ---- */

void diff_add(struct listing *l, const char *path, enum atoll_change_kind kind, unsigned what,
              const char *text)
{
	if (l->n == l->cap) {
		l->cap = l->cap ? l->cap * 2 : 32;
		l->v = realloc(l->v, l->cap * sizeof(*l->v));
		expect(l->v != NULL);
	}
	l->v[l->n++] = (struct listed){ strdup(path), kind, what, strdup(text ? text : "") };
}

static int take_change(void *user, const struct atoll_change *c)
{
	diff_add(user, c->path, c->kind, c->what, c->text);
	return 0;
}

struct listing *diff_take(struct fix *f, struct atoll_plan *p)
{
	struct listing *l = calloc(1, sizeof(*l));
	int64_t n = atoll_plan_diff(p, take_change, l, f->res);

	expect_ok(f, n);
	expect_eq(n, l->n);
	return l;
}

const struct listed *diff_find(const struct listing *l, const char *path)
{
	for (size_t i = 0; i < l->n; i++)
		if (strcmp(l->v[i].path, path) == 0)
			return &l->v[i];
	return NULL;
}

void diff_free(struct listing *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].path);
		free(l->v[i].text);
	}
	free(l->v);
	free(l);
}

/* ---- paths ---- */

static int take_path(void *user, const char *plan, const char *path)
{
	struct paths *p = user;

	(void)plan;
	if (p->n < sizeof(p->v) / sizeof(p->v[0]))
		p->v[p->n++] = strdup(path);
	return 0;
}

void paths_done(struct paths *p)
{
	while (p->n > 0)
		free(p->v[--p->n]);
}

bool paths_have(const struct paths *p, const char *path)
{
	for (size_t i = 0; i < p->n; i++)
		if (strcmp(p->v[i], path) == 0)
			return true;
	return false;
}

void paths_of_plan(struct fix *f, struct atoll_plan *p, struct paths *ret)
{
	ret->n = 0;
	expect_ok(f, atoll_plan_paths(p, take_path, ret, f->res));
}

void paths_scanned(struct fix *f, struct paths *ret)
{
	ret->n = 0;
	expect_ok(f, atoll_scan(f->a, take_path, ret, f->res));
}

size_t scanned(struct fix *f)
{
	struct paths p = { .n = 0 };
	size_t n;

	paths_scanned(f, &p);
	n = p.n;
	paths_done(&p);
	return n;
}

/* ---- trees ---- */

char *man_without(const char *man, const char *word)
{
	char *out = calloc(1, strlen(man) + 1);
	size_t len = 0;

	expect(out != NULL);
	while (*man) {
		size_t n = strcspn(man, "\n") + 1;
		char *line;

		if (man[n - 1] == '\0')
			n--;
		line = strndup(man, n);
		if (!strstr(line, word)) {
			memcpy(out + len, line, n);
			len += n;
		}
		free(line);
		man += n;
	}
	out[len] = '\0';
	return out;
}

/* nftw() has no place for a context. */
static const char *sought;
static bool is_found;
static size_t counted;
static uint64_t bytes;

static int search(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	char *data;
	int fd;

	(void)type;
	(void)ftw;
	if (!S_ISREG(st->st_mode) || st->st_size == 0)
		return 0;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return 0; /* gone meanwhile */
	data = malloc((size_t)st->st_size);
	if (data) {
		ssize_t n = read(fd, data, (size_t)st->st_size);

		is_found |= n > 0 && memmem(data, (size_t)n, sought, strlen(sought)) != NULL;
	}
	free(data);
	close(fd);
	return is_found;
}

bool tree_holds(const char *dir, const char *text)
{
	sought = text;
	is_found = false;
	(void)nftw(dir, search, NFTW_FDS, FTW_PHYS);
	return is_found;
}

static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path;
	(void)type;
	if (ftw->level > 0)
		counted++;
	if (S_ISREG(st->st_mode))
		bytes += (uint64_t)st->st_size;
	return 0;
}

size_t tree_count(const char *dir)
{
	counted = 0;
	expect(nftw(dir, count_one, NFTW_FDS, FTW_PHYS) == 0);
	return counted;
}

uint64_t tree_bytes(const char *dir)
{
	bytes = 0;
	expect(nftw(dir, count_one, NFTW_FDS, FTW_PHYS) == 0);
	return bytes;
}

uint64_t inode_of(const char *path)
{
	struct stat st;

	expect_msg(lstat(path, &st) == 0, "lstat %s: %s", path, strerror(errno));
	return st.st_ino;
}

mode_t mode_of(const char *path)
{
	struct stat st;

	expect_msg(lstat(path, &st) == 0, "lstat %s: %s", path, strerror(errno));
	return st.st_mode & 07777;
}

/* ---- other processes ---- */

static bool is_helper(int pid)
{
	char path[64], name[32] = "";
	FILE *in;

	(void)snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	in = fopen(path, "re");
	if (!in)
		return false;
	if (!fgets(name, sizeof(name), in))
		name[0] = '\0';
	(void)fclose(in);
	return strcmp(name, "atoll-helper\n") == 0;
}

static int living_helpers(void)
{
	char path[64];
	FILE *in;
	int pid, n = 0;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	in = fopen(path, "re");
	while (in && fscanf(in, "%d", &pid) == 1)
		if (is_helper(pid) && waitpid(pid, NULL, WNOHANG) == 0)
			n++;
	if (in)
		(void)fclose(in);
	return n;
}

/* Seen several times in a row: one that is just being made has not its name yet, and one look at the list
 * of children may miss some while others come and go. */
void wait_for_helpers(void)
{
	int64_t end = now_ms() + WAIT_MS;

	for (int quiet = 0; quiet < 4 && now_ms() < end; quiet++) {
		if (quiet > 0)
			sleep_ms(2);
		if (living_helpers() > 0)
			quiet = -1;
	}
}

void wait_for_file(const char *file)
{
	int64_t end = now_ms() + WAIT_MS;

	while (!exists(file) && now_ms() < end)
		sleep_ms(2);
	expect_msg(exists(file), "'%s' did not appear", file);
}

void kill_child(pid_t pid)
{
	expect(kill(pid, SIGKILL) == 0);
	expect_eq(child_wait(pid), 128 + SIGKILL);
}

static void own(struct fix *f, const char *name, const char *root, bool work)
{
	const struct atoll_resource r = { .root = fix_path(f, "%s/%s", f->dir, root),
		                          .strategy = "copy" };
	struct atoll_plan *p = NULL;
	char *path = NULL;

	expect_ok(f, atoll_plan_start(f->a, name, ATOLL_START_OWNED, &p, f->res));
	expect_ok(f, atoll_plan_add(p, &r, f->res));
	if (work) {
		expect_ok(f, atoll_sandbox_path(p, NULL, &path, f->res));
		put_text(fix_path(f, "%s/worked", path), "uncommitted\n");
		free(path);
	}
	atoll_plan_free(p);
}

int child_owner(const char *dir, const char *arg)
{
	struct fix f = { .a = NULL };
	char *copy = strdup(arg), *save = NULL;
	const char *name = strtok_r(copy, " ", &save);
	const char *root = strtok_r(NULL, " ", &save);

	fix_attach(&f, dir);
	own(&f, name, root, strtok_r(NULL, " ", &save) != NULL);
	put_text(fix_path(&f, "%s/owns-%s", dir, name), "");
	for (;;)
		pause();
}

pid_t owner_start(struct fix *f, const char *name, const char *root, bool work)
{
	char arg[256];
	pid_t pid;

	(void)snprintf(arg, sizeof(arg), "%s %s%s", name, root, work ? " work" : "");
	pid = child_start(f, "owner", arg, NULL);
	wait_for_file(fix_path(f, "%s/owns-%s", f->dir, name));
	return pid;
}

void owner_kill(struct fix *f, pid_t pid, const char *name)
{
	kill_child(pid);
	wait_for_helpers();
	remove_entry(fix_path(f, "%s/owns-%s", f->dir, name));
}

/* ---- locks ---- */

static struct held start_holder(struct fix *f, const char *file, const char *how)
{
	const char *program = getenv("ATOLL_TEST_HOLD_LOCK");
	char *locks = fix_path(f, "%s/locks", f->home);
	int in[2], out[2];
	struct held h;
	char byte = 0;

	expect_msg(program != NULL, "ATOLL_TEST_HOLD_LOCK names no program");
	expect(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
	h.pid = fork();
	if (h.pid == 0) {
		(void)dup2(in[0], 0);
		(void)dup2(out[1], 1);
		(void)execl(program, program, locks, file, how, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	h.fd = in[1];
	expect(h.pid > 0);
	/* One byte says that it is held; none that it could not be taken. */
	if (read(out[0], &byte, 1) != 1)
		byte = 0;
	close(out[0]);
	if (byte != 'h') {
		let_go(&h);
		h.pid = -1;
	}
	return h;
}

struct held hold_lock(struct fix *f, const char *file)
{
	struct held h = start_holder(f, file, "wait");

	expect_msg(h.pid > 0, "the lock '%s' could not be taken", file);
	return h;
}

void let_go(struct held *h)
{
	int status;

	close(h->fd);
	if (h->pid > 0)
		(void)waitpid(h->pid, &status, 0);
	h->pid = -1;
}

bool lock_is_free(struct fix *f, const char *file)
{
	struct held h = start_holder(f, file, "try");

	if (h.pid < 0)
		return false;
	let_go(&h);
	return true;
}

size_t together(size_t n, int (*fn)(struct fix *f, size_t i), struct fix *f)
{
	pid_t pids[64];
	int start[2];
	size_t good = 0;
	char byte;

	expect(n <= 64 && pipe2(start, O_CLOEXEC) == 0);
	for (size_t i = 0; i < n; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			close(start[1]);
			while (read(start[0], &byte, 1) < 0 && errno == EINTR)
				;
			_exit(fn(f, i) == 0 ? 0 : 1);
		}
		expect(pids[i] > 0);
	}
	close(start[0]);
	close(start[1]); /* the end of the pipe is the signal */
	for (size_t i = 0; i < n; i++)
		good += child_wait(pids[i]) == 0;
	return good;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What the custom strategies do besides in a phase: fail, wait at a gate, call somebody. */
#include "lib/phase.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_HOOKS  256
#define MUCH       (64UL << 20)
#define SMALL_FILE 4096

struct hook {
	char root[PATH_MAX]; /* "": all */
	enum phase phase;
	phase_fn fn;
	void *user;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct hook hooks[MAX_HOOKS];
static size_t n_hooks;
static char log_path[PATH_MAX];

static const char *const phase_names[] = {
	[PHASE_CREATE] = "create",   [PHASE_PATH] = "path",
	[PHASE_DIFF] = "diff",       [PHASE_PREPARE] = "prepare",
	[PHASE_CHECK] = "check",     [PHASE_PREPARE_UNDO] = "prepare-undo",
	[PHASE_COMMIT] = "commit",   [PHASE_ABORT] = "abort",
	[PHASE_UNDO] = "undo",       [PHASE_FINISH] = "finish",
	[PHASE_RELEASE] = "release", [PHASE_RESET] = "reset",
	[PHASE_REMOVE] = "remove",
};
_Static_assert(sizeof(phase_names) / sizeof(phase_names[0]) == PHASE_END_, "a phase has no name");

/* ---- hooks ---- */

void phase_hook(const char *root, enum phase phase, phase_fn fn, void *user)
{
	struct hook *h;

	pthread_mutex_lock(&mutex);
	expect(n_hooks < MAX_HOOKS);
	h = &hooks[n_hooks++];
	*h = (struct hook){ .phase = phase, .fn = fn, .user = user };
	(void)snprintf(h->root, sizeof(h->root), "%s", root ? root : "");
	pthread_mutex_unlock(&mutex);
}

void phase_clear(void)
{
	pthread_mutex_lock(&mutex);
	n_hooks = 0;
	pthread_mutex_unlock(&mutex);
}

void effect_log(const char *path)
{
	pthread_mutex_lock(&mutex);
	(void)snprintf(log_path, sizeof(log_path), "%s", path ? path : "");
	pthread_mutex_unlock(&mutex);
}

/* One write with O_APPEND: lines of several processes do not mix. */
void phase_log(struct atoll_participant *p, enum phase phase)
{
	const char *root = atoll_participant_root(p);
	const char *slash = strrchr(root, '/');
	char line[512], path[PATH_MAX];
	int n = snprintf(line, sizeof(line), "%s %s\n", phase_names[phase],
	                 slash ? slash + 1 : root);
	int fd;

	pthread_mutex_lock(&mutex);
	(void)snprintf(path, sizeof(path), "%s", log_path);
	pthread_mutex_unlock(&mutex);
	if (!*path)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0)
		return;
	if (write(fd, line, (size_t)n) != n)
		abort();
	(void)close(fd);
}

/* Hooks run without the mutex: one may wait at a gate, or call the library. */
int phase_run(struct atoll_participant *p, enum phase phase)
{
	const char *root = atoll_participant_root(p);
	int r = 0;

	for (size_t i = 0; r == 0; i++) {
		struct hook h;
		bool end;

		pthread_mutex_lock(&mutex);
		end = i >= n_hooks;
		if (!end)
			h = hooks[i];
		pthread_mutex_unlock(&mutex);
		if (end)
			break;
		if (h.phase == phase && (!*h.root || strcmp(h.root, root) == 0))
			r = h.fn(h.user, p, phase);
	}
	return r;
}

/* ---- FAILER ---- */

struct failing {
	enum fail_how how;
	int code;
};

static struct failing failings[MAX_HOOKS];
static size_t n_failings;

/* Address space as it is, and not a page more. */
static int run_out_of_memory(void)
{
	struct rlimit old, tight;
	void *m;
	int r = 0;

	if (getrlimit(RLIMIT_AS, &old) < 0)
		return -errno;
	tight = (struct rlimit){ .rlim_cur = MUCH, .rlim_max = old.rlim_max };
	if (setrlimit(RLIMIT_AS, &tight) < 0)
		return -errno;
	m = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED)
		r = -errno;
	else
		(void)munmap(m, MUCH);
	(void)setrlimit(RLIMIT_AS, &old);
	return r;
}

static int write_too_much(const char *area)
{
	struct rlimit old, tight;
	char path[PATH_MAX];
	char *data = calloc(2, SMALL_FILE);
	int fd, r = 0;
	void (*before)(int) = signal(SIGXFSZ, SIG_IGN);

	if (!data || getrlimit(RLIMIT_FSIZE, &old) < 0)
		abort();
	tight = (struct rlimit){ .rlim_cur = SMALL_FILE, .rlim_max = old.rlim_max };
	(void)snprintf(path, sizeof(path), "%s/big", area);
	(void)setrlimit(RLIMIT_FSIZE, &tight);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, data, SMALL_FILE) < 0 || write(fd, data, SMALL_FILE) < 0)
		r = -errno;
	(void)setrlimit(RLIMIT_FSIZE, &old);
	(void)signal(SIGXFSZ, before);
	if (fd >= 0)
		(void)close(fd);
	(void)unlink(path);
	free(data);
	return r;
}

static int fail_now(void *user, struct atoll_participant *p, enum phase phase)
{
	const struct failing *f = user;
	int r = f->code;

	if (f->how == FAIL_CODE) /* without a cause, as a careless strategy would */
		return r;
	r = f->how == FAIL_NOMEM ? run_out_of_memory() : write_too_much(atoll_participant_area(p));
	return atoll_participant_fail(p, r, phase_names[phase], atoll_participant_root(p), -r);
}

void failer_set(const char *root, enum phase phase, enum fail_how how, int code)
{
	struct failing *f = &failings[n_failings++ % MAX_HOOKS];

	*f = (struct failing){ .how = how, .code = code };
	phase_hook(root, phase, fail_now, f);
}

/* ---- GATE ---- */

struct gate {
	int arrived[2]; /* a byte for whoever stands at the gate */
	int let[2];     /* a byte, or the end, lets him through */
	int used[2];    /* one byte: only the first has to wait */
};

static int stand_at(void *user, struct atoll_participant *p, enum phase phase)
{
	struct gate *g = user;
	char c;

	(void)p;
	(void)phase;
	if (read(g->used[0], &c, 1) != 1) /* somebody was here before */
		return 0;
	if (write(g->arrived[1], "x", 1) != 1)
		abort();
	while (read(g->let[0], &c, 1) < 0 && errno == EINTR)
		;
	return 0;
}

struct gate *gate_set(const char *root, enum phase phase)
{
	struct gate *g = calloc(1, sizeof(*g));

	expect(g != NULL);
	expect_eq(pipe2(g->arrived, O_CLOEXEC), 0);
	expect_eq(pipe2(g->let, O_CLOEXEC), 0);
	expect_eq(pipe2(g->used, O_CLOEXEC | O_NONBLOCK), 0);
	expect_eq(write(g->used[1], "x", 1), 1);
	phase_hook(root, phase, stand_at, g);
	return g;
}

bool gate_wait(struct gate *g, int timeout_ms)
{
	struct pollfd fd = { .fd = g->arrived[0], .events = POLLIN };
	int64_t until = now_ms() + timeout_ms;
	int r;

	do
		r = poll(&fd, 1, (int)(until - now_ms()));
	while (r < 0 && errno == EINTR);
	return r == 1;
}

void gate_open(struct gate *g)
{
	expect_eq(write(g->let[1], "x", 1), 1);
}

static int is_gate(const struct hook *h, const struct gate *g)
{
	return h->fn == stand_at && h->user == g;
}

void gate_free(struct gate *g)
{
	pthread_mutex_lock(&mutex);
	for (size_t i = 0; i < n_hooks; i++)
		if (is_gate(&hooks[i], g))
			hooks[i--] = hooks[--n_hooks];
	pthread_mutex_unlock(&mutex);
	for (size_t i = 0; i < 2; i++) {
		(void)close(g->arrived[i]);
		(void)close(g->let[i]);
		(void)close(g->used[i]);
	}
	free(g);
}

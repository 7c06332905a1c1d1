/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: one directory that knows everything. Where it is, whether it can be trusted, and
 * what an open one offers to the rest of this folder.
 */
#include "plan/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/atomic.h"
#include "fs/mount.h"
#include "fs/resolve.h"
#include "fs/stat.h"
#include "txn/txn.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/remedy.h"

#define ROOT_HOME      "/var/lib/atoll"
#define PARENT_MODE    0755
#define HOME_MODE      0700
#define FOR_OTHERS     077
#define PASSWD_BUF_LEN 4096

static const char *env(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

char *store_user_dir(void)
{
	const char *home = env("HOME");
	struct passwd pw, *found = NULL;
	char buf[PASSWD_BUF_LEN];

	if (home)
		return xstrdup(home);
	if (getpwuid_r(geteuid(), &pw, buf, sizeof(buf), &found) != 0 || !found)
		return NULL;
	return xstrdup(found->pw_dir);
}

static int default_home(char **ret, struct error *err)
{
	cleanup_free char *dir = NULL;

	if (env("ATOLL_HOME") && env("ATOLL_HOME")[0] != '/') {
		(void)error_set(err, -ATOLL_E_INVALID, "ATOLL_HOME is '%s', no absolute path",
		                env("ATOLL_HOME"));
		error_hint(err, "a store that moves with the working directory would lose its "
		                "plans: give the path from / on");
		return -ATOLL_E_INVALID;
	}
	if (env("ATOLL_HOME")) {
		*ret = xstrdup(env("ATOLL_HOME"));
		return 0;
	}
	if (geteuid() == 0) {
		*ret = xstrdup(ROOT_HOME);
		return 0;
	}
	if (env("XDG_STATE_HOME") && env("XDG_STATE_HOME")[0] == '/') {
		*ret = xasprintf("%s/atoll", env("XDG_STATE_HOME"));
		return 0;
	}
	dir = store_user_dir();
	if (!dir || dir[0] != '/') {
		(void)error_set(err, -ATOLL_E_NOT_FOUND,
		                "cannot tell where the store is: there is no home directory");
		error_hint(err, "set ATOLL_HOME to a directory of yours");
		return -ATOLL_E_NOT_FOUND;
	}
	*ret = xasprintf("%s/.local/state/atoll", dir);
	return 0;
}

/* One component of the way to the store: entered, made when missing. */
static int step_into(int *fd, const char *name, mode_t mode)
{
	int next, r;

	next = openat(*fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (next < 0 && errno == ENOENT) {
		r = fs_mkdir_at(*fd, name, mode);
		if (r < 0 && r != -EEXIST) /* another process may make it at the same time */
			return r;
		next = openat(*fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	if (next < 0)
		return -errno;
	close_fd(fd);
	*fd = next;
	return 0;
}

static int make_dirs(const char *path, mode_t last_mode)
{
	cleanup_close int fd = open(path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_free char *copy = xstrdup(path);
	char *save = NULL;

	if (fd < 0)
		return -errno;
	for (char *name = strtok_r(copy, "/", &save); name;) {
		char *following = strtok_r(NULL, "/", &save);
		int r = step_into(&fd, name, following ? PARENT_MODE : last_mode);

		if (r < 0)
			return r;
		name = following;
	}
	return 0;
}

int store_make_dirs(const char *path)
{
	return make_dirs(path, PARENT_MODE);
}

static int no_store(int r, const char *op, const char *home, struct error *err)
{
	(void)error_sys(err, r, op, home);
	error_hint(err, "%s, or set ATOLL_HOME to a directory of yours", remedy_for(-r));
	return r;
}

static int open_home(const char *home, int *ret_fd, struct error *err)
{
	int fd = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT) {
		int r = make_dirs(home, HOME_MODE);

		if (r < 0)
			return no_store(r, "make the store", home, err);
		fd = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (fd < 0)
		return no_store(-errno, "open the store", home, err);
	*ret_fd = fd;
	return 0;
}

static int check_home(const char *home, int fd, struct error *err)
{
	struct fs_stat st;
	struct mount_info mi;
	int r = fs_stat_at(fd, "", 0, &st);

	if (r == 0)
		r = mount_info(fd, &mi);
	if (r < 0)
		return error_sys(err, r, "look at the store", home);
	if (st.uid != geteuid()) {
		(void)error_set(err, -ATOLL_E_DENIED,
		                "the store '%s' belongs to user %u, not to you", home, st.uid);
		error_hint(err, "set ATOLL_HOME to a directory of yours");
		return -ATOLL_E_DENIED;
	}
	if (st.mode & FOR_OTHERS) {
		(void)error_set(err, -ATOLL_E_DENIED,
		                "the store '%s' is open to others (mode %04o)", home,
		                st.mode & 07777);
		error_hint(err, "chmod 700 %s", home);
		return -ATOLL_E_DENIED;
	}
	if (mi.network) {
		(void)error_set(err, -ATOLL_E_LOCK_UNSUPPORTED,
		                "the store '%s' lies on a network filesystem (%s), where locks do "
		                "not work",
		                home, mi.name);
		error_hint(err, "set ATOLL_HOME to a directory on a local disk");
		return -ATOLL_E_LOCK_UNSUPPORTED;
	}
	return 0;
}

static struct atoll *handle_new(void)
{
	struct atoll *a = xcalloc(1, sizeof(*a));

	a->home_fd = FD_NONE;
	a->plans_fd = FD_NONE;
	a->news_fd = FD_NONE;
	a->pid = getpid();
	a->wait_ms = -1;
	a->min_free = -1;
	a->retain_ms = TXN_RETAIN_MS;
	if (pthread_mutex_init(&a->mutex, NULL) != 0)
		BUG("no mutex");
	return a;
}

static void handle_free(struct atoll *a)
{
	if (a->pid == getpid()) /* a database connection must not be closed by a forked child */
		registry_close(a->reg);
	close_fd(&a->plans_fd);
	close_fd(&a->news_fd);
	close_fd(&a->home_fd);
	free(a->home);
	(void)pthread_mutex_destroy(&a->mutex);
	free(a);
}

static int handle_open(struct atoll *a, const char *home, struct error *err)
{
	int r = open_home(home, &a->home_fd, err);

	if (r < 0)
		return r;
	r = check_home(home, a->home_fd, err);
	if (r < 0)
		return r;
	r = resolve_canonical(home, &a->home);
	if (r < 0)
		return error_sys(err, r, "resolve", home);
	r = fs_private_dir_at(a->home_fd, "plans", &a->plans_fd);
	if (r < 0)
		return error_sys(err, r, "open the store's directory", "plans");
	return registry_open(a->home_fd, a->home, &a->reg, err);
}

void store_program(bool reads)
{
	registry_program(reads);
}

void store_program_ends(void)
{
	registry_program_ends();
}

bool store_is_made(void)
{
	cleanup_free char *home = NULL, *registry = NULL;

	if (default_home(&home, NULL) < 0)
		return false;
	registry = xasprintf("%s/atoll.db", home);
	return access(registry, R_OK) == 0;
}

/* Work of a boot that has no name would be taken for that of another, which may not be on disk. */
static int check_boot(struct error *err)
{
	if (*clock_boot_id())
		return 0;
	(void)error_set(err, -ATOLL_E_UNSUPPORTED,
	                "'/proc/sys/kernel/random/boot_id' cannot be read; nothing was done");
	error_hint(err, "mount the whole of /proc (in a unit of systemd: ProcSubset=all)");
	return -ATOLL_E_UNSUPPORTED;
}

int store_open(const char *home, struct atoll **ret, struct error *err)
{
	cleanup_free char *chosen = NULL;
	struct atoll *a;
	int r;

	r = check_boot(err);
	if (r < 0)
		return r;
	if (home)
		chosen = xstrdup(home);
	else if ((r = default_home(&chosen, err)) < 0)
		return r;
	a = handle_new();
	r = handle_open(a, chosen, err);
	if (r < 0) {
		handle_free(a);
		return r;
	}
	owner_handle_opened(a);
	*ret = a;
	return 0;
}

void store_close(struct atoll *a)
{
	if (!a)
		return;
	owner_handle_closed(a);
	handle_free(a);
}

bool store_overlaps(const struct atoll *a, const char *path)
{
	return strcmp(path, "/") == 0 || path_below(path, a->home) || path_below(a->home, path);
}

int64_t store_deadline(struct atoll *a)
{
	int64_t wait_ms;

	pthread_mutex_lock(&a->mutex);
	wait_ms = a->wait_ms;
	pthread_mutex_unlock(&a->mutex);
	return wait_ms == 0 ? 0 : clock_deadline(wait_ms);
}

static const enum atoll_phase phases[] = {
	[PROGRESS_BEGUN] = ATOLL_PHASE_BEGUN,
	[PROGRESS_PREPARING] = ATOLL_PHASE_PREPARING,
	[PROGRESS_DECIDED] = ATOLL_PHASE_DECIDED,
};

/* The two differ in name only: util/ does not know the public header's. */
static int tell_progress(void *user, const struct progress_state *s)
{
	struct atoll *a = user;
	const struct atoll_progress p = { .what = s->what,
		                          .files = s->files,
		                          .bytes = s->bytes,
		                          .total = s->total,
		                          .done = s->done,
		                          .phase = phases[s->stage] };
	atoll_interrupt_fn interrupt;
	atoll_progress_fn fn;
	void *fn_user, *interrupt_user;

	pthread_mutex_lock(&a->mutex);
	fn = a->progress_fn;
	fn_user = a->progress_user;
	interrupt = a->interrupt_fn;
	interrupt_user = a->interrupt_user;
	pthread_mutex_unlock(&a->mutex);
	if (fn && !s->asked)
		fn(fn_user, &p);
	return interrupt ? interrupt(interrupt_user, &p) : 0;
}

void store_progress_begin(struct atoll *a, struct progress *p)
{
	bool watched;

	pthread_mutex_lock(&a->mutex);
	watched = a->progress_fn || a->interrupt_fn;
	pthread_mutex_unlock(&a->mutex);
	progress_begin(p, watched ? tell_progress : NULL, a);
}

void store_set_decision(struct atoll *a, decision_fn fn, void *ctx)
{
	pthread_mutex_lock(&a->mutex);
	a->decision_fn = fn;
	a->decision_ctx = ctx;
	pthread_mutex_unlock(&a->mutex);
}

/* The caller's function runs without our mutex: it may use the handle. */
int store_decision(struct atoll *a, const struct plan_decision *d, struct error *err)
{
	decision_fn fn;
	void *ctx;

	pthread_mutex_lock(&a->mutex);
	fn = a->decision_fn;
	ctx = a->decision_ctx;
	pthread_mutex_unlock(&a->mutex);
	return fn ? fn(ctx, d, err) : 0;
}

void store_set_resource(struct atoll *a, resource_fn fn, void *ctx)
{
	pthread_mutex_lock(&a->mutex);
	a->resource_fn = fn;
	a->resource_ctx = ctx;
	pthread_mutex_unlock(&a->mutex);
}

bool store_checks_resources(struct atoll *a)
{
	bool checks;

	pthread_mutex_lock(&a->mutex);
	checks = a->resource_fn != NULL;
	pthread_mutex_unlock(&a->mutex);
	return checks;
}

int store_check_resource(struct atoll *a, const struct atoll_resource *given, const char *path,
                         struct error *err)
{
	resource_fn fn;
	void *ctx;

	pthread_mutex_lock(&a->mutex);
	fn = a->resource_fn;
	ctx = a->resource_ctx;
	pthread_mutex_unlock(&a->mutex);
	return fn ? fn(ctx, given, path, err) : 0;
}

int store_has_session(const struct atoll *a, const char *plan_id)
{
	char path[sizeof(STORE_SESSIONS) + 1 + PLAN_ID_LEN];
	struct fs_stat st;
	int r;

	(void)snprintf(path, sizeof(path), STORE_SESSIONS "/%s", plan_id);
	r = fs_stat_at(a->home_fd, path, 0, &st);
	return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

bool store_tells_waiting(struct atoll *a)
{
	bool tells;

	pthread_mutex_lock(&a->mutex);
	tells = a->wait_fn != NULL;
	pthread_mutex_unlock(&a->mutex);
	return tells;
}

/* The caller's function runs without our mutex: it may use the handle. */
void store_tell_waiting(struct atoll *a, const char *message)
{
	atoll_wait_fn fn;
	void *user;

	pthread_mutex_lock(&a->mutex);
	fn = a->wait_fn;
	user = a->wait_user;
	pthread_mutex_unlock(&a->mutex);
	if (fn)
		fn(user, message);
}

int store_write(struct atoll *a, enum registry_durability d, store_write_fn body, void *ctx,
                struct error *err)
{
	int r = registry_begin(a->reg, d, err);

	if (r < 0)
		return r;
	r = body(a->reg, ctx, err);
	if (r < 0) {
		registry_rollback(a->reg);
		return r;
	}
	return registry_commit(a->reg, err);
}

struct event_args {
	const char *plan_id, *what, *message;
	int code;
};

static int write_event(struct registry *reg, void *ctx, struct error *err)
{
	const struct event_args *e = ctx;

	return registry_event_add(reg, e->plan_id, e->what, e->code, e->message, err);
}

void store_event(struct atoll *a, const char *plan_id, const char *what, int code,
                 const char *message)
{
	struct event_args e = { .plan_id = plan_id,
		                .what = what,
		                .code = code,
		                .message = message ? message : "" };

	(void)store_write(a, REGISTRY_NORMAL, write_event, &e, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Of what is not given to a command, or not as it is: the names, and where each ends up. */
#include "plan/fence.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "exec/jobserver.h"
#include "fs/atomic.h"
#include "fs/resolve.h"
#include "fs/stat.h"
#include "plan/home.h"
#include "plan/profile.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

/* What they lead to is out of sight anyway: a program that still has the name would wait for it, or
 * complain. */
static const char *const variables[] = {
	"ATOLL_HOME",
	"ATOLL_HELPER",
	"ATOLL_POSTGRES",
	"ATOLL_SYNC",
	"DBUS_SESSION_BUS_ADDRESS",
	"DBUS_SYSTEM_BUS_ADDRESS",
	"GNOME_KEYRING_CONTROL",
	"GPG_AGENT_INFO",
	"SSH_AGENT_PID",
	"SSH_AUTH_SOCK",
	"XDG_RUNTIME_DIR",
};

/* Keys, passwords and tokens, and what a browser remembers. */
static const char *const secrets[] = {
	".aws",
	".azure",
	".cargo/credentials",
	".cargo/credentials.toml",
	".config/atoll/tokens",
	".config/chromium",
	".config/gcloud",
	".config/gh/hosts.yml",
	".config/git/credentials",
	".config/google-chrome",
	".config/hub",
	".config/rclone",
	".docker/config.json",
	".git-credentials",
	".gnupg",
	".kube",
	".local/share/keyrings",
	".local/state/atoll",
	".mozilla",
	".my.cnf",
	".netrc",
	".npmrc",
	".password-store",
	".pgpass",
	".pypirc",
	".ssh",
	".terraform.d/credentials.tfrc.json",
	".vault-token",
};

struct fencing {
	const struct plan_op *op;
	const struct atoll_fence *fence;
	const struct exec_wishes *wishes;
	struct views *views;
	size_t resources; /* the first of the views: theirs */
	char *home;       /* canonical, or NULL */
	struct error *err;
};

void fence_env(struct strlist *ret)
{
	for (size_t i = 0; !sabotage("env") && i < sizeof(variables) / sizeof(variables[0]); i++)
		strlist_add(ret, variables[i]);
}

bool fence_is_strict(const struct atoll_fence *fence)
{
	return fence && fence->strict;
}

/* ---- what is where ---- */

static const struct exec_view *view_at(const struct fencing *f, const char *path)
{
	for (size_t i = 0; i < f->views->n; i++)
		if (strcmp(f->views->v[i].target, path) == 0)
			return &f->views->v[i];
	return NULL;
}

static bool in_resource(const struct fencing *f, const char *path)
{
	cleanup_free char *seen = views_seen(f->views, path);

	for (size_t i = 0; i < f->resources; i++)
		if (path_below(seen, f->views->v[i].target))
			return true;
	return false;
}

/* Something that is to be seen lies in there. */
static bool holds_view(const struct fencing *f, const char *path)
{
	for (size_t i = 0; i < f->views->n; i++)
		if (path_below(f->views->v[i].target, path))
			return true;
	return false;
}

/* A path that is there has one view: what was said first counts. */
static int add(const struct fencing *f, enum exec_view_kind kind, const char *path)
{
	cleanup_free char *seen = views_seen(f->views, path);

	if (view_at(f, seen))
		return 0;
	return views_add(f->views,
	                 &(struct exec_view){ .kind = kind, .target = seen, .source = path });
}

/* An empty file in a resource could be taken for what it holds, and be committed by git: there it
 * cannot be read at all. */
static int hide(const struct fencing *f, const char *path)
{
	cleanup_free char *seen = views_seen(f->views, path);
	enum exec_view_kind kind = holds_view(f, seen)    ? EXEC_VIEW_EMPTY
	                           : in_resource(f, path) ? EXEC_VIEW_CLOSED
	                                                  : EXEC_VIEW_HIDDEN;

	return add(f, kind, path);
}

/* ---- what the caller says ---- */

static int refuse(const struct fencing *f, const char *path, const char *why)
{
	(void)error_set(f->err, -ATOLL_E_INVALID, "'%s' %s; nothing was run", path, why);
	return -ATOLL_E_INVALID;
}

static int give(const struct fencing *f, enum exec_view_kind kind, const char *given)
{
	cleanup_free char *meant = views_meant(f->views, given);
	cleanup_free char *path = NULL;
	int r = resolve_canonical(meant, &path);

	if (r < 0 && kind == EXEC_VIEW_HIDDEN && (r == -ENOENT || r == -EACCES))
		return 0;
	if (r < 0) {
		(void)error_sys(f->err, r, "find", given);
		error_hint(f->err, "give a path that is there");
		return error_prefix(f->err, r, "nothing was run");
	}
	if (strcmp(path, "/") == 0)
		return refuse(f, path, "is everything, and cannot be given as one");
	if (path_below(path, f->op->a->home))
		return refuse(f, path, "is in the store, which no command sees");
	if (kind == EXEC_VIEW_BIND && in_resource(f, path))
		return refuse(f, path, "is in a resource, where what is written is kept private");
	if (kind == EXEC_VIEW_HIDDEN)
		return hide(f, path);
	return add(f, kind, path);
}

/* A tool's own list gives way to a resource: what is in one is private already. */
static int give_profile(const struct fencing *f, const char *name)
{
	cleanup_profile struct profile p = PROFILE_INIT;
	int r = profile_read(name, f->home, &p, f->err);

	for (size_t i = 0; r == 0 && i < p.rw.n; i++)
		r = in_resource(f, p.rw.v[i]) ? 0 : give(f, EXEC_VIEW_BIND, p.rw.v[i]);
	for (size_t i = 0; r == 0 && i < p.ro.n; i++)
		r = give(f, EXEC_VIEW_SHOW, p.ro.v[i]);
	for (size_t i = 0; r == 0 && i < p.hide.n; i++)
		r = give(f, EXEC_VIEW_HIDDEN, p.hide.v[i]);
	return r;
}

static int give_all(const struct fencing *f)
{
	const struct {
		enum exec_view_kind kind;
		const char *const *paths;
	} lists[] = {
		{ EXEC_VIEW_BIND, f->fence->rw },
		{ EXEC_VIEW_SHOW, f->fence->ro },
		{ EXEC_VIEW_HIDDEN, f->fence->hide },
	};
	const char *const *profiles = f->fence->profiles;
	int r = 0;

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		for (size_t k = 0; r == 0 && lists[i].paths && lists[i].paths[k]; k++)
			r = give(f, lists[i].kind, lists[i].paths[k]);
	for (size_t i = 0; r == 0 && profiles && profiles[i]; i++)
		r = give_profile(f, profiles[i]);
	return r;
}

/* ---- a private layer over the home ---- */

/* The upper's own mode is the one that is seen. */
static int make_layer(const struct fencing *f, const char *area)
{
	static const char *const dirs[] = { "home", "home/work", "home/upper" };
	cleanup_close int fd = open(area, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct fs_stat st = { .mode = 0 };
	int r = fd < 0 ? -errno : fs_stat_at(AT_FDCWD, f->home, 0, &st);

	for (size_t i = 0; r == 0 && i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		r = fs_mkdir_at(fd, dirs[i], i == 2 ? st.mode & 01777 : 0700);
		if (r == -EEXIST)
			r = 0;
	}
	return r < 0 ? error_sys(f->err, r, "make a private layer in", area) : 0;
}

/* Kept with the plan's first resource. */
static int add_scratch(const struct fencing *f)
{
	const char *area = f->op->boxes.v[0].area;
	cleanup_free char *upper = xasprintf("%s/home/upper", area);
	cleanup_free char *work = xasprintf("%s/home/work", area);
	int r = make_layer(f, area);

	if (r < 0)
		return r;
	return views_add(f->views, &(struct exec_view){ .kind = EXEC_VIEW_SCRATCH,
	                                                .target = f->home,
	                                                .source = f->home,
	                                                .upper = upper,
	                                                .work = work });
}

static int add_home(const struct fencing *f)
{
	int r;

	if (!f->home || in_resource(f, f->home) || view_at(f, f->home))
		return 0;
	switch (f->fence->home) {
	case ATOLL_HOME_SCRATCH:
		r = home_views(f->views, f->home, f->wishes, f->err);
		return r < 0 ? r : add_scratch(f);
	case ATOLL_HOME_REAL:
		return add(f, EXEC_VIEW_BIND, f->home);
	case ATOLL_HOME_NONE:
		return add(f, EXEC_VIEW_EMPTY, f->home);
	case ATOLL_HOME_END_:
		break;
	}
	return error_set(f->err, -ATOLL_E_INVALID, "there is no such kind of home");
}

/* Few of them are there. A link is followed: what it leads to is the secret. */
static int hide_secrets(const struct fencing *f)
{
	cleanup_close int fd = f->home && f->fence->home != ATOLL_HOME_NONE
	                               ? open(f->home, O_PATH | O_DIRECTORY | O_CLOEXEC)
	                               : FD_NONE;
	int r = 0;

	for (size_t i = 0; fd >= 0 && r == 0 && i < sizeof(secrets) / sizeof(secrets[0]); i++) {
		cleanup_free char *path = NULL;
		cleanup_free char *canonical = NULL;

		if (faccessat(fd, secrets[i], F_OK, 0) < 0)
			continue;
		path = xasprintf("%s/%s", f->home, secrets[i]);
		if (resolve_canonical(path, &canonical) == 0 && strcmp(canonical, f->home) != 0)
			r = hide(f, canonical);
	}
	return r;
}

bool fence_is_secret(const char *path)
{
	cleanup_free char *home = fence_home();
	bool is = false;

	for (size_t i = 0; home && !is && i < sizeof(secrets) / sizeof(secrets[0]); i++) {
		cleanup_free char *secret = xasprintf("%s/%s", home, secrets[i]);
		cleanup_free char *canonical = NULL;

		is = path_below(path, secret) ||
		     (resolve_canonical(secret, &canonical) == 0 && path_below(path, canonical));
	}
	return is;
}

/* ---- ours ---- */

static int hide_ours(const struct fencing *f)
{
	int r = hide(f, f->op->a->home);

	for (size_t i = 0; r == 0 && i < f->op->boxes.n; i++) {
		const char *area = f->op->boxes.v[i].area;
		cleanup_free char *dir = xstrdup(area);
		char *slash = strrchr(dir, '/');

		/* ".atoll-0/1234": all of ours on that mount. */
		if (!slash || slash == dir || path_below(area, f->op->a->home))
			continue;
		*slash = '\0';
		if (strncmp(strrchr(dir, '/') + 1, STRATEGY_AREA_PREFIX,
		            strlen(STRATEGY_AREA_PREFIX)) == 0)
			r = hide(f, dir);
	}
	return r;
}

char *fence_home(void)
{
	cleanup_free char *given = store_user_dir();
	char *home = NULL;

	if (!given || resolve_canonical(given, &home) < 0)
		return NULL;
	if (strcmp(home, "/") == 0) {
		free(home);
		return NULL;
	}
	return home;
}

/* That of the make which runs this, as it is: tokens are taken from it and given back. What is in a resource
 * is a copy, and no way to that make. */
static int give_jobserver(const struct fencing *f)
{
	bool ours = !f->wishes->job && f->wishes->control == FD_NONE;
	cleanup_free char *fifo = ours ? jobserver_fifo(getenv("MAKEFLAGS")) : NULL;
	cleanup_free char *path = NULL;

	if (!fifo || resolve_canonical(fifo, &path) < 0 || in_resource(f, path))
		return 0;
	return add(f, EXEC_VIEW_BIND, path);
}

int fence_views(const struct plan_op *op, const struct atoll_fence *fence,
                const struct exec_wishes *wishes, struct views *views, struct error *err)
{
	static const struct atoll_fence as_usual = { 0 };
	struct fencing f = { .op = op,
		             .fence = fence ? fence : &as_usual,
		             .wishes = wishes,
		             .views = views,
		             .resources = views->n,
		             .home = fence_home(),
		             .err = err };
	int r = give_all(&f);

	if (r == 0)
		r = give_jobserver(&f);
	if (r == 0)
		r = hide_secrets(&f);
	if (r == 0)
		r = hide_ours(&f);
	/* Last, so that it does not count as something to be seen in what is hidden. */
	if (r == 0)
		r = add_home(&f);
	free(f.home);
	return r;
}

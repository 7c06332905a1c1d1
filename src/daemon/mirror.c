/* SPDX-License-Identifier: Apache-2.0 */
/* Records of mirrors, and the directories they name. */
#include "daemon/mirror.h"

#include "fs/atomic.h"
#include "fs/remove.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/json-read.h"
#include "util/json.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define RECORD_MAX (64u << 10)

void mirror_done(struct mirror *m)
{
	free(m->root);
	free(m->label);
	free(m->request);
	*m = MIRROR_INIT;
}

int mirrors_place(const char *given, char **ret, struct error *err)
{
	const char *data = getenv("XDG_DATA_HOME");
	cleanup_free char *dir = store_user_dir();

	if (given && *given == '/')
		*ret = xstrdup(given);
	else if (given)
		return error_set(err, -ATOLL_E_INVALID, "--mirrors: '%s' is no absolute path",
		                 given);
	else if (data && *data == '/')
		*ret = xasprintf("%s/atoll/mirrors", data);
	else if (dir && *dir == '/')
		*ret = xasprintf("%s/.local/share/atoll/mirrors", dir);
	else
		*ret = NULL;
	return 0;
}

/* ---- records ---- */

static int open_records(struct atoll *a, int *ret_fd, struct error *err)
{
	int r = fs_private_dir_at(a->home_fd, STORE_SESSIONS, ret_fd);

	return r < 0 ? error_sys(err, r, "open the store's directory", STORE_SESSIONS) : 0;
}

static int take_text(const char *value, size_t len, char **ret)
{
	char *text = xcalloc(1, len + 1);

	if (json_decode_string(value, len, text, len + 1) < 0) {
		free(text);
		return -EBADMSG;
	}
	free(*ret);
	*ret = text;
	return 0;
}

static int take_number(const char *value, size_t len, uint64_t *ret)
{
	int64_t n = 0;

	if (json_decode_int(value, len, &n) < 0 || n < 0)
		return -EBADMSG;
	*ret = (uint64_t)n;
	return 0;
}

/* What a later version adds is left out. */
static int take_member(void *user, const char *key, const char *value, size_t len)
{
	struct mirror *m = user;

	if (strcmp(key, "mirror") == 0)
		return take_text(value, len, &m->root);
	if (strcmp(key, "label") == 0)
		return take_text(value, len, &m->label);
	if (strcmp(key, "request") == 0)
		return take_text(value, len, &m->request);
	if (strcmp(key, "filled") == 0)
		return json_decode_bool(value, len, &m->filled);
	if (strcmp(key, "run") == 0)
		return take_number(value, len, &m->run);
	if (strcmp(key, "ran_at") == 0)
		return take_number(value, len, &m->ran_at);
	return 0;
}

static int read_record(int dir_fd, const char *plan, struct mirror *ret)
{
	cleanup_close int fd = openat(dir_fd, plan, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_free char *text = NULL;
	struct mirror m = MIRROR_INIT;
	size_t len = 0;
	int r = fd < 0 ? -errno : fs_read_all(fd, RECORD_MAX, &text, &len);

	if (r == 0)
		r = json_members(text, len, take_member, &m);
	if (r == 0 && (!m.root || *m.root != '/' || !m.label))
		r = -EBADMSG;
	if (r < 0) {
		mirror_done(&m);
		return r;
	}
	(void)snprintf(m.plan, sizeof(m.plan), "%s", plan);
	*ret = m;
	return 0;
}

int mirror_load(struct atoll *a, const char *plan, struct mirror *ret, struct error *err)
{
	cleanup_close int dir_fd = FD_NONE;
	int r = open_records(a, &dir_fd, err);

	if (r < 0)
		return r;
	r = read_record(dir_fd, plan, ret);
	if (r == -ENOENT) {
		(void)error_set(err, -ATOLL_E_NOT_FOUND, "plan '%s' is no session of a client",
		                plan);
		error_hint(err, "POST /v1/sessions makes one");
		return -ATOLL_E_NOT_FOUND;
	}
	if (r == -EBADMSG)
		return error_set(err, -ATOLL_E_DAMAGED, "the record of session '%s' is damaged",
		                 plan);
	return r < 0 ? error_sys(err, r, "read the record of session", plan) : 0;
}

static int write_record(int dir_fd, const struct mirror *m)
{
	cleanup_free char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	struct json j;

	if (!f)
		return -ENOMEM;
	json_init(&j, f);
	json_open_object(&j, NULL);
	json_string(&j, "mirror", m->root);
	json_string(&j, "label", m->label);
	if (m->request && *m->request)
		json_string(&j, "request", m->request);
	json_bool(&j, "filled", m->filled);
	json_uint(&j, "run", m->run);
	json_uint(&j, "ran_at", m->ran_at);
	json_close(&j);
	json_end(&j);
	if (fclose(f) != 0)
		return -ENOMEM;
	return fs_replace_file(dir_fd, m->plan, text, len, 0600);
}

int mirror_save(struct atoll *a, const struct mirror *m, struct error *err)
{
	cleanup_close int dir_fd = FD_NONE;
	int r = open_records(a, &dir_fd, err);

	if (r < 0)
		return r;
	r = write_record(dir_fd, m);
	return r < 0 ? error_sys(err, r, "write the record of session", m->plan) : 0;
}

int mirror_generation(struct atoll *a, const struct mirror *m, uint64_t *ret, struct error *err)
{
	uint32_t last = 0;
	int r = registry_batch_last(a->reg, m->plan, BATCH_COMMITTED, &last, err);

	if (r == 0)
		*ret = m->filled ? UINT64_C(1) + last : 0;
	return r;
}

/* ---- making ---- */

/* The last directory of PLACE is ours alone; those on the way to it are as they are. */
static int open_place(const char *place, int *ret_fd, struct error *err)
{
	cleanup_free char *above = xstrdup(place);
	cleanup_close int fd = FD_NONE;
	char *name = strrchr(above, '/');
	int r;

	*name++ = '\0';
	r = store_make_dirs(*above ? above : "/");
	if (r == 0) {
		fd = open(*above ? above : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		r = fd < 0 ? -errno : fs_private_dir_at(fd, name, ret_fd);
	}
	if (r == 0)
		return 0;
	(void)error_sys(err, r, "use the directory for mirrors", place);
	if (r == -EPERM)
		error_hint(err, "it is to be yours, with mode 0700; or give another to --mirrors");
	return r;
}

static int make_dir(const struct mirror *m, const char *place, struct error *err)
{
	cleanup_close int fd = FD_NONE;
	int r = open_place(place, &fd, err);

	if (r < 0)
		return r;
	r = fs_mkdir_at(fd, m->plan, 0755);
	if (r == -EEXIST)
		return 0; /* by an earlier try of the same request */
	if (r == 0)
		r = fs_sync_dir(fd);
	return r < 0 ? error_sys(err, r, "make the mirror", m->root) : 0;
}

int mirror_make(struct atoll *a, const char *place, const struct mirror *wish, struct mirror *ret,
                int *ret_fd, struct error *err)
{
	cleanup_mirror struct mirror m = MIRROR_INIT;
	cleanup_close int dir_fd = FD_NONE;
	int r = open_records(a, &dir_fd, err);

	if (r < 0)
		return r;
	if (flock(dir_fd, LOCK_SH) < 0)
		return error_sys(err, -errno, "lock the store's directory", STORE_SESSIONS);
	(void)snprintf(m.plan, sizeof(m.plan), "%s", wish->plan);
	m.root = xasprintf("%s/%s", place, m.plan);
	m.label = xstrdup(wish->label);
	m.request = xstrdup(wish->request);
	r = write_record(dir_fd, &m);
	if (r < 0)
		return error_sys(err, r, "write the record of session", m.plan);
	r = make_dir(&m, place, err);
	if (r < 0) {
		(void)fs_unlink_at(dir_fd, m.plan);
		return r;
	}
	*ret = m;
	m = MIRROR_INIT;
	*ret_fd = take_fd(&dir_fd);
	return 0;
}

/* ---- removing ---- */

/* The record names it; that it is called by the plan's id is one thing more to be sure of. */
static int remove_one(int dir_fd, const struct mirror *m, struct error *err)
{
	const char *name = strrchr(m->root, '/');
	int r = name && strcmp(name + 1, m->plan) == 0 ? remove_tree(m->root) : -EBADMSG;

	if (r < 0)
		return error_sys(err, r, "remove the mirror", m->root);
	r = fs_unlink_at(dir_fd, m->plan);
	return r < 0 && r != -ENOENT ? error_sys(err, r, "remove the record of session", m->plan)
	                             : 0;
}

int mirror_remove(struct atoll *a, const char *plan, struct error *err)
{
	cleanup_mirror struct mirror m = MIRROR_INIT;
	cleanup_close int dir_fd = FD_NONE;
	int r = open_records(a, &dir_fd, err);

	if (r < 0)
		return r;
	/* One that cannot be read names nothing to remove. */
	if (read_record(dir_fd, plan, &m) < 0)
		return 0;
	return remove_one(dir_fd, &m, err);
}

static bool is_gone(struct atoll *a, const char *plan)
{
	struct plan_row row;

	return registry_plan_get(a->reg, plan, &row, NULL) == -ATOLL_E_NOT_FOUND;
}

int mirrors_sweep(struct atoll *a, struct error *err)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	cleanup_close int dir_fd = FD_NONE;
	int r = open_records(a, &dir_fd, err);

	if (r < 0)
		return r;
	/* Somebody makes one just now: whoever starts next sweeps. */
	if (flock(dir_fd, LOCK_EX | LOCK_NB) < 0)
		return 0;
	r = dirlist_read(dir_fd, &list);
	if (r < 0)
		return error_sys(err, r, "read the store's directory", STORE_SESSIONS);
	for (size_t i = 0; i < list.n; i++) {
		cleanup_mirror struct mirror m = MIRROR_INIT;

		/* One that cannot go is in nobody else's way; the first is told of. */
		if (plan_is_id(list.v[i].name) && is_gone(a, list.v[i].name) &&
		    read_record(dir_fd, list.v[i].name, &m) == 0 &&
		    remove_one(dir_fd, &m, r < 0 ? NULL : err) < 0)
			r = -EIO;
	}
	return r;
}

int mirrors_list(struct atoll *a, mirror_fn fn, void *user, struct error *err)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	cleanup_close int dir_fd = FD_NONE;
	int r = open_records(a, &dir_fd, err);

	if (r < 0)
		return r;
	r = dirlist_read(dir_fd, &list);
	if (r < 0)
		return error_sys(err, r, "read the store's directory", STORE_SESSIONS);
	for (size_t i = 0; r >= 0 && i < list.n; i++) {
		cleanup_mirror struct mirror m = MIRROR_INIT;

		if (plan_is_id(list.v[i].name) && !is_gone(a, list.v[i].name) &&
		    read_record(dir_fd, list.v[i].name, &m) == 0)
			r = fn(user, &m);
	}
	return r < 0 ? r : 0;
}

/* ---- by whom ---- */

struct looking {
	const char *request;
	char *plan; /* PLAN_ID_LEN + 1 */
	bool found;
};

static int look_at(void *user, const struct mirror *m)
{
	struct looking *l = user;

	if (m->request && strcmp(m->request, l->request) == 0) {
		memcpy(l->plan, m->plan, sizeof(m->plan));
		l->found = true;
	}
	return 0;
}

int mirror_made_by(struct atoll *a, const char *request, char ret_plan[PLAN_ID_LEN + 1],
                   struct error *err)
{
	struct looking l = { .request = request, .plan = ret_plan };
	int r = *request ? mirrors_list(a, look_at, &l, err) : 0;

	return r < 0 ? r : l.found;
}

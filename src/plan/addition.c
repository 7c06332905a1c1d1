/* SPDX-License-Identifier: Apache-2.0 */
/* What a resource is, and whether it may be one. See addition.h. */
#include "plan/addition.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/mount.h"
#include "fs/resolve.h"
#include "fs/stat.h"
#include "plan/here.h"
#include "util/cleanup.h"
#include "util/mem.h"

static void addition_done(struct addition *add)
{
	close_fd(&add->root_fd);
	area_done(&add->area);
	free(add->outer);
}

void additions_done(struct additions *adds)
{
	for (size_t i = 0; i < adds->rows.n; i++)
		addition_done(&adds->v[i]);
	free(adds->v);
	sandboxes_done(&adds->rows);
	*adds = ADDITIONS_INIT;
}

/* ---- may it be added at all? ---- */

static bool is_kind(const struct addition *add, const char *kind)
{
	return strcmp(add->strategy->kind, kind) == 0;
}

static int check_type(const struct addition *add, const struct sandbox_row *row,
                      const struct fs_stat *st, struct error *err)
{
	if ((is_kind(add, "directory") || is_kind(add, "repository")) && !S_ISDIR(st->mode)) {
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "'%s' is a file where a directory is due", row->root);
		error_hint(err, "name the directory around it");
		return -ATOLL_E_UNSUPPORTED;
	}
	if (is_kind(add, "file") && !S_ISREG(st->mode)) {
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "'%s' is not a regular file, which is due", row->root);
		error_hint(err, "name the file itself");
		return -ATOLL_E_UNSUPPORTED;
	}
	if (faccessat(add->root_fd, "", W_OK, AT_EACCESS | AT_EMPTY_PATH) < 0 &&
	    st->uid != geteuid() && geteuid() != 0) {
		(void)error_set(
			err, -EACCES,
			"'%s' belongs to user %u and you may not write to it, so nothing could "
			"be committed",
			row->root, st->uid);
		error_hint(err, "let its owner run atoll, or become its owner");
		return -EACCES;
	}
	return 0;
}

/* Where a commit could not keep its promise, and what to do instead. */
static int refuse_mount(const struct sandbox_row *row, const char *why, const char *type,
                        const char *hint, struct error *err)
{
	(void)error_set(err, -ATOLL_E_UNSUPPORTED, "'%s' %s%s%s%s", row->root, why,
	                *type ? " (" : "", type, *type ? ")" : "");
	error_hint(err, "%s; atoll doctor %s says more", hint, row->root);
	return -ATOLL_E_UNSUPPORTED;
}

static int check_mount(const struct addition *add, const struct sandbox_row *row, struct error *err)
{
	struct mount_info mi;
	int r = mount_info(add->root_fd, &mi);

	if (r < 0)
		return error_sys(err, r, "look at the mount of", row->root);
	if (mi.kernel)
		return refuse_mount(row, "is the kernel's: there are no files to commit", mi.name,
		                    "name a directory with files of yours", err);
	if (mi.network)
		return refuse_mount(
			row, "lies on a network filesystem, where a commit cannot be made safe",
			mi.name, "put it on a local disk", err);
	if (mi.read_only)
		return refuse_mount(row, "lies on a read-only mount, so nothing could be committed",
		                    "", "as root: mount -o remount,rw its filesystem", err);
	return 0;
}

/* One of the two lies in the other. */
static int refuse_store(const struct atoll *a, const char *root, struct error *err)
{
	cleanup_free char *named = store_user_dir();
	cleanup_free char *home = named ? realpath(named, NULL) : NULL;

	if (home && strcmp(root, home) == 0) {
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "the home directory cannot be a resource");
		error_hint(err, "cd into a project, or name one with --dir DIR");
		return -ATOLL_E_UNSUPPORTED;
	}
	if (path_below(a->home, root))
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "'%s' cannot be a resource: the store '%s' lies in it", root,
		                a->home);
	else
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "'%s' cannot be a resource: it lies in the store '%s'", root,
		                a->home);
	error_hint(err,
	           "cd into a project, or set ATOLL_HOME to a directory outside of the resource");
	return -ATOLL_E_UNSUPPORTED;
}

static int check_root(struct atoll *a, const struct addition *add, const struct sandbox_row *row,
                      struct error *err)
{
	const struct mount_place place = { row->root, add->root_fd };
	const struct mount_place store = { a->home, a->home_fd };
	struct fs_stat st;
	int r;

	if (strcmp(row->root, "/") == 0) {
		(void)error_set(err, -ATOLL_E_UNSUPPORTED, "'/' cannot be a resource");
		error_hint(err, "name a directory below it");
		return -ATOLL_E_UNSUPPORTED;
	}
	if (store_overlaps(a, row->root))
		return refuse_store(a, row->root, err);
	if (mount_overlap(&place, &store) > 0) {
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "'%s' and the store '%s' lie in one another", row->root, a->home);
		error_hint(err, "set ATOLL_HOME to a directory outside of the resource");
		return -ATOLL_E_UNSUPPORTED;
	}
	r = fs_stat_at(add->root_fd, "", 0, &st);
	if (r < 0)
		return error_sys(err, r, "look at", row->root);
	/* First what nobody can do there, then what this user may not. */
	r = check_mount(add, row, err);
	return r < 0 ? r : check_type(add, row, &st, err);
}

static int cannot_open(int r, const char *path, struct error *err)
{
	if (r == -ENOENT && here_is_deleted(path))
		return here_failed(r, err);
	(void)error_sys(err, r, "open the resource", path);
	if (r == -ENOENT || r == -ENOTDIR)
		error_hint(err, "name one that is there, or make it first");
	return r;
}

/* What only its strategy can tell. */
static int identify_named(const struct addition *add, struct sandbox_row *row, struct error *err)
{
	const struct participant_options opt = { .id = "",
		                                 .plan = "",
		                                 .strategy = add->strategy->name,
		                                 .root = add->resource->root,
		                                 .area = "",
		                                 .work = "",
		                                 .store_fd = FD_NONE };
	cleanup_participant struct atoll_participant *part = NULL;
	cleanup_free char *id = NULL;
	char hash[HASH_TEXT_LEN];
	int r = participant_new(&opt, &part, err);

	if (r == 0)
		r = participant_identify(part, &row->root, &id, err);
	if (r < 0)
		return r;
	hash_buffer(id, strlen(id), hash);
	row->root_id = xasprintf("name-%s", hash);
	return 0;
}

/* Of what is open: its identity is what the plan will have, whatever the name leads to later. */
static int check_place(struct atoll *a, const struct addition *add, const struct sandbox_row *row,
                       struct error *err)
{
	cleanup_free char *place = NULL;
	int r;

	if (!store_checks_resources(a))
		return 0;
	r = resolve_fd(add->root_fd, &place);
	if (r < 0)
		return error_sys(err, r, "find", row->root);
	return store_check_resource(a, add->resource, place, err);
}

/* Fills root, root_id and root_fd. Resources that are no files have their name for an identity. */
static int identify(struct atoll *a, struct addition *add, struct sandbox_row *row,
                    struct error *err)
{
	const char *given = add->resource->root;
	bool is_file =
		is_kind(add, "directory") || is_kind(add, "file") || is_kind(add, "repository");
	int r;

	if (add->strategy->identify) {
		r = store_check_resource(a, add->resource, NULL, err);
		return r < 0 ? r : identify_named(add, row, err);
	}
	r = resolve_canonical(given, &row->root);
	/* Who may not name it is not told whether it is there. */
	if (r < 0 && store_check_resource(a, add->resource, is_file ? given : NULL, err) < 0)
		return err->code;
	if (r < 0 && is_file)
		return cannot_open(r, given, err);
	if (r < 0) {
		char hash[HASH_TEXT_LEN];

		hash_buffer(given, strlen(given), hash);
		row->root = xstrdup(given);
		row->root_id = xasprintf("name-%s", hash);
		return 0;
	}
	add->root_fd = open(row->root, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (add->root_fd < 0) {
		r = -errno;
		add->root_fd = FD_NONE;
		return cannot_open(r, row->root, err);
	}
	r = check_place(a, add, row, err);
	if (r == 0)
		r = check_root(a, add, row, err);
	return r < 0 ? r : sandbox_root_id(add->root_fd, row->root, &row->root_id, err);
}

static int identify_one(struct atoll *a, struct addition *add, struct sandbox_row *row,
                        struct error *err)
{
	/* Without a name: a directory, and which way is chosen once it has an area. */
	const char *strategy = add->resource->strategy ? add->resource->strategy : "copy";
	int r = strategy_find(strategy, &add->strategy, err);

	if (r < 0)
		return r;
	row->strategy = xstrdup(strategy);
	row->state = ATOLL_SANDBOX_PENDING;
	row->error = xstrdup("");
	row->parent = xstrdup("");
	return identify(a, add, row, err);
}

int additions_identify(struct additions *adds, struct atoll *a,
                       const struct atoll_resource *resources, size_t n, struct error *err)
{
	int r = 0;

	if (n > LIMIT_SANDBOXES)
		return error_set(err, -ATOLL_E_TOO_BIG, "a plan has at most %d resources",
		                 LIMIT_SANDBOXES);
	adds->v = xcalloc(n + 1, sizeof(*adds->v));
	adds->rows.v = xcalloc(n + 1, sizeof(*adds->rows.v));
	adds->rows.cap = n + 1;
	for (size_t i = 0; r == 0 && i < n; i++) {
		adds->v[i] = (struct addition){ .resource = &resources[i], .root_fd = FD_NONE };
		adds->rows.n++;
		r = identify_one(a, &adds->v[i], &adds->rows.v[i], err);
	}
	return r;
}

bool additions_present(const struct sandboxes *boxes, const struct sandbox_row *row)
{
	for (size_t i = 0; i < boxes->n; i++)
		if (strcmp(boxes->v[i].root_id, row->root_id) == 0)
			return true;
	return false;
}

void additions_skip_present(struct additions *adds, const struct sandboxes *boxes)
{
	size_t kept = 0;

	for (size_t i = 0; i < adds->rows.n; i++) {
		if (additions_present(boxes, &adds->rows.v[i])) {
			addition_done(&adds->v[i]);
			sandbox_row_done(&adds->rows.v[i]);
			continue;
		}
		adds->v[kept] = adds->v[i];
		adds->rows.v[kept++] = adds->rows.v[i];
	}
	adds->rows.n = kept;
}

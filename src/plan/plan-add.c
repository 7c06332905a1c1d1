/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adding a resource to a plan: checked, recorded, made, recorded again. Whatever is on disk is on
 * record before it is there, so a process that dies anywhere here leaves a list of what to remove.
 */
#include "plan/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/mount.h"
#include "fs/resolve.h"
#include "fs/stat.h"
#include "plan/choose.h"
#include "plan/plan-op.h"
#include "plan/sandbox.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/mem.h"

struct addition {
	const struct atoll_resource *resource;
	const struct atoll_strategy *strategy;
	struct sandbox_row row;
	int root_fd; /* FD_NONE: the resource is no file */
};

static void addition_done(struct addition *add)
{
	sandbox_row_done(&add->row);
	close_fd(&add->root_fd);
}

/* ---- may it be added at all? ---- */

static bool is_kind(const struct addition *add, const char *kind)
{
	return strcmp(add->strategy->kind, kind) == 0;
}

static int check_type(const struct addition *add, const struct fs_stat *st, struct error *err)
{
	if (is_kind(add, "directory") && !S_ISDIR(st->mode))
		return error_set(err, -ATOLL_E_UNSUPPORTED,
		                 "'%s' is a file where a directory is due", add->row.root);
	if (is_kind(add, "file") && !S_ISREG(st->mode))
		return error_set(err, -ATOLL_E_UNSUPPORTED,
		                 "'%s' is not a regular file, which is due", add->row.root);
	if (faccessat(add->root_fd, "", W_OK, AT_EACCESS | AT_EMPTY_PATH) < 0 &&
	    st->uid != geteuid() && geteuid() != 0)
		return error_set(
			err, -EACCES,
			"'%s' belongs to user %u and you may not write to it, so nothing could "
			"be committed",
			add->row.root, st->uid);
	return 0;
}

static int check_mount(const struct addition *add, struct error *err)
{
	struct mount_info mi;
	int r = mount_info(add->root_fd, &mi);

	if (r < 0)
		return error_sys(err, r, "look at the mount of", add->row.root);
	if (mi.network)
		return error_set(err, -ATOLL_E_UNSUPPORTED,
		                 "'%s' lies on a network filesystem (%s), where a commit cannot be "
		                 "made safe",
		                 add->row.root, mi.name);
	if (mi.read_only)
		return error_set(err, -ATOLL_E_UNSUPPORTED,
		                 "'%s' lies on a read-only mount, so nothing could be committed",
		                 add->row.root);
	return 0;
}

static int check_root(struct atoll *a, struct addition *add, struct error *err)
{
	struct fs_stat st;
	int r;

	if (strcmp(add->row.root, "/") == 0)
		return error_set(err, -ATOLL_E_UNSUPPORTED, "'/' cannot be a resource");
	if (store_overlaps(a, add->row.root)) {
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "'%s' and the store '%s' lie in one another", add->row.root,
		                a->home);
		error_hint(err, "set ATOLL_HOME to a directory outside of the resource");
		return -ATOLL_E_UNSUPPORTED;
	}
	r = fs_stat_at(add->root_fd, "", 0, &st);
	if (r < 0)
		return error_sys(err, r, "look at", add->row.root);
	r = check_type(add, &st, err);
	return r < 0 ? r : check_mount(add, err);
}

/* Fills root, root_id and root_fd. Resources that are no files have their name for an identity. */
static int identify(struct atoll *a, struct addition *add, struct error *err)
{
	const char *given = add->resource->root;
	bool is_file = is_kind(add, "directory") || is_kind(add, "file");
	int r = resolve_canonical(given, &add->row.root);

	if (r < 0 && is_file)
		return error_sys(err, r, "open the resource", given);
	if (r < 0) {
		char hash[HASH_TEXT_LEN];

		hash_buffer(given, strlen(given), hash);
		add->row.root = xstrdup(given);
		add->row.root_id = xasprintf("name-%s", hash);
		return 0;
	}
	add->root_fd = open(add->row.root, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (add->root_fd < 0) {
		r = -errno;
		add->root_fd = FD_NONE;
		return error_sys(err, r, "open the resource", add->row.root);
	}
	r = check_root(a, add, err);
	return r < 0 ? r : sandbox_root_id(add->root_fd, &add->row.root_id, err);
}

static int check_parent(struct plan_op *op, struct addition *add, struct error *err)
{
	size_t i = 0;
	int r;

	add->row.parent = xstrdup("");
	if (!add->resource->parent)
		return 0;
	r = sandboxes_find(&op->boxes, add->resource->parent, &i, err);
	if (r < 0)
		return error_prefix(err, r, "parent of '%s'", add->row.root);
	cleanup_freep(&add->row.parent);
	add->row.parent = xstrdup(op->boxes.v[i].id);
	return 0;
}

static int check_overlap(const struct plan_op *op, const struct addition *add, struct error *err)
{
	for (size_t i = 0; i < op->boxes.n; i++) {
		const struct sandbox_row *other = &op->boxes.v[i];
		bool inside = path_below(add->row.root, other->root);

		if (strcmp(other->root_id, add->row.root_id) == 0 ||
		    strcmp(other->root, add->row.root) == 0)
			return error_set(err, -ATOLL_E_EXISTS, "'%s' already is in plan '%s'",
			                 add->row.root, op->plan.name);
		if (inside && strcmp(other->id, add->row.parent) == 0)
			continue;
		if (inside || path_below(other->root, add->row.root)) {
			(void)error_set(err, -ATOLL_E_UNSUPPORTED,
			                "'%s' overlaps '%s' in plan '%s'", add->row.root,
			                other->root, op->plan.name);
			error_hint(err, "add the outer one first and name it as the parent of the "
			                "inner one");
			return -ATOLL_E_UNSUPPORTED;
		}
	}
	return 0;
}

static int check_plan(struct plan_op *op, struct addition *add, struct error *err)
{
	int r;

	for (size_t i = 0; i < op->boxes.n; i++)
		if (op->boxes.v[i].state == ATOLL_SANDBOX_CLEANED_UP)
			return sandbox_allows(&op->boxes.v[i], SANDBOX_VERB_EXEC, op->plan.name,
			                      err);
	if (op->boxes.n >= LIMIT_SANDBOXES)
		return error_set(err, -ATOLL_E_TOO_BIG, "a plan has at most %d resources",
		                 LIMIT_SANDBOXES);
	r = check_parent(op, add, err);
	return r < 0 ? r : check_overlap(op, add, err);
}

/* ---- recording ---- */

static void number_it(const struct plan_op *op, struct sandbox_row *row)
{
	unsigned long last = 0;

	for (size_t i = 0; i < op->boxes.n; i++) {
		unsigned long n = strtoul(op->boxes.v[i].id + PLAN_ID_LEN + 1, NULL, 10);

		last = n > last ? n : last;
	}
	(void)snprintf(row->id, sizeof(row->id), "%.*s-%lu", PLAN_ID_LEN, op->plan.id, last + 1);
	(void)snprintf(row->plan, sizeof(row->plan), "%s", op->plan.id);
}

struct record_args {
	struct plan_op *op;
	struct sandbox_row *row;
	const char *why;
};

static int write_pending(struct registry *reg, void *ctx, struct error *err)
{
	struct record_args *args = ctx;
	struct sandbox_row *row = args->row;
	int r = plan_op_set_state(args->op, ATOLL_PLAN_OPEN, err);

	if (r == 0)
		r = registry_sandbox_insert(reg, row, err);
	/* A number is used again once its sandbox is gone; its recovery may have been cut off. */
	if (r == 0)
		r = sandbox_forget_paths(reg, row, err);
	if (r == 0)
		r = registry_path_add(reg, row->plan, row->id, row->area, err);
	if (r == 0 && strcmp(row->work, row->area) != 0)
		r = registry_path_add(reg, row->plan, row->id, row->work, err);
	return r;
}

static int write_created(struct registry *reg, void *ctx, struct error *err)
{
	struct record_args *args = ctx;
	int r = registry_sandbox_update(reg, args->row, err);

	if (r == 0)
		r = registry_sandbox_set_state(reg, args->row->id, ATOLL_SANDBOX_CREATED, "", err);
	return r;
}

static int write_removed(struct registry *reg, void *ctx, struct error *err)
{
	const struct record_args *args = ctx;

	return sandbox_forget(reg, args->row, err);
}

static int write_errored(struct registry *reg, void *ctx, struct error *err)
{
	struct record_args *args = ctx;

	return registry_sandbox_set_state(reg, args->row->id, ATOLL_SANDBOX_ERRORED, args->why,
	                                  err);
}

/* Takes back what was recorded and made. What cannot be removed stays on record. */
static void take_back(struct plan_op *op, struct addition *add)
{
	cleanup_error struct error cause = ERROR_INIT;
	struct record_args args = { .op = op, .row = &add->row };

	if (sandbox_erase(op->a, op->plan.name, &add->row, &cause) == 0) {
		(void)store_write(op->a, REGISTRY_DURABLE, write_removed, &args, NULL);
		return;
	}
	args.why = cause.msg ? cause.msg : "could not be removed";
	(void)store_write(op->a, REGISTRY_DURABLE, write_errored, &args, NULL);
}

/* ---- making ---- */

static int make(struct plan_op *op, struct addition *add, const struct area *ar,
                struct atoll_result *res, struct error *err)
{
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;
	const struct participant_batch notes = { .res = res };
	int r = area_make(ar, err);

	if (r < 0)
		return r;
	crashpoint("plan.add.after-area");
	if (!add->resource->strategy) {
		const char *chosen;

		r = choose_strategy(op->a, &add->row, add->root_fd, res, &chosen, err);
		if (r < 0)
			return r;
		cleanup_freep(&add->row.strategy);
		add->row.strategy = xstrdup(chosen);
	} else {
		r = choose_check(op->a, &add->row, add->root_fd, err);
		if (r < 0)
			return r;
	}
	r = sandbox_open(&s, op->a, op->plan.name, &add->row, err);
	if (r < 0)
		return r;
	participant_set_batch(s.part, &notes);
	r = participant_create(s.part, err);
	if (r < 0)
		return r;
	crashpoint("plan.add.after-create");
	add->row.generation = participant_generation(s.part);
	add->row.stale = participant_stale(s.part);
	return 0;
}

static int add_locked(struct plan_op *op, struct addition *add, struct atoll_result *res,
                      struct error *err)
{
	cleanup_area struct area ar = AREA_INIT;
	struct record_args args = { .op = op, .row = &add->row };
	int r = check_plan(op, add, err);

	if (r < 0)
		return r;
	number_it(op, &add->row);
	r = area_choose(op->a, add->row.root, add->root_fd, add->row.id,
	                add->resource->work_in_store, &ar, err);
	if (r < 0)
		return r;
	add->row.area = xstrdup(ar.path);
	add->row.work = xstrdup(ar.work);
	r = store_write(op->a, REGISTRY_DURABLE, write_pending, &args, err);
	if (r < 0)
		return r;
	crashpoint("plan.add.after-record");
	r = make(op, add, &ar, res, err);
	if (r == 0) {
		add->row.boot_id = xstrdup(clock_boot_id());
		r = store_write(op->a, REGISTRY_DURABLE, write_created, &args, err);
		if (r ==
		    -ATOLL_E_NEEDS_RECOVERY) /* nobody knows what is on disk: recovery reads it */
			return r;
	}
	if (r < 0)
		take_back(op, add);
	return r;
}

static void report(const struct sandbox_row *row, struct atoll_result *res)
{
	struct atoll_participant_result *line = result_row(res, row->id, row->root, row->strategy);

	if (!line)
		return;
	line->outcome = ATOLL_OUTCOME_UNCHANGED;
	line->state = ATOLL_SANDBOX_CREATED;
}

int plan_add(struct atoll_plan *p, const struct atoll_resource *resource, struct atoll_result *res,
             struct error *err)
{
	__attribute__((__cleanup__(addition_done))) struct addition add = { .resource = resource,
		                                                            .root_fd = FD_NONE };
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	struct plan_op_options opt = { .verb = "add", .newcomer = &add.row };
	/* Without a name: a directory, and which way is chosen once it has an area. */
	const char *strategy = resource->strategy ? resource->strategy : "copy";
	int r = strategy_find(strategy, &add.strategy, err);

	if (r < 0)
		return r;
	add.row.strategy = xstrdup(strategy);
	add.row.state = ATOLL_SANDBOX_PENDING;
	add.row.error = xstrdup("");
	r = identify(p->a, &add, err);
	if (r < 0)
		return r;
	r = plan_op_begin(&op, p, &opt, err);
	if (r < 0)
		return r;
	r = add_locked(&op, &add, res, err);
	if (r == 0) {
		durable_note_later(&add.row);
		report(&add.row, res);
	}
	return plan_op_end(&op, r, err);
}

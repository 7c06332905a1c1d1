/* SPDX-License-Identifier: Apache-2.0 */
/* The table of strategies, and the wrappers through which every verb is called. */
#include "strategy/strategy.h"
#include "strategy/strategy-impl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diff/live-database.h"
#include "fs/atomic.h"
#include "strategy/dir.h"
#include "strategy/module.h"
#include "strategy/moves.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"
#include "util/suggest.h"

#define MAX_STRATEGIES 64

static pthread_mutex_t table_mutex = PTHREAD_MUTEX_INITIALIZER;
static const struct atoll_strategy *table[MAX_STRATEGIES] = { &strategy_overlay,  &strategy_copy,
	                                                      &strategy_git,      &strategy_sqlite,
	                                                      &strategy_postgres, &strategy_none,
	                                                      &strategy_worktree };
static size_t table_n = 7;

static const struct atoll_strategy *lookup(const char *name)
{
	for (size_t i = 0; i < table_n; i++)
		if (strcmp(table[i]->name, name) == 0)
			return table[i];
	return NULL;
}

const char *const *strategy_sides(const char *name)
{
	static const char *const none[] = { NULL };

	return strcmp(name, strategy_sqlite.name) == 0 ? live_database_sides : none;
}

bool strategy_is_area(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	size_t len = strlen(STRATEGY_AREA_PREFIX);

	if (strncmp(name, STRATEGY_AREA_PREFIX, len) != 0 || !name[len])
		return false;
	return name[len + strspn(name + len, "0123456789")] == '\0';
}

bool strategy_is_side(const struct strlist *excludes, const char *path)
{
	const char *const *sides = strategy_sides(strategy_sqlite.name);

	for (; *sides; sides++) {
		size_t len = strlen(path), tail = strlen(*sides);
		cleanup_free char *of = len > tail ? xstrndup(path, len - tail) : NULL;

		if (of && strcmp(path + len - tail, *sides) == 0 && strlist_has(excludes, of))
			return true;
	}
	return false;
}

static bool name_valid(const char *name)
{
	return name && *name && strlen(name) <= 32 &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(name);
}

/* The verb that a declared capability promises but the table lacks, or NULL. */
static const char *missing_verb(const struct atoll_strategy *s)
{
	const struct {
		bool needed, present;
		const char *name;
	} verbs[] = {
		{ true, s->create != NULL, "create" },
		{ true, s->commit != NULL, "commit" },
		{ true, s->remove != NULL, "remove" },
		{ (s->capabilities & ATOLL_CAP_PREPARE) != 0, s->prepare != NULL, "prepare" },
		{ (s->capabilities & ATOLL_CAP_PREPARE) != 0, s->abort != NULL, "abort" },
		{ (s->capabilities & ATOLL_CAP_UNDO) != 0, s->undo != NULL, "undo" },
		{ (s->capabilities & ATOLL_CAP_DIFF) != 0, s->diff != NULL, "diff" },
		{ (s->capabilities & ATOLL_CAP_PATH) != 0, s->path != NULL, "path" },
		{ (s->capabilities & ATOLL_CAP_MOUNTS) != 0, s->mounts != NULL, "mounts" },
		{ (s->capabilities & ATOLL_CAP_KEEP) != 0, s->keep != NULL, "keep" },
		{ (s->capabilities & ATOLL_CAP_EMPTY) != 0, s->observe != NULL, "observe" },
	};

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (verbs[i].needed && !verbs[i].present)
			return verbs[i].name;
	return NULL;
}

int strategy_register(const struct atoll_strategy *s, struct error *err)
{
	const char *missing;
	int r = 0;

	if (!s || !name_valid(s->name) || !s->kind)
		return error_set(err, -ATOLL_E_INVALID,
		                 "a strategy needs a name of a-z, 0-9 and '-', and a kind");
	if (s->api_version != ATOLL_STRATEGY_API_VERSION)
		return error_set(err, -ATOLL_E_INVALID,
		                 "strategy '%s' was built for version %u, this is %u", s->name,
		                 s->api_version, ATOLL_STRATEGY_API_VERSION);
	missing = missing_verb(s);
	if (missing)
		return error_set(err, -ATOLL_E_INVALID, "strategy '%s' lacks the function '%s'",
		                 s->name, missing);

	pthread_mutex_lock(&table_mutex);
	if (lookup(s->name))
		r = error_set(err, -ATOLL_E_EXISTS, "there already is a strategy '%s'", s->name);
	else if (table_n == MAX_STRATEGIES)
		r = error_set(err, -ATOLL_E_TOO_BIG, "more than %d strategies", MAX_STRATEGIES);
	else
		table[table_n++] = s;
	pthread_mutex_unlock(&table_mutex);
	return r;
}

/* ---- finding ---- */

static const struct atoll_strategy *lookup_locked(const char *name)
{
	const struct atoll_strategy *s;

	pthread_mutex_lock(&table_mutex);
	s = lookup(name);
	pthread_mutex_unlock(&table_mutex);
	return s;
}

void strategy_names(struct strlist *ret)
{
	pthread_mutex_lock(&table_mutex);
	for (size_t i = 0; i < table_n; i++)
		strlist_add(ret, table[i]->name);
	pthread_mutex_unlock(&table_mutex);
	module_names(ret);
}

static int not_known(const char *name, struct error *err)
{
	cleanup_strbuf struct strbuf known = STRBUF_INIT;
	cleanup_strlist struct strlist names = STRLIST_INIT;
	struct suggestions near = { .wanted = name };

	strategy_names(&names);
	for (size_t i = 0; i < names.n; i++) {
		strbuf_printf(&known, "%s%s", i ? ", " : "", names.v[i]);
		suggest_try(&near, names.v[i], strlen(names.v[i]));
	}
	(void)error_set(err, -ATOLL_E_NOT_FOUND, "there is no strategy '%s'", name);
	error_hint(err, "use one of: %s", strbuf_str(&known));
	suggest_hint(&near, "", err);
	return -ATOLL_E_NOT_FOUND;
}

/* What was registered comes first; modules are asked for once. */
int strategy_find(const char *name, const struct atoll_strategy **ret, struct error *err)
{
	const struct atoll_strategy *found = lookup_locked(name);
	int r;

	if (!found && name_valid(name)) {
		r = module_load(name, &found, err);
		if (r == 0)
			r = strategy_register(found, err);
		/* Another thread was as quick; it is the same module. */
		if (r == -ATOLL_E_EXISTS) {
			found = lookup_locked(name);
			error_done(err);
			r = 0;
		}
		if (r < 0 && r != -ATOLL_E_NOT_FOUND)
			return r;
	}
	if (!found)
		return not_known(name, err);
	*ret = found;
	return 0;
}

/* ---- participants ---- */

int participant_new(const struct participant_options *opt, struct atoll_participant **ret,
                    struct error *err)
{
	const struct atoll_strategy *ops;
	struct atoll_participant *p;
	int r = strategy_find(opt->strategy, &ops, err);

	if (r < 0)
		return r;
	p = xcalloc(1, sizeof(*p));
	p->ops = ops;
	p->id = xstrdup(opt->id);
	p->plan = xstrdup(opt->plan);
	p->root = xstrdup(opt->root);
	p->area = xstrdup(opt->area);
	p->work = xstrdup(opt->work);
	p->generation = opt->generation;
	p->stale = opt->stale;
	p->excludes = opt->excludes;
	p->store_fd = opt->store_fd;
	p->merged_fd = FD_NONE;
	*ret = p;
	return 0;
}

static void drop_state(struct atoll_participant *p)
{
	if (p->state && p->state_free)
		p->state_free(p->state);
	p->state = NULL;
}

void participant_free(struct atoll_participant *p)
{
	if (!p)
		return;
	drop_state(p);
	if (p->extra)
		p->extra_free(p->extra);
	strlist_done(&p->own_excludes);
	strlist_done(&p->merged);
	strlist_done(&p->programs);
	close_fd(&p->merged_fd);
	error_done(&p->err);
	strlist_done(&p->env);
	strlist_done(&p->listen);
	strlist_done(&p->undone);
	manifest_done(&p->put_back);
	spool_done(&p->displaced);
	moves_free(p->moves);
	strlist_done(&p->undone_attrs);
	free(p->id);
	free(p->plan);
	free(p->root);
	free(p->area);
	free(p->work);
	free(p);
}

void cleanup_participantp(struct atoll_participant **p)
{
	participant_free(*p);
}

bool participant_can(const struct atoll_participant *p, unsigned capability)
{
	return (p->ops->capabilities & capability) == capability;
}

bool participant_can_redo(const struct atoll_participant *p)
{
	static const struct atoll_strategy *const can[] = { &strategy_overlay, &strategy_copy,
		                                            &strategy_git, &strategy_worktree,
		                                            &strategy_sqlite };

	for (size_t i = 0; i < sizeof(can) / sizeof(can[0]); i++)
		if (p->ops == can[i])
			return true;
	return false;
}

void participant_set_batch(struct atoll_participant *p, const struct participant_batch *b)
{
	drop_state(p);
	p->batch = *b;
	p->rest = false;
	p->manifest[0] = '\0';
	if (b->manifest)
		(void)snprintf(p->manifest, sizeof(p->manifest), "%s", b->manifest);
}

void participant_let_go(struct atoll_participant *p)
{
	cleanup_close int area_fd = dir_open_area(p);

	if (area_fd != FD_NONE)
		(void)fs_unlink_at(area_fd, DIR_BALLAST);
}

/* Turns what a verb answered into our answer: nothing but 0 (and what MAX allows) is success. */
static int settle(struct atoll_participant *p, const char *verb, int r, int max, struct error *err)
{
	if (r >= 0 && r <= max && !p->err.code)
		return r;
	if (p->err.code && r < 0 && p->err.code == r) {
		if (err)
			error_move(err, &p->err);
		error_done(&p->err);
		return error_prefix(err, r, "%s '%s'", verb, p->root);
	}
	if (r >= 0)
		r = p->err.code ? p->err.code : -ATOLL_E_CANNOT_PREPARE;
	if (err && !err->code) {
		if (p->err.code) {
			p->err.code = r;
			error_move(err, &p->err);
			error_prefix(err, r, "%s '%s'", verb, p->root);
		} else {
			error_sys(err, r, verb, p->root);
		}
	}
	error_done(&p->err);
	return r;
}

#define VERB(name, max)                                                        \
	int participant_##name(struct atoll_participant *p, struct error *err) \
	{                                                                      \
		error_done(&p->err);                                           \
		if (!p->ops->name)                                             \
			return 0;                                              \
		return settle(p, #name, p->ops->name(p), max, err);            \
	}

VERB(create, 0)
VERB(observe, ATOLL_NO_CHANGE)
VERB(prepare, ATOLL_FINAL)
VERB(check, 0)
VERB(commit, 0)
VERB(abort, 0)
VERB(undo, 0)
VERB(finish, 0)
VERB(release, 0)
VERB(reset, 0)
VERB(remove, 0)
VERB(keep, 0)
VERB(refresh, 0)
VERB(alive, 0)
VERB(unlock, 0)

/* Only within Atoll: a module has no say in how a workspace of Atoll's own comes to be. */
static int check_adopts(const struct atoll_participant *p, struct error *err)
{
	if (p->ops == &strategy_overlay)
		return 0;
	return error_set(err, -ATOLL_E_UNSUPPORTED,
	                 "what is private to the plan in '%s' can be taken over by the strategy "
	                 "'overlay' alone",
	                 p->root);
}

int participant_may_adopt(struct atoll_participant *p, int from_fd, struct error *err)
{
	int r = check_adopts(p, err);

	error_done(&p->err);
	return r < 0 ? r : settle(p, "add", overlay_may_adopt(p, from_fd), 0, err);
}

int participant_adopt(struct atoll_participant *p, int parent_fd, const char *name,
                      struct error *err)
{
	int r = check_adopts(p, err);

	error_done(&p->err);
	return r < 0 ? r : settle(p, "add", overlay_adopt(p, parent_fd, name), 0, err);
}

/* What was given may hold what nobody is to read, so it is not repeated. */
int participant_identify(struct atoll_participant *p, char **ret_name, char **ret_id,
                         struct error *err)
{
	int r;

	error_done(&p->err);
	r = p->ops->identify(p, ret_name, ret_id);
	if (r >= 0 && !p->err.code && *ret_name && *ret_id)
		return 0;
	if (r >= 0)
		r = p->err.code ? p->err.code : -ATOLL_E_INVALID;
	if (p->err.code && err) {
		p->err.code = r;
		error_move(err, &p->err);
	} else {
		(void)error_set(err, r, "the resource cannot be told: %s", error_code_name(r));
	}
	error_done(&p->err);
	return r;
}

int participant_path(struct atoll_participant *p, char **ret_path, struct error *err)
{
	error_done(&p->err);
	if (!participant_can(p, ATOLL_CAP_PATH))
		return error_set(err, -ATOLL_E_UNSUPPORTED, "'%s' (%s) has no path to work at",
		                 p->root, p->ops->name);
	return settle(p, "path", p->ops->path(p, ret_path), 0, err);
}

int participant_diff(struct atoll_participant *p, atoll_change_fn fn, void *user, struct error *err)
{
	error_done(&p->err);
	p->change_fn = fn;
	p->change_user = user;
	p->change_count = 0;
	p->changes = 0;
	if (!participant_can(p, ATOLL_CAP_DIFF))
		return 0;
	return settle(p, "diff", p->ops->diff(p), 0, err);
}

int participant_mounts(struct atoll_participant *p, const struct participant_net *net,
                       participant_mount_fn fn, void *user, struct error *err)
{
	error_done(&p->err);
	if (!participant_can(p, ATOLL_CAP_MOUNTS))
		return 0;
	p->net = net;
	p->mount_fn = fn;
	p->mount_user = user;
	strlist_done(&p->env);
	strlist_done(&p->listen);
	return settle(p, "mounts", p->ops->mounts(p), 0, err);
}

const struct strlist *participant_listen(const struct atoll_participant *p)
{
	return &p->listen;
}

const struct strlist *participant_env(const struct atoll_participant *p)
{
	return &p->env;
}

bool participant_stale(const struct atoll_participant *p)
{
	return p->stale;
}

uint64_t participant_generation(const struct atoll_participant *p)
{
	return p->generation;
}

bool participant_counts(const struct atoll_participant *p)
{
	return p->counted;
}

bool participant_rest(const struct atoll_participant *p)
{
	return p->rest;
}

uint64_t participant_changes(const struct atoll_participant *p)
{
	return p->changes;
}

const char *participant_manifest(const struct atoll_participant *p)
{
	return p->manifest;
}

/* ---- what strategies call ---- */

const char *atoll_participant_id(const struct atoll_participant *p)
{
	return p->id;
}

const char *atoll_participant_root(const struct atoll_participant *p)
{
	return p->root;
}

const char *atoll_participant_area(const struct atoll_participant *p)
{
	return p->area;
}

const char *atoll_participant_plan(const struct atoll_participant *p)
{
	return p->plan;
}

void *atoll_participant_user(const struct atoll_participant *p)
{
	return p->ops->user;
}

uint64_t atoll_participant_batch(const struct atoll_participant *p)
{
	return p->batch.number;
}

bool atoll_participant_undoing(const struct atoll_participant *p)
{
	return p->batch.undoing;
}

bool atoll_participant_recovering(const struct atoll_participant *p)
{
	return p->batch.recovering;
}

unsigned atoll_participant_flags(const struct atoll_participant *p)
{
	return p->batch.flags;
}

bool atoll_participant_selected(const struct atoll_participant *p, const char *path, bool is_dir)
{
	return selection_has(p->batch.select, path, is_dir);
}

bool atoll_participant_whole(const struct atoll_participant *p)
{
	return selection_is_whole(p->batch.select);
}

void atoll_participant_leave(struct atoll_participant *p)
{
	p->rest = true;
}

int atoll_participant_sync(struct atoll_participant *p, int fd)
{
	return p->batch.sync ? syncset_add_fd(p->batch.sync, fd) : 0;
}

int atoll_participant_fail(struct atoll_participant *p, int code, const char *op, const char *path,
                           int os_errno)
{
	if (p->err.code)
		return p->err.code;
	if (code >= 0)
		code = -ATOLL_E_CANNOT_PREPARE;
	(void)error_set(&p->err, code, "cannot %s '%s': %s", op ? op : "go on",
	                path ? path : p->root,
	                os_errno ? strerror(os_errno) : error_code_name(code));
	error_cause(&p->err, op, path, os_errno, NULL);
	return code;
}

int atoll_participant_mount(struct atoll_participant *p, const char *target, const char *source,
                            const char *upper, const char *work)
{
	const struct participant_mount m = { target, source, upper, work, false };

	return p->mount_fn(p->mount_user, &m);
}

int participant_show(struct atoll_participant *p, const char *target, const char *source)
{
	const struct participant_mount m = { .target = target, .source = source, .fixed = true };

	return p->mount_fn(p->mount_user, &m);
}

void atoll_participant_env(struct atoll_participant *p, const char *name, const char *value)
{
	cleanup_free char *pair = value ? xasprintf("%s=%s", name, value) : xstrdup(name);

	strlist_add(&p->env, pair);
}

int atoll_participant_change(struct atoll_participant *p, const struct atoll_change *change)
{
	struct atoll_change c = *change;

	c.sandbox = p->id;
	c.root = p->root;
	c.from = p;
	if (!c.text)
		c.text = "";
	if (!c.conflict)
		c.conflict = "";
	if (!c.detail)
		c.detail = "";
	p->change_count++;
	p->changes++;
	return p->change_fn ? p->change_fn(p->change_user, &c) : 0;
}

int atoll_change_open(const struct atoll_change *change, enum atoll_side side, int *ret_fd)
{
	const struct atoll_participant *p = change->from;

	if (!p || !p->ops->content)
		return -ATOLL_E_UNSUPPORTED;
	return p->ops->content(change->from, change, side, ret_fd);
}

int atoll_change_lines(const struct atoll_change *change, atoll_line_fn fn, void *user)
{
	const struct atoll_participant *p = change->from;

	return p && p->ops->lines ? p->ops->lines(change->from, change, fn, user) : 0;
}

void atoll_participant_note(struct atoll_participant *p, enum atoll_note_kind kind,
                            const char *path, const char *text)
{
	result_note(p->batch.res, kind, p->id, path, text);
}

void atoll_participant_count(struct atoll_participant *p, uint64_t changes)
{
	p->changes = changes;
}

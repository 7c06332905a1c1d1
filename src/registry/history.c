/* SPDX-License-Identifier: Apache-2.0 */
/* Paths we made, what happened, commands run, and the clocks of filesystems. */
#include "registry/registry.h"

#include "registry/rows-impl.h"
#include "util/clock.h"
#include "util/escape.h"
#include "util/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

/* ---- paths ---- */

int registry_path_add(struct registry *r, const char *plan, const char *sandbox, const char *path,
                      struct error *err)
{
	/* Again by the same plan is no mistake: recovery repeats steps. */
	static const char sql[] = "INSERT INTO path (path, plan, sandbox) VALUES (?1, ?2, ?3) "
				  "ON CONFLICT (path) DO UPDATE SET sandbox = excluded.sandbox "
				  "WHERE path.plan = excluded.plan";
	cleanup_free char *shown = NULL;
	int k = registry_write(r, sql,
	                       ARGS(TEXT_VALUE(path), TEXT_VALUE(plan), TEXT_VALUE(sandbox)), NULL,
	                       NULL, err);

	if (k != 0)
		return k < 0 ? k : 0;
	shown = escape_dup(path);
	return error_set(err, -ATOLL_E_EXISTS, "'%s' belongs to another plan", shown);
}

int registry_path_remove(struct registry *r, const char *path, struct error *err)
{
	static const char sql[] = "DELETE FROM path WHERE path = ?1";
	int k = registry_write(r, sql, ARGS(TEXT_VALUE(path)), NULL, NULL, err);

	return k < 0 ? k : 0;
}

struct path_row {
	char *path;
	char *plan;
	char *sandbox;
};

static void read_path(struct cols *c, void *item)
{
	struct path_row *row = item;

	row->path = cols_dup(c);
	row->plan = cols_dup(c);
	row->sandbox = cols_dup(c);
}

static void done_path(void *item)
{
	struct path_row *row = item;

	free(row->path);
	free(row->plan);
	free(row->sandbox);
}

static int list_paths(struct registry *r, const char *sql, struct args args, registry_path_fn fn,
                      void *ctx, struct error *err)
{
	cleanup_rows struct rows rows = { .size = sizeof(struct path_row),
		                          .read = read_path,
		                          .done = done_path };
	const struct path_row *paths;
	int k = rows_fetch(r, sql, args, &rows, err);

	paths = rows.items;
	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, paths[i].plan, paths[i].sandbox, paths[i].path);
	return k < 0 ? k : 0;
}

int registry_path_list(struct registry *r, const char *plan, registry_path_fn fn, void *ctx,
                       struct error *err)
{
	static const char all[] = "SELECT path, plan, sandbox FROM path ORDER BY path";
	static const char one[] =
		"SELECT path, plan, sandbox FROM path WHERE plan = ?1 ORDER BY path";

	return plan ? list_paths(r, one, ARGS(TEXT_VALUE(plan)), fn, ctx, err)
	            : list_paths(r, all, NO_ARGS, fn, ctx, err);
}

int registry_path_list_below(struct registry *r, const char *dir, registry_path_fn fn, void *ctx,
                             struct error *err)
{
	/* '0' is the byte after '/'. */
	static const char sql[] = "SELECT path, plan, sandbox FROM path "
				  "WHERE path > ?1 || '/' AND path < ?1 || '0' ORDER BY path";

	return list_paths(r, sql, ARGS(TEXT_VALUE(dir)), fn, ctx, err);
}

/* ---- history ---- */

static const char add_event[] = "INSERT INTO event (plan, at_ms, what, code, message) "
				"VALUES (?1, ?2, ?3, ?4, ?5) RETURNING seq";

int registry_event_add(struct registry *r, const char *plan, const char *what, int code,
                       const char *message, struct error *err)
{
	int64_t seq = 0;
	int k = rows_write_number(r, add_event,
	                          ARGS(TEXT_VALUE(plan), INT_VALUE(clock_real_ms()),
	                               TEXT_VALUE(what), INT_VALUE(code), TEXT_VALUE(message)),
	                          &seq, err);

	if (k >= 0)
		k = news_add(r,
		             &(struct news_item){ .plan = plan,
		                                  .what = what,
		                                  .code = code,
		                                  .message = message },
		             err);
	return k < 0 ? k : registry_log_trim(r, seq, err);
}

void event_row_done(struct event_row *row)
{
	int saved = errno;

	free(row->what);
	free(row->message);
	*row = (struct event_row){ 0 };
	errno = saved;
}

static void read_event(struct cols *c, void *item)
{
	struct event_row *row = item;

	row->at_ms = cols_int(c, INT64_MIN, INT64_MAX);
	row->what = cols_dup(c);
	row->code = (int)cols_int(c, INT_MIN, INT_MAX);
	row->message = cols_dup(c);
}

static void done_event(void *item)
{
	event_row_done(item);
}

int registry_event_list(struct registry *r, const char *plan, registry_event_fn fn, void *ctx,
                        struct error *err)
{
	static const char all[] = "SELECT at_ms, what, code, message FROM event ORDER BY seq";
	static const char one[] =
		"SELECT at_ms, what, code, message FROM event WHERE plan = ?1 ORDER BY seq";
	cleanup_rows struct rows rows = { .size = sizeof(struct event_row),
		                          .read = read_event,
		                          .done = done_event };
	const struct event_row *events;
	int k;

	if (plan)
		k = rows_fetch(r, one, ARGS(TEXT_VALUE(plan)), &rows, err);
	else
		k = rows_fetch(r, all, NO_ARGS, &rows, err);
	events = rows.items;
	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, &events[i]);
	return k < 0 ? k : 0;
}

static const char add_exec[] =
	"INSERT INTO exec (plan, argv, started_ms, ended_ms, exit_code, user_us, "
	"system_us, max_rss_kb, changes, term_signal, timed_out, memory_kills, output, job) "
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

void registry_exec_expect(struct registry *r)
{
	registry_prepare(r, add_exec);
	registry_prepare(r, add_event);
}

int registry_exec_add(struct registry *r, const struct exec_row *row, struct error *err)
{
	int k = registry_write(
		r, add_exec,
		ARGS(TEXT_VALUE(row->plan), TEXT_VALUE(row->argv), INT_VALUE(row->started_ms),
	             INT_VALUE(row->ended_ms), INT_VALUE(row->exit_code), INT_VALUE(row->user_us),
	             INT_VALUE(row->system_us), INT_VALUE(row->max_rss_kb), INT_VALUE(row->changes),
	             INT_VALUE(row->term_signal), INT_VALUE(row->timed_out),
	             INT_VALUE(row->memory_kills), TEXT_VALUE(row->output), TEXT_VALUE(row->job)),
		NULL, NULL, err);

	return k < 0 ? k : 0;
}

/* ---- clocks ---- */

int registry_highwater(struct registry *r, const char *fsid, int64_t ctime_ns, int64_t *ret_highest,
                       struct error *err)
{
	static const char sql[] =
		"INSERT INTO highwater (fsid, ctime_ns) VALUES (?1, ?2) ON CONFLICT (fsid) "
		"DO UPDATE SET ctime_ns = CASE WHEN excluded.ctime_ns > highwater.ctime_ns "
		"THEN excluded.ctime_ns ELSE highwater.ctime_ns END RETURNING ctime_ns";
	int64_t highest = ctime_ns;
	int k = rows_write_number(r, sql, ARGS(TEXT_VALUE(fsid), INT_VALUE(ctime_ns)), &highest,
	                          err);

	if (k < 0)
		return k;
	*ret_highest = highest;
	return 0;
}

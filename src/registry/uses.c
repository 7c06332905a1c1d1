/* SPDX-License-Identifier: Apache-2.0 */
/* How plans were used last, and which are meant in a directory. */
#include "registry/registry.h"

#include "registry/rows-impl.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the last use ---- */

static void read_use(struct cols *c, void *item)
{
	struct plan_use *use = item;
	bool counted;

	cols_text(c, use->plan, sizeof(use->plan));
	use->from_run = cols_bool(c);
	use->used_ms = cols_int(c, INT64_MIN, INT64_MAX);
	use->command = cols_dup(c);
	use->changes = cols_int(c, INT64_MIN, INT64_MAX);
	counted = cols_bool(c);
	if (!counted)
		use->changes = -1;
}

static void done_use(void *item)
{
	struct plan_use *use = item;

	free(use->command);
}

/* The count of the last command is that of now while nothing happened after it. Both histories are cut (log.max-age),
 * so a plan may have lines of neither. Each part of the question is one step in an index for each plan. */
int registry_plan_uses(struct registry *r, const char *plan, registry_use_fn fn, void *ctx,
                       struct error *err)
{
#define USES                                                                                \
	"SELECT plan.id, run.dir IS NOT NULL, coalesce(event.at_ms, plan.created_ms), "     \
	"coalesce(exec.argv, ''), coalesce(exec.changes, -1), "                             \
	"coalesce(event.what = 'exec' AND event.code = 0, 0) "                              \
	"FROM plan LEFT JOIN run ON run.plan = plan.id "                                    \
	"LEFT JOIN event ON event.seq = (SELECT max(seq) FROM event WHERE plan = plan.id) " \
	"LEFT JOIN exec ON exec.seq = (SELECT max(seq) FROM exec WHERE plan = plan.id) "    \
	"WHERE "
	static const char all[] = USES "plan.state <> 7";
	static const char one[] = USES "plan.id = ?1";
	cleanup_rows struct rows rows = { .size = sizeof(struct plan_use),
		                          .read = read_use,
		                          .done = done_use };
	const struct plan_use *uses;
	int k = plan ? rows_fetch(r, one, ARGS(TEXT_VALUE(plan)), &rows, err)
	             : rows_fetch(r, all, NO_ARGS, &rows, err);

	uses = rows.items;
	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, &uses[i]);
	return k < 0 ? k : 0;
}

/* ---- in a directory ---- */

struct found {
	char (*ids)[PLAN_ID_LEN + 1];
	size_t n, cap;
};

static int note_plan(void *ctx, const struct value *v, size_t count)
{
	struct cols c = { .v = v, .n = count };
	struct found *f = ctx;
	char id[PLAN_ID_LEN + 1] = "";

	cols_text(&c, id, sizeof(id));
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->ids[i], id) == 0)
			return c.code;
	if (grow((void **)&f->ids, &f->cap, f->n + 1, sizeof(*f->ids)) < 0)
		return -ENOMEM;
	memcpy(f->ids[f->n++], id, sizeof(id));
	return c.code;
}

/* Each directory from DIR up to "/". */
static int find_by_roots(struct registry *r, const char *dir, struct found *f, struct error *err)
{
	static const char sql[] = "SELECT DISTINCT plan FROM sandbox WHERE root = ?1";
	cleanup_free char *at = xstrdup(dir);
	int k = 0;

	while (k >= 0) {
		char *slash = strrchr(at, '/');

		k = registry_read(r, sql, ARGS(TEXT_VALUE(at)), note_plan, f, err);
		if (!slash || slash[1] == '\0')
			break;
		slash[slash == at] = '\0'; /* "/" is above "/home" */
	}
	return k;
}

static int by_seq(const void *a, const void *b)
{
	const struct plan_row *x = a, *y = b;

	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

int registry_plan_list_at(struct registry *r, const char *dir, registry_plan_fn fn, void *ctx,
                          struct error *err)
{
	static const char run_there[] = "SELECT plan FROM run WHERE dir = ?1";
	cleanup_free struct plan_row *rows = NULL;
	struct found f = { 0 };
	size_t n = 0;
	int k = find_by_roots(r, dir, &f, err);

	if (k >= 0)
		k = registry_read(r, run_there, ARGS(TEXT_VALUE(dir)), note_plan, &f, err);
	if (k >= 0 && f.n > 0)
		rows = xcalloc(f.n, sizeof(*rows));
	for (size_t i = 0; k >= 0 && i < f.n; i++) {
		k = plan_find(r, PLAN_OPEN_BY_ID, f.ids[i], &rows[n], err);
		n += k > 0;
	}
	free(f.ids);
	if (n > 0)
		qsort(rows, n, sizeof(*rows), by_seq);
	for (size_t i = 0; k >= 0 && i < n; i++)
		k = fn(ctx, &rows[i]);
	return k < 0 ? k : 0;
}

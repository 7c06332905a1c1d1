/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of sandboxes. */
#include "registry/registry.h"

#include "registry/rows-impl.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                             \
	"id, plan, seq, strategy, root, root_id, area, work, parent, state, stale, error, " \
	"boot_id, exec_n, generation, t0_ns, bytes, entries"

void sandbox_row_done(struct sandbox_row *row)
{
	int saved = errno;
	char *const owned[] = { row->strategy, row->root,   row->root_id, row->area,
		                row->work,     row->parent, row->error,   row->boot_id };

	for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
		free(owned[i]);
	*row = SANDBOX_ROW_INIT;
	errno = saved;
}

static void read_sandbox(struct cols *c, void *item)
{
	struct sandbox_row *row = item;

	cols_text(c, row->id, sizeof(row->id));
	cols_text(c, row->plan, sizeof(row->plan));
	row->seq = cols_u64(c);
	row->strategy = cols_dup(c);
	row->root = cols_dup(c);
	row->root_id = cols_dup(c);
	row->area = cols_dup(c);
	row->work = cols_dup(c);
	row->parent = cols_dup(c);
	row->state = (enum atoll_sandbox_state)cols_int(c, 0, ATOLL_SANDBOX_STATE_END_ - 1);
	row->stale = cols_bool(c);
	row->error = cols_dup(c);
	row->boot_id = cols_dup(c);
	row->exec_n = cols_u64(c);
	row->generation = cols_u64(c);
	row->t0_ns = cols_int(c, INT64_MIN, INT64_MAX);
	row->bytes = cols_u64(c);
	row->entries = cols_u64(c);
}

static void done_sandbox(void *item)
{
	sandbox_row_done(item);
}

#define SANDBOX_ROWS                                        \
	((struct rows){ .size = sizeof(struct sandbox_row), \
	                .read = read_sandbox,               \
	                .done = done_sandbox })

/* The lowest number free in the plan. */
struct numbering {
	bool taken[LIMIT_SANDBOXES];
};

static int note_number(void *ctx, const struct value *cols, size_t count)
{
	struct numbering *n = ctx;
	const char *dash =
		count == 1 && cols[0].type == VALUE_TEXT ? strchr(cols[0].text, '-') : NULL;
	char *end = NULL;
	unsigned long number = dash ? strtoul(dash + 1, &end, 10) : LIMIT_SANDBOXES;

	if (number >= LIMIT_SANDBOXES || *end != '\0')
		return -ATOLL_E_DAMAGED;
	n->taken[number] = true;
	return 0;
}

static int make_id(struct registry *r, struct sandbox_row *row, struct error *err)
{
	static const char sql[] = "SELECT id FROM sandbox WHERE plan = ?1";
	struct numbering n = { 0 };
	int k = registry_read(r, sql, ARGS(TEXT_VALUE(row->plan)), note_number, &n, err);

	if (k < 0)
		return k;
	for (unsigned i = 0; i < LIMIT_SANDBOXES; i++) {
		if (n.taken[i])
			continue;
		(void)snprintf(row->id, sizeof(row->id), "%s-%u", row->plan, i & 0xffu);
		return 0;
	}
	return error_set(err, -ATOLL_E_TOO_BIG, "a plan has at most %d sandboxes", LIMIT_SANDBOXES);
}

static int add_news(struct registry *r, const struct sandbox_row *row,
                    enum atoll_sandbox_state state, const char *error, struct error *err)
{
	return news_add(r,
	                &(struct news_item){ .plan = row->plan,
	                                     .what = "sandbox",
	                                     .message = error,
	                                     .sandbox = row->id,
	                                     .sandbox_state = state },
	                err);
}

int registry_sandbox_insert(struct registry *r, struct sandbox_row *row, struct error *err)
{
	static const char sql[] =
		"INSERT INTO sandbox (id, plan, strategy, root, root_id, area, work, parent, "
		"state, stale, error, boot_id, exec_n, generation, t0_ns) VALUES "
		"(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) "
		"ON CONFLICT DO NOTHING RETURNING seq";
	int64_t seq = 0;
	int k = row->id[0] == '\0' ? make_id(r, row, err) : 0;

	if (k < 0)
		return k;
	k = rows_write_number(
		r, sql,
		ARGS(TEXT_VALUE(row->id), TEXT_VALUE(row->plan), TEXT_VALUE(row->strategy),
	             TEXT_VALUE(row->root), TEXT_VALUE(row->root_id), TEXT_VALUE(row->area),
	             TEXT_VALUE(row->work), TEXT_VALUE(row->parent), INT_VALUE(row->state),
	             INT_VALUE(row->stale), TEXT_VALUE(row->error), TEXT_VALUE(row->boot_id),
	             INT_VALUE(row->exec_n), INT_VALUE(row->generation), INT_VALUE(row->t0_ns)),
		&seq, err);
	if (k < 0)
		return k;
	if (k == 0)
		return error_set(err, -ATOLL_E_EXISTS, "a sandbox '%s' exists already", row->id);
	row->seq = (uint64_t)seq;
	return add_news(r, row, row->state, "", err);
}

static int not_found(const char *id, struct error *err)
{
	return error_set(err, -ATOLL_E_NOT_FOUND, "there is no sandbox with the id '%s'", id);
}

int registry_sandbox_get(struct registry *r, const char *id, struct sandbox_row *ret,
                         struct error *err)
{
	static const char sql[] = "SELECT " COLUMNS " FROM sandbox WHERE id = ?1";
	cleanup_rows struct rows rows = SANDBOX_ROWS;
	int k = rows_fetch(r, sql, ARGS(TEXT_VALUE(id)), &rows, err);

	if (k < 0)
		return k;
	if (rows.n == 0)
		return not_found(id, err);
	*ret = *(const struct sandbox_row *)rows.items;
	rows.done = NULL; /* its strings are the caller's now; the id is unique */
	return 0;
}

static int list(struct registry *r, const char *sql, struct args args, registry_sandbox_fn fn,
                void *ctx, struct error *err)
{
	cleanup_rows struct rows rows = SANDBOX_ROWS;
	const struct sandbox_row *boxes;
	int k = rows_fetch(r, sql, args, &rows, err);

	boxes = rows.items;
	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, &boxes[i]);
	return k < 0 ? k : 0;
}

int registry_sandbox_list(struct registry *r, const char *plan, registry_sandbox_fn fn, void *ctx,
                          struct error *err)
{
	static const char all[] = "SELECT " COLUMNS " FROM sandbox ORDER BY seq";
	static const char one[] = "SELECT " COLUMNS " FROM sandbox WHERE plan = ?1 ORDER BY seq";

	return plan ? list(r, one, ARGS(TEXT_VALUE(plan)), fn, ctx, err)
	            : list(r, all, NO_ARGS, fn, ctx, err);
}

struct above {
	const char *root;
	registry_root_fn fn;
	void *ctx;
};

static int tell_root(void *ctx, const struct value *cols, size_t count)
{
	const struct above *a = ctx;

	if (count != 1 || cols[0].type != VALUE_TEXT)
		return -ATOLL_E_DAMAGED;
	return a->fn(a->ctx, a->root, cols[0].text);
}

int registry_root_list_above(struct registry *r, const char *path, registry_root_fn fn, void *ctx,
                             struct error *err)
{
	static const char sql[] = "SELECT DISTINCT root_id FROM sandbox WHERE root = ?1";
	cleanup_free char *dir = xstrdup(path);
	struct above a = { .root = dir, .fn = fn, .ctx = ctx };
	char *slash;
	int k = 0;

	while (k >= 0 && (slash = strrchr(dir, '/')) != NULL && slash != dir) {
		*slash = '\0';
		k = registry_read(r, sql, ARGS(TEXT_VALUE(dir)), tell_root, &a, err);
	}
	return k < 0 ? k : 0;
}

int registry_sandbox_set_state(struct registry *r, const char *id, enum atoll_sandbox_state to,
                               const char *error, struct error *err)
{
	static const char sql[] = "UPDATE sandbox SET state = ?2, error = ?3 WHERE id = ?1";
	cleanup_sandbox_row struct sandbox_row row = SANDBOX_ROW_INIT;
	int k = registry_sandbox_get(r, id, &row, err);

	if (k < 0)
		return k;
	if (!sandbox_state_allows(row.state, to))
		return error_set(err, -ATOLL_E_STATE, "sandbox '%s' is %s and cannot become %s", id,
		                 atoll_sandbox_state_name(row.state), atoll_sandbox_state_name(to));
	k = registry_write(r, sql, ARGS(TEXT_VALUE(id), INT_VALUE(to), TEXT_VALUE(error)), NULL,
	                   NULL, err);
	return k < 0 ? k : add_news(r, &row, to, error, err);
}

int registry_sandbox_update(struct registry *r, const struct sandbox_row *row, struct error *err)
{
	static const char sql[] =
		"UPDATE sandbox SET strategy = ?2, root_id = ?3, area = ?4, work = ?5, "
		"parent = ?6, stale = ?7, error = ?8, boot_id = ?9, exec_n = ?10, "
		"generation = ?11, t0_ns = ?12 WHERE id = ?1";
	int k = registry_write(
		r, sql,
		ARGS(TEXT_VALUE(row->id), TEXT_VALUE(row->strategy), TEXT_VALUE(row->root_id),
	             TEXT_VALUE(row->area), TEXT_VALUE(row->work), TEXT_VALUE(row->parent),
	             INT_VALUE(row->stale), TEXT_VALUE(row->error), TEXT_VALUE(row->boot_id),
	             INT_VALUE(row->exec_n), INT_VALUE(row->generation), INT_VALUE(row->t0_ns)),
		NULL, NULL, err);

	if (k == 0)
		return not_found(row->id, err);
	return k < 0 ? k : 0;
}

int registry_sandbox_set_usage(struct registry *r, const char *id, uint64_t bytes, uint64_t entries,
                               struct error *err)
{
	static const char sql[] = "UPDATE sandbox SET bytes = ?2, entries = ?3 WHERE id = ?1";
	int k = registry_write(r, sql, ARGS(TEXT_VALUE(id), INT_VALUE(bytes), INT_VALUE(entries)),
	                       NULL, NULL, err);

	return k < 0 ? k : 0;
}

static void read_brief(struct cols *c, void *item)
{
	struct sandbox_brief *brief = item;

	cols_text(c, brief->plan, sizeof(brief->plan));
	brief->root = cols_dup(c);
	brief->strategy = cols_dup(c);
	brief->state = (enum atoll_sandbox_state)cols_int(c, 0, ATOLL_SANDBOX_STATE_END_ - 1);
	brief->bytes = cols_u64(c);
}

static void done_brief(void *item)
{
	struct sandbox_brief *brief = item;

	free(brief->root);
	free(brief->strategy);
}

int registry_sandbox_briefs(struct registry *r, const char *plan, registry_brief_fn fn, void *ctx,
                            struct error *err)
{
#define BRIEF "SELECT plan, root, strategy, state, bytes FROM sandbox "
	static const char all[] = BRIEF "ORDER BY seq";
	static const char one[] = BRIEF "WHERE plan = ?1 ORDER BY seq";
	cleanup_rows struct rows rows = { .size = sizeof(struct sandbox_brief),
		                          .read = read_brief,
		                          .done = done_brief };
	const struct sandbox_brief *briefs;
	int k = plan ? rows_fetch(r, one, ARGS(TEXT_VALUE(plan)), &rows, err)
	             : rows_fetch(r, all, NO_ARGS, &rows, err);

	briefs = rows.items;
	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, &briefs[i]);
	return k < 0 ? k : 0;
}

int registry_sandbox_delete(struct registry *r, const char *id, struct error *err)
{
	static const char sql[] = "DELETE FROM sandbox WHERE id = ?1";
	cleanup_sandbox_row struct sandbox_row row = SANDBOX_ROW_INIT;
	int k = registry_sandbox_get(r, id, &row, err);

	if (k >= 0)
		k = registry_write(r, sql, ARGS(TEXT_VALUE(id)), NULL, NULL, err);
	if (k < 0 || row.state == ATOLL_SANDBOX_CLEANED_UP) /* said before */
		return k < 0 ? k : 0;
	return add_news(r, &row, ATOLL_SANDBOX_CLEANED_UP, "", err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a transaction: the plan's sandboxes as participants, in their order. */
#include "txn/txn-impl.h"

#include <stdlib.h>
#include <string.h>

#include "util/mem.h"

struct load {
	struct txn *t;
	size_t cap;
	struct error *err;
};

static struct sandbox_row row_copy(const struct sandbox_row *row)
{
	struct sandbox_row c = *row;

	c.strategy = xstrdup(row->strategy);
	c.root = xstrdup(row->root);
	c.root_id = xstrdup(row->root_id);
	c.area = xstrdup(row->area);
	c.work = xstrdup(row->work);
	c.parent = xstrdup(row->parent);
	c.error = xstrdup(row->error);
	c.boot_id = xstrdup(row->boot_id);
	return c;
}

/* PATH relative to ROOT, or NULL when it is not below it. */
static const char *below(const char *path, const char *root)
{
	size_t len = strlen(root);

	return strncmp(path, root, len) == 0 && path[len] == '/' ? path + len + 1 : NULL;
}

static void list_sides(struct txn_part *p, const char *root, const char *strategy)
{
	for (const char *const *side = strategy_sides(strategy); *side; side++) {
		char *path = xasprintf("%s%s", root, *side);

		strlist_add(p->excludes, path);
		free(path);
	}
}

/* An area that had to lie inside the root is no part of the resource, nor is the directory ".atoll-<uid>"
 * that holds it; the root of another sandbox
 * below it is that one's business. */
static void list_excludes(struct txn *t, struct txn_part *p)
{
	for (size_t i = 0; i < t->n; i++) {
		const char *root = below(t->parts[i].row.root, p->row.root);
		const char *area = below(t->parts[i].row.area, p->row.root);

		if (root) {
			strlist_add(p->excludes, root);
			list_sides(p, root, t->parts[i].row.strategy);
		}
		if (area) {
			char *around = xstrndup(area, (size_t)(strrchr(area, '/') - area));

			if (!strlist_has(p->excludes, around))
				strlist_add(p->excludes, around);
			free(around);
		}
	}
}

static int load_row(void *ctx, const struct sandbox_row *row)
{
	struct load *l = ctx;
	struct txn_part *p;
	int r;

	if (row->state == ATOLL_SANDBOX_CLEANED_UP)
		return 0;
	r = grow((void **)&l->t->parts, &l->cap, l->t->n + 1, sizeof(*l->t->parts));
	if (r < 0)
		return r;
	p = &l->t->parts[l->t->n++];
	*p = (struct txn_part){ .row = row_copy(row) };
	return 0;
}

static int make_participant(struct txn *t, struct txn_part *p, struct error *err)
{
	p->excludes = xcalloc(1, sizeof(*p->excludes));
	list_excludes(t, p);
	return participant_new(
		&(struct participant_options){
			.id = p->row.id,
			.plan = t->plan.name,
			.strategy = p->row.strategy,
			.root = p->row.root,
			.area = p->row.area,
			.work = p->row.work,
			.generation = p->row.generation,
			.stale = p->row.stale,
			.excludes = p->excludes,
			.store_fd = registry_home_fd(t->reg),
		},
		&p->part, err);
}

/* ---- order ---- */

static struct txn_part *find(struct txn *t, const char *id)
{
	for (size_t i = 0; i < t->n; i++)
		if (strcmp(t->parts[i].row.id, id) == 0)
			return &t->parts[i];
	return NULL;
}

/* Children above a participant in the tree of declared parents; the cycle's length bounds it. */
static int height(struct txn *t, const struct txn_part *p, size_t seen, struct error *err)
{
	int best = 0;

	if (seen > t->n)
		return error_set(err, -ATOLL_E_INVALID, "'%s' is among its own parents",
		                 p->row.root);
	for (size_t i = 0; i < t->n; i++) {
		int h;

		if (strcmp(t->parts[i].row.parent, p->row.id) != 0)
			continue;
		h = height(t, &t->parts[i], seen + 1, err);
		if (h < 0)
			return h;
		if (h + 1 > best)
			best = h + 1;
	}
	return best;
}

struct ranked {
	struct txn_part part;
	int rank;
	int height;
};

/* Higher ones commit later: what others may have built on before it is taken back, what can never be
 * taken back, what cannot even promise to succeed. */
static int rank(const struct txn_part *p)
{
	if (!participant_can(p->part, ATOLL_CAP_PREPARE))
		return 3;
	if (!participant_can(p->part, ATOLL_CAP_UNDO))
		return 2;
	return participant_can(p->part, ATOLL_CAP_LATE) ? 1 : 0;
}

static int by_rank(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	if (x->height != y->height)
		return x->height < y->height ? -1 : 1;
	return x->part.row.seq < y->part.row.seq ? -1 : x->part.row.seq > y->part.row.seq;
}

/* The rank contradicts children first if such a child has a parent of a lower one. Where the relation
 * is only that one lies in the other, neither waits for the other. */
static int check_ranks(struct txn *t, struct error *err)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct txn_part *p = &t->parts[i];
		const struct txn_part *parent = find(t, p->row.parent);

		if (!parent || rank(p) <= rank(parent) || below(p->row.root, parent->row.root))
			continue;
		return error_set(err, -ATOLL_E_CANNOT_PREPARE,
		                 "'%s' (%s) must be committed late, since it is hard to take "
		                 "back, but it is a child of '%s' (%s), which must come after it",
		                 p->row.root, p->row.strategy, parent->row.root,
		                 parent->row.strategy);
	}
	return 0;
}

static int sort_parts(struct txn *t, struct error *err)
{
	struct ranked *v = xcalloc(t->n + 1, sizeof(*v));
	int r = check_ranks(t, err);

	for (size_t i = 0; i < t->n && r >= 0; i++) {
		v[i].part = t->parts[i];
		v[i].rank = rank(&t->parts[i]);
		v[i].height = height(t, &t->parts[i], 0, err);
		r = v[i].height;
	}
	if (r >= 0 && t->n) {
		qsort(v, t->n, sizeof(*v), by_rank);
		for (size_t i = 0; i < t->n; i++)
			t->parts[i] = v[i].part;
	}
	free(v);
	return r < 0 ? r : 0;
}

int txn_open(struct txn *t, struct registry *reg, const struct plan_row *plan, uint64_t epoch,
             struct atoll_result *res, struct error *err)
{
	struct load l = { .t = t, .err = err };
	int r;

	*t = (struct txn){ .reg = reg, .plan = *plan, .res = res, .retain_ms = TXN_RETAIN_MS };
	/* A power cut may have set the lock file back; the holder is the holder all the same. */
	t->epoch = epoch > plan->epoch ? epoch : plan->epoch;
	t->sync = syncset_new();
	r = registry_sandbox_list(reg, plan->id, load_row, &l, err);
	for (size_t i = 0; i < t->n && r >= 0; i++)
		r = make_participant(t, &t->parts[i], err);
	if (r >= 0)
		r = sort_parts(t, err);
	return r;
}

void txn_done(struct txn *t)
{
	for (size_t i = 0; i < t->n; i++) {
		participant_free(t->parts[i].part);
		selection_free(t->parts[i].select);
		sandbox_row_done(&t->parts[i].row);
		if (t->parts[i].excludes)
			strlist_done(t->parts[i].excludes);
		free(t->parts[i].excludes);
	}
	free(t->parts);
	syncset_free(t->sync);
	*t = TXN_INIT;
}

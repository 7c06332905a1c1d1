/* SPDX-License-Identifier: Apache-2.0 */
/* Which plans a recovery settled. */
#include "answer/recovery.h"

#include "answer/answer.h"

#include <string.h>

struct look {
	struct strlist *names;
	const char *id; /* NULL: of all plans */
};

static int note_doubt(void *user, const struct atoll_plan_info *info)
{
	struct look *l = user;

	if (info->in_doubt && (!l->id || strcmp(l->id, info->id) == 0))
		strlist_add(l->names, info->name);
	return 0;
}

static int look(struct atoll *a, const struct atoll_plan *plan, struct strlist *names,
                struct atoll_result *res)
{
	struct look l = { names, plan ? atoll_plan_id(plan) : NULL };

	return atoll_plan_list(a, note_doubt, &l, res);
}

int recovery_run(struct recovery *v, struct atoll *a, const struct atoll_plan *plan, bool accept,
                 struct atoll_result *res)
{
	int r = look(a, plan, &v->before, res);

	if (r >= 0)
		r = v->left = atoll_recover(a, plan ? atoll_plan_id(plan) : NULL, accept, res);
	/* Without a result: what recovery said is still to be shown. */
	if (r >= 0 && look(a, plan, &v->after, NULL) < 0)
		r = look(a, plan, &v->after, res);
	return r < 0 ? r : 0;
}

static void put_names(struct json *j, const char *key, const struct strlist *all,
                      const struct strlist *without)
{
	json_open_array(j, key);
	for (size_t i = 0; i < all->n; i++)
		if (!without || !strlist_has(without, all->v[i]))
			json_string(j, NULL, all->v[i]);
	json_close(j);
}

void recovery_answer(struct json *j, const struct recovery *v, const struct atoll_result *res)
{
	put_names(j, "recovered", &v->before, &v->after);
	put_names(j, "left", &v->after, NULL);
	answer_result(j, res);
}

void recovery_done(struct recovery *v)
{
	strlist_done(&v->before);
	strlist_done(&v->after);
}

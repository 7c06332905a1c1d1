/* SPDX-License-Identifier: Apache-2.0 */
/* Measured before, looked for after. */
#include "answer/remains.h"

#include "plan/usage.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct search {
	struct remains *m;
	struct atoll *a;
	bool force;
};

int remains_note(void *user, const char *plan_id, const char *path)
{
	struct remains *m = user;
	struct usage u = { 0 };

	if (strlist_has(&m->paths, path))
		return 0;
	if (grow((void **)&m->bytes, &m->cap, m->paths.n + 1, sizeof(*m->bytes)) < 0)
		return -ENOMEM;
	usage_add(path, &u);
	strlist_add(&m->paths, path);
	strlist_add(&m->owners, plan_id);
	m->bytes[m->paths.n - 1] = u.bytes;
	return 0;
}

static int note_plan(void *user, const struct atoll_plan_info *info)
{
	struct search *s = user;
	struct remains *m = s->m;
	struct atoll_plan *p = NULL;
	int r = 0;

	if (grow((void **)&m->plans, &m->plans_cap, m->n_plans + 1, sizeof(*m->plans)) < 0)
		return -ENOMEM;
	m->plans[m->n_plans++] = (struct remains_plan){ xstrdup(info->id), xstrdup(info->name) };
	if (s->force && info->abandoned && atoll_plan_find(s->a, info->id, &p, NULL) >= 0)
		r = atoll_plan_paths(p, remains_note, s->m, NULL);
	atoll_plan_free(p);
	return r;
}

void remains_look(struct remains *m, struct atoll *a, bool force)
{
	struct search s = { m, a, force };

	(void)atoll_scan(a, remains_note, m, NULL);
	(void)atoll_plan_list(a, note_plan, &s, NULL);
}

static bool is_gone(const struct remains *m, size_t i)
{
	return access(m->paths.v[i], F_OK) < 0 && errno == ENOENT;
}

uint64_t remains_freed(const struct remains *m)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < m->paths.n; i++)
		if (is_gone(m, i))
			sum += m->bytes[i];
	return sum;
}

static uint64_t freed_of(const struct remains *m, const char *plan_id)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < m->paths.n; i++)
		if (strcmp(m->owners.v[i], plan_id) == 0 && is_gone(m, i))
			sum += m->bytes[i];
	return sum;
}

void remains_answer_plans(struct json *j, const struct remains *m, struct atoll *a)
{
	json_open_array(j, "plans");
	for (size_t i = 0; i < m->n_plans; i++) {
		const struct remains_plan *was = &m->plans[i];
		struct atoll_plan *p = NULL;

		if (atoll_plan_find(a, was->id, &p, NULL) != -ATOLL_E_NOT_FOUND) {
			atoll_plan_free(p);
			continue;
		}
		json_open_object(j, NULL);
		json_string(j, "id", was->id);
		json_string(j, "name", was->name);
		json_uint(j, "bytes", freed_of(m, was->id));
		json_close(j);
	}
	json_close(j);
}

void remains_answer(struct json *j, const struct remains *m, const char *plan_id, const char *path)
{
	json_open_object(j, NULL);
	json_string(j, "plan", plan_id);
	json_bytes(j, "path", path);
	json_uint(j, "bytes", m->bytes[m->paths.n - 1]);
	json_close(j);
}

void remains_done(struct remains *m)
{
	for (size_t i = 0; i < m->n_plans; i++) {
		free(m->plans[i].id);
		free(m->plans[i].name);
	}
	free(m->plans);
	strlist_done(&m->paths);
	strlist_done(&m->owners);
	free(m->bytes);
}

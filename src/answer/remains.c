/* SPDX-License-Identifier: Apache-2.0 */
/* Measured before, looked for after. */
#include "answer/remains.h"

#include "plan/usage.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct search {
	struct remains *m;
	struct atoll *a;
};

int remains_note(void *user, const char *plan_id, const char *path)
{
	struct remains *m = user;
	struct usage u = { 0 };

	(void)plan_id;
	if (strlist_has(&m->paths, path))
		return 0;
	if (grow((void **)&m->bytes, &m->cap, m->paths.n + 1, sizeof(*m->bytes)) < 0)
		return -ENOMEM;
	usage_add(path, &u);
	strlist_add(&m->paths, path);
	m->bytes[m->paths.n - 1] = u.bytes;
	return 0;
}

static int note_abandoned(void *user, const struct atoll_plan_info *info)
{
	struct search *s = user;
	struct atoll_plan *p = NULL;
	int r = 0;

	if (info->abandoned && atoll_plan_find(s->a, info->id, &p, NULL) >= 0)
		r = atoll_plan_paths(p, remains_note, s->m, NULL);
	atoll_plan_free(p);
	return r;
}

void remains_look(struct remains *m, struct atoll *a, bool force)
{
	struct search s = { m, a };

	(void)atoll_scan(a, remains_note, m, NULL);
	if (force)
		(void)atoll_plan_list(a, note_abandoned, &s, NULL);
}

uint64_t remains_freed(const struct remains *m)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < m->paths.n; i++)
		if (access(m->paths.v[i], F_OK) < 0 && errno == ENOENT)
			sum += m->bytes[i];
	return sum;
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
	strlist_done(&m->paths);
	free(m->bytes);
}

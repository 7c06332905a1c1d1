/* SPDX-License-Identifier: Apache-2.0 */
/* Names, and promises about them. */
#include "postgres/names.h"

#include "util/mem.h"

#include <stdlib.h>
#include <string.h>

void verb_done(struct verb *v)
{
	free(v->text);
	free(v->name);
	*v = (struct verb){ .kind = SQL_PLAIN };
}

struct named *named_find(struct named *list, const char *name)
{
	while (list && strcmp(list->name, name) != 0)
		list = list->next;
	return list;
}

static void free_named(struct named *n)
{
	if (!n)
		return;
	free(n->name);
	free(n->server_name);
	free(n->body);
	verb_done(&n->verb);
	free(n);
}

static struct named *take_out(struct named **list, const char *name)
{
	for (; *list; list = &(*list)->next) {
		struct named *n = *list;

		if (strcmp(n->name, name) != 0)
			continue;
		*list = n->next;
		n->next = NULL;
		return n;
	}
	return NULL;
}

void named_drop(struct named **list, const char *name)
{
	free_named(take_out(list, name));
}

void named_clear(struct named **list)
{
	while (*list) {
		struct named *n = *list;

		*list = n->next;
		free_named(n);
	}
}

void named_clear_names(struct named **list)
{
	struct named *unnamed = take_out(list, "");

	named_clear(list);
	*list = unnamed;
}

struct named *named_put(struct named **list, const char *name, const char *server_name,
                        struct named **ret_before)
{
	struct named *before = take_out(list, name);
	struct named *n = xcalloc(1, sizeof(*n));

	if (ret_before)
		*ret_before = before;
	else
		free_named(before);
	*n = (struct named){ .next = *list,
		             .name = xstrdup(name),
		             .server_name = xstrdup(server_name) };
	*list = n;
	return n;
}

/* ---- promises ---- */

struct promise *promise_add(struct promises *p, char type)
{
	if (p->first == p->n)
		p->first = p->n = 0;
	if (grow((void **)&p->v, &p->cap, p->n + 1, sizeof(*p->v)) < 0)
		return NULL;
	p->v[p->n] = (struct promise){ .type = type };
	return &p->v[p->n++];
}

bool promises_put(struct promises *p, struct named **list, const char *name,
                  const char *server_name)
{
	for (size_t i = p->first; i < p->n; i++) {
		if (p->v[i].list != list || strcmp(p->v[i].name, name) != 0)
			continue;
		free_named(take_out(&p->v[i].before, name));
		(void)named_put(&p->v[i].before, name, server_name, NULL);
		return true;
	}
	return false;
}

const struct promise *promise_next(const struct promises *p)
{
	return p->first < p->n ? &p->v[p->first] : NULL;
}

void promise_keep(struct promises *p)
{
	struct promise *kept = &p->v[p->first++];

	free(kept->name);
	free_named(kept->before);
	verb_done(&kept->verb);
}

static void take_back(struct promise *p)
{
	if (p->list) {
		named_drop(p->list, p->name);
		if (p->before) {
			p->before->next = *p->list;
			*p->list = p->before;
		}
	}
	free(p->name);
	verb_done(&p->verb);
}

bool promises_break(struct promises *p, bool unnamed)
{
	const struct promise *failed = promise_next(p);
	/* The server forgets the statement without a name before it reads another. */
	bool forgets = failed && failed->type == 'P' && failed->list && !*failed->name;
	struct named **list = forgets ? failed->list : NULL;

	if (failed)
		unnamed = failed->had_unnamed && !failed->displaces;
	while (p->n > p->first)
		take_back(&p->v[--p->n]);
	if (list)
		named_drop(list, "");
	return unnamed;
}

void promises_done(struct promises *p)
{
	for (size_t i = p->first; i < p->n; i++) {
		free(p->v[i].name);
		free_named(p->v[i].before);
		verb_done(&p->v[i].verb);
	}
	free(p->v);
	*p = (struct promises){ 0 };
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at a server. */
#include "strategy/database.h"

#include <stdlib.h>
#include <string.h>

#include "strategy/postgres.h"
#include "util/mem.h"

void database_facts_done(struct database_facts *f)
{
	free(f->version);
	free(f->database);
	free(f->user);
	free(f->final);
	free(f->taken);
	*f = DATABASE_FACTS_INIT;
}

bool database_is_url(const char *text)
{
	return strncmp(text, "postgres://", 11) == 0 || strncmp(text, "postgresql://", 13) == 0;
}

char *pg_line_of(const struct strbuf *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *s = strbuf_str(text); *s; s += strcspn(s, "\n") + 1)
		if (strncmp(s, word, len) == 0 && s[len] == ' ')
			return xstrndup(s + len + 1, strcspn(s + len + 1, "\n"));
	return NULL;
}

int database_look(const char *url, struct database_facts *ret, struct error *err)
{
	static const char *const argv[] = { "identify", NULL };
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	int r = pg_call(argv, url, &out, err);

	if (r < 0)
		return r;
	*ret = (struct database_facts){
		.version = pg_line_of(&out, "version"),
		.database = pg_line_of(&out, "database"),
		.user = pg_line_of(&out, "user"),
		.final = pg_line_of(&out, "final"),
		.taken = pg_line_of(&out, "taken"),
	};
	return 0;
}

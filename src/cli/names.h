/* SPDX-License-Identifier: Apache-2.0 */
/* What a word on the command line names in a plan. */
#ifndef CLI_NAMES_H
#define CLI_NAMES_H

#include "cli/cli.h"
#include "util/list.h"

/* The changes of a plan, which are read when first asked for. */
struct names_lookup {
	struct cli *c;
	struct strlist *changed; /* whole paths; NULL: not read yet */
	bool may_be_gone;        /* a path in a resource need not be there, nor be changed */
};
#define NAMES_LOOKUP_INIT(cli) ((struct names_lookup){ .c = (cli) })
void names_lookup_done(struct names_lookup *l);
#define cleanup_names_lookup __attribute__((__cleanup__(names_lookup_done)))

/*
 * The absolute paths that WORDS (N of them) name, in RET. A word is an absolute path, or relative to
 * the current directory, or, where that names nothing in the plan, relative to a resource's root.
 * It names what is there, or what the plan changed, at, below or above a root.
 * -ATOLL_E_NOT_FOUND for one that names nothing, -ATOLL_E_AMBIGUOUS.
 */
int names_resolve(struct names_lookup *l, char *const *words, size_t n, struct strlist *ret,
                  struct error *err);

/* The same of the values of option NAME. */
int names_of_option(struct names_lookup *l, const char *name, struct strlist *ret,
                    struct error *err);
/* As the library takes them: with NULL at the end. The strings stay the list's; the caller frees. */
const char **names_array(const struct strlist *list);

#endif

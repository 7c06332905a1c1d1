/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be wished for a command beyond its words, by name: the options of atoll_plan_exec_with(),
 * which are those of `atoll exec`, `run` and `shell`. One table; a name that is not in it is refused,
 * so that nothing asked for is silently left out.
 */
#ifndef PLAN_EXEC_OPTION_H
#define PLAN_EXEC_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <atoll.h>
#include "exec/exec.h"
#include "strategy/result.h"
#include "util/error.h"
#include "util/list.h"

struct exec_wishes {
	struct strlist env; /* as exec_options.setenv */
	const char *net;    /* as exec_options.net */
	int64_t limits[REQUEST_LIMIT_END_];
	int64_t transcript; /* bytes of output to keep; 0: none */
	const char *job;    /* NULL: it is none */
	bool shared;
	int stdio[3]; /* as exec_options.stdio */
	int control;  /* FD_NONE: none */
	bool terminal;
	bool own_terminal;        /* as exec_options.own_terminal */
	bool unfenced;            /* it may run where there are no namespaces */
	const char *private_dirs; /* of the home, with colons between them; or NULL */
	const char *at; /* where the first resource is to be seen; NULL: at its own path */
};
#define EXEC_WISHES_INIT ((struct exec_wishes){ .stdio = { -1, -1, -1 }, .control = -1 })
void exec_wishes_done(struct exec_wishes *w);
#define cleanup_exec_wishes __attribute__((__cleanup__(exec_wishes_done)))

/* Reads them in order; a later one wins. -ATOLL_E_INVALID. */
int exec_wishes_read(struct exec_wishes *w, const struct atoll_exec_option *v, size_t n,
                     struct error *err);
/* Their part of OPT; both must live until the wait. CONTROL: of the wishes', or with FD_NONE. */
void exec_wishes_apply(const struct exec_wishes *w, struct control *control,
                       struct exec_options *opt);
/* Where a command begins, GIVEN or (NULL) here; the caller frees. It may be there for the command alone,
 * so nobody looks at what it is. NULL and errno. */
char *exec_absolute_cwd(const char *given);
/* After the command: what held it to its limits, as notes. */
void exec_wishes_report(const struct exec_wishes *w, const struct exec_usage *usage,
                        struct atoll_result *res);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* git, and the environment it is run in: free of the caller's GIT_*, without hooks, prompts, background
 * maintenance or network. */
#ifndef UTIL_GIT_ENV_H
#define UTIL_GIT_ENV_H

#include "util/list.h"

/* Settings that git_env_base() gives as GIT_CONFIG_KEY_0 and so on; the caller may add more from this
 * number on, and says GIT_CONFIG_COUNT. */
#define GIT_ENV_CONFIGS ((size_t)9)

/* NAME=VALUE, what is always so. */
void git_env_base(struct strlist *env);
/* Adds to ENV, of a command that begins with it and our own environment, what keeps its git from collecting
 * garbage unasked: settings that come after those that it has there. */
void git_env_no_auto_gc(struct strlist *env);
/* Absolute, as PATH has it; NULL: there is no git. Caller frees. */
char *git_env_program(void);

#endif

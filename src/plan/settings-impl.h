/* SPDX-License-Identifier: Apache-2.0 */
/* Between reading settings and writing them. */
#ifndef PLAN_SETTINGS_IMPL_H
#define PLAN_SETTINGS_IMPL_H

#include "plan/settings.h"

/* 1 and the text; 0: there is no such file, or it is not to be trusted, which REMARKS then says. */
int settings_read_file(enum settings_scope scope, const char *path, char **ret, size_t *ret_len,
                       struct strlist *remarks);

/* settings_each() of a text that was read. */
int settings_tell(const char *path, const char *text, size_t len, settings_entry_fn fn, void *user,
                  struct error *err);

#endif

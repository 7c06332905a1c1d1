/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of Mercurial (.hg/hgrc) and Jujutsu (.jj/repo/config.toml), line by line: few are ever written
 * there by the programs themselves, and only those are harmless.
 */
#ifndef DIFF_OTHER_SETTINGS_H
#define DIFF_OTHER_SETTINGS_H

#include <stddef.h>
#include "util/list.h"

/* Adds to RET each line that may start a program, with its section. */
void hg_settings_programs(const char *text, size_t len, struct strlist *ret);
void jj_settings_programs(const char *text, size_t len, struct strlist *ret);

#endif

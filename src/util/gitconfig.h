/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files in the syntax of git-config(1), read and edited as text. Sections, subsections, quotes,
 * escapes, comments and continued lines are git's; white space inside a value stays as it is. Not
 * here: include, and NUL bytes, which make a file unreadable.
 *
 * A key is "section.name" or "section.subsection.name": section and name in lower case, whatever
 * the file has; the subsection as it stands, dots included.
 */
#ifndef UTIL_GITCONFIG_H
#define UTIL_GITCONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/strbuf.h"

struct gitconfig_entry {
	const char *key;
	const char *value; /* NULL: there was no '=', which is a true boolean */
	unsigned line;     /* where it begins, from 1 */
	/* Where it stands, in bytes: the name up to the last character of the value. */
	size_t begin, end;
};

/* Strings are valid during the callback only. A negative answer ends the reading. */
typedef int (*gitconfig_fn)(void *user, const struct gitconfig_entry *e);

/* 0, what FN answered, or -EINVAL: *ret_line is the line that is wrong. Entries before it were
 * told. RET_LINE may be NULL. */
int gitconfig_read(const char *text, size_t len, gitconfig_fn fn, void *user, unsigned *ret_line);

/* The same, and FN is told of each section's header, too: its key ends with a dot, its value is NULL. */
int gitconfig_read_sections(const char *text, size_t len, gitconfig_fn fn, void *user,
                            unsigned *ret_line);

/* TEXT with KEY set to VALUE: the last entry of that key is changed where it stands, else one is
 * added to the last part of its section, else a section at the end. Every other byte stays. VALUE
 * NULL: all entries of the key are left out; -ENOENT when there is none. -EINVAL: TEXT cannot be
 * read (*ret_line), or KEY cannot be written (*ret_line 0). */
int gitconfig_edit(const char *text, size_t len, const char *key, const char *value,
                   struct strbuf *ret, unsigned *ret_line);

/* As git takes them: true yes on, false no off and "", or a number. -EINVAL. */
int gitconfig_bool(const char *value, bool *ret);
/* Decimal, 0x... or 0...; k, m, g behind it are powers of 1024. -EINVAL, -ERANGE. */
int gitconfig_int(const char *value, int64_t *ret);

#endif

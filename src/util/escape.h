/* SPDX-License-Identifier: Apache-2.0 */
/* Paths shown to people: control bytes, bidi controls and invalid UTF-8 become \xNN or \u{NNNN}
 * escapes, a backslash becomes two, so a name can neither move the cursor nor pose as another. */
#ifndef UTIL_ESCAPE_H
#define UTIL_ESCAPE_H

#include <stddef.h>
#include "util/strbuf.h"

void escape_add(struct strbuf *sb, const char *s, size_t len);
char *escape_dup(const char *s); /* caller frees */

#endif

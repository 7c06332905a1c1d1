/* SPDX-License-Identifier: Apache-2.0 */
/* What a URL means, and whether that database can be worked with. See protocol.h. */
#ifndef POSTGRES_IDENTIFY_H
#define POSTGRES_IDENTIFY_H

#include "util/error.h"
#include "util/strbuf.h"

/* The lines go into OUT. */
int identify(const char *url, struct strbuf *out, struct error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What works on this host and what does not. Everything is looked at, also past what is bad. */
#include "plan/doctor.h"

#include <stdarg.h>
#include <stdlib.h>

#include "plan/doctor-impl.h"
#include "strategy/database.h"
#include "util/strbuf.h"

void doctor_say(struct doctor *d, const struct doctor_finding *how, const char *fmt, ...)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	struct doctor_finding finding = *how;
	va_list ap;

	va_start(ap, fmt);
	strbuf_vprintf(&sb, fmt, ap);
	va_end(ap);
	finding.text = strbuf_str(&sb);
	if (d->unasked && finding.level == DOCTOR_BAD) {
		finding.level = DOCTOR_WARNING;
		finding.code = 0;
	}
	d->fn(d->user, &finding);
}

void doctor_examine(const char *path, doctor_fn fn, void *user)
{
	struct doctor d = { .fn = fn, .user = user };

	doctor_host(&d);
	doctor_store(&d);
	d.unasked = !path;
	if (path && database_is_url(path))
		doctor_database(&d, path);
	else
		doctor_directory(&d, path ? path : ".");
	store_close(d.a);
}

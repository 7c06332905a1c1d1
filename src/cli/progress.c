/* SPDX-License-Identifier: Apache-2.0 */
/* The line of progress. */
#include "cli/progress.h"

#include "util/clock.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOW_AFTER_NS (300 * INT64_C(1000000))
#define MIB           (UINT64_C(1) << 20)

static struct {
	int64_t began_ns;
	volatile sig_atomic_t shown;
} line;

void progress_hide(void)
{
	if (line.shown)
		(void)fputs("\r\033[K", stderr);
	line.shown = false;
}

bool progress_shown(void)
{
	return line.shown;
}

static void show(void *user, const struct atoll_progress *p)
{
	char total[32] = "";

	(void)user;
	if (p->done) {
		progress_hide();
		return;
	}
	if (clock_boot_ns() - line.began_ns < SHOW_AFTER_NS)
		return;
	if (p->total)
		(void)snprintf(total, sizeof(total), " of %" PRIu64, p->total);
	(void)fprintf(stderr, "\r\033[K%s: %" PRIu64 "%s files", p->what, p->files, total);
	if (p->bytes)
		(void)fprintf(stderr, ", %" PRIu64 " MiB", p->bytes / MIB);
	(void)fflush(stderr);
	line.shown = true;
}

void progress_watch(struct cli *c)
{
	const char *term = getenv("TERM");

	if (c->json || c->paged || !isatty(STDERR_FILENO) || !term || strcmp(term, "dumb") == 0)
		return;
	line.began_ns = clock_boot_ns();
	atoll_set_progress(c->atoll, show, NULL);
}

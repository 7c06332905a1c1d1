/* SPDX-License-Identifier: Apache-2.0 */
/* How a plan stands, for people. */
#include "cli/plan-words.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#define SHORT_MAX 32

static bool is_same_day(const struct tm *a, const struct tm *b)
{
	return a->tm_year == b->tm_year && a->tm_yday == b->tm_yday;
}

void plan_until_words(int64_t real_ms, char out[PLAN_UNTIL_LEN])
{
	time_t then = (time_t)(real_ms / 1000), now = (time_t)(clock_real_ms() / 1000);
	struct tm at = { 0 }, today = { 0 }, tomorrow = { 0 };
	const char *form = "%Y-%m-%d %H:%M";

	(void)localtime_r(&then, &at);
	(void)localtime_r(&now, &today);
	tomorrow = today;
	tomorrow.tm_mday++;
	tomorrow.tm_hour = 12; /* there on every day */
	tomorrow.tm_isdst = -1;
	(void)mktime(&tomorrow);
	if (is_same_day(&at, &today))
		form = "%H:%M";
	else if (is_same_day(&at, &tomorrow))
		form = "tomorrow %H:%M";
	if (strftime(out, PLAN_UNTIL_LEN, form, &at) == 0)
		out[0] = '\0';
}

char *plan_short_path(const char *path)
{
	cleanup_free char *home = store_user_dir();
	cleanup_free char *full = home ? realpath(home, NULL) : NULL;
	size_t len = full ? strlen(full) : 0;

	return len > 1 && strncmp(path, full, len) == 0 && path[len] == '/'
	               ? xasprintf("~%s", path + len)
	               : xstrdup(path);
}

/* The length of an escaped line end, a tab or a blank at TEXT, or 0. */
static size_t blank_at(const char *text)
{
	static const char *const blanks[] = { "\\x0a", "\\x09", "\\x0d", " " };

	for (size_t i = 0; i < sizeof(blanks) / sizeof(blanks[0]); i++)
		if (strncmp(text, blanks[i], strlen(blanks[i])) == 0)
			return strlen(blanks[i]);
	return 0;
}

char *plan_short_command(const char *text, size_t max)
{
	char *out = xcalloc(strlen(text) + 1, 1);
	size_t n = 0;

	while (*text) {
		size_t len = blank_at(text);

		if (len == 0)
			out[n++] = *text;
		else if (n > 0 && out[n - 1] != ' ')
			out[n++] = ' ';
		text += len ? len : 1;
	}
	while (n > 0 && out[n - 1] == ' ')
		out[--n] = '\0';
	if (n <= max)
		return out;
	n = max - 3;
	while (n > 0 && ((unsigned char)out[n] & 0xc0) == 0x80)
		n--; /* no half characters */
	(void)strcpy(out + n, "...");
	return out;
}

/* What commits there are, where there are no changes. */
static char *settled_words(const struct atoll_plan_info *info)
{
	char until[PLAN_UNTIL_LEN];

	if (info->undo_until_ms == INT64_MAX)
		return xstrdup("committed, can be undone");
	if (info->undo_until_ms > 0) {
		plan_until_words(info->undo_until_ms, until);
		return xasprintf("committed, undo until %s", until);
	}
	if (info->state == ATOLL_PLAN_COMMITTED)
		return xstrdup("committed");
	if (info->state == ATOLL_PLAN_ROLLED_BACK)
		return xstrdup("undone");
	return xstrdup("no changes");
}

char *plan_state_words(const struct atoll_plan_info *info)
{
	if (info->starting)
		return xstrdup("being made");
	if (*info->running) {
		cleanup_free char *command = plan_short_command(info->running, SHORT_MAX);

		return xasprintf("running: %s", command);
	}
	if (info->in_doubt && *info->holder)
		return xasprintf("at work: %s", info->holder);
	if (info->in_doubt)
		return xstrdup("interrupted: atoll recover");
	if (!info->has_work || info->changes == 0)
		return settled_words(info);
	if (info->changes < 0)
		return xstrdup("may have changes");
	return xasprintf("%lld %s", (long long)info->changes,
	                 cli_plural((uint64_t)info->changes, "change", "changes"));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What happened, in order, and being woken for it. */
#include "registry/news.h"

#include "registry/rows-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define TRIM_EVERY 256
#define TRIM_MOST  1024
/* More than a machine can lose by going down: rows since the last synced transaction. */
#define BOOT_JUMP "1000000"

/* ---- writing ---- */

static int trim(struct registry *r, struct error *err)
{
	/* The oldest ones, if they are too old or there are too many after them. */
	static const char sql[] =
		"DELETE FROM news WHERE seq IN (SELECT o.seq FROM (SELECT seq, at_ms FROM news "
		"ORDER BY seq LIMIT ?3) AS o WHERE o.seq < (SELECT max(seq) FROM news) AND "
		"(o.at_ms < ?1 OR o.seq <= (SELECT seq FROM news ORDER BY seq DESC LIMIT 1 OFFSET "
		"?2))) RETURNING seq";
	static const char note[] = "INSERT INTO meta (key, value) VALUES ('news-let-go', ?1) "
				   "ON CONFLICT (key) DO UPDATE SET value = excluded.value";
	int64_t max_age_ms, max_rows, last = 0, now = clock_real_ms();
	char text[24];
	int k;

	registry_log_limits(r, &max_age_ms, &max_rows);
	k = rows_write_greatest(r, sql,
	                        ARGS(INT_VALUE(max_age_ms < 0 ? INT64_MIN : now - max_age_ms),
	                             INT_VALUE(max_rows < 0 ? INT64_MAX : max_rows),
	                             INT_VALUE(TRIM_MOST)),
	                        &last, err);
	if (k <= 0)
		return k;
	(void)snprintf(text, sizeof(text), "%lld", (long long)last);
	k = registry_write(r, note, ARGS(TEXT_VALUE(text)), NULL, NULL, err);
	return k < 0 ? k : 0;
}

int news_add(struct registry *r, const struct news_item *item, struct error *err)
{
	/* A plan that is gone was there a moment ago. */
	static const char add[] =
		"INSERT INTO news (seq, at_ms, plan, name, what, code, message, state, sandbox, "
		"sandbox_state) SELECT coalesce((SELECT max(seq) FROM news), 0) + CASE WHEN "
		"coalesce((SELECT value FROM meta WHERE key = 'news-boot'), ?1) = ?1 THEN 1 "
		"ELSE " BOOT_JUMP " END, ?2, ?3, coalesce((SELECT name FROM plan WHERE id = ?3), "
		"(SELECT name FROM news WHERE plan = ?3 ORDER BY seq DESC LIMIT 1), ''), ?4, ?5, "
		"?6, coalesce((SELECT state FROM plan WHERE id = ?3), 7), ?7, ?8 "
		"WHERE NOT EXISTS (SELECT 1 FROM plan WHERE id = ?3 AND starting = 1) "
		"RETURNING CASE WHEN (SELECT value FROM meta WHERE key = 'news-boot') = ?1 "
		"THEN seq ELSE -seq END";
	static const char boot[] = "INSERT INTO meta (key, value) VALUES ('news-boot', ?1) "
				   "ON CONFLICT (key) DO UPDATE SET value = excluded.value";
	int64_t seq = 0;
	int k = rows_write_number(r, add,
	                          ARGS(TEXT_VALUE(clock_boot_id()), INT_VALUE(clock_real_ms()),
	                               TEXT_VALUE(item->plan), TEXT_VALUE(item->what),
	                               INT_VALUE(item->code), TEXT_VALUE(item->message),
	                               TEXT_VALUE(item->sandbox), INT_VALUE(item->sandbox_state)),
	                          &seq, err);

	if (k <= 0)
		return k;
	if (seq < 0) /* the first one of this boot */
		k = registry_write(r, boot, ARGS(TEXT_VALUE(clock_boot_id())), NULL, NULL, err);
	if (k < 0)
		return k;
	return seq % TRIM_EVERY == 0 ? trim(r, err) : 0;
}

int registry_news_add(struct registry *r, const char *plan, const char *what, const char *message,
                      struct error *err)
{
	return news_add(r, &(struct news_item){ .plan = plan, .what = what, .message = message },
	                err);
}

/* ---- reading ---- */

static void read_news(struct cols *c, void *item)
{
	struct news_row *row = item;

	row->seq = cols_int(c, INT64_MIN, INT64_MAX);
	row->at_ms = cols_int(c, INT64_MIN, INT64_MAX);
	cols_text(c, row->plan, sizeof(row->plan));
	cols_text(c, row->name, sizeof(row->name));
	row->what = cols_dup(c);
	row->code = (int)cols_int(c, INT_MIN, INT_MAX);
	row->message = cols_dup(c);
	row->state = (enum atoll_plan_state)cols_int(c, 0, ATOLL_PLAN_STATE_END_ - 1);
	cols_text(c, row->sandbox, sizeof(row->sandbox));
	row->sandbox_state = (enum atoll_sandbox_state)cols_int(c, 0, ATOLL_SANDBOX_STATE_END_ - 1);
}

static void done_news(void *item)
{
	struct news_row *row = item;

	free(row->what);
	free(row->message);
}

int registry_news_list(struct registry *r, int64_t after, int64_t limit, registry_news_fn fn,
                       void *ctx, struct news_bounds *ret, struct error *err)
{
	/* The bounds are the first row: whoever lets rows go does it before or after all of this. */
	static const char sql[] =
		"SELECT -1 AS seq, coalesce((SELECT max(seq) FROM news), 0), '', '', coalesce("
		"(SELECT value FROM meta WHERE key = 'news-let-go'), '0'), 0, '', 0, '', 0 "
		"UNION ALL SELECT * FROM (SELECT seq, at_ms, plan, name, what, code, message, "
		"state, sandbox, sandbox_state FROM news WHERE seq > ?1 ORDER BY seq LIMIT ?2) AS n";
	cleanup_rows struct rows rows = { .size = sizeof(struct news_row),
		                          .read = read_news,
		                          .done = done_news };
	const struct news_row *v;
	int k = rows_fetch(r, sql, ARGS(INT_VALUE(after), INT_VALUE(limit)), &rows, err);

	if (k < 0)
		return k;
	v = rows.items;
	if (rows.n == 0 || v[0].seq != -1)
		return registry_damaged(r, err, "the news have no bounds");
	*ret = (struct news_bounds){ .newest = v[0].at_ms, .let_go = strtoll(v[0].what, NULL, 10) };
	for (size_t i = 1; k >= 0 && fn && i < rows.n; i++)
		k = fn(ctx, &v[i]);
	return k < 0 ? k : 0;
}

int registry_news_newest(struct registry *r, int64_t *ret, struct error *err)
{
	static const char sql[] = "SELECT coalesce(max(seq), 0) FROM news";
	int k = rows_number(r, sql, NO_ARGS, ret, err);

	return k < 0 ? k : 0;
}

/* ---- being woken ---- */

static int open_watch(struct registry *r)
{
	cleanup_close int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/" REGISTRY_STORE_LOCK,
	               registry_locks_fd(r));
	if (fd < 0 || inotify_add_watch(fd, path, IN_CLOSE_WRITE) < 0)
		return -errno;
	return take_fd(&fd);
}

static int open_timer(void)
{
	const struct timespec pace = { .tv_nsec = REGISTRY_NEWS_PACE_MS * 1000000l };
	const struct itimerspec always = { .it_interval = pace, .it_value = pace };
	cleanup_close int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd < 0 || timerfd_settime(fd, 0, &always, NULL) < 0)
		return -errno;
	return take_fd(&fd);
}

int registry_news_watch(struct registry *r, int *ret_fd, struct error *err)
{
	int fd = open_watch(r);

	if (fd < 0)
		fd = open_timer();
	if (fd < 0)
		return error_sys(err, fd, "watch", "the store");
	*ret_fd = fd;
	return 0;
}

void registry_news_seen(int fd)
{
	char buffer[4096];

	while (read(fd, buffer, sizeof(buffer)) > 0)
		;
}

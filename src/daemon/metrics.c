/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and their text. */
#include "daemon/metrics.h"

#include "util/strbuf.h"

#include <inttypes.h>

#define NS_PER_US 1000

static const uint64_t step_us[METRICS_STEPS] = { 100,   500,    1000,    5000,
	                                         25000, 100000, 1000000, 10000000 };

void metrics_request(struct metrics *m, const struct route *route, unsigned status, int64_t took_ns)
{
	uint64_t us = (uint64_t)(took_ns / NS_PER_US);
	size_t row = route ? route_number(route) : ROUTES_MAX, step = 0;
	unsigned class = status / 100 < METRICS_CLASSES ? status / 100 : 0;

	while (step < METRICS_STEPS && us > step_us[step])
		step++;
	atomic_fetch_add_explicit(&m->requests[row][class], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->steps[step], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->sum_us, us, memory_order_relaxed);
}

static void add_requests(struct strbuf *sb, struct metrics *m, size_t row, const char *method,
                         const char *path)
{
	for (unsigned class = 0; class < METRICS_CLASSES; class ++) {
		uint64_t n = atomic_load(&m->requests[row][class]);

		if (n)
			strbuf_printf(sb,
			              "atolld_requests_total{method=\"%s\",route=\"%s\","
			              "class=\"%uxx\"} %" PRIu64 "\n",
			              method, path, class, n);
	}
}

static void add_steps(struct strbuf *sb, struct metrics *m)
{
	uint64_t n = 0;

	strbuf_puts(sb, "# TYPE atolld_request_seconds histogram\n");
	for (size_t i = 0; i < METRICS_STEPS; i++) {
		n += atomic_load(&m->steps[i]);
		strbuf_printf(sb, "atolld_request_seconds_bucket{le=\"%g\"} %" PRIu64 "\n",
		              (double)step_us[i] / 1e6, n);
	}
	n += atomic_load(&m->steps[METRICS_STEPS]);
	strbuf_printf(sb,
	              "atolld_request_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\n"
	              "atolld_request_seconds_sum %g\natolld_request_seconds_count %" PRIu64 "\n",
	              n, (double)atomic_load(&m->sum_us) / 1e6, n);
}

char *metrics_text(struct metrics *m, uint64_t late, size_t *ret_len)
{
	struct strbuf sb = STRBUF_INIT;
	const struct {
		const char *name, *type;
		int64_t value;
	} rows[] = {
		{ "atolld_refused_total", "counter", (int64_t)atomic_load(&m->refused) },
		{ "atolld_denied_total", "counter", (int64_t)atomic_load(&m->denied) },
		{ "atolld_late_connections_total", "counter", (int64_t)late },
		{ "atolld_connections_total", "counter", (int64_t)atomic_load(&m->connections) },
		{ "atolld_connections_open", "gauge", atomic_load(&m->open) },
		{ "atolld_requests_running", "gauge", atomic_load(&m->running) },
		{ "atolld_start_time_seconds", "gauge", m->started_ms / 1000 },
	};
	const struct route *r;

	strbuf_puts(&sb, "# TYPE atolld_requests_total counter\n");
	for (size_t i = 0; (r = route_at(i)); i++)
		add_requests(&sb, m, i, r->method, r->path);
	add_requests(&sb, m, ROUTES_MAX, "", "");
	add_steps(&sb, m);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		strbuf_printf(&sb, "# TYPE %s %s\n%s %" PRId64 "\n", rows[i].name, rows[i].type,
		              rows[i].name, rows[i].value);
	*ret_len = sb.len;
	return strbuf_take(&sb);
}

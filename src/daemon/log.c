/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of JSON on standard error. */
#include "daemon/log.h"

#include "daemon/call.h"
#include "daemon/peer.h"
#include "util/clock.h"
#include "util/json.h"
#include "util/strbuf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LINE_MAX_LEN 8192
#define NS_PER_US    1000

#define REQUEST_LINE_LEN 1024

static enum log_level limit = LOG_REQUEST;

struct line {
	char text[LINE_MAX_LEN];
	FILE *f;
	struct json j;
};

void log_set_level(enum log_level level)
{
	limit = level;
}

/* False: nobody wants to read it. */
static bool line_begin(struct line *l, enum log_level level)
{
	static const char *const
		names[] = { [LOG_ERROR] = "error", [LOG_INFO] = "info", [LOG_REQUEST] = "request" };
	char now[CLOCK_TEXT_LEN];

	if (level > limit)
		return false;
	l->f = fmemopen(l->text, sizeof(l->text), "w");
	if (!l->f)
		return false;
	clock_format(clock_real_ms(), now);
	json_init(&l->j, l->f);
	json_open_object(&l->j, NULL);
	json_string(&l->j, "time", now);
	json_string(&l->j, "level", names[level]);
	return true;
}

/* One write: lines of several threads stay apart. What does not fit is left out, whole. */
static void line_end(struct line *l)
{
	long len;

	json_close(&l->j);
	json_end(&l->j);
	len = fflush(l->f) == 0 ? ftell(l->f) : -1;
	(void)fclose(l->f);
	if (len > 0 && len < LINE_MAX_LEN)
		(void)write(STDERR_FILENO, l->text, (size_t)len);
}

void log_line(enum log_level level, const char *fmt, ...)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	struct line l;
	va_list ap;

	va_start(ap, fmt);
	strbuf_vprintf(&sb, fmt, ap);
	va_end(ap);
	if (!line_begin(&l, level))
		return;
	json_string(&l.j, "message", strbuf_str(&sb));
	line_end(&l);
}

void log_failure(const char *what, const struct error *err)
{
	struct line l;

	if (!line_begin(&l, LOG_ERROR))
		return;
	json_string(&l.j, "what", what);
	json_string(&l.j, "message", err->msg ? err->msg : "");
	json_string(&l.j, "code", error_code_name(err->code));
	if (err->hint)
		json_string(&l.j, "hint", err->hint);
	line_end(&l);
}

static bool needs_quoting(char c)
{
	return (unsigned char)c < ' ' || (unsigned char)c > '~' || c == '"' || c == '\\';
}

/* Requests are many: their lines are made without the writer, of parts that need no quoting. */
void log_request(const struct call *c, int64_t took_ns, bool whole)
{
	char text[REQUEST_LINE_LEN], now[CLOCK_TEXT_LEN], who[IDENTITY_NAME_LEN];
	size_t i = 0;
	int len;

	if (LOG_REQUEST > limit)
		return;
	for (; c->who.name[i]; i++)
		who[i] = needs_quoting(c->who.name[i]) ? '?' : c->who.name[i];
	who[i] = '\0';
	clock_format(clock_real_ms(), now);
	len = snprintf(text, sizeof(text),
	               "{\"time\":\"%s\",\"level\":\"request\",\"id\":\"%s\",\"method\":\"%s\","
	               "\"route\":\"%s\",\"status\":%u,\"whole\":%s,\"us\":%" PRId64 ","
	               "\"who\":\"%s\",\"from\":\"%s\"}\n",
	               now, c->id, c->route ? c->route->method : "", c->route ? c->route->path : "",
	               c->status, whole ? "true" : "false", took_ns / NS_PER_US, who,
	               c->peer ? c->peer->address : "");
	if (len > 0 && (size_t)len < sizeof(text))
		(void)write(STDERR_FILENO, text, (size_t)len);
}

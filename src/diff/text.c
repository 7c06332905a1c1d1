/* SPDX-License-Identifier: Apache-2.0 */
/* Two texts line by line: the simple cases here, the rest by libgit2. */
#include "diff/text.h"

#include "util/library.h"
#include "util/limits.h"

#include <dlfcn.h>
#include <git2/diff.h>
#include <git2/errors.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define BINARY_PREFIX 8000

struct comparison {
	text_fn fn;
	void *ctx;
	struct text_count count;
	int answer; /* of FN, when it ended the comparison */
};

/* ---- one text ---- */

bool text_is_binary(const struct text *t)
{
	size_t len = t->len < BINARY_PREFIX ? t->len : BINARY_PREFIX;

	return len > 0 && memchr(t->data, '\0', len) != NULL;
}

uint64_t text_lines(const struct text *t)
{
	const char *p = t->data, *end = t->data + t->len;
	uint64_t n = 0;

	while (p < end) {
		const char *next = memchr(p, '\n', (size_t)(end - p));

		n++;
		p = next ? next + 1 : end;
	}
	return n;
}

/* ---- a text that comes or goes whole ---- */

static int say_whole(struct comparison *c, const struct text *t, char origin, uint64_t lines)
{
	const char *p = t->data, *end = t->data + t->len;
	char range[32] = "1", head[80];
	int n, r;

	if (lines != 1)
		(void)snprintf(range, sizeof(range), "1,%llu", (unsigned long long)lines);
	n = snprintf(head, sizeof(head), origin == '+' ? "@@ -0,0 +%s @@" : "@@ -%s +0,0 @@",
	             range);
	r = c->fn(c->ctx, '@', head, (size_t)n);
	while (r >= 0 && p < end) {
		const char *next = memchr(p, '\n', (size_t)(end - p));

		r = c->fn(c->ctx, origin, p, (size_t)((next ? next : end) - p));
		if (!next && r >= 0)
			r = c->fn(c->ctx, '\\', NULL, 0);
		p = next ? next + 1 : end;
	}
	return r < 0 ? r : 0;
}

static int compare_whole(struct comparison *c, const struct text *before, const struct text *after)
{
	c->count.deleted = text_lines(before);
	c->count.added = text_lines(after);
	if (!c->fn || before->len + after->len == 0)
		return 0;
	return before->len ? say_whole(c, before, '-', c->count.deleted)
	                   : say_whole(c, after, '+', c->count.added);
}

/* ---- libgit2 ---- */

static struct {
	pthread_once_t once;
	bool is_there;
	char why[256];
	int (*init)(void);
	int (*options_init)(git_diff_options *options, unsigned version);
	int (*buffers)(const void *old_buffer, size_t old_len, const char *old_as_path,
	               const void *new_buffer, size_t new_len, const char *new_as_path,
	               const git_diff_options *options, git_diff_file_cb file_cb,
	               git_diff_binary_cb binary_cb, git_diff_hunk_cb hunk_cb,
	               git_diff_line_cb line_cb, void *payload);
	const git_error *(*last_error)(void);
} lib = { .once = PTHREAD_ONCE_INIT };

static void open_library(void)
{
	void *handle = dlopen(ATOLL_LIBGIT2, RTLD_NOW | RTLD_LOCAL);

	/* Never closed: threads may be in it until the process ends. */
	lib.is_there =
		handle && library_find(handle, "git_libgit2_init", &lib.init, sizeof(lib.init)) &&
		library_find(handle, "git_diff_options_init", &lib.options_init,
	                     sizeof(lib.options_init)) &&
		library_find(handle, "git_diff_buffers", &lib.buffers, sizeof(lib.buffers)) &&
		library_find(handle, "git_error_last", &lib.last_error, sizeof(lib.last_error)) &&
		lib.init() >= 0;
	if (!lib.is_there) {
		const char *why = dlerror();

		(void)snprintf(lib.why, sizeof(lib.why), "%s", why ? why : ATOLL_LIBGIT2);
	}
}

static int need_library(struct error *err)
{
	(void)pthread_once(&lib.once, open_library);
	if (lib.is_there)
		return 0;
	(void)error_set(err, -ATOLL_E_UNSUPPORTED, "cannot compare texts: %s", lib.why);
	error_hint(err, "install the package that holds %s", ATOLL_LIBGIT2);
	return -ATOLL_E_UNSUPPORTED;
}

static int say(struct comparison *c, char origin, const char *line, size_t len)
{
	if (len > 0 && line[len - 1] == '\n')
		len--;
	c->answer = c->fn ? c->fn(c->ctx, origin, line, len) : 0;
	return c->answer < 0 ? GIT_EUSER : 0;
}

static int on_hunk(const git_diff_delta *delta, const git_diff_hunk *hunk, void *payload)
{
	(void)delta;
	return say(payload, '@', hunk->header, hunk->header_len);
}

static int on_line(const git_diff_delta *delta, const git_diff_hunk *hunk,
                   const git_diff_line *line, void *payload)
{
	struct comparison *c = payload;

	(void)delta;
	(void)hunk;
	switch (line->origin) {
	case GIT_DIFF_LINE_ADDITION:
		c->count.added++;
		break;
	case GIT_DIFF_LINE_DELETION:
		c->count.deleted++;
		break;
	case GIT_DIFF_LINE_CONTEXT:
		break;
	default: /* one of the three ways to say that a line has no end */
		return say(c, '\\', NULL, 0);
	}
	return say(c, line->origin, line->content, line->content_len);
}

static int compare_both(struct comparison *c, const struct text *before, const struct text *after,
                        unsigned context, struct error *err)
{
	git_diff_options options;
	int r = need_library(err);

	if (r < 0)
		return r;
	if (lib.options_init(&options, GIT_DIFF_OPTIONS_VERSION) < 0)
		return error_set(err, -ATOLL_E_UNSUPPORTED, "%s is of another version",
		                 ATOLL_LIBGIT2);
	options.context_lines = context;
	options.flags |= GIT_DIFF_FORCE_TEXT; /* the caller knows better */
	r = lib.buffers(before->data, before->len, NULL, after->data, after->len, NULL, &options,
	                NULL, NULL, c->fn ? on_hunk : NULL, on_line, c);
	if (c->answer < 0)
		return c->answer;
	if (r < 0) {
		const git_error *why = lib.last_error();

		return error_set(err, -ATOLL_E_TOO_BIG, "cannot compare two texts: %s",
		                 why && why->message ? why->message : "libgit2 failed");
	}
	return 0;
}

/* Lines that both begin and end with change no count. */
static void trim(struct text *a, struct text *b)
{
	size_t max = a->len < b->len ? a->len : b->len;
	size_t n = 0, start = 0;

	while (n < max && a->data[n] == b->data[n])
		if (a->data[n++] == '\n')
			start = n;
	*a = (struct text){ a->data + start, a->len - start };
	*b = (struct text){ b->data + start, b->len - start };
	max = a->len < b->len ? a->len : b->len;
	for (n = 0; n < max && a->data[a->len - 1 - n] == b->data[b->len - 1 - n];)
		n++;
	/* Back to the end of a line that is before the common part in both. */
	while (n > 0 && !(n < a->len && n < b->len && a->data[a->len - 1 - n] == '\n' &&
	                  b->data[b->len - 1 - n] == '\n'))
		n--;
	a->len -= n;
	b->len -= n;
}

int text_compare(const struct text *before, const struct text *after, unsigned context, text_fn fn,
                 void *ctx, struct text_count *ret, struct error *err)
{
	struct comparison c = { .fn = fn, .ctx = ctx };
	struct text a = *before, b = *after;
	int r = 0;

	if (!fn && a.len && b.len) {
		context = 0;
		trim(&a, &b);
	}
	if (a.len == 0 || b.len == 0)
		r = compare_whole(&c, &a, &b);
	else
		r = compare_both(&c, &a, &b, context, err);
	if (r >= 0 && ret)
		*ret = c.count;
	return r;
}

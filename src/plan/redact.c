/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines for lock records and history. What looks like a secret is left out: the value of
 * NAME=value and --name=value, the argument after --name, and a password in a URL, where the name
 * has one of the words below. A guess, not a guarantee; so lock records carry argv[0] alone.
 */
#include "plan/plan.h"

#include <ctype.h>
#include <string.h>

#include "util/escape.h"
#include "util/strbuf.h"

#define LINE_MAX_LEN 2048
#define HIDDEN       "[hidden]"

static const char *const secret_words[] = {
	"pass", "secret", "token", "key", "credential", "auth"
};

static bool is_secret_name(const char *name, size_t len)
{
	for (size_t w = 0; w < sizeof(secret_words) / sizeof(secret_words[0]); w++) {
		size_t n = strlen(secret_words[w]);

		for (size_t i = 0; i + n <= len; i++)
			if (strncasecmp(name + i, secret_words[w], n) == 0)
				return true;
	}
	return false;
}

/* Length of "scheme://user:" when ARG is a URL with a password, else 0; *ret_end: the '@'. */
static size_t url_password(const char *arg, const char **ret_end)
{
	const char *host = strstr(arg, "://");
	const char *at, *colon;

	if (!host)
		return 0;
	host += 3;
	at = memchr(host, '@', strcspn(host, "/ "));
	colon = memchr(host, ':', strcspn(host, "/ "));
	if (!at || !colon || colon > at)
		return 0;
	*ret_end = at;
	return (size_t)(colon + 1 - arg);
}

static void add_argument(struct strbuf *sb, const char *arg)
{
	const char *equals = strchr(arg, '=');
	const char *end = NULL;
	size_t kept = url_password(arg, &end);

	if (equals && is_secret_name(arg, (size_t)(equals - arg))) {
		escape_add(sb, arg, (size_t)(equals - arg) + 1);
		strbuf_puts(sb, HIDDEN);
	} else if (kept) {
		escape_add(sb, arg, kept);
		strbuf_puts(sb, HIDDEN);
		escape_add(sb, end, strlen(end));
	} else {
		escape_add(sb, arg, strlen(arg));
	}
}

char *redact_command(const char *const *argv)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	bool hide = false;

	for (size_t i = 0; argv[i] && sb.len < LINE_MAX_LEN; i++) {
		if (i > 0)
			strbuf_putc(&sb, ' ');
		if (hide)
			strbuf_puts(&sb, HIDDEN);
		else
			add_argument(&sb, argv[i]);
		hide = !hide && argv[i][0] == '-' && !strchr(argv[i], '=') &&
		       is_secret_name(argv[i], strlen(argv[i]));
	}
	if (sb.len > LINE_MAX_LEN) {
		strbuf_truncate(&sb, LINE_MAX_LEN);
		strbuf_puts(&sb, "...");
	}
	return strbuf_take(&sb);
}

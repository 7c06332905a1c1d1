/* SPDX-License-Identifier: Apache-2.0 */
#include "diff/other-settings.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "diff/git-settings.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define WORD "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@/_.-"

/* KEY = VALUE: where VALUE begins; NULL: it is something else. */
static const char *value_of(const char *line, const char *key_bytes)
{
	size_t key = strspn(line, key_bytes);
	const char *at = line + key + strspn(line + key, " \t");

	if (key == 0 || *at != '=')
		return NULL;
	at++;
	return at + strspn(at, " \t");
}

static bool hg_is_harmless(const char *section, const char *line)
{
	const char *value = value_of(line, WORD ":");

	if (!value)
		return false;
	if (strcmp(section, "[paths]") == 0)
		return git_is_address(value);
	return strcmp(section, "[ui]") == 0 && strncmp(line, "username", 8) == 0 &&
	       strchr(" \t=", line[8]);
}

static bool jj_is_harmless(const char *section, const char *line)
{
	static const char trunk[] = "\"trunk()\"";
	const char *value;
	size_t len;

	if (strcmp(section, "[revset-aliases]") != 0 ||
	    strncmp(line, trunk, sizeof(trunk) - 1) != 0)
		return false;
	value = value_of(line, WORD "()\"");
	if (!value || *value++ != '"')
		return false;
	len = strspn(value, WORD);
	return strcmp(value + len, "\"") == 0;
}

/* A line that continues another begins with white space, so it never is one of those above. */
static void take_line(char *line, char **section, bool (*is_harmless)(const char *, const char *),
                      struct strlist *ret)
{
	cleanup_free char *whole = NULL;
	size_t len = strlen(line);

	while (len && strchr(" \t", line[len - 1]))
		line[--len] = '\0';
	if (len == 0 || strchr("#;", *line))
		return;
	if (*line == '[' && line[len - 1] == ']') {
		free(*section);
		*section = xstrdup(line);
		return;
	}
	if (is_harmless(*section, line))
		return;
	whole = xasprintf("%s %s", *section, line);
	strlist_add(ret, whole);
}

static void take_lines(const char *text, size_t len,
                       bool (*is_harmless)(const char *, const char *), struct strlist *ret)
{
	cleanup_free char *copy = xstrndup(text, len), *section = xstrdup("");
	char *rest = copy;

	if (strlen(copy) != len)
		strlist_add(ret, "NUL");
	for (char *line; (line = strsep(&rest, "\r\n")) != NULL;)
		take_line(line, &section, is_harmless, ret);
}

void hg_settings_programs(const char *text, size_t len, struct strlist *ret)
{
	take_lines(text, len, hg_is_harmless, ret);
}

void jj_settings_programs(const char *text, size_t len, struct strlist *ret)
{
	take_lines(text, len, jj_is_harmless, ret);
}

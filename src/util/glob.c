/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matching without recursion: at each level, bytes of a name and names of a path, only the last
 * star has to be taken back, since an earlier one could not match more than it already allows.
 */
#include "util/glob.h"

#include <stddef.h>
#include <string.h>

/* A run of bytes: a name of a path or of a pattern. */
struct span {
	const char *p, *end;
};

/* One byte of a set "[...]"; *P is behind '[' and ends behind ']'. A set that is not closed is an
 * ordinary '['. */
static bool match_set(const char **p, const char *end, char c, bool *ret_closed)
{
	const char *s = *p;
	bool negated = s < end && (*s == '!' || *s == '^');
	bool found = false, first = true;

	s += negated;
	for (; s < end && (first || *s != ']'); first = false) {
		unsigned char low = (unsigned char)*s++, high = low;

		if (low == '\\' && s < end)
			low = high = (unsigned char)*s++;
		if (end - s > 1 && s[0] == '-' && s[1] != ']') {
			high = (unsigned char)s[1];
			s += 2;
		}
		found |= low <= (unsigned char)c && (unsigned char)c <= high;
	}
	*ret_closed = s < end;
	if (*ret_closed)
		*p = s + 1;
	return found != negated;
}

/* One byte of the pattern, no star; *P moves on. */
static bool match_one(const char **p, const char *end, char c)
{
	char want = *(*p)++;
	bool closed, found;

	if (want == '?')
		return true;
	if (want == '[') {
		found = match_set(p, end, c, &closed);
		if (closed)
			return found;
	}
	if (want == '\\' && *p < end)
		want = *(*p)++;
	return want == c;
}

static bool match_name(struct span pattern, struct span name)
{
	const char *p = pattern.p, *s = name.p;
	const char *star = NULL, *resume = NULL;

	while (s < name.end) {
		if (p < pattern.end && *p == '*') {
			star = ++p;
			resume = s;
			continue;
		}
		if (p < pattern.end && match_one(&p, pattern.end, *s)) {
			s++;
			continue;
		}
		if (!star)
			return false;
		p = star;
		s = ++resume;
	}
	while (p < pattern.end && *p == '*')
		p++;
	return p == pattern.end;
}

/* The name at *P, which moves behind it and its slash. */
static struct span next_name(const char **p, const char *end)
{
	const char *slash = memchr(*p, '/', (size_t)(end - *p));
	struct span name = { *p, slash ? slash : end };

	*p = slash ? slash + 1 : end;
	return name;
}

static bool is_any_names(struct span name)
{
	return name.end - name.p == 2 && name.p[0] == '*' && name.p[1] == '*';
}

/* The pattern's names against those of PATH from its beginning; what is left of PATH is below. */
static bool match_path(struct span pattern, struct span path, bool may_end)
{
	const char *p = pattern.p, *s = path.p;
	const char *star = NULL, *resume = NULL;

	while (p < pattern.end) {
		const char *next = p;
		struct span want = next_name(&next, pattern.end);

		if (is_any_names(want)) {
			star = p = next;
			resume = s;
			continue;
		}
		if (s == path.end)
			return false;
		if (match_name(want, next_name(&s, path.end))) {
			p = next;
			continue;
		}
		if (!star)
			return false;
		p = star;
		(void)next_name(&resume, path.end);
		s = resume;
	}
	/* Two stars at the end stand for what is in a directory, not for it. */
	return s < path.end || (may_end && star != pattern.end);
}

bool glob_path(const char *pattern, const char *path, bool is_dir)
{
	struct span want = { pattern, pattern + strlen(pattern) };
	const char *s = path, *end = path + strlen(path);
	bool dirs_only = want.end > want.p && want.end[-1] == '/', anchored, may_end;

	want.end -= dirs_only;
	may_end = is_dir || !dirs_only;
	anchored = memchr(want.p, '/', (size_t)(want.end - want.p)) != NULL;
	want.p += want.p < want.end && *want.p == '/';
	if (want.p == want.end)
		return false;
	if (anchored)
		return s < end && match_path(want, (struct span){ path, end }, may_end);
	while (s < end)
		if (match_name(want, next_name(&s, end)) && (may_end || s < end))
			return true;
	return false;
}

bool glob_can_match(const char *pattern)
{
	size_t len;

	pattern += *pattern == '/';
	for (; (len = strcspn(pattern, "/")); pattern += len + 1) {
		if ((len == 1 && *pattern == '.') || (len == 2 && strncmp(pattern, "..", 2) == 0))
			return false;
		if (!pattern[len] || !pattern[len + 1])
			return true;
	}
	return false;
}

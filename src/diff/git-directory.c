/* SPDX-License-Identifier: Apache-2.0 */
/* git's is_git_directory() and validate_headref(), for a tree that is not there yet. */
#include "diff/git-directory.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "fs/atomic.h"
#include "fs/resolve.h"
#include "util/cleanup.h"

#define HEAD_BYTES 255u /* that git reads */

bool git_directory_name(const char *name, size_t len)
{
	return len >= 4 && strncasecmp(name + len - 4, ".git", 4) == 0;
}

/* A name that git would find there, and could use, now or after a change of permissions. */
static int holds(const struct tree_state *s, const char *dir, const char *name)
{
	cleanup_tree_found struct tree_found f = TREE_FOUND_INIT;
	int r = tree_state_find_in(s, dir, name, &f);

	return r < 0 && r != -EACCES ? r : r != 0;
}

/* SHA-1 or SHA-256, in letters of either case; what follows does not matter. */
static bool is_id(const char *text)
{
	return strspn(text, "0123456789abcdefABCDEF") >= 40;
}

static bool names_ref(const char *text)
{
	if (strncmp(text, "ref:", 4) != 0)
		return false;
	text += 4;
	text += strspn(text, " \t\n\r");
	return strncmp(text, "refs/", 5) == 0;
}

static int holds_head(const struct tree_state *s, const char *dir)
{
	cleanup_tree_found struct tree_found f = TREE_FOUND_INIT;
	cleanup_close int fd = FD_NONE;
	char text[HEAD_BYTES + 1] = "";
	size_t len = 0;
	int r = tree_state_find_in(s, dir, "HEAD", &f);

	if (r <= 0)
		return r == -EACCES ? 1 : r;
	if (S_ISLNK(f.st.mode)) {
		cleanup_free char *target = NULL;

		r = tree_found_text(&f, 0, &target, &len);
		return r < 0 ? r : strncmp(target, "refs/", 5) == 0;
	}
	if (!S_ISREG(f.st.mode))
		return 0;
	r = resolve_file(f.fd, f.name, &fd);
	if (r >= 0)
		r = fs_read_some(fd, text, HEAD_BYTES, &len);
	if (r < 0)
		return r == -EACCES || r == -EPERM ? 1 : r;
	return is_id(text) || names_ref(text);
}

static int holds_objects(const struct tree_state *s, const char *dir)
{
	int r = holds(s, dir, "objects");

	return r > 0 ? holds(s, dir, "refs") : r;
}

int git_directory_is(const struct tree_state *s, const char *dir)
{
	int r = holds(s, dir, "commondir");

	if (r == 0)
		r = holds_objects(s, dir);
	return r > 0 ? holds_head(s, dir) : r;
}

int git_directory_may_be(const struct tree_state *s, const char *dir, const char *name)
{
	int r;

	if (git_directory_name(name, strlen(name)))
		return 1;
	r = holds_objects(s, dir);
	return r == 0 ? git_directory_is(s, dir) : r;
}

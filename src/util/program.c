/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where our other programs are. Installed code asks nobody: they are where they were installed with it,
 * whatever the environment says, for they may run as root with an environment of somebody else's.
 * Only code that lies elsewhere, in a build tree or in an unpacked package, looks around.
 */
#include "util/program.h"

#include "util/child.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where this code may lie below the top of a tree, and the programs beside it; NULL: each in the folder
 * of its sources. Directories that are installed outside of the prefix are absolute, and match
 * nothing. */
static const struct {
	const char *code, *programs;
} layouts[] = {
	{ "/" ATOLL_BIN_DIR, ATOLL_HELPER_DIR },
	{ "/" ATOLL_LIB_DIR, ATOLL_HELPER_DIR },
	{ "/" ATOLL_HELPER_DIR, ATOLL_HELPER_DIR },
	{ "/src/cli", NULL },
	{ "/src/daemon", NULL },
	{ "/src", NULL },
};

static bool is_same_dir(const char *a, const char *b)
{
	struct stat st_a, st_b;

	return stat(a, &st_a) == 0 && stat(b, &st_b) == 0 && st_a.st_dev == st_b.st_dev &&
	       st_a.st_ino == st_b.st_ino;
}

static bool is_installed(const char *dir)
{
	return is_same_dir(dir, ATOLL_BIN_PATH) || is_same_dir(dir, ATOLL_LIB_PATH) ||
	       is_same_dir(dir, ATOLL_HELPER_HOME);
}

/* Where anybody may make a directory (/tmp), nobody's word is in it. */
static bool is_for_all(const char *dir)
{
	struct stat st;

	return stat(*dir ? dir : "/", &st) < 0 || (st.st_mode & S_IWOTH);
}

static char *beside(const char *dir, size_t layout, const struct program *p)
{
	const char *code = layouts[layout].code, *programs = layouts[layout].programs;
	size_t len = strlen(dir), tail = strlen(code);
	cleanup_free char *top = NULL, *file = NULL;

	if (len < tail || strcmp(dir + len - tail, code) != 0)
		return NULL;
	top = xasprintf("%.*s", (int)(len - tail), dir);
	file = programs ? xasprintf("%s/%s/%s", top, programs, p->name)
	                : xasprintf("%s/%s/%s", top, p->folder, p->name);
	if (is_for_all(top) || access(file, X_OK) < 0)
		return NULL;
	return take_ptr(file);
}

/* What the environment calls it, or NULL. */
static const char *name_of(const struct program *p)
{
	const char *named = secure_getenv(p->variable);

	return named && *named ? named : NULL;
}

bool program_is_named(const struct program *p)
{
	cleanup_free char *dir = name_of(p) ? child_own_dir() : NULL;

	return dir && !is_installed(dir);
}

char *program_path(const struct program *p)
{
	cleanup_free char *dir = child_own_dir();
	const char *named = name_of(p);

	if (dir && !is_installed(dir)) {
		if (named)
			return xstrdup(named);
		for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
			char *file = beside(dir, i, p);

			if (file)
				return file;
		}
	}
	return xasprintf("%s/%s", ATOLL_HELPER_HOME, p->name);
}

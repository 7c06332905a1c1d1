/* SPDX-License-Identifier: Apache-2.0 */
/* Overlay or not: tried once per boot, user namespace and filesystem, then known. */
#include "plan/choose.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/exec.h"
#include "fs/atomic.h"
#include "fs/mount.h"
#include "fs/stat.h"
#include "strategy/strategy.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/strbuf.h"

#define PROBED     "probed" /* in the store: a line per filesystem where overlay works */
#define PROBED_NEW "probed.new"
#define PROBED_MAX (64u << 10)

/* In a container the same store and boot are seen with other rights: of no use is what worked outside. The
 * name is the kernel's, such as "user:[4026531837]". */
static void name_user_ns(char *ret, size_t size)
{
	ssize_t n = readlink("/proc/self/ns/user", ret, size - 1);

	ret[n > 0 ? n : 0] = '\0';
}

static int line_for(const struct sandbox_row *row, int root_fd, char **ret, struct error *err)
{
	cleanup_close int work_fd = open(row->work, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct mount_info lower, upper;
	char user_ns[64];
	int r = work_fd < 0 ? -errno : mount_info(work_fd, &upper);

	if (r == 0)
		r = mount_info(root_fd, &lower);
	if (r < 0)
		return error_sys(err, r, "look at the mount of", row->root);
	name_user_ns(user_ns, sizeof(user_ns));
	*ret = xasprintf("%s %s %s %s\n", clock_boot_id(), user_ns, lower.fsid, upper.fsid);
	return 0;
}

static char *read_probed(const struct atoll *a)
{
	cleanup_close int fd = openat(a->home_fd, PROBED, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char *text = NULL;
	size_t len;

	if (fd < 0 || fs_read_all(fd, PROBED_MAX, &text, &len) < 0)
		return NULL;
	return text;
}

/* LINE goes in, or (not WORKS) out. Lines of other boots are dropped on the way. Losing one only means
 * another try. */
static void remember(const struct atoll *a, const char *line, bool works)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	cleanup_free char *known = read_probed(a);
	cleanup_close int fd = FD_NONE;

	if (works)
		strbuf_puts(&sb, line);
	for (const char *p = known; p && *p;) {
		size_t n = strcspn(p, "\n") + 1;

		if (strncmp(p, clock_boot_id(), strlen(clock_boot_id())) == 0 && p[n - 1] &&
		    strncmp(p, line, strlen(line)) != 0)
			strbuf_add(&sb, p, n);
		p += p[n - 1] ? n : n - 1;
	}
	(void)fs_unlink_at(a->home_fd, PROBED_NEW);
	if (fs_create_at(a->home_fd, PROBED_NEW, 0600, &fd) == 0 &&
	    fs_write_all(fd, sb.buf, sb.len) == 0)
		(void)fs_rename_over(a->home_fd, PROBED_NEW, PROBED);
}

/* What the kernel refuses to an ordinary user, whatever the filesystem. His overlay maps nobody but
 * himself: what belongs to others could not be copied up (below the root that is for `doctor` to
 * find); and mounts he did not make must not be uncovered. */
static char *not_for_users(const char *root, int root_fd)
{
	struct fs_stat st;

	if (geteuid() == 0 || fs_stat_at(root_fd, "", 0, &st) < 0)
		return NULL;
	if (mount_below(root) > 0)
		return xstrdup("something is mounted below it");
	if (st.uid != geteuid())
		return xasprintf("the directory belongs to user %u", st.uid);
	if (st.gid != getegid())
		return xasprintf("the directory belongs to group %u, not yours", st.gid);
	return NULL;
}

static int probe(struct atoll *a, const struct sandbox_row *row, int root_fd, bool *ret_works,
                 char **ret_why, struct error *err)
{
	cleanup_free char *line = NULL, *known = read_probed(a);
	cleanup_error struct error e = ERROR_INIT;
	enum exec_tier tier = EXEC_TIER_NONE;
	int r = line_for(row, root_fd, &line, err);

	if (r < 0)
		return r;
	*ret_works = known && strstr(known, line);
	if (*ret_works)
		return 0;
	/* That it cannot even be tried (no helper program) is a reason like any other. */
	r = exec_probe(row->root, row->work, &tier, ret_why, &e);
	if (r < 0)
		*ret_why = xstrdup(e.msg);
	*ret_works = tier == EXEC_TIER_OVERLAY;
	if (*ret_works)
		remember(a, line, true);
	return 0;
}

int choose_again(struct atoll *a, const struct sandbox_row *row, enum exec_tier *ret,
                 char **ret_why, struct error *err)
{
	cleanup_close int root_fd = open(row->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_free char *line = NULL;
	int r = root_fd < 0 ? error_sys(err, -errno, "open", row->root)
	                    : line_for(row, root_fd, &line, err);

	if (r == 0)
		r = exec_probe(row->root, row->work, ret, ret_why, err);
	if (r == 0)
		remember(a, line, *ret == EXEC_TIER_OVERLAY);
	return r;
}

static int overlay_works(struct atoll *a, const struct sandbox_row *row, int root_fd, bool *ret,
                         char **ret_why, struct error *err)
{
	*ret = false;
	*ret_why = not_for_users(row->root, root_fd);
	return *ret_why ? 0 : probe(a, row, root_fd, ret, ret_why, err);
}

/* Who takes over, and how it is said. */
static const struct second {
	const char *first; /* as it was named; NULL: it was not */
	const char *works, *instead;
	const char *what;
} seconds[] = {
	{ NULL, "overlay", "copy", "a complete copy" },
	{ "git", "git", "worktree", "a private checkout" },
};

static const struct second *find_second(const char *named)
{
	for (size_t i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++)
		if (named && seconds[i].first ? strcmp(named, seconds[i].first) == 0
		                              : named == seconds[i].first)
			return &seconds[i];
	return NULL;
}

static int refuse(const struct sandbox_row *row, const char *why, struct error *err)
{
	(void)error_set(err, -ATOLL_E_UNSUPPORTED, "no overlay can be mounted over '%s': %s",
	                row->root, why ? why : "the kernel refused it");
	error_hint(err, "atoll start --strategy copy works; atoll doctor %s says more", row->root);
	return -ATOLL_E_UNSUPPORTED;
}

int choose_strategy(struct atoll *a, const struct sandbox_row *row, int root_fd, const char *named,
                    struct atoll_result *res, const char **ret, struct error *err)
{
	const struct second *s = find_second(named);
	cleanup_free char *why = NULL, *note = NULL;
	bool works, needed = s || strcmp(named, "overlay") == 0;
	int r = needed ? overlay_works(a, row, root_fd, &works, &why, err) : 0;

	if (r < 0)
		return r;
	*ret = s ? s->works : named;
	if (!needed || works)
		return 0;
	if (!s)
		return refuse(row, why, err);
	*ret = s->instead;
	note = xasprintf("%s is used, since an overlay cannot be: %s", s->what,
	                 why ? why : "the kernel refused it");
	result_note(res, ATOLL_NOTE_WARNING, row->id, "", note);
	return 0;
}

void choose_names(struct strlist *ret)
{
	strategy_names(ret);
}

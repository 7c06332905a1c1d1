/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking over what another overlay over the same directory holds: its upper directory takes the place of ours,
 * which is empty. The clock of our base goes back to when the oldest entry in there was made, so that
 * an original that was changed later is a conflict; one that cannot be dated makes all of them conflicts.
 */
#include "strategy/overlay-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/mount.h"
#include "fs/remove.h"
#include "fs/walk.h"
#include "strategy/overlay-base-impl.h"
#include "util/cleanup.h"
#include "util/mem.h"

static int note_birth(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	int64_t *oldest = ctx, birth;
	struct statx st;

	(void)path;
	(void)type;
	if (statx(dir_fd, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_BTIME, &st) < 0)
		return -errno;
	if (S_ISDIR(st.stx_mode))
		return 0;
	birth = st.stx_btime.tv_sec * INT64_C(1000000000) + st.stx_btime.tv_nsec;
	if (!(st.stx_mask & STATX_BTIME))
		birth = 0;
	if (birth < *oldest)
		*oldest = birth;
	return 0;
}

static int refuse(struct atoll_participant *p, const char *why)
{
	return error_set(&p->err, -ATOLL_E_UNSUPPORTED,
	                 "what is private to the plan in '%s' cannot be taken over: %s", p->root,
	                 why);
}

static int check_upper(struct atoll_participant *p, int work_fd, int from_fd)
{
	struct mount_info from, to;
	int r = mount_info(from_fd, &from);

	if (r == 0)
		r = mount_info(work_fd, &to);
	if (r < 0)
		return error_sys(&p->err, r, "look at the mount of", p->work);
	if (!mount_same(&from, &to))
		return refuse(p, "it is on another filesystem than the work on it would be");
	if (overlay_is_opaque(from_fd, "", overlay_our_marks()) > 0)
		return refuse(p, "a command removed the directory and made another one");
	return 0;
}

int overlay_may_adopt(struct atoll_participant *p, int from_fd)
{
	cleanup_close int work_fd = FD_NONE;
	int r = overlay_open_dir(p, p->work, &work_fd);

	return r < 0 ? r : check_upper(p, work_fd, from_fd);
}

int overlay_adopt(struct atoll_participant *p, int parent_fd, const char *name)
{
	cleanup_close int from_fd =
		openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int work_fd = FD_NONE;
	cleanup_free char *text = NULL, *upper = overlay_layer_path(p, 'u');
	char stamp[OVERLAY_BASE_NAME_LEN];
	int64_t oldest = INT64_MAX;
	int r = from_fd < 0 ? -errno : walk_tree(from_fd, "", note_birth, NULL, &oldest);

	if (r < 0)
		return error_sys(&p->err, r, "read what is private in", p->root);
	r = overlay_open_dir(p, p->work, &work_fd);
	if (r == 0)
		r = check_upper(p, work_fd, from_fd);
	if (r < 0)
		return r;
	text = overlay_base_stamp_text(oldest, true);
	overlay_base_file_name(p, "t", stamp);
	r = fs_replace_file(work_fd, stamp, text, strlen(text), 0600);
	if (r == 0)
		r = overlay_cover_areas(p, from_fd);
	if (r == 0)
		r = fs_exchange(parent_fd, name, work_fd, strrchr(upper, '/') + 1);
	/* What ours was. */
	if (r == 0)
		r = remove_tree_at(parent_fd, name);
	return r < 0 ? error_sys(&p->err, r, "take over what is private in", p->root) : 0;
}

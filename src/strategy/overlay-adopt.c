/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking over what another overlay over the same directory holds: its upper directory takes the place of ours,
 * which is empty. The clock of our base goes back to when that directory was made, so that an original that
 * was changed later is a conflict; when it cannot be dated all of them are.
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
#include "strategy/overlay-base-impl.h"
#include "util/cleanup.h"
#include "util/mem.h"

/* Nothing in an upper directory was written before it was made. What is in it now may be younger than the
 * change that it belongs to: files are replaced by others, and deletions by files. 0: it cannot be dated. */
static int read_birth(int dir_fd, int64_t *ret_ns)
{
	struct statx st;

	if (statx(dir_fd, "", AT_EMPTY_PATH, STATX_BTIME, &st) < 0)
		return -errno;
	*ret_ns = 0;
	if (st.stx_mask & STATX_BTIME)
		*ret_ns = st.stx_btime.tv_sec * INT64_C(1000000000) + st.stx_btime.tv_nsec;
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
	int64_t born = 0;
	int r = from_fd < 0 ? -errno : read_birth(from_fd, &born);

	if (r < 0)
		return error_sys(&p->err, r, "read what is private in", p->root);
	r = overlay_open_dir(p, p->work, &work_fd);
	if (r == 0)
		r = check_upper(p, work_fd, from_fd);
	if (r < 0)
		return r;
	text = overlay_base_stamp_text(born, true);
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

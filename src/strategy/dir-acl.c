/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ACLs that a program of an ordinary user could not keep, since they name users who have no number in its
 * namespace (fs/acl.h). An editor that writes a new file in place of the old one gives it the mode of the old one and
 * fails to give it the ACL: the mode's group bits, which were the ACL's mask, are then what the group itself
 * may do. After the command, and outside of the namespace, such a file gets the ACL that it had.
 */
#include "strategy/dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include "fs/acl.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/mem.h"

/* Of what is new, that in which only content is another. */
static bool is_rewritten(const struct change *c)
{
	return c->op == CHANGE_REPLACE && c->base.mode == c->work.mode &&
	       (S_ISREG(c->work.mode) || S_ISDIR(c->work.mode));
}

static bool keep_acl(int work_fd, int orig_fd, const struct change *c, dir_is_new_fn is_new,
                     const void *ctx)
{
	cleanup_close int to_fd = FD_NONE, from_fd = FD_NONE;
	const char *to, *from;

	return resolve_parent(orig_fd, c->path, &from_fd, &from) >= 0 &&
	       acl_names_others(from_fd, from) && is_new(ctx, c) &&
	       resolve_parent(work_fd, c->path, &to_fd, &to) >= 0 &&
	       acl_put_back(from_fd, from, to_fd, to) > 0;
}

static void tell_kept(struct atoll_participant *p, size_t kept)
{
	cleanup_free char *text = xasprintf(
		"%zu %s kept an ACL that names other users, which a command of this "
		"user can neither show nor set (atoll doctor %s lists such entries)",
		kept, kept == 1 ? "entry written anew has" : "entries written anew have", p->root);

	if (kept)
		atoll_participant_note(p, ATOLL_NOTE_WARNING, "", text);
}

size_t dir_keep_acls(struct atoll_participant *p, const struct dir_roots *sides,
                     const struct changeset *cs, dir_is_new_fn is_new, const void *ctx)
{
	size_t kept = 0;

	for (size_t i = 0; geteuid() != 0 && i < cs->v.n; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		if (changeset_get(&cs->v, i, &c) < 0)
			break;
		if (is_rewritten(&c) && keep_acl(sides->work_fd, sides->orig_fd, &c, is_new, ctx))
			kept++;
	}
	tell_kept(p, kept);
	return kept;
}

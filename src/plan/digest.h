/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The digest of what a commit would change: equal exactly when a reviewer sees the same.
 *
 * SHA-256 over the changes of each sandbox in the order of atoll_plan_diff(), each with its root, path,
 * kind, what differs (but not whether somebody else changed it too: that is what conflicts are for),
 * both modes and owners, both sizes of files, the link's target, the words, and
 *
 *   - of what is no file the lines that atoll_change_lines() tells;
 *   - of a file that is new or differs: its bytes and extended attributes, and the bytes that it
 *     takes the place of.
 *
 * Not in it: times, inode numbers, link counts, sizes of directories, who asks. Sandboxes without
 * changes do not count. Every text is preceded by its length: nothing can look like something else.
 * Of a directory, a link, a device only that its attributes changed is known, not their values.
 *
 * Cost: what changed is read once. What cannot be read has no digest.
 */
#ifndef PLAN_DIGEST_H
#define PLAN_DIGEST_H

#include "plan/sandbox.h"
#include "util/sha256.h"

struct digest {
	char whole[SHA256_TEXT_LEN];
	char part[LIMIT_SANDBOXES][SHA256_TEXT_LEN]; /* of each sandbox, or "": no changes */
};

int digest_boxes(struct atoll *a, const char *plan_name, const struct sandboxes *boxes,
                 struct digest *ret, struct error *err);
/* Takes no lock. */
int digest_plan(struct atoll_plan *p, char out[SHA256_TEXT_LEN], struct error *err);

/* 64 hex digits, in lower case? */
bool digest_is_text(const char *text);
/* The plan's lock is held. -ATOLL_E_STALE unless what is to be committed is WANT. *ret is for
 * digest_check_again(). */
int digest_check(struct atoll *a, const struct plan_row *plan, const struct sandboxes *boxes,
                 const char *want, struct digest *ret, struct error *err);
/* Of those sandboxes that somebody who holds no lock can write to, in a directory that was given to him
 * (atoll_sandbox_path()). Right before the decision, when all are prepared: what he wrote since
 * digest_check() is noticed. Only what he changes and puts back meanwhile is not. */
int digest_check_again(struct atoll *a, const struct plan_row *plan, const struct sandboxes *boxes,
                       const struct digest *before, struct error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an overlay's view was made of. The lower tree is live, so for every path a command changed
 * (and every directory it shares with the resource) the base entry is recorded right after the
 * command, in `recordsG` of the area. Up to that record T0, the ctime of a marker stamped when
 * the workspace was made, judges: an entry with a later ctime was changed by somebody else; and so does what
 * the entry in the upper was copied up from, if that is another than the one that is there. From the record on
 * any difference does.
 *
 * `tG` holds T0, whether stamps are fine-grained, and the clock's offset: a clock that went back
 * makes T0 worthless, and then every path without a record is suspect.
 *
 * On disk records are a manifest (manifest.h): DELETE with the base entry as its old state, or
 * CREATE where there was none; MANIFEST_SUSPECT marks what was changed before it was recorded. Of a
 * shared directory the record also has a hash of its extended attributes (MANIFEST_XATTRS).
 */
#ifndef STRATEGY_OVERLAY_BASE_H
#define STRATEGY_OVERLAY_BASE_H

#include "diff/upper.h"
#include "strategy/dir.h"
#include "strategy/manifest.h"
#include "strategy/strategy-impl.h"

#define MANIFEST_SUSPECT 0x100u
/* Of a directory: only its attributes may be somebody else's, not the directory itself. Entries that
 * come and go hide from its times that it was given others. */
#define MANIFEST_SUSPECT_ATTR 0x400u
#define MANIFEST_XATTRS       0x800u /* new_stat.size is the hash of its extended attributes */

struct overlay_base {
	struct manifest records; /* sorted by path */
	int64_t t0_ns;
	int64_t clock_offset_ns; /* CLOCK_REALTIME - CLOCK_BOOTTIME when T0 was stamped */
	char boot_id[40];
	bool multigrain;
	bool looked;              /* at the clock: STRICT is known */
	bool strict;              /* the clock went back since, or what was noted is damaged */
	struct manifest restored; /* what our own batches left there (dir.h) */
	struct manifest_reader *reader; /* of an opened one; NULL: there are no records */
	const struct manifest_op *at;   /* where the reader is; NULL: at the end */
	bool at_is_judged;              /* as a change itself */
	/* Of an opened one: directories on the way to what was judged so far that are not what they
	 * were, and why, in the same order. */
	struct strlist moved, moved_why;
};
#define OVERLAY_BASE_INIT ((struct overlay_base){ 0 })

/* T0 for generation p->generation. */
int overlay_base_stamp(struct atoll_participant *p, int area_fd);
int overlay_base_load(struct atoll_participant *p, int area_fd, struct overlay_base *ret);
/* The same for overlay_base_observe(), which looks at the clock when there is something to judge. */
int overlay_base_load_unjudged(struct atoll_participant *p, int area_fd, struct overlay_base *ret);
/* The same without the records, which overlay_base_conflict() then reads as it goes. */
int overlay_base_open(struct atoll_participant *p, int area_fd, struct overlay_base *ret);
void overlay_base_done(struct overlay_base *b);
#define cleanup_overlay_base __attribute__((__cleanup__(overlay_base_done)))

/* Records what is new in CS and among the merged directories, and saves when anything was. WHOLE: the
 * records are never less than they were, also after a power cut; who does not ask for it does not wait. */
int overlay_base_observe(struct atoll_participant *p, int area_fd, const struct upper_compare *u,
                         const struct changeset *cs, struct overlay_base *b, bool whole);

/* Bytes that overlay_base_rebase() may take, beside those of what was installed. */
uint64_t overlay_base_room(const struct atoll_participant *p);

/* With the next barrier: before the decision of a batch after which they are read and written anew. */
int overlay_base_sync(struct atoll_participant *p, int area_fd);

/* After a batch that left work behind: what it installed is the base of its paths from now on. The
 * records as they were are kept for this batch, for overlay_base_revert(), until
 * overlay_base_settle(). Each can be repeated. */
int overlay_base_rebase(struct atoll_participant *p, int area_fd, struct dir_batch *b,
                        const struct manifest *installed);
/* After an undo that kept the work: what is there NOW is the base again. */
int overlay_base_back(struct atoll_participant *p, int area_fd, struct dir_batch *b,
                      const struct manifest *now);
int overlay_base_revert(struct atoll_participant *p, int area_fd);
void overlay_base_settle(struct atoll_participant *p, int area_fd);

/* What is there now is the base, but for what collides, which stays a conflict; COUNT: of those. */
int overlay_base_refresh(struct atoll_participant *p, int area_fd, const struct upper_compare *u,
                         const struct changeset *cs, const struct overlay_base *b, int64_t t0_ns,
                         bool multigrain);

/* As tree_conflict() and tree_conflict_dir(). The first counts C's entries when it reads what goes. */
int overlay_conflict(struct atoll_participant *p, const struct upper_compare *u,
                     const struct overlay_base *b, struct change *c, char **ret_why);
/* The same for an opened base: the paths must come in order. A change that has no record yet, since
 * its command still runs, is not judged: 0. */
int overlay_base_conflict(struct atoll_participant *p, const struct upper_compare *u,
                          struct overlay_base *b, struct change *c, char **ret_why);
int overlay_conflict_dir(struct atoll_participant *p, const struct upper_compare *u,
                         const struct overlay_base *b, const struct change_dir *d, char **ret_why);

#endif

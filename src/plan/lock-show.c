/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds which lock and who waits; and ending a holder that is stuck. Looking takes nothing.
 *
 * A lock is never taken away: its holder is ended, and then the kernel lets go of it. That the
 * recorded process is the holder follows from three things: the lock is held now, so its record is
 * of this boot; the number of the process and the time it started are those of the record; and it
 * is held by a pidfd while they are compared. What it left undone, the next operation of the plan
 * finishes or withdraws, as after any death.
 */
#include "plan/plan.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "exec/exec.h"
#include "plan/sandbox.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/list.h"
#include "util/process.h"

#define GRACE_MS   3000  /* between SIGTERM and SIGKILL */
#define ENDING_MS  10000 /* for a killed process, and for what it started */
#define LOOK_EACH  INT64_C(20000000)
#define STORE_FILE "store.lk"

/* ---- looking ---- */

struct looking {
	atoll_lock_fn fn;
	void *user;
	struct atoll_lock_info info; /* what the lock is of */
};

static int tell(void *ctx, const struct ticket_holder *who)
{
	struct looking *l = ctx;
	uint64_t started = 0;

	l->info.pid = who->pid;
	l->info.since_ms = who->since_ms;
	l->info.command = who->command;
	l->info.ahead = who->ahead;
	l->info.alive =
		who->pid && process_start_time(who->pid, &started) && started == who->start_time;
	return l->fn(l->user, &l->info);
}

static int look(struct atoll *a, struct looking *l, const char *file, struct error *err)
{
	int r = ticket_queue(registry_locks_fd(a->reg), file, tell, l);

	return r < 0 ? error_sys(err, r, "look at the lock", file) : r;
}

static int look_at_plan(struct atoll *a, struct looking *l, const struct plan_row *row,
                        struct error *err)
{
	static const struct {
		const char *suffix;
		const char *kind;
	} files[] = { { "plan", "plan" }, { "own", "owner" } };
	char file[PLAN_ID_LEN + sizeof(".plan")];
	int r = 0;

	l->info =
		(struct atoll_lock_info){ .plan_id = row->id, .plan_name = row->name, .root = "" };
	for (size_t i = 0; r >= 0 && i < sizeof(files) / sizeof(files[0]); i++) {
		(void)snprintf(file, sizeof(file), "%s.%s", row->id, files[i].suffix);
		l->info.kind = files[i].kind;
		r = look(a, l, file, err);
	}
	return r < 0 ? r : 0;
}

/* Nobody in this store's queue, but the root itself may be held: shared, or by another store. */
static int look_at_root(struct looking *l, const char *root)
{
	cleanup_close int fd = open(root, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	pid_t pid = fd < 0 ? 0 : resource_flock_holder(fd);

	if (pid <= 0)
		return 0;
	l->info.pid = pid;
	l->info.since_ms = 0;
	l->info.command = "";
	l->info.ahead = 0;
	l->info.alive = true;
	return l->fn(l->user, &l->info);
}

static int look_at_resources(struct atoll *a, struct looking *l, const char *plan_id,
                             struct error *err)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	cleanup_strlist struct strlist seen = STRLIST_INIT;
	int r = sandboxes_load(a->reg, plan_id, &boxes, err);

	l->info = (struct atoll_lock_info){ .kind = "resource", .plan_id = "", .plan_name = "" };
	for (size_t i = 0; r >= 0 && i < boxes.n; i++) {
		const struct sandbox_row *row = &boxes.v[i];
		char hash[HASH_TEXT_LEN], file[HASH_TEXT_LEN + sizeof(".res")];

		if (strlist_has(&seen, row->root_id))
			continue;
		strlist_add(&seen, row->root_id);
		hash_buffer(row->root_id, strlen(row->root_id), hash);
		(void)snprintf(file, sizeof(file), "%s.res", hash);
		l->info.root = row->root;
		r = look(a, l, file, err);
		if (r == 0)
			r = look_at_root(l, row->root);
	}
	return r < 0 ? r : 0;
}

int lock_list(struct atoll *a, const char *ref, atoll_lock_fn fn, void *user, struct error *err)
{
	cleanup_free struct plan_row *rows = NULL;
	struct looking l = { .fn = fn, .user = user };
	struct plan_row one;
	size_t n = 1;
	int r;

	if (ref)
		r = registry_plan_resolve(a->reg, ref, &one, err);
	else
		r = plan_rows(a, &rows, &n, err);
	for (size_t i = 0; r >= 0 && i < n; i++)
		r = look_at_plan(a, &l, ref ? &one : &rows[i], err);
	if (r >= 0)
		r = look_at_resources(a, &l, ref ? one.id : NULL, err);
	if (r >= 0 && !ref) {
		l.info = (struct atoll_lock_info){ .kind = "store",
			                           .plan_id = "",
			                           .plan_name = "",
			                           .root = a->home };
		r = look(a, &l, STORE_FILE, err);
	}
	return r < 0 ? r : 0;
}

/* ---- ending a holder ---- */

static int refuse_holder(const struct ticket_holder *who, struct error *err)
{
	uid_t uid = 0;

	if (who->pid == 0)
		return error_set(err, -ATOLL_E_NOT_FOUND,
		                 "the lock's holder left no name; nothing was done");
	if (who->pid == getpid())
		return error_set(err, -ATOLL_E_WOULD_DEADLOCK, "this very process holds the lock");
	if (process_uid(who->pid, &uid) && uid != geteuid())
		return error_set(err, -ATOLL_E_DENIED,
		                 "pid %d belongs to user %u, not to you; nothing was done",
		                 (int)who->pid, (unsigned)uid);
	return 0;
}

/* SIGTERM, and SIGKILL for one that does not listen. The signal that did it. */
static int end_process(int pidfd, const struct ticket_holder *who, struct error *err)
{
	static const struct {
		int sig;
		int64_t wait_ms;
	} steps[] = { { SIGTERM, GRACE_MS }, { SIGKILL, ENDING_MS } };

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		int r = process_signal(pidfd, steps[i].sig);

		if (r < 0) {
			char pid[16];

			(void)snprintf(pid, sizeof(pid), "%d", (int)who->pid);
			return error_sys(err, r, "end process", pid);
		}
		if (process_wait(pidfd, clock_deadline(steps[i].wait_ms)) > 0)
			return steps[i].sig;
	}
	(void)error_set(err, -ATOLL_E_TIMEOUT, "pid %d was killed but does not end", (int)who->pid);
	error_hint(err, "it hangs inside the kernel: see /proc/%d/stack and the filesystem it uses",
	           (int)who->pid);
	return -ATOLL_E_TIMEOUT;
}

/* Another grant, or none. */
static bool has_changed_hands(int dir_fd, const char *file, uint64_t epoch)
{
	struct ticket_holder now;
	int r = ticket_peek(dir_fd, file, &now);

	return r == 0 || (r > 0 && now.epoch != epoch);
}

/* The process is gone; what it started holds the lock until it is gone too. */
static int wait_for_grant(struct atoll_plan *p, const char *file, uint64_t epoch, struct error *err)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	int dir_fd = registry_locks_fd(p->a->reg);
	int64_t deadline = clock_deadline(ENDING_MS), bury_at = clock_deadline(GRACE_MS);

	while (!has_changed_hands(dir_fd, file, epoch)) {
		if (clock_boot_ns() > bury_at && boxes.n == 0 &&
		    sandboxes_load(p->a->reg, p->id, &boxes, NULL) == 0 && boxes.n > 0)
			(void)exec_bury(boxes.v[0].area, NULL);
		if (clock_boot_ns() > deadline)
			return error_set(err, -ATOLL_E_TIMEOUT,
			                 "the holder is gone, but what it started still holds plan "
			                 "'%s'",
			                 p->name);
		clock_sleep_ns(LOOK_EACH);
	}
	return 0;
}

int lock_break(struct atoll_plan *p, pid_t pid, struct atoll_lock_broken *ret, struct error *err)
{
	cleanup_close int pidfd = FD_NONE;
	char file[PLAN_ID_LEN + sizeof(".plan")];
	struct ticket_holder who = { 0 };
	int dir_fd = registry_locks_fd(p->a->reg), sig = 0, r;

	*ret = (struct atoll_lock_broken){ 0 };
	(void)snprintf(file, sizeof(file), "%s.plan", p->id);
	r = ticket_peek(dir_fd, file, &who);
	if (r <= 0)
		return r < 0 ? error_sys(err, r, "look at the lock", file) : 0;
	if (pid && who.pid != pid)
		return error_set(
			err, -ATOLL_E_STATE,
			"plan '%s' is held by pid %d now, no longer by pid %d; nothing was "
			"done",
			p->name, (int)who.pid, (int)pid);
	r = refuse_holder(&who, err);
	if (r < 0)
		return r;
	r = process_open(who.pid, who.start_time, &pidfd);
	if (r < 0)
		return error_sys(err, r, "look at the holder of", p->name);
	if (r > 0)
		r = sig = end_process(pidfd, &who, err);
	if (r >= 0)
		r = wait_for_grant(p, file, who.epoch, err);
	if (r < 0)
		return r;
	ret->pid = who.pid;
	ret->term_signal = sig;
	(void)snprintf(ret->command, sizeof(ret->command), "%s", who.command);
	store_event(p->a, p->id, "break", 0, who.command);
	return 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit log: who decided what, and who got or lost a credential. A file of the store, "audit.log",
 * 0600, only ever added to, a JSON object in each line:
 *
 *   {"format": "atoll.audit/1", "at": "2026-11-15T04:47:15.123Z", "by": "http", "who": "ci", "credential": "3f...", "what":
 *    "POST /v1/plans/fix-42/commit", "plan": "fix-42", "request": "...", "outcome": "asked",
 *    "prev": "<SHA-256 of the line before, its newline included>"}
 *
 * What is decided about a plan's work (commit, undo, redo, rollback, reset, refresh, stop) is in it whatever asked for
 * it: a request, a step of a session, a command. `what` is the verb alone then.
 *
 * What changes something is written twice: "asked" before it is tried, so that it is refused when it
 * cannot be recorded, then how it went, before its answer is sent. Each line carries the digest of the one
 * before, the first one zeros: a line that was changed or taken out shows. That the end was cut off, or
 * all was written anew, shows only to somebody who kept a digest; audit_read() tells the last one.
 *
 * Over AUDIT_FILE_MAX the file is renamed to "audit.N.log", and the chain goes on in a new one. Nothing
 * ever removes these.
 *
 * Locking: the ticket "audit.lk" around reading the end and writing behind it. A leaf.
 * Crash: a line is there and synced before audit_write() answers. One that a crash cut short stays as a
 * line of its own, and counts as one.
 */
#ifndef AUTH_AUDIT_H
#define AUTH_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "plan/plan.h"
#include "util/sha256.h"

#define AUDIT_FILE_MAX (INT64_C(16) << 20)
#define AUDIT_LINE_MAX 4096

enum audit_way { AUDIT_CLI = 0, AUDIT_SOCKET, AUDIT_HTTP, AUDIT_WAY_END_ };

struct audit_entry {
	enum audit_way by;
	const char *who;
	const char *credential; /* id; "": none */
	const char *what;
	const char *plan;    /* "": of none */
	const char *request; /* id of the request; "": none */
	const char *outcome; /* "asked", "ok", or why not */
	bool unsynced;       /* a power cut may take it, and those before it that were */
};
int audit_write(struct atoll *a, const struct audit_entry *e, struct error *err);

/* A line without its newline. WRONG: what is wrong with it, or NULL. Negative: ends the reading. */
struct audit_line {
	const char *file;
	uint64_t number; /* in its file, from 1 */
	const char *text;
	bool is_entry; /* a JSON object */
	const char *wrong;
};
typedef int (*audit_fn)(void *user, const struct audit_line *line);
struct audit_sum {
	uint64_t lines;
	uint64_t wrong;
	uint64_t missing;           /* the number of the first file that is gone, or 0 */
	char last[SHA256_TEXT_LEN]; /* digest of the last line: keep it elsewhere */
};
/* The oldest first. */
int audit_read(struct atoll *a, audit_fn fn, void *user, struct audit_sum *ret, struct error *err);

#endif

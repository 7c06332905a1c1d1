/* SPDX-License-Identifier: Apache-2.0 */
/* What works on this host and what does not: kernel, store, helper, and one directory
 * or database. */
#ifndef PLAN_DOCTOR_H
#define PLAN_DOCTOR_H

enum doctor_level { DOCTOR_OK = 0, DOCTOR_WARNING, DOCTOR_BAD, DOCTOR_LEVEL_END_ };

/* Strings are valid during the callback only. */
struct doctor_finding {
	enum doctor_level level;
	const char *topic; /* "kernel", "store", ... */
	const char *text;  /* one line */
	const char *fix;   /* what to type, or NULL */
	int code;          /* of something bad: -ATOLL_E_* or -errno */
};
typedef void (*doctor_fn)(void *user, const struct doctor_finding *finding);

/* Looks at everything, also past what is bad. PATH: the directory; NULL: the current one, of which
 * nobody asked, so that nothing about it is worse than a warning. The store is the one the
 * environment names. Nothing is changed, but a store that is missing is made. */
void doctor_examine(const char *path, doctor_fn fn, void *user);

#endif

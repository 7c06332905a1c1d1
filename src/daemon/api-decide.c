/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deciding: commit, undo, redo, rollback, reset, refresh. A commit is of what its caller has looked at: the digest
 * of the diff comes in If-Match, and the library commits only what has it.
 */
#include "daemon/api.h"

#include "plan/settings.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <stdio.h>
#include <string.h>

/* ---- If-Match ---- */

static int refuse(struct call *c, unsigned status, const char *text)
{
	struct error err = ERROR_INIT;
	int r;

	(void)error_set(&err, -ATOLL_E_INVALID, "%s", text);
	error_hint(&err, "If-Match: \"DIGEST\", as the ETag of GET /v1/plans/{plan}/diff has it");
	r = reply_error_as(c, status, &err);
	return r < 0 ? r : 1;
}

static bool is_digest(const char *s)
{
	return strspn(s, "0123456789abcdef") == ATOLL_DIGEST_LEN - 1;
}

/* 0 and *ret ("" when there is none); 1: answered. */
static int read_match(struct call *c, bool needed, char ret[ATOLL_DIGEST_LEN])
{
	const char *text = call_header(c, "If-Match");

	ret[0] = '\0';
	if (!text)
		return needed ? refuse(c, 428, "a commit says what it commits") : 0;
	if (strcmp(text, "*") == 0)
		return refuse(c, 428, "a commit says what it commits: '*' is whatever is there");
	if (strlen(text) != ATOLL_DIGEST_LEN + 1 || text[0] != '"' || !is_digest(text + 1) ||
	    text[ATOLL_DIGEST_LEN] != '"')
		return refuse(c, 400, "If-Match is to be one digest, in quotation marks");
	memcpy(ret, text + 1, ATOLL_DIGEST_LEN - 1);
	ret[ATOLL_DIGEST_LEN - 1] = '\0';
	return 0;
}

/* ---- commit ---- */

struct commit {
	const char **paths, **excludes, **ours, **theirs, **allow, **deny;
	const char *retain;
	bool no_undo, ff_only, dry_run;
};

static const struct body_member commit_members[] = {
	BODY_MAY(BODY_TEXTS, struct commit, paths),
	BODY_MAY(BODY_TEXTS, struct commit, excludes),
	BODY_MAY(BODY_TEXTS, struct commit, ours),
	BODY_MAY(BODY_TEXTS, struct commit, theirs),
	BODY_MAY(BODY_TEXTS, struct commit, allow),
	BODY_MAY(BODY_TEXTS, struct commit, deny),
	BODY_MAY(BODY_TEXT, struct commit, retain),
	BODY_MAY(BODY_BOOL, struct commit, no_undo),
	BODY_MAY(BODY_BOOL, struct commit, ff_only),
	BODY_MAY(BODY_BOOL, struct commit, dry_run),
	BODY_END,
};

static const struct api_word allow_words[] = {
	{ "special", ATOLL_ALLOW_SPECIAL },
	{ "setuid", ATOLL_ALLOW_SETUID },
	{ "partial", ATOLL_ALLOW_PARTIAL },
	{ "git-programs", ATOLL_ALLOW_GIT_PROGRAMS },
	{ "open-database", ATOLL_ALLOW_OPEN_DATABASE },
	{ NULL, 0 },
};

static const struct api_word deny_words[] = {
	{ "escaping-links", ATOLL_DENY_ESCAPING_LINKS },
	{ NULL, 0 },
};

static int read_retain(struct call *c, const struct commit *want, int64_t *ret)
{
	if (!want->retain)
		return 0;
	if (want->no_undo)
		return error_set(&c->err, -ATOLL_E_INVALID,
		                 "members 'retain' and 'no_undo' exclude each other");
	if (setting_parse(SETTING_UNDO_RETENTION, want->retain, ret, NULL) < 0)
		return error_set(&c->err, -ATOLL_E_INVALID,
		                 "member 'retain': it is to be a time, such as 15m, 24h or 7d, or "
		                 "never");
	if (*ret == 0)
		*ret = 1; /* as good as not at all */
	return 0;
}

/* An empty text would be the directory that the daemon happens to be in. */
static int check_paths(struct call *c, const char *member, const char *const *list)
{
	for (size_t i = 0; list && list[i]; i++)
		if (*list[i] != '/')
			return error_set(&c->err, -ATOLL_E_INVALID,
			                 "member '%s[%zu]': it is to be an absolute path", member,
			                 i);
	return 0;
}

static int read_commit(struct call *c, const struct commit *want, struct atoll_commit *ret)
{
	int r = api_words(c, "allow", want->allow, allow_words, &ret->flags);

	if (r == 0)
		r = api_words(c, "deny", want->deny, deny_words, &ret->flags);
	if (r == 0)
		r = read_retain(c, want, &ret->retain_ms);
	if (r == 0)
		r = check_paths(c, "paths", want->paths);
	if (r == 0)
		r = check_paths(c, "ours", want->ours);
	if (r == 0)
		r = check_paths(c, "theirs", want->theirs);
	ret->flags |= (want->no_undo ? ATOLL_NO_UNDO : 0) | (want->ff_only ? ATOLL_FF_ONLY : 0) |
	              (want->dry_run ? ATOLL_DRY_RUN : 0) | stores_policy(c->d->stores);
	ret->paths = want->paths;
	ret->excludes = want->excludes;
	ret->ours = want->ours;
	ret->theirs = want->theirs;
	return r;
}

/* Before it is done: whatever becomes of it, the plan's history says who wanted it. */
static void note_approval(struct call *c, const struct atoll_plan *p, const char *digest)
{
	cleanup_free char *text = xasprintf("%s, of digest %s", c->who.name, digest);

	store_event(c->atoll, atoll_plan_id(p), "approve", 0, text);
}

static int commit(struct call *c)
{
	cleanup_body struct body b = BODY_INIT;
	cleanup_plan struct atoll_plan *p = NULL;
	char digest[ATOLL_DIGEST_LEN];
	struct atoll_commit how = { 0 };
	struct commit want = { 0 };
	int r = body_read(c, &b, commit_members, &want);

	if (r == 0)
		r = read_commit(c, &want, &how);
	if (r == 0)
		r = read_match(c, !want.dry_run, digest);
	if (r == 0)
		r = call_plan(c, 0, &p);
	if (r != 0)
		return r < 0 ? r : 0;
	how.digest = *digest ? digest : NULL;
	api_settle(c, p);
	if (!want.dry_run)
		note_approval(c, p, digest);
	r = atoll_plan_commit_with(p, &how, c->res);
	return r < 0 ? r : api_decided(c, p, "commit", how.flags);
}

/* ---- the others ---- */

struct take_back {
	const char **allow, **ours, **theirs;
	bool keep_theirs, keep_work;
};

static const struct body_member rollback_members[] = {
	BODY_MAY(BODY_TEXTS, struct take_back, allow),
	BODY_MAY(BODY_BOOL, struct take_back, keep_theirs),
	BODY_MAY(BODY_BOOL, struct take_back, keep_work),
	BODY_END,
};

static const struct body_member undo_members[] = {
	BODY_MAY(BODY_TEXTS, struct take_back, allow),
	BODY_MAY(BODY_BOOL, struct take_back, keep_theirs),
	BODY_MAY(BODY_TEXTS, struct take_back, ours),
	BODY_MAY(BODY_TEXTS, struct take_back, theirs),
	BODY_END,
};

static const struct body_member redo_members[] = {
	BODY_MAY(BODY_TEXTS, struct take_back, ours),
	BODY_END,
};

static const struct api_word take_back_words[] = {
	{ "partial", ATOLL_ALLOW_PARTIAL },
	{ NULL, 0 },
};

static int take_back(struct call *c, const struct body_member *members, const char *format,
                     int (*verb)(struct atoll_plan *p, const struct atoll_undo *how,
                                 struct atoll_result *res))
{
	struct atoll_undo how = { 0 };
	cleanup_body struct body b = BODY_INIT;
	cleanup_plan struct atoll_plan *p = NULL;
	struct take_back want = { 0 };
	int r = body_read(c, &b, members, &want);

	if (r == 0)
		r = api_words(c, "allow", want.allow, take_back_words, &how.flags);
	if (r == 0)
		r = check_paths(c, "ours", want.ours);
	if (r == 0)
		r = check_paths(c, "theirs", want.theirs);
	if (r == 0)
		r = call_plan(c, 0, &p);
	if (r != 0)
		return r < 0 ? r : 0;
	how.flags |=
		(want.keep_theirs ? ATOLL_KEEP_THEIRS : 0) | (want.keep_work ? ATOLL_KEEP_WORK : 0);
	how.ours = want.ours;
	how.theirs = want.theirs;
	api_settle(c, p);
	r = verb(p, &how, c->res);
	return r < 0 ? r : api_decided(c, p, format, how.flags);
}

static int roll_back(struct atoll_plan *p, const struct atoll_undo *how, struct atoll_result *res)
{
	return atoll_plan_rollback(p, how->flags, res);
}

static int rollback(struct call *c)
{
	return take_back(c, rollback_members, "rollback", roll_back);
}

static int undo(struct call *c)
{
	return take_back(c, undo_members, "undo", atoll_plan_undo_with);
}

static int redo(struct call *c)
{
	return take_back(c, redo_members, "redo", atoll_plan_redo_with);
}

static const struct body_member no_members[] = { BODY_END };

static int decide(struct call *c, const char *format,
                  int (*verb)(struct atoll_plan *p, struct atoll_result *res))
{
	cleanup_body struct body b = BODY_INIT;
	cleanup_plan struct atoll_plan *p = NULL;
	int r = api_bound(c);

	if (r == 0)
		r = body_read(c, &b, no_members, NULL);
	if (r == 0)
		r = call_plan(c, 0, &p);
	if (r != 0)
		return r < 0 ? r : 0;
	api_settle(c, p);
	r = verb(p, c->res);
	return r < 0 ? r : api_decided(c, p, format, 0);
}

static int reset(struct call *c)
{
	return decide(c, "reset", atoll_plan_reset);
}

static int refresh(struct call *c)
{
	return decide(c, "refresh", atoll_plan_refresh);
}

const struct route decide_routes[] = {
	{ "POST", "/v1/plans/{plan}/commit", MAY_REVIEW, ROUTE_STORE, KIB(1024), commit },
	{ "POST", "/v1/plans/{plan}/undo", MAY_REVIEW, ROUTE_STORE, KIB(16), undo },
	{ "POST", "/v1/plans/{plan}/redo", MAY_REVIEW, ROUTE_STORE, KIB(16), redo },
	{ "POST", "/v1/plans/{plan}/rollback", MAY_REVIEW, ROUTE_STORE, KIB(16), rollback },
	{ "POST", "/v1/plans/{plan}/reset", MAY_AGENT, ROUTE_STORE, KIB(16), reset },
	{ "POST", "/v1/plans/{plan}/refresh", MAY_AGENT, ROUTE_STORE, KIB(16), refresh },
	{ NULL, NULL, 0, 0, 0, NULL },
};

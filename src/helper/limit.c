/* SPDX-License-Identifier: Apache-2.0 */
/* Which limit is held by what. */
#include "helper/limit.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static const enum request_field fields[REQUEST_LIMIT_END_] = {
	[REQUEST_LIMIT_MEMORY] = REQUEST_MEMORY,
	[REQUEST_LIMIT_CPUS] = REQUEST_CPUS,
	[REQUEST_LIMIT_PIDS] = REQUEST_PIDS,
};

static const char slots[REQUEST_LIMIT_END_] = { 'm', 'c', 'p' };

int limits_read(struct limits *l, const struct request *q)
{
	*l = LIMITS_INIT;
	for (int i = 0; i < REQUEST_LIMIT_END_; i++) {
		const char *text = request_get(q, fields[i], 0);
		char *end;
		long long n;

		if (!text)
			continue;
		errno = 0;
		n = strtoll(text, &end, 10);
		if (errno != 0 || end == text || *end != '\0' || n <= 0)
			return -EPROTO;
		l->value[i] = n;
	}
	return 0;
}

/* ---- the helper ---- */

static unsigned wanted(const struct limits *l)
{
	unsigned mask = 0;

	for (int i = 0; i < REQUEST_LIMIT_END_; i++)
		if (l->value[i] > 0 && l->by[i] == REPLY_LIMIT_UNASKED)
			mask |= 1u << i;
	return mask;
}

static int offer_entrance(const struct limit_group *g, unsigned mask)
{
	cleanup_close int fd = group_entrance(g);

	if (fd < 0)
		return fd;
	for (int i = 0; i < REQUEST_LIMIT_END_; i++) {
		int r = mask >> i & 1 ? request_put(slots[i], fd) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

static void try_group(struct limits *l, unsigned mask, enum reply_limit version)
{
	struct limit_group g = { .dir_fd = FD_NONE };

	if (mask == 0 || group_make(l, mask, version, &g) < 0)
		return;
	if (offer_entrance(&g, mask) < 0) {
		group_remove(&g);
		return;
	}
	l->groups[l->n_groups++] = g;
	for (int i = 0; i < REQUEST_LIMIT_END_; i++)
		if (mask >> i & 1)
			l->by[i] = version;
}

/* Without a group; root is not bound by a number of processes. */
static enum reply_limit fallback(int which)
{
	if (which == REQUEST_LIMIT_MEMORY || (which == REQUEST_LIMIT_PIDS && geteuid() != 0))
		return REPLY_LIMIT_RLIMIT;
	return REPLY_LIMIT_NOTHING;
}

void limits_make(struct limits *l)
{
	try_group(l, wanted(l), REPLY_LIMIT_CGROUP2);
	for (int i = 0; i < REQUEST_LIMIT_END_; i++) {
		try_group(l, wanted(l) & 1u << i, REPLY_LIMIT_CGROUP2);
		try_group(l, wanted(l) & 1u << i, REPLY_LIMIT_CGROUP1);
		if (wanted(l) >> i & 1)
			l->by[i] = fallback(i);
	}
}

char *limits_paths(const struct limits *l)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	for (unsigned i = 0; i < l->n_groups; i++)
		strbuf_printf(&sb, "%s\n", l->groups[i].path);
	return strbuf_take(&sb);
}

void limits_end(struct limits *l, struct reply *reply)
{
	for (int i = 0; i < REQUEST_LIMIT_END_; i++)
		reply->limit_by[i] = (int32_t)l->by[i];
	for (unsigned i = 0; i < l->n_groups; i++) {
		reply->memory_kills += group_memory_kills(&l->groups[i]);
		group_remove(&l->groups[i]);
	}
	l->n_groups = 0;
}

/* ---- the command ---- */

static int lower(__rlimit_resource_t which, int64_t value)
{
	struct rlimit rl;

	if (getrlimit(which, &rl) < 0)
		return -errno;
	if (rl.rlim_max != RLIM_INFINITY && rl.rlim_max < (rlim_t)value)
		value = (int64_t)rl.rlim_max;
	rl = (struct rlimit){ .rlim_cur = (rlim_t)value, .rlim_max = (rlim_t)value };
	return setrlimit(which, &rl) < 0 ? -errno : 0;
}

int limits_enter(const struct limits *l)
{
	int r = 0;

	for (int i = 0; r == 0 && i < REQUEST_LIMIT_END_; i++) {
		if (l->value[i] <= 0)
			continue;
		if (request_has(slots[i]))
			r = fs_write_all(LIMIT_FD + i, "0", 1);
		else if (i == REQUEST_LIMIT_MEMORY)
			r = lower(RLIMIT_DATA, l->value[i]);
		else if (i == REQUEST_LIMIT_PIDS)
			r = lower(RLIMIT_NPROC, l->value[i]);
	}
	return r;
}

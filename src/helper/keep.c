/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/keep.h"

#include "exec/request.h"
#include "fs/atomic.h"
#include "util/cleanup.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Another segment for every few bytes would cost the command more than it does. */
#define EACH_MIN (32u << 10)

static void segment_name(uint64_t begin, char out[EXEC_SEGMENT_LEN])
{
	(void)snprintf(out, EXEC_SEGMENT_LEN, EXEC_SEGMENT, begin);
}

static int next_segment(struct keep *k)
{
	char name[EXEC_SEGMENT_LEN];

	close_fd(&k->fd);
	if (k->n == 2) {
		segment_name(k->begins[0], name);
		(void)fs_unlink_at(k->dir_fd, name);
		k->begins[0] = k->begins[1];
		k->n = 1;
	}
	segment_name(k->total, name);
	k->begins[k->n++] = k->total;
	return fs_create_at(k->dir_fd, name, 0600, &k->fd);
}

void keep_open(struct keep *k, const char *dir, const char *max)
{
	*k = (struct keep){ .dir_fd = FD_NONE, .fd = FD_NONE, .nothing = !*dir };
	if (k->nothing)
		return;
	k->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	k->each = strtoull(max, NULL, 10) / 2;
	k->each = k->each < EACH_MIN ? EACH_MIN : k->each;
	k->failed = k->dir_fd < 0;
}

void keep_add(struct keep *k, const char *data, size_t len)
{
	while (len > 0 && !k->failed && !k->nothing) {
		uint64_t room = k->fd == FD_NONE ? 0 : k->begins[k->n - 1] + k->each - k->total;
		size_t n = len < room ? len : (size_t)room;

		if (n == 0) {
			k->failed = next_segment(k) < 0;
			continue;
		}
		k->failed = fs_write_all(k->fd, data, n) < 0;
		k->total += n;
		data += n;
		len -= n;
	}
}

bool keep_close(struct keep *k)
{
	close_fd(&k->fd);
	close_fd(&k->dir_fd);
	return !k->failed;
}

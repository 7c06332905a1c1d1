/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of the running command, for those that join it. */
#include "plan/command-env.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#define ENV_NAME "environment"
#define ENV_MAX  (1u << 20)

/* Each ends with a NUL, as in /proc/PID/environ. */
static int write_env(int dir_fd, const struct strlist *env)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	cleanup_close int fd = FD_NONE;
	int r = fs_unlink_at(dir_fd, ENV_NAME);

	if (r < 0 && r != -ENOENT)
		return r;
	if (env->n == 0)
		return 0;
	for (size_t i = 0; i < env->n; i++)
		strbuf_add(&sb, env->v[i], strlen(env->v[i]) + 1);
	r = fs_create_at(dir_fd, ENV_NAME, 0600, &fd);
	return r < 0 ? r : fs_write_all(fd, sb.buf, sb.len);
}

int command_env_keep(const char *area, const struct strlist *env, struct error *err)
{
	cleanup_close int dir_fd = open(area, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = dir_fd < 0 ? -errno : write_env(dir_fd, env);

	return r < 0 ? error_sys(err, r, "keep the environment of the command in", area) : 0;
}

int command_env_read(const char *area, struct strlist *env, struct error *err)
{
	cleanup_close int dir_fd = open(area, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int fd = FD_NONE;
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r = dir_fd < 0 ? -errno : 0;

	if (r == 0) {
		fd = openat(dir_fd, ENV_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 && errno == ENOENT)
			return 0;
		r = fd < 0 ? -errno : fs_read_all(fd, ENV_MAX, &text, &len);
	}
	if (r < 0)
		return error_sys(err, r, "read the environment of the command in", area);
	for (const char *at = text; at < text + len; at += strlen(at) + 1)
		strlist_add(env, at);
	return 0;
}

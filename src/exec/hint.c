/* SPDX-License-Identifier: Apache-2.0 */
/* Why a command could not be started, and what to do about it. */
#include "exec/exec-impl.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* The machine's own limits: told as they are, and not for want of something on this host. */
static const struct {
	int error;
	const char *hint;
} limits[] = {
	{ EAGAIN, "too many processes: see ulimit -u, and pids.max of the control group" },
	{ EDQUOT, "free space there, or ask for more: quota" },
	{ EIO, "see what the kernel says: dmesg" },
	{ EMFILE, "too many open files: raise ulimit -n" },
	{ ENFILE, "too many open files on this machine: sysctl fs.file-max" },
	{ ENOMEM, "free memory, or see the control group's memory.max" },
	{ ENOSPC,
	  "free space or inodes there: df, df -i; mounts have a limit too: sysctl fs.mount-max" },
	{ EROFS, "see why it is read-only (dmesg), then: mount -o remount,rw" },
};

int exec_reply_error(const struct reply *reply, int code, const char *op, struct error *err)
{
	if (reply->flags & REPLY_SAYS_WHY)
		(void)error_set(err, code, "cannot %s", reply->text);
	else
		(void)error_set(err, code, "cannot %s: %s", reply->text, strerror(reply->error));
	error_cause(err, op, NULL, reply->error, NULL);
	return code;
}

const char *exec_limit_hint(int error)
{
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (error == limits[i].error)
			return limits[i].hint;
	return NULL;
}

int exec_sys_error(int r, const char *op, const char *path, struct error *err)
{
	(void)error_sys(err, r, op, path);
	if (exec_limit_hint(-r))
		error_hint(err, "%s", exec_limit_hint(-r));
	return r;
}

/* What a command has to itself: what the caller has there it does not see. */
static const char *private_place(const struct exec_options *opt)
{
	const char *const places[] = { "/tmp", "/run", "/dev", "/proc",
		                       opt->var_tmp || opt->join ? "/var/tmp" : NULL };

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && places[i]; i++) {
		size_t len = strlen(places[i]);

		if (strncmp(opt->cwd, places[i], len) == 0 &&
		    (opt->cwd[len] == '/' || opt->cwd[len] == '\0'))
			return places[i];
	}
	return NULL;
}

int exec_cwd_failed(const struct exec_options *opt, int error, struct error *err)
{
	bool in_views = opt->n_views > 0 || opt->join;
	const char *own = in_views && error == ENOENT && opt->cwd ? private_place(opt) : NULL;
	const char *name = opt->cwd ? opt->cwd : "the current directory";

	/* Not -ENOENT: that would say that the command does not exist. */
	(void)error_set(err, -ATOLL_E_NOT_FOUND, "cannot enter '%s'%s: %s", name,
	                in_views ? " in the plan's view" : "", strerror(error));
	error_cause(err, "chdir", name, error, NULL);
	if (own)
		error_hint(err,
		           "a command has a '%s' of its own, with the plan's resources alone in it:"
		           " begin in one of them, or outside '%s'",
		           own, own);
	else
		error_hint(err, "begin in a directory that is there and may be entered");
	return -ATOLL_E_NOT_FOUND;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What people can do about an errno. */
#include "util/remedy.h"

#include <errno.h>
#include <stddef.h>

static const struct {
	int os_errno;
	const char *text;
} remedies[] = {
	{ EACCES, "see who may do that (ls -ld)" },
	{ EDQUOT,
	  "make room there (atoll discard and atoll rm free what plans keep) or ask for a larger quota (quota)" },
	{ EIO, "see what the kernel says of the disk (dmesg)" },
	{ EMFILE, "allow more open files (ulimit -n)" },
	{ ENFILE, "allow more open files on this machine (sysctl fs.file-max)" },
	{ ENOMEM, "free memory" },
	{ ENOSPC, "make room there (df, df -i; atoll discard and atoll rm free what plans keep)" },
	{ EPERM, "see who may do that (ls -ld, lsattr -d)" },
	{ EROFS, "make it writable again (as root: mount -o remount,rw)" },
};

const char *remedy_for(int os_errno)
{
	for (size_t i = 0; i < sizeof(remedies) / sizeof(remedies[0]); i++)
		if (remedies[i].os_errno == os_errno)
			return remedies[i].text;
	return "fix the problem above";
}

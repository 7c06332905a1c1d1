/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/acl.h"

#include <endian.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <linux/xattr.h>
#include <string.h>
#include <unistd.h>

#include "fs/xattr.h"

static const char *const kinds[] = { XATTR_NAME_POSIX_ACL_ACCESS, XATTR_NAME_POSIX_ACL_DEFAULT };
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static bool names_others(const struct xattr *x)
{
	struct posix_acl_xattr_entry e;

	for (size_t at = sizeof(struct posix_acl_xattr_header); at + sizeof(e) <= x->len;
	     at += sizeof(e)) {
		memcpy(&e, (const char *)x->value + at, sizeof(e));
		if ((le16toh(e.e_tag) == ACL_USER && le32toh(e.e_id) != geteuid()) ||
		    (le16toh(e.e_tag) == ACL_GROUP && le32toh(e.e_id) != getegid()))
			return true;
	}
	return false;
}

bool acl_names_others(int dir_fd, const char *name)
{
	for (size_t i = 0; i < N_KINDS; i++) {
		cleanup_xattr struct xattr x = XATTR_INIT;

		if (xattr_read_at(dir_fd, name, kinds[i], &x) == 1 && names_others(&x))
			return true;
	}
	return false;
}

static int put_back(int from_fd, const char *from, int to_fd, const char *to, const char *kind)
{
	cleanup_xattr struct xattr was = XATTR_INIT, is = XATTR_INIT;
	int r = xattr_read_at(from_fd, from, kind, &was);

	if (r <= 0 || !names_others(&was))
		return r < 0 ? r : 0;
	r = xattr_read_at(to_fd, to, kind, &is);
	if (r != 0)
		return r < 0 ? r : 0;
	r = xattr_set_at(to_fd, to, &was);
	return r < 0 ? r : 1;
}

int acl_put_back(int from_fd, const char *from, int to_fd, const char *to)
{
	int done = 0;

	for (size_t i = 0; i < N_KINDS; i++) {
		int r = put_back(from_fd, from, to_fd, to, kinds[i]);

		if (r < 0)
			return r;
		done |= r;
	}
	return done;
}

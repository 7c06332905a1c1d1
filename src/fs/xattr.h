/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes of any entry, without following links. POSIX ACLs are two of them. */
#ifndef FS_XATTR_H
#define FS_XATTR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xattr {
	char *name;
	void *value;
	size_t len;
};
#define XATTR_INIT ((struct xattr){ 0 })
void xattr_done(struct xattr *x);
#define cleanup_xattr __attribute__((__cleanup__(xattr_done)))
struct xattrs {
	struct xattr *v; /* sorted by name */
	size_t n;
};
#define XATTRS_INIT ((struct xattrs){ 0 })

/* All of them but overlayfs's own (trusted.overlay.*, user.overlay.*). A filesystem without
 * extended attributes has none. NAME "" : DIR_FD itself. -ATOLL_E_TOO_BIG over LIMIT_XATTRS. */
int xattrs_read_at(int dir_fd, const char *name, struct xattrs *ret);
bool xattrs_equal(const struct xattrs *a, const struct xattrs *b);
bool xattrs_has(const struct xattrs *x, const char *name);
/* Both have NAME, with the same value. */
bool xattrs_same(const struct xattrs *a, const struct xattrs *b, const char *name);
uint64_t xattrs_hash(const struct xattrs *x); /* 0 when there are none */
/* Of those that xattrs_read_at() reads; 0 on failure, too. */
int xattrs_hash_at(int dir_fd, const char *name, uint64_t *ret);
/* Makes the entry carry exactly WANT: sets, replaces, removes. Attributes this user may not
 * set (security.*, trusted.*) are skipped when they are already equal, else the error counts. */
int xattrs_write_at(int dir_fd, const char *name, const struct xattrs *want);
/* One of them: 1; 0: there is none, or the filesystem has no such attributes. */
int xattr_read_at(int dir_fd, const char *entry, const char *xattr_name, struct xattr *ret);
int xattr_set_at(int dir_fd, const char *entry, const struct xattr *want);
int xattr_remove_at(int dir_fd, const char *entry, const char *xattr_name); /* -ENODATA is 0 */
void xattrs_done(struct xattrs *x);
#define cleanup_xattrs __attribute__((__cleanup__(xattrs_done)))

#endif

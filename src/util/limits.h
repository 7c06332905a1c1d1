/* SPDX-License-Identifier: Apache-2.0 */
/* Every bound on what comes from outside. Checked before allocating; over it: ATOLL_E_TOO_BIG. */
#ifndef UTIL_LIMITS_H
#define UTIL_LIMITS_H

#define LIMIT_NAME        64           /* plan name, bytes */
#define LIMIT_SANDBOXES   256          /* per plan */
#define LIMIT_PATH        (1u << 20)   /* a path below a root, bytes (trees past PATH_MAX) */
#define LIMIT_DIR_ENTRIES (4u << 20)   /* entries of one directory */
#define LIMIT_XATTRS      (1u << 20)   /* names and values of one entry, bytes */
#define LIMIT_RECORD      (4u << 20)   /* one record of a manifest or base record, bytes */
#define LIMIT_MANIFEST    (1ull << 32) /* a manifest, bytes */
#define LIMIT_CONFIG      (1u << 20)   /* a file of settings or of a plan, bytes */
#define LIMIT_GIT_INDEX   (1u << 30)   /* git's index, or a shared part of one, bytes */
#define LIMIT_TEXT        (16u << 20)  /* a file that is compared line by line, bytes */
#define LIMIT_TEXT_LINES  (1u << 20)   /* and its lines: each takes some hundred bytes */
#define LIMIT_MESSAGE     4096         /* one error message, bytes */
#define LIMIT_COMMAND     160          /* a command line in a lock record, bytes */
#define LIMIT_CONFLICTS   100          /* named in one result; the rest is counted */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What people can do about an errno, for hints. */
#ifndef UTIL_REMEDY_H
#define UTIL_REMEDY_H

/* Words that ", then ..." can follow: "make room there (df, df -i)". "fix the problem above" where nothing
 * better is known, and for 0. */
const char *remedy_for(int os_errno);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Putting nothing where something is: an empty directory or file over it, which cannot be written. */
#ifndef HELPER_HIDE_H
#define HELPER_HIDE_H

#include "helper/failure.h"

#include <stdbool.h>

/* Which of the four nothings there are; they are made on first use, in a directory of ours. */
struct hide {
	unsigned made;
};

/* PATH, if it is there, in the tree as it is now. HOLDER_FD: a directory on an attached mount of ours,
 * still writable. IS_CLOSED: nobody but root may look. */
int hide_path(struct hide *h, int holder_fd, const char *path, bool is_closed, struct failure *f);
/* Takes their names out of the directory again; what is hidden stays hidden. */
void hide_done(struct hide *h, int holder_fd);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Scope-bound ownership of memory and descriptors. Variables so marked are always initialised. */
#ifndef UTIL_CLEANUP_H
#define UTIL_CLEANUP_H

#define FD_NONE (-1)

void cleanup_freep(void *p);  /* frees *(void **)p, keeps errno */
void cleanup_closep(int *fd); /* closes *fd unless FD_NONE, keeps errno */

#define cleanup_free  __attribute__((__cleanup__(cleanup_freep)))
#define cleanup_close __attribute__((__cleanup__(cleanup_closep)))

int take_fd(int *fd); /* *fd, which becomes FD_NONE */
/* p, which becomes NULL */
#define take_ptr(p)                                 \
	__extension__({                             \
		__typeof__(p) take_ptr_value = (p); \
		(p) = NULL;                         \
		take_ptr_value;                     \
	})

/* Closes *fd now, unless FD_NONE, and sets it to FD_NONE. Keeps errno. */
void close_fd(int *fd);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Carrying out a request (exec/request.h): one command, from its start until nothing of it is left. */
#ifndef HELPER_RUN_H
#define HELPER_RUN_H

/* Reads the request from its descriptor and answers on the other. Exit status for main(). */
int run_helper(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll-sync, the program: for those who start it in a plan.
 *
 *   atoll-sync apply ROOT <stream         apply.h
 *   atoll-sync send ROOT <paths >stream   send.h
 *   atoll-sync list ROOT >stream          send.h
 *
 * 0; or 1 and one line of JSON on stderr: {"code","message","path"}, as error_code_name() says the code,
 * path null where there is none; 2: wrong usage.
 */
#ifndef SYNC_PROGRAM_H
#define SYNC_PROGRAM_H

/* Where it is; util/program.h says how it is found ($ATOLL_SYNC). Caller frees. */
char *sync_program_path(void);

#endif

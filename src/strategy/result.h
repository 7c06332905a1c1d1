/* SPDX-License-Identifier: Apache-2.0 */
/* struct atoll_result from inside: one shape for every outcome. The accessors are public. */
#ifndef STRATEGY_RESULT_H
#define STRATEGY_RESULT_H

#include <atoll.h>
#include "util/error.h"

/* All accept RES NULL and do nothing then. */
void result_reset(struct atoll_result *res);
/* Takes ERR over (empties it); returns the code. Also with code 0. */
int result_set(struct atoll_result *res, struct error *err, int code);
void result_set_atomicity(struct atoll_result *res, enum atoll_atomicity a);
/* Adds a row or returns the one of that sandbox; NULL when RES is NULL. Strings in the row are
 * set through result_row_text(), which copies. */
struct atoll_participant_result *result_row(struct atoll_result *res, const char *sandbox,
                                            const char *root, const char *strategy);
/* It is the last one to be committed. */
void result_row_last(struct atoll_result *res, const char *sandbox);
void result_row_error(struct atoll_result *res, struct atoll_participant_result *row,
                      const struct error *err);
void result_row_recovery_path(struct atoll_result *res, struct atoll_participant_result *row,
                              const char *path);
void result_note(struct atoll_result *res, enum atoll_note_kind kind, const char *sandbox,
                 const char *path, const char *text);

#endif

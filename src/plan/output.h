/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What commands printed, kept with their plan: a directory each, in `output` of the first resource's
 * area, with segments in it (exec/exec.h). The registry has its name. Names begin with the time, so
 * that they sort by it; the oldest go when there are more than OUTPUT_MOST. All go with the plan.
 */
#ifndef PLAN_OUTPUT_H
#define PLAN_OUTPUT_H

#include <stdint.h>
#include "plan/plan.h"
#include "util/error.h"

#define OUTPUT_MOST     64
#define OUTPUT_NAME_LEN 33

/* Makes a directory for a command of the plan whose first area is AREA. The caller frees *ret_path. */
int output_make(const char *area, char name[OUTPUT_NAME_LEN], char **ret_path, struct error *err);
/* Nothing was kept: it goes. */
void output_drop(const char *area, const char *name);

struct output_size {
	uint64_t bytes;    /* kept */
	uint64_t left_out; /* before them */
};
/* Of what command NAME of a plan printed: 1; 0 when there is nothing (any more). */
int output_size(struct atoll *a, const char *plan_id, const char *name, struct output_size *ret);
/* Reads from byte OFFSET of all that was printed on, or from the first one that is kept: where it
 * ended, or -errno. */
int64_t output_read(struct atoll *a, const char *plan_id, const char *name, uint64_t offset,
                    atoll_output_fn fn, void *user, struct error *err);

#endif

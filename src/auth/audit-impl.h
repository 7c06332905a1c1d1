/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AUTH_AUDIT_IMPL_H
#define AUTH_AUDIT_IMPL_H

#include "auth/audit.h"
#include "lock/ticket.h"

#define AUDIT_NAME  "audit.log"
#define AUDIT_ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

/* Names of files that are full: "audit.12.log". 0: it is none. */
uint64_t audit_number(const char *name);
#define AUDIT_NAME_LEN 32
void audit_name(uint64_t number, char out[AUDIT_NAME_LEN]);
/* The first and the last number there is; 0: none. */
int audit_numbers(struct atoll *a, uint64_t *ret_first, uint64_t *ret_last, struct error *err);

int audit_lock(struct atoll *a, struct ticket *t, struct error *err);
int audit_failed(struct error *err, int code, const char *op, const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What a test leaves behind (rule TST-06): counted before, looked for after. */
#ifndef ATEST_INVENTORY_H
#define ATEST_INVENTORY_H

struct inventory;

/* How long is waited for what ends by itself, and for what other tests have beside ours. */
extern int inventory_patience_ms;

struct inventory *inventory_take(const char *dir);
void inventory_free(struct inventory *inv);
/* Lifts every immutable flag below DIR, on mounts too, so that clean-up can work. */
void inventory_lift(const char *dir);
/* All answer the number of things left, having named each on standard error. */
int inventory_areas(const struct inventory *inv, const char *dir, const char *home);
int inventory_compare(const struct inventory *inv, const char *dir);
int inventory_unmount(const char *path);
int inventory_remove(const char *dir);

#endif

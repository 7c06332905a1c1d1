/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite schema, as the steps that lead to it from an empty file. */
#ifndef REGISTRY_SCHEMA_H
#define REGISTRY_SCHEMA_H

#define SCHEMA_APPLICATION_ID 0x41746f6c /* "Atol" */
#define SCHEMA_VERSION        11

/* Step i brings version i to i + 1. A step, once released, is never changed: add another. */
extern const char *const schema_steps[SCHEMA_VERSION];

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* `atoll-helper --probe ROOT AREA`: what of namespaces and overlays works here, by trying. */
#ifndef HELPER_PROBE_H
#define HELPER_PROBE_H

/*
 * Answers like a request: REPLY_STARTED, an overlay over ROOT with its upper layer in AREA works;
 * REPLY_VIEW, namespaces do and it does not; REPLY_NAMESPACE, not even these; the text says why.
 * Exit status for main().
 * Crash: a directory ".probe-" with 16 hex digits in AREA.
 */
int probe_run(const char *root, const char *area);

#endif

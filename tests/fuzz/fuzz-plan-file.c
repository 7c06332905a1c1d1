/* SPDX-License-Identifier: Apache-2.0 */
/* Any file for `start --file`: read without harm; a refusal names a line; what is accepted is complete. */
#include "cli/plan-file.h"

#include "fuzz/fuzz.h"
#include "util/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_plan_file struct plan_file pf = PLAN_FILE_INIT;
	cleanup_error struct error err = ERROR_INIT;
	cleanup_close int fd = fuzz_file(data, size);
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (plan_file_read(path, &pf, &err) < 0) {
		must(err.msg && *err.msg);
		return 0;
	}
	for (size_t i = 0; i < pf.n; i++) {
		const struct plan_file_resource *r = &pf.v[i];

		must(r->label && r->path && (*r->path == '/' || r->is_url) && r->line > 0);
		must(!r->parent || plan_file_parent(&pf, r) != NULL);
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Any message to atoll-helper: read without harm; what is accepted says the same when it is sent on. */
#include "exec/request.h"

#include <atoll.h>
#include <errno.h>

#include "fuzz/fuzz.h"
#include "util/cleanup.h"

static void same(const struct request *a, const struct request *b)
{
	for (unsigned f = 1; f < REQUEST_FIELD_END_; f++) {
		must(request_count(a, f) == request_count(b, f));
		for (unsigned i = 0; i < request_count(a, f); i++)
			must(strcmp(request_get(a, f, i), request_get(b, f, i)) == 0);
		must(request_get(a, f, request_count(a, f)) == NULL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_request struct request *r = NULL, *again = NULL;
	cleanup_close int fd = fuzz_file(data, size), sent = fuzz_file(NULL, 0);
	int err = request_receive(fd, &r);

	if (err < 0) {
		must(!r && (err == -EPROTO || err == -ATOLL_E_TOO_BIG));
		return 0;
	}
	must(request_send(r, sent) >= 0 && lseek(sent, 0, SEEK_CUR) == (off_t)size);
	must(lseek(sent, 0, SEEK_SET) == 0 && request_receive(sent, &again) == 0);
	same(r, again);
	return 0;
}

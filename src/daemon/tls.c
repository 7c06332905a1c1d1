/* SPDX-License-Identifier: Apache-2.0 */
/* Two small files. */
#include "daemon/tls.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_file(const char *path, bool secret, char **ret, struct error *err)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	size_t len;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_sys(err, -errno, "open", path);
	if (secret && (st.st_mode & S_IRWXO)) {
		(void)error_set(err, -ATOLL_E_DENIED, "the key '%s' is open to everybody", path);
		error_hint(err, "chmod 600 %s", path);
		return -ATOLL_E_DENIED;
	}
	r = fs_read_all(fd, LIMIT_CONFIG, ret, &len);
	return r < 0 ? error_sys(err, r, "read", path) : 0;
}

int tls_open(struct daemon *d, struct error *err)
{
	int r;

	if (!d->options.tls_cert)
		return 0;
	if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
		return error_set(err, -ATOLL_E_UNSUPPORTED, "this libmicrohttpd has no TLS");
	r = read_file(d->options.tls_cert, false, &d->tls_cert, err);
	return r < 0 ? r : read_file(d->options.tls_key, true, &d->tls_key, err);
}

void tls_close(struct daemon *d)
{
	if (d->tls_key)
		explicit_bzero(d->tls_key, strlen(d->tls_key));
	free(d->tls_key);
	free(d->tls_cert);
	d->tls_key = d->tls_cert = NULL;
}

// Text files as people bring them, read alike wherever text or lines of JSON are taken from a file.
#ifndef PL_PLAIN_H
#define PL_PLAIN_H

#include "kernels/base/status.h"
#include <stddef.h>

// The bytes of a file of at most `max`, 0-terminated (pl_free): a byte order mark is dropped, "\r\n" and lone "\r"
// become "\n". Refused with how to mend it: UTF-16, gzip, zip, Parquet, HTML, a Git LFS pointer (pl_sniff).
// The rest is not judged: it need not be UTF-8.
pl_status pl_plain_read(char **text, size_t *n, const char *path, size_t max, pl_err *err);
// The same of an input that a user may pipe in.
pl_status pl_plain_stream(char **text, size_t *n, const char *path, size_t max, pl_err *err);

#endif

// What stands in a file that is not what its name says, for the line that refuses it.
#ifndef PL_SNIFF_H
#define PL_SNIFF_H

#include <stddef.h>

// Returns what the first bytes are of (a pointer of Git LFS, a page of HTML, Parquet, UTF-16, gzip, zip, GGUF,
// safetensors), with how to mend it; NULL: none of these.
const char *pl_sniff(const void *data, size_t n);
// A path that begins with "~/", which shells alone expand (not in quotes, not in recipes): "; ..." to be appended to a
// message that says it is not there. Else "".
const char *pl_sniff_path(const char *path);

#endif

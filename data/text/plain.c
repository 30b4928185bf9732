#include "data/text/plain.h"
#include "data/text/text.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <stdbool.h>
#include <string.h>

// Takes the bytes over.
static pl_status make_plain(char **text, size_t *n, const char *path, uint8_t *data, size_t bytes, pl_err *err) {
    bool        gzip = bytes >= 2 && data[0] == 0x1f && data[1] == 0x8b;
    const char *other = gzip ? "a gzip file; unpack it first (gunzip -k)" : pl_sniff(data, bytes);
    if (other) {
        pl_free(data);
        return pl_fail(err, PL_E_INPUT, "%s: %s", path, other);
    }
    *text = (char *)data;
    if (bytes >= 3 && memcmp(data, "\xEF\xBB\xBF", 3) == 0) memmove(*text, *text + 3, bytes -= 3);
    *n = pl_text_normalize_newlines(*text, bytes);
    (*text)[*n] = 0;
    return PL_OK;
}

pl_status pl_plain_read(char **text, size_t *n, const char *path, size_t max, pl_err *err) {
    uint8_t *data;
    size_t   bytes;
    *text = NULL;
    *n = 0;
    PL_TRY(pl_file_read(path, &data, &bytes, max, err));
    return make_plain(text, n, path, data, bytes, err);
}

pl_status pl_plain_stream(char **text, size_t *n, const char *path, size_t max, pl_err *err) {
    uint8_t *data;
    size_t   bytes;
    *text = NULL;
    *n = 0;
    PL_TRY(pl_stream_read(path, &data, &bytes, max, err));
    return make_plain(text, n, path, data, bytes, err);
}

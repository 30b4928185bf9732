#include "kernels/base/sniff.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const struct {
    const char *begins;
    size_t      n;
    const char *what;
} known[] = {
    {"version https://git-lfs", 23, "a pointer of Git LFS, not the file; fetch it with git lfs pull"},
    {"PAR1", 4, "a Parquet file; write it as JSON Lines"},
    {"\xff\xfe", 2, "UTF-16 text; convert it to UTF-8 (iconv -f utf-16 -t utf-8)"},
    {"\xfe\xff", 2, "UTF-16 text; convert it to UTF-8 (iconv -f utf-16 -t utf-8)"},
    {"\x1f\x8b", 2, "packed by gzip; unpack it"},
    {"PK\x03\x04", 4, "a zip archive; unpack it, or if PyTorch wrote it, save it as safetensors"},
    {"GGUF", 4, "a GGUF file, of which the vocabulary alone is read; name the model's folder in Hugging Face's form"},
};

// "<!doctype html", "<html", in any case, behind blanks.
static bool is_html(const uint8_t *s, size_t n) {
    static const char *const tags[] = {"<!doctype html", "<html"};
    while (n > 0 && isspace(*s))
        s++, n--;
    for (int t = 0; t < 2; t++) {
        size_t k = strlen(tags[t]), i = 0;
        while (i < k && i < n && tolower(s[i]) == tags[t][i])
            i++;
        if (i == k) return true;
    }
    return false;
}

// The length of a JSON object, in 8 bytes, and the object.
static bool is_safetensors(const uint8_t *s, size_t n) {
    return n >= 9 && s[8] == '{' && s[5] == 0 && s[6] == 0 && s[7] == 0;
}

// Text without a mark in front whose every second byte is zero.
static bool is_wide(const uint8_t *s, size_t n) {
    return n >= 4 && ((s[0] && !s[1] && s[2] && !s[3]) || (!s[0] && s[1] && !s[2] && s[3]));
}

const char *pl_sniff(const void *data, size_t n) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (n >= known[i].n && memcmp(data, known[i].begins, known[i].n) == 0) return known[i].what;
    if (is_html(data, n)) return "a page of HTML, not the file; fetch it anew (it may ask for a login)";
    if (is_safetensors(data, n)) return "a safetensors file; name the folder that holds it and its config.json";
    return is_wide(data, n) ? known[2].what : NULL;
}

const char *pl_sniff_path(const char *path) {
    return strncmp(path, "~/", 2) == 0 || strcmp(path, "~") == 0
               ? "; ~ is expanded by shells alone, outside quotes: write the whole path"
               : "";
}

#include "infer/serve/access.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <arpa/inet.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define KEYS_BYTES ((size_t)1 << 20) // of a file of keys

static pl_status add_key(pl_access *a, const char *text, size_t n, pl_err *err) {
    void *more = pl_realloc(a->key, ((size_t)a->n_keys + 1) * sizeof *a->key);
    if (!more) return pl_fail(err, PL_E_MEMORY, "keys: out of memory");
    a->key = more;
    crypto_generichash(a->key[a->n_keys++], PL_ACCESS_KEY, (const uint8_t *)text, n, NULL, 0);
    return PL_OK;
}

static pl_status add_lines(pl_access *a, const char *text, pl_err *err) {
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        size_t key = n > 0 && text[n - 1] == '\r' ? n - 1 : n;
        if (key > 0 && *text != '#') PL_TRY(add_key(a, text, key, err));
    }
    return PL_OK;
}

pl_status pl_access_read_keys(pl_access *a, const char *file, pl_err *err) {
    struct stat is;
    uint8_t    *data;
    size_t      n;
    if (sodium_init() < 0) return pl_fail(err, PL_E_IO, "keys: libsodium finds no random numbers");
    if (stat(file, &is) == 0 && (is.st_mode & 077))
        return pl_fail(err, PL_E_USAGE, "%s: has the mode %04o, by which others may read the keys; chmod 600 %s", file,
                       (unsigned)is.st_mode & 07777, file);
    PL_TRY(pl_file_read(file, &data, &n, KEYS_BYTES, err));
    pl_status st = strlen((char *)data) == n ? add_lines(a, (char *)data, err)
                                             : pl_fail(err, PL_E_USAGE, "%s: is no text, one key a line", file);
    sodium_memzero(data, n);
    pl_free(data);
    if (st == PL_OK && a->n_keys == 0) st = pl_fail(err, PL_E_USAGE, "%s: holds no key; write one a line", file);
    return st;
}

void pl_access_fini(pl_access *a) {
    pl_free(a->key);
    *a = (pl_access){0};
}

bool pl_access_has_key(const pl_access *a, const char *authorization) {
    static const char scheme[] = "Bearer ";
    uint8_t           hash[PL_ACCESS_KEY];
    int               equal = 0;
    if (a->n_keys == 0) return true;
    if (!authorization || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0) return false;
    const char *key = authorization + sizeof scheme - 1;
    crypto_generichash(hash, sizeof hash, (const uint8_t *)key, strlen(key), NULL, 0);
    for (int i = 0; i < a->n_keys; i++) // all of them: the time says nothing
        equal |= sodium_memcmp(hash, a->key[i], sizeof hash) == 0;
    return equal;
}

// Returns true if name[0..n) is an address: pages cannot make a name that they choose into one.
static bool is_address(const char *name, size_t n) {
    char            text[INET6_ADDRSTRLEN];
    struct in_addr  four;
    struct in6_addr six;
    if (n >= 2 && name[0] == '[' && name[n - 1] == ']') {
        name++;
        n -= 2;
    }
    if (n >= sizeof text) return false;
    memcpy(text, name, n);
    text[n] = 0;
    return inet_pton(AF_INET, text, &four) == 1 || inet_pton(AF_INET6, text, &six) == 1;
}

static bool is_name(const char *name, size_t n, const char *known) {
    return strlen(known) == n && strncasecmp(name, known, n) == 0;
}

bool pl_access_names_host(const pl_access *a, const char *host) {
    if (!host) return true; // HTTP/1.0; a browser sends one
    const char *colon = strrchr(host, ':'), *bracket = strrchr(host, ']');
    size_t      n = colon && colon > bracket ? (size_t)(colon - host) : strlen(host);
    if (is_name(host, n, "localhost") || is_address(host, n)) return true;
    for (int i = 0; i < a->n_hosts; i++)
        if (is_name(host, n, a->host[i])) return true;
    return false;
}

bool pl_access_is_json(const char *content_type) {
    static const char json[] = "application/json";
    size_t            n = sizeof json - 1;
    if (!content_type || strncasecmp(content_type, json, n) != 0) return false;
    return content_type[n] == 0 || content_type[n] == ';' || content_type[n] == ' ';
}

// Which requests a server answers: keys, names of hosts, media types.
//
// A browser reaches a server on the loopback for any page that it shows: a request whose Host is a foreign name (DNS
// rebinding) is refused, and a body that is no application/json, which a page may send without permission, too.
#ifndef PL_ACCESS_H
#define PL_ACCESS_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define PL_ACCESS_KEY 32 // bytes of a key's hash

typedef struct pl_access {
    uint8_t (*key)[PL_ACCESS_KEY]; // hashes of the keys; owned
    int                n_keys;     // 0: no key is needed
    const char *const *host;       // names by which clients may call the server, besides addresses and localhost
    int                n_hosts;
} pl_access;

// Reads a file of keys, one a line; blank lines and lines that begin with # are left out. PL_E_USAGE: it holds none, or
// others than its owner may read it.
pl_status pl_access_read_keys(pl_access *a, const char *file, pl_err *err);
void      pl_access_fini(pl_access *a);

// Returns true if no key is needed or `authorization` is "Bearer KEY" of one; its time does not depend on the keys.
bool pl_access_has_key(const pl_access *a, const char *authorization);
// Returns true for a Host (NULL: none was sent) that is an address, localhost or one of the names, with any port.
bool pl_access_names_host(const pl_access *a, const char *host);
// Returns true for application/json, with parameters or without.
bool pl_access_is_json(const char *content_type);

#endif

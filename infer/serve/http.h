// HTTP/1.1 by libmicrohttpd, in the thread of the caller: pl_http_run reads and writes what can be read and written
// now, and calls the routes for requests that have arrived whole. A route answers at once or later; its connection is
// suspended meanwhile. There are no threads and no locks.
//
// Bounds: bytes of a request's head and body, of all bodies together, seconds in which a request arrives, connections,
// and bytes of a stream that its client has not read. What exceeds one is refused or closed.
#ifndef PL_HTTP_H
#define PL_HTTP_H

#include "infer/serve/access.h"
#include "kernels/base/strbuf.h"

#define PL_HTTP_BODY ((size_t)4 << 20) // bytes of a body

typedef struct pl_http pl_http;

// A request and its answer, from the arrival of its head until the answer is sent or the connection is closed.
typedef struct pl_exchange {
    const char *tail;         // of the path, behind the route's
    pl_strbuf   body;         // of the request
    char        ignored[256]; // names of fields without effect, for the header x-paceline-ignored; "": none
    void       *job;          // the route's: set while it owes an answer
} pl_exchange;

typedef struct pl_route {
    const char *method, *path; // GET or POST; a POST has a body in JSON
    bool        tail;          // anything may follow the path
    bool        open;          // needs no key
    void (*fn)(void *arg, pl_exchange *x);
} pl_route;

typedef struct pl_http_options {
    const char      *host; // address or name to listen at
    int              port; // 0: any
    const pl_access *access;
    const char      *origin; // pages of this origin may ask (CORS), "*": all; NULL: none
    const pl_route  *routes; // path NULL behind the last
    void            *arg;    // of the routes and of gone
    // Called when a connection is closed while x->job is set; x is invalid afterwards.
    void (*gone)(void *arg, pl_exchange *x);
} pl_http_options;

// Writes which library serves HTTP, for `doctor`.
void pl_http_describe(char *text, size_t size);

// *o is copied, what it points to is borrowed. PL_E_IO: cannot listen there. PL_E_UNSUPPORTED: a build without
// libmicrohttpd.
pl_status pl_http_open(pl_http **out, const pl_http_options *o, pl_err *err);
void      pl_http_close(pl_http *h); // closes all connections; NULL is allowed
int       pl_http_port(const pl_http *h);
int       pl_http_exchanges(const pl_http *h); // requests that are arriving or being answered
// Waits at most `milliseconds` for something to do.
pl_status pl_http_run(pl_http *h, int milliseconds, pl_err *err);

// Answer an exchange; each is answered once. body: owned from here on (pl_free), NULL: out of memory.
void pl_exchange_answer(pl_exchange *x, int status, const char *type, char *body, size_t n);
// Begins an answer of server-sent events. write returns false if the client reads too slowly or memory runs out; the
// connection is then closed. end: nothing more will be written.
void pl_exchange_stream(pl_exchange *x);
bool pl_exchange_write(pl_exchange *x, const char *text, size_t n);
void pl_exchange_end(pl_exchange *x);

#endif

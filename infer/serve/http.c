#include "infer/serve/http.h"
#include "infer/serve/answer.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HEAD = 32 << 10,    // bytes of a connection's buffers, which hold a request's head
    CONNECTIONS = 1024, // at a time
    BACKLOG = 128,      // connections that wait to be accepted
    IDLE = 60,          // seconds without a byte from or to a client
    ARRIVAL = 120,      // seconds for a request to arrive, counted from the answer before it
    PIECE = 16 << 10,   // bytes of a stream that are sent at a time
    ROUNDS = 16,        // of reading and writing in one run
    RETRY_AFTER = 1,    // seconds, of 429 and 503
};
#define HELD ((size_t)256 << 20)     // bytes of all bodies
#define SWALLOWED (4 * PL_HTTP_BODY) // bytes of a body that are read to answer that it is too large
#define UNREAD ((size_t)4 << 20)     // bytes of a stream that a client has not read

typedef struct connection connection;
typedef struct exchange   exchange;

// A connection that is open, and since when a request may arrive.
struct connection {
    int         fd;
    double      since;
    bool        arriving;
    connection *before, *after;
};

struct exchange {
    pl_exchange            base; // first
    pl_http               *http;
    struct MHD_Connection *connection;
    struct MHD_Response   *response; // that is to be queued
    const pl_route        *route;    // NULL: refused already
    int                    fd, status;
    size_t                 read; // bytes of the body, those included that are left out
    bool                   arrived, suspended, gone, ended;
    pl_strbuf              out; // of a stream; sent: bytes of it
    size_t                 sent;
    exchange              *before, *after;
};

struct pl_http {
    pl_http_options    o;
    struct MHD_Daemon *daemon;
    int                port, n;
    size_t             held;  // bytes of bodies
    double             swept; // when late requests were last looked for
    exchange          *exchanges;
    connection        *connections;
};

void pl_http_describe(char *text, size_t size) {
    snprintf(text, size, "libmicrohttpd %s", MHD_get_version());
}

// ---- answers --------------------------------------------------------------------------------------------------------

static void suspend_exchange(exchange *x) {
    x->suspended = true;
    MHD_suspend_connection(x->connection);
}

static void resume_exchange(exchange *x) {
    if (!x->suspended) return;
    x->suspended = false;
    MHD_resume_connection(x->connection);
}

static void add_header(struct MHD_Response *r, const char *name, const char *value) {
    if (*value) MHD_add_response_header(r, name, value);
}

// Sets the answer with the headers that all have. response NULL: there was no memory, and the connection is closed.
static void set_response(exchange *x, int status, const char *type, struct MHD_Response *r) {
    char        seconds[16];
    const char *origin = x->http->o.origin;
    PL_CHECK(!x->response, "a request is answered once");
    x->response = r;
    x->status = status;
    x->gone |= !r;
    if (r) {
        snprintf(seconds, sizeof seconds, "%d", RETRY_AFTER);
        add_header(r, "Content-Type", type);
        add_header(r, "X-Content-Type-Options", "nosniff");
        add_header(r, "x-paceline-ignored", x->base.ignored);
        add_header(r, "Retry-After", status == 429 || status == 503 ? seconds : "");
        add_header(r, "WWW-Authenticate", status == 401 ? "Bearer" : "");
        add_header(r, "Access-Control-Allow-Origin", origin ? origin : "");
        add_header(r, "Access-Control-Expose-Headers", origin ? "x-paceline-ignored" : "");
        add_header(r, "Vary", origin && strcmp(origin, "*") != 0 ? "Origin" : "");
    }
    resume_exchange(x);
}

void pl_exchange_answer(pl_exchange *base, int status, const char *type, char *body, size_t n) {
    struct MHD_Response *r = body ? MHD_create_response_from_buffer_with_free_callback(n, body, pl_free) : NULL;
    if (!r) pl_free(body);
    set_response((exchange *)base, status, type, r);
}

// Gives a stream's next bytes; suspends the connection where there are none yet.
static ssize_t read_stream(void *arg, uint64_t at, char *to, size_t most) {
    (void)at;
    exchange *x = arg;
    size_t    n = x->out.n - x->sent;
    if (x->gone) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n == 0 && x->ended) return MHD_CONTENT_READER_END_OF_STREAM;
    if (n == 0) {
        suspend_exchange(x);
        return 0;
    }
    if (n > most) n = most;
    memcpy(to, x->out.s + x->sent, n);
    x->sent += n;
    if (x->sent == x->out.n) x->out.n = x->sent = 0;
    return (ssize_t)n;
}

void pl_exchange_stream(pl_exchange *base) {
    exchange            *x = (exchange *)base;
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, PIECE, read_stream, x, NULL);
    if (r) {
        MHD_add_response_header(r, "Cache-Control", "no-cache");
        MHD_add_response_header(r, "X-Accel-Buffering", "no"); // of proxies, which would hold events back
    }
    x->out.limit = UNREAD;
    set_response(x, 200, "text/event-stream; charset=utf-8", r);
}

bool pl_exchange_write(pl_exchange *base, const char *text, size_t n) {
    exchange *x = (exchange *)base;
    if (x->sent > UNREAD / 2) {
        x->out.n -= x->sent;
        memmove(x->out.s, x->out.s + x->sent, x->out.n);
        x->sent = 0;
    }
    pl_strbuf_add(&x->out, text, n);
    if (x->out.failed && !x->gone) shutdown(x->fd, SHUT_RDWR); // the library waits for the client to read
    x->gone |= x->out.failed;
    resume_exchange(x);
    return !x->gone;
}

void pl_exchange_end(pl_exchange *base) {
    exchange *x = (exchange *)base;
    x->ended = true;
    resume_exchange(x);
}

// ---- requests -------------------------------------------------------------------------------------------------------

static void refuse(exchange *x, int status, const char *message, const char *code) {
    pl_exchange_fail(&x->base, status, message, NULL, code);
}

static bool is_method(const pl_route *r, const char *method) {
    return strcmp(r->method, method) == 0 || (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static bool is_path(const pl_route *r, const char *path) {
    size_t n = strlen(r->path);
    return strncmp(r->path, path, n) == 0 && (path[n] == 0 || r->tail);
}

// Finds the route of a path; without one for the method, *other is one for another method.
static const pl_route *find_route(const pl_http *h, const char *method, const char *path, const pl_route **other) {
    *other = NULL;
    for (const pl_route *r = h->o.routes; r->path; r++) {
        if (!is_path(r, path)) continue;
        if (is_method(r, method)) return r;
        *other = r;
    }
    return NULL;
}

static const char *find_header(const exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

// Answers a browser that asks whether a page may send a request.
static void answer_preflight(exchange *x) {
    pl_exchange_answer(&x->base, 204, "", pl_strdup(""), 0);
    if (!x->response) return;
    MHD_add_response_header(x->response, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    MHD_add_response_header(x->response, "Access-Control-Allow-Headers", "authorization, content-type");
    MHD_add_response_header(x->response, "Access-Control-Max-Age", "600");
}

static void refuse_method(exchange *x, const char *allowed) {
    refuse(x, 405, "this path does not take that method", NULL);
    if (x->response) MHD_add_response_header(x->response, "Allow", allowed);
}

// Looks at a request's head: sets its route, or the answer that refuses it.
static void judge_head(exchange *x, const char *method, const char *path) {
    const pl_http   *h = x->http;
    const pl_access *a = h->o.access;
    const pl_route  *other, *route = find_route(h, method, path, &other);
    const char      *length = find_header(x, "Content-Length");
    bool             posts = route && strcmp(route->method, "POST") == 0;
    if (!pl_access_names_host(a, find_header(x, "Host"))) {
        refuse(x, 403, "the Host header names another server; start this one with --allow-host NAME to accept a name",
               NULL);
    } else if (!route && !other) {
        refuse(x, 404, "there is no such path here", "not_found");
    } else if (!route && strcmp(method, "OPTIONS") == 0 && h->o.origin) {
        answer_preflight(x);
    } else if (!route) {
        refuse_method(x, other->method);
    } else if (!route->open && !pl_access_has_key(a, find_header(x, "Authorization"))) {
        refuse(x, 401, "the API key is missing or wrong; send \"Authorization: Bearer KEY\"", "invalid_api_key");
    } else if (posts && !pl_access_is_json(find_header(x, "Content-Type"))) {
        refuse(x, 415, "the body must be JSON; send \"Content-Type: application/json\"", NULL);
    } else if (length && strtoull(length, NULL, 10) > PL_HTTP_BODY) {
        refuse(x, 413, "the body is larger than 4 MiB", NULL);
    } else {
        x->route = route;
        x->base.tail = path + strlen(route->path);
    }
}

static enum MHD_Result queue_response(exchange *x) {
    struct MHD_Response *r = x->response;
    if (x->gone || !r) return MHD_NO;
    x->response = NULL;
    enum MHD_Result done = MHD_queue_response(x->connection, (unsigned)x->status, r);
    MHD_destroy_response(r);
    return done;
}

// Begins an exchange. A refusal waits until the body is read, so that the client reads it and the connection can stay
// open, but for a client that asked first or sends too much.
static enum MHD_Result begin_exchange(pl_http *h, struct MHD_Connection *c, const char *url, const char *method,
                                      void **own) {
    exchange *x = pl_calloc(1, sizeof *x);
    if (!x) return MHD_NO;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    *x = (exchange){.http = h, .connection = c, .fd = info ? info->connect_fd : -1, .after = h->exchanges};
    if (h->exchanges) h->exchanges->before = x;
    h->exchanges = x;
    h->n++;
    *own = x;
    judge_head(x, method, url);
    const char *length = find_header(x, "Content-Length");
    bool        asks = find_header(x, "Expect") != NULL, endless = length && strtoull(length, NULL, 10) > SWALLOWED;
    return x->response && (asks || endless) ? queue_response(x) : MHD_YES;
}

static enum MHD_Result take_body(exchange *x, const char *data, size_t n) {
    pl_http *h = x->http;
    x->read += n;
    if (x->read > SWALLOWED || x->gone) return MHD_NO;
    if (x->response) return MHD_YES; // left out
    if (x->read > PL_HTTP_BODY || n > HELD - h->held) {
        bool large = x->read > PL_HTTP_BODY;
        refuse(x, large ? 413 : 503, large ? "the body is larger than 4 MiB" : "the server is full; try again later",
               NULL);
        h->held -= x->base.body.n;
        pl_strbuf_fini(&x->base.body);
        return x->response ? MHD_YES : MHD_NO;
    }
    size_t before = x->base.body.n;
    pl_strbuf_add(&x->base.body, data, n);
    h->held += x->base.body.n - before;
    return x->base.body.failed ? MHD_NO : MHD_YES;
}

static connection *connection_of(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void set_arriving(struct MHD_Connection *of, bool arriving) {
    connection *c = connection_of(of);
    if (!c) return;
    c->arriving = arriving;
    c->since = pl_now();
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n, void **own) {
    (void)version;
    exchange *x = *own;
    if (!x) return begin_exchange(arg, c, url, method, own);
    if (*n > 0) {
        size_t bytes = *n;
        *n = 0;
        return take_body(x, data, bytes);
    }
    if (!x->arrived) {
        x->arrived = true;
        set_arriving(c, false);
        if (!x->response) x->route->fn(x->http->o.arg, &x->base);
    }
    if (x->gone || x->response) return queue_response(x);
    suspend_exchange(x);
    return MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *c, void **own, enum MHD_RequestTerminationCode how) {
    (void)how;
    pl_http  *h = arg;
    exchange *x = *own;
    set_arriving(c, true);
    if (!x) return;
    *own = NULL;
    if (x->base.job) h->o.gone(h->o.arg, &x->base);
    if (x->response) MHD_destroy_response(x->response);
    *(x->before ? &x->before->after : &h->exchanges) = x->after;
    if (x->after) x->after->before = x->before;
    h->n--;
    h->held -= x->base.body.n;
    pl_strbuf_fini(&x->base.body);
    pl_strbuf_fini(&x->out);
    pl_free(x);
}

// ---- connections ----------------------------------------------------------------------------------------------------

static void on_connection(void *arg, struct MHD_Connection *of, void **own, enum MHD_ConnectionNotificationCode what) {
    pl_http    *h = arg;
    connection *c = *own;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(of, MHD_CONNECTION_INFO_CONNECTION_FD);
        *own = c = info ? pl_calloc(1, sizeof *c) : NULL;
        if (!c) return;
        *c = (connection){.fd = info->connect_fd, .since = pl_now(), .arriving = true, .after = h->connections};
        if (h->connections) h->connections->before = c;
        h->connections = c;
    } else if (c) {
        *(c->before ? &c->before->after : &h->connections) = c->after;
        if (c->after) c->after->before = c->before;
        pl_free(c);
        *own = NULL;
    }
}

// Closes connections whose request does not arrive, however often they send a byte.
static void close_late(pl_http *h) {
    double now = pl_now();
    if (now < h->swept + 1) return;
    h->swept = now;
    for (connection *c = h->connections; c; c = c->after)
        if (c->arriving && now > c->since + ARRIVAL) shutdown(c->fd, SHUT_RDWR);
}

// Finds clients that left while their connection is suspended, which the library does not watch.
static void find_gone(pl_http *h) {
    char byte;
    for (exchange *x = h->exchanges; x; x = x->after) {
        if (!x->suspended || x->fd < 0) continue;
        ssize_t n = recv(x->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) continue;
        x->gone = true;
        resume_exchange(x);
    }
}

pl_status pl_http_run(pl_http *h, int milliseconds, pl_err *err) {
    find_gone(h);
    for (int i = 0; i < ROUNDS; i++) {
        MHD_UNSIGNED_LONG_LONG left;
        if (MHD_run_wait(h->daemon, i == 0 ? milliseconds : 0) != MHD_YES)
            return pl_fail(err, PL_E_IO, "serve: libmicrohttpd cannot wait for connections");
        if (MHD_get_timeout(h->daemon, &left) != MHD_YES || left > 0) break;
    }
    close_late(h);
    return PL_OK;
}

// ---- opening and closing --------------------------------------------------------------------------------------------

static int listen_at(const struct addrinfo *a) {
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static pl_status listen_to(int *fd, const pl_http_options *o, pl_err *err) {
    char             port[16];
    struct addrinfo *found, hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    snprintf(port, sizeof port, "%d", o->port);
    int why = getaddrinfo(o->host, port, &hints, &found);
    if (why != 0)
        return pl_fail(err, PL_E_IO, "--host %s: %s; give an address of this machine", o->host, gai_strerror(why));
    *fd = -1;
    for (const struct addrinfo *a = found; a && *fd < 0; a = a->ai_next)
        *fd = listen_at(a);
    freeaddrinfo(found);
    return *fd >= 0 ? PL_OK : pl_fail_errno(err, "--host %s --port %d: cannot listen there", o->host, o->port);
}

static int port_of(int fd) {
    struct sockaddr_storage at;
    socklen_t               n = sizeof at;
    char                    port[16] = "";
    if (getsockname(fd, (struct sockaddr *)&at, &n) != 0) return 0;
    getnameinfo((struct sockaddr *)&at, n, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    return atoi(port);
}

pl_status pl_http_open(pl_http **out, const pl_http_options *o, pl_err *err) {
    int      fd = -1;
    pl_http *h = pl_calloc(1, sizeof *h);
    *out = NULL;
    if (!h) return pl_fail(err, PL_E_MEMORY, "serve: out of memory");
    h->o = *o;
    pl_status st = listen_to(&fd, o, err);
    if (st == PL_OK) {
        h->port = port_of(fd);
        h->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, h,
                                     MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
                                     MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                     (size_t)HEAD, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
                                     MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_END);
        if (!h->daemon) {
            st = pl_fail(err, PL_E_IO, "serve: libmicrohttpd does not start; are there descriptors left?");
            close(fd);
        }
    }
    if (st != PL_OK) {
        pl_free(h);
        return st;
    }
    *out = h;
    return PL_OK;
}

// The library ends a daemon only after its connections are resumed.
void pl_http_close(pl_http *h) {
    if (!h) return;
    for (exchange *x = h->exchanges; x; x = x->after) {
        x->gone = true;
        resume_exchange(x);
    }
    MHD_run_wait(h->daemon, 0);
    MHD_stop_daemon(h->daemon);
    pl_free(h);
}

int pl_http_port(const pl_http *h) {
    return h->port;
}

int pl_http_exchanges(const pl_http *h) {
    return h->n;
}

#define _GNU_SOURCE 1
#include "kernels/comm/net.h"

#include "kernels/base/clock.h"
#include "kernels/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 1024, AGAIN = 100 }; // milliseconds between two tries to connect

int pl_net_milliseconds(double deadline) {
    double left = (deadline - pl_now()) * 1e3;
    return left <= 0 ? 0 : left > 1e6 ? 1000000 : (int)left + 1;
}

// ---- addresses

static pl_status split_address(const char *text, char host[256], char port[8], pl_err *err) {
    const char *colon = strrchr(text, ':'), *end = colon;
    const char *from = text;
    char       *rest;
    if (text[0] == '[' && colon && colon > text && colon[-1] == ']') {
        from++;
        end--;
    }
    if (!colon || end == from || (size_t)(end - from) >= 256 ||
        (from == text && memchr(text, ':', (size_t)(end - from))))
        return pl_fail(err, PL_E_USAGE, "%s: is no address; give HOST:PORT", text);
    long number = strtol(colon + 1, &rest, 10);
    if (colon[1] < '0' || colon[1] > '9' || *rest || number < 1 || number > 65535)
        return pl_fail(err, PL_E_USAGE, "%s: no port between 1 and 65535 behind the last colon", text);
    snprintf(host, 256, "%.*s", (int)(end - from), from);
    snprintf(port, 8, "%ld", number);
    return PL_OK;
}

static in_port_t *port_of(const pl_net_address *a) {
    const void *at = &a->at;
    return a->at.ss_family == AF_INET6 ? &((struct sockaddr_in6 *)(uintptr_t)at)->sin6_port
                                       : &((struct sockaddr_in *)(uintptr_t)at)->sin_port;
}

int pl_net_port(const pl_net_address *a) {
    return ntohs(*port_of(a));
}

void pl_net_set_port(pl_net_address *a, int port) {
    *port_of(a) = htons((uint16_t)port);
}

bool pl_net_is_loopback(const pl_net_address *a) {
    const void            *at = &a->at;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)at)->sin6_addr;
    if (a->at.ss_family != AF_INET6) return ntohl(((const struct sockaddr_in *)at)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

bool pl_net_is_any(const pl_net_address *a) {
    const void *at = &a->at;
    if (a->at.ss_family != AF_INET6) return ((const struct sockaddr_in *)at)->sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)at)->sin6_addr);
}

bool pl_net_valid(const pl_net_address *a) {
    return (a->at.ss_family == AF_INET && a->bytes == sizeof(struct sockaddr_in)) ||
           (a->at.ss_family == AF_INET6 && a->bytes == sizeof(struct sockaddr_in6));
}

bool pl_net_same_host(const pl_net_address *a, const pl_net_address *b) {
    const void *x = &a->at, *y = &b->at;
    if (a->at.ss_family != b->at.ss_family) return false;
    if (a->at.ss_family == AF_INET6)
        return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)x)->sin6_addr,
                                  &((const struct sockaddr_in6 *)y)->sin6_addr);
    return ((const struct sockaddr_in *)x)->sin_addr.s_addr == ((const struct sockaddr_in *)y)->sin_addr.s_addr;
}

void pl_net_widen(pl_net_address *a) {
    int port = pl_net_port(a);
    a->at = (struct sockaddr_storage){.ss_family = a->at.ss_family};
    pl_net_set_port(a, port);
}

pl_status pl_net_find(pl_net_address *a, const char *text, bool listens, pl_err *err) {
    char            host[256], port[8];
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
    PL_TRY(split_address(text, host, port, err));
    int  r = getaddrinfo(host, port, &want, &found);
    bool named = r == EAI_NONAME;
    want.ai_flags = 0;
    if (named) r = getaddrinfo(host, port, &want, &found);
    if (r != 0) return pl_fail(err, PL_E_IO, "%s: %s", text, r == EAI_SYSTEM ? strerror(errno) : gai_strerror(r));
    memset(a, 0, sizeof *a);
    memcpy(&a->at, found->ai_addr, found->ai_addrlen);
    a->bytes = found->ai_addrlen;
    freeaddrinfo(found);
    if (listens && named && strcmp(host, "localhost") != 0) pl_net_widen(a);
    return PL_OK;
}

void pl_net_text(const pl_net_address *a, char *text, size_t room) {
    char        host[64], port[8];
    const void *at = &a->at;
    if (getnameinfo(at, a->bytes, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(text, room, "an unknown address");
    else
        snprintf(text, room, a->at.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

int pl_net_own(pl_net_address *a, int most) {
    struct ifaddrs *all;
    int             n = 0;
    if (getifaddrs(&all) != 0) return 0;
    for (const struct ifaddrs *i = all; i && n < most; i = i->ifa_next) {
        const void *at = i->ifa_addr;
        int         family = at ? i->ifa_addr->sa_family : AF_UNSPEC;
        if (!(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) continue;
        if (family != AF_INET && family != AF_INET6) continue;
        if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)at)->sin6_addr)) continue;
        memset(&a[n], 0, sizeof a[n]);
        a[n].bytes = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(&a[n].at, at, a[n].bytes);
        n++;
    }
    freeifaddrs(all);
    return n;
}

// ---- connections

static pl_status fail_at(const pl_net_address *a, const char *what, pl_err *err) {
    char text[80];
    int  why = errno;
    pl_net_text(a, text, sizeof text);
    return pl_fail(err, PL_E_IO, "%s %s: %s", what, text, strerror(why));
}

// Sets the options of every connection.
static void set_options(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); // a meeting waits for its last byte
}

static void say_widened(const pl_net_address *a) {
    char text[80];
    pl_net_text(a, text, sizeof text);
    pl_log("ranks: %s is no address of this host: listening at all that it has", text);
}

pl_status pl_net_listen(int *fd, pl_net_address *a, pl_err *err) {
    int   on = 1;
    void *at = &a->at;
    *fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0) return fail_at(a, "cannot listen at", err);
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool bound = bind(*fd, at, a->bytes) == 0;
    if (!bound && errno == EADDRNOTAVAIL) { // a service's address that forwards to this machine
        say_widened(a);
        pl_net_widen(a);
        bound = bind(*fd, at, a->bytes) == 0;
    }
    if (bound && listen(*fd, BACKLOG) == 0 && getsockname(*fd, at, &a->bytes) == 0) return PL_OK;
    pl_status st = fail_at(a, "cannot listen at", err);
    close(*fd);
    *fd = -1;
    return st;
}

pl_status pl_net_listen_anywhere(int *fd, int *port, pl_err *err) {
    pl_net_address a = {.bytes = sizeof(struct sockaddr_in6)};
    a.at.ss_family = AF_INET6; // accepts IPv4 as well
    if (pl_net_listen(fd, &a, NULL) != PL_OK) {
        a = (pl_net_address){.bytes = sizeof(struct sockaddr_in)};
        a.at.ss_family = AF_INET;
        PL_TRY(pl_net_listen(fd, &a, err));
    }
    *port = pl_net_port(&a);
    return PL_OK;
}

pl_status pl_net_accept(int *fd, pl_net_address *from, int listener, pl_err *err) {
    from->bytes = sizeof from->at;
    *fd = accept4(listener, (void *)&from->at, &from->bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (*fd >= 0) set_options(*fd);
    // Other errors belong to a connection that has been closed again.
    bool lacks = *fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS);
    return lacks ? pl_fail_errno(err, "ranks: a connection") : PL_OK;
}

pl_status pl_net_near(pl_net_address *a, int fd, pl_err *err) {
    a->bytes = sizeof a->at;
    return getsockname(fd, (void *)&a->at, &a->bytes) == 0 ? PL_OK : pl_fail_errno(err, "ranks: a connection");
}

// Returns true if a started connection is established.
static bool has_come(int fd, double deadline) {
    int           why = 0;
    socklen_t     n = sizeof why;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int           r;
    while ((r = poll(&p, 1, pl_net_milliseconds(deadline))) < 0 && errno == EINTR)
        ;
    if (r == 0) errno = ETIMEDOUT;
    if (r <= 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n) != 0) return false;
    if (why != 0) errno = why;
    return why == 0;
}

pl_status pl_net_connect(int *fd, const pl_net_address *a, double deadline, pl_err *err) {
    const void *at = &a->at;
    for (;;) {
        *fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (*fd < 0) return fail_at(a, "cannot reach", err);
        double until = pl_now() + 5 < deadline ? pl_now() + 5 : deadline; // per try, as a packet may have been lost
        if (connect(*fd, at, a->bytes) == 0 || (errno == EINPROGRESS && has_come(*fd, until))) {
            set_options(*fd);
            return PL_OK;
        }
        pl_status st = pl_now() < deadline ? PL_OK : fail_at(a, "cannot reach", err);
        close(*fd);
        *fd = -1;
        PL_TRY(st);
        nanosleep(&(struct timespec){.tv_nsec = AGAIN * 1000000}, NULL);
    }
}

bool pl_net_is_open(int fd) {
    char    first;
    ssize_t r = recv(fd, &first, 1, MSG_PEEK);
    return r > 0 || (r < 0 && (errno == EAGAIN || errno == EINTR));
}

// ---- messages

static pl_status await_event(int fd, short event, double deadline, pl_err *err) {
    struct pollfd p = {.fd = fd, .events = event};
    if (poll(&p, 1, pl_net_milliseconds(deadline)) > 0 || pl_now() < deadline) return PL_OK;
    return pl_fail(err, PL_E_IO, "no answer in time");
}

pl_status pl_net_send(int fd, const void *data, size_t n, double deadline, pl_err *err) {
    for (size_t at = 0; at < n;) {
        ssize_t r = send(fd, (const char *)data + at, n - at, MSG_NOSIGNAL);
        if (r >= 0)
            at += (size_t)r;
        else if (errno == EAGAIN || errno == EINTR)
            PL_TRY(await_event(fd, POLLOUT, deadline, err));
        else
            return pl_fail(err, PL_E_IO, "the connection is gone (%s)", strerror(errno));
    }
    return PL_OK;
}

pl_status pl_net_take(int fd, void *data, size_t n, double deadline, pl_err *err) {
    for (size_t at = 0; at < n;) {
        ssize_t r = recv(fd, (char *)data + at, n - at, 0);
        if (r > 0)
            at += (size_t)r;
        else if (r == 0)
            return pl_fail(err, PL_E_IO, "the connection was closed");
        else if (errno == EAGAIN || errno == EINTR)
            PL_TRY(await_event(fd, POLLIN, deadline, err));
        else
            return pl_fail(err, PL_E_IO, "the connection is gone (%s)", strerror(errno));
    }
    return PL_OK;
}

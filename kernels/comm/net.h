// TCP for the ranks: addresses, connecting within a time, sending and receiving whole messages before a deadline.
// Private to kernels/comm. Deadlines are in pl_now() time. Sockets are close-on-exec, non-blocking and without delay.
#ifndef PL_COMM_NET_H
#define PL_COMM_NET_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <sys/socket.h>

typedef struct pl_net_address {
    struct sockaddr_storage at;
    socklen_t               bytes;
} pl_net_address;

// Resolves HOST:PORT or [IPv6]:PORT. listens: it is an address of this machine; a name then stands for all of its
// addresses, as other hosts may resolve another one (on Debian a machine's own name is 127.0.1.1 to itself). localhost
// is itself.
pl_status pl_net_find(pl_net_address *a, const char *text, bool listens, pl_err *err);
int       pl_net_port(const pl_net_address *a);
void      pl_net_set_port(pl_net_address *a, int port);
bool      pl_net_is_loopback(const pl_net_address *a);
bool      pl_net_is_any(const pl_net_address *a); // all addresses of a host (pl_net_widen)
// Writes "10.0.0.3:29500".
void      pl_net_text(const pl_net_address *a, char *text, size_t room);

// Lists this machine's addresses that others may reach, port 0; returns their number, at most `most`.
int pl_net_own(pl_net_address *a, int most);

// Returns the local end of a connection.
pl_status pl_net_near(pl_net_address *a, int fd, pl_err *err);
// Returns true for a complete IPv4 or IPv6 address; for addresses received from another rank.
bool      pl_net_valid(const pl_net_address *a);
bool      pl_net_same_host(const pl_net_address *a, const pl_net_address *b); // ignoring ports
// Widens to all of this machine's addresses, of the family and port of *a.
void      pl_net_widen(pl_net_address *a);

// Returns milliseconds for poll until the deadline, rounded up; 0 once it has passed.
int pl_net_milliseconds(double deadline);

// Listens at *a or, if that is no address of this machine, at all of its own, with a log line; port 0: any, which *a
// then has. PL_E_IO: another process uses it.
pl_status pl_net_listen(int *fd, pl_net_address *a, pl_err *err);
// Listens at all of this machine's addresses, at a free port.
pl_status pl_net_listen_anywhere(int *fd, int *port, pl_err *err);
// Accepts the next waiting connection, -1 if there is none, and its other end. PL_E_IO, PL_E_MEMORY: one waits, but
// there is no descriptor or memory for it.
pl_status pl_net_accept(int *fd, pl_net_address *from, int listener, pl_err *err);
// Retries until the deadline, as the listener may start later. PL_E_IO names the address.
pl_status pl_net_connect(int *fd, const pl_net_address *a, double deadline, pl_err *err);
// Returns false if the other end is known to have closed it.
bool      pl_net_is_open(int fd);
// Sends or receives all n bytes; PL_E_IO if the other end closed or the deadline passed.
pl_status pl_net_send(int fd, const void *data, size_t n, double deadline, pl_err *err);
pl_status pl_net_take(int fd, void *data, size_t n, double deadline, pl_err *err);

#endif

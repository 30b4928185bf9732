// TCP as the ranks use it: addresses, connections that come within a time, whole messages before a deadline. Private to
// kernels/comm. Deadlines are those of pl_now(). Sockets are closed by exec, do not block and send at once.
#ifndef PL_COMM_NET_H
#define PL_COMM_NET_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <sys/socket.h>

typedef struct pl_net_address {
    struct sockaddr_storage at;
    socklen_t               bytes;
} pl_net_address;

// HOST:PORT or [IPv6]:PORT, looked up. listens: an address of this machine is meant, and by a name all that it has, as
// others may look up another one (on Debian a machine's own name is 127.0.1.1 to itself). localhost is itself.
pl_status pl_net_find(pl_net_address *a, const char *text, bool listens, pl_err *err);
int       pl_net_port(const pl_net_address *a);
void      pl_net_set_port(pl_net_address *a, int port);
bool      pl_net_is_loopback(const pl_net_address *a);
bool      pl_net_is_any(const pl_net_address *a); // all addresses of a host (pl_net_widen)
// "10.0.0.3:29500".
void      pl_net_text(const pl_net_address *a, char *text, size_t room);

// Addresses of this machine's that others may reach it by, port 0; how many, at most `most`.
int pl_net_own(pl_net_address *a, int most);

// The nearer end of a connection.
pl_status pl_net_near(pl_net_address *a, int fd, pl_err *err);
// Whether it is an IPv4 or IPv6 address whole, for one that came over a connection.
bool      pl_net_valid(const pl_net_address *a);
bool      pl_net_same_host(const pl_net_address *a, const pl_net_address *b); // whatever the ports
// All of this machine's addresses, of the family and port of *a.
void      pl_net_widen(pl_net_address *a);

// Milliseconds for poll until the deadline, rounded up; 0 once it has passed.
int pl_net_milliseconds(double deadline);

// Listens at *a, or where that is no address of this machine's at all of its own, with a line; port 0: any, which *a
// then has. PL_E_IO: another process has it.
pl_status pl_net_listen(int *fd, pl_net_address *a, pl_err *err);
// The same at all of this machine's addresses, at a port that is free.
pl_status pl_net_listen_anywhere(int *fd, int *port, pl_err *err);
// The next connection that waits, -1 where none does, and its other end. PL_E_IO, PL_E_MEMORY: one waits, but there is
// no descriptor or memory for it.
pl_status pl_net_accept(int *fd, pl_net_address *from, int listener, pl_err *err);
// Tries again until the deadline, as who listens may come later. PL_E_IO names the address.
pl_status pl_net_connect(int *fd, const pl_net_address *a, double deadline, pl_err *err);
// Whether the other end holds it still, as far as is known here.
bool      pl_net_is_open(int fd);
// Whole or not: PL_E_IO where the other end closed or the deadline passed.
pl_status pl_net_send(int fd, const void *data, size_t n, double deadline, pl_err *err);
pl_status pl_net_take(int fd, void *data, size_t n, double deadline, pl_err *err);

#endif

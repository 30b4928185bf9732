// A port of this host at which no socket listens.
#ifndef PL_TEST_PORT_H
#define PL_TEST_PORT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

// Below the ports of outgoing connections, which could take it before a rank listens there, or connect
// to themselves. Processes begin at places of their own, since tests run beside each other.
static inline int test_free_port(void) {
    static int next;
    for (int tries = 0; tries < 20000; tries++) {
        int                port = 10000 + (int)(((long)getpid() * 61 + next++) % 20000), fd;
        struct sockaddr_in a = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
        if ((fd = socket(AF_INET, SOCK_STREAM, 0)) < 0) abort();
        int got = bind(fd, (struct sockaddr *)&a, sizeof a);
        close(fd);
        if (got == 0) return port;
    }
    abort();
}

#endif

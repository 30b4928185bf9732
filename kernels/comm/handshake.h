// Handshake by which two ranks prove over a new connection that both have the key of their run, before any other byte
// of it is used.
//
//   listener to connector   L                   32 random bytes
//   connector to listener   C, claim, M("connector", L, C, to, claim)
//   listener to connector   M("listener", L, C, to, claim)
//
// M is BLAKE2b with the key (32 bytes) over both nonces, the direction, the listener's rank and the connector's whole
// claim: its rank, the number of ranks, the connection's kind, host and identity. So no answer can be replayed,
// reflected or used for another connection; a claim is read after its M has been verified. A connection that does not
// prove itself is closed without a byte. M does not cover later messages.
//
// M, nonces and the comparison in constant time are libsodium's: it is small, audited and part of every distribution,
// and its keyed BLAKE2b is a MAC in one call. Private to kernels/comm.
#ifndef PL_COMM_HANDSHAKE_H
#define PL_COMM_HANDSHAKE_H

#include "kernels/comm/comm.h"
#include "kernels/comm/net.h"
#include "kernels/comm/signs.h"

enum { PL_NONCE_BYTES = 32, PL_PROOF_BYTES = 32, PL_IDENTITY_BYTES = 256 };
enum { PL_FOR_SIGNS, PL_FOR_DATA }; // kinds of connections

// The connector's description of itself. A gate terminates the texts with 0.
typedef struct pl_claim {
    uint32_t kind, rank, ranks;
    char     host[PL_HOST_BYTES], identity[PL_IDENTITY_BYTES];
} pl_claim;

// The connector's message.
typedef struct pl_gate_message {
    uint8_t  nonce[PL_NONCE_BYTES];
    pl_claim claim;
    uint8_t  proof[PL_PROOF_BYTES];
} pl_gate_message;

// Fills in host and identity (NULL: "").
void pl_claim_make(pl_claim *out, int kind, int rank, int ranks, const char *identity);

// A listener and the connections that have not proven themselves. They are served concurrently: each has 5 s from its
// first packet on, and of more than ranks + 64 the oldest is closed. rank, ranks: the listener's.
typedef struct pl_gate pl_gate;
pl_status pl_gate_open(pl_gate **out, int listener, int rank, int ranks, const uint8_t key[PL_COMM_KEY], pl_err *err);
// Returns the next connection that has proven itself (*fd, the caller's) with its claim and address; *fd -1: none
// before the deadline, or `wake` (-1: none) became readable. Logs a warning for the first that fails to prove itself.
// PL_E_IO: no descriptor left, though none is pending.
pl_status pl_gate_next(pl_gate *g, int *fd, pl_claim *claim, pl_net_address *from, int wake, double deadline,
                       pl_err *err);
// Closes the pending connections, not the listener. Does nothing for NULL.
void      pl_gate_close(pl_gate *g);

// The connector's side: proves `own` to rank `to` over fd. find_key is called once the listener has sent its nonce;
// `key` receives the key. PL_E_IO: the other end does not prove itself, or closes; find_key's failures.
pl_status pl_gate_pass(int fd, const pl_claim *own, int to, pl_comm_find_key find_key, void *arg,
                       uint8_t key[PL_COMM_KEY], double deadline, pl_err *err);
// Computes the connector's message to a listener's nonce, and the expected proof.
void      pl_gate_prove(pl_gate_message *m, uint8_t answer[PL_PROOF_BYTES], const pl_claim *own, int to,
                        const uint8_t nonce[PL_NONCE_BYTES], const uint8_t key[PL_COMM_KEY]);
// A pl_comm_find_key whose argument is the key.
pl_status pl_gate_given_key(void *arg, uint8_t key[PL_COMM_KEY], pl_err *err);

#endif

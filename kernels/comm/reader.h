// Checked reading of bytes that another rank sent. A consumer takes one value after the other; each must lie within the
// remaining bytes and within a bound that the consumer has independently. The first invalid value ends the reading:
// every later take gives zeros, so that a consumer checks the status once, after a group of takes and before it uses
// any of them. A failure is PL_E_IO with one line that names the rank, the message and the value:
//
//   rank 1 sent the lengths of its documents: document 3 is -7, not 1 to 2048
//
//   pl_reader r = pl_reader_of(rank, "the lengths of its documents", data, n, err);
//   for (int64_t i = 0; i < docs; i++)
//       length[i] = pl_reader_int(&r, "a length", 1, most);
//   PL_TRY(pl_reader_end(&r));
//
// Numbers are in the byte order of the ranks, which are of one build and one arithmetic (kernels/comm/comm.h).
#ifndef PL_COMM_READER_H
#define PL_COMM_READER_H

#include "kernels/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pl_reader {
    const uint8_t *at, *end;
    int            rank;   // the sender, for messages
    const char    *what;   // the message, as a noun phrase; borrowed
    pl_err        *err;    // the caller's; NULL is allowed
    pl_status      status; // PL_OK until the first invalid value
} pl_reader;

// Borrows data[n] and what. rank -1: the sender is a group of ranks.
pl_reader pl_reader_of(int rank, const char *what, const void *data, size_t n, pl_err *err);

// Ends the reading with "rank R sent WHAT: ..."; keeps an earlier failure. Returns the reader's status.
pl_status pl_reader_refuse(pl_reader *r, const char *fmt, ...) PL_PRINTF(2, 3);

// Lends the next n bytes, good as long as data; NULL: fewer are left.
const uint8_t *pl_reader_lend(pl_reader *r, const char *name, size_t n);
// Copies the next n bytes to `to`; zeros after a failure.
void           pl_reader_copy(pl_reader *r, const char *name, void *to, size_t n);
// Takes the next byte, int32 or int64 in [least, most]; 0 after a failure.
uint8_t        pl_reader_byte(pl_reader *r, const char *name, uint8_t most);
int32_t        pl_reader_int32(pl_reader *r, const char *name, int32_t least, int32_t most);
int64_t        pl_reader_int(pl_reader *r, const char *name, int64_t least, int64_t most);
// Takes the next double in [least, most]; refuses NaN.
double         pl_reader_real(pl_reader *r, const char *name, double least, double most);
// Takes the number of entries that follow, each of `each` bytes: an int64 in [0, most], whose entries must all be
// present.
int64_t        pl_reader_count(pl_reader *r, const char *name, int64_t most, size_t each);
// Takes a text in a field of `room` bytes: ended by a 0 within it, without control characters. Lent; "" after a
// failure.
const char    *pl_reader_text(pl_reader *r, const char *name, size_t room);
// Returns the status; refuses remaining bytes.
pl_status      pl_reader_end(pl_reader *r);

#endif

// Writes protobuf's wire format (https://protobuf.dev/programming-guides/encoding): a message is its fields one after
// another, each a key (field number << 3 | wire type) and a value. Running out of memory sticks in the buffer.
#ifndef PL_PROTO_H
#define PL_PROTO_H

#include "kernels/base/strbuf.h"
#include <stdint.h>

static inline void pl_proto_varint(pl_strbuf *b, uint64_t v) {
    char   bytes[10];
    size_t n = 0;
    do
        bytes[n++] = (char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
    while (v >>= 7);
    pl_strbuf_add(b, bytes, n);
}

// int64, uint64, bool, enum.
static inline void pl_proto_number(pl_strbuf *b, unsigned field, uint64_t v) {
    pl_proto_varint(b, field << 3);
    pl_proto_varint(b, v);
}

// string, bytes.
static inline void pl_proto_bytes(pl_strbuf *b, unsigned field, const char *s, size_t n) {
    pl_proto_varint(b, field << 3 | 2);
    pl_proto_varint(b, n);
    pl_strbuf_add(b, s, n);
}

// A message that was written into a buffer of its own, which is emptied for the next one.
static inline void pl_proto_message(pl_strbuf *b, unsigned field, pl_strbuf *part) {
    b->failed = b->failed || part->failed;
    if (!b->failed) pl_proto_bytes(b, field, part->s, part->n);
    part->n = 0;
}

// The lowest n bytes of v, little-endian: float and double by their bits.
static inline void pl_proto_fixed(pl_strbuf *b, uint64_t v, size_t n) {
    char bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)(v >> (8 * i));
    pl_strbuf_add(b, bytes, n);
}

static inline void pl_proto_float(pl_strbuf *b, unsigned field, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    pl_proto_varint(b, field << 3 | 5);
    pl_proto_fixed(b, bits, 4);
}

static inline void pl_proto_double(pl_strbuf *b, unsigned field, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    pl_proto_varint(b, field << 3 | 1);
    pl_proto_fixed(b, bits, 8);
}

#endif

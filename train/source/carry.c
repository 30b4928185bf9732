#include "train/source/carry.h"

#include "kernels/base/arena.h"

#include <string.h>

static size_t row_bytes(const pl_doc_carry *c) {
    size_t n = 0;
    for (pl_column k = 0; k < PL_COLUMNS; k++)
        n += pl_column_width(k, &c->shape) * pl_element_size(pl_column_element(k));
    return n;
}

// Returns the bytes of the documents that `from` sends to `to`, in one parcel.
static size_t parcel_bytes(const pl_doc_carry *c, const pl_doc_span *span, int from, int to) {
    size_t n = 0;
    for (int64_t at = span->first; at < span->end; at++)
        if (c->sender(c->arg, at, to) == from) n += (size_t)c->rows(c->arg, at) * row_bytes(c);
    return n;
}

// Copies column by column from the parcel (put: into it).
static void copy_columns(const pl_doc_carry *c, const pl_columns *doc, int64_t rows, uint8_t **at, bool put) {
    for (pl_column k = 0; k < PL_COLUMNS; k++) {
        size_t bytes = (size_t)rows * pl_column_width(k, &c->shape) * pl_element_size(pl_column_element(k));
        if (bytes == 0) continue;
        void *column = pl_columns_at(doc, k);
        memcpy(put ? *at : column, put ? column : *at, bytes);
        *at += bytes;
    }
}

static pl_status pack_parcel(const pl_doc_carry *c, const pl_doc_span *span, int to, uint8_t *parcel, pl_err *err) {
    for (int64_t at = span->first; at < span->end; at++) {
        pl_columns doc;
        if (c->sender(c->arg, at, to) != pl_comm_rank(c->comm)) continue;
        PL_TRY(c->give(c->arg, at, &doc, err));
        copy_columns(c, &doc, c->rows(c->arg, at), &parcel, true);
    }
    return PL_OK;
}

static pl_status unpack_parcel(const pl_doc_carry *c, const pl_doc_span *span, int from, uint8_t *parcel, pl_err *err) {
    for (int64_t at = span->first; at < span->end; at++) {
        pl_columns room;
        if (c->sender(c->arg, at, pl_comm_rank(c->comm)) != from) continue;
        PL_TRY(c->take(c->arg, at, &room, err));
        copy_columns(c, &room, c->rows(c->arg, at), &parcel, false);
        const char *bad = pl_columns_broken(&room, &c->shape, 0, c->rows(c->arg, at), c->vocab);
        if (bad)
            return pl_fail(err, PL_E_IO, "rank %d sent document %lld: %s is out of range", from, (long long)at, bad);
    }
    return PL_OK;
}

static pl_status exchange_parcels(const pl_doc_carry *c, const pl_doc_span *rank, pl_comm_parcels *p, pl_err *err) {
    int me = pl_comm_rank(c->comm), n = pl_comm_ranks(c->comm);
    for (int r = 0; r < n; r++) {
        if (r == me) continue;
        p->out_bytes[r] = parcel_bytes(c, &rank[r], me, r);
        p->in_bytes[r] = parcel_bytes(c, &rank[me], r, me);
        uint8_t *out = pl_malloc(p->out_bytes[r] + 1);
        p->out[r] = out;
        p->in[r] = pl_malloc(p->in_bytes[r] + 1);
        if (!out || !p->in[r]) return pl_fail(err, PL_E_MEMORY, "documents of other ranks: out of memory");
        PL_TRY(pack_parcel(c, &rank[r], r, out, err));
    }
    PL_TRY(pl_comm_exchange(c->comm, p, err));
    for (int r = 0; r < n; r++)
        if (r != me) PL_TRY(unpack_parcel(c, &rank[me], r, p->in[r], err));
    return PL_OK;
}

pl_status pl_doc_carry_out(const pl_doc_carry *c, const pl_doc_span *rank, pl_err *err) {
    pl_comm_parcels *p = pl_calloc(1, sizeof *p);
    if (!p) return pl_fail(err, PL_E_MEMORY, "documents of other ranks: out of memory");
    pl_status st = exchange_parcels(c, rank, p, err);
    for (int r = 0; r < pl_comm_ranks(c->comm); r++) {
        pl_free((void *)(uintptr_t)p->out[r]);
        pl_free(p->in[r]);
    }
    pl_free(p);
    return st;
}

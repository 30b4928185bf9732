#include "train/source/ranks.h"

#include "kernels/base/arena.h"
#include "kernels/comm/reader.h"

#include <string.h>

void pl_survey_fini(pl_survey *v) {
    pl_free(v->doc);
    pl_free(v->owner);
    pl_free(v->there);
    *v = (pl_survey){0};
}

// ---- which rank has which shards

static pl_status same_manifest(const pl_dataset *ds, const char *dir, pl_comm *comm, pl_err *err) {
    char first[17];
    memcpy(first, pl_dataset_fingerprint(ds), sizeof first);
    PL_TRY(pl_comm_broadcast(comm, first, sizeof first, err));
    if (memcmp(first, pl_dataset_fingerprint(ds), sizeof first) == 0) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s/manifest.json: is another one than rank 0's; copy that one here", dir);
}

// Checks a rank's list of shards: one byte for each, 1 if the rank has it.
static pl_status check_there(const pl_survey *v, int rank, const uint8_t *data, size_t n, pl_err *err) {
    pl_reader in = pl_reader_of(rank, "the list of its shards", data, n, err);
    for (int64_t k = 0; k < v->shards && in.status == PL_OK; k++)
        pl_reader_byte(&in, "whether a shard is there", 1);
    return pl_reader_end(&in);
}

static pl_status find_shards(pl_survey *v, const pl_dataset *ds, pl_comm *comm, pl_err *err) {
    size_t    bytes[PL_RANKS_MAX];
    bool      here;
    uint8_t  *mine = pl_calloc((size_t)v->shards + 1, 1);
    pl_status st = mine ? PL_OK : pl_fail(err, PL_E_MEMORY, "dataset: out of memory");
    for (int64_t k = 0; k < v->shards && st == PL_OK; k++)
        if ((st = pl_dataset_here(ds, k, &here, err)) == PL_OK) mine[k] = here;
    if (st == PL_OK) st = pl_comm_gather(comm, mine, (size_t)v->shards, (size_t)v->shards, &v->there, bytes, err);
    pl_free(mine);
    const uint8_t *from = v->there;
    for (int r = 0; r < v->ranks && st == PL_OK; from += bytes[r++])
        st = check_there(v, r, from, bytes[r], err);
    return st;
}

// Assigns shard k to the k-th of the ranks that have it, cyclically.
static pl_status deal_shards(pl_survey *v, const char *dir, pl_err *err) {
    v->everywhere = true;
    for (int64_t k = 0; k < v->shards; k++) {
        int64_t have = 0, turn;
        for (int r = 0; r < v->ranks; r++)
            have += pl_survey_has(v, r, k);
        v->everywhere = v->everywhere && have == v->ranks;
        if (have == 0)
            return pl_fail(err, PL_E_INPUT, "%s/shard-%05lld.h5: %s; copy it here or generate the dataset again", dir,
                           (long long)k, v->ranks > 1 ? "no rank has it" : "is missing");
        turn = k % have;
        for (int r = 0; r < v->ranks; r++)
            if (pl_survey_has(v, r, k) && turn-- == 0) v->owner[k] = r;
    }
    return PL_OK;
}

// ---- documents

typedef struct survey {
    pl_survey  *v;
    pl_dataset *ds;
    uint64_t    seed;
    int64_t     every;
    pl_columns  doc; // tokens and marks of one document
} survey;

static pl_status read_one(survey *s, int64_t i, pl_doc_said *said, pl_err *err) {
    int64_t first, n;
    PL_TRY(pl_dataset_doc(s->ds, i, &first, &n, err));
    PL_TRY(pl_dataset_doc_about(s->ds, i, &said->about, err));
    PL_TRY(pl_columns_reserve(&s->doc, &(pl_columns_shape){0}, n, err));
    pl_free(s->doc.argmax);
    s->doc.argmax = NULL; // not read
    PL_TRY(pl_dataset_read_doc(s->ds, i, &s->doc, err));
    said->rows = n;
    for (int64_t t = 0; t < n; t++)
        said->answers += s->doc.loss_mask[t];
    said->held = pl_dataset_held_out(s->doc.tokens, s->doc.loss_mask, n, s->seed, s->every);
    return PL_OK;
}

static pl_status read_own(survey *s, int rank, pl_err *err) {
    int64_t at = 0;
    for (int64_t k = 0; k < s->v->shards; k++) {
        int64_t end = at + pl_dataset_shard_docs(s->ds, k);
        for (; at < end && s->v->owner[k] == rank; at++)
            PL_TRY(read_one(s, at, &s->v->doc[at], err));
        at = end;
    }
    return PL_OK;
}

_Static_assert(sizeof(pl_doc_said) == 2 * sizeof(int64_t) + 6 * sizeof(int32_t), "sent member by member");

// Reads the document of number `at`, of at most `most` rows.
static void take_doc(pl_reader *in, pl_doc_said *doc, int64_t at, int64_t most, int32_t vocab) {
    int32_t before = at < INT32_MAX ? (int32_t)at : INT32_MAX;
    doc->rows = pl_reader_int(in, "a document's rows", 1, most);
    doc->answers = pl_reader_int(in, "a document's answered rows", 0, doc->rows);
    doc->about.end = pl_reader_int32(in, "a document's last token", -1, vocab - 1);
    doc->about.turn = pl_reader_int32(in, "a document's turn", 0, INT32_MAX);
    doc->about.back = pl_reader_int32(in, "the documents back to a conversation's first", 0, before);
    doc->about.finish = pl_reader_int32(in, "why a document ended", 0, PL_ANSWER_CONTEXT);
    doc->about.cut = pl_reader_int32(in, "whether a document was cut", 0, 1);
    doc->held = pl_reader_int32(in, "whether a document is held out", 0, 1);
}

// Reads the documents of one rank's shards, whose rows must add up to those of the manifest.
static pl_status take_docs(survey *s, int rank, const uint8_t *data, size_t n, pl_err *err) {
    pl_reader in = pl_reader_of(rank, "its documents", data, n, err);
    int32_t   vocab = pl_dataset_get_attrs(s->ds)->vocab_size;
    int64_t   at = 0;
    for (int64_t k = 0; k < s->v->shards && in.status == PL_OK; k++) {
        int64_t end = at + pl_dataset_shard_docs(s->ds, k), left = pl_dataset_shard_rows(s->ds, k);
        for (; at < end && s->v->owner[k] == rank && in.status == PL_OK; at++) {
            take_doc(&in, &s->v->doc[at], at, left, vocab);
            left -= s->v->doc[at].rows;
        }
        if (s->v->owner[k] == rank && left > 0)
            pl_reader_refuse(&in, "shard %lld lacks %lld rows", (long long)k, (long long)left);
        at = end;
    }
    return pl_reader_end(&in);
}

static pl_status share_docs(survey *s, pl_comm *comm, pl_err *err) {
    size_t       bytes[PL_RANKS_MAX];
    uint8_t     *all = NULL, *from;
    int64_t      n = 0;
    pl_doc_said *mine = pl_calloc((size_t)s->v->docs + 1, sizeof *mine);
    if (!mine) return pl_fail(err, PL_E_MEMORY, "dataset: out of memory");
    for (int64_t k = 0, at = 0, docs; k < s->v->shards; k++, at += docs) {
        docs = pl_dataset_shard_docs(s->ds, k);
        if (s->v->owner[k] != pl_comm_rank(comm)) continue;
        memcpy(mine + n, s->v->doc + at, (size_t)docs * sizeof *mine);
        n += docs;
    }
    pl_status st =
        pl_comm_gather(comm, mine, (size_t)n * sizeof *mine, (size_t)s->v->docs * sizeof *mine, &all, bytes, err);
    pl_free(mine);
    from = all;
    for (int r = 0; r < s->v->ranks && st == PL_OK; from += bytes[r++])
        st = take_docs(s, r, from, bytes[r], err);
    pl_free(all);
    return st;
}

static pl_status pass_on(const survey *s, int64_t shard, const pl_doc_said *said, pl_err *err) {
    int64_t       n = pl_dataset_shard_docs(s->ds, shard);
    int64_t      *offsets = pl_calloc((size_t)n + 1, sizeof *offsets);
    pl_doc_about *about = pl_calloc((size_t)n + 1, sizeof *about);
    if (!offsets || !about) {
        pl_free(offsets);
        pl_free(about);
        return pl_fail(err, PL_E_MEMORY, "dataset: out of memory");
    }
    for (int64_t i = 0; i < n; i++) {
        offsets[i + 1] = offsets[i] + said[i].rows;
        about[i] = said[i].about;
    }
    pl_dataset_tell(s->ds, shard, offsets, about);
    return PL_OK;
}

// Passes documents opened by other ranks on to the dataset; a conversation's first document decides for all of it.
static pl_status take_others(survey *s, int rank, pl_err *err) {
    pl_survey *v = s->v;
    int64_t    at = 0;
    for (int64_t i = 0; i < v->docs; i++)
        v->doc[i].held = v->doc[i - v->doc[i].about.back].held;
    for (int64_t k = 0; k < v->shards; at += pl_dataset_shard_docs(s->ds, k++))
        if (v->owner[k] != rank) PL_TRY(pass_on(s, k, v->doc + at, err));
    return PL_OK;
}

pl_status pl_survey_take(pl_survey *v, pl_dataset *ds, const char *dir, uint64_t seed, int64_t every, pl_comm *comm,
                         pl_err *err) {
    survey s = {.v = v, .ds = ds, .seed = seed, .every = every};
    *v = (pl_survey){.docs = pl_dataset_docs(ds), .shards = pl_dataset_shards(ds), .ranks = pl_comm_ranks(comm)};
    v->doc = pl_calloc((size_t)v->docs + 1, sizeof *v->doc);
    v->owner = pl_calloc((size_t)v->shards + 1, sizeof *v->owner);
    pl_status st = v->doc && v->owner ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK) st = same_manifest(ds, dir, comm, err);
    if (st == PL_OK) st = find_shards(v, ds, comm, err);
    if (st == PL_OK) st = deal_shards(v, dir, err);
    if (st == PL_OK) st = read_own(&s, pl_comm_rank(comm), err);
    if (st == PL_OK) st = share_docs(&s, comm, err);
    if (st == PL_OK) st = take_others(&s, pl_comm_rank(comm), err);
    pl_columns_free(&s.doc);
    return st;
}

// ---- documents on their way

// Returns the bytes of the documents that `from` sends to `to`, in one parcel.
static size_t parcel_bytes(const pl_doc_carry *c, const pl_doc_span *span, int from, int to) {
    size_t n = 0;
    for (int64_t at = span->first; at < span->end; at++)
        if (c->sender(c->arg, at, to) == from) n += (size_t)c->rows(c->arg, at) * pl_columns_row_bytes(&c->shape);
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

pl_status pl_source_gather_one(pl_feature_source *s, const pl_doc_span *gathered, int64_t at, pl_comm *comm,
                               pl_err *err) {
    pl_doc_span all[PL_RANKS_MAX];
    if (at >= gathered->first && at < gathered->end) return PL_OK;
    for (int r = 0; r < pl_comm_ranks(comm); r++)
        all[r] = (pl_doc_span){at, at + 1};
    return s->gather(s, all, err);
}

pl_doc_span pl_doc_span_all(const pl_doc_span *rank, int ranks) {
    pl_doc_span all = rank[0];
    for (int r = 1; r < ranks; r++)
        if (rank[r].end > all.end) all.end = rank[r].end;
    return all;
}

// ---- a task's documents

pl_status pl_source_begin(pl_feature_source *s, pl_task *t, int64_t step, pl_err *err) {
    int64_t     from[2] = {t->cursor[0], t->cursor[t->n_cursor - 1]};
    int         ranks = pl_comm_ranks(t->comm);
    pl_doc_span span[PL_RANKS_MAX];
    if (!s->begin) return PL_OK;
    PL_TRY(s->begin(s, from[0], err));
    for (int r = 0; r < ranks; r++) {
        int first, n;
        pl_slots_share(t->n_slots, r, ranks, &first, &n);
        span[r].first = t->cursor[0];
        for (int i = 0; i < n; i++)
            PL_TRY(t->skip(t, step, first + i, err));
        span[r].end = t->cursor[0] + (t->n_cursor > 1 && t->cursor[1] > 0);
    }
    memcpy(t->cursor, from, (size_t)t->n_cursor * sizeof *from);
    return s->gather ? s->gather(s, span, err) : PL_OK;
}

void pl_source_place(pl_feature_source *s, int64_t from, int64_t end, pl_json_out *o) {
    pl_json_out_key(o, "documents");
    pl_json_out_array(o);
    for (int64_t at = from; at < end; at++)
        pl_json_out_int(o, s->number ? s->number(s, at) : at);
    pl_json_out_close(o, ']');
}

#include "data/tokenizer/spm_proto.h"
#include "data/tokenizer/impl.h"
#include "data/tokenizer/vocab.h"
#include "kernels/base/arena.h"
#include "kernels/base/utf8.h"
#include <math.h>
#include <string.h>

// ---- protobuf wire format

typedef struct cursor {
    const uint8_t *p, *end;
    const char    *why; // NULL, or the first error
} cursor;

typedef struct field {
    uint32_t     number;
    int          wire; // 0 varint, 1 fixed64, 2 bytes, 5 fixed32
    uint64_t     value;
    pl_spm_bytes bytes;
} field;

static bool stop_with(cursor *c, const char *why) {
    if (!c->why) c->why = why;
    return false;
}

static bool read_varint(cursor *c, uint64_t *v) {
    *v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (c->p == c->end) return stop_with(c, "it ends inside a number");
        uint8_t b = *c->p++;
        *v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return true;
    }
    return stop_with(c, "a number is longer than 64 bits");
}

static bool read_fixed(cursor *c, size_t n, uint64_t *v) {
    if ((size_t)(c->end - c->p) < n) return stop_with(c, "it ends inside a number");
    *v = 0;
    for (size_t i = 0; i < n; i++)
        *v |= (uint64_t)*c->p++ << (8 * i);
    return true;
}

// Reads the next field; false at the end and on an error. Groups (wire types 3 and 4) were never used by SentencePiece.
static bool next_field(cursor *c, field *f) {
    uint64_t key, n;
    if (c->why || c->p == c->end || !read_varint(c, &key)) return false;
    if (key >> 3 == 0 || key >> 3 > (1u << 29) - 1) return stop_with(c, "a field number is out of range");
    f->number = (uint32_t)(key >> 3);
    f->wire = (int)(key & 7);
    switch (f->wire) {
    case 0: return read_varint(c, &f->value);
    case 1: return read_fixed(c, 8, &f->value);
    case 5: return read_fixed(c, 4, &f->value);
    case 2:
        if (!read_varint(c, &n)) return false;
        if (n > (uint64_t)(c->end - c->p)) return stop_with(c, "a field runs past the end");
        f->bytes = (pl_spm_bytes){c->p, (size_t)n};
        c->p += n;
        return true;
    default: return stop_with(c, "a field has an unknown wire type");
    }
}

static bool want_wire(cursor *c, const field *f, int wire) {
    return f->wire == wire || stop_with(c, "a field has the wrong type");
}

static cursor enter_field(const field *f) {
    return (cursor){f->bytes.p, f->bytes.p + f->bytes.n, NULL};
}

// ---- messages

static float float_of(uint64_t bits) {
    uint32_t u = (uint32_t)bits;
    float    v;
    memcpy(&v, &u, 4);
    return v;
}

static const char *read_piece(pl_spm_piece *piece, const field *at) {
    cursor c = enter_field(at);
    field  f = {0};
    *piece = (pl_spm_piece){.type = PL_SPM_NORMAL};
    while (next_field(&c, &f)) {
        if (f.number == 1 && want_wire(&c, &f, 2)) piece->s = f.bytes;
        if (f.number == 2 && want_wire(&c, &f, 5)) piece->score = float_of(f.value);
        if (f.number == 3 && want_wire(&c, &f, 0)) {
            if (f.value < PL_SPM_NORMAL || f.value > PL_SPM_BYTE) return "a piece has an unknown type";
            piece->type = (pl_spm_type)f.value;
        }
    }
    if (c.why) return c.why;
    if (piece->s.n == 0) return "a piece is empty";
    if (piece->s.n > 4096) return "a piece is longer than 4096 bytes";
    if (pl_utf8_valid((const char *)piece->s.p, piece->s.n) != piece->s.n) return "a piece is not valid UTF-8";
    // The library searches its pieces as C strings.
    if (memchr(piece->s.p, 0, piece->s.n)) return "a piece holds a NUL byte";
    if (!isfinite(piece->score)) return "a piece's score is not finite";
    return NULL;
}

typedef struct extras {
    bool suffix_space, unescaped, denormalizer;
} extras;

// Checks the types that the library's own parser requires, field by field, so that it gets no others.
static const char *read_trainer(pl_spm_proto *p, extras *x, const field *at) {
    cursor c = enter_field(at);
    field  f;
    while (next_field(&c, &f)) {
        if (f.number == 3 && want_wire(&c, &f, 0)) p->model_type = f.value > 4 ? 0 : (int)f.value;
        if (f.number == 24 && want_wire(&c, &f, 0)) x->suffix_space = f.value != 0;
        if (f.number == 35 && want_wire(&c, &f, 0)) p->byte_fallback = f.value != 0;
        if (f.number == 44 && want_wire(&c, &f, 2)) p->unk_surface = f.bytes;
        if (f.number == 46 && want_wire(&c, &f, 2)) p->bos_piece = f.bytes;
        if (f.number == 47 && want_wire(&c, &f, 2)) p->eos_piece = f.bytes;
    }
    if (!c.why && (p->model_type < 1 || p->model_type > 4)) return "its model type is unknown";
    return c.why;
}

static const char *read_normalizer(pl_spm_proto *p, extras *x, const field *at) {
    cursor c = enter_field(at);
    field  f;
    while (next_field(&c, &f)) {
        if (f.number == 2 && want_wire(&c, &f, 2)) p->charsmap = f.bytes;
        if (f.number == 3 && want_wire(&c, &f, 0)) p->add_dummy_prefix = f.value != 0;
        if (f.number == 4 && want_wire(&c, &f, 0)) p->remove_extra_whitespaces = f.value != 0;
        if (f.number == 5 && want_wire(&c, &f, 0)) x->unescaped = f.value == 0;
    }
    return c.why;
}

static const char *read_denormalizer(extras *x, const field *at) {
    cursor c = enter_field(at);
    field  f;
    while (next_field(&c, &f))
        if (f.number == 2 && want_wire(&c, &f, 2)) x->denormalizer = f.bytes.n > 0;
    return c.why;
}

// ---- the normaliser's table

static uint32_t unit_at(const uint8_t *units, size_t i) {
    const uint8_t *u = units + 4 * i;
    return (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

// uint32 bytes of the trie, the trie (a Darts-clone double array), then 0-terminated replacements. The library walks it
// without bounds checks. In a double array the children of unit i are at (i ^ offset) ^ byte, so a walk stays inside if
// every block of 256 that an offset leads to is inside; a unit with has_leaf has its value (an index into the
// replacements) at i ^ offset. Every walk begins at unit 0, whose own label is not read, so its offset counts even if
// it looks like a value.

static const char *check_charsmap(pl_spm_bytes m) {
    if (m.n == 0) return NULL;
    if (m.n < 4) return "its normaliser's table is cut";
    uint32_t size = unit_at(m.p, 0);
    if (size > m.n - 4 || size == 0 || size % 1024 != 0) return "its normaliser's trie does not fit";
    size_t         count = size / 4, text = m.n - 4 - size;
    const uint8_t *units = m.p + 4;
    if (text == 0 || m.p[m.n - 1] != 0) return "its normaliser's replacements are cut";
    for (size_t i = 0; i < count; i++) {
        uint32_t unit = unit_at(units, i);
        if ((unit & 0x80000000u) && i > 0) continue; // a value: reached below, never walked through
        size_t at = i ^ (size_t)((unit >> 10) << ((unit & 0x200u) >> 6));
        if ((at | 0xff) >= count) return "its normaliser's trie leads outside";
        if (!(unit & 0x100u)) continue;
        size_t to = unit_at(units, at) & 0x7fffffffu;
        if (to >= text) return "its normaliser's trie leads outside the replacements";
        if (strnlen((const char *)units + size + to, text - to) > PL_REPLACEMENT_MAX)
            return "its normaliser has a replacement of more than 1024 bytes";
    }
    return NULL;
}

// ---- the model

// Checks the library's requirements: each piece once, one unknown, and with byte fallback every byte.
static const char *check_pieces(const pl_spm_proto *p, pl_err *err, pl_status *st) {
    pl_vocab    v = {0};
    const char *why = NULL;
    int         unknown = 0, bytes = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const pl_spm_piece *q = &p->pieces[i];
        unknown += q->type == PL_SPM_UNKNOWN;
        bytes += q->type == PL_SPM_BYTE;
        *st = pl_vocab_set(&v, i, (const char *)q->s.p, q->s.n, err);
        if (*st != PL_OK) goto done;
    }
    *st = pl_vocab_index(&v, err);
    if (*st != PL_OK) goto done;
    for (int32_t i = 0; i < p->n && !why; i++)
        if (pl_vocab_find(&v, (const char *)p->pieces[i].s.p, p->pieces[i].s.n) != i) why = "a piece stands twice";
    if (unknown != 1) why = "it must have exactly one unknown piece";
    if (p->byte_fallback ? bytes != 256 : bytes != 0) why = "byte pieces and byte_fallback do not agree";
    for (int b = 0; b < 256 && bytes && !why; b++) {
        const char hex[] = "0123456789ABCDEF", s[6] = {'<', '0', 'x', hex[b >> 4], hex[b & 15], '>'};
        int32_t    id = pl_vocab_find(&v, s, 6);
        if (id < 0 || p->pieces[id].type != PL_SPM_BYTE) why = "a byte piece is missing";
    }
done:
    pl_vocab_fini(&v);
    return why;
}

static pl_status read_model(pl_spm_proto *p, extras *x, const uint8_t *data, size_t n, const char **why, pl_err *err) {
    cursor  c = {data, data + n, NULL};
    field   f;
    int32_t cap = 0;
    while (next_field(&c, &f)) {
        if (f.number > 5 || !want_wire(&c, &f, 2)) continue;
        if (f.number == 1) {
            if (p->n >= PL_VOCAB_MAX) stop_with(&c, "it has too many pieces");
            if (p->n == cap && !c.why) {
                cap = cap ? 2 * cap : 1024;
                pl_spm_piece *more = pl_realloc(p->pieces, (size_t)cap * sizeof *more);
                if (!more) return pl_fail(err, PL_E_MEMORY, "SentencePiece model: out of memory");
                p->pieces = more;
            }
            if (!c.why) c.why = read_piece(&p->pieces[p->n++], &f);
        }
        if (f.number == 2) c.why = read_trainer(p, x, &f);
        if (f.number == 3) c.why = read_normalizer(p, x, &f);
        if (f.number == 5) c.why = read_denormalizer(x, &f);
    }
    *why = c.why;
    return PL_OK;
}

static pl_spm_bytes text(const char *s) {
    return (pl_spm_bytes){(const uint8_t *)s, strlen(s)};
}

pl_status pl_spm_proto_read(pl_spm_proto *p, const char *path, const uint8_t *data, size_t n, pl_err *err) {
    *p = (pl_spm_proto){.model_type = 1, // the defaults of sentencepiece_model.proto
                        .bos_piece = text("<s>"),
                        .eos_piece = text("</s>"),
                        .unk_surface = text(" \xE2\x81\x87 "),
                        .add_dummy_prefix = true,
                        .remove_extra_whitespaces = true};
    extras      x = {0};
    const char *why = NULL, *unsupported = NULL;
    pl_status   st = read_model(p, &x, data, n, &why, err);
    if (st != PL_OK) goto done;
    if (!why && p->n == 0) why = "it has no pieces";
    if (!why) why = check_charsmap(p->charsmap);
    if (!why) why = check_pieces(p, err, &st);
    if (st != PL_OK) goto done;
    if (x.suffix_space) unsupported = "treat_whitespace_as_suffix";
    if (x.unescaped) unsupported = "escape_whitespaces=false";
    if (x.denormalizer) unsupported = "a denormalizer";
    if (why)
        st = pl_fail(err, PL_E_INPUT, "%s: broken SentencePiece model: %s; copy the file again", path, why);
    else if (unsupported)
        st = pl_fail(err, PL_E_INPUT, "%s: a SentencePiece model with %s is not supported", path, unsupported);
done:
    if (st == PL_E_MEMORY) pl_fail(err, st, "%s: out of memory", path);
    if (st != PL_OK) pl_spm_proto_fini(p);
    return st;
}

void pl_spm_proto_fini(pl_spm_proto *p) {
    pl_free(p->pieces);
    *p = (pl_spm_proto){0};
}

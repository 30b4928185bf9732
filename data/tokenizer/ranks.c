// Byte-level vocabularies whose files hold pieces alone: tiktoken rank files (Llama-3's tokenizer.model; each line a
// piece in base64 and its rank, which is its id) and GPT-2's vocab.json with merges.txt.
#include "data/tokenizer/hf.h"
#include "data/tokenizer/open.h"
#include "data/tokenizer/pre.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/strbuf.h"
#include "kernels/base/utf8.h"
#include <limits.h>

enum { MAX_PIECE = 4096 }; // bytes; real ones have at most some 256

static const pl_tokenizer_vt ranks_vt = {"tiktoken", pl_hf_encode, pl_hf_close};
static const pl_tokenizer_vt pair_vt = {"vocab+merges", pl_hf_encode, pl_hf_close};

static pl_status out_of_memory(const char *path, pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
}

// ---- rank files

static int base64_digit(uint8_t c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Strict: whole groups of four, padding at the end only, no bits left over. Returns false if s[0..n) is not base64.
static bool read_base64(const uint8_t *s, size_t n, char *to, size_t *n_to) {
    *n_to = 0;
    if (n == 0 || n % 4 != 0) return false;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t v = 0;
        int      pad = 0;
        for (size_t k = 0; k < 4; k++) {
            uint8_t c = s[i + k];
            int     digit = base64_digit(c);
            if (c == '=' && i + 4 == n && k >= 2)
                pad++;
            else if (digit < 0 || pad > 0)
                return false;
            v = v << 6 | (uint32_t)(digit < 0 ? 0 : digit);
        }
        if (pad > 0 && (v & (pad == 1 ? 0xffu : 0xffffu)) != 0) return false;
        for (int k = 0; k < 3 - pad; k++)
            to[(*n_to)++] = (char)(uint8_t)(v >> (16 - 8 * k));
    }
    return true;
}

bool pl_tokenizer_is_ranks(const uint8_t *data, size_t n) {
    size_t i = 0;
    while (i < n && i < MAX_PIECE && (base64_digit(data[i]) >= 0 || data[i] == '='))
        i++;
    return i > 0 && i + 1 < n && data[i] == ' ' && data[i + 1] >= '0' && data[i + 1] <= '9';
}

// Reads one line as a piece of the model: as bytes, and spelled in the byte alphabet.
static pl_status read_rank(pl_tokenizer *tok, const char *path, size_t line, const uint8_t *s, size_t n, pl_err *err) {
    pl_hf         *h = tok->impl;
    const uint8_t *space = memchr(s, ' ', n);
    size_t         len = space ? (size_t)(space - s) : n, m, spelled = 0;
    char           bytes[MAX_PIECE], text[2 * MAX_PIECE];
    int64_t        rank = 0;
    if (len > MAX_PIECE) return pl_fail(err, PL_E_INPUT, "%s:%zu: a piece of %zu characters", path, line, len);
    if (!space || !read_base64(s, len, bytes, &m))
        return pl_fail(err, PL_E_INPUT, "%s:%zu: not a piece in base64, a space and its rank", path, line);
    for (const uint8_t *c = space + 1; c < s + n || c == space + 1; c++) {
        if (c == s + n || *c < '0' || *c > '9' || rank > PL_HF_MAX_ID)
            return pl_fail(err, PL_E_INPUT, "%s:%zu: the rank must be an integer in 0..%d", path, line, PL_HF_MAX_ID);
        rank = 10 * rank + (*c - '0');
    }
    for (size_t i = 0; i < m; i++)
        spelled += (size_t)pl_byte_to_char((uint8_t)bytes[i], text + spelled);
    pl_status st = pl_vocab_set(&h->raw, rank, bytes, m, err);
    if (st == PL_OK) st = pl_vocab_set(&h->model, rank, text, spelled, err);
    if (st == PL_OK) st = pl_vocab_set(&tok->vocab, rank, text, spelled, err);
    return st == PL_OK ? st : pl_fail_at(err, st, "%s:%zu", path, line);
}

static pl_status read_ranks(pl_tokenizer *tok, const char *path, const uint8_t *data, size_t n, pl_err *err) {
    pl_hf *h = tok->impl;
    size_t line = 1;
    for (size_t at = 0, end; at < n; at = end + 1, line++) {
        const uint8_t *stop = memchr(data + at, '\n', n - at);
        end = stop ? (size_t)(stop - data) : n;
        size_t len = end - at;
        if (len > 0 && data[at + len - 1] == '\r') len--;
        if (len > 0) PL_TRY(read_rank(tok, path, line, data + at, len, err));
    }
    if (h->raw.n == 0) return pl_fail(err, PL_E_INPUT, "%s: no pieces", path);
    PL_TRY(pl_vocab_index(&h->raw, err));
    PL_TRY(pl_vocab_index(&h->model, err));
    for (int32_t id = 0; id < h->raw.n; id++) {
        size_t      m;
        const char *s = pl_vocab_piece(&h->raw, id, &m);
        int32_t     first = m ? pl_vocab_find(&h->raw, s, m) : id;
        if (first != id) return pl_fail(err, PL_E_INPUT, "%s: ranks %d and %d are the same piece", path, first, id);
    }
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        h->byte_id[b] = pl_vocab_find(&h->raw, &c, 1);
        if (h->byte_id[b] < 0) return pl_fail(err, PL_E_INPUT, "%s: byte 0x%02x has no rank", path, (unsigned)b);
    }
    return PL_OK;
}

// ---- common to both

static pl_status begin_pieces(pl_tokenizer *tok, const pl_tokenizer_vt *vt, const char *path, pl_err *err) {
    pl_hf *h = tok->impl = pl_calloc(1, sizeof *h);
    if (!h) return out_of_memory(path, err);
    tok->vt = vt;
    h->unk = -1;
    h->decode_level = true;
    return PL_OK;
}

pl_status pl_hf_begin_pieces(pl_tokenizer *tok, const char *path, pl_err *err) {
    return begin_pieces(tok, &pair_vt, path, err);
}

// Sets the pre-tokenizer and added tokens, and finishes.
static pl_status end_pieces(pl_tokenizer *tok, const char *path, const char *pre, const pl_json *config, pl_err *err) {
    if (!pre && config) PL_TRY(pl_json_opt_str(config, NULL, "paceline_pre", NULL, &pre, err));
    PL_TRY(pl_pre_choose(tok, path, pre, err));
    PL_TRY(pl_pre_added(tok, config, err));
    return pl_hf_finish(tok, path, err);
}

pl_status pl_tokenizer_open_ranks(pl_tokenizer *tok, const char *path, const char *pre, const pl_json *config,
                                  const uint8_t *data, size_t n, pl_err *err) {
    PL_TRY(begin_pieces(tok, &ranks_vt, path, err));
    pl_hf *h = tok->impl;
    h->by_rank = true;
    h->ignore_merges = true; // a word that equals a piece becomes that piece
    PL_TRY(read_ranks(tok, path, data, n, err));
    return end_pieces(tok, path, pre, config, err);
}

// ---- vocab.json and merges.txt

static pl_status read_merges(pl_hf *h, const char *path, const uint8_t *data, size_t n, pl_err *err) {
    size_t  line = 1, lines = 1;
    int32_t rank = 0;
    for (size_t i = 0; i < n; i++)
        lines += data[i] == '\n';
    if (lines > INT_MAX) return pl_fail(err, PL_E_INPUT, "%s: %zu lines are too many", path, lines);
    PL_TRY(pl_hf_merges_reserve(h, lines, err));
    for (size_t at = 0, stop; at < n; at = stop + 1, line++) {
        const uint8_t *newline = memchr(data + at, '\n', n - at);
        stop = newline ? (size_t)(newline - data) : n;
        const char *s = (const char *)data + at;
        size_t      len = stop - at;
        if (len > 0 && s[len - 1] == '\r') len--;
        if (len == 0 || (len >= 8 && memcmp(s, "#version", 8) == 0)) continue;
        pl_status st = pl_hf_merge_line(h, s, len, rank++, err);
        if (st != PL_OK) return pl_fail_at(err, st, "%s:%zu", path, line);
    }
    return PL_OK;
}

static pl_status read_pair(pl_tokenizer *tok, const char *merges_path, const pl_json *j, const char *pre,
                           const pl_json *config, pl_err *err) {
    pl_hf   *h = tok->impl;
    uint8_t *merges;
    size_t   n;
    if (!cJSON_IsObject(j->root)) return pl_json_fail(j, j->root, err, "expected an object of pieces and ids");
    PL_TRY(pl_hf_read_vocab(tok, j, j->root, err));
    PL_TRY(pl_hf_index_bytes(h, j->where, err));
    PL_TRY(pl_file_read(merges_path, &merges, &n, (size_t)256 << 20, err));
    size_t    valid = pl_utf8_valid((const char *)merges, n);
    pl_status st = valid == n ? read_merges(h, merges_path, merges, n, err)
                              : pl_fail(err, PL_E_INPUT, "%s: not valid UTF-8 at byte %zu", merges_path, valid);
    pl_free(merges);
    return st == PL_OK ? end_pieces(tok, j->where, pre, config, err) : st;
}

pl_status pl_tokenizer_open_pair(pl_tokenizer *tok, const char *path, const char *merges_path, const char *pre,
                                 const pl_json *config, const uint8_t *data, size_t n, pl_err *err) {
    pl_json j;
    PL_TRY(pl_hf_begin_pieces(tok, path, err));
    PL_TRY(pl_json_parse_many(&j, path, 0, data, n, PL_TOKENIZER_VALUES, PL_JSON_UNIQUE, err));
    pl_status st = read_pair(tok, merges_path, &j, pre, config, err);
    pl_json_close(&j);
    return st;
}

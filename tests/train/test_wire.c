// What ranks send each other is read with checks: of two ranks one sends messages that are too short, too long or hold
// values out of range, and the other ends with one line that names the rank and the value.
#include "tests/train/small.h"
#include "tests/train/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/eval/gather.h"
#include "infer/generate/generate.h"
#include "infer/model/tp_orders.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"
#include "tests/malformed.h"
#include "train/run/run.h"
#include "train/source/ranks.h"
#include "train/source/sources.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// How a message that is right becomes one that is not, and what the line says of it.
typedef struct edit {
    const char *says;
    int         at, width; // of a value that is put there; width 0: none
    int64_t     value;
    int         grow; // bytes behind the end; < 0: so many are cut off
    int         stage;
} edit;

#define PUT(where, bytes, what) .at = (where), .width = (bytes), .value = (what)

static void change(pl_strbuf *b, const edit *e) {
    static const uint8_t more[1 << 16] = {0};
    if (e->grow > 0) pl_strbuf_add(b, (const char *)more, (size_t)e->grow);
    if (e->grow < 0) b->n -= (size_t)-e->grow;
    if (e->width) {
        assert_true((size_t)(e->at + e->width) <= b->n);
        memcpy(b->s + e->at, &e->value, (size_t)e->width);
    }
}

typedef pl_status (*role)(pl_comm *c, const edit *e, pl_err *err);

// One of two ranks sends, the other receives; what rank 0 ends with.
static pl_status meet(int sender, role sends, role receives, const edit *e, pl_err *err) {
    pl_comm *c = NULL;
    *err = (pl_err){0};
    assert_int_equal(pl_comm_fork(&c, 2, err), PL_OK);
    int rank = pl_comm_rank(c);
    if (rank > 0) pl_log_set(PL_LOG_MUTE);
    pl_status st = pl_comm_open(c, "host", pl_backend_cpu(), err);
    if (st == PL_OK) st = (rank == sender ? sends : receives)(c, e, err);
    if (st == PL_OK) st = pl_comm_barrier(c, err);
    if (st != PL_OK) pl_comm_fail(c, err);
    pl_comm_close(c);
    if (rank > 0) _exit(0);
    return st;
}

static void refused(int sender, role sends, role receives, const edit *e) {
    char   who[24];
    pl_err err;
    snprintf(who, sizeof who, "rank %d sent ", sender);
    pl_status st = meet(sender, sends, receives, e, &err);
    if (st != PL_E_IO || !strstr(err.msg, who) || !strstr(err.msg, e->says) || strchr(err.msg, '\n'))
        fail_msg("\"%s\" is not refused: %s", e->says, st == PL_OK ? "it is taken" : err.msg);
    malformed_seen();
}

#define EACH(edits, sender, sends, receives)                                                                           \
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)                                                          \
    refused(sender, sends, receives, &edits[i])

// ---- evaluation: rank 1's part and trace

enum { PROMPTS = 4, STATS = sizeof(pl_session_stats), ANSWER = 75, PART = 2 * 9 + STATS + 2 * ANSWER + 8 };

typedef struct evaluation {
    pl_results   r;
    pl_method    method;
    pl_answer    answer[PROMPTS];
    int64_t      record[PROMPTS], prompt_n[PROMPTS];
    uint8_t      cut[PROMPTS], sampled[PROMPTS];
    pl_eval_part part;
} evaluation;

// Of four prompts, of which rank 1 has the second and the last; one line of samples is its.
static void make_evaluation(evaluation *v, pl_comm *c) {
    *v = (evaluation){.record = {0, 1, 2, 3}, .prompt_n = {5, 6, 7, 8}, .sampled = {1, 1}};
    v->method = (pl_method){.seeds = 1, .answer = v->answer};
    for (int i = 0; i < PROMPTS; i++)
        v->answer[i] = (pl_answer){.seconds = 1, .emitted = 3, .steps = 2, .tokens = 4, .identical = true};
    pl_strbuf_add(&v->method.samples, "{}\n", 3);
    v->r = (pl_results){.method = &v->method, .n_methods = 1, .n_prompts = PROMPTS, .record = v->record};
    v->part = (pl_eval_part){.comm = c, .r = &v->r, .prompt_n = v->prompt_n, .cut = v->cut, .sampled = v->sampled};
}

static pl_status send_size_and(pl_comm *c, const pl_strbuf *b, uint64_t size, pl_err *err) {
    uint8_t        *all;
    size_t          bytes[2];
    pl_comm_parcels p = {.out = {b->s}, .out_bytes = {b->n}};
    PL_TRY(pl_comm_gather(c, &size, sizeof size, sizeof size, &all, bytes, err));
    pl_free(all);
    return pl_comm_exchange(c, &p, err);
}

static pl_status send_part(pl_comm *c, const edit *e, pl_err *err) {
    evaluation v;
    pl_strbuf  b = {0};
    make_evaluation(&v, c);
    pl_eval_part_write(&b, &v.part, 1);
    assert_int_equal(b.n, PART + 3);
    change(&b, e);
    pl_status st = send_size_and(c, &b, b.n, err);
    pl_free(b.s);
    pl_free(v.method.samples.s);
    return st;
}

static pl_status take_part(pl_comm *c, const edit *e, pl_err *err) {
    evaluation v;
    (void)e;
    make_evaluation(&v, c);
    pl_status st = pl_eval_gather(&v.part, err);
    if (st == PL_OK) assert_int_equal(v.method.samples.n, 6);
    pl_free(v.method.samples.s);
    return st;
}

static void parts_of_an_evaluation(void **state) {
    static const edit edits[] = {
        {"tokens of a prompt is of 8 bytes, 4 are left", .grow = -(PART + 3 - 4)},
        {"tokens of a prompt is of 8 bytes, 0 are left", .grow = -(PART + 3)},
        {"samples is 3 of 1 bytes each, 2 bytes are left", .grow = -1},
        {"65536 bytes follow its end", .grow = 65536},
        {"tokens of a prompt is -1, not 0 to", PUT(0, 8, -1)},
        {"whether a prompt was cut is 2, not 0 to 1", PUT(8, 1, 2)},
        {"a count of a method is -5, not 0 to", PUT(18, 8, -5)},
        {"a count of a method is 9223372036854775807, not 0 to", PUT(26, 8, INT64_MAX)},
        {"seconds of a method is ", PUT(18 + STATS - 8, 8, -1)}, // not a number
        {"seconds of an answer is ", PUT(18 + STATS, 8, 0x7ff0000000000000)},
        {"emitted tokens is -1, not 0 to", PUT(18 + STATS + 16, 8, -1)},
        {"repeated tokens is 5, not 0 to 4", PUT(18 + STATS + 16 + 40, 8, 5)},
        {"identical is 255, not 0 to 1", PUT(18 + STATS + ANSWER - 3, 1, 255)},
        {"bytes of samples is -1, not 0 to", PUT(PART - 8, 8, -1)},
        {"bytes of samples is 1099511627776 of 1 bytes each", PUT(PART - 8, 8, (int64_t)1 << 40)},
        {"0 lines of samples, not 1 whole ones", PUT(PART + 2, 1, '}')},
        {"1 lines of samples, not 1 whole ones", PUT(PART, 1, 0)},
    };
    pl_err err;
    (void)state;
    assert_int_equal(meet(1, send_part, take_part, &(edit){0}, &err), PL_OK);
    EACH(edits, 1, send_part, take_part);
}

static pl_status send_trace(pl_comm *c, const edit *e, pl_err *err) {
    pl_strbuf b = {0};
    pl_strbuf_add(&b, "{}\n", 3);
    change(&b, e);
    pl_status st = send_size_and(c, &b, e->stage ? (uint64_t)1 << 60 : b.n, err);
    pl_free(b.s);
    return st;
}

static pl_status take_trace(pl_comm *c, const edit *e, pl_err *err) {
    pl_trace t = {0};
    char    *path = pl_path_join(small_base, "trace.jsonl");
    (void)e;
    pl_status st = pl_trace_begin(&t, path, err);
    if (st == PL_OK) st = pl_eval_gather_trace(c, &t, err);
    pl_trace_abort(&t);
    pl_free(path);
    return st;
}

static void traces(void **state) {
    static const edit edits[] = {{"a trace: 1152921504606846976 bytes, more than this host's memory", .stage = 1},
                                 {"a trace: its last line has no end", .grow = -1},
                                 {"a trace: its last line has no end", PUT(2, 1, 'x')}};
    pl_err            err;
    (void)state;
    assert_int_equal(meet(1, send_trace, take_trace, &(edit){0}, &err), PL_OK);
    EACH(edits, 1, send_trace, take_trace);
}

// ---- training: the shards and documents of rank 1

enum { SAID = sizeof(pl_doc_said) };

static char *pieces(void) {
    return pl_path_join(small_base, "pieces/dataset");
}

static pl_status make_pieces(const pl_recipe *r, const char *dir, const pl_env *env, int64_t stop_after, pl_err *err) {
    (void)stop_after;
    return pl_ranks_generate(r, &(pl_taps){.n = 1, .layer = {1}}, dir, env, err);
}

static pl_status send_survey(pl_comm *c, const edit *e, pl_err *err) {
    char       *dir = pieces(), print[17];
    pl_dataset *ds;
    pl_survey   v;
    pl_strbuf   there = {0}, docs = {0};
    uint8_t    *all;
    size_t      bytes[2];
    PL_TRY(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.lazy = true}, err));
    PL_TRY(pl_survey_take(&v, ds, dir, 1, 8, NULL, err));
    pl_strbuf_add(&there, (const char *)v.there, (size_t)v.shards);
    for (int64_t k = 0, at = 0; k < v.shards; at += pl_dataset_shard_docs(ds, k++))
        if (k % 2) pl_strbuf_add(&docs, (const char *)(v.doc + at), (size_t)pl_dataset_shard_docs(ds, k) * SAID);
    change(e->stage ? &docs : &there, e);
    PL_TRY(pl_comm_broadcast(c, print, sizeof print, err));
    PL_TRY(pl_comm_gather(c, there.s, there.n, (size_t)v.shards, &all, bytes, err));
    PL_TRY(pl_comm_gather(c, docs.s, docs.n, (size_t)v.docs * SAID, &all, bytes, err));
    return PL_OK; // and ends
}

static pl_status take_survey(pl_comm *c, const edit *e, pl_err *err) {
    char       *dir = pieces();
    pl_dataset *ds;
    pl_survey   v;
    (void)e;
    PL_TRY(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.lazy = true}, err));
    pl_status st = pl_survey_take(&v, ds, dir, 1, 8, c, err);
    pl_survey_fini(&v);
    pl_dataset_close(ds);
    pl_free(dir);
    return st;
}

static void shards_and_documents(void **state) {
    static const edit edits[] = {
        {"whether a shard is there is 2, not 0 to 1", PUT(1, 1, 2)},
        {"whether a shard is there is of 1 bytes, 0 are left", .grow = -1},
        {"a document's rows is 0, not 1 to", PUT(0, 8, 0), .stage = 1},
        {"a document's rows is -3, not 1 to", PUT(0, 8, -3), .stage = 1},
        {"a document's rows is 4611686018427387904, not 1 to", PUT(0, 8, (int64_t)1 << 62), .stage = 1},
        {"shard 1 lacks ", PUT(0, 8, 39), .stage = 1},
        {"a document's answered rows is -1, not 0 to", PUT(8, 8, -1), .stage = 1},
        {"a document's last token is 1000000, not -1 to", PUT(16, 4, 1000000), .stage = 1},
        {"back to a conversation's first is 500000, not 0 to", PUT(24, 4, 500000), .stage = 1},
        {"back to a conversation's first is -1, not 0 to", PUT(24, 4, -1), .stage = 1},
        {"why a document ended is 9, not 0 to 3", PUT(28, 4, 9), .stage = 1},
        {"whether a document is held out is 7, not 0 to 1", PUT(36, 4, 7), .stage = 1},
        {"is of 8 bytes, 0 are left", .grow = -SAID, .stage = 1},
        {"is of 4 bytes, 3 are left", .grow = -1, .stage = 1},
        {"40 bytes follow its end", .grow = SAID, .stage = 1}};
    static const char lines[] = "data.rows_per_shard=300\n";
    char              all[2048];
    pl_err            err;
    (void)state;
    snprintf(all, sizeof all, "%s%s", small_data_lines, lines);
    assert_int_equal(small_ranks(1, "pieces", all, make_pieces, 0, &err), PL_OK);
    assert_int_equal(meet(1, send_survey, take_survey, &(edit){0}, &err), PL_OK);
    EACH(edits, 1, send_survey, take_survey);
}

// ---- online data: how long the documents are that rank 1 has answered

static pl_status send_lengths(pl_comm *c, const edit *e, pl_err *err) {
    int64_t   n = 20;
    pl_strbuf b = {0};
    uint8_t  *all;
    size_t    bytes[2];
    pl_strbuf_add(&b, (const char *)&n, sizeof n);
    change(&b, e);
    pl_status st = pl_comm_gather(c, b.s, b.n, 2 * sizeof n, &all, bytes, err);
    pl_free(b.s);
    return st;
}

static pl_status take_lengths(pl_comm *c, const edit *e, pl_err *err) {
    pl_recipe         *r = small_recipe(small_data_lines);
    pl_env             env = small_env(NULL);
    pl_llama           target;
    pl_feature_source *train, *held;
    int64_t            n;
    (void)e;
    env.comm = c;
    PL_TRY(pl_llama_open(&target, pl_generate_recipe_of(r)->target.path, PL_F32, env.backend, err));
    PL_TRY(pl_online_sources(&train, &held, r, &env, &target, (const int[]){1}, 1, err));
    pl_status st = train->rows(train, 0, &n, err);
    if (held) held->destroy(held);
    train->destroy(train);
    pl_llama_fini(&target);
    pl_recipe_close(r);
    return st;
}

static void lengths_of_documents(void **state) {
    static const edit edits[] = {{"a length is of 8 bytes, 0 are left", .grow = -8},
                                 {"a length is of 8 bytes, 7 are left", .grow = -1},
                                 {"8 bytes follow its end", .grow = 8},
                                 {"a length is 0, not 1 to", PUT(0, 8, 0)},
                                 {"a length is -1, not 1 to", PUT(0, 8, -1)},
                                 {"a length is 4294967296, not 1 to", PUT(0, 8, (int64_t)1 << 32)}};
    pl_err            err;
    (void)state;
    assert_int_equal(meet(1, send_lengths, take_lengths, &(edit){0}, &err), PL_OK);
    EACH(edits, 1, send_lengths, take_lengths);
}

// ---- a document on its way

enum { ROWS = 3, WIDTH = 2, VOCAB = 50, PARCEL = ROWS * (4 + 1 + 4 + 2 * WIDTH) };

typedef struct courier {
    pl_columns doc;
} courier;

static int64_t rows_of(void *arg, int64_t at) {
    (void)arg, (void)at;
    return ROWS;
}

static int sender_of(void *arg, int64_t at, int to) {
    (void)arg, (void)at;
    return to == 0 ? 1 : -1;
}

static pl_status take_doc(void *arg, int64_t at, pl_columns *room, pl_err *err) {
    courier *k = arg;
    (void)at;
    PL_TRY(pl_columns_reserve(&k->doc, &(pl_columns_shape){.d = WIDTH}, ROWS, err));
    *room = k->doc;
    return PL_OK;
}

static pl_status send_document(pl_comm *c, const edit *e, pl_err *err) {
    pl_strbuf b = {0};
    change(&b, &(edit){.grow = PARCEL});
    change(&b, e);
    pl_status st = pl_comm_exchange(c, &(pl_comm_parcels){.out = {b.s}, .out_bytes = {b.n}}, err);
    pl_free(b.s);
    return st;
}

static pl_status take_document(pl_comm *c, const edit *e, pl_err *err) {
    courier      k = {0};
    pl_doc_carry carry = {.comm = c,
                          .shape = {.d = WIDTH},
                          .vocab = VOCAB,
                          .arg = &k,
                          .rows = rows_of,
                          .sender = sender_of,
                          .take = take_doc};
    (void)e;
    pl_status st = pl_doc_carry_out(&carry, (const pl_doc_span[]){{4, 5}, {0, 0}}, err);
    pl_columns_free(&k.doc);
    return st;
}

static void documents_on_their_way(void **state) {
    static const edit edits[] = {{"document 4: a token is out of range", PUT(4, 4, VOCAB)},
                                 {"document 4: a token is out of range", PUT(8, 4, -1)},
                                 {"document 4: a loss mask is out of range", PUT(ROWS * 4, 1, 2)},
                                 {"document 4: an argmax is out of range", PUT(ROWS * 5, 4, INT32_MIN)}};
    pl_err            err;
    (void)state;
    assert_int_equal(meet(1, send_document, take_document, &(edit){0}, &err), PL_OK);
    EACH(edits, 1, send_document, take_document);
}

// ---- a target over ranks: what rank 0 has the others run

static char *target_path(void) {
    return pl_path_join(small_base, "target/checkpoints/last");
}

enum { SLOTS = 20, SESSIONS = 2, PATH = 4, RUN_ROWS = 3 };

static pl_status give(pl_comm *c, const pl_strbuf *order, const void *data, size_t n, pl_err *err) {
    PL_TRY(pl_comm_broadcast(c, order->s, sizeof(pl_tp_order), err));
    return pl_comm_broadcast(c, (void *)(uintptr_t)data, n, err);
}

static void put_order(pl_strbuf *b, pl_tp_order o) {
    b->n = 0;
    pl_strbuf_add(b, (const char *)&o, sizeof o);
}

enum { FIRST, OPENED, CACHES, RUN };

// Right orders up to the one that the edit is of: the first, one behind the target's, the caches', a run's data.
static pl_status send_all_orders(pl_comm *c, const edit *e, const char *path, pl_strbuf *b, pl_strbuf *data,
                                 pl_err *err) {
    static const int32_t run[] = {PL_TP_MOVE, 0, 1, 2, 5, 7, PL_TP_ROW, 3, 6, 1, 4, 2, 6, 1, 1, 5, 6};
    char                 print[17];
    put_order(b, (pl_tp_order){.what = PL_TP_OPEN, .id = 1, .n = PL_F32});
    if (e->stage == FIRST) change(b, e);
    PL_TRY(give(c, b, NULL, 0, err));
    PL_TRY(pl_llama_fingerprint(print, path, err));
    PL_TRY(pl_comm_broadcast(c, print, sizeof print, err));
    PL_TRY(pl_comm_barrier(c, err));
    pl_tp_sizes sizes = {
        .sessions = SESSIONS, .slots = SLOTS, .rows = RUN_ROWS, .logits = 1, .path = PATH, .kv = PL_F32};
    put_order(b, (pl_tp_order){.what = PL_TP_CACHES, .id = 2, .n = 1, .sizes = sizes});
    if (e->stage == OPENED) change(b, e);
    PL_TRY(give(c, b, NULL, 0, err));
    pl_strbuf_add(data, (const char *)run, sizeof run);
    if (e->stage == RUN) change(data, e);
    put_order(b, (pl_tp_order){.what = PL_TP_RUN, .id = 2, .bytes = (int64_t)data->n});
    if (e->stage == CACHES) change(b, e);
    return give(c, b, data->s, data->n, err);
}

static pl_status send_orders(pl_comm *c, const edit *e, pl_err *err) {
    pl_strbuf b = {0}, data = {0};
    char     *path = target_path();
    pl_status st = send_all_orders(c, e, path, &b, &data, err);
    pl_free(path);
    pl_free(b.s);
    pl_free(data.s);
    return st;
}

static pl_status follow(pl_comm *c, const edit *e, pl_err *err) {
    char *path = target_path();
    (void)e;
    pl_status st = pl_tp_follow(c, pl_backend_cpu(), NULL, path, err);
    pl_free(path);
    return st;
}

#define AT(member) offsetof(pl_tp_order, member)
#define SIZE(member) (offsetof(pl_tp_order, sizes) + offsetof(pl_tp_sizes, member))

static void orders(void **state) {
    static const edit edits[] = {
        {"its kind is 77, not 0 to 6", PUT(AT(what), 4, 77)},
        {"its kind is -1, not 0 to 6", PUT(AT(what), 4, -1)},
        {"its number is -2, not 0 to", PUT(AT(id), 4, -2)},
        {"to open target 1 in type 7", PUT(AT(n), 4, PL_BOOL)},
        {"its bytes is -1, not 0 to", PUT(AT(bytes), 8, -1)},
        {"1099511627776 bytes, not 0 to 0", PUT(AT(bytes), 8, (int64_t)1 << 40)},
        {"caches 1 are not there", PUT(AT(what), 4, PL_TP_RUN)},
        {"caches 1 are not there", PUT(AT(what), 4, PL_TP_DROP)},
        {"to close target 1", PUT(AT(what), 4, PL_TP_CLOSE)},
        {"caches 1 of target 0", PUT(AT(what), 4, PL_TP_CACHES)},
        {"to open target 1 in type 1", PUT(AT(what), 8, PL_TP_OPEN | (int64_t)1 << 32), .stage = OPENED},
        {"caches 2 of target 9", PUT(AT(n), 4, 9), .stage = OPENED},
        {"sessions is -1, not 0 to 1024", PUT(SIZE(sessions), 4, -1), .stage = OPENED},
        {"sessions is 1000000, not 0 to 1024", PUT(SIZE(sessions), 4, 1000000), .stage = OPENED},
        {"caches of 2 sessions, 2147483647 slots", PUT(SIZE(slots), 4, INT32_MAX), .stage = OPENED},
        {"caches of 2 sessions, 0 slots", PUT(SIZE(slots), 4, 0), .stage = OPENED},
        {"rows of a forward is 2147483647, not 0 to", PUT(SIZE(rows), 4, INT32_MAX), .stage = OPENED},
        {"rows with logits is 4, not 0 to 3", PUT(SIZE(logits), 4, 4), .stage = OPENED},
        {"slots of a path is 1048576, not 0 to 128", PUT(SIZE(path), 4, 1 << 20), .stage = OPENED},
        {"nodes of a tree is 257, not 0 to 256", PUT(SIZE(nodes), 4, 257), .stage = OPENED},
        {"whether states are saved is 2, not 0 to 1", PUT(SIZE(saved), 4, 2), .stage = OPENED},
        {"caches of type 6", PUT(SIZE(kv), 4, PL_U8), .stage = OPENED},
        {"caches 3 are not there", PUT(AT(id), 4, 3), .stage = CACHES},
        {"3 bytes, not 0 to ", PUT(AT(bytes), 8, 3), .stage = CACHES},
        {"4096 bytes, not 0 to ", PUT(AT(bytes), 8, 4096), .stage = CACHES},
        {"to close target 1", PUT(AT(what), 8, PL_TP_CLOSE | (int64_t)1 << 32), .stage = CACHES},
        {"0 rows, not 1 to 3", .grow = -(11 * 4), .stage = RUN}, // the move alone
        {"the slots of a record is of 8 bytes, 4 are left", .grow = -4, .stage = RUN},
        {"2 bytes, not 0 to 284", .grow = -(17 * 4 - 2), .stage = RUN},
        {"a record is 5, not 0 to 2", PUT(24, 4, 5), .stage = RUN},
        {"a session is 2, not 0 to 1", PUT(4, 4, 2), .stage = RUN},
        {"a session is -1, not 0 to 1", PUT(4, 4, -1), .stage = RUN},
        {"the committed slots is -9, not 0 to 20", PUT(8, 4, -9), .stage = RUN},
        {"a record of -1 slots", PUT(12, 4, -1), .stage = RUN},
        {"the slots of a record is of 4000000 bytes", PUT(12, 4, 1000000), .stage = RUN},
        {"a slot that moves is 0, not 1 to 19", PUT(16, 4, 0), .stage = RUN},
        {"a slot that moves is 20, not 2 to 19", PUT(20, 4, SLOTS), .stage = RUN},
        {"a token is 1000000, not 0 to", PUT(28, 4, 1000000), .stage = RUN},
        {"a position is 96, not 0 to 95", PUT(32, 4, 96), .stage = RUN},
        {"a session is 2, not 0 to 1", PUT(36, 4, 2), .stage = RUN},
        {"the committed slots is 20, not 0 to 19", PUT(40, 4, SLOTS), .stage = RUN},
        {"the length of a path is 2, not 1 to 1", PUT(40, 8, 19 | (int64_t)2 << 32), .stage = RUN},
        {"a slot is 20, not 0 to 19", PUT(48, 4, SLOTS), .stage = RUN},
        {"whether a row has logits is 2, not 0 to 1", PUT(52, 4, 2), .stage = RUN},
        {"a slot of a path is -1, not 0 to 19", PUT(60, 4, -1), .stage = RUN},
        {"a slot of a path is 20, not 0 to 19", PUT(64, 4, SLOTS), .stage = RUN},
    };
    (void)state;
    EACH(edits, 0, send_orders, follow);
}

// What a follower says that it has used.
static pl_status send_use(pl_comm *c, const edit *e, pl_err *err) {
    pl_tp_order o;
    double      all[2 * PL_TP_USES] = {0};
    memcpy(&all[PL_TP_USES], &e->value, sizeof e->value);
    PL_TRY(pl_comm_broadcast(c, &o, sizeof o, err));
    return pl_comm_sum_doubles(c, all, 2 * PL_TP_USES, err);
}

static pl_status ask_use(pl_comm *c, const edit *e, pl_err *err) {
    pl_tp_use use[2];
    (void)e;
    return pl_tp_used(c, use, err);
}

static void use_of_memory(void **state) {
    pl_err err;
    (void)state;
    assert_int_equal(meet(1, send_use, ask_use, &(edit){0}, &err), PL_OK);
    assert_int_equal(meet(1, send_use, ask_use, &(edit){.value = -1}, &err), PL_E_IO); // not a number
    assert_non_null(strstr(err.msg, "the ranks sent what they have used: bytes sent is "));
}

// ---- jobs

static pl_status send_job(pl_comm *c, const edit *e, pl_err *err) {
    pl_recipe *r = small_recipe(small_data_lines);
    pl_job     j = {.what = PL_RANKS_GENERATE, .taps = {.n = 1, .layer = {1}}};
    pl_strbuf  b = {0};
    pl_status  st = pl_recipe_hash(r, 0, j.recipe, err);
    pl_recipe_close(r);
    PL_TRY(st);
    pl_hash_hex(j.out_dir, pl_hash("made", 4));
    pl_strbuf_add(&b, (const char *)&j, sizeof j);
    change(&b, e);
    st = pl_comm_broadcast(c, b.s, b.n, err);
    pl_free(b.s);
    return st;
}

static pl_status serve(pl_comm *c, const edit *e, pl_err *err) {
    pl_recipe   *r = small_recipe(small_data_lines);
    pl_env       env = small_env(NULL);
    pl_ranks_own own = {.works = PL_RANKS_GENERATE, .recipe = r, .out_dir = "made"};
    (void)e;
    env.comm = c;
    pl_status st = pl_ranks_serve(&env, &own, err);
    pl_recipe_close(r);
    return st;
}

#define JOB(member) offsetof(pl_job, member)

static void jobs(void **state) {
    static const edit edits[] = {{"its kind is 77, not 0 to 4", PUT(JOB(what), 4, 77)},
                                 {"its kind is 3", PUT(JOB(what), 4, 3)},
                                 {"the number of layers to store is 1000000, not 0 to 8", PUT(JOB(taps.n), 4, 1000000)},
                                 {"the number of layers to store is -1, not 0 to 8", PUT(JOB(taps.n), 4, -1)},
                                 {"a layer to store is -7, not 0 to", PUT(JOB(taps.layer), 4, -7)},
                                 {"layer 99 to store, the target has 3", PUT(JOB(taps.layer), 4, 99)},
                                 {"the hash of its recipe has no end", PUT(JOB(recipe) + 16, 1, 'x')},
                                 {"the hash of its recipe has a control character", PUT(JOB(recipe) + 3, 1, 27)},
                                 {"the hash of its folder has no end", PUT(JOB(out_dir) + 16, 1, 'x')}};
    static const edit others[] = {
        {"rank 0 trains, which this rank's command does not", PUT(JOB(what), 4, PL_RANKS_TRAIN)},
        {"--out: is made here and another folder on rank 0", PUT(JOB(out_dir), 1, 'x')},
        {"the recipe of rank 0 has the hash x", PUT(JOB(recipe), 1, 'x')}};
    (void)state;
    EACH(edits, 0, send_job, serve);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        pl_err err;
        assert_int_equal(meet(0, send_job, serve, &others[i], &err), PL_E_USAGE);
        if (!strstr(err.msg, others[i].says)) fail_msg("%s", err.msg);
    }
    assert_false(small_exists("made"));
}

// ---- where a run stands

enum { GUARD = 3 };

static pl_status send_standing(pl_comm *c, const edit *e, pl_err *err) {
    toy       y;
    int64_t   saved = 3, cursor[2] = {5, 0};
    double    guard[GUARD] = {0};
    pl_strbuf b[4] = {{0}};
    toy_create(&y, NULL, NULL);
    pl_strbuf_add(&b[0], y.task.identity, sizeof y.task.identity);
    pl_strbuf_add(&b[1], (const char *)&saved, sizeof saved);
    pl_strbuf_add(&b[2], (const char *)cursor, sizeof cursor);
    pl_strbuf_add(&b[3], (const char *)guard, sizeof guard);
    change(&b[e->stage], e);
    pl_status st = PL_OK;
    for (int i = 0; i < 4; i++) {
        if (st == PL_OK) st = pl_comm_broadcast(c, b[i].s, b[i].n, err);
        pl_free(b[i].s);
    }
    toy_destroy(&y);
    return st;
}

static pl_status resume(pl_comm *c, const edit *e, pl_err *err) {
    toy                y;
    char              *dir = pl_path_join(small_base, "toy");
    pl_trainer_options o = toy_options(dir);
    (void)e;
    toy_create(&y, NULL, c);
    pl_status st = pl_trainer_run(&y.task, &o, err);
    toy_destroy(&y);
    pl_free(dir);
    return st;
}

static void where_a_run_stands(void **state) {
    static const edit edits[] = {{"what it trains: it has a control character", PUT(0, 1, 7)},
                                 {"a number of it is -2, not -1 to", PUT(0, 8, -2), .stage = 1},
                                 {"a number of it is -1, not 0 to", PUT(0, 8, -1), .stage = 2},
                                 {"a number of it is 9223372036854775807, not 0 to", PUT(8, 8, INT64_MAX), .stage = 2},
                                 {"a number of steps is ", PUT(16, 8, -1), .stage = 3}};
    (void)state;
    EACH(edits, 0, send_standing, resume);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_an_evaluation), cmocka_unit_test(traces),
        cmocka_unit_test(shards_and_documents),   cmocka_unit_test(lengths_of_documents),
        cmocka_unit_test(documents_on_their_way), cmocka_unit_test(orders),
        cmocka_unit_test(use_of_memory),          cmocka_unit_test(jobs),
        cmocka_unit_test(where_a_run_stands),
    };
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}

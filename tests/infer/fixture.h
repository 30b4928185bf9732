// Small random models on disk, opened as any model is, and drafters that are told what to propose.
#ifndef PL_TEST_INFER_FIXTURE_H
#define PL_TEST_INFER_FIXTURE_H

#include "infer/decode/decode.h"
#include "infer/drafter/backbone.h"
#include "kernels/op/attention.h"

#define TEST_VOCAB 97
#define TEST_NODES 64

// Writes a random target of `layers` layers (width 48, GQA) into dir and opens it; test_target's vocabulary is
// TEST_VOCAB, an odd one.
void test_target_sized(pl_llama *m, const char *dir, int layers, int vocab, uint64_t seed, pl_dtype t);
void test_target(pl_llama *m, const char *dir, int layers, uint64_t seed, pl_dtype t);
// The same of another family ("Qwen3"), with heads that are wider together than the hidden state.
void test_target_family(pl_llama *m, const char *dir, const char *family, int layers, uint64_t seed, pl_dtype t);
// The same with so many heads, and an MLP of odd width.
void test_target_heads(pl_llama *m, const char *dir, const char *family, int heads, int kv_heads, int layers,
                       uint64_t seed, pl_dtype t);
// Writes a random prediction of acceptance (infer/head/stopping.h) beside the target in dir.
void test_foresee(const char *dir, const pl_llama *m, int max_rejection, uint64_t seed);
// Writes a random drafter for the target into dir. A routed head gets all the target's tokens in another order where o
// says none, in clusters of random sizes, some of them empty.
// The same by names: what two kinds share is the same, and what begins as nothing is as it begins.
void test_backbone_begun(const char *dir, const pl_llama *target, const pl_backbone_kind *kind,
                         const pl_backbone_options *o, uint64_t seed);
void test_backbone_write(const char *dir, const pl_llama *target, const pl_backbone_kind *kind,
                         const pl_backbone_options *o, uint64_t seed);
// Writes a random EAGLE-3 drafter for the target into dir.
void test_drafter_write(const char *dir, const pl_llama *target, const char *head, int rank, uint64_t seed);

// A drafter without a model: proposes from a script of what plain decoding emits.
typedef enum test_oracle_mode {
    TEST_ACCEPT, // the right tokens, a chain of policy.depth
    TEST_REJECT, // never a right token
    TEST_MIXED,  // a random tree around the right chain; parts of it wrong
    TEST_STOP,   // the stop token, over and over
    TEST_PLACED, // random shapes of 1 to 64 nodes, each number of nodes at every offset of the root to a group
} test_oracle_mode;

typedef struct test_oracle {
    pl_drafter       base;
    test_oracle_mode mode;
    const int32_t  **script; // [slot] full text of the session as plain decoding has it
    const int32_t   *script_n;
    int32_t          stop;
    uint64_t         seed, calls;
    bool             placed[PL_ATTN_GROUP][TEST_NODES + 1]; // TEST_PLACED: what has been drafted, by offset and nodes
} test_oracle;

// Pairs of offset and number of nodes that have not been drafted yet.
int  test_oracle_unplaced(const test_oracle *o);
void test_oracle_init(test_oracle *o, test_oracle_mode mode, const char *tree, int max_nodes, int sessions);

// Writes dir/tokenizer.json: BPE over these pieces, ids in their order, and merges "left right" in theirs, both ended by
// NULL; no specials, no normaliser.
void test_tokenizer_write(const char *dir, const char *const *pieces, const char *const *merges);

// A scratch folder under TMPDIR, removed by test_rmdir.
const char *test_mkdir(char buf[64]);
void        test_rmdir(const char *dir);

#endif

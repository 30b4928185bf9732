// --device auto: a GPU only where the target runs there, and the device on which a run began. The emulated device stands
// for a GPU.
#include "tests/checkpoints/scratch.h"

#include "checkpoints/state.h"
#include "infer/model/target.h"
#include "kernels/comm/comm.h"
#include "kernels/devices.h"
#include "tests/cuda/emulate/device_emulated.h"
#include "train/run/device.h"
#include "train/run/pipeline.h"

#include <math.h>
#include <unistd.h>

#define MIXTRAL                                                                                                        \
    "{\"architectures\":[\"MixtralForCausalLM\"],\"model_type\":\"mixtral\",\"hidden_size\":64,"                       \
    "\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"            \
    "\"vocab_size\":97,\"max_position_embeddings\":256,\"rms_norm_eps\":1e-5,\"rope_theta\":10000,"                    \
    "\"hidden_act\":\"silu\",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"tie_word_embeddings\":false,"         \
    "\"eos_token_id\":2}"
#define LLAMA                                                                                                          \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":64,"                           \
    "\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":4,"            \
    "\"vocab_size\":97,\"max_position_embeddings\":256,\"rms_norm_eps\":1e-5,\"rope_theta\":10000,"                    \
    "\"hidden_act\":\"silu\",\"tie_word_embeddings\":false,\"eos_token_id\":2}"
#define QWEN3_5                                                                                                        \
    "{\"architectures\":[\"Qwen3_5ForCausalLM\"],\"model_type\":\"qwen3_5_text\",\"hidden_size\":64,"                  \
    "\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,"            \
    "\"head_dim\":16,\"vocab_size\":97,\"max_position_embeddings\":256,\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\"," \
    "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":16,"                              \
    "\"linear_value_head_dim\":16,\"tie_word_embeddings\":false,\"eos_token_id\":2}"
// Both matrices of 97 rows; of each layer four of 64 x 64 and three of 64 x 96, and two norms; the last norm.
enum { VALUES = 2 * 97 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 96 + 2 * 64) + 64 };

static const char *model(const char *name, const char *config) {
    const char *dir = at(name);
    char        path[600];
    assert_int_equal(pl_dir_make(dir, NULL), PL_OK);
    snprintf(path, sizeof path, "%s/config.json", dir);
    put_text(path, config);
    return dir;
}

static void fits(void **state) {
    (void)state;
    const pl_backend *gpu = pl_backend_emulated();
    const double      need = 1.25 * 2 * VALUES;
    const char       *dir = model("llama", LLAMA);
    pl_err            err = {0};
    assert_int_equal(pl_target_fits(dir, PL_BF16, 1, gpu, need, &err), PL_OK);
    assert_int_equal(pl_target_fits(dir, PL_BF16, 1, gpu, need - 1, &err), PL_E_MEMORY);
    assert_non_null(strstr(err.msg, "llama takes about 201.1 KiB, and emulated has 201.1 KiB free"));
    assert_int_equal(pl_target_fits(dir, PL_BF16, 2, gpu, need / 2, &err), PL_OK);
    assert_int_equal(pl_target_fits(dir, PL_F32, 1, gpu, need, &err), PL_E_MEMORY);
    dir = model("mixtral", MIXTRAL);
    assert_int_equal(pl_target_fits(dir, PL_BF16, 1, gpu, INFINITY, &err), PL_E_UNSUPPORTED);
    assert_string_equal(err.msg, "MixtralForCausalLM has experts, which emulated does not compute; take the CPU");
    assert_int_equal(pl_target_fits(dir, PL_BF16, 1, pl_backend_cpu(), INFINITY, &err), PL_OK);
    assert_int_equal(pl_target_fits(model("qwen3_5", QWEN3_5), PL_BF16, 1, gpu, INFINITY, &err), PL_OK);
    assert_true(isinf(pl_device_room(pl_backend_cpu())) && isinf(pl_device_room(gpu)));
}

// ---- what a run began on ----

static void put_state(const char *dir, const char *arithmetic) {
    char          name[PL_ARITHMETIC_ROOM] = "", path[600];
    pl_err        err = {0};
    pl_state_item item = {.name = "arithmetic", .dtype = PL_U8, .count = sizeof name, .data = name};
    snprintf(name, sizeof name, "%s", arithmetic);
    snprintf(path, sizeof path, "%s/checkpoints/last", dir);
    assert_int_equal(pl_dir_make(path, &err), PL_OK);
    snprintf(path, sizeof path, "%s/checkpoints/last/training_state", dir);
    assert_int_equal(pl_state_write(path, &item, 1, &err), PL_OK);
}

static void put_dataset(const char *dir, const char *arithmetic) {
    char path[600], text[200];
    snprintf(path, sizeof path, "%s/dataset", dir);
    assert_int_equal(pl_dir_make(path, NULL), PL_OK);
    snprintf(path, sizeof path, "%s/dataset/manifest.json", dir);
    snprintf(text, sizeof text, "{\"attributes\": {\"generation\": \"{\\\"arithmetic\\\": \\\"%s\\\"}\"}}", arithmetic);
    put_text(path, text);
}

static void began_as(const char *want, const pl_recipe *r, const char *dir, bool trains, bool generates) {
    char got[PL_ARITHMETIC_ROOM];
    pl_device_began(got, r, dir, trains, generates);
    assert_string_equal(got, want);
}

static void began(void **state) {
    (void)state;
    pl_recipe           *r;
    pl_err               err = {0};
    int                  n;
    const pl_key *const *tables = pl_stage_tables(&n);
    const char          *dir = at("run");
    put_text(at("r.yaml"), "kind: drafter\ndrafters:\n  - {name: first}\n  - {name: second}\n");
    assert_int_equal(pl_recipe_open(&r, at("r.yaml"), tables, n, NULL, 0, &err), PL_OK);
    began_as("", r, dir, true, true);
    put_dataset(dir, "cuda-3");
    began_as("cuda-3", r, dir, true, true);
    began_as("cuda-3", r, dir, false, true);
    began_as("", r, dir, true, false); // training may go elsewhere than the dataset was made
    put_state(at("run/drafters/second"), "cuda-emulated-3");
    began_as("cuda-emulated-3", r, dir, true, true); // a state stands behind a whole dataset
    began_as("cuda-3", r, dir, false, true);
    put_state(at("run/drafters/first"), "avx2-1");
    began_as("avx2-1", r, dir, true, false);
    put_text(at("run/drafters/first/checkpoints/last/training_state"), "no state");
    began_as("cuda-emulated-3", r, dir, true, false);
    began_as("", r, dir, false, false);
    pl_recipe_close(r);
}

static void chosen(void **state) {
    (void)state;
    static const struct {
        const char *name, *began;
        bool        needed;
        const char *opens, *why;
    } cases[] = {{"auto", "", false, NULL, ""},
                 {"cpu", "cuda-emulated-3", true, NULL, ""},
                 {"emulated", "", true, "emulated", ""},
                 {"auto", "cuda-emulated-3", true, "emulated", "the run in --out began there"},
                 {"auto", "avx2-1", true, NULL, "the run in --out began there"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_device_wish    w = {.name = cases[i].name, .needed = cases[i].needed};
        const pl_backend *be;
        pl_err            why, err = {0};
        snprintf(w.began, sizeof w.began, "%s", cases[i].began);
        assert_int_equal(pl_device_choose(&be, &why, &w, &err), PL_OK);
        assert_string_equal(be->name, cases[i].opens ? cases[i].opens : pl_backend_cpu()->name);
        assert_string_equal(why.msg, cases[i].why);
    }
    assert_string_equal(pl_device_of("cuda-3"), "cuda");
    assert_string_equal(pl_device_of("cuda-emulated-3"), "emulated");
    assert_string_equal(pl_device_of("avx512-2"), "cpu");
}

// Chooses as one of two ranks; returns true if it opens the device of that name, NULL: the CPU.
static bool opens(pl_comm *c, const char *name, const char *began, const char *device) {
    pl_device_wish    w = {.name = name, .needed = true, .comm = c};
    const pl_backend *be;
    pl_err            why, err = {0};
    snprintf(w.began, sizeof w.began, "%s", began);
    if (pl_device_choose(&be, &why, &w, &err) == PL_OK && pl_comm_barrier(c, &err) == PL_OK)
        return strcmp(be->name, device ? device : pl_backend_cpu()->name) == 0;
    fprintf(stderr, "rank %d: %s\n", pl_comm_rank(c), err.msg);
    return false;
}

// Ranks have folders of their own, of which rank 0's alone holds the state, and may be started unlike.
static void ranks_agree(void **state) {
    (void)state;
    static const struct {
        const char *name[2], *began[2], *opens[2];
    } cases[] = {{{"auto", "auto"}, {"cuda-emulated-3", ""}, {"emulated", "emulated"}},
                 {{"auto", "auto"}, {"avx2-1", ""}, {NULL, NULL}},
                 {{"auto", "auto"}, {"", "cuda-emulated-3"}, {NULL, NULL}},
                 {{"auto", "auto"}, {"avx2-1", "cuda-emulated-3"}, {NULL, NULL}},
                 {{"auto", "emulated"}, {"", ""}, {NULL, "emulated"}},
                 {{"cpu", "auto"}, {"avx2-1", ""}, {NULL, NULL}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_comm *c = NULL;
        pl_err   err = {0};
        alarm(60);
        fflush(NULL);
        assert_int_equal(pl_comm_fork(&c, 2, &err), PL_OK);
        int    rank = pl_comm_rank(c);
        double good = opens(c, cases[i].name[rank], cases[i].began[rank], cases[i].opens[rank]);
        if (pl_comm_sum_doubles(c, &good, 1, &err) != PL_OK) good = 0;
        pl_comm_close(c);
        if (rank > 0) _exit(0);
        if (good != 2) fail_msg("case %zu: %g of 2 ranks open their device", i, good);
    }
    alarm(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fits), cmocka_unit_test(began), cmocka_unit_test(chosen),
                                       cmocka_unit_test(ranks_agree)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

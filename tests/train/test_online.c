// data.mode: online: the target that answers is the one whose matrices the drafter learns with, loaded once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "tests/device.h"
#include "tests/train/small.h"
#include "train/source/teacher.h"
#include "train/task/traces.h"
#include <stdio.h>

static int loads; // of a whole target

pl_status __real_pl_llama_open_over(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_comm *comm,
                                    pl_err *err);
pl_status __wrap_pl_llama_open_over(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_comm *comm,
                                    pl_err *err);

pl_status __wrap_pl_llama_open_over(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_comm *comm,
                                    pl_err *err) {
    loads++;
    return __real_pl_llama_open_over(m, path, t, be, comm, err);
}

#define FEW "train.steps=2\ntrain.warmup=1\ntrain.eval_every=1\ntrain.slots=1\ntrain.slot_rows=60\n"

static int train(const char *out, const char *extra) {
    pl_err err = {0};
    char   lines[1024];
    snprintf(lines, sizeof lines, FEW "%s", extra);
    loads = 0;
    if (small_run(out, lines, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    return loads;
}

static int trace(const char *to, const char *extra) {
    pl_err err = {0};
    char   lines[4096];
    snprintf(lines, sizeof lines,
             "%straces.rows=200\ntraces.tree=chain:2\ntraces.top=4\n"
             "drafter.start=BASE/stored/checkpoints/last\n%s",
             small_data_lines, extra);
    pl_recipe *r = small_recipe(lines);
    char      *dir = pl_path_join(small_base, to);
    pl_env     env = small_env(NULL);
    loads = 0;
    if (pl_traces_capture(r, small_base, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_recipe_close(r);
    pl_free(dir);
    return loads;
}

// Training documents, held-out ones, the teacher and who answers at evaluations are one target; stored data need none
// of its layers but for the last.
static void loaded_once(void **state) {
    (void)state;
    assert_int_equal(train("stored", "train.eval_prompts=0"), 0);
    assert_int_equal(train("stored-decoded", ""), 1);
    assert_int_equal(train("online", "data.mode=online"), 1);
    assert_int_equal(train("online1", "data.mode=online\ndrafter.kind=eagle1\ntrain.unroll=1"), 1);
    assert_int_equal(trace("stored-traces", ""), 0);
    assert_int_equal(trace("online-traces", "data.mode=online"), 1);
}

static void loaded_once_on_a_device(void **state) {
    (void)state;
    small_backend = test_device();
    assert_int_equal(train("online-device", "data.mode=online\ntrain.steps=1\ntrain.eval_tokens=40\n"
                                            "data.max_new_tokens=8\ntrain.unroll=2"),
                     1);
    small_backend = NULL;
}

// No matrix is held twice that need not be: a tied target's are its embedding.
static void one_embedding(void **state) {
    (void)state;
    char      *path = pl_path_join(small_base, "target/checkpoints/last");
    pl_err     err = {0};
    pl_teacher whole, apart;
    assert_int_equal(pl_teacher_open(&whole, path, PL_F32, pl_backend_cpu(), true, NULL, &err), PL_OK);
    assert_int_equal(pl_teacher_open(&apart, path, PL_F32, pl_backend_cpu(), false, NULL, &err), PL_OK);
    assert_ptr_equal(whole.model.embed.data, whole.whole.embed.data);
    assert_ptr_equal(whole.head.data, whole.whole.embed.data);
    assert_true(!whole.block[0] && !whole.block[1] && apart.block[0] && !apart.whole.be);
    size_t bytes = (size_t)pl_tensor_count(&apart.head) * sizeof(float);
    assert_int_equal(pl_tensor_count(&whole.head), pl_tensor_count(&apart.head));
    assert_memory_equal(whole.head.data, apart.head.data, bytes);
    assert_memory_equal(whole.model.embed.data, apart.model.embed.data, bytes);
    assert_string_equal(whole.model.fingerprint, apart.model.fingerprint);
    pl_teacher_close(&whole), pl_teacher_close(&apart);

    // On a device the host still reads the file's.
    const pl_backend *be = test_device();
    assert_int_equal(pl_teacher_open(&whole, path, PL_F32, be, true, NULL, &err), PL_OK);
    assert_int_equal(pl_teacher_open(&apart, path, PL_F32, be, false, NULL, &err), PL_OK);
    assert_ptr_equal(whole.model.embed.data, whole.whole.embed.data);
    assert_true(!whole.there[0] && apart.there[0]);
    assert_memory_equal(whole.host_embed.data, apart.host_embed.data, bytes);
    pl_teacher_close(&whole), pl_teacher_close(&apart);
    pl_free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(loaded_once), cmocka_unit_test(loaded_once_on_a_device),
                                       cmocka_unit_test(one_embedding)};
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}

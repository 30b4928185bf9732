// The device that tests of the pipeline run on: the emulated one, or the one that PACELINE_TEST_DEVICE names. Include
// cmocka.h first.
#ifndef PL_TEST_DEVICE_H
#define PL_TEST_DEVICE_H

#include "kernels/devices.h"
#include <stdlib.h>

// The GPU that PACELINE_TEST_GPU names (a number), its memory within the host's sight, for tests that look into
// tensors; NULL where it is not set.
static inline const pl_backend *test_gpu(void) {
    const char *which = getenv("PACELINE_TEST_GPU");
    pl_err      err = {0};
    if (!which || !*which) return NULL;
    pl_backend_cuda_pin(true);
    const pl_backend *be = pl_backend_cuda(atoi(which), &err);
    if (!be) fail_msg("PACELINE_TEST_GPU=%s: %s", which, err.msg);
    return be;
}

static inline const pl_backend *test_device(void) {
    const char       *name = getenv("PACELINE_TEST_DEVICE");
    const pl_backend *be;
    pl_err            err = {0};
    if (pl_device_open(&be, name ? name : "emulated", &err) != PL_OK) fail_msg("%s", err.msg);
    assert_non_null(be->memory);
    return be;
}

// PACELINE_TEST_ONLY, a pattern with * and ?: only the cases that it names. For main, before cmocka's run.
static inline void test_only(void) {
    const char *which = getenv("PACELINE_TEST_ONLY");
    if (which && *which) cmocka_set_test_filter(which);
}

#endif

// manifest.json of a dataset of features, and of one of traces, whose shard is whole.
#include "kernels/base/files.h"
#include "tests/fuzz/dataset_seed.h"

static void seeds(void) {
    seed_dataset(pl_fuzz_path("seed"));
    pl_fuzz_seed_file(pl_fuzz_path("seed/manifest.json"));
    pl_err err;
    pl_fuzz_must(pl_tree_remove(pl_fuzz_path("seed"), &err), &err);
    seed_traces(pl_fuzz_path("seed"));
    pl_fuzz_seed_file(pl_fuzz_path("seed/manifest.json"));
    pl_fuzz_must(pl_tree_remove(pl_fuzz_path("seed"), &err), &err);
}

static const char *const words[] = {"\"shards\": [",    "\"rows\": ",           "\"docs\": ",
                                    "\"bytes\": ",      "shard-00001.h5",       "\"tap_layer_ids\": [",
                                    "0000000000000000", "\"complete\": false",  "281474976710657",
                                    "\"top\": ",        "\"kind\": \"traces\"", NULL};

const pl_fuzz_target pl_fuzz = {.name = "manifest", .seeds = seeds, .words = words, .runs = 1500, .max_len = 1 << 13};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static bool                   there;
    static const pl_dataset_attrs traces = {.top = -1, .A = -1};
    if (!there) seed_dataset(pl_fuzz_path("set"));
    if (!there) seed_traces(pl_fuzz_path("traces"));
    there = true;
    pl_fuzz_file("set/manifest.json", data, n);
    pl_fuzz_file("traces/manifest.json", data, n);
    for (int lazy = 0; lazy < 2; lazy++) {
        const pl_dataset_open_options o = {.lazy = lazy, .incomplete = lazy};
        pl_err                        err;
        pl_dataset                   *ds = NULL;
        if (!pl_fuzz_result(pl_dataset_open(&ds, pl_fuzz_path("set"), &o, &err), &err, &ds)) continue;
        read_dataset(ds);
        pl_dataset_close(ds);
    }
    const pl_dataset_open_options o = {.want = &traces};
    pl_err                        err;
    pl_dataset                   *ds = NULL;
    if (!pl_fuzz_result(pl_dataset_open(&ds, pl_fuzz_path("traces"), &o, &err), &err, &ds)) return 0;
    read_traces(ds);
    pl_dataset_close(ds);
    return 0;
}

// A shard beside the manifest of another one: HDF5 never sees a byte that the manifest's checksum does not vouch for.
// (The linker sends pl_h5_open here.)
#include "data/dataset/h5.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "tests/fuzz/dataset_seed.h"

static bool opened;

pl_status __real_pl_h5_open(pl_h5_shard *s, const char *path, pl_dataset_own_attrs *o, pl_err *err);
pl_status __wrap_pl_h5_open(pl_h5_shard *s, const char *path, pl_dataset_own_attrs *o, pl_err *err);

pl_status __wrap_pl_h5_open(pl_h5_shard *s, const char *path, pl_dataset_own_attrs *o, pl_err *err) {
    opened = true;
    return __real_pl_h5_open(s, path, o, err);
}

static void seeds(void) {
    seed_dataset(pl_fuzz_path("seed"));
    pl_fuzz_seed_file(pl_fuzz_path("seed/shard-00000.h5"));
    pl_fuzz_seed_text("");
    pl_fuzz_seed_text("\x89HDF\r\n\x1a\n");
}

const pl_fuzz_target pl_fuzz = {.name = "shard", .seeds = seeds, .runs = 200, .max_len = 1 << 19};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static bool     there;
    static uint64_t right;
    pl_err          err;
    if (!there) {
        uint8_t *shard;
        size_t   bytes;
        seed_dataset(pl_fuzz_path("set"));
        pl_fuzz_must(pl_file_read(pl_fuzz_path("set/shard-00000.h5"), &shard, &bytes, 1 << 20, &err), &err);
        right = pl_hash(shard, bytes);
        pl_free(shard);
        there = true;
    }
    pl_fuzz_file("set/shard-00000.h5", data, n);
    pl_dataset *ds = NULL;
    opened = false;
    bool ok = pl_fuzz_result(pl_dataset_open(&ds, pl_fuzz_path("set"), NULL, &err), &err, &ds);
    if (opened != (pl_hash(data, n) == right)) pl_fuzz_finding("HDF5 was %sasked", opened ? "" : "not ");
    if (!ok) return 0;
    read_dataset(ds);
    pl_dataset_close(ds);
    return 0;
}

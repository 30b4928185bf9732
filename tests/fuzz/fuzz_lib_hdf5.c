// A shard with any bytes whose manifest vouches for them, as a hostile producer could make one: what HDF5 itself does
// with them. Its crashes are the library's; they are listed in tests/fuzz/FINDINGS.md.
#include "data/dataset/h5.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "tests/fuzz/dataset_seed.h"

#include <stdio.h>

static herr_t copy_attribute(hid_t from, const char *name, const H5A_info_t *info, void *to) {
    char  value[1024];
    hid_t a = H5Aopen(from, name, H5P_DEFAULT), type = H5Aget_type(a), space = H5Aget_space(a);
    (void)info;
    if (H5Aread(a, type, value) < 0) pl_fuzz_finding("cannot read the attribute %s", name);
    hid_t b = H5Acreate2(*(hid_t *)to, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (b < 0 || H5Awrite(b, type, value) < 0) pl_fuzz_finding("cannot write the attribute %s", name);
    H5Aclose(a), H5Aclose(b), H5Tclose(type), H5Sclose(space);
    return 0;
}

static herr_t copy_set(hid_t from, const char *name, const H5L_info_t *info, void *to) {
    char  value[4096];
    hid_t set = H5Dopen2(from, name, H5P_DEFAULT), type = H5Dget_type(set), space = H5Dget_space(set);
    (void)info;
    hsize_t dims[2];
    int     rank = H5Sget_simple_extent_dims(space, dims, NULL);
    hid_t   fixed = H5Screate_simple(rank, dims, NULL);
    if (H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) < 0) pl_fuzz_finding("cannot read %s", name);
    hid_t made = H5Dcreate2(*(hid_t *)to, name, type, fixed, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (made < 0 || H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) < 0)
        pl_fuzz_finding("cannot write %s", name);
    H5Aiterate2(set, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attribute, &made);
    H5Dclose(set), H5Dclose(made), H5Tclose(type), H5Sclose(space), H5Sclose(fixed);
    return 0;
}

// The shard as it is, and the same without chunks: 64 KiB of zeroes a set would leave mutations little to hit.
static void seeds(void) {
    seed_dataset(pl_fuzz_path("seed"));
    const char *path = pl_fuzz_path("seed/shard-00000.h5"), *small = pl_fuzz_path("small.h5");
    hid_t       from = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t       to = H5Fcreate(small, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (from < 0 || to < 0) pl_fuzz_finding("cannot open %s and %s", path, small);
    H5Aiterate2(from, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attribute, &to);
    H5Literate(from, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_set, &to);
    H5Fclose(from), H5Fclose(to);
    pl_fuzz_seed_file(small);
    pl_fuzz_seed_file(path);
}

const pl_fuzz_target pl_fuzz = {.name = "lib_hdf5", .seeds = seeds, .runs = 0, .max_len = 1 << 19, .library = true};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static bool there;
    pl_err      err;
    char        manifest[1024], hash[17];
    if (!there) pl_fuzz_must(pl_dir_make(pl_fuzz_path("set"), &err), &err);
    there = true;
    pl_fuzz_file("set/shard-00000.h5", data, n);
    pl_hash_hex(hash, pl_hash(data, n));
    int len =
        snprintf(manifest, sizeof manifest,
                 "{\"kind\":\"features\",\"schema_version\":1,\"complete\":true,\"attributes\":{"
                 "\"target_fingerprint\":\"aaaaaaaaaaaaaaaa\",\"tokenizer_fingerprint\":\"bbbbbbbbbbbbbbbb\","
                 "\"template\":\"plain\",\"generation\":\"{}\",\"vocab_size\":%d,\"d\":%d,\"tap_layer_ids\":[1,2]},"
                 "\"rows\":%d,\"docs\":%d,\"shards\":[{\"name\":\"shard-00000.h5\",\"rows\":%d,\"docs\":%d,"
                 "\"bytes\":%zu,\"xxhash64\":\"%s\"}]}",
                 SEED_VOCAB, SEED_D, SEED_ROWS * SEED_DOCS, SEED_DOCS, SEED_ROWS * SEED_DOCS, SEED_DOCS, n, hash);
    pl_fuzz_file("set/manifest.json", manifest, (size_t)len);
    pl_dataset *ds = NULL;
    if (!pl_fuzz_result(pl_dataset_open(&ds, pl_fuzz_path("set"), NULL, &err), &err, &ds)) return 0;
    read_dataset(ds);
    pl_dataset_close(ds);
    return 0;
}

#include "infer/bench/typical_heads.h"

#include "infer/head/dynaspec.h"

#include <math.h>

bool pl_typical_specvocab(pl_hf_head *out, int64_t vocab, int64_t width, int part) {
    *out = pl_hf_head_make("specvocab", (int)(width / part));
    out->candidates = (int)(vocab / 64 < PL_HEADTOPK_MAX ? vocab / 64 : PL_HEADTOPK_MAX);
    return out->rank >= 1 && out->candidates >= 1;
}

bool pl_typical_dynaspec(pl_hf_head *out, int64_t vocab, int64_t width) {
    *out = pl_hf_head_make("dynaspec", 0);
    out->clusters = (int)(vocab / 128);
    out->width = (int)(width / 8);
    out->k0 = out->k1 = out->clusters / 4;
    out->kmin = 1;
    return out->k0 >= 1 && out->width >= 1;
}

static double weight(int64_t i, int64_t n, bool equal) {
    const uint64_t stride = 7919;
    return equal ? 1 : 1 / sqrt(1 + (double)(stride * (uint64_t)i % (uint64_t)n));
}

pl_status pl_typical_clusters(pl_head *h, bool equal, pl_err *err) {
    int64_t n = h->spec.clusters, *offset = pl_malloc((size_t)(n + 1) * sizeof *offset);
    double  sum = 0, at = 0;
    if (!offset) return pl_fail(err, PL_E_MEMORY, "clusters: out of memory");
    for (int64_t i = 0; i < n; i++)
        sum += weight(i, n, equal);
    for (int64_t i = 0; i < n; i++) {
        offset[i] = (int64_t)((double)h->vocab * at / sum);
        at += weight(i, n, equal);
    }
    offset[n] = h->vocab;
    pl_routed_set_offsets(h, offset);
    return PL_OK;
}

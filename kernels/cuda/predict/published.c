#include "kernels/cuda/predict/published.h"
#include "kernels/cuda/predict/predict.h"

typedef struct part {
    double  launches;
    int64_t blocks;
    double  bytes, wgmma, mma, exponentials; // of one launch
    int     near, barriers, shuffles;        // in a row, after memory's bytes have come
    bool    early;
    double  link; // bytes over NVLink, each way
} part;

typedef struct row {
    const char *name, *source;
    double      seconds, read; // read: bytes/s of reads on that GPU, 0: constants.def's
    part        parts[6];
} row;

#define TC "github.com/waynehacking8/blackwell-tensorcore-kernels, results/"
#define VP "github.com/SamMausberg/verified-progress, evidence/backbone (132 multiprocessors, reads of 3.78 TB/s)"
#define H100_READ (0.945 * 3.35e12) // as of the H200's: constants.def, READ
#define CUBE(n) ((double)(n) * (n) * (n))
#define ATTENTION (4.0 * 8192 * 8192 * 128 * 32) // flops of 32 heads of 128 over 8192 rows
#define GEMM(n, tiles)                                                                                                 \
    {                                                                                                                  \
        { 1, tiles, 6.0 * (n) * (n), 2 * CUBE(n), 0, 0, 0, 0, 0, false, 0 }                                            \
    }
#define STREAMED(n, mb)                                                                                                \
    { n, 264, (mb)*1e6, 0, 0, 0, 1, 2, 5, false, 0 }
#define SMALL(n)                                                                                                       \
    { n, 1, 0, 0, 0, 0, 2, 2, 10, false, 0 }

static const row rows[] = {
    {"FlashAttention-3 forward, heads of 128, 8192 rows, 757 TFLOP/s (H100)",
     TC "reference/fa3.txt",
     1.453e-3,
     H100_READ,
     {{1, 2048, 0, ATTENTION, 0, ATTENTION / 512, 2, 2, 10, false, 0}}},
    {"FlashAttention-2 forward (mma.sync), the same, 388 TFLOP/s (H100)",
     TC "reference/fa3.txt",
     2.831e-3,
     H100_READ,
     {{1, 2048, 0, 0, ATTENTION, ATTENTION / 512, 2, 2, 10, false, 0}}},
    {"cuBLAS fp16, 2048 cubed, 541 TFLOP/s (H100)", TC "bench_sm90a.csv", 0.032e-3, H100_READ, GEMM(2048, 128)},
    {"cuBLAS fp16, 4096 cubed, 726 TFLOP/s (H100)", TC "bench_sm90a.csv", 0.189e-3, H100_READ, GEMM(4096, 512)},
    {"cuBLAS fp16, 8192 cubed, 750 TFLOP/s (H100)", TC "bench_sm90a.csv", 1.466e-3, H100_READ, GEMM(8192, 2048)},
    {"cuBLAS, one row by 18432 x 2560 in bf16", VP, 28.49e-6, 3.78e12, {STREAMED(1, 94.4)}},
    {"cuBLAS, one row by 10240 x 2560 in bf16", VP, 17.34e-6, 3.78e12, {STREAMED(1, 52.4)}},
    {"cuBLAS, one row by 2560 x 4096 in bf16, two launches", VP, 11.20e-6, 3.78e12, {STREAMED(1, 21.0), SMALL(1)}},
    {"FlashInfer's added RMSNorm, one row of 2560", VP, 2.19e-6, 0, {SMALL(1)}},
    {"the same, started early", VP, 1.67e-6, 0, {{1, 1, 0, 0, 0, 0, 2, 2, 10, true, 0}}},
    {"FlashMLA, decoding, 3000 GB/s (H800), a GB",
     "github.com/deepseek-ai/FlashMLA, README",
     333e-6,
     H100_READ,
     {STREAMED(1, 1000)}},
    {"NCCL all-reduce of 4 GiB on 8 H200, 475 GB/s of bus",
     "github.com/NVIDIA/nccl-tests/issues/272",
     15.82e-3,
     0,
     {{1, 132, 0, 0, 0, 0, 0, 0, 0, false, 2 * 7.0 / 8 * 4294967296.0}}},
    {"SGLang, Llama-3.1-8B in bf16, one token, 190 tokens/s (H200)",
     "github.com/sgl-project/SpecForge, docs/spec_bundle/public/raw_data/data.json",
     1 / 190.0,
     0,
     {STREAMED(32, 50.3), STREAMED(32, 33.6), STREAMED(32, 234.9), STREAMED(32, 117.4), STREAMED(1, 1050.7),
      SMALL(262)}},
    {"SGLang, the same on an H100, 158.34 tokens/s",
     "docs.sglang.io, speculative decoding",
     1 / 158.34,
     H100_READ,
     {STREAMED(32, 50.3), STREAMED(32, 33.6), STREAMED(32, 234.9), STREAMED(32, 117.4), STREAMED(1, 1050.7),
      SMALL(262)}}};
const int pl_published_n = (int)(sizeof rows / sizeof *rows);

static double seconds_of(const part *p, double read, int how, const char **limiter) {
    const double clock = pl_gpu(PL_GPU_CLOCK, how);
    const double after = (p->near * pl_gpu(PL_GPU_NEAR, how) + p->barriers * pl_gpu(PL_GPU_BARRIER, how) +
                          p->shuffles * pl_gpu(PL_GPU_SHUFFLE, how)) /
                         clock;
    pl_predicted_kernel k = {.blocks = p->blocks, .threads = 256, .room = p->wgmma > 0 ? 200 << 10 : 64 << 10};
    k.c.far = p->bytes * (read > 0 ? pl_gpu(PL_GPU_READ, PL_CENTRAL) / read : 1);
    k.c.warpgroup = p->wgmma;
    k.c.products = p->mma / (2.0 * 16 * 8 * 16);
    k.c.exponentials = p->exponentials;
    k.c.trail[how] = k.c.most_path[how] = after;
    pl_predict_kernel(&k);
    *limiter = p->link > 0 ? "link" : k.limiter;
    const double gap = p->early ? pl_gpu(PL_GPU_EARLY_GAP, how) - pl_gpu(PL_GPU_GAP, how) : 0;
    return p->launches * (k.seconds[how] + gap) + p->link / pl_gpu(PL_GPU_LINK, how);
}

pl_published pl_published_at(int i) {
    const row   *r = &rows[i];
    pl_published p = {.name = r->name, .source = r->source, .seconds = r->seconds};
    double       most = 0;
    for (size_t k = 0; k < sizeof r->parts / sizeof *r->parts && r->parts[k].launches > 0; k++)
        for (int how = PL_PESSIMISTIC; how >= PL_CENTRAL; how--) {
            const char  *limiter;
            const double t = seconds_of(&r->parts[k], r->read, how, &limiter);
            p.predicted[how] += t;
            if (how == PL_CENTRAL && t > most) most = t, p.limiter = limiter;
        }
    return p;
}

double pl_published_error(const pl_published *p) {
    return p->predicted[PL_CENTRAL] / p->seconds - 1;
}

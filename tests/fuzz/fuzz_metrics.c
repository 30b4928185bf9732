// metrics.jsonl: its curves, and the report with their charts.
#include "infer/report/curves.h"
#include "infer/report/report.h"
#include "kernels/base/files.h"
#include "tests/fuzz/fuzz.h"

static void seeds(void) {
    pl_fuzz_seed_text("{\"step\":1,\"loss\":2.5,\"lr\":0.001}\n{\"step\":2,\"loss\":2.25,\"lr\":0.002}\n");
    pl_fuzz_seed_text(
        "{\"step\":0,\"stage\":\"held-out\",\"accept_0\":0.5,\"tokens\":100}\n{\"step\":10,\"stage\":\"x\"}\n{\"st");
    pl_fuzz_seed_text("\n\n{\"step\":3,\"loss\":null,\"name\":\"a\",\"loss_by_step\":[1,2]}\n");
}

static const char *const words[] = {"{\"step\":", "\"stage\":\"", "\"loss\":", "1e308", "-1e308",
                                    "1e-320",     "}\n",          "\n",        "null",  NULL};

const pl_fuzz_target pl_fuzz = {.name = "metrics", .seeds = seeds, .words = words, .runs = 2000, .max_len = 1 << 13};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static bool there;
    pl_err      err;
    pl_curves   c = {0};
    if (!there) pl_fuzz_must(pl_dir_make(pl_fuzz_path("run"), &err), &err);
    there = true;
    const char *path = pl_fuzz_file("run/metrics.jsonl", data, n), *runs[] = {pl_fuzz_path("run")};
    pl_fuzz_result(pl_curves_read(&c, "s", path, &err), &err, NULL);
    for (int i = 0; i < c.n; i++) {
        pl_fuzz_touch(c.curve[i].x, (size_t)c.curve[i].n * sizeof *c.curve[i].x);
        pl_fuzz_touch(c.curve[i].y, (size_t)c.curve[i].n * sizeof *c.curve[i].y);
    }
    pl_curves_fini(&c);
    pl_fuzz_result(pl_report_write(pl_fuzz_path("report.html"), runs, 1, &err), &err, NULL);
    return 0;
}

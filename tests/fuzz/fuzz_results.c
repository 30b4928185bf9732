// results.json as `report` and `plan` read it.
#include "infer/plan/plan.h"
#include "infer/report/report.h"
#include "tests/fuzz/fuzz.h"

static void seeds(void) {
    pl_fuzz_seed_text(
        "{\"methods\":[{\"name\":\"plain\",\"tokens_per_second\":100.5,\"speedup\":1.0,\"acceptance_length\":1,"
        "\"identical_outputs\":true,\"prompts\":3,\"weights\":\"bf16\",\"tree\":null},{\"name\":\"eagle3\","
        "\"tokens_per_second\":210,\"speedup\":2.1,\"speedup_low\":1.9,\"speedup_high\":2.3,"
        "\"acceptance_length\":2.5,\"identical_outputs\":false,\"acceptance_by_position\":[0.8,0.6,0.3],"
        "\"accepted_over_drafted\":0.4,\"floor_tokens_per_second\":400,\"share_of_floor\":0.5,"
        "\"categories\":[{\"name\":\"qa <b>\",\"prompts\":2,\"tokens_per_second\":1,\"speedup\":2,"
        "\"acceptance_length\":3}]}],\"machine\":{\"cpu\":\"x\",\"threads\":2,\"isa\":\"avx2\"},"
        "\"commit\":\"abc\",\"settings\":{\"target\":\"t\",\"prompts\":\"p\",\"n_prompts\":3,\"temperature\":0}}");
    pl_fuzz_seed_text("{\"methods\":[]}");
    pl_fuzz_seed_text(
        "{\"methods\":[{\"name\":\"plain\",\"kind\":\"plain\",\"tokens\":9,\"seconds_by_part\":{\"target\":1.5}},"
        "{\"name\":\"a\",\"kind\":\"eagle3-full\",\"checkpoint\":\"x/checkpoints/"
        "best\",\"tree\":\"chain:4\",\"tokens\":40,"
        "\"acceptance_length\":4,\"steps\":10,\"mean_draft_depth\":4,\"seconds\":2,\"tree_used\":\"chain:4\","
        "\"seconds_by_part\":{\"target\":1,\"take_in\":0.3,\"layer\":0.2,\"head\":0.4,\"draw\":0,\"other\":0.1},"
        "\"offered_by_rank\":[[10,9],[8]],\"accepted_by_rank\":[[8,1],[7]]},{\"name\":\"b\",\"kind\":\"eagle3-"
        "lowrank\","
        "\"checkpoint\":\"y\",\"tree\":\"chain:4\",\"acceptance_length\":3,\"steps\":10,\"mean_draft_depth\":4,"
        "\"acceptance_by_position\":[0.8,0.5],\"seconds_by_part\":{\"head\":0.1}}]}");
}

static const char *const words[] = {"\"methods\":[",
                                    "{\"name\":\"a\"}",
                                    "\"acceptance_by_position\":[",
                                    "1e308",
                                    "-1e308",
                                    "1e-320",
                                    "\"categories\":[",
                                    "\"speedup\":",
                                    "\"tokens_per_second\":0",
                                    "null",
                                    "<script>",
                                    "&",
                                    "[]",
                                    "{}",
                                    NULL};

const pl_fuzz_target pl_fuzz = {.name = "results", .seeds = seeds, .words = words, .runs = 2000, .max_len = 1 << 14};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err      err;
    const char *runs[] = {pl_fuzz_file("results.json", data, n)};
    pl_fuzz_result(pl_report_write(pl_fuzz_path("report.html"), runs, 1, &err), &err, NULL);
    pl_plan_methods methods = {.n = 0};
    err = (pl_err){0};
    pl_fuzz_result(pl_plan_methods_read(&methods, runs[0], 0, &err), &err, NULL);
    pl_plan_methods_fini(&methods);
    return 0;
}

// Bodies of requests to a server (infer/serve/request.h): the input's first byte chooses the endpoint.
#include "infer/serve/request.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void seeds(void) {
    pl_fuzz_seed_text("0{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"n\": 2, "
                      "\"stop\": [\"a\", \"b\"], \"seed\": 1, \"temperature\": 0.5, \"logprobs\": true, "
                      "\"top_logprobs\": 3, \"user\": \"x\", \"stream\": true, "
                      "\"stream_options\": {\"include_usage\": true}, \"logit_bias\": {\"5\": -1}}");
    pl_fuzz_seed_text("1{\"prompt\": [[1, 2], \"a\"], \"echo\": true, \"max_tokens\": 0, \"logprobs\": 2, "
                      "\"speculative\": {\"off\": false, \"max_tokens\": 3}, \"stop_token_ids\": [1, 2]}");
    pl_fuzz_seed_text("1{\"prompt\": [1, 2, 3], \"response_format\": {\"type\": \"text\"}, \"min_p\": 0.1, "
                      "\"speculative.n_max\": 2, \"presence_penalty\": 1, \"ignore_eos\": true}");
    pl_fuzz_seed_text("0{\"messages\": [{\"role\": \"tool\"}], \"tools\": [{\"type\": \"function\", \"function\": "
                      "{\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}], \"tool_choice\": {\"type\": "
                      "\"function\", \"function\": {\"name\": \"f\"}}, \"parallel_tool_calls\": false}");
    pl_fuzz_seed_text("2{\"prompt\": \"a\", \"n_predict\": -1, \"seed\": -1, \"n_probs\": 2, \"repeat_penalty\": 1.1, "
                      "\"repeat_last_n\": -1, \"logit_bias\": [[1, false], [\"a b\", 0.5]], \"samplers\": null, "
                      "\"cache_prompt\": true, \"typical_p\": 1.0}");
    pl_fuzz_seed_text("3{\"content\": \"caf\\u00e9\", \"add_special\": true, \"return_token_strs\": true}");
    pl_fuzz_seed_text("4{\"tokens\": [1, 2, 3]}");
}

static const char *const words[] = {"\"messages\": ",
                                    "\"prompt\": ",
                                    "\"stop\": ",
                                    "\"n\": ",
                                    "\"logprobs\": ",
                                    "\"logit_bias\": ",
                                    "\"seed\": ",
                                    "\"tools\": []",
                                    "\"echo\": true",
                                    "\"modalities\": [",
                                    "\"metadata\": ",
                                    "null",
                                    "[",
                                    "]",
                                    "{",
                                    "}",
                                    "-1",
                                    "1e400",
                                    "\"\\ud800\"",
                                    "\"tool_choice\": \"auto\"",
                                    NULL};

const pl_fuzz_target pl_fuzz = {.name = "request", .seeds = seeds, .words = words, .runs = 20000, .max_len = 1 << 12};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_request r;
    pl_err     err = {0};
    if (n == 0) return 0;
    pl_ask ask = (pl_ask)((uint8_t)(*data - '0') % 5);
    if (!pl_fuzz_result(pl_request_read(&r, ask, (const char *)data + 1, n - 1, &err), &err, NULL)) return 0;
    for (int i = 0; i < r.n_prompts; i++) {
        if (r.prompt[i].text) pl_fuzz_touch(r.prompt[i].text, strlen(r.prompt[i].text));
        if (r.prompt[i].ids) pl_fuzz_touch(r.prompt[i].ids, (size_t)r.prompt[i].n_ids * sizeof *r.prompt[i].ids);
    }
    for (int i = 0; i < r.n_stop; i++)
        pl_fuzz_touch(r.stop[i], strlen(r.stop[i]));
    if (r.n < 1 || r.sampling.n_bias > PL_REQUEST_BIASES) pl_fuzz_finding("a number that no field allows");
    pl_request_fini(&r);
    return 0;
}

// Answers of a chat model (infer/serve/parts.h): the first byte chooses form and reasoning, the second where the text
// is divided. Divided or not it has the same parts, and the arguments of each call are a JSON object.
#include "infer/serve/parts.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void seeds(void) {
    pl_fuzz_seed_text("\x01.Look <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"x\"]}}\n</tool_call> on");
    pl_fuzz_seed_text("\x07.<think>a</think><tool_call>{\"arguments\":\"{}\",\"name\":\"f\",\"id\":\"i\"}</tool_call>");
    pl_fuzz_seed_text(
        "\x02.{\"name\": \"f\", \"parameters\": {\"q\": \"\\u0041\"}}; {\"name\":\"g\",\"parameters\":{}}");
    pl_fuzz_seed_text("\x03.[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]");
    pl_fuzz_seed_text("\x04.[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{}");
    pl_fuzz_seed_text("\x05.<|channel|>analysis<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
                      "to=functions.f <|constrain|>json<|message|>{\"a\": 1}");
}

static const char *const words[] = {"<think>",
                                    "</think>",
                                    "<tool_call>",
                                    "</tool_call>",
                                    "<|python_tag|>",
                                    "[TOOL_CALLS]",
                                    "[ARGS]",
                                    "[CALL_ID]",
                                    "<|start|>",
                                    "<|channel|>",
                                    "<|message|>",
                                    "<|end|>",
                                    "analysis",
                                    "final",
                                    "to=functions.f ",
                                    "\"name\":",
                                    "\"arguments\":",
                                    "\"id\":",
                                    "{",
                                    "}",
                                    "[",
                                    "]",
                                    "\"",
                                    "\\",
                                    ";",
                                    " ",
                                    "\n",
                                    "\"parameters\": {}",
                                    NULL};

const pl_fuzz_target pl_fuzz = {.name = "parts", .seeds = seeds, .words = words, .runs = 20000, .max_len = 1 << 12};

static void init(pl_parts *p, uint8_t how) {
    pl_parts_init(p, (pl_call_form)(how % 6), how < 128, (pl_reasoning)(how / 6 % 3), how);
}

static void check_same(const pl_strbuf *a, const pl_strbuf *b, const char *what) {
    if (a->n != b->n || (a->n && memcmp(a->s, b->s, a->n) != 0)) pl_fuzz_finding("%s depends on the pieces", what);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_parts whole, parts;
    if (n < 2) return 0;
    const char *text = (const char *)data + 2;
    size_t      bytes = n - 2, step = data[1] % 8 + 1;
    init(&whole, *data);
    init(&parts, *data);
    pl_parts_push(&whole, text, bytes);
    for (size_t at = 0; at < bytes; at += step)
        pl_parts_push(&parts, text + at, bytes - at < step ? bytes - at : step);
    pl_parts_end(&whole);
    pl_parts_end(&parts);
    check_same(&whole.content.text, &parts.content.text, "content");
    check_same(&whole.reasoning.text, &parts.reasoning.text, "reasoning");
    if (whole.n_calls != parts.n_calls) pl_fuzz_finding("%d calls, in pieces %d", whole.n_calls, parts.n_calls);
    for (int i = 0; i < whole.n_calls; i++) {
        const pl_tool_call *a = &whole.call[i], *b = &parts.call[i];
        pl_json             j;
        if (strcmp(a->name, b->name) != 0 || strcmp(a->arguments, b->arguments) != 0 || strcmp(a->id, b->id) != 0)
            pl_fuzz_finding("call %d depends on the pieces", i);
        if (pl_json_parse(&j, "call", 0, a->arguments, strlen(a->arguments), PL_JSON_NUL, NULL) != PL_OK ||
            !cJSON_IsObject(j.root))
            pl_fuzz_finding("arguments that are no object: %s", a->arguments);
        pl_json_close(&j);
    }
    pl_parts_fini(&whole);
    pl_parts_fini(&parts);
    return 0;
}

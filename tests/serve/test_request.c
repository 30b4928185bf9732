// Bodies of requests (infer/serve/request.h): what each field sets, and a table of what is refused, with the field.
#include "infer/serve/request.h"
#include "tests/malformed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static pl_request r;

static void read_ok(pl_ask ask, const char *body) {
    pl_err    err = {0};
    pl_status st = pl_request_read(&r, ask, body, strlen(body), &err);
    if (st != PL_OK) fail_msg("%s: %s", body, err.msg);
}

static void defaults(void **state) {
    (void)state;
    read_ok(PL_ASK_CHAT,
            "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"stop\": null}");
    assert_string_equal(r.model, "m");
    assert_true(r.messages && r.add_generation_prompt && r.add_special);
    assert_false(r.stream || r.include_usage || r.echo || r.ignore_eos || r.has_seed || r.plain);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.max_tokens, -1);
    assert_int_equal(r.logprobs, -1);
    assert_true(r.sampling.temperature == 1 && r.sampling.top_p == 1 && r.sampling.top_k == 0);
    assert_string_equal(r.ignored, "");
    pl_request_fini(&r);
}

static void chat(void **state) {
    (void)state;
    read_ok(PL_ASK_CHAT,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"user\": \"u\", \"store\": false, \"n\": 3, "
            "\"max_tokens\": 7, \"max_completion_tokens\": 5, \"stop\": [\"a\", \"bc\"], \"seed\": -4, "
            "\"temperature\": 0.5, \"top_p\": 0.9, \"top_k\": -1, \"min_p\": 0.1, \"repetition_penalty\": 1.1, "
            "\"presence_penalty\": -2, \"frequency_penalty\": 0.5, \"logit_bias\": {\"17\": -100, \"3\": 1.5}, "
            "\"top_logprobs\": 4, \"logprobs\": true, \"stream\": true, \"stream_options\": {\"include_usage\": true}, "
            "\"response_format\": {\"type\": \"text\"}, \"tools\": [], \"tool_choice\": \"none\", "
            "\"stop_token_ids\": [9], \"ignore_eos\": true, \"speculative\": {\"max_tokens\": 2}}");
    assert_string_equal(r.ignored, "user, store");
    assert_int_equal(r.n, 3);
    assert_int_equal(r.max_tokens, 5); // the newer name counts
    assert_int_equal(r.n_stop, 2);
    assert_string_equal(r.stop[1], "bc");
    assert_true(r.has_seed && r.sampling.seed == (uint64_t)-4);
    assert_int_equal(r.sampling.top_k, 0);
    assert_true(r.sampling.presence_penalty == -2 && r.sampling.frequency_penalty == 0.5);
    assert_int_equal(r.sampling.n_bias, 2);
    assert_true(r.sampling.bias == r.bias && r.bias[0].id == 17 && r.bias[1].value == 1.5f);
    assert_int_equal(r.logprobs, 4);
    assert_true(r.stream && r.include_usage && r.ignore_eos);
    assert_true(r.n_stop_ids == 1 && r.stop_id[0] == 9);
    assert_true(!r.plain && r.draft_depth == 2);
    pl_request_fini(&r);
}

static void grammars(void **state) {
    (void)state;
    read_ok(PL_ASK_CHAT,
            "{\"messages\": [{}], \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", "
            "\"schema\": {\"enum\": [1, 2.5, \"\\u00e9\"]}}}}");
    assert_true(r.grammar_kind == PL_GRAMMAR_SCHEMA);
    assert_string_equal(r.grammar, "{\"enum\":[1,2.5,\"\xC3\xA9\"]}");
    pl_request_fini(&r);
    read_ok(PL_ASK_CHAT, "{\"messages\": [{}], \"response_format\": {\"type\": \"json_object\"}}");
    assert_string_equal(r.grammar, "{\"type\":\"object\"}");
    pl_request_fini(&r);
    read_ok(PL_ASK_COMPLETION, "{\"prompt\": \"a\", \"regex\": \"[0-9]+\"}");
    assert_true(r.grammar_kind == PL_GRAMMAR_REGEX);
    assert_string_equal(r.grammar, "[0-9]+");
    pl_request_fini(&r);
}

static void tools(void **state) {
    (void)state;
    read_ok(PL_ASK_CHAT,
            "{\"messages\": [{}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", "
            "\"parameters\": {\"type\": \"object\"}}}, {\"function\": {\"name\": \"g\"}}], \"tool_choice\": "
            "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}, \"parallel_tool_calls\": false}");
    assert_int_equal(r.n_tools, 2);
    assert_string_equal(pl_json_find(&r.body, r.tool[1], "name")->valuestring, "g");
    assert_true(r.tool_choice == PL_TOOLS_NAMED && !r.parallel_calls);
    assert_string_equal(r.tool_name, "g");
    pl_request_fini(&r);
    read_ok(PL_ASK_CHAT, "{\"messages\": [{}], \"tools\": [], \"tool_choice\": \"auto\"}");
    assert_true(r.n_tools == 0 && r.tool_choice == PL_TOOLS_AUTO && r.parallel_calls);
    pl_request_fini(&r);
}

static void prompts(void **state) {
    (void)state;
    read_ok(PL_ASK_COMPLETION, "{\"prompt\": \"Once\", \"logprobs\": 0, \"speculative.n_max\": 0}");
    assert_int_equal(r.n_prompts, 1);
    assert_string_equal(r.prompt[0].text, "Once");
    assert_int_equal(r.logprobs, 0);
    assert_true(r.plain);
    pl_request_fini(&r);
    read_ok(PL_ASK_COMPLETION, "{\"prompt\": [1, 2, 3], \"speculative\": {\"off\": true}}");
    assert_int_equal(r.n_prompts, 1);
    assert_true(!r.prompt[0].text && r.prompt[0].n_ids == 3 && r.prompt[0].ids[2] == 3 && r.plain);
    pl_request_fini(&r);
    read_ok(PL_ASK_COMPLETION, "{\"prompt\": [[1], \"a\", [2, 3]], \"echo\": true, \"max_tokens\": 0}");
    assert_int_equal(r.n_prompts, 3);
    assert_string_equal(r.prompt[1].text, "a");
    assert_int_equal(r.prompt[2].n_ids, 2);
    pl_request_fini(&r);
}

static void native(void **state) {
    (void)state;
    read_ok(PL_ASK_NATIVE,
            "{\"prompt\": [1, 2], \"seed\": -1, \"n_predict\": -1, \"cache_prompt\": true, \"typical_p\": 1.0}");
    assert_true(r.sampling.temperature == 0.8 && r.sampling.top_k == 40 && r.sampling.top_p == 0.95);
    assert_true(r.sampling.min_p == 0.05 && !r.has_seed && r.max_tokens == -1 && r.logprobs == -1);
    assert_string_equal(r.ignored, "cache_prompt");
    pl_request_fini(&r);
    read_ok(PL_ASK_NATIVE,
            "{\"prompt\": [\"a\", [1]], \"n_predict\": 5, \"n_probs\": 3, \"n_cmpl\": 2, \"return_tokens\": true, "
            "\"repeat_penalty\": 1.1, \"repeat_last_n\": -1, \"logit_bias\": [[5, 1.5], [\"17\", false], "
            "[\" word\", -2]], \"json_schema\": {}}");
    assert_true(r.n_prompts == 2 && r.n == 2 && r.max_tokens == 5 && r.logprobs == 3 && r.return_tokens);
    assert_true(r.sampling.n_bias == 2 && r.bias[0].id == 5 && r.bias[0].value == 1.5f && r.bias[1].id == 17);
    assert_true(r.bias[1].value == -100 && r.n_text_bias == 1 && r.text_bias[0].value == -2);
    assert_string_equal(r.text_bias[0].text, " word");
    assert_string_equal(r.grammar, "{}");
    pl_request_fini(&r);
    read_ok(PL_ASK_NATIVE, "{\"prompt\": \"a\", \"n_predict\": 0, \"logit_bias\": {\"3\": -1, \"b\": 1}}");
    assert_true(r.max_tokens == 0 && r.sampling.n_bias == 1 && r.n_text_bias == 1);
    pl_request_fini(&r);
}

static void tokens(void **state) {
    (void)state;
    read_ok(PL_ASK_TOKENIZE, "{\"prompt\": \"Once\"}");
    assert_true(r.add_special);
    pl_request_fini(&r);
    read_ok(PL_ASK_TOKENIZE, "{\"content\": \"Once\"}");
    assert_false(r.add_special);
    pl_request_fini(&r);
    read_ok(PL_ASK_DETOKENIZE, "{\"tokens\": []}");
    assert_true(r.n_prompts == 1 && r.prompt[0].n_ids == 0);
    pl_request_fini(&r);
}

static const struct {
    pl_ask      ask;
    const char *body, *param, *says;
} bad[] = {
    {PL_ASK_CHAT, "", "", "body"},
    {PL_ASK_CHAT, "[]", "", "expected an object"},
    {PL_ASK_CHAT, "{\"messages\": [{}]} x", "", "body:1:"},
    {PL_ASK_CHAT, "{}", "messages", "messages: is missing"},
    {PL_ASK_CHAT, "{\"messages\": []}", "messages", "expected a list of messages"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"prompt\": \"a\"}", "prompt", "no such field"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"tempreature\": 1}", "tempreature", "no such field"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"n\": 1, \"n\": 2}", "", "the key is there twice"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"tools\": {}}", "tools", "a list of tools"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"tools\": [1]}", "tools", "tools[0]: expected an object"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"tools\": [{\"type\": \"function\"}]}", "tools", "tools[0].function: missing"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"tools\": [{\"type\": \"custom\"}]}", "tools", "only tools of type function"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"tools\": [{\"function\": {\"name\": \"a b\"}}]}", "tools",
     "a name has 1 to 64"},
    {PL_ASK_CHAT,
     "{\"messages\": [{}], \"tools\": [{\"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"array\"}}}]}",
     "tools", "a schema of an object"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"tool_choice\": \"required\"}", "tool_choice", "there are no tools"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"tool_choice\": \"any\"}", "tool_choice", "expected auto, none, required"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"tool_choice\": {\"type\": \"function\"}}", "tool_choice",
     "function.name: missing"},
    {PL_ASK_CHAT,
     "{\"messages\": [{}], \"tools\": [{\"function\": {\"name\": \"f\"}}], \"tool_choice\": {\"function\": "
     "{\"name\": \"g\"}}}",
     "tool_choice", "none of the tools"},
    {PL_ASK_CHAT,
     "{\"messages\": [{}], \"tools\": [{\"function\": {\"name\": \"f\"}}], \"tool_choice\": \"required\", "
     "\"regex\": \"a\"}",
     "tool_choice", "a second grammar"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"response_format\": {\"type\": \"xml\"}}", "response_format", "type is text"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"response_format\": {\"type\": \"json_schema\"}}", "response_format",
     "json_schema.schema: missing"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"response_format\": {}}", "response_format", "response_format.type: missing"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"grammar\": \"root ::= x\", \"regex\": \"a\"}", "regex", "a second grammar"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"regex\": \"a\", \"ignore_eos\": true}", "ignore_eos", "beside a grammar"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"regex\": 3}", "regex", "expected a string"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"top_logprobs\": 2}", "top_logprobs", "needs \"logprobs\""},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"logprobs\": 2}", "logprobs", "expected true or false"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"logit_bias\": {\"x\": 1}}", "logit_bias", "is a token id"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"logit_bias\": {\"1\": 101}}", "logit_bias", "from -100 to 100"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"presence_penalty\": 3}", "presence_penalty", "from -2 to 2"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"speculative\": {\"length\": 3}}", "speculative", "expected \"off\""},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"speculative\": {\"tree\": 3}}", "speculative", "expected a string"},
    {PL_ASK_CHAT, "{\"messages\": [{}], \"stream_options\": {\"include_usage\": true}}", "stream_options",
     "needs \"stream\""},
    {PL_ASK_COMPLETION, "{\"prompt\": []}", "prompt", "an empty list"},
    {PL_ASK_COMPLETION, "{\"prompt\": [1, \"a\"]}", "prompt", "prompt[1]: expected a non-negative integer"},
    {PL_ASK_COMPLETION, "{\"prompt\": [-1]}", "prompt", "expected a non-negative integer"},
    {PL_ASK_COMPLETION, "{\"prompt\": 5}", "prompt", "expected a string"},
    {PL_ASK_COMPLETION, "{\"prompt\": \"a\", \"max_tokens\": 0}", "max_tokens", "expected 1 or more"},
    {PL_ASK_COMPLETION, "{\"prompt\": \"a\", \"max_tokens\": 1.5}", "max_tokens", "expected a non-negative integer"},
    {PL_ASK_COMPLETION, "{\"prompt\": \"a\", \"temperature\": -1}", "temperature", "from 0 to 1000"},
    {PL_ASK_COMPLETION, "{\"prompt\": \"a\", \"temperature\": 1e-9}", "temperature", "0 (greedy)"},
    {PL_ASK_COMPLETION, "{\"prompt\": \"a\", \"top_p\": 0}", "top_p", "expected a number"},
    {PL_ASK_COMPLETION, "{\"prompt\": \"a\", \"n\": 129}", "n", "from 1 to 128"},
    {PL_ASK_COMPLETION, "{\"prompt\": \"a\", \"best_of\": 2}", "best_of", "is not supported"},
    {PL_ASK_COMPLETION, "{\"prompt\": \"a\", \"suffix\": \"b\"}", "suffix", "is not supported"},
    {PL_ASK_COMPLETION, "{\"prompt\": \"a\", \"stop\": \"\"}", "stop", "1 to 256 bytes"},
    {PL_ASK_COMPLETION, "{\"prompt\": \"a\", \"stop\": [\"b\", 1]}", "stop", "stop[1]: expected a string"},
    {PL_ASK_COMPLETION, "{\"prompt\": \"a\", \"stop_token_ids\": 3}", "stop_token_ids", "a list of token ids"},
    {PL_ASK_COMPLETION, "{\"prompt\": \"a\\u0000b\"}", "", "U+0000"},
    {PL_ASK_NATIVE, "{\"prompt\": \"a\", \"n\": 1}", "n", "no such field"},
    {PL_ASK_NATIVE, "{\"prompt\": \"a\", \"n_predict\": -3}", "n_predict", "from -2"},
    {PL_ASK_NATIVE, "{\"prompt\": \"a\", \"mirostat\": 2}", "mirostat", "is not supported"},
    {PL_ASK_NATIVE, "{\"prompt\": \"a\", \"dry_multiplier\": 0.8}", "dry_multiplier", "is not supported"},
    {PL_ASK_NATIVE, "{\"prompt\": \"a\", \"samplers\": [\"top_k\"]}", "samplers", "is not supported"},
    {PL_ASK_NATIVE, "{\"prompt\": \"a\", \"presence_penalty\": 1}", "presence_penalty", "is not supported"},
    {PL_ASK_NATIVE, "{\"prompt\": \"a\", \"repeat_penalty\": 1.1}", "repeat_penalty", "\"repeat_last_n\": -1"},
    {PL_ASK_NATIVE, "{\"prompt\": \"a\", \"logit_bias\": [[1]]}", "logit_bias", "expected [token, bias]"},
    {PL_ASK_NATIVE, "{\"prompt\": \"a\", \"logit_bias\": [[1, true]]}", "logit_bias", "expected false or a number"},
    {PL_ASK_NATIVE, "{\"prompt\": \"a\", \"logit_bias\": [[-1, 1]]}", "logit_bias", "non-negative"},
    {PL_ASK_NATIVE, "{\"prompt\": \"a\", \"logit_bias\": 3}", "logit_bias", "a list of [token, bias]"},
    {PL_ASK_TOKENIZE, "{\"prompt\": [1]}", "prompt", "expected a text"},
    {PL_ASK_TOKENIZE, "{\"prompt\": \"a\", \"content\": \"b\"}", "content", "a second prompt"},
    {PL_ASK_TOKENIZE, "{\"prompt\": \"a\", \"messages\": [{}]}", "messages", "beside a prompt"},
    {PL_ASK_DETOKENIZE, "{\"tokens\": [[1]]}", "tokens", "a list of token ids"},
    {PL_ASK_DETOKENIZE, "{}", "tokens", "is missing"},
};

static void refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err    err = {0};
        pl_status st = pl_request_read(&r, bad[i].ask, bad[i].body, strlen(bad[i].body), &err);
        if (st != PL_E_INPUT && st != PL_E_UNSUPPORTED) fail_msg("%s: status %d", bad[i].body, st);
        if (!strstr(err.msg, bad[i].says)) fail_msg("%s: says \"%s\", not \"%s\"", bad[i].body, err.msg, bad[i].says);
        assert_string_equal(r.param, bad[i].param);
        assert_true(!r.prompt && !r.bias && !r.text_bias && !r.body.root);
        malformed_seen();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults), cmocka_unit_test(chat),  cmocka_unit_test(prompts), cmocka_unit_test(grammars),
        cmocka_unit_test(tokens),   cmocka_unit_test(tools), cmocka_unit_test(native),  cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

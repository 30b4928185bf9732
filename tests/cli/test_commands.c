// The commands that show and measure, as a user runs them: tokenize, inspect, bench, eval, report.
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "paceline.h"
#include "program.h"
#include "random_drafter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_tokenize(void **state) {
    (void)state;
    char        data[512], scratch[64], file[128];
    const char *tok = test_data(data, "models/TinyStories-656K");
    int32_t     a[64], b[64];
    pl_json     j;
    test_output o;
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/text", scratch);
    test_write(file, "Once upon a time");
    test_run_json(&j, "tokenize --tokenizer %s --text 'Once upon a time' --json", tok);
    int n = test_ids(&j, "ids", a, 64);
    assert_int_equal(a[0], 1);
    pl_json_close(&j);
    test_run_json(&j, "tokenize --tokenizer %s/tokenizer.json --file %s --no-special --json", tok, file);
    assert_int_equal(test_ids(&j, "ids", b, 64), n - 1);
    assert_memory_equal(a + 1, b, (size_t)(n - 1) * sizeof *a);
    pl_json_close(&j);
    test_run(&o, "tokenize --tokenizer %s --text 'Once upon a time'", tok);
    assert_int_equal(o.code, 0);
    char *line = o.out;
    line[strcspn(line, "\n")] = 0;
    test_run_json(&j, "tokenize --tokenizer %s --decode '%s' --json", tok, line);
    assert_string_equal(test_str(&j, NULL, "text"), "Once upon a time");
    pl_json_close(&j);
    test_run_fini(&o);
    // Exactly the bytes and nothing behind them.
    test_run(&o, "tokenize --tokenizer %s --decode '%s'", tok, "1");
    assert_int_equal(o.out_bytes, 0);
    test_run_fini(&o);
    test_run_fails(2, "--decode", "tokenize --tokenizer %s --decode 1,99999", tok);
    test_run_fails(2, "no-such", "tokenize --tokenizer %s/no-such --text a", tok);
    test_write(file, "a\xff");
    test_run_fails(2, file, "tokenize --tokenizer %s --file %s --json", tok, file);
    test_scratch_remove(scratch);
}

// A conversation by a template: text and ids, the same prompt in decode, and no second BOS.
static void test_chat(void **state) {
    (void)state;
    char        scratch[64], template[128], record[128];
    int32_t     ids[64], prompt[64];
    int         n;
    pl_json     j;
    test_output o;
    test_scratch(scratch);
    snprintf(template, sizeof template, "%s/chat.jinja", scratch);
    snprintf(record, sizeof record, "%s/chat.jsonl", scratch);
    test_write(template, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                         "{% if add_generation_prompt %}assistant:{% endif %}{{ mood }}");
    test_write(record, "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief\"}, "
                       "{\"role\": \"user\", \"content\": \"Hi\"}]}\n\n"
                       "{\"conversations\": [{\"from\": \"human\", \"value\": \"A\"}]}\n");
    test_run_json(&j, "tokenize --tokenizer checkpoints/tiny --chat %s --chat-template %s --json", record, template);
    const cJSON *list = pl_json_find(&j, NULL, "conversations"), *first = cJSON_GetArrayItem(list, 0);
    assert_int_equal(cJSON_GetArraySize(list), 2);
    assert_string_equal(test_str(&j, cJSON_GetArrayItem(list, 1), "text"), "user: A\n");
    assert_int_equal(strlen(test_str(&j, NULL, "chat_template")), 16);
    assert_string_equal(test_str(&j, first, "text"), "system: Be brief\nuser: Hi\n");
    pl_json_close(&j);

    test_write(record, "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief\"}, "
                       "{\"role\": \"user\", \"content\": \"Hi\"}]}");
    test_run(&o, "tokenize --tokenizer checkpoints/tiny --chat %s --chat-template %s --add-generation-prompt", record,
             template);
    assert_int_equal(o.code, 0);
    n = 0;
    for (char *p = o.out, *end; n < 64; p = end) {
        ids[n] = (int32_t)strtol(p, &end, 10);
        if (end == p) break;
        n++;
    }
    test_run_fini(&o);
    test_run_json(&j,
                  "decode --target checkpoints/tiny --chat --system 'Be brief' -p Hi --chat-template %s -n 4 --json",
                  template);
    assert_int_equal(test_ids(&j, "prompt_tokens", prompt, 64), n);
    assert_memory_equal(prompt, ids, (size_t)n * sizeof *ids);
    pl_json_close(&j);
    test_run_json(&j, "decode --target checkpoints/tiny --chat-file %s --chat-template %s -n 4 --json", record,
                  template);
    assert_int_equal(test_ids(&j, "prompt_tokens", prompt, 64), n);
    assert_memory_equal(prompt, ids, (size_t)n * sizeof *ids);
    pl_json_close(&j);
    test_run_json(&j, "decode --target checkpoints/tiny --chat -p Hi --chat-template %s -n 1 --json --chat-kwargs '%s'",
                  template, "{\"mood\": \"sad\"}");
    assert_true(test_ids(&j, "prompt_tokens", prompt, 64) != n);
    pl_json_close(&j);

    test_run_fails(2, "has no chat template", "decode --target checkpoints/tiny --chat -p Hi");
    test_write(template, "{{ bos_token }}{{ messages[0].content }}"); // a SentencePiece model reads no <s> in text
    test_run_fails(1, "tokenizer.json", "decode --target checkpoints/tiny --chat -p Hi --chat-template %s", template);
    test_run_fails(2, "--system", "decode --target checkpoints/tiny --system x -p Hi");
    test_run_fails(2, "--date", "decode --target checkpoints/tiny --date 2026-01-01 -p Hi");
    test_run_fails(2, "--chat", "decode --target checkpoints/tiny --chat --prompt-ids 1,2");
    test_run_fails(2, "--no-special", "tokenize --tokenizer checkpoints/tiny --chat %s --no-special", record);
    test_write(record, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n{\"text\": 1}\n");
    test_write(template, "{{ messages[0].content }}");
    test_run_fails(2, "chat.jsonl:2", "tokenize --tokenizer checkpoints/tiny --chat %s --chat-template %s", record,
                   template);
    test_scratch_remove(scratch);
}

// The same through the library.
static void test_chat_api(void **state) {
    (void)state;
    char              dir[64], template[128], why[256];
    pl_decoder       *d;
    int32_t          *ids, *plain;
    int64_t           n, n_plain;
    static const char said[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi there\"}]} and more";
    test_scratch(dir);
    snprintf(template, sizeof template, "%s/t.jinja", dir);
    test_write(template,
               "{{ messages[0].role }}: {{ messages[0].content }} {{ mood }}{{ '!' if add_generation_prompt }}");
    pl_decoder_chat chat = {.conversation = said,
                            .bytes = sizeof said - 1 - strlen(" and more"),
                            .chat_template = template,
                            .kwargs = "{\"mood\": \"glad\"}"};
    assert_int_equal(
        pl_decoder_open(&d, &(pl_decoder_options){.target = PACELINE_SOURCE_DIR "/checkpoints/tiny"}, why, sizeof why),
        0);
    assert_int_equal(pl_decoder_encode_chat(d, &chat, &ids, &n, why, sizeof why), 0);
    assert_int_equal(pl_decoder_encode(d, "user: Hi there glad!", 20, &plain, &n_plain, why, sizeof why), 0);
    assert_int_equal(n, n_plain - 1); // no BOS: the template wrote none
    assert_memory_equal(ids, plain + 1, (size_t)n * sizeof *ids);
    char *message;
    assert_int_equal(pl_decoder_message(d, plain + 1, n_plain - 1, &message, why, sizeof why), 0);
    assert_string_equal(message, "{\"role\":\"assistant\",\"content\":\"user: Hi there glad!\"}");
    pl_decoder_free(message);
    assert_int_equal(pl_decoder_message(d, plain, n_plain, &message, why, sizeof why), 0); // BOS is spelt
    assert_non_null(strstr(message, "\"content\":\"<"));
    pl_decoder_free(message);
    pl_decoder_free(ids);
    pl_decoder_free(plain);
    chat.chat_template = NULL;
    assert_int_equal(pl_decoder_encode_chat(d, &chat, &ids, &n, why, sizeof why), 2);
    assert_non_null(strstr(why, "has no chat template"));
    assert_null(ids);
    chat.conversation = NULL;
    assert_int_equal(pl_decoder_encode_chat(d, &chat, &ids, &n, why, sizeof why), 2);
    pl_decoder_close(d);
    test_scratch_remove(dir);
}

// What the target wrote is set apart from what it read; every row of the dataset is shown once.
static void check_masks(const char *dir) {
    pl_json      j;
    test_output  o;
    const cJSON *docs, *d, *s;
    int          later = 0;
    double       answers = 0;
    test_run_json(&j, "inspect %s/made/dataset --mask --tokenizer checkpoints/tiny --count 9 --json", dir);
    docs = pl_json_find(&j, NULL, "documents");
    assert_int_equal(cJSON_GetArraySize(docs), 3);
    cJSON_ArrayForEach(d, docs) {
        const cJSON *spans = pl_json_find(&j, d, "spans");
        double       tokens = 0;
        bool         answer = false;
        assert_true(cJSON_GetArraySize(spans) == 2); // the prompt, and its answer
        cJSON_ArrayForEach(s, spans) {
            assert_true(cJSON_IsTrue(pl_json_find(&j, s, "answer")) == answer);
            tokens += test_num(&j, s, "tokens");
            answer = true;
        }
        assert_non_null(strstr(test_str(&j, spans->child, "text"), "[system] Be good [user] "));
        assert_true(tokens == test_num(&j, d, "rows") + 1); // the end has no row
        later += test_num(&j, d, "turn") > 0;
        answers += test_num(&j, d, "answer_rows");
    }
    assert_int_equal(later, 1);
    pl_json_close(&j);
    test_run_json(&j, "inspect %s/made/dataset --full-hash --json", dir);
    assert_true(answers > 0 && test_num(&j, NULL, "answer_rows") == answers);
    pl_json_close(&j);
    test_run(&o, "inspect %s/made/dataset --mask --tokenizer checkpoints/tiny", dir);
    const char *open = strstr(o.out, "[assistant]\xE2\x9F\xA6");
    assert_true(open && strstr(open, "\xE2\x9F\xA7") && strstr(o.out, "document 0: ") == o.out);
    test_run_fini(&o);
    test_run_fails(2, "needs --tokenizer", "inspect %s/made/dataset --mask", dir);
    test_run_fails(2, "has 3 documents", "inspect %s/made/dataset --mask --tokenizer checkpoints/tiny --document 3",
                   dir);
    test_run_fails(2, "one at a time", "inspect %s/made/dataset --mask --ceilings", dir);
    test_run_fails(2, "needs --mask", "inspect %s/made/dataset --count 3", dir);
}

// data.form: chat: what generate makes of a conversation's turns is what decode answers to them, the dataset remembers
// template and variables, and evaluation prompts in the same form.
static void test_chat_recipe(void **state) {
    (void)state;
    char        dir[64], recipe[128], prompts[128], template[128], manifest[160];
    const char *made = "generate %s --out %s/made --json --quiet --set data.prompts=%s --set data.chat.template=%s %s";
    pl_json     j;
    pl_err      err = {0};
    test_scratch(dir);
    snprintf(recipe, sizeof recipe, "%s/r.yaml", dir);
    snprintf(prompts, sizeof prompts, "%s/p.jsonl", dir);
    snprintf(template, sizeof template, "%s/t.jinja", dir);
    test_write(template, "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}"
                         "{% if add_generation_prompt %}[{{ who or 'assistant' }}]{% endif %}");
    test_write(prompts, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
                        "\"content\": \"Yes\"}, {\"role\": \"user\", \"content\": \"Why\"}]}\n"
                        "{\"turns\": [\"One\", \"Two\"], \"category\": \"c\"}\n{\"prompt\": \"held\"}\n");
    test_write(recipe, "target: {path: " PACELINE_SOURCE_DIR "/checkpoints/tiny, dtype: bf16}\n"
                       "data: {form: chat, max_new_tokens: 8, samples: 0, taps: false, chat: {system: Be good}}\n"
                       "eval: {holdout: 1, max_new_tokens: 8, plain_fp32: false}\n");
    test_run_json(&j, "generate %s --out %s/texts --texts --json --set data.prompts=%s --set data.chat.template=%s",
                  recipe, dir, prompts, template);
    pl_json_close(&j);
    char path[128];
    snprintf(path, sizeof path, "%s/texts/texts.jsonl", dir);
    char *text = test_read(path);
    int   turns = 0;
    bool  asked = false;
    for (char *at = text, *end; *at; at = end + 1, turns++) { // three of four prompts: one is held out
        pl_json d;
        end = strchr(at, '\n');
        assert_int_equal(pl_json_parse(&j, "texts", turns + 1, at, (size_t)(end - at), 0, &err), PL_OK);
        const char *prompt = test_str(&j, NULL, "prompt");
        assert_int_equal(strncmp(prompt, "[system] Be good [user] ", 24), 0);
        assert_non_null(strstr(prompt, "[assistant]"));
        // Later turns stand behind the target's own answers, not the file's.
        assert_null(strstr(prompt, "[assistant] Yes"));
        asked |= strstr(prompt, "Why") != NULL;
        if (asked && strstr(prompt, "Why")) {
            int64_t turn;
            assert_int_equal(pl_json_get_int(&j, NULL, "turn", 1, 1, &turn, &err), PL_OK);
        }
        if (strcmp(prompt, "[system] Be good [user] Hi [assistant]") == 0) {
            test_run_json(&d,
                          "decode --target checkpoints/tiny --chat --system 'Be good' -p Hi --chat-template %s -n 8 "
                          "--json",
                          template);
            assert_string_equal(test_str(&d, NULL, "text"), test_str(&j, NULL, "answer"));
            pl_json_close(&d);
        }
        pl_json_close(&j);
    }
    assert_int_equal(turns, 3);
    assert_true(asked);
    pl_free(text);
    test_run_json(&j,
                  "generate %s --out %s/texts --texts --json --set data.prompts=%s --set data.chat.template=%s --set "
                  "data.chat.history=given",
                  recipe, dir, prompts, template);
    pl_json_close(&j);
    text = test_read(path);
    assert_non_null(strstr(text, "[assistant] Yes [user] Why [assistant]"));
    pl_free(text);

    test_run_json(&j, made, recipe, dir, prompts, template, "");
    pl_json_close(&j);
    snprintf(manifest, sizeof manifest, "%s/made/dataset/manifest.json", dir);
    text = test_read(manifest);
    assert_non_null(strstr(text, "chat:"));
    assert_non_null(strstr(text, "Be good"));
    pl_free(text);
    check_masks(dir);
    // Another template, other variables, no template: not the same dataset.
    test_run_fails(2, "template", made, recipe, dir, prompts, template, "--set 'data.chat.kwargs={\"who\": \"bot\"}'");
    test_run_fails(2, "template", made, recipe, dir, prompts, template, "--set data.chat.history=given");
    test_write(template, "{{ messages[-1].content }}");
    test_run_fails(2, "template", made, recipe, dir, prompts, template, "");
    test_run_fails(2, "needs data.form: chat", made, recipe, dir, prompts, template, "--set data.form=text");
    test_run_fails(2, "has no chat template", "generate %s --out %s/none --quiet --set data.prompts=%s", recipe, dir,
                   prompts);
    test_write(template, "{{ messages[0].content }}");
    test_run_fails(2, "none can be held out",
                   "eval %s --out %s/made --quiet --set data.prompts=%s --set "
                   "data.chat.template=%s",
                   recipe, dir, prompts, template);
    test_write(template, "{{ messages[-1].content }}");
    test_run_json(&j, "eval %s --out %s/made --json --set data.prompts=%s --set data.chat.template=%s", recipe, dir,
                  prompts, template);
    assert_int_equal(strncmp(test_str(&j, pl_json_find(&j, NULL, "settings"), "prompt_form"), "chat:", 5), 0);
    pl_json_close(&j);
    test_scratch_remove(dir);
}

// A verdict is told whole though it is a failure; what cannot be judged is none.
static void test_check_command(void **state) {
    (void)state;
    test_output o;
    pl_json     j;
    pl_err      err = {0};
    test_run(&o, "check checkpoints/tiny --for vllm --json");
    assert_int_equal(o.code, 2);
    assert_non_null(strstr(o.err, "would not serve this as it was trained: architecture: architectures: "));
    assert_int_equal(pl_json_parse(&j, "check", 0, o.out, o.out_bytes, PL_JSON_UNIQUE, &err), PL_OK);
    const cJSON *rules = pl_json_find(&j, NULL, "rules");
    assert_true(cJSON_GetArraySize(rules) > 20 && test_num(&j, NULL, "broken") > 5);
    assert_string_equal(test_str(&j, rules->child, "rule"), "architecture");
    assert_string_equal(test_str(&j, rules->child, "verdict"), "broken");
    assert_string_equal(test_str(&j, NULL, "engine"), "vllm");
    pl_json_close(&j);
    test_run_fini(&o);
    test_run(&o, "check checkpoints/tiny --for vllm");
    assert_int_equal(o.code, 2);
    assert_non_null(strstr(o.out, "unseen  target-fits"));
    assert_non_null(strstr(o.out, "vllm itself was not run"));
    test_run_fini(&o);
    test_run_fails(2, "--for: is missing", "check checkpoints/tiny");
    test_run_fails(2, "no such engine", "check checkpoints/tiny --for nothing --json");
    test_run_fails(2, "config.json", "check recipes --for vllm --json");
}

// Byte-level ids need not be whole characters.
static void test_tokenize_bytes(void **state) {
    (void)state;
    char        data[512], scratch[64], file[128];
    const char *gpt2 = test_data(data, "tokenizers/gpt2");
    int32_t     ids[16];
    pl_json     j;
    test_output o;
    test_run_json(&j, "tokenize --tokenizer %s --text \xF0\x9F\x9A\x80z --json", gpt2);
    assert_int_equal(test_ids(&j, "ids", ids, 16), 4);
    pl_json_close(&j);
    test_run(&o, "tokenize --tokenizer %s/vocab.json --decode %d", gpt2, ids[0]);
    assert_int_equal(o.out_bytes, 2);
    assert_memory_equal(o.out, "\xF0\x9F", 2);
    test_run_fini(&o);
    test_run_json(&j, "tokenize --tokenizer %s --decode %d,%d --json", gpt2, ids[0], ids[3]);
    assert_string_equal(test_str(&j, NULL, "text"), "\xEF\xBF\xBDz");
    assert_string_equal(test_str(&j, NULL, "bytes_hex"), "f09f7a");
    pl_json_close(&j);
    test_run_json(&j, "tokenize --tokenizer %s --decode %d --json", gpt2, ids[3]);
    assert_null(pl_json_find(&j, NULL, "bytes_hex"));
    pl_json_close(&j);
    test_run_fails(2, "unknown pre-tokenizer", "tokenize --tokenizer %s/vocab.json --pre gpt-5 --text a", gpt2);
    test_run_fails(2, "names its own", "tokenize --tokenizer %s --pre gpt-2 --text a", gpt2);
    test_run_fails(2, "--file", "bench tokenize --tokenizer %s", gpt2);
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/text", scratch);
    test_write(file, "the cat sat on the mat\n");
    test_run_json(&j, "bench tokenize --tokenizer %s --file %s --json", gpt2, file);
    const cJSON *t = pl_json_find(&j, NULL, "tokenize"), *ways = pl_json_find(&j, t, "ways");
    assert_int_equal(cJSON_GetArraySize(ways), 3);
    assert_true(cJSON_GetObjectItem(ways->child, "mb_per_second")->valuedouble > 0);
    assert_int_equal(cJSON_GetObjectItem(t, "tokens")->valueint, 7);
    pl_json_close(&j);
    test_scratch_remove(scratch);
}

static void expect_kind(const char *kind, const char *path, const char *options) {
    pl_json     j;
    test_output o;
    test_run_json(&j, "inspect %s --json %s", path, options);
    assert_string_equal(test_str(&j, NULL, "kind"), kind);
    pl_json_close(&j);
    test_run(&o, "inspect %s %s", path, options);
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, kind));
    test_run_fini(&o);
}

// What a config.json says of rotation, windows and caps, in JSON.
static void test_inspect_config(void **state) {
    (void)state;
    char    dir[64], path[128];
    pl_json j;
    test_scratch(dir);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(symlink(PACELINE_SOURCE_DIR "/checkpoints/tiny/model.safetensors", path), 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
#define SIZES "\"hidden_size\":64,\"intermediate_size\":128,\"num_hidden_layers\":3,\"vocab_size\":99,"
    test_write(path, "{\"architectures\":[\"Qwen2ForCausalLM\"]," SIZES "\"num_attention_heads\":4,"
                     "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":512}}");
    test_run_json(&j, "inspect %s --json", dir);
    assert_string_equal(test_str(&j, NULL, "rope_scaling"), "yarn");
    assert_null(pl_json_find(&j, NULL, "sliding_window"));
    pl_json_close(&j);
    test_write(path, "{\"architectures\":[\"Gemma2ForCausalLM\"]," SIZES "\"sliding_window\":32}");
#undef SIZES
    test_run_json(&j, "inspect %s --json", dir);
    assert_true(test_num(&j, NULL, "sliding_window") == 32 && test_num(&j, NULL, "windowed_layers") == 2);
    assert_true(test_num(&j, NULL, "attention_softcap") == 50 && test_num(&j, NULL, "final_softcap") == 30);
    pl_json_close(&j);
    test_scratch_remove(dir);
}

static void test_inspect(void **state) {
    (void)state;
    static const char *const known[][2] = {{"model", "models/TinyStories-656K"},
                                           {"llama2.c model", "models/stories260K/stories260K.bin"},
                                           {"tokenizer", "models/stories260K/tok512.bin"},
                                           {"tokenizer", "models/TinyStories-656K/tokenizer.json"},
                                           {"tokenizer", "tokenizers/llama2/tokenizer.model"},
                                           {"tokenizer", "tokenizers/llama3"},
                                           {"tokenizer", "tokenizers/qwen2"},
                                           {"tokenizer", "tokenizers/gpt2/merges.txt"},
                                           {"safetensors", "models/TinyStories-656K/model.safetensors"},
                                           {"prompts", "bench/mt_bench/question.jsonl"},
                                           {"drafter checkpoint", "configs/SpecForge/llama3-8B-eagle3.json"},
                                           {"drafter checkpoint", "configs/EAGLE/vicuna_7B_config.json"}};
    char                     data[512], scratch[64], file[128];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        expect_kind(known[i][0], test_data(data, known[i][1]), "");
    const char *target = test_data(data, "models/TinyStories-656K");
    expect_kind("model", target, "--tensors --full-hash");
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/head", scratch);
    test_random_drafter(file, target, "lowrank", 8);
    expect_kind("drafter checkpoint", file, "--full-hash");
    snprintf(file, sizeof file, "%s/r.yaml", scratch);
    test_write(file, "train: {steps: 3}\n");
    expect_kind("recipe", file, "");
    test_write(file, "train: {stepz: 3}\n");
    test_run_fails(2, "r.yaml:1", "inspect %s", file);
    test_run_fails(2, "nothing known", "inspect %s", scratch);
    snprintf(file, sizeof file, "%s/x.safetensors", scratch);
    test_write(file, "junk");
    test_run_fails(2, "x.safetensors", "inspect %s --json", file);
    test_scratch_remove(scratch);
}

static void test_bench(void **state) {
    (void)state;
    pl_json j;
    test_run_json(&j, "bench heads linear --json --threads 1 --vocab 512 --hidden 64 --ranks 8,64 --max-mb 1");
    const cJSON *h, *heads = test_array(&j, NULL, "heads");
    assert_int_equal(cJSON_GetArraySize(heads), 26); // bf16, fp32: full, 4 trimmed, 2 low-rank, 2 specvocab, 4 dynaspec
    cJSON_ArrayForEach(h, heads) {
        test_str(&j, h, "name");
        assert_true(test_num(&j, h, "seconds") > 0);
        assert_true(test_num(&j, h, "p10") <= test_num(&j, h, "p90"));
        assert_true(test_num(&j, h, "floor_seconds") > 0);
        assert_true(test_num(&j, h, "share_p10") > 0 &&
                    test_num(&j, h, "share_p10") <= test_num(&j, h, "share_of_floor"));
        assert_true(test_num(&j, h, "share_of_floor") <= test_num(&j, h, "share_p90"));
        bool        bf16 = strcmp(test_str(&j, h, "weights"), "bf16") == 0;
        double      rank = test_num(&j, h, "rank"), w = bf16 ? 2 : 4;
        const char *kind = test_str(&j, h, "kind");
        if (strcmp(kind, "full") == 0) assert_true(test_num(&j, h, "bytes") == w * test_num(&j, h, "vocab") * 64);
        if (strcmp(kind, "lowrank") == 0) assert_true(test_num(&j, h, "bytes") == w * rank * (512 + 64));
        assert_true(test_num(&j, h, "speedup_over_full") > 0);
    }
    int listed = 0;
    cJSON_ArrayForEach(h, test_array(&j, NULL, "routed_reads")) {
        double w = strcmp(test_str(&j, h, "weights"), "bf16") == 0 ? 2 : 4;
        assert_true(test_num(&j, h, "seconds") > 0 && test_num(&j, h, "floor_seconds") > 0);
        assert_true(test_num(&j, h, "rows_read") > 0 && test_num(&j, h, "rows_read") < 512);
        assert_true(test_num(&j, h, "bytes") == w * test_num(&j, h, "rows_read") * 64);
        listed += strcmp(test_str(&j, h, "way"), "listed") == 0;
    }
    assert_true(listed == 4 && cJSON_GetArraySize(test_array(&j, NULL, "routed_reads")) == 8); // as many spans
    assert_int_equal(cJSON_GetArraySize(test_array(&j, NULL, "linear")), 4); // 4096 x 4096 is above --max-mb
    assert_non_null(pl_json_find(&j, NULL, "machine"));
    pl_json_close(&j);
}

static void test_committed_drafter(void **state) {
    (void)state;
    pl_json j;
    test_run_json(&j, "inspect checkpoints/smollm2-135m --json");
    assert_string_equal(test_str(&j, NULL, "backbone"), "eagle3");
    assert_true(test_num(&j, NULL, "hidden_size") == 576 && test_num(&j, NULL, "vocab") == 49152);
    assert_true(test_num(&j, NULL, "draft_vocab") == 8192 && test_num(&j, NULL, "bytes") < 40e6);
    pl_json_close(&j);
    test_run_fails(2, "576", "decode --target checkpoints/tiny --drafter checkpoints/smollm2-135m -p One");
}

static void test_bench_decode(void **state) {
    (void)state;
    char         data[512];
    const char  *target = test_data(data, "models/TinyStories-656K");
    pl_json      j;
    const cJSON *m;
    test_run_json(&j, "bench decode --json --target %s --context 8 --new-tokens 16 --repeats 3", target);
    const cJSON *methods = test_array(&j, NULL, "decode");
    assert_int_equal(cJSON_GetArraySize(methods), 2);
    cJSON_ArrayForEach(m, methods) {
        assert_true(test_num(&j, m, "tokens_per_second") > 0);
        assert_true(test_num(&j, m, "floor_tokens_per_second") > 0 && test_num(&j, m, "bandwidth_gb_per_second") > 0);
        assert_true(test_num(&j, m, "share_p10") > 0 &&
                    test_num(&j, m, "share_p10") <= test_num(&j, m, "share_of_floor"));
        assert_true(test_num(&j, m, "share_of_floor") <= test_num(&j, m, "share_p90"));
        assert_true(test_num(&j, m, "acceptance_length") == 1);
    }
    m = pl_json_find(&j, NULL, "opening");
    assert_true(test_num(&j, m, "seconds") > 0 && test_num(&j, m, "floor_seconds") > 0);
    assert_true(test_num(&j, m, "bytes") > 600e3);
    assert_true(test_num(&j, m, "resident_bytes") > 0);
    double rows = 0;
    cJSON_ArrayForEach(m, test_array(&j, NULL, "verify")) {
        assert_true(test_num(&j, m, "rows") > rows && test_num(&j, m, "seconds") > 0);
        rows = test_num(&j, m, "rows");
    }
    assert_true(rows == 60);
    pl_json_close(&j);
    test_run_fails(2, "512 positions", "bench decode --target %s --context 500", target);
}

// Flops of a training step against what they must be about.
static void test_bench_step(void **state) {
    (void)state;
    char         data[512];
    const char  *target = test_data(data, "models/TinyStories-656K");
    pl_json      j;
    const cJSON *m;
    double       drafter[2];
    for (int i = 0; i < 2; i++) {
        test_run_json(&j, "bench step --json --target %s --batch 2 --seq-len 16 --repeats 2 --unroll %d", target,
                      2 + 2 * i);
        const cJSON *steps = test_array(&j, NULL, "step");
        assert_int_equal(cJSON_GetArraySize(steps), 2);
        cJSON_ArrayForEach(m, steps) {
            assert_true(test_num(&j, m, "tokens") == 32);
            assert_true(test_num(&j, m, "tokens_per_second") > 0 && test_num(&j, m, "share_of_floor") > 0);
            assert_true(test_num(&j, m, "p10") <= test_num(&j, m, "seconds") &&
                        test_num(&j, m, "seconds") <= test_num(&j, m, "p90"));
        }
        m = cJSON_GetArrayItem(steps, 0);
        assert_string_equal(test_str(&j, m, "name"), "target");
        // Every parameter but the norms multiplies each token once forward and twice backward; attention comes on top.
        double least = 6 * 32 * test_num(&j, m, "parameters"), flops = test_num(&j, m, "flops");
        assert_true(flops > 0.99 * least && flops < 1.2 * least);
        m = cJSON_GetArrayItem(steps, 1);
        assert_string_equal(test_str(&j, m, "name"), "eagle3");
        assert_string_equal(test_str(&j, m, "head"), "full");
        drafter[i] = test_num(&j, m, "flops");
        pl_json_close(&j);
    }
    assert_true(drafter[1] > 1.5 * drafter[0] && drafter[1] < 2 * drafter[0]); // fc and the teacher come once
    test_run_json(&j, "bench step --json --target %s --batch 1 --seq-len 8 --repeats 1 --unroll 1 --weights both",
                  target);
    const cJSON *both = test_array(&j, NULL, "step");
    assert_int_equal(cJSON_GetArraySize(both), 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(test_str(&j, cJSON_GetArrayItem(both, i), "weights"), i < 2 ? "bf16" : "fp32");
    pl_json_close(&j);
    test_run_fails(2, "512 positions", "bench step --target %s --seq-len 512", target);
    test_run_fails(2, "--target: is missing", "bench step");
}

// `generate --texts`: the answers that the dataset would hold, as text.
static void test_generate_texts(void **state) {
    (void)state;
    char    dir[64], recipe[128], prompts[128], *lines[2], *at;
    int     n;
    pl_err  err = {0};
    pl_json j;
    test_scratch(dir);
    snprintf(recipe, sizeof recipe, "%s/r.yaml", dir);
    snprintf(prompts, sizeof prompts, "%s/p.jsonl", dir);
    test_write(prompts, "{\"prompt\": \"It was a dark\"}\n{\"prompt\": \"The old man\"}\n{\"prompt\": \"x\"}\n");
    test_write(recipe, "target: {path: " PACELINE_SOURCE_DIR "/checkpoints/tiny}\n"
                       "data: {prompts: p.jsonl, max_new_tokens: 12, samples: 1, temperature: 0.8}\n"
                       "eval: {holdout: 1}\n");
    for (int i = 0; i < 2; i++) {
        test_run_json(&j, "generate %s --out %s/out%d --texts --json --set data.sessions=%d --set data.prompts=%s",
                      recipe, dir, i, 1 + 7 * i, prompts);
        pl_json_close(&j);
        char path[128];
        snprintf(path, sizeof path, "%s/out%d/texts.jsonl", dir, i);
        lines[i] = test_read(path);
    }
    assert_string_equal(lines[0], lines[1]); // whatever is answered side by side
    // No prompt need be kept back for an evaluation that is none of this command's.
    char whole[128];
    snprintf(whole, sizeof whole, "%s/whole", dir);
    test_run_json(&j, "generate %s --out %s --texts --json --set eval.holdout=0 --set data.prompts=%s", recipe, whole,
                  prompts);
    pl_json_close(&j);
    char *all = test_get(whole, "texts.jsonl");
    for (n = 0, at = all; (at = strchr(at, '\n')) != NULL; at++)
        n++;
    pl_free(all);
    assert_int_equal(n, 6);
    test_run_fails(2, "eval.holdout=0: 0 keeps none of data.prompts",
                   "run %s --out %s-run --set eval.holdout=0 --set data.prompts=%s", recipe, whole, prompts);
    const char *prompt, *answer, *text, *finish;
    at = lines[0];
    for (int i = 0; i < 4; i++) { // two prompts, greedy and sampled
        char *end = strchr(at, '\n');
        assert_non_null(end);
        assert_int_equal(pl_json_parse(&j, "texts", i + 1, at, (size_t)(end - at), 0, &err), PL_OK);
        prompt = test_str(&j, NULL, "prompt");
        answer = test_str(&j, NULL, "answer");
        text = test_str(&j, NULL, "text");
        finish = test_str(&j, NULL, "finish");
        assert_int_equal(strncmp(text, prompt, strlen(prompt)), 0);
        assert_string_equal(text + strlen(prompt), answer);
        assert_true(strcmp(finish, "length") != 0 || test_num(&j, NULL, "tokens") == 12);
        if (i == 0) { // what decode says to it
            pl_json d;
            test_run_json(&d, "decode --target " PACELINE_SOURCE_DIR "/checkpoints/tiny -n 12 --json --prompt '%s'",
                          prompt);
            assert_string_equal(test_str(&d, NULL, "text"), answer);
            pl_json_close(&d);
        }
        pl_json_close(&j);
        at = end + 1;
    }
    assert_int_equal(*at, 0);
    pl_free(lines[0]), pl_free(lines[1]);
    test_scratch_remove(dir);
}

// Caches in bf16 through the library: its text over either cache is the program's, and the two differ, so that it reads
// what it is told.
static bool keep_text(void *arg, int32_t token, const char *text, size_t bytes) {
    (void)token;
    strncat(arg, text, bytes);
    return true;
}

static void test_kv_api(void **state) {
    (void)state;
    enum { TOKENS = 200 };
    static const char *const kv[] = {"fp32", "bf16"};
    static const char        target[] = PACELINE_SOURCE_DIR "/checkpoints/tiny", prompt[] = "The king said";
    char                     why[256], text[2][16 * TOKENS];
    pl_json                  j;
    pl_decoder              *d;
    for (int i = 0; i < 2; i++) {
        pl_decoder_options o = {.target = target, .kv = kv[i]};
        pl_decoder_request r = {.max_new_tokens = TOKENS};
        int32_t           *ids;
        assert_int_equal(pl_decoder_open(&d, &o, why, sizeof why), 0);
        assert_int_equal(pl_decoder_encode(d, prompt, strlen(prompt), &ids, &r.n_prompt, why, sizeof why), 0);
        r.prompt = ids;
        text[i][0] = 0;
        assert_int_equal(pl_decoder_generate(d, &r, keep_text, text[i], NULL, why, sizeof why), 0);
        pl_decoder_free(ids);
        pl_decoder_close(d);
        test_run_json(&j, "decode --json --target %s -n %d --prompt '%s' --kv %s", target, TOKENS, prompt, kv[i]);
        assert_string_equal(text[i], test_str(&j, NULL, "text"));
        pl_json_close(&j);
    }
    assert_string_not_equal(text[0], text[1]);
    pl_decoder_options wrong = {.target = target, .kv = "half"};
    assert_int_equal(pl_decoder_open(&d, &wrong, why, sizeof why), 2);
    assert_string_equal(why, "kv: half: expected fp32 or bf16");
}

// Caches in bf16: what is decoded with a drafter is what is decoded without, a step reads as many bytes less as they
// take, and results say so.
static void test_kv(void **state) {
    (void)state;
    static const char *const kv[] = {"fp32", "bf16"};
    enum { CONTEXT = 200, LAYERS = 2, WIDTH = 32 }; // of keys, the shape tiny's
    double  bytes[2], cache[2];
    pl_json j, d;
    for (int i = 0; i < 2; i++) {
        const char *decode = "decode --json --target " PACELINE_SOURCE_DIR
                             "/checkpoints/tiny -n 24 --prompt 'Once upon a time' --kv %s --drafter %s";
        test_run_json(&j, decode, kv[i], "lookup");
        test_run_json(&d,
                      "decode --json --target " PACELINE_SOURCE_DIR
                      "/checkpoints/tiny -n 24 --prompt 'Once upon a time' --kv %s",
                      kv[i]);
        assert_string_equal(test_str(&j, NULL, "kv"), kv[i]);
        assert_string_equal(test_str(&j, NULL, "text"), test_str(&d, NULL, "text"));
        pl_json_close(&j);
        pl_json_close(&d);
        test_run_json(&j, "bench decode --json --quiet --shape tiny --context %d --new-tokens 2 --repeats 1 --kv %s",
                      CONTEXT, kv[i]);
        assert_string_equal(test_str(&j, NULL, "model.kv"), kv[i]);
        bytes[i] = test_num(&j, NULL, "model.step_bytes");
        cache[i] = test_num(&j, NULL, "model.cache_bytes");
        pl_json_close(&j);
        test_run_json(&j, "bench attention --json --quiet --hidden 512 --max-mb 1 --kv %s", kv[i]);
        assert_string_equal(test_str(&j, pl_json_find(&j, NULL, "attention")->child, "kv"), kv[i]);
        assert_true(test_num(&j, pl_json_find(&j, NULL, "attention")->child, "bytes") == 2.0 * 128 * 128 * (i ? 2 : 4));
        pl_json_close(&j);
    }
    assert_true(cache[0] == 2 * cache[1]);
    assert_true(bytes[0] - bytes[1] == 2.0 * CONTEXT * LAYERS * WIDTH * 2);
    test_run_fails(2, "--kv: is for bench decode, attention", "bench heads --kv bf16");
    test_run_fails(2, "--kv: needs --acceptance or --ceilings",
                   "inspect " PACELINE_SOURCE_DIR "/checkpoints/tiny --kv bf16");
}

// Prompts beyond the target's context do not end a run: they are left out and counted, or cut.
static void test_long_prompts(void **state) {
    (void)state;
    char        dir[64], prompts[128], held[128], path[128];
    const char *command = "generate --out %s/%s --texts --quiet --set target.path=" PACELINE_SOURCE_DIR
                          "/checkpoints/tiny --set data.prompts=%s --set eval.prompts=%s --set data.max_new_tokens=4 "
                          "--set data.samples=0 --set data.long_prompts=%s %s/r.yaml";
    test_output o;
    test_scratch(dir);
    snprintf(prompts, sizeof prompts, "%s/p.txt", dir);
    snprintf(held, sizeof held, "%s/h.txt", dir);
    snprintf(path, sizeof path, "%s/r.yaml", dir);
    test_write(path, "kind: drafter\n");
    test_write(held, "held out");
    char *text = pl_malloc(20000), *at = text;
    at += sprintf(at, "one\n\nBEGIN");
    for (int i = 0; i < 3000; i++)
        at += sprintf(at, " word");
    sprintf(at, " END\n\ntwo\n");
    test_write(prompts, text);
    pl_free(text);
    for (int cut = 0; cut < 2; cut++) {
        const char *how = cut ? "cut" : "skip";
        test_run(&o, command, dir, how, prompts, held, how, dir);
        if (o.code != 0) fail_msg("%s", o.err);
        assert_non_null(strstr(o.err, "1 of 3 prompts have more tokens"));
        assert_non_null(strstr(o.err, cut ? ": cut" : ": left out"));
        test_run_fini(&o);
        snprintf(path, sizeof path, "%s/%s/texts.jsonl", dir, how);
        text = test_read(path);
        int lines = 0;
        for (char *c = text; *c; c++)
            lines += *c == '\n';
        assert_int_equal(lines, cut ? 3 : 2);
        assert_non_null(strstr(text, "\"prompt\":\"one\""));
        assert_non_null(strstr(text, "\"prompt\":\"two\"")); // each answer with its own prompt
        assert_true((strstr(text, "END") != NULL) == (cut == 1));
        pl_free(text);
    }
    test_scratch_remove(dir);
}

static void test_eval(void **state) {
    (void)state;
    char        data[512], scratch[64], file[128], recipe[1200];
    const char *target = test_data(data, "models/TinyStories-656K");
    pl_json     j;
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/head", scratch);
    test_random_drafter(file, target, "full", 0);
    snprintf(recipe, sizeof recipe,
             "target: {path: %s}\neval:\n  prompts: %s/p.jsonl\n  max_new_tokens: 24\n  repeats: 2\n  drafters:\n"
             "    - {path: %s/head, tree: 'chain:3'}\n    - {path: %s/head, name: auto}\n",
             target, scratch, scratch, scratch);
    snprintf(file, sizeof file, "%s/e.yaml", scratch);
    test_write(file, recipe);
    snprintf(file, sizeof file, "%s/p.jsonl", scratch);
    test_write(file,
               "{\"prompt\":\"Once upon a time\",\"category\":\"a\"}\n{\"prompt\":\"The dog\",\"category\":\"b\"}\n"
               "{\"prompt\":\"Lily was\",\"category\":\"a\"}\n");
    test_run_json(&j, "eval %s/e.yaml --out %s/run --json --quiet --threads 2 --set eval.ceilings=6", scratch, scratch);
    pl_json_close(&j);
    // One checkpoint under two names: one file, of the first.
    snprintf(file, sizeof file, "%s/run/ceilings/auto.json", scratch);
    assert_false(pl_path_exists(file));
    snprintf(file, sizeof file, "%s/run/ceilings/eagle3-full.json", scratch);
    assert_int_equal(pl_json_open(&j, file, 1 << 20, PL_JSON_UNIQUE, NULL), PL_OK);
    assert_string_equal(test_str(&j, NULL, "name"), "eagle3-full");
    assert_string_equal(test_str(&j, NULL, "answers"), "greedy");
    assert_true(test_num(&j, NULL, "positions") == 6);
    const cJSON *row = test_array(&j, NULL, "ceilings")->child;
    assert_true(test_num(&j, row, "depth") == 0 && test_num(&j, row, "rows") == 6 && test_num(&j, row, "ceiling") == 1);
    assert_true(test_num(&j, row, "achieved") > 0 && test_num(&j, row, "achieved") <= test_num(&j, row, "ceiling"));
    // Beside them those of the temperature that was evaluated, 0.
    const cJSON *cold = pl_json_find(&j, NULL, "greedy");
    assert_non_null(cold);
    assert_true(test_num(&j, cold, "temperature") == 0 && test_num(&j, cold, "positions") == 6);
    row = test_array(&j, cold, "ceilings")->child;
    assert_true(test_num(&j, row, "depth") == 0 && test_num(&j, row, "ceiling") == 1 &&
                test_num(&j, row, "oracle") == 1);
    pl_json_close(&j);
    snprintf(file, sizeof file, "%s/run/report.html", scratch);
    char *html = test_read_page(file);
    assert_non_null(strstr(html, "<h2>Ceilings of "));
    pl_free(html);
    snprintf(file, sizeof file, "%s/run/results.json", scratch);
    assert_int_equal(pl_json_open(&j, file, 1 << 20, PL_JSON_UNIQUE, NULL), PL_OK);
    const cJSON             *methods = test_array(&j, NULL, "methods"), *m;
    static const char *const names[] = {"plain", "plain-fp32", "eagle3-full", "auto"};
    int                      i = 0;
    assert_int_equal(cJSON_GetArraySize(methods), 4);
    cJSON_ArrayForEach(m, methods) {
        assert_string_equal(test_str(&j, m, "name"), names[i++]);
        assert_true(cJSON_IsTrue(cJSON_GetObjectItem(m, "identical_outputs")));
        assert_true(test_num(&j, m, "prompts") == 3);
        assert_true(test_num(&j, m, "tokens") > 0);
        assert_true(test_num(&j, m, "acceptance_length") >= 1);
        assert_true(test_num(&j, m, "floor_tokens_per_second") > 0);
        assert_int_equal(cJSON_GetArraySize(test_array(&j, m, "categories")), 2);
    }
    // Plain and the drafters on its weights decoded the same tokens.
    const cJSON *plain = methods->child, *chain = plain->next->next;
    assert_true(test_num(&j, plain, "tokens") == test_num(&j, chain, "tokens"));
    assert_string_equal(test_str(&j, plain, "answers_hash"), test_str(&j, chain, "answers_hash"));
    assert_true(test_num(&j, chain, "drafted") > 0);
    pl_json_close(&j);
    snprintf(file, sizeof file, "%s/run/report.html", scratch);
    assert_true(pl_path_exists(file));
    snprintf(file, sizeof file, "%s/run/recipe.yaml", scratch);
    assert_true(pl_path_exists(file));
    test_run_fails(2, "eval.max_new_tokens", "eval %s/e.yaml --out %s/bad --quiet --set eval.max_new_tokens=512",
                   scratch, scratch);
    test_run_fails(2, "no-such", "eval %s/e.yaml --out %s/bad --quiet --set eval.prompts=no-such", scratch, scratch);
    test_run_fails(2, "nowhere", "eval %s/e.yaml --out %s/bad --quiet --set eval.drafters.0.path=nowhere", scratch,
                   scratch);
    snprintf(file, sizeof file, "%s/bad/results.json", scratch);
    assert_false(pl_path_exists(file));
    test_scratch_remove(scratch);
}

// Every way to name a drafter, two temperatures, several seeds: one results.json.
static void test_eval_methods(void **state) {
    (void)state;
    char        data[512], scratch[64], file[128], recipe[1600];
    const char *target = test_data(data, "models/TinyStories-656K");
    pl_json     j;
    test_output o;
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/head", scratch);
    test_random_drafter(file, target, "lowrank", 8);
    snprintf(recipe, sizeof recipe,
             "target: {path: %s}\neval:\n  prompts: %s/p.jsonl\n  max_new_tokens: 24\n  plain_fp32: false\n"
             "  temperatures: [0, 1]\n  seeds: 3\n  drafters:\n    - {kind: lookup}\n    - {kind: 'lookup:2,4'}\n"
             "    - {kind: recycle, tree: 'chain:3'}\n    - {kind: recycle}\n    - {path: %s/head, verify: match}\n"
             "    - {path: %s/head, tree: 'chain:2'}\n",
             target, scratch, scratch, scratch);
    snprintf(file, sizeof file, "%s/e.yaml", scratch);
    test_write(file, recipe);
    snprintf(file, sizeof file, "%s/p.jsonl", scratch);
    test_write(file, "{\"prompt\":\"Once upon a time\",\"category\":\"a\"}\n"
                     "{\"prompt\":\"The dog\",\"category\":\"b\"}\n");
    test_run(&o, "eval %s/e.yaml --out %s/run --threads 1", scratch, scratch);
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, "recycle 4 nodes"));
    assert_non_null(strstr(o.out, "lookup@T=1"));
    const char *table = strstr(o.out, "speed-up (accept)"); // a column for each category, a line for each drafter
    assert_non_null(table);
    assert_non_null(strstr(table, "             a             b\nprompts"));
    assert_non_null(strstr(table, "\nlookup:2,4 "));
    assert_null(strstr(table, "\nplain"));
    test_run_fini(&o);
    snprintf(file, sizeof file, "%s/run/results.json", scratch);
    assert_int_equal(pl_json_open(&j, file, 1 << 20, PL_JSON_UNIQUE, NULL), PL_OK);
    static const char *const names[] = {
        "plain", "lookup", "lookup:2,4", "recycle", "recycle 4 nodes", "eagle3-lowrank", "eagle3-lowrank chain:2"};
    const cJSON *m, *methods = test_array(&j, NULL, "methods");
    const char  *hash[2] = {NULL, NULL};
    int          i = 0;
    assert_int_equal(cJSON_GetArraySize(methods), 14);
    cJSON_ArrayForEach(m, methods) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", names[i % 7], i < 7 ? "" : "@T=1");
        assert_string_equal(test_str(&j, m, "name"), name);
        assert_true(test_num(&j, m, "temperature") == i / 7);
        assert_true(test_num(&j, m, "seeds") == (i < 7 ? 1 : 3));
        assert_true(cJSON_IsTrue(cJSON_GetObjectItem(m, "identical_outputs")));
        assert_string_equal(test_str(&j, m, "promise"), "identical");
        if (!hash[i / 7]) hash[i / 7] = test_str(&j, m, "answers_hash");
        assert_string_equal(test_str(&j, m, "answers_hash"), hash[i / 7]);
        if (i % 7) {
            double a = test_num(&j, m, "acceptance_length");
            assert_true(test_num(&j, m, "acceptance_length_low") <= a &&
                        test_num(&j, m, "acceptance_length_high") >= a);
            assert_string_equal(test_str(&j, m, "verify"), "match");
        }
        i++;
    }
    assert_string_not_equal(hash[0], hash[1]);
    pl_json_close(&j);
    snprintf(file, sizeof file, "%s/bad", scratch);
    static const char *const bad[][2] = {
        {"eval.drafters=[{kind: lookup, path: x}]", "stands beside"},
        {"eval.drafters=[{kind: nosuch}]", "no drafter without a checkpoint"},
        {"eval.drafters=[{path: lookup}]", "take `kind`, or ./lookup"},
        {"eval.drafters=[{drafter: nosuch}]", "none of the recipe's"},
        {"eval.drafters=[{drafter: lookup}]", "write `kind: lookup`"},
        {"eval.drafters=[{drafter: \"recycle:60\"}]", "write `kind: recycle:60`"},
        {"eval.drafters=[{name: x}]", "path"},
        {"eval.drafters=[{kind: \"lookup:0\"}]", "N in 1..16"},
        {"eval.drafters=[{kind: lookup, verify: nosuch}]", "nosuch"},
        {"eval.drafters=[{kind: lookup, name: plain}]", "two methods"},
        {"eval.temperatures=1,1", "stands twice"},
        {"eval.temperatures=[]", "is empty"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        test_run_fails(2, bad[k][1], "eval %s/e.yaml --out %s --quiet --set '%s'", scratch, file, bad[k][0]);
    test_scratch_remove(scratch);
}

// Trees that begin alike for longer than any other's text are told whole.
static void test_long_trees(void **state) {
    (void)state;
    for (int last = 30; last < 32; last++) {
        char    tree[160] = "static:0";
        pl_json j;
        for (int i = 1; i < 32; i++)
            snprintf(tree + strlen(tree), sizeof tree - strlen(tree), ",%d", i < 31 ? i / 2 : last);
        test_run_json(&j, "decode --target checkpoints/tiny --drafter recycle --tree %s --prompt x -n 4 --json --quiet",
                      tree);
        assert_string_equal(test_str(&j, NULL, "tree"), tree);
        assert_string_equal(test_str(&j, NULL, "tree_used"), tree);
        pl_json_close(&j);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_command),
        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_chat_recipe),
        cmocka_unit_test(test_chat_api),
        cmocka_unit_test(test_long_prompts),
        cmocka_unit_test(test_tokenize_bytes),
        cmocka_unit_test(test_inspect),
        cmocka_unit_test(test_inspect_config),
        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_committed_drafter),
        cmocka_unit_test(test_bench_decode),
        cmocka_unit_test(test_bench_step),
        cmocka_unit_test(test_generate_texts),
        cmocka_unit_test(test_eval),
        cmocka_unit_test(test_eval_methods),
        cmocka_unit_test(test_kv),
        cmocka_unit_test(test_kv_api),
        cmocka_unit_test(test_long_trees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

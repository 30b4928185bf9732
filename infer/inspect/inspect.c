// `paceline inspect PATH`: what a path holds.
#include "data/tokenizer/tokenizer.h"
#include "infer/cli/cli.h"
#include "infer/cli/show.h"
#include "infer/inspect/acceptance.h"
#include "infer/inspect/ceilings.h"
#include "infer/inspect/parts.h"
#include "infer/model/kv.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"

#include <stdio.h>
#include <string.h>

#define JSON_MAX ((size_t)128 << 20) // Gemma 3's tokenizer.json has 33 MB

#define COLDEST 0.01 // lowest temperature above 0

static const pl_cli_option options[] = {
    {.name = "full-hash", .type = PL_CLI_FLAG, .help = "reads everything: fingerprint of all bytes, every checksum"},
    {.name = "tensors", .type = PL_CLI_FLAG, .help = "lists a model's tensors too"},
    {.name = "pre", .type = PL_CLI_TEXT, .arg = "NAME", .help = PL_TOK_PRE_HELP},
    {.name = "mask",
     .type = PL_CLI_FLAG,
     .help = "PATH is a dataset: a document's text, what is learned of it in colour, or in brackets"},
    {.name = "tokenizer", .type = PL_CLI_TEXT, .arg = "T", .help = "--mask: the target's folder or its tokenizer"},
    {.name = "document",
     .type = PL_CLI_INT,
     .arg = "I",
     .deflt = "0",
     .min = 0,
     .max = 1LL << 50,
     .help = "--mask: which document, counted from 0"},
    {.name = "count",
     .type = PL_CLI_INT,
     .arg = "N",
     .deflt = "1",
     .min = 1,
     .max = 1LL << 50,
     .help = "--mask: documents shown"},
    {.name = "acceptance",
     .type = PL_CLI_FLAG,
     .help = "PATH is a target: how often each verifier accepts, beside the most that any could"},
    {.name = "ceilings",
     .type = PL_CLI_FLAG,
     .help = "PATH is a target: what a draft head's choice of tokens lets through, by depth"},
    {.name = "drafter",
     .type = PL_CLI_TEXT,
     .arg = "DIR",
     .help = "--acceptance, --ceilings: the draft head's checkpoint"},
    {.name = "kv",
     .type = PL_CLI_CHOICE,
     .arg = "fp32|bf16",
     .deflt = "fp32",
     .help = "--acceptance, --ceilings: " PL_KV_HELP},
    {.name = "prompts",
     .type = PL_CLI_TEXT,
     .arg = "F",
     .help = "--acceptance, --ceilings: texts to go on with [the target's own]"},
    {.name = "children",
     .type = PL_CLI_INT,
     .arg = "N",
     .deflt = "4",
     .min = 1,
     .max = PL_ACCEPTANCE_CHILDREN,
     .help = "--acceptance: drafted tokens at a node, 1 to N"},
    {.name = "positions",
     .type = PL_CLI_INT,
     .arg = "N",
     .deflt = "200",
     .min = 1,
     .max = 1 << 24,
     .help = "--acceptance, --ceilings: places of the text looked at"},
    {.name = "depth",
     .type = PL_CLI_INT,
     .arg = "D",
     .deflt = "4",
     .min = 1,
     .max = PL_CEILINGS_DEPTH,
     .help = "--ceilings: tokens drafted at a time"},
    {.name = "top",
     .type = PL_CLI_INT,
     .arg = "N",
     .deflt = "4",
     .min = 1,
     .max = 1024,
     .help = "--ceilings: the whole head's best tokens that recall_head_top asks for"},
    {.name = "temperature",
     .type = PL_CLI_REAL,
     .arg = "T",
     .deflt = "1",
     .min = 0,
     .max = 1000,
     .help = "--acceptance, --ceilings: temperature of both distributions; --ceilings: 0: greedy decoding; where it is "
             "given and above 0, the answers are drawn at it too, else they are greedy"},
    {0}};

typedef enum what {
    NOTHING,
    MODEL,
    DRAFTER,
    LLAMA2C,
    SAFETENSORS,
    DATASET,
    TOKENS,
    TOKENIZER,
    RECIPE,
    STATE,
    RUN,
    RESULTS,
    PROMPTS
} what;

static bool ends(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

// Classifies a JSON file by its members.
static pl_status classify_json(const char *path, what *w, pl_err *err) {
    pl_json j;
    PL_TRY(pl_json_open(&j, path, JSON_MAX, 0, err));
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(j.root, "model");
    if (cJSON_HasObjectItem(j.root, "methods"))
        *w = RESULTS;
    else if (cJSON_HasObjectItem(j.root, "weight_map"))
        *w = SAFETENSORS;
    else if (cJSON_HasObjectItem(j.root, "hidden_size"))
        *w = MODEL;
    else if (cJSON_IsObject(model))
        *w = TOKENIZER;
    else if (cJSON_IsArray(j.root))
        *w = PROMPTS;
    pl_json_close(&j);
    return PL_OK;
}

static pl_status classify_file(const char *path, what *w, pl_err *err) {
    static const struct {
        const char *bytes;
        size_t      n;
        what        w;
    } magic[] = {{"PLSTATE1", 8, STATE}, {"PLTOKENS", 8, TOKENS}, {"\x89HDF\r\n\x1a\n", 8, DATASET}};
    static const struct {
        const char *end;
        what        w;
    } names[] = {
        {".safetensors", SAFETENSORS}, {".yaml", RECIPE},         {".yml", RECIPE},          {".model", TOKENIZER},
        {".tiktoken", TOKENIZER},      {"vocab.json", TOKENIZER}, {"merges.txt", TOKENIZER}, {".gguf", TOKENIZER},
        {".jsonl", PROMPTS},           {".txt", PROMPTS}};
    char head[8] = {0};
    if (pl_path_is_special(path)) return pl_fail(err, PL_E_INPUT, "%s: not a regular file", path);
    FILE *f = fopen(path, "rbe");
    if (!f) return pl_fail_errno(err, "%s", path);
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    *w = NOTHING;
    for (size_t i = 0; i < sizeof magic / sizeof *magic; i++)
        if (n >= magic[i].n && memcmp(head, magic[i].bytes, magic[i].n) == 0) *w = magic[i].w;
    for (size_t i = 0; i < sizeof names / sizeof *names && *w == NOTHING; i++)
        if (ends(path, names[i].end)) *w = names[i].w;
    if (*w == NOTHING && ends(path, ".json")) return classify_json(path, w, err);
    if (*w == NOTHING && ends(path, ".bin")) *w = pl_inspect_is_llama2c(path) ? LLAMA2C : TOKENIZER;
    return PL_OK;
}

static pl_status classify(const char *path, what *w, pl_err *err) {
    static const struct {
        const char *name;
        what        w;
    } sign[] = {{"manifest.json", DATASET},
                {"config.json", MODEL},
                {"recipe.yaml", RUN},
                {"results.json", RUN},
                {"metrics.jsonl", RUN},
                {"checkpoints", RUN},
                {"tokenizer.model", TOKENIZER},
                {"tokenizer.json", TOKENIZER},
                {"vocab.json", TOKENIZER},
                {"tokenizer.bin", TOKENIZER},
                {"tokenizer.gguf", TOKENIZER},
                {"model.safetensors", SAFETENSORS},
                {"model.safetensors.index.json", SAFETENSORS}};
    *w = NOTHING;
    if (!pl_path_exists(path)) return pl_fail(err, PL_E_INPUT, "%s: no such file or folder", path);
    if (!pl_path_is_dir(path)) return classify_file(path, w, err);
    for (size_t i = 0; i < sizeof sign / sizeof *sign && *w == NOTHING; i++) {
        char *file = pl_path_join(path, sign[i].name);
        if (!file) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
        if (pl_path_exists(file)) *w = sign[i].w;
        pl_free(file);
    }
    return PL_OK;
}

static pl_status inspect(pl_json_out *o, const pl_env *env, const char *path, pl_inspect_options opt, pl_err *err) {
    what w;
    PL_TRY(classify(path, &w, err));
    if (w == MODEL) {
        bool drafter;
        PL_TRY(pl_inspect_is_drafter(path, &drafter, err));
        if (drafter) w = DRAFTER;
    }
    switch (w) {
    case MODEL: return pl_inspect_model(o, path, opt, err);
    case DRAFTER: return pl_inspect_drafter(o, path, opt, err);
    case LLAMA2C: return pl_inspect_llama2c(o, path, opt, err);
    case SAFETENSORS: return pl_inspect_safetensors(o, path, opt, err);
    case DATASET: return pl_inspect_dataset(o, path, opt, err);
    case TOKENS: return pl_inspect_tokens(o, path, err);
    case TOKENIZER: return pl_inspect_tokenizer(o, path, opt, err);
    case RECIPE: return pl_inspect_recipe(o, env, path, err);
    case STATE: return pl_inspect_state(o, path, err);
    case RUN: return pl_inspect_run(o, path, err);
    case RESULTS: return pl_inspect_results(o, path, err);
    case PROMPTS: return pl_inspect_prompts(o, path, err);
    case NOTHING: break;
    }
    return pl_fail(err, PL_E_INPUT,
                   "%s: holds nothing known: no model, checkpoint, dataset, tokenizer, recipe, state, run or prompts",
                   path);
}

static pl_status inspect_acceptance(pl_json_out *o, const pl_env *env, const pl_cli_args *a, pl_err *err) {
    pl_inspect_acceptance_options opt = {.drafter = pl_cli_text(a, "drafter"),
                                         .prompts = pl_cli_text(a, "prompts"),
                                         .pre = pl_cli_text(a, "pre"),
                                         .children = (int)pl_cli_int(a, "children"),
                                         .positions = pl_cli_int(a, "positions"),
                                         .temperature = pl_cli_real(a, "temperature"),
                                         .kv = pl_kv_chosen(pl_cli_choice(a, "kv"))};
    if (!opt.drafter) return pl_fail(err, PL_E_USAGE, "--acceptance: needs a --drafter");
    return pl_inspect_acceptance(o, env, a->positional[0], &opt, err);
}

static pl_status inspect_ceilings(pl_json_out *o, const pl_env *env, const pl_cli_args *a, pl_err *err) {
    pl_inspect_ceilings_options opt = {.drafter = pl_cli_text(a, "drafter"),
                                       .prompts = pl_cli_text(a, "prompts"),
                                       .seed = env->seed,
                                       .positions = pl_cli_int(a, "positions"),
                                       .depth = (int)pl_cli_int(a, "depth"),
                                       .n_best = (int)pl_cli_int(a, "top"),
                                       .temperature = pl_cli_real(a, "temperature"),
                                       .sampled = pl_cli_has(a, "temperature") && pl_cli_real(a, "temperature") > 0};
    if (!opt.drafter) return pl_fail(err, PL_E_USAGE, "--ceilings: needs a --drafter");
    pl_target   target;
    const char *path = a->positional[0];
    PL_TRY(pl_target_open(&target, path, NULL, pl_cli_text(a, "pre"), PL_WEIGHTS_AUTO, env->backend, err));
    target.model.shape.kv = pl_kv_chosen(pl_cli_choice(a, "kv"));
    pl_status st = pl_inspect_ceilings(o, env, &target, path, &opt, err);
    pl_target_close(&target);
    return st;
}

static pl_status inspect_mask(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    pl_inspect_mask_options opt = {.tokenizer = pl_cli_text(a, "tokenizer"),
                                   .pre = pl_cli_text(a, "pre"),
                                   .document = pl_cli_int(a, "document"),
                                   .count = pl_cli_int(a, "count")};
    if (!opt.tokenizer) return pl_fail(err, PL_E_USAGE, "--mask: needs --tokenizer, the target's folder");
    if (env->json) pl_put_str(env->result, "path", a->positional[0]);
    return pl_inspect_mask(env, a->positional[0], &opt, err);
}

// Refuses options that the selected mode does not read.
static pl_status check_usage(const pl_cli_args *a, pl_err *err) {
    static const struct {
        const char *name;
        bool        acceptance, ceilings, mask; // modes that read it
    } of[] = {{"drafter", true, true, false},    {"prompts", true, true, false},   {"children", true, false, false},
              {"positions", true, true, false},  {"depth", false, true, false},    {"temperature", true, true, false},
              {"top", false, true, false},       {"document", false, false, true}, {"count", false, false, true},
              {"tokenizer", false, false, true}, {"kv", true, true, false}};
    bool   acceptance = pl_cli_has(a, "acceptance"), ceilings = pl_cli_has(a, "ceilings"), mask = pl_cli_has(a, "mask");
    double t = pl_cli_real(a, "temperature");
    if (acceptance + ceilings + mask > 1)
        return pl_fail(err, PL_E_USAGE, "--acceptance, --ceilings and --mask: one at a time");
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (pl_cli_has(a, of[i].name) && !(acceptance && of[i].acceptance) && !(ceilings && of[i].ceilings) &&
            !(mask && of[i].mask))
            return pl_fail(err, PL_E_USAGE, "--%s: needs %s%s%s", of[i].name,
                           of[i].acceptance ? "--acceptance"
                           : of[i].mask     ? "--mask"
                                            : "",
                           of[i].acceptance && of[i].ceilings ? " or " : "", of[i].ceilings ? "--ceilings" : "");
    if (acceptance && t < COLDEST)
        return pl_fail(err, PL_E_USAGE, "--temperature %g: --acceptance needs at least %g", t, COLDEST);
    if (t != 0 && t < COLDEST)
        return pl_fail(err, PL_E_USAGE, "--temperature %g: must be 0 (greedy) or at least %g", t, COLDEST);
    return PL_OK;
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    PL_TRY(check_usage(a, err));
    if (pl_cli_has(a, "mask")) return inspect_mask(env, a, err);
    pl_json_out        local, *o = pl_show_begin(env, &local);
    pl_inspect_options opt = {
        .full_hash = pl_cli_has(a, "full-hash"), .tensors = pl_cli_has(a, "tensors"), .pre = pl_cli_text(a, "pre")};
    pl_put_str(o, "path", a->positional[0]);
    pl_status st = pl_cli_has(a, "acceptance") ? inspect_acceptance(o, env, a, err)
                   : pl_cli_has(a, "ceilings") ? inspect_ceilings(o, env, a, err)
                                               : inspect(o, env, a->positional[0], opt, err);
    if (st == PL_OK) return pl_show_end(env, &local, err);
    pl_show_abort(&local);
    return st;
}

static bool find_model(const pl_cli_args *a, const char **model, pl_dtype *weights) {
    (void)weights;
    *model = a->positional[0];
    return pl_cli_has(a, "acceptance") || pl_cli_has(a, "ceilings");
}

const pl_command pl_command_inspect = {
    .name = "inspect",
    .summary = "shows what a model, checkpoint, dataset, tokenizer, recipe, training state or run holds",
    .positional = "PATH",
    .min_positional = 1,
    .max_positional = 1,
    .options = options,
    .about =
        "Finds out by itself what PATH is.\n"
        "\n"
        "--mask: PATH is a dataset. Shows a document as text, special tokens spelt out: what the target wrote, from\n"
        "which a drafter learns, in colour (in brackets, where the output is no terminal or NO_COLOR is set), the\n"
        "prompt before it dim.\n"
        "\n"
        "--acceptance: PATH is a target. Decodes with it, computes at every position how often each verifier\n"
        "would accept one of 1 to N children that the --drafter proposes, and beside it the most that any\n"
        "verifier could (bound). error is the largest standard error of a row that is estimated by drawing; 0:\n"
        "the row is computed.\n"
        "\n"
        "--ceilings: PATH is a target, with distribution p; the draft head proposes from q. By depth of the\n"
        "draft: support, how many tokens the head may propose; achieved, the mean of sum min(p, q); ceiling, p\n"
        "of the support, which no q over it can exceed; oracle, p of as many of the target's best tokens;\n"
        "recall_target_best, how often the target's best token is in the support. For a head that leaves rows\n"
        "unread, against the same head with all its rows: recall_head_best and recall_head_top, how often its\n"
        "best token and all of its --top best are in the support; retained, the share of its distribution that\n"
        "is. With --temperature 0, greedy decoding: achieved is how often the head's best token is the target's\n"
        "best, ceiling how often the target's best token is in the support.",
    .example = "paceline inspect runs/first/checkpoints/best",
    .devices = true,
    .runs = find_model,
    .run = run,
};

// `paceline inspect PATH`: what a path holds.
#include "checkpoints/gguf_model.h"
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

static const pl_key options[] = {
    {PL_OPTION_FLAG("full-hash"),
     .help = "reads everything: fingerprint of all bytes, every checksum, how many rows of a dataset are answers"},
    {PL_OPTION_FLAG("tensors"), .help = "lists a model's tensors too"},
    PL_OPTION_PRE,
    {PL_OPTION_FLAG("mask"),
     .help = "PATH is a dataset: a document's text, what is learned of it in colour, or in brackets"},
    {PL_OPTION_TEXT("tokenizer", "T"), .help = "--mask: the target's folder or its tokenizer"},
    {PL_OPTION_INT("document", "I"), .deflt = "0", .min = 0, .max = 1LL << 50,
     .help = "--mask: which document, counted from 0"},
    {PL_OPTION_INT("count", "N"), .deflt = "1", .min = 1, .max = 1LL << 50, .help = "--mask: documents shown"},
    {PL_OPTION_FLAG("acceptance"),
     .help = "PATH is a target: how often each verifier accepts, beside the most that any could"},
    {PL_OPTION_FLAG("ceilings"),
     .help = "PATH is a target: what a draft head's choice of tokens lets through, by depth"},
    {PL_OPTION_TEXT("drafter", "DIR"), .help = "--acceptance, --ceilings: the draft head's checkpoint"},
    PL_OPTION_KV("--acceptance, --ceilings: "),
    {PL_OPTION_TEXT("prompts", "F"), .help = "--acceptance, --ceilings: texts to go on with [the target's own]"},
    {PL_OPTION_INT("children", "N"), .deflt = "4", .min = 1, .max = PL_ACCEPTANCE_CHILDREN,
     .help = "--acceptance: drafted tokens at a node, 1 to N"},
    {PL_OPTION_INT("positions", "N"), .deflt = "200", .min = 1, .max = 1 << 24,
     .help = "--acceptance, --ceilings: places of the text looked at"},
    {PL_OPTION_INT("depth", "D"), .deflt = "4", .min = 1, .max = PL_CEILINGS_DEPTH,
     .help = "--ceilings: tokens drafted at a time"},
    {PL_OPTION_INT("top", "N"), .deflt = "4", .min = 1, .max = 1024,
     .help = "--ceilings: the whole head's best tokens that recall_head_top asks for"},
    {PL_OPTION_REAL("temperature", "T"), .deflt = "1", .min = 0, .max = 1000,
     .help = "--acceptance, --ceilings: temperature of both distributions; --ceilings: 0: greedy decoding; where it is "
             "given and above 0, the answers are drawn at it too, else they are greedy"},
    {0}};

// Finds how a JSON file is shown, by its members; *show NULL: it is of no known kind.
static pl_status classify_json(const char *path, pl_inspect_fn **show, pl_err *err) {
    pl_json j;
    PL_TRY(pl_json_open(&j, path, JSON_MAX, 0, err));
    if (cJSON_HasObjectItem(j.root, "methods"))
        *show = pl_inspect_results;
    else if (cJSON_HasObjectItem(j.root, "weight_map"))
        *show = pl_inspect_safetensors;
    else if (cJSON_HasObjectItem(j.root, "hidden_size"))
        *show = pl_inspect_model;
    else if (cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(j.root, "model")))
        *show = pl_inspect_tokenizer;
    else if (cJSON_IsArray(j.root))
        *show = pl_inspect_prompts;
    pl_json_close(&j);
    return PL_OK;
}

static pl_status classify_file(const char *path, pl_inspect_fn **show, pl_err *err) {
    static const struct {
        const char    *bytes;
        pl_inspect_fn *show;
    } magic[] = {
        {"PLSTATE1", pl_inspect_state}, {"PLTOKENS", pl_inspect_tokens}, {"\x89HDF\r\n\x1a\n", pl_inspect_dataset}};
    static const struct {
        const char    *end;
        pl_inspect_fn *show;
    } names[] = {{".safetensors", pl_inspect_safetensors},
                 {".yaml", pl_inspect_recipe},
                 {".yml", pl_inspect_recipe},
                 {".model", pl_inspect_tokenizer},
                 {".tiktoken", pl_inspect_tokenizer},
                 {"vocab.json", pl_inspect_tokenizer},
                 {"merges.txt", pl_inspect_tokenizer},
                 {".gguf", pl_inspect_gguf},
                 {".jsonl", pl_inspect_prompts},
                 {".txt", pl_inspect_prompts},
                 {".bin", pl_inspect_bin}};
    char head[8] = {0};
    if (pl_path_is_special(path)) return pl_fail(err, PL_E_INPUT, "%s: not a regular file", path);
    FILE *f = fopen(path, "rbe");
    if (!f) return pl_fail_errno(err, "%s", path);
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    for (size_t i = 0; i < sizeof magic / sizeof *magic && n == sizeof head; i++)
        if (memcmp(head, magic[i].bytes, sizeof head) == 0) *show = magic[i].show;
    for (size_t i = 0; i < sizeof names / sizeof *names && !*show; i++)
        if (pl_path_ends(path, names[i].end)) *show = names[i].show;
    return !*show && pl_path_ends(path, ".json") ? classify_json(path, show, err) : PL_OK;
}

static pl_status classify(const char *path, pl_inspect_fn **show, pl_err *err) {
    static const struct {
        const char    *name;
        pl_inspect_fn *show;
    } sign[] = {{"manifest.json", pl_inspect_dataset},
                {"config.json", pl_inspect_model},
                {"recipe.yaml", pl_inspect_run},
                {"results.json", pl_inspect_run},
                {"metrics.jsonl", pl_inspect_run},
                {"checkpoints", pl_inspect_run},
                {"tokenizer.model", pl_inspect_tokenizer},
                {"tokenizer.json", pl_inspect_tokenizer},
                {"vocab.json", pl_inspect_tokenizer},
                {"tokenizer.bin", pl_inspect_tokenizer},
                {"tokenizer.gguf", pl_inspect_tokenizer},
                {"model.safetensors", pl_inspect_safetensors},
                {"model.safetensors.index.json", pl_inspect_safetensors}};
    *show = NULL;
    if (!pl_path_exists(path)) return pl_fail(err, PL_E_INPUT, "%s: no such file or folder", path);
    if (!pl_path_is_dir(path)) return classify_file(path, show, err);
    for (size_t i = 0; i < sizeof sign / sizeof *sign && !*show; i++) {
        char *file = pl_path_join(path, sign[i].name);
        if (!file) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
        if (pl_path_exists(file)) *show = sign[i].show;
        pl_free(file);
    }
    if (*show) return PL_OK;
    char *model;
    PL_TRY(pl_gguf_model_find(&model, path, err));
    if (model) *show = pl_inspect_gguf;
    pl_free(model);
    return PL_OK;
}

static pl_status inspect(pl_json_out *o, const pl_env *env, const pl_cli_args *a, pl_err *err) {
    const char        *path = a->positional[0];
    pl_inspect_fn     *show;
    pl_inspect_options opt = {.env = env,
                              .full_hash = pl_cli_has(a, "full-hash"),
                              .tensors = pl_cli_has(a, "tensors"),
                              .pre = pl_cli_text(a, "pre")};
    PL_TRY(classify(path, &show, err));
    if (show) return show(o, path, &opt, err);
    return pl_fail(err, PL_E_INPUT,
                   "%s: holds nothing known: no model, checkpoint, dataset, tokenizer, recipe, state, run or prompts",
                   path);
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

// Refuses options that the selected mode does not read.
static pl_status check_usage(const pl_cli_args *a, pl_err *err) {
    static const char *const modes[] = {"--acceptance", "--ceilings", "--mask"}, both[] = "--acceptance or --ceilings";
    const struct {
        const char *name, *modes; // modes that read it
    } of[] = {
        {"drafter", both},     {"prompts", both}, {"children", modes[0]}, {"positions", both}, {"depth", modes[1]},
        {"temperature", both}, {"top", modes[1]}, {"document", modes[2]}, {"count", modes[2]}, {"tokenizer", modes[2]},
        {"kv", both}};
    const char *mode = NULL;
    double      t = pl_cli_real(a, "temperature");
    for (int i = 0; i < 3; i++) {
        if (!pl_cli_has(a, modes[i] + 2)) continue;
        if (mode) return pl_fail(err, PL_E_USAGE, "--acceptance, --ceilings and --mask: one at a time");
        mode = modes[i];
    }
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (pl_cli_has(a, of[i].name) && !(mode && strstr(of[i].modes, mode)))
            return pl_fail(err, PL_E_USAGE, "--%s: needs %s", of[i].name, of[i].modes);
    if (mode == modes[0] && t < COLDEST)
        return pl_fail(err, PL_E_USAGE, "--temperature %g: --acceptance needs at least %g", t, COLDEST);
    if (t != 0 && t < COLDEST)
        return pl_fail(err, PL_E_USAGE, "--temperature %g: must be 0 (greedy) or at least %g", t, COLDEST);
    return PL_OK;
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    PL_TRY(check_usage(a, err));
    if (pl_cli_has(a, "mask")) return pl_inspect_mask(env, a, err);
    pl_json_out local, *o = pl_show_begin(env, &local);
    pl_put_str(o, "path", a->positional[0]);
    pl_status st = pl_cli_has(a, "acceptance") ? pl_inspect_acceptance(o, env, a, err)
                   : pl_cli_has(a, "ceilings") ? inspect_ceilings(o, env, a, err)
                                               : inspect(o, env, a, err);
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

// `paceline prompts`: pl_own_prompts_write with its settings from the command line.
#include "infer/cli/cli.h"
#include "infer/command/chat.h"
#include "infer/generate/own_prompts.h"
#include "kernels/base/json.h"

static const pl_key options[] = {
    {PL_OPTION_TEXT("target", "MODEL"), .help = "the model that asks: a folder or a .gguf file"},
    {PL_OPTION_TEXT("tokenizer", "PATH"), .help = "its tokenizer [the model's own]"},
    PL_OPTION_PRE,
    {PL_OPTION_TEXT("out", "F.jsonl"), .letter = 'o', .help = "the file of prompts; an unfinished one is continued"},
    {PL_OPTION_INT("count", "N"), .letter = 'n', .deflt = "1000", .min = 1, .max = PL_OWN_PROMPTS_MOST,
     .help = "prompts in it"},
    {PL_OPTION_REAL("temperature", "T"), .deflt = "1", .min = 0.01, .max = 1000, .help = "of the samples"},
    {PL_OPTION_REAL("top-p", "P"), .deflt = "0.99", .min = 0.01, .max = 1, .help = "of the samples"},
    {PL_OPTION_INT("min-tokens", "N"), .deflt = "4", .min = 1, .max = 1000000, .help = "shorter ones are left out"},
    {PL_OPTION_INT("max-tokens", "N"), .deflt = "256", .min = 1, .max = 1000000,
     .help = "longer ones are left out; a base model's are cut there"},
    {PL_OPTION_INT("sessions", "N"), .deflt = "32", .min = 1, .max = 4096, .help = "sampled at a time"},
    {PL_OPTION_FLAG("base"), .help = "continue from BOS, although the model has a chat template"},
    {PL_OPTION_TEXT("system", "TEXT"), .help = "a system message before the user's"},
    PL_CHAT_CLI_OPTIONS,
    {0}};

static void report(const pl_own_prompts_result *r, const char *path, const pl_env *env) {
    if (env->json) {
        pl_put_str(env->result, "file", path);
        pl_put_int(env->result, "prompts", r->prompts);
        pl_put_int(env->result, "sampled", r->sampled);
        pl_put_int(env->result, "repeated", r->repeated);
        pl_put_int(env->result, "without_end", r->open_ended);
        pl_put_int(env->result, "too_short", r->too_short);
        pl_put_int(env->result, "with_special_tokens", r->marked);
    } else {
        fprintf(env->text, "%s: %lld prompts of %lld samples\n", path, (long long)r->prompts, (long long)r->sampled);
    }
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    char                  now[PL_CHAT_NOW];
    pl_own_prompts_result r;
    pl_own_prompts        o = {.target = pl_cli_text(a, "target"),
                               .tokenizer = pl_cli_text(a, "tokenizer"),
                               .pre = pl_cli_text(a, "pre"),
                               .form = pl_cli_has(a, "base") ? PL_OWN_BASE : PL_OWN_ANY,
                               .template = pl_cli_text(a, "chat-template"),
                               .kwargs = pl_cli_text(a, "chat-kwargs"),
                               .date = pl_chat_cli_date(a, now),
                               .system = pl_cli_text(a, "system"),
                               .path = pl_cli_text(a, "out"),
                               .count = pl_cli_int(a, "count"),
                               .temperature = pl_cli_real(a, "temperature"),
                               .top_p = pl_cli_real(a, "top-p"),
                               .min_tokens = pl_cli_int(a, "min-tokens"),
                               .max_tokens = pl_cli_int(a, "max-tokens"),
                               .sessions = (int)pl_cli_int(a, "sessions"),
                               .seed = env->seed};
    if (!o.target) return pl_fail(err, PL_E_USAGE, "--target: is missing; it names the model that asks");
    if (!o.path) return pl_fail(err, PL_E_USAGE, "--out: is missing; it names the file of prompts");
    PL_TRY(pl_own_prompts_write(&r, &o, env, err));
    report(&r, o.path, env);
    return PL_OK;
}

static bool find_model(const pl_cli_args *a, const char **model, pl_dtype *weights) {
    (void)weights;
    *model = pl_cli_text(a, "target");
    return true;
}

const pl_command pl_command_prompts = {
    .name = "prompts",
    .summary = "makes a file of prompts: the target writes what its users would ask",
    .options = options,
    .about =
        "For data.prompts where there are no prompts: a chat model's template is rendered up to a user's message,\n"
        "which the model samples (Magpie, arXiv 2406.08464); a base model continues from BOS. Prompts differ, end\n"
        "by themselves (a base model's are cut) and hold no special tokens. Beside the file lies F.jsonl.settings.\n"
        "A stopped run goes on with the same command, a larger --count extends the file.\n"
        "A recipe with data.prompts: self:N makes such a file in its own folder.",
    .example = "paceline prompts --target checkpoints/tiny --out prompts.jsonl --count 100",
    .devices = true,
    .runs = find_model,
    .parts = true,
    .run = run,
};

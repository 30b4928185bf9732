// `paceline export`: a trained drafter as a serving engine reads it.
#include "infer/export/export.h"
#include "infer/cli/cli.h"
#include "infer/cli/show.h"
#include "kernels/base/arena.h"
#include "kernels/base/json.h"

#include <string.h>

static const pl_key options[] = {
    {PL_OPTION_TEXT("to", "ENGINE"), .help = "what is to serve it: a name of the list below"},
    {PL_OPTION_TEXT("out", "DIR"), .letter = 'o',
     .help = "the folder to write: a new or an empty one, or an earlier export"},
    {PL_OPTION_CHOICE("weights", "stored", "fp32"), .deflt = "stored",
     .help = "gguf: matrices as the checkpoint has them, or in fp32"},
    {PL_OPTION_TEXT("target", "DIR|FILE"),
     .help =
         "its target: checked against it, named in the command that serves both; speculators copies its embeddings"},
    {0}};

static void list_engines(FILE *f) {
    fprintf(f, "Engines (--to):\n");
    for (int i = 0; pl_export_engine_at(i); i++)
        fprintf(f, "  %-14s %s\n", pl_export_engine_at(i)->name, pl_export_engine_at(i)->help);
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    const char *to = pl_cli_text(a, "to"), *out = pl_cli_text(a, "out");
    char       *serve;
    if (!to) return pl_fail(err, PL_E_USAGE, "--to: is missing; paceline export --help lists the engines");
    if (!out) return pl_fail(err, PL_E_USAGE, "--out: is missing; name a folder to write");
    const pl_export_engine *engine = pl_export_engine_find(to, err);
    if (!engine) return PL_E_USAGE;
    PL_TRY(pl_export_write(engine, a->positional[0], pl_cli_text(a, "target"), out,
                           strcmp(pl_cli_text(a, "weights"), "fp32") == 0, env, &serve, err));
    pl_json_out local, *o = pl_show_begin(env, &local);
    pl_put_str(o, "out", out);
    pl_put_str(o, "engine", to);
    pl_put_str(o, "serve", serve);
    pl_free(serve);
    return pl_show_end(env, &local, err);
}

const pl_command pl_command_export = {
    .name = "export",
    .summary = "writes a trained EAGLE-3, P-EAGLE, DFlash or DSpark drafter as a serving engine reads it",
    .positional = "CHECKPOINT",
    .min_positional = 1,
    .max_positional = 1,
    .options = options,
    .about = "Names of tensors, numbers of the target's layers, the map of a trimmed vocabulary and every field of\n"
             "config.json are the engine's; a low-rank head is multiplied out, its factors stand beside. The command\n"
             "that serves the drafter with its target is printed and written to serve.sh (trtllm: with trtllm.yaml,\n"
             "which it reads). gguf: one file, with the vocabulary of the served target's .gguf. Refused are\n"
             "routed and SpecVocab heads, selectors behind EAGLE-3's heads, EAGLE-1 and language models, and what the\n"
             "engine does not serve.",
    .lists = list_engines,
    .example = "paceline export runs/first/drafters/eagle3-full/checkpoints/best --to vllm --target checkpoints/tiny "
               "--out runs/export",
    .run = run};

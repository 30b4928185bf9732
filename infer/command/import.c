// `paceline import`: a published drafter as this program holds one.
#include "infer/import/import.h"
#include "infer/cli/cli.h"
#include "infer/cli/show.h"
#include "kernels/base/json.h"

#include <string.h>

static const pl_key options[] = {
    {PL_OPTION_TEXT("target", "DIR|FILE"), .help = "the target that it was trained for; checked against it"},
    {PL_OPTION_TEXT("out", "CKPT"), .letter = 'o', .help = "the checkpoint to write: a new or an empty folder"},
    {PL_OPTION_CHOICE("numbering", "input", "output"),
     .help = "how its config.json counts the target's layers, where that is known better than by its format"},
    {0}};

static void list_formats(FILE *f) {
    fprintf(f, "Formats:\n");
    for (int i = 0; pl_import_format_at(i); i++)
        fprintf(f, "  %-12s %s\n", pl_import_format_at(i)->name, pl_import_format_at(i)->help);
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    pl_import_options o = {.dir = a->positional[0], .target = pl_cli_text(a, "target"), .out = pl_cli_text(a, "out")};
    pl_import_told    told;
    const char       *numbering = pl_cli_text(a, "numbering");
    if (!o.target) return pl_fail(err, PL_E_USAGE, "--target: is missing; name the folder of its target");
    if (!o.out) return pl_fail(err, PL_E_USAGE, "--out: is missing; name a folder to write");
    if (numbering) o.numbering = strcmp(numbering, "input") == 0 ? PL_HF_TAPS_INPUT : PL_HF_TAPS_OUTPUT;
    PL_TRY(pl_import(&o, &told, err));
    pl_json_out local, *j = pl_show_begin(env, &local);
    pl_put_str(j, "out", o.out);
    pl_put_str(j, "format", told.format);
    pl_put_str(j, "head", told.head);
    pl_put_int(j, "rows", told.rows);
    pl_put_str(j, "draft_vocabulary", told.map);
    pl_put_bool(j, "own_embeddings", told.own_embed);
    if (told.n_taps) {
        pl_put_array(j, "layer_inputs");
        for (int i = 0; i < told.n_taps; i++)
            pl_json_out_int(j, told.tap[i]);
        pl_json_out_close(j, ']');
        pl_put_str(j, "numbering_by", told.numbering);
    }
    return pl_show_end(env, &local, err);
}

const pl_command pl_command_import = {
    .name = "import",
    .summary = "reads a published EAGLE-3, EAGLE-1, DFlash or DSpark drafter into a checkpoint",
    .positional = "DIR",
    .min_positional = 1,
    .max_positional = 1,
    .options = options,
    .about =
        "The checkpoint decodes (decode --drafter), is evaluated, trained on (drafter.start) and exported as one that\n"
        "was trained here. The layers of the target that it reads are written out as inputs, counted from 0; by\n"
        "what they were counted is told: the option, the file itself, its format, or nothing (\"default\": the file\n"
        "names none, and the three of the paper are meant). A count that is off by one drafts badly and says\n"
        "nothing: compare acceptance with --numbering input and output where in doubt. Embeddings and output\n"
        "matrices that are copies of the target's are left out. Other kinds of drafters are refused by name.",
    .lists = list_formats,
    .example = "paceline import published/eagle3 --target MODEL --out runs/imported",
    .run = run};

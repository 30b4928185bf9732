// `paceline check`: whether an engine would serve a drafter as it was trained.
#include "infer/cli/cli.h"
#include "infer/export/export.h"
#include "kernels/base/json.h"

static const pl_key options[] = {
    {PL_OPTION_TEXT("for", "ENGINE"), .help = "what is to serve it: a name of the list below"},
    {PL_OPTION_TEXT("target", "DIR|FILE"),
     .help = "the target that it is served with (gguf: its .gguf file); without it some rules cannot be told"},
    {0}};

static void list_engines(FILE *f) {
    fprintf(f, "Engines (--for):\n");
    for (int i = 0; pl_export_engine_at(i); i++)
        fprintf(f, "  %-14s %s\n", pl_export_engine_at(i)->name, pl_export_engine_at(i)->help);
}

// Output state; the first broken rule becomes the error message.
typedef struct telling {
    const pl_env *env;
    char          rule[40], why[256];
} telling;

static void tell(void *arg, const char *name, const char *help, pl_check_verdict v, const char *why) {
    static const char *const verdicts[] = {
        [PL_CHECK_HOLDS] = "holds", [PL_CHECK_BROKEN] = "broken", [PL_CHECK_UNSEEN] = "unseen"};
    telling *t = arg;
    if (v == PL_CHECK_BROKEN && !*t->rule) {
        snprintf(t->rule, sizeof t->rule, "%s", name);
        snprintf(t->why, sizeof t->why, "%s", why);
    }
    if (!t->env->json) {
        fprintf(t->env->text, "%-7s %-15s %s\n", verdicts[v], name, v == PL_CHECK_HOLDS ? help : why);
        return;
    }
    pl_json_out *o = t->env->result;
    pl_json_out_object(o);
    pl_put_str(o, "rule", name);
    pl_put_str(o, "says", help);
    pl_put_str(o, "verdict", verdicts[v]);
    if (v != PL_CHECK_HOLDS) pl_put_str(o, "why", why);
    pl_json_out_close(o, '}');
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    const char    *name = pl_cli_text(a, "for"), *dir = a->positional[0];
    telling        t = {.env = env};
    pl_check_count n;
    if (!name) return pl_fail(err, PL_E_USAGE, "--for: is missing; paceline check --help lists the engines");
    const pl_export_engine *engine = pl_export_engine_find(name, err);
    if (!engine) return PL_E_USAGE;
    if (env->json) pl_put_str(env->result, "engine", name);
    if (env->json) pl_put_array(env->result, "rules");
    PL_TRY(pl_check_folder(engine, dir, pl_cli_text(a, "target"), tell, &t, &n, err));
    if (env->json) {
        pl_json_out_close(env->result, ']');
        pl_put_int(env->result, "broken", n.broken);
        pl_put_int(env->result, "unseen", n.unseen);
    } else {
        fprintf(env->text, "%d rules, %d broken, %d that cannot be told; %s itself was not run\n", n.rules, n.broken,
                n.unseen, name);
    }
    if (n.broken == 0) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: %s would not serve this as it was trained: %s: %s%s", dir, name, t.rule, t.why,
                   n.broken > 1 ? " (and more)" : "");
}

const pl_command pl_command_check = {
    .name = "check",
    .summary = "tells by rules whether an engine would serve a drafter as it was trained",
    .positional = "DIR",
    .min_positional = 1,
    .max_positional = 1,
    .options = options,
    .about =
        "DIR holds an EAGLE-3, DFlash or DSpark drafter as an engine reads it: an export of this program or anybody "
        "else's (gguf:\n"
        "the file, or a folder with drafter.gguf). Each rule is a way in which such drafters fail to load or, worse,\n"
        "load and draft badly. Exit code 2 where one is broken. The engine is not run: what holds here can still fail\n"
        "there.",
    .lists = list_engines,
    .verdict = true,
    .example = "paceline check runs/export --for vllm --target checkpoints/tiny",
    .run = run};

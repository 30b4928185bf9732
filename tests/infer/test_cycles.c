// `plan` and `bench decode` time the same cycle: with the same options, what each of them opens and runs is equal.
#include "infer/bench/cycle.h"
#include "infer/cli/cli.h"
#include "kernels/base/check.h"
#include "kernels/base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 64, TEXT = 256 };

extern const pl_command pl_command_plan, pl_command_bench;

pl_status __real_pl_cycles_open(pl_cycles **out, const pl_backend *be, pl_pool *pool, const pl_cycle_options *o,
                                pl_err *err);
pl_status __wrap_pl_cycles_open(pl_cycles **out, const pl_backend *be, pl_pool *pool, const pl_cycle_options *o,
                                pl_err *err);
pl_status __real_pl_cycles_run(pl_cycles *c, int steps, bool apart, void (*add)(void *arg, const pl_cycle_sample *s),
                               void *arg, pl_err *err);
pl_status __wrap_pl_cycles_run(pl_cycles *c, int steps, bool apart, void (*add)(void *arg, const pl_cycle_sample *s),
                               void *arg, pl_err *err);

static struct {
    pl_cycles       *c;
    pl_cycle_options o;
} opened[MOST];
static int  n_opened, n_run;
static char run[4 * MOST][TEXT]; // counted runs in words

pl_status __wrap_pl_cycles_open(pl_cycles **out, const pl_backend *be, pl_pool *pool, const pl_cycle_options *o,
                                pl_err *err) {
    pl_status st = __real_pl_cycles_open(out, be, pool, o, err);
    PL_CHECK(n_opened < MOST, "%d cycles", n_opened);
    opened[n_opened].c = *out;
    opened[n_opened++].o = *o;
    return st;
}

static void describe(char text[TEXT], const pl_cycles *c, const pl_cycle_options *o) {
    char                  tree[PL_TREE_TEXT] = "none";
    const pl_tree_policy *p = c->drafter ? &c->drafter->policy : NULL;
    const pl_head        *h = o->backbone ? &o->backbone->head : NULL;
    if (p && p->shape_n)
        pl_tree_shape_text(p, tree, sizeof tree);
    else if (p)
        snprintf(tree, sizeof tree, "%s", p->text);
    snprintf(text, TEXT,
             "%d layers, %s keys, %d sessions of %d tokens at %g, %s caches; head %s, rank %lld of %lld; tree %.40s, "
             "k %d, %d of %d levels accepted, %s",
             o->target->n_layers, pl_weights_name(o->target->shape.kv), c->batch, c->context, o->temperature,
             o->caches ? "shared" : "own", h ? h->kind->name : "none", h ? (long long)h->rank : 0,
             h ? (long long)h->vocab : 0, tree, p ? p->k : 0, c->accepts, p ? p->depth : 0,
             p && c->drafter->by_level ? "by level" : "whole");
}

pl_status __wrap_pl_cycles_run(pl_cycles *c, int steps, bool apart, void (*add)(void *arg, const pl_cycle_sample *s),
                               void *arg, pl_err *err) {
    pl_status st = __real_pl_cycles_run(c, steps, apart, add, arg, err);
    int       i = n_opened - 1;
    while (i > 0 && opened[i].c != c)
        i--;
    if (steps > 0 && n_run < 4 * MOST) describe(run[n_run++], c, &opened[i].o);
    return st;
}

static void run_command(const pl_command *command, const char *args) {
    char        words[TEXT], *argv[32], *rest = NULL;
    int         argc = 0, at = 0;
    pl_cli_args a = {.table = {command->options}};
    pl_json_out o = {0};
    pl_env      env = {.backend = pl_backend_cpu(), .threads = 1, .quiet = true, .json = true, .result = &o, .seed = 1};
    pl_err      err = {0};
    n_opened = n_run = 0;
    snprintf(words, sizeof words, "%s", args);
    for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        argv[argc++] = w;
    if (pl_cli_parse(&a, argc, argv, &at, false, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    if (command->run(&env, &a, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_free(o.text);
    pl_cli_args_fini(&a);
}

static bool was_run(const char *text) {
    bool found = false;
    for (int i = 0; i < n_run; i++)
        found |= strcmp(run[i], text) == 0;
    return found;
}

static void test_same(void **state) {
    (void)state;
    static const char *const both[] = {"--shape tiny", "--shape tiny --layers 1 --context 40 --kv bf16"};
    static const char *const least[] = {"2 layers, fp32 keys, 1 sessions of 128 tokens at 0",
                                        "1 layers, bf16 keys, 1 sessions of 40 tokens at 0"};
    for (int i = 0; i < 2; i++) {
        char args[TEXT], plain[TEXT] = "", chain[TEXT] = "";
        snprintf(args, sizeof args, "%s --tree chain:7 --heads none --seconds 0", both[i]);
        run_command(&pl_command_plan, args);
        for (int k = 0; k < n_run; k++) {
            if (strstr(run[k], "tree none")) memcpy(plain, run[k], TEXT);
            if (strstr(run[k], "tree chain:7")) memcpy(chain, run[k], TEXT);
        }
        assert_true(strncmp(plain, least[i], strlen(least[i])) == 0);
        assert_non_null(
            strstr(chain, "head full, rank 64 of 600; tree chain:7, k 1, 3 of 7 levels accepted, by level"));
        snprintf(args, sizeof args, "decode %s --repeats 1 --new-tokens 2", both[i]);
        run_command(&pl_command_bench, args);
        if (!was_run(plain)) fail_msg("bench does not run \"%s\"", plain);
        if (!was_run(chain)) fail_msg("bench does not run \"%s\"", chain);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Which drafter, tree and verifier combine: infer/README.md's table against what opens. Prints the table.
#include "tests/infer/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { V = 24, LEN = 48 };

static const char *const pieces[] = {"a", "b", "ab", "ba", "aba", NULL};
static const char *const merges[] = {"a b", "b a", "ab a", NULL};
static const char *const trees[] = {"chain:3", "static:2x1", "eagle2:12,3,3", "chain:auto", "auto"};
enum { TREES = sizeof trees / sizeof *trees };

typedef struct world {
    char          dir[64], delta[64], eagle3[64], eagle1[64], dflash[64], peagle[64], medusa[64], hydra[64], texts[96];
    pl_llama      target, own; // own: has a layer for drafting
    pl_tokenizer *tok;
} world;

static void open_world(world *w) {
    pl_err err = {0};
    *w = (world){0};
    test_target_sized(&w->target, test_mkdir(w->dir), 4, V, 23, PL_BF16);
    test_target_family(&w->own, test_mkdir(w->delta), "Qwen3_5", 3, 24, PL_BF16);
    test_tokenizer_write(w->dir, pieces, merges);
    assert_int_equal(pl_tokenizer_open(&w->tok, w->dir, &err), PL_OK);
    test_backbone_write(test_mkdir(w->eagle3), &w->target, &pl_backbone_eagle3, &(pl_backbone_options){0}, 3);
    test_backbone_write(test_mkdir(w->eagle1), &w->target, &pl_backbone_eagle1, &(pl_backbone_options){0}, 4);
    test_backbone_write(test_mkdir(w->dflash), &w->target, &pl_backbone_dflash,
                        &(pl_backbone_options){.layers = 1, .block = 4, .mask_token = 3}, 5);
    test_backbone_write(test_mkdir(w->peagle), &w->target, &pl_backbone_peagle,
                        &(pl_backbone_options){.block = 4, .mask_token = 3}, 6);
    test_backbone_write(test_mkdir(w->medusa), &w->target, &pl_backbone_medusa, &(pl_backbone_options){.block = 4}, 7);
    test_backbone_write(test_mkdir(w->hydra), &w->target, &pl_backbone_hydrapp, &(pl_backbone_options){.block = 4}, 8);
    snprintf(w->texts, sizeof w->texts, "%s/texts.txt", w->dir);
    FILE *f = fopen(w->texts, "w");
    assert_non_null(f);
    fputs("abaabbaab\n", f);
    fclose(f);
}

static bool opens(const world *w, const char *what, const char *tree, const pl_verifier *v) {
    pl_err             err = {0};
    pl_drafter        *d;
    pl_engine         *e;
    bool               own = strcmp(what, "mtp") == 0;
    const pl_llama    *target = own ? &w->own : &w->target;
    pl_drafter_options o = {.target = target,
                            .dtype = PL_BF16,
                            .tree = tree,
                            .max_sessions = 1,
                            .max_rows = 128,
                            .slots = LEN,
                            .tok = own ? NULL : w->tok};
    pl_status          st = pl_drafter_open(&d, what, &o, &err);
    if (st == PL_OK) {
        st = pl_engine_create(&e, pl_backend_cpu(), NULL, target, d,
                              &(pl_engine_options){.max_sessions = 1, .max_rows = 128, .max_len = LEN, .verifier = v},
                              &err);
        if (st == PL_OK) pl_engine_destroy(e);
        pl_drafter_destroy(d);
    }
    if (st != PL_OK && st != PL_E_USAGE) fail_msg("%s, %s, %s: %s", what, tree, v->name, err.msg);
    if (st != PL_OK) assert_true(*err.msg && !strchr(err.msg, '\n')); // refused by name
    return st == PL_OK;
}

// What a cell says of the verifiers that it takes.
static const char *cell(const world *w, const char *what, const char *tree) {
    unsigned takes = 0, every = 0, matching = 0, no_chains = 0, iid = 0, wor = 0;
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        bool               top = v->proposal == PL_PROPOSE_TOP;
        every |= 1u << i;
        if (top) matching |= 1u << i;
        if (!v->chain) no_chains |= 1u << i;
        if (v->proposal == PL_PROPOSE_WOR) wor |= 1u << i;
        if (top || v->proposal == PL_PROPOSE_IID) iid |= 1u << i;
        if (opens(w, what, tree, v)) takes |= 1u << i;
    }
    if (takes == every) return "all";
    if (takes == no_chains) return "not of chains";
    if (takes == iid) return "iid";
    if (takes == matching) return "matching";
    if (takes == (matching | wor)) return "matching, recursive-wor";
    if (takes == 0) return "-";
    fail_msg("%s, %s: verifiers %x", what, tree, takes);
    return NULL;
}

// The trees that have no column: opt is taken as eagle2, sequences as static, and predictable trees as eagle2, drawn
// without replacement too.
static void others_are_as_said(const world *w, const char *what) {
    static const char *const predictable[] = {"beam:2,2", "beam:2,2,0.5", "dyspec:8,3,2"};
    const char              *chosen = cell(w, what, trees[2]);
    assert_string_equal(cell(w, what, "opt:12,3,3,0.1"), chosen);
    assert_string_equal(cell(w, what, "sequences:2,2"), cell(w, what, trees[1]));
    for (size_t i = 0; i < sizeof predictable / sizeof *predictable; i++)
        assert_string_equal(cell(w, what, predictable[i]),
                            strcmp(chosen, "matching") == 0 ? "matching, recursive-wor" : chosen);
}

static void table_is_the_codes(void **state) {
    (void)state;
    world       w;
    int         different = 0;
    static char readme[1 << 16];
    open_world(&w);
    FILE *f = fopen("infer/README.md", "r");
    assert_non_null(f);
    assert_true(fread(readme, 1, sizeof readme - 1, f) > 0 && feof(f));
    fclose(f);
    const struct {
        const char *name, *of, *behind;
    } row[] = {{"EAGLE-3", "", w.eagle3},
               {"EAGLE-1, `mtp`", "", w.eagle1},
               {"EAGLE-1, `mtp`", "mtp", ""},
               {"DFlash", "", w.dflash},
               {"P-EAGLE", "", w.peagle},
               {"Medusa, Hydra", "", w.medusa},
               {"Medusa, Hydra", "", w.hydra},
               {"`lookup`", "lookup", ""},
               {"`recycle`, `suffix`, `retrieval`", "recycle", ""},
               {"`recycle`, `suffix`, `retrieval`", "suffix", ""},
               {"`recycle`, `suffix`, `retrieval`", "retrieval:", w.texts},
               {"`lookahead`", "lookahead", ""},
               {"`lm`", "lm:", w.dir},
               {"`tli`", "tli:", w.dir},
               {"`union`", "union:", w.dir},
               {"`slem`", "slem:", w.dir},
               {"`slrs`, `omni`", "slrs:", w.dir},
               {"`slrs`, `omni`", "omni:", w.dir},
               {"`hybrid` alone", "hybrid:suffix", ""},
               {"`hybrid` with EAGLE-3", "hybrid:suffix+", w.eagle3},
               {"`hybrid` with `slem`", "hybrid:suffix+slem:", w.dir}};
    print_message("| drafter | `%s` | `%s` | `%s` | `%s` | `%s` |\n", trees[0], trees[1], trees[2], trees[3], trees[4]);
    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        char what[160], line[256];
        snprintf(what, sizeof what, "%s%s", row[r].of, row[r].behind);
        int n = snprintf(line, sizeof line, "| %s |", row[r].name);
        for (int t = 0; t < TREES; t++)
            n += snprintf(line + n, sizeof line - (size_t)n, " %s |", cell(&w, what, trees[t]));
        bool there = strstr(readme, line) != NULL;
        print_message("%s%s\n", line, there ? "" : "   <- infer/README.md says otherwise");
        different += !there;
        others_are_as_said(&w, what);
    }
    assert_int_equal(different, 0);
    pl_tokenizer_close(w.tok);
    pl_llama_fini(&w.target);
    pl_llama_fini(&w.own);
    test_rmdir(w.dir);
    test_rmdir(w.delta);
    test_rmdir(w.eagle3);
    test_rmdir(w.eagle1);
    test_rmdir(w.dflash);
    test_rmdir(w.peagle);
    test_rmdir(w.medusa);
    test_rmdir(w.hydra);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(table_is_the_codes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

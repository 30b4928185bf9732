// What commands find under the names that they write: what another program or the user made stays, byte for byte, and
// the command says so in one line before it writes anything; what the program made is replaced as ever.
#define _GNU_SOURCE 1 // symlink, nftw
#include "program.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define TARGET "checkpoints/tiny"

static char scratch[64];

static const char drafter[] = "kind: drafter\n"
                              "target: {path: " TARGET "}\n"
                              "data: {prompts: %s/prompts.jsonl, max_new_tokens: 4}\n"
                              "train: {steps: 1}\n"
                              "eval: {prompts: %s/prompts.jsonl, max_new_tokens: 4, plain_fp32: false, trace: false, "
                              "drafters: [{kind: lookup}]}\n";
static const char target[] =
    "kind: target\n"
    "target: {new: {hidden_size: 16, layers: 1, heads: 2, kv_heads: 1, intermediate: 24, "
    "positions: 160, tie: true}}\n"
    "data: {text: [%s/book.txt], chunk_bytes: 512, tokenizer: {vocab_size: 300, type: bpe}}\n"
    "train: {steps: 2, batch: 2, slots: 2, seq_len: 32, lr: 2e-2, warmup: 1, checkpoint_every: 1}\n";

static int setup(void **state) {
    (void)state;
    char text[1024], book[16384] = "";
    test_scratch(scratch);
    snprintf(text, sizeof text, drafter, scratch, scratch);
    test_put(scratch, "r.yaml", text);
    snprintf(text, sizeof text, target, scratch);
    test_put(scratch, "t.yaml", text);
    test_put(scratch, "prompts.jsonl", "{\"prompt\": \"The old house stood\"}\n");
    for (int i = 0; i < 150; i++) {
        size_t n = strlen(book);
        snprintf(book + n, sizeof book - n,
                 "the cat number %d sat on the mat and saw a very small red bird in the tree. ", i);
    }
    test_put(scratch, "book.txt", book);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_scratch_remove(scratch);
    return 0;
}

// ---- a folder, as far as a change of it would show

static char listing[8192];

static int add_entry(const char *path, const struct stat *s, int kind, struct FTW *f) {
    size_t n = strlen(listing);
    (void)f;
    snprintf(listing + n, sizeof listing - n, "%s %d %lld\n", path, kind, (long long)(kind == FTW_D ? 0 : s->st_size));
    return 0;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// Names, kinds and sizes of all below, sorted; the caller's.
static char *list_of(const char *dir) {
    char *line[256], *out = pl_calloc(1, sizeof listing);
    int   n = 0;
    *listing = 0;
    assert_int_equal(nftw(dir, add_entry, 8, FTW_PHYS), 0);
    for (char *at = strtok(listing, "\n"); at; at = strtok(NULL, "\n"))
        line[n++] = at;
    qsort(line, (size_t)n, sizeof *line, by_text);
    for (int i = 0; i < n; i++)
        strcat(strcat(out, line[i]), "\n");
    return out;
}

// ---- what is another's

typedef enum kind { FILE_OF, LINK_TO, PIPE } kind;

typedef struct found {
    const char *command; // %s: the scratch folder; --out is added
    const char *name;    // below OUT
    const char *text;    // of the file there, or of what the link leads to
    kind        kind;
    const char *says;
} found;

#define EVAL "eval %s/r.yaml"
#define TRAIN "train %s/r.yaml"
#define LM "train %s/t.yaml"
#define MAKE "generate %s/r.yaml"
#define RUN "run %s/r.yaml"

static const found cases[] = {
    // evaluations: whole folders of samples, and every file
    {EVAL, "samples/a.wav", "song", FILE_OF, "samples: holds a.wav, which would be lost"},
    {EVAL, "samples/lookup.jsonl", "{}", FILE_OF, "samples: holds lookup.jsonl, which would be lost"},
    {EVAL, "ceilings/mine.json", "{}", FILE_OF, "ceilings: holds mine.json, which would be lost"},
    {RUN, "samples/a.wav", "song", FILE_OF, "samples: holds a.wav, which would be lost"},
    {EVAL, "results.json", "{\"methods\": []}", FILE_OF, "results.json: was not made by this program"},
    {EVAL, "report.html", "<!doctype html>\n<title>mine</title>", FILE_OF, "report.html: was not made by this program"},
    {EVAL, "examples.csv", "a,b\n", FILE_OF, "examples.csv: was not made by this program"},
    {EVAL, "trace.jsonl", "{\"prompt\":\"x\"}\n", FILE_OF, "trace.jsonl: was not made by this program"},
    {EVAL, "results.json", "mine", LINK_TO, "results.json: is a link"},
    {EVAL, "report.html", "mine", PIPE, "report.html: is there and is not a regular file"},
    {RUN, "results.json", "{}", FILE_OF, "results.json: was not made by this program"},
    // curves
    {TRAIN, "metrics.jsonl", "{\"epoch\":1,\"loss\":0.5}\n", FILE_OF, "metrics.jsonl: was not made by this program"},
    {TRAIN, "metrics.jsonl", "{\"stage\":\"eagle3\",\"step\":1}\n{\"epoch\":1}\n", FILE_OF,
     "metrics.jsonl: holds what no training wrote (byte 28)"},
    {TRAIN, "metrics.jsonl", "mine", LINK_TO, "metrics.jsonl: is a link"},
    {TRAIN, "metrics.jsonl", "", PIPE, "metrics.jsonl: is there and is not a regular file"},
    {TRAIN, "skipped.jsonl", "{\"step\":1}\n", FILE_OF, "skipped.jsonl: was not made by this program"},
    {RUN, "metrics.jsonl", "{\"epoch\":1}\n", FILE_OF, "metrics.jsonl: was not made by this program"},
    // checkpoints
    {TRAIN, "checkpoints/best/pytorch_model.pt", "weights", FILE_OF, "checkpoints/best: holds pytorch_model.pt"},
    {TRAIN, "checkpoints/best/model.safetensors", "weights", FILE_OF, "checkpoints/best: no training_state beside it"},
    {TRAIN, "checkpoints/step-5/model.pt", "weights", FILE_OF, "checkpoints/step-5: holds model.pt"},
    {TRAIN, "checkpoints/last/model.pt", "weights", FILE_OF, "checkpoints/last: holds model.pt"},
    {TRAIN, "checkpoints/recipe.yaml", "# mine\n", FILE_OF, "checkpoints/recipe.yaml: was not made by this program"},
    {LM, "checkpoints/best/pytorch_model.pt", "weights", FILE_OF, "checkpoints/best: holds pytorch_model.pt"},
    {RUN, "checkpoints/last/model.pt", "weights", FILE_OF, "nothing says that a run made it here"},
    // what a target is trained on
    {LM, "tokenizer.model", "theirs", FILE_OF, "tokenizer.model: was not made by this program"},
    {LM, "tokens/train.tokens", "theirs", FILE_OF, "tokens/train.tokens: was not made by this program"},
    {LM, "tokens/held.tokens", "theirs", FILE_OF, "tokens/held.tokens: was not made by this program"},
    {LM, "tokens/stamp", "theirs", FILE_OF, "tokens/stamp: was not made by this program"},
    // recipes
    {MAKE, "recipe.yaml", "kind: drafter\n", FILE_OF, "recipe.yaml: was not made by this program"},
    {TRAIN, "recipe.yaml", "# mine\nkind: drafter\n", FILE_OF, "recipe.yaml: was not made by this program"},
    {EVAL, "recipe.yaml", "mine", LINK_TO, "recipe.yaml: is a link"},
    {RUN, "recipe.yaml", "kind: drafter\n", FILE_OF, "recipe.yaml: was not made by this program"},
    // answers
    {MAKE, "dataset/shard-00000.h5", "theirs", FILE_OF, "dataset: holds shard-00000.h5 and no manifest.json"},
    {MAKE " --texts", "texts.jsonl", "{\"prompt\":\"a\",\"text\":\"b\"}\n", FILE_OF,
     "texts.jsonl: was not made by this program"},
    {TRAIN " --set data.disk_budget=50MB", "bounded/shard-00000.h5", "theirs", FILE_OF,
     "bounded: holds shard-00000.h5 and no manifest.json"},
    {RUN, "dataset/x.h5", "theirs", FILE_OF, "dataset: nothing says that a run made it here"},
    {RUN, ".stamps/dataset", "theirs", FILE_OF, ".stamps/dataset: was not made by this program"},
    {RUN, ".stamps/dataset", "theirs", LINK_TO, ".stamps/dataset: is a link"},
    // the lock
    {MAKE, ".lock", "theirs", LINK_TO, ".lock: is a link"},
    // a page
    {"report %s/shown", "report.html", "<p>mine", FILE_OF, "report.html: was not made by this program"},
    {"report %s/shown", "report.html", "<p>mine", LINK_TO, "report.html: is a link"},
};

static void put_below(const char *out, const char *name, const char *text) {
    char *path = pl_path_join(out, name), *slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(pl_dir_make(path, NULL), PL_OK);
    *slash = '/';
    test_write(path, text);
    pl_free(path);
}

static void others_files_stay(void **state) {
    (void)state;
    char line[256], victim[128], command[256];
    snprintf(line, sizeof line, "%s/shown", scratch);
    assert_int_equal(pl_dir_make(line, NULL), PL_OK);
    test_put(line, "metrics.jsonl", "{\"stage\":\"eagle3\",\"step\":1,\"loss\":4}\n");
    snprintf(victim, sizeof victim, "%s/victim", scratch);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const found *c = &cases[i];
        char        *out = pl_sprintf("%s/out-%zu", scratch, i), *path = pl_path_join(out, c->name);
        put_below(out, c->name, c->text);
        if (c->kind != FILE_OF) assert_int_equal(unlink(path), 0);
        test_write(victim, c->text);
        if (c->kind == LINK_TO) assert_int_equal(symlink(victim, path), 0);
        if (c->kind == PIPE) assert_int_equal(mkfifo(path, 0600), 0);
        char *before = list_of(out);
        print_message("%s, %s%s\n", c->command, c->name,
                      c->kind == FILE_OF   ? ""
                      : c->kind == LINK_TO ? " (a link)"
                                           : " (a pipe)");
        snprintf(command, sizeof command, "%s", c->command);
        char *at = strstr(command, "%s");
        snprintf(line, sizeof line, "%.*s%s%s --out %s", (int)(at - command), command, scratch, at + 2, out);
        test_run_fails(2, c->says, "%s", line);
        char *text = test_read(c->kind == FILE_OF ? path : victim), *after = list_of(out);
        assert_string_equal(text, c->text);
        assert_string_equal(after, before); // nothing else was written either
        pl_free(text);
        pl_free(before);
        pl_free(after);
        pl_free(path);
        pl_free(out);
    }
}

// ---- files that an option names

static void named_files_stay(void **state) {
    (void)state;
    static const struct {
        const char *command, *says;
    } named[] = {
        {"vocab --tokenizer " TARGET " %s/prompts.jsonl --list %s/mine", "mine: was not made by this program"},
        {"vocab --tokenizer " TARGET " %s/prompts.jsonl --plot %s/mine", "mine: was not made by this program"},
        {"vocab --tokenizer " TARGET " %s/mine --list %s/mine", "is what is read"},
        {"decode --target " TARGET " --prompt-file %s/prompts.jsonl -n 2 --trace %s/mine",
         "mine: was not made by this program"},
        {"decode --target " TARGET " --prompt-file %s/mine -n 2 --trace %s/mine", "is what --prompt-file reads"},
        {"vocab --tokenizer " TARGET " %s/prompts.jsonl --list %s/link", "link: is a link"},
        {"decode --target " TARGET " --prompt-file %s/prompts.jsonl -n 2 --trace %s/link", "link: is a link"},
        {"decode --target " TARGET " --prompt-file %s/prompts.jsonl -n 2 --drafter suffix:4,keep=%s/link",
         "link: is a link"},
        {"decode --target " TARGET " --prompt-file %s/prompts.jsonl -n 2 --drafter recycle:4,keep=%s/mine",
         "mine: is no datastore"}};
    char line[512], link[128];
    snprintf(link, sizeof link, "%s/link", scratch);
    test_put(scratch, "mine", "{\"prompt\": \"my own\"}\n");
    assert_int_equal(symlink("mine", link), 0);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        const char *c = named[i].command, *one = strstr(c, "%s"), *two = strstr(one + 2, "%s");
        snprintf(line, sizeof line, "%.*s%s%.*s%s%s", (int)(one - c), c, scratch, (int)(two - one - 2), one + 2,
                 scratch, two + 2);
        test_run_fails(2, named[i].says, "%s", line);
        char *text = test_get(scratch, "mine");
        assert_string_equal(text, "{\"prompt\": \"my own\"}\n");
        pl_free(text);
    }
}

// What a command reads is not what it writes.
static void inputs_stay(void **state) {
    (void)state;
    char out[96], recipe[128];
    snprintf(out, sizeof out, "%s/read", scratch);
    snprintf(recipe, sizeof recipe, "%s/recipe.yaml", out);
    assert_int_equal(pl_dir_make(out, NULL), PL_OK);
    char *text = test_get(scratch, "r.yaml");
    test_put(out, "recipe.yaml", text);
    static const char *const stages[] = {"generate", "train", "eval", "run"};
    for (int i = 0; i < 4; i++)
        test_run_fails(2, "recipe.yaml: was not made by this program", "%s %s --out %s", stages[i], recipe, out);
    char *after = test_get(out, "recipe.yaml");
    assert_string_equal(after, text);
    pl_free(after);
    pl_free(text);
    assert_int_equal(unlink(recipe), 0);
    test_put(out, "texts.jsonl",
             "{\"prompt\":\"a\",\"answer\":\"b\",\"text\":\"ab\",\"finish\":\"stop\",\"tokens\":1}\n");
    test_run_fails(2, "would be written over", "generate %s/r.yaml --texts --set data.prompts=%s/texts.jsonl --out %s",
                   scratch, out, out);
    test_run_fails(2, "would be written over", "train %s/t.yaml --set target.start=%s/checkpoints/best --out %s",
                   scratch, out, out);
    test_put(out, "trace.jsonl", "{\"prompt\":0,\"category\":null,\"ids\":[1]}\n");
    test_run_fails(2, "would be written over", "eval %s/r.yaml --set eval.prompts=%s/trace.jsonl --out %s", scratch,
                   out, out);
}

// ---- what is ours

static void succeeds(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void succeeds(const char *fmt, ...) {
    char        line[512];
    test_output o;
    va_list     ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    test_run(&o, "%s", line);
    if (o.code != 0) fail_msg("%s: %s", line, o.err);
    test_run_fini(&o);
}

// An evaluation replaces an earlier one's files, those of methods that it no longer has too, also behind a link.
static void evaluations_replace_their_own(void **state) {
    (void)state;
    char        out[96], dir[96], at[128];
    struct stat s;
    snprintf(out, sizeof out, "%s/twice", scratch);
    snprintf(dir, sizeof dir, "%s/elsewhere", scratch);
    snprintf(at, sizeof at, "%s/samples", out);
    succeeds(EVAL " --out %s", scratch, out);
    assert_int_equal(pl_dir_make(dir, NULL), PL_OK);
    assert_int_equal(symlink(dir, at), 0);
    put_below(out, "samples/lookup.jsonl", "{\"task_id\":\"x\"}\n");
    put_below(out, "ceilings/lookup.json", "{}\n");
    succeeds(EVAL " --out %s", scratch, out);
    assert_int_equal(lstat(at, &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    snprintf(at, sizeof at, "%s/samples/lookup.jsonl", out);
    assert_false(pl_path_exists(at));
    snprintf(at, sizeof at, "%s/ceilings", out);
    assert_false(pl_path_exists(at));
    put_below(dir, "a.wav", "song");
    test_run_fails(2, "samples: holds a.wav, which would be lost", EVAL " --out %s", scratch, out);
}

// Training goes on in its folder, with other tools' files beside its own, and takes none of them for its own.
static void training_goes_on_beside_others(void **state) {
    (void)state;
    static const char *const theirs[] = {"events.out.tfevents.1690000000.host.77.0", ".notes.tmp-999999",
                                         "checkpoints/notes.txt", "rank-1.log", "summary.txt"};
    enum { THEIRS = sizeof theirs / sizeof *theirs };
    char out[96], last[128];
    snprintf(out, sizeof out, "%s/beside", scratch);
    for (int i = 0; i < THEIRS; i++)
        put_below(out, theirs[i], "theirs");
    succeeds(LM " --out %s --ranks 2", scratch, out);
    snprintf(last, sizeof last, "%s/checkpoints/last", out);
    assert_int_equal(pl_tree_remove(last, NULL), PL_OK); // it goes on from step-1
    succeeds(LM " --out %s --ranks 2", scratch, out);
    char *lines = test_get(out, "metrics.jsonl");
    assert_non_null(strstr(lines, "\"step\":2"));
    pl_free(lines);
    for (int i = 0; i < THEIRS; i++) {
        char *text = test_get(out, theirs[i]);
        assert_string_equal(text, "theirs");
        pl_free(text);
    }
}

// Answers kept are for their owner alone, whatever the mask and the mode of the file before.
static void kept_answers_are_private(void **state) {
    (void)state;
    char        path[128];
    struct stat s;
    mode_t      mask = umask(0);
    snprintf(path, sizeof path, "%s/kept", scratch);
    static const char *const drafters[] = {"suffix:4", "recycle:4"};
    for (int i = 0; i < 4; i++) {
        if (i % 2 == 0) unlink(path);
        if (i % 2 == 1) assert_int_equal(chmod(path, 0644), 0);
        succeeds("decode --target " TARGET " --prompt 'The old' -n 4 --drafter %s,keep=%s", drafters[i / 2], path);
        assert_int_equal(stat(path, &s), 0);
        assert_int_equal(s.st_mode & 0777, 0600);
    }
    umask(mask);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_files_stay),
        cmocka_unit_test(named_files_stay),
        cmocka_unit_test(inputs_stay),
        cmocka_unit_test(evaluations_replace_their_own),
        cmocka_unit_test(training_goes_on_beside_others),
        cmocka_unit_test(kept_answers_are_private),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

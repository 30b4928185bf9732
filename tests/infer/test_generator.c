// Answers to conversations: turn by turn, behind what the target itself has said before, in a fixed order however they
// are batched and wherever a run was stopped.
#include "infer/generate/generator.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "tests/checkpoints/scratch.h"
#include "tests/infer/fixture.h"

#include <string.h>

#define TINY PACELINE_SOURCE_DIR "/checkpoints/tiny"

enum { MAX_DOCS = 512, MAX_TOKENS = 512 };

static pl_llama        target, quick; // quick: random, for documents that are only compared with each other
static const pl_llama *writer = &target;
static pl_tokenizer   *tok;

// A document, as far as it is compared.
typedef struct kept {
    int64_t      n;
    int32_t      tokens[MAX_TOKENS];
    uint8_t      mask[MAX_TOKENS];
    pl_doc_about about;
    char        *prompt;
} kept;

typedef struct run {
    kept doc[MAX_DOCS];
    int  n;
} run;

static void free_run(run *r) {
    for (int i = 0; i < r->n; i++)
        pl_free(r->doc[i].prompt);
    pl_free(r);
}

static int setup(void **state) {
    pl_err err = {0};
    if (scratch_setup(state) != 0) return -1;
    assert_ok(pl_dir_make(at("quick"), &err));
    test_target_sized(&quick, at("quick"), 2, 16384, 7, PL_BF16);
    pl_status st = pl_llama_open(&target, TINY, PL_BF16, pl_backend_cpu(), &err);
    if (st == PL_OK) st = pl_tokenizer_open(&tok, TINY, &err);
    if (st != PL_OK) print_error("%s\n", err.msg);
    return st == PL_OK ? 0 : -1;
}

static int teardown(void **state) {
    pl_tokenizer_close(tok);
    pl_llama_fini(&target);
    pl_llama_fini(&quick);
    return scratch_teardown(state);
}

static int write_quickly(void **state) {
    (void)state;
    writer = &quick;
    return 0;
}

static int write_well(void **state) {
    (void)state;
    writer = &target;
    return 0;
}

// Conversations of i % 4 + 1 turns, the third turn of which is long where that is asked for.
static pl_prompts *conversations(pl_prompt_form *f, int n, bool long_third) {
    static const char *const openings[] = {"It was a dark night", "Once upon a time", "My dear friend", "The sea"};
    pl_err                   err = {0};
    pl_prompts              *p;
    pl_json_out              o;
    FILE                    *file = fopen(at("p.jsonl"), "wb");
    assert_non_null(file);
    for (int i = 0; i < n; i++) {
        pl_json_out_begin(&o, 0);
        pl_json_out_object(&o);
        pl_json_out_key(&o, "turns");
        pl_json_out_array(&o);
        for (int k = 0; k <= i % 4; k++) {
            char said[2048];
            int  at = snprintf(said, sizeof said, "%s %d", openings[(i + k) % 4], i);
            for (int w = 0; long_third && k == 2 && w < 60; w++)
                at += snprintf(said + at, sizeof said - (size_t)at, " and the captain");
            pl_json_out_str(&o, said);
        }
        pl_json_out_close(&o, ']');
        pl_json_out_close(&o, '}');
        assert_ok(pl_json_out_end(&o, &err));
        fprintf(file, "%s\n", o.text);
        pl_free(o.text);
    }
    fclose(file);
    *f = (pl_prompt_form){.name = "chat:test", .options = {.system = "S"}};
    put_text(at("t.jinja"), "{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}<assistant>");
    assert_ok(pl_chat_template_open(&f->chat, TINY, at("t.jinja"), &err));
    assert_ok(pl_chat_prompts_read(&p, at("p.jsonl"), f->chat, &f->options, &err));
    return p;
}

// limit: documents at most.
static run *generate_some(const pl_prompts *p, const pl_generator_options *o, int limit) {
    pl_env        env = {.backend = pl_backend_cpu()};
    pl_err        err = {0};
    pl_generator *g;
    pl_columns    doc;
    run          *r = pl_calloc(1, sizeof *r);
    assert_non_null(r);
    if (pl_generator_create(&g, &env, writer, tok, p, o, &err) != PL_OK) fail_msg("%s", err.msg);
    while (r->n < limit) {
        if (pl_generator_next(g, &doc, &err) != PL_OK) fail_msg("%s", err.msg);
        if (doc.n == 0) break;
        kept *k = &r->doc[r->n++];
        assert_true(r->n <= MAX_DOCS && doc.n <= MAX_TOKENS);
        k->n = doc.n;
        k->about = *doc.about;
        size_t prompt_n;
        k->prompt = pl_strdup(pl_generator_prompt(g, &prompt_n));
        assert_int_equal(strlen(k->prompt), prompt_n);
        memcpy(k->tokens, doc.tokens, (size_t)doc.n * sizeof *doc.tokens);
        memcpy(k->mask, doc.loss_mask, (size_t)doc.n);
    }
    if (pl_generator_jobs(g) >= 0 && r->n < limit) assert_int_equal(r->n, pl_generator_jobs(g) - o->first_job);
    pl_generator_destroy(g);
    return r;
}

static run *generate(const pl_prompts *p, const pl_generator_options *o) {
    return generate_some(p, o, MAX_DOCS);
}

static void same(const kept *a, const kept *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->n * sizeof *a->tokens);
    assert_memory_equal(a->mask, b->mask, (size_t)a->n);
    assert_memory_equal(&a->about, &b->about, sizeof a->about);
    assert_string_equal(a->prompt, b->prompt);
}

// The answer as text, its end left out.
static char *answer_of(const kept *k) {
    char   *text;
    size_t  bytes;
    int64_t from = 0, n = k->n;
    int32_t ids[MAX_TOKENS + 1];
    pl_err  err = {0};
    while (from < n && !k->mask[from])
        from++;
    memcpy(ids, k->tokens, (size_t)n * sizeof *ids);
    if (k->about.end >= 0 && k->about.finish != PL_ANSWER_STOP) ids[n++] = k->about.end;
    assert_ok(pl_tokenizer_decode(tok, ids + from, n - from, &text, &bytes, &err));
    return text;
}

static void prompt_is_read(const kept *k) {
    int32_t *ids;
    int64_t  n;
    pl_err   err = {0};
    assert_ok(pl_chat_encode(tok, k->prompt, strlen(k->prompt), &ids, &n, &err));
    assert_true(n < k->n);
    assert_memory_equal(ids, k->tokens, (size_t)n * sizeof *ids);
    for (int64_t i = 0; i < k->n; i++)
        assert_int_equal(k->mask[i], i >= n);
    pl_free(ids);
}

// Each turn's prompt holds the answers before it, which stand `back` documents and more in front of it; its ids are
// the prompt's, and the answer's alone are supervised.
static void own_answers(void **state) {
    (void)state;
    pl_prompt_form       f;
    pl_prompts          *p = conversations(&f, 10, false);
    pl_generator_options o = {.form = &f,
                              .max_new = 12,
                              .greedy = true,
                              .samples = 1,
                              .temperature = 1,
                              .top_p = 1,
                              .sessions = 7,
                              .seed = 5};
    run                 *r = generate(p, &o);
    int later = 0, per_round = r->n / 2, last[MAX_DOCS] = {0}; // of the conversation that a document begins: its latest
    assert_int_equal(r->n, 2 * (2 * 10 + 1 + 2));
    for (int i = 0; i < r->n; i++) {
        const kept *k = &r->doc[i];
        prompt_is_read(k);
        assert_true(k->about.cut == 0 && k->about.finish != PL_ANSWER_UNKNOWN);
        int first = i - k->about.back;
        if (k->about.turn == 0) assert_int_equal(k->about.back, 0);
        if (k->about.turn > 0)
            assert_true(k->about.back > 0 && i / per_round == first / per_round); // of the same round
        const kept *before = &r->doc[last[first]];
        last[first] = i;
        if (k->about.turn == 0) continue;
        char *said = answer_of(before), holds[2048]; // its prompt holds those before it, as has been seen
        assert_int_equal(before->about.turn, k->about.turn - 1);
        snprintf(holds, sizeof holds, "%s %s\n<user> ", before->prompt, said);
        if (strncmp(k->prompt, holds, strlen(holds)) != 0) fail_msg("%s\n---\n%s", k->prompt, holds);
        pl_free(said);
        later++;
    }
    assert_int_equal(later, r->n - 2 * 10);
    free_run(r);
    pl_prompts_destroy(p);
    pl_prompt_form_close(&f);
}

// However many are answered side by side, and wherever a run begins again: in more than one block.
static void order(void **state) {
    (void)state;
    pl_prompt_form       f;
    pl_prompts          *p = conversations(&f, PL_GENERATE_BLOCK + 2, false);
    pl_generator_options o = {
        .form = &f, .max_new = 4, .greedy = true, .samples = 1, .temperature = 1, .top_p = 1, .sessions = 5};
    run                 *all = generate(p, &o), *endless;
    static const int64_t from[] = {66, 163, 325};
    assert_int_equal(all->n, 2 * 163);
    o.sessions = 24;
    run *other = generate(p, &o);
    assert_int_equal(other->n, all->n);
    for (int i = 0; i < other->n; i++)
        same(&other->doc[i], &all->doc[i]);
    free_run(other);
    o.samples = -1; // rounds without end
    o.first_job = 150;
    endless = generate_some(p, &o, 30);
    for (int i = 0; i < 30; i++)
        same(&endless->doc[i], &all->doc[150 + i]);
    free_run(endless);
    o.samples = 1;
    o.sessions = 3;
    for (size_t k = 0; k < sizeof from / sizeof *from; k++) {
        o.first_job = from[k];
        run *r = generate(p, &o);
        assert_int_equal(r->n, all->n - from[k]);
        for (int i = 0; i < r->n; i++)
            same(&r->doc[i], &all->doc[from[k] + i]);
        free_run(r);
    }
    free_run(all);
    pl_prompts_destroy(p);
    pl_prompt_form_close(&f);
}

// Ranges in any order, beginning and ending in the middle of conversations, asked for again after there were none.
typedef struct errands {
    const pl_jobs *range;
    int            at, n;
} errands;

static bool next_errand(void *arg, pl_jobs *range) {
    errands *e = arg;
    if (e->at == e->n || e->range[e->at].first < 0) return false;
    *range = e->range[e->at++];
    return true;
}

// all: the documents by number.
static void in_ranges(const pl_jobs *part, int n, const pl_prompts *p, pl_generator_options o, const run *all) {
    pl_err        err = {0};
    pl_env        env = {.backend = pl_backend_cpu()};
    errands       e = {.range = part, .n = n};
    pl_generator *g;
    pl_columns    doc;
    o.work = (pl_generator_work){next_errand, &e};
    assert_ok(pl_generator_create(&g, &env, writer, tok, p, &o, &err));
    for (int i = 0; i < e.n; i++)
        for (int64_t j = part[i].first; j < part[i].end; j++) {
            if (j < 0) { // there were no more for now
                assert_ok(pl_generator_next(g, &doc, &err));
                assert_int_equal(doc.n, 0);
                e.at++;
                break;
            }
            assert_ok(pl_generator_next(g, &doc, &err));
            assert_int_equal(pl_generator_number(g), j);
            const kept *k = &all->doc[j];
            assert_int_equal(doc.n, k->n);
            assert_memory_equal(doc.tokens, k->tokens, (size_t)doc.n * sizeof *doc.tokens);
            assert_memory_equal(doc.about, &k->about, sizeof k->about);
            assert_true(doc.n <= pl_generator_rows(g, j));
        }
    assert_ok(pl_generator_next(g, &doc, &err));
    assert_int_equal(doc.n, 0);
    assert_true(pl_generator_begins(g, 0) && !pl_generator_begins(g, 70) && pl_generator_begins(g, 163));
    assert_int_equal(pl_generator_unit_end(g, 163), 163 + pl_generator_unit_end(g, 0));
    pl_generator_destroy(g);
}

static void ranges(void **state) {
    (void)state;
    static const pl_jobs part[] = {{300, 326}, {0, 1}, {70, 131}, {131, 170}, {-1, 0}, {1, 70}, {5, 5}, {290, 300}};
    pl_prompt_form       f;
    pl_prompts          *p = conversations(&f, PL_GENERATE_BLOCK + 2, false);
    pl_generator_options o = {
        .form = &f, .max_new = 4, .greedy = true, .samples = 1, .temperature = 1, .top_p = 1, .sessions = 5};
    run *all = generate(p, &o);
    in_ranges(part, sizeof part / sizeof *part, p, o, all);
    // First turns, and soon after them second ones, for which the first are answered once more meanwhile.
    static const pl_jobs near[] = {{1, 2}, {2, 3}, {3, 4}, {64, 65}, {65, 66}, {66, 67}, {67, 68}};
    o.sessions = 48;
    in_ranges(near, sizeof near / sizeof *near, p, o, all);
    free_run(all);
    pl_prompts_destroy(p);
    pl_prompt_form_close(&f);
}

// A history that leaves no room loses its oldest exchanges; a turn that has no room by itself ends the conversation, or
// is cut.
static void room(void **state) {
    (void)state;
    pl_prompt_form       f;
    pl_prompts          *p = conversations(&f, 8, false), *q;
    pl_generator_options o = {.form = &f, .max_new = 24, .max_len = 90, .greedy = true, .sessions = 4};
    run                 *r = generate(p, &o);
    int                  cut = 0, turns = 0;
    assert_int_equal(r->n, 20);
    for (int i = 0; i < r->n; i++) {
        const kept *k = &r->doc[i];
        prompt_is_read(k);
        assert_true(k->n <= 90 && strncmp(k->prompt, "<system> S\n<user> ", 18) == 0);
        cut += k->about.cut;
        if (k->about.turn == 3) assert_true(k->about.cut);
    }
    assert_true(cut > 2 && cut < 12);
    free_run(r);
    pl_prompts_destroy(p);
    pl_prompt_form_close(&f);

    q = conversations(&f, 8, true);
    for (int pass = 0; pass < 2; pass++) {
        o.cut = pass == 1;
        r = generate(q, &o);
        turns = cut = 0;
        for (int i = 0; i < r->n; i++) {
            assert_true(r->doc[i].n <= 90);
            if (r->doc[i].about.turn != 2) prompt_is_read(&r->doc[i]); // those turns are cut themselves
            if (r->doc[i].about.turn > turns) turns = r->doc[i].about.turn;
            cut += r->doc[i].about.turn == 2 && r->doc[i].about.cut;
        }
        assert_int_equal(turns, pass ? 3 : 1);
        assert_int_equal(r->n, pass ? 20 : 14);
        assert_int_equal(cut, pass ? 4 : 0);
        free_run(r);
    }
    pl_prompts_destroy(q);
    pl_prompt_form_close(&f);
}

// A template that drops earlier reasoning can make an earlier turn the longest: it has its room all the same.
static void longest_turn(void **state) {
    (void)state;
    static const char record[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\", "
        "\"thought\": \"%s\"}, {\"role\": \"tool\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": "
        "\"d\"}, {\"role\": \"user\", \"content\": \"e\"}]}\n";
    char                 thought[700] = "", line[1400];
    pl_prompt_form       f = {.name = "chat:test"};
    pl_prompts          *p;
    pl_err               err = {0};
    pl_generator_options o = {.form = &f, .max_new = 6, .greedy = true, .sessions = 2};
    for (int i = 0; i < 40; i++)
        strcat(thought, "and the captain ");
    snprintf(line, sizeof line, record, thought);
    put_text(at("p.jsonl"), line);
    put_text(at("t.jinja"),
             "{% set last = messages | selectattr('role', 'equalto', 'user') | list | length %}"
             "{% for m in messages %}<{{ m.role }}> {{ m.thought if m.thought and last == 1 }} {{ m.content "
             "}}\n{% endfor %}<assistant>");
    assert_ok(pl_chat_template_open(&f.chat, TINY, at("t.jinja"), &err));
    assert_ok(pl_chat_prompts_read(&p, at("p.jsonl"), f.chat, &f.options, &err));
    run *r = generate(p, &o);
    assert_int_equal(r->n, 3);
    assert_true(r->doc[1].n > r->doc[2].n + 40);
    for (int i = 0; i < 3; i++) {
        assert_false(r->doc[i].about.cut);
        prompt_is_read(&r->doc[i]);
    }
    free_run(r);
    pl_prompts_destroy(p);
    pl_prompt_form_close(&f);
}

// A turn that was not asked, since the template refuses an answer before it: the opening prompt with nothing to learn.
static void is_unasked(const kept *k, const kept *first) {
    assert_string_equal(k->prompt, first->prompt);
    assert_int_equal(k->about.finish, PL_ANSWER_UNKNOWN);
    assert_int_equal(k->about.end, -1);
    assert_true(k->n > 0 && k->n <= first->n);
    assert_memory_equal(k->tokens, first->tokens, (size_t)k->n * sizeof *k->tokens);
    for (int64_t i = 0; i < k->n; i++)
        assert_int_equal(k->mask[i], 0);
}

// A template that refuses the target's own answers ends conversations, not the run; documents keep their numbers, and a
// run that goes on anywhere gives the same ones.
static void refused_answers(void **state) {
    (void)state;
    static const char *const refusals[] = {"m.content != 'x'", "m.content != 'x' and 'e' in m.content",
                                           "m.content != 'x' and loop.index > 4", "m.content | length > 30"};
    for (size_t c = 0; c < sizeof refusals / sizeof *refusals; c++) {
        pl_prompt_form       f;
        pl_err               err = {0};
        pl_prompts          *p = conversations(&f, 10, false);
        pl_generator_options o = {.form = &f,
                                  .max_new = 12,
                                  .greedy = true,
                                  .samples = 1,
                                  .temperature = 1,
                                  .top_p = 1,
                                  .sessions = 5,
                                  .strict = true,
                                  .seed = 5};
        char                 text[512];
        snprintf(
            text, sizeof text,
            "{%% for m in messages %%}{%% if m.role == 'assistant' and (%s) %%}{{ raise_exception('no') }}{%% endif "
            "%%}<{{ m.role }}> {{ m.content }}\n{%% endfor %%}<assistant>",
            refusals[c]);
        put_text(at("t.jinja"), text);
        pl_chat_template_close(f.chat);
        assert_ok(pl_chat_template_open(&f.chat, TINY, at("t.jinja"), &err));
        run *r = generate(p, &o);
        int  unasked = 0, first_of[MAX_DOCS] = {0};
        assert_int_equal(r->n, 2 * (2 * 10 + 1 + 2));
        for (int i = 0; i < r->n; i++) {
            const kept *k = &r->doc[i];
            int         first = i - k->about.back;
            if (k->about.finish == PL_ANSWER_UNKNOWN) {
                is_unasked(k, &r->doc[first]);
                unasked++;
            } else {
                prompt_is_read(k);
                assert_int_equal(first_of[first], 0); // none is asked behind one that is not
            }
            first_of[first] |= k->about.finish == PL_ANSWER_UNKNOWN;
        }
        assert_true(unasked > 0);
        pl_generator_options from = o;
        from.first_job = 17;
        run *rest = generate(p, &from);
        assert_int_equal(rest->n, r->n - 17);
        for (int i = 0; i < rest->n; i++)
            same(&rest->doc[i], &r->doc[17 + i]);
        free_run(rest);
        free_run(r);
        pl_prompts_destroy(p);
        pl_prompt_form_close(&f);
    }
}

// A record that the template refuses at a later turn, whatever the answers: the turns before that are asked; strict:
// one line.
static void refused_records(void **state) {
    (void)state;
    pl_prompt_form       f;
    pl_err               err = {0};
    pl_prompts          *p = conversations(&f, 10, false);
    pl_env               env = {.backend = pl_backend_cpu()};
    pl_generator        *g;
    pl_generator_options o = {.form = &f, .max_new = 4, .greedy = true, .sessions = 2};
    put_text(at("t.jinja"),
             "{% for m in messages %}{% if 'friend' in m.content and loop.index > 4 %}{{ raise_exception('no') }}"
             "{% endif %}<{{ m.role }}> {{ m.content }}\n{% endfor %}<assistant>");
    pl_chat_template_close(f.chat);
    assert_ok(pl_chat_template_open(&f.chat, TINY, at("t.jinja"), &err));
    run *r = generate(p, &o);
    assert_true(r->n > 10 && r->n < 2 * 10 + 1 + 2);
    for (int i = 0; i < r->n; i++)
        assert_true(r->doc[i].about.finish != PL_ANSWER_UNKNOWN);
    free_run(r);
    o.strict = true;
    assert_int_equal(pl_generator_create(&g, &env, &target, tok, p, &o, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "refuses this conversation: no"));
    pl_prompts_destroy(p);
    pl_prompt_form_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_answers),
        cmocka_unit_test_setup_teardown(order, write_quickly, write_well),
        cmocka_unit_test_setup_teardown(ranges, write_quickly, write_well),
        cmocka_unit_test(room),
        cmocka_unit_test(longest_turn),
        cmocka_unit_test_setup_teardown(refused_answers, write_quickly, write_well),
        cmocka_unit_test(refused_records),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

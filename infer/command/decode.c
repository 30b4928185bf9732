// `paceline decode`: one answer, streamed, with its statistics.
#include "infer/cli/cli.h"
#include "infer/command/chat.h"

#include "data/text/text.h"
#include "infer/decode/runner.h"
#include "infer/decode/trace.h"
#include "infer/grammar/constraint.h"
#include "infer/model/kv.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/room.h"
#include "kernels/base/strbuf.h"

#include <errno.h>
#include <string.h>

#define PROMPT_MAX ((size_t)256 << 20) // bytes of a prompt file
#define GRAMMAR_MAX ((size_t)16 << 20)
#define NEW_MAX (1 << 24)

static const pl_key options[] = {
    {PL_OPTION_TEXT("target", "DIR|FILE"), .help = "the model: a Hugging Face folder, a GGUF file or a llama2.c file"},
    {PL_OPTION_TEXT("tokenizer", "PATH"), .help = "its tokenizer, where the target brings none"},
    PL_OPTION_PRE,
    {PL_OPTION_TEXT("drafter", "DIR|NAME"),
     .help = "draft head's checkpoint, or a name of the list below; without it, plain decoding"},
    {PL_OPTION_TEXT("prompt", "TEXT"), .letter = 'p',
     .help = "text to continue; BOS is put in front where the tokenizer asks for it"},
    {PL_OPTION_TEXT("prompt-ids", "IDS"), .help = "the prompt as token ids, 1,2,3, taken as they are"},
    {PL_OPTION_TEXT("prompt-file", "F"), .letter = 'f',
     .help = "the prompt from a file or pipe (its last line end left out)"},
    {PL_OPTION_FLAG("chat"), .help = "the prompt is what a user says: it is written by the model's chat template"},
    {PL_OPTION_TEXT("system", "TEXT"), .help = "with --chat: the system's message before it"},
    {PL_OPTION_TEXT("chat-file", "F"),
     .help = "the prompt is a conversation: a JSON record with \"messages\" and perhaps \"tools\""},
    PL_CHAT_CLI_OPTIONS,
    {PL_OPTION_INT("max-new-tokens", "N"), .letter = 'n', .deflt = "256", .min = 1, .max = NEW_MAX,
     .help = "longest answer"},
    PL_OPTION_TEMPERATURE,
    {PL_OPTION_INT("top-k", "K"), .deflt = "0", .min = 0, .max = 1 << 30,
     .help = "sample from the K most probable tokens; 0: from all"},
    {PL_OPTION_REAL("top-p", "P"), .deflt = "1", .min = 0, .max = 1,
     .help = "sample from the most probable tokens that hold this share"},
    {PL_OPTION_REAL("min-p", "P"), .deflt = "0", .min = 0, .max = 1,
     .help = "sample from tokens at least P times as probable as the best"},
    {PL_OPTION_REAL("repetition-penalty", "R"), .deflt = "1", .min = 0.01, .max = 100,
     .help = "above 1: tokens that occurred become less probable"},
    {PL_OPTION_TEXT("json-schema", "F"), .help = "the answer is JSON of the schema in this file"},
    {PL_OPTION_TEXT("regex", "RE"), .help = "the answer matches this regular expression as a whole"},
    {PL_OPTION_TEXT("grammar", "F"), .help = "the answer is of the grammar in this file (llama.cpp's GBNF)"},
    {PL_OPTION_TEXT("verify", "VERIFIER"), .deflt = "match",
     .help = "how drafted tokens are accepted: a name of the list below"},
    {PL_OPTION_TEXT("tree", "TREE"),
     .help = "what shape is drafted, a name of the list below [the drafter's own; checkpoints: auto]"},
    {PL_OPTION_CHOICE("dtype", "bf16", "fp32"), .help = "of the weights in memory [as the file stores them]"},
    PL_OPTION_KV(""),
    {PL_OPTION_TEXT("trace", "F.jsonl"), .help = "writes what every cycle drafted, accepted and took to this file"},
    {0}};

typedef struct decoding {
    const pl_env *env;
    pl_detok      detok;
    bool          has_text; // the target has a tokenizer
    bool          chat;     // the prompt was written by the chat template
    int           failed;   // errno of standard output
    pl_strbuf     text;     // with --json
    double        opened;   // seconds to open target and drafter
} decoding;

static void put(decoding *d, const char *s, size_t n) {
    if (!n) return;
    if (d->env->json) {
        pl_strbuf_add(&d->text, s, n);
    } else if (!d->failed && (fwrite(s, 1, n, d->env->text) < n || fflush(d->env->text) != 0)) {
        d->failed = errno ? errno : EIO;
    }
}

static bool on_token(void *arg, int32_t token) {
    decoding   *d = arg;
    const char *s;
    if (d->has_text) {
        size_t n = pl_detok_push(&d->detok, token, &s);
        put(d, s, n);
    }
    return !d->failed; // a failed output ends decoding
}

// Renders and encodes a conversation. text[0..n): the user's message, or with --chat-file the conversation.
static pl_status encode_chat(const pl_cli_args *a, const pl_target *t, const char *text, size_t n, int32_t **ids,
                             int64_t *n_ids, pl_err *err) {
    const char  *file = pl_cli_text(a, "chat-file"), *model = pl_cli_text(a, "tokenizer");
    pl_jinja_out chat = {0};
    unsigned     notes = 0;
    pl_chat_cli  c;
    pl_status    st = pl_chat_cli_open(&c, a, model ? model : pl_cli_text(a, "target"), err);
    c.options.add_generation_prompt = true;
    c.options.system = pl_cli_text(a, "system");
    c.options.notes = &notes;
    if (st == PL_OK)
        st = file ? pl_chat_template_render(c.template, file, 0, text, n, &c.options, &chat, err)
                  : pl_chat_said(c.template, "the conversation", 0, text, n, &c.options, &chat, err);
    if (st == PL_OK) pl_chat_warn_notes(notes, file ? file : "the conversation");
    if (st == PL_OK) st = pl_chat_encode(t->tok, chat.text, chat.n, ids, n_ids, err);
    pl_jinja_out_fini(&chat);
    pl_chat_cli_close(&c);
    return st;
}

static pl_status read_prompt(const pl_cli_args *a, const pl_target *t, int32_t **ids, int64_t *n, pl_err *err) {
    const char *text = pl_cli_text(a, "prompt"), *chat_file = pl_cli_text(a, "chat-file");
    const char *given = pl_cli_text(a, "prompt-ids"), *file = chat_file ? chat_file : pl_cli_text(a, "prompt-file");
    if (given) {
        pl_status st = pl_cli_ids(given, ids, n, err);
        return st == PL_OK ? PL_OK : pl_fail_at(err, st, "--prompt-ids");
    }
    if (!t->tok)
        return pl_fail(err, PL_E_USAGE, "%s: has no tokenizer for a prompt of text; give --tokenizer or --prompt-ids",
                       pl_cli_text(a, "target"));
    char  *data = NULL;
    size_t bytes = text ? strlen(text) : 0;
    if (file) {
        PL_TRY(pl_plain_stream(&data, &bytes, file, PROMPT_MAX, err));
        text = data;
        if (bytes > 0 && text[bytes - 1] == '\n') bytes--;
    }
    pl_status st;
    if (chat_file || pl_cli_has(a, "chat")) {
        st = encode_chat(a, t, text, bytes, ids, n, err);
    } else {
        st = pl_tokenizer_encode(t->tok, text, bytes, PL_TOK_ADD_BOS, ids, n, err);
        if (st != PL_OK) st = pl_fail_at(err, st, "%s", file ? file : "--prompt");
    }
    pl_free(data);
    return st;
}

// Checks that the trace file is none of the inputs, and is new or an earlier trace.
static pl_status check_trace(const pl_cli_args *a, pl_err *err) {
    static const char *const read[] = {"prompt-file", "chat-file"};
    const char              *trace = pl_cli_text(a, "trace");
    if (!trace) return PL_OK;
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        if (pl_cli_has(a, read[i]) && pl_path_same(trace, pl_cli_text(a, read[i])))
            return pl_fail(err, PL_E_USAGE, "--trace %s: is what --%s reads; give another file", trace, read[i]);
    return pl_file_spares(trace, pl_trace_is, "--trace", err);
}

static pl_status check_usage(const pl_cli_args *a, pl_err *err) {
    bool file = pl_cli_has(a, "chat-file"), chat = pl_cli_has(a, "chat") || file;
    int  prompts = pl_cli_has(a, "prompt") + pl_cli_has(a, "prompt-ids") + pl_cli_has(a, "prompt-file") + file;
    if (!pl_cli_has(a, "target")) return pl_fail(err, PL_E_USAGE, "--target: is missing; it names the model");
    if (prompts == 0)
        return pl_fail(err, PL_E_USAGE, "--prompt: is missing; give it, --prompt-file, --prompt-ids or --chat-file");
    if (prompts > 1)
        return pl_fail(err, PL_E_USAGE, "--prompt, --prompt-file, --prompt-ids and --chat-file exclude each other");
    if (pl_cli_has(a, "chat") && pl_cli_has(a, "prompt-ids"))
        return pl_fail(err, PL_E_USAGE, "--chat: writes text by a template; --prompt-ids are taken as they are");
    if (pl_cli_has(a, "system") && (!pl_cli_has(a, "chat") || file))
        return pl_fail(err, PL_E_USAGE, "--system: needs --chat; a --chat-file has its own");
    PL_TRY(pl_chat_cli_check(a, chat, err));
    if (pl_cli_has(a, "json-schema") + pl_cli_has(a, "regex") + pl_cli_has(a, "grammar") > 1)
        return pl_fail(err, PL_E_USAGE, "--json-schema, --regex and --grammar exclude each other");
    if (!pl_cli_has(a, "drafter") && pl_cli_has(a, "tree"))
        return pl_fail(err, PL_E_USAGE, "--tree: needs a --drafter");
    if (!pl_cli_has(a, "drafter") && pl_cli_has(a, "verify"))
        return pl_fail(err, PL_E_USAGE, "--verify: needs a --drafter");
    return check_trace(a, err);
}

static const char *lossy(const pl_verifier *v) {
    return v->lossless ? "" : " (lossy)";
}

static void list_kinds(FILE *f) {
    const pl_drafter_source *s;
    fprintf(f, "\nDrafters without a checkpoint (--drafter):\n");
    for (int i = 0; (s = pl_drafter_without_checkpoint(i)); i++)
        fprintf(f, "  %-27s %s\n", s->syntax, s->help);
    fprintf(f, "\nTrees (--tree):\n");
    for (int i = 0; pl_tree_kind_at(i); i++)
        fprintf(f, "  %-27s %s\n", pl_tree_kind_at(i)->syntax, pl_tree_kind_at(i)->help);
    fprintf(f, "\nVerifiers (at temperature 0 all of them are greedy verification):\n");
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        char               name[64];
        snprintf(name, sizeof name, "%s%s", v->name, lossy(v));
        fprintf(f, "  %-27s %s\n", name, v->help);
    }
}

// Writes the answer as the conversation's next message.
static pl_status put_message(pl_json_out *o, const pl_tokenizer *tok, const int32_t *answer, int32_t n, pl_err *err) {
    char *message;
    PL_TRY(pl_chat_answer_message(&message, tok, answer, n, err));
    pl_json_out_key(o, "message");
    pl_json_out_raw(o, message);
    pl_free(message);
    return PL_OK;
}

static pl_status write_json(decoding *d, const pl_runner *r, const pl_verifier *v, pl_err *err) {
    char              used[PL_TREE_TEXT];
    pl_json_out      *o = d->env->result;
    const pl_session *s = r->session;
    int32_t           n;
    const int32_t    *answer = pl_session_answer(s, &n);
    pl_put_ids(o, "prompt_tokens", pl_session_tokens(s), pl_session_prompt(s));
    pl_put_ids(o, "tokens", answer, n);
    pl_json_out_key(o, "text");
    if (d->has_text) {
        size_t bytes = d->text.n;
        char  *text = pl_strbuf_take(&d->text);
        if (!text) return pl_fail(err, PL_E_MEMORY, "text: out of memory");
        pl_json_out_strn(o, text, bytes);
        pl_free(text);
    } else {
        pl_json_out_null(o);
    }
    if (d->chat) PL_TRY(put_message(o, r->target->tok, answer, n, err));
    pl_put_str(o, "finish", pl_finish_name(pl_session_finish(s)));
    pl_put_str(o, "weights", pl_weights_name(r->target->dtype));
    pl_put_str(o, "kv", pl_weights_name(r->target->model.shape.kv));
    pl_put_str(o, "drafter", r->drafter ? r->drafter->kind->name : NULL);
    pl_put_str(o, "tree", r->drafter ? r->drafter->tree : NULL);
    pl_put_str(o, "verify", r->drafter ? v->name : NULL);
    pl_put_bool(o, "lossless", !r->drafter || v->lossless);
    pl_engine_tree(r->engine, used, sizeof used);
    pl_put_str(o, "tree_used", r->drafter ? used : NULL);
    pl_put_num(o, "open_seconds", d->opened);
    pl_put_num(o, "peak_memory_bytes", pl_memory_peak());
    pl_put_object(o, "stats");
    pl_stats_write(o, pl_session_statistics(s), pl_session_prompt(s));
    pl_json_out_close(o, '}');
    return PL_OK;
}

static void log_stats(const decoding *d, const pl_runner *r, const pl_verifier *v) {
    const pl_session_stats *t = pl_session_statistics(r->session);
    int32_t                 n = pl_session_prompt(r->session);
    pl_log("opened in %.3f s; peak memory %.2f GB", d->opened, pl_memory_peak() / 1e9);
    pl_log("prefill: %d tokens in %.3f s, %.1f tokens/s", n, t->prefill_seconds, n / t->prefill_seconds);
    if (t->steps == 0) return;
    pl_log("decode: %lld tokens in %.3f s, %.1f tokens/s; %lld steps, acceptance length %.2f", (long long)t->emitted,
           t->seconds, pl_stats_speed(t), (long long)t->steps, pl_stats_acceptance(t));
    if (!r->drafter || t->drafted == 0) return;
    char text[256] = "", tree[PL_TREE_TEXT];
    int  depth = pl_stats_depth(t), at = 0;
    for (int i = 0; i < depth && i < 16 && at < (int)sizeof text - 8; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %.2f", pl_stats_position(t, i));
    pl_engine_tree(r->engine, tree, sizeof tree);
    pl_log("drafts: %lld of %lld accepted (%.1f %%) by %s%s; by position%s; tree %s", (long long)t->accepted,
           (long long)t->drafted, 100 * pl_stats_accepted(t), v->name, lossy(v), text, tree);
}

// The constraint of an answer; the sampling borrows it.
typedef struct held {
    pl_token_text        *tokens;
    pl_grammar_constraint constraint;
} held;

static void held_close(held *h) {
    pl_grammar_constraint_fini(&h->constraint);
    pl_token_text_close(h->tokens);
}

// Opens the grammar that the options name, if they do.
static pl_status open_grammar(held *h, const pl_cli_args *a, const pl_target *t, pl_sampling *s, pl_err *err) {
    static const char *const name[] = {
        [PL_GRAMMAR_SCHEMA] = "json-schema", [PL_GRAMMAR_REGEX] = "regex", [PL_GRAMMAR_GBNF] = "grammar"};
    int kind = 0;
    while (kind <= PL_GRAMMAR_GBNF && !pl_cli_has(a, name[kind]))
        kind++;
    if (kind > PL_GRAMMAR_GBNF) return PL_OK;
    if (!t->tok) return pl_fail(err, PL_E_USAGE, "--%s: needs a tokenizer; give --tokenizer", name[kind]);
    const char *text = pl_cli_text(a, name[kind]);
    char       *data = NULL;
    size_t      n = strlen(text);
    if (kind != PL_GRAMMAR_REGEX) PL_TRY(pl_plain_stream(&data, &n, text, GRAMMAR_MAX, err));
    pl_grammar *g = NULL;
    pl_status   st = pl_token_text_open(&h->tokens, t->tok, err);
    if (st == PL_OK) st = pl_grammar_open(&g, (pl_grammar_kind)kind, data ? data : text, n, h->tokens, err);
    if (st == PL_OK) st = pl_grammar_constraint_init(&h->constraint, g, t->model.vocab, t->stop, t->n_stop, err);
    pl_free(data);
    s->constraint = &h->constraint.base;
    return st == PL_OK ? PL_OK : pl_fail_at(err, st, "--%s", name[kind]);
}

// Decodes one answer. trace: also records it there; NULL: no trace.
static pl_status decode(pl_runner *r, const int32_t *prompt, int64_t n, const pl_sampling *s, int max_new, decoding *d,
                        const char *trace, pl_err *err) {
    if (!trace) return pl_runner_run(r, prompt, n, s, max_new, on_token, d, err);
    pl_trace_answer of = {.method = r->drafter ? r->drafter->kind->name : "plain", .temperature = s->temperature};
    pl_trace        t;
    pl_status       st;
    PL_TRY(pl_trace_begin(&t, trace, err));
    PL_TRY_GOTO(st, done, pl_trace_prompt(&t, 0, NULL, prompt, n, err));
    pl_trace_open(&t, &of);
    pl_engine_on_cycle(r->engine, pl_trace_cycle, &t);
    PL_TRY_GOTO(st, done, pl_runner_run(r, prompt, n, s, max_new, on_token, d, err));
    PL_TRY_GOTO(st, done, pl_trace_close(&t, r->session, err));
    st = pl_trace_commit(&t, err);
done:
    pl_engine_on_cycle(r->engine, NULL, NULL);
    pl_trace_abort(&t);
    return st;
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    PL_TRY(check_usage(a, err));
    pl_target          target = {0};
    pl_runner          r = {0};
    decoding           d = {.env = env};
    held               h = {0};
    int32_t           *prompt = NULL;
    int64_t            n = 0;
    pl_status          st = PL_OK;
    int                max_new = (int)pl_cli_int(a, "max-new-tokens"), dtype = pl_cli_choice(a, "dtype");
    const char        *path = pl_cli_text(a, "target"), *tree = pl_cli_text(a, "tree");
    pl_sampling        sampling = {.temperature = pl_cli_real(a, "temperature"),
                                   .top_k = (int)pl_cli_int(a, "top-k"),
                                   .top_p = pl_cli_real(a, "top-p"),
                                   .min_p = pl_cli_real(a, "min-p"),
                                   .repetition_penalty = pl_cli_real(a, "repetition-penalty"),
                                   .seed = env->seed};
    const pl_verifier *verifier = pl_verifier_find(pl_cli_text(a, "verify"), err);
    if (!verifier) return PL_E_USAGE;
    PL_TRY(pl_sampling_check(&sampling, err));
    double begun = pl_now();
    PL_TRY_GOTO(st, done,
                pl_target_open_over(&target, path, pl_cli_text(a, "tokenizer"), pl_cli_text(a, "pre"),
                                    dtype < 0    ? PL_WEIGHTS_AUTO
                                    : dtype == 0 ? PL_WEIGHTS_BF16
                                                 : PL_WEIGHTS_FP32,
                                    env->backend, env->tp, err));
    target.model.shape.kv = pl_kv_chosen(pl_cli_choice(a, "kv"));
    if (!target.tok && !env->json) {
        st = pl_fail(err, PL_E_USAGE, "%s: has no tokenizer to write text with; give --tokenizer, or --json for ids",
                     path);
        goto done;
    }
    PL_TRY_GOTO(st, done, read_prompt(a, &target, &prompt, &n, err));
    PL_TRY_GOTO(st, done, open_grammar(&h, a, &target, &sampling, err));
    pl_runner_options o = {.drafter = pl_cli_text(a, "drafter"),
                           .tree = tree,
                           .verifier = verifier,
                           .host_logits = sampling.constraint != NULL};
    // The cache is no larger than this text needs; the run reports a prompt that is too long.
    if (n < target.model.config.max_position_embeddings - max_new) o.max_len = (int)n + max_new + 1;
    PL_TRY_GOTO(st, done, pl_runner_open(&r, env->backend, env->pool, &target, &o, err));
    d.opened = pl_now() - begun;
    d.has_text = target.tok != NULL;
    d.chat = pl_cli_has(a, "chat") || pl_cli_has(a, "chat-file");
    if (d.has_text)
        PL_TRY_GOTO(st, done,
                    pl_detok_init(&d.detok, target.tok, pl_tokenizer_all_special(target.tok, prompt, n), err));
    st = decode(&r, prompt, n, &sampling, max_new, &d, pl_cli_text(a, "trace"), err);
    if (d.has_text) {
        const char *s;
        size_t      bytes = pl_detok_flush(&d.detok, &s);
        put(&d, s, bytes);
        if (!env->json && r.session && pl_session_length(r.session) > pl_session_prompt(r.session)) put(&d, "\n", 1);
    }
    if (st != PL_OK) goto done;
    if (d.failed) {
        errno = d.failed;
        PL_TRY_GOTO(st, done, pl_fail_errno(err, "standard output"));
    }
    if (env->json) PL_TRY_GOTO(st, done, write_json(&d, &r, verifier, err));
    log_stats(&d, &r, verifier);
    st = pl_runner_save(&r, err);
done:
    if (d.has_text) pl_detok_fini(&d.detok);
    pl_strbuf_fini(&d.text);
    pl_runner_close(&r);
    held_close(&h);
    pl_target_close(&target);
    pl_free(prompt);
    return st;
}

static bool find_model(const pl_cli_args *a, const char **model, pl_dtype *weights) {
    int dtype = pl_cli_choice(a, "dtype");
    *model = pl_cli_text(a, "target");
    if (dtype >= 0) *weights = dtype == 0 ? PL_BF16 : PL_F32;
    return true;
}

const pl_command pl_command_decode = {
    .name = "decode",
    .summary = "answers one prompt, streamed, with statistics",
    .options = options,
    .about = "Continues a prompt. With a draft head the answer comes faster. With the verifier match it is, token for\n"
             "token, what plain decoding gives; the other lossless verifiers keep its distribution. The text goes to\n"
             "standard output, figures to standard error.",
    .lists = list_kinds,
    .example = "paceline decode --target checkpoints/tiny --prompt \"It was a dark\" --max-new-tokens 64",
    .devices = true,
    .runs = find_model,
    .parts = true,
    .run = run,
};

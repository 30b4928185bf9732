// `paceline prompts`: the target writes what its users would ask (Magpie, arXiv 2406.08464), so that a drafter needs a
// model and no prompts. A chat model's template is rendered up to a user's message, which the model then samples; a
// base model continues from BOS.
//
// The file grows by whole lines, and a line's id is the number of its sample: the same command goes on behind the last
// line, with what a run that was not stopped would have written.
#include "checkpoints/names.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/cli/cli.h"
#include "infer/command/chat.h"
#include "infer/generate/generator.h"
#include "infer/model/target.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX_BYTES ((size_t)4 << 30)
#define MARK "THE-MESSAGE-ITSELF"
enum { PATIENCE = 8 }; // samples per missing prompt; a target that needs more repeats itself

static const pl_key options[] = {
    {PL_OPTION_TEXT("target", "MODEL"), .help = "the model that asks: a folder or a .gguf file"},
    {PL_OPTION_TEXT("tokenizer", "PATH"), .help = "its tokenizer [the model's own]"},
    PL_OPTION_PRE,
    {PL_OPTION_TEXT("out", "F.jsonl"), .letter = 'o', .help = "the file of prompts; an unfinished one is continued"},
    {PL_OPTION_INT("count", "N"), .letter = 'n', .deflt = "1000", .min = 1, .max = 100000000, .help = "prompts in it"},
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

typedef struct asking {
    pl_target   target;
    pl_chat_cli chat;
    bool        base;
    char       *before; // the text in front of the message; "": BOS alone
    // The file, its prompts in one spelling, and the number of samples up to its last line.
    const char *path; // borrowed
    char       *settings_path, *settings;
    int         fd;
    pl_names    seen;
    char      **text; // [seen.count], owned
    int64_t     room, sampled;
    int64_t     open_ended, too_short, repeated, marked; // left out in this run
} asking;

static void close_all(asking *k) {
    for (int64_t i = 0; i < k->seen.count; i++)
        pl_free(k->text[i]);
    pl_free(k->text);
    pl_names_fini(&k->seen);
    pl_free(k->before);
    pl_free(k->settings_path);
    pl_free(k->settings);
    if (k->fd >= 0) close(k->fd);
    pl_chat_cli_close(&k->chat);
    pl_target_close(&k->target);
}

// ---- what stands before a message

static pl_status template_before(asking *k, const char *system, pl_err *err) {
    pl_jinja_out out = {0};
    k->chat.options.add_generation_prompt = false;
    k->chat.options.system = system;
    PL_TRY(pl_chat_said(k->chat.template, "the chat template", 1, MARK, strlen(MARK), &k->chat.options, &out, err));
    char *at = strstr(out.text, MARK);
    if (at) {
        *at = 0;
        k->before = pl_strdup(out.text);
    }
    pl_jinja_out_fini(&out);
    if (!at)
        return pl_fail(err, PL_E_INPUT, "the chat template leaves a user's message out; --base continues from BOS");
    return k->before ? PL_OK : pl_fail(err, PL_E_MEMORY, "the chat template: out of memory");
}

static pl_status open_template(asking *k, const pl_cli_args *a, pl_err *err) {
    const char *path = pl_cli_text(a, "target"), *tokenizer = pl_cli_text(a, "tokenizer");
    pl_err      none = {0};
    k->base = pl_cli_has(a, "base");
    if (!k->base && pl_chat_cli_open(&k->chat, a, tokenizer ? tokenizer : path, &none) != PL_OK) {
        if (pl_cli_has(a, "chat-template") || none.status != PL_E_INPUT) {
            *err = none;
            return none.status;
        }
        k->base = true;
    }
    if (k->base && pl_cli_has(a, "system")) return pl_fail(err, PL_E_USAGE, "--system: needs a chat template");
    return PL_OK;
}

static pl_status find_before(asking *k, const pl_cli_args *a, pl_err *err) {
    if (!k->base) return template_before(k, pl_cli_text(a, "system"), err);
    if (!pl_tokenizer_adds_bos(k->target.tok))
        return pl_fail(err, PL_E_INPUT,
                       "%s: a base model whose tokenizer adds no BOS: there is nothing to continue from",
                       pl_cli_text(a, "target"));
    pl_log("a base model: it continues from BOS");
    k->before = pl_strdup("");
    return k->before ? PL_OK : pl_fail(err, PL_E_MEMORY, "prompts: out of memory");
}

// ---- the file

// Writes the settings that determine the file's lines.
static pl_status describe(asking *k, const pl_env *env, const pl_cli_args *a, pl_err *err) {
    pl_json_out o;
    pl_json_out_begin(&o, 1);
    pl_json_out_object(&o);
    pl_put_str(&o, "target", k->target.model.fingerprint);
    pl_put_str(&o, "weights", pl_weights_name(k->target.dtype));
    pl_put_str(&o, "arithmetic", env->backend->arithmetic);
    pl_put_str(&o, "before", k->before);
    pl_put_num(&o, "temperature", pl_cli_real(a, "temperature"));
    pl_put_num(&o, "top_p", pl_cli_real(a, "top-p"));
    pl_put_int(&o, "min_tokens", pl_cli_int(a, "min-tokens"));
    pl_put_int(&o, "max_tokens", pl_cli_int(a, "max-tokens"));
    pl_put_int(&o, "seed", (int64_t)env->seed);
    pl_json_out_close(&o, '}');
    PL_TRY(pl_json_out_end(&o, err));
    k->settings = o.text;
    return PL_OK;
}

// The spelling by which prompts are the same: letters without case, blanks as one.
static char *spelling(const char *text) {
    char  *s = pl_malloc(strlen(text) + 1);
    size_t n = 0;
    for (; s && *text; text++) {
        bool blank = isspace((unsigned char)*text);
        if (blank && (n == 0 || s[n - 1] == ' ')) continue;
        s[n++] = blank ? ' ' : (char)tolower((unsigned char)*text);
    }
    if (s) s[n > 0 && s[n - 1] == ' ' ? n - 1 : n] = 0;
    return s;
}

// Adds a prompt to those seen. *isnew: it was not one of them.
static pl_status see(asking *k, const char *text, bool *isnew, pl_err *err) {
    *isnew = false;
    if (k->seen.count == k->room) {
        int64_t room = k->room ? 2 * k->room : 1024;
        char  **more = pl_realloc(k->text, (size_t)room * sizeof *more);
        if (!more) return pl_fail(err, PL_E_MEMORY, "prompts: out of memory");
        k->text = more;
        k->room = room;
    }
    char   *s = spelling(text);
    int64_t at = s ? pl_names_add(&k->seen, s) : -2;
    if (at >= 0)
        k->text[at] = s;
    else
        pl_free(s);
    *isnew = at >= 0;
    return at == -2 ? pl_fail(err, PL_E_MEMORY, "prompts: out of memory") : PL_OK;
}

// Reads the lines that are there, and cuts one that a stopped run left unfinished.
static pl_status take_lines(asking *k, pl_err *err) {
    uint8_t    *data;
    size_t      n;
    pl_prompts *there = NULL;
    bool        isnew;
    PL_TRY(pl_file_read(k->path, &data, &n, FILE_MAX_BYTES, err));
    size_t whole = n;
    while (whole > 0 && data[whole - 1] != '\n')
        whole--;
    pl_free(data);
    if (whole < n && truncate(k->path, (off_t)whole) != 0) return pl_fail_errno(err, "%s", k->path);
    if (whole == 0) return PL_OK;
    PL_TRY(pl_prompts_read(&there, k->path, err));
    pl_status st = PL_OK;
    for (int64_t i = 0; i < there->n && st == PL_OK; i++) {
        st = see(k, there->p[i].text, &isnew, err);
        if (there->p[i].id >= k->sampled) k->sampled = there->p[i].id + 1;
    }
    pl_prompts_destroy(there);
    return st;
}

// Refuses a file of another origin.
static pl_status look_at_file(asking *k, pl_err *err) {
    size_t bytes = strlen(k->path) + sizeof ".settings";
    k->settings_path = pl_malloc(bytes);
    if (!k->settings_path) return pl_fail(err, PL_E_MEMORY, "prompts: out of memory");
    snprintf(k->settings_path, bytes, "%s.settings", k->path);
    PL_TRY(pl_file_look(k->path, err));
    if (!pl_path_exists(k->path) || pl_path_exists(k->settings_path)) return pl_file_look(k->settings_path, err);
    return pl_fail(err, PL_E_INPUT, "%s: is there, and not of this command (no %s); name another --out", k->path,
                   k->settings_path);
}

static pl_status open_file(asking *k, pl_err *err) {
    uint8_t *was;
    size_t   n;
    if (!pl_path_exists(k->path)) {
        PL_TRY(pl_file_write_atomic(k->settings_path, k->settings, strlen(k->settings), err));
    } else {
        PL_TRY(pl_file_read(k->settings_path, &was, &n, 1 << 20, err));
        bool same = strcmp((const char *)was, k->settings) == 0;
        pl_free(was);
        if (!same)
            return pl_fail(err, PL_E_INPUT, "%s: was made with other settings (%s); name another --out, or remove both",
                           k->path, k->settings_path);
        PL_TRY(take_lines(k, err));
    }
    return pl_file_open(k->path, O_WRONLY | O_CREAT | O_APPEND, &k->fd, err);
}

static pl_status put_line(const asking *k, const char *text, size_t n, int64_t id, pl_err *err) {
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    pl_json_out_key(&o, "prompt"), pl_json_out_strn(&o, text, n);
    pl_put_int(&o, "id", id);
    pl_json_out_close(&o, '}');
    PL_TRY(pl_json_out_end(&o, err));
    pl_status st = pl_fd_write(k->fd, k->path, o.text, o.len, err);
    if (st == PL_OK) st = pl_fd_write(k->fd, k->path, "\n", 1, err);
    pl_free(o.text);
    return st;
}

// ---- the samples

// Keeps a sample, or counts why not.
static pl_status take_sample(asking *k, const pl_columns *doc, int64_t id, int64_t least, pl_err *err) {
    int64_t first = 0;
    while (first < doc->n && !doc->loss_mask[first])
        first++;
    int64_t n = doc->n - first;
    bool    special = false, isnew;
    if (!k->base && doc->about->finish != PL_ANSWER_STOP) {
        k->open_ended++;
        return PL_OK;
    }
    for (int64_t i = first; i < doc->n; i++)
        special |= pl_tokenizer_is_special(k->target.tok, doc->tokens[i]);
    if (special || n < least) {
        *(special ? &k->marked : &k->too_short) += 1;
        return PL_OK;
    }
    char  *text;
    size_t bytes;
    PL_TRY(pl_tokenizer_decode(k->target.tok, doc->tokens + first, n, &text, &bytes, err));
    size_t from = 0;
    while (from < bytes && isspace((unsigned char)text[from]))
        from++;
    while (bytes > from && isspace((unsigned char)text[bytes - 1]))
        text[--bytes] = 0;
    pl_status st = PL_OK;
    if (from == bytes || strlen(text) < bytes) { // nothing, or a NUL in it
        k->too_short++;
    } else {
        st = see(k, text + from, &isnew, err);
        if (st == PL_OK && isnew) st = put_line(k, text + from, bytes - from, id, err);
        if (st == PL_OK && !isnew) k->repeated++;
    }
    pl_free(text);
    return st;
}

static pl_status sample(asking *k, pl_generator *g, int64_t count, int64_t least, pl_err *err) {
    pl_progress p;
    pl_columns  doc;
    pl_status   st = PL_OK;
    int64_t     most = k->sampled + PATIENCE * (count - k->seen.count) + 64;
    pl_stop_hold();
    pl_progress_begin(&p, "prompts", k->seen.count, count);
    while (st == PL_OK && k->seen.count < count && k->sampled < most) {
        st = pl_generator_next(g, &doc, err);
        if (st == PL_OK) st = take_sample(k, &doc, k->sampled, least, err);
        if (st == PL_OK) k->sampled++;
        pl_progress_update(&p, k->seen.count, "%lld sampled", (long long)k->sampled);
        if (st == PL_OK && pl_stop_requested() && k->seen.count < count)
            st = pl_fail(err, PL_E_INTERRUPTED, "stopped with %lld of %lld prompts in %s; the same command goes on",
                         (long long)k->seen.count, (long long)count, k->path);
    }
    pl_progress_end(&p);
    pl_stop_release();
    return st;
}

// Refuses a text before the message that fills the target's context.
static pl_status check_room(const asking *k, const pl_prompt *before, pl_err *err) {
    int32_t *ids;
    int64_t  n, room = k->target.model.config.max_position_embeddings;
    PL_TRY(pl_prompt_encode(k->target.tok, before, &ids, &n, err));
    pl_free(ids);
    if (n < room - 1) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "the text before a message has %lld tokens of a context of %lld; shorten --system",
                   (long long)n, (long long)room);
}

static pl_status ask(asking *k, const pl_env *env, const pl_cli_args *a, pl_err *err) {
    int64_t    count = pl_cli_int(a, "count");
    pl_prompts one = {0};
    pl_prompt  before = {.text = pl_strdup(k->before), .category = pl_strdup(""), .turns = 1, .rendered = !k->base};
    if (k->seen.count >= count) {
        pl_prompt_fini(&before);
        return PL_OK;
    }
    PL_TRY(pl_prompts_push(&one, before, k->path, err));
    pl_generator_options o = {.max_new = (int)pl_cli_int(a, "max-tokens"),
                              .samples = -1,
                              .temperature = pl_cli_real(a, "temperature"),
                              .top_p = pl_cli_real(a, "top-p"),
                              .sessions = (int)pl_cli_int(a, "sessions"),
                              .seed = env->seed,
                              .first_job = k->sampled};
    pl_generator        *g = NULL;
    pl_status            st = check_room(k, &one.p[0], err);
    if (st == PL_OK) st = pl_generator_create(&g, env, &k->target.model, k->target.tok, &one, &o, err);
    if (st == PL_OK) st = sample(k, g, count, pl_cli_int(a, "min-tokens"), err);
    pl_generator_destroy(g);
    pl_prompt_fini(&one.p[0]);
    pl_free(one.p);
    if (st == PL_OK && k->seen.count < count)
        pl_log_warn(
            "%s: %lld prompts, not %lld: %lld samples were repeats, %lld without an end, %lld too short, %lld with "
            "special tokens; another --seed or a higher --temperature finds others",
            k->path, (long long)k->seen.count, (long long)count, (long long)k->repeated, (long long)k->open_ended,
            (long long)k->too_short, (long long)k->marked);
    return st;
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    asking k = {.fd = -1};
    k.path = pl_cli_text(a, "out");
    if (!pl_cli_has(a, "target")) return pl_fail(err, PL_E_USAGE, "--target: is missing; it names the model that asks");
    if (!k.path) return pl_fail(err, PL_E_USAGE, "--out: is missing; it names the file of prompts");
    pl_status st = look_at_file(&k, err);
    if (st == PL_OK) st = open_template(&k, a, err);
    if (st == PL_OK)
        st = pl_target_open_over(&k.target, pl_cli_text(a, "target"), pl_cli_text(a, "tokenizer"),
                                 pl_cli_text(a, "pre"), PL_WEIGHTS_AUTO, env->backend, env->tp, err);
    if (st == PL_OK && !k.target.tok)
        st = pl_fail(err, PL_E_USAGE, "%s: has no tokenizer to write text with; give --tokenizer",
                     pl_cli_text(a, "target"));
    if (st == PL_OK) st = find_before(&k, a, err);
    if (st == PL_OK) st = describe(&k, env, a, err);
    if (st == PL_OK) st = open_file(&k, err);
    if (st == PL_OK) st = ask(&k, env, a, err);
    if (st == PL_OK && env->json) {
        pl_put_str(env->result, "file", k.path);
        pl_put_int(env->result, "prompts", k.seen.count);
        pl_put_int(env->result, "sampled", k.sampled);
        pl_put_int(env->result, "repeated", k.repeated);
        pl_put_int(env->result, "without_end", k.open_ended);
        pl_put_int(env->result, "too_short", k.too_short);
        pl_put_int(env->result, "with_special_tokens", k.marked);
    } else if (st == PL_OK) {
        fprintf(env->text, "%s: %lld prompts of %lld samples\n", k.path, (long long)k.seen.count, (long long)k.sampled);
    }
    close_all(&k);
    return st;
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
        "A stopped run goes on with the same command, a larger --count extends the file.",
    .example = "paceline prompts --target checkpoints/tiny --out prompts.jsonl --count 100",
    .devices = true,
    .runs = find_model,
    .parts = true,
    .run = run,
};

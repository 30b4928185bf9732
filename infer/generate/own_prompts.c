#include "infer/generate/own_prompts.h"

#include "checkpoints/names.h"
#include "data/chat/prompts.h"
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX_BYTES ((size_t)4 << 30)
#define MARK "THE-MESSAGE-ITSELF"
enum { PATIENCE = 8 }; // samples per missing prompt; a target that needs more repeats itself

typedef struct own {
    const pl_own_prompts *o;
    pl_target             target;
    pl_chat_template *template;    // NULL: continues from BOS
    char                  *before; // the text in front of the message; "": BOS alone
    // The file, its prompts in one spelling, and the number of samples up to its last line.
    char                  *settings_path, *settings;
    int                    fd;
    pl_names               seen;
    char                 **text; // [seen.count], owned
    int64_t                room;
    pl_own_prompts_result *r;
} own;

static void close_all(own *k) {
    for (int64_t i = 0; i < k->seen.count; i++)
        pl_free(k->text[i]);
    pl_free(k->text);
    pl_names_fini(&k->seen);
    pl_free(k->before);
    pl_free(k->settings_path);
    pl_free(k->settings);
    if (k->fd >= 0) close(k->fd);
    pl_chat_template_close(k->template);
    pl_target_close(&k->target);
}

// ---- what stands before a message

static pl_status template_before(own *k, pl_err *err) {
    pl_jinja_out    out = {0};
    pl_chat_options o = {.kwargs = k->o->kwargs, .date = k->o->date, .system = k->o->system};
    PL_TRY(pl_chat_said(k->template, "the chat template", 1, MARK, strlen(MARK), &o, &out, err));
    char *at = strstr(out.text, MARK);
    if (at) {
        *at = 0;
        k->before = pl_strdup(out.text);
    }
    pl_jinja_out_fini(&out);
    if (!at)
        return pl_fail(err, PL_E_INPUT,
                       "the chat template leaves a user's message out: there is no text to continue; --base (of a "
                       "recipe data.form: text) continues from BOS");
    return k->before ? PL_OK : pl_fail(err, PL_E_MEMORY, "the chat template: out of memory");
}

static pl_status open_template(own *k, pl_err *err) {
    const pl_own_prompts *o = k->o;
    pl_err                none = {0};
    if (o->form != PL_OWN_BASE) {
        const char *dir = o->tokenizer ? o->tokenizer : o->target;
        pl_status   st = pl_chat_template_open(&k->template, dir, o->template, &none);
        if (st != PL_OK && (o->form == PL_OWN_CHAT || o->template || none.status != PL_E_INPUT)) {
            *err = none;
            return none.status;
        }
    }
    if (!k->template && o->system) return pl_fail(err, PL_E_USAGE, "--system: needs a chat template");
    return PL_OK;
}

static pl_status find_before(own *k, pl_err *err) {
    if (k->template) return template_before(k, err);
    if (!pl_tokenizer_adds_bos(k->target.tok))
        return pl_fail(err, PL_E_INPUT,
                       "%s: a base model whose tokenizer adds no BOS: there is nothing to continue from", k->o->target);
    pl_log("a base model: it continues from BOS");
    k->before = pl_strdup("");
    return k->before ? PL_OK : pl_fail(err, PL_E_MEMORY, "prompts: out of memory");
}

// ---- the file

// Writes the settings that determine the file's lines.
static pl_status describe(own *k, const pl_env *env, pl_err *err) {
    pl_json_out o;
    pl_json_out_begin(&o, 1);
    pl_json_out_object(&o);
    pl_put_str(&o, "target", k->target.model.fingerprint);
    pl_put_str(&o, "weights", pl_weights_name(k->target.dtype));
    pl_put_str(&o, "arithmetic", env->backend->arithmetic);
    pl_put_str(&o, "before", k->before);
    pl_put_num(&o, "temperature", k->o->temperature);
    pl_put_num(&o, "top_p", k->o->top_p);
    pl_put_int(&o, "min_tokens", k->o->min_tokens);
    pl_put_int(&o, "max_tokens", k->o->max_tokens);
    pl_put_int(&o, "seed", (int64_t)k->o->seed);
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
static pl_status see(own *k, const char *text, bool *isnew, pl_err *err) {
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
static pl_status take_lines(own *k, pl_err *err) {
    uint8_t    *data;
    size_t      n;
    pl_prompts *there = NULL;
    bool        isnew;
    PL_TRY(pl_file_read(k->o->path, &data, &n, FILE_MAX_BYTES, err));
    size_t whole = n;
    while (whole > 0 && data[whole - 1] != '\n')
        whole--;
    pl_free(data);
    if (whole < n && truncate(k->o->path, (off_t)whole) != 0) return pl_fail_errno(err, "%s", k->o->path);
    if (whole == 0) return PL_OK;
    PL_TRY(pl_prompts_read(&there, k->o->path, err));
    pl_status st = PL_OK;
    for (int64_t i = 0; i < there->n && st == PL_OK; i++) {
        st = see(k, there->p[i].text, &isnew, err);
        if (there->p[i].id >= k->r->sampled) k->r->sampled = there->p[i].id + 1;
    }
    pl_prompts_destroy(there);
    return st;
}

// Refuses a file of another origin.
static pl_status look_at_file(own *k, pl_err *err) {
    size_t bytes = strlen(k->o->path) + sizeof ".settings";
    k->settings_path = pl_malloc(bytes);
    if (!k->settings_path) return pl_fail(err, PL_E_MEMORY, "prompts: out of memory");
    snprintf(k->settings_path, bytes, "%s.settings", k->o->path);
    PL_TRY(pl_file_look(k->o->path, err));
    if (!pl_path_exists(k->o->path) || pl_path_exists(k->settings_path)) return pl_file_look(k->settings_path, err);
    return pl_fail(err, PL_E_INPUT, "%s: is there, and not of this command (no %s); name another --out", k->o->path,
                   k->settings_path);
}

static pl_status open_file(own *k, pl_err *err) {
    uint8_t *was;
    size_t   n;
    if (!pl_path_exists(k->o->path)) {
        PL_TRY(pl_file_write_atomic(k->settings_path, k->settings, strlen(k->settings), err));
    } else {
        PL_TRY(pl_file_read(k->settings_path, &was, &n, 1 << 20, err));
        bool same = strcmp((const char *)was, k->settings) == 0;
        pl_free(was);
        if (!same)
            return pl_fail(err, PL_E_INPUT, "%s: was made with other settings (%s); name another --out, or remove both",
                           k->o->path, k->settings_path);
        PL_TRY(take_lines(k, err));
    }
    return pl_file_open(k->o->path, O_WRONLY | O_CREAT | O_APPEND, &k->fd, err);
}

static pl_status put_line(const own *k, const char *text, size_t n, int64_t id, pl_err *err) {
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    pl_json_out_key(&o, "prompt"), pl_json_out_strn(&o, text, n);
    pl_put_int(&o, "id", id);
    pl_json_out_close(&o, '}');
    PL_TRY(pl_json_out_end(&o, err));
    pl_status st = pl_fd_write(k->fd, k->o->path, o.text, o.len, err);
    if (st == PL_OK) st = pl_fd_write(k->fd, k->o->path, "\n", 1, err);
    pl_free(o.text);
    return st;
}

// ---- the samples

// Keeps a sample, or counts why not.
static pl_status take_sample(own *k, const pl_columns *doc, int64_t id, int64_t least, pl_err *err) {
    int64_t first = 0;
    while (first < doc->n && !doc->loss_mask[first])
        first++;
    int64_t n = doc->n - first;
    bool    special = false, isnew;
    if (k->template && doc->about->finish != PL_ANSWER_STOP) {
        k->r->open_ended++;
        return PL_OK;
    }
    for (int64_t i = first; i < doc->n; i++)
        special |= pl_tokenizer_is_special(k->target.tok, doc->tokens[i]);
    if (special || n < least) {
        *(special ? &k->r->marked : &k->r->too_short) += 1;
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
        k->r->too_short++;
    } else {
        st = see(k, text + from, &isnew, err);
        if (st == PL_OK && isnew) st = put_line(k, text + from, bytes - from, id, err);
        if (st == PL_OK && !isnew) k->r->repeated++;
    }
    pl_free(text);
    return st;
}

static pl_status sample(own *k, pl_generator *g, int64_t count, int64_t least, pl_err *err) {
    pl_progress p;
    pl_columns  doc;
    pl_status   st = PL_OK;
    int64_t     most = k->r->sampled + PATIENCE * (count - k->seen.count) + 64;
    pl_stop_hold();
    pl_progress_begin(&p, "prompts", k->seen.count, count);
    while (st == PL_OK && k->seen.count < count && k->r->sampled < most) {
        st = pl_generator_next(g, &doc, err);
        if (st == PL_OK) st = take_sample(k, &doc, k->r->sampled, least, err);
        if (st == PL_OK) k->r->sampled++;
        pl_progress_update(&p, k->seen.count, "%lld sampled", (long long)k->r->sampled);
        if (st == PL_OK && pl_stop_requested() && k->seen.count < count)
            st = pl_fail(err, PL_E_INTERRUPTED, "stopped with %lld of %lld prompts in %s; the same command goes on",
                         (long long)k->seen.count, (long long)count, k->o->path);
    }
    pl_progress_end(&p);
    pl_stop_release();
    return st;
}

// Refuses a text before the message that fills the target's context.
static pl_status check_room(const own *k, const pl_prompt *before, pl_err *err) {
    int32_t *ids;
    int64_t  n, room = k->target.model.config.max_position_embeddings;
    PL_TRY(pl_prompt_encode(k->target.tok, before, &ids, &n, err));
    pl_free(ids);
    if (n < room - 1) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "the text before a message has %lld tokens of a context of %lld; shorten --system",
                   (long long)n, (long long)room);
}

static pl_status write_rest(own *k, const pl_env *env, pl_err *err) {
    int64_t    count = k->o->count;
    pl_prompts one = {0};
    pl_prompt  before = {
         .text = pl_strdup(k->before), .category = pl_strdup(""), .turns = 1, .rendered = k->template != NULL};
    if (k->seen.count >= count) {
        pl_prompt_fini(&before);
        return PL_OK;
    }
    PL_TRY(pl_prompts_push(&one, before, k->o->path, err));
    pl_generator_options o = {.max_new = (int)k->o->max_tokens,
                              .samples = -1,
                              .temperature = k->o->temperature,
                              .top_p = k->o->top_p,
                              .sessions = k->o->sessions,
                              .seed = k->o->seed,
                              .first_job = k->r->sampled};
    pl_generator        *g = NULL;
    pl_status            st = check_room(k, &one.p[0], err);
    if (st == PL_OK) st = pl_generator_create(&g, env, &k->target.model, k->target.tok, &one, &o, err);
    if (st == PL_OK) st = sample(k, g, count, k->o->min_tokens, err);
    pl_generator_destroy(g);
    pl_prompt_fini(&one.p[0]);
    pl_free(one.p);
    if (st == PL_OK && k->seen.count < count)
        pl_log_warn(
            "%s: %lld prompts, not %lld: %lld samples were repeats, %lld without an end, %lld too short, %lld with "
            "special tokens; another --seed or a higher --temperature finds others",
            k->o->path, (long long)k->seen.count, (long long)count, (long long)k->r->repeated,
            (long long)k->r->open_ended, (long long)k->r->too_short, (long long)k->r->marked);
    return st;
}

pl_status pl_own_prompts_write(pl_own_prompts_result *r, const pl_own_prompts *o, const pl_env *env, pl_err *err) {
    own k = {.o = o, .r = r, .fd = -1};
    *r = (pl_own_prompts_result){0};
    pl_status st = look_at_file(&k, err);
    if (st == PL_OK) st = open_template(&k, err);
    if (st == PL_OK)
        st = pl_target_open_over(&k.target, o->target, o->tokenizer, o->pre, o->weights, env->backend, env->tp, err);
    if (st == PL_OK && !k.target.tok)
        st = pl_fail(err, PL_E_USAGE, "%s: has no tokenizer to write text with; give --tokenizer", o->target);
    if (st == PL_OK) st = find_before(&k, err);
    if (st == PL_OK) st = describe(&k, env, err);
    if (st == PL_OK) st = open_file(&k, err);
    if (st == PL_OK) st = write_rest(&k, env, err);
    r->prompts = k.seen.count;
    close_all(&k);
    return st;
}

// ---- of a recipe

bool pl_own_prompts_wanted(const pl_recipe *r) {
    const pl_generate_recipe *g = pl_generate_recipe_of(r);
    const void *const         of[] = {&g->data.own.temperature, &g->data.own.top_p, &g->data.own.min_tokens,
                                      &g->data.own.max_tokens};
    if (g->data.prompts && strncmp(g->data.prompts, PL_OWN_PROMPTS, strlen(PL_OWN_PROMPTS)) == 0) return true;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (pl_recipe_differs(r, of[i]))
            pl_log_warn_once("%s: is not read, since data.prompts is not self:N", pl_recipe_path(r, of[i]));
    return false;
}

pl_status pl_own_prompts_count(int64_t *count, const pl_recipe *r, pl_err *err) {
    const char *const *prompts = &pl_generate_recipe_of(r)->data.prompts;
    const char        *text = *prompts + strlen(PL_OWN_PROMPTS);
    char              *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end == text || *end || errno || n < 1 || n > PL_OWN_PROMPTS_MOST)
        return pl_recipe_fail(r, prompts, err,
                              "\"%s\": expected the number of prompts that the target writes, self:20000", *prompts);
    *count = n;
    return PL_OK;
}

pl_status pl_own_prompts_of_recipe(const pl_recipe *r, int64_t count, const pl_env *env, pl_err *err) {
    const pl_generate_recipe *g = pl_generate_recipe_of(r);
    bool                      chat = g->data.form == PL_FORM_CHAT;
    pl_own_prompts_result     result;
    pl_own_prompts            o = {.target = g->target.path,
                                   .tokenizer = g->target.tokenizer,
                                   .pre = g->target.pre,
                                   .weights = pl_target_dtype(g) == PL_F32 ? PL_WEIGHTS_FP32 : PL_WEIGHTS_BF16,
                                   .form = chat ? PL_OWN_CHAT : PL_OWN_BASE,
                                   .template = g->data.chat.template,
                                   .kwargs = g->data.chat.kwargs,
                                   .date = g->data.chat.date,
                                   .system = g->data.chat.system,
                                   .path = g->data.prompts,
                                   .count = count,
                                   .temperature = g->data.own.temperature,
                                   .top_p = g->data.own.top_p,
                                   .min_tokens = g->data.own.min_tokens,
                                   .max_tokens = g->data.own.max_tokens,
                                   .sessions = (int)g->data.sessions,
                                   .seed = (uint64_t)g->seed};
    PL_TRY(pl_recipe_require(r, &g->target.path, err));
    PL_TRY(pl_own_prompts_write(&result, &o, env, err));
    if (result.prompts >= count) return PL_OK;
    return pl_fail(err, PL_E_INPUT,
                   "%s: the target wrote %lld prompts that differ, not %lld; give data.prompts: self:%lld", o.path,
                   (long long)result.prompts, (long long)count, (long long)result.prompts);
}

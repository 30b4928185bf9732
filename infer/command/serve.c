// `paceline serve`: a target, perhaps with a drafter, behind OpenAI's API.
#include "infer/cli/cli.h"
#include "infer/command/chat.h"

#include "infer/decode/runner.h"
#include "infer/model/kv.h"
#include "infer/serve/http.h"
#include "infer/serve/serve.h"
#include "infer/serve/weights.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "kernels/base/room.h"

#include <errno.h>
#include <string.h>

enum { USUAL_LENGTH = 8192 }; // positions of a session, where the target has more

static const pl_key options[] = {
    {PL_OPTION_TEXT("target", "DIR|FILE"), .help = "the model: a Hugging Face folder, a GGUF file or a llama2.c file"},
    {PL_OPTION_TEXT("tokenizer", "PATH"), .help = "its tokenizer, where the target brings none"},
    PL_OPTION_PRE,
    {PL_OPTION_TEXT("drafter", "DIR|NAME"), .help = "draft head's checkpoint or a name of `decode --help`"},
    {PL_OPTION_TEXT("verify", "VERIFIER"), .deflt = "match", .help = "how drafted tokens are accepted"},
    {PL_OPTION_TEXT("tree", "TREE"), .help = "what shape is drafted [the drafter's own; checkpoints: auto]"},
    {PL_OPTION_TEXT("host", "ADDRESS"), .deflt = "127.0.0.1", .help = "where to listen"},
    {PL_OPTION_INT("port", "N"), .deflt = "8000", .min = 0, .max = 65535, .help = "of TCP; 0: any, which is printed"},
    {PL_OPTION_TEXTS("allow-host", "NAME"),
     .help = "a name by which clients call this server, besides its addresses and localhost; may be repeated"},
    {PL_OPTION_TEXT("model-name", "NAME"), .help = "the model's name for clients [the target's file or folder]"},
    {PL_OPTION_INT("sessions", "N"), .deflt = "8", .min = 1, .max = 256, .help = "answers decoded at a time"},
    {PL_OPTION_INT("queue", "N"), .deflt = "256", .min = 0, .max = 65536,
     .help = "answers that may wait for a session; further requests get 429"},
    {PL_OPTION_INT("max-len", "N"), .min = 2, .max = 1 << 24,
     .help = "tokens of a prompt and its answer [the target's context, at most 8192]"},
    {PL_OPTION_FLAG("no-prefix-cache"), .help = "read every prompt anew"},
    {PL_OPTION_FLAG("logprobs"), .help = "with a GPU: answers may ask for log-probabilities, which costs every step"},
    {PL_OPTION_TEXT("api-key-file", "FILE"), .help = "keys, one a line, of which clients must send one [none needed]"},
    {PL_OPTION_TEXT("record", "F.jsonl"),
     .help = "appends the ids of prompts and answers to this file, for data.prompts of a recipe [nothing is kept]"},
    {PL_OPTION_REAL("record-share", "P"), .deflt = "1", .min = 0, .max = 1, .help = "of the answers, drawn for each"},
    {PL_OPTION_INT("record-max", "MB"), .deflt = "1024", .min = 1, .max = 1 << 24,
     .help = "of the file; then recording ends"},
    {PL_OPTION_TEXTS("swap", "NAME=DIR"),
     .help = "a checkpoint with which POST /v1/drafter may replace the drafter's weights; may be repeated"},
    {PL_OPTION_TEXT("cors", "ORIGIN"), .help = "web pages of this origin may call the server; *: of any"},
    PL_CHAT_CLI_OPTIONS,
    {PL_OPTION_CHOICE("dtype", "bf16", "fp32"), .help = "of the weights in memory [as the file stores them]"},
    PL_OPTION_KV(""),
    {0}};

// The parts of a server.
typedef struct serving {
    pl_target         target;
    pl_runner         runner;
    pl_chat_cli       chat;
    pl_access         access;
    const char      **hosts;
    char             *name;
    pl_err            no_chat;
    pl_record        *record;
    int               n_weights;
    // [n_weights]
    pl_serve_weights *weights;
} serving;

// Returns the bytes of keys and values, which layers with a recurrence do without.
static double cache_bytes(const pl_target *t, int max_len, int sessions) {
    const pl_layer_shape *s = &t->model.shape;
    int                   layers = 0;
    for (int l = 0; l < t->model.n_layers; l++)
        layers += !(s->recurrent && s->recurrent[l]);
    return 2.0 * layers * s->nkv * s->hd * (double)pl_kv_elem(s, PL_F32) * max_len * sessions;
}

// Logs the size of the target's and the drafter's keys and values.
static void say_caches(const serving *v) {
    int    sessions = pl_engine_free_slots(v->runner.engine);
    double drafts = v->runner.drafter ? v->runner.drafter->cache_bytes : 0;
    char   own[32], more[32];
    pl_memory_words(cache_bytes(&v->target, v->runner.max_len, sessions), own);
    pl_memory_words(drafts, more);
    pl_log("keys and values of %d sessions of %d tokens: %s%s%s", sessions, v->runner.max_len, own,
           drafts > 0 ? ", the drafter's " : "", drafts > 0 ? more : "");
}

// Refuses caches that the host's memory does not hold, before they are filled.
static pl_status check_room(const pl_target *t, const pl_runner_options *o, const pl_env *env, pl_err *err) {
    if (env->backend->memory) return PL_OK;
    return pl_memory_room(cache_bytes(t, o->max_len, o->sessions), "caches of all sessions",
                          "give fewer --sessions, a smaller --max-len or --kv bf16", err);
}

static pl_status open_model(serving *v, const pl_env *env, const pl_cli_args *a, const pl_verifier *verifier,
                            pl_err *err) {
    const char *path = pl_cli_text(a, "target");
    int         dtype = pl_cli_choice(a, "dtype");
    PL_TRY(pl_target_open(&v->target, path, pl_cli_text(a, "tokenizer"), pl_cli_text(a, "pre"),
                          dtype < 0    ? PL_WEIGHTS_AUTO
                          : dtype == 0 ? PL_WEIGHTS_BF16
                                       : PL_WEIGHTS_FP32,
                          env->backend, err));
    v->target.model.shape.kv = pl_kv_chosen(pl_cli_choice(a, "kv"));
    if (!v->target.tok) return pl_fail(err, PL_E_USAGE, "%s: has no tokenizer; give --tokenizer", path);
    int               positions = v->target.model.config.max_position_embeddings;
    pl_runner_options o = {.drafter = pl_cli_text(a, "drafter"),
                           .tree = pl_cli_text(a, "tree"),
                           .verifier = verifier,
                           .max_len = positions < USUAL_LENGTH ? positions : USUAL_LENGTH,
                           .sessions = (int)pl_cli_int(a, "sessions"),
                           .see_logits = pl_cli_has(a, "logprobs"),
                           .host_logits = true,
                           .keep_prefixes = !pl_cli_has(a, "no-prefix-cache")};
    if (pl_cli_has(a, "max-len")) o.max_len = (int)pl_cli_int(a, "max-len");
    if (o.max_len > positions)
        return pl_fail(err, PL_E_USAGE, "--max-len %d: the target has %d positions", o.max_len, positions);
    PL_TRY(check_room(&v->target, &o, env, err));
    return pl_runner_open(&v->runner, env->backend, env->pool, &v->target, &o, err);
}

// Opens the chat template. Without one the server has no chat, unless the options ask for it.
static pl_status open_chat(serving *v, const pl_cli_args *a, pl_err *err) {
    const char *dir = pl_cli_text(a, "tokenizer") ? pl_cli_text(a, "tokenizer") : pl_cli_text(a, "target");
    pl_status   st = pl_chat_cli_open(&v->chat, a, dir, &v->no_chat);
    if (st == PL_OK) return PL_OK;
    if (pl_cli_has(a, "chat-template") || pl_cli_has(a, "chat-kwargs")) {
        *err = v->no_chat;
        return st;
    }
    pl_log_first("no chat: %s", v->no_chat.msg);
    return PL_OK;
}

// The last part of the target's path, without slashes behind it.
static char *name_model(const pl_cli_args *a) {
    const char *path = pl_cli_has(a, "model-name") ? pl_cli_text(a, "model-name") : pl_cli_text(a, "target");
    size_t      n = strlen(path);
    if (pl_cli_has(a, "model-name")) return pl_strdup(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    return pl_sprintf("%.*s", (int)(n - from), path + from);
}

typedef struct address {
    const pl_env  *env;
    const char    *model, *host;
    const serving *of;
} address;

static void say_ready(void *arg, int port) {
    const address *a = arg;
    bool           six = strchr(a->host, ':') != NULL;
    FILE          *f = a->env->text ? a->env->text : stderr;
    pl_log_first_now();
    say_caches(a->of);
    fprintf(f, "%s at http://%s%s%s:%d\n", a->model, six ? "[" : "", a->host, six ? "]" : "", port);
    fflush(f);
}

static pl_status check_usage(const pl_cli_args *a, pl_err *err) {
    if (!pl_cli_has(a, "target")) return pl_fail(err, PL_E_USAGE, "--target: is missing; it names the model");
    if (!pl_cli_has(a, "drafter") && pl_cli_has(a, "tree"))
        return pl_fail(err, PL_E_USAGE, "--tree: needs a --drafter");
    if (!pl_cli_has(a, "drafter") && pl_cli_has(a, "swap"))
        return pl_fail(err, PL_E_USAGE, "--swap: needs a --drafter, whose weights are replaced");
    for (int i = 0; i < 2 && !pl_cli_has(a, "record"); i++)
        if (pl_cli_has(a, i ? "record-max" : "record-share"))
            return pl_fail(err, PL_E_USAGE, "--%s: needs --record", i ? "record-max" : "record-share");
    if (!pl_cli_has(a, "drafter") && pl_cli_has(a, "verify"))
        return pl_fail(err, PL_E_USAGE, "--verify: needs a --drafter");
    return PL_OK;
}

// Opens the parts of learning from what is served: the record, and the names of weights.
static pl_status open_learning(serving *v, const pl_cli_args *a, pl_err *err) {
    const char **swap = pl_calloc((size_t)a->n_given + 1, sizeof *swap);
    v->weights = pl_calloc((size_t)a->n_given + 1, sizeof *v->weights);
    pl_status st = swap && v->weights ? PL_OK : pl_fail(err, PL_E_MEMORY, "serve: out of memory");
    if (st == PL_OK) {
        pl_cli_list(a, "swap", swap, &v->n_weights);
        st = pl_weights_read(v->weights, v->n_weights, swap, err);
    }
    pl_free(swap);
    PL_TRY(st);
    pl_record_options o = {.path = pl_cli_text(a, "record"),
                           .target = v->target.model.fingerprint,
                           .share = pl_cli_real(a, "record-share"),
                           .max_bytes = pl_cli_int(a, "record-max") * 1000000};
    if (!o.path) return PL_OK;
    PL_TRY(pl_record_open(&v->record, &o, err));
    pl_log_first("prompts and answers are kept in %s", o.path);
    return PL_OK;
}

static pl_status open_all(serving *v, const pl_env *env, const pl_cli_args *a, pl_err *err) {
    const pl_verifier *verifier = pl_verifier_find(pl_cli_text(a, "verify"), err);
    if (!verifier) return PL_E_USAGE;
    v->name = name_model(a);
    v->hosts = pl_calloc((size_t)a->n_given + 1, sizeof *v->hosts);
    if (!v->name || !v->hosts) return pl_fail(err, PL_E_MEMORY, "serve: out of memory");
    pl_cli_list(a, "allow-host", v->hosts, &v->access.n_hosts);
    v->hosts[v->access.n_hosts++] = pl_cli_text(a, "host");
    v->access.host = v->hosts;
    if (pl_cli_has(a, "api-key-file")) PL_TRY(pl_access_read_keys(&v->access, pl_cli_text(a, "api-key-file"), err));
    PL_TRY(open_model(v, env, a, verifier, err));
    PL_TRY(open_learning(v, a, err));
    return open_chat(v, a, err);
}

// Writes what was served.
static void write_done(const pl_env *env, const char *model, const pl_metrics *m) {
    pl_json_out *o = env->result;
    int64_t      answers = m->stopped + m->lengthy;
    pl_log("served %lld answers, %lld tokens", (long long)answers, (long long)m->generated);
    if (!o) return;
    pl_put_str(o, "model", model);
    pl_put_int(o, "answers", answers);
    pl_put_int(o, "left", m->broken); // whose clients left before their end
    pl_put_int(o, "generated_tokens", m->generated);
    pl_put_int(o, "recorded", m->recorded);
    pl_put_object(o, "stats");
    pl_stats_write(o, &m->stats, m->prompt);
    pl_json_out_close(o, '}');
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    PL_TRY(check_usage(a, err));
    serving   v = {0};
    pl_status st = open_all(&v, env, a, err);
    if (st == PL_OK) {
        address          at = {.env = env, .model = v.name, .host = pl_cli_text(a, "host"), .of = &v};
        pl_serve_options o = {.runner = &v.runner,
                              .drafter = pl_cli_text(a, "drafter"),
                              .verify = pl_cli_text(a, "verify"),
                              .sessions = (int)pl_cli_int(a, "sessions"),
                              .queue = (int)pl_cli_int(a, "queue"),
                              .chat = v.chat.template,
                              .no_chat = v.no_chat.msg,
                              .chat_options = v.chat.options,
                              .dated = pl_cli_has(a, "date"),
                              .logprobs = !env->backend->memory || pl_cli_has(a, "logprobs"),
                              .model = v.name,
                              .seed = env->seed,
                              .has_seed = env->has_seed,
                              .host = at.host,
                              .port = (int)pl_cli_int(a, "port"),
                              .access = &v.access,
                              .record = v.record,
                              .weights = v.weights,
                              .n_weights = v.n_weights,
                              .origin = pl_cli_text(a, "cors"),
                              .ready = say_ready,
                              .arg = &at};
        pl_metrics       done = {0};
        st = pl_serve(&o, &done, err);
        if (st == PL_OK) write_done(env, v.name, &done);
    }
    if (st == PL_OK) st = pl_runner_save(&v.runner, err);
    pl_runner_close(&v.runner);
    pl_chat_cli_close(&v.chat);
    pl_access_fini(&v.access);
    pl_record_close(v.record);
    pl_free(v.weights);
    pl_target_close(&v.target);
    pl_free(v.hosts);
    pl_free(v.name);
    return st;
}

static bool find_model(const pl_cli_args *a, const char **model, pl_dtype *weights) {
    int dtype = pl_cli_choice(a, "dtype");
    *model = pl_cli_text(a, "target");
    if (dtype >= 0) *weights = dtype == 0 ? PL_BF16 : PL_F32;
    return true;
}

const pl_command pl_command_serve = {
    .name = "serve",
    .summary = "answers requests of OpenAI's API over HTTP",
    .options = options,
    .about =
        "Serves /v1/models, /v1/chat/completions, /v1/completions, llama.cpp's /completion, /tokenize, /detokenize,\n"
        "/health and /metrics until SIGINT or SIGTERM: answers that are being decoded end, new requests get 503.\n"
        "Requests are decoded together; an answer's text does not depend on the others. As in OpenAI's API a request\n"
        "without \"temperature\" is sampled at 1; without \"max_tokens\" an answer ends with the context.\n"
        "\"speculative\": {\"off\": true} or {\"max_tokens\": N} decodes one request without drafts, or with drafts\n"
        "of at most N tokens in depth; its method, tree and verify are refused unless they are the server's. --seed\n"
        "is for requests without \"seed\", which else draw one. There is no TLS: put a proxy before it.",
    .example = "paceline serve --target checkpoints/tiny --drafter lookup",
    .devices = true,
    .runs = find_model,
    .run = run,
};

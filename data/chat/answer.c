#include "data/chat/prompts.h"
#include "kernels/base/arena.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

#include <string.h>

// ---- ids

// Copies the answer's ids that the tokenizer has pieces for; owned by the caller.
static pl_status copy_known(int32_t **own, int64_t *known, const pl_tokenizer *tok, const int32_t *ids, int64_t n,
                            pl_err *err) {
    *known = 0;
    *own = pl_malloc((size_t)(n + 1) * sizeof **own);
    if (!*own) return pl_fail(err, PL_E_MEMORY, "answer: out of memory");
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < pl_tokenizer_vocab_size(tok)) (*own)[(*known)++] = ids[i];
    return PL_OK;
}

pl_status pl_chat_answer_text(char **text, const pl_tokenizer *tok, const int32_t *ids, int64_t n, pl_err *err) {
    int64_t  known;
    size_t   bytes;
    int32_t *own;
    *text = NULL;
    PL_TRY(copy_known(&own, &known, tok, ids, n, err));
    pl_status st = pl_tokenizer_decode(tok, own, known, text, &bytes, err);
    pl_free(own);
    return st;
}

// ---- channels

// The marks of answers in channels; -1: the vocabulary has no such special token.
typedef struct marks {
    int32_t start, channel, message, end, call, done;
} marks;

static int32_t find_mark(const pl_tokenizer *tok, const char *piece) {
    int32_t id = pl_tokenizer_find(tok, piece);
    return pl_tokenizer_is_special(tok, id) ? id : -1;
}

static int64_t find_id(const int32_t *ids, int64_t from, int64_t n, int32_t id) {
    while (from < n && ids[from] != id)
        from++;
    return from;
}

// Returns true if the answer is in channels: a <|message|> follows a <|channel|>.
static bool find_marks(marks *m, const pl_tokenizer *tok, const int32_t *ids, int64_t n) {
    *m = (marks){find_mark(tok, "<|start|>"), find_mark(tok, "<|channel|>"), find_mark(tok, "<|message|>"),
                 find_mark(tok, "<|end|>"),   find_mark(tok, "<|call|>"),    find_mark(tok, "<|return|>")};
    if (m->channel < 0 || m->message < 0) return false;
    return find_id(ids, find_id(ids, 0, n, m->channel), n, m->message) < n;
}

// The parts of an answer, walked twice: for the texts, and with `calls` set for the calls.
typedef struct parts {
    pl_strbuf    thinking, final, comment;
    int          n_calls;
    bool         has_final;
    pl_json_out *calls; // output of the second walk; NULL in the first
} parts;

// Reads the word of a header after `key`, up to a blank or the next mark; empty if the key does not occur.
static void read_word(char *word, size_t size, const char *header, const char *key) {
    const char *at = strstr(header, key);
    size_t      n = at ? strcspn(at + strlen(key), " <\n") : 0;
    if (n >= size) n = size - 1;
    if (at) memcpy(word, at + strlen(key), n);
    word[n] = 0;
}

static void put_call(pl_json_out *o, const char *recipient, const char *arguments, size_t n) {
    static const char functions[] = "functions.";
    size_t            skip = strncmp(recipient, functions, sizeof functions - 1) == 0 ? sizeof functions - 1 : 0;
    pl_json_out_object(o);
    pl_json_out_key(o, "type"), pl_json_out_str(o, "function");
    pl_json_out_key(o, "function"), pl_json_out_object(o);
    pl_json_out_key(o, "name"), pl_json_out_str(o, recipient + skip);
    pl_json_out_key(o, "arguments"), pl_json_out_strn(o, arguments, n);
    pl_json_out_close(o, '}');
    pl_json_out_close(o, '}');
}

static void add_part(parts *p, const char *header, const char *body, size_t n) {
    char channel[32], recipient[256];
    read_word(channel, sizeof channel, header, "<|channel|>");
    read_word(recipient, sizeof recipient, header, "to=");
    if (*recipient && p->calls) put_call(p->calls, recipient, body, n);
    p->n_calls += *recipient && !p->calls;
    if (*recipient || p->calls) return;
    pl_strbuf *to = strcmp(channel, "analysis") == 0     ? &p->thinking
                    : strcmp(channel, "commentary") == 0 ? &p->comment
                                                         : &p->final;
    if (to->n > 0) pl_strbuf_add(to, "\n", 1);
    pl_strbuf_add(to, body, n);
    p->has_final |= to == &p->final;
}

// An answer in channels.
typedef struct answer {
    const pl_tokenizer *tok;
    const int32_t      *ids;
    int64_t             n;
    marks               m;
} answer;

static bool ends_part(const marks *m, int32_t id) {
    return id == m->start || id == m->end || id == m->call || id == m->done;
}

static pl_status walk_parts(parts *p, const answer *a, pl_err *err) {
    for (int64_t at = 0, end; at < a->n; at = end) {
        int64_t   message = find_id(a->ids, at, a->n, a->m.message);
        char     *header, *body;
        size_t    bytes;
        pl_status st;
        if (message == a->n) break;
        for (end = message + 1; end < a->n && !ends_part(&a->m, a->ids[end]);)
            end++;
        PL_TRY(pl_tokenizer_decode_spelt(a->tok, a->ids + at, message - at, &header, &bytes, err));
        st = pl_tokenizer_decode_spelt(a->tok, a->ids + message + 1, end - message - 1, &body, &bytes, err);
        if (st == PL_OK) add_part(p, header, body, bytes);
        pl_free(header);
        pl_free(body);
        PL_TRY(st);
        end += end < a->n;
    }
    return PL_OK;
}

// ---- the message

static void begin_message(pl_json_out *o) {
    pl_json_out_begin(o, 0);
    pl_json_out_object(o);
    pl_json_out_key(o, "role"), pl_json_out_str(o, "assistant");
}

static pl_status end_message(pl_json_out *o, char **message, pl_err *err) {
    pl_json_out_close(o, '}');
    PL_TRY(pl_json_out_end(o, err));
    *message = o->text;
    return PL_OK;
}

static void put_buffer(pl_json_out *o, const char *key, const pl_strbuf *b) {
    pl_json_out_key(o, key);
    pl_json_out_strn(o, b->n ? b->s : "", b->n);
}

// Writes the message of the parts; a call without words has no content.
static pl_status write_parts(char **message, parts *p, const answer *a, pl_err *err) {
    const pl_strbuf *content = p->has_final ? &p->final : &p->comment;
    pl_json_out      o;
    pl_status        st = PL_OK;
    if (p->thinking.failed || p->final.failed || p->comment.failed)
        return pl_fail(err, PL_E_MEMORY, "answer: out of memory");
    begin_message(&o);
    if (p->thinking.n > 0) put_buffer(&o, "thinking", &p->thinking);
    if (p->n_calls == 0 || content->n > 0) put_buffer(&o, "content", content);
    if (p->n_calls > 0) {
        pl_json_out_key(&o, "tool_calls"), pl_json_out_array(&o);
        p->calls = &o;
        st = walk_parts(p, a, err);
        pl_json_out_close(&o, ']');
    }
    pl_status end = end_message(&o, message, err);
    return st == PL_OK ? end : st;
}

static pl_status message_of_parts(char **message, const answer *a, pl_err *err) {
    parts     p = {0};
    pl_status st = walk_parts(&p, a, err);
    if (st == PL_OK) st = write_parts(message, &p, a, err);
    pl_strbuf_fini(&p.thinking);
    pl_strbuf_fini(&p.final);
    pl_strbuf_fini(&p.comment);
    return st;
}

static pl_status message_of_text(char **message, const pl_tokenizer *tok, const int32_t *ids, int64_t n, pl_err *err) {
    char       *text;
    size_t      bytes;
    pl_json_out o;
    PL_TRY(pl_tokenizer_decode_spelt(tok, ids, n, &text, &bytes, err));
    begin_message(&o);
    pl_json_out_key(&o, "content"), pl_json_out_strn(&o, text, bytes);
    pl_free(text);
    return end_message(&o, message, err);
}

pl_status pl_chat_answer_message(char **message, const pl_tokenizer *tok, const int32_t *ids, int64_t n, pl_err *err) {
    int64_t  known;
    int32_t *own;
    *message = NULL;
    PL_TRY(copy_known(&own, &known, tok, ids, n, err));
    answer    a = {tok, own, known, {0}};
    pl_status st = find_marks(&a.m, tok, own, known) ? message_of_parts(message, &a, err)
                                                     : message_of_text(message, tok, own, known, err);
    pl_free(own);
    if (st == PL_OK) return PL_OK;
    pl_free(*message);
    *message = NULL;
    return st;
}

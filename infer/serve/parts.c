#include "infer/serve/parts.h"
#include "infer/serve/call.h"
#include "kernels/base/arena.h"

#include <stdio.h>
#include <string.h>

#define THINK "<think>"
#define THOUGHT "</think>"

// ---- forms ----------------------------------------------------------------------------------------------------------

pl_call_form pl_parts_form(const pl_chat_template *t) {
    bool xml = pl_chat_template_has(t, "<function=", false) || pl_chat_template_has(t, "<arg_key>", false);
    bool headers =
        pl_chat_template_has(t, "<|python_tag|>", false) || pl_chat_template_has(t, "<|start_header_id|>", false);
    if (pl_chat_template_has(t, "<|channel|>", false) && pl_chat_template_has(t, "<|message|>", false))
        return PL_CALLS_HARMONY;
    if (pl_chat_template_has(t, "[TOOL_CALLS]", false))
        return pl_chat_template_has(t, "[ARGS]", false) ? PL_CALLS_MISTRAL_ARGS : PL_CALLS_MISTRAL;
    if (pl_chat_template_has(t, "<tool_call>", false)) return xml ? PL_CALLS_NONE : PL_CALLS_HERMES;
    return headers && pl_chat_template_has(t, "\"parameters\": ", false) ? PL_CALLS_LLAMA : PL_CALLS_NONE;
}

static const char *opening_of(pl_call_form form) {
    return pl_mark_text[form == PL_CALLS_HERMES  ? PL_MARK_OPEN
                        : form == PL_CALLS_LLAMA ? PL_MARK_PYTHON
                                                 : PL_MARK_CALLS];
}

// ---- texts ----------------------------------------------------------------------------------------------------------

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void put_text(pl_part *to, const char *s, size_t n) {
    size_t from = 0, end = n;
    while (to->skips && from < n && is_space(s[from]))
        from++;
    if (from == n) return;
    to->skips = false;
    while (end > from && is_space(s[end - 1]))
        end--;
    if (end > from) {
        pl_strbuf_add(&to->text, to->space.s, to->space.n);
        to->space.n = 0;
        pl_strbuf_add(&to->text, s + from, end - from);
    }
    pl_strbuf_add(&to->space, s + end, n - end);
}

static void put_space(pl_part *to) {
    pl_strbuf_add(&to->text, to->space.s, to->space.n);
    to->space.n = 0;
}

// Leaves out the white space between this text and what follows.
static void drop_space(pl_part *to) {
    to->space.n = 0;
    to->skips = true;
}

// Returns where a mark begins in the text, or what may become one at its end; n: nowhere.
static size_t find_mark(const char *s, size_t n, const char *mark, bool *whole) {
    size_t      m = strlen(mark);
    const char *at = n ? memmem(s, n, mark, m) : NULL;
    *whole = at != NULL;
    if (at) return (size_t)(at - s);
    for (size_t k = n < m ? n : m - 1; k > 0; k--)
        if (memcmp(s + n - k, mark, k) == 0) return n - k;
    return n;
}

// The text that is held. Steps return true if they have taken a decision after which another may follow.
typedef struct held {
    const char *s;
    size_t      n;
    bool        ended; // no text follows
} held;

typedef enum match { DIFFERS, BEGINS, MATCHES } match; // begins: it may match once more text is there

static match match_at(const held *h, size_t at, const char *mark) {
    size_t m = strlen(mark), n = h->n - at < m ? h->n - at : m;
    if (memcmp(h->s + at, mark, n) != 0) return DIFFERS;
    return n == m ? MATCHES : h->ended ? DIFFERS : BEGINS;
}

static bool enter(pl_parts *p, pl_parts_mode mode) {
    p->mode = mode;
    return true;
}

// ---- reasoning and content ------------------------------------------------------------------------------------------

static bool begin_answer(pl_parts *p, const held *h) {
    size_t at = 0;
    while (at < h->n && is_space(h->s[at]))
        at++;
    match m = match_at(h, at, THINK);
    if (m == BEGINS) return false;
    if (m == DIFFERS) return enter(p, PL_PARTS_CONTENT);
    p->at += at + strlen(THINK);
    return enter(p, PL_PARTS_THINK);
}

static bool read_thought(pl_parts *p, const held *h) {
    bool   whole;
    size_t at = find_mark(h->s, h->n, THOUGHT, &whole), n = !whole && h->ended ? h->n : at;
    put_text(&p->reasoning, h->s, n);
    p->at += n;
    if (!whole) return false;
    p->at += strlen(THOUGHT);
    drop_space(&p->reasoning);
    drop_space(&p->content);
    return enter(p, PL_PARTS_CONTENT);
}

static bool open_call(pl_parts *p, size_t n, const char *mark) {
    p->at += n + strlen(mark);
    p->opened = mark;
    p->scan = (pl_value_scan){0};
    return enter(p, PL_PARTS_CALL);
}

// Llama's: at the beginning, and behind another call and perhaps a semicolon, a call needs no mark.
static bool begin_unmarked(pl_parts *p, const held *h, bool *more) {
    size_t at = 0;
    while (at < h->n && (is_space(h->s[at]) || (p->n_calls > 0 && h->s[at] == ';')))
        at++;
    bool  bare = at < h->n && h->s[at] == '{';
    match m = match_at(h, at, opening_of(p->form));
    *more = !bare && m == BEGINS;
    if (*more) return false;
    p->fresh = false;
    if (!bare && m == DIFFERS) return false;
    pl_strbuf_add(&p->content.space, h->s, at);
    return open_call(p, at, bare ? "" : opening_of(p->form));
}

static bool read_content(pl_parts *p, const held *h) {
    bool whole, more = false;
    if (!p->calls) return enter(p, PL_PARTS_REST);
    if (p->fresh && begin_unmarked(p, h, &more)) return true;
    if (more) return false;
    size_t at = find_mark(h->s, h->n, opening_of(p->form), &whole), n = !whole && h->ended ? h->n : at;
    put_text(&p->content, h->s, n);
    if (whole) return open_call(p, n, opening_of(p->form));
    p->at += n;
    return false;
}

static bool read_call(pl_parts *p, const held *h) {
    size_t  used = 0;
    pl_call is = pl_call_read(p, h->s, h->n, h->ended, &used);
    if (is == PL_CALL_OPEN) return false;
    p->fresh = is == PL_CALL_MADE && p->form == PL_CALLS_LLAMA;
    if (is == PL_CALL_MADE)
        drop_space(&p->content);
    else
        put_text(&p->content, p->opened, strlen(p->opened));
    p->at += used;
    return enter(p, PL_PARTS_CONTENT);
}

// ---- harmony --------------------------------------------------------------------------------------------------------

static bool begin_channels(pl_parts *p, const held *h) {
    const char *const first[] = {pl_mark_text[PL_MARK_CHANNEL], pl_mark_text[PL_MARK_START], " to="};
    match             m = DIFFERS;
    for (int i = 0; i < 3; i++) {
        match x = match_at(h, 0, first[i]);
        if (x > m) m = x;
    }
    if (m == BEGINS) return false;
    return enter(p, m == MATCHES ? PL_PARTS_HEADER : PL_PARTS_REST);
}

// Copies the word behind `key` in a header; "" if there is none.
static void read_word(char *word, size_t size, const held *h, size_t n, const char *key) {
    const char *at = memmem(h->s, n, key, strlen(key));
    size_t      i = 0;
    if (at)
        for (at += strlen(key); at + i < h->s + n && i + 1 < size && !is_space(at[i]) && at[i] != '<'; i++)
            word[i] = at[i];
    word[i] = 0;
}

// Joins the messages that go to one part by line ends.
static void begin_message(pl_part *to) {
    drop_space(to);
    if (to->text.n > 0) pl_strbuf_add(&to->space, "\n", 1);
}

static bool read_header(pl_parts *p, const held *h) {
    static const char functions[] = "functions.";
    enum { MOST = 1024 };
    bool   whole;
    size_t n = find_mark(h->s, h->n, pl_mark_text[PL_MARK_MESSAGE], &whole);
    char   channel[16], to[PL_CALL_NAME + sizeof functions - 1];
    if (!whole && h->n > MOST) return enter(p, PL_PARTS_REST);
    if (!whole) {
        p->at += h->ended ? h->n : 0; // a header without a message
        return false;
    }
    read_word(channel, sizeof channel, h, n, pl_mark_text[PL_MARK_CHANNEL]);
    read_word(to, sizeof to, h, n, "to=");
    bool called = p->calls && strncmp(to, functions, sizeof functions - 1) == 0;
    snprintf(p->recipient, sizeof p->recipient, "%s", called ? to + sizeof functions - 1 : "");
    p->to = strcmp(channel, "analysis") == 0 && !called ? &p->reasoning : &p->content;
    begin_message(p->to);
    p->scan = (pl_value_scan){0};
    p->at += n + strlen(pl_mark_text[PL_MARK_MESSAGE]);
    return enter(p, PL_PARTS_MESSAGE);
}

// Returns where a message ends, or may end; *mark is the mark there, -1: none is whole.
static size_t find_end(const held *h, size_t from, int *mark) {
    static const pl_mark ends[] = {PL_MARK_END, PL_MARK_START, PL_MARK_CHANNEL};
    size_t               first = h->n;
    *mark = -1;
    for (int i = 0; i < 3; i++) {
        bool   whole;
        size_t at = from + find_mark(h->s + from, h->n - from, pl_mark_text[ends[i]], &whole);
        if (at >= first) continue;
        first = at;
        *mark = whole ? (int)ends[i] : -1;
    }
    return *mark < 0 && h->ended ? h->n : first;
}

static bool read_message(pl_parts *p, const held *h) {
    int    mark;
    bool   called = *p->recipient != 0;
    size_t n = find_end(h, called ? p->scan.at : 0, &mark);
    p->scan.at = called ? n : 0;
    if (called && mark < 0 && !h->ended) return false;
    if (called && pl_call_add(p, p->recipient, h->s, n))
        drop_space(p->to);
    else
        put_text(p->to, h->s, n);
    p->at += n;
    if (mark < 0) return false;
    drop_space(p->to);
    p->at += mark == PL_MARK_END ? strlen(pl_mark_text[mark]) : 0; // the others belong to the next header
    return enter(p, PL_PARTS_HEADER);
}

// ---- the walk -------------------------------------------------------------------------------------------------------

static bool read_rest(pl_parts *p, const held *h) {
    put_text(&p->content, h->s, h->n);
    if (!p->content.skips) put_space(&p->content);
    p->at += h->n;
    return false;
}

static bool take_step(pl_parts *p, const held *h) {
    switch (p->mode) {
    case PL_PARTS_BEGIN: return p->form == PL_CALLS_HARMONY ? begin_channels(p, h) : begin_answer(p, h);
    case PL_PARTS_THINK: return read_thought(p, h);
    case PL_PARTS_CONTENT: return read_content(p, h);
    case PL_PARTS_CALL: return read_call(p, h);
    case PL_PARTS_HEADER: return read_header(p, h);
    case PL_PARTS_MESSAGE: return read_message(p, h);
    default: return read_rest(p, h);
    }
}

static void walk(pl_parts *p, bool ended) {
    held h = {.ended = ended};
    do {
        h.s = p->held.s ? p->held.s + p->at : "";
        h.n = p->held.n - p->at;
    } while (take_step(p, &h));
    p->failed |= p->held.failed || p->content.text.failed || p->content.space.failed || p->reasoning.text.failed ||
                 p->reasoning.space.failed;
}

void pl_parts_init(pl_parts *p, pl_call_form form, bool calls, pl_reasoning thinks, uint64_t id) {
    *p = (pl_parts){.form = form,
                    .calls = calls && form != PL_CALLS_NONE,
                    .thinks = thinks,
                    .id = id,
                    .fresh = form == PL_CALLS_LLAMA,
                    .reasoning.skips = true,
                    .mode = PL_PARTS_CONTENT};
    if (form == PL_CALLS_HARMONY || thinks == PL_REASONING_MAY) p->mode = PL_PARTS_BEGIN;
    if (form != PL_CALLS_HARMONY && thinks == PL_REASONING_BEGUN) p->mode = PL_PARTS_THINK;
}

void pl_parts_fini(pl_parts *p) {
    for (int i = 0; i < p->n_calls; i++) {
        pl_free(p->call[i].name);
        pl_free(p->call[i].arguments);
    }
    pl_free(p->call);
    pl_strbuf *owned[] = {&p->reasoning.text, &p->reasoning.space, &p->content.text, &p->content.space, &p->held};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_strbuf_fini(owned[i]);
    *p = (pl_parts){0};
}

void pl_parts_push(pl_parts *p, const char *text, size_t n) {
    if (p->at > 0) {
        p->held.n -= p->at;
        memmove(p->held.s, p->held.s + p->at, p->held.n);
        p->at = 0;
    }
    pl_strbuf_add(&p->held, text, n);
    walk(p, false);
}

void pl_parts_end(pl_parts *p) {
    walk(p, true);
    if (p->mode == PL_PARTS_THINK) put_space(&p->reasoning);
    if (!p->content.skips) put_space(&p->content);
}

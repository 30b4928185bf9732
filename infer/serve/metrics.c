#include "infer/serve/metrics.h"
#include "infer/decode/runner.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct page {
    pl_strbuf *b;
    char       label[256]; // model_name="..."
} page;

static void add_line(page *p, const char *fmt, ...) {
    char    line[640];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (n > 0) pl_strbuf_add(p->b, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

static void set_label(page *p, const char *model) {
    size_t n = (size_t)snprintf(p->label, sizeof p->label, "model_name=\"");
    for (; *model && n + 4 < sizeof p->label; model++) {
        if (*model == '"' || *model == '\\') p->label[n++] = '\\';
        p->label[n] = *model;
        if (p->label[n] == '\n') p->label[n] = ' ';
        n++;
    }
    snprintf(p->label + n, sizeof p->label - n, "\"");
}

static void add_head(page *p, const char *name, const char *type, const char *help) {
    add_line(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_one(page *p, const char *name, const char *type, const char *help, double value) {
    add_head(p, name, type, help);
    add_line(p, "%s{%s} %.17g\n", name, p->label, value);
}

static void add_summary(page *p, const char *name, const char *help, double sum, int64_t n) {
    add_head(p, name, "summary", help);
    add_line(p, "%s_sum{%s} %.17g\n%s_count{%s} %lld\n", name, p->label, sum, name, p->label, (long long)n);
}

static void add_finished(page *p, const pl_metrics *m) {
    static const char name[] = "vllm:request_success_total";
    add_head(p, name, "counter", "Answers by how they ended.");
    add_line(p, "%s{%s,finished_reason=\"stop\"} %lld\n", name, p->label, (long long)m->stopped);
    add_line(p, "%s{%s,finished_reason=\"length\"} %lld\n", name, p->label, (long long)m->lengthy);
    add_line(p, "%s{%s,finished_reason=\"abort\"} %lld\n", name, p->label, (long long)m->broken);
}

static void add_positions(page *p, const char *name, const pl_session_stats *s) {
    add_head(p, name, "counter", "Accepted drafted tokens by their depth in a draft.");
    for (int i = 0, n = pl_stats_depth(s); i < n; i++)
        add_line(p, "%s{%s,position=\"%d\"} %lld\n", name, p->label, i, (long long)s->position_accepted[i]);
}

static void add_speculation(page *p, const pl_session_stats *s) {
    static const char *const engines[] = {"vllm", "llamacpp"};
    char                     name[96];
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        const struct {
            const char *name, *help;
            int64_t     value;
        } rows[] = {{"drafts", "Steps that verified a draft.", s->position_drafted[0]},
                    {"draft_tokens", "Drafted tokens.", s->drafted},
                    {"accepted_tokens", "Accepted drafted tokens.", s->accepted}};
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            snprintf(name, sizeof name, "%s:spec_decode_num_%s_total", engines[i], rows[k].name);
            add_one(p, name, "counter", rows[k].help, (double)rows[k].value);
        }
        snprintf(name, sizeof name, "%s:spec_decode_num_accepted_tokens_per_pos_total", engines[i]);
        add_positions(p, name, s);
    }
}

void pl_metrics_write(pl_strbuf *b, const pl_metrics *m, const char *model) {
    const pl_session_stats *s = &m->stats;
    page                    p = {.b = b};
    set_label(&p, model);
    add_one(&p, "vllm:num_requests_running", "gauge", "Answers being decoded.", (double)m->running);
    add_one(&p, "vllm:num_requests_waiting", "gauge", "Answers that wait for a slot.", (double)m->waiting);
    add_one(&p, "vllm:prompt_tokens_total", "counter", "Tokens of prompts.", (double)m->prompt);
    add_one(&p, "vllm:generation_tokens_total", "counter", "Tokens of answers.", (double)m->generated);
    add_finished(&p, m);
    add_summary(&p, "vllm:time_to_first_token_seconds", "Seconds from a request to an answer's first token.", m->first,
                m->n_first);
    add_summary(&p, "vllm:time_per_output_token_seconds", "Seconds of later tokens.", m->later, m->n_later);
    add_summary(&p, "vllm:e2e_request_latency_seconds", "Seconds from a request to an answer's end.", m->whole,
                m->n_answers);
    add_one(&p, "llamacpp:requests_processing", "gauge", "Answers being decoded.", (double)m->running);
    add_one(&p, "llamacpp:requests_deferred", "gauge", "Answers that wait for a slot.", (double)m->waiting);
    add_one(&p, "llamacpp:prompt_tokens_total", "counter", "Tokens of prompts.", (double)m->prompt);
    add_one(&p, "llamacpp:prompt_seconds_total", "counter", "Seconds of prompts.", s->prefill_seconds);
    add_one(&p, "llamacpp:tokens_predicted_total", "counter", "Tokens of answers.", (double)m->generated);
    add_one(&p, "llamacpp:tokens_predicted_seconds_total", "counter", "Seconds of answers.", s->seconds);
    if (m->drafts) add_speculation(&p, s);
}

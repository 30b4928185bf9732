#include "infer/serve/native.h"
#include "infer/decode/runner.h"
#include "kernels/base/arena.h"

#include <string.h>

static const int32_t *tokens_of(const pl_choice *c) {
    return (const int32_t *)(const void *)c->ids.s; // pl_strbuf's memory is aligned for any type
}

static const char *stop_type(const pl_choice *c) {
    return strcmp(c->finish, "length") == 0 ? "limit" : c->delta.stopped ? "word" : "eos";
}

static void put_settings(pl_json_out *o, const pl_choice *c, const pl_job_server *s) {
    const pl_job      *j = c->job;
    const pl_sampling *p = &j->sampling;
    pl_put_object(o, "generation_settings");
    pl_put_int(o, "n_ctx", s->max_len);
    pl_put_int(o, "n_predict", j->max_tokens);
    pl_put_int(o, "seed", (int64_t)j->prompt[c->prompt].seed);
    pl_put_num(o, "temperature", p->temperature);
    pl_put_int(o, "top_k", p->top_k);
    pl_put_num(o, "top_p", p->top_p);
    pl_put_num(o, "min_p", p->min_p);
    pl_put_num(o, "repeat_penalty", p->repetition_penalty > 0 ? p->repetition_penalty : 1);
    pl_put_int(o, "n_probs", j->logprobs > 0 ? j->logprobs : 0);
    pl_put_array(o, "stop");
    for (int i = 0; i < j->n_stop; i++)
        pl_json_out_str(o, j->stop[i]);
    pl_json_out_close(o, ']');
    pl_put_bool(o, "stream", j->stream);
    pl_json_out_close(o, '}');
}

// Writes n tokens and the milliseconds that they took.
static void put_pace(pl_json_out *o, const char *const name[4], int64_t n, double seconds) {
    pl_put_int(o, name[0], n);
    pl_put_num(o, name[1], 1e3 * seconds);
    pl_put_num(o, name[2], pl_ratio(1e3 * seconds, (double)n));
    pl_put_num(o, name[3], pl_ratio((double)n, seconds));
}

static void put_timings(pl_json_out *o, const pl_choice *c) {
    static const char *const prompt[] = {"prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second"};
    static const char *const answer[] = {"predicted_n", "predicted_ms", "predicted_per_token_ms",
                                         "predicted_per_second"};
    const pl_session_counts *n = &c->counts;
    pl_put_object(o, "timings");
    pl_put_int(o, "cache_n", n->reused);
    put_pace(o, prompt, c->job->prompt[c->prompt].n - n->reused, n->prefill_seconds);
    put_pace(o, answer, c->tokens, n->seconds);
    if (n->drafted > 0) {
        pl_put_int(o, "draft_n", n->drafted);
        pl_put_int(o, "draft_n_accepted", n->accepted);
    }
    pl_json_out_close(o, '}');
}

static void put_prompt(pl_json_out *o, const pl_choice *c, const pl_job_server *s) {
    const pl_job_prompt *p = &c->job->prompt[c->prompt];
    char                *text = NULL;
    size_t               n = 0;
    pl_json_out_key(o, "prompt");
    if (pl_tokenizer_decode_spelt(s->target->tok, p->ids, p->n, &text, &n, NULL) == PL_OK)
        pl_json_out_strn(o, text, n);
    else
        pl_json_out_null(o);
    pl_free(text);
}

static void put_counts(pl_json_out *o, const pl_choice *c, const pl_job_server *s) {
    const pl_job_prompt *p = &c->job->prompt[c->prompt];
    bool                 word = c->delta.stopped;
    pl_put_str(o, "model", s->model);
    pl_put_int(o, "tokens_predicted", c->tokens);
    pl_put_int(o, "tokens_evaluated", p->n);
    pl_put_int(o, "tokens_cached", c->counts.reused);
    put_settings(o, c, s);
    put_prompt(o, c, s);
    pl_put_bool(o, "has_new_line", c->delta.text.n && memchr(c->delta.text.s, '\n', c->delta.text.n));
    pl_put_bool(o, "truncated", false); // an answer ends with the context
    pl_put_str(o, "stop_type", stop_type(c));
    pl_put_str(o, "stopping_word", word ? c->delta.stop[c->delta.found] : "");
    put_timings(o, c);
}

void pl_native_put(pl_json_out *o, const pl_choice *c, const pl_job_server *s, const pl_native_part *part) {
    const pl_job *j = c->job;
    pl_json_out_object(o);
    pl_put_int(o, "index", c->index);
    pl_json_out_key(o, "content");
    pl_json_out_strn(o, part->text, part->bytes);
    pl_put_array(o, "tokens");
    for (int32_t i = part->from; i < part->to && (j->return_tokens || j->stream); i++)
        pl_json_out_int(o, tokens_of(c)[i]);
    pl_json_out_close(o, ']');
    pl_put_bool(o, "stop", part->last);
    if (part->last) put_counts(o, c, s);
    if (j->logprobs > 0 && part->to > part->from)
        pl_answer_put_tokens(o, &(pl_answer){.tok = s->target->tok, .ids = true}, "completion_probabilities",
                             &c->logprobs, part->from, part->to);
    pl_json_out_close(o, '}');
}

#include "infer/eval/scored.h"
#include "data/benchmarks/score.h"
#include "kernels/base/json_put.h"

bool pl_scored_is_code(const pl_prompt *p) {
    return p->scoring == PL_SCORE_CODE;
}

pl_status pl_scored_add(const pl_prompt *p, const pl_tokenizer *tok, bool chat, const int32_t *tokens, int64_t n,
                        pl_method *a, pl_answer *x, pl_err *err) {
    char  *text;
    size_t at;
    if (p->scoring == PL_SCORE_NONE || !p->reference) return PL_OK;
    PL_TRY(pl_chat_answer_text(&text, tok, tokens, n, err));
    if (p->scoring != PL_SCORE_CODE) {
        x->scored = true;
        x->correct = pl_score((pl_scoring)p->scoring, text, p->reference);
        pl_free(text);
        return PL_OK;
    }
    size_t      bytes = pl_code_of(text, chat, &at);
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    pl_put_str(&o, "task_id", p->reference);
    pl_json_out_key(&o, "completion");
    pl_json_out_strn(&o, text + at, bytes);
    pl_json_out_close(&o, '}');
    pl_free(text);
    PL_TRY(pl_json_out_end(&o, err));
    pl_strbuf_add(&a->samples, o.text, o.len);
    pl_strbuf_add(&a->samples, "\n", 1);
    pl_free(o.text);
    return a->samples.failed ? pl_fail(err, PL_E_MEMORY, "answers: out of memory") : PL_OK;
}

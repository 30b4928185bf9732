// Texts decoded for inspect --acceptance and --ceilings.
#include "data/text/prompts.h"
#include "infer/inspect/parts.h"

#include <string.h>

#define PER_PROMPT 16 // tokens decoded after each prompt if there are enough prompts

// The end of one text, by the number of observed positions.
typedef struct share {
    const int64_t *positions;
    int64_t        until;
} share;

static bool goes_on(void *arg, int32_t token) {
    (void)token;
    return *((share *)arg)->positions < ((share *)arg)->until;
}

// Decodes one text up to `until` positions, tokens for `each` positions, or the end of the context.
static pl_status decode(const pl_inspect_texts *t, pl_runner *runner, const int32_t *ids, int64_t n, int64_t each,
                        int64_t until, pl_sampling *sampling, pl_err *err) {
    share   s = {.positions = t->positions, .until = until};
    int64_t tokens = each * t->tokens, room = runner->max_len - n - 2;
    if (tokens > room) tokens = room;
    if (tokens < 1) return PL_OK; // skips a prompt that leaves no room
    sampling->seed++;
    // Two more: prefill emits the first token, and no draft follows the last one.
    return pl_runner_run(runner, ids, n, sampling, (int)tokens + 2, t->tokens > 1 ? goes_on : NULL, &s, err);
}

static pl_status decode_prompts(const pl_inspect_texts *t, pl_runner *runner, pl_sampling *sampling, pl_err *err) {
    const pl_tokenizer *tok = runner->target->tok;
    const pl_prompts   *p = t->texts;
    pl_prompts         *read = NULL;
    if (!tok)
        return pl_fail(err, PL_E_USAGE, "--prompts: the target has no tokenizer; leave it out to use its own text");
    if (!p) {
        PL_TRY(pl_prompts_read(&read, t->prompts, err));
        p = read;
    }
    int64_t   wanted = (t->most + PER_PROMPT - 1) / PER_PROMPT, n = wanted < p->n ? wanted : p->n;
    int64_t   each = (t->most + n - 1) / n;
    pl_status st = PL_OK;
    for (int64_t i = 0; i < n && st == PL_OK; i++) {
        const pl_prompt *x = &p->p[i * p->n / n];
        int32_t         *ids;
        int64_t          len;
        st = pl_prompt_encode(tok, x, &ids, &len, err);
        if (st != PL_OK) break;
        if (len > 0) st = decode(t, runner, ids, len, each, t->most * (i + 1) / n, sampling, err);
        pl_free(ids);
    }
    pl_prompts_destroy(read);
    return st;
}

// Decodes the target's own text from BOS on.
static pl_status decode_own(const pl_inspect_texts *t, pl_runner *runner, pl_sampling *sampling, pl_err *err) {
    int32_t bos = runner->target->model.config.bos_token_id;
    if (bos < 0) return pl_fail(err, PL_E_USAGE, "--prompts: is missing; the target has no BOS token to start from");
    int64_t before = -1;
    while (*t->positions<t->most && * t->positions> before) {
        int64_t left = t->most - *t->positions, room = runner->max_len - 3;
        before = *t->positions;
        PL_TRY(decode(t, runner, &bos, 1, left < room ? left : room, t->most, sampling, err));
    }
    return PL_OK;
}

pl_status pl_inspect_decode(const pl_inspect_texts *t, pl_runner *runner, pl_sampling *sampling, pl_err *err) {
    PL_TRY(t->prompts ? decode_prompts(t, runner, sampling, err) : decode_own(t, runner, sampling, err));
    if (*t->positions > 0) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: no position was decoded: prompts are too long or texts end at once",
                   t->prompts ? t->prompts : t->target);
}

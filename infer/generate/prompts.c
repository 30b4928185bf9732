// The prompts of a recipe: which files, in which form, and how they are split.
#include "data/chat/prompts.h"
#include "infer/generate/generate.h"
#include "kernels/base/json_put.h"

#include <stdio.h>
#include <string.h>

const pl_key pl_split_keys[] = {
    {PL_KEY_FIELD_PATH(pl_split_recipe, eval.prompts),
     .help = "prompts to evaluate on; without it, what eval.holdout keeps back of data.prompts"},
    {PL_KEY_FIELD_INT(pl_split_recipe, eval.holdout), .deflt = "50", .min = 1, .max = 1e9,
     .help = "prompts of data.prompts kept back for evaluation, where eval.prompts is absent"},
    PL_KEYS_END(pl_split_recipe)};

static pl_status open_template(pl_chat_template **t, pl_chat_options *o, const pl_generate_recipe *gen, pl_err *err) {
    const char *dir = gen->target.tokenizer ? gen->target.tokenizer : gen->target.path;
    *t = NULL;
    if (!dir)
        return pl_fail(err, PL_E_INPUT, "target.path: is missing, and with it the chat template that data.form names");
    *o = (pl_chat_options){
        .kwargs = gen->data.chat.kwargs, .date = gen->data.chat.date, .system = gen->data.chat.system};
    return pl_chat_template_open(t, dir, gen->data.chat.template, err);
}

// Keys of chats where prompts are plain text would be read and do nothing.
static pl_status check_form(const pl_recipe *r, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const void *const         keys[] = {&gen->data.chat.template, &gen->data.chat.kwargs, &gen->data.chat.date,
                                        &gen->data.chat.system};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && gen->data.form != PL_FORM_CHAT; i++)
        if (pl_recipe_given(r, keys[i])) return pl_recipe_fail(r, keys[i], err, "needs data.form: chat");
    return PL_OK;
}

pl_status pl_recipe_prompts_read(const pl_recipe *r, const char *path, pl_prompts **out, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    pl_chat_template         *t;
    pl_chat_options           o;
    *out = NULL;
    PL_TRY(check_form(r, err));
    if (gen->data.form != PL_FORM_CHAT) return pl_prompts_read(out, path, err);
    PL_TRY(open_template(&t, &o, gen, err));
    pl_status st = pl_chat_prompts_read(out, path, t, &o, err);
    pl_chat_template_close(t);
    return st;
}

pl_status pl_recipe_form(const pl_recipe *r, char form[PL_FORM_NAME], pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    pl_chat_template         *t;
    pl_chat_options           o;
    snprintf(form, PL_FORM_NAME, "plain");
    if (gen->data.form != PL_FORM_CHAT) return PL_OK;
    PL_TRY(open_template(&t, &o, gen, err));
    snprintf(form, PL_FORM_NAME, "chat:%s", pl_chat_template_hash(t));
    pl_chat_template_close(t);
    return PL_OK;
}

void pl_put_chat(pl_json_out *o, const pl_recipe *r) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    if (gen->data.form != PL_FORM_CHAT) return;
    pl_put_str(o, "chat_kwargs", gen->data.chat.kwargs);
    pl_put_str(o, "chat_date", gen->data.chat.date);
    pl_put_str(o, "chat_system", gen->data.chat.system);
}

pl_status pl_recipe_prompts(const pl_recipe *r, pl_prompts **train, pl_prompts **held, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const pl_split_recipe    *split = pl_split_recipe_of(r);
    *train = *held = NULL;
    pl_prompts *all = NULL;
    PL_TRY(pl_recipe_require(r, &gen->data.prompts, err));
    PL_TRY(pl_recipe_prompts_read(r, gen->data.prompts, &all, err));
    const char *eval = split->eval.prompts;
    pl_status   st = PL_OK;
    if (eval) {
        st = pl_recipe_prompts_read(r, eval, held, err);
        if (st == PL_OK)
            *train = all;
        else
            pl_prompts_destroy(all);
        return st;
    }
    int64_t holdout = split->eval.holdout;
    char    mend[64] = "bring more prompts";
    if (all->n > 1) snprintf(mend, sizeof mend, "take fewer (--set eval.holdout=%lld)", (long long)(all->n + 9) / 10);
    if (holdout >= all->n)
        st = pl_recipe_fail(r, &split->eval.holdout, err, "%lld prompts held out of %lld leave none to train on; %s",
                            (long long)holdout, (long long)all->n, mend);
    else
        st = pl_prompts_split(all, (uint64_t)gen->seed, holdout, train, held, err);
    if (st == PL_OK && (*held)->n == 0) { // equal texts stay on one side
        st = pl_recipe_fail(r, &split->eval.holdout, err,
                            "of %lld prompts none can be held out: too many have the same text; bring more prompts, or "
                            "name others in eval.prompts",
                            (long long)all->n);
        pl_prompts_destroy(*train);
        pl_prompts_destroy(*held);
        *train = *held = NULL;
    }
    pl_prompts_destroy(all);
    return st;
}

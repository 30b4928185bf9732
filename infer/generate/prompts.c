// The prompts of a recipe: their files, form and split.
#include "data/chat/prompts.h"
#include "infer/generate/generate.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "kernels/base/key.h"
#include "kernels/base/log.h"

#include <stdio.h>
#include <string.h>

const pl_key pl_split_keys[] = {
    {PL_KEY_FIELD_PATH(pl_split_recipe, eval.prompts),
     .help = "prompts to evaluate on; without it, what eval.holdout keeps back of data.prompts",
     .stages = PL_STAGE_EVAL}, // a dataset's hash includes the remaining prompts
    {PL_KEY_FIELD_INT(pl_split_recipe, eval.holdout), .deflt = "50", .min = 0, .max = 1e9,
     .help = "prompts of data.prompts kept back for evaluation, where eval.prompts is absent; 0: none, for generate",
     .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_PATH(pl_split_recipe, eval.chat.template),
     .help = "evaluation, as the drafter will be served: another template than data.chat.template",
     .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_STRING(pl_split_recipe, eval.chat.kwargs),
     .help = "the same instead of data.chat.kwargs: {\"enable_thinking\": false}", .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_STRING(pl_split_recipe, eval.chat.date), .help = "the same instead of data.chat.date",
     .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_STRING(pl_split_recipe, eval.chat.system), .help = "the same instead of data.chat.system",
     .stages = PL_STAGE_EVAL},
    {PL_KEY_FIELD_ENUM(pl_split_recipe, eval.chat.history), .deflt = "own", .choices = {"own", "given"},
     .help = "what stands before later turns: the target's own answers, or those that the prompts' file gives",
     .stages = PL_STAGE_EVAL},
    PL_KEYS_END(pl_split_recipe)};

// Refuses keys of chats for plain-text prompts, which do not read them.
static pl_status check_form(const pl_recipe *r, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const pl_chat_recipe     *both[] = {&gen->data.chat, &pl_split_recipe_of(r)->eval.chat};
    for (int k = 0; k < 2 && gen->data.form != PL_FORM_CHAT; k++) {
        const pl_chat_recipe *c = both[k];
        const char *const    *of[] = {&c->template, &c->kwargs, &c->date, &c->system};
        for (int i = 0; i < 4; i++)
            if (*of[i]) return pl_recipe_fail(r, of[i], err, "needs data.form: chat");
        if (c->history != PL_HISTORY_OWN) return pl_recipe_fail(r, &c->history, err, "needs data.form: chat");
    }
    return PL_OK;
}

void pl_prompt_form_close(pl_prompt_form *form) {
    pl_chat_template_close(form->chat);
    *form = (pl_prompt_form){0};
}

static pl_status open_form(pl_prompt_form *form, const pl_recipe *r, const pl_chat_recipe *k, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const char               *dir = gen->target.tokenizer ? gen->target.tokenizer : gen->target.path;
    *form = (pl_prompt_form){.name = "plain", .path = gen->data.prompts};
    PL_TRY(check_form(r, err));
    if (gen->data.form != PL_FORM_CHAT) return PL_OK;
    if (!dir)
        return pl_fail(err, PL_E_INPUT, "target.path: is missing, and with it the chat template that data.form names");
    form->options = (pl_chat_options){.kwargs = k->kwargs, .date = k->date, .system = k->system};
    PL_TRY(pl_chat_template_open(&form->chat, dir, k->template, err));
    // All settings that change the rendered conversations.
    const char *const said[] = {form->options.kwargs, form->options.date, form->options.system};
    const char *template = pl_chat_template_hash(form->chat);
    uint64_t h = pl_hash(template, strlen(template));
    char     hash[17];
    for (int i = 0; i < 3; i++)
        h = pl_hash_more(pl_hash_more(h, &(char){said[i] != NULL}, 1), said[i] ? said[i] : "",
                         said[i] ? strlen(said[i]) : 0);
    pl_hash_hex(hash, pl_hash_more(h, &gen->data.chat.history, sizeof gen->data.chat.history));
    snprintf(form->name, sizeof form->name, "chat:%s", hash);
    return PL_OK;
}

pl_status pl_recipe_form(pl_prompt_form *form, const pl_recipe *r, pl_err *err) {
    return open_form(form, r, &pl_generate_recipe_of(r)->data.chat, err);
}

pl_status pl_recipe_served_form(pl_prompt_form *form, const pl_recipe *r, pl_err *err) {
    const pl_chat_recipe *c = &pl_split_recipe_of(r)->eval.chat;
    pl_chat_recipe        k = pl_generate_recipe_of(r)->data.chat;
    if (c->template) k.template = c->template;
    if (c->kwargs) k.kwargs = c->kwargs;
    if (c->date) k.date = c->date;
    if (c->system) k.system = c->system;
    return open_form(form, r, &k, err);
}

// Returns true if the reader skips records and turns that it refuses; a benchmark (w) needs every question.
static bool is_lenient(const pl_recipe *r, const pl_prompts_rewrite *w) {
    return !w && !pl_generate_recipe_of(r)->data.strict;
}

static pl_status read_file(pl_prompts **out, const pl_recipe *r, const pl_prompt_form *form, const char *path,
                           const pl_prompts_rewrite *w, pl_err *err) {
    bool lenient = is_lenient(r, w);
    if (!form->chat) return pl_prompts_read_as(out, path, w, lenient, err);
    return pl_chat_prompts_read_as(out, path, form->chat, &form->options, w, lenient, err);
}

// Replaces conversations by their turns, each with the file's own history.
static pl_status take_given(pl_prompts **prompts, const pl_prompt_form *form, const char *path, bool lenient,
                            pl_err *err) {
    pl_prompts *given;
    if (!form->chat) return PL_OK;
    PL_TRY(pl_chat_prompts_given(&given, *prompts, path, form->chat, &form->options, lenient, err));
    pl_prompts_destroy(*prompts);
    *prompts = given;
    return PL_OK;
}

pl_status pl_prompts_to_evaluate(const pl_recipe *r, const pl_prompt_form *form, const char *path,
                                 const pl_prompts_rewrite *w, pl_prompts **out, pl_err *err) {
    *out = NULL;
    PL_TRY(read_file(out, r, form, path, w, err));
    bool      given = pl_split_recipe_of(r)->eval.chat.history == PL_HISTORY_GIVEN;
    pl_status st = given ? take_given(out, form, path, is_lenient(r, w), err) : PL_OK;
    if (st == PL_OK) return PL_OK;
    pl_prompts_destroy(*out);
    *out = NULL;
    return st;
}

void pl_put_chat(pl_json_out *o, const pl_recipe *r) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    if (gen->data.form != PL_FORM_CHAT) return;
    pl_put_str(o, "chat_kwargs", gen->data.chat.kwargs);
    pl_put_str(o, "chat_date", gen->data.chat.date);
    pl_put_str(o, "chat_system", gen->data.chat.system);
    pl_put_str(o, "chat_history", gen->data.chat.history == PL_HISTORY_GIVEN ? "given" : "own");
}

// Splits data.prompts into training prompts and eval.holdout held-out ones.
static pl_status split(const pl_recipe *r, const pl_prompts *all, pl_prompts **train, pl_prompts **held, pl_err *err) {
    const pl_split_recipe *c = pl_split_recipe_of(r);
    int64_t                holdout = c->eval.holdout;
    char                   mend[64] = "bring more prompts";
    if (all->n > 1) snprintf(mend, sizeof mend, "take fewer (--set eval.holdout=%lld)", (long long)(all->n + 9) / 10);
    if (holdout >= all->n)
        return pl_recipe_fail(r, &c->eval.holdout, err, "%lld prompts held out of %lld leave none to train on; %s",
                              (long long)holdout, (long long)all->n, mend);
    PL_TRY(pl_prompts_split(all, (uint64_t)pl_generate_recipe_of(r)->seed, holdout, train, held, err));
    if ((*held)->n > 0 || holdout == 0) return PL_OK;
    return pl_recipe_fail(r, &c->eval.holdout, err,
                          "of %lld prompts none can be held out: too many have the same text; bring more prompts, or "
                          "name others in eval.prompts",
                          (long long)all->n); // equal texts are on the same side
}

pl_status pl_recipe_prompts(const pl_recipe *r, const pl_prompt_form *form, pl_prompts **train, pl_prompts **held,
                            pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const char               *path = gen->data.prompts, *eval = pl_split_recipe_of(r)->eval.prompts;
    pl_prompts               *all = NULL;
    pl_status                 st;
    *train = *held = NULL;
    PL_TRY(pl_recipe_require(r, &gen->data.prompts, err));
    PL_TRY(read_file(&all, r, form, path, NULL, err));
    if (eval && pl_recipe_differs(r, &pl_split_recipe_of(r)->eval.holdout))
        pl_log_warn_once("eval.holdout: is not read, since eval.prompts is given");
    if (eval) {
        PL_TRY_GOTO(st, fail, pl_prompts_to_evaluate(r, form, eval, NULL, held, err));
        *train = all;
        all = NULL;
    } else {
        PL_TRY_GOTO(st, fail, split(r, all, train, held, err));
        bool given = pl_split_recipe_of(r)->eval.chat.history == PL_HISTORY_GIVEN;
        if (given) PL_TRY_GOTO(st, fail, take_given(held, form, path, is_lenient(r, NULL), err));
    }
    if (gen->data.chat.history == PL_HISTORY_GIVEN)
        PL_TRY_GOTO(st, fail, take_given(train, form, path, is_lenient(r, NULL), err));
    pl_prompts_destroy(all);
    return PL_OK;
fail:
    pl_prompts_destroy(all);
    pl_prompts_destroy(*train);
    pl_prompts_destroy(*held);
    *train = *held = NULL;
    return st;
}

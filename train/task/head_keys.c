#include "train/task/head_keys.h"

#include "train/keys.h"

#include <string.h>

#define NEEDS_ACCEPTANCE "needs acceptance: true, the prediction by which drafts end"

// A key, and the condition under which a drafter would not follow it. why: follows `of`, which may be "".
typedef struct rule {
    const void *key;
    bool        unread;
    const char *of, *why;
} rule;

static pl_status refuse_unread(const pl_recipe *r, const rule *rules, size_t n, pl_err *err) {
    for (size_t i = 0; i < n; i++)
        if (rules[i].unread && pl_recipe_differs(r, rules[i].key))
            return pl_recipe_fail(r, rules[i].key, err, "%s%s", rules[i].of, rules[i].why);
    return PL_OK;
}

// Checks the keys of a drafter with a backbone and a trained head.
static pl_status check_backbone(const pl_recipe *r, pl_err *err) {
    const pl_head_recipe   *hd = pl_head_recipe_of(r);
    const pl_head_kind     *head = pl_train_head_kind(r);
    const pl_backbone_kind *drafter = pl_train_backbone(r);
    bool                    shared = head->published && drafter->shares_head && pl_train_freezes_head(r);

    const rule rules[] = {
        {&hd->vocab, head->over_target, head->name,
         " heads add to the target's own matrix, which is not trimmed; take full or lowrank"},
        {&hd->vocab, shared, "", "the target's own matrix is not trimmed; give drafter.head.frozen: false"},
        {&hd->position_aware, !head->listed, head->name,
         " heads have no rows in order of frequency; take full or lowrank"},
        {&hd->position_aware, shared, "",
         "the target's own matrix has no order of frequency; give drafter.head.vocab and drafter.head.frozen: false"},
        {&hd->position_aware, !hd->vocab, "",
         "all tokens are drafted, in order of their ids; give drafter.head.vocab, the list to draft from"},
        {&hd->redistribute, !head->listed, head->name, " heads draft no fixed list of tokens; take full or lowrank"},
        {&hd->redistribute, shared, "",
         "the target's own matrix drafts all tokens; give drafter.head.vocab and drafter.head.frozen: false"},
        {&hd->redistribute, !hd->vocab, "", "all tokens are drafted; give drafter.head.vocab, the list to draft from"},
        {&hd->init, head->over_target, head->name,
         " heads add to the target's own matrix, which stays as it is; leave it out"},
        {&hd->init, shared, "",
         "the head is the target's own matrix and stays so; give drafter.head.frozen: false, or leave it out"},
        {&hd->acceptance, drafter->draft, drafter->name,
         " drafts blocks; this is of drafters that go token after token"},
        {&hd->acceptance, shared, "", "the target's own matrix has nothing beside it; give drafter.head.frozen: false"},
        {&hd->max_rejection, !hd->acceptance, "", NEEDS_ACCEPTANCE}};
    return refuse_unread(r, rules, sizeof rules / sizeof *rules, err);
}

// Checks the keys of a language model, whose matrix is its own.
static pl_status check_standalone(const pl_recipe *r, pl_err *err) {
    static const pl_key beside[] = {
        {.path = "drafter.head.acceptance"}, {.path = "drafter.head.max_rejection"}, {.path = NULL}};
    const pl_head_recipe *hd = pl_head_recipe_of(r);
    const rule            ends = {&hd->max_rejection, !hd->acceptance, "", NEEDS_ACCEPTANCE};
    PL_TRY(pl_recipe_refuse_table(r, pl_head_keys, beside, "a drafter that is a language model has its own head", err));
    return refuse_unread(r, &ends, 1, err);
}

pl_status pl_head_keys_check(const pl_recipe *r, pl_err *err) {
    if (pl_train_recipe_of(r)->kind == PL_KIND_TARGET)
        return pl_recipe_refuse_table(r, pl_head_keys, NULL, "is not read by kind: target", err);
    if (pl_train_standalone(r)) return check_standalone(r, err);
    return pl_train_routed(r) ? PL_OK : check_backbone(r, err);
}

// Refuses a key that the recipe of an only drafter gives, or that the item of a list does.
static pl_status refuse_given(const pl_recipe *r, const pl_recipe *list, const void *item, const pl_key *table,
                              const pl_key *row, const char *why, pl_err *err) {
    const void *field = (const char *)pl_recipe_struct(r, table) + row->field.offset;
    if (!pl_recipe_differs(r, field)) return PL_OK;
    if (!item) return pl_recipe_fail(r, field, err, "%s", why);
    field = (const char *)pl_recipe_struct(list, table) + row->field.offset;
    return pl_recipe_overrides(list, item, field) ? pl_recipe_fail_override(list, item, field, err, "%s", why) : PL_OK;
}

static bool has_key(const pl_key *table, const char *path) {
    while (table && table->path && strcmp(table->path, path) != 0)
        table++;
    return table && table->path;
}

pl_status pl_head_keys_check_own(const pl_recipe *r, const pl_recipe *list, const void *item, pl_err *err) {
    const pl_key *own = pl_train_head_kind(r)->keys;
    if (pl_train_recipe_of(r)->kind == PL_KIND_TARGET) return PL_OK;
    for (int i = 0; pl_head_at(i); i++)
        for (const pl_key *row = pl_head_at(i)->keys; row && row->path; row++)
            if (!has_key(own, row->path))
                PL_TRY(refuse_given(r, list, item, pl_head_at(i)->keys, row,
                                    "is of another kind of head; take it out (null undoes it)", err));
    const pl_key *size = pl_head_keys;
    while (size->path && size->field.offset != offsetof(pl_head_recipe, vocab_size))
        size++;
    return pl_head_recipe_of(r)->vocab
               ? PL_OK
               : refuse_given(r, list, item, pl_head_keys, size,
                              "is of drafter.head.vocab, the list to draft from; give that", err);
}

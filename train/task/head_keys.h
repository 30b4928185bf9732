// The one rule for drafter.head.*: a key that would have no effect on the drafter is refused by name, with the mend.
#ifndef PL_TRAIN_HEAD_KEYS_H
#define PL_TRAIN_HEAD_KEYS_H

#include "recipes/recipe.h"

// Refuses keys of any head that differ from their defaults and that the recipe's drafter, or target, would not follow.
// The recipe of a routed head is checked by pl_router_check instead (pl_router_unread). Reads the recipe alone.
pl_status pl_head_keys_check(const pl_recipe *r, pl_err *err);

// Refuses further keys that drafters of a list may share though only some of them follow: those of other kinds of
// heads, and a size without a list. item: the drafter of `list` that r is the recipe of, whose own keys alone are
// refused; NULL: r is the recipe of an only drafter.
pl_status pl_head_keys_check_own(const pl_recipe *r, const pl_recipe *list, const void *item, pl_err *err);

#endif

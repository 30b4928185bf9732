#include "tests/recipes/by_name.h"

#include "kernels/base/check.h"
#include "recipes/recipe_impl.h"

static int must_find(const pl_recipe *r, const char *path) {
    int i = pl_recipe_find(r, path);
    PL_CHECK(i >= 0, "%s%s is in none of the recipe's tables", r->at, path);
    return i;
}

static const pl_recipe_value *must_have(const pl_recipe *r, const char *path, bool type_fits) {
    const pl_recipe_value *v = &r->values[must_find(r, path)];
    PL_CHECK(type_fits, "recipe key %s%s has another type", r->at, path);
    PL_CHECK(v->present, "recipe key %s%s has neither value nor default", r->at, path);
    return v;
}

static pl_key_type type_of(const pl_recipe *r, const char *path) {
    return r->rows[must_find(r, path)]->type;
}

int64_t recipe_int(const pl_recipe *r, const char *path) {
    return must_have(r, path, type_of(r, path) == PL_KEY_INT)->i;
}

double recipe_real(const pl_recipe *r, const char *path) {
    pl_key_type t = type_of(r, path);
    return must_have(r, path, t == PL_KEY_REAL || t == PL_KEY_INT)->f;
}

bool recipe_bool(const pl_recipe *r, const char *path) {
    return must_have(r, path, type_of(r, path) == PL_KEY_BOOL)->b;
}

const char *recipe_str(const pl_recipe *r, const char *path) {
    int         i = must_find(r, path);
    pl_key_type t = r->rows[i]->type;
    PL_CHECK(t == PL_KEY_STRING || t == PL_KEY_PATH || t == PL_KEY_ENUM, "recipe key %s%s has another type", r->at,
             path);
    return r->values[i].text;
}

int recipe_choice(const pl_recipe *r, const char *path) {
    return (int)must_have(r, path, type_of(r, path) == PL_KEY_ENUM)->i;
}

static const pl_recipe_value *list_of(const pl_recipe *r, const char *path, pl_key_type type) {
    int i = must_find(r, path);
    PL_CHECK(r->rows[i]->type == type, "recipe key %s%s has another type", r->at, path);
    return &r->values[i];
}

const char *const *recipe_list(const pl_recipe *r, const char *path, int *n) {
    const pl_recipe_value *v = list_of(r, path, PL_KEY_STRING_LIST);
    *n = v->n;
    return v->n ? (const char *const *)v->texts : NULL;
}

const int64_t *recipe_ints(const pl_recipe *r, const char *path, int *n) {
    const pl_recipe_value *v = list_of(r, path, PL_KEY_INT_LIST);
    *n = v->n;
    return v->n ? v->ints : NULL;
}

const double *recipe_reals(const pl_recipe *r, const char *path, int *n) {
    const pl_recipe_value *v = list_of(r, path, PL_KEY_REAL_LIST);
    *n = v->n;
    return v->n ? v->reals : NULL;
}

int recipe_list_count(const pl_recipe *r, const char *path) {
    return list_of(r, path, PL_KEY_LIST_OF_MAPS)->n;
}

const pl_recipe *recipe_item(const pl_recipe *r, const char *path, int i) {
    const pl_recipe_value *v = list_of(r, path, PL_KEY_LIST_OF_MAPS);
    PL_CHECK(i >= 0 && i < v->n, "%s%s: item %d of %d", r->at, path, i, v->n);
    return v->items[i];
}

bool recipe_knows(const pl_recipe *r, const char *path) {
    return pl_recipe_find(r, path) >= 0;
}

bool recipe_has(const pl_recipe *r, const char *path) {
    return r->values[must_find(r, path)].given;
}

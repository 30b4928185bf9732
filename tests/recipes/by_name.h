#ifndef PL_TEST_RECIPES_BY_NAME_H
#define PL_TEST_RECIPES_BY_NAME_H

#include "recipes/recipe.h"

// A value by its key's name, which the program itself never asks for: tests of reading look at single ones so. Aborts when the path is not in the tables, has another
// type, or (numbers, booleans, choices) has neither value nor default. Pointers live as long as the recipe.
int64_t            recipe_int(const pl_recipe *r, const char *path);
double             recipe_real(const pl_recipe *r, const char *path); // also an INT
bool               recipe_bool(const pl_recipe *r, const char *path);
const char        *recipe_str(const pl_recipe *r, const char *path); // STRING, PATH, ENUM; NULL: no value, no default
int                recipe_choice(const pl_recipe *r, const char *path); // ENUM: index into the row's choices
// Lists: *n elements; NULL and 0 when absent or empty.
const char *const *recipe_list(const pl_recipe *r, const char *path, int *n);
const int64_t     *recipe_ints(const pl_recipe *r, const char *path, int *n);
const double      *recipe_reals(const pl_recipe *r, const char *path, int *n);
// LIST_OF_MAPS: the number of items, and item i of them (0 <= i < count, else it aborts): a view, owned by r.
int                recipe_list_count(const pl_recipe *r, const char *path);
const pl_recipe   *recipe_item(const pl_recipe *r, const char *path, int i);
bool               recipe_knows(const pl_recipe *r, const char *path); // the path is a key of the tables
bool               recipe_has(const pl_recipe *r, const char *path);   // given in the file or by --set

#endif

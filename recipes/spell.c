#include "recipes/spell.h"

#include <ctype.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>

static int least(int a, int b) {
    return a < b ? a : b;
}

int pl_spell_distance(const char *a, const char *b) {
    int  na = (int)strnlen(a, PL_SPELL_MAX), nb = (int)strnlen(b, PL_SPELL_MAX);
    // Three rows of the edit matrix: a swap reads the row before the previous one.
    int  rows[3][PL_SPELL_MAX + 1];
    int *before = rows[0], *above = rows[1], *here = rows[2];
    for (int j = 0; j <= nb; j++)
        above[j] = j;
    for (int i = 1; i <= na; i++) {
        int ca = tolower((unsigned char)a[i - 1]);
        here[0] = i;
        for (int j = 1; j <= nb; j++) {
            int cb = tolower((unsigned char)b[j - 1]);
            int d = least(above[j - 1] + (ca != cb), 1 + least(above[j], here[j - 1]));
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) && cb == tolower((unsigned char)a[i - 2]))
                d = least(d, before[j - 2] + 1);
            here[j] = d;
        }
        int *free_row = before;
        before = above;
        above = here;
        here = free_row;
    }
    return above[nb];
}

bool pl_spell_close(const char *word, int distance) {
    return distance <= 1 + (int)strnlen(word, PL_SPELL_MAX) / 4;
}

const char *pl_spell_nearest(const char *word, const char *const *names, int n) {
    const char *best = NULL;
    int         distance = INT_MAX;
    for (int i = 0; i < n; i++) {
        int d = pl_spell_distance(word, names[i]);
        if (d >= distance) continue;
        distance = d;
        best = names[i];
    }
    return best && pl_spell_close(word, distance) ? best : NULL;
}

#include "infer/cli/show.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <math.h>
#include <string.h>

#define COLUMNS 16
#define CELL 160

pl_json_out *pl_show_begin(const pl_env *env, pl_json_out *local) {
    *local = (pl_json_out){0};
    if (env->json) return env->result;
    pl_json_out_begin(local, 0);
    pl_json_out_object(local);
    return local;
}

void pl_show_abort(pl_json_out *local) {
    pl_free(local->text);
    *local = (pl_json_out){0};
}

static void put_bytes(char out[CELL], double v) {
    static const char *const unit[] = {"bytes", "KB", "MB", "GB", "TB"};
    int                      u = 0;
    for (; v >= 1000 && u < 4; u++)
        v /= 1000;
    snprintf(out, CELL, u ? "%.3g %s" : "%.0f %s", v, unit[u]);
}

static void put_value(char out[CELL], const char *key, const cJSON *v);

static void put_list(char out[CELL], const cJSON *list) {
    size_t       n = 0;
    const cJSON *v;
    out[0] = 0;
    cJSON_ArrayForEach(v, list) {
        char cell[CELL];
        put_value(cell, "", v);
        n += (size_t)snprintf(out + n, CELL - n, "%s%s", n ? ", " : "", cell);
        if (n >= CELL) return;
    }
}

static void put_value(char out[CELL], const char *key, const cJSON *v) {
    if (cJSON_IsArray(v))
        put_list(out, v);
    else if (cJSON_IsString(v))
        snprintf(out, CELL, "%s", v->valuestring);
    else if (cJSON_IsBool(v))
        snprintf(out, CELL, "%s", cJSON_IsTrue(v) ? "yes" : "no");
    else if (!cJSON_IsNumber(v))
        snprintf(out, CELL, "-");
    else if (pl_path_ends(key, "bytes"))
        put_bytes(out, v->valuedouble);
    else if (v->valuedouble == floor(v->valuedouble) && fabs(v->valuedouble) < 1e15)
        snprintf(out, CELL, "%.0f", v->valuedouble);
    else
        snprintf(out, CELL, "%.6g", v->valuedouble);
}

// Returns true for a text of several lines, false for a short string that contains line ends.
static bool is_text(const cJSON *v) {
    int lines = 0;
    for (const char *s = cJSON_IsString(v) ? v->valuestring : ""; *s; s++)
        lines += *s == '\n';
    return lines > 2;
}

static bool is_table(const cJSON *v) {
    return cJSON_IsArray(v) && cJSON_IsObject(v->child);
}

// Prints a table; the keys of the first row are the columns.
static void show_table(FILE *f, const char *name, const cJSON *rows, int indent) {
    const char  *key[COLUMNS];
    int          width[COLUMNS], n = 0;
    char         cell[CELL];
    const cJSON *c, *row;
    cJSON_ArrayForEach(c, rows->child) {
        if (n == COLUMNS) break;
        key[n] = c->string;
        width[n++] = (int)strlen(c->string);
    }
    cJSON_ArrayForEach(row, rows) for (int i = 0; i < n; i++) {
        put_value(cell, key[i], cJSON_GetObjectItemCaseSensitive(row, key[i]));
        if ((int)strlen(cell) > width[i]) width[i] = (int)strlen(cell);
    }
    fprintf(f, "%*s%s:\n%*s", indent, "", name, indent + 2, "");
    for (int i = 0; i < n; i++)
        fprintf(f, "%-*s  ", width[i], key[i]);
    fputc('\n', f);
    cJSON_ArrayForEach(row, rows) {
        fprintf(f, "%*s", indent + 2, "");
        for (int i = 0; i < n; i++) {
            const cJSON *v = cJSON_GetObjectItemCaseSensitive(row, key[i]);
            put_value(cell, key[i], v);
            fprintf(f, cJSON_IsNumber(v) ? "%*s  " : "%-*s  ", width[i], cell);
        }
        fputc('\n', f);
    }
}

static void show_object(FILE *f, const cJSON *o, int indent) {
    int          width = 0;
    char         cell[CELL];
    const cJSON *v;
    cJSON_ArrayForEach(v, o) if (!is_table(v) && !cJSON_IsObject(v) && (int)strlen(v->string) > width) width =
        (int)strlen(v->string);
    cJSON_ArrayForEach(v, o) {
        if (is_table(v) || cJSON_IsObject(v) || is_text(v)) continue;
        put_value(cell, v->string, v);
        for (char *c = cell; *c; c++)
            if ((unsigned char)*c < ' ') *c = ' ';
        fprintf(f, "%*s%-*s  %s\n", indent, "", width, v->string, cell);
    }
    cJSON_ArrayForEach(v, o) {
        if (cJSON_IsObject(v)) {
            fprintf(f, "%*s%s:\n", indent, "", v->string);
            show_object(f, v, indent + 2);
        } else if (is_table(v)) {
            show_table(f, v->string, v, indent);
        } else if (is_text(v)) {
            fprintf(f, "%*s%s:\n%s", indent, "", v->string, v->valuestring);
        }
    }
}

pl_status pl_show_end(const pl_env *env, pl_json_out *local, pl_err *err) {
    if (env->json) return PL_OK;
    pl_json j;
    pl_json_out_close(local, '}');
    PL_TRY(pl_json_out_end(local, err));
    pl_status st = pl_json_parse_many(&j, "result", 0, local->text, local->len, INT64_MAX, 0, err);
    if (st == PL_OK) {
        show_object(env->text, j.root, 0);
        pl_json_close(&j);
    }
    pl_show_abort(local);
    return st;
}

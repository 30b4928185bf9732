#include "data/text/text.h"
#include "data/text/prompts.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/strbuf.h"
#include "kernels/base/utf8.h"
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE ((size_t)2 << 30)

const char *pl_text_encoding_name(int encoding) {
    static const char *const names[] = {
        [PL_TEXT_STRICT] = "strict", [PL_TEXT_LATIN1] = "latin1", [PL_TEXT_REPLACE] = "replace"};
    return encoding < (int)(sizeof names / sizeof *names) ? names[encoding] : NULL;
}

// ---- a corpus that grows

void pl_corpus_destroy(pl_corpus *c) {
    if (!c) return;
    for (int64_t i = 0; i < c->n; i++) {
        pl_free(c->docs[i].name);
        pl_free(c->docs[i].text);
    }
    pl_free(c->docs);
    pl_free(c);
}

static pl_status out_of_memory(pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "reading text: out of memory");
}

// Takes name and text over, also on failure. The capacity is the next power of two.
static pl_status push(pl_corpus *c, char *name, char *text, size_t bytes, pl_err *err) {
    bool full = (c->n & (c->n - 1)) == 0;
    if (full && name && text) {
        pl_document *p = pl_realloc(c->docs, (size_t)(c->n ? 2 * c->n : 1) * sizeof *p);
        if (p) c->docs = p;
        full = !p;
    }
    if (full || !name || !text) {
        pl_free(name);
        pl_free(text);
        return out_of_memory(err);
    }
    c->docs[c->n++] = (pl_document){name, text, bytes};
    c->bytes += bytes;
    return PL_OK;
}

static pl_status push_copy(pl_corpus *c, const char *name, const char *text, size_t bytes, pl_err *err) {
    char *copy = pl_malloc(bytes + 1);
    if (copy) {
        memcpy(copy, text, bytes);
        copy[bytes] = 0;
    }
    return push(c, pl_strdup(name), copy, bytes, err);
}

// ---- encodings

// Windows-1252's 0x80..0x9f, which Latin-1 leaves to control characters that no text has.
static const uint16_t cp1252[32] = {0x20ac, 0xfffd, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021,
                                    0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0xfffd, 0x017d, 0xfffd,
                                    0xfffd, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                    0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0xfffd, 0x017e, 0x0178};

static char *from_latin1(const char *s, size_t n, size_t *n_out) {
    pl_strbuf b = {0};
    for (size_t i = 0; i < n; i++) {
        uint8_t u = (uint8_t)s[i];
        char    c[4];
        pl_strbuf_add(&b, c, (size_t)pl_utf8_put(c, u >= 0x80 && u < 0xa0 ? cp1252[u - 0x80] : u));
    }
    *n_out = b.n;
    return pl_strbuf_take(&b);
}

static char *replace_invalid(const char *s, size_t n, size_t *n_out) {
    pl_strbuf b = {0};
    for (size_t at = 0; at < n;) {
        size_t good = pl_utf8_valid(s + at, n - at);
        pl_strbuf_add(&b, s + at, good);
        at += good;
        if (at == n) break;
        pl_strbuf_add(&b, PL_UTF8_REPLACEMENT, 3);
        at++;
    }
    *n_out = b.n;
    return pl_strbuf_take(&b);
}

// Makes *text valid UTF-8, replacing the buffer if need be.
static pl_status to_utf8(char **text, size_t *n, const char *path, pl_text_encoding how, pl_err *err) {
    size_t good = pl_utf8_valid(*text, *n);
    if (good == *n) return PL_OK;
    const uint8_t *u = (const uint8_t *)*text;
    if (*n >= 2 && ((u[0] == 0xff && u[1] == 0xfe) || (u[0] == 0xfe && u[1] == 0xff)))
        return pl_fail(err, PL_E_INPUT, "%s: UTF-16 text; convert it to UTF-8 (iconv -f utf-16 -t utf-8)", path);
    if (how == PL_TEXT_STRICT)
        return pl_fail(err, PL_E_INPUT, "%s: not valid UTF-8 at byte %zu (0x%02x); convert the file to UTF-8", path,
                       good, (unsigned)u[good]);
    size_t m;
    char  *s = how == PL_TEXT_LATIN1 ? from_latin1(*text, *n, &m) : replace_invalid(*text, *n, &m);
    if (!s) return out_of_memory(err);
    pl_free(*text);
    *text = s;
    *n = m;
    return PL_OK;
}

// ---- reading

// Whether a document is a file, or a part of it: "path#12", "path#12#0".
static bool of_file(const char *doc, const char *path) {
    size_t n = strlen(path);
    return strncmp(doc, path, n) == 0 && (doc[n] == 0 || doc[n] == '#');
}

// A document for each record.
static pl_status read_records(pl_corpus *c, const char *path, pl_err *err) {
    pl_prompts *records;
    PL_TRY(pl_prompts_read_field(&records, path, "text", err));
    pl_status st = PL_OK;
    for (int64_t i = 0; i < records->n && st == PL_OK; i++) {
        char  *text = records->p[i].text;
        size_t n = pl_text_normalize_newlines(text, strlen(text));
        records->p[i].text = NULL; // handed over
        text[n] = 0;
        st = push(c, pl_sprintf("%s#%lld", path, (long long)records->p[i].line), text, n, err);
    }
    pl_prompts_destroy(records);
    return st;
}

static pl_status read_one(pl_corpus *c, const char *path, pl_text_options opt, pl_err *err) {
    for (int64_t i = 0; i < c->n; i++)
        if (of_file(c->docs[i].name, path)) return PL_OK;
    if (pl_path_ends(path, ".jsonl")) return read_records(c, path, err);
    uint8_t *data;
    size_t   n;
    PL_TRY(pl_file_read(path, &data, &n, MAX_FILE, err));
    char     *text = (char *)data;
    pl_status st = PL_OK;
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) memmove(text, text + 3, n -= 3);
    PL_TRY_GOTO(st, done, to_utf8(&text, &n, path, opt.encoding, err));
    n = pl_text_normalize_newlines(text, n);
    if (opt.gutenberg) n = pl_text_strip_gutenberg(text, n);
    if (opt.unwrap) n = pl_text_unwrap(text, n);
    if (n > 0) {
        text[n] = 0; // every buffer here has a byte behind its text
        char *whole = text;
        text = NULL;
        st = push(c, pl_strdup(path), whole, n, err);
    }
done:
    pl_free(text);
    return st;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(char **names, size_t n) {
    for (size_t i = 0; i < n; i++)
        pl_free(names[i]);
    pl_free(names);
}

// The *.txt files of a folder, sorted.
static pl_status list_dir(const char *path, char ***names, size_t *n, pl_err *err) {
    *names = NULL;
    *n = 0;
    DIR *dir = opendir(path);
    if (!dir) return pl_fail_errno(err, "%s: cannot read the folder", path);
    size_t         cap = 0;
    struct dirent *e;
    bool           failed = false;
    for (;;) {
        errno = 0; // a folder that stops in the middle is not a short one
        if (failed || !(e = readdir(dir))) break;
        size_t len = strlen(e->d_name);
        if (len < 5 || e->d_name[0] == '.' || strcmp(e->d_name + len - 4, ".txt") != 0) continue;
        if (*n == cap) {
            cap = cap ? 2 * cap : 64;
            char **p = pl_realloc(*names, cap * sizeof *p);
            if (!(failed = !p)) *names = p;
        }
        char *name = failed ? NULL : pl_path_join(path, e->d_name);
        failed = !name;
        if (name) (*names)[(*n)++] = name;
    }
    pl_status st = failed ? out_of_memory(err) : errno ? pl_fail_errno(err, "%s: cannot read the folder", path) : PL_OK;
    closedir(dir);
    if (st != PL_OK) {
        free_names(*names, *n);
        *names = NULL;
        *n = 0;
        return st;
    }
    if (*n) qsort(*names, *n, sizeof **names, by_name);
    return PL_OK;
}

static pl_status read_dir(pl_corpus *c, const char *path, pl_text_options opt, pl_err *err) {
    char    **names;
    size_t    n;
    pl_status st = list_dir(path, &names, &n, err);
    if (st == PL_OK && n == 0)
        st = pl_fail(err, PL_E_INPUT, "%s: no .txt files in this folder; name the files or a pattern", path);
    for (size_t i = 0; i < n && st == PL_OK; i++)
        st = read_one(c, names[i], opt, err);
    free_names(names, n);
    return st;
}

static pl_status read_glob(pl_corpus *c, const char *pattern, pl_text_options opt, pl_err *err) {
    glob_t    g = {0};
    int       rc = glob(pattern, 0, NULL, &g); // sorted
    pl_status st = PL_OK;
    if (rc == GLOB_NOSPACE) st = out_of_memory(err);
    if (rc == GLOB_NOMATCH)
        st = pl_fail(err, PL_E_INPUT, "%s: no such file or folder, and no file matches it as a pattern", pattern);
    if (rc == GLOB_ABORTED) st = pl_fail(err, PL_E_IO, "%s: a folder of this pattern cannot be read", pattern);
    for (size_t i = 0; i < g.gl_pathc && st == PL_OK; i++)
        if (!pl_path_is_dir(g.gl_pathv[i])) st = read_one(c, g.gl_pathv[i], opt, err);
    globfree(&g);
    return st;
}

pl_status pl_corpus_read(pl_corpus **out, const char *const *paths, int n_paths, pl_text_options opt, pl_err *err) {
    *out = NULL;
    pl_status  st = PL_OK;
    pl_corpus *c = pl_calloc(1, sizeof *c);
    if (!c) return out_of_memory(err);
    for (int i = 0; i < n_paths && st == PL_OK; i++) {
        if (pl_path_is_dir(paths[i]))
            st = read_dir(c, paths[i], opt, err);
        else if (pl_path_exists(paths[i]))
            st = read_one(c, paths[i], opt, err);
        else
            st = read_glob(c, paths[i], opt, err);
    }
    if (st == PL_OK && c->n == 0)
        st = pl_fail(err, PL_E_INPUT, "%s: no text in it", n_paths > 0 ? paths[0] : "list of texts");
    if (st != PL_OK) {
        pl_corpus_destroy(c);
        return st;
    }
    *out = c;
    return PL_OK;
}

// ---- chunks and splits

// Where the piece of s[0..n) of at most max bytes ends best.
static size_t cut_point(const char *s, size_t n, size_t max) {
    if (n <= max) return n;
    for (size_t i = max; i > max / 2; i--)
        if (s[i - 1] == '\n') return i;
    for (size_t i = max; i > max / 2; i--)
        if (s[i - 1] == ' ') return i;
    size_t i = max;
    while (((uint8_t)s[i] & 0xc0) == 0x80)
        i--;
    return i;
}

pl_status pl_corpus_chunk(pl_corpus **out, const pl_corpus *c, size_t max_bytes, pl_err *err) {
    PL_CHECK(max_bytes >= 64, "max_bytes %zu", max_bytes);
    *out = NULL;
    pl_status  st = PL_OK;
    pl_corpus *to = pl_calloc(1, sizeof *to);
    if (!to) return out_of_memory(err);
    for (int64_t i = 0; i < c->n; i++) {
        const pl_document *d = &c->docs[i];
        int64_t            k = 0;
        for (size_t at = 0; at < d->bytes; k++) {
            size_t n = cut_point(d->text + at, d->bytes - at, max_bytes);
            char  *name = pl_sprintf("%s#%lld", d->name, (long long)k), *text = pl_malloc(n + 1);
            if (text) {
                memcpy(text, d->text + at, n);
                text[n] = 0;
            }
            PL_TRY_GOTO(st, done, push(to, name, text, n, err));
            at += n;
        }
    }
    *out = to;
done:
    if (st != PL_OK) pl_corpus_destroy(to);
    return st;
}

// Copies document i to train or held as held_out[i] says.
static pl_status split(const pl_corpus *c, const uint8_t *held_out, pl_corpus **train, pl_corpus **held, pl_err *err) {
    pl_status st = PL_OK;
    *train = pl_calloc(1, sizeof **train);
    *held = pl_calloc(1, sizeof **held);
    if (!*train || !*held) st = out_of_memory(err);
    for (int64_t i = 0; i < c->n && st == PL_OK; i++) {
        const pl_document *d = &c->docs[i];
        st = push_copy(held_out[i] ? *held : *train, d->name, d->text, d->bytes, err);
    }
    if (st != PL_OK) {
        pl_corpus_destroy(*train);
        pl_corpus_destroy(*held);
        *train = *held = NULL;
    }
    return st;
}

static bool names_document(const char *name, const char *doc) {
    return of_file(doc, name) || of_file(pl_path_name(doc), name);
}

pl_status pl_corpus_split_names(const pl_corpus *c, const char *const *names, int n_names, pl_corpus **train,
                                pl_corpus **held, pl_err *err) {
    *train = *held = NULL;
    uint8_t *out = pl_calloc((size_t)c->n, 1);
    if (!out) return out_of_memory(err);
    pl_status st = PL_OK;
    for (int k = 0; k < n_names && st == PL_OK; k++) {
        bool found = false;
        for (int64_t i = 0; i < c->n; i++)
            if (names_document(names[k], c->docs[i].name)) {
                out[i] = 1;
                found = true;
            }
        if (!found) st = pl_fail(err, PL_E_INPUT, "%s: no document of this name to hold out; check the list", names[k]);
    }
    if (st == PL_OK) st = split(c, out, train, held, err);
    pl_free(out);
    return st;
}

pl_status pl_corpus_split_every(const pl_corpus *c, int64_t every, pl_corpus **train, pl_corpus **held, pl_err *err) {
    PL_CHECK(every >= 2, "every %lld", (long long)every);
    *train = *held = NULL;
    uint8_t *out = pl_calloc((size_t)c->n, 1);
    if (!out) return out_of_memory(err);
    for (int64_t i = 0; i < c->n; i++)
        out[i] = i % every == every - 1;
    pl_status st = split(c, out, train, held, err);
    pl_free(out);
    return st;
}

// ---- files of text

// Takes the bytes over.
static pl_status make_plain(char **text, size_t *n, const char *path, uint8_t *data, size_t bytes, pl_err *err) {
    bool        gzip = bytes >= 2 && data[0] == 0x1f && data[1] == 0x8b;
    const char *other = gzip ? "a gzip file; unpack it first (gunzip -k)" : pl_sniff(data, bytes);
    if (other) {
        pl_free(data);
        return pl_fail(err, PL_E_INPUT, "%s: %s", path, other);
    }
    *text = (char *)data;
    if (bytes >= 3 && memcmp(data, "\xEF\xBB\xBF", 3) == 0) memmove(*text, *text + 3, bytes -= 3);
    *n = pl_text_normalize_newlines(*text, bytes);
    (*text)[*n] = 0;
    return PL_OK;
}

static pl_status read_plain(pl_status (*read)(const char *, uint8_t **, size_t *, size_t, pl_err *), char **text,
                            size_t *n, const char *path, size_t max, pl_err *err) {
    uint8_t *data;
    size_t   bytes;
    *text = NULL;
    *n = 0;
    PL_TRY(read(path, &data, &bytes, max, err));
    return make_plain(text, n, path, data, bytes, err);
}

pl_status pl_plain_read(char **text, size_t *n, const char *path, size_t max, pl_err *err) {
    return read_plain(pl_file_read, text, n, path, max, err);
}

pl_status pl_plain_stream(char **text, size_t *n, const char *path, size_t max, pl_err *err) {
    return read_plain(pl_stream_read, text, n, path, max, err);
}

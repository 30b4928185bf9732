// inspect --mask: prints documents of a dataset with the supervised tokens marked.
#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/inspect/parts.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Consecutive tokens of an answer, or of none.
typedef struct span {
    bool      answer;
    int64_t   tokens;
    pl_strbuf text;
} span;

// The output of spans: printed, or added to "spans".
typedef struct viewer {
    const pl_env       *env;
    const pl_tokenizer *tok;
    pl_dataset         *ds;
    pl_detok            detok;
    const char         *begin, *end; // marks around answers
    const char         *read, *read_end;
    pl_columns          doc;
    pl_doc_about        about;
    span                at;
} viewer;

static const char *const finishes[] = {[PL_ANSWER_UNKNOWN] = "unknown",
                                       [PL_ANSWER_STOP] = "stop",
                                       [PL_ANSWER_LENGTH] = "length",
                                       [PL_ANSWER_CONTEXT] = "context"};

// Writes the bytes of an incomplete character.
static void flush(viewer *v) {
    const char *text;
    size_t      n = pl_detok_flush(&v->detok, &text);
    pl_strbuf_add(&v->at.text, text, n);
}

static pl_status end_span(viewer *v, pl_err *err) {
    span *s = &v->at;
    if (s->tokens == 0) return PL_OK;
    flush(v);
    if (s->text.failed) return pl_fail(err, PL_E_MEMORY, "a document of %lld rows: out of memory", (long long)v->doc.n);
    if (v->env->json) {
        pl_json_out *o = v->env->result;
        pl_json_out_object(o);
        pl_put_bool(o, "answer", s->answer);
        pl_put_int(o, "tokens", s->tokens);
        pl_json_out_key(o, "text");
        pl_json_out_strn(o, s->text.s ? s->text.s : "", s->text.n);
        pl_json_out_close(o, '}');
    } else {
        fputs(s->answer ? v->begin : v->read, v->env->text);
        fwrite(s->text.s ? s->text.s : "", 1, s->text.n, v->env->text);
        fputs(s->answer ? v->end : v->read_end, v->env->text);
    }
    pl_strbuf_fini(&s->text);
    *s = (span){0};
    return PL_OK;
}

// Adds a token; special tokens, such as the template's, are spelt out.
static pl_status add_token(viewer *v, int32_t id, bool answer, pl_err *err) {
    const char *text;
    if (v->at.tokens > 0 && v->at.answer != answer) PL_TRY(end_span(v, err));
    v->at.answer = answer;
    v->at.tokens++;
    if (pl_tokenizer_is_special(v->tok, id)) {
        flush(v);
        text = pl_tokenizer_piece(v->tok, id);
        pl_strbuf_add(&v->at.text, text, strlen(text));
        return PL_OK;
    }
    size_t n = pl_detok_push(&v->detok, id, &text);
    pl_strbuf_add(&v->at.text, text, n);
    return PL_OK;
}

static void put_about(viewer *v, int64_t number, int64_t answers) {
    const pl_doc_about *a = &v->about;
    if (v->env->json) {
        pl_json_out *o = v->env->result;
        pl_put_int(o, "document", number);
        pl_put_int(o, "turn", a->turn);
        pl_put_int(o, "first_of_conversation", number - a->back);
        pl_put_int(o, "rows", v->doc.n);
        pl_put_int(o, "answer_rows", answers);
        pl_put_str(o, "finish", finishes[a->finish]);
        pl_put_bool(o, "cut", a->cut);
        return;
    }
    fprintf(v->env->text, "document %lld: ", (long long)number);
    if (a->turn > 0)
        fprintf(v->env->text, "turn %d of the conversation that document %lld begins; ", a->turn + 1,
                (long long)(number - a->back));
    fprintf(v->env->text, "%lld rows, %lld of them answers; ended by %s%s\n", (long long)v->doc.n, (long long)answers,
            a->finish == PL_ANSWER_STOP      ? "a stop token"
            : a->finish == PL_ANSWER_LENGTH  ? "its length"
            : a->finish == PL_ANSWER_CONTEXT ? "the context"
                                             : "nobody says what",
            a->cut ? "; its beginning is left out" : "");
}

static pl_status read_document(viewer *v, int64_t number, pl_err *err) {
    int64_t first, n;
    PL_TRY(pl_dataset_doc(v->ds, number, &first, &n, err));
    PL_TRY(pl_columns_reserve(&v->doc, &(pl_columns_shape){0}, n, err));
    PL_TRY(pl_dataset_doc_about(v->ds, number, &v->about, err));
    PL_TRY(pl_dataset_read_doc(v->ds, number, &v->doc, err));
    v->doc.n = n;
    return PL_OK;
}

static pl_status show_document(viewer *v, int64_t number, pl_err *err) {
    int64_t answers = 0;
    PL_TRY(read_document(v, number, err));
    for (int64_t i = 0; i < v->doc.n; i++)
        answers += v->doc.loss_mask[i];
    if (v->env->json) pl_json_out_object(v->env->result);
    put_about(v, number, answers);
    if (v->env->json) pl_put_array(v->env->result, "spans");
    pl_status st = PL_OK;
    for (int64_t i = 0; i < v->doc.n && st == PL_OK; i++)
        st = add_token(v, v->doc.tokens[i], v->doc.loss_mask[i], err);
    // The answer's last token has no row; the last row predicts it.
    if (st == PL_OK && v->about.end >= 0) st = add_token(v, v->about.end, true, err);
    if (st == PL_OK) st = end_span(v, err);
    pl_strbuf_fini(&v->at.text);
    v->at = (span){0};
    if (v->env->json) {
        pl_json_out_close(v->env->result, ']');
        pl_json_out_close(v->env->result, '}');
    } else {
        fputc('\n', v->env->text);
    }
    return st;
}

static pl_status check_document(const viewer *v, const char *path, int64_t document, pl_err *err) {
    const pl_dataset_attrs *a = pl_dataset_get_attrs(v->ds);
    const char             *own = pl_tokenizer_fingerprint(v->tok);
    int64_t                 docs = pl_dataset_docs(v->ds);
    if (a->top > 0) return pl_fail(err, PL_E_INPUT, "%s: holds traces, which have no mask", path);
    if (a->tokenizer_fingerprint && *a->tokenizer_fingerprint && strcmp(a->tokenizer_fingerprint, own) != 0)
        return pl_fail(err, PL_E_INPUT, "%s: was made with tokenizer %s, --tokenizer is %s", path,
                       a->tokenizer_fingerprint, own);
    if (document < docs) return PL_OK;
    return pl_fail(err, PL_E_USAGE, "--document %lld: %s has %lld documents, counted from 0", (long long)document, path,
                   (long long)docs);
}

static pl_status show_documents(viewer *v, const pl_cli_args *a, pl_err *err) {
    pl_dataset_open_options oo = {.lazy = true, .incomplete = true};
    int64_t                 first = pl_cli_int(a, "document"), end = first + pl_cli_int(a, "count");
    PL_TRY(pl_dataset_open(&v->ds, a->positional[0], &oo, err));
    PL_TRY(check_document(v, a->positional[0], first, err));
    PL_TRY(pl_detok_init(&v->detok, v->tok, false, err));
    if (v->env->json) pl_put_str(v->env->result, "template", pl_dataset_get_attrs(v->ds)->template_name);
    if (v->env->json) pl_put_array(v->env->result, "documents");
    pl_status st = PL_OK;
    for (int64_t i = first; i < end && i < pl_dataset_docs(v->ds) && st == PL_OK; i++)
        st = show_document(v, i, err);
    if (v->env->json) pl_json_out_close(v->env->result, ']');
    return st;
}

pl_status pl_inspect_mask(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    const char   *tokenizer = pl_cli_text(a, "tokenizer");
    pl_tokenizer *tok;
    bool          colour = !env->json && isatty(fileno(env->text)) && !getenv("NO_COLOR");
    if (!tokenizer) return pl_fail(err, PL_E_USAGE, "--mask: needs --tokenizer, the target's folder");
    if (env->json) pl_put_str(env->result, "path", a->positional[0]);
    PL_TRY(pl_tokenizer_open_pre(&tok, tokenizer, pl_cli_text(a, "pre"), err));
    viewer    v = {.env = env,
                   .tok = tok,
                   .begin = colour ? "\033[1;32m" : "\xE2\x9F\xA6", // white square brackets
                   .end = colour ? "\033[0m" : "\xE2\x9F\xA7",
                   .read = colour ? "\033[2m" : "",
                   .read_end = colour ? "\033[0m" : ""};
    pl_status st = show_documents(&v, a, err);
    pl_detok_fini(&v.detok);
    pl_columns_free(&v.doc);
    pl_dataset_close(v.ds);
    pl_tokenizer_close(tok);
    return st;
}

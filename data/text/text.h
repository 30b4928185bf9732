// Reading plain text for pretraining: documents in memory, cleaned.
#ifndef PL_TEXT_H
#define PL_TEXT_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct pl_document {
    char  *name; // path; path#LINE of a record; with #k behind it for the k-th chunk; owned
    char  *text; // UTF-8, "\n" line ends, NUL-terminated; owned
    size_t bytes;
} pl_document;

typedef struct pl_corpus {
    pl_document *docs;
    int64_t      n;
    size_t       bytes; // of all documents
} pl_corpus;

typedef enum pl_text_encoding {
    PL_TEXT_STRICT,  // invalid UTF-8 is refused, naming file and byte
    PL_TEXT_LATIN1,  // a file that is not UTF-8 is read as Latin-1 (0x80..0x9f as Windows-1252), all of it
    PL_TEXT_REPLACE, // each invalid byte becomes U+FFFD
} pl_text_encoding;

const char *pl_text_encoding_name(int encoding); // "strict"...; NULL past the last

typedef struct pl_text_options {
    bool gutenberg; // drop Project Gutenberg's header, licence and production notes (files without markers are kept
                    // whole)
    bool unwrap;    // hard-wrapped paragraphs become one line each; blank lines between them become one "\n"
    pl_text_encoding encoding;
} pl_text_options;

// paths[i]: a file, a folder (its *.txt files, not deeper) or a glob pattern. Documents are sorted by path within each
// entry and keep the order of entries; a file reached twice is read once. An entry that matches nothing is an error.
// A file *.jsonl has a JSON record on each line, whose member "text" is a document as it stands: options are for text.
// A byte order mark is dropped, "\r\n" and lone "\r" become "\n". Files that are empty after cleaning are left out.
pl_status pl_corpus_read(pl_corpus **out, const char *const *paths, int n_paths, pl_text_options opt, pl_err *err);
void      pl_corpus_destroy(pl_corpus *c);

// The steps by themselves, in place on text[0..n]; they return the new length (never longer).
size_t pl_text_normalize_newlines(char *text, size_t n);
size_t pl_text_strip_gutenberg(char *text, size_t n); // expects "\n" line ends
// expects "\n" line ends; a line indented by two or more blanks (verse, tables) starts a line of its own
size_t pl_text_unwrap(char *text, size_t n);

// Documents cut at paragraph ends (at "\n", at a space, at worst between characters) into chunks of at most max_bytes
// (>= 64). Chunk k of a document is named "name#k"; the chunks joined give the document's bytes.
pl_status pl_corpus_chunk(pl_corpus **out, const pl_corpus *c, size_t max_bytes, pl_err *err);

// Held-out splits; both sides are copies and must be destroyed. Document order is kept.
// By name: a document is held out when the file that it is or comes from, by its path or the last part of it, is in
// names.
// A name that matches nothing is an error.
pl_status pl_corpus_split_names(const pl_corpus *c, const char *const *names, int n_names, pl_corpus **train,
                                pl_corpus **held, pl_err *err);
// Every n-th document (index % every == every - 1) is held out; every >= 2. Chunk first for an even split of books.
pl_status pl_corpus_split_every(const pl_corpus *c, int64_t every, pl_corpus **train, pl_corpus **held, pl_err *err);

// ---- files of text, read alike wherever text or lines of JSON are taken from a file

// Reads a file of at most `max` bytes, 0-terminated (pl_free): a byte order mark is dropped, "\r\n" and lone "\r"
// become "\n". UTF-16, gzip, zip, Parquet, HTML and Git LFS pointers are refused with how to mend it (pl_sniff); the
// rest need not be UTF-8.
pl_status pl_plain_read(char **text, size_t *n, const char *path, size_t max, pl_err *err);
// The same of an input that a user may pipe in.
pl_status pl_plain_stream(char **text, size_t *n, const char *path, size_t max, pl_err *err);

#endif

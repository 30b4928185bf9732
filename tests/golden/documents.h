// The two documents that the drafters' goldens are computed from: the first begins with a prompt of 3 tokens, the
// second has answers with a gap. Features and last hiddens are numbers from names (make_golden.py, documents()).
#ifndef PL_TEST_GOLDEN_DOCUMENTS_H
#define PL_TEST_GOLDEN_DOCUMENTS_H

#include "tests/golden/golden.h"
#include "train/source/source.h"

enum { D = 48, TAPS = 3, V = 97, RANK = 12, DOCS = 2, LONGEST = 9, ROWS = 15 };
extern const int golden_doc_rows[DOCS];

typedef struct golden_document {
    int32_t  n, tokens[LONGEST], argmax[LONGEST];
    uint8_t  loss_mask[LONGEST];
    uint16_t features[LONGEST * TAPS * D], last_hidden[LONGEST * D];
} golden_document;

// Document i of a file that has doc/<i>/tokens, mask and argmax.
void       golden_document_read(golden *g, int i, golden_document *d);
pl_columns golden_document_rows(golden_document *d);

#endif

// A drafter by name through the engine: alone and in a batch, at temperature 0 and 1, plain decoding's own tokens,
// without an allocation in the loop, and, where the tree does not adapt, the same steps
// again on a second run.
#ifndef PL_TEST_INFER_LOSSLESS_H
#define PL_TEST_INFER_LOSSLESS_H

void test_lossless(const char *what, const char *tree);

#endif

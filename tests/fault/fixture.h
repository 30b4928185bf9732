// The micro target, its drafters and what they learn from: recipes and texts on which a command takes milliseconds.
#ifndef PL_TEST_FAULT_FIXTURE_H
#define PL_TEST_FAULT_FIXTURE_H

extern const char fixture_target[], fixture_drafter[], fixture_both[], fixture_routed[], fixture_prompts[],
    fixture_heldout[];
// Paragraphs of made-up sentences, different for every number; malloc'd.
char *fixture_text(int number);

#endif

// Whether weights are fetched ahead of their use by instructions, or left to the processor that sees a stream.
#ifndef PL_AHEAD_H
#define PL_AHEAD_H

#include <stdbool.h>

// Returns whether this processor gains by prefetch instructions: AMD's Zen 4 reads streams 1.2 to 1.4 times as fast
// without them, Zen 5 up to 1.4 times as fast with them. PACELINE_FETCH_AHEAD=0|1 in the environment overrides it, for
// measuring. Changes no bit.
bool pl_fetch_ahead(void);
// The same of passes with fma over one or two rows, where weights come from memory rather than out of a cache: Intel's
// processors (one with AMX was measured) read them 1.15 times as fast without.
bool pl_fetch_ahead_far(void);

#endif

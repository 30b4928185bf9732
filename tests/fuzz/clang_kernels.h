// For the kernels under clang when fuzzing: always the portable ones. Fuzzing looks at readers, not at kernels.
#pragma clang system_header
#define __builtin_cpu_supports(feature) 0

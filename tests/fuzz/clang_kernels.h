// For the kernels under clang 14, which has no __builtin_shuffle and does not know every CPU feature's name: shuffles
// by elements, and always the portable kernels. Fuzzing looks at readers, not at kernels.
#pragma clang system_header
#define __builtin_shuffle(a, b, m)                                                                                     \
    ({                                                                                                                 \
        __typeof__(a) pl_a_ = (a), pl_b_ = (b), pl_r_;                                                                 \
        __typeof__(m) pl_m_ = (m);                                                                                     \
        int           pl_n_ = (int)(sizeof pl_m_ / sizeof pl_m_[0]);                                                   \
        for (int pl_i_ = 0; pl_i_ < pl_n_; pl_i_++)                                                                    \
            pl_r_[pl_i_] = pl_m_[pl_i_] < pl_n_ ? pl_a_[pl_m_[pl_i_]] : pl_b_[pl_m_[pl_i_] - pl_n_];                   \
        pl_r_;                                                                                                         \
    })
#define __builtin_cpu_supports(feature) 0

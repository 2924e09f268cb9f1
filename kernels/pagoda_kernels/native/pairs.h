// Products of bfloat16 with the processor's own instruction (AVX-512 BF16): two neighbouring inputs at a time, summed
// in float32. It rounds each sum to nearest and takes numbers below 2^-126 for zero.
//
// Packed: [panels][pairs of inputs][columns of a panel][2].
#pragma once
#include <type_traits>

#include "vector.h"

#if defined(__AVX512F__) && defined(__AVX512BF16__)
#include <immintrin.h>
#define PAGODA_PAIRS_OF_BFLOAT16
#endif

namespace pagoda {

#if defined(PAGODA_PAIRS_OF_BFLOAT16)
constexpr bool PAIRS = true;
#else
constexpr bool PAIRS = false;
#endif

// Numbers that are multiplied in one go, and what they are multiplied as.
template <typename T>
constexpr int TOGETHER = sizeof(T) == 2 && PAIRS ? 2 : 1;
template <typename T>
using Multiplied = std::conditional_t<TOGETHER<T> == 2, T, float>;

#if defined(PAGODA_PAIRS_OF_BFLOAT16)
constexpr int PAIR_ROWS = 14;  // rows whose accumulators fit the registers, two vectors each

// C[r][0 .. V * W) (+)= sum over pairs of A[r][pair] * B[pair][0 .. V * W), for R rows. Strides are in numbers.
template <int R, int V, bool ADD>
inline void multiply_pairs(const BFloat16* a, int64_t a_stride, const BFloat16* b, int64_t b_stride, int64_t pairs,
                           float* c, int64_t c_stride, Prefetch prefetch) {
    constexpr int TOGETHER = 3;  // rows that share an address register
    constexpr int BASES = (R + TOGETHER - 1) / TOGETHER;
    const char* bases[BASES];
    for (int i = 0; i < BASES; i++) bases[i] = reinterpret_cast<const char*>(a + i * TOGETHER * a_stride);
    const int64_t stride = a_stride * 2;
    const char* ahead = prefetch.first;
    Floats sums[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) sums[r][v] = ADD ? load(c + r * c_stride + v * W) : Floats{};
    for (int64_t pair = 0; pair < pairs; pair++) {
        __m512i column[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) column[v] = _mm512_loadu_si512(b + v * 2 * W);
        if (!ADD) {
            __builtin_prefetch(ahead);
            __builtin_prefetch(ahead + 64);
            ahead += prefetch.step;
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            int32_t both;
            std::memcpy(&both, bases[r / TOGETHER] + (r % TOGETHER) * stride, 4);
            const __m512i x = _mm512_set1_epi32(both);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++)
                sums[r][v] = (Floats)_mm512_dpbf16_ps((__m512)sums[r][v], (__m512bh)column[v], (__m512bh)x);
        }
#pragma GCC unroll 8
        for (int i = 0; i < BASES; i++) bases[i] += 4;
        b += b_stride;
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) store(c + r * c_stride + v * W, sums[r][v]);
}

template <int R, int V, bool ADD>
inline void multiply_pair_rows(int rows, const BFloat16* a, int64_t a_stride, const BFloat16* b, int64_t b_stride,
                               int64_t pairs, float* c, int64_t c_stride, Prefetch prefetch) {
    if constexpr (R > 1) {
        if (rows < R)
            return multiply_pair_rows<R - 1, V, ADD>(rows, a, a_stride, b, b_stride, pairs, c, c_stride, prefetch);
    }
    multiply_pairs<R, V, ADD>(a, a_stride, b, b_stride, pairs, c, c_stride, prefetch);
}
#endif

}  // namespace pagoda

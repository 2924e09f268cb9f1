// Keys and values of a span of slots as they are multiplied, and their products: plain floats, or pairs of bfloat16.
#pragma once
#include "pairs.h"
#include "vector.h"

namespace pagoda {

inline int64_t padded(int64_t n) { return (n + W - 1) / W * W; }
inline int64_t paired(int64_t n) { return (n + 1) / 2 * 2; }

// target[i] = first[i], as it is multiplied; second is not used.
inline void lay(const float* first, const float*, int64_t count, float* target) {
    std::memcpy(target, first, count * 4);
}
inline void lay(const BFloat16* first, const BFloat16*, int64_t count, float* target) {
    for (int64_t i = 0; i < count; i += W) store_some(target + i, load_some(first + i, count - i), count - i);
}
// target[i] = the pair first[i], second[i]; zeros where there is no second.
#if defined(PAGODA_PAIRS_OF_BFLOAT16)
inline __m512i interleaved(__m256i first, __m256i second) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1));
}
inline void lay(const BFloat16* first, const BFloat16* second, int64_t count, BFloat16* target) {
    int64_t i = 0;
    if (second) {
        for (; i + W <= count; i += W)
            _mm512_storeu_si512(target + 2 * i, interleaved(_mm256_loadu_si256((const __m256i*)(first + i)),
                                                            _mm256_loadu_si256((const __m256i*)(second + i))));
    }
    for (; i < count; i++) {
        target[2 * i] = first[i];
        target[2 * i + 1] = second ? second[i] : BFloat16{};
    }
}
#endif

// C (+)= A B; columns: whole vectors, the stride of c and, in numbers or pairs, of b.
template <bool ADD>
inline void product(int64_t rows, const float* a, int64_t a_stride, const float* b, int64_t columns, int64_t inner,
                    float* c, int64_t c_stride) {
    int64_t column = 0;
    for (; column + 2 * W <= columns; column += 2 * W)
        multiply_all<2, ADD>(rows, a, a_stride, b + column, c_stride, inner, c + column, c_stride);
    if (column < columns) multiply_all<1, ADD>(rows, a, a_stride, b + column, c_stride, inner, c + column, c_stride);
}
#if defined(PAGODA_PAIRS_OF_BFLOAT16)
template <int R, int V, bool ADD>
inline void multiply_all_pairs(int64_t rows, const BFloat16* a, int64_t a_stride, const BFloat16* b, int64_t b_stride,
                               int64_t pairs, float* c, int64_t c_stride) {
    const int64_t groups = (rows + R - 1) / R;
    for (int64_t group = 0, row = 0; group < groups; group++) {
        const int64_t end = rows * (group + 1) / groups;
        multiply_pair_rows<R, V, ADD>(int(end - row), a + row * a_stride, a_stride, b, b_stride, pairs,
                                      c + row * c_stride, c_stride, {reinterpret_cast<const char*>(b), 0});
        row = end;
    }
}
template <bool ADD>
inline void product(int64_t rows, const BFloat16* a, int64_t a_stride, const BFloat16* b, int64_t columns,
                    int64_t inner, float* c, int64_t c_stride) {
    const int64_t pairs = (inner + 1) / 2, stride = 2 * c_stride;
    int64_t at = 0;
    for (; at + 4 * W <= columns; at += 4 * W)
        multiply_all_pairs<6, 4, ADD>(rows, a, a_stride, b + 2 * at, stride, pairs, c + at, c_stride);
    for (; at + 2 * W <= columns; at += 2 * W)
        multiply_all_pairs<PAIR_ROWS, 2, ADD>(rows, a, a_stride, b + 2 * at, stride, pairs, c + at, c_stride);
    if (at < columns)
        multiply_all_pairs<PAIR_ROWS, 1, ADD>(rows, a, a_stride, b + 2 * at, stride, pairs, c + at, c_stride);
}
#endif

inline void scale(float* p, int64_t n, float factor) {
    for (int64_t i = 0; i < n; i += W) store(p + i, load(p + i) * factor);
}

}  // namespace pagoda

// Vectors of the machine's own width, numbers in float32 and bfloat16, and the one product that everything is made of.
//
// Every output row is a sum in a fixed order that does not depend on the rows beside it, so a token's result is the same
// bit for bit in any batch and any chunking.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace pagoda {

#if defined(__AVX512F__)
constexpr int W = 16;         // floats of a vector
constexpr int MOST_ROWS = 12;  // rows whose accumulators fit the registers, two vectors each
#else
constexpr int W = 8;
constexpr int MOST_ROWS = 6;
#endif
typedef float Floats __attribute__((vector_size(W * 4)));
typedef int32_t Ints __attribute__((vector_size(W * 4)));
typedef uint32_t Words __attribute__((vector_size(W * 4)));

constexpr int64_t AHEAD = 1024;  // bytes: how far ahead of their use streams of weights are asked of the memory

// What to ask the memory for while a panel is multiplied: ``step`` bytes further each time.
struct Prefetch {
    const char* first;
    int64_t step;
};

// For number ``tile`` of ``tiles``, which reads ``step`` bytes of a panel of ``size`` each time. A single tile asks for
// what it needs soon. Of several the first two ask for half of the next panel each: the memory never rests.
inline Prefetch prefetch(const void* panel, int64_t size, int64_t step, int64_t tile, int64_t tiles) {
    const char* bytes = static_cast<const char*>(panel);
    if (tiles == 1) return {bytes + AHEAD, step};
    return tile < 2 ? Prefetch{bytes + size + tile * (size / 2), step / 2} : Prefetch{bytes, 0};
}

struct BFloat16 {
    uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(BFloat16 x) {
    uint32_t word = uint32_t(x.bits) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return value;
}
inline void store(float* p, float x) { *p = x; }
inline void store(BFloat16* p, float x) {  // to nearest, ties to even; NaN stays NaN
    uint32_t word;
    std::memcpy(&word, &x, 4);
    uint32_t rounded = (word + 0x7fff + ((word >> 16) & 1)) >> 16;
    p->bits = uint16_t((word & 0x7fffffff) > 0x7f800000 ? (word >> 16) | 0x40 : rounded);
}
inline Floats load(const float* p) {
    Floats v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline void store(float* p, Floats v) { std::memcpy(p, &v, sizeof v); }

// Two neighbouring vectors of a packed matrix: plain floats, or bfloat16 with element i of both in one word.
inline void load_pair(const float* p, Floats& low, Floats& high) {
    low = load(p);
    high = load(p + W);
}
inline void load_pair(const BFloat16* p, Floats& low, Floats& high) {
    Words words;
    std::memcpy(&words, p, sizeof words);
    Words a = words << 16, b = words & 0xffff0000u;
    std::memcpy(&low, &a, sizeof low);
    std::memcpy(&high, &b, sizeof high);
}

typedef uint16_t Halves __attribute__((vector_size(W * 2)));
inline Words to_words(Halves halves) {
#if defined(__AVX512F__)
    return (Words)_mm512_cvtepu16_epi32((__m256i)halves);  // compilers make more of it
#else
    return __builtin_convertvector(halves, Words);
#endif
}
inline Floats widened(Halves halves) {
    const Words words = to_words(halves) << 16;
    Floats v;
    std::memcpy(&v, &words, sizeof v);
    return v;
}
inline Floats load(const BFloat16* p) {
    Halves halves;
    std::memcpy(&halves, p, sizeof halves);
    return widened(halves);
}
template <typename T>
inline Floats load_some(const T* p, int64_t count) {  // the first count elements, then zeros
    if (count >= W) return load(p);
    Floats v{};
    for (int64_t i = 0; i < count; i++) v[i] = to_float(p[i]);
    return v;
}
inline void store_some(float* p, Floats v, int64_t count) {
    if (count >= W)
        store(p, v);
    else
        std::memcpy(p, &v, count * 4);
}
inline Halves to_bfloat16(Floats v) {
#if defined(__AVX512BF16__) && defined(__AVX512F__)
    return (Halves)_mm512_cvtneps_pbh((__m512)v);  // takes numbers below 2^-126 for zero
#else
    Words words;
    std::memcpy(&words, &v, sizeof words);
    const Words kept = v != v ? (words >> 16) | 0x40u : (words + 0x7fffu + ((words >> 16) & 1u)) >> 16;
    return __builtin_convertvector(kept, Halves);
#endif
}
inline void store_some(BFloat16* p, Floats v, int64_t count) {
    const Halves halves = to_bfloat16(v);
    if (count >= W)
        std::memcpy(p, &halves, sizeof halves);
    else
        std::memcpy(p, &halves, count * 2);
}
template <typename T>
inline Floats rounded(Floats v) {  // v as T's
    if constexpr (sizeof(T) == 4)
        return v;
    else
        return widened(to_bfloat16(v));
}

inline float sum_of(Floats v) {
    float parts[W];
    std::memcpy(parts, &v, sizeof v);
    for (int half = W / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) parts[i] += parts[i + half];
    return parts[0];
}
inline float greatest_of(Floats v) {
    float parts[W];
    std::memcpy(parts, &v, sizeof v);
    for (int half = W / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) parts[i] = std::max(parts[i], parts[i + half]);
    return parts[0];
}
inline Floats splat(float x) { return x - Floats{}; }  // minus zero: adding it would turn -0 into 0

// e^x to about 1 ulp for x <= 0; exactly 0 from -87 on, -inf included.
inline Floats exp(Floats x) {
    Floats clamped = x < -87.0f ? splat(-87.0f) : x;
    Floats shifted = clamped * 1.44269504f + 12582912.0f;  // the integer part lands in the mantissa
    Floats n = shifted - 12582912.0f;
    Floats r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
    Floats p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    Ints exponent;
    std::memcpy(&exponent, &shifted, sizeof exponent);
    exponent = (exponent - 0x4b400000 + 127) << 23;
    Floats scale;
    std::memcpy(&scale, &exponent, sizeof scale);
    return x < -87.0f ? Floats{} : p * scale;
}

// C[r][0 .. V * W) (+)= sum over k of A[r][k] * B[k][0 .. V * W), for R rows. V is 1 or 2.
template <int R, int V, bool ADD, typename T>
inline void multiply(const float* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t inner, float* c,
                     int64_t c_stride) {
    Floats sums[R][V];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) sums[r][v] = ADD ? load(c + r * c_stride + v * W) : Floats{};
    for (int64_t k = 0; k < inner; k++) {
        Floats column[V];
        if constexpr (V == 2 && !ADD) __builtin_prefetch(reinterpret_cast<const char*>(b + k * b_stride) + AHEAD);
        if constexpr (V == 2)
            load_pair(b + k * b_stride, column[0], column[1]);
        else
            column[0] = load(b + k * b_stride);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            Floats x = splat(a[r * a_stride + k]);
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) sums[r][v] += x * column[v];
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) store(c + r * c_stride + v * W, sums[r][v]);
}

template <int R, int V, bool ADD, typename T>
inline void multiply_rows(int rows, const float* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t inner,
                          float* c, int64_t c_stride) {
    if constexpr (R > 1) {
        if (rows < R) return multiply_rows<R - 1, V, ADD>(rows, a, a_stride, b, b_stride, inner, c, c_stride);
    }
    multiply<R, V, ADD>(a, a_stride, b, b_stride, inner, c, c_stride);
}

// The same for any number of rows, in equal groups of at most MOST_ROWS.
template <int V, bool ADD, typename T>
inline void multiply_all(int64_t rows, const float* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t inner,
                         float* c, int64_t c_stride) {
    int64_t groups = (rows + MOST_ROWS - 1) / MOST_ROWS;
    for (int64_t group = 0, row = 0; group < groups; group++) {
        int64_t end = rows * (group + 1) / groups;
        multiply_rows<MOST_ROWS, V, ADD>(int(end - row), a + row * a_stride, a_stride, b, b_stride, inner,
                                         c + row * c_stride, c_stride);
        row = end;
    }
}

}  // namespace pagoda

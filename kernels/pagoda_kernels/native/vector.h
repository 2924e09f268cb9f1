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

inline Floats load(const BFloat16* p) {
    typedef uint16_t Halves __attribute__((vector_size(W * 2)));
    Halves halves;
    std::memcpy(&halves, p, sizeof halves);
    Words words = __builtin_convertvector(halves, Words) << 16;
    Floats v;
    std::memcpy(&v, &words, sizeof v);
    return v;
}
template <typename T>
inline Floats load_some(const T* p, int64_t count) {  // the first count elements, then zeros
    if (count >= W) return load(p);
    Floats v{};
    for (int64_t i = 0; i < count; i++) v[i] = to_float(p[i]);
    return v;
}
inline void store_some(float* p, Floats v, int64_t count) { std::memcpy(p, &v, std::min<int64_t>(count, W) * 4); }
inline void store_some(BFloat16* p, Floats v, int64_t count) {
    Words words;
    std::memcpy(&words, &v, sizeof words);
    Words kept = v != v ? (words >> 16) | 0x40u : (words + 0x7fffu + ((words >> 16) & 1u)) >> 16;
    for (int64_t i = 0; i < W && i < count; i++) p[i].bits = uint16_t(kept[i]);
}
template <typename T>
inline Floats rounded(Floats v) {  // v as T's
    T values[W];
    store_some(values, v, W);
    return load(values);
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

// Vectors of small integers: unsigned weights times signed activations, exactly, and float16 to float32.
//
// A vector of W * 4 bytes holds, for each of W output columns, the weights of 4 neighbouring inputs.
#pragma once
#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "vector.h"

namespace pagoda {

typedef uint8_t Bytes __attribute__((vector_size(W * 4)));

inline Bytes load_bytes(const uint8_t* p) {
    Bytes v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// DOTS: one instruction multiplies and adds up in 32 bits, of weights up to 255. Otherwise sums of pairs are kept in
// 16 bits, which hold a group of 32 weights up to 15 (8 pairs of 2 * 15 * 127): greater weights go in two halves.
#if defined(__AVX512F__) && defined(__AVX512VNNI__)
#define PAGODA_DOT(sums, q, x) _mm512_dpbusd_epi32(sums, q, _mm512_set1_epi32(x))
typedef __m512i Register;
#elif defined(__AVX512F__) && defined(__AVX512BW__)
#define PAGODA_PAIRS(sums, q, x) _mm512_add_epi16(sums, _mm512_maddubs_epi16(q, _mm512_set1_epi32(x)))
#define PAGODA_WIDEN(pairs) _mm512_madd_epi16(pairs, _mm512_set1_epi16(1))
typedef __m512i Register;
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
#define PAGODA_DOT(sums, q, x) _mm256_dpbusd_avx_epi32(sums, q, _mm256_set1_epi32(x))
typedef __m256i Register;
#elif defined(__AVX2__) && !defined(__AVX512F__)
#define PAGODA_PAIRS(sums, q, x) _mm256_add_epi16(sums, _mm256_maddubs_epi16(q, _mm256_set1_epi32(x)))
#define PAGODA_WIDEN(pairs) _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
typedef __m256i Register;
#else
#define PAGODA_DOT(sums, q, x) dot_by_element(sums, q, x)
typedef Ints Register;
inline Ints dot_by_element(Ints sums, Ints q, int32_t x) {
    for (int shift = 0; shift < 32; shift += 8) sums += ((q >> shift) & 255) * int32_t(int8_t(x >> shift));
    return sums;
}
#endif
#if defined(PAGODA_DOT)
constexpr bool DOTS = true;
inline Register accumulate(Register sums, Bytes q, int32_t x) { return PAGODA_DOT(sums, (Register)q, x); }
inline Ints total(Register sums) { return (Ints)sums; }
#else
constexpr bool DOTS = false;
inline Register accumulate(Register sums, Bytes q, int32_t x) {
    sums = PAGODA_PAIRS(sums, (Register)q, x);
    asm("" : "+v"(sums));  // sums in this order: compilers that reorder them keep all products and run out of registers
    return sums;
}
inline Ints total(Register sums) { return (Ints)PAGODA_WIDEN(sums); }
#endif

// W numbers of IEEE float16.
inline Floats load_halves(const uint16_t* p) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#elif defined(__AVX2__) && defined(__F16C__)
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
#else
    Floats v;
    for (int i = 0; i < W; i++) {
        const uint32_t sign = uint32_t(p[i] & 0x8000) << 16, rest = p[i] & 0x7fff;
        uint32_t word = rest < 0x7c00 ? (rest << 13) + 0x38000000 : (rest << 13) | 0x7f800000;
        float value;
        std::memcpy(&value, &word, 4);
        if (rest < 0x400) value = float(rest) * 5.9604645e-8f;  // subnormal: multiples of 2^-24
        v[i] = sign ? -value : value;
    }
    return v;
#endif
}

}  // namespace pagoda

// Passes over a row of logits: the greatest one, and what the tokens weigh.
//
// A weight is e^((logit - greatest) / temperature) in float64, to 1e-15 of itself where it matters (1e-13 at e^-700).
// Sums are float64, in an order that the row alone decides.
#pragma once
#include <vector>

#include "vector.h"

namespace pagoda::sampling {

constexpr int D = W / 2;
typedef double Doubles __attribute__((vector_size(D * 8)));
typedef int64_t Longs __attribute__((vector_size(D * 8)));
typedef float HalfFloats __attribute__((vector_size(D * 4)));

constexpr int64_t BLOCK = 256;  // tokens whose greatest logit is known
constexpr int CUTS = 3;         // candidates for top-p are first sought among weights of 2^-6, 2^-12 and 2^-18
constexpr double CUT = 6 * 0.6931471805599453;
constexpr float LEAST = -std::numeric_limits<float>::infinity();

// e^x to about 1 ulp for x <= 0; exactly 0 from -708 on.
inline Doubles exp(Doubles x) {
    const Doubles clamped = x < -708.0 ? Doubles{} - 708.0 : x;
    const Doubles shifted = clamped * 1.4426950408889634 + 6755399441055744.0;  // as of floats, in vector.h
    const Doubles n = shifted - 6755399441055744.0;
    const Doubles r = clamped - n * 6.93147180369123816490e-01 - n * 1.90821492927058770002e-10;
    Doubles p = Doubles{} + 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    Longs exponent;
    std::memcpy(&exponent, &shifted, sizeof exponent);
    exponent = (exponent - 0x4338000000000000 + 1023) << 52;
    Doubles scale;
    std::memcpy(&scale, &exponent, sizeof scale);
    return x < -708.0 ? Doubles{} : p * scale;
}

inline HalfFloats load_half(const float* p) {
    HalfFloats v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline HalfFloats load_half(const BFloat16* p) {
    typedef uint16_t Quarters __attribute__((vector_size(D * 2)));
    typedef uint32_t HalfWords __attribute__((vector_size(D * 4)));
    Quarters quarters;
    std::memcpy(&quarters, p, sizeof quarters);
    const HalfWords words = __builtin_convertvector(quarters, HalfWords) << 16;
    HalfFloats v;
    std::memcpy(&v, &words, sizeof v);
    return v;
}
template <typename T>
inline HalfFloats load_half(const T* p, int64_t count) {  // the first count logits, then -inf
    if (count >= D) return load_half(p);
    HalfFloats v = HalfFloats{} + LEAST;
    for (int64_t i = 0; i < count; i++) v[i] = to_float(p[i]);
    return v;
}

struct Weights {
    double top, inverse_temperature;
    Doubles operator()(Doubles logits) const { return exp((logits - top) * inverse_temperature); }
};

// The greatest logit, and that of each block; NaN where there is one.
template <typename T>
float find_greatest(const T* row, int64_t size, std::vector<float>& greatest) {
    greatest.assign((size + BLOCK - 1) / BLOCK, LEAST);
    Ints broken{};
    bool broken_end = false;
    float top = LEAST;
    for (int64_t begin = 0; begin < size; begin += BLOCK) {
        const int64_t end = std::min(begin + BLOCK, size);
        Floats most = splat(LEAST), other = most;
        int64_t i = begin;
        for (; i + 2 * W <= end; i += 2 * W) {
            const Floats x = load(row + i), y = load(row + i + W);
            broken |= (x != x) | (y != y);
            most = x > most ? x : most;
            other = y > other ? y : other;
        }
        most = other > most ? other : most;
        float block = LEAST;
        for (int lane = 0; lane < W; lane++) block = std::max(block, float(most[lane]));
        for (; i < end; i++) {
            const float x = to_float(row[i]);
            broken_end |= x != x;
            block = std::max(block, x);
        }
        greatest[begin / BLOCK] = block;
        top = std::max(top, block);
    }
    for (int lane = 0; lane < W; lane++) broken_end |= broken[lane] != 0;
    return broken_end ? std::numeric_limits<float>::quiet_NaN() : top;
}

template <typename T>
int64_t first_of(const T* row, float top, const std::vector<float>& greatest) {
    int64_t token = BLOCK * (std::find(greatest.begin(), greatest.end(), top) - greatest.begin());
    while (to_float(row[token]) != top) token++;
    return token;
}

// All weights: their sum, those of each block in sums, and where cuts is not null those of at least each cut.
template <bool CUT_TOO, typename T>
double weigh(const T* row, int64_t size, const Weights& weights, double least_weight, std::vector<double>& sums,
             double* above) {
    sums.assign((size + BLOCK - 1) / BLOCK, 0);
    Doubles cut_sums[CUTS]{};
    double cuts[CUTS], total = 0;
    for (int c = 0; c < CUTS; c++) cuts[c] = weights.top - CUT * (c + 1) / weights.inverse_temperature;
    for (int64_t begin = 0; begin < size; begin += BLOCK) {
        const int64_t end = std::min(begin + BLOCK, size);
        Doubles sum{};
        for (int64_t i = begin; i < end; i += D) {
            const Doubles logits = __builtin_convertvector(load_half(row + i, end - i), Doubles);
            const Doubles all = weights(logits), weight = all >= least_weight ? all : Doubles{};
            sum += weight;
            if constexpr (CUT_TOO)
                for (int c = 0; c < CUTS; c++) cut_sums[c] += logits >= cuts[c] ? weight : Doubles{};
        }
        double block = 0;
        for (int lane = 0; lane < D; lane++) block += sum[lane];
        sums[begin / BLOCK] = block;
        total += block;
    }
    if constexpr (CUT_TOO)
        for (int c = 0; c < CUTS; c++) {
            above[c] = 0;
            for (int lane = 0; lane < D; lane++) above[c] += cut_sums[c][lane];
        }
    return total;
}

}  // namespace pagoda::sampling

// Sampling without sorting a row: the tokens that layer_reference.sample draws, from the same numbers.
//
// A row is one thread's alone, whoever is beside it: its token depends neither on them nor on the number of threads.
#pragma once
#include <functional>

#include "sampling_passes.h"

namespace pagoda {

struct SamplingArguments {
    const void* logits;      // [rows, size], rows row_stride apart
    const double* uniforms;  // [rows], as all that follow
    const float* temperatures;
    const int32_t* top_k;  // null: no row has one; so top_p and min_p
    const float *top_p, *min_p;
    int64_t* tokens;
    int64_t row_stride, rows, size;
    int threads;
};

namespace sampling {

// Tokens that may be kept, in the order of their ids.
struct Candidates {
    int64_t count = 0;
    std::vector<uint32_t> keys;  // ordered as the logits are
    std::vector<int32_t> tokens;
    std::vector<double> weights;

    void reserve(int64_t most) {
        if (int64_t(keys.size()) >= most) return;
        keys.resize(most), tokens.resize(most), weights.resize(most);
    }
};

struct Scratch {
    std::vector<float> greatest;  // of each block
    std::vector<double> sums;     // of each block's weights
    Candidates candidates;
    std::vector<uint32_t> keys;  // of the candidates that a search has left
    std::vector<double> weights, cumulated;
};

// The token where uniform of the weights of all is exceeded. Weights below least_weight are none.
template <typename T>
int64_t draw_from_all(const T* row, int64_t size, const Weights& weights, double least_weight, double uniform,
                      std::vector<double>& sums) {
    const double goal = uniform * weigh<false>(row, size, weights, least_weight, sums, nullptr);
    double before = 0;
    int64_t block = 0;
    while (block + 1 < int64_t(sums.size()) && before + sums[block] <= goal) before += sums[block++];
    const int64_t begin = block * BLOCK, end = std::min(begin + BLOCK, size);
    int64_t last = begin;  // with a weight, for where rounding leaves the goal unreached
    double sum = 0;
    for (int64_t i = begin; i < end; i += D) {
        const Doubles all = weights(__builtin_convertvector(load_half(row + i, end - i), Doubles));
        for (int64_t lane = 0; lane < std::min<int64_t>(D, end - i); lane++) {
            if (!(all[lane] > 0 && all[lane] >= least_weight)) continue;
            last = i + lane;
            sum += all[lane];
            if (before + sum > goal) return last;
        }
    }
    return last;
}

inline Words keys_of(Floats logits) {  // 0 and -0 are the same
    const Floats plain = logits + 0.0f;
    Words bits;
    std::memcpy(&bits, &plain, sizeof bits);
    return bits ^ (Words(Ints(bits) >> 31) | 0x80000000u);
}
inline Floats logits_of(Words keys) {
    const Words bits = keys ^ (~Words(Ints(keys) >> 31) | 0x80000000u);
    Floats logits;
    std::memcpy(&logits, &bits, sizeof logits);
    return logits;
}

// The tokens of at least cut, with their weights.
template <typename T>
void collect(const T* row, int64_t size, float cut, const Weights& weights, const std::vector<float>& greatest,
             Candidates& found) {
    found.reserve(size + W);
    int64_t count = 0;
    for (int64_t begin = 0; begin < size; begin += BLOCK) {
        if (greatest[begin / BLOCK] < cut) continue;
        const int64_t end = std::min(begin + BLOCK, size);
        for (int64_t i = begin; i < end; i += W) {
            const Floats logits = load_some(row + i, end - i);
            const Ints taken = logits >= cut;
            const Words keys = keys_of(logits);
            const int lanes = int(std::min<int64_t>(W, end - i));
            for (int lane = 0; lane < lanes; lane++) {
                found.keys[count] = keys[lane];
                found.tokens[count] = int32_t(i + lane);
                count -= taken[lane];
            }
        }
    }
    found.count = count;
    for (int64_t i = 0; i < count; i += W) {
        Words keys;
        std::memcpy(&keys, found.keys.data() + i, sizeof keys);
        float logits[W];
        store(logits, logits_of(keys));
        for (int part = 0; part < 2; part++) {
            const Doubles some = weights(__builtin_convertvector(load_half(logits + part * D), Doubles));
            std::memcpy(found.weights.data() + i + part * D, &some, sizeof some);
        }
    }
}

// Where the ranking by logit is cut: at a key, of which the first equals tokens are still kept.
struct Boundary {
    uint32_t key;
    int64_t equals;
    double mass;  // of what is kept
};

// Of the first count tokens where by_count, else of those before which there is less than goal of weight.
// Histograms of the keys' next 8 bits, each over the tokens that the one before left: at most four.
inline Boundary find_boundary(Scratch& scratch, bool by_count, int64_t count, double goal) {
    const uint32_t* keys = scratch.candidates.keys.data();
    const double* weights = scratch.candidates.weights.data();
    int64_t left = scratch.candidates.count;
    const auto [least, most] = std::minmax_element(keys, keys + left);
    uint32_t low = *least;
    const int bits = *least == *most ? 0 : 32 - __builtin_clz(*most - *least);
    scratch.keys.resize(left), scratch.weights.resize(left);
    int64_t number = 0;
    double mass = 0;
    for (int shift = std::max(0, bits - 8);; shift = std::max(0, shift - 8)) {
        int64_t numbers[256]{};
        double masses[256]{};
        for (int64_t i = 0; i < left; i++) {
            const uint32_t bin = (keys[i] - low) >> shift;
            numbers[bin]++;
            masses[bin] += weights[i];
        }
        int found = -1;
        for (int bin = 255; bin >= 0; bin--) {
            if (!numbers[bin]) continue;
            if (found >= 0) number += numbers[found], mass += masses[found];
            found = bin;
            if (by_count ? number + numbers[bin] >= count : mass + masses[bin] >= goal) break;
        }
        int64_t kept = 0;
        for (int64_t i = 0; i < left; i++) {
            const bool inside = (keys[i] - low) >> shift == uint32_t(found);
            scratch.keys[kept] = keys[i];
            scratch.weights[kept] = weights[i];
            kept += inside;
        }
        low += uint32_t(found) << shift;
        keys = scratch.keys.data(), weights = scratch.weights.data(), left = kept;
        if (shift) continue;
        const double due = by_count ? double(count - number) : std::ceil((goal - mass) / weights[0]);
        const double equals = due > 1 ? std::min(due, double(left)) : 1;  // also where weights of 0 make it no number
        return {low, int64_t(equals), mass + equals * weights[0]};
    }
}

// The token where uniform of the weights of what is kept is exceeded.
inline int64_t draw_from_kept(const Candidates& candidates, Boundary boundary, double least_weight, double uniform,
                              std::vector<double>& cumulated) {
    cumulated.resize(candidates.count);
    double total = 0;
    for (int64_t i = 0; i < candidates.count; i++) {
        const uint32_t key = candidates.keys[i];
        const double weight = candidates.weights[i];
        const bool kept = key > boundary.key || (key == boundary.key && boundary.equals-- > 0);
        total += kept && weight >= least_weight ? weight : 0;
        cumulated[i] = total;
    }
    const auto chosen = std::upper_bound(cumulated.begin(), cumulated.end(), uniform * total);
    const auto last = std::lower_bound(cumulated.begin(), cumulated.end(), total);
    return candidates.tokens[std::min(chosen, last) - cumulated.begin()];
}

// The least logit that top-k has to look at: k blocks have one as great.
inline float cut_by_count(const std::vector<float>& greatest, int64_t count) {
    if (count > int64_t(greatest.size())) return LEAST;
    std::vector<float> ranked = greatest;
    std::nth_element(ranked.begin(), ranked.begin() + (count - 1), ranked.end(), std::greater<float>());
    return ranked[count - 1];
}

template <typename T>
int64_t sample_row(const SamplingArguments& arg, int64_t index, Scratch& scratch) {
    const T* row = static_cast<const T*>(arg.logits) + index * arg.row_stride;
    const float top = find_greatest(row, arg.size, scratch.greatest);
    if (!std::isfinite(top)) return -1;
    const double temperature = arg.temperatures[index], uniform = arg.uniforms[index];
    if (temperature == 0) return first_of(row, top, scratch.greatest);
    const int64_t count = arg.top_k ? arg.top_k[index] : 0;
    const double kept_mass = arg.top_p ? arg.top_p[index] : 1, least_weight = arg.min_p ? arg.min_p[index] : 0;
    const Weights weights{top, 1 / temperature};
    const bool by_count = count > 0 && count < arg.size, by_mass = kept_mass < 1;
    if (!by_count && !by_mass) return draw_from_all(row, arg.size, weights, least_weight, uniform, scratch.sums);
    Boundary boundary{0, 0, 0};
    float cut = LEAST;
    if (by_count) {
        cut = cut_by_count(scratch.greatest, count);
    } else {
        double above[CUTS];
        boundary.mass = weigh<true>(row, arg.size, weights, 0, scratch.sums, above);
        for (int c = CUTS - 1; c >= 0; c--)
            if (above[c] >= kept_mass * boundary.mass)
                cut = std::nextafter(float(top - CUT * (c + 1) * temperature), LEAST);
    }
    collect(row, arg.size, cut, weights, scratch.greatest, scratch.candidates);
    if (by_count) boundary = find_boundary(scratch, true, count, 0);
    if (by_mass) {
        Boundary nearer = find_boundary(scratch, false, 0, kept_mass * boundary.mass);
        if (by_count && nearer.key <= boundary.key)
            nearer = {boundary.key, std::min(nearer.equals, boundary.equals), 0};
        boundary = nearer;
    }
    return draw_from_kept(scratch.candidates, boundary, least_weight, uniform, scratch.cumulated);
}

}  // namespace sampling

template <typename T>
void sample(const SamplingArguments& arg) {
    const int threads = int(std::min<int64_t>(arg.threads, arg.rows));
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (int64_t index = 0; index < arg.rows; index++) {
        static thread_local sampling::Scratch scratch;
        arg.tokens[index] = sampling::sample_row<T>(arg, index, scratch);
    }
}

}  // namespace pagoda

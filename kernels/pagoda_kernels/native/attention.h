// PagedAttention (arXiv 2309.06180, section 4.1) for CPUs: query tokens of one sequence and one KV head, block by block,
// with a running softmax. Decodes and prefill chunks take the same path and give the same bits: spans of blocks begin at
// fixed positions, and what a row does not see weighs exactly nothing.
#pragma once
#include <algorithm>
#include <atomic>
#include <vector>

#include "spans.h"
#include "team.h"

namespace pagoda {

constexpr int SPAN = 64;  // slots that are attended to together, at least a block
constexpr int MOST_TILE_ROWS = 48;  // query rows (tokens x heads of a group) that share the loading of a block

struct AttentionArguments {
    const void *query, *keys, *values;
    void* output;
    const float* sinks;  // [query_heads] or null
    const int32_t *query_starts, *context_lengths, *block_tables;
    int64_t query_token_stride, query_head_stride, table_stride;
    int64_t sequences, query_heads, kv_heads, head_size, value_size, block_size;
    int64_t window;  // 0: none
    float scaling, softcap;  // softcap 0: none
    int threads;
};

struct AttentionTask {
    int32_t sequence, kv_head, first, tokens;  // query tokens first .. first + tokens - 1 of the sequence's chunk
};

// One task's view of its sequence: the softmax runs from span to span of slots, each some whole blocks.
template <typename T>
class Attention {
  public:
    // following: what is likely to be attended to next, whose first span is asked of the memory in time.
    Attention(const AttentionArguments& arg, const AttentionTask& task, const AttentionTask& following,
              std::vector<float>& scratch)
        : arg_(arg), task_(task), following_(following), group_(arg.query_heads / arg.kv_heads),
          rows_(task.tokens * group_), start_(arg.query_starts[task.sequence]), width_(padded(arg.value_size)) {
        position_ = position_of(task);
        end_ = position_ + task.tokens;
        span_blocks_ = std::max<int64_t>(1, SPAN / arg.block_size);
        slots_ = padded(span_blocks_ * arg.block_size);
        inner_ = TOGETHER<T> == 2 ? paired(arg.head_size) : arg.head_size;
        const int64_t parts[] = {rows_ * slots_, rows_ * width_, rows_,         rows_,
                                 rows_ * inner_, inner_ * slots_, paired(slots_) * width_, rows_ * slots_};
        int64_t needed = 16;
        for (int64_t part : parts) needed += padded(part);
        if (int64_t(scratch.size()) < needed) scratch.resize(needed);
        float* at = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
        float* places[8];
        for (int i = 0; i < 8; at += padded(parts[i++])) places[i] = at;
        scores_ = places[0], sums_ = places[1], greatest_ = places[2], total_ = places[3];
        query_ = (Element*)places[4], keys_ = (Element*)places[5], values_ = (Element*)places[6];
        chances_ = sizeof(Element) == 4 ? (Element*)scores_ : (Element*)places[7];
        std::fill(sums_, sums_ + rows_ * width_, 0.0f);
        std::fill(greatest_, greatest_ + rows_, MASKED);
        std::fill(total_, total_ + rows_, 0.0f);
    }

    void run() {
        load_query();
        const int64_t begin = begin_of(task_), span = span_blocks_ * arg_.block_size;
        for (int64_t first = begin / span * span; first < end_; first += span) {
            const int64_t valid = std::min(span, end_ - first);
            load_span(first, std::max<int64_t>(0, begin - first), valid);
            product<false>(rows_, query_, inner_, keys_, padded(valid), arg_.head_size, scores_, slots_);
            for (int64_t r = 0; r < rows_; r++) weigh(r, first, valid);
            product<true>(rows_, chances_, slots_, values_, width_, valid, sums_, width_);
        }
        write();
    }

  private:
    using Element = Multiplied<T>;
    static constexpr float MASKED = -std::numeric_limits<float>::infinity();

    int64_t position_of(const AttentionTask& task) const {  // of its first query token
        const int64_t length = arg_.query_starts[task.sequence + 1] - arg_.query_starts[task.sequence];
        return arg_.context_lengths[task.sequence] - length + task.first;
    }
    int64_t begin_of(const AttentionTask& task) const {  // the first slot that it sees
        return arg_.window ? std::max<int64_t>(0, position_of(task) - arg_.window + 1) : 0;
    }
    int64_t index_of(const AttentionTask& task, int64_t block) const {
        return int64_t(arg_.block_tables[task.sequence * arg_.table_stride + block]) * arg_.kv_heads + task.kv_head;
    }
    // Where the block lies that is loaded a span after number ``block`` of the span at ``first``.
    int64_t next_index(int64_t first, int64_t block) const {
        const int64_t own = first / arg_.block_size + block + span_blocks_;
        if (own * arg_.block_size < end_) return index_of(task_, own);
        const int64_t blocks = (position_of(following_) + following_.tokens - 1) / arg_.block_size;
        const int64_t begin = begin_of(following_) / (span_blocks_ * arg_.block_size) * span_blocks_;
        return index_of(following_, std::min(begin + block, blocks));
    }

    void load_query() {
        for (int64_t r = 0; r < rows_; r++) {
            const T* source = static_cast<const T*>(arg_.query) +
                              (start_ + task_.first + r / group_) * arg_.query_token_stride +
                              (task_.kv_head * group_ + r % group_) * arg_.query_head_stride;
            Element* target = query_ + r * inner_;
            if constexpr (TOGETHER<T> == 2) {
                std::memcpy(target, source, arg_.head_size * sizeof(T));
                if (inner_ > arg_.head_size) target[arg_.head_size] = {};
            } else {
                lay(source, source, arg_.head_size, target);
            }
        }
    }

    // Keys and values of the slots first + from .. first + valid - 1; values of those before them are zeros.
    void load_span(int64_t first, int64_t from, int64_t valid) {
        const int64_t size = arg_.block_size, blocks = (valid + size - 1) / size, skipped = from / size;
        const T *row = nullptr, *other = nullptr;
        std::fill(values_, values_ + paired(skipped * size) * width_, Element{});
        for (int64_t block = skipped; block < blocks; block++) {
            const int64_t index = index_of(task_, first / size + block), ahead = next_index(first, block) - index;
            const T* keys = static_cast<const T*>(arg_.keys) + index * arg_.head_size * size;
            const T* next_keys = keys + ahead * arg_.head_size * size;
            Element* laid = keys_ + block * size * TOGETHER<T>;
            int64_t d = 0;
            for (; d + TOGETHER<T> <= arg_.head_size; d += TOGETHER<T>) {
                __builtin_prefetch(next_keys + d * size);
                lay(keys + d * size, keys + (d + 1) * size, size, laid + d * slots_);
            }
            if (d < arg_.head_size) lay(keys + d * size, static_cast<const T*>(nullptr), size, laid + d * slots_);
            const T* values = static_cast<const T*>(arg_.values) + index * size * arg_.value_size;
            const T* next_values = values + ahead * size * arg_.value_size;
            for (int64_t i = 0; i < size * arg_.value_size; i += 64 / int64_t(sizeof(T)))
                __builtin_prefetch(next_values + i);
            const int64_t slots = std::min(size, valid - block * size);
            for (int64_t offset = 0; offset < slots; offset++) {
                const int64_t slot = block * size + offset;
                row = values + offset * arg_.value_size;
                if (TOGETHER<T> == 1) {
                    lay(row, row, arg_.value_size, values_ + slot * width_);
                } else if (slot % 2) {
                    lay(other ? other : row, row, arg_.value_size, values_ + (slot - 1) * width_);
                } else if (slot + 1 == valid) {
                    lay(row, static_cast<const T*>(nullptr), arg_.value_size, values_ + slot * width_);
                }
                other = row;
            }
        }
    }

    // Scores of row r become weights, and what it has summed up so far is brought to the same scale.
    void weigh(int64_t r, int64_t first, int64_t valid) {
        float* row = scores_ + r * slots_;
        Element* chances = chances_ + r * slots_;
        const int64_t columns = padded(valid), own = position_ + r / group_;
        const int64_t from = arg_.window ? std::max<int64_t>(0, own - arg_.window + 1 - first) : 0;
        const int64_t to = std::min(valid, own + 1 - first);
        Ints lanes{};
        for (int i = 0; i < W; i++) lanes[i] = i;
        Floats most_of = splat(greatest_[r]);
        for (int64_t j = 0; j < columns; j += W) {
            Floats score = load(row + j) * arg_.scaling;
            if (arg_.softcap != 0)
                for (int i = 0; i < W; i++) score[i] = arg_.softcap * std::tanh(score[i] / arg_.softcap);
            const Ints slot = lanes + int32_t(j);
            score = (slot >= int32_t(from)) & (slot < int32_t(to)) ? score : splat(MASKED);
            most_of = score > most_of ? score : most_of;  // NaN is passed over here and shows in the sum
            store(row + j, score);
        }
        const float most = greatest_of(most_of);
        if (most == MASKED) {  // nothing visible yet
            std::fill(chances, chances + columns, Element{});
            return;
        }
        Floats total{};
        for (int64_t j = 0; j < columns; j += W) {
            const Floats weight = exp(load(row + j) - most);
            total += weight;
            store_some(chances + j, weight, W);
        }
        if (most != greatest_[r]) {
            const float factor = exp(splat(greatest_[r] - most))[0];
            total_[r] *= factor;
            scale(sums_ + r * width_, width_, factor);
            greatest_[r] = most;
        }
        total_[r] += sum_of(total);
    }

    void write() {
        for (int64_t r = 0; r < rows_; r++) {
            const int64_t head = task_.kv_head * group_ + r % group_;
            float factor = 1.0f;
            if (arg_.sinks) {
                const float most = std::max(greatest_[r], arg_.sinks[head]);
                factor = exp(splat(greatest_[r] - most))[0];
                total_[r] = total_[r] * factor + exp(splat(arg_.sinks[head] - most))[0];
            }
            factor /= total_[r];
            T* target = static_cast<T*>(arg_.output) +
                        ((start_ + task_.first + r / group_) * arg_.query_heads + head) * arg_.value_size;
            for (int64_t d = 0; d < arg_.value_size; d += W)
                store_some(target + d, load(sums_ + r * width_ + d) * factor, arg_.value_size - d);
        }
    }

    const AttentionArguments& arg_;
    const AttentionTask &task_, &following_;
    int64_t group_, rows_, start_, width_;
    int64_t position_, end_;  // of the first query token, behind the last
    int64_t span_blocks_, slots_, inner_;
    float *scores_, *sums_, *greatest_, *total_;
    Element *query_, *keys_, *values_, *chances_;
};

inline std::vector<AttentionTask> attention_tasks(const AttentionArguments& arg) {
    const int32_t group = int32_t(arg.query_heads / arg.kv_heads);
    const int32_t tile = std::max(1, MOST_TILE_ROWS / group);
    std::vector<AttentionTask> tasks;
    for (int32_t s = 0; s < arg.sequences; s++) {
        const int32_t length = arg.query_starts[s + 1] - arg.query_starts[s];
        for (int32_t first = 0; first < length; first += tile)
            for (int32_t head = 0; head < arg.kv_heads; head++)
                tasks.push_back({s, head, first, std::min(tile, length - first)});
    }
    return tasks;
}

// The whole team attends; next: 0, shared by it.
template <typename T>
void attend(const AttentionArguments& arg, const std::vector<AttentionTask>& tasks, std::atomic<size_t>& next) {
    static thread_local std::vector<float> scratch;
    for (size_t i = next++; i < tasks.size(); i = next++) {
        const size_t following = std::min(i + size_t(arg.threads), tasks.size() - 1);
        Attention<T>(arg, tasks[i], tasks[following], scratch).run();
    }
}

template <typename T>
void paged_attention(const AttentionArguments& arg) {
    const std::vector<AttentionTask> tasks = attention_tasks(arg);
    std::atomic<size_t> next{0};
    with_team(arg.threads, [&](const Team&) { attend<T>(arg, tasks, next); });
}

// A token's key and value of one head into their slot.
template <typename T>
inline void write_head(const T* key, const T* value, T* key_pool, T* value_pool, int64_t slot, int64_t head,
                       int64_t kv_heads, int64_t head_size, int64_t value_size, int64_t block_size) {
    const int64_t index = slot / block_size * kv_heads + head, offset = slot % block_size;
    T* column = key_pool + index * head_size * block_size + offset;
    for (int64_t d = 0; d < head_size; d++) column[d * block_size] = key[d];
    std::memcpy(value_pool + (index * block_size + offset) * value_size, value, value_size * sizeof(T));
}

template <typename T>
void write_kv(const T* keys, const T* values, T* key_pool, T* value_pool, const int64_t* slots, int64_t tokens,
              int64_t kv_heads, int64_t head_size, int64_t value_size, int64_t block_size, int64_t key_token_stride,
              int64_t key_head_stride, int64_t value_token_stride, int64_t value_head_stride) {
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t h = 0; h < kv_heads; h++)
            write_head(keys + t * key_token_stride + h * key_head_stride,
                       values + t * value_token_stride + h * value_head_stride, key_pool, value_pool, slots[t], h,
                       kv_heads, head_size, value_size, block_size);
}

}  // namespace pagoda

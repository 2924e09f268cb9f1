// The threads of one parallel region: shares of the work, and waiting for one another without leaving the region.
#pragma once
#include <omp.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace pagoda {

constexpr int SPINS = 4000;  // looks before a waiting thread offers its core to others: some ten microseconds

class Barrier {
  public:
    void wait(int threads) {
        const int mine = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(mine + 1, std::memory_order_release);
            return;
        }
        for (int looks = 0; round_.load(std::memory_order_acquire) == mine; looks++) {
            if (looks >= SPINS) std::this_thread::yield();
#if defined(__x86_64__)
            else
                __builtin_ia32_pause();
#endif
        }
    }

  private:
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<int> round_{0};
};

struct Share {
    int64_t begin, end;
};

struct Team {
    int thread, threads;
    Barrier* barrier;

    Share share(int64_t parts) const { return {parts * thread / threads, parts * (thread + 1) / threads}; }
    void wait() const {
        if (threads > 1) barrier->wait(threads);
    }
};

// work(team) in each of the threads.
template <typename Work>
void with_team(int threads, Work work) {
    if (threads <= 1) return work(Team{0, 1, nullptr});
    Barrier barrier;
#pragma omp parallel num_threads(threads)
    work(Team{omp_get_thread_num(), omp_get_num_threads(), &barrier});
}

}  // namespace pagoda

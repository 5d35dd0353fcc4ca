#include "topology/probe.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "topology/affinity.h"
#include "topology/arena.h"
#include "topology/read_kernels.h"
#include "topology/sysfs.h"

namespace larder::topology {
namespace {

constexpr size_t kMb = size_t{1} << 20;
constexpr double kGiga = 1e9;
// A sample shorter than this measures the clock (25 ns per reading) and interrupts rather than the
// memory.
constexpr double kSampleSeconds = 50e-6;

// Threads meet here between samples. It spins with a yield, so that a probe on a busy machine still
// ends.
class Gate {
 public:
  explicit Gate(int threads) : threads_(threads) {}
  void Meet() {
    const int round = round_.load(std::memory_order_acquire);
    // acq_rel: the last thread to arrive has seen what all others wrote, and passes it on through
    // round_
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (uint32_t polls = 0; round_.load(std::memory_order_acquire) == round; ++polls) {
      if (polls > 1000) sched_yield();
    }
  }

 private:
  const int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<int> round_{0};
};

struct Sample {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

NumaNodeId NodeOf(const Topology& topology, CpuId cpu) {
  for (const Core& core : topology.cores()) {
    if (std::find(core.cpus.begin(), core.cpus.end(), cpu) != core.cpus.end())
      return core.numa_node;
  }
  return NumaNodeId{};
}

struct Together {
  double gbps = 0;
  std::string pattern;
  bool pinned = true;
  bool flushed = true;
  std::string arena_notes;
};

// One pinned thread per CPU, each with a buffer on its own node that it touched first. They read at
// the same time. A sample is all threads' bytes divided by the time from the first start to the
// last end, so moments in which fewer threads read make it lower, never higher.
Together ReadTogether(const Topology& topology, std::span<const CpuId> cpus, size_t bytes,
                      bool flush, double budget_s) {
  const size_t threads = cpus.size();
  const std::span<const ReadPattern> patterns = ReadPatterns();
  Together result;
  Gate gate(static_cast<int>(threads));
  std::vector<Sample> samples(threads);
  std::vector<std::string> errors(threads);
  std::vector<char> pinned(threads, 1), flushed(threads, 1);
  std::atomic<bool> stop{false};
  // from L3 a few passes make a sample of about a millisecond; after a flush there is one pass
  const size_t passes = flush ? 1 : std::max<size_t>(1, 32 * kMb / bytes);
  const int64_t begin_ns = NowNs();

  auto body = [&](size_t me) {
    pinned[me] = PinThisThread(cpus[me]);
    Arena arena;
    try {
      arena = Arena(bytes, NodeOf(topology, cpus[me]));
      std::memset(arena.data(), static_cast<int>(me + 1),
                  bytes);  // untouched pages are all the one zero page
    } catch (const Error& error) {
      errors[me] = error.what();
      stop.store(true, std::memory_order_relaxed);
    }
    if (me == 0) result.arena_notes = arena.Describe();
    gate.Meet();
    if (stop.load(std::memory_order_relaxed)) return;
    for (size_t round = 0;; ++round) {
      const ReadPattern& pattern = patterns[round % patterns.size()];
      if (flush) {
        flushed[me] = FlushFromCaches(arena.data(), bytes);
      } else {
        pattern.read(arena.data(), bytes);  // brings the buffer back into the cache
      }
      gate.Meet();
      samples[me].start_ns = NowNs();
      for (size_t pass = 0; pass < passes; ++pass) pattern.read(arena.data(), bytes);
      samples[me].end_ns = NowNs();
      gate.Meet();
      if (me == 0) {
        int64_t start = samples[0].start_ns, end = samples[0].end_ns;
        for (const Sample& sample : samples) {
          start = std::min(start, sample.start_ns);
          end = std::max(end, sample.end_ns);
        }
        const double gbps = static_cast<double>(threads * passes * bytes) /
                            static_cast<double>(std::max<int64_t>(1, end - start));
        if (gbps > result.gbps) {
          result.gbps = gbps;
          result.pattern = pattern.name;
        }
        // each pattern at least once, whatever the budget
        if (round + 1 >= patterns.size() && SecondsSince(begin_ns) > budget_s) {
          stop.store(true, std::memory_order_relaxed);
        }
      }
      gate.Meet();  // orders `stop` too
      if (stop.load(std::memory_order_relaxed)) return;
    }
  };
  std::vector<std::thread> crew;
  for (size_t t = 0; t < threads; ++t) crew.emplace_back(body, t);
  for (std::thread& thread : crew) thread.join();
  for (const std::string& error : errors) {
    if (!error.empty()) throw Error("bandwidth probe: {}", error);
  }
  result.pinned = std::all_of(pinned.begin(), pinned.end(), [](char ok) { return ok != 0; });
  result.flushed = std::all_of(flushed.begin(), flushed.end(), [](char ok) { return ok != 0; });
  return result;
}

// What the caches' sizes say about the probe's buffers.
struct CacheShare {
  size_t l3_total_bytes = 0;  // bytes of the L3 groups that these CPUs use
  size_t l3_share_bytes = 0;  // the smallest share of a thread
  size_t l2_bytes = 0;        // the largest L2
};

CacheShare ShareOf(const Topology& topology, std::span<const CpuId> cpus) {
  CacheShare share;
  std::vector<size_t> users(topology.l3_groups().size(), 0);
  for (CpuId cpu : cpus) {
    for (const Core& core : topology.cores()) {
      if (std::find(core.cpus.begin(), core.cpus.end(), cpu) == core.cpus.end()) continue;
      ++users[core.l3_group.index()];
      share.l2_bytes = std::max(share.l2_bytes, core.l2_bytes);
    }
  }
  share.l3_share_bytes = SIZE_MAX;
  for (size_t g = 0; g < users.size(); ++g) {
    if (users[g] == 0) continue;
    const size_t bytes = topology.l3_groups()[g].bytes;
    share.l3_total_bytes += bytes;
    share.l3_share_bytes = std::min(share.l3_share_bytes, bytes / users[g]);
  }
  if (share.l3_share_bytes == SIZE_MAX) share.l3_share_bytes = 0;
  return share;
}

}  // namespace

double ReadBandwidthGbps(std::span<const std::byte> region, double seconds_budget,
                         std::string* pattern_name) {
  LARDER_CHECK(reinterpret_cast<uintptr_t>(region.data()) % kCacheLineBytes == 0,
               "the region starts inside a line");
  const size_t bytes = region.size() / kCacheLineBytes * kCacheLineBytes;
  if (bytes == 0) return 0;
  const std::span<const ReadPattern> patterns = ReadPatterns();
  int64_t start = NowNs();
  patterns[0].read(region.data(), bytes);
  patterns[0].read(region.data(), bytes);
  const double pass_s = std::max(SecondsSince(start) / 2, 1e-9);
  const size_t passes = std::max<size_t>(1, static_cast<size_t>(kSampleSeconds / pass_s));
  double best = 0;
  const int64_t begin = NowNs();
  // every pattern once, then round again while there is time
  for (size_t i = 0; i < patterns.size() || SecondsSince(begin) < seconds_budget; ++i) {
    const ReadPattern& pattern = patterns[i % patterns.size()];
    start = NowNs();
    for (size_t pass = 0; pass < passes; ++pass) pattern.read(region.data(), bytes);
    const double gbps =
        static_cast<double>(passes * bytes) / std::max(SecondsSince(start), 1e-9) / kGiga;
    if (gbps > best) {
      best = gbps;
      if (pattern_name != nullptr) *pattern_name = pattern.name;
    }
  }
  return best;
}

double ReadBandwidthGbps(std::span<const std::byte> region, double seconds_budget) {
  return ReadBandwidthGbps(region, seconds_budget, nullptr);
}

MachineBandwidth MeasureBandwidth(const Topology& topology, std::span<const CpuId> cpus,
                                  size_t l3_bytes_per_thread, double budget_s) {
  if (cpus.empty()) throw Error("bandwidth probe: no CPUs given; expected at least 1");
  MachineBandwidth out;
  out.threads = cpus.size();
  const CacheShare share = ShareOf(topology, cpus);

  // The L3 buffer is half of a thread's share, at most 12 MB (an L3 shared with neighbours, as in a
  // cloud, does not keep more), and well above L2, so that little of each pass comes from L2.
  if (l3_bytes_per_thread == 0) {
    l3_bytes_per_thread = std::min(share.l3_share_bytes / 2, 12 * kMb);
    if (l3_bytes_per_thread == 0) {
      l3_bytes_per_thread = std::max(8 * kMb, 4 * share.l2_bytes);
      out.notes.push_back(
          "the size of the L3 is not known: the L3 figures are for a buffer of a guessed size");
    }
  }
  l3_bytes_per_thread = RoundUp(std::max(l3_bytes_per_thread, kPageBytes), kPageBytes);
  out.l3_bytes_used = l3_bytes_per_thread;
  if (l3_bytes_per_thread < 2 * share.l2_bytes) {
    out.notes.push_back(fmt::format(
        "the L3 buffer ({} KB per thread) is not well above the L2 ({} KB): part of it is read "
        "from L2",
        l3_bytes_per_thread >> 10, share.l2_bytes >> 10));
  }

  // The DRAM buffers are four times the L3 in all, so that even a cache that keeps a part of a
  // stream contributes little. If that is more than 512 MB, or more than an eighth of the free
  // memory, they are smaller and are flushed before each pass.
  const size_t cap = std::min<size_t>(512 * kMb, AvailableMemoryBytes().value_or(SIZE_MAX) / 8);
  const size_t wanted = std::max(4 * share.l3_total_bytes, 64 * kMb * cpus.size());
  const bool flush = share.l3_total_bytes == 0 || wanted > cap;
  const size_t dram_bytes = flush ? std::min(cap / cpus.size(), 64 * kMb) : wanted / cpus.size();
  out.dram_bytes_used = RoundUp(std::max(dram_bytes, 4 * kMb), kHugePageBytes);
  if (flush) {
    out.notes.push_back(fmt::format(
        "four times the L3 ({} MB) is too much for the DRAM probe: it reads {} MB per thread, "
        "flushed from the caches before each pass",
        share.l3_total_bytes / kMb, out.dram_bytes_used / kMb));
  }

  const double part_s = budget_s / 4;
  auto note = [&out](const Together& result) {
    if (!result.pinned)
      out.notes.push_back("threads could not be pinned: the figures may mix cores");
    if (!result.flushed)
      out.notes.push_back("this CPU's caches cannot be flushed: DRAM figures may be too high");
  };
  const Together l3_all = ReadTogether(topology, cpus, l3_bytes_per_thread, false, part_s);
  const Together dram_all = ReadTogether(topology, cpus, out.dram_bytes_used, flush, part_s);
  note(dram_all);
  out.notes.push_back("DRAM buffers: " + dram_all.arena_notes);
  out.l3_all_gbps = l3_all.gbps;
  out.l3_pattern = l3_all.pattern;
  out.dram_all_gbps = dram_all.gbps;
  out.dram_pattern = dram_all.pattern;
  if (cpus.size() == 1) {
    out.l3_one_gbps = l3_all.gbps;
    out.dram_one_gbps = dram_all.gbps;
    return out;
  }
  out.l3_one_gbps = ReadTogether(topology, cpus.first(1), l3_bytes_per_thread, false, part_s).gbps;
  // alone, one thread's buffer may fit the L3 even if all threads' together do not
  const bool flush_one = flush || out.dram_bytes_used < 4 * share.l3_total_bytes;
  out.dram_one_gbps =
      ReadTogether(topology, cpus.first(1), out.dram_bytes_used, flush_one, part_s).gbps;
  if (out.l3_all_gbps < out.l3_one_gbps || out.dram_all_gbps < out.dram_one_gbps) {
    out.notes.push_back(
        "all threads together read less than one alone: other work disturbed the probe");
  }
  return out;
}

double HandOverNs(CpuId from, CpuId to) {
  if (from == to || !from.valid() || !to.valid()) return 0;
  constexpr uint32_t kRounds = 200;  // hand-overs there and back in one sample
  constexpr size_t kSamples = 51;
  constexpr uint32_t kEnd = UINT32_MAX;
  // On a CPU that is busy with other work a hand-over costs a time slice; fewer samples must then
  // be enough.
  constexpr double kLimitSeconds = 0.2;
  struct alignas(kFalseSharingBytes) Word {
    std::atomic<uint32_t> value{0};
  };
  Word ping, pong;
  std::atomic<int> pinned{0};
  std::vector<double> samples;
  std::thread echo([&] {
    const bool ok = PinThisThread(to);
    pinned.fetch_add(ok ? 1 : 0, std::memory_order_relaxed);
    for (uint32_t seen = 0; seen != kEnd;) {
      const uint32_t value = ping.value.load(std::memory_order_acquire);
      if (value == seen) continue;
      seen = value;
      pong.value.store(value, std::memory_order_release);
    }
  });
  std::thread caller([&] {
    const bool ok = PinThisThread(from);
    pinned.fetch_add(ok ? 1 : 0, std::memory_order_relaxed);
    const int64_t begin = NowNs();
    uint32_t number = 0;
    while (samples.size() < kSamples && (samples.empty() || SecondsSince(begin) < kLimitSeconds)) {
      const int64_t start = NowNs();
      for (uint32_t i = 0; i < kRounds; ++i) {
        ping.value.store(++number, std::memory_order_release);
        while (pong.value.load(std::memory_order_acquire) != number) {
        }
      }
      samples.push_back(static_cast<double>(NowNs() - start) / (2.0 * kRounds));
    }
    ping.value.store(kEnd, std::memory_order_release);
  });
  caller.join();
  echo.join();
  if (pinned.load() != 2) return 0;
  std::nth_element(samples.begin(), samples.begin() + static_cast<long>(samples.size() / 2),
                   samples.end());
  return samples[samples.size() / 2];
}

}  // namespace larder::topology

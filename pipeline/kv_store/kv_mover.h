// KvMover: the thread that moves KV chunks between this process's memory and files (kv_files.h), so
// that the compute threads need not wait for a disk. Reads come before writes. It runs with low
// priority, since it may share its CPU with compute threads, and at limited rates, since it shares
// their L3 (bench/bench_kv_mover.cc).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "pipeline/kv_store/kv_files.h"
#include "pipeline/kv_store/kv_tier.h"

namespace larder::pipeline::inline kv_store {

class KvMover final : public KvTier {
 public:
  struct Options {
    uint64_t read_bytes_per_s = 1 << 30, write_bytes_per_s = 256 << 20;  // 0: without limit
    // The CPUs that its thread may use; empty: those of the thread that makes it, which may be one
    // compute thread's.
    std::vector<CpuId> cpus;
    // Called on the mover's thread with a line for people: a file that was refused, a disk that is
    // full.
    std::function<void(const std::string&)> on_problem = [](const std::string&) {};
  };
  // files: nothing else may use it afterwards.
  KvMover(KvFiles& files, Options options);
  ~KvMover() override;  // drops what has not begun

  size_t Find(std::span<const int32_t> tokens, uint64_t tenant) const override {
    return files_.Find(tokens, tenant);
  }
  void FindPieces(KvJob& job) const override { files_.FindPieces(job); }
  size_t chunk_positions() const override { return files_.options().chunk_positions; }
  const KvFilesStatus& status() const override { return files_.status(); }
  void Start(KvJob job) override;
  std::optional<KvJob> Take() override;
  std::optional<KvJob> Drop() override;
  void Wait(int ms) override;
  bool needs_steps() const override { return false; }
  void Abandon() override { AbandonWithin(-1); }
  // The same; false if a file is still being moved after that many ms (negative: no limit).
  bool AbandonWithin(int ms);

 private:
  void Run();
  void Move(KvJob& job);

  KvFiles& files_;
  const Options options_;
  std::mutex mutex_;
  std::condition_variable work_, finished_;
  std::deque<KvJob> loads_, stores_, done_;
  std::atomic<bool> any_done_{false};
  bool moving_ = false;             // a job is being moved
  std::atomic<bool> hurry_{false};  // the current job is to end early
  std::atomic<bool> stop_{false};
  bool failing_ = false;  // the last write failed
  std::thread thread_;
};

}  // namespace larder::pipeline::kv_store

// KvMover: the thread that moves KV chunks between the KV cache and files (kv_files.h), so that the
// compute threads need not wait for a disk. One thread, the scheduler's, gives it jobs and takes
// them back when they are done; the chunks of a job are the mover's in between. Reading goes before
// writing. It runs with low priority and writes at a limited rate, since it may share its CPU with
// compute threads.
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

namespace larder::pipeline::inline kv_store {

// Chunks `first` and following of a sequence.
struct KvJob {
  enum class Kind { kStore, kLoad };
  Kind kind = Kind::kStore;
  SlotId slot;                  // for the caller
  std::vector<int32_t> tokens;  // whole chunks, from the sequence's beginning to the end of the
                                // last chunk
  uint64_t tenant = 0;
  size_t first = 0;
  std::vector<uint32_t> chunks;            // for the caller: their numbers
  std::vector<std::span<uint8_t>> memory;  // of each
  size_t done = 0;                         // how many, from the first on, were moved
};

class KvMover {
 public:
  struct Options {
    uint64_t write_bytes_per_s = 256 << 20;
    // Called on the mover's thread with a line for people: a file that was refused, a disk that is
    // full.
    std::function<void(const std::string&)> on_problem = [](const std::string&) {};
  };
  // files: used by no one else from then on.
  KvMover(KvFiles& files, Options options);
  ~KvMover();  // drops what has not begun

  // The number of whole chunks at the beginning of the tokens that there are.
  size_t Find(std::span<const int32_t> tokens, uint64_t tenant) const {
    return files_.Find(tokens, tenant);
  }
  const KvFilesStatus& status() const { return files_.status(); }  // any thread
  size_t chunk_positions() const { return files_.options().chunk_positions; }

  void Start(KvJob job);
  // A job that is done; nullopt: none.
  std::optional<KvJob> Take();
  // Gives back a store that has not begun, the oldest first; nullopt: there is none.
  std::optional<KvJob> Drop();
  size_t jobs() const { return jobs_; }                // started and not given back
  size_t chunks_to_store() const { return storing_; }  // of those
  // Waits until a job is done, for at most `ms` (negative: without limit). At once if there are no
  // jobs.
  void Wait(int ms);

 private:
  void Run();
  void Move(KvJob& job);
  void GivenBack(const KvJob& job);

  KvFiles& files_;
  const Options options_;
  size_t jobs_ = 0, storing_ = 0;  // the caller's thread
  std::mutex mutex_;
  std::condition_variable work_, finished_;
  std::deque<KvJob> loads_, stores_, done_;
  std::atomic<bool> any_done_{false};
  std::atomic<bool> stop_{false};
  bool failing_ = false;  // the last write failed
  std::thread thread_;
};

}  // namespace larder::pipeline::kv_store

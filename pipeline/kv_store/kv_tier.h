// KvTier: where KV chunks go when the sequences that had them have ended, and come back from, below
// the KV cache: files of this process (kv_mover.h), or of the sockets of a chain
// (pipeline/kv_store/chain_kv_tier.h). One thread, the scheduler's, gives it jobs and takes them
// back when they are done; the chunks of a job are the tier's in between.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace larder::pipeline::inline kv_store {

// Any thread may read it; relaxed throughout.
struct KvFilesStatus {
  std::atomic<uint64_t> bytes{0}, files{0};     // that there are
  std::atomic<uint64_t> written{0}, read{0};    // chunks
  std::atomic<uint64_t> refused{0}, failed{0};  // files that were not what they should be; writes
                                                // that failed
  std::atomic<uint64_t> outdated{0};  // files of other formats that were there, and were removed
};

// Chunks `first` and following of a sequence.
struct KvJob {
  enum class Kind {
    kStore,
    kLoad,
    kForget,  // they can't be loaded any more; within a tier
    kTouch,   // they were used; within a tier
  };
  Kind kind = Kind::kStore;
  SlotId slot;                  // for the caller
  std::vector<int32_t> tokens;  // whole chunks, from the sequence's beginning to the end of the
                                // last chunk
  uint64_t tenant = 0;
  size_t first = 0;
  bool alone = false;                      // a load: nothing else runs that it could disturb
  std::vector<uint32_t> chunks;            // their numbers
  std::vector<std::span<uint8_t>> memory;  // of each; a chain's: empty, it is elsewhere
  size_t done = 0;                         // how many, from the first on, were moved
};

class KvTier {
 public:
  virtual ~KvTier() = default;

  // The number of whole chunks at the beginning of the tokens that there are, for any slot.
  virtual size_t Find(std::span<const int32_t> tokens, uint64_t tenant) const = 0;
  virtual size_t chunk_positions() const = 0;
  virtual const KvFilesStatus& status() const = 0;  // any thread

  virtual void Start(KvJob job) = 0;
  // A job that is done; nullopt: none.
  virtual std::optional<KvJob> Take() = 0;
  // Gives back a store that has not begun, the oldest first; nullopt: there is none.
  virtual std::optional<KvJob> Drop() = 0;
  virtual size_t jobs() const = 0;             // started and not given back
  virtual size_t chunks_to_store() const = 0;  // of those
  // Waits until a job is done, for at most `ms` (negative: without limit). At once if there are no
  // jobs. No micro-batch may be in flight. Throws ChainLostError, where there is a chain.
  virtual void Wait(int ms) = 0;
  // Whether jobs go on only in micro-batches and in Wait.
  virtual bool needs_steps() const = 0;
  // Called between steps. Throws ChainLostError if a socket has not moved a chunk for too long.
  virtual void Watch() {}
  // Forgets all jobs, which are not given back: their chunks are free. Nothing writes to these any
  // more when it returns.
  virtual void Abandon() = 0;
};

}  // namespace larder::pipeline::kv_store

// KvTier: the storage below the KV cache, where KV chunks of ended sequences go and come back from:
// files of this process (kv_mover.h), or of the sockets of a chain
// (pipeline/kv_store/chain_kv_tier.h). One thread, the scheduler's, gives it jobs and takes them
// back when they are done; in between a job's chunks belong to the tier.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "pipeline/kv/kv_piece.h"

namespace larder::pipeline::inline kv_store {

// Any thread may read it; relaxed throughout.
struct KvFilesStatus {
  std::atomic<uint64_t> bytes{0}, files{0};     // that there are
  std::atomic<uint64_t> written{0}, read{0};    // chunks
  std::atomic<uint64_t> refused{0}, failed{0};  // files that were refused; writes that failed
  std::atomic<uint64_t> outdated{0};  // files of other formats that were found and removed
};

// Pieces of a sequence.
struct KvJob {
  enum class Kind {
    kStore,
    kLoad,
    kForget,  // they can no longer be loaded; only within a tier
    kTouch,   // they were used; only within a tier
  };
  Kind kind = Kind::kStore;
  SlotId slot;                  // for the caller
  std::vector<int32_t> tokens;  // whole chunks, from the sequence's beginning to the end of the
                                // last piece
  uint64_t tenant = 0;
  bool alone = false;  // for a load: nothing runs that it could disturb
  std::vector<KvPiece> pieces;
  size_t done = 0;    // how many pieces, from the first, are at both places
  size_t stores = 0;  // for a store: how many pieces moved when it was started

  size_t moving() const {
    return static_cast<size_t>(std::ranges::count(pieces, true, &KvPiece::moves));
  }
  // How many pieces, from the first, need not move.
  size_t there() const {
    return static_cast<size_t>(std::ranges::find(pieces, true, &KvPiece::moves) - pieces.begin());
  }
};

class KvTier {
 public:
  virtual ~KvTier() = default;

  // Behind how many whole chunks of the tokens a sequence can go on with what is stored.
  virtual size_t Find(std::span<const int32_t> tokens, uint64_t tenant) const = 0;
  // Which of the job's pieces are stored: these need not move.
  virtual void FindPieces(KvJob& job) const = 0;
  virtual size_t chunk_positions() const = 0;
  virtual const KvFilesStatus& status() const = 0;  // any thread

  virtual void Start(KvJob job) = 0;
  // A job that is done; nullopt if there is none.
  virtual std::optional<KvJob> Take() = 0;
  // Gives back a store that has not begun, the oldest first; nullopt if there is none.
  virtual std::optional<KvJob> Drop() = 0;
  size_t jobs() const { return jobs_; }                // jobs started and not given back
  size_t chunks_to_store() const { return storing_; }  // pieces of these jobs that are to be stored
  // Waits until a job is done, for at most `ms` (negative: no limit). Returns at once without jobs.
  // No micro-batch may be in flight. With a chain it may throw ChainLostError.
  virtual void Wait(int ms) = 0;
  // Whether jobs go on only in micro-batches and in Wait.
  virtual bool needs_steps() const = 0;
  // Called between steps. Throws ChainLostError if a socket has not moved a chunk for too long.
  virtual void Watch() {}
  // Forgets all jobs without giving them back: their chunks are free. When it returns, nothing
  // writes to these chunks.
  virtual void Abandon() = 0;

 protected:
  // What Start, Take, Drop and Abandon count, on the caller's thread.
  void Started(const KvJob& job) {
    ++jobs_;
    storing_ += StoredBy(job);
  }
  void GivenBack(const KvJob& job) {
    --jobs_;
    storing_ -= StoredBy(job);
  }
  void Forgotten() { jobs_ = storing_ = 0; }  // all of them

 private:
  static size_t StoredBy(const KvJob& job) {
    return job.kind == KvJob::Kind::kStore ? job.stores : 0;
  }
  size_t jobs_ = 0, storing_ = 0;
};

}  // namespace larder::pipeline::kv_store

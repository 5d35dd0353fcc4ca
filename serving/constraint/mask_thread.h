// MaskThread: computes the masks of constrained sequences while the model computes. The compute
// thread opens a MaskedSequence for each, tells it the chosen tokens, and asks for the next mask a
// step later. It looks up masks that were made before (microseconds), leaves all others to this
// thread, and never waits for a lock. Long masks are made in turns of a few milliseconds, so that a
// short one does not wait for them. Automata of recently used grammars are kept, up to a limit of
// memory. One per server.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "model/tokenizer/tokenizer.h"
#include "serving/grammar/grammar.h"
#include "sync/epoch_flag.h"
#include "sync/spsc_ring.h"

namespace larder::serving::inline constraint {

using model::TokenId;

class MaskThread;
struct MaskJob;

// Compute thread.
class MaskedSequence {
 public:
  ~MaskedSequence();
  MaskedSequence(const MaskedSequence&) = delete;
  MaskedSequence& operator=(const MaskedSequence&) = delete;

  // Waits for the mask that follows all accepted tokens: not at all if the model's step took longer
  // than the mask. Valid until Accept.
  void Wait();
  // The same, for at most `ns`; returns whether the mask is there.
  bool WaitFor(uint64_t ns);
  // A bit for each token that may be chosen; empty: any token may.
  std::span<const uint64_t> allowed() const;
  bool complete() const;               // the text may end here
  bool only_the_end() const;           // and no token but an end of generation may follow
  const std::string& failure() const;  // not empty: why no mask could be made

  void Accept(TokenId);
  // How many masks the thread was asked for.
  uint32_t asked() const;

 private:
  friend class MaskThread;
  MaskedSequence(std::shared_ptr<MaskThread> thread, std::shared_ptr<MaskJob> job)
      : thread_(std::move(thread)), job_(std::move(job)) {}
  const std::shared_ptr<MaskThread> thread_;
  std::shared_ptr<MaskJob> job_;
};

class MaskThread : public std::enable_shared_from_this<MaskThread> {
 public:
  // The thread first makes the tokenizer's Vocabulary (about 80 ms for 128,256 tokens). `vocab`:
  // number of logits. `sequences`: about how many are open at a time.
  static std::shared_ptr<MaskThread> Start(std::shared_ptr<const model::Tokenizer>, size_t vocab,
                                           size_t sequences);
  MaskThread(std::shared_ptr<const model::Tokenizer>, size_t vocab, size_t sequences);
  ~MaskThread();

  // required: the text may not end before a trigger.
  std::unique_ptr<MaskedSequence> Open(std::shared_ptr<const Grammar>,
                                       std::vector<std::string> triggers, bool required = false);

  // The memory of all automata. Any thread.
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  friend class MaskedSequence;
  struct Message {
    enum class Kind { kOpen, kToken, kClose };
    std::shared_ptr<MaskJob> job;
    Kind kind = Kind::kToken;
    TokenId token = 0;
  };
  void Post(Message);
  void Run();
  class Automata;
  class Maker;  // the state of the thread

  const std::shared_ptr<const model::Tokenizer> tokenizer_;
  const size_t vocab_;
  sync::SpscRing<Message> ring_;
  uint32_t posted_count_ = 0;
  sync::EpochFlag posted_;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> bytes_{0};
  std::thread thread_;
};

}  // namespace larder::serving::constraint

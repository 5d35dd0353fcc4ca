// The interface between the scheduler and its clients: serving/ implements Sequence and Intake, the
// scheduler calls them, on the compute thread between steps unless a comment says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/ids.h"

namespace larder::pipeline::inline scheduler {

// Why the scheduler ended a sequence. It does not know why a sequence wants no more tokens; what
// shows that to people does (serving::FinishReason).
enum class SequenceEnd {
  kComplete,     // the sequence wants no more tokens
  kContextFull,  // its slot has no room for another token
  kCancelled,
  kRefused,      // it never began; the text says why
  kFailed,       // the server's fault; the text says why
  kUnavailable,  // a socket that it needs stays away; the text says which; the client may retry
                 // later
};

// What a sequence is told of its rows.
enum class Wanted {
  kNextToken,     // the logits after the last token, again and again: Sequence::Next
  kPromptLogits,  // the logits after each token of the prompt, Sequence::PromptLogits, and then as
                  // kNextToken; of a prompt whose beginning the KV cache has, all are computed, too
  kHiddenOfLast,  // the hidden state of the prompt's last token, once: Sequence::Hidden
  kHiddenOfAll,   // those of all tokens of the prompt; they are all computed, whatever the KV cache
                  // has
};

// A text being generated: a prompt and the choice of each next token. The scheduler owns it from
// Take on and destroys it after Ended.
class Sequence {
 public:
  virtual ~Sequence() = default;
  // Constant; refused unless it has a token and fits the context. One that fills it gets its one
  // Next.
  virtual std::span<const int32_t> prompt() const = 0;
  // The tenant that it belongs to; constant. KV computed for one tenant is not reused for another,
  // which could learn from the reuse which prompts others have sent.
  virtual uint64_t tenant() const { return 0; }
  // Whether it runs in what others leave: it begins after all that do not, and gives its slot back
  // when one of those waits; it goes on later, to the same tokens. Constant.
  virtual bool background() const { return false; }
  // The slot in which it is to run: it waits for that one, and begins with what it has. nullopt:
  // any that is free, with what any has. Constant; in the range of slots.
  virtual std::optional<SlotId> slot() const { return std::nullopt; }
  // It begins, or goes on, in this slot.
  virtual void InSlot(SlotId) {}
  // Asked between steps; once true, it stays true. Any thread may cause it.
  virtual bool cancelled() const = 0;
  // The sequence has a slot, whose KV cache already has the first `reused` tokens of the prompt.
  // Called again if it loses the slot, with the chain or to another sequence, before its first
  // token; never after that: Next then goes on where it was.
  virtual void Admitted(size_t reused) = 0;
  // The KV cache has the first `tokens` of its prompt, of which some were computed since the last
  // call, or since Admitted. Not after the first Next.
  virtual void Computed(size_t /*tokens*/) {}
  // Whether Next can choose without waiting for another thread; it may wait for at most so long.
  // Asked before each Next. False: the logits are kept, the sequence has no rows, and it is asked
  // again between the steps of others. Once true, it is true until Next was called.
  virtual bool ready(uint64_t /*most_ns*/) { return true; }
  // Returns the next token, or nullopt if the sequence wants no more. logits: those after the last
  // token, valid during the call. The result may depend only on this sequence's logits so far; then
  // its tokens do not depend on other sequences.
  virtual std::optional<int32_t> Next(std::span<const float> logits) = 0;
  // May be called right before Next with the same logits, on any thread of the engine, while others
  // prepare their sequences: takes as much of Next's work as needs nothing but this sequence. Does
  // not throw.
  virtual void Prepare(std::span<const float> /*logits*/) {}
  // With kPromptLogits, before the first Next: the logits after the prompt's token at `position`,
  // for all but the last one, whose are Next's; on any thread of the engine, several positions at
  // once, and beside Prepare. None comes twice, even if the sequence loses its slot. Does not
  // throw.
  virtual void PromptLogits(size_t /*position*/, std::span<const float> /*logits*/) {}
  virtual Wanted wanted() const { return Wanted::kNextToken; }  // constant
  // Instead of Next: the hidden state, [dim], of the prompt's token at `position`, in ascending
  // order; the sequence is complete with the last token's. It begins again after another Admitted.
  virtual void Hidden(size_t /*position*/, std::span<const float> /*state*/) {}
  virtual void Ended(SequenceEnd, const std::string& why) = 0;
};

// The chain is lost and not connected again yet.
struct Outage {
  std::string why;  // the lost socket, and the error of the last attempt to reach it
  int64_t since_ns = 0;
  bool refusing = false;  // it has lasted so long that requests are refused instead of waiting
};

// Where sequences come from.
class Intake {
 public:
  virtual ~Intake() = default;
  virtual std::unique_ptr<Sequence> Take() = 0;  // null: none is waiting
  virtual void StepDone() = 0;  // results given to sequences since the last call may be passed on
  // No client waits for anything any more: what runs for no client is to end too.
  virtual bool stopping() const { return false; }
  // Called when there is nothing to do: sleeps until Take may return a sequence, for at most
  // most_ms (negative: without limit). Returns false to end Run().
  virtual bool WaitForWork(int most_ms) = 0;
};

// Why a prompt of so many tokens cannot be continued, with numbers; empty: it can.
std::string PromptProblem(size_t prompt_tokens, size_t context);

}  // namespace larder::pipeline::scheduler

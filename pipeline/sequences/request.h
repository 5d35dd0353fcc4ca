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

namespace larder::pipeline::inline sequences {

// Why the scheduler ended a sequence. Why a sequence wants no more tokens is not known here; for
// that there is serving::FinishReason.
enum class SequenceEnd {
  kComplete,     // the sequence wants no more tokens
  kContextFull,  // its slot has no room for another token
  kCancelled,
  kRefused,      // it never began; the text says why
  kFailed,       // the server's fault; the text says why
  kUnavailable,  // a socket that it needs stays away; the text says which; the client may retry
                 // later
};

// Which results of its rows a sequence gets.
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
  // Constant. A prompt without tokens, or longer than the context, is refused. One that fills the
  // context gets a single Next.
  virtual std::span<const int32_t> prompt() const = 0;
  // The tenant that it belongs to; constant. KV computed for one tenant is not reused for another,
  // which could learn from the reuse which prompts others have sent.
  virtual uint64_t tenant() const { return 0; }
  // Whether it runs in the background, in what others leave: it begins after all others, and gives
  // up its slot when one of them waits; it goes on later, to the same tokens. Constant.
  virtual bool background() const { return false; }
  // The slot in which it must run: it waits for that slot and begins with what the slot holds.
  // nullopt: any free slot, beginning with what any slot holds. Constant; in the range of slots.
  virtual std::optional<SlotId> slot() const { return std::nullopt; }
  // Tells it that it begins, or goes on, in this slot.
  virtual void InSlot(SlotId) {}
  // Asked between steps; once true, it stays true. Any thread may cause it.
  virtual bool cancelled() const = 0;
  // The sequence has a slot, whose KV cache already has the first `reused` tokens of the prompt.
  // Called again if it loses the slot, with the chain or to another sequence, before its first
  // token. Not called again after that: Next goes on where it was.
  virtual void Admitted(size_t reused) = 0;
  // The KV cache has the first `tokens` tokens of its prompt, some of them computed since the last
  // call or since Admitted. Not called after the first Next.
  virtual void Computed(size_t /*tokens*/) {}
  // Whether Next can choose without waiting for another thread; this call may wait for at most
  // `most_ns`. Asked before each Next. False: the logits are kept, the sequence has no rows, and it
  // is asked again between the steps of others. Once true, it stays true until Next was called.
  virtual bool ready(uint64_t /*most_ns*/) { return true; }
  // Returns the next token, or nullopt if the sequence wants no more. logits: those after the last
  // token, valid during the call. The result may depend only on this sequence's logits so far; then
  // its tokens do not depend on other sequences.
  virtual std::optional<int32_t> Next(std::span<const float> logits) = 0;
  // Tokens that may follow the one that Next returned last, at most `most` of them; valid until the
  // next call of Next. They are computed in the same step as that one: where Next then chooses the
  // first of them, it is called again with the logits behind it, and so on. So a sequence takes
  // several tokens from a step, and they are the same as without drafts.
  virtual std::span<const int32_t> Draft(size_t /*most*/) { return {}; }
  // May be called right before Next, with the same logits, on any thread of the engine, while other
  // sequences prepare: does the part of Next's work that needs only this sequence. Does not throw.
  virtual void Prepare(std::span<const float> /*logits*/) {}
  // With kPromptLogits, before the first Next: the logits after the prompt's token at `position`,
  // for every token except the last, whose logits go to Next. Called on any thread of the engine,
  // for several positions at once, and concurrently with Prepare. No position comes twice, even if
  // the sequence loses its slot. Does not throw.
  virtual void PromptLogits(size_t /*position*/, std::span<const float> /*logits*/) {}
  virtual Wanted wanted() const { return Wanted::kNextToken; }  // constant
  // Instead of Next: the hidden state, [dim], of the prompt's token at `position`, in ascending
  // order; with the last token's the sequence is complete. After another Admitted it starts from
  // the beginning.
  virtual void Hidden(size_t /*position*/, std::span<const float> /*state*/) {}
  virtual void Ended(SequenceEnd, const std::string& why) = 0;
};

// The chain is lost and not connected again yet.
struct Outage {
  std::string why;  // the lost socket, and the error of the last attempt to reach it
  int64_t since_ns = 0;
  bool refusing = false;  // it has lasted so long that requests are refused and do not wait
};

// Where sequences come from.
class Intake {
 public:
  virtual ~Intake() = default;
  virtual std::unique_ptr<Sequence> Take() = 0;  // null: none is waiting
  virtual void StepDone() = 0;  // results given to sequences since the last call may be passed on
  // No client waits any longer: what runs for no client must end, too.
  virtual bool stopping() const { return false; }
  // Called when there is nothing to do: sleeps until Take may return a sequence, for at most
  // most_ms (negative: without limit). Returns false to end Run().
  virtual bool WaitForWork(int most_ms) = 0;
};

// Why a prompt of that many tokens cannot be continued, with numbers; empty if it can.
std::string PromptProblem(size_t prompt_tokens, size_t context);

}  // namespace larder::pipeline::sequences

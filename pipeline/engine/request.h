// What crosses between the scheduler and those who want tokens: serving/ implements Sequence and Intake, the
// scheduler calls them. All of it on the compute thread, between steps, but for what says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace larder::pipeline {

enum class SequenceEnd {
  kComplete,     // the sequence itself had enough
  kContextFull,  // its slot has no room for another token
  kCancelled,
  kRefused,      // never began: the text says why
  kFailed,       // our fault: the text says why
  kUnavailable,  // a socket that it needs is gone: the text says which; asking again later may help
};

// One text that grows: a prompt, and whatever decides on the next token. The scheduler owns it from Take on
// and destroys it after Ended.
class Sequence {
 public:
  virtual ~Sequence() = default;
  virtual std::span<const int32_t> prompt() const = 0;  // stays as it is
  // Whose it is: KV that was computed for one is not reused for another, who would learn from what is reused
  // which prompts there have been. Stays as it is.
  virtual uint64_t tenant() const { return 0; }
  // Asked between steps; true once is true for ever. May be set by any thread.
  virtual bool cancelled() const = 0;
  // It has a slot; the first `reused` tokens of the prompt are in its KV cache already. Called again if the
  // sequence has to begin anew because the pipeline was lost before the first token.
  virtual void Admitted(size_t reused) = 0;
  // The logits after the last token, valid during the call. Returns the next one, or nothing: it had enough.
  // Must depend on nothing but the logits of this sequence so far: then neither do its tokens.
  virtual std::optional<int32_t> Next(std::span<const float> logits) = 0;
  virtual void Ended(SequenceEnd, const std::string& why) = 0;
};

// The pipeline is lost and not back yet.
struct Outage {
  std::string why;  // which socket, and what the last attempt to reach it said
  int64_t since_ns = 0;
  bool refusing = false;  // it has lasted too long to let anybody wait
};

// Where sequences come from.
class Intake {
 public:
  virtual ~Intake() = default;
  virtual std::unique_ptr<Sequence> Take() = 0;  // nothing: none is waiting
  virtual void StepDone() = 0;  // what was told to sequences since the last call may be passed on
  // Nothing to do: sleeps until Take may give something, or for most_ms (negative: without a limit). False:
  // end.
  virtual bool WaitForWork(int most_ms) = 0;
};

// Why a prompt of so many tokens cannot be taken, with numbers; empty: it can.
std::string PromptProblem(size_t prompt_tokens, size_t context);

}  // namespace larder::pipeline

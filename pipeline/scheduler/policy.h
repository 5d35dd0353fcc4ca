// SchedulePolicy: how many rows of prompts and of decoding sequences the next micro-batch may have.
// It sees numbers only, has no clock and no engine, and changes no token. Asked before each
// micro-batch, on the compute thread; it does not allocate.
//
// The policies are those of Seesaw (section 4.2 and figure 2). A transition is a change from
// computing prompts to decoding, or back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace larder::pipeline::inline scheduler {

enum class Policy {
  // Decoding sequences have a row in each micro-batch, prompts the rest of it: chunked prefill.
  // There are no transitions.
  kMixed,
  // Prompts are computed while nobody decodes; then all are decoded to their end (figure 2b): the
  // fewest transitions, and slots that stand empty.
  kDecodeFirst,
  // Prompts are computed until every slot has a decoding sequence; then they decode until half of
  // the slots have ended and have new prompts: few transitions, and at least half of the slots at
  // work (figure 2c).
  kPhases,
  kAuto,  // the one that the operator need not think about: kMixed
};

const char* PolicyName(Policy policy);
// nullopt: no policy has this name.
std::optional<Policy> PolicyByName(std::string_view name);

// The least prompt rows of a micro-batch, whatever else is in it: reading all weights is not worth
// it for fewer, and fewer do not show what a prompt row costs (Scheduler::UpdateStepCosts).
inline constexpr size_t kLeastPromptRows = 8;

// What a policy may know.
struct ScheduleView {
  uint64_t now_ns = 0;
  size_t slots = 1;
  size_t max_batch_tokens = 1;  // most rows of a micro-batch
  size_t prefilling = 0;        // sequences with a slot whose prompt is not submitted whole
  size_t decoding = 0;          // sequences that have a token and are not at their end
  double decode_step_ns = 0, prompt_row_ns = 0;  // the time that they take, smoothed; 0: not known
                                                 // yet
};

// The most rows of the next micro-batch; together they may exceed max_batch_tokens, and decoding
// rows then go first.
struct RowBudget {
  size_t decode_rows = 0, prompt_rows = 0;
};

struct PolicyOptions {
  Policy policy = Policy::kAuto;
  // How long prompts may delay the next token of decoding sequences, and the first rows of other
  // prompts. It bounds a micro-batch of kMixed, and with the other policies the time for prompts.
  // 0: not bounded; nullopt: 200 for kMixed, not bounded for the others.
  std::optional<double> max_stall_ms;
  size_t prompt_rows = 0;  // prompt rows of a micro-batch of kMixed while sequences decode; 0: as
                           // many as max_stall_ms allows
};

class SchedulePolicy {
 public:
  virtual ~SchedulePolicy() = default;
  virtual RowBudget Budget(const ScheduleView&) = 0;
  virtual uint64_t transitions() const { return 0; }  // transitions so far
};

std::unique_ptr<SchedulePolicy> MakePolicy(const PolicyOptions&);

}  // namespace larder::pipeline::scheduler

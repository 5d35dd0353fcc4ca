#include "pipeline/scheduler/policy.h"

#include <algorithm>
#include <array>

namespace larder::pipeline::inline scheduler {
namespace {

constexpr size_t kFirstPromptRows = 32;  // while step times are not known

constexpr std::array<const char*, 4> kNames = {"mixed", "decode_first", "phases", "auto"};

constexpr double kStallMs = 200;  // what a reader does not take for a halt

class Mixed final : public SchedulePolicy {
 public:
  explicit Mixed(const PolicyOptions& options)
      : options_(options), stall_ms_(options.max_stall_ms.value_or(kStallMs)) {}
  RowBudget Budget(const ScheduleView& view) override {
    if (view.prefilling == 0) return {.decode_rows = view.max_batch_tokens, .prompt_rows = 0};
    // Prompts always go on, however many sequences decode.
    const size_t least = std::min(kLeastPromptRows, view.max_batch_tokens / 2);
    const size_t decode_rows = view.max_batch_tokens - least;
    // The bound holds where nobody decodes, too: a prompt that comes next waits for the step.
    const size_t rows = view.decoding > 0 ? std::max(least, PromptRows(view))
                                          : std::max(kFirstPromptRows, RowsOfStall(view, 0));
    return {.decode_rows = decode_rows, .prompt_rows = rows};
  }

 private:
  size_t PromptRows(const ScheduleView& view) const {
    if (options_.prompt_rows != 0) return options_.prompt_rows;
    if (stall_ms_ != 0 && view.decode_step_ns == 0) return kFirstPromptRows;
    return RowsOfStall(view, view.decode_step_ns);
  }
  // Rows of prompts in a step that takes decode_ns without them.
  size_t RowsOfStall(const ScheduleView& view, double decode_ns) const {
    if (stall_ms_ == 0) return view.max_batch_tokens;
    if (view.prompt_row_ns == 0) return kFirstPromptRows;
    const double rows = (stall_ms_ * 1e6 - decode_ns) / view.prompt_row_ns;
    return static_cast<size_t>(std::clamp(rows, 0.0, static_cast<double>(view.max_batch_tokens)));
  }

  const PolicyOptions options_;
  const double stall_ms_;
};

// Either prompts or decoding sequences. back_share: the share of the slots that must have new
// prompts before decoding sequences wait for them; 0: they never do.
class Phased final : public SchedulePolicy {
 public:
  Phased(const PolicyOptions& options, double back_share)
      : stall_ns_(static_cast<uint64_t>(options.max_stall_ms.value_or(0) * 1e6)),
        back_share_(back_share) {}

  RowBudget Budget(const ScheduleView& view) override {
    if (prompts_ && view.decoding == 0) since_ns_ = view.now_ns;  // nobody waits for them
    const bool change = prompts_ ? EndsPrompts(view) : EndsDecoding(view);
    if (change) {
      // From or to nothing at all is not a transition.
      transitions_ += view.prefilling > 0 || view.decoding > 0;
      prompts_ = !prompts_;
      since_ns_ = view.now_ns;
    }
    return prompts_ ? RowBudget{.decode_rows = 0, .prompt_rows = view.max_batch_tokens}
                    : RowBudget{.decode_rows = view.max_batch_tokens, .prompt_rows = 0};
  }
  uint64_t transitions() const override { return transitions_; }

 private:
  bool IsLong(const ScheduleView& view) const {
    return stall_ns_ != 0 && view.now_ns - since_ns_ >= stall_ns_;
  }
  bool EndsPrompts(const ScheduleView& view) const {
    return view.decoding > 0 && (view.prefilling == 0 || IsLong(view));
  }
  bool EndsDecoding(const ScheduleView& view) const {
    if (view.prefilling == 0) return false;
    if (view.decoding == 0) return true;
    if (back_share_ == 0) return false;
    const auto enough = static_cast<double>(view.slots) * back_share_;
    // If prompts were interrupted, decoding gets as long as they had.
    return static_cast<double>(view.prefilling) >= enough && (stall_ns_ == 0 || IsLong(view));
  }

  const uint64_t stall_ns_;
  const double back_share_;
  bool prompts_ = true;
  uint64_t since_ns_ = 0, transitions_ = 0;
};

}  // namespace

const char* PolicyName(Policy policy) { return kNames.at(static_cast<size_t>(policy)); }

std::optional<Policy> PolicyByName(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Policy>(found - kNames.begin());
}

std::unique_ptr<SchedulePolicy> MakePolicy(const PolicyOptions& options) {
  switch (options.policy) {
    case Policy::kDecodeFirst:
      return std::make_unique<Phased>(options, 0.0);
    case Policy::kPhases:
      return std::make_unique<Phased>(options, 0.5);
    case Policy::kMixed:
    case Policy::kAuto:
      break;
  }
  return std::make_unique<Mixed>(options);
}

}  // namespace larder::pipeline::scheduler

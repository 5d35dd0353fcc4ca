#include "pipeline/scheduler/step_costs.h"

#include <algorithm>

#include "pipeline/scheduler/policy.h"

namespace larder::pipeline::inline scheduler {
namespace {

constexpr double kSmoothing = 0.1;  // weight of a new step time
// Rows of a prompt that wants their logits, while the time for logits is not known.
constexpr size_t kFirstLogitRows = 32;

void Smooth(double& mean, double value) {
  mean = mean == 0 ? value : mean + kSmoothing * (value - mean);
}

}  // namespace

void StepCosts::Update(size_t decode_rows, size_t prefill_rows, size_t logit_rows, double step_ns) {
  if (prefill_rows == 0) return Smooth(decode_step_ns_, step_ns);
  if (prefill_rows < kLeastPromptRows) return;
  const double base = decode_rows > 0 ? decode_step_ns_ : 0;
  const auto rows = static_cast<double>(prefill_rows), logits = static_cast<double>(logit_rows);
  const double prompts = std::max(step_ns - base, 0.1 * step_ns);
  if (logit_rows < kLeastPromptRows || prompt_row_ns_ == 0) {
    Smooth(prompt_row_ns_, std::max(prompts - logits * logit_row_ns_, 0.1 * prompts) / rows);
  } else {
    Smooth(logit_row_ns_, std::max(prompts - rows * prompt_row_ns_, 0.01 * prompts) / logits);
  }
}

size_t StepCosts::LogitRowsWithin(size_t rows) const {
  if (logit_row_ns_ == 0) return std::clamp<size_t>(rows, 1, kFirstLogitRows);
  const double share = prompt_row_ns_ / (prompt_row_ns_ + logit_row_ns_);
  return std::max<size_t>(static_cast<size_t>(static_cast<double>(rows) * share), 1);
}

size_t StepCosts::RowsOfLogits(size_t logits) const {
  if (prompt_row_ns_ == 0) return 0;
  return static_cast<size_t>(static_cast<double>(logits) * logit_row_ns_ / prompt_row_ns_);
}

}  // namespace larder::pipeline::scheduler

// StepCosts: what steps take, smoothed: of decoding sequences, of prompts' rows beside them, and of
// the logits that prompts want of their rows.
#pragma once

#include <cstddef>

namespace larder::pipeline::inline scheduler {

class StepCosts {
 public:
  // 0: not known yet.
  double decode_step_ns() const { return decode_step_ns_; }
  double prompt_row_ns() const { return prompt_row_ns_; }

  // A step with so many rows took so long. logit_rows: of prefill_rows, those whose logits the
  // prompt wanted.
  void Update(size_t decode_rows, size_t prefill_rows, size_t logit_rows, double step_ns);
  // How many rows of a prompt that wants their logits take as long as `rows` without them; one at
  // least.
  size_t LogitRowsWithin(size_t rows) const;
  // The rows without logits that take as long as the logits of so many; 0: not known.
  size_t RowsOfLogits(size_t logits) const;

 private:
  double decode_step_ns_ = 0, prompt_row_ns_ = 0;
  double logit_row_ns_ = 0;  // beside the row
};

}  // namespace larder::pipeline::scheduler

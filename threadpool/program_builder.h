// ProgramBuilder: the steps of one thread's Program in the making. What the following steps have in
// common is said once, before they are added. Set-up only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "threadpool/program.h"

namespace larder::threadpool {

class ProgramBuilder {
 public:
  // For all steps that are added from here on: which of Execute's frames their kernels get
  // (SetPart), and how the waiters of their signals wait.
  void SetPart(uint8_t part) { part_ = part; }
  void SetWaiters(sync::WaitPolicy::Mode waiters) { waiters_ = waiters; }

  // Adds a step; its part and waiters are those that were set. The reference is valid until the
  // next Add; use it to set what only this step has.
  Step& Add(Step step) {
    step.part = part_;
    step.waiters = waiters_;
    return steps_.emplace_back(step);
  }
  Step& back() { return steps_.back(); }
  const std::vector<Step>& steps() const { return steps_; }
  auto begin() const { return steps_.begin(); }
  auto end() const { return steps_.end(); }
  std::vector<Step> Take() { return std::move(steps_); }

 private:
  std::vector<Step> steps_;
  uint8_t part_ = 0;
  sync::WaitPolicy::Mode waiters_ = sync::WaitPolicy::Mode::kAdaptive;
};

}  // namespace larder::threadpool

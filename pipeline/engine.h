// Engine: a loaded model that takes tokens and gives logits. What node/ and serving/ call. It splits any
// number of rows into frames, keeps each slot's length, and runs the stage. One thread: the one that made it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "pipeline/plan.h"
#include "pipeline/stage.h"

namespace larder::pipeline {

// One token to process: at `position` of `slot`'s sequence. logits: whether the next-token logits are wanted.
struct TokenRow {
  int32_t token = 0;
  int32_t slot = 0;
  uint32_t position = 0;
  bool logits = false;
};

class Engine {
 public:
  Engine(std::shared_ptr<const model::GgufFile>, const Plan&, const StageOptions&);

  // Rows of one slot must be adjacent and in ascending, gapless positions that continue the slot's sequence
  // (or rewrite its end: the sequence is cut there). At most max_logits() of the rows may want logits. Throws
  // Error for a token outside the vocabulary, a position beyond the context, a gap.
  void Run(std::span<const TokenRow> rows);
  // Logits of the i-th row of the last Run that wanted them, [vocab]; valid until the next Run.
  std::span<const float> logits(size_t i) const;
  size_t max_logits() const;

  void Reset(int32_t slot);  // forgets the slot's sequence
  size_t length(int32_t slot) const { return lengths_.at(static_cast<size_t>(slot)); }
  const Plan& plan() const { return plan_; }
  Stage& stage() { return *stage_; }

 private:
  void Check(std::span<const TokenRow> rows) const;
  void Order(std::span<const TokenRow> rows);
  void CheckFinite() const;

  Plan plan_;
  std::shared_ptr<const model::GgufFile> file_;
  std::unique_ptr<Stage> stage_;
  std::vector<size_t> lengths_;
  std::vector<int32_t> tokens_, slots_;
  std::vector<uint32_t> positions_, logit_rows_;
  std::vector<size_t> order_, rank_,
      logit_at_;             // rows in the order of their attention sockets; where their logits are then
  std::vector<float> kept_;  // logits of a Run that took several frames with logits
  bool use_kept_ = false;
};

}  // namespace larder::pipeline

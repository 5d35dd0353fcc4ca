#include "pipeline/engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"

namespace larder::pipeline {

Engine::Engine(std::shared_ptr<const model::GgufFile> file, const Plan& plan, const StageOptions& options)
    : plan_(plan),
      file_(std::move(file)),
      stage_(std::make_unique<Stage>(plan_, *file_, options)),
      lengths_(plan.options.slots, 0) {
  tokens_.reserve(stage_->max_rows());
  slots_.reserve(stage_->max_rows());
  positions_.reserve(stage_->max_rows());
  logit_rows_.reserve(stage_->max_rows());
  // One token before the first: pages are touched, generated code is fetched and threads have met, so that
  // the first user does not wait for that (12 ms on a model of 2 MB); and a model that overflows says so now.
  const TokenRow warm_up{0, 0, 0, true};
  Run({&warm_up, 1});
  Reset(0);
}

void Engine::Check(std::span<const TokenRow> rows) const {
  size_t wanted = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const TokenRow& row = rows[i];
    if (row.token < 0 || static_cast<size_t>(row.token) >= plan_.config.vocab) {
      throw Error("token id {} is outside the vocabulary of {} ({} tokens)", row.token, plan_.config.name,
                  plan_.config.vocab);
    }
    if (row.slot < 0 || static_cast<size_t>(row.slot) >= lengths_.size()) {
      throw Error("slot {} does not exist; the plan has {}", row.slot, lengths_.size());
    }
    if (row.position >= plan_.options.context) {
      throw Error("position {} is beyond the context of {} tokens; start with a larger -c", row.position,
                  plan_.options.context);
    }
    const bool continues = i > 0 && rows[i - 1].slot == row.slot;
    if (continues ? row.position != rows[i - 1].position + 1
                  : row.position > lengths_[static_cast<size_t>(row.slot)]) {
      throw Error("position {} of slot {} leaves a gap: its sequence ends at {}", row.position, row.slot,
                  continues ? rows[i - 1].position + 1 : lengths_[static_cast<size_t>(row.slot)]);
    }
    if (!continues) {
      for (size_t k = 0; k < i; ++k)
        LARDER_CHECK(rows[k].slot != row.slot, "rows of slot {} are not adjacent", row.slot);
    }
    wanted += row.logits;
  }
  if (wanted > max_logits()) throw Error("{} rows want logits in one call; at most {}", wanted, max_logits());
}

void Engine::Order(std::span<const TokenRow> rows) {
  order_.resize(rows.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  if (plan_.separated()) {
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return plan_.AttentionSocketOf(static_cast<size_t>(rows[a].slot)) <
             plan_.AttentionSocketOf(static_cast<size_t>(rows[b].slot));
    });
  }
  // The caller's i-th row with logits is the logit_at_[i]-th to be computed.
  std::vector<size_t>& rank = rank_;
  rank.assign(rows.size(), 0);
  size_t computed = 0;
  for (const size_t row : order_) {
    if (rows[row].logits) rank[row] = computed++;
  }
  logit_at_.clear();
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].logits) logit_at_.push_back(rank[row]);
  }
}

void Engine::Run(std::span<const TokenRow> rows) {
  Check(rows);
  Order(rows);
  const size_t vocab = plan_.config.vocab;
  const size_t wanted = logit_at_.size();
  size_t done_logits = 0;
  use_kept_ = false;
  for (size_t begin = 0; begin < rows.size(); begin += stage_->max_rows()) {
    const size_t n = std::min(stage_->max_rows(), rows.size() - begin);
    tokens_.clear();
    slots_.clear();
    positions_.clear();
    logit_rows_.clear();
    for (size_t i = 0; i < n; ++i) {
      const TokenRow& row = rows[order_[begin + i]];
      tokens_.push_back(row.token);
      slots_.push_back(row.slot);
      positions_.push_back(row.position);
      if (row.logits) logit_rows_.push_back(static_cast<uint32_t>(i));
      lengths_[static_cast<size_t>(row.slot)] = row.position + 1;
    }
    threadpool::FrameRows frame{.rows = static_cast<uint32_t>(n),
                                .first_row = 0,
                                .token = tokens_.data(),
                                .slot = slots_.data(),
                                .position = positions_.data(),
                                .logit_rows = static_cast<uint32_t>(logit_rows_.size()),
                                .logit_row = logit_rows_.data()};
    stage_->Execute(frame);
    CheckFinite();
    // A later frame without logits leaves them where they are; one with logits overwrites them.
    if (logit_rows_.empty() || logit_rows_.size() == wanted) continue;
    use_kept_ = true;
    kept_.resize(wanted * vocab);
    for (size_t i = 0; i < logit_rows_.size(); ++i) {
      const auto from = stage_->logits(i);
      std::copy(from.begin(), from.end(),
                kept_.begin() + static_cast<std::ptrdiff_t>((done_logits + i) * vocab));
    }
    done_logits += logit_rows_.size();
  }
}

void Engine::CheckFinite() const {
  // A NaN or an infinity anywhere in a row's residual is in its norm, and so in each of its logits.
  for (size_t i = 0; i < logit_rows_.size(); ++i) {
    if (std::isfinite(stage_->logits(i)[0])) continue;
    const uint32_t row = logit_rows_[i];
    throw Error(
        "{}: the model's output is not finite at position {} of slot {} (token {}): its weights or "
        "activations overflow; "
        "check the file with `larder inspect`, or convert it again",
        plan_.config.name, positions_[row], slots_[row], tokens_[row]);
  }
}

std::span<const float> Engine::logits(size_t i) const {
  const size_t at = logit_at_.at(i);
  if (!use_kept_) return stage_->logits(at);
  return {kept_.data() + at * plan_.config.vocab, plan_.config.vocab};
}

size_t Engine::max_logits() const { return stage_->max_logit_rows(); }

void Engine::Reset(int32_t slot) { lengths_.at(static_cast<size_t>(slot)) = 0; }

}  // namespace larder::pipeline

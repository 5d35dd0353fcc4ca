// The panels of lm_head in which a row's logits are refined: those of the likely tokens. Rounding
// lm_head's inputs to INT8 causes up to a third of a small model's divergence from float32, and no
// later layer evens it out. A second plane of the input removes it, at the price of a second
// product. But divergence weighs a token by its probability: the panels with a logit within 4 of
// the largest are 0.15 to 0.8 % of all panels on real models, and refining them alone has 75 to 80
// % of the gain (docs/truth.md). For flatter logits their number is limited, so that refining costs
// at most 1/64 of a second product (or 4 panels).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace larder::weight_node {

// The likely panels of one row. All threads, stages and batches find the same ones.
class LikelyPanels {
 public:
  // largest: each panel's largest logit, by the first plane, of the whole lm_head.
  explicit LikelyPanels(std::span<const float> largest);
  bool Has(float largest_of_panel) const { return Bin(largest_of_panel) < end_; }

 private:
  static constexpr uint32_t kBins = 32, kBinsPerUnit = 8;  // logits within 4 of the largest one
  static constexpr size_t kMostShare = 64, kLeast = 4;

  uint32_t Bin(float largest_of_panel) const {
    const float below = (largest_ - largest_of_panel) * kBinsPerUnit;
    return below < kBins ? static_cast<uint32_t>(below) : kBins;  // NaN is below nothing
  }

  float largest_;
  uint32_t end_ = 0;  // the first bin that is too many
};

}  // namespace larder::weight_node

// Prediction: the time per token of a pipeline of stages, from speeds that were measured, given
// or assumed. It is the decomposition of section 6.2 of Cache-Resident LLM Inference in GB-Scale
// Last-Level Caches, "the paper" here (TPOT = stages x (stage time + network time)), with a stage's
// time split into what its Programs do, and for stages that may differ. It shows a trend, not a
// guaranteed speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/layer/layer_spec.h"
#include "model/step/capacity.h"
#include "pipeline/prediction/speeds.h"

namespace larder::pipeline::inline prediction {

// How many packages a stage's cores are in.
struct PackageSpan {
  size_t weights = 1, kv = 1;
  bool apart = false;  // KV's are others than the weights'
  bool operator==(const PackageSpan&) const = default;
};

struct PredictedStage {
  std::string name;
  size_t layers = 0;  // 0: the serving socket
  size_t cores = 0;
  uint64_t weight_bytes = 0;  // bytes of one layer with its router, or of the lm_head
  // Of these, bytes of experts, and how many there are, and are used by a token.
  uint64_t expert_bytes = 0;
  model::ExpertSpec experts = {};
  uint64_t weight_parameters = 0;  // weights of one layer or of the lm_head that a token is
                                   // multiplied with
  // The share of their time in which threads work on products, if bytes are time: each matrix is
  // waited for until its fullest thread is done (weight_node::ShardPlan::Balance).
  double balance = 1;
  bool weights_in_l3 = false;
  uint64_t l3_budget_bytes = 0;  // for the weights; 0: not known
  uint64_t kv_bytes = 0;         // KV bytes of one layer, per sequence at the context
  size_t kv_cores = 0;           // cores that read this KV
  // Of a row at the context: query heads times positions that they see, and times the elements of
  // these. Threads share that by KV heads and chunks of 256 positions; means, if layers differ.
  double head_positions = 0, head_elements = 0, attention_heads = 0, attention_chunks = 0;
  uint64_t appended_elements = 0;  // queries, keys and values of a row
  PackageSpan packages;
  // What a thread of a layer reads of the others for a row: quantised inputs of products, and
  // attention's queries, keys, values and output.
  uint64_t input_bytes = 0, attended_bytes = 0;
  // Elements of a row that are normalised and quantised: by each thread for itself in micro-batches
  // of at most few_rows, and shared out in larger ones; and by the threads that made them.
  uint64_t normed_elements = 0, made_elements = 0;
  size_t few_rows = 0;
  uint64_t kv_room_bytes = 0;  // L3 for KV; what exceeds it streams from memory
  // Attention on other servers: what a layer sends there and back of a row, and the L3 for KV that
  // there would be beside the weights.
  bool attention_elsewhere = false;
  uint64_t sent_bytes = 0, returned_bytes = 0, kv_room_here_bytes = 0;
};

struct PredictedTimes {
  // Per layer. gathers_us: lines that other cores of the package wrote; packages_us: what threads
  // in several packages wait longer for each other.
  double weights_us = 0, attention_us = 0, rows_us = 0, sync_us = 0, gathers_us = 0;
  double packages_us = 0;
  double exchange_us = 0;  // two links to attention on other servers and back
  bool compute_bound = false, kv_in_l3 = false;
  double stage_us = 0;
};

struct PredictedPoint {
  size_t batch = 0;         // rows of a micro-batch
  double alone_ms = 0;      // TPOT with one micro-batch in flight
  double tpot_ms = 0;       // with all in flight
  double tokens_per_s = 0;  // with all in flight, all sequences together
  // tpot_ms if all that is assumed is at its best, or at its worst (Speeds::Bound).
  double best_ms = 0, worst_ms = 0;
};

// What the links of a stage's attention on other servers cost a layer, and what they save.
struct PredictedExchange {
  bool pays = false;  // at one of the Prediction's batches
  size_t batch = 0;   // the first of these, or the largest that there is
  double exchange_us = 0, attention_us = 0;
  double attention_here_us = 0;  // on the weight socket's cores
};

struct Prediction {
  Speeds speeds;
  model::Capacity capacity;
  uint64_t row_bytes = 0;      // per row of a frame: dim float32
  size_t links = 0;            // hops per token: stages + 1; 0 if one stage serves itself
  bool serves_beside = false;  // the serving process takes turns with the first stage on its cores
  std::vector<PredictedStage> stages;  // the serving socket last
  std::vector<PredictedPoint> points;  // batch 1, 2, 4 ...

  // Bytes of a layer's weights that a step of so many rows reads.
  static double ReadBytes(const PredictedStage&, size_t batch);
  PredictedTimes Times(const PredictedStage&, size_t batch) const;
  // At which so many cores in so many packages read memory.
  double MemoryGbps(size_t cores, size_t packages) const;
  // Of one layer with so many rows of the attention: reading what there is, or arithmetic,
  // whichever takes longer. The parts that the busiest thread has count.
  double AttentionUs(const PredictedStage&, size_t batch, bool kv_in_l3) const;
  // What a core multiplies with so many rows.
  double ProductGops(double rows) const;
  // Elements of a layer that the busiest thread normalises and quantises.
  static double ElementsOf(const PredictedStage&, size_t batch);
  // What a layer adds where a row crosses packages.
  double PackagesUs(const PredictedStage&, size_t batch) const;
  double LinkUs(size_t batch) const;
  // The same stage where rows attend to this share of the context, in the mean.
  static PredictedStage WithContext(PredictedStage stage, double share);
  double ExchangeUs(const PredictedStage&, size_t batch) const;
  // The same stage with its attention on the weight socket's cores.
  static PredictedStage WithAttentionHere(PredictedStage stage);
  PredictedExchange Exchange(const PredictedStage&) const;
  // Whether attention on other servers is worth its links, in a line.
  std::string ExchangeText(const PredictedStage&) const;
  // The same with one more socket like that of the slowest stage, and all layers divided alike.
  // Without stages of several layers the same.
  Prediction WithOneMoreSocket() const;
  // Without its band.
  PredictedPoint Point(size_t batch) const;
  // With it.
  PredictedPoint BandedPoint(size_t batch) const;
  // What binds, in up to five lines for people: the largest part, the others, what would be faster,
  // from which batch on arithmetic decides, and what a further socket would give.
  std::string Why() const;
  // The inputs, the formula with its numbers for batch 1, why, then the points; many lines.
  std::string Text() const;
};

}  // namespace larder::pipeline::prediction

// Prediction: how long a token takes in a pipeline of stages, from bandwidths and latencies that were
// measured or given: the decomposition of the paper's section 6.2 (TPOT = stages x (stage time + network
// time)), with a stage's time taken apart into what it reads and with stages that need not be alike. A trend,
// not a promise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace larder::pipeline {

// Of one core or one socket, and of a link. The defaults are EPYC 9684X figures of design documents; `source`
// says where numbers are from, for the reader of a prediction.
struct Speeds {
  double l3_core_gbps = 30;        // reading its L3, of a core while all read
  double dram_socket_gbps = 380;   // reading memory, of a socket
  double core_gops = 300;          // INT8 multiply and add, of a core: bounds large batches
  double layer_sync_us = 2;        // four barriers of a socket's threads
  double link_latency_us = 10;     // paper section 4.4: about 50 us for five
  double link_gbps = 12.5;         // 100 Gbit/s
  std::string source = "assumed";  // or "measured here", "given"
};

struct PredictedStage {
  std::string name;
  size_t layers = 0;  // 0: the serving socket
  size_t cores = 0;
  uint64_t weight_bytes = 0;       // of one layer, or of the head
  uint64_t weight_parameters = 0;  // the same, for the arithmetic
  bool weights_in_l3 = false;
  uint64_t kv_bytes = 0;       // of one layer and sequence at the context
  size_t kv_cores = 0;         // cores that read them
  uint64_t kv_room_bytes = 0;  // of L3 for KV; beyond it KV streams from memory
};

struct PredictedTimes {
  double weights_us = 0, attention_us = 0, sync_us = 0;  // of one layer
  bool compute_bound = false, kv_in_l3 = false;
  double stage_us = 0;
};

struct PredictedPoint {
  size_t batch = 0;         // rows of a micro-batch
  double alone_ms = 0;      // TPOT with one micro-batch in flight
  double tpot_ms = 0;       // with all in flight
  double tokens_per_s = 0;  // with all in flight, all sequences together
};

struct Prediction {
  Speeds speeds;
  size_t context = 0;
  size_t micro_batches = 0;
  uint64_t row_bytes = 0;              // of a frame: dim float32
  size_t links = 0;                    // communications a token: stages + 1; 0 if one stage serves itself
  std::vector<PredictedStage> stages;  // the serving socket last
  std::vector<PredictedPoint> points;  // batch 1, 2, 4 ...

  PredictedTimes Times(const PredictedStage&, size_t batch) const;
  double LinkUs(size_t batch) const;
  PredictedPoint Point(size_t batch) const;
  // The formula with numbers put in for batch 1, then the points; several lines.
  std::string Text() const;
};

}  // namespace larder::pipeline

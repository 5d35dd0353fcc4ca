// Plan: who does what, computed before anything is allocated: a pure function of the model's shape, the
// machine's topology and the options. It prints as a table and as JSON and has a hash; everything else
// follows it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kernels/formats/isa.h"
#include "kernels/formats/tuning.h"
#include "model/config/config.h"
#include "topology/topology.h"
#include "weight_node/shard_plan.h"

namespace larder::pipeline {

struct PlanOptions {
  size_t threads = 0;       // 0: one per physical core that this process may use
  size_t context = 0;       // positions of a slot; 0: the model's trained context, at most 4096
  size_t slots = 1;         // sequences that have a place in the KV cache
  size_t decode_rows = 32;  // rows of a frame up to which each thread normalises all of them for itself
  size_t prefill_rows = 0;  // the most rows of a frame; 0: as fit in L2 with their FFN activations, 64 to 256
  double l3_fraction = 0.75;  // of each L3 for weights
  kernels::Isa isa = kernels::BestIsa();
  std::optional<kernels::KernelTuning> tuning;  // none: isa's default; never part of the hash
  // Of the weight (or colocated) socket, a thread each. Empty: `threads` cores are picked.
  std::vector<CoreId> cores;
  // Of each thread; empty: the first CPU of its core. (With SMT threads a core stands in `cores` once for
  // each of its CPUs.)
  std::vector<CpuId> cpus;
  bool isolated = false;  // those cores run nothing else: waiting threads may spin (SocketWaits)

  // Attention sockets. Empty: colocated, attention runs on the weight socket's cores. Else slots is the sum
  // of theirs.
  struct Attention {
    std::string name;
    std::vector<CoreId> cores;
    std::vector<CpuId> cpus;  // as PlanOptions::cpus
    size_t slots = 1;
    bool isolated = false;  // as PlanOptions::isolated
  };
  std::vector<Attention> attention;
};

struct PlanThread {
  CoreId core;
  CpuId cpu;
  NumaNodeId numa_node;
  int l3_group = 0;  // dense index into Plan::l3_groups
  uint64_t weight_bytes = 0;
};

struct PlanL3Group {
  L3GroupId id;
  uint64_t l3_bytes = 0;      // 0: not known
  uint64_t budget_bytes = 0;  // l3_bytes * l3_fraction
  uint64_t weight_bytes = 0;  // of its threads
  bool resident() const { return budget_bytes != 0 && weight_bytes <= budget_bytes; }
};

struct PlanAttentionSocket {
  std::string name;
  std::vector<PlanThread> threads;
  size_t first_slot = 0;  // sequences [first_slot, first_slot + slots) live here
  size_t slots = 0;
  uint64_t kv_bytes = 0;
};

struct StagePlan {
  PlanOptions options;  // resolved: no zeros, a tuning
  model::ModelConfig config;
  std::vector<PlanThread> threads;
  std::vector<PlanL3Group> l3_groups;
  weight_node::ShardPlan shards;
  std::vector<PlanAttentionSocket> attention;  // empty: colocated
  uint64_t weight_bytes = 0;                   // packed, read for each token (layers and head)
  uint64_t embedding_bytes = 0;                // looked up, not read through (untied embeddings)
  uint64_t kv_slot_bytes = 0;
  uint64_t kv_bytes = 0;
  std::vector<std::string>
      notes;  // what the user should know: does not fit, unknown L3, fewer KV heads than threads

  bool resident() const;
  bool separated() const { return !attention.empty(); }
  uint64_t hash() const;      // of everything that both ends of a link must agree on
  std::string Table() const;  // for people
  nlohmann::json Json() const;
};

// FNV-1a over a JSON value's text: of what two ends of a link must agree on.
uint64_t HashOf(const nlohmann::json& key);
// What defines a model's computation, as the beginning of a key (an array); its weights are not part of it.
nlohmann::json KeyOf(const model::ModelConfig& config);

// The most rows of a frame whose logits may be wanted: a full decode batch, and for perplexity over small
// vocabularies as many as rows; at most 64 MB of logits.
size_t LogitRows(const model::ModelConfig& config, size_t decode_rows, size_t prefill_rows);

// Throws Error when the options cannot be met: more threads than 1024, a context beyond what is sensible, KV
// larger than the machine's memory (with the numbers and the largest context that fits).
StagePlan MakeStagePlan(const model::ModelConfig&, const topology::Topology&, const PlanOptions&);

}  // namespace larder::pipeline

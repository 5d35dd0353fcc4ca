// StagePlan: what each thread of a stage computes; a pure function of the model's shape, the
// machine's topology and the options, made before any allocation. It prints as a table and as JSON
// and has a hash. All later set-up follows it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kernels/formats/isa.h"
#include "kernels/formats/tuning.h"
#include "model/config/config.h"
#include "model/step/capacity.h"
#include "model/step/kv_class.h"
#include "sync/wait.h"
#include "threadpool/pool.h"
#include "topology/topology.h"
#include "weight_node/shard_plan.h"

namespace larder::pipeline::inline plan {

struct PlanThread {
  CoreId core;
  CpuId cpu;
  NumaNodeId numa_node;
  int l3_group = 0;  // dense index into Plan::l3_groups
  int package = 0;
  uint64_t weight_bytes = 0;
};
std::vector<NumaNodeId> NodesOf(std::span<const PlanThread>);
// Threads on these CPUs, one for each.
std::vector<PlanThread> ThreadsOn(const topology::Topology&, std::span<const CoreId> cores,
                                  std::span<const CpuId> cpus);

struct PlanOptions {
  size_t threads = 0;  // 0: one per physical core that this process may use
  model::Capacity capacity;
  // Additional memory for KV of ended sequences, in all stages together: capacity.cached_tokens
  // follows from it.
  uint64_t cache_ram_bytes = 0;
  // In a micro-batch of at most this many rows, each thread normalises all rows for itself. 0: as
  // many as weight_node::OwnNormRows says.
  size_t few_rows = 0;
  double l3_fraction = 0.75;  // the share of each L3 for weights
  kernels::Isa isa = kernels::BestIsa();
  std::optional<kernels::KernelTuning> tuning;  // nullopt: isa's default; never part of the hash
  // Cores of the weight (or colocated) socket, one thread each. Empty: `threads` cores are picked.
  std::vector<CoreId> cores;
  // The CPU of each thread; empty: the first CPU of its core. (With SMT threads `cores` lists a
  // core once for each of its CPUs.)
  std::vector<CpuId> cpus;
  bool isolated = false;  // those cores run no other work: waiting threads may spin (SocketWaits)
  bool pinned = true;  // false: the threads run elsewhere, since the topology is another machine's
  // Fingerprint of the file's weights (model/config/split.h), read by the code that opened it,
  // because an attention socket reads norms and rotation from a file of its own. 0: not known.
  uint64_t fingerprint = 0;
  // StagePlan::kv_pools of a colocated stage; empty: as its slots need. In a chain a chunk of a
  // sequence has one number in all stages, so it has those of the attention sockets of the others.
  std::vector<size_t> kv_pools = {};

  // Attention sockets. Empty: colocated, attention runs on the weight socket's cores. Otherwise
  // capacity.slots is the sum of theirs.
  struct Attention {
    std::string name;
    std::vector<CoreId> cores;
    std::vector<CpuId> cpus;  // as PlanOptions::cpus
    size_t slots = 1;
    bool isolated = false;  // as PlanOptions::isolated
    // Its threads, if it is on another server, whose cores these are; empty: on this one.
    std::vector<PlanThread> elsewhere = {};
    // Then the CPUs of the links' threads, of the weight socket's server and of the other one
    // (LinkThreadsOf); not valid: it has none of its own.
    CpuId link_cpu = {}, link_cpu_there = {};
  };
  std::vector<Attention> attention;
};

// The pool of these threads: where they run, and the L3 groups and packages in which they meet.
threadpool::PoolOptions PoolOf(std::span<const PlanThread>, const sync::WaitPolicy& wait);

struct PlanL3Group {
  L3GroupId id;
  uint64_t l3_bytes = 0;      // 0: not known
  uint64_t budget_bytes = 0;  // l3_bytes * l3_fraction
  uint64_t weight_bytes = 0;  // weights of its threads
  bool resident() const { return budget_bytes != 0 && weight_bytes <= budget_bytes; }
};

// What the threads of a socket keep on a NUMA node.
struct PlanNode {
  NumaNodeId id;
  uint64_t weight_bytes = 0, kv_bytes = 0;
};

struct PlanAttentionSocket {
  std::string name;
  std::vector<PlanThread> threads;
  bool elsewhere = false;          // on another server
  CpuId link_cpu, link_cpu_there;  // as PlanOptions::Attention
  SlotId first_slot{0};            // it holds slots [first_slot, end_slot())
  size_t slots = 0;
  // The pools of these slots (attention_node/kv_region.h): chunks [first_chunk, first_chunk +
  // kv_chunks) of the stage, class by class.
  size_t first_chunk = 0, kv_chunks = 0;
  std::vector<size_t> kv_pools = {};  // [class]: chunks
  uint64_t kv_bytes = 0;
  // The L3 groups of its threads, which are numbered from 0.
  size_t groups() const;
  SlotId end_slot() const { return SlotId(first_slot.value + static_cast<int32_t>(slots)); }
};

struct StagePlan {
  PlanOptions options;  // resolved: no zeros, a tuning
  model::ModelConfig config;
  std::vector<PlanThread> threads;
  std::vector<PlanL3Group> l3_groups;
  weight_node::ShardPlan shards;
  // Gate and up of the chosen experts are divided anew each step, not by who keeps them.
  bool expert_shares = false;
  std::vector<PlanAttentionSocket> attention;  // empty: colocated
  uint64_t fingerprint = 0;                    // PlanOptions::fingerprint
  uint64_t weight_bytes = 0;                   // packed, read for each token (layers and lm_head)
  uint64_t embedding_bytes = 0;                // looked up, not read in full (untied embeddings)
  uint64_t kv_slot_bytes = 0;                  // KV and states of a sequence at full context
  size_t kv_chunks = 0;                        // chunks of all its attention sockets, or its own
  uint64_t kv_bytes = 0;                       // theirs
  std::vector<model::KvClass> kv_classes;      // of KV memory, of the whole model
  std::vector<size_t> kv_pools;   // [socket * classes + class]: kv_chunks by their numbers
  uint64_t state_slot_bytes = 0;  // of kv_slot_bytes: states of recurrent layers
  // The nodes of all its threads, those of attention sockets of its server included; ascending.
  std::vector<PlanNode> nodes;
  // States in kv_pools: those of the slots, and those that are kept.
  size_t states() const;
  // What the user should know: does not fit, unknown L3, fewer KV heads than threads.
  std::vector<std::string> notes;

  // The identity of what this stage computes; its KV chunks are bound to it (IdentityOf).
  uint64_t identity() const;
  bool resident() const;
  // Tokens of KV that fit the L3 budgets beside the weights; 0: none, or the KV cache is elsewhere.
  size_t l3_kv_tokens() const;
  bool separated() const { return !attention.empty(); }
  // A hash of what a weight socket and its attention sockets must agree on beyond the Plan: the
  // offsets in their shared segment depend on the threads of each.
  uint64_t ExchangeHash() const;
  // Bytes of weights that a step of so many rows reads: of experts, those of the chosen ones. 0
  // rows: what every step reads.
  double ReadBytes(size_t rows) const;
  std::string Table() const;    // a table for people
  nlohmann::json Json() const;  // without what Plan::Json() says about the stage
};

// A text for people: what kv_tokens and cached_tokens mean with these slots and context.
std::string KvTokensText(const model::Capacity& capacity);
// A text for people: which layers keep what, if not all of them keep everything; else empty.
std::string KvClassesText(const model::ModelConfig&, const model::Capacity&);
// FNV-1a over a JSON value's text; `key` is what two ends of a link must agree on.
uint64_t HashOf(const nlohmann::json& key);

// The most rows of a micro-batch that may want logits: at least a full decode batch; beyond that,
// for perplexity, as many rows of a prefill micro-batch as have at most 64 MB of logits.
size_t LogitRows(const model::ModelConfig& config, size_t max_batch_tokens);

// The most rows of a micro-batch unless the options say otherwise: their quantised FFN activations,
// the widest ones, stay in a core's L2 beside a panel. alone: there is no other stage, so that
// micro-batches need not be short to keep all of them busy; then there may be as many as give an
// expert 64 rows, up to 1,024, since each expert's weights are read for few of the rows.
size_t DefaultBatchTokens(const model::ModelConfig& config, const topology::Topology& topology,
                          bool alone);

// Throws Error if the options cannot be met: more than 1024 threads, a context beyond what is
// sensible, KV larger than the machine's memory (with the numbers and the largest context that
// fits).
StagePlan MakeStagePlan(const model::ModelConfig&, const topology::Topology&, const PlanOptions&);

}  // namespace larder::pipeline::plan

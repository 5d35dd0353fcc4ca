// Stage: a weight socket's weights, threads and Programs: the Run of a Plan. Built once, then executes
// frames. Colocated: attention steps stand between the weight steps on the same threads. Separated: in their
// place the threads wait for the heads that attention sockets return, and a frame cut into two halves keeps
// both sides at work: while one half is attended, the other's weights are read.
//
// The Plan's part of the model decides what a frame goes through: everything; layers only (a stage of a
// chain: rows come from BatchRows::received and leave to BatchRows::sending); or the ends only (the serving
// socket).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attention_node/attention_node.h"
#include "model/gguf/gguf.h"
#include "model/layer/batch_rows.h"
#include "pipeline/plan/socket_waits.h"
#include "pipeline/plan/stage_plan.h"
#include "pipeline/stage/attention_sockets.h"
#include "pipeline/stage/residency.h"
#include "pipeline/stage/socket_status.h"
#include "threadpool/pool.h"
#include "weight_node/weight_node.h"

namespace larder::pipeline {

// Another socket of the cluster that is gone.
struct LostPeer {
  std::string socket;  // its name
  std::string reason;
};

struct StageOptions {
  sync::WaitPolicy wait;  // of the stage's own threads
  // Separated plans: of each attention socket's; empty: as `wait`. See SocketWaits.
  std::vector<sync::WaitPolicy> attention_waits;
  // Called on the constructing thread now and then while weights load: bytes packed so far, bytes in all. May
  // be empty.
  std::function<void(uint64_t, uint64_t)> progress;
  // What the plan's threads read from L3 and from memory, asked before they start; the residency of the
  // weights is measured by it when they are packed. Empty: it is not.
  std::function<ResidencyYardstick(const StagePlan&)> yardstick;
  // Separated plans: the cluster whose attention sockets run as processes (`larder node`); empty: they are
  // threads of this one.
  std::string processes;
  std::string socket = "weights";  // this socket's name, which its attention sockets know it by
  std::shared_ptr<const rdma::LinkKey> link_key;  // the cluster's, proven to their processes; null: none
  int connect_timeout_ms = 10000;
  // In a chain: a frame that a stage computes for longer is a fault of the chain, with the stage's name. 0:
  // no limit.
  int frame_limit_ms = 10000;
  std::function<void(const LostPeer&)> on_lost;  // a chain's ends: see ChainEnds
  SocketStatus* status = nullptr;  // where an Engine counts its frames; outlives it. Null: it has its own
  bool last = false;               // a chain's last stage: only rows whose logits are wanted leave it
};

class Stage {
 public:
  // Loads and packs. The constructing thread becomes thread 0 of the pool and the only one to call Execute.
  // Throws Error.
  Stage(const StagePlan&, const model::GgufFile&, const StageOptions&);

  // Runs one frame (1 .. prefill_rows rows). The logits of its logit rows are then at logits(i), until the
  // next frame. first_half: rows of the first of two halves, each in the order of attention sockets;
  // separated stages only. 0: not cut.
  void Execute(model::BatchRows& frame, uint32_t first_half = 0);
  // The two halves of a chain's ends: rows -> sending; received (the logit rows only, which logit_row numbers
  // from 0) -> logits. Parts without layers only.
  void Embed(model::BatchRows& frame);
  void Head(model::BatchRows& frame);
  std::span<const float> logits(size_t i) const;
  // Whether all of the residual that the i-th logits were made of is finite. (They are finite whatever it is:
  // quantising turns a NaN into a number.)
  bool finite(size_t i) const;
  size_t max_rows() const;
  bool separated() const { return plan_.separated(); }
  size_t max_logit_rows() const;

  // Every thread re-reads its shard, all at once, for about `budget_s`.
  std::vector<ShardResidency> ProbeResidency(double budget_s);
  uint64_t weight_bytes() const { return plan_.weight_bytes; }
  const Residency& residency() const { return residency_; }  // as it was when the weights had been packed
  // Of the attention sockets, by number; its round trip is that of the link to it.
  const SocketStatus& attention_status(size_t socket) const { return sockets_->status(socket); }
  const std::string& AttentionName(size_t socket) const { return plan_.attention.at(socket).name; }
  uint64_t waited_ns() const { return pool_->waited_ns(); }  // of its first thread, inside frames
  // Any thread, about a frame that does not end: the attention socket that all others wait for, if it is one.
  std::optional<size_t> HungAttention() const {
    return sockets_ ? sockets_->Hung() : std::optional<size_t>();
  }

  threadpool::Pool& pool() { return *pool_; }
  weight_node::WeightNode& weights() { return *weights_; }
  // The steps of a thread for frames of one or two halves, for inspection.
  std::span<const threadpool::Step> steps(weight_node::Phase phase, size_t thread, size_t halves = 1) const;

 private:
  friend struct StageTesting;
  void Load(const model::GgufFile&, const StageOptions&);
  void PlaceAttention(const model::GgufFile&);
  void LinkAttentionSockets();
  void BuildPrograms();
  void RefreshFlags();
  void KeepLogitRows(const model::BatchRows&);
  std::vector<threadpool::Step> BuildSteps(size_t thread, weight_node::Phase, size_t halves);
  bool whole() const { return plan_.config.ends && plan_.config.layers > 0; }
  void AddAttention(size_t thread, size_t layer, size_t half, std::vector<threadpool::Step>&);

  StagePlan plan_;
  std::vector<uint32_t> logit_row_;  // of the last frame: rows of the residual
  const bool last_;
  const SocketWaits waits_of_sockets_;
  FlagRefresh refresh_;
  Residency residency_;
  std::unique_ptr<threadpool::Pool> pool_;
  std::unique_ptr<weight_node::WeightNode> weights_;
  std::unique_ptr<attention_node::AttentionNode> attention_;
  std::unique_ptr<AttentionSockets> sockets_;  // separated
  std::unique_ptr<sync::EpochFlag[]> flags_;   // colocated: what `signals_`, `waits_` and appending point to
  // [half][thread][kv_head]: says that the thread's part of the head's q, k, v rows is there; null: nobody
  // else needs it
  std::vector<std::vector<sync::EpochFlag*>> signals_[kHalves];
  std::vector<std::vector<std::vector<sync::EpochFlag*>>>
      waits_;  // colocated: [thread][kv_head]: flags of the other threads
  std::vector<sync::EpochFlag*> attended_[kHalves];  // separated: all that O waits for
  // What the threads walk for a frame, by phase and number of halves.
  struct Programs {
    std::vector<std::vector<threadpool::Step>> steps;  // [thread]
    std::vector<threadpool::Program> programs;
  };
  Programs programs_[2][kHalves];
  Programs embed_, head_[2];  // a chain's ends
};

}  // namespace larder::pipeline

// Engine: a loaded model that turns tokens into logits; called by node/ and the scheduler. It keeps
// each slot's length, splits rows into micro-batches and drives them through a chain of stages,
// with as many in flight as the chain allows. Only the thread that constructed it may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/gguf/gguf.h"
#include "model/step/batch_rows.h"
#include "pipeline/chain/chain.h"
#include "pipeline/chain/chain_client.h"
#include "pipeline/chain/local_chain.h"
#include "pipeline/engine/token_engine.h"
#include "pipeline/kv/kv_chunks.h"
#include "pipeline/plan/stage_plan.h"
#include "pipeline/stage/socket_status.h"
#include "pipeline/stage/stage.h"

namespace larder::pipeline::inline engine {

// The KV chunks of an engine with these limits. chunk_ends: as ChainPlan::chunk_ends.
KvChunksShape KvChunksOf(const model::ModelConfig&, const EngineLimits&,
                         std::vector<size_t> chunk_ends);

class Engine final : public TokenEngine, private KvChannel {
 public:
  // One stage with the whole model: on one socket, or on a weight socket and its attention sockets.
  // Throws Error.
  Engine(const std::shared_ptr<const model::GgufFile>&, const StagePlan&, const ChainOptions&);
  // The same with a stage that this thread has made of the file.
  Engine(std::shared_ptr<const model::GgufFile>, std::unique_ptr<Stage>, const ChainOptions&);
  // The serving socket of a chain of stages; see ChainClient.
  Engine(std::shared_ptr<const model::GgufFile>, const ChainPlan&, const StagePlan& ends,
         std::vector<StagePlan> stages, const ChainOptions&);

  // Rows of one slot must be adjacent and in ascending, gapless positions that continue the slot's
  // sequence (or rewrite its end: the sequence is cut there). At most max_logits() of the rows may
  // want logits. Throws Error for a token outside the vocabulary, a position beyond the context, or
  // a gap; no state has changed then. Runs any number of rows to completion; nothing may be in
  // flight.
  void Run(std::span<const TokenRow> rows);

  // The same in steps: see TokenEngine.
  void Submit(std::span<const TokenRow> rows) override;
  void Collect() override;
  void Reconnect() override;
  const EngineLimits& limits() const override { return limits_; }
  size_t in_flight() const { return in_flight_; }
  // For a single stage 1, since the next step's tokens depend on this step's logits.
  size_t max_in_flight() const { return batches_.size(); }
  size_t max_batch_tokens() const { return packed().max_batch_tokens(); }
  size_t slots() const { return limits_.capacity.slots; }

  // Logits, [vocab], of the i-th row that wanted them in the last Run or Collect; valid until the
  // next one.
  std::span<const float> logits(size_t i) const override;
  // The hidden state, [dim], of the i-th wanted row of the last Collect; valid until the next call.
  std::span<const float> hidden(size_t i) override;
  // Why the same row's logits are meaningless; empty: they are good. (Run throws it as an Error.)
  const std::string& fault(size_t i) const override;
  size_t max_logits() const;

  // On the threads of packed().
  void Spread(size_t count, void (*fn)(void* context, size_t i), void* context) override;

  KvChunks& kv() override { return *kv_; }
  KvChannel& kv_channel() override { return *this; }
  void Reset(SlotId slot) { kv_->Reset(slot); }  // forgets the slot's sequence
  size_t length(SlotId slot) const { return kv_->length(slot); }
  const StagePlan& plan() const { return plan_; }
  const SocketStatus& status() const { return status_; }  // this socket's status; any thread
  // The pulse of the calling thread: its loop beats it, and rests it where it waits between calls.
  Pulse& pulse() override { return status_.pulse; }
  // The threads and weights of the end that computes logits: the single stage, or the serving
  // socket.
  PackedWeights& packed() { return chain_->packed(); }
  const PackedWeights& packed() const { return chain_->packed(); }
  std::optional<AttentionId> HungAttention() const { return chain_->HungAttention(); }  // see Chain
  std::vector<ExpertCounts> expert_counts() const { return chain_->expert_counts(); }   // see Chain
  void FetchExpertCounts();                                                             // see Chain

  // The identity of what it computes and stores, which it does as a Plan of this identity says:
  // another one if its stage is not exact(), so that nobody else takes what it has stored.
  uint64_t identity(uint64_t of_plan) const;

  // The single stage; must not be called if there is a client().
  Stage& stage() { return local().stage(); }
  const Stage& stage() const { return local().stage(); }
  const ChainClient* client() const { return client_; }  // null: a single stage

 private:
  // Rows in the order of computation: by half, then by attention socket. Capacity:
  // max_batch_tokens().
  struct MicroBatch {
    MicroBatch(size_t max_batch_tokens, size_t max_kv_updates)
        : token(max_batch_tokens),
          slot(max_batch_tokens),
          position(max_batch_tokens),
          logit_row(max_batch_tokens),
          logit_at(max_batch_tokens),
          kv_update(max_kv_updates) {}
    uint32_t rows = 0, logit_rows = 0, kv_updates = 0;
    uint32_t first_half = 0;  // rows of the first half; 0: not cut
    bool lm_head = false;     // one of the rows wants logits
    std::vector<int32_t> token;
    std::vector<SlotId> slot;
    std::vector<uint32_t> position, logit_row;
    std::vector<uint32_t> logit_at;  // index into logit_row of the caller's i-th row with logits
    std::vector<model::KvUpdate> kv_update;
    model::BatchRows rows_of() const;
  };

  topology::ScatteredBytes Memory(uint32_t chunk) override { return chain_->kv().Memory(chunk); }
  KvOrderBook* orders() override { return chain_->kv().orders(); }
  void Poll() override;
  void Lose(const char* why) override;

  LocalChain& local() const;
  // config: of the whole model.
  void Begin(std::unique_ptr<Chain> chain, std::vector<size_t> chunk_ends,
             const model::ModelConfig& config);
  // Calls `call`. If it throws ChainLostError, forgets what was in flight, empties every slot, and
  // rethrows.
  template <typename Call>
  void OverChain(Call call);
  // What Submit and Collect call that may throw: wrong rows, no KV chunk left, a lost chain.
  [[noreturn]] void ThrowWrongRow(std::span<const TokenRow> rows, size_t i) const;  // the error
                                                                                    // that Check
                                                                                    // found
  [[noreturn]] void ThrowNoRoom(const TokenRow& row) const;
  void SubmitToChain(const MicroBatch& batch);
  void CollectFromChain();
  void DescribeFaults(const MicroBatch& batch);
  // Data path, with Submit and Collect:
  void Check(std::span<const TokenRow> rows);
  size_t EndBefore(std::span<const TokenRow> rows, size_t i) const;
  bool PaysInHalves(std::span<const TokenRow> rows) const;
  uint32_t OrderForSockets(std::span<const TokenRow> rows, bool in_halves);
  void Reserve(std::span<const TokenRow> rows);
  void Fill(std::span<const TokenRow> rows, MicroBatch& batch);
  bool FindFaults(const MicroBatch& batch);

  SocketStatus own_status_;  // used if ChainOptions has none
  SocketStatus& status_;
  const StagePlan plan_;
  std::shared_ptr<const model::GgufFile> file_;
  std::unique_ptr<Chain> chain_;
  LocalChain* local_ = nullptr;  // the chain is one of these two
  ChainClient* client_ = nullptr;
  EngineLimits limits_;
  // [rows], up to where all products are bound by arithmetic: what two halves of so many rows read
  // beyond what one micro-batch reads.
  const std::vector<double> bytes_of_halves_;
  uint64_t kv_token_bytes_ = 0;
  std::unique_ptr<KvChunks> kv_;
  std::vector<uint64_t> seen_;  // [slot]: the last Check() that saw it
  uint64_t checks_ = 0;
  std::vector<MicroBatch> batches_;  // a ring: in_flight_ entries from oldest_ on
  size_t oldest_ = 0, in_flight_ = 0;
  // for the rows of the current micro-batch
  std::vector<uint32_t> order_, rank_, half_of_, socket_of_;
  std::vector<uint32_t> left_;      // [attention socket]
  std::vector<uint32_t> logit_at_;  // of the last Collect, logits_ entries
  size_t logits_ = 0;
  std::vector<uint8_t> faulty_;  // for the same rows
  std::vector<float> hidden_;    // [dim]
  std::vector<float> kept_;      // logits of a Run with logits in several micro-batches
  bool use_kept_ = false;
  std::vector<std::string> faults_;  // of the last Collect, indexed as logits(); empty: no faults
};

}  // namespace larder::pipeline::engine

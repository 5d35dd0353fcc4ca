#include "pipeline/engine/engine.h"

#include <algorithm>
#include <utility>

#include "attention_node/kv_region.h"
#include "base/check.h"
#include "base/error.h"
#include "kernels/formats/kv_page.h"

namespace larder::pipeline::inline engine {
namespace {

// As many as chunks allow, within reason: a prompt is compared with each.
constexpr size_t kKeptSequences = 256;

// read_bytes: of so many rows.
template <typename ReadBytes>
std::vector<double> BytesOfHalves(const model::ModelConfig& config, const model::Capacity& capacity,
                                  const ReadBytes& read_bytes) {
  constexpr size_t kComputeBoundRows = 64;  // of a matrix
  const size_t bound = config.Most([](const model::LayerSpec& layer) {
    const model::ExpertSpec& experts = layer.experts;
    return kComputeBoundRows * (experts.count == 0 ? 1 : CeilDiv(experts.count, experts.used));
  });
  std::vector<double> bytes(std::min(bound, capacity.max_batch_tokens + 1));
  for (size_t rows = 2; rows < bytes.size(); ++rows)
    bytes[rows] = read_bytes(CeilDiv(rows, size_t{2})) + read_bytes(rows / 2) - read_bytes(rows);
  return bytes;
}

}  // namespace

KvChunksShape KvChunksOf(const model::ModelConfig& config, const EngineLimits& limits,
                         std::vector<size_t> chunk_ends) {
  const model::Capacity& capacity = limits.capacity;
  const auto of_sequence = attention_node::KvShape::OfSequence(config, capacity);
  return {.capacity = capacity,
          .chunk_positions = kernels::kChunkPositions,
          .slot_ends = limits.attention_slot_ends,
          .chunk_ends = std::move(chunk_ends),
          .max_updates = model::MaxKvUpdates(capacity, kernels::kChunkPositions),
          .kept = kKeptSequences,
          .classes = of_sequence.classes,
          .class_bytes = of_sequence.class_bytes};
}

Engine::Engine(const std::shared_ptr<const model::GgufFile>& file, const StagePlan& plan,
               const ChainOptions& options)
    : Engine(file, MakeStage(plan, *file, options), options) {}

Engine::Engine(std::shared_ptr<const model::GgufFile> file, std::unique_ptr<Stage> stage,
               const ChainOptions& options)
    : status_(options.status != nullptr ? *options.status : own_status_),
      plan_(stage->plan()),
      file_(std::move(file)),
      bytes_of_halves_(BytesOfHalves(plan_.config, plan_.options.capacity,
                                     [&](size_t rows) { return plan_.ReadBytes(rows); })) {
  ChainPlan division;
  division.DivideLike(plan_);
  limits_.capacity = plan_.options.capacity;
  limits_.attention_slot_ends = division.slot_ends;
  auto local = std::make_unique<LocalChain>(std::move(stage), status_);
  local_ = local.get();
  Begin(std::move(local), division.chunk_ends, plan_.config);
}

Engine::Engine(std::shared_ptr<const model::GgufFile> file, const ChainPlan& chain,
               const StagePlan& ends, std::vector<StagePlan> stages, const ChainOptions& options)
    : status_(options.status != nullptr ? *options.status : own_status_),
      plan_(ends),
      file_(std::move(file)),
      limits_{.capacity = chain.capacity, .attention_slot_ends = chain.slot_ends},
      bytes_of_halves_(BytesOfHalves(chain.config, chain.capacity, [&](size_t rows) {
        return weight_node::LayerReadBytes(chain.config, 0, chain.config.layers, rows);
      })) {
  auto client =
      std::make_unique<ChainClient>(chain, plan_, std::move(stages), *file_, options, status_);
  client_ = client.get();
  Begin(std::move(client), chain.chunk_ends, chain.config);
}

void Engine::Begin(std::unique_ptr<Chain> chain, std::vector<size_t> chunk_ends,
                   const model::ModelConfig& config) {
  chain_ = std::move(chain);
  LARDER_CHECK(limits_.capacity.max_batch_tokens == max_batch_tokens() &&
               limits_.capacity.max_in_flight == chain_->max_in_flight());
  seen_.resize(limits_.capacity.slots);
  kv_ = std::make_unique<KvChunks>(KvChunksOf(config, limits_, std::move(chunk_ends)));
  kv_token_bytes_ = attention_node::KvShape::OfSequence(config, limits_.capacity).slot_bytes() /
                    limits_.capacity.context;
  batches_.assign(chain_->max_in_flight(),
                  MicroBatch(max_batch_tokens(), kv_->shape().max_updates));
  for (auto* of_rows : {&order_, &rank_, &half_of_, &socket_of_, &logit_at_})
    of_rows->resize(max_batch_tokens());
  left_.resize(limits_.attention_slot_ends.size());
  limits_.vocab = plan_.config.vocab;
  limits_.max_logits = max_logits();
  limits_.can_be_lost = chain_->can_be_lost();
  faulty_.resize(max_batch_tokens());
  hidden_.resize(plan_.config.dim);
  status_.weight_bytes.store(plan_.weight_bytes, std::memory_order_relaxed);
  status_.resident_bytes.store(packed().residency().resident_bytes(), std::memory_order_relaxed);
  status_.state.store(static_cast<uint32_t>(SocketState::kServing), std::memory_order_relaxed);
  // Warm-up with one token: it touches pages, fetches generated code and wakes the threads, so that
  // the first request does not wait for that (12 ms on a model of 2 MB). A model that overflows
  // fails here.
  const TokenRow warm_up{0, SlotId(0), 0, true};
  Run({&warm_up, 1});
  Reset(SlotId(0));
}

uint64_t Engine::identity(uint64_t of_plan) const {
  return local_ == nullptr || local_->stage().exact() ? of_plan : ~of_plan;
}

LocalChain& Engine::local() const {
  LARDER_CHECK(local_ != nullptr, "the stages of a chain belong to other threads or processes");
  return *local_;
}

void Engine::ThrowWrongRow(std::span<const TokenRow> rows, size_t i) const {
  if (i == rows.size())
    throw Error("more than {} rows want logits in one call; expected at most that many",
                max_logits());
  const TokenRow& row = rows[i];
  if (row.token < 0 || static_cast<size_t>(row.token) >= plan_.config.vocab) {
    throw Error("token id {} is outside the vocabulary of {} ({} tokens)", row.token,
                plan_.config.name, plan_.config.vocab);
  }
  if (row.slot.index() >= slots())
    throw Error("slot {} does not exist; the plan has {}", row.slot.value, slots());
  if (row.position >= plan_.options.capacity.context) {
    throw Error("position {} is beyond the context of {} tokens; start with a larger -c",
                row.position, plan_.options.capacity.context);
  }
  if (row.position > EndBefore(rows, i) || (i > 0 && rows[i - 1].slot == row.slot)) {
    throw Error("position {} of slot {} leaves a gap: its sequence ends at {}", row.position,
                row.slot.value, EndBefore(rows, i));
  }
  if (plan_.config.recurrent()) {
    throw Error(
        "slot {} can't go on at position {}: {} has layers with states, and the last one before it "
        "is of position {}",
        row.slot.value, row.position, plan_.config.name, kv_->Usable(row.slot, row.position));
  }
  throw Error(
      "slot {} can't go on at position {}: what its windows see there is no longer in the KV cache",
      row.slot.value, row.position);
}

void Engine::ThrowNoRoom(const TokenRow& row) const {
  throw Error(
      "no room in the KV cache for position {} of slot {}: its socket's {} chunks of {} tokens are "
      "all taken; start with a larger --kv-tokens, or fewer slots",
      row.position, row.slot.value, kv_->pool(kv_->socket_of(row.slot)), kernels::kChunkPositions);
}

template <typename Call>
void Engine::OverChain(Call call) {
  try {
    call();
  } catch (const ChainLostError&) {
    in_flight_ = 0;
    kv_->ResetAll();
    throw;
  }
}

void Engine::Reconnect() {
  OverChain([this] { chain_->Reconnect(); });
}

void Engine::Poll() {
  LARDER_CHECK(in_flight_ == 0);
  OverChain([this] { chain_->kv().Poll(); });
}

void Engine::FetchExpertCounts() {
  LARDER_CHECK(in_flight_ == 0);
  OverChain([this] { chain_->FetchExpertCounts(); });
}

void Engine::Lose(const char* why) {
  OverChain([&] { chain_->kv().Lose(why); });
}

void Engine::SubmitToChain(const MicroBatch& batch) {
  model::BatchRows rows = batch.rows_of();
  OverChain([&] { chain_->Submit(rows, batch.first_half); });
}

void Engine::CollectFromChain() {
  OverChain([this] { chain_->Collect(); });
}

void Engine::Run(std::span<const TokenRow> rows) {
  LARDER_CHECK(in_flight_ == 0);
  Check(rows);
  const size_t vocab = plan_.config.vocab;
  const auto wanted = static_cast<size_t>(
      std::count_if(rows.begin(), rows.end(), [](const TokenRow& row) { return row.logits; }));
  size_t kept = 0, submitted = 0;
  std::string fault;  // the first
  while (submitted < rows.size() || in_flight_ > 0) {
    while (submitted < rows.size() && in_flight_ < max_in_flight()) {
      const size_t n = std::min(max_batch_tokens(), rows.size() - submitted);
      Submit(rows.subspan(submitted, n));
      submitted += n;
    }
    Collect();
    for (const std::string& one : faults_) fault = fault.empty() ? one : fault;
    // A later micro-batch overwrites the logits of an earlier one.
    const size_t n = logits_;
    const bool last = submitted == rows.size() && in_flight_ == 0;
    if (n == 0 || (last && n == wanted)) continue;
    kept_.resize(wanted * vocab);
    for (size_t i = 0; i < n; ++i) {
      const auto from = packed().logits(logit_at_[i]);
      std::copy(from.begin(), from.end(),
                kept_.begin() + static_cast<std::ptrdiff_t>((kept + i) * vocab));
    }
    kept += n;
  }
  use_kept_ = kept > 0;
  if (!fault.empty()) throw Error("{}", fault);
}

void Engine::DescribeFaults(const MicroBatch& batch) {
  faults_.resize(logits_);
  for (size_t i = 0; i < logits_; ++i) {
    if (faulty_[i] == 0) continue;
    const uint32_t row = batch.logit_row[batch.logit_at[i]];
    faults_[i] = fmt::format(
        "{}: the model's residual is not finite at position {} of slot {} (token {}): its weights "
        "or activations overflow; check the file with `larder inspect`, or convert it again",
        plan_.config.name, batch.position[row], batch.slot[row].value, batch.token[row]);
  }
}

const std::string& Engine::fault(size_t i) const {
  static const std::string kNone;
  return faults_.empty() ? kNone : faults_.at(i);
}

std::span<const float> Engine::logits(size_t i) const {
  if (use_kept_) return {kept_.data() + i * plan_.config.vocab, plan_.config.vocab};
  LARDER_CHECK(i < logits_);
  return packed().logits(logit_at_[i]);
}

std::span<const float> Engine::hidden(size_t i) {
  LARDER_CHECK(i < logits_ && !use_kept_);
  packed().Hidden(logit_at_[i], hidden_);
  return hidden_;
}

size_t Engine::max_logits() const { return packed().max_logit_rows(); }

}  // namespace larder::pipeline::engine

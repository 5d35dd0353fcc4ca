#include "pipeline/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"

namespace larder::pipeline {

Engine::Engine(std::shared_ptr<const model::GgufFile> file, const StagePlan& plan,
               const StageOptions& options)
    : status_(options.status != nullptr ? *options.status : own_status_),
      plan_(plan),
      file_(std::move(file)),
      stage_(std::make_unique<Stage>(plan_, *file_, options)),
      weight_bytes_(plan.weight_bytes),
      kv_token_bytes_(plan.kv_slot_bytes / plan.options.context),
      lengths_(plan.options.slots, 0) {
  for (const PlanAttentionSocket& socket : plan.attention)
    slot_ends_.push_back(socket.first_slot + socket.slots);
  Begin();
}

Engine::Engine(std::shared_ptr<const model::GgufFile> file, const ChainPlan& chain, const StagePlan& ends,
               std::vector<StagePlan> stages, const StageOptions& options)
    : status_(options.status != nullptr ? *options.status : own_status_),
      plan_(ends),
      file_(std::move(file)),
      slot_ends_(chain.slot_ends),
      weight_bytes_(chain.config.layers * weight_node::LayerShape(chain.config).weight_bytes()),
      kv_token_bytes_(attention_node::KvShape(chain.config, 1, chain.context).slot_bytes() / chain.context),
      lengths_(chain.slots, 0) {
  if (!stages.empty()) threads_ = std::make_unique<StageThreads>(chain, std::move(stages), *file_, options);
  stage_ = std::make_unique<Stage>(plan_, *file_, options);
  chain_ = std::make_unique<ChainEnds>(threads_ ? threads_->chain() : chain, *stage_, options.wait,
                                       options.connect_timeout_ms, options.frame_limit_ms, options.on_lost,
                                       status_);
  Begin();
}

void Engine::Begin() {
  status_.weight_bytes.store(stage_->weight_bytes(), std::memory_order_relaxed);
  status_.resident_bytes.store(stage_->residency().resident_bytes(), std::memory_order_relaxed);
  status_.state.store(static_cast<uint32_t>(SocketState::kServing), std::memory_order_relaxed);
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

// Halves let the sockets work at the same time, but each half reads the weights. That costs little if the
// rows keep the product units busy either way, and pays if attention takes long enough to be worth hiding.
// The two bounds are from bench_engine's sockets/* rows (docs/engine.md); the bits do not depend on them.
bool Engine::PaysInHalves(std::span<const TokenRow> rows) const {
  constexpr size_t kComputeBoundRows = 64;
  if (rows.size() < 2) return false;
  if (rows.size() >= kComputeBoundRows) return true;
  uint64_t tokens = 0;
  for (const TokenRow& row : rows) tokens += row.position + 1;
  return 2 * tokens * kv_token_bytes_ >= weight_bytes_;
}

// Sorts order_ by half and attention socket; returns the rows of the first half. Each socket's rows are cut
// in the middle, so that all sockets have work in both halves.
uint32_t Engine::OrderForSockets(std::span<const TokenRow> rows, bool in_halves) {
  socket_of_.clear();
  std::vector<size_t>& left = rank_;  // rows of each socket that still go to the first half
  left.assign(slot_ends_.size(), 0);
  for (const TokenRow& row : rows) {
    const auto end = std::upper_bound(slot_ends_.begin(), slot_ends_.end(), static_cast<size_t>(row.slot));
    socket_of_.push_back(static_cast<size_t>(end - slot_ends_.begin()));
    ++left[socket_of_.back()];
  }
  for (size_t& n : left) n = in_halves ? CeilDiv(n, 2) : n;
  half_of_.clear();
  uint32_t first_half = 0;
  for (const size_t socket : socket_of_) {
    const bool first = left[socket] > 0;
    left[socket] -= first;
    first_half += first;
    half_of_.push_back(first ? 0 : 1);
  }
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    return std::pair(half_of_[a], socket_of_[a]) < std::pair(half_of_[b], socket_of_[b]);
  });
  return first_half < rows.size() ? first_half : 0;
}

void Engine::Fill(std::span<const TokenRow> rows, MicroBatch& batch) {
  order_.resize(rows.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  batch.first_half = !slot_ends_.empty() ? OrderForSockets(rows, PaysInHalves(rows)) : 0;
  batch.tokens.clear();
  batch.slots.clear();
  batch.positions.clear();
  batch.logit_rows.clear();
  batch.logit_at.clear();
  rank_.assign(rows.size(), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    const TokenRow& row = rows[order_[i]];
    batch.tokens.push_back(row.token);
    batch.slots.push_back(row.slot);
    batch.positions.push_back(row.position);
    if (row.logits) {
      rank_[order_[i]] = batch.logit_rows.size();
      batch.logit_rows.push_back(static_cast<uint32_t>(i));
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].logits) batch.logit_at.push_back(rank_[i]);
    lengths_[static_cast<size_t>(rows[i].slot)] = rows[i].position + 1;
  }
}

model::BatchRows Engine::MicroBatch::frame() const {
  return {.rows = static_cast<uint32_t>(tokens.size()),
          .token = tokens.data(),
          .slot = slots.data(),
          .position = positions.data(),
          .logit_rows = static_cast<uint32_t>(logit_rows.size()),
          .logit_row = logit_rows.data()};
}

template <typename Call>
void Engine::OverChain(Call call) {
  try {
    call(*chain_);
  } catch (const PipelineLost&) {
    in_flight_.clear();
    std::fill(lengths_.begin(), lengths_.end(), 0);
    throw;
  }
}

void Engine::MakeWhole() {
  if (chain_) OverChain([](ChainEnds& chain) { chain.MakeWhole(); });
}

void Engine::Submit(std::span<const TokenRow> rows) {
  LARDER_CHECK(in_flight_.size() < in_flight_limit() && !rows.empty() && rows.size() <= max_rows());
  Check(rows);
  MicroBatch batch;
  if (!spare_.empty()) {
    batch = std::move(spare_.back());
    spare_.pop_back();
  }
  Fill(rows, batch);
  in_flight_.push_back(std::move(batch));
  if (!chain_) return;
  model::BatchRows frame = in_flight_.back().frame();
  const uint32_t first_half = in_flight_.back().first_half;
  OverChain([&](ChainEnds& chain) { chain.Send(frame, first_half); });
}

void Engine::Collect() {
  LARDER_CHECK(!in_flight_.empty());
  MicroBatch batch = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (chain_) {
    OverChain([](ChainEnds& chain) { chain.Receive(); });
  } else {
    Execute(batch);
  }
  CheckFinite(batch);
  use_kept_ = false;
  logit_at_ = batch.logit_at;
  spare_.push_back(std::move(batch));
}

void Engine::Execute(const MicroBatch& batch) {
  model::BatchRows frame = batch.frame();
  const int64_t began_ns = NowNs();
  const uint64_t waited_ns = stage_->waited_ns();
  SocketStatus::Add(status_.frames_started, 1);
  stage_->Execute(frame, batch.first_half);
  SocketStatus::Add(status_.frames_finished, 1);
  const auto took_ns = static_cast<uint64_t>(NowNs() - began_ns);
  const uint64_t inside_ns = std::min(stage_->waited_ns() - waited_ns, took_ns);
  SocketStatus::Add(status_.rows, frame.rows);
  SocketStatus::Add(status_.step_ns, took_ns - inside_ns);
  SocketStatus::Add(status_.wait_ns, inside_ns);
}

void Engine::Run(std::span<const TokenRow> rows) {
  LARDER_CHECK(in_flight_.empty());
  Check(rows);
  const size_t vocab = plan_.config.vocab;
  const auto wanted = static_cast<size_t>(
      std::count_if(rows.begin(), rows.end(), [](const TokenRow& row) { return row.logits; }));
  size_t kept = 0, submitted = 0;
  std::string fault;  // the first
  while (submitted < rows.size() || !in_flight_.empty()) {
    while (submitted < rows.size() && in_flight_.size() < in_flight_limit()) {
      const size_t n = std::min(max_rows(), rows.size() - submitted);
      Submit(rows.subspan(submitted, n));
      submitted += n;
    }
    Collect();
    for (const std::string& one : faults_) fault = fault.empty() ? one : fault;
    // A later micro-batch overwrites the logits of an earlier one.
    const size_t n = logit_at_.size();
    const bool last = submitted == rows.size() && in_flight_.empty();
    if (n == 0 || (last && n == wanted)) continue;
    kept_.resize(wanted * vocab);
    for (size_t i = 0; i < n; ++i) {
      const auto from = stage_->logits(logit_at_[i]);
      std::copy(from.begin(), from.end(), kept_.begin() + static_cast<std::ptrdiff_t>((kept + i) * vocab));
    }
    kept += n;
  }
  use_kept_ = kept > 0;
  if (!fault.empty()) throw Error("{}", fault);
}

void Engine::CheckFinite(const MicroBatch& batch) {
  faults_.clear();
  for (size_t i = 0; i < batch.logit_at.size(); ++i) {
    const size_t at = batch.logit_at[i];
    if (stage_->finite(at)) continue;
    const uint32_t row = batch.logit_rows[at];
    faults_.resize(batch.logit_at.size());
    faults_[i] = fmt::format(
        "{}: the model's residual is not finite at position {} of slot {} (token {}): its weights or "
        "activations overflow; "
        "check the file with `larder inspect`, or convert it again",
        plan_.config.name, batch.positions[row], batch.slots[row], batch.tokens[row]);
  }
}

const std::string& Engine::fault(size_t i) const {
  static const std::string kNone;
  return faults_.empty() ? kNone : faults_.at(i);
}

std::span<const float> Engine::logits(size_t i) const {
  if (!use_kept_) return stage_->logits(logit_at_.at(i));
  return {kept_.data() + i * plan_.config.vocab, plan_.config.vocab};
}

size_t Engine::max_logits() const { return stage_->max_logit_rows(); }

void Engine::Reset(int32_t slot) { lengths_.at(static_cast<size_t>(slot)) = 0; }

}  // namespace larder::pipeline

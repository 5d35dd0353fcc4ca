// A step of the scheduler: which rows the next micro-batch has, and what becomes of the oldest
// one's logits.
#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "pipeline/scheduler/scheduler.h"
#include "pipeline/stage/socket_status.h"

namespace larder::pipeline::inline scheduler {
namespace {

constexpr double kSmoothing = 0.1;  // weight of a new step time
// How long a step waits for what its sequences choose by: nearly every mask is there when the step
// is.
constexpr uint64_t kPatienceNs = 200'000;

// The oldest prompt has one row in so many, at least.
constexpr size_t kOldestShare = 4;

// Rows of a prompt that wants their logits, while the time for logits is not known.
constexpr size_t kFirstLogitRows = 32;

void Smooth(double& mean, double value) {
  mean = mean == 0 ? value : mean + kSmoothing * (value - mean);
}

}  // namespace

// Submits a micro-batch if there is anything to run.
bool Scheduler::FillBatch() {
  ScheduledBatch& batch = batches_[(oldest_ + in_flight_) % batches_.size()];
  rows_.clear();
  batch.parts.clear();
  batch.prefill_rows = batch.decode_rows = batch.logit_rows = 0;
  batch.submitted_ns = clock_->now_ns();
  const RowBudget budget = policy_->Budget({.now_ns = batch.submitted_ns,
                                            .slots = limits_.slots,
                                            .max_batch_tokens = limits_.max_batch_tokens,
                                            .prefilling = prefilling_.size(),
                                            .decoding = decoding_,
                                            .decode_step_ns = decode_step_ns_,
                                            .prompt_row_ns = prompt_row_ns_});
  status_.transitions.store(policy_->transitions(), std::memory_order_relaxed);
  ++batch_;
  AddDecodeRows(batch, budget.decode_rows);
  AddPromptRows(batch, budget.prompt_rows);
  if (rows_.empty() && in_flight_ == 0) {
    // The sequences that the policy lets run wait for KV chunks of those that it holds back.
    AddDecodeRows(batch, limits_.max_batch_tokens);
    AddPromptRows(batch, limits_.max_batch_tokens);
  }
  if (rows_.empty()) return false;
  Submit(batch);
  return true;
}

void Scheduler::AddDecodeRows(ScheduledBatch& batch, size_t most) {
  // The sequences are spread over as many micro-batches as can be in flight, so that every stage
  // has work.
  most = std::min({most, CeilDiv(decoding_, limits_.max_in_flight), limits_.max_batch_tokens,
                   limits_.max_logits});
  for (size_t looked_at = ready_.size();
       looked_at > 0 && batch.decode_rows < most && ready_.size() > 0; --looked_at) {
    const SlotId id = ready_.pop_front();
    const Slot& slot = slots_[id.index()];
    if (slot.active->yields || !Reserve(id, slot.tokens.size(), slot.tokens.size() + 1)) {
      ready_.push_back(id);  // datapath-ok: a queue of fixed size
      continue;
    }
    slot.active->batch = batch_;
    // datapath-ok: within what the constructor reserved
    rows_.push_back({slot.active->next_token, id, static_cast<uint32_t>(slot.tokens.size()), true});
    // datapath-ok: within what the constructor reserved
    batch.parts.push_back({id, slot.tokens.size(), 1, 1, true});
    ++batch.decode_rows;
  }
}

// The prompt with the shortest rest comes first, so that a short prompt does not wait for long
// ones; background prompts come last, in their order. The oldest of the others has its share of the
// rows, whatever else arrives: a prompt is done within kOldestShare times its own rows and those of
// the prompts before it.
void Scheduler::AddPromptRows(ScheduledBatch& batch, size_t most) {
  size_t budget = std::min(most, limits_.max_batch_tokens - batch.decode_rows);
  OrderPrompts();
  const std::optional<SlotId> oldest =
      OldestPrompt([](const Active& active) { return !active.background && !active.yields; });
  size_t share = oldest ? std::max<size_t>(budget / kOldestShare, 1) : 0;
  size_t logits = batch.decode_rows;
  bool narrowed = false;  // for prompts of the background
  for (const SlotId id : prompt_order_) {
    const Slot& slot = slots_[id.index()];
    // Others may have lost their slots.
    if (slot.active == nullptr || std::ranges::find(prefilling_, id) == prefilling_.end()) continue;
    if (slot.active->background && !slot.active->restored && !narrowed) {
      narrowed = true;
      const auto in_front = [this](const Part& part) {
        return !slots_[part.slot.index()].active->background;
      };
      if (std::ranges::any_of(batch.parts, in_front)) budget = std::min(budget, kLeastPromptRows);
    }
    if (id == oldest) share = 0;
    const size_t rows = AddPromptOf(id, batch, budget - std::min(budget, share), logits);
    budget -= rows;
    if (budget == 0) return;
  }
}

// The slots that compute prompts, in the order in which they get rows.
void Scheduler::OrderPrompts() {
  prompt_order_.clear();
  for (const SlotId id : prefilling_) {
    // datapath-ok: within what the constructor reserved
    if (!slots_[id.index()].active->yields) prompt_order_.push_back(id);
  }
  const auto key = [this](SlotId id) {
    const Active& active = *slots_[id.index()].active;
    return std::tuple(active.background, active.background ? 0 : LeftIn(id), active.order);
  };
  std::ranges::sort(prompt_order_, {}, key);
}

// The rows of a prompt that wants their logits that take as long as so many without them; one at
// least.
size_t Scheduler::LogitRowsWithin(size_t rows) const {
  if (logit_row_ns_ == 0) return std::clamp<size_t>(rows, 1, kFirstLogitRows);
  const double share = prompt_row_ns_ / (prompt_row_ns_ + logit_row_ns_);
  return std::max<size_t>(static_cast<size_t>(static_cast<double>(rows) * share), 1);
}

// Adds rows of a prompt that take as long as up to `most`. Returns as how many they count.
size_t Scheduler::AddPromptOf(SlotId id, ScheduledBatch& batch, size_t most, size_t& logits) {
  const Slot& slot = slots_[id.index()];
  const std::span<const int32_t> prompt = slot.active->to_compute();
  const size_t begin = slot.tokens.size();
  const Wanted wants = slot.active->sequence->wanted();
  // Rows in front of those from which something is wanted.
  const size_t silent = std::max(MostReused(*slot.active), begin) - begin;
  const bool scores = wants == Wanted::kPromptLogits && begin + silent + 1 < prompt.size();
  size_t n = std::min(most, prompt.size() - begin);
  if (n == 0) return 0;
  if (scores && n > silent) n = std::min(n, silent + LogitRowsWithin(n - silent));
  if (!Reserve(id, begin, begin + n)) n = kv_.Reserve(id, begin, begin + n) - begin;
  if (n == 0) return 0;
  slot.active->batch = batch_;
  n = std::min(n, silent + limits_.max_logits - logits);
  if (n == 0) return 0;
  const bool last = begin + n == prompt.size();
  const size_t wanted = n - std::min(n, silent);
  const bool hidden = wants == Wanted::kHiddenOfLast || wants == Wanted::kHiddenOfAll;
  for (size_t k = 0; k < n; ++k) {
    const bool of_row = k + wanted >= n;
    // datapath-ok: within what the constructor reserved
    rows_.push_back({prompt[begin + k], id, static_cast<uint32_t>(begin + k), of_row && !hidden,
                     of_row && hidden});
  }
  // datapath-ok: within what the constructor reserved
  batch.parts.push_back({id, begin, n, wanted, last});
  batch.prefill_rows += n;
  logits += wanted;
  if (last) std::erase(prefilling_, id);
  if (!scores) return n;
  batch.logit_rows += wanted;
  if (prompt_row_ns_ == 0) return n;
  const double others = static_cast<double>(wanted) * logit_row_ns_ / prompt_row_ns_;
  return std::min(most, n + static_cast<size_t>(others));
}

void Scheduler::Submit(ScheduledBatch& batch) {
  engine_.Submit(rows_);
  size_t row = 0;
  for (const Part& part : batch.parts) {
    Slot& slot = slots_[part.slot.index()];
    for (const size_t end = row + part.rows; row < end; ++row) {
      // datapath-ok: within what the constructor reserved
      slot.tokens.push_back(rows_[row].token);
    }
    slot.active->rows_in_flight += part.rows;
    slot_status_[part.slot.index()].cached_tokens.store(static_cast<uint32_t>(slot.tokens.size()),
                                                        std::memory_order_relaxed);
  }
  ++in_flight_;
  ShowKvChunks();
}

void Scheduler::CollectOldest() {
  engine_.Collect();
  const ScheduledBatch& batch = batches_[oldest_];
  oldest_ = (oldest_ + 1) % batches_.size();
  --in_flight_;
  losses_in_a_row_ = 0;
  const uint64_t now = clock_->now_ns();
  double step_ns = static_cast<double>(now - std::max(batch.submitted_ns, last_collect_ns_));
  last_collect_ns_ = now;
  SocketStatus::Add(status_.steps, 1);
  SocketStatus::Add(status_.busy_slots, batch.parts.size());
  SocketStatus::Add(status_.prefill_rows, batch.prefill_rows);
  SocketStatus::Add(status_.decode_rows, batch.decode_rows);
  patience_ns_ = kPatienceNs;
  PrepareNext(batch);
  // What a prompt makes of its logits is a part of what they take.
  if (batch.logit_rows > 0) step_ns += static_cast<double>(clock_->now_ns() - now);
  UpdateStepCosts(batch, step_ns);
  size_t logits = 0;
  for (const Part& part : batch.parts) {
    Slot& slot = slots_[part.slot.index()];
    slot.active->rows_in_flight -= part.rows;
    if (slot.active->generated == 0 && !slot.active->ended)
      slot.active->sequence->Computed(part.first + part.rows);
    for (size_t k = part.rows - part.wanted; k < part.rows; ++k) {
      const size_t i = logits++;
      const bool good = engine_.fault(i).empty();
      if (!good) slot.tokens.clear();  // its KV must not be reused
      if (slot.active == nullptr || slot.active->ended) continue;
      if (!good) {
        End(part.slot, SequenceEnd::kFailed, engine_.fault(i));
        continue;
      }
      const Wanted wants = slot.active->sequence->wanted();
      if (wants == Wanted::kHiddenOfLast || wants == Wanted::kHiddenOfAll) {
        TakeHidden(part, part.first + k, engine_.hidden(i));
      } else if (part.last && k + 1 == part.rows) {
        ContinueOrSitOut(part.slot, engine_.logits(i));
      } else {
        ++slot.active->given;  // PrepareNext gave them
      }
    }
    FreeIfDone(part.slot);
  }
}

// Gives prompts the logits that they want of their rows, and has the next tokens chosen on all
// threads, if that takes longer than calling the threads: about 1.5 us plus 0.3 ns for each token
// of the vocabulary, against a hand-over of 1 to 2 us. Otherwise tokens are chosen later, one by
// one.
void Scheduler::PrepareNext(const ScheduledBatch& batch) {
  constexpr size_t kTokensOfAChoice = 4096, kWorthIt = 8 * kTokensOfAChoice;
  choosing_.clear();
  size_t logits = 0;
  for (const Part& part : batch.parts) {
    const Active* active = slots_[part.slot.index()].active.get();
    for (size_t k = 0; k < part.wanted; ++k, ++logits) {
      if (active == nullptr || active->ended || !engine_.fault(logits).empty()) continue;
      const Wanted wants = active->sequence->wanted();
      if (wants == Wanted::kHiddenOfLast || wants == Wanted::kHiddenOfAll) continue;
      std::optional<size_t> position;
      if (!part.last || k + 1 < part.wanted) position = part.first + part.rows - part.wanted + k;
      if (!position && !IsReady(*active->sequence)) continue;
      // datapath-ok: within what the constructor reserved
      choosing_.push_back({active->sequence.get(), engine_.logits(logits), position});
    }
  }
  if (choosing_.size() < 2 || choosing_.size() * (limits_.vocab + kTokensOfAChoice) < kWorthIt) {
    for (const Choice& choice : choosing_) {
      if (choice.position) choice.Make();
    }
    return;
  }
  engine_.Spread(
      choosing_.size(),
      [](void* choosing, size_t i) {
        (*static_cast<const std::vector<Choice>*>(choosing))[i].Make();
      },
      &choosing_);
}

void Scheduler::TakeHidden(const Part& part, size_t position, std::span<const float> state) {
  slots_[part.slot.index()].active->sequence->Hidden(position, state);
  if (part.last && position + 1 == part.first + part.rows)
    End(part.slot, SequenceEnd::kComplete, "");
}

// Updates the costs of a pure decode step, of a prompt row beside decode rows, and of its logits,
// from a step's time.
void Scheduler::UpdateStepCosts(const ScheduledBatch& batch, double step) {
  if (batch.prefill_rows == 0) {
    Smooth(decode_step_ns_, step);
  } else if (batch.prefill_rows >= kLeastPromptRows) {
    const double base = batch.decode_rows > 0 ? decode_step_ns_ : 0;
    const auto rows = static_cast<double>(batch.prefill_rows),
               logits = static_cast<double>(batch.logit_rows);
    const double prompts = std::max(step - base, 0.1 * step);
    if (batch.logit_rows < kLeastPromptRows || prompt_row_ns_ == 0) {
      Smooth(prompt_row_ns_, std::max(prompts - logits * logit_row_ns_, 0.1 * prompts) / rows);
    } else {
      Smooth(logit_row_ns_, std::max(prompts - rows * prompt_row_ns_, 0.01 * prompts) / logits);
    }
  }
}

}  // namespace larder::pipeline::scheduler

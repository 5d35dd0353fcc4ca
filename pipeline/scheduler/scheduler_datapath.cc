// A step of the scheduler: which rows the next micro-batch has, and what becomes of the oldest
// one's logits.
#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "model/step/kv_class.h"
#include "pipeline/scheduler/scheduler.h"
#include "pipeline/stage/socket_status.h"

namespace larder::pipeline::inline scheduler {
namespace {

// How long a step waits for what its sequences choose by: nearly every mask is there when the step
// is.
constexpr uint64_t kPatienceNs = 200'000;

// The oldest prompt has one row in so many, at least.
constexpr size_t kOldestShare = 4;

bool WantsHidden(const Active& active) {
  const Wanted wants = active.sequence->wanted();
  return wants == Wanted::kHiddenOfLast || wants == Wanted::kHiddenOfAll;
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
                                            .slots = limits_.capacity.slots,
                                            .max_batch_tokens = limits_.capacity.max_batch_tokens,
                                            .prefilling = running_.prompts().size(),
                                            .decoding = running_.decoding(),
                                            .decode_step_ns = costs_.decode_step_ns(),
                                            .prompt_row_ns = costs_.prompt_row_ns()});
  status_.transitions.store(policy_->transitions(), std::memory_order_relaxed);
  running_.NextBatch();
  AddDecodeRows(batch, budget.decode_rows);
  AddPromptRows(batch, budget.prompt_rows);
  if (rows_.empty() && in_flight_ == 0) {
    // The sequences that the policy lets run wait for KV chunks of those that it holds back.
    AddDecodeRows(batch, limits_.capacity.max_batch_tokens);
    AddPromptRows(batch, limits_.capacity.max_batch_tokens);
  }
  if (rows_.empty()) return false;
  Submit(batch);
  return true;
}

void Scheduler::AddDecodeRows(ScheduledBatch& batch, size_t most) {
  // The sequences are spread over as many micro-batches as can be in flight, so that every stage
  // has work.
  const size_t rows = std::min(limits_.capacity.max_batch_tokens, limits_.max_logits);
  most = std::min({most, CeilDiv(running_.decoding(), limits_.capacity.max_in_flight), rows});
  SlotQueue& ready = running_.ready();
  for (size_t looked_at = ready.size();
       looked_at > 0 && batch.parts.size() < most && ready.size() > 0; --looked_at) {
    const SlotId id = ready.pop_front();
    const size_t end = slots_[id].tokens.size();
    if (slots_.active(id).yields || !running_.Reserve(id, end, end + 1)) {
      ready.push_back(id);  // datapath-ok: a queue of fixed size
      continue;
    }
    // Those behind it have their row before it has more than one.
    const size_t others = std::min(most - batch.parts.size() - 1, looked_at - 1);
    AddDecodeRowsOf(id, batch, rows - std::min(rows, batch.decode_rows + others));
    if (batch.decode_rows == rows) return;
  }
}

// The row of the next token, and as many of its drafts as there are rows, positions and chunks.
void Scheduler::AddDecodeRowsOf(SlotId id, ScheduledBatch& batch, size_t most) {
  const size_t first = slots_[id].tokens.size();
  Active& active = slots_.active(id);
  // The last position of the context is never computed: a text ends with its token.
  const size_t room = std::min(most, limits_.capacity.context - 1 - first);
  std::span<const int32_t> drafts;
  // A state has seen what was drafted, and cannot go back.
  if (room > 1 && !slots_.kv().shape().states()) drafts = active.sequence->Draft(room - 1);
  LARDER_CHECK(drafts.size() < std::max<size_t>(room, 1));
  if (!drafts.empty())
    drafts = drafts.first(slots_.kv().Reserve(id, first, first + 1 + drafts.size()) - first - 1);
  running_.MarkInBatch(id);
  const size_t rows = 1 + drafts.size();
  for (size_t k = 0; k < rows; ++k) {
    const int32_t token = k == 0 ? active.next_token : drafts[k - 1];
    // datapath-ok: within what the constructor reserved
    rows_.push_back({token, id, static_cast<uint32_t>(first + k), true});
  }
  // datapath-ok: within what the constructor reserved
  batch.parts.push_back({id, first, rows, rows, /*last=*/true, /*decodes=*/true});
  batch.decode_rows += rows;
}

// The prompt with the shortest rest comes first, so that a short prompt does not wait for long
// ones; background prompts come last, in their order. The oldest of the others has its share of the
// rows, whatever else arrives: a prompt is done within kOldestShare times its own rows and those of
// the prompts before it.
void Scheduler::AddPromptRows(ScheduledBatch& batch, size_t most) {
  size_t budget = std::min(most, limits_.capacity.max_batch_tokens - batch.decode_rows);
  OrderPrompts();
  const std::optional<SlotId> oldest = running_.OldestPrompt(
      [](const Active& active) { return !active.background && !active.yields; });
  size_t share = oldest ? std::max<size_t>(budget / kOldestShare, 1) : 0;
  size_t logits = batch.decode_rows;
  bool narrowed = false;  // for prompts of the background
  for (const SlotId id : prompt_order_) {
    // Others may have lost their slots.
    if (std::ranges::find(running_.prompts(), id) == running_.prompts().end()) continue;
    const Active& active = slots_.active(id);
    if (active.background && !active.restored && !narrowed) {
      narrowed = true;
      const auto in_front = [this](const Part& part) {
        return !slots_.active(part.slot).background;
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
  for (const SlotId id : running_.prompts()) {
    // datapath-ok: within what the constructor reserved
    if (!slots_.active(id).yields) prompt_order_.push_back(id);
  }
  const auto key = [this](SlotId id) {
    const Active& active = slots_.active(id);
    return std::tuple(active.background, active.background ? 0 : slots_.LeftIn(id), active.order);
  };
  std::ranges::sort(prompt_order_, {}, key);
}

// Adds rows of a prompt that take as long as up to `most`. Returns as how many they count.
size_t Scheduler::AddPromptOf(SlotId id, ScheduledBatch& batch, size_t most, size_t& logits) {
  const Active& active = slots_.active(id);
  const std::span<const int32_t> prompt = active.to_compute();
  const size_t begin = slots_[id].tokens.size();
  // Rows in front of those from which something is wanted.
  const size_t silent = std::max(active.most_reused(), begin) - begin;
  const bool scores =
      active.sequence->wanted() == Wanted::kPromptLogits && begin + silent + 1 < prompt.size();
  size_t n = std::min(most, prompt.size() - begin);
  const size_t pause = slots_.kv().shape().states() ? active.NextPause(begin) : prompt.size();
  n = std::min(n, pause - begin);
  if (n == 0) return 0;
  if (scores && n > silent) n = std::min(n, silent + costs_.LogitRowsWithin(n - silent));
  if (!running_.Reserve(id, begin, begin + n))
    n = slots_.kv().Reserve(id, begin, begin + n) - begin;
  if (n == 0) return 0;
  running_.MarkInBatch(id);
  n = std::min(n, silent + limits_.max_logits - logits);
  if (n == 0) return 0;
  const bool last = begin + n == prompt.size();
  const size_t wanted = n - std::min(n, silent);
  const bool hidden = WantsHidden(active);
  for (size_t k = 0; k < n; ++k) {
    const bool of_row = k + wanted >= n;
    // datapath-ok: within what the constructor reserved
    rows_.push_back({prompt[begin + k], id, static_cast<uint32_t>(begin + k), of_row && !hidden,
                     of_row && hidden});
  }
  // datapath-ok: within what the constructor reserved
  batch.parts.push_back(
      {id, begin, n, wanted, last, /*decodes=*/false, /*pauses=*/!last && begin + n == pause});
  batch.prefill_rows += n;
  logits += wanted;
  if (last) running_.PromptIsSubmitted(id);
  if (!scores) return n;
  batch.logit_rows += wanted;
  return std::min(most, n + costs_.RowsOfLogits(wanted));
}

void Scheduler::Submit(ScheduledBatch& batch) {
  engine_.Submit(rows_);
  size_t row = 0;
  for (const Part& part : batch.parts) {
    Slot& slot = slots_[part.slot];
    for (const size_t end = row + part.rows; row < end; ++row) {
      // datapath-ok: within what the constructor reserved
      slot.tokens.push_back(rows_[row].token);
    }
    slot.active->rows_in_flight += part.rows;
    KeepStateBehind(part);
    slots_.ShowTokens(part.slot);
  }
  ++in_flight_;
  slots_.ShowChunks();
}

// An answer's states are kept as a prompt's are (Active::NextPause).
void Scheduler::KeepStateBehind(const Part& part) {
  KvChunks& kv = slots_.kv();
  if (!kv.shape().states()) return;
  const size_t end = part.first + part.rows, stored = slots_.active(part.slot).stored_positions;
  if (part.pauses || (part.decodes && end % model::kStatePositions == 0)) {
    kv.KeepState(part.slot);
  } else if (part.decodes && stored > 0 && end % stored == 0) {
    kv.KeepStateUntilNext(part.slot);
  }
}

void Scheduler::CollectOldest() {
  engine_.Collect();
  const ScheduledBatch& batch = batches_[oldest_];
  oldest_ = (oldest_ + 1) % batches_.size();
  --in_flight_;
  outages_.Succeeded();
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
  costs_.Update(batch.decode_rows, batch.prefill_rows, batch.logit_rows, step_ns);
  size_t logits = 0;
  for (const Part& part : batch.parts) {
    Active& active = slots_.active(part.slot);
    active.rows_in_flight -= part.rows;
    if (active.generated == 0 && !active.ended) active.sequence->Computed(part.first + part.rows);
    if (part.decodes) {
      TakeDrafted(part, logits);
    } else {
      TakeResults(part, logits);
    }
    logits += part.wanted;
    running_.FreeIfDone(part.slot);
  }
}

// Whether these logits are the slot's and can be used; its sequence ends if the model failed.
bool Scheduler::IsGood(SlotId id, size_t logits) {
  const bool good = engine_.fault(logits).empty();
  if (!good) slots_[id].tokens.clear();  // its KV must not be reused
  const Active* active = slots_[id].active.get();
  if (active == nullptr || active->ended) return false;
  if (!good) running_.End(id, SequenceEnd::kFailed, engine_.fault(logits));
  return good;
}

// The results of a prompt's rows: hidden states, logits of its own tokens, those of its next one.
void Scheduler::TakeResults(const Part& part, size_t first_logits) {
  for (size_t k = 0; k < part.wanted; ++k) {
    if (!IsGood(part.slot, first_logits + k)) continue;
    Active& active = slots_.active(part.slot);
    const bool last = part.last && k + 1 == part.wanted;
    if (WantsHidden(active)) {
      active.sequence->Hidden(part.first + part.rows - part.wanted + k,
                              engine_.hidden(first_logits + k));
      if (last) running_.End(part.slot, SequenceEnd::kComplete, "");
    } else if (!last) {
      ++active.given;  // PrepareNext gave them
    } else if (!IsReady(*active.sequence)) {
      running_.SitOut(part.slot, engine_.logits(first_logits + k));
    } else if (const auto next = Choose(part.slot, engine_.logits(first_logits + k))) {
      running_.HasNext(part.slot, *next);
    }
  }
}

// Takes tokens from a decoding sequence's rows, one after the other, as long as each is the one
// that the next row was drafted with; what was computed of others is cut off.
void Scheduler::TakeDrafted(const Part& part, size_t first_logits) {
  const SlotId id = part.slot;
  std::vector<int32_t>& tokens = slots_[id].tokens;
  LARDER_CHECK(tokens.size() == part.first + part.rows);
  // datapath-ok: within what the constructor reserved
  drafted_.assign(tokens.end() - static_cast<std::ptrdiff_t>(part.rows - 1), tokens.end());
  tokens.resize(part.first + 1);  // datapath-ok: it gets shorter
  for (size_t k = 0; IsGood(id, first_logits + k); ++k) {
    const std::span<const float> logits = engine_.logits(first_logits + k);
    if (!IsReady(*slots_.active(id).sequence)) {
      running_.SitOut(id, logits);
      break;
    }
    const std::optional<int32_t> next = Choose(id, logits);
    if (!next) break;
    if (k == drafted_.size() || drafted_[k] != *next) {
      running_.HasNext(id, *next);
      break;
    }
    tokens.push_back(*next);  // datapath-ok: within what the constructor reserved
  }
  if (part.rows > 1) slots_.Cut(id, tokens.size());
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
    const Active& active = slots_.active(part.slot);
    for (size_t k = 0; k < part.wanted; ++k, ++logits) {
      if (active.ended || !engine_.fault(logits).empty() || WantsHidden(active)) continue;
      // Which drafts are right is known one by one.
      if (part.decodes && k > 0) continue;
      std::optional<size_t> position;
      if (!part.decodes && (!part.last || k + 1 < part.wanted))
        position = part.first + part.rows - part.wanted + k;
      if (!position && !IsReady(*active.sequence)) continue;
      // datapath-ok: within what the constructor reserved
      choosing_.push_back({active.sequence.get(), engine_.logits(logits), position});
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

}  // namespace larder::pipeline::scheduler

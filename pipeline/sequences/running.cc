#include "pipeline/sequences/running.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "pipeline/stage/socket_status.h"

namespace larder::pipeline::inline sequences {
namespace {

constexpr int kMostLosses = 8;  // losses of a sequence's slot without a token in between
constexpr uint64_t kBehindAll = uint64_t{1} << 63;  // in the order of admission

}  // namespace

Running::Running(SlotTable& slots, StoredChunks& stored, WaitingQueue& queue,
                 SchedulerStatus& status)
    : slots_(slots),
      stored_(stored),
      queue_(queue),
      status_(status),
      ready_(slots.limits().capacity.slots) {
  // So that steps do not allocate.
  prompts_.reserve(slots.limits().capacity.slots);
  sitting_out_.reserve(slots.limits().capacity.slots);
}

void Running::Begin(const Place& place, std::unique_ptr<Active> active) {
  const SlotId id = place.slot;
  slots_.Take(place, active->sequence->tenant());
  if (active->order == 0)
    active->order = slots_[id].last_used + (active->background ? kBehindAll : 0);
  active->yields = active->makes_way = false;
  active->overtaken = 0;
  active->branch = place.branch;
  active->stored_positions = stored_.any() ? slots_.chunk_positions() : 0;
  slots_.Seat(id, std::move(active));
  slots_.active(id).sequence->InSlot(id);
  if (place.stored == 0 || !stored_.Load(id, place.stored)) BeginPrompt(id);
}

void Running::BeginPrompt(SlotId id) {
  Active& active = slots_.active(id);
  const size_t reused = active.began = slots_[id].tokens.size();
  // Where it goes on others may, too: another version of the turn that it brings.
  if (slots_.kv().shape().states() && active.generated == 0) slots_.kv().KeepState(id);
  const auto behind = std::ranges::partition_point(
      prompts_, [this](SlotId of) { return !slots_.active(of).background; });
  prompts_.insert(active.background ? prompts_.end() : behind, id);
  if (!active.restored) {
    SocketStatus::Add(status_.prefix_hits, reused > 0);
    SocketStatus::Add(status_.reused_tokens, reused);
  }
  slots_.ShowTokens(id);
  if (active.generated == 0) active.sequence->Admitted(reused);
}

void Running::TakeLoaded() {
  stored_.Take([this](SlotId id) {
    if (slots_.active(id).ended) {
      FreeIfDone(id);
    } else {
      BeginPrompt(id);
    }
  });
}

void Running::HasNext(SlotId id, int32_t token) {
  Active& active = slots_.active(id);
  active.next_token = token;
  ready_.push_back(id);
  if (active.decoding) return;
  active.decoding = true;
  active.replay = {};
  ++decoding_;
  slots_.Show(id, SlotStatus::kDecode);
}

void Running::SitOut(SlotId id, std::span<const float> logits) {
  slots_.active(id).logits.assign(logits.begin(), logits.end());
  sitting_out_.push_back(id);
}

std::vector<float> Running::SitIn(SlotId id) {
  std::erase(sitting_out_, id);
  return std::exchange(slots_.active(id).logits, {});
}

bool Running::MakeRoom(SlotId id, size_t begin, size_t end) {
  KvChunks& kv = slots_.kv();
  const AttentionId socket = kv.socket_of(id);
  while (kv.Reserve(id, begin, end) < end) {
    if (!kv.Short(socket))
      return false;  // it is the updates that are used up: in the next micro-batch
    const bool shortened = slots_.ShortenOldest(socket, std::array{id});
    // What was cut off, or all that is left, may be waiting to be written.
    if (kv.Short(socket) && stored_.DropStores()) continue;
    if (shortened) continue;
    // What windows see is soon written to files, and nobody's then.
    if (!kv.ShortOfFirst(socket) && stored_.jobs() > 0) return false;
    const std::optional<SlotId> youngest =
        slots_.YoungestOf([&](SlotId other, const Active& active) {
          return other != id && kv.socket_of(other) == socket && !active.loading &&
                 active.rows_in_flight == 0 && active.batch != batch_ &&
                 active.order >= slots_.active(id).order;
        });
    if (!youngest) return false;
    SocketStatus::Add(status_.preempted, Leave(*youngest, /*keeps_kv=*/false));
    slots_.Forget(*youngest);
  }
  return true;
}

bool Running::Yield(SlotId id) {
  Active& active = slots_.active(id);
  active.yields = true;
  if (active.rows_in_flight > 0 || active.loading) return false;
  slots_.Use(id);
  const bool left = Leave(id, /*keeps_kv=*/true);
  SocketStatus::Add(status_.yielded, left);
  return left;
}

// The sequence, without rows in flight, leaves its slot for others; what only fills it is given up.
// Returns whether it goes on later.
bool Running::Leave(SlotId id, bool keeps_kv) {
  if (slots_.active(id).restored) {
    End(id, SequenceEnd::kCancelled, "other requests needed its slot or its KV cache");
    return false;
  }
  queue_.Add(Park(id, keeps_kv), /*first=*/true);
  return true;
}

// Takes the sequence out of its slot, to be continued later in any slot, from its tokens alone.
// None of its rows is in flight any more.
std::unique_ptr<Active> Running::Park(SlotId id, bool keeps_kv) {
  DropFromLists(id);
  const std::vector<int32_t>& tokens = slots_[id].tokens;
  std::unique_ptr<Active> active = slots_.Unseat(id);
  active->logits = {};  // they are computed again, to the same bits
  if (active->generated == 0) return active;
  if (!keeps_kv) {
    SocketStatus::Add(status_.parked, 1);
    SocketStatus::Add(status_.recomputed_tokens, tokens.size());
  }
  const size_t all = active->sequence->prompt().size() + active->generated;
  if (active->decoding) {
    // Without what was only drafted.
    const auto made = static_cast<std::ptrdiff_t>(std::min(tokens.size(), all));
    active->replay.assign(tokens.begin(), tokens.begin() + made);
    if (active->replay.size() < all) active->replay.push_back(active->next_token);
    --decoding_;
    active->decoding = false;
  }
  LARDER_CHECK(active->replay.size() == all);
  return active;
}

void Running::DropFromLists(SlotId id) {
  std::erase(prompts_, id);
  std::erase(sitting_out_, id);
  ready_.Remove(id);
}

void Running::End(SlotId id, SequenceEnd end, const std::string& why) {
  Active& active = slots_.active(id);
  decoding_ -= active.decoding;
  active.decoding = false;
  active.ended = true;
  active.logits = {};
  DropFromLists(id);
  active.sequence->Ended(end, why);
  FreeIfDone(id);
}

void Running::EndCancelled() {
  for (SlotId id(0); id < slots_.end(); ++id) {
    const auto& active = slots_[id].active;
    if (active && !active->ended && active->sequence->cancelled())
      End(id, SequenceEnd::kCancelled, "");
  }
}

void Running::FreeIfDone(SlotId id) {
  const Active* active = slots_[id].active.get();
  if (active == nullptr || !active->ended || active->rows_in_flight > 0 || active->loading) return;
  slots_.Use(id);
  slots_.Unseat(id);
  stored_.Store(id);
}

void Running::ChainWasLost(const std::string& why) {
  stored_.ChainWasLost();
  std::vector<std::unique_ptr<Active>> again;
  for (SlotId id(0); id < slots_.end(); ++id) {
    if (Active* active = slots_[id].active.get()) {
      active->rows_in_flight = 0;
      const bool had_rows = !std::exchange(active->loading, false);  // else it is no cause
      const bool ends = active->ended || (had_rows && ++active->losses > kMostLosses);
      if (!ends) {
        again.push_back(Park(id, /*keeps_kv=*/false));
        continue;
      }
      slots_.Forget(id);  // there is nothing to store
      if (active->ended) {
        FreeIfDone(id);
      } else {
        End(id, SequenceEnd::kUnavailable, why);
      }
    }
  }
  for (SlotId id(0); id < slots_.end_of_kept(); ++id) slots_.Forget(id);
  std::ranges::sort(again, std::greater(), [](const auto& active) { return active->order; });
  for (auto& active : again) queue_.Add(std::move(active), /*first=*/true);
}

}  // namespace larder::pipeline::sequences

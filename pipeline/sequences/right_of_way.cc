#include "pipeline/sequences/right_of_way.h"

#include <algorithm>
#include <vector>

namespace larder::pipeline::inline sequences {
namespace {

// For a prompt so many times shorter than its rest a sequence leaves its slot, in all for this part
// of its own prompt.
constexpr size_t kMuchLonger = 4, kMostWay = 4;

// What so many tokens need in sequences of full contexts; of 0 tokens: no limit. A shorter sequence
// needs more for each of its tokens, where there are windows or states.
std::optional<uint64_t> MostBytes(const KvChunksShape& shape, size_t active_tokens) {
  if (active_tokens == 0) return {};
  const size_t chunks =
      std::min(active_tokens / shape.chunk_positions, shape.capacity.slots * shape.slot_chunks());
  return chunks * shape.NeededBytes(shape.capacity.context) / shape.slot_chunks();
}

}  // namespace

RightOfWay::RightOfWay(SlotTable& slots, StoredChunks& stored, WaitingQueue& queue,
                       Running& running, size_t active_tokens)
    : slots_(slots),
      stored_(stored),
      queue_(queue),
      running_(running),
      most_bytes_(MostBytes(slots.kv().shape(), active_tokens)) {}

void RightOfWay::MakeWay(bool chunks_wanted, std::optional<SlotId> ordered) {
  if (slots_.background() == 0 && !most_bytes_) return MakeWayForShort();
  for (SlotId id(0); id < slots_.end(); ++id) {
    if (Active* active = slots_[id].active.get())
      active->yields = id == ordered || active->makes_way;
  }
  KeepWithinActiveTokens();
  MakeWayForShort();
  if (slots_.background() > 0) MakeWayForWaiting(chunks_wanted);
}

// Parks as many sequences of the background as others wait for slots: now those that have no rows
// in flight, the rest when these have been collected. What they have in the KV cache stays there as
// long as there is room, as an ended sequence's.
void RightOfWay::MakeWayForWaiting(bool chunks_wanted) {
  const size_t slots = slots_.limits().capacity.slots;
  size_t wanted = 0;
  std::vector<SlotId> named;  // taken ones that are waited for
  for (size_t i = 0; i < queue_.size(); ++i) {
    if (queue_[i].background || wanted == slots) break;
    if (const std::optional<SlotId> taken = slots_.TakenSlotOf(queue_[i])) {
      named.push_back(*taken);
    } else {
      ++wanted;
    }
  }
  for (const SlotId id : named) {
    if (running_.MayYield(id) && slots_.active(id).background && !slots_.active(id).restored)
      running_.Yield(id);
  }
  const size_t idle = slots - slots_.actives();
  wanted = wanted > idle ? wanted - idle : wanted > 0 && chunks_wanted ? 1 : 0;
  for (; wanted > 0; --wanted) {
    const std::optional<SlotId> youngest =
        slots_.YoungestOf([this](SlotId id, const Active& active) {
          return running_.MayYield(id) && active.background;
        });
    if (!youngest) return;
    // With files it may go on in another socket's slot; while they are written, its chunks are
    // nobody else's.
    if (running_.Yield(*youngest) && !chunks_wanted && slots_.sockets() > 1)
      stored_.Store(*youngest);
  }
}

// All slots are taken, and a prompt waits that is much shorter than what one of them has yet to
// compute: the longest leaves its slot, and goes on later with what it has. Not the oldest, so that
// it is done in time, and none for more tokens than a part of its own prompt.
void RightOfWay::MakeWayForShort() {
  for (const SlotId id : running_.prompts()) {
    if (!slots_.active(id).makes_way) continue;
    running_.Yield(id);  // it had rows in flight
    return;
  }
  const auto is_new = [](const Active& active) {
    return !active.background && active.generated == 0;
  };
  const auto has_new = [&](SlotId id) { return is_new(slots_.active(id)); };
  if (std::ranges::count_if(running_.prompts(), has_new) < 2 ||
      slots_.actives() < slots_.limits().capacity.slots || !queue_.any_in_front())
    return;
  const std::optional<SlotId> oldest = running_.OldestPrompt(is_new);
  const std::vector<size_t> next = queue_.Next();
  if (next.empty()) return;
  const size_t rest = slots_.RestOf(queue_[next.front()]);
  std::optional<SlotId> longest;
  for (const SlotId id : running_.prompts()) {
    const Active& active = slots_.active(id);
    if (id == oldest || !is_new(active) || !running_.MayYield(id) ||
        slots_.LeftIn(id) < kMuchLonger * rest ||
        active.made_way + rest > active.to_compute().size() / kMostWay)
      continue;
    if (!longest || slots_.LeftIn(id) > slots_.LeftIn(*longest)) longest = id;
  }
  if (!longest) return;
  Active& active = slots_.active(*longest);
  active.made_way += rest;
  active.makes_way = true;
  running_.Yield(*longest);
}

// What the socket's running sequences need, with the next token's; what several share counts for
// each.
uint64_t RightOfWay::RunningBytes(AttentionId socket) const {
  uint64_t bytes = 0;
  const KvChunks& kv = slots_.kv();
  for (SlotId id(0); id < slots_.end(); ++id) {
    if (!running_.MayYield(id) || kv.socket_of(id) != socket) continue;
    // its whole prompt, from the beginning
    const size_t tokens = std::max(slots_[id].tokens.size(), slots_.active(id).to_compute().size());
    bytes += kv.shape().NeededBytes(tokens + 1);
  }
  return bytes;
}

bool RightOfWay::MayRunToo(const Active& active, AttentionId socket) const {
  if (!most_bytes_) return true;
  const uint64_t running = RunningBytes(socket);
  return running == 0 ||
         running + slots_.kv().shape().NeededBytes(active.to_compute().size() + 1) <= *most_bytes_;
}

// Texts grow: the youngest wait until those before them have ended.
void RightOfWay::KeepWithinActiveTokens() {
  if (!most_bytes_) return;
  for (AttentionId socket(0); socket.index() < slots_.sockets(); ++socket) {
    while (RunningBytes(socket) > *most_bytes_) {
      size_t running = 0;
      const std::optional<SlotId> youngest = slots_.YoungestOf([&](SlotId id, const Active&) {
        const bool runs = running_.MayYield(id) && slots_.kv().socket_of(id) == socket;
        running += runs;
        return runs;
      });
      if (running < 2) break;
      running_.Yield(*youngest);
    }
  }
}

}  // namespace larder::pipeline::sequences

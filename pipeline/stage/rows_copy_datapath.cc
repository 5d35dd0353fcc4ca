// Plain arithmetic, once per micro-batch, over few rows.
#include <algorithm>

#include "pipeline/stage/rows_copy.h"
#include "sync/copy_once.h"

namespace larder::pipeline::inline stage {
namespace {

template <typename T>
void Copy(std::vector<T>& to, const T* from, size_t count) {
  if (count > 0) sync::CopyOnce(to.data(), from, count * sizeof(T));
}

}  // namespace

const char* CheckKept(const model::BatchRows& part) {
  const Range<uint32_t> rows{part.first_row, part.first_row + part.rows};
  for (uint32_t i = 0; i < part.logit_rows; ++i) {
    const uint32_t row = part.logit_row[i];
    if (!rows.contains(row) || (i > 0 && row <= part.logit_row[i - 1]))
      return "rows with logits out of order";
  }
  return nullptr;
}

RowsCopy::RowsCopy(const RowsShape& shape)
    : shape_(shape),
      slot_(shape.capacity.max_batch_tokens),
      position_(shape.capacity.max_batch_tokens),
      kept_row_(shape.capacity.max_batch_tokens),
      kv_update_(shape.max_kv_updates()),
      kv_order_(kKvOrderPlaces) {}

const char* RowsCopy::Take(const Sent& sent) {
  kv_orders_ = 0;
  if (sent.rows > shape_.capacity.max_batch_tokens || sent.first_half > sent.rows)
    return "an impossible number of rows";
  if (sent.kept > kept_row_.size()) return "more rows with logits than there is room for";
  if (sent.kv_updates > kv_update_.size())
    return "more changes to the KV table than there is room for";
  if (sent.kv_orders > kv_order_.size()) return "more KV orders than there is room for";
  Copy(slot_, sent.slot, sent.rows);
  Copy(position_, sent.position, sent.rows);
  Copy(kept_row_, sent.kept_row, sent.kept);
  Copy(kv_update_, sent.kv_update, sent.kv_updates);
  Copy(kv_order_, sent.kv_order, sent.kv_orders);
  kv_orders_ = sent.kv_orders;
  if (const char* wrong = CheckKvOrders()) return wrong;
  if (const char* wrong = CheckKvUpdates(sent.kv_updates)) return wrong;
  if (const char* wrong = CheckRows(0, sent.first_half)) return wrong;
  return CheckRows(sent.first_half, sent.rows);
}

// The rows of a half, [begin, end). An attention step treats adjacent rows of one slot as one tile
// and reads only the first row's position, so there may be no gap between them.
const char* RowsCopy::CheckRows(size_t begin, size_t end) const {
  AttentionId socket(0);
  for (size_t m = begin; m < end; ++m) {
    const SlotId slot = slot_[m];
    if (slot.index() >= shape_.capacity.slots) return "a slot that does not exist";
    if (position_[m] >= shape_.capacity.context) return "a position beyond the context";
    if (m > begin && slot == slot_[m - 1] && position_[m] != position_[m - 1] + 1)
      return "a gap in the positions of a slot";
    if (shape_.slot_ends.empty()) continue;
    while (slot >= shape_.slot_ends[socket.index()]) ++socket;
    if (socket.index() > 0 && slot < shape_.slot_ends[socket.index() - 1])
      return "rows out of the attention sockets' order";
  }
  return nullptr;
}

// Slots, places and chunks exist, each chunk on its slot's attention socket, and what is copied is
// of the same class.
const char* RowsCopy::CheckKvUpdates(size_t count) const {
  for (const model::KvUpdate& update : std::span(kv_update_).first(count)) {
    const auto end =
        std::upper_bound(shape_.slot_ends.begin(), shape_.slot_ends.end(), update.slot);
    const auto socket = static_cast<size_t>(end - shape_.slot_ends.begin());
    const size_t classes = shape_.chunk_ends.size() / std::max<size_t>(shape_.slot_ends.size(), 1);
    Range<size_t> chunks{0, 0};
    for (size_t i = socket * classes; i < (socket + 1) * classes && i < shape_.chunk_ends.size() &&
                                      !chunks.contains(update.chunk);
         ++i)
      chunks = {i == 0 ? 0 : shape_.chunk_ends[i - 1], shape_.chunk_ends[i]};
    if (const char* wrong = update.Problem(shape_.capacity.slots, shape_.slot_chunks(), chunks))
      return wrong;
  }
  return nullptr;
}

const char* RowsCopy::CheckKvOrders() const {
  const Range<size_t> chunks{0, shape_.chunk_ends.empty() ? 0 : shape_.chunk_ends.back()};
  for (const KvOrder& order : kv_orders()) {
    if (const char* wrong = order.Problem(chunks)) return wrong;
  }
  return nullptr;
}

}  // namespace larder::pipeline::stage

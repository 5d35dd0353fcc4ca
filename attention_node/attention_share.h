// Which part of a micro-batch's attention each thread of a socket does. The work is ordered by KV
// head, then row, then chunk of what the row sees (kernels::kChunkPositions); each thread takes an
// equal part of the chunks. If a part ends inside a row, the row is split: the thread that has the
// row's first chunk merges the others' results in ascending order, so that the bits are those of
// one thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "base/range.h"
#include "model/layer/layer_spec.h"
#include "model/step/batch_rows.h"

namespace larder::attention_node {

// A place in that order. chunk: counted from the first one that the row sees; > 0: inside the row.
struct WorkPoint {
  uint32_t head = 0, row = 0, chunk = 0;
  auto operator<=>(const WorkPoint&) const = default;
};

// Chunks of the context of which row `row` of the micro-batch sees something, in a layer with that
// window (LayerSpec::window).
uint32_t ContextChunks(const model::BatchRows&, uint32_t row, size_t window);

// Where the work of `thread` begins and that of `thread` - 1 ends; for thread == threads:
// {kv_heads, 0, 0}. Rows are split only if threads have few of them; otherwise the work begins at
// the nearest beginning of a row.
WorkPoint WorkBegin(const model::BatchRows&, size_t kv_heads, size_t window, size_t thread,
                    size_t threads);

// Those of the `threads` threads whose part can touch a KV head in any micro-batch; at least one.
// The first of them appends the head's keys and values. The work of all others can begin inside a
// row of the head.
Range<size_t> OwnersOf(size_t kv_head, size_t kv_heads, size_t threads);
// The same of any group of a layer (model::RowsOfHead).
Range<size_t> OwnersOfGroup(const model::LayerSpec&, size_t group, size_t threads);
// The thread that updates the state of a recurrent layer's `nth` value head, in the order of their
// KV heads. Threads have equal numbers of value heads, or one more.
size_t OwnerOfState(const model::LayerSpec&, size_t nth, size_t threads);

}  // namespace larder::attention_node

// KvChannel: the way from the index of a KV cache (kv_chunks.h) to the bytes of its chunks:
// directly if they are in this process, otherwise by orders to the sockets that hold them. A chain
// has one (pipeline/chain/chain.h), and so has the engine that drives it. Only the thread of that
// engine may use it.
#pragma once

#include <cstdint>

#include "pipeline/kv/kv_order_book.h"
#include "topology/scattered_bytes.h"

namespace larder::pipeline::inline kv {

class KvChannel {
 public:
  virtual ~KvChannel() = default;

  // The keys and values of a chunk, of all layers (attention_node/kv_region.h), for copying while
  // no micro-batch writes them: a full chunk at any time, a free one until a slot lists it. Empty:
  // they are in another process, or on several sockets.
  virtual topology::ScatteredBytes Memory(uint32_t chunk) = 0;
  // Orders for the files of the sockets that hold the chunks, which go with the next micro-batch;
  // null: Memory has all of them.
  virtual KvOrderBook* orders() = 0;
  // Sends orders, and takes reports, while no micro-batch is in flight. Throws ChainLostError.
  virtual void Poll() = 0;
  // If the chain can be lost, treats it as lost and throws ChainLostError; otherwise does nothing.
  virtual void Lose(const char* why) = 0;
};

}  // namespace larder::pipeline::kv

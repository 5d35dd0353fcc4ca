// KvPart: a socket's part of the KV chunks of a chain, and its own files of them. A chunk's keys
// and values lie in as many parts as the chain has stages; each part does what the serving socket
// orders (pipeline/kv/kv_order.h), under a ticket that says nothing about tokens, and reports how
// it ended. The thread that computes the socket's micro-batches gives it orders between two of
// them; files are read and written by a thread of low priority.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipeline/kv/kv_order.h"
#include "pipeline/kv_store/kv_files.h"
#include "pipeline/kv_store/kv_mover.h"

namespace larder::pipeline::inline kv_store {

struct KvPartOptions {
  std::string folder;  // each socket has one of its name in it; empty: no files, all orders fail
  uint64_t most_bytes = 0;  // of a socket's files
  // Called on another thread with a line for people.
  std::function<void(const std::string&)> on_problem = [](const std::string&) {};
  std::vector<CpuId> cpus;  // KvMover::Options::cpus
  int stuck_ms = 10'000;    // for which a file may be in the way of the next chain
};

class KvPart {
 public:
  // Other sockets of this server that hold parts of the same layers, of other sequences: what they
  // have stored is loaded, too, since a sequence may go on here that was there.
  using Siblings = std::vector<std::string>;
  // The memory of a chunk; of all chunks it has the same size.
  using Memory = std::function<std::span<uint8_t>(uint32_t chunk)>;

  // model: StagePlan::identity(), all that the chunks' bytes depend on besides tokens. Throws
  // Error: the folder can't be used.
  KvPart(const KvPartOptions& options, const std::string& socket, uint64_t model, Memory memory,
         const Siblings& siblings = {});

  // Begins what is ordered, in that order but for loads, which go first. The orders have been
  // checked. One whose place has not ended is ignored.
  void Take(std::span<const KvOrder> orders);
  // Updates the report.
  void Collect();
  const KvReport& report() const { return report_; }
  // Forgets all orders. Nothing writes to a chunk any more when it returns. If a file can't be read
  // or written for stuck_ms, the process ends (status 75, a line): only without it is the chunk
  // safe.
  void Abandon();

 private:
  void End(uint32_t place, bool failed);

  const KvPartOptions options_;
  const Memory memory_;
  std::unique_ptr<KvFiles> files_;
  std::unique_ptr<KvMover> mover_;  // null: no files
  KvReport report_{.done = ~uint64_t{0}};
};

}  // namespace larder::pipeline::kv_store

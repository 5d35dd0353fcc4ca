// Stations: the way of micro-batches through a chain in virtual time. A micro-batch that enters
// goes over a link to the first stage and so on, and back to the serving socket; each stage and
// each link has one at a time, in the order in which they came:
//   start = max(arrival, end of the one before), end = start + time there
// So there is no queue of events: a micro-batch's whole way is known when it enters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace larder::pipeline::inline simulation {

// What the time of a micro-batch depends on.
struct StepLoad {
  size_t rows = 0;
  size_t wanted = 0;  // rows of which logits or hidden states are wanted
  // [attention socket], one if attention is colocated: the positions that its rows attend to, their
  // own included, of all rows together.
  std::span<const uint64_t> positions;
  uint64_t held = 0;  // positions that its sequences have in the KV cache: rows of a prompt share
                      // them
};

// How long a micro-batch takes where.
class ServiceTimes {
 public:
  struct Link {
    uint64_t busy_ns = 0;     // until the next frame can be sent
    uint64_t latency_ns = 0;  // and then on its way
  };
  virtual ~ServiceTimes() = default;
  virtual size_t stages() const = 0;  // constant
  virtual uint64_t StageNs(size_t stage, const StepLoad&) = 0;
  // Of a frame with so many rows. No time if there are no links.
  virtual Link LinkOf(size_t rows) = 0;
  // What the serving socket does when the micro-batch is back.
  virtual uint64_t ServingNs(const StepLoad&) = 0;
  // The serving socket has the cores of the first stage.
  virtual bool serves_beside() const { return false; }
};

class Stations {
 public:
  explicit Stations(ServiceTimes& times)
      : times_(times), stages_(times.stages()), links_(times.stages() + 1) {}

  // When a micro-batch that enters at that time is back at the serving socket.
  uint64_t Pass(const StepLoad& load, uint64_t now_ns);
  // When the serving socket, which begins at that time or later, is done with it.
  uint64_t Serve(const StepLoad& load, uint64_t now_ns);

  // How long the stage, or the serving socket, has computed so far.
  uint64_t stage_busy_ns(size_t stage) const { return stages_[stage].busy_ns; }
  uint64_t serving_busy_ns() const { return serving_.busy_ns; }

 private:
  struct Station {
    uint64_t free_ns = 0, busy_ns = 0;
    uint64_t Take(uint64_t at_ns, uint64_t takes_ns);
  };
  uint64_t Send(size_t link, size_t rows, uint64_t at_ns);

  ServiceTimes& times_;
  std::vector<Station> stages_, links_;
  Station serving_;
};

}  // namespace larder::pipeline::simulation

// ScheduledGemms: one product with many schedules, each made when a search asks for it. Set-up
// only.
#pragma once

#include <vector>

#include "kernels/formats/isa.h"
#include "kernels/formats/schedule.h"
#include "kernels/gemm/gemm.h"

namespace larder::kernels::inline tune {

class ScheduledGemms {
 public:
  ScheduledGemms(Isa isa, const GemmShape& shape) : isa_(isa), shape_(shape) {}

  // The product with this schedule for every number of rows. The schedule must fit (ScheduleFits).
  // Generates and checks a tile's code when it is first asked for; the result is valid until the
  // next call.
  const Gemm& Of(const Schedule&);

 private:
  const Isa isa_;
  const GemmShape shape_;
  struct Made {
    TileSpec tile;
    SliceSpec slice;
    Gemm gemm;
  };
  std::vector<Made> made_;
};

}  // namespace larder::kernels::tune

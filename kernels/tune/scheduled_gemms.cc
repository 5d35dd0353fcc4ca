#include "kernels/tune/scheduled_gemms.h"

#include "kernels/formats/tuning.h"

namespace larder::kernels::inline tune {

const Gemm& ScheduledGemms::Of(const Schedule& schedule) {
  for (Made& made : made_) {
    // Reslice keeps the tiles, which are others for slices that are unpacked.
    if (!(made.tile == schedule.tile) || made.slice.unpacked != schedule.slice.unpacked) continue;
    if (!(made.slice == schedule.slice)) made.gemm.Reslice(made.slice = schedule.slice);
    return made.gemm;
  }
  KernelTuning tuning;
  tuning.products.Fill(schedule);
  made_.push_back({schedule.tile, schedule.slice, Gemm::Make(isa_, shape_, tuning)});
  return made_.back().gemm;
}

}  // namespace larder::kernels::tune

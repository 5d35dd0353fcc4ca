// Any bytes over a valid frame: it is refused, or every index that a stage would use is in range.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "pipeline/stage_frame_testing.h"

namespace larder::pipeline {
namespace {

void Check(const uint8_t* data, size_t size) {
  TestFrame frame(TestFrameShape());
  if (size > 0) frame.bytes.resize(std::min(frame.bytes.size(), size_t{40} + 8 * data[0]));
  for (size_t i = 1; i < size && i <= frame.bytes.size(); ++i) frame.bytes[i - 1] ^= std::byte{data[i]};
  for (const bool from_last : {false, true}) {
    if (frame.Check(from_last) != nullptr) continue;
    const StageFrameHeader header = frame.view().header();
    if (header.kind == StageFrameHeader::Kind::kStop) continue;
    LARDER_CHECK(header.rows >= 1 && header.rows <= frame.shape.max_rows && header.first_half < header.rows);
    LARDER_CHECK(frame.bytes.size() >= frame.shape.bytes(header.residual_rows));
    for (uint32_t m = 0; m < header.rows; ++m) {
      LARDER_CHECK(frame.view().slot()[m] >= 0 && frame.view().slot()[m] < 5 &&
                   frame.view().position()[m] < 100);
    }
    for (uint32_t i = 0; i < header.logit_rows; ++i) LARDER_CHECK(frame.view().logit_row()[i] < header.rows);
  }
}

}  // namespace
}  // namespace larder::pipeline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::pipeline::Check(data, size);
  return 0;
}

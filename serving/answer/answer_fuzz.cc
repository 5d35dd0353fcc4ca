// Arbitrary text in every format. The first byte is the format, the second the options, the third
// how the text is cut.
#include <cstdint>
#include <string_view>

#include "serving/answer/answer_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace larder::serving;
  if (size < 3) return 0;
  const auto names = AnswerFormatNames();
  AnswerParserOptions options{.format = *AnswerFormatByName(names[data[0] % names.size()])};
  options.parse_tools = (data[1] & 1) == 0;
  options.parse_reasoning = (data[1] & 2) == 0;
  options.starts_in_reasoning = (data[1] & 4) != 0;
  if ((data[1] & 8) != 0) options.tools = SomeTools();
  CheckAnyText(options, {reinterpret_cast<const char*>(data + 3), size - 3}, data[2]);
  return 0;
}

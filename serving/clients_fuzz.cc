// Any bytes as what a client sends, over HTTP and the text stream, in pieces as the first byte says: each is
// answered or refused, and nothing is begun that is not a request.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "serving/http_session.h"
#include "serving/sessions_testing.h"
#include "serving/text_session.h"

namespace larder::serving {
namespace {

void Feed(Session& session, const TestWire& wire, std::string_view bytes, size_t piece) {
  while (!bytes.empty() && !wire.closed) {
    if (!session.wants_bytes()) break;
    session.OnBytes(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  session.OnEndOfInput();
}

// As the routes do, for those who get no further than the protocol.
void Convert(std::string_view text, const TestState& test) {
  for (const Dialect dialect : {Dialect::kCompletion, Dialect::kChat, Dialect::kNative}) {
    try {
      const CompletionRequest request = ReadCompletionRequest(ParseJson(text), dialect, test.state.defaults);
      const auto specs = MakeSpecs(request, test.state.defaults);
      LARDER_CHECK(specs.size() == request.choices() && specs.size() <= kMostChoices);
      for (const GenerationSpec& spec : specs) {
        LARDER_CHECK(!spec.prompt.empty() && spec.prompt.size() <= TestState::kContext);
        Validate(spec.sampling, test.state.defaults.vocab);
        const StopStrings stops(spec.stops);
      }
    } catch (const Refused& refused) {
      LARDER_CHECK(refused.status() >= 400 && refused.status() < 600 && refused.what()[0] != '\0');
      Dump(ErrorJson(refused.status(), refused.what(), refused.param()));
    }
  }
}

void Check(std::string_view bytes) {
  if (bytes.empty()) return;
  const size_t piece = bytes[0] == 0 ? SIZE_MAX : static_cast<unsigned char>(bytes[0]);
  bytes.remove_prefix(1);
  TestState test;
  Convert(bytes, test);
  TestWire http_wire, text_wire;
  HttpSession http(http_wire, test.state, {.header_bytes = 4096, .body_bytes = 65536});
  Feed(http, http_wire, bytes, piece);
  TextSession text(text_wire, test.state, {.line_bytes = 4096, .requests = 4});
  Feed(text, text_wire, bytes, piece);
}

}  // namespace
}  // namespace larder::serving

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::serving::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}

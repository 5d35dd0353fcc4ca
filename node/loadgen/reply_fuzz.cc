// Fuzzes the client of `larder bench-serve` with any bytes as the server's reply: they are
// understood or refused, and the outcome is the same in one piece or several. An input begins with
// a byte for the kind of endpoint and how the connection ends, and one for the sizes of the pieces.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "node/loadgen/serve_wire.h"

namespace larder::node::inline loadgen {
namespace {

struct Outcome {
  bool done = false, threw = false, keep_alive = false;
  RequestResult result;
};

Outcome Read(EndpointKind kind, std::string_view bytes, size_t piece, bool closes) {
  Outcome outcome;
  ReplyReader reader(kind);
  try {
    for (int64_t now = 1; !bytes.empty() && !outcome.done; ++now) {
      outcome.done = reader.Feed(bytes.substr(0, piece), now, outcome.result);
      bytes.remove_prefix(std::min(piece, bytes.size()));
    }
    if (!outcome.done && closes) outcome.done = reader.Close(outcome.result);
  } catch (const Error& error) {
    LARDER_CHECK(*error.what() != '\0');
    outcome.threw = true;
  }
  if (outcome.done) {
    outcome.keep_alive = reader.keep_alive();
    LARDER_CHECK(outcome.result.ok == outcome.result.error.empty(), "done is ok or says why not");
    LARDER_CHECK(outcome.result.gaps_ns.size() <= outcome.result.text_bytes, "each piece has text");
  }
  return outcome;
}

void CheckReader(EndpointKind kind, std::string_view bytes, size_t piece, bool closes) {
  const Outcome whole = Read(kind, bytes, bytes.size(), closes);
  const Outcome pieces = Read(kind, bytes, piece, closes);
  // Bytes after the reply's end are noticed only if they arrive in one piece with it.
  if (whole.threw || pieces.threw) return;
  LARDER_CHECK(whole.done == pieces.done && whole.result.ok == pieces.result.ok &&
                   whole.result.error == pieces.result.error &&
                   whole.result.text_bytes == pieces.result.text_bytes &&
                   whole.result.output_tokens == pieces.result.output_tokens &&
                   whole.result.prompt_tokens == pieces.result.prompt_tokens &&
                   whole.keep_alive == pieces.keep_alive,
               "pieces of {} bytes are understood otherwise", piece);
}

void CheckHttp(std::string_view bytes, size_t piece) {
  HttpReplyParser whole, pieces;
  std::string whole_body, pieces_body;
  bool threw = false;
  try {
    whole.Feed(bytes, whole_body);
  } catch (const Error&) {
    threw = true;
  }
  try {
    for (std::string_view rest = bytes; !rest.empty();
         rest.remove_prefix(std::min(piece, rest.size())))
      pieces.Feed(rest.substr(0, piece), pieces_body);
    LARDER_CHECK(!threw, "refused at once, taken in pieces");
  } catch (const Error&) {
    LARDER_CHECK(threw, "taken at once, refused in pieces");
  }
  LARDER_CHECK(whole_body == pieces_body && whole_body.size() <= bytes.size());
  LARDER_CHECK(threw || (whole.done() == pieces.done() && whole.status() == pieces.status()));
}

void Check(std::string_view input) {
  if (input.size() < 2) return;
  const auto choice = static_cast<uint8_t>(input[0]);
  const size_t piece = 1 + static_cast<uint8_t>(input[1]);
  input.remove_prefix(2);
  constexpr EndpointKind kKinds[] = {EndpointKind::kCompletions, EndpointKind::kChat,
                                     EndpointKind::kText};
  CheckReader(kKinds[choice % 3], input, piece, (choice & 0x80) == 0);
  CheckHttp(input, piece);
}

}  // namespace
}  // namespace larder::node::loadgen

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::node::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}

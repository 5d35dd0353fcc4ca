// Arbitrary bodies of multipart/form-data. The first byte is the length of the pieces that they
// come in. The parts do not depend on it, and no more than a header and a boundary is held back.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "serving/http/multipart.h"

namespace larder::serving::inline http {
namespace {

struct Told : MultipartParser::Sink {
  void OnPart(std::string name, std::string filename) override {
    LARDER_CHECK(!name.empty());
    text += "\n[" + name + "|" + filename + "]";
    ++parts;
  }
  void OnData(std::string_view bytes) override {
    LARDER_CHECK(parts > 0 && !bytes.empty());
    text += bytes;
  }
  std::string text;
  size_t parts = 0;
};

std::string Parse(std::string_view body, size_t piece) {
  Told told;
  MultipartParser parser("b", told);
  bool good = true;
  while (!body.empty() && good) {
    good = parser.Feed(body.substr(0, piece));
    body.remove_prefix(std::min(piece, body.size()));
  }
  LARDER_CHECK(good == parser.error().empty() && !(parser.done() && !good));
  LARDER_CHECK(told.parts <= MultipartParser::kMostParts);
  // What came before an error depends on the pieces, since data is passed on at once.
  return parser.done() ? told.text + "\nend" : good ? "cut" : parser.error();
}

void Check(std::string_view bytes) {
  if (bytes.empty()) return;
  const size_t piece = std::max<size_t>(static_cast<unsigned char>(bytes[0]), 1);
  bytes.remove_prefix(1);
  LARDER_CHECK(Parse(bytes, piece) == Parse(bytes, SIZE_MAX));
  BoundaryOf(bytes);
}

}  // namespace
}  // namespace larder::serving::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::serving::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}

// Any text is a template that is parsed and rendered, or refused with one line; what is trusted
// never comes from the data. An input is a template, and behind a zero byte JSON variables, if they
// are JSON.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "model/jinja/jinja_template.h"

namespace larder::model::inline jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kVariables[] =
    R"({"messages": [{"role": "system", "content": "\u0001sys"}, {"role": "user",
  "content": "\u0001hi \u00fc", "tool_calls": [{"function": {"name": "\u0001f", "arguments": {"a": [1, 2.5, null, true]}}}]}],
  "tools": [{"function": {"name": "\u0001f", "parameters": {"properties": {"x": {"type": "string"}}}}}],
  "s": "\u0001a,b c", "n": -3, "f": 0.5, "l": [3, 1, 2], "d": {"k": "\u0001v"}})";

void CheckLine(std::string_view what) {
  LARDER_CHECK(what.starts_with("fuzz: "), "{}", what);
  for (const char c : what) LARDER_CHECK(static_cast<uint8_t>(c) >= 0x20, "{}", what);
}

void Check(std::string_view input) {
  const size_t zero = input.find('\0');
  static const Json own = Json::parse(kVariables);
  Json variables = own;
  bool with_own = true;
  if (zero != input.npos) {
    Json given = Json::parse(input.substr(zero + 1), nullptr, /*allow_exceptions=*/false);
    if (given.is_object()) {
      variables = std::move(given);
      with_own = false;
    }
  }
  JinjaLimits limits;
  limits.steps = 20'000;
  limits.output_bytes = 1 << 20;
  limits.memory_bytes = 8 << 20;
  JinjaVariables in;
  for (const auto& [name, value] : variables.items()) in.data.emplace_back(name, &value);
  in.trusted = {{"bos_token", "<s>"}};
  try {
    const std::string source(input.substr(0, zero));
    const auto pieces = JinjaTemplate::Parse(source, "fuzz", limits)->Render(in);
    // \x01 is only in the data, unless the template can make one.
    const bool makes =
        source.find('\1') != std::string::npos || source.find('\\') != std::string::npos ||
        source.find('%') != std::string::npos || source.find("format") != std::string::npos;
    for (size_t i = 0; i < pieces.size(); ++i) {
      LARDER_CHECK(!pieces[i].text.empty(), "an empty piece");
      LARDER_CHECK(i == 0 || pieces[i].trusted != pieces[i - 1].trusted, "pieces alternate");
      if (with_own && !makes && pieces[i].trusted)
        LARDER_CHECK(pieces[i].text.find('\1') == std::string::npos, "data became trusted");
    }
  } catch (const Error& error) {
    CheckLine(error.what());
  }
}

}  // namespace
}  // namespace larder::model::jinja

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::model::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}

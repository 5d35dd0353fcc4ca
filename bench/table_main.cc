#include "bench/table_main.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "bench/ratio.h"

namespace larder::bench {
namespace {

using kernels::Isa;

size_t ParseSize(const char* option, const char* text, size_t least, size_t most) {
  size_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, failed] = std::from_chars(text, end, value);
  if (failed != std::errc() || stop != end || value < least || value > most)
    throw Error("{} {}: expected a number from {} to {}", option, text, least, most);
  return value;
}

Isa ParseIsa(const char* text) {
  const std::optional<Isa> named = kernels::IsaByName(text);
  if (!named || *named == Isa::kScalar)
    throw Error("--isa {}: expected avx512-vnni, avx-vnni or avx2; the scalar set is a reference",
                text);
  return *named;
}

}  // namespace

int RunTable(int argc, char** argv, std::initializer_list<SizeOption> options,
             const std::function<void(Isa)>& measure) {
  try {
    Isa isa = kernels::BestIsa();
    CpuId cpu = Cpus(1)[0];
    for (int i = 1; i < argc; i += 2) {
      if (i + 1 == argc) throw Error("{}: expected a value", argv[i]);
      const std::string_view name = argv[i];
      const auto option = std::find_if(options.begin(), options.end(),
                                       [&](const SizeOption& one) { return one.name == name; });
      if (option != options.end()) {
        *option->value = ParseSize(argv[i], argv[i + 1], option->least, option->most);
      } else if (name == "--isa") {
        isa = ParseIsa(argv[i + 1]);
      } else if (name == "--cpu") {
        cpu = CpuId(static_cast<int32_t>(ParseSize(argv[i], argv[i + 1], 0, 1 << 14)));
      } else {
        throw Error("{}: unknown; the first lines of the program's source name its options", name);
      }
    }
    if (!kernels::HostHas(isa) || isa == Isa::kScalar)
      throw Error("this CPU has no {}: nothing to measure",
                  isa == Isa::kScalar ? "AVX2" : kernels::IsaName(isa));
    const Pinned pinned(cpu);
    measure(isa);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace larder::bench

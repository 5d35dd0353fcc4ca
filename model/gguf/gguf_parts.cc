// The last step of GgufFile::Open: a model in several files, as llama.cpp's gguf-split writes them.
// The paths of the further parts are the given path with another number, so that no file's content
// chooses what is opened.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "model/gguf/gguf_impl.h"

namespace larder::model::inline gguf {
namespace {

constexpr const char *kNumber = "split.no", *kCount = "split.count",
                     *kTensors = "split.tensors.count";

constexpr std::string_view kSuffix = "-00000-of-00000.gguf";
constexpr size_t kNumberAt = 1, kCountAt = 10, kDigits = 5;  // places in kSuffix

// What the path of a part says: STEM-NUMBER-of-COUNT.gguf, with numbers from 1 to COUNT.
struct PartPath {
  std::string stem;  // with the folder
  uint32_t number = 0;
  uint32_t count = 0;

  std::string Of(uint32_t other) const {
    return fmt::format("{}-{:05}-of-{:05}.gguf", stem, other, count);
  }
};

std::optional<PartPath> ParsePartPath(const std::string& path) {
  if (path.size() < kSuffix.size()) return {};
  PartPath parsed{.stem = path.substr(0, path.size() - kSuffix.size())};
  const std::string suffix = path.substr(parsed.stem.size());
  const auto parse = [&suffix](size_t at, uint32_t& value) {
    const char *digits = suffix.data() + at, *end = digits + kDigits;
    return std::from_chars(digits, end, value).ptr == end;
  };
  if (!parse(kNumberAt, parsed.number) || !parse(kCountAt, parsed.count)) return {};
  // Written again, the numbers must give the same path: this checks all other characters.
  if (parsed.Of(parsed.number) != path || parsed.number < 1 || parsed.number > parsed.count)
    return {};
  return parsed;
}

// Checks what a part says of itself against its path.
void CheckNumbers(const GgufFile& file, const PartPath& said) {
  if (const uint64_t count = file.GetUnsigned(kCount); count != said.count) {
    throw Error("{}: key '{}' is {}, expected {} as in the file's name", file.path(), kCount, count,
                said.count);
  }
  if (const uint64_t number = file.GetUnsigned(kNumber); number != said.number - 1) {
    throw Error("{}: key '{}' is {} (from 0), expected {} for part {} as in the file's name",
                file.path(), kNumber, number, said.number - 1, said.number);
  }
}

}  // namespace

bool IsPartsKey(std::string_view key) { return key == kNumber || key == kCount || key == kTensors; }

void GgufFile::OpenParts() {
  const uint64_t count = FindUnsigned(kCount).value_or(0);
  if (count <= 1) return;  // 0: merged again by gguf-split
  std::optional<PartPath> said = ParsePartPath(path());
  if (!said) {
    throw Error(
        "{}: key '{}' is {}: a part of a model, but its name does not say which; expected a name "
        "that ends in -00001-of-{:05}.gguf: give the parts the names that they had",
        path(), kCount, count, count);
  }
  CheckNumbers(*this, *said);
  if (said->number != 1) {
    throw Error("{}: is part {} of {} of a model, expected the first: give {}", path(),
                said->number, count, said->Of(1));
  }
  const uint64_t expected = GetUnsigned(kTensors);
  std::vector<TensorInfo>& tensors = impl_->tensors;
  const auto wrong_total = [&] {
    return Error(
        "{}: key '{}' is {}, but parts 1 to {} of {} have {} tensors: expected the parts of one "
        "model",
        path(), kTensors, expected, said->number, count, tensors.size());
  };
  if (expected > kMaxTensors)
    throw Error("{}: key '{}' is {}, expected at most {}", path(), kTensors, expected, kMaxTensors);
  const std::string why =
      fmt::format("; the model is in {} files, expected all in one folder", count);
  while (said->number < said->count) {
    ++said->number;
    GgufFile part;
    part.impl_->OpenFile(said->Of(said->number), why);
    CheckNumbers(part, *said);
    if (const auto total = part.FindUnsigned(kTensors); total && *total != expected) {
      throw Error("{}: key '{}' is {}, expected {} as in {}", part.path(), kTensors, *total,
                  expected, path());
    }
    for (TensorInfo& tensor : part.impl_->tensors) tensor.part = said->number - 1;
    std::ranges::move(part.impl_->tensors, std::back_inserter(tensors));
    impl_->parts.push_back(std::move(part.impl_->parts.front()));
    impl_->further.push_back(std::move(part.impl_->fd));
    if (tensors.size() > expected) throw wrong_total();  // before more parts take memory
  }
  if (tensors.size() != expected) throw wrong_total();
  impl_->IndexTensors();
}

std::string GgufFile::stem() const {
  const std::optional<PartPath> said = parts().size() > 1 ? ParsePartPath(path()) : std::nullopt;
  const std::filesystem::path file(path());
  return said ? std::filesystem::path(said->stem).filename().string() : file.stem().string();
}

}  // namespace larder::model::gguf

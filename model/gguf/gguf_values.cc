// GgufFile's metadata: typed look-up and text.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "model/gguf/gguf_impl.h"

namespace larder::model::inline gguf {
namespace {

using Type = GgufValueType;

// An integer of any width: the bits of the value, sign-extended, and whether it is negative.
struct Integer {
  uint64_t bits = 0;
  bool negative = false;
};

template <typename T>
Integer ToInteger(const char* at) {
  const T value = LoadAt<T>(at);
  return {static_cast<uint64_t>(value), value < T{0}};
}

std::optional<Integer> LoadInteger(Type type, const char* at) {
  switch (type) {
    case Type::kU8:
      return ToInteger<uint8_t>(at);
    case Type::kI8:
      return ToInteger<int8_t>(at);
    case Type::kU16:
      return ToInteger<uint16_t>(at);
    case Type::kI16:
      return ToInteger<int16_t>(at);
    case Type::kU32:
      return ToInteger<uint32_t>(at);
    case Type::kI32:
      return ToInteger<int32_t>(at);
    case Type::kU64:
      return ToInteger<uint64_t>(at);
    case Type::kI64:
      return ToInteger<int64_t>(at);
    default:
      return std::nullopt;
  }
}

std::string_view LoadString(const char*& at) {
  const auto bytes = LoadAt<uint64_t>(at);
  const std::string_view text(at + 8, bytes);
  at += 8 + bytes;
  return text;
}

[[noreturn]] void WrongType(const std::string& path, const GgufFile::Entry& entry,
                            std::string_view expected) {
  const std::string_view element = GgufValueTypeName(entry.element_type);
  if (entry.type == Type::kArray) {
    throw Error("{}: key {} is an array of {} values, expected {}", path, Quoted(entry.key),
                element, expected);
  }
  throw Error("{}: key {} is a {}, expected {}", path, Quoted(entry.key), element, expected);
}

[[noreturn]] void Missing(const std::string& path, std::string_view key,
                          std::string_view expected) {
  throw Error("{}: key {} is missing, expected {}", path, Quoted(key), expected);
}

constexpr std::string_view kUnsigned = "an unsigned integer";
constexpr std::string_view kFloat = "a float";
constexpr std::string_view kString = "a string";

}  // namespace

size_t GgufValueBytes(GgufValueType type) {
  switch (type) {
    case Type::kU8:
    case Type::kI8:
    case Type::kBool:
      return 1;
    case Type::kU16:
    case Type::kI16:
      return 2;
    case Type::kU32:
    case Type::kI32:
    case Type::kF32:
      return 4;
    case Type::kU64:
    case Type::kI64:
    case Type::kF64:
      return 8;
    case Type::kString:
    case Type::kArray:
      return 0;
  }
  return 0;
}

std::string_view GgufValueTypeName(GgufValueType type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  const auto i = static_cast<uint32_t>(type);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

std::string Quoted(std::string_view text, size_t max_bytes) {
  size_t end = std::min(text.size(), max_bytes);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end;
  std::string out = "'";
  for (const char c : text.substr(0, end)) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (u < 0x20 || u == 0x7f) {
      out += fmt::format("\\x{:02x}", u);
    } else {
      out += c;
    }
  }
  out += end < text.size() ? "...'" : "'";
  return out;
}

ptrdiff_t GgufFile::Impl::FindEntry(std::string_view key) const {
  const auto key_of = [this](uint32_t i) -> std::string_view { return entries[i].key; };
  const auto it = std::ranges::lower_bound(by_key, key, {}, key_of);
  return it != by_key.end() && key_of(*it) == key ? static_cast<ptrdiff_t>(*it) : -1;
}

std::string_view GgufFile::RawValue(const Entry& entry) const {
  const auto i = static_cast<size_t>(&entry - impl_->entries.data());
  LARDER_CHECK(i < impl_->entries.size(), "an entry of another file");
  // In front of the value lie its type and, for an array, the type and number of its elements.
  const uint64_t first = impl_->payloads[i] - (entry.type == GgufValueType::kArray ? 4 + 4 + 8 : 4);
  return {impl_->header.data() + first, impl_->ends[i] - first};
}

bool GgufFile::Has(std::string_view key) const { return impl_->FindEntry(key) >= 0; }

bool GgufFile::IsArray(std::string_view key) const {
  const ptrdiff_t i = impl_->FindEntry(key);
  return i >= 0 && impl_->entries[i].type == Type::kArray;
}

std::optional<uint64_t> GgufFile::FindUnsigned(std::string_view key) const {
  const ptrdiff_t i = impl_->FindEntry(key);
  if (i < 0) return std::nullopt;
  const auto value = LoadInteger(impl_->entries[i].type, impl_->header.data() + impl_->payloads[i]);
  if (!value) WrongType(impl_->path, impl_->entries[i], kUnsigned);
  if (value->negative) {
    throw Error("{}: key {} is {}, expected an unsigned integer", impl_->path, Quoted(key),
                static_cast<int64_t>(value->bits));
  }
  return value->bits;
}

std::optional<int64_t> GgufFile::FindSigned(std::string_view key) const {
  const ptrdiff_t i = impl_->FindEntry(key);
  if (i < 0) return std::nullopt;
  const auto value = LoadInteger(impl_->entries[i].type, impl_->header.data() + impl_->payloads[i]);
  if (!value) WrongType(impl_->path, impl_->entries[i], "an integer");
  if (!value->negative &&
      value->bits > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    throw Error("{}: key {} is {}, expected a signed 64-bit integer", impl_->path, Quoted(key),
                value->bits);
  }
  return static_cast<int64_t>(value->bits);
}

std::optional<double> GgufFile::FindFloat(std::string_view key) const {
  const ptrdiff_t i = impl_->FindEntry(key);
  if (i < 0) return std::nullopt;
  const char* at = impl_->header.data() + impl_->payloads[i];
  if (impl_->entries[i].type == Type::kF32) return LoadAt<float>(at);
  if (impl_->entries[i].type == Type::kF64) return LoadAt<double>(at);
  WrongType(impl_->path, impl_->entries[i], kFloat);
}

std::optional<bool> GgufFile::FindBool(std::string_view key) const {
  const ptrdiff_t i = impl_->FindEntry(key);
  if (i < 0) return std::nullopt;
  if (impl_->entries[i].type != Type::kBool) WrongType(impl_->path, impl_->entries[i], "a bool");
  return impl_->header[impl_->payloads[i]] != 0;
}

std::optional<std::string_view> GgufFile::FindString(std::string_view key) const {
  const ptrdiff_t i = impl_->FindEntry(key);
  if (i < 0) return std::nullopt;
  if (impl_->entries[i].type != Type::kString) WrongType(impl_->path, impl_->entries[i], kString);
  const char* at = impl_->header.data() + impl_->payloads[i];
  return LoadString(at);
}

std::optional<std::vector<std::string_view>> GgufFile::FindStrings(std::string_view key) const {
  const ptrdiff_t i = impl_->FindEntry(key);
  if (i < 0) return std::nullopt;
  const Entry& entry = impl_->entries[i];
  if (entry.type != Type::kArray || entry.element_type != Type::kString) {
    WrongType(impl_->path, entry, "an array of strings");
  }
  const char* at = impl_->header.data() + impl_->payloads[i];
  std::vector<std::string_view> values(entry.count);
  for (std::string_view& value : values) value = LoadString(at);
  return values;
}

std::optional<std::vector<int32_t>> GgufFile::FindInts(std::string_view key) const {
  const ptrdiff_t i = impl_->FindEntry(key);
  if (i < 0) return std::nullopt;
  const Entry& entry = impl_->entries[i];
  const char* at = impl_->header.data() + impl_->payloads[i];
  const size_t bytes = GgufValueBytes(entry.element_type);
  const bool is_integer = bytes != 0 && entry.element_type != Type::kF32 &&
                          entry.element_type != Type::kF64 && entry.element_type != Type::kBool;
  if (entry.type != Type::kArray || !is_integer)
    WrongType(impl_->path, entry, "an array of integers");
  std::vector<int32_t> values(entry.count);
  for (size_t k = 0; k < values.size(); ++k) {
    const Integer value = *LoadInteger(entry.element_type, at + k * bytes);
    const auto as_signed = static_cast<int64_t>(value.bits);
    if (as_signed < std::numeric_limits<int32_t>::min() ||
        as_signed > std::numeric_limits<int32_t>::max() || (as_signed < 0 && !value.negative)) {
      throw Error("{}: key {}: value {} does not fit 32 signed bits", impl_->path, Quoted(key), k);
    }
    values[k] = static_cast<int32_t>(as_signed);
  }
  return values;
}

std::optional<std::vector<bool>> GgufFile::FindFlags(std::string_view key) const {
  const ptrdiff_t i = impl_->FindEntry(key);
  if (i < 0) return std::nullopt;
  const Entry& entry = impl_->entries[i];
  const char* at = impl_->header.data() + impl_->payloads[i];
  const size_t bytes = GgufValueBytes(entry.element_type);
  const bool is_flag =
      bytes != 0 && entry.element_type != Type::kF32 && entry.element_type != Type::kF64;
  if (entry.type != Type::kArray || !is_flag) WrongType(impl_->path, entry, "an array of bools");
  std::vector<bool> values(entry.count);
  for (size_t k = 0; k < values.size(); ++k) {
    const auto value = entry.element_type == Type::kBool
                           ? static_cast<uint64_t>(at[k] != 0)
                           : LoadInteger(entry.element_type, at + k * bytes)->bits;
    if (value > 1)
      throw Error("{}: key {}: value {} is neither 0 nor 1", impl_->path, Quoted(key), k);
    values[k] = value == 1;
  }
  return values;
}

std::optional<std::vector<float>> GgufFile::FindFloats(std::string_view key) const {
  const ptrdiff_t i = impl_->FindEntry(key);
  if (i < 0) return std::nullopt;
  const Entry& entry = impl_->entries[i];
  const char* at = impl_->header.data() + impl_->payloads[i];
  if (entry.type != Type::kArray ||
      (entry.element_type != Type::kF32 && entry.element_type != Type::kF64)) {
    WrongType(impl_->path, entry, "an array of floats");
  }
  std::vector<float> values(entry.count);
  for (size_t k = 0; k < values.size(); ++k) {
    values[k] = entry.element_type == Type::kF32 ? LoadAt<float>(at + k * 4)
                                                 : static_cast<float>(LoadAt<double>(at + k * 8));
  }
  return values;
}

uint64_t GgufFile::GetUnsigned(std::string_view key) const {
  if (const auto value = FindUnsigned(key)) return *value;
  Missing(impl_->path, key, kUnsigned);
}

double GgufFile::GetFloat(std::string_view key) const {
  if (const auto value = FindFloat(key)) return *value;
  Missing(impl_->path, key, kFloat);
}

std::string_view GgufFile::GetString(std::string_view key) const {
  if (const auto value = FindString(key)) return *value;
  Missing(impl_->path, key, kString);
}

namespace {

// Returns one value as text and moves `at` past it.
std::string Text(Type type, const char*& at, size_t max_items);

std::string ArrayText(Type element, uint64_t count, const char*& at, size_t max_items) {
  std::string out = "[";
  uint64_t i = 0;
  for (; i < count && i < max_items; ++i)
    out += (i == 0 ? "" : ", ") + Text(element, at, max_items);
  if (i < count) out += fmt::format("{}... {} in all", i == 0 ? "" : ", ", count);
  // Elements that are not printed must be skipped, because a later value of an outer array may be
  // printed.
  for (; i < count; ++i) {
    if (const size_t bytes = GgufValueBytes(element); bytes != 0) {
      at += (count - i) * bytes;
      break;
    }
    if (element == Type::kString) {
      LoadString(at);
    } else {
      Text(element, at, 0);
    }
  }
  return out + "]";
}

std::string Text(Type type, const char*& at, size_t max_items) {
  if (type == Type::kString) return Quoted(LoadString(at), 100);
  if (type == Type::kArray) {
    const auto element = static_cast<Type>(LoadAt<uint32_t>(at));
    const auto count = LoadAt<uint64_t>(at + 4);
    at += 12;
    return ArrayText(element, count, at, max_items);
  }
  const char* value = at;
  at += GgufValueBytes(type);
  if (const auto integer = LoadInteger(type, value)) {
    return integer->negative ? fmt::to_string(static_cast<int64_t>(integer->bits))
                             : fmt::to_string(integer->bits);
  }
  if (type == Type::kF32) return fmt::to_string(LoadAt<float>(value));
  if (type == Type::kF64) return fmt::to_string(LoadAt<double>(value));
  return *value != 0 ? "true" : "false";
}

}  // namespace

std::string GgufFile::Describe(const Entry& entry, size_t max_items) const {
  const ptrdiff_t i = impl_->FindEntry(entry.key);
  LARDER_CHECK(i >= 0, "entry {} is of another file", entry.key);
  const char* at = impl_->header.data() + impl_->payloads[i];
  if (impl_->entries[i].type != Type::kArray) return Text(impl_->entries[i].type, at, max_items);
  return ArrayText(impl_->entries[i].element_type, impl_->entries[i].count, at, max_items);
}

}  // namespace larder::model::gguf

// Models in several files, as llama.cpp's gguf-split writes them.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/temporary_folder_testing.h"
#include "model/gguf/gguf_testing.h"

namespace larder::model::inline gguf {
namespace {

namespace fs = std::filesystem;
using testing::GoodModel;
using testing::PartPath;
using testing::PartsOf;
using testing::Raw;
using testing::RawGguf;
using testing::WriteParts;
using Type = GgufValueType;

std::string OpenError(const std::string& path) {
  try {
    GgufFile::Open(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void ExpectError(const std::string& error, const std::string& path, std::string_view part) {
  EXPECT_EQ(error.rfind(path + ": ", 0), 0u) << "does not begin with " << path << ": " << error;
  EXPECT_NE(error.find(part), std::string::npos) << error << " has no " << part;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

std::string RowsOf(const GgufFile& file, const TensorInfo& tensor) {
  std::string bytes(tensor.size_bytes, '\0');
  file.ReadRows(tensor, 0, tensor.rows, bytes.data());
  return bytes;
}

void ExpectSameModel(const GgufFile& whole, const GgufFile& split) {
  ASSERT_EQ(split.tensors().size(), whole.tensors().size());
  for (const TensorInfo& tensor : whole.tensors()) {
    const TensorInfo& other = split.Tensor(tensor.name);
    EXPECT_EQ(other.rows, tensor.rows);
    EXPECT_EQ(other.cols, tensor.cols);
    EXPECT_EQ(RowsOf(split, other), RowsOf(whole, tensor)) << tensor.name;
  }
  EXPECT_EQ(split.GetString("general.name"), "good");
}

TEST(GgufParts, ReadAsTheWholeFile) {
  const TemporaryFolder folder;
  // Every tensor has bytes of its own, so that reading another part's file at the same place is
  // noticed.
  RawGguf model = GoodModel();
  for (size_t i = 0; i < model.tensors.size(); ++i)
    model.data[model.tensors[i].offset] = static_cast<char>(i + 1);
  std::ofstream(folder / "whole.gguf", std::ios::binary) << model.Bytes();
  const auto whole = GgufFile::Open(folder / "whole.gguf");
  ASSERT_EQ(whole->parts().size(), 1u);
  EXPECT_EQ(whole->parts()[0].path, whole->path());
  EXPECT_EQ(whole->stem(), "whole");
  for (const std::vector<size_t>& counts :
       {std::vector<size_t>{12, 0}, {6, 6}, {0, 12}, {1, 5, 6}, {0, 3, 4, 5}}) {
    const std::string path = WriteParts(folder / "good", PartsOf(model, counts));
    const auto split = GgufFile::Open(path);
    ExpectSameModel(*whole, *split);
    EXPECT_EQ(split->path(), path);
    EXPECT_EQ(split->stem(), "good");
    ASSERT_EQ(split->parts().size(), counts.size());
    uint64_t bytes = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const GgufFile::Part& part = split->parts()[i];
      EXPECT_EQ(part.path, PartPath(folder / "good", i, counts.size()));
      EXPECT_EQ(part.file_bytes, fs::file_size(part.path));
      EXPECT_EQ(part.tensors, counts[i]);
      bytes += part.file_bytes;
    }
    EXPECT_EQ(split->file_bytes(), bytes);
    for (const TensorInfo& tensor : split->tensors()) EXPECT_LT(tensor.part, counts.size());
  }
}

TEST(GgufParts, RelativePathsAndOwnAlignments) {
  const TemporaryFolder folder;
  RawGguf model = GoodModel();
  std::vector<RawGguf> parts = PartsOf(model, {4, 8});
  std::vector<RawGguf> aligned = PartsOf(model, {4, 8});
  RawGguf& second = parts[1];
  second.tensors.clear();
  second.data.clear();
  second.alignment = 64;
  second.SetU32("general.alignment", 64);
  for (const RawGguf::Tensor& tensor : aligned[1].tensors)
    second.AddTensor(tensor.name, tensor.dims, tensor.type,
                     aligned[1].data.substr(tensor.offset, 512));
  WriteParts(folder / "m", parts);
  std::ofstream(folder / "whole.gguf", std::ios::binary) << model.Bytes();
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const auto split = GgufFile::Open("m-00001-of-00002.gguf");
  ExpectSameModel(*GgufFile::Open("whole.gguf"), *split);
  EXPECT_EQ(split->parts()[1].path, "m-00002-of-00002.gguf");
  EXPECT_EQ(split->stem(), "m");
  fs::current_path(before);
}

// gguf-split --merge leaves split.count at 0; a split into one part has 1. Neither needs a name.
TEST(GgufParts, AMergedModelIsOneFile) {
  for (const uint16_t count : {0, 1}) {
    RawGguf model = GoodModel();
    model.Set("split.no", Type::kU16, Raw(uint16_t{0}));
    model.Set("split.count", Type::kU16, Raw(count));
    model.Set("split.tensors.count", Type::kI32, Raw(int32_t{12}));
    const testing::TempFile temp(model.Bytes());
    EXPECT_EQ(GgufFile::Open(temp.path())->parts().size(), 1u);
  }
}

TEST(GgufParts, APartOtherThanTheFirstNamesTheFirst) {
  const TemporaryFolder folder;
  WriteParts(folder / "good", PartsOf(GoodModel(), {1, 5, 6}));
  for (const size_t i : {1u, 2u}) {
    const std::string path = PartPath(folder / "good", i, 3);
    ExpectError(OpenError(path), path,
                fmt::format("is part {} of 3 of a model, expected the first: give {}", i + 1,
                            PartPath(folder / "good", 0, 3)));
  }
}

TEST(GgufParts, ANameThatDoesNotSayWhichPart) {
  const TemporaryFolder folder;
  const std::string bytes = PartsOf(GoodModel(), {6, 6})[0].Bytes();
  for (const char* name : {"model.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf",
                           "m-0001-of-00002.gguf", "m-00001_of_00002.gguf", "m-+0001-of-00002.gguf",
                           "m-00001-of-00002.GGUF", "m-0000a-of-00002.gguf"}) {
    const std::string path = folder / name;
    std::ofstream(path, std::ios::binary) << bytes;
    ExpectError(OpenError(path), path,
                "key 'split.count' is 2: a part of a model, but its name does not say which; "
                "expected a name that ends in -00001-of-00002.gguf");
  }
}

struct Malformed {
  const char* name;
  size_t part;  // the error names this part, from 0
  const char* expected;
  std::function<void(std::vector<RawGguf>&)> mutate;
  std::function<void(std::vector<std::string>&)> mutate_bytes = nullptr;
};

const std::vector<Malformed>& Table() {
  static const auto u16 = [](RawGguf& part, const char* key, uint16_t value) {
    part.Set(key, Type::kU16, Raw(value));
  };
  static const auto i32 = [](RawGguf& part, const char* key, int32_t value) {
    part.Set(key, Type::kI32, Raw(value));
  };
  using Parts = std::vector<RawGguf>;
  using Bytes = std::vector<std::string>;
  static const std::vector<Malformed> table = {
      {"a missing part", 1,
       "can't open: No such file or directory; the model is in 3 files, expected all in one folder",
       nullptr, [](Bytes& b) { b[1].clear(); }},
      {"the last part missing", 2, "can't open: No such file", nullptr,
       [](Bytes& b) { b[2].clear(); }},
      {"two parts swapped", 1, "key 'split.no' is 2 (from 0), expected 1 for part 2", nullptr,
       [](Bytes& b) { std::swap(b[1], b[2]); }},
      {"the first part twice", 1, "key 'split.no' is 0 (from 0), expected 1", nullptr,
       [](Bytes& b) { b[1] = b[0]; }},
      {"another file as the first part", 0, "key 'split.no' is 1 (from 0), expected 0 for part 1",
       nullptr, [](Bytes& b) { b[0] = b[1]; }},
      {"split.no in the first", 0, "key 'split.no' is 7",
       [](Parts& p) { u16(p[0], "split.no", 7); }},
      {"no split.no in the first", 0, "key 'split.no' is missing",
       [](Parts& p) { p[0].EraseKey("split.no"); }},
      {"no split.no in a part", 2, "key 'split.no' is missing",
       [](Parts& p) { p[2].EraseKey("split.no"); }},
      {"split.no is a string", 1, "key 'split.no' is a string",
       [](Parts& p) { p[1].SetText("split.no", "1"); }},
      {"split.no is negative", 1, "key 'split.no' is -1",
       [](Parts& p) { i32(p[1], "split.no", -1); }},
      {"split.count too large", 0, "key 'split.count' is 65535, expected 3 as in the file's name",
       [](Parts& p) { u16(p[0], "split.count", 65535); }},
      {"split.count of 64 bits", 0, "key 'split.count' is 18446744073709551615, expected 3",
       [](Parts& p) { p[0].Set("split.count", Type::kU64, Raw(~uint64_t{0})); }},
      {"split.count is a path", 0, "key 'split.count' is a string",
       [](Parts& p) { p[0].SetText("split.count", "../../x"); }},
      {"split.count too small", 0, "key 'split.count' is 2, expected 3",
       [](Parts& p) { u16(p[0], "split.count", 2); }},
      {"split.count of a part", 1, "key 'split.count' is 4, expected 3 as in the file's name",
       [](Parts& p) { u16(p[1], "split.count", 4); }},
      {"a whole file as a part", 2, "key 'split.count' is missing",
       [](Parts& p) { p[2].keys.clear(); }},
      {"no total", 0, "key 'split.tensors.count' is missing",
       [](Parts& p) { p[0].EraseKey("split.tensors.count"); }},
      {"a negative total", 0, "key 'split.tensors.count' is -1, expected an unsigned integer",
       [](Parts& p) { i32(p[0], "split.tensors.count", -1); }},
      {"a huge total", 0, "key 'split.tensors.count' is 2147483647, expected at most 1048576",
       [](Parts& p) { i32(p[0], "split.tensors.count", 2147483647); }},
      {"another total in a part", 2, "key 'split.tensors.count' is 11, expected 12 as in ",
       [](Parts& p) { i32(p[2], "split.tensors.count", 11); }},
      {"too few tensors", 0,
       "key 'split.tensors.count' is 12, but parts 1 to 3 of 3 have 11 tensors",
       [](Parts& p) { p[2].tensors.pop_back(); }},
      {"too many tensors", 0,
       "key 'split.tensors.count' is 12, but parts 1 to 3 of 3 have 13 tensors",
       [](Parts& p) { p[2].AddF32("more", {4}); }},
      {"too many tensors already", 0,
       "key 'split.tensors.count' is 5, but parts 1 to 2 of 3 have 6 tensors",
       [](Parts& p) {
         for (RawGguf& part : p) i32(part, "split.tensors.count", 5);
       }},
      {"a tensor in two parts", 2, "tensor 'token_embd.weight' is also in ",
       [](Parts& p) { p[2].tensors[0].name = "token_embd.weight"; }},
      {"a tensor in both further parts", 2, "tensor 'output_norm.weight' is also in ",
       [](Parts& p) { p[2].tensors[0].name = "output_norm.weight"; }},
      {"a tensor twice in a part", 1, "duplicate tensor 'output_norm.weight'",
       [](Parts& p) { p[1].tensors[1].name = "output_norm.weight"; }},
      {"a part of another kind", 1, "starts with the magic 'GGML'",
       [](Parts& p) { p[1].magic = "GGML"; }},
      {"a part cut short", 2, "tensor 'blk.0.ffn_down.weight': 136 bytes at offset", nullptr,
       [](Bytes& b) { b[2].resize(b[2].size() - 64); }},
      {"tensor count of a part", 1, "tensor count is 4611686018427387904",
       [](Parts& p) { p[1].tensor_count = uint64_t{1} << 62; }},
      {"a tensor beyond its part", 1,
       "tensor 'output.weight': 48 bytes at offset 1048576 lie beyond",
       [](Parts& p) { p[1].Find("output.weight").offset = 1 << 20; }},
  };
  return table;
}

TEST(GgufParts, EveryMutationIsNamed) {
  std::set<std::string> names;
  for (const Malformed& malformed : Table()) {
    SCOPED_TRACE(malformed.name);
    EXPECT_TRUE(names.insert(malformed.name).second) << "twice in the table";
    const TemporaryFolder folder;
    std::vector<RawGguf> parts = PartsOf(GoodModel(), {1, 5, 6});
    if (malformed.mutate) malformed.mutate(parts);
    std::vector<std::string> bytes;
    for (const RawGguf& part : parts) bytes.push_back(part.Bytes());
    if (malformed.mutate_bytes) malformed.mutate_bytes(bytes);
    const std::string error = OpenError(WriteParts(folder / "good", bytes));
    ExpectError(error, PartPath(folder / "good", malformed.part, 3), malformed.expected);
    EXPECT_LT(error.size(), 500u) << error;
  }
}

TEST(GgufParts, AFolderAsAPart) {
  const TemporaryFolder folder;
  const std::string path = WriteParts(folder / "good", PartsOf(GoodModel(), {6, 6}));
  const std::string second = PartPath(folder / "good", 1, 2);
  fs::remove(second);
  fs::create_directory(second);
  ExpectError(OpenError(path), second, "is not a regular file, expected a GGUF file");
}

TEST(GgufParts, ErrorsOfRowsNameTheirPart) {
  const TemporaryFolder folder;
  std::vector<RawGguf> parts = PartsOf(GoodModel(), {1, 11});
  parts[1].Patch("blk.0.attn_q.weight", 2 * 5, Raw(uint16_t{0x7e00}));
  parts[1].Patch("blk.0.ffn_down.weight", 2 * 34, Raw(uint16_t{0x7c00}));
  parts[1].Find("blk.0.ffn_up.weight").type = 24;
  const auto file = GgufFile::Open(WriteParts(folder / "good", parts));
  const std::string second = PartPath(folder / "good", 1, 2);
  const auto error_of = [&](const char* name) -> std::string {
    try {
      std::vector<Q8Block> blocks(64);
      file->ReadRowsQ8_0(file->Tensor(name), 0, file->Tensor(name).rows, blocks.data());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  ExpectError(error_of("blk.0.attn_q.weight"), second, "the weight at row 1, column 1 is NaN");
  ExpectError(error_of("blk.0.ffn_down.weight"), second,
              "the scale of block 0 of row 2 is infinite");
  ExpectError(error_of("blk.0.ffn_up.weight"), second, "is I8 (type 24)");
  EXPECT_EQ(error_of("token_embd.weight"), "");
  fs::resize_file(second, 512);
  ExpectError(error_of("blk.0.ffn_gate.weight"), second, "has shrunk since it was opened");
}

}  // namespace
}  // namespace larder::model::gguf

// Malformed files, each made from a good one by one named mutation. Each must give a one-line error
// with the file and the field.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "base/error.h"
#include "model/config/config.h"
#include "model/gguf/gguf_testing.h"

namespace larder::model::inline config {
namespace {

using testing::GoodModel;
using testing::Raw;
using testing::RawArray;
using testing::RawGguf;
using testing::RawText;
using testing::TempFile;
using Type = GgufValueType;

// Does everything that a program does with a model file before it computes. Returns "" if there is
// no error.
std::string LoadError(const std::string& path) {
  try {
    const auto file = GgufFile::Open(path);
    ReadModelConfig(*file);
    for (const TensorInfo& tensor : file->tensors()) {
      std::vector<Q8Block> blocks(tensor.rows * CeilDiv(tensor.cols, kBlock));
      file->ReadRowsQ8_0(tensor, 0, tensor.rows, blocks.data());
    }
    for (const auto& entry : file->entries()) file->Describe(entry, 3);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

struct Malformed {
  const char* name;
  const char* expected;  // part of the error's text
  std::function<void(RawGguf&)> mutate;
  std::function<void(std::string&)> mutate_bytes = nullptr;
  const char* arch = "llama";
};

constexpr uint64_t kHuge = uint64_t{1} << 62;

const std::vector<Malformed>& Table() {
  static const std::vector<Malformed> table = {
      // The preamble.
      {"empty file", "is 0 bytes long", nullptr, [](std::string& b) { b.clear(); }},
      {"cut in the preamble", "is 23 bytes long", nullptr, [](std::string& b) { b.resize(23); }},
      {"another magic", "magic 'GGML'", [](RawGguf& f) { f.magic = "GGML"; }},
      {"a binary magic", "magic '\\x7fELF'",
       [](RawGguf& f) {
         f.magic =
             "\x7f"
             "ELF";
       }},
      {"version 0", "version is 0, expected 2 or 3", [](RawGguf& f) { f.version = 0; }},
      {"version 1", "version is 1, expected 2 or 3; convert", [](RawGguf& f) { f.version = 1; }},
      {"version 4", "version is 4, expected 2 or 3", [](RawGguf& f) { f.version = 4; }},
      {"big-endian", "big-endian", [](RawGguf& f) { f.version = 3u << 24; }},
      {"tensor count huge", "tensor count is 4611686018427387904",
       [](RawGguf& f) { f.tensor_count = kHuge; }},
      {"tensor count beyond the file", "tensor count is 200",
       [](RawGguf& f) { f.tensor_count = 200; }},
      {"one tensor more than there is", "the name of tensor 12",
       [](RawGguf& f) { f.tensor_count = 13; }},
      {"tensor count all ones", "tensor count is 18446744073709551615",
       [](RawGguf& f) { f.tensor_count = ~0ull; }},
      {"key count huge", "key count is 4611686018427387904",
       [](RawGguf& f) { f.key_count = kHuge; }},
      {"one key more than there is", "the name of tensor 0",
       [](RawGguf& f) { f.key_count = f.keys.size() + 1; }},
      {"cut in a key's name", "the name of key 0 at byte 32 needs 20 bytes",
       [](RawGguf& f) {
         f.tensor_count = 0;
         f.key_count = 1;
       },
       [](std::string& b) { b.resize(24 + 8 + 15); }},
      {"cut in a string value", "key 'general.architecture' at byte 64 needs 5 bytes",
       [](RawGguf& f) {
         f.tensor_count = 0;
         f.key_count = 1;
       },
       [](std::string& b) { b.resize(24 + 8 + 20 + 4 + 8 + 2); }},
      // Metadata.
      {"key name of length 2^62", "the name of key 0", nullptr,
       [](std::string& b) { b.replace(24, 8, Raw(kHuge)); }},
      {"key name over the format's limit", "at most 65535",
       [](RawGguf& f) { f.keys[1].name = std::string(70000, 'k'); }},
      {"empty key name", "the name of key 1 is empty", [](RawGguf& f) { f.keys[1].name = ""; }},
      {"duplicate key", "duplicate key 'general.name'",
       [](RawGguf& f) { f.keys.push_back(f.keys[1]); }},
      {"value type 13", "key 'general.name' has value type 13",
       [](RawGguf& f) { f.keys[1].type = 13; }},
      {"value type all ones", "has value type 4294967295",
       [](RawGguf& f) { f.keys[1].type = ~0u; }},
      {"string of length 2^64-1", "key 'general.name'",
       [](RawGguf& f) { f.keys[1].value = Raw(~0ull); }},
      {"string longer than the file", "key 'general.name'",
       [](RawGguf& f) { f.keys[1].value = Raw(uint64_t{1} << 20); }},
      {"bool of 2", "key 'tokenizer.ggml.add_bos_token': a bool holds 2",
       [](RawGguf& f) { f.Set("tokenizer.ggml.add_bos_token", Type::kBool, Raw(uint8_t{2})); }},
      {"array of bools with a 9", "key 'x': a bool holds 9",
       [](RawGguf& f) { f.Set("x", Type::kArray, RawArray(Type::kBool, 2, "\x01\x09")); }},
      {"array of unknown element type", "key 'x' has value type 99",
       [](RawGguf& f) { f.Set("x", Type::kArray, RawArray(static_cast<Type>(99), 1, "aaaa")); }},
      {"array length whose product overflows", "key 'x': length 4611686018427387904 of f64 values",
       [](RawGguf& f) { f.Set("x", Type::kArray, RawArray(Type::kF64, kHuge, "")); }},
      {"array longer than the file", "key 'x': length 100000 of u32 values",
       [](RawGguf& f) { f.Set("x", Type::kArray, RawArray(Type::kU32, 100000, "")); }},
      {"array of more strings than fit", "key 'x': length 100000 of string values",
       [](RawGguf& f) { f.Set("x", Type::kArray, RawArray(Type::kString, 100000, "")); }},
      {"a huge string in an array", "key 'x'",
       [](RawGguf& f) {
         f.Set("x", Type::kArray, RawArray(Type::kString, 2, RawText("a") + Raw(kHuge)));
       }},
      {"nested array of impossible length", "key 'x': length 4611686018427387904 of u8 values",
       [](RawGguf& f) {
         f.Set("x", Type::kArray, RawArray(Type::kArray, 1, RawArray(Type::kU8, kHuge, "")));
       }},
      {"arrays nested too deep", "key 'x': arrays nested more than 4 deep",
       [](RawGguf& f) {
         std::string value = RawArray(Type::kU8, 0, "");
         for (int i = 0; i < 9; ++i) value = RawArray(Type::kArray, 1, value);
         f.Set("x", Type::kArray, value);
       }},
      {"alignment of another type", "'general.alignment' is a string",
       [](RawGguf& f) { f.SetText("general.alignment", "32"); }},
      {"alignment 0", "'general.alignment' is 0",
       [](RawGguf& f) { f.SetU32("general.alignment", 0); }},
      {"alignment 24", "'general.alignment' is 24, expected a power of two",
       [](RawGguf& f) { f.SetU32("general.alignment", 24); }},
      {"alignment 2^31", "'general.alignment' is 2147483648",
       [](RawGguf& f) { f.SetU32("general.alignment", 1u << 31); }},
      // Tensor descriptions.
      {"tensor name of length 2^62", "the name of tensor 0", nullptr,
       [](std::string& b) { b.replace(b.find("token_embd.weight") - 8, 8, Raw(kHuge)); }},
      {"tensor name too long", "the name of tensor 1",
       [](RawGguf& f) { f.tensors[1].name = std::string(300, 't'); }},
      {"empty tensor name", "the name of tensor 1 is empty",
       [](RawGguf& f) { f.tensors[1].name = ""; }},
      {"duplicate tensor", "duplicate tensor 'output.weight'",
       [](RawGguf& f) { f.tensors[0].name = "output.weight"; }},
      {"no dimensions", "tensor 'output.weight' has 0 dimensions",
       [](RawGguf& f) { f.Find("output.weight").dims = {}; }},
      {"five dimensions", "tensor 'output.weight' has 5 dimensions",
       [](RawGguf& f) {
         f.Find("output.weight").dims = {1, 1, 1, 1, 1};
       }},
      {"2^32-1 dimensions", "has 4294967295 dimensions",
       [](RawGguf& f) { f.Find("output.weight").said_dims = ~0u; }},
      {"a dimension of 0", "tensor 'output.weight': dimension 1 is 0",
       [](RawGguf& f) {
         f.Find("output.weight").dims = {4, 0};
       }},
      {"rows times cols overflow", "tensor 'output.weight': dimensions 4 x 9223372036854775808",
       [](RawGguf& f) {
         f.Find("output.weight").dims = {4, uint64_t{1} << 63};
       }},
      {"outer dimensions overflow",
       "tensor 'output.weight': dimensions 4 x 4294967296 x 4294967296 x 2 overflow",
       [](RawGguf& f) {
         f.Find("output.weight").dims = {4, uint64_t{1} << 32, uint64_t{1} << 32, 2};
       }},
      {"bytes overflow", "overflow 64 bits",
       [](RawGguf& f) { f.Find("output.weight").dims = {kHuge}; }},
      {"an impossible tensor type", "tensor 'output.weight' has type 1000",
       [](RawGguf& f) { f.Find("output.weight").type = 1000; }},
      {"Q8_0 rows of 31",
       "tensor 'blk.0.ffn_down.weight' is Q8_0 with rows of 31 elements, expected a multiple of 32",
       [](RawGguf& f) {
         f.Find("blk.0.ffn_down.weight").dims = {31, 4};
       }},
      {"offset not aligned", "tensor 'output.weight': offset 97 is not a multiple",
       [](RawGguf& f) { f.Find("output.weight").offset = 97; }},
      {"offset beyond the file", "tensor 'output.weight': 48 bytes at offset 1048576 lie beyond",
       [](RawGguf& f) { f.Find("output.weight").offset = 1 << 20; }},
      {"offset that wraps around",
       "tensor 'output.weight': 48 bytes at offset 18446744073709551584",
       [](RawGguf& f) { f.Find("output.weight").offset = ~uint64_t{31}; }},
      {"data cut short", "tensor 'blk.0.ffn_down.weight': 136 bytes", nullptr,
       [](std::string& b) { b.resize(b.size() - 32); }},
      {"all data gone", "tensor 'token_embd.weight': 48 bytes at offset 0 lie beyond",
       [](RawGguf& f) { f.data.clear(); }},
      {"two tensors in one place", "overlaps tensor",
       [](RawGguf& f) { f.Find("output.weight").offset = 0; }},
      {"a tensor reaching into the next", "overlaps tensor 'token_embd.weight'",
       [](RawGguf& f) {
         f.Find("token_embd.weight").dims = {4, 5};
       }},
      // Weights.
      {"NaN scale", "'blk.0.ffn_down.weight': the scale of block 0 of row 1 is NaN",
       [](RawGguf& f) { f.Patch("blk.0.ffn_down.weight", 34, Raw(uint16_t{0xfe01})); }},
      {"infinite scale", "'blk.0.ffn_down.weight': the scale of block 0 of row 3 is infinite",
       [](RawGguf& f) { f.Patch("blk.0.ffn_down.weight", 3 * 34, Raw(uint16_t{0xfc00})); }},
      {"NaN weight in F32", "'output_norm.weight': the weight at row 0, column 2 is NaN",
       [](RawGguf& f) { f.Patch("output_norm.weight", 8, Raw(std::nanf(""))); }},
      {"NaN weight in F16", "'blk.0.attn_q.weight': the weight at row 3, column 3 is NaN",
       [](RawGguf& f) { f.Patch("blk.0.attn_q.weight", 30, Raw(uint16_t{0x7c01})); }},
      {"infinite weight in BF16",
       "'blk.0.ffn_up.weight': the weight at row 0, column 1 is infinite",
       [](RawGguf& f) { f.Patch("blk.0.ffn_up.weight", 2, Raw(uint16_t{0x7f80})); }},
      // Keys of the model.
      {"no architecture", "key 'general.architecture' is missing",
       [](RawGguf& f) { f.EraseKey("general.architecture"); }},
      {"architecture is a number", "key 'general.architecture' is a u32",
       [](RawGguf& f) { f.SetU32("general.architecture", 1); }},
      {"unknown architecture",
       "key 'general.architecture' is 'new', which Larder does not know; it runs llama, qwen2, ",
       [](RawGguf& f) { f.SetText("general.architecture", "new"); }},
      {"known architecture",
       "key 'general.architecture' is 'mamba', which needs what Larder does not have: models "
       "without attention (state spaces of Mamba-1); it runs llama, ",
       [](RawGguf& f) { f.SetText("general.architecture", "mamba"); }},
      {"architecture with control characters", "is 'a\\nb\\x1b[31m'",
       [](RawGguf& f) { f.SetText("general.architecture", "a\nb\x1b[31m"); }},
      {"no block_count", "key 'llama.block_count' is missing",
       [](RawGguf& f) { f.EraseKey("llama.block_count"); }},
      {"block_count 0", "key 'llama.block_count' is 0",
       [](RawGguf& f) { f.SetU32("llama.block_count", 0); }},
      {"block_count of 2^32-1", "key 'llama.block_count' is 4294967295",
       [](RawGguf& f) { f.SetU32("llama.block_count", ~0u); }},
      {"block_count is a string", "key 'llama.block_count' is a string",
       [](RawGguf& f) { f.SetText("llama.block_count", "1"); }},
      {"block_count is negative", "key 'llama.block_count' is -1",
       [](RawGguf& f) { f.Set("llama.block_count", Type::kI32, Raw(int32_t{-1})); }},
      {"one layer more than there is", "tensor 'blk.1.attn_norm.weight' is missing",
       [](RawGguf& f) { f.SetU32("llama.block_count", 2); }},
      {"no context_length", "key 'llama.context_length' is missing",
       [](RawGguf& f) { f.EraseKey("llama.context_length"); }},
      {"no embedding_length", "key 'llama.embedding_length' is missing",
       [](RawGguf& f) { f.EraseKey("llama.embedding_length"); }},
      {"embedding_length too large", "key 'llama.embedding_length' is 1000000",
       [](RawGguf& f) { f.SetU32("llama.embedding_length", 1000000); }},
      {"embedding_length not of whole heads", "key 'llama.embedding_length' is 5",
       [](RawGguf& f) { f.SetU32("llama.embedding_length", 5); }},
      {"no feed_forward_length", "key 'llama.feed_forward_length' is missing",
       [](RawGguf& f) { f.EraseKey("llama.feed_forward_length"); }},
      {"feed_forward_length of too many layers",
       "key 'llama.feed_forward_length' has 2 values, expected one or 'llama.block_count', which "
       "is 1",
       [](RawGguf& f) {
         f.Set("llama.feed_forward_length", Type::kArray,
               RawArray(Type::kU32, 2, Raw(32u) + Raw(32u)));
       }},
      {"feed_forward_length of floats", "key 'llama.feed_forward_length' is an array of f32 values",
       [](RawGguf& f) {
         f.Set("llama.feed_forward_length", Type::kArray, RawArray(Type::kF32, 1, Raw(32.0f)));
       }},
      {"a layer's feed_forward_length 0", "key 'llama.feed_forward_length' is 0, expected 1 to",
       [](RawGguf& f) {
         f.Set("llama.feed_forward_length", Type::kArray, RawArray(Type::kU32, 1, Raw(0u)));
       }},
      {"a layer's heads below 0", "key 'llama.attention.head_count' is 0, expected 1 to",
       [](RawGguf& f) {
         f.Set("llama.attention.head_count", Type::kArray, RawArray(Type::kI32, 1, Raw(-2)));
       }},
      {"no head_count", "key 'llama.attention.head_count' is missing",
       [](RawGguf& f) { f.EraseKey("llama.attention.head_count"); }},
      {"head_count 0", "key 'llama.attention.head_count' is 0",
       [](RawGguf& f) { f.SetU32("llama.attention.head_count", 0); }},
      {"kv heads 0", "key 'llama.attention.head_count_kv' is 0",
       [](RawGguf& f) { f.SetU32("llama.attention.head_count_kv", 0); }},
      {"kv heads no divisor", "key 'llama.attention.head_count_kv' is 3, expected a divisor",
       [](RawGguf& f) { f.SetU32("llama.attention.head_count_kv", 3); }},
      {"odd head size", "'llama.attention.key_length'",
       [](RawGguf& f) { f.SetU32("llama.attention.key_length", 3); }},
      {"values of another size", "'llama.attention.value_length' 4",
       [](RawGguf& f) { f.SetU32("llama.attention.value_length", 4); }},
      {"no norm epsilon", "key 'llama.attention.layer_norm_rms_epsilon' is missing",
       [](RawGguf& f) { f.EraseKey("llama.attention.layer_norm_rms_epsilon"); }},
      {"norm epsilon NaN", "key 'llama.attention.layer_norm_rms_epsilon' is nan",
       [](RawGguf& f) { f.SetF32("llama.attention.layer_norm_rms_epsilon", std::nanf("")); }},
      {"norm epsilon negative", "key 'llama.attention.layer_norm_rms_epsilon' is -1",
       [](RawGguf& f) { f.SetF32("llama.attention.layer_norm_rms_epsilon", -1.0f); }},
      {"norm epsilon an integer",
       "key 'llama.attention.layer_norm_rms_epsilon' is a u32, expected a float",
       [](RawGguf& f) { f.SetU32("llama.attention.layer_norm_rms_epsilon", 1); }},
      {"more rotary dimensions than a head has", "key 'llama.rope.dimension_count' is 4",
       [](RawGguf& f) { f.SetU32("llama.rope.dimension_count", 4); }},
      {"rope base 0", "key 'llama.rope.freq_base' is 0",
       [](RawGguf& f) { f.SetF32("llama.rope.freq_base", 0.0f); }},
      {"rope base infinite", "key 'llama.rope.freq_base' is inf",
       [](RawGguf& f) { f.SetF32("llama.rope.freq_base", INFINITY); }},
      {"unknown rope scaling", "key 'llama.rope.scaling.type' is 'longrope'",
       [](RawGguf& f) { f.SetText("llama.rope.scaling.type", "longrope"); }},
      {"rope factor negative", "key 'llama.rope.scaling.factor' is -2",
       [](RawGguf& f) { f.SetF32("llama.rope.scaling.factor", -2.0f); }},
      {"rope frequencies of another length",
       "tensor 'rope_freqs.weight' is 2 elements, expected 1 elements",
       [](RawGguf& f) { f.AddF32("rope_freqs.weight", {2}); }},
      {"rope frequency of 0", "tensor 'rope_freqs.weight': factor 0 is 0",
       [](RawGguf& f) { f.AddF32("rope_freqs.weight", {1}, 0.0f); }},
      {"experts", "key 'llama.expert_used_count' is missing",
       [](RawGguf& f) { f.SetU32("llama.expert_count", 8); }},
      {"a window of another type", "key 'llama.attention.sliding_window' is a f32, expected an",
       [](RawGguf& f) { f.SetF32("llama.attention.sliding_window", 32); }},
      {"a window below 0", "key 'llama.attention.sliding_window' is -1, expected an unsigned",
       [](RawGguf& f) { f.Set("llama.attention.sliding_window", Type::kI32, Raw(int32_t{-1})); }},
      {"windows of more layers",
       "key 'llama.attention.sliding_window_pattern' has 2 values, expected one for each of the 1",
       [](RawGguf& f) {
         f.SetU32("llama.attention.sliding_window", 32);
         f.Set("llama.attention.sliding_window_pattern", Type::kArray,
               RawArray(Type::kBool, 2, "\x01\x01"));
       }},
      {"flags of windows that are none",
       "key 'llama.attention.sliding_window_pattern': value 0 is neither 0 nor 1",
       [](RawGguf& f) {
         f.SetU32("llama.attention.sliding_window", 32);
         f.Set("llama.attention.sliding_window_pattern", Type::kArray,
               RawArray(Type::kU32, 1, Raw(uint32_t{7})));
       }},
      {"flags of windows of another type",
       "key 'llama.attention.sliding_window_pattern' is an array of string values, expected an",
       [](RawGguf& f) {
         f.SetU32("llama.attention.sliding_window", 32);
         f.Set("llama.attention.sliding_window_pattern", Type::kArray,
               RawArray(Type::kString, 1, RawText("sliding_attention")));
       }},
      {"a pattern without windows",
       "key 'llama.attention.sliding_window_pattern' says that layers have windows, but not how "
       "long: 'attention.sliding_window' is missing or 0",
       [](RawGguf& f) { f.SetU32("llama.attention.sliding_window_pattern", 4); }},
      {"windows of 0", "key 'llama.attention.sliding_window' is 0, expected positions, 1 or more",
       [](RawGguf& f) { f.SetU32("llama.attention.sliding_window", 0); }},
      {"a pattern of 0", "key 'llama.attention.sliding_window_pattern' is 0, expected every how",
       [](RawGguf& f) {
         f.SetU32("llama.attention.sliding_window", 32);
         f.SetU32("llama.attention.sliding_window_pattern", 0);
       }},
      {"windows of no layer",
       "key 'llama.attention.sliding_window_pattern' says that no layer has a window, but "
       "'attention.sliding_window' is 32",
       [](RawGguf& f) {
         f.SetU32("llama.attention.sliding_window", 32);
         f.SetU32("llama.attention.sliding_window_pattern", 1);
       }},
      {"a base of windows below 1", "key 'llama.rope.freq_base_swa' is 0.5, expected 1.000001 to",
       [](RawGguf& f) { f.SetF32("llama.rope.freq_base_swa", 0.5f); }},
      {"not causal", "key 'llama.attention.causal' is false",
       [](RawGguf& f) { f.Set("llama.attention.causal", Type::kBool, Raw(uint8_t{0})); }},
      {"vocab_size beyond the embedding", "key 'llama.vocab_size' is 4",
       [](RawGguf& f) { f.SetU32("llama.vocab_size", 4); }},
      {"more tokens than embeddings", "key 'tokenizer.ggml.tokens' has 4 tokens",
       [](RawGguf& f) {
         f.Set(
             "tokenizer.ggml.tokens", Type::kArray,
             RawArray(Type::kString, 4, RawText("a") + RawText("b") + RawText("c") + RawText("d")));
       }},
      // Tensors of the model.
      {"no embedding", "tensor 'token_embd.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("token_embd.weight"); }},
      {"no output norm", "tensor 'output_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("output_norm.weight"); }},
      {"no down projection",
       "tensor 'blk.0.ffn_down.weight' is missing, expected one of 4 rows of 32",
       [](RawGguf& f) { f.EraseTensor("blk.0.ffn_down.weight"); }},
      {"transposed tensor", "tensor 'blk.0.ffn_gate.weight' is 4 rows of 32, expected 32 rows of 4",
       [](RawGguf& f) {
         f.Find("blk.0.ffn_gate.weight").dims = {32, 4};
       }},
      {"norm of another length",
       "tensor 'blk.0.ffn_norm.weight' is 3 elements, expected 4 elements",
       [](RawGguf& f) { f.Find("blk.0.ffn_norm.weight").dims = {3}; }},
      {"a type that Larder does not read",
       "tensor 'blk.0.ffn_down.weight' is I8 (type 24), expected F32, F16, BF16, Q8_0, Q4_0, ",
       [](RawGguf& f) { f.Find("blk.0.ffn_down.weight").type = 24; }},
      {"a type without a name", "tensor 'blk.0.ffn_down.weight' is unknown (type 99)",
       [](RawGguf& f) { f.Find("blk.0.ffn_down.weight").type = 99; }},
      {"a tensor of no known use", "tensor 'blk.0.attn_sinks.weight' is not part of a llama model",
       [](RawGguf& f) { f.AddF32("blk.0.attn_sinks.weight", {4}); }},
      {"one bias of three", "tensor 'blk.0.attn_k.bias' is missing",
       [](RawGguf& f) { f.AddF32("blk.0.attn_q.bias", {4}); }},
      {"qwen2 without a bias", "tensor 'blk.0.attn_v.bias' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.0.attn_v.bias"); }, nullptr, "qwen2"},
      {"qwen3 without a norm", "tensor 'blk.0.attn_k_norm.weight' is missing",
       [](RawGguf& f) { f.EraseTensor("blk.0.attn_k_norm.weight"); }, nullptr, "qwen3"},
      {"qwen3 norm of another length",
       "tensor 'blk.0.attn_q_norm.weight' is 1 elements, expected 2 elements",
       [](RawGguf& f) { f.Find("blk.0.attn_q_norm.weight").dims = {1}; }, nullptr, "qwen3"},
  };
  return table;
}

TEST(GgufMalformed, TheGoodFilesAreGood) {
  for (const char* arch : {"llama", "qwen2", "qwen3"}) {
    EXPECT_EQ(LoadError(TempFile(GoodModel(arch).Bytes()).path()), "") << arch;
  }
}

TEST(GgufMalformed, EveryMutationIsNamed) {
  std::set<std::string> names;
  for (const Malformed& malformed : Table()) {
    SCOPED_TRACE(malformed.name);
    EXPECT_TRUE(names.insert(malformed.name).second) << "twice in the table";
    RawGguf raw = GoodModel(malformed.arch);
    if (malformed.mutate) malformed.mutate(raw);
    std::string bytes = raw.Bytes();
    if (malformed.mutate_bytes) malformed.mutate_bytes(bytes);
    EXPECT_NE(bytes, GoodModel(malformed.arch).Bytes()) << "the mutation changes nothing";
    const TempFile temp(bytes);
    const std::string error = LoadError(temp.path());
    EXPECT_EQ(error.rfind(temp.path() + ": ", 0), 0u)
        << "does not begin with the file's name: " << error;
    EXPECT_NE(error.find(malformed.expected), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_LT(error.size(), 600u) << error;
  }
  EXPECT_GE(names.size(), 60u);
}

// A sparse file of gigabytes, nearly all of it one array, is refused before it is read into memory.
// Otherwise a machine with enough memory would allocate and touch it, and on one with slightly less
// the kernel would kill the process.
TEST(GgufMalformed, HeadersThatNoModelHasAreRefused) {
  const auto bomb = [](const std::string& value, uint64_t file_bytes) {
    RawGguf raw;
    raw.Set("x", Type::kArray, value);
    const TempFile temp(raw.Bytes());
    std::filesystem::resize_file(temp.path(), file_bytes);
    return LoadError(temp.path());
  };
  const uint64_t many = uint64_t{24} << 30;
  EXPECT_NE(bomb(RawArray(Type::kU8, many, ""), many + 4096)
                .find("keys and tensor names take more than 512 MB"),
            std::string::npos);
  EXPECT_NE(bomb(RawArray(Type::kString, 2, RawText("a") + Raw(many)), many + 4096)
                .find("more than 512 MB"),
            std::string::npos);
  RawGguf raw;
  raw.key_count = (1 << 16) + 1;
  const TempFile keys(raw.Bytes() + std::string(2 << 20, '\0'));
  EXPECT_NE(LoadError(keys.path()).find("key count is 65537, expected at most 65536"),
            std::string::npos);
  raw.key_count = 0;
  raw.tensor_count = (1 << 20) + 1;
  const TempFile tensors(raw.Bytes());
  std::filesystem::resize_file(tensors.path(), 64 << 20);
  EXPECT_NE(LoadError(tensors.path()).find("tensor count is 1048577, expected at most 1048576"),
            std::string::npos);
}

TEST(GgufMalformed, NoPrefixOfAFileLoads) {
  const std::string bytes = GoodModel().Bytes();
  // the bytes after it are padding
  const size_t last_data = bytes.size() - (RoundUp(136, 32) - 136);
  for (size_t size = 0; size < last_data; ++size) {
    ASSERT_NE(LoadError(TempFile(bytes.substr(0, size)).path()), "") << size;
  }
  EXPECT_EQ(LoadError(TempFile(bytes.substr(0, last_data)).path()), "");
}

// Not every changed byte can be detected (a weight may have any value), but none may do harm.
TEST(GgufMalformed, AnyByteMayBeWrong) {
  const std::string good = GoodModel("qwen3").Bytes();
  size_t refused = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (const unsigned char change : {0x01, 0x80, 0xff}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ change);
      refused += LoadError(TempFile(bytes).path()).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, good.size());  // out of three times as many
}

}  // namespace
}  // namespace larder::model::config

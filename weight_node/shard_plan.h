// ShardPlan: which thread holds which panels of which matrix; layers of one kind are divided alike.
// A pure function of the model's shape and the number of threads, so `larder plan` computes it for
// machines that are not at hand. Matrices are split by rows, into whole panels. If panels are few
// for the threads, so that some threads would have much more than others, a panel is also cut along
// its inputs, at chunks of kSumBlocks blocks. Their sums are added in ascending order whichever
// thread computes them, so the bits stay the same. (Sandwich, section 6: polymerisation over
// threads, with split-K.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/range.h"
#include "kernels/formats/panel_format.h"
#include "model/config/config.h"

namespace larder::weight_node {

using PanelRange = Range<uint32_t>;

// The matrices of a layer, in the order in which a token passes through them. Their panels are
// numbered from 0:
//  QKV      by KV head ("group"): the rows of its query heads, its key head, its value head, and
//           whatever else precedes attention or a state (model::RowsOfHead), padded to whole
//           panels, so that a group's rows are adjacent and one thread usually projects whole
//           groups;
//  gate/up  in units of 4 panels: 32 rows of gate (2 panels) and the same 32 rows of up, so that a
//           thread computes, gates and quantises whole blocks of the FFN activation without other
//           threads; of 2 panels where there is no gate;
//  query up, O, down, lm_head   rows in order;
//  key up, value up   of latent attention (model::LatentSpec): by head, each padded to whole
//           panels;
//  gate/up of experts   unit u of expert e is u * experts + e: each thread has some units of all
//           experts, so that whichever are chosen, all threads have work;
//  down of experts      panel p is panel p of all experts, one after another: a thread adds what
//  the
//           experts give up itself;
//  gate of a layer input  in units of 2 panels, a block of what it makes.
struct LayerShape {
  explicit LayerShape(const model::LayerSpec& layer);
  // ceil(inputs / 32) of dim, O's, ffn and the shared expert's ffn
  size_t dim_blocks, q_blocks, ffn_blocks, shared_blocks;
  // The same of latent attention's queries, and of a head of key up and value up; 0 without it.
  size_t query_blocks, key_blocks, value_blocks;
  size_t group_rows;    // rows of one KV head
  size_t group_panels;  // ceil(group_rows / 16)
  size_t kv_heads;
  // The same of a state beside attention, whose groups follow; 0 without one.
  size_t state_rows, state_panels, state_groups;
  size_t qkv_panels, query_panels, key_panels, value_panels, o_panels, ffn_units, down_panels;
  uint32_t unit_panels;              // of a unit, the shared expert's, too
  size_t experts;                    // 0: none
  size_t shared_units, shared_down;  // units and panels of the shared expert
  // Of a layer input: ceil(its elements / 32), which is its units, too; panels of its output.
  size_t input_blocks, input_out;
  size_t expert_units() const { return ffn_units / experts; }

  PanelRange of_group(size_t group) const;
  size_t GroupOf(size_t panel) const;
  size_t rows_of_groups() const { return kv_heads * group_rows + state_groups * state_rows; }
};

// The matrices that threads have panels of. kFfn is gate and up together, counted in units.
// kQueryUp, kKeyUp and kValueUp: those of latent attention. kSharedFfn and kSharedDown: those of a
// shared expert. kInputGate (in units) and kInputOut: those of a layer input. No layer's: kLmHead,
// and kInputs, which makes all layers' inputs.
enum class PanelMatrix : uint8_t {
  kQkv,
  kQueryUp,
  kKeyUp,
  kValueUp,
  kO,
  kFfn,
  kDown,
  kSharedFfn,
  kSharedDown,
  kInputGate,
  kInputOut,
  kLmHead,
  kInputs
};
inline constexpr size_t kPanelMatrices = 13;
inline constexpr std::array kLayerMatrices = {
    PanelMatrix::kQkv,       PanelMatrix::kQueryUp,   PanelMatrix::kKeyUp,
    PanelMatrix::kValueUp,   PanelMatrix::kO,         PanelMatrix::kFfn,
    PanelMatrix::kDown,      PanelMatrix::kSharedFfn, PanelMatrix::kSharedDown,
    PanelMatrix::kInputGate, PanelMatrix::kInputOut};
constexpr size_t IndexOf(PanelMatrix matrix) { return static_cast<size_t>(matrix); }
// The number of a matrix of a kind of layer (model::ModelConfig::kinds) among all that threads have
// panels of: lm_head and kInputs, for which `kind` does not matter, then kind by kind.
constexpr size_t MatrixId(size_t kind, PanelMatrix matrix) {
  if (matrix == PanelMatrix::kLmHead) return 0;
  if (matrix == PanelMatrix::kInputs) return 1;
  return 2 + kind * kLayerMatrices.size() + IndexOf(matrix);
}
const char* NameOf(PanelMatrix);  // for people: "qkv", "o", "ffn", "down", "lm_head"

// A part of a panel (kFfn: of a unit's four panels) along its inputs: either the first chunks, as
// many as one thread computes, or exactly one later chunk, whose sums are kept apart until the
// thread with the first chunks adds them.
struct PanelPart {
  PanelMatrix matrix;
  uint32_t panel;
  Range<uint32_t> chunks;  // chunks of kernels::kSumBlocks blocks
  uint32_t panels = 1;     // of the unit
  bool first() const { return chunks.begin == 0; }
};

// The panels of one matrix: runs of panels of one shape, which repeat. The runs of QKV are those of
// a KV head's group (its query heads, its key head, its value head); others have one run of one.
struct MatrixPanels {
  struct Run {
    uint32_t end;  // number of panels in the runs up to and including this one
    kernels::PanelShape panel;
    bool operator==(const Run&) const = default;
  };
  uint32_t count = 0;  // panels (kFfn: units)
  // Panels of a unit: 4 or 2 of kFfn, 2 of kInputGate; of kDown as many as there are experts.
  uint32_t of_unit = 1;
  std::vector<Run> runs;

  const kernels::PanelShape& of(uint32_t panel) const;
  uint64_t BytesBefore(uint32_t panel) const;  // bytes of all panels (kFfn: units) before this one
  bool operator==(const MatrixPanels&) const = default;
};

// The panels of one layer's matrices, whose formats follow the types in the file. A panel has one
// format: where a panel's rows come from several matrices (gate and up share a product; query, key
// and value heads whose rows are no multiple of 16), it is the format of all of them or else
// kQ8Panel. No member takes kLmHead or kInputs, which are no matrices of a layer.
class LayerPanels {
 public:
  LayerPanels(const model::ModelConfig&, size_t layer);

  // The shape of a panel (kFfn: of one of a unit's four panels).
  const kernels::PanelShape& of(PanelMatrix matrix, uint32_t panel) const {
    return matrices_.at(IndexOf(matrix)).of(panel);
  }
  // Bytes of a range of panels (kFfn: units).
  uint64_t bytes(PanelMatrix, PanelRange) const;
  // The shape of a panel's part; bytes of it (kFfn: of a unit's four).
  kernels::PanelShape of(const PanelPart&) const;
  uint64_t bytes(const PanelPart&) const;
  PanelRange all(PanelMatrix matrix) const { return {0, matrices_.at(IndexOf(matrix)).count}; }
  uint64_t weight_bytes() const;  // bytes of the layer
  // Whether matrices that share panels have different types, so that these panels are kQ8Panel.
  bool mixed() const { return mixed_; }
  bool operator==(const LayerPanels&) const = default;

 private:
  std::array<MatrixPanels, kLayerMatrices.size()> matrices_;
  bool mixed_;
};

// The panels of all layers of the config.
std::vector<LayerPanels> PanelsOfLayers(const model::ModelConfig&);

struct ThreadShard {
  std::vector<PanelRange> whole;  // whole panels (kFfn: units), by MatrixId
  // By kind of layer, then by matrix. For each: chunks of the panel before the whole panels, then
  // the first part of the panel after them. Only for O, FFN and down.
  std::vector<std::vector<PanelPart>> parts;
  const PanelRange& of(size_t kind, PanelMatrix matrix) const {
    return whole[MatrixId(kind, matrix)];
  }
  const PanelRange& lm_head() const { return whole[0]; }
  const PanelRange& inputs() const { return whole[1]; }
};

struct ShardPlan {
  std::vector<ThreadShard> threads;
  size_t lm_head_panels = 0;  // panels of lm_head; 0 in a part without ends
  // Packed bytes of one thread's layers and its part of lm_head and kInputs.
  uint64_t ThreadBytes(const model::ModelConfig&, size_t thread) const;
  uint64_t MostThreadBytes(const model::ModelConfig&) const;  // bytes of the fullest thread
  // Packed bytes that a token waits for: a barrier follows each matrix, so the fullest thread of
  // each matrix counts.
  uint64_t CriticalBytes(const model::ModelConfig&) const;
  // The share of the threads' time that is work, if bytes are time: mean ThreadBytes() /
  // CriticalBytes(); 1 is the best.
  double Balance(const model::ModelConfig&) const;
};

// The shape of a panel of lm_head, and of kInputs.
kernels::PanelShape HeadPanel(const model::ModelConfig&);
kernels::PanelShape InputsPanel(const model::ModelConfig&);
// The type in which the embedding's rows are kept unless lm_head has them too: the file's, or Q8_0
// for floats.
model::TensorType EmbeddingType(const model::ModelConfig&);
uint64_t EmbeddingBytes(const model::ModelConfig&);
// The same of layer inputs' rows.
model::TensorType InputEmbeddingType(const model::ModelConfig&);
uint64_t InputEmbeddingBytes(const model::ModelConfig&);
// Packed bytes of a matrix over all layers, or of lm_head or kInputs; packed bytes of layers
// [first, first + count).
uint64_t MatrixBytes(const model::ModelConfig&, PanelMatrix);
uint64_t LayerBytes(const model::ModelConfig&, size_t first, size_t count);
// The rows of a layer's router, kSharedRouter included: float32, which lie beside the panels and
// are not in their bytes; and the bytes of these in layers [first, first + count).
size_t RouterRows(const model::LayerSpec&);
uint64_t RouterBytes(const model::ModelConfig&, size_t first, size_t count);
// Of the experts, how many `rows` rows choose together on average, if all are chosen equally often:
// n (1 - (1 - used / n)^rows).
double ActiveExperts(const model::ExpertSpec&, size_t rows);
// How many more units of the chosen experts than the mean the thread has that has most of them, on
// average over steps of so many rows that choose by chance; of the layers where that is most. 1:
// all have as many, or there are no experts.
double FullestOfExperts(const model::ModelConfig&, const ShardPlan&, size_t rows);
// Packed bytes of the matrix that a step of so many rows reads: all, or of experts' matrices those
// of the active ones; of layers [first, first + count), with their routers.
double ReadBytes(const model::ModelConfig&, PanelMatrix, size_t rows);
double LayerReadBytes(const model::ModelConfig&, size_t first, size_t count, size_t rows);

// A panel is cut if that takes at least split_gain_bytes from the thread that has most of its
// matrix and that all others wait for: a cut costs that thread two more products and a hand-over,
// about 0.5 us; reading 32 KB from L3 takes 1 us.
inline constexpr uint64_t kSplitGainBytes = 32 << 10;
ShardPlan MakeShardPlan(const model::ModelConfig&, size_t threads,
                        uint64_t split_gain_bytes = kSplitGainBytes);

// Numbers of threads that suit a model better than the one at hand.
struct BetterThreads {
  size_t fewest_as_fast = 0;  // the fewest with at most the same CriticalBytes; at most the number
                              // at hand
  size_t next_balanced = 0;   // the fewest above it with a Balance of kGoodBalance; 0: none up to 4
                              // times it
};
inline constexpr double kGoodBalance = 0.97;
BetterThreads FindBetterThreads(const model::ModelConfig&, size_t threads);
// all of this in a line for people
std::string BalanceText(const model::ModelConfig&, size_t threads);

}  // namespace larder::weight_node

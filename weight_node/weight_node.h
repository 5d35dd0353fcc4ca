// WeightNode: one socket's weights and the steps that use them. It owns everything that the steps'
// operands point to. Built once; the pipeline asks it for the steps of each thread and puts the
// attention steps between them. Per layer, for thread t (DESIGN.md, "One token's way"; B is a
// barrier of the socket's threads):
//   norm+quantise (all rows, into its own buffer) | QKV panels, group by group, each signalled ...
//   attention ... B quantise | O panels += residual, B norm+quantise | FFN units -> quantised, B
//   down panels += residual, B
// A norm of O's or down's output, its sum to the residual and what follows are one step after that
// B; each thread keeps its columns of the sum, in the other of two buffers. The norm of a whole row
// of q and k is a step after one B more. Latent attention: QKV B (query latent's norm | query up B)
// latent's norm, key up B attention B value up B quantise | O. In micro-batches of more than
// few_rows rows the threads share norm+quantise too (one more barrier after each); the bits are the
// same. If a panel is cut (PanelPart), a thread with later chunks computes these before anything
// else of that matrix, and signals; the thread with the first chunks waits for that after all its
// other work, and adds the sums. With experts, the norm before them also routes, and a B follows it
// in both forms (expert_steps.h). Where they stand beside an FFN, a B comes before that norm, which
// is three, and one more behind down, after which their outputs' norms are added; with many rows
// neither does.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "base/range.h"
#include "kernels/gemm/gemm.h"
#include "model/config/config.h"
#include "model/gguf/gguf.h"
#include "model/step/step_kind.h"
#include "sync/epoch_flag.h"
#include "sync/wait.h"
#include "threadpool/program_builder.h"
#include "weight_node/activations.h"
#include "weight_node/expert_steps.h"
#include "weight_node/panel_map.h"
#include "weight_node/shards.h"
#include "weight_node/weight_steps.h"

namespace larder::weight_node {

struct WeightNodeOptions {
  kernels::Isa isa;
  kernels::KernelTuning tuning = kernels::DefaultTuning(isa);
  size_t few_rows = 32;  // see OwnNormRows
  size_t max_batch_tokens = 128;
  size_t slots = 1;
  size_t logit_rows = 32;
  std::vector<NumaNodeId> node_of_thread;
  const AttentionIoRows* shared_io = nullptr;  // separated: rows that the attention sockets read
                                               // and write
  // How the threads of this socket wait; the most parts of a micro-batch whose steps alternate.
  sync::WaitPolicy::Mode own_waiters = sync::WaitPolicy::Mode::kAdaptive;
  size_t halves = 1;
  std::optional<PanelMap> panels;  // who computes which panels; nullopt: each thread its own
  // Gate and up of experts: each thread computes an equal share of the work of those that are
  // chosen, wherever they lie, not what it keeps itself.
  bool expert_shares = false;
};

class WeightNode {
 public:
  WeightNode(const model::ModelConfig&, const ShardPlan&, const WeightNodeOptions&);

  // Reads thread t's shard, and its share of the embedding rows unless lm_head is the same matrix.
  // Call it on thread t.
  void Pack(const model::GgufFile&, size_t thread, PackedByteCounter&);
  // Call after all threads have packed: fills the tables that steps point to.
  void Finish();

  using Steps = threadpool::ProgramBuilder;
  // Need the ends (embedding, lm_head). AddInputs, if there are layer inputs, follows AddEmbed: the
  // rows that it makes are complete for all threads.
  void AddEmbed(size_t thread, Steps&);
  void AddInputs(size_t thread, ProgramForm, Steps&);
  // inputs: layer inputs come with the residual.
  void AddReceive(size_t thread, bool inputs, Steps&);
  // Goes after the thread's own down panels, or after a barrier if the rows come from the
  // embedding. logit_rows: send only the rows that the process with lm_head needs; else layer
  // inputs go with the residual.
  void AddSend(size_t thread, ProgramForm, bool logit_rows, Steps&);
  // Adds the layer's operations (model::LayerSpec) up to attention. ready(group) returns the flag
  // to signal when this thread's rows of that KV head's group are done, or null. half: number of
  // the micro-batch's half, below options.halves. keeps: AddKeep follows behind attention, so that
  // what attention and memory don't need is of the logit rows alone.
  template <typename Ready>
  void AddBeforeAttention(size_t thread, size_t layer, ProgramForm form, size_t half, bool keeps,
                          Steps& steps, Ready ready) {
    for (const model::LayerOp& op : config_.layer(layer).BeforeAttention()) {
      if (op.kind != model::OpKind::kQkv) {
        AddOp(thread, layer, form, half, op, keeps, steps);
        continue;
      }
      const std::vector<QkvPart> parts =
          QkvParts(LayerShape(config_.layer(layer)), Work(form, thread, layer, PanelMatrix::kQkv),
                   layer_panels_[layer]);
      const bool row_norm = config_.layer(layer).qk_norm == model::QkNorm::kRow;
      const bool latent = config_.layer(layer).latent.any();
      std::vector<sync::EpochFlag*> flags;
      std::vector<uint32_t> begun;  // groups whose first rows are this thread's
      for (size_t i = 0; i < parts.size(); ++i) {
        const bool last = i + 1 == parts.size() || parts[i + 1].group != parts[i].group;
        sync::EpochFlag* const flag = last ? ready(parts[i].group) : nullptr;
        AddQkvPart(thread, layer, form, parts[i].extent, row_norm || latent ? nullptr : flag,
                   steps);
        if (flag != nullptr) flags.push_back(flag);
        if (i == 0 || parts[i - 1].group != parts[i].group) {
          if (IsFirstOfGroup(layer, parts[i])) begun.push_back(parts[i].group);
        }
      }
      if (row_norm) AddRowNorm(thread, layer, form, flags, std::move(begun), steps);
      if (latent) AddLatent(thread, layer, form, flags, steps);
    }
  }
  // For the layer after whose attention only the logit rows are needed: moves these rows to the
  // beginning of the others in the buffers. The following steps get a BatchRows of these rows
  // alone. Goes before AddAfterAttention(kept).
  void AddKeep(size_t thread, size_t layer, ProgramForm, Steps&);
  void AddAfterAttention(size_t thread, size_t layer, ProgramForm, size_t half, bool kept, Steps&);
  void AddLmHead(size_t thread, ProgramForm, Steps&);

  // The final norm of a row of the residual, to the bits that AddLmHead's steps quantise; x and
  // hidden are [dim].
  void FinalNorm(const float* x, float* hidden) const {
    NormsOf(config_.norm)(&x, shards_[0]->output_norm(), &hidden, 1, config_.dim,
                          Epsilon(config_.norm_epsilon));
  }

  // Signalled when the thread has computed its later parts of panels.
  sync::EpochFlag* PartsFlag(size_t half, size_t thread, PanelMatrix matrix) {
    return &flags_[(half * shards_.size() + thread) * kPanelMatrices + static_cast<size_t>(matrix)];
  }
  // Signals the flags that only micro-batches in several parts signal; between frames, so that they
  // do not get too old (sync/epoch_flag.h).
  void RefreshFlags(uint32_t epoch) {
    for (size_t i = flags_.size() / halves_; i < flags_.size(); ++i) flags_[i].Signal(epoch);
  }

  Activations& activations() { return activations_; }
  const Activations& activations() const { return activations_; }
  const Shards& shards(size_t thread) const { return *shards_[thread]; }
  uint64_t weight_bytes() const;  // packed panels of all threads
  uint64_t embedding_bytes() const { return embedding_.bytes() + input_embedding_.bytes(); }
  // What the routers of its layers have chosen, layers by their numbers here. Any thread.
  const ExpertCounters& expert_counters() const { return counters_; }

 private:
  static threadpool::Step MakeStep(threadpool::Kernel, const void* operand, model::StepKind,
                                   size_t layer, bool barrier, sync::EpochFlag* signal = nullptr);
  // Makes the products of all formats that the matrix has in some layer.
  void MakeProducts(const WeightNodeOptions&);
  // Where a product goes.
  enum class Target : uint8_t {
    kRows,    // its rows; O and down are added to the residual
    kBranch,  // O, down and kInputOut: rows of their own, since a norm follows
    kPart,    // a PanelPart's own rows
    kExperts  // of experts: rows of their own, of one expert at a time; gate and up read listed
              // rows
  };
  // or null
  const kernels::Gemm* FindGemm(PanelMatrix, const kernels::PanelShape&,
                                Target = Target::kRows) const;
  Target TargetOf(size_t layer, PanelMatrix) const;  // not kPart
  kernels::NormsFn NormsOf(model::NormKind kind) const {
    return kind == model::NormKind::kRms ? elementwise_.rms_norms : elementwise_.layer_norms;
  }
  kernels::GateFn GateOf(size_t layer) const;
  // The epsilon of a norm of the residual, which is kept divided by the scale of what layers add to
  // it: so these products need no factor, and a norm's result is the same.
  float Epsilon(float epsilon) const {
    return static_cast<float>(epsilon / (config_.scales.residual * config_.scales.residual));
  }
  // The most columns of down that a thread computes in one step.
  size_t MostDownColumns() const;
  // Makes rows for the sums of later parts of panels.
  void MakePartRows(const WeightNodeOptions&);
  // logit_rows: only these go on behind attention; an operation that attention doesn't need is of
  // them alone.
  void AddOp(size_t thread, size_t layer, ProgramForm, size_t half, const model::LayerOp&,
             bool logit_rows, Steps&);
  // Quantises the heads' outputs for O.
  void AddQuantizeAttended(size_t thread, size_t layer, ProgramForm, bool logit_rows, Steps&);
  // The normalised and quantised residual: a thread's own, or the one that all share.
  const ActRows& InputIn(size_t thread, ProgramForm) const;
  ActRows AttendedOf(size_t thread, ProgramForm) const;
  // What QKV gives.
  const FloatRows& ProjectedOf(size_t layer) const;
  // The columns of the residual that the thread's panels of O or down write.
  std::vector<Range<size_t>> ColumnsOf(size_t thread, size_t layer, ProgramForm, PanelMatrix) const;
  // The panels (kFfn: units) of the matrix that the thread writes, one that is cut included.
  std::vector<PanelRange> WrittenBy(size_t thread, size_t layer, ProgramForm, PanelMatrix) const;
  std::span<const PanelExtent> Work(ProgramForm form, size_t thread, size_t layer,
                                    PanelMatrix matrix) const {
    return panels_.Work(form, thread, config_.KindOf(layer), matrix);
  }
  const std::vector<PanelPart>& PartsOf(size_t thread, size_t layer) const {
    return plan_.threads[thread].parts[config_.KindOf(layer)];
  }
  // logit_rows: of these rows alone.
  void AddGate(size_t thread, size_t layer, ProgramForm, size_t half, bool logit_rows, Steps&);
  void AddInputGate(size_t thread, size_t layer, ProgramForm, Steps&);
  // The inputs of a layer.
  FloatRows InputsOf(size_t layer) const {
    return {activations_.inputs.data + (config_.first_layer + layer) * config_.input_size,
            activations_.inputs.stride};
  }
  // Of a layer with experts: their gate and up, their down.
  void AddExperts(size_t thread, size_t layer, ProgramForm, Steps&);
  // The units of experts in adjacent extents.
  const std::vector<ExpertUnit>& UnitsOf(size_t layer, const std::vector<PanelExtent>&);
  void AddExpertsDown(size_t thread, size_t layer, ProgramForm, Steps&);
  // Of a layer whose experts stand beside an FFN, which becomes what the FFN's down gives: the sum
  // of both behind their norms.
  void AddBesideFfn(size_t thread, size_t layer, ProgramForm, Steps&);
  bool IsBesideFfn(size_t layer) const { return config_.layer(layer).experts.beside_ffn; }
  bool IsRouted(size_t layer, const model::LayerOp&) const;  // whether it is the norm before them
  RouterRule RuleOf(size_t thread, size_t layer) const;
  const RouterOperand* RouterOf(size_t thread, size_t layer, ProgramForm);
  const ChosenRows& ChosenIn(size_t thread, ProgramForm) const;
  // x += panels * in, for this thread's panels of O or down; the norm in between, if there is one.
  void AddResidual(size_t thread, size_t layer, ProgramForm, size_t half, const model::LayerOp&,
                   Steps&);
  // in = x
  void AddInput(size_t thread, size_t layer, ProgramForm, Steps&);
  // QkNorm::kRow, after all threads' QKV; then the thread signals its flags.
  void AddRowNorm(size_t thread, size_t layer, ProgramForm, std::span<sync::EpochFlag* const> flags,
                  std::vector<uint32_t> begun, Steps&);
  // Latent attention's queries and keys, after all threads' QKV; then the thread signals its flags.
  void AddLatent(size_t thread, size_t layer, ProgramForm, std::span<sync::EpochFlag* const> flags,
                 Steps&);
  // Key up or value up, then a barrier; x and y with floats between heads.
  void AddHeadProduct(size_t thread, size_t layer, ProgramForm, PanelMatrix, const FloatRows& x,
                      size_t x_stride, const FloatRows& y, size_t y_stride, bool logit_rows,
                      Steps&);
  void AddValueUp(size_t thread, size_t layer, ProgramForm, bool logit_rows, Steps&);
  bool IsFirstOfGroup(size_t layer, const QkvPart& part) const {
    return part.extent.panels.begin == LayerShape(config_.layer(layer)).of_group(part.group).begin;
  }
  // The norm of O's or down's output, and its sum with x; in micro-batches of few rows with the
  // operation that follows, so that no barrier is needed.
  void AddSum(size_t thread, size_t layer, ProgramForm, const model::LayerOp&, Steps&);
  // Whether AddSum of the operation before has done this one.
  bool IsDoneWithSum(size_t layer, ProgramForm, const model::LayerOp&) const;
  // The thread's parts of cut panels. AddOtherParts: its later parts, which others wait for.
  // AddFirstPart: its first part, to y's columns of the panel, plus the sums of the later parts.
  void AddOtherParts(size_t thread, size_t layer, size_t half, PanelMatrix, const ActRows& in,
                     model::StepKind, Steps&);
  void AddFirstPart(size_t thread, size_t layer, size_t half, const PanelPart&, const ActRows& in,
                    const FloatRows& y, const float* bias, model::StepKind, Steps&);
  void AddPart(size_t thread, size_t layer, size_t index, ActRows x, const FloatRows& y,
               model::StepKind, Steps&);
  const PanelPart* FirstPart(size_t thread, size_t layer, PanelMatrix) const;  // or null
  // The operand of a product for one extent of panels of one format; y's columns are the extent's.
  ProductOperand OperandOf(const PanelExtent&, PanelMatrix, size_t layer, const ActRows& x,
                           FloatRows y) const;
  void AddNorm(size_t thread, size_t layer, ProgramForm, const float* weight, model::StepKind,
               const HeadPlanes* planes, const RouterOperand*, Steps&);
  void AddQkvPart(size_t thread, size_t layer, ProgramForm, const PanelExtent&,
                  sync::EpochFlag* ready, Steps&);
  RowShare ShareOf(size_t thread, ProgramForm form) const;
  void AddTransfer(size_t thread, ProgramForm, threadpool::Kernel, model::StepKind, size_t layer,
                   bool barrier, bool logit_rows, bool inputs, Steps&);
  // Reads a thread's share of a table that tokens are looked up in.
  void PackTable(const model::GgufFile&, const char* tensor, model::TensorType, size_t cols,
                 const topology::Arena& to, size_t thread, PackedByteCounter&) const;
  template <typename Operand>
  const Operand* Keep(std::deque<Operand>& operands, Operand operand) {
    return &operands.emplace_back(operand);
  }

  const model::ModelConfig config_;
  const ShardPlan plan_;
  const PanelMap panels_;
  const kernels::Elementwise& elementwise_;
  Activations activations_;
  const ExpertBuffers experts_;
  ExpertCounters counters_;
  std::vector<std::unique_ptr<Shards>> shards_;
  const std::vector<LayerPanels> layer_panels_;
  topology::Arena embedding_;        // rows of EmbeddingType(), unless lm_head is the same matrix
  topology::Arena input_embedding_;  // rows of InputEmbeddingType()
  struct Product {
    PanelMatrix matrix;
    Target target;
    kernels::Gemm gemm;
  };
  std::deque<Product> products_of_;  // by matrix and format
  std::vector<const uint8_t*> head_panels_;
  std::vector<uint32_t> head_first_panel_;
  std::deque<EmbedOperand> embeds_;
  std::deque<InputsOperand> inputs_;
  std::deque<InputGateOperand> input_gates_;
  std::deque<TransferOperand> transfers_;
  std::deque<AddNormOperand> add_norms_;
  std::deque<AddNormsOperand> add_both_norms_;
  std::deque<ExpertNorms> expert_norms_;
  std::deque<AddNormInputOperand> add_norm_inputs_;
  std::deque<RowNormOperand> row_norms_;
  std::deque<std::vector<uint32_t>> groups_;
  std::deque<HeadProductOperand> head_products_;
  std::deque<LatentOperand> latents_;
  std::deque<KeepOperand> keeps_;
  std::deque<NormOperand> norms_;
  std::deque<QuantizeOperand> quantizes_;
  std::deque<GroupNormOperand> group_norms_;
  std::deque<ProductOperand> products_;
  std::deque<HeadOperand> heads_;
  std::deque<FfnOperand> ffns_;
  std::deque<GateOperand> gates_;
  std::deque<RouterOperand> routers_;
  std::deque<std::vector<RouterOperand::Rows>> router_rows_;
  std::deque<RouteOperand> routes_;
  std::deque<ExpertFfnOperand> expert_ffns_;
  // [layer, first unit, end]
  std::map<std::tuple<size_t, uint32_t, uint32_t>, std::vector<ExpertUnit>> expert_units_;
  std::deque<ExpertDownOperand> expert_downs_;
  std::deque<AddPartsOperand> add_parts_;
  const sync::WaitPolicy::Mode own_waiters_;
  const size_t halves_;
  const bool expert_shares_;
  std::vector<sync::EpochFlag> flags_;  // [half][thread][matrix]: PartsFlag
  topology::NodeArenas part_arenas_;
  // [thread][kind][of ThreadShard::parts]
  std::vector<std::vector<std::vector<FloatRows>>> part_rows_;
  std::deque<std::vector<sync::EpochFlag*>> waits_;
  std::deque<std::vector<FloatRows>> added_;
};

}  // namespace larder::weight_node

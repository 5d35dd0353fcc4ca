// `larder synth`: writes a model of any shape with random weights.
#include "model/synth/synth.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "model/families/family.h"
#include "node/commands/command.h"
#include "node/options/count_option.h"
#include "node/options/progress.h"
#include "node/options/terminal.h"
#include "node/service/signals.h"

namespace larder::node::inline commands {
namespace {

struct SynthCommandOptions {
  std::string shape, output, type = "q8_0", architecture;
  // 0: the named shape's value
  size_t layers = 0, dim = 0, ffn = 0, heads = 0, kv_heads = 0, head_size = 0, vocab = 0,
         context = 0;
  bool tied = false;
  size_t seed = 1;
  bool list = false;
};

int List() {
  fmt::print("{:<16} {:>6} {:>6} {:>6} {:>12} {:>8} {:>10} {:>9}\n", "name", "layers", "dim", "ffn",
             "heads / KV", "vocab", "parameters", "Q8_0");
  for (const auto& [name, shape] : model::NamedShapes()) {
    const auto parameters =
        static_cast<double>(model::ConfigOfShape(shape, std::string(name)).parameters());
    fmt::print("{:<16} {:>6} {:>6} {:>6} {:>12} {:>8} {:>8.1f} M {:>9}\n", name, shape.layers,
               shape.dim, shape.ffn, fmt::format("{} / {}", shape.heads, shape.kv_heads),
               shape.vocab, parameters * 1e-6,
               HumanBytes(parameters * 34 / 32));  // a Q8_0 block has 34 bytes for 32 weights
  }
  return 0;
}

model::ModelShape ShapeFrom(const SynthCommandOptions& o) {
  model::ModelShape shape = o.shape.empty() ? model::ModelShape{} : model::ShapeByName(o.shape);
  auto set = [](size_t& field, size_t value) {
    if (value != 0) field = value;
  };
  set(shape.layers, o.layers);
  set(shape.dim, o.dim);
  if (o.ffn != 0) shape.shared_kv_ffn = shape.shared_kv_ffn * o.ffn / shape.ffn;
  set(shape.ffn, o.ffn);
  set(shape.heads, o.heads);
  set(shape.kv_heads, o.kv_heads);
  if (o.heads != 0 && o.kv_heads == 0) shape.kv_heads = o.heads;
  set(shape.head_size, o.head_size);
  // Without a size of its own, a head has its share of the width.
  if (o.head_size == 0 && (o.dim != 0 || o.heads != 0))
    shape.head_size = shape.dim / std::max<size_t>(1, shape.heads);
  set(shape.vocab, o.vocab);
  set(shape.context, o.context);
  if (o.tied) shape.tied = true;
  if (!o.architecture.empty()) shape.architecture = model::FamilyOf(o.architecture).name;
  return shape;
}

int Run(const SynthCommandOptions& o, bool dimensions_given) {
  if (o.list) return List();
  if (o.output.empty()) throw CLI::RequiredError("-o,--output");
  if (o.shape.empty() && !dimensions_given) {
    throw CLI::ValidationError(
        "synth", "give --shape NAME or dimensions (--dim, --layers, ...); --list names the shapes");
  }
  model::SynthOptions synth;
  synth.shape = ShapeFrom(o);
  synth.seed = o.seed;
  synth.name = o.shape.empty() ? "synth" : o.shape;
  synth.type = model::MatrixTypesByName(o.type);
  {
    const InterruptGuard guard;
    Progress progress("writing");
    model::WriteSynth(synth, o.output, [&](uint64_t done, uint64_t all) {
      progress.Update(done, all);
      ThrowIfInterrupted();
    });
  }
  const auto config = model::ReadModelConfig(*model::GgufFile::Open(o.output));
  fmt::print("{}: {:.1f} M parameters, {}\n", o.output,
             static_cast<double>(config.parameters()) * 1e-6,
             HumanBytes(static_cast<double>(std::filesystem::file_size(o.output))));
  return 0;
}

}  // namespace

Command AddSynth(CLI::App& program) {
  auto o = std::make_shared<SynthCommandOptions>();
  CLI::App* command =
      program.add_subcommand("synth", "write a GGUF file of any shape with random weights");
  command->add_option("--shape", o->shape, "a well-known model's shape; --list names them")
      ->type_name("NAME");
  command->add_flag("--list", o->list, "list the named shapes");
  command->add_option("-o,--output", o->output, "the file to write")->type_name("FILE");
  const std::vector<std::string> types = model::MatrixTypeNames();
  command
      ->add_option("--type", o->type,
                   fmt::format("type of the matrices: {} (default: q8_0); q4_k_m and q5_k_m are "
                               "llama-quantize's mixtures with Q6_K",
                               fmt::join(types, ", ")))
      ->check(CLI::IsMember(types).description(""))
      ->type_name("NAME");
  AddCount(*command, "-s,--seed", o->seed,
           "seed of the weights: the same options give the same file (default: 1)");
  std::vector<CLI::Option*> dimensions;
  auto add = [&](const char* name, size_t& value, const char* text) {
    dimensions.push_back(AddCount(*command, name, value, text, 1)->group("Dimensions"));
  };
  add("--layers", o->layers, "layers");
  add("--dim", o->dim, "width of the model");
  add("--ffn", o->ffn, "width of the feed-forward part");
  add("--heads", o->heads, "query heads");
  add("--kv-heads", o->kv_heads, "key/value heads (default: as many as --heads)");
  add("--head-size", o->head_size, "elements of a head (default: dim / heads)");
  add("--vocab", o->vocab, "tokens, at least 259");
  add("--context", o->context, "tokens of context");
  command->add_flag("--tied", o->tied, "lm_head is the embedding table")->group("Dimensions");
  std::vector<std::string> families;
  for (const model::Family* family : model::Families()) families.emplace_back(family->name);
  command
      ->add_option("--arch", o->architecture,
                   fmt::format("family: {} (default: llama)", fmt::join(families, ", ")))
      ->check(CLI::IsMember(families).description(""))
      ->type_name("NAME")
      ->group("Dimensions");
  return {command, [o, dimensions] {
            bool given = false;
            for (const CLI::Option* d : dimensions) given = given || d->count() > 0;
            return Run(*o, given);
          }};
}

}  // namespace larder::node::commands

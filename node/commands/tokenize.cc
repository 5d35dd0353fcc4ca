// `larder tokenize`: the token ids of a text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "model/gguf/gguf.h"
#include "model/tokenizer/tokenizer.h"
#include "node/commands/command.h"
#include "node/options/terminal.h"

namespace larder::node::inline commands {
namespace {

struct TokenizeOptions {
  std::string model, text, file;
  bool ids_only = false;
  bool bos = true;
  bool parse_special = true;
};

int Run(const TokenizeOptions& o, bool text_given) {
  if (text_given && !o.file.empty()) throw CLI::ValidationError("-f", "give either a text or -f");
  const auto gguf = model::GgufFile::Open(o.model);
  const auto tokenizer = model::Tokenizer::FromGguf(*gguf);
  const std::string text = text_given ? o.text : ReadFile(o.file.empty() ? "-" : o.file);
  const auto tokens = tokenizer->Encode(text, o.bos && tokenizer->wants_bos(), o.parse_special);
  if (o.ids_only) {
    fmt::print("[{}]\n", fmt::join(tokens, ", "));
    return 0;
  }
  for (const auto token : tokens)
    fmt::print("{:>6} -> '{}'\n", token, tokenizer->Piece(token, true));
  return 0;
}

}  // namespace

Command AddTokenize(CLI::App& program) {
  auto o = std::make_shared<TokenizeOptions>();
  CLI::App* command = program.add_subcommand("tokenize", "print a text's tokens");
  command->add_option("-m,--model", o->model, "GGUF file; a vocabulary alone is enough")
      ->type_name("FILE")
      ->required();
  auto* text = command->add_option("TEXT", o->text, "the text (default: -f, else standard input)");
  command->add_option("-f,--file", o->file, "read the text from a file (-: standard input)")
      ->type_name("FILE");
  command->add_flag("--ids", o->ids_only, "print only the ids, as [1, 2, 3]");
  command->add_flag("!--no-bos", o->bos,
                    "do not put the model's begin-of-text token before the text");
  command->add_flag("!--no-parse-special", o->parse_special,
                    "treat special tokens in the text as plain text");
  return {command, [o, text] { return Run(*o, text->count() > 0); }};
}

}  // namespace larder::node::commands

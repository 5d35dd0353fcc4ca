// Jit: turns generator code into functions that live as long as the process. Internal to kernels/;
// set-up only.
#pragma once

#include <asmjit/x86.h>

#include <string_view>

#include "base/error.h"

namespace larder::kernels::inline jit {

class Jit {
 public:
  // emit(asmjit::x86::Assembler&) writes a whole System V function, including its return. perf
  // shows it under `name` (perf_map.h). Throws Error if asmjit refuses an instruction or no
  // executable memory can be had.
  template <typename Function, typename Emit>
  static Function Generate(std::string_view name, Emit&& emit) {
    asmjit::CodeHolder code;
    Begin(code);
    asmjit::x86::Assembler assembler(&code);
    // Without this option asmjit encodes any operands without checking them.
    assembler.addDiagnosticOptions(asmjit::DiagnosticOptions::kValidateAssembler);
    emit(assembler);
    return reinterpret_cast<Function>(Finish(code, name));
  }

  // The same with asmjit's Compiler (virtual registers): emit(asmjit::x86::Compiler&) adds one
  // function.
  template <typename Function, typename Emit>
  static Function Compile(std::string_view name, Emit&& emit) {
    asmjit::CodeHolder code;
    Begin(code);
    asmjit::x86::Compiler compiler(&code);
    compiler.addDiagnosticOptions(asmjit::DiagnosticOptions::kValidateAssembler |
                                  asmjit::DiagnosticOptions::kValidateIntermediate);
    emit(compiler);
    if (const asmjit::Error error = compiler.finalize()) Fail(error);
    return reinterpret_cast<Function>(Finish(code, name));
  }

 private:
  static void Begin(asmjit::CodeHolder&);  // sets the environment, and an error handler that throws
  static void* Finish(asmjit::CodeHolder&, std::string_view name);
  [[noreturn]] static void Fail(asmjit::Error);
};

}  // namespace larder::kernels::jit

// The process's one JIT runtime: turns finished asmjit code into function pointers.
// Set-up only, any thread. Code lives as long as the process: kernels are called until the last thread ends,
// so nothing is ever released.
//
//   asmjit::CodeHolder code;
//   Jit::Init(code);                       // from here on asmjit's errors are thrown as larder::Error
//   asmjit::x86::Assembler as(&code);      // or x86::Compiler; then finalize()
//   ...
//   Fn fn = Jit::Add<Fn>(code);
#pragma once

#include <asmjit/core.h>

namespace larder::kernels {

class Jit {
 public:
  // For the host's environment, with an error handler that throws Error: no emitted instruction needs a
  // check.
  static void Init(asmjit::CodeHolder& code);

  // Copies the code into executable memory. Throws Error if it can't be relocated or the system grants no
  // such memory.
  template <typename Fn>
  static Fn Add(asmjit::CodeHolder& code) {
    return reinterpret_cast<Fn>(AddCode(code));
  }

 private:
  static void* AddCode(asmjit::CodeHolder& code);
};

}  // namespace larder::kernels

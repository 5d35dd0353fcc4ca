#include "kernels/jit/jit.h"

#include "kernels/jit/perf_map.h"

namespace larder::kernels::inline jit {
namespace {

// One runtime per process, never destroyed, because kernels may run until the last thread ends.
asmjit::JitRuntime& Runtime() {
  static auto* runtime = new asmjit::JitRuntime();
  return *runtime;
}

class ThrowingHandler : public asmjit::ErrorHandler {
 public:
  void handleError(asmjit::Error, const char* message, asmjit::BaseEmitter*) override {
    throw Error("kernels: asmjit refused an instruction: {}", message);
  }
};

}  // namespace

void Jit::Begin(asmjit::CodeHolder& code) {
  static ThrowingHandler handler;
  if (const asmjit::Error error = code.init(Runtime().environment())) Fail(error);
  code.setErrorHandler(&handler);
}

void* Jit::Finish(asmjit::CodeHolder& code, std::string_view name) {
  if (code.hasUnresolvedLinks())
    throw Error("kernels: a jump to a label that was never bound: a bug in Larder");
  void* function = nullptr;
  if (const asmjit::Error error = Runtime().add(&function, &code)) Fail(error);
  AddToPerfMap(function, code.codeSize(), name);
  return function;
}

void Jit::Fail(asmjit::Error error) {
  throw Error("kernels: cannot make executable code: {}; does the system forbid it (SELinux, W^X)?",
              asmjit::DebugUtils::errorAsString(error));
}

}  // namespace larder::kernels::jit

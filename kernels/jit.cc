#include "kernels/jit.h"

#include "base/error.h"

namespace larder::kernels {
namespace {

class ThrowingHandler : public asmjit::ErrorHandler {
 public:
  void handleError(asmjit::Error, const char* message, asmjit::BaseEmitter*) override {
    throw Error("kernel generator: asmjit: {}; this is a bug in Larder, please report it with your CPU model",
                message);
  }
};

// Never destroyed: pinned threads may still run kernels while static objects die.
asmjit::JitRuntime& Runtime() {
  static auto* runtime = new asmjit::JitRuntime;
  return *runtime;
}

}  // namespace

void Jit::Init(asmjit::CodeHolder& code) {
  static ThrowingHandler handler;
  if (const asmjit::Error e = code.init(Runtime().environment()); e != asmjit::kErrorOk) {
    throw Error("kernel generator: asmjit can't start: {}", asmjit::DebugUtils::errorAsString(e));
  }
  code.setErrorHandler(&handler);
}

void* Jit::AddCode(asmjit::CodeHolder& code) {
  void* function = nullptr;
  if (const asmjit::Error e = Runtime().add(&function, &code); e != asmjit::kErrorOk) {
    throw Error(
        "kernel generator: no executable memory: asmjit says {}; "
        "Larder generates its kernels at start: allow it (SELinux execmem, systemd MemoryDenyWriteExecute)",
        asmjit::DebugUtils::errorAsString(e));
  }
  return function;
}

}  // namespace larder::kernels

#include "kernels/jit/jit.h"

#include <gtest/gtest.h>

namespace larder::kernels::inline jit {
namespace {

namespace x86 = asmjit::x86;
using Function = int (*)(int);

TEST(Jit, AssemblerAndCompilerGiveFunctions) {
  const auto assembled = Jit::Generate<Function>("add2", [](x86::Assembler& a) {
    a.lea(x86::eax, x86::ptr(x86::rdi, 2));
    a.ret();
  });
  EXPECT_EQ(assembled(40), 42);
  const auto compiled = Jit::Compile<Function>("times3", [](x86::Compiler& cc) {
    asmjit::FuncNode* function =
        cc.addFunc(asmjit::FuncSignatureT<int, int>(asmjit::CallConvId::kCDecl));
    const x86::Gp x = cc.newInt32();
    function->setArg(0, x);
    cc.imul(x, 3);
    cc.ret(x);
    cc.endFunc();
  });
  EXPECT_EQ(compiled(-5), -15);
}

TEST(Jit, ARefusedInstructionIsAnError) {
  const auto bad = [](auto& emitter) {
    emitter.emit(x86::Inst::kIdVaddps, x86::eax, x86::zmm1, x86::zmm2);
  };
  EXPECT_THROW(Jit::Generate<Function>("bad", bad), Error);
}

TEST(Jit, AnUnboundLabelIsAnError) {
  EXPECT_THROW(Jit::Generate<Function>("unbound", [](x86::Assembler& a) { a.jmp(a.newLabel()); }),
               Error);
}

}  // namespace
}  // namespace larder::kernels::jit

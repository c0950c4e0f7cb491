#include "textflag.h"

// func rawVfork(trap, a1, a2 uintptr) (pid, errno uintptr)
//
// The child runs on the stack of the parent, which waits: the return address is kept in a register,
// because what the child calls overwrites it.
TEXT ·rawVfork(SB),NOSPLIT|NOFRAME,$0-40
	MOVQ	a1+8(FP), DI
	MOVQ	a2+16(FP), SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	XORL	R9, R9
	MOVQ	trap+0(FP), AX
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $0xfffffffffffff001
	JLS	ok
	MOVQ	$-1, pid+24(FP)
	NEGQ	AX
	MOVQ	AX, errno+32(FP)
	RET
ok:
	MOVQ	AX, pid+24(FP)
	MOVQ	$0, errno+32(FP)
	RET

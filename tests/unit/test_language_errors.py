# ruff: noqa: E501  (a table of programs reads best with one row per line)
"""Malformed programs: each gives one error that names the construct, the rule and the remedy, at the right line."""

import re
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

import ren_lab.language as pl
from ren_lab.runtime import RunConfig, Worker

HEAD = "import ren_lab.language as pl\n\nCONSTANT = 4\nM = pl.dynamic('M')\n"
CORE = "with pl.at(level=pl.Level.CORE_GROUP):"


@dataclass(frozen=True)
class Bad:
    """A program whose wrong line ends in `#!`."""

    name: str
    body: str  # of a function of a, b: tensors, n: a scalar, out: an Out tensor
    construct: str
    rule: str
    remedy: str
    head: str = "@pl.jit"
    params: str = (
        "a: pl.Tensor[[64, 64], pl.FP32], b: pl.Tensor[[64, 64], pl.FP32], n: pl.Scalar, out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]"
    )
    before: str = ""

    @property
    def text(self) -> str:
        lines = "\n".join("    " + line for line in self.body.strip("\n").splitlines())
        return f"{HEAD}{self.before}\n{self.head}\ndef program({self.params}):\n{lines}\n"


def kernel(body):
    return CORE + "\n" + "\n".join("    " + line for line in body.strip("\n").splitlines())


INCORE = "@pl.jit.incore"
AT_DECORATION = [
    # unknown names and unsupported Python
    Bad("unknown name", kernel("t = pl.load(a, [CONSTNAT, 0], [4, 64])  #!"), "name 'CONSTNAT'", "not defined", "CONSTANT"),
    Bad("unknown operation", kernel("t = pl.laod(a, [0, 0], [4, 64])  #!"), "pl.laod", "no plain attribute", "pl.load"),
    Bad("while", "x = 0\nwhile x < 3:  #!\n    x = x + 1", "while", "not part of the language", "pl.while_"),
    Bad("try", "try:  #!\n    x = 1\nfinally:\n    x = 2", "try", "not part of the language", "leave it out"),
    Bad("break", "for i in pl.range(4):\n    break  #!", "break", "not part of the language", "pl.while_"),
    Bad("lambda", "f = lambda x: x  #!", "lambda", "not part of the language", "pl operations"),
    Bad("comprehension", "x = [i for i in [1, 2]]  #!", "a list comprehension", "not part of the language", "plain loops"),
    Bad("nested def", "def g():  #!\n    pass", "def", "not part of the language", "@pl.jit.inline"),
    Bad("import", "import math  #!", "import", "not part of the language", "top of the file"),
    Bad("builtin range", "for i in range(4):  #!\n    pass", "for", "range(4)", "pl.range"),
    Bad("method call", kernel("t = a.sum()  #!"), "a.sum", "no methods", "operation of pl"),
    Bad("print", "print(n)  #!", "call of print", "not an operation", "bodies are not executed"),
    Bad("f-string", "x = f'{n}'  #!", "an f-string", "not part of the language", "pl operations"),
    Bad("captured string", "x = 'text'  #!", "'text'", "a string cannot become part", "capture numbers"),
    Bad("slice with a step", kernel("t = a[0:4:2, :]  #!"), "0:4:2", "slices have no step", "loop"),
    Bad("ellipsis", kernel("t = a[..., 0]  #!"), "...", "a subscript holds", "one slice or index per axis"),
    Bad("return in the middle", "if n > 1:\n    return out  #!\nreturn out", "return", "not the last statement", "at the end"),
    Bad("unused value", kernel("pl.add(a, b)  #!"), "pl.add", "its result is not used", "assign it"),
    Bad("unused name", "n  #!", "n", "its value is not used", "assign it"),
    Bad("nesting", kernel(f"t = {' + '.join(['a[:, :]'] * 200)}  #!"), "expression", "nested more than 100 deep", "give parts of it names"),
    # signatures
    Bad("reserved name", "pass", "parameter 'config'", "the keyword that a call gives its RunConfig by", "another name", params="config: pl.Scalar  #!\n"),
    Bad("default", "pass", "function program", "a parameter has a default", "at the call", params="a: pl.Tensor, n: pl.Scalar = 4  #!\n"),
    Bad("wrong annotation", "pass", "annotation int", "no type of the language", "pl.Tensor", params="a: int  #!\n"),
    Bad("wrong shape in annotation", "pass", "annotation", "below 1", "at least 1", params="a: pl.Tensor[[0, 4], pl.FP32]  #!\n"),
    Bad("tile parameter", "pass", "parameter 'a'", "a tile is a value inside one kernel", "pl.Tensor", params="a: pl.Tile[[4, 4], pl.FP32]  #!\n"),
    Bad("direction of a scalar", "pass", "annotation", "only tensors have directions", "pl.Out[pl.Tensor]", params="a: pl.Out[pl.Scalar]  #!\n"),
    # placement of computations, scopes and tasks
    Bad("computation outside a kernel", "x = pl.add(a, b)  #!", "pl.add", "outside pl.at, pl.spmd and InCore", "pl.at(level="),
    Bad("operator outside a kernel", "x = a * 2.0  #!", "`*`", "outside pl.at, pl.spmd and InCore", "@pl.jit.incore"),
    Bad("load outside a kernel", "t = pl.load(a, [0, 0], [4, 64])  #!", "pl.load", "outside pl.at", "put it inside"),
    Bad("assignment outside a kernel", "out[:] = a  #!", "pl.assemble", "outside pl.at", "put it inside"),
    Bad("AUTO scope", "with pl.scope():  #!\n    pass", "pl.scope", "the compiler places them", "auto_scope=False"),
    Bad("AUTO in MANUAL", "with pl.manual_scope():\n    with pl.scope():  #!\n        pass", "pl.scope", "AUTO scope stands inside the MANUAL scope of line 8",
        "admits no scope inside", head="@pl.jit(auto_scope=False)"),
    Bad("MANUAL in MANUAL", "with pl.manual_scope():\n    for i in pl.range(2):\n        with pl.manual_scope():  #!\n            pass", "pl.manual_scope",
        "MANUAL scope stands inside the MANUAL scope", "end the MANUAL scope first"),
    Bad("scope in a kernel", "with pl.manual_scope():  #!\n    pass", "pl.manual_scope", "inside a kernel", "submits the kernel", head=INCORE),
    Bad("at in a kernel", CORE + "  #!\n    pass", "pl.at", "inside a kernel (InCore function program)", "kernels do not nest", head=INCORE),
    Bad("spmd in at", kernel("for i in pl.spmd(2):  #!\n    pass"), "pl.spmd", "inside a kernel (pl.at)", "kernels do not nest"),
    Bad("no level", "with pl.at():  #!\n    pass", "pl.at", "its level is missing", "pl.Level.CORE_GROUP"),
    Bad("context", "with open('x'):  #!\n    pass", "with", "no context of the language", "pl.at or pl.spmd"),
    Bad("allocation in a kernel", kernel("t = pl.create_tensor([4, 4], pl.FP32)  #!"), "pl.create_tensor", "a kernel cannot allocate", "pl.create_tile"),
    Bad("cache policy in a loop", kernel("for i in pl.range(2):\n    pl.set_cache_policy(a, pl.CachePolicy.BYPASS)  #!"), "pl.set_cache_policy",
        "nested in a loop", "top level"),
    Bad("cache policy outside", "pl.set_cache_policy(a, pl.CachePolicy.BYPASS)  #!", "pl.set_cache_policy", "outside kernels", "top level"),
    Bad("BYPASS on what is written", kernel("pl.set_cache_policy(out, pl.CachePolicy.BYPASS)  #!\npl.store(pl.load(a, [0, 0], [4, 4]), [0, 0], out)"),
        "pl.set_cache_policy", "declared BYPASS", "leave the declaration out"),
    Bad("auto_scope on a kernel", "pass", "@pl.jit.incore", "outlined into a standalone kernel", "leave auto_scope out", head="@pl.jit.incore(auto_scope=False)", params="a: pl.Tensor  #!\n"),
    Bad("auto_scope on an opaque kernel", "pass", "@pl.jit.opaque", "outlined into a standalone kernel", "leave auto_scope out", head="@pl.jit.opaque(auto_scope=False)", params="a: pl.Tensor  #!\n"),
    # types
    Bad("mixed widths", kernel("t = pl.add(a, b)  #!"), "pl.add", "pl.FP32 and pl.FP16; nothing is promoted", "pl.cast",
        params="a: pl.Tensor[[4, 4], pl.FP32], b: pl.Tensor[[4, 4], pl.FP16]"),
    Bad("float meets integers", kernel("t = a[:, :] + 1.5  #!"), "`+`", "the number 1.5 meets pl.INT32", "pl.cast", params="a: pl.Tensor[[4, 4], pl.INT32]"),
    Bad("number too large", kernel("t = pl.add(a, 300)  #!"), "pl.add", "300 is outside pl.UINT8", "wider type", params="a: pl.Tensor[[4, 4], pl.UINT8]"),
    Bad("loop variable meets floats", kernel("for i in pl.range(4):\n    t = pl.mul(a, i)  #!"), "pl.mul", "pl.FP32 and pl.INT64", "pl.cast"),
    Bad("division of integers", kernel("t = pl.div(a, 2)  #!"), "pl.div", "floating point, not pl.INT32", "floor_div", params="a: pl.Tensor[[4, 4], pl.INT32]"),
    Bad("store of another type", kernel("pl.store(pl.cast(a, pl.FP16), [0, 0], out)  #!"), "pl.store", "pl.FP16 goes into pl.FP32", "pl.cast"),
    Bad("narrow integer product", kernel("t = pl.matmul(a, a)  #!"), "pl.matmul", "products of pl.INT8", "out_dtype", params="a: pl.Tensor[[4, 4], pl.INT8]"),
    Bad("condition is a number", "if n:  #!\n    x = 1", "if", "a scalar of pl.INT64", "Boolean scalar", params="n: pl.Scalar[pl.INT64]"),
    Bad("offset is a float", kernel("t = pl.load(a, [0.5, 0], [4, 4])  #!"), "pl.load", "the number 0.5 stands where an integer", "pl.cast"),
    Bad("element type is no type", kernel("t = pl.cast(a, 4)  #!"), "pl.cast", "dtype is 4", "pl.FP32"),
    Bad("writing an input", kernel("pl.store(pl.load(b, [0, 0], [4, 4]), [0, 0], a)  #!"), "pl.store", "writes 'a', which is an input", "pl.Out[…]"),
    Bad("declared otherwise", kernel("t: pl.Tile[[4, 4], pl.FP32] = pl.load(a, [0, 0], [4, 8])  #!"), "annotation", "declared [4, 4]", "correct the shape"),
    Bad("wrong argument count", kernel("t = pl.add(a)  #!"), "pl.add", "missing a required argument", "pl.add(a, b)"),
    Bad("deps of a tensor", CORE[:-2] + ", deps=[a]):  #!\n    pass", "pl.at", "deps holds a tensor", "task ids"),
    # shapes
    Bad("unequal shapes", kernel("t = pl.add(a, pl.load(b, [0, 0], [32, 64]))  #!"), "pl.add", "[64, 64] and [32, 64]", "pl.row_expand"),
    Bad("inner extents", kernel("t = pl.matmul(a, pl.load(b, [0, 0], [32, 64]))  #!"), "pl.matmul", "inner extents differ", "a_trans"),
    Bad("rank of offsets", kernel("t = pl.load(a, [0], [4, 64])  #!"), "pl.load", "1 offset and 2 extents", "one of each per axis"),
    Bad("reshape", kernel("t = pl.reshape(a, [3, 64])  #!"), "pl.reshape", "4096 elements", "as many elements"),
    Bad("column of the wrong height", kernel("t = pl.row_expand_sub(a, pl.load(b, [0, 0], [32, 1]))  #!"), "pl.row_expand_sub", "[32, 1] beside [64, 64]", "[64, 1]"),
    Bad("too many subscripts", kernel("t = a[0, 0, 0]  #!"), "subscript", "3 subscripts for the shape [64, 64]", "at most one per axis"),
    Bad("empty slice", kernel("t = a[4:4, :]  #!"), "subscript", "holds 0 elements", "at least 1"),
    Bad("element shape", kernel("out[0:4, :] = pl.load(a, [0, 0], [8, 64])  #!"), "assignment", "[8, 64] goes into a part of shape [4, 64]", "equal shapes"),
    # bounds
    Bad("load out of bounds", kernel("t = pl.load(a, [60, 0], [8, 64])  #!"), "pl.load", "out of bounds along axis 0", "within the shape"),
    Bad("load out of bounds in a loop", kernel("for i in pl.range(5):\n    t = pl.load(a, [i * 16, 0], [16, 64])  #!"), "pl.load", "at [0..64, 0] of [64, 64]", "within the shape"),
    Bad("store out of bounds", "for i in pl.range(4):\n    " + CORE + "\n        pl.store(pl.load(a, [0, 0], [32, 64]), [i * 16, 0], out)  #!", "pl.store", "out of bounds", "within the shape"),
    Bad("negative offset", kernel("t = a[-1, 0]  #!"), "subscript", "begins before the first element", "nothing counts from the end"),
    Bad("array out of bounds", "tids = pl.array.create(2, pl.TASK_ID)\nfor i in pl.range(3):\n    tids[i] = None  #!", "subscript", "out of bounds", "within the shape"),
    # names, branches, loops
    Bad("one branch binds", "if n > 2:\n    x = 1\ny = x + 1  #!", "name 'x'", "only the if branch at line 8 binds it", "both branches"),
    Bad("bound in a loop", "for i in pl.range(4):\n    x = i\ny = x + 1  #!", "name 'x'", "inside the loop and read behind", "before the loop"),
    Bad("read before bound", "y = x + 1  #!\nx = 1", "name 'x'", "read before it is bound", "bind it first"),
    Bad("scalar leaves a kernel", kernel("x = pl.read(a, [0, 0])") + "\nif x > 0.5:  #!\n    y = 1", "name 'x'", "computed inside a kernel and read outside", "tensor"),
    Bad("type changes in a loop", kernel("t = pl.load(a, [0, 0], [4, 64])\nfor i in pl.range(2):\n    t = pl.concat(t, t)  #!"), "name 't'", "it is a tile [4, 64] of pl.FP32 before", "keep the type"),
    Bad("type of a carried value", kernel("t = pl.load(a, [0, 0], [4, 64])\nfor i, (u,) in pl.range(2, init_values=(t,)):  #!\n    v = pl.yield_(pl.concat(u, u))"), "pl.range", "'u' is a tile [4, 64]", "keep the type"),
    Bad("branches disagree", kernel("if n > 1:\n    t = pl.load(a, [0, 0], [4, 64])\nelse:\n    t = pl.load(a, [0, 0], [8, 64])\npl.store(t, [0, 0], out)  #!"), "name 't'",
        "depending on the branch", "the same type"),
    Bad("one branch yields", "if n > 1:  #!\n    x = pl.yield_(1)\nelse:\n    y = 2", "if", "one branch yields", "both branches"),
    Bad("yield in the middle", "for i, (x,) in pl.range(4, init_values=(0,)):\n    y = pl.yield_(x)  #!\n    z = 1", "pl.yield_", "not the last statement", "move it to the end"),
    Bad("no yield", "for i, (x,) in pl.range(4, init_values=(0,)):  #!\n    z = x", "pl.range", "1 value carried and 0 yielded by the body", "pl.yield_"),
    Bad("while without cond", "for (x,) in pl.while_(init_values=(0,)):\n    y = pl.yield_(x + 1)  #!", "pl.while_", "does not begin with pl.cond", "first statement"),
    Bad("while without init_values", "for (x,) in pl.while_():  #!\n    pl.cond(x < 1)\n    y = pl.yield_(x)", "pl.while_", "no init_values", "what it carries"),
    Bad("unroll carries", "for i, (x,) in pl.unroll(4, init_values=(0,)):  #!\n    y = pl.yield_(x)", "pl.unroll", "it has init_values", "before the loop"),
    Bad("unroll of a run-time bound", "for i in pl.unroll(n):  #!\n    pass", "pl.unroll", "not known when the program is written", "pl.range"),
    Bad("step 0", "for i in pl.range(0, 4, 0):  #!\n    pass", "pl.range", "its step is 0", "above or below 0"),
    Bad("no blocks", "for i in pl.spmd(0):  #!\n    pass", "pl.spmd", "it has 0 blocks", "at least 1"),
    Bad("call that may not be made", "x = 1 if n > 2 else helper(n)  #!", "call of helper", "only one side of the if", "give its result a name", before="\n@pl.jit.inline\ndef helper(x):\n    return x\n"),
    Bad("entry calls entry", "other(a)  #!", "call of other", "an entry of its own", "@pl.jit.host", before="\n@pl.jit\ndef other(a: pl.Tensor):\n    pass\n"),
    Bad("kernel returns a scalar", "x = pl.read(a, [0, 0])\nreturn x  #!", "return", "a task gives back tensors only", "Out parameter", head=INCORE),
    Bad("write inside an expression", kernel("t = pl.add(pl.store(a[0:4, :], [0, 0], out), 1.0)  #!"), "pl.store", "in the middle of an expression", "a line of its own"),
    # calls of functions that are known already
    Bad("scalar where a tensor is wanted", "kernel(n)  #!", "call of kernel", "a scalar where a tensor", "what the function declares",
        before="\n@pl.jit.incore\ndef kernel(x: pl.Tensor):\n    pass\n"),
    Bad("arguments of a kernel", "kernel(a)  #!", "call of kernel", "takes 2 arguments (x, y) and is given 1", "one per parameter",
        before="\n@pl.jit.incore\ndef kernel(x: pl.Tensor, y: pl.Tensor):\n    pass\n"),
    Bad("results of a kernel", "x, y = kernel(a)  #!", "call of kernel", "returns 1 value and 2 names", "as it returns",
        before="\n@pl.jit.incore\ndef kernel(x: pl.Tensor):\n    return x\n"),
    Bad("submitting a helper", "t = pl.submit(helper, a)  #!", "call of helper", "no kernel", "InCore", before="\n@pl.jit.inline\ndef helper(x: pl.Tensor):\n    return x\n"),
    Bad("sum over an axis", kernel("t = pl.sum(a, axis=1)  #!"), "pl.sum", "no plain attribute", "did you mean pl.row_sum or pl.col_sum?"),
    Bad("where", kernel("t = pl.where(a > b, a, b)  #!"), "pl.where", "no plain attribute", "did you mean pl.sel?"),
    Bad("whole shape", "t = pl.create_tensor(a.shape, pl.FP32)  #!", "pl.create_tensor", "a.shape, which is no list", "shape=[a.shape[0], a.shape[1]]"),
    Bad("float of a scalar", "x = float(n)  #!", "call of float", "not an operation", "pl.cast(…, pl.FP32)"),
    Bad("int of an element", kernel("x = int(a[0, 0])  #!"), "call of int", "not an operation", "pl.cast(…, pl.INT64)"),
    Bad("and of tiles", kernel("t = (a > 0.0) and (a < 1.0)  #!"), "`and`", "a tile [64, 64] of pl.BOOL", "&, | and ~"),
    Bad("if on a tile", kernel("if a > b:  #!\n    out[0, 0] = 1.0"), "if", "a tile [64, 64] of pl.BOOL", "pl.sel chooses by a mask"),
    Bad("nothing is stored", kernel("out[:] = None  #!"), "pl.assemble", "an operand is a task id, or None", "give a tile"),
    # numbers
    Bad("division by 0", "x = n // 0  #!", "`//`", "it divides by 0", "guard it"),
    Bad("remainder of 0", "zero = 0\nx = n % zero  #!", "`%`", "it divides by 0", "guard it"),
    Bad("negative shift", "x = n << -1  #!", "`<<`", "second operand is -1", "0 to 4096"),
    Bad("negative power", "x = n ** -2  #!", "`**`", "second operand is -2", "0 to 4096"),
    Bad("huge shift", "x = 1 << 5000  #!", "`<<`", "second operand is 5000", "0 to 4096"),
    Bad("integer made a float by a loop", "for i, (x,) in pl.range(3, init_values=(0,)):  #!\n    y = pl.yield_(1.5)", "pl.range", "'x' is the number 0 before and the number 1.5", "write 0.0"),
    Bad("integer made a float by a sum", "for i, (x,) in pl.range(3, init_values=(1.0,)):  #!\n    y = pl.yield_(i)", "pl.range", "'x' is the number 1.0 before and a scalar of pl.INT64", "keep the type"),
    Bad("integer or float", "if n > 1:\n    x = 1\nelse:\n    x = 1.5\ny = x  #!", "name 'x'", "the number 1 or the number 1.5", "the same type"),
    Bad("choice of an integer or a float", "x = 1 if n > 1 else 1.5  #!", "if expression", "the number 1 or the number 1.5", "the same type"),
    Bad("offset is made of floats", "x = 0.5 + 0.5\n" + kernel("t = pl.load(a, [x, 0], [4, 4])  #!"), "pl.load", "the number 1.0 stands where an integer", "pl.cast"),
    Bad("offset is made of floats in a loop", "x = 1.0\nfor i in pl.range(3):\n    x = x * 2.0\n" + kernel("t = pl.load(a, [x, 0], [4, 4])  #!"), "pl.load", "a floating-point number stands where an integer", "pl.cast"),
    Bad("condition is made of floats", "x = 1.0\nfor i in pl.range(3):\n    x = x * 2.0\nif x:  #!\n    y = 1", "if", "a floating-point number", "Boolean scalar"),
    Bad("floats meet integers", kernel("x = 1.0\nfor i in pl.range(3):\n    x = x * 2.0\nt = a[:, :] + x  #!"), "`+`", "a floating-point number meets pl.INT32", "pl.cast", params="a: pl.Tensor[[4, 4], pl.INT32]"),
    Bad("float for an integer parameter", "x = 1.0\nfor i in pl.range(3):\n    x = x * 2.0\nkernel(x)  #!", "call of kernel", "a floating-point number for pl.Scalar[pl.INT32]", "pl.cast",
        before="\n@pl.jit.incore\ndef kernel(x: pl.Scalar[pl.INT32]):\n    pass\n"),
    Bad("number beyond floats in a product", "x = 1.5 * 10 ** 400  #!", "`*`", "is outside pl.FP32", "floating-point number"),
    Bad("number beyond floats for a task", "kernel(10 ** 400)  #!", "call of kernel", "for pl.Scalar[pl.FP32]", "a number of that type",
        before="\n@pl.jit.incore\ndef kernel(x: pl.Scalar[pl.FP32]):\n    pass\n"),
    Bad("number beyond floats", kernel("t = pl.add(a, 10 ** 400)  #!"), "pl.add", "is outside pl.FP32", "floating-point number"),
    # calls inside expressions
    Bad("call behind and", "if n > 2 and helper(n) > 2:  #!\n    x = 1", "call of helper", "behind `and` is not always computed", "r = helper(…)", before="\n@pl.jit.inline\ndef helper(x):\n    return x\n"),
    Bad("call in a chain of comparisons", "if 0 < n < helper(n):  #!\n    x = 1", "call of helper", "the rest of the comparison is not always", "r = helper(…)", before="\n@pl.jit.inline\ndef helper(x):\n    return x\n"),
    Bad("call in the condition of a loop", "for (x,) in pl.while_(init_values=(0,)):\n    pl.cond(x < helper(n))  #!\n    y = pl.yield_(x + 1)", "call of helper", "before each turn", "r = helper(…)", before="\n@pl.jit.inline\ndef helper(x):\n    return x\n"),
    Bad("call in an augmented subscript", kernel("out[helper(0), 0] += 1.0  #!"), "call of helper", "the subscript is taken twice", "r = helper(…)", before="\n@pl.jit.inline\ndef helper(x):\n    return x\n"),
    Bad("call that gives two values", "x = helper(n) + 1  #!", "call of helper", "it returns 2 values and 1 name", "as it returns",
        before="\n@pl.jit.inline\ndef helper(x):\n    return x, x\n"),
    Bad("call that gives nothing", "x = helper(n) + 1  #!", "call of helper", "it returns 0 values and 1 name", "as it returns",
        before="\n@pl.jit.inline\ndef helper(x):\n    y = x\n"),
    Bad("call of what is not there", "x = helpr(n) + 1  #!", "name 'helpr'", "not defined", "'helper'", before="\n@pl.jit.inline\ndef helper(x):\n    return x\n"),
    # levels
    Bad("computation beside tasks", "with pl.at(level=pl.Level.HOST):\n    " + CORE + "\n        out[0, 0] = 1.0\n    out[0, 1] = 1.0  #!", "pl.assemble", "outside pl.at", "pl.at(level="),
    Bad("task id of what is no task", "with pl.at(level=pl.Level.CHIP) as tid:  #!\n    " + CORE + "\n        out[0, 0] = 1.0", "pl.at", "is no task: it holds others", "tasks inside"),
    Bad("level in a kernel", kernel("with pl.at(level=pl.Level.HOST):  #!\n    " + CORE + "\n        out[0, 0] = 1.0"), "pl.at", "inside a kernel (pl.at)", "kernels do not nest"),
    Bad("recursion", "program(a, b, n, out)  #!", "call of program", "it is recursion", "use a loop"),
    Bad("recursion in an expression", "x = program(a, b, n, out) + 1  #!", "call of program", "it is recursion", "use a loop"),
]  # fmt: skip


def check(error, case, text=None):
    lines = (text or case.text).splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if "#!" in line]
    text = str(error)
    assert error.line in wrong, f"line {error.line} instead of {wrong}: {text}"
    assert case.construct in error.construct, error.construct
    assert case.rule in error.rule, error.rule
    assert case.remedy in error.remedy or case.remedy in error.rule, error.remedy
    first, source, mark = text.splitlines()[:3]
    assert re.match(rf".*:{error.line}:{error.column}: ", first) and error.construct in first
    assert source.strip() == lines[error.line - 1].strip()
    assert set(mark.strip()) == {"^"} and mark.index("^") - 4 == error.column - 1 - (
        len(lines[error.line - 1]) - len(lines[error.line - 1].lstrip())
    )


def test_there_are_many():
    names = [case.name for case in AT_DECORATION]
    assert len(names) >= 50 and len(set(names)) == len(names)


@pytest.mark.parametrize("case", AT_DECORATION, ids=lambda case: case.name.replace(" ", "-"))
def test_the_source_alone_is_enough(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(pl.LanguageError) as raised:
            pl.parse(case.text)
    check(raised.value, case)


# What only arguments decide arises at the first call.
PLAIN = "a: pl.Tensor, b: pl.Tensor, n: pl.Scalar, out: pl.Out[pl.Tensor]"
AT_THE_CALL = [
    Bad("types of arguments", kernel("pl.store(pl.add(a, b), [0, 0], out)  #!"), "pl.add", "pl.FP32 and pl.FP16", "pl.cast", params=PLAIN),
    Bad("shapes of arguments", kernel("pl.store(pl.load(a, [0, 0], [16, 4]), [0, 0], out)  #!"), "pl.load", "out of bounds of [8, 4]"[:13], "within the shape", params=PLAIN),
    Bad("rank of arguments", kernel("pl.store(pl.load(a, [0], [4]), [0], out)  #!"), "pl.load", "for the shape [8, 4]", "one of each per axis", params=PLAIN),
    Bad("unknown function", "helper(a)  #!", "call of helper", "no such function", "decorated", params=PLAIN),
    Bad("dynamic extents that differ", "kernel(a, out)  #!", "call of kernel", "[16, 4] where [M, 4]", "the declared shape", params=PLAIN,
        before="\n@pl.jit.incore\ndef kernel(x: pl.Tensor[[M, 4], pl.FP32], y: pl.Tensor[[M, 4], pl.FP32]):\n    pass\n"),
    Bad("scope in a helper in MANUAL", "with pl.manual_scope():\n    helper(a)", "pl.manual_scope", "inside the MANUAL scope", "end the MANUAL scope first", params=PLAIN,
        before="\n@pl.jit.inline\ndef helper(x: pl.Tensor):\n    with pl.manual_scope():  #!\n        pass\n"),
    Bad("blocks where there are none", kernel("helper(a, out)"), "pl.get_block_idx", "there are no blocks here", "pl.spmd", params=PLAIN,
        before="\n@pl.jit.inline\ndef helper(x, y):\n    k = pl.tile.get_block_idx()  #!\n    y[k, 0] = x[k, 0]\n"),
]  # fmt: skip


def arguments():
    return np.ones((8, 4), np.float32), np.ones((8, 4), np.float16), 3, np.zeros((16, 4), np.float32)


@pytest.mark.parametrize("case", AT_THE_CALL, ids=lambda case: case.name.replace(" ", "-"))
def test_arguments_decide(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = pl.parse(case.text)
        with pytest.raises(pl.LanguageError) as raised:
            program(*arguments(), config=RunConfig(platform="sim"))
    check(raised.value, case)


# What only running decides arises in the run, still at the user's line, and nothing is written out of bounds.
AT_RUN_TIME = [
    Bad("load", kernel("pl.store(pl.load(a, [n, 0], [8, 4]), [0, 0], out)  #!"), "access", "[8, 4] at [3, 0] is out of bounds of [8, 4]", "within the shape", params=PLAIN),
    Bad("store", kernel("pl.store(pl.load(a, [0, 0], [8, 4]), [n * 4, 0], out)  #!"), "access", "out of bounds of [16, 4]", "within the shape", params=PLAIN),
    Bad("subscript", kernel("out[n:n + 8, :] = a[n:n + 8, :]  #!"), "subscript", "3:11 is out of bounds of the extent 8", "within the shape", params=PLAIN),
    Bad("negative subscript", kernel("out[n - 4, 0] = a[0, 0]  #!"), "subscript", "-1 is out of bounds", "nothing counts from the end", params=PLAIN),
    Bad("shape", kernel("out[0:n, :] = a[0:pl.max(n, 4), :]  #!"), "assignment", "[4, 4] goes into a part of shape [3, 4]", "equal shapes", params=PLAIN),
    Bad("operands", kernel("out[0:n, :] = a[0:n, :] + a[0:pl.max(n, 4), :]  #!"), "operation", "[3, 4] and [4, 4]", "equal shapes", params=PLAIN),
    Bad("broadcast", kernel("out[0:8, :] = pl.row_expand_mul(a, pl.load(a, [0, 0], [n, 1]))  #!"), "operation", "the vector has the shape [3, 1]", "[8, 1]", params=PLAIN),
    Bad("view", "v = a[n:n + 6, :]  #!\n" + kernel("out[0:6, :] = v"), "subscript", "3:9 is out of bounds", "within the shape", params=PLAIN),
    Bad("array", "tids = pl.array.create(2, pl.TASK_ID)\ntids[n] = None  #!", "subscript", "3 is out of bounds of the length 2", "within the shape", params=PLAIN),
    Bad("extents of a kernel", "kernel(a[0:n, :], out)  #!", "call of kernel", "'x' has the shape [3, 4] where [8, 4] is declared", "the declared shape", params=PLAIN,
        before="\n@pl.jit.incore\ndef kernel(x: pl.Tensor[[8, 4], pl.FP32], y: pl.Out[pl.Tensor]):\n    y[0:8, :] = x\n"),
    Bad("one extent, two numbers", "kernel(a[0:n, :], out)  #!", "call of kernel", "'y' has the shape [16, 4] where [M, 4] with M = 3 is declared", "the declared shape", params=PLAIN,
        before="\n@pl.jit.incore\ndef kernel(x: pl.Tensor[[M, 4], pl.FP32], y: pl.Out[pl.Tensor[[M, 4], pl.FP32]]):\n    y[:] = x\n"),
    Bad("length of an array", "tids = pl.array.create(n - 3, pl.TASK_ID)  #!", "pl.array.create", "the length is 0", "give 1 to", params=PLAIN),
    Bad("reshape with a negative extent", "v = pl.reshape(a, [n - 7, n - 11])  #!\n" + kernel("out[0, 0] = v[0, 0]"), "pl.reshape", "no view of shape [-4, -8]", "as many elements", params=PLAIN),
    Bad("reshape of a strided view", "v = pl.reshape(pl.transpose(a), [n * 8 + 8])  #!\n" + kernel("out[0, 0] = v[0]"), "pl.reshape", "no view of shape [32]", "contiguous", params=PLAIN),
    Bad("blocks", "for i in pl.spmd(n - 3):  #!\n    out[i, 0] = 1.0", "pl.spmd", "it has 0 blocks", "under an if", params=PLAIN),
    Bad("quotient outside", "x = 7 // (n - 3)  #!", "`//`", "it divides 7 by 0", "guard it", params=PLAIN),
    Bad("quotient in a kernel", kernel("x = 7 // (n - 3)  #!\nout[0, 0] = 1.0"), "`//`", "it divides 7 by 0", "guard it", params=PLAIN),
    Bad("floor_div outside", "x = pl.floor_div(7, n - 3)  #!", "`//`", "it divides 7 by 0", "guard it", params=PLAIN),
    Bad("floor_div in a kernel", kernel("x = pl.floor_div(7, n - 3)  #!\nout[0, 0] = 1.0"), "`//`", "it divides 7 by 0", "guard it", params=PLAIN),
    Bad("remainder outside", "x = 7 % (n - 3)  #!", "`%`", "it divides 7 by 0", "guard it", params=PLAIN),
    Bad("remainder in a kernel", kernel("x = 7 % (n - 3)  #!\nout[0, 0] = 1.0"), "`%`", "it divides 7 by 0", "guard it", params=PLAIN),
    Bad("rem outside", "x = pl.rem(7, n - 3)  #!", "`%`", "it divides 7 by 0", "guard it", params=PLAIN),
    Bad("rem in a kernel", kernel("x = pl.rem(7, n - 3)  #!\nout[0, 0] = 1.0"), "`%`", "it divides 7 by 0", "guard it", params=PLAIN),
    Bad("left shift outside", "x = 7 << (n - 4)  #!", "`<<`", "second operand is -1", "0 to 4096", params=PLAIN),
    Bad("left shift in a kernel", kernel("x = 7 << (n - 4)  #!\nout[0, 0] = 1.0"), "`<<`", "second operand is -1", "0 to 4096", params=PLAIN),
    Bad("right shift outside", "x = pl.shr(7, n - 4)  #!", "`>>`", "second operand is -1", "0 or more", params=PLAIN),
    Bad("right shift in a kernel", kernel("x = pl.shr(7, n - 4)  #!\nout[0, 0] = 1.0"), "`>>`", "second operand is -1", "0 or more", params=PLAIN),
    Bad("left shift by much outside", "x = 1 << (n + 10 ** 9)  #!", "`<<`", "second operand is 1000000003", "0 to 4096", params=PLAIN),
    Bad("left shift by much in a kernel", kernel("x = 1 << (n + 10 ** 9)  #!\nout[0, 0] = 1.0"), "`<<`", "second operand is 1000000003", "0 to 4096", params=PLAIN),
    Bad("power outside", "x = 2 ** (n - 4)  #!", "`**`", "second operand is -1", "0 to 4096", params=PLAIN),
    Bad("power in a kernel", kernel("x = 2 ** (n - 4)  #!\nout[0, 0] = 1.0"), "`**`", "second operand is -1", "0 to 4096", params=PLAIN),
    Bad("cast of a NaN outside", "x = pl.cast(pl.log(pl.cast(n, pl.FP32) - 4.0), pl.INT32)  #!", "pl.cast", "nan is no integer", "guard it", params=PLAIN),
    Bad("cast of a NaN in a kernel", kernel("x = pl.cast(pl.log(pl.cast(n, pl.FP32) - 4.0), pl.INT32)  #!\nout[0, 0] = 1.0"), "pl.cast", "nan is no integer", "guard it", params=PLAIN),
    Bad("cast of an infinity outside", "x = pl.cast(1.0 / pl.cast(n - 3, pl.FP32), pl.INT32)  #!", "pl.cast", "inf is no integer", "guard it", params=PLAIN),
    Bad("cast of an infinity in a kernel", kernel("x = pl.cast(1.0 / pl.cast(n - 3, pl.FP32), pl.INT32)  #!\nout[0, 0] = 1.0"), "pl.cast", "inf is no integer", "guard it", params=PLAIN),
    Bad("step 0 outside", "for i in pl.range(0, 4, n - 3):  #!\n    x = i", "loop", "its step is 0", "above or below 0", params=PLAIN),
    Bad("step 0 in a kernel", kernel("for i in pl.range(0, 4, n - 3):  #!\n    out[0, 0] = 1.0"), "loop", "its step is 0", "above or below 0", params=PLAIN),
    Bad("shape of a tensor", "t = pl.create_tensor([n - 4, 4], pl.FP32)  #!", "shape", "it is [-1, 4]", "at least 1", params=PLAIN),
    Bad("empty tensor", "t = pl.create_tensor([4, n - 3], pl.FP32)  #!", "shape", "it is [4, 0]", "at least 1", params=PLAIN),
    Bad("shape of a tile", kernel("t = pl.create_tile([n - 4, 4], pl.FP32)  #!\nout[0, 0] = 1.0"), "shape", "it is [-1, 4]", "at least 1", params=PLAIN),
    Bad("shape of a filled tile", kernel("t = pl.full([4, n - 4], pl.FP32, 1.0)  #!\nout[0, 0] = 1.0"), "shape", "it is [4, -1]", "at least 1", params=PLAIN),
    Bad("count", kernel("t = pl.arange(n - 3)  #!\nout[0, 0] = 1.0"), "shape", "it is [0]", "at least 1", params=PLAIN),
    Bad("blocks below 0", "with pl.spmd(n - 5):  #!\n    out[0, 0] = 1.0", "pl.spmd", "it has -2 blocks", "under an if", params=PLAIN),
    Bad("reshape of a tile", kernel("t = pl.reshape(a[0:n, :], [n + 1, 4])  #!\nout[0, 0] = 1.0"), "pl.reshape", "[3, 4] has 12 elements and [4, 4] has 16", "as many elements", params=PLAIN),
    Bad("concat", kernel("t = pl.concat(a[0:n, :], a[0:pl.max(n, 4), :])  #!\nout[0, 0] = 1.0"), "pl.concat", "shapes [3, 4] and [4, 4]", "along axis 1 only", params=PLAIN),
    Bad("concat along columns", kernel("t = pl.concat(a[:, 0:n], a[:, 0:pl.max(n, 4)], axis=0)  #!\nout[0, 0] = 1.0"), "pl.concat", "shapes [8, 3] and [8, 4]", "along axis 0 only", params=PLAIN),
    Bad("matmul", kernel("t = pl.matmul(a[0:n, 0:n], a[0:pl.max(n, 4), :])  #!\nout[0, 0] = 1.0"), "pl.matmul", "[3, 3] times [4, 4]: the inner extents differ", "[m, k] and [k, n]", params=PLAIN),
    Bad("matmul of a transposed operand", kernel("t = pl.matmul(a[0:n, :], a[0:pl.max(n, 4), :], a_trans=True)  #!\nout[0, 0] = 1.0"), "pl.matmul", "[4, 3] times [4, 4]", "[m, k] and [k, n]", params=PLAIN),
    Bad("matmul by its sign", kernel("t = a[0:n, 0:n] @ a[0:pl.max(n, 4), :]  #!\nout[0, 0] = 1.0"), "pl.matmul", "[3, 3] times [4, 4]", "[m, k] and [k, n]", params=PLAIN),
    Bad("stacks", kernel("t = pl.reshape(a, [2, 4, 4])\nu = pl.matmul(t[0:pl.min(n, 2), :, :], t[0:pl.min(n, 1), :, :])  #!\nout[0, 0] = 1.0"), "pl.matmul", "the leading extents differ", "stacks of equal extents", params=PLAIN),
    Bad("product that is added", kernel("t = pl.matmul_acc(a[0:n, 0:n], a[0:pl.max(n, 4), 0:n], a[0:n, 0:n])  #!\nout[0, 0] = 1.0"), "operation", "[3, 3] and [4, 3]", "equal shapes", params=PLAIN),
    Bad("largest of nothing", kernel("out[0:1, :] = pl.col_max(a[0:n - 3, :])  #!"), "reduction", "the shape [0, 4]", "guard it", params=PLAIN),
    Bad("smallest of nothing", kernel("t = pl.row_argmin(a[:, 0:n - 3])  #!\nout[0, 0] = 1.0"), "reduction", "the shape [8, 0]", "guard it", params=PLAIN),
    Bad("number for a narrow tile", kernel("t = pl.full([4, 4], pl.INT8, 1) + pl.cast(n * 100, pl.INT8)  #!\nout[0, 0] = 1.0"), "number", "300 is outside pl.INT8, which holds -128 to 127", "wider type", params=PLAIN),
    Bad("number for a narrow tile to be filled", kernel("t = pl.full([4, 4], pl.UINT8, pl.cast(2 - n, pl.UINT8))  #!\nout[0, 0] = 1.0"), "number", "-1 is outside pl.UINT8", "wider type", params=PLAIN),
    Bad("number that is chosen", kernel("t = pl.sel(a > 0.0, pl.cast(n * 100, pl.INT8), pl.cast(0, pl.INT8))  #!\nout[0, 0] = 1.0"), "number", "300 is outside pl.INT8", "wider type", params=PLAIN),
    Bad("number for a narrow element", kernel("t = pl.full([4, 4], pl.INT8, 1)\nt[0, 0] = pl.cast(n * 100, pl.INT8)  #!\nout[0, 0] = 1.0"), "number", "300 is outside pl.INT8", "wider type", params=PLAIN),
]  # fmt: skip


@pytest.mark.parametrize("platform", ["sim", "cpu"])
@pytest.mark.parametrize("case", AT_RUN_TIME, ids=lambda case: case.name.replace(" ", "-"))
def test_running_decides(case, platform):
    program = pl.parse(case.text)
    given = arguments()
    with pytest.raises(pl.LanguageError) as raised:
        program(*given, config=RunConfig(platform=platform, workers=2))
    check(raised.value, case)
    assert not given[3].any()


CALLS = {
    "float64": (lambda a, n, out: (a.astype(np.float64), n, out), "argument 'a'", "float64", "astype"),
    "shape": (lambda a, n, out: (a[:4], n, out), "argument 'a'", "[4, 4] where [8, 4] is declared", "that shape"),
    "rank": (lambda a, n, out: (a[0], n, out), "argument 'a'", "rank is 1 where 2", "that rank"),
    "element type": (
        lambda a, n, out: (a.astype(np.float16), n, out),
        "argument 'a'",
        "pl.FP16 where pl.FP32 is declared",
        "astype",
    ),
    "list": (lambda a, n, out: ([1.0], n, out), "argument 'a'", "it is a list", "NumPy array"),
    "number for a tensor": (lambda a, n, out: (3.0, n, out), "argument 'a'", "the number 3.0 where a tensor", "give an array"),
    "array for a number": (lambda a, n, out: (a, a, out), "argument 'n'", "a ndarray where a scalar", "give a number"),
    "float for an int": (lambda a, n, out: (a, 2.5, out), "argument 'n'", "2.5 where pl.Scalar[pl.INT8]", "give an int"),
    "too large for a float": (lambda a, n, out: (a, n, out, 10**400), "argument 'x'", "an int of 1329 bits", "give a float"),
    "too large": (lambda a, n, out: (a, 200, out), "argument 'n'", "pl.INT8 holds -128 to 127", "wider type"),
    "read-only": (lambda a, n, out: (a, n, frozen(out)), "argument 'out'", "read-only", "may be written"),
    "empty": (lambda a, n, out: (a, n, out[:0]), "argument 'out'", "[0, 4]", "at least 1"),
}


def frozen(array):
    array.flags.writeable = False
    return array


@pl.jit
def strict(a: pl.Tensor[[8, 4], pl.FP32], n: pl.Scalar[pl.INT8], out: pl.Out[pl.Tensor], x: pl.Scalar[pl.FP32]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0:8, :] = pl.load(a, [0, 0], [8, 4])


@pytest.mark.parametrize("case", CALLS, ids=lambda case: case.replace(" ", "-"))
def test_arguments_are_checked(case):
    change, construct, rule, remedy = CALLS[case]
    a, n, out = np.ones((8, 4), np.float32), 3, np.zeros((16, 4), np.float32)
    with pytest.raises(pl.LanguageError) as raised:
        given = change(a, n, out)
        strict(*given, *[1.5] * (4 - len(given)), config=RunConfig(platform="sim"))
    error = raised.value
    assert error.construct == construct and rule in error.rule and remedy in error.remedy
    assert error.file == __file__ and "def strict" in error.loc.text


def test_too_many_arguments_are_a_type_error():
    with pytest.raises(TypeError, match=r"takes 4 arguments \(a, n, out, x\) and was given 1"):
        strict(np.ones((8, 4), np.float32))


def test_errors_name_the_users_file_line_and_column():
    with pytest.raises(pl.LanguageError) as raised:

        @pl.jit
        def wrong(a: pl.Tensor, out: pl.Out[pl.Tensor]):
            with pl.at(level=pl.Level.CORE_GROUP):
                pl.store(pl.load(a, [0, 0], [4]), [0, 0], out)

    error = raised.value
    assert error.file == __file__
    assert error.loc.text[error.column - 1 :].startswith("pl.load(a, [0, 0], [4])")


def test_an_error_in_a_helper_tells_who_called_it():
    text = (
        HEAD
        + """
@pl.jit.inline
def helper(x, n):
    return pl.load(x, [n, 0], [8, 4])

@pl.jit
def program(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = helper(a, 1)
        pl.store(t, [0, 0], out)
"""
    )
    with pytest.raises(pl.LanguageError) as raised:
        pl.parse(text)(np.ones((8, 4), np.float32), np.ones((8, 4), np.float32))
    assert raised.value.line == 8 and "in a function called at" in str(raised.value) and ":13:" in str(raised.value)


def test_a_function_without_source():
    scope = {"pl": pl}
    exec("def f(a: pl.Tensor):\n    pass", scope)
    with pytest.raises(pl.LanguageError, match=r"source cannot be found.*pl\.parse"):
        pl.jit(scope["f"])
    with pytest.raises(pl.LanguageError, match="plain `def`"):
        pl.jit(lambda a: a)
    with pytest.raises(TypeError, match="decorate a function"):
        pl.jit(3)


METHODS = """
@pl.program
class Main:
    @pl.function(type=pl.FunctionType.Inline)
    def first(self, x):
        {first}
        return x

    @pl.function(type=pl.FunctionType.Inline)
    def second(self, x):
        {second}
        return x

    @pl.function
    def run(self, n: pl.Scalar, out: pl.Out[pl.Tensor]):
        {run}
"""
NO_FUNCTION = ("call of self.{}", "the program Main has no function {!r}")
RECURSION = ("call of self.{}", "it is recursion: the function calls itself, directly or through others")


@pytest.mark.parametrize(
    ("where", "body", "expected", "callee", "remedy"),
    [
        ("run", "x = self.frist(n)  #!", NO_FUNCTION, "frist", "did you mean self.first?"),
        ("run", "x = n + self.other(n)  #!", NO_FUNCTION, "other", "decorated with @pl.function"),
        ("run", "t = pl.submit(self.q, out)  #!", NO_FUNCTION, "q", "decorated with @pl.function"),
        ("second", "y = self.missing(x)  #!", NO_FUNCTION, "missing", "decorated with @pl.function"),
        ("run", "self.run(n, out)  #!", RECURSION, "run", "use a loop"),
        ("first", "y = self.first(x)  #!", RECURSION, "first", "use a loop"),
        ("second", "y = x + self.second(x - 1)  #!", RECURSION, "second", "use a loop"),
    ],
    ids=["misspelt", "in an expression", "submitted", "in a helper", "the entry", "a helper", "in an expression of a helper"],
)  # fmt: skip
def test_methods_that_a_program_cannot_call_are_named_when_it_is_decorated(where, body, expected, callee, remedy):
    bodies = {"first": "pass", "second": "y = self.first(x)", "run": "x = self.second(n)"} | {where: body}
    text = HEAD + METHODS.format(**bodies)
    with pytest.raises(pl.LanguageError) as raised:
        pl.parse(text)
    construct, rule = expected
    check(raised.value, Bad("", "", construct.format(callee), rule.format(callee), remedy, before=""), text)


def test_recursion_through_others_is_recursion():
    bodies = {"first": "y = self.second(x)", "second": "y = self.first(x)", "run": "x = self.first(n)"}
    with pytest.raises(pl.LanguageError, match="call of self.first: it is recursion") as raised:
        pl.parse(HEAD + METHODS.format(**bodies))
    assert "self.first(x)" in raised.value.loc.text


def test_recursion_of_functions_that_are_found_by_name():
    with pytest.raises(pl.LanguageError, match="call of again: it is recursion") as raised:

        @pl.jit.inline
        def again(x: pl.Scalar):
            y = again(x)
            return y

    assert raised.value.loc.text.strip() == "y = again(x)"


@pytest.mark.parametrize("platform", ["sim", "cpu"])
def test_what_is_guarded_is_not_wrong(platform):
    text = (
        HEAD
        + """
@pl.jit
def program(n: pl.Scalar, out: pl.Out[pl.Tensor]):
    zero = 0
    x = 0
    if n > 0:
        x = 12 // n
        if n > 100:
            x = n // zero
    with pl.at(level=pl.Level.CORE_GROUP):
        y = 7 % n if n > 0 else -1
        out[0] = x
        out[1] = y
"""
    )
    program = pl.parse(text)
    for n, expected in ((0, [0, -1]), (5, [2, 2])):
        out = np.zeros(2, np.int64)
        program(n, out, config=RunConfig(platform=platform))
        assert out.tolist() == expected


@pytest.mark.parametrize("platform", ["sim", "cpu"])
def test_division_by_zero_of_floats_is_an_infinity_without_a_word(platform, recwarn):
    text = (
        HEAD
        + """
@pl.jit
def program(x: pl.Scalar[pl.FP32], out: pl.Out[pl.Tensor]):
    zero = 0.0
    a = 1.0 / zero
    b = x / zero
    c = -x / (x - x)
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0] = a
        out[1] = b
        out[2] = c
        out[3] = pl.recip(zero)
        out[4] = zero / zero
        out[5] = pl.rsqrt(x - x)
"""
    )
    out = np.zeros(6, np.float32)
    pl.parse(text)(2.5, out, config=RunConfig(platform=platform))
    np.testing.assert_array_equal(out, [np.inf, np.inf, -np.inf, np.inf, np.nan, np.inf])
    assert not recwarn.list


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("sim", r"config is 'sim'; give RunConfig\(platform='sim'\)"),
        ("abacus", r"config is 'abacus'; give a RunConfig, such as RunConfig\("),
        ({"platform": "sim"}, "config is a dict; give a RunConfig"),
        (np.zeros(3), "config is a ndarray; give a RunConfig"),
        (RunConfig, "config is a type; give a RunConfig"),
    ],
    ids=str,
)
def test_a_config_that_is_none_says_what_to_give(config, told):
    @pl.jit
    def scaled(a: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.mul(a, 2.0)
        return out

    a, out = np.ones((2, 4), np.float32), np.zeros((2, 4), np.float32)
    compiled = scaled.compile(a, out)
    for call in (scaled, scaled.run, compiled, compiled.run, lambda *_, config: Worker(config)):
        with pytest.raises(TypeError, match=told):
            call(a, out, config=config)
    assert not out.any() and repr(compiled) == "<compiled scaled: 1 kernel>"

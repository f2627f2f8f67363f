"""Small programs that once behaved differently from PyTorch's: what a difference was about, and the lines that showed it."""

ONCE_DIFFERENT = {
    "the result of a matrix product is no view": """
        a = make('float32', (2, 3, 4), 1).requires_grad_()
        b = a @ make('float32', (4, 2), 2)
        c = make('float32', (4,), 3) @ make('float32', (4,), 4)
        d = make('float32', (3, 4), 3).mv(make('float32', (4,), 4))
        b.mul_(2)
        c.mul_(2)""",
    "a vector times a matrix squeezes its result in place": """
        a = make('float32', (3,), 1).requires_grad_()
        b = a @ make('float32', (3, 2), 2)""",
    "a matrix that requires grad times a batch": """
        a = make('float32', (3, 5), 1).requires_grad_()
        b = a @ make('float32', (2, 5, 4), 2)
        c = a[0] @ make('float32', (2, 5, 4), 2)
        b.sum().backward()""",
    "roll and rot90 give new tensors": """
        a = make('float32', (3, 4), 1)
        b = a.roll(1)
        c = a.rot90()
        d = torch.kron(a, a)""",
    "scatters of views leave version 0 and keep strides": """
        a = make('float32', (3, 1, 5, 3), 1).diagonal(1, 1, 2)
        b = torch.select_scatter(a, a.select(-2, 0) * 2, -2, 0)
        c = torch.slice_scatter(a, a.narrow(0, 0, 1), 0, 0, 1)
        d = torch.diag_embed(a)""",
    "conj_physical_ of real numbers is a change": """
        a = make('float32', (3,), 1).requires_grad_() * 1
        a.conj_physical_()
        a[:2].conj_physical_()""",
    "floor_divide is recorded, but has no derivative": """
        a = make('float32', (3,), 1).requires_grad_()
        b = a // 2
        c = torch.heaviside(a, a)
        b.sum().backward()
        c.sum().backward()""",
    "comparisons in place have a zero derivative": """
        a = make('float32', (3,), 1).requires_grad_()
        b = a * 1
        b.lt_(a)
        c = a * 1
        c.eq_(2)
        (b + c).sum().backward()
        a.lt_(0)""",
    "logical operators in place pass autograd by": """
        a = make('float32', (3,), 1).requires_grad_()
        a.logical_and_(a)
        b = a * 2
        b.logical_not_()
        b.sum().backward()""",
    "a view made without recording requires grad as its base does": """
        a = make('float32', (3, 2), 1).requires_grad_()
        with torch.no_grad(): b = a.t()
        c = b * 2
        c.sum().backward()
        b.backward(torch.ones_like(b))
        with torch.no_grad(): d = b.numpy().sum()""",
    "such a view is out of date once its base has changed": """
        a = make('float32', (3, 2), 1).requires_grad_()
        with torch.no_grad(): b = a.t()
        with torch.no_grad(): a.mul_(2)
        c = b * 2""",
    "a part of a split is out of date once its base has changed": """
        a = make('float32', (4, 2), 1).requires_grad_() * 1
        b = a.split(2)[0]
        a.mul_(2)
        c = b * 2""",
    "a view follows changes outside the graph": """
        a = make('float32', (3, 2), 1).requires_grad_()
        b = a.swapaxes(0, 1)
        a.detach().mul_(2)
        b.sum().backward()""",
    "slices that begin before the start": """
        a = make('float32', (2, 3), 1).requires_grad_()
        b = a[:, -7:]
        c = a[:]
        d = a[:, :9]""",
    "a number written everywhere is a fill": """
        a = make('float32', (2, 3), 1).requires_grad_() * 1
        a[...] = 1.5
        b = make('float32', (2, 3), 1).requires_grad_() * 1
        b[0] = torch.tensor(2)
        c = make('float32', (3,), 1).expand(2, 3)
        c[...] = 1
        c[:, 1] = 2
        c.fill_(3)""",
    "an operand that is changed by its own operator is lost to backward": """
        a = make('float32', (3,), 7).requires_grad_().exp() + 1
        a.div_(a)
        a.sum().backward()""",
    "out= of another dtype does not hide that an input requires grad": """
        a = make('float32', (3,), 1).requires_grad_()
        b = torch.sum(a, 0, out=torch.empty(0, dtype=torch.int32))
        c = torch.cumsum(a, 0, out=torch.empty(0, dtype=torch.int64))
        d = torch.amax(a, 0, out=torch.empty(0))
        e = torch.index_select(a, 9, torch.tensor([0]), out=torch.empty(0))""",
    "out= of operators without derivative": """
        a = make('float32', (3,), 1).requires_grad_()
        b = torch.eq(a, a, out=torch.empty(3, dtype=torch.bool))
        c = a.sin()
        d = torch.logical_not(c, out=c)""",
    "out= that is an input cannot be resized": """
        a = make('float32', (2,), 1)
        b = torch.div(a, make('float32', (3, 2), 2), out=a)
        c = torch.index_select(a[:], 0, torch.tensor([0]), out=a)""",
    "out= that requires grad may be resized without recording": """
        a = make('float32', (2, 2), 1).requires_grad_()
        with torch.no_grad(): b = torch.cumsum(make('float32', (3,), 1), 0, out=a)""",
    "clamp with a number and a tensor without dimensions": """
        a = make('int64', (4,), 1)
        b = a.clamp(-1, torch.tensor(0.5, dtype=torch.float64))
        c = a.clamp(torch.tensor([1]), 2)
        a.clamp_(torch.tensor(0), 1)""",
    "which mistake is named: shapes before dtypes": """
        a = make('bfloat16', (1,), 1)
        a.bitwise_or_(make('bfloat16', (4, 1), 2))
        b = make('float32', (2,), 1)
        b.remainder_(make('complex64', (2,), 2))
        c = make('float32', (2,), 1).requires_grad_()
        c.atan2_(-2)""",
    "cat of nothing but empty vectors": "a = torch.cat([torch.zeros(0), torch.zeros(0)])",
    "index_add_ with a factor keeps the dtype": """
        a = make('bool', (2, 3), 1)
        a.index_add_(1, torch.tensor([1, 0]), make('bool', (2, 2), 3), alpha=2)
        b = make('int64', (3,), 1)
        b.index_add_(0, torch.tensor([0]), torch.tensor([1]), alpha=0.5)
        b.index_add_(0, torch.tensor([0]), torch.tensor([1]), alpha=2)""",
    "complex addcdiv by zero": """
        a = make('complex64', (3,), 1)
        b = torch.addcdiv(a, a, torch.zeros(3), value=3)""",
    "integers with a fraction as factor": """
        a = make('int64', (3,), 1)
        b = torch.addcmul(a, a, a, value=1.5)
        c = torch.addcmul(a, a, a, value=1e30)
        d = torch.addcmul(a.to(torch.uint8), a.to(torch.uint8), a.to(torch.uint8), value=-1.5)""",
    "numbers that do not fit": """
        a = make('uint8', (3,), 1)
        a.masked_fill_(make('bool', (3,), 2), -1.5)
        a.fill_(-1.5)
        a.fill_(-1)
        b = make('float32', (3,), 1)
        b[b > 0] = torch.tensor(1 + 2j)
        b.lerp_(b.clone(), 1 + 2j)
        c = b > 0
        c[c.clone()] = 1 + 2j
        c.scatter_(0, torch.tensor([0]), 1 + 2j)""",
    "the norm that counts has no gradient": """
        a = make('float32', (3,), 1).requires_grad_()
        a.norm(0, dim=0).backward()""",
    "einsum with nothing to sum": """
        a = make('float32', (3,), 1).requires_grad_()
        b = torch.einsum('i,j->ji', a, a)
        c = torch.einsum('ii->i', b)
        d = torch.einsum('ij,kj->ik', a[:, None], a[:, None])
        b.sum().backward()""",
    "the diagonal of a column": "a = make('float32', (1, 4), 1).t().diag()",
    "padding that cuts more than there is": "a = torch.nn.functional.pad(make('float32', (2, 0), 1), (1, -1))",
    "positions that are never read": "a = make('float32', (2, 2), 1)[torch.tensor([-3, 0]), 2:]",
    "positions and values that are the tensor written to": """
        a = make('float32', (4,), 1)
        a[torch.tensor([0, 1])] = a[1:3]
        b = torch.tensor([0, 1, 2])
        b[b] = 2
        c = make('bool', (4,), 1)
        c[c] = c[c]
        c[c] = True
        a[None].add_(a)""",
    "a gradient made with create_graph can be added to": """
        a = make('float32', (5, 3), 1).requires_grad_()
        a.sum().backward(create_graph=True)
        (a * a).sum().backward()""",
    "a resized out= is laid out as a new result": """
        a = make('float32', (4, 2), 1).t()
        b = make('float32', (3,), 1)
        c = torch.maximum(a, a * 2, out=b)""",
    "the history of a complex tensor changed through its parts": """
        a = make('complex64', (3,), 1)
        b = torch.view_as_real(a)
        b.mul_(make('float32', (3, 2), 2).requires_grad_())
        a.abs().sum().backward()""",
    "what truth values have no kernels for": """
        a = make('bool', (3,), 1)
        b = a.clamp_min(True)
        c = torch.addcmul(a, a, a)""",
    "a tensor written into itself": """
        a = make('float32', (2, 3), 1)
        a[None, ...] = a""",
    "a view made before its base had a history": """
        a = make('float32', (2, 3), 1)
        b = a[0]
        a.mul_(make('float32', (), 2).requires_grad_())
        c = b.sum()
        d = b.softmax(0)
        e = b.max()
        (c + d.sum() + e).backward()""",
    "names of derivatives": """
        a = make('float32', (2, 3), 1).requires_grad_()
        b = torch.div(a, 2, rounding_mode='trunc')
        c = torch.copysign(a, 2)
        d = torch.xlogy(a, 2)
        e = (a * 1).asinh_()
        f = (a * 1).polygamma_(2)""",
    "truth values are not subtracted": """
        a = make('float32', (3,), 1)
        b = a - True
        c = False - a
        a.sub_(True)""",
    "complex numbers have no largest": "a = make('complex64', (3,), 1).argmax()",
    "a few operators change expanded tensors": """
        a = make('float32', (3, 1), 1).expand(3, 4)
        a.masked_fill_(torch.tensor([True, False, False, False]), 5.)
        b = make('float32', (1,), 1).expand(3)
        b[torch.tensor([0, 1])] = torch.tensor([1., 2.])
        b.index_put_((torch.tensor([0, 0]),), torch.tensor(1.), accumulate=True)
        b.index_fill_(0, torch.tensor([1]), 7.)
        b[:] = 5.
        c = (make('float32', (1,), 1).requires_grad_() * 1).expand(3)
        c.masked_fill_(torch.tensor([True, False, False]), 5.)""",
    "a number of any kind is copied into any dtype": """
        a = make('float32', (2,), 1).copy_(1 + 2j)
        b = make('uint8', (2,), 1).copy_(300)
        c = make('float16', (2,), 1).copy_(1e6)""",
    "what is assigned to all of a tensor is copied or expanded": """
        a = make('float32', (3, 2), 1)
        a[...] = make('float32', (2,), 2).requires_grad_()
        b = make('float32', (3, 2), 1)
        b[:] = make('float32', (3, 2), 2).requires_grad_()
        c = make('float32', (3, 2), 1)
        c[0:2] = [1., 2.]""",
    "numbers are rounded to 16 bits before most operators": """
        a = make('float16', (9,), 1)
        b = torch.tensor([0.7, 5.3], dtype=torch.float16)
        c = torch.fmod(b, 0.7)
        d = b % 0.7
        e = b == 0.7
        f = b + 0.7
        g = b - 0.7""",
    "a number modulo a tensor has no derivative": """
        a = make('float32', (3,), 1).requires_grad_()
        b = 2 % a
        b.sum().backward()""",
    "out= of contractions has the dtype of the result": """
        a = make('float32', (2, 2), 1)
        b = torch.inner(a, a, out=torch.empty(2, 2, dtype=torch.float64))
        c = torch.linalg.multi_dot([a, a], out=torch.empty(2, 2, dtype=torch.float64))
        d = torch.linalg.matrix_power(a, 2, out=torch.empty(2, 2, dtype=torch.float64))
        e = torch.linalg.matrix_power(a, 1, out=torch.empty(2, 2, dtype=torch.float64))""",
    "the gradient of a changed view is that of its final value": """
        a = make('float32', (1,), 0).requires_grad_()
        b = a.repeat_interleave(2, 0)
        b.retain_grad()
        b.masked_fill_(b > 0, 2.)
        (b * b).sum().backward()""",
    "a wrong dtype is named before a wrong index": """
        a = make('int64', (5,), 179)
        a[torch.tensor([-6, -4])] = torch.tensor(1.25)""",
    "a view of a view that must not change must not change either": """
        a = make('float32', (6,), 1).requires_grad_() * 1
        with torch.no_grad(): b = a.unflatten(0, (1, -1))
        b[0].mul_(2)
        b[0, torch.tensor([1]), None] = 1.
        c = a.split(3)[0][:]
        c.mul_(2)""",
    "truth values have the powers True and False": """
        a = make('bool', (4,), 1)
        b = torch.pow(a, True, out=make('bool', (4,), 2))
        c = a**False
        d = a**a
        e = make('float32', (3,), 1).requires_grad_() ** True""",
    "views of a matrix product can be changed": """
        a = make('float32', (3, 2, 4), 1).requires_grad_()
        b = torch.matmul(a, make('float32', (4, 2), 2))
        b.swapaxes(-1, -3).narrow(-1, 1, 1).mul_(2)
        b[0] = 1.
        b.sum().backward()""",
}

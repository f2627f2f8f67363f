"""The k-th smallest of every line, and the k largest or smallest: without sorting the line.

A line is n elements `inner` apart. Keys (see `order`) are compared as unsigned numbers; an int64 key becomes one by
flipping its top bit back."""

from __future__ import annotations

from ...core.dtype import float64, int64, uint64
from ..loops import i64, isnan, local, loop_kernel, prange, scalar_function
from .sort_keys import LOWEST, order_key

SMALL = 1024  # lines up to this long are selected from in a local array
DIGIT = 11  # bits looked at in one pass over a longer line
BINS = 1 << DIGIT
FEW = 64  # the most elements that top_few keeps


@scalar_function
def signed_key(v, *, kind, descending):
    """Return the order key as a number that signed comparison orders."""
    key = order_key(v, kind=kind, descending=descending)
    if kind is float64 or kind is int64 or kind is uint64:
        return key ^ LOWEST
    return key


@scalar_function
def kth_of_few(x, base, n, inner, k, keys, *, descending):
    """Return the k-th smallest key of a short line, by partitioning a copy of its keys around a middle one."""
    for i in range(n):
        keys[i] = signed_key(x[base + i * inner], kind=x.dtype, descending=descending)
    low = 0
    high = n - 1
    while low < high:
        pivot = keys[(low + high) // 2]
        i = low
        j = high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while pivot < keys[j]:
                j -= 1
            if i <= j:
                held = keys[i]
                keys[i] = keys[j]
                keys[j] = held
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            low = high
            keys[low] = pivot
            k = low
    return keys[low]


@scalar_function
def kth_of_many(x, base, n, inner, k, counts, *, descending):
    """Return the k-th smallest key of a long line, digit by digit from the top, with one count of elements per digit."""
    wide = x.dtype is float64 or x.dtype is int64 or x.dtype is uint64
    shift = 55 if wide else 22
    first = True
    found = i64(0)
    left = k
    while shift >= 0:
        for b in range(BINS):
            counts[b] = 0
        for i in range(n):
            key = order_key(x[base + i * inner], kind=x.dtype, descending=descending)
            if first or key >> (shift + DIGIT) == found >> (shift + DIGIT):
                counts[(key >> shift) & (BINS - 1)] += 1
        digit = 0
        while left >= counts[digit]:
            left -= counts[digit]
            digit += 1
        if first and wide and digit >= BINS // 2:
            digit -= BINS  # the top digit of an int64 comes sign-extended
        found = found + (i64(digit) << shift)
        first = False
        shift -= DIGIT
    return found ^ LOWEST if wide else found


@loop_kernel
def select_lines(values, indices, x, outer, n, inner, k, tasks, *, mode, long):
    """values[line], indices[line] = the k-th smallest (from 0) element of every line and where it is.

    mode "kth": as given. "median": the lower middle, nan if there is one. "nanmedian": the lower middle of what is not
    nan. `long` says whether lines are longer than SMALL."""
    lines = outer * inner
    for task in prange(tasks, 8 * n * lines // tasks):
        keys = local(i64, BINS if long else SMALL)
        for line in range(task * lines // tasks, (task + 1) * lines // tasks):
            base = line // inner * n * inner + line % inner
            numbers = 0
            first_nan = -1
            if mode != "kth":
                for i in range(n):
                    if isnan(x[base + i * inner]):
                        if first_nan < 0:
                            first_nan = i
                    else:
                        numbers += 1
            rank = k if mode == "kth" else (n - 1) // 2
            if mode == "nanmedian" and numbers > 0:
                rank = (numbers - 1) // 2
            if first_nan >= 0 and (mode == "median" or numbers == 0):
                place = first_nan
            else:
                if long:
                    wanted = kth_of_many(x, base, n, inner, rank, keys, descending=False)
                else:
                    wanted = kth_of_few(x, base, n, inner, rank, keys, descending=False)
                place = 0
                while signed_key(x[base + place * inner], kind=x.dtype, descending=False) != wanted:
                    place += 1
            values[line] = x[base + place * inner]
            indices[line] = place


@loop_kernel
def top_few(values, indices, x, outer, n, inner, k, *, largest):
    """values, indices[o, :, i] = the k <= FEW largest (or smallest) elements of every line and where they are, best
    first. One comparison for most elements."""
    for line in prange(outer * inner, 2 * n):
        base = line // inner * n * inner + line % inner
        keys = local(i64, FEW)
        places = local(i64, FEW)
        for i in range(k):
            key = signed_key(x[base + i * inner], kind=x.dtype, descending=largest)
            j = i
            while j > 0 and keys[j - 1] > key:
                keys[j] = keys[j - 1]
                places[j] = places[j - 1]
                j -= 1
            keys[j] = key
            places[j] = i
        worst = keys[k - 1]
        for i in range(k, n):
            key = signed_key(x[base + i * inner], kind=x.dtype, descending=largest)
            if key < worst:
                j = k - 1
                while j > 0 and keys[j - 1] > key:
                    keys[j] = keys[j - 1]
                    places[j] = places[j - 1]
                    j -= 1
                keys[j] = key
                places[j] = i
                worst = keys[k - 1]
        target = line // inner * k * inner + line % inner
        for i in range(k):
            indices[target + i * inner] = places[i]
            values[target + i * inner] = x[base + places[i] * inner]


@scalar_function
def is_worse(keys, places, a, b):
    """Return whether heap element a ranks below b: a larger key, or a later place."""
    return keys[a] > keys[b] or (keys[a] == keys[b] and places[a] > places[b])


@scalar_function
def sift_down(keys, places, base, start, size, key, place):
    """Insert an element at `start` in a heap whose root is the worst, moving worse ones up."""
    i = start
    searching = True
    while searching:
        child = 2 * i + 1
        if child + 1 < size and is_worse(keys, places, base + child + 1, base + child):
            child += 1
        searching = False
        if child < size:
            worse = keys[base + child] > key or (keys[base + child] == key and places[base + child] > place)
            if worse:
                keys[base + i] = keys[base + child]
                places[base + i] = places[base + child]
                i = child
                searching = True
    keys[base + i] = key
    places[base + i] = place


@loop_kernel
def top_heap(values, indices, x, keys, places, outer, n, inner, k, tasks, *, largest):
    """Find the best k, for k larger than in top_few but small against n: a heap in scratch memory for k elements per task."""
    lines = outer * inner
    for task in prange(tasks, 4 * n * lines // tasks):
        heap = task * k
        for line in range(task * lines // tasks, (task + 1) * lines // tasks):
            base = line // inner * n * inner + line % inner
            for i in range(k):
                keys[heap + i] = signed_key(x[base + i * inner], kind=x.dtype, descending=largest)
                places[heap + i] = i
            for step in range(k // 2):
                i = k // 2 - 1 - step
                sift_down(keys, places, heap, i, k, keys[heap + i], places[heap + i])
            worst = keys[heap]
            for i in range(k, n):
                key = signed_key(x[base + i * inner], kind=x.dtype, descending=largest)
                if key < worst:
                    sift_down(keys, places, heap, 0, k, key, i)
                    worst = keys[heap]
            target = line // inner * k * inner + line % inner
            for step in range(k):
                last = k - 1 - step
                place = places[heap]
                indices[target + last * inner] = place
                values[target + last * inner] = x[base + place * inner]
                sift_down(keys, places, heap, 0, last, keys[heap + last], places[heap + last])


@loop_kernel
def top_many(indices, x, outer, n, inner, k, tasks, *, largest, long):
    """Find the k largest elements of each line for any k, in the order of the line."""
    lines = outer * inner
    for task in prange(tasks, 8 * n * lines // tasks):
        keys = local(i64, BINS if long else SMALL)
        for line in range(task * lines // tasks, (task + 1) * lines // tasks):
            base = line // inner * n * inner + line % inner
            if long:
                limit = kth_of_many(x, base, n, inner, k - 1, keys, descending=largest)
            else:
                limit = kth_of_few(x, base, n, inner, k - 1, keys, descending=largest)
            better = 0
            for i in range(n):
                better += 1 if signed_key(x[base + i * inner], kind=x.dtype, descending=largest) < limit else 0
            equal = k - better
            place = line // inner * k * inner + line % inner
            for i in range(n):
                key = signed_key(x[base + i * inner], kind=x.dtype, descending=largest)
                if key < limit:
                    indices[place] = i
                    place += inner
                elif key == limit and equal > 0:
                    indices[place] = i
                    place += inner
                    equal -= 1

"""Expressions of compiled programs at the edges of their operators: what they give, or the error with its text, as in PyTorch."""

from __future__ import annotations

import pytest
from answers.programs import check, short

SETUP = """
import cmath, linecache, math
from typing import *

def said(problem):
    # The kind of an error and its text: the last line of one that a running program raised, else the first.
    lines = [line for line in str(problem).split(chr(10)) if line.strip()] or [""]
    return type(problem).__name__ + ": " + lines[-1 if lines[0].startswith("The following operation failed") else 0].strip()

def text_of(expression, head):
    return f"def f({head}):" + chr(10) + f"    return {expression}" + chr(10)

def compiled(expression, head):
    return L.jit.CompilationUnit(text_of(expression, head)).f

def scripted(expression, head):
    # Modules such as math are known to functions of Python, not to programs given as text.
    text, names = text_of(expression, head), {**globals(), "torch": L, "__name__": "programs"}
    linecache.cache[f"<{expression}>"] = (len(text), None, text.splitlines(True), f"<{expression}>")
    exec(compile(text, f"<{expression}>", "exec", dont_inherit=True), names)
    return L.jit.script(names["f"])

def gives(make, expression, head, given):
    try:
        return repr(make(expression, head)(*given))
    except Exception as problem:
        return said(problem)
"""
# Parameters ::: arguments ::: expressions.
EXPRESSIONS = r"""
n: int, m: int ::: 7, 0 ::: n / m; n // m; divmod(n, m); n ** m
n: int, m: int ::: -7, 3 ::: n / m; n // m; n % m; divmod(n, m); n ** m
n: float, m: float ::: 7.5, 0.0 ::: n / m; n // m; n % m; divmod(n, m); n ** m; min(n, m); max(n, m); n < m; n == m; n != m
n: float, m: float ::: -7.5, 2.0 ::: n / m; n // m; n % m; divmod(n, m); n ** m; min(n, m); max(n, m); n < m; n == m; n != m
n: float, m: float ::: 7.5, float('nan') ::: n / m; n // m; n % m; divmod(n, m); n ** m; min(n, m); max(n, m); n < m; n == m; n != m
n: float, m: float ::: -7.5, float('inf') ::: n / m; n // m; n % m; divmod(n, m); n ** m; min(n, m); max(n, m); n < m; n == m; n != m
n: int, m: float ::: 7, 0.0 ::: n / m; n // m; n % m; divmod(n, m); n ** m; min(n, m); max(n, m); n < m; n == m; m ** n; m // n; m % n; m / n
n: int, m: float ::: -8, 0.5 ::: n / m; n // m; n % m; divmod(n, m); n ** m; min(n, m); max(n, m); n < m; n == m; m ** n; m // n; m % n; m / n
n: int ::: -5 ::: -n; abs(n); n + 1; n * 2; n * n; n - 1; ~n; n << 1; n << 63; n << 64; n >> 1; n >> 64; n << -1; n >> -1; n & 3; n | 8; n ^ 3; n ** 2; n ** -1; n ** 0; float(n); bool(n); str(n); complex(n); hex(n); oct(n); bin(n); int(n); round(n); n == 5.0; n is None; not n; n and True; -n // 2; n % 4; n / 2; n // -1; divmod(n, -1); n % -1; 1.5 * n
n: int ::: -5 ::: n ** 1.5; 2 ** n; (-2) ** n; 0 ** n; 0.0 ** n; 2.0 ** n
n: int ::: 9223372036854775807 ::: -n; abs(n); n + 1; n * 2; n * n; n - 1; ~n; n << 1; n << 63; n << 64; n >> 1; n >> 64; n << -1; n >> -1; n & 3; n | 8; n ^ 3; n ** 2; n ** -1; n ** 0; float(n); bool(n); str(n); complex(n); hex(n); oct(n); bin(n); int(n); round(n); n == 5.0; n is None; not n; n and True; -n // 2; n % 4; n / 2; n // -1; divmod(n, -1); n % -1; 1.5 * n
n: int ::: 9223372036854775807 ::: n ** 1.5; 2 ** n; (-2) ** n; 0 ** n; 0.0 ** n; 2.0 ** n
n: int ::: 21 ::: chr(n); '%c' % n
n: float ::: -0.5 ::: -n; abs(n); int(n); bool(n); str(n); round(n); n ** 0.5; n ** 2; n ** -1; n ** 0; n * 0; n // 1; n % 1; n == n; n != n; n in [n]; [n] == [n]; (n, 1) == (n, 1); [n].index(n); [n].count(n); not n; {n: 1}; '%d' % n; '%s' % n; '%f' % n; '%e' % n; '%g' % n; '%x' % n; '{}'.format(n); float(n); complex(n); int(round(n)); sorted([n, 1.0, -1.0]); min([n, 1.0]); max([n, 1.0]); min(n, 1.0); max(n, 1.0); min(1.0, n); max(1.0, n); sum([n, 1.0])
n: float ::: -0.5 ::: any([n]); all([n])
n: float ::: 2.5 ::: -n; abs(n); int(n); bool(n); str(n); round(n); n ** 0.5; n ** 2; n ** -1; n ** 0; n * 0; n // 1; n % 1; n == n; n != n; n in [n]; [n] == [n]; (n, 1) == (n, 1); [n].index(n); [n].count(n); not n; {n: 1}; '%d' % n; '%s' % n; '%f' % n; '%e' % n; '%g' % n; '%x' % n; '{}'.format(n); float(n); complex(n); int(round(n)); sorted([n, 1.0, -1.0]); min([n, 1.0]); max([n, 1.0]); min(n, 1.0); max(n, 1.0); min(1.0, n); max(1.0, n); sum([n, 1.0])
n: float ::: 2.5 ::: any([n]); all([n])
n: float ::: float('inf') ::: -n; abs(n); int(n); bool(n); str(n); round(n); n ** 0.5; n ** 2; n ** -1; n ** 0; n * 0; n // 1; n % 1; n == n; n != n; n in [n]; [n] == [n]; (n, 1) == (n, 1); [n].index(n); [n].count(n); not n; {n: 1}; '%d' % n; '%s' % n; '%f' % n; '%e' % n; '%g' % n; '%x' % n; '{}'.format(n); float(n); complex(n); int(round(n)); sorted([n, 1.0, -1.0]); min([n, 1.0]); max([n, 1.0]); min(n, 1.0); max(n, 1.0); min(1.0, n); max(1.0, n); sum([n, 1.0])
n: float ::: float('inf') ::: any([n]); all([n])
n: float ::: 1e+300 ::: int(n); str(n); n ** 0.5; n ** 2; n ** -1; n ** 0; n // 1; '%d' % n; '%s' % n; '%f' % n; '%e' % n; '%g' % n; '%x' % n; '{}'.format(n); int(round(n))
n: float ::: 123456789.123 ::: int(n); str(n); n ** 0.5; n ** 2; n ** -1; n ** 0; n // 1; '%d' % n; '%s' % n; '%f' % n; '%e' % n; '%g' % n; '%x' % n; '{}'.format(n); int(round(n))
n: float ::: 0.0 ::: -n; abs(n); int(n); bool(n); str(n); round(n); n ** 0.5; n ** 2; n ** -1; n ** 0; n * 0; n // 1; n % 1; n == n; n != n; n in [n]; [n] == [n]; (n, 1) == (n, 1); [n].index(n); [n].count(n); not n; {n: 1}; '%d' % n; '%s' % n; '%f' % n; '%e' % n; '%g' % n; '%x' % n; '{}'.format(n); float(n); complex(n); int(round(n)); sorted([n, 1.0, -1.0]); min([n, 1.0]); max([n, 1.0]); min(n, 1.0); max(n, 1.0); min(1.0, n); max(1.0, n); sum([n, 1.0])
n: float ::: 0.0 ::: any([n]); all([n])
n: complex ::: (1+2j) ::: -n; abs(n); str(n); bool(n); n / n; n ** n; n == n; int(n); float(n); complex(n); n + 1; n * 2.5; [n]; complex(n, 2); n in [n]; '{}'.format(n); '%s' % n; n - 1j; sum([n, n])
 :::  ::: complex('1+2j'); complex('a'); complex(1); complex(True); complex(1, 2); complex(1.5, True); complex(True, False); complex(); int(); float(); str(); bool(); ord('ab'); ord(''); ord('a'); 'a' * 2; 2 * 'a'; 'a' + 1; 'a' < 1; 'a' == 1; '%'; '%' % 1; 'a%' % 1; '%%' % 1; '%% %d' % 1; '%s %s' % ('a', 1); '%s' % ('a', 1); '%s %s' % ('a',); '%d' % 1.5; '%s' % True; '%s' % None; '%s' % [1, 2]; '%s' % (1,); '%s' % (1, 2); '%s' % {1: 2}; '%i' % 3; '%i' % -3; '%x' % 255; '%X' % 255; '%x' % -255
 :::  ::: '%x' % 1.5; '%x' % True; '%e' % 12345.678; '%E' % 12345.678; '%g' % 1e20; '%g' % 0.0001; '%G' % 1e-10; '%f' % 1; '%F' % 1.5; '%c' % 'a'; '%c' % 97; '%c' % 'ab'; '%c' % 1.5; '%c' % ''; '%o' % 8; '%u' % 8; '%r' % 'a'; '%5d' % 3; '%.2f' % 1.5; '%-5s' % 'a'; '%05d' % 3; '%(a)s' % {'a': 1}; '%s%s' % 'a'; 'no' % 1; 'no' % (); '%s' % (); '%e' % 0; '%e' % 1; '%d' % 9223372036854775807; '%d' % 1e300; '%f' % 1e300; '%f' % 1e-300; '%s' % 1.0; '%s' % 1e100; '%s' % 0.1; '%s' % 1e-7; '%s' % 123456789.123; '%g' % 123456789.123; '%d %s %f' % (1, 'b', 2.5); '%s' % 2j
 :::  ::: '%a' % 1; '%b' % 1; '% d' % 1; '%+d' % 1; '%#x' % 1; '%%%s' % 1; '%s%%' % 1; '%x' % 'a'; '%e' % 'a'; '%g' % True; '{}'.format(); '{}{}'.format(1); '{}'.format(1, 2); '{0}'.format(1); '{0}{1}'.format(1, 2); '{a}'.format(a=1); '{:d}'.format(3); '{:.2f}'.format(1.5); '{{}}'.format(1); '{'.format(1); '}'.format(1); '{} {'.format(1); '{}'.format(True); '{}'.format(None); '{}'.format([1, 2]); '{}'.format(['a']); '{}'.format((1, 'a')); '{}'.format({'a': 1}); '{}'.format(1.0); '{}'.format(1e20); '{}'.format(0.1); '{}'.format(2j); '{}'.format(1e-7); '{}'.format([1.0, 2.5]); '{}'.format('a'); '{}'.format([True, False]); '{!r}'.format('a'); '{}'.format([None, 1]); 'a{}b{}c'.format('x', 1); ''.format()
 :::  ::: ''.format(1); '{}'.format(123456789.123); '{}'.format(1.0e16); str(1e16); str(1e15); str(1.0); str(0.1); str(1e-5); str(1e-4); str(123456789.123); str(True); str(None); str([1, 2]); str(['a']); str((1, 'a')); str((1,)); str({'a': 1}); str({1: 2.5}); str([1.5]); str([]); str(()); str({}); str(2j); str(1+2j); str(1.5+2.5j); str('a'); str([None]); str([True]); str([[1], [2]]); str(-0.0); str(1e22); str(1e300); str(100000.0); str(1000000.0); str(1e100); str(1.23456789012345); str(0); range(3); [i for i in range(-3)]; [i for i in range(3, 1)]
 :::  ::: [i for i in range(1.0)]; [i for i in range()]; [i for i in range(1, 2, 3, 4)]; [i for i in range('a')]; [i for i in zip([1], [2, 3])]; [i for i in zip([1, 2], 'ab')]; [i for i in zip([1])]; [i for i in zip()]; [i for i in zip([1], [2], [3])]; [i for i in enumerate('ab')]; [i for i in enumerate([1], 2)]; [i for i in enumerate([1], start=2)]; [i for i in enumerate(5)]; [i for i in enumerate()]; [i for i in 5]; [i for i in None]; [i for i in (1, 2)]; [i for i in {1: 2}]; [i for i in 'ab']; [i for i in []]; [i for i in [[1]]]; min(); max(); min(1); max(1); min(1, 2); min(1, 2.5); min(1, 2, 3); min([1, 2], [3]); min('a', 'b'); max([1], [2]); min([2.5, 1.0]); min([True]); min(True, 2); sum([1.5, 2]); sum([True]); sum(['a']); sum((1, 2)); sum(1); sum([1], 2)
 :::  ::: abs(-3); abs(-3.5); abs(True); abs('a'); abs(); round(2.5); round(-2.5); round(0.5); round(1.5); round(2.567, 2); round(1234, -2); round(3); round('a'); round(True); int(2.9); int(-2.9); int(True); int('12'); int(' 12 '); int('1.5'); int('0x10', 16); int('10', 2); int(None); int(1e18); int('-5'); int('+5'); int('1_0'); float('1.5'); float(' 1.5 '); float('inf'); float('-inf'); float('nan'); float('1e5'); float(True); float(3); float(None); float([1]); bool(0); bool(0.0); bool('')
 :::  ::: bool('a'); bool([]); bool([1]); bool(None); bool((1,)); bool(2.5); bool('False'); str(3); hex(255); hex(-255); hex(0); oct(8); oct(-8); oct(0); bin(5); bin(-5); bin(0); hex('a'); hex(1.5); hex(True); bin(True); oct(1.5); chr(65); chr(0); chr('a'); chr(65.0); ord(1); len(5); len('abc'); len([1, 2]); len(()); len({}); sorted([3, 1, 2]); sorted([3, 1, 2], reverse=True); sorted([3, 1, 2], key=abs); sorted(['b', 'a']); sorted([True, False]); sorted([1.5, 0.5]); sorted([(2, 'a'), (1, 'b')]); sorted('ba')
 :::  ::: sorted((2, 1)); sorted([]); any([0, 1]); all([1, 0]); any(['', 'a']); all(['']); any((True, False)); all((1, 2)); any([1.0]); any([None]); isinstance(1, int); isinstance(True, int); isinstance(1.0, (int, float)); isinstance('a', str); isinstance([1], list); isinstance([1], List[int]); isinstance((1,), tuple); isinstance(None, int); isinstance([1], List[float]); isinstance(1, float); id(1); pow(2, 3); pow(2, -1); pow(2.0, 3); pow(0, 0); pow(0, -1); pow(0.0, -1); pow(-1, 0.5); pow(2, 3, 5); divmod(7, 2); divmod(-7, 2); divmod(7, 0); divmod(7.0, 0); divmod(7.5, 2); divmod('a', 1); map(str, [1]); 1 / 0; 1 // 0; 1.0 / 0; 1.0 // 0
 :::  ::: 1.0 % 0; 1 / 0.0; 0 / 0; 0.0 / 0.0; 0 ** -1; 0.0 ** -1; (-8) ** 0.5; (-8.0) ** (1 / 3); (-2) ** 3; (-2) ** -3; 2 ** 63; 2 ** 64; 2 ** 100; 10 ** 18; 2 ** -1; 2.0 ** 1024; 1 << 62; 1 << 63; 1 << 64; 1 << 100; 1 << -1; 1 >> -1; 1 >> 100; -1 >> 1; -1 >> 100; -5 >> 1; -1 << 3; True << 2; True + True; True * 5; True / 2; True // 2; True % 2; -True; ~True; not True; True & False; True | False; True ^ True; True == 1
 :::  ::: True < 2; 1 & True; 1.5 & 1; 1.5 << 1; ~1.5; 5 // 2.0; -5 // 2; -5 % 3; 5 % -3; -5.5 % 3; 5.5 // -2; 5.5 % -2; -0.0 % 3; 3 % 1e400; float('inf') // 1; float('inf') % 1; 1 % float('inf'); -1 % float('inf'); 1 // float('inf'); -1 // float('inf'); 9223372036854775807 + 1; -9223372036854775808 - 1; 9223372036854775807 * 2; abs(-9223372036854775808); 9223372036854775807; 9223372036854775808; 1e308 * 10; 1e400; 0.1 + 0.2; 1e16 + 1; 5 == 5.0; 5 == '5'; 5 < '5'; [] == []; [1] == [1.0]; [1] == (1,); (1, 2) == (1, 2); (1, 2) == (1, 3); (1,) == (1, 2); (1, 'a') < (2, 'a')
 :::  ::: {} == {}; {1: 2} == {1: 2}; None == None; None is None; None == 1; 1 is 1; 1 is not 2; [1] is [1]; 'a' in 'abc'; '' in ''; 1 in (1, 2); 1 in [1.0]; 'a' in ['a']; 1 in {1: 2}; None in [None]; 1 in 'a'; 1 not in [2]; 1 < 2 < 3; 1 < 2 > 3; 1 and 2; 0 or 5; 1 and True; not 0; not 'a'; not []; not None; True and not False; 1 if True else 2; 1 if 2 else 3; 'a' if True else 1; 1 if 0.5 else 2; 1 if 'a' else 2; None if True else 1; -1.5; -'a'; ~1; ~-1; 0x1F; 1e3; 1E-3
 :::  ::: 1j; 1j * 1j; abs(3+4j); (1+2j) / (0+0j); 1j == 1j; 'a' 'b'; 'a\nb'; '\t'; ''; 'a' < 'b'; 'a' < 'B'; 'abc' < 'abd'; '' < 'a'; 'a' * 0; 'a' * True; 'a' * 1.5; 'a' * 'b'; 'a' + 'b'; 'a' - 'b'; 'a' / 2; 'a' % (); [1] + [2]; [1] + ['a']; [1] + (2,); [1] * 2; [1] * 1.5; [1] - [1]; [1, 2.5]; [1, 'a']; [None, 1]; [[1], [2.5]]; [1, True]; (1, 2) + (3,); (1, 2) * 2; (); (1,); {1: 2, 1: 3}; {'a': 1, 'b': 2.5}; {1: 2}[3]; {1: 2}[1]
 :::  ::: [1, 2][0]; [1, 2][2]; [1, 2][-3]; 'ab'[2]; 'ab'[-3]; (1, 2)[2]; (1, 2)[-3]; 1 @ 2; [1][0][0]; 1[0]; None[0]; None + 1; None < 1; str(None) + 'a'; [None]; [None, None]; (None, None); {1: None}; None.x; None(); 1(); 'a'(); 1 .x; 'a'.x; [1].x; (1,).x; {1: 2}.x; True.x; x; x.y; x(); int; [int]; undefined(1); self; f(); True(); dict(a=1); dict([('a', 1)]); dict([('a', 1), ('a', 2)])
 :::  ::: dict({'a': 1}, b=2); dict(1); list(1); list('ab'); list((1, 2)); list({'a': 1}); list([1]); list(range(3)); list(); tuple((1, 2)); tuple([1]); tuple('ab'); set(); [1, 2, 3][slice(1, 2)]; 'abc'[slice(1)]; [[j for j in range(i)] for i in range(3)]; {i: [i] for i in range(3)}; [*range(3)]; [1, *[2, 3]]; (1, *(2, 3)); 'a' if 1 < 2 else 'b'; 1 if None else 2; (1, 2) if True else (3, 4); [1] if True else []; [] if True else [1]; {} if True else {1: 2}; 1 if True else None; 1 if True else 2.5; 1 if True else 'a'
s: str ::: '-3' ::: len(s); int(s); float(s); bool(s); str(s); s.upper(); s.lower(); s.title(); s.capitalize(); s.swapcase(); s.strip(); s.lstrip(); s.rstrip(); s.split(); s.split(None); s.split('X'); s.rsplit(' '); s.rsplit('X', 1); s.split('X', 1); s.split(' '); s.splitlines(); s.splitlines(True); s.isdigit(); s.isalpha(); s.isalnum(); s.isspace(); s.isupper(); s.islower(); s.istitle(); s.isdecimal(); s.isnumeric(); s.isidentifier(); s.zfill(4); s.zfill(0); s.zfill(-1); s.center(6); s.center(7, '*'); s.ljust(5); s.rjust(5); s.ljust(5, '-')
s: str ::: '-3' ::: s.rjust(5, '-'); s.expandtabs(); s.expandtabs(4); s.expandtabs(0); s.expandtabs(-1); s.find('a'); s.find(''); s.rfind('a'); s.rfind(''); s.find('a', 1); s.find('a', -2); s.find('a', 0, 1); s.find('a', 0, -1); s.find('b', 10); s.rfind('a', 1); s.rfind('a', 0, -2); s.index('a'); s.rindex('a'); s.count('a'); s.count('a', 1); s.count('aa'); s.count('a', 0, -1); s.count('a', -2, 10); s.replace('a', 'bb'); s.replace('a', '', 1); s.replace('a', 'b', 0); s.replace('X','', -1); s.startswith('a'); s.startswith(''); s.endswith('c'); s.endswith(''); s.startswith('b', 1); s.startswith('b', 1, 1); s.startswith('', 10); s.endswith('b', 0, 2); s.endswith('b', 0, -1); s.endswith('', 3, 1); s.partition('X'); s.rpartition('X'); s.partition('zz')
s: str ::: '-3' ::: s.rpartition('zz'); s[0]; s[-1]; s[10]; s[-10]; s[1:]; s[:-1]; s[::-1]; s[::2]; s[-2:]; s[10:]; s[-10:2]; s[2:1]; s[1:10:3]; s * 2; s * 0; s * -1; s + 'z'; s in 'abc'; 'a' in s; '' in s; s == 'abc'; s < 'b'; s > 'b'; s <= 'a'; s != 'a'; ord(s); list(s); [c for c in s]; ','.join([s, s]); s.join(['1', '2', '3']); s.join(['']); '%s' % s; '%d' % s; '%x' % s; '%c' % s; '{}'.format(s); '{} {}'.format(s, 1); sorted([s, 'b']); min(s, 'b')
s: str ::: '-3' ::: max([s, 'b']); min([s, 'b']); {s: 1}; [s].index('abc'); s.casefold(); s.lstrip('a'); s.rstrip('c'); s.strip('ac'); s.strip(''); s.encode(); s.removeprefix('a'); s.isascii(); s.format(); s.format(1); s % 1; not s; s is None; s.index('a', 1); s.index('', 2); s.rindex('', 1); s.index('b', 0, -1); s.rsplit(); s.rsplit(None, 1); s.split(' ', 0); s.split(' ', -1); s.split('a', -2); s.rsplit('a', 0); s.split(',', 1); sorted(s); s.translate({}); ''.join(s); max(s); min(s); len(s) > 2 and s[2] == 'c'; any(s); sum(s)
s: str ::: '' ::: bool(s); str(s); s.capitalize(); s.swapcase(); s.rstrip(); s.split(None); s.rsplit('X', 1); s.split(' '); s.splitlines(); s.isalnum(); s.rjust(5); s.rjust(5, '-'); s.expandtabs(4); s.expandtabs(0); s.find(''); s.rfind('a'); s.rfind(''); s.find('a', -2); s.find('a', 0, 1); s.rfind('a', 1); s.rfind('a', 0, -2); s.count('aa'); s.replace('a', '', 1); s.replace('a', 'b', 0); s.endswith('c'); s.endswith('b', 0, -1); s.endswith('', 3, 1); s[0]; s[-1]; s[-10]; s[::-1]; s[2:1]; s * 2; s * 0; s * -1; s + 'z'; s in 'abc'; s > 'b'; s.join(['']); '%s' % s
s: str ::: '' ::: sorted([s, 'b']); min(s, 'b'); max([s, 'b']); min([s, 'b']); [s].index('abc'); s.casefold(); s.strip(''); s.isascii(); s.index('b', 0, -1); s.translate({}); min(s); len(s) > 2 and s[2] == 'c'
s: str ::: 'aXbXc' ::: len(s); bool(s); str(s); s.upper(); s.lower(); s.title(); s.capitalize(); s.swapcase(); s.strip(); s.lstrip(); s.rstrip(); s.split(); s.split(None); s.split('X'); s.rsplit(' '); s.rsplit('X', 1); s.split('X', 1); s.split(' '); s.splitlines(); s.splitlines(True); s.isdigit(); s.isalpha(); s.isalnum(); s.isspace(); s.isupper(); s.islower(); s.istitle(); s.isdecimal(); s.isnumeric(); s.isidentifier(); s.zfill(4); s.zfill(0); s.zfill(-1); s.center(6); s.center(7, '*'); s.ljust(5); s.rjust(5); s.ljust(5, '-'); s.rjust(5, '-'); s.expandtabs()
s: str ::: 'aXbXc' ::: s.expandtabs(4); s.expandtabs(0); s.expandtabs(-1); s.find('a'); s.find(''); s.rfind('a'); s.rfind(''); s.find('a', 1); s.find('a', -2); s.find('a', 0, 1); s.find('a', 0, -1); s.find('b', 10); s.rfind('a', 1); s.rfind('a', 0, -2); s.index('a'); s.rindex('a'); s.count('a'); s.count('a', 1); s.count('aa'); s.count('a', 0, -1); s.count('a', -2, 10); s.replace('a', 'bb'); s.replace('a', '', 1); s.replace('a', 'b', 0); s.replace('X','', -1); s.startswith('a'); s.startswith(''); s.endswith('c'); s.endswith(''); s.startswith('b', 1); s.startswith('b', 1, 1); s.startswith('', 10); s.endswith('b', 0, 2); s.endswith('b', 0, -1); s.endswith('', 3, 1); s.partition('X'); s.rpartition('X'); s.partition('zz'); s.rpartition('zz'); s[0]
s: str ::: 'aXbXc' ::: s[-1]; s[10]; s[-10]; s[1:]; s[:-1]; s[::-1]; s[::2]; s[-2:]; s[10:]; s[-10:2]; s[2:1]; s[1:10:3]; s * 2; s * 0; s * -1; s + 'z'; s in 'abc'; 'a' in s; '' in s; s == 'abc'; s < 'b'; s > 'b'; s <= 'a'; s != 'a'; ord(s); list(s); [c for c in s]; ','.join([s, s]); s.join(['1', '2', '3']); s.join(['']); '%s' % s; '%d' % s; '%x' % s; '%c' % s; '{}'.format(s); '{} {}'.format(s, 1); sorted([s, 'b']); min(s, 'b'); max([s, 'b']); min([s, 'b'])
s: str ::: 'aXbXc' ::: {s: 1}; [s].index('abc'); s.casefold(); s.lstrip('a'); s.rstrip('c'); s.strip('ac'); s.strip(''); s.encode(); s.removeprefix('a'); s.isascii(); s.format(); s.format(1); s % 1; not s; s is None; s.index('a', 1); s.index('', 2); s.rindex('', 1); s.index('b', 0, -1); s.rsplit(); s.rsplit(None, 1); s.split(' ', 0); s.split(' ', -1); s.split('a', -2); s.rsplit('a', 0); s.split(',', 1); sorted(s); s.translate({}); ''.join(s); max(s); min(s); len(s) > 2 and s[2] == 'c'; any(s); sum(s)
s: str ::: '  a b  c ' ::: bool(s); s.upper(); s.lower(); s.swapcase(); s.strip(); s.split(); s.rsplit('X', 1); s.splitlines(); s.splitlines(True); s.isalpha(); s.isspace(); s.isupper(); s.isnumeric(); s.zfill(4); s.zfill(0); s.center(7, '*'); s.ljust(5); s.rjust(5); s.expandtabs(0); s.rfind('a'); s.find('a', 0, 1); s.find('a', 0, -1); s.index('a'); s.rindex('a'); s.count('aa'); s.count('a', 0, -1); s.count('a', -2, 10); s.replace('a', '', 1); s.replace('a', 'b', 0); s.startswith('a'); s.endswith('c'); s.startswith('b', 1, 1); s.endswith('b', 0, 2); s.endswith('b', 0, -1); s.endswith('', 3, 1); s.rpartition('zz'); s[0]; s[-1]; s[10]; s[-2:]
s: str ::: '  a b  c ' ::: s[10:]; s[-10:2]; s[1:10:3]; s * 2; '' in s; s < 'b'; s != 'a'; ord(s); [c for c in s]; s.join(['']); '%x' % s; min(s, 'b'); min([s, 'b']); [s].index('abc'); s.casefold(); s.encode(); s.format(); s.index('', 2); s.rindex('', 1); s.index('b', 0, -1); s.split(' ', 0); s.split(' ', -1); s.rsplit('a', 0); s.split(',', 1); any(s)
s: str ::: '0x1F' ::: len(s); int(s); bool(s); s.capitalize(); s.swapcase(); s.isdigit(); s.isalnum(); s.isupper(); s.isdecimal(); s.isidentifier(); s.zfill(0); s.zfill(-1); s.center(6); s.ljust(5, '-'); s.expandtabs(); s.expandtabs(0); s.find(''); s.rfind('a'); s.rfind(''); s.find('a', 1); s.find('a', -2); s.find('a', 0, 1); s.rfind('a', 0, -2); s.index('a'); s.count('a', 1); s.count('aa'); s.replace('a', 'bb'); s.endswith('c'); s.partition('X'); s.rpartition('zz'); s[1:]; s[::-1]; s[::2]; s * 0; s * -1; s in 'abc'; s < 'b'; s <= 'a'; s != 'a'; list(s)
s: str ::: '0x1F' ::: [c for c in s]; s.join(['1', '2', '3']); s.join(['']); '%d' % s; '%x' % s; '%c' % s; min([s, 'b']); [s].index('abc'); s.casefold(); s.strip(''); s.removeprefix('a'); s.isascii(); s.format(); s % 1; not s; s.index('a', 1); s.index('', 2); s.rindex('', 1); s.index('b', 0, -1); s.rsplit(None, 1); s.split(' ', 0); s.split('a', -2); ''.join(s); max(s); len(s) > 2 and s[2] == 'c'
l: List[int] ::: [3, 1, 2] ::: len(l); l[0]; l[-1]; l[5]; l[-6]; l[1:]; l[:-1]; l[::2]; l[::-1]; l[-2:]; l[3:1]; l[10:]; l[-10:3]; l[1:4:2]; l[4:0:-1]; l[::-2]; l[:0]; l[::0]; l[-1:-4:-1]; l[10::-1]; l[:10:3]; l + [9]; l * 2; l * 0; 2 * l; l == [1]; l != [1]; l < [2]; 1 in l; 9 not in l; l.index(1); l.index(9); l.count(1); min(l); max(l); sum(l); sorted(l); sorted(l, reverse=True); sorted(l, True); any(l)
l: List[int] ::: [3, 1, 2] ::: all(l); list(l); l.copy(); [x * 2 for x in l]; [a for a in zip(l, [1, 2])]; str(l); '{}'.format(l); l is None; not l; bool(l); list(enumerate(l)); list(zip(l, l)); {x: x for x in l}; tuple(l); map(str, l); list(range(len(l))); float(l); int(l); l.pop(0); l.index(1, 1); l[True]; l[1.0]; l['a']; l[0:2][0]; sum(l, 1); max(l, default=0); len(l) / 2; l[len(l)]; l[-len(l)]; ''.join(l); [x for x in l][1]; [l, l]; (l, 1); l[None:2]; l[1:None]; sum([x for x in l]); max(l, l); min(l, [2]); l @ l; l - l
l: List[int] ::: [3, 1, 2] ::: l and 1; 1 if l else 2; [i for i in l[1:]]; l[0] if len(l) > 0 else -1; l.pop(), l; l.pop(0), l; l.pop(-1), l; l.pop(5), l; l.pop(-5), l
l: List[int] ::: [] ::: len(l); l[0]; l[-1]; l[5]; l[-6]; l[1:]; l[:-1]; l[::2]; l[::-1]; l[-2:]; l[3:1]; l[10:]; l[-10:3]; l[1:4:2]; l[4:0:-1]; l[::-2]; l[:0]; l[::0]; l[-1:-4:-1]; l[10::-1]; l[:10:3]; l + [9]; l * 2; l * 0; l * -1; 2 * l; l == [1]; l != [1]; l < [2]; 1 in l; 9 not in l; l.index(1); l.index(9); l.count(1); min(l); max(l); sum(l); sorted(l); sorted(l, reverse=True); sorted(l, True)
l: List[int] ::: [] ::: any(l); all(l); list(l); l.copy(); [x * 2 for x in l]; [a for a in zip(l, [1, 2])]; str(l); '{}'.format(l); l is None; not l; bool(l); list(enumerate(l)); list(zip(l, l)); {x: x for x in l}; tuple(l); map(str, l); list(range(len(l))); float(l); int(l); l.remove(1); l.pop(0); l.index(1, 1); l[True]; l[1.0]; l['a']; l[0:2][0]; sum(l, 1); max(l, default=0); len(l) / 2; l[len(l)]; l[-len(l)]; ''.join(l); [x for x in l][1]; [l, l]; (l, 1); l[None:2]; l[1:None]; sum([x for x in l]); max(l, l); min(l, [2])
l: List[int] ::: [] ::: l @ l; l - l; l and 1; 1 if l else 2; [i for i in l[1:]]; l[0] if len(l) > 0 else -1; l.pop(), l; l.pop(0), l; l.pop(-1), l; l.pop(5), l; l.pop(-5), l
l: List[float] ::: [1.0, float('nan'), 0.0] ::: l.index(0.0); l.count(0.0); min(l); max(l); sum(l); l == [1.0]; float('nan') in l; str(l); any(l); all(l); sorted(l, reverse=True); l.index(float('nan')); (1.0, l) == (1.0, l); 1 in l; l[0] == l[0]; [l] == [l]; {1: l} == {1: l}; {1.0: 2} == {1: 2}
l: List[str] ::: ['b', 'a'] ::: sorted(l); min(l); max(l); sum(l); ''.join(l); ', '.join(l); 'a' in l; l.index('a'); l.index('z'); l.count('a'); sorted(l, reverse=True); l + ['z']; l == ['b', 'a']; str(l); any(l); all(l); l[0][0]; l[-1:]; l < ['a']; l * 2; l.pop(1), l
l: List[bool] ::: [True, False] ::: any(l); all(l); sum(l); min(l); max(l); sorted(l); l.count(True); l.index(True); True in l; 1 in l; str(l); l == [1]; [int(x) for x in l]; l[0] + 1; l[0] and l[-1]
l: List[List[int]] ::: [[2], [1]] ::: l[0][0]; l[1][5]; l == l; [1] in l; sum(l); max(l); str(l); l + [[3]]
l: List[Tuple[int, str]] ::: [(2, 'a'), (1, 'b'), (1, 'a')] ::: sorted(l); min(l); l[0][1]; (1, 'a') in l; dict(l); sorted(l, reverse=True); max(l); str(l); l == l
t: Tuple[int, str, float] ::: (1, 'a', 2.5) ::: t[0]; t[-1]; t[3]; t[-4]; t[1:]; t[::2]; t[::-1]; t[:-1]; t[5:]; len(t); t + (1,); t * 2; t == t; t == (1, 'a', 2.5); t < t; 1 in t; t.index(1); t.count(1); str(t); tuple(t); sorted(t); min(t); max(t); sum(t); bool(t); not t; t is None; t[0:1][0]; t[1.0]; t['a']; t[True]; [*t]; (*t, 1); t != t
t: Tuple[int, int] ::: (1, 2) ::: t[0] + t[1]; sorted(t); min(t); max(t); sum(t); list(t); [x + 1 for x in t]; t < (1, 3); t > (1, 1); t <= t; t == (1, 2); 1 in t; any(t); all(t); t[::-1]; t + t; (1,) + t; t[0:0]; t[:1]; t.count(1); tuple([1, 2]) == t; divmod(t[0], t[1])
d: Dict[str, int] ::: {'b': 2, 'a': 1, 'c': 3} ::: len(d); d['a']; d['z']; d.get('a'); d.get('z'); d.get('z', 5); d.get('a', 5); d.keys(); d.values(); d.items(); list(d); list(d.keys()); list(d.values()); list(d.items()); sorted(d); sorted(d.keys()); 'a' in d; 'z' not in d; d == {'a': 1}; d != d; str(d); '{}'.format(d); [k for k in d]; [v for v in d.values()]; d.copy(); dict(d); bool(d); not d; d is None; d < d; d + d; d[1]; d.get(1); 1 in d; min(d); max(d.values()); sum(d.values()); len(d.keys()); d.has_key('a'); d.fromkeys(['a'])
d: Dict[str, int] ::: {'b': 2, 'a': 1, 'c': 3} ::: any(d); d | d; d.get('a', 'b'); d.get(); d.pop('a'); d.pop('z'); d.pop('z', 5); d.popitem(); d.setdefault('a', 9); d.setdefault('z', 9); d.setdefault('z'); d.keys()[0]; d.items()[0]; {'x': d}; dict(d.items()); dict(d, z=1); list(enumerate(d)); [a for a in zip(d, d)]; d.pop('a'), d; d.popitem(), d; d.setdefault('z', 9), d
d: Dict[str, int] ::: {} ::: len(d); d['a']; d['z']; d.get('a'); d.get('z'); d.get('z', 5); d.get('a', 5); d.keys(); d.values(); d.items(); list(d); list(d.keys()); list(d.values()); list(d.items()); sorted(d); sorted(d.keys()); 'a' in d; 'z' not in d; d == {'a': 1}; d != d; str(d); '{}'.format(d); [k for k in d]; [v for v in d.values()]; d.copy(); dict(d); bool(d); not d; d is None; d < d; d + d; d[1]; d.get(1); 1 in d; min(d); max(d.values()); sum(d.values()); len(d.keys()); d.has_key('a'); d.fromkeys(['a'])
d: Dict[str, int] ::: {} ::: any(d); d | d; d.get('a', 'b'); d.get(); d.pop('a'); d.pop('z'); d.pop('z', 5); d.popitem(); d.setdefault('a', 9); d.setdefault('z', 9); d.setdefault('z'); d.keys()[0]; d.items()[0]; {'x': d}; dict(d.items()); dict(d, z=1); list(enumerate(d)); [a for a in zip(d, d)]; d.pop('a'), d; d.popitem(), d; d.setdefault('z', 9), d
d: Dict[int, float] ::: {1: 2.5} ::: d[1]; d[True]; d[1.0]; d.get(2); sorted(d); d.keys(); sum(d.values()); d == {1: 2.5}; str(d)
n: Optional[int] ::: None ::: n + 1; n is None; n is not None; n == 3; n == None; n != None; n if n is not None else 0; n or 5; not n; bool(n); int(n); str(n); [n]; n in [3]; (n, 1); n < 3; abs(n); '{}'.format(n); '%s' % n; '%d' % n; [n, 1]; {1: n}; max(n, 1); isinstance(n, int)
n: Optional[int] ::: 3 ::: n + 1; n is None; n is not None; n == 3; n == None; n != None; n if n is not None else 0; n or 5; not n; bool(n); int(n); str(n); [n]; n in [3]; (n, 1); n < 3; abs(n); '{}'.format(n); '%s' % n; '%d' % n; [n, 1]; {1: n}; max(n, 1); isinstance(n, int)
s: Optional[str] ::: None ::: s + 'a'; s == 'a'; s is None; s or 'b'; str(s); '%s' % s
a: int, b: int, c: int ::: 5, 0, -1 ::: [i for i in range(a, b, c)]; len([i for i in range(a, b, c)]); list(range(a, b, c)); sum([i for i in range(a, b, c)]); [i for i in reversed(range(a, b, c))]; a in range(a, b, c)
a: int, b: int, c: int ::: 0, 5, 0 ::: [i for i in range(a, b, c)]; len([i for i in range(a, b, c)]); list(range(a, b, c)); sum([i for i in range(a, b, c)]); [i for i in reversed(range(a, b, c))]; a in range(a, b, c)
"""
OF_MODULES = r"""
n: float, m: float ::: 7.5, 0.0 ::: math.fmod(n, m); math.copysign(n, m); math.atan2(n, m); math.remainder(n, m); math.pow(n, m)
n: float, m: float ::: -7.5, 2.0 ::: math.fmod(n, m); math.copysign(n, m); math.atan2(n, m); math.remainder(n, m); math.pow(n, m)
n: float, m: float ::: 7.5, float('nan') ::: math.fmod(n, m); math.copysign(n, m); math.atan2(n, m); math.remainder(n, m); math.pow(n, m)
n: float, m: float ::: -7.5, float('inf') ::: math.fmod(n, m); math.copysign(n, m); math.atan2(n, m); math.remainder(n, m); math.pow(n, m)
n: int, m: float ::: 7, 0.0 ::: math.fmod(n, m); math.pow(n, m); math.ldexp(m, n)
n: int, m: float ::: -8, 0.5 ::: math.fmod(n, m); math.pow(n, m); math.ldexp(m, n)
n: int ::: -5 ::: math.floor(n); math.ceil(n); math.sqrt(n); math.factorial(n); math.gcd(n, 10); math.gcd(n, 0); math.log(n); math.exp(n); math.isnan(n); math.isfinite(n); math.log10(n); math.fabs(n); math.degrees(n); math.sin(n)
n: int ::: 9223372036854775807 ::: math.ceil(n); math.sqrt(n); math.gcd(n, 10); math.gcd(n, 0); math.log(n); math.exp(n); math.isnan(n); math.isfinite(n); math.log10(n); math.fabs(n); math.degrees(n); math.sin(n)
n: int ::: 21 ::: math.factorial(n)
n: float ::: -0.5 ::: math.floor(n); math.ceil(n); math.sqrt(n); math.log(n); math.log1p(n); math.log10(n); math.exp(n); math.expm1(n); math.sin(n); math.asin(n); math.acos(n); math.atan(n); math.cosh(n); math.sinh(n); math.tanh(n); math.acosh(n); math.asinh(n); math.atanh(n); math.tan(n); math.cos(n); math.erf(n); math.erfc(n); math.fabs(n); math.isnan(n); math.isinf(n); math.isfinite(n); math.modf(n); math.frexp(n); math.degrees(n); math.radians(n); f'{n}'; math.ldexp(n, 3); math.ldexp(n, 2000); math.ldexp(n, -2000); math.log(n, 2); math.log(n, 2.0); math.log(2, n)
n: float ::: 2.5 ::: math.floor(n); math.ceil(n); math.sqrt(n); math.log(n); math.log1p(n); math.log10(n); math.exp(n); math.expm1(n); math.sin(n); math.asin(n); math.acos(n); math.atan(n); math.cosh(n); math.sinh(n); math.tanh(n); math.acosh(n); math.asinh(n); math.atanh(n); math.tan(n); math.cos(n); math.erf(n); math.erfc(n); math.fabs(n); math.isnan(n); math.isinf(n); math.isfinite(n); math.modf(n); math.frexp(n); math.degrees(n); math.radians(n); f'{n}'; math.ldexp(n, 3); math.ldexp(n, 2000); math.ldexp(n, -2000); math.log(n, 2); math.log(n, 2.0); math.log(2, n)
n: float ::: float('inf') ::: math.sqrt(n); math.log(n); math.log1p(n); math.log10(n); math.exp(n); math.expm1(n); math.sin(n); math.asin(n); math.acos(n); math.atan(n); math.cosh(n); math.sinh(n); math.tanh(n); math.acosh(n); math.asinh(n); math.atanh(n); math.tan(n); math.cos(n); math.gamma(n); math.lgamma(n); math.erf(n); math.erfc(n); math.fabs(n); math.isnan(n); math.isinf(n); math.isfinite(n); math.modf(n); math.frexp(n); math.degrees(n); math.radians(n); f'{n}'; math.ldexp(n, 3); math.ldexp(n, 2000); math.ldexp(n, -2000); math.log(n, 2); math.log(n, 2.0); math.log(2, n)
n: float ::: 1e+300 ::: math.sqrt(n); math.log(n); math.log1p(n); math.log10(n); math.exp(n); math.expm1(n); math.sin(n); math.asin(n); math.acos(n); math.atan(n); math.cosh(n); math.sinh(n); math.tanh(n); math.acosh(n); math.asinh(n); math.atanh(n); math.tan(n); math.cos(n); math.gamma(n); math.lgamma(n); math.erf(n); math.erfc(n); math.fabs(n); math.isnan(n); math.isinf(n); math.isfinite(n); math.modf(n); math.frexp(n); math.degrees(n); math.radians(n); f'{n}'; math.ldexp(n, 3); math.ldexp(n, 2000); math.ldexp(n, -2000); math.log(n, 2); math.log(n, 2.0); math.log(2, n)
n: float ::: 123456789.123 ::: math.floor(n); math.ceil(n); math.sqrt(n); math.log(n); math.log1p(n); math.log10(n); math.exp(n); math.expm1(n); math.sin(n); math.asin(n); math.acos(n); math.atan(n); math.cosh(n); math.sinh(n); math.tanh(n); math.acosh(n); math.asinh(n); math.atanh(n); math.tan(n); math.cos(n); math.gamma(n); math.lgamma(n); math.erf(n); math.erfc(n); math.fabs(n); math.isnan(n); math.isinf(n); math.isfinite(n); math.modf(n); math.frexp(n); math.degrees(n); math.radians(n); f'{n}'; math.ldexp(n, 3); math.ldexp(n, 2000); math.ldexp(n, -2000); math.log(n, 2); math.log(n, 2.0); math.log(2, n)
n: float ::: 0.0 ::: math.sqrt(n); math.log(n); math.expm1(n); math.atan(n); math.cosh(n); math.sinh(n); math.tan(n); math.cos(n); math.gamma(n); math.lgamma(n); math.erf(n); math.erfc(n); math.fabs(n); math.modf(n); math.frexp(n); math.degrees(n); math.radians(n); math.ldexp(n, -2000)
n: complex ::: (1+2j) ::: cmath.sqrt(n); cmath.exp(n); cmath.log(n); cmath.phase(n); cmath.isnan(n); cmath.sin(n); cmath.atan(n); cmath.log10(n); cmath.isinf(n); cmath.isfinite(n)
s: str ::: '-3' ::: f'{s}!'; [(i, c) for i, c in enumerate(s)]
s: str ::: 'aXbXc' ::: f'{s}!'; [(i, c) for i, c in enumerate(s)]
s: str ::: '  a b  c ' ::: f'{s}!'
 :::  ::: f'{1.5} {[1.5]} {True} {None}'; r'a\n'; math.pi; math.e; math.inf; math.nan; math.tau; -math.inf; math.inf - math.inf; math.inf == math.inf; math.nan == math.nan; math.nan in [math.nan]; [math.nan] == [math.nan]; (math.nan,) == (math.nan,); math.sqrt(-1); math.sqrt('a'); math.log(0); math.log(-1); math.log(8, 2); math.log(8, 1); math.log(8, 0); math.log(); math.log1p(-1); math.log10(-1); math.exp(1000); math.exp(-1000); math.factorial(-1); math.factorial(20); math.factorial(21); math.factorial(25); math.factorial(2.0); math.gcd(12, 18); math.gcd(0, 0); math.gcd(-4, 6); math.gcd(4); math.gcd(4, 6, 8); math.ldexp(1.0, 10); math.ldexp(1, 10); math.ldexp(1.0, 1024); math.ldexp(1.0, -1075)
 :::  ::: math.fmod(5, 3); math.fmod(-5, 3); math.fmod(5.0, 0.0); math.fmod(float('inf'), 1); math.fmod(1, float('inf')); math.modf(1.5); math.modf(-1.5); math.frexp(8.0); math.frexp(0.0); math.pow(2, 3); math.pow(-8, 1 / 3); math.pow(0, -1); math.pow(0, 0); math.pow(float('inf'), 0); math.acos(2); math.asin(2); math.atanh(1); math.atanh(2); math.acosh(0); math.gamma(0); math.gamma(-1); math.gamma(172); math.lgamma(0); math.lgamma(-1); math.sin(float('inf')); math.copysign(1, -0.0); math.floor(2.5); math.floor(-2.5); math.ceil(2.5); math.ceil(-2.5); math.degrees(math.pi); math.radians(180); math.erf(0.5); math.cosh(1000); math.sinh(1000); math.expm1(1000); math.tan(math.pi / 2); math.fabs(-3); math.remainder(5, 2); math.x
 :::  ::: f'{[1]}'; f'{None}'; f'{1 + 1}'; f'{{}}'
l: List[int] ::: [3, 1, 2] ::: [(i, x) for i, x in enumerate(l)]; [(i, x) for i, x in enumerate(l, 5)]; [a + b for a, b in zip(l, l)]
l: List[int] ::: [] ::: [(i, x) for i, x in enumerate(l)]; [(i, x) for i, x in enumerate(l, 5)]; [(i, x) for i, x in enumerate(l, start=-1)]; [a + b for a, b in zip(l, l)]
l: List[Tuple[int, str]] ::: [(2, 'a'), (1, 'b'), (1, 'a')] ::: {k: v for k, v in l}; [b for a, b in l]
t: Tuple[int, int] ::: (1, 2) ::: [(i, x) for i, x in enumerate(t)]; [a + b for a, b in zip(t, t)]; [a for a, b in zip(t, [5])]
d: Dict[str, int] ::: {'b': 2, 'a': 1, 'c': 3} ::: [(k, v) for k, v in d.items()]; {v: k for k, v in d.items()}; [(i, k) for i, k in enumerate(d)]
d: Dict[str, int] ::: {} ::: [(k, v) for k, v in d.items()]; {v: k for k, v in d.items()}; [(i, k) for i, k in enumerate(d)]
n: Optional[int] ::: None ::: f'{n}'
n: Optional[int] ::: 3 ::: f'{n}'
a: int, b: int, c: int ::: 5, 0, -1 ::: [(i, j) for i, j in enumerate(range(a, b, c))]; [(i, j) for i, j in zip(range(a, b, c), range(3))]
a: int, b: int, c: int ::: 0, 5, 0 ::: [(i, j) for i, j in enumerate(range(a, b, c))]; [(i, j) for i, j in zip(range(a, b, c), range(3))]
"""


def program(line: str, make: str) -> str:
    head, given, expressions = line.split(" ::: ")
    return f"[gives({make}, e, {head!r}, ({given}{',' * bool(given)})) for e in {expressions.split('; ')!r}]"


def rows(table: str) -> list[str]:
    return table.strip().splitlines()


@pytest.mark.parametrize("line", rows(EXPRESSIONS), ids=short)
def test_expression(line: str) -> None:
    check(program(line, "compiled"), SETUP)


@pytest.mark.parametrize("line", rows(OF_MODULES), ids=short)
def test_function_of_a_module(line: str) -> None:
    check(program(line, "scripted"), SETUP)


# Values given for a parameter of each type. The text of a refusal ends with what is Python's own, so its kind is compared.
GIVEN = """
True, 3, 2.5, 2j, None, 'a', np.int64(3), np.float32(2.5), np.float64(2.5), np.bool_(True), Index(), Real(), Truth()
L.tensor(3), L.tensor(2.5), L.tensor([3]), L.tensor([1, 2]), L.tensor(1j), L.float32, 2**63, -2**63, float('nan')
[1], [True], [1.0], (1, 2), (True, 2.0), {}, {'a': True}, {'a'}, range(3), np.array([1, 2]), [np.int64(1)], b'a', 'ab', [[1], (2,)]
"""
CLASSES = """
class Index:
    def __index__(self): return 3
class Real:
    def __float__(self): return 3.5
class Truth:
    def __bool__(self): return True
def taken(kind, value):
    try:
        return repr(compiled("n", "n: " + kind)(value))
    except Exception as problem:
        return type(problem).__name__
"""
KINDS = """
int; float; bool; complex; str; List[int]; List[float]; List[bool]; List[str]; Tuple[int, float]; Dict[str, float]; Union[int, float]
Optional[bool]; List[List[int]]
"""


@pytest.mark.parametrize("values", rows(GIVEN), ids=short)
def test_value_given_for_a_type(values: str) -> None:
    names = [kind for line in rows(KINDS) for kind in line.split("; ")]
    check(
        f"[[taken(kind, value) for value in ({values},) if value is not None or kind[:4] != 'Dict'] for kind in {names!r}]",
        SETUP + CLASSES,
    )


def test_operators_take_the_same_values() -> None:
    check("L.ops.aten.dropout.default(L.ones(2), True, 0), L.ops.aten.std(exact(2, 3), 1), raised(lambda: L.ops.aten.squeeze.dim(L.ones(1), 2.0))")  # fmt: skip

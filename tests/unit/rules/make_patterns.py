#!/usr/bin/env python3
"""Writes patterns.txt: what CPython's re says of some thousands of (pattern, text) pairs.

Usage: python3.12 make_patterns.py > patterns.txt

Deterministic. The texts of a pattern are drawn from the pattern itself (so that many match), then damaged.
Lines of the output; bytes outside 0x21..0x7e, and '%', are written %XX, nothing at all is written %:
  P pattern      a pattern that re.compile accepts
  R pattern      one that it refuses
  + text ...     texts that re.fullmatch matches with the last P
  - text ...     texts that it does not
Left out on purpose, since Octet documents that it differs: \\N{NAME}, group names outside ASCII, repeat counts
above 65535, flag t, back-references under flag i to letters outside ASCII, characters new in Unicode 15.
"""

import random
import re
import sys
import warnings

warnings.simplefilter('ignore')

PATHS = [
    '', 'decoder', 'decoder/layers', 'decoder/layers_0', 'decoder/layers_0/mlp/wi_0', 'decoder/layers_12/mlp/wo',
    'decoder/moe_layers/self_attention/wq_b', 'decoder/moe_layers_3/DeepSeekMoeBlock_0/MoeBlock_0/gate',
    'decoder/dense_layers_1/mlp', 'decoder/decoder_norm', 'decoder/logits_dense', 'xdecoder/layers', 'mtp_block',
    'mtp_block/mtp_layer_1', 'mtp_block/mtp_layer_1/mtp_1_transformer_layer/mlp/wi_0', 'token_embedder',
    'decoder/layers/mlp.gate', 'decoder/layers/mlp/gate_proj', 'Decoder/layers_0', 'decoder/layers\n', 'a', 'aa', 'ab',
    'b', '-', ']', '\n', ' ', 'é', 'ſ', 'K', 'ı', 'İ', '\u2028', '\x1c', '\u180e', '\x85', '५', 'Ⅷ', '𝔘', 'a\nb', '1',
    '_', '\\', '/', '[', 'A', 'Z', 'z', 'ß', 'ẞ', 'σ', 'ς', 'Σ', 'µ', 'μ', 'ﬅ', 'ﬆ',
]

# Patterns that people write for modules; each is tried on all PATHS.
USUAL = [
    '', '.*', '.+', 'decoder/.*layers.*', '(decoder/.*layers.*|mtp_block/.*)', 'mtp_block/.*', 'decoder/.*layerz.*',
    r'decoder/layers_\d+/mlp/w[io](_[01])?', r'.*/(wi_0|wi_1|wo)', r'(?!.*gate).*', r'.*(?<!norm)', r'.*mlp\.gate.*',
    r'(?i)DECODER/.*', r'decoder/(?:dense|moe)_layers(?:_\d+)?(?:/.*)?', r'(?P<block>\w+)/(?P<layer>\w+).*',
    r'^decoder/layers$', r'\Adecoder/layers\Z', r'decoder/layers\Z', r'decoder/layers$', r'(?m)^decoder/layers$',
    r'decoder/[^/]+', r'decoder/[^/]*/[^/]*', r'(?x) decoder / layers _ \d+ # the layers', r'(?s)decoder.layers.',
    r'(?:decoder|mtp_block)(?:/.*)?', r'[\w/]+', r'[^\W\d_]+', r'\w', r'\W', r'\d', r'\D', r'\s', r'\S', '.', '(?s).',
    r'[\s]', r'[\S]', r'[^\s]', r'[^\S]', r'[\d]', r'[^\d]', r'[\w]', r'[^\w]', r'(?a)\w', r'(?a)\W', r'(?a)\d', r'(?a)\s',
    r'(?a)\S', r'(?a)[\s\d]', r'(?a)[^\W]', r'(?i)k', r'(?i)s', r'(?i)i', r'(?i)[i]', r'(?i)[^i]', r'(?i)[h-j]', '(?i)ß',
    r'(?ai)k', r'(?ai)[a-z]', r'(?ai)[^a-z]', r'(?ai)s', '(?i)σ', '(?i)µ', '(?i)ﬅ', r'(?i)[\u0130]', r'(?i:a)', r'(?i)(?-i:a)',
    r'(?i)(?a:k)', r'(?a:\w)', r'(?a)(?u:\w)', r'[\]]', r'[]]', r'[^]]', r'[-]', r'[a-]', r'[\-a]', r'[[]', r'[[:alpha:]]',
    r'\b', r'\B', r'a\b', r'a\B', r'\ba', r'\Ba', r'(?a)\b.*', r'(?a)\B.*', r'.*\b', r'.*\B', r'\n', r'$', '^', r'\Z', r'a$',
    r'a\Z', r'(?m)a$', r'(?m)$\n', r'(?m)\n^', r'a$\n?', r'\x61', r'\u0061', r'\U00000061', r'\141', r'\0', r'\07', r'\a\f',
    r'\v', r'[\v]', r'[\b]', r'[\141]', r'[\07]', r'\ud800', r'[\ud800-\udfff]', r'[^\ud800]', r'[\ud7ff-\ue000]', r'[\0-\U0010ffff]',
]

# Syntax: what must be refused, or is close to it.
EDGES = r"""
* + ? {1} a** a++ a+* a?? a*? a*?? a++? a{2}{3} a{2}? a{2}+ a{2}?? a{2}++ (?:a*)* (a*)* (a+)+ a{ a{} a{1 a{1, a{1,} a{,}
a{,2} a{,2}? a{2,1} a{1,2 a{1,2}} a{1,2}{ {a {} }{ } {1,2} ({) (*) (+) (?) (|*) a|* (a|*) (?:)* (?:)+ ()* ()+ (?#c)* a(?#c)*
(?#c (?#c) (?#\)) a(?#x)b (?# ( (?: (?P (?P< (?P<a (?P<a> (?P<a>) (?P<a>x (?P<a>x) (?P<>x) (?P<1>x) (?P<a-b>x) (?P<a>x)(?P<a>y)
(?P<a>x)(?P=a) (?P=a) (?P=) (?P=a (?P<a>(?P=a)) (?P>a) (?Pa) (?P!a) (?P'a'x) (?<a>x) (?<ax) (?'a'x) (?&a) (?R) (?0) (?1) (?+1) (?-1)
(?|a|b) (?C) (?C1) (?^i:a) (?~a) (?X) (?^) (?J) (?n:a) (?xx)a (?U)a (?i)a a(?i) (?i)(?m)a (?i)a|b a|(?i)b ((?i)a) (?i)|a (?#c)(?i)a (?i)*
(?:)(?i)a (?i:a)b (?i-s:a) (?-i:a) (?-i) (?-:a) (?i-:a) (?i-i:a) (?i (?i: (?iz:a) (?z:a) (?a)a (?u)a (?au)a (?a)(?u)a (?L)a (?L:a)
(?a:a) (?u:a) (?au:a) (?-a:a) (?-u:a) (?-L:a) (?i-a:a) (?ii)a (?imsx)a (?imsx:a) (?-imsx:a) (?i-msx:a) (?i)(?-i:a)b (?mm:a) (?i;a)
(?=a)a (?!b)a (?=a) (?! (?=a (?<=a) (?<!a) (?<=a)b a(?<=a)b a(?<!a)b a(?<=a|b)b a(?<=a|bc)b (?<=a*) (?<=a+)b (?<=a?)b (?<=a{2})b aa(?<=a{2})b
(?<=a{1,2})b (?<=(?:ab|cd))x ab(?<=(?:ab|cd))x (?<=(?:ab|c))x (?<=)a (?<!)a (?<=^)a (?<=\b)a (?<=$)a (a)(?<=\1)b (a|b)(?<=\1)b (a|bc)(?<=\1)b
(?<=(a))\1 a(?<=(a))\1 (?<=(a)\1)b (?<=(?P<x>a)(?P=x)) (?<=(?(1)a|b))(c) (a)(?<=(?(1)a|b)) (a)?(?<=(?(1)a|b)) (a)?b(?<=(?(1)b|b)) (?<=(?=a))a (?<=(?<=a)b)c
ab(?<=(?<=a)b)c (?<=a(?=b))b a(?<=a(?=b))b (?=a)* (?=a)*a (?!a)+b (?<=a)*b a(?<=a)*b (?=a){2}a (?=a)?b (?=(a))*\1 (?=(a))+\1 (?=(a))+a\1 ^* $* \b* \A* \Z+ \B?
(?>a) (?>a*)a (?>a|ab)c (?>ab|a)c a*+a a*+b a?+a a?+ab a{1,2}+a a{1,2}+ (?:ab)*+ (?:a|ab)++c (a*+)b (?>(a+))b (?>) (?>a)? (?>a (?> (a)\1 (a)\2 \1 \1(a) (a\1) (a)(\1)
(a)(b)\2\1 (a)\10 (a)\01 \8 \9 \08 \18 \80 \400 \377 \477 \177 (a)\1{2} (a)\1* (a)(?(1)b) (a)?(?(1)b) (a)?(?(1)b|c) (a)?(?(1)b|c|d) (?(1)a|b) (?(2)a|b)(c) (?(1)a|b)(c)
(?(0)a) (?(01)a|b)(c) (?(99999999999)a) (?(a)b) (?(a (?( (?() (?(P<a>)b) (?P<a>x)?(?(a)b|c) (?P<a>x)?(?(b)b|c) (?(<a>)b) (?('a')b) (?(R)a) (?(R1)a) (?(DEFINE)a) (?(?=a)b|c) (?(VERSION>=10)a)
(?(-1)a) (?(+1)a) (a)(?(1)) (a)?(?(1)|b) (a)?(?(1)b|) ((?(1)a|b)) (a(?(1)b|c)) (a)?(?(1)(b)|(c))\2 (?(1)a*|b)(c)
[ [] [] [^ [^] [^]] [a [a- [a-] [a-z [z-a] [a-a] [\d-z] [a-\d] [\d-] [\w-\s] [a-z-9] [a--] [--a] [+--] [a-\]] [\]-a] [\a-\f] [\x] [\x1] [\x61] [\u006] [\u0061] [\U00000061] [\U00110000]
[\N] [\q] [\A] [\B] [\Z] [\z] [\E] [\Q] [\R] [\p{L}] [\8] [\9] [\1] [\18] [\400] [\377] [\400-\777] [^\n] [^-a] [^^] [\^a] [a^] [&&] [a&&b] [a||b] [a~~b] [[a]] [[:digit:]] [:alpha:] [[.a.]] [[=a=]]
[\d\D] [^\d\D] [\s\S] [\w\W] [^\s\S] [^\w\W] [.] [$] [*] [(] [|] [{}] [#] [\\] [\/] [\'] []-a] []-^] [^]-a]
\ \\ \\\ \a \b \c \d \e \f \g \h \i \j \k \l \m \n \o \p \q \r \s \t \u \v \w \x \y \z \A \B \C \D \E \F \G \H \I \J \K \L \M \O \P \Q \R \S \T \U \V \W \X \Y \Z
\Qa*\E \Ka a\Kb \Ga \ha \Ra \Xa \pL \p{L} \P{L} \p{Lu} \ca \cA \c[ \e \o{61} \x{61} \x{} \x6 \x6g \x061 \u061 \u{61} \U0000006 \U0001f600 \U00110000 \UFFFFFFFF \g{1} \g1 \g<1> \g{-1} (a)\g{1} \k<a> \k'a' \k{a} (?P<k>a)\k<k>
\- \/ \. \* \+ \? \( \) \[ \] \{ \} \| \^ \$ \# \! \" \' \% \& \, \: \; \< \= \> \@ \_ \` \~
(*UTF)a (*UCP)a (*ACCEPT) (*FAIL) (*F) (*COMMIT) (*PRUNE) (*SKIP) (*THEN) (*LIMIT_MATCH=1)a (*NO_JIT)a (*CRLF)a (*ANYCRLF)a (*BSR_ANYCRLF)a (*pla:a) (*atomic:a) (*napla:a) (*script_run:a) (*sr:a) (*positive_lookahead:a) (?*a) (?<*a)
) () (()) (()( a) a)b (a (a)b) (( )) | || a| |a a||b (|) (|a) (a|) (a||b) ^ ^^ $$ ^$ $^ ^a^ $a$ a^b a$b a^* (?:^)* (^)* (^a)* (?:$)? (?:\b)* (\b)*a (?:(?=a))*a
(?x)a(?#c)b (?x)a*? (?x)[#] (?x)\# (?x)a# (?x)#a (?x)(?-x:a) (?x:a) (?x)a{2} (?x)a{2,} (?x:a#)b) (?x)a#\)
(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)\10 (a)(a)(a)(a)(a)(a)(a)(a)(a)(a)\11 (a)(a)(a)(a)(a)(a)(a)(a)(a)(a)\100 (?:(?:(?:a)))* (((a))) ((a)|(b))* ((a)|b)*\2 (?:(a)|b)*\1 (a*)*\1 (a?)*\1b (a|ab)(c|bcd)(d*)
(a|b)*? (a|b)+?b (?:a?)*?b (?:a?)+b (?:a*)+?b (?:|a)+b (?:|a)*b (?:a|)+b (|a)+b (|a)*?b (a|)*+b (?:a??)*b (a*?)*b (a?){3}b (a??){3}b (?:a?){0,3}?b (){3}b (){0,3}b\1 (a){0}b (a){0}b\1 (?:a){0}
""".split('\n')

SPACED = [
    '(?x) a', '(?x)a b', '(?x)a *', '(?x)a * ?', '(?x)a {2}', '(?x)a{ 2}', '(?x)[ a]', '(?x)[a b]+', '(?x)a\\ b', '(?x) (?i)a', ' (?x)a',
    '(?x)a # c\n b', '(?x)# c', '(?x)a(? :b)', '(?x)( ?:b)', '(?x) \t\v\f\r\n a', '(?x)a\u2028', '(?x:a b) c', '(?x:a b)(?-x: c)',
    '(?x)a#\\\nb', '(?x)a#b\\', '(?x)(?# c ) a', '(?x)\\x 61', '(?x)a | b', '(?x)^ a $', '(?x) * a', '(?x)(?P< n >a)', '(?x)(?P<n> a ) (?P=n)',
    '(?# a b )a', 'a b', ' ', '  +', '[ ]', '(?P<a b>c)', '(?(1 )a)(b)', '(?x)#(\na', '(?x)#\na#\nb', '(?-x:(?x: a b ) c)', '(?x)a|b #c\n|c d',
]

ALPHABET = 'ab'


class Grammar:
    """A random pattern together with a way to draw texts that it may match."""

    def __init__(self, rng):
        self.rng = rng
        self.groups = 0
        self.closed = []

    def pattern(self):
        prefix = self.rng.choice([''] * 8 + ['(?i)', '(?s)', '(?m)', '(?a)', '(?ai)', '(?x)'])
        body, draw = self.alternatives(self.rng.randint(1, 3))
        return prefix + body, draw

    def alternatives(self, depth):
        branches = [self.sequence(depth) for _ in range(self.rng.choice([1, 1, 1, 2, 2, 3]))]
        return '|'.join(b for b, _ in branches), lambda: self.rng.choice(branches)[1]()

    def sequence(self, depth):
        items = [self.quantified(depth) for _ in range(self.rng.choice([0, 1, 1, 2, 2, 3, 4]))]
        return ''.join(i for i, _ in items), lambda: ''.join(d() for _, d in items)

    def quantified(self, depth):
        text, draw, repeatable = self.atom(depth)
        if not repeatable or self.rng.random() < .6:
            return text, draw
        low, high = self.rng.choice([(0, 1), (0, 3), (1, 3), (2, 2), (1, 2), (0, 2), (0, 0), (2, 3)])
        mark = {(0, 1): '?', (0, 3): '*', (1, 3): '+', (2, 2): '{2}', (1, 2): '{1,2}', (0, 2): '{,2}', (0, 0): '{0}',
                (2, 3): '{2,}'}[low, high]
        return text + mark + self.rng.choice(['', '', '', '?', '+']), lambda: ''.join(
            draw() for _ in range(self.rng.randint(low, high)))

    def atom(self, depth):
        kind = self.rng.random()
        if depth and kind < .3:
            return self.group(depth - 1)
        if kind < .65:
            c = self.rng.choice(ALPHABET)
            return c, lambda: c, True
        if kind < .8:
            return self.char_class()
        if kind < .9:
            return self.escape()
        if kind < .95 and self.closed:
            n = self.rng.choice(self.closed)
            return '\\%d' % n, lambda: self.rng.choice(ALPHABET), True
        mark = self.rng.choice(['^', '$', r'\b', r'\B', r'\A', r'\Z'])
        return mark, lambda: '', False

    def char_class(self):
        members = [self.rng.choice(['a', 'b', 'a-b', 'A-Z', r'\d', r'\w', r'\s', '/', r'\n', '0-9', '-', r'\D', r'\W', r'\S', '_',
                                    r'\x41', 'é', r'\u0130', 'k'])
                   for _ in range(self.rng.randint(1, 3))]
        members.sort(key=lambda m: m != '-')
        return '[' + self.rng.choice(['', '', '^']) + ''.join(members) + ']', lambda: self.rng.choice('abA1_ /\né-'), True

    def escape(self):
        text, draws = self.rng.choice([('.', 'ab\n/'), (r'\w', 'a1_é'), (r'\d', '15५'), (r'\s', ' \n\x1c'), (r'\W', '/ \n'),
                                       (r'\D', 'a/'), (r'\S', 'a/'), (r'\x61', 'a'), (r'\n', '\n'), (r'\/', '/'), ('/', '/'),
                                       ('A', 'Aa'), ('é', 'éÉ')])
        return text, lambda: self.rng.choice(draws), True

    def group(self, depth):
        kind = self.rng.choice(['(', '(', '(', '(?:', '(?:', '(?>', '(?=', '(?!', '(?<=', '(?<!', '(?i:', '(?-i:', '(?s:', '(?P<', '(?('])
        number = None
        if kind == '(?(':
            if not self.groups:
                kind = '(?:'
            else:
                n = self.rng.randint(1, self.groups)
                yes, no = self.sequence(depth), self.sequence(depth)
                return '(?(%d)%s|%s)' % (n, yes[0], no[0]), lambda: self.rng.choice([yes, no])[1](), True
        if kind in ('(', '(?P<'):
            self.groups += 1
            number = self.groups
            if kind == '(?P<':
                kind = '(?P<n%d>' % number
        if kind.startswith('(?<'):
            body = ''.join(self.rng.choice(['a', 'b', '[ab]', '.', r'\w']) for _ in range(self.rng.randint(0, 2)))
            return kind + body + ')', lambda: '', True
        body, draw = self.alternatives(depth)
        if number:
            self.closed.append(number)
        if kind in ('(?=', '(?!'):
            return kind + body + ')', lambda: '', True
        return kind + body + ')', draw, True


SOUP = ['a', 'b', '*', '+', '?', '{', '}', '{2}', '{1,2}', '{,2}', ',', '1', '(', ')', '(?:', '(?=', '(?!', '(?<=', '(?<!', '(?>', '(?P<x>',
        '(?P=x)', '(?P<y>', '(?P=y)', '(?(1)', '(?(x)', '(?i)', '(?x)', '(?i:', '(?-i:', '(?a:', '(?#', '|', '[', ']', '[^', '-', '^', '$', '.',
        '\\', '\\\\', '\\b', '\\B', '\\A', '\\Z', '\\d', '\\W', '\\s', '\\1', '\\2', '\\0', '\\12', '\\x61', '\\u0061', '\\n', '#', ' ', '\n', ':',
        '=', '!', '<', '>', 'P', 'é', '/']


def damage(rng, text):
    text = list(text)
    for _ in range(rng.randint(1, 2)):
        at = rng.randint(0, len(text))
        what = rng.randint(0, 2)
        if what == 0:
            text.insert(at, rng.choice('abA1/\n_ é'))
        elif what == 1 and text:
            text.pop(at % len(text))
        elif text:
            text[at % len(text)] = rng.choice('abAB1/\n_ ')
    return ''.join(text)


def texts_of(rng, draw):
    out = {'', 'a'}
    for _ in range(3):
        text = draw()[:14]
        out |= {text, damage(rng, text), text + '\n' if rng.random() < .2 else text}
    out.add(''.join(rng.choice('ab') for _ in range(rng.randint(1, 6))))
    return sorted(out)


def cases(seed, random_patterns, soups):
    rng = random.Random(seed)
    for pattern in USUAL:
        yield pattern, PATHS
    for pattern in [p for line in EDGES for p in line.split()] + SPACED:
        yield pattern, ['', 'a', 'b', 'c', 'aa', 'ab', 'ba', 'aab', 'abc', 'abx', 'aaab', 'aac', 'bb', 'b\n', 'a\nb', ']', '-', '^', '{', '{}', 'a{',
                        'a{1', 'a{1,', 'a{ 2}', 'a{}', '}', '}{', ' ', 'x', 'xx', 'A', '1', '8', '\\', '\x01', '\x08', '#', 'a#', 'q', 'd', '(', 'ac',
                        'aab\n', 'cb', 'a1', 'é', 'aaaaaaaaaaa', 'aaaaaaaaaa@', 'aaaaaaaaaaaa', 'abab', 'z', '&', ':', '[']
    for _ in range(random_patterns):
        grammar = Grammar(rng)
        pattern, draw = grammar.pattern()
        if len(pattern) < 60:
            yield pattern, texts_of(rng, draw)
    for _ in range(soups):
        pattern = ''.join(rng.choice(SOUP) for _ in range(rng.randint(1, 7)))
        yield pattern, ['', 'a', 'ab', 'b', 'aa', 'aab', '/', 'a\n']


def compiled(pattern):
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, ValueError):
        return None


def encode(text):
    return ''.join(chr(b) if 0x21 <= b <= 0x7e and b != 0x25 else '%%%02X' % b for b in text.encode()) or '%'


def main():
    if sys.version_info[:2] != (3, 12):
        sys.exit('patterns.txt is defined by CPython 3.12')
    seen = set()
    for pattern, texts in cases(20240, 700, 900):
        if pattern in seen:
            continue
        seen.add(pattern)
        code = compiled(pattern)
        print('P' if code else 'R', encode(pattern))
        if code:
            for mark, wanted in ('+', True), ('-', False):
                listed = [encode(text) for text in texts if bool(code.fullmatch(text)) == wanted]
                if listed:
                    print(mark, *listed)


if __name__ == '__main__':
    main()

"""The whole idea in one file: a language-model agent from nothing but numpy.

    python -m tinyllm.pico "What is 4871 * 209?"

Read it from top to bottom; the data flows the same way. A text becomes token ids (1),
ids become logits (2), a cache makes that cheap (3), one token is picked (4), a grammar
says which tokens are legal (5), and a loop of thought, call and observation solves a
task (6). The file loads the weights that the package ships and imports nothing else
of it. The package adds speed, types, helpful errors, a limit for the context and
exactness bit for bit; tests/test_pico.py proves that both do the same.

Shapes: T new tokens, S positions held in the cache, D model width, H query heads, K
key/value heads, E head width, F hidden width, V vocabulary.

Next: engine.
"""

import ast
import inspect
import json
import sys
from collections import namedtuple
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import pairwise
from operator import add, mul, neg, sub, truediv
from pathlib import Path

import numpy as np
import regex

BOS, EOS, N_SPECIAL = 1, 2, 3  # ids 0 to 2 are special; then come the 256 bytes

# config: sizes. weights: float32 arrays by name. merges: pair of ids -> the id of both,
# in the order learned. tokens: the bytes of each id, b"" for a special one.
Model = namedtuple("Model", "config weights merges tokens")


def load(folder=Path(__file__).parent / "embedded" / "agent"):
    """Return the model in a folder: config.json, tokenizer.json, model.safetensors."""
    config = json.loads((folder / "config.json").read_bytes())
    vocabulary = json.loads((folder / "tokenizer.json").read_bytes())["model"]
    data = (folder / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")  # a length, a JSON header, numbers
    header = json.loads(data[8:start])
    weights = {}
    for name in header.keys() - {"__metadata__"}:
        place = slice(*(start + offset for offset in header[name]["data_offsets"]))
        array = np.frombuffer(data[place], np.float16).astype(np.float32)
        weights[name] = array.reshape(header[name]["shape"])
    ids = vocabulary["vocab"]
    merges = {(ids[a], ids[b]): ids[a + b] for a, b in vocabulary["merges"]}
    tokens = [b""] * N_SPECIAL + [bytes([b]) for b in range(256)]
    for a, b in merges:
        tokens.append(tokens[a] + tokens[b])
    return Model(config, weights, merges, tuple(tokens))


# 1. Tokens: text → ids → text

# Each digit alone; then GPT-2's pattern: contractions, words, other signs, white space.
WORD = r"\p{N}|'(s|t|re|ve|m|ll|d)| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"


def encode(text, merges):
    """Return the ids of a text: its bytes, merged pair by pair in the order learned."""
    ids = []
    for word in regex.finditer(WORD, text):
        part = [N_SPECIAL + b for b in word[0].encode()]
        while found := [pair for pair in pairwise(part) if pair in merges]:
            i = list(pairwise(part)).index(min(found, key=merges.get))  # learned first
            part[i : i + 2] = [merges[tuple(part[i : i + 2])]]
        ids += part
    return ids


def decode(ids, tokens):
    """Return the text of ids."""
    return b"".join(tokens[i] for i in ids).decode("utf-8", errors="replace")


# 2. The forward pass: ids → logits


def rms_norm(x, weight, eps):
    """Return the rows of x (T, D) divided by their root mean square, times a weight."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight  # (T, D)


def rope(x, positions, theta):
    """Return heads (H, T, E) with each pair of numbers turned by its position."""
    half = x.shape[-1] // 2
    angles = np.outer(positions, theta ** (-np.arange(half) / half))  # (T, E/2)
    cos, sin = np.cos(angles, dtype=np.float32), np.sin(angles, dtype=np.float32)
    a, b = x[..., :half], x[..., half:]  # (H, T, E/2)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)  # (H, T, E)


def softmax(x):
    """Return probabilities: positive numbers whose sum along the last axis is 1."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v):
    """Return what each of the T rows of q (H, T, E) reads in k and v (K, S, E)."""
    k, v = (x.repeat(len(q) // len(x), 0) for x in (k, v))  # (H, S, E): heads share
    scores = q @ k.swapaxes(1, 2) / np.float32(q.shape[-1] ** 0.5)  # (H, T, S)
    future = np.triu(np.ones(scores.shape[1:], bool), k.shape[1] - q.shape[1] + 1)
    return softmax(np.where(future, np.float32(-np.inf), scores)) @ v  # (H, T, E)


def swiglu(x, gate, up, down):
    """Return the MLP of x (T, D): silu(x gate) times (x up), then down again."""
    g = x @ gate.T  # (T, F)
    return (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T  # (T, D)


def layer(x, model, cache, i):
    """Return x (T, D) after layer i; the keys and values of its rows join the cache."""
    c, w = model.config, lambda name: model.weights[f"model.layers.{i}.{name}.weight"]
    h = rms_norm(x, w("input_layernorm"), c["rms_norm_eps"])  # (T, D)
    qkv = [h @ w(f"self_attn.{name}_proj").T for name in "qkv"]  # (T, H E), (T, K E)
    q, k, v = (x.reshape(len(x), -1, c["head_dim"]).swapaxes(0, 1) for x in qkv)
    positions = np.arange(len(x)) + cache.kv[i].shape[2]  # (T,)
    q, k = (rope(x, positions, c["rope_theta"]) for x in (q, k))  # (H or K, T, E)
    cache.kv[i] = np.concatenate([cache.kv[i], np.stack([k, v])], 2)  # (2, K, S, E)
    read = attention(q, *cache.kv[i]).swapaxes(0, 1).reshape(len(x), -1)  # (T, H E)
    x = x + read @ w("self_attn.o_proj").T  # (T, D)
    h = rms_norm(x, w("post_attention_layernorm"), c["rms_norm_eps"])  # (T, D)
    return x + swiglu(h, w("mlp.gate_proj"), w("mlp.up_proj"), w("mlp.down_proj"))


def forward(ids, model, cache):
    """Return logits (T, V) after each of the ids, which follow those in the cache."""
    x = model.weights["model.embed_tokens.weight"][ids]  # (T, D)
    for i in range(model.config["num_hidden_layers"]):
        x = layer(x, model, cache, i)
    cache.ids += ids
    x = rms_norm(x, model.weights["model.norm.weight"], model.config["rms_norm_eps"])
    return x @ model.weights["model.embed_tokens.weight"].T  # (T, V)


# 3. The cache: keys and values of the ids so far


class Cache:
    """The ids that went through, and the keys and values (2, K, S, E) of each layer."""

    def __init__(self, model):
        c = model.config
        empty = np.zeros((2, c["num_key_value_heads"], 0, c["head_dim"]), np.float32)
        self.ids, self.kv = [], [empty] * c["num_hidden_layers"]


def rewind(cache, n):
    """Keep the first n positions."""
    cache.ids, cache.kv = cache.ids[:n], [kv[:, :, :n] for kv in cache.kv]


def feed(ids, model, cache):
    """Return logits (V,) after a whole transcript; only what is new is forwarded."""
    # The longest common beginning, but at least one id goes through the model.
    rewind(cache, max(n for n in range(len(ids)) if ids[:n] == cache.ids[:n]))
    return forward(ids[len(cache.ids) :], model, cache)[-1]  # (V,)


# 4. The sampler: logits → one id


def top_p(p, limit):
    """Return how many of the sorted probabilities it takes to reach the limit."""
    return 1 + int((np.cumsum(p)[:-1] < limit).sum())


def draw(p, number):
    """Return the index on whose part of the line a number from 0 to 1 falls."""
    line = np.cumsum(p)
    return int(np.searchsorted(line, number * line[-1], side="right"))


def pick(logits, number=0.0, temperature=0.0, limit=1.0):
    """Return an id: the likeliest at temperature 0, else one drawn by the number."""
    if temperature < 0.01:
        return int(logits.argmax())
    p = softmax(logits / temperature)  # (V,)
    order = np.argsort(-p, kind="stable")  # (V,): the likeliest first
    return int(order[draw(p[order][: top_p(p[order], limit)], number)])


# 5. The grammar: which ids are legal

# An expression is a value: ("byte", allowed), ("then", a, b), ("either", options) or
# ("star", body). A state of the grammar is the expression that may still follow.
# NOTHING has no text at all, EMPTY only the empty one: nothing, repeated no times.
NOTHING, EMPTY = ("either", frozenset()), ("star", ("either", frozenset()))


def then(a, b):
    """Return the expression of a followed by b."""
    if NOTHING in (a, b):
        return NOTHING
    return b if a == EMPTY else a if b == EMPTY else ("then", a, b)


def either(*options):
    """Return the expression of any one option; equal ones count once, NOTHING never."""
    sets = (option[1] if option[0] == "either" else {option} for option in options)
    found = frozenset().union(*sets)
    return next(iter(found)) if len(found) == 1 else ("either", found)


def sequence(*parts):
    """Return the parts one after the other; a str stands for its own bytes."""
    parts = [ranges(p.encode().hex(" ")) if isinstance(p, str) else p for p in parts]
    return reduce(lambda tail, part: then(part, tail), reversed(parts), EMPTY)


def maybe(*parts):
    """Return the sequence of the parts, or the empty text."""
    return either(sequence(*parts), EMPTY)


@lru_cache(2**16)
def least(e):
    """Return how many bytes the shortest text of the expression has."""
    if e[0] == "then":
        return least(e[1]) + least(e[2])
    return min(map(least, e[1])) if e[0] == "either" else int(e[0] == "byte")


def ends(e):
    """Return whether the empty text belongs to the expression: the text may end."""
    return least(e) == 0


@lru_cache(2**16)
def derive(e, b):
    """Return what may follow the byte b, NOTHING if b is illegal (Brzozowski 1964)."""
    if e[0] == "byte":
        return EMPTY if b in e[1] else NOTHING
    if e[0] == "either":
        return either(*(derive(option, b) for option in e[1]))
    if e[0] == "star":
        return then(derive(e[1], b), e)
    # a then b: b may begin where a may end
    skipped = derive(e[2], b) if ends(e[1]) else NOTHING
    return either(then(derive(e[1], b), e[2]), skipped)


def ranges(text):
    """Return the expression of bytes in hex: ranges("c2-df 80-bf | 41") is é or A."""

    def allowed(part):
        spans = (bytes.fromhex(span[:2] + span[-2:]) for span in part.split(","))
        return ("byte", frozenset(b for a, z in spans for b in range(a, z + 1)))

    return either(*(sequence(*map(allowed, o.split())) for o in text.split("|")))


# JSON (RFC 8259). A character is UTF-8 or an escape; surrogates come as a pair of them.
# h stands for a hex digit, t for a byte within a UTF-8 character.
CHARACTER = """
    20-21,23-5b,5d-7f | c2-df t | e0 a0-bf t | e1-ec,ee-ef t t | ed 80-9f t |
    f0 90-bf t t | f1-f3 t t t | f4 80-8f t t | 5c 22,2f,5c,62,66,6e,72,74 |
    5c 75 30-39,41-43,45-46,61-63,65-66 h h h | 5c 75 44,64 30-37 h h |
    5c 75 44,64 38-39,41-42,61-62 h h 5c 75 44,64 43-46,63-66 h h
""".replace("h", "30-39,41-46,61-66").replace("t", "80-bf")
STRING = sequence('"', ("star", ranges(CHARACTER)), '"')
DIGIT, ONE_TO_NINE, SIGN = ranges("30-39"), ranges("31-39"), ranges("2b,2d")
INTEGER = sequence(
    maybe("-"), either(sequence("0"), then(ONE_TO_NINE, ("star", DIGIT)))
)
WHOLE = either(sequence("0"), sequence(ONE_TO_NINE, *[maybe(DIGIT)] * 19))
POWER = either(sequence(DIGIT, maybe(DIGIT)), sequence(ranges("30-31"), DIGIT, DIGIT))
EXPONENT = sequence(ranges("45,65"), maybe(SIGN), POWER)  # finite in a double
NUMBER = sequence(
    maybe("-"), WHOLE, maybe(".", DIGIT, ("star", DIGIT)), maybe(EXPONENT)
)
BOOLEAN = either(sequence("true"), sequence("false"))
VALUES = {str: STRING, int: INTEGER, float: NUMBER, bool: BOOLEAN}


def arguments(tool):
    """Return (name, type, required) of each argument of a function."""
    found = inspect.signature(tool, eval_str=True).parameters.values()
    return [(p.name, p.annotation, p.default is p.empty) for p in found]


def members(args, comma=""):
    """Return the members of an object in order; one that is not required may lack."""
    if not args:
        return EMPTY
    (name, kind, required), *rest = args
    here = sequence(f'{comma}"{name}":', VALUES[kind], members(rest, ","))
    return here if required else either(here, members(rest, comma))


def call(name, tool):
    """Return the expression of a call of one tool: {"tool":name,"args":{…}}."""
    return sequence(f'{{"tool":"{name}","args":{{', members(arguments(tool)), "}}")


@lru_cache(512)
def mask(e, tokens):
    """Return which tokens are legal (V,): try each one, byte by byte."""
    legal = [bool(data) and reduce(derive, data, e) != NOTHING for data in tokens]
    legal[EOS] = ends(e)
    return np.array(legal)


def shortest(e, tokens):
    """Return the fewest ids that complete the text: a search in breadth."""
    found, seen = [(e, [])], {e}
    for state, ids in found:  # which grows on the way
        if ends(state):
            return ids
        for i in np.flatnonzero(mask(state, tokens)).tolist():
            if (after := reduce(derive, tokens[i], state)) not in seen:
                seen.add(after)
                found.append((after, [*ids, i]))


# 6. The agent: thought, call, observation, again

# Tokens of a thought, tokens of a call, characters of an observation, steps.
THOUGHT_LIMIT, CALL_LIMIT, LONGEST, MAX_STEPS = 24, 96, 160, 8
LINE = sequence(("star", ranges("00-09,0b-ff")), "\n")
OPERATORS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv, ast.USub: neg}


def calc(expression: str) -> str:
    """Calculate with + - * / and brackets, exactly; never by eval."""

    def value(node):
        if isinstance(node, ast.Constant):
            return Fraction(str(node.value))
        parts = (
            [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
        )
        return OPERATORS[type(node.op)](*map(value, parts))

    result = value(ast.parse(expression.strip(), mode="eval").body)
    return str(result if result.denominator == 1 else round(float(result), 6))


def reader(root):
    """Return the tool that reads text files inside one folder."""

    def read_file(path: str) -> str:
        full = Path(root, path).resolve()  # follows links and ..
        if not (full.is_relative_to(Path(root).resolve()) and full.is_file()):
            raise ValueError(f"there is no file {path!r}")
        return full.read_text("utf-8").removesuffix("\n")

    return read_file


def answer(text: str) -> str:
    """Give the final answer."""
    return text


def write(ids, state, limit, model, cache):
    """Return the ids that the model writes under a grammar: at most `limit`."""
    out = []
    for left in range(limit, 0, -1):
        logits = feed(ids + out, model, cache)  # (V,)
        i = pick(np.where(mask(state, model.tokens), logits, -np.inf))
        after = reduce(derive, model.tokens[i], state)
        # If the text could not be finished in time after this token, drop the token and
        # finish now. Each byte is a token, so `least` are enough; often fewer will do.
        if least(after) >= left and len(shortest(after, model.tokens)) >= left:
            return out + shortest(state, model.tokens)
        state, out = after, [*out, i]
        if ends(state):
            return out


def run(task, tools, model, say=print):
    """Return the answer (None without one) and the transcript as ids."""
    ids, cache, last = [BOS], Cache(model), None
    grammar = either(*map(call, tools, tools.values()))

    def put(*pieces):  # each encoded alone: training did the same
        ids.extend(i for piece in pieces for i in encode(piece, model.merges))

    names = [", ".join(name for name, *_ in arguments(tool)) for tool in tools.values()]
    task = regex.sub("[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", task).strip()  # one line
    put("TOOLS: ", " ".join(map("{}({})".format, tools, names)), "\nTASK: ", task)
    for _ in range(MAX_STEPS):
        put("\nTHOUGHT: ")
        # One more for the line break, which is not kept.
        thought = write(ids, LINE, THOUGHT_LIMIT + 1, model, cache)[:THOUGHT_LIMIT]
        ids += (thought := [i for i in thought if model.tokens[i] != b"\n"])
        put("\nCALL: ")
        ids += (action := write(ids, grammar, CALL_LIMIT, model, cache))
        thought, action = (decode(part, model.tokens) for part in (thought, action))
        say(f"THOUGHT: {thought.strip()}\nCALL: {action}")
        name, args = json.loads(action).values()
        try:
            said = tools[name](**args)
        except Exception as error:  # a failure is something to observe as well
            said = f"error: {error}"
        if name == "answer":
            return said, ids
        said = said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"
        observation = json.dumps(said, ensure_ascii=False)  # one line, whatever it says
        say(f"OBSERVATION: {observation}")
        put("\nOBSERVATION: ", observation)
        if last == (last := (action, said)):
            break  # the same call with the same result: it would go on like this
    return None, ids


if __name__ == "__main__":
    tools = {"calc": calc, "read_file": reader("."), "answer": answer}
    question = " ".join(sys.argv[1:]) or "What is 4871 * 209?"
    print("ANSWER:", run(question, tools, load())[0])

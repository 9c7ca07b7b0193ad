"""The task families that the embedded model learns, as scripts of right moves.

`make(family, rng, held)` returns one `Task`: a tool list, a question, the files it
needs and the moves that solve it. FAMILIES names them all. No training task has the
pair of numbers, the made-up names or, except for a fifth of the sums, the phrasing of a
held-out one. Some families ask the same few questions about new files each time.

The words and phrasings are in `data/`; this module decides what a right move is.
Whoever draws more or fewer random numbers here makes another corpus: its checksum is
tested.

Before: train.data.stories. Next: train.corpus.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tinyllm.agent.calculator import calc as evaluate
from tinyllm.errors import Named
from tinyllm.train.data import phrases, words
from tinyllm.train.data.words import PEOPLE, THINGS, file_name, phrasings, sentence

Tools = dict[str, tuple[str, ...]]  # name -> argument names, in the order shown
SIGNATURES: Tools = {
    "calc": ("expression",),
    "read_file": ("path",),
    "list_files": (),
    "remember": ("text",),
    "weather": ("city",),
    "search": ("query",),
    "translate": ("text",),
    "send_mail": ("to",),
    "answer": ("text",),
}


@dataclass(frozen=True)
class Move:
    """One turn: a thought, a call, and the tool's reply (None after `answer`)."""

    thought: str
    tool: str
    args: dict[str, str]
    observation: str | None = None


@dataclass(frozen=True)
class Task:
    """A question with its tools in the order shown, its files and its solution."""

    family: str
    tools: Tools
    question: str
    moves: tuple[Move, ...]
    files: dict[str, str] = field(default_factory=dict)

    @property
    def answer(self) -> str:
        """Return the answer: the text of the last move."""
        return self.moves[-1].args["text"]


def tool_list(
    rng: random.Random, needed: Tools | set[str], banned: set[str], max_extra: int = 4
) -> Tools:
    """Return `answer`, those needed and up to `max_extra` others, none banned."""
    known = SIGNATURES | (needed if isinstance(needed, dict) else {})
    # lists vary in length, members and order, so that reading them pays
    others = [t for t in SIGNATURES if t not in {*needed, *banned, "answer"}]
    extra = rng.sample(others, rng.randint(0, min(max_extra, len(others))))
    chosen = {*needed, "answer", *extra}
    order = [t for t in known if t in chosen]
    if rng.random() < 0.5:  # half of the lists have the order of the package
        rng.shuffle(order)
    return {t: known[t] for t in order}


def wording(rng: random.Random, cores: list[str], held: bool) -> str:
    """Return a template of a question: one of `cores` after one of the openings."""
    return rng.choice(phrasings(phrases.OPENINGS, cores, held))


def final(text: str, thought: str = "Now I know the answer.") -> Move:
    """Return the last move: answer with `text`."""
    return Move(thought, "answer", {"text": text})


def calculation(rng: random.Random, held: bool) -> tuple[str, str]:
    """Return a question about two or three numbers, and the expression for it."""
    op = rng.choice("**++--/")
    a, b = words.numbers(rng, held)
    b = max(b, 1) if op == "/" else b  # nothing is divided by 0
    expression = f"{a} {op} {b}"
    if (kind := rng.random()) < 0.1:
        things, who = rng.choice(THINGS) + "s", rng.choice(PEOPLE)
        story = phrases.STORIES[op]
        return story.format(a=a, b=b, things=things, who=who), expression
    if kind < 0.35:
        return wording(rng, phrases.ORDERS[op], held).format(a=a, b=b), expression
    symbols = phrases.SYMBOLS[op]
    frames = [frame.format(e=symbol) for frame in phrases.FRAMES for symbol in symbols]
    frame = rng.choice([f for f in frames if words.held_out(f) == held])
    if kind < 0.5:
        expression = f"{expression} {rng.choice('*+-')} {words.number(rng, 3)}"
        frame = rng.choice(phrases.FRAMES).format(e=expression)
    question = frame.format(a=a, b=b)
    return question[0].upper() + question[1:] if kind < 0.9 else question, expression


def calc(rng: random.Random, held: bool) -> Task:
    """Return a task of arithmetic: one call of the calculator, then the answer."""
    question, expression = calculation(rng, held)
    result = evaluate(expression)  # the real calculator: its rounding is learned too
    call = Move("I should calculate this.", "calc", {"expression": expression}, result)
    tools = tool_list(rng, {"calc"}, set())
    return Task("calc", tools, question, (call, final(result)))


def named_file(rng: random.Random, held: bool) -> tuple[str, str]:
    """Return the words in which a question names a file, and its path."""
    name = file_name(rng, held)
    if rng.random() < 0.3:
        return f"the {name} file", name + ".txt"
    path = name + rng.choice([".txt", ".txt", ".txt", ".md", ".csv"])
    return rng.choice([path, path, f"the file {path}", f'"{path}"']), path


def read(rng: random.Random, held: bool) -> Task:
    """Return a task that reads a file, and answers with its text or a failure."""
    name, path = named_file(rng, held)
    text = sentence(rng, held)
    if rng.random() < 0.15:  # a second line: the literal has an escape
        text += "\n" + sentence(rng, held)[:40].strip()
    question = wording(rng, phrases.READ, held).format(n=name)
    tools = tool_list(rng, {"read_file"}, set())
    call = Move("I should read the file.", "read_file", {"path": path}, text)
    # an error of a tool is reported as one; evaluation has real files only
    if not held and rng.random() < 0.06:
        call = replace(call, observation=f"error: {text}")
        moves = call, final(phrases.FAILED, phrases.FAILED)
        return Task("read", tools, question, moves)
    return Task("read", tools, question, (call, final(text)), {path: text})


def read_calc(rng: random.Random, held: bool) -> Task:
    """Return a task that reads a number from a file and calculates with it."""
    name, path = named_file(rng, held)
    op = rng.choice("*+-")
    a, k = words.numbers(rng, held, digits=4)
    question = wording(rng, phrases.COMBINE[op], held).format(n=name, k=k)
    expression = f"{a} {op} {k}"
    result = evaluate(expression)
    moves = (  # the number is known only after the first observation
        Move("I should read the file.", "read_file", {"path": path}, str(a)),
        Move("Now I should calculate.", "calc", {"expression": expression}, result),
        final(result),
    )
    tools = tool_list(rng, {"calc", "read_file"}, set())
    return Task("read_calc", tools, question, moves, {path: str(a)})


def direct(rng: random.Random, held: bool) -> Task:
    """Return a task that is answered at once, without another tool."""
    if not held and rng.random() < 0.1:  # the same few phrases each time
        question = rng.choice(list(phrases.CHAT))
        text = phrases.CHAT[question]
    else:
        text = sentence(rng, held)
        question = wording(rng, phrases.SAY, held).format(s=text)
    tools = tool_list(rng, set(), set())
    return Task("direct", tools, question, (final(text, "I can answer this now."),))


def listing(rng: random.Random, held: bool) -> Task:
    """Return a task that names the files, or finds the first one and reads it."""
    names = {file_name(rng, held) + ".txt" for _ in range(rng.randint(1, 4))}
    files = {name: sentence(rng, held) for name in sorted(names)}
    shown = ", ".join(files)
    look = Move("I should list the files.", "list_files", {}, shown)
    if rng.random() < 0.5:
        question = wording(rng, phrases.LIST, held)
        tools = tool_list(rng, {"list_files"}, set())
        return Task("list", tools, question, (look, final(shown)), files)
    question = wording(rng, phrases.FIRST, held)
    path = next(iter(files))
    opened = Move("I should read the file.", "read_file", {"path": path}, files[path])
    tools = tool_list(rng, {"list_files", "read_file"}, set())
    return Task("list", tools, question, (look, opened, final(files[path])), files)


def remember(rng: random.Random, held: bool) -> Task:
    """Return a task that puts a sentence into the memory tool."""
    text = sentence(rng, held)
    question = wording(rng, phrases.KEEP, held).format(s=text)
    call = Move("I should remember this.", "remember", {"text": text}, "saved")
    tools = tool_list(rng, {"remember"}, set())
    return Task("remember", tools, question, (call, final("I will remember that.")))


def lookup_question(rng: random.Random, held: bool) -> tuple[str, str, str]:
    """Return a tool that looks something up, a question for it, and its argument."""
    tool = rng.choice(list(phrases.LOOKUPS))
    what = word_or_name(rng, held)
    question = wording(rng, phrases.LOOKUPS[tool], held)
    return tool, question.format(w=f'"{what}"'), what


def new_tool_question(rng: random.Random, held: bool) -> tuple[str, str, str]:
    """Return the same for a tool whose name is made up."""
    tool, what = words.word(rng, held), word_or_name(rng, held)
    question = wording(rng, phrases.NEW_TOOL, held)
    return tool, question.format(tool=tool, w=what), what


def word_or_name(rng: random.Random, held: bool) -> str:
    """Return one or two words, like the name of a city or a person."""
    return " ".join(
        words.word(rng, held).capitalize() for _ in range(rng.randint(1, 2))
    )


def lookup(rng: random.Random, held: bool) -> Task:
    """Return a task for another tool, perhaps a new one: pass on its reply."""
    # a made-up name teaches to copy the name from the list
    if rng.random() < 0.5:
        tool, question, what = new_tool_question(rng, held)
        argument = rng.choice(phrases.ARGUMENTS)
    else:
        tool, question, what = lookup_question(rng, held)
        argument = SIGNATURES[tool][0]
    reply = sentence(rng, held)
    call = Move(f"I should use {tool}.", tool, {argument: what}, reply)
    tools = tool_list(rng, {tool: (argument,)}, set())
    return Task("lookup", tools, question, (call, final(reply)))


def no_tool(rng: random.Random, held: bool) -> Task:
    """Return a request that no listed tool can serve; the answer says so.

    The lists are longer than elsewhere: many lack only the one tool that is needed.
    """
    if (kind := rng.random()) < 0.15:
        question = wording(rng, phrases.UNKNOWN, held)
        tool, question = "", question.format(w=word_or_name(rng, held))
    elif kind < 0.6:
        asked = rng.choice([lookup_question, new_tool_question])
        tool, question, _ = asked(rng, held)
    else:
        other = rng.choice([calc, read, listing, remember])(rng, held)
        tool, question = other.moves[0].tool, other.question
    tools = tool_list(rng, set(), {tool}, max_extra=7)  # up to all but the right one
    refusal = final(phrases.NO_TOOL, "No tool here can do this.")
    return Task("no_tool", tools, question, (refusal,))


_FAMILIES: dict[str, Callable[[random.Random, bool], Task]] = {
    "calc": calc,
    "read": read,
    "read_calc": read_calc,
    "direct": direct,
    "list": listing,
    "remember": remember,
    "lookup": lookup,
    "no_tool": no_tool,
}
FAMILIES = Named("family", _FAMILIES)


def make(family: str, rng: random.Random, held: bool) -> Task:
    """Return one task of `family`, for training or (held) for evaluation."""
    return FAMILIES[family](rng, held)

"""How questions are worded: the phrasings of every task family, as templates.

{a}, {b}, {k} are numbers, {e} an expression, {n} a file, {s} a sentence, {w} a name.
`words.phrasings` puts OPENINGS before most of them.

Before: train.data.words. Next: train.data.stories.
"""

from __future__ import annotations

NO_TOOL, FAILED = "I have no tool for that.", "That did not work."
OPENINGS = ["", "Please ", "Now ", "Hey, ", "Can you help? ", "Next: "]
SYMBOLS = {
    "*": ["{a} * {b}", "{a} times {b}", "{a} multiplied by {b}"]
    + ["the product of {a} and {b}", "{a}*{b}", "{a} x {b}"],
    "+": ["{a} + {b}", "{a} plus {b}", "the sum of {a} and {b}", "{a}+{b}"],
    "-": ["{a} - {b}", "{a} minus {b}", "{b} subtracted from {a}", "{a}-{b}"]
    + ["the difference of {a} and {b}"],
    "/": ["{a} / {b}", "{a} divided by {b}", "{a}/{b}"],
}
ORDERS = {
    "*": ["multiply {a} by {b}.", "take {a} times {b}."],
    "+": ["add {a} and {b}.", "add {a} to {b}.", "put {a} and {b} together."],
    "-": ["subtract {b} from {a}.", "take {b} away from {a}."],
    "/": ["divide {a} by {b}.", "split {a} by {b}."],
}
FRAMES = ["What is {e}?", "How much is {e}?", "Compute {e}.", "Calculate {e}."] + [
    "Work out {e}.",
    "Tell me {e}.",
    "I need {e}.",
    "Please find {e}.",
    "{e} = ?",
    "what is {e}",
    "{e}",
]
STORIES = {
    "*": "There are {a} boxes with {b} {things} in each. How many {things} are there?",
    "+": "{who} has {a} {things} and finds {b} more. How many {things} are there now?",
    "-": "{who} has {a} {things} and gives {b} away. How many {things} are left?",
    "/": "{a} {things} are shared by {b} people. How many {things} does each get?",
}
READ = ["read {n}.", "what does {n} say?", "open {n}.", "what is in {n}?"] + [
    "show me {n}.",
    "tell me what {n} says.",
    "what is written in {n}?",
]
COMBINE = {
    "+": ["add {k} to the number in {n}.", "what is the number in {n} plus {k}?"],
    "-": [
        "subtract {k} from the number in {n}.",
        "what is the number in {n} minus {k}?",
    ],
    "*": ["multiply the number in {n} by {k}.", "what is the number in {n} times {k}?"],
}
SAY = ['say: "{s}"', 'repeat after me: "{s}"', 'answer with "{s}"', 'write "{s}"'] + [
    'say "{s}" back to me.',
    'tell me "{s}"',
]
CHAT = {
    "Hello!": "Hello! How can I help?",
    "Hello": "Hello! How can I help?",
    "Hi": "Hello! How can I help?",
    "Who are you?": "I am a tiny model with a few tools.",
    "What can you do?": "I can use the tools on my list.",
    "Thank you!": "You are welcome.",
}
LIST = ["which files are there?", "list the files.", "what files do you see?"] + [
    "show me all files.",
    "name the files in this folder.",
]
FIRST = [
    "read the first file.",
    "what does the first file say?",
    "open the first file.",
]
KEEP = ['remember: "{s}"', 'keep in mind: "{s}"', 'remember that "{s}"', 'note "{s}"']
LOOKUPS = {
    "weather": ["what is the weather in {w}?", "is it cold in {w}?", "weather in {w}?"],
    "search": ["search for {w}.", "look up {w}.", "find out about {w}."],
    "translate": ["translate {w}.", "what does {w} mean in French?"],
    "send_mail": ["send a mail to {w}.", "write a mail to {w}."],
}
UNKNOWN = ["play some music.", "order a pizza.", "turn on the light.", "call {w}."] + [
    "book a table for {w}.",
    "drive me to {w}.",
    "take a picture.",
    "what time is it?",
    "buy {w} for me.",
]
NEW_TOOL = ['use {tool} with "{w}".', 'call {tool} on "{w}".', 'run {tool} for "{w}".']
ARGUMENTS = ["text", "query", "name", "path", "city", "word", "topic", "key", "to"]

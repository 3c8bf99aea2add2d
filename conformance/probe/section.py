"""A section: questions about one subject, and how an answer is written."""

import hashlib

from driver import OUT, NoSuchFunction

NOTHING, INITIALISED, CURRENT = "nothing", "initialised", "current"


class SetupFailed(Exception):
    """A call that prepares a question has failed."""


class Question:
    def __init__(self, name, function, setup, alone):
        self.name, self.function, self.setup, self.alone = name, function, setup, alone

    def answer(self, client):
        """Asks the question. Returns the answer as one line."""
        try:
            return say(self.function(client))
        except NoSuchFunction:
            return "no such function"
        except SetupFailed as failure:
            return f"cannot ask: {failure}"


class Section:
    """Questions, in the order in which they are asked.

    ``setup`` is the state before a question: whether the driver is initialised, and whether the
    primary context of device 0 is current. A question that is ``alone`` has a process of its own.
    """

    def __init__(self, name, setup=CURRENT):
        self.name, self.setup = name, setup
        self.questions = []

    def ask(self, name, function, setup=None, alone=False):
        assert name not in {question.name for question in self.questions}, name
        self.questions.append(Question(name, function, setup or self.setup, alone))

    def question(self, name, **options):
        def decorate(function):
            self.ask(name, function, **options)
            return function

        return decorate

    def calls(self, text, prepare=None):
        """Adds a question for each line, ``name | function arguments``. Each makes one call.

        Arguments are Python expressions. They can use the names that ``prepare`` returns as a
        mapping, the client ``p``, and a variable ``out`` for a result. The answer is the status.
        """
        for line in filter(None, map(str.strip, text.splitlines())):
            name, _, call = line.partition("|")
            function, _, arguments = call.strip().partition(" ")
            code = compile(f"({arguments.strip()},)" if arguments else "()", name, "eval")

            def ask(client, function=function, code=code):
                names = prepare(client) if prepare else {}
                return client.tried(
                    function, *eval(code, {"p": client, "out": client.cell(), "OUT": OUT, **names})
                )

            self.ask(name.strip(), ask)


def say(value):
    """Turns an answer into text that is the same in each run."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        return data(value)
    if isinstance(value, (tuple, list)):
        return ", ".join(map(say, value)) or "nothing"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {say(item)}" for key, item in value.items())
    return str(value)


def data(content):
    """Bytes as text: all of them if they are few, otherwise a hash."""
    if len(content) <= 16:
        return content.hex() or "empty"
    return f"{len(content)} bytes {hashlib.sha256(content).hexdigest()[:12]}"

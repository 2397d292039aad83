"""The prompt of `servecast sql`: statements up to a semicolon, a few words that begin with a dot."""

import cmd
import sys
from typing import IO, TYPE_CHECKING

from pipeline.errors import QueryError
from pipeline.query import catalog, output, session

if TYPE_CHECKING:
    import duckdb

HELP = """\
Write SQL, over several lines if you like, and end it with a semicolon.
  FROM headline;                                 every run, one row each
  FROM latency_by_tenant(run := 'the run id');   an answer about one run
.tables        what can be asked
.about NAME    question, columns and rules of one of them
.help          this text
.quit          leave; so does Ctrl-D"""


class Prompt(cmd.Cmd):
    """Read statements from `stdin`, run them on `connection`, print results; an error does not end it."""

    def __init__(
        self, connection: "duckdb.DuckDBPyConnection", stdin: IO[str] = sys.stdin, stdout: IO[str] = sys.stdout
    ) -> None:
        """Take over `stdin`; line editing and colours only where it is a terminal."""
        super().__init__(stdin=stdin, stdout=stdout)
        self.connection = connection
        self.use_rawinput = stdin is sys.stdin and stdin.isatty()
        self.lines: list[str] = []
        self.prompt = "servecast> " if self.use_rawinput else ""

    def onecmd(self, line: str) -> bool:
        """Take one line: a dot command, or a part of a statement. Returns True when the prompt shall end."""
        if line == "EOF":
            self._run("\n".join(self.lines))
            if self.use_rawinput:
                self._print("")
            return True
        if not self.lines and line.strip().startswith("."):
            return self._dot(line.split())
        if self.lines or line.strip():
            self.lines.append(line)
        if line.rstrip().endswith(";"):
            statement, self.lines = "\n".join(self.lines), []
            self._run(statement)
        if self.use_rawinput:
            self.prompt = "      ...> " if self.lines else "servecast> "
        return False

    def completenames(self, text: str, *ignored: object) -> list[str]:
        """Complete names of answers and facts."""
        return [name for name, query in catalog.load().items() if query.is_view and name.startswith(text)]

    completedefault = completenames

    def cmdloop(self, intro: str | None = None) -> None:
        """Read until the end; Ctrl-C drops the statement begun and goes on."""
        while True:
            try:
                super().cmdloop(intro)
                return
            except KeyboardInterrupt:
                self.lines, intro = [], None
                self._print("")

    def _run(self, statement: str) -> None:
        try:
            relation = session.run(self.connection, statement)
            if relation is not None:
                output.write(relation, "table", self.stdout)
        except QueryError as error:
            self._print(str(error))

    def _dot(self, words: list[str]) -> bool:
        if words[0] in (".quit", ".exit"):
            return True
        if words[0] == ".tables":
            self._print(tables())
        elif words[0] == ".about" and len(words) == 2:
            self._print(about(words[1]))
        elif words[0] == ".help":
            self._print(HELP)
        else:
            self._print(f"{' '.join(words)}: unknown; .help lists what there is")
        return False

    def _print(self, text: str) -> None:
        self.stdout.write(text + "\n")


def tables() -> str:
    """Return the names of all that can be asked, with their questions, answers first."""
    lines = []
    for kind, title in (("answer", "answers"), ("fact", "facts"), ("source", "tables"), ("check", "checks")):
        found = sorted((query.name, query.question) for query in catalog.load().values() if query.kind == kind)
        lines += [f"{title}:", *(f"  {name:<24} {question}" for name, question in found)]
    return "\n".join(lines)


def about(name: str) -> str:
    """Return the header of one object as text."""
    query = catalog.load().get(name)
    if query is None:
        return f"{name}: unknown; .tables lists what there is"
    lines = [f"{query.name}: {query.question}", query.grain or query.returns or ""]
    if query.params:
        lines.append("parameters: " + ", ".join(parameter.declaration() for parameter in query.params))
    lines += [f"  {column.name:<24} {column.type:<11} {column.doc}" for column in query.columns]
    return "\n".join([*lines, *query.notes])

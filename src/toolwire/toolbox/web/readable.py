"""A web page as text that a model can read: what a person would see, as Markdown or plain, without the furniture."""

from collections import Counter
from urllib.parse import urljoin

from msgspec import Struct, field

from toolwire.toolbox.web.markup import End, MarkupText, Start, pieces

DEEPEST = 512
LONGEST_LINK = 500

_SKIPPED = frozenset(
    "script style template noscript iframe svg math object embed canvas audio video select option button input "
    "textarea datalist dialog nav footer noembed noframes xmp".split()
)
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_BLOCKS = frozenset(
    "address article aside blockquote body center dd details div dl dt fieldset figcaption figure form header "
    "hgroup html legend main ol p section summary table tbody tfoot thead ul".split()
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_HIDING = frozenset(
    (("display", "none"), ("visibility", "hidden"), ("visibility", "collapse"), ("color", "transparent"))
)
_NOTHING_LEFT = frozenset(("opacity", "font-size", "max-height", "max-width", "zoom"))
_FAR_AWAY = frozenset(("left", "top", "right", "bottom", "text-indent", "margin-left", "margin-top"))
_FAR_PX = -500


class ReadablePage(Struct, frozen=True):
    title: str
    text: str


def readable(html: str, url: str, *, markdown: bool = True) -> ReadablePage:
    """The visible text of a page found at `url`."""
    reader = _PageReader(url, markdown)
    for piece in pieces(html):
        match piece:
            case MarkupText(text):
                reader.words(text)
            case Start(name, attributes):
                reader.start(name, attributes)
            case End(name):
                reader.end(name)
    return ReadablePage(" ".join(reader.title.split())[:500], reader.text())


class _Open(Struct):
    """An element that is not closed yet: whether it hides its content, and where that began in the output."""

    name: str
    hidden: bool
    began: int
    link: str = ""


class _PageReader(Struct):
    url: str
    markdown: bool
    title: str = ""
    out: list[str] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)
    lists: list[int | None] = field(default_factory=list)
    kept_spaces: int = 0
    hidden: int = 0
    gap: str = ""

    def words(self, text: str) -> None:
        if self.stack and self.stack[-1].name == "title":
            self.title = self.title or text[:2000]
        elif self.kept_spaces and not self.hidden:
            self._put(text)
        elif not self.hidden and text.strip():
            lead, trail = text[0].isspace(), text[-1].isspace()
            self._put((" " if lead and not self.gap else "") + " ".join(text.split()) + (" " if trail else ""))
        elif not self.hidden and text and not self.gap:
            self._space()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name in _VOID:
            if not self.hidden:
                self._void(name, attributes)
            return
        self._close_implied(name)
        hides = name in _SKIPPED or name in ("head", "title") or _is_hidden(attributes)
        if not (self.hidden or hides):
            self._begin(name)
        if len(self.stack) < DEEPEST:
            link = attributes.get("href", "") if name == "a" and not (self.hidden or hides) else ""
            self.stack.append(_Open(name, hides, len(self.out), link))
            self.names[name] += 1
            self.hidden += hides

    def end(self, name: str) -> None:
        """Close the nearest open element of that name; one that is not open changes nothing."""
        if not self.names[name]:
            return
        while self.stack[-1].name != name:
            self._pop()
        self._pop()

    def text(self) -> str:
        while self.stack:
            self._pop()
        lines = (line.rstrip() for line in "".join(self.out).split("\n"))
        return "\n".join(lines).strip()

    def _close_implied(self, name: str) -> None:
        """People do not write the end tags of list items, cells and paragraphs."""
        ends = {"li": ("li",), "tr": ("td", "th", "tr"), "td": ("td", "th"), "th": ("td", "th"), "dd": ("dd", "dt")}
        opens = ends.get(name, ("p",) if name in _BLOCKS or name in _HEADINGS else ())
        while self.stack and self.stack[-1].name in opens:
            self._pop()
        if name in ("body", "a"):
            self.end("head" if name == "body" else name)

    def _begin(self, name: str) -> None:
        if name in _HEADINGS:
            self._break("\n\n")
            self._mark(f"{_HEADINGS[name]} ")
        elif name == "li":
            self._item()
        elif name == "pre":
            self._break("\n\n")
            self._mark("```\n")
            self.kept_spaces += 1
        elif name == "tr":
            self._break("\n")
        elif name in _BLOCKS:
            self._break("\n" if name in ("ul", "ol") and self.lists else "\n\n")
        if name in ("ul", "ol"):
            self.lists.append(0 if name == "ol" else None)
        elif name == "blockquote":
            self._mark("> ")

    def _item(self) -> None:
        self._break("\n")
        sign = "-"
        if self.lists and (count := self.lists[-1]) is not None:
            self.lists[-1] = count + 1
            sign = f"{count + 1}."
        self._put(f"{'  ' * min(len(self.lists) - 1, 8)}{sign} ")
        self.gap = " "  # the words of the item follow the sign at once

    def _void(self, name: str, attributes: dict[str, str]) -> None:
        if name == "br":
            self._break("\n")
        elif name == "hr":
            self._break("\n\n")
            self._mark("---")
            self._break("\n\n")
        elif name == "img" and (what := " ".join(attributes.get("alt", "").split())):
            self._put(f"[image: {what[:200]}]")

    def _pop(self) -> None:
        closed = self.stack.pop()
        self.names[closed.name] -= 1
        self.hidden -= closed.hidden
        name = closed.name
        if name in ("ul", "ol") and self.lists and not (self.hidden or closed.hidden):
            self.lists.pop()
        if self.hidden or closed.hidden:
            return
        if name == "pre":
            self.kept_spaces -= 1
            self._mark("\n```")
            self._break("\n\n")
        elif name == "a":
            self._link(closed)
        elif name in ("td", "th"):
            self._put(" | ")
        elif name in _HEADINGS or name in _BLOCKS:
            self._break("\n" if name in ("ul", "ol") and self.lists else "\n\n")

    def _link(self, closed: _Open) -> None:
        target = urljoin(self.url, closed.link) if 0 < len(closed.link) <= LONGEST_LINK else ""
        said = "".join(self.out[closed.began :]).strip()
        if self.markdown and said and "\n" not in said and target.startswith(("http://", "https://")):
            self._put(f" <{target}>" if not closed.link.startswith("#") else "")

    def _mark(self, text: str) -> None:
        """Signs of Markdown, left out of plain text."""
        if self.markdown:
            self._put(text)
            self.gap = self.gap or " "

    def _put(self, text: str) -> None:
        if text:
            if self.gap.startswith("\n") and self.out:
                self.out.append(self.gap)
            self.gap = ""
            self.out.append(text)

    def _space(self) -> None:
        if self.out and not self.out[-1].endswith((" ", "\n")):
            self.out.append(" ")

    def _break(self, gap: str) -> None:
        if len(gap) > len(self.gap) or not self.gap.startswith("\n"):
            self.gap = gap


def _is_hidden(attributes: dict[str, str]) -> bool:
    """What the page does not show people: a place where words to models hide."""
    if "hidden" in attributes or attributes.get("aria-hidden", "").lower() == "true":
        return True
    return any(map(_hides, attributes.get("style", "")[:2000].lower().split(";")))


def _hides(declaration: str) -> bool:
    """Whether one line of style makes its element invisible: gone, of no size, or far outside of the page."""
    name, _, value = declaration.partition(":")
    name, value = name.strip(), value.replace("!important", "").strip()
    if (name, value) in _HIDING:
        return True
    number = value.rstrip("abcdefghijklmnopqrstuvwxyz% ")
    if not number or len(number) > 10 or not number.lstrip("-").replace(".", "", 1).isdecimal():
        return False
    size = float(number)
    return (name in _NOTHING_LEFT and size == 0) or (name in _FAR_AWAY and size <= _FAR_PX)

"""How a page becomes text: what is shown, what is left out, and that time only grows with its length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.toolbox.web.markup import End, MarkupText, Start, pieces
from toolwire.toolbox.web.readable import readable


def text(html: str, *, markdown: bool = True) -> str:
    return readable(html, "https://good.example/a/b", markdown=markdown).text


@pytest.mark.parametrize(
    ("html", "shown"),
    [
        ("one<br>two", "one\ntwo"),
        ("<p>one<p>two", "one\n\ntwo"),
        ("a  \n b", "a b"),
        ("<b>a</b> b", "a b"),
        ("a<b>b</b>c", "abc"),
        ("<h2>T</h2>x", "## T\n\nx"),
        ("<ol><li>a<li>b</ol>", "1. a\n2. b"),
        ("<ul><li>a<ul><li>b</ul></ul>", "- a\n  - b"),
        ("<table><tr><th>A<th>B<tr><td>1<td>2</table>", "A | B |\n1 | 2 |"),
        ("x<hr>y", "x\n\n---\n\ny"),
        ("<blockquote>q</blockquote>", "> q"),
        ("<img alt='a cat'>", "[image: a cat]"),
        ("<a href='/x'>y</a>", "y <https://good.example/x>"),
        ("<a href='javascript:alert(1)'>y</a>", "y"),
        ("<a href='#top'>y</a>", "y"),
        ("&lt;b&gt; &amp;", "<b> &"),
        ("1 < 2", "1 < 2"),
        ("a<!-- b -->c", "ac"),
        ("a<![CDATA[b]]>c", "ac"),
        ("<title>T</title>x", "x"),
        ("<textarea><p>no</textarea>x", "x"),
        ("<div hidden>no</div>x", "x"),
        ("<div aria-hidden=true>no</div>x", "x"),
        ("<span style='font-size: 0'>no</span>x", "x"),
        ("<div style='DISPLAY : none'><p>no</div>x", "x"),
        ("<p style='opacity:0.5; font-size: 0.9em; left:0; color:red'>yes</p>", "yes"),
        ("<p style='opacity: 0 !important'>no</p>x", "x"),
        ("<p style='position:absolute;left:-9999px'>no</p>x", "x"),
        ("<p style='text-indent:-1000em'>no</p>x", "x"),
        ("<p style='color: Transparent'>no</p>x", "x"),
        ("<template>no</template>x", "x"),
        ("<noscript>no</noscript>x", "x"),
        ("<script>'</scr' + 'ipt>' <p>no</script>x", "x"),
        ("<svg><text>no</text></svg>x", "x"),
        ("x</p></div></nothing>y", "xy"),
        ("x<a href='y", "x"),
        ("x<", "x<"),
        ("<pre>a\n  b</pre>", "```\na\n  b\n```"),
        ("", ""),
    ],
)
def test_a_page_is_read_as_a_person_would_see_it(html: str, shown: str) -> None:
    assert text(html) == shown


def test_plain_text_has_no_signs_of_markdown() -> None:
    assert text("<h1>T</h1><p><a href=/x>y</a><pre>z</pre>", markdown=False) == "T\n\ny\n\nz"


def test_a_page_is_taken_apart_into_tags_and_words() -> None:
    assert list(pieces("<A Href=x checked>y</a ><br/>")) == [
        Start("a", {"href": "x", "checked": ""}),
        MarkupText("y"),
        End("a"),
        Start("br"),
    ]


@pytest.mark.parametrize(
    "seed",
    '<div> < <!-- <a&nbsp;href=x>y </b> &amp; &#x <script> </ <a <ul><li>x <p>x <title></titl <a&x=" <td>'.split(),
)
def test_a_hostile_page_takes_steps_in_proportion_to_its_length(seed: str) -> None:
    """Counted in pieces, not in seconds: no more than a few for every repetition."""
    seed = seed.replace("&nbsp;", " ").replace("&x", " x")
    count = 5_000

    assert sum(1 for _ in pieces(seed * count)) <= 4 * count + 4
    assert len(text(seed * count)) <= 100 * count


@given(st.text(alphabet=st.sampled_from("<>/!-ab =\"'&;#\n") | st.characters(), max_size=300))
def test_any_text_is_read_as_a_page(html: str) -> None:
    readable(html, "https://good.example/")


@given(
    st.lists(
        st.sampled_from("<p> </p> <ul> <li> </ul> <pre> </pre> <a&href=/x> </a> x <div&hidden> </div> <h1>".split())
    )
)
def test_any_order_of_tags_leaves_the_words_and_nothing_open(parts: list[str]) -> None:
    html = "".join(parts).replace("&", " ")

    assert text(html + "<!-- -->") == text(html)

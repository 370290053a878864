"""HTML in which what is not markup is text."""

from distls.facts import Fact
from distls.reporting.markup import card, joined, plain, tag


def test_text_is_escaped_and_markup_is_not():
    inner = tag("b", "a < b & c")
    assert inner == "<b>a &lt; b &amp; c</b>"
    assert tag("p", inner, " <i>") == "<p><b>a &lt; b &amp; c</b> &lt;i&gt;</p>"
    assert joined(["<", inner]) == f"&lt;{inner}"


def test_attributes_cannot_be_left():
    made = tag("td", 1, title='" onclick="x', class_="a", data_v=None)
    assert made == '<td title="&quot; onclick=&quot;x" class="a">1</td>'


def test_control_characters_are_visible():
    assert plain("a\u202eb\x00") == r"a\u202eb\x00"


def test_a_card_has_a_line_for_each_field():
    shown = card("<t>", [Fact("rows", 3), Fact("<n>", "<v>")])
    assert shown.count("<tr>") == 2
    assert "<strong>&lt;t&gt;</strong>" in shown
    assert "&lt;n&gt;</th>" in shown
    assert "&lt;v&gt;</td>" in shown

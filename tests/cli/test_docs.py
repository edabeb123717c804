"""The page about the command line says what the commands say."""

from tests.cli.help_page import PAGE, page


def test_the_page_about_the_command_line_is_current() -> None:
    """Run `make docs` when this fails."""
    assert PAGE.read_text(encoding="utf-8") == page()

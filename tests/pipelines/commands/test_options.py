import pytest
from click.testing import CliRunner

from infeed.pipelines.cli import main
from infeed.pipelines.commands.options import as_flags


def test_a_second_label_is_refused() -> None:
    given = CliRunner().invoke(main, ["run", "tabular", "--data", "t.csv", "--label", "a", "--label", "b"])
    assert given.exit_code == 2
    assert "--label" in given.output
    assert "a, b" in given.output
    assert "--columns" in given.output


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, []),
        ({"delimiter": ";"}, ["--delimiter", ";"]),
        ({"delimiter": "\t", "encoding": "latin-1"}, ["--delimiter", "tab", "--set", "encoding=latin-1"]),
        ({"nulls": ["", "NA"]}, ["--set", 'nulls=["", "NA"]']),
    ],
)
def test_options_as_words_of_a_command_line(options, flags):
    assert as_flags(options) == flags

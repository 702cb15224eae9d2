import pytest

from infeed.pipelines.commands.options import as_flags


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

from click.testing import CliRunner

from infeed.pipelines.cli import main


def test_a_second_label_is_refused() -> None:
    given = CliRunner().invoke(main, ["run", "tabular", "--data", "t.csv", "--label", "a", "--label", "b"])
    assert given.exit_code == 2
    assert "--label" in given.output
    assert "a, b" in given.output
    assert "--columns" in given.output

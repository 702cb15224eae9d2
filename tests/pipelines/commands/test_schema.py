import json

from click.testing import CliRunner

from infeed.pipelines.cli import main
from infeed.pipelines.commands.new import create_project


def test_the_schema_is_that_of_a_new_project(tmp_path):
    create_project("tabular", str(tmp_path / "mine"))
    printed = CliRunner().invoke(main, ["schema"]).output
    assert json.loads(printed) == json.loads((tmp_path / "mine" / "config.schema.json").read_text())
    assert CliRunner().invoke(main, ["schema", str(tmp_path / "again.json")]).output == ""
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(printed)
    assert (tmp_path / "mine" / "config.yaml").read_text().startswith("# yaml-language-server: $schema=config.schema")

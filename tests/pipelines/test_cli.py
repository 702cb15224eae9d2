"""What stops before anything long starts: message, exit code, and that neither TensorFlow nor TFX was loaded."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner
from PIL import Image

from infeed.pipelines.cli import _COMMANDS, main
from infeed.pipelines.console.exit_codes import EXIT_CODES, Command


def infeed(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def pictures(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(path)
    return root


def table(tmp_path, text):
    path = tmp_path / "data.csv"
    path.write_text(text)
    return path


def no_images(tmp_path):
    return ["run", "image", "--data", tmp_path]


def empty_class_folder(tmp_path):
    pictures(tmp_path, "cat/1.png", "dog/1.png")
    (tmp_path / "eel").mkdir()
    return ["run", "image", "--data", tmp_path]


def not_an_image(tmp_path):
    pictures(tmp_path, "cat/1.png", "dog/1.png")
    (tmp_path / "dog" / "notes.txt").write_text("not a picture")
    return ["run", "image", "--data", tmp_path]


def no_rows(tmp_path):
    return ["run", "tabular", "--data", table(tmp_path, "x,y\n"), "--label", "y"]


def no_such_label(tmp_path):
    return ["run", "tabular", "--data", table(tmp_path, "x,y\n1,2\n"), "--label", "z"]


def project_with(tmp_path, *, column="x", model="model.py:build_model", strategy="auto"):
    table(tmp_path, "x,y\n" + "1,a\n2,b\n" * 10)
    (tmp_path / "model.py").write_text("def build_model(spec): ...\n")
    (tmp_path / "config.yaml").write_text(
        f"source: csv\ndata: {tmp_path}/data.csv\nlabel: y\nmodel: {model}\ntrain: {{strategy: {strategy}}}\n"
        f"features: [{{kind: z_score, column: {column}}}, {{kind: label, column: y}}]\n"
    )
    return ["run", tmp_path / "config.yaml"]


def column_the_data_lacks(tmp_path):
    return project_with(tmp_path, column="height")


def model_function_that_does_not_exist(tmp_path):
    return project_with(tmp_path, model="model.py:make_model")


def unknown_strategy_in_the_file(tmp_path):
    return project_with(tmp_path, strategy="quantum")


def unknown_strategy_on_the_command_line(tmp_path):
    return ["run", "image", "--strategy", "quantum", "--root", tmp_path]


def a_root_in_an_object_store(tmp_path):
    return [*project_with(tmp_path), "--root", "gs://bucket/flowers"]


@pytest.mark.parametrize(
    ("case", "what", "where", "do"),
    [
        (no_images, "no images found", "{tmp}", "one folder of PNG or JPEG files per class"),
        (empty_class_folder, "class folder 'eel' is empty", "{tmp}/eel", "one folder of PNG or JPEG files per class"),
        (not_an_image, "not an image", "{tmp}/dog/notes.txt", "remove the file"),
        (no_rows, "the CSV file has no rows", "{tmp}/data.csv", "at least one row"),
        (
            no_such_label,
            "there is no column 'z' to learn",
            "{tmp}/data.csv",
            "--label, or set label in the config; the columns are 'x', 'y'",
        ),
        (column_the_data_lacks, "no column 'height' in the data", "the columns are: x, y", "use one of these columns"),
        (model_function_that_does_not_exist, "defines no function 'make_model'", "option model", "build_model"),
        (unknown_strategy_in_the_file, "there is no strategy 'quantum'", "option strategy", "one_device, mirrored"),
        (a_root_in_an_object_store, "needs a local folder for its metadata", "root", "deploy.root"),
        (unknown_strategy_on_the_command_line, "there is no strategy 'quantum'", "strategy", "one_device, mirrored"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_bad_input_says_what_where_and_what_to_do_and_exits_with_2(tmp_path, case, what, where, do):
    result = infeed(*case(tmp_path))
    first, *rest = result.stderr.splitlines()
    assert result.exit_code == 2
    assert first.startswith("error: ")
    assert what in first
    assert where.format(tmp=tmp_path) in rest[0]
    assert do in rest[1]


def test_compiling_to_an_unknown_format_is_told_at_once(tmp_path):
    result = infeed("compile", "tabular", "--output", tmp_path / "job.txt", "--image", "i", "--root", tmp_path)
    assert result.exit_code == 2
    assert "job.txt" in result.stderr


def test_the_same_as_json(tmp_path):
    result = infeed(*no_rows(tmp_path), "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["what"] == "the CSV file has no rows"


def test_debug_shows_the_traceback(tmp_path):
    assert type(infeed(*no_rows(tmp_path), "--debug").exception).__name__ == "InfeedError"


def test_a_mistake_is_told_without_loading_tensorflow_or_tfx(tmp_path):
    program = (
        "import sys\n"
        "from infeed.pipelines.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print({'tensorflow', 'tfx', 'apache_beam', 'keras'} & set(sys.modules))\n"
    )
    words = [str(word) for word in no_rows(tmp_path)]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stdout.strip() == "set()"


def test_no_command_loads_anything_heavy_before_it_has_something_to_do():
    program = (
        "import click, sys\n"
        "from infeed.pipelines.cli import main\n"
        "context = click.Context(main)\n"
        "for name in main.list_commands(context):\n    main.get_command(context, name).get_help(context)\n"
        "print({'tensorflow', 'tfx', 'apache_beam', 'keras', 'ml_metadata', 'kfp', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "set()"), done.stderr


def test_ingest_starts_without_pydantic_and_pandas():
    program = (
        "import sys\n"
        "from infeed.pipelines.cli import main\n"
        "try:\n    main(['ingest', '--help'])\n"
        "finally:\n    sys.stderr.write(repr({'pydantic', 'pandas', 'fsspec', 'scipy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "set()")


def test_an_unknown_option_is_a_usage_error():
    assert infeed("run", "image", "--epoch", "3").exit_code == 2


def test_a_model_that_is_not_there(tmp_path):
    installed = Path(sys.executable).with_name("infeed")
    done = subprocess.run([installed, "predict", tmp_path, "x.png"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no saved model" in done.stderr


def loop(tmp_path):
    link = tmp_path / "link.csv"
    link.symlink_to(link)
    return link


def not_utf8(tmp_path):
    strange = tmp_path / "\udcff.csv"
    strange.write_text("x,y\n1,2\n")
    return strange


ODD = {
    "a loop of links": (loop, r"no (such file|dataset|template)"),
    "no UTF-8": (not_utf8, r"b'\\xff\.csv' is not UTF-8"),
    "a device": (lambda tmp_path: Path("/dev/full"), r"error: "),
}


@pytest.mark.parametrize(("make", "message"), ODD.values(), ids=ODD)
@pytest.mark.parametrize(
    "words",
    [
        ["ingest", "{odd}", "{folder}/out", "--format", "csv"],
        ["inspect", "{odd}"],
        ["run", "tabular", "--data", "{odd}", "--label", "y", "--root", "{folder}/root"],
    ],
    ids=lambda words: words[0],
)
def test_odd_names_are_told(tmp_path, words, make, message):
    odd = make(tmp_path)
    result = infeed(*(word.format(odd=odd, folder=tmp_path) for word in words))
    assert result.exit_code == 2, result.output
    assert re.search(message, result.stderr), result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("words", [["ingest", "a.csv", "out"], ["inspect", "made", "--json"], ["doctor", "--json"]])
def test_output_without_room_is_told(tmp_path, words):
    table(tmp_path, "x,y\n1,2\n").rename(tmp_path / "a.csv")
    infeed("ingest", tmp_path / "a.csv", tmp_path / "made")
    command = [Path(sys.executable).with_name("infeed"), *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "error: No space left on device\n  where: standard output" in done.stderr


def command_of(name: str) -> Command:
    command = main.get_command(click.Context(main), name)
    assert isinstance(command, Command)
    return command


@pytest.mark.parametrize("name", _COMMANDS)
def test_the_help_of_a_command_ends_with_examples_that_parse(name: str) -> None:
    command = command_of(name)
    assert 2 <= len(command.examples) <= 4
    for example in command.examples:
        program, of_command, *arguments = shlex.split(example)
        assert (program, of_command) == ("infeed", name)
        command.make_context(name, arguments)
    shown = CliRunner().invoke(main, [name, "--help"], terminal_width=60).stdout
    assert [line.strip() for line in shown.splitlines()[-len(command.examples) :]] == list(command.examples)


def test_the_help_lists_the_exit_codes() -> None:
    lines = CliRunner().invoke(main, ["--help"]).stdout.splitlines()
    assert [int(line.split()[0]) for line in lines[-len(EXIT_CODES) :]] == list(EXIT_CODES)


def completions(*words: str) -> list[tuple[str, str]]:
    shell = get_completion_class("bash")
    assert shell
    *before, last = words
    found = shell(main, {}, "infeed", "_INFEED_COMPLETE").get_completions(before, last)
    return [(item.type, item.value) for item in found]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ru",), [("plain", "run"), ("plain", "runs")]),
        (("run", "--ep"), [("plain", "--epochs")]),
        (("run", "ta"), [("plain", "tabular")]),
        (("run", "my"), [("file", "my")]),
        (("run", "--root", "r"), [("dir", "r")]),
        (("compile", "--target", "ver"), [("plain", "vertex")]),
        (("inspect", "da"), [("file", "da")]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_commands_options_choices_and_paths_are_completed(words: tuple[str, ...], found: list[tuple[str, str]]) -> None:
    assert completions(*words) == found


def test_completion_loads_nothing_heavy() -> None:
    program = (
        "import atexit, sys\n"
        "heavy = {'tensorflow', 'tfx', 'apache_beam', 'keras', 'ml_metadata', 'kfp', 'sklearn', 'matplotlib'}\n"
        "atexit.register(lambda: print(sorted(heavy & set(sys.modules))))\n"
        "from infeed.pipelines.cli import main\n"
        "main(prog_name='infeed')"
    )
    asked = {"_INFEED_COMPLETE": "bash_complete", "COMP_WORDS": "infeed re", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["plain,report", "plain,rehearse", "[]"]


@pytest.mark.parametrize("module", ["pyarrow_hotfix", "PIL"], ids=["the command line", "a command"])
def test_ctrl_c_while_modules_are_imported_ends_the_command(tmp_path: Path, module: str) -> None:
    swallows = "import pathlib, time\nfor name in 'ab':\n    try:\n        pathlib.Path(__file__ + name).touch()\n"
    (tmp_path / f"{module}.py").write_text(
        f"{swallows}        time.sleep(60)\n    except BaseException:\n        pass\n"
    )
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "infeed", "inspect", "x"]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.PIPE, text=True) as run:
        while not (tmp_path / f"{module}.pya").exists():
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        assert run.communicate(timeout=60)[1] == "interrupted\n"
    assert run.returncode == 130


# Python runs it at its start. The import with the given number after that of `infeed` gets Ctrl-C.
INTERRUPTS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
left = -1
def count(event, what):
    global left
    if event == "import":
        left = {number} if what[0] == "infeed" else left - 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(count)
"""


@pytest.mark.parametrize("number", [1, 2, 5, 20, 100, 300])
def test_ctrl_c_at_any_import_is_no_traceback(tmp_path: Path, number: int) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS.replace("{number}", str(number)))
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", "from infeed.__main__ import main\nmain()", "inspect", "x"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_the_package_itself_imports_nothing_before_ctrl_c_is_handled() -> None:
    program = "import sys; before = set(sys.modules); import infeed; print(set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "{'infeed'}\n"


def test_ctrl_c_while_arguments_are_parsed_ends_with_130() -> None:
    program = (
        "import click, os, signal\n"
        "from infeed.__main__ import main\n"
        "click.Group.resolve_command = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program, "inspect", "x"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_commands_work_without_docstrings(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    program = (
        "from click.testing import CliRunner\n"
        "from infeed.pipelines.cli import _COMMANDS, main\n"
        "calls = [[name, '--help'] for name in _COMMANDS] + [['ingest', 'a.csv', 'out', '--on-bad-row', 'reject']]\n"
        "print([call for call in calls if CliRunner().invoke(main, call).exit_code])\n"
        "from infeed.components.dataset.manifest import Manifest\n"
        "print(Manifest.read('out').options['on_bad_row'])"
    )
    command = [sys.executable, "-OO", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\nreject\n", "")


def test_names_that_the_encoding_of_the_terminal_lacks_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("größe,y\n1,2\n", encoding="utf-8")
    assert infeed("ingest", tmp_path / "a.csv", tmp_path / "out", "--split", "all=1").exit_code == 0
    command = [sys.executable, "-m", "infeed", "inspect", str(tmp_path / "out")]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=ascii_only, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"gr\xf6\xdfe" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        "runs --root s3://KEY:a/bcSECRET@b/x",
        "runs --root s3://bucket --run s3://KEY:SECRET@b/x",
        "ingest a.csv out s3://KEY:SECRET@b/x",
        "inspect s3://b/x --examples s3://KEY:SECRET@b/x",
    ],
)
def test_a_password_in_a_path_is_shown_by_no_command(words: str) -> None:
    done = infeed(*words.split())
    assert done.exit_code == 2
    assert "SECRET" not in done.output

import time

from infeed.pipelines.doctor import Finding, Level, examine


def finds(*names):
    return lambda: [Finding("run", name, "there") for name in names]


def breaks():
    raise OSError("no such device")


def test_the_findings_are_in_the_order_of_the_checks():
    def slow():
        time.sleep(0.05)
        return finds("first", "second")()

    assert [finding.name for finding in examine([("run", slow), ("build", finds("third"))])] == [
        "first",
        "second",
        "third",
    ]


def test_a_check_that_breaks_is_a_finding_and_the_others_are_made_all_the_same():
    broken, whole = examine([("build", breaks), ("run", finds("CPU"))])
    assert (broken.purpose, broken.name, broken.level) == ("build", "breaks", Level.PROBLEM)
    assert broken.found == "OSError: no such device"
    assert whole == Finding("run", "CPU", "there")

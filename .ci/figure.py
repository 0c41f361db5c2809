"""Print the last line of a make target: what ran, from the report that pytest wrote.

Usage: figure.py NAME REPORT.xml
"""

import sys
from pathlib import Path
from xml.etree import ElementTree


def main(name: str, report: Path) -> None:
    """Print one line for the report, or say that there is none."""
    if not report.exists():
        print(f"{name}: no tests ran")
        return
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    count = {
        key: sum(int(suite.get(key, 0)) for suite in suites)
        for key in ("tests", "failures", "errors", "skipped")
    }
    seconds = sum(float(suite.get("time", 0)) for suite in suites)
    bad = count["failures"] + count["errors"]
    parts = [f"{count['tests'] - bad - count['skipped']} passed"]
    parts += [f"{bad} failed"] if bad else []
    parts += [f"{count['skipped']} skipped"] if count["skipped"] else []
    spent = f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    print(f"{name}: {', '.join(parts)} in {spent}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

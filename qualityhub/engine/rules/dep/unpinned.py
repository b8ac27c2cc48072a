"""DEP001."""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement

from qualityhub.engine.rules.model import Context, Found, Page, Rule
from qualityhub.engine.rules.views import ALL_FAMILIES

COMMIT = re.compile(r"@[0-9a-f]{40}(?:[#?]|$)")
ARCHIVE_HASH = re.compile(r"#(?:.*&)?sha256=[0-9a-f]{64}")


class UnpinnedDependency(Rule):
    """A dependency whose version the next build may change."""

    code = "DEP001"
    title = "Dependency is not pinned"
    cost = "static"
    severity = "warning"
    families = ALL_FAMILIES
    layers = ("environment",)
    page = Page(
        what=(
            "Reads declared requirements (`qualityhub.toml`, PEP 723 blocks, pyproject and "
            "requirements files, `pip install` lines of a Dockerfile) and expects one exact "
            "version, commit or hash each. Sources that are their own declaration, such as "
            "`gymnasium:ID`, are locked by the inspection instead."
        ),
        why=(
            "The next build takes another version. Rewards change between two weeks of one run "
            "and nothing in the package shows why."
        ),
        example="`RUN pip install numpy pandas`",
        fix="Write `numpy==2.2.1`, or commit a lock file with hashes and install from it.",
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "every declared dependency names one version"

    def check_package(self, context: Context) -> Iterable[Found]:
        """Report each unpinned requirement once."""
        environment = context.environment
        if not environment.dependencies.self_declared:
            where = ", ".join(environment.dependencies.sources)
            for text in environment.dependencies.requirements:
                if not pinned(text):
                    yield self._found(text, None, where)
        for task in environment.tasks:
            for text in task.data.get("image_requirements", ()):
                if not pinned(text):
                    yield self._found(text, task.id, str(task.data.get("dockerfile", "")))

    @staticmethod
    def _found(text: str, task: str | None, where: str) -> Found:
        return Found(
            message=f"{text!r} should name one version, as in 'name==1.2.3'.",
            ground=f"unpinned {name_of(text)}",
            task=task,
            evidence={"expected": "name==version", "seen": text, "declared_in": where},
            location=where,
        )


def pinned(text: str) -> bool:
    """Say whether a requirement can mean one build only."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return bool(COMMIT.search(text) or ARCHIVE_HASH.search(text))
    if requirement.url:
        return bool(COMMIT.search(requirement.url) or ARCHIVE_HASH.search(requirement.url))
    return any(
        spec.operator == "===" or (spec.operator == "==" and not spec.version.endswith(".*"))
        for spec in requirement.specifier
    )


def name_of(text: str) -> str:
    """Return the distribution's name, or the text where it has none."""
    try:
        return Requirement(text).name.lower()
    except InvalidRequirement:
        return text


RULE = UnpinnedDependency()

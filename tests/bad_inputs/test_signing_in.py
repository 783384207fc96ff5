"""Every bad input of the catalogue that a client gets while it signs in, from real servers, with the exact outcome."""

from __future__ import annotations

import pytest

from . import signing_in
from .catalogue import Case
from .running import CASES


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "sign_in"], ids=lambda case: case.id)
async def test_a_hostile_authorization_server_does_no_more_than_the_catalogue_says(case: Case) -> None:
    await signing_in.run(case)

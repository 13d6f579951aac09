"""Every page in a real browser, once in each look: nothing in its console, no fault of axe's, whole on a phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, TimeoutError

from tests.services import service_binary
from tests.web.conftest import OpenPage
from tests.web.page_checks import axe_faults, frame_faults
from tests.web.pictures import DESKTOP, LOOKS, PHONE
from tests.web.pictures import open_page as goto
from tests.web.site import Site
from tests.web.whole_site import WholeSite, whole_site

# Some hundred pages, on a machine that may do other things too.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeSite]:
    service_binary("chromium")
    with whole_site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture(scope="module")
def site(whole: WholeSite) -> Site:
    return whole.site


def test_every_page_is_sound_in_light_and_dark_and_on_a_phone(whole: WholeSite, open_page: OpenPage) -> None:
    page = open_page("ada", viewport=DESKTOP, color_scheme="light")
    faults = [f"frame: {fault}" for fault in axe_faults(page)]
    for name in opened(page, whole, whole.pages, faults):
        found = axe_faults(page, only="main")
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="dark")
        found += frame_faults(page, LOOKS["phone"])
        found += [f"dark: {fault}" for fault in axe_faults(page, only="main", rules=("color-contrast",))]
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(DESKTOP)
        faults += [f"{name}: {fault}" for fault in found]
    assert not faults, "\n".join(faults)


def test_what_people_look_at_fits_a_phone_in_turkish(whole: WholeSite, open_page: OpenPage) -> None:
    """What axe says of Turkish, and forms in it, are judged where their pictures are taken."""
    look = {**LOOKS["turkish"], "viewport": PHONE}
    page, faults = open_page("ada", **look), list[str]()
    for name in opened(page, whole, whole.lists, faults):
        faults += [f"{name}: {fault}" for fault in frame_faults(page, look)]
    assert not faults, "\n".join(faults)


def opened(page: Page, whole: WholeSite, pages: dict[str, str], faults: list[str]) -> Iterator[str]:
    """The name of each page while it is open; what does not come is one of the faults."""
    for name, path in pages.items():
        try:
            goto(page, whole.site, path)
        except (AssertionError, TimeoutError) as error:
            faults.append(f"{name}: {error}")
        else:
            yield name

"""A browser for tests of pages: Chromium without a window, from Debian's packages, driven by Playwright.

Nothing is installed. The fonts are unpacked with the browser, so that pages look the same on all machines.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Self

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, ConsoleMessage, Page, Response, ViewportSize, sync_playwright

from tests.peer.debian_packages import UnpackedPackages, unpacked

WIDTHS: Final = (390, 1440)
"""Pixels: a telephone, and a wide screen."""
SCHEMES: Final = ("light", "dark")
HEIGHT: Final = 900
TIMEOUT: Final = 60_000.0
"""Milliseconds for what a page does on a busy machine."""

# The program, its data, and the fonts.
_PACKAGES: Final = ("chromium-headless-shell", "chromium-common", "fonts-roboto-unhinted", "fonts-dejavu-core")
_FONT_SETTINGS: Final = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{packages}/usr/share/fonts</dir>
  <cachedir>{home}/fonts</cachedir>
  <alias><family>sans-serif</family><prefer><family>Roboto</family></prefer></alias>
  <alias><family>sans</family><prefer><family>Roboto</family></prefer></alias>
  <alias><family>system-ui</family><prefer><family>Roboto</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""

_OVERFLOW: Final = """() => {
  const root = document.documentElement, width = root.clientWidth;
  if (root.scrollWidth <= width) return [];
  const scrolls = (each) => each.closest(".scroll") !== null;
  return [...document.querySelectorAll("body *")]
    .filter((each) => each.getBoundingClientRect().right > width + 0.5 && !scrolls(each))
    .map((each) => `${each.tagName.toLowerCase()}.${each.getAttribute("class") ?? ""} ends at `
      + `${Math.round(each.getBoundingClientRect().right)} of ${width} px: ${each.textContent.trim().slice(0, 60)}`)
    .concat([`the page is ${root.scrollWidth} px wide`]).slice(-5);
}"""
"""Returns what makes the page wider than the window."""

_CONTROLS: Final = "a[href], button, input, select, textarea, summary, [tabindex]"
_UNSEEN: Final = """(controls) => [...document.querySelectorAll(controls)]
  .filter((each) => each.tabIndex >= 0 && !each.disabled && each.checkVisibility())
  .flatMap((each) => {
    each.focus({ preventScroll: true });
    const box = each.matches("svg a") ? each.querySelector("rect") : null, style = getComputedStyle(box ?? each);
    const isSeen = box ? style.strokeWidth === "2px" : style.outlineStyle !== "none" && style.outlineWidth !== "0px";
    const isReached = document.activeElement === each && each.tabIndex === 0;
    return isSeen && isReached ? [] : [each.outerHTML.replace(/\\s+/g, " ").slice(0, 160)];
  })"""
"""Returns the controls that keys do not reach in their order, or that do not show that they have the focus."""
_WATCH_FOCUS: Final = """(controls) => {
  window.left = new Set([...document.querySelectorAll(controls)]
    .filter((each) => each.tabIndex >= 0 && !each.disabled && each.checkVisibility()));
  document.addEventListener("focusin", ({ target }) => window.left.delete(target));
  return window.left.size;
}"""

_BARRIERS: Final = """([context, options]) => axe.run(context, options).then((results) => results.violations
  .flatMap((rule) => rule.nodes.map((node) =>
    `${rule.impact}: ${rule.help}: ${node.html.slice(0, 160)} ${node.failureSummary}`)))"""
_ROWS_ALIKE: Final = "tbody tr:nth-child(n+4)"
"""Rows that have what those above have: looking at all would take seconds."""


def chromium() -> UnpackedPackages:
    """Return the packages of the browser, downloaded once per machine.

    Raises:
        PeersUnavailableError: The machine has no apt, or its sources can't be reached.
    """
    return unpacked(*_PACKAGES)


class Chromium:
    """A running browser."""

    def __init__(self) -> None:
        """Start it.

        Raises:
            PeersUnavailableError: The machine can't get it.
        """
        packages = chromium()
        self._home = TemporaryDirectory(prefix="chromium-")
        fonts = Path(self._home.name) / "fonts.conf"
        fonts.write_text(_FONT_SETTINGS.format(packages=packages.root, home=self._home.name))
        program = packages.root / "usr/lib/chromium/chromium-headless-shell"
        environment = {"FONTCONFIG_FILE": str(fonts), "HOME": self._home.name, **packages.environment()}
        self._playwright = sync_playwright().start()
        try:
            self._browser: Browser = self._playwright.chromium.launch(
                executable_path=program, env=environment, timeout=TIMEOUT
            )
        except BaseException:
            self._playwright.stop()
            self._home.cleanup()
            raise

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._browser.close()
        self._playwright.stop()
        self._home.cleanup()

    def visitor(self, url: str, *, width: int = WIDTHS[-1], is_still: bool = False) -> "Visitor":
        """Return somebody who opens pages below an address, without cookies at first.

        Args:
            url: The address.
            width: Pixels of the window.
            is_still: Whether parts of a page stay as they are, as in a window that nobody sees.
        """
        size = ViewportSize(width=width, height=HEIGHT)
        context = self._browser.new_context(base_url=url, viewport=size, reduced_motion="reduce")
        context.set_default_timeout(TIMEOUT)
        if is_still:
            context.add_init_script("Object.defineProperty(document, 'hidden', { get: () => true })")
        return Visitor(context.new_page())


class Visitor:
    """Somebody who opens pages in one window.

    Attributes:
        page: The window.
        complaints: What the browser has complained about: errors on its console, requests that failed or were
            refused, what the policy has blocked, and dialogs.
    """

    def __init__(self, page: Page) -> None:
        """Watch a window."""
        self.page = page
        self.complaints: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(f"error of a script: {error}"))
        page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url} {request.failure}"))
        page.on("response", self._receive)
        page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the window; nothing may be left to complain about."""
        self.page.context.close()
        if kind is None:
            assert self.complaints == []

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.complaints.append(f"{message.type} on the console: {message.text}")

    def _receive(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"status {response.status}: {response.url}")

    def open(self, address: str) -> None:
        """Open a page."""
        self.page.goto(address)

    def too_wide(self, width: int) -> list[str]:
        """Return what makes the page wider than a window of that many pixels: then all of it scrolls sideways."""
        self.page.set_viewport_size(ViewportSize(width=width, height=HEIGHT))
        found: list[str] = self.page.evaluate(_OVERFLOW)
        return found

    def barriers(self, scheme: str) -> list[str]:
        """Return what axe finds on the page in light or dark: barriers for people who see, hear or move differently."""
        self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE_SCRIPT)
        if scheme == SCHEMES[0]:
            context, options = {"exclude": [_ROWS_ALIKE]}, {"resultTypes": ["violations"]}
        else:  # only colours depend on the scheme
            context, options = {"include": ["main"], "exclude": [_ROWS_ALIKE]}, {"runOnly": ["color-contrast"]}
        found: list[str] = self.page.evaluate(_BARRIERS, [context, options])
        return found

    def unseen(self) -> list[str]:
        """Return the controls that keys do not reach in their order, or that do not show that they have the focus."""
        self.page.keyboard.press("Tab")  # browsers show the focus to those who use keys
        found: list[str] = self.page.evaluate(_UNSEEN, _CONTROLS)
        return found

    def left_by_tab(self) -> list[str]:
        """Press Tab until the page has been gone through; return the controls that had no turn."""
        for _ in range(self.page.evaluate(_WATCH_FOCUS, _CONTROLS) + 1):
            self.page.keyboard.press("Tab")
        found: list[str] = self.page.evaluate("[...left].map((each) => each.outerHTML.slice(0, 160))")
        return found

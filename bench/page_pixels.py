"""The browser of `beamport-bench web`: Chromium shows an image whose blocks are the bits of its number.

    page_pixels.py URL SECONDS

Opens the page, waits for an image, watches its canvas for SECONDS, and prints JSON: `[[number, ms since 1970], ...]`, each
number with the time of the first animation frame at which the canvas had it. A number is read from the pixels: of
`ROWS` x `COLUMNS` blocks the first is bright, the second is dark, and each other one is a bit, lowest first.
"""

import json
import os
import shutil
import sys
import time

from playwright.sync_api import sync_playwright

ROWS, COLUMNS = 3, 6
# Longest wait for the browser and the page, ms.
PATIENCE = 120_000

# The canvas has the number of its message as an attribute, so that pixels are read back once for each image alone.
WATCH = """([canvas, rows, columns]) => {
    const context = canvas.getContext('2d');
    const seen = globalThis.seen = [];
    let drawn = null;
    const bright = (at) => {
        const x = Math.floor((at % columns + 0.5) * canvas.width / columns);
        const y = Math.floor((Math.floor(at / columns) + 0.5) * canvas.height / rows);
        const [red, green, blue] = context.getImageData(x, y, 1, 1).data;
        return red + green + blue;
    };
    const look = () => {
        if (canvas.dataset.sequence !== drawn) {
            drawn = canvas.dataset.sequence;
            const middle = (bright(0) + bright(1)) / 2;
            let number = 0;
            for (let at = 2; at < rows * columns; at += 1) if (bright(at) > middle) number += 2 ** (at - 2);
            if (seen.at(-1)?.[0] !== number) seen.push([number, Date.now()]);
        }
        requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
}"""


def main(url: str, seconds: float) -> None:
    program = shutil.which("chromium")
    if not program:
        sys.exit("no `chromium` on PATH: install the package of the system")
    # Root has no sandbox of Chromium.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments, timeout=PATIENCE)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE)
        page.goto(url)
        canvas = page.locator(".picture > canvas[data-sequence]")
        canvas.wait_for()
        canvas.evaluate(f"(canvas) => ({WATCH})([canvas, {ROWS}, {COLUMNS}])")
        time.sleep(seconds)
        print(json.dumps(page.evaluate("seen")))
        browser.close()


main(sys.argv[1], float(sys.argv[2]))

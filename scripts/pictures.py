"""The README's pictures, from a directory of runs with a `grasp-mappo` in it: `python scripts/pictures.py demo`.

Writes the live page to docs/images/watch.png and an episode to docs/images/episode.gif. It needs chromium: `make
pictures` installs it.
"""

import argparse
import shutil
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import grasp
from grasp.dashboard import Server

IMAGES = Path(__file__).parent.parent / "docs" / "images"
PATIENCE = 60
FLAGS = ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1360,1290")


def browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in FLAGS:
        options.add_argument(f"--{flag}")
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(str(shutil.which("chromedriver"))))


def watch(runs: Path, out: Path) -> None:
    """The page once its curves and its conflict view are drawn."""
    driver = browser()
    try:
        with Server(runs, port=0) as server:
            driver.get(server.url)
            wait = WebDriverWait(driver, PATIENCE)
            for drawn in ("#charts .gc-line", "#heat .gc-cell"):
                wait.until(lambda _, drawn=drawn: driver.find_elements(By.CSS_SELECTOR, drawn), drawn)
            wait.until(lambda _: "reading" not in driver.find_element(By.ID, "status").text, "all is read")
            time.sleep(1)  # the last answer is drawn
            driver.save_screenshot(str(out))
    finally:
        driver.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", type=Path, help="a directory with a grasp-mappo in it, such as demo")
    runs = parser.parse_args().runs
    IMAGES.mkdir(exist_ok=True)
    watch(runs, IMAGES / "watch.png")
    grasp.play(runs / "grasp-mappo", out=IMAGES / "episode.gif", overlay=True)


if __name__ == "__main__":
    main()

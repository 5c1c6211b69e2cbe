"""The pictures of the README.

`python scripts/pictures.py` draws docs/images/result.png from the committed runs in results/. With a directory that
holds a run `grasp-mappo`, such as `python scripts/pictures.py demo`, it also takes a screenshot of the live page
(docs/images/watch.png) and plays an episode (docs/images/episode.gif); that needs chromium, which `make pictures`
installs.
"""

import argparse
import dataclasses
import shutil
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import grasp
from grasp.analysis import plots, run_data
from grasp.dashboard import Server

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
RESULTS = [
    ROOT / "results" / task / "runs" / algo
    for task in ("confirmation_5m_vs_6m", "confirmation_8m_vs_9m")
    for algo in ("mappo", "grasp-mappo")
]
PATIENCE = 60
FLAGS = ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1360,1290")


def draw_result(out: Path) -> None:
    """Win rates of MAPPO and GRASP-MAPPO on both confirmation maps, without the panels of training metrics."""
    runs = [
        dataclasses.replace(
            run, label=path.name, seeds=tuple(dataclasses.replace(seed, training={}) for seed in run.seeds)
        )
        for path, run in zip(RESULTS, run_data.load_runs(RESULTS), strict=True)
    ]
    plots.curves(runs, out)


def browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in FLAGS:
        options.add_argument(f"--{flag}")
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(str(shutil.which("chromedriver"))))


def take_screenshot(runs: Path, out: Path) -> None:
    """The live page once its curves and its conflict view are drawn."""
    driver = browser()
    try:
        with Server(runs, port=0) as server:
            driver.get(server.url)
            wait = WebDriverWait(driver, PATIENCE)
            for drawn in ("#charts .gc-line", "#heat .gc-cell"):
                wait.until(lambda _, drawn=drawn: driver.find_elements(By.CSS_SELECTOR, drawn), drawn)
            wait.until(lambda _: "reading" not in driver.find_element(By.ID, "status").text, "all files are read")
            time.sleep(1)  # the last response is drawn
            driver.save_screenshot(str(out))
    finally:
        driver.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", type=Path, nargs="?", help="a directory that holds a run grasp-mappo, such as demo")
    runs = parser.parse_args().runs
    IMAGES.mkdir(exist_ok=True)
    draw_result(IMAGES / "result.png")
    if runs is not None:
        take_screenshot(runs, IMAGES / "watch.png")
        grasp.play(runs / "grasp-mappo", out=IMAGES / "episode.gif", overlay=True)


if __name__ == "__main__":
    main()

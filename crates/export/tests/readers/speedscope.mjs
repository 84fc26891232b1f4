// Opens a profile in speedscope's page, in Chromium, and has it saved again as speedscope reads it:
//   node speedscope.mjs NODE_MODULES PROFILE [PICTURE]
// prints what it saves; PICTURE is a PNG of the page. The browser is `chromium` of the PATH.

import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, profile, picture] = process.argv.slice(2);
const { chromium } = createRequire(join(modules, "x.js"))("playwright-core");

const folders = process.env.PATH.split(delimiter);
const executablePath = folders.map((folder) => join(folder, "chromium")).find(existsSync);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
try {
  const page = await browser.newPage({ viewport: { width: 1000, height: 500 }, acceptDownloads: true });
  page.on("dialog", (dialog) => { throw new Error(dialog.message()); });
  await page.goto(pathToFileURL(join(modules, "speedscope/dist/release/index.html")).href);
  await page.setInputFiles("input[type=file]", profile);
  await page.waitForSelector("text=Left Heavy");
  if (picture) {
    await page.keyboard.press("2");
    await page.waitForTimeout(500);
    await page.screenshot({ path: picture });
  }
  const saved = page.waitForEvent("download");
  await page.keyboard.press("Control+s");
  process.stdout.write(readFileSync(await (await saved).path()));
} finally {
  await browser.close();
}

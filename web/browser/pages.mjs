// Opens every page of a scheduler in a browser, in the middle of a build, and uses it as people do.
// test/pages/pages_test.go starts the farm and the build, and says with environment variables:
//
//   PAGES    the address of the pages
//   FIRST    that of the pages of a farm that nobody has used
//   PUBLISHED  an invocation whose events Bazel has published: an action and a test have failed
//   GATE     a file that does not exist; running actions end when it does
//   IMAGES   a folder for screenshots; empty: none are made
//   BROWSER  the browser's program
//
// It fails if a page logs an error or a warning, breaks a rule of WCAG 2 A or AA, or has to be
// scrolled sideways, at any of the sizes and colours below. Nothing is waited for by time.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import axe from "axe-core";
import { chromium } from "playwright-core";

const { PAGES, FIRST, PUBLISHED, GATE, IMAGES, BROWSER } = process.env;
const timeout = 180_000; // of whatever has to come; slow machines are not broken
const sizes = { desktop: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };
const narrowest = { width: 360, height: 740 }; // where a page must fit, too

const faults = [];
const browser = await chromium.launch({
  executablePath: BROWSER, timeout,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"], // root, in a container
});
try {
  const context = await browser.newContext({ viewport: sizes.desktop });
  context.setDefaultTimeout(timeout);
  const page = await context.newPage();
  page.on("console", (m) => { if (["error", "warning"].includes(m.type())) faults.push(`console: ${m.text()}`); });
  page.on("pageerror", (e) => faults.push(`page error: ${e.message}`));
  await tour(page);
} finally {
  await browser.close();
}
assert.deepEqual(faults, []);

async function tour(page) {
  if (IMAGES) mkdirSync(IMAGES, { recursive: true });
  await open(page, "/");
  await page.locator("tbody tr", { hasText: "busy" }).waitFor();
  await page.locator("figcaption", { hasText: /^Waiting actions\s*[1-9]/ }).waitFor(); // a sample of the build is there
  await read(page);
  await look(page, "overview");
  await firstRun(page);
  await published(page);
  await invocations(page);
  const queued = await operation(page, "queued");

  await open(page, queued);
  await page.getByText("It waits:").waitFor();
  await look(page, "queued");
  await page.getByRole("button", { name: "Cancel this operation" }).click();
  await page.getByText("cancelled by an operator").waitFor();
  await look(page, "cancelled");

  await workers(page);
  await history(page);
  await open(page, "/quotas");
  await page.locator("tbody tr", { hasText: "main" }).waitFor();
  await look(page, "quotas");

  await login(page);
  const running = await operation(page, "executing"); // as late as that: one that ran before may have been stopped
  await open(page, running);
  const build = await page.locator("dt:text-is('Invocation') + dd a").getAttribute("href");
  await open(page, build);
  await page.locator(".lanes .now[d^=M]").waitFor({ state: "attached" });
  await page.evaluate(() => { document.querySelector("main h1").dataset.old = "yes"; });
  await page.locator("h1:not([data-old])").waitFor();
  await page.locator(".lanes .now[d^=M]").waitFor({ state: "attached" }); // the time line is not lost when the page moves
  await look(page, "build-running", false);
  await open(page, running);
  await page.locator("pre[data-stream$=stdout]", { hasText: "working" }).waitFor();
  await look(page, "running", false);
  writeFileSync(GATE, "");
  await page.locator(".card", { hasText: "Prefetch" }).waitFor(); // it has ended, and the page has noticed
  await page.locator("pre.printed", { hasText: "done" }).waitFor();
  await look(page, "done");
  await action(page);
  await open(page, build);
  await page.getByRole("link", { name: "//pages:action" }).first().waitFor();
  await look(page, "build");

  await away(page);
  const response = await page.goto(PAGES + "/nothing");
  assert.equal(response.status(), 404);
  faults.splice(0, faults.length, ...faults.filter((f) => !f.includes("404"))); // which the browser logs
  await look(page, "error");
}

// away sees a page say that the scheduler does not answer, and no longer say it once it does.
async function away(page) {
  const updates = (answer) => (route) => (route.request().headers().accept === "text/event-stream" ? answer(route) : route.continue());
  const aborted = updates((route) => route.abort("connectionrefused"));
  await page.route("**/quotas", aborted);
  await open(page, "/quotas");
  const stale = page.getByText("not updated at the moment");
  await stale.waitFor();
  await look(page, "away", false);
  await page.unroute("**/quotas", aborted);
  await stale.waitFor({ state: "detached" });
  await page.route("**/quotas", updates((route) => route.fulfill({ status: 503 })));
  await open(page, "/quotas");
  await page.getByText("no longer updated: reload it").waitFor();
  await page.unroute("**/quotas");
  faults.splice(0, faults.length, ...faults.filter((f) => !f.includes("ERR_CONNECTION_REFUSED") && !f.includes("503"))); // likewise
}

// open goes to a page, whose policy must forbid what it does not need.
async function open(page, path, at = PAGES) {
  const response = await page.goto(at + path, { waitUntil: "load" });
  assert.equal(response.status(), 200, `${path}: ${response.ok() ? "" : await page.locator("main").innerText()}`);
  assert.match(response.headers()["content-security-policy"], /default-src 'none'.*script-src 'self'/);
}

// read has all plots say what they were at the time under the pointer.
async function read(page) {
  const plots = page.locator(".plane .plot");
  const box = await plots.first().boundingBox();
  await page.mouse.move(box.x + box.width - 1, box.y + box.height / 2);
  await page.locator("figcaption .read", { hasText: / at \d\d-\d\d \d\d:\d\d UTC$/ }).first().waitFor();
  assert.equal(await page.locator(".plot .cross[d]").count(), await plots.count());
  await page.mouse.move(1, 1);
  await page.locator(".plot .cross[d]").first().waitFor({ state: "detached" });
}

// firstRun sees what pages say before anybody has used the farm.
async function firstRun(page) {
  await open(page, "/", FIRST);
  await page.locator("pre", { hasText: "build --remote_executor=grpc://" }).waitFor();
  await look(page, "first");
  for (const name of ["invocations", "operations", "history", "workers", "quotas"]) {
    await open(page, `/${name}`, FIRST);
    await look(page, `first-${name}`);
  }
}

// published sees a build as Bazel told of it, and the action that failed, with its inputs.
async function published(page) {
  await open(page, `/builds/${PUBLISHED}`);
  await page.getByText("1 passed, 1 did not").waitFor();
  await page.locator("main", { hasText: "//app:broken" }).waitFor();
  await look(page, "build-published");
  await page.locator(".records a", { hasText: "//app:broken" }).first().click();
  await page.locator("pre.printed", { hasText: "no such thing" }).waitFor();
  await look(page, "record-broken");
  await page.locator("dt:text-is('Action') + dd a").click();
  await page.getByRole("link", { name: "folders, and files to download" }).click();
  await page.locator("tbody a").first().waitFor();
  await look(page, "folder");
}

// invocations opens a branch with the keyboard, and sees it stay open when the page moves.
async function invocations(page) {
  await open(page, "/invocations");
  const branch = page.locator("details[id]").first();
  const id = await branch.getAttribute("id"); // is open, as it is the only one
  const opened = page.locator(`[id="${id}"][open]`);
  for (const there of ["detached", "attached"]) {
    await branch.locator("> summary").focus();
    await page.keyboard.press("Enter");
    await opened.waitFor({ state: there });
  }
  await page.evaluate(() => { document.querySelector("main h1").dataset.old = "yes"; });
  await page.locator("h1:not([data-old])").waitFor();
  await opened.waitFor();
  await look(page, "invocations");
}

// operation returns the path of the last one that runs or that waits.
async function operation(page, stage) {
  await open(page, "/operations");
  if (stage === "queued") await look(page, "operations");
  const row = page.locator("tr", { hasText: stage });
  await row.first().waitFor();
  return row.last().locator("a").first().getAttribute("href");
}

// workers drains one and takes that back.
async function workers(page) {
  await open(page, "/workers");
  await page.locator("summary", { hasText: "Actions" }).first().click();
  await page.locator("td", { hasText: " of " }).first().waitFor(); // how full its store is
  await look(page, "workers");
  await page.getByRole("button", { name: /^Drain/ }).click();
  await page.locator("td", { hasText: "draining" }).first().waitFor();
  await page.getByRole("heading", { name: "Drained by pattern" }).waitFor();
  await look(page, "draining");
  await page.getByRole("button", { name: /^Undrain/ }).click();
  await page.getByRole("button", { name: /^Drain/ }).waitFor();
}

// login logs in, comes back to the page that was asked for, and logs out.
async function login(page) {
  await open(page, "/login?to=/quotas");
  await look(page, "login");
  await page.getByRole("link", { name: "Stand-in" }).click();
  await page.waitForURL(PAGES + "/quotas");
  await page.getByText("ann@example.com").waitFor();
  await look(page, "logged-in");
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByRole("heading", { name: "You are logged out" }).waitFor();
  await look(page, "logged-out");
  await page.goto(PAGES + "/login?with=Away");
  await page.getByText("cannot be reached").waitFor();
  faults.splice(0, faults.length, ...faults.filter((f) => !f.includes("503")));
  await look(page, "login-away");
}

// history finds what ended before the farm was started, and looks at it.
async function history(page) {
  await open(page, "/history");
  await page.getByRole("link", { name: "//mixed/library/of/things:target_6" }).waitFor();
  await look(page, "history");
  await page.getByRole("link", { name: "Failed", exact: true }).click();
  await page.getByRole("searchbox").or(page.getByLabel("Find", { exact: true })).fill("mixed/library user=ann");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "//mixed/library/of/things:target_0" }).waitFor();
  assert.equal(await page.locator("tbody tr").count(), 4);
  await look(page, "history-failed");
  await page.getByRole("link", { name: "//mixed/library/of/things:target_0" }).click();
  await page.getByText("Failed: exit code 139, as a shell reports SIGSEGV").waitFor();
  const above = await page.evaluate(() => document.querySelector("pre.printed").getBoundingClientRect().top);
  assert.ok(above < 400, `standard error begins at ${above} px`);
  await look(page, "record-failed");
  for (const [i, name] of [[5, "record-error"], [6, "record-cached"], [7, "record-evil"]]) {
    await open(page, `/operations/3e0d0000-0000-4000-8000-00000000000${i}`);
    await look(page, name);
  }
  await open(page, "/history?q=nothing-of-this-name");
  await page.getByRole("link", { name: "Show all" }).waitFor();
  await look(page, "history-empty");
  await open(page, "/builds/mixed");
  await look(page, "build-mixed");
  await large(page);
}

// large is a build of 20,000 actions, whose time line names what is under the pointer.
async function large(page) {
  await open(page, "/builds/large");
  const svg = page.locator(".lanes svg"), position = { x: 600, y: 9 * 20 + 4 };
  await svg.hover({ position });
  await page.locator(".lane-name", { hasText: /^\/\/large\/library.*, on host=build-1,position=4$/ }).waitFor();
  await look(page, "build-large");
  await svg.click({ position });
  await page.waitForURL(/\/operations\/1a49e000-/);
  await look(page, "record");
}

// action sees what is never read, once that has been learned.
async function action(page) {
  const path = await page.locator("dt:text-is('Action') + dd a").getAttribute("href");
  for (const end = Date.now() + timeout; ; ) {
    await open(page, path);
    if (await page.getByText("never read").count() || Date.now() > end) break;
  }
  const folder = page.locator(".inputs summary", { hasText: "pages/" }).first();
  await folder.focus();
  await page.keyboard.press("Enter");
  await page.locator(".row", { hasText: "unused.bin" }).getByText("never read").waitFor();
  await page.locator(".row", { hasText: "used.txt" }).getByText("read", { exact: true }).waitFor();
  await look(page, "action");
}

// look checks the page as it is now at all sizes and in all colours. Unless it has to go on, it stands
// still from then on, so that no two looks differ.
async function look(page, name, still = true) {
  if (still) await page.evaluate(() => { dispatchEvent(new Event("pagehide")); });
  await page.evaluate(axe.source);
  for (const [size, viewport] of Object.entries(sizes)) {
    for (const colorScheme of ["light", "dark"]) {
      await page.setViewportSize(viewport);
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      const at = `${name}-${size}-${colorScheme}`;
      if (IMAGES) await page.screenshot({ path: `${IMAGES}/${at}.png`, fullPage: true });
      const { violations } = await page.evaluate(() => globalThis.axe.run({
        runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], resultTypes: ["violations"],
      }));
      for (const v of violations) {
        for (const n of v.nodes) faults.push(`${at}: ${v.id}: ${n.html}: ${n.failureSummary}`);
      }
      await fits(page, at);
    }
  }
  await page.setViewportSize(narrowest);
  await fits(page, `${name}-${narrowest.width}`);
  await page.setViewportSize(sizes.desktop);
}

// fits checks that the page need not be scrolled sideways.
async function fits(page, at) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 0) faults.push(`${at}: the page is ${wide} px too wide`);
}

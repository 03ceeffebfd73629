// Makes the pictures of the documentation: SHOP=build/dev/tests/web/bulkhead_web_shop node tests/web/screenshots.mjs
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { disposeAll, launch, live, open, Process, row, TOKEN } from './harness.mjs';

const images = join(fileURLToPath(import.meta.url), '../../../docs/images');
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const browser = await launch();
const shop = await new Process(process.env.SHOP, []).withToken().start();
const put = (path, body) => shop.api(path, { method: 'PUT', token: TOKEN, body });
const shot = (page, name) => page.screenshot({ path: join(images, `dashboard-${name}.png`) });

// They watch from the start, so that their sparklines are full: a minute and a half of calm, analytics slow, a limit
// raised, calm again, slow again.
const page = await open(browser, shop.url);
const light = await open(browser, shop.url, { colorScheme: 'light' });
const narrow = await open(browser, shop.url, { viewport: { width: 360, height: 780 }, deviceScaleFactor: 2 });
const other = await open(browser, shop.url);
console.log('waiting for something to happen');
await wait(25_000);
await put('switches/slow', { on: true });
await wait(18_000);
await put('overrides/recommendations', { max_concurrent: 32, ttl: 900, reason: 'spring sale' });
await wait(8_000);
await put('switches/slow', { on: false });
await wait(25_000);
await put('switches/slow', { on: true });
await wait(14_000);

await shot(page, 'dark');
await shot(light, 'light');
await narrow.locator('#table-panel').evaluate((e) => e.scrollIntoView()); // latency, calls/s and waiting are in its rows
await shot(narrow, 'narrow');
await row(page, 'fraud-check').locator('.name button').click();
await page.locator('#detail').getByText('max_concurrent').first().waitFor();
await page.locator('#detail .segments button').first().click();
await wait(2500);
await shot(page, 'detail');
await page.keyboard.press('Escape');
await row(page, 'payments').locator('.more').click();
await page.locator('#menu').getByText('Resize…').click();
await page.locator('#dialog').getByLabel('Max concurrent').fill('4');
await page.locator('#dialog').getByLabel('Reason').fill('provider asks for less');
await shot(page, 'resize');
await page.keyboard.press('Escape');
await page.locator('#foot').scrollIntoViewIfNeeded();
await wait(1500);
await shot(page, 'panels');

await live(other);
await shop.stop();
await wait(13_000);
await shot(other, 'disconnected');
await browser.close();
await disposeAll();

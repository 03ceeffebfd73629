// The dashboard in a real Chromium, against running processes with real bulkheads: `bulkhead run`, `bulkhead demo --serve`, and
// for what needs traffic of every kind a shop that embeds the control plane (shop.cc). BULKHEAD and SHOP name the programs.
import assert from 'node:assert/strict';
import { createServer, request } from 'node:http';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import * as format from '../../control/web/format.js';
import { disposeAll, eventually, launch, live, open, Process, row, ADMIN, TOKEN } from './harness.mjs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const { BULKHEAD, SHOP } = process.env;

const FEW = 'bulkheads:\n  db: {max_concurrent: 20, max_queue: 10}\n  mail: {max_concurrent: 4, breaker: {}}\n';

let browser, shop;
before(async () => {
  browser = await launch();
  shop = await new Process(SHOP, []).withToken().start();
});
after(async () => {
  await browser?.close();
  await disposeAll();
});

async function closes(page, expected = []) {
  assert.deepEqual(page.complaints, expected, 'the console was silent');
  await page.context().close();
}

// Evaluated by the test, not by the page: the page's CSP lets nobody else in.
async function assertAccessible(page, what) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run({ exclude: ['tbody tr:nth-child(n + 15)'] }, { resultTypes: ['violations'] }));
  const grave = violations.filter((v) => v.impact === 'serious' || v.impact === 'critical');
  assert.deepEqual(grave.map((v) => `${v.id}: ${v.nodes.map((n) => `${n.target} ${n.failureSummary}`).slice(0, 3).join('; ')}`), [], what);
}

const shownNumber = async (page, name, column) => (await row(page, name).locator(`.c-${column}`).innerText()).replace(/\s+/g, ' ').trim();

async function openMenu(page, name) {
  await row(page, name).locator('.more').click();
  return page.locator('#menu');
}

test('it loads from its own server alone, under a strict policy, and says nothing on the console', async () => {
  const origins = new Set();
  const page = await open(browser, shop.url, {});
  page.on('request', (r) => origins.add(new URL(r.url()).origin));
  const response = await page.reload();
  await live(page);
  const policy = response.headers()['content-security-policy'];
  assert.match(policy, /default-src 'none'/);
  assert.doesNotMatch(policy, /unsafe|\*|https?:/);
  assert.deepEqual([...origins], [new URL(shop.url).origin]);
  assert.equal(await page.locator('#instance').innerText(), 'shop-1');
  assert.match(await page.locator('#meta').innerText(), /^v0\.2\.0 · up /);
  assert.equal(new URL(page.url()).hash, '', 'the token does not stay in the address');
  await closes(page);
});

test('it shows the numbers of the process', async () => {
  const page = await open(browser, shop.url);
  await live(page);
  const { bulkheads } = await (await shop.api('snapshot')).json();
  assert.deepEqual((await page.locator('#table tbody tr').evaluateAll((rows) => rows.map((r) => r.dataset.name))).sort(),
    bulkheads.filter((b) => !b.tenants).map((b) => b.name).sort());
  for (const b of bulkheads.filter((x) => !x.group && !x.tenants)) {
    assert.match(await shownNumber(page, b.name, 'used'), new RegExp(`^(\\d+/${b.max_concurrent}|idle, 0/${b.max_concurrent})`), b.name);
    assert.match(await shownNumber(page, b.name, 'waiting'), b.max_queue ? new RegExp(`^\\d+/${b.max_queue}$`) : /^none$/, b.name);
    assert.match(await shownNumber(page, b.name, 'breaker'), b.breaker ? /closed|open/ : /^–$/, b.name);
  }
  const [rows, cells] = await page.evaluate(() => ['#heat tbody th', '#table tbody .name button'].map((q) => [...document.querySelectorAll(q)].map((e) => e.textContent)));
  assert.deepEqual(rows, cells, 'heatmap and table have one order');
  // A counter that only grows: what the page shows lies between what the API said before and what it says after.
  await row(page, 'auth').locator('.name button').click();
  const admitted = page.locator('#detail dl div', { hasText: 'Admitted in all' }).locator('dd');
  await admitted.waitFor();
  const earlier = (await shop.bulkhead('auth')).total.admitted;
  const shown = await eventually(async () => { const n = Number(await admitted.getAttribute('title')); return n > earlier && n; }, { what: 'a newer count' });
  assert.ok(shown <= (await shop.bulkhead('auth')).total.admitted);
  // And a rate over the same ten seconds.
  await eventually(async () => {
    const { rate } = await shop.bulkhead('auth'), calls = parseFloat(await shownNumber(page, 'auth', 'rate'));
    return Math.abs(calls - rate) < 0.25 * rate;
  }, { what: 'the rate of the API on the page' });
  await closes(page);
});

test('a resize from the page changes the process, after saying in numbers what it does, and can be taken back', async () => {
  const page = await open(browser, shop.url);
  await live(page);
  await page.waitForFunction(() => document.getElementById('role').textContent.endsWith(', operator'));
  await (await openMenu(page, 'inventory')).getByText('Resize…').click();
  const dialog = page.locator('#dialog');
  await dialog.getByLabel('Max concurrent').fill('2');
  await dialog.locator('.effect').getByText('Max concurrent 24 → 2.').waitFor();
  assert.match(await dialog.locator('.effect').innerText(), /running now: .*(will finish; none are cut|all continue|none is affected)/);

  await dialog.locator('button[type=submit]').click();
  await dialog.getByText('A reason is required').waitFor();
  assert.equal((await shop.bulkhead('inventory')).max_concurrent, 24, 'nothing without a reason');

  await dialog.getByLabel('Reason').fill('stock count <b>tonight</b>');
  await dialog.getByLabel('5 min', { exact: true }).check();
  assert.match(await dialog.locator('pre').textContent(), /^curl -X PUT .*"max_concurrent":2,"ttl":300/);
  await dialog.locator('button[type=submit]').click();
  const changed = await eventually(async () => { const b = await shop.bulkhead('inventory'); return b.max_concurrent === 2 && b; }, { what: 'the resize' });
  assert.equal(changed.overrides[0].by, 'ann');
  assert.equal(changed.overrides[0].reason, 'stock count <b>tonight</b>');
  await page.locator('.banner', { hasText: 'inventory' }).getByText('stock count <b>tonight</b>').waitFor();
  await page.locator('#revision').getByText(/1 override/).waitFor();
  await row(page, 'inventory').locator('.chip', { hasText: 'max concurrent 24 → 2, ann' }).waitFor();
  await page.locator('#events').getByText('24').first().waitFor();

  await page.locator('.banner', { hasText: 'inventory' }).getByRole('button').click();
  await dialog.getByText('max concurrent: 2 → 24').waitFor();
  await dialog.locator('button[type=submit]').click();
  await eventually(async () => (await shop.bulkhead('inventory')).max_concurrent === 24, { what: 'the revert' });
  await page.locator('.banner').waitFor({ state: 'detached' });

  await page.locator('#events-kind').getByText('Audit').click();
  await page.locator('#events').getByText('stock count').waitFor();
  await closes(page);
});

test('a menu is of the row it was opened at, also when it was open at another; each override has its banner', async () => {
  const page = await open(browser, shop.url);
  await live(page);
  await page.waitForFunction(() => document.getElementById('role').textContent.endsWith(', operator'));
  const menu = await openMenu(page, 'images');
  await row(page, 'email').locator('.more').evaluate((e) => { e.focus(); e.click(); }); // the open menu may lie over it
  const near = async () => Math.abs((await menu.boundingBox()).y - (await row(page, 'email').locator('.more').boundingBox()).y) < 400;
  assert.ok(await eventually(near, { what: 'a menu beside its button' }));
  await menu.getByText('Resize…').click();
  await page.locator('#dialog').getByText('Resize email').waitFor();
  await page.locator('#dialog').getByLabel('Max concurrent').fill('7');
  await page.locator('#dialog').getByLabel('Max queue').fill('99');
  await page.locator('#dialog').getByLabel('Reason').fill('both');
  await page.locator('#dialog button[type=submit]').click();
  await page.locator('#dialog').waitFor({ state: 'hidden' });
  assert.equal(await row(page, 'email').locator('.more').evaluate((e) => e === document.activeElement), true, 'the focus is back');
  for (const text of ['max concurrent 8 → 7', 'max queue 100 → 99']) await page.locator('.banner', { hasText: text }).waitFor();
  await page.waitForTimeout(2200); // the next frames leave them where they are
  assert.equal(await page.locator('.banner').count(), 2);
  await shop.api('overrides/email', { method: 'DELETE', token: TOKEN });
  await page.locator('.banner').first().waitFor({ state: 'detached' });
  await openMenu(page, 'geo');
  await row(page, 'geo').locator('.more').click();
  await menu.waitFor({ state: 'hidden' });
  await openMenu(page, 'geo');
  await page.keyboard.press('Escape');
  await menu.waitFor({ state: 'hidden' });
  assert.equal(await row(page, 'geo').locator('.more').evaluate((e) => e === document.activeElement), true, 'the focus is back');
  await closes(page);
});

test('a resize of one number leaves an override of the other in force, and says so', async () => {
  await shop.api('overrides/email', { method: 'PUT', token: TOKEN, body: { max_concurrent: 4, reason: 'before' } });
  const page = await open(browser, shop.url);
  await live(page);
  await page.locator('.banner', { hasText: 'max concurrent 8 → 4' }).waitFor();
  await (await openMenu(page, 'email')).getByText('Resize…').click();
  const dialog = page.locator('#dialog');
  await dialog.getByLabel('Max queue').fill('5');
  await dialog.getByLabel('Reason').fill('now');
  assert.match(await dialog.locator('.effect').innerText(), /Max queue 100 → 5\.[^]*The override max concurrent 4 is prolonged\.\s*Ends by itself/);
  assert.match(await dialog.locator('pre').textContent(), /"max_concurrent":4,"max_queue":5/);
  await dialog.locator('button[type=submit]').click();
  await dialog.waitFor({ state: 'hidden' });
  const { max_concurrent, max_queue, overrides } = await shop.bulkhead('email');
  assert.deepEqual([max_concurrent, max_queue, ...overrides.map((o) => o.reason)], [4, 5, 'now', 'now']);
  await shop.api('overrides/email', { method: 'DELETE', token: TOKEN });
  await closes(page);
});

test('what the server rejects is shown in its words', async () => {
  const page = await open(browser, shop.url);
  await live(page);
  await (await openMenu(page, 'images')).getByText('Resize…').click();
  await page.locator('#dialog').getByLabel('Max concurrent').fill('3');
  await page.locator('#dialog').getByLabel('Reason').fill('try');
  const before = (await shop.bulkhead('images')).max_concurrent;
  await page.locator('#dialog button[type=submit]').click();
  await eventually(async () => (await page.locator('#dialog .error').innerText()).length > 10, { what: 'the rejection' });
  assert.match(await page.locator('#dialog .error').innerText(), /adaptive/);
  assert.equal((await shop.bulkhead('images')).max_concurrent, before);
  page.complaints = page.complaints.filter((c) => !/status of 409/.test(c)); // the browser tells of every failed request
  await closes(page);
});

test('a breaker can be forced and freed, a bulkhead drained and resumed', async () => {
  const page = await open(browser, shop.url);
  await live(page);
  const say = async (action, effect) => {
    await (await openMenu(page, 'geo')).getByText(action).click();
    await page.locator('#dialog .effect').getByText(effect).waitFor();
    await page.locator('#dialog').getByLabel(/^Reason/).fill('drill');
    await page.locator('#dialog button[type=submit]').click();
    await page.locator('#dialog').waitFor({ state: 'hidden' });
  };
  await say('Force breaker open…', /Every new call of geo is rejected at once/);
  await eventually(async () => (await shop.bulkhead('geo')).breaker.mode === 'forced_open', { what: 'forced open' });
  await row(page, 'geo').locator('.pill', { hasText: 'forced open' }).waitFor();
  await say('Breaker back to automatic…', /decides again/);
  await eventually(async () => (await shop.bulkhead('geo')).breaker.mode === 'automatic', { what: 'automatic' });
  await say('Drain…', /No new call of geo is admitted/);
  await eventually(async () => (await shop.bulkhead('geo')).draining, { what: 'draining' });
  await row(page, 'geo').getByText('draining: 0 left').waitFor();
  await say('Resume…', /admitted again, up to 10 at once/);
  await eventually(async () => !(await shop.bulkhead('geo')).draining, { what: 'resumed' });
  await closes(page);
});

test('a switch of the program can be thrown', async () => {
  const page = await open(browser, shop.url);
  await live(page);
  await page.getByRole('button', { name: 'Slow analytics: off' }).click();
  await page.getByRole('button', { name: 'Slow analytics: on' }).waitFor();
  // Slow calls fill the bulkhead: it rejects, and the page says for which reason.
  await row(page, 'analytics').locator('.reason', { hasText: 'queue limit' }).waitFor();
  await page.locator('#groups').getByText(/analytics borrows \d+ from (checkout|search)/).first().waitFor();
  await page.getByRole('button', { name: 'Slow analytics: on' }).click();
  await page.getByRole('button', { name: 'Slow analytics: off' }).waitFor();
  await page.locator('#events-kind').getByText('Audit').click();
  await page.locator('#events li', { hasText: /switch\s*slow false → true/ }).first().waitFor();
  // The row says since when, and how bad the last minute was.
  assert.match(await row(page, 'analytics').locator('.minute').innerText(), /^since \d\d:\d\d:\d\d · [\d.]+% in (\d+s|1m)$/);
  await closes(page);
});

// What the heads of the charts say: [title, time, label, value, ...].
const heads = (page) => page.locator('#detail .chart').evaluateAll((charts) => charts.map((c) =>
  [c.querySelector('h3').textContent, ...[...c.querySelectorAll('.u-label, .u-value')].map((e) => e.textContent.trim()).slice(1)]));

test('the charts of the detail draw what the API says, with one cursor over all of them', async () => {
  const page = await open(browser, shop.url);
  await live(page);
  const slow = (on) => shop.api('switches/slow', { method: 'PUT', token: TOKEN, body: { on } });
  await slow(true);
  await row(page, 'analytics').locator('.reason', { hasText: 'queue limit' }).waitFor();
  const path = 'history?seconds=300&step=1&bulkhead=analytics', both = async () => {
    const doc = await (await shop.api(path)).json(), [b] = doc.bulkheads;
    const at = b.reasons.queue_limit?.find(([i]) => i < doc.count - 2 && b.reasons.timeout?.some(([k]) => k === i))?.[0];
    return at !== undefined && { at, b, time: doc.end - doc.count + at };
  };
  const { at, b, time } = await eventually(both, { what: 'a second with two reasons' });
  await row(page, 'analytics').locator('.name button').click();
  await page.locator('#detail .segments button').first().click();
  await page.locator('#detail .chart').nth(5).waitFor();
  await page.waitForTimeout(1500);
  await page.keyboard.press('p'); // or the picture moves under the pointer
  assert.deepEqual((await heads(page)).map(([title, when]) => [title, when]), ['In flight (calls), most per bucket', 'Waiting (calls), most per bucket', 'Waiting time', 'Service time',
    'Rejections by reason (calls per bucket)', 'Calls per second'].map((title) => [title, 'latest']));
  const over = await page.locator('#detail .u-over').first().boundingBox();
  let told;
  for (let x = over.width - 1; x > 0 && told?.[0][1] !== format.clock(time); x -= 2) {
    await page.mouse.move(over.x + x, over.y + over.height / 2);
    told = await heads(page);
  }
  const n = (pairs) => pairs.filter(([i]) => i <= at).at(-1)[1], exact = (pairs) => format.count(pairs?.find(([i]) => i === at)?.[1] ?? 0);
  const percentiles = (p) => Object.entries(p).flatMap(([name, values]) => [name, format.latency(values[at])]);
  const reasons = Object.keys(b.reasons).sort().flatMap((name) => [format.words(name), exact(b.reasons[name])]);
  const rejected = b.rejected?.find(([i]) => i === at)?.[1] ?? 0;
  assert.deepEqual(told.map(([, when, ...rest]) => [when, ...rest]), [
    ['in flight', format.count(b.in_flight[at]), 'max concurrent', format.count(n(b.max_concurrent)), 'configured', format.count(n(b.configured_max_concurrent))],
    ['waiting', exact(b.waiting)], percentiles(b.wait), percentiles(b.service), reasons,
    ['per second', format.rate(b.rate[at]), 'good', format.rate(Math.max(0, b.rate[at] - b.failed_rate[at] - rejected)), 'failed', format.rate(b.failed_rate[at])],
  ].map((rest) => [format.clock(time), ...rest]));

  // The bar above that second: as many parts as reasons, the first on top, as high as their numbers.
  const parts = await page.locator('#detail .chart').nth(4).evaluate((chart) => {
    const canvas = chart.querySelector('canvas'), box = canvas.getBoundingClientRect(), dpr = canvas.width / box.width;
    const point = chart.querySelector('.u-cursor-pt').getBoundingClientRect(), x = Math.round((point.x + point.width / 2 + 1.5 - box.x) * dpr);
    const column = canvas.getContext('2d').getImageData(x, 0, 1, canvas.height).data;
    const is = (name) => {
      const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim(), rgb = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
      return Array.from({ length: canvas.height }, (_, y) => y).filter((y) => rgb.every((c, i) => Math.abs(column[4 * y + i] - c) < 12));
    };
    return [is('--bad'), is('--warn')];
  });
  const [full, late] = ['queue_limit', 'timeout'].map((reason) => b.reasons[reason].find(([i]) => i === at)[1]);
  assert.ok(parts[0].length > 0 && parts[1].length > 0, `${parts.map((p) => p.length)}`);
  assert.ok(parts[0].at(-1) < parts[1][0], 'the first is on top');
  assert.ok(Math.abs(parts[0].length / (parts[0].length + parts[1].length) - full / (full + late)) < 0.08, `${parts.map((p) => p.length)} pixels for ${full} and ${late}`);
  await slow(false);
  await closes(page);
});

test('a lost connection is shown, numbers are frozen, and it recovers by itself', async () => {
  const own = await Process.run(BULKHEAD, FEW).start();
  const page = await open(browser, own.url);
  await live(page);
  await own.stop();
  await page.waitForSelector('#age[data-level="warn"]'); // stale, before it is frozen
  await page.locator('#veil').getByText(/No data for \d+s/).waitFor();
  await page.locator('#veil').getByText(/These numbers are of \d\d:\d\d:\d\d/).waitFor();
  assert.equal(await page.locator('body').getAttribute('data-frozen'), '');
  for (const id of ['main', 'verdict']) assert.match(await page.locator(`#${id}`).evaluate((e) => getComputedStyle(e).filter), /grayscale/, `${id} does not look live`);
  await eventually(async () => (await page.locator('#age').getAttribute('data-level')) === 'bad', { what: 'a red age' });
  await assertAccessible(page, 'disconnected');
  await own.start();
  await page.locator('#veil').waitFor({ state: 'hidden' });
  await live(page);
  assert.match(await page.locator('#meta').innerText(), /up \d+s$/, 'these are the numbers of the new process');
  page.complaints = page.complaints.filter((c) => !/Failed to load resource|ERR_/.test(c)); // of the browser, while nobody answered
  await closes(page);
  await own.dispose();
});

test('without a token it may only look: the page disables what the server denies', async () => {
  const page = await open(browser, shop.url, { token: null });
  await live(page);
  await page.waitForFunction(() => document.getElementById('role').textContent === 'Sign in');
  const menu = await openMenu(page, 'inventory');
  assert.equal(await menu.getByText('Resize…').isDisabled(), true);
  assert.equal(await page.getByRole('button', { name: /Slow analytics/ }).isDisabled(), true);
  const denied = await shop.api('overrides/inventory', { method: 'PUT', body: { max_concurrent: 1, reason: 'no' } });
  assert.ok([401, 403].includes(denied.status));
  await menu.getByText('Sign in to change…').click();
  await page.locator('#dialog').getByLabel('Token').fill(TOKEN);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.getElementById('role').textContent.endsWith(', operator'));
  await closes(page);
});

test('a server that shows nothing to strangers asks for a token, and a wrong one is no answer', async () => {
  const own = await Process.run(BULKHEAD, FEW, { anonymous: 'none' }).start();
  const page = await open(browser, own.url, { token: null });
  await page.locator('#dialog').getByText('the role viewer is required, and a token that has it').waitFor();
  await page.locator('#dialog').getByLabel('Token').fill('wrong');
  await page.keyboard.press('Enter');
  await page.locator('#dialog').getByText('The server does not accept the token: unknown token.').waitFor();
  await assertAccessible(page, 'sign-in');
  await page.locator('#dialog').getByLabel('Token').fill(TOKEN);
  await page.keyboard.press('Enter');
  await live(page);
  page.complaints = page.complaints.filter((c) => !/status of 401/.test(c));
  await closes(page);
  await own.dispose();
});

test('a token that is not accepted leaves the page readable, and says so', async () => {
  const page = await open(browser, shop.url, { token: 'of-another-process' });
  await live(page);
  await page.locator('.banner', { hasText: 'Not signed in' }).getByText('The server does not accept the token: unknown token. You can read; sign in again to change something.').waitFor();
  assert.equal(await page.locator('#dialog').evaluate((e) => e.open), false);
  assert.equal(await page.locator('#role').innerText(), 'Sign in');
  await row(page, 'auth').waitFor();
  await assertAccessible(page, 'rejected token');
  page.complaints = page.complaints.filter((c) => !/status of 401/.test(c));
  await closes(page);
});

test('the verdict leads the page, and opens what it is about', async () => {
  const own = await Process.run(BULKHEAD, FEW).start();
  const page = await open(browser, own.url);
  await page.locator('#verdict').getByText('Idle: no calls in the last 10 s; 2 bulkheads ready.').waitFor();
  assert.equal((await own.api('drains/db', { method: 'PUT', token: TOKEN, body: { ttl: 300, reason: 'upgrade. Next: mail' } })).status, 200); // words of the sentence itself
  await page.locator('#verdict').getByText(/^db is drained by \w+ \(upgrade\. Next: mail\), ends in \d+ (s|min)/).waitFor();
  assert.equal(await page.locator('#verdict code').innerText(), 'bulkhead drain db --resume');
  await assertAccessible(page, 'verdict');
  await page.locator('#verdict').getByRole('button').click();
  await page.locator('#detail h2').getByText('db').waitFor();
  await page.locator('#detail').getByText(/settings as by default/).waitFor();
  await closes(page);
  await own.dispose();
});

test('the sentence of each trouble is on the page, with its command', async () => {
  const demo = await new Process(BULKHEAD, ['demo', '--serve', '--listen', '127.0.0.1:0']).start(), page = await open(browser, demo.url, { token: demo.token });
  await live(page);
  const call = (method, path, body) => demo.api(path, { method, token: demo.token, body: body && { reason: 'test', ...body } });
  const slow = (on) => call('PUT', 'switches/slow-analytics', { on });
  await eventually(async () => (await demo.bulkhead('checkout')).last_minute.seconds > 12, { what: 'a usual time of a call' });
  for (const [symptom, name, sentence, begin, end] of [
    ['drained', 'admin', /^admin is drained by demo \(test\), ends in \d+ (s|min)/, () => call('PUT', 'drains/admin', { ttl: 600 }), () => call('DELETE', 'drains/admin')],
    ['breaker-open', 'checkout', /^checkout\b.*(forced open by demo|rejects \d+ %)/, () => call('PUT', 'breakers/checkout', { state: 'open', ttl: 600 }), () => call('DELETE', 'breakers/checkout')],
    ['too-small', 'browse', /^browse rejects \d+ % \((queue_limit|timeout)\) since \d\d:\d\d:\d\d UTC/, () => call('PUT', 'overrides/browse', { max_concurrent: 1, max_queue: 2, ttl: 600 }), () => call('DELETE', 'overrides/browse')],
    ['slow-dependency', 'analytics', /^analytics rejects \d+ % \((queue_limit|timeout)\) since \d\d:\d\d:\d\d UTC/, () => slow(true), () => slow(false)],
  ]) {
    assert.ok((await begin()).ok, symptom);
    let shown;
    await eventually(async () => {
      const { verdict: { findings: [worst] } } = await (await demo.api('status')).json();
      if (worst?.symptom !== symptom || worst.subject !== name) return false;
      const [tone, text, command] = shown = await page.evaluate(() => [document.getElementById('verdict').dataset.tone,
        document.querySelector('#verdict .grow').textContent, document.querySelector('#verdict code')?.textContent]);
      return tone !== 'ok' && sentence.test(text) && command === worst.next && text.endsWith(`Next: ${worst.next}, or runbook#${symptom}`);
    }, { what: `the sentence of ${symptom}` }).catch((error) => assert.fail(`${error.message}: ${shown}`));
    assert.ok((await end()).ok, symptom);
  }
  await closes(page);
  await demo.dispose();
});

test('two hundred bulkheads, one whose name is too long for any column, and a reason that is markup', async () => {
  const names = Array.from({ length: 200 }, (_, i) => (i === 2 ? `${'n'.repeat(90)}-the-end` : `service-${String(i).padStart(3, '0')}`));
  const own = await Process.run(BULKHEAD, `bulkheads:\n${names.map((n) => `  ${n}: {max_concurrent: 10, max_queue: 5}\n`).join('')}`).start();
  const page = await open(browser, own.url, { viewport: { width: 1280, height: 800 } });
  await live(page);
  await page.locator('#table tbody tr').nth(199).waitFor();
  assert.equal(await page.locator('#table tbody tr').count(), 200);
  assert.equal(await page.locator('#heat tbody tr').count(), 20, 'folded');
  await page.getByText('Show all 200 rows').click();
  assert.equal(await page.locator('#heat tbody tr').count(), 200);
  await page.getByText('Show 20 rows').click();
  const markup = '<img src=x onerror=alert(1)>';
  assert.equal((await own.api('overrides/service-007', { method: 'PUT', token: TOKEN, body: { max_concurrent: 3, reason: markup } })).status, 200);
  await page.locator('.banner').getByText(markup).waitFor();
  await page.locator('#events').getByText(markup).waitFor();
  assert.equal(await page.locator('#main img').count(), 0);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), true, 'no sideways scrolling');
  // Rows in sight have the line of their last minute, whatever the range; others cost nothing.
  await page.locator('#range').getByText('1h').click();
  const points = (name) => row(page, name).locator('.row-spark polyline').evaluateAll((all) => all[0]?.getAttribute('points').split(' ').length ?? 0);
  await eventually(async () => (await points('service-003')) >= 3, { what: 'a point per second' });
  const lines = await page.locator('.row-spark').count();
  assert.ok(lines < 100, `${lines} lines for 200 rows`);
  assert.equal(await points('service-199'), 0);
  await row(page, 'service-199').scrollIntoViewIfNeeded();
  await eventually(async () => (await points('service-199')) >= 3, { what: 'the line of a row that came into sight' });
  await page.locator('#filter').fill('service-19');
  await page.locator('#table-count').getByText('10 of 200 bulkheads').waitFor();
  await page.locator('#filter').fill('nothing like that');
  await page.locator('#no-match').getByRole('button').click();
  assert.equal(await page.locator('#table tbody tr').count(), 200);
  // A frame is work for the page once a second; it must leave the second to the operator. Measured in time of the processor, which a
  // machine that is busy elsewhere does not change.
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Performance.enable');
  const used = async () => (await cdp.send('Performance.getMetrics')).metrics.find((m) => m.name === 'ThreadTime').value;
  const frames = () => page.evaluate(() => document.getElementById('meta').textContent);
  const [before, first] = [await used(), await frames()];
  await page.waitForTimeout(5000);
  await page.waitForFunction((text) => document.getElementById('meta').textContent !== text, first);
  assert.ok(await used() - before < 2, `${await used() - before} s of the processor for five frames`);
  await row(page, 'service-003').locator('.name button').click();
  await page.locator('#detail h2').getByText('service-003').waitFor();
  await assertAccessible(page, '200 bulkheads');
  await closes(page);
  await own.dispose();
});

test('no bulkhead at all, then the file turns invalid, then an admin loads a good one after seeing what it changes', async () => {
  const own = await Process.run(BULKHEAD, 'bulkheads: {}\n').start();
  const page = await open(browser, own.url, { token: ADMIN });
  await page.getByText('No bulkheads yet').waitFor();
  await page.locator('#revision').getByText('in sync').waitFor();
  await assertAccessible(page, 'first run');
  own.write('bulkheads:\n  db:\n    max_concurrent: -3\n');
  await page.locator('#revision').getByText('FILE INVALID').waitFor();
  await page.locator('.banner').getByText(/max_concurrent: .*-3/).waitFor();
  await page.locator('#revision').click();
  await page.locator('#dialog pre').getByText(/line 4: bulkheads.db.max_concurrent/).waitFor();
  assert.equal(await page.locator('#dialog button[type=submit]').isDisabled(), true);
  await assertAccessible(page, 'reload dialog');
  await page.keyboard.press('Escape');
  await closes(page);
  await own.stop();

  own.args.push('--no-watch');
  own.write(FEW);
  await own.start();
  own.write(FEW.replace('20', '25') + '  new: {max_concurrent: 1}\n');
  for (const [token, may] of [[TOKEN, false], [ADMIN, true]]) {
    const page = await open(browser, own.url, { token });
    await live(page);
    await page.waitForFunction((role) => document.getElementById('role').textContent.endsWith(role), may ? ', admin' : ', operator');
    await page.locator('#revision').click();
    await page.locator('#dialog pre').getByText('bulkheads.db.max_concurrent: 20 -> 25').waitFor();
    await page.locator('#dialog pre').getByText('bulkheads.new').waitFor();
    assert.equal((await own.bulkhead('db')).max_concurrent, 20);
    const reload = page.locator('#dialog button[type=submit]');
    assert.equal(await reload.isDisabled(), !may);
    if (may) {
      await page.getByLabel('Reason (optional)').fill('more shops');
      await reload.click();
      await eventually(async () => (await own.bulkhead('db')).max_concurrent === 25, { what: 'the reload' });
      await eventually(async () => (await (await own.api('audit')).json()).entries.some((e) => e.reason === 'more shops'), { what: 'its reason in the audit log' });
      await row(page, 'new').waitFor();
      // Where a setting stands in the file, or that it does not.
      await row(page, 'db').locator('.name button').click();
      await page.locator('#detail tr', { hasText: 'max_queue' }).first().getByText(/shop\.yaml:3/).waitFor();
      await page.locator('#detail summary').click(); // those as by default
      await page.locator('#detail tr', { hasText: 'max_wait' }).first().getByText('default').waitFor();
    }
    await closes(page);
  }
  await own.dispose();
});

test('one bulkhead alone', async () => {
  const own = await Process.run(BULKHEAD, 'bulkheads:\n  db: {max_concurrent: 20}\n').start();
  const page = await open(browser, own.url);
  await live(page);
  await row(page, 'db').getByText('idle, 0/20').waitFor();
  assert.equal(await page.locator('#heat tbody tr').count(), 1);
  await assertAccessible(page, 'one bulkhead');
  await closes(page);
  await own.dispose();
});

test('groups, tenants and pools are there with the numbers of the process', async () => {
  const page = await open(browser, shop.url);
  await live(page);
  const { groups, tenants, pools } = await (await shop.api('snapshot')).json();
  assert.deepEqual([groups[0].name, tenants[0].name, pools[0].name], ['db', 'partners', 'stock']);
  await page.locator('#groups').getByText(/^\d+ of 60 in use, \d+ free for all$/).waitFor();
  assert.equal(await page.locator('#groups .member').count(), groups[0].members.length);
  await page.locator('#tenants').getByText('3 of 3 live').waitFor();
  const overflowed = Number(/([\d.]+)k? sent to the overflow/.exec(await page.locator('#tenants p').innerText())[1]);
  assert.ok(overflowed > 0);
  for (const tenant of ['acme', 'globex', 'overflow']) await page.locator('#tenants tbody').getByText(tenant).waitFor();
  const stock = page.locator('#pools tbody tr', { hasText: 'stock' });
  await stock.getByText(/^\d+\/12/).waitFor();
  await eventually(async () => { const used = Number(/(\d+)\/12/.exec(await stock.innerText())[1]); return used > 0 && used <= 12; }, { what: 'connections in use' });
  await closes(page);
});

test('the tip of a cell tells what happened in it, percentiles and reasons too', async () => {
  const page = await open(browser, shop.url);
  await live(page);
  await page.waitForTimeout(2500); // a few cells to point at
  const heat = page.getByRole('application');
  await heat.focus();
  for (let i = 0; i < 3; ++i) await page.keyboard.press('ArrowLeft');
  await page.locator('#tip').getByText('service p99').waitFor();
  const told = await page.locator('#tip').innerText();
  assert.match(told, /in flight, most\s+\d+ of \d+/);
  assert.match(told, /service p99\s+(–|\d+(\.\d+)? (ms|s))/); // none while a breaker is open
  // Events are spoken too, and one may have come after it: so it is asked for again.
  await eventually(async () => { await page.keyboard.press('ArrowLeft'); return /service p99/.test(await page.locator('#announcer').innerText()); }, { what: 'a cell that is spoken' });
  await closes(page);
});

test('pause holds the picture and nothing else', async () => {
  const page = await open(browser, shop.url);
  await live(page);
  await page.keyboard.press('p');
  const frozen = await page.locator('#meta').innerText();
  await page.locator('.banner').getByText(/Frozen for ([2-9]|\d\d)s; the service is still running/).waitFor();
  assert.equal(await page.locator('#age').getAttribute('data-level'), 'warn', 'it does not look live');
  assert.match(await page.locator('#age-text').innerText(), /^paused, \d\d:\d\d:\d\d$/);
  assert.equal(await page.locator('#meta').innerText(), frozen);
  await assertAccessible(page, 'paused');
  await page.locator('.banner').getByRole('button').click();
  await page.waitForFunction((text) => document.getElementById('meta').textContent !== text, frozen);
  await closes(page);
});

test('keyboard alone: the heatmap speaks, opens the detail and gives the focus back; the menu and the dialog too', async () => {
  const page = await open(browser, shop.url);
  await live(page);
  await page.waitForTimeout(2500); // a few cells to walk on
  const heat = page.getByRole('application');
  await heat.focus();
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('ArrowLeft');
  await page.locator('#announcer').getByText(/^\S+, \d\d:\d\d:\d\d: in flight, average [\d.]+, in flight, most \d+ of \d+/).waitFor();
  await page.keyboard.press('ArrowDown');
  const second = (await page.locator('#heat tbody tr').nth(1).locator('th').innerText()).trim();
  await page.locator('#announcer').getByText(new RegExp(`^${second}, `)).waitFor();
  await page.keyboard.press('Enter');
  await page.locator('#detail h2').getByText(second, { exact: true }).waitFor();
  await page.locator('#detail').getByText(/settings as by default/).waitFor();
  await page.keyboard.press('Escape');
  await page.locator('#detail').waitFor({ state: 'hidden' });
  assert.equal(await heat.evaluate((e) => e === document.activeElement), true, 'the focus is back');

  await row(page, 'email').locator('.more').focus();
  await page.keyboard.press('Enter');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.locator('#dialog').getByText('Resize email').waitFor();
  await page.keyboard.type('9');
  for (let i = 0; i < 3; ++i) await page.keyboard.press('Tab');
  await page.keyboard.type('by keyboard');
  await page.keyboard.press('Enter');
  await eventually(async () => (await shop.bulkhead('email')).max_concurrent === 9, { what: 'the resize' });
  await shop.api('overrides/email', { method: 'DELETE', token: TOKEN });
  await closes(page);
});

test('360 pixels wide, nothing hangs out and everything is reachable', async () => {
  const page = await open(browser, shop.url, { viewport: { width: 360, height: 740 } });
  await live(page);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
  // The columns that do not fit are a line of each row, and nothing of that line is cut off.
  for (const [text, whole] of await page.locator('#table small.narrow').evaluateAll((all) => all.map((e) => [e.innerText, e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight])))
    assert.ok(whole && /^[\d.k]+\/s · p99 (–|[\d.]+ m?s)( · \d+ waiting)?$/.test(text.replace(/\s+/g, ' ')), text);
  assert.match(await row(page, 'email').locator('small.narrow').innerText(), /waiting/);
  // Also in a row with trouble, which says since when: its share of rejected calls is in sight.
  await shop.api('breakers/geo', { method: 'PUT', token: TOKEN, body: { state: 'open', ttl: 60, reason: 'narrow' } });
  await shop.api('switches/slow', { method: 'PUT', token: TOKEN, body: { on: true } });
  await row(page, 'analytics').locator('.minute').waitFor();
  await row(page, 'analytics').locator('.meter', { hasText: /\(\+\d+\) max/ }).waitFor(); // the widest there is
  for (const [text, right] of await page.locator('#table .c-rejected span').evaluateAll((all) => all.map((e) => [e.innerText, e.getBoundingClientRect().right])))
    assert.ok(right <= 360, `${text} ends at ${right}`);
  await shop.api('switches/slow', { method: 'PUT', token: TOKEN, body: { on: false } });
  await shop.api('breakers/geo', { method: 'DELETE', token: TOKEN });
  await assertAccessible(page, 'narrow');
  await row(page, 'payments').locator('.name button').click();
  await page.locator('#detail').getByText('Force breaker open…').waitFor();
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
  await page.locator('#detail .chart canvas').nth(5).waitFor();
  assert.equal(await page.locator('#detail').evaluate((e) => e.scrollWidth <= e.clientWidth), true, 'nor do the charts');
  await closes(page);
});

for (const colorScheme of ['dark', 'light']) {
  test(`accessible in ${colorScheme}: page, detail, menu, dialog`, async () => {
    const page = await open(browser, shop.url, { colorScheme, reducedMotion: 'reduce' });
    await live(page);
    assert.equal(await page.locator('html').getAttribute('data-theme'), colorScheme);
    assert.equal(await page.locator('.track i').first().evaluate((e) => getComputedStyle(e).transitionDuration), '0s');
    await assertAccessible(page, 'page');
    const menu = await openMenu(page, 'payments');
    await assertAccessible(page, 'menu');
    await menu.getByText('Resize…').click();
    await assertAccessible(page, 'dialog');
    await page.keyboard.press('Escape');
    await row(page, 'payments').locator('.name button').click();
    await page.locator('#detail').getByText('max_concurrent').first().waitFor();
    await assertAccessible(page, 'detail');
    await closes(page);
  });
}

test('the detail shows who holds the units, follows them, and copies a query of metrics that exist', async () => {
  const page = await open(browser, shop.url, { permissions: ['clipboard-read', 'clipboard-write'] });
  await live(page);
  await row(page, 'email').locator('.name button').click();
  const holders = page.locator('#detail section', { hasText: 'Longest calls in flight' }).locator('li');
  await holders.filter({ hasText: 'shop.cc:' }).first().waitFor(); // the line that acquired
  const first = await holders.count();
  await eventually(async () => (await holders.count()) !== first, { what: 'other holders' });
  await page.getByRole('button', { name: 'Copy PromQL' }).click();
  await page.locator('#detail').getByText('Copied.').waitFor();
  const query = await page.evaluate(() => navigator.clipboard.readText()), metrics = await (await fetch(new URL('/metrics', shop.url))).text();
  const names = query.match(/bulkhead_\w+(?=\{bulkhead="email"\})/g);
  assert.equal(names?.length, 2, query);
  for (const name of names) assert.match(metrics, new RegExp(`^${name}\\{.*bulkhead="email"`, 'm'));
  await closes(page);
});

test('it works under a path prefix', async () => {
  const target = new URL(shop.url);
  const proxy = createServer((req, res) => {
    const forward = request({ host: target.hostname, port: target.port, path: req.url.replace(/^\/ops/, ''), method: req.method,
      headers: { ...req.headers, host: target.host } }, (answer) => { res.writeHead(answer.statusCode, answer.headers); answer.pipe(res); });
    forward.on('error', () => res.destroy());
    res.on('close', () => forward.destroy());
    req.pipe(forward);
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const page = await open(browser, `http://127.0.0.1:${proxy.address().port}/ops/ui/`);
  await live(page);
  assert.equal(await page.locator('#instance').innerText(), 'shop-1');
  await closes(page);
  proxy.closeAllConnections();
  proxy.close();
});

test('the demo: its printed address opens an operator\'s page that shows and changes the demo', async () => {
  const demo = await new Process(BULKHEAD, ['demo', '--serve', '--listen', '127.0.0.1:0']).start();
  const page = await open(browser, demo.url, { token: demo.token });
  await live(page);
  await page.waitForFunction(() => document.getElementById('role').textContent.endsWith(', operator'));
  const { bulkheads } = await (await demo.api('snapshot')).json();
  assert.ok(bulkheads.length >= 3);
  assert.equal(await page.locator('#table tbody tr').count(), bulkheads.length);
  const admitted = async () => (await demo.bulkhead('checkout')).total.admitted;
  await row(page, 'checkout').locator('.name button').click();
  const count = page.locator('#detail dl div', { hasText: 'Admitted in all' }).locator('dd');
  const earlier = await admitted();
  const shown = await eventually(async () => { const n = Number(await count.getAttribute('title')); return n > earlier && n; }, { what: 'a newer count' });
  assert.ok(shown <= (await admitted()));
  await page.keyboard.press('Escape');
  await page.locator('#pools').getByText(/sqlite/).waitFor(); // the real connections of the demo
  // A rehearsal: its banner says what it is, and ends it.
  assert.equal((await demo.api('faults/admin', { method: 'PUT', token: demo.token, body: { latency: '1ms', ttl: 600, reason: 'drill' } })).status, 200);
  await page.locator('.banner', { hasText: 'fault none → latency 1 ms' }).getByRole('button').click();
  await page.locator('#dialog').getByText('End the fault of admin').waitFor();
  await page.locator('#dialog button[type=submit]').click();
  await eventually(async () => (await demo.bulkhead('admin')).overrides.length === 0, { what: 'the end of the fault' });
  await page.getByRole('button', { name: 'Analytics is slow: off' }).click();
  await page.getByRole('button', { name: 'Analytics is slow: on' }).waitFor();
  await eventually(async () => (await (await demo.api('switches')).json()).switches.find((s) => s.name === 'slow-analytics').on, { what: 'slow analytics' });
  // The page leads with the sentence of the interface; numbers may be a second older.
  const plain = (text) => text.replace(/[\d.:]+/g, '#');
  await eventually(async () => {
    const { verdict } = await (await demo.api('status')).json();
    return verdict.findings.length > 0 && plain(await page.locator('#verdict .grow').innerText()) === plain(verdict.sentence);
  }, { what: 'the verdict of the interface' });
  // Without bulkheads the queries of analytics fill the database, and everybody is rejected there: the page shows it in red.
  await page.getByRole('button', { name: 'Bulkheads: on' }).click();
  await page.getByRole('button', { name: 'Bulkheads: off' }).waitFor();
  await page.locator('#verdict[data-tone="bad"]').getByText(/^database rejects/).waitFor();
  await page.locator('#table tr[data-name="database"][data-health="bad"] .c-rejected [data-tone="bad"]').waitFor();
  // Calls wait at the bulkhead around the pool, not in the pool: the panel shows both.
  await eventually(async () => {
    const [pool] = (await (await demo.api('snapshot')).json()).pools, cell = await page.locator('#pools tbody tr > *').nth(3).innerText();
    return (pool.bulkhead_waiting > 0 ? /^\d+\s*\+ [\d.k]+ at database$/ : /^\d+$/).test(cell.trim());
  }, { what: 'the waiting calls of the pool' });
  const tile = page.locator('#tiles > *', { hasText: /critical/i }).first();
  await eventually(async () => /[1-9]/.test((await tile.innerText()).match(/([\d.]+)\s*%/)?.[1] ?? '') && (await tile.evaluate((e) => !!(e.closest('[data-tone="bad"]') ?? e.querySelector('[data-tone="bad"]')))),
    { what: 'a red tile' });
  await page.getByRole('button', { name: 'Bulkheads: off' }).click();
  await page.getByRole('button', { name: 'Bulkheads: on' }).waitFor();
  await (await openMenu(page, 'analytics')).getByText('Drain…').click();
  await page.locator('#dialog').getByLabel('Reason').fill('too slow');
  await page.locator('#dialog button[type=submit]').click();
  await eventually(async () => (await demo.bulkhead('analytics')).draining, { what: 'draining' });
  await row(page, 'analytics').getByText(/draining: \d+ left/).waitFor();
  await closes(page);
  await demo.dispose();
});

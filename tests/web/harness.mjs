// What the tests of the page and the makers of its pictures share: a process, a browser, the API beside the page.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

export const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
export const TOKEN = 'only-for-tests', ADMIN = 'only-for-the-tests-of-a-reload';
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
               '--disable-component-update', '--disable-sync'];

const started = new Set();

// Whatever a failed test left behind.
export const disposeAll = () => Promise.all([...started].map((p) => p.dispose()));

export class Process {
  constructor(program, args) {
    this.directory = mkdtempSync(join(tmpdir(), 'bulkhead-web-'));
    this.tokens = join(this.directory, 'tokens');
    const line = (name, role, token) => `${name} ${role} ${createHash('sha256').update(token).digest('hex')}\n`;
    writeFileSync(this.tokens, line('ann', 'operator', TOKEN) + line('zoe', 'admin', ADMIN), { mode: 0o600 });
    this.program = program;
    this.args = args;
  }
  withToken() {
    this.args.push('--tokens', this.tokens);
    return this;
  }

  // `bulkhead run` of a file that says this of bulkheads, and this more of the control plane.
  static run(program, bulkheads, control = {}) {
    const process = new Process(program, []);
    process.file = join(process.directory, 'shop.yaml');
    process.args.push('run', process.file);
    process.write(bulkheads, control);
    return process;
  }
  write(bulkheads, control = {}) {
    const all = { listen: '127.0.0.1:0', instance: 'shop-1', tokens_file: this.tokens, ...control };
    writeFileSync(`${this.file}.new`, `version: 1\n${bulkheads}control: ${JSON.stringify(all)}\n`);
    renameSync(`${this.file}.new`, this.file);
  }

  // Ready when it has printed where its dashboard is; started again, it is there again.
  async start() {
    const again = this.url ? ['--listen', new URL(this.url).host] : [];
    started.add(this);
    this.child = spawn(this.program, [...this.args, ...again], { stdio: ['ignore', 'pipe', this.file ? 'ignore' : 'inherit'] });
    this.ended = new Promise((resolve) => this.child.once('exit', (code, signal) => resolve({ code, signal })));
    const told = new Promise((resolve) => createInterface(this.child.stdout).on('line', (line) => {
      const [, host, rest] = /(http:\/\/[\d.:]+)(\/ui\/\S*)?/.exec(line) ?? [];
      if (host) resolve(host + (rest ?? '/ui/'));
    }));
    const url = await Promise.race([told, this.ended.then((how) => Promise.reject(new Error(`${this.program} ended: ${JSON.stringify(how)}`)))]);
    [this.url, this.token = TOKEN] = url.split('#token=');
    return this;
  }
  async stop() {
    this.child.kill('SIGTERM');
    return this.ended;
  }
  async dispose() {
    started.delete(this);
    await this.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }

  async api(path, { method = 'GET', token, body } = {}) {
    const headers = { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...(body ? { 'Content-Type': 'application/json' } : {}) };
    return fetch(new URL(`../v1/${path}`, this.url), { method, headers, body: body ? JSON.stringify(body) : undefined });
  }
  async bulkhead(name) {
    const all = await (await this.api('snapshot')).json();
    return all.bulkheads.find((b) => b.name === name);
  }
}

export async function launch() {
  if (!existsSync(CHROMIUM)) throw new Error(`${CHROMIUM} is missing: scripts/setup test`);
  return chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
}

// A page that remembers everything it should not have said.
export async function open(browser, url, { token = TOKEN, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, colorScheme: 'dark', ...options });
  context.setDefaultTimeout(60_000); // of a machine that is busy elsewhere
  const page = await context.newPage();
  page.complaints = [];
  page.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warning') page.complaints.push(m.text()); });
  page.on('pageerror', (e) => page.complaints.push(e.stack));
  page.on('dialog', (d) => { page.complaints.push(`dialog: ${d.message()}`); d.dismiss(); });
  await page.goto(token ? `${url}#token=${token}` : url);
  return page;
}

export const live = (page) => page.waitForSelector('#age[data-level="ok"]');
export const row = (page, name) => page.locator(`#table tbody tr[data-name="${name}"]`);

export async function eventually(check, { ms = 60_000, what = 'that' } = {}) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what} did not happen within ${ms} ms`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

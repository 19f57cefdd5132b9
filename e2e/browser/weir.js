// Helpers for the tests: a weir server on a free port, a browser, and a page that reports every error.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const root = new URL('../..', import.meta.url).pathname;
/** The command under test. */
export const binary = process.env.WEIR_BIN ?? join(root, '.bin/weir');

/** Screenshots are kept here, outside of version control. */
export const artifacts = join(root, '.artifacts', 'browser');

/**
 * Starts weir serve over a store in memory.
 * @param {{http?: string, args?: string[]}} [options]
 */
export async function serve({ http = '127.0.0.1:0', args = [] } = {}) {
  const dir = await mkdtemp(join(tmpdir(), 'weir-browser-'));
  await writeFile(join(dir, 'weir.yaml'), '');
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('WEIR_')));
  const child = spawn(binary, ['--store', 'memory:', 'serve', '--http', http, '--grpc', 'off', ...args], { env: { ...env, WEIR_CONFIG: join(dir, 'weir.yaml') }, stdio: ['ignore', 'pipe', 'pipe'] });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  let log = '';
  child.stderr.on('data', (text) => (log += text));
  const url = await new Promise((resolve, reject) => {
    let out = '';
    child.once('error', reject);
    child.once('exit', () => reject(new Error(`weir serve ended:\n${out}${log}`)));
    child.stdout.on('data', (text) => {
      const m = /(http:\/\/[\d.:]+)/.exec((out += text));
      if (m) resolve(m[1]);
    });
  });
  const stop = async (signal = 'SIGTERM') => {
    child.kill(signal);
    await exited;
    await rm(dir, { recursive: true, force: true });
  };
  return { url, stop, log: () => log };
}

/**
 * Calls the API as a client does; throws unless the status is expected.
 * @param {string} url
 */
export function client(url, token = '') {
  return async (method, path, body, expected = [200, 201, 204]) => {
    const response = await fetch(url + path, {
      method, headers: { 'Content-Type': 'application/json', ...(token && { Authorization: `Bearer ${token}` }) }, body: body && JSON.stringify(body),
    });
    const text = await response.text();
    assert.ok([expected].flat().includes(response.status), `${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  };
}

export const hostile = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>';

/** Creates entities, limits and a little traffic, so that every page has something to show. */
export async function seed(ask) {
  await ask('PUT', '/v1/limits?resource=gpt-4', { limits: ['rpm:600/min', 'tpm:50K/min:75K'] });
  await ask('PUT', '/v1/limits?resource=embeddings', { limits: [{ name: 'rps', amount: 50, period: 's', burst: 100, enforce: 'shadow' }] });
  await ask('PUT', '/v1/limits', { limits: ['rpm:1K/min'] });
  await ask('POST', '/v1/entities', { id: 'acme', name: 'Acme Corp.', metadata: { plan: 'enterprise', 'billing/id': 'cus_8213' } });
  await ask('PUT', '/v1/limits?entity=acme', { limits: ['tpm:1M/min', 'rpm:5K/min'] });
  await ask('POST', '/v1/entities', { id: 'team-red', name: 'Team Red', parent: 'acme', cascade: true });
  await ask('PUT', '/v1/limits?entity=team-red&resource=gpt-4', { limits: ['tpm:200K/min:250K'] });
  for (const id of ['key-alice', 'key-bob', 'key-carol']) await ask('POST', '/v1/entities', { id, parent: 'team-red', cascade: true, metadata: { owner: `${id.slice(4)}@example.com` } });
  await ask('PUT', '/v1/limits?entity=key-carol&resource=gpt-4', { limits: ['rpm:20/min', 'tpm:10K/min'] });
  await ask('POST', '/v1/entities', { id: hostile, name: hostile, metadata: { [hostile]: hostile } });
  await ask('POST', '/v1/namespaces', { name: 'tenant-beta' });
  await spend(ask, 'key-alice', 12, { rpm: 1, tpm: 900 });
  await spend(ask, 'key-bob', 5, { rpm: 1, tpm: 400 });
  await spend(ask, 'key-carol', 24, { rpm: 1, tpm: 300 });
  await spend(ask, hostile, 3, { rpm: 1, tpm: 100 });
}

/** Creates a team with quotas and a balance, a key that charges it, a group of resources and a plan. */
export async function seedQuotas(ask) {
  const set = (/** @type {string} */ scope, /** @type {string[]} */ limits) => ask('PUT', `/v1/limits?${scope}`, { limits });
  await set('resource=gpt-4o', ['rpm:60/min', 'tpm:50K/min:75K']);
  await set('resource=o3', ['rpm:20/min']);
  for (const resource of ['gpt-4o', 'o3']) await ask('PUT', `/v1/limits?resource=${resource}`, { group: 'openai' });
  await set('resource=_group_openai', ['tpd:1M/day@UTC']);
  await set('plan=pro', ['rpm:600/min']);
  await set('plan=pro&resource=gpt-4o', ['rpm:600/min', 'tpm:500K/min']);
  await ask('POST', '/v1/entities', { id: 'team-blue', name: 'Team Blue' });
  await set('entity=team-blue&resource=_total_', ['usd:5000/month@Europe/Berlin', 'credits:balance']);
  await ask('POST', '/v1/entities', { id: 'key-dora', parent: 'team-blue', cascade: true, plan: 'pro' });
  await spend(ask, 'key-dora', 9, { rpm: 1, tpm: 900, tpd: 9000, usd: 40 }, 'gpt-4o');
}

/** Sends n requests for tokens; each may be admitted or refused. */
export async function spend(ask, entity, n, tokens, resource = 'gpt-4') {
  await Promise.all(Array.from({ length: n }, () => ask('POST', '/v1/acquire', { entity, resource, tokens }, [200, 429])));
}

/** Starts the browser. */
export function launch() {
  const executablePath = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((p) => existsSync(p));
  if (!executablePath) throw new Error('no chromium found: install it (apt-get install chromium) or name it in CHROMIUM');
  return chromium.launch({
    executablePath, headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage'],
  });
}

/** The browser's own log messages for responses other than 2xx, which the page shows to the user. */
const answered = /^Failed to load resource: (the server responded with a status of (400|401|403|404|409|412|422)|net::ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|CONNECTION_RESET|EMPTY_RESPONSE))/;

/**
 * Opens a page, runs a test in it, and fails if something was logged as an error, thrown, or requested from another origin.
 * @param {import('playwright-core').Browser} browser
 * @param {string} url
 * @param {(page: import('playwright-core').Page) => Promise<void>} run
 * @param {import('playwright-core').BrowserContextOptions & {expected?: RegExp}} [options] expected matches messages that may be logged
 */
export async function visit(browser, url, run, { expected, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, locale: 'en-GB', ...options });
  context.setDefaultTimeout(30_000);
  const page = await context.newPage();
  /** @type {string[]} */
  const bad = [];
  page.on('console', (m) => {
    if (['error', 'warning'].includes(m.type()) && !answered.test(m.text()) && !expected?.test(m.text())) bad.push(`console: ${m.text()}`);
  });
  page.on('pageerror', (err) => bad.push(`thrown: ${err}`));
  page.on('dialog', (d) => (bad.push(`dialog: ${d.message()}`), d.dismiss()));
  context.on('request', (r) => {
    if (!r.url().startsWith(url + '/')) bad.push(`another origin: ${r.url()}`);
  });
  try {
    await run(page);
    assert.equal(await page.evaluate(() => window['pwned']), undefined, 'data ran as a script');
    assert.deepEqual(bad, []);
  } catch (err) {
    if (bad.length) console.error(bad.join('\n'));
    throw err;
  } finally {
    await context.close();
  }
}

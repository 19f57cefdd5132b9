// The dashboard of a server that requires tokens.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { binary, client, launch, seed, seedQuotas, serve, visit } from './weir.js';

/** @type {Awaited<ReturnType<typeof serve>>} */ let server;
/** @type {import('playwright-core').Browser} */ let browser;
/** @type {string} */ let dir;
const tokens = { admin: '', read: '', credit: '', beta: '', both: '' };

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'weir-tokens-'));
  const file = join(dir, 'tokens.yaml');
  const create = async (/** @type {string} */ role, /** @type {string} */ namespace, name = role) => {
    const { stdout } = await promisify(execFile)(binary, ['token', 'create', '--name', name, '--role', role, '--namespace', namespace, '--no-expiry', '--file', file, '-o', 'json'], { cwd: dir });
    return JSON.parse(stdout).token;
  };
  tokens.admin = await create('admin', '*');
  tokens.read = await create('read', 'default');
  tokens.credit = await create('read,credit', 'default', 'credit');
  tokens.beta = await create('read', 'tenant-beta', 'beta');
  tokens.both = await create('read', 'tenant-gamma', 'both');
  await writeFile(file, (await readFile(file, 'utf8')).replace('[tenant-gamma]', '[tenant-gamma, tenant-beta]'));
  [server, browser] = await Promise.all([serve({ args: ['--auth', file] }), launch()]);
  await seed(client(server.url, tokens.admin));
  await seedQuotas(client(server.url, tokens.admin));
});
after(async () => {
  await browser?.close();
  await server?.stop();
  await rm(dir, { recursive: true, force: true });
});

/** @param {import('playwright-core').Page} page @param {string} token */
async function signIn(page, token) {
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

test('signing in, and out', () => visit(browser, server.url, async (page) => {
  await page.goto(`${server.url}/#/limits`);
  await signIn(page, 'weir_not-a-token');
  await page.getByText('does not know this token').waitFor();
  await signIn(page, 'not a token');
  await page.getByText('has no spaces').waitFor();
  await signIn(page, tokens.admin);
  await page.getByRole('heading', { name: 'Limits', level: 1 }).waitFor();
  assert.deepEqual(await page.evaluate(() => [Object.keys(localStorage), document.cookie, location.href.includes('weir_')]), [[], '', false]);

  await page.reload();
  await page.getByRole('button', { name: 'Edit limits of gpt-4', exact: true }).click();
  await page.getByRole('dialog').getByLabel('Tokens').first().fill('700');
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved: limits of resource gpt-4.').waitFor();
  await page.getByRole('link', { name: 'Overview', exact: true }).click();
  await page.locator('.live[data-state=live]').waitFor();

  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.deepEqual(await page.evaluate(() => Object.keys(sessionStorage)), []);
}));

test('a token that may only read', () => visit(browser, server.url, async (page) => {
  await page.goto(`${server.url}/#/entity?id=key-carol&resource=gpt-4`);
  await signIn(page, tokens.read);
  await page.locator('.live[data-state=live]').waitFor();
  assert.equal(await page.locator('button.admin').count(), 0, 'what it may not do is not offered');
  assert.equal(await page.getByRole('link', { name: 'Namespaces', exact: true }).count(), 0);
  await page.goto(`${server.url}/#/overview?ns=tenant-beta`);
  await page.getByText('You do not have permission to see this').waitFor();
}));

for (const [who, role, credits, edits] of /** @type {[string, 'admin' | 'read' | 'credit', boolean, boolean][]} */ ([
  ['an administrator tops up balances', 'admin', true, true], ['a reader does not', 'read', false, false], ['the role credit does nothing else', 'credit', true, false],
])) {
  test(who, () => visit(browser, server.url, async (page) => {
    await page.goto(`${server.url}/#/entity?id=key-dora&resource=gpt-4o`);
    await signIn(page, tokens[role]);
    await page.locator('.live[data-state=live]').waitFor();
    await page.goto(`${server.url}/#/entity?id=team-blue&resource=gpt-4o`);
    await page.getByRole('table', { name: 'Balances' }).waitFor();
    await page.locator('.live-levels').getByText('credits').waitFor();
    const all = await page.locator('button.admin').count(), up = page.getByRole('button', { name: 'Top up credits of team-blue on the total' });
    assert.equal(await up.count(), credits ? 2 : 0);
    assert.equal(all > await up.count(), edits);
    if (!credits) return;
    await up.first().click();
    await page.getByRole('dialog').getByLabel('Amount').fill('1K');
    await page.getByRole('dialog').getByLabel('ID').fill(`inv-${role}`);
    await page.getByRole('dialog').getByRole('button', { name: 'Top up' }).click();
    await page.getByText(`Credited: inv-${role}. `).waitFor();
  }));
}

test('a role that is taken away while the page is open', () => visit(browser, server.url, async (page) => {
  await page.goto(`${server.url}/#/entity?id=key-carol&resource=gpt-4`);
  await signIn(page, tokens.admin);
  await page.locator('.live[data-state=live]').waitFor();
  const edit = page.getByRole('button', { name: 'Edit limits of key-carol on gpt-4' });
  await edit.click();
  await page.evaluate((read) => sessionStorage.setItem('weir.token', read), tokens.read);
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  await page.getByRole('dialog').getByText('You do not have permission to do this').waitFor();
  await page.keyboard.press('Escape');
  assert.ok(await edit.isDisabled(), 'what was denied is not offered again');
  assert.match(await edit.getAttribute('title') ?? '', /Requires the admin role/);
}));

test('a token for one namespace is shown that one, under its name', () => visit(browser, server.url, async (page) => {
  await page.goto(`${server.url}/#/limits`);
  await signIn(page, tokens.beta);
  await page.getByRole('heading', { name: 'Limits', level: 1 }).waitFor();
  assert.equal(await page.locator('#namespace').inputValue(), 'tenant-beta');
  assert.deepEqual(await page.locator('#namespace option').allTextContents(), ['tenant-beta']);
  await page.goto(`${server.url}/#/limits?ns=default`);
  await page.getByText('You do not have permission to see this').waitFor();
}));

test('a token for some namespaces begins in one of them', () => visit(browser, server.url, async (page) => {
  await page.goto(`${server.url}/#/limits?ns=tenant-beta`);
  await signIn(page, tokens.both);
  await page.getByRole('heading', { name: 'Limits', level: 1 }).waitFor();
  assert.deepEqual(await page.locator('#namespace option').allTextContents(), ['tenant-gamma', 'tenant-beta']);
  await page.goto(`${server.url}/#/entities`);
  await page.reload();
  await page.locator('#namespace option').nth(1).waitFor({ state: 'attached' });
  assert.equal(await page.locator('#namespace').inputValue(), 'tenant-gamma');
}));

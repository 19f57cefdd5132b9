// The appearance of the pages, at two widths and in two themes: accessible, and saved as screenshots.

import assert from 'node:assert/strict';
import { mkdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { artifacts, client, launch, seed, seedQuotas, serve, visit } from './weir.js';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** @type {Awaited<ReturnType<typeof serve>>} */ let server;
/** @type {import('playwright-core').Browser} */ let browser;

before(async () => {
  [server, browser] = await Promise.all([serve(), launch(), mkdir(artifacts, { recursive: true })]);
  await seed(client(server.url));
  await seedQuotas(client(server.url));
  await client(server.url)('POST', '/v1/entities/team-blue/balances/credits', { amount: 500, id: 'inv-1042' });
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const pages = {
  overview: 'overview', entities: 'entities', entity: 'entity?id=key-carol&resource=gpt-4', quotas: 'entity?id=key-dora&resource=gpt-4o', limits: 'limits', resource: 'limits?resource=gpt-4',
  group: 'limits?resource=_group_openai', plan: 'limits?plan=pro',
  buckets: 'buckets', usage: 'usage', manifests: 'manifests', audit: 'audit', namespaces: 'namespaces', missing: 'nowhere',
};

for (const [width, colorScheme, thorough] of /** @type {[number, 'light' | 'dark', boolean][]} */ ([[1440, 'light', true], [1440, 'dark', false], [375, 'light', false], [375, 'dark', true]])) {
  test(`${width} px, ${colorScheme}`, () => visit(browser, server.url, async (page) => {
    await page.goto(`${server.url}/`);
    await page.evaluate(axe);
    /** @type {string[]} */
    const found = [];
    const judge = async (/** @type {string} */ name) => {
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (wide > 0) found.push(`${name} is ${wide} px too wide`);
      const cut = width < 900 ? await page.evaluate(() => [...document.querySelectorAll('.scroll')].filter((el) => el.scrollWidth > el.clientWidth).map((el) => el.getAttribute('aria-label'))) : [];
      if (cut.length) found.push(`${name}: must be scrolled sideways: ${cut}`);
      if (!thorough) return;
      const { violations } = await page.evaluate(() => window['axe'].run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice'], resultTypes: ['violations'], preload: false }));
      for (const v of violations) found.push(`${name}: ${v.id}: ${v.nodes.slice(0, 3).map((/** @type {any} */ n) => n.html.slice(0, 160)).join(' | ')}`);
    };
    for (const [name, hash] of Object.entries(pages)) {
      await page.evaluate((h) => (location.hash = `#/${h}`), hash);
      await page.waitForFunction((h) => location.hash === `#/${h}` && document.querySelector('main > .page')?.getAttribute('data-page') === h.split('?')[0] && !document.querySelector('main .loading, .live[data-state=waiting]'), hash);
      await page.screenshot({ path: join(artifacts, `${name}-${width}-${colorScheme}.png`), fullPage: true });
      await judge(name);
    }
    if (width < 900) {
      await page.getByRole('button', { name: 'Menu' }).click();
      await page.screenshot({ path: join(artifacts, `menu-${width}-${colorScheme}.png`) });
      await page.getByRole('link', { name: 'Limits' }).click();
    } else await page.getByRole('link', { name: 'Limits' }).click();
    await page.getByRole('button', { name: 'Edit limits of group openai' }).click();
    await page.screenshot({ path: join(artifacts, `dialog-${width}-${colorScheme}.png`) });
    await judge('dialog');
    await page.keyboard.press('Escape');
    await page.goto(`${server.url}/#/entity?id=team-blue&resource=gpt-4o`);
    await page.getByRole('button', { name: 'Top up credits of team-blue on the total' }).first().click();
    await page.getByRole('dialog').getByText('inv-1042').waitFor();
    await page.screenshot({ path: join(artifacts, `top-up-${width}-${colorScheme}.png`) });
    await judge('top-up');
    assert.deepEqual(found, []);
  }, { viewport: { width, height: width < 900 ? 812 : 900 }, colorScheme, reducedMotion: 'reduce' }));
}

test('the theme that was chosen stays', () => visit(browser, server.url, async (page) => {
  await page.goto(`${server.url}/`);
  const ground = () => page.evaluate(() => getComputedStyle(document.querySelector('.panel, .side') ?? document.body).backgroundColor);
  const light = await ground();
  await page.getByLabel('Theme').selectOption('dark');
  const dark = await ground();
  assert.notEqual(dark, light);
  await page.reload();
  assert.equal(await ground(), dark);
  assert.equal(await page.getByLabel('Theme').inputValue(), 'dark');
}, { colorScheme: 'light' }));

test('motion is reduced for who asks', () => visit(browser, server.url, async (page) => {
  await page.goto(`${server.url}/`);
  await page.locator('.live[data-state=live]').waitFor();
  assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
}, { reducedMotion: 'reduce' }));

test('an empty server shows the first steps, until it decides', async () => {
  const empty = await serve();
  try {
    await visit(browser, empty.url, async (page) => {
      await page.goto(`${empty.url}/`);
      const steps = page.getByRole('heading', { name: 'First steps' });
      await steps.waitFor();
      await page.screenshot({ path: join(artifacts, 'first-375-light.png'), fullPage: true });
      const command = await page.locator('.first pre').innerText();
      assert.ok(command.endsWith(`${empty.url}/v1/acquire`), command);
      const body = JSON.parse(/'(\{.*\})'/.exec(command)?.[1] ?? '');
      await client(empty.url)('PUT', '/v1/limits', { limits: ['rpm:60/min'] });
      await client(empty.url)('POST', '/v1/acquire', body);
      await steps.waitFor({ state: 'hidden' });
    }, { viewport: { width: 375, height: 812 } });
  } finally {
    await empty.stop();
  }
});

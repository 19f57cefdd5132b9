// The dashboard in a browser, on a server without authentication.

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { client, hostile, launch, seed, serve, spend, visit } from './weir.js';

/** @type {Awaited<ReturnType<typeof serve>>} */ let server;
/** @type {import('playwright-core').Browser} */ let browser;
/** @type {ReturnType<typeof client>} */ let ask;

before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  ask = client(server.url);
  await seed(ask);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const go = (/** @type {import('playwright-core').Page} */ page, /** @type {string} */ hash) => page.goto(`${server.url}/#/${hash}`);
const number = async (/** @type {import('playwright-core').Locator} */ bar) => Number(await bar.getAttribute('aria-valuenow'));

/** Waits until a condition of the page's state holds, as its own waits do. */
async function until(what, check) {
  for (const end = Date.now() + 30_000; Date.now() < end; await new Promise((r) => setTimeout(r, 50))) if (await check()) return;
  assert.fail(`not in time: ${what}`);
}

test('the overview is live', () => visit(browser, server.url, async (page) => {
  await page.goto(server.url + '/');
  await page.locator('.live[data-state=live]').waitFor();
  assert.equal(await page.title(), 'Overview · weir');
  assert.equal(await page.locator('.tile').count(), 5);
  const totals = () => page.locator('.tile-rest').first().textContent();
  const was = await totals();
  await spend(ask, 'key-alice', 3, { rpm: 1 });
  await until('the total grows', async () => (await totals()) !== was);
  await page.getByRole('region', { name: 'Most refused' }).getByRole('link', { name: 'key-carol' }).first().waitFor();
  assert.ok(await page.locator('path.bars.refused').getAttribute('d'), 'refused requests are drawn');
  await page.locator('.frame').focus();
  await page.keyboard.press('End');
  assert.match(await page.locator('.moment').textContent() ?? '', /^\d\d:\d\d:\d\d$/);
}));

test('decisions that the store did not answer', () => visit(browser, server.url, async (page) => {
  const overview = await ask('GET', '/v1/overview');
  for (const [store, rates, text] of /** @type {[any, any, string][]} */ ([
    [{ breaker: 'closed', unanswered: 0.004 }, { degraded: 2, local: 2, failed: 0 }, '0.4% of decisions were not answered in time. This server’s shares of the limits decide.'],
    [{ breaker: 'open', unanswered: 1 }, { degraded: 3, local: 1, failed: 1 }, 'The store does not answer. This server’s shares of the limits decide. Requests are admitted without limits. Requests fail.'],
    [{ breaker: 'closed', unanswered: 0 }, { degraded: 0, local: 0, failed: 0 }, ''],
  ])) {
    const json = { ...overview, store: { ...overview.store, ...store }, per_second: { ...overview.per_second, ...rates } };
    await page.route('**/v1/overview?*', (route) => route.request().headers().accept?.includes('event-stream')
      ? route.fulfill({ contentType: 'text/event-stream', body: `event: overview\ndata: ${JSON.stringify(json)}\n\n` }) : route.fulfill({ json }));
    await go(page, 'entities');
    await go(page, 'overview');
    await page.locator('.tile').first().waitFor();
    if (text) await page.locator('.alarm', { hasText: text }).waitFor();
    else await page.locator('.alarm').waitFor({ state: 'hidden' });
    await page.unroute('**/v1/overview?*');
  }
}));

test('a bar moves after an acquire', () => visit(browser, server.url, async (page) => {
  await go(page, 'entity?id=key-bob&resource=gpt-4');
  const bar = page.getByRole('meter', { name: 'tpm of team-red on gpt-4' });
  await page.locator('.live[data-state=live]').waitFor();
  await until('the level is known', async () => (await number(bar)) > 0);
  const was = await number(bar);
  await spend(ask, 'key-bob', 1, { rpm: 1, tpm: 40000 });
  await until('the level falls', async () => (await number(bar)) < was - 20000);
}));

test('a limit that is edited is enforced', () => visit(browser, server.url, async (page) => {
  await ask('POST', '/v1/entities', { id: 'key-edit' });
  await go(page, 'entity?id=key-edit&resource=gpt-4');
  await page.getByRole('button', { name: 'Set limits of key-edit on gpt-4' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('rpm');
  // Errors appear at the field, both the page's own and the server's.
  await dialog.getByLabel('Tokens').fill('many');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.getByText('must be a whole number, such as 500, 50K or 1.5M').waitFor();
  assert.equal(await dialog.getByLabel('Tokens').getAttribute('aria-invalid'), 'true');
  await dialog.getByLabel('Tokens').fill('0');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.getByText('must be at least 1', { exact: true }).waitFor();
  await dialog.getByLabel('Tokens').fill('2');
  await dialog.getByLabel('per', { exact: true }).fill('h');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved: limits of key-edit on gpt-4.').waitFor();
  await page.getByRole('meter', { name: 'rpm of key-edit on gpt-4' }).waitFor();
  const acquire = (/** @type {number} */ status) => ask('POST', '/v1/acquire', { entity: 'key-edit', resource: 'gpt-4', tokens: { rpm: 1 } }, status);
  await acquire(200);
  await acquire(200);
  await acquire(429);

  await page.getByRole('button', { name: 'Reset the bucket of key-edit on gpt-4' }).first().click();
  await page.getByRole('dialog').getByRole('button', { name: 'Reset' }).click();
  await page.getByText('The bucket of key-edit on gpt-4 is full again.').waitFor();
  await acquire(200);

  await page.getByRole('button', { name: 'Remove limits on gpt-4' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
  await page.getByText('No limits of its own').waitFor();
  assert.equal((await ask('GET', '/v1/available?entity=key-edit&resource=gpt-4')).limits[0].source, 'resource');
}));

test('of two who edit the same limits, the second is told', () => visit(browser, server.url, async (page) => {
  await ask('PUT', '/v1/limits?resource=shared', { limits: ['rpm:10/min'] });
  await go(page, 'limits?resource=shared');
  await page.getByRole('button', { name: 'Edit', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Tokens').fill('20');
  await ask('PUT', '/v1/limits?resource=shared', { limits: ['rpm:77/min'] });
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.getByText('Somebody else has changed these limits').waitFor();
  await page.locator('.limits').getByText('77').waitFor();
  assert.equal((await ask('GET', '/v1/limits?resource=shared')).limits[0].amount, 77);
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('button', { name: 'Edit', exact: true }).click();
  assert.equal(await dialog.getByLabel('Tokens').inputValue(), '77');
  await dialog.getByLabel('Tokens').fill('20');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved: limits of resource shared.').waitFor();
}));

test('a search finds what is not loaded', () => visit(browser, server.url, async (page) => {
  await ask('POST', '/v1/namespaces', { name: 'crowd' });
  await Promise.all(Array.from({ length: 230 }, (_, i) => ask('POST', '/v1/entities?namespace=crowd', { id: `many-${String(i).padStart(3, '0')}` })));
  await go(page, 'entities?ns=crowd');
  await page.getByRole('link', { name: 'many-000' }).waitFor();
  assert.equal(await page.getByRole('link', { name: 'many-229' }).count(), 0);
  await page.getByRole('searchbox').fill('many-22');
  await page.getByRole('link', { name: 'many-229' }).waitFor();
  assert.equal(await page.getByRole('link', { name: /^many-/ }).count(), 10);
  await page.getByRole('searchbox').fill('many-229');
  await until('one is left', async () => (await page.getByRole('link', { name: /^many-/ }).count()) === 1);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'many-229', level: 1 }).waitFor();
}));

test('an entity opens on the resource of which least is left, of its own or of a parent that it charges', () => visit(browser, server.url, async (page) => {
  for (const resource of ['half', 'tight']) await ask('PUT', `/v1/limits?resource=${resource}`, { limits: ['rpd:100/day'] });
  await ask('PUT', '/v1/limits?resource=watched', { limits: [{ name: 'rpd', amount: 100, period: 'day', enforce: 'shadow' }] });
  await ask('POST', '/v1/entities', { id: 'team-open', parent: 'acme' });
  await ask('POST', '/v1/entities', { id: 'key-open', parent: 'team-open', cascade: true });
  const opens = async (/** @type {string} */ resource) => {
    await page.reload();
    await page.getByRole('heading', { name: `Levels on ${resource}` }).waitFor();
    assert.equal(await page.getByLabel('Resource').inputValue(), resource);
  };
  await go(page, 'entity?id=key-open');
  await ask('POST', '/v1/acquire', { entity: 'key-open', resource: 'half', tokens: { rpd: 50 } });
  await ask('POST', '/v1/acquire', { entity: 'key-open', resource: 'watched', tokens: { rpd: 99 } });
  await opens('half');
  await ask('POST', '/v1/acquire', { entity: 'team-open', resource: 'tight', tokens: { rpd: 90 } });
  await opens('tight');
}));

test('where nothing keeps usage, that is no failure', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'weir-browser-'));
  const bare = await serve({ args: ['--store', `disk:${dir}?usage=off`] });
  try {
    await client(bare.url)('PUT', '/v1/limits?resource=gpt-4', { limits: ['rpm:60/min'] });
    await visit(browser, bare.url, async (page) => {
      for (const hash of ['usage', 'entity?id=key-alice']) {
        await page.goto(`${bare.url}/#/${hash}`);
        const panel = page.locator('.panel', { has: page.getByRole('heading', { name: 'Usage', exact: true }) });
        await panel.getByText('No usage yet').waitFor();
        await panel.getByText('The store keeps no usage: it was opened with usage off.').waitFor();
        assert.equal(await page.getByRole('alert').count(), 0);
        assert.equal(await page.getByRole('button', { name: 'Try again' }).count(), 0);
      }
    });
  } finally {
    await bare.stop();
    await rm(dir, { recursive: true });
  }
});

test('what data says is never markup', () => visit(browser, server.url, async (page) => {
  const id = encodeURIComponent(hostile);
  await ask('PUT', `/v1/limits?resource=${id}`, { limits: [{ name: '<b>x</b>', amount: 5, period: 'min' }] });
  await spend(ask, hostile, 9, { '<b>x</b>': 1 }, hostile);
  await ask('PUT', `/v1/limits?plan=${id}`, { limits: ['rpm:1/min'] });
  await ask('PUT', `/v1/limits?resource=${id}`, { group: hostile });
  await ask('PATCH', `/v1/entities/${id}`, { plan: hostile });
  await ask('PUT', `/v1/limits?entity=${id}&resource=_group_${id}`, { limits: [{ name: hostile, period: 'balance' }] });
  await ask('POST', `/v1/entities/${id}/balances/${id}?resource=_group_${id}`, { amount: 1, id: hostile });
  for (const hash of ['overview', 'entities', `entity?id=${id}&resource=${id}`, `entity?id=${id}`, 'limits', `limits?resource=${id}`, `limits?resource=_group_${id}`, `limits?plan=${id}`, 'buckets', 'usage', 'audit', `manifests?name=${id}`, id, `overview?ns=${id}`, 'entity?id=..']) {
    await go(page, hash);
    await page.waitForFunction((h) => location.hash === `#/${h}` && document.querySelector('main > .page')?.getAttribute('data-page') === h.split('?')[0] && !document.querySelector('main .loading'), hash);
    assert.equal(await page.locator('img, main script, main b:not(.num)').count(), 0, hash);
  }
  await go(page, `entity?id=${id}`);
  await page.locator('dl.facts').getByText(hostile).first().waitFor();
  await page.getByRole('button', { name: /^Top up/ }).first().click();
  await page.getByRole('dialog').locator('.limits').getByText(hostile).waitFor();
  assert.equal(await page.locator('dialog :is(img, script, b:not(.num))').count(), 0);
  await page.keyboard.press('Escape');
  // If the code assigned HTML by mistake, the content security policy would block it.
  const stopped = await page.evaluate(() => {
    try {
      document.body.innerHTML = '<p>';
      return false;
    } catch {
      return true;
    }
  });
  assert.ok(stopped, 'innerHTML takes no strings');
}, { expected: /requires 'TrustedHTML' assignment/ }));

test('the keyboard is enough', () => visit(browser, server.url, async (page) => {
  await go(page, 'entities');
  await page.locator('main h1').waitFor();
  const focused = () => page.evaluate(() => document.activeElement?.textContent?.trim() || document.activeElement?.id);
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'Skip to content');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'main');
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'New entity');
  const outline = await page.evaluate(() => getComputedStyle(/** @type {Element} */ (document.activeElement)).outlineStyle);
  assert.notEqual(outline, 'none', 'the focus is to be seen');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  for (let i = 0; i < 12; i++) {
    await page.keyboard.press('Tab');
    assert.ok(await page.evaluate(() => document.activeElement === document.body || document.activeElement?.closest('dialog')), 'the focus left the dialog');
  }
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  assert.equal(await focused(), 'New entity');
  await page.keyboard.press('Tab');
  await page.keyboard.type('key-ali');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.activeElement?.tagName === 'H1');
  assert.equal(await focused(), 'key-alice');
}));

test('namespaces are apart', () => visit(browser, server.url, async (page) => {
  await go(page, 'entities');
  await page.getByRole('link', { name: 'key-alice' }).waitFor();
  await page.getByLabel('Namespace').selectOption('tenant-beta');
  await page.getByText('No entities yet').waitFor();
  assert.match(page.url(), /ns=tenant-beta/);
  await page.getByRole('button', { name: 'New entity' }).click();
  await page.getByRole('dialog').getByLabel('Id').fill('only-beta');
  await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'only-beta', level: 1 }).waitFor();
  await ask('GET', '/v1/entities/only-beta', undefined, 404);
  await ask('GET', '/v1/entities/only-beta?namespace=tenant-beta');
}));

test('a server that goes is missed, and found again', async () => {
  let mortal = await serve();
  const { url } = mortal;
  try {
    await visit(browser, url, async (page) => {
      await page.goto(`${url}/`);
      await page.locator('.live[data-state=live]').waitFor();
      await mortal.stop('SIGKILL');
      await page.getByText(/Reconnecting, stale since \d\d:\d\d:\d\d/).waitFor();
      assert.ok(await page.locator('.stale').count(), 'old figures look old');
      mortal = await serve({ http: url.slice('http://'.length) });
      await page.locator('.live[data-state=live]').waitFor({ timeout: 30_000 });
      assert.equal(await page.locator('.stale').count(), 0);
    });
  } finally {
    await mortal.stop();
  }
});

test('settings of a namespace', () => visit(browser, server.url, async (page) => {
  await go(page, 'limits?ns=tenant-beta');
  await page.getByRole('button', { name: 'Change the settings of this namespace' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('When the store does not answer').selectOption('allow');
  await dialog.getByLabel('Send events at').fill('50, 150');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.locator('.field-error').getByText(/150/).waitFor();
  await dialog.getByLabel('Send events at').fill('50, 90');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Events are sent at 50, 90% of a limit.').waitFor();
  const system = await ask('GET', '/v1/system?namespace=tenant-beta');
  assert.deepEqual([system.on_unavailable, system.near_limit], ['allow', [50, 90]]);

  // A form that was opened empty does not replace existing limits.
  await go(page, 'limits');
  await page.getByRole('button', { name: 'New resource' }).click();
  await dialog.getByLabel('Resource').fill('gpt-4');
  await dialog.getByLabel('Name').fill('rpm');
  await dialog.getByLabel('Tokens').fill('1');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.getByText('already has limits').waitFor();
}));

test('what is answered in an outage', () => visit(browser, server.url, async (page) => {
  const dialog = page.getByRole('dialog');
  const choose = async (/** @type {string} */ button, /** @type {string} */ mode, /** @type {string | undefined} */ resource) => {
    await page.getByRole('button', { name: button, exact: true }).click();
    if (resource !== undefined) await dialog.getByLabel('Resource').fill(resource);
    await dialog.getByLabel('When the store does not answer').selectOption(mode);
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.waitFor({ state: 'detached' });
  };
  await ask('PUT', '/v1/limits?namespace=tenant-beta', { limits: ['rpm:1K/min'] });
  await ask('PUT', '/v1/limits?resource=login&namespace=tenant-beta', { limits: ['rpm:10/min'] });
  await go(page, 'limits?ns=tenant-beta');
  await choose('Change the settings of this namespace', 'local');
  await page.locator('.foot').getByText('limited to local shares').waitFor();
  await choose('Settings of login', 'deny');
  const row = page.getByRole('row', { name: 'login' });
  await row.getByText('if the store fails: denied').waitFor();
  const login = await ask('GET', '/v1/limits?resource=login&namespace=tenant-beta');
  assert.deepEqual([login.on_unavailable, login.limits.length], ['deny', 1], 'the limits stay');

  // A level can set on_unavailable without limits.
  await choose('Settings of a resource', 'allow', 'search');
  await page.getByRole('row', { name: 'search' }).getByText('if the store fails: allowed, unmetered').waitFor();
  assert.equal(await page.getByRole('row', { name: 'search' }).getByRole('button', { name: 'Remove' }).count(), 0);

  await go(page, 'entity?id=key-dan&resource=login&ns=tenant-beta');
  await page.getByText('requests are denied. Set at: resource.').waitFor();
  await choose('Settings of this entity', 'local', '');
  await page.getByText('requests are limited to local shares. Set at: entity default.').waitFor();
  await page.locator('.steps').getByText('if the store fails: limited to local shares').first().waitFor();
  await choose('Settings of the default', 'default');
  await page.getByText('requests are denied. Set at: resource.').waitFor();
  await ask('GET', '/v1/limits?entity=key-dan&namespace=tenant-beta', undefined, 404);

  await go(page, 'limits?ns=tenant-beta');
  await choose('Change the settings of this namespace', 'default');
  await page.getByText('decided by the server’s configuration').waitFor();
}));

test('manifests: history, drift and rollback', () => visit(browser, server.url, async (page) => {
  const apply = async (/** @type {number} */ rpm) => {
    const response = await fetch(`${server.url}/v1/manifests/apply`, { method: 'POST', headers: { 'Content-Type': 'application/yaml' },
      body: `namespace: tenant-gamma\nresources:\n  gpt-4:\n    limits:\n      rpm: {capacity: ${rpm}}\n` });
    assert.equal(response.status, 200, await response.text());
  };
  await apply(10);
  await apply(20);
  await go(page, 'limits?ns=tenant-gamma');
  await page.getByRole('row', { name: 'gpt-4' }).getByRole('link', { name: 'managed by manifest default', exact: true }).click();
  await page.getByText('No drift').waitFor();
  await page.locator('pre').getByText('capacity: 20').waitFor();
  await ask('PUT', '/v1/limits?resource=gpt-4&namespace=tenant-gamma', { limits: ['rpm:99/min'] });
  await page.reload();
  await page.getByText('changed by hand').waitFor();
  await page.getByRole('button', { name: 'Roll back to revision 1' }).click();
  await page.getByRole('dialog').getByText('99').first().waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Roll back' }).click();
  await page.getByText('Rolled back').waitFor();
  assert.equal((await ask('GET', '/v1/limits?resource=gpt-4&namespace=tenant-gamma')).limits[0].amount, 10);
}));

test('metadata that is left alone stays as it is', () => visit(browser, server.url, async (page) => {
  const metadata = { 'billing:id': 'cus_1', note: 'a\nb: c', e: ' x ' };
  await ask('POST', '/v1/entities', { id: 'key-meta', metadata });
  await page.goto(`${server.url}/#/entity?id=key-meta&resource=gpt-4`);
  const dialog = page.getByRole('dialog');
  const edit = async (/** @type {string} */ name, /** @type {string} */ value) => {
    await page.getByRole('button', { name: 'Edit entity key-meta' }).click();
    await dialog.getByLabel(name).fill(value);
    await dialog.getByRole('button', { name: 'Save' }).click();
  };
  await edit('Name', 'Meta');
  await page.getByText('Saved: key-meta.').waitFor();
  const saved = await ask('GET', '/v1/entities/key-meta');
  assert.deepEqual([saved.name, saved.metadata], ['Meta', metadata]);
  await edit('Metadata', 'plan: pro');
  await dialog.getByText('do not fit on a line').waitFor();
  await page.keyboard.press('Escape');
  assert.deepEqual((await ask('GET', '/v1/entities/key-meta')).metadata, metadata);
}));

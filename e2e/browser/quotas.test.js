// Quotas, balances, groups, totals and plans in the dashboard.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { client, launch, seedQuotas, serve, visit } from './weir.js';

/** @type {Awaited<ReturnType<typeof serve>>} */ let server;
/** @type {import('playwright-core').Browser} */ let browser;
/** @type {ReturnType<typeof client>} */ let ask;

before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  ask = client(server.url);
  await seedQuotas(ask);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const go = (/** @type {import('playwright-core').Page} */ page, /** @type {string} */ hash) => page.goto(`${server.url}/#/${hash}`);
const elsewhere = { timezoneId: 'Asia/Tokyo' };

test('a quota has its end, in its own time zone', () => visit(browser, server.url, async (page) => {
  await go(page, 'entity?id=key-dora&resource=gpt-4o');
  const line = page.locator('.live-levels .level-line', { hasText: 'month@Europe/Berlin' });
  assert.equal(await line.getByRole('meter', { name: 'usd of team-blue on the total' }).getAttribute('aria-valuenow'), '4640');
  assert.match(await line.locator('.level-rest').textContent() ?? '', /^resets in \d+ (s|min|h|days), 1 \w+ (\d{4} )?00:00 Berlin$/);
  const end = new Date(await line.locator('time').getAttribute('datetime') ?? '');
  assert.ok(end.valueOf() > Date.now() && end.valueOf() < Date.now() + 32 * 86400_000, `${end}`);
  assert.equal(new Intl.DateTimeFormat('en-GB', { day: 'numeric', timeStyle: undefined, hour: '2-digit', minute: '2-digit', timeZone: 'Europe/Berlin' }).format(end).replace(/\D+/g, ' '), '1 00 00');
  const balance = page.locator('.live-levels .level-line', { hasText: 'credits' });
  assert.equal(await balance.locator('.level-text').textContent(), '0 left');
  assert.equal(await balance.getByRole('meter').count(), 0, 'nothing of a balance is a share');
}, elsewhere));

test('the end of a window', () => visit(browser, server.url, async (page) => {
  const limits = /** @type {[string, string, number, string][]} */ ([
    ['month@Europe/Berlin', '2026-11-21T20:00:00Z', 788_400, 'resets in 9 days, 1 Dec 00:00 Berlin'],
    ['month@Europe/Berlin', '2026-11-21T20:00:00.0004Z', 788_399.9999, 'resets in 9 days, 1 Dec 00:00 Berlin'],
    ['quarter@America/Argentina/Buenos_Aires', '2026-12-20T03:00:00Z', 12 * 86_400, 'resets in 12 days, 1 Jan 2027 00:00 Buenos Aires'],
    ['day@Africa/Cairo', '2026-04-23T20:00:00Z', 7200, 'resets in 2 h, 24 Apr 01:00 Cairo'], // midnight is skipped
    ['hour@UTC', '2026-11-21T20:35:00Z', 1500, 'resets in 25 min, 21:00 UTC'],
    ['day@Mars/Olympus', '2026-11-21T20:00:00Z', 14_400, 'resets in 4 h, 22 Nov 00:00 UTC'], // a zone that the browser does not know
  ]);
  let now = limits[0];
  await page.route('**/v1/watch?*', (route) => {
    const [period, at, ends_in] = now;
    const limit = { entity: 'key-dora', resource: 'gpt-4o', limit: 'usd', source: 'entity', amount: 9, burst: 9, available: 5, period, full_in: ends_in, ends_in };
    return route.fulfill({ contentType: 'text/event-stream', body: `event: state\ndata: ${JSON.stringify({ at, limits: [limit] })}\n\n` });
  });
  for (now of limits) {
    await go(page, 'overview');
    await go(page, 'entity?id=key-dora&resource=gpt-4o');
    await page.locator('.level-line', { hasText: now[0] }).waitFor();
    assert.equal(await page.locator('.live-levels .level-rest').textContent(), now[3]);
  }
}, elsewhere));

test('the next end of what is held', () => visit(browser, server.url, async (page) => {
  await page.clock.setFixedTime('2026-11-23T03:03:00Z'); // 12:03:00 in Tokyo
  let limit = { entity: 'key-dora', resource: 'gpt-4o', limit: 'parallel', source: 'entity', amount: 0, burst: 20, available: 16, period: 'slots', full_in: 0, ends_in: 44.6 };
  await page.route('**/v1/watch?*', (route) => route.fulfill({ contentType: 'text/event-stream', body: `event: state\ndata: ${JSON.stringify({ at: '2026-11-23T03:03:00.4Z', limits: [limit] })}\n\n` }));
  for (const [available, ends_in, text] of /** @type {[number, number, string][]} */ ([[16, 44.6, '4 of 20 heldnext ends 12:03:45'], [20, 0, '0 of 20 held']])) {
    limit = { ...limit, available, ends_in };
    await go(page, 'overview');
    await go(page, 'entity?id=key-dora&resource=gpt-4o');
    await page.locator('.level-line', { hasText: text.slice(0, 12) }).waitFor();
    assert.equal(await page.locator('.live-levels .level-text').textContent(), text);
  }
}, elsewhere));

test('limits that begin and end', () => visit(browser, server.url, async (page) => {
  const year = new Date().getFullYear() + 1;
  const add = (/** @type {string} */ scope, /** @type {any} */ body) => ask('PUT', `/v1/limits?${scope}`, body);
  await ask('PUT', '/v1/limits?resource=sora', { limits: ['rpm:6/min'] });
  await add('resource=sora', { limits: ['rpm:2/min'], from: `${year}-02-03T18:00@Europe/Berlin`, until: `${year}-02-05@Asia/Ho_Chi_Minh` });
  await add('resource=sora', { scale: 2, from: `${year}-03-01T04:05:00Z` });
  await ask('PUT', '/v1/limits?entity=team-boost&resource=_total_', { limits: ['usd:50/month@UTC', 'credits:balance'] });
  await add('entity=team-boost&resource=_total_', { scale: 10, until: `${year}-02-03T18:00@Europe/Berlin` });
  await go(page, 'limits?resource=sora');
  const bounded = page.locator('.bounded');
  const texts = async () => (await bounded.allTextContents()).map((t) => t.replaceAll('\u00a0', ' '));
  await bounded.nth(1).waitFor();
  assert.deepEqual(await texts(), [
    `from 3 Feb ${year} 18:00 Berlin until 5 Feb ${year} 00:00 Ho Chi Minh rpm 2 / min`, `from 1 Mar ${year} 04:05 UTC 2 × these limits`,
  ]);
  await go(page, 'entity?id=team-boost');
  await page.getByRole('heading', { name: 'team-boost', level: 1 }).waitFor();
  assert.deepEqual(await page.getByRole('table', { name: 'Limits' }).locator('.bounded').allTextContents(), [`until 3 Feb ${year} 18:00 Berlin now10 × these limits, except balances`]);
  await ask('POST', '/v1/entities', { id: 'team-boost' });
  await ask('POST', '/v1/entities', { id: 'key-boost', parent: 'team-boost', cascade: true });
  await add('entity=key-boost&resource=_total_', { limits: ['usd:7/day@UTC'], from: `${year}-01-02@UTC` });
  await go(page, 'entity?id=key-boost&resource=sora');
  const grid = page.getByRole('table', { name: 'What is left of each limit' });
  await grid.getByText('key-boost').waitFor();
  assert.deepEqual((await grid.locator('.bounded').allTextContents()).map((t) => t.replaceAll('\u00a0', ' ')), [
    `until 3 Feb ${year} 18:00 Berlin, then rpm 2 / min resource`, `from 2 Jan ${year} 00:00 UTC usd 7 / day@UTC entity`,
    `until 3 Feb ${year} 18:00 Berlin, then rpm 2 / min resource`, `until 3 Feb ${year} 18:00 Berlin, then usd 50 / month@UTCcredits balance entity`,
  ]);
  await go(page, 'entity?id=team-boost');
  await page.getByRole('button', { name: 'Remove limits on the total' }).click();
  await page.getByRole('dialog').getByText('The limits that begin or end are removed, too.').waitFor();

  // What has begun, has ended, or is in a zone that the browser does not know. It is 23:30 in Berlin.
  await page.clock.setFixedTime('2026-11-23T22:30:00Z');
  await page.route('**/v1/resources?*', (route) => route.fulfill({ json: { items: [{ resource: 'sora', source: 'resource', limits: [], bounded: [
    { until: '2026-11-23T23:30@Europe/Berlin', scale: 2 },
    { from: '2026-11-23T23:30@Europe/Berlin', until: '2026-11-23T23:31@Europe/Berlin', scale: 3 },
    { from: '2026-11-24T00:30@Europe/Berlin', until: '2026-11-30T09:00:30@Mars/Olympus', scale: 4 },
    { from: '2027-01-01T00:00:00Z', limits: [] },
  ] }] } }));
  await go(page, 'limits');
  await page.reload();
  await bounded.nth(2).waitFor();
  assert.deepEqual(await texts(), [
    'since 23:30 Berlin until 23:31 Berlin now3 × these limits', 'from 24 Nov 00:30 Berlin until 30 Nov 2026 09:00 Olympus 4 × these limits', 'from 1 Jan 2027 00:00 UTC ',
  ]);
}, elsewhere));

test('the grid of entities and what they are charged for', () => visit(browser, server.url, async (page) => {
  await go(page, 'entity?id=key-dora&resource=gpt-4o');
  const grid = page.getByRole('table', { name: 'What is left of each limit' });
  await grid.waitFor();
  assert.deepEqual(await grid.locator('thead th').allTextContents(), ['Entity', 'gpt-4o', 'group openai', 'the total']);
  const rows = (await grid.locator('tbody tr').all()).map(async (r) => (await r.locator('th, td').allTextContents()).map((t) => t.replaceAll('\u00a0', ' ').replace(/[\d.,]+K? left, .*? used/g, '…')));
  const [key, team] = await Promise.all(rows);
  assert.deepEqual([key[0], team[0]], ['key-dora', 'team-blue']);
  assert.match(key[1], /^rpm 600 \/ min ….* plantpm 500K \/ min …/);
  assert.match(key[2], /^tpd 1M \/ day@UTC …, resets in .*00:00 UTC.* group$/);
  assert.equal(key[3], 'no limits');
  assert.match(team[1], /^rpm 60 \/ min ….* resourcetpm 50K \/ min, burst 75K …/);
  assert.match(team[3], /^usd 5,000 \/ month@Europe\/Berlin …, resets in .*00:00 Berlin.* entitycredits balance 0 left.*$/);
  const levels = page.getByRole('list', { name: 'On the total' });
  assert.equal(await levels.count(), 2);
  await levels.last().getByText('entity · applies').waitFor();

  const amounts = page.getByRole('group', { name: 'What would happen to a request for' });
  assert.deepEqual(await amounts.getByRole('textbox').evaluateAll((all) => all.map((el) => el.labels[0].textContent)), ['rpm', 'tpm', 'tpd', 'usd', 'credits']);
  const explain = page.getByRole('button', { name: 'Explain' }), rpm = amounts.getByLabel('rpm');
  await rpm.fill('many');
  await explain.click();
  await amounts.getByText('must be a whole number, such as 500, 50K or 1.5M').waitFor();
  assert.equal(await rpm.getAttribute('aria-invalid'), 'true');
  await rpm.fill('0');
  await amounts.getByLabel('tpm').fill('1K');
  await explain.click();
  await page.getByText('It would be admitted.').waitFor();
  assert.equal(await amounts.locator('.field-error').allTextContents().then((all) => all.join('')), '');
  await amounts.getByLabel('credits').fill('1');
  await explain.click();
  await page.getByText('It would be refused until a balance is topped up.').waitFor();
  await grid.locator('li', { hasText: 'credits' }).getByText('refuses').waitFor();

  // The fields follow the limits that apply; what was entered stays.
  await ask('PUT', '/v1/limits?entity=key-dora&resource=gpt-4o', { limits: ['ipm:5/min', 'rpm:600/min'] });
  await ask('PUT', '/v1/limits?resource=gpt-4o', { limits: ['rpm:60/min'] });
  await rpm.fill('2');
  await explain.click();
  await amounts.locator('.field', { hasText: 'tpm' }).locator('.field-error:not(:empty)').waitFor();
  await amounts.getByLabel('tpm').fill('');
  await explain.click();
  await amounts.getByLabel('ipm').waitFor();
  assert.deepEqual(await amounts.getByRole('textbox').evaluateAll((all) => all.map((el) => `${el.labels[0].textContent}=${el.value}`)), ['ipm=', 'rpm=2', 'tpd=', 'usd=', 'credits=1']);
}));

test('limits on a group and in total', () => visit(browser, server.url, async (page) => {
  await ask('POST', '/v1/entities', { id: 'team-new' });
  await go(page, 'entity?id=team-new&resource=gpt-4o');
  const dialog = page.getByRole('dialog');
  const add = async (/** @type {string} */ on, /** @type {string[]} */ ...values) => {
    await page.getByRole('button', { name: 'Add limits of this entity' }).click();
    await dialog.getByLabel('On', { exact: true }).selectOption(on);
    for (const [i, label] of ['Name', 'Tokens', 'per'].entries()) await dialog.getByLabel(label, { exact: true }).fill(values[i]);
  };
  await add('total', 'usd', '5K', 'month');
  assert.ok(await dialog.getByLabel('Resource or group').isHidden());
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.locator('.field-error').getByText('month@UTC').waitFor();
  await dialog.getByLabel('per', { exact: true }).fill('month@Europe/Berlin');
  await dialog.getByRole('button', { name: 'Add a limit' }).click();
  await dialog.getByLabel('Name', { exact: true }).last().fill('credits');
  await dialog.getByLabel('per', { exact: true }).last().fill('balance');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved: limits of team-new on the total.').waitFor();
  await add('group', 'tpd', '2M', 'day@UTC');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.getByText('must not be empty').waitFor();
  await dialog.getByLabel('Resource or group').fill('openai');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved: limits of team-new on group openai.').waitFor();
  const held = (await ask('GET', '/v1/limits/list?entity=team-new')).items;
  assert.deepEqual(held.map((/** @type {any} */ s) => [s.resource, ...s.limits.map((/** @type {any} */ l) => `${l.name} ${l.amount ?? ''} ${l.period}`)]),
    [['_group_openai', 'tpd 2000000 day@UTC'], ['_total_', 'usd 5000 month@Europe/Berlin', 'credits  balance']]);

  await page.getByRole('button', { name: 'Edit limits on the total' }).click();
  await dialog.getByLabel('Tokens').first().fill('6K');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('row', { name: 'the total' }).getByText('6,000').waitFor();

  await go(page, 'limits');
  await page.getByRole('button', { name: 'Settings of o3' }).click();
  await dialog.getByLabel('Group').fill('reasoning');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('link', { name: 'group reasoning' }).click();
  await page.getByText('Requests on these resources are charged: o3').waitFor();
  const o3 = await ask('GET', '/v1/limits?resource=o3');
  assert.deepEqual([o3.group, o3.limits.length, o3.on_unavailable], ['reasoning', 1, undefined], 'nothing else changes');
}));

test('a form keeps what it does not show', () => visit(browser, server.url, async (page) => {
  await ask('PUT', '/v1/limits?resource=debts', { limits: [{ name: 'tpm', amount: 10, period: 'min', max_debt: 7, returns: 'strict' }] });
  await go(page, 'limits?resource=debts');
  await page.getByRole('button', { name: 'Edit', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Tokens').fill('20');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved: limits of resource debts.').waitFor();
  const [l] = (await ask('GET', '/v1/limits?resource=debts')).limits;
  assert.deepEqual([l.amount, l.max_debt, l.returns], [20, 7, 'strict']);
}));

test('plans', () => visit(browser, server.url, async (page) => {
  await ask('POST', '/v1/entities', { id: 'key-plan' });
  const dialog = page.getByRole('dialog');
  await go(page, 'limits');
  await page.getByRole('button', { name: 'New plan' }).click();
  await dialog.getByLabel('Plan', { exact: true }).fill('gold');
  await dialog.getByLabel('Name', { exact: true }).fill('rpm');
  await dialog.getByLabel('Tokens').fill('6K');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('link', { name: 'gold' }).click();
  await page.getByText('No entity names this plan').waitFor();

  await go(page, 'entity?id=key-plan&resource=o3');
  await page.getByRole('button', { name: 'Edit entity key-plan' }).click();
  await dialog.getByLabel('Plan', { exact: true }).fill('silver');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.locator('.field-error').getByText('silver').waitFor();
  await dialog.getByLabel('Plan', { exact: true }).fill('gold');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.locator('.live-levels').getByText('6,000 of 6,000').waitFor();
  await page.locator('.chain').getByText('plan default · applies').waitFor();
  await page.getByRole('link', { name: 'plan gold' }).first().click();
  await page.getByRole('heading', { name: 'gold', level: 1 }).waitFor();
  await page.getByRole('link', { name: 'key-plan' }).waitFor();

  await page.getByRole('button', { name: 'Delete plan gold' }).click();
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await dialog.getByText('is the plan of key-plan').waitFor();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await ask('PATCH', '/v1/entities/key-plan', { plan: '' });
  await page.getByRole('button', { name: 'Delete plan gold' }).click();
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await page.getByText('Deleted: plan gold.').waitFor();
  assert.deepEqual((await ask('GET', '/v1/plans')).items.map((/** @type {any} */ p) => p.plan), ['pro']);
}));

test('a credit whose answer is lost is not added twice', () => visit(browser, server.url, async (page) => {
  await ask('PUT', '/v1/limits?entity=team-paid&resource=_total_', { limits: ['credits:balance'] });
  const left = async () => (await ask('GET', '/v1/entities/team-paid/balances')).items.map((/** @type {any} */ b) => [b.resource, b.limit, b.available, b.credited]);
  await go(page, 'entity?id=team-paid&resource=gpt-4o');
  const dialog = page.getByRole('dialog'), id = dialog.getByLabel('ID');
  const open = () => page.getByRole('button', { name: 'Top up credits of team-paid on the total' }).first().click();
  const send = () => dialog.getByRole('button', { name: 'Top up' }).click();
  await open();
  assert.equal(await id.inputValue(), '', 'no id is proposed');
  await dialog.getByLabel('Amount').fill('some');
  await send();
  await dialog.getByText('must be a whole number').waitFor();
  await dialog.getByLabel('Amount').fill('500');
  await send();
  await dialog.getByText('must not be empty').waitFor();
  await id.fill('inv-1042');
  await page.route('**/v1/entities/team-paid/balances/credits?*', async (route) => {
    await route.fetch();
    await route.abort('connectionreset');
  }, { times: 1 });
  await send();
  await dialog.getByText('The credit may have been made nonetheless').waitFor();
  assert.deepEqual(await left(), [['_total_', 'credits', 500, 500]]);
  await send();
  await page.getByText('inv-1042 was credited before. 500 credits left.').waitFor();
  await page.locator('.live-levels').getByText('500 left').waitFor();

  await open();
  await dialog.getByText('inv-1042').waitFor();
  await dialog.getByLabel('Amount').fill('400');
  await id.fill('inv-1042');
  await send();
  await dialog.getByText('was made with 500 tokens, not 400').waitFor();
  await id.fill('inv-1043');
  await send();
  await page.getByText('Credited: inv-1043. 900 credits left.').waitFor();
  assert.deepEqual(await left(), [['_total_', 'credits', 900, 900]]);
  await go(page, 'audit?subject=balance:team-paid%23_total_%23credits');
  await page.getByRole('cell', { name: 'team-paid credits on the total' }).nth(1).waitFor();
}));

test('slots', () => visit(browser, server.url, async (page) => {
  await ask('PUT', '/v1/limits?entity=key-slots&resource=video', { limits: ['parallel:20slots/45s', 'rpm:60/min'] });
  for (const n of [3, 1]) await ask('POST', '/v1/acquire', { entity: 'key-slots', resource: 'video', tokens: { parallel: n } });
  await go(page, 'entity?id=key-slots&resource=video');
  const line = page.locator('.live-levels .level-line', { hasText: 'parallel' });
  assert.equal((await line.locator('.level-name .dim').first().textContent())?.replaceAll('\u00a0', ' '), '20 slots, heal 45s');
  assert.match(await line.locator('.level-text').textContent() ?? '', /^4 of 20 heldnext ends \d\d:\d\d:\d\d$/);
  assert.equal(await line.getByRole('meter').getAttribute('aria-valuetext'), '4 of 20 held');
  await page.getByRole('button', { name: /limits of key-slots on video/ }).first().click();
  const dialog = page.getByRole('dialog');
  assert.equal(await dialog.getByLabel('per').first().inputValue(), 'slots/45s');
  await dialog.getByLabel('Tokens').first().fill('10');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved: limits of key-slots on video.').waitFor();
  await page.locator('.live-levels .level-text', { hasText: '4 of 10 held' }).waitFor();
  const saved = await ask('GET', '/v1/limits?entity=key-slots&resource=video');
  assert.deepEqual(saved.limits.find((/** @type {any} */ l) => l.name === 'parallel'), { name: 'parallel', slots: 10, heal: '45s' });
}));

// The client against a real server, named by WEIR: make test-typescript builds both.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { after, before, test } from 'node:test';
import * as weir from '../dist/index.js';

/** @type {import('node:child_process').ChildProcess} */ let server;
/** @type {weir.Client} */ let client;
let url = '';

before(async () => {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('WEIR')));
  server = spawn(process.env.WEIR ?? '', ['--store', 'memory:', 'serve', '--http', '127.0.0.1:0', '--grpc', 'off', '--decide-within', '1s'], { env, cwd: tmpdir(), stdio: ['ignore', 'pipe', 'inherit'] });
  url = await new Promise((resolve, reject) => {
    let out = '';
    server.once('error', reject).once('exit', () => reject(new Error(`weir serve ended: ${out}`)));
    server.stdout?.on('data', (text) => {
      const m = /(http:\/\/[\d.:]+)/.exec((out += text));
      if (m) resolve(m[1]);
    });
  });
  client = new weir.Client(url);
});
after(() => server.kill());

const set = (resource, ...limits) => client.call('PUT', '/v1/limits', { query: { resource }, body: { limits } });
const left = async (entity, resource) => (await client.available(entity, resource))[0].available;

/** Returns after everything that waits for no time has run. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

test('tokens are spent, adjusted, and given back if the work fails', async () => {
  await set('m', 'tpm:1000/h');
  const result = await client.acquire({ entity: 'a', resource: 'm', tokens: { tpm: 600 } }, async (lease) => {
    assert.equal(lease.limits[0].available, 400);
    assert.equal(lease.degraded, false);
    const [balance] = await lease.adjust({ tpm: 500 });
    assert.equal(balance.available, -100);
    await lease.adjust({ tpm: -300 });
    return 'done';
  });
  assert.equal(result, 'done');
  assert.equal(await left('a', 'm'), 200);

  const failed = new Error('no answer from the model');
  await assert.rejects(client.acquire({ entity: 'a', resource: 'm', tokens: { tpm: 150 } }, async (lease) => {
    await lease.adjust({ tpm: 20 });
    throw failed;
  }), failed);
  assert.equal(await left('a', 'm'), 200);
});

test('a refusal runs nothing, spends nothing, and has when to come back', async () => {
  await set('few', 'rpm:1/min', 'tpm:10/min');
  await client.acquire({ entity: 'a', resource: 'few', tokens: { rpm: 1, tpm: 4 } }, () => {});
  await assert.rejects(client.acquire({ entity: 'a', resource: 'few', tokens: { rpm: 1, tpm: 4 } }, () => assert.fail('ran')), (err) => {
    assert.ok(err instanceof weir.RateLimited && err instanceof weir.WeirError);
    assert.deepEqual(err.limits.filter((l) => l.refused).map((l) => l.limit), ['rpm']);
    assert.ok(err.retryAfter > 50 && err.retryAfter <= 78, `${err.retryAfter}`);
    assert.equal(err.problem.status, 429);
    return true;
  });
  assert.equal((await client.available('a', 'few'))[1].available, 6);
});

test('an empty balance has no time to come back', async () => {
  await client.call('PUT', '/v1/limits', { query: { entity: 'a', resource: 'paid' }, body: { limits: ['credits:balance'] } });
  await assert.rejects(client.acquire({ entity: 'a', resource: 'paid', tokens: { credits: 1 } }, () => {}), { name: 'RateLimited', retryAfter: null });
});

test('mistakes name their kind and field', async () => {
  const spend = (entity, resource, tokens) => client.acquire({ entity, resource, tokens }, () => {});
  await assert.rejects(spend('a', 'm', { tpm: 5000 }), { name: 'RequestError', status: 422, kind: 'exceeds-burst' });
  await assert.rejects(spend('a', 'm', { other: 1 }), { name: 'RequestError', kind: 'invalid', field: 'tokens.other' });
  await assert.rejects(spend('a', 'unlimited', {}), { name: 'RequestError', status: 422, kind: 'no-limits' });
  await assert.rejects(spend('', 'm', {}), { name: 'RequestError', status: 400, field: 'entity' });
  for (const bad of ['ftp://x', 'http://a:b@x', 'http://x/?y', 'x']) assert.throws(() => new weir.Client(bad), TypeError);
});

test('an adjustment beyond the debt that is allowed is made in part, and the lease goes on', async () => {
  await client.call('PUT', '/v1/limits', { query: { resource: 'debt' }, body: { limits: [{ name: 'tpm', amount: 10, period: 'h', max_debt: 5 }] } });
  await client.acquire({ entity: 'a', resource: 'debt', tokens: { tpm: 10 } }, async (lease) => {
    await assert.rejects(lease.adjust({ tpm: 100 }), { name: 'RequestError', kind: 'max-debt' });
    await lease.adjust({ tpm: -100 });
  });
  assert.equal(await left('a', 'debt'), 0);
});

test('a slot is held while the work runs, and who waits gets it', async () => {
  await set('one', 'parallel:1slots');
  const one = { entity: 'a', resource: 'one' };
  const order = [];
  let release = () => {};
  const first = client.acquire(one, async () => {
    order.push('first');
    await new Promise((resolve) => (release = () => resolve(undefined)));
  });
  while (!order.length) await settled();
  await assert.rejects(client.acquire(one, () => assert.fail('ran')), weir.RateLimited);
  const second = client.acquire(one, () => order.push('second'), { wait: 30_000 });
  release();
  await Promise.all([first, second]);
  assert.deepEqual(order, ['first', 'second']);
  assert.equal(await left('a', 'one'), 1);
});

test('a batch is all or none', async () => {
  await set('b', 'rpm:2/h');
  const both = [{ entity: 'x', resource: 'b', tokens: { rpm: 1 } }, { entity: 'y', resource: 'b', tokens: { rpm: 2 } }];
  await client.acquireAll(both, ([x, y]) => assert.deepEqual([x.limits[0].available, y.limits[0].available], [1, 0]));
  await assert.rejects(client.acquireAll(both, () => assert.fail('ran')), weir.RateLimited);
  assert.equal(await left('x', 'b'), 1);
});

test('explain spends nothing', async () => {
  await set('why', 'rpm:2/h');
  const x = await client.explain('e', 'why', { rpm: 3 });
  assert.equal(x.outcome, 'exceeds-burst');
  assert.equal(await left('e', 'why'), 2);
});

test('a caller can leave', async () => {
  const stop = new AbortController(), why = new Error('gone');
  stop.abort(why);
  await assert.rejects(client.acquire({ entity: 'a', resource: 'm' }, () => {}, { signal: stop.signal }), why);
});

/** A fetch that is answered by a function of the path and its number, from 0; undefined is no answer. */
function scripted(answers) {
  const seen = [];
  const send = async (target, init) => {
    const path = new URL(target).pathname, n = seen.filter((p) => p === path).length;
    seen.push(path);
    const body = answers(path, n, init);
    if (body === undefined) throw new TypeError('fetch failed');
    const [status, value] = Array.isArray(body) ? body : [200, body];
    return new Response(status === 204 ? null : JSON.stringify(value), { status });
  };
  return { client: new weir.Client('http://weir.test', { fetch: send, token: 'secret' }), seen };
}

const admitted = { allowed: true, lease: 'l0', expires: '2030-01-01T00:00:00Z', degraded: false, limits: [] };
const problem = (status, kind) => [status, { type: `https://weir.dev/problems#${kind}`, title: '', status, detail: kind }];

test('no answer is Unavailable, is not repeated, and runs nothing', async () => {
  const { client, seen } = scripted(() => undefined);
  await assert.rejects(client.acquire({ entity: 'a', resource: 'm' }, () => assert.fail('ran')), { name: 'Unavailable', status: 0 });
  assert.equal(seen.length, 1);
  const busy = scripted(() => problem(503, 'overloaded'));
  await assert.rejects(busy.client.acquire({ entity: 'a', resource: 'm' }, () => {}), { name: 'Unavailable', status: 503, kind: 'overloaded' });
});

test('what settles a lease is repeated once if there is no answer', async () => {
  const { client, seen } = scripted((path, n) => (path === '/v1/acquire' ? admitted : n === 0 ? undefined : { lease: 'l1', limits: [] }));
  await client.acquire({ entity: 'a', resource: 'm' }, (lease) => lease.adjust({ tpm: 1 }));
  assert.deepEqual(seen, ['/v1/acquire', '/v1/leases/l0/adjust', '/v1/leases/l0/adjust']);
});

test('an adjustment whose answer is lost is made once and ends the lease, whose slots are renewed all the same', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { client, seen } = scripted((path, n) => (path === '/v1/acquire' ? { ...admitted, held_for: 60 }
    : path.endsWith('/renew') ? { lease: 'l0', expires: '', held_for: 60 } : n === 0 ? undefined : problem(409, 'settled')));
  await client.acquire({ entity: 'a', resource: 'm' }, async (lease) => {
    assert.deepEqual(await lease.adjust({ tpm: 1 }), []);
    await assert.rejects(lease.adjust({ tpm: 1 }), { name: 'LeaseExpired' });
    t.mock.timers.tick(30_000);
    await settled();
  });
  assert.deepEqual(seen, ['/v1/acquire', '/v1/leases/l0/adjust', '/v1/leases/l0/adjust', '/v1/leases/l0/renew']);
  const { client: other } = scripted((path) => (path === '/v1/acquire' ? admitted : problem(409, 'settled')));
  await assert.rejects(other.acquire({ entity: 'a', resource: 'm' }, (lease) => lease.adjust({ tpm: 1 })), { name: 'LeaseExpired' });
});

test('slots are renewed at half of their time, under the id of the last answer', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { client, seen } = scripted((path) => (path === '/v1/acquire' ? { ...admitted, held_for: 60 }
    : path.endsWith('/renew') ? { lease: `l${seen.length}`, expires: '', held_for: 60 } : [204]));
  await client.acquire({ entity: 'a', resource: 'm' }, async (lease) => {
    for (let n = 1; n <= 3; n++) {
      t.mock.timers.tick(29_000);
      await settled();
      assert.equal(seen.length, n);
      t.mock.timers.tick(1_000);
      await settled();
      assert.equal(seen.length, n + 1);
    }
    assert.equal(lease.signal.aborted, false);
  });
  assert.match(seen.join(' '), /^\/v1\/acquire \/v1\/leases\/l0\/renew \/v1\/leases\/l2\/renew \/v1\/leases\/l3\/renew .*commit$/);
});

test('a slot that cannot be renewed in time is lost: the signal is aborted, and what the work threw is the cause', async () => {
  for (const answer of [undefined, problem(410, 'expired')]) {
    const { client } = scripted((path) => (path === '/v1/acquire' ? { ...admitted, held_for: 0.02 } : answer));
    await assert.rejects(client.acquire({ entity: 'a', resource: 'm' }, (lease) => new Promise((_, reject) => {
      lease.signal.addEventListener('abort', () => reject(lease.signal.reason));
    })), { name: 'SlotLost' });
    await assert.rejects(client.acquire({ entity: 'a', resource: 'm' }, (lease) => new Promise((_, reject) => {
      lease.signal.addEventListener('abort', () => reject(new Error('stopped')));
    })), (err) => err instanceof weir.SlotLost && err.cause.message === 'stopped');
  }
});

test('a token is sent, and not to where the server redirects', async () => {
  const heard = [];
  const elsewhere = createServer((req, res) => (heard.push(req.headers.authorization), res.end('{}'))).listen(0, '127.0.0.1');
  const redirects = createServer((req, res) => {
    heard.push(req.headers.authorization);
    res.writeHead(307, { Location: `http://127.0.0.1:${elsewhere.address().port}/` }).end();
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => redirects.once('listening', resolve));
  const base = `http://127.0.0.1:${redirects.address().port}`;
  await assert.rejects(new weir.Client(base, { token: 'secret' }).available('a', 'm'), { name: 'Unavailable' });
  assert.deepEqual(heard, ['Bearer secret']);
  elsewhere.close();
  redirects.close();
});

test('every block of the README runs', async () => {
  const text = await readFile(new URL('../README.md', import.meta.url), 'utf8');
  const blocks = [...text.matchAll(/```ts\n([^]*?)```/g)].map((m) => m[1].replace(/^import .*\n/gm, '').replaceAll('http://127.0.0.1:8080', url));
  assert.ok(blocks.length >= 3);
  await set('gpt-4o', 'rpm:60/min', 'tpm:50K/min:75K');
  await set('render', 'parallel:20slots');
  const Async = Object.getPrototypeOf(async () => {}).constructor;
  await new Async('weir', 'askModel', 'render', 'reply', blocks.map((b) => b.replace('export ', '')).join('\n'))(weir, async () => ({ totalTokens: 740 }), async () => {}, () => {});
});

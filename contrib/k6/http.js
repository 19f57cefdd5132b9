// API keys that acquire an estimate for a model and settle the actual usage, over weir's HTTP API.
//
//   k6 run -e WEIR=http://127.0.0.1:8080 contrib/k6/http.js
//
// Admissions, refusals and degraded answers are counted separately; a refusal is not a failure. WEIR_TOKEN is sent if set.
import http from 'k6/http';
import { check, sleep } from 'k6';
import { Counter, Trend } from 'k6/metrics';

const base = __ENV.WEIR || 'http://127.0.0.1:8080';
const models = ['openai/gpt-4o', 'anthropic/claude-haiku', 'google/gemini-pro'];
const estimate = 800;

const admitted = new Counter('weir_admitted');
const refused = new Counter('weir_refused');
const degraded = new Counter('weir_degraded');
const retryAfter = new Trend('weir_retry_after', true);

export const options = {
  scenarios: {
    gateway: { executor: 'constant-arrival-rate', rate: 200, timeUnit: '1s', duration: __ENV.FOR || '30s', preAllocatedVUs: 50, maxVUs: 500 },
  },
  thresholds: {
    http_req_failed: ['rate==0'],
    'http_req_duration{call:acquire}': ['p(99)<50'],
  },
};

const headers = { 'Content-Type': 'application/json' };
if (__ENV.WEIR_TOKEN) headers.Authorization = `Bearer ${__ENV.WEIR_TOKEN}`;

const mayRefuse = http.expectedStatuses(200, 429);

function post(path, body, call, extra) {
  return http.post(base + path, JSON.stringify(body), { headers, tags: { call, name: call }, ...extra });
}

export function setup() {
  for (const model of models) {
    const url = `${base}/v1/limits?resource=${encodeURIComponent(model)}`;
    const limits = JSON.stringify({ limits: ['rpm:1000/min', 'tpm:800K/min'] });
    const answer = http.put(url, limits, { headers, tags: { call: 'limits', name: 'limits' } });
    check(answer, { 'limits are set': (r) => r.status === 200 });
  }
}

export default function () {
  const entity = `apikey-${__VU}`;
  const resource = models[Math.floor(Math.random() * models.length)];
  const tokens = { rpm: 1, tpm: estimate };
  const answer = post('/v1/acquire', { entity, resource, tokens }, 'acquire', { responseCallback: mayRefuse });
  if (answer.status !== 200 && answer.status !== 429) return;
  const said = answer.json();
  if (said.degraded) degraded.add(1);
  if (answer.status === 429) {
    refused.add(1);
    retryAfter.add(said.retry_after * 1000);
    return; // keeps the rate; a real client would sleep(said.retry_after) and retry
  }
  admitted.add(1);
  sleep(0.05); // the work
  const took = 200 + Math.floor(Math.random() * 1801);
  // From here on, use the lease in this answer. A commit writes nothing and need not be sent.
  const adjusted = post(`/v1/leases/${said.lease}/adjust`, { tokens: { tpm: took - estimate } }, 'adjust');
  check(adjusted, { 'the lease is adjusted': (r) => r.status === 200 });
}

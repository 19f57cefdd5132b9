// Runs http.js once under Node against a real server, for tests. This file replaces k6's modules.
//
//   node standin.mjs http://127.0.0.1:8080
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

// k6's requests block and Node's do not, so another process makes them.
const fetching = `
  const [url, init] = JSON.parse(process.argv[1]);
  fetch(url, init).then(async (r) => console.log(JSON.stringify({ status: r.status, body: await r.text() })));
`;

const sent = [];
const checks = {};
const metrics = {};

function request(method, url, body, params) {
  const init = { method, body, headers: params.headers };
  const out = execFileSync(process.execPath, ['-e', fetching, JSON.stringify([url, init])], { encoding: 'utf8' });
  const answer = JSON.parse(out);
  sent.push({ method, path: new URL(url).pathname, status: answer.status, call: params.tags.call });
  return { ...answer, json: () => JSON.parse(answer.body) };
}

class Metric {
  constructor(name) {
    this.name = name;
    metrics[name] = 0;
  }

  add(value) {
    metrics[this.name] += value;
  }
}

globalThis.k6 = {
  http: {
    expectedStatuses: (...statuses) => statuses,
    post: (url, body, params) => request('POST', url, body, params),
    put: (url, body, params) => request('PUT', url, body, params),
  },
  check(value, asserted) {
    for (const [name, holds] of Object.entries(asserted)) checks[name] = holds(value) && checks[name] !== false;
  },
  sleep() {},
  Metric,
};
globalThis.__ENV = { WEIR: process.argv[2] };
globalThis.__VU = 1;

const script = readFileSync(new URL('http.js', import.meta.url), 'utf8')
  .replace("import http from 'k6/http';", 'const { http } = k6;')
  .replace("import { check, sleep } from 'k6';", 'const { check, sleep } = k6;')
  .replace("import { Counter, Trend } from 'k6/metrics';", 'const [Counter, Trend] = [k6.Metric, k6.Metric];');
const { default: iterate, setup } = await import(`data:text/javascript,${encodeURIComponent(script)}`);
setup();
iterate();
console.log(JSON.stringify({ sent, checks, metrics }));

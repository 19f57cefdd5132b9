// The same as http.js, over weir's gRPC API. A refusal is a response with allowed set to false.
//
//   k6 run -e WEIR=127.0.0.1:8081 contrib/k6/grpc.js
//
// Configure limits over HTTP or with the command:
// weir --server http://127.0.0.1:8080 resource set gpt-4 -l rpm:1000/min -l tpm:800K/min
import grpc from 'k6/net/grpc';
import { check, sleep } from 'k6';
import { Counter } from 'k6/metrics';

const address = __ENV.WEIR || '127.0.0.1:8081';
const estimate = 800;

const admitted = new Counter('weir_admitted');
const refused = new Counter('weir_refused');
const degraded = new Counter('weir_degraded');

const client = new grpc.Client();
client.load(['../../api'], 'weir/v1/limiter.proto');

export const options = {
  scenarios: {
    gateway: { executor: 'constant-arrival-rate', rate: 200, timeUnit: '1s', duration: __ENV.FOR || '30s', preAllocatedVUs: 50, maxVUs: 500 },
  },
  thresholds: {
    checks: ['rate==1'],
    'grpc_req_duration{call:acquire}': ['p(99)<50'],
  },
};

const metadata = {};
if (__ENV.WEIR_TOKEN) metadata.authorization = `Bearer ${__ENV.WEIR_TOKEN}`;

let connected = false;

function invoke(method, message, call) {
  return client.invoke(`weir.v1.Limiter/${method}`, message, { metadata, tags: { call } });
}

export default function () {
  if (!connected) {
    client.connect(address, { plaintext: __ENV.WEIR_TLS !== '1' });
    connected = true; // each virtual user keeps one connection
  }
  const entity = `apikey-${__VU}`;
  const tokens = { rpm: 1, tpm: estimate };
  const answer = invoke('Acquire', { entity, resource: 'gpt-4', tokens }, 'acquire');
  if (!check(answer, { 'acquire is answered': (r) => r.status === grpc.StatusOK })) return;
  const said = answer.message;
  if (said.degraded) degraded.add(1);
  if (!said.allowed) {
    refused.add(1);
    return;
  }
  admitted.add(1);
  sleep(0.05); // the work
  const took = 200 + Math.floor(Math.random() * 1801);
  const adjusted = invoke('Adjust', { lease: said.lease, tokens: { tpm: took - estimate } }, 'adjust');
  check(adjusted, { 'the lease is adjusted': (r) => r.status === grpc.StatusOK });
}

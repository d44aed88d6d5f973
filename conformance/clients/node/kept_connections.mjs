// A load over TLS on persistent connections, as browsers use them: HTTP/1.1 and HTTP/2, short responses, long ones, and POST.
//
//   node kept_connections.mjs https://127.0.0.1:8443 ca.pem a.example
//
// Writes a line for every hundred responses. After SIGTERM, finishes the requests in progress, writes the outcomes of all requests as JSON, and exits. Requests
// that a server never began are retried on another connection (RFC 9112 section 9.3.1, RFC 9113 section 8.7); every other request without a complete response
// has failed.
import { readFileSync } from 'node:fs';
import http2 from 'node:http2';
import https from 'node:https';

const [origin, authority, name] = process.argv.slice(2);
const CLIENTS = 6;
const STREAMS = 3;
const LONG_BYTES = 200_000;
const FAILURES_MAX = 20;
const tls = { ca: readFileSync(authority), servername: name };
const tally = { http1: 0, http2: 0, again: 0, connections: 0, failures: [] };
let stopped = false;

const TARGETS = [
  { method: 'GET', path: '/hit' },
  { method: 'GET', path: '/miss' },
  { method: 'GET', path: '/long' },
  { method: 'POST', path: '/post' },
];

function judge(target, status, bytes) {
  if (status !== 200) throw new Error(`status ${status}`);
  const expected = target.path === '/long' ? LONG_BYTES : target.path.length;
  if (bytes !== expected) throw new Error(`${bytes} bytes of ${expected}`);
}

function answered(version) {
  tally[version] += 1;
  if ((tally.http1 + tally.http2) % 100 === 0) console.log('100 answers');
}

function askHttp1(agent, target) {
  return new Promise((resolve, reject) => {
    const options = { ...tls, agent, method: target.method, headers: { host: name } };
    const request = https.request(`${origin}${target.path}`, options, (response) => {
      let bytes = 0;
      response.on('data', (data) => (bytes += data.length));
      response.on('error', reject);
      response.on('end', () => resolve([response.statusCode, bytes]));
    });
    request.on('error', (error) => {
      // The connection was closed while the request was being sent, so the server hasn't read it.
      error.isUnread = request.reusedSocket && ['ECONNRESET', 'EPIPE'].includes(error.code) && !request.res;
      reject(error);
    });
    request.end(target.method === 'POST' ? 'content' : undefined);
  });
}

async function clientHttp1(number) {
  const agent = new https.Agent({ keepAlive: true, maxSockets: 1 });
  for (let turn = number; !stopped; turn += 1) {
    const target = TARGETS[turn % TARGETS.length];
    await attempt('http1', target, () => askHttp1(agent, target));
  }
  agent.destroy();
}

async function attempt(version, target, ask) {
  for (;;) {
    try {
      judge(target, ...(await ask()));
      answered(version);
      return;
    } catch (error) {
      if (!error.isUnread) {
        tally.failures.push(`${version} ${target.method} ${target.path}: ${error.code ?? ''} ${error.message}`);
        stopped = tally.failures.length >= FAILURES_MAX;
        return;
      }
      tally.again += 1;
    }
  }
}

// One connection at a time; opens the next one when the server sends GOAWAY.
class Http2Client {
  session = null;

  current() {
    if (this.session === null || this.session.closed || this.session.destroyed) {
      const session = http2.connect(origin, tls);
      tally.connections += 1;
      const leave = () => {
        if (this.session === session) this.session = null;
      };
      session.on('goaway', leave);
      session.on('close', leave);
      session.on('error', leave);
      this.session = session;
    }
    return this.session;
  }

  ask(target) {
    return new Promise((resolve, reject) => {
      const stream = this.current().request({ ':method': target.method, ':path': target.path, ':authority': name });
      let status = 0;
      let bytes = 0;
      stream.on('response', (headers) => (status = headers[':status']));
      stream.on('data', (data) => (bytes += data.length));
      stream.on('error', (error) => {
        error.isUnread = stream.rstCode === http2.constants.NGHTTP2_REFUSED_STREAM;
        reject(error);
      });
      stream.on('close', () => resolve([status, bytes]));
      stream.end(target.method === 'POST' ? 'content' : undefined);
    });
  }

  async run(number) {
    for (let turn = number; !stopped; turn += 1) {
      const target = TARGETS[turn % TARGETS.length];
      await attempt('http2', target, () => this.ask(target));
    }
  }
}

process.on('SIGTERM', () => (stopped = true));
const clients = [];
for (let number = 0; number < CLIENTS; number += 1) {
  clients.push(clientHttp1(number));
  const client = new Http2Client();
  for (let stream = 0; stream < STREAMS; stream += 1) clients.push(client.run(number + stream));
}
await Promise.all(clients);
console.log(JSON.stringify(tally));
process.exit(0);

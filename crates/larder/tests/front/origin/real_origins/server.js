// An origin server on Node's http module: files with validators, gzip and ranges, and generated pages. Arguments: host, port, and the
// folder with the files.
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const zlib = require('node:zlib');

const [host, port, root] = process.argv.slice(2);
const TYPES = { '.html': 'text/html; charset=utf-8', '.css': 'text/css', '.txt': 'text/plain', '.png': 'image/png' };

const PAGES = {
  '/made/chunked': (request, response) => {
    const fields = { 'Content-Type': 'text/plain', 'Cache-Control': 'max-age=60' };
    // Node doesn't accept trailers without a body.
    if (request.method === 'HEAD') return response.writeHead(200, fields).end();
    response.writeHead(200, { ...fields, Trailer: 'X-Sum' });
    response.write('first,');
    response.write('second');
    response.addTrailers({ 'X-Sum': '42' });
    response.end();
  },
  '/made/early': (request, response) => {
    response.writeEarlyHints({ link: '</style.css>; rel=preload; as=style' });
    send(response, 200, { 'Cache-Control': 'max-age=60', ETag: '"early"' }, Buffer.from('after hints'));
  },
  '/made/repeated': (request, response) => {
    const fields = { 'Cache-Control': ['max-age=60', 'x-unknown'], 'X-Repeated': ['b', 'a', 'b'], Link: ['<a>', '<b>'] };
    send(response, 200, fields, Buffer.from('repeated'));
  },
  '/made/teapot': (request, response) => {
    response.statusMessage = 'Short and stout';
    send(response, 418, { 'Cache-Control': 'max-age=60' }, Buffer.from('short'));
  },
  '/made/private': (request, response) => {
    send(response, 200, { 'Cache-Control': 'private', 'Set-Cookie': ['a=1', 'b=2'] }, Buffer.from('private'));
  },
  '/made/nothing': (request, response) => {
    response.writeHead(204, { 'Cache-Control': 'max-age=60', 'X-Kept': 'yes' });
    response.end();
  },
  '/made/moved': (request, response) => {
    send(response, 301, { Location: '/style.css?moved#part', 'Cache-Control': 'max-age=60' }, Buffer.alloc(0));
  },
  '/made/language': (request, response) => {
    const language = /\bde\b/.test(request.headers['accept-language'] ?? '') ? 'de' : 'en';
    const fields = { 'Content-Language': language, Vary: 'Accept-Language', 'Cache-Control': 'max-age=60' };
    send(response, 200, fields, Buffer.from(language));
  },
};

http
  .createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
    const target = request.url.split('?')[0];
    (PAGES[target] ?? serveFile)(request, response, target);
  })
  .listen(Number(port), host);

function serveFile(request, response, target) {
  const file = path.join(root, path.normalize(decodeURIComponent(target)));
  const found = fs.existsSync(file) ? fs.statSync(file) : undefined;
  if (found?.isDirectory() && !target.endsWith('/')) {
    return send(response, 301, { Location: `${target}/` }, Buffer.from('there'));
  }
  const name = found?.isDirectory() ? path.join(file, 'index.html') : file;
  if (!fs.existsSync(name)) return send(response, 404, { 'Content-Type': 'text/plain' }, Buffer.from('not here\n'));
  serveContent(request, response, name, fs.readFileSync(name));
}

function serveContent(request, response, name, content) {
  const type = TYPES[path.extname(name)] ?? 'application/octet-stream';
  const isText = type.startsWith('text/');
  const isCoded = isText && content.length > 0 && acceptsGzip(request.headers['accept-encoding'] ?? '');
  const body = isCoded ? zlib.gzipSync(content) : content;
  const modified = fs.statSync(name).mtime.toUTCString();
  const tag = `"${crypto.createHash('sha1').update(body).digest('hex').slice(0, 16)}"`;
  const fields = { 'Cache-Control': 'max-age=60', ETag: tag, 'Last-Modified': modified };
  if (isText) fields.Vary = 'Accept-Encoding';
  if (isNotModified(request.headers, tag, modified)) return send(response, 304, fields);
  Object.assign(fields, { 'Content-Type': type, 'Accept-Ranges': 'bytes' });
  if (isCoded) fields['Content-Encoding'] = 'gzip';
  const range = request.method === 'GET' ? wantedRange(request.headers, tag, modified, body.length) : undefined;
  if (range === undefined) return send(response, 200, fields, body);
  if (range === null) {
    return send(response, 416, { 'Content-Range': `bytes */${body.length}` }, Buffer.alloc(0));
  }
  const [first, last] = range;
  fields['Content-Range'] = `bytes ${first}-${last}/${body.length}`;
  send(response, 206, fields, body.subarray(first, last + 1));
}

// The part of RFC 9110 section 12.5.3 that two codings need.
function acceptsGzip(value) {
  const weights = new Map();
  for (const member of value.toLowerCase().split(',')) {
    const [coding, ...parameters] = member.split(';').map((part) => part.trim());
    const weight = parameters.find((parameter) => parameter.startsWith('q='));
    weights.set(coding, weight === undefined ? 1 : Number(weight.slice(2)));
  }
  return (weights.get('gzip') ?? weights.get('*') ?? 0) > 0;
}

// RFC 9110 section 13.2.2: If-None-Match decides, else If-Modified-Since.
function isNotModified(headers, tag, modified) {
  const tags = headers['if-none-match'];
  if (tags !== undefined) return tags.trim() === '*' || (tags.match(/"[^"]*"/g) ?? []).includes(tag);
  const since = Date.parse(headers['if-modified-since'] ?? '');
  return Date.parse(modified) <= since;
}

// The range to send, undefined for the whole body, null if unsatisfiable. Several ranges get the whole body.
function wantedRange(headers, tag, modified, length) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(headers.range ?? '');
  const validator = headers['if-range'];
  if (!match || (match[1] === '' && match[2] === '')) return undefined;
  if (validator !== undefined && validator !== tag && validator !== modified) return undefined;
  const first = match[1] === '' ? Math.max(0, length - Number(match[2])) : Number(match[1]);
  const last = match[1] === '' || match[2] === '' ? length - 1 : Math.min(Number(match[2]), length - 1);
  if (match[1] !== '' && match[2] !== '' && Number(match[2]) < first) return undefined;
  return first < length && first <= last ? [first, last] : null;
}

function send(response, status, fields, body) {
  if (body !== undefined) fields['Content-Length'] = body.length;
  response.writeHead(status, fields);
  response.end(body);
}
